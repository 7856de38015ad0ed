package wire_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/dailyserial/serial/internal/race"
	"github.com/dailyserial/serial/internal/wire"
)

// Callers arrive while a pipeline is in flight. They must share the next pipeline, in their order of arrival.
func TestCallersMerge(t *testing.T) {
	inBubble(t, func(t *testing.T, x *fixture) {
		x.warm(t)
		answer, release := x.hold()
		x.queue(t, "first")
		var all sync.WaitGroup
		items := make([]*wire.Item, 10)
		for i := range items {
			all.Go(func() {
				item, place, err := x.Do(t.Context(), x.node, newCall("k", "merge").Item)
				require.NoError(t, err)
				require.Equal(t, i, place)
				items[i] = item
			})
			synctest.Wait()
		}
		require.Equal(t, []string{"evalsha:first"}, x.arrived())
		all.Go(func() {
			item, place, err := x.Join(t.Context(), x.node, wire.Merge{Name: "merge"}, time.Now().Add(timeLimit))
			require.NoError(t, err)
			require.Equal(t, 10, place)
			require.EqualValues(t, 11, item.Result.Value)
		})
		item, _, err := x.Join(t.Context(), x.node, wire.Merge{Name: "other"}, time.Now().Add(timeLimit))
		require.NoError(t, err)
		require.Nil(t, item)
		synctest.Wait()
		answer()
		require.Equal(t, []string{"evalsha:k"}, x.arrived())
		second := newCall("k", "merge")
		all.Go(func() {
			item, place, err := x.Do(t.Context(), x.node, second.Item)
			require.NoError(t, err)
			require.Same(t, second.Item, item, "the first item is in flight")
			require.Zero(t, place)
		})
		synctest.Wait()
		release()
		all.Wait()
		require.Equal(t, 11, items[0].N)
		require.EqualValues(t, 12, second.Result.Value)
		for _, item := range items {
			require.Same(t, items[0], item)
		}
	})
}

// Many callers share items or have their own. Every caller must get a different number, and no number must be left
// over.
func TestExactParts(t *testing.T) {
	const callers, each, counters = 300, 20, 3
	x := newFixture(t)
	var mu sync.Mutex
	var got [counters][]int
	var all sync.WaitGroup
	for i := range callers {
		all.Go(func() {
			ctx := t.Context()
			if i%2 == 0 {
				ctx = context.Background()
			}
			for j := range each {
				k := (i + j) % counters
				n, err := x.next(ctx, fmt.Sprint("k", k))
				if err != nil {
					t.Error(err)
				}
				mu.Lock()
				got[k] = append(got[k], n)
				mu.Unlock()
			}
		})
	}
	all.Wait()
	total := 0
	for k := range counters {
		slices.Sort(got[k])
		for i, n := range got[k] {
			require.Equal(t, i+1, n)
		}
		total += len(got[k])
	}
	require.Equal(t, callers*each, total)
}

// requireShared requires that ten goroutines on one thread share one pipeline in each of a hundred rounds. On a busy
// machine, the scheduler can interrupt a goroutine, so requireShared makes several attempts and takes the best one.
func requireShared(t *testing.T, call func(x *fixture, caller, round int)) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	const rounds = 100
	least := math.MaxInt
	for tries := 0; tries < 20 && least >= rounds*3/2; tries++ {
		x := newFixture(t)
		x.script(increment)
		var all sync.WaitGroup
		for i := range 10 {
			all.Go(func() {
				for round := range rounds {
					call(x, i, round)
				}
			})
		}
		all.Wait()
		least = min(least, len(x.arrived()))
	}
	require.Less(t, least, rounds*3/2)
}

// Callers call again as soon as they have their results, and some of them take a little longer. They must share the
// next pipeline.
func TestAnsweredCallersShare(t *testing.T) {
	requireShared(t, func(x *fixture, caller, _ int) {
		for range caller % 3 {
			runtime.Gosched()
		}
		_, err := x.next(t.Context(), "k")
		require.NoError(t, err)
	})
}

