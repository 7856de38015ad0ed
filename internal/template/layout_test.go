package template_test

import (
	"fmt"
	"maps"
	"math/bits"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dailyserial/serial/internal/calendar"
	"github.com/dailyserial/serial/internal/race"
	"github.com/dailyserial/serial/internal/redistest"
	"github.com/dailyserial/serial/internal/template"
)

type yearStart struct {
	month time.Month
	day   int
}

func (s yearStart) calendar() calendar.YearStart { return calendar.NewYearStart(s.month, s.day) }

func (s yearStart) String() string { return fmt.Sprint(s.month, " ", s.day) }

var yearStarts = []yearStart{
	{time.January, 1}, {time.February, 15}, {time.April, 1}, {time.April, 6}, {time.July, 1}, {time.October, 1},
	{time.December, 28},
}

// someYearStarts are yearStarts, or one of them without SERIAL_TEST_LONG=1.
func someYearStarts(t *testing.T) []yearStart {
	if redistest.Long() {
		return yearStarts
	}
	t.Log("six of seven starts of years are left out without SERIAL_TEST_LONG=1")
	return yearStarts[3:4] // April 6
}

// dateTokens are the tokens of dates, each of which prints a column of a day.
var dateTokens = []string{"yyyy", "MM", "dd", "DDD", "GGGG", "WW", "FFFF", "Q", "S"}

// A tokenSet is a set of dateTokens.
type tokenSet uint

func (s tokenSet) String() string {
	var names []string
	for i, name := range dateTokens {
		if s&(1<<i) != 0 {
			names = append(names, name)
		}
	}
	return strings.Join(names, " ")
}

var dayUnits = []calendar.Unit{
	calendar.Day, calendar.Week, calendar.Month, calendar.Quarter, calendar.HalfYear, calendar.Year,
}

// A printedDay is what each of the dateTokens prints of a day, and which of each of the dayUnits it lies in.
type printedDay struct {
	columns [9]int
	periods [6]int32
}

// daysOf are the days of 400 years, after which the calendar repeats, as a person would write them down.
func daysOf(start yearStart) []printedDay {
	days := make([]printedDay, 0, 146_097)
	for at := time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC); at.Year() < 2400; at = at.AddDate(0, 0, 1) {
		year, month, day := at.Date()
		weekYear, week := at.ISOWeek()
		begins, quarter := year, 4
		if month < start.month || month == start.month && day < start.day {
			begins--
		}
		for quarter > 1 &&
			at.Before(time.Date(begins, start.month+time.Month(3*(quarter-1)), start.day, 0, 0, 0, 0, time.UTC)) {
			quarter--
		}
		days = append(days, printedDay{
			columns: [9]int{year, int(month), day, at.YearDay(), weekYear, week, begins, quarter, 1 + quarter/3},
			periods: [6]int32{int32(len(days)), int32(weekYear*100 + week), int32(year*12 + int(month)),
				int32(begins*4 + quarter), int32(begins*2 + quarter/3), int32(begins)},
		})
	}
	return days
}

// tellsApart reports whether no two of the days in different periods print alike.
func (s tokenSet) tellsApart(days []printedDay, per int) bool {
	seen := make(map[int]int32, 1000)
	for i := range days {
		key := 0
		for j, v := range days[i].columns {
			if s&(1<<j) != 0 {
				key = key*2500 + v
			}
		}
		p := days[i].periods[per]
		if other, twice := seen[key]; !twice {
			seen[key] = p
		} else if other != p {
			return false
		}
	}
	return true
}

// These sets are refused for some year starts, though they would do: by the length of years, which a reader need not
// know. Each is the least of its kind.
var strictlyRefused = []string{
	"yyyy Q", "yyyy MM Q", "yyyy MM WW", "yyyy dd WW", "yyyy WW Q", "yyyy WW FFFF", "MM GGGG WW", "DDD GGGG WW",
	"GGGG WW Q", "DDD FFFF", "MM DDD FFFF", "dd DDD FFFF", "DDD FFFF Q", "DDD GGGG FFFF", "MM FFFF Q", "MM GGGG FFFF",
	"MM WW FFFF", "dd WW FFFF", "WW FFFF Q",
	"yyyy S", "yyyy FFFF", "yyyy MM S", "yyyy WW S", "GGGG WW S", "DDD FFFF S", "MM FFFF S", "WW FFFF S",
}

