package sqlledger_test

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/dailyserial/serial/internal/race"
	"github.com/dailyserial/serial/sqlledger"
)

// Each statement of a reservation fails in one of these ways: it is not executed, its reply is lost, the server closes
// the connection, or the context ends. The caller must get an error, or a block that was committed once. After an
// error, the block may have been reserved only if COMMIT was executed.
func TestFaultAtEveryStatement(t *testing.T) {
	broken := errors.New("broken")
	each(t, func(t *testing.T, d *database) {
		if d.dialect == sqlledger.MySQL {
			d = d.with("interpolateParams=true") // prepared statements would bypass the hook
		}
		admin := d.open(t, nil)
		whoami, kill := "SELECT pg_backend_pid()", "SELECT pg_terminate_backend(%s, 5000)"
		if d.dialect == sqlledger.MySQL {
			whoami, kill = "SELECT connection_id()", "KILL %s"
		}
		faults := map[string]func(s *statement, cancel func()) error{
			"not executed": func(*statement, func()) error { return broken },
			"not sent":     func(*statement, func()) error { return driver.ErrBadConn },
			"reply lost": func(s *statement, _ func()) error {
				return errors.Join(s.run(s.text), io.ErrUnexpectedEOF)
			},
			"reply lost on connection": func(s *statement, _ func()) error {
				return errors.Join(s.run(s.text), driver.ErrBadConn)
			},
			"context ended before": func(s *statement, cancel func()) error { cancel(); return broken },
			"context ended after":  func(s *statement, cancel func()) error { defer cancel(); return s.run(s.text) },
			"connection closed": func(s *statement, _ func()) error {
				id, err := s.ask(whoami)
				require.NoError(t, err)
				execSQL(t, admin, fmt.Sprintf(kill, id))
				return s.run(s.text)
			},
		}
		if d.dialect == sqlledger.SQLite {
			delete(faults, "connection closed")
		}
		for name, fault := range faults {
			ctx, cancel := context.WithCancel(t.Context())
			statements, at, commits := 0, -1, int64(0)
			db := d.open(t, func(s *statement) error {
				run := s.run
				s.run = func(text string) error {
					err := run(text)
					if err == nil && text == "COMMIT" {
						commits++
					}
					return err
				}
				if statements++; statements-1 == at {
					return fault(s, cancel)
				}
				return s.run(s.text)
			})
			db.SetMaxOpenConns(1)
			l := newLedger(t, d, db)
			statements, commits = 0, 0
			base, err := l.Reserve(ctx, days(name, day, 0, 10))
			require.NoError(t, err)
			for last := statements; at < last; {
				at, statements = at+1, 0
				before := commits
				after, err := l.Reserve(ctx, days(name, day, 0, 10))
				if err == nil {
					require.EqualValues(t, 1, commits-before, "%s at %d", name, at)
					require.Equal(t, base+10*before, after, "%s at %d", name, at)
				} else if ctx.Err() != nil {
					require.ErrorIs(t, err, context.Canceled, "%s at %d", name, at)
				}
				if name == "not sent" && commits == before {
					require.ErrorIs(t, err, driver.ErrBadConn, "only COMMIT is not repeated")
				}
				cancel()
				ctx, cancel = context.WithCancel(t.Context())
				statements = math.MinInt // no fault
				requireResult(t, base+10*commits, "%s at %d", name, at)(l.Reserve(ctx, days(name, day, 0, 10)))
				require.Zero(t, db.Stats().InUse)
			}
			cancel()
		}
	})
}

