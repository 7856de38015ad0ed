package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dailyserial/serial"
)

func (c *command) raise(ctx context.Context) error {
	seq, err := c.seq()
	if err != nil {
		return err
	}
	if err := c.gen.Raise(ctx, c.args[0], seq); err != nil {
		return err
	}
	return c.announce(ctx)
}

func (c *command) takeover(ctx context.Context) error {
	seq, err := c.seq()
	if err != nil {
		return err
	}
	if err := c.gen.Takeover(ctx, c.args[0], seq); err != nil {
		return err
	}
	return c.announce(ctx)
}

// seq reads the argument SEQ.
func (s *settings) seq() (int64, error) {
	seq, err := integer(s.args[1], 64)
	if err == nil && seq < 0 {
		err = errors.New("at least 0")
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
	return c.announce(ctx)
}

// announce prints the next number, which others may issue meanwhile. If its date is not known, announce prints the number with
// today's date, and the sequence.
func (c *command) announce(ctx context.Context) error {
	last, err := c.gen.Peek(ctx, c.args[0])
	if err != nil {
		return fmt.Errorf("%s succeeded, but the next number could not be read: %w", c.row.name, err)
	}
	line, err := c.lineNow(ctx, last)
	after, left := c.after(last)
	undated := after.Date.IsZero()
	if err == nil && left && undated {
		after, err = c.dateNow(ctx, after)
	}
	if err != nil {
		return fmt.Errorf("%s succeeded, but the date of the next number could not be read: %w", c.row.name, err)
	}
	if left {
		line.Next = after.String()
	} else {
		_, _ = fmt.Fprintf(c.stderr, "serial: no number of type %s is left in the period that began at %s\n",
			last.Type, last.Start.Format(time.RFC3339))
	}
	switch {
	case c.json:
		c.out.printJSON(line)
	case left:
		_, _ = fmt.Fprintln(c.out, "next", line.Next)
		if undated {
			_, _ = fmt.Fprintln(c.out, "seq", after.Seq)
		}
	}
	if err := c.out.Flush(); err != nil {
		return fmt.Errorf("%s succeeded, but the output could not be written: %w", c.row.name, err)
	}
	return nil
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
