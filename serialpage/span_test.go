package serialpage

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dailyserial/serial"
)

// The last day of the year 9999 ends in a year that RFC 3339 cannot express.
func TestYear9999(t *testing.T) {
	west := time.FixedZone("west", -5*3600)
	for _, c := range []struct {
		at   time.Time
		opts []serial.Option
	}{
		{time.Date(9999, 12, 31, 12, 0, 0, 0, time.UTC), nil},
		{time.Date(9999, 12, 31, 12, 0, 0, 0, time.UTC), []serial.Option{serial.WithPeriod(serial.PerYear),
			serial.WithTemplate("{type}{date:yyyy}{seq:4}")}},
		{time.Date(9999, 12, 31, 23, 30, 0, 0, west), []serial.Option{serial.WithLocation(west),
			serial.WithPeriod(serial.PerHour), serial.WithTemplate("{type}{date:yyyyMMddHH}{seq:4}")}},
	} {
		scheme, err := serial.NewScheme(append([]serial.Option{serial.WithLocation(time.UTC)}, c.opts...)...)
		require.NoError(t, err)
		s := open(t, func(s *site) { s.series[0].Source = fixed{scheme, 3, c.at} })
		page := s.get(200, "/numbers/series?key=IS")
		period := s.periods(page)[0]
		require.Contains(t, s.get(200, "/numbers/"+period), "✗ Not all numbers are accounted for.")
		var out struct {
			Start time.Time
			End   *time.Time
			Last  int64
		}
		text := s.get(200, "/numbers/"+strings.Replace(period, "period", "period.json", 1))
		require.NoError(t, json.Unmarshal([]byte(text), &out))
		_, start, _ := scheme.Period(serial.At(c.at))
		require.True(t, start.Equal(out.Start))
		require.Nil(t, out.End)
		require.EqualValues(t, 3, out.Last)
	}
}

// fixed is a Source with seq numbers in one period.
type fixed struct {
	of   *serial.Scheme
	seq  int64
	when time.Time
}

func (f fixed) scheme() *serial.Scheme { return f.of }

func (f fixed) last(_ context.Context, typ string) (serial.Number, error) {
	n, err := f.of.Number(typ, serial.At(f.when), f.seq)
	return n, err
}

func (f fixed) history(ctx context.Context, typ string, _ int) ([]serial.Number, error) {
	n, err := f.last(ctx, typ)
	return []serial.Number{n}, err
}

func (f fixed) audit(_ context.Context, typ string, at time.Time, used iter.Seq2[string, error],
	opts ...serial.AuditOption) (serial.Report, error) {
	_, start, end := f.of.Period(serial.At(f.when))
	last := f.seq
	if at.Before(start) || !at.Before(end) {
		last = 0
	}
	return f.of.Audit(typ, serial.At(at), last, used, opts...)
}

func (f fixed) auditAll(ctx context.Context, typ string, used iter.Seq2[string, error],
	opts ...serial.AuditOption) (serial.Reports, error) {
	last, err := f.history(ctx, typ, longestHistory)
	if err != nil {
		return serial.Reports{}, err
	}
	return f.of.AuditAll(typ, last, used, opts...)
}

func (f fixed) closed(context.Context, string) (time.Time, error) { return time.Time{}, nil }

