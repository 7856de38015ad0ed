package serialcmd

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/dailyserial/serial"
)

// errFound means that an audit found something, which it has printed. The exit code is 3.
var errFound = errors.New("not all numbers are accounted for")

// audit prints which numbers of a period, or of all periods, are missing, duplicate, beyond the counter or foreign.
func (c *command) audit(ctx context.Context) error {
	at, err := c.when()
	if err != nil {
		return err
	}
	if c.all && c.date != "" {
		return misused("-all and -date: want one of them")
	}
	for _, template := range c.earlier {
		earlier, err := c.scheme.WithTemplate(template)
		if err != nil {
			return misused("-earlier: %w", err)
		}
		c.earlierSchemes = append(c.earlierSchemes, earlier)
	}
	file := c.args[1]
	if c.explained == "-" && (file == "" || file == "-") {
		return misused("-explained -: the numbers come from stdin; name a FILE for one of them")
	}
	input, err := c.openInput(file)
	if err != nil {
		return err
	}
	defer func() { _ = input.Close() }()
	var explained io.ReadCloser
	if c.explained != "" {
		if explained, err = c.openInput(c.explained); err != nil {
			return err
		}
		defer func() { _ = explained.Close() }()
	}
	if c.date == "" && !c.all {
		last, err := c.gen.Peek(ctx, c.args[0]) // Redis's clock determines the current period
		if err != nil {
			return err
		}
		at = serial.At(last.Start)
	}
	opts := []serial.AuditOption{serial.WithEarlier(c.earlierSchemes...)}
	_, start, _ := c.scheme.Period(at) // zero with -all
	if r := c.Register; r != nil {
		series, _ := c.scheme.Series(c.args[0]) // the audit checks the type
		opts = append(opts, serial.WithExplanations(r.Explanations(ctx, series, start)))
	}
	if c.explained != "" { // later than the register, so that the file's win
		opts = append(opts, serial.WithExplanations(c.explanations(ctx, c.explained, explained, c.args[0], start)))
	}
	numbers := func(yield func(string, error) bool) {
		for e, err := range c.entries(ctx, input) {
			if !yield(e.text, err) {
				return
			}
		}
	}
	if c.all {
		reports, err := c.gen.AuditAll(ctx, c.args[0], numbers, opts...)
		if err != nil {
			return err
		}
		return c.printReports(&reports)
	}
	report, err := c.gen.Audit(ctx, c.args[0], at, numbers, opts...)
	if err != nil {
		return err
	}
	return c.printReport(&report)
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
		case c.Calendar.Unit.ShorterThanDay():
			return serial.When{}, misused("-date %q needs a time, too, as in \"2021-10-24 15:04\", since a period is "+
				"one %s", c.date, c.Calendar.Unit.Noun())
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
func (c *command) instantOf(wall time.Time) (time.Time, error) {
	y, m, d := wall.Date()
	hour, minute, second := wall.Clock()
	at := time.Date(y, m, d, hour, minute, second, 0, c.Calendar.Location)
	if at.Format(time.DateTime) != wall.Format(time.DateTime) {
		return time.Time{}, c.skippedDate()
	}
	return at, nil
}

func (c *command) skippedDate() error {
	return misused("-date %q: the clocks of %v skipped it", c.date, c.Calendar.Location)
}

// printReport prints a report as JSON or, for people, a line for each count, and below it the numbers counted. Its error
// is errFound or nil.
func (c *command) printReport(r *serial.Report) error {
	var found error
	if !r.Clean() || r.ForeignCount > 0 {
		found = errFound
	}
	c.suggestColumn(r.Foreign)
	if c.json {
		c.printReportJSON(r)
		return found
	}
	period, verdict := c.name(r.Start), "all numbers are accounted for"
	c.printf("%s in %s (from %s)\n", c.series(r.Type), period, r.Start.Format(time.RFC3339))
	if !c.printCounts(r) {
		verdict = "no number was issued"
	}
	c.printForeign(r.Foreign, r.ForeignCount)
	if r.OtherCount > 0 {
		c.printf("others     %d, of other types or periods\n", r.OtherCount)
	}
	if found != nil {
		verdict = found.Error()
	}
	c.printf("%s in %s: %s\nchecked %s, signed ______________________________\n", c.series(r.Type), period, verdict,
		c.time(time.Now()))
	return found
}

// printCounts prints the counts of a report, and below each the numbers counted. It reports whether a number was issued.
func (c *command) printCounts(r *serial.Report) bool {
	if r.First > 1 {
		c.printf("start      %s\n", c.Template.PrintSeq(r.First))
	}
	issued := max(0, r.Last-r.First+1)
	if issued == 0 {
		c.println("issued     0")
	} else {
		c.printf("issued     %d: %s to %s\n", issued, c.Template.PrintSeq(r.First), c.Template.PrintSeq(r.Last))
	}
	c.printf("used       %d\n", r.Count)
	below := map[bool]string{true: " below the start: was it changed?"}
	beyond := mapped(r.Beyond, func(n serial.Number) string { return c.printedSeq(n) + below[n.Seq < r.First] })
	doubles := mapped(r.Duplicates, c.printedSeq)
	if c.readsExplanations() {
		c.printExplained(r)
	} else {
		c.listRanges("missing", r.MissingCount, gaps(r.Missing))
	}
	c.list("double", r.DuplicateCount, r.DuplicateCount-int64(len(doubles)), doubles)
	c.list("beyond", r.BeyondCount, r.BeyondCount-int64(len(beyond)), beyond)
	return issued > 0
}

func (c *command) printForeign(texts []string, count int64) {
	c.list("foreign", count, count-int64(len(texts)), mapped(texts, strconv.Quote))
}

// suggestColumn prints a hint if foreign texts look like lines of CSV.
func (c *command) suggestColumn(foreign []string) {
	if slices.ContainsFunc(foreign, func(text string) bool { return c.isCSV(entry{text: text}) }) {
		c.warn("%s", useColumn)
	}
}

// printReports prints the reports of all periods: a line for each, the findings, then what belongs to no period. Its
// error is errFound or nil.
func (c *command) printReports(all *serial.Reports) error {
	var found error
	if !all.Clean() {
		found = errFound
	}
	c.suggestColumn(all.Foreign)
	if c.json {
		for i := range all.Periods {
			c.printReportJSON(&all.Periods[i])
		}
		_ = json.NewEncoder(c.out).Encode(struct {
			Without      []time.Time `json:"without"`
			WithoutCount int64       `json:"withoutCount"`
			Foreign      []string    `json:"foreign"`
			ForeignCount int64       `json:"foreignCount"`
			OtherCount   int64       `json:"otherCount"`
		}{append([]time.Time{}, all.Without...), all.WithoutCount, append([]string{}, all.Foreign...), all.ForeignCount,
			all.OtherCount})
		return found
	}
	series := c.series(c.args[0])
	c.printf("%s in %d periods\n", series, len(all.Periods))
	for i := range all.Periods {
		r := &all.Periods[i]
		verdict := "all numbers are accounted for"
		if !r.Clean() {
			verdict = errFound.Error()
		}
		c.printf("%s  issued %d, used %d, missing %d: %s\n", c.name(r.Start), max(0, r.Last-r.First+1), r.Count,
			r.MissingCount, verdict)
	}
	for i := range all.Periods {
		if r := &all.Periods[i]; !r.Clean() {
			c.printf("\n%s (from %s)\n", c.name(r.Start), r.Start.Format(time.RFC3339))
			c.printCounts(r)
		}
	}
	c.println("")
	without := mapped(all.Without, c.name)
	c.list("without", all.WithoutCount, all.WithoutCount-int64(len(without)), without)
	if all.WithoutCount > 0 {
		c.println("           in these periods no number was issued, or counter and documents are gone")
	}
	c.printForeign(all.Foreign, all.ForeignCount)
	if all.OtherCount > 0 {
		c.printf("others     %d, of other types or earlier periods\n", all.OtherCount)
	}
	verdict := "all numbers are accounted for"
	if found != nil {
		verdict = found.Error()
	}
	c.printf("%s in %d periods: %s\nchecked %s, signed ______________________________\n", series, len(all.Periods),
		verdict, c.time(time.Now()))
	return found
}

// list prints a count and the items counted; more is the number of items not listed.
func (c *command) list(name string, count, more int64, all []string) {
	c.printf("%-10s %d\n", name, count)
	for _, item := range all {
		c.println(" ", item)
	}
	if more > 0 {
		c.printf("  and %d more\n", more)
	}
}

// listRanges prints a count of sequences, and ranges of them.
func (c *command) listRanges(name string, count int64, ranges []gap) {
	var items []string
	more := count
	for _, r := range ranges {
		items = append(items, c.rangeOf(r))
		more -= r.Last - r.First + 1
	}
	c.list(name, count, more, items)
}

// rangeOf prints a range of sequences, such as 0007 or 0007-0012.
func (c *command) rangeOf(r gap) string {
	if r.First == r.Last {
		return c.Template.PrintSeq(r.First)
	}
	return c.Template.PrintSeq(r.First) + "-" + c.Template.PrintSeq(r.Last)
}

// A gap is a range as JSON.
type gap struct {
	First int64 `json:"first"`
	Last  int64 `json:"last"`
}

func gaps(ranges []serial.Range) []gap {
	return mapped(ranges, func(r serial.Range) gap { return gap(r) })
}

// printReportJSON prints a report on one line.
func (c *command) printReportJSON(r *serial.Report) {
	explained := mapped(r.Explained, func(e serial.Explained) explanation { return asJSON(gap(e.Range), e.Explanation) })
	possible := mapped(r.Possible, func(e serial.Explanation) explanation { return asJSON(gap{e.First, e.Last}, e) })
	_ = json.NewEncoder(c.out).Encode(struct {
		Type              string        `json:"type"`
		Start             time.Time     `json:"start"`
		First             int64         `json:"first"`
		Last              int64         `json:"last"`
		Count             int64         `json:"count"`
		Missing           []gap         `json:"missing"`
		Duplicates        []string      `json:"duplicates"`
		Beyond            []string      `json:"beyond"`
		Foreign           []string      `json:"foreign"`
		MissingCount      int64         `json:"missingCount"`
		DuplicateCount    int64         `json:"duplicateCount"`
		BeyondCount       int64         `json:"beyondCount"`
		ForeignCount      int64         `json:"foreignCount"`
		OtherCount        int64         `json:"otherCount"`
		Explained         []explanation `json:"explained"`
		Unexplained       []gap         `json:"unexplained"`
		Possible          []explanation `json:"possible"`
		Contradicted      []string      `json:"contradicted"`
		ExplainedCount    int64         `json:"explainedCount"`
		UnexplainedCount  int64         `json:"unexplainedCount"`
		PossibleCount     int64         `json:"possibleCount"`
		ContradictedCount int64         `json:"contradictedCount"`
	}{
		r.Type, r.Start, r.First, r.Last, r.Count, gaps(r.Missing), c.texts(r.Duplicates), c.texts(r.Beyond),
		append([]string{}, r.Foreign...), r.MissingCount, r.DuplicateCount, r.BeyondCount, r.ForeignCount, r.OtherCount,
		explained, gaps(r.Unexplained), possible, c.texts(r.Contradicted),
		r.ExplainedCount, r.UnexplainedCount, r.PossibleCount, r.ContradictedCount,
	})
}

// An explanation is a range of sequences with its reason, as JSON.
type explanation struct {
	gap
	Reason   string    `json:"reason"`
	By       string    `json:"by"`
	At       time.Time `json:"at"`
	Unused   bool      `json:"unused,omitempty"`
	Possible bool      `json:"possible"`
}

func asJSON(g gap, e serial.Explanation) explanation {
	return explanation{g, e.Reason, e.By, e.At, e.Unused, e.Possible}
}

// texts returns the numbers as issued, or their sequences if their printed dates are not known.
func (c *command) texts(numbers []serial.Number) []string {
	return mapped(numbers, func(n serial.Number) string { return cmp.Or(n.String(), c.printedSeq(n)) })
}

// printedSeq returns a number's sequence as the template prints it.
func (c *command) printedSeq(n serial.Number) string { return c.Template.PrintSeq(n.Seq) }

// mapped returns f of each element, in a slice that is not nil, as JSON needs it.
func mapped[T, U any](all []T, f func(T) U) []U {
	results := make([]U, len(all))
	for i, v := range all {
		results[i] = f(v)
	}
	return results
}

// explanations yields the explanations of a CSV file. Its sequences are of typ, in the period that begins at start. With
// a zero start, they are of any period, and each line has a number. The first error ends it, and names the file and the line.
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

// readExplanations calls yield for each explanation of a CSV file until yield returns false. The error names the line.
func (c *command) readExplanations(ctx context.Context, input io.Reader, typ string, start time.Time,
	yield func(serial.Explanation) bool) error {
	r := newCSV(ctx, input)
	now := time.Now()
	r.FieldsPerRecord = -1 // checked below
	header, err := r.Read()
	for err == nil && isNext(header) {
		header, err = r.Read()
	}
	if errors.Is(err, io.EOF) {
		return errors.New("empty; want a first line that names the columns")
	}
	if err != nil {
		return err
	}
	if err := checkHeader(header); err != nil {
		return err
	}
	header = slices.Clone(header)
	for {
		record, err := r.Read()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if slices.Equal(record, header) || isNext(record) { // in concatenated files
			continue
		}
		if len(record) != len(header) {
			line, _ := r.FieldPos(0)
			return fmt.Errorf("line %d: %d fields; want %d", line, len(record), len(header))
		}
		fields := map[string]string{}
		for i, name := range header {
			fields[name] = strings.TrimSpace(plain(record[i]))
		}
		e, err := c.readExplanation(fields, typ, start, now)
		if err != nil {
			line, _ := r.FieldPos(0)
			return fmt.Errorf("line %d: %w", line, err)
		}
		if !yield(e) {
			return nil
		}
	}
}

// isNext reports whether a record is what raise and takeover print before explanations.
func isNext(record []string) bool {
	return len(record) == 1 && (strings.HasPrefix(record[0], "next ") || strings.HasPrefix(record[0], "seq "))
}

// checkHeader refuses columns that do not make explanations. Other columns may be there, too.
func checkHeader(header []string) error {
	has := func(name string) bool { return slices.Contains(header, name) }
	for _, name := range []string{"number", "first", "last", "reason", "by", "at", "unused", "possible"} {
		if _, err := columnOf(header, name); err != nil && has(name) { // twice
			return err
		}
	}
	if !has("reason") || has("first") != has("last") || !has("number") && !has("first") {
		return fmt.Errorf("the columns are %q; want reason, and number or first and last; by, at, unused and possible are "+
			"optional", header)
	}
	return nil
}

// onlyPossible matches the reasons that the library gives only as possible ones.
var onlyPossible = regexp.MustCompile("^(" + serial.AnswerLost + "|" + serial.Raised + "|" + serial.BlockSkipped +
	")([:;]|$)")

// readExplanation reads the fields of a line.
func (c *command) readExplanation(fields map[string]string, typ string, start, now time.Time) (
	serial.Explanation, error) {
	e := serial.Explanation{Type: typ, Start: start, Reason: fields["reason"], By: fields["by"], At: now}
	sequence := func(to *int64) func(string) error {
		return func(value string) (err error) { *to, err = Integer(value, 64); return err }
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
		{"at", instant}, {"unused", switchOf(&e.Unused)}, {"possible", switchOf(&e.Possible)},
	} {
		if value := fields[column.name]; value != "" {
			if err := column.set(value); err != nil {
				return e, fmt.Errorf("%s %q: %w", column.name, value, err)
			}
		}
	}
	// Without this, a file that has lost its column "possible" would excuse deletions.
	if e.By == "" && !e.Possible && onlyPossible.MatchString(e.Reason) {
		return e, fmt.Errorf("reason %q: only a person's explains numbers; want true in possible, or a name in by", e.Reason)
	}
	if number := fields["number"]; number != "" {
		if fields["first"]+fields["last"] != "" {
			return e, errors.New("got a number and first or last; want one or the other")
		}
		n, err := c.parseEarlier(number, typ, start)
		if err != nil {
			return e, err
		}
		e.Type, e.Start, e.First, e.Last = n.Type, n.Start, n.Seq, n.Seq
	} else if start.IsZero() {
		return e, errors.New("no number; with -all, each line needs one, since first and last do not show the period")
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
		case (c.Shared || n.Type == typ) && (start.IsZero() || n.Start.Equal(start)):
			return n, nil
		case err != nil:
			first, err = n, nil
		}
	}
	return first, err
}

