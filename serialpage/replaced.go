package serialpage

import (
	"slices"
	"time"

	"github.com/dailyserial/serial"
)

// mostProbed is how many explained numbers of a period are looked up to find replaced explanations.
const mostProbed = 20_000

// A replacement is an explanation that does not count for some missing numbers, and the one that counts instead.
type replacement struct {
	ranges  []serial.Range
	old, by serial.Explanation
}

// replacements returns the explanations that fit a missing number but do not count for it, in the order of the numbers.
// more reports that there may be others.
func replacements(r *serial.Report) (list []replacement, more bool) {
	probed, listed := 0, 0
	for _, x := range r.Explained {
		by := plain(x.Explanation)
		for seq := x.First; seq <= x.Last; seq++ {
			if probed++; probed > mostProbed {
				return list, true
			}
			for _, old := range r.Lookup(seq).Replaced {
				if old = plain(old); old == by {
					continue
				}
				i := slices.IndexFunc(list, func(r replacement) bool { return r.old == old && r.by == by })
				if i < 0 {
					i, list = len(list), append(list, replacement{old: old, by: by})
				}
				ranges := &list[i].ranges
				if n := len(*ranges); n > 0 && (*ranges)[n-1].Last == seq-1 && seq > x.First {
					(*ranges)[n-1].Last = seq
				} else if n == 0 || (*ranges)[n-1].Last < seq { // not the same explanation, read twice
					if listed++; listed > mostListed {
						return list[:min(len(list), mostListed)], true
					}
					*ranges = append(*ranges, serial.Range{First: seq, Last: seq})
				}
			}
		}
	}
	return list, listedIn(r.Explained) < r.ExplainedCount
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
