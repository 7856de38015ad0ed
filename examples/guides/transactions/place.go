// Package transactions shows how to number a document that is stored in a database transaction: take the number first.
// docs/transactions.md explains why; its code is this file's.
package transactions

import (
	"context"
	"database/sql"
	"errors"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"gorm.io/gorm"

	"github.com/dailyserial/serial"
	"github.com/dailyserial/serial/sqlledger"
)

// An Order is a document with a number, as a model of GORM. On MySQL, the column of the number needs a binary
// collation, set by another tag: type:varchar(100) COLLATE utf8mb4_bin.
type Order struct {
	ID       int64
	Number   string `gorm:"uniqueIndex"`
	Customer string
}

func placeSQL(ctx context.Context, gen *serial.Generator, db *sql.DB, customer string) (string, error) {
	number, err := gen.Next(ctx, "IS") // before the transaction begins
	if err != nil {
		return "", err
	}
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return "", err
	}
	defer func() { _ = tx.Rollback() }() // does nothing after Commit
	_, err = tx.ExecContext(ctx, "INSERT INTO orders (number, customer) VALUES ($1, $2)", number, customer)
	if err != nil {
		return "", err
	}
	return number, tx.Commit()
}

func placeGORM(ctx context.Context, gen *serial.Generator, db *gorm.DB, customer string) (string, error) {
	number, err := gen.Next(ctx, "IS") // before the transaction begins
	if err != nil {
		return "", err
	}
	return number, db.WithContext(ctx).Transaction(func(tx *gorm.DB) error {
		return tx.Create(&Order{Number: number, Customer: customer}).Error
	})
}

// placeOnce stores the order of a request that may be repeated. It returns the same number each time.
func placeOnce(ctx context.Context, gen *serial.Generator, db *sql.DB, request, customer string) (string, error) {
	number, err := gen.NextOnce(ctx, "IS", request)
	if err != nil {
		return "", err
	}
	_, err = db.ExecContext(ctx, `INSERT INTO orders (number, request, customer) VALUES ($1, $2, $3)
		ON CONFLICT DO NOTHING`, number, request, customer)
	if err != nil {
		return "", err
	}
	var stored, orderedBy string // in the row just inserted, or in that of an earlier attempt
	row := db.QueryRowContext(ctx, "SELECT number, customer FROM orders WHERE request = $1", request)
	if err := row.Scan(&stored, &orderedBy); err != nil {
		return "", err // sql.ErrNoRows: the number is in another request's row, so somebody made it up
	}
	if orderedBy != customer {
		return "", errors.New("the request ID was used for another order") // HTTP 422
	}
	return stored, nil
}

// openLedger returns a ledger with a pool of its own, and a function that closes the pool.
func openLedger(ctx context.Context, dsn string) (*sqlledger.Ledger, func(), error) {
	config, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		return nil, nil, err
	}
	config.MaxConns = 2
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, nil, err
	}
	ledger, err := sqlledger.New(stdlib.OpenDBFromPool(pool), sqlledger.PostgreSQL)
	if err == nil {
		err = ledger.CreateTable(ctx)
	}
	if err != nil {
		pool.Close()
		return nil, nil, err
	}
	return ledger, pool.Close, nil
}
