package gapless_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/dailyserial/serial"
	"github.com/dailyserial/serial/gapless"
)

// october returns the beginning of a day in October 2021, in UTC.
func october(day int) time.Time { return time.Date(2021, 10, day, 0, 0, 0, 0, time.UTC) }

// beginAt begins a transaction that is rolled back when the test ends.
func beginAt(t testing.TB, db *sql.DB, level sql.IsolationLevel) *sql.Tx {
	t.Helper()
	tx, err := db.BeginTx(t.Context(), &sql.TxOptions{Isolation: level})
	require.NoError(t, err)
	t.Cleanup(func() { _ = tx.Rollback() })
	return tx
}

// closes closes the periods of IS that end by before, and commits.
func (d *database) closes(t testing.TB, db *sql.DB, g *gapless.Generator, before time.Time) {
	t.Helper()
	tx := beginAt(t, db, d.readCommitted())
	require.NoError(t, g.ClosePeriods(t.Context(), tx, "IS", serial.At(before)))
	require.NoError(t, tx.Commit())
}

func TestClosePeriods(t *testing.T) {
	each(t, func(t *testing.T, d *database) {
		db := d.open(t)
		g, another := d.generator(t, db), d.generator(t, db)
		until := func(q gapless.Querier, want time.Time) {
			t.Helper()
			requireResult(t, want)(another.ClosedUntil(t.Context(), q, "IS"))
		}
		takes := func(tx *sql.Tx, day int, want int64) {
			t.Helper()
			requireSeq(t, want)(g.NextOn(t.Context(), tx, "IS", serial.At(october(day))))
		}
		refuses := func(tx *sql.Tx, days ...int) {
			t.Helper()
			for _, g := range []*gapless.Generator{g, another} {
				for _, day := range days {
					at := october(day + 1).Add(-time.Second)
					before, err := g.Last(t.Context(), tx, "IS", serial.At(at))
					require.NoError(t, err)
					require.ErrorIs(t, errOf(g.NextOn(t.Context(), tx, "IS", serial.At(at))), gapless.ErrPeriodClosed)
					for _, seq := range []int64{0, before.Seq + 3} {
						require.ErrorIs(t, g.Raise(t.Context(), tx, "IS", serial.At(at), seq), gapless.ErrPeriodClosed)
					}
					requireResult(t, before)(g.Last(t.Context(), tx, "IS", serial.At(at)))
				}
			}
		}

		// For a type that was never used.
		until(db, time.Time{})
		d.closes(t, db, g, october(2))
		until(db, october(2))
		commits(t, db, func(tx *sql.Tx) {
			refuses(tx, 1)
			takes(tx, 2, 1)
			takes(tx, 3, 1)
			takes(tx, 5, 1)
		})

		// With rows and without, in the closing transaction and after it.
		tx := beginAt(t, db, d.readCommitted())
		require.NoError(t, g.ClosePeriods(t.Context(), tx, "IS", serial.At(october(5))))
		refuses(tx, 1, 2, 3, 4)
		until(tx, october(5))
		require.NoError(t, tx.Commit())
		until(db, october(5))
		commits(t, db, func(tx *sql.Tx) {
			_, err := g.NextOn(t.Context(), tx, "IS", serial.At(october(3)))
			require.EqualError(t, err, "gapless: period closed: IS in period 20211003: all periods that end by "+
				"2021-10-05 (2021-10-05T00:00:00Z) are closed; use a later one")
			refuses(tx, 1, 2, 3, 4)
			takes(tx, 5, 2)
			takes(tx, 6, 1)
			requireSeq(t, 1)(g.Next(t.Context(), tx, "IS"))
			requireSeq(t, 1)(g.NextOn(t.Context(), tx, "IT", serial.At(october(3)))) // another type
		})

		// Closed periods stay closed: an earlier end changes nothing. A closing that is rolled back has no effect.
		d.closes(t, db, g, october(2))
		d.closes(t, db, g, october(5))
		until(db, october(5))
		tx = beginAt(t, db, d.readCommitted())
		takes(tx, 6, 2)
		execTx(t, tx, "SAVEPOINT s")
		require.NoError(t, g.ClosePeriods(t.Context(), tx, "IS", serial.At(october(7))))
		refuses(tx, 5, 6)
		execTx(t, tx, "ROLLBACK TO SAVEPOINT s")
		until(tx, october(5))
		takes(tx, 6, 3)
		execTx(t, tx, "SAVEPOINT s")
		require.NoError(t, g.ReopenPeriods(t.Context(), tx, "IS", serial.At(october(2))))
		takes(tx, 2, 2)
		execTx(t, tx, "ROLLBACK TO SAVEPOINT s")
		refuses(tx, 2)
		require.NoError(t, g.ClosePeriods(t.Context(), tx, "IS", serial.At(october(7))))
		require.NoError(t, tx.Rollback())
		until(db, october(5))
		commits(t, db, func(tx *sql.Tx) { takes(tx, 6, 2) })

		// Reopened from a period on; closed again, up to another.
		commits(t, db, func(tx *sql.Tx) {
			require.NoError(t, g.ReopenPeriods(t.Context(), tx, "IS", serial.At(october(5)))) // already closed until then
			until(tx, october(5))
			require.NoError(t, g.ReopenPeriods(t.Context(), tx, "IS", serial.At(october(3))))
			until(tx, october(3))
			refuses(tx, 1, 2)
			takes(tx, 3, 2)
		})
		commits(t, db, func(tx *sql.Tx) {
			refuses(tx, 1, 2)
			takes(tx, 3, 3)
			takes(tx, 4, 1)
		})
		d.closes(t, db, g, october(4))
		commits(t, db, func(tx *sql.Tx) {
			refuses(tx, 1, 2, 3)
			takes(tx, 4, 2)
			require.NoError(t, g.ReopenPeriods(t.Context(), tx, "IS", serial.At(time.Date(1970, 1, 1, 0, 0, 0, 0, time.UTC))))
			until(tx, time.Time{})
			takes(tx, 1, 1)
			takes(tx, 2, 2)
		})
	})
}

