package serial

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/dailyserial/serial/internal/account"
	"github.com/dailyserial/serial/internal/calendar"
	"github.com/dailyserial/serial/internal/series"
	"github.com/dailyserial/serial/internal/template"
)

// A Report accounts for a type's numbers in one period: it compares the numbers issued with the numbers used.
// [Report.Clean] reports whether they agree. The lists hold the first 1,000 entries; the counts are exact. Count +
// MissingCount is Last - First + 1, or 0 if that is negative.
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
}

// A Range is the sequences from First to Last, both included.
type Range struct{ First, Last int64 }

// Clean reports whether all used numbers were issued, each was used once, every missing number is explained, and no
// explanation is contradicted. Possible reasons do not count.
func (r Report) Clean() bool {
	return r.UnexplainedCount == 0 && r.ContradictedCount == 0 && r.DuplicateCount == 0 && r.BeyondCount == 0 &&
		r.ForeignCount == 0
}

// Audit accounts for the numbers of a type in the period of at. It finds the numbers that were issued but
// never used, used twice, or used but never issued. last is the last sequence issued, 0 if none was. used yields the
// numbers as the application has stored them, in any order; numbers of other types and periods may be among them.
// Blanks around a number (space, tab, U+00A0), as in CHAR columns, are ignored. [Generator.Audit] asks Redis for last.
//
// Missing includes numbers that nobody received: a floor, [Generator.Raise] or a ledger skipped them, or their caller
// gave up. [WithExplanations] separates these from numbers that are missing for no known reason.
//
// Audit needs two bits of memory for each sequence, in pages of 4,096: 2.5 MB for ten million numbers. It is an error
// if the sequences are spread so widely that it would need more than 256 MB.
//
// Any date or instant names its period, for example the Start of an earlier [Report], even if no number prints that
// date.
//
// Other errors: [ErrInvalidType]; one for a last below 0 or above 10^15-1, for a nil used, for a nil option, for a
// [When] that names no period, and for a period of which the template can print no date; one that names an explanation
// of this series and period if it is out of bounds, see [Explanation.Validate], or if its Start lies in the period but
// is not its first instant; one for a scheme that [WithEarlier] refuses; and the first error from used or from the
// explanations, wrapped. With an error, the Report is zero.
func (s *Scheme) Audit(typ string, at When, last int64, used iter.Seq2[string, error],
	opts ...AuditOption) (Report, error) {
	a, err := s.newAudit(typ, at, used, opts)
	if err != nil {
		return Report{}, err
	}
	if most := template.MaxSequence; last < 0 || last > most {
		return Report{}, fmt.Errorf("serial: Audit of %s: last sequence %d: want 0 to %d", s.subject(typ), last, most)
	}
	ctx, after := context.Background(), last
	if err := a.read(ctx, used, last); err != nil {
		return Report{}, err
	}
	if a.lastAfter != nil {
		if after, err = a.lastAfter(); err != nil {
			return Report{}, a.failed(err)
		}
		if after < last {
			return Report{}, a.failed(fmt.Errorf("the last sequence went back from %d to %d while the used numbers were read",
				last, after))
		}
	}
	if err := a.explain(ctx); err != nil {
		return Report{}, err
	}
	return a.close(after), nil
}

// An audit accounts for the numbers of a type in one period. Read the used numbers, then the explanations, then close
// it.
type audit struct {
	auditConfig
	scheme  *scheme
	period  calendar.Span // span of the whole period
	account *account.Account
	report  Report

	schemes []*scheme // scheme, then the earlier ones
}

func (s *scheme) newAudit(typ string, at When, used iter.Seq2[string, error], opts []AuditOption) (*audit, error) {
	instant, err := s.firstInstant(at)
	p := s.calendar.At(instant)
	if err == nil {
		err = s.template.Dates.CheckPeriod(p)
	}
	err = cmp.Or(s.template.CheckType(typ), refuseIf(used == nil,
		"serial: Audit: the used numbers are nil; if there are none, pass an iterator that yields nothing"), err)
	if err != nil {
		return nil, err
	}
	report := Report{Series: s.series(typ), Type: strings.Clone(typ), Start: s.local(p.Start), First: s.base + 1}
	a := &audit{scheme: s, schemes: []*scheme{s}, period: s.template.Dates.SpanOf(p), report: report}
	for i, o := range opts {
		if o == nil {
			return nil, fmt.Errorf("serial: Audit: option %d is nil", i+1)
		}
		if err := o.applyAudit(&a.auditConfig); err != nil {
			return nil, err
		}
	}
	return a, a.addEarlier()
}

