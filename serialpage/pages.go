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

// version is a part of the addresses of the embedded files. It changes with their content, because browsers cache these
// files for a year.
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

// contentTypes maps formats to content types. The format of a page is "".
var contentTypes = map[string]string{
	"": "text/html; charset=utf-8", "csv": "text/csv; charset=utf-8; header=present", "json": "application/json",
}

// requestFormat returns the format with which the path of a request ends, such as "csv", or "" for a page.
func requestFormat(r *http.Request) string {
	return strings.TrimPrefix(path.Ext(r.URL.Path), ".")
}

// A frame is the data for the layout of every page.
type frame struct {
	Title   string
	Version string
	Base    string // prefix of relative addresses; "" on a page
	Back    []link // links to the pages above this page
	Number  string // content of the field for looking up a number; "" unless the user has to correct the number
	Data    any
}

// A link is a hyperlink to another page.
type link struct{ Href, Text string }

var home = link{"./", "Number series"}

// write renders a whole page and then sends it. So if a template fails, no half page is sent.
func (h *handler) write(w http.ResponseWriter, status int, name string, f frame, data any) {
	f.Version, f.Data = version, data
	var page bytes.Buffer
	if err := pages.ExecuteTemplate(&page, name, f); err != nil {
		h.Logger.Error("serialpage: a page could not be rendered", "page", name, "err", err)
		http.Error(w, "This page is not available at the moment.", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", contentTypes[""])
	w.WriteHeader(status)
	_, _ = page.WriteTo(w)
}

// address returns the relative address of a page about a period of a series. If start is zero, the page is about the
// whole series. The arguments more are additional query parameters: names, each followed by its value. Parameters with
// empty values are omitted.
func address(page, key string, start time.Time, more ...string) string {
	q := url.Values{"key": {key}}
	if !start.IsZero() {
		if utc := start.UTC(); utc.Year() <= 9999 { // RFC 3339 cannot express later years
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

// seriesLink returns a link to the page of a series.
func seriesLink(s *Series) link { return link{address("series", s.Key, time.Time{}), s.Name} }

// A problem is an error, and what the error page shows.
type problem struct {
	status int
	text   string // text for the reader
	cause  error  // cause for the log; nil if the client caused the problem
	retry  bool   // whether the same request may succeed later

	title  string  // title of the page; by default, the title for the status
	number string  // number that was looked up; if not "", text continues a sentence that begins with it
	series *Series // series that the text is about, or nil
	period period  // period that the text is about, if series is not nil
}

func (p *problem) Error() string { return p.text }

func notFound(text string) error { return &problem{status: http.StatusNotFound, text: text} }

func badRequest(text string) error { return &problem{status: http.StatusBadRequest, text: text} }

func forbidden(text string) error { return &problem{status: http.StatusForbidden, text: text} }

// unavailable returns the problem for a failure of a database, of Redis, or of a function of the application.
func unavailable(cause error) error {
	return &problem{status: http.StatusServiceUnavailable, cause: cause, retry: true,
		text: "This page is not available at the moment. Try again later."}
}

// fail responds with an error page. It logs the cause of err, unless the client caused the error.
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
		Period       period
		Number, Text string
		At           time.Time
	}{p.series, p.period, p.number, p.text, time.Now().UTC()})
}

// titles maps a status to the title of the error page.
var titles = map[int]string{
	http.StatusBadRequest: "Invalid request", http.StatusForbidden: "Not allowed", http.StatusNotFound: "Not found",
	http.StatusMethodNotAllowed: "Not supported", http.StatusRequestEntityTooLarge: "Too large",
	http.StatusInternalServerError: "Something went wrong", http.StatusServiceUnavailable: "Not available",
}

// logFailure logs the cause of a failed request, unless cause is nil or the client has disconnected.
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
	link   func(number string) string // Series.Link; nil if there are no links
	failed string                     // panic value and stack if link has panicked; then no link may be shown
}

// address returns the address of the document with the given number, or "" if there is no valid address.
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
	return template.URL(text) // the scheme is checked, and the template escapes the text
}
