package serialpage

import (
	"context"
	"fmt"
	"iter"
	"regexp"
	"runtime/debug"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dailyserial/serial"
)

// The last day of the year 9999 ends in a year that RFC 3339 cannot express. Its pages must work all the same.
func TestYear9999(t *testing.T) {
	visit(t, func(s *site) { s.counter.table = true }, func(t *testing.T, s *site) {
		const last = "key=IS&start=9999-12-31T00:00:00Z"
		require.Contains(t, s.get(200, "/numbers/period?"+last), "31 December 9999, 00:00 UTC to 1 January 10000, 00:00")
		require.Contains(t, s.get(200, "/numbers/period.json?"+last), `"end":null`)
		west := time.FixedZone("west", -5*3600)
		require.Equal(t, "period?key=IS&start=9999-12-31T23%3A00%3A00-05%3A00",
			address("period", "IS", time.Date(9999, 12, 31, 23, 0, 0, 0, west)))
	})
}

// Pages must show times in the time zone of the series, and the name of this zone. If the zone has no name, they must
// show its offset.
func TestZones(t *testing.T) {
	visit(t, nil, func(t *testing.T, s *site) {
		local := regexp.QuoteMeta(time.Now().In(time.Local).Format("MST"))
		for want, zone := range map[string]*time.Location{
			`As of .* UTC$|Time zone: UTC\..*UTC`: time.UTC, `Time zone: the server’s, ` + local: time.Local,
			`Time zone: UTC\+05:45\. As of 24 October 2021, 17:45 \+0545`: time.FixedZone("", 5*3600+45*60),
		} {
			scheme, err := serial.NewScheme(serial.WithLocation(zone))
			require.NoError(t, err)
			s.use(5, scheme)
			require.Regexp(t, want, pageText(s.get(200, seriesPage)))
			require.Contains(t, s.get(200, "/numbers/"), "1 series, as of "+time.Now().In(zone).Format("2 January 2006, 15:04"))
		}
	})
}

// If a period is longer than a day, its page must show its first and last business day.
func TestDaysOfPeriods(t *testing.T) {
	in := func(p serial.Period, date string, more ...serial.Option) []serial.Option {
		return append(more, serial.WithPeriod(p), serial.WithTemplate("{type}"+date+"{seq:4}"))
	}
	// With a day start, the last business day ends on the next date. On a day when clocks are set forward, there may be
	// no midnight.
	night := serial.WithDayStart(4 * time.Hour)
	for _, c := range []struct {
		want, zone, at string
		opts           []serial.Option
	}{
		{"week 47 of 2021: 22 November 2021 to 28 November 2021", "UTC", "2021-11-24",
			in(serial.PerWeek, "{date:GGGGWW}", night)},
		{"November 2021: 1 November 2021 to 30 November 2021", "UTC", "2021-11-24",
			in(serial.PerMonth, "{date:yyyyMM}", night)},
		{"business year 2021: 6 April 2021 to 5 April 2022", "UTC", "2021-11-24", in(serial.PerYear, "{date:FFFF}",
			serial.WithYearStart(time.April, 6), night)},
		{"10 September 2022: ", "America/Santiago", "2022-09-10", nil},
		{"11 September 2022: ", "America/Santiago", "2022-09-11", nil},
		{"October 2023: 1 October 2023 to 31 October 2023", "America/Asuncion", "2023-10-24",
			in(serial.PerMonth, "{date:yyyyMM}")},
	} {
		zone, err := time.LoadLocation(c.zone)
		require.NoError(t, err)
		day, err := time.ParseInLocation(time.DateOnly, c.at, zone)
		require.NoError(t, err)
		scheme, err := serial.NewScheme(append([]serial.Option{serial.WithLocation(zone)}, c.opts...)...)
		require.NoError(t, err, c.want)
		p, _ := periodAt(scheme, day.Add(12*time.Hour))
		require.Equal(t, c.want, p.Name+": "+p.Days())
	}
	require.Equal(t, "1\u202f234\u202f567 999 -1\u202f000", fmt.Sprint(count(1234567), " ", count(999), " ", count(-1000)))
}

