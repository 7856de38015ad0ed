package gapless_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jmoiron/sqlx"
	"github.com/stretchr/testify/require"

	"github.com/dailyserial/serial"
	"github.com/dailyserial/serial/gapless"
)

// documentsOf yields the numbers of all documents that tx sees.
func documentsOf(ctx context.Context, tx *sql.Tx) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		rows, err := tx.QueryContext(ctx, "SELECT number FROM documents")
		if err != nil {
			yield("", err)
			return
		}
		defer func() { _ = rows.Close() }()
		for rows.Next() {
			var number string
			err := rows.Scan(&number)
			if !yield(number, err) || err != nil {
				return
			}
		}
		if err := rows.Err(); err != nil {
			yield("", err)
		}
	}
}

// Fifty workers book into October without a pause. ClosePeriods returns within its deadline, the closing transaction
// sees every document of October, and none is added later.
func TestCloseWhileFiftyBook(t *testing.T) {
	const workers = 50
	servers(t, func(t *testing.T, d *database) {
		for _, days := range []bool{false, true} { // one row for all of October, or one for each day
			opts := []serial.Option{serial.WithPeriod(serial.PerMonth), serial.WithTemplate("{type}{date:yyyyMM}-{seq:6}")}
			if days {
				opts = []serial.Option{serial.WithTemplate("{type}{date:yyyyMMdd}-{seq:6}")}
			}
			t.Run(fmt.Sprintf("days=%v", days), func(t *testing.T) {
				db, admin := d.open(t), d.open(t)
				db.SetMaxIdleConns(workers)
				execSQL(t, db, "DROP TABLE IF EXISTS documents")
				d.documents(t, db)
				opts := append(opts, serial.WithKeyPrefix(fmt.Sprint(days)))
				g, closer := d.generator(t, db, opts...), d.generator(t, db, opts...)
				ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
				defer cancel()
				book := func(day int) error {
					return inTx(ctx, db, sql.LevelDefault, func(tx *sql.Tx) error {
						n, err := g.NextOn(ctx, tx, "IS", serial.At(october(day)))
						return stored(ctx, tx, n, err)
					})
				}
				var booked, refused atomic.Int64
				var working sync.WaitGroup
				for i := range uint64(workers) {
					working.Go(func() {
						r := rand.New(rand.NewPCG(i, 0))
						for {
							err := book(1 + r.IntN(31))
							switch {
							case err == nil:
								booked.Add(1)
								continue
							case errors.Is(err, gapless.ErrPeriodClosed):
								refused.Add(1)
							case repeatable(err):
								continue
							default:
								t.Error(err)
							}
							return
						}
					})
				}
				require.Eventually(t, func() bool { return booked.Load() >= 2*workers }, time.Minute, time.Millisecond)
				tx := beginAt(t, admin, sql.LevelReadCommitted)
				deadline, stop := context.WithTimeout(ctx, 20*time.Second)
				defer stop()
				start := time.Now()
				november := serial.At(time.Date(2021, 11, 1, 0, 0, 0, 0, time.UTC))
				if err := closer.ClosePeriods(deadline, tx, "IS", november); err != nil {
					cancel()
					working.Wait()
					require.NoError(t, err)
				}
				waited, before := time.Since(start), booked.Load()
				seen := 0
				for day := 1; day <= 31; day++ {
					report, err := closer.Audit(t.Context(), tx, "IS", serial.At(october(day)), documentsOf(t.Context(), tx))
					require.NoError(t, err)
					require.True(t, report.Clean(), "%+v", report)
					seen += int(report.Count)
					if !days {
						break
					}
				}
				require.NoError(t, tx.Commit())
				working.Wait()
				t.Logf("closed after %v; %d booked by then, %d documents", waited, before, seen)
				require.EqualValues(t, workers, refused.Load())
				require.Equal(t, seen, d.requireGapless(t, admin, g, g.Scheme()))
			})
		}
	})
}

