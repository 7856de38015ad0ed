package exchange

import (
	"context"
	"fmt"
	"slices"

	"github.com/redis/go-redis/v9"

	"github.com/dailyserial/serial/internal/budget"
	"github.com/dailyserial/serial/internal/coalesce"
	"github.com/dailyserial/serial/internal/redisrun"
	"github.com/dailyserial/serial/internal/store"
)

// This file sends takes that callers share: takes of one type and span form a batch, and batches of one span go
// together.

// A server is this process's state of one server that has keys.
type server struct {
	*common
	node     *redisrun.Node
	clock    clock
	takes    *coalesce.Batcher[batchKey, payload, store.Reply]
	requests *coalesce.Batcher[store.Request, requestPayload, store.Reply]
}

// A batch is a take shared by callers.
type batch = coalesce.Batch[batchKey, payload, store.Reply]

// A batchKey identifies the batch that a caller may share.
type batchKey struct {
	typ   string
	start int64 // start of the span, Unix seconds
}

// A payload has the arguments of a batch's first caller.
type payload struct {
	ctx    context.Context // for its values
	span   *Span
	budget budget.Budget // the batch's budget
}

// A requestPayload has the caller's side of a request in a pipeline.
type requestPayload struct {
	ctx    context.Context // for its values
	budget *budget.Budget  // the caller does not use it until its request is finished
	last   *redisrun.Note  // the caller's Last
}

type pipelined = coalesce.Batch[store.Request, requestPayload, store.Reply]

// sendBatches sends the batches of the first batch's span together, and the batches of other spans separately. Late
// batches also go separately, because they end sooner.
func (s *server) sendBatches(batches []*batch) {
	first := batches[0]
	ctx := context.WithoutCancel(first.Payload.ctx)
	for i, b := range batches {
		if b.Key.start != first.Key.start || isLate(b) != isLate(first) { // around midnight, or if the clock jumps
			others := batches[i:]
			defer redisrun.Beside(func() { s.sendBatches(others) })()
			batches = batches[:i]
			break
		}
	}
	for _, b := range batches {
		b.Payload.budget.Spend(b.Waited(), budget.First) // a quick attempt remains
	}
	takes := make([]store.Take, len(batches))
	for i, b := range batches {
		takes[i] = store.Take{N: b.Size(), Purpose: store.Issue, Target: store.Target{
			Series: s.memory.series(b.Key.typ, b.Payload.span), ClockUntrusted: s.clockUntrusted(),
		}}
	}
	defer func() {
		for i, b := range batches {
			if !b.Finished() { // a hook of the client has panicked
				s.gaps.lost(b.Key.typ, b.Payload.span, takes[i].Requested())
			}
		}
	}()
	s.sendTakes(ctx, takes, batches)
}

// isLate reports whether a batch has used up more than half of its time while it waited.
func isLate(b *batch) bool { return b.Waited() > budget.Answers/2 }

// sendTakes sends a take for each batch, and finishes the batches. It makes one script call, or one pipeline if a
// script may only touch one slot. If the server refuses the whole call, one type's keys may be the reason, so sendTakes
// then sends a pipeline. It also sends a pipeline of the takes that fail inside the call.
func (s *server) sendTakes(ctx context.Context, takes []store.Take, batches []*batch) {
	if len(takes) == 1 {
		command := s.store.TakeTogether(&takes[0])
		command.Waiters = batches[0]
		r, err := s.runner.Run(ctx, &batches[0].Payload.budget, s.node, command, &batches[0].Note)
		s.finish(batches[0], r, err, takes[0].Requested(), nil)
		return
	}
	each := make([]any, len(takes)) // nil or an error for a take that must be sent alone
	var all redisrun.Reply
	var err error
	if !s.node.OneSlot.Load() {
		all, err = s.takeTogether(ctx, takes, batches)
		values, _ := all.Value.([]any)
		copy(each, values)
	}
	var alone []int // indices of takes to send in a pipeline
	var rest []*budget.Budget
	var commands []redisrun.Command
	var notes []*redisrun.Note
	for i, b := range batches {
		asked := takes[i].Requested()
		failure, failed := each[i].(error)
		if err != nil || each[i] != nil && !failed {
			single := all
			single.Value, single.Unanswered = each[i], nil
			s.finish(b, single, err, asked, store.Part(i, all.Unanswered, asked))
			continue
		}
		if failed {
			b.Note.Store(&failure)
		}
		command := s.store.TakeTogether(&takes[i])
		command.Waiters = b
		alone, rest = append(alone, i), append(rest, &b.Payload.budget)
		commands, notes = append(commands, command), append(notes, &b.Note)
	}
	if len(alone) == 0 {
		return
	}
	s.runner.RunAll(ctx, rest, s.node, commands, notes, func(k int, in redisrun.Reply, err error) {
		i := alone[k]
		asked := takes[i].Requested()
		before := store.Part(i, all.Unanswered, asked)
		if failure, ok := each[i].(error); ok {
			before = append(before, store.Failed(failure))
		}
		s.finish(batches[i], in, err, asked, before)
	})
}

