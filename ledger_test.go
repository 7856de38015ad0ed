package serial_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dailyserial/serial"
	"github.com/dailyserial/serial/internal/redistest"
	"github.com/dailyserial/serial/internal/redistest/memory"
	inner "github.com/dailyserial/serial/internal/series"
	"github.com/dailyserial/serial/serialtest"
)

// Guarantees: ledger-down, counter-lost, record-lost, both-lost-remembered, ledger-lost.
func TestLedger(t *testing.T) {
	t.Parallel()
	testLedger(t, inMemory(t))
}

func TestLedgerOnServer(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	testLedger(t, backend{client: func(t *testing.T) redis.UniversalClient { return s.Client(t) }})
}

func TestLedgerOnCluster(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t)
	testLedger(t, backend{client: func(t *testing.T) redis.UniversalClient { return cluster.Client(t) }})
}

// Redis comes back empty after a series' settings were changed: the ledger still knows them, and no printed number is
// printed again. See docs/guarantees.md, "How a ledger keeps its word".
// Guarantees: settings-kept.
func TestLedgerKeepsSettings(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	rdb := server.Client(t)
	zone := noon()
	dated := serial.WithTemplate("{type}{date:yyyyMMdd}{seq:6}")
	hidden := func(key string) []serial.Option {
		return []serial.Option{dated, serial.WithHiddenSequence([]byte(key))}
	}
	for name, c := range map[string]struct {
		old, new []serial.Option
		says     []string
	}{
		"months that print days, then days": {
			[]serial.Option{dated, serial.WithPeriod(serial.PerMonth)}, []serial.Option{dated}, []string{`"months"`, `"days"`},
		},
		"years from April, then years from July": {
			[]serial.Option{dated, serial.WithPeriod(serial.PerYear), serial.WithYearStart(time.April, 1)},
			[]serial.Option{dated, serial.WithPeriod(serial.PerYear), serial.WithYearStart(time.July, 1)},
			[]string{`"years from April 1"`, `"years from July 1"`},
		},
		"another key": {hidden("an example's key"), hidden("another's secret"), []string{"check digit or key"}},
		"another order of fields": {
			[]serial.Option{dated}, []serial.Option{serial.WithTemplate("{date:yyyyMMdd}{type}{seq:6}")},
			[]string{"another order of fields"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			var ledger serialtest.Ledger
			generator := func(opts []serial.Option) *serial.Generator {
				return newGenerator(t, rdb, append(opts, serial.WithLocation(zone), serial.WithLedger(&ledger, 10))...)
			}
			lose := func() { require.NoError(t, rdb.FlushAll(t.Context()).Err()) }
			lose()
			first, changed := generator(c.old), generator(c.new)
			requireSeq(t, 1)(first.NextNumber(t.Context(), "IS"))
			for range 2 {
				lose()
				for _, err := range []error{
					errOf(changed.Next(t.Context(), "IS")),
					errOf(changed.NextN(t.Context(), "IS", 3)),
					errOf(changed.NextOnce(t.Context(), "IS", "order 1")),
					changed.Raise(t.Context(), "IS", 0),
					changed.Takeover(t.Context(), "IS", 0),
				} {
					require.ErrorIs(t, err, serial.ErrConflict)
					for _, says := range c.says {
						require.ErrorContains(t, err, says)
					}
				}
			}
			lose()
			requireSeq(t, 11)(first.NextNumber(t.Context(), "IS"))
		})
	}
}

// reservation returns the ledger request of the series' generator.
func (s *series) reservation(period string, above, n int64) serial.Reservation {
	return s.reservationOf(s.gen, period, above, n)
}

// reservationOf returns the ledger request of another generator of the series.
func (s *series) reservationOf(gen *serial.Generator, period string, above, n int64) serial.Reservation {
	scheme := gen.Scheme()
	return serial.Reservation{
		Series: s.prefix + ":IS", Period: period, Calendar: scheme.Calendar(), Print: scheme.PrintMark(), Above: above, N: n,
	}
}