// What a layout prints determines the period for certain, or the layout is refused. To see that of all sets of tokens,
// it is enough to look at the smallest ones that distinguish periods, since more tokens distinguish more.
func TestLayoutsThatDetermineThePeriod(t *testing.T) {
	t.Parallel()
	if race.Enabled {
		t.Skip("one goroutine computes, which leaves nothing for the race detector")
	}
	sets := make([]tokenSet, 1<<len(dateTokens))
	for i := range sets {
		sets[i] = tokenSet(i)
	}
	slices.SortStableFunc(sets, func(a, b tokenSet) int { return bits.OnesCount(uint(a)) - bits.OnesCount(uint(b)) })
	refused := map[string]bool{}
	for _, start := range someYearStarts(t) {
		days := daysOf(start)
		for i, unit := range dayUnits {
			allowed := make([]bool, len(sets))
			apart := make([]bool, len(sets))
			for _, set := range sets[1:] {
				allowed[set] = template.Determines(set.String(), unit, start.calendar())
				less := func(in []bool) bool { // some tokens of set are enough
					for j := range dateTokens {
						if in[set&^(1<<j)] && set&(1<<j) != 0 {
							return true
						}
					}
					return false
				}
				apart[set] = less(apart)
				if less(allowed) {
					require.True(t, allowed[set], "%v from %v: %v", unit, start, set)
				} else if !apart[set] {
					apart[set] = bits.OnesCount(uint(set)) <= 4 && set.tellsApart(days, i)
					if apart[set] && !allowed[set] {
						refused[set.String()] = true
					}
				}
				require.False(t, allowed[set] && !apart[set], "%v from %v: %v prints days of two alike", unit, start, set)
			}
		}
	}
	if redistest.Long() {
		require.ElementsMatch(t, strictlyRefused, slices.Collect(maps.Keys(refused)))
		return
	}
	require.Subset(t, strictlyRefused, slices.Collect(maps.Keys(refused)))
}

// Other spellings determine the same; the year in which a business year ends is as good as the one in which it begins;
// the parts of the clock add to a date, each to the one before.
func TestSpellingsAndClocks(t *testing.T) {
	t.Parallel()
	if race.Enabled {
		t.Skip("one goroutine computes, which leaves nothing for the race detector")
	}
	for _, start := range someYearStarts(t) {
		determines := func(layout string, unit calendar.Unit) bool {
			return template.Determines(layout, unit, start.calendar())
		}
		for i := 1; i < 1<<len(dateTokens); i++ {
			long := tokenSet(i).String()
			for _, unit := range dayUnits {
				want := determines(long, unit)
				for _, other := range [][]string{
					{"yyyy", "yy", "GGGG", "GG", "FFFF", "FF", " dd", " DD"}, {"FFFF", "EEEE"}, {"FFFF", "EE"},
					{"MM", "M", "dd", "d"}, {"MM", "MMM", "yyyy", "BBBB"}, {"MM", "Mmm", "yyyy", "BB"}, {"MM", "R", " dd", "/d"},
					{"yyyy", "YYYY", "FFFF", "FF-EE"},
				} {
					layout := strings.NewReplacer(other...).Replace(long)
					require.Equal(t, want, determines(layout, unit), "%v from %v: %s", unit, start, layout)
				}
			}
			date := determines(long, calendar.Day)
			for layout, want := range map[string][3]bool{
				"": {}, " HH": {date}, " HH mm": {date, date}, " HH mm ss": {date, date, date}, " mm": {}, " ss": {}, " mm ss": {},
				" HH ss": {date},
			} {
				got := [3]bool{}
				for j, unit := range []calendar.Unit{calendar.Hour, calendar.Minute, calendar.Second} {
					got[j] = determines(long+layout, unit)
				}
				require.Equal(t, want, got, "%v: %s", start, long+layout)
				require.Equal(t, date, determines(long+layout, calendar.Day))
			}
			require.True(t, determines(long, calendar.Never))
		}
	}
}

// newTokens print what a person would write; see TestPairsOfTokens.
var newTokens = map[string]func(day time.Time) string{
	"M": func(day time.Time) string { return day.Format("1") },
	"d": func(day time.Time) string { return day.Format("2") },
	"R": func(day time.Time) string {
		return strings.Fields("I II III IV V VI VII VIII IX X XI XII")[day.Month()-1]
	},
	"MMM":  func(day time.Time) string { return strings.ToUpper(day.Format("Jan")) },
	"Mmm":  func(day time.Time) string { return day.Format("Jan") },
	"BBBB": func(day time.Time) string { return fmt.Sprint(day.Year() + 543) },
	"BB":   func(day time.Time) string { return fmt.Sprint(day.Year() + 543)[2:] },
	"S": func(day time.Time) string { // of the business year from April 6
		if md := day.Format("0102"); "0406" <= md && md < "1006" {
			return "1"
		}
		return "2"
	},
}

