package serial_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/dailyserial/serial"
)

// A caller of NextOnce leaves while its call opens the day. It was issued nothing, so its request must not get the number that
// was issued last.
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
					number, err := textOf(gen.NextOnce(t.Context(), "IS", "a"))
					require.NoError(t, err)
					require.Equal(t, "IS200001010042", number)
				})
			})
			require.Less(t, left, 20)
		}
	}
}

// Numbers are issued while Redis's clock is ahead. The periods between now and that time were never used, so they are not lost
// when the clock is right again.
func TestGapsWhileTheClockWasAhead(t *testing.T) {
	layouts := map[serial.Period]string{
		serial.PerSecond: "yyyyMMddHHmmss", serial.PerMinute: "yyyyMMddHHmm",
		serial.PerHour: "yyyyMMddHH", serial.PerDay: "yyyyMMdd",
	}
	units := map[serial.Period]time.Duration{
		serial.PerSecond: time.Second, serial.PerMinute: time.Minute, serial.PerHour: time.Hour, serial.PerDay: 24 * time.Hour,
	}
	for per, unit := range units {
		t.Run(per.String(), func(t *testing.T) {
			m := miniredis.RunT(t)
			m.ClockTTL(true)
			start := time.Date(2024, 3, 4, 5, 6, 7, 0, time.UTC)
			m.SetTime(start)
			rdb := closing(t, redis.NewClient(&redis.Options{Addr: m.Addr()}))
			gen := newGenerator(t, rdb, serial.WithLocation(time.UTC), serial.WithMaxSkew(-1), serial.WithPeriod(per),
				serial.WithTemplate("{type}{date:"+layouts[per]+"}{seq}"))
			at := func(units int) error {
				m.SetTime(start.Add(time.Duration(units) * unit))
				_, err := gen.Next(t.Context(), "IS")
				return err
			}
			for i := range 3 {
				require.NoError(t, at(3*i), "gaps before")
			}
			for i := range 5 {
				require.NoError(t, at(100+2*i), "ahead")
			}
			require.ErrorIs(t, at(10), serial.ErrClockSkew)
			require.NoError(t, gen.Raise(t.Context(), "IS", 0))
			for i := 10; i < 100; i += 3 { // those from 100 on have expired, and are lost
				require.NoError(t, at(i), "unit %d", i)
			}
		})
	}
}

// The clock is ahead more than once, by less each time. The periods between two of those times were never used.
func TestClockAheadByLessEachTime(t *testing.T) {
	m := miniredis.RunT(t)
	m.ClockTTL(true)
	start := time.Date(2024, 3, 4, 5, 6, 7, 0, time.UTC)
	m.SetTime(start)
	rdb := closing(t, redis.NewClient(&redis.Options{Addr: m.Addr()}))
	gen := newGenerator(t, rdb, serial.WithLocation(time.UTC), serial.WithMaxSkew(-1), serial.WithPeriod(serial.PerSecond),
		serial.WithTemplate("{type}{date:yyyyMMddHHmmss}{seq}"))
	at := func(seconds int) error {
		m.SetTime(start.Add(time.Duration(seconds) * time.Second))
		_, err := gen.Next(t.Context(), "IS")
		return err
	}
	require.NoError(t, at(0))
	require.NoError(t, at(1))
	for i, ahead := range []int{4000, 2000} {
		require.NoError(t, at(ahead))
		require.ErrorIs(t, at(10+10*i), serial.ErrClockSkew)
		require.NoError(t, gen.Raise(t.Context(), "IS", 0))
	}
	for seconds := 25; seconds < 4000; seconds += 250 {
		require.NoError(t, at(seconds), "after %d s", seconds)
	}
}

// A generator that issued numbers while the clock was ahead still has a mark for those that it issues afterwards.
func TestMarkAfterAClockThatWasAhead(t *testing.T) {
	m := miniredis.RunT(t)
	rdb := closing(t, redis.NewClient(&redis.Options{Addr: m.Addr()}))
	day := time.Date(2021, 10, 24, 12, 0, 0, 0, time.UTC)
	gen := newGenerator(t, rdb, serial.WithLocation(time.UTC), serial.WithMaxSkew(-1))
	for _, ahead := range []int{0, 3} {
		m.SetTime(day.AddDate(0, 0, ahead))
		_, err := gen.NextN(t.Context(), "IS", 5)
		require.NoError(t, err)
	}
	m.SetTime(day)
	require.NoError(t, gen.Raise(t.Context(), "IS", 0))
	for seq := 6; seq <= 8; seq++ {
		number, err := gen.Next(t.Context(), "IS")
		require.NoError(t, err)
		require.Equal(t, fmt.Sprintf("IS20211024%04d", seq), number)
	}
	require.NoError(t, m.Set("serial:{IS}:20211024", "2"))
	m.SetTTL("serial:{IS}:20211024", time.Hour)
	_, err := gen.Next(t.Context(), "IS")
	require.ErrorIs(t, err, serial.ErrCounterLost)
}
