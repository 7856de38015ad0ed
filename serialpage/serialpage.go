// Package serialpage shows accountants, support and auditors the numbers of an application: how many were issued, which
// of them are stored, and why the others are missing. It is an [http.Handler] that an application mounts behind its own
// login:
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

// Options configure the handler that [NewHandler] returns.
type Options struct {
	// Prefix is the path of the handler: "" or one such as "/numbers". The handler needs the full path: do not use
	// http.StripPrefix. A proxy may show the pages at another path; if that ends in another way, it has to send browsers
	// to its path with a slash at the end, since the handler sends them from Prefix to the last part of Prefix with one.
	Prefix string

	// Series returns what is shown, in that order. It is called for every page, with the context of the request. It must
	// not be nil.
	Series func(context.Context) ([]Series, error)

	// User returns the name of whoever sent the request and may explain missing numbers: at most 100 bytes of printable
	// UTF-8. If it is nil, fails or returns "", the pages have no form, and one that is sent gets 403.
	User func(*http.Request) (name string, err error)

	// TrustedOrigins may send the form besides the page's own origin, such as "https://example.com": see
	// [http.CrossOriginProtection]. That is needed behind a proxy that changes the Host header.
	TrustedOrigins []string

	// Limit is how long a page or a form may take, its body and an audit included, whatever the functions given here do:
	// at most an hour. The context that they get ends a little earlier. If they ignore that, the goroutine in which they
	// run is left behind. The server's WriteTimeout must be longer than Limit. Default 10 s.
	Limit time.Duration

	// Logger gets the errors, which the pages do not show. Default slog.Default().
	Logger *slog.Logger
}

// A Series is a row of the first page. Its Key must be unique among all series of the handler: for a minute, everybody
// who asks for that key is shown the same account.
type Series struct {
	Key    string // at most 255 bytes of printable UTF-8; "" for Type
	Type   string
	Name   string // for people, such as "Sales orders"; "" for Type
	Source Source // where the numbers are counted

	// Stored yields the numbers that documents have: at least all that were printed for the period from start to end,
	// better all there are. Without it, the page gives no account. It must stop when ctx ends: until then, it takes up one
	// of the two audits that can run at a time.
	Stored func(ctx context.Context, start, end time.Time) iter.Seq2[string, error]

	// Explanations stores the reasons. Without it, nothing can be explained.
	Explanations Explanations
}

// Explanations stores why numbers are missing. [sqlledger.Register] does.
//
// [sqlledger.Register]: https://pkg.go.dev/github.com/dailyserial/serial/sqlledger#Register
type Explanations interface {
	Explain(ctx context.Context, e serial.Explanation) error
	Explanations(ctx context.Context, series string, start time.Time) iter.Seq2[serial.Explanation, error]
}

const (
	defaultLimit = 10 * time.Second
	mostLimit    = time.Hour
)

// NewHandler returns a handler of all pages below o.Prefix. Errors, which name the field: Series is nil; a Prefix that
// is not "" or a clean path that begins with a slash; an origin that [http.CrossOriginProtection] refuses; a Limit
// below 0 or above an hour.
func NewHandler(o Options) (http.Handler, error) {
	h := &handler{Options: o, own: http.NewCrossOriginProtection(), audits: newAudits()}
	if o.Series == nil {
		return nil, errors.New("serialpage: Options.Series is nil; it returns what is shown")
	}
	h.Prefix = strings.TrimSuffix(o.Prefix, "/")
	if p := h.Prefix; p != "" && (p[0] != '/' || path.Clean(p) != p || strings.ContainsAny(p, "?#%")) {
		return nil, fmt.Errorf("serialpage: Options.Prefix %q: want \"\" and a path such as /numbers", o.Prefix)
	}
	for _, origin := range o.TrustedOrigins {
		if err := h.own.AddTrustedOrigin(origin); err != nil {
			return nil, fmt.Errorf("serialpage: Options.TrustedOrigins: %w", err)
		}
	}
	switch {
	case o.Limit < 0 || o.Limit > mostLimit:
		return nil, fmt.Errorf("serialpage: Options.Limit %v: want 0, for %v, to %v", o.Limit, defaultLimit, mostLimit)
	case o.Limit == 0:
		h.Limit = defaultLimit
	}
	if o.Logger == nil {
		h.Logger = slog.Default()
	}
	return h, nil
}
