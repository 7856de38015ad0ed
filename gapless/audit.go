package gapless

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"iter"
	"math"
	"strings"
	"time"

	"github.com/dailyserial/serial"
)

// Audit accounts for the numbers of a type in the period that at lies in, as [serial.Scheme.Audit] does: it tells which
// numbers were taken but never used, used twice, or used but never taken. used yields the numbers that the documents
// have, in any order; it may include those of other types and periods. opts are passed on.
//
// The period's row is read before used, which gives the Report's Last, and again afterwards. Numbers taken between the
// two readings are ignored, whether or not they are among the used numbers. So q may be a pool, and used may read
// through it or through something else, as long as it sees what is committed. In a transaction, q and used see the same
// snapshot if both read there.
//
// Audit writes nothing, and waits for nobody, except on MySQL in a transaction at SERIALIZABLE. No query of Audit runs
// while used is read, so that one connection suffices. If ctx ends, Audit ends before the next number. Errors are those
// of [Generator.Last] and of Scheme.Audit, and ctx's. With an error, the Report is zero.
func (g *Generator) Audit(ctx context.Context, q Querier, typ string, at serial.When, used iter.Seq2[string, error],
	opts ...serial.AuditOption) (serial.Report, error) {
	read := func() (int64, error) {
		n, err := g.Last(ctx, q, typ, at)
		return n.Seq, err
	}
	last, err := read()
	if err != nil {
		return serial.Report{}, err
	}
	opts = append([]serial.AuditOption{serial.WithLastAfter(read)}, opts...)
	report, err := g.scheme.Audit(typ, at, last, until(ctx, used), opts...)
	if err != nil {
		return serial.Report{}, fmt.Errorf("gapless: %w", err)
	}
	return report, nil
}

// AuditAll accounts for the numbers of a type in all periods of which the table has a row, from one reading of used, as
// [serial.Scheme.AuditAll] does. What it returns for a period is what [Generator.Audit] returns for it, except for
// Foreign and OtherCount; it also accounts for a period whose numbers were printed in another way, for which Audit
// returns [serial.ErrConflict].
//
// The rows are read before used, and again afterwards; see Audit for what that means in a pool and in a transaction.
// Numbers that are taken in between are ignored, also in a period that has begun in between.
//
// AuditAll writes nothing, and waits for nobody, except on MySQL in a transaction at SERIALIZABLE. No query of AuditAll
// runs while used is read. If ctx ends, it ends before the next number. Errors are those of [Generator.History] and of
// Scheme.AuditAll, and ctx's. With an error, the Reports are zero.
func (g *Generator) AuditAll(ctx context.Context, q Querier, typ string, used iter.Seq2[string, error],
	opts ...serial.AuditOption) (serial.Reports, error) {
	read := func() ([]serial.Number, error) { return g.lastNumbers(ctx, q, typ, math.MaxInt32) }
	last, err := read()
	if err != nil {
		return serial.Reports{}, err
	}
	opts = append([]serial.AuditOption{serial.WithHistoryAfter(read)}, opts...)
	reports, err := g.scheme.AuditAll(typ, last, until(ctx, used), opts...)
	if err != nil {
		return serial.Reports{}, fmt.Errorf("gapless: %w", err)
	}
	return reports, nil
}

// until yields numbers until ctx ends. It returns nil for nil.
func until(ctx context.Context, numbers iter.Seq2[string, error]) iter.Seq2[string, error] {
	if numbers == nil {
		return nil
	}
	return func(yield func(string, error) bool) {
		for number, err := range numbers {
			if !yield(number, cmp.Or(err, ctx.Err())) {
				return
			}
		}
	}
}

const mostPeriods = 10_000 // of a History

