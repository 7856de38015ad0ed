package serialpage

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/dailyserial/serial"
)

// writeCSV writes the report of a period as CSV.
func writeCSV(w http.ResponseWriter, numbers printer, a *audit) error {
	t, r := csvTable{numbers: numbers}, &a.Report
	t.row("what", "first", "last", "count", "numbers", "reason", "by", "at")
	t.row("issued", decimal(r.First), decimal(r.Last), decimal(max(0, r.Last-r.First+1)), "", "", "", csvTime(a.at))
	t.row("stored", "", "", decimal(r.Count), "", "", "", "")
	t.row("missing", "", "", decimal(r.MissingCount), "", "", "", "")
	t.ranges("explained", r.Explained, r.ExplainedCount)
	var unexplained, replaced []serial.Explained
	for _, g := range r.Unexplained {
		unexplained = append(unexplained, serial.Explained{Range: g})
	}
	for _, x := range a.replaced {
		replaced = append(replaced, serial.Explained{Range: x.Range, Explanation: x.old})
	}
	t.ranges("not explained", unexplained, r.UnexplainedCount)
	for _, e := range r.Possible { // these rows have no count, because the ranges of possible reasons can overlap
		t.row("possible reason", decimal(e.First), decimal(min(e.Last, r.Last)), "", "", e.Reason, e.By, csvTime(e.At))
	}
	if rest := r.PossibleCount - int64(len(r.Possible)); rest > 0 {
		t.row("possible reason", "", "", "", count(rest)+" others, not listed here", "", "", "")
	}
	t.ranges("replaced explanation", replaced, 0)
	t.numberRows("stored, but reported as never received", r.Contradicted, a.texts(r.Contradicted),
		r.ContradictedCount)
	t.numberRows("stored more than once", r.Duplicates, a.texts(r.Duplicates), r.DuplicateCount)
	t.numberRows("stored, but never issued", r.Beyond, a.texts(r.Beyond), r.BeyondCount)
	return t.send(w, numbers.series, numbers.period.label)
}

// writePeriodsCSV writes a list of periods as CSV.
func writePeriodsCSV(w http.ResponseWriter, v *seriesView) error {
	t := csvTable{}
	t.row("period", "start", "end", "first", "last", "issued", "stored", "explained", "not explained", "result", "checked",
		"since then", "closed")
	for _, p := range v.Rows {
		cells := []string{p.Name, csvTime(p.Start), csvTime(p.End), p.First, p.Last, decimal(p.Issued)}
		if a := p.Audited; a != nil {
			cells = append(cells, decimal(a.Stored), decimal(a.Explained), decimal(a.Unexplained), a.Text(), csvTime(a.At),
				a.Since)
		} else {
			cells = append(cells, "", "", "", "not checked", "", "")
		}
		closed := ""
		if v.Series.closes() {
			closed = map[bool]string{true: "yes", false: "no"}[p.Closed]
		}
		t.row(append(cells, closed)...)
	}
	return t.send(w, v.Series, "periods")
}

// A csvTable is a table in CSV, to which methods add rows.
type csvTable struct {
	bytes.Buffer
	numbers printer
}

// row adds a row. It changes the elements of cells.
func (t *csvTable) row(cells ...string) {
	for i, cell := range cells {
		cells[i] = quoted(cell)
	}
	t.WriteString(strings.Join(cells, ",") + "\r\n")
}

// ranges adds a row for each range, or for each number if the sequences are hidden. The argument all is the count of
// all numbers, including those that the report does not list. If not all numbers are listed, ranges adds a row with the
// count of the others.
func (t *csvTable) ranges(what string, ranges []serial.Explained, all int64) {
	rows := 0
	for _, x := range ranges {
		for _, g := range t.numbers.split([]serial.Range{x.Range}, maxListed-rows) {
			at := ""
			if e := x.Explanation; !e.At.IsZero() {
				at = csvTime(e.At)
			}
			t.row(what, decimal(g.First), decimal(g.Last), decimal(size(g)), t.numbers.ranged(g), x.Explanation.Reason,
				x.Explanation.By, at)
			rows++
			all -= size(g)
		}
	}
	t.rest(what, all)
}

