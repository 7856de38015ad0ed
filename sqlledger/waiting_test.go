package sqlledger_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dailyserial/serial/sqlledger"
)

// A caller reserves a block while its own transaction uses the only connection of the pool. The error must mention that
// the caller may have waited for itself. On SQLite, more connections do not help, because the file allows only one
// writer.
func TestWaitsForItself(t *testing.T) {
	const advice = "take the number before the transaction begins, or "
	each(t, func(t *testing.T, d *database) {
		db := d.open(t, nil)
		db.SetMaxOpenConns(1)
		l := newLedger(t, d, db)
		tx := begin(t, db)
		err := reserveWithin(t, l, time.Second)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorContains(t, err, "all connections of the pool were in use (it has 1)")
		require.ErrorContains(t, err, advice+"give the ledger a separate pool")
		require.NoError(t, tx.Rollback())
		require.NoError(t, onlyErr(l.Reserve(t.Context(), days("IS", day, 0, 1))))
	})
	for _, busy := range []string{"0", "60000"} { // while the driver waits for the file, it ignores the context
		t.Run("SQLite/"+busy, func(t *testing.T) {
			t.Parallel()
			d := sqlite3(t).with("_pragma=busy_timeout(" + busy + ")")
			db := d.open(t, nil)
			l := newLedger(t, d, db)
			tx := begin(t, db)
			require.NoError(t, onlyErr(tx.Exec("CREATE TABLE orders (number text)")))
			// SQLite adds up the sleeps that it requests, but on a busy machine, especially the short first ones take longer.
			err := reserveWithin(t, l, 4*time.Second)
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.ErrorContains(t, err, "is locked")
			require.ErrorContains(t, err, "another connection is writing to this file")
			require.ErrorContains(t, err, advice+"keep the ledger in a separate file")
			require.NoError(t, tx.Rollback())
			require.NoError(t, onlyErr(l.Reserve(t.Context(), days("IS", day, 0, 1))))
			db.SetMaxOpenConns(1)
			require.Equal(t, busy, value[string](t, db, "PRAGMA busy_timeout"), "only for the reservation")
		})
	}
}

// A context ends while a reservation changes the busy timeout of a connection. No connection may remain in the pool
// with a timeout that is too short.
func TestBusyTimeoutAfterCancel(t *testing.T) {
	for name, nth := range map[string]int{"shortened": 1, "restored": 2} {
		t.Run(name, func(t *testing.T) {
			d := sqlite3(t).with("_pragma=busy_timeout(60000)")
			changes := 0
			db := d.open(t, on("PRAGMA busy_timeout =", func(s *statement) error {
				if changes++; changes == nth {
					return errors.Join(s.run(s.text), context.DeadlineExceeded)
				}
				return s.run(s.text)
			}))
			l := newLedger(t, d, db)
			err := reserveWithin(t, l, time.Second)
			require.Equal(t, nth == 1, errors.Is(err, context.DeadlineExceeded), err)
			require.Equal(t, nth, changes)
			db.SetMaxOpenConns(1)
			require.Equal(t, "60000", value[string](t, db, "PRAGMA busy_timeout"))
		})
	}
}

// The server is unreachable. The error must not mention a transaction, even if the pool has only one connection.
func TestUnreachableServer(t *testing.T) {
	db := sql.OpenDB(&connector{connect: func(ctx context.Context) (driver.Conn, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	}})
	t.Cleanup(func() { _ = db.Close() })
	db.SetMaxOpenConns(1)
	l, err := sqlledger.New(db, sqlledger.PostgreSQL)
	require.NoError(t, err)
	err = reserveWithin(t, l, time.Second)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.NotContains(t, err.Error(), "transaction")
}

func begin(t *testing.T, db *sql.DB) *sql.Tx {
	t.Helper()
	tx, err := db.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	t.Cleanup(func() { _ = tx.Rollback() })
	return tx
}

// reserveWithin reserves a block with a context that ends after limit.
func reserveWithin(t *testing.T, l *sqlledger.Ledger, limit time.Duration) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	start := time.Now()
	_, err := l.Reserve(ctx, days("IS", day, 0, 1))
	require.Less(t, time.Since(start), 10*time.Second)
	return err
}
