package gapless

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/dailyserial/serial"
)

// A counter is the row of a type and period as a statement left it. Its lock is held until the transaction ends.
type counter struct {
	last     int64         // sequence taken, 0 for none
	previous int64         // last before the statement
	mark     string        // calendar and print mark of the scheme that took the numbers, or the calendar of a gate
	closed   sql.NullInt64 // end of the last closed period, in Unix seconds, if this period or, of a gate, any is closed
	now      time.Time     // by the database's clock, after the lock was got
}

const (
	gatePeriod = ""  // period of a series' gate: no label is empty
	markJoint  = ":" // between calendar and print mark in the mark of a period's row
)

// take waits for the lock of a period's row and adds n to what was taken or, if nothing was, to above. If n is 0, it
// raises what was taken to above. The caller decides whether that is valid, by the earlier counter and by its clock:
// under the lock, undo can follow. If the series has another calendar or the period is closed, nothing is taken, and
// the error is serial.ErrConflict or ErrPeriodClosed.
func (g *Generator) take(ctx context.Context, tx Tx, typ, series string, s *span, above, n int64) (counter, error) {
	if err := g.checkBegun(ctx, tx); err != nil {
		return counter{}, err
	}
	// If the period has ended or has no row yet, the series' gate judges. It is locked first, if possible: then whoever
	// waits for it, because others close periods or begin the series, holds no row that those wait for.
	ended, judged := s.end <= g.now().Unix(), false
	if !ended && g.sql.update != "" {
		c := counter{mark: g.mark}
		var err error
		args := []any{n, []byte(series), []byte(s.label), []byte(g.mark), least(above, n)}
		c.now, err = g.query(ctx, tx, g.sql.update, args, &c.last)
		if !errors.Is(err, sql.ErrNoRows) {
			c.previous = c.last - n
			return c, err
		}
	}
	if ended || g.sql.update != "" {
		var err error
		if judged, err = g.judge(ctx, tx, typ, series, s, false); err != nil {
			return counter{}, err
		}
	}
	c, err := g.upsert(ctx, tx, series, s.label, g.mark, above, n)
	switch {
	case err != nil:
		return c, err
	case c.closed.Valid:
		// The row has the end of the closing that reached it. The gate has that of the latest.
		_, closed, failure := g.readGate(ctx, tx, series)
		if failure != nil && !errors.Is(failure, sql.ErrNoRows) {
			return c, failure
		}
		err = g.closedError(typ, s.label, max(c.closed.Int64, closed.Int64))
	case !judged && c.previous == 0:
		_, err = g.judge(ctx, tx, typ, series, s, true)
	}
	if refused(err) {
		if err := g.undo(ctx, tx, series, s.label); err != nil {
			return c, err
		}
	}
	return c, err
}

// least returns the sequence that take leaves at least in a row from which something was taken. Only Raise lifts such a
// row.
func least(above, n int64) int64 {
	if n > 0 {
		return 0
	}
	return above
}

// refused reports whether an error of take says that nothing was taken and the transaction can go on.
func refused(err error) bool {
	return errors.Is(err, serial.ErrConflict) || errors.Is(err, ErrPeriodClosed)
}

// checkBegun returns an error unless tx is in a transaction. It is for SQLite, which needs a statement to find out. In
// MySQL, upsert does it. PostgreSQL never ends a transaction unasked.
func (g *Generator) checkBegun(ctx context.Context, tx Tx) error {
	if g.dialect != SQLite {
		return nil
	}
	_, err := tx.ExecContext(ctx, "BEGIN") // locks nothing
	switch {
	case err == nil:
		_, err = tx.ExecContext(context.WithoutCancel(ctx), "ROLLBACK")
		return errors.Join(errEnded, err)
	case strings.Contains(err.Error(), "within a transaction"): // SQLite's own words, the same in every driver
		return nil
	}
	return err
}

