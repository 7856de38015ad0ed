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
		d.steps(t, nil).run(`
			blocker: begin on1
			waiting: begin on1&
			closing: begin=committed close2&
			waiting: cancel !canceled rollback
			closing: cancel !canceled rollback
			blocker: rollback
			until=0 on1=1
		`)
	})
}

// Calls wait for other transactions while a day ends. The result must depend on the time of the database's clock at
// which each call has got its locks.
func TestDayEndsWhileWaiting(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for the end of a day, for three seconds")
	}
	kinds(t, servers, func(t *testing.T, d *database) {
		t.Parallel()
		db := d.open(t)
		d.chronological(t, db) // no column can be added while other transactions use the table
		for attempt := 0; ; attempt++ {
			ends := d.clock(t, db).UTC().Add(3 * time.Second).Truncate(time.Second)
			start := serial.WithDayStart(ends.Sub(ends.Truncate(24 * time.Hour)))
			before := scheme(t, start).BusinessDate(serial.At(ends.Add(-1)))
			after := scheme(t, start).BusinessDate(serial.At(ends))
			yearly := func(prefix, template string, opts ...serial.Option) []serial.Option {
				return append(opts, start, serial.WithPeriod(serial.PerYear), serial.WithTemplate(template),
					serial.WithKeyPrefix(fmt.Sprint(prefix, attempt)))
			}
			s := d.steps(t, schemes{
				"":      {start, serial.WithKeyPrefix(fmt.Sprint("days", attempt))},
				"years": yearly("years", "{type}{date:yyyyMMdd}-{seq:4}"),
				"until": yearly("until", "{type}{date:yyyy}-{seq:4}", serial.WithUntil(before)),
			})
			s.generators["dates"] = d.chronological(t, s.db, yearly("dates", "{type}{date:yyyy}-{seq:4}")...)
			s.run(`
				first: begin next=1
				days: begin=committed take1&
				first years: begin years.next=1
				years: begin=committed years.take1&
				first until: begin until.next=1
				until: begin=committed until.take1&
				first dates: begin dates.next=1
				dates: begin=committed dates.take1&
			`)
			waiting := time.Now()
			for inTime := d.clock(t, db).Before(ends); d.clock(t, db).Before(ends) ||
				inTime && time.Since(waiting) < 2500*time.Millisecond; {
				time.Sleep(20 * time.Millisecond)
			}
			s.run("first: commit\n first years: commit\n first until: commit\n first dates: commit")
			if time.Since(waiting) < 2500*time.Millisecond { // the day ended before all calls were waiting
				for _, name := range []string{"days", "years", "until", "dates"} {
					<-s.sessions[name].result
					s.run(name + ": rollback")
				}
				continue
			}
			s.run(strings.NewReplacer("BEFORE", strings.ReplaceAll(before.String(), "-", ""),
				"AFTER", strings.ReplaceAll(after.String(), "-", "")).Replace(`
				days: =ISAFTER0001
				other: lastBEFORE=1
				years: =ISAFTER-0002
				until: !exhausted commit
				other: until.lastBEFORE=1
				dates: =2 dates.onBEFORE!order
			`))
			// The generator must not confuse the time at which a statement began to wait with the current time.
			require.WithinDuration(t, d.clock(t, db), s.generators["years"].Now(), 2*time.Second)
			return
		}
	})
}
