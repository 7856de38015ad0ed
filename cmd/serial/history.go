package main

import (
	"context"
	"fmt"
	"math"
	"regexp"
	"slices"
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

var periods = []period{
	{"second", serial.PerSecond, "yyyyMMddHHmmss", "2006-01-02 15:04:05"},
	{"minute", serial.PerMinute, "yyyyMMddHHmm", "2006-01-02 15:04"},
	{"hour", serial.PerHour, "yyyyMMddHH", "2006-01-02 15h"},
	{"day", serial.PerDay, "yyyyMMdd", "2006-01-02"},
	{"month", serial.PerMonth, "yyyyMM", "2006-01"},
	{"year", serial.PerYear, "yyyy", "2006"},
}

// kind returns the command's period.
func (c *command) kind() period {
	return periods[slices.IndexFunc(periods, func(p period) bool { return p.per == c.period })]
}

// history prints a line for each period, newest first, with a bar. The bar shows the share of the period's numbers or, if
// these have no limit, of the most that were issued in any of the periods.
func (c *command) history(ctx context.Context, gen *serial.Generator) error {
	numbers, err := gen.History(ctx, c.args[0], c.n)
	if err != nil {
		return err
	}
	all, bounded := c.size()
	if !bounded {
		for _, n := range numbers {
			all = max(all, c.count(n))
		}
	}
	for _, n := range numbers {
		used := float64(c.count(n)) / float64(max(all, 1))
		if c.json {
			share := &used
			if !bounded {
				share = nil
			}
			c.printJSON(n, share)
			continue
		}
		percent := ""
		if bounded {
			percent = fmt.Sprintf(" %5.1f%%", 100*used)
		}
		_, _ = fmt.Fprintf(c.out, "%s %s %d%s\n", n.Start.Format(c.kind().line), bar(used), c.count(n), percent)
	}
	if len(numbers) == 0 {
		_, _ = fmt.Fprintf(c.stderr, "serial: no %s is kept of the last %d periods\n", c.args[0], c.n)
	}
	return nil
}

// count returns how many numbers were issued up to n.
func (c *command) count(n serial.Number) int64 { return max(n.Seq-c.start+1, 0) }

var sequence = regexp.MustCompile(`\{seq(?::(\d+)(\+?))?\}`)

// size returns how many numbers a period has, and false if there is no limit.
func (c *command) size() (int64, bool) {
	width := 4
	field := sequence.FindStringSubmatch(c.template)
	if len(field) > 1 && field[1] != "" {
		width, _ = strconv.Atoi(field[1])
	}
	return int64(math.Pow10(width)) - c.start, len(field) == 0 || field[2] == ""
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
