package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/dailyserial/serial"
	"github.com/dailyserial/serial/internal/issue"
	"github.com/dailyserial/serial/internal/tally"
	"github.com/dailyserial/serial/internal/template"
)

// A found sums up the numbers of one type and period in the input.
type found struct {
	Type     string    `json:"type"`
	Start    time.Time `json:"start"`
	Action   string    `json:"action"` // see below
	Count    int64     `json:"count"`  // numbers found
	Greatest int64     `json:"greatest"`
	Last     *int64    `json:"last,omitempty"` // the counter before; omitted if it is lost, or the numbers are ignored

	// These are omitted if the numbers are ignored.
	Missing        []gap    `json:"missing,omitempty"`        // ranges between the least and the greatest; the first 1,000
	MissingCount   int64    `json:"missingCount,omitempty"`   // sequences
	Duplicates     []string `json:"duplicates,omitempty"`     // second occurrence of each sequence; the first 10
	DuplicateCount int64    `json:"duplicateCount,omitempty"` // sequences
	Jump           int64    `json:"jump,omitempty"`           // from the next lower sequence to the greatest, if too far

	sequences *tally.Tally // nil for a period that was over when the input was opened, and for types that are ignored
	below     int64        // the next lower sequence
	lines     []int        // of Duplicates
}

// The actions of import.
const (
	raised     = "raised"      // to the greatest number found
	wouldRaise = "would raise" // without -dry-run
	stays      = "stays"       // the counter is already that far
	ignored    = "ignored"     // of another period, or of another type than the one named
)

// mostShown is how many lines of the input are shown of a kind.
const mostShown = 10

// unreadable collects the lines of the input that are not numbers.
type unreadable struct {
	count int64
	first []error
}

// imports raises the counters of the current period to the greatest numbers of another system.
func (c *command) imports(ctx context.Context) error {
	typ, name := c.arg(0), c.arg(1)
	if len(c.args) == 1 && c.in.isFile(typ) {
		typ, name = "", typ
	}
	dry := isTerminal(c.in.stdin)
	if c.dryRun != nil {
		dry = *c.dryRun
	}
	input, err := c.in.open(name)
	if err != nil {
		return err
	}
	defer func() { _ = input.Close() }()
	now, down := c.redisTime(ctx)
	all, err := c.collect(ctx, input, typ, now)
	if err = cmp.Or(err, down); err != nil {
		return err
	}
	// Everything that can be checked without writing is checked before the first write. Only raising a series shows
	// whether it has a ledger, and then it cannot be raised from here.
	first, _ := c.scheme.Limits()
	current := map[string]serial.Number{}
	var doubts []error
	for _, f := range all {
		if _, ok := current[f.Type]; !ok && (typ == "" || f.Type == typ) {
			if current[f.Type], err = c.last(ctx, f.Type); err != nil {
				return err
			}
		}
		last, ok := current[f.Type]
		if !ok || !last.Start.Equal(f.Start) {
			continue
		}
		f.Action = wouldRaise
		if f.Last = &last.Seq; last.Seq < 0 {
			f.Last = nil
		} else if max(last.Seq, first-1) >= f.Greatest {
			f.Action = stays
		}
		if f.sequences == nil {
			return fmt.Errorf("%s: Redis's clock went back while the input was read, so nothing was written", f.Type)
		}
		f.account()
		doubts = append(doubts, c.out.doubts(f)...)
	}
	if typ != "" && len(current) == 0 {
		hint := ""
		if len(c.args) == 1 {
			hint = ", and there is no file of that name"
		}
		return fmt.Errorf("the input has no numbers of type %s%s, so nothing was written", typ, hint)
	}
	failed, lifted := error(nil), int64(0)
	if len(doubts) > 0 && !c.force {
		failed = errors.Join(append(doubts, errors.New("nothing was written; if the numbers are right, use -force"))...)
		doubts = nil
	}
	for _, doubt := range doubts {
		_, _ = fmt.Fprintf(c.stderr, "serial: %v\n", doubt)
	}
	for _, f := range all {
		if f.Action == wouldRaise && !dry && failed == nil {
			if failed = c.lift(ctx, f); failed == nil {
				f.Action = raised
			} else {
				failed = fmt.Errorf("%w; %s raised before %s, and none after it", failed, counted(lifted, "type"), f.Type)
			}
			lifted++
		}
		c.out.printFound(f)
	}
	if len(all) == 0 && failed == nil {
		_, _ = fmt.Fprintln(c.stderr, "serial: the input has no numbers, so nothing was written")
	} else if failed == nil && !slices.ContainsFunc(all, func(f *found) bool { return f.Action != ignored }) {
		_, _ = fmt.Fprintln(c.stderr, "serial: none of the numbers belongs to a current period, so nothing was written; is "+
			"the time zone right?")
	} else if dry && failed == nil {
		_, _ = fmt.Fprintln(c.stderr, "serial: nothing was written; -dry-run=false writes")
	}
	return failed
}

