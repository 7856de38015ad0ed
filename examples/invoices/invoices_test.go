package main

import (
	"bufio"
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/dailyserial/serial"
)

// A client talks to a service of its own, over HTTP.
type client struct {
	*httptest.Server
	service *service
	redis   *miniredis.Miniredis
	journal *bytes.Buffer // guarded by slog's handler; read it when no request is under way
}

func start(t *testing.T) *client {
	t.Helper()
	withSQLite(t)
	m, err := embeddedRedis()
	require.NoError(t, err)
	t.Cleanup(m.Close)
	rdb := redis.NewClient(&redis.Options{Addr: m.Addr()})
	t.Cleanup(func() { _ = rdb.Close() })
	db, err := openDatabase(t.Context(), filepath.Join(t.TempDir(), "invoices.db"))
	require.NoError(t, err)
	t.Cleanup(func() { _ = db.Close() })
	c := &client{redis: m, journal: new(bytes.Buffer)}
	log := slog.New(slog.NewTextHandler(c.journal, nil))
	// Tests set the clock of Redis.
	c.service, err = newService(t.Context(), rdb, db, time.UTC, log, serial.WithMaxSkew(-1))
	require.NoError(t, err)
	c.Server = httptest.NewServer(c.service.routes())
	t.Cleanup(c.Close)
	return c
}

// send requires a status and decodes the answer into the values.
func (c *client) send(t *testing.T, status int, method, path, body string, into ...any) string {
	t.Helper()
	got, text, err := c.try(t.Context(), method, path, body)
	require.NoError(t, err)
	require.Equal(t, status, got, "%s %s %s: %s", method, path, body, text)
	for _, v := range into {
		require.NoError(t, json.Unmarshal([]byte(text), v), text)
	}
	return text
}

func (c *client) try(ctx context.Context, method, path, body string) (status int, text string, err error) {
	r, err := http.NewRequestWithContext(ctx, method, c.URL+path, strings.NewReader(body))
	if err != nil {
		return 0, "", err
	}
	response, err := c.Client().Do(r)
	if err != nil {
		return 0, "", err
	}
	defer func() { _ = response.Body.Close() }()
	b, err := io.ReadAll(response.Body)
	return response.StatusCode, string(b), err
}

// withSQLite skips a test where the driver is not built in; see sqlite.go.
func withSQLite(t *testing.T) {
	t.Helper()
	if !slices.Contains(sql.Drivers(), "sqlite") {
		t.Skip("SQLite is tested without the race detector only")
	}
}

func (c *client) order(t *testing.T, cents int) (o order) {
	t.Helper()
	c.send(t, http.StatusCreated, "POST", "/orders", fmt.Sprintf(`{"customer": "Ada", "amount_cents": %d}`, cents), &o)
	return o
}

func (c *client) invoice(t *testing.T, of, date string) (v invoice) {
	t.Helper()
	c.send(t, http.StatusCreated, "POST", "/orders/"+of+"/invoice", fmt.Sprintf(`{"date": %q}`, date), &v)
	return v
}

func (c *client) audit(t *testing.T, date string) (a audit) {
	t.Helper()
	c.send(t, http.StatusOK, "GET", "/audit?format=json&date="+date, "", &a)
	return a
}

