package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/dailyserial/serial/internal/redistest"
)

// Three rounds of a benchmark must become a row with medians. A result without the suffix for GOMAXPROCS must be
// parsed, too, and other lines must be ignored.
func TestTables(t *testing.T) {
	o, err := parse(`cpu: Some CPU
BenchmarkNext/network-of-2-ms/callers=1000/next-types-2   1  2 allocs/number  3000 numbers/s  0.5 numbers/s-ratio
BenchmarkNext/network-of-2-ms/callers=1000/next-types-2   1  9 allocs/number  1000 numbers/s  2 numbers/s-ratio
BenchmarkNext/network-of-2-ms/callers=1000/next-types     1  4 allocs/number  2000 numbers/s  4 numbers/s-ratio
--- SKIP: BenchmarkNext/loopback/callers=1/next
PASS
`)
	if err != nil {
		t.Fatal(err)
	}
	got := tables[0].sections(o)
	for _, want := range []string{
		"\n## Network of 2 ms\n\n| callers | | numbers/s | allocations per number | ×INCR (quartiles) |",
		"\n| 1,000 | **Next**, 1,000 types | 2,000 | 4.00 | 2.00 (1.25–3.00) |",
		"\nMedians of 3 rounds;",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
	if tables[1].sections(o) != "" || chart(o) != "" {
		t.Error("want no table of openings, and no chart without loopback")
	}
	if _, err := parse("PASS\n"); err == nil {
		t.Error("an output without results was accepted")
	}
}

// Two test binaries with the same library take turns in a few short rounds. Their output must become all the files. The
// figures are not checked, because the machine is busy.
func TestAgainst(t *testing.T) {
	redistest.Start(t) // skips the test if there is no server
	dir := t.TempDir()
	if err := run([]string{"-against", "..", "-bench", "Next/loopback/callers=10?$/^(incr|next)$", "-rounds", "2",
		"-round", "1ms", "-out", dir}); err != nil {
		t.Fatal(err)
	}
	if err := run([]string{"-out", dir, filepath.Join(dir, "new.out")}); err != nil {
		t.Fatal(err)
	}
	for file, want := range map[string]string{
		"before-after.md": "\n| loopback | 10 | **Next** | ",
		"old.out":         "BenchmarkNext/loopback/callers=1/incr",
		"results.md":      "\n| 10 | **Next** | ",
		"throughput.svg":  ">Next</text>",
	} {
		if got := text(t, filepath.Join(dir, file)); !strings.Contains(got, want) {
			t.Errorf("no %q in %s:\n%s", want, file, got)
		}
	}
}

// The figures of both READMEs must come from the last measurement.
func TestReadmeFigures(t *testing.T) {
	near, far, _ := strings.Cut(text(t, "results/results.md"), "\n## Network of 2 ms")
	far, _, _ = strings.Cut(far, "\n## ")
	const rate, throughput, p50, p99 = 2, 4, 6, 8
	cell := func(table, row string, column int) string {
		for line := range strings.SplitSeq(table, "\n") {
			if strings.HasPrefix(line, "| "+row+" |") {
				return strings.Split(line, " | ")[column] + " "
			}
		}
		return "" // the row was not measured
	}
	readme := text(t, "README.md")
	for _, callers := range []string{"1", "10", "100", "1,000"} {
		next := callers + " | **Next**"
		row := fmt.Sprintf("\n| %s | %s| %s| %s|", callers, cell(near, next, throughput), cell(near, next, p99),
			cell(far, next, p50))
		if !strings.Contains(readme, row) {
			t.Errorf("README.md lacks %s", row)
		}
	}
	readme = strings.Join(strings.Fields(readme), " ")
	for condition, says := range map[string]string{
		"with a deadline": "With a deadline on every call, 1,000 callers reach ",
		"1,000 types":     "With 1,000 types, they reach ",
	} {
		want := says + strings.TrimSpace(cell(near, "1,000 | **Next**, "+condition, throughput)) + "."
		if !strings.Contains(readme, want) {
			t.Errorf("README.md lacks %s", want)
		}
	}

	rounded := func(row string) string { // returns two digits of a rate, such as 770,000
		n, err := strconv.ParseFloat(strings.ReplaceAll(strings.TrimSpace(cell(near, row, rate)), ",", ""), 64)
		if err != nil {
			t.Fatal(row, err)
		}
		n, _ = strconv.ParseFloat(fmt.Sprintf("%.2g", n), 64)
		return thousands(n)
	}
	want := fmt.Sprintf("one caller gets %s numbers per second, and 1,000 callers get %s. With a deadline on every call, "+
		"they get %s and %s. With plain `INCR`, they get %s and %s ", rounded("1 | **Next**"), rounded("1,000 | **Next**"),
		rounded("1 | **Next**, with a deadline"), rounded("1,000 | **Next**, with a deadline"), rounded("1 | INCR"),
		rounded("1,000 | INCR"))
	if !strings.Contains(strings.Join(strings.Fields(text(t, "../README.md")), " "), want) {
		t.Errorf("../README.md lacks %s", want)
	}
}

// The README's figures for gapless must come from the last measurement.
func TestGaplessFigures(t *testing.T) {
	cells := map[string]string{}
	rate := regexp.MustCompile(`(?m)^\w+/(\w+)/callers=(\d+)/types=(\d+)-\d+\s+\d+\s+(\d+)(\d{3}) gapless/s\s+\d+ ` +
		`minimum/s\s+([\d.]+) ratio$`)
	for _, m := range rate.FindAllStringSubmatch(text(t, "../gapless/testdata/throughput.txt"), -1) {
		ratio, err := strconv.ParseFloat(m[6], 64)
		if err != nil {
			t.Fatal(err)
		}
		cells[m[1]+" "+m[2]+" "+m[3]] = fmt.Sprintf("%s,%s (%.2f)", m[4], m[5], ratio)
	}
	rows := regexp.MustCompile(`(?m)^\| (\d+) \| (\d+) \| (.*) \| (.*) \| (.*) \|$`).
		FindAllStringSubmatch(text(t, "README.md"), -1)
	if len(rows) == 0 {
		t.Fatal("README.md has no figures of gapless")
	}
	for _, row := range rows {
		for i, database := range []string{"PostgreSQL", "MySQL", "SQLite"} {
			if want := cells[database+" "+row[1]+" "+row[2]]; row[3+i] != want {
				t.Errorf("%s: %s, want %s", row[0], database, want)
			}
		}
	}
}

// text returns the text of a file, without the carriage returns that Git adds on Windows.
func text(t *testing.T, file string) string {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return strings.ReplaceAll(string(data), "\r\n", "\n")
}
