package main

import (
	"bufio"
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"html"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
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
	"github.com/dailyserial/serial/examples/invoices/internal/numbers"
)

// today is Redis's day in tests, until they change it. The database uses the machine's day.
const today = "2021-10-24"

// A client talks to its own service over HTTP.
type client struct {
	*httptest.Server
	service *service
	redis   *miniredis.Miniredis
	rdb     *redis.Client
	file    string        // of the database
	journal *bytes.Buffer // guarded by slog's handler; read it when no request is under way
}

func start(t *testing.T) *client { return startIn(t, time.UTC) }

func startIn(t *testing.T, zone *time.Location) *client {
	t.Helper()
	withSQLite(t)
	m, err := embeddedRedis()
	require.NoError(t, err)
	t.Cleanup(m.Close)
	c := &client{redis: m, rdb: redis.NewClient(&redis.Options{Addr: m.Addr()}), journal: new(bytes.Buffer)}
	t.Cleanup(func() { _ = c.rdb.Close() })
	c.file = filepath.Join(t.TempDir(), "invoices.db")
	db, err := numbers.OpenDatabase(c.file)
	require.NoError(t, err)
	t.Cleanup(func() { _ = db.Close() })
	m.SetTime(time.Date(2021, 10, 24, 12, 0, 0, 0, zone))
	log := slog.New(slog.NewTextHandler(c.journal, nil))
	orders, err := numbers.New(c.rdb, db, zone, log, serial.WithMaxSkew(-1))
	require.NoError(t, err)
	c.service, err = newService(t.Context(), orders, log)
	require.NoError(t, err)
	c.Server = httptest.NewServer(c.handler(t, access{header: "X-User"}))
	t.Cleanup(c.Close)
	return c
}

// process returns the service of another process.
func (c *client) process(t *testing.T, rdb *redis.Client) *service {
	t.Helper()
	orders, err := numbers.New(rdb, c.service.db, c.service.zone, c.service.log, serial.WithMaxSkew(-1))
	require.NoError(t, err)
	s, err := newService(t.Context(), orders, c.service.log)
	require.NoError(t, err)
	return s
}

// handler returns a new handler of the same service, whose pages have not made any account yet.
func (c *client) handler(t *testing.T, a access) http.Handler {
	t.Helper()
	h, err := c.service.routes(a)
	require.NoError(t, err)
	return h
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

// browser does not follow redirects.
var browser = http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}

// try sends a request. Headers are pairs of name and value.
func (c *client) try(ctx context.Context, method, path, body string, headers ...string) (int, string, error) {
	r, err := http.NewRequestWithContext(ctx, method, c.URL+path, strings.NewReader(body))
	if err != nil {
		return 0, "", err
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Add(headers[i], headers[i+1])
	}
	response, err := browser.Do(r)
	if err != nil {
		return 0, "", err
	}
	defer func() { _ = response.Body.Close() }()
	b, err := io.ReadAll(response.Body)
	return response.StatusCode, string(b), err
}

