package serialpage

import (
	"bytes"
	"context"
	"fmt"
	"image/png"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/stretchr/testify/require"

	"github.com/dailyserial/serial/internal/race"
)

// chromium is the path of the browser; noChromium is why there is none.
var chromium, noChromium = func() (path string, err error) {
	for _, name := range []string{"google-chrome", "chromium-browser", "chromium"} {
		if path, err = exec.LookPath(name); err == nil {
			break
		}
	}
	return path, err
}()

// startBrowser starts the browser once for all tests.
var startBrowser = sync.OnceValues(func() (context.Context, error) {
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(chromium), chromedp.NoSandbox,
		chromedp.DisableGPU, chromedp.Flag("disable-component-update", true), chromedp.Flag("disable-quic", true),
		chromedp.Flag("font-render-hinting", "none"))
	allocator, _ := chromedp.NewExecAllocator(context.Background(), options...)
	ctx, cancel := chromedp.NewContext(allocator)
	stopBrowser = cancel
	return ctx, chromedp.Do(ctx)
})

var stopBrowser = func() {}

func TestMain(m *testing.M) {
	status := m.Run()
	stopBrowser()
	os.Exit(status)
}

// A tab is a tab of the browser.
type tab struct {
	context.Context
	t        *testing.T
	mu       sync.Mutex // guards messages
	messages []string   // from the console
}

// A mode is a way to look at a page.
type mode struct {
	width  int64
	scheme string // of colours
	media  string // "" is a screen, "forced" one with forced colours
}

func (m mode) String() string {
	return strings.TrimSpace(fmt.Sprintf("%d %s %s", m.width, m.scheme, m.media))
}

var modes = []mode{
	{320, "light", ""}, {320, "dark", ""}, {800, "light", ""}, {800, "dark", ""}, {1400, "light", ""}, {1400, "dark", ""},
	{800, "light", "print"}, {800, "light", "forced"}, {320, "dark", "forced"},
}

// browse opens a tab. When the test ends, and before the servers that it started earlier stop, browse requires that the
// console has no message that the test did not expect.
func browse(t *testing.T) *tab {
	t.Helper()
	if noChromium != nil {
		if os.Getenv("SERIAL_REQUIRE_BROWSER") == "1" {
			t.Fatal(noChromium)
		}
		t.Skip(noChromium)
	}
	parent, err := startBrowser()
	require.NoError(t, err)
	ctx, cancel := chromedp.NewContext(parent)
	b := &tab{Context: ctx, t: t}
	require.NoError(t, chromedp.Do(ctx))
	require.NoError(t, chromedp.Listen(ctx, func(event any) {
		b.mu.Lock()
		defer b.mu.Unlock()
		switch e := event.(type) {
		case *log.EventEntryAdded:
			b.messages = append(b.messages, e.Entry.Text)
		case *runtime.EventConsoleAPICalled:
			b.messages = append(b.messages, fmt.Sprint(e.Args))
		case *runtime.EventExceptionThrown:
			b.messages = append(b.messages, e.ExceptionDetails.Text)
		}
	}))
	t.Cleanup(func() {
		require.Empty(t, b.console(), "the console")
		cancel()
	})
	b.look(modes[4])
	return b
}

func (b *tab) do(steps ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b, time.Minute)
	defer cancel()
	require.NoError(b.t, chromedp.Do(ctx, steps...))
}

// open navigates to an address and requires the status.
func (b *tab) open(status int64, address string) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b, time.Minute)
	defer cancel()
	response, err := chromedp.RunResponse(ctx, chromedp.Navigate(address))
	require.NoError(b.t, err)
	require.Equal(b.t, status, response.Status, address)
}

// load requires that the steps lead to a page with that heading.
func (b *tab) load(heading string, steps ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b, time.Minute)
	defer cancel()
	_, err := chromedp.RunResponse(ctx, steps...)
	require.NoError(b.t, err)
	require.Equal(b.t, heading, b.heading())
}

