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

// writeCSV answers with an account as a table, for spreadsheets.
func writeCSV(w http.ResponseWriter, s *Series, p span, a *audit) error {
	var out bytes.Buffer
	out.WriteString("\ufeff") // so that a spreadsheet takes it for UTF-8
	row := func(cells ...string) {
		for i, cell := range cells {
			cells[i] = quoted(cell)
		}
		out.WriteString(strings.Join(cells, ",") + "\r\n")
	}
	number := func(n int64) string { return strconv.FormatInt(n, 10) }
	row("what", "first", "last", "count", "numbers", "reason", "by", "at")
	r, numbers := &a.Report, newPrinter(s, p)
	total := func(what string, n int64) { row(what, "", "", number(n), "", "", "", "") }
	row("issued", number(r.First), number(r.Last), number(max(0, r.Last-r.First+1)), "", "", "",
		a.at.UTC().Format(time.RFC3339))
	total("stored", r.Count)
	total("missing", r.MissingCount)
	listed, rows := map[string]int64{}, map[string]int{}
	// ranged lists a range, each number by itself if the numbers are hidden. e says why, or is nil.
	ranged := func(what string, g serial.Range, e *serial.Explanation) {
		reason, by, at := "", "", ""
		if e != nil {
			reason, by, at = e.Reason, e.By, e.At.UTC().Format(time.RFC3339)
		}
		for _, g := range numbers.split([]serial.Range{g}, mostListed-rows[what]) {
			n := g.Last - g.First + 1
			listed[what] += n
			rows[what]++
			row(what, number(g.First), number(g.Last), number(n), numbers.ranged(g), reason, by, at)
		}
	}
	for _, e := range r.Explained {
		ranged("explained", e.Range, &e.Explanation)
	}
	for _, g := range r.Unexplained {
		ranged("not explained", g, nil)
	}
	// others makes the counts of all rows add up, where lists are cut.
	others := func(what string, all int64) {
		if rest := all - listed[what]; rest > 0 {
			row(what, "", "", number(rest), "others, not listed here", "", "", "")
		}
	}
	others("explained", r.ExplainedCount)
	others("not explained", r.UnexplainedCount)
	for _, e := range r.Possible { // a number may be in several of these
		row("possible reason", number(e.First), number(min(e.Last, r.Last)), "", "", e.Reason, e.By,
			e.At.UTC().Format(time.RFC3339))
	}
	if rest := r.PossibleCount - int64(len(r.Possible)); rest > 0 {
		row("possible reason", "", "", "", count(rest)+" others, not listed here", "", "", "")
	}
	for _, x := range a.replaced {
		for _, g := range x.ranges {
			ranged("replaced explanation", g, &x.old)
		}
	}
	list := func(what string, numbers []serial.Number, all int64) {
		for _, n := range numbers {
			listed[what]++
			row(what, number(n.Seq), number(n.Seq), "1", numberText(n), "", "", "")
		}
		others(what, all)
	}
	list("stored, but reported as never received", r.Contradicted, r.ContradictedCount)
	list("stored more than once", r.Duplicates, r.DuplicateCount)
	list("stored, but never issued", r.Beyond, r.BeyondCount)
	for _, text := range r.Foreign {
		listed["stored, but not one of our numbers"]++
		row("stored, but not one of our numbers", "", "", "1", a.foreign(text), "", "", "")
	}
	others("stored, but not one of our numbers", r.ForeignCount)
	w.Header().Set("Content-Disposition", `attachment; filename="`+fileName(s, p)+`"`)
	_, _ = out.WriteTo(w)
	return nil
}

// contentTypes are those of the formats of an account; "" is a page.
var contentTypes = map[string]string{
	"": "text/html; charset=utf-8", "csv": "text/csv; charset=utf-8; header=present", "json": "application/json",
}

// fileName names a series and a period.
func fileName(s *Series, p span) string {
	return strings.Map(func(r rune) rune {
		if r < 0x80 && (unicode.IsLetter(r) || unicode.IsDigit(r)) || r == '-' || r == '_' {
			return r
		}
		return '-'
	}, "numbers-"+s.Key+"-"+p.label) + ".csv"
}

