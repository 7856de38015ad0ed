package serialpage

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"net/http"
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
	lines := csv.NewWriter(&out)
	lines.UseCRLF = true
	row := func(cells ...string) {
		for i, cell := range cells {
			cells[i] = harmless(cell)
		}
		_ = lines.Write(cells)
	}
	number := func(n int64) string { return strconv.FormatInt(n, 10) }
	row("what", "first", "last", "count", "numbers", "reason", "by", "at")
	r := &a.Report
	total := func(what string, n int64) { row(what, "", "", number(n), "", "", "", "") }
	row("issued", number(r.First), number(r.Last), number(max(0, r.Last-r.First+1)), "", "", "",
		a.at.UTC().Format(time.RFC3339))
	total("stored", r.Count)
	total("missing", r.MissingCount)
	listed := map[string]int64{}
	ranged := func(what string, g serial.Range, reason, by, at string) {
		listed[what] += g.Last - g.First + 1
		row(what, number(g.First), number(g.Last), number(g.Last-g.First+1), rangeText(s, p, g), reason, by, at)
	}
	for _, e := range r.Explained {
		ranged("explained", e.Range, e.Explanation.Reason, e.Explanation.By, e.Explanation.At.UTC().Format(time.RFC3339))
	}
	for _, g := range r.Unexplained {
		ranged("not explained", g, "", "", "")
	}
	// others makes the counts of all rows add up, where lists are cut.
	others := func(what string, all int64) {
		if rest := all - listed[what]; rest > 0 {
			row(what, "", "", number(rest), "others, not listed here", "", "", "")
		}
	}
	others("explained", r.ExplainedCount)
	others("not explained", r.UnexplainedCount)
	list := func(what string, numbers []serial.Number, all int64) {
		for _, n := range numbers {
			listed[what]++
			row(what, number(n.Seq), number(n.Seq), "1", numberText(s.Source.scheme(), n), "", "", "")
		}
		others(what, all)
	}
	list("stored, but reported as never received", r.Contradicted, r.ContradictedCount)
	list("stored more than once", r.Duplicates, r.DuplicateCount)
	list("stored, but never issued", r.Beyond, r.BeyondCount)
	for _, text := range r.Foreign {
		listed["stored, but not one of our numbers"]++
		row("stored, but not one of our numbers", "", "", "1", text, "", "", "")
	}
	others("stored, but not one of our numbers", r.ForeignCount)
	lines.Flush()
	w.Header().Set("Content-Disposition", `attachment; filename="`+fileName(s, p)+`"`)
	_, _ = out.WriteTo(w)
	return nil
}

// contentTypes are those of the exports.
var contentTypes = map[string]string{"csv": "text/csv; charset=utf-8; header=present", "json": "application/json"}

// fileName names a series and a period.
func fileName(s *Series, p span) string {
	return strings.Map(func(r rune) rune {
		if r < 0x80 && (unicode.IsLetter(r) || unicode.IsDigit(r)) || r == '-' || r == '_' {
			return r
		}
		return '-'
	}, "numbers-"+s.Key+"-"+p.label) + ".csv"
}

// harmless is a cell that no spreadsheet takes for a formula.
func harmless(cell string) string {
	if cell != "" && strings.ContainsRune("=+-@\t\r", rune(cell[0])) {
		return "'" + cell
	}
	return cell
}

// writeJSON answers with an account for programs.
func writeJSON(w http.ResponseWriter, s *Series, p span, a *audit) error {
	type ranged struct {
		First int64 `json:"first"`
		Last  int64 `json:"last"`
	}
	type explained struct {
		ranged
		Reason string    `json:"reason"`
		By     string    `json:"by,omitempty"`
		At     time.Time `json:"at"`
	}
	r, scheme := &a.Report, s.Source.scheme()
	out := struct {
		Key               string      `json:"key"`
		Type              string      `json:"type"`
		Start             time.Time   `json:"start"`
		End               time.Time   `json:"end"`
		At                time.Time   `json:"at"`
		Clean             bool        `json:"clean"`
		First             int64       `json:"first"`
		Last              int64       `json:"last"`
		Stored            int64       `json:"stored"`
		MissingCount      int64       `json:"missingCount"`
		ExplainedCount    int64       `json:"explainedCount"`
		UnexplainedCount  int64       `json:"unexplainedCount"`
		ContradictedCount int64       `json:"contradictedCount"`
		DuplicateCount    int64       `json:"duplicateCount"`
		BeyondCount       int64       `json:"beyondCount"`
		ForeignCount      int64       `json:"foreignCount"`
		Explained         []explained `json:"explained"`
		Unexplained       []ranged    `json:"unexplained"`
		Contradicted      []string    `json:"contradicted"`
		Duplicates        []string    `json:"duplicates"`
		Beyond            []string    `json:"beyond"`
		Foreign           []string    `json:"foreign"`
	}{
		Key: s.Key, Type: s.Type, Start: p.Start, End: p.End, At: a.at, Clean: r.Clean(), First: r.First, Last: r.Last,
		Stored: r.Count, MissingCount: r.MissingCount, ExplainedCount: r.ExplainedCount, UnexplainedCount: r.UnexplainedCount,
		ContradictedCount: r.ContradictedCount, DuplicateCount: r.DuplicateCount, BeyondCount: r.BeyondCount,
		ForeignCount: r.ForeignCount, Explained: []explained{}, Unexplained: []ranged{},
		Contradicted: append([]string{}, texts(scheme, r.Contradicted)...),
		Duplicates:   append([]string{}, texts(scheme, r.Duplicates)...),
		Beyond:       append([]string{}, texts(scheme, r.Beyond)...), Foreign: append([]string{}, r.Foreign...),
	}
	for _, e := range r.Explained {
		x := e.Explanation
		out.Explained = append(out.Explained, explained{ranged(e.Range), x.Reason, x.By, x.At})
	}
	for _, g := range r.Unexplained {
		out.Unexplained = append(out.Unexplained, ranged(g))
	}
	_ = json.NewEncoder(w).Encode(out) // nobody reads it if the client has left
	return nil
}
