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
// limit has passed; f then goes on by itself. A panic of f is the caller's. If f's goroutine is ended, that is [ErrEnded].
func Await[T any](ctx context.Context, limit time.Duration, f func() (T, error)) (T, error) {
	return begin(f).wait(ctx, limit)
}

// A pending is something that runs in a goroutine of its own.
type pending[T any] chan result[T]

type result[T any] struct {
	v        T
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
		r.v, r.err = f()
	}()
	return p
}

// wait is Await for what has begun. After ErrNoAnswer it may be called again.
func (p pending[T]) wait(ctx context.Context, limit time.Duration) (none T, err error) {
	var timeout <-chan time.Time
	if limit != NoLimit {
		timer := time.NewTimer(limit)
		defer timer.Stop()
		timeout = timer.C
	}
	select {
	case r := <-p:
		if r.panicked != nil {
			panic(r.panicked)
		}
		return r.v, r.err
	case <-ctx.Done():
		return none, ctx.Err()
	case <-timeout:
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
