package issue

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/dailyserial/serial/internal/budget"
	"github.com/dailyserial/serial/internal/coalesce"
	"github.com/dailyserial/serial/internal/redisrun"
	"github.com/dailyserial/serial/internal/store"
)

// These are in every error of a floor and of a ledger, so that a log can name which of them failed without the text of the error.
var (
	ErrFloor  = errors.New("the floor")
	ErrLedger = errors.New("the ledger")
)

// Open is the sequence's third step: it looks again, and only if the counter is still missing asks the floor and opens the period.
// The next step is Wait where the period has to be looked at again: it ended meanwhile, or the lock expired. An opening goes on
// without a caller who leaves, so that nobody waits for its lock to expire; only the floor is asked no longer.
//
// The script that opens gives the lock back too. If it is on other servers, that goes on behind the caller's back: nobody needs the
// lock of a period that is open.
func (c *Call) Open(ctx context.Context, n int, lock Lock) Outcome {
	a := &attempt{call: c, lock: lock}
	if lock == nil {
		return a.openAlone(ctx, n)
	}
	return c.detached(ctx, n, func() (out Outcome, _ error) {
		steady := context.WithoutCancel(ctx)
		opened := false
		defer func() {
			switch {
			case !opened:
				c.session.giveBack(steady, lock)
			case !a.released:
				lock.Release(steady, 0)
			}
			c.session.endFlight(out.Err)
		}()
		out = a.open(ctx, steady, n)
		opened = out.Step == Done && out.Err == nil
		return out, nil
	})
}

// refill has a block set aside for a counter that is there, but at its ceiling or not as it was left, and issues n numbers from
// it. The next step is Again where another caller of this process did that. It goes on without a caller who leaves.
func (c *Call) refill(ctx context.Context, n int) Outcome {
	if others := c.session.startFlight(); others != nil {
		return c.session.waitFlight(ctx, others)
	}
	return c.detached(ctx, n, func() (out Outcome, _ error) {
		defer func() { c.session.endFlight(out.Err) }()
		for {
			a := &attempt{call: c}
			if out = a.refill(context.WithoutCancel(ctx), n); out.Step != Wait {
				return out, nil
			}
			if out = c.Wait(ctx); out.Step != Again { // for another process that is at it
				return out, nil
			}
		}
	})
}

// detached runs a step that goes on without a caller who leaves, and issues n numbers.
func (c *Call) detached(ctx context.Context, n int, step func() (Outcome, error)) Outcome {
	s := &c.session
	running := redisrun.Begin(step)
	out, err, over := running.Wait(ctx, redisrun.NoLimit)
	if !over {
		s.issuer.expect(1)
		c.left = running.Leave(func(out Outcome, err error) {
			defer s.issuer.expect(-1)
			s.settleRest()
			if err == nil && out.Err == nil && out.Step == Done && s.request == "" {
				s.issuer.explainLast(s.typ, out.Numbers.Span, CallerLeft, out.Numbers.Last, int64(n))
			}
		})
		if !c.left {
			s.issuer.expect(-1)
			out, err, _ = running.Wait(context.Background(), redisrun.NoLimit)
		}
	}
	if err != nil {
		return Outcome{Err: s.cancelError(err)}
	}
	return out
}

// An attempt is one attempt to create a counter, to lift it, or to have a block installed.
//
// With a ledger that takes a claim: the right to install one block. Redis gives it to one caller at a time, for the lock's expiry,
// and open consumes it: so a block that comes late, from a process that stood still or to a server that has forgotten, is burned.
type attempt struct {
	call     *Call
	lock     Lock        // nil for none
	claimed  bool        // the attempt may have the claim
	released bool        // the lock was given back
	block    store.Block // under that claim; its bounds once it is reserved
	above    int64       // the block has to lie above
	until    time.Time   // the claim is of no use from then on
	floor    int64       // what the floor has answered, 0 if it was not asked
	seq      int64       // an operator's, 0 for none
	at       int64       // where the counter stood when the operator looked, -1 if that is not known
}

// open is Open by whoever has the lock. ctx is the caller's, and steady does not end. Redis looks again by itself before it opens; the
// caller does first where a floor or a ledger would be asked in vain.
func (a *attempt) open(ctx, steady context.Context, n int) Outcome {
	c, s := a.call, &a.call.session
	asked := s.span
	if s.issuer.Floor != nil || s.issuer.Reserve != nil {
		purpose := store.ForOpening
		if s.issuer.Floor != nil {
			purpose = store.ForFloor
		}
		defer s.giveBack(steady, a)
		r, err := a.inspect(steady, n, purpose)
		if out := c.outcome(r, err); out.Step != Missing {
			return out
		}
	}
	found, since := c.found, c.lockSince
	if s.span.Start != asked.Start || time.Since(since) >= LockExpiry-floorMargin {
		return Outcome{Step: Wait} // the lock is another period's, or it took too long to get here
	}
	// The lock lives as long from when it was asked for, or later.
	o := store.Open{N: n, Checked: found.Now, Lease: LockExpiry - max(0, found.Sent.Sub(since)), Lock: a.lock.Held()}
	if err := s.checkSkew(*found); err != nil {
		return Outcome{Err: err}
	}
	if s.issuer.Floor != nil {
		used, err := a.askFloor(ctx, since.Add(LockExpiry-floorMargin))
		if err != nil {
			return Outcome{Err: err}
		}
		o.Floor = store.FloorAt(used)
	}
	// For the period of the check: Redis refuses it if it comes too late.
	return a.afterOpen(a.install(steady, o))
}

