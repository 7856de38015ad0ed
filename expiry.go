package serial

import (
	"errors"
	"fmt"
	"time"

	"github.com/dailyserial/serial/internal/calendar"
)

// A Period is the span that one counter serves; see [WithPeriod].
type Period int

// The periods that a counter may serve follow the wall clock and the calendar in the Generator's time zone. So an hour, a
// day or a month may be longer or shorter than others.
const (
	PerSecond Period = iota + 1 // zero is no Period, so one left unset is refused
	PerMinute
	PerHour
	PerDay
	PerMonth
	PerYear    // a business year, see [WithYearStart]; the calendar year by default
	PerWeek    // an ISO 8601 week: from Monday, week 1 has the year's first Thursday
	PerQuarter // of the business year
	Never      // numbers never start again, until the year 9999
)

const allowedPeriods = "allowed are PerSecond, PerMinute, PerHour, PerDay, PerWeek, PerMonth, PerQuarter, PerYear and Never"

var periodNames = [...]string{
	PerSecond: "PerSecond", PerMinute: "PerMinute", PerHour: "PerHour", PerDay: "PerDay", PerMonth: "PerMonth", PerYear: "PerYear",
	PerWeek: "PerWeek", PerQuarter: "PerQuarter", Never: "Never",
}

// unit returns the calendar's word for p: they have the same values.
func (p Period) unit() calendar.Unit { return calendar.Unit(p) }

// String returns the name of the constant, such as "PerDay".
func (p Period) String() string {
	if !p.unit().Valid() {
		return fmt.Sprintf("Period(%d)", int(p))
	}
	return periodNames[p]
}

// WithLocation sets the time zone whose midnight resets the counters. Every process that issues numbers of a type must use
// the same one; if they differ, calls fail with [ErrConflict].
//
// Default [time.Local]; nil is refused.
func WithLocation(loc *time.Location) Option {
	return option{"WithLocation", true, func(c *config) error {
		if loc == nil {
			return errors.New("serial: WithLocation: the location is nil")
		}
		c.calendar.Location = loc
		return nil
	}}
}

// WithPeriod sets the span that one counter serves, and so how often numbers start again:
//
//	PerSecond, PerMinute, PerHour   by the wall clock
//	PerDay                          from midnight, or from [WithDayStart]
//	PerWeek                         from Monday: ISO 8601, by which 30 December 2024 is in week 1 of 2025
//	PerMonth                        from the 1st
//	PerQuarter, PerYear             of the business year, see [WithYearStart]
//	Never                           numbers never start again
//
// The template must print what tells one period from the next; see [WithTemplate]. The default one prints the day, which tells
// all periods from each other but those shorter than a day. Every process that issues numbers of a type must use the same
// period, for as long as the series lives; if one differs, its calls fail with [ErrConflict].
//
// Periods follow the wall clock. Where clocks are set forward, the labels that they jump over are not used. Where clocks
// are set back, the period that had begun goes on until the clock has passed it again. With PerSecond and a clock set back
// from 02:00 to 01:00, the second 01:59:59 lasts an hour and has only the sequences of one second. For periods shorter than
// a day, therefore choose UTC or enough digits.
//
// With PerSecond neither [WithFloor] nor [WithLedger] is allowed: a second is too short to ask them.
//
// Never is one period, from 1970 to the end of the year 9999 in UTC, in every time zone; its counter expires then. Its numbers
// need no date. A day start, a retention and [Generator.Prepare] of more than one period are refused. A process that has not
// used a type for 48 hours may forget the last number it got, by which it would notice that the counter went back.
//
// Default PerDay. Any other value than these constants is refused.
func WithPeriod(p Period) Option {
	return option{"WithPeriod", true, func(c *config) error {
		c.calendar.Unit = p.unit()
		return nil
	}}
}

// WithDayStart sets the time of day at which a business day begins. With 4 * time.Hour, a number issued at 03:59 belongs to
// the day before and bears its date. A week then begins at 04:00 on Monday, a month at 04:00 on its first day, and quarters
// and years accordingly. The start is a reading of the wall clock, not the time since midnight. If clocks are set forward over
// it, the day begins at that moment; if it comes twice, the day begins at the first. Every process that issues numbers of a
// type must use the same start; if they differ, calls fail with [ErrConflict].
//
// Default 0, midnight. Allowed are whole seconds from 0 to less than 24 h. Other values than 0 are refused for PerSecond,
// PerMinute, PerHour and Never, and with a template that prints HH, mm or ss: a business day has no hours.
func WithDayStart(start time.Duration) Option {
	return option{"WithDayStart", true, func(c *config) error {
		if start < 0 || start >= 24*time.Hour || start%time.Second != 0 {
			return fmt.Errorf("serial: WithDayStart: %v; allowed are whole seconds from 0 to less than 24h", start)
		}
		c.calendar.DayStart = int64(start / time.Second)
		return nil
	}}
}

// WithYearStart sets the first day of the business year: April 1 in India and Japan, April 6 for British taxes, July 1 in
// Australia, October 1 for the government of the United States. It is for [PerYear] and [PerQuarter], and for the tokens FFFF,
// FF, EEEE, EE and Q of a template. Elsewhere it has no effect. Quarters begin on the same day of every third month. In keys
// and in a ledger, a year is named after the calendar year in which it begins.
//
// Where quarters or business years are counted or printed, every process that issues numbers of a type must use the same start, for
// as long as the series lives; if one differs, its calls fail with [ErrConflict].
//
// Default January 1. Allowed are days 1 to 28 of every month.
func WithYearStart(month time.Month, day int) Option {
	return option{"WithYearStart", true, func(c *config) error {
		if month < time.January || month > time.December || day < 1 || day > 28 {
			return fmt.Errorf("serial: WithYearStart: month %d, day %d; allowed are January to December, and days 1 to 28", month, day)
		}
		c.calendar.YearStart = calendar.NewYearStart(month, day)
		return nil
	}}
}
