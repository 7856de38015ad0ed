package series

import (
	"cmp"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/dailyserial/serial/internal/calendar"
)

// catchUp is the longest wait for a clock that was set back.
const catchUp = 5 * time.Second

// A Target is a span that requests are for, with their arguments.
type Target struct {
	calendar.Span
	Unprintable error // why its numbers cannot be printed, nil if they can
	Over        bool  // no number is issued in it, because the last day has ended; it can only be read

	period, from, to any // arguments: the period as in the record, and the bounds of the span
	expires          any // when the counter expires, Unix seconds
	printed          string
}

// spans makes spans.
type spans struct {
	*Config
	settings string                 // end of a period in the record: calendar, print mark and ledger
	probe    *Target                // span that no clock is in: the reply to a request for it has the server's time
	latest   atomic.Pointer[Target] // span made last
}

func newSpans(c *Config) *spans {
	s := &spans{Config: c, settings: " " + c.Counts + since + " #" + c.PrintMark}
	if c.Reserve != nil {
		s.settings += " ledger"
	}
	s.probe = &Target{period: bounds("0", 0, 0) + s.settings, from: 0, to: 0, expires: 0}
	s.probe.Label = "0"
	return s
}

// at returns the span of an instant.
func (s *spans) at(t time.Time) *Target {
	unix := t.Unix()
	if latest := s.latest.Load(); latest != nil && latest.From <= unix && unix < latest.To {
		return latest
	}
	span := s.make(t)
	s.latest.Store(span)
	return span
}

func (s *spans) make(t time.Time) *Target {
	span := &Target{}
	span.Span, span.Unprintable = s.SpanAt(t)
	if span.Over = s.Until > 0 && t.Unix() >= s.Until; span.Over {
		span.From = max(span.From, s.Until)
	} else if s.Until > 0 {
		span.To = min(span.To, s.Until)
	}
	span.printed = strconv.Quote(span.Date) + " " + strconv.Quote(s.Template)
	span.period = bounds(span.Label, span.Start, span.End) + s.settings
	span.from, span.to = span.From, span.To
	span.expires = s.Calendar.Later(&span.Period, s.Retention).End
	return span
}

// A clock estimates how far a server's clock is ahead of this host's, so that a wrong clock costs an extra round trip
// once, and not in every call.
type clock struct {
	offset atomic.Int64 // microseconds: nanoseconds would overflow after 292 years
	trip   atomic.Int64 // usual time of a round trip, nanoseconds
}

// now returns the time by the server's clock.
func (k *clock) now() time.Time { return time.UnixMicro(time.Now().UnixMicro() + k.offset.Load()) }

// arrival returns the time, by the server's clock, at which a command sent now arrives.
func (k *clock) arrival() time.Time { return k.now().Add(time.Duration(k.trip.Load() / 2)) }

// duration converts an offset, limited to 292 years.
func duration(offset int64) time.Duration { return time.UnixMicro(offset).Sub(time.UnixMicro(0)) }

// learn stores what a reply shows: the time of its round trip, of which an unusually long one counts for a quarter, and
// the offset, accurate to half a round trip. It returns the new offset and the previous one. Both are 0 if now, the
// server's time in the reply, is zero.
func (k *clock) learn(now, sent, received time.Time) (offset, before time.Duration) {
	trip := received.Sub(sent)
	if trip > 0 {
		k.trip.Store((3*cmp.Or(k.trip.Load(), int64(trip)) + int64(trip)) / 4)
	}
	if now.IsZero() {
		return 0, 0
	}
	ahead := now.UnixMicro() - sent.Add(trip/2).UnixMicro()
	return duration(ahead), duration(k.offset.Swap(ahead))
}
