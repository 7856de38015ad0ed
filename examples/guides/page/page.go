// Package page has the code of docs/page.md: this file's is shown there, and the others are named.
package page

import (
	"context"
	"database/sql"
	"net/http"

	"github.com/dailyserial/serial"
	"github.com/dailyserial/serial/gapless"
	"github.com/dailyserial/serial/serialpage"
	"github.com/dailyserial/serial/sqlledger"
)

// newPage shows orders, which are counted on Redis, and invoices, which are numbered without gaps.
func newPage(ctx context.Context, orders *serial.Generator, invoices *gapless.Generator, db *sql.DB) (
	http.Handler, error) {
	register, err := sqlledger.NewRegister(db, sqlledger.SQLite)
	if err != nil {
		return nil, err
	}
	if err := register.CreateTable(ctx); err != nil {
		return nil, err
	}
	series := []serialpage.Series{{
		Type: "ORD", Name: "Orders", Source: serialpage.Redis(orders),
		Stored: stored(db, "SELECT number FROM orders"), Explanations: register,
	}, {
		Type: "INV", Name: "Invoices", Source: serialpage.Table(db, invoices),
		Stored: stored(db, "SELECT number FROM invoices"), Explanations: register,
	}}
	return serialpage.NewHandler(serialpage.Options{
		Prefix: "/numbers",
		Series: func(context.Context) ([]serialpage.Series, error) { return series, nil },
		User: func(r *http.Request) (string, error) {
			name, _ := r.Context().Value(userKey{}).(string) // "" may only read
			return name, nil
		},
	})
}
