package calendar_test

import (
	"archive/zip"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os/exec"
	"path/filepath"
	"sort"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dailyserial/serial/internal/calendar"
	"github.com/dailyserial/serial/internal/race"
	"github.com/dailyserial/serial/internal/redistest"
)

var (
	none, april1, april6 = calendar.YearStart{}, yearStart(time.April, 1), yearStart(time.April, 6)

	yearStarts = []calendar.YearStart{none, yearStart(time.February, 15), april1, april6, yearStart(time.July, 1),
		yearStart(time.October, 1), yearStart(time.December, 28)}
	yearStart = calendar.NewYearStart
)

func newCalendar(loc *time.Location, unit calendar.Unit, day time.Duration, year calendar.YearStart) calendar.Calendar {
	return calendar.Calendar{Location: loc, Unit: unit, DayStart: int64(day / time.Second), YearStart: year}
}

// Known periods, near changes of clocks and with unusual starts of days and years. TestPeriodsOfEveryZone covers more.
func TestPeriods(t *testing.T) {
	for _, c := range []struct {
		zone        string
		unit        calendar.Unit
		dayStart    time.Duration
		from        calendar.YearStart
		label       string
		start, last string // its bounds, UTC
	}{
		{"UTC", calendar.Year, 24*time.Hour - time.Second, none, "2021", "2021-01-01 23:59:59", "2022-01-01 23:59:58"},
		// On 9 March, the clock jumps from 02:00 to 03:00. On 2 November, it shows 01:00 to 02:00 twice.
		{"America/New_York", calendar.Hour, 0, none, "2025030903", "2025-03-09 07:00:00", "2025-03-09 07:59:59"},
		{"America/New_York", calendar.Hour, 0, none, "2025110201", "2025-11-02 05:00:00", "2025-11-02 06:59:59"},
		{"America/New_York", calendar.Day, 150 * time.Minute, none, "20250309", "2025-03-09 07:00:00", "2025-03-10 06:29:59"},
		// Midnight does not exist, or comes twice: the first one counts.
		{"America/Havana", calendar.Day, 0, none, "20250309", "2025-03-09 05:00:00", "2025-03-10 03:59:59"},
		{"America/Havana", calendar.Day, 0, none, "20251102", "2025-11-02 04:00:00", "2025-11-03 04:59:59"},
		// On the last day of a leap year that only a rule covers, Go returns an end of the offset that is too early.
		{"America/New_York", calendar.Day, 0, none, "20401231", "2040-12-31 05:00:00", "2041-01-01 04:59:59"},
		// A day of 27 hours.
		{"Antarctica/Casey", calendar.Day, 0, none, "20100305", "2010-03-04 13:00:00", "2010-03-05 15:59:59"},
		// Changes by half an hour and by 44:30.
		{"Australia/Lord_Howe", calendar.Hour, 0, none, "2025040601", "2025-04-05 14:00:00", "2025-04-05 15:29:59"},
		{"Africa/Monrovia", calendar.Minute, 0, none, "197201070044", "1972-01-07 00:44:30", "1972-01-07 00:44:59"},
		// 30 December does not exist in Apia, except as a business day, which lasts until 04:00 on 31 December.
		{"Pacific/Apia", calendar.Day, 0, none, "20111231", "2011-12-30 10:00:00", "2011-12-31 09:59:59"},
		{"Pacific/Apia", calendar.Day, 4 * time.Hour, none, "20111230", "2011-12-30 10:00:00", "2011-12-30 13:59:59"},
		{"UTC", calendar.Week, 0, april6, "2025W01", "2024-12-30 00:00:00", "2025-01-05 23:59:59"},
		{"UTC", calendar.Quarter, 0, april1, "2023Q4", "2024-01-01 00:00:00", "2024-03-31 23:59:59"},
		{"UTC", calendar.HalfYear, 0, april6, "2024H2", "2024-10-06 00:00:00", "2025-04-05 23:59:59"},
		{"UTC", calendar.Year, 0, april6, "2024", "2024-04-06 00:00:00", "2025-04-05 23:59:59"},
	} {
		start, err := time.Parse(time.DateTime, c.start)
		require.NoError(t, err)
		last, err := time.Parse(time.DateTime, c.last)
		require.NoError(t, err)
		loc, err := time.LoadLocation(c.zone)
		require.NoError(t, err)
		calendar := newCalendar(loc, c.unit, c.dayStart, c.from)
		for _, at := range []time.Time{start, start.Add(last.Sub(start) / 2), last} {
			p := calendar.At(at)
			require.Equal(t, c.label, p.Label, "at %v", at)
			require.Equal(t, [2]int64{start.Unix(), last.Unix() + 1}, [2]int64{p.Start, p.End}, c.label)
		}
	}
	for _, offset := range []int{0, 14 * 3600, -5 * 3600} {
		never := newCalendar(time.FixedZone("", offset), calendar.Never, 0, none)
		for _, at := range []int64{0, 1, 1700000000, 253402214399} {
			want := &calendar.Period{Label: "all", Wall: time.Unix(0, 0).UTC(), End: 253402214400}
			require.Equal(t, want, never.At(time.Unix(at, 0)))
			require.Equal(t, want, never.Later(want, 3))
		}
	}
}

