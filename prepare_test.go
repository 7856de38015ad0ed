package serial_test

import (
	"context"
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
	// later returns the key of the counter of the day n days after today.
	later := func(s *series, n int) string {
		return s.record + ":" + time.Now().In(s.loc).AddDate(0, 0, n).Format("20060102")
	}

	b.run(t, "prepare", func(t *testing.T, s *series) {
		require.NoError(t, s.gen.Prepare(t.Context(), "IS"))
		require.Equal(t, []string{s.record, s.counter}, s.keys(), "the lock is gone")
		requireResult(t, []any{"499", "499", nil, nil})(s.rdb.MGet(t.Context(), s.counter, later(s, 1), later(s, 2),
			later(s, 1)+":lock").Result())
		y, m, d := time.Now().In(s.loc).Date()
		requireExpiry(t, s.rdb, s.counter, time.Date(y, m, d+1, 0, 0, 0, 0, s.loc))
		requireExpiry(t, s.rdb, later(s, 1), time.Date(y, m, d+2, 0, 0, 0, 0, s.loc))
		requireExpiry(t, s.rdb, s.record, time.Date(y, m, d+9, 0, 0, 0, 0, s.loc)) // a week after the last one opened
		requireResult(t, []string{"IS" + s.day + "0000"})(textsOf(s.gen.History(t.Context(), "IS", 3)))
		s.gens = map[string]*serial.Generator{"other": s.generator()}
		s.play("peek 0; next 500; other.prepare; next 501")
		require.Zero(t, s.rdb.Exists(t.Context(), later(s, 2)).Val())
	}, serial.WithStart(500))

	b.run(t, "a counter unknown to the record, and a full period; then it is lost", func(t *testing.T, s *series) {
		s.gens = map[string]*serial.Generator{"long": s.generator(serial.WithRetention(30)),
			"floored": s.generator(fixedFloor(40))}
		s.play("set " + later(s, 1) + " 17; raise 9999; long.prepare")
		require.Equal(t, []any{"9999", "17"}, s.rdb.MGet(t.Context(), s.counter, later(s, 1)).Val())
		require.Greater(t, s.rdb.PTTL(t.Context(), later(s, 1)).Val(), 30*24*time.Hour)
		s.play("del " + later(s, 1) + "; prepare lost; set " + later(s, 1) + " five; prepare lost; floored.prepare")
		require.Equal(t, "40", s.rdb.Get(t.Context(), later(s, 1)).Val())
	})

	b.run(t, "prepare with a floor", func(t *testing.T, s *series) {
		var asked atomic.Int64
		tomorrow, wrong := int64(50), errBoom
		floor := serial.WithFloor(func(_ context.Context, _ string, start time.Time) (int64, error) {
			asked.Add(1)
			if start.Format("20060102") == s.day {
				return 40, nil
			}
			return tomorrow, wrong
		})
		start := serial.WithStart(9000) // it does not count: numbers were used
		gens := []*serial.Generator{s.generator(floor, start), s.generator(floor, start)}
		require.ErrorIs(t, gens[0].Prepare(t.Context(), "IS"), errBoom)
		tomorrow, wrong = 10_000, nil
		require.ErrorContains(t, gens[0].Prepare(t.Context(), "IS"), "want 0 to 9999")
		require.Zero(t, s.rdb.Exists(t.Context(), later(s, 1)).Val())
		tomorrow = 50
		asked.Store(0)
		s.play("del counter record")
		barrier(t, 10, func(i int) (string, error) { return "", gens[i%2].Prepare(t.Context(), "IS") })
		require.EqualValues(t, 2, asked.Load(), "one process queries for all, once for each day")
		require.Equal(t, []any{"40", "50"}, s.rdb.MGet(t.Context(), s.counter, later(s, 1)).Val())
	})

	b.run(t, "history", func(t *testing.T, s *series) {
		sequences := func(n int) (all []int64) { // TestHistory has the texts
			for _, number := range must(s.gen.History(t.Context(), "IS", n)) {
				all = append(all, number.Seq)
			}
			return all
		}
		for n, content := range map[int]any{-1: 3, -2: "0", -4: 77, -5: "none", -6: 9} {
			require.NoError(t, s.rdb.Set(t.Context(), later(s, n), content, time.Minute).Err())
		}
		require.Equal(t, []int64{3, 0, 77}, sequences(6))
		require.Empty(t, s.keys(), "it opens nothing")
		s.next(s.gen, 1)
		require.Equal(t, []int64{1}, sequences(1))
		for _, lost := range []string{"del counter", "set counter 0"} {
			s.play(lost)
			require.Equal(t, []int64{3, 0, 77, 9}, sequences(2500))
		}
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
		also := map[string]func(string){"sleep": func(d string) { time.Sleep(must(time.ParseDuration(d))) },
			"lose": func(day string) { m.Del("serial:{IS}:" + day) }}
		steps(t, gens, also, "gen prepare, lose 20000102, sleep 24h, new next = lost, new peek = lost, new prepare = lost, "+
			"new raise 5, gen next = IS200001020006, gen prepare"+strings.Repeat(", sleep 1h, east next = conflict", 24)+
			", gen next = IS200001030001, sleep 48h, east next = IS200001050001") // its 4 January overlaps the prepared day
	})
}

