package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/dailyserial/serial"
	"github.com/dailyserial/serial/internal/issue"
)

// imports raises the counters of the current period to the greatest numbers of another system. It checks everything it
// can before the first write. Only raising a series shows whether it has a ledger, which imports cannot raise.
func (c *command) imports(ctx context.Context) error {
	typ, name := c.arg(0), c.arg(1)
	if len(c.args) == 1 && c.in.isFile(typ) {
		typ, name = "", typ
	}
	if c.shared { // all types count
		typ = ""
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
	if err = cmp.Or(err, down); err != nil { // lines that cannot be parsed come first
		return err
	}
	doubts, err := c.plan(ctx, all, typ)
	if err != nil {
		return err
	}
	if len(doubts) > 0 && !c.force {
		for _, f := range all {
			c.out.printFound(f)
		}
		return errors.Join(append(doubts, errors.New("nothing was written; if the numbers are right, use -force"))...)
	}
	for _, doubt := range doubts {
		_, _ = fmt.Fprintf(c.stderr, "serial: %v\n", doubt)
	}
	if err := c.liftAll(ctx, all, dry); err != nil {
		return err
	}
	if why := nothingWritten(all, dry); why != "" {
		_, _ = fmt.Fprintf(c.stderr, "serial: %s\n", why)
	}
	return nil
}

// plan decides what to do with the numbers of each type and period, and returns what looks like a mistake. If typ is
// not empty, the other types are ignored.
func (c *command) plan(ctx context.Context, all []*found, typ string) (doubts []error, err error) {
	first, _ := c.scheme.Limits()
	current := map[string]serial.Number{}
	for _, f := range all {
		if typ != "" && f.Type != typ {
			continue
		}
		last, ok := current[f.Type]
		if !ok {
			if last, err = c.last(ctx, f.Type); err != nil {
				return nil, err
			}
			current[f.Type] = last
		}
		if !last.Start.Equal(f.Start) {
			continue
		}
		if f.sequences == nil {
			return nil, fmt.Errorf("%s: Redis's clock went back while the input was read, so nothing was written",
				c.series(f.Type))
		}
		f.Action = wouldRaise
		if last.Seq >= 0 {
			f.Last = &last.Seq
			if max(last.Seq, first-1) >= f.Greatest {
				f.Action = stays
			}
		}
		f.account()
		doubts = append(doubts, c.out.doubts(f)...)
	}
	if typ != "" && len(current) == 0 {
		hint := ""
		if len(c.args) == 1 {
			hint = ", and there is no file of that name"
		}
		return nil, fmt.Errorf("the input has no numbers of type %s%s, so nothing was written", typ, hint)
	}
	return doubts, nil
}

// liftAll raises the counters as planned, unless dry, and prints what was found. After an error it raises no more.
func (c *command) liftAll(ctx context.Context, all []*found, dry bool) (failed error) {
	lifted := int64(0)
	for _, f := range all {
		if f.Action == wouldRaise && !dry && failed == nil {
			if err := c.lift(ctx, f); err != nil {
				failed = fmt.Errorf("%w; %s raised before %s, and none after it", err, counted(lifted, "type"), c.series(f.Type))
			} else {
				f.Action = raised
				lifted++
			}
		}
		c.out.printFound(f)
	}
	return failed
}

// nothingWritten says why an import wrote nothing, or returns "" if it wrote or found that all counters are high
// enough.
func nothingWritten(all []*found, dry bool) string {
	switch {
	case len(all) == 0:
		return "the input has no numbers, so nothing was written"
	case !slices.ContainsFunc(all, func(f *found) bool { return f.Action != ignored }):
		return "none of the numbers belongs to a current period, so nothing was written; is the time zone right?"
	case dry:
		return "nothing was written; -dry-run=false writes"
	}
	return ""
}

// isFile reports whether the only argument is FILE, not TYPE: such a file exists, or there is nothing else to read.
func (s *source) isFile(arg string) bool {
	_, err := os.Stat(arg)
	return err == nil || arg == "-" || isTerminal(s.stdin)
}

// last returns the last number of a type. If the counter is lost, which raising repairs, its Seq is negative.
func (c *command) last(ctx context.Context, typ string) (serial.Number, error) {
	n, err := c.gen.Peek(ctx, typ)
	if !errors.Is(err, serial.ErrCounterLost) {
		return n, err
	}
	now, err := c.redisTime(ctx) // it determines the current period
	_, start, _ := c.scheme.Period(serial.At(now))
	return serial.Number{Type: typ, Start: start, Seq: -1}, err
}

// lift raises a counter, and verifies that it belongs to the intended period, since Raise knows only the current one.
func (c *command) lift(ctx context.Context, f *found) error {
	if err := c.gen.Raise(issue.KeepLedger(ctx), f.Type, f.Greatest); err != nil {
		return err
	}
	now, err := c.gen.Peek(ctx, f.Type)
	if err != nil {
		return err
	}
	if !now.Start.Equal(f.Start) {
		return fmt.Errorf("%s: %s ended meanwhile, and the counter that was raised may be that of %s",
			c.series(f.Type), c.out.name(f.Start), c.out.name(now.Start))
	}
	return nil
}