// An instant has a period if its date, or the date of its business day, is in the years 1970 to 9999.
func TestHasPeriod(t *testing.T) {
	const hour, end = 60 * 60, 253402300800 // of 9999
	west := time.FixedZone("west", -5*hour)
	for _, c := range []struct {
		unit        calendar.Unit
		dayStart    time.Duration
		zone        *time.Location
		first, last int64 // instants that have a period
	}{
		{calendar.Day, 0, time.UTC, 0, end - 1},
		{calendar.Day, 4 * time.Hour, time.UTC, 4 * hour, end + 4*hour - 1},
		{calendar.Month, 0, west, 5 * hour, end + 5*hour - 1},
		{calendar.Never, 0, west, 0, end - 24*hour - 1},
		{calendar.Second, 0, time.UTC, 0, end - 1},
	} {
		calendar := newCalendar(c.zone, c.unit, c.dayStart, none)
		for at, want := range map[int64]bool{
			c.first - 1: false, c.first: true, c.last: true, c.last + 1: false, 1 << 62: false,
		} {
			require.Equal(t, want, calendar.HasPeriod(time.Unix(at, 0)), "%+v at %d", c, at)
		}
	}
}

// In every zone, around every change of its offset, the period of an instant belongs to the latest time that a wall
// clock has shown so far, and begins when the clock first shows it.
func TestPeriodsOfEveryZone(t *testing.T) {
	t.Parallel()
	goroot, err := exec.Command("go", "env", "GOROOT").Output()
	require.NoError(t, err)
	archive, err := zip.OpenReader(filepath.Join(strings.TrimSpace(string(goroot)), "lib", "time", "zoneinfo.zip"))
	require.NoError(t, err)
	defer archive.Close()
	seen := map[string]bool{} // zones by their data, because many are links to others
	for _, file := range archive.File {
		data, err := fs.ReadFile(archive, strings.TrimSuffix(file.Name, "/"))
		if err != nil || seen[string(data)] || !strings.HasPrefix(string(data), "TZif") {
			continue // a folder, a link or a list
		}
		seen[string(data)] = true
		n := len(seen)
		if race.Enabled && n%20 != 0 || testing.Short() && n%40 != 0 || !redistest.Long() && n%8 != 0 {
			continue // all would take minutes with the race detector, and the functions share no memory
		}
		loc, err := time.LoadLocationFromTZData(file.Name, data)
		require.NoError(t, err)
		t.Run(file.Name, func(t *testing.T) {
			t.Parallel()
			h := newHistory(loc)
			for i := range h.changes {
				h.checkAround(t, i)
			}
		})
	}
	require.Greater(t, len(seen), 300)
}

// A history is what an observer of a wall clock would note: when the clock was changed, and the latest time that it had
// shown until then. Times of the clock are Unix seconds, as if they were UTC.
type history struct {
	loc     *time.Location
	changes []int64
	latest  []int64 // latest time shown before each change
	random  *rand.Rand
}

func newHistory(loc *time.Location) *history {
	h := &history{loc: loc, random: rand.New(rand.NewPCG(1, uint64(len(loc.String()))))}
	const hour = 60 * 60
	offset := func(at int64) int64 { return h.wall(at) - at }
	for at, end := int64(-157766400), int64(2240611200); at < end; at += hour { // from 1965 to 2040
		if before := offset(at); offset(at+hour) != before {
			change := at + int64(sort.Search(hour, func(i int) bool { return offset(at+int64(i)) != before }))
			h.latest = append(h.latest, h.shown(change-1))
			h.changes = append(h.changes, change)
		}
	}
	return h
}

// wall returns the time that the clock shows at an instant.
func (h *history) wall(at int64) int64 {
	_, offset := time.Unix(at, 0).In(h.loc).Zone()
	return at + int64(offset)
}