// Items with different keys must share a pipeline up to its capacity, in the order in which they began. The capacity of
// a real connection must be larger than that of a connection in memory, about which nothing is known.
func TestItemsTravelTogether(t *testing.T) {
	inBubble(t, func(t *testing.T, x *fixture) {
		x.warm(t)
		answer, release := x.hold()
		x.queue(t, "first")
		x.queue(t, keys(10)...)
		require.Equal(t, 4, wire.TogetherInMemory)
		x.arrived()
		for _, want := range []string{
			"evalsha:k0 evalsha:k1 evalsha:k2 evalsha:k3", "evalsha:k4 evalsha:k5 evalsha:k6 evalsha:k7",
			"evalsha:k8 evalsha:k9",
		} {
			answer()
			require.Equal(t, []string{want}, x.arrived())
		}
		release()
	})
	for _, client := range []*redis.Client{
		redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"}),
		redis.NewFailoverClient(&redis.FailoverOptions{MasterName: "m", SentinelAddrs: []string{"127.0.0.1:1"}}),
	} {
		defer client.Close()
		c := wire.New(client, wire.Replicas{}, func() any { return nil })
		require.Equal(t, wire.MaxTogether, c.Node(t.Context(), "").Together())
		require.Equal(t, wire.MaxInFlight, c.Node(t.Context(), "").MaxPipelines())
	}
}

// The server is distant and pipelines are short. More of them must be in flight, but at most one for every two
// connections.
func TestMostShortPipelines(t *testing.T) {
	dial := func(context.Context, string, string) (net.Conn, error) { return nil, io.EOF }
	for connections, most := range map[int]int{1: wire.MaxInFlight, 40: 20, 1000: 4 * wire.MaxInFlight} {
		client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", Dialer: dial, PoolSize: connections})
		defer client.Close()
		c := wire.New(client, wire.Replicas{}, func() any { return nil })
		require.Equal(t, most, c.Node(t.Context(), "").MaxPipelines())
	}
}

// A caller must send its item itself only if a slot is free and no item is waiting. Items that arrive in the meantime
// must be sent immediately afterwards.
func TestAlone(t *testing.T) {
	inBubble(t, func(t *testing.T, x *fixture) {
		x.trip(t, time.Millisecond) // allows several pipelines
		x.set(func() { x.delay = time.Millisecond })
		x.queue(t, "a", "b") // so there are two connections
		time.Sleep(time.Millisecond)
		x.set(func() { x.delay = 0 })
		synctest.Wait()
		x.arrived()
		answer, release := x.hold()
		var all sync.WaitGroup
		next := func(key string) {
			all.Go(func() { require.NoError(t, errOf(x.next(context.Background(), key))) })
			synctest.Wait()
		}
		x.node.SetMaxPipelines(2) // one place
		next("alone")
		next("k")
		require.Equal(t, []string{"evalsha:alone"}, x.arrived(), "no place is free")
		time.Sleep(time.Millisecond)
		answer()
		require.Equal(t, []string{"evalsha:k"}, x.arrived())
		x.queue(t, "waits")
		x.node.SetMaxPipelines(wire.MaxInFlight)
		next("last")
		require.Equal(t, []string{"evalsha:waits evalsha:last"}, x.arrived(), "it does not overtake")
		release()
		all.Wait()
	})
}

// Items are waiting and a slot becomes free. A new item must not overtake them.
func TestNobodyOvertakes(t *testing.T) {
	inBubble(t, func(t *testing.T, x *fixture) {
		x.trip(t, time.Millisecond) // allows several pipelines
		var all sync.WaitGroup
		for i := range 20 {
			all.Go(func() {
				_, err := x.next(context.Background(), fmt.Sprintf("%02d", i))
				require.NoError(t, err)
			})
			synctest.Wait()
		}
		all.Wait()
		got := strings.Fields(strings.Join(x.arrived(), " "))
		require.True(t, slices.IsSorted(got), "%v", got)
	})
}

// The number of pipelines in flight must depend on the minimum round-trip time and on the number of waiting callers.
func TestInFlight(t *testing.T) {
	const µs, ms = time.Microsecond, time.Millisecond
	for _, c := range []struct {
		trips []time.Duration
		limit int
	}{
		{nil, 1}, {[]time.Duration{249 * µs}, 1}, {[]time.Duration{250 * µs}, 2}, {[]time.Duration{ms}, 5},
		{[]time.Duration{100 * ms}, wire.MaxInFlight - 1}, {[]time.Duration{100 * ms, 600 * µs, 100 * ms}, 3},
	} {
		inBubble(t, func(t *testing.T, x *fixture) {
			for _, d := range c.trips {
				x.trip(t, d)
			}
			if c.trips == nil {
				x.script(increment)
			}
			_, release := x.hold()
			x.queue(t, keys(20)...)
			require.Equal(t, c.limit, x.count(), "%v", c.trips)
			x.queue(t, keys(wire.ManyWaiting-20+c.limit-1)...)
			require.Equal(t, c.limit, x.count(), "%v", c.trips)
			x.queue(t, "enough")
			require.Equal(t, c.limit+1, x.count(), "enough callers wait")
			release()
		})
	}
}

