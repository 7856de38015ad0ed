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
	closed   sql.NullInt64 // end of the last closed period when this one was closed, in Unix seconds; NULL if it is open
	now      time.Time     // time of the database's clock
	waited   time.Duration // maximum time between now and the acquisition of the lock
}

const markJoint = ":" // separator between calendar and print mark

// row returns the arguments that identify the row of a period and the row of its series.
func (g *Generator) row(series, label string) arguments {
	return arguments{"series": []byte(series), "period": []byte(label), "mark": []byte(g.mark),
		"calendar": []byte(g.calendar)}
}

// take waits for the lock of a period's row and adds n to its last sequence, or sets it to above+n if none was taken.
// If n is 0, take raises the last sequence to above. The caller then checks the result against the previous sequence
// and the time of the clock. It can still call undo, because the lock is held. If the series has a different calendar
// or the period is closed, take takes nothing, and the error is serial.ErrConflict or ErrPeriodClosed.
func (g *Generator) take(ctx context.Context, tx Tx, typ, series string, s *span, above, n int64) (counter, error) {
	if err := g.checkBegun(ctx, tx); err != nil {
		return counter{}, err
	}
	a := g.row(series, s.label)
	a["n"], a["first"], a["least"] = n, above+n, least(above, n)
	if s.date != 0 {
		a["dated"] = s.date
	}
	// If the period has ended or has no row yet, the series' row must be checked. It is locked before the period's row
	// if possible. Otherwise this transaction could wait for the series' row while another transaction, which closes
	// periods or begins the series, waits for the period's row.
	ended, judged := s.end <= g.now().Unix(), false
	if !ended && g.sql.update != "" {
		c := counter{mark: g.mark}
		var err error
		c.now, err = g.query(ctx, tx, g.statementsOf(s).update, a, c.into(s, &c.last)...)
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
	var c counter
	var err error
	u := g.statementsOf(s).upsert
	c.now, c.waited, err = g.upsert(ctx, tx, u, a, c.into(s, &c.last, &c.previous, &c.mark, &c.closed)...)
	switch {
	case err != nil:
		return c, err
	case c.closed.Valid:
		// The period's row has the end that was stored when the period was closed. The series' row has the current end.
		gate, failure := g.readGate(ctx, tx, g.sql.gate, series)
		if failure != nil && !errors.Is(failure, sql.ErrNoRows) {
			return c, failure
		}
		err = g.closedError(typ, s.label, max(c.closed.Int64, gate.closed.Int64))
	case !judged && c.previous == 0:
		_, err = g.judge(ctx, tx, typ, series, s, true)
	}
	if refused(err) {
		if err := g.undo(ctx, tx, series, s); err != nil {
			return c, err
		}
	}
	return c, err
}

// least returns the minimum of the last sequence after take, for a row from which numbers were taken. Only Raise needs
// a minimum there.
func least(above, n int64) int64 {
	if n > 0 {
		return 0
	}
	return above
}

// refused reports whether err is an error of take after which nothing was taken and the transaction can continue.
func refused(err error) bool {
	return errors.Is(err, serial.ErrConflict) || errors.Is(err, ErrPeriodClosed)
}

// undo reverts the change that take made to the row. The transaction still has the row's lock.
func (g *Generator) undo(ctx context.Context, tx Tx, series string, s *span) error {
	return g.exec(ctx, tx, g.statementsOf(s).undo, g.row(series, s.label))
}

// upsert runs u and scans the columns before the clock into dest. now is the time of the clock, which the statement
// read at most waited before it got the row's lock. upsert returns an error if tx is not in a transaction.
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
		// Nothing was written: either there is no transaction, or this server supports less than the previous one.
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

// writeAndRead runs the statements write and read of u, and stores the kind of the server in g. kind is a lower bound
// of what the server supports.
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

// checkBegun returns an error if tx is not in a transaction. It checks this only on SQLite, which needs a statement for
// it. On MySQL, upsert makes the check. PostgreSQL never ends a transaction by itself.
func (g *Generator) checkBegun(ctx context.Context, tx Tx) error {
	if g.dialect != SQLite {
		return nil
	}
	_, err := tx.ExecContext(ctx, "BEGIN") // acquires no lock
	switch {
	case err == nil:
		_, err = tx.ExecContext(context.WithoutCancel(ctx), "ROLLBACK")
		return errors.Join(errEnded, err)
	case strings.Contains(err.Error(), "within a transaction"): // SQLite's own message, the same in every driver
		return nil
	}
	return err
}

// checkSavepoint returns an error if tx is not in a transaction. Outside a transaction, a savepoint ends with its
// statement, so it cannot be released.
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
