package wire_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/dailyserial/serial/internal/redistest"
	"github.com/dailyserial/serial/internal/wire"
)

// confirmed returns a call whose write must be confirmed by replicas.
func confirmed(key string) *call {
	c := newCall(key, "")
	c.Confirm = true
	return c
}

func oneReplica(_ *redis.Options, replicas *wire.Replicas) {
	*replicas = wire.Replicas{N: 1, Timeout: time.Second}
}

// Items in a pipeline need confirmation. One WAIT at the end of the pipeline must confirm all of them. Items that need
// no confirmation must not wait for it.
func TestConfirm(t *testing.T) {
	inBubble(t, func(t *testing.T, x *fixture) {
		x.warm(t)
		for i := range 2 {
			x.set(func() { x.replicas = i })
			for _, ctx := range contexts(t) {
				c := confirmed("k")
				require.NoError(t, errOf(x.do(ctx, c)))
				require.Equal(t, []string{"evalsha:k wait"}, x.arrived())
				if i == 0 {
					require.EqualError(t, c.Result.Unconfirmed, "0 of 1 replicas confirmed within 1s")
				} else {
					require.NoError(t, c.Result.Unconfirmed)
				}
			}
		}
		x.set(func() { x.replicas = 0 })
		_, release := x.hold()
		x.queue(t, "first")
		var calls []*call
		for i, key := range keys(6) {
			c := newCall(key, "")
			c.Confirm = i%2 == 0
			x.Start(t.Context(), x.node, c.Item)
			calls = append(calls, c)
		}
		release()
		time.Sleep(time.Second)
		synctest.Wait()
		require.Equal(t, []string{
			"evalsha:first", "evalsha:k0 evalsha:k2 evalsha:k4 wait", "evalsha:k1 evalsha:k3 evalsha:k5",
		}, x.arrived())
		for _, c := range calls {
			require.NoError(t, c.Result.Err)
			require.Equal(t, c.Confirm, c.Result.Unconfirmed != nil)
		}
	}, oneReplica)
	inBubble(t, func(t *testing.T, x *fixture) {
		x.warm(t)
		require.NoError(t, errOf(x.do(t.Context(), confirmed("k"))))
		require.Equal(t, []string{"evalsha:k"}, x.arrived(), "there are no replicas")
	})
}

// A replica is unavailable. No call must take more than a second longer than its own WAIT.
func TestReplicaAway(t *testing.T) {
	inBubble(t, func(t *testing.T, x *fixture) {
		x.script(increment)
		x.set(func() { x.delay = time.Second })
		end := time.Now().Add(20 * time.Second)
		var all sync.WaitGroup
		for i := range 100 {
			all.Go(func() {
				for time.Now().Before(end) {
					start := time.Now()
					c := confirmed(fmt.Sprint(i % 10))
					c.Merge.Name = fmt.Sprint(i % 10)
					item, _, err := x.Do(t.Context(), x.node, c.Item)
					require.NoError(t, err)
					require.Error(t, item.Result.Unconfirmed)
					require.LessOrEqual(t, time.Since(start), 2*time.Second)
				}
			})
		}
		all.Wait()
	}, oneReplica, func(opt *redis.Options, _ *wire.Replicas) { opt.PoolSize = 20 })
}

// The type of the client is not known, so it may be a client of a Cluster. Each item must be sent alone, and as many at
// the same time as there are connections.
func TestUnknownClient(t *testing.T) {
	inBubble(t, func(t *testing.T, x *fixture) {
		x.script(increment)
		replicas := wire.Replicas{N: 1, Timeout: time.Second}
		x.Client = wire.New(struct{ *redis.Client }{x.redis}, replicas, func() any { return 1 })
		x.node = x.Node(t.Context(), "")
		require.Equal(t, 1, x.node.Together())
		x.trip(t, 100*time.Millisecond)
		_, release := x.hold()
		x.queue(t, keys(10)...)
		require.Len(t, x.arrived(), 5, "one less than there are connections")
		c := confirmed("k")
		set := plain(1, "incrby", "a", 1)
		set.Then = newCall("b", "").Item
		x.Start(t.Context(), x.node, c.Item)
		x.Start(t.Context(), x.node, set.Item)
		release()
		require.NoError(t, c.Wait(t.Context()))
		require.ErrorContains(t, c.Result.Err, "a client of this kind cannot have replicas confirm a write")
		require.NoError(t, set.Then.Wait(t.Context()))
		require.EqualValues(t, 1, set.Then.Result.Value)
		got := x.arrived()
		require.Less(t, slices.Index(got, "incrby:a"), slices.Index(got, "evalsha:b"))
		require.Equal(t, 7, len(got), "each alone")
	}, func(opt *redis.Options, _ *wire.Replicas) { opt.PoolSize = 6 })
}

