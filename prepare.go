package serial

import (
	"context"
	"errors"

	"github.com/dailyserial/serial/internal/series"
)

// Prepare opens the current period and the next one. The first call in a prepared period then needs no lock and does
// not query the floor of [WithFloor]. Call Prepare on the evening before a busy day, or in a daily job. It may run any
// number of times, and in several processes at once. With [Never], it opens the only period.
//
// A prepared period keeps its time zone and day start. Calls with other settings fail with [ErrConflict] until that
// period has ended. If there is a ledger, the first call in a prepared period still reserves a block.
//
// If the counter of a prepared period is missing when the period begins, calls fail with [ErrCounterLost], unless a
// floor or a ledger repairs it. If a clock was ahead, numbers of the next period may have been issued before Prepare is
// called. If the counter of that period is missing and there is no floor, Prepare fails with ErrCounterLost. A ledger
// then repairs the counter with the first call in the period. Without a ledger, call [Generator.Raise] after the period
// has begun.
//
// The next period is opened only if it begins no later than the day of [WithUntil]. If Prepare is called after that
// day, it fails with [ErrExhausted].
//
// If the current period is open, Prepare takes one round trip for each of the two periods, and one more to compare the
// clocks if the next period has to be opened. If there is a floor, each period that has to be opened also needs the
// lock and a query to the floor. The time limits of [Generator.Next] apply to each of the two periods. After an error
// or a canceled call, one or both of the periods may be open, and Prepare may be repeated.
//
// The error matches [ErrInvalidType], [ErrExhausted], [ErrCounterLost], [ErrClockSkew], [ErrConflict] or
// [ErrNotReplicated], or it wraps the error of the floor, of the ledger, of ctx or of Redis.
func (g *Generator) Prepare(ctx context.Context, typ string) error {
	c, err := g.begin(ctx, typ, "", 0, nil)
	if err == nil {
		err = g.prepare(ctx, c)
	}
	return g.finish(ctx, c, typ, err)
}

// prepare opens the current period and the next one. If the current one is exhausted, it opens only the next one.
func (g *Generator) prepare(ctx context.Context, c *series.Call) (err error) {
	defer c.End(&err)
	for tried := false; ; tried = true {
		_, err := g.sequence(ctx, c)
		refusal, refused := errors.AsType[*series.Refusal](err)
		if err != nil && (tried || !(refused && refusal.Status == series.Exhausted)) {
			return err
		}
		if !tried { // the next period has its own time limit
			c.Restart()
		}
		if out := c.Prepare(ctx, g.locks); out.Step != series.Again {
			return out.Err
		}
	}
}
