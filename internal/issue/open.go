package issue

import (
	"context"
	"time"

	"github.com/dailyserial/serial/internal/exchange"
	"github.com/dailyserial/serial/internal/redisrun"
	"github.com/dailyserial/serial/internal/store"
)

// Open is the sequence's third step: it looks again, and only if the counter is still missing asks the floor and opens
// the period. The next step is Wait if the period must be checked again because it ended meanwhile or the lock expired.
// If the caller leaves, the opening continues, so nobody waits for its lock to expire; only a question to the floor is
// dropped.
//
// The script that opens the period also gives the lock back. A lock on other servers is given back in the background:
// nobody needs the lock of an open period.
func (c *Call) Open(ctx context.Context, n int, locked Outcome) Outcome {
	steady, lock := context.WithoutCancel(ctx), locked.Held.Lock
	o := &opening{call: c, held: locked.Held, missing: locked.Reply}
	if c.session.Last == nil { // without a lock
		c.noteFailures(new(redisrun.Note))
	}
	if lock == nil {
		return await(ctx, c, n, redisrun.Begin(func() (Outcome, error) { return o.openAlone(steady, n), nil }))
	}
	return await(ctx, c, n, redisrun.Begin(func() (out Outcome, _ error) {
		opened := false
		defer func() {
			switch {
			case !opened:
				giveBack(steady, c, lock)
			case !o.released:
				lock.Release(steady, 0)
			}
			c.endFlight(out.Err)
		}()
		out = o.open(ctx, steady, n)
		opened = out.Step == Done && out.Err == nil
		return out, nil
	}))
}

// An opening creates a counter, lifts it, or has a block installed.
type opening struct {
	call     *Call
	held     Held            // lock held, zero for none
	missing  *exchange.Reply // reply that the counter is missing; nil if it may exist
	claim    claim           // claim to a block, with a ledger
	floor    int64           // floor's answer, 0 if it was not asked
	seq      int64           // operator's sequence, 0 for none
	released bool            // the lock was given back
}

// open opens the period under the lock. ctx is the caller's; steady never ends. The script looks again before it opens.
// With a floor or a ledger, open looks first, so as not to ask them in vain.
func (o *opening) open(ctx, steady context.Context, n int) Outcome {
	c, asked := o.call, o.missing.Span
	if c.issuer.Floor != nil || c.issuer.Reserve != nil {
		purpose := store.ForOpening
		if c.issuer.Floor != nil {
			purpose = store.ForFloor
		}
		defer func() { giveBack(steady, c, &o.claim) }()
		out := c.outcome(o.inspect(steady, n, purpose))
		if out.Step != Missing {
			return out
		}
		o.missing = out.Reply
	}
	missing, since := o.missing, o.held.Since
	if missing.Span.Start != asked.Start || time.Since(since) >= LockExpiry-floorMargin {
		return Outcome{Step: Wait} // the lock is for another period, or has nearly expired
	}
	if err := c.checkSkew(missing); err != nil {
		return Outcome{Err: err}
	}
	// The lock lives at least that long from when it was requested.
	request := store.Open{
		N: n, Checked: missing.Now, Lease: LockExpiry - max(0, missing.Sent.Sub(since)), Lock: o.held.Lock.Content(),
	}
	if c.issuer.Floor != nil {
		var err error
		if o.floor, err = c.askFloor(ctx, missing.Span, since.Add(LockExpiry-floorMargin)); err != nil {
			return Outcome{Err: err}
		}
		request.Floor = store.FloorAt(o.floor)
	}
	// For the checked period: Redis refuses the Open if it comes too late.
	return o.opened(o.install(steady, missing.Span, request))
}

// openAlone opens the period without a lock, for the second in which the request arrives.
func (o *opening) openAlone(ctx context.Context, n int) Outcome {
	if err := o.call.checkSkew(o.missing); err != nil {
		return Outcome{Err: err}
	}
	request := store.Open{N: n, Checked: o.missing.Now, Lease: LockExpiry}
	return o.opened(o.install(ctx, o.call.session.Current(), request))
}

// refill makes one attempt to install a block for an existing counter.
func (o *opening) refill(ctx context.Context, n int) Outcome {
	defer func() { giveBack(ctx, o.call, &o.claim) }()
	r, err := o.inspect(ctx, n, store.ForCeiling)
	if err == nil && r.Status == store.Reserved {
		r, err = o.install(ctx, r.Span, store.Open{N: n, Checked: r.Now, Lease: LockExpiry})
	}
	return o.call.outcome(r, err)
}

// inspect sends a take that asks for the state of the period. With a ledger, and unless the purpose is All, the reply
// grants the claim if a block must be set aside; ctx must not end then, since the claim must be given back.
func (o *opening) inspect(ctx context.Context, n int, purpose store.Purpose) (r exchange.Reply, err error) {
	c, take := o.call, store.Take{N: n, Purpose: store.All}
	claims := c.issuer.Reserve != nil && purpose != store.All
	if claims {
		take.Purpose, take.Claim = purpose, o.claim.ask(c, o.held, o.missing)
	}
	r, err = c.session.Send(ctx, &take, true)
	if claims {
		o.claim.granted(&r, err)
	}
	return r, err
}

// install sends an Open for the inspected period: Redis refuses it if that period is over. With a claim, it sets a
// block aside first.
func (o *opening) install(ctx context.Context, span *exchange.Span, request store.Open) (r exchange.Reply, err error) {
	c := o.call
	request.Base = c.issuer.baseAbove(o.floor)
	if o.claim.held {
		if !time.Now().Before(o.claim.until) {
			r.Span, r.Status = span, store.Late
			return r, nil
		}
		if err := o.claim.reserve(ctx, span, &request, o.floor, o.seq); err != nil {
			return r, err
		}
	}
	if now := c.session.Current(); now.Label == span.Label {
		span = now // the date may be printed differently by now
	}
	p := o.claim.period
	lift := exchange.Lift{Floor: o.floor, Seq: o.seq, Mixed: p.Mixed}
	if o.seq > 0 && (!p.Intact || o.claim.before > p.Above) {
		lift.Ledger = max(p.Above, o.claim.before)
	}
	r, err = c.session.Open(ctx, span, &request, lift)
	o.released = request.Lock != "" && err == nil && r.Status == store.Issued
	o.claim.used(&r, err)
	return r, err
}

// opened returns the outcome of an Open for a missing period.
func (o *opening) opened(r exchange.Reply, err error) Outcome {
	if err == nil && r.Status == store.Issued && r.Skipped.Opened {
		o.call.session.NoteOpened(r.Span, time.Since(o.call.began))
	}
	return o.call.outcome(r, err)
}
