// Package account compares the sequences used with the sequences issued, and finds explanations for the difference. It
// does not know what numbers look like.
package account

import (
	"cmp"
	"iter"
	"slices"
	"strings"
)

// Listed is the maximum length of each list in a [Report].
const Listed = 1000

// A Report is the account of the sequences from first to last. The counts are exact.
type Report struct {
	Count      int64   // different used sequences from first to last
	Missing    []Range // unused sequences from first to last, in ascending order
	Duplicates []Use   // second use of each sequence used more than once
	Beyond     []Use   // each use of a sequence above last or below first

	Explained    []Explained   // missing sequences that are explained, in ascending order
	Unexplained  []Range       // the other missing sequences, in ascending order
	Possible     []Explanation // possible reasons for unexplained sequences, ordered by At, then as added
	Contradicted []Use         // used sequences that, by an explanation, nobody got; in ascending order, without texts

	// Counts of sequences.
	MissingCount, DuplicateCount, ExplainedCount, UnexplainedCount, ContradictedCount int64

	BeyondCount, PossibleCount int64 // uses, and explanations
}

// A Range is the sequences from First to Last, both included.
type Range struct{ First, Last int64 }

// A Use is one use of a sequence.
type Use struct {
	Seq  int64
	Text string // text of the number, "" if it is not known
}

// A Book has the accounts of several periods. They share the bound on memory, and the bound on the lists of a kind.
type Book struct {
	memory budget
	most   int        // maximum length of all lists of a kind together
	listed [kinds]int // length of the lists of each kind together
}

// The kinds of lists. Until an account is closed, its lists of uses have uses that belong there and open ones, each with
// their own bound.
const (
	duplicates = iota
	beyond
	added // + duplicates or beyond
	_
	open // + duplicates or beyond
	_
	missing
	explained
	unexplained
	possible
	contradicted
	kinds
)

// NewBook returns an empty Book, in which all lists of a kind together have at most most entries.
func NewBook(most int) *Book { return &Book{most: most} }

// include appends v to a list of a kind, unless the list or all lists of the kind together are full.
func include[T any](b *Book, kind int, list []T, v T) []T {
	if len(list) < Listed && b.listed[kind] < b.most {
		b.listed[kind]++
		list = append(list, v)
	}
	return list
}

// An Account collects uses of sequences. One goroutine uses it at a time.
type Account struct {
	book        *Book // nil once the account is closed
	first, last int64 // bounds of the issued sequences
	closed      int64 // last sequence when the account was closed: those above last were issued meanwhile
	tally       *Tally
	duplicates  list
	beyond      list

	explanations []*Explanation // sorted by First once the account is closed
	reach        []int64        // largest Last of the explanations up to each index
}

// New adds an account of the sequences from first to last. If last is less than first, none was issued. The error is
// [ErrFull].
func (b *Book) New(first, last int64) (*Account, error) {
	const size = 2 << 10 // memory of an account with its report, in bytes
	if !b.memory.take(size) {
		return nil, ErrFull
	}
	last = max(last, first-1)
	return &Account{book: b, first: first, last: last, tally: newTally(last, &b.memory),
		duplicates: list{kind: duplicates}, beyond: list{kind: beyond}}, nil
}

// Add accounts for one use of a sequence, which is at least 0. The error is [ErrFull].
func (a *Account) Add(seq int64, text string) error {
	before, err := a.tally.Add(seq)
	if err != nil {
		return err
	}
	if before == 1 {
		a.duplicates.add(a.book, seq, text, seq > a.last)
	}
	if seq < a.first || seq > a.last {
		a.beyond.add(a.book, seq, text, seq > a.last)
	}
	return nil
}