// Pages show times in the zone of the series. A zone without a name is described.
func TestZones(t *testing.T) {
	tokyo, err := time.LoadLocation("Asia/Tokyo")
	require.NoError(t, err)
	in := func(zone *time.Location) Source {
		scheme, err := serial.NewScheme(serial.WithLocation(zone))
		require.NoError(t, err)
		return fixed{scheme, 3, time.Now()}
	}
	s := open(t, nil)
	local := strings.TrimSuffix(time.Now().Format("MST (UTC-07:00)"), " (UTC+00:00)")
	for want, zone := range map[string]*time.Location{
		"Time zone: Asia/Tokyo.": tokyo, "Time zone: UTC.": time.UTC, "Time zone: the server’s, " + local + ".": time.Local,
		"Time zone: UTC+05:45.": time.FixedZone("", 5*3600+45*60),
	} {
		s.series[0].Source = in(zone)
		text := textOf(s.get(200, "/numbers/series?key=IS"))
		require.Contains(t, text, want)
	}
	s.series = []Series{{Key: "1", Type: "IS", Source: in(tokyo)}, {Key: "2", Type: "IS", Source: in(tokyo)}}
	require.Regexp(t, `2 series, as of .* JST \(Asia/Tokyo\) `, textOf(s.get(200, "/numbers/")))
	s.series[1].Source = in(time.FixedZone("", -3600))
	overview := s.get(200, "/numbers/")
	require.Regexp(t, `2 series, as of .* UTC `, textOf(overview))
	require.Contains(t, overview, `<bdi class="quiet block">Asia/Tokyo</bdi>`)
	require.Contains(t, overview, `<bdi class="quiet block">UTC-01:00</bdi>`)
}

// Each page of a series shows times in its zone, which it names, also if the page says why there is no account.
func TestZoneOnEveryPage(t *testing.T) {
	kathmandu, err := time.LoadLocation("Asia/Kathmandu")
	require.NoError(t, err)
	s := open(t, nil)
	s.series[0].Earlier = []*serial.Scheme{s.series[0].Source.scheme()}
	for name, opts := range map[string][]serial.Option{
		"day": nil, "never": {serial.WithPeriod(serial.Never), serial.WithTemplate("{type}-{seq:4}")},
	} {
		scheme, err := serial.NewScheme(append(opts, serial.WithLocation(kathmandu))...)
		require.NoError(t, err)
		s.series[0].Source, s.series[0].Earlier = fixed{scheme, 3, time.Now()}, nil
		e := s.explanation(2, 2, "torn", "Ada", time.Date(2021, 10, 24, 20, 0, 0, 0, time.UTC))
		_, e.Start, _ = scheme.Period(serial.At(time.Now()))
		s.register.all = []serial.Explanation{e}
		s.handler().audits.forget(periodKey{"IS", e.Start.Unix()})
		period := "/numbers/" + address("period", "IS", e.Start)
		text := textOf(strings.ReplaceAll(s.get(200, period), "<", " <"))
		require.Contains(t, text, "Time zone: Asia/Kathmandu ", name)
		require.Contains(t, text, "Ada 25 October 2021, 01:45 +0545", name)
		require.Regexp(t, `Checked .* \+0545\.`, text, name)
		require.Regexp(t, `As of .* \+0545 `, textOf(s.get(200, "/numbers/series?key=IS")), name)
		require.Regexp(t, `as of .* \+0545 \(Asia/Kathmandu\)`, textOf(s.get(200, "/numbers/")), name)
		require.Regexp(t, `\+0545$`, textOf(s.get(404, "/numbers/find?number=x")), name)
		s.register.all[0].Reason = "\x00" // fails
		s.handler().audits.forget(periodKey{"IS", e.Start.Unix()})
		require.Regexp(t, `\+0545$`, textOf(s.get(503, period)), name)
	}
}

