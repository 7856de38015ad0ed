package serial_test

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/dailyserial/serial"
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
	daily     = kindOf("days", serial.PerDay, "yyyyMMdd")
	calendars = []kind{weekly, quarterly, halfYears, fiscal, endless}
)

// testPeriods is the part of the behaviour suite for short periods.
func testPeriods(t *testing.T, b backend) {
	for period, layout := range map[serial.Period]string{serial.PerSecond: "yyyyMMddHHmmss",
		serial.PerMinute: "yyyyMMddHHmm", serial.PerHour: "yyyyMMddHH"} {
		opts := options(serial.WithPeriod(period), serial.WithTemplate("{type}{date:"+layout+"}{seq:4}"))
		b.run(t, period.String(), func(t *testing.T, s *series) {
			current := func() string {
				label, _, _ := s.gen.Scheme().Period(serial.At(time.Now()))
				return label
			}
			last, label := "", ""
			for _, gen := range []*serial.Generator{s.gen, s.generator(opts...), s.gen} {
				before := current()
				n := must(gen.NextNumber(t.Context(), "IS"))
				require.Greater(t, n.String(), last)
				last = n.String()
				label = last[2 : len(last)-4]
				if period != serial.PerSecond { // may be over by now
					require.Contains(t, []string{before, current()}, label)
				}
				requireResult(t, n)(gen.Parse(last))
			}
			require.NotEqual(t, time.Duration(-1), s.rdb.PTTL(t.Context(), s.record+":"+label).Val(), "it has an expiry")
			if period != serial.PerSecond {
				require.ErrorIs(t, errOf(s.generator().Next(t.Context(), "IS")), serial.ErrConflict)
			}
		}, opts...)
	}
}

// requireExpiry requires that a key expires at an instant. It reads the raw reply, because go-redis cannot represent
// the durations of Never. miniredis stores durations, so it does not support more than 292 years.
func requireExpiry(t *testing.T, rdb redis.UniversalClient, key string, at time.Time) {
	t.Helper()
	expires := must(rdb.Do(t.Context(), "PEXPIRETIME", key).Int64())
	want, most := at.Unix(), time.Now().Unix()+math.MaxInt64/int64(time.Second)+1
	if want > most && expires/1000 <= most {
		want = most
	}
	require.InDelta(t, want, expires/1000, 2, key)
}

// testCalendars is the part of the behaviour suite for weeks, quarters, half-years, business years and Never.
func testCalendars(t *testing.T, b backend) {
	for _, k := range calendars {
		b.run(t, k.name, func(t *testing.T, s *series) {
			label, start, end := s.gen.Scheme().Period(serial.At(time.Now()))
			s.counter = s.record + ":" + label
			s.gens = map[string]*serial.Generator{"forgetful": s.generator(k.opts...)}
			for want := range int64(2) {
				n := must(s.gen.NextNumber(t.Context(), "IS"))
				require.Equal(t, []int64{want + 1, start.Unix()}, []int64{n.Seq, n.Start.Unix()})
				requireResult(t, n)(s.gen.Parse(n.String()))
			}
			require.Equal(t, "2", s.rdb.Get(t.Context(), s.counter).Val())
			requireExpiry(t, s.rdb, s.counter, end)
			requireExpiry(t, s.rdb, s.record, end.Add(7*24*time.Hour))
			s.play("raise 9; next 10; peek 10")
			last := must(s.gen.Peek(t.Context(), "IS"))
			requireResult(t, []serial.Number{last})(s.gen.History(t.Context(), "IS", 100))
			s.play("del counter; forgetful.next lost; raise 20; next 21")
		}, k.opts...)
	}
}

