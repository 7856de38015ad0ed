package serialpage

import (
	"context"
	"encoding/json"
	"html"
	"iter"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dailyserial/serial"
)

// days is a Source with three numbers on each of so many days, the last of which has the time when.
type days struct {
	fixed
	count int
	used  int64 // 0 means three numbers, and -1 none, in accounts
}

func (d days) history(_ context.Context, typ string, most int) (all []serial.Number, err error) {
	for day := range min(most, d.count) {
		n, err := d.of.Number(typ, serial.At(d.when.AddDate(0, 0, -day)), 3)
		if err != nil {
			return nil, err
		}
		all = append(all, n)
	}
	return all, nil
}

func (d days) last(ctx context.Context, typ string) (serial.Number, error) {
	all, err := d.history(ctx, typ, 1)
	return all[0], err
}

// listed returns the days that a page of a series lists, and the addresses of the next pages.
func listed(page string) (days []string, newer, older string) {
	for _, m := range regexp.MustCompile(`scope="row"><a href="[^"]*">([^<]*)</a>`).FindAllStringSubmatch(page, -1) {
		days = append(days, m[1])
	}
	for rel, to := range map[string]*string{"prev": &newer, "next": &older} {
		if m := regexp.MustCompile(`<a href="([^"]*)" rel="` + rel + `"`).FindStringSubmatch(page); m != nil {
			*to = "/numbers/" + html.UnescapeString(m[1])
		}
	}
	return days, newer, older
}

func newest(n int, end time.Time) (days []string) {
	for i := range n {
		days = append(days, end.AddDate(0, 0, -i).Format("2 January 2006"))
	}
	return days
}

// daysSite serves a series with numbers on so many days, the last of which is 1 November 2021.
func daysSite(t *testing.T, count int) (*site, *days) {
	t.Helper()
	scheme := schemeOf(t, "{type}{date:yyyyMMdd}{seq:4}", "UTC")
	d := &days{fixed{scheme, 3, time.Date(2021, 11, 1, 9, 0, 0, 0, time.UTC)}, count, 0}
	return open(t, func(s *site) { s.series[0].Source = d }), d
}

// A page shows fifty periods. Its links name periods, so none is repeated or left out when another begins.
func TestPagesOfPeriods(t *testing.T) {
	s, d := daysSite(t, 1203)
	end := d.when
	const first = "/numbers/series?key=IS"
	var all []string
	last, pages := "", 0
	for at := first; at != ""; pages++ {
		last = at
		shown, _, older := listed(s.get(200, at))
		require.LessOrEqual(t, len(shown), 50)
		all, at = append(all, shown...), older
		d.when, d.count = d.when.AddDate(0, 0, 1), d.count+1 // another one begins
	}
	require.Equal(t, newest(1203, end), all)
	require.Equal(t, 25, pages)

	all, pages = nil, 0
	for at := last; at != ""; pages++ {
		shown, newer, _ := listed(s.get(200, at))
		all, at = append(slices.Clone(shown), all...), newer
	}
	require.Equal(t, newest(d.count, d.when), all, "all of them on the way back, and the new ones")
	require.Equal(t, 26, pages)

	shown, newer, older := listed(s.get(200, first+"&before=2021-10-24T12:00:00Z"))
	require.Equal(t, "24 October 2021", shown[0], "any time will do")
	require.NotEmpty(t, newer)
	require.NotEmpty(t, older)
	page := s.get(200, first+"&before=1990-10-24T00:00:00Z")
	shown, newer, older = listed(page)
	require.Equal(t, []string{"", first, ""}, []string{strings.Join(shown, ""), newer, older})
	require.Contains(t, page, "There are no periods here.")
	for _, wrong := range []string{"&before=x", "&after=2021"} {
		s.get(400, first+wrong)
	}

	d.count = 50
	_, newer, older = listed(s.get(200, first))
	require.Empty(t, newer+older)
}

const some = "/numbers/series?key=IS&show=discrepancies"

