package gapless

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"
)

// ErrPeriodClosed is the error for a number of a period that [Generator.ClosePeriods] has closed. Nothing was taken, and the
// transaction can go on.
var ErrPeriodClosed = errors.New("gapless: period closed")

// ClosePeriods closes the periods of a type that end at or before the instant before, if tx is committed. In a closed period,
// [Generator.Next], [Generator.NextN], [Generator.NextOn] and [Generator.Raise] return [ErrPeriodClosed]; [Generator.Last],
// [Generator.History] and [Generator.Audit] read it as always. If later periods are closed already, nothing changes. Who may close
// periods, and why they did, is for the application to record, in the same transaction.
//
// ClosePeriods waits until every transaction that has taken a number of such a period has ended. Once tx is committed, no other
// transaction commits a number of a closed period, except those that it had taken before. Until tx ends, others who want the first
// number of a period of that type, or a number of a period that has ended, wait for it; on SQLite, all writers do. Those who want
// numbers of a period that has begun and not ended do not.
//
// PostgreSQL needs READ COMMITTED. On MySQL and MariaDB it is advised: at REPEATABLE READ and above, deadlocks are likely, and the
// first numbers of other periods may wait.
//
// Errors: [serial.ErrInvalidType]; [serial.ErrConflict] if the type's numbers count by another period or year start; an error for a
// before that is not in 1970 to 9999 in the scheme's time zone; one if by the database's clock the last of the periods has not ended
// yet; one for a scheme with [serial.Never]; in PostgreSQL, one for a transaction at REPEATABLE READ or above; one for a tx that is
// nil, that [Tx] says is refused, or in which another call is taking a number. After these, nothing was closed and tx can go on. If
// the database has ended the transaction, that is an error, and nothing was closed. Every other error wraps the driver's, such as for
// a deadlock, and also matches the error of ctx if that has ended. Then tx must be rolled back, and nothing was closed.
func (g *Generator) ClosePeriods(ctx context.Context, tx Tx, typ string, before time.Time) error {
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
	if level == "repeatable read" || level == "serializable" {
		return fmt.Errorf("gapless: %s at %s: its snapshot may miss numbers taken since; allowed is READ COMMITTED", what,
			strings.ToUpper(level))
	}
	if now.Before(end) {
		return fmt.Errorf("gapless: %s up to %s: the last of them has not ended by the database's clock, which says %s; "+
			"allowed are periods that have ended",
			what, end.Format(time.RFC3339), now.In(end.Location()).Format(time.RFC3339))
	}
	return g.moveEnd(ctx, tx, typ, series, what, end.Unix(), true)
}

// ReopenPeriods opens the closed periods of a type that end after the instant from, if tx is committed: numbers can be taken from
// them again. If none of them is closed, nothing changes. Others wait for tx as for [Generator.ClosePeriods].
//
// Errors are those of ClosePeriods, except those for periods that have not ended and for the level of isolation.
func (g *Generator) ReopenPeriods(ctx context.Context, tx Tx, typ string, from time.Time) error {
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

// ClosedUntil returns the end of the last closed period of a type, in the scheme's time zone, or the zero time if none is closed. It
// waits for nobody, and reads through q as [Generator.Last] does.
//
// Errors: [serial.ErrInvalidType]; [serial.ErrConflict] if the type's numbers count by another period or year start; one for a q that
// is nil or bun's on PostgreSQL; the driver's own, as for a missing table.
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
	var calendar string
	var closed sql.NullInt64
	query, args := g.dialect.bind(g.sql.closed, []byte(series), []byte(gatePeriod))
	err = q.QueryRowContext(ctx, query, args...).Scan(&calendar, &closed)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return time.Time{}, nil
	case err != nil:
		return time.Time{}, g.failed(ctx, what, err)
	case calendar != g.scheme.Calendar():
		return time.Time{}, g.conflict(typ, "", calendar)
	case !closed.Valid:
		return time.Time{}, nil
	}
	return g.local(closed.Int64), nil
}

// boundary returns the series of a type, and the last end of a period at or before at.
func (g *Generator) boundary(typ string, at time.Time, what string) (series string, end time.Time, err error) {
	series, err = g.scheme.Series(typ)
	if err != nil {
		return "", time.Time{}, fmt.Errorf("gapless: %w", err)
	}
	label, start, _ := g.scheme.Period(at)
	switch label {
	case "":
		return "", time.Time{}, fmt.Errorf("gapless: %s: %v: allowed are 1970 to 9999", what, at)
	case "all":
		return "", time.Time{}, fmt.Errorf("gapless: %s: numbers that never start again have no periods to close or reopen",
			what)
	}
	return series, start, nil
}

// moveEnd makes end the end of the last closed period, if that closes more periods or, if not closes, fewer.
func (g *Generator) moveEnd(ctx context.Context, tx Tx, typ, series, what string, end int64, closes bool) error {
	if err := g.checkBegun(ctx, tx); err != nil {
		return g.failed(ctx, what, err)
	}
	// If somebody has deleted the gate, its calendar is that of the periods.
	key, gatePeriod := []byte(series), []byte(gatePeriod)
	var mark string
	query, args := g.dialect.bind(g.sql.other, key, gatePeriod)
	err := tx.QueryRowContext(ctx, query, args...).Scan(&mark)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return g.failed(ctx, what, err)
	}
	calendar := g.scheme.Calendar()
	if marked, _, _ := strings.Cut(mark, markJoint); mark != "" && marked != calendar {
		return g.conflict(typ, "", marked)
	}
	gate, err := g.upsert(ctx, tx, series, string(gatePeriod), calendar, 1, 0) // locks it
	switch closed := gate.closed; {
	case err != nil:
		return g.failed(ctx, what, err)
	case gate.mark != calendar:
		return g.conflict(typ, "", gate.mark)
	case closes && closed.Valid && closed.Int64 >= end, !closes && (!closed.Valid || closed.Int64 <= end):
		return nil
	}
	label, upper := g.labelBefore(end), g.labelBefore(max(end, gate.closed.Int64))
	value := any(end)
	if label == "" {
		value = nil
	}
	// A statement of its own, so that it sees what was committed while this one waited for the gate.
	query, args = g.dialect.bind(g.sql.close, []byte(label), value, key, []byte(upper), []byte(label))
	if _, err := tx.ExecContext(ctx, query, args...); err != nil {
		return g.failed(ctx, what, err)
	}
	return nil
}

// labelBefore returns the label of the period that ends at a Unix time, "" if that is the end of none.
func (g *Generator) labelBefore(end int64) string {
	label, _, _ := g.scheme.Period(time.Unix(end-1, 0))
	return label
}

// local returns the end of a period in the scheme's time zone.
func (g *Generator) local(end int64) time.Time {
	_, _, zoned := g.scheme.Period(time.Unix(end-1, 0))
	return time.Unix(end, 0).In(zoned.Location())
}

func (g *Generator) closedError(typ, label string, end int64) error {
	return fmt.Errorf("%w: %s in period %s: all periods that end by %s are closed; allowed are later ones",
		ErrPeriodClosed, typ, label, g.local(end).Format(time.RFC3339))
}