// openAlone is open without a lock, for the second in which it arrives.
func (a *attempt) openAlone(ctx context.Context, n int) Outcome {
	s, found := &a.call.session, a.call.found
	if err := s.checkSkew(*found); err != nil {
		return Outcome{Err: err}
	}
	s.targetNow()
	return a.afterOpen(a.install(ctx, store.Open{N: n, Checked: found.Now, Lease: LockExpiry}))
}

// afterOpen returns the outcome for a period that was missing.
func (a *attempt) afterOpen(r store.Reply, err error) Outcome {
	s := &a.call.session
	if err == nil && r.Status == store.Issued && !r.There {
		s.mu.Lock()
		s.events.Opened, s.events.Wait = s.span, time.Since(a.call.began)
		s.mu.Unlock()
	}
	return a.call.outcome(r, err)
}

// refill is one attempt at a block for a counter that is there.
func (a *attempt) refill(ctx context.Context, n int) Outcome {
	defer a.call.session.giveBack(ctx, a)
	r, err := a.inspect(ctx, n, store.ForCeiling)
	if err == nil && r.Status == store.Reserved {
		r, err = a.install(ctx, store.Open{N: n, Checked: r.Now, Lease: LockExpiry})
	}
	return a.call.outcome(r, err)
}

// inspect is a take that tells how the period stands. With a ledger, and unless the purpose is All, the reply brings the claim where a
// block has to be set aside; ctx must not end then, since the claim has to be given back. The claim does not outlive the lock, so
// that a process that dies with both delays the others once.
func (a *attempt) inspect(ctx context.Context, n int, purpose store.Purpose) (r store.Reply, err error) {
	c, s := a.call, &a.call.session
	take := store.Take{N: n, Purpose: store.All}
	if s.issuer.Reserve != nil && purpose != store.All {
		since := time.Now()
		take.Purpose, take.Claim = purpose, store.Claim{Token: rand.Text(), Lease: LockExpiry}
		if a.lock != nil {
			since = c.lockSince
			// By the server's clock, shortly before the lock was asked for.
			take.Claim.Until = c.found.Now.Add(since.Sub(c.found.Received) + LockExpiry)
		}
		a.claimed, a.until = true, since.Add(LockExpiry-floorMargin)
	}
	s.targetNow()
	for again := true; again; {
		take.Series, take.ClockUntrusted, take.Request = s.series(), s.node.clockUntrusted(), s.answer()
		s.sent = store.Asked{N: n, HighWater: take.HighWater, Once: s.request != ""}
		r, err = s.issuer.Store.Take(ctx, &s.budget, s.node.Node, &take)
		again, err = s.digest(ctx, &r, err)
	}
	a.claimed = a.claimed && (err != nil || r.Status == store.Reserved)
	a.above = max(a.above, r.Above)
	a.block = store.Block{Token: take.Claim.Token, ReplicationID: r.ReplicationID}
	return r, err
}

// askFloor asks the floor, which has until then, and the caller's context, to answer. A block has to lie above the answer.
func (a *attempt) askFloor(ctx context.Context, until time.Time) (int64, error) {
	s := &a.call.session
	start := time.Unix(s.span.Start, 0).In(s.issuer.Calendar.Location)
	used, err := a.askOutside(ctx, until, func(ctx context.Context) (int64, error) {
		return s.issuer.Floor(ctx, s.typ, start)
	})
	if err != nil {
		return 0, fmt.Errorf("serial: %w of %s %s: %w", ErrFloor, s.typ, s.span.Label, err)
	}
	if limit := s.issuer.Limit; used < 0 || used > limit {
		return 0, fmt.Errorf("serial: %w of %s %s answered %d: allowed are 0 to %d",
			ErrFloor, s.typ, s.span.Label, used, limit)
	}
	a.above, a.floor = max(a.above, used), used
	return used, nil
}

