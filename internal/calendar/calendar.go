// Package calendar divides time into periods by the wall clock of a time zone: days from midnight or later, weeks,
// months, business years. It gives each period a label.
package calendar

import "time"

// A Period is a part of a calendar that one counter serves, such as 24 October 2021 in the calendar's time zone. It is
// computed from one instant; key and expiry derive from it.
type Period struct {
	Label string    // name of the period in the counter's key, such as 20211024, 2024W01, 2024Q1, 2024H1 or all
	Wall  time.Time // wall-clock reading at its beginning, as if it were UTC
	Start int64     // first instant of the period, Unix seconds
	End   int64     // first instant after the period, Unix seconds
}

// A Span is a part of a period in which the same date is printed: usually all of it.
type Span struct {
	Period
	From, To int64  // first instant of the span and first instant after it, Unix seconds
	Date     string // printed date, "" if it is not known
}

// A Calendar divides time into periods. Each has a label, which is a reading of the wall clock, and begins at the first
// instant at which the clock shows DayStart past that label or later. So every instant belongs to the period that began
// last, which is not always the period that the clock shows: if clocks are set back, an earlier reading returns for a
// while, but the period continues. A label that the clock jumped over has no period.
type Calendar struct {
	Location  *time.Location
	Unit      Unit
	DayStart  int64 // seconds after midnight; 0 if the unit is shorter than a day
	YearStart YearStart
}

// EndOfNever is the end of Never's only period, at which its counter expires: a day before the end of the year 9999,
// Unix seconds.
const EndOfNever = 253402214400

var always = &Period{Label: "all", Wall: time.Unix(0, 0).UTC(), End: EndOfNever}

// The years 1 to 9999 and two more days, in Unix seconds: no zone is a day or more from UTC, and no day start is later
// than a day.
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

// At returns the period that t belongs to. Outside the years 1 to 9999, that period may not contain t.
func (c Calendar) At(t time.Time) *Period {
	at := min(max(t.Unix(), earliestInstant), latestInstant)
	return c.nth(c.Index(latest(at, c.Location) - c.DayStart))
}

// HasPeriod reports whether an instant has a period: if its date, or that of its business day, is in 1970 to 9999, and
// everywhere in the endless period, which begins in 1969 west of Greenwich.
func (c Calendar) HasPeriod(t time.Time) bool {
	p, at := c.With(Day).At(t), t.Unix()
	if c.Unit == Never {
		p = always
	}
	year := p.Wall.Year()
	return p.Start <= at && at < p.End && year >= 1970 && year <= 9999
}

// Beginning returns the period that begins with the reading wall. The period is empty if clocks jumped over wall: Apia
// skipped 30 December 2011.
func (c Calendar) Beginning(wall time.Time) *Period { return c.nth(c.Index(wall.Unix())) }

// Next returns the period that begins where p ends.
func (c Calendar) Next(p *Period) *Period { return c.At(time.Unix(p.End, 0)) }

// Previous returns the period that ends where p begins.
func (c Calendar) Previous(p *Period) *Period { return c.At(time.Unix(p.Start-1, 0)) }

// Later returns the n-th period after p; n is at least 0. Ten thousand take up to 10 ms.
func (c Calendar) Later(p *Period, n int) *Period {
	for range n {
		p = c.Next(p)
	}
	return p
}

// nth returns the period whose label has the index i. If the clock jumped over the label, the period is empty and ends
// at its start.
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

// firstMonday is 3 January of the year 0, in Unix seconds. Units of seconds are counted from there, so that no index of
// a year from 1 on is negative.
const firstMonday = -62167046400

// Index returns the index of a wall-clock reading's label. Indices number the calendar's labels in order, including
// labels without a period. wall is the reading in Unix seconds, as if it were UTC.
func (c Calendar) Index(wall int64) int64 {
	unit := units[c.Unit]
	if unit.seconds > 0 {
		return (wall - firstMonday) / unit.seconds
	}
	return int64(c.monthStart().monthOf(time.Unix(wall, 0).UTC()) / unit.months)
}

// wall is the inverse of Index: it returns the label with index i, as if it were UTC.
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