func execTx(t testing.TB, tx *sql.Tx, query string) {
	t.Helper()
	require.NoError(t, errOf(tx.ExecContext(t.Context(), query)))
}

// An impossible closing is refused, nothing is written, and the transaction continues.
func TestClosePeriodsRefused(t *testing.T) {
	each(t, func(t *testing.T, d *database) {
		db, g := d.start(t)
		never := d.generator(t, db, serial.WithPeriod(serial.Never), serial.WithTemplate("{type}-{seq:4}"))
		rows := func(q gapless.Querier) (n int) {
			t.Helper()
			require.NoError(t, q.QueryRowContext(t.Context(), countRows).Scan(&n))
			return n
		}
		tx := beginAt(t, db, d.readCommitted())
		weeks := d.generator(t, db, perWeek()...)
		today := d.clock(t, db).UTC().Truncate(24 * time.Hour)
		_, monday, _ := weeks.Scheme().Period(serial.At(today))
		for _, r := range []struct {
			g      *gapless.Generator
			typ    string
			before time.Time
			want   string
		}{
			{g, "I S", october(1), "invalid type"},
			{never, "IS", october(1),
				"gapless: close periods of IS: numbers that never start again have no periods to close or reopen"},
			{g, "IS", time.Time{}, "want 1970 to 9999"},
			{g, "IS", time.Unix(1<<62, 0), "want 1970 to 9999"},
			{g, "IS", october(2).Add(time.Nanosecond), "gapless: close periods of IS: no period begins at " +
				"2021-10-02T00:00:00.000000001Z: want 2021-10-02 (2021-10-02T00:00:00Z) or 2021-10-03 (2021-10-03T00:00:00Z)"},
			{g, "IS", october(2).Add(-time.Second).In(time.FixedZone("", 3600)), "no period begins at 2021-10-01T23:59:59Z"},
			{weeks, "IS", october(3), "no period begins at 2021-10-03T00:00:00Z: " +
				"want 2021-09-27 (2021-09-27T00:00:00Z) or 2021-10-04 (2021-10-04T00:00:00Z)"},
			{g, "IS", today.AddDate(0, 0, 1), gapless.ErrPeriodOpen.Error()},
			{g, "IS", today.AddDate(20, 0, 0), gapless.ErrPeriodOpen.Error()},
		} {
			err := r.g.ClosePeriods(t.Context(), tx, r.typ, serial.At(r.before))
			require.ErrorContains(t, err, r.want)
			open := r.want == gapless.ErrPeriodOpen.Error()
			require.Equal(t, open, errors.Is(err, gapless.ErrPeriodOpen))
			if !open {
				require.Error(t, r.g.ReopenPeriods(t.Context(), tx, r.typ, serial.At(r.before)))
			}
		}
		require.Zero(t, rows(tx))
		require.NoError(t, g.ClosePeriods(t.Context(), tx, "IS", serial.At(today)), "periods that ended yesterday")
		require.ErrorIs(t, weeks.ClosePeriods(t.Context(), tx, "IS", serial.At(monday)), serial.ErrConflict)
		require.ErrorIs(t, weeks.ReopenPeriods(t.Context(), tx, "IS", serial.At(monday)), serial.ErrConflict)
		require.ErrorIs(t, errOf(weeks.ClosedUntil(t.Context(), tx, "IS")), serial.ErrConflict)
		require.NoError(t, errOf(g.Next(t.Context(), tx, "IS")))
		execTx(t, tx, "DELETE FROM serial_gapless_series") // breaks the rules: the calendar is kept
		require.ErrorIs(t, weeks.ClosePeriods(t.Context(), tx, "IS", serial.At(october(4))), serial.ErrConflict)
		require.Equal(t, 1, rows(tx))
		require.NoError(t, tx.Commit())
		for _, tx := range []gapless.Tx{nil, (*sql.Tx)(nil)} {
			require.EqualError(t, g.ClosePeriods(t.Context(), tx, "IS", serial.At(today)), "gapless: the transaction is nil")
			require.EqualError(t, g.ReopenPeriods(t.Context(), tx, "IS", serial.At(today)), "gapless: the transaction is nil")
		}
		require.EqualError(t, errOf(g.ClosedUntil(t.Context(), nil, "IS")), "gapless: the Querier is nil")
	})
}

