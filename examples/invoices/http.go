package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/dailyserial/serial"
)

// requestTimeout limits the time of a request.
const requestTimeout = 10 * time.Second

// routes returns the handler of the service. The argument page is the handler of the pages below /numbers.
func (s *service) routes(page http.Handler) http.Handler {
	mux := http.NewServeMux()
	for pattern, f := range map[string]func(*http.Request) (string, error){
		"POST /orders":               s.postOrder,
		"POST /orders/{number}/void": s.postVoidOrder,
		"POST /orders/{number}/invoice": func(r *http.Request) (string, error) {
			return s.invoice(r.Context(), r.PathValue("number"), serial.OnDateOf(time.Now().In(s.zone)))
		},
		"POST /invoices/{number}/void": func(r *http.Request) (string, error) {
			return "void", s.voidInvoice(r.Context(), r.PathValue("number"))
		},
	} {
		mux.HandleFunc(pattern, s.handle(f))
	}
	mux.Handle("/numbers", page)
	mux.Handle("/numbers/", page)
	// Browsers add the proxy's cookies to requests from any page, so requests from pages of other sites are rejected.
	return http.NewCrossOriginProtection().Handler(mux)
}

func (s *service) postOrder(r *http.Request) (string, error) {
	customer := strings.TrimSpace(r.FormValue("customer"))
	cents, err := strconv.ParseInt(r.FormValue("cents"), 10, 64)
	if err != nil || customer == "" || cents < 1 || cents > 100_000_000 {
		return "", refusal("want customer=NAME and cents=AMOUNT, from 1 to 100000000")
	}
	return s.place(r.Context(), customer, cents)
}

func (s *service) postVoidOrder(r *http.Request) (string, error) {
	by, err := user(r)
	if err != nil || by == "" {
		return "", cmp.Or[error](err, refusal("only a user whose name the login proxy has set may void an order"))
	}
	return "void", s.voidOrder(r.Context(), r.PathValue("number"), r.FormValue("reason"), by)
}

// anonymous is the name of users without a login proxy. Only the demonstration sets it.
var anonymous string

// user returns the name of the user who sent the request. The login proxy in front of the service sets
// X-Forwarded-User. It must overwrite this header in every request from a browser, and browsers must not be able to
// bypass it. In your own service, use your own authentication instead.
func user(r *http.Request) (string, error) {
	names := r.Header.Values("X-Forwarded-User")
	if len(names) > 1 {
		return "", errors.New("more than one X-Forwarded-User header")
	}
	return cmp.Or(strings.Join(names, ""), anonymous), nil
}

// A refusal is an error that the client can correct.
type refusal string

func (r refusal) Error() string { return string(r) }

// handle returns a handler that calls f with a time limit, and responds with the text or the error that f returns.
func (s *service) handle(f func(*http.Request) (string, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), requestTimeout)
		defer cancel()
		text, err := f(r.WithContext(ctx))
		var refused refusal
		switch {
		case err == nil:
			_, _ = fmt.Fprintln(w, text)
		case errors.As(err, &refused):
			http.Error(w, refused.Error(), http.StatusUnprocessableEntity)
		case r.Context().Err() == nil: // otherwise the client has disconnected
			s.log.Error("unavailable", "method", r.Method, "path", r.URL.Path, "err", err)
			http.Error(w, "temporarily unavailable", http.StatusServiceUnavailable)
		}
	}
}
