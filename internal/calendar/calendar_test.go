package calendar_test

import (
	"archive/zip"
	"encoding/csv"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sort"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dailyserial/serial/internal/calendar"
	"github.com/dailyserial/serial/internal/race"
	"github.com/dailyserial/serial/internal/redistest"
)

// A testCalendar is a calendar by Unix seconds, with periods without their clock readings.
type testCalendar struct{ calendar.Calendar }

type span struct {
	Label      string
	Start, End int64
}

func spanOf(p *calendar.Period) span { return span{p.Label, p.Start, p.End} }

func newCalendar(loc *time.Location, unit calendar.Unit, dayStart time.Duration) testCalendar {
	return testCalendar{calendar.Calendar{Location: loc, Unit: unit, DayStart: int64(dayStart / time.Second)}}
}

func (c testCalendar) from(start yearStart) testCalendar {
	c.YearStart = calendar.NewYearStart(start.month, start.day)
	return c
}

func (c testCalendar) at(at int64) span { return spanOf(c.At(time.Unix(at, 0))) }

// around returns the period of an instant, and its neighbours.
func (c testCalendar) around(at int64) (previous, current, next span) {
	p := c.At(time.Unix(at, 0))
	return spanOf(c.Previous(p)), spanOf(p), spanOf(c.Next(p))
}

func (c testCalendar) later(at int64, n int) span { return spanOf(c.Later(c.At(time.Unix(at, 0)), n)) }

func (c testCalendar) beginning(wall time.Time) (span, bool) {
	p := c.Beginning(wall)
	return spanOf(p), p.Start < p.End
}

type yearStart struct {
	month time.Month
	day   int
}

var yearStarts = []yearStart{
	{time.January, 1}, {time.February, 15}, {time.April, 1}, {time.April, 6}, {time.July, 1}, {time.October, 1},
	{time.December, 28},
}

func location(t *testing.T, name string) *time.Location {
	t.Helper()
	loc, err := time.LoadLocation(name)
	require.NoError(t, err)
	return loc
}

// Unusual days, as vectors.
func TestDays(t *testing.T) {
	file, err := os.Open("testdata/days.csv")
	require.NoError(t, err)
	defer func() { _ = file.Close() }()
	rows, err := csv.NewReader(file).ReadAll()
	require.NoError(t, err)
	require.Greater(t, len(rows), 10)
	for _, row := range rows[1:] {
		t.Run(row[0]+" "+row[1], func(t *testing.T) {
			loc := location(t, row[0])
			days := newCalendar(loc, calendar.Day, 0)
			start, err := strconv.ParseInt(row[2], 10, 64)
			require.NoError(t, err)
			length, err := strconv.ParseInt(row[3], 10, 64)
			require.NoError(t, err)
			for _, at := range []int64{start, start + 1, start + length/2, start + length - 1} {
				require.Equal(t, span{Label: row[1], Start: start, End: start + length}, days.at(at), "at %d", at)
			}
			before, _, after := days.around(start)
			require.Less(t, before.Label, row[1])
			require.Greater(t, after.Label, row[1])
			label, err := time.Parse("20060102", row[1])
			require.NoError(t, err)
			found := days.Beginning(label)
			require.Less(t, found.Start, found.End)
			require.Equal(t, start, found.Start)
		})
	}
}

