package main

import (
	"context"
	"errors"
	"time"

	"github.com/alicebob/miniredis/v2"

	"github.com/dailyserial/serial"
	"github.com/dailyserial/serial/examples/invoices/internal/numbers"
)

// embeddedRedis starts a Redis in this process's memory, FOR DEMONSTRATION ONLY: its data is lost when the process
// ends. In your own service, delete this file.
func embeddedRedis() (*miniredis.Miniredis, error) {
	m, err := miniredis.Run()
	if err != nil {
		return nil, err
	}
	m.ClockTTL(true) // expire keys by the clock
	return m, nil
}

// sampled is the number of sample days, including today: enough to reach the end of the previous month on any day.
const sampled = 40

// sample stores orders and invoices of the last days, and closes the previous month. The database refuses some orders that are too large after they got their numbers, which leaves gaps. It
// also refuses some invoices with nothing to pay, which leaves no gaps.
func sample(ctx context.Context, m *miniredis.Miniredis, s *service, now time.Time) error {
	defer func() {
		m.SetTime(time.Time{}) // the clock runs again
		m.ClockTTL(true)       // otherwise miniredis sees a jump of two thousand years, and every key expires
	}()
	pastOrders, err := numbers.New(s.orders.Redis, s.db, s.zone, s.log, serial.WithMaxSkew(-1)) // the clock is set back
	if err != nil {
		return err
	}
	past, err := newService(ctx, pastOrders, s.log)
	if err != nil {
		return err
	}
	now = now.In(s.zone)
	for ago := sampled - 1; ago >= 0; ago-- {
		at := time.Date(now.Year(), now.Month(), now.Day()-ago, 12, 0, 0, 0, s.zone) // noon exists on every day
		if at.After(now) {
			at = now
		}
		m.SetTime(at)
		for i := range 12 - ago*5%7 {
			var refused refusal
			if err := past.sampleOrder(ctx, at, ago, i); err != nil && !errors.As(err, &refused) {
				return err
			}
		}
	}
	_, month, _ := s.invoices.Scheme().Period(serial.At(now))
	return s.closeMonth(ctx, serial.At(month.Add(-time.Second)), "reported", "Ada")
}

// sampleOrder stores an order, and then invoices, voids or deletes it.
func (s *service) sampleOrder(ctx context.Context, at time.Time, ago, i int) error {
	d := draft{[]string{"Ada", "Bob", "Eve"}[i%3], int64(i*i%7) * 1250}
	if i == 7 {
		d.AmountCents = largest + 1
	}
	o, err := s.place(ctx, d)
	switch {
	case err != nil || i%5 == 1:
		return err
	case i == 3 && ago == 1: // as somebody with a database client would, without a reason
		_, err := s.db.ExecContext(ctx, "DELETE FROM orders WHERE number = ?", o.Number)
		return err
	case i == 3 && ago%5 == 0:
		return s.voidOrder(ctx, o.Number, "ordered twice", "Ada")
	}
	v, _, err := s.invoice(ctx, o.Number, serial.At(at))
	if err == nil && i == 5 && ago%3 == 0 {
		_, err = s.void(ctx, v.Number)
	}
	return err
}
