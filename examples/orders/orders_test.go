package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/dailyserial/serial"
	"github.com/dailyserial/serial/examples/orders/internal/numbers"
	"github.com/dailyserial/serial/internal/redistest"
)

var ada = draft{"Ada", 1250}

// from returns the headers of a customer's request.
func from(customer string, keys ...string) http.Header {
	return http.Header{"X-Forwarded-User": {customer}, "Idempotency-Key": keys}
}

func TestOrder(t *testing.T) {
	each(t, func(t *testing.T, fresh func(t *testing.T) string) {
		rdb, _ := embedded(t)
		p := start(t, rdb, fresh(t), "ledger")
		a := p.must(t, http.StatusCreated, "first", ada)
		require.Equal(t, time.Now().In(noon).Format("IS20060102")+"0001", a.Number)
		require.Equal(t, ada, a.draft)
		require.Equal(t, "/orders/"+a.Number, a.header.Get("Location"))
		require.Equal(t, a.order, p.must(t, http.StatusOK, "first", ada).order)
		require.Equal(t, "this Idempotency-Key was used for another order",
			p.must(t, http.StatusUnprocessableEntity, "first", draft{"Ada", 1251}).Detail)

		got, err := p.send(t.Context(), "GET", a.header.Get("Location"), from("Ada"), "")
		require.NoError(t, err)
		require.Equal(t, http.StatusOK, got.status)
		require.Equal(t, a.order, got.order)

		_, err = p.orders.db.Exec("UPDATE orders SET deleted_at = CURRENT_TIMESTAMP")
		require.NoError(t, err)
		got, err = p.send(t.Context(), "GET", a.header.Get("Location"), from("Ada"), "")
		require.NoError(t, err)
		require.Equal(t, http.StatusNotFound, got.status)
		require.Equal(t, a.order, p.must(t, http.StatusOK, "first", ada).order, "its key stays used")
	})
}

// Two customers who send the same key get one order each, and neither sees the other's.
func TestTwoCustomers(t *testing.T) {
	each(t, func(t *testing.T, fresh func(t *testing.T) string) {
		rdb, _ := embedded(t)
		p := start(t, rdb, fresh(t), "ledger")
		bob := draft{"Bob", 1250}
		first := p.must(t, http.StatusCreated, "first", ada)
		second := p.must(t, http.StatusCreated, "first", bob)
		require.NotEqual(t, first.Number, second.Number)
		require.Equal(t, bob, second.draft)
		require.Equal(t, first.order, p.must(t, http.StatusOK, "first", ada).order)
		require.Equal(t, second.order, p.must(t, http.StatusOK, "first", bob).order)
		require.NotContains(t, p.journal.String(), "was issued twice")

		got, err := p.send(t.Context(), "GET", first.header.Get("Location"), from("Bob"), "")
		require.NoError(t, err)
		require.Equal(t, http.StatusNotFound, got.status)
		require.Empty(t, got.order)
	})
}

