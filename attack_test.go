package serial_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/dailyserial/serial"
)

// A caller of NextOnce leaves while its call opens the day. It was issued nothing, so the request must not be answered with
// the number that came last.
func TestOnceWhoseCallerLeavesAnOpening(t *testing.T) {
	for _, ledger := range []bool{false, true} {
		for left, done := 1, false; !done; left++ {
			t.Run(fmt.Sprintf("ledger %v, command %d", ledger, left), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					m := simulate(t)
					reigning(m.Miniredis)
					m.Set("serial:{IS}:20000101", "41") // issued by something else
					opts := []serial.Option{serial.WithLocation(time.UTC)}
					if ledger {
						opts = append(opts, serial.WithLedger(&notebook{}, 3))
					}
					ctx, cancel := context.WithCancel(t.Context())
					defer cancel()
					commands := 0
					gen := newGenerator(t, m.client(hook(func(next redis.ProcessHook) redis.ProcessHook {
						return func(within context.Context, cmd redis.Cmder) error {
							err := next(within, cmd)
							if commands++; commands == left {
								cancel()
							}
							return err
						}
					})), opts...)
					_, err := gen.NextOnce(ctx, "IS", "a")
					synctest.Wait()
					done = err == nil
					number, err := gen.NextOnce(t.Context(), "IS", "a")
					require.NoError(t, err)
					require.Equal(t, "IS200001010042", number)
				})
			})
			require.Less(t, left, 20)
		}
	}
}