// The minimum round-trip time must be the minimum of recent calls that got replies.
func TestMinimumRoundTrip(t *testing.T) {
	inBubble(t, func(t *testing.T, x *fixture) {
		x.trip(t, 600*time.Microsecond)
		for range 1000 {
			x.trip(t, time.Millisecond)
		}
		_, release := x.hold()
		x.queue(t, keys(10)...)
		require.Equal(t, 5, x.count())
		release()
	})
	inBubble(t, func(t *testing.T, x *fixture) {
		x.trip(t, 600*time.Microsecond)
		x.set(func() { x.on = func([]string) any { return errors.New("ERR refused") } })
		for _, ctx := range []context.Context{context.Background(), t.Context()} {
			_, err := x.next(ctx, "k")
			require.Error(t, err)
		}
		x.set(func() { x.on = nil })
		x.arrived()
		_, release := x.hold()
		x.queue(t, keys(10)...)
		require.Equal(t, 3, x.count(), "a refusal is no round trip")
		release()
	})
	inBubble(t, func(t *testing.T, x *fixture) {
		x.trip(t, 600*time.Microsecond)
		refusals := 1
		x.set(func() {
			x.on = func([]string) any {
				x.delay = 600 * time.Microsecond
				if refusals--; refusals < 0 {
					return nil
				}
				x.delay = 100 * time.Microsecond
				return errors.New(loading)
			}
		})
		require.NoError(t, errOf(x.next(t.Context(), "k")))
		x.set(func() { x.on, x.delay = nil, 0 })
		x.arrived()
		_, release := x.hold()
		x.queue(t, keys(10)...)
		require.Equal(t, 3, x.count(), "neither is one that is repeated")
		release()
	})
}

// Pipelines stall. Waiting items must be delayed for only a few milliseconds. At most one pipeline must be added per
// interval, and stalled pipelines that return later must not be counted twice.
func TestStalled(t *testing.T) {
	inBubble(t, func(t *testing.T, x *fixture) {
		x.trip(t, 200*time.Microsecond)
		answer, release := x.hold()
		start := time.Now()
		// The first pipeline counts as stalled after 5 ms and 10 round trips. When the next item arrives, it gets the
		// slot.
		want := []time.Duration{0, 17 * time.Millisecond}
		for len(want) < 21 {
			want = append(want, want[len(want)-1]+wire.StallInterval)
		}
		for time.Since(start) < time.Second {
			x.queue(t, "k") // three wait for each pipeline, which has room for four
			time.Sleep(17 * time.Millisecond)
		}
		var began []time.Duration
		for _, at := range x.times {
			began = append(began, at.Sub(start))
		}
		require.Equal(t, want, began)
		for range len(began) - 1 {
			answer()
			require.Equal(t, len(began), x.count(), "only the last one holds a place")
		}
		answer()
		require.Greater(t, x.count(), len(began))
		release()
	})
}

// A server hangs for a long time. Pipelines must not occupy all connections, so that some are left when the server
// replies again.
func TestStalledForLong(t *testing.T) {
	inBubble(t, func(t *testing.T, x *fixture) {
		x.warm(t)
		_, release := x.hold()
		for range 30 { // for three seconds
			x.queue(t, "k")
			time.Sleep(100 * time.Millisecond)
		}
		require.Greater(t, x.count(), 10)
		require.Less(t, x.count(), 17)
		release()
	}, func(opt *redis.Options, _ *wire.Replicas) { opt.PoolSize = 20 })
}

// A server hangs. Items must wait in the queue instead of waiting for a connection, however long it takes.
func TestAllConnectionsStall(t *testing.T) {
	inBubble(t, func(t *testing.T, x *fixture) {
		x.warm(t)
		_, release := x.hold()
		x.queue(t, "first")
		x.queue(t, keys(40)...)
		time.Sleep(5 * time.Second)
		require.Equal(t, 4, x.count())
		require.EqualValues(t, 40-3*wire.TogetherInMemory, x.node.Waiting.Load())
		release()
	}, func(opt *redis.Options, _ *wire.Replicas) { opt.PoolSize = 4 })
}

