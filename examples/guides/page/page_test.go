package page

import (
	"context"
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
	"github.com/go-chi/chi/v5"
	"github.com/go-chi/chi/v5/middleware"
	"github.com/labstack/echo/v5"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/dailyserial/serial"
	"github.com/dailyserial/serial/examples/guides/internal/guidetest"
	"github.com/dailyserial/serial/gapless"
	"github.com/dailyserial/serial/serialpage"
	"github.com/dailyserial/serial/sqlledger"
)

func TestGuide(t *testing.T) {
	guidetest.RequireCode(t, "page.md", "page.go")
	_, table, found := strings.Cut(guidetest.ReadGuide(t, "page.md"), "| router | mounted with |\n")
	require.True(t, found)
	table, _, _ = strings.Cut(table, "\n\n")
	routers := guidetest.ReadFile(t, "routers.go")
	calls := regexp.MustCompile("`([a-z]+\\..+?)`").FindAllStringSubmatch(table, -1)
	require.Len(t, calls, 8)
	for _, call := range calls {
		require.Contains(t, routers, "\t"+call[1]+"\n")
	}
}

func init() { gin.SetMode(gin.ReleaseMode) }

// The only user of the site may explain.
const ada, password = "Ada", "lovelace"

// A site has orders and invoices. The second order is missing.
type site struct {
	redis    *miniredis.Miniredis
	orders   *serial.Generator
	invoices *gapless.Generator
	page     http.Handler
	db       *sql.DB
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

	scheme, err := serial.NewScheme(serial.WithLocation(guidetest.Noon()), serial.WithPeriod(serial.PerMonth),
		serial.WithTemplate("{type}-{date:yyyyMM}-{seq:4}"))
	require.NoError(t, err)
	s.invoices, err = gapless.New(gapless.SQLite, scheme)
	require.NoError(t, err)
	require.NoError(t, s.invoices.CreateTable(t.Context(), s.db))
	tx, err := s.db.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	number, err := s.invoices.Next(t.Context(), tx, "INV")
	require.NoError(t, err)
	_, err = tx.ExecContext(t.Context(), "INSERT INTO invoices VALUES (?)", number.String())
	require.NoError(t, err)
	require.NoError(t, tx.Commit())

	s.page = s.newPage(t)
	return s
}

// newPage returns the page as served by another process.
func (s *site) newPage(t *testing.T) http.Handler {
	t.Helper()
	page, err := newPage(t.Context(), s.orders, s.invoices, s.db)
	require.NoError(t, err)
	return page
}

// today is the address of the orders' page, below the prefix.
func (s *site) today(t *testing.T) string {
	t.Helper()
	last, err := s.orders.Peek(t.Context(), "ORD")
	require.NoError(t, err)
	return "/period?key=ORD&start=" + last.Start.UTC().Format(time.RFC3339)
}

// serve serves a handler, and returns the address.
func serve(t *testing.T, handler http.Handler) string {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	return server.URL
}

func (s *site) generator(t *testing.T, opts ...serial.Option) *serial.Generator {
	t.Helper()
	rdb := redis.NewClient(&redis.Options{Addr: s.redis.Addr()})
	t.Cleanup(func() { require.NoError(t, rdb.Close()) })
	gen, err := serial.New(rdb, append(opts, serial.WithLocation(guidetest.Noon()))...)
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

// walk follows all links from an address, and returns the pages by address.
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

// form returns the form data that explains the second number.
func form(page, reason string) url.Values {
	form := url.Values{"first": {regexp.MustCompile(`ORD\d{8}0002`).FindString(page)}, "reason": {reason}}
	for _, m := range regexp.MustCompile(`name="(key|start|at)" value="([^"]*)"`).FindAllStringSubmatch(page, -1) {
		form.Set(m[1], m[2])
	}
	return form
}

// use visits all pages that can be reached from an address, and explains the missing order.
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
		form := form(page, "torn")
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

// proxied serves the content of an address through a proxy.
func proxied(t *testing.T, address string, rewrite func(*httputil.ProxyRequest)) string {
	t.Helper()
	target, err := url.Parse(address)
	require.NoError(t, err)
	return serve(t, &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(target)
		r.Out.Host = r.In.Host
		rewrite(r)
	}})
}

