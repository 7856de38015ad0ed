package serial

import (
	"context"
	"fmt"
	"iter"
	"time"

	"github.com/dailyserial/serial/internal/calendar"
	"github.com/dailyserial/serial/internal/store"
)

// Audit accounts for the numbers of a type in the period that an instant lies in: which were counted and never used, which were
// used twice, which were never issued. used yields the numbers as the application has stored them, in any order, also those of
// other types and periods. See [Scheme.Audit] for what counts as missing, and for the memory that it takes.
//
// The counter is read before used is, which gives [Report].Last, and again afterwards: what was issued between the two readings
// is ignored, whether or not it is among the used numbers. A number that was issued before and is stored only after used has
// passed it shows as missing. The period is the current one or one whose counter is still kept, see [WithRetention]. Of the
// current one, Last is 0 if the type was not used.
//
// It writes nothing. ctx ends it between two numbers. Each reading of the counter ends within 10 s if Redis does not answer.
// Errors: [ErrInvalidType]; [ErrCounterLost] if the current period's counter is lost, also with a floor or a ledger, or went back
// meanwhile; [ErrClockSkew]; [ErrConflict]; one for a period that has not begun, that is no longer kept, or that ended meanwhile
// without being kept, and those of [Scheme.Audit]; ctx's; or a failure of Redis. With an error, there is no Report.
func (g *Generator) Audit(ctx context.Context, typ string, at time.Time, used iter.Seq2[string, error]) (Report, error) {
	p, err := g.audited(typ, at, used)
	if err != nil {
		return Report{}, outcome(ctx, err)
	}
	last, err := g.counter(ctx, typ, p)
	if err != nil {
		return Report{}, err
	}
	r, err := g.audit(typ, p, last, interrupted(ctx, used), func() (int64, error) {
		after, err := g.counter(ctx, typ, p)
		if err == nil && after < last {
			err = fmt.Errorf("%w: the counter of %s in %s went back from %d to %d while the used numbers were read", ErrCounterLost,
				typ, calendar.FormatLabel(p.Label), last, after)
		}
		return after, err
	})
	return r, outcome(ctx, err)
}

// counter reads the counter of a period that is the current one or still kept: 0 if none was issued.
func (g *Generator) counter(ctx context.Context, typ string, p *calendar.Period) (int64, error) {
	var c call
	if err := c.begin(ctx, g, typ); err != nil {
		return 0, err
	}
	r, err := c.follow(ctx, c.aim(), func() (store.Reply, error) {
		series := c.series()
		if p.Start < c.span.Start {
			r, err := g.store.History(ctx, &c.budget, c.node.Node, &series, []*store.Period{{Label: p.Label}})
			return r, c.heard(&r, err)
		}
		r, err := g.store.Peek(ctx, &c.budget, c.node.Node, &series)
		return r, c.heard(&r, err)
	})
	last := r.Last
	switch {
	case err != nil:
	case r.Status != store.Issued && r.Status != store.Missing:
		err = c.refusal(r)
	case p.Start > c.span.Start:
		err = fmt.Errorf("serial: Audit of %s in %s: the period has not begun by Redis's clock, which is in %s",
			typ, calendar.FormatLabel(p.Label), calendar.FormatLabel(c.span.Label))
	case p.Start < c.span.Start:
		if last = r.Each[1]; last < 0 {
			err = fmt.Errorf("serial: Audit of %s in %s: Redis has no counter of it: none was issued, or it is no longer kept; "+
				"WithRetention keeps counters beyond their period", typ, calendar.FormatLabel(p.Label))
		}
	}
	if err = c.finish(ctx, err); err != nil {
		return 0, err
	}
	return g.unlessUnused(last), nil
}

// interrupted is used until ctx ends.
func interrupted(ctx context.Context, used iter.Seq2[string, error]) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		for text, err := range used {
			if err == nil {
				err = ctx.Err()
			}
			if !yield(text, err) {
				return
			}
		}
	}
}
