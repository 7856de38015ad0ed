package sqlledger

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"slices"
	"time"
)

// keepSQLite makes SQLite's commits durable on this connection, until restore is called. It fails if SQLite cannot. No
// transaction may have begun.
func keepSQLite(ctx context.Context, c *sql.Conn) (restore func(), err error) {
	var file, journal string
	var synchronous int
	for _, q := range []struct {
		query string
		to    any
	}{
		{"SELECT coalesce(max(file), '') FROM pragma_database_list WHERE name = 'main'", &file},
		{"PRAGMA main.journal_mode", &journal},
		{"PRAGMA main.synchronous", &synchronous},
	} {
		if err := c.QueryRowContext(ctx, q.query).Scan(q.to); err != nil {
			return nil, err
		}
	}
	// Every connection to :memory: has its own database, and would set the same block aside again.
	if file == "" {
		return nil, lossy("it is in memory or temporary")
	}
	if slices.Contains([]string{"off", "memory"}, journal) {
		return nil, lossy("journal_mode is " + journal)
	}
	// Below FULL, a power cut loses the latest commits; with FULL it can too, unless there is a WAL.
	const extra = 3
	if synchronous == extra {
		return func() {}, nil
	}
	if _, err := c.ExecContext(ctx, "PRAGMA main.synchronous = EXTRA"); err != nil {
		return nil, err
	}
	return func() {
		// If this fails, the connection is slower, but no less safe.
		_, _ = c.ExecContext(context.WithoutCancel(ctx), fmt.Sprintf("PRAGMA main.synchronous = %d", synchronous))
	}, nil
}

// hurrySQLite makes SQLite give up waiting for a lock well before ctx ends, until restore is called. Some drivers do
// not interrupt that wait, and SQLite counts the sleeps it asked for, not how long they took. If the wait outlasted
// ctx, the error would not name the lock.
func hurrySQLite(ctx context.Context, c *sql.Conn) (restore func(), err error) {
	end, ok := ctx.Deadline()
	if !ok {
		return func() {}, nil
	}
	var usual int64 // in milliseconds
	if err := c.QueryRowContext(ctx, "PRAGMA busy_timeout").Scan(&usual); err != nil {
		return nil, err
	}
	left := max(0, time.Until(end)/2).Milliseconds()
	if usual <= left {
		return func() {}, nil
	}
	set := func(ctx context.Context, value int64) error {
		_, err := c.ExecContext(ctx, fmt.Sprintf("PRAGMA busy_timeout = %d", value))
		if err != nil { // it may have been set anyway, and the connection's next user would wait too briefly
			_ = c.Raw(func(any) error { return driver.ErrBadConn }) // do not reuse it
		}
		return err
	}
	if err := set(ctx, left); err != nil {
		return nil, err
	}
	return func() { _ = set(context.WithoutCancel(ctx), usual) }, nil
}

func lossy(why string) error {
	return errors.New("the database can lose what it commits: " + why)
}
