package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/dailyserial/serial"
	"github.com/dailyserial/serial/serialpage"
)

// routes returns the handler of the whole service. It is an error if a.origin is not an origin.
func (s *service) routes(a access) (http.Handler, error) {
	mux := http.NewServeMux()
	for pattern, f := range map[string]func(http.ResponseWriter, *http.Request) error{
		"POST /orders":                  s.postOrder,
		"POST /orders/{number}/invoice": s.postInvoice,
		"POST /orders/{number}/void":    s.postVoidOrder,
		"POST /invoices/{number}/void":  s.postVoid,
		"POST /months/{month}/close":    s.postMonth(s.closeMonth),
		"POST /months/{month}/reopen":   s.postMonth(s.reopenMonth),
		"GET /invoices":                 s.getInvoices,
		"GET /invoices/{number}":        s.getInvoice,
	} {
		mux.HandleFunc(pattern, s.handle(f))
	}
	pages := serialpage.Options{Prefix: "/numbers", Series: s.series, User: a.name, Logger: s.log}
	// Any page that the user visits can make the browser send forms here, even if only this host can reach the service.
	guard := http.NewCrossOriginProtection()
	guard.SetDenyHandler(s.handle(func(http.ResponseWriter, *http.Request) error {
		return refusal{http.StatusForbidden, "a page of another site sent this request"}
	}))
	if a.origin != "" {
		if err := guard.AddTrustedOrigin(a.origin); err != nil {
			return nil, err
		}
		pages.TrustedOrigins = []string{a.origin}
	}
	numbers, err := serialpage.NewHandler(pages)
	if err != nil {
		return nil, err
	}
	mux.Handle("/numbers", numbers)
	mux.Handle("/numbers/", numbers)
	mux.Handle("GET /{$}", http.RedirectHandler("/numbers/", http.StatusFound))
	return guard.Handler(mux), nil
}

func (s *service) postOrder(w http.ResponseWriter, r *http.Request) error {
	var d draft
	if err := read(w, r, &d); err != nil || strings.TrimSpace(d.Customer) == "" {
		return wrongBody(err, `JSON such as {"customer": "Ada", "amount_cents": 1250}`)
	}
	o, err := s.place(r.Context(), d)
	return write(w, http.StatusCreated, o, err)
}

func (s *service) postInvoice(w http.ResponseWriter, r *http.Request) error {
	var dated struct{ Date string }
	var day time.Time
	var date serial.When
	err := read(w, r, &dated)
	if err == nil && dated.Date != "" {
		day, err = s.day(dated.Date)
		date = serial.OnDateOf(day)
	}
	if err != nil || day.After(time.Now().Add(12*time.Hour)) { // today's noon may be yet to come
		return wrongBody(err, `empty, or {"date": "2021-10-24"} to backdate the invoice`)
	}
	v, created, err := s.invoice(r.Context(), r.PathValue("number"), date)
	if created {
		return write(w, http.StatusCreated, v, err)
	}
	return write(w, http.StatusOK, v, err)
}

func (s *service) postVoidOrder(w http.ResponseWriter, r *http.Request) error {
	why, err := readReason(w, r)
	if err != nil {
		return err
	}
	err = s.voidOrder(r.Context(), r.PathValue("number"), why.Reason, why.By)
	return write(w, http.StatusOK, why, err)
}

func (s *service) postVoid(w http.ResponseWriter, r *http.Request) error {
	v, err := s.void(r.Context(), r.PathValue("number"))
	return write(w, http.StatusOK, v, err)
}

// postMonth returns a function that closes or reopens the month in the path.
func (s *service) postMonth(change func(_ context.Context, day serial.When, reason, by string) error) func(
	http.ResponseWriter, *http.Request) error {
	return func(w http.ResponseWriter, r *http.Request) error {
		day, err := s.day(r.PathValue("month") + "-01")
		if err != nil {
			return refusal{http.StatusBadRequest, "want a month such as 2021-10, from 1971-01 on"}
		}
		why, err := readReason(w, r)
		if err != nil {
			return err
		}
		return write(w, http.StatusOK, why, change(r.Context(), serial.OnDateOf(day), why.Reason, why.By))
	}
}

func (s *service) getInvoices(w http.ResponseWriter, r *http.Request) error {
	all, err := s.latest(r.Context())
	return write(w, http.StatusOK, all, err)
}

func (s *service) getInvoice(w http.ResponseWriter, r *http.Request) error {
	v, err := scan(s.db.QueryRowContext(r.Context(), selectInvoices+"WHERE number = ?", r.PathValue("number")))
	return write(w, http.StatusOK, v, err)
}

// read decodes a body, for which handle has set a deadline. An empty body leaves v unchanged.
func read(w http.ResponseWriter, r *http.Request, v any) error {
	body := json.NewDecoder(http.MaxBytesReader(w, r.Body, 64<<10))
	body.DisallowUnknownFields()
	err := body.Decode(v)
	if err == io.EOF {
		return nil
	}
	_, end := body.Token()
	switch {
	case errors.Is(errors.Join(err, end), os.ErrDeadlineExceeded):
		return errStalled
	case err == nil && end != io.EOF:
		return errors.New("more than one value")
	}
	return err
}

var errStalled = refusal{http.StatusRequestTimeout, "the body did not arrive in time"}

// A reason says why something is done and who asked for it.
type reason struct {
	Reason string `json:"reason"`
	By     string `json:"by"`
}

func readReason(w http.ResponseWriter, r *http.Request) (why reason, err error) {
	if err := read(w, r, &why); err != nil || strings.TrimSpace(why.Reason) == "" || strings.TrimSpace(why.By) == "" {
		return why, wrongBody(err, `JSON such as {"reason": "ordered twice", "by": "Ada"}`)
	}
	return why, nil
}

// wrongBody returns the refusal of a body that cannot be read or has the wrong content, unless it stalled.
func wrongBody(err error, must string) error {
	if errors.Is(err, errStalled) {
		return err
	}
	return refusal{http.StatusBadRequest, "the body must be " + must}
}

// A refusal is an error that the client can correct.
type refusal struct {
	status int
	detail string
}

func (r refusal) Error() string { return r.detail }

// handle limits the time of f and answers if f returns an error.
func (s *service) handle(f func(http.ResponseWriter, *http.Request) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), patience)
		defer cancel()
		if deadline, _ := ctx.Deadline(); r.ContentLength != 0 {
			// A context does not end the read of a body, so a deadline does. If w does not support deadlines,
			// ReadTimeout remains.
			_ = http.NewResponseController(w).SetReadDeadline(deadline)
		}
		err := f(w, r.WithContext(ctx))
		if err == nil {
			return
		}
		refused := refusal{http.StatusServiceUnavailable, "temporarily unavailable"}
		switch {
		case errors.As(err, &refused):
		case errors.Is(err, sql.ErrNoRows):
			refused = refusal{http.StatusNotFound, "no such number"}
		case r.Context().Err() == nil: // otherwise the client has left
			// The library's errors call the service's own command PROGRAM.
			cause := strings.ReplaceAll(err.Error(), "PROGRAM", "invoices-serial")
			s.log.Error("unavailable", "method", r.Method, "path", r.URL.Path, "err", cause)
		}
		_ = write(w, refused.status, map[string]string{"error": refused.detail}, nil)
	}
}

// write answers with v, or returns err if there is one.
func write(w http.ResponseWriter, status int, v any, err error) error {
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // nobody reads it if the client has left
	return nil
}
