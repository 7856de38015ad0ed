package serial_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/dailyserial/serial"
)

// An opening takes three round trips, and a fourth where a floor or a ledger is asked. The lock is free when it is
// over.
func TestRoundTripsOfAnOpening(t *testing.T) {
	for name, test := range map[string]struct {
		opts []serial.Option
		want []string
	}{
		"plain":         {nil, []string{"take", "lock", "open"}},
		"with a floor":  {[]serial.Option{fixedFloor(0)}, []string{"take", "lock", "take", "open"}},
		"with a ledger": {ledgerIf(true, 10), []string{"take", "lock", "take", "open"}},
	} {
		runInBubble(t, name, func(t *testing.T, m *simulation) {
			var mu sync.Mutex
			var sent []string
			gen := newGenerator(t, m.client(around(func(cmd redis.Cmder, send func() error) error {
				if name := map[string]string{"set": "lock", "evalsha": "take"}[cmd.Name()]; name != "" {
					mu.Lock()
					defer mu.Unlock()
					if isOpen(cmd) {
						name = "open"
					}
					sent = append(sent, name)
				}
				return send()
			})), test.opts...)
			require.NoError(t, errOf(gen.Next(t.Context(), "OTHER"))) // the server knows the scripts
			sent = nil
			require.NoError(t, errOf(gen.Next(t.Context(), "IS")))
			require.Equal(t, test.want, sent)
			require.ElementsMatch(t, []string{"serial:{IS}", "serial:{IS}:" + today(time.Local), "serial:{OTHER}",
				"serial:{OTHER}:" + today(time.Local)}, m.Keys())
		})
	}
}

// A lock on another server is given back when nobody waits for it, however long that takes, and never another's.
func TestLockGivenBackLate(t *testing.T) {
	inBubble(t, func(t *testing.T, m *simulation) {
		locks := simulate(t)
		var hangs atomic.Bool
		hangs.Store(true)
		slow := locks.client(around(func(cmd redis.Cmder, send func() error) error {
			if cmd.Name() == "eval" && hangs.Load() {
				time.Sleep(9 * time.Second)
			}
			return send()
		}))
		gen := newGenerator(t, m.client(), serial.WithLocation(time.UTC), serial.WithLockClients(slow))
		began := time.Now()
		requireResult(t, "IS200001010001")(gen.Next(t.Context(), "IS"))
		require.Zero(t, time.Since(began), "nobody waits for that")
		require.Len(t, locks.Keys(), 1)
		another := newGenerator(t, m.client(), serial.WithLocation(time.UTC), serial.WithLockClients(locks.client()))
		requireResult(t, "IS200001010002")(another.Next(t.Context(), "IS"))
		requireResult(t, "IS200001010003")(gen.Next(t.Context(), "IS"))
		require.Zero(t, time.Since(began))
		key := locks.Keys()[0]
		time.Sleep(lockExpiry + 500*time.Millisecond)
		require.Empty(t, locks.Keys(), "it has expired")
		require.NoError(t, locks.Set(key, "another's"))
		time.Sleep(time.Minute)
		locks.CheckGet(t, key, "another's")

		hangs.Store(false)
		requireResult(t, "PO200001010001")(gen.Next(t.Context(), "PO"))
		synctest.Wait()
		require.Equal(t, []string{key}, locks.Keys(), "PO's was given back")
	})
}

// Whoever gets the lock after another caller has opened the period and given it back, goes on from there: it opens and
// lifts nothing.
func TestOpenedMeanwhile(t *testing.T) {
	inBubble(t, func(t *testing.T, m *simulation) {
		var told []string
		tell := serial.WithHooks(serial.Hooks{
			Opened: func(_ context.Context, i serial.OpenedInfo) { told = append(told, "opened "+i.Type) },
			Unused: func(_ context.Context, e serial.Explanation) { told = append(told, e.Reason) },
		})
		first := newGenerator(t, m.client(), serial.WithLocation(time.UTC), serial.WithMaxSkew(-1))
		require.NoError(t, errOf(first.Next(t.Context(), "OTHER")))
		var once sync.Once
		second := newGenerator(t, m.client(around(func(cmd redis.Cmder, send func() error) error {
			if cmd.Name() == "set" {
				once.Do(func() {
					requireResult(t, "IS200001010003")(textOf(lastOf(first.NextN(t.Context(), "IS", 3))))
				})
			}
			return send()
		})), serial.WithLocation(time.UTC), serial.WithStart(500), tell)
		requireResult(t, "IS200001010004")(second.Next(t.Context(), "IS"))
		require.NoError(t, second.Flush(t.Context()))
		require.Empty(t, told)
		requireResult(t, "PO200001010500")(second.Next(t.Context(), "PO"))
		require.Equal(t, []string{"opened PO"}, told)
		m.requireExpiries()
	})
	inBubble(t, func(t *testing.T, m *simulation) { // all its numbers, too
		small := serial.WithTemplate("{type}{date:yyyyMMdd}{seq:1}")
		first := newGenerator(t, m.client(), small, serial.WithLocation(time.UTC))
		var once sync.Once
		second := newGenerator(t, m.client(around(func(cmd redis.Cmder, send func() error) error {
			if cmd.Name() == "set" {
				once.Do(func() { require.NoError(t, errOf(first.NextN(t.Context(), "IS", 8))) })
			}
			return send()
		})), small, serial.WithLocation(time.UTC))
		require.ErrorIs(t, errOf(second.NextN(t.Context(), "IS", 2)), serial.ErrExhausted)
		require.Len(t, m.Keys(), 2, "the lock was given back")
		requireResult(t, "IS200001019")(second.Next(t.Context(), "IS"))
	})
}