// Transactions that come after a waiting ClosePeriods or ReopenPeriods queue behind it, at every level of isolation. It
// waits only for those before it.
func TestTakersQueueBehindACloser(t *testing.T) {
	servers(t, func(t *testing.T, d *database) {
		takers := map[string]func(g *gapless.Generator, tx *sql.Tx) error{
			"NextOn with a row": func(g *gapless.Generator, tx *sql.Tx) error {
				return errOf(g.NextOn(t.Context(), tx, "IS", serial.At(october(1))))
			},
			"NextOn without a row": func(g *gapless.Generator, tx *sql.Tx) error {
				return errOf(g.NextOn(t.Context(), tx, "IS", serial.At(october(2))))
			},
			"Raise": func(g *gapless.Generator, tx *sql.Tx) error {
				return g.Raise(t.Context(), tx, "IS", serial.At(october(1)), 5)
			},
			"Next, first": func(g *gapless.Generator, tx *sql.Tx) error { return errOf(g.Next(t.Context(), tx, "IS")) },
			"NextOn for tomorrow": func(g *gapless.Generator, tx *sql.Tx) error {
				return errOf(g.NextOn(t.Context(), tx, "IS", serial.At(time.Now().AddDate(0, 0, 1))))
			},
		}
		levels := []sql.IsolationLevel{sql.LevelReadCommitted, sql.LevelRepeatableRead, sql.LevelSerializable}
		prefix := 0
		for name, take := range takers {
			for _, level := range levels {
				for _, reopens := range []bool{false, true} {
					t.Run(fmt.Sprintf("%s/%v/reopens=%v", name, level, reopens), func(t *testing.T) {
						prefix++
						db, g := d.start(t, serial.WithKeyPrefix(fmt.Sprint("q", prefix)))
						commits(t, db, func(tx *sql.Tx) {
							require.NoError(t, errOf(g.NextOn(t.Context(), tx, "IS", serial.At(october(1)))))
						})
						if reopens {
							d.closes(t, db, g, october(3))
						}
						before, closer, after := begin(t, db), beginAt(t, db, sql.LevelReadCommitted), beginAt(t, db, level)
						require.NoError(t, errOf(g.NextOn(t.Context(), before, "IS", serial.At(october(4)))))
						closed, taken := make(chan error, 1), make(chan error, 1)
						go func() {
							if reopens {
								closed <- g.ReopenPeriods(t.Context(), closer, "IS", serial.At(october(1)))
							} else {
								closed <- g.ClosePeriods(t.Context(), closer, "IS", serial.At(october(5)))
							}
						}()
						d.waiting(t, db, 1)
						go func() { taken <- take(g, after) }()
						d.waiting(t, db, 2)
						require.NoError(t, before.Commit())
						require.NoError(t, <-closed)
						d.waiting(t, db, 1)
						require.NoError(t, closer.Commit())
						err := <-taken
						if open := strings.HasPrefix(name, "Next,") || strings.HasSuffix(name, "tomorrow"); !open && !reopens {
							require.Error(t, err)
							require.True(t, errors.Is(err, gapless.ErrPeriodClosed) || repeatable(err), "%v", err)
						} else if !repeatable(err) {
							require.NoError(t, err)
						}
						if level == sql.LevelReadCommitted {
							require.False(t, err != nil && repeatable(err), "%v", err)
						}
					})
				}
			}
		}
	})
}

// The gate belongs to one series: a type, key prefix, table and schema.
func TestGateIsOfOneSeries(t *testing.T) {
	servers(t, func(t *testing.T, d *database) {
		db, g := d.start(t)
		closer := beginAt(t, db, sql.LevelReadCommitted)
		require.NoError(t, g.ClosePeriods(t.Context(), closer, "IS", serial.At(october(5))))
		another, err := gapless.New(d.dialect, scheme(t), gapless.WithTable("another"))
		require.NoError(t, err)
		require.NoError(t, another.CreateTable(t.Context(), db))
		elsewhere := postgreSQL
		if d.dialect == gapless.MySQL {
			elsewhere = mariaDB
		}
		e := elsewhere(t)
		far := e.open(t)
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		for _, r := range []struct {
			g   *gapless.Generator
			db  *sql.DB
			typ string
		}{
			{g, db, "IR"}, {g, db, "IT"}, {d.generator(t, db, serial.WithKeyPrefix("other")), db, "IS"}, {another, db, "IS"},
			{e.generator(t, far), far, "IS"},
		} {
			tx := begin(t, r.db)
			require.NoError(t, errOf(r.g.NextOn(ctx, tx, r.typ, serial.At(october(1)))))
			require.NoError(t, tx.Commit())
		}
	})
}

