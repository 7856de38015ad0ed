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

// Audit accounts for the numbers of a type in the period that contains the given date or instant, as
// [serial.Scheme.Audit] does. It reports which numbers were taken but never used, which were used more than once, and
// which were used but never taken. The parameter used yields the numbers of the documents in any order, and may include
// those of other types and periods. The options are passed to Scheme.Audit.
//
// Audit reads the row of the period before it reads the documents' numbers, and again afterwards. [serial.Report].Last
// is the sequence from the first read. Numbers that are taken in between are ignored, even if documents have them. So q
// may be a pool, and the iterator may read through the same pool or any other connection that sees committed data. The
// iterator may also read in the transaction q.
//
// Audit writes nothing. It waits for no other transaction unless q is a MySQL transaction at SERIALIZABLE. It runs no
// query while the iterator is running, so one connection is enough. If ctx ends, Audit stops before the next number. It
// returns the errors of [Generator.Last] and of Scheme.Audit, and the error of ctx. The Report is zero if the error is
// not nil.
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

// AuditAll accounts for the numbers of a type in all periods that have a row in the table, as [serial.Scheme.AuditAll]
// does. It iterates over the documents' numbers only once. The Report of a period is the same as from
// [Generator.Audit], except for Foreign and OtherCount. AuditAll also includes periods whose numbers were printed by a
// different scheme, for which Audit returns [serial.ErrConflict].
//
// AuditAll reads the rows before it reads the documents' numbers, and again afterwards. Numbers that are taken in
// between are ignored, including those of periods that begin in between. As in Audit, q may be a pool or a transaction.
//
// AuditAll writes nothing. It waits for no other transaction unless q is a MySQL transaction at SERIALIZABLE. It runs
// no query while the iterator is running. If ctx ends, AuditAll stops before the next number. It returns the errors of
// [Generator.History] and of Scheme.AuditAll, and the error of ctx. The Reports are zero if the error is not nil.
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

// until returns an iterator that yields the same numbers and, once ctx has ended, the error of ctx. If the given
// iterator is nil, so is the result.
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

const maxPeriods = 10_000 // maximum number of periods that History accepts

// History returns the last number of each period in which numbers were taken, newest period first, for at most the
// given number of periods (1 to 10,000). It includes periods that are ahead of the database's clock. Unless
// [Generator.Raise] has skipped numbers, the count of the numbers taken in a period is the Seq of its last number,
// minus the sequences below [serial.WithStart]. The printed date of a number is unknown if the template prints a more
// exact date than the period (such as the day, although periods are months), or if the number was taken by a different
// scheme. The Date of the number is then zero, and its String returns "".
//
// History takes no number and waits for no other transaction. It reads through q as [Generator.Last] does. It uses one
// query if q has the method QueryContext of [*sql.DB], and otherwise one query for each period. It returns the
// following errors:
//
//   - [serial.ErrInvalidType]
//   - [serial.ErrConflict], if the numbers of the type have a different period length or year start
//   - an error if the argument periods is not 1 to 10,000
//   - an error if the table contains a period that does not exist in the scheme's calendar
//   - an error if q is nil or, on PostgreSQL, has a type of package bun; see [Tx]
//   - an error of the driver, for example because the table does not exist
func (g *Generator) History(ctx context.Context, q Querier, typ string, periods int) ([]serial.Number, error) {
	if _, err := g.scheme.Series(typ); err == nil && (periods < 1 || periods > maxPeriods) {
		return nil, fmt.Errorf("gapless: History of %d periods: want 1 to %d", periods, maxPeriods)
	}
	return g.lastNumbers(ctx, q, typ, periods)
}

// lastNumbers does the work of [Generator.History], but does not check periods.
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
		if calendar, _, _ := strings.Cut(r.mark, markSeparator); calendar != g.calendar {
			return nil, g.conflict(typ, r.label, calendar)
		}
		at, ok := g.firstInstant(r.label)
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

// history returns the rows of the latest periods of a series, newest first. The argument periods is the maximum number
// of rows.
func (g *Generator) history(ctx context.Context, q Querier, series string, periods int) (rows []periodRow, err error) {
	end := []byte{0xff} // greater than every label
	a := arguments{"series": []byte(series), "before": end, "limit": int64(periods)}
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

// firstInstant returns the first instant that is in the period with the given label and has a date in 1970 to 9999. It
// returns false if the scheme has no such period. Labels sort in the order of their periods, so it uses a binary
// search.
func (g *Generator) firstInstant(label string) (at time.Time, ok bool) {
	from, to := int64(-dated), int64(datedEnd+2*dated) // contains every instant that has a date in some time zone
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
