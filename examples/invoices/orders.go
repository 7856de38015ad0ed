package main

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"net/http"
	"time"

	"github.com/dailyserial/serial"
)

// A draft is an order without a number.
type draft struct {
	Customer    string `json:"customer"`
	AmountCents int64  `json:"amount_cents"`
}

type order struct {
	Number string `json:"number"`
	draft
}

// explanation returns the explanation of why an order's number is missing.
func (s *service) explanation(n serial.Number, reason, by string) (serial.Explanation, error) {
	series, err := s.orders.Scheme().Series(n.Type)
	return serial.Explanation{Series: series, Type: n.Type, Start: n.Start, First: n.Seq, Last: n.Seq, Reason: reason,
		By: by, At: time.Now()}, err
}

// place stores an order. It takes the number first, outside of any transaction: Redis cannot take a number back, and a
// transaction would only make others wait for Redis. If storing the order then fails, its number is a gap, and the
// register says why. If the database stored the order but did not answer in time, the explanation has no effect.
func (s *service) place(ctx context.Context, d draft) (order, error) {
	number, err := s.orders.NextNumber(ctx, orderType)
	if err != nil {
		return order{}, err
	}
	_, err = s.db.ExecContext(ctx, "INSERT INTO orders (number, day, seq, customer, amount_cents) VALUES (?, ?, ?, ?, ?)",
		number, number.Date.Format(time.DateOnly), number.Seq, d.Customer, d.AmountCents)
	if err == nil {
		return order{number.String(), d}, nil
	}
	reason := "the order could not be stored"
	if broken(err, checkFailed) {
		err = refusal{http.StatusUnprocessableEntity, fmt.Sprintf("amount_cents must be 0 to %d", largest)}
		reason = "the order was refused: " + err.Error()
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience) // the client may have left
	defer cancel()
	e, failed := s.explanation(number, reason, "orders")
	if failed = cmp.Or(failed, s.register.Explain(ctx, e)); failed != nil {
		s.orders.NotKept(e, failed)
	}
	return order{}, err
}

// voidOrder deletes an order that has no invoice, and stores why its number is missing, in one transaction.
func (s *service) voidOrder(ctx context.Context, number, reason, by string) error {
	n, err := s.orders.Scheme().Parse(number)
	if err != nil {
		return sql.ErrNoRows
	}
	e, err := s.explanation(n, reason, by)
	if err != nil {
		return err
	}
	if err := e.Validate(); err != nil {
		return refusal{http.StatusBadRequest, err.Error()}
	}
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // does nothing after Commit
	var deleted string
	err = tx.QueryRowContext(ctx, "DELETE FROM orders WHERE number = ? RETURNING number", number).Scan(&deleted)
	if broken(err, keyFailed) {
		return refusal{http.StatusConflict, "the order has an invoice"}
	}
	if err != nil {
		return err
	}
	if err := s.register.ExplainIn(ctx, tx, e); err != nil {
		return err
	}
	return tx.Commit()
}
