package main

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/dailyserial/serial"
	"github.com/dailyserial/serial/examples/orders/internal/numbers"
)

// each runs a test on both databases. fresh returns the address of an empty database, which is dropped when the test
// ends.
func each(t *testing.T, test func(t *testing.T, fresh func(t *testing.T) string)) {
	t.Run("PostgreSQL", func(t *testing.T) { test(t, postgres) })
	t.Run("SQLite", func(t *testing.T) {
		if !hasSQLite() {
			t.Skip("SQLite is tested only without the race detector")
		}
		test(t, sqlite)
	})
}

// anyDatabase returns the address of a database for a test that works with either.
func anyDatabase(t *testing.T) string {
	t.Helper()
	if hasSQLite() {
		return sqlite(t)
	}
	return postgres(t)
}

func hasSQLite() bool { return slices.Contains(sql.Drivers(), "sqlite") }

// sqlite returns the path of a new database, in memory if there is such a folder, since writing to a busy disk may take
// longer than patience.
func sqlite(t *testing.T) string {
	folder, err := os.MkdirTemp("/dev/shm", "orders")
	if err != nil {
		folder = t.TempDir()
	}
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(folder)) })
	return filepath.Join(folder, "orders.db")
}

// postgres returns the address of a new schema on the server that SERIAL_POSTGRES_DSN names, or on the default port.
// With SERIAL_REQUIRE_SQL=1, a missing server is a failure.
func postgres(t *testing.T) string {
	t.Helper()
	dsn := os.Getenv("SERIAL_POSTGRES_DSN")
	if dsn == "" {
		dsn = "postgres://postgres@127.0.0.1:5432/test?sslmode=disable"
	}
	db, err := sql.Open("pgx", dsn)
	require.NoError(t, err)
	t.Cleanup(func() { _ = db.Close() })
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if err := db.PingContext(ctx); err != nil {
		if os.Getenv("SERIAL_REQUIRE_SQL") == "1" {
			t.Fatalf("SERIAL_REQUIRE_SQL=1: %v", err)
		}
		t.Skipf("no PostgreSQL: %v", err)
	}
	schema := fmt.Sprintf("orders_%d_%d", os.Getpid(), time.Now().UnixNano())
	_, err = db.ExecContext(ctx, "CREATE SCHEMA "+schema)
	require.NoError(t, err)
	t.Cleanup(func() {
		_, err := db.Exec("DROP SCHEMA " + schema + " CASCADE")
		require.NoError(t, err)
	})
	separator := "?"
	if strings.Contains(dsn, "?") {
		separator = "&"
	}
	return dsn + separator + "search_path=" + schema
}

// A journal collects what was logged or printed.
type journal struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (j *journal) Write(p []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.Write(p)
}

func (j *journal) String() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.String()
}

func (j *journal) logger() *slog.Logger { return slog.New(slog.NewTextHandler(j, nil)) }

// embedded returns a client of a Redis in memory, and that Redis.
func embedded(t *testing.T) (*redis.Client, *miniredis.Miniredis) {
	t.Helper()
	m, err := embeddedRedis()
	require.NoError(t, err)
	t.Cleanup(m.Close)
	return client(t, m.Addr()), m
}

func client(t *testing.T, addr string) *redis.Client {
	t.Helper()
	rdb := redis.NewClient(&redis.Options{Addr: addr})
	t.Cleanup(func() { _ = rdb.Close() })
	return rdb
}

// noon is a zone where it is about noon, so no test runs over midnight.
var noon = zoneOf(12)

// zoneOf returns a zone where it is about that hour of the current day or a neighbouring one.
func zoneOf(hour int) *time.Location {
	zone, err := time.LoadLocation(fmt.Sprintf("Etc/GMT%+d", time.Now().UTC().Hour()-hour)) // their sign is reversed
	if err != nil {
		panic(err)
	}
	return zone
}

// A process stands for a process that serves orders. It shares only Redis and the database.
type process struct {
	*service
	*journal
	*httptest.Server
}

// start starts a process with that protection or, if there are options, with a generator made from them.
func start(t *testing.T, rdb *redis.Client, dsn, protect string, opts ...serial.Option) *process {
	t.Helper()
	s := numbers.FromEnvironment()
	s.RedisURL, s.Database, s.Protect, s.Zone = "redis://"+rdb.Options().Addr, dsn, protect, noon.String()
	return startWith(t, s, opts...)
}

func startWith(t *testing.T, s numbers.Settings, opts ...serial.Option) *process {
	t.Helper()
	p := &process{journal: &journal{}}
	gen, err := numbers.Open(s, p.logger())
	require.NoError(t, err)
	t.Cleanup(func() { _ = gen.Close() })
	gen.DB.SetMaxOpenConns(min(gen.DB.Stats().MaxOpenConnections, 8)) // other tests use the server, too
	orders, err := newTable(t.Context(), gen.DB)
	require.NoError(t, err)
	require.NoError(t, gen.CreateTable(t.Context()))
	if len(opts) > 0 {
		gen.Generator, err = serial.New(client(t, strings.TrimPrefix(s.RedisURL, "redis://")), opts...)
		require.NoError(t, err)
	}
	p.service = &service{gen.Generator, orders, p.logger()}
	p.Server = httptest.NewServer(p.routes())
	t.Cleanup(p.Server.Close)
	p.Client().Transport.(*http.Transport).MaxIdleConnsPerHost = 100
	return p
}

// An answer is the answer to a request for an order. Only one of order and problem is set.
type answer struct {
	status int
	header http.Header
	order
	problem
}

type problem struct {
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail"`
}

// post orders something.
func (p *process) post(ctx context.Context, key string, d draft) (answer, error) {
	header := http.Header{"X-Forwarded-User": {d.Customer}, "Idempotency-Key": {key}}
	return p.send(ctx, "POST", "/orders", header, fmt.Sprintf(`{"amount_cents": %d}`, d.AmountCents))
}

func (p *process) send(ctx context.Context, method, path string, header http.Header, body string) (a answer,
	err error) {
	r, err := http.NewRequestWithContext(ctx, method, p.URL+path, strings.NewReader(body))
	if err != nil {
		return a, err
	}
	r.Header = header
	response, err := p.Client().Do(r)
	if err != nil {
		return a, err
	}
	defer func() { _ = response.Body.Close() }()
	a.status, a.header = response.StatusCode, response.Header
	switch response.Header.Get("Content-Type") {
	case "application/json":
		err = json.NewDecoder(response.Body).Decode(&a.order)
	case "application/problem+json":
		err = json.NewDecoder(response.Body).Decode(&a.problem)
	}
	return a, err
}

// must is post with a required status.
func (p *process) must(t *testing.T, status int, key string, d draft) answer {
	t.Helper()
	a, err := p.post(t.Context(), key, d)
	require.NoError(t, err)
	require.Equal(t, status, a.status, "%s %s\n%s", key, a.Detail, p.journal)
	return a
}

// stored returns the number of each key in the table. No two customers may have the same key.
func (p *process) stored(t *testing.T) map[string]string {
	t.Helper()
	rows, err := p.orders.db.QueryContext(t.Context(), "SELECT idempotency_key, number FROM orders")
	require.NoError(t, err)
	defer func() { _ = rows.Close() }()
	numbers := map[string]string{}
	for n := 1; rows.Next(); n++ {
		var key, number string
		require.NoError(t, rows.Scan(&key, &number))
		numbers[key] = number
		require.Len(t, numbers, n, "two orders of %s", key)
	}
	require.NoError(t, rows.Err())
	return numbers
}
