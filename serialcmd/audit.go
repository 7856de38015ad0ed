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

// errFound is the error of an audit that has found something and printed it. For this error, the exit code is 3.
var errFound = errors.New("not all numbers are accounted for")

// audit prints which numbers of a period, or of all periods, are missing, used twice, above the counter or foreign.
func (c *command) audit(ctx context.Context) error {
	at, err := c.when()
	if err != nil {
		return err
	}
	if c.all && c.date != "" {
		return misused("-all and -date: want only one of them")
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
		return misused("-explained -: the numbers are read from stdin, too; want a file for one of them")
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
	from := c.explained
	if from == "-" {
		from = "stdin"
	}
	opts := []serial.AuditOption{serial.WithEarlier(c.earlierSchemes...)}
	_, start, _ := c.scheme.Period(at) // start is zero with -all
	if r := c.Register; r != nil {
		series, _ := c.scheme.Series(c.args[0]) // fails if the type is invalid, and then the audit fails, too
		opts = append(opts, serial.WithExplanations(r.Explanations(ctx, series, start)))
	}
	if c.explained != "" { // the file follows the register, because the last explanation of a number counts
		opts = append(opts, serial.WithExplanations(c.explanations(ctx, from, explained, c.args[0], start)))
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
		c.printReports(&reports)
		return conclusion(reports.Clean())
	}
	report, err := c.gen.Audit(ctx, c.args[0], at, numbers, opts...)
	if err != nil {
		return err
	}
	if c.unnumbered > 0 {
		c.warn("%s has %s without a number; first and last were taken as sequences of %s in %s", from,
			counted(c.unnumbered, "line"), c.series(report.Type), c.name(report.Start))
	}
	c.printReport(&report)
	return conclusion(report.Clean() && report.ForeignCount == 0)
}

// conclusion returns errFound if an audit found something.
func conclusion(clean bool) error {
	if clean {
		return nil
	}
	return errFound
}

// verdict returns the result of an audit in words.
func verdict(clean bool) string {
	if clean {
		return "all numbers are accounted for"
	}
	return errFound.Error()
}

// dates contains the layouts of -date, beginning with the shortest.
var dates = []string{time.DateOnly, "2006-01-02 15:04", time.DateTime, "2006-01-02T15:04", "2006-01-02T15:04:05"}

// when returns the date or the instant of -date, or zero without -date.
func (c *command) when() (serial.When, error) {
	if c.date == "" {
		return serial.When{}, nil
	}
	for _, layout := range dates {
		wall, err := time.Parse(layout, c.date)
		if err != nil {
			continue
		}
		if layout != time.DateOnly {
			return c.instant(wall)
		}
		date := serial.OnDateOf(wall)
		switch label, _, _ := c.scheme.Period(date); {
		case label != "":
			return date, nil
		case c.Calendar.Unit.ShorterThanDay():
			return date, misused("-date %q needs a time, too, as in \"2021-10-24 15:04\", because a period is one %s", c.date,
				c.Calendar.Unit.Noun())
		}
		_, _, err = c.scheme.Span(date) // err is the reason why the date is in no period
		return date, misused("-date: %s", strings.TrimPrefix(err.Error(), "serial: "))
	}
	return serial.When{}, misused("-date %q: want a date such as 2021-10-24", c.date)
}

// instant returns the instant at which clocks in the time zone show the given time.
func (c *command) instant(wall time.Time) (serial.When, error) {
	y, m, d := wall.Date()
	at := time.Date(y, m, d, wall.Hour(), wall.Minute(), wall.Second(), 0, c.Calendar.Location)
	if at.Format(time.DateTime) != wall.Format(time.DateTime) {
		return serial.When{}, misused("-date %q: the clocks of %v skipped this time", c.date, c.Calendar.Location)
	}
	return serial.At(at), nil
}

// printReport prints the report of one period as text or, with -json, as JSON.
func (c *command) printReport(r *serial.Report) {
	c.suggestColumn(r.Foreign)
	subject := c.series(r.Type) + " in " + c.name(r.Start)
	if r.Last < r.First && r.BeyondCount == 0 && r.OtherCount > 0 { // TYPE may be mistyped
		c.warn("no line of the input is a number of %s", subject)
	}
	if c.json {
		c.printReportJSON(r)
		return
	}
	clean := r.Clean() && r.ForeignCount == 0
	result := verdict(clean)
	c.printf("%s (from %s)\n", subject, r.Start.Format(time.RFC3339))
	if issued := c.printCounts(r); clean && !issued {
		result = "no number was issued"
	}
	c.printRest(r.Foreign, r.ForeignCount, r.OtherCount, "periods")
	c.sign(subject, result)
}

// printRest prints the numbers and texts that belong to no audited period.
func (c *command) printRest(foreign []string, foreignCount, otherCount int64, others string) {
	c.list("foreign", foreignCount, mapped(foreign, strconv.Quote))
	if otherCount > 0 {
		c.printf("others     %d, of other types or %s\n", otherCount, others)
	}
}

// sign prints the last lines of a report: the result, and a line for a signature.
func (c *command) sign(subject, result string) {
	c.printf("%s: %s\nchecked %s, signed ______________________________\n", subject, result, c.time(time.Now()))
}

// printCounts prints the counts of a report, each followed by the counted numbers. It reports whether a number was
// issued.
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
	below := map[bool]string{true: " is below the start; was the start changed?"}
	if c.readsExplanations() {
		c.printExplained(r)
	} else {
		c.listRanges("missing", r.MissingCount, gaps(r.Missing))
	}
	c.list("duplicate", r.DuplicateCount, mapped(r.Duplicates, c.printedSeq))
	c.list("beyond", r.BeyondCount, mapped(r.Beyond, func(n serial.Number) string {
		return c.printedSeq(n) + below[n.Seq < r.First]
	}))
	return issued > 0
}

