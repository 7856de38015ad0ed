package serial

import (
	"context"

	"github.com/dailyserial/serial/internal/calendar"
	"github.com/dailyserial/serial/internal/series"
)

// mostKept is the longest retention, in periods.
const mostKept = 10_000

// History returns the last number issued in each of the latest periods, newest first. periods is 1 to 10,000 and
// includes the current period. Seq is 0 if the period was opened but no number was issued. Periods are left out if the
// type was not used, or if the counter is lost, above 10^15-1 or no longer kept; see [WithRetention]. Sequences that a
// floor or [Generator.Raise] has skipped count as issued.
//
// History writes nothing. Errors: [ErrInvalidType], [ErrClockSkew], [ErrConflict], one for any other periods, ctx's, or
// a failure of Redis.
func (g *Generator) History(ctx context.Context, typ string, periods int) ([]Number, error) {
	numbers, _, err := g.kept(ctx, typ, periods, refuseIf(periods < 1 || periods > mostKept,
		"serial: History of %d periods: want 1 to %d", periods, mostKept))
	return numbers, err
}

// kept returns the last numbers of up to so many periods, newest first, and the first sequences of these periods: 0 if
// Redis does not have it. refused is an error of the caller's arguments.
func (g *Generator) kept(ctx context.Context, typ string, periods int, refused error) (
	numbers []Number, firsts []int64, err error) {
	c, err := g.begin(ctx, typ, "", 0, refused)
	if err == nil {
		numbers, firsts, err = g.history(ctx, c, typ, periods)
	}
	return numbers, firsts, g.finish(ctx, c, typ, err)
}

func (g *Generator) history(ctx context.Context, c *series.Call, typ string, periods int) (
	numbers []Number, firsts []int64, err error) {
	const together = 1000 // in one script call, so as not to block Redis
	if g.calendar.Unit == calendar.Never {
		periods = 1
	}
	// Without labels, a lost counter of the current period would be an error.
	reading, err := c.History(ctx, c.Current().Label)
	if err != nil {
		return nil, nil, err
	}
	first, last := reading.First[:1], reading.Last[:1]
	read := []*calendar.Period{&reading.Span.Period}
	for {
		// Without the current period if it was read before.
		first, last = first[len(first)-len(read):], last[len(last)-len(read):]
		for i, p := range read {
			if p.End <= 0 { // no Redis server has ever had an earlier time
				return numbers, firsts, nil
			}
			if last[i] >= 0 {
				numbers = append(numbers, newNumber(g.template, g.template.Dates.SpanOf(p), typ, last[i]))
				firsts = append(firsts, first[i])
			}
		}
		periods -= len(read)
		if periods == 0 {
			return numbers, firsts, nil
		}
		oldest := read[len(read)-1]
		read = nil
		var labels []string
		for len(read) < min(periods, together) {
			oldest = g.calendar.Previous(oldest)
			read, labels = append(read, oldest), append(labels, oldest.Label)
		}
		if reading, err = c.History(ctx, labels...); err != nil {
			return nil, nil, err
		}
		first, last = reading.First, reading.Last
	}
}
