package issue

import (
	"context"
	"errors"
	"time"

	"github.com/dailyserial/serial/internal/exchange"
	"github.com/dailyserial/serial/internal/redisrun"
	"github.com/dailyserial/serial/internal/store"
)

// ErrSetAside marks every refusal of a series that has a ledger, for a caller that has none.
var ErrSetAside = errors.New("set aside in a ledger")

type person struct{}

// ByPerson returns a context for the Raise or Takeover of a person, not of a program. They do not take a series out of
// its ledger: without a ledger, they refuse a series whose last period has one. With a ledger, they first ask it how far
// earlier blocks reach, since a person may state that nobody has the numbers above.
func ByPerson(ctx context.Context) context.Context {
	return context.WithValue(ctx, person{}, true)
}

func isByPerson(ctx context.Context) bool { return ctx.Value(person{}) != nil }

// A Purpose is an operator's request.
type Purpose = store.Purpose

// These are the purposes of [Call.Raise].
const (
	ForRaise    = store.ForRaise
	ForTakeover = store.ForTakeover
)

// Raise lifts the counter of the current period to seq, for an operator. A takeover also gives the series to this
// process. If the caller leaves after the state of the period is known, Raise continues without it.
func (c *Call) Raise(ctx context.Context, purpose Purpose, seq int64) error {
	c.noteFailures(new(redisrun.Note))
	for {
		out := await(ctx, c, 0, redisrun.Begin(func() (Outcome, error) {
			o := &opening{call: c, seq: seq}
			return o.raise(ctx, context.WithoutCancel(ctx), purpose), nil
		}))
		if out.Step == Wait {
			out = c.Wait(ctx)
		}
		if out.Step == Done {
			return out.Err
		}
	}
}

// raise makes one attempt to lift the counter. ctx is the caller's; steady never ends. A take of no numbers returns the
// state of the period.
func (o *opening) raise(ctx, steady context.Context, purpose store.Purpose) Outcome {
	c := o.call
	r, err := o.inspect(ctx, 0, store.All)
	if err != nil && !(exchange.IsRefused(err, exchange.Unconfirmed) && r.Last < o.seq) { // a number below seq is unused
		return Outcome{Err: err}
	}
	if end := redisrun.EndOf(ctx); end != nil { // seq was not meant for a period that may have begun meanwhile
		return Outcome{Err: cancelError(end, c.session.Type, c.issuer.Reserve != nil)}
	}
	floor, missing, lost := o.seq, false, r.Status == store.Lost || r.WasLost
	switch {
	case r.Status == store.Issued:
		if r.Last >= o.seq {
			return Outcome{}
		}
	case r.Status == store.Exhausted: // the counter is above the largest sequence of this template
		return Outcome{}
	case r.Status == store.Ceiling: // the counter is not as it was left
	case r.Status == store.Missing, r.Status == store.Lost, r.Status == store.Future,
		r.Status == store.Conflict && purpose == store.ForTakeover:
		missing = true
		if err := c.checkSkew(&r); err != nil {
			return Outcome{Err: err}
		}
		if c.issuer.Floor != nil {
			if o.floor, err = c.askFloor(ctx, r.Span, time.Now().Add(LockExpiry-floorMargin)); err != nil {
				return Outcome{Err: err}
			}
			floor = max(floor, o.floor)
		}
	default:
		return Outcome{Err: c.session.Refuse(&r)}
	}
	if c.issuer.Reserve != nil {
		asked := r.Span
		defer func() { giveBack(steady, c, &o.claim) }()
		r, err = o.inspect(steady, 0, purpose)
		if out := c.outcome(r, err); out.Step != Missing {
			return out
		}
		if r.Span.Start != asked.Start {
			return Outcome{Step: Wait}
		}
		if r.Granted.Above >= store.MaxSeq && !lost && purpose == store.ForRaise {
			return Outcome{} // the counter is already that high
		}
	}
	// For the inspected period: if that is over by now, nothing is written.
	keep := c.issuer.Reserve == nil && isByPerson(ctx)
	r, err = o.install(steady, r.Span, store.Open{Purpose: purpose, Keep: keep, Floor: store.FloorAt(floor)})
	if err == nil && r.Status == store.Issued && !missing {
		return Outcome{}
	}
	return o.opened(r, err)
}
