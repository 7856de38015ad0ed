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

// A Report is the result of an audit of the numbers of a type in one period. [Report.Clean] reports whether the numbers
// issued and the numbers used agree. Each list contains at most the first 1,000 entries, but the counts are exact. The
// sum of Count and MissingCount is Last-First+1, or 0 if that is negative. [Report.Lookup] returns the details of any
// sequence. It needs the memory that the audit has used, so a Report keeps this memory.
type Report struct {
	Series string // as [Scheme.Series] returns it
	Type   string
	Start  time.Time // first instant of the period
	First  int64     // first sequence of the period; see [WithStart]
	Last   int64     // last sequence issued before the used numbers were read, or 0 if none was issued

	Count      int64    // number of different used sequences from First to Last
	Missing    []Range  // sequences from First to Last that were not used, in ascending order
	Duplicates []Number // second occurrence of each sequence that was used more than once
	Beyond     []Number // each occurrence of a used sequence above Last or below First
	Foreign    []string // strings that are not numbers of this scheme or an earlier one, truncated to 256 bytes

	MissingCount   int64 // number of missing sequences
	DuplicateCount int64 // number of sequences that were used more than once
	BeyondCount    int64 // number of occurrences of sequences above Last or below First
	ForeignCount   int64 // number of strings that are not numbers
	OtherCount     int64 // number of used numbers of other types or periods, which are ignored

	Explained    []Explained   // missing sequences with an explanation, in ascending order; see [WithExplanations]
	Unexplained  []Range       // other missing sequences, in ascending order
	Possible     []Explanation // possible reasons for unexplained sequences, ordered by At and then as they were read
	Contradicted []Number      // used sequences that an explanation calls unused, each once, in ascending order

	ExplainedCount    int64 // number of missing sequences with an explanation
	UnexplainedCount  int64 // number of other missing sequences
	PossibleCount     int64 // number of possible reasons
	ContradictedCount int64 // number of contradicted sequences

	period *auditedPeriod // nil in a Report that does not come from an audit
}

// A Range contains the sequences from First to Last, inclusive.
type Range struct{ First, Last int64 }

// Clean reports whether all used numbers of the period were issued, each was used only once, every missing number is
// explained, and no explanation is contradicted. Possible reasons have no effect. Foreign has no effect, either,
// because its strings belong to no period; if one of them is a mistyped number, that number is missing in its own
// period.
func (r Report) Clean() bool {
	return r.UnexplainedCount == 0 && r.ContradictedCount == 0 && r.DuplicateCount == 0 && r.BeyondCount == 0
}

// An Entry describes one sequence of a period, as [Report.Lookup] returns it.
type Entry struct {
	Issued bool // whether the sequence is in the range from First to Last of the Report
	Stored int  // how often the sequence was used; 2 means at least twice
	// Texts contains the used strings of the sequence. If [WithLookup] names the sequence, these are the first 1,000
	// strings, with the whitespace around them. Otherwise, Texts contains a string only if the sequence was used once and
	// can be printed in only one way in this period.
	Texts        []string
	Explanation  *Explanation  // explanation that applies, or nil if the sequence is not missing or not explained
	Replaced     []Explanation // other explanations of the sequence, in the order in which they were read
	Possible     []Explanation // possible reasons for the sequence, ordered by At and then as they were read
	Contradicted bool          // whether the sequence was used, although an explanation calls it unused
}

// Lookup returns the details of a sequence, even if the lists of r do not contain the sequence. The Entry is zero if
// seq is less than 1, or if r does not come from an audit.
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

// Reports are the result of an audit of several periods, as AuditAll returns them. All lists of the same kind together
// contain at most 10,000 entries, but the counts are exact.
type Reports struct {
	// Periods contains the reports of the given periods, in their order, followed by the reports of other periods with
	// used numbers, ordered by Start. The latter have Last 0, so all their numbers are Beyond. Foreign, ForeignCount and
	// OtherCount are not set in these reports.
	Periods []Report
	// Without contains the first instants of the periods without a report that lie between the oldest and the newest
	// report, in ascending order. No number was issued in these periods, or both the counter and the documents are gone.
	// Without contains at most 10,000 periods.
	Without []time.Time
	// WithoutCount is the number of periods without a report. If there are more than 10,000, the number includes periods
	// that the clocks skipped.
	WithoutCount int64
	Foreign      []string // first 1,000 strings that are not numbers of any scheme, truncated to 256 bytes
	ForeignCount int64    // number of strings that are not numbers
	OtherCount   int64    // number of used numbers of other types, or of periods before the oldest given period
}

// Clean reports whether every period is clean (see [Report.Clean]) and every string is a number.
func (r *Reports) Clean() bool {
	for i := range r.Periods {
		if !r.Periods[i].Clean() {
			return false
		}
	}
	return r.ForeignCount == 0
}

// An auditedPeriod is a period of an audit. A [Report] refers to it for Lookup.
type auditedPeriod struct {
	report     Report // without the results of account
	span       calendar.Span
	schemes    []*scheme // schemes of the audit
	determined bool      // each sequence can be printed in only one way, except for its date
	account    *account.Account
	texts      map[int64][]string // strings of the sequences that WithLookup names, by sequence
}

