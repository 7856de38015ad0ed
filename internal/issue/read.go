package issue

import (
	"context"

	"github.com/dailyserial/serial/internal/store"
)

// read returns the reply to a script that reads the series of the current period.
func (c *Call) read(ctx context.Context, script func(*store.Series) (store.Reply, error)) (r store.Reply, err error) {
	s := &c.session
	s.targetNow()
	for again := true; again; {
		series := s.series()
		r, err = script(&series)
		again, err = s.digest(ctx, &r, err)
	}
	if err == nil && r.Status != store.Issued && r.Status != store.Missing {
		err = s.refuse(r)
	}
	return r, err
}

// Peek returns the last sequence of the current period, the base if none was issued. It writes nothing.
func (c *Call) Peek(ctx context.Context) (last int64, err error) {
	s := &c.session
	r, err := c.read(ctx, func(series *store.Series) (store.Reply, error) {
		return s.issuer.Store.Peek(ctx, &s.budget, s.node.Node, series)
	})
	return r.Last, err
}

// History returns what the counter of the current period holds, and then those of the periods with these labels, -1 for a counter
// that is not there. It writes nothing.
func (c *Call) History(ctx context.Context, labels ...string) (each []int64, err error) {
	s := &c.session
	r, err := c.read(ctx, func(series *store.Series) (store.Reply, error) {
		return s.issuer.Store.History(ctx, &s.budget, s.node.Node, series, labels)
	})
	return r.Each, err
}
