package serial_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/dailyserial/serial"
	"github.com/dailyserial/serial/serialtest"
)

// heard records what hooks are told, without durations unless they are remarkable.
type heard struct {
	mu    sync.Mutex
	lines []string
}

func (h *heard) say(ctx context.Context, format string, args ...any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.lines = append(h.lines, fmt.Sprintf(format, args...)+fmt.Sprint(ctx.Value(h)))
}

// take returns what was heard since the last time.
func (h *heard) take() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	lines := h.lines
	h.lines = nil
	return lines
}

func (h *heard) hooks() serial.Hooks {
	return serial.Hooks{
		Issued: func(ctx context.Context, i serial.IssuedInfo) {
			h.say(ctx, "issued %d to %v in %v", i.Count, i.Last, i.Duration)
		},
		Failed: func(ctx context.Context, i serial.FailedInfo) {
			h.say(ctx, "failed %d %s: %v", i.Count, i.Type, errors.Is(i.Err, serial.ErrExhausted))
		},
		Opened: func(ctx context.Context, i serial.OpenedInfo) {
			h.say(ctx, "opened %s %s after %v", i.Type, i.Start.Format("20060102"), i.Wait)
			time.Sleep(time.Minute) // which is not the call's
		},
		Lost: func(ctx context.Context, i serial.LostInfo) {
			h.say(ctx, "lost %s %s: %q", i.Type, i.Start.Format("20060102"), i.Held)
		},
		ClockCorrected: func(ctx context.Context, i serial.ClockInfo) { h.say(ctx, "clock %v, not %v", i.Offset, i.Before) },
		NearlyExhausted: func(ctx context.Context, i serial.ExhaustionInfo) {
			h.say(ctx, "%d of %d used, %v", i.Used, i.Size, i.Last)
		},
	}
}

func TestHooks(t *testing.T) {
	inBubble(t, func(t *testing.T, m *simulation) {
		h := &heard{}
		ctx := context.WithValue(t.Context(), h, " ok")
		slow := around(func(cmd redis.Cmder, send func() error) error {
			if cmd.Name() == "set" {
				time.Sleep(time.Second)
			}
			return send()
		})
		opts := []serial.Option{serial.WithLocation(time.UTC), serial.WithHooks(h.hooks()),
			serial.WithTemplate("{type}{date:yyyyMMdd}{seq:2}"), serial.WithStart(50)}
		gen := newGenerator(t, m.client(slow), opts...)
		requireHeard := func(want ...string) {
			t.Helper()
			for i := range want {
				want[i] += " ok"
			}
			require.Equal(t, want, h.take())
		}
		next := func(gen *serial.Generator) {
			t.Helper()
			require.NoError(t, errOf(gen.Next(ctx, "IS")))
		}

		next(gen)
		requireHeard("opened IS 20000101 after 1s", "issued 1 to IS2000010150 in 1s")
		require.NoError(t, errOf(gen.NextN(ctx, "IS", 3)))
		require.NoError(t, errOf(gen.NextOnce(ctx, "IS", "a")))
		require.NoError(t, errOf(gen.NextOnce(ctx, "IS", "a")))
		requireHeard("issued 3 to IS2000010153 in 0s", "issued 1 to IS2000010154 in 0s", "issued 0 to IS2000010154 in 0s")

		require.ErrorIs(t, errOf(gen.NextN(ctx, "IS", 51)), serial.ErrExhausted)
		require.ErrorIs(t, errOf(gen.Next(ctx, "I S")), serial.ErrInvalidType)
		require.Error(t, errOf(gen.NextOnce(ctx, "IS", "")))
		require.Error(t, errOf(gen.NextN(ctx, "IS", 0)))
		requireHeard("failed 51 IS: true", "failed 1 I S: false", "failed 1 IS: false", "failed 0 IS: false")

		// 80 % of 50 numbers are 40: the 89th.
		require.NoError(t, errOf(gen.NextN(ctx, "IS", 34)))
		next(gen)
		next(gen)
		requireHeard("issued 34 to IS2000010188 in 0s", "issued 1 to IS2000010189 in 0s", "40 of 50 used, IS2000010189",
			"issued 1 to IS2000010190 in 0s")

		m.Set("serial:{IS}:20000101", "7")
		require.ErrorIs(t, errOf(gen.Next(ctx, "IS")), serial.ErrCounterLost)
		require.ErrorIs(t, errOf(gen.Peek(ctx, "IS")), serial.ErrCounterLost)
		requireHeard(`lost IS 20000101: "7"`, "failed 1 IS: false", `lost IS 20000101: "7"`)
		require.NoError(t, gen.Raise(ctx, "IS", 60))
		next(gen)
		requireHeard(`lost IS 20000101: "7"`, "opened IS 20000101 after 0s", "issued 1 to IS2000010191 in 0s")
		require.NoError(t, gen.Raise(ctx, "IS", 95))
		require.NoError(t, gen.Prepare(ctx, "IS", 2))
		requireHeard()

		// Redis's clock is an hour ahead: the hook runs once, on the next day.
		m.SetTime(time.Now().Add(24 * time.Hour))
		time.Sleep(23*time.Hour + 30*time.Minute)
		m.SetTime(time.Now().Add(59 * time.Minute))
		next(gen)
		got := h.take()
		require.Len(t, got, 2, got)
		require.Equal(t, "clock 59m0s, not 0s ok", got[0])
		m.SetTime(time.Time{})

		// With a ledger a lost counter is repaired, and the hook runs too.
		time.Sleep(24 * time.Hour)
		l := new(serialtest.Ledger)
		gen = newGenerator(t, m.client(), append(opts, serial.WithLedger(l, 10))...)
		next(gen)
		m.Del("serial:{IS}:" + time.Now().Format("20060102"))
		next(gen)
		got = h.take()
		require.Len(t, got, 5)
		require.Equal(t, "lost IS "+time.Now().Format("20060102")+`: "" ok`, got[2])
	})
}