func testLedger(t *testing.T, b backend) {
	testCalendarsInALedger(t, b)
	testStartWithALedger(t, b)
	testLargestWithALedger(t, b)
	with := func(name string, block int64, f func(t *testing.T, s *series, l *spyLedger), opts ...serial.Option) {
		t.Run(name, func(t *testing.T) {
			l := new(spyLedger)
			f(t, b.series(t, append(opts, serial.WithLedger(l, block))...), l)
		})
	}

	with("asked once per block", 3, func(t *testing.T, s *series, l *spyLedger) {
		s.firstNumbers(s.gen, 7)
		require.Equal(t, []serial.Reservation{
			s.reservation(s.day, 0, 3), s.reservation(s.day, 3, 3), s.reservation(s.day, 6, 3),
		}, l.reservations())
		require.Equal(t, "7", s.rdb.Get(t.Context(), s.counter).Val())
		require.Equal(t, "9", s.rdb.HGet(t.Context(), s.record, "ceiling").Val())
		for _, key := range s.keys() {
			require.Positive(t, s.rdb.PTTL(t.Context(), key).Val(), key)
		}
		s.next(s.generator(serial.WithLedger(l, 100)), 8)
		require.Len(t, l.reservations(), 3, "any generator may use the block")
		requireSeq(t, 8)(s.gen.Peek(t.Context(), "IS"))
	})

	with("an operator who keeps ledgers leaves none", 10, func(t *testing.T, s *series, l *spyLedger) {
		s.next(s.gen, 1)
		_, offset := time.Now().In(s.loc).Zone()
		for _, zone := range []*time.Location{s.loc, time.FixedZone("stray", offset+3600)} {
			other := s.generator(serial.WithLocation(zone))
			require.ErrorIs(t, other.Raise(t.Context(), "IS", 5), serial.ErrConflict)
			err := other.TakeoverKeepingLedger(t.Context(), "IS", 5)
			require.ErrorIs(t, err, serial.ErrConflict)
			require.ErrorIs(t, err, inner.ErrReserved)
			require.NoError(t, other.TakeoverKeepingLedger(t.Context(), "PO", 5), "PO has no ledger")
		}
		s.next(s.gen, 2)
		require.NoError(t, s.gen.TakeoverKeepingLedger(t.Context(), "IS", 5), "by a generator with the ledger")
		other := s.generator()
		require.NoError(t, other.Takeover(t.Context(), "IS", 0))
		require.NoError(t, other.TakeoverKeepingLedger(t.Context(), "IS", 0))
	})

	with("batches that cross the ceiling have no gap", 10, func(t *testing.T, s *series, l *spyLedger) {
		s.next(s.gen, 1)
		requireResult(t, numbers("IS", s.day, 2, 26))(textsOf(s.gen.NextN(t.Context(), "IS", 25)))
		require.Equal(t, []serial.Reservation{s.reservation(s.day, 0, 10), s.reservation(s.day, 10, 25)}, l.reservations())
		s.next(s.gen, 27)
	})

	with("the last block is as small as needed", 60, func(t *testing.T, s *series, l *spyLedger) {
		require.NoError(t, errOf(s.gen.NextN(t.Context(), "IS", 58)))
		got, err := textsOf(s.gen.NextN(t.Context(), "IS", 41))
		require.NoError(t, err)
		require.True(t, strings.HasSuffix(got[40], "99"), got[40])
		require.Equal(t, []serial.Reservation{s.reservation(s.day, 0, 60), s.reservation(s.day, 60, 39)}, l.reservations())
		for range 3 {
			s.refused(s.gen, serial.ErrExhausted)
		}
		require.Len(t, l.reservations(), 2, "an exhausted day asks for nothing")
	}, serial.WithTemplate("{type}{date:yyyyMMdd}{seq:2}"))

	with("lost numbers count", 40, func(t *testing.T, s *series, l *spyLedger) {
		require.NoError(t, errOf(s.gen.NextN(t.Context(), "IS", 10)))
		require.NoError(t, s.rdb.Del(t.Context(), s.record, s.counter).Err())
		got, err := textsOf(s.gen.NextN(t.Context(), "IS", 59)) // 41 to 99
		require.NoError(t, err)
		require.True(t, strings.HasSuffix(got[0], "41") && strings.HasSuffix(got[58], "99"), "%s", got)
		s.refused(s.gen, serial.ErrExhausted)
		require.NoError(t, s.rdb.Del(t.Context(), s.record, s.counter).Err())
		for range 3 {
			require.ErrorIs(t, errOf(s.gen.Next(t.Context(), "IS")), serial.ErrExhausted)
		}
		require.Len(t, l.reservations(), 3, "once it is known, the ledger is not asked again")
	}, serial.WithTemplate("{type}{date:yyyyMMdd}{seq:2}"))

	// Whatever happens to the keys, the next number is above everything reserved, and one new block is enough.
	for name, harm := range map[string]func(s *series) error{
		"both keys":          func(s *series) error { return s.rdb.Del(s.t.Context(), s.record, s.counter).Err() },
		"the counter":        func(s *series) error { return s.rdb.Del(s.t.Context(), s.counter).Err() },
		"the record":         func(s *series) error { return s.rdb.Del(s.t.Context(), s.record).Err() },
		"the ceiling":        func(s *series) error { return s.rdb.HDel(s.t.Context(), s.record, "ceiling").Err() },
		"the copy":           func(s *series) error { return s.rdb.HDel(s.t.Context(), s.record, "counterCopy").Err() },
		"the replication ID": func(s *series) error { return s.rdb.HDel(s.t.Context(), s.record, "replID").Err() },
		"set back":           func(s *series) error { return s.rdb.Set(s.t.Context(), s.counter, 2, time.Hour).Err() },
		"set to zero":        func(s *series) error { return s.rdb.Set(s.t.Context(), s.counter, 0, time.Hour).Err() },
		"set ahead":          func(s *series) error { return s.rdb.Set(s.t.Context(), s.counter, 6, time.Hour).Err() },
		"no number":          func(s *series) error { return s.rdb.Set(s.t.Context(), s.counter, "x", time.Hour).Err() },
		"another key": func(s *series) error {
			s.rdb.Del(s.t.Context(), s.counter)
			return s.rdb.SAdd(s.t.Context(), s.counter, "x").Err()
		},
		"another replication ID": func(s *series) error {
			return s.rdb.HSet(s.t.Context(), s.record, "replID", strings.Repeat("e", 40)).Err()
		},
	} {
		for _, who := range []string{"an old generator", "a new generator"} {
			with("lost: "+name+", seen by "+who, 10, func(t *testing.T, s *series, l *spyLedger) {
				s.firstNumbers(s.gen, 5)
				require.NoError(t, harm(s))
				gen := s.gen
				if who == "a new generator" {
					gen = s.generator(serial.WithLedger(l, 10))
				}
				s.next(gen, 11)
				s.next(s.gen, 12)
				require.Len(t, l.reservations(), 2)
				for _, key := range s.keys() {
					require.Positive(t, s.rdb.PTTL(t.Context(), key).Val(), key)
				}
			})
		}
	}

	with("set ahead of the blocks", 10, func(t *testing.T, s *series, l *spyLedger) {
		s.next(s.gen, 1)
		require.NoError(t, s.rdb.Set(t.Context(), s.counter, 500, time.Hour).Err())
		s.next(s.gen, 501)
		require.Equal(t, s.reservation(s.day, 500, 10), l.reservations()[1])
	})

	with("set back with its copy", 10, func(t *testing.T, s *series, _ *spyLedger) {
		s.firstNumbers(s.gen, 5)
		require.NoError(t, s.rdb.Set(t.Context(), s.counter, 2, time.Hour).Err())
		require.NoError(t, s.rdb.HSet(t.Context(), s.record, "counterCopy", 2).Err())
		s.next(s.gen, 11)
	})

	with("a ledger that lost its blocks", 3, func(t *testing.T, s *series, _ *spyLedger) {
		s.next(s.gen, 1)
		gen := s.generator(serial.WithLedger(new(serialtest.Ledger), 3))
		for seq := 2; seq < 8; seq++ {
			s.next(gen, seq)
		}
	})

	with("a ledger that is down", 3, func(t *testing.T, s *series, l *spyLedger) {
		s.next(s.gen, 1)
		l.before(func(serial.Reservation) error { return errBoom })
		s.next(s.gen, 2)
		s.next(s.gen, 3)
		for range 2 {
			s.refused(s.gen, errBoom)
		}
		require.ErrorIs(t, errOf(s.gen.NextN(t.Context(), "IS", 5)), errBoom)
		require.ErrorIs(t, s.gen.Raise(t.Context(), "IS", 50), errBoom)
		require.ErrorIs(t, errOf(s.gen.Next(t.Context(), "NEW")), errBoom)
		l.before(nil)
		start := time.Now()
		s.next(s.gen, 4)
		require.Less(t, time.Since(start), lockExpiry/2, "a useless lock is released")
	})

	with("a ledger that returns nonsense", 3, func(t *testing.T, s *series, l *spyLedger) {
		s.next(s.gen, 1)
		for _, wrong := range []int64{-1, 0, 2, 1e15 - 3, 1 << 60} {
			gen := s.generator(serial.WithLedger(ledgerFunc(func() (int64, error) { return wrong, nil }), 3))
			require.NoError(t, s.rdb.Set(t.Context(), s.counter, 7, time.Hour).Err())
			_, err := gen.Next(t.Context(), "IS")
			require.ErrorContains(t, err, fmt.Sprintf("returned %d: want 7 to 999999999999996", wrong))
		}
		require.Equal(t, "7", s.rdb.Get(t.Context(), s.counter).Val())
	})

	with("a ledger's context ends before the lock", 1, func(t *testing.T, s *series, l *spyLedger) {
		var locked []time.Time // until then
		l.before(func(serial.Reservation) error {
			left, err := s.rdb.PTTL(t.Context(), s.counter+":lock").Result()
			require.NoError(t, err)
			require.Positive(t, left)
			locked = append(locked, time.Now().Add(left))
			return nil
		})
		s.next(s.gen, 1) // opens the day
		s.next(s.gen, 2) // at the ceiling
		require.Len(t, l.ends, 2)
		for i, end := range l.ends {
			require.True(t, end.Before(locked[i]), "%v, %v", end, locked[i])
		}
	})

	with("a ledger that panics", 1, func(t *testing.T, s *series, l *spyLedger) {
		s.next(s.gen, 1)
		l.before(func(serial.Reservation) error { panic("ledger") })
		require.PanicsWithValue(t, "ledger", func() { _, _ = s.gen.Next(t.Context(), "IS") })
		l.before(nil)
		s.next(s.gen, 2)
	})

	with("a floor below and above", 10, func(t *testing.T, s *series, l *spyLedger) {
		gen := s.generator(serial.WithLedger(l, 10), fixedFloor(25))
		s.next(gen, 26)
		require.Equal(t, s.reservation(s.day, 25, 10), l.reservations()[0])
		require.NoError(t, s.rdb.Del(t.Context(), s.counter).Err())
		s.next(gen, 36)
	})

	with("raise", 10, func(t *testing.T, s *series, l *spyLedger) {
		require.NoError(t, s.gen.Raise(t.Context(), "IS", 40))
		require.Equal(t, []serial.Reservation{s.reservation(s.day, 0, 50)}, l.reservations(), "with what it skips")
		s.next(s.gen, 41)
		require.NoError(t, s.gen.Raise(t.Context(), "IS", 30), "never lowers")
		s.next(s.gen, 42)
		require.Len(t, l.reservations(), 1)
		require.NoError(t, s.gen.Raise(t.Context(), "IS", 9999))
		require.NoError(t, s.gen.Raise(t.Context(), "IS", 9999))
		s.refused(s.gen, serial.ErrExhausted)
		require.NoError(t, s.rdb.Del(t.Context(), s.counter, s.record).Err())
		require.ErrorIs(t, errOf(s.gen.Next(t.Context(), "IS")), serial.ErrExhausted, "the ledger remembers")
	})

	with("calls are refused without the ledger, not with it", 10, func(t *testing.T, s *series, l *spyLedger) {
		plain := s.generator()
		s.next(plain, 1)
		s.next(plain, 2)
		s.next(s.gen, 3) // turned on within the period
		require.Equal(t, []serial.Reservation{s.reservation(s.day, 2, 10)}, l.reservations())
		for _, gen := range []*serial.Generator{plain, s.generator(), s.generator(fixedFloor(5))} {
			s.refused(gen, serial.ErrConflict)
			require.ErrorIs(t, gen.Raise(t.Context(), "IS", 50), serial.ErrConflict)
			requireSeq(t, 3, "who only reads needs no ledger")(gen.Peek(t.Context(), "IS"))
		}
		s.next(s.gen, 4)
	})

	with("turned on after a loss, with a floor", 10, func(t *testing.T, s *series, l *spyLedger) {
		s.next(s.generator(), 1)
		require.NoError(t, s.rdb.Del(t.Context(), s.counter).Err())
		s.refused(s.gen, serial.ErrCounterLost)
		s.next(s.generator(serial.WithLedger(l, 10), fixedFloor(5)), 6)
	})

	with("many callers on several generators", 7, func(t *testing.T, s *series, l *spyLedger) {
		gens := []*serial.Generator{s.gen, s.generator(serial.WithLedger(l, 7)), s.generator(serial.WithLedger(l, 11))}
		got := barrier(t, 300, func(i int) (string, error) { return gens[i%3].Next(t.Context(), "IS") })
		require.ElementsMatch(t, numbers("IS", s.day, 1, 300), got)
		require.LessOrEqual(t, len(l.reservations()), 300/7+1)
	})
}

