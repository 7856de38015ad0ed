package serial_test

import (
	"fmt"
	"math/rand/v2"
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

// randomTemplate is a template of all that templates may hold, which need not suit any period.
func randomTemplate(r *rand.Rand) string {
	pick := func(of ...string) string { return of[r.IntN(len(of))] }
	var layout []string
	for _, part := range [][]string{
		{"yyyy", "yy", "YYYY", "yyyy"}, {"MM"}, {"dd", "DD"}, {"DDD"}, {"GGGG", "GG", "GG-GGGG"}, {"WW"}, {"Q"},
		{"FFFF", "FF", "FF/FFFF", "FFFF"}, {"EEEE", "EE", "EE/EEEE"}, {"HH"}, {"mm"}, {"ss"},
	} {
		if r.IntN(3) == 0 {
			layout = append(layout, pick(part...))
		}
	}
	r.Shuffle(len(layout), func(i, j int) { layout[i], layout[j] = layout[j], layout[i] })
	date := ""
	for i, token := range layout {
		if separator := pick("", "", "-", ".", "年"); i > 0 && (separator != "" || date[len(date)-1] != token[0]) {
			date += separator
		} else if i > 0 {
			date += "_"
		}
		date += token
	}
	fields := []string{"{type}", pick("{seq}", "{seq:1}", "{seq:6}", "{seq:6}", "{seq:15}", "-{seq:2+}.", "{seq:4:base32}",
		"{seq:9:base32}", "{seq:1:base36}", "{seq:9:base36}")}
	if date != "" || r.IntN(5) > 0 {
		fields = append(fields, "{date:"+date+"}")
	}
	if r.IntN(3) == 0 {
		fields = append(fields, "{check:"+pick("luhn", "damm", "gs1", "11-10", "97-10", "97-10", "37-36", "37-36")+"}")
	}
	r.Shuffle(len(fields), func(i, j int) { fields[i], fields[j] = fields[j], fields[i] })
	template := ""
	for _, f := range fields {
		template += f + pick("", "", "", "-", "A", "7", "{{")
	}
	return template
}

// What a random Scheme prints around changes of clocks and calendars reads back as the same number, and nothing else
// does.
func TestNumbersReadBack(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	zones := []string{"UTC", "America/New_York", "America/Havana", "Pacific/Apia", "Pacific/Kwajalein", "Antarctica/Casey",
		"Antarctica/Troll", "Australia/Lord_Howe", "Asia/Shanghai"}
	var instants []int64
	for _, at := range []string{
		"1970-01-01T00:00:00Z", "1992-12-31T23:59:59Z", "1993-08-20T11:59:59Z", "1999-12-31T23:59:59Z",
		"2000-01-01T00:00:00Z", "2004-12-31T12:00:00Z", "2009-10-17T18:00:00Z", "2010-03-04T15:00:00Z",
		"2011-12-30T09:59:59Z", "2011-12-30T10:00:00Z", "2016-01-01T00:00:00Z", "2020-03-08T05:00:00Z",
		"2020-11-01T04:59:59Z", "2021-04-03T14:59:59Z", "2024-02-29T23:59:59Z", "2024-03-31T01:00:00Z",
		"2024-04-05T23:59:59Z", "2024-12-29T23:59:59Z", "2024-12-31T00:00:00Z", "2025-03-09T06:59:59Z",
		"2037-12-31T23:59:59Z",
	} {
		instant, err := time.Parse(time.RFC3339, at)
		require.NoError(t, err)
		instants = append(instants, instant.Unix())
	}
	numbers := 0
	for made := 0; made < 500; {
		template, zone := randomTemplate(r), zones[r.IntN(len(zones))]
		per, start := serial.Period(1+r.IntN(9)), yearStarts[r.IntN(len(yearStarts))]
		opts := []serial.Option{
			serial.WithTemplate(template), serial.WithLocation(location(t, zone)), serial.WithPeriod(per),
			serial.WithYearStart(start.month, start.day),
		}
		if per >= serial.PerDay && per != serial.Never && r.IntN(3) == 0 {
			opts = append(opts, serial.WithDayStart(time.Duration(1+r.IntN(86399))*time.Second))
		}
		if r.IntN(4) == 0 {
			opts = append(opts, serial.WithHiddenSequence(hiddenKey))
		}
		s, err := serial.NewScheme(opts...)
		if err != nil {
			continue
		}
		made++
		for range 5 {
			at := instants[r.IntN(len(instants))]
			switch r.IntN(3) {
			case 0:
				at += r.Int64N(7200) - 3600
			case 1:
				at = r.Int64N(2145916800)
			}
			typ := []string{"IS", "7", "a/b-1", "X2", "订单"}[r.IntN(5)]
			_, last := s.Limits()
			seq := []int64{1, last, 1 + r.Int64N(last)}[r.IntN(3)]
			name := fmt.Sprintf("%s %v from %v in %s at %d: %s %d", template, per, start, zone, at, typ, seq)
			n, err := s.Number(typ, time.Unix(at, 0), seq)
			if err != nil {
				printable := strings.Contains(err.Error(), "cannot be printed as") || typ == "订单" &&
					strings.Contains(err.Error(), "covers letters")
				require.True(t, printable || at < 2*86400, "%s: %v", name, err)
				continue
			}
			numbers++
			back, err := s.Parse(n.String())
			require.NoError(t, err, "%s: %s", name, n)
			require.True(t, n.Equal(back), "%s: %s: %#v %#v", name, n, n, back)
			require.False(t, n.Date.Before(n.Start), name)
			label, from, to := s.Period(time.Unix(at, 0))
			require.True(t, !time.Unix(at, 0).Before(from) && time.Unix(at, 0).Before(to) && from.Equal(n.Start), "%s: %s %v %v",
				name, label, from, to)

			// The same is printed from Date on, and as long as the span lasts; afterwards something else, or another
			// period begins.
			text := n.String()
			first, end, date := s.SpanAt(at)
			require.True(t, first <= at && at < end && n.Date.Unix() <= first, name)
			for _, other := range []int64{n.Date.Unix(), first, end - 1} {
				if other < 2*86400 {
					continue
				}
				same, err := s.Number(typ, time.Unix(other, 0), seq)
				require.NoError(t, err, "%s: %d", name, other)
				require.True(t, same.Equal(n), "%s: %d: %v", name, other, same)
			}
			if _, _, after := s.SpanAt(end); after == date && end < to.Unix() && !strings.Contains(template, "GG") {
				require.Fail(t, "a span ends too early", name)
			}
			if !s.Varies() {
				require.Equal(t, n.Start, n.Date, name)
				require.True(t, first == from.Unix() && end == to.Unix(), name)
			}

			// Whatever else can be read prints exactly what was read.
			for range 20 {
				b := []byte(text)
				b[r.IntN(len(b))] = "0123456789AZa-/.\x80"[r.IntN(17)]
				if r.IntN(10) == 0 {
					b = append(b, b[r.IntN(len(b))])
				}
				if other, err := s.Parse(string(b)); err == nil {
					require.Equal(t, string(b), other.String(), name)
					if other.Date.Unix() < 2*86400 {
						continue
					}
					again, err := s.Number(other.Type, other.Date, other.Seq)
					require.NoError(t, err, "%s: %s", name, b)
					require.True(t, again == other, "%s: %s: %v %v", name, b, again, other)
				} else {
					require.ErrorIs(t, err, serial.ErrInvalidNumber)
					require.Zero(t, other)
				}
			}
		}
	}
	require.Greater(t, numbers, 1_500)
}

// Every refusal names the option or the token, the reason and what would do. New refuses what NewScheme refuses.
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
		"":                                  "{type} is missing" + fields,
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
		"{seq:4+}-{type}{date:yyyyMMdd}", "{type}{date:yyyyMMdd}-1{seq:4+}", "{type}{date:yyyyMMdd}-٣{seq:4+}"} {
		refuseTemplate(serial.PerDay, template,
			"{seq:4+}: a sequence that may grow needs a literal right before it that does not end in a digit, such as -")
	}
	for _, template := range []string{"{date:yyyyMMdd}-{seq:4+}{type}", "{type}-{seq:4+}{date:yyyyMMdd}",
		"{type}{date:yyyyMMdd}-{seq:4+}1"} {
		refuseTemplate(serial.PerDay, template, "{seq:4+}: a sequence that may grow needs a literal right after it that "+
			"does not begin with a digit, such as -, or the end of the template")
	}

	// The date.
	const tokens = "; want yyyy, yy, MM, dd, DDD, GGGG, GG, WW, Q, FFFF, FF, EEEE, EE, HH, mm, ss and separators"
	for layout, unknown := range map[string]string{
		"yyyyMd": `"M"`, "yyyyMMMdd": `"MMM"`, "yyyyyMMdd": `"yyyyy"`, "YYMMdd": `"YY"`, "yyyyMMddww": `"ww"`,
		"FFFF-QQ": `"QQ"`, "yyyyMMddhh": `"hh"`, "yyyy-MM-ddT": `"T"`,
	} {
		refuseTemplate(serial.PerDay, date(layout), "unknown date token "+unknown+tokens)
	}
	for layout, want := range map[string]string{
		"yyyy1MMdd":  "'1' in a date layout" + tokens + " (all but ASCII letters, digits, braces)",
		"yyyy{MMdd":  "'{' in a date layout" + tokens + " (all but ASCII letters, digits, braces)",
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

	// A date that names other periods may be what is meant.
	for layout, per := range map[string]string{
		"yyyyMM": "PerMonth", "yy/MM": "PerMonth", "FFFF": "PerYear", "GGGG-WW": "PerWeek", "FFFF-Q": "PerQuarter",
	} {
		refuseTemplate(serial.PerDay, date(layout), "; print yyyyMMdd, or use WithPeriod("+per+") (WithTemplate)")
	}
	refuseTemplate(serial.PerHour, date("yyyy-DDD"), "; print yyyyMMddHH, or use WithPeriod(PerDay) (WithTemplate)")
	refuseTemplate(serial.PerDay, "{type}{seq}", "numbers of Never need none, or use WithPeriod(Never) (WithTemplate)")
	for _, layout := range []string{"yyyyMMss", "yyyy-WW", "MMdd", "MM"} { // it names no periods
		_, err := serial.NewScheme(serial.WithTemplate(date(layout)))
		require.Error(t, err)
		require.NotContains(t, err.Error(), "WithPeriod", layout)
	}

	// The date that tells periods apart.
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
		"PerMonth, PerQuarter and PerYear", serial.WithDayStart(time.Hour))

	// The alphabet and the check digit.
	for template, want := range map[string]string{
		"{type}-{seq:4+:base32}":               "a sequence in base32 cannot grow; only a decimal one can",
		"{type}-{seq:10:base32}":               `width "10"; want 1 to 9`,
		"{type}-{seq:0:base36}":                `width "0"; want 1 to 9`,
		"{type}-{seq:4:base64}":                `unknown alphabet "base64"; want base32 and base36`,
		"{type}-{seq:4:}":                      `unknown alphabet ""`,
		"{type}-{seq::base32}":                 `width ""; want`,
		"{type}-{seq}{check:luhn}{check:damm}": "{check} appears twice",
		"{type}-{seq}{check:crc}":              `unknown check digit "crc"; want luhn, damm, gs1, 11-10, 97-10, 37-36`,
		"{type}-{seq}{check}":                  `unknown check digit ""`,
		"{type}-{seq}{check:Luhn}":             `unknown check digit "Luhn"`,
		"{type}-{seq}{check:97-1}":             `unknown check digit "97-1"`,
		"{type}-{seq:4:base32}{check:luhn}":    "digits only, and the sequence is printed in base32; want 97-10 and",
		"{check:damm}{type}-{seq:4:base36}":    "{check:damm} covers digits only",
		"{type}-{seq:4:base36}{check:gs1}":     "{check:gs1} covers digits only",
		"{type}-{seq:4:base36}{check:11-10}":   "{check:11-10} covers digits only",
	} {
		refuseTemplate(serial.Never, template, want)
	}

	// Other options.
	refuseTemplate(serial.Never, "{type}-{seq:5}",
		"WithHiddenSequence: the template has 99999 sequences; want a million or more", hidden)
	refuseTemplate(serial.Never, "{type}-{seq:3:base32}", "WithHiddenSequence", hidden)
	refuseTemplate(serial.Never, "{type}-{seq:3:base36}", "WithHiddenSequence", hidden)
	refuseTemplate(serial.Never, "{type}-{seq:6+}", "without +", hidden)
	const yearStart = "; want January to December, and days 1 to 28"
	const periods = ": want PerSecond, PerMinute, PerHour, PerDay, PerWeek, PerMonth, PerQuarter, PerYear and Never"
	refuse("WithHiddenSequence: a key of 15 bytes; want 16, 24 and 32", serial.WithHiddenSequence(make([]byte, 15)))
	refuse("WithHiddenSequence: a key of 0 bytes", serial.WithHiddenSequence(nil))
	refuse("WithYearStart: month 4, day 29"+yearStart, serial.WithYearStart(time.April, 29))
	refuse("WithYearStart: month 2, day 29"+yearStart, serial.WithYearStart(time.February, 29))
	refuse("WithYearStart: month 0, day 1"+yearStart, serial.WithYearStart(0, 1))
	refuse("WithYearStart: month 13, day 1"+yearStart, serial.WithYearStart(13, 1))
	refuse("WithYearStart: month 5, day 0"+yearStart, serial.WithYearStart(time.May, 0))
	refuse("WithPeriod(Period(0))"+periods, serial.WithPeriod(0))
	refuse("WithPeriod(Period(10))"+periods, serial.WithPeriod(serial.Never+1))
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
		{serial.PerQuarter, date("yyyyMM")},
	} {
		newScheme(t, serial.WithPeriod(c.per), serial.WithTemplate(c.template))
	}
	require.NoError(t, errOf(serial.NewScheme(serial.WithPeriod(serial.PerWeek)))) // a date tells its week
}