func (b *tab) heading() string { return eval[string](b, `document.querySelector("h1").innerText`) }

func eval[T any](b *tab, script string) T {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b, time.Minute)
	defer cancel()
	v, err := chromedp.Run(ctx, chromedp.Evaluate[T](script, chromedp.EvalAwaitPromise))
	require.NoError(b.t, err, script)
	return v
}

// look sets the mode.
func (b *tab) look(m mode) {
	b.t.Helper()
	media, forced := m.media, "none"
	if media == "forced" {
		media, forced = "", "active"
	}
	b.do(chromedp.EmulateViewport(m.width, 900), chromedp.Func(func(ctx context.Context, tab *chromedp.Target) error {
		_, err := cdp.Call(ctx, tab, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Media: media,
			Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: m.scheme},
				{Name: "forced-colors", Value: forced}}})
		return err
	}))
}

// text returns the text of the page.
func (b *tab) text() string { return eval[string](b, "document.body.innerText") }

// console returns the messages since its last call.
func (b *tab) console() []string {
	b.text() // messages arrive before this answer
	b.mu.Lock()
	defer b.mu.Unlock()
	all := b.messages
	b.messages = nil
	return all
}

// expect requires that the console has messages with all of these texts, and no others.
func (b *tab) expect(all ...string) {
	b.t.Helper()
	messages := b.console()
	for _, want := range all {
		require.Contains(b.t, strings.Join(messages, "\n"), want)
	}
	for _, m := range messages {
		require.True(b.t, slices.ContainsFunc(all, func(want string) bool { return strings.Contains(m, want) }), m)
	}
}

