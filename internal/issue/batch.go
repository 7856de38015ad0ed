package issue

import (
	"context"
	"fmt"
	"time"

	"github.com/dailyserial/serial/internal/budget"
	"github.com/dailyserial/serial/internal/coalesce"
	"github.com/dailyserial/serial/internal/redisrun"
	"github.com/dailyserial/serial/internal/store"
)

// A node is a server that has keys, with what this process remembers of it.
type node struct {
	*store.Node
	issuer  *Issuer
	clock   clock
	batches *coalesce.Batcher[batchKey, payload, store.Reply]
	opens   *coalesce.Batcher[*store.Open, openPayload, store.Reply]
}

// A batch is what callers share.
type batch = coalesce.Batch[batchKey, payload, store.Reply]

// A batchKey is what callers have in common who share a take.
type batchKey struct {
	typ   string
	start int64 // of the span, Unix seconds
}

// A payload is what the first caller of a batch asked for.
type payload struct {
	ctx  context.Context // for its values
	span *Span
}

// An opening is an open of one caller, which goes together with other types' where several are ready at the same moment.
type opening = coalesce.Batch[*store.Open, openPayload, store.Reply]

// opensTogether is how many openings go in a pipeline at most. Four of the longest fit into 4 KiB: see redisrun.Pipe.
const opensTogether = 4

type openPayload struct {
	ctx   context.Context // for its values
	limit time.Duration   // that the caller has left
}

// openTogether waits for the reply to an opening.
func (s *session) openTogether(o *opening) (store.Reply, error) {
	limit, _ := s.budget.Attempt()
	r, err := o.Wait(context.Background())
	s.budget.Spend(time.Since(o.Begun), limit)
	return *r, err
}

// sendOpens sends openings in one pipeline. They have the time that each of their callers has.
func (n *node) sendOpens(openings []*opening) {
	first, left := openings[0], budget.New(true)
	ctx := context.WithoutCancel(first.Payload.ctx)
	opens, limit := make([]*store.Open, len(openings)), budget.Answers
	for i, o := range openings {
		opens[i], limit = o.Key, min(limit, o.Payload.limit-time.Since(o.Begun))
	}
	left.Spend(budget.Answers-max(limit, budget.Last), budget.Answers) // a quick attempt remains, whatever the wait
	if len(openings) == 1 {
		first.Finish(n.issuer.Store.Open(ctx, &left, n.Node, first.Key))
		return
	}
	n.issuer.Store.OpenAll(ctx, &left, n.Node, opens, func(i int, r store.Reply, err error) { openings[i].Finish(r, err) })
}

// takeTogether waits for the reply to a batch, and returns the part of the session's place in it.
func (s *session) takeTogether(ctx context.Context, b *batch, place int) (store.Reply, error) {
	within := ctx // the batch has all the time that a fresh call has
	if left := s.budget.Answer(); left < budget.Answers {
		var cancel context.CancelFunc
		within, cancel = context.WithTimeout(ctx, left)
		defer cancel()
	}
	r, err := b.Wait(within)
	if err != nil && err == within.Err() {
		s.issuer.expect(1)
		if !b.Leave(place) {
			s.issuer.expect(-1)
			r, err = b.Wait(context.Background())
		}
	}
	switch {
	case err != nil && err == ctx.Err():
		return store.Reply{}, redisrun.GaveUp(err, &b.Note)
	case err == context.DeadlineExceeded: // the budget's
		return store.Reply{}, redisrun.Outage(fmt.Errorf("serial: Redis failed: %w", redisrun.ErrNoAnswer))
	case err != nil:
		return store.Reply{}, err
	case r.Status == store.Issued && place < r.Count:
		return store.Reply{Status: store.Issued, Last: r.Last - int64(r.Count-1-place)}, nil
	}
	left, _ := s.budget.Attempt()
	s.budget.Spend(r.Received.Sub(b.Begun), left)
	if r.Status == store.Issued { // for those who came before
		return store.Reply{Status: r.Rest, Held: fmt.Sprint(r.Last), Before: r.Before}, nil
	}
	return *r, nil
}

// send sends batches: those of one span together.
func (n *node) send(batches []*batch) {
	first := batches[0]
	left, ctx := budget.New(true), context.WithoutCancel(first.Payload.ctx)
	limit, _ := left.Attempt()
	left.Spend(time.Since(first.Begun), limit) // a quick attempt remains, whatever the wait
	takes := make([]store.Take, 0, len(batches))
	for i, b := range batches {
		if b.Key.start != first.Key.start { // around midnight, or where the clock jumps
			n.send(batches[:i])
			n.send(batches[i:])
			return
		}
		takes = append(takes, store.Take{
			Series: n.issuer.memory.series(b.Key.typ, b.Payload.span), N: b.Size(),
			Purpose: store.Issue, ClockUntrusted: n.clockUntrusted(), Note: &b.Note,
		})
	}
	ended := false
	defer func() {
		for i := 0; !ended && i < len(batches); i++ { // a hook of the client has panicked
			if !batches[i].Finished() {
				n.issuer.explainLost(batches[i].Key.typ, batches[i].Payload.span, takes[i].Asked())
			}
		}
	}()
	n.sendTakes(ctx, &left, takes, batches)
	ended = true
}

// sendTakes sends a take for each batch, and finishes the batches.
func (n *node) sendTakes(ctx context.Context, left *budget.Budget, takes []store.Take, batches []*batch) {
	if len(batches) == 1 {
		r, err := n.issuer.Store.Take(ctx, left, n.Node, &takes[0])
		n.finish(batches[0], r, err)
		return
	}
	n.issuer.Store.TakeAll(ctx, left, n.Node, takes, func(i int, r store.Reply, err error) {
		n.finish(batches[i], r, err)
	})
}

// finish hands a reply to the callers of a batch.
func (n *node) finish(b *batch, r store.Reply, err error) {
	if len(r.Unanswered) > 0 {
		n.settle(b.Key.typ, b.Payload.span, r.Unanswered, r.Asked)
	}
	if err == nil {
		err = n.observe(b.Key.typ, b.Payload.span, &r)
	}
	b.Finish(r, err)
}

// observe keeps what a reply tells of its time and of numbers. Numbers that are not confirmed are an error.
func (n *node) observe(typ string, s *Span, r *store.Reply) error {
	n.clock.measure(r)
	if r.Unconfirmed != nil {
		if !r.Once {
			n.issuer.explainLast(typ, s, NotReplicated, r.Last, int64(r.Count))
		}
		return &Refusal{Reply: store.Reply{Status: Unconfirmed, Unconfirmed: r.Unconfirmed}, Type: typ, Span: s}
	}
	if r.Status == store.Issued && r.Count > 0 {
		n.issuer.memory.remember(typ, s, r.Last, &n.clock)
	}
	return nil
}

// clockUntrusted reports whether the server's clock is so far from this host's that a take may not enter what was prepared: the
// sequence then checks the clock, as it does before it opens a period.
func (n *node) clockUntrusted() bool {
	offset := n.clock.offset.Load()
	return n.issuer.MaxSkew >= 0 && max(offset, -offset) > int64(n.issuer.MaxSkew)
}
