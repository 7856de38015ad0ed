package serial_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/dailyserial/serial"
)

// The reply to an earlier call arrives last: the greatest sequence is remembered, not the latest.
func TestHighWaterMarkOfLateReplies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := simulate(t)
		var hold atomic.Bool
		gen := newGenerator(t, m.client(hook(func(next redis.ProcessHook) redis.ProcessHook {
			return func(ctx context.Context, cmd redis.Cmder) error {
				err := next(ctx, cmd)
				if strings.HasPrefix(cmd.Name(), "eval") && hold.CompareAndSwap(true, false) {
					time.Sleep(time.Second)
				}
				return err
			}
		})), serial.WithLocation(time.UTC))
		_, err := gen.Next(t.Context(), "IS")
		require.NoError(t, err)
		hold.Store(true)
		late := make(chan []string)
		go func() {
			got, err := textsOf(gen.NextN(t.Context(), "IS", 2))
			require.NoError(t, err)
			late <- got
		}()
		synctest.Wait()
		got, err := textsOf(gen.NextN(t.Context(), "IS", 2))
		require.NoError(t, err)
		require.Equal(t, numbers("IS", "20000101", 4, 5), got)
		require.Equal(t, numbers("IS", "20000101", 2, 3), <-late)
		require.NoError(t, m.Set("serial:{IS}:20000101", "4"))
		m.SetTTL("serial:{IS}:20000101", time.Hour)
		_, err = gen.Next(t.Context(), "IS")
		require.ErrorIs(t, err, serial.ErrCounterLost)
	})
}
