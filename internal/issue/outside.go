package issue

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dailyserial/serial/internal/exchange"
	"github.com/dailyserial/serial/internal/redisrun"
)

// This file asks floors and ledgers, in bounded time.

// ErrFloor marks every error from a floor, so a log can name the floor without the error's text.
var ErrFloor = errors.New("the floor")

// askFloor asks the floor, and waits for its answer until the given time or until ctx ends.
func (c *Call) askFloor(ctx context.Context, span *exchange.Span, until time.Time) (int64, error) {
	typ, start := c.session.Type, time.Unix(span.Start, 0).In(c.issuer.Calendar.Location)
	used, err := askOutside(ctx, c, until, func(ctx context.Context) (int64, error) {
		return c.issuer.Floor(ctx, typ, start)
	}, nil)
	if err != nil {
		return 0, fmt.Errorf("serial: %w of %s %s: %w", ErrFloor, c.issuer.subject(typ), span.Label, err)
	}
	if limit := max(c.issuer.Limit, c.issuer.Largest); used < 0 || used > limit {
		return 0, fmt.Errorf("serial: %w of %s %s answered %d: want 0 to %d", ErrFloor, c.issuer.subject(typ), span.Label,
			used, limit)
	}
	return used, nil
}

// baseAbove returns the sequence before the first of a period in which the sequences up to used may have been used: 0 if
// they include one that is below the start, since the period then began at 1.
func (i *Issuer) baseAbove(used int64) int64 {
	if 0 < used && used <= i.Base {
		return 0
	}
	return i.Base
}

// askOutside asks a floor or a ledger, and waits until the given time, as long as the call's budget allows. If the
// function heeds its context, it returns its own error in time. Otherwise, askOutside leaves it, and passes its answer
// to late unless late is nil.
func askOutside(
	ctx context.Context, c *Call, until time.Time, ask func(context.Context) (int64, error), late func(int64),
) (int64, error) {
	start, b := time.Now(), &c.session.Budget
	rest := min(floorMargin/2, b.Answer())
	limit := max(0, min(until.Sub(start), b.Answer()-rest))
	if f := c.flight; f != nil {
		f.outside.Store(true)
		defer f.outside.Store(false)
	}
	within, cancel := context.WithTimeout(ctx, limit)
	answer := redisrun.Begin(func() (int64, error) {
		defer cancel()
		return ask(within)
	})
	v, err, over := answer.Wait(ctx, limit+rest)
	if !over && late != nil {
		c.issuer.AddPending(1)
		if !answer.Leave(func(v int64, err error) {
			defer c.issuer.AddPending(-1)
			if err == nil {
				late(v)
			}
		}) {
			c.issuer.AddPending(-1)
			v, err, _ = answer.Wait(context.Background(), redisrun.NoLimit)
		}
	}
	b.Spend(time.Since(start), limit+rest)
	return v, err
}
