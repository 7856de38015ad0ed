package serial

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/dailyserial/serial/internal/redisrun"
)

// A work is what one caller of this process does for all that want the same: to have a period opened, by itself or by another
// process, or a block set aside.
type work struct {
	key     batchKey
	done    chan struct{}
	err     error        // for all who wait; written before done is closed
	others  atomic.Int64 // answers of servers that other processes are at it
	outside atomic.Bool  // a floor or a ledger is being asked, and no server
}

// beginWork makes what the call's period needs the call's work, until endWork. It returns the work of another caller, if it
// is under way.
func (c *call) beginWork() (others *work) {
	if c.work != nil {
		if c.work.key.start == c.span.Start {
			return nil
		}
		c.endWork(nil) // of a period that is over
	}
	own := &work{key: batchKey{strings.Clone(c.typ), c.span.Start}, done: make(chan struct{})}
	if others, found := c.g.works.LoadOrStore(own.key, own); found {
		return others.(*work)
	}
	c.work = own
	return nil
}

// endWork has those who wait for the call's work go on, with err if it is an outage. It does nothing if there is none.
func (c *call) endWork(err error) {
	k := c.work
	if k == nil {
		return
	}
	c.work = nil
	if redisrun.IsOutage(err) {
		k.err = err
	}
	c.g.works.Delete(k.key)
	close(k.done)
}

// join waits for another caller of this process, as long as ctx lives, or as the call may wait for others if that has no
// deadline. Time for which that caller waits for servers is charged to this call too.
func (c *call) join(ctx context.Context, k *work) (step, error) {
	for others := k.others.Load(); c.budget.Wait() > 0; {
		if c.budget.Answer() <= 0 {
			return failed, redisrun.Outage(fmt.Errorf("serial: Redis failed: %w", redisrun.ErrNoAnswer))
		}
		limit := min(c.budget.Wait(), c.budget.Answer(), 250*time.Millisecond) // so much counts if this process stands still
		start := time.Now()
		ended := false
		select {
		case <-k.done:
			ended = true
		case <-ctx.Done():
			return failed, c.gaveUp(ctx.Err())
		case <-time.After(limit):
		}
		if took := time.Since(start); k.outside.Load() {
			c.budget.SpendOthers(took, limit)
		} else {
			c.budget.Spend(took, limit)
		}
		if now := k.others.Load(); now != others {
			others = now
			c.sawOthers()
		}
		switch {
		case ended && k.err != nil:
			return failed, k.err
		case ended:
			return again, nil
		}
	}
	return failed, c.waitedTooLong()
}
