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
		"":                     "{seq} is missing" + fields,
		"{date:yyyyMMdd}{seq}": "{type} is missing" + fields,
		"{type}{seq:3}": "{date} is missing; only numbers of Never need none; to leave the day out, use a template that " +
			"prints it, print each number yourself from Type and Seq, and keep the day beside it (WithTemplate)",
		"{type}{date:yyyyMMdd}":                                   "{seq} is missing" + fields,
		"{type}{type}{date:yyyyMMdd}{seq}":                        "{type} appears twice" + fields,
		"{type}{date:yyyyMM}{date:dd}{seq}":                       "{date} appears twice" + fields,
		"{type}{date:yyyyMMdd}{seq}{seq:5}":                       "{seq} appears twice" + fields,
		"{type}{day}{date:yyyyMMdd}{seq}":                         "unknown field {day}" + fields,
		"{type:3}{date:yyyyMMdd}{seq}":                            "unknown field {type:3}" + fields,
		"{TYPE}{date:yyyyMMdd}{seq}":                              "unknown field {TYPE}" + fields,
		"{type}{date:yyyyMMdd}{seq":                               "the field {seq is not closed; write {{ for a brace",
		"{type}}{date:yyyyMMdd}{seq}":                             "a single } at byte 6; write }} for a brace",
		"\xff{type}{date:yyyyMMdd}{seq}":                          "not valid UTF-8",
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
	refuseTemplate(serial.PerMonth, "{type}{seq}", "need none; to leave the month out, use a template that prints it, "+
		"print each number yourself from Type and Seq, and keep the month beside it (WithTemplate)") // Never would not do
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
		"PerMonth, PerQuarter, PerHalfYear or PerYear", serial.WithDayStart(time.Hour))

	// The alphabet and the check digit.
	for template, want := range map[string]string{
		"{type}-{seq:4+:base32}":               "a sequence in base32 cannot grow; only a decimal one can",
		"{type}-{seq:10:base32}":               `width "10"; want 1 to 9`,
		"{type}-{seq:0:base36}":                `width "0"; want 1 to 9`,
		"{type}-{seq:4:base64}":                `unknown alphabet "base64"; want base32, base36, alpha or letters`,
		"{type}-{seq:4:}":                      `unknown alphabet ""`,
		"{type}-{seq::base32}":                 `width ""; want`,
		"{type}-{seq}{check:luhn}{check:damm}": "{check} appears twice",
		"{type}-{seq}{check:crc}":              `"crc"; want luhn, damm, gs1, 11-10, 97-10, 37-36, 731, be97, 10r, 11, s10`,
		"{type}-{seq}{check}":                  `unknown check digit ""`,
		"{type}-{seq}{check:Luhn}":             `unknown check digit "Luhn"`,
		"{type}-{seq}{check:97-1}":             `unknown check digit "97-1"`,
		"{type}-{seq:4:base32}{check:luhn}":    "digits only, and the sequence is printed in base32; want 97-10 or",
		"{check:damm}{type}-{seq:4:base36}":    "{check:damm} covers digits only",
		"{type}-{seq:4:base36}{check:gs1}":     "{check:gs1} covers digits only",
		"{type}-{seq:4:base36}{check:11-10}":   "{check:11-10} covers digits only",
		"{type}-{seq:4:letters}{check:731}":    "{check:731} covers digits only, and the sequence is printed in letters",
		"{type}-{seq:4:base32}{check:be97}":    "{check:be97} covers digits only",
		"{type}-{seq:4:base36}{check:10r}":     "{check:10r} covers digits only",
		"{type}-{seq:4:base36}{check:11}":      "{check:11} covers digits only",
		"{type}-{seq:8:letters}{check:s10}":    "{check:s10} covers digits only",
		"{type}{seq:7}{check:s10}": "{check:s10} needs exactly 8 digits before it and none after it; " +
			"this template prints 7 before it and 0 after it",
		"{type}{seq:9}{check:s10}GB":                   "prints 9 before it and 0 after it",
		"{type}{check:s10}{seq:8}":                     "prints 0 before it and 8 after it",
		"{type}{seq:8}{check:s10}G8":                   "prints 8 before it and 1 after it",
		"R2{type}{seq:8}{check:s10}":                   "prints 9 before it",
		"{type}{date:yyMMdd}{seq:4}{check:s10}":        "prints 10 before it",
		"{type}{date:yy'3'R-}{seq:4}{check:s10}{{7":    "prints 7 before it and 1 after it",
		"{seq:8+}-{type}-{check:s10}":                  "does not print a fixed number of digits",
		"{type}-{date:d/MMM/yyyy}-{seq:3}-{check:s10}": "does not print a fixed number of digits",
		"{type}-{seq:4:alpha}{check:731}":              "covers digits only, and the sequence is printed in alpha",
		"{type}-{seq:3+:letters}":                      "a sequence in letters cannot grow",
		"{type}-{seq:3+:alpha}":                        "a sequence in alpha cannot grow",
		"{type}-{seq:10:alpha}":                        `width "10"; want 1 to 9`,
		"{type}-{seq:10:letters}":                      `width "10"; want 1 to 9`,
	} {
		refuseTemplate(serial.Never, template, want)
	}

	// Other options.
	refuseTemplate(serial.Never, "{type}-{seq:5}",
		"WithHiddenSequence: the template has 99999 sequences; want a million or more", hidden)
	refuseTemplate(serial.Never, "{type}-{seq:3:base32}", "WithHiddenSequence", hidden)
	refuseTemplate(serial.Never, "{type}-{seq:3:base36}", "WithHiddenSequence", hidden)
	refuseTemplate(serial.Never, "{type}-{seq:4:letters}", "{seq:5:letters} or wider", hidden)
	refuseTemplate(serial.Never, "{type}-{seq:4:alpha}", "{seq:5:alpha}", hidden)
	refuseTemplate(serial.Never, "{type}-{seq:6+}", "without +", hidden)
	const yearStart = "; want January to December, and days 1 to 28"
	const periods = ": want PerSecond, PerMinute, PerHour, PerDay, PerWeek, PerMonth, PerQuarter, PerHalfYear, PerYear " +
		"or Never"
	refuse("WithHiddenSequence: a key of 15 bytes; want 16, 24 or 32", serial.WithHiddenSequence(make([]byte, 15)))
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
	refuse("WithLocation: the location is nil; did time.LoadLocation fail?", serial.WithLocation(nil))
	refuse(`WithKeyPrefix(""): empty; want 1 to 64 bytes`, serial.WithKeyPrefix(""))
	refuse(`WithKeyPrefix("a:b"): it contains ':' (U+003A); want letters with their marks, digits and - _ . /`,
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
		"{type}-{date:d.M.BBBB}-{seq:1+}": 1, "{type}-{date:d/R/yyyy}-{seq:6:alpha}": 1,
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

// retemplated returns a scheme with another template.
func retemplated(t testing.TB, s *serial.Scheme, text string) *serial.Scheme {
	t.Helper()
	other, err := s.WithTemplate(text)
	require.NoError(t, err)
	return other
}

// A text counts for the first scheme that reads it as a number of the audited type and period.
func TestWithEarlier(t *testing.T) {
	t.Parallel()
	wide := newScheme(t, serial.WithPeriod(serial.PerYear), serial.WithTemplate("{type}{date:yyyy}{seq:6}"))
	narrow, slash := retemplated(t, wide, "{type}{date:yyyy}{seq:4}"), retemplated(t, wide, "{date:yyyy}/{type}/{seq:4}")
	base32 := retemplated(t, wide, "{type}{date:yyyy}{seq:4:base32}")
	twenty := retemplated(t, wide, "{type}20{date:yyyy}{seq:6}")
	monthly := newScheme(t, serial.WithPeriod(serial.PerMonth), serial.WithTemplate("{type}{date:MMyy}{seq:4}"))
	turned := retemplated(t, monthly, "{type}{date:yyMM}{seq:4}")
	type outcome struct {
		count, missing, others     int64
		duplicate, beyond, foreign []string
	}
	type schemes []*serial.Scheme
	for name, row := range map[string]struct {
		schemes // the audited one first
		date    serial.When
		texts   []string
		want    outcome
	}{
		"no other scheme": {schemes{wide}, serial.On(2021, 10, 24), []string{"IS2021000002", "IS20210001"},
			outcome{count: 1, missing: 39, foreign: []string{"IS20210001"}}},
		"widened": {schemes{wide, narrow}, serial.On(2021, 10, 24),
			[]string{"IS20210001", "IS2021000002", "IS20210003 ", "IS20219999"},
			outcome{count: 3, missing: 37, beyond: []string{"IS20219999"}}},
		"narrowed": {schemes{narrow, wide}, serial.On(2021, 10, 24), []string{"IS20210001", "IS2021000002", "IS2021010000"},
			outcome{count: 2, missing: 38, beyond: []string{"IS2021010000"}}},
		"changed twice": {schemes{wide, narrow, slash}, serial.On(2021, 10, 24),
			[]string{"IS20210001", "2021/IS/0002", "2021-IS-0003"},
			outcome{count: 2, missing: 38, foreign: []string{"2021-IS-0003"}}},
		"other types and periods, by any scheme": {schemes{wide, narrow, slash}, serial.On(2021, 10, 24),
			[]string{"PO20210001", "IS20200001", "2020/IS/0001", "2021/PO/0001", "PO2021000001", "IS2021000001"},
			outcome{count: 1, missing: 39, others: 5}},
		"printed twice": {schemes{wide, narrow, slash}, serial.On(2021, 10, 24),
			[]string{"IS2021000001", "IS20210001", "2021/IS/0002", "IS20210002", "IS2021000002", "2021/IS/0041"},
			outcome{count: 2, missing: 38, duplicate: []string{"IS20210001", "IS20210002"}, beyond: []string{"2021/IS/0041"}}},

		// IS20210010 is number 10 or, in base 32, number 32.
		"read by two, the first is narrow": {schemes{wide, narrow, base32}, serial.On(2021, 10, 24),
			[]string{"IS20210010", "IS2021000010"}, outcome{count: 1, missing: 39, duplicate: []string{"IS2021000010"}}},
		"read by two, the first is base 32": {schemes{wide, base32, narrow}, serial.On(2021, 10, 24),
			[]string{"IS20210010", "IS2021000032"}, outcome{count: 1, missing: 39, duplicate: []string{"IS2021000032"}}},
		// It is number 3 of type IS20, too.
		"read by the first as of another type": {schemes{wide, twenty}, serial.On(2021, 10, 24),
			[]string{"IS202021000003"}, outcome{count: 1, missing: 39}},
		"which is the audited one": {schemes{twenty, wide}, serial.On(2021, 10, 24),
			[]string{"IS202021000003", "IS2021000003"}, outcome{count: 1, missing: 39, duplicate: []string{"IS2021000003"}}},
		"read by the first as of another period": {schemes{monthly, turned}, serial.On(2011, 12, 24),
			[]string{"IS11120001", "IS12110002"}, outcome{count: 2, missing: 38}},
		"which is audited": {schemes{monthly, turned}, serial.On(2012, 11, 24),
			[]string{"IS11120001", "IS12110002"}, outcome{count: 2, missing: 38}},
	} {
		t.Run(name, func(t *testing.T) {
			var opts []serial.AuditOption
			for _, s := range row.schemes[1:] { // all options count
				opts = append(opts, serial.WithEarlier(s))
			}
			got, err := row.schemes[0].Audit("IS", row.date, 40, used(row.texts...), opts...)
			require.NoError(t, err)
			require.Equal(t, row.want, outcome{got.Count, got.MissingCount, got.OtherCount, texts(got.Duplicates),
				texts(got.Beyond), got.Foreign})
			again, err := row.schemes[0].Audit("IS", row.date, 40, used(row.texts...), serial.WithEarlier(row.schemes[1:]...))
			require.NoError(t, err)
			require.Equal(t, got, again)
		})
	}
}

// Wherever a scheme has the period, its numbers count, and so do explanations with the first instant of that period.
func TestWithEarlierZoneAndDayStart(t *testing.T) {
	t.Parallel()
	zone := func(name string, opts ...serial.Option) *serial.Scheme {
		return newScheme(t, append(opts, serial.WithLocation(location(t, name)))...)
	}
	kolkata := zone("Asia/Kolkata")
	late := zone("America/Sao_Paulo", serial.WithDayStart(4*time.Hour),
		serial.WithTemplate("{type}-{date:yyyyMMdd}-{seq:4}"))
	apia, pago := zone("Pacific/Apia"), zone("Pacific/Pago_Pago", serial.WithTemplate("{type}/{date:yyyyMMdd}/{seq:4}"))
	numbers := used("IS202110240001", "IS-20211024-0002", "IS/20211024/0003", "IS-20211024-0002", "IS-20211025-0001")
	explain := func(start time.Time, seq int64) serial.Explanation {
		return serial.Explanation{Series: "serial:IS", Type: "IS", Start: start, First: seq, Last: seq, Reason: "void",
			At: start, Possible: true}
	}
	startOf := func(s *serial.Scheme, day int) time.Time {
		_, start, _ := s.Period(serial.On(2021, time.October, day))
		return start
	}

	var all []serial.Explanation
	for i, s := range []*serial.Scheme{kolkata, late, apia, pago} {
		all = append(all, explain(startOf(s, 24), 10+int64(i)), explain(startOf(s, 22), 20), explain(startOf(s, 26), 30))
	}
	got, err := kolkata.Audit("IS", serial.On(2021, 10, 24), 40, numbers, serial.WithEarlier(late, apia, pago),
		given(all...))
	require.NoError(t, err)
	require.Equal(t, []int64{3, 1}, []int64{got.Count, got.OtherCount})
	require.True(t, got.Start.Equal(startOf(kolkata, 24)))
	require.Equal(t, []string{"IS-20211024-0002"}, texts(got.Duplicates))
	require.True(t, got.Duplicates[0].Start.Equal(startOf(late, 24)))
	var found []int64
	for _, e := range got.Possible {
		found = append(found, e.First)
		require.Equal(t, got.Start, e.Start)
	}
	require.ElementsMatch(t, []int64{10, 11, 12, 13}, found)

	// The 24th on Pago Pago and the 25th in Apia begin at the same instant: that explanation counts for both.
	require.True(t, startOf(pago, 24).Equal(startOf(apia, 25)))
	for s, day := range map[*serial.Scheme]int{pago: 24, apia: 25} {
		got, err := s.Audit("IS", serial.On(2021, 10, day), 1, used(), serial.WithEarlier(pago, apia),
			given(explain(startOf(pago, 24), 1)))
		require.NoError(t, err)
		require.EqualValues(t, 1, got.PossibleCount)
	}

	// In Apia, there was no 30 December 2011: what is explained there is the 31st.
	_, next, _ := apia.Period(serial.On(2011, 12, 31))
	got, err = kolkata.Audit("IS", serial.On(2011, 12, 30), 1, used(), serial.WithEarlier(apia), given(explain(next, 1)))
	require.NoError(t, err)
	require.Zero(t, got.PossibleCount)
}

// An explanation in a period of the audited label is an error if no period of any scheme begins with it.
func TestWithEarlierRefusesExplanations(t *testing.T) {
	t.Parallel()
	utc, east := newScheme(t), newScheme(t, serial.WithLocation(location(t, "Asia/Kolkata")))
	day := time.Date(2021, 10, 24, 0, 0, 0, 0, time.UTC)
	for at, refused := range map[time.Duration]bool{
		-5*time.Hour - 30*time.Minute: false, -5*time.Hour - 30*time.Minute + 1: true, -time.Hour: true, 0: false, 1: true,
		time.Hour:                     true,
		18*time.Hour + 30*time.Minute: false, // the 25th in Kolkata
		18*time.Hour + 31*time.Minute: true, 24 * time.Hour: false, 25 * time.Hour: false, -6 * time.Hour: false,
	} {
		for audited, earlier := range map[*serial.Scheme]*serial.Scheme{utc: east, east: utc} {
			e := serial.Explanation{Series: "serial:IS", Type: "IS", Start: day.Add(at), First: 1, Last: 2, Reason: "void",
				At: day}
			audit := func() error {
				return errOf(audited.Audit("IS", serial.On(2021, 10, 24), 2, used(), serial.WithEarlier(earlier), given(e)))
			}
			err := audit()
			require.Equal(t, refused, err != nil, "%v: %v", at, err)
			if refused {
				require.ErrorContains(t, err, "serial: explanation of IS 1 to 2: Start "+serial.At(e.Start).String()+
					" lies in the period 2021-10-24, which begins at ")
			}
			e.Series = "serial:PO"
			require.NoError(t, audit())
		}
	}
}

// The only period of Never contains no instant before 1970.
func TestWithEarlierOfNever(t *testing.T) {
	t.Parallel()
	s := newScheme(t, serial.WithPeriod(serial.Never), serial.WithTemplate("{type}{seq:6}"))
	day := time.Date(2021, 10, 24, 0, 0, 0, 0, time.UTC)
	e := serial.Explanation{Series: "serial:IS", Type: "IS", First: 1, Last: 1, Reason: "void", At: day}
	audit := func(start time.Time) (serial.Report, error) {
		e.Start = start
		return s.Audit("IS", serial.At(day), 3, used("IS0002", "IS000003"),
			serial.WithEarlier(retemplated(t, s, "{type}{seq:4}")), given(e))
	}
	got, err := audit(time.Unix(0, 0))
	require.NoError(t, err)
	require.True(t, got.Clean())
	got, err = audit(time.Time{})
	require.NoError(t, err)
	require.Equal(t, []serial.Range{{First: 1, Last: 1}}, got.Unexplained)
	require.ErrorContains(t, errOf(audit(day)), "lies in the period all time")
}

// Settings that must be the same are compared before anything is read.
func TestWithEarlierRefuses(t *testing.T) {
	t.Parallel()
	six := serial.WithTemplate("{type}{date:yyyyMMdd}{seq:6}")
	key := func(last byte) serial.Option { return serial.WithHiddenSequence(append(make([]byte, 15), last)) }
	quarter := serial.WithTemplate("{type}{date:FFFF-Q}{seq:6}")
	april := options(quarter, serial.WithPeriod(serial.PerQuarter), serial.WithYearStart(time.April, 1))
	plain, hidden := options(six), options(six, key(1))
	const same = " and the same hidden key and WithSharedCounter, as in the audited scheme"
	days := `scheme 2 has the key prefix "serial" and the calendar "days": want "serial", "days"` + same
	for name, row := range map[string]struct {
		audited, earlier []serial.Option
		says             string
	}{
		"same": {plain, options(serial.WithStart(7), serial.WithDayStart(time.Hour), serial.WithLocation(noon())), ""},
		"prefix": {plain, options(serial.WithKeyPrefix("shop")),
			`scheme 2 has the key prefix "shop" and the calendar "days": want "serial", "days"` + same},
		"period": {plain, options(six, serial.WithPeriod(serial.PerMonth)),
			`scheme 2 has the key prefix "serial" and the calendar "months": want "serial", "days"` + same},
		"year start": {april, options(quarter, serial.WithPeriod(serial.PerQuarter)),
			`scheme 2 has the key prefix "serial" and the calendar "quarters": want "serial", "quarters from April 1"` + same},
		"key":       {hidden, options(six, key(1)), ""},
		"other key": {hidden, options(six, key(2)), days},
		"no key":    {hidden, plain, days},
		"new key":   {plain, hidden, days},
		"shared":    {plain, options(six, serial.WithSharedCounter()), days},
		"also shared": {options(six, serial.WithSharedCounter()),
			options(serial.WithSharedCounter(), serial.WithTemplate("{date:yyyyMMdd}{seq:6}")), ""},
	} {
		t.Run(name, func(t *testing.T) {
			s, earlier, gen := newScheme(t, row.audited...), newScheme(t, row.earlier...), parser(t, row.audited...)
			opt := serial.WithEarlier(s, earlier)
			if row.says == "" {
				require.NoError(t, errOf(s.Audit("IS", serial.On(2021, 10, 24), 1, used(), opt)))
				return
			}
			unread := func(func(string, error) bool) { t.Error("the numbers are read") }
			got, err := s.Audit("IS", serial.On(2021, 10, 24), 1, unread, opt)
			require.ErrorContains(t, err, "serial: WithEarlier: "+row.says)
			require.Zero(t, got)
			_, ofGenerator := gen.Audit(t.Context(), "IS", serial.On(2021, 10, 24), unread, opt)
			require.EqualError(t, ofGenerator, err.Error())
		})
	}
	s := newScheme(t)
	_, err := s.Audit("IS", serial.On(2021, 10, 24), 1, used(), serial.WithEarlier(s), serial.WithEarlier(s, nil))
	require.EqualError(t, err, "serial: WithEarlier: scheme 3 is nil")
	_, err = s.Audit("IS", serial.On(2021, 10, 24), 1, used(), serial.WithEarlier(new(serial.Scheme)))
	require.ErrorContains(t, err, `serial: WithEarlier: scheme 1 has the key prefix ""`)
	require.NoError(t, errOf(s.Audit("IS", serial.On(2021, 10, 24), 1, used(), serial.WithEarlier())))
}

// The key of the hidden sequence is kept, so numbers of the old template are read, and everything else stays.
func TestSchemeWithTemplate(t *testing.T) {
	t.Parallel()
	opts := options(serial.WithHiddenSequence(make([]byte, 16)), serial.WithKeyPrefix("shop"), serial.WithStart(5),
		serial.WithDayStart(4*time.Hour), serial.WithLocation(noon()), serial.WithPeriod(serial.PerMonth))
	of := func(template string) *serial.Scheme {
		return newScheme(t, append(opts, serial.WithTemplate(template))...)
	}
	s, want := of("{type}-{date:yyyyMM}-{seq:8}"), of("{date:yyMM}{type}{seq:6}")
	got := retemplated(t, s, "{date:yyMM}{type}{seq:6}")
	at := serial.On(2021, time.October, 24)
	for _, scheme := range []*serial.Scheme{got, s} {
		n, err := scheme.Number("IS", at, 7)
		require.NoError(t, err)
		if scheme == got {
			require.Equal(t, n.String(), textOfSeq(t, want, at, 7))
		} else {
			require.Regexp(t, "^IS-202110-[0-9]{8}$", n, "it does not change")
		}
		parsed, err := scheme.Parse(n.String())
		require.NoError(t, err)
		require.EqualValues(t, 7, parsed.Seq)
	}
	gotFirst, gotLast := got.Limits()
	require.Equal(t, []int64{5, 999_999}, []int64{gotFirst, gotLast})
	require.Equal(t, want.PrintMark(), got.PrintMark())

	// Numbers of both templates are accounted for together.
	texts := used(textOfSeq(t, s, at, 5), textOfSeq(t, got, at, 6), textOfSeq(t, s, at, 8))
	report, err := s.Audit("IS", at, 8, texts, serial.WithEarlier(got))
	require.NoError(t, err)
	require.Equal(t, []serial.Range{{First: 7, Last: 7}}, report.Missing)

	for text, says := range map[string]string{
		"{type}":                     "{seq} is missing",
		"{type}{date:yyyyMM}{seq:4}": "WithHiddenSequence: the template has 9999 sequences",
		"{type}{seq:6}":              "{date} is missing",
	} {
		got, err := s.WithTemplate(text)
		require.ErrorContains(t, err, says)
		require.Nil(t, got)
	}
	_, err = newScheme(t, serial.WithStart(100)).WithTemplate("{type}{date:yyyyMMdd}{seq:2}")
	require.EqualError(t, err, "serial: WithStart(100): the template prints sequences up to 99; want 1 to that")
	_, err = new(serial.Scheme).WithTemplate("{type}{seq}")
	require.ErrorContains(t, err, "WithPeriod(Period(0))")
}

func textOfSeq(t *testing.T, s *serial.Scheme, at serial.When, seq int64) string {
	t.Helper()
	n, err := s.Number("IS", at, seq)
	require.NoError(t, err)
	return n.String()
}

// An audit of a generator counts numbers printed by an earlier template in the same period.
func TestGeneratorAuditWithEarlier(t *testing.T) {
	inBubble(t, func(t *testing.T, m *simulation) {
		year := options(serial.WithPeriod(serial.PerYear), serial.WithLocation(time.UTC))
		of := func(template string) *serial.Generator {
			return newGenerator(t, m.Client(), append(year, serial.WithTemplate(template))...)
		}
		narrow, wide := of("{type}{date:yyyy}{seq:1}"), of("{type}{date:yyyy}{seq:6}")
		before, err := textsOf(narrow.NextN(t.Context(), "IS", 9))
		require.NoError(t, err)
		require.ErrorIs(t, errOf(narrow.Next(t.Context(), "IS")), serial.ErrExhausted)
		after, err := textsOf(wide.NextN(t.Context(), "IS", 3))
		require.NoError(t, err)
		require.Equal(t, []string{"IS2000000010", "IS2000000011", "IS2000000012"}, after)

		numbers := append(before, after[1:]...)
		got, err := wide.Audit(t.Context(), "IS", serial.At(time.Now()), used(numbers...))
		require.NoError(t, err)
		require.Equal(t, []int64{2, 10, 9}, []int64{got.Count, got.MissingCount, got.ForeignCount})
		got, err = wide.Audit(t.Context(), "IS", serial.At(time.Now()), used(numbers...), serial.WithEarlier(narrow.Scheme()))
		require.NoError(t, err)
		require.Equal(t, []serial.Range{{First: 10, Last: 10}}, got.Missing)
		require.Equal(t, []int64{11, 1, 0}, []int64{got.Count, got.MissingCount, got.ForeignCount})

	})
}
