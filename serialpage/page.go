package serialpage

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"html/template"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"time"
)

//go:embed style.css
var style []byte

//go:embed icon.svg
var icon []byte

// version is part of the addresses of embedded files, which browsers cache for a year.
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

// contentTypes are the content types of the formats of an account; "" is a page.
var contentTypes = map[string]string{
	"": "text/html; charset=utf-8", "csv": "text/csv; charset=utf-8; header=present", "json": "application/json",
}

// A frame is what every page has around its content.
type frame struct {
	Title   string
	Version string
	Base    string // relative address of the pages; "" on a page
	Back    []link // to the pages above
	Number  string // in the field for a number to look up
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

// writeHead answers HEAD for a page.
func writeHead(w http.ResponseWriter) error {
	w.Header().Set("Content-Type", contentTypes[""])
	return nil
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