// Pipelines stall. The oldest one must lose its slot, and the other pipelines must keep theirs.
func TestOldestStalls(t *testing.T) {
	inBubble(t, func(t *testing.T, x *fixture) {
		x.trip(t, 300*time.Microsecond)
		answer, release := x.hold()
		x.queue(t, "first")
		time.Sleep(5 * time.Millisecond)
		x.queue(t, "second", "third")
		require.Equal(t, 2, x.count())
		time.Sleep(4 * time.Millisecond)
		synctest.Wait()
		require.Equal(t, 3, x.count(), "the first has stalled")
		x.queue(t, "fourth")
		answer()
		require.Equal(t, 3, x.count())
		answer()
		require.Equal(t, 4, x.count())
		release()
	})
}

// A pipeline gets its replies in time. It must keep its slot, however long other items have to wait.
func TestLongQueue(t *testing.T) {
	inBubble(t, func(t *testing.T, x *fixture) {
		x.trip(t, 100*time.Microsecond)
		answer, release := x.hold()
		x.queue(t, keys(31)...) // fewer than ManyWaiting wait
		for i := range 7 {
			time.Sleep(time.Millisecond)
			synctest.Wait()
			require.Equal(t, i+1, x.count())
			answer()
		}
		release()
	})
}

// A server hangs. Each waiting item must fail at its deadline, and must not be sent afterwards.
func TestDeadlineInQueue(t *testing.T) {
	inBubble(t, func(t *testing.T, x *fixture) {
		x.warm(t)
		_, release := x.hold()
		var waits sync.WaitGroup
		start := time.Now()
		var calls []*call
		for _, key := range keys(100) {
			c := newCall(key, "")
			c.Deadline = start.Add(time.Second)
			calls = append(calls, c)
			waits.Go(func() {
				_, err := x.do(context.Background(), c)
				require.ErrorIs(t, err, wire.ErrNoAnswer)
				require.LessOrEqual(t, time.Since(start), time.Second)
			})
		}
		waits.Wait()
		time.Sleep(wire.StallInterval)
		synctest.Wait()
		sent := 0
		for _, p := range x.arrived() {
			sent += len(strings.Fields(p))
		}
		ended := 0
		for _, c := range calls {
			if c.done.Load() == 1 {
				require.Equal(t, wire.ErrUnsent, c.Result.Err)
				require.Len(t, c.leftPlaces(), 1)
				ended++
			}
		}
		require.Equal(t, len(calls), ended+sent)
		require.NotZero(t, ended)
		time.Sleep(time.Minute)
		require.Empty(t, x.arrived())
		release()
	})
}

// The deadline of an item has passed, but no timer has fired yet. The item must not be sent.
func TestDeadlineOfAForgottenItem(t *testing.T) {
	inBubble(t, func(t *testing.T, x *fixture) {
		x.warm(t)
		_, release := x.hold()
		x.queue(t, "first")
		forgotten := newCall("forgotten", "")
		forgotten.Deadline = time.Now().Add(time.Millisecond)
		x.Start(t.Context(), x.node, forgotten.Item)
		x.queue(t, "behind")
		time.Sleep(time.Millisecond)
		release()
		require.Equal(t, []string{"evalsha:first", "evalsha:behind"}, x.arrived())
		require.Equal(t, wire.ErrUnsent, forgotten.Result.Err)
	})
}

// Items have different deadlines. They must share a pipeline only if the deadlines are close together, because a
// pipeline waits for a connection until the first deadline.
func TestDeadlinesTogether(t *testing.T) {
	inBubble(t, func(t *testing.T, x *fixture) {
		x.warm(t)
		answer, release := x.hold()
		x.queue(t, "first")
		for key, later := range []time.Duration{0, time.Second, 1001 * time.Millisecond, -time.Second} {
			c := newCall(fmt.Sprint(key), "")
			c.Deadline = c.Deadline.Add(later)
			x.Start(t.Context(), x.node, c.Item)
		}
		x.arrived()
		answer()
		answer()
		require.Equal(t, []string{"evalsha:0 evalsha:1 evalsha:3", "evalsha:2"}, x.arrived())
		release()
	})
}

