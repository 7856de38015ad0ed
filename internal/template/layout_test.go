package template_test

import (
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

var yearStarts = []calendar.YearStart{
	{}, calendar.NewYearStart(time.February, 15), calendar.NewYearStart(time.April, 1), april6,
	calendar.NewYearStart(time.July, 1), calendar.NewYearStart(time.October, 1), calendar.NewYearStart(time.December, 28),
}

var april6 = calendar.NewYearStart(time.April, 6)

// someYearStarts returns yearStarts, or one of them without SERIAL_TEST_LONG=1. The test must run in parallel, and it is
// skipped with the race detector.
func someYearStarts(t *testing.T) []calendar.YearStart {
	t.Parallel()
	if race.Enabled {
		t.Skip("one goroutine computes, which leaves nothing for the race detector")
	}
	if redistest.Long() {
		return yearStarts
	}
	t.Log("six of seven starts of years are left out without SERIAL_TEST_LONG=1")
	return []calendar.YearStart{april6}
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

// A printedDay has the values that the dateTokens print on a day, and the beginnings of its periods, one for each of the
// dayUnits.
type printedDay struct {
	columns [9]int
	periods [6]int64
}

// daysOf returns the days of 400 years, after which the calendar repeats, or of 100 years without SERIAL_TEST_LONG=1.
func daysOf(start calendar.YearStart) (days []printedDay) {
	end := 2100
	if redistest.Long() {
		end = 2400
	}
	for at := time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC); at.Year() < end; at = at.AddDate(0, 0, 1) {
		var d printedDay
		for i, unit := range dayUnits {
			d.periods[i] = calendar.Calendar{Location: time.UTC, Unit: unit, YearStart: start}.At(at).Start
		}
		year, month, day := at.Date()
		weekYear, week := at.ISOWeek()
		begins, quarter := start.YearOf(at)
		d.columns = [9]int{year, int(month), day, at.YearDay(), weekYear, week, begins, quarter, (quarter + 1) / 2}
		days = append(days, d)
	}
	return days
}

// determines reports whether days in different periods always print differently. unit is an index of dayUnits.
func (s tokenSet) determines(days []printedDay, unit int) bool {
	seen := make(map[int]int64, 1000)
	for i := range days {
		key := 0
		for j, v := range days[i].columns {
			if s&(1<<j) != 0 {
				key = key*2500 + v
			}
		}
		p := days[i].periods[unit]
		if other, twice := seen[key]; !twice {
			seen[key] = p
		} else if other != p {
			return false
		}
	}
	return true
}

// strictlyRefused has the smallest sets that are refused for some year starts although they determine the period. They
// do so only because of the lengths of years, which a reader should not need to know.
var strictlyRefused = []string{
	"yyyy Q", "yyyy MM Q", "yyyy MM WW", "yyyy dd WW", "yyyy WW Q", "yyyy WW FFFF", "MM GGGG WW", "DDD GGGG WW",
	"GGGG WW Q", "DDD FFFF", "MM DDD FFFF", "dd DDD FFFF", "DDD FFFF Q", "DDD GGGG FFFF", "MM FFFF Q", "MM GGGG FFFF",
	"MM WW FFFF", "dd WW FFFF", "WW FFFF Q",
	"yyyy S", "yyyy FFFF", "yyyy MM S", "yyyy WW S", "GGGG WW S", "DDD FFFF S", "MM FFFF S", "WW FFFF S",
}

// Every layout that is accepted determines the period. More tokens never determine less, so the test compares days only
// for the smallest sets of tokens that determine it.
func TestLayoutsThatDetermineThePeriod(t *testing.T) {
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
				allowed[set] = template.Determines(set.String(), unit, start)
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
					apart[set] = bits.OnesCount(uint(set)) <= 4 && set.determines(days, i)
					if apart[set] && !allowed[set] {
						refused[set.String()] = true
					}
				}
				require.False(t, allowed[set] && !apart[set], "%v from %v: %v is ambiguous", unit, start, set)
			}
		}
	}
	if redistest.Long() {
		require.ElementsMatch(t, strictlyRefused, slices.Collect(maps.Keys(refused)))
		return
	}
	require.Subset(t, strictlyRefused, slices.Collect(maps.Keys(refused)))
}