// picture takes a picture of the page, and stores it in the folder if the folder exists.
func (b *tab) picture(folder, name string, take chromedp.Action[[]byte]) []byte {
	b.t.Helper()
	data, err := chromedp.Run(b, take)
	require.NoError(b.t, err)
	decoded, err := png.Decode(bytes.NewReader(data))
	require.NoError(b.t, err)
	var small bytes.Buffer
	require.NoError(b.t, (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(&small, decoded))
	if _, err := os.Stat(folder); err == nil {
		require.NoError(b.t, os.WriteFile(filepath.Join(folder, name+".png"), small.Bytes(), 0o644))
	}
	return small.Bytes()
}

// The pictures in the documentation have the size of new ones. SERIAL_PICTURES is the folder for new ones.
func TestPictures(t *testing.T) {
	s, today := sample(t, nil)
	b := browse(t)
	s.accounts()
	b.login("Grace Hopper")
	pages := pagesOf(s, today)
	pages["period"] = pages["missing"]
	for _, name := range []string{"overview", "series", "period"} {
		b.open(200, s.URL+pages[name])
		b.do(chromedp.EmulateViewport(960, map[string]int64{"overview": 510, "series": 640, "period": 1000}[name]))
		picture := b.picture(os.Getenv("SERIAL_PICTURES"), "page-"+name, chromedp.CaptureScreenshot())
		require.Less(t, len(picture), 150_000)
		kept, err := os.ReadFile("../docs/page-" + name + ".png")
		require.NoError(t, err)
		require.Equal(t, picture[16:24], kept[16:24], "width and height of the documentation's picture of the page %s", name)
	}
}

// axe returns the script at SERIAL_AXE, the path of axe-core's axe.min.js, or "".
func axe() string {
	script, err := os.ReadFile(os.Getenv("SERIAL_AXE"))
	if err != nil {
		return ""
	}
	return string(script)
}

const noAxe = "everything was tested except with axe-core: SERIAL_AXE is not the path of axe.min.js"

// pagesOf returns the addresses of all kinds of pages.
func pagesOf(s *site, today string) map[string]string {
	series := address("series", "ORD", time.Time{})
	yesterday := address("period", "ORD", s.start.AddDate(0, 0, -1))
	return map[string]string{"overview": "/numbers/", "series": "/numbers/" + series, "period": today,
		"clean": "/numbers/" + yesterday, "problem": "/numbers/nothing", "refused": today,
		"look": "/numbers/" + series + "&show=discrepancies", "missing": today + "&number=" + s.number(11),
		"stored": today + "&number=" + s.number(1), "mistyped": "/numbers/find?number=ORD202613010001"}
}

// accounts opens the pages of the latest periods, so the charts show their accounts.
func (s *site) accounts() {
	for day := 32; day >= 0; day-- {
		s.get(200, "/numbers/"+address("period", "ORD", s.start.AddDate(0, 0, -day)))
	}
	s.get(200, "/numbers/"+address("period", "DN", s.start))
}

// login adds the user's name to every request of the tab, as a login proxy does.
func (b *tab) login(name string) {
	b.t.Helper()
	b.do(chromedp.Func(func(ctx context.Context, tab *chromedp.Target) error {
		_, err := cdp.Call(ctx, tab, network.SetExtraHTTPHeaders, network.SetExtraHTTPHeadersParams{
			Headers: network.Headers{"X-User": name}})
		return err
	}))
}

// At three widths, light, dark, on paper and in forced colours, no page is cut off, no word is broken, axe-core finds
// no violation, and nothing is loaded from elsewhere. The pictures help to review changes of the style.
func TestLayout(t *testing.T) {
	if race.Enabled {
		t.Skip("there is no concurrency to test")
	}
	s, today := sample(t, nil)
	s.accounts()
	script := axe()
	b := browse(t)
	b.login("Grace Hopper")
	lookAt := func(s *site, name, path string) {
		t.Helper()
		b.look(modes[4])
		b.open(map[bool]int64{true: 404, false: 200}[name == "problem" || name == "mistyped"], s.URL+path)
		if name == "refused" {
			b.load("Explanation not saved", fill("first", "0"), fill("reason", "why"),
				chromedp.Click(chromedp.CSS("main form button")))
		}
		if name == "saved" {
			b.load(b.heading(), fill("first", s.number(10)), fill("last", s.number(12)), fill("reason", "why"),
				chromedp.Click(chromedp.CSS("main form button")))
			require.Contains(t, b.text(), "2 other numbers were not missing,")
		}
		require.Equal(t, []string{s.URL}, eval[[]string](b, `[...new Set(performance.getEntries().map(e => e.name).
			filter(n => n.includes("://")).map(n => new URL(n).origin))]`))
		for _, m := range modes {
			b.look(m)
			require.LessOrEqual(t, eval[int64](b, "document.documentElement.scrollWidth"), m.width, "%s at %s", name, m)
			require.Empty(t, eval[[]string](b, brokenWords), "%s at %s", name, m)
			if folder := filepath.Join(os.Getenv("SERIAL_PICTURES"), "look"); os.Getenv("SERIAL_PICTURES") != "" {
				b.picture(folder, name+"-"+strings.ReplaceAll(m.String(), " ", "-"), chromedp.FullScreenshot(100))
			}
			if script != "" {
				b.do(chromedp.Func(func(ctx context.Context, tab *chromedp.Target) error {
					_, err := chromedp.Evaluate[bool](script+"; true")(ctx, tab)
					return err
				}))
				rules := "{}"
				if m.media == "forced" { // the system sets the colours, which axe-core does not see
					rules = `{rules: {"color-contrast": {enabled: false}}}`
				}
				require.Empty(t, eval[[]string](b, `axe.run(`+rules+`).then(r => r.violations.flatMap(v =>
					v.nodes.map(n => v.id + ": " + n.html + " " + n.failureSummary)))`), "%s at %s", name, m)
			}
		}
	}
	for name, path := range pagesOf(s, today) {
		lookAt(s, name, path)
	}
	lookAt(s, "saved", today)
	s, pages := rough(t)
	for _, name := range []string{"rough", "long", "older", "long-period", "single", "hidden-period", "long-answer",
		"right-to-left", "several"} {
		lookAt(s, name, pages[name])
	}
	b.expect("status of 404", "status of 400")
	if script == "" {
		t.Skip(noAxe)
	}
}

// brokenWords is a script that returns the words of a page that are broken into two lines, except for text that an
// application or a person supplies.
const brokenWords = `(() => {
	const broken = [], walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT)
	for (let n; n = walk.nextNode(); ) {
		if (n.parentElement.closest("bdi, .unseen") || !n.parentElement.checkVisibility()) continue
		for (const m of n.data.matchAll(/[^\s–-]+/g)) {
			const r = document.createRange()
			r.setStart(n, m.index)
			r.setEnd(n, m.index + m[0].length)
			if (new Set([...r.getClientRects()].map(r => Math.round(r.top))).size > 1) broken.push(m[0])
		}
	}
	return broken
})()`

// The labels of a chart are below its columns, even if there are few, and its legend has the columns' colours, even on
// paper and in forced colours.
func TestChart(t *testing.T) {
	if race.Enabled {
		t.Skip("there is no concurrency to test")
	}
	s, pages := rough(t)
	b := browse(t)
	for _, name := range []string{"single", "pair", "long"} {
		b.open(200, s.URL+pages[name])
		for _, m := range modes {
			b.look(m)
			far := eval[float64](b, `(() => {
				const of = (what, side) =>
					Math.max(...[...document.querySelectorAll(what)].map(e => e.getBoundingClientRect()[side]))
				return of(".axis span", "left") - of("svg.account rect.whole", "right")
			})()`)
			require.LessOrEqual(t, far, 0.0, "%s at %s: a label begins after the last column", name, m)
		}
	}
	for _, m := range modes {
		b.look(m)
		for _, class := range []string{"stored", "explained", "unexplained", "issued"} {
			keys := eval[[]string](b, `[...document.querySelectorAll(".legend rect.`+class+`")].
				map(r => getComputedStyle(r).fill + getComputedStyle(r).stroke)`)
			require.Len(t, keys, 1)
			require.Equal(t, keys[0], eval[string](b, `(() => {
				const rect = document.createElementNS("http://www.w3.org/2000/svg", "rect")
				rect.setAttribute("class", "`+class+`")
				document.querySelector("svg.account").append(rect)
				const style = getComputedStyle(rect), found = style.fill + style.stroke
				rect.remove()
				return found
			})()`))
		}
		require.Len(t, eval[[]string](b, `[...new Set([...document.querySelectorAll(".legend rect")].map(r =>
			getComputedStyle(r).fill + getComputedStyle(r).stroke))]`), 4, m)
	}
}

// fill types into a field.
func fill(name, text string) chromedp.Action[chromedp.Void] {
	return chromedp.SendKeys(chromedp.CSS(`input[name="`+name+`"]`), text)
}

// With the mouse and without JavaScript, a user gets from the first page to a saved explanation.
func TestMouse(t *testing.T) {
	s, today := sample(t, nil)
	b := browse(t)
	before := len(s.register.all)
	b.login("Grace Hopper")
	b.do(chromedp.Func(func(ctx context.Context, tab *chromedp.Target) error {
		_, err := cdp.Call(ctx, tab, emulation.SetScriptExecutionDisabled,
			emulation.SetScriptExecutionDisabledParams{Value: true})
		return err
	}))
	b.open(200, s.URL+"/numbers")
	b.load("Orders", chromedp.Click(`//a[.="Orders"]`))
	b.load("Orders, "+s.start.Format("2 January 2006"), chromedp.Click(chromedp.CSS(`tbody a`)))
	require.Contains(t, b.text(), "Not all numbers are accounted for.")
	b.load("Explanation not saved", fill("first", "11"), fill("reason", "lost"),
		chromedp.Click(chromedp.CSS("main form button")))
	require.Contains(t, b.text(), "Enter numbers of this series, whole")
	b.load("Orders, "+s.start.Format("2 January 2006"), chromedp.Click(chromedp.CSS("nav a:last-child")))
	b.load("Orders, "+s.start.Format("2 January 2006"), chromedp.Click(`//a[.="explain"]`))
	b.load("Orders, "+s.start.Format("2 January 2006"), fill("reason", "checked: "),
		chromedp.Click(chromedp.CSS("main form button")))
	require.Contains(t, b.text(), "Your explanation is saved for 1 number: "+s.number(11))
	require.Contains(t, b.text(), "✓ All numbers are accounted for.")
	require.Contains(t, b.text(), "Grace Hopper")
	require.Len(t, s.register.all, before+1)
	b.load("Orders", chromedp.Click(`//nav//a[.="Orders"]`))
	b.load("Number series", chromedp.Click(`//nav//a[.="Number series"]`))
	require.Contains(t, b.text(), "accounted for")
	b.load("Orders, "+s.start.Format("2 January 2006"), fill("number", s.number(11)),
		chromedp.Click(chromedp.CSS("header button")))
	require.Contains(t, b.text(), s.number(11)+" was issued and is missing. It is explained: checked: request without "+
		"an answer (Grace Hopper, ")
	b.load("Orders", chromedp.Click(`//nav//a[.="Orders"]`))
	b.load("Orders", chromedp.Click(`//a[.="With discrepancies or not checked"]`))
	require.Contains(t, b.text(), "not checked")
	b.open(200, s.URL+today)
	b.expect("status of 400")
}

// A double click on the button stores one explanation.
func TestTwoClicks(t *testing.T) {
	s, today := sample(t, nil)
	b := browse(t)
	before := len(s.register.all)
	b.login("Grace Hopper")
	b.open(200, s.URL+today)
	b.load("Orders, "+s.start.Format("2 January 2006"), fill("first", s.number(11)), fill("reason", "lost"),
		chromedp.DoubleClick(chromedp.CSS("main form button")))
	require.Eventually(t, func() bool { return strings.Contains(b.text(), "Grace Hopper") }, time.Minute,
		10*time.Millisecond)
	require.Len(t, s.register.all, before+1)
}

// Everything works with the keyboard alone, and the focus is always visible.
func TestKeyboard(t *testing.T) {
	s, _ := sample(t, nil)
	b := browse(t)
	b.login("Grace Hopper")
	b.open(200, s.URL+"/numbers/")
	tabTo := func(what string) {
		t.Helper()
		for range 300 {
			b.do(chromedp.KeyEvent(kb.Tab))
			if eval[bool](b, "document.activeElement == document.body") {
				continue // the browser's own focus
			}
			now := eval[[]string](b, `(e => [e.innerText || e.name || "", getComputedStyle(e).outlineStyle,
				getComputedStyle(e).outlineWidth])(document.activeElement)`)
			require.Equal(t, []string{"solid", "3px"}, now[1:], now[0])
			if now[0] == what {
				return
			}
		}
		require.Fail(t, "the focus never reached "+what)
	}
	tabTo("Orders")
	b.load("Orders", chromedp.KeyEvent(kb.Enter))
	day := s.start.Format("2 January 2006")
	tabTo(day)
	b.load("Orders, "+day, chromedp.KeyEvent(kb.Enter))
	tabTo("first")
	b.do(chromedp.KeyEvent(s.number(11)), chromedp.KeyEvent(kb.Tab), chromedp.KeyEvent(s.number(11)),
		chromedp.KeyEvent(kb.Tab), chromedp.KeyEvent("torn in the printer"), chromedp.KeyEvent(kb.Tab))
	b.load("Orders, "+day, chromedp.KeyEvent(kb.Enter))
	require.Contains(t, b.text(), "torn in the printer")
	tabTo("Orders")
	b.load("Orders", chromedp.KeyEvent(kb.Enter))
	tabTo("number")
	b.do(chromedp.KeyEvent(s.number(1)))
	b.load("Orders, "+day, chromedp.KeyEvent(kb.Enter))
	require.Contains(t, b.text(), s.number(1)+" was issued and is stored.")
	tabTo("Open the document")
}

// The content security policy holds even if an attacker gets markup into a page.
func TestPolicy(t *testing.T) {
	s, today := sample(t, func(s *site) { s.series[0].Name = `<img src=x onerror="hit()">` })
	elsewhere := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/frame" {
			_, _ = fmt.Fprintf(w, `<h1>Frame</h1><iframe src="%s"></iframe>`, s.URL+today)
			return
		}
		if r.URL.Path != "/favicon.ico" {
			t.Errorf("the policy let a request through: %s", r.URL)
		}
	}))
	t.Cleanup(elsewhere.Close)
	b := browse(t)
	b.open(200, s.URL+today)
	b.do(chromedp.Func(func(ctx context.Context, tab *chromedp.Target) error {
		_, err := chromedp.Evaluate[bool](fmt.Sprintf(`window.hit = () => window.wasHit = true
			document.body.insertAdjacentHTML("beforeend", '<p id="styled" style="position: fixed" onclick="hit()"></p>' +
				'<img src="%[1]s/img" onerror="hit()"><form id="out" action="%[1]s/form"><button></button></form>' +
				'<iframe src="%[1]s/inner"></iframe>')
			document.body.append(Object.assign(document.createElement("script"), {textContent: "hit()"}))
			document.body.append(Object.assign(document.createElement("script"), {src: "%[1]s/script"}))
			document.head.append(Object.assign(document.createElement("base"), {href: "%[1]s/"}))
			document.getElementById("styled").click()
			document.getElementById("out").submit()
			fetch("%[1]s/fetch").catch(() => {})
			true`, elsewhere.URL))(ctx, tab)
		return err
	}), chromedp.Sleep(200*time.Millisecond))
	require.False(t, eval[bool](b, `!!window.wasHit`))
	require.Equal(t, "static", eval[string](b, `getComputedStyle(document.getElementById("styled")).position`))
	require.Equal(t, s.URL+today, eval[string](b, `location.href`))
	require.Equal(t, s.URL+"/numbers/", eval[string](b, `document.querySelector("nav a").href`))
	b.expect("'style-src 'self'", "script-src", "img-src 'self'", "form-action 'self'", "frame-src", "base-uri 'none'",
		"connect-src", "Fetch API cannot load")

	b.open(200, elsewhere.URL+"/frame")
	b.do(chromedp.Sleep(200 * time.Millisecond))
	b.expect("frame-ancestors 'none'")
}

