package serialpage

import (
	"bytes"
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
	w.Header().Set("Content-Disposition", `attachment; filename="`+fileName(numbers.series, numbers.period)+`"`)
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

// fileName is the name of the file with a period's account.
func fileName(s *Series, p span) string {
	return strings.Map(func(r rune) rune {
		if r < 0x80 && (unicode.IsLetter(r) || unicode.IsDigit(r)) || r == '-' || r == '_' {
			return r
		}
		return '-'
	}, "numbers-"+s.Key+"-"+p.label) + ".csv"
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
