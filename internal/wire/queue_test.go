package wire_test

import (
	"fmt"
	"math"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dailyserial/serial/internal/wire"
)

// Callers and items wait while pipelines are in flight or have stalled. Callers must share items, items must share
// pipelines in the order of their arrival, and a pipeline must begin exactly when a slot is free.
func TestQueue(t *testing.T) {
	playAll(t, map[string]string{
		"callers share the next pipeline": "occupy; go call k:merge → 1; go call k':merge → 2; " +
			"answer → k; go call k'':merge → 3; answer → k",
		"a pipeline has room for four items": "occupy; queue 0 1 2 3 4 5 6 7 8 9 →; answer → 0 1 2 3; answer → 4 5 6 7; " +
			"answer → 8 9",
		"a caller sends its item itself only if there is a slot": "trip 1ms; delay 1ms; queue a b; sleep 1ms; delay 0s; " +
			"sleep 1ms → a / b; set most 2; hold; go alone alone → 1, after 1ms; sent → alone; go alone k → 1, after 1ms; " +
			"sleep 1ms →; answer → k; queue waits →; set most 8; go alone last → 1; sent → waits last",
		"the first round trip is long, so more slots are free": "occupy; queue 1 2 3 4 5 6 7 8 9 a b c; " +
			"sleep 4ms →; answer → 1 2 3 4; sleep 2ms → (5 6 7 8 / 9 a b c|9 a b c / 5 6 7 8)",
		"a second pipeline begins if more items wait than are in the first": "set together 9; occupy; queue 1 2 →; " +
			"queue 3 → 1 2 3; queue 4 →; answer → 4; answer →; queue 5 6 →; queue 7 → 5 6 7; answer →; queue 8 9 a →; " +
			"queue b → 8 9 a b",
		"pipelines get their replies in time": "trip 100us; occupy; queue 1 2 3 4 5 6 7 8 9 a b c; sleep 3ms →; " +
			"answer → 1 2 3 4; sleep 4ms →; answer → 5 6 7 8; sleep 4ms →; answer → 9 a b c",
		"the oldest pipeline has stalled and loses its slot": "trip 300us; occupy; sleep 5ms; queue second third → second; " +
			"sleep 4ms → third; queue fourth →; answer →; answer → fourth",

		"a pipeline waits for a connection until the first deadline": "occupy; queue a:10s b:11s c:11001ms; " +
			"queue d:9s; answer → a b d; answer → c",
		"a started item is not shared": "occupy; queue k:merge; go call k':merge → 2; answer → k k",
		"a deadline passes": "trip 100ms; hold; queue 1 2 3 4 5 6 7; go alone k:1s → no answer in time.*, after 1s.*; " +
			"sleep 1100ms; item k → serial: Redis failed: no answer in time.*; sent → 1 / 2 / 3 / 4 / 5 / 6 / 7; release →",
		"a deadline passes, and no timer has fired": "occupy; queue k:1ms behind; sleep 1ms; release → behind; " +
			"item k → serial: Redis failed: no answer in time.*",
		"a caller joins that has less time": "trip 100ms; hold; queue 1 2 3 4 5 6 7; " +
			"go alone k:merge → 1, after 2s.*; go alone k':merge:1s → no answer in time.*, after 1s; sleep 2s; release; " +
			"item k → leave, done, left 1",
		"callers wait for the deadline of the first": "occupy; " +
			"go alone k:merge:1ms → no answer in time.*, after 1ms: leave.*; " +
			"go alone k':merge:2ms → no answer in time.*, after 1ms.*; go alone k'':merge:1h → 1, after 2ms; sleep 2ms; release",
		"the first caller leaves": "occupy; go call k:merge:1ms:leave=500us → deadline exceeded.*: leave; " +
			"go alone k':merge:2ms → no answer in time.*, after 1ms.*; sleep 2ms; release",
		"all callers leave": "trip 100ms; hold; queue 1 2 3 4 5 6 7; " +
			"go call left:merge:leave=1ms → deadline exceeded.*; go call left':merge:leave=1ms → deadline exceeded.*; " +
			"go call stays:merge:leave=1ms → deadline exceeded.*; go alone stays':merge → 2, after 50ms; " +
			"sent → 1 / 2 / 3 / 4 / 5 / 6 / 7; sleep 50ms; " +
			"item left → no answer in time.*: leave, leave, done, left [01], left [01]; release → stays; " +
			"item stays → 2: leave, done, left 0",
		// The caller of a repeated item is still waiting. Callers must join the item that was queued later.
		"an item is repeated": "trip 1ms; set most 2; reply LOADING Redis; hold; " +
			"go call k:merge:2s → 1, after 10ms; sent → k; queue between →; answer → between; " +
			"go call k':merge → 2, after 10ms; sleep 10ms →; answer → k; " +
			"go call k'':merge → 3; answer → k",
	})
}

