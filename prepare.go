package serial

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dailyserial/serial/internal/budget"
	"github.com/dailyserial/serial/internal/store"
)

// Prepare opens the current period and those that follow it, 1 to 100 in all. The first caller in a prepared period then
// only has to enter it, without a lock and without asking the floor of [WithFloor]. Prepare is for the evening before a
// busy day, or for a job that runs every day. It may run any number of times, and in any number of processes at once.
//
// A prepared period belongs to the same time zone, period and day start: with others, calls fail with [ErrConflict] until
// the last prepared period has ended. A prepared counter that is gone when its period begins is lost, see [ErrCounterLost].
// With a ledger, the first call of a period still has a block set aside.
//
// Prepare costs a round trip for each period, and one more to compare the clocks if any is to be opened. With a floor, each
// period that is to be opened also costs the lock and a call of the floor. After an error, or if ctx ends, some of the
// periods may be open; Prepare may be repeated. Errors: [ErrInvalidType], [ErrCounterLost], [ErrClockSkew], [ErrConflict],
// [ErrNotReplicated], one for any other periods, the floor's or the ledger's own, ctx's, or a failure of Redis.
func (g *Generator) Prepare(ctx context.Context, typ string, periods int) error {
	const most = 100
	var c call
	if err := c.begin(ctx, g, typ); err != nil {
		return err
	}
	if periods < 1 || periods > most {
		return outcome(ctx, fmt.Errorf("serial: Prepare of %d periods: allowed are 1 to %d", periods, most))
	}
	return c.finish(ctx, c.prepare(ctx, periods))
}

// prepare opens one period after the other, as the server's clock and the record have them meanwhile.
func (c *call) prepare(ctx context.Context, periods int) error {
	var current *span
	if err := c.openCurrent(ctx, &current); err != nil {
		return err
	}
	last := c.g.calendar.later(&current.period, periods-1)
	for p := &current.period; p.start < last.start; {
		next := c.g.spanOf(c.g.calendar.next(p))
		if err := c.g.format.checkYear(next.wall.Year()); err != nil {
			return err
		}
		out, err := c.prepareOne(ctx, &current, next)
		if err != nil {
			return err
		}
		switch out {
		case prepared:
			_, limited := ctx.Deadline()
			c.opening, c.budget = opening{checked: c.opening.checked}, budget.New(limited) // each period has its own
			p = &next.period
		case gap:
			p = &current.period
		}
	}
	return nil
}

// A preparation says how prepareOne came out.
type preparation int

const (
	afresh   preparation = iota // everything is to be looked at again
	gap                         // so it is, from the current period on
	prepared                    // the period is open
)

// openCurrent has no number issued, and the period opened if it is not. One that is full is open. current becomes its span.
func (c *call) openCurrent(ctx context.Context, current **span) error {
	err := c.sequence(ctx, 0)
	*current = c.span
	if errors.Is(err, ErrExhausted) {
		return nil
	}
	return err
}

// prepareOne opens next. current is the span of the server's clock, or was a moment ago, and is moved on with that.
func (c *call) prepareOne(ctx context.Context, current **span, next *span) (preparation, error) {
	var floor store.Floor
	if c.g.floor != nil {
		floor = store.FloorToAsk()
	}
	r, err := c.sendPrepare(ctx, current, next, floor)
	if err != nil {
		return afresh, err
	}
	if (*current).start >= next.start { // it has begun
		if err := c.openCurrent(ctx, current); err != nil || (*current).start < next.start { // the clock went back
			return afresh, err
		}
		return prepared, nil
	}
	switch r.Status {
	case store.Issued:
		return prepared, nil
	case store.Missing: // the record is not as this call has left it
		if _, err := c.wait(ctx); err != nil {
			return afresh, err
		}
		err := c.sequence(ctx, 0) // that it is full does not do: it is to be entered
		*current = c.span
		return afresh, err // what is open ahead still is
	case store.Gap:
		if _, err := c.wait(ctx); err != nil {
			return afresh, err
		}
		return gap, c.openCurrent(ctx, current)
	case store.Unchecked:
		c.opening.checked = true
		return afresh, c.checkSkew(r)
	case store.NeedsFloor:
		return afresh, c.prepareAbove(ctx, current, next)
	}
	return afresh, c.refusal(r)
}

// prepareAbove opens next above the floor, which one caller asks at a time. Whether it is open then is to be seen.
func (c *call) prepareAbove(ctx context.Context, current **span, next *span) error {
	c.span = next
	defer c.endWork(nil)
	lock, out, err := c.tryLock(ctx)
	if out != locked {
		if out != failed {
			_, err = c.wait(ctx)
		}
		return err
	}
	defer c.release(ctx, lock)
	r, err := c.sendPrepare(ctx, current, next, store.FloorToAsk())
	if err != nil || (*current).start >= next.start || r.Status != store.NeedsFloor {
		return err
	}
	c.span = next
	used, err := c.askFloor(ctx, lock.since.Add(lockExpiry-floorMargin))
	if err != nil {
		return err
	}
	// However late it comes: nothing has been issued of a period that has not begun, and its counter is only lifted.
	_, err = c.sendPrepare(ctx, current, next, store.FloorAt(used))
	return err
}

// sendPrepare has the store prepare next, unless that has begun by the server's clock. It moves current to the span of that clock.
func (c *call) sendPrepare(ctx context.Context, current **span, next *span, floor store.Floor) (store.Reply, error) {
	return c.follow(ctx, time.Unix((*current).start, 0), func() (store.Reply, error) {
		*current = c.span
		if c.span.start >= next.start {
			return store.Reply{}, nil
		}
		r, err := c.g.store.Prepare(ctx, &c.budget, c.node.Node, &store.Prepare{
			Series: c.series(), Next: &next.stored, Base: c.g.base, Floor: floor,
			Checked: c.g.maxSkew < 0 || c.opening.checked,
		})
		if r.Status == store.Lost || r.WasThere {
			c.span = next // whose counter it is
		}
		return r, c.heard(&r, err)
	})
}