// suggestColumn prints a hint if foreign texts look like lines of CSV.
func (c *command) suggestColumn(foreign []string) {
	if slices.ContainsFunc(foreign, func(text string) bool { return c.isCSV(entry{text: text}) }) {
		c.warn("%s", useColumn)
	}
}

// printReports prints the reports of all periods: a line for each of them, the findings, and then the numbers and texts
// that belong to no period.
func (c *command) printReports(all *serial.Reports) {
	c.suggestColumn(all.Foreign)
	if len(all.Periods) == 0 && all.OtherCount > 0 {
		c.warn("Redis has no counter of %s, so no number of the input was checked", c.series(c.args[0]))
	}
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
		return
	}
	subject := fmt.Sprintf("%s in %d periods", c.series(c.args[0]), len(all.Periods))
	c.println(subject)
	for _, r := range all.Periods {
		c.printf("%s  issued %d, used %d, missing %d: %s\n", c.name(r.Start), max(0, r.Last-r.First+1), r.Count,
			r.MissingCount, verdict(r.Clean()))
	}
	for i := range all.Periods {
		if r := &all.Periods[i]; !r.Clean() {
			c.printf("\n%s (from %s)\n", c.name(r.Start), r.Start.Format(time.RFC3339))
			c.printCounts(r)
		}
	}
	c.println("")
	c.list("without", all.WithoutCount, mapped(all.Without, c.name))
	if all.WithoutCount > 0 {
		c.println("           in these periods, no number was issued, or the counter and the documents were lost")
	}
	c.printRest(all.Foreign, all.ForeignCount, all.OtherCount, "earlier periods")
	c.sign(subject, verdict(all.Clean()))
}

// list prints a count, and the given items. If the count is larger than the number of items, it also prints the
// difference.
func (c *command) list(name string, count int64, items []string) {
	c.listPart(name, count, count-int64(len(items)), items)
}

// listPart prints a count, and the given items. If these do not include everything that was counted, the argument more
// is the count of the rest, and listPart prints it, too.
func (c *command) listPart(name string, count, more int64, items []string) {
	c.printf("%-10s %d\n", name, count)
	for _, item := range items {
		c.println(" ", item)
	}
	if more > 0 {
		c.printf("  and %d more\n", more)
	}
}