// Closing and reopening wait for no neighbour in the table, and no neighbour waits for them, whatever locks are needed
// and at whichever end of the series its rows are. The same holds for the series' own current period.
func TestNeighboursGoOn(t *testing.T) {
	servers(t, func(t *testing.T, d *database) {
		levels := []sql.IsolationLevel{sql.LevelReadCommitted}
		if d.dialect == gapless.MySQL {
			levels = append(levels, sql.LevelRepeatableRead) // only with rows that exist
		}
		for i, level := range slices.Concat(levels, levels) {
			holds := i < len(levels) // others hold their rows meanwhile
			db, g := d.start(t, serial.WithKeyPrefix(fmt.Sprint("n", i)))
			for _, typ := range []string{"IR", "IS", "IT"} {
				commits(t, db, func(tx *sql.Tx) {
					for day := 1; day <= 3; day++ {
						require.NoError(t, errOf(g.NextOn(t.Context(), tx, typ, serial.At(october(day)))))
					}
					require.NoError(t, errOf(g.Next(t.Context(), tx, typ)))
				})
			}
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			for _, change := range []func(tx *sql.Tx) error{
				func(tx *sql.Tx) error { return g.ClosePeriods(ctx, tx, "IS", serial.At(october(3))) },
				func(tx *sql.Tx) error { return g.ClosePeriods(ctx, tx, "IS", serial.At(october(6))) },
				func(tx *sql.Tx) error { return g.ReopenPeriods(ctx, tx, "IS", serial.At(october(2))) },
			} {
				var held []*sql.Tx
				for _, typ := range []string{"IR", "IS", "IT"} {
					tx := begin(t, db)
					require.NoError(t, errOf(g.Next(t.Context(), tx, typ)))
					if typ != "IS" {
						require.NoError(t, errOf(g.NextOn(t.Context(), tx, typ, serial.At(october(1)))))
					}
					if held = append(held, tx); !holds {
						require.NoError(t, tx.Rollback())
					}
				}
				closer := beginAt(t, db, level)
				require.NoError(t, change(closer))
				for _, tx := range held {
					if holds {
						require.NoError(t, tx.Commit())
					}
				}
				for _, typ := range []string{"IR", "IS", "IT"} {
					tx := begin(t, db)
					require.NoError(t, errOf(g.Next(ctx, tx, typ)))
					if typ != "IS" {
						require.NoError(t, errOf(g.NextOn(ctx, tx, typ, serial.At(october(1)))))
						if level == sql.LevelReadCommitted {
							require.NoError(t, errOf(g.NextOn(ctx, tx, typ, serial.At(time.Now().AddDate(0, 0, 1)))))
							require.NoError(t, errOf(g.NextOn(ctx, tx, typ, serial.At(october(0)))))
						}
					}
					require.NoError(t, tx.Rollback())
				}
				require.NoError(t, closer.Commit())
			}
		}
	})
}

// rowsOf returns all rows of the tables.
func rowsOf(t *testing.T, db *sql.DB) (rows []string) {
	t.Helper()
	found, err := db.QueryContext(t.Context(), "SELECT series, period, mark, previous, last, closed FROM serial_gapless "+
		"UNION ALL SELECT series, '', calendar, 0, 0, closed FROM serial_gapless_series ORDER BY series, period")
	require.NoError(t, err)
	defer func() { require.NoError(t, found.Close()) }()
	for found.Next() {
		var series, period, mark []byte
		var previous, last int64
		var closed sql.NullInt64
		require.NoError(t, found.Scan(&series, &period, &mark, &previous, &last, &closed))
		rows = append(rows, fmt.Sprintf("%s %s %s %d %d %v", series, period, mark, previous, last, closed))
	}
	require.NoError(t, found.Err())
	return rows
}

