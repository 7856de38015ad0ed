package serial_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/dailyserial/serial"
	"github.com/dailyserial/serial/serialtest"
)

// testPrepare covers periods that are opened ahead of time or kept after their end, in the behaviour suite.
func testPrepare(t *testing.T, b backend) {
	// day returns the label of the day n days after today.
	day := func(s *series, n int) string { return time.Now().In(s.loc).AddDate(0, 0, n).Format("20060102") }
	later := func(s *series, n int) string { return s.record + ":" + day(s, n) }

	b.run(t, "prepare", func(t *testing.T, s *series) {
		require.NoError(t, s.gen.Prepare(t.Context(), "IS"))
		midnight := func(n int) time.Time {
			y, m, d := time.Now().In(s.loc).Date()
			return time.Date(y, m, d+n, 0, 0, 0, 0, s.loc)
		}
		expires := func(key string) time.Time { return time.Now().Add(s.rdb.PTTL(t.Context(), key).Val()) }
		require.Equal(t, []string{s.record, s.counter}, s.keys(), "the lock is gone")
		for n := range 2 {
			require.Equal(t, "0", s.rdb.Get(t.Context(), later(s, n)).Val())
			require.WithinDuration(t, midnight(n+1), expires(later(s, n)), 2*time.Second)
			require.Zero(t, s.rdb.Exists(t.Context(), later(s, n)+":lock").Val())
		}
		requireSeq(t, 0)(s.gen.Peek(t.Context(), "IS"))
		s.next(s.gen, 1)
		require.NoError(t, s.generator().Prepare(t.Context(), "IS"))
		require.NoError(t, s.gen.Prepare(t.Context(), "IS"))
		s.next(s.gen, 2)
		require.NoError(t, s.gen.Raise(t.Context(), "IS", 7))
		require.Zero(t, s.rdb.Exists(t.Context(), later(s, 2)).Val())
		require.WithinDuration(t, midnight(2).Add(7*24*time.Hour), expires(s.record), 2*time.Second,
			"past the last one opened, and nothing shortens it")
	})

	b.run(t, "prepare refuses", func(t *testing.T, s *series) {
		require.ErrorIs(t, s.gen.Prepare(t.Context(), ""), serial.ErrInvalidType)
		require.Empty(t, s.keys())
		require.NoError(t, s.gen.Prepare(t.Context(), "IS"))
	})

	b.run(t, "a counter that was prepared and lost", func(t *testing.T, s *series) {
		require.NoError(t, s.gen.Prepare(t.Context(), "IS"))
		require.NoError(t, s.rdb.Del(t.Context(), later(s, 1)).Err())
		require.ErrorIs(t, s.gen.Prepare(t.Context(), "IS"), serial.ErrCounterLost)
		require.NoError(t, s.generator(fixedFloor(40)).Prepare(t.Context(), "IS"))
		require.Equal(t, "40", s.rdb.Get(t.Context(), later(s, 1)).Val())
		require.NoError(t, s.rdb.Del(t.Context(), later(s, 0)).Err())
		require.ErrorIs(t, s.generator().Prepare(t.Context(), "IS"), serial.ErrCounterLost)
		require.NoError(t, s.rdb.Set(t.Context(), later(s, 1), "five", time.Minute).Err())
		require.NoError(t, s.gen.Raise(t.Context(), "IS", 0))
		require.ErrorIs(t, s.gen.Prepare(t.Context(), "IS"), serial.ErrCounterLost,
			"a counter without a number is lost too")
	})

	b.run(t, "a counter unknown to the record", func(t *testing.T, s *series) {
		require.NoError(t, s.rdb.Set(t.Context(), later(s, 1), 17, 0).Err())
		require.NoError(t, s.gen.Prepare(t.Context(), "IS"))
		require.Equal(t, "17", s.rdb.Get(t.Context(), later(s, 1)).Val())
		require.Positive(t, s.rdb.PTTL(t.Context(), later(s, 1)).Val())
	})

	b.run(t, "prepare above the floor", func(t *testing.T, s *series) {
		asked := map[string]*atomic.Int64{day(s, 0): {}, day(s, 1): {}}
		floor := serial.WithFloor(func(_ context.Context, typ string, start time.Time) (int64, error) {
			if typ != "IS" || start.Location() != s.loc {
				return 0, errors.New(typ)
			}
			asked[start.Format("20060102")].Add(1)
			return int64(10 * start.Day()), nil
		})
		start := serial.WithStart(9000) // it does not count: numbers were used
		gens := []*serial.Generator{s.generator(floor, start), s.generator(floor, start)}
		barrier(t, 10, func(i int) (string, error) { return "", gens[i%2].Prepare(t.Context(), "IS") })
		for n := range 2 {
			start := time.Now().In(s.loc).AddDate(0, 0, n)
			require.Equal(t, fmt.Sprint(10*start.Day()), s.rdb.Get(t.Context(), later(s, n)).Val())
			require.EqualValues(t, 1, asked[day(s, n)].Load(), "one process asks for all")
		}
	})

	b.run(t, "prepare with a floor that fails", func(t *testing.T, s *series) {
		for _, answer := range []int64{-1, 10_000} {
			bad := s.generator(serial.WithFloor(func(_ context.Context, _ string, start time.Time) (int64, error) {
				if start.Format("20060102") == day(s, 1) {
					return answer, nil
				}
				return 0, nil
			}))
			require.ErrorContains(t, bad.Prepare(t.Context(), "IS"), "want 0 to 9999")
		}
		broken := s.generator(serial.WithFloor(func(context.Context, string, time.Time) (int64, error) { return 0, errBoom }))
		require.ErrorIs(t, broken.Prepare(t.Context(), "IS"), errBoom)
		require.Zero(t, s.rdb.Exists(t.Context(), later(s, 1)).Val())
		require.NoError(t, s.gen.Prepare(t.Context(), "IS"))
		require.NoError(t, broken.Prepare(t.Context(), "IS"), "the floor is not asked")
	})

	b.run(t, "prepare in another zone", func(t *testing.T, s *series) {
		require.NoError(t, s.gen.Prepare(t.Context(), "IS"))
		_, offset := time.Now().In(s.loc).Zone()
		other := s.generator(serial.WithLocation(time.FixedZone("other", offset+3600)))
		require.ErrorIs(t, other.Prepare(t.Context(), "IS"), serial.ErrConflict)
	})

	b.run(t, "prepare a full period", func(t *testing.T, s *series) {
		require.NoError(t, s.gen.Raise(t.Context(), "IS", 9999))
		require.NoError(t, s.gen.Prepare(t.Context(), "IS"))
		require.Equal(t, "9999", s.rdb.Get(t.Context(), s.counter).Val())
	})

	b.run(t, "prepare with a start", func(t *testing.T, s *series) {
		require.NoError(t, s.gen.Prepare(t.Context(), "IS"))
		require.Equal(t, "499", s.rdb.Get(t.Context(), later(s, 1)).Val())
		requireSeq(t, 0)(s.gen.Peek(t.Context(), "IS"))
		past, err := s.gen.History(t.Context(), "IS", 3)
		require.NoError(t, err)
		require.Len(t, past, 1)
		require.Zero(t, past[0].Seq)
		s.next(s.gen, 500)
	}, serial.WithStart(500))

	b.run(t, "the first number of a period", func(t *testing.T, s *series) {
		start := s.generator(serial.WithStart(9000))
		require.ErrorIs(t, errOf(start.NextN(t.Context(), "IS", 1001)), serial.ErrExhausted)
		requireResult(t, numbers("IS", s.day, 9000, 9999))(textsOf(start.NextN(t.Context(), "IS", 1000)))

		require.NoError(t, start.Raise(t.Context(), "UP", 3))
		requireResult(t, "UP"+s.day+"9000", "Raise opens as Next does")(start.Next(t.Context(), "UP"))
		low := s.generator(fixedFloor(20), serial.WithStart(8))
		requireResult(t, "FL"+s.day+"0021")(low.Next(t.Context(), "FL"))
		low = s.generator(fixedFloor(2), serial.WithStart(8))
		requireResult(t, "FM"+s.day+"0003", "the floor reports that 2 was used")(low.Next(t.Context(), "FM"))
	})

	b.run(t, "a start other than the period's", func(t *testing.T, s *series) {
		s.next(s.gen, 1)
		late := s.generator(serial.WithStart(9000))
		requireResult(t, numbers("IS", s.day, 2, 9999))(textsOf(late.NextN(t.Context(), "IS", 9998)))
	})

	b.run(t, "a counter is kept for the longest retention", func(t *testing.T, s *series) {
		long := s.generator(serial.WithRetention(30))
		require.NoError(t, long.Prepare(t.Context(), "IS"))
		kept := s.rdb.PTTL(t.Context(), later(s, 1)).Val()
		require.Greater(t, kept, 30*24*time.Hour)
		for range 3 {
			require.NoError(t, s.gen.Prepare(t.Context(), "IS"))
			require.NoError(t, s.gen.Raise(t.Context(), "IS", 0))
			require.InDelta(t, kept, s.rdb.PTTL(t.Context(), later(s, 1)).Val(), float64(time.Minute))
		}
		require.NoError(t, s.gen.Raise(t.Context(), "IS", 5))
		require.InDelta(t, kept-24*time.Hour, s.rdb.PTTL(t.Context(), later(s, 0)).Val(), float64(time.Minute))
	})

	b.run(t, "a counter beyond the template", func(t *testing.T, s *series) {
		narrow := s.generator(serial.WithTemplate("{type}{date:yyyyMMdd}{seq:3}"))
		require.NoError(t, s.gen.Raise(t.Context(), "IS", 5000))
		require.NoError(t, narrow.Prepare(t.Context(), "IS"))
		require.Equal(t, "5000", s.rdb.Get(t.Context(), s.counter).Val())
		require.ErrorIs(t, errOf(narrow.Next(t.Context(), "IS")), serial.ErrExhausted)
	})

	b.run(t, "history", func(t *testing.T, s *series) {
		for n, seq := range map[int]any{-1: 3, -2: "0", -4: 77, -5: "none", -6: 9} {
			require.NoError(t, s.rdb.Set(t.Context(), later(s, n), seq, time.Minute).Err())
		}
		got, err := s.gen.History(t.Context(), "IS", 6)
		require.NoError(t, err)
		require.Equal(t, "IS"+day(s, -1)+"0003", got[0].String())
		seqs := map[string]int64{}
		for i, n := range got {
			seqs[n.Start.Format("20060102")] = n.Seq
			require.True(t, i == 0 || n.Start.Before(got[i-1].Start), "newest first")
		}
		require.Equal(t, map[string]int64{day(s, -1): 3, day(s, -2): 0, day(s, -4): 77}, seqs)
		require.Empty(t, s.keys(), "it opens nothing")

		s.next(s.gen, 1)
		requireResult(t, numbers("IS", s.day, 1, 1))(textsOf(s.gen.History(t.Context(), "IS", 1)))
		require.NoError(t, s.rdb.Del(t.Context(), s.counter).Err())
		got, err = s.gen.History(t.Context(), "IS", 2500)
		require.NoError(t, err)
		require.Len(t, got, 4, "today's is lost")
		require.NoError(t, s.rdb.Set(t.Context(), s.counter, 0, time.Minute).Err())
		got, err = s.gen.History(t.Context(), "IS", 2500)
		require.NoError(t, err)
		require.Len(t, got, 4, "it was set back")
		for _, n := range []int{-1, 0, 10_001} {
			require.ErrorContains(t, errOf(s.gen.History(t.Context(), "IS", n)), "want 1 to 10000")
		}
		require.ErrorIs(t, errOf(s.gen.History(t.Context(), "", 1)), serial.ErrInvalidType)
		_, offset := time.Now().In(s.loc).Zone()
		_, err = s.generator(serial.WithLocation(time.FixedZone("other", offset+3600))).History(t.Context(), "IS", 1)
		require.ErrorIs(t, err, serial.ErrConflict)
	})

	b.run(t, "retention", func(t *testing.T, s *series) {
		s.next(s.gen, 1)
		y, mo, d := time.Now().In(s.loc).Date()
		expires := time.Now().Add(s.rdb.PTTL(t.Context(), s.counter).Val())
		require.WithinDuration(t, time.Date(y, mo, d+3, 0, 0, 0, 0, s.loc), expires, 2*time.Second)
		require.NoError(t, s.rdb.Persist(t.Context(), s.counter).Err())
		s.next(s.gen, 2)
		require.Greater(t, s.rdb.PTTL(t.Context(), s.counter).Val(), 2*24*time.Hour, "an expiry that was stripped comes back")
	}, serial.WithRetention(2))
}