// Published numbers, and check digits in front, in the middle and at the end.
func TestCheckDigits(t *testing.T) {
	at := time.Date(2024, 12, 30, 12, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		template, typ string
		seq           int64
		want          string
	}{
		{"RF{check:97-10}{type}{seq:8}", "5390", 7547034, "RF18539007547034"}, // ISO 11649
		{"{type}{seq:7}{check:97-10}", "0", 794, "0000079444"},
		{"{type}{seq:10}{check:luhn}", "0", 7992739871, "079927398713"},
		{"{type}-{seq:3}{check:damm}", "X", 572, "X-5724"},
		{"{type}{seq:9}{check:gs1}", "629", 104150021, "6291041500213"},
		{"{check:gs1}-{type}{seq:9}", "629", 104150021, "3-629104150021"},
		{"{type}{check:gs1}{seq:9}", "629", 104150021, "6293104150021"},
		{"{type}{seq:4}{check:11-10}", "X", 794, "X07945"},
		{"{type}{seq:4}{check:37-36}", "A12425GABC123", 4002, "A12425GABC1234002M"},
		{"{type}{seq:4}{check:37-36}", "a12425gabc123", 4002, "a12425gabc1234002M"},
	} {
		s := newScheme(t, serial.WithTemplate(c.template), serial.WithPeriod(serial.Never))
		n, err := s.Number(c.typ, at, c.seq)
		require.NoError(t, err)
		require.Equal(t, c.want, n.String())
		requireResult(t, n)(s.Parse(c.want))
	}

	// Every wrong digit is found, also where the sequence would be 0 or the date does not exist.
	for _, algorithm := range []string{"luhn", "damm", "gs1", "11-10", "97-10", "37-36"} {
		for _, template := range []string{"{type}{date:yyyyMMdd}{seq:4}{check:%s}", "{check:%s}{type}{date:yyyyMMdd}{seq:4}",
			"{type}{date:yyyyMM}{check:%s}{date}{seq}"} {
			template = strings.Replace(template, "{date}", "", 1)
			s := newScheme(t, serial.WithTemplate(fmt.Sprintf(template, algorithm)), serial.WithPeriod(serial.PerMonth))
			n, err := s.Number("IS", at, 1)
			require.NoError(t, err)
			text := n.String()
			for i := range text {
				for digit := byte('0'); digit <= '9'; digit++ {
					if text[i] == digit || text[i] < '0' || text[i] > '9' {
						continue
					}
					wrong := text[:i] + string(digit) + text[i+1:]
					_, err := s.Parse(wrong)
					require.ErrorIs(t, err, serial.ErrCheckDigit, "%s for %s", wrong, text)
					require.ErrorIs(t, err, serial.ErrInvalidNumber)
				}
			}
		}
	}
	for _, algorithm := range []string{"97-10", "37-36"} {
		s := newScheme(t, serial.WithTemplate("{type}-{seq}{check:"+algorithm+"}"), serial.WithPeriod(serial.Never))
		require.ErrorIs(t, errOf(s.Number("订单", at, 1)), serial.ErrInvalidType)
		require.ErrorIs(t, errOf(s.Parse("订单-000100")), serial.ErrInvalidType)
	}
}

