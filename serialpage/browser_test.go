package serialpage

import (
	"bytes"
	"context"
	"fmt"
	"image/png"
	"iter"
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
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/stretchr/testify/require"

	"github.com/dailyserial/serial"
	"github.com/dailyserial/serial/internal/race"
)

// chromium is the path of the browser. If there is none, noChromium is the reason.
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
	t *testing.T
}

// A mode is a way of displaying a page.
type mode struct {
	width  int64
	scheme string // colour scheme
	media  string // "" for a screen, "forced" for a screen with forced colours
}

func (m mode) String() string {
	return strings.TrimSpace(fmt.Sprintf("%d %s %s", m.width, m.scheme, m.media))
}

var modes = []mode{{320, "light", ""}, {320, "dark", ""}, {800, "light", "print"}, {800, "dark", "forced"},
	{1400, "light", ""}, {1400, "dark", ""}}

// browse opens a new tab. It adds a user's name to every request, as a login proxy does.
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
	t.Cleanup(cancel)
	b := &tab{ctx, t}
	b.do()
	command(b, network.SetExtraHTTPHeaders, network.SetExtraHTTPHeadersParams{
		Headers: network.Headers{"X-User": "Grace%20Hopper"}})
	b.look(modes[4])
	return b
}

func (b *tab) do(steps ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	require.NoError(b.t, chromedp.Do(b, steps...))
}

// open navigates to an address, and requires that the response has the given status.
func (b *tab) open(status int64, address string) {
	b.t.Helper()
	response, err := chromedp.RunResponse(b, chromedp.Navigate(address))
	require.NoError(b.t, err)
	require.Equal(b.t, status, response.Status, address)
}

// load executes the steps, and requires that they lead to a page with the given heading.
func (b *tab) load(heading string, steps ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	_, err := chromedp.RunResponse(b, steps...)
	require.NoError(b.t, err)
	require.Equal(b.t, heading, eval[string](b, `document.querySelector("h1").innerText`))
}

func eval[T any](b *tab, script string) T {
	b.t.Helper()
	v, err := chromedp.Run(b, chromedp.Evaluate[T](script, chromedp.EvalAwaitPromise))
	require.NoError(b.t, err, script)
	return v
}

// command sends a command of the DevTools protocol, which has no result.
func command[P any](b *tab, c cdp.Command[P, cdp.Empty], params P) {
	b.t.Helper()
	b.do(chromedp.Func(func(ctx context.Context, tab *chromedp.Target) error {
		_, err := cdp.Call(ctx, tab, c, params)
		return err
	}))
}

// look sets the mode of the tab.
func (b *tab) look(m mode) {
	b.t.Helper()
	media, forced := m.media, "none"
	if media == "forced" {
		media, forced = "", "active"
	}
	b.do(chromedp.EmulateViewport(m.width, 900))
	command(b, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Media: media,
		Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: m.scheme},
			{Name: "forced-colors", Value: forced}}})
}

// text returns the text of the page.
func (b *tab) text() string { return eval[string](b, "document.body.innerText") }

