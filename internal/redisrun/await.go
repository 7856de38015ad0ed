package redisrun

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/dailyserial/serial/internal/budget"
)

// This file waits for goroutines, and for time to pass.

// NoLimit makes [Await] wait for its context alone.
const NoLimit = time.Duration(math.MaxInt64)

// Await runs f in its own goroutine and returns its results, or ctx's error as soon as ctx ends, or [ErrNoAnswer] once
// limit has passed; f then continues by itself. If f panics, so does Await. If f ends its goroutine, the error is
// [ErrEnded].
func Await[T any](ctx context.Context, limit time.Duration, f func() (T, error)) (T, error) {
	v, err, _ := Begin(f).Wait(ctx, limit)
	return v, err
}

// A Pending is the future result of a function that runs in its own goroutine. It has room for one result, or for a
// caller that left.
type Pending[T any] chan result[T]

type result[T any] struct {
	value    T
	err      error
	panicked any
	late     func(T, error) // function of a caller that left, nil for none
}

// Begin runs f in its own goroutine. If f ends that goroutine, or panics after its caller has left, the error is
// [ErrEnded].
func Begin[T any](f func() (T, error)) Pending[T] {
	p := make(Pending[T], 1)
	go func() {
		r := result[T]{err: ErrEnded}
		defer func() {
			r.panicked = recover()
			select {
			case p <- r:
			default:
				(<-p).late(r.value, r.err)
			}
		}()
		r.value, r.err = f()
	}()
	return p
}

// Beside runs f in its own goroutine. wait waits until f has ended; if f panicked, so does wait.
func Beside(f func()) (wait func()) {
	running := Begin(func() (none any, _ error) {
		f()
		return none, nil
	})
	return func() { _, _, _ = running.Wait(context.Background(), NoLimit) }
}

// Wait waits for the results, as [Await] does. If they do not come in time, over is false, and Wait may be called
// again.
func (p Pending[T]) Wait(ctx context.Context, limit time.Duration) (v T, err error, over bool) {
	select {
	case r := <-p:
		if r.panicked != nil {
			panic(r.panicked)
		}
		return r.value, r.err, true
	case <-ctx.Done():
		return v, ctx.Err(), false
	case <-time.After(limit):
		return v, ErrNoAnswer, false
	}
}

// WaitWithin is Wait with the limit of b's next attempt, and charges b. It waits in short steps, since this process may
// be suspended.
func (p Pending[T]) WaitWithin(ctx context.Context, b *budget.Budget) (v T, err error, over bool) {
	for limit, _ := b.NextLimit(); ; {
		step, start := min(limit, budget.Step), time.Now()
		v, err, over = p.Wait(ctx, step)
		b.Spend(time.Since(start), step)
		if limit -= step; over || limit <= 0 || ctx.Err() != nil {
			return v, err, over
		}
	}
}

// Leave stops waiting: late gets the results when they come. If they have already come, Leave returns false, and Wait
// returns them. So exactly one of the caller and late gets the results.
func (p Pending[T]) Leave(late func(T, error)) bool {
	select {
	case p <- result[T]{late: late}:
		return true
	default:
		return false
	}
}

// Sleep waits for d, or returns the context's error as soon as the context ends.
func Sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return fmt.Errorf("serial: gave up waiting: %w", ctx.Err())
	}
}
