package serialpage

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/dailyserial/serial"
)

// A handler serves the pages. All addresses in the pages are relative, and all pages are at the same level. So the
// pages work under any path.
type handler struct {
	Options
	crossOrigin *http.CrossOriginProtection
	audits      *audits
	checks      checks
}

// serve responds to a request, or returns an error.
func (h *handler) serve(w http.ResponseWriter, r *http.Request) error {
	rest, below := strings.CutPrefix(r.URL.Path, h.Prefix)
	if !below || rest != "" && rest[0] != '/' {
		return &problem{status: http.StatusInternalServerError,
			text: fmt.Sprintf("These pages are configured for %s, but the request was for another path. If the handler is "+
				"wrapped in http.StripPrefix, remove this wrapper.", h.Prefix),
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
	case "/series", "/series.csv", "/series.json":
		get = h.series
	case "/period", "/period.csv", "/period.json":
		get = h.period
	case "/find":
		get = h.lookUp
	case "/explain":
		post = h.explain
	case "/check":
		post = h.check
	case "/style.css":
		get = file("text/css; charset=utf-8", style)
	case "/icon.svg":
		get = file("image/svg+xml", icon)
	default:
		return notFound("There is no such page.")
	}
	switch {
	case get != nil && (r.Method == http.MethodGet || r.Method == http.MethodHead):
		return get(w, r)
	case post != nil && r.Method == http.MethodPost:
		if err := h.crossOrigin.Check(r); err != nil {
			return &problem{status: http.StatusForbidden, text: "This form was sent from a page of another site."}
		}
		return post(w, r)
	}
	allow := "GET, HEAD"
	if post != nil {
		allow = "POST"
	}
	w.Header().Set("Allow", allow)
	return &problem{status: http.StatusMethodNotAllowed, text: "This address accepts only these requests: " + allow + "."}
}

// base returns the prefix that turns an address relative to the pages into an address relative to the path of the
// request. For a page, it is "". It can be "../" for an error page, because this can have any path below the prefix.
func (h *handler) base(r *http.Request) string {
	rest := strings.TrimPrefix(r.URL.Path, h.Prefix)
	if rest == "" && h.Prefix != "" {
		return "./" + url.PathEscape(path.Base(h.Prefix)) + "/"
	}
	return strings.Repeat("../", max(0, strings.Count(r.URL.EscapedPath(), "/")-strings.Count(h.Prefix, "/")-1))
}

// redirect returns a function that redirects the client to another address with the same query.
func redirect(to string) func(http.ResponseWriter, *http.Request) error {
	return func(w http.ResponseWriter, r *http.Request) error {
		if r.URL.RawQuery != "" {
			to += "?" + r.URL.RawQuery
		}
		w.Header().Set("Location", to) // http.Redirect would make the path absolute
		w.WriteHeader(http.StatusPermanentRedirect)
		return nil
	}
}

// file returns a function that serves an embedded file, and allows browsers to cache the file.
func file(contentType string, content []byte) func(http.ResponseWriter, *http.Request) error {
	return func(w http.ResponseWriter, r *http.Request) error {
		w.Header().Set("Content-Type", contentType)
		w.Header().Set("Cache-Control", "public, max-age=31536000, immutable")
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(content))
		return nil
	}
}

// allSeries calls Options.Series, fills in the default Key and Name of each series, and checks the result.
func (h *handler) allSeries(ctx context.Context) ([]Series, error) {
	all, err := h.Options.Series(ctx)
	if err != nil {
		return nil, unavailable(fmt.Errorf("Options.Series: %w", err))
	}
	seen := map[string]bool{}
	all = slices.Clone(all) // so that the slice of the application is not modified
	for i := range all {
		s := &all[i]
		series, wrong := "", error(nil)
		if s.Source == nil {
			wrong = errors.New("Source is nil, as it is if an argument of Redis or Table is nil")
		} else {
			series, wrong = s.Source.scheme().Series(s.Type)
		}
		s.Key = cmp.Or(s.Key, s.Type, series) // Type is "" if the template prints no type
		s.Name = cmp.Or(s.Name, s.Type, series)
		switch {
		case wrong != nil:
		case seen[s.Key]:
			wrong = errors.New("another series has the same Key")
		case len(s.Key) > 255:
			wrong = fmt.Errorf("the Key has %d bytes; want at most 255", len(s.Key))
		case len(s.Earlier) > 0: // an empty audit returns an error if the schemes do not match
			_, wrong = s.Source.scheme().Audit(s.Type, serial.At(time.Now()), 0, noTexts, serial.WithEarlier(s.Earlier...))
		}
		if wrong != nil {
			return nil, &problem{status: http.StatusInternalServerError, text: "These pages are not configured correctly.",
				cause: fmt.Errorf("series %q: %w", s.Key, wrong)}
		}
		seen[s.Key] = true
	}
	return all, nil
}

// find returns the series whose Key is in a query or a form.
func (h *handler) find(ctx context.Context, query url.Values) (*Series, error) {
	all, err := h.allSeries(ctx)
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(all, func(s Series) bool { return s.Key == query.Get("key") })
	if i < 0 {
		return nil, notFound("There is no such series.")
	}
	return &all[i], nil
}

// findPeriod returns the series and the period whose Key and start are in a query or a form.
func (h *handler) findPeriod(ctx context.Context, query url.Values) (*Series, period, error) {
	s, err := h.find(ctx, query)
	if err != nil {
		return nil, period{}, err
	}
	at, err := time.Parse(time.RFC3339, query.Get("start"))
	if err != nil {
		return nil, period{}, badRequest("The start of the period must be a time such as 2021-10-24T00:00:00Z.")
	}
	p, ok := periodAt(s.Source.scheme(), at)
	if !ok {
		return nil, period{}, badRequest("There are no periods before 1970 or after 9999.")
	}
	return s, p, nil
}
