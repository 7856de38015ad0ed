package serial

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// A work is what one caller of this process does for all that want the same: to open a period, or to have a block set aside.
type work struct {
	done    chan struct{}
	err     error        // for all who wait; written before done is closed
	waiting atomic.Int64 // callers who want it
}

// works are those under way, one for each type and period.
type works struct {
	mu       sync.Mutex
	underway map[gate]*work
}

// begin returns the work that is under way, or a new one, which is the caller's to end.
func (w *works) begin(at gate) (k *work, mine bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if k := w.underway[at]; k != nil {
		return k, false
	}
	k = &work{done: make(chan struct{})}
	w.underway[at] = k
	return k, true
}

// end has those who wait for k go on, with its error if that is theirs too.
func (w *works) end(at gate, k *work, err error) {
	var shared sharedError
	if errors.As(err, &shared) {
		k.err = err
	}
	w.mu.Lock()
	delete(w.underway, at)
	w.mu.Unlock()
	close(k.done)
}

// A sharedError is one that all who wait for the same work share: a server or a ledger that fails. Each by itself would ask
// it in vain, one after the other.
type sharedError struct{ error }

func (e sharedError) Unwrap() error { return e.error }

// gate is what the call's work is known by.
func (c *call) gate() gate { return gate{c.typ, c.period.start} }

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
			c.budget.Renew()
			return k.err
		case <-ctx.Done():
			return fmt.Errorf("serial: gave up waiting: %w", ctx.Err())
		case <-timer.C:
			c.budget.Spend(step, step)
		}
	}
	return c.waitedTooLong()
}
