package serial_test

import (
	"context"
	"fmt"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/dailyserial/serial"
)

// A kind is a period with a template that suits it.
type kind struct {
	name string
	opts []serial.Option
}

func kindOf(name string, per serial.Period, date string, more ...serial.Option) kind {
	if date != "" {
		date = "{date:" + date + "}"
	}
	return kind{name, append([]serial.Option{serial.WithPeriod(per), serial.WithTemplate("{type}-" + date + "-{seq:4}")}, more...)}
}

var (
	weekly    = kindOf("weeks", serial.PerWeek, "GGGG-WW")
	quarterly = kindOf("quarters", serial.PerQuarter, "FFFF-Q")
	fiscal    = kindOf("business years", serial.PerYear, "FFFF-EE", serial.WithYearStart(time.April, 1))
	endless   = kindOf("never", serial.Never, "")
	monthly   = kindOf("months", serial.PerMonth, "yyyyMM")
	yearly    = kindOf("years", serial.PerYear, "yyyy")
	daily     = kindOf("days", serial.PerDay, "yyyyMMdd")
)

// requireExpiry requires that a key expires at an instant. It is read raw, since go-redis cannot hold the durations of Never.
// miniredis keeps durations itself, and none beyond 292 years.
func requireExpiry(t *testing.T, rdb redis.UniversalClient, key string, at time.Time) {
	t.Helper()
	expires, err := rdb.Do(t.Context(), "PEXPIRETIME", key).Int64()
	require.NoError(t, err)
	want, most := at.Unix(), time.Now().Unix()+math.MaxInt64/int64(time.Second)+1
	if want > most && expires/1000 <= most {
		want = most
	}
	require.InDelta(t, want, expires/1000, 2, key)
}

// testCalendars covers weeks, quarters, business years and Never, in the behaviour suite.
func testCalendars(t *testing.T, b backend) {
	for _, k := range []kind{weekly, quarterly, fiscal, endless} {
		b.run(t, k.name, func(t *testing.T, s *series) {
			gen := s.generator(k.opts...)
			label, start, end := gen.Scheme().Period(time.Now())
			counter := s.record + ":" + label
			next := func(want int64) {
				t.Helper()
				n, err := gen.NextNumber(t.Context(), "IS")
				require.NoError(t, err)
				require.Equal(t, want, n.Seq)
				require.Equal(t, start.Unix(), n.Start.Unix())
				parsed, err := gen.Parse(n.String())
				require.NoError(t, err)
				require.Equal(t, n, parsed)
			}
			next(1)
			next(2)
			require.Equal(t, "2", s.rdb.Get(t.Context(), counter).Val())
			requireExpiry(t, s.rdb, counter, end)
			requireExpiry(t, s.rdb, s.record, end.Add(7*24*time.Hour))

			got, err := textsOf(gen.NextN(t.Context(), "IS", 3))
			require.NoError(t, err)
			require.Len(t, got, 3)
			require.NoError(t, gen.Raise(t.Context(), "IS", 9))
			next(10)
			last, err := gen.Peek(t.Context(), "IS")
			require.NoError(t, err)
			require.EqualValues(t, 10, last.Seq)
			all, err := gen.History(t.Context(), "IS", 100)
			require.NoError(t, err)
			require.Equal(t, []serial.Number{last}, all)

			for _, other := range []kind{daily, monthly, yearly, weekly, quarterly, fiscal, endless} {
				if other.name == k.name {
					continue
				}
				foreign := s.generator(other.opts...)
				_, err := foreign.Next(t.Context(), "IS")
				require.ErrorIs(t, err, serial.ErrConflict, other.name)
				_, err = foreign.Peek(t.Context(), "IS")
				require.ErrorIs(t, err, serial.ErrConflict, other.name)
				require.ErrorIs(t, foreign.Raise(t.Context(), "IS", 3), serial.ErrConflict, other.name)
				require.ErrorIs(t, foreign.Prepare(t.Context(), "IS", 1), serial.ErrConflict, other.name)
				require.ErrorIs(t, foreign.Takeover(t.Context(), "IS", 3), serial.ErrConflict, other.name)
				_, err = foreign.History(t.Context(), "IS", 1)
				require.ErrorIs(t, err, serial.ErrConflict, other.name)
			}
			next(11)

			require.NoError(t, s.rdb.Del(t.Context(), counter).Err())
			_, err = gen.Next(t.Context(), "IS")
			require.ErrorIs(t, err, serial.ErrCounterLost)
			_, err = s.generator(k.opts...).Next(t.Context(), "IS")
			require.ErrorIs(t, err, serial.ErrCounterLost)
			require.NoError(t, gen.Raise(t.Context(), "IS", 20))
			next(21)
		})
	}
}