// listRanges prints a count of sequences, and the ranges that contain the first of these sequences.
func (c *command) listRanges(name string, count int64, ranges []gap) {
	var items []string
	more := count
	for _, r := range ranges {
		items = append(items, c.formatRange(r))
		more -= r.Last - r.First + 1
	}
	c.listPart(name, count, more, items)
}

// formatRange returns a range of sequences as text, such as 0007 or 0007-0012.
func (c *command) formatRange(r gap) string {
	if r.First == r.Last {
		return c.Template.PrintSeq(r.First)
	}
	return c.Template.PrintSeq(r.First) + "-" + c.Template.PrintSeq(r.Last)
}

// A gap is a range of sequences as JSON.
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
		Series            string        `json:"series"`
	}{
		r.Type, r.Start, r.First, r.Last, r.Count, gaps(r.Missing), c.texts(r.Duplicates), c.texts(r.Beyond),
		append([]string{}, r.Foreign...), r.MissingCount, r.DuplicateCount, r.BeyondCount, r.ForeignCount, r.OtherCount,
		explained, gaps(r.Unexplained), possible, c.texts(r.Contradicted),
		r.ExplainedCount, r.UnexplainedCount, r.PossibleCount, r.ContradictedCount, r.Series,
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

// texts returns the numbers as printed, or their sequences if the dates are unknown.
func (c *command) texts(numbers []serial.Number) []string {
	return mapped(numbers, func(n serial.Number) string { return cmp.Or(n.String(), c.printedSeq(n)) })
}

// printedSeq returns the sequence of a number as the template prints it.
func (c *command) printedSeq(n serial.Number) string { return c.Template.PrintSeq(n.Seq) }

// mapped returns a slice with the result of f for each element. It is never nil, because JSON would print null for nil.
func mapped[T, U any](all []T, f func(T) U) []U {
	results := make([]U, len(all))
	for i, v := range all {
		results[i] = f(v)
	}
	return results
}

// explanations yields the explanations in a CSV file. The columns first and last contain sequences of typ, in the
// period that begins at start. If start is zero, each line must contain a number instead, which may be of any period.
// If an error occurs, explanations yields it and ends. The error contains the name of the file and the number of the
// line.
func (c *command) explanations(ctx context.Context, name string, input io.Reader, typ string,
	start time.Time) iter.Seq2[serial.Explanation, error] {
	return func(yield func(serial.Explanation, error) bool) {
		err := c.readExplanations(ctx, input, typ, start, func(e serial.Explanation) bool { return yield(e, nil) })
		if err == nil {
			return
		}
		yield(serial.Explanation{}, fmt.Errorf("explanations in %s: %w", name, err))
	}
}

// readExplanations calls yield for each explanation in a CSV file, until yield returns false. The error contains the
// number of the line.
func (c *command) readExplanations(ctx context.Context, input io.Reader, typ string, start time.Time,
	yield func(serial.Explanation) bool) error {
	r := newCSV(ctx, input)
	c.undated = time.Now()
	r.FieldsPerRecord = -1 // the count of fields is checked below
	header, err := r.Read()
	for err == nil && isNext(header) {
		header, err = r.Read()
	}
	if errors.Is(err, io.EOF) {
		return errors.New("the file is empty; want a header")
	}
	if err != nil {
		return err
	}
	if err := checkHeader(header); err != nil {
		return err
	}
	header = slices.Clone(header)
	for {
		row, err := r.Read()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if slices.Equal(row, header) || isNext(row) { // the file consists of several outputs of raise
			continue
		}
		if len(row) != len(header) {
			line, _ := r.FieldPos(0)
			return fmt.Errorf("line %d has %d fields; want %d", line, len(row), len(header))
		}
		fields := map[string]string{}
		for i, name := range header {
			fields[name] = strings.TrimSpace(plain(row[i]))
		}
		e, err := c.readExplanation(fields, typ, start)
		if err != nil {
			line, _ := r.FieldPos(0)
			return fmt.Errorf("line %d: %w", line, err)
		}
		if !yield(e) {
			return nil
		}
	}
}

// isNext reports whether a row is a line that raise and takeover print before explanations.
func isNext(row []string) bool {
	return len(row) == 1 && (strings.HasPrefix(row[0], "next ") || strings.HasPrefix(row[0], "seq "))
}

// checkHeader returns an error if a column is missing or occurs twice. It ignores unknown columns.
func checkHeader(header []string) error {
	has := func(name string) bool { return slices.Contains(header, name) }
	for _, name := range []string{"number", "first", "last", "reason", "by", "at", "unused", "possible"} {
		if _, err := findColumn(header, name); err != nil && has(name) { // the column occurs twice
			return err
		}
	}
	if !has("reason") || has("first") != has("last") || !has("number") && !has("first") {
		return fmt.Errorf("the columns are %q; want reason, and either number or first and last; by, at, unused and "+
			"possible are optional", header)
	}
	return nil
}

// onlyPossible matches the reasons of the library that are only possible reasons, and therefore explain nothing.
var onlyPossible = regexp.MustCompile("^(" + serial.AnswerLost + "|" + serial.Raised + "|" + serial.BlockSkipped +
	")([:;]|$)")

// readExplanation returns the explanation in the fields of a line.
func (c *command) readExplanation(fields map[string]string, typ string, start time.Time) (serial.Explanation, error) {
	e := serial.Explanation{Type: typ, Start: start, Reason: fields["reason"], By: fields["by"], At: c.undated}
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
		{"at", instant}, {"unused", parseSwitch(&e.Unused)}, {"possible", parseSwitch(&e.Possible)},
	} {
		if value := fields[column.name]; value != "" {
			if err := column.set(value); err != nil {
				return e, fmt.Errorf("%s %q: %w", column.name, value, err)
			}
		}
	}
	// Without this check, a file without the column "possible" would explain numbers whose documents were deleted.
	if e.By == "" && !e.Possible && onlyPossible.MatchString(e.Reason) {
		return e, fmt.Errorf("reason %q explains nothing unless a person gives it; want true in possible, or a name in by",
			e.Reason)
	}
	if number := fields["number"]; number != "" {
		if fields["first"]+fields["last"] != "" {
			return e, errors.New("the line has a number and also first or last; want only one of these")
		}
		n, err := c.parseEarlier(number, typ, start)
		if err != nil {
			return e, err
		}
		e.Type, e.Start, e.First, e.Last = n.Type, n.Start, n.Seq, n.Seq
	} else if start.IsZero() {
		return e, errors.New("the number is missing; with -all, each line needs one, because first and last do not show " +
			"the period")
	} else {
		c.unnumbered++
	}
	var err error
	if e.Series, err = c.scheme.Series(e.Type); err != nil {
		return e, err
	}
	return e, e.Validate()
}