// The database has ended the transaction: nothing is closed or reopened.
func TestClosePeriodsEnded(t *testing.T) {
	for name, d := range map[string]*database{"MariaDB": mariaDB(t), "SQLite": inFile(t)} {
		t.Run(name, func(t *testing.T) {
			db, g := d.start(t)
			d.closes(t, db, g, october(2))
			tx := beginAt(t, db, d.readCommitted())
			execTx(t, tx, "ROLLBACK")
			const ended = "the database has ended the transaction"
			require.ErrorContains(t, g.ClosePeriods(t.Context(), tx, "IS", serial.At(october(5))), ended)
			require.ErrorContains(t, g.ReopenPeriods(t.Context(), tx, "IS", serial.At(october(1))), ended)
			_ = tx.Rollback()
			requireResult(t, october(2))(g.ClosedUntil(t.Context(), db, "IS"))
		})
	}
}

// Ends are the ends of the scheme's periods in its time zone, even of periods that began before the epoch.
func TestClosedUntilInZone(t *testing.T) {
	each(t, func(t *testing.T, d *database) {
		db := d.open(t)
		east := time.FixedZone("", 14*3600)
		for prefix, r := range map[string]struct {
			opts         []serial.Option
			before, want time.Time
		}{
			"hours": {
				[]serial.Option{serial.WithPeriod(serial.PerHour), serial.WithTemplate("{type}{date:yyyyMMddHH}{seq:4}")},
				time.Date(1970, 1, 1, 5, 0, 0, 0, east), time.Date(1970, 1, 1, 5, 0, 0, 0, east),
			},
			"none": {nil, time.Date(1970, 1, 1, 0, 0, 0, 0, east), time.Time{}},
			"years": {
				[]serial.Option{serial.WithPeriod(serial.PerYear), serial.WithYearStart(time.April, 1),
					serial.WithTemplate("{type}/{date:FFFF}/{seq:4}")},
				time.Date(2025, 4, 1, 0, 0, 0, 0, east), time.Date(2025, 4, 1, 0, 0, 0, 0, east),
			},
			"weeks": {perWeek(), time.Date(2024, 12, 30, 0, 0, 0, 0, east), time.Date(2024, 12, 30, 0, 0, 0, 0, east)},
		} {
			g := d.generator(t, db, append(r.opts, serial.WithLocation(east), serial.WithKeyPrefix(prefix))...)
			first := time.Date(1970, 1, 1, 4, 0, 0, 0, east)
			commits(t, db, func(tx *sql.Tx) { require.NoError(t, errOf(g.NextOn(t.Context(), tx, "IS", serial.At(first)))) })
			d.closes(t, db, g, r.before)
			requireResult(t, r.want, prefix)(g.ClosedUntil(t.Context(), db, "IS"))
			commits(t, db, func(tx *sql.Tx) {
				if r.want.IsZero() {
					require.NoError(t, errOf(g.NextOn(t.Context(), tx, "IS", serial.At(first))))
					return
				}
				require.ErrorIs(t, errOf(g.NextOn(t.Context(), tx, "IS", serial.At(first))), gapless.ErrPeriodClosed)
				require.ErrorIs(t, errOf(g.NextOn(t.Context(), tx, "IS", serial.At(r.want.Add(-time.Second)))),
					gapless.ErrPeriodClosed)
				require.NoError(t, errOf(g.NextOn(t.Context(), tx, "IS", serial.At(r.want))))
			})
		}
	})
}