// The pages work behind a proxy that keeps the path, one that has them at another path, and one that changes the host.
func TestProxies(t *testing.T) {
	moved := func(from, to string) func(*httputil.ProxyRequest) {
		return func(r *httputil.ProxyRequest) {
			path, found := strings.CutPrefix(r.In.URL.Path, from)
			if !found { // belongs to another application
				path = "/nowhere"
			}
			r.Out.URL.Path = to + path
		}
	}
	for name, c := range map[string]struct {
		at      string // where users see the pages
		rewrite func(*httputil.ProxyRequest)
		secure  bool // browsers send the origin of a form
	}{
		"path kept":            {"/numbers", func(*httputil.ProxyRequest) {}, false},
		"path longer":          {"/intranet/numbers", moved("/intranet", ""), false},
		"another path":         {"/accounts/2021/", moved("/accounts/2021", "/numbers"), false},
		"another host, secure": {"/numbers", func(r *httputil.ProxyRequest) { r.Out.Host = "numbers.internal" }, true},
	} {
		for framework, mount := range frameworks {
			t.Run(name+", "+framework, func(t *testing.T) {
				s := open(t)
				proxy := proxied(t, serve(t, login(map[string]string{ada: password}, mount(s.page))), c.rewrite)
				headers := []string{"Origin", proxy}
				if c.secure {
					headers = []string{"Sec-Fetch-Site", "same-origin"}
				}
				use(t, proxy+c.at, headers...)
			})
		}
	}
}

// Behind a proxy that changes the host, browsers that do not send a form's origin are refused.
func TestHostChanged(t *testing.T) {
	s := open(t)
	proxy := proxied(t, serve(t, login(map[string]string{ada: password}, withNetHTTP(s.page))),
		func(r *httputil.ProxyRequest) { r.Out.Host = "numbers.internal" })
	browse(t, ada).send(http.StatusForbidden, "POST", proxy+"/numbers/explain", "key=none", "Origin", proxy)
	browse(t, ada).send(http.StatusNotFound, "POST", proxy+"/numbers/explain", "key=none", "Sec-Fetch-Site", "same-origin")
}

// Behind a proxy that removes the prefix, no page is found.
func TestPrefixTakenAway(t *testing.T) {
	s := open(t)
	page, err := serialpage.NewHandler(serialpage.Options{Series: func(context.Context) ([]serialpage.Series, error) {
		return []serialpage.Series{{Type: "ORD", Source: serialpage.Redis(s.orders),
			Stored: stored(s.db, "SELECT number FROM orders")}}, nil
	}})
	require.NoError(t, err)
	proxy := proxied(t, serve(t, page), func(r *httputil.ProxyRequest) {
		r.Out.URL.Path = strings.TrimPrefix(r.In.URL.Path, "/numbers")
	})
	pages := browse(t, "").walk(proxy + "/numbers/")
	require.GreaterOrEqual(t, len(pages), 7)
	for at := range pages {
		require.Contains(t, at, proxy+"/numbers/")
	}
}

// The last part of a proxy's path must equal Prefix's, unless users add the last slash.
func TestLastPartOfThePath(t *testing.T) {
	s := open(t)
	proxy := proxied(t, serve(t, withNetHTTP(s.page)), func(r *httputil.ProxyRequest) {
		r.Out.URL.Path = strings.Replace(r.In.URL.Path, "/accounts", "/numbers", 1)
	})
	_, at := browse(t, "").send(http.StatusOK, "GET", proxy+"/accounts/", "")
	require.Equal(t, "/accounts/", at.Path)
	_, at = browse(t, "").send(http.StatusOK, "GET", proxy+"/accounts", "")
	require.Equal(t, "/numbers/", at.Path, "another page of the proxy, if any")
}

// Middleware that removes the last slash of all paths causes a redirect loop.
func TestRemovedSlash(t *testing.T) {
	s := open(t)
	router := chi.NewRouter()
	router.Use(middleware.RedirectSlashes)
	router.Handle("/numbers", s.page)
	router.Handle("/numbers/*", s.page)
	r, err := http.NewRequestWithContext(t.Context(), "GET", serve(t, router)+"/numbers", nil)
	require.NoError(t, err)
	answer, err := http.DefaultClient.Do(r)
	if answer != nil {
		require.NoError(t, answer.Body.Close())
	}
	require.ErrorContains(t, err, "stopped after 10 redirects")
}

