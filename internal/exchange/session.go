package exchange

import (
	"context"
	"sync"
	"time"

	"github.com/dailyserial/serial/internal/budget"
	"github.com/dailyserial/serial/internal/coalesce"
	"github.com/dailyserial/serial/internal/redisrun"
	"github.com/dailyserial/serial/internal/store"
)

const (
	catchUp    = 5 * time.Second // the longest wait for a clock that was set back
	clockTries = 10              // consecutive replies from outside the span, after which the clock is not followed
)

// A Session is what one call exchanges with the server that has its type's keys. One goroutine uses it at a time,
// except for [Session.Events].
type Session struct {
	Type   string
	Budget budget.Budget
	Silent bool // the server did not answer the last request

	server  *server
	request string          // ID of a request that may come again, "" for none
	take    store.Take      // the request of TakeNumbers
	slept   time.Duration   // until the server's clock had caught up
	sent    store.Requested // what the request under way asked for; set afterwards only if a hook of the client panicked
	sentFor *Span

	mu     sync.Mutex // guards events, which a caller that left may read
	events Events
}

// Events are what a call came across and hooks report. A Span or Period that is nil stands for none.
type Events struct {
	Type           string
	Opened         *Span         // that the call opened
	Wait           time.Duration // from the beginning of the call until that was open
	Lost           *store.Period // whose counter is gone or went back
	Held           string        // content of that counter
	Reads          bool          // the call reads, and repairs nothing
	Offset, Before time.Duration // of the server's clock, new and previous
}

// Events returns what the call came across so far.
func (s *Session) Events() Events {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.events.Type = s.Type
	return s.events
}

// NoteReads notes that the call reads, and repairs nothing.
func (s *Session) NoteReads() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.events.Reads = true
}

// NoteOpened notes that the call opened a period, and how long that took.
func (s *Session) NoteOpened(span *Span, wait time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.events.Opened, s.events.Wait = span, wait
}

// Current returns the span that the server's clock is in, as far as that is known: now or, if spans last a second, when
// a request arrives. If no number can be printed then, this host's clock may be wrong, and a request must ask the
// server for the time first.
func (s *Session) Current() *Span {
	at := s.server.clock.now()
	if s.server.seconds {
		at = s.server.clock.arrival()
	}
	if span := s.server.spans.at(at); span.Unprintable == nil {
		return span
	}
	return s.server.spans.clockProbe
}

// A Reply is the reply to a request that was sent for a span.
type Reply struct {
	store.Reply
	Span  *Span
	About *store.Period // the period that the reply is about: the span's or, of a Prepare, the next one
}

// TakeNumbers returns a take of n numbers, all of them or none. A single number may be taken together with other
// callers' numbers.
func (s *Session) TakeNumbers(n int) store.Request {
	s.take = store.Take{N: n, Purpose: store.All}
	if n == 1 && s.request == "" {
		s.take.Purpose = store.Issue
	}
	return &s.take
}

// Send sends a request for the span that the server's clock is in, until the reply comes from inside that span. If the
// request makes no sense for the span, it is not sent, and the reply is [store.Late]. ctx ends the wait, unless the
// request may go in a pipeline with others: then ctx must not end.
func (s *Session) Send(ctx context.Context, req store.Request, pipeline bool) (r Reply, err error) {
	span := s.Current()
	for tries := 0; ; {
		err = s.sendOnce(ctx, span, req, pipeline, &r)
		if err = s.observe(&r, err); err != nil {
			return r, err
		}
		switch r.Status {
		case store.Clock:
			if tries++; tries > clockTries {
				r.Status = Unsteady
				return r, s.Refuse(&r)
			}
			at := r.Now
			if s.server.seconds {
				at = at.Add(r.Received.Sub(r.Sent)) // until the next one arrives
			}
			if span = s.server.spans.at(at); span.Unprintable != nil {
				return r, span.Unprintable
			}
		case store.Future:
			if again, err := s.awaitClock(ctx, &r); !again {
				return r, err
			}
			span, tries = s.Current(), 0
		default:
			return r, nil
		}
	}
}

// Open sends an Open for a span, once, whatever the clock: Redis refuses it if the period is over. lift says what it
// may skip.
func (s *Session) Open(ctx context.Context, span *Span, o *store.Open, lift Lift) (r Reply, err error) {
	err = s.sendOnce(ctx, span, o, true, &r)
	s.server.gaps.opening(span, o, lift, &r.Reply, err)
	return r, s.observe(&r, err)
}

// sendOnce sends a request for a span, and sets r, which is large, to the reply.
func (s *Session) sendOnce(ctx context.Context, span *Span, req store.Request, pipeline bool, r *Reply) (err error) {
	*r = Reply{Span: span, About: &span.Stored}
	waiting, note := s.server.takes, (*redisrun.Note)(nil)
	take, ok := req.(*store.Take)
	shared := ok && take.Purpose == store.Issue
	if shared { // alone if nobody waits, and if the caller may wait for Redis itself
		key, mine := batchKey{s.Type, span.From}, payload{ctx, span, budget.New(true)}
		b, place, begun := waiting.Join(key, mine, budget.First, ctx.Done() == nil)
		if b != nil {
			return s.waitBatch(ctx, b, place, &r.Reply)
		}
		err = coalesce.ErrEnded // the error stays if a hook panics
		defer func() { waiting.Leave(begun, err == nil) }()
	}
	if !req.Aim(s.target(span)) {
		r.Status = store.Late
		return nil
	}
	r.About, s.sent, s.sentFor = req.About(), req.Requested(), span
	if pipeline && s.request == "" { // a stored answer may be long
		r.Reply, err = s.waitPipeline(ctx, req)
		return err
	}
	in, err := s.server.runner.Run(ctx, &s.Budget, s.server.node, s.server.store.Command(req), note)
	r.Reply, err = store.Read(in, err, s.sent)
	return err
}

