package serial_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
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

// testLedger is the behaviour suite with a ledger.
func testLedger(t *testing.T, b backend) {
	testCalendarsInALedger(t, b)
	with := func(name string, block int64, f func(t *testing.T, s *series, l *spyLedger), opts ...serial.Option) {
		t.Run(name, func(t *testing.T) {
			l := new(spyLedger)
			f(t, b.series(t, append(opts, serial.WithLedger(l, block))...), l)
		})
	}

	with("the ledger is asked once per block", 3, func(t *testing.T, s *series, l *spyLedger) {
		s.firstNumbers(s.gen, 4)
		require.Equal(t, []serial.Reservation{s.reservation(s.day, 0, 3), s.reservation(s.day, 3, 3)}, l.reservations())
		require.Equal(t, "6", s.rdb.HGet(t.Context(), s.record, "ceiling").Val())
		s.next(s.generator(serial.WithLedger(l, 100)), 5)
		require.Len(t, l.reservations(), 2, "any generator may use the block")
		requireSeq(t, 5)(s.gen.Peek(t.Context(), "IS"))
		requireResult(t, numbers("IS", s.day, 6, 30))(textsOf(s.gen.NextN(t.Context(), "IS", 25)))
		require.Equal(t, s.reservation(s.day, 6, 25), l.reservations()[2], "numbers across a ceiling have no gap")
	})

	with("the last block is as small as needed", 60, func(t *testing.T, s *series, l *spyLedger) {
		require.NoError(t, errOf(s.gen.NextN(t.Context(), "IS", 58)))
		require.NoError(t, errOf(s.gen.NextN(t.Context(), "IS", 41)))
		require.Equal(t, []serial.Reservation{s.reservation(s.day, 0, 60), s.reservation(s.day, 60, 39)}, l.reservations())
		for range 2 {
			s.refused(s.gen, serial.ErrExhausted)
			require.NoError(t, s.rdb.Del(t.Context(), s.record, s.counter).Err())
			require.ErrorIs(t, errOf(s.gen.Next(t.Context(), "IS")), serial.ErrExhausted, "the ledger remembers")
		}
	}, serial.WithTemplate("{type}{date:yyyyMMdd}{seq:2}"))

	with("up to the largest sequence of all", 10, func(t *testing.T, s *series, l *spyLedger) {
		const largest = 999_999_999_999_999
		require.NoError(t, s.gen.Raise(t.Context(), "IS", largest-1))
		requireSeq(t, largest)(s.gen.NextNumber(t.Context(), "IS"))
		s.refused(s.gen, serial.ErrExhausted)
		require.NoError(t, s.rdb.Del(t.Context(), s.counter).Err())
		for _, raise := range []func(context.Context, string, int64) error{s.gen.Raise, s.gen.Takeover} {
			require.NoError(t, raise(t.Context(), "IS", largest))
			require.Equal(t, fmt.Sprint(int64(largest)), s.rdb.Get(t.Context(), s.counter).Val())
		}
	}, serial.WithTemplate("{type}{date:yyyyMMdd}{seq:15}"))

	with("a counter beyond the template", 10, func(t *testing.T, s *series, l *spyLedger) {
		require.NoError(t, s.gen.Raise(t.Context(), "IS", 5000))
		narrow := s.generator(serial.WithLedger(l, 10), serial.WithTemplate("{type}{date:yyyyMMdd}{seq:3}"))
		require.NoError(t, s.rdb.HDel(t.Context(), s.record, "replID").Err())
		s.refused(narrow, serial.ErrExhausted)
		require.NoError(t, narrow.Raise(t.Context(), "IS", 5))
		require.NoError(t, narrow.Prepare(t.Context(), "IS"))
		require.Len(t, l.reservations(), 1)
	})

	// Whichever keys are lost, the next number must be above everything that was reserved, and only one new block must
	// be needed.
	for name, harm := range map[string]func(s *series) error{
		"both keys":          func(s *series) error { return s.rdb.Del(s.t.Context(), s.record, s.counter).Err() },
		"the counter":        func(s *series) error { return s.rdb.Del(s.t.Context(), s.counter).Err() },
		"the record":         func(s *series) error { return s.rdb.Del(s.t.Context(), s.record).Err() },
		"the replication ID": func(s *series) error { return s.rdb.HDel(s.t.Context(), s.record, "replID").Err() },
		"set back":           func(s *series) error { return s.rdb.Set(s.t.Context(), s.counter, 2, time.Hour).Err() },
		"set ahead":          func(s *series) error { return s.rdb.Set(s.t.Context(), s.counter, 6, time.Hour).Err() },
		"no number":          func(s *series) error { return s.rdb.Set(s.t.Context(), s.counter, "x", time.Hour).Err() },
		"another replication ID": func(s *series) error {
			return s.rdb.HSet(s.t.Context(), s.record, "replID", strings.Repeat("e", 40)).Err()
		},
	} {
		with("lost: "+name, 10, func(t *testing.T, s *series, l *spyLedger) {
			s.firstNumbers(s.gen, 5)
			require.NoError(t, harm(s))
			s.next(s.gen, 11)
			require.NoError(t, harm(s))
			s.next(s.generator(serial.WithLedger(l, 10)), 21) // it remembers nothing
			s.next(s.gen, 22)
			require.Len(t, l.reservations(), 3)
			for _, key := range s.keys() {
				require.Positive(t, s.rdb.PTTL(t.Context(), key).Val(), key)
			}
		})
	}

	with("the ledger lost its blocks", 3, func(t *testing.T, s *series, _ *spyLedger) {
		s.next(s.gen, 1)
		gen := s.generator(serial.WithLedger(new(serialtest.Ledger), 3))
		for seq := 2; seq < 8; seq++ {
			s.next(gen, seq)
		}
	})

	with("the ledger is down", 3, func(t *testing.T, s *series, l *spyLedger) {
		s.next(s.gen, 1)
		l.before(func(serial.Reservation) error { return errBoom })
		s.next(s.gen, 2)
		s.next(s.gen, 3)
		s.refused(s.gen, errBoom)
		require.ErrorIs(t, errOf(s.gen.NextN(t.Context(), "IS", 5)), errBoom)
		require.ErrorIs(t, s.gen.Raise(t.Context(), "IS", 50), errBoom)
		require.ErrorIs(t, errOf(s.gen.Next(t.Context(), "NEW")), errBoom)
		l.before(func(serial.Reservation) error { panic("ledger") })
		require.PanicsWithValue(t, "ledger", func() { _, _ = s.gen.Next(t.Context(), "IS") })
		l.before(nil)
		start := time.Now()
		s.next(s.gen, 4)
		require.Less(t, time.Since(start), lockExpiry/2, "the lock was released")
	})

	with("the ledger returns what it must not", 3, func(t *testing.T, s *series, l *spyLedger) {
		s.next(s.gen, 1)
		require.NoError(t, s.rdb.Set(t.Context(), s.counter, 7, time.Hour).Err())
		for _, wrong := range []int64{-1, 6, 1e15 - 3} {
			gen := s.generator(serial.WithLedger(ledgerFunc(func() (int64, error) { return wrong, nil }), 3))
			_, err := gen.Next(t.Context(), "IS")
			require.ErrorContains(t, err, fmt.Sprintf("returned %d: want 7 to 999999999999996", wrong))
		}
		require.Equal(t, "7", s.rdb.Get(t.Context(), s.counter).Val())
	})

	with("the ledger's context ends before the lock expires", 1, func(t *testing.T, s *series, l *spyLedger) {
		l.before(func(serial.Reservation) error {
			left, err := s.rdb.PTTL(t.Context(), s.counter+":lock").Result()
			require.NoError(t, err)
			require.True(t, l.ends[len(l.ends)-1].Before(time.Now().Add(left)))
			return nil
		})
		s.next(s.gen, 1) // opens the day
		s.next(s.gen, 2) // at the ceiling
	})

	with("raise, and a floor", 10, func(t *testing.T, s *series, l *spyLedger) {
		require.NoError(t, s.gen.Raise(t.Context(), "IS", 40))
		require.Equal(t, []serial.Reservation{s.reservation(s.day, 0, 50)}, l.reservations(), "with what it skips")
		s.next(s.gen, 41)
		require.NoError(t, s.gen.Raise(t.Context(), "IS", 30))
		s.next(s.gen, 42)
		gen := s.generator(serial.WithLedger(l, 10), fixedFloor(75))
		require.NoError(t, s.rdb.Del(t.Context(), s.counter, s.record).Err())
		s.next(gen, 76)
		require.Equal(t, s.reservation(s.day, 75, 10), l.reservations()[1])
	})

	with("calls are refused without the ledger, not with it", 10, func(t *testing.T, s *series, l *spyLedger) {
		plain := s.generator()
		s.firstNumbers(plain, 2)
		s.next(s.gen, 3) // turned on within the period
		require.Equal(t, []serial.Reservation{s.reservation(s.day, 2, 10)}, l.reservations())
		for _, gen := range []*serial.Generator{plain, s.generator(), s.generator(fixedFloor(5))} {
			s.refused(gen, serial.ErrConflict)
			require.ErrorIs(t, gen.Raise(t.Context(), "IS", 50), serial.ErrConflict)
			err := gen.TakeoverKeepingLedger(t.Context(), "IS", 5)
			require.ErrorIs(t, err, serial.ErrConflict)
			require.ErrorIs(t, err, inner.ErrReserved)
			requireSeq(t, 3, "reading needs no ledger")(gen.Peek(t.Context(), "IS"))
			requireResult(t, numbers("IS", s.day, 3, 3))(textsOf(gen.History(t.Context(), "IS", 1)))
		}
		s.next(s.gen, 4)
		require.NoError(t, s.gen.TakeoverKeepingLedger(t.Context(), "IS", 5))
		require.NoError(t, plain.Takeover(t.Context(), "IS", 12))
		s.next(plain, 13)
		require.NoError(t, plain.TakeoverKeepingLedger(t.Context(), "IS", 0))
	})

	with("many callers on several generators", 7, func(t *testing.T, s *series, l *spyLedger) {
		gens := []*serial.Generator{s.gen, s.generator(serial.WithLedger(l, 7)), s.generator(serial.WithLedger(l, 11))}
		got := barrier(t, 60, func(i int) (string, error) { return gens[i%3].Next(t.Context(), "IS") })
		require.ElementsMatch(t, numbers("IS", s.day, 1, 60), got)
		require.LessOrEqual(t, len(l.reservations()), 60/7+1)
	})
}