// Close returns the report. It ignores the sequences issued since [Book.New], up to last. Add nothing afterwards.
func (a *Account) Close(last int64) Report {
	var r Report
	a.closed = max(last, a.last)
	a.duplicates.settle(a)
	a.beyond.settle(a)
	slices.SortFunc(a.explanations, func(x, y *Explanation) int {
		return cmp.Or(cmp.Compare(x.First, y.First), cmp.Compare(x.Rank, y.Rank))
	})
	a.reach = make([]int64, len(a.explanations))
	for i, e := range a.explanations {
		a.reach[i] = max(e.Last, a.reach[max(i-1, 0)])
	}
	next, reach := 0, int64(-1) // reach is the last sequence that nobody got, by the explanations up to next
	for seq, times := range a.tally.All() {
		if a.meanwhile(seq) {
			continue
		}
		if seq > a.closed {
			a.duplicates.addOpen(a.book, seq, min(times-1, 1))
			a.beyond.addOpen(a.book, seq, times)
		} else if seq >= a.first {
			r.Count++
		}
		for ; next < len(a.explanations) && a.explanations[next].First <= seq; next++ {
			if e := a.explanations[next]; e.Unused {
				reach = max(reach, e.Last)
			}
		}
		if seq <= reach {
			r.ContradictedCount++
			r.Contradicted = include(a.book, contradicted, r.Contradicted, Use{Seq: seq})
		}
	}
	r.MissingCount = a.last - a.first + 1 - r.Count
	r.Duplicates, r.DuplicateCount = a.duplicates.uses, a.duplicates.count
	r.Beyond, r.BeyondCount = a.beyond.uses, a.beyond.count
	a.explain(&r)
	a.book, a.duplicates, a.beyond = nil, list{}, list{}
	a.tally.memory, a.tally.last, a.tally.index = nil, nil, -1
	return r
}

// missing yields the unused sequences from first to last, in ascending order.
func (a *Account) missing() iter.Seq[Range] {
	return func(yield func(Range) bool) {
		next := a.first
		for seq := range a.tally.All() {
			if seq > a.last {
				break
			}
			if seq > next && !yield(Range{next, seq - 1}) {
				return
			}
			next = max(next, seq+1)
		}
		if next <= a.last {
			yield(Range{next, a.last})
		}
	}
}

// meanwhile reports whether a sequence was issued after [Book.New] and before the account was closed.
func (a *Account) meanwhile(seq int64) bool { return a.last < seq && seq <= a.closed }

// A list has the first uses of a kind, in the order added. Until the account is closed, it is unknown which sequences
// above its last were issued meanwhile. Uses of such sequences are open, and do not take the place of others.
type list struct {
	kind   int
	uses   []Use           // first Listed uses that belong here, and first Listed open uses
	count  int64           // count of all uses that belong here
	open   int64           // count of all open uses
	listed map[int64]int64 // count of listed uses by sequence, once the list is settled
}

func (l *list) add(b *Book, seq int64, text string, isOpen bool) {
	n, kind := &l.count, added+l.kind
	if isOpen {
		n, kind = &l.open, open+l.kind
	}
	if *n++; *n <= Listed && b.listed[kind] < b.most {
		b.listed[kind]++
		l.uses = append(l.uses, Use{seq, strings.Clone(text)})
	}
}

// settle removes uses of sequences issued meanwhile, and shortens the list to its bounds.
func (l *list) settle(a *Account) {
	uses := l.uses
	l.uses, l.listed = nil, map[int64]int64{}
	for _, u := range uses {
		if !a.meanwhile(u.Seq) {
			l.include(a.book, u)
		}
	}
}

// include adds a use to a settled list, and reports whether there was room for it.
func (l *list) include(b *Book, u Use) bool {
	n := len(l.uses)
	if l.uses = include(b, l.kind, l.uses, u); n == len(l.uses) {
		return false
	}
	l.listed[u.Seq]++
	return true
}

// addOpen counts the open uses of a sequence that was not issued meanwhile. If settle made room in the list, it adds
// the uses that were not listed, without their texts, which are not known.
func (l *list) addOpen(b *Book, seq, uses int64) {
	l.count += uses
	for l.listed[seq] < uses && l.include(b, Use{Seq: seq}) {
	}
}
