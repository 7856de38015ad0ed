package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dailyserial/serial"
	"github.com/dailyserial/serial/internal/issue"
)

func (c *command) raise(ctx context.Context) error {
	return c.skipping(ctx, func(seq int64) error { return c.gen.Raise(issue.KeepLedger(ctx), c.args[0], seq) })
}

// takeover leaves a ledger only if asked to. The script that would leave it checks first, so no ledger can be turned on
// in between.
func (c *command) takeover(ctx context.Context) error {
	return c.skipping(ctx, func(seq int64) error {
		typ := c.args[0]
		err := c.gen.Takeover(issue.KeepLedger(ctx), typ, seq)
		if !errors.Is(err, issue.ErrSetAside) {
			return err
		}
		does := "would leave"
		if c.leaveLedger {
			does = "leaves"
		}
		_, _ = fmt.Fprintf(c.stderr, "serial: takeover %s the ledger of %s: if Redis loses data after that, numbers may be "+
			"issued twice, and a program with the ledger skips the rest of the numbers that it set aside\n", does, typ)
		if c.leaveLedger {
			err = c.gen.Takeover(ctx, typ, seq)
		}
		return err
	})
}

// seq reads the argument SEQ.
func (s *settings) seq() (int64, error) {
	seq, err := integer(s.args[1], 64)
	if err == nil && seq < 0 {
		err = errors.New("want at least 0")
	}
	if err != nil {
		return 0, misused("SEQ %q: %w", s.args[1], err)
	}
	return seq, nil
}

func (c *command) prepare(ctx context.Context) error {
	if err := c.gen.Prepare(ctx, c.args[0], c.n); err != nil {
		return err
	}
	return c.announce(ctx, nil)
}

// announce prints the next number, which others may issue meanwhile, and what was skipped, if anything. If the date of
// the next number is not known, announce prints the number with today's date, and the sequence.
func (c *command) announce(ctx context.Context, s *skipped) error {
	l, undated, err := c.upcoming(ctx)
	if err != nil {
		c.out.printSkipped(s)
		return fmt.Errorf("%s succeeded, but %w", c.row.name, err)
	}
	if l.Next == "" {
		_, _ = fmt.Fprintf(c.stderr, "serial: no number of type %s is left in the period that began at %s\n",
			c.series(l.Type), l.Start.Format(time.RFC3339))
	}
	if c.json {
		l.Skipped = s
		c.out.printJSON(l)
	} else {
		if l.Next != "" {
			_, _ = fmt.Fprintln(c.out, "next", l.Next)
		}
		if undated > 0 {
			_, _ = fmt.Fprintln(c.out, "seq", undated)
		}
		c.out.printSkipped(s)
	}
	if err := c.out.Flush(); err != nil {
		return fmt.Errorf("%s succeeded, but the output could not be written: %w", c.row.name, err)
	}
	return nil
}

// upcoming returns the line of the last number, with the next number if one is left. If the date of the next number is
// not known, undated is its sequence.
func (c *command) upcoming(ctx context.Context) (l line, undated int64, err error) {
	last, err := c.gen.Peek(ctx, c.args[0])
	if err != nil {
		return line{}, 0, fmt.Errorf("the next number could not be read: %w", err)
	}
	const noDate = "the date of the next number could not be read: %w"
	if l, err = c.lineNow(ctx, last); err != nil {
		return line{}, 0, fmt.Errorf(noDate, err)
	}
	next, left := c.after(last)
	if !left {
		return l, 0, nil
	}
	if next.Date.IsZero() {
		undated = next.Seq
		if next, err = c.dateNow(ctx, next); err != nil {
			return line{}, 0, fmt.Errorf(noDate, err)
		}
	}
	l.Next = next.String()
	return l, undated, nil
}

// after returns the number that follows the last one issued, and false if the period has no more.
func (c *command) after(last serial.Number) (serial.Number, bool) {
	next := last
	next.Seq++
	if last.Seq == 0 {
		next.Seq = c.start
	}
	_, largest := c.scheme.Limits()
	return next, next.Seq <= largest
}