// testStartWithALedger covers a start: it counts only if the ledger has set nothing aside.
func testStartWithALedger(t *testing.T, b backend) {
	run := func(name string, f func(t *testing.T, s *series, l *spyLedger, from func(start int64) *serial.Generator)) {
		b.run(t, "start with a ledger: "+name, func(t *testing.T, s *series) {
			l := new(spyLedger)
			f(t, s, l, func(start int64) *serial.Generator {
				return s.generator(serial.WithStart(start), serial.WithLedger(l, 10))
			})
		})
	}
	drop := func(s *series, keys ...string) { require.NoError(s.t, s.rdb.Del(s.t.Context(), keys...).Err()) }

	for _, start := range []int64{1000, 9999} {
		run(fmt.Sprint("another one in an open period, ", start), func(t *testing.T, s *series, l *spyLedger,
			from func(int64) *serial.Generator) {
			first, late := from(1), from(start)
			s.firstNumbers(first, 5)
			// Across a ceiling.
			requireResult(t, numbers("IS", s.day, 6, 25))(textsOf(late.NextN(t.Context(), "IS", 20)))
			s.next(first, 26)
			require.NoError(t, late.Raise(t.Context(), "IS", 57))
			s.next(late, 58)
			require.NoError(t, late.Takeover(t.Context(), "IS", 67))
			s.next(first, 68)
			drop(s, s.record)
			s.next(late, 78) // above everything reserved
			drop(s, s.counter)
			s.next(late, 88)
			drop(s, s.counter)
			require.NoError(t, late.Raise(t.Context(), "IS", 7))
			s.next(late, 98)
			require.Empty(t, s.rdb.HGet(t.Context(), s.record, "first").Val())
		})
	}

	for start, want := range map[int64][]int{3: {12, 36, 11, 22, 11}, 1000: {1001, 1025, 1000, 1000, 1000}} {
		run(fmt.Sprint("another one after everything is lost, ", start), func(t *testing.T, s *series, l *spyLedger,
			from func(int64) *serial.Generator) {
			for i, open := range []func(*serial.Generator) error{
				func(gen *serial.Generator) error { return errOf(gen.NextN(t.Context(), "IS", 1)) },
				func(gen *serial.Generator) error { return errOf(gen.NextN(t.Context(), "IS", 25)) },
				func(gen *serial.Generator) error { return gen.Raise(t.Context(), "IS", 7) },
				func(gen *serial.Generator) error { return gen.Raise(t.Context(), "IS", 21) },
				func(gen *serial.Generator) error { return gen.Takeover(t.Context(), "IS", 7) },
			} {
				l.Ledger = serialtest.Ledger{}
				s.firstNumbers(from(1), 5)
				drop(s, s.counter, s.record)
				gen := from(start)
				require.NoError(t, open(gen))
				s.next(gen, want[i])
				s.next(from(1), want[i]+1)
				require.Equal(t, fmt.Sprint(start), s.rdb.HGet(t.Context(), s.record, "first").Val())
				drop(s, s.counter, s.record)
			}
		})
	}

	run("a new period", func(t *testing.T, s *series, l *spyLedger, from func(int64) *serial.Generator) {
		s.next(from(1000), 1000)
		require.Equal(t, []serial.Reservation{s.reservation(s.day, 999, 10)}, l.reservations())
		s.next(from(1), 1001)
		for i := range 3 { // each costs a block, whatever the start
			drop(s, s.counter, s.record)
			s.next(from(1000), 1010+10*i)
		}
		for seq, want := range map[int64]int{0: 1000, 7: 1000, 999: 1000, 1000: 1001, 1500: 1501} {
			l.Ledger = serialtest.Ledger{}
			drop(s, s.counter, s.record)
			gen := from(1000)
			require.NoError(t, gen.Raise(t.Context(), "IS", seq))
			s.next(gen, want)
		}
		for floor, want := range map[int64]int{0: 1000, 7: 8, 999: 1000, 1000: 1001} {
			l.Ledger = serialtest.Ledger{}
			drop(s, s.counter, s.record)
			s.next(s.generator(serial.WithStart(1000), serial.WithLedger(l, 10), fixedFloor(floor)), want)
		}
	})

	run("turned on within a period", func(t *testing.T, s *series, l *spyLedger, from func(int64) *serial.Generator) {
		s.firstNumbers(s.gen, 2)
		s.next(from(1000), 3)
	})

	for _, answered := range []bool{false, true} {
		run(fmt.Sprint("a failure in between, answered: ", answered), func(t *testing.T, s *series, l *spyLedger,
			from func(int64) *serial.Generator) {
			l.before(func(r serial.Reservation) error {
				if answered {
					_ = errOf(l.Ledger.Reserve(t.Context(), r))
				}
				return errBoom
			})
			want := 1000
			for _, start := range []int64{1000, 2000, 1000} {
				s.refused(from(start), errBoom)
			}
			require.Len(t, l.reservations(), 3)
			l.before(nil)
			if answered {
				want = 2020
			}
			s.next(from(1000), want)
		})
	}

	run("a prepared day", func(t *testing.T, s *series, l *spyLedger, from func(int64) *serial.Generator) {
		now := time.Now().In(s.loc)
		h, m, sec := now.Clock()
		begins := time.Duration(h)*time.Hour + time.Duration(m)*time.Minute + time.Duration(sec+3)*time.Second
		on := func(start int64) *serial.Generator {
			return s.generator(serial.WithStart(start), serial.WithLedger(l, 10), serial.WithDayStart(begins))
		}
		first, late, later := on(1), on(500), on(1000)
		require.NoError(t, first.Prepare(t.Context(), "IS"))
		require.NoError(t, late.Prepare(t.Context(), "LA"))
		require.NoError(t, late.Prepare(t.Context(), "UN"))
		require.NoError(t, late.Prepare(t.Context(), "USED"))
		used := s.reservation(s.day, 0, 700)
		used.Series = strings.Replace(used.Series, "IS", "USED", 1)
		require.NoError(t, errOf(l.Ledger.Reserve(t.Context(), used)))
		yesterday, _, _ := first.Scheme().Period(serial.At(now))
		require.NotEqual(t, s.day, yesterday)
		require.NoError(t, late.Prepare(t.Context(), "LOST"))
		lost := strings.Replace(s.record, "IS", "LOST", 1)
		require.EqualValues(t, 3, s.rdb.Del(t.Context(), lost, lost+":"+yesterday, lost+":"+s.day).Val())
		require.EventuallyWithT(t, func(t *assert.CollectT) {
			n, err := later.Peek(context.Background(), "IS")
			require.NoError(t, err)
			require.Equal(t, s.day, n.Start.Format("20060102"))
		}, time.Minute, 10*time.Millisecond)
		s.next(later, 1)
		requireSeq(t, 500)(later.NextNumber(t.Context(), "LA"))
		require.NoError(t, errOf(first.NextN(t.Context(), "LA", 20)))
		requireSeq(t, 701, "the ledger knows more")(late.NextNumber(t.Context(), "USED"))
		requireSeq(t, 500)(s.generator(serial.WithStart(500), serial.WithLedger(l, 10), serial.WithDayStart(begins)).
			NextNumber(t.Context(), "LOST"))
		for _, gen := range []*serial.Generator{first, late, later} {
			requireSeq(t, 0)(gen.Peek(t.Context(), "UN"))
		}
		require.NoError(t, later.Raise(t.Context(), "UN", 600))
		requireSeq(t, 601)(first.NextNumber(t.Context(), "UN"))
	})
}