// withSQLite skips a test if the driver is not built in; see sqlite.go.
func withSQLite(t *testing.T) {
	t.Helper()
	if !slices.Contains(sql.Drivers(), "sqlite") {
		t.Skip("SQLite is tested only without the race detector")
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

// An account is the content of period.json for a period.
type account struct {
	Clean                                     bool
	Last, Stored, MissingCount                int64
	Explained                                 []explained
	Unexplained                               []serial.Range
	Contradicted, Duplicates, Beyond, Foreign []string
}

type explained struct {
	serial.Range
	Reason, By string
}

// because returns the explanation of a single number.
func because(seq int64, reason, by string) explained {
	return explained{serial.Range{First: seq, Last: seq}, reason, by}
}

// account returns the account of the day or month that includes a day.
func (c *client) account(t *testing.T, key, date string) account {
	t.Helper()
	at, err := c.service.day(date)
	require.NoError(t, err)
	a, err := accountAt(c.handler(t, access{}), key, at)
	require.NoError(t, err)
	return a
}

func accountAt(h http.Handler, key string, at time.Time) (a account, err error) {
	query := url.Values{"key": {key}, "start": {at.Format(time.RFC3339)}}
	answer := httptest.NewRecorder()
	h.ServeHTTP(answer, httptest.NewRequest("GET", "/numbers/period.json?"+query.Encode(), nil))
	if answer.Code != http.StatusOK {
		return a, fmt.Errorf("%s: %d: %s", query, answer.Code, answer.Body)
	}
	return a, json.Unmarshal(answer.Body.Bytes(), &a)
}

// Ten clients place orders and ask for invoices. Some orders and invoices are refused after they got a number, and some
// clients disconnect in the middle of a request. Meanwhile and afterwards, no invoice's number is missing or issued
// twice.
func TestAtOnce(t *testing.T) {
	c := start(t)
	const clients, each = 10, 40
	began := time.Now()
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
			h, err := c.service.routes(access{}) // pages keep an account for a minute; these are new
			var a account
			if err == nil {
				a, err = accountAt(h, invoiceType, time.Now())
			}
			if err != nil || !a.Clean {
				t.Errorf("during the work: %v: %+v", err, a)
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
	for _, at := range []time.Time{began, time.Now()} { // a month may have begun
		a, err := accountAt(c.handler(t, access{}), invoiceType, at)
		require.NoError(t, err)
		require.True(t, a.Clean, "%+v", a)
		require.Zero(t, a.MissingCount)
	}
	a := c.account(t, orderType, today)
	require.EqualValues(t, clients*each, a.Last)
	require.Equal(t, tooLarge, a.MissingCount, "orders have gaps")
	require.True(t, a.Clean, "and all are explained: %+v", a)

	// The audit is not the only witness: count the rows by hand.
	c.Close() // the last requests of those who left are over
	rows, err := c.service.db.QueryContext(t.Context(), "SELECT number, order_number FROM invoices ORDER BY number")
	require.NoError(t, err)
	defer func() { _ = rows.Close() }()
	stored, last := map[string]string{}, map[time.Time]int64{} // by order, by month
	for rows.Next() {
		var number, of string
		require.NoError(t, rows.Scan(&number, &of))
		parsed, err := c.service.invoices.Scheme().Parse(number)
		require.NoError(t, err)
		last[parsed.Start]++
		require.Equal(t, last[parsed.Start], parsed.Seq, "a gap or a duplicate at %s", number)
		stored[of] = number
	}
	require.NoError(t, rows.Err())
	require.GreaterOrEqual(t, len(stored), len(answered))
	for of, number := range answered {
		require.Equal(t, number, stored[of], "the client got the stored number")
	}
	require.NotContains(t, c.journal.String(), "level=ERROR")
}

func TestVoid(t *testing.T) {
	c := start(t)
	o := c.order(t, 1250)
	first := c.invoice(t, o.Number, today)
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

	second := c.invoice(t, o.Number, today)
	require.Equal(t, []string{"INV-20211024-00001", "INV-20211024-00002"}, []string{first.Number, second.Number})
	var all []invoice
	c.send(t, http.StatusOK, "GET", "/invoices", "", &all)
	require.Equal(t, []invoice{second, void}, all)
	a := c.account(t, invoiceType, today)
	require.True(t, a.Clean)
	require.Equal(t, []int64{2, 2}, []int64{a.Last, a.Stored})

	_, err := c.service.db.ExecContext(t.Context(), "DELETE FROM invoices")
	require.ErrorContains(t, err, "invoices are voided, not deleted")
}

// The page leads from an invoice's number to the invoice.
func TestLookUpInvoice(t *testing.T) {
	c := start(t)
	want := c.invoice(t, c.order(t, 1250).Number, today)
	page := c.send(t, http.StatusOK, "GET",
		"/numbers/period?key=INV&start=2021-10-01T00:00:00Z&number="+want.Number, "")
	require.Contains(t, page, `<a href="../invoices/`+want.Number+`" class="screen">Open the document</a>`)
	var got invoice
	c.send(t, http.StatusOK, "GET", "/invoices/"+want.Number, "", &got)
	require.Equal(t, want, got)
	c.send(t, http.StatusNotFound, "GET", "/invoices/INV-20211024-00002", "")
}

// A deleted order leaves an explanation for its missing number. An order with an invoice cannot be deleted.
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
	void(http.StatusNotFound, "ORD202110240009", why)
	void(http.StatusOK, orders[1].Number, why)
	void(http.StatusNotFound, orders[1].Number, why)

	// The program cannot explain what it does not know.
	_, err := c.service.db.ExecContext(t.Context(), "DELETE FROM orders WHERE number = ?", orders[2].Number)
	require.NoError(t, err)
	a := c.account(t, orderType, today)
	require.EqualValues(t, 2, a.MissingCount)
	require.Equal(t, []explained{because(2, "ordered twice", "Ada")}, a.Explained)
	require.Equal(t, []serial.Range{{First: 3, Last: 3}}, a.Unexplained)
	require.False(t, a.Clean)

	// A client that leaves while Redis has its number.
	rdb := redis.NewClient(&redis.Options{Addr: c.redis.Addr()})
	defer func() { _ = rdb.Close() }()
	ctx, leave := context.WithCancel(t.Context())
	gone := make(chan struct{})
	slow := c.process(t, rdb)
	_, err = slow.place(t.Context(), draft{"Bob", 100}) // loads the day's state
	require.NoError(t, err)
	rdb.AddHook(meanwhile(func() { leave(); <-gone }))
	_, err = slow.place(ctx, draft{"Bob", 100})
	require.ErrorIs(t, err, context.Canceled)
	close(gone)
	require.NoError(t, slow.orders.Flush(t.Context()))
	require.Equal(t, []explained{because(2, "ordered twice", "Ada"), because(6, "caller left", "")},
		c.account(t, orderType, today).Explained)
}

// The number of a deleted order is never issued again, even if it was the last one and Redis loses everything.
func TestVoidedLast(t *testing.T) {
	c := start(t)
	c.order(t, 100)
	last := c.order(t, 200)
	c.send(t, http.StatusOK, "POST", "/orders/"+last.Number+"/void", `{"reason": "ordered twice", "by": "Ada"}`)
	c.redis.FlushAll()
	next, err := c.process(t, c.rdb).place(t.Context(), draft{"Eve", 300})
	require.NoError(t, err)
	require.Equal(t, "ORD202110240003", next.Number)
}

// If Redis loses everything, orders continue above the number to which an operator raised the counter. A lost answer,
// which may have had any number, does not use up the day.
func TestPossibleReasons(t *testing.T) {
	c := start(t)
	o := c.order(t, 100)
	n, err := c.service.orders.Parse(o.Number)
	require.NoError(t, err)
	lost, err := c.service.explanation(n, serial.AnswerLost+": 1 attempt", "")
	require.NoError(t, err)
	lost.Last, lost.Possible = 9999, true
	require.NoError(t, c.service.register.Explain(t.Context(), lost))
	require.NoError(t, c.service.orders.Raise(t.Context(), orderType, 40))
	require.NoError(t, c.service.orders.Flush(t.Context()))
	c.redis.FlushAll()
	next, err := c.process(t, c.rdb).place(t.Context(), draft{"Eve", 300})
	require.NoError(t, err)
	require.Equal(t, "ORD202110240041", next.Number)
}

// meanwhile is a hook that runs when Redis has answered, before the caller learns it.
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

// A closed month takes no invoices until it is reopened. Who closed or reopened it is stored, and the pages show that
// it is closed.
func TestMonths(t *testing.T) {
	c := start(t)
	first, second := c.order(t, 100), c.order(t, 200)
	require.Equal(t, "INV-20211024-00001", c.invoice(t, first.Number, "2021-10-24").Number)
	const why = `{"reason": "reported", "by": "Ada"}`
	change := func(status int, path, body string) { c.send(t, status, "POST", "/months/"+path, body) }
	change(http.StatusOK, "2021-10/close", why)
	change(http.StatusConflict, time.Now().UTC().Add(time.Hour).Format("2006-01")+"/close", why)
	for path, body := range map[string]string{
		"2021-13/close": why, "1969-12/reopen": why, "2021-10/close": `{"by": "Ada"}`, "2021-10/reopen": "",
	} {
		change(http.StatusBadRequest, path, body)
	}
	refused := c.send(t, http.StatusConflict, "POST", "/orders/"+second.Number+"/invoice", `{"date": "2021-10-31"}`)
	require.Contains(t, refused, "the month is closed")
	require.EqualValues(t, 1, c.account(t, invoiceType, today).Last)
	const page = "/numbers/period?key=INV&start=2021-10-01T00:00:00Z"
	require.Contains(t, c.send(t, http.StatusOK, "GET", page, ""), ">closed<")

	change(http.StatusOK, "2021-10/reopen", `{"reason": "an invoice was forgotten", "by": "Bob"}`)
	require.NotContains(t, c.send(t, http.StatusOK, "GET", page, ""), ">closed<")
	refused = c.send(t, http.StatusConflict, "POST", "/orders/"+second.Number+"/invoice", `{"date": "2021-09-30"}`)
	require.Contains(t, refused, "the month is closed")
	require.Equal(t, "INV-20211031-00002", c.invoice(t, second.Number, "2021-10-31").Number)
	var kept string
	require.NoError(t, c.service.db.QueryRowContext(t.Context(), `SELECT group_concat(
		action || ' ' || month || ' ' || done_by || ': ' || reason, '; ' ORDER BY rowid) FROM closings`).Scan(&kept))
	require.Equal(t, "close 2021-10 Ada: reported; reopen 2021-10 Bob: an invoice was forgotten", kept)
}

// A month that begins at 01:00, because midnight does not exist, can be closed and reopened, too.
func TestMonthWithoutMidnight(t *testing.T) {
	zone, err := time.LoadLocation("America/Asuncion")
	require.NoError(t, err)
	c := startIn(t, zone)
	o := c.order(t, 100)
	invoice := func(status int, date string) {
		c.send(t, status, "POST", "/orders/"+o.Number+"/invoice", fmt.Sprintf(`{"date": %q}`, date))
	}
	change := func(path string) {
		c.send(t, http.StatusOK, "POST", "/months/"+path, `{"reason": "reported", "by": "Ada"}`)
	}
	change("2023-09/close")
	invoice(http.StatusConflict, "2023-09-30")
	change("2023-10/close")
	invoice(http.StatusConflict, "2023-10-31")
	change("2023-10/reopen")
	invoice(http.StatusConflict, "2023-09-30")
	invoice(http.StatusCreated, "2023-10-01")
}

// Failed requests store nothing. A failed invoice leaves no gap; a failed order does if it had a number.
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

	// The database fails after the invoice was stored, within its transaction.
	_, err := c.service.db.ExecContext(t.Context(), `CREATE TRIGGER fails AFTER INSERT ON invoices
		BEGIN SELECT RAISE(ABORT, 'out of order'); END`)
	require.NoError(t, err)
	c.send(t, http.StatusServiceUnavailable, "POST", "/orders/"+o.Number+"/invoice", "")
	require.Contains(t, c.journal.String(), "out of order")
	a := c.account(t, invoiceType, time.Now().UTC().Format(time.DateOnly))
	require.Equal(t, []int64{0, 0}, []int64{a.Last, a.Stored})
	require.True(t, a.Clean)
	a = c.account(t, orderType, today)
	require.EqualValues(t, 1, a.MissingCount, "the order for -1 cents")
	require.Equal(t, []explained{because(3, "the order was refused: amount_cents must be 0 to 100000000", "orders")},
		a.Explained)
	require.True(t, a.Clean)

	_, err = c.service.db.ExecContext(t.Context(), "DROP TRIGGER fails")
	require.NoError(t, err)
	require.Equal(t, "00001", c.invoice(t, o.Number, "").Number[13:], "the number that failed")
}

// The account of a month with every possible fault.
func TestAccount(t *testing.T) {
	c := start(t)
	var orders []order
	for i, date := range []string{"2021-10-23", today, today, today, "2021-10-31", "2021-11-01"} {
		at, err := c.service.day(date)
		require.NoError(t, err)
		c.redis.SetTime(at)
		orders = append(orders, c.order(t, 1250+i))
		c.invoice(t, orders[i].Number, date)
	}
	require.Equal(t, "ORD202110240003", orders[3].Number)
	c.send(t, http.StatusOK, "POST", "/invoices/INV-20211024-00003/void", "")
	a := c.account(t, orderType, today)
	require.True(t, a.Clean)
	require.Equal(t, []int64{3, 3}, []int64{a.Last, a.Stored})
	a = c.account(t, invoiceType, today)
	require.True(t, a.Clean)
	require.Equal(t, []int64{5, 5}, []int64{a.Last, a.Stored}, "one is from November")

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
	require.Equal(t, account{
		Last: 5, Stored: 3, MissingCount: 2, Explained: []explained{}, Unexplained: []serial.Range{{First: 1, Last: 2}},
		Contradicted: []string{}, Duplicates: []string{"INV-20211025-00004"}, Beyond: []string{"INV-20211025-00099"},
		Foreign: []string{"<b>17</b>"},
	}, c.account(t, invoiceType, today))
	require.Equal(t, []serial.Range{{First: 1, Last: 1}}, c.account(t, orderType, today).Unexplained)
	text := c.send(t, http.StatusOK, "GET", "/numbers/period?key=INV&start=2021-10-01T00:00:00Z", "")
	require.Contains(t, text, "&lt;b&gt;17&lt;/b&gt;")

	// Without Redis, there is still the account of the invoices.
	c.redis.SetError("LOADING")
	require.EqualValues(t, 5, c.account(t, invoiceType, today).Last)
	c.send(t, http.StatusServiceUnavailable, "GET", "/numbers/period.json?key=ORD&start=2021-10-24T00:00:00Z", "")
	require.Contains(t, c.send(t, http.StatusOK, "GET", "/numbers/", ""), "INV")
	require.Contains(t, c.journal.String(), "LOADING")
}

// periods returns the addresses of the periods that a page links to, and their accounts.
func (c *client) periods(t *testing.T, page string) (hrefs []string, accounts []account) {
	t.Helper()
	for _, match := range regexp.MustCompile(`href="period(\?[^"]+)"`).FindAllStringSubmatch(page, -1) {
		query, a := html.UnescapeString(match[1]), account{}
		c.send(t, http.StatusOK, "GET", "/numbers/period.json"+query, "", &a)
		hrefs, accounts = append(hrefs, "/numbers/period"+query), append(accounts, a)
	}
	return hrefs, accounts
}

// The demonstration shows everything, on any day, after one click for each series.
func TestSample(t *testing.T) {
	for _, at := range []struct{ now, zone string }{
		{"2021-10-31T23:59:59Z", "UTC"}, // 40 days back is in September
		{"2021-11-01T00:00:00Z", "UTC"}, // all of October has passed
		{"2024-03-01T11:59:59Z", "UTC"}, // 40 days back is in January
		{"2023-10-01T04:00:00Z", "America/Asuncion"},
		{"2024-03-30T11:00:00Z", "Pacific/Auckland"}, // the 31st there
	} {
		zone, err := time.LoadLocation(at.zone)
		require.NoError(t, err)
		now, err := time.Parse(time.RFC3339, at.now)
		require.NoError(t, err)
		c := startIn(t, zone)
		require.NoError(t, sample(t.Context(), c.redis, c.service, now))
		c.redis.SetTime(now)
		get := func(path string) string { return c.send(t, http.StatusOK, "GET", path, "") }

		require.Contains(t, get("/numbers/series?key=ORD"), "not checked", "nothing is checked at start")
		for _, key := range []string{"ORD", "INV"} {
			status, _, err := c.try(t.Context(), "POST", "/numbers/check", "key="+key, "Content-Type",
				"application/x-www-form-urlencoded")
			require.NoError(t, err)
			require.Equal(t, http.StatusSeeOther, status)
			require.Eventually(t, func() bool { return strings.Contains(get("/numbers/series?key="+key), "were checked: ") },
				10*time.Second, 10*time.Millisecond)
		}
		overview := get("/numbers/")
		last, _ := c.periods(t, overview)
		require.Len(t, last, 2, "each series has an account")
		require.Regexp(t, `(?s)href="series\?key=ORD"><bdi>Orders<.*href="series\?key=INV"><bdi>Invoices<`, overview)

		page := get("/numbers/series?key=ORD")
		require.NotContains(t, page, `<rect class="issued"`, "every day has an account")
		require.Equal(t, 1, strings.Count(page, `<rect class="unexplained"`))
		days, accounts := c.periods(t, page)
		require.Len(t, days, sampled)
		_, day, _ := c.service.orders.Scheme().Period(serial.At(now))
		require.Contains(t, days[0], url.QueryEscape(day.UTC().Format(time.RFC3339)))
		require.Contains(t, get(days[0]), "ordered twice")
		require.Equal(t, []int64{12, 10}, []int64{accounts[0].Last, accounts[0].Stored})
		require.Equal(t, []explained{because(4, "ordered twice", "Ada"),
			because(8, "the order was refused: amount_cents must be 0 to 100000000", "orders")}, accounts[0].Explained)
		require.Equal(t, []serial.Range{{First: 4, Last: 4}}, accounts[1].Unexplained)
		for ago, a := range accounts {
			require.Equal(t, ago != 1, a.Clean, "%d days ago: %+v", ago, a)
		}

		page = get("/numbers/series?key=INV")
		require.NotContains(t, page, `<rect class="issued"`)
		months, accounts := c.periods(t, page)
		require.GreaterOrEqual(t, len(months), 2)
		for i, a := range accounts {
			require.True(t, a.Clean && a.Last > 0 && a.MissingCount == 0, "%+v", a)
			require.Equal(t, i > 0, strings.Contains(get(months[i]), ">closed<"), months[i])
		}
		var void int
		var closings string
		require.NoError(t, c.service.db.QueryRowContext(t.Context(), `SELECT count(voided_at), (SELECT
			group_concat(action || ' ' || month || ' ' || done_by || ': ' || reason) FROM closings) FROM invoices`).
			Scan(&void, &closings))
		require.NotZero(t, void)
		require.Equal(t, "close "+day.AddDate(0, 0, -day.Day()).Format("2006-01")+" Ada: reported", closings)
	}
}

// The program prints an address, whose pages show accounts. In the demonstration, anyone may explain numbers.
func TestRun(t *testing.T) {
	withSQLite(t)
	t.Setenv("INVOICES_REDIS_URL", "")
	t.Setenv("INVOICES_DATABASE", "")
	log := slog.New(slog.DiscardHandler)
	require.ErrorContains(t, run(t.Context(), []string{"-origin", "numbers.example.com"}, io.Discard, log), "origin")

	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	read, write := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		err := run(ctx, []string{"-addr", "127.0.0.1:0", "-tz", "Asia/Shanghai"}, write, log)
		_ = write.CloseWithError(err)
		ended <- err
	}()
	lines := bufio.NewScanner(read)
	var base string
	for found := false; !found && lines.Scan(); {
		base, found = strings.CutPrefix(lines.Text(), "Look at ")
	}
	require.NoError(t, lines.Err())
	go func() { _, _ = io.Copy(io.Discard, read) }()

	base, found := strings.CutSuffix(base, "/numbers/")
	require.True(t, found, base)
	c := &client{Server: &httptest.Server{URL: base}}
	require.Contains(t, c.send(t, http.StatusFound, "GET", "/", ""), "/numbers/")
	hrefs, accounts := c.periods(t, c.send(t, http.StatusOK, "GET", "/numbers/series?key=ORD", ""))
	require.NotEmpty(t, accounts)
	require.True(t, accounts[0].Clean && accounts[0].Last > 0, "%+v", accounts[0])
	require.NotContains(t, c.send(t, http.StatusOK, "GET", hrefs[0], ""), `action="explain"`, "nothing is unexplained")
	require.Equal(t, "Ada", accounts[0].Explained[0].By)

	address, err := url.Parse(hrefs[0])
	require.NoError(t, err)
	form := address.Query()
	form.Set("first", regexp.MustCompile(`ORD\d{8}0004`).FindString(c.send(t, http.StatusOK, "GET", hrefs[0], "")))
	form.Set("reason", "ordered three times")
	for _, user := range []string{"demo", "Eve"} { // the later one counts
		form.Set("at", time.Now().UTC().Format(time.RFC3339Nano))
		headers := []string{"Content-Type", "application/x-www-form-urlencoded", "X-Forwarded-User", "Eve"}
		if user == "demo" {
			headers = headers[:2]
		}
		status, text, err := c.try(ctx, "POST", "/numbers/explain", form.Encode(), headers...)
		require.NoError(t, err)
		require.Equal(t, http.StatusSeeOther, status, text)
		_, accounts = c.periods(t, c.send(t, http.StatusOK, "GET", "/numbers/series?key=ORD", ""))
		require.Equal(t, because(4, "ordered three times", user), accounts[0].Explained[0])
	}
	cancel()
	require.NoError(t, <-ended)
}

