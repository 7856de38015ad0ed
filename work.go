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
	at       gate
	done     chan struct{}
	err      error        // for all who wait; written before done is closed
	waiting  atomic.Int64 // callers who want it
	answered atomic.Bool  // servers have answered that it is under way
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
		c.work.answered.Store(true)
	}
}

// A sharedError is one that all who wait for the same work share: a server or a ledger that fails. Each by itself would ask
// it in vain, one after the other.
type sharedError struct{ error }

func (e sharedError) Unwrap() error { return e.error }

// join waits for another caller of this process, as long as ctx lives, or as the call may wait for others if that has no
// deadline.
func (c *call) join(ctx context.Context, k *work) error {
	k.waiting.Add(1)
	defer k.waiting.Add(-1)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for c.budget.Wait() > 0 {
		step := min(c.budget.Wait(), time.Second) // of which one at most counts while this process stands still
		timer.Reset(step)
		start := time.Now()
		select {
		case <-k.done:
			c.budget.Spend(time.Since(start), step)
			if k.err == nil && k.answered.Load() {
				c.sawOthers()
			}
			return k.err
		case <-ctx.Done():
			return fmt.Errorf("serial: gave up waiting: %w", ctx.Err())
		case <-timer.C:
			c.budget.Spend(step, step)
		}
	}
	return c.waitedTooLong()
}