// Users who may only read get no form. If the prefix was removed, the error says so.
func TestMistakes(t *testing.T) {
	s := open(t)
	server := httptest.NewServer(withNetHTTP(s.page))
	t.Cleanup(server.Close)
	for _, page := range browse(t, "").walk(server.URL + "/numbers/") {
		require.NotContains(t, page, `<form method="post"`)
	}
	browse(t, "").send(http.StatusForbidden, "POST", server.URL+"/numbers/explain", "key=ORD")

	stripped := httptest.NewServer(http.StripPrefix("/numbers", s.page))
	t.Cleanup(stripped.Close)
	for _, path := range []string{"/numbers/", "/numbers/series?key=ORD"} {
		page, _ := browse(t, "").send(http.StatusInternalServerError, "GET", stripped.URL+path, "")
		require.Contains(t, page, "If the handler is wrapped in http.StripPrefix, unwrap it.")
	}
}

// Tenants have separate pages side by side. A proxy's origin is trusted, and its header names the user who explains.
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
	proxy := proxied(t, server.URL, func(r *httputil.ProxyRequest) { r.Out.Host = "numbers.internal" })
	for origin, status := range map[string]int{"https://example.com": 403, "https://numbers.example.com": 404} {
		browse(t, "").send(status, "POST", proxy+"/numbers/explain", "key=none", "Origin", origin,
			"X-Forwarded-User", "Ada")
	}
	browse(t, "").send(403, "POST", proxy+"/numbers/explain", "key=none", "Origin", "https://numbers.example.com")
}

// A framework's own login names the user who explains.
func TestFrameworksLogin(t *testing.T) {
	s := open(t)
	ofGin := gin.New()
	ofGin.Use(func(c *gin.Context) {
		if name, _, ok := c.Request.BasicAuth(); ok {
			c.Request = c.Request.WithContext(context.WithValue(c.Request.Context(), userKey{}, name))
			return
		}
		c.AbortWithStatus(http.StatusUnauthorized)
	})
	ofGin.Any("/numbers", gin.WrapH(s.page))
	ofGin.Any("/numbers/*path", gin.WrapH(s.page))
	ofEcho := echo.New()
	ofEcho.Use(func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c *echo.Context) error {
			name, _, ok := c.Request().BasicAuth()
			if !ok {
				return c.NoContent(http.StatusUnauthorized)
			}
			c.SetRequest(c.Request().WithContext(context.WithValue(c.Request().Context(), userKey{}, name)))
			return next(c)
		}
	})
	ofEcho.Any("/numbers", echo.WrapHandler(s.page))
	ofEcho.Any("/numbers/*", echo.WrapHandler(s.page))
	unexplained, _ := browse(t, ada).send(http.StatusOK, "GET", serve(t, ofGin)+"/numbers"+s.today(t), "")
	for name, router := range map[string]http.Handler{"gin": ofGin, "echo": ofEcho} {
		t.Run(name, func(t *testing.T) {
			address := serve(t, router)
			browse(t, "").send(http.StatusUnauthorized, "GET", address+"/numbers/", "")
			torn := form(unexplained, "torn, says "+name)
			browse(t, ada).send(http.StatusOK, "POST", address+"/numbers/explain", torn.Encode())
			page, _ := browse(t, ada).send(http.StatusOK, "GET", address+"/numbers"+s.today(t), "")
			require.Regexp(t, `torn, says `+name+`</bdi></td>\s*<td [^>]*><bdi>`+ada+`<`, page, "the later reason")
		})
	}
	require.Len(t, guidetest.Strings(t, s.db, "SELECT reason FROM serial_explanations"), 2, "the first reason is kept")
}

// Another process shows its own account. A form that is sent to both counts as one explanation.
func TestTwoProcesses(t *testing.T) {
	s := open(t)
	handler := func(page http.Handler) http.Handler {
		return login(map[string]string{ada: password}, withNetHTTP(page))
	}
	one, other := serve(t, handler(s.page))+"/numbers", serve(t, handler(s.newPage(t)))+"/numbers"
	b := browse(t, ada)
	b.send(http.StatusOK, "GET", other+s.today(t), "")
	page, _ := b.send(http.StatusOK, "GET", one+s.today(t), "")
	sent := form(page, "torn").Encode()
	page, _ = b.send(http.StatusOK, "POST", one+"/explain", sent)
	require.Contains(t, page, "✓ All numbers are accounted for.")
	page, _ = b.send(http.StatusOK, "GET", other+s.today(t), "")
	require.Contains(t, page, "✗ Not all numbers are accounted for.")
	page, _ = b.send(http.StatusOK, "POST", other+"/explain", sent)
	require.Contains(t, page, "✓ All numbers are accounted for.")
	require.Len(t, guidetest.Strings(t, s.db, "SELECT reason FROM serial_explanations"), 1)
}