// Numbers of earlier schemes must be accounted for, and can be explained as they were printed. The handler must request
// explanations for the start of the period in each scheme, and stored numbers for an interval that contains the period
// of every scheme.
func TestEarlier(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var spans []string
		brazil := newScheme(t, "{type}-{date:yyyyMMdd}-{seq:1}{check:luhn}", "America/Sao_Paulo",
			serial.WithDayStart(4*time.Hour))
		number := func(seq int64) string { return printed(t, brazil, "IS", noon, seq) }
		s := open(t, func(s *site) {
			s.series[0].Stored = func(ctx context.Context, start, end time.Time) iter.Seq2[string, error] {
				spans = append(spans, fmt.Sprint(start.UTC().Format("02 15:04"), end.UTC().Format(" 02 15:04")))
				return s.yield(ctx, start, end)
			}
			s.stored = []string{"IS/20211024/1", "IS202110240003", number(5), "IS/20211024/9", "IS/3"}
			s.series[0].Earlier = []*serial.Scheme{brazil,
				newScheme(t, "{type}/{date:yyyyMMdd}/{seq:1}", "UTC"), // begins like the current one
				newScheme(t, "{type}.{date:yyyyMMdd}.{seq:4}", "Pacific/Apia"),
			}
			for hours, reason := range map[time.Duration]string{7: "as of Brazil", -13: "as of Samoa", -24: "as of yesterday"} {
				s.register.add(serial.Explanation{First: 4, Reason: reason, By: "Ada", Start: midnight.Add(hours * time.Hour)})
			}
		})
		text := s.get(200, todayJSON)
		at := func(day, hour int) time.Time { return time.Date(2021, 10, day, hour, 0, 0, 0, time.UTC) }
		require.Len(t, s.register.asked, 3)
		for i, want := range []time.Time{at(23, 11), at(24, 7), at(24, 0)} {
			require.True(t, want.Equal(s.register.asked[i]), s.register.asked[i])
		}
		require.Equal(t, []string{"23 11:00 25 07:00"}, spans)
		for _, part := range []string{`"stored":3,`, `"beyond":["IS/20211024/9"]`, `"missingCount":2,`,
			`"reason":"as of Brazil"`, `"unexplained":[{"first":2,"last":2}]`} {
			require.Contains(t, text, part)
		}
		require.Regexp(t, `"replaced":.*as of Samoa`, text)
		require.NotContains(t, text, "yesterday")

		wrong := number(2)
		wrong = wrong[:len(wrong)-1] + string('0'+('9'-wrong[len(wrong)-1]))
		for given, says := range map[string]string{
			"IS/20211023/1": "numbers of this series and period", "PO/20211024/2": "numbers of this series and period",
			"IS/2": "complete numbers of this series, as they are printed", wrong: "has a wrong check digit",
		} {
			text, _ := s.explain(400, "first", given, "reason", "torn")
			require.Contains(t, pageText(text), says, given)
		}
		s.register.all = nil
		s.explain(303, "first", "IS/20211024/2", "last", number(4), "reason", "torn")
		require.Equal(t, []serial.Range{{First: 2, Last: 2}, {First: 4, Last: 4}}, s.said())
		require.True(t, s.register.all[0].Start.Equal(midnight), "as the current scheme has it")
	})
}

// The period with the same label must be found in another scheme, for every unit and whatever the time zones and day
// starts are.
func TestPeriodInAnotherScheme(t *testing.T) {
	for _, unit := range []struct {
		per   serial.Period
		date  string
		start time.Duration
	}{
		{serial.PerSecond, "{date:yyyyMMddHHmmss}", 0}, {serial.PerDay, "{date:yyyyMMdd}", 23 * time.Hour},
		{serial.PerWeek, "{date:GGGGWW}", 23 * time.Hour}, {serial.PerYear, "{date:yyyy}", 23 * time.Hour},
		{serial.Never, "", 0},
	} {
		apia := newScheme(t, "{type}"+unit.date+"{seq}", "Pacific/Apia", serial.WithPeriod(unit.per))
		honolulu := newScheme(t, "{type}-"+unit.date+"{seq}", "Pacific/Honolulu", serial.WithPeriod(unit.per),
			serial.WithDayStart(unit.start))
		for _, at := range []time.Time{time.Date(1970, 1, 20, 5, 0, 0, 0, time.UTC),
			time.Date(2021, 10, 31, 0, 30, 0, 0, time.UTC), time.Date(2026, 3, 29, 1, 30, 0, 0, time.UTC)} {
			for from, to := range map[*serial.Scheme]*serial.Scheme{apia: honolulu, honolulu: apia} {
				p, _ := periodAt(from, at)
				start, end, ok := labelled(to, p)
				require.True(t, ok, "%v of %v", p, unit.per)
				label, wantStart, wantEnd := to.Period(serial.At(start))
				require.Equal(t, p.label, label)
				require.True(t, wantStart.Equal(start) && wantEnd.Equal(end))
			}
		}
	}
	// There was no 30 December 2011 in Apia. After the last period, there is no label.
	p, _ := periodAt(newScheme(t, "{type}{date:yyyyMMdd}{seq}", "UTC"), time.Date(2011, 12, 30, 0, 0, 0, 0, time.UTC))
	_, _, ok := labelled(newScheme(t, "{type}{date:yyyyMMdd}{seq}", "Pacific/Apia"), p)
	require.False(t, ok)
	p, _ = periodAt(newScheme(t, "{type}{date:yyyyMMdd}{seq}", "UTC"), time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC))
	start, _, ok := labelled(newScheme(t, "{type}{date:yyyyMMdd}{seq}", "Asia/Tokyo"), p)
	require.True(t, ok)
	require.Equal(t, "9999-12-31 00:00:00", start.Format(time.DateTime))
}

