package serialpage

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/dailyserial/serial"
)

// A register keeps explanations in memory.
type register struct {
	mu    sync.Mutex
	all   []serial.Explanation
	calls int // of Explain
	fail  error
}

func (r *register) Explain(_ context.Context, e serial.Explanation) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls++
	for _, other := range r.all {
		if other == e {
			return r.fail
		}
	}
	r.all = append(r.all, e)
	return r.fail
}

func (r *register) Explanations(_ context.Context, series string, _ time.Time) iter.Seq2[serial.Explanation, error] {
	return func(yield func(serial.Explanation, error) bool) {
		r.mu.Lock()
		defer r.mu.Unlock()
		for _, e := range r.all {
			if e.Series == series && !yield(e, nil) {
				return
			}
		}
	}
}

// A site is an application that shows its numbers.
type site struct {
	*httptest.Server
	t        testing.TB
	gen      *serial.Generator
	redis    *miniredis.Miniredis
	register *register
	options  Options
	series   []Series
	start    time.Time
	log      strings.Builder // written by one request at a time

	mu     sync.Mutex
	stored []string
	read   atomic.Int64 // how often the numbers were read
}

// yield implements Series.Stored.
func (s *site) yield(ctx context.Context, _, _ time.Time) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		s.read.Add(1)
		s.mu.Lock()
		all := s.stored
		s.mu.Unlock()
		for _, number := range all {
			if !yield(number, ctx.Err()) {
				return
			}
		}
	}
}

// open serves the pages of an application that issued five invoice numbers, of which 2 and 4 are not stored.
func open(t testing.TB, change func(*site)) *site {
	t.Helper()
	m := miniredis.RunT(t)
	m.SetTime(time.Date(2021, 10, 24, 12, 0, 0, 0, time.UTC))
	rdb := redis.NewClient(&redis.Options{Addr: m.Addr()})
	t.Cleanup(func() { require.NoError(t, rdb.Close()) })
	gen, err := serial.New(rdb, serial.WithLocation(time.UTC), serial.WithMaxSkew(-1))
	require.NoError(t, err)
	s := &site{t: t, gen: gen, redis: m, register: &register{}, start: time.Date(2021, 10, 24, 0, 0, 0, 0, time.UTC)}
	numbers, err := gen.NextN(t.Context(), "IS", 5)
	require.NoError(t, err)
	for _, n := range numbers {
		if n.Seq%2 == 1 {
			s.stored = append(s.stored, n.String())
		}
	}
	s.series = []Series{{Type: "IS", Name: "Invoices", Source: Redis(gen), Stored: s.yield, Explanations: s.register}}
	s.options = Options{
		Prefix: "/numbers", Series: func(context.Context) ([]Series, error) { return s.series, nil },
		User:   func(r *http.Request) (string, error) { return r.Header.Get("X-User"), nil },
		Logger: slog.New(slog.NewTextHandler(&s.log, nil)),
	}
	if change != nil {
		change(s)
	}
	h, err := NewHandler(s.options)
	require.NoError(t, err)
	s.Server = httptest.NewServer(h)
	t.Cleanup(s.Close)
	s.Client().CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return s
}

// handler returns the handler of the site.
func (s *site) handler() *handler { return s.Config.Handler.(*handler) }

// idle waits until no audit is running.
func (s *site) idle() {
	s.t.Helper()
	a := s.handler().audits
	require.Eventually(s.t, func() bool {
		a.mu.Lock()
		defer a.mu.Unlock()
		return len(a.running) == 0
	}, time.Minute, time.Millisecond)
}

