package serialpage

import (
	"bytes"
	"cmp"
	"context"
	"encoding/csv"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"html"
	"iter"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dailyserial/serial"
	"github.com/dailyserial/serial/internal/race"
)

// noon is the time at which tests in bubbles begin. midnight is the beginning of that day.
var (
	noon     = time.Date(2021, 10, 24, 12, 0, 0, 0, time.UTC)
	midnight = noon.Truncate(24 * time.Hour)
)

func init() { version, program = "VERSION", "serial v1.2.3" }

// bubble runs a test at noon of 24 October 2021.
func bubble(t *testing.T, f func(t *testing.T)) {
	race.Bubble(t, func(t *testing.T) {
		time.Sleep(time.Until(noon))
		f(t)
	})
}

// A counter is a Source in memory.
type counter struct {
	rules *serial.Scheme
	all   []serial.Number // last number of each period, newest period first
	table bool            // whether audit accepts every period, as that of a tableSource does
	ended time.Time       // end of the last closed period
	fails error           // error that most methods return
	call  func()          // called at the beginning of most methods
}

// newCounter returns a counter with seq numbers in the period of each instant. The latest instant comes first.
func newCounter(t testing.TB, scheme *serial.Scheme, typ string, seq int64, instants ...time.Time) *counter {
	t.Helper()
	c := &counter{rules: scheme, call: func() {}}
	for _, at := range instants {
		n, err := scheme.Number(typ, serial.At(at), seq)
		require.NoError(t, err)
		if !n.Date.Equal(n.Start) {
			n.Date = time.Time{} // as if the date were unknown
		}
		c.all = append(c.all, n)
	}
	return c
}

func (c *counter) scheme() *serial.Scheme { return c.rules }

func (c *counter) history(_ context.Context, _ string, periods int) ([]serial.Number, error) {
	c.call()
	return c.all[:min(len(c.all), periods)], c.fails
}

func (c *counter) last(_ context.Context, typ string) (serial.Number, error) {
	c.call()
	_, start, _ := c.rules.Period(serial.At(time.Now()))
	if i := slices.IndexFunc(c.all, func(n serial.Number) bool { return n.Start.Equal(start) }); i >= 0 {
		return c.all[i], c.fails
	}
	return serial.Number{Type: typ, Start: start}, c.fails
}

func (c *counter) audit(ctx context.Context, typ string, at time.Time, used iter.Seq2[string, error],
	opts ...serial.AuditOption) (serial.Report, error) {
	c.call()
	_, start, _ := c.rules.Period(serial.At(at))
	_, current, _ := c.rules.Period(serial.At(time.Now()))
	seq := int64(0)
	if i := slices.IndexFunc(c.all, func(n serial.Number) bool { return n.Start.Equal(start) }); i >= 0 {
		seq = c.all[i].Seq
	} else if !c.table && !current.Equal(start) {
		return serial.Report{}, errors.New("the counter is no longer kept")
	}
	report, err := c.rules.Audit(typ, serial.At(at), seq, used, opts...)
	return report, cmp.Or(c.fails, err, ctx.Err())
}

func (c *counter) auditAll(_ context.Context, typ string, used iter.Seq2[string, error], opts ...serial.AuditOption) (
	serial.Reports, error) {
	c.call()
	return c.rules.AuditAll(typ, c.all, used, opts...)
}

func (c *counter) closed(context.Context, string) (time.Time, error) { return c.ended, nil }

// newScheme returns a scheme with daily periods, unless opts set other periods.
func newScheme(t testing.TB, template, zone string, opts ...serial.Option) *serial.Scheme {
	t.Helper()
	location, err := time.LoadLocation(zone)
	require.NoError(t, err)
	s, err := serial.NewScheme(append(opts, serial.WithTemplate(template), serial.WithLocation(location))...)
	require.NoError(t, err)
	return s
}

// printed returns a number as text.
func printed(t testing.TB, s *serial.Scheme, typ string, at time.Time, seq int64) string {
	t.Helper()
	n, err := s.Number(typ, serial.At(at), seq)
	require.NoError(t, err)
	return n.String()
}

// A register stores explanations in memory. If before is not nil, it is called before an explanation is stored. If read
// is not nil, it is called after all explanations were read.
type register struct {
	mu     sync.Mutex
	all    []serial.Explanation
	asked  []time.Time // arguments of the calls to Explanations
	calls  int         // count of the calls to Explain
	before func(serial.Explanation) error
	read   func()
}

