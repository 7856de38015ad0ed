package serial

import (
	"errors"
	"fmt"
	"time"

	"github.com/dailyserial/serial/internal/calendar"
)

// A Period is a period length. It determines how often numbers start again; see [WithPeriod].
type Period int

// Periods follow the calendar and the local clock of the Generator's time zone, so their durations vary.
const (
	PerSecond Period = iota + 1 // zero is not valid, so that a Period that was not set is refused
	PerMinute
	PerHour
	PerDay
	PerMonth
	PerYear    // a business year, see [WithYearStart]; by default the calendar year
	PerWeek    // a week of ISO 8601, which begins on Monday; week 1 contains the first Thursday of the year
	PerQuarter // a quarter of the business year
	Never      // one period until the end of 30 December 9999

	PerHalfYear // a half of the business year
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

// WithLocation sets the time zone in which days and other periods begin. Every process that issues numbers of a type
// must use the same time zone. Otherwise calls fail with [ErrConflict].
//
// The default is [time.Local]. loc must not be nil.
func WithLocation(loc *time.Location) Option {
	err := refuseIf(loc == nil, "serial: WithLocation: the location is nil; did time.LoadLocation fail?")
	return option{"WithLocation", true, err, func(c *config) { c.calendar.Location = loc }}
}

// WithPeriod sets how often numbers start again:
//
//	PerSecond, PerMinute, PerHour   by the local clock
//	PerDay                          at midnight, or at the time of [WithDayStart]
//	PerWeek                         on Monday. Weeks are those of ISO 8601, so 30 December 2024 is in week 1 of 2025
//	PerMonth                        on the 1st
//	PerQuarter, PerHalfYear         in each quarter or half of the business year; see [WithYearStart]
//	PerYear                         in each business year
//	Never                           never
//
// The template must print a date that identifies the period; see [WithTemplate]. The default template prints the day,
// which identifies periods of a day or longer. As long as a series exists, every process that issues its numbers must
// use the same period length. A process with another one gets [ErrConflict].
//
// Periods follow the local clock. If clocks are set forward, the periods that they skip are not used. If clocks are set
// back, the current period continues until the clock has passed its end again. For example, with PerSecond and a clock
// that is set back from 02:00 to 01:00, the second 01:59:59 lasts for an hour, but has only the sequences of one
// second. For periods shorter than a day, choose UTC, or print enough digits.
//
// PerSecond cannot be combined with [WithFloor] or [WithLedger], because a second is too short to query them.
//
// Never means a single period, from 1970 to the end of 30 December 9999. Its bounds are in UTC, whatever the time zone
// of the generator. Its counter expires at the end of the period. Its numbers need no date. It cannot be combined with
// [WithDayStart] and [WithRetention]. A process that has not used a type for 48 hours may forget the last number that
// it issued, and then does not detect a counter that is too low.
//
// The default is PerDay. New returns an error for any other value than these constants.
func WithPeriod(p Period) Option {
	return option{"WithPeriod", true, nil, func(c *config) { c.calendar.Unit = calendar.Unit(p) }}
}

// WithDayStart sets the time of day at which a business day begins. With 4 * time.Hour, a number that is issued at
// 03:59 belongs to the previous day and is printed with the date of that day. Weeks then begin at 04:00 on Monday,
// months at 04:00 on the 1st, and quarters, half-years and years accordingly. The start is a time on the local clock,
// not the duration since midnight. If clocks are set forward and skip this time, the day begins when they are set. If
// the time occurs twice, the day begins the first time. Every process that issues numbers of a type must use the same
// start. Otherwise calls fail with [ErrConflict].
//
// start must be 0 to less than 24 hours, in whole seconds. It must be 0 for PerSecond, PerMinute, PerHour and Never. It
// must also be 0 if the template prints HH, mm or ss, because the hours after midnight would be printed with the date
// of the previous day. The default is 0, which is midnight.
func WithDayStart(start time.Duration) Option {
	err := refuseIf(start < 0 || start >= 24*time.Hour || start%time.Second != 0,
		"serial: WithDayStart(%v): want whole seconds from 0 to less than 24h", start)
	return option{"WithDayStart", true, err, func(c *config) { c.calendar.DayStart = int64(start / time.Second) }}
}

// WithYearStart sets the first day of the business year. Examples are April 1 in India and Japan, April 6 for British
// taxes, July 1 in Australia, and October 1 for the government of the United States. The option affects [PerYear],
// [PerHalfYear], [PerQuarter], and the tokens FFFF, FF, EEEE, EE, S and Q of a template. Half-years begin on the same
// day of every sixth month, and quarters on the same day of every third month. In keys and in a ledger, the label of a
// business year is the calendar year in which it begins.
//
// If the series uses one of these periods or tokens, every process that issues its numbers must use the same start, as
// long as the series exists. A process with another start gets [ErrConflict].
//
// day must be 1 to 28. The default is January 1.
func WithYearStart(month time.Month, day int) Option {
	err := refuseIf(month < time.January || month > time.December || day < 1 || day > 28,
		"serial: WithYearStart: month %d, day %d; want January to December, and days 1 to 28", month, day)
	return option{"WithYearStart", true, err, func(c *config) {
		c.calendar.YearStart = calendar.NewYearStart(month, day)
	}}
}

// WithUntil sets the last business day on which numbers are issued, for example the day on which the authorization of a
// range ends. Once that day has ended by Redis's clock, in the time zone and with the day start of the Generator, calls
// for numbers fail with [ErrExhausted], and so do [Generator.Prepare], [Generator.Raise] and [Generator.Takeover].
// [Generator.NextOnce] still returns the numbers of earlier requests. From 29 days before that day, the hook
// NearlyExhausted is called; see [Hooks].
//
// The option does not affect how numbers are parsed and audited. [Scheme.Until] returns its value. You may change it at
// any time, and processes may have different values during the change.
//
// The day must be a date from [On] or [OnDateOf] that is a business day. There is no last day by default.
func WithUntil(last When) Option {
	err := refuseIf(last.form != formDate, "serial: WithUntil(%v): want a date, from On or OnDateOf", last)
	return option{"WithUntil", true, err, func(c *config) { c.until = last }}
}

// setUntil computes over and nearOver from until.
func (s *scheme) setUntil() error {
	if s.until == (When{}) {
		return nil
	}
	day, err := s.businessDay(s.until)
	if err != nil {
		return fmt.Errorf("%w (WithUntil)", err)
	}
	s.over = day.End
	s.nearOver = s.calendar.With(calendar.Day).Beginning(day.Wall.AddDate(0, 0, -29)).Start
	return nil
}

// WithRetention keeps every counter for a number of periods after its own period has ended, so that [Generator.History]
// and [Generator.Audit] can read it. The option applies to counters that are created afterwards. If Generators with
// different retentions open a period, the longest retention applies. A counter takes about 100 bytes of Redis's memory.
//
// The number of periods must be 0 to 10,000. The default is 0, so a counter expires when its period ends. With [Never],
// the number must be 0, because the only counter is kept anyway.
func WithRetention(periods int) Option {
	err := refuseIf(periods < 0 || periods > maxPeriods,
		"serial: WithRetention(%d): want 0 to %d periods", periods, maxPeriods)
	return option{"WithRetention", false, err, func(c *config) { c.issuing.Retention = periods }}
}

// A When is a calendar date or an instant. It selects the period that contains this date or instant. Dates and instants
// must be distinguished: 1 August is the date of a document everywhere, but midnight UTC on 1 August is still July in
// Brazil. Create a When with [On], [OnDateOf] or [At]. The zero When is neither a date nor an instant.
//
// A When is comparable. Two Whens are equal (==) if they are the same date, or the same instant, whatever their time
// zones. A date never equals an instant.
//
// The time zone and day start of a [Scheme] determine the business day of a date. In these cases a date has no period.
// Functions that get it return an error or, if they have no error result, zero values:
//
//   - The date does not exist, such as 31 June, or its year is not in 1970 to 9999.
//   - The date has no business day in the time zone. For example, Apia skipped 30 December 2011.
//   - Periods are shorter than a day. Use At then.
//
// An instant has no period if its date in the scheme's time zone is not in 1970 to 9999. With [Never], the only period
// is 1 January 1970 to 30 December 9999 in UTC, and it is the period of any date from 1970 to 9999.
//
// Suppose that periods last a day or longer, and that the template prints HH, mm or ss. A date then has a period, but
// no number can be printed for it. [Scheme.Number], [Scheme.Span] and NextOn of package gapless then return an error.
// Use At then.
type When struct {
	form             whenForm
	year, month, day int       // parts of a date, as given
	instant          time.Time // instant, in UTC and without a monotonic clock reading, so that == compares instants
}

type whenForm int

const (
	formDate whenForm = iota + 1 // 0 is the form of the zero When
	formInstant
)

// On returns a date as a When. On accepts any date. If the date does not exist, the functions that get the When return
// an error.
func On(year int, month time.Month, day int) When {
	return When{form: formDate, year: year, month: int(month), day: day}
}

// OnDateOf returns the date of t in its own location as a When. Use it for a date from a form, and for a DATE column
// that the driver returns as midnight UTC. If a driver returns the column in another location, the date can change;
// docs/gapless.md describes these drivers and the remedy.
func OnDateOf(t time.Time) When { return On(t.Date()) }

// At returns an instant as a When, for example the result of [time.Now]. For the date of a document, use [On] or
// [OnDateOf].
func At(t time.Time) When { return When{form: formInstant, instant: t.Round(0).UTC()} }

// String returns a date in the form 2026-08-01, and an instant in the form of RFC 3339 in UTC, such as
// 2026-08-01T03:00:00Z. It returns "" for the zero When.
func (w When) String() string {
	switch w.form {
	case formDate:
		return fmt.Sprintf("%04d-%02d-%02d", w.year, w.month, w.day)
	case formInstant:
		return w.instant.Format(time.RFC3339Nano)
	}
	return ""
}

// firstInstant returns the instant of w. For a date, it returns the first instant of the business day.
func (s *scheme) firstInstant(w When) (time.Time, error) {
	switch {
	case w.form == formInstant && !s.calendar.HasPeriod(w.instant):
		return time.Time{}, s.notCovered(w)
	case w.form == formInstant:
		return w.instant, nil
	case w.form != formDate:
		return time.Time{}, errors.New("serial: the When is zero: want a date or an instant, from On, OnDateOf or At")
	}
	day, err := s.businessDay(w)
	switch {
	case err != nil:
		return time.Time{}, err
	case s.calendar.Unit.ShorterThanDay():
		return time.Time{}, fmt.Errorf("serial: the date %v has more than one period with %v: want an instant, from At", w,
			Period(s.calendar.Unit))
	}
	return s.local(day.Start), nil
}

// businessDay returns the business day of a date.
func (s *scheme) businessDay(w When) (*calendar.Period, error) {
	wall := time.Date(w.year, time.Month(w.month), w.day, 0, 0, 0, 0, time.UTC)
	switch {
	case w.year < 1970 || w.year > 9999:
		return nil, fmt.Errorf("serial: the date %v: want 1970 to 9999", w)
	case On(wall.Date()) != w:
		return nil, fmt.Errorf("serial: the date %v does not exist: want a date of the calendar", w)
	}
	day := s.calendar.With(calendar.Day).Beginning(wall)
	if day.Start >= day.End {
		return nil, fmt.Errorf("serial: the date %v has no business day in %v, whose clocks skipped it: want another date",
			w, s.calendar.Location)
	}
	return day, nil
}

// notCovered returns the error for an instant that has no period, or whose date is not in the years 1970 to 9999.
func (s *scheme) notCovered(w When) error {
	return fmt.Errorf("serial: %v in %v: want 1970 to 9999, and with Never only before 9999-12-31T00:00:00Z", w,
		s.calendar.Location)
}

// numberedSpan returns the span of the numbers that are printed for w. It returns an error if w has no period, if the
// template cannot print the date, or if the template prints the time of day and w is only a date.
func (s *scheme) numberedSpan(w When) (calendar.Span, error) {
	at, err := s.firstInstant(w)
	if err != nil {
		return calendar.Span{}, err
	}
	span, err := s.template.Dates.SpanAt(at)
	switch {
	case err != nil:
		return calendar.Span{}, err
	case w.form == formInstant && !s.calendar.With(calendar.Day).HasPeriod(w.instant):
		return calendar.Span{}, s.notCovered(w)
	case w.form == formDate && s.template.Dates.Finest.ShorterThanDay():
		return calendar.Span{}, fmt.Errorf("serial: the date %v has no time of day, which the template prints: "+
			"want an instant, from At", w)
	case span.From >= span.To:
		return calendar.Span{}, fmt.Errorf("serial: the date %v is too late for %v in %v; want 9999-12-30 or earlier", w,
			Period(s.calendar.Unit), s.calendar.Location)
	}
	return span, nil
}
