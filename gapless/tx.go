package gapless

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"reflect"
	"sync"
)

// A Tx is a transaction of the caller, who commits it or rolls it back. Examples are:
//
//   - [*sql.Tx], whatever the driver; pgx is used through its package stdlib, and its own pgx.Tx is not a Tx
//   - sqlx's *sqlx.Tx
//   - GORM's tx.Statement.ConnPool.(gapless.Tx), with the tx that its method Transaction passes to a function
//   - bun's tx.Tx, which its bun.Tx embeds; bun.Tx itself is refused on PostgreSQL, because it drops the arguments of
//     statements
//
// A [*sql.DB] or [*sql.Conn] is not a Tx, and does not compile: without a transaction nothing is guaranteed. This
// package never calls Commit and Rollback.
//
// A Tx is for one goroutine at a time. If a second one takes a number while a call is taking one in the same Tx, it
// gets an error, and nothing was taken for it. Calls are recognised by comparing Tx values: two wrappers of one
// transaction differ, and on MySQL both callers may then get the same number.
type Tx interface {
	Querier
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	Commit() error
	Rollback() error
}

// A Querier can run a query: a transaction, a [*sql.DB] or a [*sql.Conn].
type Querier interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// errEnded reports a transaction that ended, but not by the caller.
var errEnded = errors.New("the database has ended the transaction, as for a deadlock, a statement that creates or " +
	"changes a table, or a write that failed or was interrupted; nothing was taken: roll back and begin again")

// busy holds each Tx in which a number is being taken.
var busy sync.Map

// enter keeps other calls out of tx until leave is called.
func (g *Generator) enter(tx Tx) (leave func(), err error) {
	if err := g.check(tx, "transaction"); err != nil {
		return nil, err
	}
	if !reflect.ValueOf(tx).Comparable() {
		return func() {}, nil
	}
	if _, taken := busy.LoadOrStore(tx, nil); taken {
		return nil, errors.New("gapless: another call is taking a number in this transaction, and this one has taken " +
			"nothing: a Tx is for one goroutine at a time")
	}
	return func() { busy.Delete(tx) }, nil
}

// check returns an error if q cannot be used: it is nil, as after a BeginTx that failed, or bun's on PostgreSQL. The
// error calls it by name.
func (g *Generator) check(q Querier, name string) error {
	v := reflect.ValueOf(q)
	if !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil() {
		return fmt.Errorf("gapless: the %s is nil", name)
	}
	if g.dialect != PostgreSQL {
		return nil
	}
	typ := v.Type()
	if v.Kind() == reflect.Pointer {
		typ = typ.Elem()
	}
	if typ.PkgPath() == "github.com/uptrace/bun" {
		return fmt.Errorf("gapless: a %T drops the arguments of PostgreSQL's statements: use what it embeds, such as tx.Tx",
			q)
	}
	return nil
}

// failed completes an error of take or of the database. If the caller's context has ended, the error says so: not all
// drivers do.
func (g *Generator) failed(ctx context.Context, what string, err error) error {
	if refused(err) {
		return err
	}
	if g.dialect.missing(err) {
		err = fmt.Errorf("a table of Schema does not exist: call CreateTable, which creates it, or correct the connection "+
			"if the table is in another database or schema: %w", err)
	}
	if ended := ctx.Err(); ended != nil && !errors.Is(err, ended) {
		return fmt.Errorf("gapless: %s: %w (and the context has ended: %w)", what, err, ended)
	}
	return fmt.Errorf("gapless: %s: %w", what, err)
}

// view returns what is read instead of q, until leave is called.
func (g *Generator) view(ctx context.Context, q Querier, what string) (_ Querier, leave func(), err error) {
	if err := g.check(q, "Querier"); err != nil {
		return nil, nil, err
	}
	db, ok := q.(pool)
	if !ok || g.dialect != MySQL {
		return q, func() {}, nil
	}
	// If autocommit is off, a connection of the pool may be in a transaction whose snapshot is old.
	tx, err := db.BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
	if err != nil {
		return nil, nil, g.failed(ctx, what, err)
	}
	return tx, func() { _ = tx.Rollback() }, nil
}

// A pool is a [*sql.DB], or wraps one.
type pool interface {
	BeginTx(ctx context.Context, opts *sql.TxOptions) (*sql.Tx, error)
	Stats() sql.DBStats
}
