package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/dailyserial/serial"
)

// explanations yields the explanations of a CSV file. Its sequences are of typ, in the period that begins at start. The
// first error ends it, and names the file and the line.
func (c *command) explanations(ctx context.Context, name string, input io.Reader, typ string,
	start time.Time) iter.Seq2[serial.Explanation, error] {
	return func(yield func(serial.Explanation, error) bool) {
		err := c.readExplanations(ctx, input, typ, start, func(e serial.Explanation) bool { return yield(e, nil) })
		if err == nil {
			return
		}
		if name == "-" {
			name = "stdin"
		}
		yield(serial.Explanation{}, fmt.Errorf("explanations in %s: %w", name, err))
	}
}

// readExplanations calls yield for each explanation until yield returns false.
func (c *command) readExplanations(ctx context.Context, input io.Reader, typ string, start time.Time,
	yield func(serial.Explanation) bool) error {
	r := newCSV(ctx, input)
	now := time.Now()
	header, err := r.Read()
	if errors.Is(err, io.EOF) {
		return errors.New("empty; want a first line that names the columns")
	}
	if err != nil {
		return err
	}
	columns, err := explanationColumnsOf(header)
	if err != nil {
		return err
	}
	for {
		record, err := r.Read()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if slices.Equal(record, header) { // in concatenated files
			continue
		}
		e, err := c.explanationOf(columns.of(record), typ, start, now)
		if err != nil {
			line, _ := r.FieldPos(0)
			return fmt.Errorf("line %d: %w", line, err)
		}
		if !yield(e) {
			return nil
		}
	}
}

// explanationColumns are the indexes of the columns, by name.
type explanationColumns map[string]int

func explanationColumnsOf(header []string) (explanationColumns, error) {
	columns := explanationColumns{}
	for _, name := range []string{"number", "first", "last", "reason", "by", "at", "unused", "possible"} {
		if at, err := columnOf(header, name); err == nil {
			columns[name] = at
		} else if slices.Contains(header, name) { // twice
			return nil, err
		}
	}
	has := func(name string) bool { _, ok := columns[name]; return ok }
	if !has("reason") || has("first") != has("last") || !has("number") && !has("first") {
		return nil, fmt.Errorf("the columns are %q; want reason, and number or first and last; by, at, unused and "+
			"possible are optional", header)
	}
	return columns, nil
}

// of returns a function that returns the field of a column, or "".
func (c explanationColumns) of(record []string) func(name string) string {
	return func(name string) string {
		if at, ok := c[name]; ok {
			return strings.TrimSpace(record[at])
		}
		return ""
	}
}

// explanationOf reads the fields of a line.
func (c *command) explanationOf(field func(name string) string, typ string, start, now time.Time) (
	serial.Explanation, error) {
	e := serial.Explanation{Type: typ, Start: start, Reason: field("reason"), By: field("by"), At: now}
	sequence := func(to *int64) func(string) error {
		return func(value string) (err error) { *to, err = integer(value, 64); return err }
	}
	flag := func(to *bool) func(string) error {
		return func(value string) (err error) { *to, err = switched(value); return err }
	}
	instant := func(value string) (err error) {
		if e.At, err = time.Parse(time.RFC3339, value); err != nil {
			err = errors.New("want an RFC 3339 time such as 2021-10-24T17:05:00Z")
		}
		return err
	}
	for _, column := range []struct {
		name string
		set  func(value string) error
	}{
		{"first", sequence(&e.First)}, {"last", sequence(&e.Last)},
		{"at", instant}, {"unused", flag(&e.Unused)}, {"possible", flag(&e.Possible)},
	} {
		if value := field(column.name); value != "" {
			if err := column.set(value); err != nil {
				return e, fmt.Errorf("%s %q: %w", column.name, value, err)
			}
		}
	}
	if number := field("number"); number != "" {
		if field("first")+field("last") != "" {
			return e, errors.New("got a number and first or last; want one or the other")
		}
		n, err := c.parseEarlier(number, typ, start)
		if err != nil {
			return e, err
		}
		e.Type, e.Start, e.First, e.Last = n.Type, n.Start, n.Seq, n.Seq
	}
	var err error
	if e.Series, err = c.scheme.Series(e.Type); err != nil {
		return e, err
	}
	return e, e.Validate()
}

