package gapless

import (
	"fmt"
	"math"
	"strconv"
	"time"
)

// A clock contains a time that was read from the database's clock, and the time of this host when the reply arrived
// (readAt). The current time of the database is time plus the monotonic time since readAt, so changes of this host's
// wall clock do not matter.
//
// The result is late by the time that the reply took to arrive, but it is never ahead. Therefore no caller begins a
// period too early. Otherwise, a caller could lock the row of the next period and then wait for the row of the current
// one, which could cause a deadlock.
type clock struct{ time, readAt time.Time }

func (c *clock) now() time.Time { return c.time.Add(time.Since(c.readAt)) }

var since = time.Since // replaced in tests

// remember stores a time of the database's clock, which a statement has read at most age ago. If the clock that is
// already stored is consistent with this time, remember keeps that clock, because it may be less late.
func (g *Generator) remember(now time.Time, age time.Duration) {
	if c := g.clock.Load(); c != nil {
		if known := c.now(); !known.Before(now) && !known.After(now.Add(age)) {
			return
		}
	}
	g.clock.Store(&clock{now, time.Now()})
}

// now returns the current time by the database's clock. If that clock has not been read yet, it returns the time of
// this host's clock.
func (g *Generator) now() time.Time {
	if c := g.clock.Load(); c != nil {
		return c.now()
	}
	return time.Now()
}

// A clockTime scans the time of the database's clock from a column. The column contains Unix microseconds. In SQLite,
// whose clock counts milliseconds, it contains a Julian day.
type clockTime struct{ time.Time }

// Scan implements [sql.Scanner] for a column whose expression in the statement is {now}.
func (r *clockTime) Scan(column any) error {
	switch now := column.(type) {
	case float64:
		const epoch = 210_866_760_000_000 // milliseconds from Julian day 0 to 1970
		r.Time = time.UnixMilli(int64(math.Round(now*86_400_000)) - epoch)
	case int64:
		r.Time = time.UnixMicro(now)
	case []byte: // some MySQL drivers return numbers as text
		micros, err := strconv.ParseInt(string(now), 10, 64)
		if err != nil {
			return err
		}
		r.Time = time.UnixMicro(micros)
	default:
		return fmt.Errorf("the database's clock is a %T", column)
	}
	return nil
}
