package wire_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dailyserial/serial/internal/wire"
)

func TestDo(t *testing.T) {
	inBubble(t, func(t *testing.T, x *fixture) {
		for i, ctx := range []context.Context{context.Background(), context.Background(), t.Context(), t.Context()} {
			c := newCall("k", "")
			n, err := x.do(ctx, c)
			require.NoError(t, err)
			require.Equal(t, i+1, n)
			require.EqualValues(t, 1, c.done.Load())
			require.Empty(t, c.lostErrors())
			require.NoError(t, c.Result.Earlier, "the script did not run before")
			require.False(t, c.Result.Sent.IsZero() || c.Result.Received.Before(c.Result.Sent))
		}
		require.Equal(t, []string{"evalsha:k", "eval:k", "evalsha:k", "evalsha:k", "evalsha:k"}, x.arrived())
		require.Equal(t, "local", x.node.Local)

		c := plain(1, "incrby", "k", 5)
		_, err := x.do(t.Context(), c)
		require.NoError(t, err)
		require.EqualValues(t, 9, c.Result.Value)
		c = plain(1, "get", "none")
		_, err = x.do(t.Context(), c)
		require.NoError(t, err, "a null is an answer")
		require.Nil(t, c.Result.Value)
	})
}

// The server returns an error. The caller must get this error, and the error must not match an error of a context.
func TestServerRefuses(t *testing.T) {
	inBubble(t, func(t *testing.T, x *fixture) {
		x.warm(t)
		for _, ctx := range []context.Context{context.Background(), t.Context()} {
			x.set(func() { x.on = func([]string) any { return errors.New("NOPERM this user has no permissions") } })
			c := newCall("k", "")
			_, err := x.do(ctx, c)
			require.True(t, wire.IsOutage(err))
			require.EqualError(t, err, "serial: Redis failed: NOPERM this user has no permissions; "+
				"an ACL denies this client's user a command or a key that is needed")
			require.Empty(t, c.lostErrors(), "it did not run")
			x.set(func() { x.on = func([]string) any { return errors.New("ERR value is not an integer") } })
			c = newCall("k", "")
			_, err = x.do(ctx, c)
			require.ErrorContains(t, err, "serial: Redis failed: ERR value")
			require.Len(t, c.lostErrors(), 1)
			require.EqualValues(t, 1, c.done.Load())
		}
		x.set(func() { x.on = nil })
	})
}

// The server hangs. A call must return when its context ends or its deadline passes.
func TestCallerLeaves(t *testing.T) {
	inBubble(t, func(t *testing.T, x *fixture) {
		x.warm(t)
		x.set(func() { x.delay = 3 * time.Second })
		for _, limit := range []time.Duration{time.Second, 2 * time.Second} {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			if limit > time.Second {
				cancel()
				ctx, cancel = context.WithCancel(t.Context())
			}
			c := newCall("k", "")
			c.Deadline = time.Now().Add(2 * time.Second)
			start := time.Now()
			_, err := x.do(ctx, c)
			require.Equal(t, limit, time.Since(start))
			require.ErrorContains(t, err, "serial: gave up waiting for Redis, which may have run the command: ")
			if limit == time.Second {
				require.ErrorIs(t, err, context.DeadlineExceeded)
			} else {
				require.ErrorIs(t, err, wire.ErrNoAnswer)
			}
			require.NotContains(t, err.Error(), "suspended")
			require.Zero(t, c.done.Load())
			require.EqualValues(t, 1, c.leaves.Load())
			time.Sleep(3 * time.Second)
			require.EqualValues(t, 1, c.done.Load(), "the answer came late")
			require.Equal(t, []int{0}, c.leftPlaces())
			cancel()
		}
		require.Equal(t, 2, x.counter("k"))
	})
}
