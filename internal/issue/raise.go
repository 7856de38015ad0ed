package issue

import (
	"context"
	"time"

	"github.com/dailyserial/serial/internal/store"
)

// Raise is an operator's Raise to seq, or an operator's Takeover, as the purpose says. It goes on without a caller who leaves.
func (c *Call) Raise(ctx context.Context, purpose store.Purpose, seq int64) error {
	for {
		out := c.detached(ctx, 0, func() (Outcome, error) {
			a := &attempt{call: c, seq: seq, at: -1}
			return a.raise(ctx, context.WithoutCancel(ctx), purpose, seq), nil
		})
		if out.Step == Wait {
			out = c.Wait(ctx)
		}
		if out.Step == Done {
			return out.Err
		}
	}
}

// raise is one attempt at Raise. ctx is the caller's, and steady does not end. A take of no numbers tells how the period stands.
func (a *attempt) raise(ctx, steady context.Context, purpose store.Purpose, seq int64) Outcome {
	c, s := a.call, &a.call.session
	r, err := a.inspect(ctx, 0, store.All)
	if err != nil && !(Refused(err, Unconfirmed) && r.Last < seq) { // nothing depends on that one
		return Outcome{Err: err}
	}
	floor, missing := seq, false
	switch {
	case r.Status == store.Issued:
		if r.Last >= seq {
			return Outcome{}
		}
		a.at = r.Last
	case r.Status == store.Exhausted: // by a counter that stands higher than this template can print
		return Outcome{}
	case r.Status == store.Ceiling: // by a counter that is not as it was left
	case r.Status == store.Missing, r.Status == store.Lost, r.Status == store.Future,
		r.Status == store.Conflict && purpose == store.ForTakeover:
		missing = true
		if r.Status == store.Missing && !r.WasThere {
			a.at = s.issuer.Base
		}
		if err := s.checkSkew(r); err != nil {
			return Outcome{Err: err}
		}
		if s.issuer.Floor != nil {
			used, err := a.askFloor(ctx, time.Now().Add(LockExpiry-floorMargin))
			if err != nil {
				return Outcome{Err: err}
			}
			floor = max(seq, used)
		}
	default:
		return Outcome{Err: s.refuse(r)}
	}
	if s.issuer.Reserve != nil {
		asked := s.span
		defer s.giveBack(steady, a)
		r, err = a.inspect(steady, 0, purpose)
		if out := c.outcome(r, err); out.Step != Missing {
			return out
		}
		if s.span.Start != asked.Start {
			return Outcome{Step: Wait}
		}
		a.above = max(a.above, floor)
	}
	// For the period that was looked at: if that is over by now, nothing is written.
	r, err = a.install(steady, store.Open{Purpose: purpose, Floor: store.FloorAt(floor)})
	// A period that is exhausted was so without a ledger too.
	if Refused(err, store.Exhausted) || err == nil && r.Status == store.Issued && !missing {
		return Outcome{}
	}
	return a.afterOpen(r, err)
}