// A prepared midnight costs one command and no lock; the ones after it were not prepared.
func TestPreparedMidnights(t *testing.T) {
	runBoth(t, "with a ledger", func(t *testing.T, m *simulation, ledger bool) {
		var sent, locks atomic.Int64
		rdb := m.Client(counting(&locks, "set"), counting(&sent, "eval", "evalsha"))
		opts := append(ledgerIf(ledger, 10), serial.WithLocation(time.UTC), serial.WithRetention(1))
		gen := newGenerator(t, rdb, opts...)
		require.NoError(t, gen.Prepare(t.Context(), "IS"))
		require.EqualValues(t, 1, locks.Load(), "of today")
		for day := range 6 {
			before := sent.Load()
			requireResult(t, time.Now().Format("IS20060102")+"0001")(gen.Next(t.Context(), "IS"))
			if day == 1 && !ledger {
				require.EqualValues(t, 1, locks.Load())
				require.EqualValues(t, 1, sent.Load()-before)
			}
			another := newGenerator(t, m.Client(), opts...)
			requireResult(t, time.Now().Format("IS20060102")+"0002")(another.Next(t.Context(), "IS"))
			m.requireExpiries()
			require.False(t, m.Exists(time.Now().AddDate(0, 0, -2).Format("serial:{IS}:20060102")), "by the calendar")
			time.Sleep(24 * time.Hour)
		}
		require.EqualValues(t, map[bool]int{false: 5, true: 6}[ledger], locks.Load(), "each block needs a lock")
		require.Empty(t, m.HGet("serial:{IS}", "ahead"))
	})
}

