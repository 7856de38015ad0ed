package account

import (
	"cmp"
	"container/heap"
	"slices"
	"sort"
	"time"
)

// An Explanation is a reason why sequences are missing.
type Explanation struct {
	First, Last int64 // range of sequences; First is at least 1, and Last at least First
	Reason, By  string
	At          time.Time
	Unused      bool   // whether no caller got the sequences
	Possible    bool   // whether the reason is only possible, and explains no sequence; never together with Unused
	Rank        uint32 // index in the order in which explanations were added, set by Explain
}

// Explained is a range of missing sequences with one explanation.
type Explained struct {
	Range
	Explanation *Explanation // explanation, with At in UTC
}

// Explain adds an explanation. If several explanations cover a missing sequence, those with By take precedence over
// those without, and among the rest, the one that was added last takes precedence. Explain must be called after all
// sequences have been added.
func (a *Account) Explain(e Explanation) {
	e.At, e.Rank = e.At.Round(0).UTC(), uint32(len(a.explanations))
	a.explanations = append(a.explanations, &e)
}

// explain adds to a report the missing sequences, their explanations, and the possible reasons for the unexplained
// sequences. It divides each missing range into pieces in which the same explanations have begun.
func (a *Account) explain(r *Report) {
	b, all := a.book, a.explanations
	next := 0                                    // first explanation that has not begun
	begun := make(strengths, 0, len(all))        // explanations that have begun
	reasons := make([]*Explanation, 0, len(all)) // possible reasons that have begun; the first ones, up to decided, apply
	decided := 0
	for m := range a.missing() {
		r.Missing = include(b, missing, r.Missing, m)
		for piece := (Range{First: m.First}); piece.First <= m.Last; piece.First = piece.Last + 1 {
			for ; next < len(all) && all[next].First <= piece.First; next++ {
				if all[next].Possible {
					reasons = append(reasons, all[next])
				} else {
					heap.Push(&begun, all[next])
				}
			}
			for len(begun) > 0 && begun[0].Last < piece.First {
				heap.Pop(&begun)
			}
			piece.Last = m.Last
			if next < len(all) {
				piece.Last = min(piece.Last, all[next].First-1)
			}
			if len(begun) > 0 {
				piece.Last = min(piece.Last, begun[0].Last)
				r.ExplainedCount += piece.Last - piece.First + 1
				last := len(r.Explained) - 1
				if last >= 0 && r.Explained[last].Explanation == begun[0] && r.Explained[last].joins(piece) {
					r.Explained[last].Last = piece.Last
				} else {
					r.Explained = include(b, explained, r.Explained, Explained{piece, begun[0]})
				}
				continue
			}
			if last := len(r.Unexplained) - 1; last >= 0 && r.Unexplained[last].joins(piece) {
				r.Unexplained[last].Last = piece.Last
			} else {
				r.Unexplained = include(b, unexplained, r.Unexplained, piece)
			}
			// A reason that ends before this piece covers no unexplained sequence. All other reasons cover this piece.
			ends := func(e *Explanation) bool { return e.Last < piece.First }
			reasons = reasons[:decided+len(slices.DeleteFunc(reasons[decided:], ends))]
			decided = len(reasons)
		}
	}
	r.UnexplainedCount, r.PossibleCount = r.MissingCount-r.ExplainedCount, int64(decided)
	slices.SortFunc(reasons[:decided], byTime)
	for _, e := range reasons[:decided] {
		r.Possible = include(b, possible, r.Possible, *e)
	}
}

// joins reports whether a range begins where r ends.
func (r Range) joins(next Range) bool { return r.Last == next.First-1 }

// byTime compares explanations by At, and then by the order in which they were added.
func byTime(x, y *Explanation) int { return cmp.Or(x.At.Compare(y.At), cmp.Compare(x.Rank, y.Rank)) }

// A Finding contains the details of one sequence.
type Finding struct {
	Issued       bool           // whether the sequence is in the range from first to last
	Stored       int            // number of uses: 0, 1, or 2 for more than one
	Explanation  *Explanation   // explanation that takes precedence, or nil if the sequence is not missing
	Replaced     []*Explanation // other explanations, in the order in which they were added
	Possible     []*Explanation // possible reasons, ordered by At
	Contradicted bool           // whether the sequence was used, although an explanation calls it unused
}

// Lookup returns the finding about a sequence. The account must be closed.
func (a *Account) Lookup(seq int64) Finding {
	if seq < 1 {
		return Finding{}
	}
	e := Finding{Issued: a.first <= seq && seq <= a.last, Stored: a.tally.times(seq)}
	after := sort.Search(len(a.explanations), func(i int) bool { return a.explanations[i].First > seq })
	for i := after - 1; i >= 0 && a.reach[i] >= seq; i-- {
		switch x := a.explanations[i]; {
		case x.Last < seq:
		case x.Possible:
			e.Possible = append(e.Possible, x)
		default:
			e.Replaced = append(e.Replaced, x)
			e.Contradicted = e.Contradicted || x.Unused && e.Stored > 0 && !a.issuedMeanwhile(seq)
		}
	}
	slices.SortFunc(e.Possible, byTime)
	slices.SortFunc(e.Replaced, func(x, y *Explanation) int { return cmp.Compare(x.Rank, y.Rank) })
	if len(e.Replaced) > 0 && e.Issued && e.Stored == 0 {
		e.Explanation = slices.MaxFunc(e.Replaced, weaker)
		e.Replaced = slices.DeleteFunc(e.Replaced, func(x *Explanation) bool { return x == e.Explanation })
	}
	return e
}

// weaker compares explanations by precedence. An explanation that takes precedence over another one is larger.
func weaker(x, y *Explanation) int {
	return cmp.Or(cmp.Compare(min(len(x.By), 1), min(len(y.By), 1)), cmp.Compare(x.Rank, y.Rank))
}

// strengths is a heap of explanations. The first explanation takes precedence over all others.
type strengths []*Explanation

func (h strengths) Len() int           { return len(h) }
func (h strengths) Less(a, b int) bool { return weaker(h[a], h[b]) > 0 }
func (h strengths) Swap(a, b int)      { h[a], h[b] = h[b], h[a] }
func (h *strengths) Push(e any)        { *h = append(*h, e.(*Explanation)) }

func (h *strengths) Pop() (last any) {
	last, *h = (*h)[len(*h)-1], (*h)[:len(*h)-1]
	return last
}
