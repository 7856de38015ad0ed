package serial_test

import (
	"context"
	"errors"
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
// returned, so that a promoted replica has every number that was returned. The fault suite promotes replicas.
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
	s := b.series(t, confirmedBy(1))
	require.NoError(t, s.rdb.ScriptFlush(t.Context()).Err())
	// Without WithReplicas, calls are not delayed. A repeated request waits, although it issues no number.
	s.gens = map[string]*serial.Generator{"plain": s.generator(), "again": s.generator(confirmedBy(1)),
		"hasty": s.generator(hasty), "two": s.generator(serial.WithReplicas(2, 100*time.Millisecond))}
	s.play("two.next unconfirmed; again.once a 2")
	replica.Pause()
	err := errOf(s.gen.Next(t.Context(), "IS"))
	require.ErrorIs(t, err, serial.ErrNotReplicated)
	require.NotErrorIs(t, err, context.DeadlineExceeded)
	// The second raise finds the counter raised, but does not count it as confirmed.
	s.play("plain.peek 3; hasty.take 5 unconfirmed; hasty.raise 20 unconfirmed; hasty.raise 20 unconfirmed; peek 20; " +
		"hasty.next NEW unconfirmed; hasty.once a unconfirmed; hasty.once b unconfirmed; hasty.once b unconfirmed; " +
		"plain.next 22")
	replica.Resume()
	master.AwaitReplica(t)
	// Unconfirmed numbers must not raise the high-water mark, so the counter may go back below them.
	s.play("again.once a 2; again.once b 21; set counter 2; hasty.peek 2; next 3; raise 3; set counter 2; next lost")
}

var hasty = serial.WithReplicas(1, 100*time.Millisecond) // for calls that cannot be confirmed

// On a Cluster, the master of the slot of a type must wait for its own replicas. While they hang, a new process must not
// wait for them: go-redis would ask the replicas for their list of commands, and wait 5 s for each. The tests of
// internal/wire move slots.
func TestReplicasOnCluster(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartReplicatedCluster(t)
	b := backend{client: func(t *testing.T) redis.UniversalClient { return cluster.Client(t) }}
	s := b.series(t, confirmedBy(1))
	s.gens = map[string]*serial.Generator{"hasty": s.generator(hasty)}
	s.play("next 1; next PO 1; next AV 1") // each of another master
	for i := range 3 {
		_, replica := cluster.Pair(t, i)
		replica.Pause()
		t.Cleanup(replica.Resume)
	}
	s.play("hasty.next unconfirmed; hasty.next PO unconfirmed; hasty.next AV unconfirmed")
	var asked atomic.Int64
	client := cluster.Client(t)
	client.OnNewNode(func(node *redis.Client) { node.AddHook(counting(&asked, "command")) })
	s.rdb = client
	s.next(s.generator(), 3)
	require.Zero(t, asked.Load())
}

// The last day must end at the first instant of the next day by Redis's clock, whatever the period length is.
func TestUntil(t *testing.T) {
	t.Parallel()
	// On 4 November, the clocks of this zone skip midnight.
	for i, test := range []struct {
		kind
		over string // UTC
	}{
		{kindOf("hours", serial.PerHour, "yyyyMMddHH"), "2018-11-04 03:00"},
		{weekly, "2018-11-04 03:00"},
		{endless, "2018-11-04 03:00"},
		{kindOf("years with hours", serial.PerYear, "yyyyMMddHH"), "2018-11-04 03:00"},
		{kindOf("days from 04:00", serial.PerDay, "yyyyMMdd", serial.WithDayStart(4*time.Hour)), "2018-11-04 06:00"},
	} {
		t.Run(test.name, func(t *testing.T) {
			testUntil(t, utc(t, test.over), slices.Concat(ledgerIf(i%2 == 0, 10), test.opts, options(serial.WithMaxSkew(-1),
				serial.WithLocation(location(t, "America/Sao_Paulo")), serial.WithUntil(serial.On(2018, time.November, 3)))))
		})
	}
}