// Numbers contain the second, and the network has a delay of 1.4 s. A call must aim at the second in which it arrives,
// as soon as it knows the delay. It must not fail on the last day as long as a request might still arrive in time.
func TestAimAtASecond(t *testing.T) {
	inBubble(t, func(t *testing.T, m *simulation) {
		opts := options(serial.WithLocation(time.UTC), serial.WithTemplate("{type}{date:yyyyMMddHHmmss}{seq:4}"),
			serial.WithUntil(serial.OnDateOf(time.Now().UTC())))
		require.NoError(t, errOf(newGenerator(t, m.Client(), opts...).Next(t.Context(), "IS")))
		newProcess := func() *serial.Generator { return newGenerator(t, m.Client(network(700*time.Millisecond)), opts...) }
		requireTrips := func(want time.Duration, gen *serial.Generator, begin time.Time, err error) {
			t.Helper()
			time.Sleep(time.Until(begin))
			require.ErrorIs(t, errOf(gen.Next(t.Context(), "IS")), err)
			require.Equal(t, want*1400*time.Millisecond, time.Since(begin))
		}
		gen, begin := newProcess(), time.Now().Add(1500*time.Millisecond)
		requireTrips(2, gen, begin, nil)
		requireTrips(1, gen, begin.Add(10*time.Second), nil)
		over := begin.Truncate(24 * time.Hour).Add(24 * time.Hour)
		requireTrips(2, newProcess(), over.Add(-1500*time.Millisecond), serial.ErrExhausted)
	})
}

// After a period has ended, a generator with another zone or day start may open the next one. No label must be used
// twice.
// Guarantees: zone-changed.
func TestAnotherZone(t *testing.T) {
	settings := map[string]serial.Option{
		"east": serial.WithLocation(time.FixedZone("+14", 14*3600)), "UTC": serial.WithDayStart(0),
		"west": serial.WithLocation(time.FixedZone("-12", -12*3600)), "04:00": serial.WithDayStart(4 * time.Hour),
	}
	for _, script := range []string{
		"clock 01-02 09:00, east next = 1, clock 01-02 12:00, west next = conflict, clock 01-03 11:59, " +
			"west next = conflict, clock 01-03 12:00, west next = IS202101030001, east next = conflict",
		"clock 10-24 12:00, UTC next = 1, clock 10-25 03:59, 04:00 next = conflict, clock 10-25 04:00, " +
			"04:00 next = IS202110250001, clock 10-26 03:59, UTC next = conflict, clock 10-27 00:00, UTC next = IS202110270001",
	} {
		s, gens := newClockSeries(t), map[string]*serial.Generator{}
		for name, setting := range settings {
			gens[name] = s.generator(setting)
		}
		steps(t, gens, map[string]func(string){"clock": func(at string) { s.at("2021-" + at) }}, script)
	}
}

// utc parses an instant in UTC. A missing time of day, or missing seconds, are 0.
func utc(t *testing.T, s string) time.Time {
	t.Helper()
	return must(time.Parse(time.DateTime, s+" 00:00:00"[len(s)-len(time.DateOnly):]))
}

