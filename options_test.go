package serial_test

import (
	"context"
	"errors"
	"fmt"
	"io"
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

// A range ends: with its last sequence, and with its last day, at the first instant of the next by Redis's clock.
func TestUntil(t *testing.T) {
	t.Parallel()
	hours := kindOf("hours", serial.PerHour, "yyyyMMddHH")
	seconds := kindOf("seconds", serial.PerSecond, "yyyyMMddHHmmss")
	dated := kindOf("never, dated", serial.Never, "yyyyMMdd")
	timed := kindOf("years with hours", serial.PerYear, "yyyyMMddHH")
	four := func(k kind) kind {
		return kind{k.name + " from 04:00", append(k.opts[:len(k.opts):len(k.opts)], serial.WithDayStart(4*time.Hour))}
	}
	zones := []struct {
		zone  string
		last  serial.When
		over  string // first instant after the last day, UTC
		over4 string // with days from 04:00
	}{
		{"UTC", serial.On(2025, time.December, 31), "2026-01-01", "2026-01-01 04:00"},
		{"America/Sao_Paulo", serial.On(2018, time.November, 3), "2018-11-04 03:00", "2018-11-04 06:00"}, // no midnight
		{"Europe/Berlin", serial.On(2024, time.October, 27), "2024-10-27 23:00", "2024-10-28 03:00"},     // 25 hours
		{"America/New_York", serial.On(2025, time.March, 9), "2025-03-10 04:00", "2025-03-10 08:00"},     // 23 hours
	}
	if !redistest.Long() {
		zones = zones[:2]
		t.Log("days of 23 and 25 hours are left out without SERIAL_TEST_LONG=1")
	}
	for _, z := range zones {
		for _, k := range []kind{daily, weekly, monthly, quarterly, fiscal, endless, dated, hours, seconds, timed,
			four(daily), four(weekly), four(monthly), four(fiscal)} {
			for _, with := range []bool{false, true} {
				over := utc(t, z.over)
				if strings.HasSuffix(k.name, "from 04:00") {
					over = utc(t, z.over4)
				}
				before := time.Nanosecond // the last instant
				if k.name == seconds.name {
					if with {
						continue // no ledger
					}
					before = time.Second // this host's clock goes on while the server's stands still
				}
				t.Run(fmt.Sprintf("%s, %s, ledger %v", z.zone, k.name, with), func(t *testing.T) {
					testUntil(t, z.zone, z.last, over, before, append(ledgerIf(with, 10), k.opts...))
				})
			}
		}
	}
}

func testUntil(
	t *testing.T, zone string, last serial.When, over time.Time, before time.Duration, opts []serial.Option,
) {
	m, rdb := startMini(t)
	loc, ctx := location(t, zone), t.Context()
	opts = append(opts, serial.WithLocation(loc), serial.WithMaxSkew(-1), serial.WithUntil(last), serial.WithRetention(0))
	gen := newGenerator(t, rdb, opts...)
	second := newGenerator(t, rdb, opts...)
	m.SetTime(over.Add(-before))
	require.NoError(t, errOf(gen.Next(ctx, "IS")))
	require.NoError(t, errOf(gen.NextN(ctx, "IS", 4)))
	once, err := gen.NextOnce(ctx, "IS", "a")
	require.NoError(t, err)
	require.NoError(t, gen.Raise(ctx, "IS", 20))
	requireSeq(t, 20)(second.Peek(ctx, "IS"))
	at, used := serial.At(over.Add(-time.Nanosecond)), func(yield func(string, error) bool) { yield(once.String(), nil) }

	m.SetTime(over)
	label, _, _ := gen.Scheme().Period(at)
	now, _, _ := gen.Scheme().Period(serial.At(over))
	keys := m.Keys()
	for _, gen := range []*serial.Generator{gen, second, newGenerator(t, rdb, opts...)} {
		for name, err := range map[string]error{
			"Next": errOf(gen.Next(ctx, "IS")), "NextN": errOf(gen.NextN(ctx, "IS", 2)),
			"NextOnce": errOf(gen.NextOnce(ctx, "IS", "b")), "Prepare": gen.Prepare(ctx, "IS"),
			"Raise": gen.Raise(ctx, "IS", 30), "Takeover": gen.Takeover(ctx, "IS", 30),
		} {
			require.ErrorIs(t, err, serial.ErrExhausted, name)
			require.ErrorContains(t, err, "the last day for numbers of IS was "+last.String()+", and Redis's clock says "+
				over.Format(time.RFC3339)+"; a later WithUntil takes effect at once", name)
		}
		requireResult(t, once.String())(textOf(gen.NextOnce(ctx, "IS", "a")))
		n, err := gen.Peek(ctx, "IS")
		require.NoError(t, err)
		all, err := gen.History(ctx, "IS", 1)
		require.NoError(t, err)
		if label == now {
			require.EqualValues(t, 20, n.Seq)
			require.Len(t, all, 1)
			report, err := gen.Audit(ctx, "IS", at, used)
			require.NoError(t, err)
			require.EqualValues(t, 20, report.Last)
			require.EqualValues(t, 1, report.Count)
		} else {
			require.Zero(t, n.Seq)
			require.Empty(t, all)
		}
		requireSeq(t, once.Seq)(gen.Parse(once.String()))
	}
	for _, key := range m.Keys() {
		require.Contains(t, keys, key, "nothing was opened")
	}

	// A later date takes effect at once.
	later := newGenerator(t, rdb, append(opts, serial.WithUntil(serial.On(2030, time.January, 1)))...)
	n, err := later.NextNumber(ctx, "IS")
	require.NoError(t, err)
	require.Equal(t, label == now, n.Seq == 21)
	m.SetTime(over.Add(-time.Second))
	if label == now {
		requireSeq(t, 22)(gen.NextNumber(ctx, "IS")) // Redis's clock decides, not what this process has seen of it
	}
}

// testEndOfRange covers the last sequence, and the last day as it ends by the server's own clock.
func testEndOfRange(t *testing.T, b backend) {
	b.run(t, "the last sequence", func(t *testing.T, s *series) {
		s.firstNumbers(s.gen, 3)
		s.refused(s.gen, serial.ErrExhausted)
		s.next(s.generator(), 4)
		s.refused(s.gen, serial.ErrExhausted)
	}, serial.WithLast(3))

	b.run(t, "the last day", func(t *testing.T, s *series) {
		now := time.Now().In(s.loc)
		ends := now.Add(2 * time.Second).Truncate(time.Second)
		start := ends.Sub(time.Date(ends.Year(), ends.Month(), ends.Day(), 0, 0, 0, 0, s.loc))
		opts := []serial.Option{serial.WithPeriod(serial.PerMonth), serial.WithTemplate("{type}{date:yyyyMM}{seq:6}"),
			serial.WithDayStart(start)}
		last := s.generator(opts...).Scheme().BusinessDate(serial.At(now))
		gen := s.generator(append(opts, serial.WithUntil(last))...)
		once, err := gen.NextOnce(t.Context(), "IS", "a")
		require.NoError(t, err)
		var began time.Time
		for issued := int64(1); ; issued++ {
			before := time.Now()
			if _, err = gen.NextN(t.Context(), "IS", 2); err != nil {
				requireSeq(t, 2*issued-1)(gen.Peek(t.Context(), "IS"))
				break
			}
			began = before
			time.Sleep(time.Millisecond)
		}
		require.ErrorIs(t, err, serial.ErrExhausted)
		require.False(t, time.Now().Before(ends))
		require.True(t, began.Before(ends))
		require.ErrorIs(t, gen.Raise(t.Context(), "IS", 5), serial.ErrExhausted)
		requireResult(t, once.String())(textOf(gen.NextOnce(t.Context(), "IS", "a")))
	})
}

// WithLast ends every period, for batches, operators and floors.
func TestLast(t *testing.T) {
	for _, with := range []bool{false, true} {
		t.Run(fmt.Sprintf("ledger %v", with), func(t *testing.T) {
			_, rdb := startMini(t)
			ctx, ledger := t.Context(), ledgerIf(with, 10)
			limited := func(last int64, opts ...serial.Option) *serial.Generator {
				return newGenerator(t, rdb, slices.Concat(ledger, []serial.Option{serial.WithLocation(noon()),
					serial.WithStart(5), serial.WithLast(last)}, opts)...)
			}
			gen := limited(9)
			first, last := gen.Scheme().Limits()
			require.Equal(t, []int64{5, 9}, []int64{first, last})
			require.ErrorIs(t, errOf(gen.NextN(ctx, "IS", 10)), serial.ErrExhausted)
			requireSeq(t, 5)(gen.NextNumber(ctx, "IS"))
			require.ErrorIs(t, errOf(gen.NextN(ctx, "IS", 5)), serial.ErrExhausted)
			require.EqualError(t, gen.Raise(ctx, "IS", 10), "serial: Raise of IS to 10: want 0 to 9")
			require.EqualError(t, gen.Takeover(ctx, "IS", 10), "serial: Takeover of IS to 10: want 0 to 9")
			require.NoError(t, errOf(gen.NextN(ctx, "IS", 4)))
			err := errOf(gen.Next(ctx, "IS"))
			require.ErrorIs(t, err, serial.ErrExhausted)
			require.ErrorContains(t, err, "is at 9 of 9; a larger WithLast takes effect at once")
			requireSeq(t, 10)(limited(20).NextNumber(ctx, "IS"))
			requireSeq(t, 10)(gen.Peek(ctx, "IS"))
			require.NoError(t, gen.Raise(ctx, "IS", 9), "the counter is above it already")
			n, err := gen.Scheme().Number("IS", serial.At(time.Now()), 9999)
			require.NoError(t, err)
			requireSeq(t, 9999)(gen.Parse(n.String()))
			require.ErrorIs(t, errOf(gen.Scheme().Number("IS", serial.At(time.Now()), 10_000)), serial.ErrExhausted)

			// A floor above it: the range is used up, and the next one continues above the floor.
			floored := limited(9, fixedFloor(40))
			err = errOf(floored.Next(ctx, "FL"))
			require.ErrorIs(t, err, serial.ErrExhausted)
			require.ErrorIs(t, errOf(floored.NextOnce(ctx, "FL", "a")), serial.ErrExhausted)
			require.NoError(t, errOf(floored.Peek(ctx, "FL")))
			n, err = limited(50, fixedFloor(40)).NextNumber(ctx, "FL")
			require.NoError(t, err)
			require.Greater(t, n.Seq, int64(40))
			require.ErrorContains(t, errOf(limited(9, fixedFloor(10_000)).Next(ctx, "FM")), "answered 10000: want 0 to 9999")
			require.NoError(t, floored.Prepare(ctx, "FP"))
			require.NoError(t, floored.Raise(ctx, "FR", 3))
			n, err = limited(50, fixedFloor(40)).NextNumber(ctx, "FR")
			require.NoError(t, err)
			require.Greater(t, n.Seq, int64(40))
		})
	}
}

// Prepare opens no period that begins after the last day.
func TestPrepareUntil(t *testing.T) {
	m, rdb := startMini(t)
	m.SetTime(utc(t, "2025-12-28"))
	gen := newGenerator(t, rdb, serial.WithLocation(time.UTC), serial.WithMaxSkew(-1),
		serial.WithUntil(serial.On(2025, time.December, 30)))
	require.NoError(t, gen.Prepare(t.Context(), "IS"))
	require.Equal(t, "20251229 1766966400 1767052800", m.HGet("serial:{IS}", "ahead"))
	m.SetTime(utc(t, "2025-12-29"))
	require.NoError(t, gen.Prepare(t.Context(), "IS"))
	require.Equal(t, "20251230 1767052800 1767139200", m.HGet("serial:{IS}", "ahead"))
	m.SetTime(utc(t, "2025-12-30"))
	require.NoError(t, gen.Prepare(t.Context(), "IS"))
	require.Empty(t, m.HGet("serial:{IS}", "ahead"))
	require.False(t, m.Exists("serial:{IS}:20251231"))
}

// A request that reaches Redis after the last day is refused, however late, and an answer that was lost is not taken
// for a refusal.
func TestUntilOverANetwork(t *testing.T) {
	for _, k := range []kind{daily, monthly, endless, kindOf("seconds", serial.PerSecond, "yyyyMMddHHmmss")} {
		runInBubble(t, k.name, func(t *testing.T, m *simulation) {
			opts := append(k.opts[:len(k.opts):len(k.opts)], serial.WithLocation(time.UTC),
				serial.WithUntil(serial.OnDateOf(time.Now().UTC())))
			over := time.Now().UTC().Truncate(24 * time.Hour).Add(24 * time.Hour)
			far := network(200 * time.Millisecond)
			gens := []*serial.Generator{newGenerator(t, m.Client(far), opts...), newGenerator(t, m.Client(far), opts...)}
			time.Sleep(time.Until(over) - 5*time.Second)
			var mu sync.Mutex
			var latest time.Time // when the last number was issued, at the earliest
			refused := 0
			var wg sync.WaitGroup
			for i := range 40 {
				wg.Go(func() {
					for k := 0; time.Now().Before(over.Add(time.Second)); k++ {
						began := time.Now()
						var err error
						switch i % 4 {
						case 0:
							err = errOf(gens[i%2].NextN(t.Context(), "IS", 3))
						case 1:
							err = errOf(gens[i%2].NextOnce(t.Context(), "IS", fmt.Sprint(i, " ", k)))
						default:
							err = errOf(gens[i%2].NextNumber(t.Context(), "IS"))
						}
						mu.Lock()
						if err == nil && began.After(latest) {
							latest = began
						}
						if err != nil {
							require.ErrorIs(t, err, serial.ErrExhausted)
							require.False(t, time.Now().Before(over), "refused too early")
							refused++
						}
						mu.Unlock()
						time.Sleep(time.Duration(i) * time.Millisecond)
					}
				})
			}
			wg.Wait()
			require.LessOrEqual(t, latest, over.Add(-200*time.Millisecond), "issued after the day")
			require.Greater(t, latest, over.Add(-3*time.Second))
			require.Greater(t, refused, 40)
		})
	}
}

// An attempt whose answer was lost may have counted, so a refusal of the next attempt after the last day says so.
func TestUntilByALostTry(t *testing.T) {
	m, rdb := startMini(t)
	over := utc(t, "2025-12-31")
	m.SetTime(over.Add(-time.Second))
	gen := newGenerator(t, rdb, serial.WithLocation(time.UTC), serial.WithMaxSkew(-1),
		serial.WithUntil(serial.On(2025, time.December, 30)))
	require.NoError(t, errOf(gen.Next(t.Context(), "IS")))
	var lost atomic.Bool
	rdb.AddHook(losing(io.EOF, func(redis.Cmder, error) bool {
		first := lost.CompareAndSwap(false, true)
		if first {
			m.SetTime(over)
		}
		return first
	}))
	err := errOf(gen.NextN(t.Context(), "IS", 2))
	require.ErrorIs(t, err, io.EOF)
	require.ErrorContains(t, err, "the last day has ended since")
	require.NotErrorIs(t, err, serial.ErrExhausted)
	m.SetTime(over.Add(-time.Second))
	requireSeq(t, 3)(gen.Peek(t.Context(), "IS"))
}

// NearlyExhausted is called once for the last day, from 29 days before it on, for each type and by each Generator.
func TestNearlyUntil(t *testing.T) {
	for _, k := range []kind{daily, monthly, endless} {
		runInBubble(t, k.name, func(t *testing.T, m *simulation) {
			last := serial.OnDateOf(time.Now().UTC().AddDate(0, 0, 60))
			var said []string
			hooks := func(name string) serial.Option {
				return serial.WithHooks(serial.Hooks{NearlyExhausted: func(_ context.Context, i serial.ExhaustionInfo) {
					said = append(said, fmt.Sprintf("%s %s %d until %v", name, i.Last.Type, i.Used, i.Until))
				}})
			}
			opts := append(k.opts[:len(k.opts):len(k.opts)], serial.WithLocation(time.UTC), serial.WithUntil(last), hooks("a"),
				hooks("b"), serial.WithHooks(serial.Hooks{}))
			gen := newGenerator(t, m.Client(), opts...)
			time.Sleep(31*24*time.Hour - time.Second)
			require.NoError(t, errOf(gen.Next(t.Context(), "IS")))
			require.Empty(t, said)
			for _, wait := range []time.Duration{time.Second, time.Second, 24 * time.Hour} {
				time.Sleep(wait)
				require.NoError(t, errOf(gen.Next(t.Context(), "IS")))
				require.Len(t, said, 2, "from the first instant of the 29th day before")
			}
			require.Len(t, said, 2, said)
			require.Regexp(t, `^a IS \d until `+last.String()+"$", said[0])
			require.Regexp(t, `^b IS \d until `+last.String()+"$", said[1])
			require.NoError(t, errOf(gen.Next(t.Context(), "PO")))
			require.NoError(t, errOf(newGenerator(t, m.Client(), opts...).Next(t.Context(), "IS")))
			require.Len(t, said, 6, said)
			require.NoError(t, errOf(gen.NextN(t.Context(), "PO", 8000)))
			require.Len(t, said, 8, "and for the share")
		})
	}
}

// testShared covers types that share a counter, in the behaviour suite.
func testShared(t *testing.T, b backend) {
	shared := serial.WithSharedCounter()
	next := func(s *series, gen *serial.Generator, typ string, want int) {
		s.t.Helper()
		requireResult(s.t, fmt.Sprintf("%s%s%04d", typ, s.day, want))(gen.Next(s.t.Context(), typ))
	}

	b.run(t, "all types count together", func(t *testing.T, s *series) {
		other := s.generator(shared)
		next(s, s.gen, "FA", 1)
		next(s, other, "AV", 2)
		next(s, s.gen, "订单", 3)
		requireResult(t, fmt.Sprintf("CN%s0003", s.day))(textOf(s.gen.Peek(t.Context(), "CN")))
		requireResult(t, []string{fmt.Sprintf("CN%s0003", s.day)})(textsOf(other.History(t.Context(), "CN", 1)))
		requireResult(t, numbers("CN", s.day, 4, 6))(textsOf(other.NextN(t.Context(), "CN", 3)))
		require.NoError(t, other.Raise(t.Context(), "X", 100))
		next(s, s.gen, "FA", 101)
		require.NoError(t, other.Takeover(t.Context(), "Y", 200))
		next(s, s.gen, "AV", 201)
		require.NoError(t, s.gen.Prepare(t.Context(), "Z"))
		require.ErrorIs(t, errOf(s.gen.Next(t.Context(), "*")), serial.ErrInvalidType)
		require.Equal(t, "201", s.rdb.Get(t.Context(), s.prefix+":{*}:"+s.day).Val())
		require.Empty(t, s.keys(), "no type has keys of its own")
	}, shared)

	b.run(t, "many of several types at once", func(t *testing.T, s *series) {
		gens := []*serial.Generator{s.gen, s.generator(shared)}
		got := barrier(t, 100, func(i int) (string, error) {
			return gens[i%2].Next(t.Context(), []string{"A", "B", "CC", "D"}[i%4])
		})
		var seqs []int64
		for i, text := range got {
			n, err := s.gen.Parse(text)
			require.NoError(t, err)
			require.Equal(t, []string{"A", "B", "CC", "D"}[i%4], n.Type)
			seqs = append(seqs, n.Seq)
		}
		slices.Sort(seqs)
		for i, seq := range seqs {
			require.EqualValues(t, i+1, seq)
		}
	}, shared)

	b.run(t, "a repeated request has one type", func(t *testing.T, s *series) {
		for range 2 {
			requireResult(t, fmt.Sprintf("FA%s0001", s.day))(textOf(s.gen.NextOnce(t.Context(), "FA", "order 1")))
		}
		wider := s.generator(shared, serial.WithTemplate("{type}{date:yyyyMMdd}{seq:6}"))
		requireResult(t, fmt.Sprintf("FA%s0001", s.day))(textOf(wider.NextOnce(t.Context(), "FA", "order 1")))
		n, err := s.gen.NextOnce(t.Context(), "AV", "order 1")
		require.ErrorIs(t, err, serial.ErrConflict)
		require.ErrorContains(t, err, `was answered with the type "FA", not "AV"`)
		require.Zero(t, n)
		next(s, s.gen, "AV", 2)
	}, shared)

	b.run(t, "a lost counter", func(t *testing.T, s *series) {
		next(s, s.gen, "FA", 1)
		next(s, s.gen, "AV", 2)
		counter := s.prefix + ":{*}:" + s.day
		require.NoError(t, s.rdb.Set(t.Context(), counter, 1, time.Hour).Err())
		err := errOf(s.gen.Next(t.Context(), "FA"))
		require.ErrorIs(t, err, serial.ErrCounterLost, "AV had number 2")
		require.ErrorContains(t, err, "-shared FA SEQ")
		require.ErrorIs(t, errOf(s.gen.Next(context.Background(), "FA")), serial.ErrCounterLost)
		require.ErrorIs(t, errOf(s.gen.NextN(t.Context(), "FA", 2)), serial.ErrCounterLost)
		require.ErrorIs(t, errOf(s.gen.NextOnce(t.Context(), "CN", "order 1")), serial.ErrCounterLost)
		require.ErrorIs(t, errOf(s.gen.Peek(t.Context(), "CN")), serial.ErrCounterLost)
		require.NoError(t, s.gen.Raise(t.Context(), "FA", 2))
		next(s, s.gen, "AV", 3)
		require.NoError(t, s.rdb.Del(t.Context(), counter).Err())
		require.ErrorIs(t, errOf(s.generator(shared).Next(t.Context(), "CN")), serial.ErrCounterLost)
	}, shared)

	b.run(t, "a floor and a ledger", func(t *testing.T, s *series) {
		ledger := new(spyLedger)
		gen := s.generator(shared, serial.WithLedger(ledger, 10),
			serial.WithFloor(func(_ context.Context, typ string, _ time.Time) (int64, error) {
				require.Empty(t, typ)
				return 7, nil
			}))
		next(s, gen, "FA", 8)
		next(s, gen, "AV", 9)
		for _, r := range ledger.asked {
			require.Equal(t, s.prefix+":*", r.Series)
		}
		require.NotEmpty(t, ledger.asked)
	}, shared)

	b.run(t, "numbers without a type", func(t *testing.T, s *series) {
		gen := s.generator(shared, serial.WithTemplate("{date:yyyyMMdd}-{seq:3}"))
		requireResult(t, s.day+"-001")(gen.Next(t.Context(), ""))
		requireResult(t, s.day+"-002")(textOf(gen.NextOnce(t.Context(), "", "order 1")))
		requireResult(t, s.day+"-002")(textOf(gen.NextOnce(t.Context(), "", "order 1")))
		err := errOf(gen.Next(t.Context(), "IS"))
		require.ErrorIs(t, err, serial.ErrInvalidType)
		require.ErrorContains(t, err, `"IS": the template prints none; want ""`)
		n, err := gen.Parse(s.day + "-002")
		require.NoError(t, err)
		require.Equal(t, "", n.Type)
		require.EqualValues(t, 2, n.Seq)
		require.NoError(t, s.rdb.Del(t.Context(), s.prefix+":{*}:"+s.day).Err())
		err = errOf(gen.Next(t.Context(), ""))
		require.ErrorIs(t, err, serial.ErrCounterLost)
		require.ErrorContains(t, err, "numbers of "+s.prefix+":* were issued in")
		require.ErrorContains(t, err, "-shared SEQ")
	}, shared)
}

func TestSharedCounterHooks(t *testing.T) {
	inBubble(t, func(t *testing.T, m *simulation) {
		var mu sync.Mutex
		var told []string
		var unused []serial.Explanation
		note := func(format string, args ...any) {
			mu.Lock()
			defer mu.Unlock()
			told = append(told, fmt.Sprintf(format, args...))
		}
		hooks := serial.Hooks{
			Issued: func(_ context.Context, i serial.IssuedInfo) { note("issued %s %s", i.Series, i.Last.Type) },
			Failed: func(_ context.Context, i serial.FailedInfo) { note("failed %s %s", i.Series, i.Type) },
			Opened: func(_ context.Context, i serial.OpenedInfo) { note("opened %s %s", i.Series, i.Type) },
			Lost:   func(_ context.Context, i serial.LostInfo) { note("lost %s %s", i.Series, i.Type) },
			NearlyExhausted: func(_ context.Context, i serial.ExhaustionInfo) {
				note("nearly %s %s", i.Series, i.Last.Type)
			},
			Unused: func(_ context.Context, e serial.Explanation) {
				mu.Lock()
				defer mu.Unlock()
				unused = append(unused, e)
			},
			NearlyExhaustedAt: 0.5,
		}
		gen := newGenerator(t, m.Client(), serial.WithSharedCounter(), serial.WithTemplate("{type}{date:yyyyMMdd}{seq:1}"),
			serial.WithHooks(hooks))
		for i := range 6 {
			require.NoError(t, errOf(gen.Next(t.Context(), []string{"FA", "AV"}[i%2])))
		}
		m.Del("serial:{*}:" + today(time.Local))
		require.Error(t, errOf(gen.Next(t.Context(), "FA")))
		require.NoError(t, gen.Raise(t.Context(), "AV", 8))
		require.NoError(t, gen.Flush(t.Context()))
		require.Equal(t, []string{"opened serial:* FA", "issued serial:* FA", "issued serial:* AV", "issued serial:* FA",
			"issued serial:* AV", "issued serial:* FA", "nearly serial:* FA", "issued serial:* AV", "lost serial:* FA",
			"failed serial:* FA", "lost serial:* AV", "opened serial:* AV"}, told)
		for _, e := range unused {
			require.Equal(t, "serial:*", e.Series)
		}
	})
}

// Callers of several types share a batch, so a number that nobody received has no type.
func TestSharedCounterUnused(t *testing.T) {
	inBubble(t, func(t *testing.T, m *simulation) {
		var unused []serial.Explanation
		var slow time.Duration
		gen := newGenerator(t, m.Client(around(func(_ redis.Cmder, send func() error) error {
			err := send()
			time.Sleep(slow)
			return err
		})), serial.WithSharedCounter(), serial.WithHooks(serial.Hooks{
			Unused: func(_ context.Context, e serial.Explanation) { unused = append(unused, e) },
		}))
		require.NoError(t, errOf(gen.Next(t.Context(), "FA")))
		slow = time.Second
		var wg sync.WaitGroup
		for _, typ := range []string{"FA", "AV", "CN"} {
			wg.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
				defer cancel()
				require.ErrorIs(t, errOf(gen.Next(ctx, typ)), context.DeadlineExceeded)
			})
		}
		wg.Wait()
		require.NoError(t, gen.Flush(t.Context()))
		var got []int64
		for _, e := range unused {
			require.Equal(t, []any{"serial:*", "", serial.CallerLeft}, []any{e.Series, e.Type, e.Reason})
			for seq := e.First; seq <= e.Last; seq++ {
				got = append(got, seq)
			}
		}
		require.NotEmpty(t, got)
	})
}

