package serial

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
	g     *Generator
	clock clock
	lane  *coalesce.Batcher[batchKey, asked, store.Reply]
}

// A batchKey is what callers have in common who share a take.
type batchKey struct {
	typ   string
	start int64 // of the span, Unix seconds
}

// asked is what the first caller of a batch asked for.
type asked struct {
	ctx  context.Context // for its values
	span *span
}

// joinWaiting has one number issued together with callers who wait already, if there are any: whoever came first has just looked at
// the clock. Else, and if they get no numbers, it comes out as again.
func (c *call) joinWaiting(ctx context.Context) (step, error) {
	s := c.g.current.Load()
	if s == nil || !c.node.Known() {
		return again, nil
	}
	b, place := c.node.lane.JoinWaiting(batchKey{c.typ, s.From})
	if b == nil {
		return again, nil
	}
	c.span = s
	r, err := c.member(ctx, b, place)
	if err == nil && r.Status != store.Issued && r.Status != store.Exhausted {
		return again, nil
	}
	return c.taken(r, err) // exhausted perhaps by an attempt whose answer was lost, which only this reply tells
}

// share has one number issued for the call's span, together with other callers of the type if there are any.
func (c *call) share(ctx context.Context) (store.Reply, error) {
	key, lane := batchKey{c.typ, c.span.From}, c.node.lane
	if ctx.Done() == nil { // the caller may wait for Redis itself
		if place, ok := lane.Alone(); ok {
			answered := false
			defer func() { lane.Leave(place, answered) }()
			r, err := c.send(ctx, store.Take{N: 1, Purpose: store.Issue})
			answered = err == nil
			return r, err
		}
	}
	b, place := lane.Join(key, asked{ctx, c.span})
	return c.member(ctx, b, place)
}

// member waits for the reply to a batch and returns the part of it that is the call's.
func (c *call) member(ctx context.Context, b *batch, place int) (store.Reply, error) {
	var limit time.Duration // none: the batch has all the time that a fresh call has
	if left := c.budget.Answer(); left < budget.Answers {
		limit = max(left, 1)
	}
	r, err := b.Wait(ctx, limit)
	switch {
	case err == nil:
	case err == coalesce.ErrTimeout:
		return store.Reply{}, redisrun.Outage(fmt.Errorf("serial: Redis failed: %w", redisrun.ErrNoAnswer))
	case err == ctx.Err():
		var failure error
		if last := b.Note.Load(); last != nil {
			failure = *last
		}
		return store.Reply{}, redisrun.GaveUp(err, failure)
	case err == coalesce.ErrEnded:
		return store.Reply{}, fmt.Errorf("serial: %w", err)
	default:
		return store.Reply{}, err
	}
	if r.Status == store.Issued && place < r.Count {
		return store.Reply{Status: store.Issued, Last: r.Last - int64(r.Count-1-place)}, nil
	}
	left, _ := c.budget.Attempt()
	c.budget.Spend(r.Received.Sub(b.Begun), left)
	if r.Status == store.Issued { // for those who came before
		return store.Reply{Status: r.Rest, Held: fmt.Sprint(r.Last), Before: r.Before}, nil
	}
	c.learn(r)
	return *r, nil
}

// send sends batches: those of one span together.
func (n *node) send(batches []*batch) {
	first := batches[0]
	left, ctx := remaining(first.Begun), context.WithoutCancel(first.Payload.ctx)
	if len(batches) == 1 {
		take := n.take(first)
		r, err := n.g.store.Take(ctx, &left, n.Node, &take)
		n.finish(first, r, err)
		return
	}
	var takes []store.Take
	for i, b := range batches {
		if b.Key.start != first.Key.start { // around midnight, or where the clock jumps
			n.send(batches[:i])
			n.send(batches[i:])
			return
		}
		takes = append(takes, n.take(b))
	}
	n.g.store.TakeAll(ctx, &left, n.Node, takes, func(i int, r store.Reply, err error) { n.finish(batches[i], r, err) })
}

// take is what a batch asks for.
func (n *node) take(b *batch) store.Take {
	return store.Take{
		Series: n.g.marks.series(b.Key.typ, b.Payload.span), N: b.Size(),
		Purpose: store.Issue, Doubted: n.doubted(), Note: &b.Note,
	}
}

// A batch is what callers share.
type batch = coalesce.Batch[batchKey, asked, store.Reply]

// finish hands a reply to the callers of a batch.
func (n *node) finish(b *batch, r store.Reply, err error) {
	if err == nil {
		err = n.noted(b.Key.typ, b.Payload.span, &r)
	}
	b.Finish(r, err)
}

// remaining is what a batch has left that waited since begun. None waits for longer than a call may: if one has, this process
// stood still, and a quick attempt remains.
func remaining(begun time.Time) budget.Budget {
	b := budget.New(true)
	took, left := time.Since(begun), b.Answer()
	if took > budget.Answers+budget.Last {
		left, _ = b.Attempt()
	}
	b.Spend(took, left)
	return b
}

// send sends a take of the call's own.
func (c *call) send(ctx context.Context, t store.Take) (store.Reply, error) {
	t.Series, t.Doubted, t.Request = c.series(), c.node.doubted(), c.printed()
	r, err := c.g.store.Take(ctx, &c.budget, c.node.Node, &t)
	return r, c.heard(&r, err)
}