func testUntil(t *testing.T, over time.Time, opts []serial.Option) {
	m, rdb := startMini(t)
	ctx := t.Context()
	gen := newGenerator(t, rdb, opts...)
	m.SetTime(over.Add(-time.Hour))
	require.NoError(t, gen.Prepare(ctx, "IS"))
	require.Empty(t, m.HGet("serial:{IS}", "ahead"), "the next period is not prepared")
	m.SetTime(over.Add(-time.Nanosecond))
	require.NoError(t, errOf(gen.Next(ctx, "IS")))
	once := must(gen.NextOnce(ctx, "IS", "a"))
	require.NoError(t, gen.Raise(ctx, "IS", 20))

	m.SetTime(over)
	label, _, _ := gen.Scheme().Period(serial.At(over.Add(-time.Nanosecond)))
	now, _, _ := gen.Scheme().Period(serial.At(over))
	keys := len(m.Keys())
	for _, gen := range []*serial.Generator{gen, newGenerator(t, rdb, opts...)} {
		calls := callsOf(ctx, gen, "IS")
		delete(calls, "Peek")
		delete(calls, "History")
		for name, err := range calls {
			require.ErrorIs(t, err, serial.ErrExhausted, name)
			require.ErrorContains(t, err, "the last day for numbers of IS was 2018-11-03, and Redis's clock shows 2018-11-04T"+
				over.Add(-2*time.Hour).Format(time.TimeOnly)+"-02:00; if the authorized range was extended, a later WithUntil "+
				"takes effect at once", name)
		}
		requireResult(t, once.String())(textOf(gen.NextOnce(ctx, "IS", "a")))
		requireSeq(t, once.Seq)(gen.Parse(once.String()))
		if label == now { // reading ignores the last day
			requireSeq(t, 20)(gen.Peek(ctx, "IS"))
			require.NoError(t, errOf(gen.History(ctx, "IS", 1)))
			require.EqualValues(t, 20, must(gen.Audit(ctx, "IS", serial.At(over), used(once.String()))).Last)
		}
	}
	require.LessOrEqual(t, len(m.Keys()), keys, "nothing was opened")

	later := newGenerator(t, rdb, append(opts, serial.WithUntil(serial.On(2030, time.January, 1)))...)
	require.Equal(t, label == now, must(later.NextNumber(ctx, "IS")).Seq == 21, "a later day takes effect at once")
	if m.SetTime(over.Add(-time.Second)); label == now {
		requireSeq(t, 22)(gen.NextNumber(ctx, "IS")) // Redis's clock decides, not what this process has seen of it
	}
}

// The last day is at most 29 days away. Each Generator must call NearlyExhausted once for each type.
func TestNearlyUntil(t *testing.T) {
	inBubble(t, func(t *testing.T, m *simulation) {
		last := serial.OnDateOf(time.Now().UTC().AddDate(0, 0, 60))
		var warnings lines
		hooks := serial.WithHooks(serial.Hooks{NearlyExhausted: func(_ context.Context, i serial.ExhaustionInfo) {
			warnings.add("%s until %v", i.Last.Type, i.Until)
		}})
		opts := slices.Concat(endless.opts, options(serial.WithLocation(time.UTC), serial.WithUntil(last), hooks, hooks,
			serial.WithHooks(serial.Hooks{})))
		gen := newGenerator(t, m.Client(), opts...)
		next := func(gen *serial.Generator, typ string, n int, want ...string) {
			t.Helper()
			require.NoError(t, errOf(gen.NextN(t.Context(), typ, n)))
			require.Equal(t, want, warnings.take())
		}
		is, po := "IS until "+last.String(), "PO until "+last.String()
		time.Sleep(31*24*time.Hour - time.Second)
		next(gen, "IS", 1)
		time.Sleep(time.Second)
		next(gen, "IS", 1, is, is) // one of each hook
		time.Sleep(24 * time.Hour)
		next(gen, "IS", 1)
		next(gen, "PO", 1, po, po)
		next(newGenerator(t, m.Client(), opts...), "IS", 1, is, is)
		next(gen, "PO", 8000, po, po) // for the share of numbers
	})
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
		s.play("set counter 5; next FA lost")
		require.ErrorContains(t, errOf(s.gen.Next(t.Context(), "FA")), "-shared FA SEQ")
		s.play("raise FA 204; next AV 205")
	})

	run("many types at once", func(t *testing.T, s *series) {
		numbers, errs, gens := make([]serial.Number, 100), make([]error, 100), []*serial.Generator{s.gen, s.gens["other"]}
		var wg sync.WaitGroup
		for i := range numbers {
			wg.Go(func() { numbers[i], errs[i] = gens[i%2].NextNumber(t.Context(), fmt.Sprint("T", i%10)) })
		}
		wg.Wait()
		require.NoError(t, errors.Join(errs...))
		slices.SortFunc(numbers, func(a, b serial.Number) int { return int(a.Seq - b.Seq) })
		for i, n := range numbers {
			require.EqualValues(t, i+1, n.Seq)
		}
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
		require.Regexp(t, s.prefix+`:\* of .* -shared SEQ`, err)
	})
}