// A prepared counter that is missing when its day begins is lost, and an unprepared zone is a conflict until the
// prepared days are over.
// Guarantees: prepared-counter-lost.
func TestPreparedAndGone(t *testing.T) {
	inBubble(t, func(t *testing.T, m *simulation) {
		gen := newGenerator(t, m.Client(), serial.WithLocation(time.UTC))
		require.NoError(t, gen.Prepare(t.Context(), "IS"))
		m.Del("serial:{IS}:20000102")
		time.Sleep(24 * time.Hour)
		fresh := newGenerator(t, m.Client(), serial.WithLocation(time.UTC))
		require.ErrorIs(t, errOf(fresh.Next(t.Context(), "IS")), serial.ErrCounterLost)
		require.ErrorIs(t, errOf(fresh.Peek(t.Context(), "IS")), serial.ErrCounterLost)
		require.ErrorIs(t, fresh.Prepare(t.Context(), "IS"), serial.ErrCounterLost)
		require.NoError(t, fresh.Raise(t.Context(), "IS", 5))
		requireResult(t, "IS200001020006")(gen.Next(t.Context(), "IS"))

		east := newGenerator(t, m.Client(), serial.WithLocation(time.FixedZone("east", 3600)))
		require.NoError(t, gen.Prepare(t.Context(), "IS"))
		for range 24 {
			time.Sleep(time.Hour)
			require.ErrorIs(t, errOf(east.Next(t.Context(), "IS")), serial.ErrConflict, time.Now())
		}
		require.Equal(t, 3, time.Now().Day())
		require.NoError(t, errOf(gen.Next(t.Context(), "IS"))) // no other process enters the prepared one
		time.Sleep(2 * 24 * time.Hour)                         // its 4 January overlaps the prepared day
		requireResult(t, "IS200001050001")(east.Next(t.Context(), "IS"))
	})
}

