package main

import (
	"context"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"

	"github.com/dailyserial/serial"
)

// A period is a value of -period.
type period struct {
	name string
	per  serial.Period
	date string // date in the default template
	line string // layout of a line of history, for time.Format
}

// daily is the default.
var daily = period{"day", serial.PerDay, "yyyyMMdd", "2006-01-02"}

var periods = []period{
	{"second", serial.PerSecond, "yyyyMMddHHmmss", "2006-01-02 15:04:05"},
	{"minute", serial.PerMinute, "yyyyMMddHHmm", "2006-01-02 15:04"},
	{"hour", serial.PerHour, "yyyyMMddHH", "2006-01-02 15h"},
	daily,
	{"month", serial.PerMonth, "yyyyMM", "2006-01"},
	{"year", serial.PerYear, "yyyy", "2006"},
}

// history prints a line for each period, newest first, with a bar. The bar shows the share of the period's numbers or, if
// these have no limit, of the most that were issued in any of the periods.
func (c *command) history(ctx context.Context) error {
	numbers, err := c.gen.History(ctx, c.args[0], c.n)
	if err != nil {
		return err
	}
	var most int64
	for _, n := range numbers {
		most = max(most, c.count(n))
	}
	digits := len(strconv.FormatInt(most, 10))
	largest, limited := c.largest()
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
			c.printJSON(line)
			continue
		}
		_, _ = fmt.Fprintf(c.out, "%s %s %*d%s\n", n.Start.Format(c.period.line), bar(used), digits, c.count(n), percent)
	}
	if len(numbers) == 0 {
		_, _ = fmt.Fprintf(c.stderr, "serial: no %s is kept of the last %d periods\n", c.args[0], c.n)
	}
	return nil
}

// count returns how many numbers were issued up to n.
func (c *command) count(n serial.Number) int64 { return max(n.Seq-c.start+1, 0) }

var (
	literal  = strings.NewReplacer("{{", "", "}}", "") // removes braces that begin and end no field
	sequence = regexp.MustCompile(`\{seq(?::(\d+)(\+?))?\}`)
)

// largest returns the largest sequence of a period, and false if it is only where the library ends.
func (c *command) largest() (int64, bool) {
	width, limited := 4, true
	if field := sequence.FindStringSubmatch(literal.Replace(c.template)); len(field) > 0 && field[1] != "" {
		width, _ = strconv.Atoi(field[1])
		limited = field[2] == ""
	}
	if !limited {
		width = 15
	}
	return int64(math.Pow10(width)) - 1, limited
}

// bar draws a share, 0 to 1, in eighths of a character.
func bar(share float64) string {
	const width = 24
	eighths := int(math.Round(share * width * 8))
	if share > 0 {
		eighths = max(eighths, 1) // little differs from nothing
	}
	eighths = min(eighths, width*8)
	full := strings.Repeat("█", eighths/8)
	if rest := eighths % 8; rest > 0 {
		full += string(rune('█' + 8 - rest)) // ▏ to ▉ follow the full block
	}
	return full + strings.Repeat("·", width-(eighths+7)/8)
}
