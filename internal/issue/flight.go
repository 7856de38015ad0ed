package issue

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/dailyserial/serial/internal/budget"
	"github.com/dailyserial/serial/internal/redisrun"
)

// A flight is what one caller of this process does for all that want the same: it has a period opened, by itself or by another
// process, or a block set aside.
type flight struct {
	key     batchKey
	done    chan struct{}
	ended   Outcome      // for all who wait; written before done is closed
	others  atomic.Int64 // answers of servers that other processes are at it
	outside atomic.Bool  // a floor or a ledger is being asked, and no server
}

// startFlight makes what the call's period needs the call's flight, until End. It returns the flight of another caller, if one is
// under way.
func (s *session) startFlight() (others *flight) {
	if s.flight != nil {
		if s.flight.key.start == s.span.Start {
			return nil
		}
		s.endFlight(nil) // of a period that is over
	}
	key := batchKey{strings.Clone(s.typ), s.span.Start}
	started := &flight{key: key, done: make(chan struct{}), ended: Outcome{Step: Again}}
	if others, found := s.issuer.flights.LoadOrStore(started.key, started); found {
		return others.(*flight)
	}
	s.flight = started
	return nil
}

// End ends the call for its caller: others who wait for the call go on, with err if it is an outage. It does nothing after a
// caller has left a step that goes on: that ends by itself.
func (c *Call) End(err error) {
	if !c.left {
		c.session.endFlight(err)
		if c.session.unanswered != nil || c.session.sent.N > 0 {
			c.session.settleRest()
		}
	}
}

// endFlight ends the call's flight, if it has one.
func (s *session) endFlight(err error) {
	f := s.flight
	if f == nil {
		return
	}
	s.flight = nil
	if redisrun.IsOutage(err) {
		f.ended = Outcome{Err: err}
	}
	s.issuer.flights.Delete(f.key)
	close(f.done)
}

// noteOthers notes that a server has answered, and that others are at work.
func (s *session) noteOthers() {
	s.budget.Renew()
	if s.flight != nil {
		s.flight.others.Add(1)
	}
}

// waitFlight waits for another caller of this process, as long as ctx lives, or as the call may wait for others if that has no
// deadline. Time for which that caller waits for servers is charged to this call too.
func (s *session) waitFlight(ctx context.Context, f *flight) Outcome {
	b := &s.budget
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
			return Outcome{Err: s.cancelError(ctx.Err())}
		case <-time.After(limit):
		}
		if took := time.Since(start); f.outside.Load() {
			b.SpendOthers(took, limit)
		} else {
			b.Spend(took, limit)
		}
		if now := f.others.Load(); now != others {
			others = now
			s.noteOthers()
		}
		if ended {
			return f.ended
		}
	}
	return Outcome{Err: s.timeoutError()}
}

// timeoutError returns the error of a call that has waited for others as long as it may.
func (s *session) timeoutError() error {
	return fmt.Errorf("serial: %s %s was not opened within %v: %w", s.typ, s.span.Label, budget.Others,
		cmp.Or(s.lockErr, ErrTaken))
}

// cancelError returns the error of a call whose context ended while a period was opened or a block set aside.
func (s *session) cancelError(end error) error {
	what := "its period to be opened"
	if s.issuer.Reserve != nil {
		what += " and for its ledger, which may itself wait for a transaction that the caller holds"
	}
	return fmt.Errorf("serial: gave up waiting for %s, for %s: %w", s.typ, what, end)
}