// lastOf returns the last of several numbers.
func lastOf(all []serial.Number, err error) (serial.Number, error) {
	if err != nil {
		return serial.Number{}, err
	}
	return all[len(all)-1], nil
}

// Openings of many types at the same moment share round trips, and what one of them runs into is its own. The pipe in
// memory through which these go holds little: whatever the names, it does not fill up.
func TestOpeningsShareRoundTrips(t *testing.T) {
	runBoth(t, "long names", func(t *testing.T, m *simulation, long bool) {
		var calls atomic.Int64
		rdb := m.client()
		rdb.AddHook(everyCall(func(_ []redis.Cmder, send func() error) error {
			calls.Add(1)
			time.Sleep(time.Millisecond)
			return send()
		}))
		prefix, name := "p", "T"
		if long {
			prefix, name = strings.Repeat("p", 64), strings.Repeat("T", 61)
		}
		gen := newGenerator(t, rdb, serial.WithLocation(time.UTC), serial.WithKeyPrefix(prefix))
		require.NoError(t, errOf(gen.Next(t.Context(), "OTHER")))
		list := fmt.Sprintf("%s:{%s107}:20000101", prefix, name)
		_, err := m.Lpush(list, "a list")
		require.NoError(t, err)
		m.SetTTL(list, time.Hour)
		calls.Store(0)
		began := time.Now()
		var mu sync.Mutex
		var got, want []string
		var all sync.WaitGroup
		for i := range 100 {
			typ := fmt.Sprint(name, 100+i)
			if i != 7 {
				want = append(want, typ+"200001010001")
			}
			all.Go(func() {
				number, err := gen.Next(t.Context(), typ)
				if i == 7 {
					require.ErrorIs(t, err, serial.ErrCounterLost)
					return
				}
				require.NoError(t, err)
				mu.Lock()
				defer mu.Unlock()
				got = append(got, number)
			})
		}
		all.Wait()
		require.Less(t, time.Since(began), time.Second)
		require.LessOrEqual(t, calls.Load(), int64(120), "alone, they take 300")
		slices.Sort(got)
		require.Equal(t, want, got)
		for _, key := range m.Keys() {
			require.NotContains(t, key, ":lock")
		}
		m.requireExpiries()
	})
}

// Of openings that share a pipeline, whoever has waited for Redis before still gets an answer in time. Who is late shares
// none, so nobody else has as little time.
func TestOpeningsShareTime(t *testing.T) {
	for waited, sharing := range map[time.Duration]bool{4 * time.Second: true, 8 * time.Second: false} {
		inBubble(t, func(t *testing.T, m *simulation) {
			about := func(cmds []redis.Cmder, typ string) bool {
				return slices.ContainsFunc(cmds, func(cmd redis.Cmder) bool {
					return strings.Contains(fmt.Sprint(cmd.Args()), "{"+typ+"}")
				})
			}
			var slow sync.Once
			var shared atomic.Int64
			rdb := new(line).client(m, 6*time.Second) // so long that a hook which hangs is a server that hangs
			rdb.AddHook(everyCall(func(cmds []redis.Cmder, send func() error) error {
				switch opens := slices.ContainsFunc(cmds, isOpen); {
				case opens && len(cmds) > 1:
					shared.Add(int64(len(cmds)))
					time.Sleep(time.Minute)
				case opens && (about(cmds, "FIRST") || about(cmds, "SECOND")): // so many are under way at once
					time.Sleep(2 * time.Millisecond)
				case opens && !sharing && !about(cmds, "OTHER"):
					time.Sleep(3 * time.Second)
				case about(cmds, "SLOW"):
					slow.Do(func() { time.Sleep(waited) })
				}
				return send()
			}))
			gen := newGenerator(t, rdb)
			require.NoError(t, errOf(gen.Next(t.Context(), "OTHER")))
			var all sync.WaitGroup
			began := time.Now()
			call := func(typ string, after, within time.Duration, works bool) {
				all.Go(func() {
					time.Sleep(after)
					require.Equal(t, works, errOf(gen.Next(context.Background(), typ)) == nil, typ)
					require.LessOrEqual(t, time.Since(began), after+within, typ)
				})
			}
			call("SLOW", 0, inTime, sharing) // with an attempt of its own
			call("FIRST", waited-1500*time.Microsecond, time.Second, true)
			call("SECOND", waited-time.Millisecond, time.Second, true) // later, or both would go together
			call("NEW", waited, inTime, true)
			all.Wait()
			require.Equal(t, map[bool]int64{true: 2}[sharing], shared.Load())
			time.Sleep(time.Minute)
		})
	}
}
