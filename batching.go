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
	lane  *coalesce.Lane[batchKey, asked, store.Reply]
}

// A batchKey is what callers have in common who share a take.
type batchKey struct {
	typ   string
	start int64 // of the period, Unix seconds
}

// asked is what the first caller of a batch asked for.
type asked struct {
	ctx  context.Context // for its values
	span *span
}

func newNode(g *Generator, n *store.Node) *node {
	own := &node{Node: n, g: g}
	own.lane = coalesce.New(n.Together, own.send)
	return own
}

// share has one number issued for the call's span, together with other callers of the type.
func (c *call) share(ctx context.Context) (store.Reply, error) {
	key, lane := batchKey{c.typ, c.span.start}, c.node.lane
	if ctx.Done() == nil { // the caller may wait for Redis itself
		if place, ok := lane.Alone(key); ok {
			answered := false
			defer func() { lane.Leave(key, place, answered) }()
			r, err := c.send(ctx, store.Take{N: 1, Purpose: store.Issue})
			answered = err == nil
			return r, err
		}
	}
	b, place := lane.Join(key, asked{ctx, c.span})
	var limit time.Duration // none: the batch has all the time that a fresh call has
	if left := c.budget.Answer(); left < budget.Answers {
		limit = max(left, 1)
	}
	r, err := b.Wait(ctx, limit)
	switch {
	case err == nil:
	case err == coalesce.ErrTimeout:
		return r, redisrun.Outage(fmt.Errorf("serial: Redis failed: %w", redisrun.ErrNoAnswer))
	case err == ctx.Err():
		var failure error
		if last := b.Note.Load(); last != nil {
			failure = *last
		}
		return r, redisrun.GaveUp(err, failure)
	default:
		return r, err
	}
	c.learn(&r)
	if r.Status == store.Issued {
		if place < r.Count {
			r.Last -= int64(r.Count - 1 - place)
			return r, nil
		}
		r.Status, r.Held = r.Rest, fmt.Sprint(r.Last)
	}
	left, _ := c.budget.Attempt()
	c.budget.Spend(r.Received.Sub(b.Begun), left)
	return r, nil
}

// send sends batches: those of one period together.
func (n *node) send(batches []*batch) {
	for len(batches) > 0 {
		span := batches[0].Payload.span
		var takes []store.Take
		var now, later []*batch
		for _, b := range batches {
			if b.Payload.span.start != span.start {
				later = append(later, b) // around midnight
				continue
			}
			now = append(now, b)
			takes = append(takes, store.Take{
				Series: n.g.marks.series(b.Key.typ, span), N: b.Size(),
				Purpose: store.Issue, Doubted: n.doubted(), Note: &b.Note,
			})
		}
		ctx := context.WithoutCancel(now[0].Payload.ctx)
		left := remaining(now[0].Begun)
		if len(now) == 1 {
			r, err := n.g.store.Take(ctx, &left, n.Node, &takes[0])
			n.finish(now[0], r, err)
		} else {
			n.g.store.TakeAll(ctx, &left, n.Node, takes, func(i int, r store.Reply, err error) { n.finish(now[i], r, err) })
		}
		batches = later
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
