package serial_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/dailyserial/serial"
)

type yearStart struct {
	month time.Month
	day   int
}

var yearStarts = []yearStart{
	{time.January, 1}, {time.February, 15}, {time.April, 1}, {time.April, 6}, {time.July, 1}, {time.October, 1},
	{time.December, 28},
}

func newScheme(t testing.TB, opts ...serial.Option) *serial.Scheme {
	t.Helper()
	s, err := serial.NewScheme(append([]serial.Option{serial.WithLocation(time.UTC)}, opts...)...)
	require.NoError(t, err)
	return s
}

var hiddenKey = []byte("0123456789abcdef")

// Every refusal names the option or the token, the reason and a remedy. New refuses whatever NewScheme refuses.
func TestTemplatesRefused(t *testing.T) {
	rdb := closing(t, redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"}))
	refuse := func(want string, opts ...serial.Option) {
		t.Helper()
		s, err := serial.NewScheme(opts...)
		require.ErrorContains(t, err, want)
		require.Regexp(t, "^serial: ", err.Error())
		require.Nil(t, s)
		require.Equal(t, err.Error(), fmt.Sprint(errOf(serial.New(rdb, opts...))))
	}
	refuseTemplate := func(per serial.Period, template, want string, opts ...serial.Option) {
		t.Helper()
		refuse(want, append(opts, serial.WithPeriod(per), serial.WithTemplate(template))...)
	}
	date := func(layout string) string { return "{type}{date:" + layout + "}-{seq}" }

	// The fields.
	const fields = "; want {type}, {date:LAYOUT}, {seq:WIDTH} and {check:ALGORITHM}, each once"
	for template, want := range map[string]string{
		"":                                  "{seq} is missing" + fields,
		"{date:yyyyMMdd}{seq}":              "{type} is missing" + fields,
		"{type}{seq}":                       "{date} is missing; only numbers of Never need none",
		"{type}{date:yyyyMMdd}":             "{seq} is missing" + fields,
		"{type}{type}{date:yyyyMMdd}{seq}":  "{type} appears twice" + fields,
		"{type}{date:yyyyMM}{date:dd}{seq}": "{date} appears twice" + fields,
		"{type}{date:yyyyMMdd}{seq}{seq:5}": "{seq} appears twice" + fields,
		"{type}{day}{date:yyyyMMdd}{seq}":   "unknown field {day}" + fields,
		"{type:3}{date:yyyyMMdd}{seq}":      "unknown field {type:3}" + fields,
		"{TYPE}{date:yyyyMMdd}{seq}":        "unknown field {TYPE}" + fields,
		"{type}{date:yyyyMMdd}{seq":         "the field {seq is not closed; write {{ for a brace",
		"{type}}{date:yyyyMMdd}{seq}":       "a single } at byte 6; write }} for a brace",
		"\xff{type}{date:yyyyMMdd}{seq}":    "not valid UTF-8",
		"{type}{date:yyyyMMdd}{seq:4}" + strings.Repeat("-", 229): "it has 257 bytes; want up to 256",
	} {
		refuseTemplate(serial.PerDay, template, want)
	}

	// The sequence.
	for _, width := range []string{"0", "16", "04", "+4", "", "x", "+", "4++"} {
		refuseTemplate(serial.PerDay, "{type}{date:yyyyMMdd}-{seq:"+width+"}",
			fmt.Sprintf("width %q; want 1 to 15, followed by + for a sequence that may grow wider", width))
	}
	for _, template := range []string{"{type}{date:yyyyMMdd}{seq:4+}", "{date:yyyyMMdd}{type}{seq:4+}",
		"{type}{date:yyyyMMdd}-1{seq:4+}", "{type}{date:yyyyMMdd}-٣{seq:4+}"} {
		refuseTemplate(serial.PerDay, template,
			"{seq:4+}: a sequence that may grow needs a literal right before it that does not end in a digit, such as -")
	}
	for _, template := range []string{"{date:yyyyMMdd}-{seq:4+}{type}", "{type}-{seq:4+}{date:yyyyMMdd}",
		"{type}{date:yyyyMMdd}-{seq:4+}1"} {
		refuseTemplate(serial.PerDay, template, "{seq:4+}: a sequence that may grow needs a literal right after it that "+
			"does not begin with a digit, such as -, or the end of the template")
	}

	// The date.
	const tokens = "; want yyyy, yy, BBBB, BB, MM, M, MMM, Mmm, R, dd, d, DDD, GGGG, GG, WW, FFFF, FF, EEEE, EE, S, Q, " +
		"HH, mm, ss, separators and 'quoted text'"
	for layout, unknown := range map[string]string{
		"yyyyMMMMdd": `"MMMM"`, "yyyy-MM-ddd": `"ddd"`, "yyyyyMMdd": `"yyyyy"`, "YYMMdd": `"YY"`, "yyyyMMddww": `"ww"`,
		"FFFF-QQ": `"QQ"`, "yyyyMMddhh": `"hh"`, "yyyy-MM-ddT": `"T"`,
	} {
		refuseTemplate(serial.PerDay, date(layout), "unknown date token "+unknown+tokens)
	}
	for layout, want := range map[string]string{
		"yyyy1MMdd":  `"1" in a date layout` + tokens + " (separators are all but ASCII letters, digits and braces)",
		"yyyy{MMdd":  `"{" in a date layout` + tokens + " (separators are all but ASCII letters, digits and braces)",
		"yyyyMd":     "M, which has no padding, needs a literal right before it that does not end in a digit, such as -",
		"yyyy'MMdd":  "the quote in 'MMdd is not closed; write '' for a quote",
		"MMdd":       "the calendar year (yyyy or yy) is missing: numbers of different days would read the same; print",
		"yyyydd":     "the month (MM) is missing: numbers of different days would read the same; print yyyyMMdd",
		"yyyyMM":     "the day (dd) is missing: numbers of different days would read the same; print yyyyMMdd",
		"yyyymmdd":   `different days would read the same, and "mm" is the minute; print yyyyMMdd`,
		"yyyyMMddyy": "the calendar year (yyyy or yy) appears twice",
		"yyyyMMddMM": "the month (MM) appears twice",
		"yyyyMMddDD": "the day (dd) appears twice",
	} {
		refuseTemplate(serial.PerDay, date(layout), want)
	}
	refuseTemplate(serial.PerDay, "{type}{date}{seq}", "it prints nothing of the date: the calendar year (yyyy or yy) is")
	refuseTemplate(serial.Never, "{type}{date:}{seq}", "it prints nothing of the date")
	refuseTemplate(serial.Never, "{type}{date:-}{seq}", "it prints nothing of the date")

	// A date that names other periods may be intended.
	for layout, per := range map[string]string{
		"yyyyMM": "PerMonth", "yy/MM": "PerMonth", "FFFF": "PerYear", "GGGG-WW": "PerWeek", "FFFF-Q": "PerQuarter",
		"FFFF-'H'S": "PerHalfYear", "yyyy/M": "PerMonth",
	} {
		refuseTemplate(serial.PerDay, date(layout), "; print yyyyMMdd, or use WithPeriod("+per+") (WithTemplate)")
	}
	refuseTemplate(serial.PerHour, date("yyyy-DDD"), "; print yyyyMMddHH, or use WithPeriod(PerDay) (WithTemplate)")
	refuseTemplate(serial.PerDay, "{type}{seq}", "numbers of Never need none, or use WithPeriod(Never) (WithTemplate)")
	for _, layout := range []string{"yyyyMMss", "yyyy-WW", "MMdd", "MM"} { // these name no periods
		_, err := serial.NewScheme(serial.WithTemplate(date(layout)))
		require.Error(t, err)
		require.NotContains(t, err.Error(), "WithPeriod", layout)
	}

	// The date must distinguish periods.
	april1, april6 := serial.WithYearStart(time.April, 1), serial.WithYearStart(time.April, 6)
	fourAM, hidden := serial.WithDayStart(4*time.Hour), serial.WithHiddenSequence(hiddenKey)
	notApart := func(per serial.Period, units, layout, more string, opts ...serial.Option) {
		t.Helper()
		refuseTemplate(per, date(layout), layout+" does not tell "+units+" apart"+more, opts...)
	}
	notApart(serial.PerWeek, "weeks", "yyyy", ": 2024 is printed for 1 January 2024 and for 8 January 2024; print GGGG-WW")
	notApart(serial.PerWeek, "weeks", "yyyyWW",
		": 202401 is printed for 1 January 2024 and for 30 December 2024; print GGGG-WW")
	refuseTemplate(serial.PerWeek, date("YYYY-WW"),
		"YYYY beside weeks: elsewhere it is the week year; print GGGG for that, or yyyy for the calendar year")
	refuseTemplate(serial.PerWeek, date("YYYYMMdd"), "YYYY beside weeks")
	notApart(serial.PerWeek, "weeks", "WW", "")
	notApart(serial.PerMonth, "months", "FFFFMM",
		": 202404 is printed for 6 April 2024 and for 1 April 2025; print yyyyMM", april6)
	notApart(serial.PerMonth, "months", "GGGGMM", "")
	notApart(serial.PerYear, "years", "yyyyMM",
		": 202404 is printed for 1 April 2024 and for 6 April 2024; print FFFF", april6)
	notApart(serial.PerYear, "years", "yyyy",
		": 2024 is printed for 1 January 2024 and for 1 April 2024; print FFFF", april1)
	refuseTemplate(serial.PerYear, date("MM"), "print FFFF", april1)
	refuseTemplate(serial.PerYear, date("MM"),
		"the calendar year (yyyy or yy) is missing: numbers of different years would read the same; print yyyy")
	notApart(serial.PerYear, "years", "GGGG", "")
	notApart(serial.PerQuarter, "quarters", "yyyyMM", "", april6)
	notApart(serial.PerQuarter, "quarters", "yyyyQ", " in every calendar; print FFFF-Q", april1)
	notApart(serial.PerQuarter, "quarters", "yyyyQ", ": ", april6)
	notApart(serial.PerQuarter, "quarters", "FFFF", "")
	notApart(serial.PerHalfYear, "half-years", "FFFF", "")
	notApart(serial.PerHalfYear, "half-years", "yyyyMM", "", april6)
	notApart(serial.PerHalfYear, "half-years", "yyyyS", "", april1)
	notApart(serial.PerQuarter, "quarters", "FFFFS", "")
	notApart(serial.PerDay, "days", "FFFFDDD", ": 2027091 is printed for 1 April 2027 and for 31 March 2028", april1)
	notApart(serial.PerDay, "days", "GGGGMMdd", "")
	refuseTemplate(serial.PerHour, date("yyyyDDD"),
		"the hour (HH) is missing: numbers of different hours would read the same; print yyyyMMddHH")
	refuseTemplate(serial.PerMinute, date("GGGGWWddmm"), "the hour (HH) is missing")
	notApart(serial.PerSecond, "days", "DDDHHmmss", "")
	refuseTemplate(serial.PerDay, date("yyyyMMddHH"),
		"HH: with a day start, the date is the business day, which has no hours", fourAM)
	refuseTemplate(serial.PerYear, date("yyyymm"), "mm: with a day start", fourAM)
	refuseTemplate(serial.Never, date("ss"), "WithDayStart: Never has no days", fourAM)
	refuseTemplate(serial.PerWeek, date("GGGG-WW-GGGG"), "the week year (GGGG or GG) appears twice")
	const hour = "the hour (HH) is missing: numbers of different "
	for per, c := range map[serial.Period][2]string{serial.PerSecond: {"seconds", "yyyyMMddHHmmss"},
		serial.PerMinute: {"minutes", "yyyyMMddHHmm"}, serial.PerHour: {"hours", "yyyyMMddHH"}} {
		refuse(hour+fmt.Sprintf(`%s would read the same; print %s; %v needs a template of its own, `+
			`such as "{type}{date:%s}{seq:4}"`, c[0], c[1], per, c[1]), serial.WithPeriod(per))
	}
	refuse(hour+"hours", serial.WithTemplate(date("yyyyMMdd")), serial.WithPeriod(serial.PerHour)) // in either order
	refuse(hour+"hours", serial.WithPeriod(serial.PerHour), serial.WithTemplate(date("yyyyMMdd")))
	refuseTemplate(serial.PerSecond, date("yyyyMMddHHmm"), "the second (ss) is missing: numbers of different seconds")
	refuseTemplate(serial.PerHour, date("yyyyMMddHH"), "WithDayStart: PerHour has no days; want PerDay, PerWeek, "+
		"PerMonth, PerQuarter, PerHalfYear and PerYear", serial.WithDayStart(time.Hour))

	// The alphabet and the check digit.
	for template, want := range map[string]string{
		"{type}-{seq:4+:base32}":               "a sequence in base32 cannot grow; only a decimal one can",
		"{type}-{seq:10:base32}":               `width "10"; want 1 to 9`,
		"{type}-{seq:0:base36}":                `width "0"; want 1 to 9`,
		"{type}-{seq:4:base64}":                `unknown alphabet "base64"; want base32, base36 and letters`,
		"{type}-{seq:4:}":                      `unknown alphabet ""`,
		"{type}-{seq::base32}":                 `width ""; want`,
		"{type}-{seq}{check:luhn}{check:damm}": "{check} appears twice",
		"{type}-{seq}{check:crc}":              `"crc"; want luhn, damm, gs1, 11-10, 97-10, 37-36, 731, be97, 10r`,
		"{type}-{seq}{check}":                  `unknown check digit ""`,
		"{type}-{seq}{check:Luhn}":             `unknown check digit "Luhn"`,
		"{type}-{seq}{check:97-1}":             `unknown check digit "97-1"`,
		"{type}-{seq:4:base32}{check:luhn}":    "digits only, and the sequence is printed in base32; want 97-10 and",
		"{check:damm}{type}-{seq:4:base36}":    "{check:damm} covers digits only",
		"{type}-{seq:4:base36}{check:gs1}":     "{check:gs1} covers digits only",
		"{type}-{seq:4:base36}{check:11-10}":   "{check:11-10} covers digits only",
		"{type}-{seq:4:letters}{check:731}":    "{check:731} covers digits only, and the sequence is printed in letters",
		"{type}-{seq:4:base32}{check:be97}":    "{check:be97} covers digits only",
		"{type}-{seq:4:base36}{check:10r}":     "{check:10r} covers digits only",
		"{type}-{seq:3+:letters}":              "a sequence in letters cannot grow",
		"{type}-{seq:10:letters}":              `width "10"; want 1 to 9`,
	} {
		refuseTemplate(serial.Never, template, want)
	}

	// Other options.
	refuseTemplate(serial.Never, "{type}-{seq:5}",
		"WithHiddenSequence: the template has 99999 sequences; want a million or more", hidden)
	refuseTemplate(serial.Never, "{type}-{seq:3:base32}", "WithHiddenSequence", hidden)
	refuseTemplate(serial.Never, "{type}-{seq:3:base36}", "WithHiddenSequence", hidden)
	refuseTemplate(serial.Never, "{type}-{seq:4:letters}", "{seq:5:letters} or wider", hidden)
	refuseTemplate(serial.Never, "{type}-{seq:6+}", "without +", hidden)
	const yearStart = "; want January to December, and days 1 to 28"
	const periods = ": want PerSecond, PerMinute, PerHour, PerDay, PerWeek, PerMonth, PerQuarter, PerHalfYear, PerYear " +
		"and Never"
	refuse("WithHiddenSequence: a key of 15 bytes; want 16, 24 and 32", serial.WithHiddenSequence(make([]byte, 15)))
	refuse("WithHiddenSequence: a key of 0 bytes", serial.WithHiddenSequence(nil))
	refuse("WithYearStart: month 4, day 29"+yearStart, serial.WithYearStart(time.April, 29))
	refuse("WithYearStart: month 2, day 29"+yearStart, serial.WithYearStart(time.February, 29))
	refuse("WithYearStart: month 0, day 1"+yearStart, serial.WithYearStart(0, 1))
	refuse("WithYearStart: month 13, day 1"+yearStart, serial.WithYearStart(13, 1))
	refuse("WithYearStart: month 5, day 0"+yearStart, serial.WithYearStart(time.May, 0))
	refuse("WithPeriod(Period(0))"+periods, serial.WithPeriod(0))
	refuse("WithPeriod(Period(11))"+periods, serial.WithPeriod(serial.PerHalfYear+1))
	refuse("WithDayStart(-1s): want whole seconds from 0 to less than 24h", serial.WithDayStart(-time.Second))
	refuse("WithDayStart(24h0m0s): want whole seconds from 0 to less than 24h", serial.WithDayStart(24*time.Hour))
	refuse("WithDayStart(1ms): want whole seconds from 0 to less than 24h", serial.WithDayStart(time.Millisecond))
	refuse("WithStart(0): want 1 to the largest sequence that the template prints", serial.WithStart(0))
	refuse("WithStart(10000): the template prints sequences up to 9999; want 1 to that", serial.WithStart(10_000))
	refuse("WithLocation: the location is nil", serial.WithLocation(nil))
	refuse(`WithKeyPrefix(""): empty; want 1 to 64 bytes`, serial.WithKeyPrefix(""))
	refuse(`WithKeyPrefix("a:b"): it has ':' (U+003A); want letters, digits and - _ . /`,
		serial.WithKeyPrefix("a:b"))
	refuse(`aaa"): 65 bytes; want 1 to 64`, serial.WithKeyPrefix(strings.Repeat("a", 65)))
	refuse("option 1 is nil", nil)
	for name, option := range map[string]serial.Option{
		"WithRetention": serial.WithRetention(1), "WithFloor": fixedFloor(1), "WithReplicas": confirmedBy(1),
		"WithMaxSkew": serial.WithMaxSkew(1), "WithLockClients": serial.WithLockClients(),
		"WithHooks": serial.WithHooks(serial.Hooks{}), "WithLedger": serial.WithLedger(nil, 1),
	} {
		require.ErrorContains(t, errOf(serial.NewScheme(option)), "NewScheme: "+name+" is for a Generator")
	}

	for _, c := range []struct {
		per      serial.Period
		template string
	}{
		{serial.PerYear, date("FFFF-FF")}, {serial.PerYear, date("EEEE EE")}, {serial.PerWeek, date("GGGG GG WW")},
		{serial.PerYear, date("FFFF-EE")}, {serial.Never, "{type}-{seq}"}, {serial.Never, date("ss")},
		{serial.PerDay, date("YYYYMMDD")}, {serial.PerMonth, date("yyyyMMddHHmmss")},
		{serial.PerYear, "{type}{date:yyyy}{seq:9:base36}{check:37-36}"}, {serial.PerWeek, date("yyyyMMdd")},
		{serial.PerQuarter, date("yyyyMM")}, {serial.PerHalfYear, date("yyyyMM")}, {serial.PerHalfYear, date("yyyyS")},
		{serial.PerHalfYear, date("FFFFQ")}, {serial.PerDay, "{seq:4+}-{type}{date:yyyyMMdd}"},
		{serial.PerHalfYear, "{type}{date:yyyyMMdd}{seq}"},
	} {
		newScheme(t, serial.WithPeriod(c.per), serial.WithTemplate(c.template))
	}
	require.NoError(t, errOf(serial.NewScheme(serial.WithPeriod(serial.PerWeek)))) // a date determines its week
}

func TestSchemeErrors(t *testing.T) {
	at := time.Date(2024, 12, 30, 12, 0, 0, 0, time.UTC)
	s := newScheme(t, serial.WithStart(100))
	first, last := s.Limits()
	require.Equal(t, []int64{100, 9999}, []int64{first, last})
	for seq, want := range map[int64]string{0: "want 1 to 9999", -1: "want 1 to 9999",
		10_000: "numbers exhausted"} {
		n, err := s.Number("IS", serial.At(at), seq)
		require.ErrorContains(t, err, want)
		require.Zero(t, n)
	}
	n, err := s.Parse("IS202412300001") // below the start
	require.NoError(t, err)
	require.Equal(t, int64(1), n.Seq)
	for _, at := range []time.Time{time.Unix(-1, 0), time.Unix(253402300800, 0), {}, time.Unix(1<<40, 0)} {
		require.Error(t, errOf(s.Number("IS", serial.At(at), 1)), "%v", at)
		never := newScheme(t, serial.WithPeriod(serial.Never), serial.WithTemplate("{type}{seq}"))
		require.ErrorContains(t, errOf(never.Number("IS", serial.At(at), 1)),
			"want 1970 to 9999, and with Never only before 9999-12-31T00:00:00Z")
	}
	require.ErrorIs(t, errOf(s.Number("a b", serial.At(at), 1)), serial.ErrInvalidType)
	_, err = newScheme(t, serial.WithTemplate("{type}{date:yyMMdd}{seq}")).Number("IS",
		serial.At(time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC)), 1)
	require.ErrorContains(t, err, "the year 2100 cannot be printed as yy")
}

