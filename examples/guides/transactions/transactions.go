// Package transactions contains the code of docs/transactions.md.
package transactions

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/dailyserial/serial"
	"github.com/dailyserial/serial/sqlledger"
)

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

// placeOnce stores the order from a request. If the request is repeated, it returns the same number again.
func placeOnce(ctx context.Context, gen *serial.Generator, db *sql.DB, request, customer string) (string, error) {
	stored, err := findOrder(ctx, db, request, customer)
	if !errors.Is(err, sql.ErrNoRows) {
		return stored, err
	}
	number, err := gen.NextOnce(ctx, "IS", request)
	if err != nil {
		return "", err
	}
	_, err = db.ExecContext(ctx, `INSERT INTO orders (number, request, customer) VALUES ($1, $2, $3)
		ON CONFLICT DO NOTHING`, number, request, customer)
	if err != nil {
		return "", err
	}
	// If another request has stored its order with this number, nothing was inserted, and the error is sql.ErrNoRows. That
	// number was typed by hand, or Redis has lost data.
	return findOrder(ctx, db, request, customer)
}

// findOrder returns the number of the order that a request has stored. If there is none, the error is sql.ErrNoRows.
func findOrder(ctx context.Context, db *sql.DB, request, customer string) (number string, err error) {
	var orderedBy string
	row := db.QueryRowContext(ctx, "SELECT number, customer FROM orders WHERE request = $1", request)
	if err := row.Scan(&number, &orderedBy); err != nil {
		return "", err
	}
	if orderedBy != customer {
		return "", errors.New("the request ID was used for another order") // HTTP 422
	}
	return number, nil
}

// LastStored returns a floor, which queries the last sequence of a type and day in a table, or 0 if there is none. On
// MySQL and MariaDB, replace $1 and $2 by ?.
func LastStored(db *sql.DB) serial.Option {
	return serial.WithFloor(func(ctx context.Context, typ string, start time.Time) (last int64, err error) {
		row := db.QueryRowContext(ctx, "SELECT coalesce(max(seq), 0) FROM orders WHERE type = $1 AND day = $2",
			typ, start.Format(time.DateOnly))
		err = row.Scan(&last)
		return last, err
	})
}

// newGenerator returns a generator with a ledger in PostgreSQL. The program has to import the driver:
// _ "github.com/jackc/pgx/v5/stdlib".
func newGenerator(ctx context.Context, rdb redis.UniversalClient, dsn string) (*serial.Generator, error) {
	db, err := sql.Open("pgx", dsn)
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(2)
	ledger, err := sqlledger.New(db, sqlledger.PostgreSQL)
	if err != nil {
		return nil, err
	}
	if err := ledger.CreateTable(ctx); err != nil { // changes nothing if the table exists
		return nil, err
	}
	return serial.New(rdb, serial.WithLocation(time.UTC), serial.WithLedger(ledger, 100))
}
