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

// ErrPeriodClosed is the error for a number of a period that [Generator.ClosePeriods] has closed. Nothing was taken,
// and the transaction can go on.
var ErrPeriodClosed = errors.New("gapless: period closed")

// ErrPeriodOpen is the error of [Generator.ClosePeriods] for a period that has not ended by the database's clock.
// Nothing was closed, and the transaction can go on.
var ErrPeriodOpen = errors.New("gapless: period has not ended")

// ClosePeriods closes the periods of a type that end at or before the date or instant before, if tx is committed. In a
// closed period, [Generator.Next], [Generator.NextN], [Generator.NextOn] and [Generator.Raise] return
// [ErrPeriodClosed]; [Generator.Last], [Generator.History] and [Generator.Audit] read it as always. A period must begin
// at before. If later periods are closed already, nothing changes. Who may close periods, and why they did, is for the
// application to record, in the same transaction.
//
// ClosePeriods waits until every transaction that has taken a number of such a period has ended, and for no others:
// those that come later wait behind it. So give ctx a deadline. Once ClosePeriods has returned, tx sees the documents
// of all those transactions, and [Generator.Audit] in tx accounts for them. Once tx is committed, no other transaction
// commits a number of a closed period, except those that it had taken before. Until tx ends, others who want the first
// number of a period of that type, or a number of a period that has ended, wait for it; on SQLite, all writers do.
// Those who want numbers of a period that has begun and not ended do not. PostgreSQL has them wait for an advisory lock
// whose key is a hash of the series. Series with equal hashes wait for each other, and nothing else happens to them.
//
// To close several types in one transaction, close them in one order everywhere, such as by name. Otherwise two
// transactions may wait for each other until the database ends one of them as a deadlock, which is to be repeated.
//
// The transaction must be at READ COMMITTED. In PostgreSQL, any other level is an error. MySQL and MariaDB do not say
// at which level a transaction is: there it is an error if tx does not see what ClosePeriods has waited for. That check
// needs MySQL 8.0 or MariaDB 10.6.
//
// Errors: [serial.ErrInvalidType]; [ErrPeriodOpen]; [serial.ErrConflict] if the type's numbers count by another period
// or year start; an error for a before that names no period, see [serial.When], or at which no period begins, which
// names the boundaries before and after it; one for a scheme with [serial.Never]; one for a transaction that is not at
// READ COMMITTED; one for MySQL or MariaDB of an earlier version; one for a tx that is nil, that [Tx] says is refused,
// or in which another call is taking a number. After these, nothing was closed and tx can go on. If the database has
// ended the transaction, that is an error, and nothing was closed. Every other error wraps the driver's, such as for a
// deadlock, and also matches the error of ctx if that has ended. Then tx must be rolled back, and nothing was closed.
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
		return fmt.Errorf("gapless: %s at %s: its snapshot may miss numbers taken since; want READ COMMITTED", what,
			strings.ToUpper(level))
	}
	if now.Before(end) {
		return fmt.Errorf("%w: %s up to %v: by the database's clock it is %v", ErrPeriodOpen, what, g.nameBoundary(end),
			serial.At(now))
	}
	return g.moveEnd(ctx, tx, typ, series, what, end.Unix(), true)
}

// ReopenPeriods opens the closed periods of a type that end after from, if tx is committed: numbers can be
// taken from them again. A period must begin at from. If none of them is closed, nothing changes. Others wait for tx as
// for [Generator.ClosePeriods].
//
// Errors are those of ClosePeriods, except [ErrPeriodOpen] and those for the level of isolation and for earlier
// versions.
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
	return g.moveEnd(ctx, tx, typ, series, what, end.Unix(), false)
}