// Many goroutines use a Scheme at once. Run with -race.
func TestSchemesOfManyGoroutines(t *testing.T) {
	s := newScheme(t, serial.WithPeriod(serial.PerYear), serial.WithTemplate("{type}{date:yyyy dd}{seq:6}{check:damm}"),
		serial.WithHiddenSequence(hiddenKey))
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for seq := int64(1); seq <= 200; seq++ {
				n, err := s.Number("IS", serial.At(time.Date(2024, time.Month(1+i), 1+int(seq)%28, 0, 0, 0, 0, time.UTC)), seq)
				back, wrong := s.Parse(n.String())
				if err != nil || wrong != nil || n != back {
					t.Error(n, back, err, wrong)
					return
				}
			}
		})
	}
	wg.Wait()
}

// Printing allocates only the string, and parsing only the type while the date stays; check digits and alphabets
// allocate nothing more.
func TestSchemesAllocateLittle(t *testing.T) {
	for template, most := range map[string]float64{
		"{type}{date:yyyyMMdd}{seq:6}": 1, "{type}{date:yyyyMMdd}{seq:6:base32}": 1,
		"{type}-{date:d.M.BBBB}-{seq:1+}": 1, "{type}-{date:d/R/yyyy}-{seq:6:letters}": 1,
		"{type}-{date:ddMMMyyyy}-{seq:6}{check:731}": 1, "{type}-{date:yyyyMMdd}-{seq:6}{check:be97}": 1,
		"{type}{date:yyyyMMdd}{seq:6}{check:10r}":  1,
		"{type}{date:yyyyMMdd}{seq:6}{check:luhn}": 1, "{type}{date:yyyyMMdd}{seq:6}{check:damm}": 1,
		"{type}{date:yyyyMMdd}{seq:6:base36}{check:37-36}": 1, "RF{check:97-10}{type}{date:yyyyMMdd}{seq:6}": 1,
	} {
		s := newScheme(t, serial.WithTemplate(template))
		n, err := s.Number("IS", serial.At(time.Date(2024, 12, 30, 12, 0, 0, 0, time.UTC)), 4711)
		require.NoError(t, err)
		text := n.String()
		require.EqualValues(t, 1, testing.AllocsPerRun(100, func() { _ = n.String() }), template)
		require.LessOrEqual(t, testing.AllocsPerRun(100, func() { _, _ = s.Parse(text) }), most, template)
	}
}