// numberRows adds a row for each number, with its text from texts. The argument all is the count of all numbers,
// including those that the report does not list. If not all numbers are listed, numberRows adds a row with the count of
// the others.
func (t *csvTable) numberRows(what string, numbers []serial.Number, texts []string, all int64) {
	for i, n := range numbers {
		t.row(what, decimal(n.Seq), decimal(n.Seq), "1", texts[i], "", "", "")
	}
	t.rest(what, all-int64(len(numbers)))
}

// rest adds a row for the numbers that are not listed, if there are any, so that the counts of all rows add up.
func (t *csvTable) rest(what string, rest int64) {
	if rest > 0 {
		t.row(what, "", "", decimal(rest), "others, not listed here", "", "", "")
	}
}

func decimal(n int64) string { return strconv.FormatInt(n, 10) }

func csvTime(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// send writes the table as an attachment. The name of the file contains the Key of the series and the text what.
func (t *csvTable) send(w http.ResponseWriter, s *Series, what string) error {
	name := strings.Map(func(r rune) rune {
		if r < 0x80 && (unicode.IsLetter(r) || unicode.IsDigit(r)) || r == '-' || r == '_' {
			return r
		}
		return '-'
	}, "numbers-"+s.Key+"-"+what)
	w.Header().Set("Content-Disposition", `attachment; filename="`+name+`.csv"`)
	_, err := io.WriteString(w, "\ufeff"+t.String()) // the byte order mark makes spreadsheets read the file as UTF-8
	return err
}

// formula matches a character that a spreadsheet can interpret as the beginning of a formula. The character is at the
// beginning of a cell, or follows a character that separates cells in another locale.
var formula = regexp.MustCompile(`(^|[;,\t])([=+\-@\t\r])`)

// quoted returns a cell in quotation marks. It inserts an apostrophe before each character that formula matches.
func quoted(cell string) string {
	for formula.MatchString(cell) { // one replacement would miss the second of two adjacent matches
		cell = formula.ReplaceAllString(cell, "$1'$2")
	}
	return `"` + strings.ReplaceAll(strings.ToValidUTF8(cell, "\ufffd"), `"`, `""`) + `"`
}

// A jsonReport is the report of a period in JSON. Its lists are never null.
type jsonReport struct {
	Key               string          `json:"key"`
	Type              string          `json:"type"`
	Start             time.Time       `json:"start"`
	End               *time.Time      `json:"end"` // null if the period ends after the year 9999
	At                time.Time       `json:"at"`
	Clean             bool            `json:"clean"`
	First             int64           `json:"first"`
	Last              int64           `json:"last"`
	Stored            int64           `json:"stored"`
	MissingCount      int64           `json:"missingCount"`
	ExplainedCount    int64           `json:"explainedCount"`
	UnexplainedCount  int64           `json:"unexplainedCount"`
	PossibleCount     int64           `json:"possibleCount"`
	ContradictedCount int64           `json:"contradictedCount"`
	DuplicateCount    int64           `json:"duplicateCount"`
	BeyondCount       int64           `json:"beyondCount"`
	Explained         []jsonExplained `json:"explained"`
	Unexplained       []jsonRange     `json:"unexplained"`
	Possible          []jsonExplained `json:"possible"`
	Replaced          []jsonReplaced  `json:"replaced"`
	Contradicted      []string        `json:"contradicted"`
	Duplicates        []string        `json:"duplicates"`
	Beyond            []string        `json:"beyond"`
}

// jsonPeriods is the list of the periods of a series in JSON. The list is never null.
type jsonPeriods struct {
	Key     string       `json:"key"`
	Type    string       `json:"type"`
	From    string       `json:"from,omitempty"`
	To      string       `json:"to,omitempty"`
	At      time.Time    `json:"at"`
	Periods []jsonPeriod `json:"periods"`

	// Foreign contains stored texts that are not numbers of the series, as found by the last check of all periods, and
	// ForeignCount is the count of all of them. Both fields are omitted if no check has succeeded.
	ForeignCount *int64   `json:"foreignCount,omitempty"`
	Foreign      []string `json:"foreign,omitempty"`
}

// A jsonPeriod is a period of a list in JSON. Fields with unknown values are null.
type jsonPeriod struct {
	Name        string     `json:"name"`
	Start       time.Time  `json:"start"`
	End         *time.Time `json:"end"`
	First       string     `json:"first"`
	Last        string     `json:"last"`
	Issued      int64      `json:"issued"`
	Stored      *int64     `json:"stored"`
	Explained   *int64     `json:"explained"`
	Unexplained *int64     `json:"unexplained"`
	Clean       *bool      `json:"clean"`
	Checked     *time.Time `json:"checked"`
	Since       string     `json:"since,omitempty"` // reason why the check is out of date
	Closed      *bool      `json:"closed"`
}

type jsonRange struct {
	First int64 `json:"first"`
	Last  int64 `json:"last"`
}

type jsonReason struct {
	Reason string     `json:"reason"`
	By     string     `json:"by,omitempty"`
	At     *time.Time `json:"at"`
}

type jsonExplained struct {
	jsonRange
	jsonReason
}

type jsonReplaced struct {
	jsonExplained
	ReplacedBy jsonReason `json:"replacedBy"`
}

// writeJSON writes the report of a period as JSON.
func writeJSON(w http.ResponseWriter, s *Series, p period, a *audit) error {
	r := &a.Report
	out := jsonReport{
		Key: s.Key, Type: s.Type, Start: p.Start, End: jsonTime(p.End), At: a.at, Clean: r.Clean(),
		First: r.First, Last: r.Last, Stored: r.Count, MissingCount: r.MissingCount, ExplainedCount: r.ExplainedCount,
		UnexplainedCount: r.UnexplainedCount, PossibleCount: r.PossibleCount, ContradictedCount: r.ContradictedCount,
		DuplicateCount: r.DuplicateCount, BeyondCount: r.BeyondCount,
		Explained: []jsonExplained{}, Unexplained: []jsonRange{}, Possible: []jsonExplained{}, Replaced: []jsonReplaced{},
		Contradicted: a.texts(r.Contradicted), Duplicates: a.texts(r.Duplicates),
		Beyond: a.texts(r.Beyond),
	}
	for _, e := range r.Explained {
		out.Explained = append(out.Explained, jsonExplained{jsonRange(e.Range), toJSON(e.Explanation)})
	}
	for _, g := range r.Unexplained {
		out.Unexplained = append(out.Unexplained, jsonRange(g))
	}
	for _, e := range r.Possible {
		out.Possible = append(out.Possible, jsonExplained{jsonRange{e.First, e.Last}, toJSON(e)})
	}
	for _, x := range a.replaced {
		out.Replaced = append(out.Replaced, jsonReplaced{jsonExplained{jsonRange(x.Range), toJSON(x.old)}, toJSON(x.by)})
	}
	return json.NewEncoder(w).Encode(out)
}

// writePeriodsJSON writes a list of periods as JSON.
func writePeriodsJSON(w http.ResponseWriter, v *seriesView) error {
	out := jsonPeriods{Key: v.Series.Key, Type: v.Series.Type, From: v.From, To: v.To, At: v.At, Periods: []jsonPeriod{}}
	if c := v.Check; c != nil && !c.At.IsZero() {
		out.ForeignCount, out.Foreign = &c.ForeignCount, c.Foreign
	}
	for _, p := range v.Rows {
		row := jsonPeriod{Name: p.Name, Start: p.Start, End: jsonTime(p.End), First: p.First, Last: p.Last, Issued: p.Issued}
		if a := p.Audited; a != nil {
			row.Stored, row.Explained, row.Unexplained = &a.Stored, &a.Explained, &a.Unexplained
			row.Clean, row.Checked, row.Since = &a.Clean, jsonTime(a.At), a.Since
		}
		if v.Series.closes() {
			row.Closed = &p.Closed
		}
		out.Periods = append(out.Periods, row)
	}
	return json.NewEncoder(w).Encode(out)
}

func toJSON(e serial.Explanation) jsonReason { return jsonReason{e.Reason, e.By, jsonTime(e.At)} }

// jsonTime returns a pointer to t, or nil if RFC 3339 cannot express t.
func jsonTime(t time.Time) *time.Time {
	if t.Year() < 0 || t.Year() > 9999 {
		return nil
	}
	return &t
}