// Ten clients place orders and ask for invoices. Some orders and invoices are refused after they got a number, and some clients
// leave in the middle of a request. Meanwhile, and afterwards, no invoice's number is missing and none came twice.
func TestAtOnce(t *testing.T) {
	c := start(t)
	const clients, each = 10, 40
	var work, watch sync.WaitGroup
	var mu sync.Mutex
	var tooLarge, free int64        // refused orders, refused invoices
	answered := map[string]string{} // invoice by order
	done := make(chan struct{})
	watch.Go(func() {
		for {
			select {
			case <-done:
				return
			default:
			}
			status, text, err := c.try(t.Context(), "GET", "/audit?format=json", "")
			var a audit
			if err == nil {
				err = json.Unmarshal([]byte(text), &a)
			}
			if err != nil || status != http.StatusOK || !a.Invoices.Clean {
				t.Errorf("during the work: %v, %d: %s", err, status, text)
				return
			}
		}
	})
	for range clients {
		work.Go(func() {
			for range each {
				cents := []int{1250, 99, 0, largest + 1}[rand.IntN(4)]
				status, text, err := c.try(t.Context(), "POST", "/orders",
					fmt.Sprintf(`{"customer": "Bob", "amount_cents": %d}`, cents))
				if cents > largest {
					if status != http.StatusUnprocessableEntity {
						t.Errorf("an order that is too large: %v, %d: %s", err, status, text)
					}
					mu.Lock()
					tooLarge++
					mu.Unlock()
					continue
				}
				var o order
				if err := json.Unmarshal([]byte(text), &o); err != nil || status != http.StatusCreated {
					t.Errorf("an order: %v, %d: %s", err, status, text)
					continue
				}
				ctx, cancel := t.Context(), context.CancelFunc(func() {})
				if rand.IntN(3) == 0 {
					ctx, cancel = context.WithTimeout(ctx, time.Duration(rand.IntN(5000))*time.Microsecond)
				}
				status, text, err = c.try(ctx, "POST", "/orders/"+o.Number+"/invoice", "")
				left := ctx.Err() != nil
				cancel()
				var v invoice
				switch {
				case err != nil && left:
				case cents == 0 && status == http.StatusUnprocessableEntity:
					mu.Lock()
					free++
					mu.Unlock()
				case cents > 0 && status == http.StatusCreated && json.Unmarshal([]byte(text), &v) == nil:
					mu.Lock()
					answered[o.Number] = v.Number
					mu.Unlock()
				default:
					t.Errorf("an invoice: %v, %d: %s", err, status, text)
				}
			}
		})
	}
	work.Wait()
	close(done)
	watch.Wait()

	require.NotZero(t, tooLarge)
	require.NotZero(t, free)
	a := c.audit(t, "")
	require.True(t, a.Invoices.Clean, "%+v", a.Invoices)
	require.EqualValues(t, clients*each, a.Orders.Last)
	require.Equal(t, tooLarge, a.Orders.Missing.Count, "orders have gaps")
	require.True(t, a.Orders.Clean, "and all are explained: %+v", a.Orders)

	// The audit is not the only witness: count the rows by hand.
	c.Close() // the last requests of those who left are over
	rows, err := c.service.db.QueryContext(t.Context(), "SELECT number, order_number FROM invoices ORDER BY number")
	require.NoError(t, err)
	defer func() { _ = rows.Close() }()
	stored := map[string]string{}
	for want := int64(1); rows.Next(); want++ {
		var number, of string
		require.NoError(t, rows.Scan(&number, &of))
		parsed, err := c.service.invoices.Scheme().Parse(number)
		require.NoError(t, err)
		require.Equal(t, want, parsed.Seq, "a gap or a duplicate at %s", number)
		stored[of] = number
	}
	require.NoError(t, rows.Err())
	require.GreaterOrEqual(t, len(stored), len(answered))
	for of, number := range answered {
		require.Equal(t, number, stored[of], "what the client was told is what is stored")
	}
	require.NotContains(t, c.journal.String(), "level=ERROR")
}

func TestVoid(t *testing.T) {
	c := start(t)
	o := c.order(t, 1250)
	first := c.invoice(t, o.Number, "")
	require.Nil(t, first.VoidedAt)
	var again invoice
	c.send(t, http.StatusOK, "POST", "/orders/"+o.Number+"/invoice", "", &again)
	require.Equal(t, first, again, "an order has one invoice")

	var void invoice
	c.send(t, http.StatusOK, "POST", "/invoices/"+first.Number+"/void", "", &void)
	require.Equal(t, first.Number, void.Number)
	require.NotNil(t, void.VoidedAt)
	c.send(t, http.StatusOK, "POST", "/invoices/"+first.Number+"/void", "", &again)
	require.Equal(t, void, again)

	second := c.invoice(t, o.Number, "")
	require.Equal(t, first.Number[:13]+"00002", second.Number)
	var all []invoice
	c.send(t, http.StatusOK, "GET", "/invoices", "", &all)
	require.Equal(t, []invoice{second, void}, all)
	a := c.audit(t, "")
	require.True(t, a.Invoices.Clean)
	require.Equal(t, []int64{2, 2, 1}, []int64{a.Invoices.Last, a.Invoices.Stored, a.Invoices.Voided})

	_, err := c.service.db.ExecContext(t.Context(), "DELETE FROM invoices")
	require.ErrorContains(t, err, "invoices are voided, not deleted")
}

