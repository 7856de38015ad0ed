package calendar

import (
	"strings"
	"time"
)

// A YearStart is the first day of a business year. The zero YearStart is January 1.
type YearStart struct {
	Month int // months after January
	Day   int // days after the 1st
}

// NewYearStart returns the YearStart of a month and a day, 1 to 28.
func NewYearStart(month time.Month, day int) YearStart {
	return YearStart{int(month - time.January), day - 1}
}

// monthOf returns the number of the business month that contains a day, counted from the first month of the year 0.
// Every business month begins on the same day of the month as the business year.
func (s YearStart) monthOf(day time.Time) int {
	y, m, _ := day.AddDate(0, 0, -s.Day).Date()
	return y*12 + int(m-time.January) - s.Month
}

// firstDay is the inverse of monthOf: it returns the first day of a month.
func (s YearStart) firstDay(month int) time.Time {
	return time.Date(0, time.Month(1+s.Month+month), 1+s.Day, 0, 0, 0, 0, time.UTC)
}

// YearOf returns the business year that contains a day, and the quarter of that year, 1 to 4. A business year has the
// number of the calendar year in which it begins.
func (s YearStart) YearOf(day time.Time) (year, quarter int) {
	year, month, _ := day.AddDate(0, 0, -s.Day).Date()
	months := int(month-time.January) - s.Month
	if months < 0 {
		year, months = year-1, months+12
	}
	return year, months/3 + 1
}

// EndOf returns the calendar year in which a business year ends.
func (s YearStart) EndOf(year int) int { return year + min(s.Month+s.Day, 1) }

// First returns the first day of a business year.
func (s YearStart) First(year int) time.Time { return s.firstDay(12 * year) }

// String returns the date, such as "April 1".
func (s YearStart) String() string { return s.First(2000).Format(dayLayout) }

const dayLayout, ofYears, fromDay = "January 2", " of years", " from "

// Name returns the name of the calendar, which is stored in the record of a series. It consists of the unit and, if the
// business year matters, of its first day. businessYears is true if the template prints a part of the business year.
func (c Calendar) Name(businessYears bool) string {
	name, counts := units[c.Unit].plural, c.Unit == Year || c.Unit == HalfYear || c.Unit == Quarter
	if c.YearStart == (YearStart{}) || !counts && !businessYears {
		return name
	}
	if !counts {
		name += ofYears
	}
	return name + fromDay + c.YearStart.String()
}

// ParseName is the inverse of [Calendar.Name].
func ParseName(name string) (unit Unit, start YearStart, ok bool) {
	plural, from, hasStart := strings.Cut(name, fromDay)
	if !hasStart {
		from = start.String()
	}
	day, err := time.Parse(dayLayout, from)
	for unit = Second; unit.Valid() && units[unit].plural != strings.TrimSuffix(plural, ofYears); unit++ {
	}
	return unit, NewYearStart(day.Month(), day.Day()), err == nil && unit.Valid()
}