// No two pairs of a customer and a key give the same request ID, and NextOnce accepts each.
func TestRequestID(t *testing.T) {
	rdb, _ := embedded(t)
	gen, err := serial.New(rdb)
	require.NoError(t, err)
	long := strings.Repeat("k", 128)
	pairs := [][2]string{
		{"a", "bc"}, {"ab", "c"}, {"a", "b/c"}, {"a/b", "c"}, {"a", `b" "c`}, {`a" "b`, "c"}, {`a\`, `b`}, {`a`, `\b`},
		{long, long}, {long, long[1:]}, {long[1:], long},
	}
	issued := map[string]bool{}
	for _, pair := range pairs {
		number, err := gen.NextOnce(t.Context(), numbers.Type, requestID(pair[0], pair[1]))
		require.NoError(t, err)
		issued[number.String()] = true
	}
	require.Len(t, issued, len(pairs))
}

// A request fails after it got its number and before it stored the order.
func TestRequestComesAgain(t *testing.T) {
	each(t, func(t *testing.T, fresh func(t *testing.T) string) {
		rdb, m := embedded(t)
		p := start(t, rdb, fresh(t), "ledger")
		for _, key := range []string{"kept", "lost"} {
			number, err := p.gen.NextOnce(t.Context(), numbers.Type, requestID("Ada", key))
			require.NoError(t, err)
			p.must(t, http.StatusCreated, "after-"+key, ada)
			if key == "lost" {
				m.FlushAll()
			}
			again := p.must(t, http.StatusCreated, key, ada).Number
			require.Equal(t, key == "kept", again == number.String(), "%s, then %s", number, again)
		}
	})
}

// The same request is sent many times at once, half of them with another body.
func TestSameKeyAtOnce(t *testing.T) {
	each(t, func(t *testing.T, fresh func(t *testing.T) string) {
		rdb, _ := embedded(t)
		dsn := fresh(t)
		processes := [2]*process{start(t, rdb, dsn, "ledger"), start(t, rdb, dsn, "ledger")}
		for round := range 10 {
			var mu sync.Mutex
			statuses, numbers := map[int]int{}, map[string]bool{}
			var wg sync.WaitGroup
			for i := range 20 {
				wg.Go(func() {
					a, err := processes[i%2].post(t.Context(), fmt.Sprint(round), draft{"Ada", int64(1 + i/2%2)})
					mu.Lock()
					defer mu.Unlock()
					if err != nil {
						a.status = -1
					}
					statuses[a.status]++
					numbers[a.Number] = true
				})
			}
			wg.Wait()
			require.Equal(t, map[int]int{201: 1, 200: 9, 422: 10}, statuses, processes[0].journal)
			require.Len(t, numbers, 2, "one number, and none in the refusals")
		}
	})
}

func TestFloor(t *testing.T) {
	each(t, func(t *testing.T, fresh func(t *testing.T) string) {
		rdb, m := embedded(t)
		dsn := fresh(t)
		p := start(t, rdb, dsn, "floor")
		for i := range 3 {
			p.must(t, http.StatusCreated, fmt.Sprint(i), ada)
		}
		_, err := p.orders.db.Exec("UPDATE orders SET deleted_at = CURRENT_TIMESTAMP WHERE seq >= 2")
		require.NoError(t, err)

		m.FlushAll()
		p = start(t, rdb, dsn, "floor") // a process that remembers nothing
		require.Regexp(t, "0004$", p.must(t, http.StatusCreated, "3", ada).Number, "deleted orders count")
		require.NotContains(t, p.journal.String(), "was issued twice")

		// A floor's blind spot: 0005 is issued but not stored yet when Redis loses everything.
		_, err = p.gen.NextOnce(t.Context(), numbers.Type, requestID("Ada", "slow"))
		require.NoError(t, err)
		m.FlushAll()
		p = start(t, rdb, dsn, "floor")
		require.Regexp(t, "0005$", p.must(t, http.StatusCreated, "4", ada).Number)
		require.Regexp(t, "0006$", p.must(t, http.StatusCreated, "slow", ada).Number)
	})
}

// Another order already has the number, as after a failover that a floor did not notice.
func TestNumberTaken(t *testing.T) {
	each(t, func(t *testing.T, fresh func(t *testing.T) string) {
		rdb, _ := embedded(t)
		p := start(t, rdb, fresh(t), "floor")
		first := p.must(t, http.StatusCreated, "first", ada).Number
		occupy := func(seq int64) {
			n, err := p.gen.Parse(fmt.Sprintf("%s%04d", first[:10], seq))
			require.NoError(t, err)
			inserted, err := p.orders.insert(t.Context(), n.String(), n, ada)
			require.NoError(t, err)
			require.True(t, inserted)
		}
		occupy(2)
		occupy(3)
		a := p.must(t, http.StatusCreated, "second", ada)
		require.Regexp(t, "0004$", a.Number)
		require.Equal(t, 2, strings.Count(p.journal.String(), "was issued twice"))
		require.Equal(t, a.order, p.must(t, http.StatusOK, "second", ada).order)

		for seq := range int64(15) {
			occupy(5 + seq)
		}
		require.Empty(t, p.must(t, http.StatusServiceUnavailable, "third", ada).header.Get("Retry-After"))
		require.Contains(t, p.journal.String(), "needs an operator")
		require.Contains(t, p.journal.String(), "run: orders-serial raise IS SEQ")
		require.Regexp(t, "0020$", p.must(t, http.StatusCreated, "third", ada).Number, "each attempt moves the counter on")
	})
}

func TestRefusals(t *testing.T) {
	rdb, _ := embedded(t)
	p := start(t, rdb, anyDatabase(t), "ledger")
	today := time.Now().In(noon).Format("20060102")
	const good = `{"amount_cents": 1250}`
	key := func(keys ...string) http.Header { return from("Ada", keys...) }
	tests := []struct {
		name, method, path string
		header             http.Header
		body               string
		status             int
		detail             string
	}{
		{"no customer", "POST", "/orders", http.Header{"Idempotency-Key": {"a"}}, good, 403, "X-Forwarded-User"},
		{"empty customer", "POST", "/orders", from("", "a"), good, 403, "X-Forwarded-User"},
		{"two customers", "POST", "/orders", http.Header{"X-Forwarded-User": {"Ada", "Bob"}}, good, 403, "X-Forwarded-User"},
		{"long customer", "POST", "/orders", from(strings.Repeat("a", 129), "a"), good, 403, "X-Forwarded-User"},
		{"customer is not valid UTF-8", "POST", "/orders", from("\xff", "a"), good, 403, "X-Forwarded-User"},
		{"customer in the body", "POST", "/orders", key("a"), `{"customer": "Bob", "amount_cents": 1}`, 400, "JSON"},
		{"no key", "POST", "/orders", key(), good, 400, "Idempotency-Key"},
		{"empty key", "POST", "/orders", key(""), good, 400, "Idempotency-Key"},
		{"two keys", "POST", "/orders", key("a", "b"), good, 400, "Idempotency-Key"},
		{"long key", "POST", "/orders", key(strings.Repeat("k", 129)), good, 400, "Idempotency-Key"},
		{"key with a space", "POST", "/orders", key("a b"), good, 400, "Idempotency-Key"},
		{"key is not ASCII", "POST", "/orders", key("é"), good, 400, "Idempotency-Key"},
		{"longest key", "POST", "/orders", key(strings.Repeat("k", 128)), good, 201, ""},
		{"no body", "POST", "/orders", key("a"), "", 400, "JSON"},
		{"half a body", "POST", "/orders", key("a"), good[:15], 400, "JSON"},
		{"two bodies", "POST", "/orders", key("a"), good + good, 400, "JSON"},
		{"unknown field", "POST", "/orders", key("a"), `{"amount_cents": 1, "x": 1}`, 400, "JSON"},
		{"fractional amount", "POST", "/orders", key("a"), `{"amount_cents": 1.5}`, 400, "JSON"},
		{"endless body", "POST", "/orders", key("a"), strings.Repeat(" ", 65<<10) + good, 400, "JSON"},
		{"no amount", "POST", "/orders", key("a"), `{}`, 400, "amount"},
		{"no customer", "GET", "/orders/IS" + today + "0001", nil, "", 403, "X-Forwarded-User"},
		{"number is not visible", "GET", "/orders/%00", key(), "", 400, "want the number of an order"},
		{"not a number", "GET", "/orders/IS20211024", key(), "", 404, "no such order"},
		{"no such order", "GET", "/orders/IS" + today + "0077", key(), "", 404, "no such order"},
		{"another type's number", "GET", "/orders/PO" + today + "0001", key(), "", 404, "no such order"},
		{"no such path", "GET", "/", nil, "", 404, ""},
		{"wrong method", "PUT", "/orders", nil, "", 405, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			a, err := p.send(t.Context(), tt.method, tt.path, tt.header, tt.body)
			require.NoError(t, err)
			require.Equal(t, tt.status, a.status)
			require.Contains(t, a.Detail, tt.detail)
			if tt.detail != "" {
				require.Equal(t, problem{http.StatusText(tt.status), tt.status, a.Detail}, a.problem)
			}
		})
	}
	require.Len(t, p.stored(t), 1)
	require.NotContains(t, p.journal.String(), "level=ERROR")
}

// All faults that prevent orders, and what clients and the operator learn about them.
func TestUnavailable(t *testing.T) {
	zone := serial.WithLocation(noon)
	tests := []struct {
		name   string
		opts   []serial.Option
		broken func(t *testing.T, p *process, rdb *redis.Client)
		advice string // "" where trying again may help
	}{
		{"exhausted", []serial.Option{zone, serial.WithTemplate("{type}{date:yyyyMMdd}{seq:1}")},
			func(t *testing.T, p *process, _ *redis.Client) { require.NoError(t, p.gen.Raise(t.Context(), "IS", 9)) },
			"a wider template, such as {type}{date:yyyyMMdd}{seq:2}, takes effect at once"},
		{"counter lost", []serial.Option{zone},
			func(t *testing.T, p *process, rdb *redis.Client) {
				number, err := p.gen.Next(t.Context(), "IS")
				require.NoError(t, err)
				require.NoError(t, rdb.Del(t.Context(), "serial:{IS}:"+number[2:10]).Err())
			},
			"run: serial raise -tz '" + noon.String() + "' IS SEQ, where"},
		{"conflict", nil,
			func(t *testing.T, _ *process, rdb *redis.Client) {
				_, offset := time.Now().In(noon).Zone()
				other, err := serial.New(rdb, serial.WithLocation(time.FixedZone("elsewhere", offset-3600)))
				require.NoError(t, err)
				_, err = other.Next(t.Context(), "IS")
				require.NoError(t, err)
			},
			"run: orders-serial takeover IS SEQ, where"},
		{"not replicated", []serial.Option{zone, serial.WithReplicas(1, 10*time.Millisecond)},
			func(*testing.T, *process, *redis.Client) {}, ""},
		{"database down", nil,
			func(t *testing.T, p *process, _ *redis.Client) { require.NoError(t, p.orders.db.Close()) }, ""},
		{"ledger fails", nil,
			func(t *testing.T, p *process, _ *redis.Client) {
				_, err := p.orders.db.ExecContext(t.Context(), "DROP TABLE serial_ledger")
				require.NoError(t, err)
			}, ""},
		{"Redis refuses", nil,
			func(t *testing.T, _ *process, rdb *redis.Client) {
				require.NoError(t, rdb.Do(t.Context(), "CONFIG", "SET", "maxmemory", "1").Err())
			}, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			rdb := client(t, redistest.Start(t).Addr())
			p := start(t, rdb, anyDatabase(t), "ledger", tt.opts...)
			tt.broken(t, p, rdb)
			requireUnavailable(t, p, tt.advice)
		})
	}

	t.Run("clock skew", func(t *testing.T) {
		rdb, m := embedded(t)
		p := start(t, rdb, anyDatabase(t), "ledger")
		m.SetTime(time.Now().Add(48 * time.Hour))
		requireUnavailable(t, p, "correct the clock")
	})

	t.Run("database hangs", func(t *testing.T) {
		rdb, _ := embedded(t)
		p := start(t, rdb, postgres(t), "ledger")
		tx, err := p.orders.db.BeginTx(t.Context(), nil)
		require.NoError(t, err)
		defer func() { _ = tx.Rollback() }()
		_, err = tx.ExecContext(t.Context(), "LOCK TABLE orders")
		require.NoError(t, err)
		requireUnavailable(t, p, "")
		require.NoError(t, tx.Rollback())
		p.must(t, http.StatusCreated, "second", ada)
	})

	// A server that comes back after requests gave up on it answers the same request.
	for name, fault := range map[string]func(*redistest.Server){
		"Redis down": (*redistest.Server).Kill, "Redis hangs": (*redistest.Server).Pause,
	} {
		t.Run(name, func(t *testing.T) {
			s := redistest.Start(t)
			p := start(t, client(t, s.Addr()), anyDatabase(t), "ledger")
			p.must(t, http.StatusCreated, "first", ada)
			fault(s)
			requireUnavailable(t, p, "")
			require.Equal(t, http.StatusServiceUnavailable, status(t, p, "/readyz"))
			require.Equal(t, http.StatusOK, status(t, p, "/healthz"))
			p.must(t, http.StatusOK, "first", ada)
			s.Restart(t)
			require.Eventually(t, func() bool {
				return status(t, p, "/readyz") == http.StatusOK
			}, 10*time.Second, 20*time.Millisecond)
			p.must(t, http.StatusCreated, "second", ada)
		})
	}
}

func requireUnavailable(t *testing.T, p *process, advice string) {
	t.Helper()
	began := time.Now()
	a := p.must(t, http.StatusServiceUnavailable, "second", ada)
	require.Less(t, time.Since(began), patience+3*time.Second)
	require.Equal(t, "orders are temporarily unavailable; retry with the same key", a.Detail, "nothing leaks")
	if advice == "" {
		require.Equal(t, "1", a.header.Get("Retry-After"))
		require.Contains(t, p.journal.String(), "level=WARN msg=unavailable")
		return
	}
	require.Empty(t, a.header.Get("Retry-After"))
	require.Contains(t, p.journal.String(), `level=ERROR msg="needs an operator"`)
	require.Contains(t, p.journal.String(), advice)
}

func status(t *testing.T, p *process, path string) int {
	t.Helper()
	a, err := p.send(t.Context(), "GET", path, nil, "")
	require.NoError(t, err)
	return a.status
}

// A process that is not ready because of a lost counter would never recover, since only its next order repairs it.
func TestReadyForRepair(t *testing.T) {
	for _, protect := range []string{"ledger", "floor"} {
		t.Run(protect, func(t *testing.T) {
			rdb, m := embedded(t)
			p := start(t, rdb, anyDatabase(t), protect)
			require.Equal(t, http.StatusOK, status(t, p, "/readyz"))
			first := p.must(t, http.StatusCreated, "first", ada)
			m.FlushAll()
			_, err := p.gen.Peek(t.Context(), numbers.Type)
			require.ErrorIs(t, err, serial.ErrCounterLost)
			require.Equal(t, http.StatusOK, status(t, p, "/readyz"))
			require.Greater(t, p.must(t, http.StatusCreated, "second", ada).Number, first.Number)
			require.Contains(t, p.journal.String(), "Redis lost a counter")
			require.NoError(t, p.orders.db.Close())
			require.Equal(t, http.StatusServiceUnavailable, status(t, p, "/readyz"))
		})
	}
}

func TestClientLeft(t *testing.T) {
	rdb, _ := embedded(t)
	p := start(t, rdb, anyDatabase(t), "ledger")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	r := httptest.NewRequestWithContext(ctx, "POST", "/orders", strings.NewReader(`{"amount_cents": 1250}`))
	r.Header = from("Ada", "first")
	w := httptest.NewRecorder()
	p.routes().ServeHTTP(w, r)
	require.Equal(t, 499, w.Code)
	require.Empty(t, w.Body.String())
	require.NotContains(t, p.journal.String(), "level=WARN")
	p.must(t, http.StatusCreated, "first", ada)
}

// The program says where it listens, and when stopped, it finishes the requests under way.
func TestRun(t *testing.T) {
	t.Setenv("ORDERS_REDIS_URL", "")
	t.Setenv("ORDERS_DATABASE", "")
	each(t, func(t *testing.T, fresh func(t *testing.T) string) {
		args := []string{"-addr", "127.0.0.1:0"}
		if !strings.HasSuffix(t.Name(), "SQLite") { // SQLite needs none
			args = append(args, "-database", fresh(t))
		}
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		out := &journal{}
		ended := make(chan error, 1)
		go func() { ended <- run(ctx, args, out, out.logger()) }()
		var addr string
		require.Eventually(t, func() bool {
			if m := regexp.MustCompile(`curl -i http://(\S+)/orders `).FindStringSubmatch(out.String()); m != nil {
				addr = m[1]
			}
			return addr != ""
		}, 20*time.Second, 10*time.Millisecond)

		body, rest := io.Pipe()
		reading := make(chan struct{})
		traced := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{Got100Continue: func() { close(reading) }})
		r, err := http.NewRequestWithContext(traced, "POST", "http://"+addr+"/orders", body)
		require.NoError(t, err)
		r.Header = from("Ada", "first")
		r.Header.Set("Expect", "100-continue") // the server says when it reads the body
		transport := &http.Transport{ExpectContinueTimeout: time.Minute}
		defer transport.CloseIdleConnections()
		status := make(chan int, 1)
		go func() {
			response, err := transport.RoundTrip(r)
			if err != nil {
				status <- -1
				return
			}
			_ = response.Body.Close()
			status <- response.StatusCode
		}()
		<-reading
		stop()
		require.Eventually(t, func() bool {
			conn, err := net.Dial("tcp", addr)
			if err == nil {
				_ = conn.Close()
			}
			return err != nil
		}, 10*time.Second, 10*time.Millisecond, "no new requests are taken")
		_, err = io.WriteString(rest, `{"amount_cents": 1250}`)
		require.NoError(t, errors.Join(err, rest.Close()))
		require.Equal(t, http.StatusCreated, <-status, out)
		require.NoError(t, <-ended)
	})
}

