package serial

import (
	"strings"
	"time"

	"github.com/dailyserial/serial/internal/account"
	"github.com/dailyserial/serial/internal/calendar"
)

// A Report accounts for a type's numbers in one period: it compares the numbers issued with the numbers used.
// [Report.Clean] reports whether they agree. The lists hold the first 1,000 entries; the counts are exact. Count +
// MissingCount is Last - First + 1, or 0 if that is negative. [Report.Lookup] returns what became of any sequence, for
// which a Report keeps the memory that the audit has used.
type Report struct {
	Series string // as [Scheme.Series] returns it
	Type   string
	Start  time.Time // first instant of the period
	First  int64     // first sequence of the period, see [WithStart]
	Last   int64     // last sequence issued before the used numbers were read; 0 if none was

	Count      int64    // different sequences of this type and period among the used numbers, from First to Last
	Missing    []Range  // sequences from First to Last that are not among the used numbers, in ascending order
	Duplicates []Number // second occurrence of each sequence used more than once, whatever its text
	Beyond     []Number // each occurrence of a sequence above Last or below First
	Foreign    []string // texts that are not numbers of this scheme or an earlier one, cut at 256 bytes

	MissingCount   int64 // sequences
	DuplicateCount int64 // sequences
	BeyondCount    int64 // occurrences
	ForeignCount   int64 // occurrences
	OtherCount     int64 // numbers of other types or periods, which are ignored

	Explained    []Explained   // missing sequences that are explained, in ascending order; see [WithExplanations]
	Unexplained  []Range       // other missing sequences, in ascending order
	Possible     []Explanation // possible reasons for unexplained sequences, ordered by At, then as read
	Contradicted []Number      // used sequences that, by an explanation, nobody got; each once, in ascending order

	ExplainedCount    int64 // sequences
	UnexplainedCount  int64 // sequences; MissingCount is the sum of this and ExplainedCount
	PossibleCount     int64 // explanations
	ContradictedCount int64 // sequences

	period *auditedPeriod // nil in a Report that no audit returned
}

// A Range is the sequences from First to Last, both included.
type Range struct{ First, Last int64 }

// Clean reports whether all used numbers of the period were issued, each was used once, every missing number is
// explained, and no explanation is contradicted. Possible reasons do not count, and neither does Foreign: such a text
// belongs to no period. If it is a mistyped number, that number is missing in its own period.
func (r Report) Clean() bool {
	return r.UnexplainedCount == 0 && r.ContradictedCount == 0 && r.DuplicateCount == 0 && r.BeyondCount == 0
}

// An Entry is what became of a sequence, as [Report.Lookup] returns it.
type Entry struct {
	Issued bool // from First to Last
	Stored int  // how often it was used: 0, 1, or 2 for more
	// Texts are the numbers with this sequence as they were used, with the blanks around them, if [WithLookup] names the
	// sequence: the first 1,000. Otherwise, there is one text if the sequence was used once and no scheme of the audit
	// can print it in another way in this period, and none if not.
	Texts        []string
	Explanation  *Explanation  // the explanation that counts, if the sequence is missing; nil if there is none
	Replaced     []Explanation // explanations of this sequence that do not count, in the order in which they were read
	Possible     []Explanation // possible reasons whose range has the sequence, ordered by At, then as read
	Contradicted bool          // it was used, although an explanation says that nobody got it
}

// Lookup returns what became of a sequence, whether or not the lists of r have it. The Entry is zero for a sequence
// below 1, and for a Report that no audit returned.
func (r *Report) Lookup(seq int64) Entry {
	if r.period == nil {
		return Entry{}
	}
	found := r.period.account.Lookup(seq)
	e := Entry{Issued: found.Issued, Stored: found.Stored, Contradicted: found.Contradicted, Texts: r.period.texts[seq],
		Replaced: r.period.explanations(found.Replaced), Possible: r.period.explanations(found.Possible)}
	if found.Explanation != nil {
		e.Explanation = &r.period.explanations([]*account.Explanation{found.Explanation})[0]
	}
	if e.Texts == nil && e.Stored == 1 && r.period.determined {
		if text := newNumber(r.period.schemes[0].template, r.period.span, r.Type, seq).String(); text != "" {
			e.Texts = []string{text}
		}
	}
	return e
}

