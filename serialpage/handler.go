package serialpage

import (
	"bytes"
	"context"
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"errors"
	"fmt"
	"html/template"
	"io"
	"maps"
	"net/http"
	"net/url"
	"path"
	"reflect"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/dailyserial/serial"
)

//go:embed style.css
var style []byte

//go:embed icon.svg
var icon []byte

// version is a part of the addresses of what browsers keep for a year.
var version = func() string {
	sum := sha256.Sum256(append(slices.Clone(style), icon...))
	return base64.RawURLEncoding.EncodeToString(sum[:6])
}()

//go:embed *.html
var pageFiles embed.FS

var pages = template.Must(template.New("").Funcs(template.FuncMap{
	"count": func(n any) string { return count(reflect.ValueOf(n).Int()) }, "instant": instant,
	"shortly": shortly, "plural": plural,
}).ParseFS(pageFiles, "*.html"))

// A handler serves the pages. All addresses in them are relative, and all pages are at one level, so it does not matter
// where they are mounted.
type handler struct {
	Options
	own    *http.CrossOriginProtection
	audits *audits
}

// A problem is an answer that is not a page.
type problem struct {
	status int
	text   string // for people
	cause  error  // for the log; nil for what the client did
	again  bool   // worth trying again
	to     *link  // where to do that; nil for here
}

func (p *problem) Error() string { return p.text }

func missing(what string) error { return &problem{status: http.StatusNotFound, text: what} }

func refused(format string, args ...any) error {
	return &problem{status: http.StatusBadRequest, text: fmt.Sprintf(format, args...)}
}

// unavailable is the answer where something else failed.
func unavailable(cause error) error {
	return &problem{status: http.StatusServiceUnavailable, text: "This page is not available right now.", cause: cause,
		again: true}
}

// ServeHTTP answers within Limit, whatever the functions of Options and Series do: they run in a goroutine of their
// own, which it leaves behind at the limit.
func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), h.Limit)
	defer cancel()
	a := newAnswer()
	body, err := h.readBody(ctx, w, r)
	if err == nil {
		// The work ends a little earlier, so that there is time to say what failed.
		work, cancel := context.WithTimeout(ctx, h.Limit-min(h.Limit/2, time.Second/2))
		defer cancel()
		inner := r.WithContext(work)
		inner.Body = body
		ended := h.run(inner, func() error { return h.serve(a, inner) })
		select {
		case err = <-ended:
		case <-ctx.Done():
			a, err = newAnswer(), ctx.Err()
		}
	}
	if err != nil {
		h.fail(a, r, err)
	}
	a.send(w)
}

// run calls f in a goroutine of its own and returns a channel that gets its error. If f panics or ends the goroutine, that
// is a problem. It is logged here, since the request may have been answered by then.
func (h *handler) run(r *http.Request, f func() error) <-chan error {
	ended := make(chan error, 1)
	go func() {
		var err error
		returned := false
		defer func() {
			if !returned {
				err = h.panicked(r, recover())
			}
			ended <- err
		}()
		err, returned = f(), true
	}()
	return ended
}

// panicked logs a panic and returns the answer to its request. value is nil if the goroutine was ended without a panic.
func (h *handler) panicked(r *http.Request, value any) error {
	what := fmt.Sprint("panic: ", value)
	if value == nil {
		what = "runtime.Goexit was called"
	}
	h.log(r, "a function that the application supplies failed", fmt.Sprintf("%s\n%s", what, debug.Stack()))
	return &problem{status: http.StatusInternalServerError,
		text: "This request failed. Inform whoever runs the service."}
}

// readBody reads the body of a request before ctx ends.
func (h *handler) readBody(ctx context.Context, w http.ResponseWriter, r *http.Request) (io.ReadCloser, error) {
	if r.Body == nil || r.Body == http.NoBody {
		return r.Body, nil
	}
	var body []byte
	ended := h.run(r, func() (err error) {
		body, err = io.ReadAll(http.MaxBytesReader(w, r.Body, largestForm))
		return err
	})
	var err error
	select {
	case err = <-ended:
	case <-ctx.Done():
		// Otherwise the server would wait for the rest of the body before it sends the answer.
		w.Header().Set("Connection", "close")
		if http.NewResponseController(w).SetReadDeadline(time.Unix(1, 0)) == nil {
			<-ended
		}
		return nil, &problem{status: http.StatusServiceUnavailable, text: "The form took too long to arrive.", again: true}
	}
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		return nil, &problem{status: http.StatusRequestEntityTooLarge, text: "The form is too large."}
	case err != nil:
		return nil, refused("The form could not be read.")
	}
	return io.NopCloser(bytes.NewReader(body)), nil
}

