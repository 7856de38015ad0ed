package issue

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dailyserial/serial/internal/budget"
	"github.com/dailyserial/serial/internal/redisrun"
	"github.com/dailyserial/serial/internal/store"
)

const (
	catchUp    = 5 * time.Second // a clock set back by no more is waited for
	clockTries = 10              // consecutive answers that a server's clock is elsewhere, after which it is not followed
)

// A clock is what is known of a server's clock: how far it is ahead of this host's, so that a wrong one costs a round trip once
// and not with every call.
type clock struct {
	offset atomic.Int64 // nanoseconds
	trip   atomic.Int64 // usual time of a round trip, nanoseconds
}

func (k *clock) now() time.Time { return time.Now().Add(time.Duration(k.offset.Load())) }

// measure keeps the round trip of a reply. One that took long counts for a quarter.
func (k *clock) measure(r *store.Reply) {
	if trip := int64(r.Received.Sub(r.Sent)); trip > 0 { // a reply came
		k.trip.Store((3*cmp.Or(k.trip.Load(), trip) + trip) / 4)
	}
}

// learn keeps the offset that a reply tells, to half a round trip. It returns that and the one known before, which are the same if
// the reply does not tell.
func (k *clock) learn(r *store.Reply) (offset, before time.Duration) {
	if r.Now.IsZero() {
		return 0, 0
	}
	offset = r.Now.Sub(r.Sent.Add(r.Received.Sub(r.Sent) / 2))
	return offset, time.Duration(k.offset.Swap(int64(offset)))
}

// A session is what a call exchanges with the server that has its type's keys. A script is sent like this:
//
//	s.targetNow()
//	for again := true; again; {
//		r, err = ... // sent for s.span
//		again, err = s.digest(ctx, &r, err)
//	}
type session struct {
	issuer    *Issuer
	typ       string
	request   string // ID of a request that may come again, "" for none
	node      *node
	span      *Span // of the last script sent
	budget    budget.Budget
	told      bool          // the server has told the time since targetNow
	elsewhere int           // consecutive answers since targetNow that its clock is not in the span
	slept     time.Duration // until its clock had caught up
	silent    bool          // the server did not answer the last script
	flight    *flight       // that others of this process wait for, nil for none
	lockErr   error         // error of the last attempt at the lock

	sent       store.Asked     // what the script asked for that is under way, or in which a hook of the client panicked
	unanswered []store.Attempt // the last one at the number of a request, unless a later one was answered
	asked      store.Asked     // by that

	mu     sync.Mutex // guards events, which a caller that left may read
	events Events
}

// Events are what a call came across that hooks tell. A Span that is nil stands for none.
type Events struct {
	Type           string
	Opened         *Span         // that the call opened
	Wait           time.Duration // from the beginning of the call until that was open
	Lost           *Span         // whose counter is gone or went back
	Held           string        // what that counter holds
	Offset, Before time.Duration // of the server's clock, as it is and as it was known to be
}

// Events returns what the call came across so far.
func (c *Call) Events() Events {
	c.session.mu.Lock()
	defer c.session.mu.Unlock()
	return c.session.events
}

// Span is the span of the last script that was sent.
func (c *Call) Span() *Span { return c.session.span }

// Current is the span that the server's clock is in, as far as that is known.
func (c *Call) Current() *Span {
	c.session.targetNow()
	return c.session.span
}

// targetNow has the next script sent for the span that the server's clock is in, as far as that is known: now, but where a span is over
// in a second, when the script gets there.
func (s *session) targetNow() {
	at := s.node.clock.now()
	if s.issuer.Brief {
		at = at.Add(time.Duration(s.node.clock.trip.Load() / 2))
	}
	s.told, s.elsewhere = false, 0
	s.target(at)
}

// target has the next script sent for the span of an instant. Where no number can be printed then, this host's clock may be wrong, and
// the server has to tell the time first.
func (s *session) target(at time.Time) {
	if s.span = s.issuer.spanAt(at); s.span.Unprintable != nil && !s.told {
		s.span = s.issuer.nowhere
	}
}

