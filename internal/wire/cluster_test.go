package wire_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/dailyserial/serial/internal/redistest"
	"github.com/dailyserial/serial/internal/wire"
)

// Items in a pipeline need confirmation. One WAIT at the end of the pipeline must confirm all of them. Items that need
// no confirmation must not wait for it.
func TestConfirm(t *testing.T) {
	const none = ", 0 of 1 replicas confirmed within 1s"
	playAll(t, map[string]string{
		"no replica confirms": "call k confirm → 1" + none + "; alone k confirm → 2" + none + "; sent → k wait:1 / k wait:1",
		"a replica confirms":  "replicas 1; call k confirm → 1; alone k confirm → 2; sent → k wait:1 / k wait:1",
		"a replica is unavailable": "delay 1s; go call a confirm → 1" + none + ", after 1s; sleep 500ms; " +
			"call b confirm → 1" + none + ", after 1(.5)?s",
		"some items need no confirmation": "occupy; start a confirm; start b; start c confirm; start d; " +
			"answer → a c wait:1; answer → b d; release; item a → 1" + none + "; item b → 1; item c → 1" + none + "; item d → 1",
	}, oneReplica)
	playAll(t, map[string]string{"there are no replicas": "call k confirm → 1; sent → k"})
}

// The type of the client is not known, so it may be a client of a Cluster. Each item must be sent alone, and as many at
// the same time as there are connections.
func TestUnknownClient(t *testing.T) {
	inBubble(t, func(t *testing.T, x *fixture) {
		replicas := wire.Replicas{N: 1, Timeout: time.Second}
		x.Client = wire.New(struct{ *redis.Client }{x.redis}, replicas, func() any { return 1 })
		x.node = x.Node(t.Context(), "")
		require.Equal(t, 1, x.node.Together())
		// One slot less than there are connections.
		x.play(t, "trip 100ms; hold; queue 0 1 2 3 4 5 6 7 8 9 → 0 / 1 / 2 / 3 / 4; start k confirm; "+
			"go call a plain then=b → 1; release → ([5-9] / )*incrby:a / ([5-9] / )*b( / [5-9])*; item b → 1; "+
			"item k → a client of this kind cannot have replicas confirm a write: lost, done")
	}, connections(6))
}

func TestConfigured(t *testing.T) {
	client := func(retries int, read time.Duration) redis.UniversalClient {
		c := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", MaxRetries: retries, ReadTimeout: read})
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	cluster := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{"127.0.0.1:1"}, ReadTimeout: time.Second})
	defer cluster.Close()
	type configured struct {
		retries int
		read    time.Duration
	}
	for client, want := range map[redis.UniversalClient]configured{
		client(0, 0):                             {3, 5 * time.Second},
		client(-1, -1):                           {0, 0},
		client(7, 6*time.Second):                 {7, 0},
		cluster:                                  {3, time.Second},
		struct{ redis.UniversalClient }{cluster}: {3, 0},
	} {
		retries, read := wire.Configured(client)
		require.Equal(t, want, configured{retries, read})
	}
}

// A slot moves between the masters of a real Cluster. Each master must have a separate Node as soon as a master has
// replied, and every item must reach its key, with and without confirmation by replicas.
func TestCluster(t *testing.T) {
	cluster := redistest.StartReplicatedCluster(t)
	client, ctx := cluster.Client(t), t.Context()
	c := wire.New(client, wire.Replicas{N: 1, Timeout: time.Second}, func() any { return new(int) })
	require.NotSame(t, c.Node(ctx, "k"), c.Node(ctx, "k"), "nobody waits to find out the slots")
	next := func(key string, confirm bool) {
		call := newCall(key)
		call.Confirm = confirm
		item, _, err := c.Do(ctx, c.Node(ctx, key), call.Item)
		require.NoError(t, err)
		require.NoError(t, item.Result.Err)
		require.NoError(t, item.Result.Unconfirmed)
	}
	next("k", true)
	require.Same(t, c.Node(ctx, "k"), c.Node(ctx, "k"))
	require.Equal(t, wire.MaxTogether, c.Node(ctx, "k").Together())

	slot := int(client.ClusterKeySlot(ctx, "k").Val())
	moving, moved := context.WithCancel(ctx)
	var all sync.WaitGroup
	counts := make([]int, 8)
	for i := range counts {
		all.Go(func() {
			for key := fmt.Sprintf("{k}%d", i); moving.Err() == nil; counts[i]++ {
				next(key, i%2 == 0)
			}
		})
	}
	cluster.MoveSlot(t, slot, 200*time.Millisecond)
	moved()
	all.Wait()
	for i, want := range counts {
		got, err := client.Get(ctx, fmt.Sprintf("{k}%d", i)).Int()
		require.NoError(t, err)
		require.Equal(t, want, got, "each ran once")
	}
}
