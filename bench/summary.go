package main

import (
	"cmp"
	"slices"
)

// A row sums up the rounds of one contestant with one number of callers, by medians. A ratio is the median of the
// rounds' ratios to the INCR next to them, not a ratio of medians.
type row struct {
	network    string
	contestant *contestant
	callers    int
	rounds     int

	numbersPerSecond float64
	callsPerSecond   float64
	p50, p99         float64 // ns
	allocs           float64 // per call
	serverCPU        float64 // µs per number

	throughputRatio     float64
	lowRatio, highRatio float64 // quartiles of the throughput's ratio
	p50Ratio, p99Ratio  float64

	cpuRatio                  float64 // of server CPU per number
	lowCPURatio, highCPURatio float64 // its quartiles
}

// summarise returns a row for each contestant and number of callers, in table order.
func summarise(samples []*sample) []*row {
	type cell struct {
		network, id string
		callers     int
	}
	var order []cell
	groups := map[cell][]*sample{}
	for _, s := range samples {
		c := cell{s.network, s.contestant.id, s.callers}
		if groups[c] == nil {
			order = append(order, c)
		}
		groups[c] = append(groups[c], s)
	}
	var rows []*row
	for _, c := range order {
		rows = append(rows, newRow(groups[c]))
	}
	// Samples are in the order of the rounds; the table is in the order of the contestants.
	place := map[string]int{}
	for i, c := range contestants() {
		place[c.id] = i
	}
	slices.SortStableFunc(rows, func(a, b *row) int {
		if a.network != b.network {
			return 0 // measured one after the other
		}
		return cmp.Or(cmp.Compare(a.callers, b.callers), cmp.Compare(place[a.contestant.id], place[b.contestant.id]))
	})
	return rows
}

func newRow(group []*sample) *row {
	median := func(value func(s *sample) float64) float64 { return quantile(group, 0.5, value) }
	ratio := func(q float64, value func(s *sample) float64) float64 {
		return quantile(group, q, func(s *sample) float64 {
			if s.base == nil {
				return 1
			}
			return value(s) / value(s.base)
		})
	}
	p50 := func(s *sample) float64 { return float64(s.p50) }
	p99 := func(s *sample) float64 { return float64(s.p99) }
	throughput, serverCPU := (*sample).numbersPerSecond, (*sample).serverCPUPerNumber
	return &row{
		network:    group[0].network,
		contestant: group[0].contestant,
		callers:    group[0].callers,
		rounds:     len(group),

		numbersPerSecond: median(throughput),
		callsPerSecond:   median(throughput) / float64(group[0].contestant.numbers),
		p50:              median(p50),
		p99:              median(p99),
		allocs:           median(func(s *sample) float64 { return float64(s.allocs) / float64(s.calls) }),
		serverCPU:        median(serverCPU),

		throughputRatio: ratio(0.5, throughput),
		lowRatio:        ratio(0.25, throughput),
		highRatio:       ratio(0.75, throughput),
		p50Ratio:        ratio(0.5, p50),
		p99Ratio:        ratio(0.5, p99),

		cpuRatio:     ratio(0.5, serverCPU),
		lowCPURatio:  ratio(0.25, serverCPU),
		highCPURatio: ratio(0.75, serverCPU),
	}
}

// quantile interpolates between the two values closest to q.
func quantile(group []*sample, q float64, value func(s *sample) float64) float64 {
	values := make([]float64, len(group))
	for i, s := range group {
		values[i] = value(s)
	}
	slices.Sort(values)
	at := q * float64(len(values)-1)
	low := int(at)
	high := min(low+1, len(values)-1)
	return values[low] + (at-float64(low))*(values[high]-values[low])
}
