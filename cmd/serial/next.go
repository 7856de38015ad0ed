package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"runtime"
	"time"

	"github.com/dailyserial/serial"
)

// batch is how many numbers a call of NextN issues at most.
const batch = 100_000

// next prints each batch before it asks for the next one. So a later failure loses no issued numbers, and issuing stops
// when nobody reads them any more.
func (c *command) next(ctx context.Context) error {
	if c.once != "" && c.n > 1 {
		return misused("-once issues one number, but -n asks for %d", c.n)
	}
	if err := checkOpen(c.stdout); err != nil {
		return fmt.Errorf("%w; nothing was sent", err)
	}
	if c.url == "" {
		whose := c.zone.String()
		if c.zone == time.Local { // Go does not know its name
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
		return c.out.printAll([]serial.Number{number})
	}
	progress := io.Discard
	if c.n > batch && isTerminal(c.stderr) {
		progress = c.stderr
	}
	for done := 0; done < c.n; {
		width, _ := fmt.Fprintf(progress, "serial: %d of %d numbers", done, c.n)
		numbers, err := c.gen.NextN(ctx, c.args[0], min(batch, c.n-done))
		// The progress is erased before anything else is written, since stdout may be the same terminal. Blanks erase
		// it, since not every terminal has an escape sequence for that.
		_, _ = fmt.Fprintf(progress, "\r%*s\r", width, "")
		if err != nil && done > 0 {
			return fmt.Errorf("%w; %d of %d numbers were printed", err, done, c.n)
		}
		if err != nil {
			return err
		}
		if err := c.out.printAll(numbers); err != nil {
			return err
		}
		done += len(numbers)
	}
	return nil
}

// printAll prints issued numbers. Its error names them, since nobody else will get them.
func (p *printer) printAll(numbers []serial.Number) error {
	for _, n := range numbers {
		p.print(n)
	}
	err := p.Flush()
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

// checkOpen returns an error if stdout certainly accepts no output.
func checkOpen(stdout io.Writer) error {
	file, ok := stdout.(*os.File)
	if !ok {
		return nil
	}
	if _, err := file.Write(nil); err != nil {
		return fmt.Errorf("cannot write to stdout: %w", err)
	}
	// If stdout is closed, Go opens os.DevNull in its place, for reading and writing. With "> /dev/null", reading
	// fails.
	info, err := file.Stat()
	if err != nil || !isNull(info) || runtime.GOOS == "windows" {
		return nil
	}
	if _, err := file.Read(make([]byte, 1)); err == io.EOF {
		return errors.New("stdout is closed, or is " + os.DevNull + " opened for reading and writing, which looks the same")
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
	return !isNull(info) // which is the stdin of a service
}

// isNull reports whether a file is os.DevNull.
func isNull(info fs.FileInfo) bool {
	null, err := os.Stat(os.DevNull)
	return err == nil && os.SameFile(info, null)
}
