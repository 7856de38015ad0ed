package serialcmd

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/dailyserial/serial"
	"github.com/dailyserial/serial/internal/redisrun"
)

// print prints a number that was issued.
func (c *command) print(n serial.Number) {
	if c.json {
		c.printJSON(lineOf(n))
	} else {
		c.println(n)
	}
}

// A line is what -json prints.
type line struct {
	Number string    `json:"number,omitempty"` // omitted if none was issued, or if its date is not known
	Type   string    `json:"type"`
	Start  time.Time `json:"start"`
	Seq    int64     `json:"seq"`
	Today  string    `json:"today,omitempty"` // if its date is not known: the same sequence with today's date
	Used   *float64  `json:"used,omitempty"`  // share of the period's numbers that were issued
	Next   string    `json:"next,omitempty"`  // the number after this one; omitted if none is left

	Skipped *skipped `json:"skipped,omitempty"`
}

func lineOf(n serial.Number) line {
	l := line{Type: n.Type, Start: n.Start, Seq: n.Seq}
	if n.Seq > 0 {
		l.Number = n.String()
	}
	return l
}

// lineNow is lineOf for the last number of a period.
func (c *command) lineNow(ctx context.Context, n serial.Number) (line, error) {
	l := lineOf(n)
	if n.Seq == 0 || !n.Date.IsZero() {
		return l, nil
	}
	today, err := c.dateNow(ctx, n)
	l.Today = today.String()
	return l, err
}

// redisTime returns the time by Redis's clock, or an error and the time by this host's clock.
func (c *command) redisTime(ctx context.Context) (time.Time, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	now, err := c.Client.Time(ctx).Result()
	if err != nil {
		return time.Now(), redisrun.Failed("Redis", err, false)
	}
	return now, nil
}

// dateNow returns the number that would be issued now, by Redis's clock, with the sequence of n. If n's period ended
// meanwhile, its date is the beginning of that period. The Number is zero if the scheme cannot print the sequence.
func (c *command) dateNow(ctx context.Context, n serial.Number) (serial.Number, error) {
	now, err := c.redisTime(ctx)
	if err != nil {
		return serial.Number{}, err
	}
	if _, start, _ := c.scheme.Period(serial.At(now)); !start.Equal(n.Start) {
		now = n.Start
	}
	dated, _ := c.scheme.Number(n.Type, serial.At(now), n.Seq) // fails if something else wrote the counter
	return dated, nil
}

func (c *command) printJSON(l line) { _ = json.NewEncoder(c.out).Encode(l) }

// printf prints on stdout, which remembers errors.
func (c *command) printf(format string, args ...any) { _, _ = fmt.Fprintf(c.out, format, args...) }

// println prints on stdout, which remembers errors.
func (c *command) println(args ...any) { _, _ = fmt.Fprintln(c.out, args...) }

// series names a type's numbers: by the type, or by the series if types share it.
func (c *command) series(typ string) string {
	if c.Shared {
		typ, _ = c.scheme.Series(typ)
	}
	return typ
}
