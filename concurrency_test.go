package serial_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dailyserial/serial"
	"github.com/dailyserial/serial/internal/calendar"
	"github.com/dailyserial/serial/internal/redistest"
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

// Callers on three generators issue numbers around midnight, in zones where a midnight does not exist, comes twice, or
// follows a skipped day. Every number must have the day of its call, the numbers of each day must be contiguous from 1,
// and the keys of a day must expire.
func TestMidnight(t *testing.T) {
	for _, test := range []string{
		"UTC 2000-01-01",
		"America/Havana 2001-03-31", // midnight does not exist on 1 April
		"America/Havana 2000-10-28", // midnight comes twice on the 29th
		"Pacific/Apia 2011-12-28",   // the 30th was skipped
	} {
		runInBubble(t, test, func(t *testing.T, m *simulation) {
			zone, day, _ := strings.Cut(test, " ")
			loc := location(t, zone)
			time.Sleep(time.Until(must(time.ParseInLocation(time.DateTime, day+" 12:00:00", loc))))
			var gens [3]*serial.Generator
			for i := range gens {
				gens[i] = newGenerator(t, m.Client(), serial.WithLocation(loc))
			}
			var j journal
			days := calendar.Calendar{Location: loc, Unit: calendar.Day}
			today := days.At(time.Now())
			labels := []string{today.Label}
			for range 2 {
				midnight := time.Unix(today.End, 0)
				time.Sleep(time.Until(midnight) - time.Second)
				barrier(t, 9, func(i int) (string, error) {
					for time.Since(midnight) < time.Second {
						require.Less(t, must(j.next(t.Context(), gens[i%3], "IS")), time.Second)
						time.Sleep(rand.N(300 * time.Millisecond))
					}
					return "", nil
				})
				m.requireExpiries()
				today = days.At(time.Now())
				labels = append(labels, today.Label)
				require.Equal(t, []string{"serial:{IS}", "serial:{IS}:" + today.Label}, m.Keys(), "the past day is gone")
			}
			issued := j.check(t, loc)
			require.Equal(t, labels, slices.Sorted(maps.Keys(issued)))
			for day, seqs := range issued {
				require.Greater(t, len(seqs), 9)
				require.Equal(t, upTo(len(seqs)), seqs, "%s", day)
			}
			time.Sleep(9 * 24 * time.Hour)
			require.Empty(t, m.Keys())
		})
	}
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
		floor := serial.WithFloor(func(context.Context, string, time.Time) (int64, error) {
			asked.Add(1)
			time.Sleep(6 * time.Second)
			return 10, nil
		})
		var gens [3]*serial.Generator
		for i := range gens {
			gens[i] = newGenerator(t, m.Client(), serial.WithLocation(time.UTC), floor)
		}
		var j journal
		barrier(t, 20, func(i int) (string, error) {
			took, err := j.next(t.Context(), gens[i%3], "IS")
			require.Less(t, took, 7*time.Second)
			return "", err
		})
		require.EqualValues(t, 1, asked.Load())
		require.Equal(t, upTo(30)[10:], j.check(t, time.UTC)["20000101"])
	})
}

// The clock of Redis is set back to a time before the current period. Calls must wait if the period begins soon, and
// fail if it does not. Only Raise must replace a period that lies in the future.
// Guarantees: clock-back, future-day.
func TestClockSetBack(t *testing.T) {
	inBubble(t, func(t *testing.T, m *simulation) {
		gen := map[string]*serial.Generator{"gen": newGenerator(t, m.Client(), serial.WithLocation(time.UTC))}
		midnight := time.Date(2000, 1, 2, 0, 0, 0, 0, time.UTC)
		time.Sleep(time.Until(midnight.Add(time.Minute)))
		steps(t, gen, nil, "gen next = IS200001020001")

		m.SetTime(midnight.Add(-3 * time.Second))
		time.AfterFunc(2*time.Second, func() { m.SetTime(midnight.Add(time.Minute)) })
		before := time.Now()
		steps(t, gen, nil, "gen next = IS200001020002")
		require.InDelta(t, 3*time.Second, time.Since(before), float64(100*time.Millisecond))

		m.SetTime(midnight.Add(-6 * time.Second))
		before = time.Now()
		steps(t, gen, nil, "gen next = skew, gen peek = skew")
		require.Equal(t, before, time.Now())
		require.Equal(t, []string{"serial:{IS}", "serial:{IS}:20000102"}, m.Keys(), "nothing was opened")
		steps(t, gen, nil, "gen raise 7, gen next = IS200001010008")
	})
}

