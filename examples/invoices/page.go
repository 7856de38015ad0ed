package main

import (
	"context"
	"errors"
	"iter"
	"net/http"
	"time"

	"github.com/dailyserial/serial/serialpage"
)

// An access says who uses the pages, and from where.
type access struct {
	header string // has the user's name; the login proxy sets it
	user   string // the name without that header; "" for nobody
	origin string // under which browsers reach the proxy; "" if the proxy passes on the Host header
}

// name returns who sent a request, as [serialpage.Options] want it. A second header means that the proxy has added its own to the
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

// series returns what the pages show. Numbers of invoices cannot be missing unless somebody deletes rows by force, and then an
// auditor wants to keep the reason. So the register is for both.
//
// Both audits read the counter before the stored numbers and again afterwards, and ignore what was issued in between. So neither
// needs a transaction.
func (s *service) series(context.Context) ([]serialpage.Series, error) {
	return []serialpage.Series{{
		Type: orderType, Name: "Orders", Source: serialpage.Redis(s.orders),
		Stored: s.stored("SELECT number FROM orders"), Explanations: s.register,
	}, {
		Type: invoiceType, Name: "Invoices", Source: serialpage.Table(s.db, s.invoices),
		Stored: s.stored("SELECT number FROM invoices"), Explanations: s.register,
	}}, nil
}

// stored yields the numbers that a query selects: those of all periods, since an audit that chose them by a column of the same
// table would trust the table that it checks. It asks the database when the first number is requested.
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
