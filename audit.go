package serial

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/dailyserial/serial/internal/account"
	"github.com/dailyserial/serial/internal/calendar"
	"github.com/dailyserial/serial/internal/template"
)

// Audit accounts for the numbers of a type in one period. It compares the numbers that were issued with the numbers
// that the application has used. The parameter at may be any date or instant in the period, for example the Start of an
// earlier [Report]. The parameter last is the last sequence issued, or 0 if none was issued; [Generator.Audit] reads it
// from Redis.
//
// The iterator used yields the numbers as the application has stored them, in any order. Whitespace around a number
// (space, tab, U+00A0), as in CHAR columns, is ignored. Numbers of other types and periods may be among them.
//
// Missing numbers include those that were never returned to a caller, because a floor, [Generator.Raise] or a ledger
// skipped them, or because the call was canceled. [WithExplanations] separates them from numbers that are missing for
// no known reason.
//
// Audit needs two bits of memory for each sequence, in pages of 4,096 sequences. That is 2.5 MB for ten million
// numbers. Audit fails if the sequences are spread so widely that more than 256 MB would be needed.
//
// The error matches [ErrInvalidType] if the type is invalid. Audit also fails in these cases:
//
//   - The last sequence is negative or larger than 10^15-1.
//   - The iterator or an option is nil.
//   - The date or instant is in no period, or the template can print no date of its period.
//   - An explanation of this series and period is invalid; see [Explanation.Validate].
//   - The Start of an explanation of this series is in the period, but is not its first instant.
//   - A scheme of [WithEarlier] does not belong to the series.
//   - The iterator or the explanations yield an error. Audit wraps it.
//
// If there is an error, the Report is zero.
func (s *Scheme) Audit(typ string, at When, last int64, used iter.Seq2[string, error],
	opts ...AuditOption) (Report, error) {
	a, err := s.newAudit("Audit", typ, used, opts)
	if err != nil {
		return Report{}, err
	}
	p, err := a.only(at)
	if err != nil {
		return Report{}, err
	}
	before := func() ([]counted, error) { return []counted{{Period: p, last: last}}, nil }
	after := before
	if a.lastAfter != nil {
		after = func() ([]counted, error) {
			last, err := a.lastAfter()
			return []counted{{Period: p, last: last}}, a.failed(err)
		}
	}
	return only(a.run(context.Background(), used, before, after))
}

// AuditAll accounts for the numbers of a type in several periods. The slice last contains the last number issued in
// each period, as [Generator.History] returns it. AuditAll iterates over the used numbers once. The iterator, the
// options, the errors and the memory limit are those of [Scheme.Audit]. The memory limit applies to all periods
// together.
//
// The iterator may yield numbers of a period that is not in the slice. If that period is newer than the oldest one in
// the slice, it gets a report, too. Otherwise its numbers only count in OtherCount. If two schemes of [WithEarlier]
// parse the same string as numbers of two periods, it counts in both periods.
//
// AuditAll fails before it reads the used numbers if the slice contains a period twice, a number of another series, or
// a Number without a Start, or if the template cannot print any date of a period.
func (s *Scheme) AuditAll(typ string, last []Number, used iter.Seq2[string, error],
	opts ...AuditOption) (Reports, error) {
	a, err := s.newAudit("AuditAll", typ, used, opts)
	if err != nil {
		return Reports{}, err
	}
	before := func() ([]counted, error) { return a.counted(last, nil) }
	after := before
	if a.historyAfter != nil {
		after = func() ([]counted, error) {
			last, err := a.historyAfter()
			if err != nil {
				return nil, a.failed(err)
			}
			return a.counted(last, nil)
		}
	}
	return a.run(context.Background(), used, before, after)
}

// An audit accounts for the numbers of a type in one period or in several periods.
type audit struct {
	auditConfig
	method  string // method that was called
	scheme  *scheme
	schemes []*scheme // scheme, followed by those of WithEarlier
	series  string
	typ     string

	book    *account.Book
	label   string                    // label of the only period, or "" in AuditAll
	redis   bool                      // the counters are read from Redis
	oldest  string                    // label of the oldest given period in AuditAll, or "" if none
	periods map[string]*auditedPeriod // periods by label
	ordered []*auditedPeriod          // given periods, followed by others in the order in which they were found
	recent  *auditedPeriod            // period of the previous used number
	reports Reports
}