// picture takes a picture of the page, and stores it.
func (b *tab) picture(folder, name string, take chromedp.Action[[]byte]) []byte {
	b.t.Helper()
	data, err := chromedp.Run(b, take)
	require.NoError(b.t, err)
	decoded, err := png.Decode(bytes.NewReader(data))
	require.NoError(b.t, err)
	var small bytes.Buffer
	require.NoError(b.t, (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(&small, decoded))
	writeFile(b.t, folder, name+".png", small.Bytes())
	return small.Bytes()
}

// writeFile writes a file in the folder if the folder exists.
func writeFile(t *testing.T, folder, name string, data []byte) {
	t.Helper()
	if _, err := os.Stat(folder); err == nil {
		require.NoError(t, os.WriteFile(filepath.Join(folder, name), data, 0o644))
	}
}

// fill types a text into a field.
func fill(name, text string) chromedp.Action[chromedp.Void] {
	return chromedp.SendKeys(chromedp.CSS(`input[name="`+name+`"]`), text)
}

var send = chromedp.Click(chromedp.CSS(`main form[action="explain"] button`))

// An office has orders of forty days, invoices of three months, and several series that are difficult to lay out.
type office struct {
	*site
	server   string
	midnight time.Time
	stored   map[string][]string // by Series.Key
}

var long = strings.Repeat("Auftragsbestätigung", 6)

func openOffice(t *testing.T) *office {
	t.Helper()
	o := &office{midnight: time.Now().UTC().Truncate(24 * time.Hour), stored: map[string][]string{}}
	var days []time.Time
	for i := range 40 {
		days = append(days, o.midnight.AddDate(0, 0, -i).Add(time.Minute))
	}
	month := time.Date(days[0].Year(), days[0].Month(), 1, 12, 0, 0, 0, time.UTC)
	daily := newScheme(t, "{type}{date:yyyyMMdd}{seq:4}", "UTC")
	o.site = open(t, func(s *site) {
		s.series, s.options.Organisation = nil, "Analytical Engines Ltd"
		o.add(s, "ORD", "Orders", "ORD", daily, days...)
		o.add(s, "INV", "Invoices", "INV", newScheme(t, "{type}-{date:yyyyMM}-{seq:4}", "UTC",
			serial.WithPeriod(serial.PerMonth), serial.WithLast(50)), month, month.AddDate(0, -1, 0), month.AddDate(0, -2, 0))
		o.add(s, "DN", "Delivery notes, north", "DN", daily, days...)
		o.add(s, "RMA", "Returns", "RMA", daily)
		o.add(s, "long", long, "LONG", newScheme(t, "{type}{date:yyyyMMdd}{seq:15}", "UTC"), days...)
		o.add(s, "single", "\u202eשלום", "שלום", daily, days[0])
		o.add(s, "hidden", "Hidden", "HID", newScheme(t, "{type}{date:yyyyMMdd}{seq:6}", "UTC", hidden), days[:2]...)
		o.stored["long"] = append(o.stored["long"], strings.Repeat("x", 300), "ORD2O2110240001")
	})
	server := httptest.NewServer(o)
	t.Cleanup(server.Close)
	o.server = server.URL
	return o
}

// add adds a series with about forty numbers in each period. Some numbers are missing, and most of these are explained.
func (o *office) add(s *site, key, name, typ string, scheme *serial.Scheme, instants ...time.Time) {
	c := &counter{rules: scheme, call: func() {}}
	for i, at := range instants {
		last := newCounter(s.t, scheme, typ, int64(24+i*11%37), at).all[0]
		c.all = append(c.all, last)
		series, err := scheme.Series(typ)
		require.NoError(s.t, err)
		explain := func(seq int64, reason, by string, possible bool) {
			s.register.all = append(s.register.all, serial.Explanation{Series: series, Type: typ, Start: last.Start, First: seq,
				Last: seq + 2, Reason: reason, By: by, Possible: possible, At: at.Add(time.Duration(seq) * time.Second)})
		}
		for seq := int64(1); seq <= last.Seq; seq++ {
			switch {
			case (seq+int64(i))%23 == 5:
				explain(seq, serial.CallerLeft, "", false)
			case (seq+int64(i))%31 == 7:
				explain(seq, "ordered twice, void", "Ada Lovelace", false)
			case i%9 == 0 && seq%17 == 11:
			case key == "long" && seq%6 == 0:
				explain(seq, long, long[:90], false)
				explain(seq, "torn", "Ada", false)
				explain(11, long, "Eve", true)
				explain(10, serial.Raised, "", true)
			default:
				o.stored[key] = append(o.stored[key], printed(s.t, scheme, typ, at, seq))
			}
		}
	}
	s.series = append(s.series, Series{Key: key, Type: typ, Name: name, Source: c, Explanations: s.register,
		Link:   func(number string) string { return "/orders/" + number },
		Stored: func(context.Context, time.Time, time.Time) iter.Seq2[string, error] { return yields(o.stored[key]) }})
}

// number returns the number of one of today's orders.
func (o *office) number(seq int64) string {
	return printed(o.t, o.series[0].Source.scheme(), "ORD", o.midnight, seq)
}

// period returns the address of the page of the period that is the given count of periods before the latest one.
func (o *office) period(key string, back int) string {
	i := slices.IndexFunc(o.series, func(s Series) bool { return s.Key == key })
	return o.server + "/numbers/" + address("period", key, o.series[i].Source.(*counter).all[back].Start)
}

// pages returns the addresses of all kinds of pages.
func (o *office) pages() map[string]string {
	series := func(key string) string { return o.server + "/numbers/series?key=" + key }
	return map[string]string{
		"overview": o.server + "/numbers/", "series": series("ORD"), "unchecked": series("DN"),
		"look": series("ORD") + "&show=discrepancies", "range": series("ORD") + "&from=" + o.midnight.AddDate(0, 0, -9).
			Format(time.DateOnly), "long": series("long"), "single": series("single"),
		"clean": o.period("ORD", 1), "period": o.period("ORD", 0), "long-period": o.period("long", 0),
		"hidden-period": o.period("hidden", 0), "missing": o.period("ORD", 0) + "&number=" + o.number(11),
		"stored": o.period("ORD", 0) + "&number=" + o.number(1), "refused": o.period("ORD", 0),
		"correct": o.period("ORD", 1) + "&first=" + o.number(5) + "&reason=void#explain",
		"problem": o.server + "/numbers/nothing", "mistyped": o.server + "/numbers/find?number=ORD202613010001",
	}
}

// The pictures in the documentation must have the size of new pictures. If SERIAL_PICTURES is set, the new pictures are
// stored in this folder.
func TestPictures(t *testing.T) {
	o := openOffice(t)
	pages := o.pages()
	o.series = o.series[:4]
	b := browse(t)
	o.check("ORD")
	for name, height := range map[string]int64{"overview": 545, "series": 640, "period": 1000} {
		b.open(200, pages[map[bool]string{true: "missing", false: name}[name == "period"]])
		b.do(chromedp.EmulateViewport(960, height))
		picture := b.picture(os.Getenv("SERIAL_PICTURES"), "page-"+name, chromedp.CaptureScreenshot())
		require.Less(t, len(picture), 150_000)
		kept, err := os.ReadFile("../docs/page-" + name + ".png")
		require.NoError(t, err)
		require.Equal(t, picture[16:24], kept[16:24], "width and height of the documentation's picture of the page %s", name)
	}
}

const noAxe = "everything was tested except with axe-core: SERIAL_AXE is not the path of axe.min.js"

// All pages are displayed at three widths, light, dark, on paper and in forced colours. No page may be cut off, no word
// may be broken, axe-core may find no violation, and nothing may be loaded from other sites. The labels of a chart must
// be below its columns. The pictures help to review changes of the style.
func TestLayout(t *testing.T) {
	if race.Enabled {
		t.Skip("there is no concurrency to test")
	}
	o := openOffice(t)
	for _, key := range []string{"ORD", "INV", "long", "single"} {
		o.check(key)
	}
	axe, noScript := os.ReadFile(os.Getenv("SERIAL_AXE"))
	b := browse(t)
	for name, address := range o.pages() {
		b.look(modes[4])
		b.open(map[bool]int64{true: 404, false: 200}[name == "problem" || name == "mistyped"], address)
		if name == "refused" {
			b.load("Explanation not saved", fill("first", "0"), fill("reason", "why"), send)
		}
		require.Equal(t, []string{o.server}, eval[[]string](b, `[...new Set(performance.getEntries().map(e => e.name).
			filter(n => n.includes("://")).map(n => new URL(n).origin))]`))
		for _, m := range modes {
			b.look(m)
			require.LessOrEqual(t, eval[int64](b, "document.documentElement.scrollWidth"), m.width, "%s at %s", name, m)
			require.Empty(t, eval[[]string](b, brokenWords), "%s at %s", name, m)
			require.LessOrEqual(t, eval[float64](b, farLabels), 0.0, "%s at %s: a label begins after the last column", name, m)
			if folder := os.Getenv("SERIAL_PICTURES"); folder != "" {
				b.picture(filepath.Join(folder, "look"), name+"-"+strings.ReplaceAll(m.String(), " ", "-"),
					chromedp.FullScreenshot(100))
			}
			if noScript == nil && (m == modes[0] || m == modes[5]) {
				eval[bool](b, string(axe)+"; true")
				require.Empty(t, eval[[]string](b, `axe.run().then(r => r.violations.flatMap(v =>
					v.nodes.map(n => v.id + ": " + n.html + " " + n.failureSummary)))`), "%s at %s", name, m)
			}
		}
	}
	if noScript != nil {
		t.Skip(noAxe)
	}
}

// farLabels is a script that returns how far the last label of a chart begins to the right of its last column.
const farLabels = `(() => {
	const most = (what, side) =>
		Math.max(-1, ...[...document.querySelectorAll(what)].map(e => e.getBoundingClientRect()[side]))
	return most(".axis span", "left") - most("svg.results rect.whole", "right")
})()`

// brokenWords is a script that returns the words of a page that are broken into two lines. It ignores text that an
// application or a user supplies.
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

// An accountant uses the pages with the mouse, and without JavaScript. Rows were deleted on two old days. One click
// finds them. The accountant explains one of them, corrects the explanation, and prints the sheet of the days.
func TestAccountant(t *testing.T) {
	o := openOffice(t)
	for _, back := range []int{20, 33} {
		deleted := printed(t, o.series[0].Source.scheme(), "ORD", o.midnight.AddDate(0, 0, -back), 2)
		o.stored["ORD"] = slices.DeleteFunc(o.stored["ORD"], func(number string) bool { return number == deleted })
	}
	b := browse(t)
	command(b, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: true})
	day := func(back int) string { return o.midnight.AddDate(0, 0, -back).Format("2 January 2006") }
	b.open(200, o.server+"/numbers")
	b.load("Orders", chromedp.Click(`//a[.="Orders"]`))
	b.load("Orders", chromedp.Click(`//button[.="Check all periods"]`))
	require.Eventually(t, func() bool {
		b.load("Orders", chromedp.Reload())
		return strings.Contains(b.text(), "covered 40 periods.")
	}, time.Minute, 10*time.Millisecond)
	b.load("Orders", chromedp.Click(`//a[.="With discrepancies or not checked"]`))
	require.Equal(t, []string{day(0), day(9), day(18), day(20), day(33), day(36)},
		strings.Split(eval[string](b, `[...document.querySelectorAll("tbody th a")].map(a => a.innerText).join("|")`), "|"))

	b.load("Orders, "+day(20), chromedp.Click(`//a[.="`+day(20)+`"]`))
	require.Contains(t, b.text(), "Not all numbers are accounted for.")
	b.load("Explanation not saved", fill("first", "2"), fill("reason", "lost"), send)
	require.Contains(t, b.text(), "Enter complete numbers of this series")
	b.load("Orders, "+day(20), chromedp.Click(chromedp.CSS("nav a:last-child")))
	b.load("Orders, "+day(20), chromedp.Click(`//a[.="explain"]`))
	before := len(o.register.all)
	b.load("Orders, "+day(20), fill("reason", "deleted by mistake"), chromedp.DoubleClick(
		chromedp.CSS(`main form[action="explain"] button`)))
	require.Eventually(t, func() bool { return strings.Contains(b.text(), "deleted by mistake") }, time.Minute,
		10*time.Millisecond)
	require.Len(t, o.register.all, before+1, "a double click stores one explanation")
	require.Contains(t, b.text(), "✓ All numbers are accounted for.")
	b.load("Orders, "+day(20), chromedp.Click(`//tr[contains(., "deleted by mistake")]//a[.="correct"]`))
	b.load("Orders, "+day(20), fill("reason", "really "), send)
	require.Contains(t, b.text(), "really deleted by mistake")

	for seq, state := range map[int64]string{11: "missing. It is not explained.", 1: "stored."} {
		b.load("Orders, "+day(0), fill("number", o.number(seq)), chromedp.Click(chromedp.CSS("header button")))
		require.Contains(t, b.text(), o.number(seq)+" was issued and is "+state) // typed at once, without an old number
	}

	b.load("Orders", chromedp.Click(`//nav//a[.="Orders"]`))
	for _, m := range modes {
		b.look(m)
		for selector, onPaper := range map[string]bool{".organisation": true, "dl.paper": true, "td.paper": true,
			".total": true, ".sign": true, ".find": false, ".days": false, "nav": false, `form[action="check"]`: false} {
			require.Equal(t, onPaper == (m.media == "print"),
				eval[bool](b, `document.querySelector('`+selector+`').checkVisibility()`), "%s %v", selector, m)
		}
	}
	require.Contains(t, eval[string](b, `[...document.styleSheets[0].cssRules].map(r => r.cssText).join()`),
		"counter(pages)")
	b.look(modes[2])
	pdf, err := chromedp.Run(b, chromedp.PrintToPDF(chromedp.PDFPaper(chromedp.PaperA4), chromedp.PDFPreferCSSPageSize()))
	require.NoError(t, err)
	require.True(t, bytes.HasPrefix(pdf, []byte("%PDF")))
	writeFile(t, filepath.Join(os.Getenv("SERIAL_PICTURES"), "look"), "sheet.pdf", pdf)
}

// Everything must work with the keyboard alone, and the focus must always be visible.
func TestKeyboard(t *testing.T) {
	o := openOffice(t)
	o.series = o.series[:3]
	b := browse(t)
	b.open(200, o.server+"/numbers/")
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
	day := o.midnight.Format("2 January 2006")
	tabTo(day)
	b.load("Orders, "+day, chromedp.KeyEvent(kb.Enter))
	tabTo("first")
	b.do(chromedp.KeyEvent(o.number(11)), chromedp.KeyEvent(kb.Tab), chromedp.KeyEvent(o.number(11)),
		chromedp.KeyEvent(kb.Tab), chromedp.KeyEvent("torn in the printer"), chromedp.KeyEvent(kb.Tab))
	b.load("Orders, "+day, chromedp.KeyEvent(kb.Enter))
	require.Contains(t, b.text(), "torn in the printer")
	tabTo("Orders")
	b.load("Orders", chromedp.KeyEvent(kb.Enter))
	tabTo("number")
	b.do(chromedp.KeyEvent(o.number(1)))
	b.load("Orders, "+day, chromedp.KeyEvent(kb.Enter))
	require.Contains(t, b.text(), o.number(1)+" was issued and is stored.")
	tabTo("Open the document")
}