func TestAlphabets(t *testing.T) {
	at := time.Date(2024, 12, 30, 12, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		alphabet string
		width    int
		last     int64
		text     string
	}{
		{"base32", 1, 31, "Z"}, {"base32", 4, 1<<20 - 1, "ZZZZ"}, {"base32", 9, 1<<45 - 1, "ZZZZZZZZZ"},
		{"base36", 1, 35, "Z"}, {"base36", 2, 1295, "ZZ"}, {"base36", 9, 101559956668415, "ZZZZZZZZZ"},
	} {
		s := newScheme(t, serial.WithTemplate(fmt.Sprintf("{type}-{seq:%d:%s}", c.width, c.alphabet)),
			serial.WithPeriod(serial.Never))
		first, last := s.Limits()
		require.Equal(t, int64(1), first)
		require.Equal(t, c.last, last)
		before := ""
		for i := int64(1); i <= 2000; i++ {
			seq := max(1, c.last/2000*i, c.last-2000+i)
			n, err := s.Number("T", at, seq)
			require.NoError(t, err)
			require.GreaterOrEqual(t, n.String(), before)
			before = n.String()
			require.Len(t, before, 2+c.width)
		}
		require.Equal(t, "T-"+c.text, before)
		require.ErrorIs(t, errOf(s.Number("T", at, c.last+1)), serial.ErrExhausted)
		require.ErrorIs(t, errOf(s.Parse("T-"+strings.ToLower(c.text))), serial.ErrInvalidNumber)
		n, err := s.Parse("T-" + c.text)
		require.NoError(t, err)
		n.Seq++ // as Peek shows it if something else wrote the counter
		require.Equal(t, fmt.Sprint("T-", c.last+1), n.String())
	}
	s := newScheme(t, serial.WithTemplate("{type}-{seq:4:base32}"), serial.WithPeriod(serial.Never))
	for _, letter := range []string{"I", "L", "O", "U"} { // which are misread
		require.ErrorContains(t, errOf(s.Parse("T-000"+letter)), "base32")
	}
}

