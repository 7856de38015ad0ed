package wire_test

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/dailyserial/serial/internal/wire"
)

// Attempts fail. An item must be repeated if that is allowed and can succeed, after pauses that grow, but not after its
// deadline. Each item of a pipeline must have its own result.
func TestAttempts(t *testing.T) {
	const readOnly = "READONLY You can't write against a read only replica."
	const oldReplica = "ERR Error running script (call to f_0): @user_script:1: @user_script: 1: -" + readOnly
	scenarios := map[string]string{
		"the server refuses": "reply NOPERM denied; call k → serial: Redis failed: NOPERM denied. an ACL denies this " +
			"client's user a command or a key that is needed",
		"the server hangs": "delay 3s; call k:2s → serial: gave up waiting for Redis, which may have run the command: " +
			"no answer in time.*, after 2s: leave; sleep 3s; item k → 1: leave, done, left 0",
		"the reply is lost":              "reply lost; call k → 1, earlier, after .{1,2}ms: lost, done; sent → k / k",
		"the reply is lost, unless sent": "reply lost; call k:once → serial: Redis failed: EOF, .*: lost, done; sent → k",
		"Redis is loading for long":      "reply 20 LOADING Redis; call k → LOADING Redis, .*ms; sent → k / k / k / k",
		"the slot moves for long": "reply 100 TRYAGAIN Multiple; " +
			"call k → serial: Redis failed: TRYAGAIN Multiple.*, after (9|10)[.0-9]*s",
		"Redis is loading, with proof": "reply LOADING Redis; call k:proven → LOADING Redis; sent → k",
		"the slot moves, with proof":   "reply TRYAGAIN Multiple; call k:proven → 1, after .{1,2}ms; sent → k / k",
		"an old master for long": "reply 6 " + readOnly + "; call k:once → 1, after .*ms; " +
			"sent → k / k / k / k / k / k / k",
		"an old master of Redis 6.2": "reply " + oldReplica + "; call k:once → 1, after .{1,2}ms; sent → k / k",
		"the script remains unknown": "reply 10 NOSCRIPT No matching; call k → NOSCRIPT No matching; " +
			"sent → k / eval:k",
		"a refusal, and then no reply": "reply LOADING Redis, hangs; " +
			"call k:once → before that: LOADING Redis.*: lost, done",
		"a timeout, and then a lost one": "reply hangs, lost; call k → 1, earlier, after 5[.0-9]*s: lost, lost, done",
	}
	playAll(t, scenarios)
	for name, steps := range scenarios { // the same, but the caller sends its item itself
		scenarios[name] = strings.ReplaceAll(steps, "call ", "alone ")
	}
	playAll(t, scenarios)
	playAll(t, map[string]string{
		"ten retries": "reply 20 LOADING Redis; call k → LOADING Redis, after [12][.0-9]*s; sent → k" +
			strings.Repeat(" / k", 10),
	}, func(opt *redis.Options, _ *wire.Replicas) { opt.MaxRetries = 10 })
	playAll(t, map[string]string{"no retries": "reply LOADING Redis; call k → LOADING Redis; sent → k"},
		func(opt *redis.Options, _ *wire.Replicas) { opt.MaxRetries = -1 })
	playAll(t, map[string]string{
		"a pipeline is lost": "occupy; queue a:once b; reply 2 lost; answer → a b; release; sleep 1s; " +
			"item a → EOF: lost, done; item b → 1, earlier: lost, done",
		"the first item sends the source of a script": "reply NOSCRIPT no; occupy; queue k0 k1 k2 k3 k4 k5 →; " +
			"answer → eval:first k0 k1 k2; answer → k3 k4 k5; answer; item first → 1; item k0 → 1; item k5 → 1",
		"the script is not stored": "reply NOSCRIPT no, OOM command, 3 NOSCRIPT no; occupy; " +
			"go call k0 → 1; go call k1 → 1; go call k2 → 1; " +
			"release; sleep 1s; item first → OOM.*",
		"a pipeline has the source of one script": "occupy; queue k0 k1:other k2 k3; reply 4 NOSCRIPT no; " +
			"answer → k0 k1 k2 k3; answer → eval:k0 k2 k3; answer → eval:k1",

		// A command has a follower. Both must be sent together, and each must have its own result.
		"a follower": "call lock:plain:then=k → 1; item k → 1; alone lock:plain:then=k → 2; item k → 2; " +
			"sent → incr:lock k / incr:lock k; reply success, NOSCRIPT no; call lock:plain:then=k → 3; item k → 3; " +
			"sent → incr:lock k / eval:k; reply 2 LOADING Redis; call lock:plain:then=k → 4, after .{1,2}ms; item k → 4; " +
			"sent → incr:lock k / incr:lock k",
		"the caller of a follower leaves": "delay 1s; " +
			"call lock:plain:then=k:leave=1ms → deadline exceeded, after 1ms: leave; sleep 1s; " +
			"item lock → 1: leave, done, left 0; item k → 1: leave, done, left 0",
		"a follower is dropped with the command before it": "occupy; call lock:plain:1ms:then=k → " +
			"no answer in time.*, after 1ms.*; item lock → serial: Redis failed: no answer in time.*; " +
			"item k → serial: Redis failed: no answer in time.*",

		"a caller leaves": "delay 3s; call k:leave=1s → serial: gave up waiting for Redis, which may have run the command: " +
			"context deadline exceeded, after 1s: leave; sleep 3s; item k → 1: leave, done, left 0",
		"a caller leaves before a refusal": "delay 2ms; reply LOADING Redis; call k:leave=1ms → " +
			"context deadline exceeded, after 1ms: leave; sleep 9s; item k → LOADING Redis: leave, done, left 0; sent → k",
		"a caller leaves during the pause": "delay 2ms; reply LOADING Redis; call k:leave=3ms → " +
			"before that: LOADING Redis, after 3ms: leave; sleep 9s; item k → LOADING Redis: leave, done, left 0; sent → k",
		"a caller leaves after a lost reply": "delay 2ms; reply lost; call k:leave=3ms → " +
			"before that: EOF, after 3ms: lost, leave; sleep 9s; item k → EOF, earlier: lost, leave, done, left 0; sent → k",
		"a caller leaves a server that hangs": "reply LOADING Redis, 2 hangs; call k:leave=8s → " +
			"before that: LOADING Redis, after 8s: lost, leave; sleep 9s; item k → earlier: lost, leave, lost, done, left 0; " +
			"sent → k / k / k",
	})
}