// Several generators may share one option, concurrently.
func TestHooksOfSeveral(t *testing.T) {
	rdb := simulate(t).client()
	option := serial.WithHooks(serial.Hooks{})
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			require.NoError(t, errOf(serial.New(rdb, option)))
		})
	}
	wg.Wait()
}

// A hook that panics, blocks or calls the generator stops no other caller, and the number is issued.
func TestHooksMisbehave(t *testing.T) {
	inBubble(t, func(t *testing.T, m *simulation) {
		var gen *serial.Generator
		block := make(chan struct{})
		var blocked, inner atomic.Bool
		gen = newGenerator(t, m.client(), serial.WithLocation(time.UTC), serial.WithHooks(serial.Hooks{
			Opened: func(context.Context, serial.OpenedInfo) { panic("boom") },
			Issued: func(ctx context.Context, i serial.IssuedInfo) {
				switch {
				case i.Last.Type == "BLOCKS":
					blocked.Store(true)
					<-block
				case i.Last.Type == "ASKS" && inner.CompareAndSwap(false, true):
					require.NoError(t, errOf(gen.Next(ctx, "ASKS")))
				}
				panic("boom")
			},
			Failed: func(context.Context, serial.FailedInfo) { panic("boom") },
		}))
		var wg sync.WaitGroup
		wg.Go(func() {
			number, err := gen.Next(t.Context(), "BLOCKS")
			require.NoError(t, err)
			require.Equal(t, "BLOCKS200001010001", number)
		})
		synctest.Wait()
		require.True(t, blocked.Load())
		for _, typ := range []string{"IS", "ASKS"} {
			number, err := gen.Next(t.Context(), typ)
			require.NoError(t, err)
			require.Equal(t, typ+"200001010001", number)
		}
		number, err := newGenerator(t, m.client(), serial.WithLocation(time.UTC)).Next(t.Context(), "BLOCKS")
		require.NoError(t, err)
		require.Equal(t, "BLOCKS200001010002", number, "the lock is free")
		require.ErrorIs(t, errOf(gen.Next(t.Context(), "")), serial.ErrInvalidType)
		close(block)
		wg.Wait()
	})
}

// Callers who share a script call run Issued for each of them, and NearlyExhausted once.
func TestHooksOfMany(t *testing.T) {
	m := simulate(t)
	var issued, near atomic.Int64
	gen := newGenerator(t, m.client(), serial.WithLocation(noon()), serial.WithTemplate("{type}{date:yyyyMMdd}{seq:2}"),
		serial.WithHooks(serial.Hooks{
			Issued:            func(_ context.Context, i serial.IssuedInfo) { issued.Add(int64(i.Count)) },
			NearlyExhausted:   func(context.Context, serial.ExhaustionInfo) { near.Add(1) },
			NearlyExhaustedAt: 0.5,
		}))
	barrier(t, 99, func(int) (string, error) { return gen.Next(t.Context(), "IS") })
	require.EqualValues(t, 99, issued.Load())
	require.EqualValues(t, 1, near.Load())
}
