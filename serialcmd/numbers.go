package serialcmd

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/dailyserial/serial"
	"github.com/dailyserial/serial/internal/calendar"
	"github.com/dailyserial/serial/internal/template"
	"github.com/dailyserial/serial/internal/wire"
)

// maxBatch is the maximum count of numbers that one call of NextN can issue.
const maxBatch = 100_000

// next prints each batch of numbers before it requests another one. So after a failure, no issued number is lost, and
// if stdout is closed, no further numbers are issued.
func (c *command) next(ctx context.Context) error {
	if c.once != "" && c.n > 1 {
		return misused("-once issues one number, but -n is %d", c.n)
	}
	if err := cmp.Or(c.checkOutput(), c.checkReader()); err != nil {
		return err
	}
	if c.Warning != "" {
		c.warn("%s", c.Warning)
	}
	if c.once != "" {
		number, err := c.gen.NextOnce(ctx, c.args[0], c.once)
		if err != nil {
			return err
		}
		return c.printAll([]serial.Number{number})
	}
	for done := 0; done < c.n; {
		numbers, err := c.gen.NextN(ctx, c.args[0], min(maxBatch, c.n-done))
		if err != nil && done > 0 {
			return fmt.Errorf("%w; %d of %d numbers were printed", err, done, c.n)
		}
		if err != nil {
			return err
		}
		if err := c.printAll(numbers); err != nil {
			return err
		}
		done += len(numbers)
	}
	return nil
}

// printAll prints issued numbers. If they cannot be printed, the error contains them, because they are stored nowhere
// else.
func (c *command) printAll(numbers []serial.Number) error {
	for _, n := range numbers {
		if c.json {
			c.printJSON(newLine(n))
		} else {
			c.println(n)
		}
	}
	err := c.out.Flush()
	switch first, last := numbers[0], numbers[len(numbers)-1]; {
	case err == nil:
		return nil
	case len(numbers) == 1:
		return fmt.Errorf("the number %s was issued but could not be written: %w", first, err)
	default:
		return fmt.Errorf("the %d numbers from %s to %s were issued but could not all be written: %w",
			len(numbers), first, last, err)
	}
}

// checkOutput returns an error if nothing can be written to stdout.
func (c *command) checkOutput() error {
	if file, ok := c.Stdout.(*os.File); ok {
		if _, err := file.Write(nil); err != nil {
			return fmt.Errorf("cannot write to stdout: %w; nothing was sent", err)
		}
	}
	return nil
}

// checkReader returns an error if stdout may be closed. If a program starts without stdout, Go opens os.DevNull in its
// place, for reading and writing. After "> /dev/null", stdout is open only for writing, so a read fails. But a caller
// that wants no output may also open os.DevNull for reading and writing. So only the command next makes this check,
// because its numbers would otherwise be lost.
func (c *command) checkReader() error {
	file, ok := c.Stdout.(*os.File)
	if !ok || runtime.GOOS == "windows" {
		return nil
	}
	info, err := file.Stat()
	if err != nil || !isNull(info) {
		return nil
	}
	if _, err := file.Read(make([]byte, 1)); err == io.EOF {
		return errors.New("stdout is closed, or is " + os.DevNull + " opened for reading and writing, which looks the " +
			"same; nothing was sent")
	}
	return nil
}

// isTerminal reports whether an input or output seems to be a terminal.
func isTerminal(stream any) bool {
	file, ok := stream.(interface{ Stat() (fs.FileInfo, error) })
	if !ok {
		return false
	}
	info, err := file.Stat()
	if err != nil || info.Mode()&fs.ModeCharDevice == 0 {
		return false
	}
	return !isNull(info) // os.DevNull is the stdin of a service
}

// isNull reports whether a file is os.DevNull.
func isNull(info fs.FileInfo) bool {
	null, err := os.Stat(os.DevNull)
	return err == nil && os.SameFile(info, null)
}

func (c *command) peek(ctx context.Context) error {
	number, err := c.gen.Peek(ctx, c.args[0])
	if err != nil {
		return err
	}
	line, err := c.lineNow(ctx, number)
	switch {
	case err != nil:
		return err
	case c.json:
		c.printJSON(line)
	case number.Seq == 0:
		c.warn("Redis has no number of %s since %s", c.series(number.Type), number.Start.Format(time.RFC3339))
	case number.Date.IsZero(): // the template prints a more exact date than Redis stores
		c.printf("seq %d\n", number.Seq)
		if line.Today != "" {
			c.println("today", line.Today)
		}
	default:
		c.println(number)
	}
	return nil
}