func TestHiddenSequences(t *testing.T) {
	at := time.Date(2024, 12, 30, 12, 0, 0, 0, time.UTC)
	scheme := func(opts ...serial.Option) *serial.Scheme {
		return newScheme(t,
			append([]serial.Option{serial.WithTemplate("{type}{date:yyyyMMdd}{seq:6}"), serial.WithHiddenSequence(hiddenKey)},
				opts...)...)
	}
	s := scheme()
	image := func(s *serial.Scheme, typ string, at time.Time, seq int64) string {
		n, err := s.Number(typ, at, seq)
		require.NoError(t, err)
		text := n.String()
		return text[len(text)-6:]
	}
	seen := map[string]bool{}
	inOrder := 0
	for seq := int64(1); seq <= 5000; seq++ {
		i := image(s, "IS", at, seq)
		require.False(t, seen[i])
		seen[i] = true
		if seq > 1 && i > image(s, "IS", at, seq-1) {
			inOrder++
		}
	}
	require.InDelta(t, 2500, inOrder, 200)

	n, err := s.Number("IS", at, 1)
	require.NoError(t, err)
	for name, other := range map[string]string{
		"type":   image(s, "PO", at, 1),
		"day":    image(s, "IS", at.AddDate(0, 0, 1), 1),
		"prefix": image(scheme(serial.WithKeyPrefix("other")), "IS", at, 1),
		"key":    image(scheme(serial.WithHiddenSequence([]byte("another key of 24 bytes."))), "IS", at, 1),
	} {
		require.NotEqual(t, n.String()[len("IS20241230"):], other, name)
	}
	back, err := scheme(serial.WithHiddenSequence([]byte("fedcba9876543210"))).Parse(n.String())
	require.NoError(t, err)
	require.NotEqual(t, n.Seq, back.Seq)

	// Sequences that are not issued print too: 0 as Peek shows it, and larger ones in full.
	zero := n
	zero.Seq = 0
	require.ErrorContains(t, errOf(s.Parse(zero.String())), "its sequence is 0 when decrypted")
	for _, seq := range []int64{-1, 1_000_000, 1 << 62} {
		n.Seq = seq
		require.Equal(t, fmt.Sprint("IS20241230", seq), n.String())
	}
	require.ErrorContains(t, errOf(n.Int64()), "hidden")
}