// Instants outside the years 1970 to 9999 cause errors at once, however distant, even in zones with rules.
func TestFarInstants(t *testing.T) {
	t.Parallel()
	far := []time.Time{time.Unix(time.Now().UnixNano(), 0), time.Unix(1<<62, 0), time.Unix(-1<<62, 0),
		time.Unix(253402300800+48*3600, 0), time.Unix(-48*3600, 0), {}}
	for _, zone := range []string{"UTC", "America/New_York", "Europe/Berlin", "Pacific/Apia", "Asia/Gaza"} {
		for per := serial.PerSecond; per <= serial.PerHalfYear; per++ {
			s := newScheme(t, serial.WithPeriod(per), serial.WithLocation(location(t, zone)),
				serial.WithTemplate("{type}{date:yyyyMMddHHmmssGGGGWWFFFFQ}{seq}"))
			for _, at := range far {
				name := fmt.Sprint(per, zone, at.Unix())
				require.ErrorContains(t, errOf(s.Number("IS", serial.At(at), 1)), "want 1970 to", name)
				_, _, err := s.Span(serial.At(at))
				require.ErrorContains(t, err, "want 1970 to", name)
				_, err = s.Audit("IS", serial.At(at), 1, func(func(string, error) bool) {})
				require.ErrorContains(t, err, "want 1970 to", name)
				label, start, end := s.Period(serial.At(at))
				require.Zero(t, label, name)
				require.True(t, start.IsZero() && end.IsZero(), name)
			}
		}
	}
}

