package serial

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/dailyserial/serial/internal/budget"
)

// Prepare opens the current period and those that follow it, 1 to 100 in all, so that whoever comes first in one of them
// only has to enter it, without a lock, and with [WithFloor] without a question. It is for the evening before a busy
// day, or for a job that runs every day; how often, and by how many at once, makes no difference.
//
// What is prepared belongs to the same time zone, period and day start: with others, calls fail with [ErrConflict] until
// the last of the periods prepared has ended. A prepared counter that is gone when its period begins is [ErrCounterLost].
// With a ledger the first call of a period still has a block set aside.
//
// It costs a round trip for each period, one more to compare the clocks if any is to be opened, and with a floor the lock
// and a question for each of those. After an
// error, or if ctx ends, some of the periods may be open: it may be repeated. Errors: [ErrInvalidType], [ErrCounterLost],
// [ErrClockSkew], [ErrConflict], [ErrNotReplicated], the floor's or the ledger's own, ctx's, or a failure of Redis.
func (g *Generator) Prepare(ctx context.Context, typ string, periods int) error {
	const most = 100
	var c call
	err := c.begin(ctx, g, typ)
	if err != nil {
		return err
	}
	if periods < 1 || periods > most {
		return outcome(ctx, fmt.Errorf("serial: Prepare of %d periods: allowed are 1 to %d", periods, most))
	}
	return c.told(ctx, c.prepare(ctx, periods))
}

// prepare opens one period after the other, as Redis's clock and the record have them meanwhile.
func (c *call) prepare(ctx context.Context, periods int) error {
	current, err := c.openCurrent(ctx)
	if err != nil {
		return err
	}
	last := c.g.calendar.later(current, periods-1)
	for p := current; p.start < last.start; {
		next := c.g.equip(c.g.calendar.next(p))
		if err := c.g.format.checkYear(next.wall.Year()); err != nil {
			return err
		}
		var done prepared
		if current, done, err = c.prepareOne(ctx, current, next); err != nil {
			return err
		}
		switch done {
		case preparedIt:
			_, limited := ctx.Deadline()
			c.opening, c.budget = &opening{checked: c.opens().checked}, budget.New(limited) // each period has its own
			p = next
		case preparedGap:
			p = current
		}
	}
	return nil
}

// prepared says how prepareOne came out.
type prepared int

const (
	preparedAgain prepared = iota // everything is to be looked at afresh
	preparedGap                   // so it is, from the current period on
	preparedIt
)

// openCurrent has no number issued, and the period opened if it is not. One that is full is open.
func (c *call) openCurrent(ctx context.Context) (*period, error) {
	_, err := c.sequence(ctx, 0)
	if errors.Is(err, ErrExhausted) {
		err = nil
	}
	return c.period, err
}

// prepareOne opens next. current is the period that it is by Redis's clock, or was a moment ago; it returns that too.
func (c *call) prepareOne(ctx context.Context, current, next *period) (*period, prepared, error) {
	floor := ""
	if c.g.floor != nil {
		floor = "?"
	}
	r, current, err := c.sendPrepare(ctx, current, next, floor)
	if err != nil {
		return current, preparedAgain, err
	}
	if current.start >= next.start { // it has begun
		current, err := c.openCurrent(ctx)
		if err == nil && current.start < next.start {
			return current, preparedAgain, nil // the clock went back
		}
		return current, preparedIt, err
	}
	switch r.status {
	case statusIssued:
		return current, preparedIt, nil
	case statusMissing, statusGap: // the record is not as this call has left it
		if err := c.wait(ctx); err != nil {
			return current, preparedAgain, err
		}
		if r.status == statusGap {
			current, err := c.openCurrent(ctx)
			return current, preparedGap, err
		}
		_, err := c.sequence(ctx, 0)        // that it is full does not do: it is to be entered
		return c.period, preparedAgain, err // what is open ahead still is
	case statusCheck:
		err := c.checkSkew(r)
		c.opens().checked = true
		return current, preparedAgain, err
	case statusFloor:
		if r.detail == lostDetail {
			c.period = next
			c.sawLost(r)
		}
	case statusLost:
		c.period = next
		c.sawLost(r)
		return current, preparedAgain, c.refusal(r)
	default:
		return current, preparedAgain, c.refusal(r)
	}
	err = c.prepareAbove(ctx, current, next)
	return current, preparedAgain, err
}

// prepareAbove opens next above the floor, which one caller asks at a time. Whether it is open then is to be seen.
func (c *call) prepareAbove(ctx context.Context, current, next *period) error {
	c.period = next
	defer c.endWork(nil)
	lock, err := c.tryLock(ctx)
	if err != nil {
		return err
	}
	if lock == nil {
		return c.wait(ctx)
	}
	defer c.giveBack(ctx, lock)
	r, now, err := c.sendPrepare(ctx, current, next, "?")
	if err != nil || now.start >= next.start || r.status != statusFloor {
		return err
	}
	c.period = next
	used, err := c.askFloor(ctx, lock.since.Add(lockExpiry-floorMargin))
	if err != nil {
		return err
	}
	// However late it comes: nothing has been issued of a period that has not begun, and its counter is only lifted.
	_, _, err = c.sendPrepare(ctx, current, next, strconv.FormatInt(used, 10))
	return err
}

// sendPrepare sends lua/prepare.lua, unless next has begun by Redis's clock. It returns the period that it is by that.
func (c *call) sendPrepare(ctx context.Context, current, next *period, floor string) (r reply, now *period, err error) {
	checked := ""
	if c.g.maxSkew < 0 || c.opens().checked {
		checked = "1"
	}
	r, err = c.follow(ctx, time.Unix(current.start, 0), func(p *period) (reply, error) {
		if now = p; now.start >= next.start {
			return reply{}, nil
		}
		return c.runKeys(ctx, prepareScript, p, []any{c.keyOf(next)}, next.args[0], next.start, next.expires, c.g.base, floor, checked)
	})
	return r, now, err
}
