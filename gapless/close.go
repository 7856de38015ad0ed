package gapless

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/dailyserial/serial"
)

// ErrPeriodClosed is the error of a call that requests a number of a closed period; see [Generator.ClosePeriods].
// Nothing was taken, and the transaction can continue.
var ErrPeriodClosed = errors.New("gapless: period closed")

// ErrPeriodOpen is the error of [Generator.ClosePeriods] if one of the periods has not ended by the database's clock.
// Nothing was closed, and the transaction can continue.
var ErrPeriodOpen = errors.New("gapless: period has not ended")

// ClosePeriods closes all periods of a type that end at or before a boundary. The argument before is the boundary, as a
// date or an instant at which a period begins. The periods are closed when tx is committed. In a closed period,
// [Generator.Next], [Generator.NextN], [Generator.NextOn] and [Generator.Raise] return [ErrPeriodClosed].
// [Generator.Last], [Generator.History] and [Generator.Audit] still read it. If later periods are closed already,
// nothing changes. The application has to decide who may close periods, and to store the reason in the same
// transaction.
//
// ClosePeriods waits for every transaction that has taken a number of such a period. Transactions that come later wait
// for ClosePeriods instead. Give ctx a deadline, so that they cannot wait forever. After ClosePeriods has returned, tx
// sees the documents of all those transactions, and [Generator.Audit] in tx accounts for them. After tx has been
// committed, no other transaction can take or commit a number of a closed period.
//
// Until tx ends, callers wait for it if they need the first number of a period of that type, or a number of a period
// that has ended. On SQLite, all writers wait. Callers that need a later number of a period that has not ended do not
// wait. On PostgreSQL, these waits use an advisory lock whose key is a hash of the series. If two series have the same
// hash, their transactions wait for each other, but this has no other effect.
//
// If transactions close periods of several types, let all of them use the same order, for example by name. Otherwise
// two transactions may wait for each other, until the database ends one of them because of the deadlock. You then have
// to repeat that transaction.
//
// The transaction must be at READ COMMITTED. On PostgreSQL, any other level is an error. MySQL and MariaDB do not
// report the level of a transaction. There, ClosePeriods returns an error if tx does not see the numbers that other
// transactions have committed during the wait. This check needs MySQL 8.0 or MariaDB 10.6.
//
// If ClosePeriods returns one of the following errors, it has closed nothing, and tx can continue:
//
//   - [serial.ErrInvalidType]
//   - [ErrPeriodOpen]
//   - [serial.ErrConflict], if the numbers of the type have a different period length or year start
//   - an error if the argument before is in no period; see [serial.When]
//   - an error if no period begins there; the message contains the nearest boundaries
//   - an error if the period length is [serial.Never]
//   - an error if the transaction is not at READ COMMITTED, or if the version of MySQL or MariaDB is too old
//   - an error if tx is nil or, on PostgreSQL, has a type of package bun (see [Tx]), or if another call is taking a
//     number in it
//
// If the database has ended the transaction, ClosePeriods returns an error, and nothing was closed. Every other error,
// for example after a deadlock, wraps the driver's error, and also matches the error of ctx if ctx has ended. After
// such an error, you must roll tx back, so that nothing is closed.
func (g *Generator) ClosePeriods(ctx context.Context, tx Tx, typ string, before serial.When) error {
	what := "close periods of " + typ
	series, end, err := g.boundary(typ, before, what)
	if err != nil {
		return err
	}
	leave, err := g.enter(tx)
	if err != nil {
		return err
	}
	defer leave()
	var level string
	now, err := g.query(ctx, tx, g.sql.level, nil, &level)
	if err != nil {
		return g.failed(ctx, what, err)
	}
	if level != "-" && level != "read committed" {
		return fmt.Errorf("gapless: %s at %s: the transaction's snapshot may lack the latest numbers; want READ COMMITTED",
			what, strings.ToUpper(level))
	}
	if now.Before(end) {
		return fmt.Errorf("%w: %s up to %v: by the database's clock it is %v", ErrPeriodOpen, what, g.nameBoundary(end),
			serial.At(now))
	}
	return g.changeEnd(ctx, tx, typ, series, what, end.Unix(), true)
}

