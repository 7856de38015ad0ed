package main

import (
	"context"
	"errors"
	"iter"
	"net/http"
	"net/url"
	"time"

	"github.com/dailyserial/serial/serialpage"
)

// An access says who uses the pages, and under which address.
type access struct {
	header string // holds the user's name; the login proxy sets it
	user   string // used without that header; "" for nobody
	origin string // under which browsers reach the proxy; "" if the proxy keeps the Host header
}

// name returns who sent a request, for [serialpage.Options]. A second header means that the proxy added its own to the
// client's.
func (a access) name(r *http.Request) (string, error) {
	switch names := r.Header.Values(a.header); len(names) {
	case 0:
		return a.user, nil
	case 1:
		return names[0], nil
	}
	return "", errors.New("more than one " + a.header + " header")
}

// series returns what the pages show. Invoice numbers can only be missing if somebody deletes rows by force, and then
// an auditor wants to store the reason. So both use the register.
//
// Both audits read the counter before and after the stored numbers, and ignore what was issued in between. So neither
// needs a transaction.
func (s *service) series(context.Context) ([]serialpage.Series, error) {
	return []serialpage.Series{{
		Type: orderType, Name: "Orders", Source: serialpage.Redis(s.orders.Generator),
		Stored: s.stored("SELECT number FROM orders"), Explanations: s.register,
	}, {
		Type: invoiceType, Name: "Invoices", Source: serialpage.Table(s.db, s.invoices),
		Stored: s.stored("SELECT number FROM invoices"), Explanations: s.register,
		Link: func(number string) string { return "../invoices/" + url.PathEscape(number) },
	}}, nil
}

// stored yields the numbers that a query selects, of all periods: an audit that selected them by a column of the table
// would trust the table that it checks. The query runs when the first number is requested.
func (s *service) stored(query string) func(_ context.Context, start, end time.Time) iter.Seq2[string, error] {
	return func(ctx context.Context, _, _ time.Time) iter.Seq2[string, error] {
		return func(yield func(string, error) bool) {
			rows, err := s.db.QueryContext(ctx, query)
			if err != nil {
				yield("", err)
				return
			}
			defer func() { _ = rows.Close() }()
			for rows.Next() {
				var number string
				err := rows.Scan(&number)
				if !yield(number, err) || err != nil {
					return
				}
			}
			if err := rows.Err(); err != nil {
				yield("", err)
			}
		}
	}
}