// judge locks the gate of a series in share mode, and returns an error if the series has another calendar or the period
// is closed. If there is no gate, judge makes it, and who wants it too waits until tx ends. Without must, it
// does nothing and returns false if it would be in the way of others.
func (g *Generator) judge(ctx context.Context, tx Tx, typ, series string, s *span, must bool) (judged bool, err error) {
	var mark string
	var closed sql.NullInt64
	scan := func(query, period string) error {
		query, args := g.dialect.bind(query, []byte(series), []byte(period))
		return tx.QueryRowContext(ctx, query, args...).Scan(&mark, &closed)
	}
	find := true
	if g.sql.lockShared != "" {
		required := int64(0)
		if must || s.end <= g.now().Unix() {
			required = 1
		}
		err := tx.QueryRowContext(ctx, g.sql.lockShared, lockKey(series), required).Scan(&find)
		if err != nil && !errors.Is(err, sql.ErrNoRows) {
			return false, err
		}
		if !must && (err != nil || !find) {
			return false, nil
		}
	}
	if find {
		if err = scan(g.sql.gate, s.label); err != nil && !errors.Is(err, sql.ErrNoRows) {
			return false, err
		}
	}
	calendar, _, period := strings.Cut(mark, markJoint)
	switch {
	case mark == "" || period && calendar == g.scheme.Calendar():
		// There is no gate: the series is new, or somebody has deleted it.
		if find && g.sql.newGate != "" {
			query, args := g.dialect.bind(g.sql.newGate, []byte(series), []byte(gatePeriod), []byte(g.scheme.Calendar()))
			if _, err := tx.ExecContext(ctx, query, args...); err != nil {
				return false, err
			}
			if err := scan(g.sql.gate, s.label); err != nil {
				return false, err
			}
			calendar = mark
			break
		}
		c, err := g.upsert(ctx, tx, series, gatePeriod, g.scheme.Calendar(), 1, 0)
		if err != nil {
			return false, err
		}
		calendar, closed = c.mark, c.closed
	case !period && g.sql.share != "":
		if err := scan(g.sql.share, gatePeriod); err != nil {
			return false, err
		}
		calendar = mark
	}
	if calendar != g.scheme.Calendar() {
		return false, g.conflict(typ, s.label, calendar)
	}
	if closed.Valid && s.end <= closed.Int64 {
		return false, g.closedError(typ, s.label, closed.Int64)
	}
	return true, nil
}

// upsert adds to a row as take does, or inserts it. A row from which something was taken keeps its mark.
func (g *Generator) upsert(ctx context.Context, tx Tx, series, label, mark string, above, n int64) (counter, error) {
	var c counter
	var err error
	key, period, value := []byte(series), []byte(label), []byte(mark)
	if g.sql.upsert == "" {
		args := []any{key, period, value, above + n, value, n, above + n, least(above, n)}
		c.now, err = g.query(ctx, tx, g.sql.read, args, &c.last, &c.previous, &c.mark, &c.closed)
		return c, err
	}
	checked := int64(0)
	if g.savepoints.Load() {
		if err := checkSavepoint(ctx, tx); err != nil {
			return c, err
		}
		checked = 1
	}
	query, args := g.dialect.bind(g.sql.upsert,
		key, period, value, above+n, checked, value, n, above+n, least(above, n))
	if _, err := tx.ExecContext(ctx, query, args...); err != nil {
		return c, err
	}
	c.now, err = g.query(ctx, tx, g.sql.read, []any{key, period, checked}, &c.last, &c.previous, &c.mark, &c.closed)
	if checked == 1 || !errors.Is(err, sql.ErrNoRows) {
		return c, err
	}
	// Both did nothing: MariaDB is outside a transaction, or this is MySQL.
	var tells bool
	if err := tx.QueryRowContext(ctx, g.sql.tells).Scan(&tells); err != nil {
		return c, err
	}
	if tells {
		return c, errEnded
	}
	g.savepoints.Store(true)
	return g.upsert(ctx, tx, series, label, mark, above, n)
}

// checkSavepoint returns an error unless tx is in a transaction: outside, a savepoint ends with its statement.
func checkSavepoint(ctx context.Context, tx Tx) error {
	if _, err := tx.ExecContext(ctx, "SAVEPOINT serial_gapless"); err != nil {
		return err
	}
	_, err := tx.ExecContext(ctx, "RELEASE SAVEPOINT serial_gapless")
	if err != nil && noSavepoint.MatchString(err.Error()) {
		return fmt.Errorf("%w: %w", errEnded, err)
	}
	return err
}

// undo reverts what take did to the counter, whose lock is held.
func (g *Generator) undo(ctx context.Context, tx Tx, series, label string) error {
	query, args := g.dialect.bind(g.sql.undo, []byte(series), []byte(label))
	_, err := tx.ExecContext(ctx, query, args...)
	return err
}