// A page shows the first and the last business day of a period of more than one.
func TestDaysOfPeriods(t *testing.T) {
	in := func(p serial.Period, date string, more ...serial.Option) []serial.Option {
		return append(more, serial.WithPeriod(p), serial.WithTemplate("{type}"+date+"{seq:4}"))
	}
	// With a day start, the last business day ends on the date after it. Where clocks are set forward, there may be no
	// midnight.
	night := serial.WithDayStart(4 * time.Hour)
	for _, c := range []struct {
		want, zone, at string
		opts           []serial.Option
	}{
		{"week 47 of 2021: 22 November 2021 to 28 November 2021", "UTC", "2021-11-24",
			in(serial.PerWeek, "{date:GGGGWW}", night)},
		{"November 2021: 1 November 2021 to 30 November 2021", "UTC", "2021-11-24",
			in(serial.PerMonth, "{date:yyyyMM}", night)},
		{"quarter 4 of 2021: 1 October 2021 to 31 December 2021", "UTC", "2021-11-24",
			in(serial.PerQuarter, "{date:yyyyQ}", night)},
		{"half-year 2 of 2021: 1 July 2021 to 31 December 2021", "UTC", "2021-11-24",
			in(serial.PerHalfYear, "{date:yyyyS}", night)},
		{"2021: 1 January 2021 to 31 December 2021", "UTC", "2021-11-24", in(serial.PerYear, "{date:yyyy}", night)},
		{"business year 2021: 6 April 2021 to 5 April 2022", "UTC", "2021-11-24", in(serial.PerYear, "{date:FFFF}",
			serial.WithYearStart(time.April, 6), night)},
		{"10 September 2022: ", "America/Santiago", "2022-09-10", nil},
		{"11 September 2022: ", "America/Santiago", "2022-09-11", nil},
		{"October 2023: 1 October 2023 to 31 October 2023", "America/Asuncion", "2023-10-24",
			in(serial.PerMonth, "{date:yyyyMM}")},
		{"quarter 3 of 2023: 1 July 2023 to 30 September 2023", "America/Asuncion", "2023-08-24",
			in(serial.PerQuarter, "{date:yyyyQ}")},
		{"quarter 4 of 2023: 1 October 2023 to 31 December 2023", "America/Asuncion", "2023-11-24",
			in(serial.PerQuarter, "{date:yyyyQ}")},
	} {
		zone, err := time.LoadLocation(c.zone)
		require.NoError(t, err)
		day, err := time.ParseInLocation(time.DateOnly, c.at, zone)
		require.NoError(t, err)
		scheme, err := serial.NewScheme(append([]serial.Option{serial.WithLocation(zone)}, c.opts...)...)
		require.NoError(t, err, c.want)
		p, _ := spanAt(scheme, day.Add(12*time.Hour))
		require.Equal(t, c.want, p.Name+": "+p.Days())
	}
	require.Equal(t, "1\u202f234\u202f567 999 -1\u202f000", fmt.Sprint(count(1234567), " ", count(999), " ", count(-1000)))
}

// schemeOf returns a scheme of days.
func schemeOf(t *testing.T, template, zone string, opts ...serial.Option) *serial.Scheme {
	t.Helper()
	location, err := time.LoadLocation(zone)
	require.NoError(t, err)
	s, err := serial.NewScheme(append(opts, serial.WithTemplate(template), serial.WithLocation(location))...)
	require.NoError(t, err)
	return s
}

// Numbers of earlier templates are accounted for, and explained as they were printed.
func TestEarlierTemplates(t *testing.T) {
	s := open(t, func(s *site) {
		s.stored = []string{"IS/20211024/1", "IS202110240003", "IS-20211024-4", "PO/20211024/1", "IS/20211024/9", "IS/3"}
	})
	require.Contains(t, textOf(s.get(200, today)), "IS/20211024/1")
	s.series[0].Earlier = []*serial.Scheme{schemeOf(t, "{type}/{date:yyyyMMdd}/{seq:1}", "UTC"),
		schemeOf(t, "{type}-{date:yyyyMMdd}-{seq:1}{check:luhn}", "UTC")}
	s.stored[2] = numberOf(t, s.series[0].Earlier[1], s.start, 4)
	s.handler().audits.forget(periodKey{"IS", s.start.Unix()})
	text := s.get(200, "/numbers/period.json?key=IS&start=2021-10-24T00:00:00Z")
	for _, part := range []string{`"stored":3,`, `"beyond":["IS/20211024/9"]`, `"foreign":["IS/3"]`, `"missingCount":2,`} {
		require.Contains(t, text, part)
	}

	five := numberOf(t, s.series[0].Earlier[1], s.start, 5)
	for given, says := range map[string]string{
		"IS/20211023/1": "numbers of this series and period", "PO/20211024/2": "numbers of this series and period",
		"IS/2": "numbers of this series, whole, as they are printed",
		five[:len(five)-1] + string('0'+('9'-five[len(five)-1])): "its check digit does not fit",
	} {
		text, _ := s.explain(400, "first", given, "reason", "torn")
		require.Contains(t, textOf(text), says, given)
	}
	_, location := s.explain(303, "first", "IS/20211024/2", "last", five, "reason", "torn")
	require.Equal(t, []serial.Range{{First: 2, Last: 2}, {First: 5, Last: 5}}, s.said())
	text = textOf(s.get(200, "/numbers/"+location))
	require.Contains(t, text, "IS202110240002torn")
	require.Contains(t, text, "not explained0")
}

