package main

import (
	"context"
	"database/sql"
	"errors"
	"net/http"
	"time"

	"github.com/dailyserial/serial"
	"github.com/dailyserial/serial/gapless"
)

type invoice struct {
	Number      string  `json:"number"`
	Order       string  `json:"order"`
	AmountCents int64   `json:"amount_cents"`
	VoidedAt    *string `json:"voided_at"` // null unless void
}

// invoice stores the invoice of an order, or finds the existing one. The number and its invoice are committed together
// or not at all: whatever fails, the next invoice gets the number. If date is not zero, the invoice is backdated: it
// prints that day, and gets the next number of that month.
func (s *service) invoice(ctx context.Context, orderNumber string, date serial.When) (v invoice, created bool,
	err error) {
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return v, false, err
	}
	defer func() { _ = tx.Rollback() }() // does nothing after Commit
	v, err = scan(tx.QueryRowContext(ctx, selectInvoices+"WHERE order_number = ? AND voided_at IS NULL", orderNumber))
	if err == nil || !errors.Is(err, sql.ErrNoRows) {
		return v, false, err
	}
	v.Order = orderNumber
	if err := tx.QueryRowContext(ctx, "SELECT amount_cents FROM orders WHERE number = ?", orderNumber).
		Scan(&v.AmountCents); err != nil {
		return v, false, err
	}

	// The number comes last: from here until the commit, everybody else waits.
	var number serial.Number
	if date == (serial.When{}) {
		number, err = s.invoices.Next(ctx, tx, invoiceType) // by the database's clock
	} else {
		number, err = s.invoices.NextOn(ctx, tx, invoiceType, date)
	}
	if errors.Is(err, gapless.ErrPeriodClosed) {
		return v, false, refusal{http.StatusConflict, "the month is closed"}
	}
	if err != nil {
		return v, false, err
	}
	v.Number = number.String()
	_, err = tx.ExecContext(ctx, "INSERT INTO invoices (number, day, order_number, amount_cents) VALUES (?, ?, ?, ?)",
		v.Number, number.Date.Format(time.DateOnly), v.Order, v.AmountCents)
	if broken(err, checkFailed) {
		return v, false, refusal{http.StatusUnprocessableEntity, "this order has nothing to pay"}
	}
	if err != nil {
		return v, false, err
	}
	return v, true, tx.Commit()
}

// void marks an invoice as void. It keeps its number, and the order can have another invoice with a new number. Voiding
// an invoice again changes nothing.
func (s *service) void(ctx context.Context, number string) (invoice, error) {
	_, err := s.db.ExecContext(ctx, `UPDATE invoices SET voided_at = strftime('%Y-%m-%dT%H:%M:%SZ', 'now')
		WHERE number = ? AND voided_at IS NULL`, number)
	if err != nil {
		return invoice{}, err
	}
	return scan(s.db.QueryRowContext(ctx, selectInvoices+"WHERE number = ?", number))
}

// latest returns the 100 invoices stored last, newest first.
func (s *service) latest(ctx context.Context) ([]invoice, error) {
	rows, err := s.db.QueryContext(ctx, selectInvoices+"ORDER BY rowid DESC LIMIT 100")
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	all := []invoice{}
	for rows.Next() {
		v, err := scan(rows)
		if err != nil {
			return nil, err
		}
		all = append(all, v)
	}
	return all, rows.Err()
}

const selectInvoices = "SELECT number, order_number, amount_cents, voided_at FROM invoices "

func scan(row interface{ Scan(...any) error }) (v invoice, err error) {
	err = row.Scan(&v.Number, &v.Order, &v.AmountCents, &v.VoidedAt)
	return v, err
}
