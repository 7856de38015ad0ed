package main

import (
	"encoding/csv"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// tables renders one Markdown table per network. Below the first one, it says what was not measured, and why.
func tables(rows []*row, unsupported []*contestant) string {
	var b strings.Builder
	for i, r := range rows {
		if i == 0 || rows[i-1].network != r.network {
			fmt.Fprintf(&b, "## %s\n\n", strings.ToUpper(r.network[:1])+r.network[1:])
			b.WriteString("| callers | | calls/s | numbers/s | ×INCR (quartiles) | p50 | ×INCR | p99 | ×INCR " +
				"| allocations per call | server CPU per number | ×INCR (quartiles) |\n")
			b.WriteString("| ---: | :--- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |\n")
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %s | %s | %s | %s | %s | %s | %s |\n",
			thousands(float64(r.callers)), r.contestant.title, thousands(r.callsPerSecond), thousands(r.numbersPerSecond),
			r.throughputQuartiles(), duration(r.p50), short(r.p50Ratio), duration(r.p99), short(r.p99Ratio),
			allocations(r.allocs), cpu(r.serverCPU), r.cpuQuartiles())
		if i == len(rows)-1 || rows[i+1].network != r.network {
			fmt.Fprintf(&b, "\nMedians of %d alternating rounds or more; ratios are medians of each round's ratio to the INCR "+
				"measured next to it.\n", rounds(rows, r.network))
			if peersLeftOut != "" && r.network == networks[0].name {
				fmt.Fprintf(&b, "%s\n", peersLeftOut)
			}
			if r.network == networks[0].name {
				for _, c := range unsupported {
					fmt.Fprintf(&b, "Did not run, since %v: %s.\n", errUnsupported, c.title)
				}
			}
			if many := networks[2]; r.network == many.name {
				fmt.Fprintf(&b, "Each of %d processes has that many callers; p50 and p99 are medians of the processes' values.\n",
					many.processes)
			}
			b.WriteString("\n")
		}
	}
	return b.String()
}

// throughputQuartiles returns the median of the throughput's ratio, with its quartiles in brackets.
func (r *row) throughputQuartiles() string {
	return quartiles(r.throughputRatio, r.lowRatio, r.highRatio)
}

// cpuQuartiles returns the same of the server CPU for each number.
func (r *row) cpuQuartiles() string { return quartiles(r.cpuRatio, r.lowCPURatio, r.highCPURatio) }

func quartiles(median, low, high float64) string {
	return fmt.Sprintf("%s (%s–%s)", short(median), short(low), short(high))
}

// rounds returns the smallest number of measurements in a network's rows; INCR has several in each round.
func rounds(rows []*row, network string) int {
	least := math.MaxInt
	for _, r := range rows {
		if r.network == network {
			least = min(least, r.rounds)
		}
	}
	return least
}

// writeOut writes a file into dir, which it creates if necessary.
func writeOut(dir, name, text string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644)
}

// writeCSV writes all measurements.
func writeCSV(path string, samples []*sample) (err error) {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer func() {
		if e := f.Close(); err == nil {
			err = e
		}
	}()
	w := csv.NewWriter(f)
	_ = w.Write([]string{"network", "round", "contestant", "callers", "calls", "numbers", "elapsed_ns", "p50_ns",
		"p99_ns", "allocations", "server_cpu_us", "throughput_ratio", "p50_ratio", "p99_ratio", "server_cpu_ratio"})
	for _, s := range samples {
		record := []string{
			s.network, strconv.Itoa(s.round), s.contestant.id, strconv.Itoa(s.callers), strconv.Itoa(s.calls),
			strconv.Itoa(s.calls * s.contestant.numbers), integer(s.elapsed), integer(s.p50), integer(s.p99),
			strconv.FormatUint(s.allocs, 10), strconv.FormatInt(s.serverCPU.Microseconds(), 10), "", "", "", "",
		}
		if b := s.base; b != nil {
			record[11] = fmt.Sprintf("%.4f", s.numbersPerSecond()/b.numbersPerSecond())
			record[12] = fmt.Sprintf("%.4f", float64(s.p50)/float64(b.p50))
			record[13] = fmt.Sprintf("%.4f", float64(s.p99)/float64(b.p99))
			record[14] = fmt.Sprintf("%.4f", s.serverCPUPerNumber()/b.serverCPUPerNumber())
		}
		_ = w.Write(record)
	}
	w.Flush()
	return w.Error() // of any write
}

func integer[T ~int64](v T) string { return strconv.FormatInt(int64(v), 10) }

// short prints about three digits, which is how far the rounds agree.
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

func duration(ns float64) string {
	if ns < 1e6 {
		return short(ns/1e3) + " µs"
	}
	return short(ns/1e6) + " ms"
}

func allocations(v float64) string {
	if v < 100 {
		return fmt.Sprintf("%.1f", v)
	}
	return thousands(v)
}

func cpu(us float64) string {
	// An idle server still answers INFO and runs its timers.
	if us < 0.0005 {
		return "0"
	}
	return short(us) + " µs"
}

func thousands(v float64) string {
	s, sign := strconv.FormatFloat(math.Abs(math.Round(v)), 'f', -1, 64), ""
	if v <= -0.5 {
		sign = "-"
	}
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return sign + s
}