// query runs a statement that returns dest and the database's clock, and remembers the clock's reading.
func (g *Generator) query(ctx context.Context, tx Tx, query string, args []any, dest ...any) (time.Time, error) {
	var now reading
	query, args = g.dialect.bind(query, args...)
	err := tx.QueryRowContext(ctx, query, args...).Scan(append(dest, &now)...)
	if err == nil {
		g.clock.Store(&clock{now.Time, time.Now()})
	}
	return now.Time, err
}

// Schema returns the statement with which [Generator.CreateTable] creates the table, for programs that manage their
// schema themselves. A table may have more columns if they have defaults. The types must stay: names are bytes, because
// a comparison of text may take "IS" for "is" or for "IS ". The table must be neither unlogged nor temporary, and on
// MySQL it must use InnoDB.
//
// There is a row for each type and period: series is the key prefix, a colon and the type; period is the period's
// label, such as 20211024; mark is the scheme's [serial.Scheme.Calendar], a colon and its [serial.Scheme.PrintMark];
// last is the last sequence taken, 0 if none was, and previous is the value of last before its last change; closed is
// NULL unless the period is closed. In addition, each series has a row whose period is "", whose mark is the calendar,
// and whose closed is the end of the last closed period in Unix seconds. To read the table in PostgreSQL:
//
//	SELECT convert_from(series, 'UTF8'), convert_from(period, 'UTF8'), last FROM serial_gapless WHERE period <> ''
//
// Elsewhere no conversion is needed. Never delete rows of periods in which numbers may still be taken, also by
// [Generator.NextOn], nor a series' row whose period is empty, which keeps its calendar and what is closed: a condition
// such as period < '20210101' matches that too. Without any row, a series starts over, with any calendar.
//
// In the tables of documents, compare the column of the numbers byte by byte, too. PostgreSQL and SQLite do so by
// default. MySQL and MariaDB need a binary collation, such as
//
//	number varchar(100) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL UNIQUE
//
// Their default collations do not distinguish the types IS and is, É and E, or ß and s, so the UNIQUE column refuses
// the numbers of the second type. As each refused number is free again, that type gets the same number for ever.
func (g *Generator) Schema() string { return g.sql.schema }

// CreateTable creates the table unless it exists, in PostgreSQL anywhere in search_path. Any number of processes may do
// so at once. The database's user needs the right to create it, in MySQL even if the table exists. It is an error if
// the table would not keep numbers together with documents, because it is unlogged in PostgreSQL or does not use InnoDB
// in MySQL. Every other error wraps the driver's, as for a table of that name without the columns of
// [Generator.Schema]; after it, or if ctx has ended, the table may exist or not, and CreateTable may be repeated. If
// others are in the way, it ends within 30 s plus the time of one statement.
func (g *Generator) CreateTable(ctx context.Context, db *sql.DB) error {
	const what = "create the table"
	if db == nil {
		return fmt.Errorf("gapless: %s: the database is nil", what)
	}
	end := time.Now().Add(30 * time.Second)
	for wait := time.Millisecond; ; wait = min(2*wait, 64*time.Millisecond) {
		err := g.create(ctx, db)
		if err == nil {
			break
		}
		if ctx.Err() != nil || !g.dialect.again(err) || time.Now().After(end) {
			return g.failed(ctx, what, err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(rand.N(wait)):
		}
	}
	if _, err := db.ExecContext(ctx, g.sql.probe); err != nil {
		return g.failed(ctx, what, fmt.Errorf("the table lacks a column of Schema, as one of an earlier version does: add "+
			"it, or create the table anew: %w", err))
	}
	if g.sql.flaw == "" {
		return nil
	}
	var flaw string
	if err := db.QueryRowContext(ctx, g.sql.flaw).Scan(&flaw); err != nil {
		return g.failed(ctx, what, err)
	}
	if flaw != "-" {
		return fmt.Errorf("gapless: %s: %s: numbers would not be kept as documents are", what, flaw)
	}
	return nil
}

// create creates the table if there is none.
func (g *Generator) create(ctx context.Context, db *sql.DB) error {
	if g.sql.exists != "" {
		var exists bool
		if err := db.QueryRowContext(ctx, g.sql.exists).Scan(&exists); err != nil || exists {
			return err
		}
	}
	_, err := db.ExecContext(ctx, g.sql.schema)
	return err
}
