package serial_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/dailyserial/serial"
)

// testPrepare is the part of the behaviour suite for periods that are opened in advance, or kept after their end.
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
			require.Equal(t, "499", s.rdb.Get(t.Context(), later(s, n)).Val())
			require.WithinDuration(t, midnight(n+1), expires(later(s, n)), 2*time.Second)
			require.Zero(t, s.rdb.Exists(t.Context(), later(s, n)+":lock").Val())
		}
		requireSeq(t, 0)(s.gen.Peek(t.Context(), "IS"))
		past, err := s.gen.History(t.Context(), "IS", 3)
		require.NoError(t, err)
		require.Len(t, past, 1)
		require.Zero(t, past[0].Seq)
		s.next(s.gen, 500)
		require.NoError(t, s.generator().Prepare(t.Context(), "IS"))
		s.next(s.gen, 501)
		require.Zero(t, s.rdb.Exists(t.Context(), later(s, 2)).Val())
		require.WithinDuration(t, midnight(2).Add(7*24*time.Hour), expires(s.record), 2*time.Second,
			"a week after the last one opened")
		_, offset := time.Now().In(s.loc).Zone()
		other := s.generator(serial.WithLocation(time.FixedZone("other", offset+3600)))
		require.ErrorIs(t, other.Prepare(t.Context(), "IS"), serial.ErrConflict)
	}, serial.WithStart(500))

	b.run(t, "a counter that was prepared and lost", func(t *testing.T, s *series) {
		require.NoError(t, s.gen.Prepare(t.Context(), "IS"))
		require.NoError(t, s.rdb.Del(t.Context(), later(s, 1)).Err())
		require.ErrorIs(t, s.gen.Prepare(t.Context(), "IS"), serial.ErrCounterLost)
		require.NoError(t, s.generator(fixedFloor(40)).Prepare(t.Context(), "IS"))
		require.Equal(t, "40", s.rdb.Get(t.Context(), later(s, 1)).Val())
		require.NoError(t, s.rdb.Set(t.Context(), later(s, 1), "five", time.Minute).Err())
		require.ErrorIs(t, s.gen.Prepare(t.Context(), "IS"), serial.ErrCounterLost)
		require.NoError(t, s.rdb.Del(t.Context(), later(s, 0)).Err())
		require.ErrorIs(t, s.generator().Prepare(t.Context(), "IS"), serial.ErrCounterLost)
	})

	b.run(t, "a counter unknown to the record, and a full period", func(t *testing.T, s *series) {
		require.NoError(t, s.rdb.Set(t.Context(), later(s, 1), 17, 0).Err())
		require.NoError(t, s.gen.Raise(t.Context(), "IS", 9999))
		require.NoError(t, s.gen.Prepare(t.Context(), "IS"))
		require.Equal(t, "9999", s.rdb.Get(t.Context(), s.counter).Val())
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
			require.EqualValues(t, 1, asked[day(s, n)].Load(), "one process queries for all")
		}
	})

	b.run(t, "prepare with a floor that fails", func(t *testing.T, s *series) {
		for says, answer := range map[string]func() (int64, error){
			"boom":           func() (int64, error) { return 0, errBoom },
			"want 0 to 9999": func() (int64, error) { return 10_000, nil },
		} {
			bad := s.generator(serial.WithFloor(func(_ context.Context, _ string, start time.Time) (int64, error) {
				if start.Format("20060102") == day(s, 1) {
					return answer()
				}
				return 0, nil
			}))
			require.ErrorContains(t, bad.Prepare(t.Context(), "IS"), says)
			require.Zero(t, s.rdb.Exists(t.Context(), later(s, 1)).Val())
		}
	})

	b.run(t, "a counter is kept for the longest retention", func(t *testing.T, s *series) {
		long := s.generator(serial.WithRetention(30))
		require.NoError(t, long.Prepare(t.Context(), "IS"))
		kept := s.rdb.PTTL(t.Context(), later(s, 1)).Val()
		require.Greater(t, kept, 30*24*time.Hour)
		require.NoError(t, s.gen.Prepare(t.Context(), "IS"))
		require.NoError(t, s.gen.Raise(t.Context(), "IS", 5))
		for n := range 2 {
			want := kept - time.Duration(1-n)*24*time.Hour
			require.InDelta(t, want, s.rdb.PTTL(t.Context(), later(s, n)).Val(), float64(time.Minute))
		}
		require.NoError(t, s.rdb.Persist(t.Context(), s.counter).Err())
		s.next(long, 6)
		require.Greater(t, s.rdb.PTTL(t.Context(), s.counter).Val(), 30*24*time.Hour, "a removed expiry comes back")
	})

	b.run(t, "history", func(t *testing.T, s *series) {
		for n, content := range map[int]any{-1: 3, -2: "0", -4: 77, -5: "none", -6: 9} {
			require.NoError(t, s.rdb.Set(t.Context(), later(s, n), content, time.Minute).Err())
		}
		want := []string{fmt.Sprintf("IS%s0003", day(s, -1)), fmt.Sprintf("IS%s0000", day(s, -2)),
			fmt.Sprintf("IS%s0077", day(s, -4))}
		requireResult(t, want)(textsOf(s.gen.History(t.Context(), "IS", 6)))
		require.Empty(t, s.keys(), "it opens nothing")
		s.next(s.gen, 1)
		requireResult(t, numbers("IS", s.day, 1, 1))(textsOf(s.gen.History(t.Context(), "IS", 1)))
		require.NoError(t, s.rdb.Del(t.Context(), s.counter).Err())
		want = append(want, fmt.Sprintf("IS%s0009", day(s, -6)))
		requireResult(t, want, "today's is lost")(textsOf(s.gen.History(t.Context(), "IS", 2500)))
		require.NoError(t, s.rdb.Set(t.Context(), s.counter, 0, time.Minute).Err())
		requireResult(t, want, "it was set back")(textsOf(s.gen.History(t.Context(), "IS", 2500)))
		_, offset := time.Now().In(s.loc).Zone()
		other := s.generator(serial.WithLocation(time.FixedZone("other", offset+3600)))
		require.ErrorIs(t, errOf(other.History(t.Context(), "IS", 1)), serial.ErrConflict)
	})
}

