package main

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/dailyserial/serial"
)

// requestTimeout limits the time of a request. After that, the client is asked to repeat it with the same key.
const requestTimeout = 5 * time.Second

func (s *service) routes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /orders", func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), requestTimeout)
		defer cancel()
		o, created, err := s.create(r.WithContext(ctx))
		switch {
		case err != nil:
			s.fail(w, r, err)
		case created:
			write(w, http.StatusCreated, o)
		default:
			write(w, http.StatusOK, o)
		}
	})
	// Browsers add the proxy's cookies to requests from any page, so requests from pages of other sites are rejected.
	return http.NewCrossOriginProtection().Handler(mux)
}

// create places the order that is in a request.
//
// The proxy in front of this service authenticates customers and sets X-Forwarded-User, as oauth2-proxy does. It must
// overwrite this header in every request from a customer, and customers must not be able to bypass it. In your own
// service, use your own authentication instead.
func (s *service) create(r *http.Request) (o order, created bool, err error) {
	customer, key := r.Header.Get("X-Forwarded-User"), r.Header.Get("Idempotency-Key")
	if customer == "" || key == "" || len(key) > 128 {
		return o, false, refusal{http.StatusBadRequest, "want the header X-Forwarded-User from the proxy, and the header " +
			"Idempotency-Key with 1 to 128 bytes, which are the same for each attempt to place an order"}
	}
	var d draft
	err = json.NewDecoder(io.LimitReader(r.Body, 64<<10)).Decode(&d)
	if err != nil || d.AmountCents < 1 {
		return o, false, refusal{http.StatusBadRequest, `want a body such as {"amount_cents": 1250}; the minimum is 1`}
	}
	d.Customer = customer
	return s.place(r.Context(), key, d)
}

// A refusal is an error that the client can correct.
type refusal struct {
	status int
	detail string
}

func (r refusal) Error() string { return r.detail }

// permanent contains the errors that last until an operator acts. After any other error, a client may try again.
var permanent = []error{serial.ErrExhausted, serial.ErrCounterLost, serial.ErrClockSkew, serial.ErrConflict}

// fail responds to a request that has failed. It logs the error if the client cannot correct it.
func (s *service) fail(w http.ResponseWriter, r *http.Request, err error) {
	var refused refusal
	switch {
	case errors.As(err, &refused):
	case r.Context().Err() != nil:
		return // the client has disconnected
	default:
		refused = refusal{http.StatusServiceUnavailable, "orders are temporarily unavailable; retry with the same key"}
		// The library's errors contain PROGRAM in place of the name of the service's command.
		cause := strings.ReplaceAll(err.Error(), "PROGRAM", "orders-serial")
		if slices.ContainsFunc(permanent, func(p error) bool { return errors.Is(err, p) }) {
			s.log.Error("an operator has to act", "err", cause)
		} else { // Redis or the database is slow or unreachable
			s.log.Warn("unavailable", "err", cause)
			w.Header().Set("Retry-After", "1")
		}
	}
	write(w, refused.status, map[string]string{"error": refused.detail})
}

func write(w http.ResponseWriter, status int, content any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(content) // a client that has disconnected will repeat its request
}
