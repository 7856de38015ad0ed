package serialpage

import (
	"context"
	"iter"
	"slices"
	"sort"
	"time"

	"github.com/dailyserial/serial"
)

// mostCompared is how many explanations of a period are compared to find those that were replaced.
const mostCompared = 10_000

// A replacement is an explanation that does not count for some missing numbers, and the one that counts instead.
type replacement struct {
	ranges  []serial.Range
	old, by serial.Explanation
}

// readExplanations are the first explanations that an audit reads of a series and period.
type readExplanations struct {
	series string
	starts []time.Time // of the period, by all schemes

	certain  []serial.Explanation
	possible []serial.Explanation
	more     bool // there are more certain ones than were recorded
	cut      bool // there are more of either kind
}

// record yields explanations and records them.
func (r *readExplanations) record(all iter.Seq2[serial.Explanation, error]) iter.Seq2[serial.Explanation, error] {
	return func(yield func(serial.Explanation, error) bool) {
		for e, err := range all {
			if err == nil && r.wants(e) {
				r.add(e)
			}
			if !yield(e, err) {
				return
			}
		}
	}
}

// wants reports whether an explanation is about the series and period.
func (r *readExplanations) wants(e serial.Explanation) bool {
	return e.Series == r.series && slices.ContainsFunc(r.starts, e.Start.Equal)
}

func (r *readExplanations) add(e serial.Explanation) {
	list := &r.certain
	if e.Possible {
		list = &r.possible
	}
	if len(*list) < mostCompared {
		*list = append(*list, e)
	} else {
		r.cut, r.more = true, r.more || !e.Possible
	}
}

// about returns what the explanations say about a sequence; 0 is none. If the audit did not record all of them, about
// reads them from the register again.
func (r *readExplanations) about(ctx context.Context, register Explanations, seq int64) (w why, err error) {
	if !r.cut || seq == 0 {
		for _, e := range slices.Concat(r.certain, r.possible) {
			w.add(e, seq)
		}
		return w, nil
	}
	for _, start := range r.starts {
		for e, err := range register.Explanations(ctx, r.series, start) {
			if err != nil {
				return why{}, unavailable(err)
			}
			if r.wants(e) {
				w.add(e, seq)
			}
		}
	}
	return w, nil
}

// replaced returns the explanations that fit a missing number but do not count for it, in the order in which they were
// read. more reports that there may be others.
func (r *readExplanations) replaced(report *serial.Report) (list []replacement, more bool) {
	seen, listed := map[serial.Explanation]bool{}, 0
	for _, e := range r.certain {
		old := plain(e)
		if seen[old] {
			continue
		}
		seen[old] = true
		first := sort.Search(len(report.Explained), func(i int) bool { return report.Explained[i].Last >= old.First })
		var found []replacement
		for _, x := range report.Explained[first:] {
			by := plain(x.Explanation)
			if x.First > old.Last {
				break
			}
			if by == old {
				continue
			}
			if listed++; listed > mostListed {
				return append(list, found...), true
			}
			i := slices.IndexFunc(found, func(r replacement) bool { return r.by == by })
			if i < 0 {
				i, found = len(found), append(found, replacement{old: old, by: by})
			}
			found[i].ranges = append(found[i].ranges,
				serial.Range{First: max(x.First, old.First), Last: min(x.Last, old.Last)})
		}
		list = append(list, found...)
	}
	return list, r.more || listedIn(report.Explained) < report.ExplainedCount
}

// listedIn returns how many numbers a list of explained ranges has.
func listedIn(list []serial.Explained) (n int64) {
	for _, e := range list {
		n += size(e.Range)
	}
	return n
}

// plain returns an explanation without its series and period, in a form that == compares correctly.
func plain(e serial.Explanation) serial.Explanation {
	e.Series, e.Type, e.Start, e.At = "", "", time.Time{}, e.At.Round(0).UTC()
	return e
}
