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
	shown  time.Time // instant of the period whose date is printed if a number's own date is unknown
	dated  bool      // all numbers print the same date; otherwise, the date of a missing number is unknown
	hidden bool      // the numbers hide their sequences
	links  *linker
}

func newPrinter(s *Series, p span) printer {
	n := printer{series: s, period: p, shown: latest(p), links: &linker{link: s.Link}}
	start, end, err := s.Source.scheme().Span(serial.At(n.shown))
	n.dated = err == nil && start.Equal(p.Start) && end.Equal(p.End)
	n.hidden = n.hidesSequences()
	return n
}

// latest returns the latest instant of a period that is not in the future. Its first instant would not do: that of
// Never is in 1969 or 1970, which few templates can print.
func latest(p span) time.Time {
	switch now := time.Now(); {
	case now.Before(p.Start):
		return p.Start
	case now.Before(p.End):
		return now
	}
	return p.End.Add(-time.Second)
}

// hidesSequences reports whether the numbers hide their sequences, which a scheme does not reveal. If they do,
// neighbouring numbers differ almost everywhere. Otherwise, the first eight differ only in the last digit of the
// sequence and in at most two check digits. Numbers that cannot be printed are taken for hidden.
func (n printer) hidesSequences() bool {
	var texts []string
	for seq := int64(1); seq <= 8; seq++ {
		texts = append(texts, n.whole(seq))
	}
	if texts[0] == "" {
		return true
	}
	differing := 0
	for i := range texts[0] {
		if slices.ContainsFunc(texts, func(text string) bool { return text[i] != texts[0][i] }) {
			differing++
		}
	}
	return differing > 3
}

// whole is a number as the form takes it, or "" if the template cannot print it. If the date of the number is unknown,
// it is printed with another date of the period.
func (n printer) whole(seq int64) string {
	number, err := n.series.Source.scheme().Number(n.series.Type, serial.At(n.shown), seq)
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