func (r *register) Explain(_ context.Context, e serial.Explanation) error {
	if r.before != nil {
		if err := r.before(e); err != nil {
			return err
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls++
	if !slices.Contains(r.all, e) {
		r.all = append(r.all, e)
	}
	return nil
}

func (r *register) Explanations(_ context.Context, series string, start time.Time) iter.Seq2[
	serial.Explanation, error] {
	return func(yield func(serial.Explanation, error) bool) {
		r.mu.Lock()
		all := slices.Clone(r.all)
		r.asked = append(r.asked, start)
		r.mu.Unlock()
		for _, e := range all {
			if e.Series == series && (start.IsZero() || e.Start.Equal(start)) && !yield(e, nil) {
				return
			}
		}
		if r.read != nil {
			r.read()
		}
	}
}

// add adds explanations of numbers of the first series on 24 October 2021.
func (r *register) add(all ...serial.Explanation) {
	for _, e := range all {
		e.Series, e.Type = cmp.Or(e.Series, "serial:IS"), "IS"
		if e.Start.IsZero() {
			e.Start = midnight
		}
		if e.At.IsZero() {
			e.At = midnight
		}
		e.Last = max(e.First, e.Last)
		r.all = append(r.all, e)
	}
}

// A site is an application with a handler for its numbers.
type site struct {
	*handler
	t        testing.TB
	counter  *counter // counter of the first series
	register *register
	options  Options
	series   []Series
	log      strings.Builder // written by one request at a time
	stored   []string
	read     atomic.Int64 // how many times the stored numbers were read
}

// yield implements Series.Stored.
func (s *site) yield(ctx context.Context, _, _ time.Time) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		s.read.Add(1)
		for _, number := range s.stored {
			if !yield(number, ctx.Err()) {
				return
			}
		}
	}
}

func yields(numbers []string) iter.Seq2[string, error] {
	return (&site{stored: numbers}).yield(context.Background(), noon, noon)
}

// open returns the site of an application that has issued five invoice numbers, of which 2 and 4 are not stored. If
// change is not nil, it can change the site before the handler is created.
func open(t testing.TB, change func(*site)) *site {
	t.Helper()
	s := &site{t: t, register: &register{}}
	s.use(5, newScheme(t, "{type}{date:yyyyMMdd}{seq:4}", "UTC"))
	s.store(1, 3, 5)
	s.series = []Series{{Type: "IS", Name: "Invoices", Source: s.counter, Stored: s.yield, Explanations: s.register}}
	s.options = Options{
		Prefix: "/numbers", Series: func(context.Context) ([]Series, error) { return s.series, nil },
		User:   func(r *http.Request) (string, error) { return url.PathUnescape(r.Header.Get("X-User")) },
		Logger: slog.New(slog.NewTextHandler(&s.log, nil)),
	}
	if change != nil {
		change(s)
	}
	h, err := NewHandler(s.options)
	require.NoError(t, err)
	s.handler = h.(*handler)
	return s
}

// visit runs a test with a site in a bubble; see open.
func visit(t *testing.T, change func(*site), f func(t *testing.T, s *site)) {
	bubble(t, func(t *testing.T) { f(t, open(t, change)) })
}

// use gives the first series a counter with seq numbers of a scheme on 24 October 2021.
func (s *site) use(seq int64, scheme *serial.Scheme) {
	s.counter = newCounter(s.t, scheme, "IS", seq, noon)
	if len(s.series) > 0 {
		s.series[0].Source = s.counter
	}
}

// store stores numbers of the first series with the given sequences, and no others.
func (s *site) store(seqs ...int64) {
	s.stored = nil
	for _, seq := range seqs {
		s.stored = append(s.stored, printed(s.t, s.counter.rules, "IS", noon, seq))
	}
}

// forget makes the next page of the first series' period cause a new audit.
func (s *site) forget() { s.audits.explained(periodKey{"IS", midnight.Unix()}) }