// formula is where a spreadsheet takes what follows for a formula: at the beginning of a cell, or behind what another
// locale takes for the end of one.
var formula = regexp.MustCompile(`(^|[;,\t])([=+\-@\t\r])`)

// quoted is a cell, in quotes, that no spreadsheet takes for a formula.
func quoted(cell string) string {
	for formula.MatchString(cell) { // once is not enough for several in a row
		cell = formula.ReplaceAllString(cell, "$1'$2")
	}
	return `"` + strings.ReplaceAll(strings.ToValidUTF8(cell, "\ufffd"), `"`, `""`) + `"`
}

// writeJSON answers with an account for programs.
func writeJSON(w http.ResponseWriter, s *Series, p span, a *audit) error {
	type ranged struct {
		First int64 `json:"first"`
		Last  int64 `json:"last"`
	}
	type reason struct {
		Reason string     `json:"reason"`
		By     string     `json:"by,omitempty"`
		At     *time.Time `json:"at"`
	}
	type explained struct {
		ranged
		reason
	}
	type replaced struct {
		explained
		ReplacedBy reason `json:"replacedBy"`
	}
	r := &a.Report
	because := func(e *serial.Explanation) reason { return reason{e.Reason, e.By, jsonTime(e.At)} }
	out := struct {
		Key               string      `json:"key"`
		Type              string      `json:"type"`
		Start             time.Time   `json:"start"`
		End               *time.Time  `json:"end"` // null in the year 10000
		At                time.Time   `json:"at"`
		Clean             bool        `json:"clean"`
		First             int64       `json:"first"`
		Last              int64       `json:"last"`
		Stored            int64       `json:"stored"`
		MissingCount      int64       `json:"missingCount"`
		ExplainedCount    int64       `json:"explainedCount"`
		UnexplainedCount  int64       `json:"unexplainedCount"`
		PossibleCount     int64       `json:"possibleCount"`
		ContradictedCount int64       `json:"contradictedCount"`
		DuplicateCount    int64       `json:"duplicateCount"`
		BeyondCount       int64       `json:"beyondCount"`
		ForeignCount      int64       `json:"foreignCount"`
		Explained         []explained `json:"explained"`
		Unexplained       []ranged    `json:"unexplained"`
		Possible          []explained `json:"possible"`
		Replaced          []replaced  `json:"replaced"`
		Contradicted      []string    `json:"contradicted"`
		Duplicates        []string    `json:"duplicates"`
		Beyond            []string    `json:"beyond"`
		Foreign           []string    `json:"foreign"`
	}{
		Key: s.Key, Type: s.Type, Start: p.Start, End: jsonTime(p.End), At: a.at, Clean: r.Clean(),
		First: r.First, Last: r.Last, Stored: r.Count, MissingCount: r.MissingCount, ExplainedCount: r.ExplainedCount,
		UnexplainedCount: r.UnexplainedCount, PossibleCount: r.PossibleCount, ContradictedCount: r.ContradictedCount,
		DuplicateCount: r.DuplicateCount, BeyondCount: r.BeyondCount, ForeignCount: r.ForeignCount,
		Explained: []explained{}, Unexplained: []ranged{}, Possible: []explained{}, Replaced: []replaced{},
		Contradicted: append([]string{}, texts(r.Contradicted)...),
		Duplicates:   append([]string{}, texts(r.Duplicates)...), Beyond: append([]string{}, texts(r.Beyond)...),
		Foreign: []string{},
	}
	for _, e := range r.Explained {
		out.Explained = append(out.Explained, explained{ranged(e.Range), because(&e.Explanation)})
	}
	for _, g := range r.Unexplained {
		out.Unexplained = append(out.Unexplained, ranged(g))
	}
	for _, e := range r.Possible {
		out.Possible = append(out.Possible, explained{ranged{e.First, e.Last}, because(&e)})
	}
	for _, x := range a.replaced {
		for _, g := range x.ranges {
			out.Replaced = append(out.Replaced, replaced{explained{ranged(g), because(&x.old)}, because(&x.by)})
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

// jsonTime is a time in JSON: null where RFC 3339 has none.
func jsonTime(t time.Time) *time.Time {
	if t.Year() < 0 || t.Year() > 9999 {
		return nil
	}
	return &t
}
