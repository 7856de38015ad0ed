package serialpage

import (
	"slices"
	"sort"
	"time"

	"github.com/dailyserial/serial"
)

// schemes returns the schemes that read the numbers of a series, the current one first.
func (s *Series) schemes() []*serial.Scheme {
	return append([]*serial.Scheme{s.Source.scheme()}, s.Earlier...)
}

// reach returns the first instants of the period with the label of p, the latest scheme's last, and the span of time
// that includes this period by all schemes.
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

// labelled returns the period of a scheme that has the label of p, if there is one: labels sort as their periods do.
func labelled(scheme *serial.Scheme, p span) (start, end time.Time, ok bool) {
	const apart = 4 * 24 * 60 * 60 // seconds; two time zones and day starts, and a date that a zone skipped
	at := func(i int) serial.When { return serial.At(p.Start.Add(time.Duration(i-apart) * time.Second)) }
	i := sort.Search(2*apart, func(i int) bool {
		label, _, _ := scheme.Period(at(i))
		return label >= p.label || label == "" && p.Start.Year() > 1970 // after the year 9999
	})
	label, start, end := scheme.Period(at(i))
	return start, end, label == p.label
}