// ClosedUntil returns the end of the last closed period of a type, in the scheme's time zone, or the zero time if none
// is closed. It waits for nobody, and reads through q as [Generator.Last] does.
//
// Errors: [serial.ErrInvalidType]; [serial.ErrConflict] if the type's numbers count by another period or year start;
// one for a q that is nil or bun's on PostgreSQL; the driver's own, as for a missing table.
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
	gate, err := g.readGate(ctx, q, g.sql.gate, series)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return time.Time{}, nil
	case err != nil:
		return time.Time{}, g.failed(ctx, what, err)
	case gate.calendar != g.calendar:
		return time.Time{}, g.conflict(typ, "", gate.calendar)
	case !gate.closed.Valid:
		return time.Time{}, nil
	}
	return g.local(gate.closed.Int64), nil
}

// boundary returns the series of a type and the instant that at names, or an error unless a period begins there.
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

// firstDate returns the first date of the period that begins at start, or the zero When if no date names that period.
func (g *Generator) firstDate(start time.Time) serial.When {
	// Clocks that skip a date can make its business day begin on the next one.
	for days := -1; days <= 0; days++ {
		date := serial.OnDateOf(time.Date(start.Year(), start.Month(), start.Day()+days, 0, 0, 0, 0, time.UTC))
		if _, begin, _ := g.scheme.Period(date); begin.Equal(start) {
			return date
		}
	}
	return serial.When{}
}

// nameBoundary returns the date and the instant at which a period begins: either can be passed in.
func (g *Generator) nameBoundary(start time.Time) string {
	if date := g.firstDate(start); date != (serial.When{}) {
		return fmt.Sprintf("%v (%v)", date, serial.At(start))
	}
	return serial.At(start).String()
}

// moveEnd makes end the end of the last closed period, if that closes more periods or, if not closes, fewer. If it
// refuses to, it writes nothing.
func (g *Generator) moveEnd(ctx context.Context, tx Tx, typ, series, what string, end int64, closes bool) error {
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
	result := g.tryMoveEnd(ctx, tx, typ, series, end, closes)
	if result != nil {
		if g.dialect == MySQL && recordChanged.MatchString(result.Error()) {
			result = fmt.Errorf("want READ COMMITTED: %w", result)
		}
		result = g.failed(ctx, what, result)
		if !refused(result) && !errors.Is(result, errUnmoved) {
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

func (g *Generator) tryMoveEnd(ctx context.Context, tx Tx, typ, series string, end int64, closes bool) error {
	if g.sql.lock != "" {
		if err := g.exec(ctx, tx, g.sql.lock, arguments{"key": lockKey(series)}); err != nil {
			return err
		}
	}
	gate, err := g.lockGate(ctx, tx, series)
	if err != nil {
		return err
	}
	calendar := gate.calendar
	if calendar == g.calendar && !gate.closed.Valid {
		// The gate may be new because somebody has deleted the old one.
		if calendar, err = g.calendarOfRows(ctx, tx, series, ""); err != nil {
			return err
		}
	}
	if calendar != g.calendar {
		return g.conflict(typ, "", calendar)
	}
	label, closed := g.labelBefore(end), ""
	switch until := gate.closed; {
	case closes && until.Valid && until.Int64 >= end, !closes && (!until.Valid || until.Int64 <= end):
		return nil
	case until.Valid:
		closed = g.labelBefore(until.Int64)
	}
	// These statements are not part of the one that waited for the gate, so they see what was committed meanwhile.
	rows := arguments{"series": []byte(series), "lower": []byte(closed), "upper": []byte(label), "end": end}
	if !closes {
		rows["lower"], rows["upper"], rows["end"] = rows["upper"], rows["lower"], nil
	}
	if g.sql.mark != "" {
		err = g.exec(ctx, tx, g.sql.mark, rows)
	} else {
		err = g.markByKey(ctx, tx, rows)
	}
	if err != nil {
		return err
	}
	moved := arguments{"series": []byte(series), "end": end}
	if label == "" {
		moved["end"] = nil
	}
	return g.exec(ctx, tx, g.sql.setEnd, moved)
}

func (g *Generator) closedError(typ, label string, end int64) error {
	return fmt.Errorf("%w: %s in period %s: all periods that end by %s are closed; use a later one",
		ErrPeriodClosed, typ, label, g.nameBoundary(g.local(end)))
}