// shown returns the latest time that the clock has shown up to an instant.
func (h *history) shown(at int64) int64 {
	wall := h.wall(at)
	if n := sort.Search(len(h.changes), func(i int) bool { return h.changes[i] > at }); n > 0 {
		wall = max(wall, h.latest[n-1])
	}
	return wall
}

// checkAround checks the periods around the change with index i, if it is in 1970 to 2037.
func (h *history) checkAround(t *testing.T, i int) {
	const day = 24 * 60 * 60
	at := h.changes[i]
	if at < 0 || at >= 2145916800 {
		return
	}
	step := h.wall(at) - h.wall(at-1) - 1
	instants := []int64{at, at + h.random.Int64N(4*day) - 2*day}
	if step < 0 {
		instants[1] = at - step // the clock shows again what it had shown before the change
	}
	dayStarts := []time.Duration{4 * time.Hour, 150 * time.Minute, 24*time.Hour - time.Second, time.Second,
		time.Duration(h.random.Int64N(day)) * time.Second}
	from := yearStarts[i%len(yearStarts)]
	for unit := calendar.Second; unit.Valid(); unit++ {
		if unit == calendar.Never {
			continue
		}
		for _, dayStart := range []time.Duration{0, dayStarts[i%len(dayStarts)]} {
			if dayStart > 0 && unit < calendar.Day {
				break
			}
			c := newCalendar(h.loc, unit, dayStart, from)
			for _, at := range instants {
				h.check(t, c, at)
			}
			// Times that the clock skipped have no period, unless the clock has shown another time with the same label.
			before, after := h.shown(at-1), h.shown(at)
			if step <= 0 || before == after {
				continue
			}
			label := func(wall int64) string { return labelOf(wall-c.DayStart, c) }
			for _, wall := range []int64{before, before + 1, after - 1, after} {
				exists := label(wall) == label(before) || label(wall) == label(after)
				p := c.Beginning(time.Unix(wall-c.DayStart, 0).UTC())
				if p.Label != label(wall) || exists != (p.Start < p.End) || exists && *p != *c.At(time.Unix(p.Start, 0)) {
					require.Fail(t, "wrong label", "%s, %v from %v, label %s: %v", h.loc, unit, dayStart, label(wall), p)
				}
			}
		}
	}
}

// check compares the period that contains an instant, and its neighbours, with the history.
func (h *history) check(t *testing.T, c calendar.Calendar, at int64) {
	label := func(at int64) string { return labelOf(h.shown(at)-c.DayStart, c) }
	p := c.At(time.Unix(at, 0))
	previous, next := c.Previous(p), c.Next(p)
	before, want, after := label(p.Start-1), label(at), label(p.End)
	if p.Label != want || at < p.Start || p.End <= at || label(p.Start) != want || label(p.End-1) != want ||
		before >= want || after <= want {
		require.Fail(t, "wrong period", "%s, %+v, at %d: %v, want %s", h.loc, c, at, p, want)
	}
	if previous.End != p.Start || previous.Label != before || next.Start != p.End || next.Label != after ||
		*c.Later(p, 2) != *c.Next(next) || *c.Later(p, 0) != *p || *c.Beginning(p.Wall) != *p {
		require.Fail(t, "wrong neighbours", "%s, %+v, at %d: %v %v %v", h.loc, c, at, previous, p, next)
	}
}

// layouts are the layouts of the labels that are made of a date and a time.
var layouts = map[calendar.Unit]string{calendar.Second: "20060102150405", calendar.Minute: "200601021504",
	calendar.Hour: "2006010215", calendar.Day: "20060102", calendar.Month: "200601"}

// labelOf returns the label of a date and time. Labels of one unit sort as time does.
func labelOf(wall int64, c calendar.Calendar) string {
	at, start := time.Unix(wall, 0).UTC(), c.YearStart
	switch year := at.Year(); c.Unit {
	case calendar.Week: // a week belongs to the year of its Thursday
		thursday := at.AddDate(0, 0, 3-(int(at.Weekday())+6)%7)
		return fmt.Sprintf("%04dW%02d", thursday.Year(), (thursday.YearDay()+6)/7)
	case calendar.Quarter, calendar.HalfYear, calendar.Year:
		quarters := 4*year + 3 // since the business year 0
		for at.Before(time.Date(0, time.Month(1+start.Month+3*quarters), 1+start.Day, 0, 0, 0, 0, time.UTC)) {
			quarters--
		}
		switch year = quarters / 4; c.Unit {
		case calendar.Year:
			return fmt.Sprintf("%04d", year)
		case calendar.HalfYear:
			return fmt.Sprintf("%04dH%d", year, 1+quarters%4/2)
		}
		return fmt.Sprintf("%04dQ%d", year, 1+quarters%4)
	}
	return at.Format(layouts[c.Unit])
}