func TestConfigured(t *testing.T) {
	client := func(opt redis.Options) redis.UniversalClient {
		opt.Addr = "127.0.0.1:1"
		c := redis.NewClient(&opt)
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	cluster := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{"127.0.0.1:1"}, ReadTimeout: time.Second})
	defer cluster.Close()
	for _, c := range []struct {
		client  redis.UniversalClient
		retries int
		read    time.Duration
	}{
		{client(redis.Options{}), 3, 5 * time.Second},
		{client(redis.Options{MaxRetries: -1, ReadTimeout: -1}), 0, 0},
		{client(redis.Options{MaxRetries: 7, ReadTimeout: 6 * time.Second}), 7, 0},
		{cluster, 3, time.Second},
		{struct{ redis.UniversalClient }{cluster}, 3, 0},
	} {
		retries, read := wire.Configured(c.client)
		require.Equal(t, c.retries, retries)
		require.Equal(t, c.read, read)
	}
}

// A slot moves between the masters of a real Cluster. Each master must have a separate Node as soon as a master has
// replied, and every item must reach its key, with and without confirmation by replicas.
func TestCluster(t *testing.T) {
	cluster := redistest.StartReplicatedCluster(t)
	client := cluster.Client(t)
	ctx := t.Context()
	c := wire.New(client, wire.Replicas{N: 1, Timeout: time.Second}, func() any { return new(int) })
	n := c.Node(ctx, "k")
	require.NotSame(t, n, c.Node(ctx, "k"), "nobody waits to find out the slots")
	next := func(key string, confirm bool) error {
		item := newCall(key, "")
		item.Confirm = confirm
		_, _, err := c.Do(ctx, c.Node(ctx, key), item.Item)
		if err == nil {
			err = item.Result.Err
		}
		if err == nil {
			err = item.Result.Unconfirmed
		}
		return err
	}
	require.NoError(t, next("k", true))
	require.Same(t, c.Node(ctx, "k"), c.Node(ctx, "k"))
	require.Equal(t, wire.MaxTogether, c.Node(ctx, "k").Together())

	slot := int(client.ClusterKeySlot(ctx, "k").Val())
	over := make(chan struct{})
	var all sync.WaitGroup
	counts := make([]int, 8)
	for i := range counts {
		all.Go(func() {
			for done := false; !done; {
				select {
				case <-over:
					done = true
				default:
				}
				require.NoError(t, next(fmt.Sprintf("{k}%d", i), i%2 == 0))
				counts[i]++
			}
		})
	}
	cluster.MoveSlot(t, slot, 200*time.Millisecond)
	close(over)
	all.Wait()
	for i, want := range counts {
		got, err := client.Get(ctx, fmt.Sprintf("{k}%d", i)).Int()
		require.NoError(t, err)
		require.Equal(t, want, got, "each ran once")
	}
}

// A real server must reply to pipelines of many items, and get the scripts again after SCRIPT FLUSH.
func TestRealServer(t *testing.T) {
	client := redistest.Start(t).Client(t)
	c := wire.New(client, wire.Replicas{}, func() any { return nil })
	for range 3 {
		var all sync.WaitGroup
		for i := range 1000 {
			all.Go(func() {
				ctx := t.Context()
				if i%2 == 0 {
					ctx = context.Background()
				}
				item := newCall(fmt.Sprint(i), "")
				_, _, err := c.Do(ctx, c.Node(ctx, ""), item.Item)
				require.NoError(t, err)
				require.NoError(t, item.Result.Err)
				require.NoError(t, item.Result.Earlier)
			})
		}
		all.Wait()
		require.NoError(t, client.ScriptFlush(t.Context()).Err())
	}
	for i := range 1000 {
		require.Equal(t, "3", client.Get(t.Context(), fmt.Sprint(i)).Val())
	}
}
