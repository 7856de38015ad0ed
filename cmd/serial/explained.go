package main

import (
	"cmp"
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

// explanations yields the explanations of a CSV file of that name. Sequences in it are of typ, in the period that
// begins at start. The first error ends it, and names file and line.
func (c *command) explanations(ctx context.Context, name string, input io.Reader, typ string,
	start time.Time) iter.Seq2[serial.Explanation, error] {
	return func(yield func(serial.Explanation, error) bool) {
		r := newCSV(ctx, input)
		now := time.Now()
		header, err := r.Read()
		if errors.Is(err, io.EOF) {
			err = errors.New("it is empty, and its first line should name the columns")
		}
		columns := explanationColumns{}
		if err == nil {
			err = columns.find(header)
		}
		for err == nil {
			var record []string
			record, err = r.Read()
			if errors.Is(err, io.EOF) {
				return
			}
			if err == nil && slices.Equal(record, header) { // of files joined to one
				continue
			}
			var e serial.Explanation
			if err == nil {
				line, _ := r.FieldPos(0)
				if e, err = explanationOf(columns.of(record), c.scheme, typ, start, now); err != nil {
					err = fmt.Errorf("line %d: %w", line, err)
				}
			}
			if err == nil && !yield(e, nil) {
				return
			}
		}
		if name == "-" {
			name = "stdin"
		}
		yield(serial.Explanation{}, fmt.Errorf("explanations in %s: %w", name, err))
	}
}

// explanationColumns are the places of the columns by their names.
type explanationColumns map[string]int

func (c explanationColumns) find(header []string) error {
	for _, name := range []string{"number", "first", "last", "reason", "by", "at", "unused", "possible"} {
		if at, err := columnOf(header, name); err == nil {
			c[name] = at
		} else if slices.Contains(header, name) { // twice
			return err
		}
	}
	has := func(name string) bool { _, ok := c[name]; return ok }
	if !has("reason") || has("first") != has("last") || !has("number") && !has("first") {
		return fmt.Errorf("the columns are %q; needed are reason, and number or first and last; by, at, unused and "+
			"possible are read too", header)
	}
	return nil
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
func explanationOf(field func(name string) string, scheme *serial.Scheme, typ string, start, now time.Time) (
	e serial.Explanation, err error) {
	e = serial.Explanation{Type: typ, Start: start, Reason: field("reason"), By: field("by"), At: now}
	read := func(name string, set func(value string) error) {
		if value := field(name); value != "" && err == nil {
			if err = set(value); err != nil {
				err = fmt.Errorf("%s %q: %w", name, value, err)
			}
		}
	}
	sequence := func(to *int64) func(string) error {
		return func(value string) (err error) { *to, err = integer(value, 64); return err }
	}
	read("first", sequence(&e.First))
	read("last", sequence(&e.Last))
	if number := field("number"); number != "" {
		if field("first")+field("last") != "" {
			err = cmp.Or(err, errors.New("it has a number, and first or last; want the one or the others"))
		}
		n, wrong := scheme.Parse(number)
		err = cmp.Or(err, wrong)
		e.Type, e.Start, e.First, e.Last = n.Type, n.Start, n.Seq, n.Seq
	}
	read("at", func(value string) (err error) {
		if e.At, err = time.Parse(time.RFC3339, value); err != nil {
			err = errors.New("not a time of RFC 3339, such as 2021-10-24T17:05:00Z")
		}
		return err
	})
	read("unused", func(value string) (err error) { e.Unused, err = switched(value); return err })
	read("possible", func(value string) (err error) { e.Possible, err = switched(value); return err })
	if err == nil {
		e.Series, err = scheme.Series(e.Type)
	}
	return e, cmp.Or(err, e.Validate())
}

// printExplained prints missing numbers with their reasons, what is left, and for what reasons some of that may be
// missing.
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

// explainedJSON is what -json prints beyond the rest of a report if explanations were given.
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
