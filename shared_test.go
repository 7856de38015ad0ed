package serial_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/dailyserial/serial"
)

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
		require.NoError(t, s.gen.Prepare(t.Context(), "Z", 2))
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
