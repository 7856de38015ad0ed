package account

import (
	"cmp"
	"container/heap"
	"iter"
	"math"
	"slices"
	"sort"
	"time"
)

// An Explanation says why sequences are missing.
type Explanation struct {
	First, Last int64 // at least 1, in order
	Reason, By  string
	At          time.Time
	Unused      bool // nobody got the sequences
	Possible    bool // some may be missing for this reason, which explains none of them; not with Unused
}

// Explained is a range of missing sequences with one explanation.
type Explained struct {
	Range
	Explanation Explanation // explanation, with At in UTC
}

// explanations are the explanations of an account. If several fit a missing sequence, a person's comes first, then the
// one added last.
type explanations struct {
	all   intervals
	texts texts
}

// Explain adds an explanation. Call it after all sequences have been added.
func (a *Account) Explain(e Explanation) {
	x := &a.explanations
	i := interval{
		first: e.First, last: e.Last, seconds: e.At.Unix(), nanoseconds: int32(e.At.Nanosecond()),
		text: x.texts.add(e.By, e.Reason), rank: uint32(x.all.Len()), unused: e.Unused, possible: e.Possible,
	}
	if e.By != "" {
		i.rank |= person
	}
	x.all.add(i)
}

// explain completes a report with the explanations of the missing sequences, the possible reasons for the unexplained
// ones, and the contradicted sequences, except for from+1 to to, which were issued meanwhile.
func (a *Account) explain(r *Report, from, to int64) {
	x := &a.explanations
	sort.Sort(x.all)
	var possible []*interval
	next := 0 // index in x.all, for possible reasons
	for piece, by := range x.split(a.missing()) {
		if by != nil {
			r.ExplainedCount += piece.Last - piece.First + 1
			if len(r.Explained) < Listed {
				r.Explained = append(r.Explained, Explained{piece, x.explanation(by)})
			}
			continue
		}
		if len(r.Unexplained) < Listed {
			r.Unexplained = append(r.Unexplained, piece)
		}
		// A possible reason counts if it reaches an unexplained range. The first such range that does not end before it
		// decides: it reaches that range or none.
		for ; next < x.all.Len() && x.all.at(next).first <= piece.Last; next++ {
			if i := x.all.at(next); i.last >= piece.First {
				r.PossibleCount++
				possible = addPossible(possible, i)
			}
		}
	}
	r.UnexplainedCount = r.MissingCount - r.ExplainedCount
	for _, i := range possible {
		r.Possible = append(r.Possible, x.explanation(i))
	}
	if x.all.Len() > 0 {
		x.contradict(r, a.tally.All(), from, to)
	}
}

// split yields the missing sequences in ascending order, in the longest ranges with one explanation, or with none: nil.
func (x *explanations) split(missing iter.Seq[Range]) iter.Seq2[Range, *interval] {
	return func(yield func(Range, *interval) bool) {
		s := sweep{all: x.all, open: make(strengths, 0, x.all.Len())}
		var by *interval
		until := int64(-1)
		for m := range missing {
			for seq := m.First; seq <= m.Last; seq = min(m.Last, until) + 1 {
				before := by
				if seq > until {
					by, until = s.strongest(seq)
				}
				if seq > m.First && by != before {
					if !yield(Range{m.First, seq - 1}, before) {
						return
					}
					m.First = seq
				}
			}
			if !yield(m, by) {
				return
			}
		}
	}
}

// addPossible adds a possible reason to a list of the first ones, ordered by At, then as added.
func addPossible(list []*interval, i *interval) []*interval {
	at, _ := slices.BinarySearchFunc(list, i, func(a, b *interval) int {
		return cmp.Or(a.time().Compare(b.time()), cmp.Compare(a.rank&^person, b.rank&^person))
	})
	if at == Listed {
		return list
	}
	return slices.Insert(list[:min(len(list), Listed-1)], at, i)
}

// contradict lists the used sequences that, by an explanation, nobody got, except for from+1 to to.
func (x *explanations) contradict(r *Report, used iter.Seq2[int64, int64], from, to int64) {
	next, reach := 0, int64(0) // reach is the last sequence of the explanations up to next
	for seq := range used {
		for ; next < x.all.Len() && x.all.at(next).first <= seq; next++ {
			if i := x.all.at(next); i.unused {
				reach = max(reach, i.last)
			}
		}
		if seq <= reach && (seq <= from || seq > to) {
			if r.ContradictedCount++; len(r.Contradicted) < Listed {
				r.Contradicted = append(r.Contradicted, Use{Seq: seq})
			}
		}
	}
}

// explanation returns an explanation as given, with At in UTC.
func (x *explanations) explanation(i *interval) Explanation {
	by, reason := x.texts.of(i.text)
	return Explanation{First: i.first, Last: i.last, Reason: reason, By: by, At: i.time(), Unused: i.unused,
		Possible: i.possible}
}

// A sweep finds the strongest of sorted intervals for each sequence, in ascending order.
type sweep struct {
	all  intervals
	next int // first interval that has not begun
	open strengths
}

// strongest returns the strongest interval that explains a sequence, or nil, and the last sequence with the same
// result.
func (s *sweep) strongest(seq int64) (i *interval, until int64) {
	for ; s.next < s.all.Len() && s.all.at(s.next).first <= seq; s.next++ {
		if i := s.all.at(s.next); !i.possible {
			heap.Push(&s.open, i)
		}
	}
	until = math.MaxInt64
	if s.next < s.all.Len() {
		until = s.all.at(s.next).first - 1
	}
	for len(s.open) > 0 {
		if i = s.open[0]; i.last >= seq {
			return i, min(until, i.last)
		}
		heap.Pop(&s.open)
	}
	return nil, until
}

// strengths is a heap with the strongest interval first.
type strengths []*interval

func (h strengths) Len() int           { return len(h) }
func (h strengths) Less(a, b int) bool { return h[a].rank > h[b].rank }
func (h strengths) Swap(a, b int)      { h[a], h[b] = h[b], h[a] }
func (h *strengths) Push(i any)        { *h = append(*h, i.(*interval)) }

func (h *strengths) Pop() (last any) {
	last, *h = (*h)[len(*h)-1], (*h)[:len(*h)-1]
	return last
}