// A caller that considers a closed period the current one gets a number of the current one. If the clock went back into
// a closed period, that is closed to Next, too.
func TestNextOfAClosedPeriod(t *testing.T) {
	each(t, func(t *testing.T, d *database) {
		db, g := d.start(t)
		now := d.clock(t, db)
		for _, typ := range []string{"IS", "ROW"} {
			commits(t, db, func(tx *sql.Tx) {
				if typ == "ROW" {
					require.NoError(t, errOf(g.NextOn(t.Context(), tx, typ, serial.At(now.AddDate(0, 0, -1)))))
				}
			})
			tx := beginAt(t, db, d.readCommitted())
			require.NoError(t, g.ClosePeriods(t.Context(), tx, typ, serial.At(now.UTC().Truncate(24*time.Hour))))
			require.NoError(t, tx.Commit())
			commits(t, db, func(tx *sql.Tx) {
				for want := range int64(2) {
					g.Misjudge(-24 * time.Hour)
					requireSeq(t, want+1)(g.Next(t.Context(), tx, typ))
				}
			})
			for _, table := range []string{"serial_gapless", "serial_gapless_series"} {
				execSQL(t, db, fmt.Sprintf("UPDATE %s SET closed = %d", table, now.Add(48*time.Hour).Unix()))
			}
			commits(t, db, func(tx *sql.Tx) {
				require.ErrorIs(t, errOf(g.Next(t.Context(), tx, typ)), gapless.ErrPeriodClosed)
				require.ErrorIs(t, errOf(g.NextN(t.Context(), tx, typ, 3)), gapless.ErrPeriodClosed)
				require.NoError(t, errOf(g.NextOn(t.Context(), tx, typ, serial.At(now.AddDate(0, 0, 4)))))
			})
		}
	})
}

// counting counts the statements of a transaction.
type counting struct {
	*sql.Tx
	statements *int
}

func (tx counting) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	*tx.statements++
	return tx.Tx.ExecContext(ctx, query, args...)
}

func (tx counting) QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row {
	*tx.statements++
	return tx.Tx.QueryRowContext(ctx, query, args...)
}