// The next day was prepared. The first call after midnight must take one command and no lock. Later days are not
// prepared, so they must be opened under the lock.
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

// A prepared counter is missing when its day begins. It must be reported as lost. A generator with another zone must
// fail with ErrConflict until the prepared days have ended.
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

// Midnight passes at each command of Prepare in turn. Every key must have an expiry, and numbers must be issued on the
// following days.
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

// History must list the days that are still kept, and retention must be counted in calendar days.
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

// Prepare opens two periods. Each of them must have the full time of a call.
func TestPrepareWhereRedisIsSlow(t *testing.T) {
	inBubble(t, func(t *testing.T, m *simulation) {
		slow := false
		gen := newGenerator(t, m.Client(around(func(cmd redis.Cmder, send func() error) error {
			if slow && strings.HasPrefix(cmd.Name(), "eval") {
				time.Sleep(3 * time.Second)
			}
			return send()
		})), serial.WithLocation(time.UTC))
		require.NoError(t, errOf(gen.Next(t.Context(), "OTHER"))) // the server knows the scripts
		slow = true
		began := time.Now()
		require.NoError(t, gen.Prepare(t.Context(), "IS"))
		require.Greater(t, time.Since(began), inTime)
	})
}

// The clock of Redis is wrong by more than WithMaxSkew. No further day must be opened even if today is open, and no
// prepared day must be entered, because then no number could be issued until that day.
// Guarantees: clock-ahead.
func TestPreparedAndWildClock(t *testing.T) {
	runBoth(t, "with a ledger", func(t *testing.T, m *simulation, ledger bool) {
		m.ClockTTL(false) // keys are needed again when the clock is right
		var sent atomic.Int64
		rdb, usual := m.Client(counting(&sent)), append(ledgerIf(ledger, 10), serial.WithLocation(time.UTC))
		generator := func(opts ...serial.Option) *serial.Generator {
			return newGenerator(t, rdb, append(opts, usual...)...)
		}
		gen := generator()
		time.Sleep(12 * time.Hour)
		require.NoError(t, errOf(gen.Next(t.Context(), "IS")))
		m.SetTime(time.Now().Add(2 * time.Hour))
		require.ErrorIs(t, gen.Prepare(t.Context(), "IS"), serial.ErrClockSkew)
		require.False(t, m.Exists("serial:{IS}:20000102"))
		sent.Store(0)
		require.NoError(t, generator(serial.WithMaxSkew(-1)).Prepare(t.Context(), "IS"))
		require.EqualValues(t, 2, sent.Load(), "a round trip for each period")
		require.NoError(t, gen.Prepare(t.Context(), "IS"), "there is nothing to open")

		m.SetTime(time.Now().AddDate(0, 0, 1))
		for _, gen := range []*serial.Generator{gen, generator()} {
			require.ErrorIs(t, errOf(gen.Next(t.Context(), "IS")), serial.ErrClockSkew)
			require.ErrorIs(t, gen.Raise(t.Context(), "IS", 1), serial.ErrClockSkew)
			require.ErrorIs(t, gen.Prepare(t.Context(), "IS"), serial.ErrClockSkew)
		}
		m.SetTime(time.Now())
		requireResult(t, "IS200001010002")(gen.Next(t.Context(), "IS"))
		m.SetTime(time.Now().AddDate(0, 0, 1))
		requireResult(t, "IS200001020001")(generator(serial.WithMaxSkew(-1)).Next(t.Context(), "IS"))
		requireResult(t, "IS200001020002", "it is entered now")(gen.Next(t.Context(), "IS"))
	})
}
