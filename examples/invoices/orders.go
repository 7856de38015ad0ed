package main

import (
	"cmp"
	"context"
	"database/sql"
	"strings"
	"time"

	"github.com/dailyserial/serial"
)

// place stores an order and returns its number. It takes the number first, outside any transaction, because Redis
// cannot take a number back. If the order cannot be stored, its number is missing. The register contains the reason.
func (s *service) place(ctx context.Context, customer string, cents int64) (string, error) {
	n, err := s.orders.NextNumber(ctx, orderType)
	if err != nil {
		return "", err
	}
	_, err = s.db.ExecContext(ctx, "INSERT INTO orders (number, day, seq, customer, amount_cents) VALUES (?, ?, ?, ?, ?)",
		n, n.Start.Format(time.DateOnly), n.Seq, customer, cents)
	if err == nil {
		return n.String(), nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), requestTimeout) // the client may have disconnected
	defer cancel()
	e, failed := s.orders.Scheme().Explanation(n, n, "the order could not be stored", "")
	if failed = cmp.Or(failed, s.register.Explain(ctx, e)); failed != nil {
		s.notStored(e, failed)
	}
	return "", err
}

// voidOrder deletes an order that has no invoice, and stores why its number is missing, in the same transaction.
func (s *service) voidOrder(ctx context.Context, number, reason, by string) error {
	n, err := s.orders.Scheme().Parse(number)
	e, invalid := s.orders.Scheme().Explanation(n, n, reason, by)
	if err = cmp.Or(err, invalid); err != nil {
		return refusal(err.Error())
	}
	return s.inTx(ctx, func(tx *sql.Tx) error {
		result, err := tx.ExecContext(ctx, `DELETE FROM orders WHERE number = ?
			AND NOT EXISTS (SELECT 1 FROM invoices WHERE order_number = orders.number)`, number)
		if err := changed(result, err, "there is no such order, or it has an invoice"); err != nil {
			return err
		}
		return s.register.ExplainIn(ctx, tx, e)
	})
}

// lastOrder is the floor of the orders' Generator. It returns the last sequence of a day that was used. Deleted orders
// count, because their numbers may be on paper. Numbers that an operator has skipped count, too. Other possible reasons
// do not count, because the range of a lost reply, for example, ends at the largest possible number.
func (s *service) lastOrder(ctx context.Context, typ string, start time.Time) (last int64, err error) {
	row := s.db.QueryRowContext(ctx, "SELECT coalesce(max(seq), 0) FROM orders WHERE day = ?", start.Format(time.DateOnly))
	if err := row.Scan(&last); err != nil {
		return 0, err
	}
	series, err := s.orders.Scheme().Series(typ)
	if err != nil {
		return 0, err
	}
	for e, err := range s.register.Explanations(ctx, series, start) {
		if err != nil {
			return 0, err
		}
		if !e.Possible || strings.HasPrefix(e.Reason, serial.Raised) {
			last = max(last, e.Last)
		}
	}
	return last, nil
}
