package page

import (
	"database/sql"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/gin-gonic/gin"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/dailyserial/serial"
	"github.com/dailyserial/serial/examples/guides/internal/guidetest"
	"github.com/dailyserial/serial/gapless"
	"github.com/dailyserial/serial/sqlledger"
)

func TestGuide(t *testing.T) { guidetest.RequireCode(t, "page.md", "page.go") }

func init() { gin.SetMode(gin.ReleaseMode) }

// The only user of the site may explain.
const ada, password = "Ada", "lovelace"

// A site has orders and invoices. The second order is missing.
type site struct {
	redis  *miniredis.Miniredis
	orders *serial.Generator
	page   http.Handler
	db     *sql.DB
}

func open(t *testing.T) *site {
	t.Helper()
	s := &site{db: guidetest.SQLite(t), redis: miniredis.RunT(t)}
	s.orders = s.generator(t)
	guidetest.Exec(t, s.db, "CREATE TABLE orders (number text, tenant text)")
	guidetest.Exec(t, s.db, "CREATE TABLE invoices (number text)")
	numbers, err := s.orders.NextN(t.Context(), "ORD", 3)
	require.NoError(t, err)
	guidetest.Exec(t, s.db, "INSERT INTO orders VALUES (?, ''), (?, '')", numbers[0].String(), numbers[2].String())

	scheme, err := serial.NewScheme(serial.WithLocation(time.UTC), serial.WithPeriod(serial.PerMonth),
		serial.WithTemplate("{type}-{date:yyyyMM}-{seq:4}"))
	require.NoError(t, err)
	invoices, err := gapless.New(gapless.SQLite, scheme)
	require.NoError(t, err)
	require.NoError(t, invoices.CreateTable(t.Context(), s.db))
	tx, err := s.db.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	number, err := invoices.Next(t.Context(), tx, "INV")
	require.NoError(t, err)
	_, err = tx.ExecContext(t.Context(), "INSERT INTO invoices VALUES (?)", number.String())
	require.NoError(t, err)
	require.NoError(t, tx.Commit())

	s.page, err = newPage(t.Context(), s.orders, invoices, s.db)
	require.NoError(t, err)
	return s
}

func (s *site) generator(t *testing.T, opts ...serial.Option) *serial.Generator {
	t.Helper()
	rdb := redis.NewClient(&redis.Options{Addr: s.redis.Addr()})
	t.Cleanup(func() { require.NoError(t, rdb.Close()) })
	gen, err := serial.New(rdb, append(opts, serial.WithLocation(time.UTC))...)
	require.NoError(t, err)
	return gen
}

// A browser follows redirects, and is logged in.
type browser struct {
	t    *testing.T
	user string
	*http.Client
}

func browse(t *testing.T, user string) *browser { return &browser{t, user, &http.Client{}} }

