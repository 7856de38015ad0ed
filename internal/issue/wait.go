package issue

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/dailyserial/serial/internal/budget"
	"github.com/dailyserial/serial/internal/exchange"
	"github.com/dailyserial/serial/internal/redisrun"
)

// End ends the call for its caller: others who wait for the call continue, with err if it is an outage. If the caller
// has left a step that continues, End does nothing: that step ends the call.
func (c *Call) End(err error) {
	if !c.abandoned {
		c.endFlight(err)
		c.session.SettlePanic()
	}
}

// startFlight starts the call's flight for the period of a span, until End. If another caller's flight is under way, it
// returns that one instead.
func (c *Call) startFlight(span *exchange.Span) (others *flight) {
	if c.flight != nil {
		if c.flight.key.start == span.Start {
			return nil
		}
		c.endFlight(nil) // a flight for a period that is over
	}
	key := flightKey{strings.Clone(c.issuer.CountedAs(c.session.Type)), span.Start}
	started := &flight{key: key, done: make(chan struct{}), ended: Outcome{Step: Again}}
	if others, found := c.issuer.flights.LoadOrStore(started.key, started); found {
		return others.(*flight)
	}
	c.flight = started
	c.noteFailures(&started.last)
	return nil
}

// noteFailures has the last failure of later steps noted, so that the caller can name it if it leaves. The last failure
// so far stays until there is another one.
func (c *Call) noteFailures(last *redisrun.Note) {
	if before := c.session.Last; before != nil {
		last.CompareAndSwap(nil, before.Load())
	}
	c.session.Last = last
}

// GaveUp returns a call's error err. If the call gave up, the error has the last failure before that.
func (c *Call) GaveUp(ctx context.Context, err error) error {
	end := redisrun.EndOf(ctx)
	if c.session.Last == nil || !(end != nil && errors.Is(err, end)) && !errors.Is(err, redisrun.ErrNoAnswer) {
		return err
	}
	return redisrun.After(c.session.Last, err)
}

// endFlight ends the call's flight, if it has one.
func (c *Call) endFlight(err error) {
	f := c.flight
	if f == nil {
		return
	}
	c.flight = nil
	if redisrun.IsOutage(err) {
		f.ended = Outcome{Err: err}
	}
	c.issuer.flights.Delete(f.key)
	close(f.done)
}

// noteOthers notes a server's reply that others are at work.
func (c *Call) noteOthers() {
	c.session.Budget.Renew()
	if c.flight != nil {
		c.flight.others.Add(1)
	}
}

// wait waits for another caller of this process until ctx ends, or for the time that the call may wait for others if
// ctx has no deadline. Time for which that caller waits for servers is charged to this call too.
func (f *flight) wait(ctx context.Context, c *Call) Outcome {
	b := &c.session.Budget
	c.noteFailures(&f.last)
	for others := f.others.Load(); b.Wait() > 0; {
		if b.Answer() <= 0 {
			return Outcome{Err: redisrun.ErrUnsent}
		}
		limit := min(b.Wait(), b.Answer(), budget.Step)
		start := time.Now()
		ended := false
		select {
		case <-f.done:
			ended = true
		case <-ctx.Done():
			return Outcome{Err: cancelError(ctx.Err(), c.issuer.subject(c.session.Type), c.issuer.Reserve != nil)}
		case <-time.After(limit):
		}
		if took := time.Since(start); f.outside.Load() {
			b.SpendOthers(took, limit)
		} else {
			b.Spend(took, limit)
		}
		if now := f.others.Load(); now != others {
			others = now
			c.noteOthers()
		}
		if ended {
			return f.ended
		}
	}
	return Outcome{Err: timeoutError(c.issuer.subject(c.session.Type), c.Current().Label, c.lockErr)}
}

// timeoutError returns the error of a call that has used up its time to wait for others. lockErr is the error of its
// last attempt at the lock.
func timeoutError(typ, label string, lockErr error) error {
	return fmt.Errorf("serial: %s %s was not opened within %v: %w", typ, label, budget.Others, cmp.Or(lockErr, ErrTaken))
}

// Wait is the sequence's fourth step: it lets others open the period, for a random time that grows to a tenth of a
// second.
func (c *Call) Wait(ctx context.Context) Outcome {
	pause := min(2*time.Millisecond<<c.waits, 100*time.Millisecond)
	pause = pause/2 + rand.N(pause)
	if pause > c.session.Budget.Wait() {
		return Outcome{Err: timeoutError(c.issuer.subject(c.session.Type), c.Current().Label, c.lockErr)}
	}
	c.waits = min(c.waits+1, 10)
	if err := redisrun.Sleep(ctx, pause); err != nil {
		if c.lockErr == nil || errors.Is(c.lockErr, ErrTaken) {
			err = fmt.Errorf("%w: %w", err, ErrTaken)
		}
		return Outcome{Err: err}
	}
	c.session.Budget.Spend(pause, pause)
	return Outcome{Step: Again}
}

// cancelError returns the error of a call whose context ended while a period was being opened or a block set aside.
func cancelError(end error, typ string, ledger bool) error {
	what := "its period to be opened"
	if ledger {
		what += " and for its ledger, which may itself wait for a transaction that the caller holds"
	}
	return fmt.Errorf("serial: gave up waiting for %s, for %s: %w", typ, what, end)
}

// await waits for a step that issues n numbers, and leaves it if ctx ends: the step then continues by itself.
func await(ctx context.Context, c *Call, n int, running redisrun.Pending[Outcome]) Outcome {
	out, err, over := running.Wait(ctx, redisrun.NoLimit)
	if !over {
		c.issuer.AddPending(1)
		c.abandoned = running.Leave(func(out Outcome, err error) {
			defer c.issuer.AddPending(-1)
			c.session.SettlePanic()
			if err == nil && out.Err == nil && out.Step == Done {
				c.session.NobodyGot(out.Numbers.Span, out.Numbers.Last, int64(n))
			}
		})
		if !c.abandoned {
			c.issuer.AddPending(-1)
			out, err, _ = running.Wait(context.Background(), redisrun.NoLimit)
		}
	}
	if err != nil {
		return Outcome{Err: cancelError(err, c.issuer.subject(c.session.Type), c.issuer.Reserve != nil)}
	}
	return out
}