// History returns the last number taken in each of the latest periods of which numbers were taken, newest first, up to
// so many periods: 1 to 10,000. Periods that are ahead of the database's clock count, too. The Seq of a number tells
// how many were taken, counted from [serial.WithStart], if [Generator.Raise] has skipped none. If the printed date is
// not known, because the template prints more of the date than the period, or the scheme was another one then, Date is
// zero, and String returns "".
//
// It takes nothing, waits for nobody, and reads through q as [Generator.Last] does: with one query, or with one for
// each period if q does not have the QueryContext of a [*sql.DB]. Errors: [serial.ErrInvalidType]; [serial.ErrConflict]
// if the type's numbers count by another period or year start; one for any other number of periods; one for a row whose
// period the scheme does not have; one for a q that is nil or bun's on PostgreSQL; the driver's own, as for a missing
// table.
func (g *Generator) History(ctx context.Context, q Querier, typ string, periods int) ([]serial.Number, error) {
	if _, err := g.scheme.Series(typ); err == nil && (periods < 1 || periods > mostPeriods) {
		return nil, fmt.Errorf("gapless: History of %d periods: want 1 to %d", periods, mostPeriods)
	}
	return g.lastNumbers(ctx, q, typ, periods)
}

// lastNumbers is [Generator.History] for any number of periods.
func (g *Generator) lastNumbers(ctx context.Context, q Querier, typ string, periods int) ([]serial.Number, error) {
	series, err := g.scheme.Series(typ)
	if err != nil {
		return nil, fmt.Errorf("gapless: %w", err)
	}
	what := "the history of " + typ
	q, leave, err := g.view(ctx, q, what)
	if err != nil {
		return nil, err
	}
	defer leave()
	rows, err := g.history(ctx, q, series, periods)
	if err != nil {
		return nil, g.failed(ctx, what, err)
	}
	var numbers []serial.Number
	for _, r := range rows {
		if calendar, _, _ := strings.Cut(r.mark, markJoint); calendar != g.calendar {
			return nil, g.conflict(typ, r.label, calendar)
		}
		at, ok := g.instantOf(r.label)
		if !ok {
			return nil, fmt.Errorf("gapless: %s: the table contains period %q, which does not exist in the scheme's calendar",
				what, r.label)
		}
		s := g.period(typ, serial.At(at))
		s.whole = s.whole && r.mark == g.mark
		numbers = append(numbers, s.lastNumber(typ, r.last))
	}
	return numbers, nil
}

// A periodRow is the row of a period from which numbers were taken.
type periodRow struct {
	label, mark string
	last        int64
}

// history returns the rows of a series' latest periods, newest first, up to so many.
func (g *Generator) history(ctx context.Context, q Querier, series string, periods int) (rows []periodRow, err error) {
	a := arguments{"series": []byte(series), "before": []byte{0xff}, "limit": int64(periods)} // greater than all labels
	several, ok := q.(interface {
		QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	})
	if !ok {
		for len(rows) < periods {
			var r periodRow
			a["limit"] = int64(1)
			err := g.scan(ctx, q, g.sql.history, a, &r.label, &r.mark, &r.last)
			if errors.Is(err, sql.ErrNoRows) {
				break
			}
			if err != nil {
				return nil, err
			}
			rows, a["before"] = append(rows, r), []byte(r.label)
		}
		return rows, nil
	}
	text, values := g.dialect.bind(g.sql.history, a)
	found, err := several.QueryContext(ctx, text, values...)
	if err != nil {
		return nil, err
	}
	defer func() { _ = found.Close() }()
	for found.Next() {
		var r periodRow
		if err := found.Scan(&r.label, &r.mark, &r.last); err != nil {
			return nil, err
		}
		rows = append(rows, r)
	}
	return rows, found.Err()
}

// instantOf finds the first dated instant of the period with a label, by halves: labels sort as their periods do.
func (g *Generator) instantOf(label string) (at time.Time, ok bool) {
	from, to := int64(-dated), int64(datedEnd+2*dated) // wherever the scheme's time zone is
	for from < to {
		middle := from + (to-from)/2
		if found, _, _ := g.scheme.Period(serial.At(time.Unix(middle, 0))); found >= label || found == "" && middle > dated {
			to = middle
		} else {
			from = middle + 1
		}
	}
	at = time.Unix(from, 0)
	found, _, _ := g.scheme.Period(serial.At(at))
	return at, found == label
}
