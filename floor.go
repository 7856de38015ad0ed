package serial

import (
	"context"
	"fmt"
	"time"

	"github.com/dailyserial/serial/internal/redisrun"
)

// WithFloor sets a function that asks a source that outlives Redis, usually a database for the greatest number in it. It returns
// the highest sequence of typ that may already have been used in the period that begins at start, 0 if none was. It is called
// whenever a counter has to be created or repaired, under the lock of that type and period, so that one process asks and not all
// of them. The counter then continues above the answer, and a lost counter is repaired instead of returning [ErrCounterLost].
//
// The function's context ends with the caller's, and at the latest 7 s after the lock was requested, before the lock expires. It
// ends earlier if Redis was slow before, because all steps of a call share 10 s. If the function fails, the call that needed it
// returns its error, and nothing is issued. An answer below 0 or above the largest sequence is an error too.
//
// Default none; nil is refused.
func WithFloor(floor func(ctx context.Context, typ string, start time.Time) (int64, error)) Option {
	err := refuseIf(floor == nil, "serial: WithFloor: the function is nil")
	return option{"WithFloor", false, err, func(c *config) { c.floor = floor }}
}

// askFloor asks the floor, which has until then, and the caller's context, to answer.
func (c *call) askFloor(ctx context.Context, until time.Time) (int64, error) {
	ask, typ, start := c.g.floor, c.typ, c.start()
	used, err := c.askOutside(ctx, until, func(ctx context.Context) (int64, error) { return ask(ctx, typ, start) })
	if err != nil {
		return 0, fmt.Errorf("serial: the floor of %s %s: %w", c.typ, c.span.Label, err)
	}
	if limit := c.g.limit; used < 0 || used > limit {
		return 0, fmt.Errorf("serial: the floor of %s %s answered %d: allowed are 0 to %d", c.typ, c.span.Label, used, limit)
	}
	return used, nil
}

// askOutside asks a floor or a ledger, which has until then to answer, and as long as the call has time for it. One that
// heeds its context answers in time with an error of its own; one that doesn't is not waited for.
func (c *call) askOutside(ctx context.Context, until time.Time, ask func(context.Context) (int64, error)) (int64, error) {
	start := time.Now()
	rest := min(floorMargin/2, c.budget.Answer())
	limit := max(0, min(until.Sub(start), c.budget.Answer()-rest))
	if k := c.work; k != nil {
		k.outside.Store(true)
		defer k.outside.Store(false)
	}
	within, cancel := context.WithTimeout(ctx, limit)
	v, err := redisrun.Await(ctx, limit+rest, func() (int64, error) {
		defer cancel()
		return ask(within)
	})
	c.budget.Spend(time.Since(start), limit+rest)
	return v, err
}
