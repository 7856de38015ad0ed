package serial

import (
	"fmt"
	"time"
)

// A period is the span that one counter serves: a day of the configured time zone. It is a value computed once per
// number from one instant; key, printed date and expiry all come from it.
type period struct {
	label string    // names the period in the counter's key: 20211024
	wall  time.Time // the label as a wall clock reads it, kept as if it were UTC
	start int64     // first instant that belongs to it, Unix seconds
	end   int64     // first instant that does not any more, Unix seconds
	args  [3]any    // for scripts: "LABEL START END", as the record holds them to tell it from every other; start; end
}

// contains reports whether the instant t, in Unix seconds, lies in p.
func (p *period) contains(t int64) bool { return p.start <= t && t < p.end }

func (p *period) String() string {
	return fmt.Sprintf("%s [%s, %s)", p.label,
		time.Unix(p.start, 0).UTC().Format(time.RFC3339), time.Unix(p.end, 0).UTC().Format(time.RFC3339))
}

// periodAt returns the period that t belongs to in loc.
//
// The day of t is the latest one that has begun, which is not always the date that a clock on the wall shows: where
// clocks are set back across midnight the old date returns for a while, but a day once begun is never left.
func periodAt(t time.Time, loc *time.Location) *period {
	y, m, d := t.In(loc).Date()
	// Two days on is further than any set-back reaches, so that begun is true for some day at or before it.
	for ahead := 2; ; ahead-- {
		wall := time.Date(y, m, d+ahead, 0, 0, 0, 0, time.UTC)
		if start := begin(wall, loc); start <= t.Unix() {
			return newPeriod(wall, start, loc)
		}
	}
}

// periodOf returns the period whose label is wall, and false where loc has no such day: Apia skipped 30 December 2011.
func periodOf(wall time.Time, loc *time.Location) (*period, bool) {
	p := newPeriod(wall, begin(wall, loc), loc)
	return p, p.start < p.end
}

func newPeriod(wall time.Time, start int64, loc *time.Location) *period {
	p := &period{
		label: wall.Format("20060102"),
		wall:  wall,
		start: start,
		end:   begin(wall.AddDate(0, 0, 1), loc),
	}
	p.args = [3]any{fmt.Sprintf("%s %d %d", p.label, p.start, p.end), p.start, p.end}
	return p
}

// begin returns the first instant, in Unix seconds, at which a wall clock in loc shows wall or later. wall is that
// reading, as if it were UTC.
//
// time.Date cannot be used: for a midnight that does not exist it answers 23:00 or 01:00, and of one that comes twice
// it may pick the second. Between two changes of the zone's offset the answer is plain arithmetic, so begin walks
// those segments, from a day and a half before (no zone is further from UTC than a day): the first segment whose clock
// reaches wall has it, at its very start if the change of clocks jumped over wall.
func begin(wall time.Time, loc *time.Location) int64 {
	const hour, dayAndAHalf = 60 * 60, 36 * 60 * 60
	t := wall.Unix() - dayAndAHalf
	offset := offsetAt(t, loc)
	for {
		_, end := time.Unix(t, 0).In(loc).ZoneBounds() // zero if the offset never changes again
		next := end.Unix()
		if next <= t {
			// Where a zone goes on by a rule, Go ends segments with the year as well, and those of leap years a day too
			// early, so that this day belongs to none. The clocks of no zone change on it.
			next = t + hour
		}
		reached := wall.Unix() - offset
		if end.IsZero() || reached < next {
			return reached
		}
		t, offset = next, offsetAt(next, loc)
		if wall.Unix()-offset < t {
			return t
		}
	}
}

// offsetAt is how far clocks in loc are ahead of UTC at t, in seconds.
func offsetAt(t int64, loc *time.Location) int64 {
	_, offset := time.Unix(t, 0).In(loc).Zone()
	return int64(offset)
}
