package gapless

import (
	"context"
	"fmt"
	"time"

	"github.com/dailyserial/serial"
)

// A span is the part of a period in which the same date is printed.
type span struct {
	number   serial.Number // any number with that date; its type and sequence are not used
	label    string        // label of the period
	from, to int64         // beginning and end (exclusive) of the span, in Unix seconds
	end      int64         // end of the period, in Unix seconds
	whole    bool          // whether the span is the whole period
	date     int64         // business date of the number, or 0 if it is not checked
}

// contains reports whether t is in s. With WithChronology, t must also have the business date of s.
func (g *Generator) contains(s *span, t time.Time) bool {
	return s.from <= t.Unix() && t.Unix() < s.to && s.date == g.businessDate(serial.At(t))
}

// like reports whether a number that was taken for the span s may be used for the span o. This requires the same period
// and business date.
func (s *span) like(o *span) bool { return s.label == o.label && s.date == o.date }

// dated and datedEnd are Unix times. In every time zone, all instants between them have a date in 1970 to 9999.
const (
	dated    = 4 * 24 * 3600
	datedEnd = 253_402_300_800 - 4*24*3600
)

// findSpan returns the span that contains the given date. If the date is nil, it returns the span that contains the
// current time of the database's clock.
func (g *Generator) findSpan(ctx context.Context, tx Tx, typ string, date *serial.When, what string) (*span, error) {
	if date != nil {
		return g.newSpan(typ, *date)
	}
	if c := g.clock.Load(); c != nil {
		if s, err := g.spanAt(typ, c.now()); err == nil {
			return s, nil
		} // no number can be printed for this time, so the clock may have been wrong: read it again
	}
	now, err := g.query(ctx, tx, g.sql.ask, nil)
	if err != nil {
		return nil, g.failed(ctx, what, err)
	}
	return g.spanAt(typ, now)
}

// spanAt returns the span that contains an instant, from the cache if possible. It returns an error if no number of typ
// can be printed for the instant. The span is cut at dated and datedEnd, so it does not contain an instant outside
// these limits.
func (g *Generator) spanAt(typ string, at time.Time) (*span, error) {
	if s := g.span.Load(); s != nil && g.contains(s, at) {
		return s, nil
	}
	s, err := g.newSpan(typ, serial.At(at))
	if err == nil {
		g.span.Store(s)
	}
	return s, err
}

// newSpan does what spanAt does, for a date or an instant, and without the cache.
func (g *Generator) newSpan(typ string, at serial.When) (*span, error) {
	number, err := g.scheme.Number(typ, at, 1)
	if err != nil {
		return nil, fmt.Errorf("gapless: %w", err)
	}
	from, to, err := g.scheme.Span(at)
	if err != nil {
		return nil, fmt.Errorf("gapless: %w", err)
	}
	label, start, end := g.scheme.Period(at)
	return &span{number: number, label: label, from: max(from.Unix(), dated), to: min(to.Unix(), datedEnd),
		end: end.Unix(), whole: from.Equal(start) && to.Equal(end), date: g.businessDate(at)}, nil
}

// findPeriod returns the whole period that contains a date or an instant, as a span. It is for callers that print no
// number, so it fails in fewer cases than newSpan: only if the argument is in no period, or if the template can print
// no date of the period.
func (g *Generator) findPeriod(typ string, at serial.When) (*span, error) {
	nothing := func(func(string, error) bool) {}
	if _, err := g.scheme.Audit(typ, at, 0, nothing); err != nil { // Audit makes the same checks
		return nil, fmt.Errorf("gapless: %w", err)
	}
	return g.period(typ, at), nil
}

// period returns the whole period that contains a date or an instant, as a span. If all numbers of the period print the
// same date, the span has this date. The date is computed from the first instant of the period that is not before
// dated, because earlier instants may have no date in 1970 to 9999.
func (g *Generator) period(typ string, at serial.When) *span {
	label, start, end := g.scheme.Period(at)
	s := &span{number: serial.Number{Start: start}, label: label, from: start.Unix(), to: end.Unix(), end: end.Unix()}
	inside := time.Unix(min(max(s.from, dated), s.to-1), 0)
	if printed, err := g.newSpan(typ, serial.At(inside)); err == nil && printed.whole {
		s.number, s.whole = printed.number, true
	}
	return s
}

// labelBefore returns the label of the period that ends at the given Unix time, or "" if there is no period before this
// time.
func (g *Generator) labelBefore(end int64) string {
	label, _, _ := g.scheme.Period(serial.At(time.Unix(end-1, 0)))
	return label
}

// local returns the end of a period, which is given in Unix seconds, as a time in the scheme's time zone.
func (g *Generator) local(end int64) time.Time {
	_, _, zoned := g.scheme.Period(serial.At(time.Unix(end-1, 0)))
	return time.Unix(end, 0).In(zoned.Location())
}
