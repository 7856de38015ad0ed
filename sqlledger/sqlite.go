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

// keepSQLite makes commits durable on this connection until restore is called. It returns an error if SQLite cannot
// make them durable. It must be called before a transaction begins.
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
	// Every connection to :memory: has a separate database, and would reserve the same block again.
	if file == "" {
		return nil, lossy("it is in memory or temporary")
	}
	if slices.Contains([]string{"off", "memory"}, journal) {
		return nil, lossy("journal_mode is " + journal)
	}
	// With a synchronous setting below FULL, a power failure can lose the latest commits. With FULL it can lose them,
	// too, unless the journal is a WAL.
	const extra = 3
	if synchronous == extra {
		return func() {}, nil
	}
	if _, err := c.ExecContext(ctx, "PRAGMA main.synchronous = EXTRA"); err != nil {
		return nil, err
	}
	return func() {
		// If this fails, later commits on the connection are slower, but still safe.
		_, _ = c.ExecContext(context.WithoutCancel(ctx), fmt.Sprintf("PRAGMA main.synchronous = %d", synchronous))
	}, nil
}

// hurrySQLite reduces the busy timeout of the connection until restore is called, so that SQLite stops waiting for a
// lock well before ctx ends. Otherwise the wait could outlast ctx, and the error would not mention the lock. Some
// drivers do not interrupt this wait, and SQLite adds up the requested sleeps, not the actual time.
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
		if err != nil { // the timeout may have been set anyway, and would be too short for the next user of the connection
			_ = c.Raw(func(any) error { return driver.ErrBadConn }) // closes the connection
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