// A takeover drops what was prepared, and nobody needs a number for weeks. The prepared counter still exists, so the
// record must too: without it, the counter's sequences would count as used.
func TestPreparedAndTakenOver(t *testing.T) {
	inBubble(t, func(t *testing.T, m *simulation) {
		opts := append(monthly.opts[:len(monthly.opts):len(monthly.opts)], serial.WithStart(9))
		gen := newGenerator(t, m.Client(), append(opts, serial.WithLocation(time.UTC))...)
		require.NoError(t, gen.Prepare(t.Context(), "IS"))
		east := newGenerator(t, m.Client(), append(opts, serial.WithLocation(time.FixedZone("east", 3600)))...)
		require.NoError(t, east.Takeover(t.Context(), "IS", 0))
		requireSeq(t, 9)(east.NextNumber(t.Context(), "IS"))
		require.Empty(t, m.HGet("serial:{IS}", "ahead"))
		time.Sleep(time.Until(time.Date(2000, 2, 20, 0, 0, 0, 0, time.UTC)))
		requireResult(t, "8")(m.Get("serial:{IS}:200002"))
		require.True(t, m.Exists("serial:{IS}"))
		requireSeq(t, 9)(east.NextNumber(t.Context(), "IS"))
	})
}

// Redis's clock goes back to before the prepared days, and forward again.
func TestPreparedAndSetBack(t *testing.T) {
	inBubble(t, func(t *testing.T, m *simulation) {
		m.ClockTTL(false) // its expiries are relative, and would come too early
		opts := []serial.Option{serial.WithLocation(time.UTC), serial.WithMaxSkew(-1)}
		gen := newGenerator(t, m.Client(), opts...)
		require.NoError(t, errOf(gen.Next(t.Context(), "IS")))
		start := time.Now()
		m.SetTime(start.AddDate(0, 0, 2))
		require.NoError(t, gen.Prepare(t.Context(), "IS")) // 3 and 4 January
		require.NoError(t, errOf(gen.Next(t.Context(), "IS")))
		m.SetTime(start)
		require.ErrorIs(t, errOf(gen.Next(t.Context(), "IS")), serial.ErrClockSkew)
		require.NoError(t, gen.Raise(t.Context(), "IS", 0))
		want := []string{"IS200001010002", "IS200001020001", "IS200001030002", "IS200001040001", "IS200001050001"}
		for day, number := range want {
			m.SetTime(start.AddDate(0, 0, day))
			requireResult(t, number)(newGenerator(t, m.Client(), opts...).Next(t.Context(), "IS"))
		}
	})
}