func TestInt64(t *testing.T) {
	at := time.Date(2024, 12, 30, 15, 4, 5, 0, time.UTC)
	for layout, want := range map[string]int64{
		"": 7, "yyyy": 20240007, "yy": 240007, "GGGG": 20250007, "GG": 250007, "FFFF": 20240007, "EEEE": 20250007,
		"EE": 250007, "FFFF-EE": 20240007, "EE/FFFF": 20240007, "FFFF-FF": 20240007, "FF-EE": 240007, "EEEE-EE": 20250007,
		"MM.yyyy": 2024120007, "dd.MM.yy": 2412300007, "HH dd MM yyyy": 2024123015_0007, "yyyyMMddHHmm": 202412301504_0007,
		"ss:mm:HH yy-MM-dd": 241230150405_0007, "DDD/yyyy": 20243650007, "yyyyDDDHH": 202436515_0007,
		"yyyyDDDHHmmss": 2024365150405_0007, "WW/GGGG": 2025010007, "GG-WW": 25010007, "Q/FFFF": 202430007,
		"FFFF-EE Q": 202430007, "YYYYMMDD": 20241230_0007,
		// The others would not sort, or say the same in two ways.
		"MM": 0, "dd": 0, "DDD": 0, "WW": 0, "Q": 0, "HH": 0, "mm": 0, "yyyy-FFFF": 0, "yyyy-GGGG": 0, "FFFFMM": 0,
		"FFFF MM dd": 0, "GGGGWWdd": 0, "GGGG-GG WW dd": 0, "yyyyWW": 0, "yyyyQ": 0, "EEEEQ": 0, "yyyyMMDDD": 0,
		"yyyyMMddDDD": 0, "yyyydd": 0, "yyyyMMHH": 0, "yyyyMMddmm": 0, "yyyyMMddHHss": 0, "yyyyDDDmm": 0, "GGGGWWHH": 0,
		"yyyyHH": 0, "yyyyMMQ": 0, "yyyyMMddWW": 0, "FFFFQMM": 0,
	} {
		template := "{type}{date:" + layout + "}{check:luhn}{seq}"
		s := newScheme(t, serial.WithPeriod(serial.Never), serial.WithYearStart(time.April, 6),
			serial.WithTemplate(strings.Replace(template, "{date:}", "", 1)))
		n, err := s.Number("IS", at, 7)
		require.NoError(t, err)
		integer, err := n.Int64()
		if want == 0 {
			require.ErrorContains(t, err, "do not sort as integers", layout)
			require.Zero(t, integer)
			continue
		}
		require.NoError(t, err, layout)
		require.Equal(t, want, integer, layout)
	}
	for template, want := range map[string]string{
		"{type}{seq:4:base32}": "base32", "{type}{seq:4:base36}": "base36",
		"{type}{date:yyyyMMddHHmmss}{seq:9}": "larger than", "{type}-{seq:1+}": "outgrown",
	} {
		n, err := newScheme(t, serial.WithPeriod(serial.Never), serial.WithTemplate(template)).Number("IS", at, 10)
		require.NoError(t, err)
		require.ErrorContains(t, errOf(n.Int64()), want)
	}
}

