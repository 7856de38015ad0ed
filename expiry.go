package serial

import (
	"fmt"
	"math"
	"strings"
	"time"
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

// kinds holds what differs from one Period to another.
var kinds = [...]struct {
	name    string
	one     string // one of them, for messages
	several string // what a series with this Period counts by, for messages, the record and the ledger
	seconds int64  // length by the wall clock; 0 if it varies
	months  int    // the same in months
	label   string // layout of its labels, for time.Format; "" where that cannot write them
	date    string // of a template that suits it
}{
	PerSecond:  {"PerSecond", "a second", "seconds", 1, 0, "20060102150405", "yyyyMMddHHmmss"},
	PerMinute:  {"PerMinute", "a minute", "minutes", 60, 0, "200601021504", "yyyyMMddHHmm"},
	PerHour:    {"PerHour", "an hour", "hours", 60 * 60, 0, "2006010215", "yyyyMMddHH"},
	PerDay:     {"PerDay", "a day", "days", daySeconds, 0, "20060102", "yyyyMMdd"},
	PerMonth:   {"PerMonth", "a month", "months", 0, 1, "200601", "yyyyMM"},
	PerYear:    {"PerYear", "a year", "years", 0, 12, "2006", "yyyy"},
	PerWeek:    {"PerWeek", "a week", "weeks", 7 * daySeconds, 0, "", "GGGG-WW"},
	PerQuarter: {"PerQuarter", "a quarter", "quarters", 0, 3, "", "FFFF-Q"},
	Never:      {"Never", "all time", "all time", 0, 0, "", ""},
}

const daySeconds = 24 * 60 * 60

func (p Period) known() bool { return PerSecond <= p && p <= Never }

// String returns the name of the constant, such as "PerDay".
func (p Period) String() string {
	if !p.known() {
		return fmt.Sprintf("Period(%d)", int(p))
	}
	return kinds[p].name
}

// noun returns the word for one of these periods, such as "day".
func (p Period) noun() string {
	_, noun, _ := strings.Cut(kinds[p].one, " ")
	return noun
}

// shorter reports whether p is shorter than a day, so that it has no day start.
func (p Period) shorter() bool { return p < PerDay }

// kindOf is the Period that a label is of, which its form tells.
func kindOf(label string) (Period, bool) {
	switch {
	case label == "all":
		return Never, true
	case len(label) == len("2024W01") && label[4] == 'W':
		return PerWeek, true
	case len(label) == len("2024Q1") && label[4] == 'Q':
		return PerQuarter, true
	}
	for per := PerSecond; per <= PerYear; per++ {
		if len(label) == len(kinds[per].label) {
			return per, true
		}
	}
	return 0, false
}

// A period is one of the spans that counters serve, such as 24 October 2021 in the configured time zone. It is a value
// computed from one instant; key and expiry come from it.
type period struct {
	label string    // name of the period in the counter's key, such as 20211024, 2024W01, 2024Q1 or all
	wall  time.Time // the wall-clock reading that it begins with, as if it were UTC
	start int64     // first instant of the period, Unix seconds
	end   int64     // first instant after the period, Unix seconds
}

// readable is a period's label as people write dates, such as 2021-10-24.
func readable(label string) string {
	switch per, ok := kindOf(label); {
	case !ok:
		return label
	case per == Never:
		return "all time"
	case per == PerWeek || per == PerQuarter:
		return label[:4] + "-" + label[4:]
	}
	wall, err := time.Parse("20060102150405"[:len(label)], label)
	if err != nil {
		return label
	}
	return wall.Format("2006-01-02 15:04:05"[:len(label)+(len(label)-4)/2])
}

// A calendar divides time into periods. Each has a label, which is a reading of the wall clock, and begins at the first
// instant at which the clock shows dayStart past that label or later. So every instant belongs to the period that began
// last. This is not always the period that the clock shows: where clocks are set back, the old reading returns for a while,
// but a period once begun is never left. A label that the clock jumped over belongs to no period.
type calendar struct {
	location  *time.Location
	period    Period
	dayStart  int64     // seconds after midnight; 0 if the period is shorter than a day
	yearStart yearStart // of the business year
}

// A yearStart is the first day of a business year. The zero yearStart is January 1.
type yearStart struct {
	month int // after January
	day   int // after the 1st
}

// of returns the business year that a day belongs to, named after the calendar year in which it begins, and the quarter, 1 to 4.
func (s yearStart) of(day time.Time) (year, quarter int) {
	y, m, d := day.Date()
	month := y*12 + int(m-time.January) - s.month
	if d <= s.day {
		month--
	}
	year = floorDiv(month, 12)
	return year, (month-12*year)/3 + 1
}

// ends returns the calendar year in which a business year ends.
func (s yearStart) ends(year int) int {
	if s == (yearStart{}) {
		return year
	}
	return year + 1
}

// String returns a yearStart as people write it, such as "April 1".
func (s yearStart) String() string {
	return time.Date(2000, time.January+time.Month(s.month), 1+s.day, 0, 0, 0, 0, time.UTC).Format(yearStartLayout)
}

const yearStartLayout, ofYears, fromYearStart = "January 2", " of years", " from "

// counts is what a series counts by: its Period and, if business years matter, where they start. A series keeps it as long as it
// lives. businessYears is whether a part of a business year is printed.
func (c calendar) counts(businessYears bool) string {
	text := kinds[c.period].several
	switch {
	case c.yearStart == (yearStart{}):
		return text
	case c.period == PerYear || c.period == PerQuarter:
	case businessYears:
		text += ofYears
	default:
		return text
	}
	return text + fromYearStart + c.yearStart.String()
}

// parseCounts is the inverse of counts.
func parseCounts(text string) (per Period, start yearStart, ok bool) {
	several, from, hasStart := strings.Cut(text, fromYearStart)
	for per := PerSecond; per <= Never; per++ {
		if name := kinds[per].several; several != name && several != name+ofYears {
			continue
		}
		if !hasStart {
			return per, yearStart{}, true
		}
		day, err := time.Parse(yearStartLayout, from)
		return per, yearStart{int(day.Month() - time.January), day.Day() - 1}, err == nil
	}
	return 0, yearStart{}, false
}

// usualDate is a date layout that tells the calendar's periods apart, "" where none has to.
func (c calendar) usualDate() string {
	if c.period == PerYear && c.yearStart != (yearStart{}) {
		return "FFFF"
	}
	return kinds[c.period].date
}

// usualTemplate is the default template with a date that suits the calendar.
func (c calendar) usualTemplate() string {
	date := c.usualDate()
	if date == "" {
		return strings.Replace(defaultTemplate, "{date:yyyyMMdd}", "", 1)
	}
	return strings.Replace(defaultTemplate, "yyyyMMdd", date, 1)
}

// always is the only period of Never. Its counter expires at the end of the year 9999.
var always = &period{label: "all", wall: time.Unix(0, 0).UTC(), end: 253402214400}

// The years 1 to 9999 and two days more, in Unix seconds: no zone is a day from UTC, and no day start is later than a day.
const (
	earliestInstant = -62135596800 - 2*daySeconds
	latestInstant   = 253402300800 + 2*daySeconds
)

// at returns the period that t belongs to. For an instant that is not in the years 1 to 9999 it may be a period that does not contain it.
func (c calendar) at(t time.Time) *period {
	at := min(max(t.Unix(), earliestInstant), latestInstant)
	return c.nth(c.index(latest(at, c.location) - c.dayStart))
}

// dated reports whether the date of an instant, of its business day if the calendar has one, is in 1970 to 9999.
func (c calendar) dated(t time.Time) bool {
	if c.period == Never {
		return t.Unix() < always.end && c.per(PerHour).dated(t)
	}
	days := c
	days.period = PerDay
	day := days.at(t)
	year := day.wall.Year()
	return day.start <= t.Unix() && t.Unix() < day.end && year >= 1970 && year <= 9999
}

// of returns the period that begins with the reading wall. It reports false if there is none: Apia skipped 30 December 2011.
func (c calendar) of(wall time.Time) (*period, bool) {
	p := c.nth(c.index(wall.Unix()))
	return p, p.start < p.end
}

// next returns the period that begins where p ends.
func (c calendar) next(p *period) *period { return c.at(time.Unix(p.end, 0)) }

// previous returns the period that ends where p begins.
func (c calendar) previous(p *period) *period { return c.at(time.Unix(p.start-1, 0)) }

// later returns the n-th period after p, as n calls of next would; n is at least 0.
func (c calendar) later(p *period, n int) *period {
	for n > 0 && c.period != Never {
		// Until the clocks change, no label is left out, so indices count the periods.
		i := c.index(p.wall.Unix())
		last := i + int64(n)
		if _, end := segment(p.start, c.location); end < forever {
			last = min(last, c.index(latest(end-1, c.location)-c.dayStart))
		}
		if last == i {
			p, n = c.next(p), n-1
			continue
		}
		p, n = c.nth(last), n-int(last-i)
	}
	return p
}

// nth returns the period whose label has the index i. If the clock jumped over the label, the period is empty and ends at
// its start.
func (c calendar) nth(i int64) *period {
	if c.period == Never {
		return always
	}
	wall := c.wall(i)
	return &period{
		label: c.label(wall),
		wall:  wall,
		start: begin(wall.Unix()+c.dayStart, c.location),
		end:   begin(c.wall(i+1).Unix()+c.dayStart, c.location),
	}
}

// label names the period that begins with the reading wall.
func (c calendar) label(wall time.Time) string {
	switch c.period {
	case PerWeek:
		year, week := wall.ISOWeek()
		return fmt.Sprintf("%04dW%02d", year, week)
	case PerQuarter:
		year, quarter := c.yearStart.of(wall)
		return fmt.Sprintf("%04dQ%d", year, quarter)
	}
	return wall.Format(kinds[c.period].label)
}

// Weeks are counted from Thursday, 1 January 1970: the first Monday was three days before.
const mondayBefore = 3 * daySeconds

// index numbers the labels of the calendar in their order, including those that no period has. It returns the index of the
// label that a wall-clock reading falls under; wall is that reading in Unix seconds, as if it were UTC.
func (c calendar) index(wall int64) int64 {
	kind := kinds[c.period]
	switch {
	case c.period == PerWeek:
		return floorDiv(wall+mondayBefore, kind.seconds)
	case kind.seconds > 0:
		return floorDiv(wall, kind.seconds)
	case c.period == PerMonth:
		y, m, _ := time.Unix(wall, 0).UTC().Date()
		return int64(y)*12 + int64(m-time.January)
	}
	year, quarter := c.yearStart.of(time.Unix(wall, 0).UTC())
	if c.period == PerQuarter {
		return int64(year)*4 + int64(quarter-1)
	}
	return int64(year)
}

// wall is the inverse of index: it returns the label with index i, as if it were UTC.
func (c calendar) wall(i int64) time.Time {
	kind := kinds[c.period]
	switch {
	case c.period == PerWeek:
		return time.Unix(i*kind.seconds-mondayBefore, 0).UTC()
	case kind.seconds > 0:
		return time.Unix(i*kind.seconds, 0).UTC()
	case c.period == PerMonth:
		return time.Date(0, time.January+time.Month(i), 1, 0, 0, 0, 0, time.UTC)
	}
	return time.Date(0, time.Month(1+c.yearStart.month+kind.months*int(i)), 1+c.yearStart.day, 0, 0, 0, 0, time.UTC)
}

// floorDiv is a/b, rounded down also below 0; b is positive.
func floorDiv[T int | int64](a, b T) T {
	q := a / b
	if a%b < 0 {
		q--
	}
	return q
}

// begin returns the first instant, in Unix seconds, at which a wall clock in loc shows wall or later. wall is that reading
// in Unix seconds, as if it were UTC.
//
// time.Date cannot be used: for a midnight that does not exist it returns 23:00 or 01:00, and for one that comes twice it
// may return the second. Between two changes of the zone's offset the answer is plain arithmetic. So begin walks these
// segments, from a day and a half before (no zone is further from UTC than a day). The first segment whose clock reaches
// wall has the answer, at its very start if the change of clocks jumped over wall.
func begin(wall int64, loc *time.Location) int64 {
	const dayAndAHalf = 36 * 60 * 60
	from := int64(math.MinInt64) // the first segment began earlier
	for t := wall - dayAndAHalf; ; {
		offset, end := segment(t, loc)
		if reached := max(wall-offset, from); reached < end {
			return reached
		}
		t, from = end, end
	}
}

// latest returns the latest reading that a wall clock in loc has shown up to the instant at. Both are Unix seconds, the reading
// as if it were UTC. It is the reading at that instant unless clocks were set back, by less than two days, shortly before.
func latest(at int64, loc *time.Location) int64 {
	const twoDays = 48 * 60 * 60
	shown := int64(math.MinInt64)
	for t := at - twoDays; ; {
		offset, end := segment(t, loc)
		if end > at {
			return max(shown, at+offset)
		}
		shown = max(shown, end-1+offset)
		t = end
	}
}

// forever is the end of a segment that does not end.
const forever = int64(1) << 60

// segment returns how far clocks in loc are ahead of UTC at t, in seconds, and an instant after t until which that offset
// stays. Both instants are Unix seconds.
func segment(t int64, loc *time.Location) (offset, end int64) {
	const hour = 60 * 60
	at := time.Unix(t, 0).In(loc)
	_, ahead := at.Zone()
	_, until := at.ZoneBounds()
	end = until.Unix()
	switch {
	case until.IsZero():
		end = forever
	case end <= t:
		// Where a zone follows a rule, Go also ends segments with the year. In leap years it ends them a day too early, so
		// that this day belongs to none. No zone changes its clocks on that day.
		end = t + hour
	}
	return int64(ahead), end
}
