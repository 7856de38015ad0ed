package exchange

import (
	"strconv"
	"sync/atomic"
	"time"

	"github.com/dailyserial/serial/internal/calendar"
	"github.com/dailyserial/serial/internal/store"
)

// A Span is a part of a period in which the same date is printed, as requests need it.
type Span struct {
	calendar.Span
	Unprintable error        // why no number can be printed, nil if it can
	Stored      store.Period // the period as Redis has it
	printed     string       // the date and the template, as the answer to a request has them
}

// spans makes the spans of instants.
type spans struct {
	calendar   calendar.Calendar
	retention  int // periods for which a counter is kept after its own
	template   string
	find       func(time.Time) (calendar.Span, error)
	store      *store.Store
	clockProbe *Span                // no clock is in it: the answer to a request for it is the server's time
	latest     atomic.Pointer[Span] // the one made last
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
	span.printed = strconv.Quote(span.Date) + " " + strconv.Quote(s.template)
	expires := s.calendar.Later(&span.Period, s.retention).End
	span.Stored = s.store.NewPeriod(span.Label, span.Start, span.End, span.From, span.To, expires)
	return span
}
