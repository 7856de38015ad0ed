package main

import (
	"cmp"
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/dailyserial/serial"
)

// explanations yields the explanations of a CSV file of that name. Sequences in it are of typ, in the period that begins at start,
// unless a line says otherwise.
// The first error ends it, and names file and line.
func (c *command) explanations(ctx context.Context, name string, input io.Reader, typ string,
	start time.Time) iter.Seq2[serial.Explanation, error] {
	return func(yield func(serial.Explanation, error) bool) {
		r := csv.NewReader(newReader(ctx, input))
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
	for _, name := range []string{"number", "first", "last", "type", "start", "reason", "count", "by", "at", "unused"} {
		if at, err := columnOf(header, name); err == nil {
			c[name] = at
		} else if slices.Contains(header, name) { // twice
			return err
		}
	}
	has := func(name string) bool { _, ok := c[name]; return ok }
	if !has("reason") || has("first") != has("last") || !has("number") && !has("first") {
		return fmt.Errorf("the columns are %q; needed are reason, and number or first and last; allowed are also type, "+
			"start, count, by, at and unused", header)
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
	e = serial.Explanation{Start: start, Reason: field("reason"), By: field("by"), At: now}
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
	instant := func(to *time.Time) func(string) error {
		return func(value string) (err error) {
			if *to, err = time.Parse(time.RFC3339, value); err != nil {
				err = errors.New("not a time of RFC 3339, such as 2021-10-24T17:05:00Z")
			}
			return err
		}
	}
	read("start", instant(&e.Start))
	e.Type = cmp.Or(field("type"), typ)
	if number := field("number"); number != "" {
		if field("first")+field("last")+field("type")+field("start") != "" {
			err = cmp.Or(err, errors.New("it has a number, and first, last, type or start; allowed is the one or the others"))
		}
		n, wrong := scheme.Parse(number)
		err = cmp.Or(err, wrong)
		e.Type, e.Start, e.First, e.Last = n.Type, n.Start, n.Seq, n.Seq
	}
	read("count", sequence(&e.Count))
	read("at", instant(&e.At))
	read("unused", func(value string) (err error) { e.Unused, err = switched(value); return err })
	if err == nil {
		e.Series, err = scheme.Series(e.Type)
	}
	return e, cmp.Or(err, e.Validate())
}

// printExplained prints missing numbers with their reasons, and what is left.
func (p *printer) printExplained(r *serial.Report) {
	var reasons, unexplained, contradicted []string
	more, rest := r.ExplainedCount, r.UnexplainedCount
	for _, e := range r.Explained {
		who := p.time(e.Explanation.At)
		if e.Explanation.By != "" {
			who = e.Explanation.By + ", " + who
		}
		reasons = append(reasons, fmt.Sprintf("%s %s (%s)", p.rangeOf(e.Range), e.Explanation.Reason, who))
		more -= e.Last - e.First + 1
	}
	for _, gap := range r.Unexplained {
		unexplained = append(unexplained, p.rangeOf(gap))
		rest -= gap.Last - gap.First + 1
	}
	for _, n := range r.Contradicted {
		contradicted = append(contradicted, p.digits(n.Seq))
	}
	_, _ = fmt.Fprintf(p, "%-10s %d\n", "missing", r.MissingCount)
	p.list("explained", r.ExplainedCount, more, reasons)
	p.list("not explained", r.UnexplainedCount, rest, unexplained)
	p.list("contradicted", r.ContradictedCount, r.ContradictedCount-int64(len(contradicted)), contradicted)
}

// time prints an instant in the time zone of the scheme.
func (p *printer) time(at time.Time) string { return at.In(p.zone).Format(time.RFC3339) }

// explainedJSON is what -json prints beyond the rest of a report if explanations were given.
type explainedJSON struct {
	Explained         []explainedRange `json:"explained"`
	Unexplained       []gap            `json:"unexplained"`
	Contradicted      []string         `json:"contradicted"`
	ExplainedCount    int64            `json:"explainedCount"`
	UnexplainedCount  int64            `json:"unexplainedCount"`
	ContradictedCount int64            `json:"contradictedCount"`
}

type explainedRange struct {
	gap
	Reason string    `json:"reason"`
	By     string    `json:"by,omitempty"`
	At     time.Time `json:"at"`
	Count  int64     `json:"count,omitempty"`
	Unused bool      `json:"unused,omitempty"`
}

func (p *printer) explainedOf(r *serial.Report) *explainedJSON {
	out := &explainedJSON{[]explainedRange{}, []gap{}, p.texts(r.Contradicted), r.ExplainedCount, r.UnexplainedCount,
		r.ContradictedCount}
	for _, e := range r.Explained {
		x := e.Explanation
		out.Explained = append(out.Explained, explainedRange{gap(e.Range), x.Reason, x.By, x.At, x.Count, x.Unused})
	}
	for _, unexplained := range r.Unexplained {
		out.Unexplained = append(out.Unexplained, gap(unexplained))
	}
	return out
}
