package gapless_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dailyserial/serial"
	"github.com/dailyserial/serial/gapless"
)

// requireGapless checks that the documents of each type have the numbers from 1 to the last one. This holds at every
// instant, so the check uses one snapshot: a COMMIT whose context has ended may still be in progress.
func (d *database) requireGapless(t *testing.T, db *sql.DB, g *gapless.Generator) (count int) {
	t.Helper()
	level := sql.LevelRepeatableRead
	if d.dialect == gapless.SQLite {
		level = sql.LevelDefault
	}
	tx := beginAt(t, db, level)
	defer func() { _ = tx.Rollback() }()
	rows, err := tx.QueryContext(t.Context(), "SELECT number FROM documents")
	require.NoError(t, err)
	seqs := map[string][]int64{}
	for rows.Next() {
		var text string
		require.NoError(t, rows.Scan(&text))
		n, err := g.Scheme().Parse(text)
		require.NoError(t, err)
		seqs[n.Type] = append(seqs[n.Type], n.Seq)
		count++
	}
	require.NoError(t, rows.Err())
	require.NoError(t, rows.Close())
	for typ, found := range seqs {
		slices.Sort(found)
		for i, seq := range found {
			require.Equal(t, int64(i+1), seq, "%s has a gap or a duplicate: %v", typ, found)
		}
		requireSeq(t, int64(len(found)), typ)(g.Last(t.Context(), tx, typ, serial.At(october(24))))
	}
	return count
}

// Contexts of transactions end at random moments. Other transactions are rolled back or take several numbers. At every
// moment, the documents must have no gap and no duplicate.
func TestContextsEndAtRandom(t *testing.T) {
	const goroutines, rounds = 16, 10
	each(t, func(t *testing.T, d *database) {
		db := d.open(t)
		db.SetMaxOpenConns(8)
		db.SetMaxIdleConns(8)
		execSQL(t, db, "CREATE TABLE documents (number varchar(100) NOT NULL PRIMARY KEY)")
		g := d.generator(t, db)
		commits(t, db, func(tx *sql.Tx) { // on MariaDB, callers that wait for a first number may get a deadlock
			for _, typ := range []string{"A", "B"} {
				require.NoError(t, g.Raise(t.Context(), tx, typ, serial.At(october(24)), 0))
			}
		})
		run := func(r *rand.Rand) error {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			end, typ := r.IntN(4), []string{"A", "B"}[r.IntN(2)]
			if end == 0 {
				time.AfterFunc(time.Duration(r.IntN(5000))*time.Microsecond, cancel)
			}
			err := inTx(ctx, db, d.readCommitted(), func(tx *sql.Tx) error {
				for range 1 + r.IntN(2) {
					n, err := g.NextOn(ctx, tx, typ, serial.At(october(24)))
					if err != nil {
						return err
					}
					if _, err := tx.ExecContext(ctx, "INSERT INTO documents VALUES ('"+n.String()+"')"); err != nil {
						return err
					}
				}
				if end == 1 {
					return tx.Rollback()
				}
				return nil
			})
			if end <= 1 {
				return nil
			}
			return err
		}
		var workers sync.WaitGroup
		for i := range goroutines {
			workers.Go(func() {
				r := rand.New(rand.NewPCG(uint64(i), 0))
				for range rounds {
					err := run(r)
					for err != nil && (repeatable(err) || errors.Is(err, driver.ErrBadConn)) {
						err = run(r)
					}
					if err != nil {
						t.Error(err)
					}
				}
			})
		}
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			workers.Wait()
		}()
		for running := true; running; d.requireGapless(t, db, g) {
			select {
			case <-ended:
				running = false
			case <-time.After(10 * time.Millisecond):
			}
		}
		require.Greater(t, d.requireGapless(t, db, g), goroutines*rounds/3)
	})
}

// The contexts of NextOn and ClosePeriods end while both are waiting for another transaction. Their errors must match
// the error of the context. Nothing is closed, and other callers can continue.
func TestContextEndsWhileWaiting(t *testing.T) {
	servers(t, func(t *testing.T, d *database) {
		db, g := d.start(t)
		blocker, tx, closing := begin(t, db), begin(t, db), beginAt(t, db, sql.LevelReadCommitted)
		require.NoError(t, onlyErr(g.NextOn(t.Context(), blocker, "IS", serial.At(october(1)))))
		ctx, cancel := context.WithCancel(t.Context())
		failed, closed := make(chan error, 1), make(chan error, 1)
		id, closingID := d.connection(t, tx), d.connection(t, closing)
		go func() { failed <- onlyErr(g.NextOn(ctx, tx, "IS", serial.At(october(1)))) }()
		go func() { closed <- g.ClosePeriods(ctx, closing, "IS", serial.At(october(2))) }()
		require.Eventually(t, func() bool { return d.waits(t, db, id) && d.waits(t, db, closingID) }, 30*time.Second,
			time.Millisecond)
		cancel()
		require.ErrorIs(t, <-failed, context.Canceled)
		require.ErrorIs(t, <-closed, context.Canceled)
		_, _ = tx.Rollback(), closing.Rollback()
		require.NoError(t, blocker.Rollback())
		commits(t, db, func(tx *sql.Tx) { requireSeq(t, 1)(g.NextOn(t.Context(), tx, "IS", serial.At(october(1)))) })
	})
}

