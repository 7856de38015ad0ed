package exchange

import (
	"context"
	"strconv"
	"sync"
	"time"

	"github.com/dailyserial/serial/internal/budget"
	"github.com/dailyserial/serial/internal/coalesce"
	"github.com/dailyserial/serial/internal/redisrun"
	"github.com/dailyserial/serial/internal/store"
)

const (
	catchUp    = 5 * time.Second // the longest wait for a clock that was set back
	clockTries = 10              // consecutive replies from outside the span after which Send gives up
)

// A Session is one call's exchange with the server that has its type's keys. One goroutine uses it at a time, except
// for [Session.Events].
type Session struct {
	Type    string
	Budget  budget.Budget
	Silent  bool // the server did not answer the last request
	SentOwn bool // the session has sent a request of its own

	// Last gets each failure of an attempt in a pipeline. It is nil until the call may leave such a request.
	Last *redisrun.Note

	server  *server
	request string          // ID of a repeatable request, "" for none
	joined  *batch          // batch of Join whose reply Send reads, nil for none
	place   int             // place in joined
	sent    store.Requested // numbers requested by the request under way; set afterwards only if a client's hook panicked
	sentFor *Span
	take    store.Take    // request of TakeNumbers
	slept   time.Duration // time slept for the server's clock to catch up

	mu     sync.Mutex // guards events, which a caller that has left may read
	events Events
}

// Events are the events of a call that hooks report. A nil Span or Period means none.
type Events struct {
	Type           string
	Opened         *Span         // span that the call opened
	Wait           time.Duration // time from the beginning of the call until Opened was open
	Lost           *store.Period // period whose counter is gone or went back
	Held           string        // content of the lost counter
	Reads          bool          // the call reads, and repairs nothing
	Offset, Before time.Duration // new and previous offset of the server's clock
	Now            time.Time     // time by the server's clock, as far as it is known
}

