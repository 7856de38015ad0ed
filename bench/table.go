package main

import (
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// These are the units of the values that a benchmark reports. halfTime is the median of the durations of all calls in a
// round, and tailTime is their 99th percentile. A unit with ratioSuffix is the ratio to the base.
const (
	rate        = "numbers/s"
	halfTime    = "p50-ns"
	tailTime    = "p99-ns"
	allocations = "allocs/number"
	serverCPU   = "server-ns/number"
	ratioSuffix = "-ratio"
)

// These are the networks between the clients and the server.
const (
	loopback = "loopback"
	slow     = "network-of-2-ms"
)

var networks = []string{loopback, slow}

// A benchmark identifies what a line of the output has measured.
type benchmark struct {
	name, network string
	callers       int
	way           string
}

// An output contains the values of every round of each benchmark, by unit.
type output struct {
	order  []benchmark
	rounds map[benchmark][]values
}

type values map[string]float64

var outputLine = regexp.MustCompile(`(?m)^Benchmark(\w+)/([\w-]+)/callers=(\d+)/([a-z-]*[a-z])(?:-\d+)?\s+\d+\s(.+)$`)

// parse parses the output of go test. It ignores lines that are not results.
func parse(text string) (*output, error) {
	o := &output{rounds: map[benchmark][]values{}}
	for _, m := range outputLine.FindAllStringSubmatch(text, -1) {
		callers, err := strconv.Atoi(m[3])
		b, round, fields := benchmark{m[1], m[2], callers, m[4]}, values{}, strings.Fields(m[5])
		for i := 0; i+1 < len(fields) && err == nil; i += 2 {
			round[fields[i+1]], err = strconv.ParseFloat(fields[i], 64)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", m[0], err)
		}
		if o.rounds[b] == nil {
			o.order = append(o.order, b)
		}
		o.rounds[b] = append(o.rounds[b], round)
	}
	if len(o.order) == 0 {
		return nil, fmt.Errorf("the output has no results of benchmarks:\n%s", text)
	}
	return o, nil
}

// all returns the values with the given unit, one for each round.
func (o *output) all(b benchmark, unit string) []float64 {
	var all []float64
	for _, round := range o.rounds[b] {
		all = append(all, round[unit])
	}
	return all
}

func median(all []float64) float64 { return quantile(all, 0.5) }

// quartiles returns the median as text, with the quartiles in parentheses.
func quartiles(all []float64) string {
	return fmt.Sprintf("%s (%s–%s)", short(median(all)), short(quantile(all, 0.25)), short(quantile(all, 0.75)))
}

// quantile interpolates between the two values that are closest to the quantile q.
func quantile(all []float64, q float64) float64 {
	all = slices.Sorted(slices.Values(all))
	at := q * float64(len(all)-1)
	low := int(at)
	high := min(low+1, len(all)-1)
	return all[low] + (at-float64(low))*(all[high]-all[low])
}

// A table is a file with the results of a benchmark. It has a section for each network.
type table struct {
	benchmark, file, title string
	ratio                  string // heading of the ratios
}

var tables = []table{
	{"Next", "results.md", "Results", "×INCR"},
	{"Openings", "openings.md", "The first number of a type", "×INCR on new keys"},
	{"Costs", "costs.md", "What protection costs", "× unprotected"},
}

// titles is in the order of the chart's legend.
var titles = []struct {
	way, title string
	drawn      bool // whether the way is drawn in the chart
}{
	{"incr", "INCR", true},
	{"get-incr", "GET, then INCR (the published sequence)", true},
	{"autopipelined", "INCR, autopipelined", true},
	{"script", "Script with the same commands and no rules", false},
	{"script-goroutine", "The same script, in another goroutine", false},
	{"next", "**Next**", true},
	{"next-deadline", "**Next**, with a deadline", false},
	{"next-types", "**Next**, 1,000 types", false},
	{"genesis", "ceyewan/genesis idgen (no date)", true},
	{"layotto", "layotto Redis sequencer (no date; its own go-redis v8 client)", true},
	{"opening", "**Next**, a new type each time", false},
	{"opening-ledger", "**Next**, a new type each time, with a ledger", false},
	{"ledger-small", "`WithLedger`, blocks of 100", false},
	{"ledger", "`WithLedger`, blocks of 10,000", false},
	{"replica", "`WithReplicas(1)`", false},
	{"both", "both, blocks of 10,000", false},
}

// title returns the title of the way that b has measured.
func (b benchmark) title() string {
	for _, t := range titles {
		if t.way == b.way {
			return t.title
		}
	}
	return b.way
}

// sections returns the table of each network, or an empty string if the benchmark did not run.
func (t table) sections(o *output) string {
	var text strings.Builder
	for _, network := range networks {
		rounds := math.MaxInt
		for _, b := range o.order {
			if b.name != t.benchmark || b.network != network {
				continue
			}
			if rounds == math.MaxInt {
				heading := strings.ToUpper(network[:1]) + strings.ReplaceAll(network[1:], "-", " ")
				fmt.Fprintf(&text, "\n## %s\n\n| callers | | numbers/s | allocations per number | %[2]s (quartiles) | p50 | "+
					"%[2]s | p99 | %[2]s | server CPU per number | %[2]s (quartiles) |\n| ---: | :--- | ---: | ---: | ---: | "+
					"---: | ---: | ---: | ---: | ---: | ---: |\n", heading, t.ratio)
			}
			rounds = min(rounds, len(o.rounds[b]))
			value := func(unit string) float64 { return median(o.all(b, unit)) }
			ratio := func(unit string) []float64 { return o.all(b, unit+ratioSuffix) }
			fmt.Fprintf(&text, "| %s | %s | %s | %s | %s | %s | %s | %s | %s | %s | %s |\n", thousands(float64(b.callers)),
				b.title(), thousands(value(rate)), short(value(allocations)), quartiles(ratio(rate)), micro(value(halfTime)),
				short(median(ratio(halfTime))), micro(value(tailTime)), short(median(ratio(tailTime))),
				micro(value(serverCPU)), quartiles(ratio(serverCPU)))
		}
		if rounds < math.MaxInt {
			fmt.Fprintf(&text, "\nMedians of %d rounds; ratios are medians of each round's ratio.\n", rounds)
		}
	}
	return text.String()
}

// short returns about three digits of v, because rounds do not agree on more.
func short(v float64) string {
	switch {
	case v < 0.1:
		return fmt.Sprintf("%.3f", v)
	case v < 10:
		return fmt.Sprintf("%.2f", v)
	case v < 100:
		return fmt.Sprintf("%.1f", v)
	}
	return thousands(v)
}

// micro returns nanoseconds as a text in microseconds.
func micro(ns float64) string { return short(ns/1e3) + " µs" }

func thousands(v float64) string {
	s := strconv.FormatFloat(math.Round(v), 'f', -1, 64)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}
