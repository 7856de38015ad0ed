package serial

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dailyserial/serial/internal/store"
)

// Raise makes sure that the next number of the current period is at least seq+1. seq is 0 to the largest sequence; Raise
// never lowers a counter. Use it to continue a series from elsewhere, and to end [ErrCounterLost] as the operator who knows
// the last number used: seq is that number, or 0 if none was. Numbers that this Generator has issued itself stay used
// whatever seq says. If the period is not open yet, Raise opens it, above the floor if there is one. With a ledger, the
// next block is set aside above seq.
//
// If Redis's clock was set back behind a period already entered, Next fails with [ErrClockSkew]; Raise then enters the
// current period of Redis's clock again. That is [ErrConflict] if the period was used with another print mark, see [WithTemplate].
//
// After an error or a cancelled call, the counter may have been raised or not; Raise may be repeated. Errors:
// [ErrInvalidType], [ErrClockSkew] (beyond [WithMaxSkew]), [ErrConflict], [ErrNotReplicated], one for any other seq, the
// floor's or the ledger's own, ctx's, or a failure of Redis.
func (g *Generator) Raise(ctx context.Context, typ string, seq int64) error {
	var c call
	if err := c.begin(ctx, g, typ); err != nil {
		return err
	}
	return c.finish(ctx, c.raise(ctx, store.ForRaise, seq))
}

// raise is what an operator's Raise or Takeover does.
func (c *call) raise(ctx context.Context, purpose store.Purpose, seq int64) error {
	if limit := c.g.limit; seq < 0 || seq > limit {
		return fmt.Errorf("serial: %s of %s to %d: allowed are 0 to %d", operation[purpose], c.typ, seq, limit)
	}
	for {
		next, err := c.onward(ctx, func(c *call) (step, error) {
			return c.raiseOnce(ctx, context.WithoutCancel(ctx), purpose, seq)
		})
		if next == wait {
			next, err = c.wait(ctx)
		}
		if next != again {
			return err
		}
	}
}

var operation = map[store.Purpose]string{store.ForRaise: "Raise", store.ForTakeover: "Takeover"}

// raiseOnce makes one attempt. ctx is the caller's, and steady does not end. A take of no numbers tells how the period stands.
func (c *call) raiseOnce(ctx, steady context.Context, purpose store.Purpose, seq int64) (step, error) {
	r, err := c.follow(ctx, c.aim(), func() (store.Reply, error) { return c.send(ctx, store.Take{Purpose: store.All}) })
	if err != nil && !(errors.Is(err, ErrNotReplicated) && r.Last < seq) { // nothing rests on that one
		return failed, err
	}
	floor, missing := seq, false
	switch {
	case r.Status == store.Issued:
		if r.Last >= seq {
			return done, nil
		}
	case r.Status == store.Exhausted: // by a counter that stands higher than this template can print
		return done, nil
	case r.Status == store.Ceiling: // by a counter that is not as it was left
	case r.Status == store.Missing, r.Status == store.Lost, r.Status == store.Future,
		r.Status == store.Conflict && purpose == store.ForTakeover:
		missing = true
		if err := c.checkSkew(r); err != nil {
			return failed, err
		}
		if c.g.floor != nil {
			used, err := c.askFloor(ctx, time.Now().Add(lockExpiry-floorMargin))
			if err != nil {
				return failed, err
			}
			floor = max(seq, used)
		}
	default:
		return failed, c.refusal(r)
	}
	var claim *claim
	if c.g.ledger != nil {
		looked := c.span
		r, claim, err = c.look(steady, 0, purpose, nil)
		defer c.release(steady, claim)
		switch {
		case err != nil:
			return failed, err
		case r.Status == store.Claimed:
			c.sawOthers()
			return wait, nil
		case c.span.Start != looked.Start:
			return wait, nil
		case r.Status != store.Reserved:
			return failed, c.refusal(r)
		}
		claim.above(floor)
	}
	// For the period that was looked at: if that is over by now, nothing is written.
	r, err = c.install(steady, claim, store.Open{Purpose: purpose, Floor: store.FloorAt(floor)})
	if errors.Is(err, ErrExhausted) || err == nil && r.Status == store.Issued && !missing { // exhausted: so was it without a ledger
		return done, nil
	}
	return c.opened(r, err)
}
