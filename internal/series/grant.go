package series

import (
	"context"
	"errors"
	"time"

	"github.com/dailyserial/serial/internal/calendar"
	"github.com/dailyserial/serial/internal/wire"
)

// Lock is the second step of the sequence. It makes one attempt to get the lock. The next step is Wait if another
// process holds the lock, and Again if another caller of this process has opened the period in the meantime. If lock
// servers fail, the next step is Wait, too: they may recover, and the counter may exist by then. Wait fails when there
// is no time left for another attempt.
//
// If there is a floor or a ledger, the counter is checked again by a request that is sent with the lock's command. If
// this request gets numbers, the call is finished and needs no lock.
//
// If periods last a second, Lock returns Locked without a lock. A second is too short for one, and opening is safe
// without it.
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

// afterLock returns the outcome of an attempt to get the lock that ended with err.
func afterLock(err error) Outcome {
	switch {
	case err == nil:
		return Outcome{Step: Locked}
	case errors.Is(err, ErrTaken), wire.Transient(err):
		return Outcome{Step: Wait}
	}
	return Outcome{Err: err}
}

// checksTwice reports whether the counter must be checked again under the lock, so that a floor or a ledger is not
// queried unnecessarily.
func (c *asker) checksTwice() bool { return c.series.Floor != nil || c.series.Reserve != nil }

// checkOutcome returns the outcome of a check that was sent with the lock's command. Unless the next step is Missing,
// checkOutcome releases the lock, because it is not needed.
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

// Open is the third step of the sequence. It opens the period, or has a block reserved. The next step is Wait if the
// period must be checked again, because its state has changed or the lock has expired.
//
// If ctx ends, Open returns, but the opening continues in the background until shortly before the lock expires.
// Otherwise the lock would stay held, and other callers would have to wait. Only a pending query to the floor is
// canceled. The script that opens the period also releases the lock.
func (c *Call) Open(ctx context.Context, out Outcome) Outcome {
	o := &opening{Call: c.detach(out), caller: ctx, Outcome: out}
	return c.await(ctx, o)
}

// detach returns a copy of the call for an opening that may continue without its caller, until shortly before the lock
// of out expires. The call's flight becomes the copy's.
func (c *Call) detach(out Outcome) *Call {
	d := *c
	d.deadline, d.endless = time.Now().Add(LockExpiry-margin), true
	if out.lock != nil {
		d.deadline = out.since.Add(LockExpiry - margin)
	}
	c.flight = nil
	return &d
}

// await runs an opening. If ctx ends or the deadline passes, await returns and the opening continues.
func (c *Call) await(ctx context.Context, o *opening) Outcome {
	within, cancel := context.WithDeadline(ctx, c.deadline)
	defer cancel()
	out, over, err := wire.Await(within, func() (Outcome, error) {
		return o.run(context.WithoutCancel(ctx)), nil
	}, func(out Outcome, _ error) {
		defer c.series.gaps.addPending(-1)
		if n := out.Numbers; out.Step == Done && out.Err == nil && n.Span != nil && c.once == "" {
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

// run opens the period under the lock. ctx has the caller's values and never ends.
func (o *opening) run(ctx context.Context) (out Outcome) {
	released := false
	defer func() {
		if o.lock != nil && !released && !o.kept {
			o.lock.Release(ctx)
		}
		o.endFlight(out.Err)
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

// opened returns the outcome of an installation.
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

// install sends a grant for the period that was found. With a ledger, it first has a block reserved. If the clock has
// moved to another span of the same period, install sends the same grant again for that span.
func (o *opening) install(ctx context.Context) (*request, error) {
	found, contents := &o.found.reply.Found, granted{floor: o.floor, seq: o.seq}
	checked := o.found.reply.Now
	lease := LockExpiry
	if o.lock != nil { // the grant expires before the lock, which is held for at least LockExpiry from since on
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
		} else if o.purpose == "" { // raising to an operator's sequence twice has no further effect
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
