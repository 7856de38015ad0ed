package main

import (
	"context"
	"database/sql"
	"errors"

	"github.com/dailyserial/serial"
	"github.com/dailyserial/serial/gapless"
)

// invoice stores the invoice of an order and returns its number. If the order already has an invoice, it returns the
// number of that invoice. A new number is the next one of the month, and contains the date. It is committed together
// with its invoice: if anything fails, the next invoice gets the number.
func (s *service) invoice(ctx context.Context, order string, date serial.When) (number string, err error) {
	err = s.inTx(ctx, func(tx *sql.Tx) error {
		row := tx.QueryRowContext(ctx, "SELECT number FROM invoices WHERE order_number = ? AND voided_at IS NULL", order)
		if err := row.Scan(&number); !errors.Is(err, sql.ErrNoRows) {
			return err
		}
		// Take the number last, because other transactions that need a number wait until this one ends.
		n, err := s.invoices.NextOn(ctx, tx, invoiceType, date)
		if errors.Is(err, gapless.ErrPeriodClosed) {
			return refusal("the month is closed")
		}
		if err != nil {
			return err
		}
		number = n.String()
		result, err := tx.ExecContext(ctx,
			"INSERT INTO invoices (number, order_number) SELECT ?, number FROM orders WHERE number = ?", n, order)
		return changed(result, err, "there is no such order")
	})
	return number, err
}

// voidInvoice marks an invoice as void. The invoice keeps its number, and the order can get another invoice.
func (s *service) voidInvoice(ctx context.Context, number string) error {
	result, err := s.db.ExecContext(ctx,
		"UPDATE invoices SET voided_at = CURRENT_TIMESTAMP WHERE number = ? AND voided_at IS NULL", number)
	return changed(result, err, "there is no such invoice, or it is void already")
}

// closeMonths closes all months before the one that contains the given date, so that they get no more invoices.
func (s *service) closeMonths(ctx context.Context, date serial.When) error {
	_, start, _ := s.invoices.Scheme().Period(date)
	return s.inTx(ctx, func(tx *sql.Tx) error {
		return s.invoices.ClosePeriods(ctx, tx, invoiceType, serial.At(start))
	})
}
