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
	mark     string        // calendar and print mark of the scheme that took the numbers
	dated    sql.NullInt64 // date of the number before, NULL if it has none; not read for a span without a date
	closed   sql.NullInt64 // if the period is closed, the end of the last closed period then, in Unix seconds
	now      time.Time     // by the database's clock
	waited   time.Duration // at most this long after now, the lock was got
}

const markJoint = ":" // between calendar and print mark

// row returns the arguments for the row of a period and for the gate of its series.
func (g *Generator) row(series, label string) arguments {
	return arguments{"series": []byte(series), "period": []byte(label), "mark": []byte(g.mark),
		"calendar": []byte(g.calendar)}
}

// take waits for the lock of a period's row and adds n to what was taken or, if nothing was, to above. If n is 0, it
// raises what was taken to above. The caller decides whether that is valid, by the earlier counter and by its clock:
// under the lock, undo can follow. If the series has another calendar or the period is closed, nothing is taken, and
// the error is serial.ErrConflict or ErrPeriodClosed.
func (g *Generator) take(ctx context.Context, tx Tx, typ, series string, s *span, above, n int64) (counter, error) {
	if err := g.checkBegun(ctx, tx); err != nil {
		return counter{}, err
	}
	a := g.row(series, s.label)
	a["n"], a["first"], a["least"] = n, above+n, least(above, n)
	if s.date != 0 {
		a["dated"] = s.date
	}
	// If the period has ended or has no row yet, the series' gate judges. It is locked first, if possible: then whoever
	// waits for it, because others close periods or begin the series, holds no row that those wait for.
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
		// The row has the end of the closing that reached it. The gate has that of the latest.
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

// undo reverts what take did to the counter, whose lock is held.
func (g *Generator) undo(ctx context.Context, tx Tx, series string, s *span) error {
	return g.exec(ctx, tx, g.statementsOf(s).undo, g.row(series, s.label))
}

// upsert runs u, and scans what it returns before the clock, which it read at most waited before it got the row's lock.
// It returns an error unless tx is in a transaction.
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
		// Nothing was done: there is no transaction, or this server can do less than the last one.
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

// writeAndRead runs the two statements of u, and remembers the kind of the server. kind is what the server can do at
// least.
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