// reservation returns the request that the generator of the series sends to its ledger.
func (s *series) reservation(period string, above, n int64) serial.Reservation {
	return s.reservationOf(s.gen, period, above, n)
}

// reservationOf returns the request that another generator of the series sends to its ledger.
func (s *series) reservationOf(gen *serial.Generator, period string, above, n int64) serial.Reservation {
	scheme := gen.Scheme()
	return serial.Reservation{
		Series: s.prefix + ":IS", Period: period, Calendar: scheme.Calendar(), Print: scheme.PrintMark(), Above: above, N: n,
	}
}

// Redis restarts empty after the settings of a series were changed. The ledger still has the settings, so no printed
// number must be printed again. See docs/guarantees.md, "How a ledger keeps its word".
// Guarantees: settings-kept.
func TestLedgerKeepsSettings(t *testing.T) {
	_, rdb := startMini(t)
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
		"another key": {hidden("an example's key"), hidden("another's secret"), []string{"check digit or key"}},
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

// The process is suspended, or Redis loses its data, between the reservation of a block and its installation. Only this
// block must be lost. After a suspension, the call must fail.
// Guarantees: late-block.
func TestLateBlock(t *testing.T) {
	const pause, restart, loss = "a pause", "a restart", "everything is lost"
	for _, what := range []string{pause, restart, loss} {
		for _, opened := range []bool{false, true} {
			runInBubble(t, fmt.Sprintf("%s, opened before: %v", what, opened), func(t *testing.T, m *simulation) {
				changeID := memory.AddReplicationID(m.Miniredis)
				armed := !opened
				gen := newGenerator(t, m.Client(around(func(cmd redis.Cmder, send func() error) error {
					if isOpen(cmd) && armed {
						armed = false
						switch what {
						case pause:
							time.Sleep(lockExpiry + time.Second)
						case restart:
							changeID()
						case loss:
							m.FlushAll()
						}
					}
					return send()
				})), serial.WithLocation(time.UTC), serial.WithLedger(new(serialtest.Ledger), 5))
				want := int64(6) // the first block is dropped
				if opened {
					require.NoError(t, errOf(gen.NextN(t.Context(), "IS", 5)))
					want, armed = 11, true
				} else if what == loss {
					want = 1 // everything is as it was found
				}
				if what == pause {
					require.Error(t, errOf(gen.Next(t.Context(), "IS")))
					time.Sleep(lockExpiry)
				}
				for seq := range int64(8) {
					requireSeq(t, want+seq)(gen.NextNumber(t.Context(), "IS"))
				}
			})
		}
	}
}

// A process crashes while it queries its ledger. Calls of other processes must wait until its lock expires, and must
// not be affected by a late installation of its block.
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
		other, cancelOther := context.WithTimeout(t.Context(), lockExpiry+4*time.Second)
		defer cancelOther()
		start := time.Now()
		requireResult(t, "IS200001010006")(gen.Next(other, "IS"))
		require.Less(t, time.Since(start), lockExpiry+time.Second)
		time.Sleep(2 * time.Minute)
		requireResult(t, "IS200001010007")(dead.Next(t.Context(), "IS"))
	})
}

