// Package transactions contains the code of docs/transactions.md.
package transactions

import (
	"context"
	"database/sql"
	"errors"
	"time"

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
	var stored, orderedBy string // in the new row, or in that of an earlier attempt
	row := db.QueryRowContext(ctx, "SELECT number, customer FROM orders WHERE request = $1", request)
	if err := row.Scan(&stored, &orderedBy); err != nil {
		return "", err // sql.ErrNoRows means that another row has the number, which was therefore made up
	}
	if orderedBy != customer {
		return "", errors.New("the request ID was used for another order") // HTTP 422
	}
	return stored, nil
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