// testCalendarsInALedger is the same for testLedger's backends, which have a replication ID.
func testCalendarsInALedger(t *testing.T, b backend) {
	for _, k := range []kind{weekly, quarterly, fiscal, endless} {
		b.run(t, k.name, func(t *testing.T, s *series) {
			l := &notebook{}
			gen := s.generator(append(k.opts, serial.WithLedger(l, 5), fixedFloor(100))...)
			label, _, end := gen.Scheme().Period(time.Now())
			for i := range 7 {
				n, err := gen.NextNumber(t.Context(), "IS")
				require.NoError(t, err)
				require.EqualValues(t, 101+i, n.Seq)
			}
			want := []serial.Reservation{s.reservationOf(gen, label, 100, 5), s.reservationOf(gen, label, 105, 5)}
			require.Equal(t, want, l.reservations())
			requireExpiry(t, s.rdb, s.record+":"+label, end)
		})
	}
}

// Weeks, quarters and business years at their borders: entered without a lock where they are prepared, kept for History, and
// begun with the day.
func TestBordersOfCalendars(t *testing.T) {
	local := func(s string) time.Time {
		at, err := time.ParseInLocation("2006-01-02 15:04:05", s, location(t, "Europe/Berlin"))
		require.NoError(t, err)
		return at
	}
	for _, c := range []struct {
		kind
		borders []string // local time at which a period begins
		labels  []string // those and the one before
		texts   []string
	}{
		{weekly, []string{"2024-12-30 00:00:00", "2025-01-06 00:00:00", "2025-01-13 00:00:00"},
			[]string{"2024W52", "2025W01", "2025W02", "2025W03"}, []string{"2024-52", "2025-01", "2025-02", "2025-03"}},
		{kindOf("weeks from 04:00", serial.PerWeek, "GGWW", serial.WithDayStart(4*time.Hour)),
			[]string{"2026-12-28 04:00:00", "2027-01-04 04:00:00"},
			[]string{"2026W52", "2026W53", "2027W01"}, []string{"2652", "2653", "2701"}},
		{kindOf("quarters from April 6", serial.PerQuarter, "FFFF-Q", serial.WithYearStart(time.April, 6)),
			[]string{"2024-04-06 00:00:00", "2024-07-06 00:00:00", "2024-10-06 00:00:00", "2025-01-06 00:00:00", "2025-04-06 00:00:00"},
			[]string{"2023Q4", "2024Q1", "2024Q2", "2024Q3", "2024Q4", "2025Q1"},
			[]string{"2023-4", "2024-1", "2024-2", "2024-3", "2024-4", "2025-1"}},
		{fiscal, []string{"2024-04-01 00:00:00", "2025-04-01 00:00:00"},
			[]string{"2023", "2024", "2025"}, []string{"2023-24", "2024-25", "2025-26"}},
	} {
		for _, prepared := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, prepared %v", c.name, prepared), func(t *testing.T) {
				m := miniredis.RunT(t)
				locks := 0
				rdb := closing(t, redis.NewClient(&redis.Options{Addr: m.Addr()}))
				rdb.AddHook(hook(func(next redis.ProcessHook) redis.ProcessHook {
					return func(ctx context.Context, cmd redis.Cmder) error {
						if cmd.Name() == "set" {
							locks++
						}
						return next(ctx, cmd)
					}
				}))
				gen := newGenerator(t, rdb, append(c.opts, serial.WithLocation(location(t, "Europe/Berlin")), serial.WithMaxSkew(-1),
					serial.WithRetention(10))...)
				next := func(period, seq int) {
					t.Helper()
					n, err := gen.NextNumber(t.Context(), "IS")
					require.NoError(t, err)
					require.Equal(t, fmt.Sprintf("IS-%s-%04d", c.texts[period], seq), n.String())
				}
				m.SetTime(local(c.borders[0]).Add(-time.Second))
				if prepared {
					require.NoError(t, gen.Prepare(t.Context(), "IS", len(c.labels)))
				}
				next(0, 1)
				for i, border := range c.borders {
					m.SetTime(local(border).Add(-time.Second))
					next(i, 2)
					m.SetTime(local(border))
					next(i+1, 1)
					require.True(t, m.Exists("serial:{IS}:"+c.labels[i+1]))
				}
				if prepared {
					require.Equal(t, 1, locks, "of the period that Prepare was called in")
				}
				all, err := gen.History(t.Context(), "IS", len(c.labels))
				require.NoError(t, err)
				require.Len(t, all, len(c.labels))
				for i, n := range all {
					seq := 2
					if i == 0 {
						seq = 1
					}
					require.Equal(t, fmt.Sprintf("IS-%s-%04d", c.texts[len(all)-1-i], seq), n.String())
				}
				for field, value := range fields(t, rdb) {
					require.LessOrEqual(t, len(value), 64, "%s: %s is longer than Redis keeps compact", field, value)
				}
			})
		}
	}
}

