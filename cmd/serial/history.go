package main

import (
	"context"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/dailyserial/serial"
)

// A period is a value of -period.
type period struct {
	name string
	per  serial.Period
	date string // in the default template; "" for none
}

// shorter reports whether the period is shorter than a day, so that a date does not name one.
func (p period) shorter() bool { return p.per < serial.PerDay }

// daily is the default.
var daily = period{"day", serial.PerDay, "yyyyMMdd"}

var periods = []period{
	{"second", serial.PerSecond, "yyyyMMddHHmmss"},
	{"minute", serial.PerMinute, "yyyyMMddHHmm"},
	{"hour", serial.PerHour, "yyyyMMddHH"},
	daily,
	{"week", serial.PerWeek, "GGGG-WW"},
	{"month", serial.PerMonth, "yyyyMM"},
	{"quarter", serial.PerQuarter, "FFFF-Q"},
	{"half-year", serial.PerHalfYear, "FFFF-S"},
	{"year", serial.PerYear, "yyyy"},
	{"never", serial.Never, ""},
}

// asFlags replaces the period's option in a message of the library by the flag.
func asFlags(message string) string {
	for _, p := range periods {
		message = strings.ReplaceAll(message, fmt.Sprintf("WithPeriod(%v)", p.per), "-period "+p.name)
	}
	return message
}

// history prints a line with a bar for each period, newest first. The bar shows the share of the period's numbers that
// were issued or, if they have no limit, the count relative to the largest one.
func (c *command) history(ctx context.Context) error {
	numbers, err := c.gen.History(ctx, c.args[0], c.n)
	if err != nil {
		return err
	}
	var most int64
	width := 0 // of the longest name
	for _, n := range numbers {
		most, width = max(most, c.count(n)), max(width, len(c.out.name(n.Start)))
	}
	digits := len(strconv.FormatInt(most, 10))
	_, largest := c.scheme.Limits()
	limited := largest < mostEver
	all := largest - c.start + 1
	if !limited {
		all = max(most, 1)
	}
	for _, n := range numbers {
		used, percent := float64(c.count(n))/float64(all), ""
		line := lineOf(n)
		if limited {
			percent = fmt.Sprintf(" %5.1f%%", 100*used)
			line.Used = &used
		}
		if c.json {
			c.out.printJSON(line)
			continue
		}
		_, _ = fmt.Fprintf(c.out, "%-*s %s %*d%s\n", width, c.out.name(n.Start), bar(used), digits, c.count(n), percent)
	}
	if len(numbers) == 0 {
		_, _ = fmt.Fprintf(c.stderr, "serial: %s has no counter in the last %d periods\n", c.series(c.args[0]), c.n)
	}
	return nil
}

// count returns how many numbers were issued up to n.
func (s *settings) count(n serial.Number) int64 { return max(n.Seq-s.start+1, 0) }

// mostEver is the largest possible sequence. A template that can print it sets no limit.
const mostEver = 999_999_999_999_999

// name returns the name that people use for the period that begins at start.
func (p *printer) name(start time.Time) string {
	// Only dates from 1970 on have a label, and the first period may have begun earlier.
	if first := time.Date(1970, 1, 1, 0, 0, int(p.dayStart/time.Second), 0, p.zone); start.Before(first) {
		start = first
	}
	return p.scheme.PeriodName(serial.At(start))
}

// bar draws a share from 0 to 1, in eighths of a character.
func bar(share float64) string {
	const width = 24
	eighths := int(math.Round(share * width * 8))
	if share > 0 {
		eighths = max(eighths, 1) // a small share is visible
	}
	eighths = min(eighths, width*8)
	full := strings.Repeat("█", eighths/8)
	if rest := eighths % 8; rest > 0 {
		full += string(rune('█' + 8 - rest)) // ▏ to ▉ follow the full block
	}
	return full + strings.Repeat("·", width-(eighths+7)/8)
}
