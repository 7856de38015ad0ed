package main

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"net/http"

	"github.com/dailyserial/serial"
	"github.com/dailyserial/serial/examples/orders/internal/numbers"
)

// schema creates the table of orders. In production, leave this to your migrations.
//
// Both UNIQUE constraints are needed. The one on the customer's key prevents a repeated request from creating a second
// order. The one on the number is a safety net. PostgreSQL and SQLite compare text byte by byte. MySQL does so only
// with COLLATE utf8mb4_bin.
const schema = `
CREATE TABLE IF NOT EXISTS orders (
	number          text   NOT NULL UNIQUE,
	idempotency_key text   NOT NULL,
	customer        text   NOT NULL,
	amount_cents    bigint NOT NULL,
	UNIQUE (customer, idempotency_key)
)`

// A draft is an order without a number.
type draft struct {
	Customer    string `json:"customer"`
	AmountCents int64  `json:"amount_cents"`
}

type order struct {
	Number string `json:"number"`
	draft
}

// A service stores orders. It is safe for concurrent use, and any number of processes may share its Redis and
// database.
type service struct {
	gen *serial.Generator
	db  *sql.DB
	log *slog.Logger
}

// place stores one order for each key of a customer, however often the request is repeated. It reports whether this
// call has created the order.
func (s *service) place(ctx context.Context, key string, d draft) (o order, created bool, err error) {
	// The table keeps the key of a request forever, but Redis keeps it for only 48 hours. So check the table first.
	o, err = s.byKey(ctx, d.Customer, key)
	if errors.Is(err, sql.ErrNoRows) {
		if created, err = s.insert(ctx, key, d); err != nil {
			return o, false, err
		}
		o, err = s.byKey(ctx, d.Customer, key) // fails if another order already has the number
	}
	if err == nil && o.draft != d {
		err = refusal{http.StatusUnprocessableEntity, "this Idempotency-Key was used for another order"}
	}
	return o, created, err
}

// insert takes a number and inserts the order. If two calls run for the same request, both get the same number, but the
// table accepts only one of the orders. For the other one, created is false.
func (s *service) insert(ctx context.Context, key string, d draft) (created bool, err error) {
	// If an earlier attempt got a number and then failed, NextOnce returns the same number again.
	number, err := s.gen.NextOnce(ctx, numbers.Type, requestID(d.Customer, key))
	if err != nil {
		return false, err
	}
	result, err := s.db.ExecContext(ctx, `INSERT INTO orders (number, idempotency_key, customer, amount_cents)
		VALUES ($1, $2, $3, $4) ON CONFLICT DO NOTHING`, number, key, d.Customer, d.AmountCents)
	if err != nil {
		return false, err
	}
	rows, err := result.RowsAffected()
	return rows == 1, err
}

// requestID returns a different ID for each customer and key. %q separates the two, and the length of the hash is
// within the limits of NextOnce.
func requestID(customer, key string) string {
	return fmt.Sprintf("%x", sha256.Sum256(fmt.Appendf(nil, "%q %q", customer, key)))
}

// byKey returns the customer's order with the given key. If there is none, the error is sql.ErrNoRows.
func (s *service) byKey(ctx context.Context, customer, key string) (o order, err error) {
	row := s.db.QueryRowContext(ctx, `SELECT number, customer, amount_cents FROM orders
		WHERE customer = $1 AND idempotency_key = $2`, customer, key)
	err = row.Scan(&o.Number, &o.Customer, &o.AmountCents)
	return o, err
}
