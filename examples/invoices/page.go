package main

import (
	"context"
	"database/sql"
	"iter"
	"net/http"
	"time"

	"github.com/dailyserial/serial/serialpage"
)

// newPage returns the pages below /numbers/. Both series use the register, because the number of an invoice can be
// missing, too, if its row was deleted by force.
func newPage(s *service) (http.Handler, error) {
	series := []serialpage.Series{{
		Type: orderType, Name: "Orders", Source: serialpage.Redis(s.orders),
		Stored: stored(s.db, "SELECT number FROM orders"), Explanations: s.register,
	}, {
		Type: invoiceType, Name: "Invoices", Source: serialpage.Table(s.db, s.invoices),
		Stored: stored(s.db, "SELECT number FROM invoices"), Explanations: s.register,
	}}
	return serialpage.NewHandler(serialpage.Options{
		Prefix: "/numbers",
		Series: func(context.Context) ([]serialpage.Series, error) { return series, nil },
		User:   user, // who may explain numbers
		Logger: s.log,
	})
}

// stored yields all numbers that a query selects. The column must not contain NULL.
func stored(db *sql.DB, query string) func(_ context.Context, start, end time.Time) iter.Seq2[string, error] {
	return func(ctx context.Context, _, _ time.Time) iter.Seq2[string, error] {
		return func(yield func(string, error) bool) {
			rows, err := db.QueryContext(ctx, query)
			if err != nil {
				yield("", err)
				return
			}
			defer func() { _ = rows.Close() }()
			for rows.Next() {
				var number string
				if err := rows.Scan(&number); !yield(number, err) || err != nil {
					return
				}
			}
			if err := rows.Err(); err != nil {
				yield("", err)
			}
		}
	}
}
