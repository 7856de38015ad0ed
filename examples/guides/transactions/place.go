// Package transactions shows how to number a document that is stored in a database transaction: take the number first.
// docs/transactions.md explains why; its code is this file's.
package transactions

import (
	"context"
	"database/sql"
	"errors"

	"github.com/dailyserial/serial"
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
