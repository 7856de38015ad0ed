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

// makeDurable makes commits on this connection durable until restore is called. It returns an error if SQLite cannot
// make them durable. It must be called before a transaction begins.
func makeDurable(ctx context.Context, c *sql.Conn) (restore func(), err error) {
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
	// Every connection to :memory: has a separate database, so every connection would reserve the same block.
	if file == "" {
		return nil, lossy("it is in memory or temporary")
	}
	if slices.Contains([]string{"off", "memory"}, journal) {
		return nil, lossy("journal_mode is " + journal)
	}
	// If synchronous is below FULL, a power failure can lose the latest commits. If it is FULL, a power failure can still
	// lose them, unless the journal is a WAL.
	const extra = 3
	if synchronous == extra {
		return func() {}, nil
	}
	if _, err := c.ExecContext(ctx, "PRAGMA main.synchronous = EXTRA"); err != nil {
		return nil, err
	}
	return func() {
		// If this statement fails, later commits on the connection are slower, but still safe.
		_, _ = c.ExecContext(context.WithoutCancel(ctx), fmt.Sprintf("PRAGMA main.synchronous = %d", synchronous))
	}, nil
}

// shortenBusyTimeout reduces the busy timeout of the connection until restore is called, so that SQLite stops waiting
// for a lock well before ctx ends. Otherwise the wait could outlast ctx, because some drivers do not interrupt it, and
// because SQLite counts the sleeps that it requests, which can take longer. The error would then not mention the lock.
func shortenBusyTimeout(ctx context.Context, c *sql.Conn) (restore func(), err error) {
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
		if err != nil { // the timeout may have been set all the same, and would be too short for later users
			_ = c.Raw(func(any) error { return driver.ErrBadConn }) // closes the connection
		}
		return err
	}
	if err := set(ctx, left); err != nil {
		return nil, err
	}
	return func() { _ = set(context.WithoutCancel(ctx), usual) }, nil
}

// lossy returns the error for a database in which a committed block could be lost.
func lossy(why string) error {
	return errors.New("the database can lose committed data: " + why)
}
