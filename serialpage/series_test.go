package serialpage

import (
	"html"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dailyserial/serial"
)

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

// lists requires that the page of the series lists these days, and returns the addresses of the next pages.
func (s *site) lists(days []string, query string) (newer, older string) {
	s.t.Helper()
	got, newer, older := listed(s.get(200, seriesPage+query))
	require.Equal(s.t, days, got)
	return newer, older
}

func newest(n int, end time.Time) (days []string) {
	for i := range n {
		days = append(days, end.AddDate(0, 0, -i).Format("2 January 2006"))
	}
	return days
}

// numbered returns a site with three numbers on each of count days, of which last is the latest.
func numbered(t *testing.T, count int, last time.Time) *site {
	return open(t, func(s *site) { s.issue(count, last) })
}

func (s *site) issue(count int, last time.Time) {
	var days []time.Time
	for day := range count {
		days = append(days, last.AddDate(0, 0, -day))
	}
	s.counter.all = newCounter(s.t, s.counter.rules, "IS", 3, days...).all
}

// A page shows fifty periods. If new periods begin while a reader follows the links to older and newer pages, no period
// may be repeated or left out.
func TestPagesOfPeriods(t *testing.T) {
	s := numbered(t, 1203, noon)
	var all []string
	last, pages := "", 0
	for at := seriesPage; at != ""; pages++ {
		last = at
		shown, _, older := listed(s.get(200, at))
		require.LessOrEqual(t, len(shown), 50)
		all, at = append(all, shown...), older
		s.issue(1204+pages, noon.AddDate(0, 0, pages+1)) // another period begins
	}
	require.Equal(t, newest(1203, noon), all)
	require.Equal(t, 25, pages)

	all, pages = nil, 0
	for at := last; at != ""; pages++ {
		shown, newer, _ := listed(s.get(200, at))
		all, at = append(slices.Clone(shown), all...), newer
	}
	require.Equal(t, newest(1228, noon.AddDate(0, 0, 25)), all, "all of them on the way back, and the new ones")
	require.Equal(t, 26, pages)

	shown, newer, older := listed(s.get(200, seriesPage+"&before=2021-10-24T12:00:00Z"))
	require.Equal(t, "24 October 2021", shown[0], "the time need not be the start of a period")
	require.NotEmpty(t, newer)
	require.NotEmpty(t, older)
	page := s.get(200, seriesPage+"&before=1990-10-24T00:00:00Z")
	shown, newer, older = listed(page)
	require.Equal(t, []string{"", seriesPage, ""}, []string{strings.Join(shown, ""), newer, older})
	require.Contains(t, page, "There are no periods on this page.")
	for _, wrong := range []string{"&before=x", "&after=2021"} {
		s.get(400, seriesPage+wrong)
	}
	s.issue(10_000, noon)
	require.Contains(t, s.get(200, seriesPage+"&pages=one"), "Only the newest 10\u202f000 periods are listed.")
	s.issue(50, noon)
	_, newer, older = listed(s.get(200, seriesPage))
	require.Empty(t, newer+older)
}

// A page shows all periods, or only those that have discrepancies or were not checked. A result must count for one day
// only. If there are no periods to show, the page must give the reason.
func TestUncheckedPeriods(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const some = "&show=discrepancies"
		s := numbered(t, 130, noon)
		s.stored = nil
		var want []string
		for back, n := range s.counter.all {
			if back%10 == 0 || back >= 120 { // a number is missing, or no page of the period is opened
				want = append(want, n.Start.Format("2 January 2006"))
			}
			for seq := int64(1); seq <= 3; seq++ {
				if back%10 > 0 || seq > 1 {
					s.stored = append(s.stored, printed(t, s.counter.rules, "IS", n.Start, seq))
				}
			}
		}
		_, older := s.lists(newest(50, noon), some)
		require.Contains(t, older, "show=discrepancies")
		for _, n := range s.counter.all[:120] {
			s.get(200, "/numbers/"+address("period", "IS", n.Start))
		}
		newer, older := s.lists(want, some)
		require.Empty(t, newer+older)

		s.stored = append(s.stored, printed(t, s.counter.rules, "IS", noon, 1))
		time.Sleep(maxReportAge)
		s.get(200, today)
		s.lists(want[1:], some)
		time.Sleep(time.Second)
		s.forget() // as if a number had been explained
		s.lists(want, some)
		time.Sleep(resultAge)
		s.lists(newest(50, noon), some)

		s.issue(0, noon)
		const none = "No number was issued, or the data of all periods has been deleted."
		require.Contains(t, s.get(200, seriesPage+some), none)
		require.Contains(t, s.get(200, seriesPage), none)
		s.issue(1, noon)
		s.stored = nil
		for seq := int64(1); seq <= 3; seq++ {
			s.stored = append(s.stored, printed(t, s.counter.rules, "IS", noon, seq))
		}
		s.check("IS")
		require.Contains(t, s.get(200, seriesPage+some),
			"All periods that are kept have been checked, and have no discrepancies.")
		for dates, says := range map[string]string{
			"&from=2021-10-01": "All of these periods that are kept have been checked",
			"&to=2021-10-01":   "No number was issued in these periods",
		} {
			require.Contains(t, s.get(200, seriesPage+some+dates), says)
		}
		s.series[0].Stored = nil
		s.lists(newest(1, noon), some)
		require.NotContains(t, s.get(200, seriesPage+some), "show=discrepancies", "without Stored")
	})
}