func TestSharedCounterScheme(t *testing.T) {
	scheme := func(opts ...serial.Option) *serial.Scheme {
		s, err := serial.NewScheme(append(options(serial.WithLocation(time.UTC), serial.WithSharedCounter()), opts...)...)
		require.NoError(t, err)
		return s
	}
	s := scheme(serial.WithTemplate("{type}{date:yyMM}-{seq:4}"), serial.WithPeriod(serial.PerYear))
	requireResult(t, "serial:*")(s.Series("FA"))
	requireResult(t, "serial:*")(s.Series("AV"))
	on := serial.On(2021, time.January, 1)

	used := slices.Values([]string{"FA2101-0001", "AV2101-0002", "FA2102-0002", "CN2103-0005", "FA2001-0004", "FA2101-04"})
	r, err := s.Audit("FA", on, 4, func(yield func(string, error) bool) {
		for text := range used {
			if !yield(text, nil) {
				return
			}
		}
	}, serial.WithExplanations(func(yield func(serial.Explanation, error) bool) {
		e := serial.Explanation{Series: "serial:*", Type: "AV", First: 3, Last: 3, Reason: "voided", At: time.Now()}
		_, e.Start, _ = s.Period(on)
		yield(e, nil)
	}))
	require.NoError(t, err)
	require.Equal(t, "serial:*", r.Series)
	require.Equal(t, []serial.Range{{First: 4, Last: 4}}, r.Unexplained)
	require.EqualValues(t, 1, r.ExplainedCount)
	require.Equal(t, []string{"FA2102-0002"}, texts(r.Duplicates), "with the type that was printed")
	require.Equal(t, []string{"CN2103-0005"}, texts(r.Beyond))
	require.EqualValues(t, []any{1, 1}, []any{int(r.OtherCount), int(r.ForeignCount)})

	first, last := mustParse(t, s, "FA2101-0001"), mustParse(t, s, "AV2102-0003")
	e, err := s.Explanation(first, last, "voided", "me")
	require.NoError(t, err)
	require.Equal(t, []any{"serial:*", int64(1), int64(3)}, []any{e.Series, e.First, e.Last})

	_, err = serial.NewScheme(serial.WithTemplate("{date:yyyyMMdd}{seq:4}"))
	require.ErrorContains(t, err, "{type} is missing")
	require.ErrorContains(t, err, "WithSharedCounter")

	// Without a type, widths still decide where a number ends.
	for template, ok := range map[string][]string{
		"{date:yyyyMMdd}{seq:4}": {"202110240001"},
		"{seq:1+}/{date:yyyy}":   {"1/2018", "1234/2018"},
		"{seq:1+}/{date:M/yy}":   {"2/1/23", "12/12/23"},
		"{date:d-M-yyyy}-{seq}x": {"3-11-2020-0001x"},
		"A{seq:3}{check:luhn}":   {"A0018"},
		"RF{check:97-10}{seq:5}": {"RF7400001"},
	} {
		opts := options(serial.WithTemplate(template))
		switch {
		case template == "{seq:1+}/{date:yyyy}":
			opts = append(opts, serial.WithPeriod(serial.PerYear))
		case template == "{seq:1+}/{date:M/yy}":
			opts = append(opts, serial.WithPeriod(serial.PerMonth))
		case template[0] == 'A' || template[0] == 'R':
			opts = append(opts, serial.WithPeriod(serial.Never))
		}
		s := scheme(opts...)
		for _, text := range ok {
			n := mustParse(t, s, text)
			require.Equal(t, text, n.String())
			require.Empty(t, n.Type)
			for _, wrong := range []string{text + "1", "1" + text, text + "x", "x" + text, text[1:], text[:len(text)-1], ""} {
				if n, err := s.Parse(wrong); err == nil {
					require.Equal(t, wrong, n.String(), template)
					require.NotEqual(t, text, wrong)
				} else {
					require.ErrorIs(t, err, serial.ErrInvalidNumber)
				}
			}
			require.ErrorIs(t, errOf(s.Number("IS", serial.At(n.Start), n.Seq)), serial.ErrInvalidType)
		}
	}
}

