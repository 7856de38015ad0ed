package serialpage

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"runtime/debug"
	"time"
)

// ServeHTTP answers within Limit, whatever the functions of Options and Series do. They run in another goroutine, which
// it leaves behind at the limit.
func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), h.Limit)
	defer cancel()
	a := newAnswer()
	body, err := h.readBody(ctx, w, r)
	if err == nil {
		// The functions get less time, so there is enough left to say what failed.
		inner, cancel := context.WithTimeout(ctx, h.Limit-min(h.Limit/2, time.Second/2))
		defer cancel()
		r := r.WithContext(inner)
		r.Body = body
		served := newAnswer() // not read at the limit: the goroutine may still write to it
		var ended bool
		if ended, err = h.within(ctx, r, func() error { return h.serve(served, r) }); ended {
			a = served
		}
	}
	if err != nil {
		h.fail(a, r, err)
	}
	a.send(w)
}

// within calls f in another goroutine, and returns its error. If ctx ends earlier, ended is false, err is that of ctx,
// and the goroutine is left behind.
func (h *handler) within(ctx context.Context, r *http.Request, f func() error) (ended bool, err error) {
	select {
	case err := <-h.run(r, f):
		return true, err
	case <-ctx.Done():
		return false, ctx.Err()
	}
}

// run calls f in another goroutine and returns a channel that receives its error. If f panics or ends the goroutine,
// the error is a problem, and run logs why: the request may already have been answered.
func (h *handler) run(r *http.Request, f func() error) <-chan error {
	ended := make(chan error, 1)
	go func() {
		var err error
		returned := false
		defer func() {
			if !returned { // f panicked or ended the goroutine
				h.log(r, "a function of the application failed", fmt.Sprintf("panic: %v\n%s", recover(), debug.Stack()))
				err = &problem{status: http.StatusInternalServerError,
					text: "This request failed. Inform whoever runs the service."}
			}
			ended <- err
		}()
		err, returned = f(), true
	}()
	return ended
}

// readBody reads the body of a request before ctx ends.
func (h *handler) readBody(ctx context.Context, w http.ResponseWriter, r *http.Request) (io.ReadCloser, error) {
	if r.Body == nil || r.Body == http.NoBody {
		return r.Body, nil
	}
	stop := context.AfterFunc(ctx, func() { _ = http.NewResponseController(w).SetReadDeadline(time.Unix(1, 0)) })
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, largestForm))
	var large *http.MaxBytesError
	switch {
	case !stop():
		w.Header().Set("Connection", "close") // the rest of the body may still come
		return nil, &problem{status: http.StatusServiceUnavailable, text: "The form took too long to arrive.", retry: true}
	case errors.As(err, &large):
		return nil, &problem{status: http.StatusRequestEntityTooLarge, text: "The form is too large."}
	case err != nil:
		return nil, badRequest("The form could not be read.")
	}
	return io.NopCloser(bytes.NewReader(body)), nil
}

// An answer collects a response, which is sent when it is complete.
type answer struct {
	header http.Header
	status int
	bytes.Buffer
}

func newAnswer() *answer {
	return &answer{status: http.StatusOK, header: http.Header{
		"Content-Security-Policy": {"default-src 'none'; style-src 'self'; img-src 'self'; form-action 'self'; " +
			"frame-ancestors 'none'; base-uri 'none'"},
		"X-Frame-Options": {"DENY"}, "X-Content-Type-Options": {"nosniff"}, "Referrer-Policy": {"same-origin"},
		"Cache-Control": {"no-store"},
	}}
}

func (a *answer) Header() http.Header { return a.header }

func (a *answer) WriteHeader(status int) { a.status = status }

func (a *answer) send(w http.ResponseWriter) {
	maps.Copy(w.Header(), a.header)
	w.WriteHeader(a.status)
	_, _ = a.WriteTo(w) // it fails if the client has left
}