// Midnight passes at each command of Prepare or Raise in turn. Every key must have an expiry, and on the following days,
// numbers must be issued above the floors of these days.
func TestPrepareAcrossMidnight(t *testing.T) {
	floor := func(_ context.Context, _ string, start time.Time) (int64, error) {
		return map[bool]int64{true: 4000, false: 500}[start.Day() == 1], nil
	}
	for _, test := range []string{"prepare", "raise", "raise, opened"} {
		for at, struck := int64(1), true; struck; at++ {
			runInBubble(t, fmt.Sprint(test, ", command ", at), func(t *testing.T, m *simulation) {
				time.Sleep(24*time.Hour - time.Second)
				if strings.Contains(test, "opened") {
					require.NoError(t, errOf(newGenerator(t, m.Client(), serial.WithLocation(time.UTC)).Next(t.Context(), "IS")))
				}
				var sent atomic.Int64
				var called atomic.Bool
				gen := newGenerator(t, m.Client(around(func(_ redis.Cmder, send func() error) error {
					if sent.Add(1) == at && !called.Load() {
						time.Sleep(1500 * time.Millisecond)
					}
					return send()
				})), serial.WithLocation(time.UTC), serial.WithFloor(floor))
				if strings.Contains(test, "raise") {
					require.NoError(t, gen.Raise(t.Context(), "IS", 10))
				} else {
					require.NoError(t, gen.Prepare(t.Context(), "IS"))
				}
				called.Store(true)
				synctest.Wait() // for a lock that is just being released
				struck = sent.Load() >= at
				require.True(t, struck || at > 3)
				m.requireExpiries()
				time.Sleep(time.Until(time.Date(2000, 1, 2, 0, 0, 2, 0, time.UTC)))
				for time.Now().Day() < 5 {
					requireResult(t, fmt.Sprintf("IS%s%04d", today(time.UTC), 501))(gen.Next(t.Context(), "IS"))
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
			var want []string
			for past := day; past >= max(1, day-3); past-- {
				if past != 5 {
					want = append(want, fmt.Sprintf("IS200001%02d%04d", past, past))
				}
			}
			requireResult(t, want)(textsOf(gen.History(t.Context(), "IS", 10)))
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
	for _, ledger := range []bool{false, true} {
		name := fmt.Sprint("with a ledger: ", ledger)
		runInBubble(t, name, func(t *testing.T, m *simulation) { testWildClock(t, m, ledger) })
	}
}

func testWildClock(t *testing.T, m *simulation, ledger bool) {
	m.ClockTTL(false) // keys are needed again when the clock is right
	var sent atomic.Int64
	rdb, gens := m.Client(counting(&sent)), map[string]*serial.Generator{}
	opts := append(ledgerIf(ledger, 10), serial.WithLocation(time.UTC))
	for name, skew := range map[string]time.Duration{"gen": time.Hour, "other": time.Hour, "any": -1} {
		gens[name] = newGenerator(t, rdb, append(opts, serial.WithMaxSkew(skew))...)
	}
	also := map[string]func(string){
		"clock": func(ahead string) { m.SetTime(time.Now().Add(must(time.ParseDuration(ahead)))) },
		"nothing": func(key string) {
			synctest.Wait() // for a lock that is just being released
			require.NotContains(t, strings.Join(m.Keys(), " "), key)
		},
	}
	time.Sleep(12 * time.Hour)
	steps(t, gens, also, "clock 61m, gen next = skew, gen raise 1 = skew, gen takeover 1 = skew, gen prepare = skew, "+
		"clock -61m, gen next = skew, clock 0s, nothing serial, gen next = 1, clock 2h, gen next = 2, "+
		"gen prepare = skew, nothing 20000102")
	sent.Store(0)
	steps(t, gens, also, "any prepare")
	require.EqualValues(t, 2, sent.Load(), "a round trip for each period")
	steps(t, gens, also, "gen prepare, clock 24h, gen next = skew, other next = skew, other raise 1 = skew, "+
		"other prepare = skew, clock 0s, gen next = IS200001010003, clock 24h, any next = IS200001020001, "+
		"gen next = IS200001020002") // it has been entered
}
