package main

import (
	"context"
	"fmt"
	"time"
)

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
		c.out.printJSON(line)
	case number.Seq == 0:
		_, _ = fmt.Fprintf(c.stderr, "serial: no number of type %s was issued since %s\n", c.series(number.Type),
			number.Start.Format(time.RFC3339))
	case number.Date.IsZero(): // Redis does not store the printed date
		_, _ = fmt.Fprintf(c.out, "seq %d\n", number.Seq)
		if line.Today != "" {
			_, _ = fmt.Fprintln(c.out, "today", line.Today)
		}
	default:
		_, _ = fmt.Fprintln(c.out, number)
	}
	return nil
}

func (c *command) parse(context.Context) error {
	number, err := c.scheme.Parse(c.args[0])
	switch {
	case err != nil:
		return err
	case c.json:
		c.out.printJSON(lineOf(number))
	default:
		_, _ = fmt.Fprintf(c.out, "type %s\nstart %s\nseq %d\n", number.Type, number.Start.Format(time.RFC3339), number.Seq)
	}
	return nil
}
