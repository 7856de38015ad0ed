package serial

import (
	"cmp"
	"context"
	"fmt"

	"github.com/dailyserial/serial/internal/calendar"
	"github.com/dailyserial/serial/internal/store"
)

// mostKept is how many periods back counters may be kept.
const mostKept = 10_000

// History returns the last number issued in each of the latest periods, newest first. periods is 1 to 10,000 and includes
// the current period. The Seq of a number tells how many were issued, counted from [WithStart], and is 0 if the period was
// opened and none was. Periods in which the type was not used are left out, and so are those whose counter is lost or no
// longer kept; see [WithRetention]. Sequences that a floor, [Generator.Raise] or another Generator's [WithStart] has
// skipped count as issued.
//
// It writes nothing. Errors: [ErrInvalidType], [ErrClockSkew], [ErrConflict], one for any other periods, ctx's, or a
// failure of Redis.
func (g *Generator) History(ctx context.Context, typ string, periods int) ([]Number, error) {
	var c call
	if err := c.begin(ctx, g, typ); err != nil {
		return nil, err
	}
	if periods < 1 || periods > mostKept {
		return nil, outcome(ctx, fmt.Errorf("serial: History of %d periods: allowed are 1 to %d", periods, mostKept))
	}
	numbers, err := c.history(ctx, periods)
	return numbers, c.finish(ctx, err)
}

func (c *call) history(ctx context.Context, periods int) ([]Number, error) {
	const together = 1000 // in one script call, so that Redis is not held up
	var numbers []Number
	var oldest *calendar.Period // that was read
	if c.g.calendar.Unit == calendar.Never {
		periods = 1
	}
	for periods > 0 {
		var read []*calendar.Period
		r, err := c.follow(ctx, c.aim(), func() (store.Reply, error) {
			read = nil
			if oldest == nil {
				read = append(read, &c.span.Period)
			}
			var others []*store.Period
			for from := cmp.Or(oldest, &c.span.Period); len(read) < min(periods, together); {
				from = c.g.calendar.Previous(from)
				read = append(read, from)
				others = append(others, &store.Period{Label: from.Label})
			}
			series := c.series()
			r, err := c.g.store.History(ctx, &c.budget, c.node.Node, &series, others)
			return r, c.heard(&r, err)
		})
		if err != nil {
			return nil, err
		}
		if r.Status != store.Issued {
			return nil, c.refusal(r)
		}
		each := r.Each[len(r.Each)-len(read):] // but for the current period, where that was read before
		for i, seq := range each {
			p := read[i]
			if c.g.before(p) {
				return numbers, nil
			}
			if seq >= 0 {
				c.made = result{span: &span{Span: c.g.template.SpanOf(p)}, template: c.g.template}
				numbers = append(numbers, c.number(c.g.unlessUnused(seq)))
			}
		}
		periods -= len(read)
		oldest = read[len(read)-1]
	}
	return numbers, nil
}

// before reports whether a period is before all that numbers can be printed of.
func (s *scheme) before(p *calendar.Period) bool {
	if s.template.Varies() { // none of its dates need be the period's first
		return p.End <= 0
	}
	return s.template.CheckYear(p.Wall) != nil
}