// testLargestWithALedger covers Raise and Takeover to the largest sequence of all.
func testLargestWithALedger(t *testing.T, b backend) {
	const largest = 999_999_999_999_999
	wide := serial.WithTemplate("{type}{date:yyyyMMdd}{seq:15}")
	b.run(t, "raise to the largest sequence with a ledger", func(t *testing.T, s *series) {
		_, offset := time.Now().In(s.loc).Zone()
		other := func() error {
			gen := s.generator(wide, serial.WithLocation(time.FixedZone("other", offset+3600)))
			return errOf(gen.Next(t.Context(), "IS"))
		}
		l := new(spyLedger)
		gen := s.generator(wide, serial.WithLedger(l, 10))
		for i, raise := range []func() error{
			func() error { return gen.Raise(t.Context(), "IS", largest) },
			func() error { return gen.Takeover(t.Context(), "IS", largest) },
			func() error {
				require.NoError(t, other())
				return gen.Takeover(t.Context(), "IS", largest)
			},
			func() error {
				require.NoError(t, errOf(gen.Next(t.Context(), "IS")))
				return gen.Raise(t.Context(), "IS", largest)
			},
			func() error { // the counter is lost
				require.NoError(t, gen.Raise(t.Context(), "IS", largest-1))
				require.NoError(t, errOf(gen.Next(t.Context(), "IS")))
				require.NoError(t, s.rdb.Del(t.Context(), s.counter).Err())
				return gen.Raise(t.Context(), "IS", 0)
			},
			func() error { // another zone's record, written by something else
				require.NoError(t, other())
				require.NoError(t, s.rdb.Set(t.Context(), s.counter, int64(largest), time.Hour).Err())
				return gen.Takeover(t.Context(), "IS", 0)
			},
		} {
			l.Ledger = serialtest.Ledger{}
			for range 2 {
				require.NoError(t, raise(), i)
				raise = func() error { return gen.Raise(t.Context(), "IS", largest) }
				s.refused(gen, serial.ErrExhausted)
				require.Equal(t, fmt.Sprint(int64(largest)), s.rdb.Get(t.Context(), s.counter).Val(), i)
				requireSeq(t, largest, i)(gen.Peek(t.Context(), "IS"))
			}
			require.NoError(t, s.rdb.Del(t.Context(), s.counter, s.record).Err())
			gen = s.generator(wide, serial.WithLedger(l, 10)) // it remembers nothing
		}
	})
}

