package serialpage

import (
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/dailyserial/serial"
)

// A span is a period with its name, its label and its scheme.
type span struct {
	label      string
	Name       string
	Start, End time.Time
	scheme     *serial.Scheme
}

// spanAt returns the period that contains an instant.
func spanAt(scheme *serial.Scheme, at time.Time) (p span, ok bool) {
	label, start, end := scheme.Period(serial.At(at))
	return span{label, scheme.PeriodName(serial.At(at)), start, end, scheme}, label != ""
}

// spanOf returns the period that begins at start.
func spanOf(s *Series, start time.Time) span {
	if p, ok := spanAt(s.Source.scheme(), start); ok {
		return p
	}
	return span{Start: start, End: start} // a period that includes 1 January 1970 can begin before the first date
}

// Days returns the first and the last business day of the period as text. It returns "" for a period of one day or
// less, because the name of such a period already contains the day.
func (p span) Days() string {
	if p.scheme == nil || !p.Ends() {
		return ""
	}
	first, last := p.day(p.Start), p.day(p.End.Add(-time.Second))
	if first == last {
		return ""
	}
	return first + " to " + last
}

// day returns the business day of an instant as text.
func (p span) day(at time.Time) string {
	return dayText(p.scheme.BusinessDate(serial.At(at)))
}

func dayText(day serial.When) string {
	date, _ := time.Parse(time.DateOnly, day.String())
	return date.Format("2 January 2006")
}

// Ends reports whether the period has an end.
func (p span) Ends() bool { return p.label != "all" }

// Zone returns the name of the time zone of the period.
func (p span) Zone() string { return zoneName(p.Start.Location()) }

// zone returns the time zone of the series.
func (s *Series) zone() *time.Location {
	p, _ := spanAt(s.Source.scheme(), time.Now())
	return p.Start.Location()
}

func zoneName(zone *time.Location) string {
	now := time.Now().In(zone)
	switch zone.String() {
	case "":
		return now.Format("UTC-07:00")
	case "Local":
		return "the server’s, " + strings.TrimSuffix(now.Format("MST (UTC-07:00)"), " (UTC+00:00)")
	}
	return zone.String()
}

// schemes returns the schemes with which numbers of the series can be parsed. The current scheme is the first.
func (s *Series) schemes() []*serial.Scheme {
	return append([]*serial.Scheme{s.Source.scheme()}, s.Earlier...)
}

// reach returns the start of the period that has the label of p, by each scheme, and the interval from from to to,
// which encloses these periods. The start by the current scheme is the last of starts.
func (s *Series) reach(p span) (starts []time.Time, from, to time.Time) {
	starts, from, to = []time.Time{p.Start}, p.Start, p.End
	for _, e := range s.Earlier {
		start, end, ok := labelled(e, p)
		if !ok || slices.ContainsFunc(starts, start.Equal) {
			continue
		}
		starts = slices.Insert(starts, 0, start)
		if start.Before(from) {
			from = start
		}
		if end.After(to) {
			to = end
		}
	}
	return starts, from, to
}

// labelled returns the period of a scheme that has the label of p, if there is one. It finds this period with a binary
// search, because the labels of a scheme sort in the order of their periods.
func labelled(scheme *serial.Scheme, p span) (start, end time.Time, ok bool) {
	const apart = 4 * 24 * 60 * 60 // in seconds, for two time zones, two day starts, and a date that a zone skipped
	at := func(i int) serial.When { return serial.At(p.Start.Add(time.Duration(i-apart) * time.Second)) }
	i := sort.Search(2*apart, func(i int) bool {
		label, _, _ := scheme.Period(at(i))
		return label >= p.label || label == "" && p.Start.Year() > 1970 // after the year 9999
	})
	label, start, end := scheme.Period(at(i))
	return start, end, label == p.label
}