// Offsets that no zone has, and distant years.
func TestPeriodsOfFixedZones(t *testing.T) {
	for _, offset := range []int{0, 1, -1, 14 * 3600, -12 * 3600, 24*3600 - 1, 1 - 24*3600, 100 * 3600} {
		h := newHistory(time.FixedZone(fmt.Sprint(offset), offset))
		for _, year := range []int{2, 1970, 2000, 2026, 2400, 9998} {
			for unit := calendar.Second; unit.Valid(); unit++ {
				if unit != calendar.Never {
					at := time.Date(year, 2, 28, 12, 34, 56, 0, h.loc).Unix()
					h.check(t, newCalendar(h.loc, unit, 0, april6), at)
				}
			}
		}
	}
}

// ParseName reverses Name. A name states the unit and, if it matters, where business years start.
func TestNames(t *testing.T) {
	for unit := calendar.Second; unit.Valid(); unit++ {
		for _, from := range yearStarts {
			for _, businessYears := range []bool{false, true} {
				want := from
				if !businessYears && unit != calendar.Year && unit != calendar.HalfYear && unit != calendar.Quarter {
					want = none
				}
				gotUnit, start, ok := calendar.ParseName(newCalendar(nil, unit, 0, from).Name(businessYears))
				require.Equal(t, []any{unit, want, true}, []any{gotUnit, start, ok})
			}
		}
	}
	april := newCalendar(nil, calendar.Year, 4*time.Hour, april1)
	day := april.With(calendar.Day)
	require.Equal(t, []int64{0, april.DayStart}, []int64{april.With(calendar.Hour).DayStart, day.DayStart})
	require.Equal(t, []int{2025, 2025, 2024},
		[]int{april1.EndOf(2024), yearStart(time.January, 2).EndOf(2024), none.EndOf(2024)})
	halfYear, never := calendar.Calendar{Unit: calendar.HalfYear}, calendar.Calendar{Unit: calendar.Never}
	require.Equal(t, []string{"years from April 1", "days of years from April 1", "days", "half-years", "all time"},
		[]string{april.Name(false), day.Name(true), day.Name(false), halfYear.Name(true), never.Name(false)})
	for _, name := range []string{"", "day", "fortnights", "years from ", "years from April 31", "quarters from 1 April"} {
		_, _, ok := calendar.ParseName(name)
		require.False(t, ok, name)
	}
}

// FormatLabel changes only labels.
func TestFormatLabel(t *testing.T) {
	for label, want := range map[string]string{
		"20211024153059": "2021-10-24 15:30:59", "202110241530": "2021-10-24 15:30", "2021102415": "2021-10-24 15",
		"20211024": "2021-10-24", "202110": "2021-10", "2021": "2021", "2024W01": "2024-W01", "2024Q1": "2024-Q1",
		"2024H1": "2024-H1", "all": "all time", "": "", "0": "0", "20211324": "20211324", "2024X01": "2024X01",
	} {
		require.Equal(t, want, calendar.FormatLabel(label))
	}
}

// PeriodName names dates by their parts, and shorter periods by their times in the zone.
func TestPeriodName(t *testing.T) {
	loc, at := time.FixedZone("", 3600), time.Date(2024, 12, 30, 15, 4, 5, 0, time.UTC)
	for unit, want := range map[calendar.Unit]string{
		calendar.Second: "30 December 2024, 16:04:05 to 16:04:06", calendar.Minute: "30 December 2024, 16:04 to 16:05",
		calendar.Hour: "30 December 2024, 16:00 to 17:00", calendar.Day: "30 December 2024",
		calendar.Week: "week 1 of 2025", calendar.Month: "December 2024", calendar.Quarter: "quarter 3 of business year 2024",
		calendar.HalfYear: "half-year 2 of business year 2024", calendar.Year: "business year 2024",
		calendar.Never: "all time",
	} {
		c := newCalendar(loc, unit, 0, april6)
		p := c.At(at)
		require.Equal(t, want, c.PeriodName(p, time.Unix(p.Start, 0).In(loc), time.Unix(p.End, 0).In(loc)))
	}
	c := newCalendar(loc, calendar.HalfYear, 0, none)
	require.Equal(t, "half-year 2 of 2024", c.PeriodName(c.At(at), at, at))
}
