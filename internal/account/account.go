// Package account compares the sequences that were used with the sequences that were issued, and finds explanations for
// the differences. It does not parse or print numbers.
package account

import (
	"cmp"
	"iter"
	"slices"
	"strings"
)

// Listed is the maximum length of every list in a [Report].
const Listed = 1000

// A Report is the result of an [Account] for the sequences from first to last. The counts are exact even if the lists
// are shortened.
type Report struct {
	Count      int64   // number of different sequences from first to last that were used
	Missing    []Range // unused sequences from first to last, in ascending order
	Duplicates []Use   // second use of each sequence that was used more than once
	Beyond     []Use   // each use of a sequence above last or below first

	Explained    []Explained   // missing sequences that are explained, in ascending order
	Unexplained  []Range       // other missing sequences, in ascending order
	Possible     []Explanation // possible reasons for unexplained sequences, by At and then in the order added
	Contradicted []Use         // used sequences that an explanation calls unused, in ascending order, without texts

	// Each of these is a number of sequences.
	MissingCount, DuplicateCount, ExplainedCount, UnexplainedCount, ContradictedCount int64

	BeyondCount   int64 // number of uses
	PossibleCount int64 // number of explanations
}

// A Range contains the sequences from First to Last, inclusive.
type Range struct{ First, Last int64 }

// A Use is one use of a sequence.
type Use struct {
	Seq  int64
	Text string // used string, or "" if it is not known any more
}

// A Book contains the accounts of several periods. The accounts share a limit on memory, and one limit for the lists of
// each kind.
type Book struct {
	memory    budget
	maxListed int        // maximum length of all lists of a kind together
	listed    [kinds]int // length of the lists of each kind together
}

// An account has one list of each of these kinds. Until an account is closed, a list of uses contains uses that certainly
// belong there, and unresolved uses. Both have separate limits, so each list of uses has two more kinds.
const (
	duplicates = iota
	beyond
	added // plus duplicates or beyond: uses that certainly belong to the list
	_
	unresolved // plus duplicates or beyond: unresolved uses
	_
	missing
	explained
	unexplained
	possible
	contradicted
	kinds
)

// NewBook returns an empty Book. All lists of a kind in all of its accounts together have at most maxListed entries.
func NewBook(maxListed int) *Book { return &Book{maxListed: maxListed} }

// include appends v to a list, unless the list is full, or the lists of this kind together have reached their limit.
func include[T any](b *Book, kind int, list []T, v T) []T {
	if len(list) < Listed && b.listed[kind] < b.maxListed {
		b.listed[kind]++
		list = append(list, v)
	}
	return list
}

// An Account collects uses of sequences. It is not safe for concurrent use.
type Account struct {
	book        *Book // book of the account, or nil once the account is closed
	first, last int64 // first and last issued sequence when the account was created
	closed      int64 // last issued sequence when the account was closed
	tally       *Tally
	duplicates  list
	beyond      list

	explanations []*Explanation // sorted by First once the account is closed
	reach        []int64        // largest Last of the explanations up to each index
}

// New adds an account of the sequences from first to last. If last is less than first, no sequence was issued. The only
// error is [ErrFull].
func (b *Book) New(first, last int64) (*Account, error) {
	const size = 2 << 10 // memory of an account with its report, in bytes
	if !b.memory.take(size) {
		return nil, ErrFull
	}
	last = max(last, first-1)
	return &Account{book: b, first: first, last: last, tally: newTally(last, &b.memory),
		duplicates: list{kind: duplicates}, beyond: list{kind: beyond}}, nil
}

// Add adds one use of a sequence, which must be at least 0. The only error is [ErrFull].
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

// Close returns the report. last is the last sequence issued by now. Close ignores the sequences that were issued since
// [Book.New]. After Close, nothing may be added.
func (a *Account) Close(last int64) Report {
	var r Report
	a.closed = max(last, a.last)
	a.duplicates.finish(a)
	a.beyond.finish(a)
	slices.SortFunc(a.explanations, func(x, y *Explanation) int {
		return cmp.Or(cmp.Compare(x.First, y.First), cmp.Compare(x.Rank, y.Rank))
	})
	a.reach = make([]int64, len(a.explanations))
	for i, e := range a.explanations {
		a.reach[i] = max(e.Last, a.reach[max(i-1, 0)])
	}
	next, reach := 0, int64(-1) // explanations before next that have Unused set extend up to the sequence reach
	for seq, times := range a.tally.All() {
		if a.issuedMeanwhile(seq) {
			continue
		}
		if seq > a.closed {
			a.duplicates.addUnresolved(a.book, seq, min(times-1, 1))
			a.beyond.addUnresolved(a.book, seq, times)
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

// issuedMeanwhile reports whether a sequence was issued after [Book.New] and before [Account.Close].
func (a *Account) issuedMeanwhile(seq int64) bool { return a.last < seq && seq <= a.closed }

// A list contains the first uses of a kind, in the order in which they were added. How many sequences were issued since
// the account was created is known only when it is closed. Until then, uses of sequences above the account's last one
// are unresolved. They have a separate limit, so that they do not displace other uses.
type list struct {
	kind       int
	uses       []Use           // first Listed uses that belong to the list, and first Listed unresolved uses
	count      int64           // number of all uses that belong to the list
	unresolved int64           // number of all unresolved uses
	listed     map[int64]int64 // number of listed uses by sequence, once the list is finished
}

func (l *list) add(b *Book, seq int64, text string, isUnresolved bool) {
	n, kind := &l.count, added+l.kind
	if isUnresolved {
		n, kind = &l.unresolved, unresolved+l.kind
	}
	if *n++; *n <= Listed && b.listed[kind] < b.maxListed {
		b.listed[kind]++
		l.uses = append(l.uses, Use{seq, strings.Clone(text)})
	}
}

// finish removes uses of sequences that were issued since the account was created, and shortens the list to its limits.
func (l *list) finish(a *Account) {
	uses := l.uses
	l.uses, l.listed = nil, map[int64]int64{}
	for _, u := range uses {
		if !a.issuedMeanwhile(u.Seq) {
			l.include(a.book, u)
		}
	}
}

// include adds a use to a finished list, and reports whether there was room for it.
func (l *list) include(b *Book, u Use) bool {
	n := len(l.uses)
	if l.uses = include(b, l.kind, l.uses, u); n == len(l.uses) {
		return false
	}
	l.listed[u.Seq]++
	return true
}

// addUnresolved counts the unresolved uses of a sequence that has not been issued. If finish has made room in the list,
// addUnresolved also adds the uses that are not listed yet. Their texts are not known any more.
func (l *list) addUnresolved(b *Book, seq, uses int64) {
	l.count += uses
	for l.listed[seq] < uses && l.include(b, Use{Seq: seq}) {
	}
}