// Unusual periods of other kinds, and days that begin late.
func TestPeriods(t *testing.T) {
	for _, c := range []struct {
		zone        string
		unit        calendar.Unit
		dayStart    time.Duration
		label       string
		start, last string // its bounds, UTC
		before      string // label of the previous period
		note        string
	}{
		{"UTC", calendar.Second, 0, "20211024153059", "2021-10-24 15:30:59", "2021-10-24 15:30:59", "20211024153058", ""},
		{"UTC", calendar.Minute, 0, "202110241530", "2021-10-24 15:30:00", "2021-10-24 15:30:59", "202110241529", ""},
		{"UTC", calendar.Hour, 0, "2021102400", "2021-10-24 00:00:00", "2021-10-24 00:59:59", "2021102323", ""},
		{"UTC", calendar.Month, 0, "202402", "2024-02-01 00:00:00", "2024-02-29 23:59:59", "202401", ""},
		{"UTC", calendar.Year, 0, "2024", "2024-01-01 00:00:00", "2024-12-31 23:59:59", "2023", ""},
		{"UTC", calendar.Day, 4 * time.Hour, "20211024", "2021-10-24 04:00:00", "2021-10-25 03:59:59", "20211023", ""},
		{"UTC", calendar.Month, 4 * time.Hour, "202112", "2021-12-01 04:00:00", "2022-01-01 03:59:59", "202111", ""},
		{"UTC", calendar.Year, 24*time.Hour - time.Second, "2021", "2021-01-01 23:59:59", "2022-01-01 23:59:58", "2020", ""},

		{"America/New_York", calendar.Hour, 0, "2025030903", "2025-03-09 07:00:00", "2025-03-09 07:59:59", "2025030901",
			"02 does not exist"},
		{"America/New_York", calendar.Hour, 0, "2025110201", "2025-11-02 05:00:00", "2025-11-02 06:59:59", "2025110200",
			"01 comes twice"},
		{"America/New_York", calendar.Minute, 0, "202511020159", "2025-11-02 05:59:00", "2025-11-02 06:59:59", "202511020158",
			"01:59 stays the latest when 01:00 returns"},
		{"America/New_York", calendar.Second, 0, "20251102015959", "2025-11-02 05:59:59", "2025-11-02 06:59:59",
			"20251102015958", "an hour long"},
		{"America/New_York", calendar.Day, 150 * time.Minute, "20250309", "2025-03-09 07:00:00", "2025-03-10 06:29:59",
			"20250308", "02:30 does not exist"},
		{"America/New_York", calendar.Day, 90 * time.Minute, "20251102", "2025-11-02 05:30:00", "2025-11-03 06:29:59",
			"20251101", "01:30 comes twice"},
		{"Australia/Lord_Howe", calendar.Hour, 0, "2025040601", "2025-04-05 14:00:00", "2025-04-05 15:29:59", "2025040600",
			"by half an hour"},
		{"Australia/Lord_Howe", calendar.Hour, 0, "2025100502", "2025-10-04 15:30:00", "2025-10-04 15:59:59", "2025100501",
			"half an hour"},
		{"Asia/Kathmandu", calendar.Hour, 0, "1986010100", "1985-12-31 18:30:00", "1985-12-31 19:14:59", "1985123123",
			"by a quarter of an hour"},
		{"Asia/Kathmandu", calendar.Year, 0, "1986", "1985-12-31 18:30:00", "1986-12-31 18:14:59", "1985",
			"it begins when clocks are set forward"},
		{"Africa/Monrovia", calendar.Minute, 0, "197201070044", "1972-01-07 00:44:30", "1972-01-07 00:44:59", "197201062359",
			"by 44:30"},
		{"America/Asuncion", calendar.Month, 0, "201710", "2017-10-01 04:00:00", "2017-11-01 02:59:59", "201709",
			"midnight does not exist"},
		{"Pacific/Kiritimati", calendar.Year, 0, "1995", "1994-12-31 10:00:00", "1995-12-31 09:59:59", "1994",
			"31 December does not exist"},
		{"Pacific/Apia", calendar.Hour, 0, "2011123100", "2011-12-30 10:00:00", "2011-12-30 10:59:59", "2011122923",
			"30 December does not exist"},
		{"Pacific/Apia", calendar.Day, 0, "20111231", "2011-12-30 10:00:00", "2011-12-31 09:59:59", "20111229", ""},
		{"Pacific/Apia", calendar.Day, 4 * time.Hour, "20111230", "2011-12-30 10:00:00", "2011-12-30 13:59:59", "20111229",
			"until 04:00 on 31 December the business day is the 30th"},
	} {
		t.Run(fmt.Sprint(c.zone, " ", c.label, " ", c.dayStart), func(t *testing.T) {
			start, err := time.Parse(time.DateTime, c.start)
			require.NoError(t, err)
			last, err := time.Parse(time.DateTime, c.last)
			require.NoError(t, err)
			cal := newCalendar(location(t, c.zone), c.unit, c.dayStart)
			want := span{Label: c.label, Start: start.Unix(), End: last.Unix() + 1}
			require.Equal(t, want, cal.at(start.Unix()), c.note)
			require.Equal(t, want, cal.at(last.Unix()), c.note)
			require.Equal(t, c.before, cal.at(start.Unix()-1).Label)
			before, _, _ := cal.around(last.Unix())
			require.Equal(t, cal.at(start.Unix()-1), before)
			_, _, again := cal.around(start.Unix() - 1)
			require.Equal(t, want, again)
		})
	}
}

