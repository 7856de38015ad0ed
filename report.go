package serial

import (
	"cmp"
	"errors"
	"fmt"
	"iter"
	"math"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/dailyserial/serial/internal/calendar"
	"github.com/dailyserial/serial/internal/tally"
	"github.com/dailyserial/serial/internal/template"
)

// A Report is the account of a type's numbers in one period: what was counted against what was used. All is well if it is
// [Report.Clean]. The lists hold the first 1,000; the counts are exact, and Count + MissingCount is Last - First + 1, or 0 if that is
// negative.
type Report struct {
	Type  string
	Start time.Time // first instant of the period
	First int64     // sequence that a period begins with, see [WithStart]
	Last  int64     // where the counter stood before the used numbers were read; 0 if none was issued

	Count      int64    // different sequences of this type and period among the used numbers, from First to Last
	Missing    []Range  // sequences from First to Last that are not among them, in ascending order
	Duplicates []Number // each sequence that came more than once, whatever its text, as it came the second time
	Beyond     []Number // each occurrence of a sequence above Last or below First
	Foreign    []string // what is no number of this scheme, cut at 256 bytes

	MissingCount   int64 // sequences
	DuplicateCount int64 // sequences
	BeyondCount    int64 // occurrences
	ForeignCount   int64 // occurrences
	OtherCount     int64 // numbers of other types or periods, which are not judged
}

// A Range is the sequences from First to Last, both included.
type Range struct{ First, Last int64 }

// Clean reports whether every number is accounted for: nothing is missing, came twice, was never issued or is no number.
func (r Report) Clean() bool {
	return r.MissingCount == 0 && r.DuplicateCount == 0 && r.BeyondCount == 0 && r.ForeignCount == 0
}

// listed is how many entries the lists of a Report have.
const listed = 1000

// Audit accounts for the numbers of a type in the period that an instant lies in: which were counted and never used, which were
// used twice, which were never issued. last is the last sequence issued, 0 if none was. used yields the numbers as the
// application has stored them, in any order, also those of other types and periods. [Generator.Audit] asks Redis for last.
//
// Missing includes numbers that nobody got: those that a floor, [Generator.Raise] or a burned block of a ledger skipped, and
// those whose caller gave up.
//
// It takes two bits of memory for each sequence, in pages of 4,096: 2.5 MB for ten million numbers. If used yields sequences
// spread so widely that it would take more than 256 MB, that is an error.
//
// Other errors: [ErrInvalidType]; one for a last below 0 or of more than 15 digits, for a nil used, for an instant before 1970 or after the year 9999, and
// for a date that the template cannot print; and the first error that used yields, wrapped. With an error, there is no Report.
func (s *Scheme) Audit(typ string, at time.Time, last int64, used iter.Seq2[string, error]) (Report, error) {
	p, err := s.audited(typ, at, used)
	if err != nil {
		return Report{}, err
	}
	if largest := template.MaxSequence; last < 0 || last > largest {
		return Report{}, fmt.Errorf("serial: Audit of %s: the last sequence is %d; allowed are 0 to %d", typ, last, largest)
	}
	return s.audit(typ, p, last, used, func() (int64, error) { return last, nil })
}

// audited is the period to audit.
func (s *scheme) audited(typ string, at time.Time, used iter.Seq2[string, error]) (*calendar.Period, error) {
	if err := s.template.CheckType(typ); err != nil {
		return nil, err
	}
	if used == nil {
		return nil, errors.New("serial: Audit: the used numbers are nil; nobody used any is an iterator that yields nothing")
	}
	span, err := s.template.DatedSpan(at)
	return &span.Period, err
}

// audit accounts for the numbers of a type in a period, whose last sequence was last before used is read. until is asked
// afterwards what it is then.
func (s *scheme) audit(typ string, p *calendar.Period, last int64, used iter.Seq2[string, error], until func() (int64, error)) (Report, error) {
	first := s.base + 1
	a := &audit{
		Report: Report{Type: strings.Clone(typ), Start: time.Unix(p.Start, 0).In(s.calendar.Location), First: first, Last: last},
		scheme: s, period: p, sure: max(last, first-1), reader: template.NewReader(s.template),
	}
	a.tally = tally.New(a.sure)
	for text, err := range used {
		if err == nil {
			err = a.add(text)
		}
		if err != nil {
			return Report{}, fmt.Errorf("serial: Audit of %s in %s: %w", typ, calendar.FormatLabel(p.Label), err)
		}
	}
	after, err := until()
	if err != nil {
		return Report{}, err
	}
	a.finish(max(after, a.sure))
	return a.Report, nil
}