// read accounts for the used numbers. last is the last sequence issued so far.
func (a *audit) read(ctx context.Context, used iter.Seq2[string, error], last int64) error {
	r := &a.report
	r.Last, a.account = last, account.New(r.First, last)
	for text, err := range used {
		if err = cmp.Or(err, ctx.Err()); err != nil {
			return a.failed(err)
		}
		switch s, n, other := a.find(text); {
		case s != nil:
			if err := a.account.Add(n.Seq, text); err != nil {
				return a.failed(err)
			}
		case other:
			r.OtherCount++
		default:
			if r.ForeignCount++; len(r.Foreign) < account.Listed {
				r.Foreign = append(r.Foreign, shorten(text))
			}
		}
	}
	return nil
}

// explain adds the explanations of the series and the period.
func (a *audit) explain(ctx context.Context) error {
	r := &a.report
	for _, all := range a.explanations {
		for e, err := range all {
			if err = cmp.Or(err, ctx.Err()); err != nil {
				return a.failed(err)
			}
			switch begins, inside := a.begins(e.Start); {
			case e.Series != r.Series || !begins && !inside:
				continue
			case inside:
				return fmt.Errorf("serial: explanation of %s %d to %d: Start %v lies in the period %s, which begins at %v",
					cmp.Or(e.Type, e.Series), e.First, e.Last, At(e.Start), calendar.FormatLabel(a.period.Label), At(r.Start))
			}
			if err := e.Validate(); err != nil {
				return err
			}
			a.account.Explain(account.Explanation{First: e.First, Last: e.Last, Reason: e.Reason, By: e.By, At: e.At,
				Unused: e.Unused, Possible: e.Possible})
		}
	}
	return nil
}

// failed wraps an error from the used numbers or the explanations.
func (a *audit) failed(err error) error {
	return fmt.Errorf("serial: Audit of %s in %s: %w", a.scheme.subject(a.report.Type),
		calendar.FormatLabel(a.period.Label), err)
}

// close returns the report. Sequences up to last that were issued while the used numbers were read are ignored.
func (a *audit) close(last int64) Report {
	r, sum := a.report, a.account.Close(last)
	r.Count, r.Duplicates, r.Beyond = sum.Count, a.numbers(sum.Duplicates), a.numbers(sum.Beyond)
	r.MissingCount, r.DuplicateCount, r.BeyondCount = sum.MissingCount, sum.DuplicateCount, sum.BeyondCount
	for _, missing := range sum.Missing {
		r.Missing = append(r.Missing, Range(missing))
	}
	for _, e := range sum.Explained {
		r.Explained = append(r.Explained, Explained{Range(e.Range), a.explanation(e.Explanation)})
	}
	for _, e := range sum.Possible {
		r.Possible = append(r.Possible, a.explanation(e))
	}
	for _, unexplained := range sum.Unexplained {
		r.Unexplained = append(r.Unexplained, Range(unexplained))
	}
	r.Contradicted = a.numbers(sum.Contradicted)
	r.ExplainedCount, r.UnexplainedCount = sum.ExplainedCount, sum.UnexplainedCount
	r.PossibleCount, r.ContradictedCount = sum.PossibleCount, sum.ContradictedCount
	return r
}

// explanation converts an explanation of the account, and adds its type and period.
func (a *audit) explanation(e account.Explanation) Explanation {
	return Explanation{
		Series: a.report.Series, Type: a.report.Type, Start: a.report.Start, First: e.First, Last: e.Last,
		Reason: e.Reason, By: e.By, At: e.At, Unused: e.Unused, Possible: e.Possible,
	}
}

// numbers returns the used numbers. A use without a text becomes the number of its sequence in the period.
func (a *audit) numbers(uses []account.Use) (numbers []Number) {
	for _, u := range uses {
		t, span, typ := a.scheme.template, a.period, a.report.Type
		if s, n, _ := a.find(u.Text); s != nil {
			t, span, typ = s.template, *n.Span, n.Type
		}
		numbers = append(numbers, newNumber(t, span, typ, u.Seq))
	}
	return numbers
}

// shorten cuts a text to at most 256 bytes, between characters.
func shorten(text string) string {
	const most = 256
	end := min(len(text), most)
	for end < len(text) && end > most-utf8.UTFMax && !utf8.RuneStart(text[end]) {
		end--
	}
	return strings.Clone(text[:end])
}

