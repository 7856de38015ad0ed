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

// A counter is the row of a type and period after a statement has changed it. The row stays locked until the
// transaction ends.
type counter struct {
	last     int64         // last sequence taken, or 0 if none was taken
	previous int64         // value of last before the statement
	mark     string        // calendar and print mark of the scheme that took the numbers
	dated    sql.NullInt64 // date of the previous number, if it has one; not read for a span without a date
	closed   sql.NullInt64 // end of the last closed period when this period was closed; NULL if it is not closed
	now      time.Time     // time of the database's clock
	waited   time.Duration // maximum time between the field now and the acquisition of the lock
}

const markSeparator = ":" // separator between calendar and print mark

// row returns the arguments that identify the row of a period and the row of its series.
func (g *Generator) row(series, label string) arguments {
	return arguments{"series": []byte(series), "period": []byte(label), "mark": []byte(g.mark),
		"calendar": []byte(g.calendar)}
}

// take waits for the lock of a period's row, and adds n to its last sequence. If no number was taken from the row, the
// new last sequence is above+n. If n is 0, take instead raises the last sequence to above, unless it is larger.
// Afterwards, the caller checks whether the new sequences are allowed. If they are not, the caller calls undo, which is
// possible because the transaction still has the lock. If the series has a different calendar or the period is closed,
// take takes nothing and returns serial.ErrConflict or ErrPeriodClosed.
func (g *Generator) take(ctx context.Context, tx Tx, typ, series string, s *span, above, n int64) (counter, error) {
	if err := g.checkBegun(ctx, tx); err != nil {
		return counter{}, err
	}
	a := g.row(series, s.label)
	a["n"], a["first"], a["minimum"] = n, above+n, minimum(above, n)
	if s.date != 0 {
		a["dated"] = s.date
	}
	// If the period has ended or has no row yet, the series' row must be checked. If possible, it is locked before the
	// period's row. In the opposite order, this transaction could have the period's row and wait for the series' row,
	// while another transaction, which closes periods or begins the series, has the series' row and waits for the
	// period's row.
	ended, seriesChecked := s.end <= g.now().Unix(), false
	if !ended && g.sql.update != "" {
		c := counter{mark: g.mark}
		var err error
		c.now, err = g.query(ctx, tx, g.statementsFor(s).update, a, c.into(s, &c.last)...)
		if !errors.Is(err, sql.ErrNoRows) {
			c.previous = c.last - n
			return c, err
		}
	}
	if ended || g.sql.update != "" {
		var err error
		if seriesChecked, err = g.checkSeries(ctx, tx, typ, series, s, false); err != nil {
			return counter{}, err
		}
	}
	var c counter
	var err error
	u := g.statementsFor(s).upsert
	c.now, c.waited, err = g.upsert(ctx, tx, u, a, c.into(s, &c.last, &c.previous, &c.mark, &c.closed)...)
	switch {
	case err != nil:
		return c, err
	case c.closed.Valid:
		// The period's row contains the end as it was when this period was closed. Later periods may have been closed since
		// then, so the current end is in the series' row.
		row, failure := g.readSeriesRow(ctx, tx, g.sql.seriesRow, series)
		if failure != nil && !errors.Is(failure, sql.ErrNoRows) {
			return c, failure
		}
		err = g.closedError(typ, s.label, max(c.closed.Int64, row.closed.Int64))
	case !seriesChecked && c.previous == 0:
		_, err = g.checkSeries(ctx, tx, typ, series, s, true)
	}
	if refused(err) {
		if err := g.undo(ctx, tx, series, s); err != nil {
			return c, err
		}
	}
	return c, err
}

// minimum returns the smallest value that the last sequence may have after take, for a row from which numbers were
// taken. Only a call that takes no numbers (Raise) needs a minimum.
func minimum(above, n int64) int64 {
	if n > 0 {
		return 0
	}
	return above
}

// refused reports whether err is one of the errors that take itself returns. After these, nothing was taken and the
// transaction can continue.
func refused(err error) bool {
	return errors.Is(err, serial.ErrConflict) || errors.Is(err, ErrPeriodClosed)
}

// undo reverts the change that take has made to the row. The transaction must still have the row's lock.
func (g *Generator) undo(ctx context.Context, tx Tx, series string, s *span) error {
	return g.exec(ctx, tx, g.statementsFor(s).undo, g.row(series, s.label))
}

// upsert runs u, and scans all columns in front of the clock into dest. It returns the time of the clock as now. The
// statement got the row's lock at this time plus at most the duration waited. upsert returns an error if tx is not in a
// transaction.
func (g *Generator) upsert(ctx context.Context, tx Tx, u upsert, a arguments, dest ...any) (
	now time.Time, waited time.Duration, err error,
) {
	if u.write == "" {
		now, err = g.query(ctx, tx, u.read, a, dest...)
		return now, 0, err
	}
	for kind := server(g.server.Load()); ; {
		if kind == returning && u.returning != "" {
			now, waited, err = g.queryWaiting(ctx, tx, u.returning, a, dest...)
		} else {
			waited = 0
			now, err = g.writeAndRead(ctx, tx, u, a, kind, dest...)
		}
		if kind == mySQLServer || !errors.Is(err, sql.ErrNoRows) {
			return now, waited, err
		}
		// Nothing was written. Either tx is not in a transaction, or this server supports less than kind.
		var found server
		if err := g.scan(ctx, tx, g.sql.server, nil, &found); err != nil {
			return now, 0, err
		}
		if found >= kind {
			return now, 0, errEnded
		}
		kind = found
	}
}

// writeAndRead runs the statements u.write and u.read. The server must support everything that the given kind supports.
// writeAndRead stores the actual kind in g.
func (g *Generator) writeAndRead(ctx context.Context, tx Tx, u upsert, a arguments, kind server, dest ...any) (
	now time.Time, err error,
) {
	a["checked"] = int64(0)
	if kind == mySQLServer {
		if err := checkSavepoint(ctx, tx); err != nil {
			return now, err
		}
		a["checked"] = int64(1)
	}
	if err := g.exec(ctx, tx, u.write, a); err != nil {
		return now, err
	}
	now, err = g.query(ctx, tx, u.read, a, append(dest, &kind)...)
	if err == nil {
		g.server.Store(int32(kind))
	}
	return now, err
}

// checkBegun returns an error if tx is not in a transaction. It checks this only on SQLite, where a separate statement
// is needed. On MySQL, upsert makes this check. PostgreSQL never ends a transaction on its own.
func (g *Generator) checkBegun(ctx context.Context, tx Tx) error {
	if g.dialect != SQLite {
		return nil
	}
	_, err := tx.ExecContext(ctx, "BEGIN") // fails in a transaction; outside one, it acquires no lock
	switch {
	case err == nil:
		_, err = tx.ExecContext(context.WithoutCancel(ctx), "ROLLBACK")
		return errors.Join(errEnded, err)
	case strings.Contains(err.Error(), "within a transaction"): // SQLite's own message, which every driver returns
		return nil
	}
	return err
}

// checkSavepoint returns an error if tx is not in a transaction. Outside a transaction, MySQL drops a savepoint when
// the statement that sets it has ended, so the savepoint cannot be released.
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