// An audit is the state of Audit.
type audit struct {
	Report
	*scheme
	period  *calendar.Period
	sure    int64 // sequences up to it are judged at once; those above may be issued before the audit ends
	above   int64 // occurrences of those above
	doubled list
	beyond  list
	tally   *tally.Tally
	reader  *template.Reader
	came    int64 // numbers of this type and period
}

// add accounts for one of the used numbers.
func (a *audit) add(text string) error {
	n, err := a.reader.ParseNumber(text)
	switch {
	case err != nil:
		if a.ForeignCount++; len(a.Foreign) < listed {
			a.Foreign = append(a.Foreign, shortened(text))
		}
		return nil
	case n.Type != a.Type || n.Date.Label != a.period.Label:
		a.OtherCount++
		return nil
	}
	before, err := a.tally.Add(n.Seq)
	if err != nil {
		return err
	}
	a.came++
	sure := n.Seq <= a.sure
	if before == 1 {
		a.doubled.add(a, n, sure)
		if sure {
			a.DuplicateCount++
		}
	}
	switch {
	case !sure:
		a.above++
	case n.Seq < a.First:
		a.BeyondCount++
	default:
		if before == 0 {
			a.Count++
		}
		return nil
	}
	a.beyond.add(a, n, sure)
	return nil
}

// A list is the first numbers of a kind. Those that may turn out to have been issued meanwhile do not take the place of the others.
type list struct{ sure, above []entry }

type entry struct {
	Number
	came int64 // after so many others
}

func (l *list) add(a *audit, n template.Number, sure bool) {
	part := &l.above
	if sure {
		part = &l.sure
	}
	if len(*part) < listed {
		*part = append(*part, entry{parsedNumber(a.template, n), a.came})
	}
}

// numbers are the first numbers of the list, without those up to after that were issued meanwhile. If these have taken the place
// of others, the tally has those, each as many times as it belongs here; but it does not know what was printed of the date, where
// that varies within the period.
func (l *list) numbers(a *audit, after int64, belongs func(times int64) int64) []Number {
	full, there := len(l.above) == listed, map[int64]int64{}
	above := slices.DeleteFunc(l.above, func(e entry) bool { return e.Seq <= after })
	all := slices.SortedFunc(slices.Values(slices.Concat(l.sure, above)), func(a, b entry) int { return cmp.Compare(a.came, b.came) })
	var numbers []Number
	for _, e := range all[:min(len(all), listed)] {
		numbers = append(numbers, e.Number)
		there[e.Seq]++
	}
	if !full || len(numbers) == listed {
		return numbers
	}
	span := a.template.SpanOf(a.period)
	for seq, times := range a.tally.All(after+1, math.MaxInt64) {
		for range belongs(times) - there[seq] {
			if len(numbers) == listed {
				return numbers
			}
			numbers = append(numbers, newNumber(a.template, &span, a.Type, seq))
		}
	}
	return numbers
}

// finish judges what could not be judged before it was known where the counter stood afterwards.
func (a *audit) finish(after int64) {
	var meanwhile int64
	for _, times := range a.tally.All(a.sure+1, after) {
		meanwhile += times
	}
	a.BeyondCount += a.above - meanwhile
	for _, times := range a.tally.All(after+1, math.MaxInt64) {
		if times > 1 {
			a.DuplicateCount++
		}
	}
	a.Duplicates = a.doubled.numbers(a, after, func(times int64) int64 { return min(times-1, 1) })
	a.Beyond = a.beyond.numbers(a, after, func(times int64) int64 { return times })
	a.MissingCount = max(0, a.Last-a.First+1) - a.Count
	for first, last := range a.tally.Gaps(a.First, a.Last) {
		if len(a.Missing) == listed {
			break
		}
		a.Missing = append(a.Missing, Range{first, last})
	}
}

// shortened is a text's beginning, cut between characters.
func shortened(text string) string {
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
