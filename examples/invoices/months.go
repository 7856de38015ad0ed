package main

import (
	"context"
	"database/sql"
	"errors"
	"net/http"
	"time"

	"github.com/dailyserial/serial"
)

// closeMonth closes the month of a day and all earlier months: their invoices get no more numbers. It waits for
// transactions that are taking a number.
func (s *service) closeMonth(ctx context.Context, day serial.When, reason, by string) error {
	_, start, end := s.invoices.Scheme().Period(day)
	if time.Now().Before(end) {
		return refusal{http.StatusConflict, "the month has not ended"}
	}
	return s.record(ctx, "close", start, reason, by, func(tx *sql.Tx) error {
		return s.invoices.ClosePeriods(ctx, tx, invoiceType, serial.At(end))
	})
}

// reopenMonth reopens the month of a day and all later months.
func (s *service) reopenMonth(ctx context.Context, day serial.When, reason, by string) error {
	_, start, _ := s.invoices.Scheme().Period(day)
	return s.record(ctx, "reopen", start, reason, by, func(tx *sql.Tx) error {
		return s.invoices.ReopenPeriods(ctx, tx, invoiceType, serial.At(start))
	})
}

// record carries out a change, and stores who asked for it and why, in one transaction.
func (s *service) record(ctx context.Context, action string, start time.Time, reason, by string,
	change func(*sql.Tx) error) error {
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // does nothing after Commit
	if err := change(tx); err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, "INSERT INTO closings (action, month, done_by, reason) VALUES (?, ?, ?, ?)",
		action, start.Format("2006-01"), by, reason); err != nil {
		return err
	}
	return tx.Commit()
}

// day returns noon of a day such as 2021-10-24. Unlike midnight, noon exists on every day.
func (s *service) day(text string) (time.Time, error) {
	day, err := time.ParseInLocation(time.DateOnly, text, s.zone)
	if err == nil && day.Year() < 1971 {
		err = errors.New("the year is before 1971")
	}
	return day.Add(12 * time.Hour), err
}
