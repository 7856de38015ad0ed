package page

import (
	"context"
	"database/sql"
	"maps"
	"net/http"
	"slices"

	"github.com/dailyserial/serial"
	"github.com/dailyserial/serial/serialpage"
	"github.com/dailyserial/serial/sqlledger"
)

// newTenantsPage shows the orders of all tenants, whose generators have different key prefixes.
func newTenantsPage(tenants map[string]*serial.Generator, db *sql.DB, register *sqlledger.Register) (
	http.Handler, error) {
	return serialpage.NewHandler(serialpage.Options{
		Prefix: "/numbers",
		Series: func(context.Context) (all []serialpage.Series, err error) {
			for _, name := range slices.Sorted(maps.Keys(tenants)) {
				all = append(all, serialpage.Series{
					Key: name + "/ORD", Type: "ORD", Name: "Orders of " + name, Source: serialpage.Redis(tenants[name]),
					Stored: stored(db, "SELECT number FROM orders WHERE tenant = $1", name), Explanations: register,
				})
			}
			return all, nil
		},
		User:           func(r *http.Request) (string, error) { return r.Header.Get("X-Forwarded-User"), nil },
		TrustedOrigins: []string{"https://numbers.example.com"},
	})
}
