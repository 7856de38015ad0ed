package serialpage

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/dailyserial/serial"
)

// count formats n with narrow spaces between groups of three digits.
func count(n int64) string {
	text := fmt.Sprint(n)
	for i := len(text) - 3; i > 0 && text[i-1] != '-'; i -= 3 {
		text = text[:i] + "\u202f" + text[i:]
	}
	return text
}

// plural formats a count with the singular or the plural of a noun.
func plural(n int64, singular, plural string) string {
	if n == 1 {
		return "1 " + singular
	}
	return count(n) + " " + plural
}

func instant(t time.Time) string { return t.Format("2 January 2006, 15:04 MST") }

// shortly formats an instant, and omits the year if it is the current year.
func shortly(t time.Time) string {
	if t.Year() != time.Now().In(t.Location()).Year() {
		return instant(t)
	}
	return t.Format("2 Jan, 15:04 MST")
}

// limitsText returns a text with the limits of a series: the maximum count of numbers in a period, and the last day for
// which numbers are issued.
func limitsText(s *Series) string {
	var all []string
	scheme := s.Source.scheme()
	first, last := scheme.Limits()
	if size := last - first + 1; size < endless {
		text := "Up to " + plural(size, "number", "numbers")
		if p, _ := periodAt(scheme, time.Now()); p.Ends() {
			text += " in each period"
		}
		all = append(all, text+".")
	}
	if day, ok := scheme.Until(); ok {
		text := "Numbers are issued until "
		if scheme.BusinessDate(serial.At(time.Now())).String() > day.String() {
			text = "Numbers were issued until "
		}
		all = append(all, text+dayText(day)+".")
	}
	return strings.Join(all, " ")
}

// numberText returns a number as text, or its sequence if its date is unknown. It returns "" if the sequence is 0,
// because then no number was issued.
func numberText(n serial.Number) string {
	switch {
	case n.Seq == 0:
		return ""
	case n.Date.IsZero():
		return "sequence " + count(n.Seq)
	}
	return n.String()
}

// A printer formats the numbers of a period.
type printer struct {
	series *Series
	period period
	shown  time.Time // instant in the period whose date is printed if the date of a number is unknown
	dated  bool      // whether all numbers of the period have the same date; otherwise dates of missing ones are unknown
	hidden bool      // whether the numbers hide their sequences
	links  *linker
}

func newPrinter(s *Series, p period) printer {
	n := printer{series: s, period: p, shown: latest(p), links: &linker{link: s.Link}}
	start, end, err := s.Source.scheme().Span(serial.At(n.shown))
	n.dated = err == nil && start.Equal(p.Start) && end.Equal(p.End)
	n.hidden = n.hidesSequences()
	return n
}

// latest returns the latest instant of a period that is not in the future. If the period has not begun, it returns the
// start of the period. The first instant of a period would not always work: with Never, it is in 1969 or 1970, which
// few templates can print.
func latest(p period) time.Time {
	switch now := time.Now(); {
	case now.Before(p.Start):
		return p.Start
	case now.Before(p.End):
		return now
	}
	return p.End.Add(-time.Second)
}

// hidesSequences reports whether the numbers hide their sequences. A scheme has no method for this, so hidesSequences
// compares the first eight numbers. If sequences are hidden, these numbers differ in almost every position. Otherwise,
// they differ only in the last digit of the sequence and in at most two check digits. If the numbers cannot be printed,
// hidesSequences returns true.
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

// whole returns a number in the form in which users enter it, or "" if the template cannot print it. If the date of the
// number is unknown, whole prints another date of the period.
func (n printer) whole(seq int64) string {
	number, err := n.series.Source.scheme().Number(n.series.Type, serial.At(n.shown), seq)
	if err != nil {
		return ""
	}
	return number.String()
}

// maxHiddenListed is the maximum count of numbers with hidden sequences that are listed for a range.
const maxHiddenListed = 10

// ranged returns a range of numbers as text. If sequences are hidden, the first and the last number do not show which
// numbers are in between. In this case, ranged lists all numbers of the range, or returns their count.
func (n printer) ranged(r serial.Range) string {
	switch {
	case !n.dated && r.First == r.Last:
		return "sequence " + count(r.First)
	case !n.dated:
		return "sequences " + count(r.First) + " – " + count(r.Last)
	case n.hidden && size(r) <= maxHiddenListed:
		var all []string
		for seq := r.First; seq <= r.Last; seq++ {
			all = append(all, n.whole(seq))
		}
		return strings.Join(all, ", ")
	case n.hidden:
		return count(size(r)) + " numbers, listed in the CSV file"
	case r.First == r.Last:
		return n.whole(r.First)
	}
	return n.whole(r.First) + " – " + n.whole(r.Last)
}

// split returns the ranges that a list shows, which are at most limit. If sequences are hidden, each number becomes a
// separate range.
func (n printer) split(ranges []serial.Range, limit int) (all []serial.Range) {
	for _, r := range ranges {
		for r.First <= r.Last && len(all) < limit {
			listed := r
			if n.hidden {
				listed.Last = r.First
			}
			all, r.First = append(all, listed), listed.Last+1
		}
	}
	return all
}

// size returns the total count of the numbers in ranges.
func size(ranges ...serial.Range) (n int64) {
	for _, r := range ranges {
		n += r.Last - r.First + 1
	}
	return n
}

// A wording is the text that a page shows in place of a reason constant of package serial.
type wording struct{ constant, Words, Help string }

var wordings = []wording{
	{serial.CallerLeft, "request given up",
		"The program stopped waiting before the number arrived, so no document has it."},
	{serial.NotReplicated, "not confirmed in time",
		"Too few servers confirmed the number in time, so the program did not use it."},
	{serial.BlockBurned, "reserved and never used",
		"The program had reserved the number in advance, but it can no longer be issued."},
	{serial.AnswerLost, "request without a reply",
		"Requests for numbers got no reply. They may have used some of these numbers."},
	{serial.Raised, "counter moved ahead",
		"The numbering was moved past these numbers. No document should have one, unless data had been lost before."},
	{serial.BlockSkipped, "numbers passed over",
		"The numbering continued above these numbers. No document should have one, unless data had been lost before."},
}

// worded returns the reason of an explanation in the form in which a page shows it. If the reason begins with a
// constant of package serial, worded translates the constant and omits the details after it. Otherwise, for example if
// a user wrote the reason, the text is unchanged and Help is "".
func worded(e *serial.Explanation) wording {
	if e.By == "" {
		for _, w := range wordings {
			if rest, ok := strings.CutPrefix(e.Reason, w.constant); ok && (rest == "" || rest[0] == ':' || rest[0] == ';') {
				return w
			}
		}
	}
	return wording{Words: e.Reason}
}
