package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/dailyserial/serial/internal/redistest"
)

// TestMain makes the test binary a worker if it is started as one.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == workerFlag {
		main()
		return
	}
	os.Exit(m.Run())
}

// brief returns a new server, and the settings of a measurement that is over soon and prints nothing.
func brief(t *testing.T) (*redistest.Server, *config) {
	quiet(t)
	return redistest.Start(t), &config{
		rounds:  2,
		length:  20 * time.Millisecond,
		callers: []int{1, 10},
		network: regexp.MustCompile(""),
		out:     t.TempDir(),
	}
}

// This tests the program and no figures, since a machine that runs tests is never idle.
func TestCompare(t *testing.T) {
	server, cfg := brief(t)
	cfg.only, cfg.check = regexp.MustCompile("^(next|next-1000-types|autopipelined)$"), true
	if err := compare(context.Background(), cfg, server.Addr()); err != nil {
		t.Fatal(err)
	}
	requireFiles(t, cfg.out, map[string][]string{
		"results.md": {
			"| 10 | **Next** | network of 2 ms | p50 ×INCR | ≤ 1.15 |",
			"| 4 | **Next**, 1,000 types | fleet | server CPU per number ×INCR | ≤ 1.60 |",
		},
		"results.csv":    {"\nloopback,2,next,10,", "\nfleet,2,next,4,"},
		"throughput.svg": {">Next</text>"},
		"p99.svg":        {">INCR, autopipelined</text>"},
	})
}

// INCREX is measured if the server has it. Otherwise the report says that it did not run, and the others do.
func TestIncrEX(t *testing.T) {
	server, cfg := brief(t)
	cfg.only, cfg.network = regexp.MustCompile("^(increx|next)$"), regexp.MustCompile("^loopback$")
	if err := compare(context.Background(), cfg, server.Addr()); err != nil {
		t.Fatal(err)
	}
	want := "\nDid not run, since the server does not have this command: INCREX, "
	if info, err := server.Client(t).Do(t.Context(), "COMMAND", "INFO", "INCREX").Slice(); err != nil {
		t.Fatal(err)
	} else if info[0] != nil {
		want = "\n| 1 | INCREX, "
	}
	requireFiles(t, cfg.out, map[string][]string{"results.md": {want, "\n| 1 | **Next** |"}})
}

func TestAgainst(t *testing.T) {
	server, cfg := brief(t)
	cfg.only, cfg.against = regexp.MustCompile("^next(-1000-types)?$"), ".."
	if err := against(context.Background(), cfg, server.Addr()); err != nil {
		t.Fatal(err)
	}
	requireFiles(t, cfg.out, map[string][]string{"before-after.md": {
		"\n- Old: ", "\n| 1 × 1 | **Next** |", "\n| 1 × 10 | **Next**, 1,000 types |", "\n| 8 × 4 | **Next**, 1,000 types |",
	}})
}