// target is what a request is sent for.
func (s *Session) target(span *Span) store.Target {
	return store.Target{
		Series:         s.server.memory.series(s.Type, span),
		Repeatable:     store.Repeatable{ID: s.request, Printed: span.printed, Key: s.server.key},
		ClockUntrusted: s.server.clockUntrusted(),
	}
}

// waitBatch waits for the reply to a batch, and sets part to the part of it that belongs to the session's place.
func (s *Session) waitBatch(ctx context.Context, b *batch, place int, part *store.Reply) error {
	within := ctx // the batch has all the time that a fresh call has
	if left := s.Budget.Answer(); left < budget.Answers {
		var cancel context.CancelFunc
		within, cancel = context.WithTimeout(ctx, left)
		defer cancel()
	}
	r, err := b.Wait(within)
	if err != nil && err == within.Err() {
		s.server.gaps.addPending(1)
		if !b.Leave(place) {
			s.server.gaps.addPending(-1)
			r, err = b.Wait(context.Background())
		}
	}
	switch {
	case err != nil && err == ctx.Err():
		return redisrun.GaveUp(err, &b.Note)
	case err == context.DeadlineExceeded, err == coalesce.ErrUnsent: // the budget's
		return redisrun.ErrUnsent
	case err != nil:
		return err
	}
	partOf(r, place, part)
	if part.Status != store.Issued {
		s.Budget.Spend(budget.Answers-b.Payload.budget.Answer(), budget.Answers)
	}
	return nil
}

// waitPipeline has a request sent in a pipeline with others, and waits for the reply. It comes in time: a request that
// waits for others is not sent after its limit.
func (s *Session) waitPipeline(ctx context.Context, req store.Request) (store.Reply, error) {
	limit, _ := s.Budget.NextLimit()
	b, _, _ := s.server.requests.Join(req, requestPayload{ctx, &s.Budget}, limit, false)
	r, err := b.Wait(context.Background())
	if err == coalesce.ErrUnsent {
		s.Budget.Spend(b.Waited(), limit)
		err = redisrun.ErrUnsent
	}
	return *r, err
}

// awaitClock waits for a server's clock that was set back to before the period entered, if that takes little time. It
// returns false if it takes too long.
func (s *Session) awaitClock(ctx context.Context, r *Reply) (again bool, _ error) {
	begins := time.Unix(store.ParsePeriod(r.Entered).Start, 0)
	pause := max(begins.Sub(r.Now), s.slept/8) // few times, also if the clock does not move
	deadline, ok := ctx.Deadline()
	if s.slept+pause > catchUp || pause > s.Budget.Answer() || ok && time.Until(deadline) < pause {
		return false, nil
	}
	if err := redisrun.Sleep(ctx, pause); err != nil {
		return false, err
	}
	s.slept += pause
	s.Budget.Spend(pause, pause)
	return true, nil
}

// observe notes everything in a reply. Each reply passes through here once. Numbers that are not confirmed are an
// error.
func (s *Session) observe(r *Reply, err error) error {
	s.sent = store.Requested{}
	s.server.settle(s.Type, r.Span, r.Unanswered, r.Requested)
	if s.Silent = err != nil; s.Silent {
		return err
	}
	offset, before := s.server.clock.learn(&r.Reply)
	if r.Status == store.Lost || r.WasLost || r.Status == store.Clock && offset != before {
		s.mu.Lock()
		if r.Status == store.Clock { // of callers who share a reply, one notes it
			s.events.Offset, s.events.Before = offset, before
		} else if s.events.Lost == nil {
			s.events.Lost, s.events.Held = r.About, r.Detail
		}
		s.mu.Unlock()
	}
	return s.server.observe(s.Type, r.Span, &r.Reply)
}

// Refuse makes a reply a Refusal.
func (s *Session) Refuse(r *Reply) error {
	return &Refusal{r.Reply, s.Type, r.About, s.server.memory.series(s.Type, r.Span).HighWater}
}

// Remember notes that the answer of before was returned again: its first reply may have been lost.
func (s *Session) Remember(span *Span, a *store.Answer) {
	if p := a.Period; p.Label == span.Label && p.Start == span.Start && p.End == span.End {
		s.server.memory.remember(s.Type, span, a.Seq, &s.server.clock)
	}
}

// LockKey is the key of the lock under which the counter of a span is made.
func (s *Session) LockKey(span *Span) string { return s.server.store.LockKey(s.Type, span.Label) }

// Release gives a claim back.
func (s *Session) Release(ctx context.Context, token string) error {
	b := budget.New(false)
	_, err := s.server.runner.Run(ctx, &b, s.server.node, s.server.store.Release(s.Type, token), nil)
	return err
}

// NobodyGot reports n numbers up to last, which an opening has issued to a caller who had left.
func (s *Session) NobodyGot(span *Span, last, n int64) {
	if s.request == "" {
		s.server.gaps.skip(s.Type, span, CallerLeft, last-n, last)
	}
}

// Burn reports a block that was set aside and can no longer be installed. If mixed, callers without a ledger may have
// its numbers.
func (s *Session) Burn(span *Span, block store.Block, mixed bool) {
	s.server.gaps.burn(s.Type, span, block, mixed)
}

// SettlePanic reports the request in which a hook of the client has panicked, if there was one.
func (s *Session) SettlePanic() {
	if s.sent.N > 0 {
		s.server.gaps.lost(s.Type, s.sentFor, s.sent)
		s.sent = store.Requested{}
	}
}