// isFile reports whether the only argument is FILE and not TYPE: there is such a file, or nothing else to read.
func (s *source) isFile(arg string) bool {
	_, err := os.Stat(arg)
	return err == nil || arg == "-" || isTerminal(s.stdin)
}

// collect reads the input. It returns what it found, sorted by type and period. The error has the lines that are not
// numbers. Of numbers that may be raised, if it is not long before now, collect keeps the sequences: those of typ, or
// of all types if it is empty.
func (c *command) collect(ctx context.Context, input io.Reader, typ string, now time.Time) ([]*found, error) {
	const tolerance = 5 * time.Second // between the clocks of servers
	type key struct {
		typ   string
		start int64
	}
	_, start, _ := c.scheme.Period(now.Add(-tolerance))
	all, bad := map[key]*found{}, unreadable{}
	for e, err := range c.in.entries(ctx, input) {
		if err != nil {
			return nil, err
		}
		n, err := c.parsePadded(e.text)
		if err != nil {
			bad.add(fmt.Errorf("line %d: %s", e.line, strings.TrimPrefix(err.Error(), "serial: ")))
			continue
		}
		k := key{n.Type, n.Start.Unix()}
		f := all[k]
		if f == nil {
			f = &found{Type: n.Type, Start: n.Start, Action: ignored}
			if !n.Start.Before(start) && (typ == "" || n.Type == typ) {
				f.sequences = tally.New(math.MaxInt64)
			}
			all[k] = f
		}
		if err := f.add(n, e.line); err != nil {
			return nil, fmt.Errorf("line %d: %w", e.line, err)
		}
	}
	return slices.SortedFunc(maps.Values(all), func(a, b *found) int {
		return cmp.Or(cmp.Compare(a.Type, b.Type), a.Start.Compare(b.Start))
	}), bad.report()
}

// parsePadded parses a number of the input, which may be padded with blanks. A template may print blanks at its ends,
// too.
func (c *command) parsePadded(text string) (serial.Number, error) {
	n, err := c.scheme.Parse(strings.Trim(text, template.Blanks))
	if err != nil {
		if padded, err := c.scheme.Parse(text); err == nil {
			return padded, nil
		}
	}
	return n, err
}

// add counts a number of the input.
func (f *found) add(n serial.Number, line int) error {
	f.Count++
	f.Greatest = max(f.Greatest, n.Seq)
	if f.sequences == nil {
		return nil
	}
	before, err := f.sequences.Add(n.Seq)
	if err == nil && before == 1 {
		if f.DuplicateCount++; len(f.Duplicates) < mostShown {
			f.Duplicates, f.lines = append(f.Duplicates, n.String()), append(f.lines, line)
		}
	}
	return err
}