// A pause or a loss between reservation and installation loses only that block. With a pause, the call fails.
// Guarantees: late-block.
func TestLateBlock(t *testing.T) {
	const pause, lost = "the process stands still", "everything is lost"
	for name, happens := range map[string]func(m *simulation, change func()){
		pause:                    func(*simulation, func()) { time.Sleep(lockExpiry + time.Second) },
		"another replication ID": func(_ *simulation, change func()) { change() },
		lost:                     func(m *simulation, _ func()) { m.FlushAll() },
	} {
		for _, opened := range []bool{false, true} {
			runInBubble(t, fmt.Sprintf("%s, opened before: %v", name, opened), func(t *testing.T, m *simulation) {
				change := memory.AddReplicationID(m.Miniredis)
				l := new(serialtest.Ledger)
				var armed atomic.Bool
				// Between the ledger's answer and the command that installs the block.
				rdb := m.Client(around(func(cmd redis.Cmder, send func() error) error {
					if isOpen(cmd) && armed.CompareAndSwap(true, false) {
						happens(m, change)
					}
					return send()
				}))
				gen := newGenerator(t, rdb, serial.WithLocation(time.UTC), serial.WithLedger(l, 5))
				var j journal
				if opened {
					for range 5 {
						require.NoError(t, errOf(j.next(t.Context(), gen, "IS")))
					}
				}
				armed.Store(true)
				if name == pause {
					require.Error(t, errOf(j.next(t.Context(), gen, "IS")))
					time.Sleep(lockExpiry)
				}
				for range 8 {
					require.NoError(t, errOf(j.next(t.Context(), gen, "IS")))
				}
				first := 5
				if opened {
					first = 10
				} else if name == lost {
					first = 0 // everything is as it was found
				}
				for i, e := range j.entries[len(j.entries)-8:] {
					require.EqualValues(t, first+i+1, e.seq, "the first block is dropped")
				}
				j.check(t, time.UTC)
				require.False(t, armed.Load())
			})
		}
	}
}