// The date in the zone decides; with a day start, the business day does.
func TestFirstAndLastInstants(t *testing.T) {
	for _, c := range []struct {
		at   string
		opts []serial.Option
		ok   bool
	}{
		{"1970-01-01T00:00:00Z", nil, true},
		{"1969-12-31T23:59:59Z", nil, false},
		{"9999-12-31T23:59:59Z", nil, true},
		{"1970-01-01T00:00:00Z", []serial.Option{serial.WithLocation(time.FixedZone("", -3600))}, false},
		{"1969-12-31T23:00:00Z", []serial.Option{serial.WithLocation(time.FixedZone("", 3600))}, true},
		{"9999-12-31T23:00:00Z", []serial.Option{serial.WithLocation(time.FixedZone("", 3600))}, false},
		{"1970-01-01T03:59:59Z", []serial.Option{serial.WithDayStart(4 * time.Hour)}, false},
		{"1970-01-01T04:00:00Z", []serial.Option{serial.WithDayStart(4 * time.Hour)}, true},
	} {
		at, err := time.Parse(time.RFC3339, c.at)
		require.NoError(t, err)
		s := newScheme(t, append([]serial.Option{serial.WithLocation(time.UTC)}, c.opts...)...)
		_, err = s.Number("IS", serial.At(at), 1)
		require.Equal(t, c.ok, err == nil, "%s: %v", c.at, err)
		label, _, _ := s.Period(serial.At(at))
		require.Equal(t, c.ok, label != "", c.at)
	}
}