// What is printed once in a while within a period has the date at which the period first printed it.
func TestDatesThatComeAgain(t *testing.T) {
	for _, c := range []struct {
		per        serial.Period
		layout     string
		text, date string
	}{
		{serial.PerYear, "yyyy dd", "IS2024 300001", "2024-01-30T00:00:00Z"},
		{serial.PerYear, "FFFF Q dd", "IS2024 3 300001", "2024-10-30T00:00:00Z"},
		{serial.PerDay, "yyyyMMdd mm", "IS20241230 040001", "2024-12-30T00:04:00Z"},
		{serial.PerDay, "yyyyMMdd ss", "IS20241230 050001", "2024-12-30T00:00:05Z"},
		{serial.Never, "MM", "IS120001", "1970-12-01T00:00:00Z"},
		{serial.Never, "GGGG", "IS20250001", "2024-12-30T00:00:00Z"},
		{serial.Never, "WW Q", "IS01 30001", "1970-01-01T00:00:00Z"},
	} {
		start := yearStart{time.January, 1}
		if strings.Contains(c.layout, "Q") {
			start = yearStart{time.April, 6}
		}
		s := newScheme(t, serial.WithPeriod(c.per), serial.WithYearStart(start.month, start.day),
			serial.WithTemplate("{type}{date:"+c.layout+"}{seq}"))
		n, err := s.Number("IS", time.Date(2024, 12, 30, 15, 4, 5, 0, time.UTC), 1)
		require.NoError(t, err)
		require.Equal(t, c.text, n.String())
		require.Equal(t, c.date, n.Date.Format(time.RFC3339), c.layout)
		back, err := s.Parse(c.text)
		require.NoError(t, err)
		require.True(t, n.Equal(back))
	}
}

// What could not have been printed is not read, though it reads like a date.
func TestDatesThatCannotBeRead(t *testing.T) {
	for _, c := range []struct {
		per  serial.Period
		date string
		text string
		want string
	}{
		{serial.PerYear, "FF-FFFF", "24-2124", "there is no date 24-2124"},
		{serial.PerYear, "FFFF-FF", "2124-24", "there is no date"},
		{serial.PerYear, "FFFF-FF", "1924-24", "there is no date"},
		{serial.PerYear, "FFFF-EE", "2024-26", "there is no date"},
		{serial.PerDay, "yyMMdd FF", "000405 99", "there is no date"}, // of 1999
		{serial.PerWeek, "GGGG-WW", "2024-53", "there is no date 2024-53"},
		{serial.PerWeek, "GGGG-WW", "2020-00", "there is no date"},
		{serial.PerWeek, "GGGG-WW", "2020-54", "there is no date"},
		{serial.PerWeek, "yyyyMM GGGGWW", "202411 202501", "there is no date"},
		{serial.PerQuarter, "FFFF-Q", "2024-5", "there is no date"},
		{serial.PerQuarter, "FFFF-Q", "2024-0", "there is no date"},
		{serial.PerYear, "FFFF MM dd", "2024 02 29", "there is no date"}, // it is in 2023
		{serial.PerDay, "yyyyDDD", "2023366", "there is no date"},
		{serial.PerDay, "yyyyDDD", "2024000", "there is no date"},
		{serial.PerYear, "FFFF", "1968", "is before 1970"},
		{serial.Never, "ss", "60", "there is no date"},
		{serial.Never, "yyyyMMdd", "99991231", "is not before the end of all time"},
		{serial.Never, "yyyyMMdd", "19691231", "before 1970"},
	} {
		s := newScheme(t, serial.WithPeriod(c.per), serial.WithYearStart(time.April, 6),
			serial.WithTemplate("{type}{date:"+c.date+"}{seq}"))
		_, err := s.Parse("IS" + c.text + "0001")
		require.ErrorContains(t, err, c.want, "%s: %s", c.date, c.text)
		require.ErrorIs(t, err, serial.ErrInvalidNumber)
	}
	s := newScheme(t, serial.WithPeriod(serial.PerYear), serial.WithYearStart(time.April, 6),
		serial.WithTemplate("{type}{date:FFFF}{seq}"))
	n, err := s.Number("IS", time.Unix(0, 0), 1) // a year that began before 1970, and was not over
	require.NoError(t, err)
	back, err := s.Parse("IS19690001")
	require.NoError(t, err)
	require.True(t, n.Equal(back))
}