// What an operator skips with the command, and why, is in the service's register and on its pages.
func TestCommand(t *testing.T) {
	c := start(t)
	c.order(t, 100)
	program := filepath.Join(t.TempDir(), "invoices-serial")
	_, err := os.ReadDir("cmd/invoices-serial") // so that go test notices changes
	require.NoError(t, err)
	out, err := exec.CommandContext(t.Context(), "go", "build", "-o", program, "./cmd/invoices-serial").CombinedOutput()
	require.NoError(t, err, "%s", out)
	t.Setenv("INVOICES_REDIS_URL", "redis://"+c.redis.Addr())
	t.Setenv("INVOICES_DATABASE", c.file)
	run := func(args ...string) {
		t.Helper()
		out, err = exec.CommandContext(t.Context(), program, args...).CombinedOutput()
		require.NoError(t, err, "%s", out)
	}
	run("next", "ORD")
	run("raise", "ORD", "9", "-reason", "printed by hand", "-by", "Ada")
	require.Equal(t, "ORD202110240010", c.order(t, 100).Number)
	a := c.account(t, "ORD", today)
	require.Equal(t, []serial.Range{{First: 2, Last: 2}}, a.Unexplained)
	require.Equal(t, "printed by hand", a.Explained[0].Reason)
}

// The service's log names the command.
func TestCommandInLog(t *testing.T) {
	c := start(t)
	_, err := c.process(t, c.rdb).orders.Next(t.Context(), orderType)
	require.NoError(t, err)
	other, err := serial.New(c.rdb, serial.WithLocation(time.FixedZone("", 3600)), serial.WithMaxSkew(-1))
	require.NoError(t, err)
	require.NoError(t, other.Takeover(t.Context(), orderType, 0))
	c.send(t, http.StatusServiceUnavailable, "POST", "/orders", `{"customer": "Ada", "amount_cents": 100}`)
	require.Contains(t, c.journal.String(), "run: invoices-serial takeover ORD SEQ, where")
}