// A page shows all periods, or those with discrepancies and those that were not checked. The last audit counts, however
// old.
func TestPeriodsToLookAt(t *testing.T) {
	s, d := daysSite(t, 130)
	s.series[0].Source = eachDay{d}
	day := func(back int) time.Time { return d.when.AddDate(0, 0, -back).Truncate(24 * time.Hour) }
	check := func(back int) { s.get(200, "/numbers/"+address("period", "IS", day(back))) }
	s.stored = nil
	var want []string
	for back := range 130 {
		if back%10 == 0 || back >= 120 { // a number is missing, or nobody looks
			want = append(want, day(back).Format("2 January 2006"))
		}
		for seq := int64(1); seq <= 3; seq++ {
			if back < 120 && (back%10 > 0 || seq > 1) {
				s.stored = append(s.stored, numberOf(t, d.of, day(back), seq))
			}
		}
	}
	page := s.get(200, some)
	shown, _, older := listed(page)
	require.Equal(t, newest(50, d.when), shown)
	require.Contains(t, older, "show=discrepancies")
	require.Contains(t, page, ">not checked<")
	for back := range 120 {
		check(back)
	}
	shown, newer, older := listed(s.get(200, some))
	require.Equal(t, want, shown)
	require.Empty(t, newer+older)
	require.Contains(t, s.get(200, "/numbers/series?key=IS"),
		`<a href="series?key=IS&amp;show=discrepancies">With discrepancies or not checked</a>`)

	s.stored = append(s.stored, numberOf(t, d.of, d.when, 1))
	s.handler().audits.forget(periodKey{"IS", day(0).Unix()})
	shown, _, _ = listed(s.get(200, some))
	require.Equal(t, want, shown)
	check(0)
	shown, _, _ = listed(s.get(200, some))
	require.Equal(t, want[1:], shown)

	// A past period of which no number was used can be checked, too.
	d.used = -1
	check(125)
	shown, _, _ = listed(s.get(200, some))
	require.Len(t, shown, len(want)-2)
}

// If all periods were checked and have no discrepancies, there is nothing to look at. Without Stored, there is no such
// choice.
func TestNothingToLookAt(t *testing.T) {
	s := open(t, func(s *site) { s.stored = append(s.stored, "IS202110240002", "IS202110240004") })
	s.get(200, today)
	page := s.get(200, some)
	shown, newer, older := listed(page)
	require.Empty(t, strings.Join(shown, "")+newer+older)
	require.Contains(t, page, "There is nothing to look at.")
	s.series[0].Stored = nil
	page = s.get(200, some)
	shown, _, _ = listed(page)
	require.Len(t, shown, 1)
	require.NotContains(t, page, "show=discrepancies")
}

// eachDay accounts for any day, of which three numbers were issued.
type eachDay struct{ *days }

func (d eachDay) audit(_ context.Context, typ string, at time.Time, used iter.Seq2[string, error],
	opts ...serial.AuditOption) (serial.Report, error) {
	return d.of.Audit(typ, serial.At(at), []int64{3, 0}[-d.used], used, opts...)
}

// The pages say how far the numbers of a series go.
func TestReach(t *testing.T) {
	for want, opts := range map[string][]serial.Option{
		"Up to 9 999 numbers in each period. Time zone": nil,
		"Up to 50 numbers in each period. Numbers are issued until 30 December 9999. Time zone": {serial.WithLast(50),
			serial.WithUntil(serial.On(9999, time.December, 30))},
		"Up to 41 numbers. Numbers were issued until 31 December 2021. Time zone": {serial.WithPeriod(serial.Never),
			serial.WithTemplate("{type}-{seq:4}"), serial.WithStart(10), serial.WithLast(50),
			serial.WithUntil(serial.On(2021, time.December, 31))},
		"Type IS. Time zone": {serial.WithTemplate("{type}{date:yyyyMMdd}-{seq:4+}")},
	} {
		scheme, err := serial.NewScheme(append(opts, serial.WithLocation(time.UTC))...)
		require.NoError(t, err)
		s := open(t, func(s *site) { s.series[0].Source = fixed{scheme, 3, s.start} })
		page := s.get(200, "/numbers/series?key=IS")
		require.Contains(t, textOf(page), want)
		want = strings.TrimPrefix(want, "Type IS. ")
		require.Contains(t, textOf(s.get(200, "/numbers/"+s.periods(page)[0])), want)
	}
}

// asking records how many periods a source is asked for.
type asking struct {
	days
	most *[]int
}

func (a asking) history(ctx context.Context, typ string, most int) ([]serial.Number, error) {
	*a.most = append(*a.most, most)
	return a.days.history(ctx, typ, most)
}

// A series is read whole once, and then only as far as it goes.
func TestSeriesIsReadWholeOnce(t *testing.T) {
	end := time.Date(2021, 10, 24, 12, 0, 0, 0, time.UTC)
	var most []int
	s := open(t, nil)
	show := func(count int, end time.Time) []int {
		t.Helper()
		most = nil
		s.series[0].Source = asking{days{fixed{s.gen.Scheme(), 3, end}, count, 0}, &most}
		listed, _, _ := listed(s.get(200, "/numbers/series?key=IS"))
		require.Len(t, listed, count)
		return most
	}
	require.Equal(t, []int{1000, 10000}, show(5, end))
	require.Equal(t, []int{1000}, show(5, end))
	require.Equal(t, []int{1000}, show(6, end.AddDate(0, 0, 1)), "a day has begun")
	require.Equal(t, []int{1000, 10000}, show(3, end), "the oldest days are no longer kept, or not so near")
	require.Equal(t, []int{1000}, show(3, end))
}

