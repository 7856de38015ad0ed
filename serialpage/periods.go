package serialpage

import (
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/dailyserial/serial"
)

// A period is one period of a scheme, with the name that the pages show.
type period struct {
	label      string
	Name       string
	Start, End time.Time
	scheme     *serial.Scheme
}

// periodAt returns the period that contains an instant. The result ok is false if no period contains it.
func periodAt(scheme *serial.Scheme, at time.Time) (p period, ok bool) {
	label, start, end := scheme.Period(serial.At(at))
	return period{label, scheme.PeriodName(serial.At(at)), start, end, scheme}, label != ""
}

// periodFrom returns the period of a series that begins at start.
func periodFrom(s *Series, start time.Time) period {
	if p, ok := periodAt(s.Source.scheme(), start); ok {
		return p
	}
	// A period that contains 1 January 1970 can begin before that date, and then its first instant has no date.
	return period{Start: start, End: start}
}

// Days returns the first and the last business day of the period as text. It returns "" for a period of at most one
// day, because the name of such a period already contains the day.
func (p period) Days() string {
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
func (p period) day(at time.Time) string {
	return dayText(p.scheme.BusinessDate(serial.At(at)))
}

func dayText(day serial.When) string {
	date, _ := time.Parse(time.DateOnly, day.String())
	return date.Format("2 January 2006")
}

// Ends reports whether the period has an end.
func (p period) Ends() bool { return p.label != "all" }

// Zone returns the name of the time zone of the period.
func (p period) Zone() string { return zoneName(p.Start.Location()) }

// zone returns the time zone of the series.
func (s *Series) zone() *time.Location {
	p, _ := periodAt(s.Source.scheme(), time.Now())
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

// schemes returns the schemes with which numbers of the series can be parsed, beginning with the current scheme.
func (s *Series) schemes() []*serial.Scheme {
	return append([]*serial.Scheme{s.Source.scheme()}, s.Earlier...)
}

// periodInAllSchemes finds the period with the label of p in every scheme of the series. The slice starts contains all
// different starts of this period, with that of the current scheme at the end. All these periods are between the times
// from and to.
func (s *Series) periodInAllSchemes(p period) (starts []time.Time, from, to time.Time) {
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

// labelled returns the period of a scheme that has the label of p, if there is one. It uses a binary search, because
// the labels of a scheme sort in the order of their periods.
func labelled(scheme *serial.Scheme, p period) (start, end time.Time, ok bool) {
	// apart is the maximum distance of the two starts in seconds. Two time zones, two day starts, and a date that a zone
	// has skipped can contribute to it.
	const apart = 4 * 24 * 60 * 60
	at := func(i int) serial.When { return serial.At(p.Start.Add(time.Duration(i-apart) * time.Second)) }
	i := sort.Search(2*apart, func(i int) bool {
		label, _, _ := scheme.Period(at(i))
		return label >= p.label || label == "" && p.Start.Year() > 1970 // the second case is after the year 9999
	})
	label, start, end := scheme.Period(at(i))
	return start, end, label == p.label
}
