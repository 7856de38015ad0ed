package redisrun

import (
	"context"
	"fmt"
	"math"
	"time"
)

// This file waits: for what goes on in another goroutine, and for time to pass.

// NoLimit makes [Await] wait for its context alone.
const NoLimit = time.Duration(math.MaxInt64)

// Await runs f in a goroutine of its own and returns its results, or ctx's error as soon as that ends, or [ErrNoAnswer] once
// limit has passed; f then goes on by itself. If f panics, so does Await. If f ends its goroutine, the error is [ErrEnded].
func Await[T any](ctx context.Context, limit time.Duration, f func() (T, error)) (T, error) {
	return begin(f).wait(ctx, limit)
}

// A pending is the result of a function that runs in a goroutine of its own.
type pending[T any] chan result[T]

type result[T any] struct {
	value    T
	err      error
	panicked any
}

func begin[T any](f func() (T, error)) pending[T] {
	p := make(pending[T], 1)
	go func() {
		r := result[T]{err: ErrEnded}
		defer func() {
			r.panicked = recover()
			p <- r
		}()
		r.value, r.err = f()
	}()
	return p
}

// wait is the second half of Await. After ErrNoAnswer it may be called again.
func (p pending[T]) wait(ctx context.Context, limit time.Duration) (none T, err error) {
	select {
	case r := <-p:
		if r.panicked != nil {
			panic(r.panicked)
		}
		return r.value, r.err
	case <-ctx.Done():
		return none, ctx.Err()
	case <-time.After(limit):
		return none, ErrNoAnswer
	}
}

// Sleep waits for d, or returns the context's error as soon as it ends.
func Sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return fmt.Errorf("serial: gave up waiting: %w", ctx.Err())
	}
}
