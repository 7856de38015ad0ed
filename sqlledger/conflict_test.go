package sqlledger_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dailyserial/serial"
	"github.com/dailyserial/serial/sqlledger"
)

// A series keeps its calendar, and a period its print mark. A change is a conflict, and nothing is set aside.
func TestConflict(t *testing.T) {
	each(t, func(t *testing.T, d *database) {
		var conns []innerConn
		db := d.open(t, on("COMMIT", func(s *statement) error {
			conns = append(conns, s.conn)
			return s.run(s.text)
		}))
		db.SetMaxOpenConns(1)
		l := newLedger(t, d, db)
		reserve := func(series, period, calendar, printMark string) (int64, error) {
			r := serial.Reservation{Series: series, Period: period, Calendar: calendar, Print: printMark, N: 10}
			return l.Reserve(t.Context(), r)
		}
		refused := func(series, period, calendar, printMark, why string) {
			t.Helper()
			_, err := reserve(series, period, calendar, printMark)
			require.ErrorIs(t, err, serial.ErrConflict)
			require.EqualError(t, err, "sqlledger: reserve: serial: conflicting period: "+why)
		}
		const anew = "another type, or another key prefix together with another literal in the template"
		calendars := func(kept, other string) string {
			return fmt.Sprintf("series %q counts by %q in the ledger and by %q here, and a series keeps its calendar; "+
				"to change that, use "+anew, "serial:IS", kept, other)
		}
		printed := func(period string) string {
			return fmt.Sprintf("numbers of period %q of series %q were printed with another order of fields, alphabet, check "+
				"digit or key, so two sequences could print alike; use the same until a later period begins, or use "+anew,
				period, "serial:IS")
		}

		requireResult(t, int64(0))(reserve("serial:IS", "2024W45", "weeks", "a"))
		for _, other := range []string{"days", "Weeks", "weeks ", "week", "years from April 1", strings.Repeat("é", 32)} {
			refused("serial:IS", "2024W45", other, "a", calendars("weeks", other))
			refused("serial:IS", "20241104", other, "a", calendars("weeks", other))
		}
		for _, other := range []string{"b", "A", "a ", strings.Repeat("é", 32)} {
			refused("serial:IS", "2024W45", "weeks", other, printed("2024W45"))
		}
		requireResult(t, int64(10), "nothing was set aside meanwhile")(reserve("serial:IS", "2024W45", "weeks", "a"))
		requireResult(t, int64(0), "nothing is kept")(reserve("serial:IS", "20241104", "weeks", "b"))
		refused("serial:IS", "20241104", "weeks", "a", printed("20241104"))
		for i, long := range []string{strings.Repeat("é", 32), strings.Repeat("é", 31) + "e"} {
			requireResult(t, int64(0), "other series have their own calendars")(reserve(fmt.Sprint(i), "2024", long, long))
		}

		execSQL(t, db, "DELETE FROM serial_ledger WHERE period <> "+literal(d, ""))
		refused("serial:IS", "2024W45", "days", "b", calendars("weeks", "days"))
		requireResult(t, int64(0))(reserve("serial:IS", "2024W45", "weeks", "b"))
		for _, c := range conns {
			require.Same(t, conns[0], c, "a conflict costs no connection")
		}
	})
}

// If several callers reserve first at the same time, for different periods and with different calendars, one calendar
// wins.
func TestConflictAtOnce(t *testing.T) {
	each(t, func(t *testing.T, d *database) {
		set := map[sqlledger.Dialect]string{
			sqlledger.PostgreSQL: "SET default_transaction_isolation = 'serializable'",
			sqlledger.MySQL:      "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED",
			sqlledger.SQLite:     "PRAGMA journal_mode = WAL",
		}[d.dialect]
		const callers, rounds = 8, 10
		for v, init := range [][]string{nil, {set}} {
			ledgers := make([]*sqlledger.Ledger, callers)
			for i := range ledgers {
				ledgers[i] = d.ledger(t, nil, init...)
			}
			for round := range rounds {
				var mu sync.Mutex
				won := map[string]int{}
				var wg sync.WaitGroup
				for i, l := range ledgers {
					wg.Go(func() {
						r := days(fmt.Sprint(v, round), fmt.Sprint(2000+i), 0, 1)
						r.Calendar = []string{"days", "weeks"}[i%2]
						_, err := l.Reserve(context.Background(), r)
						mu.Lock()
						defer mu.Unlock()
						switch {
						case err == nil:
							won[r.Calendar]++
						case !errors.Is(err, serial.ErrConflict):
							t.Error(err)
						}
					})
				}
				wg.Wait()
				require.Len(t, won, 1)
				for _, n := range won {
					require.Equal(t, callers/2, n)
				}
			}
		}
	})
}

// A process that is killed while it stores a calendar leaves nothing behind.
func TestConflictAfterKill(t *testing.T) {
	each(t, func(t *testing.T, d *database) {
		l := d.ledger(t, nil)
		w := startWorker(t, d, 1, true)
		w.line(t, "ready")
		w.proceed(t)
		w.line(t, "committing")
		weeks := days("IS", "2021W42", 0, 10)
		weeks.Calendar = "weeks"
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		defer cancel()
		require.ErrorIs(t, errOf(l.Reserve(ctx, weeks)), context.DeadlineExceeded, "it waits to see which calendar is kept")

		require.NoError(t, w.cmd.Process.Kill())
		require.NoError(t, errOf(l.Reserve(t.Context(), weeks)))
		require.ErrorIs(t, errOf(l.Reserve(t.Context(), days("IS", day, 0, 10))), serial.ErrConflict)
	})
}

// A table that lacks a current column causes an error with instructions.
func TestOutdatedTable(t *testing.T) {
	each(t, func(t *testing.T, d *database) {
		db := d.open(t, nil)
		l := newLedger(t, d, db)
		execSQL(t, db, "ALTER TABLE serial_ledger DROP COLUMN settings")
		_, err := l.Reserve(t.Context(), days("IS", day, 0, 10))
		for _, err := range []error{err, l.CreateTable(t.Context())} {
			require.ErrorContains(t, err, "settings")
			require.ErrorContains(t, err, "the table was not created by this version; have CreateTable create a new one, "+
				"either under another name, see WithTable, or after this one has been dropped")
		}
		execSQL(t, db, "DROP TABLE serial_ledger")
		reserves(t, newLedger(t, d, db))
	})
}
