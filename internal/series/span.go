package series

import (
	"cmp"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/dailyserial/serial/internal/calendar"
)

// catchUp is the longest time for which a call waits for a clock that was set back.
const catchUp = 5 * time.Second

// A Target is a span and the arguments of requests for it.
type Target struct {
	calendar.Span
	Unprintable error // why its numbers cannot be printed, nil if they can
	Over        bool  // no number is issued in it, because the last day with numbers has ended; it can only be read

	period, from, to any    // period in the form of the record, and bounds of the span
	expires          any    // time at which the counter expires, in Unix seconds
	printed          string // date and template, quoted, as stored with the answer to a request
}

// spans creates spans, and keeps the latest one.
type spans struct {
	*Config
	settings string                 // second half of a period in the record: calendar, print mark and ledger
	probe    *Target                // empty span, so that the reply to a request for it has the server's time
	latest   atomic.Pointer[Target] // span that was created last, or nil if none
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

// A clock is an estimate of a server's clock. With it, a difference between the clocks of the server and this host
// costs an additional round trip only once, and not in every call.
type clock struct {
	offset atomic.Int64 // the server's clock minus this host's, in microseconds; nanoseconds would overflow at 292 years
	trip   atomic.Int64 // usual round-trip time, in nanoseconds
}

// now returns the estimated time by the server's clock.
func (k *clock) now() time.Time { return time.UnixMicro(time.Now().UnixMicro() + k.offset.Load()) }

// arrival returns the estimated time, by the server's clock, at which a command that is sent now arrives.
func (k *clock) arrival() time.Time { return k.now().Add(time.Duration(k.trip.Load() / 2)) }

// duration converts an offset. The result is limited to about 292 years in both directions.
func duration(offset int64) time.Duration { return time.UnixMicro(offset).Sub(time.UnixMicro(0)) }

// learn updates the estimate from a reply. The round-trip time is averaged, so that one slow reply counts for a
// quarter. The offset is accurate to half a round trip. learn returns the new and the previous offset. If now, the
// server's time in the reply, is zero, the offset does not change, and both results are 0.
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
