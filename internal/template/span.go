package template

import (
	"fmt"
	"time"

	"github.com/dailyserial/serial/internal/calendar"
)

// A Span is a part of a period in which the same date is printed: usually all of it.
type Span struct {
	calendar.Period
	From, To int64     // its first instant and the first one after it, Unix seconds
	Earlier  int64     // seconds before From at which the period first printed the same; 0 unless that comes again
	Reading  time.Time // of the clock, which is printed
	Date     string    // as printed, "" where it is not known
}

// Contains reports whether the instant t, in Unix seconds, lies in s.
func (s *Span) Contains(t int64) bool { return s.From <= t && t < s.To }

// SpanAt returns the span of an instant.
func (t *Template) SpanAt(at time.Time) Span {
	p := t.calendar.At(at)
	s := Span{Period: *p, From: p.Start, To: p.End, Reading: p.Wall}
	if t.date == nil {
		return s
	}
	s.From, s.To, s.Reading = t.date.spanAt(t.calendar, at, p)
	s.Date = t.printDate(s.Reading)
	if t.repeats {
		if first, err := t.FindDate(s.Date); err == nil {
			s.Earlier = s.From - first.First.Unix()
		}
	}
	return s
}

// SpanOf returns the span of a whole period, for a number of which nobody knows when in the period it was issued. It has no date
// where that varies within the period.
func (t *Template) SpanOf(p *calendar.Period) Span {
	s := Span{Period: *p, From: p.Start, To: p.End, Reading: p.Wall}
	if !t.varies {
		s.Date = t.printDate(p.Wall)
	}
	return s
}

// DatedSpan returns the span of an instant, or an error if the instant has no date that can be printed.
func (t *Template) DatedSpan(at time.Time) (Span, error) {
	if c := t.calendar; !c.Covers(at) {
		last := "9999"
		if c.Unit == calendar.Never {
			last = "before " + time.Unix(calendar.EndOfNever, 0).UTC().Format(time.RFC3339)
		}
		return Span{}, fmt.Errorf("serial: a number at Unix time %d in %v: allowed are 1970 to %s",
			at.Unix(), c.Location, last)
	}
	s := t.SpanAt(at)
	return s, t.CheckYear(s.Reading)
}

// Instants returns the first instant of a span's period, and that of what is printed of the date, zero where it is not known.
func (t *Template) Instants(s *Span) (start, date time.Time) {
	start, date = t.instants(s.Start, s.From-s.Earlier)
	if s.Date == "" && t.date != nil {
		date = time.Time{}
	}
	return start, date
}

// instants returns two Unix times in the calendar's time zone.
func (t *Template) instants(start, first int64) (a, b time.Time) {
	a = time.Unix(start, 0).In(t.calendar.Location)
	if b = a; first != start {
		b = time.Unix(first, 0).In(t.calendar.Location)
	}
	return a, b
}
