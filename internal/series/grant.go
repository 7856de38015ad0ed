package series

import (
	"context"
	"errors"
	"time"

	"github.com/dailyserial/serial/internal/calendar"
	"github.com/dailyserial/serial/internal/wire"
)

// Lock is the second step of the sequence. It makes one attempt to get the lock. The next step is Wait if another
// process holds the lock. It is Again if another caller of this process was already opening the period, and has
// finished. The next step is also Wait if lock servers fail, because they may recover, and the counter may exist by
// then. Wait fails when there is no time left for another attempt.
//
// If there is a floor or a ledger, Lock checks the counter again, with a request that is sent together with the lock's
// command. If this request gets numbers, the call is finished and needs no lock.
//
// If periods last a second, Lock returns Locked without a lock, because a second is too short to get one. Opening a
// period is safe without the lock.
func (c *Call) Lock(ctx context.Context, locks Locks, out Outcome) Outcome {
	span := out.found.span
	if c.series.Calendar.Unit == calendar.Second {
		return Outcome{Step: Locked, found: out.found}
	}
	if others := c.startFlight(span); others != nil {
		return others.wait(ctx, c)
	}
	var check *request
	var behind *wire.Item
	if c.checksTwice() && c.series.Replicas.N == 0 {
		check = &request{n: c.n, options: &options{All: true}}
		c.aim(check, span)
		behind = &check.Item
	}
	since := time.Now()
	key := c.series.keys.lock(c.typ, span.Label)
	lock, sent, err := locks.Try(ctx, c.deadline, c.counts, key, behind, c.note)
	c.refused = err
	if sent {
		if checked := c.checkOutcome(ctx, check, lock); checked.Step != Missing {
			return checked
		}
		out.found, out.checked = check, true
	}
	next := afterLock(err)
	next.found, next.checked, next.lock, next.since = out.found, out.checked, lock, since
	return next
}

// afterLock returns the outcome of an attempt to get the lock that returned err.
func afterLock(err error) Outcome {
	switch {
	case err == nil:
		return Outcome{Step: Locked}
	case errors.Is(err, ErrTaken), wire.Transient(err):
		return Outcome{Step: Wait}
	}
	return Outcome{Err: err}
}

// checksTwice reports whether the counter has to be checked again under the lock, so that a floor or a ledger is not
// called unnecessarily.
func (c *asker) checksTwice() bool { return c.series.Floor != nil || c.series.Reserve != nil }

// checkOutcome waits for the check that was sent with the lock's command, and returns its outcome. Unless the next step
// is Missing, checkOutcome releases the lock, because the lock is not needed.
func (c *Call) checkOutcome(ctx context.Context, check *request, lock Lock) Outcome {
	var out Outcome
	if err := check.Wait(ctx); err != nil {
		out = Outcome{Err: err}
	} else {
		c.observe(check, 0)
		out = c.outcome(check, 0, check.err)
	}
	if out.Step != Missing && lock != nil {
		lock.Release(ctx)
	}
	return out
}

// Open is the third step of the sequence. It opens the period, or installs a new block of the ledger. The next step is
// Wait if the state of the period has changed or the lock has expired, so that the call must begin again.
//
// If ctx ends, Open returns, but the opening continues in the background until shortly before the lock expires.
// Otherwise the lock would stay held, and other callers would have to wait until it expires. Only a pending query to
// the floor is canceled. The script that opens the period also releases the lock.
func (c *Call) Open(ctx context.Context, out Outcome) Outcome {
	o := &opening{Call: c.detach(out), caller: ctx, Outcome: out}
	return c.await(ctx, o)
}

// detach returns a copy of the call for an opening that may continue without its caller. The deadline of the copy is
// shortly before the call's lock expires. The call's flight is moved to the copy.
func (c *Call) detach(out Outcome) *Call {
	d := *c
	d.deadline = time.Now().Add(LockExpiry - margin)
	if out.lock != nil {
		d.deadline = out.since.Add(LockExpiry - margin)
	}
	c.flight = nil
	return &d
}