// Audit accounts for the numbers of a type in the period of at. It finds the numbers that were issued but
// never used, used twice, or used but never issued. used yields the numbers as the application has stored them, in any
// order; numbers of other types and periods may be among them. See [Scheme.Audit] for what counts as missing, and for
// the memory needed.
//
// Audit reads the counter before used, which gives [Report].Last, and again afterwards. It ignores numbers issued
// between the two readings, even if they are among the used numbers. A number that was issued earlier, but stored only
// after used has passed its place, appears as missing. The period must be the current one, or one whose counter is
// still kept; see [WithRetention]. Last is 0 if the type was not used in the current period.
//
// Audit writes nothing. If ctx ends, Audit stops before the next number or explanation. Each reading of the counter
// fails within 10 s if Redis does not answer. Errors: [ErrInvalidType]; [ErrCounterLost] if the counter is lost, even
// with a floor or a ledger, or if it went back while used was read; [ErrExhausted] as from [Generator.Peek];
// [ErrClockSkew]; [ErrConflict]; one for a period that has not begun, whose counter is no longer kept, or that ended
// during the audit and whose counter is not kept; the errors of [Scheme.Audit]; ctx's; or a failure of Redis. With an
// error, the Report is zero.
func (g *Generator) Audit(ctx context.Context, typ string, at When,
	used iter.Seq2[string, error], opts ...AuditOption) (Report, error) {
	r, err := g.audit(ctx, typ, at, used, opts)
	return r, g.publicError(ctx, err)
}

func (g *Generator) audit(ctx context.Context, typ string, at When, used iter.Seq2[string, error],
	opts []AuditOption) (r Report, err error) {
	a, err := g.newAudit(typ, at, used, opts)
	if err != nil {
		return r, err
	}
	if a.lastAfter != nil {
		return r, errors.New("serial: Audit: WithLastAfter is for Scheme.Audit; a Generator reads its counter itself")
	}
	first, last, err := g.counter(ctx, typ, &a.period.Period)
	if err != nil {
		return r, err
	}
	if first > 0 {
		a.report.First = first
	}
	if err := a.read(ctx, used, last); err != nil {
		return r, err
	}
	_, after, err := g.counter(ctx, typ, &a.period.Period)
	if err != nil {
		return r, err
	}
	if after < last {
		return r, fmt.Errorf("%w: the counter of %s in %s went back from %d to %d while the used numbers were read",
			ErrCounterLost, g.subject(typ), calendar.FormatLabel(a.period.Label), last, after)
	}
	if err := a.explain(ctx); err != nil {
		return r, err
	}
	return a.close(after), nil
}

// counter reads the counter of the current period or of one whose counter is still kept: 0 if no number was issued.
// first is the first sequence of that period, 0 if Redis does not have it.
func (g *Generator) counter(ctx context.Context, typ string, p *calendar.Period) (first, last int64, err error) {
	c, err := g.begin(ctx, typ, "", 0, nil)
	if err == nil {
		first, last, err = g.read(ctx, c, typ, p)
	}
	return first, last, g.finish(ctx, c, typ, err)
}

func (g *Generator) read(ctx context.Context, c *series.Call, typ string, p *calendar.Period) (
	first, last int64, err error) {
	label := calendar.FormatLabel(p.Label)
	for {
		past := p.Start < c.Current().Start
		var counted series.Reading
		if past {
			counted, err = c.History(ctx, p.Label)
		} else {
			counted, err = c.History(ctx)
		}
		refusal, refused := errors.AsType[*series.Refusal](err)
		switch current := counted.Span; {
		case err != nil && !(refused && refusal.Status == series.Lost && p.Start < current.Start): // else another began
			return 0, 0, err
		case err != nil:
		case p.Start > current.Start:
			return 0, 0, fmt.Errorf("serial: Audit of %s in %s: the period has not begun by Redis's clock, which is in %s",
				g.subject(typ), label, calendar.FormatLabel(current.Label))
		case past != (p.Start < current.Start): // this host's clock was ahead, or the period has just ended
		case !past:
			return counted.First[0], max(0, counted.Last[0]), nil
		case counted.Last[1] < 0:
			return 0, 0, fmt.Errorf("serial: Audit of %s in %s: Redis has no counter of it: none was issued, or it is no "+
				"longer kept; WithRetention keeps counters beyond their period", g.subject(typ), label)
		default:
			return counted.First[1], counted.Last[1], nil
		}
	}
}
