package main

import (
	"context"
	"database/sql"
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

	largest  = 1_000_000_00     // cents of an order
	patience = 10 * time.Second // per request
	kept     = 400              // days for which Redis keeps the counters of orders
)

// A service answers requests. It is safe for use by any number of goroutines.
type service struct {
	db       *sql.DB
	zone     *time.Location
	orders   *serial.Generator
	invoices *gapless.Generator
	register *sqlledger.Register // why numbers are missing
	log      *slog.Logger
}

// newService returns a service. It uses the database, but does not contact Redis yet.
func newService(ctx context.Context, rdb redis.UniversalClient, db *sql.DB, zone *time.Location, log *slog.Logger,
	opts ...serial.Option) (*service, error) {
	s := &service{db: db, zone: zone, log: log}
	var err error
	if s.register, err = sqlledger.NewRegister(db, sqlledger.SQLite); err != nil {
		return nil, err
	}
	if err := s.register.CreateTable(ctx); err != nil {
		return nil, err
	}
	// Orders are counted by day. If Redis loses a counter, it continues above the stored orders. Numbers that are lost
	// on their way from Redis are explained.
	opts = append(opts, serial.WithLocation(zone), serial.WithRetention(kept), serial.WithFloor(s.lastOrder),
		serial.WithHooks(s.register.Hooks(s.notKept)))
	s.orders, err = serial.New(rdb, opts...)
	if err != nil {
		return nil, err
	}
	// Invoices print the day, and are counted by month.
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
