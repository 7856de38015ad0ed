package serial

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"slices"
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

// explain adds the explanations of the series and the periods.
func (a *audit) explain(ctx context.Context) error {
	var at time.Time // Start of the previous explanation
	var begin []*auditedPeriod
	var inside *auditedPeriod
	for _, all := range a.explanations {
		for e, err := range all {
			if err = cmp.Or(err, ctx.Err()); err != nil {
				return a.failed(err)
			}
			if e.Series != a.series {
				continue
			}
			if !e.Start.Equal(at) {
				at = e.Start
				begin, inside = a.beginning(at)
			}
			if inside != nil {
				return fmt.Errorf("serial: explanation of %s %d to %d: Start %v lies in the period %s, which begins at %v",
					cmp.Or(e.Type, e.Series), e.First, e.Last, At(e.Start), calendar.FormatLabel(inside.span.Label),
					At(inside.report.Start))
			}
			if len(begin) == 0 {
				continue
			}
			if err := e.Validate(); err != nil {
				return err
			}
			for _, p := range begin {
				p.account.Explain(account.Explanation{First: e.First, Last: e.Last, Reason: e.Reason, By: e.By, At: e.At,
					Unused: e.Unused, Possible: e.Possible})
			}
		}
	}
	return nil
}

// findWithout adds the periods between the oldest and the newest one that have no report.
func (a *audit) findWithout() {
	if a.label != "" || len(a.ordered) < 2 {
		return
	}
	const most = 10_000
	byStart := func(x, y *auditedPeriod) int { return cmp.Compare(x.span.Start, y.span.Start) }
	oldest, newest := &slices.MinFunc(a.ordered, byStart).span.Period, &slices.MaxFunc(a.ordered, byStart).span.Period
	r, c := &a.reports, a.scheme.calendar
	for p := oldest; p.Start < newest.Start; p = c.Next(p) {
		if a.periods[p.Label] != nil {
			continue
		}
		if r.WithoutCount++; r.WithoutCount > most {
			r.WithoutCount = c.Index(newest.Wall.Unix()) - c.Index(oldest.Wall.Unix()) + 1 - int64(len(a.ordered))
			return
		}
		r.Without = append(r.Without, a.scheme.local(p.Start))
	}
}

// An AuditOption configures an audit.
type AuditOption interface{ applyAudit(*auditConfig) error }

type auditConfig struct {
	explanations []iter.Seq2[Explanation, error]
	lastAfter    func() (int64, error) // reads the last sequence again; nil if there is no need
	historyAfter func() ([]Number, error)
	earlier      []*Scheme      // schemes of numbers printed before a change
	lookups      map[int64]bool // sequences whose texts the report has
}

type auditOption func(*auditConfig) error

func (o auditOption) applyAudit(c *auditConfig) error { return o(c) }

// WithExplanations has an audit explain missing numbers. The audit ignores explanations of other series and periods. If
// the option is given more than once, the audit reads all of them, in order. There is no default; nil is an error.
//
// Where several explanations fit a missing number, one with By (a person's) comes before one without. Otherwise, the
// later option wins, and within one option, the later explanation. At does not matter. So a person can correct this
// package, and another person.
//
// An explanation with Possible explains nothing. [Report].Possible lists it if a number in its range is unexplained.
//
// A used number is contradicted if an explanation with Unused covers it, even above [Report].Last. Investigate it; it
// does not prove fraud, since Redis may have lost the number and issued it again.
//
// Explanations may reach beyond the numbers issued, where they explain nothing. An audit reads them after the used
// numbers, and [Generator.Audit] also after its second reading of the counter, so one database connection is enough for
// both. With ten million numbers and a million explanations, an audit takes less than 160 MB, plus the bytes of the
// Reasons and Bys.
func WithExplanations(all iter.Seq2[Explanation, error]) AuditOption {
	return auditOption(func(c *auditConfig) error {
		c.explanations = append(c.explanations, all)
		return refuseIf(all == nil,
			"serial: WithExplanations: nil; if there are none, leave the option out or pass an iterator that yields nothing")
	})
}

// WithLastAfter has [Scheme.Audit] read the last sequence issued once more, after the used numbers. Sequences above its
// argument last, up to that one, were issued meanwhile and are ignored, even if they are among the used numbers. If
// read fails, the audit returns its error, wrapped. A sequence below last is an error too. [Generator.Audit] reads the
// counter itself, and refuses this option.
//
// Default: nothing is issued meanwhile.
func WithLastAfter(read func() (int64, error)) AuditOption {
	return auditOption(func(c *auditConfig) error {
		c.lastAfter = read
		return refuseIf(read == nil, "serial: WithLastAfter: the function is nil")
	})
}

// WithHistoryAfter has [Scheme.AuditAll] read the last numbers issued once more, after the used numbers. Sequences that
// were issued in a period in the meantime are ignored, even if they are among the used numbers. If read fails, the audit
// returns its error, wrapped. It is an error, too, if a last sequence is lower than before. A period that read no longer
// has counts as unchanged. [Generator.AuditAll] reads its counters itself, and refuses this option.
//
// Default: nothing is issued meanwhile.
func WithHistoryAfter(read func() ([]Number, error)) AuditOption {
	return auditOption(func(c *auditConfig) error {
		c.historyAfter = read
		return refuseIf(read == nil, "serial: WithHistoryAfter: the function is nil")
	})
}

// WithLookup has an audit keep the texts of used numbers with these sequences, for [Report.Lookup]. In AuditAll, that
// applies to every period. It is an error to name more than 1,000 different sequences, in all options together. Default
// none.
func WithLookup(seqs ...int64) AuditOption {
	return auditOption(func(c *auditConfig) error {
		if c.lookups == nil {
			c.lookups = map[int64]bool{}
		}
		for _, seq := range seqs {
			c.lookups[seq] = true
		}
		return refuseIf(len(c.lookups) > account.Listed, "serial: WithLookup: %d sequences; want at most %d", len(c.lookups),
			account.Listed)
	})
}

// Explained is a range of missing sequences and the explanation for all of them. Neighbours with the same explanation
// form one range. The explanation is unchanged, except that At is in UTC.
type Explained struct {
	Range
	Explanation Explanation
}
