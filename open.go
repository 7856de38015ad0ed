package serial

import (
	"context"
	"errors"
	"time"

	"github.com/dailyserial/serial/internal/calendar"
	"github.com/dailyserial/serial/internal/redisrun"
	"github.com/dailyserial/serial/internal/store"
)

// tryLock is the sequence's second step. Where another process holds the lock it comes out as wait, and where another caller of
// this process does, who was waited for then, as again. Lock servers that fail may be well a moment later, and the counter may
// be there by then: so it is wait for them too while there is time for another attempt.
//
// A second is too short for a lock. Open is safe without, and there is no floor to ask.
func (c *call) tryLock(ctx context.Context) (*lock, step, error) {
	if c.g.calendar.Unit == calendar.Second {
		return nil, locked, nil
	}
	if others := c.beginWork(); others != nil {
		next, err := c.join(ctx, others)
		return nil, next, err
	}
	start := time.Now()
	limit, _ := c.budget.Attempt()
	l, err := c.g.locks.try(ctx, c.g.store.LockKey(c.typ, c.span.Label), limit)
	const attempt = 2 * lockPatience // to ask, and to give back what was granted
	c.budget.Spend(time.Since(start), attempt)
	c.opening.lockErr = nil
	switch {
	case err == nil:
		return l, locked, nil
	case errors.Is(err, errTaken):
		c.sawOthers()
		return nil, wait, nil
	}
	c.opening.lockErr = err
	if redisrun.EndOf(ctx) == nil && redisrun.Transient(err) && c.budget.Answer() >= attempt {
		return nil, wait, nil
	}
	return nil, failed, err
}

// open is the sequence's third step. It comes out as wait where the period is to be looked at afresh: it ended meanwhile, or the
// lock expired. An opening goes on without a caller who leaves, so that nobody waits for its lock to expire; only the floor is
// asked no longer.
func (c *call) open(ctx context.Context, n int, lock *lock) (step, error) {
	if lock == nil {
		return c.openAlone(ctx, n)
	}
	return c.onward(ctx, func(c *call) (next step, err error) {
		steady := context.WithoutCancel(ctx)
		defer func() {
			c.release(steady, lock)
			c.endWork(err)
		}()
		return c.openLocked(ctx, steady, n, lock)
	})
}

// openLocked is open by whoever has the lock. ctx is the caller's, and steady does not end.
func (c *call) openLocked(ctx, steady context.Context, n int, lock *lock) (step, error) {
	span, purpose := c.span, store.ForOpening
	if c.g.floor != nil {
		purpose = store.ForFloor
	}
	r, claim, err := c.look(steady, n, purpose, lock)
	defer c.release(steady, claim)
	if err != nil || r.Status != store.Reserved {
		if next, err := c.taken(r, err); next != tryLock {
			return next, err
		}
	}
	if c.span.Start != span.Start || time.Since(lock.since) >= lockExpiry-floorMargin {
		return wait, nil // the lock is another period's, or it took too long to get here
	}
	o := store.Open{N: n, Checked: r.Now, Lease: lockExpiry - r.Sent.Sub(lock.since)} // from when r was asked for, or later
	if err := c.checkSkew(r); err != nil {
		return failed, err
	}
	if c.g.floor != nil {
		used, err := c.askFloor(ctx, lock.since.Add(lockExpiry-floorMargin))
		if err != nil {
			return failed, err
		}
		o.Floor = store.FloorAt(used)
		claim.above(used)
	}
	// For the period of the check: Redis refuses it if it comes too late.
	return c.opened(c.install(steady, claim, o))
}

// openAlone is open without a lock, for the second in which it arrives.
func (c *call) openAlone(ctx context.Context, n int) (step, error) {
	found := c.opening.found
	if err := c.checkSkew(found); err != nil {
		return failed, err
	}
	c.span = c.g.spanAt(c.aim())
	return c.opened(c.install(ctx, nil, store.Open{N: n, Checked: found.Now, Lease: lockExpiry}))
}

// opened is taken for a period that was missing.
func (c *call) opened(r store.Reply, err error) (step, error) {
	if err == nil && r.Status == store.Issued {
		c.trace.opened = &OpenedInfo{c.typ, c.start(), time.Since(c.trace.began)}
	}
	next, err := c.taken(r, err)
	if next == tryLock {
		next = wait
	}
	return next, err
}