// send sends a request, and requires that the response has the right headers and nothing that the content security
// policy forbids. headers contains names that are each followed by their value.
func (s *site) send(method, path, body string, headers ...string) (*http.Response, string) {
	s.t.Helper()
	r := httptest.NewRequestWithContext(s.t.Context(), method, path, nil)
	if body != "" {
		r = httptest.NewRequestWithContext(s.t.Context(), method, path, strings.NewReader(body))
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	recorder := httptest.NewRecorder()
	s.ServeHTTP(recorder, r)
	header, text := recorder.Result().Header, recorder.Body.String()
	require.Equal(s.t, "default-src 'none'; style-src 'self'; img-src 'self'; form-action 'self'; "+
		"frame-ancestors 'none'; base-uri 'none'", header.Get("Content-Security-Policy"))
	require.Equal(s.t, []string{"DENY", "nosniff", "same-origin"}, []string{header.Get("X-Frame-Options"),
		header.Get("X-Content-Type-Options"), header.Get("Referrer-Policy")})
	cached := map[bool]string{true: "public, max-age=31536000, immutable", false: "no-store"}
	require.Equal(s.t, cached[strings.HasSuffix(path, ".css") || strings.HasSuffix(path, ".svg")],
		header.Get("Cache-Control"))
	if strings.HasPrefix(header.Get("Content-Type"), "text/html") {
		for _, never := range []string{"<script", "style=", "ZgotmplZ", "<no value>"} {
			require.NotContains(s.t, text, never, path)
		}
	}
	return recorder.Result(), text
}

func (s *site) get(status int, path string, headers ...string) string {
	s.t.Helper()
	response, text := s.send("GET", path, "", headers...)
	require.Equal(s.t, status, response.StatusCode, "%s: %s", path, text)
	return text
}

const (
	today      = "/numbers/period?key=IS&start=2021-10-24T00:00:00Z"
	todayCSV   = "/numbers/period.csv?key=IS&start=2021-10-24T00:00:00Z"
	todayJSON  = "/numbers/period.json?key=IS&start=2021-10-24T00:00:00Z"
	seriesPage = "/numbers/series?key=IS"
)

// explain sends the form for invoices of 24 October 2021 as Ada. values contains names that are each followed by their
// value. A name such as "@X" stands for a header, and any other name for a field. explain returns the response, and the
// address to which it redirects.
func (s *site) explain(status int, values ...string) (page, location string) {
	s.t.Helper()
	fields := url.Values{"key": {"IS"}, "start": {"2021-10-24T00:00:00Z"},
		"at": {time.Now().UTC().Format(time.RFC3339Nano)}}
	headers := []string{"X-User", "Ada"}
	for i := 0; i < len(values); i += 2 {
		if header, ok := strings.CutPrefix(values[i], "@"); ok {
			headers = append(headers, header, values[i+1])
		} else {
			fields.Set(values[i], values[i+1])
		}
	}
	response, text := s.send("POST", "/numbers/explain", fields.Encode(), headers...)
	require.Equal(s.t, status, response.StatusCode, text)
	location, _, _ = strings.Cut(response.Header.Get("Location"), "#")
	return text, "/numbers/" + location
}

// submit sends the form of a page as Ada, with the given reason and the other values of the form.
func (s *site) submit(page, reason string) {
	s.t.Helper()
	form := formValues(page)
	form.Set("reason", reason)
	response, text := s.send("POST", "/numbers/explain", form.Encode(), "X-User", "Ada")
	require.Equal(s.t, 303, response.StatusCode, text)
}

// said returns the ranges of the stored explanations.
func (s *site) said() (all []serial.Range) {
	for _, e := range s.register.all {
		all = append(all, serial.Range{First: e.First, Last: e.Last})
	}
	return all
}

// find looks a number up. It follows the redirect, which must be relative, and returns the resulting page.
func (s *site) find(status int, number string, headers ...string) (page string) {
	s.t.Helper()
	response, text := s.send("GET", "/numbers/find?number="+url.QueryEscape(number), "", headers...)
	if response.StatusCode != 303 {
		require.Equal(s.t, status, response.StatusCode, text)
		return text
	}
	location := response.Header.Get("Location")
	require.True(s.t, strings.HasPrefix(location, "period?"), location)
	return s.get(status, "/numbers/"+location, headers...)
}

// startCheck sends the form for a check of all periods of a series, and returns the address of the response.
func (s *site) startCheck(key string, status int, headers ...string) (page, location string) {
	s.t.Helper()
	response, text := s.send("POST", "/numbers/check", "key="+key, headers...)
	require.Equal(s.t, status, response.StatusCode, text)
	return text, "/numbers/" + response.Header.Get("Location")
}

// check starts a check, and waits until the check has ended.
func (s *site) check(key string) (page string) {
	s.t.Helper()
	_, location := s.startCheck(key, 303)
	require.Eventually(s.t, func() bool { running, _ := s.checks.state(key); return running == nil }, time.Minute,
		time.Millisecond)
	return s.get(200, location)
}

// lookupText returns the result of a look-up as text.
func lookupText(t testing.TB, page string) string {
	t.Helper()
	_, section, found := strings.Cut(page, `<section class="lookup"`)
	require.True(t, found, page)
	section, _, _ = strings.Cut(section, "</section>")
	_, section, _ = strings.Cut(section, ">")
	return pageText(section)
}

// explaining is the beginning of the form for explaining numbers.
const explaining = `<form method="post" action="explain"`

// formValues returns the values in the form for explaining numbers.
func formValues(page string) url.Values {
	fields := url.Values{}
	_, page, _ = strings.Cut(page, explaining)
	for _, m := range regexp.MustCompile(`<input[^>]* name="(\w+)"[^>]* value="([^"]*)"`).FindAllStringSubmatch(page, -1) {
		fields.Set(m[1], html.UnescapeString(m[2]))
	}
	return fields
}

// pageText returns the text of a page, without tags.
func pageText(page string) string {
	text := regexp.MustCompile(`<[^>]*>`).ReplaceAllString(page, "")
	return strings.Join(strings.Fields(html.UnescapeString(text)), " ")
}

// linksTo returns the addresses of a page's links to pages of a given kind, such as "period".
func linksTo(page, kind string) (all []string) {
	for _, m := range regexp.MustCompile(`href="(`+kind+`\?[^"]*)`).FindAllStringSubmatch(page, -1) {
		address, _, _ := strings.Cut(html.UnescapeString(m[1]), "#")
		all = append(all, "/numbers/"+address)
	}
	return all
}

func parseCSV(t testing.TB, text string) [][]string {
	t.Helper()
	table, found := strings.CutPrefix(text, "\ufeff")
	require.True(t, found)
	lines, err := csv.NewReader(strings.NewReader(table)).ReadAll()
	require.NoError(t, err)
	return lines
}

var update = flag.Bool("update", false, "write the files of testdata anew")

// A golden collects pages, and compares them with a file of testdata.
type golden struct {
	*site
	strings.Builder
}

// show adds the response to a request. It makes line breaks and invisible characters visible.
func (g *golden) show(status int, path string, headers ...string) (page string) {
	g.t.Helper()
	page = g.get(status, path, headers...)
	text := page
	if strings.Contains(path, ".json?") {
		var indented bytes.Buffer
		require.NoError(g.t, json.Indent(&indented, []byte(page), "", "\t"))
		text = indented.String()
	}
	g.add(status, path, text, headers)
	return page
}

// read adds the text of the response to a request, without the header of the page.
func (g *golden) read(status int, path string, headers ...string) (page string) {
	g.t.Helper()
	page = g.get(status, path, headers...)
	_, text, _ := strings.Cut(page, "<main>")
	var lines []string
	for line := range strings.SplitSeq(blocks.ReplaceAllString(text, "$0\x00"), "\x00") {
		if line = pageText(strings.ReplaceAll(line, "</t", " </t")); line != "" {
			lines = append(lines, line)
		}
	}
	g.add(status, path, strings.Join(lines, "\n"), headers)
	return page
}

// blocks matches the end tags after which a new line begins.
var blocks = regexp.MustCompile(`</(tr|p|h1|h2|li|dt|dd|div|nav|figure|button|form)>`)

// fractions matches fractions of seconds, which depend on how long a test has waited for a check.
var fractions = regexp.MustCompile(`\.[0-9]+Z`)

func (g *golden) add(status int, path, text string, headers []string) {
	text = fractions.ReplaceAllString(text, "Z")
	text = strings.NewReplacer("\ufeff", `\ufeff`, "\r\n", "\\r\\n\n", "\u202e", `\u202e`).Replace(text)
	fmt.Fprintf(g, "\n==== %d %s %s\n%s\n", status, path, strings.Join(headers, " "), strings.TrimSpace(text))
}

// compare compares the pages with a file, or writes the file.
func (g *golden) compare(name string) {
	g.t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		require.NoError(g.t, os.WriteFile(path, []byte(g.String()), 0o644))
	}
	text, err := os.ReadFile(path)
	require.NoError(g.t, err)
	want, got := strings.Split(string(text), "\n"), strings.Split(g.String(), "\n")
	for i := range min(len(want), len(got)) {
		require.Equal(g.t, want[i], got[i], "%s:%d; if the change is right: go test -run %s -update", path, i+1, g.t.Name())
	}
	require.Len(g.t, got, len(want), path)
}