// A series whose numbers hide their sequences must be recognized, whatever is printed around the sequences. If a period
// has no end, its first instant may have no date that a number can print, depending on the time zone.
func TestHiddenSequences(t *testing.T) {
	never := serial.WithPeriod(serial.Never)
	for _, zone := range []string{"UTC", "America/New_York", "Pacific/Kiritimati"} {
		for template, opts := range map[string][]serial.Option{
			"{type}{date:yyyyMMdd}{seq:6}": nil, "{type}{date:yyyyMMdd}{seq:6}{check:97-10}": nil,
			"{check:luhn}{type}{date:yyyyMMdd}-{seq:6}": nil, "{type}{date:yyyyMMdd}{seq:6:base32}": nil,
			"{type}{seq:6}": {never}, "{type}{date:yyMM}{seq:6}": {never}, "{type}{date:BB}{seq:6:base32}": {never},
			"{type}{date:MM}{seq:6}": {never},
		} {
			for _, hide := range []bool{false, true} {
				if hide {
					opts = append(opts, hidden)
				}
				s := &Series{Type: "IS", Source: &counter{rules: newScheme(t, template, zone, opts...)}}
				p, ok := periodAt(s.Source.scheme(), noon)
				require.True(t, ok)
				require.Equal(t, hide, newPrinter(s, p).hidden, "%s in %s", template, zone)
			}
		}
	}
}

// The share of issued numbers may be rounded to 0% only if none was issued, and to 100% only if all were.
func TestFullText(t *testing.T) {
	for want, n := range map[string][2]int64{
		"0% of 9": {0, 9}, "<0.1% of 99\u202f999": {1, 99_999}, "0.1% of 1\u202f000": {1, 1000}, "0.2% of 500": {1, 500},
		"33.3% of 9": {3, 9}, "99.9% of 99\u202f999": {99_998, 99_999}, "100% of 9": {9, 9}, "100% of 8": {9, 8},
	} {
		require.Equal(t, want, fullText(n[0], n[1]))
	}
}

// If all possible reasons of a range have the same words, the form must contain these words, and otherwise no reason.
func TestReasonFillsForm(t *testing.T) {
	visit(t, nil, func(t *testing.T, s *site) {
		for _, c := range []struct {
			by   [2]string
			all  [2]string
			want string
		}{
			{[2]string{"", ""}, [2]string{serial.AnswerLost + ": 1 attempt", serial.AnswerLost + ": 2 attempts"},
				"request without a reply"},
			{[2]string{"Eve", "Ada"}, [2]string{"unplugged", "unplugged"}, "unplugged"},
			{[2]string{"Eve", ""}, [2]string{serial.Raised, serial.Raised}, ""},
			{[2]string{"", ""}, [2]string{serial.Raised, serial.BlockSkipped}, ""},
			{[2]string{"", ""}, [2]string{"raised the flag", serial.Raised + "; more"}, ""},
		} {
			s.register.all = nil
			for i, reason := range c.all {
				s.register.add(serial.Explanation{First: 4, Last: 9999, Reason: reason, By: c.by[i], Possible: true})
			}
			s.forget()
			links := linksTo(s.get(200, today, "X-User", "Ada"), "period")
			require.Len(t, links, 2)
			require.Equal(t, c.want, formValues(s.get(200, links[1], "X-User", "Ada")).Get("reason"), fmt.Sprint(c))
			require.Empty(t, formValues(s.get(200, links[0], "X-User", "Ada")).Get("reason"), "nothing touches 2")
		}
	})
}

// If there are more replaced explanations than a report has read, the page must mention it.
func TestManyExplanations(t *testing.T) {
	visit(t, nil, func(t *testing.T, s *site) {
		for i := range 1002 {
			s.register.add(serial.Explanation{First: 2, Reason: fmt.Sprint("reason ", i), By: "Ada"})
		}
		const cut = "There may be more replaced explanations than those listed."
		require.Contains(t, s.get(200, today), cut)
		s.register.all = s.register.all[:1000]
		s.forget()
		require.NotContains(t, s.get(200, today), cut)

		// A report lists only the first thousand ranges, so later ones may have replaced explanations, too.
		s.use(2100, s.counter.rules)
		s.register.all = nil
		for seq := int64(1); seq <= 2020; seq += 2 {
			s.register.add(serial.Explanation{First: seq, Reason: "void", By: "Ada"})
		}
		s.forget()
		require.Contains(t, s.get(200, today), cut)
	})
}

// The version must be the version of the library, or of the module that replaces it.
func TestProgram(t *testing.T) {
	library := &debug.Module{Path: "github.com/dailyserial/serial", Version: "v1.2.3"}
	require.Equal(t, "serial v1.2.3", programIn(&debug.BuildInfo{Deps: []*debug.Module{{Path: "x"}, library}}))
	library.Replace = &debug.Module{Path: "../"}
	require.Equal(t, "serial (devel)", programIn(&debug.BuildInfo{Deps: []*debug.Module{library}}))
	require.Equal(t, "serial", programIn(&debug.BuildInfo{}))
	require.Equal(t, "serial", programIn(nil))
}
