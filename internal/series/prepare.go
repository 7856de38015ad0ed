package series

import (
	"context"
	"time"

	"github.com/dailyserial/serial/internal/calendar"
	"github.com/dailyserial/serial/internal/wire"
)

// Prepare opens the period after the current one, which must be open. The next step is Again if the current period has
// changed in the meantime, because the new one must be opened first. Prepare does not open a period after the last day
// on which numbers are issued.
func (c *Call) Prepare(ctx context.Context, locks Locks) (out Outcome) {
	c.n = 0
	if c.series.Calendar.Unit == calendar.Never {
		return Outcome{}
	}
	compared := c.series.MaxSkew < 0
	var floor *int64
	var locked *opening // opening that has the lock of the next period
	begun := c.Current().Start
	for {
		current := c.Current()
		if current == c.series.spans.probe || current.Start != begun { // the period has ended, or the clock was set
			return c.Wait(ctx)
		}
		r, upcoming := c.newPrepare(current, floor, compared)
		if upcoming.Over {
			return Outcome{}
		}
		if upcoming.Unprintable != nil {
			return Outcome{Err: upcoming.Unprintable}
		}
		got, _, err := c.send(ctx, r, current)
		if err != nil {
			return Outcome{Err: err}
		}
		switch got.reply.Status {
		case Issued:
			return Outcome{}
		case missing:
			if !compared {
				if err := c.checkSkew(got); err != nil {
					return Outcome{Err: err}
				}
				compared = true
			}
			if c.series.Floor == nil || floor != nil {
				continue
			}
			if locked == nil { // then check again, because another process may have opened the period
				if locked, out = c.lockNext(ctx, locks, upcoming); locked == nil {
					return out
				}
				defer locked.lock.Release(context.WithoutCancel(ctx))
				continue
			}
			used, err := locked.queryFloor(ctx, upcoming)
			if err != nil {
				return Outcome{Err: err}
			}
			floor = &used
		case stale, clocked:
			return c.Wait(ctx)
		case Exhausted:
			return Outcome{Err: c.refuse(got)}
		default:
			got.span = upcoming
			return Outcome{Err: c.refuse(got)}
		}
	}
}

// newPrepare returns the request that opens the period after the current one, and that period. floor is the answer of
// the floor, nil if it was not queried. The start applies only if the floor has found no number.
func (c *asker) newPrepare(current *Target, floor *int64, compared bool) (*request, *Target) {
	s := c.series
	upcoming := s.spans.make(time.Unix(current.End, 0))
	base := s.Base
	if floor != nil && 0 < *floor && *floor <= base {
		base = 0
	}
	r := &request{options: &options{Next: &next{Period: bounds(upcoming.Label, upcoming.Start, upcoming.End),
		Expires: upcoming.expires.(int64), Base: base, HasFloor: s.Floor != nil, Compared: compared}}}
	if floor != nil {
		r.options.Grant = &grant{Floor: floor}
	}
	r.keys = []any{s.counter(c.typ, upcoming.Label)}
	return r, upcoming
}

// lockNext makes one attempt to get the lock of a period that has not begun, so that only one process queries its
// floor. The answer of the floor stays valid after the lock has expired, because nothing has been issued in the period
// and its counter is never lowered.
func (c *Call) lockNext(ctx context.Context, locks Locks, upcoming *Target) (*opening, Outcome) {
	since := time.Now()
	if c.note == nil {
		c.note = new(wire.Note)
	}
	lock, _, err := locks.Try(ctx, c.deadline, c.counts, c.series.lock(c.typ, upcoming.Label), nil, c.note)
	c.refused = err
	switch out := afterLock(err); out.Step {
	case Locked:
		out.lock, out.since = lock, since
		return &opening{Call: c.detach(out), Outcome: out}, out
	case Wait:
		return nil, c.Wait(ctx)
	default:
		return nil, out
	}
}