// Calls for one type wait for its ledger. Calls for other types must be issued numbers.
// Guarantees: ledger-down.
func TestSlowLedger(t *testing.T) {
	inBubble(t, func(t *testing.T, m *simulation) {
		l := new(spyLedger)
		gen := newGenerator(t, m.Client(), serial.WithLocation(time.UTC), serial.WithLedger(l, 5))
		for _, typ := range []string{"SLOW", "OK"} {
			require.NoError(t, errOf(gen.NextN(t.Context(), typ, 5)))
		}
		l.before(func(r serial.Reservation) error {
			if strings.Contains(r.Series, "SLOW") {
				time.Sleep(3 * time.Second)
			}
			return nil
		})
		barrier(t, 40, func(i int) (string, error) {
			began, typ := time.Now(), []string{"SLOW", "OK"}[i%2]
			number, err := gen.Next(t.Context(), typ)
			require.True(t, typ == "SLOW" || time.Since(began) < 100*time.Millisecond)
			return number, err
		})
	})
}

// A Redis does not report its replication ID, and the generator has a ledger. The first call must fail, and its error
// must contain the cause.
func TestReplicationIDRefused(t *testing.T) {
	const says = "WithLedger needs INFO replication in scripts"
	m := miniredis.RunT(t) // has no such section
	rdb := closing(t, redis.NewClient(&redis.Options{Addr: m.Addr()}))
	gen := newGenerator(t, rdb, serial.WithLocation(noon()), serial.WithLedger(new(serialtest.Ledger), 10))
	require.ErrorContains(t, errOf(gen.Next(t.Context(), "IS")), says)
	require.ErrorContains(t, gen.Raise(t.Context(), "IS", 3), says)
	require.Empty(t, m.Keys())
}

