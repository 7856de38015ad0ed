package serialpage

import (
	"strings"
	"time"

	"github.com/dailyserial/serial"
)

// A span is a period, for people.
type span struct {
	label      string
	Name       string
	Start, End time.Time
}

// spanAt returns the period that contains an instant.
func spanAt(scheme *serial.Scheme, at time.Time) (p span, ok bool) {
	label, start, end := scheme.Period(serial.At(at))
	return span{label, scheme.PeriodName(serial.At(at)), start, end}, label != ""
}

// spanOf returns the period that begins at start.
func spanOf(s *Series, start time.Time) span {
	if p, ok := spanAt(s.Source.scheme(), start); ok {
		return p
	}
	return span{Start: start, End: start} // the period of 1 January 1970 may begin before any date
}

// Days are the first and the last business day of a period whose name does not show them, such as a week.
func (p span) Days() string {
	if !strings.HasPrefix(p.Name, "week ") && !strings.HasPrefix(p.Name, "quarter ") &&
		!strings.HasPrefix(p.Name, "half-year ") && !strings.HasPrefix(p.Name, "business year ") {
		return ""
	}
	// The last business day is the date before the one on which the next period begins.
	last := p.End.Add(-time.Second)
	if !beginsDate(p.End) {
		last = time.Date(p.End.Year(), p.End.Month(), p.End.Day()-1, 0, 0, 0, 0, time.UTC)
	}
	return p.Start.Format("2 January 2006") + " to " + last.Format("2 January 2006")
}

// beginsDate reports whether t is the first instant of its date, as it is for periods without a day start.
func beginsDate(t time.Time) bool { return t.Add(-time.Second).Day() != t.Day() }

// Ends reports whether the period has an end.
func (p span) Ends() bool { return p.label != "all" }

// Zone names the time zone in which the period begins.
func (p span) Zone() string {
	zone, now := p.Start.Location(), time.Now().In(p.Start.Location())
	switch zone.String() {
	case "":
		return now.Format("UTC-07:00")
	case "Local":
		return "the server’s, " + strings.TrimSuffix(now.Format("MST (UTC-07:00)"), " (UTC+00:00)")
	}
	return zone.String()
}
