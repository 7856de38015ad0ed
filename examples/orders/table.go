package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/dailyserial/serial"
)

// schema creates the orders table in either database. In production, leave this to your migrations.
//
// Both UNIQUE constraints are needed. The one on a customer's key turns a repeated request into one order. The one on
// the number is a safety net. seq is the number's sequence as an integer, since max() of text sorts 9999 above 10000.
// Both databases compare numbers byte by byte; MySQL would need COLLATE utf8mb4_bin for that. Rows are marked as
// deleted, not removed, so max(seq) never decreases.
const schema = `
CREATE TABLE IF NOT EXISTS orders (
	number          text        NOT NULL UNIQUE,
	idempotency_key text        NOT NULL,
	day             text        NOT NULL,
	seq             bigint      NOT NULL,
	customer        text        NOT NULL,
	amount_cents    bigint      NOT NULL,
	created_at      timestamptz NOT NULL DEFAULT CURRENT_TIMESTAMP,
	deleted_at      timestamptz,
	UNIQUE (customer, idempotency_key)
);
CREATE INDEX IF NOT EXISTS orders_by_seq ON orders (day, seq)`

// An order is what clients see.
type order struct {
	Number string `json:"number"`
	draft
}

// A draft is an order without a number.
type draft struct {
	Customer    string `json:"customer"`
	AmountCents int64  `json:"amount_cents"`
}

var errNone = errors.New("no such order")

// A table stores the orders.
type table struct{ db *sql.DB }

// newTable returns the table of a database, and creates it unless it exists.
func newTable(ctx context.Context, db *sql.DB) (*table, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	if _, err := db.ExecContext(ctx, schema); err != nil {
		return nil, fmt.Errorf("create the orders table: %w", err)
	}
	return &table{db}, nil
}

// byKey also finds a deleted order, since its key remains in use.
func (t *table) byKey(ctx context.Context, customer, key string) (order, error) {
	return t.find(ctx, "customer = $1 AND idempotency_key = $2", customer, key)
}

func (t *table) byNumber(ctx context.Context, customer, number string) (order, error) {
	return t.find(ctx, "customer = $1 AND number = $2 AND deleted_at IS NULL", customer, number)
}

func (t *table) find(ctx context.Context, where string, args ...any) (o order, err error) {
	row := t.db.QueryRowContext(ctx, "SELECT number, customer, amount_cents FROM orders WHERE "+where, args...)
	err = row.Scan(&o.Number, &o.Customer, &o.AmountCents)
	if errors.Is(err, sql.ErrNoRows) {
		err = errNone
	}
	return o, err
}

// insert reports whether it inserted the order. It does not if the key or the number already exists. The conflict
// clause names no column: if two requests have the same key and number, PostgreSQL may find either conflict first.
func (t *table) insert(ctx context.Context, key string, n serial.Number, d draft) (bool, error) {
	result, err := t.db.ExecContext(ctx, `INSERT INTO orders (number, idempotency_key, day, seq, customer, amount_cents)
		VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT DO NOTHING`,
		n, key, n.Start.Format(time.DateOnly), n.Seq, d.Customer, d.AmountCents)
	if err != nil {
		return false, err
	}
	rows, err := result.RowsAffected()
	return rows > 0, err
}