// The reply that grants the lock comes too late to be useful: the ledger is not asked, and the call continues.
func TestLateLock(t *testing.T) {
	inBubble(t, func(t *testing.T, m *simulation) {
		l := new(spyLedger)
		var armed atomic.Bool
		gen := newGenerator(t, m.Client(around(func(cmd redis.Cmder, send func() error) error {
			err := send()
			if cmd.Name() == "set" && armed.CompareAndSwap(true, false) {
				time.Sleep(7200 * time.Millisecond)
			}
			return err
		})), serial.WithLocation(time.UTC), serial.WithLedger(l, 5))
		for range 5 {
			require.NoError(t, errOf(gen.Next(t.Context(), "IS")))
		}
		armed.Store(true)
		requireSeq(t, 6)(gen.NextNumber(t.Context(), "IS"))
		require.False(t, armed.Load())
		require.Len(t, l.reservations(), 2)
	})
}

// A process that dies while its ledger is asked delays the others until its lock expires; a late installation does not
// disturb them.
// Guarantees: opener-killed.
func TestLockOfTheDead(t *testing.T) {
	inBubble(t, func(t *testing.T, m *simulation) {
		l := new(spyLedger)
		option := serial.WithLedger(l, 5)
		gen := newGenerator(t, m.Client(), serial.WithLocation(time.UTC), option)
		require.NoError(t, errOf(gen.NextN(t.Context(), "IS", 5)))
		dead := newGenerator(t, m.Client(), serial.WithLocation(time.UTC), option)
		l.before(func(serial.Reservation) error { time.Sleep(time.Minute); return nil })
		gone, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.ErrorIs(t, errOf(dead.Next(gone, "IS")), context.DeadlineExceeded)
		l.before(nil)
		other, cancelOther := context.WithTimeout(t.Context(), patience)
		defer cancelOther()
		start := time.Now()
		requireResult(t, "IS200001010006")(gen.Next(other, "IS"))
		require.Less(t, time.Since(start), lockExpiry+time.Second)
		time.Sleep(2 * time.Minute)
		requireResult(t, "IS200001010007")(dead.Next(t.Context(), "IS"))
	})
}

// While one type waits for its ledger, the others continue, even if the day ends meanwhile.
// Guarantees: ledger-down.
func TestSlowLedger(t *testing.T) {
	inBubble(t, func(t *testing.T, m *simulation) {
		l := new(spyLedger)
		gen := newGenerator(t, m.Client(), serial.WithLocation(time.UTC), serial.WithLedger(l, 5))
		for _, typ := range []string{"SLOW", "OK"} {
			require.NoError(t, errOf(gen.NextN(t.Context(), typ, 5)))
		}
		time.Sleep(24*time.Hour - time.Second - time.Millisecond)
		for _, typ := range []string{"SLOW", "OK"} {
			require.NoError(t, errOf(gen.NextN(t.Context(), typ, 5)))
		}
		l.before(func(r serial.Reservation) error {
			if strings.Contains(r.Series, "SLOW") {
				time.Sleep(3 * time.Second)
			}
			return nil
		})
		var wg sync.WaitGroup
		var j journal
		for range 20 {
			wg.Go(func() { require.NoError(t, errOf(j.next(t.Context(), gen, "SLOW"))) })
		}
		time.Sleep(time.Millisecond)
		for range 20 {
			took, err := j.next(t.Context(), gen, "OK")
			require.NoError(t, err)
			require.Less(t, took, 100*time.Millisecond)
		}
		wg.Wait()
		require.LessOrEqual(t, len(l.reservations()), 14)
	})
}

// A Redis that does not report its replication ID cannot be used with a ledger, and the first call says so.
func TestReplicationIDRefused(t *testing.T) {
	const says = "WithLedger needs INFO replication in scripts"
	m := miniredis.RunT(t) // has no such section
	rdb := closing(t, redis.NewClient(&redis.Options{Addr: m.Addr()}))
	gen := newGenerator(t, rdb, serial.WithLocation(noon()), serial.WithLedger(new(serialtest.Ledger), 10))
	require.ErrorContains(t, errOf(gen.Next(t.Context(), "IS")), says)
	require.ErrorContains(t, gen.Raise(t.Context(), "IS", 3), says)
	require.Empty(t, m.Keys())

	t.Run("by an ACL", func(t *testing.T) {
		s := redistest.Start(t)
		require.NoError(t, s.Client(t).Do(t.Context(), "ACL", "SETUSER", "issuer", "on", ">secret", "~*", "+@all",
			"-info").Err())
		opt := s.Options()
		opt.Username, opt.Password = "issuer", "secret"
		gen := newGenerator(t, closing(t, redis.NewClient(opt)), serial.WithLocation(noon()),
			serial.WithLedger(new(serialtest.Ledger), 10))
		require.ErrorContains(t, errOf(gen.Next(t.Context(), "IS")), says)
	})
}

