package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/dailyserial/serial"
)

// A found sums up the numbers of one type and period in the input.
type found struct {
	Type     string    `json:"type"`
	Start    time.Time `json:"start"`
	Action   string    `json:"action"` // see below
	Count    int64     `json:"count"`  // numbers found
	Greatest int64     `json:"greatest"`
	Last     *int64    `json:"last,omitempty"` // the counter before; omitted if it is lost, or the numbers are ignored
}

// The actions of import.
const (
	raised     = "raised"      // to the greatest number found
	wouldRaise = "would raise" // without -dry-run
	stays      = "stays"       // the counter is already that far
	ignored    = "ignored"     // of another period, or of another type than the one named
)

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
	all, bad, err := c.collect(ctx, input)
	if err != nil {
		return err
	}
	// Everything that can be checked without writing is checked before the first write. Only raising a series shows whether it has
	// a ledger, and then it cannot be raised from here.
	first, _ := c.scheme.Limits()
	current := map[string]serial.Number{}
	for _, f := range all {
		if _, ok := current[f.Type]; !ok && (typ == "" || f.Type == typ) {
			if current[f.Type], err = c.last(ctx, f.Type); err != nil {
				return errors.Join(bad.report(), err)
			}
		}
		if last, ok := current[f.Type]; ok && last.Start.Equal(f.Start) {
			f.Action = wouldRaise
			if f.Last = &last.Seq; last.Seq < 0 {
				f.Last = nil
			} else if max(last.Seq, first-1) >= f.Greatest {
				f.Action = stays
			}
		}
	}
	if typ != "" && len(current) == 0 && bad.count == 0 {
		hint := ""
		if len(c.args) == 1 {
			hint = ", and there is no file of that name"
		}
		return fmt.Errorf("the input has no numbers of type %s%s, so nothing was written", typ, hint)
	}
	failed, lifted := bad.report(), int64(0)
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

// collect reads the input. It returns what it found, sorted by type and period, and the lines that are not numbers.
func (c *command) collect(ctx context.Context, input io.Reader) ([]*found, *unreadable, error) {
	type key struct {
		typ   string
		start int64
	}
	all, bad := map[key]*found{}, &unreadable{}
	for e, err := range c.in.entries(ctx, input) {
		if err != nil {
			return nil, nil, err
		}
		n, err := c.scheme.Parse(e.text)
		if err != nil {
			bad.add(fmt.Errorf("line %d: %s", e.line, strings.TrimPrefix(err.Error(), "serial: ")))
			continue
		}
		k := key{n.Type, n.Start.Unix()}
		f := all[k]
		if f == nil {
			f = &found{Type: n.Type, Start: n.Start, Action: ignored}
			all[k] = f
		}
		f.Count++
		f.Greatest = max(f.Greatest, n.Seq)
	}
	return slices.SortedFunc(maps.Values(all), func(a, b *found) int {
		return cmp.Or(cmp.Compare(a.Type, b.Type), a.Start.Compare(b.Start))
	}), bad, nil
}

func (u *unreadable) add(err error) {
	const most = 10
	if u.count++; len(u.first) < most {
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
	now, err := c.client.Time(ctx).Result() // it decides which period is current
	_, start, _ := c.scheme.Period(now)
	return serial.Number{Type: typ, Start: start, Seq: -1}, err
}

// lift raises a counter, and verifies that it was the counter of the intended period: Raise knows only the current one.
func (c *command) lift(ctx context.Context, f *found) error {
	if err := c.gen.Raise(ctx, f.Type, f.Greatest); err != nil {
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
}

// counted returns a count with its noun, as in "3 numbers".
func counted(n int64, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
