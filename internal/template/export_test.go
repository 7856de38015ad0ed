package template

import "github.com/dailyserial/serial/internal/calendar"

// Determines reports whether what a date layout prints determines the period.
func Determines(layout string, unit calendar.Unit, start calendar.YearStart) bool {
	l, err := parseLayout(layout)
	if err != nil {
		panic(err)
	}
	usual, err := parseLayout(usualDate(calendar.Calendar{Unit: unit, YearStart: start}))
	if err != nil {
		panic(err)
	}
	return l.determines(&usual, start)
}
