package serial

import (
	"fmt"
	"time"

	"github.com/dailyserial/serial/internal/calendar"
)

// A Period is the span that one counter serves; see [WithPeriod].
type Period int

// Periods follow the wall clock and the calendar in the Generator's time zone, so some hours, days and months are
// longer than others.
const (
	PerSecond Period = iota + 1 // zero is not a Period, so an unset one is refused
	PerMinute
	PerHour
	PerDay
	PerMonth
	PerYear    // a business year, see [WithYearStart]; the calendar year by default
	PerWeek    // an ISO 8601 week: from Monday, week 1 has the year's first Thursday
	PerQuarter // of the business year
	Never      // numbers never start again, until the year 9999

	PerHalfYear // of the business year
)

var periodNames = [...]string{
	PerSecond: "PerSecond", PerMinute: "PerMinute", PerHour: "PerHour", PerDay: "PerDay", PerMonth: "PerMonth",
	PerYear: "PerYear", PerWeek: "PerWeek", PerQuarter: "PerQuarter", Never: "Never",
	PerHalfYear: "PerHalfYear",
}

// String returns the name of the constant, such as "PerDay".
func (p Period) String() string {
	if !calendar.Unit(p).Valid() {
		return fmt.Sprintf("Period(%d)", int(p))
	}
	return periodNames[p]
}

// WithLocation sets the time zone whose midnight resets the counters. Every process that issues numbers of a type must
// use the same time zone; if they differ, calls fail with [ErrConflict].
//
// Default [time.Local]; nil is refused.
func WithLocation(loc *time.Location) Option {
	err := refuseIf(loc == nil, "serial: WithLocation: the location is nil")
	return option{"WithLocation", true, err, func(c *config) { c.calendar.Location = loc }}
}

// WithPeriod sets the span that one counter serves, which is how often numbers start again:
//
//	PerSecond, PerMinute, PerHour   by the wall clock
//	PerDay                          from midnight, or from [WithDayStart]
//	PerWeek                         from Monday: ISO 8601, by which 30 December 2024 is in week 1 of 2025
//	PerMonth                        from the 1st
//	PerQuarter, PerHalfYear         of the business year, see [WithYearStart]
//	PerYear                         the business year
//	Never                           numbers never start again
//
// The template must print a date that identifies the period; see [WithTemplate]. The default template prints the day,
// which is enough for a day and longer periods. Every process that issues numbers of a type must use the same period,
// for as long as the series lives; if one differs, its calls fail with [ErrConflict].
//
// Periods follow the wall clock. If clocks are set forward, the periods that they skip are not used. If clocks are set
// back, the current period continues until the clock has passed it again. For example, with PerSecond and a clock set
// back from 02:00 to 01:00, the second 01:59:59 lasts an hour but has only the sequences of one second. For periods
// shorter than a day, choose UTC or enough digits.
//
// PerSecond does not allow [WithFloor] or [WithLedger]: a second is too short to ask them.
//
// Never is one period, from 1970 to the end of the year 9999 in UTC, in every time zone; its counter expires at that
// end. Its numbers need no date. A day start, a retention and [Generator.Prepare] of more than one period are refused.
// A process that has not used a type for 48 hours may forget the last number it got; it then does not notice if the
// counter goes back.
//
// Default PerDay. Values other than these constants are refused.
func WithPeriod(p Period) Option {
	return option{"WithPeriod", true, nil, func(c *config) { c.calendar.Unit = calendar.Unit(p) }}
}

// WithDayStart sets the time of day at which a business day begins. With 4 * time.Hour, a number issued at 03:59
// belongs to the previous day and has that day's date. Weeks then begin at 04:00 on Monday, months at 04:00 on the 1st,
// and quarters and years accordingly. The start is a time on the wall clock, not the time since midnight. If clocks are
// set forward past it, the day begins at that moment; if it occurs twice, the day begins the first time. Every process
// that issues numbers of a type must use the same start; if they differ, calls fail with [ErrConflict].
//
// Default 0, midnight. It must be whole seconds from 0 to less than 24 h. Only 0 is allowed for PerSecond, PerMinute,
// PerHour and Never, and with a template that prints HH, mm or ss, because a business day has no hours.
func WithDayStart(start time.Duration) Option {
	err := refuseIf(start < 0 || start >= 24*time.Hour || start%time.Second != 0,
		"serial: WithDayStart(%v): want whole seconds from 0 to less than 24h", start)
	return option{"WithDayStart", true, err, func(c *config) { c.calendar.DayStart = int64(start / time.Second) }}
}

// WithYearStart sets the first day of the business year: April 1 in India and Japan, April 6 for British taxes, July 1
// in Australia, October 1 for the government of the United States. It affects [PerYear], [PerHalfYear],
// [PerQuarter], and the tokens FFFF, FF, EEEE, EE, S and Q of a template; elsewhere it has no effect. Half-years begin
// on the same day of every sixth month, quarters of every third. In keys and in a ledger, a year is named after the
// calendar year in which it begins.
//
// If quarters, half-years or business years are counted or printed, every process that issues numbers of a type must
// use the same start, for as long as the series lives; if one differs, its calls fail with [ErrConflict].
//
// Default January 1. The day must be 1 to 28.
func WithYearStart(month time.Month, day int) Option {
	err := refuseIf(month < time.January || month > time.December || day < 1 || day > 28,
		"serial: WithYearStart: month %d, day %d; want January to December, and days 1 to 28", month, day)
	return option{"WithYearStart", true, err, func(c *config) {
		c.calendar.YearStart = calendar.NewYearStart(month, day)
	}}
}

// WithRetention keeps every counter for a number of periods after its own, for [Generator.History] and
// [Generator.Audit]; then Redis drops it. It applies to counters created from then on. If several Generators with
// different retentions open a period, the longest one counts. A counter takes about 100 bytes of Redis's memory.
//
// Default 0, which drops a counter when its period ends. It must be 0 to 10,000. With [Never], only 0 is allowed: its
// only counter is kept anyway.
func WithRetention(periods int) Option {
	err := refuseIf(periods < 0 || periods > mostKept,
		"serial: WithRetention(%d): want 0 to %d periods", periods, mostKept)
	return option{"WithRetention", false, err, func(c *config) { c.issuing.Retention = periods }}
}
