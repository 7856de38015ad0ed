package main

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/dailyserial/serial"
	"github.com/dailyserial/serial/examples/orders/internal/numbers"
)

const (
	// patience is how long a request may take, including its body. After that, the client is asked to retry with the
	// same key.
	patience = 5 * time.Second

	// readyWithin is less than the second that Kubernetes waits for a probe.
	readyWithin = 800 * time.Millisecond
)

// A service answers requests. It is safe for use by any number of goroutines. Any number of processes may serve the
// same database and Redis.
type service struct {
	gen    *serial.Generator
	orders *table
	log    *slog.Logger
}

func (s *service) routes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /orders", s.handle(s.create))
	mux.HandleFunc("GET /orders/{number}", s.handle(s.get))
	mux.HandleFunc("GET /readyz", s.ready)
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok\n") })
	// Whichever page sends a request, the browser adds the cookies that authenticate the user at the proxy.
	guard := http.NewCrossOriginProtection()
	guard.SetDenyHandler(s.handle(func(http.ResponseWriter, *http.Request) error { return errForeign }))
	return guard.Handler(mux)
}

// place is the purpose of this service: one key of a customer, one order, one number, however often the request is
// repeated. It reports whether the order is new.
func (s *service) place(ctx context.Context, key string, d draft) (o order, created bool, err error) {
	const attempts = 10
	for attempt := range attempts {
		// 1. Look in the table. It remembers a request forever; Redis remembers it for 48 hours, if it loses nothing.
		o, err = s.orders.byKey(ctx, d.Customer, key)
		if err == nil && o.draft != d {
			return o, false, refusal{http.StatusUnprocessableEntity, "this Idempotency-Key was used for another order"}
		}
		if !errors.Is(err, errNone) {
			return o, false, err
		}
		// 2. Take a number. A request that got a number before it failed gets the same one.
		number, err := s.number(ctx, d.Customer, key, attempt)
		if err != nil {
			return o, false, err
		}
		// 3. Insert the order. The table accepts each customer's key once, and each number once.
		created, err = s.orders.insert(ctx, key, number, d)
		if created || err != nil {
			return order{number.String(), d}, created, err
		}
		// There was a conflict, usually because the same request was sent twice at the same time. Step 1 now finds its
		// order.
	}
	return o, false, errTaken
}

// number issues a number to a request. If another order already has that number, which a ledger prevents, number takes
// a new one: each attempt advances a counter that went back.
func (s *service) number(ctx context.Context, customer, key string, attempt int) (serial.Number, error) {
	if attempt > 0 {
		s.log.ErrorContext(ctx, "a number was issued twice: Redis lost more than the floor knows", "customer", customer,
			"key", key)
		return s.gen.NextNumber(ctx, numbers.Type)
	}
	return s.gen.NextOnce(ctx, numbers.Type, requestID(customer, key))
}

// requestID returns an ID that is unique to a request, even if two customers choose the same key. %q separates customer
// and key unambiguously. The hash has a length that NextOnce accepts.
func requestID(customer, key string) string {
	return fmt.Sprintf("%x", sha256.Sum256(fmt.Appendf(nil, "%q %q", customer, key)))
}

func (s *service) create(w http.ResponseWriter, r *http.Request) error {
	customer, err := caller(r.Header)
	if err != nil {
		return err
	}
	key, err := idempotencyKey(r.Header)
	if err != nil {
		return err
	}
	d, err := readDraft(w, r, customer)
	if err != nil {
		return err
	}
	o, created, err := s.place(r.Context(), key, d)
	if err != nil {
		return err
	}
	w.Header().Set("Location", "/orders/"+o.Number)
	status := http.StatusOK
	if created {
		status = http.StatusCreated
	}
	write(w, status, "application/json", o)
	return nil
}

// get shows customers only their own orders, since numbers are easy to guess.
func (s *service) get(w http.ResponseWriter, r *http.Request) error {
	customer, err := caller(r.Header)
	if err != nil {
		return err
	}
	// Parse would not read numbers of an earlier template.
	number := r.PathValue("number")
	if !visible(number) {
		return refusal{http.StatusBadRequest, "want the number of an order, such as IS202110240001"}
	}
	o, err := s.orders.byNumber(r.Context(), customer, number)
	if err != nil {
		return err
	}
	write(w, http.StatusOK, "application/json", o)
	return nil
}

// ready reports whether orders can be numbered and stored. /healthz checks neither Redis nor the database, since
// restarting this process would not help them.
func (s *service) ready(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), readyWithin)
	defer cancel()
	_, err := s.gen.Peek(ctx, numbers.Type)
	// The next order repairs a lost counter, so it must be let through.
	if err == nil || errors.Is(err, serial.ErrCounterLost) {
		err = s.orders.db.PingContext(ctx)
	}
	if err != nil {
		s.log.WarnContext(ctx, "not ready", cause(err))
		http.Error(w, "not ready", http.StatusServiceUnavailable)
		return
	}
	_, _ = io.WriteString(w, "ready\n")
}

