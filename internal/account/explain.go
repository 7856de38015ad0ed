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
	Unused      bool // nobody got them
	Possible    bool // some of them may be missing for this reason: it explains none; not with Unused
}

// Explained is a range of missing sequences that one explanation explains.
type Explained struct {
	Range
	Explanation Explanation // its At is in UTC
}

// explanations are those of an account. Where several fit a missing sequence, a person's comes before others, and then
// the one that was added later.
type explanations struct {
	exact    intervals // those that explain
	possible intervals // possible reasons
	unused   bool      // there are some with Unused
	texts    texts
}

// Explain takes an explanation into account. Call it after all sequences were added.
func (a *Account) Explain(e Explanation) {
	x := &a.explanations
	x.unused = x.unused || e.Unused
	i := interval{first: e.First, last: e.Last, at: e.At.UnixNano()}
	var other time.Time
	if !time.Unix(0, i.at).Equal(e.At) { // before 1678 or after 2262
		other = e.At
	}
	i.text = x.texts.add(e.By, e.Reason, e.Unused, other)
	v := &x.exact
	if e.Possible {
		v = &x.possible
	}
	i.rank = uint32(v.Len())
	if e.By != "" {
		i.rank |= person
	}
	v.list.add(i)
}

// explain completes a report: the missing sequences with their explanations, the possible reasons for the others, and
// the sequences that were used although an explanation says that nobody got them, except for from+1 to to, which were
// issued meanwhile.
func (a *Account) explain(r *Report, from, to int64) {
	x := &a.explanations
	sort.Sort(&x.exact)
	sort.Sort(&x.possible)
	var last *interval // explanation of the last range in r.Explained
	var possible []*interval
	next := 0 // in x.possible
	for piece, by := range x.split(a.missing()) {
		if by != nil {
			r.ExplainedCount += piece.Last - piece.First + 1
			last = x.addExplained(r, piece, by, last)
			continue
		}
		r.addUnexplained(piece)
		// A possible reason is decided at the first unexplained range that does not end before it: it reaches that
		// range, or none.
		for ; next < x.possible.Len() && x.possible.list.at(next).first <= piece.Last; next++ {
			if i := x.possible.list.at(next); i.last >= piece.First {
				r.PossibleCount++
				possible = x.addPossible(possible, i)
			}
		}
	}
	r.UnexplainedCount = r.MissingCount - r.ExplainedCount
	for _, i := range possible {
		e := x.explanation(i)
		e.Possible = true
		r.Possible = append(r.Possible, e)
	}
	if x.unused {
		x.contradict(r, a.tally.All(), from, to)
	}
}

// split yields the missing sequences in ascending order, in ranges that one explanation explains, or none: nil.
func (x *explanations) split(missing iter.Seq[Range]) iter.Seq2[Range, *interval] {
	return func(yield func(Range, *interval) bool) {
		s := sweep{intervals: &x.exact, open: make(strengths, 0, x.exact.Len())}
		var by *interval
		until := int64(-1)
		for m := range missing {
			for m.First <= m.Last {
				if m.First > until {
					by, until = s.strongest(m.First)
				}
				piece := Range{m.First, min(m.Last, until)}
				if !yield(piece, by) {
					return
				}
				m.First = piece.Last + 1
			}
		}
	}
}

// addExplained lists an explained range, unless the list is full, and returns its explanation if so. last is the
// explanation of the last range listed: the range is joined to that one if they touch and have the same explanation.
func (x *explanations) addExplained(r *Report, piece Range, by, last *interval) *interval {
	n := len(r.Explained)
	switch {
	case by == last && r.Explained[n-1].Last == piece.First-1:
		r.Explained[n-1].Last = piece.Last
	case n < Listed:
		r.Explained = append(r.Explained, Explained{piece, x.explanation(by)})
	default:
		return nil
	}
	return by
}

