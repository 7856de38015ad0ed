// Package account says what became of numbered things: what was counted against what was used. It knows sequences; what a number
// looks like is for its caller to say.
package account

import (
	"cmp"
	"math"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/dailyserial/serial/internal/tally"
)

// Listed is how many entries the lists of a [Report] have at most.
const Listed = 1000

// A Report is the account of the sequences from First to Last. The counts are exact.
type Report[N any] struct {
	First, Last int64
	Count       int64    // different sequences from First to Last among those used
	Missing     []Range  // those that are not among them, in ascending order
	Duplicates  []N      // each sequence that came more than once, as it came the second time
	Beyond      []N      // each occurrence of a sequence above Last or below First
	Foreign     []string // what is no number, cut at 256 bytes

	MissingCount   int64 // sequences
	DuplicateCount int64 // sequences
	BeyondCount    int64 // occurrences
	ForeignCount   int64 // occurrences
	OtherCount     int64 // numbers that are not accounted for here
}

// A Range is the sequences from First to Last, both included.
type Range struct{ First, Last int64 }

// A Kind says what a used text is.
type Kind int

// The kinds of texts.
const (
	Own     Kind = iota // a number to account for
	Other               // a number that is not accounted for here
	Foreign             // no number
)

// Numbers says what numbers are.
type Numbers[N any] interface {
	// Parse returns what a text is, and the sequence of an Own one, which is at least 0.
	Parse(text string) (Kind, int64)
	// Parsed returns the number parsed last, for a list.
	Parsed() N
	// Number returns the number of a sequence whose text is not known.
	Number(seq int64) N
}

// An Account compares sequences that were used with those that were counted. One goroutine uses it at a time.
type Account[N any] struct {
	report     Report[N]
	numbers    Numbers[N]
	sure       int64 // sequences up to it are judged at once; those above may be issued before the account is closed
	above      int64 // occurrences of those above
	came       int64 // occurrences of all
	duplicates list[N]
	beyond     list[N]
	tally      *tally.Tally
}

// New returns an account of the sequences from first to last, which may be less than first for none.
func New[N any](first, last int64, numbers Numbers[N]) *Account[N] {
	sure := max(last, first-1)
	report := Report[N]{First: first, Last: last}
	return &Account[N]{report: report, numbers: numbers, sure: sure, tally: tally.New(sure)}
}

// Add accounts for one of the used texts. The error is [tally.ErrFull].
func (a *Account[N]) Add(text string) error {
	kind, seq := a.numbers.Parse(text)
	r := &a.report
	switch kind {
	case Foreign:
		if r.ForeignCount++; len(r.Foreign) < Listed {
			r.Foreign = append(r.Foreign, shorten(text))
		}
		return nil
	case Other:
		r.OtherCount++
		return nil
	}
	before, err := a.tally.Add(seq)
	if err != nil {
		return err
	}
	a.came++
	sure := seq <= a.sure
	if before == 1 {
		a.addTo(&a.duplicates, seq)
		if sure {
			r.DuplicateCount++
		}
	}
	switch {
	case !sure:
		a.above++
	case seq < r.First:
		r.BeyondCount++
	default:
		if before == 0 {
			r.Count++
		}
		return nil
	}
	a.addTo(&a.beyond, seq)
	return nil
}

// A list is the first numbers of a kind. Those that may turn out to have been issued meanwhile do not take the place of the others.
type list[N any] struct{ sure, above []entry[N] }

type entry[N any] struct {
	number N
	seq    int64
	came   int64 // after so many others
}

// addTo adds the number parsed last to a list.
func (a *Account[N]) addTo(l *list[N], seq int64) {
	part := &l.above
	if seq <= a.sure {
		part = &l.sure
	}
	if len(*part) < Listed {
		*part = append(*part, entry[N]{a.numbers.Parsed(), seq, a.came})
	}
}

// first returns the first numbers of a list, without those up to after that were issued meanwhile. If these have taken the place of
// others, the tally has those, each as many times as it belongs here; but what their texts were is not known.
func (a *Account[N]) first(l *list[N], after int64, belongs func(times int64) int64) []N {
	full, listed := len(l.above) == Listed, map[int64]int64{}
	above := slices.DeleteFunc(l.above, func(e entry[N]) bool { return e.seq <= after })
	all := slices.Concat(l.sure, above)
	slices.SortFunc(all, func(a, b entry[N]) int { return cmp.Compare(a.came, b.came) })
	var numbers []N
	for _, e := range all[:min(len(all), Listed)] {
		numbers = append(numbers, e.number)
		listed[e.seq]++
	}
	if !full || len(numbers) == Listed {
		return numbers
	}
	for seq, times := range a.tally.All(after+1, math.MaxInt64) {
		for range belongs(times) - listed[seq] {
			if len(numbers) == Listed {
				return numbers
			}
			numbers = append(numbers, a.numbers.Number(seq))
		}
	}
	return numbers
}

// Close returns the report. last is how far was counted by now: sequences above the last of [New] up to that were issued meanwhile,
// and are ignored. Nothing is added afterwards.
func (a *Account[N]) Close(last int64) Report[N] {
	r, after := a.report, max(last, a.sure)
	var meanwhile int64
	for _, times := range a.tally.All(a.sure+1, after) {
		meanwhile += times
	}
	r.BeyondCount += a.above - meanwhile
	for _, times := range a.tally.All(after+1, math.MaxInt64) {
		if times > 1 {
			r.DuplicateCount++
		}
	}
	r.Duplicates = a.first(&a.duplicates, after, func(times int64) int64 { return min(times-1, 1) })
	r.Beyond = a.first(&a.beyond, after, func(times int64) int64 { return times })
	r.MissingCount = max(0, r.Last-r.First+1) - r.Count
	for first, last := range a.tally.Gaps(r.First, r.Last) {
		if len(r.Missing) == Listed {
			break
		}
		r.Missing = append(r.Missing, Range{first, last})
	}
	return r
}

// shorten returns a text's beginning, cut between characters.
func shorten(text string) string {
	const most = 256
	if len(text) > most {
		end := most
		for end > most-utf8.UTFMax && !utf8.RuneStart(text[end]) {
			end--
		}
		text = text[:end]
	}
	return strings.Clone(text)
}
