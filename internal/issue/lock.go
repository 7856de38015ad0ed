package issue

import (
	"context"
	"errors"
	"time"

	"github.com/dailyserial/serial/internal/budget"
	"github.com/dailyserial/serial/internal/calendar"
	"github.com/dailyserial/serial/internal/redisrun"
)

// This file has the lock for opening a period.

const (
	// LockExpiry is how long a crashed holder of the lock delays the others.
	LockExpiry = 8 * time.Second
	// LockPatience is how long an attempt at the lock waits for a silent server, unless a majority answers first. It
	// also limits giving the lock back, and the wait of a caller for that.
	LockPatience = 2 * time.Second
	// floorMargin is the part of the lock's time left to open the period after the floor has answered.
	floorMargin = time.Second
)

// Locks grants a key's lock to one caller at a time, across all processes.
type Locks interface {
	// Try makes one attempt at a type's lock. It returns when ctx ends, and otherwise within one attempt's time in b.
	// The error is ErrTaken if another caller holds the lock.
	Try(ctx context.Context, b *budget.Budget, typ, key string) (Lock, error)
}

// Lock is the sequence's second step: one attempt at the lock. The next step is Wait if another process holds the lock,
// and Again if another caller of this process has opened the period meanwhile. If lock servers fail, they may recover a
// moment later, and the counter may exist by then. So the next step is Wait, while there is time for another attempt.
//
// A period of a second is too short for a lock. Opening is safe without one, and there is no floor to ask.
func (c *Call) Lock(ctx context.Context, locks Locks, missing Outcome) Outcome {
	out, span := Outcome{Step: Locked, Reply: missing.Reply}, missing.Reply.Span
	if c.issuer.Calendar.Unit == calendar.Second {
		return out
	}
	if others := c.startFlight(span); others != nil {
		return others.wait(ctx, c)
	}
	out.Held.Since = time.Now()
	lock, err := locks.Try(ctx, &c.session.Budget, c.session.Type, c.issuer.LockKey(c.session.Type, span))
	const attempt = 2 * LockPatience // to try, and to give back the locks granted
	if end := redisrun.EndOf(ctx); end != nil && errors.Is(err, end) {
		return Outcome{Err: err}
	}
	switch c.lockErr = err; {
	case err == nil:
		out.Held.Lock = lock
		return out
	case errors.Is(err, ErrTaken):
		c.noteOthers()
		return Outcome{Step: Wait}
	}
	c.session.Last.Store(&err)
	switch {
	case redisrun.EndOf(ctx) == nil && redisrun.Transient(err) && c.session.Budget.Answer() >= attempt:
		return Outcome{Step: Wait}
	}
	return Outcome{Err: err}
}

// giveBack gives back a lock or a claim, and waits briefly for the answer, unless the server has already failed.
func giveBack(ctx context.Context, c *Call, held releaser) {
	patience, start := time.Duration(0), time.Now()
	if !c.session.Silent {
		patience = max(0, min(LockPatience, c.session.Budget.Answer()))
	}
	held.Release(ctx, patience)
	c.session.Budget.Spend(time.Since(start), patience)
}