func TestSchemeErrors(t *testing.T) {
	at := time.Date(2024, 12, 30, 12, 0, 0, 0, time.UTC)
	s := newScheme(t, serial.WithStart(100))
	first, last := s.Limits()
	require.Equal(t, []int64{100, 9999}, []int64{first, last})
	for seq, want := range map[int64]string{0: "want 1 to 9999", -1: "want 1 to 9999",
		10_000: "numbers exhausted"} {
		n, err := s.Number("IS", at, seq)
		require.ErrorContains(t, err, want)
		require.Zero(t, n)
	}
	n, err := s.Parse("IS202412300001") // below the start
	require.NoError(t, err)
	require.Equal(t, int64(1), n.Seq)
	for _, at := range []time.Time{time.Unix(-1, 0), time.Unix(253402300800, 0), {}, time.Unix(1<<40, 0)} {
		require.Error(t, errOf(s.Number("IS", at, 1)), "%v", at)
		never := newScheme(t, serial.WithPeriod(serial.Never), serial.WithTemplate("{type}{seq}"))
		require.ErrorContains(t, errOf(never.Number("IS", at, 1)),
			"want 1970 to 9999, and with Never only before 9999-12-31T00:00:00Z")
	}
	require.ErrorIs(t, errOf(s.Number("a b", at, 1)), serial.ErrInvalidType)
	_, err = newScheme(t, serial.WithTemplate("{type}{date:yyMMdd}{seq}")).Number("IS",
		time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC), 1)
	require.ErrorContains(t, err, "the year 2100 cannot be printed as yy")
}

// A Scheme is used by many goroutines at once. Run with -race.
func TestSchemesOfManyGoroutines(t *testing.T) {
	s := newScheme(t, serial.WithPeriod(serial.PerYear), serial.WithTemplate("{type}{date:yyyy dd}{seq:6}{check:damm}"),
		serial.WithHiddenSequence(hiddenKey))
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for seq := int64(1); seq <= 200; seq++ {
				n, err := s.Number("IS", time.Date(2024, time.Month(1+i), 1+int(seq)%28, 0, 0, 0, 0, time.UTC), seq)
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

// A mark tells what could print two sequences alike.
func TestPrintMarks(t *testing.T) {
	mark := func(per serial.Period, template string, opts ...serial.Option) string {
		return newScheme(t, append(opts, serial.WithPeriod(per), serial.WithTemplate(template))...).PrintMark()
	}
	for _, same := range [][]string{
		{"{type}{date:GGGGWW}{seq:4}", "{type}-{date:GG-WW}/{seq:9}", "A{type}{date:GGGG.WW}-{seq:4+}"},
		{"{type}{date:yyyyMMddWW}{seq}", "{type}{date:yy-MM-DD WW}{seq:7}."},
		{"{type}{date:FFFFMMdd}{seq:4:base32}", "{type}{date:FFMMDD}{seq:9:base32}"},
	} {
		for _, other := range same {
			require.Equal(t, mark(serial.PerWeek, same[0]), mark(serial.PerWeek, other), other)
			require.Len(t, mark(serial.PerWeek, other), 12)
		}
	}
	require.Equal(t, mark(serial.PerYear, "{type}{date:FFFF-EE}{seq}"), mark(serial.PerYear, "{type}{date:FF/EEEE}{seq}"))
	require.Equal(t, mark(serial.PerDay, "{type}{date:yyyyMMddWW}{seq}"),
		mark(serial.PerDay, "{type}{date:yyMMDDWW}{seq}"))
	require.Equal(t, mark(serial.PerDay, "{type}{date:YYYYMMddFFFF}{seq}"),
		mark(serial.PerDay, "{type}{date:yyMMDDFF}{seq}"))
	different := map[string]string{}
	for _, template := range []string{
		"{type}{date:GGGGWW}{seq:6}", "{type}{seq:6}{date:GGGGWW}", "{date:GGGGWW}{type}{seq:6}",
		"{type}{date:WWGGGG}{seq:6}", "{type}{date:GGGGWWdd}{seq:6}", "{type}{date:GGGGWW}{seq:6:base32}",
		"{type}{date:GGGGWW}{seq:6:base36}", "{type}{date:GGGGWW}{seq:6}{check:luhn}",
		"{type}{date:GGGGWW}{seq:6}{check:damm}", "{type}{date:GGGGWW}{check:damm}{seq:6}", "{type}{date:yyyyMMdd}{seq:6}",
	} {
		for name, opts := range map[string][]serial.Option{
			"": nil, "key": {serial.WithHiddenSequence(hiddenKey)},
			"other": {serial.WithHiddenSequence([]byte("fedcba9876543210"))},
		} {
			m := mark(serial.PerWeek, template, opts...)
			require.Empty(t, different[m])
			different[m] = template + name
		}
	}

	usual := mark(serial.PerDay, "{type}{date:yyyyMMdd}{seq}")
	for _, template := range []string{"{type}{date:YYYYMMDD}-{seq:4+}", "{{{type}.{date:yy年MM月dd日}{seq:15}}}"} {
		require.Equal(t, usual, mark(serial.PerDay, template))
		require.Equal(t, usual, mark(serial.PerDay, template, serial.WithYearStart(time.April, 6)))
	}
	for _, template := range []string{"{type}{date:yyyyDDD}{seq}", "{type}{date:FFFFMMdd}{seq}",
		"{type}{date:yyyyMMdd}{seq:4:base36}", "{type}{date:yyyyMMdd}{seq}{check:gs1}"} {
		require.NotEqual(t, usual, mark(serial.PerDay, template))
	}
}

// Printing allocates the string alone, and parsing the type alone while the date stays; check digits and alphabets
// nothing more.
func TestSchemesAllocateLittle(t *testing.T) {
	for template, most := range map[string]float64{
		"{type}{date:yyyyMMdd}{seq:6}": 1, "{type}{date:yyyyMMdd}{seq:6:base32}": 1,
		"{type}{date:yyyyMMdd}{seq:6}{check:luhn}": 1, "{type}{date:yyyyMMdd}{seq:6}{check:damm}": 1,
		"{type}{date:yyyyMMdd}{seq:6:base36}{check:37-36}": 1, "RF{check:97-10}{type}{date:yyyyMMdd}{seq:6}": 1,
	} {
		s := newScheme(t, serial.WithTemplate(template))
		n, err := s.Number("IS", time.Date(2024, 12, 30, 12, 0, 0, 0, time.UTC), 4711)
		require.NoError(t, err)
		text := n.String()
		require.EqualValues(t, 1, testing.AllocsPerRun(100, func() { _ = n.String() }), template)
		require.LessOrEqual(t, testing.AllocsPerRun(100, func() { _, _ = s.Parse(text) }), most, template)
	}
}

// Instants without a date of 1970 to 9999 are errors at once, however far away, in zones with rules too.
func TestFarInstants(t *testing.T) {
	t.Parallel()
	far := []time.Time{time.Unix(time.Now().UnixNano(), 0), time.Unix(1<<62, 0), time.Unix(-1<<62, 0),
		time.Unix(253402300800+48*3600, 0), time.Unix(-48*3600, 0), {}}
	for _, zone := range []string{"UTC", "America/New_York", "Europe/Berlin", "Pacific/Apia", "Asia/Gaza"} {
		for per := serial.PerSecond; per <= serial.Never; per++ {
			s := newScheme(t, serial.WithPeriod(per), serial.WithLocation(location(t, zone)),
				serial.WithTemplate("{type}{date:yyyyMMddHHmmssGGGGWWFFFFQ}{seq}"))
			for _, at := range far {
				name := fmt.Sprint(per, zone, at.Unix())
				require.ErrorContains(t, errOf(s.Number("IS", at, 1)), "want 1970 to", name)
				_, _, err := s.Span(at)
				require.ErrorContains(t, err, "want 1970 to", name)
				_, err = s.Audit("IS", at, 1, func(func(string, error) bool) {})
				require.ErrorContains(t, err, "want 1970 to", name)
				label, start, end := s.Period(at)
				require.Zero(t, label, name)
				require.True(t, start.IsZero() && end.IsZero(), name)
			}
		}
	}
}

// The date counts as it is in the zone, and with a day start that of the business day.
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
		_, err = s.Number("IS", at, 1)
		require.Equal(t, c.ok, err == nil, "%s: %v", c.at, err)
		label, _, _ := s.Period(at)
		require.Equal(t, c.ok, label != "", c.at)
	}
}