// addUnexplained lists an unexplained range, unless the list is full. It joins ranges that touch.
func (r *Report) addUnexplained(piece Range) {
	if n := len(r.Unexplained); n > 0 && r.Unexplained[n-1].Last == piece.First-1 {
		r.Unexplained[n-1].Last = piece.Last
	} else if n < Listed {
		r.Unexplained = append(r.Unexplained, piece)
	}
}

// addPossible adds a possible reason to a list of the first, ordered by At, then as they were added.
func (x *explanations) addPossible(list []*interval, i *interval) []*interval {
	at, _ := slices.BinarySearchFunc(list, i, func(a, b *interval) int {
		return cmp.Or(x.time(a).Compare(x.time(b)), cmp.Compare(a.rank&^person, b.rank&^person))
	})
	if at == Listed {
		return list
	}
	return slices.Insert(list[:min(len(list), Listed-1)], at, i)
}

// contradict lists the used sequences of which an explanation says that nobody got them, except for those above from,
// up to to.
func (x *explanations) contradict(r *Report, used iter.Seq2[int64, int64], from, to int64) {
	next, reach := 0, int64(0) // reach is the last sequence of the explanations up to next
	for seq := range used {
		for ; next < x.exact.Len() && x.exact.list.at(next).first <= seq; next++ {
			if i := x.exact.list.at(next); x.texts.of(i.text).unused {
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

// explanation returns an explanation as it was given, except for Possible.
func (x *explanations) explanation(i *interval) Explanation {
	t := x.texts.of(i.text)
	return Explanation{First: i.first, Last: i.last, Reason: string(t.reason), By: string(t.by), At: x.time(i),
		Unused: t.unused}
}

// time returns when the explanation was given.
func (x *explanations) time(i *interval) time.Time {
	if t := x.texts.of(i.text); !t.at.IsZero() {
		return t.at
	}
	return time.Unix(0, i.at).UTC()
}

// intervals are explanations in a compact form, of 32 bytes. They are sorted by their first sequences.
type intervals struct{ list chunks[interval] }

// An interval is an explanation of first to last.
type interval struct {
	first, last int64
	at          int64  // when it was given, as Unix time in nanoseconds, unless its text has it
	text        uint32 // its place in texts
	rank        uint32 // the order in which it was added; with person set, somebody gave it
}

const person = 1 << 31

func (v *intervals) Len() int { return v.list.len() }

func (v *intervals) Less(a, b int) bool { return v.list.at(a).first < v.list.at(b).first }

func (v *intervals) Swap(a, b int) {
	i, k := v.list.at(a), v.list.at(b)
	*i, *k = *k, *i
}

// A sweep asks sorted intervals for the strongest one of each sequence, in ascending order.
type sweep struct {
	*intervals
	next int // the first that has not begun
	open strengths
}

// strongest returns the strongest interval that covers a sequence, or nil, and the last sequence for which this is the
// answer.
func (s *sweep) strongest(seq int64) (i *interval, until int64) {
	for ; s.next < s.Len() && s.list.at(s.next).first <= seq; s.next++ {
		s.open = append(s.open, s.list.at(s.next))
		heap.Fix(&s.open, len(s.open)-1)
	}
	until = math.MaxInt64
	if s.next < s.Len() {
		until = s.list.at(s.next).first - 1
	}
	for len(s.open) > 0 {
		if i = s.open[0]; i.last >= seq {
			return i, min(until, i.last)
		}
		last := len(s.open) - 1
		s.open.Swap(0, last)
		if s.open = s.open[:last]; last > 0 {
			heap.Fix(&s.open, 0)
		}
	}
	return nil, until
}

// strengths are a heap with the strongest interval first. [heap.Push] and [heap.Pop] would allocate.
type strengths []*interval

func (h strengths) Len() int           { return len(h) }
func (h strengths) Less(a, b int) bool { return h[a].rank > h[b].rank }
func (h strengths) Swap(a, b int)      { h[a], h[b] = h[b], h[a] }
func (strengths) Push(any)             { panic("not used") }
func (strengths) Pop() any             { panic("not used") }