// An order that is deleted leaves a number, and why it is missing. An order with an invoice stays.
func TestVoidOrder(t *testing.T) {
	c := start(t)
	var orders []order
	for range 4 {
		orders = append(orders, c.order(t, 1250))
	}
	c.invoice(t, orders[0].Number, "")
	const why = `{"reason": "ordered twice", "by": "Ada"}`
	void := func(status int, number, body string) string {
		return c.send(t, status, "POST", "/orders/"+number+"/void", body)
	}
	require.Contains(t, void(http.StatusConflict, orders[0].Number, why), "the order has an invoice")
	for _, body := range []string{
		"", "{}", `{"reason": "x"}`, `{"reason": "x", "by": " "}`, `{"reason": "\u0000", "by": "Ada"}`,
	} {
		void(http.StatusBadRequest, orders[1].Number, body)
	}
	void(http.StatusNotFound, "ORD1", why)
	void(http.StatusNotFound, "ORD202110240001", why)
	void(http.StatusOK, orders[1].Number, why)
	void(http.StatusNotFound, orders[1].Number, why)

	// What the program does not know is not explained.
	_, err := c.service.db.ExecContext(t.Context(), "DELETE FROM orders WHERE number = ?", orders[2].Number)
	require.NoError(t, err)
	a := c.audit(t, "")
	require.Equal(t, finding{2, []string{"2–3"}}, a.Orders.Missing)
	require.Equal(t, finding{1, []string{"2: ordered twice"}}, a.Orders.Explained)
	require.False(t, a.Orders.Clean)
	text := c.send(t, http.StatusOK, "GET", "/audit", "")
	require.Contains(t, text, "<th>of these explained</th><td>1</td><td>2: ordered twice</td>")

	// A client that leaves while Redis has its number.
	rdb := redis.NewClient(&redis.Options{Addr: c.redis.Addr()})
	defer func() { _ = rdb.Close() }()
	ctx, leave := context.WithCancel(t.Context())
	gone := make(chan struct{})
	slow, err := newService(t.Context(), rdb, c.service.db, time.UTC, c.service.log, serial.WithMaxSkew(-1))
	require.NoError(t, err)
	rdb.AddHook(meanwhile(func() { leave(); <-gone }))
	_, err = slow.place(ctx, draft{"Bob", 100})
	require.ErrorIs(t, err, context.Canceled)
	close(gone)
	require.NoError(t, slow.orders.Flush(t.Context()))
	require.Equal(t, finding{2, []string{"2: ordered twice", "5: caller left"}}, c.audit(t, "").Orders.Explained)
}

// The number of an order that was deleted is never given to another, not even if it was the last one and Redis loses everything.
func TestVoidedLast(t *testing.T) {
	c := start(t)
	c.order(t, 100)
	last := c.order(t, 200)
	c.send(t, http.StatusOK, "POST", "/orders/"+last.Number+"/void", `{"reason": "ordered twice", "by": "Ada"}`)
	c.redis.FlushAll()
	rdb := redis.NewClient(&redis.Options{Addr: c.redis.Addr()})
	defer func() { _ = rdb.Close() }()
	fresh, err := newService(t.Context(), rdb, c.service.db, time.UTC, c.service.log, serial.WithMaxSkew(-1))
	require.NoError(t, err)
	next, err := fresh.place(t.Context(), draft{"Eve", 300})
	require.NoError(t, err)
	require.Equal(t, last.Number[:len(last.Number)-4]+"0003", next.Number)
}

// meanwhile is a hook that runs when Redis has answered and the caller does not know it yet.
type meanwhile func()

func (meanwhile) DialHook(next redis.DialHook) redis.DialHook { return next }

func (meanwhile) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (m meanwhile) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		m()
		return err
	}
}

