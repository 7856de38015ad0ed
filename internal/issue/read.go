package issue

import (
	"context"

	"github.com/dailyserial/serial/internal/store"
)

// Peek returns the last sequence of the current period, the base if none was issued. It writes nothing.
func (c *Call) Peek(ctx context.Context) (last int64, err error) {
	s := &c.session
	var r store.Reply
	s.targetNow()
	for again := true; again; {
		series := s.series()
		r, err = s.issuer.Store.Peek(ctx, &s.budget, s.node.Node, &series)
		again, err = s.digest(ctx, &r, err)
	}
	switch {
	case err != nil:
		return 0, err
	case r.Status != store.Issued && r.Status != store.Missing:
		return 0, s.refuse(r)
	}
	return r.Last, nil
}

// History returns what the counter of the current period holds, and then those of the periods with these labels, -1 for a counter
// that is not there. It writes nothing.
func (c *Call) History(ctx context.Context, labels ...string) (each []int64, err error) {
	s := &c.session
	var r store.Reply
	s.targetNow()
	for again := true; again; {
		series := s.series()
		r, err = s.issuer.Store.History(ctx, &s.budget, s.node.Node, &series, labels)
		again, err = s.digest(ctx, &r, err)
	}
	switch {
	case err != nil:
		return nil, err
	case r.Status != store.Issued:
		return nil, s.refuse(r)
	}
	return r.Each, nil
}
