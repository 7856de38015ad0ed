package series

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/dailyserial/serial/internal/wire"
)

// wait waits until f, a flight of another caller, ends. It adds the time that this takes to the deadline of c.
func (f *flight) wait(ctx context.Context, c *Call) Outcome {
	began := time.Now()
	defer func() { c.extend(time.Since(began)) }()
	timeout := longest - time.Since(c.began)
	if c.hasDeadline {
		timeout = 1 << 62
	}
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	select {
	case <-f.done:
		return f.ended
	case <-ctx.Done():
		c.note = &f.note
		return Outcome{Err: c.gaveUp(ctx.Err())}
	case <-timer.C:
		return Outcome{Err: c.tooLong()}
	}
}

// tooLong returns the error of a call that has waited for other callers for too long.
func (c *Call) tooLong() error {
	return fmt.Errorf("serial: %s %s was not opened within %v: %w", c.series.subject(c.typ), c.Current().Label, longest,
		cmp.Or(c.refused, ErrTaken))
}

// gaveUp returns the error of a call that ended while a period was being opened or a block was being reserved. The
// error end is the reason.
func (c *asker) gaveUp(end error) error {
	what := "the period of " + c.series.subject(c.typ) + " to be opened"
	if c.series.Reserve != nil {
		what += ", or for its ledger, which may itself wait for a transaction of the caller"
	}
	return c.after(fmt.Errorf("serial: gave up waiting for %s: %w", what, end))
}

// after adds the failure of the latest attempt, if there was one, to the error of a call that gave up.
func (c *asker) after(err error) error {
	if c.note == nil {
		return err
	}
	return wire.After(err, c.note.Load())
}

// Wait is the fourth step of the sequence. It pauses while another caller opens the period. The pause is random, and
// grows with each call of Wait, up to 150 ms.
func (c *Call) Wait(ctx context.Context) Outcome {
	pause := min(2*time.Millisecond<<c.waits, 100*time.Millisecond)
	pause = pause/2 + rand.N(pause)
	c.waits = min(c.waits+1, 10)
	taken := errors.Is(c.refused, ErrTaken)
	if left := longest - time.Since(c.began); !c.hasDeadline && pause > left {
		return Outcome{Err: c.tooLong()}
	}
	if c.refused != nil && !taken && time.Until(c.deadline) < pause { // the lock servers have failed
		return Outcome{Err: c.refused}
	}
	if err := wire.Sleep(ctx, pause); err != nil {
		if c.refused == nil || taken {
			err = fmt.Errorf("%w: %w", err, ErrTaken)
		}
		return Outcome{Err: c.after(err)}
	}
	if taken {
		c.extend(pause)
	}
	return Outcome{Step: Again}
}
