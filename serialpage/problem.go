package serialpage

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"time"
)

// A problem is an error that is answered with a page of its own.
type problem struct {
	status int
	text   string // for people
	cause  error  // for the log; nil if the client is to blame
	retry  bool   // a repetition may succeed
	to     *link  // where to repeat it; nil means the same page

	title  string         // "" means that of the status
	number string         // that the text is about, and that was looked up; "" if there is none
	series *Series        // to which the number belongs; nil if none is known
	period span           // to which the number belongs
	zone   *time.Location // in which the time is shown; nil means the server's
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

// inZone adds the time zone of the series to an error, for its page.
func (s *Series) inZone(err error) error {
	p := &problem{}
	if !errors.As(err, &p) {
		p = unavailable(err).(*problem)
	}
	about := *p
	about.zone = s.zone()
	return &about
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
		To           *link
	}{p.series, p.period, p.number, p.text, time.Now().In(cmp.Or(p.zone, time.Local)), p.to})
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
