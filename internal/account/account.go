// Package account compares the sequences that were used with those that were counted, and with what explains the
// difference. It does not know what numbers look like.
package account

import (
	"iter"
	"strings"

	"github.com/dailyserial/serial/internal/tally"
)

// Listed is the greatest length of each list in a [Report].
const Listed = 1000

// A Report is the account of the sequences from first to last. The counts are exact.
type Report struct {
	Count      int64   // different sequences from first to last that were used
	Missing    []Range // sequences from first to last that were not used, in ascending order
	Duplicates []Use   // second use of each sequence that was used more than once
	Beyond     []Use   // each use of a sequence above last or below first

	Explained    []Explained   // missing sequences that are explained, in ascending order
	Unexplained  []Range       // the other missing sequences, in ascending order
	Possible     []Explanation // possible reasons that touch unexplained sequences, ordered by At, then as they were added
	Contradicted []Use         // used sequences that nobody got by an explanation, in ascending order, without texts

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
	first, last int64 // bounds of what was counted before; sequences above last may be issued meanwhile
	tally       *tally.Tally
	duplicates  list
	beyond      list

	explanations explanations
}

// New returns an account of the sequences from first to last. If last is less than first, none was counted.
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

// Close returns the report. It ignores the sequences that were issued since [New]: those up to last. Add nothing
// afterwards.
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

// missing yields the sequences from first to last that were not used, in ascending order.
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

// A list is the first uses of a kind, in the order in which they were added. Until the account is closed, nobody knows
// which of the sequences above its last were issued meanwhile. Uses of those are open, and do not take the place of
// others.
type list struct {
	uses   []Use           // the first Listed uses that belong here, and the first Listed open ones
	count  int64           // all uses that belong here
	open   int64           // all open uses
	listed map[int64]int64 // uses by sequence, once the list is settled
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

// settle removes the uses of sequences that were issued meanwhile, and shortens the list to Listed.
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

// include counts the open uses of a sequence that was not issued meanwhile. If the list has become shorter because
// settle removed others, it lists those that were not, without their texts, which are not known.
func (l *list) include(seq, uses int64) {
	l.count += uses
	for len(l.uses) < Listed && l.listed[seq] < uses {
		l.uses = append(l.uses, Use{Seq: seq})
		l.listed[seq]++
	}
}
