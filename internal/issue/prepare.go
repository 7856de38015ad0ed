package issue

import (
	"context"
	"time"

	"github.com/dailyserial/serial/internal/budget"
	"github.com/dailyserial/serial/internal/calendar"
	"github.com/dailyserial/serial/internal/exchange"
	"github.com/dailyserial/serial/internal/store"
)

// Prepare makes one attempt to open the period p ahead of time, if the period before it is open. compared reports
// whether the clocks have been compared. The next step is
//
//   - Missing if the floor or the ledger must be asked first: then Lock, and PrepareAboveFloor
//   - Wait if the current period must be opened first, or opened again
//   - Enter if the current period must be entered first
//   - Again, with the clocks compared
func (c *Call) Prepare(ctx context.Context, p *calendar.Period, compared bool) Outcome {
	next := c.issuer.SpanAt(time.Unix(p.Start, 0))
	if next.Unprintable != nil {
		return Outcome{Err: next.Unprintable}
	}
	base, floor := c.issuer.Base, store.Floor{}
	if c.issuer.Floor != nil || c.asksLedgerFirst() {
		base, floor = 0, store.FloorToAsk()
	}
	r, err := prepare(ctx, c, next, base, floor, compared)
	if err == nil && r.Status == store.NeedsFloor && r.WasLost && c.issuer.Floor == nil {
		// If the ledger was turned on later, it does not know all numbers of a lost period. Without a floor, it stays lost.
		r, err = prepare(ctx, c, next, 0, store.Floor{}, compared)
	}
	if err != nil {
		return Outcome{Err: err}
	}
	switch r.Status {
	case store.Issued:
		_, limited := ctx.Deadline()
		c.waits, c.session.Budget = 0, budget.New(limited) // each period has its own budget
		return Outcome{}
	case store.Missing: // the record has changed since this call wrote it
		return Outcome{Step: Enter}
	case store.Gap, store.Late:
		return Outcome{Step: Wait}
	case store.Unchecked:
		if err := c.checkSkew(&r); err != nil {
			return Outcome{Err: err}
		}
		return Outcome{Step: Again}
	case store.NeedsFloor:
		r.Span = next // its lock is needed
		return Outcome{Step: Missing, Reply: &r}
	}
	return Outcome{Err: c.session.Refuse(&r)}
}

// asksLedgerFirst reports whether the ledger must be asked before a period is prepared. If all of Redis was lost, only
// the ledger knows whether the period was used, and then the start does not count. Without a start, the first call in
// the period is early enough.
func (c *Call) asksLedgerFirst() bool { return c.issuer.Reserve != nil && c.issuer.Base > 0 }

// PrepareAboveFloor opens the period of the call's lock above the floor and what the ledger has set aside. Only one
// caller asks them at a time. The next step is Again: the period may be open by then.
func (c *Call) PrepareAboveFloor(ctx context.Context, locked Outcome, compared bool) Outcome {
	next := locked.Reply.Span
	defer c.endFlight(nil)
	defer giveBack(ctx, c, locked.Held.Lock)
	r, err := prepare(ctx, c, next, c.issuer.Base, store.FloorToAsk(), compared)
	if err != nil {
		return Outcome{Err: err}
	}
	if r.Status != store.NeedsFloor {
		return Outcome{Step: Again}
	}
	used, err := c.askUsed(ctx, next, locked.Held.Since.Add(LockExpiry-floorMargin), r.Granted.Tried)
	if err != nil {
		return Outcome{Err: err}
	}
	// It may come late: nothing has been issued in a period that has not begun, and its counter is only lifted.
	if _, err = prepare(ctx, c, next, c.issuer.baseAbove(used), store.FloorAt(used), compared); err != nil {
		return Outcome{Err: err}
	}
	return Outcome{Step: Again}
}

// askUsed asks the floor and the ledger until a time, and returns the highest sequence that may have been used, 0 if the
// start counts.
//
// The ledger shows what it knows only by setting a sequence aside. Nobody gets that one: it is below the start or, if
// something was used, counts as used. If the ledger was tried before, a sequence below the start says nothing. Where
// the start counts, the last sequence below it is set aside, so the ledger shows the start even if all of Redis is lost.
func (c *Call) askUsed(ctx context.Context, span *exchange.Span, until time.Time, tried bool) (used int64, err error) {
	if c.issuer.Floor != nil {
		if used, err = c.askFloor(ctx, span, until); err != nil || used > 0 {
			return used, err
		}
	}
	if !c.asksLedgerFirst() {
		return 0, nil
	}
	cl, base := claim{call: c, until: until}, c.issuer.Base
	if !tried {
		first, err := cl.askLedger(ctx, span, 0, 1)
		if err != nil || first.After == 0 && base == 1 {
			return 0, err
		}
		if first.After > 0 {
			c.session.Burn(span, first, false)
			return min(first.Upto, c.issuer.Limit), nil
		}
	}
	last, err := cl.askLedger(ctx, span, base-1, 1)
	if err != nil || last.After < base {
		return 0, err
	}
	c.session.Burn(span, last, false)
	return min(last.Upto, c.issuer.Limit), nil
}

// prepare asks Redis to prepare next. The reply is Late if next has begun by the server's clock.
func prepare(
	ctx context.Context, c *Call, next *exchange.Span, base int64, floor store.Floor, compared bool,
) (exchange.Reply, error) {
	return c.session.Send(ctx, &store.Prepare{
		Next: &next.Stored, Base: base, Floor: floor, Checked: c.issuer.MaxSkew < 0 || compared,
	}, false)
}
