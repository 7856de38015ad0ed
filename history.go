package serial

import (
	"cmp"
	"context"
	"fmt"
)

// mostKept is how many periods back counters may be kept.
const mostKept = 10_000

// History returns the last number issued in each of the latest periods, 1 to 10,000 with the current one, newest first:
// its Seq tells how many were issued (from [WithStart] on), 0 if the period was opened and nothing was. Left out are
// periods in which the type was not used, and those whose counters are not kept any more; see [WithRetention]. A counter
// that was lost is left out too. What a floor or [Generator.Raise] said counts as issued, as does, where generators differ
// in [WithStart], what another one's start is.
//
// It writes nothing. Errors: [ErrInvalidType], [ErrClockSkew], [ErrConflict], ctx's, or a failure of Redis.
func (g *Generator) History(ctx context.Context, typ string, periods int) ([]Number, error) {
	var c call
	err := c.begin(ctx, g, typ)
	if err != nil {
		return nil, err
	}
	if periods < 1 || periods > mostKept {
		return nil, outcome(ctx, fmt.Errorf("serial: History of %d periods: allowed are 1 to %d", periods, mostKept))
	}
	numbers, err := c.history(ctx, periods)
	return numbers, c.told(ctx, err)
}

func (c *call) history(ctx context.Context, periods int) ([]Number, error) {
	const together = 1000 // in one script call, so that Redis is not held up
	var numbers []Number
	var oldest *period // that was read
	for periods > 0 {
		var spans []*period
		r, err := c.follow(ctx, c.aim(), func(p *period) (reply, error) {
			spans = nil
			var keys []any
			if oldest == nil {
				spans = append(spans, p)
			}
			for from := cmp.Or(oldest, p); len(spans) < min(periods, together); {
				from = c.g.calendar.previous(from)
				spans = append(spans, from)
				keys = append(keys, c.keyOf(from))
			}
			return c.runKeys(ctx, historyScript, p, keys)
		})
		if err != nil {
			return nil, err
		}
		if r.status != statusIssued {
			return nil, c.refusal(r)
		}
		each := r.each[len(r.each)-len(spans):] // but for the current period, where that was read before
		for i, seq := range each {
			if err := c.g.format.checkYear(spans[i].wall.Year()); err != nil {
				return numbers, nil // the calendar goes back no further
			}
			if seq >= 0 {
				b := batch{g: c.g, typ: c.typ, period: spans[i], last: c.unlessUnused(seq)}
				numbers = append(numbers, b.number(b.last))
			}
		}
		periods -= len(spans)
		oldest = spans[len(spans)-1]
	}
	return numbers, nil
}

// unlessUnused is 0 for a counter that was opened, and not used.
func (c *call) unlessUnused(seq int64) int64 {
	if seq == c.g.base {
		return 0
	}
	return seq
}