// A counted is a period and its last sequence issued. The field first is the first sequence of the period, or 0 if that
// of the scheme applies.
type counted struct {
	*calendar.Period
	first, last int64
}

func (s *scheme) newAudit(method, typ string, used iter.Seq2[string, error], opts []AuditOption) (*audit, error) {
	err := cmp.Or(s.template.CheckType(typ), refuseIf(used == nil,
		"serial: %s: the used numbers are nil; if there are none, pass an iterator that yields nothing", method))
	if err != nil {
		return nil, err
	}
	a := &audit{method: method, scheme: s, schemes: []*scheme{s}, series: s.series(typ), typ: strings.Clone(typ),
		book: account.NewBook(10_000), periods: map[string]*auditedPeriod{}}
	for i, o := range opts {
		if o == nil {
			return nil, fmt.Errorf("serial: %s: option %d is nil", method, i+1)
		}
		if err := o.applyAudit(&a.auditConfig); err != nil {
			return nil, err
		}
	}
	return a, cmp.Or(a.addEarlier(),
		refuseIf(method == "AuditAll" && a.lastAfter != nil, "serial: WithLastAfter is for Audit; want WithHistoryAfter"),
		refuseIf(method == "Audit" && a.historyAfter != nil, "serial: WithHistoryAfter is for AuditAll; want WithLastAfter"))
}

// only makes the period that contains a date or an instant the only period of the audit, and returns this period.
func (a *audit) only(at When) (*calendar.Period, error) {
	instant, err := a.scheme.firstInstant(at)
	if err != nil {
		return nil, err
	}
	p := a.scheme.calendar.At(instant)
	a.label, a.book = p.Label, account.NewBook(account.Listed)
	return p, a.scheme.template.Dates.CheckPeriod(p)
}

// only converts the result of an audit of one period to a Report. It adds the results that do not belong to a period.
func only(r Reports, err error) (Report, error) {
	if err != nil {
		return Report{}, err
	}
	report := r.Periods[0]
	report.Foreign, report.ForeignCount, report.OtherCount = r.Foreign, r.ForeignCount, r.OtherCount
	return report, nil
}

// counted returns the period of each last number, with its first and last sequence. The slice firsts contains the first
// sequences of these periods, or is nil.
func (a *audit) counted(last []Number, firsts []int64) (all []counted, err error) {
	for i, n := range last {
		if n.Start.IsZero() || a.scheme.series(n.Type) != a.series {
			return nil, a.failed(fmt.Errorf("the last number of %s from %v: want numbers of this series, as in History",
				n.Type, At(n.Start)))
		}
		c := counted{Period: a.scheme.calendar.At(n.Start), last: n.Seq}
		if firsts != nil {
			c.first = firsts[i]
		}
		all = append(all, c)
	}
	return all, nil
}

// run creates the reports. The functions before and after read the counters. run calls the first one before it reads
// the used numbers, and the second one afterwards.
func (a *audit) run(ctx context.Context, used iter.Seq2[string, error], before, after func() ([]counted, error)) (
	Reports, error) {
	periods, err := before()
	if err != nil {
		return Reports{}, err
	}
	for _, c := range periods {
		if err := a.add(c); err != nil {
			return Reports{}, err
		}
	}
	given := len(periods)
	if err := a.read(ctx, used); err != nil {
		return Reports{}, err
	}
	if periods, err = after(); err != nil {
		return Reports{}, err
	}
	last := map[string]int64{}
	for _, c := range periods {
		last[c.Label] = c.last
		if p := a.periods[c.Label]; p != nil && c.last < p.report.Last {
			return Reports{}, a.wentBack(c.Period, p.report.Last, c.last)
		}
	}
	if err := a.explain(ctx); err != nil {
		return Reports{}, err
	}
	slices.SortFunc(a.ordered[given:], func(x, y *auditedPeriod) int { return cmp.Compare(x.span.Start, y.span.Start) })
	for _, p := range a.ordered {
		a.reports.Periods = append(a.reports.Periods, p.close(last[p.span.Label]))
	}
	a.findWithout()
	return a.reports, nil
}

