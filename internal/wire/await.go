package wire

import (
	"context"
	"fmt"
	"time"
)

// This file contains functions that wait for a goroutine or for time to pass.

// Await runs f in a new goroutine and returns its results, with over set to true. If ctx ends first, Await returns the
// error of ctx, with over set to false. The function f then continues, and its results are passed to the function late,
// unless that is nil. So the results go either to the caller or to late, but never to both. If f panics, Await panics
// with the same value. If f ends its goroutine, or panics after Await has returned, the error is [ErrEnded].
func Await[T any](ctx context.Context, f func() (T, error), late func(T, error)) (v T, over bool, err error) {
	type result struct {
		value    T
		err      error
		panicked any
	}
	results, left := make(chan result), make(chan struct{})
	go func() {
		r := result{err: ErrEnded}
		defer func() {
			r.panicked = recover()
			select {
			case results <- r:
			case <-left:
				if late != nil {
					late(r.value, r.err)
				}
			}
		}()
		r.value, r.err = f()
	}()
	select {
	case r := <-results:
		if r.panicked != nil {
			panic(r.panicked)
		}
		return r.value, true, r.err
	case <-ctx.Done():
		close(left)
		return v, false, ctx.Err()
	}
}

// Sleep waits for d. If ctx ends first, Sleep returns an error that wraps that of ctx.
func Sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return fmt.Errorf("serial: gave up waiting: %w", ctx.Err())
	}
}