// digest keeps what the reply to a script tells. It returns true if the script has to be sent again, for the span that the session has
// then: the server's clock is elsewhere, or was behind and has been waited for.
func (s *session) digest(ctx context.Context, r *store.Reply, err error) (again bool, _ error) {
	if err := s.observe(r, err); err != nil {
		return false, err
	}
	switch r.Status {
	case store.Clock:
		if s.elsewhere++; s.elsewhere > clockTries {
			return false, s.refuse(store.Reply{Status: Unsteady, Now: r.Now})
		}
		at := r.Now
		if s.issuer.Brief {
			at = at.Add(r.Received.Sub(r.Sent)) // until the next one arrives
		}
		s.told = true
		s.target(at)
		return s.span.Unprintable == nil, s.span.Unprintable
	case store.Future:
		begins := time.Unix(store.ParsePeriod(r.Entered).Start, 0)
		pause := max(begins.Sub(r.Now), s.slept/8) // few times, also if the clock does not move
		deadline, ok := ctx.Deadline()
		if s.slept+pause > catchUp || ok && time.Until(deadline) < pause {
			return false, nil
		}
		if err := redisrun.Sleep(ctx, pause); err != nil {
			return false, err
		}
		s.slept += pause
		s.targetNow()
		return true, nil
	}
	return false, nil
}

// observe keeps what a reply tells, which is the one place where a reply is digested. Numbers that are not confirmed are an error.
func (s *session) observe(r *store.Reply, err error) error {
	s.sent = store.Asked{}
	if len(r.Unanswered) > 0 || r.Once {
		s.settle(r, err)
	}
	if s.silent = err != nil; s.silent {
		return err
	}
	offset, before := s.node.clock.learn(r)
	if r.Status == store.Lost || r.WasThere || r.Status == store.Clock && offset != before {
		s.mu.Lock()
		if r.Status == store.Clock { // callers who shared a reply tell it once
			s.events.Offset, s.events.Before = offset, before
		} else if s.events.Lost == nil {
			s.events.Lost, s.events.Held = s.span, r.Held
		}
		s.mu.Unlock()
	}
	return s.node.observe(s.typ, s.span, r)
}

// series is the series of the session's type and span.
func (s *session) series() store.Series { return s.issuer.memory.series(s.typ, s.span) }

// answer is the call's request, if it has one, with what its answer keeps so that the same text comes again.
func (s *session) answer() store.Request {
	return store.Request{ID: s.request, Printed: s.span.printed, Key: s.issuer.Key}
}

// checkSkew refuses to open a period by a clock that is too far from this host's. r is the reply that told the server's time, which
// was read at some moment between sending and receiving.
func (s *session) checkSkew(r store.Reply) error {
	skew := s.issuer.MaxSkew
	if skew < 0 || !r.Now.Before(r.Sent.Add(-skew)) && !r.Now.After(r.Received.Add(skew)) {
		return nil
	}
	r.Status = Skewed
	return s.refuse(r)
}

// A Refusal is why no numbers were issued. It is data, which the API puts into words.
type Refusal struct {
	store.Reply // whose Status says why
	Type        string
	Span        *Span
	HighWater   int64 // the greatest sequence that this process has returned in the period, 0 if none
}

// These are a Refusal's status besides those of the store.
const (
	Skewed      store.Status = "skewed"      // the server's clock is too far from this host's
	Unsteady    store.Status = "unsteady"    // the server's clock does not stay in one period
	Unconfirmed store.Status = "unconfirmed" // by replicas
)

func (r *Refusal) Error() string { return "serial: " + string(r.Status) }

// Refused reports whether err is a Refusal of that status.
func Refused(err error, status store.Status) bool {
	var r *Refusal
	return errors.As(err, &r) && r.Status == status
}

// refuse makes a reply a Refusal.
func (s *session) refuse(r store.Reply) error {
	return &Refusal{r, s.typ, s.span, s.series().HighWater}
}
