package main

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"os"
	"time"
)

// batch is the most that one call of NextN issues.
const batch = 100_000

// next prints every batch before it asks for another one. So a later failure loses nothing that was issued, and nothing
// more is issued once nobody reads it.
func (c *command) next(ctx context.Context) error {
	if c.once != "" && c.n > 1 {
		return misused("-once is for one number, and -n says %d", c.n)
	}
	if c.url == "" {
		whose := c.zone.String()
		if c.zone == time.Local { // Go does not tell its name
			whose = "this machine's"
		}
		_, _ = fmt.Fprintf(c.stderr, "serial: no Redis URL, so nothing is kept; the time zone is %s, now UTC%s\n",
			whose, time.Now().In(c.zone).Format("-07:00"))
	}
	if c.once != "" {
		number, err := c.gen.NextOnce(ctx, c.args[0], c.once)
		if err != nil {
			return err
		}
		return c.print(number)
	}
	progress := io.Discard
	if c.n > batch && isTerminal(c.stderr) {
		progress = c.stderr
	}
	for done := 0; done < c.n; {
		width, _ := fmt.Fprintf(progress, "serial: %d of %d numbers", done, c.n)
		numbers, err := c.gen.NextN(ctx, c.args[0], min(batch, c.n-done))
		// The progress is erased before anything else is written, since stdout may be the same terminal. It is erased with
		// blanks, since not every terminal knows an escape sequence for that.
		_, _ = fmt.Fprintf(progress, "\r%*s\r", width, "")
		if err != nil && done > 0 {
			return fmt.Errorf("%w; %d of %d numbers were printed", err, done, c.n)
		}
		if err != nil {
			return err
		}
		for _, number := range numbers {
			if err := c.print(number); err != nil {
				return err
			}
		}
		if c.out.Flush() != nil {
			return nil // run reports it
		}
		done += len(numbers)
	}
	return nil
}

// isTerminal reports whether an input or output is a terminal, as far as can be told.
func isTerminal(stream any) bool {
	file, ok := stream.(interface{ Stat() (fs.FileInfo, error) })
	if !ok {
		return false
	}
	info, err := file.Stat()
	if err != nil || info.Mode()&fs.ModeCharDevice == 0 {
		return false
	}
	null, err := os.Stat(os.DevNull) // which a service has for stdin
	return err != nil || !os.SameFile(info, null)
}