// caller returns the customer who sent the request. This service trusts the proxy in front of it, which authenticates
// the customer and sets X-Forwarded-User, as oauth2-proxy does. The proxy must overwrite any such header from the
// customer, and nobody may reach this service without the proxy. In your own service, put your authentication here.
func caller(h http.Header) (string, error) {
	customer, ok := only(h, "X-Forwarded-User")
	if !ok {
		return "", refusal{http.StatusForbidden,
			"the proxy must name the customer, in one X-Forwarded-User header of 1 to 128 " +
				"visible ASCII characters"}
	}
	return customer, nil
}

// idempotencyKey returns the key that distinguishes a request from all others of the same customer.
func idempotencyKey(h http.Header) (string, error) {
	key, ok := only(h, "Idempotency-Key")
	if !ok {
		return "", refusal{http.StatusBadRequest, "one Idempotency-Key header is required, of 1 to 128 visible ASCII " +
			"characters: the same for each attempt at one order, such as a UUID"}
	}
	return key, nil
}

// only returns a header that must appear exactly once, with 1 to 128 visible ASCII characters.
func only(h http.Header, name string) (value string, ok bool) {
	values := h.Values(name)
	if len(values) != 1 || !visible(values[0]) {
		return "", false
	}
	return values[0], true
}

// visible reports whether a text has 1 to 128 bytes, all of them visible ASCII characters.
func visible(text string) bool {
	return text != "" && len(text) <= 128 && !strings.ContainsFunc(text, func(r rune) bool { return r < '!' || r > '~' })
}

// readDraft reads the whole body, for which handle has set a deadline.
func readDraft(w http.ResponseWriter, r *http.Request, customer string) (draft, error) {
	d := draft{Customer: customer}
	var content struct {
		AmountCents int64 `json:"amount_cents"`
	}
	body := json.NewDecoder(http.MaxBytesReader(w, r.Body, 64<<10))
	body.DisallowUnknownFields()
	err := body.Decode(&content)
	_, end := body.Token()
	if errors.Is(errors.Join(err, end), os.ErrDeadlineExceeded) {
		return d, errStalled
	}
	if err != nil || end != io.EOF {
		return d, refusal{http.StatusBadRequest, `the body must be JSON such as {"amount_cents": 1250}`}
	}
	if d.AmountCents = content.AmountCents; d.AmountCents < 1 {
		return d, refusal{http.StatusBadRequest, "amount_cents must be at least 1"}
	}
	return d, nil
}

// A refusal is an error that the client can correct.
type refusal struct {
	status int
	detail string
}

func (r refusal) Error() string { return r.detail }

var errForeign = refusal{http.StatusForbidden, "a page of another site sent this request"}

var errStalled = refusal{http.StatusRequestTimeout, "the body did not arrive in time; retry with the same key"}

var errTaken = errors.New("every number tried already belongs to another order; find the last number used today, and " +
	"run: " + command + " raise " + numbers.Type + " SEQ, where SEQ is its sequence")

// command is the service's own command, in cmd. The library's errors call it PROGRAM.
const command = "orders-serial"

// cause is an error as it is logged. The operator can type the command that it names.
func cause(err error) slog.Attr {
	return slog.String("err", strings.ReplaceAll(err.Error(), "PROGRAM", command))
}

// permanent are the errors that last until an operator does what they say.
var permanent = []error{serial.ErrExhausted, serial.ErrCounterLost, serial.ErrClockSkew, serial.ErrConflict, errTaken}

// handle limits the time of f, and answers if f returns an error: the client learns what to do, and the cause is
// logged.
func (s *service) handle(f func(http.ResponseWriter, *http.Request) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), patience)
		defer cancel()
		if deadline, _ := ctx.Deadline(); r.ContentLength != 0 {
			// A context does not end the read of a body, so a deadline does, until the body is read. If w does not
			// support deadlines, ReadTimeout remains.
			_ = http.NewResponseController(w).SetReadDeadline(deadline)
		}
		err := f(w, r.WithContext(ctx))
		if err == nil {
			return
		}
		log := s.log.With("method", r.Method, "path", r.URL.Path, cause(err))
		var refused refusal
		switch {
		case errors.Is(err, errStalled): // before the next case, since a failed read also ends the context of r
			log.Info("the body did not arrive in time")
			refused = errStalled
		case r.Context().Err() != nil:
			log.Info("the client has left")
			w.WriteHeader(499) // nginx's code for it; nobody reads it
			return
		case errors.Is(err, errNone):
			refused = refusal{http.StatusNotFound, "no such order"}
		case !errors.As(err, &refused):
			refused = refusal{http.StatusServiceUnavailable, "orders are temporarily unavailable; retry with the same key"}
			if slices.ContainsFunc(permanent, func(p error) bool { return errors.Is(err, p) }) {
				log.Error("needs an operator")
				break
			}
			log.Warn("unavailable") // Redis, a replica or the database is unreachable or slow
			w.Header().Set("Retry-After", "1")
		}
		write(w, refused.status, "application/problem+json", map[string]any{ // RFC 9457
			"title": http.StatusText(refused.status), "status": refused.status, "detail": refused.detail,
		})
	}
}

func write(w http.ResponseWriter, status int, contentType string, v any) {
	w.Header().Set("Content-Type", contentType)
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // a client that has left will retry
}
