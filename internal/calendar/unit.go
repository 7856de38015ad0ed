package calendar

import (
	"fmt"
	"time"
)

// A Unit is the kind of period that a calendar divides time into.
type Unit int

// The units. Their values are those of the constants of package serial's Period.
const (
	Second Unit = iota + 1 // zero is no unit
	Minute
	Hour
	Day
	Month
	Year // a business year
	Week // of ISO 8601
	Quarter
	Never // one period for all time
)

const daySeconds = 24 * 60 * 60

// units holds what differs from one Unit to another.
var units = [...]struct {
	noun    string
	seconds int64  // length by the wall clock; 0 if it varies
	months  int    // the same in months
	label   string // layout of its labels, for time.Format; "" where that cannot write them
}{
	Second:  {"second", 1, 0, "20060102150405"},
	Minute:  {"minute", 60, 0, "200601021504"},
	Hour:    {"hour", 60 * 60, 0, "2006010215"},
	Day:     {"day", daySeconds, 0, "20060102"},
	Month:   {"month", 0, 1, "200601"},
	Year:    {"year", 0, 12, "2006"},
	Week:    {"week", 7 * daySeconds, 0, ""},
	Quarter: {"quarter", 0, 3, ""},
	Never:   {"time", 0, 0, ""},
}

// Valid reports whether u is one of the constants.
func (u Unit) Valid() bool { return Second <= u && u <= Never }

// Noun returns the word for one period, such as "day".
func (u Unit) Noun() string { return units[u].noun }

// plural returns what a series with this unit counts by, such as "days".
func (u Unit) plural() string {
	if u == Never {
		return "all time"
	}
	return u.Noun() + "s"
}

// ShorterThanDay reports whether u is shorter than a day, so that it has no day start.
func (u Unit) ShorterThanDay() bool { return u < Day }

// unitOf returns the Unit that a label belongs to, which its form tells.
func unitOf(label string) (Unit, bool) {
	switch {
	case label == "all":
		return Never, true
	case len(label) == len("2024W01") && label[4] == 'W':
		return Week, true
	case len(label) == len("2024Q1") && label[4] == 'Q':
		return Quarter, true
	}
	for u := Second; u <= Year; u++ {
		if len(label) == len(units[u].label) {
			return u, true
		}
	}
	return 0, false
}

// FormatLabel returns a period's label as people write dates, such as 2021-10-24.
func FormatLabel(label string) string {
	switch unit, ok := unitOf(label); {
	case !ok:
		return label
	case unit == Never:
		return "all time"
	case unit == Week || unit == Quarter:
		return label[:4] + "-" + label[4:]
	}
	wall, err := time.Parse("20060102150405"[:len(label)], label)
	if err != nil {
		return label
	}
	return wall.Format("2006-01-02 15:04:05"[:len(label)+(len(label)-4)/2])
}

// label names the period that begins with the reading wall.
func (c Calendar) label(wall time.Time) string {
	switch c.Unit {
	case Week:
		year, week := wall.ISOWeek()
		return fmt.Sprintf("%04dW%02d", year, week)
	case Quarter:
		year, quarter := c.YearStart.YearOf(wall)
		return fmt.Sprintf("%04dQ%d", year, quarter)
	}
	return wall.Format(units[c.Unit].label)
}