// Only users whom the login proxy names may explain numbers. Their names are stored with the reasons.
func TestExplain(t *testing.T) {
	c := start(t)
	o := c.order(t, 100)
	c.order(t, 200)
	c.invoice(t, o.Number, today)
	for _, query := range []string{
		"DELETE FROM orders WHERE number = 'ORD202110240002'", "DROP TRIGGER invoices_stay", "DELETE FROM invoices",
	} {
		_, err := c.service.db.ExecContext(t.Context(), query)
		require.NoError(t, err)
	}
	page := func(key, start string, headers ...string) string {
		status, text, err := c.try(t.Context(), "GET", "/numbers/period?key="+key+"&start="+start, "", headers...)
		require.NoError(t, err)
		require.Equal(t, http.StatusOK, status)
		return text
	}
	send := func(status int, key, start, first string, headers ...string) {
		t.Helper()
		form := url.Values{"key": {key}, "start": {start}, "first": {first}, "reason": {"deleted by hand"},
			"at": {time.Now().UTC().Format(time.RFC3339Nano)}}
		headers = append(headers, "Content-Type", "application/x-www-form-urlencoded")
		got, text, err := c.try(t.Context(), "POST", "/numbers/explain", form.Encode(), headers...)
		require.NoError(t, err)
		require.Equal(t, status, got, text)
	}
	const day, month, form = "2021-10-24T00:00:00Z", "2021-10-01T00:00:00Z", `action="explain"`
	const origin = "https://numbers.example.com"
	for _, nobody := range [][]string{
		{}, {"X-User", ""}, {"X-User", "Ada", "X-User", "Bob"}, {"X-Forwarded-User", "Ada"},
	} {
		require.NotContains(t, page(orderType, day, nobody...), form)
		send(http.StatusForbidden, orderType, day, "ORD202110240002", nobody...)
	}
	send(http.StatusForbidden, orderType, day, "ORD202110240002", "X-User", "Ada", "Sec-Fetch-Site", "cross-site")
	send(http.StatusForbidden, orderType, day, "ORD202110240002", "X-User", "Ada", "Origin", origin)
	require.Equal(t, []serial.Range{{First: 2, Last: 2}}, c.account(t, orderType, today).Unexplained)

	require.Contains(t, page(orderType, day, "X-User", "Ada"), form)
	send(http.StatusSeeOther, orderType, day, "ORD202110240002", "X-User", "Ada", "Origin", c.URL)
	require.Equal(t, []explained{because(2, "deleted by hand", "Ada")}, c.account(t, orderType, today).Explained)
	require.Contains(t, page(orderType, day), "deleted by hand")

	// A proxy that changes the Host header.
	c.Config.Handler = c.handler(t, access{header: "X-User", origin: origin})
	send(http.StatusForbidden, invoiceType, month, "INV-20211024-00001", "X-User", "Bob", "Origin", "https://example.com")
	send(http.StatusSeeOther, invoiceType, month, "INV-20211024-00001", "X-User", "Bob", "Origin", origin)
	require.Equal(t, []explained{because(1, "deleted by hand", "Bob")}, c.account(t, invoiceType, today).Explained)
}

