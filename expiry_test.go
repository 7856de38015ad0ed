package serial_test

import (
	"context"
	"errors"
	"fmt"
	"math"
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

// A kind is a period length with a matching template.
type kind struct {
	name string
	opts []serial.Option
}

func kindOf(name string, per serial.Period, date string, more ...serial.Option) kind {
	if date != "" {
		date = "{date:" + date + "}"
	}
	return kind{name, append([]serial.Option{serial.WithPeriod(per), serial.WithTemplate("{type}-" + date + "-{seq:4}")},
		more...)}
}

var (
	weekly    = kindOf("weeks", serial.PerWeek, "GGGG-WW")
	quarterly = kindOf("quarters", serial.PerQuarter, "FFFF-Q")
	halfYears = kindOf("half-years", serial.PerHalfYear, "FFFF-'H'S")
	fiscal    = kindOf("business years", serial.PerYear, "FFFF-EE", serial.WithYearStart(time.April, 1))
	endless   = kindOf("never", serial.Never, "")
	monthly   = kindOf("months", serial.PerMonth, "yyyyMM")
	yearly    = kindOf("years", serial.PerYear, "yyyy")
	daily     = kindOf("days", serial.PerDay, "yyyyMMdd")
)

// testPeriods is the part of the behaviour suite for short periods.
func testPeriods(t *testing.T, b backend) {
	for _, c := range []struct {
		period serial.Period
		layout string // in the template
		goes   string // in time.Format
	}{
		{serial.PerSecond, "yyyyMMddHHmmss", "20060102150405"},
		{serial.PerMinute, "yyyyMMddHHmm", "200601021504"},
		{serial.PerHour, "yyyyMMddHH", "2006010215"},
	} {
		t.Run(c.period.String(), func(t *testing.T) {
			opts := []serial.Option{serial.WithPeriod(c.period), serial.WithTemplate("{type}{date:" + c.layout + "}{seq:4}")}
			s := b.series(t, opts...)
			last := ""
			for _, gen := range []*serial.Generator{s.gen, s.generator(opts...), s.gen} {
				before := time.Now().In(s.loc)
				n, err := gen.NextNumber(t.Context(), "IS")
				require.NoError(t, err)
				require.Greater(t, n.String(), last)
				last = n.String()
				if c.period != serial.PerSecond { // may be over by now
					require.Contains(t, []string{before.Format(c.goes), time.Now().In(s.loc).Format(c.goes)}, last[2:2+len(c.goes)])
				}
				requireResult(t, n)(gen.Parse(last))
			}
			ttl := s.rdb.PTTL(t.Context(), s.record+":"+last[2:2+len(c.goes)]).Val()
			require.NotEqual(t, time.Duration(-1), ttl, "no key without an expiry")
			if c.period != serial.PerSecond {
				require.ErrorIs(t, errOf(s.generator().Next(t.Context(), "IS")), serial.ErrConflict)
			}
		})
	}
}

// requireExpiry requires that a key expires at an instant. It reads the raw reply, because go-redis cannot represent
// the durations of Never. miniredis stores durations, so it does not support more than 292 years.
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

// testCalendars is the part of the behaviour suite for weeks, quarters, half-years, business years and Never.
func testCalendars(t *testing.T, b backend) {
	for _, k := range []kind{weekly, quarterly, halfYears, fiscal, endless} {
		b.run(t, k.name, func(t *testing.T, s *series) {
			gen := s.generator(k.opts...)
			label, start, end := gen.Scheme().Period(serial.At(time.Now()))
			counter := s.record + ":" + label
			next := func(want int64) {
				t.Helper()
				n, err := gen.NextNumber(t.Context(), "IS")
				require.NoError(t, err)
				require.Equal(t, []int64{want, start.Unix()}, []int64{n.Seq, n.Start.Unix()})
				requireResult(t, n)(gen.Parse(n.String()))
			}
			next(1)
			next(2)
			require.Equal(t, "2", s.rdb.Get(t.Context(), counter).Val())
			requireExpiry(t, s.rdb, counter, end)
			requireExpiry(t, s.rdb, s.record, end.Add(7*24*time.Hour))
			require.NoError(t, gen.Raise(t.Context(), "IS", 9))
			next(10)
			last, err := gen.Peek(t.Context(), "IS")
			require.NoError(t, err)
			require.EqualValues(t, 10, last.Seq)
			requireResult(t, []serial.Number{last})(gen.History(t.Context(), "IS", 100))

			for _, other := range []kind{daily, monthly, yearly, weekly, quarterly, halfYears, fiscal, endless} {
				if other.name == k.name {
					continue
				}
				foreign := s.generator(other.opts...)
				for _, err := range []error{errOf(foreign.Next(t.Context(), "IS")), errOf(foreign.Peek(t.Context(), "IS")),
					foreign.Raise(t.Context(), "IS", 3), foreign.Prepare(t.Context(), "IS"),
					foreign.Takeover(t.Context(), "IS", 3), errOf(foreign.History(t.Context(), "IS", 1))} {
					require.ErrorIs(t, err, serial.ErrConflict, other.name)
				}
			}
			require.NoError(t, s.rdb.Del(t.Context(), counter).Err())
			require.ErrorIs(t, errOf(s.generator(k.opts...).Next(t.Context(), "IS")), serial.ErrCounterLost)
			require.NoError(t, gen.Raise(t.Context(), "IS", 20))
			next(21)
		})
	}
}

// testCalendarsInALedger is testCalendars with a ledger, for the backends of testLedger, which have a replication ID.
func testCalendarsInALedger(t *testing.T, b backend) {
	for _, k := range []kind{weekly, quarterly, halfYears, fiscal, endless} {
		b.run(t, k.name, func(t *testing.T, s *series) {
			l := new(spyLedger)
			gen := s.generator(append(k.opts, serial.WithLedger(l, 5), fixedFloor(100))...)
			label, _, end := gen.Scheme().Period(serial.At(time.Now()))
			for i := range 7 {
				requireSeq(t, int64(101+i))(gen.NextNumber(t.Context(), "IS"))
			}
			want := []serial.Reservation{s.reservationOf(gen, label, 100, 5), s.reservationOf(gen, label, 105, 5)}
			require.Equal(t, want, l.reservations())
			requireExpiry(t, s.rdb, s.record+":"+label, end)
		})
	}
}

// Callers issue integers that contain the second, over a network with a delay of 400 ms. The integers must be strictly
// increasing, no lock must be taken, and old keys must expire.
func TestPerSecond(t *testing.T) {
	inBubble(t, func(t *testing.T, m *simulation) {
		var locks atomic.Int64
		var mu sync.Mutex
		gens := make([]*serial.Generator, 3)
		for i := range gens {
			gens[i] = newGenerator(t, m.Client(network(200*time.Millisecond), counting(&locks, "set")),
				serial.WithLocation(time.UTC), serial.WithPeriod(serial.PerSecond),
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
		require.Zero(t, locks.Load(), "there is no lock")
		require.LessOrEqual(t, len(m.Keys()), 3, "counters of past seconds are gone: %v", m.Keys())
		m.requireExpiries()
	})
}

// After a period has ended, a generator with another zone or day start may open the next one. No label must be used
// twice.
// Guarantees: zone-changed.
func TestAnotherZone(t *testing.T) {
	east, west := time.FixedZone("+14", 14*3600), time.FixedZone("-12", -12*3600)
	four := serial.WithDayStart(4 * time.Hour)
	type step struct {
		at   string // UTC
		zone *time.Location
		want string // "" for ErrConflict
		opts []serial.Option
	}
	for name, steps := range map[string][]step{
		"a day that another zone used": {
			{"2021-01-02 09:00", east, "IS202101020001", nil},
			{"2021-01-02 12:00", west, "", nil},
			{"2021-01-03 11:59", west, "", nil},
			{"2021-01-03 12:00", west, "IS202101030001", nil},
			{"2021-01-03 12:00", east, "", nil},
		},
		"another day start": {
			{"2021-10-24 12:00", time.UTC, "IS202110240001", nil},
			{"2021-10-25 03:59", time.UTC, "", []serial.Option{four}},
			{"2021-10-25 04:00", time.UTC, "IS202110250001", []serial.Option{four}},
			{"2021-10-26 03:59", time.UTC, "", nil},
			{"2021-10-27 00:00", time.UTC, "IS202110270001", nil},
		},
	} {
		t.Run(name, func(t *testing.T) {
			m, rdb := startMini(t)
			for _, s := range steps {
				m.SetTime(utc(t, s.at))
				gen := newGenerator(t, rdb, append(s.opts, serial.WithLocation(s.zone), serial.WithMaxSkew(-1))...)
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

// A varying is a template that prints a more precise date than its period. goes is the layout of this date for
// time.Format.
type varying struct {
	kind
	goes   string
	border string // UTC, at which the text changes but the period does not
	second string // another such instant
}

var varyings = []varying{
	{kindOf("a year that prints the month", serial.PerYear, "yyyyMM"), "200601", "2024-03-01", "2024-04-01"},
	{kindOf("a year that prints the time", serial.PerYear, "yyMMddHHmm"), "0601021504", "2024-02-29 17:31",
		"2024-12-31 23:59"},
	{kindOf("a half-year that prints the day", serial.PerHalfYear, "d.M.yyyy"), "2.1.2006", "2024-02-29", "2024-06-30"},
	{kindOf("a week that prints the day", serial.PerWeek, "yyyyMMdd"), "20060102", "2025-01-01", "2025-01-05"},
	{kindOf("a day that prints the time", serial.PerDay, "yyyyMMddHHmmss"), "20060102150405", "2024-12-31 12:00",
		"2024-12-31 23:59:59"},
	{kindOf("never, printing the day", serial.Never, "yyMMdd"), "060102", "2025-01-01", "2099-12-31"},
}

// utc parses an instant in UTC. A missing time of day, or missing seconds, are 0.
func utc(t *testing.T, s string) time.Time {
	t.Helper()
	at, err := time.Parse(time.DateTime, s+" 00:00:00"[len(s)-len(time.DateOnly):])
	require.NoError(t, err)
	return at
}

// The template prints a more precise date than the period. Numbers must print the time of issue by Redis's clock, and
// the counter must continue, even if the clock is set back within the period.
func TestMoreThanThePeriod(t *testing.T) {
	for i, v := range varyings {
		t.Run(v.name, func(t *testing.T) {
			m, rdb := startMini(t)
			opts := slices.Concat(v.opts, ledgerIf(i%2 == 0, 2), []serial.Option{serial.WithLocation(time.UTC),
				serial.WithMaxSkew(-1)})
			gens := [2]*serial.Generator{newGenerator(t, rdb, opts...), newGenerator(t, rdb, opts...)}
			last, turn := int64(0), 0
			next := func(at time.Time, n int) {
				t.Helper()
				m.SetTime(at)
				turn++
				got, err := gens[turn%2].NextN(t.Context(), "IS", n)
				require.NoError(t, err)
				for _, n := range got {
					last++
					require.Equal(t, fmt.Sprintf("IS-%s-%04d", at.Format(v.goes), last), n.String())
					require.False(t, n.Date.After(at))
					require.Equal(t, at.Format(v.goes), n.Date.Format(v.goes))
					if n.Date.After(n.Start) {
						require.NotEqual(t, at.Format(v.goes), n.Date.Add(-time.Second).Format(v.goes), "its first instant")
					}
					parsed, err := gens[0].Parse(n.String())
					require.NoError(t, err)
					require.True(t, n.Equal(parsed) && n.Date.Equal(parsed.Date))
				}
			}
			border, second := utc(t, v.border), utc(t, v.second)
			next(border.Add(-time.Second), 3)
			next(border, 1)
			once, err := gens[0].NextOnce(t.Context(), "IS", "request")
			require.NoError(t, err)
			last++
			require.Equal(t, fmt.Sprintf("IS-%s-%04d", border.Format(v.goes), last), once.String())
			next(second, 5)
			next(border.Add(-time.Second), 1) // the clock was set back
			again, err := gens[1].NextOnce(t.Context(), "IS", "request")
			require.NoError(t, err)
			require.True(t, once.Equal(again) && once.Date.Equal(again.Date))

			read, err := gens[0].Peek(t.Context(), "IS")
			require.NoError(t, err)
			require.Equal(t, last, read.Seq)
			require.Zero(t, read.Date, "the instant of issue is unknown")
			require.Empty(t, read.String())
		})
	}
}

// The network is slow, so shared calls are in flight when the printed date changes within a period. Each number must
// print a time that lies within its call, and the sequences must have no gap.
func TestManyAcrossABorder(t *testing.T) {
	for i, v := range varyings {
		if i > 1 && !redistest.Long() {
			continue
		}
		runInBubble(t, v.name, func(t *testing.T, m *simulation) {
			// Opening the period takes some time, and no block may be in flight at the boundary.
			time.Sleep(time.Until(utc(t, v.border)) - 330*time.Millisecond)
			far := network(20 * time.Millisecond)
			opts := slices.Concat(v.opts, ledgerIf(i%2 == 0, 37), []serial.Option{serial.WithLocation(time.UTC)})
			gens := []*serial.Generator{newGenerator(t, m.Client(far), opts...), newGenerator(t, m.Client(far), opts...)}
			var mu sync.Mutex
			var seqs []int64
			dates := map[string]bool{}
			var wg sync.WaitGroup
			for i := range 100 {
				wg.Go(func() {
					ctx, cancel := context.WithCancel(t.Context())
					defer cancel()
					for k := range 6 {
						before := time.Now().UTC()
						var got []serial.Number
						var err error
						if i == 1 {
							got = make([]serial.Number, 1)
							got[0], err = gens[1].NextOnce(ctx, "IS", fmt.Sprint(k))
						} else {
							got, err = gens[i%2].NextN(ctx, "IS", 1+6*max(0, 1-i))
						}
						require.NoError(t, err)
						after := time.Now().UTC()
						allowed := []string{after.Format(v.goes)}
						for at := before; at.Before(after); at = at.Add(100 * time.Millisecond) {
							allowed = append(allowed, at.Format(v.goes))
						}
						mu.Lock()
						for _, n := range got {
							date := strings.Split(n.String(), "-")[1]
							require.Contains(t, allowed, date)
							require.Equal(t, strings.Split(got[0].String(), "-")[1], date, "one date in a call")
							dates[date] = true
							seqs = append(seqs, n.Seq)
						}
						mu.Unlock()
						time.Sleep(time.Duration(i) * time.Millisecond / 2)
					}
				})
			}
			wg.Wait()
			require.GreaterOrEqual(t, len(dates), 2, "%v", dates)
			slices.Sort(seqs)
			require.Equal(t, upTo(len(seqs)), seqs)
			m.requireExpiries()
		})
	}
}

// network delays scripts and lock commands on their way to the server, and replies on their way back. It does not delay
// the commands that set up a connection, because the client holds a mutex while it sends them.
func network(delay time.Duration) everyCall {
	return func(cmds []redis.Cmder, send func() error) error {
		if name := cmds[0].Name(); name != "set" && !strings.HasPrefix(name, "eval") {
			return send()
		}
		time.Sleep(delay)
		err := send()
		time.Sleep(delay)
		return err
	}
}

// Numbers of a day print the second, and the network has a delay of 400 ms. The day must be opened once, under the
// lock.
func TestSecondsOfADayOverANetwork(t *testing.T) {
	inBubble(t, func(t *testing.T, m *simulation) {
		asked := 0
		floor := serial.WithFloor(func(context.Context, string, time.Time) (int64, error) {
			asked++
			time.Sleep(300 * time.Millisecond)
			return 0, nil
		})
		var gens [3]*serial.Generator
		for i := range gens {
			gens[i] = newGenerator(t, m.Client(network(200*time.Millisecond)), serial.WithLocation(time.UTC), floor,
				serial.WithTemplate("{type}{date:yyyyMMddHHmmss}{seq:5}"))
		}
		var mu sync.Mutex
		var seqs []int64
		var wg sync.WaitGroup
		for i := range 12 {
			wg.Go(func() {
				for k := range 20 {
					before := time.Now().UTC()
					n, err := gens[i%3].NextNumber(t.Context(), "IS")
					require.NoError(t, err)
					after := time.Now().UTC()
					require.LessOrEqual(t, after.Sub(before), 4*time.Second+6*time.Second*time.Duration(max(0, 1-k)))
					date := n.String()[2:16]
					require.True(t, before.Format("20060102150405") <= date && date <= after.Format("20060102150405"))
					mu.Lock()
					seqs = append(seqs, n.Seq)
					mu.Unlock()
					time.Sleep(time.Duration(i) * 37 * time.Millisecond)
				}
			})
		}
		wg.Wait()
		require.Equal(t, 1, asked)
		slices.Sort(seqs)
		require.Equal(t, upTo(len(seqs)), seqs)
	})
}

// Two Whens must be equal if they are the same date or the same instant, whatever their zones were.
func TestWhen(t *testing.T) {
	t.Parallel()
	saoPaulo, kolkata := location(t, "America/Sao_Paulo"), location(t, "Asia/Kolkata")
	at := time.Date(2026, 8, 1, 0, 0, 0, 0, time.UTC)
	require.True(t, serial.At(at) == serial.At(at.In(saoPaulo)))
	now := time.Now()
	require.True(t, serial.At(now) == serial.At(time.Unix(0, now.UnixNano()).In(kolkata)))
	require.False(t, serial.At(at) == serial.At(at.Add(1)))
	date := serial.On(2026, time.August, 1)
	require.True(t, date == serial.OnDateOf(time.Date(2026, 8, 1, 23, 59, 0, 0, saoPaulo)))
	require.True(t, date == serial.OnDateOf(at))
	require.False(t, date == serial.OnDateOf(at.In(saoPaulo)))
	require.False(t, date == serial.At(at))
	require.False(t, serial.On(2026, time.June, 31) == serial.On(2026, time.July, 1))
	for want, when := range map[string]serial.When{
		"2026-08-01": date, "0033-04-03": serial.On(33, time.April, 3), "2026-06-31": serial.On(2026, time.June, 31),
		"2026-08-01T00:00:00Z":   serial.At(at.In(saoPaulo)),
		"2026-07-31T18:30:00Z":   serial.At(time.Date(2026, 8, 1, 0, 0, 0, 0, kolkata)),
		"2026-08-01T00:00:00.5Z": serial.At(at.Add(time.Second / 2)), "": {},
	} {
		require.Equal(t, want, when.String())
	}
}

// A date must select its business day, whatever the zone and the day start are.
func TestDates(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		zone     string
		dayStart time.Duration
		date     serial.When
		begins   string // or the error
	}{
		{"America/Sao_Paulo", 0, serial.On(2026, time.August, 1), "2026-08-01T03:00:00Z"},
		{"America/Sao_Paulo", 0, serial.On(2018, time.November, 4), "2018-11-04T03:00:00Z"}, // 01:00, there is no midnight
		{"America/Sao_Paulo", 4 * time.Hour, serial.On(2018, time.November, 4), "2018-11-04T06:00:00Z"},
		{"Pacific/Apia", 0, serial.On(2011, time.December, 30), "has no business day in Pacific/Apia"},
		// Only the date was skipped.
		{"Pacific/Apia", 4 * time.Hour, serial.On(2011, time.December, 30), "2011-12-30T10:00:00Z"},
		{"America/Havana", 0, serial.On(2025, time.November, 2), "2025-11-02T04:00:00Z"}, // midnight comes twice
		{"UTC", 0, serial.On(1970, time.January, 1), "1970-01-01T00:00:00Z"},
		{"UTC", 0, serial.On(9999, time.December, 31), "9999-12-31T00:00:00Z"},
		{"UTC", 0, serial.On(1969, time.December, 31), "want 1970 to 9999"},
		{"UTC", 0, serial.On(10000, time.January, 1), "want 1970 to 9999"},
		{"UTC", 0, serial.On(2026, time.June, 31), "does not exist"},
		{"UTC", 0, serial.On(2026, 13, 1), "does not exist"},
		{"UTC", 0, serial.On(2026, time.August, 0), "does not exist"},
		{"UTC", 0, serial.When{}, "the When is zero"},
	} {
		for _, per := range []serial.Period{serial.PerDay, serial.PerMonth, serial.PerWeek} {
			name := fmt.Sprint(c.zone, c.dayStart, c.date, per)
			s := newScheme(t, serial.WithLocation(location(t, c.zone)), serial.WithDayStart(c.dayStart),
				serial.WithPeriod(per), serial.WithTemplate("{type}{date:yyyyMMdd}{seq}"))
			label, start, end := s.Period(c.date)
			from, to, err := s.Span(c.date)
			n, invalid := s.Number("IS", c.date, 7)
			r, failed := s.Audit("IS", c.date, 1, used())
			begins, wrong := time.Parse(time.RFC3339, c.begins)
			if wrong != nil {
				require.Empty(t, label+s.PeriodName(c.date), name)
				require.True(t, start.IsZero() && end.IsZero(), name)
				for _, err := range []error{err, invalid, failed} {
					require.ErrorContains(t, err, c.begins, name)
				}
				continue
			}
			require.NoError(t, errors.Join(err, invalid, failed), name)
			require.True(t, from.Equal(begins), "%s: %v", name, from)
			require.True(t, !start.After(from) && from.Before(to) && !to.After(end), name)
			require.True(t, n.Date.Equal(begins) && n.Start.Equal(start) && r.Start.Equal(start), name)
			require.Equal(t, "IS"+strings.ReplaceAll(c.date.String(), "-", "")+"0007", n.String(), name)
			require.True(t, per != serial.PerDay || start.Equal(begins), name)
		}
	}
}

// A date is not precise enough for the period or the template. The error must tell the caller to use At.
func TestDatesWithoutTimes(t *testing.T) {
	t.Parallel()
	date := serial.On(2026, time.August, 1)
	hours := newScheme(t, serial.WithPeriod(serial.PerHour), serial.WithTemplate("{type}{date:yyyyMMddHH}{seq}"))
	label, _, _ := hours.Period(date)
	require.Empty(t, label)
	_, _, err := hours.Span(date)
	for _, err := range []error{err, errOf(hours.Number("IS", date, 1)), errOf(hours.Audit("IS", date, 1, used()))} {
		require.ErrorContains(t, err, "2026-08-01 has more than one period with PerHour: want an instant, from At")
	}
	s := newScheme(t, serial.WithPeriod(serial.PerMonth), serial.WithTemplate("{type}{date:yyyyMMddmm}{seq}"))
	require.NoError(t, errOf(s.Audit("IS", date, 0, used())), "a date names the month")
	_, _, err = s.Span(date)
	for _, err := range []error{err, errOf(s.Number("IS", date, 1))} {
		require.ErrorContains(t, err, "2026-08-01 has no time of day, which the template prints: want an instant, from At")
	}
	require.NoError(t, errOf(s.Number("IS", serial.At(time.Unix(1785542400, 0)), 1)))
}
