package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dailyserial/serial/examples/internal/exampletest"
	"github.com/dailyserial/serial/examples/orders/internal/numbers"
)

// setUp sets an empty Redis and an empty database of PostgreSQL.
func setUp(t *testing.T) *miniredis.Miniredis {
	_, database := exampletest.PostgreSQL(t)
	m := miniredis.RunT(t)
	addReplicationID(m)
	t.Setenv("ORDERS_DATABASE", database)
	t.Setenv("ORDERS_REDIS_URL", "redis://"+m.Addr())
	t.Setenv("ORDERS_TZ", zoneAt(12)) // far from midnight
	return m
}

var started = time.Now().UTC()

// zoneAt returns a time zone in which the tests began at the given hour.
func zoneAt(hour int) string {
	return fmt.Sprintf("Etc/GMT%+d", started.Hour()-hour) // the names have the opposite sign
}

// post sends an order, and returns the status, the header and the body, without the line break at the end of the body.
func post(ctx context.Context, address, customer, key, body string) (int, http.Header, string, error) {
	r, err := http.NewRequestWithContext(ctx, "POST", address+"/orders", strings.NewReader(body))
	if err != nil {
		return 0, nil, "", err
	}
	r.Header.Set("X-Forwarded-User", customer)
	r.Header.Set("Idempotency-Key", key)
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0, nil, "", err
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	return response.StatusCode, response.Header, strings.TrimSpace(string(text)), err
}

// Without settings, the program is a demonstration. Each key must get one order, and a rejected request no number.
func TestDemonstration(t *testing.T) {
	exampletest.RequireSQLite(t)
	t.Setenv("ORDERS_REDIS_URL", "")
	t.Setenv("ORDERS_DATABASE", "")
	address, log := exampletest.Start(t, "ORDERS_ADDR", run)
	for _, row := range []struct {
		customer, key, body string
		status              int
		response            string
	}{
		{"Ada", "first", `{"amount_cents": 1250}`, 201, `^{"number":"IS\d{8}0001","customer":"Ada","amount_cents":1250}$`},
		{"Ada", "first", `{"amount_cents": 1250}`, 200, `^{"number":"IS\d{8}0001","customer":"Ada","amount_cents":1250}$`},
		{"Bob", "first", `{"amount_cents": 1250}`, 201, `0002","customer":"Bob"`},
		{"Ada", "first", `{"amount_cents": 1251}`, 422, "was used for another order"},
		{"", "second", `{"amount_cents": 1250}`, 400, "X-Forwarded-User"},
		{"Ada", "", `{"amount_cents": 1250}`, 400, "Idempotency-Key"},
		{"Ada", "second", `{"amount_cents": 0}`, 400, "the minimum is 1"},
		{"Ada", "second", `{"amount_cents": 1250}`, 201, `0003"`},
	} {
		status, _, response, err := post(t.Context(), address, row.customer, row.key, row.body)
		require.NoError(t, err)
		require.Equal(t, row.status, status, "%+v: %s", row, log())
		require.Regexp(t, row.response, response)
	}
}

// Clients give up a request, and then repeat it to two processes at once. Meanwhile, Redis loses all data. Every key
// must get one number, and no number may have two keys.
func TestLoss(t *testing.T) {
	m := setUp(t)
	first, _ := exampletest.Start(t, "ORDERS_ADDR", run)
	other, _ := exampletest.Start(t, "ORDERS_ADDR", run)
	var mu sync.Mutex
	keys := map[string]string{} // by response
	var clients sync.WaitGroup
	for i := range 80 {
		clients.Go(func() {
			key := fmt.Sprint("key-", i)
			impatient, leave := context.WithTimeout(t.Context(), rand.N(5*time.Millisecond))
			_, _, _, _ = post(impatient, first, "Ada", key, `{"amount_cents": 1}`)
			leave()
			if i%30 == 0 {
				m.FlushAll()
			}
			for _, address := range []string{first, other} {
				clients.Go(func() {
					status, _, response, err := post(t.Context(), address, "Ada", key, `{"amount_cents": 1}`)
					for ; status == http.StatusServiceUnavailable; time.Sleep(10 * time.Millisecond) {
						status, _, response, err = post(t.Context(), address, "Ada", key, `{"amount_cents": 1}`)
					}
					mu.Lock()
					defer mu.Unlock()
					assert.NoError(t, err)
					assert.Contains(t, []string{"", key}, keys[response], "two keys got %s", response)
					keys[response] = key
				})
			}
		})
	}
	clients.Wait()
	require.Len(t, keys, 80, "one number for each key")
}

// Clients may try again if Redis is down, but not if the day has another time zone. The log has a command for that.
func TestOperator(t *testing.T) {
	m := setUp(t)
	address, log := exampletest.Start(t, "ORDERS_ADDR", run)
	requireStatus := func(want int, retryAfter string) {
		t.Helper()
		status, header, _, err := post(t.Context(), address, "Ada", "first", `{"amount_cents": 1250}`)
		require.NoError(t, err)
		require.Equal(t, want, status, log())
		require.Equal(t, retryAfter, header.Get("Retry-After"))
	}
	m.Close()
	requireStatus(http.StatusServiceUnavailable, "1")
	require.NoError(t, m.Restart())
	addReplicationID(m)

	t.Setenv("ORDERS_TZ", zoneAt(13))
	other := exampletest.Must(numbers.Open(slog.New(slog.DiscardHandler)))
	last := exampletest.Must(other.NextNumber(t.Context(), numbers.Type))
	t.Setenv("ORDERS_TZ", zoneAt(12))
	requireStatus(http.StatusServiceUnavailable, "")
	found := regexp.MustCompile(`run: orders-serial (takeover IS) SEQ, where`).FindStringSubmatch(log())
	require.NotNil(t, found, log())
	command := fmt.Sprint("run ./cmd/orders-serial ", found[1], " ", last.Seq)
	out, err := exec.Command("go", strings.Fields(command)...).CombinedOutput()
	require.NoError(t, err, "%s", out)
	requireStatus(http.StatusCreated, "")
}