// Requests from pages of other sites change nothing. Programs and the service's own pages do.
func TestCrossOrigin(t *testing.T) {
	c := start(t)
	o := c.order(t, 100)
	v := c.invoice(t, o.Number, "")
	send := func(path, name, value string) int {
		status, _, err := c.try(t.Context(), "POST", path, "", name, value,
			"Content-Type", "application/x-www-form-urlencoded")
		require.NoError(t, err)
		return status
	}
	void := "/invoices/" + v.Number + "/void"
	for name, value := range map[string]string{"Sec-Fetch-Site": "cross-site", "Origin": "https://example.com"} {
		for _, path := range []string{void, "/orders", "/orders/" + o.Number + "/invoice", "/numbers/explain"} {
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

// A request whose body does not arrive takes no longer than patience, and is distinguished from a wrong body.
func TestStalledBody(t *testing.T) {
	for _, path := range []string{"/orders", "/orders/ORD202110240001/invoice"} {
		for body, status := range map[string]int{
			"":                   http.StatusRequestTimeout,
			`{"customer": "Ada"`: http.StatusRequestTimeout,
			`{}`:                 http.StatusRequestTimeout, // the end is missing
			"!":                  http.StatusBadRequest,
		} {
			synctest.Test(t, func(t *testing.T) {
				handler, err := (&service{log: slog.New(slog.DiscardHandler)}).routes(access{}) // it is never asked
				require.NoError(t, err)
				ctx, stop := context.WithCancel(t.Context())
				conn, server := net.Pipe()
				listener := make(pipes, 1)
				listener <- server
				ended := make(chan error, 1)
				go func() { ended <- serve(ctx, listener, handler, slog.New(slog.DiscardHandler)) }()
				began := time.Now()
				_, err = fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: h\r\nContent-Length: 100\r\n\r\n%s", path, body)
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

// The service also relies on the floor if Redis loses everything and no process remembers; on audits that block nobody;
// on one invoice per order, whoever writes; on refusing future dates; and on listing the newest invoice first.
func TestRelies(t *testing.T) {
	c := start(t)
	first, second := c.order(t, 100), c.order(t, 200)
	c.redis.FlushAll()
	third, err := c.process(t, c.rdb).place(t.Context(), draft{"Eve", 300})
	require.NoError(t, err)
	require.Equal(t, "ORD202110240003", third.Number)

	began := time.Now().UTC()
	v := c.invoice(t, first.Number, "")
	require.Contains(t, []string{began.Format("20060102"), time.Now().UTC().Format("20060102")}, v.Number[4:12])
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
	began = time.Now()
	for _, key := range []string{orderType, invoiceType} {
		c.account(t, key, today)
	}
	require.Less(t, time.Since(began), 4*time.Second, "the busy timeout is 5 s")
}
