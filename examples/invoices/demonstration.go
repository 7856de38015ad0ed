package main

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/dailyserial/serial"
)

// demonstrate starts a Redis in memory, and stores sample documents in it and in a temporary SQLite file, FOR
// DEMONSTRATION ONLY. The function stop deletes them. In your own service, delete this file.
func demonstrate(ctx context.Context, zone *time.Location, log *slog.Logger) (stop func(), err error) {
	m, err := miniredis.Run()
	if err != nil {
		return nil, err
	}
	folder, err := os.MkdirTemp("", "invoices")
	file := filepath.Join(folder, "invoices.db")
	anonymous = "demo"
	return func() {
			m.Close()
			_ = os.RemoveAll(folder)
		}, errors.Join(err, sample(ctx, m, file, zone, log), os.Setenv("INVOICES_REDIS_URL", "redis://"+m.Addr()),
			os.Setenv("INVOICES_DATABASE", file))
}

// sample stores orders and invoices of the last 40 days, and closes the months before the current one. Some orders are
// rejected or deleted, so their numbers are missing.
func sample(ctx context.Context, m *miniredis.Miniredis, file string, zone *time.Location, log *slog.Logger) error {
	db, err := openDatabase(file)
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	rdb := redis.NewClient(&redis.Options{Addr: m.Addr()})
	defer func() { _ = rdb.Close() }()
	s, err := newService(ctx, rdb, db, zone, log, serial.WithMaxSkew(-1)) // Redis's clock is set back
	if err != nil {
		return err
	}
	now := time.Now().In(zone)
	for ago := 39; ago >= 0; ago-- {
		at := now.AddDate(0, 0, -ago)
		m.SetTime(at)
		for i := range 8 - ago%4 {
			err = errors.Join(err, s.sampleOrder(ctx, at, ago, i))
		}
	}
	m.SetTime(time.Time{}) // from now on, the clock runs
	m.ClockTTL(true)       // and keys expire
	return errors.Join(err, s.closeMonths(ctx, serial.OnDateOf(now)))
}

// sampleOrder stores the order with the index i of a day. Depending on the index, it then stores an invoice, voids or
// deletes a document, or does nothing.
func (s *service) sampleOrder(ctx context.Context, at time.Time, ago, i int) error {
	if i == 4 { // the database rejects the amount after the number was taken
		_, _ = s.place(ctx, "Bob", 999_999_999)
		return nil
	}
	order, err := s.place(ctx, "Ada", 1250)
	switch {
	case err != nil || i == 1:
		return err
	case i == 2 && ago == 1: // deleted as with a database client, without a reason
		_, err := s.db.ExecContext(ctx, "DELETE FROM orders WHERE number = ?", order)
		return err
	case i == 2 && ago%5 == 0:
		return s.voidOrder(ctx, order, "ordered twice", "Ada")
	}
	invoice, err := s.invoice(ctx, order, serial.OnDateOf(at))
	if err == nil && i == 3 {
		err = s.voidInvoice(ctx, invoice)
	}
	return err
}
