package main

import (
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"time"

	"github.com/dailyserial/serial"
	"github.com/dailyserial/serial/examples/invoices/internal/numbers"
	"github.com/dailyserial/serial/gapless"
	"github.com/dailyserial/serial/sqlledger"
)

const (
	orderType   = "ORD" // ORD202110240001
	invoiceType = "INV" // INV-20211024-00001

	largest  = 1_000_000_00     // cents of an order
	patience = 10 * time.Second // per request
)

// A service answers requests. It is safe for use by any number of goroutines.
type service struct {
	db       *sql.DB
	zone     *time.Location
	orders   *numbers.Generator
	invoices *gapless.Generator
	register *sqlledger.Register // why numbers are missing
	log      *slog.Logger
}

// newService returns a service, and creates its tables. It does not contact Redis yet.
func newService(ctx context.Context, orders *numbers.Generator, log *slog.Logger) (*service, error) {
	s := &service{db: orders.DB, zone: orders.Zone, orders: orders, register: orders.Register, log: log}
	if _, err := s.db.ExecContext(ctx, schema); err != nil {
		return nil, fmt.Errorf("create the tables: %w", err)
	}
	if err := s.register.CreateTable(ctx); err != nil {
		return nil, err
	}
	// Invoices print the day, and are counted by month.
	scheme, err := serial.NewScheme(serial.WithLocation(s.zone), serial.WithPeriod(serial.PerMonth),
		serial.WithTemplate("{type}-{date:yyyyMMdd}-{seq:5}"))
	if err != nil {
		return nil, err
	}
	if s.invoices, err = gapless.New(gapless.SQLite, scheme); err != nil {
		return nil, err
	}
	return s, s.invoices.CreateTable(ctx, s.db)
}