// The caller of a repeated item leaves. Callers must still be able to join another waiting item.
func TestRepeatedItemIsNotJoined(t *testing.T) {
	inBubble(t, func(t *testing.T, x *fixture) {
		x.trip(t, time.Millisecond) // stalled after 15 ms
		x.node.SetMaxPipelines(2)   // one place
		x.fail(errors.New(loading))
		answer, release := x.hold()
		var all sync.WaitGroup
		do := func(c *call) {
			all.Go(func() { require.NoError(t, errOf(x.do(t.Context(), c))) })
			synctest.Wait()
		}
		repeated, waits, joins := newCall("a", "k"), newCall("b", "k"), newCall("c", "k")
		repeated.Deadline = time.Now().Add(2 * time.Second) // so it does not travel with the one that waits
		do(repeated)
		x.queue(t, "between")
		answer() // repeated is refused, and pauses
		do(waits)
		time.Sleep(10 * time.Millisecond)
		synctest.Wait()
		x.arrived()
		for x.count() == 0 {
			answer()
		}
		require.Equal(t, []string{"evalsha:a"}, x.arrived())
		do(joins)
		require.Equal(t, 2, waits.N)
		release()
		all.Wait()
	})
}

// The first caller of an item watches the deadline for all callers of this item, and is canceled before the rest. The
// other callers must still fail at the deadline.
func TestFirstCallerIsCanceled(t *testing.T) {
	inBubble(t, func(t *testing.T, x *fixture) {
		x.warm(t)
		answer, release := x.hold()
		x.queue(t, "first")
		start := time.Now()
		ctx, cancel := context.WithCancel(t.Context())
		var all sync.WaitGroup
		for _, ctx := range []context.Context{ctx, context.Background()} {
			all.Go(func() {
				c := newCall("k", "k")
				c.Deadline = start.Add(time.Millisecond)
				require.Error(t, errOf(x.do(ctx, c)))
			})
			synctest.Wait()
		}
		cancel()
		all.Wait()
		require.Equal(t, time.Millisecond, time.Since(start))
		answer()
		release()
	})
}

// A caller has more time than a waiting item. If it has much more time, it must get a separate item. If it has a little
// more, it must join the item and wait as long as the first caller.
func TestMergedDeadlines(t *testing.T) {
	inBubble(t, func(t *testing.T, x *fixture) {
		x.warm(t)
		answer, release := x.hold()
		x.queue(t, "first")
		start := time.Now()
		var all sync.WaitGroup
		for _, limit := range []time.Duration{time.Millisecond, 2 * time.Millisecond, time.Hour} {
			all.Go(func() {
				c := newCall("k", "k")
				c.Deadline = start.Add(limit)
				n, err := x.do(context.Background(), c)
				if limit == time.Hour {
					require.NoError(t, err)
					require.Equal(t, 1, n)
				} else {
					require.ErrorIs(t, err, wire.ErrNoAnswer)
					require.Equal(t, time.Millisecond, time.Since(start))
				}
			})
			synctest.Wait()
		}
		time.Sleep(2 * time.Millisecond)
		answer()
		release()
		all.Wait()
	})
}

// Callers of a waiting item leave. The item must be sent for all of them if one caller remains, and otherwise not at
// all.
func TestNobodyWaitsForAnItem(t *testing.T) {
	inBubble(t, func(t *testing.T, x *fixture) {
		x.trip(t, 100*time.Millisecond)
		_, release := x.hold()
		x.queue(t, keys(wire.MaxInFlight-1)...)
		x.arrived()
		ctx, cancel := context.WithCancel(t.Context())
		var all sync.WaitGroup
		left := newCall("left", "left")
		stays := newCall("stays", "stays")
		for _, c := range []*call{left, newCall("left", "left"), stays} {
			all.Go(func() { require.ErrorIs(t, errOf(x.do(ctx, c)), context.Canceled) })
			synctest.Wait()
		}
		all.Go(func() { require.NoError(t, errOf(x.next(t.Context(), "stays"))) })
		synctest.Wait()
		cancel()
		time.Sleep(wire.StallInterval)
		synctest.Wait()
		require.Equal(t, wire.ErrUnsent, left.Result.Err)
		require.ElementsMatch(t, []int{0, 1}, left.leftPlaces())
		release()
		all.Wait()
		require.Equal(t, []string{"evalsha:stays"}, x.arrived())
		require.Equal(t, 2, stays.N)
		require.Equal(t, []int{0}, stays.leftPlaces())
	})
}

