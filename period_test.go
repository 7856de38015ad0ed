package serial_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/dailyserial/serial"
)

// testPeriods covers periods other than a day, in the behaviour suite.
func testPeriods(t *testing.T, b backend) {
	for _, c := range []struct {
		period serial.Period
		layout string // as the template has it
		goes   string // as time.Format has it
	}{
		{serial.PerSecond, "yyyyMMddHHmmss", "20060102150405"},
		{serial.PerMinute, "yyyyMMddHHmm", "200601021504"},
		{serial.PerHour, "yyyyMMddHH", "2006010215"},
		{serial.PerMonth, "yyyyMM", "200601"},
		{serial.PerYear, "yyyy", "2006"},
	} {
		t.Run(c.period.String(), func(t *testing.T) {
			opts := []serial.Option{serial.WithPeriod(c.period), serial.WithTemplate("{type}{date:" + c.layout + "}{seq:4}")}
			s := b.series(t, opts...)
			gens := []*serial.Generator{s.gen, s.generator(opts...)}
			var mu sync.Mutex
			seen := map[string]bool{}
			last := ""
			for range 5 {
				for _, gen := range gens {
					before := time.Now()
					n, err := gen.NextNumber(t.Context(), "IS")
					require.NoError(t, err)
					after := time.Now()
					number := n.String()
					mu.Lock()
					require.False(t, seen[number])
					seen[number] = true
					mu.Unlock()
					require.Greater(t, number, last)
					last = number
					if c.period != serial.PerSecond { // which may be over between here and there
						require.Contains(t, []string{before.In(s.loc).Format(c.goes), after.In(s.loc).Format(c.goes)}, number[2:2+len(c.goes)])
					}
					parsed, err := gen.Parse(number)
					require.NoError(t, err)
					require.Equal(t, n, parsed)
				}
			}
			ttl := s.rdb.PTTL(t.Context(), s.record+":"+last[2:2+len(c.goes)]).Val()
			require.NotEqual(t, time.Duration(-1), ttl, "no key without an expiry")
			// This kind of period is in use now, so another is refused.
			if c.period != serial.PerSecond {
				_, err := s.generator().Next(t.Context(), "IS")
				require.ErrorIs(t, err, serial.ErrConflict)
			}
		})
	}
}

// The classic order number over a network of 400 ms: one sortable integer, strictly increasing, taken without a lock. Keys do
// not pile up.
func TestPerSecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := simulate(t)
		commands := map[string]int{}
		var mu sync.Mutex
		far := hook(func(next redis.ProcessHook) redis.ProcessHook {
			return func(ctx context.Context, cmd redis.Cmder) error {
				if cmd.Name() != "set" && !strings.HasPrefix(cmd.Name(), "eval") { // setting up a connection
					return next(ctx, cmd)
				}
				mu.Lock()
				commands[cmd.Name()]++
				mu.Unlock()
				time.Sleep(200 * time.Millisecond)
				err := next(ctx, cmd)
				time.Sleep(200 * time.Millisecond)
				return err
			}
		})
		gens := make([]*serial.Generator, 3)
		for i := range gens {
			gens[i] = newGenerator(t, m.client(far), serial.WithLocation(time.UTC), serial.WithPeriod(serial.PerSecond),
				serial.WithTemplate("{type}{date:yyMMddHHmmss}{seq:4}"))
		}
		type issued struct {
			number        int64
			before, after time.Time
		}
		var all []issued
		var wg sync.WaitGroup
		for i := range 12 {
			wg.Go(func() {
				for range 30 {
					before := time.Now()
					n, err := gens[i%3].NextNumber(t.Context(), "IS")
					require.NoError(t, err)
					number, err := n.Int64()
					require.NoError(t, err)
					mu.Lock()
					all = append(all, issued{number, before, time.Now()})
					mu.Unlock()
					require.LessOrEqual(t, time.Since(before), 4*time.Second)
					time.Sleep(time.Duration(i) * 37 * time.Millisecond)
				}
			})
		}
		wg.Wait()
		seen := map[int64]bool{}
		for _, a := range all {
			require.False(t, seen[a.number], "%d was issued twice", a.number)
			seen[a.number] = true
			require.LessOrEqual(t, a.before.Truncate(time.Second).Format("060102150405"), fmt.Sprintf("%012d", a.number/10_000))
			require.GreaterOrEqual(t, a.after.Format("060102150405"), fmt.Sprintf("%012d", a.number/10_000))
			for _, b := range all {
				if b.before.After(a.after) {
					require.Greater(t, b.number, a.number)
				}
			}
		}
		require.Zero(t, commands["set"], "there is no lock")
		require.LessOrEqual(t, len(m.Keys()), 3, "counters of seconds that are over are gone: %v", m.Keys())
		m.requireExpiries()
	})
}

