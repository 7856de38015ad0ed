package gapless

import (
	"context"
	"fmt"
	"time"

	"github.com/dailyserial/serial"
)

// A span is a time within one period in which the same date is printed.
type span struct {
	number   serial.Number // of that date; its type and sequence mean nothing
	label    string        // of the period
	from, to int64         // Unix seconds
	end      int64         // end of the period, in Unix seconds
	whole    bool          // it is the whole period
	date     int64         // with WithChronology, the business date that the number is to have; else 0
}

// holds reports whether t is in s, and has its business date.
func (g *Generator) holds(s *span, t time.Time) bool {
	return s.from <= t.Unix() && t.Unix() < s.to && s.date == g.dateOf(serial.At(t))
}

// like reports whether a number of o may be taken as one of s: the row and the date are the same.
func (s *span) like(o *span) bool { return s.label == o.label && s.date == o.date }

// Whatever the zone, these instants have dates in 1970 to 9999.
const (
	dated    = 4 * 24 * 3600
	datedEnd = 253_402_300_800 - 4*24*3600
)

// begin is newSpan for date or, if that is nil, spanAt for the time now by the database's clock.
func (g *Generator) begin(ctx context.Context, tx Tx, typ string, date *serial.When, what string) (*span, error) {
	if date != nil {
		return g.newSpan(typ, *date)
	}
	if c := g.clock.Load(); c != nil {
		if s, err := g.spanAt(typ, c.now()); err == nil {
			return s, nil
		} // the clock was wrong when last read
	}
	now, err := g.query(ctx, tx, g.sql.ask, nil)
	if err != nil {
		return nil, g.failed(ctx, what, err)
	}
	return g.spanAt(typ, now)
}

// spanAt returns a span that contains at and in which a number of typ can be printed, or an error if there is none. The
// span is cut off at dated and datedEnd, unless at lies beyond.
func (g *Generator) spanAt(typ string, at time.Time) (*span, error) {
	if s := g.span.Load(); s != nil && g.holds(s, at) {
		return s, nil
	}
	s, err := g.newSpan(typ, serial.At(at))
	if err == nil {
		g.span.Store(s)
	}
	return s, err
}

// newSpan is spanAt for a date or an instant, without a cache.
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
		end: end.Unix(), whole: from.Equal(start) && to.Equal(end), date: g.dateOf(at)}, nil
}

// periodOf returns the period of at, for callers who print no number: unlike newSpan, it fails only if at names no
// period, or one of which no date can be printed.
func (g *Generator) periodOf(typ string, at serial.When) (*span, error) {
	nothing := func(func(string, error) bool) {}
	if _, err := g.scheme.Audit(typ, at, 0, nothing); err != nil { // an audit needs no number either
		return nil, fmt.Errorf("gapless: %w", err)
	}
	return g.period(typ, at), nil
}

// period returns the period of at. If all its numbers print the same date, it has that date, as any instant of the
// period shows. It takes one with a date in 1970 to 9999, which the first one may not have.
func (g *Generator) period(typ string, at serial.When) *span {
	label, start, end := g.scheme.Period(at)
	s := &span{number: serial.Number{Start: start}, label: label, from: start.Unix(), to: end.Unix(), end: end.Unix()}
	inside := time.Unix(min(max(s.from, dated), s.to-1), 0)
	if printed, err := g.newSpan(typ, serial.At(inside)); err == nil && printed.whole {
		s.number, s.whole = printed.number, true
	}
	return s
}

// labelBefore returns the label of the period that ends at a Unix time, "" if that is the end of none.
func (g *Generator) labelBefore(end int64) string {
	label, _, _ := g.scheme.Period(serial.At(time.Unix(end-1, 0)))
	return label
}

// local returns the end of a period in the scheme's time zone.
func (g *Generator) local(end int64) time.Time {
	_, _, zoned := g.scheme.Period(serial.At(time.Unix(end-1, 0)))
	return time.Unix(end, 0).In(zoned.Location())
}