// account finds out which sequences are missing, and whether the greatest is far above the others.
func (f *found) account() {
	const most, far = 1000, 1000
	var last, different int64
	for seq := range f.sequences.All() {
		if f.below = last; different > 0 && seq > last+1 {
			f.MissingCount += seq - last - 1
			if len(f.Missing) < most {
				f.Missing = append(f.Missing, gap{last + 1, seq - 1})
			}
		}
		last = seq
		different++
	}
	if jump := last - f.below; different > 1 && jump > far && jump > different {
		f.Jump = jump
	}
}

// doubts says what looks like a mistake in the input.
func (p *printer) doubts(f *found) (all []error) {
	series := f.Type + " in " + p.name(f.Start)
	for i, number := range f.Duplicates {
		n, _ := p.scheme.Parse(number)
		all = append(all, fmt.Errorf("line %d: %s: the sequence %s of %s appears twice", f.lines[i], number, p.digits(n.Seq),
			series))
	}
	if f.DuplicateCount > mostShown {
		all = append(all, fmt.Errorf("%d sequences of %s appear twice, of which the first %d are shown", f.DuplicateCount,
			series, mostShown))
	}
	if f.Jump > 0 {
		all = append(all, fmt.Errorf("the greatest sequence of %s, %s, is %d above the next lower one, %s", series,
			p.digits(f.Greatest), f.Jump, p.digits(f.below)))
	}
	return all
}

func (u *unreadable) add(err error) {
	if u.count++; len(u.first) < mostShown {
		u.first = append(u.first, err)
	}
}

// report returns an error that shows the first lines that are not numbers, or nil if there are none.
func (u *unreadable) report() error {
	if u.count == 0 {
		return nil
	}
	more := ""
	if n := u.count - int64(len(u.first)); n > 0 {
		more = fmt.Sprintf(", of which the first %d are shown", len(u.first))
	}
	return errors.Join(append(u.first, fmt.Errorf("%s cannot be parsed%s; nothing was written", counted(u.count, "line"),
		more))...)
}

// last returns the last number of a type. Its Seq is negative if the counter is lost, which raising repairs.
func (c *command) last(ctx context.Context, typ string) (serial.Number, error) {
	n, err := c.gen.Peek(ctx, typ)
	if !errors.Is(err, serial.ErrCounterLost) {
		return n, err
	}
	now, err := c.redisTime(ctx) // it decides which period is current
	_, start, _ := c.scheme.Period(now)
	return serial.Number{Type: typ, Start: start, Seq: -1}, err
}

// lift raises a counter, and verifies that it was the counter of the intended period: Raise knows only the current one.
func (c *command) lift(ctx context.Context, f *found) error {
	if err := c.gen.Raise(issue.KeepLedger(ctx), f.Type, f.Greatest); err != nil {
		return err
	}
	now, err := c.gen.Peek(ctx, f.Type)
	if err == nil && !now.Start.Equal(f.Start) {
		err = fmt.Errorf("%s: %s ended meanwhile, and the counter that was raised may be that of %s",
			f.Type, c.out.name(f.Start), c.out.name(now.Start))
	}
	return err
}

func (p *printer) printFound(f *found) {
	if p.json {
		_ = json.NewEncoder(p).Encode(f)
		return
	}
	how, found := "", counted(f.Count, "number")
	switch greatest := p.digits(f.Greatest); {
	case f.Action == ignored:
		how = fmt.Sprintf("%s up to %s", found, greatest)
	case f.Action == stays:
		how = fmt.Sprintf("at %s; %s up to %s", p.digits(*f.Last), found, greatest)
	case f.Last == nil:
		how = fmt.Sprintf("to %s, the counter is lost; %s", greatest, found)
	default:
		how = fmt.Sprintf("from %s to %s; %s", p.digits(*f.Last), greatest, found)
	}
	_, _ = fmt.Fprintf(p, "%s %s in %s: %s\n", f.Action, f.Type, p.name(f.Start), how)
	if f.MissingCount > 0 {
		p.listRanges("lacks", f.MissingCount, f.Missing)
	}
}

// counted returns a count with its noun, as in "3 numbers".
func counted(n int64, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
