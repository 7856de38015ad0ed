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

// With WithReplicas, WAIT must be sent on the connection of the write. A number that was not confirmed must not be
// returned, so a promoted replica must have every number that was returned.
// Guarantees: lagging-replica.
func TestReplicas(t *testing.T) {
	t.Parallel()
	master := redistest.Start(t, "--repl-diskless-sync-delay", "0")
	replica := redistest.StartReplica(t, master)
	// The connections are used in turn. If WAIT were sent on another connection than the write, it would confirm
	// numbers that no replica has.
	opt := master.Options()
	opt.PoolFIFO, opt.MinIdleConns, opt.PoolSize = true, 8, 8
	b := backend{client: func(t *testing.T) redis.UniversalClient { return closing(t, redis.NewClient(opt)) }}
	testReplicas(t, b, replica)

	t.Run("the replica is promoted", func(t *testing.T) {
		two := b.series(t, confirmedBy(2))
		two.refusedAndBurned(two.gen, 1)
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

// On a Cluster, the master of the slot of a type must wait for its own replicas.
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

	// go-redis would ask the replicas for their list of commands, and wait 5 s for each.
	t.Run("a new process while replicas hang", func(t *testing.T) {
		var sent sync.Map
		client := cluster.Client(t)
		client.OnNewNode(func(node *redis.Client) {
			node.AddHook(around(func(cmd redis.Cmder, send func() error) error {
				sent.Store(cmd.Name(), true)
				return send()
			}))
		})
		s := backend{client: func(*testing.T) redis.UniversalClient { return client }}.series(t)
		for _, r := range replicas {
			r.Pause()
			defer r.Resume()
		}
		s.firstNumbers(s.gen, 2)
		_, asked := sent.Load("command")
		require.False(t, asked)
	})

	b.run(t, "a slot moves", func(t *testing.T, s *series) {
		s.firstNumbers(s.gen, 3)
		slot := s.rdb.(*redis.ClusterClient).ClusterKeySlot(t.Context(), s.record).Val()
		issued := 3
		// MOVED and ASK, and keys on both sides in between.
		during(func() { cluster.MoveSlot(t, int(slot), 200*time.Millisecond) }, func() {
			issued++
			s.next(s.gen, issued)
		})
		s.next(s.generator(confirmedBy(1)), issued+1)
	}, confirmedBy(1))
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

// A redirection contains an IPv6 address, which Redis writes without brackets. The client must follow it.
func TestReplicasByIPv6(t *testing.T) {
	m := miniredis.RunT(t)
	var dialed sync.Map
	client := closing(t, redis.NewClusterClient(&redis.ClusterOptions{
		ClusterSlots: func(context.Context) ([]redis.ClusterSlot, error) {
			return []redis.ClusterSlot{{Start: 0, End: 16383, Nodes: []redis.ClusterNode{{Addr: "[::1]:1"}}}}, nil
		},
		Dialer: func(ctx context.Context, network, addr string) (net.Conn, error) {
			dialed.Store(addr, true)
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
	_, redirected := dialed.Load("[::1]:2")
	require.True(t, redirected)
}

// refusedAndBurned requires that Next fails because of missing confirmations, and that n numbers in total are consumed.
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
		resume := func() {
			for _, r := range replicas {
				r.Resume()
			}
		}
		defer resume() // even if f fails
		f()
		resume()
		probe := b.series(t, confirmedBy(1)).gen
		for i := range 20 { // types on every master
			require.Eventually(t, func() bool {
				_, err := probe.Next(context.Background(), fmt.Sprint("PROBE", i))
				return err == nil
			}, 20*time.Second, 10*time.Millisecond)
		}
	}

	b.run(t, "confirmed, burned, confirmed", func(t *testing.T, s *series) {
		require.NoError(t, s.flushScripts())
		s.next(s.gen, 1)
		s.next(s.gen, 2)
		down(func() {
			s.refusedAndBurned(s.gen, 3)
			require.ErrorIs(t, errOf(s.gen.NextN(t.Context(), "IS", 5)), serial.ErrNotReplicated)
			for range 2 { // the second call finds the counter raised, but does not count it as confirmed
				require.ErrorIs(t, s.gen.Raise(t.Context(), "IS", 20), serial.ErrNotReplicated)
			}
			require.ErrorIs(t, errOf(s.gen.Next(t.Context(), "NEW")), serial.ErrNotReplicated, "of an opening")
			requireSeq(t, 20)(s.gen.Peek(t.Context(), "IS"))
			s.next(s.generator(), 21) // without WithReplicas, calls are not delayed
		})
		// Unconfirmed numbers must not raise the high-water mark, so the counter may go back below them.
		require.NoError(t, s.rdb.Set(t.Context(), s.counter, 2, time.Hour).Err())
		s.next(s.gen, 3)
		require.NoError(t, s.gen.Raise(t.Context(), "IS", 3))
		require.NoError(t, s.rdb.Set(t.Context(), s.counter, 2, time.Hour).Err())
		s.refused(s.gen, serial.ErrCounterLost)
	}, confirmedBy(1))

	t.Run("a repeated request", func(t *testing.T) { testOnceWithReplicas(t, b, down) })

	b.run(t, "many callers of many types", func(t *testing.T, s *series) {
		each := func(prefix string, want error) {
			var wg sync.WaitGroup
			for i := range 200 {
				wg.Go(func() {
					typ := fmt.Sprint(prefix, i%20)
					number, err := s.gen.Next(context.Background(), typ)
					require.ErrorIs(t, err, want)
					require.True(t, err != nil || strings.HasPrefix(number, typ+s.day), number)
				})
			}
			wg.Wait()
		}
		each("T", nil)
		down(func() {
			each("T", serial.ErrNotReplicated)
			each("NEW", serial.ErrNotReplicated)
		})
		each("T", nil)
	}, confirmedBy(1))
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
		{slow, 1001, time.Second, "WithReplicas(1001, 1s): want 0 to 1000 replicas"},
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

// The last day must end at the first instant of the next day by Redis's clock, whatever the period length is.
func TestUntil(t *testing.T) {
	t.Parallel()
	four := func(k kind) kind {
		return kind{k.name + " from 04:00", append(k.opts[:len(k.opts):len(k.opts)], serial.WithDayStart(4*time.Hour))}
	}
	kinds := []kind{kindOf("hours", serial.PerHour, "yyyyMMddHH"), daily, weekly, endless,
		kindOf("years with hours", serial.PerYear, "yyyyMMddHH"), four(daily), four(monthly)}
	zones := []struct {
		zone  string
		last  serial.When
		over  string // first instant after the last day, UTC
		over4 string // with days from 04:00
	}{
		{"America/Sao_Paulo", serial.On(2018, time.November, 3), "2018-11-04 03:00", "2018-11-04 06:00"}, // no midnight
		{"Europe/Berlin", serial.On(2024, time.October, 27), "2024-10-27 23:00", "2024-10-28 03:00"},     // 25 hours
		{"America/New_York", serial.On(2025, time.March, 9), "2025-03-10 04:00", "2025-03-10 08:00"},     // 23 hours
		{"UTC", serial.On(2025, time.December, 31), "2026-01-01", "2026-01-01 04:00"},
	}
	if !redistest.Long() {
		zones = zones[:1]
		t.Log("days of 23 and 25 hours are left out without SERIAL_TEST_LONG=1")
	}
	for _, z := range zones {
		for i, k := range kinds {
			over := utc(t, z.over)
			if strings.HasSuffix(k.name, "from 04:00") {
				over = utc(t, z.over4)
			}
			t.Run(fmt.Sprintf("%s, %s", z.zone, k.name), func(t *testing.T) {
				testUntil(t, z.zone, z.last, over, append(ledgerIf(i%2 == 0, 10), k.opts...))
			})
		}
	}
}

func testUntil(t *testing.T, zone string, last serial.When, over time.Time, opts []serial.Option) {
	m, rdb := startMini(t)
	ctx := t.Context()
	opts = append(opts, serial.WithLocation(location(t, zone)), serial.WithMaxSkew(-1), serial.WithUntil(last))
	gen := newGenerator(t, rdb, opts...)
	m.SetTime(over.Add(-time.Nanosecond))
	require.NoError(t, errOf(gen.Next(ctx, "IS")))
	once, err := gen.NextOnce(ctx, "IS", "a")
	require.NoError(t, err)
	require.NoError(t, gen.Raise(ctx, "IS", 20))

	m.SetTime(over)
	label, _, _ := gen.Scheme().Period(serial.At(over.Add(-time.Nanosecond)))
	now, _, _ := gen.Scheme().Period(serial.At(over))
	keys := len(m.Keys())
	for _, gen := range []*serial.Generator{gen, newGenerator(t, rdb, opts...)} {
		for name, err := range map[string]error{
			"Next": errOf(gen.Next(ctx, "IS")), "NextN": errOf(gen.NextN(ctx, "IS", 2)),
			"NextOnce": errOf(gen.NextOnce(ctx, "IS", "b")), "Prepare": gen.Prepare(ctx, "IS"),
			"Raise": gen.Raise(ctx, "IS", 30), "Takeover": gen.Takeover(ctx, "IS", 30),
		} {
			require.ErrorIs(t, err, serial.ErrExhausted, name)
			require.ErrorContains(t, err, "the last day for numbers of IS was "+last.String()+", and Redis's clock shows "+
				over.Format(time.RFC3339)+"; a later WithUntil takes effect at once", name)
		}
		requireResult(t, once.String())(textOf(gen.NextOnce(ctx, "IS", "a")))
		requireSeq(t, once.Seq)(gen.Parse(once.String()))
		if label == now { // reading ignores the last day
			requireSeq(t, 20)(gen.Peek(ctx, "IS"))
			require.NoError(t, errOf(gen.History(ctx, "IS", 1)))
			report, err := gen.Audit(ctx, "IS", serial.At(over), used(once.String()))
			require.NoError(t, err)
			require.EqualValues(t, 20, report.Last)
		}
	}
	require.LessOrEqual(t, len(m.Keys()), keys, "nothing was opened")

	later := newGenerator(t, rdb, append(opts, serial.WithUntil(serial.On(2030, time.January, 1)))...)
	n, err := later.NextNumber(ctx, "IS")
	require.NoError(t, err, "a later day takes effect at once")
	require.Equal(t, label == now, n.Seq == 21)
	if m.SetTime(over.Add(-time.Second)); label == now {
		requireSeq(t, 22)(gen.NextNumber(ctx, "IS")) // Redis's clock decides, not what this process has seen of it
	}
}

// testEndOfRange is the part of the behaviour suite for the last sequence and the last day.
func testEndOfRange(t *testing.T, b backend) {
	b.run(t, "the last sequence", func(t *testing.T, s *series) {
		s.firstNumbers(s.gen, 3)
		s.refused(s.gen, serial.ErrExhausted)
		s.next(s.generator(), 4)
		s.refused(s.gen, serial.ErrExhausted)
	}, serial.WithLast(3))

	b.run(t, "the last day", func(t *testing.T, s *series) {
		now := time.Now().In(s.loc)
		s.next(s.generator(serial.WithUntil(serial.OnDateOf(now))), 1)
		s.refused(s.generator(serial.WithUntil(serial.OnDateOf(now.AddDate(0, 0, -1)))), serial.ErrExhausted)
	})
}

// WithLast must limit every period, also for batches, for Raise and for floors. A larger limit must take effect
// immediately.
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
			require.NoError(t, errOf(gen.Scheme().Number("IS", serial.At(time.Now()), 9999)))

			// If the floor returns a sequence above the range, the range must be exhausted. The next range must
			// continue above this sequence.
			floored := limited(9, fixedFloor(40))
			require.ErrorIs(t, errOf(floored.Next(ctx, "FL")), serial.ErrExhausted)
			require.ErrorIs(t, errOf(floored.NextOnce(ctx, "FL", "a")), serial.ErrExhausted)
			require.NoError(t, floored.Prepare(ctx, "FL"))
			require.NoError(t, floored.Raise(ctx, "FL", 3))
			n, err := limited(50, fixedFloor(40)).NextNumber(ctx, "FL")
			require.NoError(t, err)
			require.Greater(t, n.Seq, int64(40))
			require.ErrorContains(t, errOf(limited(9, fixedFloor(10_000)).Next(ctx, "FM")), "answered 10000: want 0 to 9999")
		})
	}
}

// Prepare must not open a period that begins after the last day.
func TestPrepareUntil(t *testing.T) {
	m, rdb := startMini(t)
	gen := newGenerator(t, rdb, serial.WithLocation(time.UTC), serial.WithMaxSkew(-1),
		serial.WithUntil(serial.On(2025, time.December, 30)))
	for day, ahead := range map[string]string{"2025-12-29": "20251230 1767052800 1767139200", "2025-12-30": ""} {
		m.FlushAll()
		m.SetTime(utc(t, day))
		require.NoError(t, gen.Prepare(t.Context(), "IS"+day))
		require.Equal(t, ahead, m.HGet("serial:{IS"+day+"}", "ahead"))
	}
}

// A request reaches Redis after the last day. It must be rejected, however late the reply arrives.
func TestUntilOverANetwork(t *testing.T) {
	for _, k := range []kind{daily, endless, kindOf("seconds", serial.PerSecond, "yyyyMMddHHmmss")} {
		runInBubble(t, k.name, func(t *testing.T, m *simulation) {
			opts := append(k.opts[:len(k.opts):len(k.opts)], serial.WithLocation(time.UTC),
				serial.WithUntil(serial.OnDateOf(time.Now().UTC())))
			over := time.Now().UTC().Truncate(24 * time.Hour).Add(24 * time.Hour)
			far := network(200 * time.Millisecond)
			gens := []*serial.Generator{newGenerator(t, m.Client(far), opts...), newGenerator(t, m.Client(far), opts...)}
			time.Sleep(time.Until(over) - 5*time.Second)
			var mu sync.Mutex
			var latest time.Time // when the latest call began that was issued a number
			refused := 0
			var wg sync.WaitGroup
			for i := range 40 {
				wg.Go(func() {
					for k := 0; time.Now().Before(over.Add(time.Second)); k++ {
						began := time.Now()
						var err error
						if i%4 == 0 {
							err = errOf(gens[i%2].NextOnce(t.Context(), "IS", fmt.Sprint(i, " ", k)))
						} else {
							err = errOf(gens[i%2].NextN(t.Context(), "IS", i%4))
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

// The reply to an attempt is lost, and the next attempt is rejected because the last day has ended. The error must say
// that the first attempt may have consumed a number.
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

// The last day is at most 29 days away. Each Generator must call NearlyExhausted once for each type.
func TestNearlyUntil(t *testing.T) {
	for _, k := range []kind{daily, endless} {
		runInBubble(t, k.name, func(t *testing.T, m *simulation) {
			last := serial.OnDateOf(time.Now().UTC().AddDate(0, 0, 60))
			var warnings []string
			hooks := serial.WithHooks(serial.Hooks{NearlyExhausted: func(_ context.Context, i serial.ExhaustionInfo) {
				warnings = append(warnings, fmt.Sprintf("%s until %v", i.Last.Type, i.Until))
			}})
			opts := append(k.opts[:len(k.opts):len(k.opts)], serial.WithLocation(time.UTC), serial.WithUntil(last), hooks,
				hooks, serial.WithHooks(serial.Hooks{}))
			gen := newGenerator(t, m.Client(), opts...)
			time.Sleep(31*24*time.Hour - time.Second)
			require.NoError(t, errOf(gen.Next(t.Context(), "IS")))
			require.Empty(t, warnings)
			for _, wait := range []time.Duration{time.Second, time.Second, 24 * time.Hour} {
				time.Sleep(wait)
				require.NoError(t, errOf(gen.Next(t.Context(), "IS")))
				require.Equal(t, slices.Repeat([]string{"IS until " + last.String()}, 2), warnings, "one of each hook")
			}
			require.NoError(t, errOf(gen.Next(t.Context(), "PO")))
			require.NoError(t, errOf(newGenerator(t, m.Client(), opts...).Next(t.Context(), "IS")))
			require.Len(t, warnings, 6)
			require.NoError(t, errOf(gen.NextN(t.Context(), "PO", 8000)))
			require.Len(t, warnings, 8, "and for the share of numbers")
		})
	}
}

// testShared is the part of the behaviour suite for types that share a counter.
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

		for range 2 {
			requireResult(t, fmt.Sprintf("FA%s0202", s.day))(textOf(other.NextOnce(t.Context(), "FA", "order 1")))
		}
		err := errOf(s.gen.NextOnce(t.Context(), "AV", "order 1"))
		require.ErrorIs(t, err, serial.ErrConflict)
		require.ErrorContains(t, err, `was answered with the type "FA", not "AV"`)
		next(s, s.gen, "AV", 203)
	}, shared)

	b.run(t, "many of several types at once", func(t *testing.T, s *series) {
		types, gens := []string{"A", "B", "CC", "D"}, []*serial.Generator{s.gen, s.generator(shared)}
		var seqs []int64
		for i, text := range barrier(t, 100, func(i int) (string, error) { return gens[i%2].Next(t.Context(), types[i%4]) }) {
			n, err := s.gen.Parse(text)
			require.NoError(t, err)
			require.Equal(t, types[i%4], n.Type)
			seqs = append(seqs, n.Seq)
		}
		slices.Sort(seqs)
		require.Equal(t, upTo(100), seqs)
	}, shared)

	b.run(t, "a lost counter", func(t *testing.T, s *series) {
		next(s, s.gen, "FA", 1)
		next(s, s.gen, "AV", 2)
		require.NoError(t, s.rdb.Set(t.Context(), s.prefix+":{*}:"+s.day, 1, time.Hour).Err())
		err := errOf(s.gen.Next(t.Context(), "FA"))
		require.ErrorIs(t, err, serial.ErrCounterLost, "AV had number 2")
		require.ErrorContains(t, err, "-shared FA SEQ")
		require.NoError(t, s.gen.Raise(t.Context(), "FA", 2))
		next(s, s.gen, "AV", 3)
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
		require.Equal(t, s.prefix+":*", ledger.asked[0].Series)
	}, shared)

	b.run(t, "numbers without a type", func(t *testing.T, s *series) {
		gen := s.generator(shared, serial.WithTemplate("{date:yyyyMMdd}-{seq:3}"))
		requireResult(t, s.day+"-001")(gen.Next(t.Context(), ""))
		requireResult(t, s.day+"-002")(textOf(gen.NextOnce(t.Context(), "", "order 1")))
		err := errOf(gen.Next(t.Context(), "IS"))
		require.ErrorIs(t, err, serial.ErrInvalidType)
		require.ErrorContains(t, err, `"IS": the template prints none; want ""`)
		require.NoError(t, s.rdb.Del(t.Context(), s.prefix+":{*}:"+s.day).Err())
		err = errOf(gen.Next(t.Context(), ""))
		require.ErrorIs(t, err, serial.ErrCounterLost)
		require.ErrorContains(t, err, s.prefix+":* of ")
		require.ErrorContains(t, err, "-shared SEQ")
	}, shared)
}

// Types share a counter. Hooks must receive the series of the counter. A number that was not returned to a caller must
// have no type, because callers of several types share a batch. Other hooks must receive the type of the call.
func TestSharedCounterHooks(t *testing.T) {
	inBubble(t, func(t *testing.T, m *simulation) {
		var events []string
		var unused []serial.Explanation
		note := func(event, series, typ string) { events = append(events, fmt.Sprintf("%s %s %s", event, series, typ)) }
		hooks := serial.Hooks{
			Issued:          func(_ context.Context, i serial.IssuedInfo) { note("issued", i.Series, i.Last.Type) },
			Failed:          func(_ context.Context, i serial.FailedInfo) { note("failed", i.Series, i.Type) },
			Opened:          func(_ context.Context, i serial.OpenedInfo) { note("opened", i.Series, i.Type) },
			Lost:            func(_ context.Context, i serial.LostInfo) { note("lost", i.Series, i.Type) },
			NearlyExhausted: func(_ context.Context, i serial.ExhaustionInfo) { note("nearly", i.Series, i.Last.Type) },
			Unused:          func(_ context.Context, e serial.Explanation) { unused = append(unused, e) },
		}
		next := &fault{}
		gen := newGenerator(t, m.Client(next.hook()), serial.WithSharedCounter(),
			serial.WithTemplate("{type}{date:yyyyMMdd}{seq:1}"), serial.WithHooks(hooks))
		require.NoError(t, errOf(gen.NextN(t.Context(), "FA", 6)))
		next.set(lose)
		require.NoError(t, errOf(gen.Next(t.Context(), "AV")))
		require.NoError(t, gen.Flush(t.Context()))
		require.Equal(t, []string{"serial:*", ""}, []string{unused[0].Series, unused[0].Type})
		m.Del("serial:{*}:" + today(time.Local))
		require.Error(t, errOf(gen.Next(t.Context(), "FA")))
		require.Equal(t, []string{"opened serial:* FA", "issued serial:* FA", "issued serial:* AV", "nearly serial:* AV",
			"lost serial:* FA", "failed serial:* FA"}, events)
	})
}

// An audit of a shared counter must include the numbers of all types, and list each with its own type.
func TestSharedCounterScheme(t *testing.T) {
	s := newScheme(t, serial.WithSharedCounter(), serial.WithTemplate("{type}{date:yyMM}-{seq:4}"),
		serial.WithPeriod(serial.PerYear))
	on := serial.On(2021, time.January, 1)
	e, err := s.Explanation(must(s.Parse("FA2101-0003")), must(s.Parse("AV2102-0003")), "voided", "me")
	require.NoError(t, err)
	require.Equal(t, "serial:*", e.Series)
	r, err := s.Audit("FA", on, 4, used("FA2101-0001", "AV2101-0002", "FA2102-0002", "CN2103-0005", "FA2001-0004",
		"FA2101-04"), given(e))
	require.NoError(t, err)
	require.Equal(t, "serial:*", r.Series)
	require.Equal(t, []serial.Range{{First: 4, Last: 4}}, r.Unexplained)
	require.EqualValues(t, 1, r.ExplainedCount)
	require.Equal(t, []string{"FA2102-0002"}, texts(r.Duplicates), "with the type that was printed")
	require.Equal(t, []string{"CN2103-0005"}, texts(r.Beyond))
	require.EqualValues(t, []int64{1, 1}, []int64{r.OtherCount, r.ForeignCount})

	// The numbers contain no type. The widths in the template must determine where a number ends.
	never := serial.WithPeriod(serial.Never)
	for text, opts := range map[string][]serial.Option{
		"202110240001": options(serial.WithTemplate("{date:yyyyMMdd}{seq:4}")),
		"1/2018":       options(serial.WithTemplate("{seq:1+}/{date:yyyy}"), serial.WithPeriod(serial.PerYear)),
		"A0018":        options(serial.WithTemplate("A{seq:3}{check:luhn}"), never),
		"RF7400001":    options(serial.WithTemplate("RF{check:97-10}{seq:5}"), never),
	} {
		s := newScheme(t, append(opts, serial.WithSharedCounter())...)
		n, err := s.Parse(text)
		require.NoError(t, err)
		require.Equal(t, text, n.String())
		require.Empty(t, n.Type)
		for _, wrong := range []string{text + "1", "1" + text, text + "x", "x" + text, text[1:], text[:len(text)-1], ""} {
			if n, err := s.Parse(wrong); err == nil {
				require.Equal(t, wrong, n.String(), "another number")
			} else {
				require.ErrorIs(t, err, serial.ErrInvalidNumber)
			}
		}
		require.ErrorIs(t, errOf(s.Number("IS", serial.At(n.Start), n.Seq)), serial.ErrInvalidType)
	}
}

// Types share a counter with a hidden sequence. The order of the hidden sequences must be the same for all types, and
// depend on the key prefix. The key must be copied.
func TestSharedCounterHidden(t *testing.T) {
	of := func(prefix, typ string, seq int64) string {
		key := slices.Clone(hiddenKey)
		opts := options(serial.WithSharedCounter(), serial.WithHiddenSequence(key), serial.WithKeyPrefix(prefix),
			serial.WithTemplate("{type}{date:yyyyMMdd}{seq:6}"))
		key[0] = byte(seq)
		n, err := newScheme(t, opts...).Number(typ, auditedDay, seq)
		require.NoError(t, err)
		return n.String()[len(typ):]
	}
	for seq := int64(1); seq <= 10; seq++ {
		require.Equal(t, of("serial", "FA", seq), of("serial", "AV", seq))
		require.NotEqual(t, of("serial", "FA", seq), of("shop", "FA", seq))
	}
	s := newScheme(t, serial.WithSharedCounter(), serial.WithHiddenSequence(hiddenKey),
		serial.WithTemplate("{type}{date:yyyyMMdd}{seq:6}"))
	requireSeq(t, 7)(s.Parse("FA" + of("serial", "FA", 7)))
}
