package gapless_test

import (
	"context"
	"database/sql"
	"sync"
	"testing"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"

	"github.com/dailyserial/serial"
	"github.com/dailyserial/serial/gapless"
)

// requireEnded checks that nothing can be taken in tx, which the database has ended, and that nothing was.
func requireEnded(t *testing.T, db *sql.DB, g *gapless.Generator, tx *sql.Tx, want string) {
	t.Helper()
	day := october(24)
	for _, typ := range []string{"IS", "NEW"} {
		before, err := g.Last(t.Context(), db, typ, serial.At(day))
		require.NoError(t, err)
		for range 2 {
			_, err = g.NextOn(t.Context(), tx, typ, serial.At(day))
			require.ErrorContains(t, err, want)
			require.NotErrorIs(t, err, serial.ErrConflict)
			require.ErrorContains(t, g.Raise(t.Context(), tx, typ, serial.At(day), 100), want)
		}
		require.ErrorContains(t, errOf(g.Next(t.Context(), tx, typ)), want)
		require.ErrorContains(t, g.ClosePeriods(t.Context(), tx, typ, serial.At(october(5))), want)
		require.ErrorContains(t, g.ReopenPeriods(t.Context(), tx, typ, serial.At(october(1))), want)
		requireResult(t, before)(g.Last(t.Context(), db, typ, serial.At(day)))
	}
	_ = tx.Rollback() // some drivers report that there is none
	require.Equal(t, 2, rows(t, db), "the row of IS and its gate")
	commits(t, db, func(tx *sql.Tx) {
		requireSeq(t, 2)(g.NextOn(t.Context(), tx, "IS", serial.At(day)))
	})
}

