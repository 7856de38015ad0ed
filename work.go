package serial

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// A work is what one caller of this process does for all that want the same: to have a period opened, by itself or by another
// process, or a block set aside.
type work struct {
	at      gate
	done    chan struct{}
	err     error        // for all who wait; written before done is closed
	waiting atomic.Int64 // callers who want it
	others  atomic.Int64 // how often a server has answered that others are at it
	asked   atomic.Int64 // time for which a floor or a ledger was asked, nanoseconds
	asking  atomic.Int64 // since when one is, Unix nanoseconds; 0 if none is
}

// away is for how long the work has been waiting for a floor or a ledger, and not for Redis or lock servers.
func (k *work) away() time.Duration {
	d := k.asked.Load()
	if since := k.asking.Load(); since != 0 {
		d += time.Now().UnixNano() - since
	}
	return time.Duration(d)
}

// works are those under way, one for each type and period.
type works struct {
	mu       sync.Mutex
	underway map[gate]*work
}

// gate is what the call's work is known by.
func (c *call) gate() gate { return gate{c.typ, c.period.start} }

// beginWork makes what the call's period needs the call's work, until endWork. It returns the work of another caller, if it
// is under way.
func (c *call) beginWork() (others *work) {
	at := c.gate()
	if c.work != nil {
		if c.work.at == at {
			return nil
		}
		c.endWork(nil) // of a period that is over
	}
	w := &c.g.works
	w.mu.Lock()
	defer w.mu.Unlock()
	if others = w.underway[at]; others == nil {
		c.work = &work{at: gate{strings.Clone(at.typ), at.start}, done: make(chan struct{})}
		w.underway[c.work.at] = c.work
	}
	return others
}

// endWork has those who wait for the call's work go on, with err if that is theirs too. It does nothing if there is none.
func (c *call) endWork(err error) {
	k := c.work
	if k == nil {
		return
	}
	c.work = nil
	var shared sharedError
	if errors.As(err, &shared) {
		k.err = err
	}
	w := &c.g.works
	w.mu.Lock()
	delete(w.underway, k.at)
	w.mu.Unlock()
	close(k.done)
}

// sawOthers notes that a server has answered, and that it is others who are waited for.
func (c *call) sawOthers() {
	c.budget.Renew()
	if c.work != nil {
		c.work.others.Add(1)
	}
}

// A sharedError is one that all who wait for the same work share: a server or a ledger that fails. Each by itself would ask
// it in vain, one after the other.
type sharedError struct{ error }

func (e sharedError) Unwrap() error { return e.error }

// join waits for another caller of this process, as long as ctx lives, or as the call may wait for others if that has no
// deadline. What the other one waits for servers this call waits for them too.
func (c *call) join(ctx context.Context, k *work) error {
	k.waiting.Add(1)
	defer k.waiting.Add(-1)
	timer := time.NewTimer(0)
	defer timer.Stop()
	away, others := k.away(), k.others.Load()
	for c.budget.Wait() > 0 {
		if c.budget.Answer() <= 0 {
			return sharedError{fmt.Errorf("serial: Redis failed: %w", errNoAnswer)}
		}
		step := min(c.budget.Wait(), c.budget.Answer(), time.Second) // of which one at most counts while this process stands still
		timer.Reset(step)
		start := time.Now()
		var ended bool
		select {
		case <-k.done:
			ended = true
		case <-ctx.Done():
			return fmt.Errorf("serial: gave up waiting: %w", ctx.Err())
		case <-timer.C:
		}
		before := away
		away = k.away()
		c.budget.SpendAway(time.Since(start), step, away-before)
		if now := k.others.Load(); now != others {
			others = now
			c.sawOthers()
		}
		if ended {
			return k.err
		}
	}
	return c.waitedTooLong()
}
