package gapless

import (
	"fmt"
	"math"
	"strconv"
	"time"
)

// A clock is a reading of the database's clock, and when it was taken; nil before the first. The time now follows from
// the time that has passed since, whatever happens to this host's wall clock, and is late by the time the answer took
// to arrive. So it is never ahead, and nobody begins a period early: whoever did would keep the next period's row
// locked while waiting for the row of this one, which can be a deadlock.
type clock struct{ said, read time.Time }

func (c *clock) now() time.Time { return c.said.Add(time.Since(c.read)) }

var since = time.Since // tests replace it

// remember stores a reading of the database's clock, which is at most age old. If the one before agrees with it, that
// one stays: it may be less late.
func (g *Generator) remember(now time.Time, age time.Duration) {
	if c := g.clock.Load(); c != nil {
		if known := c.now(); !known.Before(now) && !known.After(now.Add(age)) {
			return
		}
	}
	g.clock.Store(&clock{now, time.Now()})
}

// now returns the time by the last known clock: the database's or, if that was not read yet, this host's.
func (g *Generator) now() time.Time {
	if c := g.clock.Load(); c != nil {
		return c.now()
	}
	return time.Now()
}

// A reading is the time by the database's clock: Unix microseconds or, in SQLite, which counts milliseconds, a Julian
// day.
type reading struct{ time.Time }

// Scan takes a column that {now} filled.
func (r *reading) Scan(column any) error {
	switch now := column.(type) {
	case float64:
		const epoch = 210_866_760_000_000 // milliseconds from Julian day 0 to 1970
		r.Time = time.UnixMilli(int64(math.Round(now*86_400_000)) - epoch)
	case int64:
		r.Time = time.UnixMicro(now)
	case []byte: // some drivers of MySQL pass on the server's text
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
