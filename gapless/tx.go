package gapless

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"reflect"
	"sync"
)

// A Tx is a transaction of the caller. This package never calls Commit or Rollback. Examples are:
//
//   - [*sql.Tx], with any driver; use pgx through its package stdlib, because pgx.Tx is not a Tx
//   - *sqlx.Tx of sqlx
//   - tx.Statement.ConnPool.(gapless.Tx) of GORM, where tx is the argument that GORM's method Transaction passes to a
//     function
//   - tx.Tx of bun, which is embedded in bun.Tx; on PostgreSQL, bun.Tx itself is an error, because it drops the
//     arguments of statements
//
// A [*sql.DB] or a [*sql.Conn] is not a Tx, so passing one does not compile. Without a transaction, nothing would be
// guaranteed.
//
// Only one goroutine at a time may use a Tx. If a call begins to take a number while another call is taking one in the
// same Tx, the second call returns an error and takes nothing. This check compares Tx values. Two wrappers of the same
// transaction are different values, and on MySQL both callers may then get the same number.
type Tx interface {
	Querier
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	Commit() error
	Rollback() error
}

// A Querier runs queries. Examples are a transaction, a [*sql.DB] and a [*sql.Conn].
type Querier interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// errEnded is the error for a transaction that the database has ended without a request of the caller.
var errEnded = errors.New("the database has ended the transaction, for example because of a deadlock, a statement " +
	"that creates or changes a table, or a write that failed or was interrupted; nothing was taken: roll back and begin " +
	"again")

// busy contains every Tx in which a call is taking a number.
var busy sync.Map

// enter checks tx, and prevents other calls from using it until the caller calls leave.
func (g *Generator) enter(tx Tx) (leave func(), err error) {
	if err := g.check(tx, "transaction"); err != nil {
		return nil, err
	}
	if !reflect.ValueOf(tx).Comparable() {
		return func() {}, nil
	}
	if _, taken := busy.LoadOrStore(tx, nil); taken {
		return nil, errors.New("gapless: another call is taking a number in this transaction, so this call has taken " +
			"nothing: only one goroutine at a time may use a Tx")
	}
	return func() { busy.Delete(tx) }, nil
}

// check returns an error if q cannot be used. This is the case if q is nil, as after a failed BeginTx, or if q has a
// type of bun on PostgreSQL. In the message, q has the given name.
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
		return fmt.Errorf("gapless: a %T drops the arguments of PostgreSQL's statements: use the value that it embeds, "+
			"such as tx.Tx", q)
	}
	return nil
}

// failed puts "gapless:" and the text what in front of the message of err. It returns the errors of take unchanged. If
// ctx has ended, the result also matches the error of ctx, which not all drivers ensure.
func (g *Generator) failed(ctx context.Context, what string, err error) error {
	if refused(err) {
		return err
	}
	if unsupported.MatchString(err.Error()) {
		err = fmt.Errorf("the database does not support a statement of this Dialect; check that the Dialect is right, and "+
			"that the version of the database is supported: %w", err)
	}
	if g.dialect.missing(err) {
		err = fmt.Errorf("a table of Schema does not exist: call CreateTable to create it, or correct the connection if "+
			"the table is in another database or schema: %w", err)
	}
	if ended := ctx.Err(); ended != nil && !errors.Is(err, ended) {
		return fmt.Errorf("gapless: %s: %w (and the context has ended: %w)", what, err, ended)
	}
	return fmt.Errorf("gapless: %s: %w", what, err)
}

// view checks q, and returns the Querier that must be used instead of q. The caller must call leave after reading.
func (g *Generator) view(ctx context.Context, q Querier, what string) (_ Querier, leave func(), err error) {
	if err := g.check(q, "Querier"); err != nil {
		return nil, nil, err
	}
	db, ok := q.(pool)
	if !ok || g.dialect != MySQL {
		return q, func() {}, nil
	}
	// If autocommit is off, a connection of the pool may be in a transaction with an old snapshot.
	tx, err := db.BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
	if err != nil {
		return nil, nil, g.failed(ctx, what, err)
	}
	return tx, func() { _ = tx.Rollback() }, nil
}

// A pool is a [*sql.DB] or a type that embeds one.
type pool interface {
	BeginTx(ctx context.Context, opts *sql.TxOptions) (*sql.Tx, error)
	Stats() sql.DBStats
}