// await runs an opening. If ctx ends or the call's deadline passes, await returns, and the opening continues in the
// background.
func (c *Call) await(ctx context.Context, o *opening) Outcome {
	within, cancel := context.WithDeadline(ctx, c.deadline)
	defer cancel()
	out, over, err := wire.Await(within, func() (Outcome, error) {
		return o.run(context.WithoutCancel(ctx)), nil
	}, func(out Outcome, _ error) {
		defer c.series.gaps.addPending(-1)
		if n := out.Numbers; out.Step == Done && out.Err == nil && n.Span != nil && c.requestID == "" {
			c.series.gaps.skip(c.typ, n.Span, CallerLeft, n.Last-int64(c.n), n.Last)
		}
	})
	if !over {
		c.series.gaps.addPending(1)
		if err = wire.ContextErr(ctx); err == nil {
			err = wire.ErrNoAnswer
		}
		return Outcome{Err: c.gaveUp(err)}
	}
	if err != nil { // a hook of the client ended the opening's goroutine
		return Outcome{Err: c.gaveUp(err)}
	}
	c.Events = o.Events
	return out
}

// run performs the opening. ctx has the values of the caller's context, but never ends.
func (o *opening) run(ctx context.Context) (out Outcome) {
	released := false
	defer func() {
		if o.lock != nil && !released && !o.kept {
			o.lock.Release(ctx)
		}
		o.endFlight(out.Err, o.lock != nil && out.Err != nil && time.Since(o.since) > time.Second)
	}()
	if o.checksTwice() && !o.checked {
		locked := o.found.span
		out = o.outcome(o.ask(ctx, &request{n: o.n, options: &options{All: true}}))
		if out.Step != Missing {
			return out
		}
		if o.found = out.found; o.found.span.Start != locked.Start {
			return Outcome{Step: Wait} // the lock is for an earlier period
		}
	}
	if o.found.reply.Closed || o.found.reply.Lost {
		if err := o.checkSkew(o.found); err != nil {
			return Outcome{Err: err}
		}
		if o.series.Floor != nil {
			var err error
			if o.floor, err = o.queryFloor(o.caller, o.found.span); err != nil {
				return Outcome{Err: err}
			}
		}
	}
	r, err := o.install(ctx)
	released = err == nil && r.reply.Opened && o.lock != nil && o.lock.Content() != ""
	return o.opened(r, err)
}

// opened returns the outcome of an installation. Its request is r, and the error of this request is err.
func (o *opening) opened(r *request, err error) Outcome {
	closed := o.found.reply.Closed || o.found.reply.Lost
	if err == nil && r.reply.Status == Issued && r.reply.Opened && closed {
		o.Events.Opened, o.Events.Wait = r.span, time.Since(o.began)
	}
	if err == nil && r.reply.Status == missing {
		return Outcome{Step: Wait} // the state of the period has changed
	}
	return o.outcome(r, 0, err)
}

// install sends a grant for the period of o.found. With a ledger, it first has a block reserved. If the clock has
// reached another span of the same period, install sends the same grant again for that span.
func (o *opening) install(ctx context.Context) (*request, error) {
	found, contents := &o.found.reply.Found, granted{floor: o.floor, seq: o.seq}
	checked := o.found.reply.Now
	lease := LockExpiry
	if o.lock != nil { // the grant must expire before the lock, which is held for at least LockExpiry after o.since
		lease -= max(0, o.found.reply.Received.Sub(o.since))
	}
	g := &grant{Checked: checked.UnixMilli(), Lease: lease.Milliseconds(), Base: o.series.Base}
	if 0 < o.floor && o.floor <= g.Base {
		g.Base = 0 // the period had a lower start
	}
	if o.series.Floor != nil && (found.Closed || found.Lost) || o.purpose != "" {
		floor := max(o.floor, o.seq)
		g.Floor = &floor
	}
	if o.series.Reserve != nil {
		if err := o.reserve(ctx, g, &contents); err != nil {
			return nil, err
		}
	}
	span := o.found.span
	if now := o.Current(); now.Label == span.Label {
		span = now // the printed date may have changed
	}
	for tries := 0; ; tries++ {
		r := &request{n: o.n, options: &options{All: true, Grant: g, Purpose: o.purpose, Seq: o.seq}, granted: contents}
		if g.Block != nil {
			r.Repeat = wire.IfProven
		} else if o.purpose == "" { // raising a counter to an operator's sequence twice has no further effect
			r.Repeat = wire.IfUnsent
		}
		if o.lock != nil && o.lock.Content() != "" {
			g.Lock = o.lock.Content()
			r.keys = []any{o.series.keys.lock(o.typ, span.Label)}
		}
		got, _, err := o.send(ctx, r, span)
		o.kept = err != nil && wire.Silent(err)
		if err != nil || got.reply.Status != clocked {
			return got, err
		}
		next, err := o.spanAfter(&got.reply)
		if err != nil || next.Label != span.Label || tries == clockTries {
			o.series.gaps.burn(got)
			return got, err
		}
		span = next
	}
}
