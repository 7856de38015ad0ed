package sqlledger

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/dailyserial/serial"
)

const retryTime = 30 * time.Second // time for which a transaction is repeated after deadlocks and lock timeouts

// A runner runs the transactions of a Ledger or a Register.
type runner struct {
	db      *sql.DB
	dialect Dialect
	durable bool // whether commits must be durable on SQLite

	// The following strings are for error messages.
	table    string
	name     string // "ledger" or "register"
	advice   string // advice for a caller that has a transaction open
	outdated string // advice if the table has the wrong columns
}

// An unfitError wraps the database's error for a table that is missing or has the wrong columns, or for a statement that
// the database does not support.
type unfitError struct {
	error
	remedy string
}

func (e unfitError) Error() string { return e.remedy + ": " + e.error.Error() }
func (e unfitError) Unwrap() error { return e.error }

// Remedy returns an instruction for the user, which package serialcmd prints.
func (e unfitError) Remedy() string { return e.remedy }

// do runs f in a transaction, and repeats the transaction after errors that allow this.
func (r *runner) do(ctx context.Context, what string, f func(*sql.Conn) error) error {
	end := time.Now().Add(retryTime)
	var before error // error of the previous attempt
	for wait := time.Millisecond; ; wait = min(2*wait, 64*time.Millisecond) {
		again, err := r.try(ctx, f)
		if err == nil {
			return nil
		}
		// If ctx has ended during a repetition, return the error of the previous attempt, because it is more helpful than
		// the error of ctx.
		if before != nil && ctx.Err() != nil && errors.Is(err, ctx.Err()) {
			again, err = true, before
		}
		if again && time.Now().Before(end) {
			select {
			case <-ctx.Done():
			case <-time.After(rand.N(wait)):
				before = err
				continue
			}
		}
		if again && r.dialect == SQLite {
			err = fmt.Errorf("%w: another connection is writing to this file; %s, or keep the %s in a separate file",
				err, r.selfWaitAdvice(), r.name)
		}
		return r.failed(ctx, what, err)
	}
}

// failed returns the error for the caller. It adds advice if the table is missing or has the wrong columns, or if the
// Dialect may be wrong. If ctx has ended, the result also matches the error of ctx.
func (r *runner) failed(ctx context.Context, what string, err error) error {
	switch {
	case unsupported.MatchString(err.Error()):
		err = unfitError{err, "the database does not support a statement of this Dialect; check that the Dialect is right, " +
			"and that the version of the database is supported"}
	case r.dialect.outdated(err):
		err = unfitError{err, r.outdated}
	case r.dialect.missing(err) && strings.Contains(err.Error(), r.table): // a trigger may need other tables
		err = unfitError{err, fmt.Sprintf("the table %s does not exist: call CreateTable to create it, or correct the "+
			"connection if the table is in another database or schema", r.table)}
	}
	if ended := ctx.Err(); ended != nil && !errors.Is(err, ended) {
		return fmt.Errorf("sqlledger: %s: %w (and the context has ended: %w)", what, err, ended)
	}
	return fmt.Errorf("sqlledger: %s: %w", what, err)
}

// selfWaitAdvice returns advice for a caller that has waited without success. The caller may have waited for its own
// transaction, but that cannot be detected here.
func (r *runner) selfWaitAdvice() string {
	return "if the caller has a transaction open here, it waits for itself: " + r.advice
}

// try runs f once in a transaction, and reports whether the transaction may be repeated. It does not use a [sql.Tx],
// because a sql.Tx does not support BEGIN IMMEDIATE and, with some drivers, its method Commit does not return when the
// context ends.
func (r *runner) try(ctx context.Context, f func(*sql.Conn) error) (again bool, err error) {
	waits := r.db.Stats().WaitCount
	c, err := r.db.Conn(ctx)
	if pool := r.db.Stats(); err != nil && ctx.Err() != nil && pool.WaitCount > waits {
		return false, fmt.Errorf("%w: all connections of the pool were in use (it has %d); %s, or give the %s a separate "+
			"pool", err, pool.MaxOpenConnections, r.selfWaitAdvice(), r.name)
	}
	if err != nil {
		return r.dialect.again(err, false), err
	}
	defer func() { _ = c.Close() }()
	if r.dialect == SQLite {
		settings := []func(context.Context, *sql.Conn) (func(), error){shortenBusyTimeout}
		if r.durable {
			settings = append(settings, makeDurable)
		}
		for _, set := range settings {
			restore, err := set(ctx, c)
			if err != nil {
				return r.dialect.again(err, false), err
			}
			defer restore()
		}
	}
	committing := false
	_, err = c.ExecContext(ctx, dialects[r.dialect].begin)
	if err != nil && r.dialect.again(err, false) {
		return true, err // no transaction was begun
	}
	if err == nil {
		err = f(c)
	}
	if err == nil {
		committing = true
		_, err = c.ExecContext(ctx, "COMMIT")
	}
	if err == nil {
		return false, nil
	}
	conflict := errors.Is(err, serial.ErrConflict) // not an error of the database
	again = !conflict && r.dialect.again(err, committing)
	if (again || conflict) && ctx.Err() == nil {
		if _, failed := c.ExecContext(ctx, "ROLLBACK"); failed == nil {
			return again, err
		}
	}
	// Close this connection, because its transaction may still be open, or its server may be a former primary.
	_ = c.Raw(func(any) error { return driver.ErrBadConn })
	return again, err
}
