package serial

import (
	"context"
	"errors"

	"github.com/dailyserial/serial/internal/series"
)

// Prepare opens the current period and the next one. The first caller in a prepared period then only has to enter it,
// without a lock and without querying the floor of [WithFloor]. Call Prepare on the evening before a busy day, or in a
// daily job. It may run any number of times, and in any number of processes at once. With [Never], it opens the one
// period.
//
// A prepared period keeps its time zone and day start: with others, calls fail with [ErrConflict] until that period has
// ended. If a prepared counter is gone when its period begins, calls fail with [ErrCounterLost]. Prepare returns the
// same error if a clock that was ahead may have used the next period, and its counter is gone: with a ledger the first
// call in that period repairs it; without one, [Generator.Raise] does once the period has begun. With a ledger, the
// first call in a period still has a block reserved.
//
// The next period is opened only if it begins no later than the day of [WithUntil]. After that day, the error is
// [ErrExhausted].
//
// Prepare costs one round trip for each of the two periods, and one more to compare the clocks if the next one must be
// opened. With a floor, a period that must be opened also costs the lock and a query to the floor. Each of the two
// periods has the time of a call of [Generator.Next]. After an error, or if ctx ends, one or both of the periods may be
// open; Prepare may be repeated. Errors: [ErrInvalidType], [ErrExhausted] as described above, [ErrCounterLost],
// [ErrClockSkew], [ErrConflict], [ErrNotReplicated], the floor's or the ledger's own, ctx's, or a failure of Redis.
func (g *Generator) Prepare(ctx context.Context, typ string) error {
	c, err := g.begin(ctx, typ, "", 0, nil)
	if err == nil {
		err = g.prepare(ctx, c)
	}
	return g.finish(ctx, c, typ, err)
}

// prepare opens the current period, which a full one is already, and the next one.
func (g *Generator) prepare(ctx context.Context, c *series.Call) (err error) {
	defer c.End(&err)
	for tried := false; ; tried = true {
		_, err := g.sequence(ctx, c)
		refusal, refused := errors.AsType[*series.Refusal](err)
		if err != nil && (tried || !(refused && refusal.Status == series.Exhausted)) {
			return err
		}
		if !tried { // each of the two periods has the time of a call
			c.Restart()
		}
		if out := c.Prepare(ctx, g.locks); out.Step != series.Again {
			return out.Err
		}
	}
}
