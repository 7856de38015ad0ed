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