// A transaction must be repeated if the database has rolled it back. It must not be repeated if it may have been
// committed, or if it would always fail.
func TestRepeatedTransactions(t *testing.T) {
	pg := func(code string) error { return &pgconn.PgError{Code: code} }
	my := func(number uint16) error { return &mysql.MySQLError{Number: number} }
	const change, commit = "INSERT", "COMMIT"
	type fault struct {
		at    string
		err   error
		tries int32
	}
	faults := map[sqlledger.Dialect][]fault{
		sqlledger.PostgreSQL: {{"WITH", pg("40001"), 2}, {"WITH", pg("40P01"), 2}, {"WITH", pg("55P03"), 2},
			{commit, pg("40001"), 2}, {commit, pg("40003"), 1}, {"WITH", pg("25006"), 1}},
		sqlledger.MySQL: {{change, my(1213), 2}, {change, my(1205), 2}, {change, my(1020), 2}, {"SELECT", my(1213), 2},
			{commit, my(1213), 2}, {commit, my(3101), 2}, {commit, my(1205), 1}, {change, my(12130), 1}, {change, my(1290), 1}},
		sqlledger.SQLite: {{"BEGIN", errors.New("database is locked (5) (SQLITE_BUSY)"), 2},
			{change, errors.New("database table is locked"), 2}, {commit, errors.New("database is locked"), 2},
			{change, errors.New("disk I/O error"), 1}},
	}
	each(t, func(t *testing.T, d *database) {
		for i, f := range faults[d.dialect] {
			var tries int32
			inject := false
			l := d.ledger(t, func(s *statement) error {
				if strings.HasPrefix(s.text, "BEGIN") || strings.HasPrefix(s.text, "START") {
					tries++
				}
				if inject && strings.HasPrefix(s.text, f.at) {
					if inject = false; f.at == commit {
						_ = s.run("ROLLBACK")
					}
					return f.err
				}
				return s.run(s.text)
			})
			series := fmt.Sprint(i)
			requireResult(t, int64(0))(l.Reserve(t.Context(), days(series, day, 0, 3)))
			inject, tries = true, 0
			after, err := l.Reserve(t.Context(), days(series, day, 0, 3))
			require.Equal(t, f.tries, tries, "%s: %v", f.at, f.err)
			if f.tries > 1 {
				requireResult(t, int64(3))(after, err)
			} else {
				require.ErrorIs(t, err, f.err)
			}
			requireResult(t, int64(3*f.tries), "%s: %v", f.at, f.err)(l.Reserve(t.Context(), days(series, day, 0, 3)))
		}
	})
}

// Reserve must wait for a lock that is released within 30 s, even if the database's own limit is shorter, but no longer
// than its context allows.
func TestReserveWaitsForLock(t *testing.T) {
	short := map[sqlledger.Dialect]string{
		sqlledger.PostgreSQL: "SET lock_timeout = 100",
		sqlledger.MySQL:      "SET SESSION innodb_lock_wait_timeout = 1",
		sqlledger.SQLite:     "PRAGMA busy_timeout = 0",
	}
	each(t, func(t *testing.T, d *database) {
		if d.dialect == sqlledger.MySQL {
			d = d.with("interpolateParams=true") // prepared statements would bypass the hook
		}
		l := d.ledger(t, nil, short[d.dialect])
		require.NoError(t, onlyErr(l.Reserve(t.Context(), days("IS", day, 0, 3))))
		release := lock(t, d)
		cancelled, cancel := context.WithCancel(t.Context())
		cancel()
		require.ErrorIs(t, onlyErr(l.Reserve(cancelled, days("IS", day, 0, 3))), context.Canceled)
		err := reserveWithin(t, l, 300*time.Millisecond)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		if d.dialect == sqlledger.PostgreSQL { // the context ends during the third attempt
			require.ErrorContains(t, err, "lock timeout", "the error of an earlier attempt is more helpful")
		}
		waiting := d.ledgerOn(t, d.open(t, func(s *statement) error {
			err := s.run(s.text)
			if err != nil && !errors.Is(err, driver.ErrSkip) { // the database has waited as long as it may
				release()
			}
			return err
		}, short[d.dialect]))
		requireResult(t, int64(3))(waiting.Reserve(t.Context(), days("IS", day, 0, 3)))
	})
	t.Run("30s", func(t *testing.T) {
		d := sqlite3(t)
		d.ledger(t, nil)
		locked := errors.New("database is locked")
		race.Bubble(t, func(t *testing.T) {
			l := d.ledgerOn(t, d.open(t, on("BEGIN", func(*statement) error { return locked })))
			start := time.Now()
			require.ErrorIs(t, onlyErr(l.Reserve(t.Context(), days("IS", day, 0, 3))), locked)
			require.InDelta(t, 30, time.Since(start).Seconds(), 1)
		})
	})
}

// lock locks the row of "IS" until it is released, or the test ends.
func lock(t *testing.T, d *database) (release func()) {
	t.Helper()
	c, err := d.open(t, nil).Conn(t.Context())
	require.NoError(t, err)
	if d.dialect == sqlledger.SQLite {
		execSQL(t, c, "BEGIN EXCLUSIVE")
	} else {
		execSQL(t, c, "BEGIN", "UPDATE serial_ledger SET last = last + 1 WHERE series = "+literal(d, "IS"))
	}
	release = sync.OnceFunc(func() {
		_, err := c.ExecContext(context.Background(), "ROLLBACK")
		if err := errors.Join(err, c.Close()); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(release) // otherwise the schema of a failed test could not be dropped
	return release
}
