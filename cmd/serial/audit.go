package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/dailyserial/serial"
)

// errFound means that an audit found something, which it has printed. The exit code is 3.
var errFound = errors.New("not all numbers are accounted for")

// audit prints which numbers of a period are missing, duplicate, beyond the counter or foreign.
func (c *command) audit(ctx context.Context) error {
	at, err := c.when()
	if err != nil {
		return err
	}
	for _, template := range c.earlier {
		earlier, err := c.scheme.WithTemplate(template)
		if err != nil {
			return misused("-earlier: %w", err)
		}
		c.earlierSchemes = append(c.earlierSchemes, earlier)
	}
	file := c.arg(1)
	if c.explained == "-" && (file == "" || file == "-") {
		return misused("-explained -: the numbers come from stdin; name a FILE for one of them")
	}
	input, err := c.in.open(file)
	if err != nil {
		return err
	}
	defer func() { _ = input.Close() }()
	var explained io.ReadCloser
	if c.explained != "" {
		if explained, err = c.in.open(c.explained); err != nil {
			return err
		}
		defer func() { _ = explained.Close() }()
	}
	if c.date == "" {
		last, err := c.gen.Peek(ctx, c.args[0]) // Redis's clock determines the current period
		if err != nil {
			return err
		}
		at = serial.At(last.Start)
	}
	opts := []serial.AuditOption{serial.WithEarlier(c.earlierSchemes...)}
	if c.explained != "" {
		_, start, _ := c.scheme.Period(at)
		opts = append(opts, serial.WithExplanations(c.explanations(ctx, c.explained, explained, c.args[0], start)))
	}
	report, err := c.gen.Audit(ctx, c.args[0], at, func(yield func(string, error) bool) {
		for e, err := range c.in.entries(ctx, input) {
			if !yield(e.text, err) {
				return
			}
		}
	}, opts...)
	if err != nil {
		return err
	}
	if c.json {
		c.out.printReportJSON(&report)
	} else {
		c.out.printReport(&report)
	}
	if !report.Clean() {
		return errFound
	}
	return nil
}

// dates are the layouts of -date, shortest first.
var dates = []string{time.DateOnly, "2006-01-02 15:04", time.DateTime, "2006-01-02T15:04", "2006-01-02T15:04:05"}

// when returns what -date names, or zero without -date.
func (c *command) when() (serial.When, error) {
	if c.date == "" {
		return serial.When{}, nil
	}
	for _, layout := range dates {
		wall, err := time.Parse(layout, c.date)
		switch {
		case err != nil:
			continue
		case layout != time.DateOnly:
			at, err := c.instantOf(wall)
			return serial.At(at), err
		case c.period.shorter():
			return serial.When{}, misused("-date %q: -period %s needs a time, too, as in \"2021-10-24 15:04\"", c.date,
				c.period.name)
		}
		date := serial.OnDateOf(wall)
		if label, _, _ := c.scheme.Period(date); label == "" && wall.Year() >= 1970 { // Audit refuses earlier years
			return serial.When{}, c.skippedDate()
		}
		return date, nil
	}
	return serial.When{}, misused("-date %q: want a date such as 2021-10-24", c.date)
}

// instantOf returns the instant at which clocks in the zone show wall.
func (s *settings) instantOf(wall time.Time) (time.Time, error) {
	y, m, d := wall.Date()
	hour, minute, second := wall.Clock()
	at := time.Date(y, m, d, hour, minute, second, 0, s.zone)
	if at.Format(time.DateTime) != wall.Format(time.DateTime) {
		return time.Time{}, s.skippedDate()
	}
	return at, nil
}

func (s *settings) skippedDate() error {
	return misused("-date %q: the clocks of %v skipped it", s.date, s.zone)
}

