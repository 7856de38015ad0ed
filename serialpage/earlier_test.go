package serialpage

import (
	"context"
	"fmt"
	"iter"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dailyserial/serial"
)

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