// add adds a period to the audit. The period was given to the audit, or it was found in the used numbers and its last
// sequence is 0.
func (a *audit) add(c counted) error {
	if top := template.MaxSequence; c.last < 0 || c.last > top {
		return fmt.Errorf("serial: %s of %s: last sequence %d: want 0 to %d", a.method, a.scheme.subject(a.typ), c.last, top)
	}
	if a.periods[c.Label] != nil {
		return a.failed(fmt.Errorf("the period %s is given twice", calendar.FormatLabel(c.Label)))
	}
	if err := a.scheme.template.Dates.CheckPeriod(c.Period); err != nil {
		return err
	}
	r := Report{Series: a.series, Type: a.typ, Start: a.scheme.local(c.Start), First: cmp.Or(c.first, a.scheme.base+1),
		Last: c.last}
	book, err := a.book.New(r.First, r.Last)
	if err != nil {
		return a.failed(err)
	}
	t := a.scheme.template
	p := &auditedPeriod{report: r, span: t.Dates.SpanOf(c.Period), schemes: a.schemes, account: book,
		determined: len(a.schemes) == 1 && !(a.scheme.shared && t.Typed)}
	a.periods[c.Label], a.ordered, a.recent = p, append(a.ordered, p), p
	return nil
}

// read reads the used numbers, and adds each of them to its period, or to several periods if there are earlier schemes.
func (a *audit) read(ctx context.Context, used iter.Seq2[string, error]) error {
	for _, p := range a.ordered {
		if a.label == "" && (a.oldest == "" || p.span.Label < a.oldest) {
			a.oldest = p.span.Label
		}
	}
	var counts []*auditedPeriod // periods in which the current string has been counted
	for text, err := range used {
		if err = cmp.Or(err, ctx.Err()); err != nil {
			return a.failed(err)
		}
		isNumber := false
		counts = counts[:0]
		for _, s := range a.schemes {
			n, err := s.template.ParseStored(text)
			if err != nil {
				continue
			}
			isNumber = true
			p, err := a.find(s, n)
			if err != nil {
				return err
			}
			if p == nil || slices.Contains(counts, p) {
				continue
			}
			counts = append(counts, p)
			if err := p.account.Add(n.Seq, text); err != nil {
				return a.failed(err)
			}
			if a.lookups[n.Seq] && len(p.texts[n.Seq]) < account.Listed {
				p.keep(n.Seq, text)
			}
		}
		switch {
		case len(counts) > 0:
		case isNumber:
			a.reports.OtherCount++
		default:
			if a.reports.ForeignCount++; len(a.reports.Foreign) < account.Listed {
				a.reports.Foreign = append(a.reports.Foreign, shorten(text))
			}
		}
	}
	return nil
}

// find returns the period of a number that s has parsed. In AuditAll, it adds the period if necessary. It returns nil
// if the number is of another type or not in an audited period.
func (a *audit) find(s *scheme, n template.Number) (*auditedPeriod, error) {
	if !s.shared && n.Type != a.typ {
		return nil, nil
	}
	if a.recent != nil && a.recent.span.Label == n.Span.Label {
		return a.recent, nil
	}
	p := a.periods[n.Span.Label]
	if p == nil && a.oldest != "" && n.Span.Label > a.oldest {
		// The clocks of the audited scheme may have skipped the period of another scheme's number.
		if missed := a.scheme.calendar.Beginning(n.Span.Wall); missed.Start < missed.End {
			err := a.add(counted{Period: missed})
			return a.recent, err
		}
	}
	if p != nil {
		a.recent = p
	}
	return p, nil
}

// failed adds the type and the period to an error. It returns nil if err is nil.
func (a *audit) failed(err error) error {
	period := ""
	switch {
	case err == nil:
		return nil
	case a.label != "":
		period = " in " + calendar.FormatLabel(a.label)
	}
	return fmt.Errorf("serial: %s of %s%s: %w", a.method, a.scheme.subject(a.typ), period, err)
}

// wentBack returns the error for a counter that went back while the used numbers were read. The parameters last and
// after are its content before and afterwards.
func (a *audit) wentBack(p *calendar.Period, last, after int64) error {
	if a.redis {
		return fmt.Errorf("%w: the counter of %s in %s went back from %d to %d while the used numbers were read",
			ErrCounterLost, a.scheme.subject(a.typ), calendar.FormatLabel(p.Label), last, after)
	}
	return a.failed(fmt.Errorf("the last sequence went back from %d to %d while the used numbers were read", last, after))
}

// shorten truncates a string to at most 256 bytes, at a boundary between characters.
func shorten(text string) string {
	const maxBytes = 256
	end := min(len(text), maxBytes)
	for end < len(text) && end > maxBytes-utf8.UTFMax && !utf8.RuneStart(text[end]) {
		end--
	}
	return strings.Clone(text[:end])
}