// The one period of Never is the same in every zone, even where it begins on 31 December 1969.
func TestPeriodOfNever(t *testing.T) {
	for _, east := range []int{-3600, 0, 3600} {
		s := newScheme(t, serial.WithPeriod(serial.Never), serial.WithTemplate("{type}{seq}"),
			serial.WithLocation(time.FixedZone("", east)))
		for at, want := range map[int64]string{-1: "", 0: "all", 7200: "all", 253402214399: "all", 253402214400: ""} {
			label, start, _ := s.Period(serial.At(time.Unix(at, 0)))
			require.Equal(t, want, label, "%d at %d", east, at)
			require.Equal(t, want == "", start.IsZero(), "%d at %d", east, at)
			none := func(func(string, error) bool) {}
			require.Equal(t, want == "", errOf(s.Audit("IS", serial.At(time.Unix(at, 0)), 0, none)) != nil, "%d at %d", east, at)
			if want == "" || at == 0 && east < 0 {
				require.Error(t, errOf(s.Number("IS", serial.At(time.Unix(at, 0)), 1)), "%d at %d", east, at)
			}
		}
	}
}

// The zero Scheme has no calendar, and gapless refuses it.
func TestCalendarOfNoScheme(t *testing.T) {
	require.Empty(t, new(serial.Scheme).Calendar())
}

