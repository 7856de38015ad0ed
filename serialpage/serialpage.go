// Package serialpage shows accountants, support staff and auditors the numbers of an application: how many were issued,
// which of them are stored, and why the others are missing. Whoever holds one number looks it up, on any page. It is an
// [http.Handler] that an application mounts behind its own login:
//
//	page, err := serialpage.NewHandler(serialpage.Options{
//		Prefix: "/numbers",
//		Series: func(context.Context) ([]serialpage.Series, error) {
//			return []serialpage.Series{{Type: "IS", Name: "Invoices", Source: serialpage.Redis(gen), Stored: stored}}, nil
//		},
//	})
//	...
//	mux.Handle("/numbers", page)
//	mux.Handle("/numbers/", page)
//
// The pages need no JavaScript and load nothing from elsewhere. They only read, unless [Options].User says who may
// explain why a number is missing.
package serialpage

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"net/http"
	"path"
	"strings"
	"time"

	"github.com/dailyserial/serial"
)

// Options configures the handler that [NewHandler] returns.
type Options struct {
	// Prefix is the path where the handler is mounted: "" or a path such as "/numbers". The handler needs the full
	// path: do not wrap it in http.StripPrefix. A proxy may show the pages at another path. If that path does not end
	// with the last part of Prefix, the proxy must redirect it to the same path with a slash at the end, because the
	// handler's own redirect leads to the last part of Prefix.
	Prefix string

	// Series returns the series to show, in that order. It is called for every page, with the context of the request.
	// It must not be nil.
	Series func(context.Context) ([]Series, error)

	// User returns the name of the person who sent the request and may explain missing numbers: at most 100 bytes of
	// the characters that a name in a [serial.Explanation] may have. If it fails, or returns "" or a name that is not
	// allowed, the pages have no form and say why, and a form that is sent gets 403 and shows what was typed. If User
	// is nil, the pages only read, and a form that is sent gets 403. Printed sheets have the name, too.
	User func(*http.Request) (name string, err error)

	// TrustedOrigins are origins, such as "https://example.com", from which forms are accepted besides the page's own:
	// see [http.CrossOriginProtection]. They are needed behind a proxy that changes the Host header.
	TrustedOrigins []string

	// Limit is how long a request may take, including its body and an audit, whatever the functions given here do. It
	// is at most an hour. The context passed to these functions ends a little earlier. If a function ignores it, its
	// goroutine is left behind. The server's WriteTimeout must be longer than Limit. Default 10 s.
	Limit time.Duration

	// CheckLimit is how long a check of all periods may take. It is at most a day. A check that does not end has no
	// result. Default 10 minutes.
	CheckLimit time.Duration

	// Context ends the checks of all periods, for example when the service shuts down. Default context.Background().
	Context context.Context

	// Organisation is the name of the company whose numbers these are, for printed sheets. Default "": none.
	Organisation string

	// Logger gets the errors, which the pages do not show. Default slog.Default().
	Logger *slog.Logger
}

// A Series is a row of the first page. Its Key must be unique among all series of the handler, since an account is kept
// for a minute and shown to everybody who asks for that Key.
type Series struct {
	Key    string // at most 255 bytes of printable UTF-8; "" means Type
	Type   string // with serial.WithSharedCounter, any type, or "" if the template prints none; the page shows all types
	Name   string // for people, such as "Sales orders"; "" means Type
	Source Source // where the numbers are counted

	// Stored yields the numbers that documents have: at least all that were printed for the period from start to end,
	// preferably all that exist. If it is nil, the page gives no account. It must stop when ctx ends: until then, it
	// occupies one of the two audits that can run at a time. A check of all periods calls it once, for the time from the
	// oldest to the newest period that is kept.
	Stored func(ctx context.Context, start, end time.Time) iter.Seq2[string, error]

	// Explanations stores the reasons. If it is nil, nothing can be explained.
	Explanations Explanations

	// Earlier are the schemes of numbers that were printed before a template, time zone or day start was changed, as
	// [serial.WithEarlier] takes them. Numbers of all schemes are accounted for together. If the first instants of a
	// period differ, start and end in Stored include that period by every scheme, and Explanations is asked for each of
	// these instants; what is explained for the current one comes before the others.
	Earlier []*serial.Scheme

	// Link returns the address of the document that has a number: relative to the pages, such as "../invoices/1", or
	// with http or https. For any other address, and for "", there is no link. It gets the number as Stored yields it,
	// maybe without the blanks around it, and should return at once: it is called for each listed number. If it panics,
	// the page is as without it. Default nil: no links.
	Link func(number string) string
}

// Explanations stores why numbers are missing. Explain must change nothing if an equal explanation is already stored.
// Explanations yields those of the period that begins at start, or of all periods if start is zero.
// [sqlledger.Register] implements it.
//
// [sqlledger.Register]: https://pkg.go.dev/github.com/dailyserial/serial/sqlledger#Register
type Explanations interface {
	Explain(ctx context.Context, e serial.Explanation) error
	Explanations(ctx context.Context, series string, start time.Time) iter.Seq2[serial.Explanation, error]
}

// NewHandler returns a handler for all pages below o.Prefix. It returns an error, which names the field, if Series is
// nil, if Prefix is neither "" nor a clean path that begins with a slash, if [http.CrossOriginProtection] refuses an
// origin, if Limit is negative or longer than an hour, or if CheckLimit is negative or longer than a day.
func NewHandler(o Options) (http.Handler, error) {
	h := &handler{Options: o, crossOrigin: http.NewCrossOriginProtection(), audits: newAudits(),
		checks: checks{running: map[string]*check{}, ended: map[string]*checked{}}}
	if o.Series == nil {
		return nil, errors.New("serialpage: Options.Series is nil; want a function that returns the series to show")
	}
	h.Prefix = strings.TrimSuffix(o.Prefix, "/")
	if p := h.Prefix; p != "" && (p[0] != '/' || path.Clean(p) != p || strings.ContainsAny(p, "?#%")) {
		return nil, fmt.Errorf("serialpage: Options.Prefix %q: want \"\" or a path such as /numbers", o.Prefix)
	}
	for _, origin := range o.TrustedOrigins {
		if err := h.crossOrigin.AddTrustedOrigin(origin); err != nil {
			return nil, fmt.Errorf("serialpage: Options.TrustedOrigins: %w", err)
		}
	}
	for _, l := range []struct {
		name            string
		limit           *time.Duration
		usual, greatest time.Duration
	}{{"Limit", &h.Limit, 10 * time.Second, time.Hour}, {"CheckLimit", &h.CheckLimit, 10 * time.Minute, 24 * time.Hour}} {
		if *l.limit < 0 || *l.limit > l.greatest {
			return nil, fmt.Errorf("serialpage: Options.%s %v: want 0 (for %v) to %v", l.name, *l.limit, l.usual, l.greatest)
		}
		*l.limit = cmp.Or(*l.limit, l.usual)
	}
	if o.Context == nil {
		h.Context = context.Background()
	}
	if o.Logger == nil {
		h.Logger = slog.Default()
	}
	return h, nil
}
