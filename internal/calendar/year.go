package calendar

import (
	"strings"
	"time"
)

// A YearStart is the first day of a business year. The zero YearStart is January 1.
type YearStart struct {
	Month int // after January
	Day   int // after the 1st
}

// NewYearStart returns the YearStart of a month and a day, 1 to 28.
func NewYearStart(month time.Month, day int) YearStart {
	return YearStart{int(month - time.January), day - 1}
}

// YearOf returns the business year that a day belongs to, named after the calendar year in which it begins, and the quarter,
// 1 to 4.
func (s YearStart) YearOf(day time.Time) (year, quarter int) {
	y, m, d := day.Date()
	month := y*12 + int(m-time.January) - s.Month
	if d <= s.Day {
		month--
	}
	year = floorDiv(month, 12)
	return year, (month-12*year)/3 + 1
}

// EndOf returns the calendar year in which a business year ends.
func (s YearStart) EndOf(year int) int {
	if s == (YearStart{}) {
		return year
	}
	return year + 1
}

// First returns the first day of a business year.
func (s YearStart) First(year int) time.Time { return s.month(year, 0) }

// month returns the first day of the month of a business year that so many months precede.
func (s YearStart) month(year, months int) time.Time {
	return time.Date(year, time.Month(1+s.Month+months), 1+s.Day, 0, 0, 0, 0, time.UTC)
}

// String returns a YearStart as people write it, such as "April 1".
func (s YearStart) String() string { return s.First(2000).Format(yearStartLayout) }

const yearStartLayout, ofYears, fromYearStart = "January 2", " of years", " from "

// Name returns what a series counts by: the unit and, if business years matter, where they start. A series keeps it as long as it
// lives. businessYears is whether a part of a business year is printed.
func (c Calendar) Name(businessYears bool) string {
	text := c.Unit.plural()
	switch {
	case c.YearStart == (YearStart{}):
		return text
	case c.Unit == Year || c.Unit == Quarter:
	case businessYears:
		text += ofYears
	default:
		return text
	}
	return text + fromYearStart + c.YearStart.String()
}

// ParseName is the inverse of [Calendar.Name].
func ParseName(name string) (unit Unit, start YearStart, ok bool) {
	plural, from, hasStart := strings.Cut(name, fromYearStart)
	for unit := Second; unit <= Never; unit++ {
		if text := unit.plural(); plural != text && plural != text+ofYears {
			continue
		}
		if !hasStart {
			return unit, YearStart{}, true
		}
		day, err := time.Parse(yearStartLayout, from)
		return unit, NewYearStart(day.Month(), day.Day()), err == nil
	}
	return 0, YearStart{}, false
}