// Periods in words. Neither a day start nor a missing midnight changes the name.
func TestPeriodName(t *testing.T) {
	in := func(p serial.Period, date string, more ...serial.Option) []serial.Option {
		return append(more, serial.WithPeriod(p), serial.WithTemplate("{type}"+date+"{seq:4}"))
	}
	santiago, err := time.LoadLocation("America/Santiago")
	require.NoError(t, err)
	april := serial.WithYearStart(time.April, 6)
	night := serial.WithDayStart(4 * time.Hour)
	noon := time.Date(2021, 10, 24, 12, 30, 15, 0, time.UTC)
	for _, test := range []struct {
		want string
		at   time.Time
		opts []serial.Option
	}{
		{"24 October 2021", noon, nil},
		{"23 October 2021", noon, options(serial.WithDayStart(13 * time.Hour))},
		{"24 October 2021, 12:00 to 13:00", noon, in(serial.PerHour, "{date:yyyyMMddHH}")},
		{"24 October 2021, 12:30 to 12:31", noon, in(serial.PerMinute, "{date:yyyyMMddHHmm}")},
		{"24 October 2021, 12:30:15 to 12:30:16", noon, in(serial.PerSecond, "{date:yyyyMMddHHmmss}")},
		{"October 2021", noon, in(serial.PerMonth, "{date:yyyyMM}")},
		{"September 2021", time.Date(2021, 10, 1, 3, 0, 0, 0, time.UTC), in(serial.PerMonth, "{date:yyyyMM}", night)},
		{"week 42 of 2021", noon, in(serial.PerWeek, "{date:GGGGWW}")},
		{"week 53 of 2020", time.Date(2021, 1, 1, 12, 0, 0, 0, time.UTC), in(serial.PerWeek, "{date:GGGGWW}")},
		{"quarter 4 of 2021", noon, in(serial.PerQuarter, "{date:yyyyQ}")},
		{"quarter 3 of business year 2021", noon, in(serial.PerQuarter, "{date:FFFFQ}", april)},
		{"half-year 2 of 2021", noon, in(serial.PerHalfYear, "{date:yyyyS}")},
		{"half-year 2 of business year 2021", noon, in(serial.PerHalfYear, "{date:FFFFS}", april)},
		{"2021", noon, in(serial.PerYear, "{date:yyyy}")},
		{"business year 2020", time.Date(2021, 4, 5, 12, 0, 0, 0, time.UTC), in(serial.PerYear, "{date:FFFF}", april)},
		{"all time", noon, in(serial.Never, "")},
		{"11 September 2022", time.Date(2022, 9, 11, 12, 0, 0, 0, santiago), options(serial.WithLocation(santiago))},
		{"", time.Date(1969, 1, 1, 0, 0, 0, 0, time.UTC), nil},
	} {
		scheme, err := serial.NewScheme(append(options(serial.WithLocation(time.UTC)), test.opts...)...)
		require.NoError(t, err, test.want)
		require.Equal(t, test.want, scheme.PeriodName(serial.At(test.at)))
	}
}