// While the server is stopped, calls for open and for new types return as soon as their contexts end, or within ten
// seconds if these never end. The client has one connection and no time limits of its own. Only the long tests wait for
// ten seconds. TestStalledServerAndManyTypes checks the exact instant.
// Guarantees: redis-hangs.
func TestStalledServer(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	opt := server.Options()
	opt.ReadTimeout, opt.PoolSize = -1, 1
	gen := newGenerator(t, closing(t, redis.NewClient(opt)), serial.WithLocation(noon()))
	for typ := range 8 {
		must(gen.Next(t.Context(), fmt.Sprint("T", typ)))
	}
	server.Pause()

	canceled, cancel := context.WithCancel(t.Context())
	time.AfterFunc(50*time.Millisecond, cancel)
	require.ErrorIs(t, errOf(gen.NextN(canceled, "NEW", 3)), context.Canceled)
	brief, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	contexts := [2]context.Context{brief, brief}
	if redistest.Long() {
		contexts = [2]context.Context{context.Background(), t.Context()}
	}
	barrier(t, 100, func(i int) (string, error) {
		_, err := gen.Next(contexts[i%2], fmt.Sprint("T", i%16)) // eight of these are new
		assert.Error(t, err)
		assert.Equal(t, !redistest.Long(), errors.Is(err, context.DeadlineExceeded))
		assert.NotErrorIs(t, err, context.Canceled)
		return "", nil
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
	types := 100
	switch {
	case testing.Short():
		types = 20
	case redistest.Long():
		types = 500
	}
	cluster := func(c *redis.Client) redis.UniversalClient {
		return redis.NewClusterClient(&redis.ClusterOptions{
			NewClient: func(*redis.Options) *redis.Client { return c },
			ClusterSlots: func(context.Context) ([]redis.ClusterSlot, error) {
				return []redis.ClusterSlot{{End: 16383, Nodes: []redis.ClusterNode{{Addr: "127.0.0.1:6379"}}}}, nil
			},
		})
	}
	for name, generator := range map[string]func(c *redis.Client) *serial.Generator{ // with the steps, one in each run
		"an embedded client: take set open": func(c *redis.Client) *serial.Generator {
			return newGenerator(t, closing(t, struct{ *redis.Client }{c}))
		},
		"a client of a Cluster: take": func(c *redis.Client) *serial.Generator {
			return newGenerator(t, closing(t, cluster(c)))
		},
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

// A slow call would have to wait until the clock of the server catches up. If this takes longer than the rest of its
// time, the call must fail instead of waiting.
func TestSlowServerWhoseClockWasSetBack(t *testing.T) {
	inBubble(t, func(t *testing.T, m *simulation) {
		slow := time.Duration(0)
		gen := newGenerator(t, m.Client(around(func(cmd redis.Cmder, send func() error) error {
			time.Sleep(slow)
			slow = 0
			return send()
		})), serial.WithLocation(time.UTC))
		midnight := time.Date(2000, 1, 2, 0, 0, 0, 0, time.UTC)
		time.Sleep(time.Until(midnight.Add(time.Minute)))
		require.NoError(t, errOf(gen.Next(t.Context(), "IS")))
		synctest.Wait() // for the release of the lock
		m.SetTime(midnight.Add(-4500 * time.Millisecond))
		slow = 6 * time.Second
		began := time.Now()
		require.ErrorIs(t, errOf(gen.Next(t.Context(), "IS")), serial.ErrClockSkew)
		require.Equal(t, 6*time.Second, time.Since(began))
	})
}
