package serialpage

import (
	"database/sql"
	"runtime/debug"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dailyserial/serial"
)

// A sheet says whose numbers it has, who printed it and when, and with which program.
func TestSheet(t *testing.T) {
	s := kept(t, func(s *site) { s.options.Organisation = "Ada & Söhne" })
	s.stored = s.stored[1:]
	s.check(303)
	for _, path := range []string{seriesPage, today} {
		page := s.get(200, path, "X-User", "Grace Hopper")
		require.Contains(t, page, `<p class="paper organisation"><bdi>Ada &amp; Söhne</bdi></p>`)
		require.Regexp(t, `Printed ?\d+ \w+ 20\d\d, \d\d:\d\d UTC by Grace Hopper Program ?serial`, textOf(page))
		require.Contains(t, textOf(page), "Date, name and signature")
		require.NotContains(t, textOf(page), "Closed", "Redis does not close periods")
		require.Regexp(t, `Printed ?\d+ \w+ 20\d\d, \d\d:\d\d UTC Program`, textOf(s.get(200, path)), "nobody is logged in")
	}
	require.Contains(t, textOf(s.get(200, today)), "First numberIS202110240001 Last numberIS202110240003")

	// The list of a series has the first number of each period, and totals.
	page := textOf(s.get(200, seriesPage))
	require.Contains(t, page, "24 October 2021 IS202110240001 IS202110240003 3 2 0 1 ✗ discrepancies")
	require.Contains(t, page, "2 periods 6 5 0 1 2 checked, 1 with discrepancies")
	require.Contains(t, page, "Numbers of Invoices (IS), 24 October 2021 to 26 October 2021, 2 periods: "+
		"6 issued. 5 stored; 0 missing and explained; 1 missing and not explained.")
}

// The version is that of the library, or of the module that replaces it.
func TestProgram(t *testing.T) {
	library := &debug.Module{Path: "github.com/dailyserial/serial", Version: "v1.2.3"}
	require.Equal(t, "serial v1.2.3", programIn(&debug.BuildInfo{Deps: []*debug.Module{{Path: "x"}, library}}))
	library.Replace = &debug.Module{Path: "../"}
	require.Equal(t, "serial (devel)", programIn(&debug.BuildInfo{Deps: []*debug.Module{library}}))
	require.Equal(t, "serial", programIn(&debug.BuildInfo{}))
	require.Equal(t, "serial", programIn(nil))
}

// A sheet of a series without gaps says which periods are closed.
func TestSheetOfClosedPeriods(t *testing.T) {
	if !slices.Contains(sql.Drivers(), "sqlite") {
		t.Skip("SQLite takes minutes to build with the race detector; without it, this test runs")
	}
	now := time.Now().UTC()
	s := open(t, func(s *site) { s.series = []Series{table(t, now)} })
	month := time.Date(now.Year(), now.Month(), 1, 0, 0, 0, 0, time.UTC)
	for back, want := range map[int]string{2: "Closedyes", 0: "Closedno"} {
		require.Contains(t, textOf(s.get(200, "/numbers/"+address("period", "INV", month.AddDate(0, -back, 0)))), want)
	}
	var closed []string
	for _, line := range csvOf(t, s.get(200, "/numbers/series.csv?key=INV")) {
		closed = append(closed, line[11])
	}
	require.Equal(t, []string{"closed", "no", "no", "yes"}, closed)
}

// Nothing is added up, and nothing signed, on a page that does not have all periods.
func TestSheetOfManyPeriods(t *testing.T) {
	s, d := daysSite(t, 51)
	page := s.get(200, seriesPage)
	require.NotContains(t, page, "signature")
	require.Contains(t, page, `<a href="series?key=IS&amp;pages=one">`)
	page = s.get(200, seriesPage+"&pages=one")
	require.Contains(t, textOf(page), "51 periods 153 0 checked")
	require.Contains(t, textOf(page), "51 periods: 153 issued. No period has been checked. Date, name and signature")

	// A sum of some periods, or of old results, says so.
	s.handler().audits.note(periodKey{"IS", d.when.Truncate(24 * time.Hour).Unix()}, span{},
		&serial.Report{Start: d.when.Truncate(24 * time.Hour), Last: 3, Count: 3}, time.Now().Add(-25*time.Hour))
	require.Contains(t, textOf(s.get(200, seriesPage+"&pages=one")),
		"153 issued. Only 1 period has been checked, with 3 stored; 0 missing and explained; 0 missing and not explained. "+
			"1 result is more than a day old.")
}