// Causes that end a transaction unasked, by dialect. Each leaves tx as if it still ran.
func TestDatabaseEndsTransaction(t *testing.T) {
	const ended = "the database has ended the transaction"
	run := func(t *testing.T, tx *sql.Tx, query string) {
		t.Helper()
		require.NoError(t, errOf(tx.ExecContext(t.Context(), query)))
	}
	// start returns a generator that has issued a number, and a transaction with a document.
	start := func(t *testing.T, d *database) (*sql.DB, *gapless.Generator, *sql.Tx) {
		t.Helper()
		db, g := d.start(t)
		execSQL(t, db, "CREATE TABLE documents (number varchar(100) NOT NULL PRIMARY KEY)")
		execSQL(t, db, "INSERT INTO documents VALUES ('a'), ('b')")
		commits(t, db, func(tx *sql.Tx) {
			require.NoError(t, errOf(g.NextOn(t.Context(), tx, "IS", serial.At(october(24)))))
		})
		tx := begin(t, db)
		run(t, tx, "INSERT INTO documents VALUES ('c')")
		return db, g, tx
	}
	t.Run("PostgreSQL", func(t *testing.T) { // after an error, the transaction only refuses
		db, g, tx := start(t, postgreSQL(t))
		require.Error(t, errOf(tx.ExecContext(t.Context(), "INSERT INTO documents VALUES ('c')")))
		requireEnded(t, db, g, tx, "25P02")
	})
	for name, savepoints := range map[string]bool{"MariaDB": false, "MySQL": true} { // MariaDB can do both
		ways := func(t *testing.T) (*sql.DB, *gapless.Generator, *sql.Tx) {
			db, g, tx := start(t, mariaDB(t))
			if savepoints {
				g.AsOn("/*M!")
			}
			return db, g, tx
		}
		t.Run(name+"/DDL", func(t *testing.T) {
			db, g, tx := ways(t)
			run(t, tx, "CREATE TABLE more (a int)")
			requireEnded(t, db, g, tx, ended)
		})
		t.Run(name+"/rollback as text", func(t *testing.T) {
			db, g, tx := ways(t)
			run(t, tx, "ROLLBACK")
			requireEnded(t, db, g, tx, ended)
		})
		t.Run(name+"/deadlock", func(t *testing.T) {
			db, g, tx := ways(t)
			other := begin(t, db)
			run(t, other, "INSERT INTO documents VALUES ('d'), ('e'), ('f')") // it has written less
			run(t, other, "UPDATE documents SET number = 'a' WHERE number = 'a'")
			run(t, tx, "UPDATE documents SET number = 'b' WHERE number = 'b'")
			waits := make(chan error)
			go func() {
				_, err := other.ExecContext(context.Background(), "UPDATE documents SET number = 'b' WHERE number = 'b'")
				waits <- err
			}()
			_, err := tx.ExecContext(t.Context(), "UPDATE documents SET number = 'a' WHERE number = 'a'")
			var deadlock *mysql.MySQLError
			require.ErrorAs(t, err, &deadlock)
			require.EqualValues(t, 1213, deadlock.Number)
			require.NoError(t, <-waits)
			require.NoError(t, other.Rollback())
			requireEnded(t, db, g, tx, ended)
		})
	}
	t.Run("SQLite/OR ROLLBACK", func(t *testing.T) {
		db, g, tx := start(t, inFile(t))
		require.Error(t, errOf(tx.ExecContext(t.Context(), "INSERT OR ROLLBACK INTO documents VALUES ('a')")))
		requireEnded(t, db, g, tx, ended)
	})
	t.Run("SQLite/interrupted", func(t *testing.T) {
		db, g, tx := start(t, inFile(t))
		for {
			ctx, cancel := context.WithCancel(t.Context())
			go cancel() // before the write, or during it
			// A driver may interrupt just before the first step, which has no effect: then the statement runs to its
			// end.
			_, err := tx.ExecContext(ctx, "INSERT INTO documents "+
				"WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 100000) SELECT 'n' || i FROM n")
			if _, failed := tx.ExecContext(t.Context(), "ROLLBACK"); failed != nil {
				require.Error(t, err)
				break // the interrupt has ended it
			}
			_ = tx.Rollback()
			tx = begin(t, db)
		}
		requireEnded(t, db, g, tx, ended)
	})
	t.Run("SQLite/commit as text", func(t *testing.T) {
		db, g, tx := start(t, inFile(t))
		run(t, tx, "COMMIT")
		requireEnded(t, db, g, tx, ended)
	})
}

// slow is a Tx whose statements wait.
type slow struct {
	*sql.Tx
	started chan struct{}
	goOn    chan struct{}
	once    *sync.Once
}

func (tx slow) wait() {
	tx.once.Do(func() {
		close(tx.started)
		<-tx.goOn
	})
}

func (tx slow) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	tx.wait()
	return tx.Tx.ExecContext(ctx, query, args...)
}

func (tx slow) QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row {
	tx.wait()
	return tx.Tx.QueryRowContext(ctx, query, args...)
}

// While a call takes a number in a transaction, another call is refused, from any Generator.
func TestSharedTx(t *testing.T) {
	each(t, func(t *testing.T, d *database) {
		db := d.open(t)
		g, other := d.generator(t, db), d.generator(t, db)
		day := october(24)
		tx := slow{begin(t, db), make(chan struct{}), make(chan struct{}), new(sync.Once)}
		first := make(chan error)
		go func() {
			_, err := g.NextOn(context.Background(), tx, "IS", serial.At(day))
			first <- err
		}()
		<-tx.started
		for _, g := range []*gapless.Generator{g, other} {
			require.ErrorContains(t, errOf(g.NextOn(t.Context(), tx, "IS", serial.At(day))),
				"a Tx is for one goroutine at a time")
			require.ErrorContains(t, g.Raise(t.Context(), tx, "IS", serial.At(day), 7), "a Tx is for one goroutine at a time")
		}
		close(tx.goOn)
		require.NoError(t, <-first)
		requireSeq(t, 2)(other.NextOn(t.Context(), tx, "IS", serial.At(day)))
	})
}
