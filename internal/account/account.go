// Package account compares the sequences used with the sequences issued, and finds explanations for the difference. It
// does not know what numbers look like.
package account

import (
	"iter"
	"strings"

	"github.com/dailyserial/serial/internal/tally"
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

// An Account collects uses of sequences. One goroutine uses it at a time.
type Account struct {
	first, last int64 // bounds of the issued sequences; others above last may be issued meanwhile
	tally       *tally.Tally
	duplicates  list
	beyond      list

	explanations explanations
}

// New returns an account of the sequences from first to last. If last is less than first, none was issued.
func New(first, last int64) *Account {
	last = max(last, first-1)
	return &Account{first: first, last: last, tally: tally.New(last)}
}

// Add accounts for one use of a sequence, which is at least 0. The error is [tally.ErrFull].
func (a *Account) Add(seq int64, text string) error {
	before, err := a.tally.Add(seq)
	if err != nil {
		return err
	}
	if before == 1 {
		a.duplicates.add(seq, text, seq > a.last)
	}
	if seq < a.first || seq > a.last {
		a.beyond.add(seq, text, seq > a.last)
	}
	return nil
}

// Close returns the report. It ignores the sequences issued since [New], up to last. Add nothing afterwards.
func (a *Account) Close(last int64) Report {
	var r Report
	last = max(last, a.last)
	a.duplicates.settle(a.last+1, last)
	a.beyond.settle(a.last+1, last)
	for seq, times := range a.tally.All() {
		switch {
		case seq > last:
			a.duplicates.include(seq, min(times-1, 1))
			a.beyond.include(seq, times)
		case seq >= a.first && seq <= a.last:
			r.Count++
		}
	}
	for missing := range a.missing() {
		if r.Missing = append(r.Missing, missing); len(r.Missing) == Listed {
			break
		}
	}
	r.MissingCount = a.last - a.first + 1 - r.Count
	r.Duplicates, r.DuplicateCount = a.duplicates.uses, a.duplicates.count
	r.Beyond, r.BeyondCount = a.beyond.uses, a.beyond.count
	a.explain(&r, a.last, last)
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

// A list has the first uses of a kind, in the order added. Until the account is closed, it is unknown which sequences
// above its last were issued meanwhile. Uses of such sequences are open, and do not take the place of others.
type list struct {
	uses   []Use           // first Listed uses that belong here, and first Listed open uses
	count  int64           // count of all uses that belong here
	open   int64           // count of all open uses
	listed map[int64]int64 // count of listed uses by sequence, once the list is settled
}

func (l *list) add(seq int64, text string, open bool) {
	n := &l.count
	if open {
		n = &l.open
	}
	if *n++; *n <= Listed {
		l.uses = append(l.uses, Use{seq, strings.Clone(text)})
	}
}

// settle removes uses of sequences issued meanwhile, and shortens the list to Listed.
func (l *list) settle(from, to int64) {
	uses := l.uses
	l.uses, l.listed = nil, map[int64]int64{}
	for _, u := range uses {
		if (u.Seq < from || u.Seq > to) && len(l.uses) < Listed {
			l.uses = append(l.uses, u)
			l.listed[u.Seq]++
		}
	}
}

// include counts the open uses of a sequence that was not issued meanwhile. If settle made room in the list, it adds
// the uses that were not listed, without their texts, which are not known.
func (l *list) include(seq, uses int64) {
	l.count += uses
	for len(l.uses) < Listed && l.listed[seq] < uses {
		l.uses = append(l.uses, Use{Seq: seq})
		l.listed[seq]++
	}
}
