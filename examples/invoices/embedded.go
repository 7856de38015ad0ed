package main

import (
	"context"
	"database/sql"
	"errors"
	"log/slog"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/dailyserial/serial"
)

// embeddedRedis starts a Redis in this process's memory, FOR DEMONSTRATION ONLY: its data ends with the process. In a service
// of your own, delete this file.
func embeddedRedis() (*miniredis.Miniredis, error) {
	m, err := miniredis.Run()
	if err != nil {
		return nil, err
	}
	m.ClockTTL(true) // expire keys by the clock
	return m, nil
}

// sample stores orders and invoices of the last ten days to look at. The database refuses some orders that are too large, after
// they got their numbers, which leaves gaps. It also refuses some invoices with nothing to pay, which leaves no gaps.
func sample(ctx context.Context, m *miniredis.Miniredis, rdb *redis.Client, db *sql.DB, zone *time.Location,
	log *slog.Logger) error {
	s, err := newService(ctx, rdb, db, zone, log, serial.WithMaxSkew(-1)) // the clock is set back on purpose
	if err != nil {
		return err
	}
	defer func() {
		m.SetTime(time.Time{}) // the clock goes on
		m.ClockTTL(true)       // again, or miniredis takes this for a leap of two thousand years, and every key expires
	}()
	now := time.Now()
	var refused refusal
	for i := range 120 {
		at := now.AddDate(0, 0, i/12-9)
		m.SetTime(at)
		d := draft{[]string{"Ada", "Bob", "Eve"}[i%3], int64(i*i%7) * 1250}
		if i%13 > 10 {
			d.AmountCents = largest + 1
		}
		o, err := s.place(ctx, d)
		if errors.As(err, &refused) {
			continue
		}
		if err == nil && i%5 > 1 {
			var v invoice
			v, _, err = s.invoice(ctx, o.Number, at)
			if err == nil && i%9 == 1 {
				_, err = s.void(ctx, v.Number)
			}
		}
		if err != nil && !errors.As(err, &refused) {
			return err
		}
	}
	return nil
}
