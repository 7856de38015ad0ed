package serial_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

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
		two.refusedAndBurned(1)
		s := b.series(t, confirmedBy(1))
		s.firstNumbers(s.gen, 5)
		replica.Pause()
		s.refusedAndBurned(6)
		replica.Resume()
		master.AwaitReplica(t)
		master.Kill()
		require.NoError(t, replica.ReplicaOf(nil))
		s.rdb = closing(t, redis.NewClient(replica.Options()))
		got := must(s.generator().NextNumber(t.Context(), "IS"))
		require.Greater(t, got.Seq, int64(5))
	})
}

// On a Cluster, the master of the slot of a type must wait for its own replicas. The tests of internal/wire move slots.
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
		var asked atomic.Int64
		client := cluster.Client(t)
		client.OnNewNode(func(node *redis.Client) { node.AddHook(counting(&asked, "command")) })
		s := backend{client: func(*testing.T) redis.UniversalClient { return client }}.series(t)
		for _, r := range replicas {
			r.Pause()
			defer r.Resume()
		}
		s.firstNumbers(s.gen, 2)
		require.Zero(t, asked.Load())
	})
}

// refusedAndBurned requires that Next fails because of missing confirmations, and that n numbers in total are consumed.
func (s *series) refusedAndBurned(n int) {
	s.t.Helper()
	before := time.Now()
	_, err := s.gen.Next(s.t.Context(), "IS")
	require.ErrorIs(s.t, err, serial.ErrNotReplicated)
	require.NotErrorIs(s.t, err, context.DeadlineExceeded)
	require.Less(s.t, time.Since(before), replicate+5*time.Second)
	require.Equal(s.t, fmt.Sprint(n), s.rdb.Get(s.t.Context(), s.counter).Val())
}

func testReplicas(t *testing.T, b backend, replicas ...*redistest.Server) {
	b.run(t, "confirmed, burned, confirmed", func(t *testing.T, s *series) {
		require.NoError(t, s.flushScripts())
		// Without WithReplicas, calls are not delayed. A repeated request waits, although it issues no number.
		s.gens = map[string]*serial.Generator{"plain": s.generator()}
		repeated := b.series(t, confirmedBy(1))
		s.play("next 1; next 2")
		for _, r := range replicas {
			r.Pause()
			defer r.Resume() // even if a step fails
		}
		var both sync.WaitGroup
		both.Go(func() { repeated.play("once a unconfirmed; once a unconfirmed") })
		s.refusedAndBurned(3)
		// The second raise finds the counter raised, but does not count it as confirmed.
		s.play("take 5 unconfirmed; raise 20 unconfirmed; raise 20 unconfirmed; next NEW unconfirmed; peek 20; plain.next 21")
		both.Wait()
		for _, r := range replicas {
			r.Resume()
		}
		for i := range 20 { // types on every master
			require.Eventually(t, func() bool { return s.gen.Raise(t.Context(), fmt.Sprint("PROBE", i), 1) == nil },
				20*time.Second, 10*time.Millisecond)
		}
		repeated.play("once a 1; once a 1")
		// Unconfirmed numbers must not raise the high-water mark, so the counter may go back below them.
		s.play("set counter 2; next 3; raise 3; set counter 2; next lost")
	}, confirmedBy(1))
}

// The last day must end at the first instant of the next day by Redis's clock, whatever the period length is.
func TestUntil(t *testing.T) {
	t.Parallel()
	four := serial.WithDayStart(4 * time.Hour)
	kinds := []kind{kindOf("hours", serial.PerHour, "yyyyMMddHH"), daily, weekly, endless,
		kindOf("years with hours", serial.PerYear, "yyyyMMddHH"),
		kindOf("days from 04:00", serial.PerDay, "yyyyMMdd", four),
		kindOf("months from 04:00", serial.PerMonth, "yyyyMM", four)}
	for i, k := range kinds { // on 4 November, the clocks of this zone skip midnight
		over := utc(t, "2018-11-04 03:00")
		if strings.HasSuffix(k.name, "from 04:00") {
			over = utc(t, "2018-11-04 06:00")
		}
		t.Run(k.name, func(t *testing.T) {
			testUntil(t, "America/Sao_Paulo", serial.On(2018, time.November, 3), over, append(ledgerIf(i%2 == 0, 10), k.opts...))
		})
	}
}