// ReopenPeriods opens the closed periods of a type that end after a boundary, so that numbers can be taken from them
// again. The argument from is the boundary, as a date or an instant at which a period begins. The periods are reopened
// when tx is committed. If none of them is closed, nothing changes. Other callers wait for tx as they do after
// [Generator.ClosePeriods].
//
// ReopenPeriods returns the errors of ClosePeriods, except [ErrPeriodOpen]. On PostgreSQL, it does not check the
// isolation level.
func (g *Generator) ReopenPeriods(ctx context.Context, tx Tx, typ string, from serial.When) error {
	what := "reopen periods of " + typ
	series, end, err := g.boundary(typ, from, what)
	if err != nil {
		return err
	}
	leave, err := g.enter(tx)
	if err != nil {
		return err
	}
	defer leave()
	return g.changeEnd(ctx, tx, typ, series, what, end.Unix(), false)
}

// ClosedUntil returns the end of the last closed period of a type, in the scheme's time zone. It returns the zero time
// if no period is closed. It waits for no other transaction, and reads through q as [Generator.Last] does. It returns
// the following errors:
//
//   - [serial.ErrInvalidType]
//   - [serial.ErrConflict], if the numbers of the type have a different period length or year start
//   - an error if q is nil or, on PostgreSQL, has a type of package bun; see [Tx]
//   - an error of the driver, for example because the table does not exist
func (g *Generator) ClosedUntil(ctx context.Context, q Querier, typ string) (time.Time, error) {
	series, err := g.scheme.Series(typ)
	if err != nil {
		return time.Time{}, fmt.Errorf("gapless: %w", err)
	}
	what := "the end of the last closed period of " + typ
	q, leave, err := g.view(ctx, q, what)
	if err != nil {
		return time.Time{}, err
	}
	defer leave()
	row, err := g.readSeriesRow(ctx, q, g.sql.seriesRow, series)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return time.Time{}, nil
	case err != nil:
		return time.Time{}, g.failed(ctx, what, err)
	case row.calendar != g.calendar:
		return time.Time{}, g.conflict(typ, "", row.calendar)
	case !row.closed.Valid:
		return time.Time{}, nil
	}
	return g.local(row.closed.Int64), nil
}

// boundary returns the series of a type, and the start of the period that begins at the given date or instant. If no
// period begins there, it returns an error, whose message begins with the text what.
func (g *Generator) boundary(typ string, at serial.When, what string) (series string, start time.Time, err error) {
	series, err = g.scheme.Series(typ)
	if err != nil {
		return "", start, fmt.Errorf("gapless: %w", err)
	}
	label, start, end := g.scheme.Period(at)
	switch {
	case label == "":
		_, _, err = g.scheme.Span(at)
		return "", start, fmt.Errorf("gapless: %s: %w", what, err)
	case label == "all":
		return "", start, fmt.Errorf("gapless: %s: numbers that never start again have no periods to close or reopen", what)
	case at != serial.At(start) && at != g.firstDate(start):
		return "", start, fmt.Errorf("gapless: %s: no period begins at %v: want %s or %s", what, at,
			g.nameBoundary(start), g.nameBoundary(end))
	}
	return series, start, nil
}

// firstDate returns the first date of the period that begins at start, or the zero When if the period contains no date.
func (g *Generator) firstDate(start time.Time) serial.When {
	// Usually the first date of a period is the date of start. But if a time zone skips a date, the business day of the
	// skipped date can begin on the next date.
	for days := -1; days <= 0; days++ {
		date := serial.OnDateOf(time.Date(start.Year(), start.Month(), start.Day()+days, 0, 0, 0, 0, time.UTC))
		if _, begin, _ := g.scheme.Period(date); begin.Equal(start) {
			return date
		}
	}
	return serial.When{}
}

