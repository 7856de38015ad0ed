package series

import (
	"cmp"
	"context"
	"time"

	"github.com/dailyserial/serial/internal/calendar"
	"github.com/dailyserial/serial/internal/wire"
)

// Prepare opens the period after the current one. The current period must be open. If another period has become the
// current one in the meantime, the next step is Again, because that period must be opened first. Prepare does not open
// a period that begins after the last day on which numbers are issued.
func (c *Call) Prepare(ctx context.Context, locks Locks) (out Outcome) {
	c.n = 0
	if c.series.Calendar.Unit == calendar.Never {
		return Outcome{}
	}
	compared := c.series.MaxSkew < 0
	var floor *int64
	var locked *opening // opening that holds the lock of the next period, or nil
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
			if locked == nil { // get the lock, and check again, because another process may have opened the period
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
			got.span = upcoming // the error is about the next period
			return Outcome{Err: c.refuse(got)}
		}
	}
}

// newPrepare returns a request that opens the period after the current one, and the first span of that period. The
// parameter floor is the answer of the floor, or nil if the floor was not queried. If the floor has returned a sequence
// below the first one of the configuration, the period had a lower start, and the Base of the request is 0.
func (c *asker) newPrepare(current *Target, floor *int64, compared bool) (*request, *Target) {
	s := c.series
	upcoming := s.spans.make(time.Unix(current.End, 0))
	base := s.Base
	if floor != nil && 0 < *floor && *floor <= base {
		base = 0
	}
	r := &request{options: &options{Next: &next{Period: bounds(upcoming.Label, upcoming.Start, upcoming.End),
		Expires: upcoming.expires.(int64), Base: base, HasFloor: s.Floor != nil, Compared: compared}}}
	if floor != nil { // the request may be repeated, because it issues no number
		r.options.Grant = &grant{Floor: floor}
	}
	r.keys = []any{s.CounterKey(c.typ, upcoming.Label)}
	return r, upcoming
}

// lockNext makes one attempt to get the lock of a period that has not begun, so that only one process queries the floor
// for this period. The answer of the floor is still valid after the lock has expired, because no number is issued
// before the period begins, and its counter is never lowered.
func (c *Call) lockNext(ctx context.Context, locks Locks, upcoming *Target) (*opening, Outcome) {
	since := time.Now()
	c.note = cmp.Or(c.note, new(wire.Note)) // it has none before its first flight
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
