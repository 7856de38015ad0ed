package serial

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"

	"github.com/dailyserial/serial/internal/calendar"
	"github.com/dailyserial/serial/internal/series"
)

// maxPeriods is the largest retention, and the largest number of periods for History.
const maxPeriods = 10_000

// History returns the last number issued in each of the latest periods, newest first. The number of periods includes
// the current one, and must be 1 to 10,000. A Number has Seq 0 if its period was opened but no number was issued. A
// period is omitted if the type was not used in it, or if its counter is lost, has expired (see [WithRetention]) or is
// above 10^15-1. Sequences that a floor or [Generator.Raise] has skipped count as issued.
//
// History writes nothing. The error matches [ErrInvalidType], [ErrClockSkew] or [ErrConflict], or it wraps the error of
// ctx or of Redis. History also fails if the number of periods is invalid.
func (g *Generator) History(ctx context.Context, typ string, periods int) ([]Number, error) {
	numbers, _, err := g.kept(ctx, typ, periods, refuseIf(periods < 1 || periods > maxPeriods,
		"serial: History of %d periods: want 1 to %d", periods, maxPeriods))
	return numbers, err
}

// kept returns the last numbers of the latest periods, newest first, and the first sequences of these periods. A first
// sequence is 0 if Redis does not know it. The parameter refused is the error in the caller's other arguments, or nil
// if they are valid.
func (g *Generator) kept(ctx context.Context, typ string, periods int, refused error) (
	numbers []Number, firsts []int64, err error) {
	c, err := g.begin(ctx, typ, "", 0, refused)
	if err == nil {
		numbers, firsts, err = g.history(ctx, c, typ, periods)
	}
	return numbers, firsts, g.finish(ctx, c, typ, err)
}

func (g *Generator) history(ctx context.Context, c *series.Call, typ string, periods int) (
	numbers []Number, firsts []int64, err error) {
	const together = 1000 // largest number of periods per script call; more would keep Redis busy for too long
	if g.calendar.Unit == calendar.Never {
		periods = 1
	}
	// With a label, History does not fail if the counter of the current period is lost.
	counters, err := c.History(ctx, c.Current().Label)
	if err != nil {
		return nil, nil, err
	}
	first, last := counters.First[:1], counters.Last[:1]
	read := []*calendar.Period{&counters.Span.Period}
	for {
		// Every later reply begins with the current period again, which is skipped here.
		first, last = first[len(first)-len(read):], last[len(last)-len(read):]
		for i, p := range read {
			if p.End <= 0 { // no number was issued before 1970
				return numbers, firsts, nil
			}
			if last[i] >= 0 {
				numbers = append(numbers, newNumber(g.template, g.template.Dates.SpanOf(p), typ, last[i]))
				firsts = append(firsts, first[i])
			}
		}
		periods -= len(read)
		if periods == 0 {
			return numbers, firsts, nil
		}
		oldest := read[len(read)-1]
		read = nil
		var labels []string
		for len(read) < min(periods, together) {
			oldest = g.calendar.Previous(oldest)
			read, labels = append(read, oldest), append(labels, oldest.Label)
		}
		if counters, err = c.History(ctx, labels...); err != nil {
			return nil, nil, err
		}
		first, last = counters.First, counters.Last
	}
}

// Audit accounts for the numbers of a type in one period. It compares the numbers that were issued with those that the
// application has used, which the iterator used yields. [Scheme.Audit] describes the arguments and the memory needed.
// The period must be the current one, or one whose counter has not expired; see [WithRetention].
//
// Audit reads the counter before it iterates over the used numbers, and again afterwards. [Report].Last is the first
// value. Numbers that are issued in between are ignored, whether or not the iterator yields them. A number that was
// issued earlier, but stored during the audit, may be reported as missing, because the iterator may already have passed
// its row. If the type was not used in the current period, Last is 0.
//
// Audit writes nothing. If ctx ends, Audit stops before the next number or explanation. If Redis does not reply, each
// of the two reads fails within 10 s. If there is an error, the Report is zero.
//
// The error matches [ErrInvalidType], [ErrClockSkew] or [ErrConflict]. It matches [ErrCounterLost] if the counter
// became lower during the audit, or if it is lost, even if a floor or a ledger will repair it. It matches
// [ErrExhausted] if the counter was set above 10^15-1 by hand. Audit also fails if the period has not begun, or if its
// counter has expired, which can happen during the audit. The other errors are those of [Scheme.Audit], of ctx and of
// Redis.
func (g *Generator) Audit(ctx context.Context, typ string, at When,
	used iter.Seq2[string, error], opts ...AuditOption) (Report, error) {
	r, err := g.audit(ctx, typ, at, used, opts)
	return r, g.publicError(ctx, err)
}