// parseEarlier parses a number with the current template and then with the earlier ones. It returns the first result
// that belongs to typ and to the period that begins at start. If there is none, it returns the first result.
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

// printExplained prints the missing numbers with their reasons, and then the unexplained numbers and their possible
// reasons.
func (c *command) printExplained(r *serial.Report) {
	var reasons, possible []string
	line := func(r gap, e *serial.Explanation) string {
		text, who := c.formatRange(r)+" "+e.Reason, e.By
		if !e.At.Equal(c.undated) {
			who = strings.TrimPrefix(who+", "+c.time(e.At), ", ")
		}
		if who != "" {
			text += " (" + who + ")"
		}
		return text
	}
	more := r.ExplainedCount
	for _, e := range r.Explained {
		reasons = append(reasons, line(gap(e.Range), &e.Explanation))
		more -= e.Last - e.First + 1
	}
	for _, e := range r.Possible {
		possible = append(possible, line(gap{e.First, e.Last}, &e))
	}
	c.printf("%-10s %d\n", "missing", r.MissingCount)
	c.listPart("explained", r.ExplainedCount, more, reasons)
	c.listRanges("not explained", r.UnexplainedCount, gaps(r.Unexplained))
	if r.PossibleCount > 0 {
		c.list("possible reasons", r.PossibleCount, possible)
	}
	c.list("contradicted", r.ContradictedCount, mapped(r.Contradicted, c.printedSeq))
}

// time returns an instant as text, in the time zone of the scheme.
func (c *command) time(at time.Time) string { return at.In(c.Calendar.Location).Format(time.RFC3339) }