// At REPEATABLE READ, MariaDB's snapshot hides later commits from a closing transaction. That is an error, and nothing
// is written; at READ COMMITTED, the documents are seen.
func TestCloseBehindASnapshot(t *testing.T) {
	d := mariaDB(t)
	db := d.open(t)
	d.documents(t, db)
	g := d.generator(t, db, serial.WithTemplate("{type}{date:yyyyMMdd}-{seq:4}"))
	books := func(tx *sql.Tx, typ string, at time.Time) {
		t.Helper()
		n, err := g.NextOn(t.Context(), tx, typ, serial.At(at))
		require.NoError(t, err)
		require.NoError(t, store(t.Context(), tx, n))
	}
	cases := map[string]struct {
		snapshot bool // the closing transaction has already read
		change   func(t *testing.T, typ string, closing func())
		old      bool // its snapshot lacks something then
	}{
		"nothing": {true, func(_ *testing.T, _ string, closing func()) { closing() }, false},
		"another period": {true, func(t *testing.T, typ string, closing func()) {
			commits(t, db, func(tx *sql.Tx) { books(tx, typ, october(9)) })
			closing()
		}, false},
		"a number": {true, func(t *testing.T, typ string, closing func()) {
			commits(t, db, func(tx *sql.Tx) { books(tx, typ, october(1)) })
			closing()
		}, true},
		"a number of a new period": {true, func(t *testing.T, typ string, closing func()) {
			commits(t, db, func(tx *sql.Tx) { books(tx, typ, october(2)) })
			closing()
		}, true},
		"a number of a new period before all others": {true, func(t *testing.T, typ string, closing func()) {
			commits(t, db, func(tx *sql.Tx) { books(tx, typ, october(0)) })
			closing()
		}, true},
		"a number that is waited for": {true, func(t *testing.T, typ string, closing func()) {
			tx := begin(t, db)
			books(tx, typ, october(2))
			closing()
			d.waiting(t, db, 1)
			require.NoError(t, tx.Commit())
		}, true},
		"a number that was taken in time": {false, func(t *testing.T, typ string, closing func()) {
			tx := begin(t, db)
			late := d.generator(t, db, serial.WithTemplate("{type}{date:yyyyMMdd}-{seq:4}"))
			late.Misjudge(time.Until(october(1)))
			n, err := late.NextOn(t.Context(), tx, typ, serial.At(october(1))) // without the gate
			require.NoError(t, err)
			require.NoError(t, store(t.Context(), tx, n))
			closing()
			d.waiting(t, db, 1)
			require.NoError(t, tx.Commit())
		}, true},
		"a wait without an earlier snapshot": {false, func(t *testing.T, typ string, closing func()) {
			tx := begin(t, db)
			books(tx, typ, october(2))
			closing()
			d.waiting(t, db, 1)
			require.NoError(t, tx.Commit())
		}, false},
	}
	i := 0
	for name, c := range cases {
		for _, level := range []sql.IsolationLevel{sql.LevelRepeatableRead, sql.LevelReadCommitted} {
			i++
			typ := fmt.Sprint("T", i)
			t.Run(fmt.Sprintf("%s/%v", name, level), func(t *testing.T) {
				commits(t, db, func(tx *sql.Tx) { books(tx, typ, october(1)) })
				tx := beginAt(t, db, level)
				if c.snapshot {
					require.NoError(t, errOf(g.Last(t.Context(), tx, typ, serial.At(october(1)))))
				}
				closed := make(chan error, 1)
				c.change(t, typ, func() { go func() { closed <- g.ClosePeriods(t.Context(), tx, typ, serial.At(october(5))) }() })
				err := <-closed
				if c.old && level == sql.LevelRepeatableRead {
					require.ErrorContains(t, err, "READ COMMITTED")
					before := rowsOf(t, db)
					require.NoError(t, tx.Commit())
					require.Equal(t, before, rowsOf(t, db))
					commits(t, db, func(tx *sql.Tx) { books(tx, typ, october(1)) })
					return
				}
				require.NoError(t, err)
				for day := 1; day < 5; day++ {
					report, err := g.Audit(t.Context(), tx, typ, serial.At(october(day)), documentsOf(t.Context(), tx))
					require.NoError(t, err)
					require.True(t, report.Clean(), "%+v", report)
				}
				require.NoError(t, tx.Commit())
				for day := 1; day < 5; day++ {
					require.ErrorIs(t, errOf(g.NextOn(t.Context(), begin(t, db), typ, serial.At(october(day)))),
						gapless.ErrPeriodClosed)
				}
			})
		}
	}
}

