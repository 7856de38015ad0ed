package serial_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/dailyserial/serial"
	"github.com/dailyserial/serial/internal/redistest"
)

// An unconfirmed number is burned, so a promoted replica has every number that was returned.
// Guarantees: lagging-replica.
func TestReplicas(t *testing.T) {
	t.Parallel()
	master := redistest.Start(t, "--repl-diskless-sync-delay", "0")
	replica := redistest.StartReplica(t, master)
	// Many warm connections, used in turn, expose a WAIT on a connection other than the write's: it acknowledges
	// falsely.
	opt := master.Options()
	opt.PoolFIFO, opt.MinIdleConns, opt.PoolSize = true, 8, 8
	b := backend{client: func(t *testing.T) redis.UniversalClient { return closing(t, redis.NewClient(opt)) }}
	testReplicas(t, b, replica)

	t.Run("two of one", func(t *testing.T) {
		s := b.series(t, confirmedBy(2))
		s.refusedAndBurned(s.gen, 1)
	})

	t.Run("the replica is promoted", func(t *testing.T) {
		s := b.series(t, confirmedBy(1))
		s.firstNumbers(s.gen, 5)
		replica.Pause()
		s.refusedAndBurned(s.gen, 6)
		replica.Resume()
		master.AwaitReplica(t)
		master.Kill()
		require.NoError(t, replica.ReplicaOf(nil))
		got, err := newGenerator(t, closing(t, redis.NewClient(replica.Options())), serial.WithLocation(s.loc),
			serial.WithKeyPrefix(s.prefix)).Next(t.Context(), "IS")
		require.NoError(t, err)
		require.Greater(t, got, "IS"+s.day+"0005")
	})
}

// On Cluster the master of the type's slot waits for its own replicas.
func TestReplicasOnCluster(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartReplicatedCluster(t)
	b := backend{client: func(t *testing.T) redis.UniversalClient {
		client := cluster.Client(t)
		// go-redis sends a client's first command to any node, even a paused one.
		require.NoError(t, client.Ping(t.Context()).Err())
		return client
	}}
	var replicas []*redistest.Server
	for i := range 3 {
		_, replica := cluster.Pair(t, i)
		replicas = append(replicas, replica)
	}
	testReplicas(t, b, replicas...)

	// go-redis would ask the replicas for their list of commands and wait 5 s for each.
	t.Run("a new process while replicas hang", func(t *testing.T) {
		var mu sync.Mutex
		sent := map[string]bool{}
		client := cluster.Client(t)
		client.OnNewNode(func(node *redis.Client) {
			node.AddHook(around(func(cmd redis.Cmder, send func() error) error {
				mu.Lock()
				sent[cmd.Name()] = true
				mu.Unlock()
				return send()
			}))
		})
		s := backend{client: func(*testing.T) redis.UniversalClient { return client }}.series(t)
		for _, r := range replicas {
			r.Pause()
			defer r.Resume()
		}
		s.next(s.gen, 1) // under the lock
		s.next(s.gen, 2)
		require.Eventually(t, func() bool { // the lock is released after the answer
			mu.Lock()
			defer mu.Unlock()
			return sent["set"] && sent["evalsha"]
		}, 10*time.Second, time.Millisecond)
		require.False(t, sent["command"], "%v", sent)
	})

	t.Run("a slot moves", func(t *testing.T) {
		s := b.series(t, confirmedBy(1))
		s.firstNumbers(s.gen, 3)
		slot := s.rdb.(*redis.ClusterClient).ClusterKeySlot(t.Context(), s.record).Val()
		issued := 3
		// MOVED and ASK, and keys on both sides in between.
		during(func() { cluster.MoveSlot(t, int(slot), 200*time.Millisecond) }, func() {
			issued++
			s.next(s.gen, issued)
		})
		s.next(s.generator(confirmedBy(1)), issued+1)
	})
}