// Midnight comes at every command of Prepare in turn.
func TestPrepareAcrossMidnight(t *testing.T) {
	for _, floored := range []bool{false, true} {
		for at := int64(1); ; at++ {
			struck := false
			inBubble(t, func(t *testing.T, m *simulation) {
				time.Sleep(24*time.Hour - time.Second)
				var sent atomic.Int64
				var prepared atomic.Bool
				rdb := m.Client(around(func(cmd redis.Cmder, send func() error) error {
					if sent.Add(1) == at && !prepared.Load() {
						struck = true
						time.Sleep(1500 * time.Millisecond)
					}
					return send()
				}))
				opts := []serial.Option{serial.WithLocation(time.UTC)}
				if floored {
					opts = append(opts, fixedFloor(3))
				}
				gen := newGenerator(t, rdb, opts...)
				require.NoError(t, gen.Prepare(t.Context(), "IS"))
				prepared.Store(true)
				synctest.Wait() // for a lock that is just being released
				m.requireExpiries()
				first := 1
				if floored {
					first = 4
				}
				for time.Now().Day() < 5 {
					requireResult(t, fmt.Sprintf("IS%s%04d", time.Now().Format("20060102"), first))(gen.Next(t.Context(), "IS"))
					time.Sleep(24 * time.Hour)
				}
			})
			if !struck {
				require.Greater(t, at, int64(3))
				break
			}
		}
	}
}