// Reports are the accounts of several periods of a type, as AuditAll returns them. All lists of a kind together hold at
// most 10,000 entries; the counts are exact.
type Reports struct {
	// Periods are the reports of the periods that the audit was given, in their order, then those of other periods of
	// which there are used numbers, by their Start. The latter have Last 0, so all their numbers are Beyond. Foreign and
	// OtherCount are not set in them.
	Periods []Report
	// Without are the first instants of the periods between the oldest and the newest of Periods that are not there: no
	// number was issued, or both the counter and the documents are gone. The first 10,000, in ascending order.
	Without []time.Time
	// WithoutCount is their number. If there are more than 10,000, it includes hours that the clocks skipped.
	WithoutCount int64
	Foreign      []string // texts that are not numbers of this scheme or an earlier one, cut at 256 bytes; the first 1,000
	ForeignCount int64    // occurrences
	OtherCount   int64    // numbers of other types, and of periods before the oldest that the audit was given
}

// Clean reports whether every period is clean, see [Report.Clean], and no text is foreign.
func (r *Reports) Clean() bool {
	for i := range r.Periods {
		if !r.Periods[i].Clean() {
			return false
		}
	}
	return r.ForeignCount == 0
}

// An auditedPeriod is a period of an audit. A [Report] keeps it to look up sequences.
type auditedPeriod struct {
	report     Report // without what the account finds
	span       calendar.Span
	schemes    []*scheme // of the audit
	determined bool      // no two numbers with the same sequence differ, unless their dates do
	account    *account.Account
	texts      map[int64][]string // of the sequences of WithLookup
}

// keep keeps a text for a look-up.
func (p *auditedPeriod) keep(seq int64, text string) {
	if p.texts == nil {
		p.texts = map[int64][]string{}
	}
	p.texts[seq] = append(p.texts[seq], strings.Clone(text))
}

// close returns the report. It ignores sequences up to last that were issued while the used numbers were read.
func (p *auditedPeriod) close(last int64) Report {
	r, sum := p.report, p.account.Close(last)
	r.period = p
	r.Count, r.Duplicates, r.Beyond = sum.Count, p.numbers(sum.Duplicates), p.numbers(sum.Beyond)
	r.MissingCount, r.DuplicateCount, r.BeyondCount = sum.MissingCount, sum.DuplicateCount, sum.BeyondCount
	for _, missing := range sum.Missing {
		r.Missing = append(r.Missing, Range(missing))
	}
	for _, e := range sum.Explained {
		r.Explained = append(r.Explained, Explained{Range(e.Range), p.explanation(e.Explanation)})
	}
	for _, e := range sum.Possible {
		r.Possible = append(r.Possible, p.explanation(&e))
	}
	for _, unexplained := range sum.Unexplained {
		r.Unexplained = append(r.Unexplained, Range(unexplained))
	}
	r.Contradicted = p.numbers(sum.Contradicted)
	r.ExplainedCount, r.UnexplainedCount = sum.ExplainedCount, sum.UnexplainedCount
	r.PossibleCount, r.ContradictedCount = sum.PossibleCount, sum.ContradictedCount
	return r
}

// explanation converts an explanation of the account, and adds its type and period.
func (p *auditedPeriod) explanation(e *account.Explanation) Explanation {
	return Explanation{
		Series: p.report.Series, Type: p.report.Type, Start: p.report.Start, First: e.First, Last: e.Last,
		Reason: e.Reason, By: e.By, At: e.At, Unused: e.Unused, Possible: e.Possible,
	}
}

func (p *auditedPeriod) explanations(all []*account.Explanation) (converted []Explanation) {
	for _, e := range all {
		converted = append(converted, p.explanation(e))
	}
	return converted
}

// numbers returns the used numbers. A use without a text becomes the number of its sequence in the period.
func (p *auditedPeriod) numbers(uses []account.Use) (numbers []Number) {
	for _, u := range uses {
		number := newNumber(p.schemes[0].template, p.span, p.report.Type, u.Seq)
		for _, s := range p.schemes {
			n, err := s.template.ParseStored(u.Text)
			if err == nil && (s.shared || n.Type == p.report.Type) && n.Span.Label == p.span.Label {
				number = newNumber(s.template, *n.Span, n.Type, n.Seq)
				break
			}
		}
		numbers = append(numbers, number)
	}
	return numbers
}
