// Package page has the code of docs/page.md.
package page

import (
	"context"
	"database/sql"
	"iter"
	"maps"
	"net/http"
	"slices"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/go-chi/chi/v5"
	"github.com/labstack/echo/v5"

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

// stored yields all numbers that a query selects. The column must not contain NULL.
func stored(db *sql.DB, query string, args ...any) func(_ context.Context, _, _ time.Time) iter.Seq2[string, error] {
	return func(ctx context.Context, _, _ time.Time) iter.Seq2[string, error] {
		return func(yield func(string, error) bool) {
			rows, err := db.QueryContext(ctx, query, args...)
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

type userKey struct{}

// login stands for your own: it admits known users, and puts the name into the context.
func login(known map[string]string, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name, password, ok := r.BasicAuth()
		if !ok || known[name] == "" || known[name] != password {
			w.Header().Set("WWW-Authenticate", `Basic realm="numbers"`)
			http.Error(w, "Who are you?", http.StatusUnauthorized)
			return
		}
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), userKey{}, name)))
	})
}

func withNetHTTP(page http.Handler) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/numbers", page)
	mux.Handle("/numbers/", page)
	return mux
}

func withChi(page http.Handler) http.Handler {
	router := chi.NewRouter()
	router.Handle("/numbers", page)
	router.Handle("/numbers/*", page)
	return router
}

func withGin(page http.Handler) http.Handler {
	router := gin.New()
	router.Any("/numbers", gin.WrapH(page))
	router.Any("/numbers/*path", gin.WrapH(page))
	return router
}

func withEcho(page http.Handler) http.Handler {
	router := echo.New()
	router.Any("/numbers", echo.WrapHandler(page))
	router.Any("/numbers/*", echo.WrapHandler(page))
	return router
}

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
