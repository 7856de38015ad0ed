package issue

import (
	"context"

	"github.com/dailyserial/serial/internal/exchange"
	"github.com/dailyserial/serial/internal/store"
)

// read returns the reply to a request that reads the series in the current period.
func read(ctx context.Context, c *Call, request store.Request) (exchange.Reply, error) {
	c.session.NoteReads()
	r, err := c.session.Send(ctx, request, false)
	if err == nil && r.Status != store.Issued && r.Status != store.Missing {
		err = c.session.Refuse(&r)
	}
	return r, err
}

// A Counter describes the counter of a period: the last sequence issued, 0 if there is none, and the sequence just
// before the first, which is the Issuer's own Base unless the record has another one. Last is -1 if the counter does not
// exist or holds no sequence.
type Counter = store.Counter

// counters returns the counters in a reply.
func (c *Call) counters(r *exchange.Reply) []Counter {
	for i := range r.Each {
		k := &r.Each[i]
		if k.Base < 0 {
			k.Base = c.issuer.Base
		}
		if k.Last == k.Base { // the period was opened, and nothing was issued
			k.Last = 0
		}
	}
	return r.Each
}

// Peek returns the current period's span and its counter, with Last 0 if the period is not open. It writes nothing.
func (c *Call) Peek(ctx context.Context) (*exchange.Span, Counter, error) {
	r, err := read(ctx, c, &store.Peek{})
	if err != nil || r.Each == nil {
		return r.Span, Counter{Base: c.issuer.Base}, err
	}
	return r.Span, c.counters(&r)[0], nil
}

// History returns the current period's span, and the counter of that period and of each labelled one. It writes
// nothing.
func (c *Call) History(ctx context.Context, labels ...string) (*exchange.Span, []Counter, error) {
	r, err := read(ctx, c, &store.History{Labels: labels})
	return r.Span, c.counters(&r), err
}

// PeekAt is Peek for the period with that label. The span is the current one.
func (c *Call) PeekAt(ctx context.Context, label string) (*exchange.Span, Counter, error) {
	span, each, err := c.History(ctx, label)
	if err != nil {
		return span, Counter{}, err
	}
	return span, each[1], nil
}