// send returns the page that a request ends at, and its address.
func (b *browser) send(status int, method, address, body string, headers ...string) (page string, at *url.URL) {
	b.t.Helper()
	r, err := http.NewRequestWithContext(b.t.Context(), method, address, strings.NewReader(body))
	require.NoError(b.t, err)
	if b.user != "" {
		r.SetBasicAuth(b.user, password)
	}
	if body != "" {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	response, err := b.Do(r)
	require.NoError(b.t, err)
	text, err := io.ReadAll(response.Body)
	require.NoError(b.t, err)
	require.NoError(b.t, response.Body.Close())
	require.Equal(b.t, status, response.StatusCode, "%s %s: %s", method, address, text)
	return string(text), response.Request.URL
}

var links = regexp.MustCompile(`href="([^"#]*)"`)

// walk follows all links from an address, and returns the pages by their addresses.
func (b *browser) walk(address string) map[string]string {
	b.t.Helper()
	pages := map[string]string{}
	for todo := []string{address}; len(todo) > 0; todo = todo[1:] {
		if _, done := pages[todo[0]]; done {
			continue
		}
		page, at := b.send(http.StatusOK, "GET", todo[0], "")
		pages[todo[0]], pages[at.String()] = page, page
		for _, link := range links.FindAllStringSubmatch(page, -1) {
			target, err := at.Parse(strings.ReplaceAll(link[1], "&amp;", "&"))
			require.NoError(b.t, err)
			todo = append(todo, target.String())
		}
	}
	return pages
}

// use goes through all pages that can be reached from an address, and explains the missing order.
func use(t *testing.T, address string, headers ...string) {
	t.Helper()
	b := browse(t, ada)
	pages := b.walk(address)
	seen := map[string]int{}
	for at := range pages {
		u, err := url.Parse(at)
		require.NoError(t, err)
		seen[u.Path[strings.LastIndexByte(u.Path, '/')+1:]]++
	}
	for _, kind := range []string{"", "series", "period", "period.csv", "period.json", "style.css", "icon.svg"} {
		require.NotZero(t, seen[kind], "%q in %v", kind, seen)
	}
	for at, page := range pages {
		if !strings.Contains(page, "Not all numbers are accounted for.") {
			continue
		}
		form := url.Values{"first": {"2"}, "reason": {"torn"}}
		for _, m := range regexp.MustCompile(`name="(key|start|nonce)" value="([^"]*)"`).FindAllStringSubmatch(page, -1) {
			form.Set(m[1], m[2])
		}
		base, err := url.Parse(at)
		require.NoError(t, err)
		to, err := base.Parse("explain")
		require.NoError(t, err)
		b.send(http.StatusForbidden, "POST", to.String(), form.Encode(), "Sec-Fetch-Site", "cross-site")
		b.send(http.StatusForbidden, "POST", to.String(), form.Encode(), "Origin", "https://example.com")
		browse(t, "").send(http.StatusUnauthorized, "POST", to.String(), form.Encode())
		page, at := b.send(http.StatusOK, "POST", to.String(), form.Encode(), headers...)
		require.Contains(t, page, "All numbers are accounted for.")
		require.Contains(t, page, ada)
		require.Contains(t, at.Path, "/period")
		return
	}
	require.Fail(t, "no page says that a number is missing")
}

var frameworks = map[string]func(http.Handler) http.Handler{
	"net/http": withNetHTTP, "chi": withChi, "gin": withGin, "echo": withEcho,
}

// Each framework serves every page, with and without the last slash, behind a login.
func TestMounted(t *testing.T) {
	for name, mount := range frameworks {
		t.Run(name, func(t *testing.T) {
			s := open(t)
			server := httptest.NewServer(login(map[string]string{ada: password}, mount(s.page)))
			t.Cleanup(server.Close)
			browse(t, "").send(http.StatusUnauthorized, "GET", server.URL+"/numbers/", "")
			_, at := browse(t, ada).send(http.StatusOK, "GET", server.URL+"/numbers", "")
			require.Equal(t, "/numbers/", at.Path)
			use(t, server.URL+"/numbers")
		})
	}
}

// Behind a proxy that keeps the path, one that has the pages at another path, and one that changes the host.
func TestProxies(t *testing.T) {
	for name, rewrite := range map[string]func(*httputil.ProxyRequest){
		"path kept":    func(r *httputil.ProxyRequest) { r.Out.Host = r.In.Host },
		"path longer":  func(r *httputil.ProxyRequest) { r.Out.URL.Path = strings.TrimPrefix(r.In.URL.Path, "/intranet") },
		"another host": func(r *httputil.ProxyRequest) { r.Out.Host = "numbers.internal" },
	} {
		for framework, mount := range frameworks {
			t.Run(name+", "+framework, func(t *testing.T) {
				s := open(t)
				server := httptest.NewServer(login(map[string]string{ada: password}, mount(s.page)))
				t.Cleanup(server.Close)
				target, err := url.Parse(server.URL)
				require.NoError(t, err)
				proxy := httptest.NewServer(&httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
					r.SetURL(target)
					rewrite(r)
				}})
				t.Cleanup(proxy.Close)
				prefix := map[bool]string{true: "/intranet"}[name == "path longer"]
				use(t, proxy.URL+prefix+"/numbers")
			})
		}
	}
}

// Whoever only reads gets no form. A prefix that was removed is an error that says so.
func TestMistakes(t *testing.T) {
	s := open(t)
	server := httptest.NewServer(withNetHTTP(s.page))
	t.Cleanup(server.Close)
	for _, page := range browse(t, "").walk(server.URL + "/numbers/") {
		require.NotContains(t, page, "<form")
	}
	browse(t, "").send(http.StatusForbidden, "POST", server.URL+"/numbers/explain", "key=ORD")

	stripped := httptest.NewServer(http.StripPrefix("/numbers", s.page))
	t.Cleanup(stripped.Close)
	for _, path := range []string{"/numbers/", "/numbers/series?key=ORD"} {
		page, _ := browse(t, "").send(http.StatusInternalServerError, "GET", stripped.URL+path, "")
		require.Contains(t, page, "If http.StripPrefix is around the handler, remove it.")
	}
}

// Tenants side by side have pages of their own. A proxy's origin is trusted, and its header is who explains.
func TestTenants(t *testing.T) {
	s := open(t)
	tenants := map[string]*serial.Generator{}
	for i, name := range []string{"north", "south"} {
		tenants[name] = s.generator(t, serial.WithKeyPrefix("serial/"+name))
		numbers, err := tenants[name].NextN(t.Context(), "ORD", i+7)
		require.NoError(t, err)
		for _, n := range numbers {
			guidetest.Exec(t, s.db, "INSERT INTO orders VALUES (?, ?)", n.String(), name)
		}
	}
	register, err := sqlledger.NewRegister(s.db, sqlledger.SQLite)
	require.NoError(t, err)
	page, err := newTenantsPage(tenants, s.db, register)
	require.NoError(t, err)
	server := httptest.NewServer(withChi(page))
	t.Cleanup(server.Close)
	all := ""
	for at, text := range browse(t, "").walk(server.URL + "/numbers/") {
		all += text
		require.Equal(t, strings.Contains(at, "/period?"), strings.Contains(text, "✓ All numbers are accounted for."), at)
	}
	require.Regexp(t, `(?s)Orders of north.*Orders of south`, all)
	require.Regexp(t, `>ORD\d{8}0007<`, all)
	require.Regexp(t, `>ORD\d{8}0008<`, all)
	for origin, status := range map[string]int{"https://example.com": 403, "https://numbers.example.com": 404} {
		browse(t, "").send(status, "POST", server.URL+"/numbers/explain", "key=none", "Origin", origin,
			"X-Forwarded-User", "Ada")
	}
}
