package main

import (
	"context"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dailyserial/serial"
	"github.com/dailyserial/serial/examples/internal/exampletest"
)

// The code in docs/page.md must be the code in page.go.
func TestGuide(t *testing.T) {
	exampletest.RequireCode(t, exampletest.ReadFile(t, "../../docs/page.md"), "page.go")
}

// The pages must account for every sample document except one, and for the documents that the test adds.
func TestDemonstration(t *testing.T) {
	exampletest.RequireSQLite(t)
	t.Setenv("INVOICES_REDIS_URL", "")
	t.Setenv("INVOICES_DATABASE", "")
	address, _ := exampletest.Start(t, "INVOICES_ADDR", run)
	send := func(status int, method, path, form string) string {
		t.Helper()
		r := exampletest.Must(http.NewRequestWithContext(t.Context(), method, address+path, strings.NewReader(form)))
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		response := exampletest.Must(http.DefaultClient.Do(r))
		defer func() { _ = response.Body.Close() }()
		text := exampletest.Must(io.ReadAll(response.Body))
		require.Equal(t, status, response.StatusCode, "%s %s: %s", method, path, text)
		return strings.TrimSpace(string(text))
	}
	for key, unexplained := range map[string]int{"ORD": 1, "INV": 0} {
		send(200, "POST", "/numbers/check", "key="+key)
		var page string
		require.Eventually(t, func() bool {
			page = send(200, "GET", "/numbers/series?key="+key, "")
			return strings.Contains(page, "The last complete check began on ")
		}, 10*time.Second, 50*time.Millisecond)
		require.Equal(t, unexplained, strings.Count(page, `<rect class="unexplained"`), page)
		require.Equal(t, key == "INV", strings.Contains(page, ">closed<"))
	}

	order := send(200, "POST", "/orders", "customer=Ada&cents=1250")
	send(422, "POST", "/orders", "customer=Ada&cents=0")
	invoice := send(200, "POST", "/orders/"+order+"/invoice", "")
	require.Equal(t, invoice, send(200, "POST", "/orders/"+order+"/invoice", ""), "an order has one invoice")
	send(422, "POST", "/orders/"+order+"/void", "reason=ordered+twice")
	send(200, "POST", "/invoices/"+invoice+"/void", "")
	require.Greater(t, send(200, "POST", "/orders/"+order+"/invoice", ""), invoice)

	second := send(200, "POST", "/orders", "customer=Ada&cents=1250")
	send(200, "POST", "/orders/"+second+"/void", "reason=the+customer+left")
	require.Contains(t, send(200, "GET", "/numbers/find?number="+second, ""), "the customer left")
}

// Clients place orders and request invoices, and some give up. No invoice number may be missing, and every missing
// order must have a reason. The number of the last order must not be issued again, although Redis loses its data.
func TestAtOnce(t *testing.T) {
	exampletest.RequireSQLite(t)
	m := miniredis.RunT(t)
	rdb := redis.NewClient(&redis.Options{Addr: m.Addr()})
	db := exampletest.Must(openDatabase(filepath.Join(t.TempDir(), "invoices.db")))
	defer func() { _ = db.Close() }()
	now := time.Date(2021, time.October, 24, 12, 0, 0, 0, time.UTC)
	m.SetTime(now)
	newProcess := func() *service {
		s, err := newService(t.Context(), rdb, db, time.UTC, slog.New(slog.DiscardHandler), serial.WithMaxSkew(-1))
		require.NoError(t, err)
		return s
	}
	s := newProcess()
	var clients sync.WaitGroup
	for range 8 {
		clients.Go(func() {
			for i := range 10 {
				order, err := s.place(t.Context(), "Ada", int64(100_000_000+i%2)) // every second order is rejected
				assert.Equal(t, i%2 == 1, err != nil)
				ctx, leave := context.WithTimeout(t.Context(), rand.N(20*time.Millisecond))
				_, _ = s.invoice(ctx, order, serial.At(now))
				leave()
			}
		})
	}
	clients.Wait()
	all := stored(db, "SELECT number FROM invoices")(t.Context(), now, now)
	invoices := exampletest.Must(s.invoices.Audit(t.Context(), db, invoiceType, serial.At(now), all))
	require.True(t, invoices.Clean() && invoices.MissingCount == 0, "%+v", invoices)
	_, start, _ := s.orders.Scheme().Period(serial.At(now))
	all = stored(db, "SELECT number FROM orders")(t.Context(), now, now)
	orders, err := s.orders.Audit(t.Context(), orderType, serial.At(now), all,
		serial.WithExplanations(s.register.Explanations(t.Context(), "serial:ORD", start)))
	require.NoError(t, err)
	require.True(t, orders.Clean() && orders.MissingCount == 40, "%+v", orders)

	last := exampletest.Must(s.place(t.Context(), "Ada", 100))
	require.NoError(t, s.voidOrder(t.Context(), last, "ordered twice", "Ada"))
	m.FlushAll()
	next := exampletest.Must(newProcess().place(t.Context(), "Ada", 100))
	require.Greater(t, next, last)
}
