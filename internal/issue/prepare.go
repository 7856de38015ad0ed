package issue

import (
	"context"
	"time"

	"github.com/dailyserial/serial/internal/budget"
	"github.com/dailyserial/serial/internal/calendar"
	"github.com/dailyserial/serial/internal/store"
)

// Prepare makes one attempt to open the period p ahead of time, where the period before is open. The next step is
//
//   - Missing where the floor has to be asked first: then Lock, and PrepareAboveFloor
//   - Wait where the current period has to be opened first, or opened again
//   - Enter where the current period has to be entered first
//   - Again where the clocks have been compared first
func (c *Call) Prepare(ctx context.Context, p *calendar.Period) Outcome {
	s := &c.session
	next := s.issuer.newSpan(time.Unix(p.Start, 0))
	if next.Unprintable != nil {
		return Outcome{Err: next.Unprintable}
	}
	var floor store.Floor
	if s.issuer.Floor != nil {
		floor = store.FloorToAsk()
	}
	r, err := c.prepare(ctx, next, floor)
	if err != nil {
		return Outcome{Err: err}
	}
	switch r.Status {
	case store.Issued:
		_, limited := ctx.Deadline()
		c.waits, s.budget = 0, budget.New(limited) // each period has a budget of its own
		return Outcome{}
	case store.Missing: // the record is not as this call has left it
		return Outcome{Step: Enter}
	case store.Gap, store.Late:
		return Outcome{Step: Wait}
	case store.Unchecked:
		c.checked = true
		if err := s.checkSkew(r); err != nil {
			return Outcome{Err: err}
		}
		return Outcome{Step: Again}
	case store.NeedsFloor:
		s.span = next // whose lock is needed
		return Outcome{Step: Missing}
	}
	return Outcome{Err: s.refuse(r)}
}

// PrepareAboveFloor opens the period of the call's lock above the floor, which one caller asks at a time. The next step is Again: the
// period may be open then.
func (c *Call) PrepareAboveFloor(ctx context.Context, lock Lock) Outcome {
	s := &c.session
	next := s.span
	defer s.endFlight(nil)
	defer s.giveBack(ctx, lock)
	r, err := c.prepare(ctx, next, store.FloorToAsk())
	if err == nil && r.Status == store.NeedsFloor {
		s.span = next
		a := &attempt{call: c}
		var used int64
		if used, err = a.askFloor(ctx, c.lockSince.Add(LockExpiry-floorMargin)); err == nil {
			// However late it comes: nothing has been issued of a period that has not begun, and its counter is only lifted.
			_, err = c.prepare(ctx, next, store.FloorAt(used))
		}
	}
	if err != nil {
		return Outcome{Err: err}
	}
	return Outcome{Step: Again}
}

// prepare has the store prepare next. The reply is Late if that has begun by the server's clock.
func (c *Call) prepare(ctx context.Context, next *Span, floor store.Floor) (r store.Reply, err error) {
	s := &c.session
	s.targetNow()
	for again := true; again; {
		if s.span.Start >= next.Start {
			return store.Reply{Status: store.Late}, nil
		}
		r, err = s.issuer.Store.Prepare(ctx, &s.budget, s.node.Node, &store.Prepare{
			Series: s.series(), Next: &next.stored, Base: s.issuer.Base, Floor: floor,
			Checked: s.issuer.MaxSkew < 0 || c.checked,
		})
		if r.Status == store.Lost || r.WasThere {
			s.span = next // whose counter it is
		}
		again, err = s.digest(ctx, &r, err)
	}
	return r, err
}