// Closing costs a number of the current period nothing: neither a statement nor a wait for the closing transaction.
func TestCurrentPeriodGoesOn(t *testing.T) {
	kinds(t, each, func(t *testing.T, d *database) {
		db := d.open(t)
		g := d.generator(t, db, serial.WithLocation(d.noon(t, db)))
		for day := range 3 {
			commits(t, db, func(tx *sql.Tx) {
				require.NoError(t, errOf(g.NextOn(t.Context(), tx, "IS", serial.OnDateOf(october(1+day)))))
			})
		}
		commits(t, db, func(tx *sql.Tx) { require.NoError(t, errOf(g.Next(t.Context(), tx, "IS"))) })
		levels := []sql.IsolationLevel{d.readCommitted()}
		if d.dialect == gapless.MySQL {
			levels = append(levels, sql.LevelRepeatableRead)
		}
		for i, level := range levels {
			before := beginAt(t, db, level) // took a number of the current period before others closed
			require.NoError(t, errOf(g.Next(t.Context(), before, "IS")))
			if d.dialect == gapless.SQLite { // there, all writers wait
				require.NoError(t, before.Commit())
			}
			closer := beginAt(t, db, level)
			require.NoError(t, g.ClosePeriods(t.Context(), closer, "IS", serial.OnDateOf(october(3+i))))
			if d.dialect == gapless.SQLite {
				require.NoError(t, closer.Commit())
			} else {
				require.NoError(t, before.Commit())
			}
			statements := 0
			tx := counting{begin(t, db), &statements}
			require.NoError(t, errOf(g.Next(t.Context(), tx, "IS")))
			want := map[gapless.Dialect]int{gapless.PostgreSQL: 1, gapless.MySQL: 1, gapless.SQLite: 2}[d.dialect]
			switch d.comment {
			case "/*M!100500":
				want = 2
			case "/*M!": // and a savepoint
				want = 4
			}
			require.Equal(t, want, statements)
			require.NoError(t, errOf(g.NextOn(t.Context(), tx, "IS", serial.At(d.clock(t, db)))))
			require.Equal(t, 2*want, statements)
			require.NoError(t, tx.Commit())
			if d.dialect != gapless.SQLite {
				require.NoError(t, closer.Commit())
			}
		}
	})
}

// closingCases are the ways in which a taker of a period's number meets a closing transaction: the period has a row or
// not, and the taker knows that it has ended or not.
func closingCases(t *testing.T,
	test func(t *testing.T, d *database, db *sql.DB, g *gapless.Generator, row, late bool)) {
	servers(t, func(t *testing.T, d *database) {
		for _, row := range []bool{true, false} {
			for _, late := range []bool{true, false} {
				t.Run(fmt.Sprintf("row=%v/late=%v", row, late), func(t *testing.T) {
					db, g := d.start(t, serial.WithKeyPrefix(fmt.Sprintf("%v-%v", row, late)))
					commits(t, db, func(tx *sql.Tx) {
						require.NoError(t, errOf(g.NextOn(t.Context(), tx, "IS", serial.At(october(9)))))
						if row {
							require.NoError(t, errOf(g.NextOn(t.Context(), tx, "IS", serial.At(october(1)))))
						}
					})
					test(t, d, db, g, row, late)
				})
			}
		}
	})
}

// takes takes a number of the first of October. If late, g believes that it is that day.
func takes(ctx context.Context, tx gapless.Tx, g *gapless.Generator, late bool) (serial.Number, error) {
	if late {
		g.Misjudge(time.Until(october(1)))
	}
	return g.NextOn(ctx, tx, "IS", serial.At(october(1)))
}

// A closing transaction waits until all transactions that have taken a number of the period have ended. After that,
// nobody takes one, whenever the transaction began.
func TestCloseWaits(t *testing.T) {
	closingCases(t, func(t *testing.T, d *database, db *sql.DB, g *gapless.Generator, row, late bool) {
		other := d.generator(t, db, serial.WithKeyPrefix(fmt.Sprintf("%v-%v", row, late))) // with its own clock
		taker, second := begin(t, db), begin(t, db)
		n, err := takes(t.Context(), taker, g, late)
		require.NoError(t, err)
		levels := []sql.IsolationLevel{d.readCommitted(), sql.LevelRepeatableRead, sql.LevelSerializable}
		early := make([]*sql.Tx, len(levels)) // begun before the period was closed, with a snapshot
		for i, level := range levels {
			early[i] = beginAt(t, db, level)
			require.NoError(t, errOf(g.ClosedUntil(t.Context(), early[i], "IT")))
		}
		closer := beginAt(t, db, d.readCommitted())
		closed := make(chan error)
		go func() { closed <- other.ClosePeriods(t.Context(), closer, "IS", serial.At(october(2))) }()
		d.waiting(t, db, 1)
		if row && late { // the closing transaction has the gate, and waits for the row
			require.NoError(t, taker.Rollback())
			n.Seq--
		} else {
			require.NoError(t, taker.Commit())
		}
		require.NoError(t, <-closed)
		require.NoError(t, closer.Commit())
		requireSeq(t, n.Seq)(g.Last(t.Context(), db, "IS", serial.At(october(1))))
		require.ErrorIs(t, errOf(takes(t.Context(), second, g, late)), gapless.ErrPeriodClosed)
		require.NoError(t, errOf(g.NextOn(t.Context(), second, "IS", serial.At(october(9)))))
		require.NoError(t, second.Commit())
		for i, tx := range early {
			_, err := takes(t.Context(), tx, g, late)
			if d.dialect == gapless.PostgreSQL && levels[i] != sql.LevelReadCommitted {
				var state *pgconn.PgError
				require.ErrorAs(t, err, &state)
				require.Equal(t, "40001", state.Code)
			} else {
				require.ErrorIs(t, err, gapless.ErrPeriodClosed)
			}
			require.NoError(t, tx.Rollback())
		}
	})
}

