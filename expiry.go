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
	PerYear
)

const allowedPeriods = "allowed are PerSecond, PerMinute, PerHour, PerDay, PerMonth and PerYear"

// kinds holds what differs from one Period to another.
var kinds = [...]struct {
	name    string
	one     string    // one of them, for messages
	seconds int64     // length by the wall clock; 0 if it varies
	finest  fieldKind // date field that tells one period from the next
	digits  int       // digits of the label, which begins yyyyMMddHHmmss
}{
	PerSecond: {"PerSecond", "a second", 1, fieldSecond, 14},
	PerMinute: {"PerMinute", "a minute", 60, fieldMinute, 12},
	PerHour:   {"PerHour", "an hour", 60 * 60, fieldHour, 10},
	PerDay:    {"PerDay", "a day", 24 * 60 * 60, fieldDay, 8},
	PerMonth:  {"PerMonth", "a month", 0, fieldMonth, 6},
	PerYear:   {"PerYear", "a year", 0, fieldYear, 4},
}

func (p Period) known() bool { return PerSecond <= p && p <= PerYear }

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

// A period is one of the spans that counters serve, such as 24 October 2021 in the configured time zone. It is a value
// computed from one instant; key, printed date and expiry all come from it.
type period struct {
	label string    // name of the period in the counter's key, such as 20211024
	wall  time.Time // label as a wall-clock reading, as if it were UTC
	start int64     // first instant of the period, Unix seconds
	end   int64     // first instant after the period, Unix seconds
}

// contains reports whether the instant t, in Unix seconds, lies in p.
func (p *period) contains(t int64) bool { return p.start <= t && t < p.end }

// readable is a period's label as people write dates, such as 2021-10-24.
func readable(label string) string {
	wall, err := time.Parse("20060102150405"[:min(len(label), 14)], label)
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
	location *time.Location
	period   Period
	dayStart int64 // seconds after midnight; 0 if the period is shorter than a day
}

// at returns the period that t belongs to.
func (c calendar) at(t time.Time) *period {
	return c.nth(c.index(latest(t.Unix(), c.location) - c.dayStart))
}

// of returns the period whose label is wall. It reports false if there is none: Apia skipped 30 December 2011.
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
	for n > 0 {
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
	wall := c.wall(i)
	return &period{
		label: wall.Format("20060102150405"[:kinds[c.period].digits]),
		wall:  wall,
		start: begin(wall.Unix()+c.dayStart, c.location),
		end:   begin(c.wall(i+1).Unix()+c.dayStart, c.location),
	}
}

// index numbers the labels of the calendar in their order, including those that no period has. It returns the index of the
// label that a wall-clock reading falls under; wall is that reading in Unix seconds, as if it were UTC.
func (c calendar) index(wall int64) int64 {
	switch c.period {
	case PerYear:
		return int64(time.Unix(wall, 0).UTC().Year())
	case PerMonth:
		y, m, _ := time.Unix(wall, 0).UTC().Date()
		return int64(y)*12 + int64(m-time.January)
	}
	unit := kinds[c.period].seconds
	return (wall - ((wall%unit)+unit)%unit) / unit // rounds down, also before 1970
}

// wall is the inverse of index: it returns the label with index i, as if it were UTC.
func (c calendar) wall(i int64) time.Time {
	switch c.period {
	case PerYear:
		return time.Date(int(i), time.January, 1, 0, 0, 0, 0, time.UTC)
	case PerMonth:
		return time.Date(0, time.January+time.Month(i), 1, 0, 0, 0, 0, time.UTC)
	}
	return time.Unix(i*kinds[c.period].seconds, 0).UTC()
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