// The first round trip is long, so more pipelines are allowed. Waiting items must use the additional slots immediately.
func TestMoreInFlightForThoseWhoWait(t *testing.T) {
	inBubble(t, func(t *testing.T, x *fixture) {
		x.script(increment)
		x.set(func() { x.delay = 4 * time.Millisecond }) // before the first one counts as stalled
		x.queue(t, keys(30)...)
		require.Equal(t, 1, x.count())
		time.Sleep(5 * time.Millisecond)
		x.set(func() { x.delay = 20 * time.Second })
		time.Sleep(wire.StallInterval)
		require.GreaterOrEqual(t, x.count(), 7)
	})
}

// A hook panics or ends its goroutine. Only one pipeline must fail, and its callers must get the panic. The queue must
// continue.
func TestHooksThatBreak(t *testing.T) {
	for name, harm := range map[string]func(){"panic": func() { panic("hook") }, "Goexit": runtime.Goexit} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, x *fixture) {
				x.warm(t)
				harmed := false
				x.redis.AddHook(hook(func(_ context.Context, cmds []redis.Cmder, next func() error) error {
					if len(cmds) == 4 && !harmed {
						harmed = true
						_ = next()
						harm()
					}
					return next()
				}))
				_, release := x.hold()
				x.queue(t, "first")
				var mu sync.Mutex
				outcomes := map[any]int{}
				var all sync.WaitGroup
				for _, key := range keys(10) {
					all.Go(func() {
						c := newCall(key, "")
						outcome := any("panicked before it was done")
						defer func() {
							if p := recover(); p != nil {
								outcome = p
							}
							require.EqualValues(t, 1, c.done.Load())
							if outcome != nil {
								require.Equal(t, []error{wire.ErrEnded}, c.lostErrors())
							}
							mu.Lock()
							defer mu.Unlock()
							outcomes[outcome]++
						}()
						_, err := x.do(t.Context(), c)
						outcome = err
					})
				}
				synctest.Wait()
				release()
				all.Wait()
				want := map[any]int{nil: 6, "hook": 4}
				if name == "Goexit" {
					want = map[any]int{nil: 6, wire.ErrEnded: 4}
				}
				require.Equal(t, want, outcomes)
			})
		})
	}
}

// A caller sends its item itself, and a hook panics or ends the goroutine of this caller. The slot must be released.
func TestHookBreaksItsCaller(t *testing.T) {
	inBubble(t, func(t *testing.T, x *fixture) {
		x.warm(t)
		var harm func()
		x.redis.AddHook(hook(func(_ context.Context, _ []redis.Cmder, next func() error) error {
			if h := harm; h != nil {
				harm = nil
				h()
			}
			return next()
		}))
		harm = func() { panic("hook") }
		c := newCall("k", "")
		require.PanicsWithValue(t, "hook", func() { _, _ = x.do(context.Background(), c) })
		require.EqualValues(t, 1, c.done.Load())
		require.Equal(t, wire.ErrEnded, c.Result.Err)
		require.Len(t, c.lostErrors(), 1)

		harm = runtime.Goexit
		c = newCall("k", "")
		over := make(chan bool)
		go func() {
			defer close(over)
			_, _ = x.do(context.Background(), c)
		}()
		<-over
		require.EqualValues(t, 1, c.done.Load())
		require.NoError(t, errOf(x.next(context.Background(), "k")))
		time.Sleep(wire.StallInterval)
		synctest.Wait()
		require.True(t, x.node.Idle())
	})
}

// A Node is idle after calls of every kind. It must have no goroutine and no timer.
func TestNothingIsLeft(t *testing.T) {
	race.Bubble(t, func(t *testing.T) {
		x := newFixture(t)
		x.warm(t)
		var all sync.WaitGroup
		for i := range 100 {
			all.Go(func() { require.NoError(t, errOf(x.next(t.Context(), fmt.Sprint(i)))) })
		}
		all.Wait()
		time.Sleep(wire.StallInterval)
		synctest.Wait()
		require.True(t, x.node.Idle())
	})
}
