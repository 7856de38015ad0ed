package account

import (
	"bytes"
	"cmp"
	"iter"
	"math"
	"time"
)

// An Explanation says why sequences are missing.
type Explanation struct {
	First, Last int64 // at least 1, in order
	Count       int64 // how many of First to Last it explains at most; 0 for all
	Reason, By  string
	At          time.Time
	Unused      bool // nobody got them; only with Count 0
}

// Explained is a range of missing sequences that one explanation explains.
type Explained struct {
	Range
	Explanation Explanation // its At is in UTC
}

// explanations are those of an account.
//
// They are applied in two steps. Those without Count explain every missing sequence that they cover; the strongest comes first. The
// other missing sequences are open. They are numbered from 0, so that each explanation with a Count covers an interval of them
// without holes. Which of them explains how many, and which, is a schedule of unit jobs with release times and deadlines: see
// [intervals].
type explanations struct {
	whole   intervals // those without Count
	counted intervals // those with Count
	unused  bool      // there are some with Unused
	texts   texts
}

// Explain takes an explanation into account. Call it after all sequences were added.
func (a *Account) Explain(e Explanation) {
	x := &a.explanations
	x.unused = x.unused || e.Unused
	i := interval{first: e.First, last: e.Last, at: e.At.UnixNano()}
	var other time.Time
	if !time.Unix(0, i.at).Equal(e.At) { // before 1678 or after 2262
		other, i.at = e.At, math.MinInt64
		if e.At.After(time.Unix(0, 0)) {
			i.at = math.MaxInt64
		}
	}
	i.text = x.texts.add(e.By, e.Reason, e.Unused, other)
	if e.Count == 0 {
		x.whole.list.add(i)
		return
	}
	x.counted.list.add(i)
	x.counted.quotas.add(quota{count: e.Count})
}

// explain completes a report: the missing sequences with their explanations, and those that were used though an explanation says that
// nobody got them, except for those from+1 to to, which were issued meanwhile.
func (a *Account) explain(r *Report, from, to int64) {
	x := &a.explanations
	x.whole.sort(x.stronger)
	x.counted.sort(x.stronger)
	open := x.number(a.missing())
	r.ExplainedCount = r.MissingCount - open + x.counted.choose()
	r.UnexplainedCount = r.MissingCount - r.ExplainedCount
	x.list(r, a.missing())
	if x.unused {
		x.contradict(r, a.tally.All(), from, to)
	}
}

// stronger orders explanations by precedence: a person's before others, then the later one, then the narrower one. The rest makes the
// order the same every time.
func (x *explanations) stronger(a, b *interval) int {
	if n := cmp.Or(x.texts.person(b.text)-x.texts.person(a.text), cmp.Compare(b.at, a.at)); n != 0 {
		return n
	}
	first, second := x.texts.of(a.text), x.texts.of(b.text)
	return cmp.Or(second.at.Compare(first.at), cmp.Compare(a.last-a.first, b.last-b.first),
		bytes.Compare(first.reason, second.reason), bytes.Compare(first.by, second.by))
}

// split yields the missing sequences in order, in ranges that one explanation without Count explains, or none: index -1.
func (x *explanations) split(missing iter.Seq[Range]) iter.Seq2[Range, int] {
	return func(yield func(Range, int) bool) {
		v := &x.whole
		v.start(false)
		by, until := -1, int64(-1)
		for m := range missing {
			for m.First <= m.Last {
				if m.First > until {
					by, until = v.strongest(m.First)
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

// number numbers the open sequences, and returns how many there are.
func (x *explanations) number(missing iter.Seq[Range]) (open int64) {
	v := &x.counted
	i, k := 0, 0
	place := func(piece Range) {
		for ; i < v.Len() && v.first(i) <= piece.Last; i++ {
			at := int(v.byFirst[i])
			v.quotas.at(at).used = ^(open + max(0, v.list.at(at).first-piece.First))
		}
		for ; k < v.Len() && v.list.at(k).last <= piece.Last; k++ {
			v.quotas.at(k).end = open + max(0, v.list.at(k).last-piece.First+1)
		}
	}
	for piece, by := range x.split(missing) {
		if by < 0 {
			place(piece)
			open += piece.Last - piece.First + 1
		}
	}
	place(Range{math.MaxInt64, math.MaxInt64})
	return open
}

// list fills the lists of what is explained and what is not. It stops when both are full.
func (x *explanations) list(r *Report, missing iter.Seq[Range]) {
	var last *interval              // explanation of the last range in r.Explained
	var explained, unexplained bool // the list is full
	add := func(piece Range, v *intervals, by int) bool {
		if by < 0 {
			if n := len(r.Unexplained); n > 0 && r.Unexplained[n-1].Last == piece.First-1 {
				r.Unexplained[n-1].Last = piece.Last
			} else if unexplained = n == Listed; !unexplained {
				r.Unexplained = append(r.Unexplained, piece)
			}
			return !explained || !unexplained
		}
		i := v.list.at(by)
		if n := len(r.Explained); n > 0 && i == last && r.Explained[n-1].Last == piece.First-1 {
			r.Explained[n-1].Last = piece.Last
		} else if explained = n == Listed; !explained {
			last = i
			r.Explained = append(r.Explained, Explained{piece, x.explanation(v, by)})
		}
		return !explained || !unexplained
	}
	x.counted.start(false)
	open := int64(0)
	for piece, by := range x.split(missing) {
		if by >= 0 {
			if !add(piece, &x.whole, by) {
				return
			}
			continue
		}
		for piece.First <= piece.Last {
			by, n := x.counted.assign(piece, open)
			if !add(Range{piece.First, piece.First + n - 1}, &x.counted, by) {
				return
			}
			piece.First += n
			open += n
		}
	}
}

// contradict lists the used sequences of which an explanation says that nobody got them, but for those above from, up to to.
func (x *explanations) contradict(r *Report, used iter.Seq2[int64, int64], from, to int64) {
	v := &x.whole
	next, reach := 0, int64(0) // reach is the last sequence of the explanations up to next
	for seq := range used {
		for ; next < v.Len() && v.first(next) <= seq; next++ {
			if i := v.list.at(int(v.byFirst[next])); x.texts.of(i.text).unused {
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

// explanation returns an explanation as it was given.
func (x *explanations) explanation(v *intervals, at int) Explanation {
	i := v.list.at(at)
	t := x.texts.of(i.text)
	e := Explanation{First: i.first, Last: i.last, Reason: string(t.reason), By: string(t.by), At: i.time(t),
		Unused: t.unused}
	if v == &x.counted {
		e.Count = v.quotas.at(at).count
	}
	return e
}

// time returns when the explanation was given.
func (i *interval) time(t text) time.Time {
	if !t.at.IsZero() {
		return t.at
	}
	return time.Unix(0, i.at).UTC()
}
