package serial_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/dailyserial/serial"
)

// A hundred goroutines call Next at the same time, and the counter does not exist yet. They must be issued exactly the
// numbers 0001 to 0100.
func TestBarrier(t *testing.T) {
	_, rdb := startMini(t)
	loc := noon()
	gen := newGenerator(t, rdb, serial.WithLocation(loc))
	got := barrier(t, 100, func(int) (string, error) { return gen.Next(t.Context(), "IS") })
	require.ElementsMatch(t, numbers("IS", today(loc), 1, 100), got)
}

// Callers on three generators issue numbers around two midnights, of which the first one does not exist. Every number
// must have the day of its call, the numbers of each day must be contiguous from 1, and the keys of a day must expire.
// The tests of internal/calendar cover zones, and those of internal/interleave the order of commands around midnight.
func TestMidnight(t *testing.T) {
	inBubble(t, func(t *testing.T, m *simulation) {
		loc := location(t, "America/Havana")
		time.Sleep(time.Until(time.Date(2001, time.March, 31, 12, 0, 0, 0, loc)))
		var gens [3]*serial.Generator
		for i := range gens {
			gens[i] = newGenerator(t, m.Client(), serial.WithLocation(loc))
		}
		var issued lines
		for range 2 {
			_, _, midnight := gens[0].Scheme().Period(serial.At(time.Now()))
			time.Sleep(time.Until(midnight) - time.Second)
			barrier(t, 9, func(i int) (string, error) {
				for time.Since(midnight) < time.Second {
					before := today(loc)
					n := must(gens[i%3].NextNumber(t.Context(), "IS"))
					require.Contains(t, []string{before, today(loc)}, n.Date.Format("20060102"))
					issued.add("%s", n)
					time.Sleep(rand.N(300 * time.Millisecond))
				}
				return "", nil
			})
			m.requireExpiries()
			require.Equal(t, []string{"serial:{IS}", "serial:{IS}:" + today(loc)}, m.Keys(), "the past day is gone")
		}
		got, want := issued.take(), []string(nil)
		for _, day := range []string{"20010331", "20010401", "20010402"} {
			count := strings.Count(strings.Join(got, " "), "IS"+day)
			require.Greater(t, count, 9)
			want = append(want, numbers("IS", day, 1, count)...)
		}
		require.ElementsMatch(t, want, got)
		time.Sleep(9 * 24 * time.Hour)
		require.Empty(t, m.Keys())
	})
}

// upTo returns the numbers 1 to n.
func upTo(n int) (all []int64) {
	for i := range int64(n) {
		all = append(all, i+1)
	}
	return all
}

// At midnight, several processes call Next, and the floor is slow. Only one process must query the floor.
func TestFloorIsAskedOnce(t *testing.T) {
	inBubble(t, func(t *testing.T, m *simulation) {
		var asked atomic.Int64
		began := time.Now()
		floor := serial.WithFloor(func(context.Context, string, time.Time) (int64, error) {
			asked.Add(1)
			time.Sleep(6 * time.Second)
			return 10, nil
		})
		var gens [3]*serial.Generator
		for i := range gens {
			gens[i] = newGenerator(t, m.Client(), serial.WithLocation(time.UTC), floor)
		}
		got := barrier(t, 20, func(i int) (string, error) { return gens[i%3].Next(t.Context(), "IS") })
		require.ElementsMatch(t, numbers("IS", "20000101", 11, 30), got)
		require.EqualValues(t, 1, asked.Load())
		require.Less(t, time.Since(began), 7*time.Second)
	})
}

