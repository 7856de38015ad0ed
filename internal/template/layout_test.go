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

// dateTokens are the tokens of dates, each of which prints a column of a day.
var dateTokens = []string{"yyyy", "MM", "dd", "DDD", "GGGG", "WW", "FFFF", "Q"}

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

var dayUnits = []calendar.Unit{calendar.Day, calendar.Week, calendar.Month, calendar.Quarter, calendar.Year}

// A printedDay is what each of the dateTokens prints of a day, and which of each of the dayUnits it lies in.
type printedDay struct {
	columns [8]int
	periods [5]int32
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
			columns: [8]int{year, int(month), day, at.YearDay(), weekYear, week, begins, quarter},
			periods: [5]int32{int32(len(days)), int32(weekYear*100 + week), int32(year*12 + int(month)),
				int32(begins*4 + quarter), int32(begins)},
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
	for _, start := range yearStarts {
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
	require.ElementsMatch(t, strictlyRefused, slices.Collect(maps.Keys(refused)))
}

// Other spellings determine the same; the year in which a business year ends is as good as the one in which it begins;
// the parts of the clock add to a date, each to the one before.
func TestSpellingsAndClocks(t *testing.T) {
	t.Parallel()
	if race.Enabled {
		t.Skip("one goroutine computes, which leaves nothing for the race detector")
	}
	for _, start := range yearStarts {
		determines := func(layout string, unit calendar.Unit) bool {
			return template.Determines(layout, unit, start.calendar())
		}
		for i := 1; i < 1<<len(dateTokens); i++ {
			long := tokenSet(i).String()
			for _, unit := range dayUnits {
				want := determines(long, unit)
				for _, other := range [][]string{
					{"yyyy", "yy", "GGGG", "GG", "FFFF", "FF", " dd", " DD"}, {"FFFF", "EEEE"}, {"FFFF", "EE"},
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