// A business date is the date that a template with year, month and day prints, also where clocks skip a date or a day
// begins late.
func TestBusinessDate(t *testing.T) {
	for _, zone := range []string{"UTC", "America/Sao_Paulo", "Asia/Kolkata", "Pacific/Apia"} {
		loc, err := time.LoadLocation(zone)
		require.NoError(t, err)
		for _, period := range []serial.Period{serial.PerHour, serial.PerDay, serial.PerWeek, serial.PerYear, serial.Never} {
			for _, start := range []time.Duration{0, 4 * time.Hour, 24*time.Hour - time.Second} {
				layout := "yyyy-MM-dd"
				if period == serial.PerHour {
					layout += "'T'HH"
				}
				opts := []serial.Option{serial.WithLocation(loc), serial.WithPeriod(period),
					serial.WithTemplate("{date:" + layout + "}-{type}{seq:4}")}
				if period != serial.PerHour && period != serial.Never {
					opts = append(opts, serial.WithDayStart(start))
				}
				s := newScheme(t, opts...)
				for _, from := range []time.Time{time.Date(2011, time.December, 27, 0, 0, 0, 0, loc),
					time.Date(2018, time.November, 2, 0, 0, 0, 0, loc), time.Date(2024, time.February, 28, 0, 0, 0, 0, loc)} {
					for at := from; at.Before(from.AddDate(0, 0, 5)); at = at.Add(30*time.Minute - time.Second) {
						n, err := s.Number("IS", serial.At(at), 1)
						require.NoError(t, err)
						date := s.BusinessDate(serial.At(at))
						require.Equal(t, n.String()[:10], date.String(), "%v %v %v %v", zone, period, start, at)
						if period != serial.PerHour {
							require.Contains(t, []serial.When{date, {}}, s.BusinessDate(date)) // Apia's 30th names no day
						}
					}
				}
			}
		}
	}
	hours := newScheme(t, serial.WithPeriod(serial.PerHour), serial.WithTemplate("{type}{date:yyyyMMddHH}{seq}"))
	require.Zero(t, hours.BusinessDate(serial.On(2021, time.October, 24)))
	days := newScheme(t)
	for _, w := range []serial.When{{}, serial.On(2021, time.June, 31), serial.On(1969, time.December, 31),
		serial.At(time.Date(1969, time.December, 31, 12, 0, 0, 0, time.UTC))} {
		require.Zero(t, days.BusinessDate(w), "%v", w)
	}
}