var labels = map[calendar.Unit]string{
	calendar.Second: "20060102150405", calendar.Minute: "200601021504", calendar.Hour: "2006010215",
	calendar.Day: "20060102", calendar.Month: "200601", calendar.Year: "2006",
}

// In every zone, around every change of its offset, the period of an instant belongs to the latest reading that a wall
// clock has shown so far, and begins when the clock first shows it.
func TestPeriodsOfEveryZone(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{} // zones by their data: many are links to others
	var changes atomic.Int64
	zones := make(chan *time.Location)
	var wg sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			for loc := range zones {
				h := newHistory(t, loc)
				changes.Add(int64(len(h.changes)))
				for i := range h.changes {
					h.checkAround(t, i)
				}
			}
		})
	}
	for name, data := range zoneData(t) {
		if seen[string(data)] {
			continue
		}
		seen[string(data)] = true
		if race.Enabled && len(seen)%20 != 0 || !redistest.Long() && len(seen)%3 != 0 {
			continue // with the race detector, all would take minutes, and the other functions share nothing
		}
		loc, err := time.LoadLocationFromTZData(name, data)
		require.NoError(t, err)
		zones <- loc
	}
	close(zones)
	wg.Wait()
	t.Logf("%d changes of offset, or ends of Go's segments, in %d zones", changes.Load(), len(seen))
	require.Greater(t, len(seen), 300)
	if redistest.Long() && !race.Enabled {
		require.Greater(t, changes.Load(), int64(15_000))
	}
}

// A history is what an observer of the wall clock would record: when it was changed, and the latest reading that it had
// shown until then. Readings are Unix seconds as if they were UTC.
type history struct {
	loc     *time.Location
	changes []int64
	latest  []int64 // before the change
	random  *rand.Rand
}