// A writable replica has its master's replication ID, and is refused: with a ledger both would issue the same numbers.
// Guarantees: writable-replica.
func TestWritableReplicaRefused(t *testing.T) {
	t.Parallel()
	master := redistest.Start(t)
	replica := redistest.StartReplica(t, master, "--replica-read-only", "no")
	l := new(serialtest.Ledger)
	on := func(s *redistest.Server) *serial.Generator {
		return newGenerator(t, s.Client(t), serial.WithLocation(noon()), serial.WithLedger(l, 10))
	}
	require.NoError(t, errOf(on(master).Next(t.Context(), "IS")))
	require.EqualValues(t, 1, master.Do("WAIT", 1, 5000).Val()) // the replica has everything
	for range 2 {
		_, err := on(replica).Next(t.Context(), "IS")
		require.ErrorContains(t, err, "WithLedger needs a master, and this server is a replica of "+master.Addr())
		require.ErrorContains(t, on(replica).Raise(t.Context(), "IS", 5), "WithLedger needs a master")
	}
	requireResult(t, "IS"+today(noon())+"0002")(on(master).Next(t.Context(), "IS"))
	require.NoError(t, replica.ReplicaOf(nil))
	requireResult(t, "IS"+today(noon())+"0011", "a new master reserves its own")(on(replica).Next(t.Context(), "IS"))
}

// Between the reservation and its use, others hold the pool's only connection for longer than go-redis waits and tries again.
// A command that could not be sent is sent later. (Not in a bubble, because go-redis's pools share timers.)
func TestPoolIsBusy(t *testing.T) {
	m, other := startMini(t)
	opts := []serial.Option{serial.WithLocation(noon()), serial.WithLedger(new(serialtest.Ledger), 10)}
	require.NoError(t, errOf(newGenerator(t, other, opts...).Next(t.Context(), "OTHER"))) // the server knows the scripts

	rdb := closing(t, redis.NewClient(&redis.Options{Addr: m.Addr(), PoolSize: 1, PoolTimeout: 5 * time.Millisecond}))
	var once sync.Once
	rdb.AddHook(around(func(cmd redis.Cmder, send func() error) error {
		if isOpen(cmd) {
			once.Do(func() {
				conn := rdb.Conn()
				require.NoError(t, conn.Ping(context.Background()).Err())
				time.AfterFunc(500*time.Millisecond, func() { _ = conn.Close() })
			})
		}
		return send()
	}))
	before := time.Now()
	// From the block reserved for it.
	requireResult(t, "IS"+today(noon())+"0001")(newGenerator(t, rdb, opts...).Next(t.Context(), "IS"))
	require.Greater(t, time.Since(before), 500*time.Millisecond)
}

// Redis restarts empty twice, and then from an old backup.
func TestLedgerOutlivesRedis(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	rdb := s.Client(t)
	l := new(serialtest.Ledger)
	var j journal
	loc := noon()
	generator := func() *serial.Generator {
		return newGenerator(t, rdb, serial.WithLocation(loc), serial.WithLedger(l, 4))
	}
	gens := []*serial.Generator{generator(), generator()}
	for round := range 4 {
		for i := range 6 {
			require.NoError(t, errOf(j.next(t.Context(), gens[i%2], "IS")))
		}
		if round == 2 {
			gens[0] = generator()
		}
		s.Kill()
		s.Restart(t)
	}
	require.NoError(t, errOf(j.next(t.Context(), gens[0], "IS")))
	j.check(t, loc)
	require.EqualValues(t, 4*8+1, j.entries[len(j.entries)-1].seq)
}

// All sequences up to the largest possible one are issued.
func TestLedgerAtItsEnd(t *testing.T) {
	inBubble(t, func(t *testing.T, m *simulation) {
		opts := []serial.Option{serial.WithLocation(time.UTC), serial.WithTemplate("{type}{date:yyyyMMdd}{seq:15}"),
			serial.WithLedger(new(serialtest.Ledger), 10)}
		gen := newGenerator(t, m.Client(), opts...)
		require.NoError(t, gen.Raise(t.Context(), "IS", 999_999_999_999_998))
		requireResult(t, "IS20000101999999999999999")(gen.Next(t.Context(), "IS"))
		require.ErrorIs(t, errOf(gen.Next(t.Context(), "IS")), serial.ErrExhausted)
		require.NoError(t, gen.Raise(t.Context(), "IS", 999_999_999_999_999))
		m.Del("serial:{IS}:20000101")
		require.ErrorIs(t, errOf(newGenerator(t, m.Client(), opts...).Next(t.Context(), "IS")), serial.ErrExhausted)
	})
}

// locked has another process hold the lock for d.
func (s *simulation) locked(d time.Duration) (wait func()) {
	begin := time.Now()
	hold := func() {
		require.NoError(s.t, s.Set("serial:{IS}:20000101:lock", "another"))
		s.SetTTL("serial:{IS}:20000101:lock", 2*time.Second)
	}
	hold()
	var wg sync.WaitGroup
	wg.Go(func() {
		for time.Since(begin) < d {
			time.Sleep(time.Second)
			hold()
		}
	})
	return wg.Wait
}

