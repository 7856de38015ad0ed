package serial

import (
	"context"
	"errors"
	"time"

	"github.com/dailyserial/serial/internal/calendar"
	"github.com/dailyserial/serial/internal/exchange"
	"github.com/dailyserial/serial/internal/issue"
)

// Prepare opens the current period and the following ones, 1 to 100 in all. With [Never], it opens the only period,
// whatever the count. The first caller in a prepared period then only has to enter it, without a lock and without
// asking the floor of [WithFloor]. Call Prepare on the evening before a busy day, or in a daily job. It may run any
// number of times, and in any number of processes at once.
//
// A prepared period keeps its time zone and day start: with others, calls fail with [ErrConflict] until the last
// prepared period has ended. If a prepared counter is gone when its period begins, calls fail with [ErrCounterLost].
// Prepare returns the same error for a later period that a fast clock had used, if its counter is gone: with a ledger
// the first call in that period repairs it; without one, [Generator.Raise] does once the period has begun. With a
// ledger, the first call in a period still sets a block aside.
//
// Of the following periods, only those are opened that begin no later than the day of [WithUntil]; after that day, the
// error is [ErrExhausted].
//
// Prepare costs one round trip per period, and one more to compare the clocks if any period must be opened. With a
// floor, each period that must be opened also costs the lock and a call to the floor; with a ledger and a [WithStart]
// above 1, the lock and one or two sequences that the ledger sets aside and nobody gets. After an error, or if ctx
// ends, some of the periods may be open; Prepare may be repeated. Errors: [ErrInvalidType], [ErrExhausted] as said
// above, [ErrCounterLost], [ErrClockSkew], [ErrConflict], [ErrNotReplicated], one for an invalid periods, the floor's
// or the ledger's own, ctx's, or a failure of Redis.
func (g *Generator) Prepare(ctx context.Context, typ string, periods int) error {
	const most = 100
	c, err := g.begin(ctx, typ, "", refuseIf(periods < 1 || periods > most,
		"serial: Prepare of %d periods: want 1 to %d", periods, most))
	if err == nil {
		err = g.prepare(ctx, c, periods)
	}
	return g.finish(ctx, c, err)
}

// prepare opens one period after another, by the server's clock and the record, which may change meanwhile.
func (g *Generator) prepare(ctx context.Context, c *issue.Call, periods int) (err error) {
	defer func() { c.End(err) }()
	opened, err := g.openCurrent(ctx, c)
	if err != nil {
		return err
	}
	last, compared := g.calendar.Later(opened, periods-1), false // the clocks
	for opened.Start < last.Start && (g.over == 0 || opened.End < g.over) {
		next := g.calendar.Next(opened)
		out := c.Prepare(ctx, next, compared)
		switch out.Step {
		case issue.Done:
			opened = next
		case issue.Again:
			compared = true
		case issue.Wait:
			if out = c.Wait(ctx); out.Step == issue.Again {
				opened, out.Err = g.openCurrent(ctx, c)
			}
		case issue.Enter:
			if out = c.Wait(ctx); out.Step == issue.Again {
				_, out.Err = g.sequence(ctx, c, 0)
			}
		case issue.Missing: // the floor or the ledger must be asked, under the lock
			if out = c.Lock(ctx, g.locks, out); out.Step == issue.Locked {
				out = c.PrepareAboveFloor(ctx, out, compared)
			}
			if out.Step == issue.Wait {
				out = c.Wait(ctx)
			}
		}
		if out.Err != nil {
			return out.Err
		}
	}
	return nil
}

// openCurrent opens the current period, if it is not open yet, and returns it. A full period counts as open.
func (g *Generator) openCurrent(ctx context.Context, c *issue.Call) (*calendar.Period, error) {
	numbers, err := g.sequence(ctx, c, 0)
	if refusal, ok := errors.AsType[*exchange.Refusal](err); ok && refusal.Status == exchange.Exhausted {
		return g.calendar.At(time.Unix(refusal.Period.Start, 0)), nil
	}
	if err != nil {
		return nil, err
	}
	return &numbers.Span.Period, nil
}
