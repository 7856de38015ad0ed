package main

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/dailyserial/serial"
	"github.com/dailyserial/serial/gapless"
	"github.com/dailyserial/serial/sqlledger"
)

const (
	orderType   = "ORD" // ORD202110240001
	invoiceType = "INV" // INV-20211024-00001
)

// schema creates the tables. In production, leave this to your migrations. An order has at most one invoice that is not
// void. An invoice cannot be deleted, because its number would be missing.
const schema = `
CREATE TABLE IF NOT EXISTS orders (
	number       text    PRIMARY KEY,
	day          text    NOT NULL,
	seq          integer NOT NULL,
	customer     text    NOT NULL,
	amount_cents integer NOT NULL CHECK (amount_cents BETWEEN 1 AND 100000000)
);
CREATE INDEX IF NOT EXISTS orders_by_seq ON orders (day, seq);
CREATE TABLE IF NOT EXISTS invoices (
	number       text PRIMARY KEY,
	order_number text NOT NULL REFERENCES orders (number),
	voided_at    text
);
CREATE UNIQUE INDEX IF NOT EXISTS one_invoice ON invoices (order_number) WHERE voided_at IS NULL;
CREATE TRIGGER IF NOT EXISTS invoices_stay BEFORE DELETE ON invoices
BEGIN
	SELECT RAISE(ABORT, 'invoices are voided, not deleted');
END`

// A service stores orders and invoices. It is safe for concurrent use.
type service struct {
	db       *sql.DB
	zone     *time.Location
	orders   *serial.Generator
	invoices *gapless.Generator
	register *sqlledger.Register // reasons for missing numbers
	log      *slog.Logger
}

// newService returns a service, and creates its tables.
func newService(ctx context.Context, rdb redis.UniversalClient, db *sql.DB, zone *time.Location, log *slog.Logger,
	opts ...serial.Option) (*service, error) {
	s := &service{db: db, zone: zone, log: log}
	if _, err := db.ExecContext(ctx, schema); err != nil {
		return nil, fmt.Errorf("create the tables: %w", err)
	}
	var err error
	if s.register, err = sqlledger.NewRegister(db, sqlledger.SQLite); err != nil {
		return nil, err
	}
	if err := s.register.CreateTable(ctx); err != nil {
		return nil, err
	}
	// Redis keeps the counter of each day for 400 days, so that the pages can account for its numbers. If Redis loses a
	// counter, the series continues above lastOrder. The register's hooks explain numbers that no caller has received.
	opts = append(opts, serial.WithLocation(zone), serial.WithRetention(400), serial.WithFloor(s.lastOrder),
		serial.WithHooks(s.register.Hooks(s.notStored)), serial.WithHooks(serial.LogHooks(log)))
	if s.orders, err = serial.New(rdb, opts...); err != nil {
		return nil, err
	}
	// Invoice numbers contain the day, and begin again at 00001 every month.
	scheme, err := serial.NewScheme(serial.WithLocation(zone), serial.WithPeriod(serial.PerMonth),
		serial.WithTemplate("{type}-{date:yyyyMMdd}-{seq:5}"))
	if err != nil {
		return nil, err
	}
	if s.invoices, err = gapless.New(gapless.SQLite, scheme); err != nil {
		return nil, err
	}
	return s, s.invoices.CreateTable(ctx, db)
}

// inTx runs f in a transaction, which is rolled back if f fails.
func (s *service) inTx(ctx context.Context, f func(tx *sql.Tx) error) error {
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // does nothing after Commit
	if err := f(tx); err != nil {
		return err
	}
	return tx.Commit()
}

// changed returns the error of a statement, or the given refusal if the statement has changed no row.
func changed(result sql.Result, err error, otherwise refusal) error {
	if err != nil {
		return err
	}
	if rows, err := result.RowsAffected(); err != nil || rows == 0 {
		return cmp.Or[error](err, otherwise)
	}
	return nil
}

// notStored logs an explanation that the register could not store.
func (s *service) notStored(e serial.Explanation, err error) {
	s.log.Error("unstored explanation", "type", e.Type, "first", e.First, "last", e.Last, "reason", e.Reason, "err", err)
}
