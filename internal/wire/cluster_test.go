package wire_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/dailyserial/serial/internal/wire"
)

// Items in a pipeline need confirmation. One WAIT at the end of the pipeline must confirm all of them. Items that need
// no confirmation must not wait for it.
func TestConfirm(t *testing.T) {
	const none = ", 0 of 1 replicas confirmed within 1s"
	playAll(t, map[string]string{
		"no replica confirms": "call k:confirm → 1" + none + "; alone k:confirm → 2" + none + "; sent → k wait:1 / k wait:1",
		"a replica confirms":  "set replicas 1; call k:confirm → 1; alone k:confirm → 2; sent → k wait:1 / k wait:1",
		"a replica is unavailable": "delay 1s; go call a:confirm → 1" + none + ", after 1s; sleep 500ms; " +
			"call b:confirm → 1" + none + ", after 1(.5)?s",
		"some items need no confirmation": "occupy; queue a:confirm b c:confirm d; " +
			"answer → a c wait:1; answer → b d; release; item a → 1" + none + "; item b → 1; item c → 1" + none + "; item d → 1",
	}, oneReplica)
	playAll(t, map[string]string{"there are no replicas": "call k:confirm → 1; sent → k"})
}

// The type of the client is not known, so it may be a client of a Cluster. Each item must be sent alone, and as many at
// the same time as there are connections.
func TestUnknownClient(t *testing.T) {
	inBubble(t, func(t *testing.T, x *fixture) {
		replicas := wire.Replicas{N: 1, Timeout: time.Second}
		x.Client = wire.New(struct{ *redis.Client }{x.redis}, replicas, func() any { return 1 })
		x.node = x.Node(t.Context(), "")
		require.Equal(t, 1, *x.node.Together())
		// One slot less than there are connections.
		x.play(t, "trip 100ms; hold; queue 0 1 2 3 4 5 6 7 8 9 → 0 / 1 / 2 / 3 / 4; queue k:confirm; "+
			"go call a:plain:then=b → 1; release → ([5-9] / )*incr:a / ([5-9] / )*b( / [5-9])*; item b → 1; "+
			"item k → a client of this kind cannot have replicas confirm a write: lost, done")
	}, connections(6))
}

// Keys move between the masters of a Cluster. Each master must have a separate Node as soon as a master has replied, and
// items with and without confirmation must follow their keys, each by itself. The fault suite moves slots of a real
// Cluster.
func TestCluster(t *testing.T) {
	inBubble(t, func(t *testing.T, x *fixture) {
		var moved atomic.Bool // the first node has no keys any more, and the second one has all of them
		nodes := []string{"10.0.0.1:6379", "10.0.0.2:6379"}
		opt := &redis.ClusterOptions{Dialer: x.dial, PoolSize: 1000}
		opt.ClusterSlots = func(context.Context) ([]redis.ClusterSlot, error) {
			end := map[bool]int{false: 8191, true: 4000}[moved.Load()] // of the slots of the first node; k has slot 7629
			return []redis.ClusterSlot{{Start: 0, End: end, Nodes: []redis.ClusterNode{{Addr: nodes[0]}}},
				{Start: end + 1, End: 16383, Nodes: []redis.ClusterNode{{Addr: nodes[1]}}}}, nil
		}
		client := redis.NewClusterClient(opt)
		defer client.Close()
		client.OnNewNode(func(node *redis.Client) {
			x.watch(node)
			addHook(node, func(_ context.Context, cmds []redis.Cmder, send func() error) error {
				if !moved.Load() || node.Options().Addr != nodes[0] {
					return send()
				}
				for _, cmd := range cmds {
					cmd.SetErr(refusal("MOVED 1 " + nodes[1]))
				}
				return cmds[0].Err()
			})
		})
		x.Client = wire.New(client, wire.Replicas{N: 1, Timeout: time.Second}, func() any { return new(int) })
		node := func(key string) *wire.Node { return x.Node(t.Context(), key) }
		require.NotSame(t, node("k"), node("k"), "nobody waits to find out the slots")
		x.node = node("k")
		x.play(t, "set replicas 1; call k:confirm → 1")
		require.Same(t, node("k"), node("k"))
		require.NotSame(t, node("k"), node("a"))
		x.node = node("k")
		x.play(t, "reply ASK 1 10.0.0.2:6379; call k → 2; "+
			"reply 5 MOVED 1 10.0.0.2:6379; call k:confirm → 3, after 1?[0-9][0-9]ms")
		moved.Store(true)
		x.play(t, "occupy; queue k k':confirm k''; release; sleep 1s; sent → k k / k / k / k / k / (k wait:1 / )+k wait:1; "+
			"item k → [45]; item k'' → [45]; item k' → 6; item first → 1")
	})
}
