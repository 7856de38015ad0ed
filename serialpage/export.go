package serialpage

import (
	"bytes"
	"encoding/json"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/dailyserial/serial"
)

// writeCSV answers with an account as a table for spreadsheets.
func writeCSV(w http.ResponseWriter, numbers printer, a *audit) error {
	t, r := csvTable{numbers: numbers, rows: map[string]int{}, listed: map[string]int64{}}, &a.Report
	t.WriteString("\ufeff") // so that spreadsheets read UTF-8
	t.row("what", "first", "last", "count", "numbers", "reason", "by", "at")
	t.row("issued", decimal(r.First), decimal(r.Last), decimal(max(0, r.Last-r.First+1)), "", "", "", csvTime(a.at))
	t.row("stored", "", "", decimal(r.Count), "", "", "", "")
	t.row("missing", "", "", decimal(r.MissingCount), "", "", "", "")
	for _, e := range r.Explained {
		t.ranged("explained", e.Range, e.Explanation)
	}
	for _, g := range r.Unexplained {
		t.ranged("not explained", g, serial.Explanation{})
	}
	t.rest("explained", r.ExplainedCount)
	t.rest("not explained", r.UnexplainedCount)
	for _, e := range r.Possible { // without a count: several of these may have the same number
		t.row("possible reason", decimal(e.First), decimal(min(e.Last, r.Last)), "", "", e.Reason, e.By, csvTime(e.At))
	}
	if rest := r.PossibleCount - int64(len(r.Possible)); rest > 0 {
		t.row("possible reason", "", "", "", count(rest)+" others, not listed here", "", "", "")
	}
	for _, x := range a.replaced {
		for _, g := range x.ranges {
			t.ranged("replaced explanation", g, x.old)
		}
	}
	t.numbersOf("stored, but reported as never received", r.Contradicted, a.texts(r.Contradicted, false),
		r.ContradictedCount)
	t.numbersOf("stored more than once", r.Duplicates, a.texts(r.Duplicates, true), r.DuplicateCount)
	t.numbersOf("stored, but never issued", r.Beyond, a.texts(r.Beyond, true), r.BeyondCount)
	const foreign = "stored, but not one of our numbers"
	for _, text := range r.Foreign {
		t.listed[foreign]++
		t.row(foreign, "", "", "1", a.foreign(text), "", "", "")
	}
	t.rest(foreign, r.ForeignCount)
	w.Header().Set("Content-Disposition", `attachment; filename="`+fileName(numbers.series, numbers.period.label)+`"`)
	_, _ = t.WriteTo(w)
	return nil
}

// writePeriodsCSV answers with a list of periods as a table for spreadsheets.
func writePeriodsCSV(w http.ResponseWriter, v *seriesView) error {
	t := csvTable{}
	t.WriteString("\ufeff")
	t.row("period", "start", "end", "first", "last", "issued", "stored", "explained", "not explained", "result", "checked",
		"closed")
	for _, p := range v.Rows {
		cells := []string{p.Name, csvTime(p.Start), csvTime(p.End), p.First, p.Last, decimal(p.Issued)}
		if a := p.Audited; a != nil {
			cells = append(cells, decimal(a.stored), decimal(a.explained), decimal(a.unexplained), a.Text(), csvTime(a.at))
		} else {
			cells = append(cells, "", "", "", "not checked", "")
		}
		closed := ""
		if v.Series.closes() {
			closed = map[bool]string{true: "yes", false: "no"}[p.Closed]
		}
		t.row(append(cells, closed)...)
	}
	w.Header().Set("Content-Disposition", `attachment; filename="`+fileName(v.Series, "periods")+`"`)
	_, _ = t.WriteTo(w)
	return nil
}

// A csvTable is an account in CSV.
type csvTable struct {
	bytes.Buffer
	numbers printer
	rows    map[string]int   // of ranges, by their first cell
	listed  map[string]int64 // numbers in rows, by their first cell
}

// row adds a row.
func (t *csvTable) row(cells ...string) {
	for i, cell := range cells {
		cells[i] = quoted(cell)
	}
	t.WriteString(strings.Join(cells, ",") + "\r\n")
}

// ranged adds a range, or each of its numbers if sequences are hidden. e is zero if there is no reason.
func (t *csvTable) ranged(what string, g serial.Range, e serial.Explanation) {
	at := ""
	if !e.At.IsZero() {
		at = csvTime(e.At)
	}
	for _, g := range t.numbers.split([]serial.Range{g}, mostListed-t.rows[what]) {
		t.listed[what] += size(g)
		t.rows[what]++
		t.row(what, decimal(g.First), decimal(g.Last), decimal(size(g)), t.numbers.ranged(g), e.Reason, e.By, at)
	}
}

// numbersOf adds a row for each number, which is printed as in texts, and one for those that the report does not list.
func (t *csvTable) numbersOf(what string, numbers []serial.Number, texts []string, all int64) {
	for i, n := range numbers {
		t.listed[what]++
		t.row(what, decimal(n.Seq), decimal(n.Seq), "1", texts[i], "", "", "")
	}
	t.rest(what, all)
}

// rest adds a row for the numbers that are not listed, if there are any, so the counts of all rows add up.
func (t *csvTable) rest(what string, all int64) {
	if rest := all - t.listed[what]; rest > 0 {
		t.row(what, "", "", decimal(rest), "others, not listed here", "", "", "")
	}
}

func decimal(n int64) string { return strconv.FormatInt(n, 10) }

