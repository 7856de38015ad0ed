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
	s := Span{Period: *p}
	s.From, s.To, s.Reading = t.spanIn(p, at)
	s.Date = t.date.print(s.Reading, t.calendar.YearStart)
	if t.repeats {
		if first, err := t.FindDate(s.Date); err == nil {
			s.Earlier = s.From - first.First.Unix()
		}
	}
	return s
}

// spanIn returns the first instant of the span of an instant, the first one after it, and the reading of the clock that is printed. p
// is the period of the instant.
func (t *Template) spanIn(p *calendar.Period, at time.Time) (from, to int64, reading time.Time) {
	from, to, c := p.Start, p.End, t.calendar
	if t.date.has == t.usual.has {
		return from, to, p.Wall
	}
	for p := year; p <= second; p++ {
		if t.date.has[p] {
			units := c.With(parts[p].unit)
			if p == year {
				units.YearStart = calendar.YearStart{}
			}
			unit := units.At(at)
			from, to = max(from, unit.Start), min(to, unit.End)
		}
	}
	return from, to, c.With(t.date.finest()).At(at).Wall
}

// SpanOf returns the span of a whole period, for a number of which nobody knows when in the period it was issued. Its date is not
// known where that varies within the period.
func (t *Template) SpanOf(p *calendar.Period) Span {
	s := Span{Period: *p, From: p.Start, To: p.End, Reading: p.Wall}
	if !t.varies {
		s.Date = t.date.print(p.Wall, t.calendar.YearStart)
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

// Instants returns the first instants of a span's period and of what is printed of the date. The second one is zero where the date
// is not known.
func (t *Template) Instants(s *Span) (start, date time.Time) {
	if s.Date != "" || t.date.text == "" {
		date = t.timeOf(s.From - s.Earlier)
	}
	return t.timeOf(s.Start), date
}

// timeOf returns a Unix time in the calendar's time zone.
func (t *Template) timeOf(unix int64) time.Time { return time.Unix(unix, 0).In(t.calendar.Location) }