// A month that is closed takes no invoices until it is reopened. Who wanted it is kept.
func TestMonths(t *testing.T) {
	c := start(t)
	first, second := c.order(t, 100), c.order(t, 200)
	require.Equal(t, "INV-20211024-00001", c.invoice(t, first.Number, "2021-10-24").Number)
	const why = `{"reason": "reported", "by": "Ada"}`
	change := func(status int, path, body string) { c.send(t, status, "POST", "/months/"+path, body) }
	change(http.StatusOK, "2021-10/close", why)
	change(http.StatusConflict, time.Now().UTC().Format("2006-01")+"/close", why)
	for path, body := range map[string]string{
		"2021-13/close": why, "1969-12/reopen": why, "2021-10/close": `{"by": "Ada"}`, "2021-10/reopen": "",
	} {
		change(http.StatusBadRequest, path, body)
	}
	refused := c.send(t, http.StatusConflict, "POST", "/orders/"+second.Number+"/invoice", `{"date": "2021-10-31"}`)
	require.Contains(t, refused, "the month is closed")
	a := c.audit(t, "2021-10-24")
	require.Equal(t, "2021-10", a.Closed)
	require.EqualValues(t, 1, a.Invoices.Last)
	require.Contains(t, c.send(t, http.StatusOK, "GET", "/audit", ""),
		"No more invoices get numbers in 2021-10 or before.")

	change(http.StatusOK, "2021-10/reopen", `{"reason": "an invoice was forgotten", "by": "Bob"}`)
	require.Equal(t, "2021-09", c.audit(t, "").Closed)
	require.Equal(t, "INV-20211031-00002", c.invoice(t, second.Number, "2021-10-31").Number)
	var kept string
	require.NoError(t, c.service.db.QueryRowContext(t.Context(), `SELECT group_concat(
		action || ' ' || month || ' ' || done_by || ': ' || reason, '; ' ORDER BY rowid) FROM closings`).Scan(&kept))
	require.Equal(t, "close 2021-10 Ada: reported; reopen 2021-10 Bob: an invoice was forgotten", kept)
}

// What fails stores nothing. An invoice that fails leaves no gap; an order does if it had a number.
func TestRefused(t *testing.T) {
	c := start(t)
	free, o := c.order(t, 0), c.order(t, 1250)
	for path, status := range map[string]int{
		"/orders/" + free.Number + "/invoice": http.StatusUnprocessableEntity,
		"/orders/ORD202110249999/invoice":     http.StatusNotFound,
		"/invoices/INV-20211024-00001/void":   http.StatusNotFound,
	} {
		c.send(t, status, "POST", path, "")
	}
	for _, body := range []string{
		`{"date": "tomorrow"}`, `{"date": "9999-12-31"}`, `{"date": "1969-12-31"}`, `{"day": 1}`, `{`, `{} {}`,
	} {
		c.send(t, http.StatusBadRequest, "POST", "/orders/"+o.Number+"/invoice", body)
	}
	for _, body := range []string{"", "{", `{"amount_cents": 1}`, `{"customer": " "}`, `{"customer": "Ada", "cents": 1}`} {
		c.send(t, http.StatusBadRequest, "POST", "/orders", body)
	}
	c.send(t, http.StatusUnprocessableEntity, "POST", "/orders", `{"customer": "Ada", "amount_cents": -1}`)
	for _, query := range []string{"date=2021-02-29", "date=1969-12-31", "format=pdf"} {
		c.send(t, http.StatusBadRequest, "GET", "/audit?"+query, "")
	}

	// The database fails after the invoice was stored, within its transaction.
	_, err := c.service.db.ExecContext(t.Context(), `CREATE TRIGGER fails AFTER INSERT ON invoices
		BEGIN SELECT RAISE(ABORT, 'out of order'); END`)
	require.NoError(t, err)
	c.send(t, http.StatusServiceUnavailable, "POST", "/orders/"+o.Number+"/invoice", "")
	require.Contains(t, c.journal.String(), "out of order")
	a := c.audit(t, "")
	require.Equal(t, []int64{0, 0}, []int64{a.Invoices.Last, a.Invoices.Stored})
	require.True(t, a.Invoices.Clean)
	require.Equal(t, finding{1, []string{"3"}}, a.Orders.Missing, "the order of -1 cents")
	require.Equal(t, finding{1, []string{"3: the order was refused: amount_cents must be 0 to 100000000"}},
		a.Orders.Explained)
	require.True(t, a.Orders.Clean)

	_, err = c.service.db.ExecContext(t.Context(), "DROP TRIGGER fails")
	require.NoError(t, err)
	require.Equal(t, "00001", c.invoice(t, o.Number, "").Number[13:])
}

