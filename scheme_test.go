package serial_test

import (
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/dailyserial/serial"
)

func newScheme(t testing.TB, opts ...serial.Option) *serial.Scheme {
	t.Helper()
	return must(serial.NewScheme(append([]serial.Option{serial.WithLocation(time.UTC)}, opts...)...))
}

var hiddenKey = []byte("0123456789abcdef")

// Options or templates are invalid. The error must contain the option or the token, the reason, and a remedy. New must
// return an error whenever NewScheme does. The tests of internal/template have more templates.
func TestTemplatesRefused(t *testing.T) {
	rdb := closing(t, redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"}))
	refuse := func(want string, opts ...serial.Option) {
		t.Helper()
		s, err := serial.NewScheme(opts...)
		require.ErrorContains(t, err, want)
		require.Regexp(t, "^serial: ", err.Error())
		require.Nil(t, s)
		require.EqualError(t, errOf(serial.New(rdb, opts...)), err.Error())
	}
	// template refuses a template, or a layout alone, which stands for {type}{date:LAYOUT}-{seq}.
	template := func(per serial.Period, template, want string, opts ...serial.Option) {
		t.Helper()
		if !strings.Contains(template, "{") {
			template = "{type}{date:" + template + "}-{seq}"
		}
		refuse(want, append(opts, serial.WithPeriod(per), serial.WithTemplate(template))...)
	}
	april1, april6 := serial.WithYearStart(time.April, 1), serial.WithYearStart(time.April, 6)
	fourAM := serial.WithDayStart(4 * time.Hour)
	template(serial.PerDay, "{type}{date:yyyyMMdd}",
		"{seq} is missing; want {type}, {date:LAYOUT} and {seq:WIDTH} once, and {check:ALGORITHM} at most once")
	template(serial.PerDay, "{type}{date:yyyyMMdd}-1{seq:4+}", "needs a literal right before it")
	template(serial.PerDay, "{type}{date:yyyyMMdd}-{seq:4+}1", "right after it that does not begin with a digit")
	template(serial.PerDay, "yyyy1MMdd", `"1" in a date layout; want yyyy, yy, BBBB, BB, MM, M, MMM, Mmm, R, dd, d, DDD, `+
		"GGGG, GG, WW, FFFF, FF, EEEE, EE, S, Q, HH, mm, ss, separators and 'quoted text' (separators are all but ASCII")
	template(serial.PerDay, "yyyyMM", "the day (dd) is missing: numbers of different days would read the same; print "+
		"yyyyMMdd, or use WithPeriod(PerMonth) (WithTemplate)")
	template(serial.PerDay, "FFFF-'H'S", "; print yyyyMMdd, or use WithPeriod(PerHalfYear) (WithTemplate)")
	template(serial.PerDay, "yyyymmdd", `would read the same, and "mm" is the minute; print yyyyMMdd`)
	template(serial.PerDay, "FFFFDDD", "2027091 is printed for 1 April 2027 and for 31 March 2028", april1)
	template(serial.PerWeek, "yyyyWW", "yyyyWW does not tell weeks apart: 202401 is printed for 1 January 2024 and for "+
		"30 December 2024; print GGGG-WW")
	template(serial.PerWeek, "YYYY-WW", "; print GGGG for that, or yyyy for the calendar year")
	template(serial.PerMonth, "FFFFMM", "FFFFMM does not tell months apart: 202404 is printed for 6 April 2024 and for "+
		"1 April 2025; print yyyyMM", april6)
	template(serial.PerYear, "yyyy", "2024 is printed for 1 January 2024 and for 1 April 2024; print FFFF", april1)
	template(serial.PerYear, "MM", "is missing: numbers of different years would read the same; print yyyy")
	template(serial.PerQuarter, "yyyyQ", "yyyyQ does not tell quarters apart in every calendar; print FFFF-Q", april1)
	template(serial.PerHour, "yyyy-DDD", "the hour (HH) is missing: numbers of different hours would read the same; "+
		"print yyyyMMddHH, or use WithPeriod(PerDay) (WithTemplate)")
	template(serial.PerHour, "{type}{date:yyyyMMdd}{seq:4}", `; print yyyyMMddHH; PerHour needs a template of its own, `+
		`such as "{type}{date:yyyyMMddHH}{seq:4}"`)
	template(serial.PerHour, "yyyyMMddHH", "WithDayStart does not apply to PerHour; want PerDay, PerWeek, PerMonth, "+
		"PerQuarter, PerHalfYear or PerYear", fourAM)
	template(serial.Never, "ss", "WithDayStart does not apply to Never", fourAM)
	template(serial.Never, "{type}-{seq:4:base64}", `unknown alphabet "base64"; want base32, base36, alpha or letters`)
	template(serial.Never, "{type}-{seq}{check:crc}",
		`"crc"; want luhn, damm, gs1, 11-10, 97-10, 37-36, 731, be97, 10r, 11, s10`)
	template(serial.Never, "{type}-{seq:4:base32}{check:luhn}", "and the sequence is printed in base32; want 97-10 or")
	require.NotContains(t, errOf(serial.NewScheme(serial.WithTemplate("{type}{date:MM}-{seq}"))).Error(), "WithPeriod",
		"MM names no periods")

	const yearStart = "; want January to December, and days 1 to 28"
	const dayStart = ": want whole seconds from 0 to less than 24h"
	refuse("WithHiddenSequence: a key of 15 bytes; want 16, 24 or 32", serial.WithHiddenSequence(make([]byte, 15)))
	refuse("WithYearStart: month 4, day 29"+yearStart, serial.WithYearStart(time.April, 29))
	refuse("WithYearStart: month 13, day 1"+yearStart, serial.WithYearStart(13, 1))
	refuse("WithPeriod(Period(11)): want PerSecond, PerMinute, PerHour, PerDay, PerWeek, PerMonth, PerQuarter, "+
		"PerHalfYear, PerYear or Never", serial.WithPeriod(serial.PerHalfYear+1))
	refuse("WithDayStart(-1s)"+dayStart, serial.WithDayStart(-time.Second))
	refuse("WithDayStart(24h0m0s)"+dayStart, serial.WithDayStart(24*time.Hour))
	refuse("WithDayStart(1ms)"+dayStart, serial.WithDayStart(time.Millisecond))
	refuse("WithStart(0): want 1 to the largest sequence that the template prints", serial.WithStart(0))
	refuse("WithStart(10000): want 1 to 9999, the largest sequence that the template prints", serial.WithStart(10_000))
	refuse("WithLast(0): want the first sequence to the largest that the template prints", serial.WithLast(0))
	refuse("WithLast(7): want 8 to 9999", serial.WithLast(7), serial.WithStart(8))
	refuse("WithLast(10000): want 1 to 9999, from the first sequence to the largest that the template prints",
		serial.WithLast(10_000))
	never, hidden := serial.WithPeriod(serial.Never), serial.WithHiddenSequence(hiddenKey)
	template(serial.Never, "{type}-{seq:4:letters}", "{seq:5:letters} or wider", hidden)
	refuse("WithLocation: the location is nil; did time.LoadLocation fail?", serial.WithLocation(nil))
	refuse("WithUntil(1970-01-01T00:00:00Z): want a date, from On or OnDateOf",
		serial.WithUntil(serial.At(time.Unix(0, 0))))
	refuse("the date 2026-06-31 does not exist: want a date of the calendar (WithUntil)",
		serial.WithUntil(serial.On(2026, 6, 31)))
	refuse("option 1 is nil", nil)
	for name, option := range map[string]serial.Option{
		"Retention": serial.WithRetention(1), "Floor": fixedFloor(1), "Replicas": confirmedBy(1),
		"MaxSkew": serial.WithMaxSkew(1), "LockClients": serial.WithLockClients(),
		"Hooks": serial.WithHooks(serial.Hooks{}), "Ledger": serial.WithLedger(nil, 1),
	} {
		require.ErrorContains(t, errOf(serial.NewScheme(option)), "NewScheme: With"+name+" is for a Generator")
	}
	require.ErrorContains(t, errOf(serial.New(rdb, never, serial.WithTemplate("{type}{seq}"), serial.WithRetention(1))),
		"WithRetention(1): Never has one period")
	newScheme(t, serial.WithPeriod(serial.PerWeek)) // a date determines its week
	newScheme(t, serial.WithLast(7), serial.WithStart(7), serial.WithUntil(serial.On(0, 0, 0)),
		serial.WithUntil(auditedDay)) // the last option applies
}

func TestSchemeErrors(t *testing.T) {
	s := newScheme(t, serial.WithStart(100))
	first, last := s.Limits()
	require.Equal(t, []int64{100, 9999}, []int64{first, last})
	for seq, want := range map[int64]string{0: "want 1 to 9999", -1: "want 1 to 9999", 10_000: "numbers exhausted"} {
		n, err := s.Number("IS", auditedDay, seq)
		require.ErrorContains(t, err, want)
		require.Zero(t, n)
	}
	requireSeq(t, 1)(s.Parse("IS202412300001")) // below the start
	require.ErrorIs(t, errOf(s.Number("a b", auditedDay, 1)), serial.ErrInvalidType)
	_, err := newScheme(t, serial.WithTemplate("{type}{date:yyMMdd}{seq}")).Number("IS", serial.On(2100, 1, 1), 1)
	require.ErrorContains(t, err, "the year 2100 cannot be printed as yy")
	_, ok := s.Until()
	require.False(t, ok)
	require.Empty(t, new(serial.Scheme).Calendar(), "no calendar, so gapless refuses the zero Scheme")
}

// Many goroutines use a Scheme at the same time. The race detector must find no data race.
func TestSchemesOfManyGoroutines(t *testing.T) {
	s := newScheme(t, serial.WithPeriod(serial.PerYear), serial.WithTemplate("{type}{date:yyyy dd}{seq:6}{check:damm}"),
		serial.WithHiddenSequence(hiddenKey))
	barrier(t, 8, func(i int) (string, error) {
		for seq := 1; seq <= 200; seq++ {
			n := must(s.Number("IS", serial.On(2024, time.Month(1+i), 1+seq%28), int64(seq)))
			requireResult(t, n)(s.Parse(n.String()))
		}
		return "", nil
	})
}

// Printing a number must allocate only the string. Parsing must allocate only the type as long as the date is the same.
func TestSchemesAllocateLittle(t *testing.T) {
	for _, template := range []string{"{type}{date:yyyyMMdd}{seq:6:base32}", "{type}-{date:d.M.BBBB}-{seq:1+}",
		"{type}-{date:ddMMMyyyy}-{seq:6}{check:731}", "RF{check:97-10}{type}{date:yyyyMMdd}{seq:6}"} {
		s := newScheme(t, serial.WithTemplate(template))
		n := must(s.Number("IS", auditedDay, 4711))
		text := n.String()
		require.EqualValues(t, 1, testing.AllocsPerRun(100, func() { _ = n.String() }), template)
		require.LessOrEqual(t, testing.AllocsPerRun(100, func() { _, _ = s.Parse(text) }), 1.0, template)
	}
}

// With Never, there must be one period in every zone, even if it begins on 31 December 1969. Every date from 1970 to
// 9999 must select it. No number can print that first day, or the last day if the period ends when it begins or before.
func TestPeriodOfNever(t *testing.T) {
	for _, zone := range []int{-10 * 3600, 0, 14 * 3600} {
		for _, template := range []string{"{type}{seq}", "{type}{date:yyyyMMdd}{seq}"} {
			s := newScheme(t, serial.WithPeriod(serial.Never), serial.WithTemplate(template),
				serial.WithLocation(time.FixedZone("", zone)))
			for at, want := range map[serial.When][2]bool{ // whether it is in the period, and can be printed
				serial.At(time.Unix(-1, 0)): {}, serial.At(time.Unix(0, 0)): {true, zone >= 0},
				serial.At(time.Unix(253402214399, 0)): {true, true}, serial.At(time.Unix(253402214400, 0)): {},
				serial.On(1969, time.December, 31): {}, serial.On(1970, time.January, 1): {true, true},
				serial.On(9999, time.December, 31): {true, template == "{type}{seq}" || zone > 0},
			} {
				label, start, _ := s.Period(at)
				audited, numbered := errOf(s.Audit("IS", at, 0, used())) == nil, errOf(s.Number("IS", at, 1)) == nil
				require.Equal(t, []bool{want[0], want[0], want[0], want[1]},
					[]bool{label == "all", start.Unix() == 0, audited, numbered}, "%d %v %s", zone, at, template)
			}
		}
	}
}

// Several schemes can parse a text. The text must be counted by the first scheme that reads it as a number of the
// audited type and period.
func TestWithEarlier(t *testing.T) {
	wide := newScheme(t, serial.WithPeriod(serial.PerYear), serial.WithTemplate("{type}{date:yyyy}{seq:6}"))
	retemplated := func(template string) *serial.Scheme { return must(wide.WithTemplate(template)) }
	narrow, slash := retemplated("{type}{date:yyyy}{seq:4}"), retemplated("{date:yyyy}/{type}/{seq:4}")
	base32, twenty := retemplated("{type}{date:yyyy}{seq:4:base32}"), retemplated("{type}20{date:yyyy}{seq:6}")
	monthly := newScheme(t, serial.WithPeriod(serial.PerMonth), serial.WithTemplate("{type}{date:MMyy}{seq:4}"))
	turned := must(monthly.WithTemplate("{type}{date:yyMM}{seq:4}"))
	type schemes = []*serial.Scheme
	for name, row := range map[string]struct {
		schemes schemes // the audited one first
		texts   string
		want    [6]int64 // of countsOf
	}{
		"changed twice": {schemes{wide, narrow, slash}, "IS20210001 2021/IS/0002 2021-IS-0003", [6]int64{2, 38, 0, 0, 1}},
		"other types and periods, by any scheme": {schemes{wide, narrow, slash},
			"PO20210001 IS20200001 2020/IS/0001 2021/PO/0001 IS2021000001", [6]int64{1, 39, 0, 0, 0, 4}},
		"printed by two": {schemes{wide, narrow}, "IS2021000001 IS20210001 IS20219999", [6]int64{1, 39, 1, 1}},

		// IS20210010 is number 10 or, in base 32, number 32. IS202021000003 is number 3 of type IS20, too.
		"read by two, first narrow":  {schemes{wide, narrow, base32}, "IS20210010 IS2021000010", [6]int64{1, 39, 1}},
		"read by two, first base 32": {schemes{wide, base32, narrow}, "IS20210010 IS2021000032", [6]int64{1, 39, 1}},
		"first reads another type":   {schemes{wide, twenty}, "IS202021000003", [6]int64{1, 39}},
		"first reads another period": {schemes{monthly, turned}, "IS21100001 IS10210002", [6]int64{2, 38}},
	} {
		texts := used(strings.Fields(row.texts)...)
		got := must(row.schemes[0].Audit("IS", auditedDay, 40, texts, serial.WithEarlier(row.schemes[1:]...)))
		require.Equal(t, row.want, countsOf(got), name)
		if name == "printed by two" {
			require.Equal(t, "IS20210001", got.Duplicates[0].String(), "as it was printed")
		}
	}

	// Two schemes read a text as numbers of two periods. AuditAll must count the text once in each of the periods.
	days := newScheme(t, serial.WithTemplate("{type}{date:yyMMdd}{seq:4}"))
	other := must(days.WithTemplate("{type}{date:ddMMyy}{seq:4}"))
	last := []serial.Number{must(days.Parse("IS1211210001")), must(days.Parse("IS2111120001"))}
	got := must(days.AuditAll("IS", last, used("IS1211210001"), serial.WithEarlier(other, days)))
	require.Len(t, got.Periods, 2)
	require.True(t, got.Periods[0].Clean() && got.Periods[1].Clean(), got)
}

// The audited period begins at different instants in several schemes. The numbers of each scheme must count, and so
// must explanations whose start is one of these instants. Another start within the period must be an error.
func TestWithEarlierZoneAndDayStart(t *testing.T) {
	kolkata := newScheme(t, serial.WithLocation(location(t, "Asia/Kolkata")))
	again := must(kolkata.WithTemplate("{type}.{date:yyyyMMdd}.{seq:4}"))
	late := newScheme(t, serial.WithLocation(location(t, "America/Sao_Paulo")), serial.WithDayStart(4*time.Hour),
		serial.WithTemplate("{type}-{date:yyyyMMdd}-{seq:4}"))
	explain := func(start time.Time, seq int64) serial.Explanation {
		return serial.Explanation{Series: "serial:IS", Type: "IS", Start: start, First: seq, Last: seq, Reason: "void",
			At: start.UTC(), Possible: true}
	}
	startOf := func(s *serial.Scheme, day int) time.Time {
		_, start, _ := s.Period(serial.On(2021, time.October, day))
		return start
	}
	var all []serial.Explanation
	for i, s := range []*serial.Scheme{kolkata, late} {
		all = append(all, explain(startOf(s, 24), 10+int64(i)), explain(startOf(s, 22), 20), explain(startOf(s, 26), 30))
	}
	got := must(kolkata.Audit("IS", auditedDay, 40, used("IS202110240001", "IS-20211024-0002", "IS-20211024-0002",
		"IS-20211025-0001"), serial.WithEarlier(late, again), given(all...)))
	require.Equal(t, [6]int64{2, 38, 1, 0, 0, 1}, countsOf(got))
	require.True(t, got.Duplicates[0].Start.Equal(startOf(late, 24)))
	require.True(t, got.Start.Equal(startOf(kolkata, 24)))
	require.Equal(t, []serial.Explanation{withStart(all[0], got.Start), withStart(all[3], got.Start)}, got.Possible)

	_, err := kolkata.Audit("IS", auditedDay, 40, used(), serial.WithEarlier(late), given(explain(got.Start.Add(1), 1)))
	require.ErrorContains(t, err, " lies in the period 2021-10-24, which begins at ")
}

// Some numbers are of a day that the clocks of the audited scheme skipped.
func TestWithEarlierSkippedDay(t *testing.T) {
	apia := newScheme(t, serial.WithLocation(location(t, "Pacific/Apia")))
	last := []serial.Number{must(apia.Number("IS", serial.On(2011, time.December, 29), 1))}
	got := must(apia.AuditAll("IS", last, used("IS201112290001", "IS201112300001"),
		serial.WithEarlier(newScheme(t, serial.WithLocation(time.UTC)))))
	require.True(t, len(got.Periods) == 1 && got.OtherCount == 1, "%+v", got)
}

// Earlier schemes differ in settings that must be equal. The audit must fail before it reads any number.
func TestWithEarlierRefuses(t *testing.T) {
	six, shared := serial.WithTemplate("{type}{date:yyyyMMdd}{seq:6}"), serial.WithSharedCounter()
	key := func(last byte) serial.Option { return serial.WithHiddenSequence(append(make([]byte, 15), last)) }
	quarters, april := options(quarterly.opts...), serial.WithYearStart(time.April, 1)
	const days = `scheme 2 has the key prefix "serial" and the calendar "days": want "serial", "days"` +
		" and the same hidden key and WithSharedCounter, as in the audited scheme"
	for _, row := range []struct {
		audited, earlier []serial.Option
		says             string
	}{
		{nil, options(serial.WithStart(7), serial.WithDayStart(time.Hour), serial.WithLocation(noon())), ""},
		{options(six, key(1)), options(six, key(1)), ""},
		{options(shared), options(six, shared), ""},
		{nil, options(serial.WithKeyPrefix("shop")),
			`scheme 2 has the key prefix "shop" and the calendar "days": want "serial", "days"`},
		{append(quarters, april), quarters, `the calendar "quarters": want "serial", "quarters from April 1"`},
		{options(six, key(1)), options(six, key(2)), days},
		{options(six, key(1)), options(six), days},
		{nil, options(six, shared), days},
	} {
		s := newScheme(t, row.audited...)
		opt := serial.WithEarlier(s, newScheme(t, row.earlier...))
		if row.says == "" {
			require.NoError(t, errOf(s.Audit("IS", auditedDay, 1, used(), opt)))
			continue
		}
		_, err := s.Audit("IS", auditedDay, 1, unread(t), opt)
		require.ErrorContains(t, err, row.says)
		require.EqualError(t, errOf(parser(t, row.audited...).Audit(t.Context(), "IS", auditedDay, unread(t), opt)),
			err.Error())
	}
	s := newScheme(t)
	require.EqualError(t, errOf(s.Audit("IS", auditedDay, 1, used(), serial.WithEarlier(s), serial.WithEarlier(s, nil))),
		"serial: WithEarlier: scheme 3 is nil")
	require.ErrorContains(t, errOf(s.Audit("IS", auditedDay, 1, used(), serial.WithEarlier(new(serial.Scheme)))),
		`serial: WithEarlier: scheme 1 has the key prefix ""`)
}

// WithTemplate returns a scheme that must keep the key of the hidden sequence, so that numbers of the old template can
// be parsed, and every other setting except WithLast.
func TestSchemeWithTemplate(t *testing.T) {
	opts := options(serial.WithHiddenSequence(make([]byte, 16)), serial.WithKeyPrefix("shop"), serial.WithStart(5),
		serial.WithDayStart(4*time.Hour), serial.WithLocation(noon()), serial.WithPeriod(serial.PerMonth))
	s := newScheme(t, append(opts, serial.WithTemplate("{type}-{date:yyyyMM}-{seq:8}"), serial.WithLast(9))...)
	want := newScheme(t, append(opts, serial.WithTemplate("{date:yyMM}{type}{seq:6}"))...)
	got := must(s.WithTemplate("{date:yyMM}{type}{seq:6}"))
	require.Equal(t, textOfSeq(t, want, auditedDay, 7), textOfSeq(t, got, auditedDay, 7))
	require.Regexp(t, "^IS-202110-[0-9]{8}$", textOfSeq(t, s, auditedDay, 7), "it does not change")
	requireSeq(t, 7)(got.Parse(textOfSeq(t, got, auditedDay, 7)))
	first, last := got.Limits()
	require.Equal(t, []int64{5, 999_999}, []int64{first, last})
	require.Equal(t, want.PrintMark(), got.PrintMark())
	for text, says := range map[string]string{
		"{type}{date:yyyyMM}{seq:4}": "WithHiddenSequence: the template has 9999 sequences",
		"{type}{seq:6}":              "{date} is missing",
	} {
		got, err := s.WithTemplate(text)
		require.ErrorContains(t, err, says)
		require.Nil(t, got)
	}
	require.EqualError(t, errOf(newScheme(t, serial.WithStart(100)).WithTemplate("{type}{date:yyyyMMdd}{seq:2}")),
		"serial: WithStart(100): want 1 to 99, the largest sequence that the template prints")
	require.ErrorContains(t, errOf(new(serial.Scheme).WithTemplate("{type}{seq}")), "WithPeriod(Period(0))")
}