// Each new token, alone for a century and beside every other token for the 28 years after which weekdays come again,
// prints each day as a person would, reads back, and where it is accepted, never prints days of two periods alike.
func TestPairsOfTokens(t *testing.T) {
	t.Parallel()
	if race.Enabled {
		t.Skip("one goroutine computes, which leaves nothing for the race detector")
	}
	formats := map[string]string{"yyyy": "2006", "yy": "06", "MM": "01", "dd": "02", "DDD": "002", "HH": "15", "mm": "04",
		"ss": "05"}
	others := []string{"", "GGGG", "GG", "WW", "FFFF", "FF", "EEEE", "EE", "Q"}
	others = slices.AppendSeq(slices.AppendSeq(others, maps.Keys(newTokens)), maps.Keys(formats))
	start := yearStart{time.April, 6}
	accepted := map[calendar.Unit][]string{}
	for first := range newTokens {
		for _, second := range others {
			layout, end := strings.TrimSuffix(first+"/"+second, "/"), 2028
			switch {
			case second == "":
				end = 2100
			case !redistest.Long():
				end = 2003
			}
			for unit := calendar.Day; unit.Valid(); unit++ {
				s, err := parse(withText("{type}-{date:"+layout+"}-{seq:1+}"), per(unit), from(start.month, start.day))
				if err != nil {
					require.Regexp(t, "tell|is missing|appears twice", err.Error(), layout)
					continue
				}
				accepted[unit] = append(accepted[unit], layout)
				periods := map[string]int64{}
				for day := time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC); day.Year() < end; day = day.AddDate(0, 0, 1) {
					n, err := s.Number("IS", day, 7)
					if err != nil { // of the business year 1999, or the one that ends in 2100
						require.ErrorContains(t, err, "cannot be printed as", layout)
						continue
					}
					for i, token := range strings.Split(layout, "/") {
						want, got := "", strings.Split(strings.Split(n.String(), "-")[1], "/")[i]
						if write := newTokens[token]; write != nil {
							want = write(day)
						} else if formats[token] == "" {
							continue // today's tokens of weeks and business years have their own tests
						} else {
							want = day.Format(formats[token])
						}
						require.Equal(t, want, got, "%s of %v", token, day)
					}
					period := n.Start.Unix()
					before, again := periods[n.String()]
					require.True(t, !again || before == period, "%s prints %v like another period", layout, day)
					if periods[n.String()] = period; !again {
						requireResult(t, n)(s.Parse(n.String()))
					}
				}
			}
		}
	}
	for _, layouts := range accepted {
		slices.Sort(layouts)
	}
	require.Greater(t, len(accepted[calendar.Never]), 100)
	require.Equal(t, []string{"BB/DDD", "BBBB/DDD", "S/EE", "S/EEEE", "S/FF", "S/FFFF"}, accepted[calendar.HalfYear])
	require.Equal(t, []string{"BB/DDD", "BBBB/DDD"}, accepted[calendar.Quarter])
	require.Equal(t, []string{"BB/DDD", "BBBB/DDD"}, accepted[calendar.Day])
}