// The one period of Never is the same in every zone, also where it begins on 31 December 1969.
func TestPeriodOfNever(t *testing.T) {
	for _, east := range []int{-3600, 0, 3600} {
		s := newScheme(t, serial.WithPeriod(serial.Never), serial.WithTemplate("{type}{seq}"),
			serial.WithLocation(time.FixedZone("", east)))
		for at, want := range map[int64]string{-1: "", 0: "all", 7200: "all", 253402214399: "all", 253402214400: ""} {
			label, start, _ := s.Period(time.Unix(at, 0))
			require.Equal(t, want, label, "%d at %d", east, at)
			require.Equal(t, want == "", start.IsZero(), "%d at %d", east, at)
			if want == "" {
				require.Error(t, errOf(s.Number("IS", time.Unix(at, 0), 1)), "%d at %d", east, at)
			}
		}
	}
}

// The zero Scheme counts by nothing, which gapless refuses.
func TestCalendarOfNoScheme(t *testing.T) {
	require.Empty(t, new(serial.Scheme).Calendar())
}

// Periods as people write them. Neither a day start nor a missing midnight changes the name.
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
		{"2021", noon, in(serial.PerYear, "{date:yyyy}")},
		{"business year 2020", time.Date(2021, 4, 5, 12, 0, 0, 0, time.UTC), in(serial.PerYear, "{date:FFFF}", april)},
		{"all time", noon, in(serial.Never, "")},
		{"11 September 2022", time.Date(2022, 9, 11, 12, 0, 0, 0, santiago), options(serial.WithLocation(santiago))},
		{"", time.Date(1969, 1, 1, 0, 0, 0, 0, time.UTC), nil},
	} {
		scheme, err := serial.NewScheme(append(options(serial.WithLocation(time.UTC)), test.opts...)...)
		require.NoError(t, err, test.want)
		require.Equal(t, test.want, scheme.PeriodName(test.at))
	}
}