// Calls wait for other transactions while a day ends. The result must depend on the time of the database's clock at
// which each call has got its locks.
func TestDayEndsWhileWaiting(t *testing.T) {
	type call struct {
		g             *gapless.Generator
		first, waiter *sql.Tx
		id            int64
		number        serial.Number
		result        chan error
	}
	kinds(t, servers, func(t *testing.T, d *database) {
		t.Parallel()
		db := d.open(t)
		d.chronological(t, db) // no column can be added while other transactions use the table
		begins := func(prefix string, ends time.Time, opts ...serial.Option) *call {
			start := ends.Sub(ends.Truncate(24 * time.Hour)) // time of day at which the business day ends
			opts = append(opts, serial.WithDayStart(start), serial.WithKeyPrefix(prefix))
			c := &call{first: begin(t, db), waiter: beginAt(t, db, sql.LevelReadCommitted), result: make(chan error, 1)}
			if c.g = d.generator(t, db, opts...); strings.HasPrefix(prefix, "dates") {
				c.g = d.chronological(t, db, opts...)
			}
			requireSeq(t, 1)(c.g.Next(t.Context(), c.first, "IS"))
			c.id = d.connection(t, c.waiter)
			go func() {
				n, err := c.g.NextN(t.Context(), c.waiter, "IS", 1)
				if err == nil {
					c.number = n[0]
				}
				c.result <- err
			}()
			return c
		}
		perYear := serial.WithPeriod(serial.PerYear)
		for attempt := 0; ; attempt++ {
			now := d.clock(t, db).UTC()
			ends := now.Add(3 * time.Second).Truncate(time.Second)
			last := scheme(t, serial.WithDayStart(ends.Sub(ends.Truncate(24*time.Hour)))).BusinessDate(serial.At(now))
			id := fmt.Sprint(attempt)
			days := begins("days"+id, ends)
			years := begins("years"+id, ends, perYear, serial.WithTemplate("{type}{date:yyyyMMdd}-{seq:4}"))
			until := begins("until"+id, ends, perYear, serial.WithTemplate("{type}{date:yyyy}-{seq:4}"), serial.WithUntil(last))
			dates := begins("dates"+id, ends, perYear, serial.WithTemplate("{type}{date:yyyy}-{seq:4}"))
			all := []*call{days, years, until, dates}
			require.Eventually(t, func() bool {
				return !slices.ContainsFunc(all, func(c *call) bool { return !d.waits(t, db, c.id) })
			}, 30*time.Second, time.Millisecond)
			waiting := time.Now()
			for inTime := d.clock(t, db).Before(ends); d.clock(t, db).Before(ends) ||
				inTime && time.Since(waiting) < 2500*time.Millisecond; {
				time.Sleep(20 * time.Millisecond)
			}
			for _, c := range all {
				require.NoError(t, c.first.Commit())
			}
			if time.Since(waiting) < 2500*time.Millisecond { // the day ended before all calls were waiting
				for _, c := range all {
					<-c.result
					require.NoError(t, c.waiter.Rollback())
				}
				continue
			}
			before := serial.At(ends.Add(-time.Second))
			require.NoError(t, <-days.result)
			require.EqualValues(t, 1, days.number.Seq, "of the next day")
			require.True(t, days.number.Start.Equal(ends))
			requireSeq(t, 1)(days.g.Last(t.Context(), db, "IS", before))
			require.NoError(t, <-years.result)
			require.EqualValues(t, 2, years.number.Seq)
			require.True(t, years.number.Date.Equal(ends), "%v of %v", years.number, years.number.Date)
			require.ErrorIs(t, <-until.result, serial.ErrExhausted)
			require.NoError(t, until.waiter.Commit())
			requireSeq(t, 1)(until.g.Last(t.Context(), db, "IS", before))
			require.NoError(t, <-dates.result)
			require.ErrorIs(t, onlyErr(dates.g.NextOn(t.Context(), dates.waiter, "IS", before)), gapless.ErrOutOfOrder)
			// The generator must not confuse the time at which a statement began to wait with the current time.
			require.WithinDuration(t, d.clock(t, db), years.g.Now(), 2*time.Second)
			return
		}
	})
}
