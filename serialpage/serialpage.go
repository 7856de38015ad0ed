// Package serialpage provides web pages for accountants, support staff and auditors. The pages show how many numbers an
// application has issued, which of them are stored, and why the others are missing. On every page, readers can look up
// a number. The pages are an [http.Handler], which an application mounts behind its own login:
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
// The pages need no JavaScript and load nothing from other sites. They change no data, except that users can explain
// why numbers are missing if [Options].User allows it.
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
	// Prefix is the path where the handler is mounted: "" or a path such as "/numbers". The handler needs the full path,
	// so do not wrap it in http.StripPrefix. A proxy may publish the pages under another path. If the last element of that
	// path differs from the last element of Prefix, the proxy must redirect requests for that path to the same path with a
	// trailing slash, because the handler's own redirect leads to the last element of Prefix.
	Prefix string

	// Series returns the series in the order in which the pages show them. The handler calls it for every page, with the
	// context of the request. It must not be nil.
	Series func(context.Context) ([]Series, error)

	// User returns the name of the user who sent the request if this user may explain missing numbers, and otherwise "".
	// The name may have at most 100 bytes, and only characters that are allowed in a [serial.Explanation]. The name is
	// also printed on sheets.
	//
	// If User returns an error, "" or an invalid name, the pages show the reason instead of the form for explanations. If
	// a client sends the form nevertheless, the response has status 403 and contains the form again. If User is nil, the
	// pages have no form, and the response to a form has status 403.
	User func(*http.Request) (name string, err error)

	// TrustedOrigins contains origins, such as "https://example.com", from which forms are accepted in addition to the
	// origin of the page: see [http.CrossOriginProtection]. Behind a proxy that changes the Host header, the public origin
	// must be added here.
	TrustedOrigins []string

	// Limit is the maximum duration of a request, including the time for reading its body and for an audit. It is at most
	// an hour. The WriteTimeout of the server must be longer than Limit. The default is 10 s.
	//
	// The handler responds in time even if a function of Options or Series does not return. The context of the function
	// ends a little before the limit. If the function ignores this, its goroutine continues to run.
	Limit time.Duration

	// CheckLimit is the maximum duration of a check of all periods. It is at most a day. A check that takes longer is
	// stopped and has no result. The default is 10 minutes.
	CheckLimit time.Duration

	// If Context is canceled, for example because the service shuts down, checks of all periods stop. The default is
	// context.Background().
	Context context.Context

	// Organisation is the name of the company, which is printed on sheets. By default, no name is printed.
	Organisation string

	// Logger logs errors, because the pages do not show their causes. The default is slog.Default().
	Logger *slog.Logger
}

// A Series is a row of the first page. Its Key must be unique among all series of the handler. The handler stores the
// reports of a series under its Key for a minute, and shows them to every reader who requests this Key.
type Series struct {
	// Key identifies the series in addresses. It has at most 255 bytes of printable UTF-8. The default is Type, or the
	// result of [serial.Scheme.Series] if Type is "".
	Key string

	// Type is the type of the numbers. With serial.WithSharedCounter, it is any of the types that share the counter, or
	// "" if the template prints no type. The page then shows the numbers of all these types.
	Type string

	// Name is the title of the series on the pages, such as "Sales orders". The default is the same as for Key.
	Name string

	// Source is the generator that issues the numbers. It must not be nil.
	Source Source

	// Stored yields the numbers of stored documents. If it is nil, the pages cannot check which numbers are stored.
	//
	// The arguments start and end are the bounds of the period that is checked. With them, Stored can avoid reading the
	// documents of other periods. It must yield at least all numbers that were printed for the time from start to end, and
	// preferably every number that is stored. So a function that returns all numbers ignores both arguments:
	//
	//	Stored: func(ctx context.Context, _, _ time.Time) iter.Seq2[string, error] { return allNumbers(ctx) },
	//
	// A check of all periods calls Stored once, for the time from the oldest to the newest period whose counter still
	// exists. Stored must return when ctx ends, because only two audits can run at the same time, and an audit does not
	// end before Stored returns.
	Stored func(ctx context.Context, start, end time.Time) iter.Seq2[string, error]

	// Explanations stores the reasons why numbers are missing. If it is nil, numbers cannot be explained.
	Explanations Explanations

	// Earlier contains the schemes that were used before the template, the time zone or the day start was changed, as in
	// [serial.WithEarlier]. A report includes the numbers of all schemes.
	//
	// The same period can begin at a different instant in each scheme. In this case, the interval from start to end that
	// is passed to Stored encloses the period of every scheme, and Explanations is called once for each of the instants.
	// If a number is explained for several of them, the explanation for the current scheme counts.
	Earlier []*serial.Scheme

	// Link returns the address of the document with the given number. The address is relative to the pages, such as
	// "../invoices/1", or begins with http or https. If Link returns "" or any other address, the page shows no link. The
	// argument is the number as Stored yields it, except that whitespace around it may be removed.
	//
	// Link is called for every listed number, so it should return immediately. If it panics, the page is shown without
	// links. If it is nil, the pages have no links to documents.
	Link func(number string) string
}

// Explanations stores the reasons why numbers are missing. [sqlledger.Register] implements this interface.
//
// The method Explain adds an explanation. If an equal explanation is already stored, Explain must not change anything.
// The method Explanations yields the explanations of the period that begins at start, or of all periods if start is the
// zero time.
//
// [sqlledger.Register]: https://pkg.go.dev/github.com/dailyserial/serial/sqlledger#Register
type Explanations interface {
	Explain(ctx context.Context, e serial.Explanation) error
	Explanations(ctx context.Context, series string, start time.Time) iter.Seq2[serial.Explanation, error]
}

// NewHandler returns a handler for all pages below o.Prefix. It returns an error if Series is nil, if Prefix is neither
// "" nor a clean path that begins with a slash, if [http.CrossOriginProtection] does not accept one of TrustedOrigins,
// if Limit is negative or longer than an hour, or if CheckLimit is negative or longer than a day. The message contains
// the name of the field.
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
		name       string
		limit      *time.Duration
		usual, max time.Duration
	}{{"Limit", &h.Limit, 10 * time.Second, time.Hour}, {"CheckLimit", &h.CheckLimit, 10 * time.Minute, 24 * time.Hour}} {
		if *l.limit < 0 || *l.limit > l.max {
			return nil, fmt.Errorf("serialpage: Options.%s %v: want 0 (the default, %v) to %v", l.name, *l.limit, l.usual, l.max)
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
