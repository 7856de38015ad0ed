package serial_test

import (
	"context"
	"fmt"
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
		requireResult(t, []string{"IS" + s.day + "0000"})(textsOf(s.gen.History(t.Context(), "IS", 3)))
		s.next(s.gen, 500)
		require.NoError(t, s.generator().Prepare(t.Context(), "IS"))
		s.next(s.gen, 501)
		require.Zero(t, s.rdb.Exists(t.Context(), later(s, 2)).Val())
		require.WithinDuration(t, midnight(2).Add(7*24*time.Hour), expires(s.record), 2*time.Second,
			"a week after the last one opened")
	}, serial.WithStart(500))

	b.run(t, "a counter that was prepared and lost", func(t *testing.T, s *series) {
		s.steps(map[string]*serial.Generator{"gen": s.gen, "floored": s.generator(fixedFloor(40))},
			"gen prepare, redis DEL "+later(s, 1)+", gen prepare = lost, floored prepare")
		require.Equal(t, "40", s.rdb.Get(t.Context(), later(s, 1)).Val())
		require.NoError(t, s.rdb.Set(t.Context(), later(s, 1), "five", time.Minute).Err())
		require.ErrorIs(t, s.gen.Prepare(t.Context(), "IS"), serial.ErrCounterLost)
	})

	b.run(t, "a counter unknown to the record, and a full period", func(t *testing.T, s *series) {
		s.steps(map[string]*serial.Generator{"gen": s.gen, "long": s.generator(serial.WithRetention(30))},
			"redis SET "+later(s, 1)+" 17, gen raise 9999, long prepare")
		require.Equal(t, []any{"9999", "17"}, s.rdb.MGet(t.Context(), s.counter, later(s, 1)).Val())
		require.Greater(t, s.rdb.PTTL(t.Context(), later(s, 1)).Val(), 30*24*time.Hour)
	})

	b.run(t, "prepare above the floor", func(t *testing.T, s *series) {
		var asked atomic.Int64
		floor := serial.WithFloor(func(_ context.Context, typ string, start time.Time) (int64, error) {
			asked.Add(1)
			return int64(10 * start.Day()), nil
		})
		start := serial.WithStart(9000) // it does not count: numbers were used
		gens := []*serial.Generator{s.generator(floor, start), s.generator(floor, start)}
		barrier(t, 10, func(i int) (string, error) { return "", gens[i%2].Prepare(t.Context(), "IS") })
		for n := range 2 {
			start := time.Now().In(s.loc).AddDate(0, 0, n)
			require.Equal(t, fmt.Sprint(10*start.Day()), s.rdb.Get(t.Context(), later(s, n)).Val())
		}
		require.EqualValues(t, 2, asked.Load(), "one process queries for all, once for each day")
	})

	b.run(t, "prepare with a floor that fails", func(t *testing.T, s *series) {
		for says, answer := range map[string]error{"boom": errBoom, "want 0 to 9999": nil} {
			bad := s.generator(serial.WithFloor(func(_ context.Context, _ string, start time.Time) (int64, error) {
				if start.Format("20060102") == s.day {
					return 0, nil
				}
				return 10_000, answer
			}))
			require.ErrorContains(t, bad.Prepare(t.Context(), "IS"), says)
			require.Zero(t, s.rdb.Exists(t.Context(), later(s, 1)).Val())
		}
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

// The next day was prepared, and its counter is missing when the day begins. It must be reported as lost. A generator
// with another zone must fail with ErrConflict until the prepared days have ended.
// Guarantees: prepared-counter-lost.
func TestPreparedAndGone(t *testing.T) {
	inBubble(t, func(t *testing.T, m *simulation) {
		gens := map[string]*serial.Generator{}
		for name, zone := range map[string]*time.Location{"gen": time.UTC, "new": time.UTC,
			"east": time.FixedZone("east", 3600)} {
			gens[name] = newGenerator(t, m.Client(), serial.WithLocation(zone))
		}
		also := map[string]func(string){"hours": func(hours string) {
			pause, err := time.ParseDuration(hours + "h")
			require.NoError(t, err)
			time.Sleep(pause)
		}, "lose": func(day string) { m.Del("serial:{IS}:" + day) }}
		steps(t, gens, also, "gen prepare, lose 20000102, hours 24, new next = lost, new peek = lost, new prepare = lost, "+
			"new raise 5, gen next = IS200001020006, gen prepare")
		for range 24 {
			steps(t, gens, also, "hours 1, east next = conflict")
		}
		// East's 4 January overlaps the prepared day.
		steps(t, gens, also, "gen next = IS200001030001, hours 48, east next = IS200001050001")
	})
}

// Midnight passes at each command of Prepare in turn. Every key must have an expiry, and numbers must be issued on the
// following days.
func TestPrepareAcrossMidnight(t *testing.T) {
	for _, floor := range []int64{0, 3} {
		for at, struck := int64(1), true; struck; at++ {
			inBubble(t, func(t *testing.T, m *simulation) {
				time.Sleep(24*time.Hour - time.Second)
				var sent atomic.Int64
				opts := options(serial.WithLocation(time.UTC))
				if floor > 0 {
					opts = append(opts, fixedFloor(floor))
				}
				var prepared atomic.Bool
				gen := newGenerator(t, m.Client(around(func(_ redis.Cmder, send func() error) error {
					if sent.Add(1) == at && !prepared.Load() {
						time.Sleep(1500 * time.Millisecond)
					}
					return send()
				})), opts...)
				require.NoError(t, gen.Prepare(t.Context(), "IS"))
				prepared.Store(true)
				synctest.Wait() // for a lock that is just being released
				struck = sent.Load() >= at
				require.True(t, struck || at > 3)
				m.requireExpiries()
				for time.Now().Day() < 5 {
					requireResult(t, fmt.Sprintf("IS%s%04d", time.Now().Format("20060102"), floor+1))(gen.Next(t.Context(), "IS"))
					time.Sleep(24 * time.Hour)
				}
			})
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
		require.NoError(t, errOf(newGenerator(t, m.Client()).Next(t.Context(), "OTHER"))) // the server knows the scripts
		const delay = 3 * time.Second
		gen := newGenerator(t, m.Client(slowing("take", delay), slowing("open", delay)), serial.WithLocation(time.UTC))
		began := time.Now()
		require.NoError(t, gen.Prepare(t.Context(), "IS"))
		require.Greater(t, time.Since(began), inTime)
	})
}

// The clock of Redis is wrong by more than WithMaxSkew. No period must be opened, and no prepared day must be entered,
// because then no number could be issued until that day. The current period must be usable with every clock.
// Guarantees: clock-ahead.
func TestWildClock(t *testing.T) {
	runBoth(t, "with a ledger", func(t *testing.T, m *simulation, ledger bool) {
		m.ClockTTL(false) // keys are needed again when the clock is right
		var sent atomic.Int64
		rdb, gens := m.Client(counting(&sent)), map[string]*serial.Generator{}
		opts := append(ledgerIf(ledger, 10), serial.WithLocation(time.UTC))
		for name, skew := range map[string]time.Duration{"gen": time.Hour, "other": time.Hour, "any": -1} {
			gens[name] = newGenerator(t, rdb, append(opts, serial.WithMaxSkew(skew))...)
		}
		also := map[string]func(string){"clock": func(ahead string) {
			offset, err := time.ParseDuration(ahead)
			require.NoError(t, err)
			m.SetTime(time.Now().Add(offset))
		}}
		time.Sleep(12 * time.Hour)
		steps(t, gens, also, "clock 61m, gen next = skew, gen raise 1 = skew, gen takeover 1 = skew, gen prepare = skew, "+
			"clock -61m, gen next = skew, clock 0s")
		synctest.Wait() // for a lock that is just being released
		require.Empty(t, m.Keys())
		steps(t, gens, also, "gen next = 1, clock 2h, gen next = 2, gen prepare = skew")
		require.False(t, m.Exists("serial:{IS}:20000102"))
		sent.Store(0)
		steps(t, gens, also, "any prepare")
		require.EqualValues(t, 2, sent.Load(), "a round trip for each period")
		steps(t, gens, also, "gen prepare, clock 24h, gen next = skew, other next = skew, other raise 1 = skew, "+
			"other prepare = skew, clock 0s, gen next = IS200001010003, clock 24h, any next = IS200001020001, "+
			"gen next = IS200001020002") // it has been entered
	})
}