// Pauses between attempts have a random part, so that processes do not repeat their attempts at the same time.
func TestPausesAreRandom(t *testing.T) {
	inBubble(t, func(t *testing.T, x *fixture) {
		began := time.Now()
		x.play(t, "reply 3 LOADING Redis; call k → 1.*; sent → k / k / k / k")
		require.NotZero(t, time.Since(began)%time.Millisecond)
	})
}

// Hooks of the client must get the values of the first caller's context, and a deadline for connecting.
func TestValues(t *testing.T) {
	type key struct{}
	inBubble(t, func(t *testing.T, x *fixture) {
		var seen []any
		addHook(x.redis, func(ctx context.Context, _ []redis.Cmder, next func() error) error {
			_, limited := ctx.Deadline()
			seen = append(seen, ctx.Value(key{}), limited)
			return next()
		})
		for i, ctx := range []context.Context{context.Background(), t.Context()} { // the caller sends its item itself, or not
			require.Equal(t, fmt.Sprint(i+1), x.call(context.WithValue(ctx, key{}, i), "k"))
		}
		require.Equal(t, []any{0, true, 1, true}, seen)
	})
}

// Hooks fail, no connection is available, or no server can be reached. A call must return in time, and be repeated only
// if the command was not sent and if there is time.
func TestHookErrors(t *testing.T) {
	const none = "no connection became free.*, after 9.5s"
	playAll(t, map[string]string{
		"late": "hook late; call k:once → context deadline exceeded: lost, done; " +
			"alone k:once → context deadline exceeded: lost, done; sent → k / k",
		"network":             "hook network; call k:once → read: context deadline exceeded, after 9.5s: lost, done",
		"no connection":       "hook no connection; call k:once → " + none,
		"no connection, once": "hook no connection, success; alone k:once → 1, after 5[.0-9]*s",
		// The hook does not set the error in the commands of the pipeline.
		"a pipeline": "hook success, EOF; occupy; queue a:once b:once; release; " +
			"item a → EOF: lost, done; item b → EOF: lost, done",
	})
	playAll(t, map[string]string{"no server": "call k → " + none + "; alone k → " + none},
		func(opt *redis.Options, _ *wire.Replicas) {
			opt.Dialer = func(ctx context.Context, _, _ string) (net.Conn, error) {
				<-ctx.Done()
				return nil, ctx.Err()
			}
		})
}