// Prepare's caller leaves while the ledger is asked. The opening continues without that caller, who reads none of its
// data.
func TestPrepareWhoseCallerLeaves(t *testing.T) {
	inBubble(t, func(t *testing.T, m *simulation) {
		ledger := new(spyLedger)
		ledger.before(func(serial.Reservation) error {
			time.Sleep(2 * time.Second)
			return nil
		})
		gen := newGenerator(t, m.Client(), serial.WithLocation(time.UTC), serial.WithLedger(ledger, 10))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.ErrorIs(t, gen.Prepare(ctx, "IS"), context.DeadlineExceeded)
		time.Sleep(2 * time.Second)
		require.True(t, m.Exists("serial:{IS}:20000101"))
	})
}

// History lists the days that are still kept; retention follows the calendar.
func TestHistory(t *testing.T) {
	inBubble(t, func(t *testing.T, m *simulation) {
		gen := newGenerator(t, m.Client(), serial.WithLocation(time.UTC), serial.WithRetention(3))
		for day := 1; day <= 6; day++ {
			if day != 5 {
				require.NoError(t, errOf(gen.NextN(t.Context(), "IS", day)))
			}
			got, err := gen.History(t.Context(), "IS", 10)
			require.NoError(t, err)
			var want []string
			for past := day; past >= max(1, day-3); past-- {
				if past != 5 {
					want = append(want, fmt.Sprintf("IS200001%02d%04d", past, past))
				}
			}
			require.Equal(t, want, texts(got))
			time.Sleep(24 * time.Hour)
		}
		// A year of two digits cannot print periods that begin before 2000, so History stops there.
		short := newGenerator(t, m.Client(), serial.WithLocation(time.UTC), serial.WithTemplate("{type}{date:yyMMdd}{seq}"))
		require.NoError(t, errOf(short.History(t.Context(), "IS", 100)))
	})
}

// A wrong clock must not enter a prepared day: no number could be issued until that day comes.
// Guarantees: clock-ahead.
func TestPreparedAndWildClock(t *testing.T) {
	runBoth(t, "with a ledger", func(t *testing.T, m *simulation, ledger bool) {
		m.ClockTTL(false) // keys are needed again when the clock is right
		l := new(serialtest.Ledger)
		generator := func(opts ...serial.Option) *serial.Generator {
			if ledger {
				opts = append(opts, serial.WithLedger(l, 10))
			}
			return newGenerator(t, m.Client(), append(opts, serial.WithLocation(time.UTC))...)
		}
		gen := generator()
		require.NoError(t, gen.Prepare(t.Context(), "IS"))
		require.NoError(t, errOf(gen.Next(t.Context(), "IS")))
		m.SetTime(time.Now().AddDate(0, 0, 2))
		for _, gen := range []*serial.Generator{gen, generator()} {
			for range 2 {
				require.ErrorIs(t, errOf(gen.Next(t.Context(), "IS")), serial.ErrClockSkew)
				require.ErrorIs(t, gen.Raise(t.Context(), "IS", 1), serial.ErrClockSkew)
				require.ErrorIs(t, gen.Prepare(t.Context(), "IS"), serial.ErrClockSkew)
			}
		}
		m.SetTime(time.Time{})
		requireResult(t, "IS200001010002")(gen.Next(t.Context(), "IS"))
		m.SetTime(time.Now().AddDate(0, 0, 2))
		requireResult(t, "IS200001030001")(generator(serial.WithMaxSkew(-1)).Next(t.Context(), "IS"))
		requireResult(t, "IS200001030002", "it is entered now")(gen.Next(t.Context(), "IS"))
	})
}