// The page of a month with all that can be wrong.
func TestPage(t *testing.T) {
	c := start(t)
	var orders []order
	for i, date := range []string{"2021-10-23", "2021-10-24", "2021-10-24", "2021-10-24", "2021-10-31", "2021-11-01"} {
		at, err := time.Parse(time.DateOnly, date)
		require.NoError(t, err)
		c.redis.SetTime(at.Add(12 * time.Hour))
		orders = append(orders, c.order(t, 1250+i))
		c.invoice(t, orders[i].Number, date)
	}
	require.Equal(t, "ORD202110240003", orders[3].Number)
	c.send(t, http.StatusOK, "POST", "/invoices/INV-20211024-00003/void", "")

	a := c.audit(t, "2021-10-24")
	require.True(t, a.Orders.Clean, "%+v", a.Orders)
	require.True(t, a.Invoices.Clean, "%+v", a.Invoices)
	require.Len(t, a.Days, 31)
	require.Equal(t, day{"2021-10-24", 3, 0, 3, 1}, a.Days[23])
	require.Equal(t, day{"2021-10-31", 1, 0, 1, 0}, a.Days[30])
	require.Contains(t, c.send(t, http.StatusOK, "GET", "/audit?date=2021-10-24", ""), "✓ All 5 numbers are accounted for")

	for _, query := range []string{
		"DROP TRIGGER invoices_stay",
		"DELETE FROM invoices WHERE number IN ('INV-20211023-00001', 'INV-20211024-00002')",
		"DELETE FROM orders WHERE number = 'ORD202110240001'",
		"INSERT INTO invoices SELECT 'INV-20211025-00004', '2021-10-25', number, 1, 'x' FROM orders LIMIT 1",
		"INSERT INTO invoices SELECT 'INV-20211025-00099', '2021-10-25', number, 1, 'x' FROM orders LIMIT 1",
		"INSERT INTO invoices SELECT '<b>17</b>', '2021-10-25', number, 1, 'x' FROM orders LIMIT 1",
	} {
		_, err := c.service.db.ExecContext(t.Context(), query)
		require.NoError(t, err, query)
	}
	a = c.audit(t, "2021-10-24")
	require.Equal(t, account{
		Type: invoiceType, Period: "2021-10", Last: 5, Stored: 3, Voided: 4,
		Missing: finding{2, []string{"1–2"}}, Explained: finding{0, []string{}}, Contradicted: finding{0, []string{}},
		Duplicates: finding{1, []string{"INV-20211025-00004"}},
		Beyond:     finding{1, []string{"INV-20211025-00099"}},
		Foreign:    finding{1, []string{"<b>17</b>"}},
	}, a.Invoices)
	require.Equal(t, finding{1, []string{"1"}}, a.Orders.Missing)
	require.Equal(t, day{"2021-10-24", 2, 1, 2, 1}, a.Days[23])

	text := c.send(t, http.StatusOK, "GET", "/audit?date=2021-10-24", "")
	for _, want := range []string{
		"<h2>INV 2021-10</h2>", "<h2>ORD 2021-10-24</h2>", "✗ Not every number is accounted for",
		"<th>missing</th><td>2</td><td>1–2</td>", "&lt;b&gt;17&lt;/b&gt;",
		"<th>more than once</th><td>1</td><td>INV-20211025-00004</td>",
		"<title>2021-10-24: 2 orders stored, 1 missing; 2 invoices, 1 of them void</title>",
		"<title>2021-10-01: 0 orders stored, 0 missing; 0 invoices, 0 of them void</title>",
		`<a href="/audit?date=2021-10-24" class="selected">`,
	} {
		require.Contains(t, text, want)
	}
	for _, never := range []string{"<script", "://", "ZgotmplZ", "NaN", "url("} {
		require.NotContains(t, text, never, "the page needs neither JavaScript nor a network")
	}
	require.Len(t, regexp.MustCompile(`<rect class="whole"`).FindAllString(text, -1), 31)
	// The most on a day are 3, so a number is a third of 200 high. Missing orders are stacked on the stored ones.
	require.Regexp(t, `class="orders" x="[\d.]+" y="76.6\d+" width="[\d.]+" height="133.3\d+"`, text)
	require.Regexp(t, `class="missing" x="[\d.]+" y="10" width="[\d.]+" height="66.6\d+"`, text)

	// Without Redis, and for a month of which it knows nothing, there is still the account of the invoices.
	c.redis.SetError("LOADING")
	a = c.audit(t, "2021-10-24")
	require.Contains(t, a.Orders.Error, "LOADING")
	require.EqualValues(t, 5, a.Invoices.Last)
	require.Equal(t, day{"2021-10-24", 2, 0, 2, 1}, a.Days[23])
	c.redis.SetError("")
	a = c.audit(t, "1999-12-31")
	require.NotEmpty(t, a.Orders.Error)
	require.Equal(t, []int64{0, 0, 1}, []int64{a.Invoices.Last, a.Invoices.Stored, a.Invoices.Foreign.Count})
	require.Len(t, a.Days, 31)
}