// Ten goroutines on one thread call again as soon as they have their results, and some of them take a little longer.
// They must share a pipeline, and each must get a different number. Without time for these callers, there are more than
// 500 pipelines. On a busy machine, the scheduler can interrupt a goroutine, so the best of several attempts counts.
func TestAnsweredCallersShare(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	const callers, rounds = 10, 100
	least := math.MaxInt
	for tries := 0; tries < 20 && least >= rounds*3; tries++ {
		x := newFixture(t)
		*x.node.MaxPipelines() = 2 // so that the limit does not depend on how fast the server is
		numbers := make([]int, callers*rounds)
		var all sync.WaitGroup
		for i := range callers {
			all.Go(func() {
				for range rounds {
					for range i % 3 {
						runtime.Gosched()
					}
					n := 0
					_, err := fmt.Sscan(x.call(t.Context(), "k:merge"), &n)
					require.NoError(t, err)
					numbers[n-1] = n
				}
			})
		}
		all.Wait()
		require.NotContains(t, numbers, 0)
		least = min(least, len(x.arrived()))
	}
	require.Less(t, least, rounds*3)
}

// The number of pipelines in flight must depend on the minimum round-trip time of recent calls that got replies, and on
// the number of waiting callers.
func TestInFlight(t *testing.T) {
	for before, limit := range map[string]int{
		"trip 0s": 1, "trip 249us": 1, "trip 250us": 2, "trip 1ms": 5, "trip 100ms": wire.MaxInFlight - 1,
		"trip 100ms; trip 600us; trip 100ms":                                                                    3,
		"trip 600us" + strings.Repeat("; trip 1ms", 1000):                                                       5,
		"trip 600us; reply 2 ERR no; alone k → ERR no: lost, done; call k → ERR no: lost, done":                 3,
		"trip 600us; reply LOADING Redis; delay 100us; queue k; sleep 200us; delay 600us; sleep 50ms; delay 0s": 3,
	} {
		first, more := strings.Repeat(" k", 20), strings.Repeat(" k", wire.ManyWaiting-20+limit-1)
		steps := fmt.Sprintf("%s; sent → .*; hold; queue%s; count → %d; queue%s; count → %d; queue k; count → %d", before,
			first, limit, more, limit, limit+1)
		inBubble(t, func(t *testing.T, x *fixture) { x.play(t, steps) })
	}
}

// A server hangs. Waiting items must be delayed for only a few milliseconds, but at most one pipeline must be added per
// interval, and stalled pipelines that return later must not be counted twice. If the server hangs for long, pipelines
// must not occupy all connections, so that some are left when it replies again. If there are only a few connections,
// items must wait in the queue instead of for a connection.
func TestStalled(t *testing.T) {
	// The first pipeline counts as stalled after 5 ms and 10 round trips. When the next item arrives, it gets the slot.
	// Three items wait for each pipeline, which has room for four.
	playAll(t, map[string]string{
		"one second": "trip 200us; hold; queue k → k; sleep 8ms →; queue k → k; sleep 9ms; " +
			strings.Repeat("queue k; sleep 17ms; ", 57) + "count → 19; " + strings.Repeat("answer; count → 19; ", 20) +
			"answer; count → 2.",
	})
	playAll(t, map[string]string{
		"three seconds": "hold; " + strings.Repeat("queue k; sleep 100ms; ", 30) + "count → 1[1-6]",
	}, connections(20))
	playAll(t, map[string]string{
		"few connections": "hold; queue 0 1 2 3 4 5 6 7 8 9 a b c d e f; sleep 5s; sent → 0 / 1 2 3 4 / 5 6 7 8 / 9 a b c; " +
			"release → d e f",
	}, connections(4))
}

// A hook panics or ends its goroutine, in the goroutine of the queue or of a caller that sends its item itself. Only
// this pipeline must fail, and its callers must get the panic. The queue must continue.
func TestHooksThatBreak(t *testing.T) {
	const ended = "serial: external code panicked or ended its goroutine"
	const item, others = "; item a → " + ended + ": lost, done", "; release; item first → 1; item e → 1; alone e → 2"
	playAll(t, map[string]string{
		"panic": "hook success, panic, success; occupy; go call a → panic: hook: lost, done; " +
			"go call b → panic: hook: lost, done; queue c d e" + others + item,
		"exit": "hook success, exit, success; occupy; go call a → " + ended + ": lost, done; go call b → " + ended +
			": lost, done; queue c d e" + others + item,
		"panic of a caller": "hook panic, success; alone a → panic: hook: lost, done; alone a → 2",
		"exit of a caller":  "hook exit, success; go alone a" + item + "; alone a → 2",
	})
}