func mustParse(t *testing.T, s *serial.Scheme, text string) serial.Number {
	t.Helper()
	n, err := s.Parse(text)
	require.NoError(t, err)
	return n
}

// A hidden sequence has one order for all types.
func TestSharedCounterHidden(t *testing.T) {
	s, err := serial.NewScheme(serial.WithSharedCounter(), serial.WithLocation(time.UTC),
		serial.WithHiddenSequence([]byte("0123456789abcdef")), serial.WithTemplate("{type}{date:yyyyMMdd}{seq:6}"))
	require.NoError(t, err)
	seen := map[string]bool{}
	for seq := int64(1); seq <= 500; seq++ {
		var ends []string
		for _, typ := range []string{"FA", "AV"} {
			n, err := s.Number(typ, serial.On(2021, time.October, 24), seq)
			require.NoError(t, err)
			require.Equal(t, seq, mustParse(t, s, n.String()).Seq)
			ends = append(ends, n.String()[2:])
		}
		require.Equal(t, ends[0], ends[1])
		require.False(t, seen[ends[0]])
		seen[ends[0]] = true
	}
}

// One caller of a process opens the period for all types.
func TestSharedCounterOpensOnce(t *testing.T) {
	inBubble(t, func(t *testing.T, m *simulation) {
		var locks atomic.Int64
		gen := newGenerator(t, m.Client(everyCall(func(cmds []redis.Cmder, send func() error) error {
			for _, cmd := range cmds {
				if cmd.Name() == "set" {
					locks.Add(1)
				}
			}
			time.Sleep(time.Millisecond) // others come meanwhile
			return send()
		})), serial.WithSharedCounter())
		got := barrier(t, 20, func(i int) (string, error) { return gen.Next(t.Context(), fmt.Sprint("T", i)) })
		require.Len(t, got, 20)
		require.EqualValues(t, 1, locks.Load())
	})
}