// Calls share a deadline for getting a connection. Each of them must have almost all of its own time.
func TestSharedLimit(t *testing.T) {
	inBubble(t, func(t *testing.T, x *fixture) {
		const own = 400 * time.Millisecond
		var left []time.Duration
		addHook(x.redis, func(ctx context.Context, _ []redis.Cmder, next func() error) error {
			end, _ := ctx.Deadline()
			left = append(left, time.Until(end))
			return next()
		})
		x.play(t, strings.TrimSuffix(strings.Repeat("sleep 20ms; alone k:5400ms; ", 10), "; ")) // the read timeout is 5 s
		require.GreaterOrEqual(t, slices.Min(left), own*7/8)
		require.Less(t, slices.Min(left), own, "some share")
		require.LessOrEqual(t, slices.Max(left), own)
	})
}

// A server hangs for a minute, and then replies again on new connections. The next call must succeed within a second,
// even if the client has no read timeout, because hanging calls must not occupy all connections.
func TestHangs(t *testing.T) {
	hangs := func(t *testing.T, x *fixture, callers int) {
		start := time.Now()
		x.set(func() { x.silentUntil = start.Add(time.Minute) })
		for i := range callers {
			step := []string{"alone k%d%s:merge", "call k%d%s:merge:leave=1s"}[i%2]
			x.all.Go(func() {
				for began := start; time.Since(start) < time.Minute; began = time.Now() {
					result := x.step(t, fmt.Sprintf(step, i%10, strings.Repeat("'", i/10)))
					require.True(t, time.Since(start) > time.Minute || strings.HasPrefix(result, "serial: "), result)
					require.LessOrEqual(t, time.Since(began), timeLimit)
					time.Sleep(10 * time.Millisecond)
				}
			})
		}
		time.Sleep(time.Minute)
		x.play(t, "call after → 1.*")
		require.LessOrEqual(t, time.Since(start), time.Minute+time.Second)
	}
	for _, read := range []time.Duration{0, -1, time.Minute} {
		for _, callers := range []int{1, 100} {
			inBubble(t, func(t *testing.T, x *fixture) { hangs(t, x, callers) }, func(opt *redis.Options, _ *wire.Replicas) {
				opt.PoolSize, opt.ReadTimeout = 20, read
			})
		}
	}
}

// The context of a caller cannot end. The caller must send its item itself only if the read timeout of the client
// limits the wait, that is, if there is an idle connection to a server that has just replied, and if the deadline is
// far enough away. Otherwise, the call must return in time.
func TestSendsByItself(t *testing.T) {
	const leaves = "no answer in time.*, after "
	playAll(t, map[string]string{
		"a reply has just come":       "delay 7s; alone k:15s → 1, after 7s",
		"the deadline is near":        "delay 7s; alone k:2s → " + leaves + "2s: leave",
		"not used recently":           "sleep 1s; delay 7s; alone k:6s → " + leaves + "6s: leave",
		"no connection for pipelines": "delay 7s; alone k:6s:confirm → " + leaves + "6s: leave",
	}, oneReplica)
	playAll(t, map[string]string{"no read timeout": "delay 7s; alone k:6s → " + leaves + "6s: leave"},
		func(opt *redis.Options, _ *wire.Replicas) { opt.ReadTimeout = -1 })
}
