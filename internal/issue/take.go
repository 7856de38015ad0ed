package issue

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/dailyserial/serial/internal/calendar"
	"github.com/dailyserial/serial/internal/coalesce"
	"github.com/dailyserial/serial/internal/redisrun"
	"github.com/dailyserial/serial/internal/store"
)

// Take is the sequence's first step: it takes n numbers from a counter that is there. None are taken to see how the period stands.
func (c *Call) Take(ctx context.Context, n int) Outcome {
	s := &c.session
	shared := n == 1 && s.request == "" // with callers who ask for the same
	var r store.Reply
	var err error
	s.targetNow()
	for again := true; again; {
		var b *batch
		var place int
		var begun time.Time
		if shared { // alone where nobody waits, and where the caller may wait for Redis itself
			b, place, begun = s.node.batches.Join(batchKey{s.typ, s.span.From}, payload{ctx, s.span}, ctx.Done() == nil)
		}
		if b == nil {
			r, err = c.takeAlone(ctx, n, shared, begun)
		} else {
			r, err = s.takeTogether(ctx, b, place)
		}
		again, err = s.digest(ctx, &r, err)
	}
	if err == nil && r.Status == store.Ceiling {
		return c.refill(ctx, n)
	}
	return c.outcome(r, err)
}

// takeAlone sends a take for this call only. A shared one holds a place among the batches since begun, and may get fewer numbers
// than it asked for.
func (c *Call) takeAlone(ctx context.Context, n int, shared bool, begun time.Time) (r store.Reply, err error) {
	s := &c.session
	take := store.Take{
		Series: s.series(), N: n, Purpose: store.All, ClockUntrusted: s.node.clockUntrusted(), Request: s.answer(),
	}
	if shared {
		take.Purpose, err = store.Issue, coalesce.ErrEnded // the error stays if a hook panics
		defer func() { s.node.batches.Leave(begun, err == nil) }()
	}
	s.sent = store.Asked{N: n, HighWater: take.HighWater, Once: s.request != ""}
	return s.issuer.Store.Take(ctx, &s.budget, s.node.Node, &take)
}

// LockExpiry is how long a crashed holder of the lock delays the others.
const LockExpiry = 8 * time.Second

const (
	// LockPatience is how long an attempt at the lock waits for a server, if a majority has not answered before. The same goes
	// for giving the lock back, and for a caller that waits for that.
	LockPatience = 2 * time.Second
	// floorMargin is what remains of the lock, once the floor has answered, to open the period.
	floorMargin = time.Second
)

// ErrTaken is the error of an attempt at a lock that others hold, and of a call that has waited for them in vain.
var ErrTaken = errors.New("others kept the lock")

// Locks grant the lock of a key to one caller at a time, of all processes.
type Locks interface {
	// Try makes one attempt at a lock of a type, which ends with ctx and within limit. The error is ErrTaken if another caller
	// holds the lock.
	Try(ctx context.Context, typ, key string, limit time.Duration) (Lock, error)
}

// A Lock is held until it is released or, should that fail, until it expires.
type Lock interface {
	// Held is what the lock's key holds on the counters' own server, "" if the lock is elsewhere.
	Held() string
	releaser
}

// Lock is the sequence's second step: one attempt at the lock. Where another process holds the lock the next step is Wait, and where
// another caller of this process has opened the period meanwhile, Again. Lock servers that fail may be well a moment later, and
// the counter may be there by then: so it is Wait for them too while there is time for another attempt.
//
// A second is too short for a lock. To open is safe without, and there is no floor to ask.
func (c *Call) Lock(ctx context.Context, locks Locks) Outcome {
	s := &c.session
	if s.issuer.Calendar.Unit == calendar.Second {
		return Outcome{Step: Locked}
	}
	if others := s.startFlight(); others != nil {
		return s.waitFlight(ctx, others)
	}
	c.lockSince = time.Now()
	limit, _ := s.budget.Attempt()
	lock, err := locks.Try(ctx, s.typ, s.issuer.Store.LockKey(s.typ, s.span.Label), limit)
	const attempt = 2 * LockPatience // to ask, and to give back what was granted
	s.budget.Spend(time.Since(c.lockSince), attempt)
	switch s.lockErr = err; {
	case err == nil:
		return Outcome{Step: Locked, Lock: lock}
	case errors.Is(err, ErrTaken):
		s.noteOthers()
		return Outcome{Step: Wait}
	case redisrun.EndOf(ctx) == nil && redisrun.Transient(err) && s.budget.Answer() >= attempt:
		return Outcome{Step: Wait}
	}
	return Outcome{Err: err}
}

// Wait is the sequence's fourth step: it lets others open the period, for a random time that grows to a tenth of a second.
func (c *Call) Wait(ctx context.Context) Outcome {
	pause := min(2*time.Millisecond<<c.waits, 100*time.Millisecond)
	pause = pause/2 + rand.N(pause)
	if pause > c.session.budget.Wait() {
		return Outcome{Err: c.session.timeoutError()}
	}
	c.waits = min(c.waits+1, 10)
	if err := redisrun.Sleep(ctx, pause); err != nil {
		if !redisrun.IsOutage(c.session.lockErr) {
			err = fmt.Errorf("%w: %w", err, ErrTaken)
		}
		return Outcome{Err: err}
	}
	c.session.budget.Spend(pause, pause)
	return Outcome{Step: Again}
}