// No worker calls before the start, the calls of all workers count, and a worker that fails ends the measurement.
func TestFleet(t *testing.T) {
	server := redistest.Start(t)
	rdb := server.Client(t)
	f, err := startFleet(os.Args[0], 3, job{Addr: server.Addr()})
	if err != nil {
		t.Fatal(err)
	}
	defer f.stop()
	measure := func(begin func()) (*tally, error) {
		return f.call(t.Context(), &entrant{contestant: byID(baseline)}, 4, 20*time.Millisecond, func() error {
			begin()
			return nil
		})
	}
	sum, err := measure(func() {
		if n := rdb.Exists(t.Context(), "plain").Val(); n != 0 {
			t.Error("workers called before the start")
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	if n := rdb.Get(t.Context(), "plain").Val(); n != strconv.Itoa(sum.Calls) {
		t.Errorf("%d calls counted, the server had %s", sum.Calls, n)
	}
	if took := sum.End.Sub(sum.Start); took < 20*time.Millisecond {
		t.Errorf("took %v", took)
	}
	if _, err := measure(server.Kill); err == nil || !strings.Contains(err.Error(), "bench: ") {
		t.Errorf("without a server: %v", err)
	}
}

// Every contestant of a round is next to an INCR, for any number of contestants.
func TestLineup(t *testing.T) {
	all := contestants()
	for n := range len(all) {
		for round := range 2 * len(all) {
			base := &entrant{contestant: all[0]}
			var others []*entrant
			for _, c := range all[1 : n+1] {
				others = append(others, &entrant{contestant: c})
			}
			seen := map[string]int{}
			var turn []*sample
			for _, e := range lineup(base, others, round) {
				seen[e.id]++
				turn = append(turn, &sample{contestant: e.contestant})
			}
			pair(turn)
			for i, s := range turn {
				if s.base == nil && s.contestant != base.contestant {
					t.Fatalf("round %d of %d: %s at %d has no INCR", round, n, s.contestant.id, i)
				}
			}
			for _, e := range others {
				if seen[e.id] != 1 {
					t.Fatalf("round %d of %d: %s is there %d times", round, n, e.id, seen[e.id])
				}
			}
		}
	}
}

// A round's ratio compares the sum of its parts with the sum of the INCRs next to them.
func TestAddUp(t *testing.T) {
	all := contestants()
	incr, next := all[0], byID("next")
	part := func(c *contestant, calls, ms int) *sample {
		elapsed := time.Duration(ms) * time.Millisecond
		return &sample{
			contestant: c, callers: 1, calls: calls, elapsed: elapsed, p50: elapsed, p99: 2 * elapsed,
			allocs: uint64(10 * calls), serverCPU: elapsed / 2,
		}
	}
	turns := [][]*sample{
		{part(incr, 100, 10), part(next, 50, 10), part(incr, 999, 1)}, // the second INCR is next to another contestant
		{part(incr, 999, 1), part(next, 50, 40), part(incr, 100, 30)},
		{part(next, 20, 50), part(incr, 40, 10)},
	}
	for i, base := range []int{0, 2, 1} {
		for _, s := range turns[i] {
			if s.contestant == next {
				s.base = turns[i][base]
			}
		}
	}
	sums := addUp(turns)
	if len(sums) != 2 || sums[0].contestant != incr || sums[1].contestant != next {
		t.Fatalf("%d samples", len(sums))
	}
	want := part(next, 120, 100)
	want.p50, want.p99, want.base = 40*time.Millisecond, 80*time.Millisecond, part(incr, 240, 50)
	want.base.p50, want.base.p99 = 10*time.Millisecond, 20*time.Millisecond
	if !reflect.DeepEqual(sums[1], want) {
		t.Errorf("%+v of %+v, want %+v of %+v", sums[1], sums[1].base, want, want.base)
	}
	if s := sums[0]; s.calls != 100+999+999+100+40 || s.elapsed != 52*time.Millisecond || s.base != nil {
		t.Errorf("INCR: %+v", s)
	}
}

// A single number of callers makes no curve.
func TestNoCurveOfOnePoint(t *testing.T) {
	dir := t.TempDir()
	rows := []*row{{network: networks[0].name, contestant: byID(baseline), callers: 1, numbersPerSecond: 20_000, p99: 1e6}}
	if err := plots(dir, rows); err != nil {
		t.Fatal(err)
	}
	if files, err := os.ReadDir(dir); err != nil || len(files) > 0 {
		t.Errorf("%v, %v", files, err)
	}
}

// requireFiles demands that each file contains each text.
func requireFiles(t *testing.T, dir string, wants map[string][]string) {
	t.Helper()
	for name, wanted := range wants {
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range wanted {
			if !strings.Contains(string(text), want) {
				t.Errorf("%s has no %q:\n%s", name, want, text)
			}
		}
	}
}

// quiet keeps the tables out of the test's output.
func quiet(t *testing.T) {
	t.Helper()
	stdout, stderr := os.Stdout, os.Stderr
	null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	os.Stdout, os.Stderr = null, null
	t.Cleanup(func() {
		os.Stdout, os.Stderr = stdout, stderr
		_ = null.Close()
	})
}

// First numbers and midnight are measured with few types; figures are not checked.
func TestOpenings(t *testing.T) {
	server, cfg := brief(t)
	cfg.callers, cfg.types = []int{1, 8}, 100
	if err := openings(context.Background(), cfg, server.Addr()); err != nil {
		t.Fatal(err)
	}
	requireFiles(t, cfg.out, map[string][]string{"openings.md": {"\n| 8 | loopback | ", "\n| 1 | network of 2 ms | ",
		"\nThe 100 types of 8 processes ", "\n| without Prepare | ", "\n| with Prepare | "}})
}

// The figures of both READMEs come from the last measurement, and from that on another machine.
func TestReadmeFigures(t *testing.T) {
	near, far, _ := strings.Cut(text(t, "results/results.md"), "\n## Network of 2 ms")
	other, _, _ := strings.Cut(text(t, "results/epyc.md"), "\n## Network of 2 ms")
	far, _, _ = strings.Cut(far, "\n## ")
	const rate, throughput, p50, p99 = 2, 4, 6, 8
	cell := func(table, row string, column int) string {
		for line := range strings.SplitSeq(table, "\n") {
			if strings.HasPrefix(line, "| "+row+" |") {
				return strings.Split(line, " | ")[column] + " "
			}
		}
		return "" // was not measured
	}
	readme := text(t, "README.md")
	for _, callers := range []string{"1", "10", "100", "1,000"} {
		next := callers + " | **Next**"
		row := fmt.Sprintf("\n| %s | %s| %s| %s| %s|", callers, cell(near, next, throughput), cell(near, next, p99),
			cell(far, next, p50), cell(other, next, throughput))
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

	rounded := func(row string) string { // to two digits, such as 770,000
		n, err := strconv.Atoi(strings.ReplaceAll(strings.TrimSpace(cell(near, row, rate)), ",", ""))
		if err != nil {
			t.Fatal(row, err)
		}
		unit := 1
		for n/unit >= 100 {
			unit *= 10
		}
		n = (n + unit/2) / unit * unit
		return fmt.Sprintf("%d,%03d", n/1000, n%1000)
	}
	want := fmt.Sprintf("one caller gets %s numbers per second and 1,000 callers get %s; with a deadline on every call, %s and "+
		"%s. Plain `INCR` gets %s and %s ", rounded("1 | **Next**"), rounded("1,000 | **Next**"),
		rounded("1 | **Next**, with a deadline"), rounded("1,000 | **Next**, with a deadline"), rounded("1 | INCR"),
		rounded("1,000 | INCR"))
	if !strings.Contains(strings.Join(strings.Fields(text(t, "../README.md")), " "), want) {
		t.Errorf("../README.md lacks %s", want)
	}
}

// The README's figures for gapless come from the last measurement.
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