// keep stores a used string for Lookup.
func (p *auditedPeriod) keep(seq int64, text string) {
	if p.texts == nil {
		p.texts = map[int64][]string{}
	}
	p.texts[seq] = append(p.texts[seq], strings.Clone(text))
}

// close returns the report. The parameter last is the last sequence that had been issued when all used numbers had been
// read. Sequences that were issued while the used numbers were read are ignored.
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

// explanation converts an explanation of package account. It adds the series, the type and the period.
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

// numbers converts uses of package account. The number of a use is parsed from its string. If there is no string, it is
// the number that the audited scheme would print.
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

// explain reads the explanations, and adds each to its periods.
func (a *audit) explain(ctx context.Context) error {
	var at time.Time // Start of the previous explanation, for which begin and inside were found
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

// findWithout finds the periods without a report between the oldest and the newest report.
func (a *audit) findWithout() {
	if a.label != "" || len(a.ordered) < 2 {
		return
	}
	const maxListed = 10_000
	byStart := func(x, y *auditedPeriod) int { return cmp.Compare(x.span.Start, y.span.Start) }
	oldest, newest := &slices.MinFunc(a.ordered, byStart).span.Period, &slices.MaxFunc(a.ordered, byStart).span.Period
	r, c := &a.reports, a.scheme.calendar
	for p := oldest; p.Start < newest.Start; p = c.Next(p) {
		if a.periods[p.Label] != nil {
			continue
		}
		if r.WithoutCount++; r.WithoutCount > maxListed {
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
	lastAfter    func() (int64, error)    // function of WithLastAfter, or nil if none
	historyAfter func() ([]Number, error) // function of WithHistoryAfter, or nil if none
	earlier      []*Scheme                // schemes of numbers that were printed before a change
	lookups      map[int64]bool           // sequences that WithLookup names, as keys
}

type auditOption func(*auditConfig) error

func (o auditOption) applyAudit(c *auditConfig) error { return o(c) }

// WithExplanations provides explanations of missing numbers. The audit ignores explanations of other series and
// periods. If the option is given more than once, the audit reads the explanations of all options, in their order. The
// iterator must not be nil.
//
// If several explanations cover a missing number, those whose By is set take precedence, because they come from a
// person. Among explanations of the same kind, the one that is read last takes precedence, even if its At is earlier.
// So a person can correct an explanation of this package or of another person.
//
// An explanation whose Possible is set explains nothing. It is listed in [Report].Possible if a number in its range is
// unexplained.
//
// A used number is contradicted if an explanation whose Unused is set covers it, even above [Report].Last. Investigate
// such a number. The contradiction does not prove fraud, because Redis may have lost data and issued the number again.
//
// Explanations may cover sequences that were not issued. The audit reads the explanations after it has read all used
// numbers, so one database connection is enough for both. [Generator.Audit] reads the counter again before it reads the
// explanations. With ten million numbers and a million explanations, an audit needs less than 160 MB, in addition to
// the bytes of the reasons and names.
func WithExplanations(all iter.Seq2[Explanation, error]) AuditOption {
	return auditOption(func(c *auditConfig) error {
		c.explanations = append(c.explanations, all)
		return refuseIf(all == nil,
			"serial: WithExplanations: nil; if there are none, leave the option out or pass an iterator that yields nothing")
	})
}

// WithLastAfter makes [Scheme.Audit] call the given function after it has read the used numbers. The function must
// return the last sequence issued by then. Sequences that were issued in the meantime are ignored, even if they are
// among the used numbers. The audit fails if this last sequence is lower than the one that was passed to Audit. It also
// fails if the function fails, and then wraps its error. [Generator.Audit] reads the counter itself, and refuses this
// option.
//
// By default, the audit assumes that nothing is issued in the meantime. The function must not be nil.
func WithLastAfter(read func() (int64, error)) AuditOption {
	return auditOption(func(c *auditConfig) error {
		c.lastAfter = read
		return refuseIf(read == nil, "serial: WithLastAfter: the function is nil")
	})
}

// WithHistoryAfter makes [Scheme.AuditAll] call the given function after it has read the used numbers. The function
// must return the last number issued by then in each period. Sequences that were issued in the meantime are ignored,
// even if they are among the used numbers. If the result lacks one of the audited periods, the last number of that
// period is assumed to be unchanged. The audit fails if a sequence is lower than before. It also fails if the function
// fails, and then wraps its error. [Generator.AuditAll] reads its counters itself, and refuses this option.
//
// By default, the audit assumes that nothing is issued in the meantime. The function must not be nil.
func WithHistoryAfter(read func() ([]Number, error)) AuditOption {
	return auditOption(func(c *auditConfig) error {
		c.historyAfter = read
		return refuseIf(read == nil, "serial: WithHistoryAfter: the function is nil")
	})
}

// WithLookup makes an audit store the used strings of these sequences, for [Report.Lookup]. In AuditAll, it applies to
// every period. All options together may name up to 1,000 different sequences. By default, no strings are stored.
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

// Explained is a range of missing sequences with the same explanation. Adjacent sequences with the same explanation
// form one range. The Explanation is the one that was read, with At in UTC.
type Explained struct {
	Range
	Explanation Explanation
}