func TestRunRefuses(t *testing.T) {
	t.Setenv("ORDERS_REDIS_URL", "")
	t.Setenv("ORDERS_DATABASE", "")
	t.Chdir(t.TempDir())
	const created = "create the orders table"
	for _, tt := range []struct {
		args []string
		want string
	}{
		{[]string{"-protect", "luck"}, "want ledger or floor"},
		{[]string{"-tz", "Mars/Olympus"}, "Mars"},
		{[]string{"-tz", ""}, `value "" for flag -tz: give a value`},
		{[]string{"-redis", ""}, `value "" for flag -redis: give a value`},
		{[]string{"-database", ""}, `value "" for flag -database: give a value`},
		{[]string{"-addr", ""}, `value "" for flag -addr: give a value`},
		{[]string{"-redis", "redis://:p%ssword@localhost"}, "not of the form"},
		{[]string{"-database", "postgres://orders:password@127.0.0.1:1/orders"}, created},
		{[]string{"-database", "host=127.0.0.1 port=1 user=orders password=password dbname=orders"}, created},
		{[]string{"-database", " user = orders password='pass word' host=127.0.0.1 port=1"}, created},
		{[]string{"-database", "host=127.0.0.1 port=one password=password"}, "invalid database"},
		{[]string{"-database", "password=pass word host=127.0.0.1"}, "invalid database"},
		{[]string{"-database", "postgres://orders:p%ssword@127.0.0.1:1/orders"}, "invalid database"},
		{[]string{"-database", "mysql://orders:password@127.0.0.1/orders"}, "invalid database"},
		{[]string{"-database", "orders:password@tcp(127.0.0.1:1)/orders"}, "invalid database"},
		{[]string{"-addr", "nowhere"}, "nowhere"},
	} {
		if tt.args[0] != "-database" {
			tt.args = append(tt.args, "-database", anyDatabase(t))
		}
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		out := &journal{}
		err := run(ctx, tt.args, out, out.logger())
		cancel()
		require.ErrorContains(t, err, tt.want)
		require.NotRegexp(t, "ss ?word", strings.ReplaceAll(err.Error(), numbers.ErrDatabase.Error(), "")+out.String())
	}
	files, err := os.ReadDir(".")
	require.NoError(t, err)
	require.Empty(t, files, "an address was taken for the name of a file")
}