// Types share a counter. Hooks must receive the series of the counter. A number that was not returned to a caller must
// have no type, because callers of several types share a batch. Other hooks must receive the type of the call.
func TestSharedCounterHooks(t *testing.T) {
	inBubble(t, func(t *testing.T, m *simulation) {
		var l lines
		next := &fault{}
		gen := newGenerator(t, m.Client(next.hook()), serial.WithSharedCounter(),
			serial.WithTemplate("{type}{date:yyyyMMdd}{seq:1}"), serial.WithHooks(serial.Hooks{
				Issued:          func(_ context.Context, i serial.IssuedInfo) { l.add("issued %s %s", i.Series, i.Last.Type) },
				Failed:          func(_ context.Context, i serial.FailedInfo) { l.add("failed %s %s", i.Series, i.Type) },
				Opened:          func(_ context.Context, i serial.OpenedInfo) { l.add("opened %s %s", i.Series, i.Type) },
				Lost:            func(_ context.Context, i serial.LostInfo) { l.add("lost %s %s", i.Series, i.Type) },
				NearlyExhausted: func(_ context.Context, i serial.ExhaustionInfo) { l.add("nearly %s %s", i.Series, i.Last.Type) },
				Unused:          func(_ context.Context, e serial.Explanation) { l.add("unused %s %s", e.Series, e.Type) },
			}))
		require.NoError(t, errOf(gen.NextN(t.Context(), "FA", 6)))
		next.set(lose)
		require.NoError(t, errOf(gen.Next(t.Context(), "AV")))
		require.NoError(t, gen.Flush(t.Context()))
		m.Del("serial:{*}:" + today(time.Local))
		require.Error(t, errOf(gen.Next(t.Context(), "FA")))
		require.ElementsMatch(t, []string{"opened serial:* FA", "issued serial:* FA", "unused serial:* ",
			"issued serial:* AV", "nearly serial:* AV", "lost serial:* FA", "failed serial:* FA"}, l.take())
	})
}

// An audit of a shared counter must include the numbers of all types, and list each with its own type.
func TestSharedCounterScheme(t *testing.T) {
	s := newScheme(t, serial.WithSharedCounter(), serial.WithTemplate("{type}{date:yyMM}-{seq:4}"),
		serial.WithPeriod(serial.PerYear))
	e := must(s.Explanation(must(s.Parse("FA2101-0003")), must(s.Parse("AV2102-0003")), "voided", "me"))
	r := must(s.Audit("FA", serial.On(2021, time.January, 1), 4, used("FA2101-0001", "AV2101-0002", "FA2102-0002",
		"CN2103-0005", "FA2001-0004", "FA2101-04"), given(e)))
	require.Equal(t, []string{"serial:*", "serial:*"}, []string{e.Series, r.Series})
	require.Equal(t, []serial.Range{{First: 4, Last: 4}}, r.Unexplained)
	require.Equal(t, []string{"FA2102-0002"}, texts(r.Duplicates), "with the type that was printed")
	require.Equal(t, []string{"CN2103-0005"}, texts(r.Beyond))
	require.EqualValues(t, []int64{1, 1, 1}, []int64{r.ExplainedCount, r.OtherCount, r.ForeignCount})
}

// Types share a counter with a hidden sequence. The hidden sequences must be the same for all types, and depend on the
// key prefix. The key must be copied.
func TestSharedCounterHidden(t *testing.T) {
	key := slices.Clone(hiddenKey)
	hidden := serial.WithHiddenSequence(key)
	key[0]++
	print := func(typ string, opts ...serial.Option) string {
		s := newScheme(t, append(opts, serial.WithSharedCounter(), serial.WithTemplate("{type}{date:yyyyMMdd}{seq:6}"))...)
		n := must(s.Number(typ, auditedDay, 7))
		requireResult(t, n)(s.Parse(n.String()))
		return strings.TrimPrefix(n.String(), typ)
	}
	want := print("FA", serial.WithHiddenSequence(hiddenKey))
	require.Equal(t, want, print("AV", hidden))
	require.NotEqual(t, want, print("FA", serial.WithHiddenSequence(hiddenKey), serial.WithKeyPrefix("shop")))
}