// What has no fixed width needs text around it.
func TestNeighbours(t *testing.T) {
	for pattern, want := range map[string]string{
		"{type}{date:M-yyyy}{seq}": "{date:M-yyyy}: M, which has no padding, needs a literal right before it that does not " +
			"end in a digit, such as -, or the beginning of the template",
		"{type}-{date:yyyyM}-{seq}":       "M, which has no padding, needs a literal right before it",
		"{type}-{date:Myyyy}-{seq}":       "M, which has no padding, needs a literal right after it",
		"{type}-{date:yyyy-M}{seq}":       "M, which has no padding, needs a literal right after it",
		"{type}-{date:yyyy-M}{{{seq}":     "",
		"{type}-{date:yyyy-M}4-{seq}":     "after it that does not begin with a digit",
		"{type}-{date:yyyy-M}٤-{seq}":     "after it that does not begin with a digit",
		"{type}-{date:yyyy'4'M}-{seq}":    "before it that does not end in a digit",
		"{type}-{date:yyyy'M'M}-{seq}":    "",
		"{type}-{date:yyyyMMMd}-{seq}":    "d, which has no padding",
		"{type}-{date:yyyyMM-d}{seq}":     "d, which has no padding",
		"{date:d}{type}-{date:yy}":        "d",
		"{date:d.MM.yyyy}-{type}-{seq}":   "",
		"{type}-{seq}-{date:yyyy.MM.d}":   "",
		"{type}-{seq}-{date:yyyy.M}":      "",
		"{type}-{seq}-{date:yyyy-R}":      "",
		"{type}-{date:yyyyR}-{seq}":       "R, which has no padding, needs a literal right before it that does not end",
		"{type}-{date:yyyy'x'R}-{seq}":    "in a letter",
		"{type}-{date:yyyy'é'R}-{seq}":    "in a letter",
		"{type}-{date:yyyy-R}年-{seq}":     "with a letter",
		"{type}-{date:yyyy-R}5-{seq}":     "",
		"{type}-{date:R}{seq}-":           "R, which has no padding, needs a literal right after it",
		"{type}{date:-R-yyyy}{seq}":       "",
		"{type}-{date:yyyy-M}{check:gs1}": "M, which has no padding",
	} {
		if !strings.Contains(pattern, "{seq") {
			pattern += "{seq}"
		}
		_, err := template.Parse(pattern, calendar.Calendar{Unit: calendar.Year, Location: time.UTC})
		if want == "" {
			require.NoError(t, err, pattern)
			continue
		}
		require.ErrorContains(t, err, want, pattern)
	}
}

// Runs, quotes, and how many parts of a kind a date may have.
func TestLayoutsRefused(t *testing.T) {
	never := calendar.Calendar{Unit: calendar.Never, Location: time.UTC}
	for layout, want := range map[string]string{
		"yyyyMMMMdd": `unknown date token "MMMM"`, "yyyyMmdd": `unknown date token "m"`,
		"yyyyMmmm": `unknown date token "mmm"`,
		"yyyyMMm":  `unknown date token "m"`, "yyyy-ddd": `unknown date token "ddd"`, "BBB": `unknown date token "BBB"`,
		"yyyySS": `unknown date token "SS"`, "RR": `unknown date token "RR"`, "yyyy-mmM": `"M"`,
		"yyyy'MMdd": "the quote in 'MMdd is not closed", "yyyy'''": "the quote in ' is not closed",
		"yyyy'{'": `"{" in a date layout`, "'2024'": "prints nothing of the date",
		"yyyy BBBB": "the calendar year (yyyy or yy) appears twice",
		"BB/BBBB":   "the calendar year (yyyy or yy) appears twice",
		"YYYY-BB":   "appears twice", "yyyy-M-MM": "the month (MM) appears twice", "MMM-R": "the month (MM) appears twice",
		"Mmm MMM": "the month (MM) appears twice", "dd.d": "the day (dd) appears twice",
		"S-S": "the half-year (S) appears twice",
	} {
		_, err := template.Parse("{type}-{date:"+layout+"}-{seq}", never)
		if layout == "yyyy-mmM" {
			want = "M, which has no padding"
		}
		require.ErrorContains(t, err, want, layout)
	}
	_, err := template.Parse("{type}-{date:yyyy'}'}-{seq}", never)
	require.ErrorContains(t, err, "the quote in ' is not closed")
	for year, fails := range map[int]bool{9456: false, 9457: true} {
		s := newScheme(t, withText("{type}{date:BBBBMMdd}{seq}"))
		_, err := s.Number("IS", time.Date(year, 12, 31, 0, 0, 0, 0, time.UTC), 1)
		require.Equal(t, fails, err != nil, err)
		if fails {
			require.ErrorContains(t, err, "the year 9457 cannot be printed as BBBB; want years up to 9456")
		}
	}
	for year, want := range map[int]string{
		1999: "", 2000: "430001", 2024: "670001", 2057: "000001", 2099: "420001", 2100: "",
	} {
		s := newScheme(t, withText("{type}{date:BB}{seq}"), per(calendar.Year))
		n, err := s.Number("IS", time.Date(year, 12, 31, 0, 0, 0, 0, time.UTC), 1)
		if want == "" {
			require.ErrorContains(t, err, "cannot be printed as BB; want 2000 to 2099")
			continue
		}
		require.Equal(t, "IS"+want, n.String())
		requireResult(t, n)(s.Parse(n.String()))
	}
}
