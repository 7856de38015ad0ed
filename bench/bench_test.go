package main

import (
	"context"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/dailyserial/serial/internal/redistest"
)

// It is about the program, and no figure is judged: a test's machine is never idle.
func TestCompare(t *testing.T) {
	server := redistest.Start(t)
	quiet(t)
	out := t.TempDir()
	cfg := &config{
		rounds:  2,
		length:  20 * time.Millisecond,
		callers: []int{1, 10},
		only:    regexp.MustCompile("^(next|autopipelined)$"),
		network: regexp.MustCompile(""),
		out:     out,
		check:   true,
	}
	if err := compare(context.Background(), cfg, server.Addr()); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"results.md":     "| 10 | **Next** | network of 2 ms | p50 ×INCR | ≤ 1.15 |",
		"results.csv":    "\nloopback,2,next,10,",
		"throughput.svg": ">Next</text>",
		"p99.svg":        ">INCR, autopipelined</text>",
	} {
		text, err := os.ReadFile(filepath.Join(out, name))
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(text), want) {
			t.Errorf("%s has no %q:\n%s", name, want, text)
		}
	}
}

// Every contestant of a round is next to an INCR, whatever their number.
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
