package serialpage

import (
	"bytes"
	"fmt"
	"net/http"
	"net/url"
	"path"
	"strings"
	"time"
)

// A handler serves the pages. All addresses in them are relative, and all pages are on one level, so it does not matter
// where they are mounted.
type handler struct {
	Options
	crossOrigin *http.CrossOriginProtection
	audits      *audits
	checks      checks
	beginnings  beginnings
}

// serve answers a request, or returns why it cannot.
func (h *handler) serve(w http.ResponseWriter, r *http.Request) error {
	rest, below := strings.CutPrefix(r.URL.Path, h.Prefix)
	if !below || rest != "" && rest[0] != '/' {
		return &problem{status: http.StatusInternalServerError,
			text: fmt.Sprintf("These pages are configured for %s, but the request was for another path. If the handler is "+
				"wrapped in http.StripPrefix, unwrap it.", h.Prefix),
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
	return &problem{status: http.StatusMethodNotAllowed, text: "Only these requests are possible here: " + allow + "."}
}

// base is the relative address of the pages, as seen from the address of a request: "" from all pages, but not from an
// address that has no page.
func (h *handler) base(r *http.Request) string {
	rest := strings.TrimPrefix(r.URL.Path, h.Prefix)
	if rest == "" && h.Prefix != "" {
		return "./" + url.PathEscape(path.Base(h.Prefix)) + "/"
	}
	return strings.Repeat("../", max(0, strings.Count(r.URL.EscapedPath(), "/")-strings.Count(h.Prefix, "/")-1))
}

// redirect leads to another page with the same query.
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

// file serves an embedded file, which browsers may cache.
func file(contentType string, content []byte) func(http.ResponseWriter, *http.Request) error {
	return func(w http.ResponseWriter, r *http.Request) error {
		w.Header().Set("Content-Type", contentType)
		w.Header().Set("Cache-Control", "public, max-age=31536000, immutable")
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(content))
		return nil
	}
}