// send sends a request. headers are names and values.
func (s *site) send(method, path, body string, headers ...string) (*http.Response, string) {
	s.t.Helper()
	r, err := http.NewRequestWithContext(s.t.Context(), method, s.URL+path, strings.NewReader(body))
	require.NoError(s.t, err)
	if body != "" {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	response, err := s.Client().Do(r)
	require.NoError(s.t, err)
	text, err := io.ReadAll(response.Body)
	require.NoError(s.t, err)
	require.NoError(s.t, response.Body.Close())
	return response, string(text)
}

func (s *site) get(status int, path string, headers ...string) string {
	s.t.Helper()
	response, text := s.send("GET", path, "", headers...)
	require.Equal(s.t, status, response.StatusCode, "%s: %s", path, text)
	return text
}

const today = "/numbers/period?key=IS&start=2021-10-24T00:00:00Z"

// The pages show what was issued, stored and explained. Only the page of a period makes an audit.
func TestPages(t *testing.T) {
	s := open(t, nil)
	overview := s.get(200, "/numbers/")
	for _, want := range []string{`<a href="series?key=IS"><bdi>Invoices</bdi></a>`, "24 October 2021", "IS202110240005",
		"none since the service started", "24 October 2021: 5", "&lt;0.1% of 9\u202f999"} {
		require.Contains(t, overview, want)
	}
	series := s.get(200, "/numbers/series?key=IS")
	for _, want := range []string{`<h1><bdi>Invoices</bdi></h1>`,
		`href="period?key=IS&amp;start=2021-10-24T00%3A00%3A00Z"`, "not checked<", "5 issued, not checked"} {
		require.Contains(t, series, want)
	}
	require.Zero(t, s.read.Load(), "no audit was made")
	period := s.get(200, today)
	for _, want := range []string{"Not all numbers are accounted for", "IS202110240001 – IS202110240005",
		`<bdi class="number">IS202110240002</bdi>`, `<bdi class="number">IS202110240004</bdi>`,
		"Date, name and signature"} {
		require.Contains(t, period, want)
	}
	require.NotContains(t, period, explaining, "nobody is logged in")
	require.Contains(t, s.get(200, today, "X-User", "Ada"), explaining)
	require.EqualValues(t, 1, s.read.Load(), "an account is kept for a minute")
	require.Contains(t, s.get(200, "/numbers/"),
		`<a class="block alert" href="series?key=IS">1 of 1 checked period has discrepancies</a>`)
	require.Contains(t, s.get(200, "/numbers/series?key=IS"), "3 stored, 0 explained, 2 not explained")
	require.Empty(t, s.log.String())
}

// Every answer has the right status and headers.
func TestRequests(t *testing.T) {
	s := open(t, nil)
	for _, r := range []struct {
		method, path string
		status       int
	}{
		{"GET", "/numbers/", 200}, {"HEAD", "/numbers/", 200}, {"GET", "/numbers", 308}, {"POST", "/numbers/", 405},
		{"GET", "/numbers/series?key=PO", 404}, {"GET", "/numbers/series", 404}, {"HEAD", "/numbers/series?key=IS", 200},
		{"GET", "/numbers/period?key=IS", 400}, {"GET", "/numbers/period?key=IS&start=x", 400},
		{"GET", "/numbers/period?key=IS&start=1969-01-01T00:00:00Z", 400}, {"HEAD", today, 200},
		{"GET", "/numbers/period?key=IS&start=2021-10-23T00:00:00Z", 404}, {"GET", "/numbers/style.css", 200},
		{"GET", "/numbers/icon.svg", 200},
		{"GET", "/numbers/nothing", 404}, {"GET", "/numbers/../x", 404}, {"GET", "/numbersx", 500}, {"GET", "/", 500},
		{"GET", "/numbers/explain", 405}, {"DELETE", today, 405}, {"POST", "/numbers/explain", 403},
	} {
		response, text := s.send(r.method, r.path, "")
		require.Equal(t, r.status, response.StatusCode, "%s %s: %s", r.method, r.path, text)
		header := response.Header
		require.Equal(t, "default-src 'none'; style-src 'self'; img-src 'self'; form-action 'self'; frame-ancestors 'none'; "+
			"base-uri 'none'", header.Get("Content-Security-Policy"))
		require.Equal(t, []string{"DENY", "nosniff", "same-origin"}, []string{header.Get("X-Frame-Options"),
			header.Get("X-Content-Type-Options"), header.Get("Referrer-Policy")})
		if strings.HasSuffix(r.path, ".css") || strings.HasSuffix(r.path, ".svg") {
			require.Contains(t, header.Get("Cache-Control"), "immutable")
		} else {
			require.Equal(t, "no-store", header.Get("Cache-Control"))
		}
		for _, never := range []string{"<script", "style=", "ZgotmplZ", "<no value>"} {
			require.NotContains(t, text, never, r.path)
		}
		if !strings.HasSuffix(r.path, ".svg") { // an SVG names its language by an address
			require.NotContains(t, text, "://")
		}
		if r.method == "HEAD" {
			require.Empty(t, text)
		}
	}
	require.Zero(t, s.read.Load())
	require.Contains(t, s.get(500, "/"), "http.StripPrefix")
	response, _ := s.send("GET", "/numbers?x=1", "")
	require.Equal(t, "./numbers/?x=1", response.Header.Get("Location"))

	s = open(t, func(s *site) { s.options.Prefix = "/a/b:c d" })
	response, _ = s.send("GET", "/a/b:c%20d", "")
	target, err := response.Request.URL.Parse(response.Header.Get("Location"))
	require.NoError(t, err)
	require.Equal(t, s.URL+"/a/b:c%20d/", target.String())
	s.get(200, "/a/b:c%20d/")
}

// An account can be downloaded as CSV, without formulas, and as JSON.
func TestExport(t *testing.T) {
	formulas := []string{"=1+1", "@x", "x;=1+1", "x\t-1", "\t\t+1", "a,@b;\r", "\"=1\"", "a=1;b"}
	s := open(t, func(s *site) {
		s.stored = append(append(s.stored, formulas...), "IS202110240009", "IS202110240001")
		require.NoError(t, s.register.Explain(t.Context(), serial.Explanation{Series: "serial:IS", Type: "IS", Start: s.start,
			First: 2, Last: 2, Reason: "-1, \"void\"", By: "+Ada", At: s.start}))
	})
	text := s.get(200, todayCSV)
	table, found := strings.CutPrefix(text, "\ufeff")
	require.True(t, found)
	require.Equal(t, strings.Count(table, "\n"), strings.Count(table, "\r\n"))
	for line := range strings.SplitSeq(strings.TrimSuffix(table, "\r\n"), "\r\n") {
		require.Regexp(t, `^"([^"]|"")*"(,"([^"]|"")*"){7}$`, line, "every cell is quoted")
	}
	lines := csvOf(t, text)
	require.Contains(t, lines, []string{"explained", "2", "2", "1", "IS202110240002", `'-1, "void"`, "'+Ada",
		"2021-10-24T00:00:00Z"})
	require.NotContains(t, table, "not listed here")
	require.Contains(t, lines, []string{"not explained", "4", "4", "1", "IS202110240004", "", "", ""})
	for _, cell := range []string{"'=1+1", "'@x", "x;'=1+1", "x\t'-1", "'\t'\t'+1", "a,'@b;'\r", "\"=1\"", "a=1;b"} {
		require.Contains(t, lines, []string{"stored, but not one of our numbers", "", "", "1", cell, "", "", ""})
	}
	require.Contains(t, lines, []string{"stored, but never issued", "9", "9", "1", "IS202110240009", "", "", ""})
	for path, want := range map[string]string{todayCSV: "text/csv; charset=utf-8; header=present",
		todayJSON: "application/json", today: "text/html; charset=utf-8"} {
		for _, method := range []string{"GET", "HEAD"} {
			response, _ := s.send(method, path, "")
			require.Equal(t, want, response.Header.Get("Content-Type"))
		}
	}
	var out map[string]any
	require.NoError(t, json.Unmarshal([]byte(s.get(200, todayJSON)), &out))
	foreign := []any{}
	for _, text := range formulas {
		foreign = append(foreign, text)
	}
	require.Equal(t, foreign, out["foreign"])
	require.Equal(t, false, out["clean"])
	require.EqualValues(t, 1, out["unexplainedCount"])
}

// Exports have the numbers that documents have, also where an audit knows only their sequences: if the template prints
// more than the period, or if an earlier template printed them. If there are too many numbers to record all of them,
// exports have sequences in digits.
func TestExportContradicted(t *testing.T) {
	const many, apart = 32_000, 4096
	yearly := []serial.Option{serial.WithPeriod(serial.PerYear)}
	scheme := schemeOf(t, "{type}{date:yyyyMMdd}{seq:10}", "UTC", yearly...)
	number := func(seq int64) string { return numberOf(t, scheme, time.Date(2021, 3, 1, 0, 0, 0, 0, time.UTC), seq) }
	s := open(t, func(s *site) {
		s.start = time.Date(2021, 1, 1, 0, 0, 0, 0, time.UTC)
		s.stored = []string{number(1), " " + number(2500), "IS-2021-3"}
		s.series[0].Source = fixed{scheme, many * apart, s.start}
		s.series[0].Earlier = []*serial.Scheme{schemeOf(t, "{type}-{date:yyyy}-{seq:1+}", "UTC", yearly...)}
		e := s.explanation(2, 2600, serial.CallerLeft, "", s.start)
		e.Unused = true
		s.register.all = []serial.Explanation{e}
	})
	contradicted := func(first, second string) {
		t.Helper()
		s.handler().audits.forget(periodKey{"IS", s.start.Unix()})
		lines := csvOf(t, s.get(200, "/numbers/period.csv?key=IS&start=2021-01-01T00:00:00Z"))
		const what = "stored, but reported as never received"
		require.Contains(t, lines, []string{what, "3", "3", "1", first, "", "", ""})
		require.Contains(t, lines, []string{what, "2500", "2500", "1", second, "", "", ""})
		require.Contains(t, s.get(200, "/numbers/period.json?key=IS&start=2021-01-01T00:00:00Z"),
			fmt.Sprintf(`"contradicted":["%s","%s"]`, first, second))
	}
	contradicted("IS-2021-3", number(2500))
	for i := range int64(many) {
		s.stored = append(s.stored, number(i*apart+1))
	}
	contradicted("IS-2021-3", number(2500))
}

// At most one audit runs for a period, and at most two in all. Other requests get 503 with Retry-After.
func TestBusy(t *testing.T) {
	release := make(chan struct{})
	started := make(chan struct{}, 10)
	s := open(t, func(s *site) {
		slow := func(ctx context.Context, _, _ time.Time) iter.Seq2[string, error] {
			return func(func(string, error) bool) { started <- struct{}{}; <-release }
		}
		s.series = nil
		for _, key := range []string{"A", "B", "C"} {
			s.series = append(s.series, Series{Key: key, Type: "IS", Source: Redis(s.gen), Stored: slow})
		}
	})
	page := func(key string) string { return strings.Replace(today, "key=IS", "key="+key, 1) }
	var work sync.WaitGroup
	for _, key := range []string{"A", "B"} {
		work.Go(func() { s.get(200, page(key)) })
	}
	<-started
	<-started
	var others sync.WaitGroup
	for range 100 {
		others.Go(func() {
			response, _ := s.send("GET", page("A"), "")
			require.Equal(t, 503, response.StatusCode)
			require.NotEmpty(t, response.Header.Get("Retry-After"))
		})
	}
	s.get(503, page("C"))
	others.Wait()
	require.Empty(t, started)
	close(release)
	work.Wait()
	s.get(200, page("C"))
	s.get(200, page("A"))
}

// While Redis is down, the pages say so. Afterwards, they work again.
func TestRedisAway(t *testing.T) {
	s := open(t, nil)
	s.redis.SetError("LOADING")
	require.Contains(t, s.get(200, "/numbers/"), "Not available right now")
	require.Contains(t, s.get(503, today), "not available right now")
	s.get(503, "/numbers/series?key=IS")
	require.NotContains(t, s.get(503, today), "LOADING")
	require.Contains(t, s.log.String(), "LOADING")
	s.redis.SetError("")
	s.get(200, today)
	s.redis.Del("serial:{IS}:20211024")
	require.Contains(t, s.get(200, "/numbers/"), "The counter was lost")
}

// A mistake in a function of the application fails one request. The next one works if the function does.
func TestBrokenApplication(t *testing.T) {
	var broken atomic.Pointer[func(context.Context)]
	s := open(t, func(s *site) {
		s.options.Limit = time.Second
		s.series[0].Stored = func(ctx context.Context, _, _ time.Time) iter.Seq2[string, error] {
			return func(yield func(string, error) bool) {
				(*broken.Load())(ctx)
				yield("", ctx.Err())
			}
		}
	})
	hang := make(chan struct{})
	for _, c := range []struct {
		how    func(context.Context)
		status int
		says   string
	}{
		{func(context.Context) { panic("at the application") }, 500, "This request failed."},
		{func(context.Context) { runtime.Goexit() }, 500, "This request failed."},
		{func(ctx context.Context) { <-ctx.Done() }, 503, "not available right now"},
		{func(context.Context) { <-hang }, 503, "not available right now"},
	} {
		s.idle() // an audit may end after its request was answered
		broken.Store(&c.how)
		require.Contains(t, s.get(c.status, today), c.says)
	}
	require.Contains(t, s.get(503, today), "is running")
	close(hang)
	require.Contains(t, s.log.String(), "at the application")
	none := func(context.Context) {}
	broken.Store(&none)
	require.Eventually(t, func() bool {
		response, _ := s.send("GET", today, "")
		return response.StatusCode == 200
	}, time.Minute, 10*time.Millisecond)
}

// NewHandler refuses invalid options, and the pages refuse invalid series.
func TestInvalidOptions(t *testing.T) {
	some := func(context.Context) ([]Series, error) { return nil, nil }
	for says, o := range map[string]Options{
		"Series is nil":  {},
		"Prefix":         {Series: some, Prefix: "numbers"},
		`"/a//b"`:        {Series: some, Prefix: "/a//b"},
		`"/a?b"`:         {Series: some, Prefix: "/a?b"},
		"TrustedOrigins": {Series: some, TrustedOrigins: []string{"example.com"}},
		"Limit -1s":      {Series: some, Limit: -time.Second},
		"Limit 2h0m0s":   {Series: some, Limit: 2 * time.Hour},
	} {
		_, err := NewHandler(o)
		require.ErrorContains(t, err, says)
	}
	for _, prefix := range []string{"", "/", "/a", "/a/", "/a/b"} {
		_, err := NewHandler(Options{Series: some, Prefix: prefix})
		require.NoError(t, err, prefix)
	}
	s := open(t, nil)
	right := s.series[0]
	for says, wrong := range map[string][]Series{
		"Source is nil": {{Type: "IS"}}, "another series has": {right, right},
		"invalid": {{Type: "a b", Source: right.Source}},
	} {
		s.series = wrong
		s.get(500, "/numbers/")
		require.Contains(t, s.log.String(), says)
	}
	s.series = nil
	require.Contains(t, s.get(200, "/numbers/"), "There are no series.")
}