func fields(t *testing.T, rdb redis.UniversalClient) map[string]string {
	t.Helper()
	all, err := rdb.HGetAll(t.Context(), "serial:{IS}").Result()
	require.NoError(t, err)
	return all
}

func TestNever(t *testing.T) {
	m := miniredis.RunT(t)
	rdb := closing(t, redis.NewClient(&redis.Options{Addr: m.Addr()}))
	opts := []serial.Option{serial.WithLocation(time.UTC), serial.WithMaxSkew(-1), serial.WithPeriod(serial.Never)}
	gen := newGenerator(t, rdb, append(opts, serial.WithTemplate("{type}{date:yyMMdd}{seq}"))...)
	for i, day := range []string{"2024-02-29", "2024-12-31", "2025-01-01", "2099-12-31"} {
		at, err := time.Parse(time.DateOnly, day)
		require.NoError(t, err)
		m.SetTime(at)
		number, err := gen.Next(t.Context(), "IS")
		require.NoError(t, err)
		require.Equal(t, fmt.Sprintf("IS%s%04d", at.Format("060102"), i+1), number)
	}
	all, err := gen.History(t.Context(), "IS", 10_000)
	require.NoError(t, err)
	require.Len(t, all, 1)
	require.EqualValues(t, 4, all[0].Seq)
	require.Zero(t, all[0].Date)
	require.Empty(t, all[0].String())

	m.SetTime(time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC))
	_, err = gen.Next(t.Context(), "IS")
	require.ErrorContains(t, err, "the year 2100 cannot be printed as yy")
	require.EqualError(t, gen.Prepare(t.Context(), "IS", 2), "serial: Prepare of 2 periods: allowed are 1 to 1")
	got, err := m.Get("serial:{IS}:all")
	require.NoError(t, err)
	require.Equal(t, "4", got)
}

// A type that is not used for 48 hours costs no memory, also where its period never ends; one that is used is remembered.
func TestNeverForgetsIdleTypes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := simulate(t)
		gen := newGenerator(t, m.client(), append(endless.opts, serial.WithLocation(time.UTC))...)
		next := func(typ string) {
			t.Helper()
			_, err := gen.Next(t.Context(), typ)
			require.NoError(t, err)
		}
		for i := range 500 {
			next(fmt.Sprint("T", i))
		}
		for range 20 {
			next("IS")
			time.Sleep(12 * time.Hour)
			require.GreaterOrEqual(t, gen.Remembered(), 1)
		}
		require.Equal(t, 1, gen.Remembered())
		require.NoError(t, m.Set("serial:{IS}:all", "3"))
		_, err := gen.Next(t.Context(), "IS")
		require.ErrorIs(t, err, serial.ErrCounterLost)
		next("T0")
		time.Sleep(47 * time.Hour)
		next("T1")
		require.NoError(t, m.Set("serial:{T0}:all", "1"))
		_, err = gen.Next(t.Context(), "T0")
		require.ErrorIs(t, err, serial.ErrCounterLost, "47 hours are remembered")
	})
}

// A type is remembered for 48 hours whenever others are used in between.
func TestNeverRemembersBesideOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := simulate(t)
		gen := newGenerator(t, m.client(), append(endless.opts, serial.WithLocation(time.UTC))...)
		for _, step := range []struct {
			typ  string
			wait time.Duration
		}{{"X", 23 * time.Hour}, {"IS", 2 * time.Hour}, {"X", 24 * time.Hour}, {"X", 20 * time.Hour}} {
			_, err := gen.NextN(t.Context(), step.typ, 2)
			require.NoError(t, err)
			time.Sleep(step.wait)
		}
		require.NoError(t, m.Set("serial:{IS}:all", "1"))
		_, err := gen.Next(t.Context(), "IS")
		require.ErrorIs(t, err, serial.ErrCounterLost, "46 hours are remembered")
	})
}