// A business day begins at 04:00, also where 04:00 comes twice or not at all.
func TestDayStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := simulate(t)
		gen := newGenerator(t, m.client(), serial.WithLocation(time.UTC), serial.WithDayStart(4*time.Hour))
		var got []string
		for range 16 {
			number, err := gen.Next(t.Context(), "IS")
			require.NoError(t, err)
			got = append(got, number)
			time.Sleep(2 * time.Hour)
		}
		require.Equal(t, slices.Concat(numbers("IS", "19991231", 1, 2), numbers("IS", "20000101", 1, 12), numbers("IS", "20000102", 1, 2)), got)
	})
}

// After a period has ended, one of another zone or day start may follow, but no label is used twice.
func TestAnotherZone(t *testing.T) {
	days, hours := "yyyyMMdd", "yyyyMMddHH"
	east, west := time.FixedZone("+14", 14*3600), time.FixedZone("-12", -12*3600)
	four := serial.WithDayStart(4 * time.Hour)
	type step struct {
		at   string // UTC
		zone *time.Location
		want string // "" for ErrConflict
		opts []serial.Option
	}
	for name, test := range map[string]struct {
		per   serial.Period
		date  string
		steps []step
	}{
		"a day that another zone had": {serial.PerDay, days, []step{
			{"2021-01-02 09:00", east, "IS202101020001", nil},
			{"2021-01-02 12:00", west, "", nil},
			{"2021-01-03 11:59", west, "", nil},
			{"2021-01-03 12:00", west, "IS202101030001", nil},
			{"2021-01-03 12:00", east, "", nil},
		}},
		"an hour that another zone had": {serial.PerHour, hours, []step{
			{"2020-12-31 18:30", east, "IS20210101080001", nil},
			{"2021-01-01 20:30", west, "", nil},
			{"2021-01-01 21:00", west, "IS20210101090001", nil},
		}},
		"another day start": {serial.PerDay, days, []step{
			{"2021-10-24 12:00", time.UTC, "IS202110240001", nil},
			{"2021-10-25 03:59", time.UTC, "", []serial.Option{four}},
			{"2021-10-25 04:00", time.UTC, "IS202110250001", []serial.Option{four}},
			{"2021-10-26 03:59", time.UTC, "", nil},
			{"2021-10-27 00:00", time.UTC, "IS202110270001", nil},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			m := miniredis.RunT(t)
			rdb := closing(t, redis.NewClient(&redis.Options{Addr: m.Addr()}))
			for _, s := range test.steps {
				at, err := time.Parse("2006-01-02 15:04", s.at)
				require.NoError(t, err)
				m.SetTime(at)
				gen := newGenerator(t, rdb, append(s.opts, serial.WithLocation(s.zone), serial.WithPeriod(test.per),
					serial.WithTemplate("{type}{date:"+test.date+"}{seq}"), serial.WithMaxSkew(-1))...)
				number, err := gen.Next(t.Context(), "IS")
				if s.want == "" {
					require.ErrorIs(t, err, serial.ErrConflict, s.at)
					continue
				}
				require.NoError(t, err, s.at)
				require.Equal(t, s.want, number)
			}
		})
	}
}