// The clock of Redis is set back to a time before the current period. Calls must wait if the period begins soon, and
// fail if it does not, or if the rest of their time is too short. Only Raise must replace a period that lies in the
// future.
// Guarantees: clock-back, future-day.
func TestClockSetBack(t *testing.T) {
	inBubble(t, func(t *testing.T, m *simulation) {
		delay := time.Duration(0)
		slow := around(func(_ redis.Cmder, send func() error) error {
			time.Sleep(delay)
			delay = 0
			return send()
		})
		gens := map[string]*serial.Generator{"gen": newGenerator(t, m.Client(), serial.WithLocation(time.UTC)),
			"slow": newGenerator(t, m.Client(slow), serial.WithLocation(time.UTC))}
		midnight := time.Date(2000, 1, 2, 0, 0, 0, 0, time.UTC)
		time.Sleep(time.Until(midnight.Add(time.Minute)))
		steps(t, gens, nil, "gen next = IS200001020001, slow next = 2")
		requireSteps := func(took time.Duration, script string) {
			t.Helper()
			before := time.Now()
			steps(t, gens, nil, script)
			require.InDelta(t, took, time.Since(before), float64(100*time.Millisecond))
		}

		m.SetTime(midnight.Add(-4500 * time.Millisecond))
		delay = 6 * time.Second
		requireSteps(6*time.Second, "slow next = skew")
		m.SetTime(midnight.Add(-3 * time.Second))
		time.AfterFunc(2*time.Second, func() { m.SetTime(midnight.Add(time.Minute)) })
		requireSteps(3*time.Second, "gen next = IS200001020003")

		m.SetTime(midnight.Add(-6 * time.Second))
		requireSteps(0, "gen next = skew, gen peek = skew")
		require.Equal(t, []string{"serial:{IS}", "serial:{IS}:20000102"}, m.Keys(), "nothing was opened")
		requireSteps(0, "gen raise 7, gen next = IS200001010008")
	})
}

// inTime is a little more than the longest time that a call without a deadline may take if servers are slow.
const inTime = 10*time.Second + 100*time.Millisecond

// Connections are idle for a long time. go-redis must replace and close them. (Version 9.22.0 left them open.)
func TestStaleConnections(t *testing.T) {
	inBubble(t, func(t *testing.T, m *simulation) {
		gen := newGenerator(t, m.Client())
		for range 2 {
			require.NoError(t, errOf(gen.Next(t.Context(), "IS")))
			synctest.Wait()
			require.Equal(t, 1, m.CurrentConnectionCount())
			time.Sleep(31 * time.Minute)
		}
	})
}

// Calls for many types open a period at the same time, and a server hangs at one of their steps. Each type must reach
// this step. Every call must return in time, and send nothing after it has returned.
// Guarantees: redis-hangs.
func TestStalledServerAndManyTypes(t *testing.T) {
	const types = 100
	for name, generator := range map[string]func(c *redis.Client) *serial.Generator{ // with the steps, one in each run
		"an embedded client: take set open": func(c *redis.Client) *serial.Generator {
			return newGenerator(t, closing(t, struct{ *redis.Client }{c}))
		},
		"a client of a server: take": func(c *redis.Client) *serial.Generator { return newGenerator(t, c) },
		"a lock server: set": func(c *redis.Client) *serial.Generator {
			return newGenerator(t, c, serial.WithLockClients(c))
		},
		"a floor: set open": func(c *redis.Client) *serial.Generator { return newGenerator(t, c, fixedFloor(5)) },
	} {
		name, hanging, _ := strings.Cut(name, ": ")
		for hangs := range strings.FieldsSeq(hanging) {
			runInBubble(t, name+", "+hangs, func(t *testing.T, m *simulation) {
				var sent atomic.Int64
				var hanging atomic.Bool
				began := time.Now()
				gen := generator(m.Client(everyCall(func(cmds []redis.Cmder, send func() error) error {
					for _, cmd := range cmds {
						if stepOf(cmd) == hangs {
							time.Sleep(time.Until(began.Add(time.Second))) // all types reach this step within a second
							hanging.Store(true)
						}
					}
					sent.Add(int64(len(cmds)))
					if hanging.Load() {
						time.Sleep(time.Hour)
					}
					return send()
				})))
				barrier(t, types, func(i int) (string, error) {
					_, err := gen.Next(context.Background(), fmt.Sprint("T", i))
					require.Error(t, err)
					require.NotErrorIs(t, err, context.DeadlineExceeded)
					require.LessOrEqual(t, time.Since(began), inTime)
					return "", nil
				})
				synctest.Wait() // for what was sent at this very moment
				before := sent.Load()
				time.Sleep(time.Minute)
				require.Equal(t, before, sent.Load(), "sent for no caller")
				time.Sleep(2 * time.Hour)
			})
		}
	}
}