func (c *command) parseNumber(context.Context) error {
	number, err := c.scheme.Parse(c.args[0])
	switch {
	case err != nil:
		return err
	case c.json:
		c.printJSON(newLine(number))
	default:
		if number.Type != "" {
			c.println("type", number.Type)
		}
		c.printf("start %s\nseq %d\n", number.Start.Format(time.RFC3339), number.Seq)
	}
	return nil
}

// settingFlags replaces options in a message of the library, such as WithPeriod(PerDay) and "a larger WithLast", with
// flags of cmd/serial.
func settingFlags(message string) string {
	for unit := calendar.Second; unit.Valid(); unit++ {
		message = strings.ReplaceAll(message, fmt.Sprintf("WithPeriod(%v)", serial.Period(unit)), "-period "+unit.Noun())
	}
	return strings.NewReplacer("WithLast ", "-last ", "WithUntil ", "-until ", "WithRetention ", "-retention ").
		Replace(message)
}

// history prints a line with a bar for each period, newest period first. The bar shows which share of the period's
// numbers was issued. If the template has no largest sequence, the bar is relative to the largest count.
// [serial.Generator.History] omits the current period if its counter is lost, as if it had no numbers. Therefore
// history calls Peek at the end, which then returns an error.
func (c *command) history(ctx context.Context) error {
	numbers, err := c.gen.History(ctx, c.args[0], c.n)
	if err != nil {
		return err
	}
	first, largest := c.scheme.Limits()
	count := func(n serial.Number) int64 { return max(n.Seq-first+1, 0) }
	var highest int64
	width := 0 // length of the longest name
	for _, n := range numbers {
		highest, width = max(highest, count(n)), max(width, len(c.name(n.Start)))
	}
	digits := len(strconv.FormatInt(highest, 10))
	limited, all := largest < template.MaxSequence, largest-first+1
	if !limited {
		all = max(highest, 1)
	}
	for _, n := range numbers {
		used, percent := float64(count(n))/float64(all), ""
		line := newLine(n)
		if limited {
			percent = fmt.Sprintf(" %5.1f%%", 100*used)
			line.Used = &used
		}
		if c.json {
			c.printJSON(line)
			continue
		}
		c.printf("%-*s %s %*d%s\n", width, c.name(n.Start), bar(used), digits, count(n), percent)
	}
	if len(numbers) == 0 {
		c.warn("%s has no counter in the last %s", c.series(c.args[0]), counted(int64(c.n), "period"))
	}
	_, err = c.gen.Peek(ctx, c.args[0])
	return err
}

// name returns the readable name of the period that begins at start.
func (c *command) name(start time.Time) string {
	return c.scheme.PeriodName(serial.At(start))
}

// bar draws a share from 0 to 1.
func bar(share float64) string {
	const width = 24
	full := min(width, int(math.Round(share*width)))
	if share > 0 {
		full = max(full, 1) // so that a small share is visible
	}
	return strings.Repeat("█", full) + strings.Repeat("·", width-full)
}

// An example is an instant for which the command prints a number.
type example struct {
	what string
	at   time.Time
}

// examples returns the given time, the beginnings of the next month, year and business year, and the last second before
// each of these beginnings, in chronological order.
func (c *command) examples(now time.Time) []example {
	y, m, _ := now.Date()
	all := []example{{"now", now}}
	turn := func(before, after string, y int, m time.Month, d int) {
		at := c.businessDay(y, m, d)
		all = append(all, example{before, at.Add(-time.Second)}, example{after, at})
	}
	turn("the end of the month", "the next month", y, m+1, 1)
	turn("the end of the year", "New Year", y+1, time.January, 1)
	if first := c.Calendar.YearStart; first != (calendar.YearStart{}) {
		month, day := time.Month(first.Month+1), first.Day+1
		if !c.businessDay(y, month, day).After(now) {
			y++
		}
		turn("the end of the business year", "the next business year", y, month, day)
	}
	slices.SortStableFunc(all, func(a, b example) int { return a.at.Compare(b.at) })
	return slices.CompactFunc(all, func(a, b example) bool { return a.at.Equal(b.at) })
}

// businessDay returns the beginning of a business day.
func (c *command) businessDay(y int, m time.Month, d int) time.Time {
	return time.Date(y, m, d, 0, 0, int(c.Calendar.DayStart), 0, c.Calendar.Location)
}

