// Package calendar divides time into periods, such as days, weeks, months and business years, by the wall clock of a
// time zone. Each period has a label.
package calendar

import "time"

// A Period is one interval of a calendar, such as 24 October 2021 in the calendar's time zone. It has its own counter,
// whose key and expiry are derived from the Period.
type Period struct {
	Label string    // label in the counter's key, such as 20211024, 2024W01, 2024Q1, 2024H1 or all
	Wall  time.Time // wall-clock time of the label, as if it were UTC, without the day start
	Start int64     // first instant of the period, in Unix seconds
	End   int64     // first instant after the period, in Unix seconds
}

// A Span is a part of a period in which the same date is printed. Usually, the span is the complete period.
type Span struct {
	Period
	From, To int64  // first instant of the span and first instant after it, in Unix seconds
	Date     string // printed date, or "" if it is not known
}

// A Calendar divides time into periods. The label of a period is a wall-clock time. The period begins at the first
// instant at which the clock shows that time plus DayStart, or a later time. An instant belongs to the latest period
// that has begun. This may differ from the period of the time that the clock shows: if clocks are set back, they show
// an earlier time for a while, but the period continues. If clocks are set forward and skip a label, there is no period
// with this label.
type Calendar struct {
	Location  *time.Location
	Unit      Unit
	DayStart  int64 // seconds after midnight; 0 if the unit is shorter than a day
	YearStart YearStart
}

// EndOfNever is the end of Never's only period, in Unix seconds. It is a day before the end of the year 9999. The
// counter of the period expires then.
const EndOfNever = 253402214400

var always = &Period{Label: "all", Wall: time.Unix(0, 0).UTC(), End: EndOfNever}

// Bounds of the instants for which periods are computed, in Unix seconds: the years 1 to 9999 and two days on either
// side. Two days are enough, because the offset of a zone from UTC is less than a day, and so is a day start.
const (
	earliestInstant = -62135596800 - 2*daySeconds
	latestInstant   = 253402300800 + 2*daySeconds
)

// With returns c with another unit.
func (c Calendar) With(unit Unit) Calendar {
	if c.Unit = unit; unit.ShorterThanDay() {
		c.DayStart = 0
	}
	return c
}

// At returns the period that t belongs to. Outside the years 1 to 9999, that period does not necessarily contain t.
func (c Calendar) At(t time.Time) *Period {
	at := min(max(t.Unix(), earliestInstant), latestInstant)
	return c.nth(c.Index(latest(at, c.Location) - c.DayStart))
}

// HasPeriod reports whether numbers can be issued in the period of an instant. This is the case if the date of its
// business day is in the years 1970 to 9999. With Never, the instant must be between the beginning of 1970 in UTC,
// which is still 1969 west of Greenwich, and [EndOfNever].
func (c Calendar) HasPeriod(t time.Time) bool {
	p, at := c.With(Day).At(t), t.Unix()
	if c.Unit == Never {
		p = always
	}
	year := p.Wall.Year()
	return p.Start <= at && at < p.End && year >= 1970 && year <= 9999
}

// Beginning returns the period whose label contains a wall-clock time. The period is empty if clocks skipped the label,
// as they did on 30 December 2011 in Apia.
func (c Calendar) Beginning(wall time.Time) *Period { return c.nth(c.Index(wall.Unix())) }

// Next returns the period that begins where p ends.
func (c Calendar) Next(p *Period) *Period { return c.At(time.Unix(p.End, 0)) }

// Previous returns the period that ends where p begins.
func (c Calendar) Previous(p *Period) *Period { return c.At(time.Unix(p.Start-1, 0)) }

// Later returns the n-th period after p. n is at least 0. Each period takes up to 1 µs.
func (c Calendar) Later(p *Period, n int) *Period {
	for range n {
		p = c.Next(p)
	}
	return p
}

// nth returns the period whose label has the index i. If the clock skipped the label, the period is empty and ends at
// its start.
func (c Calendar) nth(i int64) *Period {
	if c.Unit == Never {
		return always
	}
	wall := c.wall(i)
	return &Period{
		Label: c.label(wall),
		Wall:  wall,
		Start: begin(wall.Unix()+c.DayStart, c.Location),
		End:   begin(c.wall(i+1).Unix()+c.DayStart, c.Location),
	}
}

// firstMonday is Monday, 3 January of the year 0, in Unix seconds. The labels of units of a fixed length are numbered
// from there, so that no index is negative from the year 1 on.
const firstMonday = -62167046400

// Index returns the index of the label that contains a wall-clock time. All labels are numbered in order, including
// labels that the clock skipped. The parameter wall is the wall-clock time in Unix seconds, as if it were UTC.
func (c Calendar) Index(wall int64) int64 {
	unit := units[c.Unit]
	if unit.seconds > 0 {
		return (wall - firstMonday) / unit.seconds
	}
	return int64(c.monthStart().monthOf(time.Unix(wall, 0).UTC()) / unit.months)
}

// wall is the inverse of Index. It returns the beginning of the label with index i, as if it were UTC.
func (c Calendar) wall(i int64) time.Time {
	unit := units[c.Unit]
	if unit.seconds > 0 {
		return time.Unix(i*unit.seconds+firstMonday, 0).UTC()
	}
	return c.monthStart().firstDay(unit.months * int(i))
}

// monthStart returns the YearStart from which months are counted. Calendar months begin on the 1st, even if business
// years do not.
func (c Calendar) monthStart() YearStart {
	if c.Unit == Month {
		return YearStart{}
	}
	return c.YearStart
}
