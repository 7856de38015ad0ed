package template

import (
	"fmt"
	"time"

	"github.com/dailyserial/serial/internal/calendar"
)

// SpanAt returns the span of an instant.
func (t *Template) SpanAt(at time.Time) calendar.Span {
	s := t.undatedSpan(at)
	if s.Date == "" {
		s.Date = t.date.print(s.Reading, t.calendar.YearStart)
	}
	if !t.date.tells(&t.date, t.calendar.YearStart) { // it may come again
		if first, err := t.FindDate(s.Date); err == nil {
			s.Earlier = s.From - first.First.Unix()
		}
	}
	return s
}

// undatedSpan returns the span of an instant, without its date where that varies within the period.
func (t *Template) undatedSpan(at time.Time) calendar.Span {
	c := t.calendar
	s := t.SpanOf(c.At(at))
	if !t.Varies() {
		return s
	}
	for printed := year; printed <= second; printed++ {
		if t.date.has[printed] {
			units := c.With(parts[printed].unit)
			if printed == year {
				units.YearStart = calendar.YearStart{}
			}
			unit := units.At(at)
			s.From, s.To = max(s.From, unit.Start), min(s.To, unit.End)
		}
	}
	s.Reading = c.With(t.date.finest).At(at).Wall
	return s
}

// SpanOf returns a whole period as a span, for a number whose time of issue within the period is not known. It has no date where
// that varies within the period.
func (t *Template) SpanOf(p *calendar.Period) calendar.Span {
	s := calendar.Span{Period: *p, From: p.Start, To: p.End, Reading: p.Wall}
	if !t.Varies() {
		s.Date = t.date.print(p.Wall, t.calendar.YearStart)
	}
	return s
}

// DatedSpan returns the span of an instant, or an error if the instant has no date that can be printed.
func (t *Template) DatedSpan(at time.Time) (calendar.Span, error) {
	if c := t.calendar; !c.Covers(at) {
		return calendar.Span{}, fmt.Errorf("serial: a number at Unix time %d in %v: allowed are 1970 to 9999, "+
			"and with Never only before 9999-12-31T00:00:00Z", at.Unix(), c.Location)
	}
	s := t.SpanAt(at)
	return s, t.CheckYear(s.Reading)
}

// Instants returns the first instant of a span's period, and the first at which the period prints the span's date: zero if that date
// is not known.
func (t *Template) Instants(s *calendar.Span) (start, date time.Time) {
	if s.Date != "" || t.date.text == "" {
		date = t.timeOf(s.From - s.Earlier)
	}
	return t.timeOf(s.Start), date
}

// timeOf returns a Unix time in the calendar's time zone.
func (t *Template) timeOf(unix int64) time.Time { return time.Unix(unix, 0).In(t.calendar.Location) }
