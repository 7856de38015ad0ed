package serial

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"time"

	"github.com/dailyserial/serial/internal/account"
	"github.com/dailyserial/serial/internal/calendar"
	"github.com/dailyserial/serial/internal/issue"
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
func (s *scheme) audit(
	typ string, p *calendar.Period, last int64, used iter.Seq2[string, error], until func() (int64, error),
) (Report, error) {
	numbers := &auditedNumbers{
		reader: template.NewReader(s.template), template: s.template, typ: strings.Clone(typ), span: s.template.SpanOf(p),
	}
	a := account.New(s.base+1, last, numbers)
	for text, err := range used {
		if err == nil {
			err = a.Add(text)
		}
		if err != nil {
			return Report{}, fmt.Errorf("serial: Audit of %s in %s: %w", typ, calendar.FormatLabel(p.Label), err)
		}
	}
	after, err := until()
	if err != nil {
		return Report{}, err
	}
	r := a.Close(after)
	report := Report{
		Type: numbers.typ, Start: time.Unix(p.Start, 0).In(s.calendar.Location), First: r.First, Last: r.Last,
		Count: r.Count, Duplicates: r.Duplicates, Beyond: r.Beyond, Foreign: r.Foreign,
		MissingCount: r.MissingCount, DuplicateCount: r.DuplicateCount, BeyondCount: r.BeyondCount, ForeignCount: r.ForeignCount,
		OtherCount: r.OtherCount,
	}
	for _, missing := range r.Missing {
		report.Missing = append(report.Missing, Range(missing))
	}
	return report, nil
}

// auditedNumbers tells an account the numbers of a type and a period.
type auditedNumbers struct {
	reader   *template.Reader
	template *template.Template
	typ      string
	span     template.Span   // the whole period
	parsed   template.Number // the last one
}

func (a *auditedNumbers) Parse(text string) (account.Kind, int64) {
	n, err := a.reader.ParseNumber(text)
	switch {
	case err != nil:
		return account.Foreign, 0
	case n.Type != a.typ || n.Date.Label != a.span.Label:
		return account.Other, 0
	}
	a.parsed = n
	return account.Own, n.Seq
}

func (a *auditedNumbers) Parsed() Number { return parsedNumber(a.template, a.parsed) }

func (a *auditedNumbers) Number(seq int64) Number { return newNumber(a.template, &a.span, a.typ, seq) }

// Audit accounts for the numbers of a type in the period that an instant lies in: which were counted and never used, which were
// used twice, which were never issued. used yields the numbers as the application has stored them, in any order, also those of
// other types and periods. See [Scheme.Audit] for what counts as missing, and for the memory that it takes.
//
// The counter is read before used is, which gives [Report].Last, and again afterwards: what was issued between the two readings
// is ignored, whether or not it is among the used numbers. A number that was issued before and is stored only after used has
// passed it shows as missing. The period is the current one or one whose counter is still kept, see [WithRetention]. Of the
// current one, Last is 0 if the type was not used.
//
// It writes nothing. ctx ends it between two numbers. Each reading of the counter ends within 10 s if Redis does not answer.
// Errors: [ErrInvalidType]; [ErrCounterLost] if the current period's counter is lost, also with a floor or a ledger, or went back
// meanwhile; [ErrClockSkew]; [ErrConflict]; one for a period that has not begun, that is no longer kept, or that ended meanwhile
// without being kept, and those of [Scheme.Audit]; ctx's; or a failure of Redis. With an error, there is no Report.
func (g *Generator) Audit(ctx context.Context, typ string, at time.Time, used iter.Seq2[string, error]) (Report, error) {
	p, err := g.audited(typ, at, used)
	if err != nil {
		return Report{}, g.outcome(ctx, err)
	}
	last, err := g.counter(ctx, typ, p)
	if err != nil {
		return Report{}, err
	}
	r, err := g.audit(typ, p, last, interrupted(ctx, used), func() (int64, error) {
		after, err := g.counter(ctx, typ, p)
		if err == nil && after < last {
			err = fmt.Errorf("%w: the counter of %s in %s went back from %d to %d while the used numbers were read", ErrCounterLost,
				typ, calendar.FormatLabel(p.Label), last, after)
		}
		return after, err
	})
	return r, outcome(ctx, err)
}

// counter reads the counter of a period that is the current one or still kept: 0 if none was issued.
func (g *Generator) counter(ctx context.Context, typ string, p *calendar.Period) (last int64, err error) {
	began := g.now()
	c, err := g.begin(ctx, typ, "")
	if err == nil {
		last, err = g.read(ctx, c, typ, p)
	}
	return g.unlessUnused(last), g.finish(ctx, c, began, err)
}

func (g *Generator) read(ctx context.Context, c *issue.Call, typ string, p *calendar.Period) (last int64, err error) {
	for {
		if p.Start < c.Current().Start {
			var each []int64
			switch each, err = c.History(ctx, p.Label); {
			case err != nil:
				return 0, err
			case c.Span().Start <= p.Start: // this host's clock was ahead
				continue
			case each[1] < 0:
				return 0, fmt.Errorf("serial: Audit of %s in %s: Redis has no counter of it: none was issued, or it is no longer kept; "+
					"WithRetention keeps counters beyond their period", typ, calendar.FormatLabel(p.Label))
			}
			return each[1], nil
		}
		last, err = c.Peek(ctx)
		switch current := c.Span(); {
		case err == nil && p.Start > current.Start:
			return 0, fmt.Errorf("serial: Audit of %s in %s: the period has not begun by Redis's clock, which is in %s",
				typ, calendar.FormatLabel(p.Label), calendar.FormatLabel(current.Label))
		case err != nil || p.Start == current.Start:
			return last, err
		}
	}
}

// interrupted is used until ctx ends.
func interrupted(ctx context.Context, used iter.Seq2[string, error]) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		for text, err := range used {
			if err == nil {
				err = ctx.Err()
			}
			if !yield(text, err) {
				return
			}
		}
	}
}