func testUntil(t *testing.T, zone string, last serial.When, over time.Time, opts []serial.Option) {
	m, rdb := startMini(t)
	ctx := t.Context()
	opts = append(opts, serial.WithLocation(location(t, zone)), serial.WithMaxSkew(-1), serial.WithUntil(last))
	gen := newGenerator(t, rdb, opts...)
	m.SetTime(over.Add(-time.Nanosecond))
	require.NoError(t, errOf(gen.Next(ctx, "IS")))
	once := must(gen.NextOnce(ctx, "IS", "a"))
	require.NoError(t, gen.Raise(ctx, "IS", 20))

	m.SetTime(over)
	label, _, _ := gen.Scheme().Period(serial.At(over.Add(-time.Nanosecond)))
	now, _, _ := gen.Scheme().Period(serial.At(over))
	keys := len(m.Keys())
	for _, gen := range []*serial.Generator{gen, newGenerator(t, rdb, opts...)} {
		for name, err := range callsOf(ctx, gen, "IS") {
			if name == "Peek" || name == "History" {
				continue
			}
			require.ErrorIs(t, err, serial.ErrExhausted, name)
			require.ErrorContains(t, err, "the last day for numbers of IS was "+last.String()+", and Redis's clock shows "+
				over.Format(time.RFC3339)+"; a later WithUntil takes effect at once", name)
		}
		requireResult(t, once.String())(textOf(gen.NextOnce(ctx, "IS", "a")))
		requireSeq(t, once.Seq)(gen.Parse(once.String()))
		if label == now { // reading ignores the last day
			requireSeq(t, 20)(gen.Peek(ctx, "IS"))
			require.NoError(t, errOf(gen.History(ctx, "IS", 1)))
			report := must(gen.Audit(ctx, "IS", serial.At(over), used(once.String())))
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

// WithLast must limit every period, also for batches, for Raise and for floors. A larger limit must take effect
// immediately.
func TestLast(t *testing.T) {
	for _, with := range []bool{false, true} {
		inMemory(t).run(t, fmt.Sprintf("ledger %v", with), func(t *testing.T, s *series) {
			ctx, ledger := t.Context(), ledgerIf(with, 10)
			limited := func(last int64, opts ...serial.Option) *serial.Generator {
				return s.generator(slices.Concat(ledger, options(serial.WithStart(5), serial.WithLast(last)), opts)...)
			}
			s.gen = limited(9)
			s.gens = map[string]*serial.Generator{"wide": limited(20), "floored": limited(9, fixedFloor(40)),
				"above": limited(50, fixedFloor(40))}
			s.play("next 5; take 5 exhausted; take 4 9")
			require.EqualError(t, s.gen.Raise(ctx, "IS", 10), "serial: Raise of IS to 10: want 0 to 9")
			require.EqualError(t, s.gen.Takeover(ctx, "IS", 10), "serial: Takeover of IS to 10: want 0 to 9")
			err := errOf(s.gen.Next(ctx, "IS"))
			require.ErrorIs(t, err, serial.ErrExhausted)
			require.ErrorContains(t, err, "is at 9 of 9; a larger WithLast takes effect at once")
			s.play("wide.next 10; peek 10; raise 9") // the counter is above it already
			require.NoError(t, errOf(s.gen.Scheme().Number("IS", serial.At(time.Now()), 9999)))

			// If the floor returns a sequence above the range, the range must be exhausted. The next range must
			// continue above this sequence.
			s.play("floored.next FL exhausted; floored.once FL a exhausted; floored.prepare FL; floored.raise FL 3")
			n := must(s.gens["above"].NextNumber(ctx, "FL"))
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

// Over a network with a delay of 200 ms in each direction, a request begins shortly before the end of the last day. If it
// reaches Redis after the day, it must be rejected. Otherwise it must succeed, although the reply arrives after the day.
func TestUntilOverANetwork(t *testing.T) {
	for _, k := range []kind{daily, endless, kindOf("seconds", serial.PerSecond, "yyyyMMddHHmmss")} {
		inTime := 250 * time.Millisecond
		if k.name == "seconds" { // which has to be opened
			inTime += 400 * time.Millisecond
		}
		for early, want := range map[time.Duration]error{inTime: nil, 150 * time.Millisecond: serial.ErrExhausted} {
			runInBubble(t, fmt.Sprint(k.name, early), func(t *testing.T, m *simulation) {
				gen := newGenerator(t, m.Client(network(200*time.Millisecond)), slices.Concat(k.opts, options(
					serial.WithLocation(time.UTC), serial.WithUntil(serial.OnDateOf(time.Now().UTC()))))...)
				over := time.Now().UTC().Truncate(24 * time.Hour).Add(24 * time.Hour)
				time.Sleep(time.Until(over.Add(-time.Minute)))
				require.NoError(t, errOf(gen.Next(t.Context(), "IS"))) // it now knows Redis's clock
				time.Sleep(time.Until(over.Add(-early)))
				barrier(t, 3, func(i int) (string, error) {
					_, err := gen.NextN(t.Context(), "IS", 1+i)
					require.ErrorIs(t, err, want)
					return "", nil
				})
				require.ErrorIs(t, errOf(gen.NextOnce(t.Context(), "IS", "a")), serial.ErrExhausted)
			})
		}
	}
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
	run := func(name string, f func(t *testing.T, s *series)) {
		b.run(t, name, func(t *testing.T, s *series) {
			s.record = s.prefix + ":{*}"
			s.counter = s.record + ":" + s.day
			s.gens = map[string]*serial.Generator{"other": s.generator(shared)}
			f(t, s)
		}, shared)
	}

	run("all types count together", func(t *testing.T, s *series) {
		s.play("next FA 1; other.next AV 2; next T 3; peek CN 3; other.take CN 3 6; other.raise X 100; next FA 101")
		s.play("other.takeover Y 200; next AV 201; prepare Z; other.once FA a 202; other.once FA a 202; next AV 203")
		requireResult(t, []string{fmt.Sprintf("CN%s0203", s.day)})(textsOf(s.gens["other"].History(t.Context(), "CN", 1)))
		requireResult(t, "订单"+s.day+"0204")(s.gen.Next(t.Context(), "订单"))
		require.ErrorIs(t, errOf(s.gen.Next(t.Context(), "*")), serial.ErrInvalidType)
		keys := must(s.rdb.Exists(t.Context(), s.prefix+":{FA}", s.prefix+":{FA}:"+s.day).Result())
		require.Zero(t, keys, "no type has keys of its own")
		err := errOf(s.gen.NextOnce(t.Context(), "AV", "a"))
		require.ErrorIs(t, err, serial.ErrConflict)
		require.ErrorContains(t, err, `was answered with the type "FA", not "AV"`)
	})

	run("many of several types at once", func(t *testing.T, s *series) {
		types, gens := []string{"A", "B", "CC", "D"}, []*serial.Generator{s.gen, s.gens["other"]}
		var seqs []int64
		for i, text := range barrier(t, 100, func(i int) (string, error) { return gens[i%2].Next(t.Context(), types[i%4]) }) {
			n := must(s.gen.Parse(text))
			require.Equal(t, types[i%4], n.Type)
			seqs = append(seqs, n.Seq)
		}
		slices.Sort(seqs)
		require.Equal(t, upTo(100), seqs)
	})

	run("a lost counter", func(t *testing.T, s *series) {
		s.play("next FA 1; next AV 2; set counter 1; next FA lost")
		require.ErrorContains(t, errOf(s.gen.Next(t.Context(), "FA")), "-shared FA SEQ")
		s.play("raise FA 2; next AV 3")
	})

	run("a floor and a ledger", func(t *testing.T, s *series) {
		ledger := new(spyLedger)
		s.gen = s.generator(shared, serial.WithLedger(ledger, 10),
			serial.WithFloor(func(_ context.Context, typ string, _ time.Time) (int64, error) {
				require.Empty(t, typ)
				return 7, nil
			}))
		s.play("next FA 8; next AV 9")
		require.Equal(t, s.prefix+":*", ledger.asked[0].Series)
	})

	run("numbers without a type", func(t *testing.T, s *series) {
		gen := s.generator(shared, serial.WithTemplate("{date:yyyyMMdd}-{seq:3}"))
		requireResult(t, s.day+"-001")(gen.Next(t.Context(), ""))
		requireResult(t, s.day+"-002")(textOf(gen.NextOnce(t.Context(), "", "order 1")))
		err := errOf(gen.Next(t.Context(), "IS"))
		require.ErrorIs(t, err, serial.ErrInvalidType)
		require.ErrorContains(t, err, `"IS": the template prints none; want ""`)
		s.play("del counter")
		err = errOf(gen.Next(t.Context(), ""))
		require.ErrorIs(t, err, serial.ErrCounterLost)
		require.ErrorContains(t, err, s.prefix+":* of ")
		require.ErrorContains(t, err, "-shared SEQ")
	})
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
	e := must(s.Explanation(must(s.Parse("FA2101-0003")), must(s.Parse("AV2102-0003")), "voided", "me"))
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
}

// Types share a counter with a hidden sequence. The order of the hidden sequences must be the same for all types, and
// depend on the key prefix. The key must be copied.
func TestSharedCounterHidden(t *testing.T) {
	of := func(prefix, typ string, seq int64) string {
		key := slices.Clone(hiddenKey)
		opts := options(serial.WithSharedCounter(), serial.WithHiddenSequence(key), serial.WithKeyPrefix(prefix),
			serial.WithTemplate("{type}{date:yyyyMMdd}{seq:6}"))
		key[0] = byte(seq)
		n := must(newScheme(t, opts...).Number(typ, auditedDay, seq))
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