func numberOf(t *testing.T, s *serial.Scheme, at time.Time, seq int64) string {
	t.Helper()
	n, err := s.Number("IS", serial.At(at), seq)
	require.NoError(t, err)
	return n.String()
}

// A registerOf answers only for the instants that it is asked about, as a table does.
type registerOf struct {
	*register
	asked *[]string
}

func (r registerOf) Explanations(ctx context.Context, series string, start time.Time) iter.Seq2[
	serial.Explanation, error] {
	*r.asked = append(*r.asked, start.UTC().Format("02 15:04"))
	return func(yield func(serial.Explanation, error) bool) {
		for e, err := range r.register.Explanations(ctx, series, start) {
			if e.Start.Equal(start) && !yield(e, err) {
				return
			}
		}
	}
}

// The register is asked for the period by each scheme, and the numbers stored are those of all of these.
func TestEarlierZones(t *testing.T) {
	var asked, spans []string
	s := open(t, func(s *site) {
		s.series[0].Explanations = registerOf{s.register, &asked}
		s.series[0].Stored = func(ctx context.Context, start, end time.Time) iter.Seq2[string, error] {
			spans = append(spans, fmt.Sprint(start.UTC().Format("02 15:04"), end.UTC().Format(" 02 15:04")))
			return s.yield(ctx, start, end)
		}
		s.series[0].Earlier = []*serial.Scheme{
			schemeOf(t, "{type}-{date:yyyyMMdd}-{seq:4}", "America/Sao_Paulo", serial.WithDayStart(4*time.Hour)),
			schemeOf(t, "{type}/{date:yyyyMMdd}/{seq:4}", "UTC"), // begins like the current one
			schemeOf(t, "{type}.{date:yyyyMMdd}.{seq:4}", "Pacific/Apia"),
		}
	})
	explain := func(hours time.Duration, first, last int64, reason string) {
		require.NoError(t, s.register.Explain(t.Context(), serial.Explanation{Series: "serial:IS", Type: "IS",
			Start: s.start.Add(hours * time.Hour), First: first, Last: last, Reason: reason, By: "Ada", At: s.start}))
	}
	explain(0, 2, 2, "as of today")
	explain(7, 2, 4, "as of Brazil")
	explain(-13, 4, 4, "as of Samoa")
	explain(-24, 4, 4, "as of yesterday")
	text := textOf(s.get(200, today))
	require.Equal(t, []string{"23 11:00", "24 07:00", "24 00:00"}, asked)
	require.Equal(t, []string{"23 11:00 25 07:00"}, spans)
	for _, part := range []string{"IS202110240002as of today", "IS202110240004as of Brazil", "not explained0"} {
		require.Contains(t, text, part)
	}
	require.Regexp(t, `IS202110240002as of Brazil .*IS202110240004as of Samoa|`+
		`IS202110240004as of Samoa .*IS202110240002as of Brazil`, text, "replaced")
	require.NotContains(t, text, "yesterday")

	// A reason given on the page has the current scheme's instant.
	s.register.all, spans = nil, nil
	s.stored = append(s.stored, "IS.20211024.0004")
	s.explain(303, "first", "IS-20211024-0001", "last", "IS/20211024/0005", "reason", "torn")
	require.Equal(t, []serial.Range{{First: 2, Last: 2}}, s.said())
	require.True(t, s.register.all[0].Start.Equal(s.start))
	require.Equal(t, []string{"23 11:00 25 07:00"}, spans)
}