// A transaction that wants a number of a period being closed waits, and gets it if the closing is rolled back. The same
// holds while a period is being reopened.
func TestTakerWaits(t *testing.T) {
	closingCases(t, func(t *testing.T, d *database, db *sql.DB, g *gapless.Generator, row, late bool) {
		want := int64(1)
		if row {
			want++
		}
		for _, r := range []struct {
			reopen, commit, refused bool
		}{{false, false, false}, {false, true, true}, {true, false, true}, {true, true, false}} {
			closer := beginAt(t, db, d.readCommitted())
			if r.reopen {
				require.NoError(t, g.ReopenPeriods(t.Context(), closer, "IS", serial.At(october(1))))
			} else {
				require.NoError(t, g.ClosePeriods(t.Context(), closer, "IS", serial.At(october(2))))
			}
			taker := beginAt(t, db, d.readCommitted())
			taken := make(chan error)
			go func() {
				n, err := takes(t.Context(), taker, g, late)
				if err == nil && n.Seq != want {
					err = fmt.Errorf("took %v, want %d", n, want)
				}
				taken <- err
			}()
			d.waiting(t, db, 1)
			if r.commit {
				require.NoError(t, closer.Commit())
			} else {
				require.NoError(t, closer.Rollback())
			}
			err := <-taken
			if r.refused {
				require.ErrorIs(t, err, gapless.ErrPeriodClosed, "%+v", r)
			} else {
				require.NoError(t, err, "%+v", r)
				want++
			}
			require.NoError(t, taker.Commit())
		}
	})
}

// If two transactions close periods of one type, the second waits for the first, whose gate may be the series' first
// row. Then the later of the committed ends holds.
func TestTwoClose(t *testing.T) {
	servers(t, func(t *testing.T, d *database) {
		db := d.open(t)
		for i, r := range []struct {
			used, commit  bool
			first, second int
			until         int
		}{
			{true, true, 3, 5, 5}, {true, true, 5, 3, 5}, {true, false, 5, 3, 3}, {false, true, 5, 3, 5},
			{false, false, 3, 5, 5},
		} {
			g := d.generator(t, db, serial.WithKeyPrefix(fmt.Sprint("two", i)))
			if r.used {
				commits(t, db, func(tx *sql.Tx) {
					require.NoError(t, errOf(g.NextOn(t.Context(), tx, "IS", serial.At(october(1)))))
					require.NoError(t, errOf(g.NextOn(t.Context(), tx, "IS", serial.At(october(4)))))
				})
			}
			first, second := beginAt(t, db, d.readCommitted()), beginAt(t, db, d.readCommitted())
			require.NoError(t, g.ClosePeriods(t.Context(), first, "IS", serial.At(october(r.first))))
			closed := make(chan error)
			go func() { closed <- g.ClosePeriods(t.Context(), second, "IS", serial.At(october(r.second))) }()
			d.waiting(t, db, 1)
			if r.commit {
				require.NoError(t, first.Commit())
			} else {
				require.NoError(t, first.Rollback())
			}
			require.NoError(t, <-closed)
			require.NoError(t, second.Commit())
			requireResult(t, october(r.until), "%+v", r)(g.ClosedUntil(t.Context(), db, "IS"))
			for day := 1; day <= 6; day++ {
				tx := begin(t, db)
				err := errOf(g.NextOn(t.Context(), tx, "IS", serial.At(october(day))))
				if day < r.until {
					require.ErrorIs(t, err, gapless.ErrPeriodClosed, "%+v: day %d", r, day)
				} else {
					require.NoError(t, err, "%+v: day %d", r, day)
				}
				require.NoError(t, tx.Rollback())
			}
		}
	})
}