// An answer is kept until all of it is known.
type answer struct {
	header http.Header
	status int
	bytes.Buffer
}

func newAnswer() *answer {
	return &answer{status: http.StatusOK, header: http.Header{
		"Content-Security-Policy": {"default-src 'none'; style-src 'self'; img-src 'self'; form-action 'self'; " +
			"frame-ancestors 'none'; base-uri 'none'"},
		"X-Frame-Options": {"DENY"}, "X-Content-Type-Options": {"nosniff"}, "Referrer-Policy": {"same-origin"},
		"Cache-Control": {"no-store"},
	}}
}

func (a *answer) Header() http.Header { return a.header }

func (a *answer) WriteHeader(status int) { a.status = status }

func (a *answer) send(w http.ResponseWriter) {
	maps.Copy(w.Header(), a.header)
	w.WriteHeader(a.status)
	_, _ = a.WriteTo(w) // nobody reads it if the client has left
}

// serve answers a request, or returns why it cannot.
func (h *handler) serve(w http.ResponseWriter, r *http.Request) error {
	rest, below := strings.CutPrefix(r.URL.Path, h.Prefix)
	if !below || rest != "" && rest[0] != '/' {
		return &problem{status: http.StatusInternalServerError,
			text: fmt.Sprintf("These pages are configured for %s, and got a request for another path. If http.StripPrefix is "+
				"around the handler, remove it.", h.Prefix),
			cause: fmt.Errorf("path %q is not below Options.Prefix %q", r.URL.Path, h.Prefix)}
	}
	var get, post func(http.ResponseWriter, *http.Request) error
	switch rest {
	case "":
		get = redirect("./" + url.PathEscape(path.Base(h.Prefix)) + "/")
		if h.Prefix == "" {
			get = h.overview
		}
	case "/":
		get = h.overview
	case "/series":
		get = h.series
	case "/period", "/period.csv", "/period.json":
		get = h.period
	case "/explain":
		post = h.explain
	case "/style.css":
		get = kept("text/css; charset=utf-8", style)
	case "/icon.svg":
		get = kept("image/svg+xml", icon)
	default:
		return missing("There is no such page.")
	}
	switch {
	case get != nil && (r.Method == http.MethodGet || r.Method == http.MethodHead):
		return get(w, r)
	case post != nil && r.Method == http.MethodPost:
		if err := h.own.Check(r); err != nil {
			return &problem{status: http.StatusForbidden, text: "This form was sent from a page of another site."}
		}
		return post(w, r)
	}
	allow := "GET, HEAD"
	if post != nil {
		allow = "POST"
	}
	w.Header().Set("Allow", allow)
	return &problem{status: http.StatusMethodNotAllowed, text: "Only " + allow + " are possible here."}
}

func redirect(to string) func(http.ResponseWriter, *http.Request) error {
	return func(w http.ResponseWriter, r *http.Request) error {
		if r.URL.RawQuery != "" {
			to += "?" + r.URL.RawQuery
		}
		w.Header().Set("Location", to) // http.Redirect would make it absolute
		w.WriteHeader(http.StatusPermanentRedirect)
		return nil
	}
}

// kept serves a file that browsers may keep.
func kept(contentType string, file []byte) func(http.ResponseWriter, *http.Request) error {
	return func(w http.ResponseWriter, r *http.Request) error {
		w.Header().Set("Content-Type", contentType)
		w.Header().Set("Cache-Control", "public, max-age=31536000, immutable")
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(file))
		return nil
	}
}

// fail answers with an error page.
func (h *handler) fail(w http.ResponseWriter, r *http.Request, err error) {
	p := &problem{}
	if !errors.As(err, &p) {
		p = unavailable(err).(*problem)
	}
	h.logProblem(r, p.text, p.cause)
	if p.again {
		w.Header().Set("Retry-After", "5")
	}
	h.write(w, p.status, "problem.html", frame{Title: titles[p.status], Back: []link{home}}, struct {
		Text string
		At   time.Time
		To   *link
	}{p.text, time.Now(), p.to})
}

// logProblem logs what failed. Nothing did if cause is nil, or if the client has left.
func (h *handler) logProblem(r *http.Request, text string, cause error) {
	if cause != nil && !errors.Is(r.Context().Err(), context.Canceled) {
		h.log(r, text, cause)
	}
}

func (h *handler) log(r *http.Request, text string, cause any) {
	h.Logger.ErrorContext(r.Context(), "serialpage: "+text, "method", r.Method, "path", r.URL.Path,
		"query", r.URL.RawQuery, "err", cause)
}