// Closing periods without numbers waits for no neighbour, and no neighbour waits for it. A snapshot that lacks the very
// first number is detected, too.
func TestCloseOfNothing(t *testing.T) {
	servers(t, func(t *testing.T, d *database) {
		db, g := d.start(t)
		var held []*sql.Tx
		for _, typ := range []string{"IR", "IS", "IT"} {
			commits(t, db, func(tx *sql.Tx) {
				require.NoError(t, errOf(g.Next(t.Context(), tx, typ)))
				if typ != "IS" {
					require.NoError(t, errOf(g.NextOn(t.Context(), tx, typ, serial.At(october(1)))))
				}
			})
			tx := begin(t, db)
			require.NoError(t, errOf(g.Next(t.Context(), tx, typ)))
			held = append(held, tx)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		closer := beginAt(t, db, sql.LevelReadCommitted)
		require.NoError(t, g.ClosePeriods(ctx, closer, "IS", serial.At(october(3))))
		for _, tx := range held {
			require.NoError(t, tx.Commit())
		}
		for _, typ := range []string{"IR", "IS", "IT"} {
			tx := begin(t, db)
			require.NoError(t, errOf(g.Next(ctx, tx, typ)))
			if typ != "IS" {
				require.NoError(t, errOf(g.NextOn(ctx, tx, typ, serial.At(october(1)))))
			}
			require.NoError(t, tx.Rollback())
		}
		require.NoError(t, closer.Commit())
		if d.dialect != gapless.MySQL {
			return // ClosePeriods refuses its level
		}
		tx := beginAt(t, db, sql.LevelRepeatableRead)
		require.NoError(t, errOf(g.Last(ctx, tx, "NEW", serial.At(october(1)))))
		commits(t, db, func(tx *sql.Tx) { require.NoError(t, errOf(g.NextOn(ctx, tx, "NEW", serial.At(october(1))))) })
		require.ErrorContains(t, g.ClosePeriods(ctx, tx, "NEW", serial.At(october(3))), "READ COMMITTED")
	})
}

// A snapshot older than a closing does not know which rows to reopen.
func TestReopenBehindASnapshot(t *testing.T) {
	for name, d := range map[string]*database{"PostgreSQL": postgreSQL(t), "MariaDB": mariaDB(t)} {
		t.Run(name, func(t *testing.T) {
			db, g := d.start(t)
			commits(t, db, func(tx *sql.Tx) {
				require.NoError(t, errOf(g.NextOn(t.Context(), tx, "IS", serial.At(october(1)))))
			})
			tx := beginAt(t, db, sql.LevelRepeatableRead)
			require.NoError(t, errOf(g.Last(t.Context(), tx, "IS", serial.At(october(1)))))
			d.closes(t, db, g, october(2))
			err := g.ReopenPeriods(t.Context(), tx, "IS", serial.At(october(1)))
			require.Error(t, err)
			if d.dialect == gapless.MySQL {
				require.ErrorContains(t, err, "READ COMMITTED")
				require.NoError(t, tx.Commit())
			} else {
				require.True(t, repeatable(err), "%v", err)
				require.NoError(t, tx.Rollback())
			}
			requireResult(t, october(2))(g.ClosedUntil(t.Context(), db, "IS"))
			commits(t, db, func(tx *sql.Tx) {
				require.NoError(t, g.ReopenPeriods(t.Context(), tx, "IS", serial.At(october(1))))
			})
			commits(t, db, func(tx *sql.Tx) { require.NoError(t, errOf(takes(t.Context(), tx, g, true))) })
		})
	}
}

// MariaDB itself can detect that a snapshot is too old.
func TestCloseWithSnapshotIsolation(t *testing.T) {
	d := mariaDB(t).with("innodb_snapshot_isolation=ON")
	db := d.open(t)
	if err := db.PingContext(t.Context()); err != nil {
		skip(t, "no innodb_snapshot_isolation: %v", err)
	}
	g := d.generator(t, db)
	for _, level := range []sql.IsolationLevel{sql.LevelRepeatableRead, sql.LevelReadCommitted} {
		tx := beginAt(t, db, level)
		require.NoError(t, errOf(g.Last(t.Context(), tx, "IS", serial.At(october(1)))))
		commits(t, db, func(tx *sql.Tx) {
			require.NoError(t, errOf(g.NextOn(t.Context(), tx, "IS", serial.At(october(1)))))
		})
		err := g.ClosePeriods(t.Context(), tx, "IS", serial.At(october(2)))
		if level == sql.LevelReadCommitted {
			require.NoError(t, err)
			require.NoError(t, tx.Commit())
			continue
		}
		require.ErrorContains(t, err, "want READ COMMITTED")
		require.NoError(t, tx.Rollback())
		require.NoError(t, errOf(g.ClosedUntil(t.Context(), db, "IS")))
	}
}

// A closing transaction leaves unused rows alone: transactions that wait for the gate hold their locks.
func TestCloseIgnoresUnusedRows(t *testing.T) {
	d := mariaDB(t)
	db := d.open(t)
	closer := d.generator(t, db)
	commits(t, db, func(tx *sql.Tx) {
		require.NoError(t, errOf(closer.NextOn(t.Context(), tx, "IS", serial.At(october(1)))))
		require.NoError(t, closer.Raise(t.Context(), tx, "IS", serial.At(october(2)), 0))
	})
	late := func(tx *sql.Tx, day int) error {
		g := d.generator(t, db)
		g.Misjudge(time.Until(october(day)))
		return errOf(g.NextOn(t.Context(), tx, "IS", serial.At(october(day))))
	}
	before, closing, after := begin(t, db), beginAt(t, db, sql.LevelReadCommitted), begin(t, db)
	require.NoError(t, late(before, 1))
	closed, taken := make(chan error, 1), make(chan error, 1)
	go func() { closed <- closer.ClosePeriods(t.Context(), closing, "IS", serial.At(october(3))) }()
	d.waiting(t, db, 1)
	go func() { taken <- late(after, 2) }()
	d.waiting(t, db, 2)
	require.NoError(t, before.Commit())
	require.NoError(t, <-closed)
	require.NoError(t, closing.Commit())
	require.ErrorIs(t, <-taken, gapless.ErrPeriodClosed)
	require.NoError(t, after.Commit())
	require.ErrorIs(t, late(begin(t, db), 2), gapless.ErrPeriodClosed)
}

// At no level of isolation do numbers of the current period wait for a transaction that closes others.
func TestCurrentPeriodAtEveryLevel(t *testing.T) {
	servers(t, func(t *testing.T, d *database) {
		db, g := d.start(t)
		commits(t, db, func(tx *sql.Tx) { require.NoError(t, errOf(g.Next(t.Context(), tx, "IS"))) })
		closer := beginAt(t, db, sql.LevelReadCommitted)
		require.NoError(t, g.ClosePeriods(t.Context(), closer, "IS", serial.At(october(2))))
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		for _, level := range []sql.IsolationLevel{sql.LevelReadCommitted, sql.LevelRepeatableRead, sql.LevelSerializable} {
			tx := beginAt(t, db, level)
			require.NoError(t, errOf(g.Next(ctx, tx, "IS")), level)
			require.NoError(t, tx.Commit())
		}
		require.NoError(t, closer.Commit())
	})
}

// The error for a closed period names the end of the latest closing, at every level of isolation and with every clock.
func TestClosedErrorNamesTheEnd(t *testing.T) {
	each(t, func(t *testing.T, d *database) {
		db, g := d.start(t)
		commits(t, db, func(tx *sql.Tx) {
			require.NoError(t, errOf(g.NextOn(t.Context(), tx, "IS", serial.At(october(1)))))
		})
		d.closes(t, db, g, october(2))
		d.closes(t, db, g, october(5))
		levels := []sql.IsolationLevel{sql.LevelReadCommitted, sql.LevelRepeatableRead, sql.LevelSerializable}
		if d.dialect == gapless.SQLite {
			levels = []sql.IsolationLevel{sql.LevelDefault}
		}
		for _, level := range levels {
			for _, late := range []bool{false, true} {
				tx := beginAt(t, db, level)
				_, err := takes(t.Context(), tx, d.generator(t, db), late)
				require.ErrorIs(t, err, gapless.ErrPeriodClosed)
				require.ErrorContains(t, err, "2021-10-05T00:00:00Z", "%v, late: %v", level, late)
				require.NotContains(t, err.Error(), "2021-10-02T00")
				require.NoError(t, tx.Rollback())
			}
		}
	})
}

// old is a transaction of a server without SKIP LOCKED.
type old struct{ *sql.Tx }

func (tx old) QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row {
	return tx.Tx.QueryRowContext(ctx, strings.Replace(query, "SKIP LOCKED", "SKIP WHAT", 1), args...)
}

func TestCloseWithoutSkipLocked(t *testing.T) {
	d := mariaDB(t)
	db, g := d.start(t)
	commits(t, db, func(tx *sql.Tx) {
		require.NoError(t, errOf(g.NextOn(t.Context(), tx, "IS", serial.At(october(1)))))
	})
	for _, typ := range []string{"IS", "NEW"} {
		before := rowsOf(t, db)
		commits(t, db, func(tx *sql.Tx) {
			const want = "SKIP LOCKED; want MariaDB 10.6, MySQL 8.0 or later"
			require.ErrorContains(t, g.ClosePeriods(t.Context(), old{tx}, typ, serial.At(october(2))), want)
		})
		require.Equal(t, before, rowsOf(t, db))
	}
	commits(t, db, func(tx *sql.Tx) {
		require.NoError(t, errOf(g.NextOn(t.Context(), tx, "IS", serial.At(october(1)))))
	})
}

// If the closing process dies, while waiting or afterwards, nothing is closed, and the transactions behind it continue.
func TestCloserDies(t *testing.T) {
	servers(t, func(t *testing.T, d *database) {
		for _, waits := range []bool{true, false} {
			db, g := d.start(t, serial.WithKeyPrefix(fmt.Sprint(waits)))
			commits(t, db, func(tx *sql.Tx) {
				require.NoError(t, errOf(g.NextOn(t.Context(), tx, "IS", serial.At(october(1)))))
			})
			before, closer, after := begin(t, db), beginAt(t, db, sql.LevelReadCommitted), begin(t, db)
			id, err := d.connection(t.Context(), closer)
			require.NoError(t, err)
			closed, taken := make(chan error, 1), make(chan error, 1)
			if waits {
				require.NoError(t, errOf(g.NextOn(t.Context(), before, "IS", serial.At(october(1)))))
			}
			go func() { closed <- g.ClosePeriods(t.Context(), closer, "IS", serial.At(october(2))) }()
			if waits {
				d.waiting(t, db, 1)
			} else {
				require.NoError(t, <-closed)
			}
			go func() { taken <- errOf(g.NextOn(t.Context(), after, "IS", serial.At(october(2)))) }()
			if waits {
				d.waiting(t, db, 2)
			} else {
				d.waiting(t, db, 1)
			}
			require.NoError(t, d.kill(t.Context(), db, id))
			require.NoError(t, <-taken)
			if waits {
				require.Error(t, <-closed)
				require.NoError(t, before.Commit())
			}
			require.NoError(t, after.Commit())
			_ = closer.Rollback()
			until, err := g.ClosedUntil(t.Context(), db, "IS")
			require.NoError(t, err)
			require.Zero(t, until)
			commits(t, db, func(tx *sql.Tx) {
				require.NoError(t, errOf(g.NextOn(t.Context(), tx, "IS", serial.At(october(1)))))
			})
		}
	})
}

// If a closing transaction waits longer than its deadline, nothing is closed, and the transactions behind it continue.
func TestCloserGivesUp(t *testing.T) {
	d := postgreSQL(t)
	db, g := d.start(t)
	commits(t, db, func(tx *sql.Tx) {
		require.NoError(t, errOf(g.NextOn(t.Context(), tx, "IS", serial.At(october(9)))))
	})
	before, closer, after := begin(t, db), beginAt(t, db, sql.LevelReadCommitted), begin(t, db)
	require.NoError(t, errOf(g.NextOn(t.Context(), before, "IS", serial.At(october(1)))))
	ctx, cancel := context.WithCancel(t.Context())
	closed, taken := make(chan error, 1), make(chan error, 1)
	go func() { closed <- g.ClosePeriods(ctx, closer, "IS", serial.At(october(2))) }()
	d.waiting(t, db, 1)
	go func() { taken <- errOf(g.NextOn(t.Context(), after, "IS", serial.At(october(2)))) }()
	d.waiting(t, db, 2)
	cancel()
	require.ErrorIs(t, <-closed, context.Canceled)
	require.NoError(t, <-taken)
	require.NoError(t, before.Commit())
	require.NoError(t, after.Commit())
}

// A transaction may close periods in which it has taken numbers, take others, and close again, also through sqlx.
func TestCloseInOneTransaction(t *testing.T) {
	each(t, func(t *testing.T, d *database) {
		db, g := d.start(t)
		tx, err := sqlx.NewDb(db, "").BeginTxx(t.Context(), &sql.TxOptions{Isolation: d.readCommitted()})
		require.NoError(t, err)
		defer func() { _ = tx.Rollback() }()
		for day := 1; day < 4; day++ {
			require.NoError(t, errOf(g.NextOn(t.Context(), tx, "IS", serial.At(october(day)))))
			require.NoError(t, g.ClosePeriods(t.Context(), tx, "IS", serial.At(october(day+1))))
			require.ErrorIs(t, errOf(g.NextOn(t.Context(), tx, "IS", serial.At(october(day)))), gapless.ErrPeriodClosed)
			require.ErrorIs(t, g.Raise(t.Context(), tx, "IS", serial.At(october(1)), 7), gapless.ErrPeriodClosed)
			require.NoError(t, errOf(g.NextOn(t.Context(), tx, "IS", serial.At(october(day+2)))))
		}
		require.NoError(t, g.ReopenPeriods(t.Context(), tx, "IS", serial.At(october(2))))
		require.NoError(t, errOf(g.NextOn(t.Context(), tx, "IS", serial.At(october(2)))))
		require.NoError(t, tx.Commit())
		requireResult(t, october(2))(g.ClosedUntil(t.Context(), db, "IS"))
	})
}

// Transactions that take numbers of two periods, the older one first, never deadlock with one that closes both.
func TestNoDeadlockWithACloser(t *testing.T) {
	servers(t, func(t *testing.T, d *database) {
		db := d.open(t)
		db.SetMaxOpenConns(16)
		db.SetMaxIdleConns(16)
		d.documents(t, db)
		g := d.generator(t, db, serial.WithTemplate("{type}{date:yyyyMMdd}-{seq:4}"))
		commits(t, db, func(tx *sql.Tx) {
			require.NoError(t, errOf(g.NextOn(t.Context(), tx, "IS", serial.At(october(0)))))
		})
		run := func(f func(tx *sql.Tx) error) {
			tx, err := db.BeginTx(t.Context(), &sql.TxOptions{Isolation: sql.LevelReadCommitted})
			if err == nil {
				if err = f(tx); err == nil || errors.Is(err, gapless.ErrPeriodClosed) {
					err = tx.Commit()
				}
				_ = tx.Rollback()
			}
			if err != nil {
				t.Error(err)
			}
		}
		var working sync.WaitGroup
		for i := range 12 {
			working.Go(func() {
				r := rand.New(rand.NewPCG(uint64(i), 0))
				for range 25 {
					day := 1 + r.IntN(20)
					run(func(tx *sql.Tx) error {
						for _, on := range []int{day, day + 1 + r.IntN(4)} {
							n, err := g.NextOn(t.Context(), tx, "IS", serial.At(october(on)))
							if err := stored(t.Context(), tx, n, err); err != nil {
								return err
							}
						}
						return nil
					})
				}
			})
		}
		for i := range 20 {
			run(func(tx *sql.Tx) error { return g.ClosePeriods(t.Context(), tx, "IS", serial.At(october(1+i))) })
			if i%3 == 2 {
				run(func(tx *sql.Tx) error { return g.ReopenPeriods(t.Context(), tx, "IS", serial.At(october(i-1))) })
			}
		}
		working.Wait()
		require.Positive(t, d.requireGapless(t, db, g, g.Scheme()))
	})
}

// Closing reads and writes only the rows that change, however many are closed already.
func TestCloseTouchesWhatChanges(t *testing.T) {
	const closed, limit = 20_000, 200
	servers(t, func(t *testing.T, d *database) {
		db, g := d.start(t, serial.WithPeriod(serial.PerMinute), serial.WithTemplate("{type}{date:yyyyMMddHHmm}-{seq:4}"))
		start := october(1)
		commits(t, db, func(tx *sql.Tx) {
			require.NoError(t, errOf(g.NextOn(t.Context(), tx, "IS", serial.At(start))))
		})
		fill := "INSERT INTO serial_gapless SELECT series, convert_to(to_char(timestamp '2021-10-01' + i * interval '1 " +
			"minute', " +
			"'YYYYMMDDHH24MI'), 'UTF8'), mark, 0, 1, NULL FROM serial_gapless, generate_series(1, %d) i"
		touched := "SELECT sum(seq_tup_read + idx_tup_fetch + n_tup_upd) FROM pg_stat_xact_user_tables WHERE relname LIKE " +
			"'serial_gapless%'"
		if d.dialect == gapless.MySQL {
			fill = "INSERT INTO serial_gapless SELECT series, date_format(date_add('2021-10-01', INTERVAL seq MINUTE), " +
				"'%%Y%%m%%d%%H%%i'), mark, 0, 1, NULL FROM serial_gapless, seq_1_to_%d"
			touched = "SELECT sum(variable_value) FROM information_schema.session_status WHERE variable_name IN " +
				"('HANDLER_READ_KEY', " +
				"'HANDLER_READ_NEXT', 'HANDLER_READ_PREV', 'HANDLER_READ_FIRST', 'HANDLER_READ_LAST', 'HANDLER_READ_RND_NEXT')"
		}
		execSQL(t, db, fmt.Sprintf(fill, closed+10))
		if d.dialect == gapless.MySQL {
			short := d.with("group_concat_max_len=40").open(t)
			tx := beginAt(t, short, sql.LevelReadCommitted)
			require.ErrorContains(t, g.ClosePeriods(t.Context(), tx, "IS", serial.At(start.Add(closed*time.Minute))),
				"group_concat_max_len")
			require.NoError(t, tx.Rollback())
		}
		d.closes(t, db, g, start.Add(closed*time.Minute))
		var open int
		require.NoError(t, db.QueryRowContext(t.Context(),
			"SELECT count(*) FROM serial_gapless WHERE closed IS NULL").Scan(&open))
		require.Equal(t, 11, open, "over all batches")
		execSQL(t, db, map[gapless.Dialect]string{gapless.PostgreSQL: "VACUUM ANALYZE serial_gapless",
			gapless.MySQL: "ANALYZE TABLE serial_gapless"}[d.dialect])
		for _, change := range []func(tx *sql.Tx) error{
			func(tx *sql.Tx) error {
				return g.ClosePeriods(t.Context(), tx, "IS", serial.At(start.Add((closed+3)*time.Minute)))
			},
			func(tx *sql.Tx) error {
				return g.ReopenPeriods(t.Context(), tx, "IS", serial.At(start.Add((closed+1)*time.Minute)))
			},
			func(tx *sql.Tx) error {
				return g.ClosePeriods(t.Context(), tx, "IS", serial.At(start.Add(closed*time.Minute)))
			},
			func(tx *sql.Tx) error {
				return g.ClosePeriods(t.Context(), tx, "IS", serial.At(start.Add((closed+5)*time.Minute)))
			},
		} {
			tx := beginAt(t, db, sql.LevelReadCommitted)
			count := func() (n float64) {
				require.NoError(t, tx.QueryRowContext(t.Context(), touched).Scan(&n))
				return n
			}
			before := count()
			require.NoError(t, change(tx))
			require.Less(t, count()-before, float64(limit))
			require.NoError(t, tx.Commit())
		}
		require.ErrorIs(t, errOf(g.NextOn(t.Context(), begin(t, db), "IS", serial.At(start.Add((closed+4)*time.Minute)))),
			gapless.ErrPeriodClosed)
		require.NoError(t, errOf(g.NextOn(t.Context(), begin(t, db), "IS", serial.At(start.Add((closed+5)*time.Minute)))))
	})
}
