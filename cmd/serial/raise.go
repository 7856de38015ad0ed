package main

import (
	"context"
	"fmt"
	"strconv"
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
func (c *command) seq() (int64, error) {
	seq, err := strconv.ParseInt(c.args[1], 10, 64)
	if err != nil || seq < 0 {
		return 0, misused("SEQ %q: a whole number, at least 0", c.args[1])
	}
	return seq, nil
}

func (c *command) prepare(ctx context.Context) error {
	if err := c.gen.Prepare(ctx, c.args[0], c.n); err != nil {
		return err
	}
	return c.announce(ctx)
}

// announce prints what the next number will be, unless others issue it meanwhile.
func (c *command) announce(ctx context.Context) error {
	last, err := c.gen.Peek(ctx, c.args[0])
	if err != nil {
		return fmt.Errorf("%s succeeded, but the next number could not be read: %w", c.row.name, err)
	}
	line := lineOf(last)
	if after, ok := c.after(last); ok {
		line.Next = after.String()
	} else {
		_, _ = fmt.Fprintf(c.stderr, "serial: no %s is left in the period that began at %s\n", last.Type, last.Start.Format(time.RFC3339))
	}
	switch {
	case c.json:
		c.printJSON(line)
	case line.Next != "":
		_, _ = fmt.Fprintln(c.out, "next", line.Next)
	}
	return nil
}

// after returns the number behind the last one issued, and false if the period has no more.
func (c *command) after(last serial.Number) (serial.Number, bool) {
	next := last
	next.Seq++
	if last.Seq == 0 {
		next.Seq = c.start
	}
	_, largest := c.scheme.Limits()
	return next, next.Seq <= largest
}
