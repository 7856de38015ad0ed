package serial

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/dailyserial/serial/internal/calendar"
	"github.com/dailyserial/serial/internal/redisrun"
	"github.com/dailyserial/serial/internal/store"
	"github.com/dailyserial/serial/internal/template"
)

const (
	catchUp    = 5 * time.Second // a clock set back by no more is waited for
	clockTries = 10              // a server's clock that is elsewhere so often in a row is not worth following
)

// A clock is what is known of a server's: how far it is ahead of this host's, so that a wrong one costs a round trip once and
// not with every call.
type clock struct {
	offset atomic.Int64 // nanoseconds
	trip   atomic.Int64 // usual time of a round trip, nanoseconds
}

func (k *clock) now() time.Time { return time.Now().Add(time.Duration(k.offset.Load())) }

// arrival is what the server's clock will show when something that is sent now gets there.
func (k *clock) arrival() time.Time { return k.now().Add(time.Duration(k.trip.Load() / 2)) }

// measure notes the round trip of a reply. One that took long counts for a quarter.
func (k *clock) measure(r *store.Reply) {
	trip := r.Received.Sub(r.Sent)
	if r.Received.IsZero() { // none came
		return
	}
	if old := k.trip.Load(); old > 0 {
		trip = (3*time.Duration(old) + trip) / 4
	}
	k.trip.Store(int64(trip))
}

// learn notes the offset that a reply tells, to half a round trip. It returns that and the one known before, which is the
// same if the reply does not tell.
func (k *clock) learn(r *store.Reply) (offset, before time.Duration) {
	if r.Now.IsZero() {
		return 0, 0
	}
	offset = r.Now.Sub(r.Sent.Add(r.Received.Sub(r.Sent) / 2))
	return offset, time.Duration(k.offset.Swap(int64(offset)))
}

// A span is a part of a period in which the same date is printed, as a Generator uses it.
type span struct {
	template.Span
	stored store.Period // the period as Redis has it
}

// spanAt is the span of an instant by the server's clock.
func (g *Generator) spanAt(t time.Time) *span {
	if s := g.current.Load(); s != nil && s.Contains(t.Unix()) {
		return s
	}
	s := &span{Span: g.template.SpanAt(t)}
	expires := g.calendar.Later(&s.Period, g.retention).End
	s.stored = g.store.NewPeriod(s.Label, s.Start, s.End, s.From, s.To, expires)
	g.current.Store(s)
	return s
}

// aim is the time by the server's clock that a script is to be sent for: now, but where a span is over in a second it is when
// the script gets there.
func (c *call) aim() time.Time {
	if c.g.brief {
		return c.node.clock.arrival()
	}
	return c.node.clock.now()
}

// follow has a script sent for the span of the server's clock, which seems to be now, and makes that the call's span: it follows
// that clock where it is elsewhere, and waits a little where it went back.
func (c *call) follow(ctx context.Context, now time.Time, send func() (store.Reply, error)) (store.Reply, error) {
	told := false  // by the server what time it is
	elsewhere := 0 // answers in a row that its clock is in another period
	for {
		s := c.g.spanAt(now)
		if err := c.g.template.CheckYear(s.Reading); err != nil {
			if told {
				return store.Reply{}, err
			}
			// This host's clock is wrong, or else the server's will say the same: no clock is in this span.
			s = &span{Span: template.Span{Period: calendar.Period{Label: "0"}}, stored: c.g.store.NewPeriod("0", 0, 0, 0, 0, 0)}
		}
		c.span = s
		r, err := send()
		if err != nil {
			return r, err
		}
		told = true
		switch r.Status {
		case store.Clock:
			if elsewhere++; elsewhere > clockTries {
				return r, fmt.Errorf("%w: Redis's clock says %s, and does not stay in one period",
					ErrClockSkew, r.Now.UTC().Format(time.RFC3339))
			}
			now = r.Now
			if c.g.brief {
				now = now.Add(r.Received.Sub(r.Sent)) // until the next one arrives
			}
		case store.Future:
			entered, _ := store.ParsePeriod(r.Entered)
			pause := max(time.Unix(entered.Start, 0).Sub(r.Now), c.slept/8) // few times, also if the clock stands still
			deadline, ok := ctx.Deadline()
			if c.slept+pause > catchUp || ok && time.Until(deadline) < pause {
				return r, nil
			}
			if err := redisrun.Sleep(ctx, pause); err != nil {
				return r, err
			}
			c.slept += pause
			now, elsewhere = c.aim(), 0
		default:
			return r, nil
		}
	}
}

// doubted reports whether the server's clock is so far from this host's that a take may not enter what was prepared: the
// sequence then checks the clock, as it does before it opens a period.
func (n *node) doubted() bool {
	offset := n.clock.offset.Load()
	return n.g.maxSkew >= 0 && max(offset, -offset) > int64(n.g.maxSkew)
}

// checkSkew refuses to open a period by a clock that is too far from this host's. r is the answer that told the server's time;
// it arose at some moment between being asked for and received.
func (c *call) checkSkew(r store.Reply) error {
	skew := c.g.maxSkew
	if skew < 0 || !r.Now.Before(r.Sent.Add(-skew)) && !r.Now.After(r.Received.Add(skew)) {
		return nil
	}
	return fmt.Errorf("%w: %s of %s would be opened at %s by Redis's clock, and it is %s by this host's: allowed are %v; set the wrong clock",
		ErrClockSkew, c.typ, calendar.FormatLabel(c.span.Label), r.Now.UTC().Format(time.RFC3339), r.Received.UTC().Format(time.RFC3339), skew)
}