// A page of another site in the same browser cannot send the form, even for a logged-in user.
func TestCrossSite(t *testing.T) {
	s, today := sample(t, nil)
	before := len(s.register.all)
	elsewhere := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = fmt.Fprintf(w, `<h1>Win a prize</h1><form method="post" action="%s/numbers/explain">
			<input name="key" value="ORD"><input name="start" value="%s"><input name="at" value="%s">
			<input name="first" value="%s"><input name="reason" value="y"><button>Yes</button></form>`,
			strings.Replace(s.URL, "127.0.0.1", r.URL.Query().Get("host"), 1), s.start.Format(time.RFC3339), now(), s.number(11))
	}))
	t.Cleanup(elsewhere.Close)
	b := browse(t)
	b.login("Grace Hopper")
	// Another site, and another port of the same host.
	for from, host := range map[string]string{"localhost": "127.0.0.1", "127.0.0.1": "127.0.0.1"} {
		b.open(200, strings.Replace(elsewhere.URL, "127.0.0.1", from, 1)+"?host="+host)
		b.load("Not allowed", chromedp.Click(chromedp.CSS("button")))
		require.Contains(t, b.text(), "from a page of another site")
	}
	require.Len(t, s.register.all, before)
	b.open(200, s.URL+today) // the same form from the page itself
	b.load("Orders, "+s.start.Format("2 January 2006"), fill("first", s.number(11)), fill("reason", "y"),
		chromedp.Click(chromedp.CSS("main form button")))
	require.Len(t, s.register.all, before+1)
	b.expect("status of 403")
}

