package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	_ "github.com/jackc/pgx/v5/stdlib"

	"github.com/dailyserial/serial"
	"github.com/dailyserial/serial/sqlledger"
)

// schema creates the orders' table, in both databases. In production, leave it to your migrations.
//
// Both UNIQUE constraints are needed. The one on the key, which belongs to a customer, makes one order of a request that comes
// twice. The one on the number should never be needed. seq has the number's sequence as an integer, since max() of text takes
// 9999 for more than 10000. Both databases compare numbers byte by byte; MySQL would need COLLATE utf8mb4_bin for that. Rows are
// marked and not deleted, so that max(seq) never goes back.
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

var errDatabase = errors.New("the database is neither of the form postgres://USER:PASSWORD@HOST:PORT/NAME or " +
	"\"host=HOST port=PORT user=USER password=PASSWORD dbname=NAME\", nor a file, whose name has no =, @ or ://")

// A table keeps the orders.
type table struct {
	db      *sql.DB
	dialect sqlledger.Dialect
}

// keywords matches what libpq calls a keyword/value string, such as "host=localhost dbname=shop".
var keywords = regexp.MustCompile(`^\s*\w+\s*=`)

// openTable opens PostgreSQL, or a file of SQLite, and creates the table. None of its errors shows a password.
func openTable(ctx context.Context, dsn string) (*table, error) {
	dialect, driver, connections := sqlledger.PostgreSQL, "pgx", 20
	if strings.HasPrefix(dsn, "postgres://") || strings.HasPrefix(dsn, "postgresql://") || keywords.MatchString(dsn) {
		if _, err := pgx.ParseConfig(dsn); err != nil {
			return nil, errDatabase // err may show a part of a password
		}
	} else {
		if strings.Contains(dsn, "://") || strings.Contains(dsn, "@") { // the address of another kind of database
			return nil, errDatabase
		}
		// SQLite has one writer at a time, so it is better to queue here.
		dialect, driver, connections = sqlledger.SQLite, "sqlite", 1
		dsn = "file:" + dsn + "?_pragma=busy_timeout(5000)&_pragma=journal_mode(WAL)"
		if !slices.Contains(sql.Drivers(), driver) {
			return nil, errors.New("built with the race detector, and so without SQLite: -database must be PostgreSQL")
		}
	}
	db, err := sql.Open(driver, dsn)
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(connections)
	db.SetMaxIdleConns(connections)
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	if _, err := db.ExecContext(ctx, schema); err != nil {
		return nil, errors.Join(fmt.Errorf("the orders' table: %w", err), db.Close())
	}
	return &table{db, dialect}, nil
}

// byKey also returns an order that was deleted: its key stays used.
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

// insert reports whether it inserted the order. It does not insert if the key or the number exists already. The conflict clause
// names no column: of two requests with the same key and number, PostgreSQL may find either conflict first.
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

// lastSeq is a floor, for [serial.WithFloor]: it returns the highest sequence of a day, including those of deleted orders.
// The table has one type only.
//
// It does not know numbers that were issued but are not committed yet. If Redis loses everything just then, they are issued
// once more, and the order that reaches the table second has to take another one. Here that does no more harm, because
// nobody learns a number before its order is stored. If numbers are printed or sent before that, only the ledger will do.
func (t *table) lastSeq(ctx context.Context, _ string, start time.Time) (last int64, err error) {
	row := t.db.QueryRowContext(ctx, "SELECT coalesce(max(seq), 0) FROM orders WHERE day = $1",
		start.Format(time.DateOnly))
	err = row.Scan(&last)
	return last, err
}
