package exchange

import (
	"strconv"
	"sync/atomic"
	"time"

	"github.com/dailyserial/serial/internal/calendar"
	"github.com/dailyserial/serial/internal/store"
)

// A Span is a part of a period in which the same date is printed, with the arguments of requests.
type Span struct {
	calendar.Span
	Unprintable error        // reason why its numbers cannot be printed, nil if they can
	Over        bool         // no number is issued in it any more; it can only be read
	Stored      store.Period // period as Redis stores it
	printed     string       // as in the stored answer to a request: date and template
}

// isOver reports whether a call can no longer use the span, because numbers have ended. It can still read.
func (s *Span) isOver(reads bool) bool { return s.Over && !reads }

// spans makes spans.
type spans struct {
	calendar   calendar.Calendar
	retention  int // periods for which a counter is kept after its own
	template   string
	find       func(time.Time) (calendar.Span, error)
	store      *store.Store
	until      int64                // first instant at which no number is issued any more, Unix seconds
	clockProbe *Span                // span that no clock is in: the reply to a request for it is the server's time
	latest     atomic.Pointer[Span] // span made last
}

// at returns the span of an instant.
func (s *spans) at(t time.Time) *Span {
	unix := t.Unix()
	if latest := s.latest.Load(); latest != nil && latest.From <= unix && unix < latest.To {
		return latest
	}
	span := s.make(t)
	s.latest.Store(span)
	return span
}

func (s *spans) make(t time.Time) *Span {
	span := &Span{}
	span.Span, span.Unprintable = s.find(t)
	if span.Over = t.Unix() >= s.until; span.Over {
		span.From = max(span.From, s.until)
	} else {
		span.To = min(span.To, s.until)
	}
	span.printed = strconv.Quote(span.Date) + " " + strconv.Quote(s.template)
	expires := s.calendar.Later(&span.Period, s.retention).End
	span.Stored = s.store.NewPeriod(span.Label, span.Start, span.End, span.From, span.To, expires)
	return span
}