// A printed account has a line to sign, but neither the form nor navigation.
func TestPrint(t *testing.T) {
	s, today := sample(t, nil)
	b := browse(t)
	b.login("Grace Hopper")
	b.open(200, s.URL+today+"&number="+s.number(11))
	visible := func(selector string) bool {
		return eval[bool](b, `document.querySelector("`+selector+`").checkVisibility()`)
	}
	for _, m := range modes {
		b.look(m)
		require.Equal(t, m.media == "print", visible(".sign"), m)
		require.Equal(t, m.media != "print", visible("main form"), m)
		require.Equal(t, m.media != "print", visible("nav"), m)
		require.Equal(t, m.media != "print", visible(".find"), m)
		require.True(t, visible(".fate"), m)
		require.True(t, visible(".statement"), m)
	}
	pdf, err := chromedp.Run(b, chromedp.PrintToPDF(chromedp.PDFPaper(chromedp.PaperA4), chromedp.PDFPreferCSSPageSize()))
	require.NoError(t, err)
	require.True(t, bytes.HasPrefix(pdf, []byte("%PDF")))
	if folder := os.Getenv("SERIAL_PICTURES"); folder != "" {
		require.NoError(t, os.WriteFile(filepath.Join(folder, "period.pdf"), pdf, 0o644))
	}
}

