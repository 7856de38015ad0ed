package main

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/dailyserial/serial"
)

// An example is an instant for which the command shows a number.
type example struct {
	what string
	at   time.Time
}

// examples returns the instants at which templates differ, and the last second before each, in chronological order.
func (s *settings) examples(now time.Time) []example {
	y, m, _ := now.Date()
	all := []example{{"now", now}}
	turn := func(before, after string, y int, m time.Month, d int) {
		at := time.Date(y, m, d, 0, 0, int(s.dayStart/time.Second), 0, s.zone)
		all = append(all, example{before, at.Add(-time.Second)}, example{after, at})
	}
	turn("the end of the month", "the next month", y, m+1, 1)
	turn("the end of the year", "New Year", y+1, time.January, 1)
	if day, err := time.Parse("01-02", s.yearStart); err == nil && s.yearStart != "01-01" {
		if !time.Date(y, day.Month(), day.Day(), 0, 0, int(s.dayStart/time.Second), 0, s.zone).After(now) {
			y++
		}
		turn("the end of the business year", "the next business year", y, day.Month(), day.Day())
	}
	slices.SortStableFunc(all, func(a, b example) int { return a.at.Compare(b.at) })
	return slices.CompactFunc(all, func(a, b example) bool { return a.at.Equal(b.at) })
}

// explain shows what a template prints, and which sequences it can print. A refused template was reported earlier.
func (c *command) explain(context.Context) error {
	typ := c.exampleType()
	first, last := c.scheme.Limits()
	now := time.Now().In(c.zone).Truncate(time.Second)
	_, _, end := c.scheme.Period(serial.At(now))
	if !c.json {
		holds := c.out.digits(first) + " to " + c.out.digits(last)
		if last == mostEver {
			holds = c.out.digits(first) + " to 10^15-1"
		}
		again := "they start again at " + end.Format(time.RFC3339)
		if c.period.per == serial.Never {
			again = "they never start again"
		}
		_, _ = fmt.Fprintf(c.out, "template   %s\nperiod     %s\nsequences  %s; %s\n", c.template, c.period.name,
			holds, again)
		if c.hiddenKey != nil {
			_, _ = fmt.Fprintln(c.out, "           hidden: the printed number does not show them")
		}
	}
	for _, e := range c.examples(now) {
		n, err := c.scheme.Number(typ, serial.At(e.at), first)
		switch {
		case c.json && err == nil:
			_ = json.NewEncoder(c.out).Encode(struct {
				Example string    `json:"example"`
				At      time.Time `json:"at"`
				line
			}{e.what, e.at, lineOf(n)})
		case err == nil:
			_, _ = fmt.Fprintf(c.out, "%s  %-24s %s\n", e.at.Format(time.RFC3339), n, e.what)
		default:
			_, _ = fmt.Fprintf(c.stderr, "serial: %s: %s\n", e.what, strings.TrimPrefix(err.Error(), "serial: "))
		}
	}
	if c.json {
		return nil
	}
	n, err := c.scheme.Number(typ, serial.At(now), first)
	if err != nil {
		return err
	}
	if v, err := n.Int64(); err == nil {
		_, _ = fmt.Fprintf(c.out, "integer    %d\n", v)
	} else {
		_, _ = fmt.Fprintf(c.out, "integer    none: %s\n", strings.TrimPrefix(err.Error(), "serial: Int64: "))
	}
	return nil
}

// exampleType returns a type for examples, "" if numbers have none.
func (s *settings) exampleType() string {
	if s.typeless() {
		return ""
	}
	return "IS"
}

// digits prints a sequence padded and in the alphabet of the template, but never hidden.
func (p *printer) digits(seq int64) string {
	base, width := p.printed()
	text, zero := strconv.FormatInt(seq, 10), "0"
	switch {
	case base == 36:
		text = strings.ToUpper(strconv.FormatInt(seq, base))
	case base == 32:
		text = crockford.Replace(strconv.FormatInt(seq, base))
	case base == 26:
		text, zero = strings.Map(letter, strconv.FormatInt(seq, base)), "A"
	}
	if len(text) > width && base != 10 { // something else wrote the counter; the library does the same
		return strconv.FormatInt(seq, 10)
	}
	return strings.Repeat(zero, max(0, width-len(text))) + text
}

// letter replaces a digit of base 26 by a letter: 0 by A, p by Z.
func letter(digit rune) rune {
	if digit <= '9' {
		return digit - '0' + 'A'
	}
	return digit - 'a' + 'K'
}

// crockford replaces Go's digits of base 32 by Crockford's.
var crockford = strings.NewReplacer("a", "A", "b", "B", "c", "C", "d", "D", "e", "E", "f", "F", "g", "G", "h", "H",
	"i", "J", "j", "K", "k", "M", "l", "N", "m", "P", "n", "Q", "o", "R", "p", "S", "q", "T", "r", "V", "s", "W", "t", "X",
	"u", "Y", "v", "Z")

// printed returns the base and the width in which the template prints sequences. Both follow from the largest sequence,
// 10ⁿ-1, 26ⁿ-1, 32ⁿ-1 or
// 36ⁿ-1, since no two of these are equal. If a sequence may grow, numbers differ in length.
func (p *printer) printed() (base, width int) {
	_, last := p.scheme.Limits()
	for _, base := range []int64{26, 32, 36} {
		for width, n := 1, base; n <= last+1; width, n = width+1, n*base {
			if n == last+1 {
				return int(base), width
			}
		}
	}
	width = len(strconv.FormatInt(last, 10))
	now := time.Now()
	short, err := p.scheme.Number(p.exampleType(), serial.At(now), 1)
	if err != nil {
		return 10, width
	}
	long, err := p.scheme.Number(p.exampleType(), serial.At(now), last)
	if err != nil {
		return 10, width
	}
	return 10, width - (len(long.String()) - len(short.String()))
}