// A list is limited to the days from one date to another. This must apply to its pages, to its exports, and to the page
// with all periods.
func TestPeriodsFromTo(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := numbered(t, 120, noon.AddDate(0, 0, 8)) // 1 November
		s.lists(newest(31, noon.AddDate(0, 0, 7)), "&from=2021-10-01&to=2021-10-31")
		s.lists([]string{"6 July 2021", "5 July 2021"}, "&to=2021-07-06")
		require.Contains(t, s.get(200, seriesPage+"&from=2020-01-01&to=2021-07-04"), "No number was issued in these periods")

		const since = "&from=2021-08-01"
		var all []string
		for at := seriesPage + since; at != ""; {
			page, _, older := listed(s.get(200, at))
			all, at = append(all, page...), older
		}
		require.Equal(t, newest(93, noon.AddDate(0, 0, 8)), all)
		page := s.get(200, seriesPage+since)
		require.NotContains(t, page, "signature", "without all periods, there are no totals")
		require.Contains(t, page, `<a href="series?from=2021-08-01&amp;key=IS&amp;pages=one">`)
		require.Contains(t, page, `name="from" value="2021-08-01"><button>Check all periods`)
		newer, older := s.lists(all, since+"&pages=one")
		require.Empty(t, newer+older)
		require.Contains(t, pageText(s.get(200, seriesPage+since+"&pages=one")),
			"93 periods: 279 issued. No period has been checked. Date, name and signature")
		lines := parseCSV(t, s.get(200, "/numbers/series.csv?key=IS"+since))
		require.Len(t, lines, 94)
		require.Equal(t, "1 August 2021", lines[93][0])
		require.Equal(t, 93, strings.Count(s.get(200, "/numbers/series.json?key=IS"+since), `"name":`))

		for _, wrong := range []string{"&from=x", "&to=2021-02-29", "&from=1969-12-31", "&from=2021-10-02&to=2021-10-01",
			"&from=2021-1-1"} {
			for _, path := range []string{seriesPage, "/numbers/series.csv?key=IS", "/numbers/series.json?key=IS"} {
				s.get(400, path+wrong)
			}
		}

		// A month must be listed even if only some of its days are between the dates.
		s.use(3, newScheme(t, "{type}{date:yyyyMM}{seq:4}", "UTC", serial.WithPeriod(serial.PerMonth)))
		s.counter.all = newCounter(t, s.counter.rules, "IS", 3, noon, noon.AddDate(0, -1, 0), noon.AddDate(0, -2, 0),
			noon.AddDate(0, -3, 0)).all
		s.lists([]string{"September 2021", "August 2021"}, "&from=2021-08-31&to=2021-09-01")
	})
}

// The page of a period must have links to the previous and the next period whose counters still exist.
func TestPeriodLinks(t *testing.T) {
	visit(t, keep, func(t *testing.T, s *site) {
		at := func(day, rel string) string {
			return `<a href="period?key=IS&amp;start=2021-10-` + day + `T00%3A00%3A00Z" rel="` + rel + `">`
		}
		for day, want := range map[string][2]bool{"22": {false, true}, "24": {true, false}} {
			page := s.get(200, "/numbers/period?key=IS&start=2021-10-"+day+"T00:00:00Z")
			require.Equal(t, want, [2]bool{strings.Contains(page, at("22", "prev")), strings.Contains(page, at("24", "next"))})
		}
		s.issue(2000, noon)
		page := s.get(200, "/numbers/"+address("period", "IS", midnight.AddDate(0, 0, -1500)))
		require.Contains(t, page, `rel="prev"`)
		require.Contains(t, page, `rel="next"`)
	})
}

// Readers open pages of periods without numbers, and of periods that have not begun, by typing their addresses. The
// overview must not show the audits of these periods as the last check. A period that has not begun counts as checked
// only if it has numbers.
func TestFuturePeriod(t *testing.T) {
	visit(t, func(s *site) { s.counter.table = true }, func(t *testing.T, s *site) {
		day := func(day string) string { return "/numbers/period?key=IS&start=" + day + "T00:00:00Z" }
		s.get(200, day("9000-01-01"))
		s.get(200, day("1985-01-01"))
		require.Contains(t, s.get(200, "/numbers/"), "none since the service started")
		s.get(200, today)
		s.stored = append(s.stored, "IS900001020001")
		s.get(200, day("9000-01-02"))
		overview := s.get(200, "/numbers/")
		require.Regexp(t, `data-label="Last check"><a href="[^"]*">24 October 2021</a>`, overview)
		require.Contains(t, overview, "2 of 2 checked periods have discrepancies")
	})
}

// Reports must be deleted after a minute. If all reports take too much memory, the oldest ones must be deleted. At most
// maxOutcomes outcomes may be stored.
func TestDropReports(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a := newAudits()
		add := func(i int64) {
			k := periodKey{"IS", i}
			ok, _ := a.begin(k)
			require.True(t, ok)
			a.end(k, &audit{at: time.Now(), explanations: 1 << 17})
			time.Sleep(time.Second)
		}
		kept := func() (all []int64) {
			for k := range a.reports {
				all = append(all, k.start)
			}
			return all
		}
		add(1)
		add(2)
		add(3)
		require.ElementsMatch(t, []int64{1, 2, 3}, kept())
		add(4)
		require.ElementsMatch(t, []int64{2, 3, 4}, kept(), "%d bytes", maxReportBytes)
		time.Sleep(maxReportAge - time.Second)
		add(5)
		require.ElementsMatch(t, []int64{5}, kept())

		for i := range int64(maxOutcomes + 1) {
			a.note(periodKey{"IS", i}, period{}, &serial.Report{}, noon)
		}
		require.Len(t, a.outcomes, maxOutcomes)
		_, ok := a.outcome(periodKey{"IS", maxOutcomes})
		require.True(t, ok)
	})
}