// The one command: it prints where to look, and there is something to see.
func TestRun(t *testing.T) {
	withSQLite(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	read, write := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		err := run(ctx, []string{"-addr", "127.0.0.1:0", "-tz", "Asia/Shanghai"}, write, slog.New(slog.DiscardHandler))
		_ = write.CloseWithError(err)
		ended <- err
	}()
	lines := bufio.NewScanner(read)
	var url string
	for url == "" && lines.Scan() {
		url, _ = strings.CutPrefix(lines.Text(), "Look at ")
		if !strings.HasSuffix(url, "/audit") {
			url = ""
		}
	}
	require.NoError(t, lines.Err())
	go func() { _, _ = io.Copy(io.Discard, read) }()

	response, err := http.Get(url + "?format=json")
	require.NoError(t, err)
	defer func() { _ = response.Body.Close() }()
	require.Equal(t, http.StatusOK, response.StatusCode)
	var a audit
	require.NoError(t, json.NewDecoder(response.Body).Decode(&a))
	require.True(t, a.Invoices.Clean, "%+v", a)
	require.NotZero(t, a.Invoices.Last)
	require.NotZero(t, a.Orders.Missing.Count)
	require.Equal(t, a.Orders.Missing.Count, a.Orders.Explained.Count)
	cancel()
	require.NoError(t, <-ended)
}

// A page of another site, which somebody visits who can reach the service, changes nothing. Programs and the service's own pages do.
func TestCrossOrigin(t *testing.T) {
	c := start(t)
	o := c.order(t, 100)
	v := c.invoice(t, o.Number, "")
	send := func(path, name, value string) int {
		r, err := http.NewRequestWithContext(t.Context(), "POST", c.URL+path, nil)
		require.NoError(t, err)
		r.Header.Set(name, value)
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		response, err := c.Client().Do(r)
		require.NoError(t, err)
		require.NoError(t, response.Body.Close())
		return response.StatusCode
	}
	void := "/invoices/" + v.Number + "/void"
	for name, value := range map[string]string{"Sec-Fetch-Site": "cross-site", "Origin": "https://example.com"} {
		for _, path := range []string{void, "/orders", "/orders/" + o.Number + "/invoice"} {
			require.Equal(t, http.StatusForbidden, send(path, name, value), path)
		}
	}
	var all []invoice
	c.send(t, http.StatusOK, "GET", "/invoices", "", &all)
	require.Equal(t, []invoice{v}, all)

	require.Equal(t, http.StatusOK, send(void, "Sec-Fetch-Site", "same-origin"))
	v = c.invoice(t, o.Number, "")
	require.Equal(t, http.StatusOK, send("/invoices/"+v.Number+"/void", "Origin", c.URL))
	c.send(t, http.StatusOK, "GET", "/invoices", "", &all)
	require.Len(t, all, 2)
	require.NotNil(t, all[0].VoidedAt)
	require.NotNil(t, all[1].VoidedAt)
}

