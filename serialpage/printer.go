package serialpage

import (
	"slices"
	"strings"
	"time"

	"github.com/dailyserial/serial"
)

// A printer prints sequences of a period for people.
type printer struct {
	series *Series
	period span
	dated  bool // all numbers print the same date; otherwise, the date of a missing number is unknown
	hidden bool // the numbers hide their sequences
	links  *linker
}

func newPrinter(s *Series, p span) printer {
	start, end, err := s.Source.scheme().Span(serial.At(p.Start))
	return printer{s, p, err == nil && start.Equal(p.Start) && end.Equal(p.End), hides(s, p.Start),
		&linker{link: s.Link}}
}

// hides reports whether the numbers of a series hide their sequences, which a scheme does not reveal. If they do,
// neighbouring numbers differ almost everywhere. Otherwise, the first eight differ only in the last digit of the
// sequence and in at most two check digits.
func hides(s *Series, at time.Time) bool {
	var texts []string
	for seq := int64(1); seq <= 8; seq++ {
		n, err := s.Source.scheme().Number(s.Type, serial.At(at), seq)
		if err != nil {
			return false
		}
		texts = append(texts, n.String())
	}
	differing := 0
	for i := range texts[0] {
		if slices.ContainsFunc(texts, func(text string) bool { return text[i] != texts[0][i] }) {
			differing++
		}
	}
	return differing > 3
}

// whole is a number as the form takes it, or "" if the template cannot print the period. If the printed date is not
// known, the number has the date of the period's start.
func (n printer) whole(seq int64) string {
	number, err := n.series.Source.scheme().Number(n.series.Type, serial.At(n.period.Start), seq)
	if err != nil {
		return ""
	}
	return number.String()
}

// mostHidden is how many numbers of a hidden sequence are listed for a range.
const mostHidden = 10

// ranged prints a range of numbers. If sequences are hidden, the first and the last number do not show the numbers
// between them.
func (n printer) ranged(r serial.Range) string {
	switch {
	case !n.dated && r.First == r.Last:
		return "sequence " + count(r.First)
	case !n.dated:
		return "sequences " + count(r.First) + " – " + count(r.Last)
	case n.hidden && size(r) <= mostHidden:
		var all []string
		for seq := r.First; seq <= r.Last; seq++ {
			all = append(all, n.whole(seq))
		}
		return strings.Join(all, ", ")
	case n.hidden:
		return count(size(r)) + " numbers, listed in the CSV"
	case r.First == r.Last:
		return n.whole(r.First)
	}
	return n.whole(r.First) + " – " + n.whole(r.Last)
}

// split returns at most so many ranges, as they are listed: single numbers, if sequences are hidden.
func (n printer) split(ranges []serial.Range, most int) (all []serial.Range) {
	for _, r := range ranges {
		for r.First <= r.Last && len(all) < most {
			listed := r
			if n.hidden {
				listed.Last = r.First
			}
			all, r.First = append(all, listed), listed.Last+1
		}
	}
	return all
}

// size returns how many numbers ranges have.
func size(ranges ...serial.Range) (n int64) {
	for _, r := range ranges {
		n += r.Last - r.First + 1
	}
	return n
}