// Events returns the call's events so far.
func (s *Session) Events() Events {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.events.Type, s.events.Now = s.Type, s.server.clock.now()
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

// Current returns the current span by the server's clock, as far as it is known: the span of now or, if spans last a
// second, of the instant when a request arrives. If the call gets no number in that span, this host's clock may be
// wrong, and a request must first ask the server for the time.
func (s *Session) Current() *Span {
	at := s.server.clock.now()
	if s.server.seconds {
		at = s.server.clock.arrival()
	}
	if span := s.server.spans.at(at); span.Unprintable == nil && !span.isOver(s.events.Reads) {
		return span
	}
	return s.server.spans.clockProbe
}

// A Reply is the reply to a request for a span.
type Reply struct {
	store.Reply
	Span  *Span
	About *store.Period // period of the reply: the span's or, for a Prepare, the next one
}

// TakeNumbers returns a take of n numbers, all of them or none. A take of one number may share a batch with other
// callers.
func (s *Session) TakeNumbers(n int) store.Request {
	s.take = store.Take{N: n, Purpose: store.All}
	if n == 1 && s.request == "" {
		s.take.Purpose = store.Issue
	}
	return &s.take
}

// Join takes one number with callers who wait already, if there are any: one of them has just looked at the clock. If
// it returns neither a span nor an error, Send continues.
func (s *Session) Join(ctx context.Context) (span *Span, last int64, err error) {
	if span = s.server.spans.latest.Load(); span == nil || s.request != "" {
		return nil, 0, nil
	}
	b, place := s.server.takes.JoinWaiting(batchKey{s.server.store.CountedAs(s.Type), span.From})
	if b == nil {
		return nil, 0, nil
	}
	r, err := s.waitBatch(ctx, b, place)
	if s.Silent = err != nil; s.Silent {
		return nil, 0, err
	}
	last, issued := sequenceOf(r, place)
	if !issued {
		s.joined, s.place = b, place
		return nil, 0, nil
	}
	return span, last, nil
}

// Send sends a request for the current span by the server's clock, until the reply comes from inside that span. If the
// request makes no sense for the span, it is not sent, and the reply is [store.Late]. If ctx ends, so does the wait.
// With pipeline, the request may share a pipeline, and ctx must not end.
func (s *Session) Send(ctx context.Context, req store.Request, pipeline bool) (r Reply, err error) {
	span := s.Current()
	if s.joined != nil {
		span = s.joined.Payload.span
	}
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
				at = at.Add(r.Received.Sub(r.Sent)) // when the next request arrives
			}
			if span = s.server.spans.at(at); span.isOver(s.events.Reads) {
				span = s.server.spans.at(r.Now) // the next request may still arrive in time
			}
			if span.Unprintable != nil {
				return r, span.Unprintable
			}
			if span.isOver(s.events.Reads) {
				r.Span, r.About, r.Status = span, &span.Stored, Over
				return r, s.Refuse(&r)
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

// Open sends an Open for a span, once, whatever the clock: Redis refuses it if the period is over. lift says why it may
// skip sequences.
func (s *Session) Open(ctx context.Context, span *Span, o *store.Open, lift Lift) (r Reply, err error) {
	err = s.sendOnce(ctx, span, o, true, &r)
	s.server.gaps.opening(span, o, lift, &r.Reply, err)
	return r, s.observe(&r, err)
}

// sendOnce sends a request for a span, and sets r, which is large, to the reply.
func (s *Session) sendOnce(ctx context.Context, span *Span, req store.Request, pipeline bool, r *Reply) (err error) {
	*r = Reply{Span: span, About: &span.Stored}
	waiting := s.server.takes
	// The take goes alone if nobody waits, and if the caller may itself wait for Redis.
	if take, ok := req.(*store.Take); ok && take.Purpose == store.Issue {
		b, place, begun := s.joined, s.place, time.Time{}
		if s.joined = nil; b == nil {
			key, mine := batchKey{s.server.store.CountedAs(s.Type), span.From}, payload{ctx, span, budget.New(true)}
			b, place, begun = waiting.Join(key, mine, budget.First, ctx.Done() == nil)
		}
		if b != nil {
			shared, err := s.waitBatch(ctx, b, place)
			if err == nil && !partOf(shared, place, &r.Reply) {
				s.Budget.Spend(budget.Answers-b.Payload.budget.Answer(), budget.Answers)
			}
			return err
		}
		err = coalesce.ErrEnded // the error stays if a hook panics
		defer func() { waiting.Leave(begun, err == nil) }()
	}
	s.SentOwn = true
	if !req.Aim(s.target(span)) {
		r.Status = store.Late
		return nil
	}
	r.About, s.sent, s.sentFor = req.About(), req.Requested(), span
	if pipeline && s.request == "" { // a stored answer may be long
		r.Reply, err = s.waitPipeline(ctx, req)
		return err
	}
	in, err := s.server.runner.Run(ctx, &s.Budget, s.server.node, s.server.store.Command(req), nil)
	r.Reply, err = store.Read(in, err, s.sent)
	return err
}

// target returns the target of a request for a span.
func (s *Session) target(span *Span) store.Target {
	printed := span.printed
	if s.request != "" && s.server.store.CountedAs(s.Type) != s.Type {
		printed += " " + strconv.Quote(s.Type)
	}
	return store.Target{
		Series:         s.server.memory.series(s.Type, span),
		Repeatable:     store.Repeatable{ID: s.request, Printed: printed, Key: s.server.key, Life: s.server.onceFor},
		ClockUntrusted: s.server.clockUntrusted(),
	}
}

// waitBatch waits for the reply to a batch, in which the session has a place.
func (s *Session) waitBatch(ctx context.Context, b *batch, place int) (*store.Reply, error) {
	within := ctx // the batch has the time of a fresh call
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
		return nil, redisrun.GaveUp(err, &b.Note)
	case err == context.DeadlineExceeded, err == coalesce.ErrUnsent: // the budget's limit, not the caller's
		return nil, redisrun.After(&b.Note, redisrun.ErrUnsent)
	}
	return r, err
}

// waitPipeline sends a request in a pipeline with others, and waits for the reply. It returns in time: a queued request
// is not sent after its limit.
func (s *Session) waitPipeline(ctx context.Context, req store.Request) (store.Reply, error) {
	limit, _ := s.Budget.NextLimit()
	b, _, _ := s.server.requests.Join(req, requestPayload{ctx, &s.Budget, s.Last}, limit, false)
	r, err := b.Wait(context.Background())
	if err == coalesce.ErrUnsent {
		s.Budget.Spend(b.Waited(), limit)
		err = redisrun.ErrUnsent
	}
	return *r, err
}

// awaitClock waits for a server's clock that was set back to before the period entered. It returns false if that would
// take too long.
func (s *Session) awaitClock(ctx context.Context, r *Reply) (again bool, _ error) {
	begins := time.Unix(store.ParsePeriod(r.Entered).Start, 0)
	pause := max(begins.Sub(r.Now), s.slept/8) // keeps the retries few even if the clock does not move
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

// observe notes the content of a reply. Each reply passes through here once. Unconfirmed numbers are an error.
func (s *Session) observe(r *Reply, err error) error {
	s.sent = store.Requested{}
	s.server.settle(s.Type, r.Span, r.Unanswered, r.Requested)
	if s.Silent = err != nil; s.Silent {
		return err
	}
	offset, before := s.server.clock.learn(&r.Reply)
	lost := r.Status == store.Lost || r.WasLost || r.Skipped.Opened && r.Skipped.From < 0
	if lost || r.Status == store.Clock && offset != before {
		s.mu.Lock()
		if r.Status == store.Clock { // only one of the callers who share a reply notes it
			s.events.Offset, s.events.Before = offset, before
		} else if s.events.Lost == nil {
			s.events.Lost, s.events.Held = r.About, r.Detail
		}
		s.mu.Unlock()
	}
	return s.server.observe(s.Type, r.Span, &r.Reply)
}

// Refuse returns a Refusal with a reply.
func (s *Session) Refuse(r *Reply) error {
	return &Refusal{r.Reply, s.Type, r.About, s.server.memory.series(s.Type, r.Span).HighWater}
}

// Remember notes a stored answer that was returned again: the first reply may have been lost.
func (s *Session) Remember(span *Span, a *store.Answer) {
	if p := a.Period; p.Label == span.Label && p.Start == span.Start && p.End == span.End {
		s.server.memory.remember(s.Type, span, a.Seq, &s.server.clock)
	}
}

// Release gives a claim back.
func (s *Session) Release(ctx context.Context, token string) error {
	b := budget.New(false)
	_, err := s.server.runner.Run(ctx, &b, s.server.node, s.server.store.Release(s.Type, token), nil)
	return err
}

// NobodyGot reports n numbers up to last, which an opening issued after the caller had left.
func (s *Session) NobodyGot(span *Span, last, n int64) {
	if s.request == "" {
		s.server.gaps.skip(s.Type, span, CallerLeft, last-n, last)
	}
}

// Burn reports a block that can no longer be installed. If mixed, callers without a ledger may have its numbers.
func (s *Session) Burn(span *Span, block store.Block, mixed bool) {
	s.server.gaps.burn(s.Type, span, block, mixed)
}

// SettlePanic reports the request during which a client's hook panicked, if there was one.
func (s *Session) SettlePanic() {
	if s.sent.N > 0 {
		s.server.gaps.lost(s.Type, s.sentFor, s.sent)
		s.sent = store.Requested{}
	}
}
