package serial_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/dailyserial/serial"
)

// holding delays the reply to one script by a second, once armed is set.
func holding(armed *atomic.Bool) hook {
	return around(func(cmd redis.Cmder, send func() error) error {
		err := send()
		if strings.HasPrefix(cmd.Name(), "eval") && armed.CompareAndSwap(true, false) {
			time.Sleep(time.Second)
		}
		return err
	})
}

// The reply to an earlier call arrives last: the greatest sequence is remembered, not the latest.
func TestHighWaterMarkOfLateReplies(t *testing.T) {
	inBubble(t, func(t *testing.T, m *simulation) {
		var armed atomic.Bool
		gen := newGenerator(t, m.client(holding(&armed)), serial.WithLocation(time.UTC))
		require.NoError(t, errOf(gen.Next(t.Context(), "IS")))
		armed.Store(true)
		late := make(chan []string)
		go func() {
			got, err := textsOf(gen.NextN(t.Context(), "IS", 2))
			require.NoError(t, err)
			late <- got
		}()
		synctest.Wait()
		requireResult(t, numbers("IS", "20000101", 4, 5))(textsOf(gen.NextN(t.Context(), "IS", 2)))
		require.Equal(t, numbers("IS", "20000101", 2, 3), <-late)
		require.NoError(t, m.Set("serial:{IS}:20000101", "4"))
		m.SetTTL("serial:{IS}:20000101", time.Hour)
		require.ErrorIs(t, errOf(gen.Next(t.Context(), "IS")), serial.ErrCounterLost)
	})
}

// A reply of yesterday arrives after midnight: today's numbers are remembered all the same.
func TestHighWaterMarkOfLateRepliesAcrossMidnight(t *testing.T) {
	inBubble(t, func(t *testing.T, m *simulation) {
		var armed atomic.Bool
		gen := newGenerator(t, m.client(holding(&armed)), serial.WithLocation(time.UTC))
		require.NoError(t, errOf(gen.Next(t.Context(), "IS")))
		time.Sleep(24*time.Hour - time.Millisecond)
		armed.Store(true)
		late := make(chan []string)
		go func() {
			got, err := textsOf(gen.NextN(t.Context(), "IS", 2))
			require.NoError(t, err)
			late <- got
		}()
		time.Sleep(time.Millisecond)
		got, err := textsOf(gen.NextN(t.Context(), "IS", 5))
		require.NoError(t, err)
		require.Equal(t, numbers("IS", "20000102", 1, 5), got)
		require.Equal(t, numbers("IS", "20000101", 2, 3), <-late)
		require.NoError(t, m.Set("serial:{IS}:20000102", "4"))
		m.SetTTL("serial:{IS}:20000102", time.Hour)
		require.ErrorIs(t, errOf(gen.Next(t.Context(), "IS")), serial.ErrCounterLost)
	})
}

// A generator that issued numbers while the clock was ahead still has a mark for those that it issues afterwards.
func TestMarkAfterAClockThatWasAhead(t *testing.T) {
	m, rdb := startMini(t)
	day := time.Date(2021, 10, 24, 12, 0, 0, 0, time.UTC)
	gen := newGenerator(t, rdb, serial.WithLocation(time.UTC), serial.WithMaxSkew(-1))
	for _, ahead := range []int{0, 3} {
		m.SetTime(day.AddDate(0, 0, ahead))
		require.NoError(t, errOf(gen.NextN(t.Context(), "IS", 5)))
	}
	m.SetTime(day)
	require.NoError(t, gen.Raise(t.Context(), "IS", 0))
	for seq := 6; seq <= 8; seq++ {
		requireResult(t, fmt.Sprintf("IS20211024%04d", seq))(gen.Next(t.Context(), "IS"))
	}
	require.NoError(t, m.Set("serial:{IS}:20211024", "2"))
	m.SetTTL("serial:{IS}:20211024", time.Hour)
	require.ErrorIs(t, errOf(gen.Next(t.Context(), "IS")), serial.ErrCounterLost)
}

// After the clock jumped past midnight and came back, a type that is seen for the first time has a mark like any other.
func TestMarksAfterAClockThatJumped(t *testing.T) {
	m, rdb := startMini(t)
	gen := newGenerator(t, rdb, serial.WithLocation(time.UTC), serial.WithMaxSkew(-1))
	m.SetTime(time.Now().Add(36 * time.Hour))
	require.NoError(t, errOf(gen.Next(t.Context(), "A")))
	m.SetTime(time.Time{})
	require.NoError(t, errOf(gen.NextN(t.Context(), "B", 5)))
	require.NoError(t, m.Set("serial:{B}:"+today(time.UTC), "2"))
	require.ErrorIs(t, errOf(gen.Next(t.Context(), "B")), serial.ErrCounterLost)
}

