package wire_test

import (
	"context"
	"io"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dailyserial/serial/internal/race"
	"github.com/dailyserial/serial/internal/wire"
)

func TestAwait(t *testing.T) {
	race.Bubble(t, func(t *testing.T) {
		v, over, err := wire.Await(t.Context(), func() (int, error) { return 7, io.EOF }, nil)
		require.Equal(t, []any{7, true, io.EOF}, []any{v, over, err})

		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		late := 0
		_, over, err = wire.Await(ctx, func() (int, error) {
			time.Sleep(time.Minute)
			return 8, io.EOF
		}, func(v int, err error) {
			require.Equal(t, io.EOF, err)
			late = v
		})
		require.Equal(t, []any{0, false, context.DeadlineExceeded}, []any{late, over, err})
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Equal(t, 8, late, "it continues by itself")

		require.PanicsWithValue(t, "f", func() {
			_, _, _ = wire.Await(t.Context(), func() (int, error) { panic("f") }, nil)
		})
		_, _, err = wire.Await(t.Context(), func() (int, error) { runtime.Goexit(); return 0, nil }, nil)
		require.Equal(t, wire.ErrEnded, err)

		start := time.Now()
		require.NoError(t, wire.Sleep(t.Context(), time.Second))
		ctx, cancel = context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err = wire.Sleep(ctx, time.Hour)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorContains(t, err, "serial: gave up waiting: ")
		require.Equal(t, 2*time.Second, time.Since(start))
	})
}

// The context ends at the moment at which the result arrives. Either the caller or late must get the result, and never
// both.
func TestAwaitOrLate(t *testing.T) {
	for range 1000 {
		ctx, cancel := context.WithCancel(t.Context())
		go cancel()
		late := make(chan int, 1)
		v, over, _ := wire.Await(ctx, func() (int, error) { return 7, nil }, func(v int, _ error) { late <- v })
		if !over {
			v = <-late
		}
		require.Equal(t, 7, v)
		require.Empty(t, late)
	}
}
