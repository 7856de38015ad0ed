package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/dailyserial/serial"
	"github.com/dailyserial/serial/internal/tally"
	"github.com/dailyserial/serial/internal/template"
)

// collect reads the input and sums it up by type and period, in this order. If lines are not numbers, the error lists
// them. For periods that have not ended by now, collect keeps the sequences of typ, or of all types if typ is empty.
func (c *command) collect(ctx context.Context, input io.Reader, typ string, now time.Time) ([]*found, error) {
	const tolerance = 5 * time.Second // between the clocks of servers
	type key struct {
		typ   string
		start int64
	}
	_, start, _ := c.scheme.Period(serial.At(now.Add(-tolerance)))
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
		k := key{c.series(n.Type), n.Start.Unix()}
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

// parsePadded parses a number that may have blanks around it. They may also be part of the template.
func (c *command) parsePadded(text string) (serial.Number, error) {
	n, err := c.scheme.Parse(strings.Trim(text, template.Blanks))
	if err != nil {
		if padded, err := c.scheme.Parse(text); err == nil {
			return padded, nil
		}
	}
	return n, err
}

// mostShown is how many lines of the input are shown for each kind of problem.
const mostShown = 10

// unreadable collects lines of the input that are not numbers.
type unreadable struct {
	count int64
	first []error
}

func (u *unreadable) add(err error) {
	if u.count++; len(u.first) < mostShown {
		u.first = append(u.first, err)
	}
}

// report returns an error that shows the first of these lines, or nil if there are none.
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