// A client is connected to a writable replica, which has the same replication ID as its master. Calls must fail,
// because with a ledger, both servers would issue the same numbers.
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

// Another process is reserving a block. Each caller must wait until its own context ends or, without a deadline, for
// 30 s.
// Guarantees: lock-kept.
func TestWaitForAnothersBlock(t *testing.T) {
	inBubble(t, func(t *testing.T, m *simulation) {
		gen := newGenerator(t, m.Client(), serial.WithLocation(time.UTC), serial.WithLedger(new(serialtest.Ledger), 1))
		require.NoError(t, errOf(gen.Next(t.Context(), "IS")))
		const lock = "serial:{IS}:20000101:lock"
		require.NoError(t, m.Set(lock, "another"))
		m.SetTTL(lock, 40*time.Second)
		began := time.Now()
		barrier(t, 9, func(i int) (string, error) {
			ctx, limit := context.Background(), []time.Duration{0, time.Minute, 20 * time.Second}[i%3]
			if limit > 0 {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, limit)
				defer cancel()
			}
			_, err := gen.Next(ctx, "IS")
			took := time.Since(began)
			switch limit {
			case 0:
				require.ErrorContains(t, err, "other callers held the lock")
				require.NotErrorIs(t, err, context.DeadlineExceeded)
				require.InDelta(t, 30, took.Seconds(), 1)
			case time.Minute:
				require.NoError(t, err)
				require.InDelta(t, 40, took.Seconds(), 1)
			default:
				require.ErrorIs(t, err, context.DeadlineExceeded)
				require.Equal(t, limit, took)
			}
			return "", nil
		})
	})
}