func newHistory(t *testing.T, loc *time.Location) *history {
	h := &history{loc: loc, random: rand.New(rand.NewPCG(1, uint64(len(loc.String()))))}
	from, to := time.Date(1965, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(2041, 1, 1, 0, 0, 0, 0, time.UTC)
	for at := from; at.Before(to); {
		_, end := at.In(loc).ZoneBounds()
		if end.IsZero() {
			break
		}
		if !end.After(at) { // as on the last day of many a leap year: Go's segments end there too early
			end = at.Add(24 * time.Hour)
		}
		at = end
		latest := h.wall(at.Unix() - 1)
		if n := len(h.latest); n > 0 {
			latest = max(latest, h.latest[n-1])
		}
		h.changes, h.latest = append(h.changes, at.Unix()), append(h.latest, latest)
	}
	// No change may be missing: between changes, the clock must run undisturbed.
	for i, change := range h.changes {
		const step = 30 * 60
		for at := change; at < change+48*step && (i+1 == len(h.changes) || at < h.changes[i+1]); at += step {
			if h.wall(at)-at != h.wall(change)-change {
				assert.Fail(t, "a change is missing", "%s at %d", loc, at)
			}
		}
	}
	return h
}

// wall returns the reading of the clock at an instant.
func (h *history) wall(at int64) int64 {
	_, offset := time.Unix(at, 0).In(h.loc).Zone()
	return at + int64(offset)
}

// shown returns the latest reading up to an instant.
func (h *history) shown(at int64) int64 {
	wall := h.wall(at)
	if n := sort.Search(len(h.changes), func(i int) bool { return h.changes[i] > at }); n > 0 {
		wall = max(wall, h.latest[n-1])
	}
	return wall
}

// checkAround compares the periods around a change of clocks with the history.
func (h *history) checkAround(t *testing.T, change int) {
	const hour, day = 60 * 60, 24 * 60 * 60
	at := h.changes[change]
	if at < 0 || at >= 2145916800 { // outside 1970 to 2037; the history is longer, for years and neighbours
		return
	}
	by := h.wall(at) - h.wall(at-1) - 1
	instants := []int64{at}
	if by < 0 {
		instants = append(instants, at-by) // when the clock repeats an earlier reading
	} else {
		instants = append(instants, at+h.random.Int64N(4*day)-2*day)
	}
	dayStarts := [...]time.Duration{4 * time.Hour, 150 * time.Minute, 24*time.Hour - time.Second, 30 * time.Minute,
		time.Second, time.Duration(h.random.Int64N(day)) * time.Second}
	start := yearStarts[change%len(yearStarts)]
	for unit := calendar.Second; unit.Valid(); unit++ {
		if unit == calendar.Never || by == 0 && int(unit) != change%int(calendar.HalfYear)+1 {
			continue // nothing happens here, so one will do
		}
		for _, dayStart := range []time.Duration{0, dayStarts[change%len(dayStarts)]} {
			if dayStart > 0 && unit < calendar.Day {
				break
			}
			cal := newCalendar(h.loc, unit, dayStart).from(start)
			label := func(wall int64) string { return labelOf(wall-int64(dayStart/time.Second), unit, start) }
			has := func(p span, label string) bool { return p.Label == label }
			for _, at := range instants {
				want := label(h.shown(at))
				previous, p, next := cal.around(at)
				before, after := label(h.shown(p.Start-1)), label(h.shown(p.End))
				if !has(p, want) || at < p.Start || p.End <= at || before >= want || label(h.shown(p.Start)) != want ||
					label(h.shown(p.End-1)) != want || after <= want {
					assert.Fail(t, "wrong period", "%s, %v from %v, at %d: %v, want %s", h.loc, unit, dayStart, at, p, want)
					return
				}
				if previous.End != p.Start || !has(previous, before) || next.Start != p.End || !has(next, after) {
					assert.Fail(t, "not in a row", "%s, %v from %v, at %d: %v %v %v", h.loc, unit, dayStart, at, previous, p, next)
					return
				}
			}
			if change%64 == 0 {
				first := at - h.random.Int64N(hour)
				p := cal.at(first)
				for n := range 10 {
					if later := cal.later(first, n); later != p {
						assert.Fail(t, "wrong later", "%s, %v from %v, %d after %d: %v, want %v", h.loc, unit, dayStart, n,
							first, later, p)
						return
					}
					p = cal.at(p.End)
				}
			}
			// Where clocks were set forward: a label exists if they have shown it, and readings that they skipped do
			// not.
			before, after := h.shown(at-1), h.shown(at)
			if by <= 0 || before == after {
				continue
			}
			for _, wall := range []int64{before, before + 1, after - 1, after} {
				want := label(wall)
				exists := want == label(before) || want == label(after)
				p, ok := cal.beginning(time.Unix(wall-int64(dayStart/time.Second), 0).UTC())
				if !has(p, want) || ok != exists || ok && p != cal.at(p.Start) {
					assert.Fail(t, "wrong label", "%s, %v from %v, label %s: %v %v", h.loc, unit, dayStart, want, p, ok)
					return
				}
			}
		}
	}
}

// labelOf returns the label of a reading. Labels of one kind of period sort as time does.
func labelOf(wall int64, unit calendar.Unit, start yearStart) string {
	at := time.Unix(wall, 0).UTC()
	year, month, day := at.Date()
	switch unit {
	case calendar.Week: // a week belongs to the year of its Thursday
		thursday := at.AddDate(0, 0, 3-(int(at.Weekday())+6)%7)
		return fmt.Sprintf("%04dW%02d", thursday.Year(), (thursday.YearDay()+6)/7)
	case calendar.Quarter, calendar.HalfYear, calendar.Year:
		begins := func(year, quarter int) bool {
			return !at.Before(time.Date(year, start.month+time.Month(3*(quarter-1)), start.day, 0, 0, 0, 0, time.UTC))
		}
		if !begins(year, 1) {
			year--
		}
		quarter := 1
		for quarter < 4 && begins(year, quarter+1) {
			quarter++
		}
		if unit == calendar.Year {
			return fmt.Sprintf("%04d", year)
		}
		if unit == calendar.HalfYear {
			return fmt.Sprintf("%04dH%d", year, map[bool]int{false: 1, true: 2}[quarter > 2])
		}
		return fmt.Sprintf("%04dQ%d", year, quarter)
	}
	hour, minute, second := at.Clock()
	label := fmt.Sprintf("%04d%02d%02d%02d%02d%02d", year, month, day, hour, minute, second)
	return label[:len(labels[unit])]
}

// Weeks, quarters and half-years by their labels, known ones.
func TestWeeksAndQuarters(t *testing.T) {
	for _, c := range []struct {
		unit        calendar.Unit
		start       yearStart
		at, label   string
		first, last string
	}{
		{calendar.Week, yearStart{}, "2005-01-02", "2004W53", "2004-12-27", "2005-01-02"},
		{calendar.Week, yearStart{}, "2005-01-03", "2005W01", "2005-01-03", "2005-01-09"},
		{calendar.Week, yearStart{}, "2009-12-31", "2009W53", "2009-12-28", "2010-01-03"},
		{calendar.Week, yearStart{}, "2016-01-01", "2015W53", "2015-12-28", "2016-01-03"},
		{calendar.Week, yearStart{}, "2024-12-30", "2025W01", "2024-12-30", "2025-01-05"},
		{calendar.Week, yearStart{time.April, 6}, "2024-01-01", "2024W01", "2024-01-01", "2024-01-07"},
		{calendar.Quarter, yearStart{time.January, 1}, "2024-03-31", "2024Q1", "2024-01-01", "2024-03-31"},
		{calendar.Quarter, yearStart{time.April, 1}, "2024-03-31", "2023Q4", "2024-01-01", "2024-03-31"},
		{calendar.Quarter, yearStart{time.April, 6}, "2025-01-05", "2024Q3", "2024-10-06", "2025-01-05"},
		{calendar.Quarter, yearStart{time.December, 28}, "2025-03-27", "2024Q1", "2024-12-28", "2025-03-27"},
		{calendar.HalfYear, yearStart{time.January, 1}, "2024-06-30", "2024H1", "2024-01-01", "2024-06-30"},
		{calendar.HalfYear, yearStart{}, "2024-07-01", "2024H2", "2024-07-01", "2024-12-31"},
		{calendar.HalfYear, yearStart{time.April, 6}, "2025-04-05", "2024H2", "2024-10-06", "2025-04-05"},
		{calendar.HalfYear, yearStart{time.July, 1}, "2024-06-30", "2023H2", "2024-01-01", "2024-06-30"},
		{calendar.HalfYear, yearStart{time.December, 28}, "2025-06-27", "2024H1", "2024-12-28", "2025-06-27"},
		{calendar.Year, yearStart{time.April, 6}, "2025-04-05", "2024", "2024-04-06", "2025-04-05"},
		{calendar.Year, yearStart{time.October, 1}, "2024-10-01", "2024", "2024-10-01", "2025-09-30"},
		{calendar.Year, yearStart{time.January, 1}, "2024-12-31", "2024", "2024-01-01", "2024-12-31"},
		// A business year changes no month.
		{calendar.Month, yearStart{time.April, 6}, "2024-04-05", "202404", "2024-04-01", "2024-04-30"},
	} {
		day := func(s string) int64 {
			at, err := time.Parse(time.DateOnly, s)
			require.NoError(t, err)
			return at.Unix()
		}
		cal := newCalendar(time.UTC, c.unit, 0)
		if c.start.day > 0 {
			cal = cal.from(c.start)
		}
		require.Equal(t, span{Label: c.label, Start: day(c.first), End: day(c.last) + 86400}, cal.at(day(c.at)), c.label)
	}
	always := span{Label: "all", Start: 0, End: 253402214400}
	for _, zone := range []string{"UTC", "Pacific/Apia", "America/New_York"} {
		cal := newCalendar(location(t, zone), calendar.Never, 0)
		for _, at := range []int64{0, 1, 1700000000, 253402214399} {
			require.Equal(t, always, cal.at(at))
			require.Equal(t, always, cal.later(at, 3))
		}
	}
}

// later(n) leads where n steps lead, through all changes of clocks on the way.
func TestPeriodsFarAhead(t *testing.T) {
	for _, zone := range []string{"UTC", "America/New_York", "Pacific/Apia", "Australia/Lord_Howe", "Africa/Casablanca"} {
		loc := location(t, zone)
		for unit, n := range map[calendar.Unit]int{
			calendar.Second: 3_000, calendar.Minute: 3_000, calendar.Hour: 12_000, calendar.Day: 2_000, calendar.Month: 800,
			calendar.Year: 90,
		} {
			cal := newCalendar(loc, unit, 0)
			for _, first := range []time.Time{
				time.Date(2011, 12, 29, 0, 0, 0, 0, loc),
				// By rules, and across a last day of a leap year that Go's segments leave out.
				time.Date(2040, 6, 1, 0, 0, 0, 0, loc),
			} {
				p := cal.at(first.Unix())
				for range n {
					p = cal.at(p.End)
				}
				require.Equal(t, p, cal.later(first.Unix(), n), "%s %v from %v", zone, unit, first)
			}
		}
	}
}

// zoneData reads the tz database that comes with Go, or the system's if there is none.
func zoneData(t *testing.T) map[string][]byte {
	zones := map[string][]byte{}
	if goroot, err := exec.Command("go", "env", "GOROOT").Output(); err == nil {
		archive, err := zip.OpenReader(filepath.Join(strings.TrimSpace(string(goroot)), "lib", "time", "zoneinfo.zip"))
		if err == nil {
			defer func() { _ = archive.Close() }()
			for _, f := range archive.File {
				r, err := f.Open()
				require.NoError(t, err)
				data, err := io.ReadAll(r)
				require.NoError(t, err)
				if strings.HasPrefix(string(data), "TZif") {
					zones[f.Name] = data
				}
			}
			return zones
		}
	}
	const system = "/usr/share/zoneinfo"
	require.NoError(t, filepath.WalkDir(system, func(path string, _ os.DirEntry, err error) error {
		if data, err := os.ReadFile(path); err == nil && strings.HasPrefix(string(data), "TZif") {
			zones[strings.TrimPrefix(path, system+"/")] = data
		}
		return err
	}))
	return zones
}

// Offsets that no zone has, and distant years.
func TestPeriodsOfFixedZones(t *testing.T) {
	for _, offset := range []int{0, 1, -1, 14 * 3600, -12 * 3600, 23*3600 + 59*60 + 59, -(23*3600 + 59*60 + 59),
		100 * 3600} {
		loc := time.FixedZone(fmt.Sprint(offset), offset)
		for _, year := range []int{1, 1970, 2000, 2026, 2400, 9999} {
			at := time.Date(year, 2, 28, 12, 34, 56, 0, loc)
			for unit, start := range map[calendar.Unit]time.Time{
				calendar.Second: at,
				calendar.Minute: time.Date(year, 2, 28, 12, 34, 0, 0, loc),
				calendar.Hour:   time.Date(year, 2, 28, 12, 0, 0, 0, loc),
				calendar.Day:    time.Date(year, 2, 28, 0, 0, 0, 0, loc),
				calendar.Month:  time.Date(year, 2, 1, 0, 0, 0, 0, loc),
				calendar.Year:   time.Date(year, 1, 1, 0, 0, 0, 0, loc),
			} {
				p := newCalendar(loc, unit, 0).at(at.Unix())
				require.Equal(t, start.Format(labels[unit]), p.Label)
				require.Equal(t, start.Unix(), p.Start)
				require.NotEqual(t, p.Label, time.Unix(p.End, 0).In(loc).Format(labels[unit]))
				require.Equal(t, p.Label, time.Unix(p.End-1, 0).In(loc).Format(labels[unit]))
			}
		}
	}
}
