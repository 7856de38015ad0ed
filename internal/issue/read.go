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

// Peek returns the last sequence of the current period, 0 if none was issued. It writes nothing.
func (c *Call) Peek(ctx context.Context) (Numbers, error) {
	r, err := read(ctx, c, &store.Peek{})
	return Numbers{Span: r.Span, Last: r.Last}, err
}

// History returns the current period's span, and the last sequence of that period and of each labelled one: 0 if none
// was issued, -1 if the counter does not exist or holds no sequence. It writes nothing.
func (c *Call) History(ctx context.Context, labels ...string) (*exchange.Span, []int64, error) {
	r, err := read(ctx, c, &store.History{Labels: labels})
	return r.Span, r.Each, err
}

// PeekAt returns the last sequence of the period with that label, -1 if the counter does not exist. The span in the
// result is the current one.
func (c *Call) PeekAt(ctx context.Context, label string) (Numbers, error) {
	span, each, err := c.History(ctx, label)
	if err != nil {
		return Numbers{Span: span}, err
	}
	return Numbers{Span: span, Last: each[1]}, nil
}