// A PostgreSQL database can be named by keywords and values, too.
func TestKeywords(t *testing.T) {
	config, err := pgx.ParseConfig(postgres(t))
	require.NoError(t, err)
	rdb, _ := embedded(t)
	dsn := fmt.Sprintf("host=%s port=%d user=%s password='%s' dbname=%s search_path=%s sslmode=disable",
		config.Host, config.Port, config.User, config.Password, config.Database, config.RuntimeParams["search_path"])
	p := start(t, rdb, dsn, "ledger")
	p.must(t, http.StatusCreated, "first", ada)
	require.IsType(t, stdlib.GetDefaultDriver(), p.orders.db.Driver())
}

// Requests from pages of other sites place no orders. Programs and the site's own pages do.
func TestCrossOrigin(t *testing.T) {
	rdb, _ := embedded(t)
	p := start(t, rdb, anyDatabase(t), "ledger")
	post := func(key, name, value string) answer {
		header := from("Ada", key)
		header.Set(name, value)
		a, err := p.send(t.Context(), "POST", "/orders", header, `{"amount_cents": 1250}`)
		require.NoError(t, err)
		return a
	}
	for name, value := range map[string]string{"Sec-Fetch-Site": "cross-site", "Origin": "https://example.com"} {
		a := post("foreign", name, value)
		require.Equal(t, http.StatusForbidden, a.status, value)
		require.Equal(t, problem{"Forbidden", http.StatusForbidden, errForeign.detail}, a.problem)
	}
	require.Empty(t, p.stored(t))
	n, err := rdb.DBSize(t.Context()).Result()
	require.NoError(t, err)
	require.Zero(t, n)

	require.Equal(t, http.StatusCreated, post("page", "Sec-Fetch-Site", "same-origin").status)
	require.Equal(t, http.StatusCreated, post("old-browser", "Origin", p.URL).status)
	p.must(t, http.StatusCreated, "program", ada)
	require.Len(t, p.stored(t), 3)
}