// takeTogether sends several takes in one script call. If it returns neither a value nor an error, send them one by
// one.
func (s *server) takeTogether(ctx context.Context, takes []store.Take, batches []*batch) (redisrun.Reply, error) {
	command := s.store.TakeTogether(&takes[0], takes[1:]...)
	command.Waiters = waiters(batches)
	first := &batches[0].Payload.budget // the first batch has waited longest
	before := first.Answer()
	all, err := s.runner.Run(ctx, first, s.node, command, new(redisrun.Note))
	for _, b := range batches[1:] {
		b.Payload.budget.Spend(before-first.Answer(), budget.Answers)
	}
	slots := redis.HasErrorPrefix(err, "CROSSSLOT") // a Cluster node behind a client for a single server
	s.node.OneSlot.Store(slots)
	if slots || redis.HasErrorPrefix(err, "NOPERM") {
		err = nil
	}
	return all, err
}

// waiters are the callers of several batches.
type waiters []*batch

// Wanted implements [redisrun.Waiters].
func (w waiters) Wanted() bool { return slices.ContainsFunc(w, (*batch).Wanted) }

// finish hands a reply to the callers of a batch. before has the earlier attempts, which this reply does not answer.
func (s *server) finish(b *batch, in redisrun.Reply, err error, asked store.Requested, before []store.LateReply) {
	r, err := store.Read(in, err, asked)
	s.settle(b.Key.typ, b.Payload.span, append(before, r.Unanswered...), asked)
	r.Unanswered = nil // settled
	if err == nil {
		err = s.observe(b.Key.typ, b.Payload.span, &r)
	}
	b.Finish(r, err)
}

// leftBehind reports the number of a member that has left its batch.
func (s *server) leftBehind(b *batch, place int) {
	defer s.gaps.addPending(-1)
	r, err := b.Result()
	if last, issued := sequenceOf(r, place); err == nil && issued {
		s.gaps.skip(b.Key.typ, b.Payload.span, CallerLeft, last-1, last)
	}
}

// partOf sets part, which is zero, to the share of a batch's reply that belongs to the member in that place. It returns
// false if that is no number.
func partOf(r *store.Reply, place int, part *store.Reply) bool {
	last, issued := sequenceOf(r, place)
	switch {
	case issued:
		part.Status, part.Last = store.Issued, last
	case r.Status == store.Issued: // earlier members took the last numbers
		part.Status, part.Detail, part.EarlierErr = r.Rest, fmt.Sprint(r.Last), r.EarlierErr
	default:
		*part = *r
	}
	return issued
}

// sequenceOf returns the sequence that the member in that place gets from a batch's reply, if it gets one.
func sequenceOf(r *store.Reply, place int) (last int64, issued bool) {
	return r.Last - int64(r.Count-1-place), r.Status == store.Issued && place < r.Count
}

// settle reports attempts once the client has given them up. A late answer is exact.
func (s *server) settle(typ string, span *Span, attempts []store.LateReply, asked store.Requested) {
	for _, attempt := range attempts {
		s.gaps.addPending(1)
		go func() {
			defer s.gaps.addPending(-1)
			late, err := attempt()
			switch {
			case err == nil:
				if s.observe(typ, span, &late) == nil && late.Status == store.Issued && !asked.Repeatable {
					s.gaps.skip(typ, span, CallerLeft, late.Last-int64(late.Count), late.Last)
				}
			case !redisrun.Unsent(err):
				s.gaps.lost(typ, span, asked)
			}
		}()
	}
}

// observe notes a reply's round trip and numbers. Unconfirmed numbers are an error.
func (s *server) observe(typ string, span *Span, r *store.Reply) error {
	s.clock.measure(r)
	if r.Unconfirmed != nil {
		if !r.Repeatable {
			s.gaps.skip(typ, span, NotReplicated, r.Last-int64(r.Count), r.Last)
		}
		return &Refusal{
			Reply: store.Reply{Status: Unconfirmed, Delivery: store.Delivery{Unconfirmed: r.Unconfirmed}},
			Type:  typ, Period: &span.Stored,
		}
	}
	if r.Status == store.Issued && r.Count > 0 {
		s.memory.remember(typ, span, r.Last, &s.clock)
	}
	return nil
}

// clockUntrusted reports whether the server's clock is so far from this host's that a take must not enter a prepared
// period: the sequence then checks the clock, as it does before it opens a period.
func (s *server) clockUntrusted() bool {
	return s.maxSkew >= 0 && duration(s.clock.offset.Load()).Abs() > s.maxSkew
}