// explain prints which sequences a template can print, and examples of its numbers.
func (c *command) explain(context.Context) (err error) {
	if c.Settings == nil { // otherwise, Settings.Open has made c.scheme with the template
		if c.scheme, err = c.scheme.WithTemplate(c.args[0]); err != nil {
			return err
		}
		c.Facts = c.scheme.Facts()
	}
	typ := "IS"
	if _, err := c.scheme.Series(""); err == nil { // numbers have no type
		typ = ""
	}
	first, last := c.scheme.Limits()
	now := time.Now().In(c.Calendar.Location).Truncate(time.Second)
	_, _, end := c.scheme.Period(serial.At(now))
	if !c.json {
		holds := c.Template.PrintSeq(first) + " to " + c.Template.PrintSeq(last)
		if last == template.MaxSequence {
			holds = c.Template.PrintSeq(first) + " to 10^15-1"
		}
		again := "they start again at " + end.Format(time.RFC3339)
		if c.Calendar.Unit == calendar.Never {
			again = "they never start again"
		}
		c.printf("template   %s\nperiod     %s\nsequences  %s; %s\n", c.Text, c.Calendar.Unit.Noun(), holds, again)
		if c.Hidden {
			c.println("           hidden: the printed number does not show them")
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
			}{e.what, e.at, newLine(n)})
		case err == nil:
			c.printf("%s  %-24s %s\n", e.at.Format(time.RFC3339), n, e.what)
		default:
			c.warn("%s: %s", e.what, strings.TrimPrefix(err.Error(), "serial: "))
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
		c.printf("integer    %d\n", v)
	} else {
		c.printf("integer    none: %s\n", strings.TrimPrefix(err.Error(), "serial: Int64: "))
	}
	return nil
}

// A line is an object that -json prints.
type line struct {
	Number string    `json:"number,omitempty"` // omitted if no number was issued, or if its date is unknown
	Type   string    `json:"type"`
	Start  time.Time `json:"start"`
	Seq    int64     `json:"seq"`
	Today  string    `json:"today,omitempty"` // number with today's date, if its own date is unknown
	Used   *float64  `json:"used,omitempty"`  // share of the period's numbers that were issued
	Next   string    `json:"next,omitempty"`  // next number; omitted if none is left

	Skipped *explanation `json:"skipped,omitempty"`
}

func newLine(n serial.Number) line {
	l := line{Type: n.Type, Start: n.Start, Seq: n.Seq}
	if n.Seq > 0 {
		l.Number = n.String()
	}
	return l
}

// lineNow returns the line for the last number of a period. If the date of the number is unknown, it sets Today.
func (c *command) lineNow(ctx context.Context, n serial.Number) (line, error) {
	l := newLine(n)
	if n.Seq == 0 || !n.Date.IsZero() {
		return l, nil
	}
	today, err := c.dateNow(ctx, n)
	l.Today = today.String()
	return l, err
}

// redisTime returns the time of Redis's clock. If it returns an error, the time is that of this host.
func (c *command) redisTime(ctx context.Context) (time.Time, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	now, err := c.Client.Time(ctx).Result()
	if err != nil {
		return time.Now(), wire.Failed("Redis", err)
	}
	return now, nil
}

// dateNow returns n with the current date of Redis's clock. If n's period has ended, it returns n with the first date
// of that period. If the scheme cannot print the sequence, it returns the zero Number.
func (c *command) dateNow(ctx context.Context, n serial.Number) (serial.Number, error) {
	now, err := c.redisTime(ctx)
	if err != nil {
		return serial.Number{}, err
	}
	if _, start, _ := c.scheme.Period(serial.At(now)); !start.Equal(n.Start) {
		now = n.Start
	}
	dated, _ := c.scheme.Number(n.Type, serial.At(now), n.Seq) // can fail if another program has written the counter
	return dated, nil
}

func (c *command) printJSON(l line) { _ = json.NewEncoder(c.out).Encode(l) }

// printf prints to stdout. An error is returned by the next Flush.
func (c *command) printf(format string, args ...any) { _, _ = fmt.Fprintf(c.out, format, args...) }

// println prints to stdout. An error is returned by the next Flush.
func (c *command) println(args ...any) { _, _ = fmt.Fprintln(c.out, args...) }

// series returns the type. If all types share a series, it returns the name of the series instead.
func (c *command) series(typ string) string {
	if c.Shared {
		typ, _ = c.scheme.Series(typ)
	}
	return typ
}