// The instants of each unit are found, whatever the zones and day starts are.
func TestPeriodByAnotherScheme(t *testing.T) {
	for _, unit := range []struct {
		per  serial.Period
		date string
	}{
		{serial.PerSecond, "{date:yyyyMMddHHmmss}"}, {serial.PerHour, "{date:yyyyMMddHH}"},
		{serial.PerDay, "{date:yyyyMMdd}"}, {serial.PerWeek, "{date:GGGGWW}"}, {serial.PerYear, "{date:yyyy}"},
		{serial.Never, ""},
	} {
		day := []serial.Option{nil, nil}
		for i, start := range []time.Duration{0, 23 * time.Hour} {
			if day[i] = serial.WithDayStart(start); unit.per == serial.PerSecond || unit.per == serial.PerHour ||
				unit.per == serial.Never {
				day[i] = serial.WithDayStart(0)
			}
		}
		opts := func(i int) []serial.Option { return []serial.Option{serial.WithPeriod(unit.per), day[i]} }
		apia := schemeOf(t, "{type}"+unit.date+"{seq}", "Pacific/Apia", opts(0)...)
		honolulu := schemeOf(t, "{type}-"+unit.date+"{seq}", "Pacific/Honolulu", opts(1)...)
		for _, at := range []time.Time{time.Date(1970, 1, 20, 5, 0, 0, 0, time.UTC),
			time.Date(2021, 10, 31, 0, 30, 0, 0, time.UTC), time.Date(2026, 3, 29, 1, 30, 0, 0, time.UTC)} {
			for from, to := range map[*serial.Scheme]*serial.Scheme{apia: honolulu, honolulu: apia} {
				p, ok := spanAt(from, at)
				require.True(t, ok)
				start, end, ok := labelled(to, p)
				require.True(t, ok, "%v of %v", p, unit.per)
				label, wantStart, wantEnd := to.Period(serial.At(start))
				require.Equal(t, p.label, label)
				require.True(t, wantStart.Equal(start) && wantEnd.Equal(end))
			}
		}
	}
	// There was no 30 December 2011 in Apia.
	p, _ := spanAt(schemeOf(t, "{type}{date:yyyyMMdd}{seq}", "UTC"), time.Date(2011, 12, 30, 0, 0, 0, 0, time.UTC))
	_, _, ok := labelled(schemeOf(t, "{type}{date:yyyyMMdd}{seq}", "Pacific/Apia"), p)
	require.False(t, ok)
	// After the last period, there is no label.
	p, _ = spanAt(schemeOf(t, "{type}{date:yyyyMMdd}{seq}", "UTC"), time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC))
	start, _, ok := labelled(schemeOf(t, "{type}{date:yyyyMMdd}{seq}", "Asia/Tokyo"), p)
	require.True(t, ok)
	require.Equal(t, "9999-12-31 00:00:00", start.Format(time.DateTime))
}

// Schemes that do not fit are the application's mistake, which the log explains.
func TestEarlierRefused(t *testing.T) {
	s := open(t, nil)
	for says, scheme := range map[string]*serial.Scheme{
		"WithEarlier: scheme 1 is nil": nil,
		`WithEarlier: scheme 1 has the key prefix \"shop\"`: schemeOf(t, "{type}{date:yyyyMMdd}{seq}", "UTC",
			serial.WithKeyPrefix("shop")),
		`has the key prefix \"serial\" and the calendar \"months\"`: schemeOf(t, "{type}{date:yyyyMM}{seq}", "UTC",
			serial.WithPeriod(serial.PerMonth)),
	} {
		s.series[0].Earlier = []*serial.Scheme{scheme}
		for _, page := range []string{today, "/numbers/", "/numbers/series?key=IS"} {
			require.Contains(t, s.get(500, page), "These pages are not configured correctly.")
		}
		require.Contains(t, s.log.String(), says)
	}
}