// printReport prints a report for people: a line for each count, and below it the numbers counted.
func (p *printer) printReport(r *serial.Report) {
	all := max(0, r.Last-r.First+1)
	period := p.name(r.Start)
	_, _ = fmt.Fprintf(p, "%s in %s (from %s)\n", p.series(r.Type), period, r.Start.Format(time.RFC3339))
	if all == 0 {
		_, _ = fmt.Fprintln(p, "issued     0")
	} else {
		_, _ = fmt.Fprintf(p, "issued     %d: %s to %s\n", all, p.digits(r.First), p.digits(r.Last))
	}
	_, _ = fmt.Fprintf(p, "used       %d\n", r.Count)
	var doubles, beyond, foreign []string
	for _, n := range r.Duplicates {
		doubles = append(doubles, p.digits(n.Seq))
	}
	for _, n := range r.Beyond {
		beyond = append(beyond, p.digits(n.Seq))
	}
	for _, text := range r.Foreign {
		foreign = append(foreign, fmt.Sprintf("%q", text))
	}
	if p.explained != "" {
		p.printExplained(r)
	} else {
		p.listRanges("missing", r.MissingCount, gaps(r.Missing))
	}
	p.list("double", r.DuplicateCount, r.DuplicateCount-int64(len(doubles)), doubles)
	p.list("beyond", r.BeyondCount, r.BeyondCount-int64(len(beyond)), beyond)
	p.list("foreign", r.ForeignCount, r.ForeignCount-int64(len(foreign)), foreign)
	if r.OtherCount > 0 {
		_, _ = fmt.Fprintf(p, "others     %d, of other types or periods\n", r.OtherCount)
	}
	verdict := "all numbers are accounted for"
	if !r.Clean() {
		verdict = errFound.Error()
	}
	_, _ = fmt.Fprintf(p, "%s in %s: %s\nchecked %s, signed ______________________________\n",
		p.series(r.Type), period, verdict,
		p.time(time.Now()))
}

// list prints a count and the items counted; more is the number of items not listed.
func (p *printer) list(name string, count, more int64, all []string) {
	_, _ = fmt.Fprintf(p, "%-10s %d\n", name, count)
	for _, item := range all {
		_, _ = fmt.Fprintln(p, " ", item)
	}
	if more > 0 {
		_, _ = fmt.Fprintf(p, "  and %d more\n", more)
	}
}

// listRanges prints a count of sequences, and ranges of them.
func (p *printer) listRanges(name string, count int64, ranges []gap) {
	var items []string
	more := count
	for _, r := range ranges {
		items = append(items, p.rangeOf(r))
		more -= r.Last - r.First + 1
	}
	p.list(name, count, more, items)
}

// rangeOf prints a range of sequences, such as 0007 or 0007-0012.
func (p *printer) rangeOf(r gap) string {
	if r.First == r.Last {
		return p.digits(r.First)
	}
	return p.digits(r.First) + "-" + p.digits(r.Last)
}

// A gap is a range as JSON.
type gap struct {
	First int64 `json:"first"`
	Last  int64 `json:"last"`
}

func gaps(ranges []serial.Range) []gap {
	all := []gap{}
	for _, r := range ranges {
		all = append(all, gap(r))
	}
	return all
}

// printReportJSON prints a report on one line.
func (p *printer) printReportJSON(r *serial.Report) {
	out := struct {
		Type           string    `json:"type"`
		Start          time.Time `json:"start"`
		First          int64     `json:"first"`
		Last           int64     `json:"last"`
		Count          int64     `json:"count"`
		Missing        []gap     `json:"missing"`
		Duplicates     []string  `json:"duplicates"`
		Beyond         []string  `json:"beyond"`
		Foreign        []string  `json:"foreign"`
		MissingCount   int64     `json:"missingCount"`
		DuplicateCount int64     `json:"duplicateCount"`
		BeyondCount    int64     `json:"beyondCount"`
		ForeignCount   int64     `json:"foreignCount"`
		OtherCount     int64     `json:"otherCount"`
		*explainedJSON
	}{
		r.Type, r.Start, r.First, r.Last, r.Count, gaps(r.Missing), p.texts(r.Duplicates), p.texts(r.Beyond),
		append([]string{}, r.Foreign...), r.MissingCount, r.DuplicateCount, r.BeyondCount, r.ForeignCount, r.OtherCount, nil,
	}
	if p.explained != "" {
		out.explainedJSON = p.explainedOf(r)
	}
	_ = json.NewEncoder(p).Encode(out)
}

// texts returns the numbers as issued, or their sequences if their printed dates are not known.
func (p *printer) texts(numbers []serial.Number) []string {
	all := []string{}
	for _, n := range numbers {
		text := n.String()
		if text == "" {
			text = p.digits(n.Seq)
		}
		all = append(all, text)
	}
	return all
}