func (g *Generator) audit(ctx context.Context, typ string, at When, used iter.Seq2[string, error],
	opts []AuditOption) (r Report, err error) {
	a, err := g.newAudit("Audit", typ, used, opts)
	if err != nil {
		return r, err
	}
	p, err := a.only(at)
	if err != nil {
		return r, err
	}
	if a.lastAfter != nil {
		return r, errors.New("serial: Audit: WithLastAfter is for Scheme.Audit; a Generator reads its counter itself")
	}
	a.redis = true
	read := func() ([]counted, error) {
		first, last, err := g.counter(ctx, typ, p)
		return []counted{{p, first, last}}, err
	}
	return only(a.run(ctx, used, read, read))
}

// AuditAll accounts for the numbers of a type in all periods whose counters have not expired (see [WithRetention]), and
// iterates over the used numbers only once. A period whose counter is lost is not included. [Scheme.AuditAll] describes
// what happens to used numbers of other periods. The report of a period is what [Generator.Audit] returns for it,
// except for Foreign, ForeignCount and OtherCount.
//
// AuditAll reads the counters before it iterates over the used numbers, and again afterwards. Numbers that are issued
// in between are ignored. If a period begins in between and the iterator yields numbers of that period, the report of
// the period has Last 0.
//
// AuditAll writes nothing. If ctx ends, it stops before the next number or explanation. If Redis does not reply, each
// of the two reads fails within 10 s. If there is an error, the Reports are zero.
//
// The errors are those of [Generator.History] and of [Scheme.AuditAll], and [ErrCounterLost] if a counter became lower
// during the audit. AuditAll also fails if the current period ends during the audit and its counter is not kept.
func (g *Generator) AuditAll(ctx context.Context, typ string, used iter.Seq2[string, error], opts ...AuditOption) (
	Reports, error) {
	r, err := g.auditAll(ctx, typ, used, opts)
	return r, g.publicError(ctx, err)
}

func (g *Generator) auditAll(ctx context.Context, typ string, used iter.Seq2[string, error], opts []AuditOption) (
	r Reports, err error) {
	a, err := g.newAudit("AuditAll", typ, used, opts)
	if err != nil {
		return r, err
	}
	if a.historyAfter != nil {
		return r, errors.New("serial: AuditAll: WithHistoryAfter is for Scheme.AuditAll; a Generator reads its counters " +
			"itself")
	}
	a.redis = true
	read := func() ([]counted, error) {
		last, firsts, err := g.kept(ctx, typ, maxPeriods+1, nil)
		if err != nil {
			return nil, err
		}
		return a.counted(last, firsts)
	}
	var newest counted
	return a.run(ctx, used, func() ([]counted, error) {
		all, err := read()
		if len(all) > 0 {
			newest = all[0]
		}
		return all, err
	}, func() ([]counted, error) {
		all, err := read()
		isNewest := func(c counted) bool { return c.Label == newest.Label }
		if err == nil && newest.Period != nil && !slices.ContainsFunc(all, isNewest) {
			err = a.failed(fmt.Errorf("the period %s ended while the used numbers were read, and its counter is not kept; "+
				"try again", calendar.FormatLabel(newest.Label)))
		}
		return all, err
	})
}

// counter reads the counter of the current period, or of an earlier period whose counter has not expired. last is the
// last sequence issued, or 0 if none was issued. first is the first sequence of the period, or 0 if Redis does not know
// it.
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
		var counters series.Counters
		if past {
			counters, err = c.History(ctx, p.Label)
		} else {
			counters, err = c.History(ctx)
		}
		refusal, refused := errors.AsType[*series.Refusal](err)
		switch current := counters.Span; {
		case err != nil && !(refused && refusal.Status == series.Lost && p.Start < current.Start):
			return 0, 0, err
		case err != nil: // p has ended in the meantime, so its counter is read as that of an earlier period
		case p.Start > current.Start:
			return 0, 0, fmt.Errorf("serial: Audit of %s in %s: the period has not begun by Redis's clock, which is in %s",
				g.subject(typ), label, calendar.FormatLabel(current.Label))
		case past != (p.Start < current.Start): // try again, because this host's clock was ahead, or p has just ended
		case !past:
			return counters.First[0], max(0, counters.Last[0]), nil
		case counters.Last[1] < 0:
			return 0, 0, fmt.Errorf("serial: Audit of %s in %s: Redis has no counter for this period: no number was "+
				"issued, or the counter has expired; WithRetention keeps counters longer", g.subject(typ), label)
		default:
			return counters.First[1], counters.Last[1], nil
		}
	}
}