// nameBoundary returns the text for a boundary in messages: the date and the instant, because a caller can pass either.
func (g *Generator) nameBoundary(start time.Time) string {
	if date := g.firstDate(start); date != (serial.When{}) {
		return fmt.Sprintf("%v (%v)", date, serial.At(start))
	}
	return serial.At(start).String()
}

// changeEnd stores end as the end of the last closed period. If closes is true, it never reopens a period: if periods
// are closed up to end or later, it changes nothing. If closes is false, it never closes a period. If the periods
// cannot be closed or reopened in this transaction, changeEnd rolls back to a savepoint, so that nothing is written.
func (g *Generator) changeEnd(ctx context.Context, tx Tx, typ, series, what string, end int64, closes bool) error {
	exec := func(query string) error {
		_, err := tx.ExecContext(ctx, query)
		return err
	}
	if err := g.checkBegun(ctx, tx); err != nil {
		return g.failed(ctx, what, err)
	}
	if err := exec("SAVEPOINT serial_gapless_end"); err != nil {
		return g.failed(ctx, what, err)
	}
	result := g.tryChangeEnd(ctx, tx, typ, series, end, closes)
	if result != nil {
		if g.dialect == MySQL && rowChanged.MatchString(result.Error()) {
			result = fmt.Errorf("want READ COMMITTED: %w", result)
		}
		result = g.failed(ctx, what, result)
		if !refused(result) && !errors.Is(result, errUnchanged) {
			return result
		}
		if err := exec("ROLLBACK TO SAVEPOINT serial_gapless_end"); err != nil {
			return g.failed(ctx, what, err)
		}
	}
	if err := exec("RELEASE SAVEPOINT serial_gapless_end"); err != nil {
		return g.failed(ctx, what, err)
	}
	return result
}

// tryChangeEnd does the work of changeEnd. After an error, it may have written something.
func (g *Generator) tryChangeEnd(ctx context.Context, tx Tx, typ, series string, end int64, closes bool) error {
	if g.sql.lock != "" {
		if err := g.exec(ctx, tx, g.sql.lock, arguments{"key": lockKey(series)}); err != nil {
			return err
		}
	}
	row, err := g.lockSeriesRow(ctx, tx, series)
	if err != nil {
		return err
	}
	calendar := row.calendar
	if calendar == g.calendar && !row.closed.Valid {
		// If the series' row was deleted, this row is new. The rows of the periods still contain the calendar.
		if calendar, err = g.findCalendar(ctx, tx, series, ""); err != nil {
			return err
		}
	}
	if calendar != g.calendar {
		return g.conflict(typ, "", calendar)
	}
	label, closed := g.labelBefore(end), ""
	switch until := row.closed; {
	case closes && until.Valid && until.Int64 >= end, !closes && (!until.Valid || until.Int64 <= end):
		return nil
	case until.Valid:
		closed = g.labelBefore(until.Int64)
	}
	// The following statements are separate from the one that waited for the series' row, so at READ COMMITTED they see
	// what other transactions have committed during the wait.
	rows := arguments{"series": []byte(series), "lower": []byte(closed), "upper": []byte(label), "end": end}
	if !closes {
		rows["lower"], rows["upper"], rows["end"] = rows["upper"], rows["lower"], nil
	}
	if g.sql.setClosed != "" {
		err = g.exec(ctx, tx, g.sql.setClosed, rows)
	} else {
		err = g.setClosedByKey(ctx, tx, rows)
	}
	if err != nil {
		return err
	}
	change := arguments{"series": []byte(series), "end": end}
	if label == "" {
		change["end"] = nil
	}
	return g.exec(ctx, tx, g.sql.setEnd, change)
}

func (g *Generator) closedError(typ, label string, end int64) error {
	return fmt.Errorf("%w: %s in period %s: all periods that end by %s are closed; use a later period",
		ErrPeriodClosed, typ, label, g.nameBoundary(g.local(end)))
}
