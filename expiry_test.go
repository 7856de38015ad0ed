package serial_test

import (
	"errors"
	"fmt"
	"strings"
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
	calendars = []kind{weekly, quarterly, halfYears, fiscal, endless}
)

// Numbers start again in each period, whatever its length is, and the keys of past periods expire. Two generators must
// agree on the periods. TestLedger issues numbers of the calendars on real servers.
func TestPeriods(t *testing.T) {
	for _, k := range append([]kind{kindOf("seconds", serial.PerSecond, "yyyyMMddHHmmss"), monthly,
		kindOf("minutes", serial.PerMinute, "yyyyMMddHHmm"), kindOf("hours", serial.PerHour, "yyyyMMddHH")}, calendars...) {
		runInBubble(t, k.name, func(t *testing.T, m *simulation) {
			gens := [2]*serial.Generator{newGenerator(t, m.Client(), k.opts...), newGenerator(t, m.Client(), k.opts...)}
			for range 3 {
				label, start, end := gens[0].Scheme().Period(serial.At(time.Now()))
				for i, gen := range gens {
					n := must(gen.NextNumber(t.Context(), "IS"))
					require.Equal(t, []int64{int64(i + 1), start.Unix()}, []int64{n.Seq, n.Start.Unix()})
					requireResult(t, n)(gen.Parse(n.String()))
					requireResult(t, []serial.Number{n})(gen.History(t.Context(), "IS", 100))
				}
				require.Equal(t, []string{"serial:{IS}", "serial:{IS}:" + label}, m.Keys())
				m.requireExpiries()
				if k.name == endless.name { // miniredis does not support durations of more than 292 years
					break
				}
				require.Equal(t, time.Until(end), m.TTL("serial:{IS}:"+label))
				require.Equal(t, time.Until(end)+7*24*time.Hour, m.TTL("serial:{IS}"))
				time.Sleep(time.Until(end))
			}
		})
	}
}

// The counter of Never expires at the end of the year 9999, which miniredis and go-redis cannot represent as a duration.
func TestExpiryOfNever(t *testing.T) {
	rdb := redistest.Start(t).Client(t)
	gen := newGenerator(t, rdb, endless.opts...)
	_, _, end := gen.Scheme().Period(serial.At(time.Now()))
	require.NoError(t, errOf(gen.Next(t.Context(), "IS")))
	expiry := must(rdb.Do(t.Context(), "PEXPIRETIME", "serial:{IS}:all").Int64())
	require.Equal(t, end.UnixMilli(), expiry)
}

// requireExpiry requires that a key expires at an instant.
func requireExpiry(t *testing.T, rdb redis.UniversalClient, key string, at time.Time) {
	t.Helper()
	require.InDelta(t, time.Until(at), rdb.PTTL(t.Context(), key).Val(), float64(10*time.Second), key)
}

// Numbers contain the second, and the network has a delay of 1.4 s. A call must aim at the second in which it arrives,
// as soon as it knows the delay. It must not fail on the last day as long as a request might still arrive in time.
func TestAimAtASecond(t *testing.T) {
	inBubble(t, func(t *testing.T, m *simulation) {
		opts := options(serial.WithLocation(time.UTC), serial.WithTemplate("{type}{date:yyyyMMddHHmmss}{seq:4}"),
			serial.WithUntil(serial.OnDateOf(time.Now().UTC())))
		require.NoError(t, errOf(newGenerator(t, m.Client(), opts...).Next(t.Context(), "IS")))
		network := around(func(cmd redis.Cmder, send func() error) error {
			if stepOf(cmd) != "take" { // the client holds a mutex while it sets up a connection
				return send()
			}
			time.Sleep(700 * time.Millisecond)
			defer time.Sleep(700 * time.Millisecond)
			return send()
		})
		newProcess := func() *serial.Generator { return newGenerator(t, m.Client(network), opts...) }
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

// After a period has ended, a generator with another zone may open the next one. No label must be used twice.
// TestRollout covers another zone, and a day start.
// Guarantees: zone-changed.
func TestAnotherZone(t *testing.T) {
	s, gens := newClockSeries(t), map[string]*serial.Generator{}
	for name, hours := range map[string]int{"east": 14, "west": -12} {
		gens[name] = s.generator(serial.WithLocation(time.FixedZone(name, hours*3600)))
	}
	steps(t, gens, map[string]func(string){"clock": func(at string) { s.at("2021-" + at) }}, "clock 01-02 09:00, "+
		"east next = 1, clock 01-02 12:00, west next = conflict, clock 01-03 11:59, west next = conflict, "+
		"clock 01-03 12:00, west next = IS202101030001, east next = conflict")
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
		requireNext := func(at time.Time, numbers ...serial.Number) {
			t.Helper()
			for _, n := range numbers {
				last++
				require.Equal(t, fmt.Sprintf("IS-%s-%04d", at.Format(test.goes), last), n.String(), test.name)
				parsed := must(gens[0].Parse(n.String())) // it has the first instant of the date
				require.True(t, n.Equal(parsed) && n.Date.Equal(parsed.Date), test.name)
			}
		}
		border, second := utc(t, test.border), utc(t, test.second)
		before := border.Add(-time.Second)
		for _, at := range []time.Time{before, border, second, before} { // finally, the clock is set back
			s.SetTime(at)
			requireNext(at, must(gens[last%2].NextN(t.Context(), "IS", 3))...)
		}
		once := must(gens[0].NextOnce(t.Context(), "IS", "request"))
		requireNext(before, once)
		s.SetTime(second)
		again := must(gens[1].NextOnce(t.Context(), "IS", "request"))
		require.True(t, once.Equal(again) && once.Date.Equal(again.Date))

		// The instants at which these numbers were issued are not known.
		says := fmt.Sprintf(" of sequence %d of IS: its date is not known, because its template prints more than its "+
			"period; use Type, Start and Seq", last)
		for _, n := range append(must(gens[0].History(t.Context(), "IS", 1)), must(gens[0].Peek(t.Context(), "IS"))) {
			require.True(t, n.Seq == last && n.Date.IsZero() && n.String() == "")
			require.EqualError(t, errOf(n.MarshalText()), "serial: MarshalText"+says)
			require.EqualError(t, errOf(n.Value()), "serial: Value"+says)
		}
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
		{"UTC", 0, serial.When{}, "the When is zero"},
		{"Etc/GMT-1", 0, at(-3600), "1969-12-31T23:00:00Z"}, // TestHasPeriod in internal/calendar has more instants
		{"Etc/GMT-1", 0, at(-3601), outside},
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
	for says, k := range map[string]kind{
		"has more than one period with PerHour":         kindOf("", serial.PerHour, "yyyyMMddHH"),
		"has no time of day, which the template prints": kindOf("", serial.PerMonth, "yyyyMMddmm"),
	} {
		s := newScheme(t, k.opts...)
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