// Types that were used on an earlier day only cost no memory.
func TestMemoryOfTypes(t *testing.T) {
	inBubble(t, func(t *testing.T, m *simulation) {
		gen := newGenerator(t, m.client(), serial.WithLocation(time.UTC))
		for i := range 500 {
			require.NoError(t, errOf(gen.Next(t.Context(), fmt.Sprint("T", i))))
		}
		require.Equal(t, 500, gen.Remembered())
		time.Sleep(24 * time.Hour)
		require.NoError(t, errOf(gen.Next(t.Context(), "T0")))
		require.Equal(t, 1, gen.Remembered())
	})
}

// The clocks of a Cluster's nodes differ: a day that has begun on one node forgets no type of a node where it has not.
func TestMemoryOfNodesWithOtherClocks(t *testing.T) {
	behind, ahead := miniredis.RunT(t), miniredis.RunT(t)
	day := time.Date(2021, 10, 24, 12, 0, 0, 0, time.UTC)
	behind.SetTime(day)
	ahead.SetTime(day.AddDate(0, 0, 1))
	client := closing(t, redis.NewClusterClient(&redis.ClusterOptions{
		ClusterSlots: func(context.Context) ([]redis.ClusterSlot, error) {
			return []redis.ClusterSlot{
				{Start: 0, End: 8191, Nodes: []redis.ClusterNode{{Addr: behind.Addr()}}},
				{Start: 8192, End: 16383, Nodes: []redis.ClusterNode{{Addr: ahead.Addr()}}},
			}, nil
		},
	}))
	gen := newGenerator(t, client, serial.WithLocation(time.UTC), serial.WithMaxSkew(-1))
	for _, c := range []struct {
		typ  string
		want string
	}{{"A", "20211024"}, {"B", "20211025"}} {
		got, err := textsOf(gen.NextN(t.Context(), c.typ, 5))
		require.NoError(t, err)
		require.Equal(t, numbers(c.typ, c.want, 1, 5), got)
	}
	require.NoError(t, behind.Set("serial:{A}:20211024", "2"))
	require.ErrorIs(t, errOf(gen.Next(t.Context(), "A")), serial.ErrCounterLost)
}

// A type that is not used for 48 hours costs no memory, also where its period never ends; one that is used is
// remembered.
func TestNeverForgetsIdleTypes(t *testing.T) {
	inBubble(t, func(t *testing.T, m *simulation) {
		gen := newGenerator(t, m.client(), append(endless.opts, serial.WithLocation(time.UTC))...)
		next := func(typ string) {
			t.Helper()
			require.NoError(t, errOf(gen.Next(t.Context(), typ)))
		}
		for i := range 500 {
			next(fmt.Sprint("T", i))
		}
		for range 20 {
			next("IS")
			time.Sleep(12 * time.Hour)
			require.GreaterOrEqual(t, gen.Remembered(), 1)
		}
		require.Equal(t, 1, gen.Remembered())
		require.NoError(t, m.Set("serial:{IS}:all", "3"))
		require.ErrorIs(t, errOf(gen.Next(t.Context(), "IS")), serial.ErrCounterLost)
		next("T0")
		time.Sleep(47 * time.Hour)
		next("T1")
		require.NoError(t, m.Set("serial:{T0}:all", "1"))
		require.ErrorIs(t, errOf(gen.Next(t.Context(), "T0")), serial.ErrCounterLost, "47 hours are remembered")
	})
}

// A type is remembered for 48 hours whenever others are used in between.
func TestNeverRemembersBesideOthers(t *testing.T) {
	inBubble(t, func(t *testing.T, m *simulation) {
		gen := newGenerator(t, m.client(), append(endless.opts, serial.WithLocation(time.UTC))...)
		for _, step := range []struct {
			typ  string
			wait time.Duration
		}{{"X", 23 * time.Hour}, {"IS", 2 * time.Hour}, {"X", 24 * time.Hour}, {"X", 20 * time.Hour}} {
			require.NoError(t, errOf(gen.NextN(t.Context(), step.typ, 2)))
			time.Sleep(step.wait)
		}
		require.NoError(t, m.Set("serial:{IS}:all", "1"))
		require.ErrorIs(t, errOf(gen.Next(t.Context(), "IS")), serial.ErrCounterLost, "46 hours are remembered")
	})
}