// titles are those of error pages, by status.
var titles = map[int]string{
	http.StatusBadRequest: "Invalid request", http.StatusForbidden: "Not allowed", http.StatusNotFound: "Not found",
	http.StatusMethodNotAllowed: "Not supported", http.StatusRequestEntityTooLarge: "Too large",
	http.StatusInternalServerError: "Something went wrong", http.StatusServiceUnavailable: "Not available",
}

// A frame is what all pages have around them.
type frame struct {
	Title   string
	Version string
	Back    []link // to the pages above
	Data    any
}

// A link leads to another page.
type link struct{ Href, Text string }

var home = link{"./", "Number series"}

// write renders a page whole before it sends the first byte.
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

// head answers with the header of a page.
func head(w http.ResponseWriter) error {
	w.Header().Set("Content-Type", contentTypes[""])
	return nil
}

// shown returns all series, with their defaults.
func (h *handler) shown(ctx context.Context) ([]Series, error) {
	all, err := h.Options.Series(ctx)
	if err != nil {
		return nil, unavailable(fmt.Errorf("Options.Series: %w", err))
	}
	seen := map[string]bool{}
	all = append([]Series(nil), all...) // the caller's stay as they are
	for i := range all {
		s := &all[i]
		if s.Key == "" {
			s.Key = s.Type
		}
		if s.Name == "" {
			s.Name = s.Type
		}
		var wrong error
		switch {
		case s.Source == nil:
			wrong = errors.New("Source is nil")
		case seen[s.Key]:
			wrong = errors.New("another one has its Key")
		case len(s.Key) > 255:
			wrong = fmt.Errorf("a Key of %d bytes; want 255", len(s.Key))
		default:
			_, wrong = s.Source.scheme().Series(s.Type)
		}
		if wrong != nil {
			return nil, &problem{status: http.StatusInternalServerError, text: "These pages are not configured correctly.",
				cause: fmt.Errorf("series %q: %w", s.Key, wrong)}
		}
		seen[s.Key] = true
	}
	return all, nil
}

// find returns the series that a request names.
func (h *handler) find(r *http.Request, query url.Values) (*Series, error) {
	all, err := h.shown(r.Context())
	if err != nil {
		return nil, err
	}
	for i := range all {
		if all[i].Key == query.Get("key") {
			return &all[i], nil
		}
	}
	return nil, missing("There is no such series.")
}

// A span is a period, for people.
type span struct {
	label      string
	Name       string
	Start, End time.Time
}

// spanAt returns the period that an instant lies in.
func spanAt(scheme *serial.Scheme, at time.Time) (span, bool) {
	label, start, end := scheme.Period(at)
	return span{label, scheme.PeriodName(at), start, end}, label != ""
}

// Days are the first and the last business day of a period, which its name does not tell, such as a week.
func (s span) Days() string {
	if !strings.HasPrefix(s.Name, "week ") && !strings.HasPrefix(s.Name, "quarter ") &&
		!strings.HasPrefix(s.Name, "business year ") {
		return ""
	}
	// The last business day is the date before the one on which the next period begins.
	last := s.End.Add(-time.Second)
	if !beginsDate(s.End) {
		last = time.Date(s.End.Year(), s.End.Month(), s.End.Day()-1, 0, 0, 0, 0, time.UTC)
	}
	return s.Start.Format("2 January 2006") + " to " + last.Format("2 January 2006")
}

// beginsDate reports whether t is the first instant of its date, as periods without a day start have it.
func beginsDate(t time.Time) bool { return t.Add(-time.Second).Day() != t.Day() }

// Ends reports whether the period has an end.
func (s span) Ends() bool { return s.label != "all" }

// address returns the address of a page about a period of a series, without a prefix. more are further names and
// values; an empty value is left out.
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

// count prints a count with a thin space between thousands.
func count(n int64) string {
	text := fmt.Sprint(n)
	for i := len(text) - 3; i > 0 && text[i-1] != '-'; i -= 3 {
		text = text[:i] + "\u202f" + text[i:]
	}
	return text
}

func instant(t time.Time) string { return t.Format("2 January 2006, 15:04 MST") }

// shortly leaves out the year where it is this one.
func shortly(t time.Time) string {
	if t.Year() != time.Now().In(t.Location()).Year() {
		return instant(t)
	}
	return t.Format("2 Jan, 15:04 MST")
}

// plural returns a count with its noun.
func plural(n int64, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return count(n) + " " + many
}