// While another process reserves a block, each caller waits as long as its own context lives, or 30 s without a
// deadline.
// Guarantees: lock-kept.
func TestWaitForAnothersBlock(t *testing.T) {
	run := func(name string, held time.Duration, f func(t *testing.T, gen *serial.Generator, sent *atomic.Int64)) {
		runInBubble(t, name, func(t *testing.T, m *simulation) {
			var sent atomic.Int64
			gen := newGenerator(t, m.Client(counting(&sent)), serial.WithLocation(time.UTC),
				serial.WithLedger(new(serialtest.Ledger), 1))
			require.NoError(t, errOf(gen.Next(t.Context(), "IS")))
			wait := m.locked(held)
			f(t, gen, &sent)
			wait()
		})
	}
	next := func(t *testing.T, gen *serial.Generator, d time.Duration) (time.Duration, error) {
		ctx := context.Background()
		if d > 0 {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, d)
			defer cancel()
		}
		begin := time.Now()
		_, err := gen.Next(ctx, "IS")
		return time.Since(begin), err
	}
	for _, deadlines := range [][]time.Duration{{time.Minute, 0}, {0, time.Minute}} {
		run(fmt.Sprint(deadlines), 40*time.Second, func(t *testing.T, gen *serial.Generator, _ *atomic.Int64) {
			var wg sync.WaitGroup
			for _, d := range deadlines {
				wg.Go(func() {
					took, err := next(t, gen, d)
					if d > 0 {
						require.NoError(t, err)
						require.Greater(t, took, 40*time.Second)
						return
					}
					require.Error(t, err)
					require.NotErrorIs(t, err, context.DeadlineExceeded)
					require.InDelta(t, 30, took.Seconds(), 1)
				})
				synctest.Wait()
			}
			wg.Wait()
		})
	}
	run("one after the other", 100*time.Second, func(t *testing.T, gen *serial.Generator, _ *atomic.Int64) {
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				took, err := next(t, gen, 0)
				require.Error(t, err)
				require.InDelta(t, 30, took.Seconds(), 1)
			})
			time.Sleep(time.Second)
		}
		wg.Wait()
	})
	run("a deadline that comes first", 100*time.Second, func(t *testing.T, gen *serial.Generator, _ *atomic.Int64) {
		took, err := next(t, gen, 40*time.Second)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, 40*time.Second, took)
	})
	run("nobody waits any more", 10*time.Minute, func(t *testing.T, gen *serial.Generator, sent *atomic.Int64) {
		ctx, cancel := context.WithTimeout(t.Context(), 9*time.Minute)
		time.AfterFunc(time.Second, cancel)
		require.ErrorIs(t, errOf(gen.Next(ctx, "IS")), context.Canceled)
		time.Sleep(31 * time.Second)
		before := sent.Load()
		time.Sleep(5 * time.Minute)
		require.Equal(t, before, sent.Load(), "no command for nobody")
	})
}

// A counter above the largest sequence is exhausted, and the ledger is not asked.
func TestLedgerBesideAStrayCounter(t *testing.T) {
	for _, held := range []string{"999999999999999", "1000000000000000", "9223372036854775807"} {
		inBubble(t, func(t *testing.T, m *simulation) {
			l := new(spyLedger)
			gen := newGenerator(t, m.Client(), serial.WithLocation(time.UTC), serial.WithLedger(l, 10))
			require.NoError(t, m.Set("serial:{IS}:20000101", held))
			require.ErrorIs(t, errOf(gen.Next(t.Context(), "IS")), serial.ErrExhausted)
			require.NoError(t, gen.Raise(t.Context(), "IS", 5))
			require.ErrorIs(t, gen.Prepare(t.Context(), "IS"), serial.ErrExhausted)
			require.Empty(t, l.reservations())
			requireResult(t, held)(m.Get("serial:{IS}:20000101"))
		})
	}
}

// Many callers open days over a pool of one connection: a caller that gets no connection in time tries again.
func TestStormOnOneConnection(t *testing.T) {
	const types, callers = 40, 10
	s := redistest.Start(t)
	opt := s.Options()
	opt.PoolSize, opt.PoolTimeout = 1, 31*time.Millisecond
	gen := newGenerator(t, closing(t, redis.NewClient(opt)), serial.WithLocation(noon()),
		serial.WithLedger(new(serialtest.Ledger), 7))
	got := barrier(t, types*callers, func(i int) (string, error) {
		return gen.Next(t.Context(), fmt.Sprintf("T%d", i%types))
	})
	var want []string
	for typ := range types {
		want = append(want, numbers(fmt.Sprintf("T%d", typ), today(noon()), 1, callers)...)
	}
	require.ElementsMatch(t, want, got)
}

// A template prints seconds, and one step takes longer than a second: a command, or the ledger itself. The block that
// was set aside belongs to the day, so it is installed in another second, and no other block is set aside.
func TestBlockOutlastsItsSecond(t *testing.T) {
	const slow = 1200 * time.Millisecond
	for step := range 8 { // 0 is the ledger
		inBubble(t, func(t *testing.T, m *simulation) {
			l, sent := new(spyLedger), 0
			if step == 0 {
				l.before(func(serial.Reservation) error { time.Sleep(slow); return nil })
			}
			rdb := m.Client(everyCall(func(cmds []redis.Cmder, send func() error) error {
				if sent++; sent == step {
					time.Sleep(slow)
				}
				return send()
			}))
			gen := newGenerator(t, rdb, serial.WithLocation(time.UTC), serial.WithLedger(l, 10),
				serial.WithTemplate("{type}{date:yyyyMMddHHmmss}{seq:4}"))
			for seq := range int64(10) {
				requireSeq(t, seq+1, "step %d", step)(gen.NextNumber(context.Background(), "IS"))
				require.Len(t, l.reservations(), 1, "step %d", step)
			}
			sent = 0
			requireSeq(t, 11, "step %d", step)(gen.NextNumber(context.Background(), "IS"))
			require.Len(t, l.reservations(), 2, "step %d", step)
		})
	}
}
