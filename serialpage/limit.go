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

// ServeHTTP responds within Limit, even if a function of Options or Series does not return. These functions run in
// another goroutine. ServeHTTP does not wait for this goroutine after the limit.
func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), h.Limit)
	defer cancel()
	a := newResponse()
	body, err := h.readBody(ctx, w, r)
	if err == nil {
		// The context of the functions ends earlier, so that enough time is left for an error page.
		inner, cancel := context.WithTimeout(ctx, h.Limit-min(h.Limit/2, time.Second/2))
		defer cancel()
		r := r.WithContext(inner)
		r.Body = body
		served := newResponse() // must not be read after the limit, because the goroutine may still write to it
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

// within calls f in another goroutine, and returns true and the error of f. If ctx ends first, within returns false and
// the error of ctx, and the goroutine continues to run.
func (h *handler) within(ctx context.Context, r *http.Request, f func() error) (ended bool, err error) {
	select {
	case err := <-h.run(r, f):
		return true, err
	case <-ctx.Done():
		return false, ctx.Err()
	}
}

// run calls f in another goroutine, and returns a channel that receives the error of f. If f panics or calls
// runtime.Goexit, the error is a problem. In this case, run logs the cause itself, because the response may already
// have been sent.
func (h *handler) run(r *http.Request, f func() error) <-chan error {
	ended := make(chan error, 1)
	go func() {
		var err error
		returned := false
		defer func() {
			if !returned { // f has panicked or ended the goroutine
				h.log(r, "a function of the application failed", fmt.Sprintf("panic: %v\n%s", recover(), debug.Stack()))
				err = &problem{status: http.StatusInternalServerError,
					text: "This request failed. Inform the operator of this service."}
			}
			ended <- err
		}()
		err, returned = f(), true
	}()
	return ended
}

// readBody reads the whole body of a request into memory. It stops when ctx ends.
func (h *handler) readBody(ctx context.Context, w http.ResponseWriter, r *http.Request) (io.ReadCloser, error) {
	if r.Body == nil || r.Body == http.NoBody {
		return r.Body, nil
	}
	stop := context.AfterFunc(ctx, func() { _ = http.NewResponseController(w).SetReadDeadline(time.Unix(1, 0)) })
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxFormBytes))
	var large *http.MaxBytesError
	switch {
	case !stop():
		w.Header().Set("Connection", "close") // because the rest of the body may still arrive
		return nil, &problem{status: http.StatusServiceUnavailable, text: "The form took too long to arrive.", retry: true}
	case errors.As(err, &large):
		return nil, &problem{status: http.StatusRequestEntityTooLarge, text: "The form is too large."}
	case err != nil:
		return nil, badRequest("The form could not be read.")
	}
	return io.NopCloser(bytes.NewReader(body)), nil
}

// A response is an http.ResponseWriter that buffers a response until it is complete.
type response struct {
	header http.Header
	status int
	bytes.Buffer
}

func newResponse() *response {
	return &response{status: http.StatusOK, header: http.Header{
		"Content-Security-Policy": {"default-src 'none'; style-src 'self'; img-src 'self'; form-action 'self'; " +
			"frame-ancestors 'none'; base-uri 'none'"},
		"X-Frame-Options": {"DENY"}, "X-Content-Type-Options": {"nosniff"}, "Referrer-Policy": {"same-origin"},
		"Cache-Control": {"no-store"},
	}}
}

func (a *response) Header() http.Header { return a.header }

func (a *response) WriteHeader(status int) { a.status = status }

func (a *response) send(w http.ResponseWriter) {
	maps.Copy(w.Header(), a.header)
	w.WriteHeader(a.status)
	_, _ = a.WriteTo(w) // fails if the client has disconnected
}
