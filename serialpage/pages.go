package serialpage

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"errors"
	"fmt"
	"html/template"
	"net/http"
	"net/url"
	"path"
	"reflect"
	"runtime/debug"
	"slices"
	"strings"
	"time"
)

//go:embed web/style.css
var style []byte

//go:embed web/icon.svg
var icon []byte

// version is part of the addresses of embedded files, which browsers cache for a year.
var version = func() string {
	sum := sha256.Sum256(append(slices.Clone(style), icon...))
	return base64.RawURLEncoding.EncodeToString(sum[:6])
}()

//go:embed web/*.html
var pageFiles embed.FS

var pages = template.Must(template.New("").Funcs(template.FuncMap{
	"count": func(n any) string { return count(reflect.ValueOf(n).Int()) }, "instant": instant,
	"shortly": shortly, "plural": plural,
}).ParseFS(pageFiles, "web/*.html"))

// contentTypes are the content types of the formats of an account; "" is a page.
var contentTypes = map[string]string{
	"": "text/html; charset=utf-8", "csv": "text/csv; charset=utf-8; header=present", "json": "application/json",
}

// formatOf returns the format that a request asks for.
func formatOf(r *http.Request) string {
	return strings.TrimPrefix(path.Ext(r.URL.Path), ".")
}

// A frame is what every page has around its content.
type frame struct {
	Title   string
	Version string
	Base    string // relative address of the pages; "" on a page
	Back    []link // to the pages above
	Number  string // in the field for a number to look up: what was typed, if it has to be corrected
	Data    any
}

// A link leads to another page.
type link struct{ Href, Text string }

var home = link{"./", "Number series"}

// write sends a page. It renders all of it before it sends the first byte.
func (h *handler) write(w http.ResponseWriter, status int, name string, f frame, data any) {
	f.Version, f.Data = version, data
	var page bytes.Buffer
	if err := pages.ExecuteTemplate(&page, name, f); err != nil {
		h.Logger.Error("serialpage: a page could not be rendered", "page", name, "err", err)
		http.Error(w, "This page is not available right now.", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", contentTypes[""])
	w.WriteHeader(status)
	_, _ = page.WriteTo(w)
}

// address returns the relative address of a page about a period of a series, or about the series if start is zero. more
// has further names and values; empty values are left out.
func address(page, key string, start time.Time, more ...string) string {
	q := url.Values{"key": {key}}
	if !start.IsZero() {
		if utc := start.UTC(); utc.Year() <= 9999 { // RFC 3339 has no later year
			start = utc
		}
		q.Set("start", start.Format(time.RFC3339))
	}
	for i := 0; i < len(more); i += 2 {
		if more[i+1] != "" {
			q.Set(more[i], more[i+1])
		}
	}
	return page + "?" + q.Encode()
}

// seriesLink leads to the page of a series.
func seriesLink(s *Series) link { return link{address("series", s.Key, time.Time{}), s.Name} }

// A problem is an error that is answered with a page of its own.
type problem struct {
	status int
	text   string // for people
	cause  error  // for the log; nil if the client is to blame
	retry  bool   // a repetition may succeed

	title  string  // "" means that of the status
	number string  // that the text is about, and that was looked up; "" if there is none
	series *Series // that the text is about; nil if there is none
	period span    // that the text is about
}

func (p *problem) Error() string { return p.text }

func notFound(text string) error { return &problem{status: http.StatusNotFound, text: text} }

func badRequest(text string) error { return &problem{status: http.StatusBadRequest, text: text} }

func forbidden(text string) error { return &problem{status: http.StatusForbidden, text: text} }

// unavailable is the answer if a database, Redis or a function of the application failed.
func unavailable(cause error) error {
	return &problem{status: http.StatusServiceUnavailable, text: "This page is not available right now.", cause: cause,
		retry: true}
}

// fail answers with an error page.
func (h *handler) fail(w http.ResponseWriter, r *http.Request, err error) {
	p := &problem{}
	if !errors.As(err, &p) {
		p = unavailable(err).(*problem)
	}
	h.logFailure(r, p.text, p.cause)
	if p.retry {
		w.Header().Set("Retry-After", "5")
	}
	f := frame{Title: cmp.Or(p.title, titles[p.status]), Base: h.base(r), Number: p.number}
	f.Back = []link{{f.Base + home.Href, home.Text}}
	if p.series != nil {
		f.Title, f.Back = p.series.Name+", "+p.period.Name, append(f.Back, seriesLink(p.series))
	}
	h.write(w, p.status, "problem.html", f, struct {
		Series       *Series
		Period       span
		Number, Text string
		At           time.Time
	}{p.series, p.period, p.number, p.text, time.Now().UTC()})
}

// titles are the titles of error pages, by status.
var titles = map[int]string{
	http.StatusBadRequest: "Invalid request", http.StatusForbidden: "Not allowed", http.StatusNotFound: "Not found",
	http.StatusMethodNotAllowed: "Not supported", http.StatusRequestEntityTooLarge: "Too large",
	http.StatusInternalServerError: "Something went wrong", http.StatusServiceUnavailable: "Not available",
}

// logFailure logs why a request failed, unless cause is nil or the client has left.
func (h *handler) logFailure(r *http.Request, text string, cause error) {
	if cause != nil && !errors.Is(r.Context().Err(), context.Canceled) {
		h.log(r, text, cause)
	}
}

func (h *handler) log(r *http.Request, text string, cause any) {
	h.Logger.ErrorContext(r.Context(), "serialpage: "+text, "method", r.Method, "path", r.URL.Path,
		"query", r.URL.RawQuery, "err", cause)
}

// A linker asks the application for the addresses of documents.
type linker struct {
	link   func(number string) string // nil: there are none
	failed string                     // panic and stack; then, none of the links must be shown
}

// address returns the address of the document with a number, or "" if there is none.
func (l *linker) address(number string) (address template.URL) {
	if l.link == nil || l.failed != "" {
		return ""
	}
	returned := false
	defer func() {
		if !returned {
			l.failed = fmt.Sprintf("panic: %v\n%s", recover(), debug.Stack())
		}
	}()
	text := l.link(number)
	returned = true
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "" && u.Scheme != "http" && u.Scheme != "https" {
		return ""
	}
	return template.URL(text) // checked above; the template escapes it
}
