package calendar

import (
	"fmt"
	"strings"
	"time"
)

// A Unit is the length of the periods of a calendar.
type Unit int

// The units have the same values as the constants of type Period in package serial.
const (
	Second Unit = iota + 1 // zero is not a unit
	Minute
	Hour
	Day
	Month
	Year // a business year
	Week // of ISO 8601
	Quarter
	Never // one period for all time
	HalfYear
)

const daySeconds = 24 * 60 * 60

// units has a row for each Unit.
var units = [...]struct {
	noun, plural string
	months       int    // length in months, or 0 if the length is in seconds
	seconds      int64  // length in seconds of the wall clock, or 0 if the length is in months
	label, text  string // layouts of a label in keys and in messages, for time.Format; "" if no layout can print it
}{
	Second:  {"second", "seconds", 0, 1, "20060102150405", "2006-01-02 15:04:05"},
	Minute:  {"minute", "minutes", 0, 60, "200601021504", "2006-01-02 15:04"},
	Hour:    {"hour", "hours", 0, 60 * 60, "2006010215", "2006-01-02 15"},
	Day:     {"day", "days", 0, daySeconds, "20060102", "2006-01-02"},
	Month:   {"month", "months", 1, 0, "200601", "2006-01"},
	Year:    {"year", "years", 12, 0, "2006", "2006"},
	Week:    {"week", "weeks", 0, 7 * daySeconds, "", ""},
	Quarter: {"quarter", "quarters", 3, 0, "", ""},
	Never:   {"never", "all time", 0, EndOfNever, "all", "all time"},

	HalfYear: {"half-year", "half-years", 6, 0, "", ""},
}

// Valid reports whether u is one of the constants.
func (u Unit) Valid() bool { return Second <= u && u <= HalfYear }

// Noun returns the word for one period, such as "day"; for Never, it returns "never".
func (u Unit) Noun() string { return units[u].noun }

// ShorterThanDay reports whether u is shorter than a day. Such a unit has no day start.
func (u Unit) ShorterThanDay() bool { return u < Day }

// FormatLabel returns a period's label with separators, such as 2021-10-24. It returns any text that is not a label
// unchanged.
func FormatLabel(label string) string {
	if len(label) > 4 && strings.IndexByte("WQH", label[4]) >= 0 {
		return label[:4] + "-" + label[4:]
	}
	for _, unit := range units {
		if wall, err := time.Parse(unit.label, label); err == nil {
			return wall.Format(unit.text)
		}
	}
	return label
}

// PeriodName returns a readable name of a period, such as 24 October 2021. start and end are the first instant of the
// period and the first instant after it, in the calendar's time zone.
func (c Calendar) PeriodName(p *Period, start, end time.Time) string {
	year, quarter := c.YearStart.YearOf(p.Wall)
	inYear := fmt.Sprintf("%04d", year)
	if c.YearStart != (YearStart{}) {
		inYear = "business year " + inYear
	}
	clock := "15:04"
	if start.Second()+end.Second() != 0 { // periods are seconds, or the offset of the zone contains seconds
		clock = time.TimeOnly
	}
	switch c.Unit {
	case Never:
		return units[Never].plural
	case Day:
		return p.Wall.Format("2 January 2006")
	case Week:
		weekYear, week := p.Wall.ISOWeek()
		return fmt.Sprintf("week %d of %04d", week, weekYear)
	case Month:
		return p.Wall.Format("January 2006")
	case Quarter:
		return fmt.Sprintf("quarter %d of %s", quarter, inYear)
	case HalfYear:
		return fmt.Sprintf("half-year %d of %s", (quarter+1)/2, inYear)
	case Year:
		return inYear
	}
	return start.Format("2 January 2006, "+clock) + " to " + end.Format(clock)
}

// label returns the label of the period that begins at the wall-clock time wall.
func (c Calendar) label(wall time.Time) string {
	year, quarter := c.YearStart.YearOf(wall)
	switch c.Unit {
	case Week:
		weekYear, week := wall.ISOWeek()
		return fmt.Sprintf("%04dW%02d", weekYear, week)
	case Quarter:
		return fmt.Sprintf("%04dQ%d", year, quarter)
	case HalfYear:
		return fmt.Sprintf("%04dH%d", year, (quarter+1)/2)
	}
	return wall.Format(units[c.Unit].label)
}
