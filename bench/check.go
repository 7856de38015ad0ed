package main

import (
	"fmt"
	"strings"
)

// A bar is the value that one cell of the table must reach.
type bar struct {
	callers    int
	contestant string
	network    string
	what       string
	value      func(*row) float64
	limit      float64
	atMost     bool
}

func bars() []bar {
	var (
		throughput = func(r *row) float64 { return r.throughputRatio }
		p50        = func(r *row) float64 { return r.p50Ratio }
		p99        = func(r *row) float64 { return r.p99Ratio }
		allocs     = func(r *row) float64 { return r.allocs }
		serverCPU  = func(r *row) float64 { return r.cpuRatio }
		near, far  = networks[0].name, networks[1].name
		many       = networks[2]
	)
	return []bar{
		{1, "next", near, "throughput ×INCR", throughput, 0.75, false},
		{1, "next-deadline", near, "throughput ×INCR", throughput, 0.60, false},
		{4, "next", near, "throughput ×INCR", throughput, 0.75, false},
		{10, "next", near, "throughput ×INCR", throughput, 0.9, false},
		{100, "next", near, "throughput ×INCR", throughput, 8, false},
		{1000, "next", near, "throughput ×INCR", throughput, 20, false},
		{1, "next-1000-types", near, "throughput ×INCR", throughput, 0.70, false},
		{4, "next-1000-types", near, "throughput ×INCR", throughput, 0.65, false},
		{10, "next-1000-types", near, "throughput ×INCR", throughput, 0.65, false},
		{100, "next-1000-types", near, "throughput ×INCR", throughput, 1.2, false},
		{1000, "next-1000-types", near, "throughput ×INCR", throughput, 1.8, false},
		{1, "next", near, "p99 ×INCR", p99, 1.7, true},
		{4, "next", near, "p99 ×INCR", p99, 1.6, true},
		{10, "next", near, "p99 ×INCR", p99, 1.5, true},
		{100, "next", near, "p99 ×INCR", p99, 0.15, true},
		{1000, "next", near, "p99 ×INCR", p99, 0.15, true},
		{1, "next", far, "p50 ×INCR", p50, 1.05, true},
		{10, "next", far, "p50 ×INCR", p50, 1.15, true},
		{100, "next", far, "p50 ×INCR", p50, 1.25, true},
		{1, "nextn-1000", far, "p50 ×INCR", p50, 2, true}, // the time of two round trips
		{1, "nextn-1000", near, "allocations per call", allocs, batch + 30, true},
		{100, "next", near, "allocations per call", allocs, 12, true},
		{many.callers, "next", many.name, "server CPU per number ×INCR", serverCPU, 1.6, true},
		{many.callers, "next-1000-types", many.name, "server CPU per number ×INCR", serverCPU, 1.6, true},
	}
}

// checks lists whether each bar was reached. It skips bars of anything that was not measured.
func checks(rows []*row) string {
	var b strings.Builder
	b.WriteString("## Bars\n\n| callers | | | | bar | measured | |\n| ---: | :--- | :--- | :--- | ---: | ---: | :--- |\n")
	missed, total := 0, 0
	for _, bar := range bars() {
		for _, r := range rows {
			if r.network != bar.network || r.callers != bar.callers || r.contestant.id != bar.contestant {
				continue
			}
			value, sign, verdict := bar.value(r), "≥", "PASS"
			if bar.atMost {
				sign = "≤"
			}
			total++
			if bar.atMost && value > bar.limit || !bar.atMost && value < bar.limit {
				verdict = "**FAIL**"
				missed++
			}
			fmt.Fprintf(&b, "| %s | %s | %s | %s | %s %s | %s | %s |\n", thousands(float64(bar.callers)), r.contestant.title,
				bar.network, bar.what, sign, short(bar.limit), short(value), verdict)
		}
	}
	fmt.Fprintf(&b, "\n%d of %d bars reached.\n", total-missed, total)
	return b.String()
}