// Prepare terminates even if a prepared counter is above the template's largest sequence.
func TestPreparedBeyondTheTemplate(t *testing.T) {
	runBoth(t, "with a ledger", func(t *testing.T, m *simulation, ledger bool) {
		opts := append(ledgerIf(ledger, 10), serial.WithLocation(time.UTC))
		wide := newGenerator(t, m.Client(), append(opts, serial.WithStart(5000))...)
		require.NoError(t, wide.Prepare(t.Context(), "IS"))
		time.Sleep(24 * time.Hour)
		var sent atomic.Int64
		narrow := newGenerator(t, m.Client(counting(&sent)),
			append(opts, serial.WithTemplate("{type}{date:yyyyMMdd}{seq:3}"))...)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		require.NoError(t, narrow.Prepare(ctx, "IS"))
		require.Less(t, sent.Load(), int64(40))
		require.ErrorIs(t, errOf(narrow.Next(t.Context(), "IS")), serial.ErrExhausted)
		requireResult(t, "4999", "nothing lowers a counter")(m.Get("serial:{IS}:20000102"))
		want := "IS200001025000"
		if ledger {
			want = "IS200001025001" // one was set aside in vain
		}
		requireResult(t, want)(wide.Next(t.Context(), "IS"))
	})
}

// This host's clock is ahead and reaches midnight during Prepare: only Redis's midnight counts.
func TestPrepareAtThisHostsMidnight(t *testing.T) {
	inBubble(t, func(t *testing.T, m *simulation) {
		m.ClockTTL(false)
		var sent atomic.Int64
		rdb := m.Client(counting(&sent), around(func(cmd redis.Cmder, send func() error) error {
			time.Sleep(time.Millisecond)
			m.SetTime(time.Now().Add(-30 * time.Second))
			return send()
		}))
		time.Sleep(12 * time.Hour)
		require.NoError(t, errOf(newGenerator(t, rdb, serial.WithLocation(time.UTC)).Next(t.Context(), "IS")))
		gen := newGenerator(t, rdb, serial.WithLocation(time.UTC))
		time.Sleep(time.Until(time.Now().Truncate(24 * time.Hour).Add(24*time.Hour - 500*time.Microsecond)))
		sent.Store(0)
		require.NoError(t, gen.Prepare(t.Context(), "IS"))
		require.Less(t, sent.Load(), int64(20))
		for day := range 2 {
			require.True(t, m.Exists(fmt.Sprintf("serial:{IS}:2000010%d", 1+day)))
		}
	})
}

// A process pauses between the floor's answer and its command while another learns of a higher floor: the higher one
// applies.
func TestPrepareAboveEveryFloor(t *testing.T) {
	inBubble(t, func(t *testing.T, m *simulation) {
		var stored atomic.Int64
		floor := func(hold func()) serial.Option {
			return serial.WithFloor(func(_ context.Context, _ string, start time.Time) (int64, error) {
				if start.Day() != 2 {
					return 0, nil
				}
				defer hold()
				return stored.Load(), nil
			})
		}
		goOn := make(chan struct{})
		var armed atomic.Bool
		stopped := around(func(cmd redis.Cmder, send func() error) error {
			if strings.HasPrefix(cmd.Name(), "eval") && armed.CompareAndSwap(true, false) {
				<-goOn
			}
			return send()
		})
		slow := newGenerator(t, m.Client(stopped), serial.WithLocation(time.UTC), floor(func() { armed.Store(true) }))
		quick := newGenerator(t, m.Client(), serial.WithLocation(time.UTC), floor(func() {
			close(goOn)
			time.Sleep(time.Second)
		}))
		var wg sync.WaitGroup
		wg.Go(func() { require.NoError(t, slow.Prepare(context.Background(), "IS")) })
		time.Sleep(9 * time.Second) // the lock expires
		stored.Store(7)
		require.NoError(t, quick.Prepare(t.Context(), "IS"))
		wg.Wait()
		requireResult(t, "7")(m.Get("serial:{IS}:20000102"))
	})
}