// A body that does not come keeps its request no longer than patience. That is told apart from a wrong body.
func TestStalledBody(t *testing.T) {
	for _, path := range []string{"/orders", "/orders/ORD202110240001/invoice"} {
		for body, status := range map[string]int{
			"":                   http.StatusRequestTimeout,
			`{"customer": "Ada"`: http.StatusRequestTimeout,
			`{}`:                 http.StatusRequestTimeout, // the end is missing
			"!":                  http.StatusBadRequest,
		} {
			synctest.Test(t, func(t *testing.T) {
				handler := (&service{log: slog.New(slog.DiscardHandler)}).routes() // it is never asked
				ctx, stop := context.WithCancel(t.Context())
				conn, server := net.Pipe()
				listener := make(pipes, 1)
				listener <- server
				ended := make(chan error, 1)
				go func() { ended <- serve(ctx, listener, handler, slog.New(slog.DiscardHandler)) }()
				began := time.Now()
				_, err := fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: h\r\nContent-Length: 100\r\n\r\n%s", path, body)
				require.NoError(t, err)
				response, err := http.ReadResponse(bufio.NewReader(conn), nil)
				require.NoError(t, err)
				require.Equal(t, status, response.StatusCode, "%s %q", path, body)
				require.LessOrEqual(t, time.Since(began), patience)
				require.NoError(t, conn.Close())
				stop()
				require.NoError(t, <-ended)
			})
		}
	}
}

// pipes is a listener in memory, for tests with virtual time.
type pipes chan net.Conn

func (p pipes) Accept() (net.Conn, error) {
	conn, open := <-p
	if !open {
		return nil, net.ErrClosed
	}
	return conn, nil
}

func (p pipes) Close() error   { close(p); return nil }
func (p pipes) Addr() net.Addr { return &net.IPAddr{} }

// What else the service relies on: the floor, once Redis has lost everything and no process remembers; an audit that makes nobody
// wait; one invoice per order, whoever writes; no invoice of tomorrow; the newest one first.
func TestRelies(t *testing.T) {
	c := start(t)
	first, second := c.order(t, 100), c.order(t, 200)
	c.redis.FlushAll()
	rdb := redis.NewClient(&redis.Options{Addr: c.redis.Addr()})
	defer func() { _ = rdb.Close() }()
	fresh, err := newService(t.Context(), rdb, c.service.db, time.UTC, c.service.log, serial.WithMaxSkew(-1))
	require.NoError(t, err)
	third, err := fresh.place(t.Context(), draft{"Eve", 300})
	require.NoError(t, err)
	require.Equal(t, second.Number[:len(second.Number)-4]+"0003", third.Number)

	v := c.invoice(t, first.Number, "")
	tomorrow := time.Now().UTC().AddDate(0, 0, 2).Format(time.DateOnly)
	c.send(t, http.StatusBadRequest, "POST", "/orders/"+second.Number+"/invoice", fmt.Sprintf(`{"date": %q}`, tomorrow))
	late := c.invoice(t, second.Number, "2021-10-24")
	var all []invoice
	c.send(t, http.StatusOK, "GET", "/invoices", "", &all)
	require.Equal(t, []string{late.Number, v.Number}, []string{all[0].Number, all[1].Number})
	_, err = c.service.db.ExecContext(t.Context(),
		"INSERT INTO invoices (number, day, order_number, amount_cents) VALUES ('x', 'y', ?, 1)", first.Number)
	require.ErrorContains(t, err, "UNIQUE")

	tx, err := c.service.db.BeginTx(t.Context(), nil) // writes
	require.NoError(t, err)
	defer func() { _ = tx.Rollback() }()
	began := time.Now()
	c.audit(t, "")
	require.Less(t, time.Since(began), 4*time.Second, "the busy timeout is 5 s")
}