func csvTime(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// fileName is the name of a file about a series. what says what else it is about.
func fileName(s *Series, what string) string {
	return strings.Map(func(r rune) rune {
		if r < 0x80 && (unicode.IsLetter(r) || unicode.IsDigit(r)) || r == '-' || r == '_' {
			return r
		}
		return '-'
	}, "numbers-"+s.Key+"-"+what) + ".csv"
}

// formula matches what a spreadsheet may read as the beginning of a formula: at the beginning of a cell, or after a
// character that ends a cell in another locale.
var formula = regexp.MustCompile(`(^|[;,\t])([=+\-@\t\r])`)

// quoted is a cell in quotes, without anything that a spreadsheet may read as a formula.
func quoted(cell string) string {
	for formula.MatchString(cell) { // one replacement misses the second of two in a row
		cell = formula.ReplaceAllString(cell, "$1'$2")
	}
	return `"` + strings.ReplaceAll(strings.ToValidUTF8(cell, "\ufffd"), `"`, `""`) + `"`
}

// A jsonAccount is the account of a period, for programs. Its lists are never null.
type jsonAccount struct {
	Key               string          `json:"key"`
	Type              string          `json:"type"`
	Start             time.Time       `json:"start"`
	End               *time.Time      `json:"end"` // null in the year 10000
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
	ForeignCount      int64           `json:"foreignCount"`
	Explained         []jsonExplained `json:"explained"`
	Unexplained       []jsonRange     `json:"unexplained"`
	Possible          []jsonExplained `json:"possible"`
	Replaced          []jsonReplaced  `json:"replaced"`
	Contradicted      []string        `json:"contradicted"`
	Duplicates        []string        `json:"duplicates"`
	Beyond            []string        `json:"beyond"`
	Foreign           []string        `json:"foreign"`
}

// A jsonPeriods is a list of periods, for programs. The list is never null.
type jsonPeriods struct {
	Key     string       `json:"key"`
	Type    string       `json:"type"`
	From    string       `json:"from,omitempty"`
	To      string       `json:"to,omitempty"`
	At      time.Time    `json:"at"`
	Periods []jsonPeriod `json:"periods"`
}

// A jsonPeriod is a period of a list. What is not known is null.
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

// writeJSON answers with an account for programs.
func writeJSON(w http.ResponseWriter, s *Series, p span, a *audit) error {
	r := &a.Report
	out := jsonAccount{
		Key: s.Key, Type: s.Type, Start: p.Start, End: jsonTime(p.End), At: a.at, Clean: r.Clean(),
		First: r.First, Last: r.Last, Stored: r.Count, MissingCount: r.MissingCount, ExplainedCount: r.ExplainedCount,
		UnexplainedCount: r.UnexplainedCount, PossibleCount: r.PossibleCount, ContradictedCount: r.ContradictedCount,
		DuplicateCount: r.DuplicateCount, BeyondCount: r.BeyondCount, ForeignCount: r.ForeignCount,
		Explained: []jsonExplained{}, Unexplained: []jsonRange{}, Possible: []jsonExplained{}, Replaced: []jsonReplaced{},
		Contradicted: a.texts(r.Contradicted, false), Duplicates: a.texts(r.Duplicates, true),
		Beyond: a.texts(r.Beyond, true), Foreign: []string{},
	}
	for _, e := range r.Explained {
		out.Explained = append(out.Explained, jsonExplained{jsonRange(e.Range), reasonOf(e.Explanation)})
	}
	for _, g := range r.Unexplained {
		out.Unexplained = append(out.Unexplained, jsonRange(g))
	}
	for _, e := range r.Possible {
		out.Possible = append(out.Possible, jsonExplained{jsonRange{e.First, e.Last}, reasonOf(e)})
	}
	for _, x := range a.replaced {
		for _, g := range x.ranges {
			out.Replaced = append(out.Replaced, jsonReplaced{jsonExplained{jsonRange(g), reasonOf(x.old)}, reasonOf(x.by)})
		}
	}
	for _, text := range r.Foreign {
		out.Foreign = append(out.Foreign, a.foreign(text))
	}
	if err := json.NewEncoder(w).Encode(out); err != nil {
		return unavailable(err)
	}
	return nil
}

// writePeriodsJSON answers with a list of periods for programs.
func writePeriodsJSON(w http.ResponseWriter, v *seriesView) error {
	out := jsonPeriods{Key: v.Series.Key, Type: v.Series.Type, From: v.From, To: v.To, At: v.At, Periods: []jsonPeriod{}}
	for _, p := range v.Rows {
		row := jsonPeriod{Name: p.Name, Start: p.Start, End: jsonTime(p.End), First: p.First, Last: p.Last, Issued: p.Issued}
		if a := p.Audited; a != nil {
			row.Stored, row.Explained, row.Unexplained = &a.stored, &a.explained, &a.unexplained
			row.Clean, row.Checked = &a.clean, jsonTime(a.at)
		}
		if v.Series.closes() {
			row.Closed = &p.Closed
		}
		out.Periods = append(out.Periods, row)
	}
	if err := json.NewEncoder(w).Encode(out); err != nil {
		return unavailable(err)
	}
	return nil
}

func reasonOf(e serial.Explanation) jsonReason { return jsonReason{e.Reason, e.By, jsonTime(e.At)} }

// jsonTime is a time in JSON, or null if RFC 3339 cannot express it.
func jsonTime(t time.Time) *time.Time {
	if t.Year() < 0 || t.Year() > 9999 {
		return nil
	}
	return &t
}