// At REPEATABLE READ and above, PostgreSQL's snapshot could hide a period's numbers from the closing transaction.
func TestCloseLevels(t *testing.T) {
	d := postgreSQL(t)
	db, g := d.start(t)
	for _, level := range []sql.IsolationLevel{sql.LevelReadUncommitted, sql.LevelRepeatableRead, sql.LevelSerializable} {
		tx := beginAt(t, db, level)
		require.ErrorContains(t, g.ClosePeriods(t.Context(), tx, "IS", serial.At(october(1))), "want READ COMMITTED")
		require.NoError(t, errOf(g.NextOn(t.Context(), tx, "IS", serial.At(october(1)))))
		require.NoError(t, g.ReopenPeriods(t.Context(), tx, "IS", serial.At(october(1))))
		require.NoError(t, tx.Commit())
	}
}

// While hundreds of transactions take numbers of open and closed periods, with all kinds of fates, and others close and
// reopen them, no document gets into a closed period, and no period has a gap.
func TestCloseFates(t *testing.T) {
	const goroutines, rounds, days, cycles = 200, 4, 6, 25
	template := serial.WithTemplate("{type}{date:yyyyMMdd}-{seq:4}")
	each(t, func(t *testing.T, d *database) {
		// Transactions here take a number of the current period first, and then one of a period that has ended. If
		// another closes periods, they may deadlock, for which PostgreSQL checks after a second, unless a superuser
		// sets another time.
		if quick := d.with("deadlock_timeout=20ms"); d.dialect == gapless.PostgreSQL && quick.open(t).Ping() == nil {
			d = quick
		}
		db, admin := d.open(t), d.open(t)
		connections := 40
		if d.dialect == gapless.SQLite {
			connections = 8
		}
		db.SetMaxOpenConns(connections)
		db.SetMaxIdleConns(connections)
		d.documents(t, db)
		g, late, closers := d.generator(t, db, template), d.generator(t, db, template), d.generator(t, db, template)
		kill := func(tx *sql.Tx) error {
			if d.dialect == gapless.SQLite {
				return tx.Rollback()
			}
			id, err := d.connection(t.Context(), tx)
			if err != nil {
				return err
			}
			return d.kill(t.Context(), admin, id)
		}
		var taken, refused, failed atomic.Int64
		run := func(seed uint64) error {
			r := rand.New(rand.NewPCG(seed, 1))
			level := []sql.IsolationLevel{sql.LevelDefault, d.readCommitted()}[r.IntN(2)]
			if d.dialect == gapless.PostgreSQL && seed%5 == 0 {
				level = sql.LevelSerializable
			}
			tx, err := db.BeginTx(t.Context(), &sql.TxOptions{Isolation: level})
			if err != nil {
				return err
			}
			defer func() { _ = tx.Rollback() }()
			document := func() error {
				n, err := g.Next(t.Context(), tx, "IS")
				if r.IntN(5) > 0 {
					if err != nil {
						return err
					}
					if err := store(t.Context(), tx, n); err != nil {
						return err
					}
					if r.IntN(8) == 0 {
						late.Misjudge(time.Until(october(1 + r.IntN(days))))
						n, err = late.NextOn(t.Context(), tx, "IS", serial.At(october(1+r.IntN(days))))
					} else {
						n, err = g.NextOn(t.Context(), tx, "IS", serial.At(october(1+r.IntN(days))))
					}
				}
				if errors.Is(err, gapless.ErrPeriodClosed) {
					refused.Add(1)
					n, err = g.Next(t.Context(), tx, "IS")
				}
				if err == nil {
					taken.Add(1)
				}
				return stored(t.Context(), tx, n, err)
			}
			fate := seed % 6
			if fate == 1 {
				execTx(t, tx, "SAVEPOINT s")
				if err := document(); err != nil {
					return err
				}
				if _, err := tx.ExecContext(t.Context(), "ROLLBACK TO SAVEPOINT s"); err != nil {
					return err
				}
			}
			if err := document(); err != nil {
				return err
			}
			switch fate {
			case 2:
				return tx.Rollback()
			case 3:
				if err := kill(tx); err != nil {
					return err
				}
			}
			return tx.Commit()
		}
		commits(t, db, func(tx *sql.Tx) {
			require.NoError(t, closers.ClosePeriods(t.Context(), tx, "IS", serial.At(october(3))))
		})
		var workers, closing sync.WaitGroup
		var working atomic.Int64
		working.Add(goroutines)
		for i := range goroutines {
			workers.Go(func() {
				defer working.Add(-1)
				for j := range rounds {
					seed := uint64(i*rounds + j)
					err := run(seed)
					for tries := 0; err != nil && tries < 20 && repeatable(err); tries++ {
						err = run(seed)
					}
					if err != nil {
						failed.Add(1)
					}
				}
			})
		}
		count := func(q gapless.Querier, until int) (n int) {
			end := "IS" + october(until).Format("20060102")
			query := "SELECT count(*) FROM documents WHERE number < '" + end + "'"
			if err := q.QueryRowContext(t.Context(), query).Scan(&n); err != nil {
				return -1
			}
			return n
		}
		var closed, stopped atomic.Int64
		ctx := t.Context()
		attempt := func(seed uint64) error {
			r := rand.New(rand.NewPCG(seed, 2))
			day := 2 + r.IntN(days)
			tx, err := admin.BeginTx(ctx, &sql.TxOptions{Isolation: d.readCommitted()})
			if err != nil {
				return err
			}
			defer func() { _ = tx.Rollback() }()
			if err := closers.ClosePeriods(ctx, tx, "IS", serial.At(october(day))); err != nil {
				return err
			}
			before := count(tx, day)
			time.Sleep(time.Duration(r.IntN(5)) * time.Millisecond)
			if after := count(tx, day); before != after {
				t.Errorf("%d documents up to %d when closed, %d before the commit", before, day, after)
			}
			switch seed % 5 {
			case 0:
				stopped.Add(1)
				return tx.Rollback()
			case 1:
				stopped.Add(1)
				return kill(tx)
			}
			if err := tx.Commit(); err != nil {
				return err
			}
			closed.Add(1)
			for seen := refused.Load(); refused.Load() == seen && working.Load() > 0; { // until a taker finds it closed
				time.Sleep(time.Millisecond)
			}
			for {
				err := inTx(ctx, admin, d.readCommitted(), func(tx *sql.Tx) error {
					if err := closers.ReopenPeriods(ctx, tx, "IS", serial.At(october(1+r.IntN(days)))); err != nil {
						return err
					}
					if after := count(tx, day); before != after {
						t.Errorf("%d documents up to %d when closed, %d when reopened", before, day, after)
					}
					return nil
				})
				if err == nil || !repeatable(err) {
					return err
				}
			}
		}
		closing.Go(func() {
			for i := range uint64(cycles) {
				err := attempt(i)
				for err != nil && repeatable(err) {
					err = attempt(i)
				}
				if err != nil && i%5 != 1 {
					t.Errorf("cycle %d: %v", i, err)
				}
			}
		})
		workers.Wait()
		closing.Wait()
		documents := d.requireGapless(t, admin, g, scheme(t, template))
		t.Logf("%d taken, %d refused, %d transactions failed; %d times closed, %d times not committed; %d documents",
			taken.Load(), refused.Load(), failed.Load(), closed.Load(), stopped.Load(), documents)
		require.Positive(t, refused.Load())
		require.Greater(t, closed.Load(), int64(cycles/3))
		require.Greater(t, documents, goroutines*rounds/3)
	})
}

// repeatable reports whether a transaction failed only because of concurrent ones, and may be repeated.
func repeatable(err error) bool {
	var state *pgconn.PgError
	return again(err) || errors.As(err, &state) && (state.Code == "40001" || state.Code == "40P01")
}