// The record and the lock are lost before any one command of Prepare, and another process may write a new record that
// contains only today. Prepare begins again.
func TestPrepareLosesTheRecord(t *testing.T) {
	for at, anew := int64(1), false; ; at++ {
		lost := false
		inBubble(t, func(t *testing.T, m *simulation) {
			var sent atomic.Int64
			rdb := m.Client(around(func(cmd redis.Cmder, send func() error) error {
				args := cmd.Args()
				unlock := len(args) > 3 && strings.HasSuffix(fmt.Sprint(args[3]), ":lock") // not essential
				if !unlock && sent.Add(1) == at {
					lost = true
					m.Del("serial:{IS}")
					m.Del("serial:{IS}:20000101:lock")
					if anew {
						other := newGenerator(t, m.Client(), serial.WithLocation(time.UTC))
						requireResult(t, "IS200001010001")(other.Next(context.Background(), "IS"))
					}
				}
				return send()
			}))
			gen := newGenerator(t, rdb, serial.WithLocation(time.UTC))
			require.NoError(t, gen.Prepare(t.Context(), "IS"))
			sent.Store(1000) // it may need fewer commands than at
			first := 1
			if anew && lost {
				first = 2
			}
			require.True(t, m.Exists("serial:{IS}:20000102"))
			m.requireExpiries()
			for range 5 {
				requireResult(t, fmt.Sprintf("IS%s%04d", time.Now().Format("20060102"), first))(gen.Next(t.Context(), "IS"))
				first = 1
				time.Sleep(24 * time.Hour)
			}
		})
		if !lost || at > 60 {
			require.Greater(t, at, int64(8))
			if anew {
				break
			}
			at, anew = 0, true
		}
	}
}

// With a wrong clock, no further day is opened, even if today is open.
func TestPrepareByAWrongClock(t *testing.T) {
	inBubble(t, func(t *testing.T, m *simulation) {
		m.ClockTTL(false) // its expiries are relative, and would come too early
		time.Sleep(12 * time.Hour)
		var sent atomic.Int64
		rdb := m.Client(counting(&sent))
		gen := newGenerator(t, rdb, serial.WithLocation(time.UTC))
		require.NoError(t, errOf(gen.Next(t.Context(), "IS")))
		m.SetTime(time.Now().Add(2 * time.Hour))
		require.ErrorIs(t, gen.Prepare(t.Context(), "IS"), serial.ErrClockSkew)
		require.False(t, m.Exists("serial:{IS}:20000102"))
		sent.Store(0)
		require.NoError(t, newGenerator(t, rdb, serial.WithLocation(time.UTC), serial.WithMaxSkew(-1)).
			Prepare(t.Context(), "IS"))
		require.EqualValues(t, 2, sent.Load(), "a round trip for each")
		require.True(t, m.Exists("serial:{IS}:20000102"))
		require.NoError(t, gen.Prepare(t.Context(), "IS"), "there is nothing to open")
		m.SetTime(time.Now().Add(24 * time.Hour))
		time.Sleep(24 * time.Hour)
		m.SetTime(time.Now())
		require.NoError(t, errOf(gen.Next(t.Context(), "IS")))
		sent.Store(0)
		require.NoError(t, gen.Prepare(t.Context(), "IS"))
		require.EqualValues(t, 3, sent.Load(), "and one more to compare the clocks")
	})
}

// Prepare of the shortest periods ends over a network. If that is so slow that the second is always over too soon, Prepare
// fails once its time for two periods has passed.
func TestPrepareSecondsOverANetwork(t *testing.T) {
	for _, delay := range []time.Duration{time.Millisecond, 50 * time.Millisecond, 200 * time.Millisecond} {
		inBubble(t, func(t *testing.T, m *simulation) {
			gen := newGenerator(t, m.Client(network(delay)), serial.WithLocation(time.UTC),
				serial.WithPeriod(serial.PerSecond), serial.WithTemplate("{type}{date:yyMMddHHmmss}{seq:4}"))
			for range 5 {
				begin := time.Now()
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				err := gen.Prepare(ctx, "IS")
				cancel()
				require.LessOrEqual(t, time.Since(begin), 2*inTime)
				if delay < 100*time.Millisecond {
					require.NoError(t, err)
					require.Less(t, time.Since(begin), 5*time.Second)
				}
				time.Sleep(1100 * time.Millisecond)
			}
		})
	}
}