// printExplained prints the missing numbers with their reasons, those without a reason, and possible reasons.
func (c *command) printExplained(r *serial.Report) {
	var reasons, possible []string
	line := func(of gap, e *serial.Explanation) string {
		who := c.time(e.At)
		if e.By != "" {
			who = e.By + ", " + who
		}
		return fmt.Sprintf("%s %s (%s)", c.rangeOf(of), e.Reason, who)
	}
	more := r.ExplainedCount
	for _, e := range r.Explained {
		reasons = append(reasons, line(gap(e.Range), &e.Explanation))
		more -= e.Last - e.First + 1
	}
	for _, e := range r.Possible {
		possible = append(possible, line(gap{e.First, e.Last}, &e))
	}
	contradicted := mapped(r.Contradicted, c.printedSeq)
	c.printf("%-10s %d\n", "missing", r.MissingCount)
	c.list("explained", r.ExplainedCount, more, reasons)
	c.listRanges("not explained", r.UnexplainedCount, gaps(r.Unexplained))
	if r.PossibleCount > 0 {
		c.list("possible", r.PossibleCount, r.PossibleCount-int64(len(possible)), possible)
	}
	c.list("contradicted", r.ContradictedCount, r.ContradictedCount-int64(len(contradicted)), contradicted)
}

// time prints an instant in the time zone of the scheme.
func (c *command) time(at time.Time) string { return at.In(c.Calendar.Location).Format(time.RFC3339) }