// Other spellings of a token determine the same as the token, and the year in which a business year ends the same as
// the year in which it begins. Hours, minutes and seconds determine the period only together with everything coarser.
func TestSpellingsAndClocks(t *testing.T) {
	for _, start := range someYearStarts(t) {
		determines := func(layout string, unit calendar.Unit) bool {
			return template.Determines(layout, unit, start)
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

// What every token prints on four days, with business years from April 6. The printed date is found again.
func TestTokens(t *testing.T) {
	c := calendar.Calendar{Unit: calendar.Never, Location: time.UTC, YearStart: april6}
	days := []string{"2001-01-01", "2024-04-05", "2024-10-06", "2033-12-31"}
	for token, want := range map[string]string{
		"yyyy": "2001 2024 2024 2033", "YYYY": "2001 2024 2024 2033", "BBBB": "2544 2567 2567 2576",
		"yy": "01 24 24 33", "BB": "44 67 67 76", "GG": "01 24 24 33", "FF": "00 23 24 33", "EE": "01 24 25 34",
		"MM": "01 04 10 12", "M": "1 4 10 12", "R": "I IV X XII", "MMM": "JAN APR OCT DEC", "Mmm": "Jan Apr Oct Dec",
		"dd": "01 05 06 31", "DD": "01 05 06 31", "d": "1 5 6 31", "DDD": "001 096 280 365", "WW": "01 14 40 52",
		"GGGG": "2001 2024 2024 2033", "FFFF": "2000 2023 2024 2033", "EEEE": "2001 2024 2025 2034", "Q": "3 4 3 3",
		"S": "2 2 2 2", "HH": "15 15 15 15", "mm": "04 04 04 04", "ss": "05 05 05 05",
	} {
		parsed, err := template.Parse("{type}-{date:"+token+"}-{seq}", c)
		require.NoError(t, err, token)
		for i, date := range strings.Fields(want) {
			at, err := time.Parse(time.DateTime, days[i]+" 15:04:05")
			require.NoError(t, err)
			span, err := parsed.Dates.SpanAt(at)
			require.NoError(t, err)
			require.Equal(t, date, span.Date, token)
			found, err := parsed.Dates.Find(date)
			require.NoError(t, err)
			require.Equal(t, date, found.Date)
		}
	}
}

// Invalid templates, and templates that do not suit their periods. A layout alone stands for {type}-{date:LAYOUT}-{seq}.
// A token without a fixed width needs a literal on either side.
func TestTemplatesRefused(t *testing.T) {
	for _, c := range []struct {
		opt     setting
		refused map[string]string // "" for a template that is accepted
	}{
		{per(calendar.Never), map[string]string{
			"{type}{seq:7}{check:s10}":            "this template prints 7 before it and 0 after it",
			"{type}{seq:8}{check:s10}1":           "this template prints 8 before it and 1 after it",
			"{type}-{seq:8+}-{check:s10}":         "does not print a fixed number of digits",
			"{type}{seq:4:base32}{check:luhn}":    "covers digits only, and the sequence is printed in base32",
			"{type}{seq}{check:luhn}{check:damm}": "{check} appears twice",
			"{type}{seq}{type}":                   "{type} appears twice",
			"{type}{seq}{number}":                 "unknown field {number}",
			"{type}":                              "{seq} is missing", "{seq}": "{type} is missing",
			"{type}{seq:16}":        `width "16"; want 1 to 15, followed by + for a sequence that may grow`,
			"{type}{seq:10:base36}": `width "10"; want 1 to 9`,
			"{type}{seq:04}":        `width "04"`, "{type}{seq:0}": `width "0"`,
			"{type}{seq:4+:alpha}":                   "a sequence in alpha cannot grow",
			"{type}{seq":                             "the field {seq is not closed",
			"{type}{seq}}":                           "a single } at byte 11",
			"{type}{seq}\xff":                        "not valid UTF-8",
			"{type}{seq}" + strings.Repeat("x", 250): "it has 261 bytes; want up to 256",
			"{type}-{date:yyyy'}'}-{seq}":            "the quote in ' is not closed",
			"{type}-{date:yyyy'{'}-{seq}":            `"{" in a date layout`,

			"yyyyMmdd": `unknown date token "m"`, "yyyyMmmm": `unknown date token "mmm"`, "yyyyMMm": `unknown date token "m"`,
			"yyyy-ddd": `unknown date token "ddd"`, "BBB": `unknown date token "BBB"`,
			"yyyySS": `unknown date token "SS"`, "RR": `unknown date token "RR"`, "yyyy-mmM": "M, which has no padding",
			"yyyy'MMdd": "the quote in 'MMdd is not closed", "yyyy'''": "the quote in ' is not closed",
			"'2024'":    "prints nothing of the date",
			"yyyy BBBB": "the calendar year (yyyy or yy) appears twice",
			"BB/BBBB":   "the calendar year (yyyy or yy) appears twice", "YYYY-BB": "appears twice",
			"yyyy-M-MM": "the month (MM) appears twice", "MMM-R": "the month (MM) appears twice",
			"Mmm MMM": "the month (MM) appears twice", "dd.d": "the day (dd) appears twice",
			"S-S": "the half-year (S) appears twice",
		}},
		{dayStart(time.Hour), map[string]string{
			"{type}{seq}":                   "{date} is missing; only numbers of Never need none",
			"{type}{date:yyyyMM}{seq}":      "the day (dd) is missing",
			"{type}{date:yyyyMMdd HH}{seq}": "HH: with a day start, the date is the business day",
			"{type}{date:YYYYMMddWW}{seq}":  "YYYY beside weeks",
			"{type}{date:'W'}{seq}":         "it prints nothing of the date",
		}},
		{per(calendar.Year), map[string]string{
			"{type}{date:M-yyyy}{seq}": "{date:M-yyyy}: M, which has no padding, needs a literal right before it that " +
				"does not end in a digit, such as -, or the beginning of the template",
			"yyyyM":                                "M, which has no padding, needs a literal right before it",
			"Myyyy":                                "M, which has no padding, needs a literal right after it",
			"{type}-{date:yyyy-M}{seq}":            "M, which has no padding, needs a literal right after it",
			"{type}-{date:yyyy-M}4-{seq}":          "after it that does not begin with a digit",
			"yyyy'4'M":                             "before it that does not end in a digit",
			"{type}-{date:yyyyMM-d}{seq}":          "d, which has no padding",
			"yyyyR":                                "R, which has no padding, needs a literal right before it that does not end",
			"yyyy'x'R":                             "in a letter",
			"{type}-{date:yyyy-R}年-{seq}":          "with a letter",
			"{type}-{date:yyyy-M}{check:gs1}{seq}": "M, which has no padding",
			"yyyy'M'M":                             "", "{date:d.MM.yyyy}-{type}-{seq}": "", "{type}-{seq}-{date:yyyy.MM.d}": "",
			"{type}-{seq}-{date:yyyy-R}": "", "{type}-{date:yyyy-R}5-{seq}": "", "{type}{date:-R-yyyy}{seq}": "",
		}},
	} {
		for pattern, want := range c.refused {
			if !strings.Contains(pattern, "{") {
				pattern = "{type}-{date:" + pattern + "}-{seq}"
			}
			if err := errOf(parse(c.opt, withText(pattern))); want == "" {
				require.NoError(t, err, pattern)
			} else {
				require.ErrorContains(t, err, want, pattern)
			}
		}
	}
}

// Years that a layout can and cannot print.
func TestYears(t *testing.T) {
	for date, want := range map[string]string{
		"1999 BB": "the year 1999 cannot be printed as BB; want 2000 to 2099", "2100 yy": "want 2000 to 2099",
		"2000 BB": "43", "2057 BB": "00", "2099 BB": "42", "9456 BBBB": "9999",
		"9457 BBBB": "the year 9457 cannot be printed as BBBB; want years up to 9456",
	} {
		year, layout, _ := strings.Cut(date, " ")
		at, err := time.Parse("2006", year)
		require.NoError(t, err)
		n, err := newScheme(t, withText("{type}{date:"+layout+"}{seq}"), per(calendar.Year)).Number("IS", at, 1)
		if err != nil {
			require.ErrorContains(t, err, want, date)
			continue
		}
		require.Equal(t, "IS"+want+"0001", n.String())
	}
}