// The first slot moves to a master that had none: no list of slots names it yet, but redirections do.
func TestReplicasOnGrowingCluster(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartReplicatedCluster(t)
	master := joining(t, cluster)
	replica := joining(t, cluster)
	id := master.Do("CLUSTER", "MYID").Val()
	require.Eventually(t, func() bool {
		return replica.Do("CLUSTER", "REPLICATE", id).Err() == nil
	}, 20*time.Second, 10*time.Millisecond)
	require.Eventually(t, func() bool {
		info, err := master.Do("INFO", "replication").Text()
		return err == nil && strings.Contains(info, "state=online")
	}, 20*time.Second, 10*time.Millisecond)

	var open atomic.Int64
	client := closing(t, redis.NewClusterClient(&redis.ClusterOptions{
		Addrs: cluster.Addrs(),
		Dialer: func(ctx context.Context, network, addr string) (net.Conn, error) {
			conn, err := (&net.Dialer{}).DialContext(ctx, network, addr)
			if err != nil {
				return nil, err
			}
			open.Add(1)
			return &closes{conn, sync.OnceFunc(func() { open.Add(-1) })}, nil
		},
	}))
	s := backend{client: func(*testing.T) redis.UniversalClient { return client }}.series(t)
	gen := s.generator(confirmedBy(1), serial.WithTemplate("{type}{date:yyyyMMdd}{seq:9}")) // many fit
	issued := int64(0)
	next := func() {
		t.Helper()
		issued++
		requireSeq(t, issued)(gen.NextNumber(t.Context(), "IS"))
	}
	next()
	// MoveSlot moves a slot to the master that follows its own in this list.
	from, err := client.MasterForKey(t.Context(), s.record)
	require.NoError(t, err)
	at := 1 + slices.Index(cluster.Addrs(), from.Options().Addr)
	require.Positive(t, at)
	cluster.Servers = slices.Insert(cluster.Servers, at, master)
	cluster.Replicas = slices.Insert(cluster.Replicas, at, replica)

	slot := int(client.ClusterKeySlot(t.Context(), s.record).Val())
	// A second is longer than the pauses between attempts, so one of them finds the keys moved but not yet the slot.
	during(func() { cluster.MoveSlot(t, slot, time.Second) }, next)
	require.Positive(t, master.Do("EXISTS", s.counter).Val())
	require.NoError(t, client.Close())
	require.Eventually(t, func() bool { return open.Load() == 0 }, 10*time.Second, time.Millisecond, "connections")
}

// during calls f repeatedly until work has ended, and once more.
func during(work, f func()) {
	done := make(chan struct{})
	defer func() { <-done }()
	go func() {
		defer close(done)
		work()
	}()
	for going := true; going; f() {
		select {
		case <-done:
			going = false
		default:
		}
	}
}

// In a redirection, Redis writes an IPv6 address without brackets.
func TestReplicasByIPv6(t *testing.T) {
	m := miniredis.RunT(t)
	var mu sync.Mutex
	dialed := map[string]bool{}
	client := closing(t, redis.NewClusterClient(&redis.ClusterOptions{
		ClusterSlots: func(context.Context) ([]redis.ClusterSlot, error) {
			return []redis.ClusterSlot{{Start: 0, End: 16383, Nodes: []redis.ClusterNode{{Addr: "[::1]:1"}}}}, nil
		},
		Dialer: func(ctx context.Context, network, addr string) (net.Conn, error) {
			mu.Lock()
			defer mu.Unlock()
			dialed[addr] = true
			return (&net.Dialer{}).DialContext(ctx, "tcp", m.Addr())
		},
	}))
	client.OnNewNode(func(node *redis.Client) {
		node.AddHook(everyCall(func(cmds []redis.Cmder, send func() error) error {
			if cmds[len(cmds)-1].Name() != "wait" { // setting up a connection
				return send()
			}
			for _, cmd := range cmds {
				cmd.SetErr(errors.New("MOVED 1 ::1:2"))
			}
			return cmds[0].Err()
		}))
	})
	_, err := newGenerator(t, client, confirmedBy(1)).Next(t.Context(), "IS")
	require.ErrorIs(t, err, serial.ErrNotReplicated, "miniredis has no replicas")
	mu.Lock()
	defer mu.Unlock()
	require.Contains(t, dialed, "[::1]:2")
}

// closes is a connection that calls closed when it is closed.
type closes struct {
	net.Conn
	closed func()
}

func (c *closes) Close() error {
	c.closed()
	return c.Conn.Close()
}

// joining starts another node of a cluster, without slots.
func joining(t *testing.T, cluster *redistest.Cluster) *redistest.Server {
	s := redistest.Start(t, "--cluster-enabled", "yes", "--cluster-node-timeout", "2000", "--cluster-announce-ip",
		"127.0.0.1", "--cluster-require-full-coverage", "no", "--cluster-allow-replica-migration", "no")
	for _, other := range cluster.Addrs() {
		_, port, err := net.SplitHostPort(other)
		require.NoError(t, err)
		require.NoError(t, s.Do("CLUSTER", "MEET", "127.0.0.1", port).Err())
	}
	for _, other := range cluster.Servers { // they must know it, or redirections contain no address
		require.Eventually(t, func() bool {
			nodes, err := other.Do("CLUSTER", "NODES").Text()
			return err == nil && strings.Contains(nodes, s.Addr()) && !strings.Contains(nodes, "handshake")
		}, 20*time.Second, 10*time.Millisecond)
	}
	return s
}

// refusedAndBurned requires that Next fails for lack of confirmations and that n numbers are used up in all.
func (s *series) refusedAndBurned(gen *serial.Generator, n int) {
	s.t.Helper()
	before := time.Now()
	_, err := gen.Next(s.t.Context(), "IS")
	require.ErrorIs(s.t, err, serial.ErrNotReplicated)
	require.NotErrorIs(s.t, err, context.DeadlineExceeded)
	require.Less(s.t, time.Since(before), replicate+5*time.Second)
	require.Equal(s.t, fmt.Sprint(n), s.rdb.Get(s.t.Context(), s.counter).Val())
}