// A list has the periods of the days from one date to another, on its pages, in exports and on one page for paper.
func TestPeriodsFromTo(t *testing.T) {
	s, d := daysSite(t, 120)
	october, _, _ := listed(s.get(200, seriesPage+"&from=2021-10-01&to=2021-10-31"))
	require.Equal(t, newest(31, d.when.AddDate(0, 0, -1)), october)
	shown, _, _ := listed(s.get(200, seriesPage+"&to=2021-07-06"))
	require.Equal(t, []string{"6 July 2021", "5 July 2021"}, shown)
	page := s.get(200, seriesPage+"&from=2020-01-01&to=2021-07-04")
	require.Contains(t, page, "No number was issued in these periods")

	const since = "&from=2021-08-01"
	var all []string
	for at := seriesPage + since; at != ""; {
		page, _, older := listed(s.get(200, at))
		require.LessOrEqual(t, len(page), 50)
		all, at = append(all, page...), older
	}
	require.Equal(t, newest(93, d.when), all)
	shown, newer, older := listed(s.get(200, seriesPage+since+"&pages=one"))
	require.Equal(t, all, shown)
	require.Empty(t, newer+older)
	lines := csvOf(t, s.get(200, "/numbers/series.csv?key=IS"+since))
	require.Len(t, lines, 94)
	require.Equal(t, "1 August 2021", lines[93][0])
	var out jsonPeriods
	require.NoError(t, json.Unmarshal([]byte(s.get(200, "/numbers/series.json?key=IS"+since)), &out))
	require.Len(t, out.Periods, 93)

	for _, wrong := range []string{"&from=x", "&to=2021-02-29", "&from=1969-12-31", "&from=2021-10-02&to=2021-10-01",
		"&from=2021-1-1"} {
		for _, path := range []string{seriesPage, "/numbers/series.csv?key=IS", "/numbers/series.json?key=IS"} {
			s.get(400, path+wrong)
		}
	}
}

// A period of which only some days are chosen is listed.
func TestPeriodsOfSomeDays(t *testing.T) {
	scheme := schemeOf(t, "{type}{date:yyyyMM}{seq:4}", "UTC", serial.WithPeriod(serial.PerMonth))
	s := &Series{Source: fixed{of: scheme}}
	var covered []time.Month
	for month := time.January; month <= time.December; month++ {
		start := time.Date(2021, month, 1, 0, 0, 0, 0, time.UTC)
		if (selection{from: "2021-03-31", to: "2021-05-01"}).covers(s, start) {
			covered = append(covered, month)
		}
	}
	require.Equal(t, []time.Month{time.March, time.April, time.May}, covered)
}

// The list of periods can be downloaded as CSV and JSON, with what the checks found.
func TestListExport(t *testing.T) {
	s := kept(t, nil)
	s.stored = s.stored[1:]
	const csv, out = "/numbers/series.csv?key=IS", "/numbers/series.json?key=IS"
	require.Contains(t, csvOf(t, s.get(200, csv)), []string{"24 October 2021", "2021-10-24T00:00:00Z",
		"2021-10-25T00:00:00Z", "IS202110240001", "IS202110240003", "3", "", "", "", "not checked", "", ""})
	require.Contains(t, s.get(200, out), `"stored":null`)
	require.Contains(t, s.check(303), `<a href="series.csv?key=IS">`)
	lines := csvOf(t, s.get(200, csv))
	require.Len(t, lines, 3)
	require.Equal(t, []string{"3", "3", "0", "0", "accounted for"}, lines[1][5:10])
	require.Equal(t, []string{"3", "2", "0", "1", "discrepancies"}, lines[2][5:10])
	require.Len(t, csvOf(t, s.get(200, csv+"&show=discrepancies")), 2)
	require.Contains(t, s.get(200, out), `"issued":3,"stored":2,"explained":0,"unexplained":1,"clean":false,`)
	for path, want := range map[string]string{csv: contentTypes["csv"], out: contentTypes["json"]} {
		for _, method := range []string{"GET", "HEAD"} {
			response, _ := s.send(method, path, "")
			require.Equal(t, want, response.Header.Get("Content-Type"))
		}
	}
}