// askOutside asks a floor or a ledger, which has until then to answer, and as long as the call has time for it. One that heeds its
// context answers in time with an error of its own; one that doesn't is not waited for.
func (a *attempt) askOutside(
	ctx context.Context, until time.Time, ask func(context.Context) (int64, error),
) (int64, error) {
	start, b := time.Now(), &a.call.session.budget
	rest := min(floorMargin/2, b.Answer())
	limit := max(0, min(until.Sub(start), b.Answer()-rest))
	if f := a.call.session.flight; f != nil {
		f.outside.Store(true)
		defer f.outside.Store(false)
	}
	within, cancel := context.WithTimeout(ctx, limit)
	v, err := redisrun.Await(ctx, limit+rest, func() (int64, error) {
		defer cancel()
		return ask(within)
	})
	b.Spend(time.Since(start), limit+rest)
	return v, err
}

// reserve asks the ledger for a block that n numbers fit into, if the period has so many left.
func (a *attempt) reserve(ctx context.Context, n int) error {
	const widest = store.MaxSeq
	s := &a.call.session
	i, label := s.issuer, s.span.Label
	above := max(a.above, i.Base)
	if above >= widest { // by a counter that something else has written
		return s.refuse(store.Reply{Status: store.Exhausted, Held: strconv.FormatInt(above, 10)})
	}
	size := max(1, min(max(i.Block, int64(n)), i.Limit-above)) // the last block is as small as needed
	after, err := a.askOutside(ctx, a.until, func(ctx context.Context) (int64, error) {
		return i.Reserve(ctx, s.typ, label, above, size)
	})
	if err != nil {
		return redisrun.Outage(fmt.Errorf("serial: %w of %s %s: %w", ErrLedger, s.typ, label, err))
	}
	most := widest - size
	if i.Limit == widest { // whose last block may reach beyond it
		most = 2 * widest
	}
	if after < above || after > most {
		return redisrun.Outage(fmt.Errorf("serial: %w of %s %s set aside %d above %d and answered %d: "+
			"allowed are %d to %d", ErrLedger, s.typ, label, size, above, after, above, most))
	}
	a.block.After, a.block.Upto = min(after, widest), min(after+size, widest)
	return nil
}

// install sends open, for the period that was inspected: Redis refuses it if that is over. With a claim, a block is set aside
// first.
func (a *attempt) install(ctx context.Context, o store.Open) (store.Reply, error) {
	s := &a.call.session
	if a.claimed {
		if !time.Now().Before(a.until) {
			return store.Reply{Status: store.Late}, nil
		}
		if err := a.reserve(ctx, o.N); err != nil {
			return store.Reply{}, err
		}
		o.Block = &a.block
	}
	asked := s.span
	s.targetNow() // what is printed of the date may have changed since the period was inspected
	if s.span.Start != asked.Start {
		s.span = asked
	}
	o.Series, o.Base, o.Request = s.series(), s.issuer.Base, s.answer()
	s.sent = store.Asked{N: o.N, HighWater: o.HighWater, Once: s.request != ""}
	var together *opening
	var begun time.Time
	if s.request == "" { // whose open may be long
		limit, _ := s.budget.Attempt()
		together, _, begun = s.node.opens.Join(&o, openPayload{ctx, limit}, true)
	}
	r, err := store.Reply{}, coalesce.ErrEnded // which stays if a hook panics
	if together != nil {
		r, err = s.openTogether(together)
	} else {
		defer func() { s.node.opens.Leave(begun, err == nil && s.request == "") }()
		r, err = s.issuer.Store.Open(ctx, &s.budget, s.node.Node, &o)
	}
	if r.Upto > 0 || len(r.Unanswered) > 0 {
		a.explainSkipped(s.span, &o, &r)
	}
	if err == nil && a.claimed && r.Upto == 0 && r.Status != store.Issued && !r.Now.IsZero() { // the block is burned
		s.issuer.explainLast(s.typ, s.span, BlockSkipped, a.block.Upto, a.block.Upto-a.block.After)
	}
	a.released = o.Lock != "" && err == nil && r.Status == store.Issued
	err = s.observe(&r, err)
	a.claimed = a.claimed && (err != nil || r.Status != store.Issued && r.Status != store.Exhausted)
	return r, err
}

// Release gives a claim back that has not been used, so that the next one need not wait until it expires. One that may have been
// used, or not been given, is given back too: it does no harm, and nobody knows better.
func (a *attempt) Release(ctx context.Context, patience time.Duration) {
	if !a.claimed {
		return
	}
	s := &a.call.session
	_, _ = redisrun.Await(ctx, patience, func() (bool, error) {
		b := budget.New(false)
		return true, s.issuer.Store.Release(ctx, &b, s.node.Node, s.typ, a.block.Token)
	})
}

type releaser interface {
	Release(ctx context.Context, patience time.Duration)
}

// giveBack gives back what the call holds, and waits a little for that: not for a server that has failed already.
func (s *session) giveBack(ctx context.Context, held releaser) {
	patience, start := time.Duration(0), time.Now()
	if !s.silent {
		patience = max(0, min(LockPatience, s.budget.Answer()))
	}
	held.Release(ctx, patience)
	s.budget.Spend(time.Since(start), patience)
}
