package series

import (
	"cmp"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/dailyserial/serial/internal/calendar"
)

// catchUp limits how long a call waits for a server's clock that was set back.
const catchUp = 5 * time.Second

// A Target is a span and the arguments of requests for it.
type Target struct {
	calendar.Span
	Unprintable error // reason why the numbers of the span cannot be printed, or nil if they can
	Over        bool  // whether the last day has ended, so that the span is only read

	period, from, to any    // period in the form of the record, and bounds of the span
	expires          any    // time at which the counter expires, in Unix seconds
	printed          string // quoted date and template, as stored with the answer to a request
}

// spans creates spans, and caches the latest one.
type spans struct {
	*Config
	settings string                 // end of a period in the record: calendar, version, print mark and ledger
	probe    *Target                // empty span; the reply to a request for it contains the server's time
	latest   atomic.Pointer[Target] // latest span that was created, or nil if none was created
}

func newSpans(c *Config) *spans {
	s := &spans{Config: c, settings: " " + c.Counts + version + " #" + c.PrintMark}
	if c.Reserve != nil {
		s.settings += " ledger"
	}
	s.probe = &Target{period: bounds("0", 0, 0) + s.settings, from: 0, to: 0, expires: 0}
	s.probe.Label = "0"
	return s
}

// at returns the span that contains an instant.
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

// A clock estimates the time of a server's clock. Without the estimate, every call would need an additional round trip
// if the server's clock is in another span than this host's.
type clock struct {
	offset atomic.Int64 // server's clock minus this host's, in microseconds; nanoseconds would overflow at 292 years
	trip   atomic.Int64 // average of recent round-trip times, in nanoseconds
}

// now returns the estimated time by the server's clock.
func (k *clock) now() time.Time { return time.UnixMicro(time.Now().UnixMicro() + k.offset.Load()) }

// arrival returns the estimated time by the server's clock at which a command that is sent now would arrive.
func (k *clock) arrival() time.Time { return k.now().Add(time.Duration(k.trip.Load() / 2)) }

// duration converts an offset in microseconds. The result is limited to about 292 years in both directions.
func duration(offset int64) time.Duration { return time.UnixMicro(offset).Sub(time.UnixMicro(0)) }

// learn updates the estimate from a reply. In the average of the round-trip times, the latest one has the weight of a
// quarter. The time now is the server's time in the reply. learn returns the new and the previous offset. The new
// offset is accurate to half a round trip. If the reply contains no time (now is zero), the offset does not change, and
// both results are 0.
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