// parseEarlier parses a number as the first template prints it that gives typ and the period that begins at start. If
// none does, another type or period will do.
func (c *command) parseEarlier(number, typ string, start time.Time) (serial.Number, error) {
	first, err := c.scheme.Parse(number)
	for _, s := range append([]*serial.Scheme{c.scheme}, c.earlierSchemes...) {
		n, failed := s.Parse(number)
		switch {
		case failed != nil:
		case (c.shared || n.Type == typ) && n.Start.Equal(start):
			return n, nil
		case err != nil:
			first, err = n, nil
		}
	}
	return first, err
}

// printExplained prints the missing numbers with their reasons, those without a reason, and possible reasons.
func (p *printer) printExplained(r *serial.Report) {
	var reasons, possible, contradicted []string
	line := func(of gap, e *serial.Explanation) string {
		who := p.time(e.At)
		if e.By != "" {
			who = e.By + ", " + who
		}
		return fmt.Sprintf("%s %s (%s)", p.rangeOf(of), e.Reason, who)
	}
	more := r.ExplainedCount
	for _, e := range r.Explained {
		reasons = append(reasons, line(gap(e.Range), &e.Explanation))
		more -= e.Last - e.First + 1
	}
	for _, e := range r.Possible {
		possible = append(possible, line(gap{e.First, e.Last}, &e))
	}
	for _, n := range r.Contradicted {
		contradicted = append(contradicted, p.digits(n.Seq))
	}
	_, _ = fmt.Fprintf(p, "%-10s %d\n", "missing", r.MissingCount)
	p.list("explained", r.ExplainedCount, more, reasons)
	p.listRanges("not explained", r.UnexplainedCount, gaps(r.Unexplained))
	if r.PossibleCount > 0 {
		p.list("possible", r.PossibleCount, r.PossibleCount-int64(len(possible)), possible)
	}
	p.list("contradicted", r.ContradictedCount, r.ContradictedCount-int64(len(contradicted)), contradicted)
}

// time prints an instant in the time zone of the scheme.
func (p *printer) time(at time.Time) string { return at.In(p.zone).Format(time.RFC3339) }

// explainedJSON is what -json adds to a report if explanations were given.
type explainedJSON struct {
	Explained         []explainedRange `json:"explained"`
	Unexplained       []gap            `json:"unexplained"`
	Possible          []explainedRange `json:"possible"`
	Contradicted      []string         `json:"contradicted"`
	ExplainedCount    int64            `json:"explainedCount"`
	UnexplainedCount  int64            `json:"unexplainedCount"`
	PossibleCount     int64            `json:"possibleCount"`
	ContradictedCount int64            `json:"contradictedCount"`
}

type explainedRange struct {
	gap
	Reason string    `json:"reason"`
	By     string    `json:"by,omitempty"`
	At     time.Time `json:"at"`
	Unused bool      `json:"unused,omitempty"`
}

func (p *printer) explainedOf(r *serial.Report) *explainedJSON {
	out := &explainedJSON{[]explainedRange{}, gaps(r.Unexplained), []explainedRange{}, p.texts(r.Contradicted),
		r.ExplainedCount, r.UnexplainedCount, r.PossibleCount, r.ContradictedCount}
	of := func(g gap, e *serial.Explanation) explainedRange {
		return explainedRange{g, e.Reason, e.By, e.At, e.Unused}
	}
	for _, e := range r.Explained {
		out.Explained = append(out.Explained, of(gap(e.Range), &e.Explanation))
	}
	for _, e := range r.Possible {
		out.Possible = append(out.Possible, of(gap{e.First, e.Last}, &e))
	}
	return out
}
