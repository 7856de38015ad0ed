package issue

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/dailyserial/serial/internal/redisrun"
)

// A flight is what one caller of this process does for all that want the same: it has a period opened, by itself or by another
// process, or a block set aside.
type flight struct {
	key     batchKey
	done    chan struct{}
	err     error        // for all who wait; written before done is closed
	others  atomic.Int64 // answers of servers that other processes are at it
	outside atomic.Bool  // a floor or a ledger is being asked, and no server
}

// startFlight makes what the call's period needs the call's flight, until End. It returns the flight of another caller, if one is
// under way.
func (c *Call) startFlight() (others *flight) {
	s := &c.session
	if c.flight != nil {
		if c.flight.key.start == s.span.Start {
			return nil
		}
		c.endFlight(nil) // of a period that is over
	}
	started := &flight{key: batchKey{strings.Clone(s.typ), s.span.Start}, done: make(chan struct{})}
	if others, found := s.issuer.flights.LoadOrStore(started.key, started); found {
		return others.(*flight)
	}
	c.flight = started
	return nil
}

// End ends the call for its caller: others who wait for the call go on, with err if it is an outage. It does nothing after a
// caller has left a step that goes on: that ends by itself.
func (c *Call) End(err error) {
	if !c.left {
		c.endFlight(err)
	}
}

// endFlight ends the call's flight, if it has one.
func (c *Call) endFlight(err error) {
	f := c.flight
	if f == nil {
		return
	}
	c.flight = nil
	if redisrun.IsOutage(err) {
		f.err = err
	}
	c.session.issuer.flights.Delete(f.key)
	close(f.done)
}

// sawOthers notes that a server has answered, and that others are at work.
func (c *Call) sawOthers() {
	c.session.budget.Renew()
	if c.flight != nil {
		c.flight.others.Add(1)
	}
}

// waitFlight waits for another caller of this process, as long as ctx lives, or as the call may wait for others if that has no
// deadline. Time for which that caller waits for servers is charged to this call too.
func (c *Call) waitFlight(ctx context.Context, f *flight) Outcome {
	b := &c.session.budget
	for others := f.others.Load(); b.Wait() > 0; {
		if b.Answer() <= 0 {
			return Outcome{Err: redisrun.Outage(fmt.Errorf("serial: Redis failed: %w", redisrun.ErrNoAnswer))}
		}
		limit := min(b.Wait(), b.Answer(), 250*time.Millisecond) // so much counts if this process stands still
		start := time.Now()
		ended := false
		select {
		case <-f.done:
			ended = true
		case <-ctx.Done():
			return c.gaveUp(ctx.Err())
		case <-time.After(limit):
		}
		if took := time.Since(start); f.outside.Load() {
			b.SpendOthers(took, limit)
		} else {
			b.Spend(took, limit)
		}
		if now := f.others.Load(); now != others {
			others = now
			c.sawOthers()
		}
		switch {
		case ended && f.err != nil:
			return Outcome{Err: f.err}
		case ended:
			return Outcome{Step: Again}
		}
	}
	return c.waitedTooLong()
}