// The template prints a more precise date than the period. Numbers must print the time of issue by Redis's clock, and
// the counter must continue, even if the clock is set back within the period.
func TestMoreThanThePeriod(t *testing.T) {
	for i, test := range []struct {
		kind
		goes           string // the printed date, in time.Format
		border, second string // in UTC, at which the date changes but the period does not
	}{
		{kindOf("month", serial.PerYear, "yyyyMM"), "200601", "2024-03-01", "2024-04-01"},
		{kindOf("time", serial.PerYear, "yyMMddHHmm"), "0601021504", "2024-02-29 17:31", "2024-12-31 23:59"},
		{kindOf("day", serial.PerHalfYear, "d.M.yyyy"), "2.1.2006", "2024-02-29", "2024-06-30"},
		{kindOf("day of a week", serial.PerWeek, "yyyyMMdd"), "20060102", "2025-01-01", "2025-01-05"},
		{kindOf("time of a day", serial.PerDay, "yyyyMMddHHmmss"), "20060102150405",
			"2024-12-31 12:00", "2024-12-31 23:59:59"},
		{kindOf("day of all time", serial.Never, "yyMMdd"), "060102", "2025-01-01", "2099-12-31"},
	} {
		s := newClockSeries(t)
		s.ClockTTL(false) // so that nothing expires
		opts := append(test.opts, ledgerIf(i%2 == 0, 2)...)
		gens := [2]*serial.Generator{s.generator(opts...), s.generator(opts...)}
		last := int64(0)
		requireNext := func(at time.Time, n serial.Number) {
			t.Helper()
			last++
			require.Equal(t, fmt.Sprintf("IS-%s-%04d", at.Format(test.goes), last), n.String(), test.name)
			parsed := must(gens[0].Parse(n.String())) // it has the first instant of the date
			require.True(t, n.Equal(parsed) && n.Date.Equal(parsed.Date), test.name)
		}
		next := func(at time.Time, n int) {
			t.Helper()
			s.SetTime(at)
			for _, n := range must(gens[last%2].NextN(t.Context(), "IS", n)) {
				requireNext(at, n)
			}
		}
		border := utc(t, test.border)
		next(border.Add(-time.Second), 3)
		next(border, 1)
		once := must(gens[0].NextOnce(t.Context(), "IS", "request"))
		requireNext(border, once)
		next(utc(t, test.second), 5)
		next(border.Add(-time.Second), 1) // the clock was set back
		again := must(gens[1].NextOnce(t.Context(), "IS", "request"))
		require.True(t, once.Equal(again) && once.Date.Equal(again.Date))

		read := must(gens[0].Peek(t.Context(), "IS"))
		require.Equal(t, last, read.Seq)
		require.Zero(t, read.Date, "the instant of issue is unknown")
		require.Empty(t, read.String())
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

// Two Whens must be equal if they are the same date or the same instant, whatever their zones were.
func TestWhen(t *testing.T) {
	saoPaulo, kolkata := location(t, "America/Sao_Paulo"), location(t, "Asia/Kolkata")
	at, now, date := utc(t, "2026-08-01"), time.Now(), serial.On(2026, time.August, 1)
	for _, same := range [][2]serial.When{
		{serial.At(at), serial.At(at.In(saoPaulo))},
		{serial.At(now), serial.At(time.Unix(0, now.UnixNano()).In(kolkata))},
		{date, serial.OnDateOf(at)}, {date, serial.OnDateOf(time.Date(2026, 8, 1, 23, 59, 0, 0, saoPaulo))},
	} {
		require.True(t, same[0] == same[1], same)
	}
	for _, different := range [][2]serial.When{
		{serial.At(at), serial.At(at.Add(1))}, {date, serial.At(at)}, {date, serial.OnDateOf(at.In(saoPaulo))},
		{serial.On(2026, time.June, 31), serial.On(2026, time.July, 1)},
	} {
		require.False(t, different[0] == different[1], different)
	}
	for want, when := range map[string]serial.When{
		"2026-08-01": date, "0033-04-03": serial.On(33, time.April, 3), "2026-06-31": serial.On(2026, time.June, 31),
		"2026-08-01T00:00:00Z":   serial.At(at.In(saoPaulo)),
		"2026-07-31T18:30:00Z":   serial.At(time.Date(2026, 8, 1, 0, 0, 0, 0, kolkata)),
		"2026-08-01T00:00:00.5Z": serial.At(at.Add(time.Second / 2)), "": {},
	} {
		require.Equal(t, want, when.String())
	}
}

// A date must select its business day, whatever the zone and the day start are. Whether an instant has a period must
// depend on its date in the zone, or on its business day if there is a day start.
func TestDates(t *testing.T) {
	at := func(unix int64) serial.When { return serial.At(time.Unix(unix, 0)) }
	const outside = "want 1970 to 9999, and with Never only before 9999-12-31T00:00:00Z"
	for _, c := range []struct {
		zone     string
		dayStart time.Duration
		when     serial.When
		begins   string // or the error
	}{
		{"America/Sao_Paulo", 0, serial.On(2026, time.August, 1), "2026-08-01T03:00:00Z"},
		{"America/Sao_Paulo", 0, serial.On(2018, time.November, 4), "2018-11-04T03:00:00Z"}, // 01:00, there is no midnight
		{"America/Sao_Paulo", 4, serial.On(2018, time.November, 4), "2018-11-04T06:00:00Z"},
		{"Pacific/Apia", 0, serial.On(2011, time.December, 30), "has no business day in Pacific/Apia"},
		{"Pacific/Apia", 4, serial.On(2011, time.December, 30), "2011-12-30T10:00:00Z"},  // only the date was skipped
		{"America/Havana", 0, serial.On(2025, time.November, 2), "2025-11-02T04:00:00Z"}, // midnight comes twice
		{"UTC", 0, serial.On(1970, time.January, 1), "1970-01-01T00:00:00Z"},
		{"UTC", 0, serial.On(9999, time.December, 31), "9999-12-31T00:00:00Z"},
		{"UTC", 0, serial.On(1969, time.December, 31), "want 1970 to 9999"},
		{"UTC", 0, serial.On(10000, time.January, 1), "want 1970 to 9999"},
		{"UTC", 0, serial.On(2026, time.June, 31), "does not exist"},
		{"UTC", 0, serial.On(2026, 13, 1), "does not exist"},
		{"UTC", 0, serial.On(2026, time.August, 0), "does not exist"},
		{"UTC", 0, serial.When{}, "the When is zero"},
		{"America/New_York", 0, at(5 * 3600), "1970-01-01T05:00:00Z"},
		{"America/New_York", 0, at(5*3600 - 1), outside},
		{"America/New_York", 0, at(-1 << 62), outside},
		{"Etc/GMT+1", 0, at(0), outside},
		{"Etc/GMT-1", 0, at(-3600), "1969-12-31T23:00:00Z"},
		{"Etc/GMT-1", 0, at(253402300800 - 3600), outside},
		{"UTC", 4, at(4*3600 - 1), outside},
		{"UTC", 4, at(4 * 3600), "1970-01-01T04:00:00Z"},
	} {
		for _, per := range []serial.Period{serial.PerDay, serial.PerMonth, serial.PerWeek} {
			name := fmt.Sprint(c.zone, c.dayStart, c.when, per)
			s := newScheme(t, serial.WithLocation(location(t, c.zone)), serial.WithDayStart(c.dayStart*time.Hour),
				serial.WithPeriod(per), serial.WithTemplate("{type}{date:yyyyMMdd}{seq}"))
			label, start, end := s.Period(c.when)
			from, to, err := s.Span(c.when)
			n, invalid := s.Number("IS", c.when, 7)
			r, failed := s.Audit("IS", c.when, 1, used())
			begins, wrong := time.Parse(time.RFC3339, c.begins)
			if wrong != nil {
				require.Empty(t, label+s.PeriodName(c.when)+s.BusinessDate(c.when).String(), name)
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
			date := strings.ReplaceAll(s.BusinessDate(serial.At(from)).String(), "-", "")
			require.Equal(t, "IS"+date+"0007", n.String(), name)
			require.True(t, per != serial.PerDay || start.Equal(begins), name)
		}
	}
}

// A date is not precise enough for the period or the template. The error must tell the caller to use At.
func TestDatesWithoutTimes(t *testing.T) {
	date := serial.On(2026, time.August, 1)
	for says, s := range map[string]*serial.Scheme{
		"has more than one period with PerHour": newScheme(t, serial.WithPeriod(serial.PerHour),
			serial.WithTemplate("{type}{date:yyyyMMddHH}{seq}")),
		"has no time of day, which the template prints": newScheme(t, serial.WithPeriod(serial.PerMonth),
			serial.WithTemplate("{type}{date:yyyyMMddmm}{seq}")),
	} {
		_, _, err := s.Span(date)
		for _, err := range []error{err, errOf(s.Number("IS", date, 1))} {
			require.EqualError(t, err, "serial: the date 2026-08-01 "+says+": want an instant, from At")
		}
		label, _, _ := s.Period(date)
		audited := errOf(s.Audit("IS", date, 0, used()))
		require.Equal(t, label == "202608", audited == nil, "a date names the month, but no hour")
		require.NoError(t, errOf(s.Number("IS", serial.At(time.Unix(1785542400, 0)), 1)))
	}
}