func testReplicas(t *testing.T, b backend, replicas ...*redistest.Server) {
	down := func(f func()) {
		for _, r := range replicas {
			r.Pause()
		}
		defer func() { // even if f fails
			for _, r := range replicas {
				r.Resume()
			}
		}()
		f()
		for _, r := range replicas {
			r.Resume()
		}
		probe := b.series(t, confirmedBy(1)).gen
		for i := range 20 { // types on every master
			require.Eventually(t, func() bool {
				_, err := probe.Next(context.Background(), fmt.Sprint("PROBE", i))
				return err == nil
			}, 20*time.Second, 10*time.Millisecond)
		}
	}

	t.Run("confirmed, burned, confirmed", func(t *testing.T) {
		s := b.series(t, confirmedBy(1))
		s.next(s.gen, 1)
		s.next(s.gen, 2)
		down(func() {
			s.refusedAndBurned(s.gen, 3)
			require.ErrorIs(t, errOf(s.gen.NextN(t.Context(), "IS", 5)), serial.ErrNotReplicated)
			require.ErrorIs(t, s.gen.Raise(t.Context(), "IS", 20), serial.ErrNotReplicated)
			require.ErrorIs(t, s.gen.Raise(t.Context(), "IS", 20), serial.ErrNotReplicated,
				"nor does it count unconfirmed numbers")
			// The same holds for the first number, which opens the period.
			require.ErrorIs(t, errOf(s.gen.Next(t.Context(), "NEW")), serial.ErrNotReplicated)
			requireSeq(t, 20)(s.gen.Peek(t.Context(), "IS"))
			s.next(s.generator(), 21) // without WithReplicas, calls are not delayed
		})
		// Unconfirmed numbers do not raise the mark, so the counter may go back below them.
		require.NoError(t, s.rdb.Set(t.Context(), s.counter, 2, time.Hour).Err())
		s.next(s.gen, 3)
		require.NoError(t, s.gen.Raise(t.Context(), "IS", 3))
		require.NoError(t, s.rdb.Set(t.Context(), s.counter, 2, time.Hour).Err())
		s.refused(s.gen, serial.ErrCounterLost)
	})

	t.Run("a repeated request", func(t *testing.T) { testOnceWithReplicas(t, b, down) })

	t.Run("unknown script", func(t *testing.T) {
		s := b.series(t, confirmedBy(1))
		for i := range 3 {
			require.NoError(t, s.flushScripts())
			s.next(s.gen, i+1)
		}
	})

	t.Run("many callers of many types", func(t *testing.T) {
		s := b.series(t, confirmedBy(1))
		fresh := ""
		each := func(want error) {
			var mu sync.Mutex
			got := map[string][]string{}
			var wg sync.WaitGroup
			for i := range 200 {
				wg.Go(func() {
					typ := fmt.Sprint(fresh, "T", i%20)
					number, err := s.gen.Next(context.Background(), typ)
					require.ErrorIs(t, err, want)
					mu.Lock()
					defer mu.Unlock()
					got[typ] = append(got[typ], number)
				})
			}
			wg.Wait()
			if want == nil {
				for typ, all := range got {
					require.Len(t, all, 10)
					for _, number := range all {
						require.True(t, strings.HasPrefix(number, typ+s.day), number)
					}
				}
			}
		}
		each(nil)
		down(func() { each(serial.ErrNotReplicated) })
		each(nil)
		fresh = "F"
		down(func() { each(serial.ErrNotReplicated) })
	})
}

func TestReplicasOptions(t *testing.T) {
	slow := closing(t, redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", ReadTimeout: 400 * time.Millisecond}))
	none := closing(t, redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", ReadTimeout: -1}))
	for _, c := range []struct {
		rdb  *redis.Client
		n    int
		wait time.Duration
		says string
	}{
		{slow, -1, time.Second, "WithReplicas(-1, 1s): want 0 to 1000 replicas"},
		{slow, 1001, time.Second, "WithReplicas(1001, 1s)"},
		{slow, 1, 0, "WithReplicas(1, 0s): want timeouts of whole milliseconds, at least one"},
		{slow, 1, 1500 * time.Microsecond, "whole milliseconds"},
		{slow, 1, 201 * time.Millisecond, "want timeouts up to 200ms, half of the client's read timeout"},
		{none, 1, 2501 * time.Millisecond, "want timeouts up to 2.5s"},
	} {
		require.ErrorContains(t, errOf(serial.New(c.rdb, serial.WithReplicas(c.n, c.wait))), c.says)
	}
	for _, ok := range []time.Duration{time.Millisecond, 200 * time.Millisecond} {
		newGenerator(t, slow, serial.WithReplicas(1, ok))
	}
	newGenerator(t, slow, serial.WithReplicas(0, 0))
}