// The printed list of a series has columns and totals of its own, page numbers, and a line to sign.
func TestPrintSeries(t *testing.T) {
	s, _ := sample(t, func(s *site) { s.options.Organisation = "Analytical Engines Ltd" })
	b := browse(t)
	s.accounts()
	b.login("Grace Hopper")
	b.open(200, s.URL+"/numbers/series?key=ORD")
	for _, m := range modes {
		b.look(m)
		for _, selector := range []string{".organisation", "dl.paper", "th.paper", "td.paper", ".total", ".sign"} {
			require.Equal(t, m.media == "print", eval[bool](b, `document.querySelector("`+selector+`").checkVisibility()`),
				"%s %v", selector, m)
		}
		require.Equal(t, m.media != "print", eval[bool](b, `document.querySelector(".days").checkVisibility()`), m)
	}
	require.Contains(t, eval[string](b, `[...document.styleSheets[0].cssRules].map(r => r.cssText).join()`),
		"counter(pages)")
	b.look(modes[2])
	pdf, err := chromedp.Run(b, chromedp.PrintToPDF(chromedp.PDFPaper(chromedp.PaperA4), chromedp.PDFPreferCSSPageSize()))
	require.NoError(t, err)
	if folder := os.Getenv("SERIAL_PICTURES"); folder != "" {
		require.NoError(t, os.WriteFile(filepath.Join(folder, "series.pdf"), pdf, 0o644))
	}
}

// Whoever comes back to the field for a number types over the old one, and a button clears it.
func TestNumberFieldIsReplaced(t *testing.T) {
	s, today := sample(t, nil)
	b := browse(t)
	b.open(200, s.URL+today+"&number="+s.number(11))
	for range 3 { // the links above come first
		b.do(chromedp.KeyEvent(kb.Tab))
	}
	require.Equal(t, "search "+s.number(11),
		eval[string](b, `(e => e.type + " " + e.value.slice(e.selectionStart, e.selectionEnd))(document.activeElement)`))
	b.do(chromedp.KeyEvent(s.number(1)))
	b.load("Orders, "+s.start.Format("2 January 2006"), chromedp.KeyEvent(kb.Enter))
	require.Contains(t, b.text(), s.number(1)+" was issued and is stored.")
}
