package template_test

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dailyserial/serial/internal/calendar"
	"github.com/dailyserial/serial/internal/race"
	"github.com/dailyserial/serial/internal/redistest"
)

var yearStarts = []string{"04-06", "01-01", "02-15", "04-01", "07-01", "10-01", "12-28"}

// dateTokens are the tokens of dates, each of which prints a column of a day.
var dateTokens = []string{"yyyy", "MM", "dd", "DDD", "GGGG", "WW", "FFFF", "Q", "S"}

var dayUnits = []calendar.Unit{calendar.Day, calendar.Week, calendar.Month, calendar.Quarter, calendar.HalfYear,
	calendar.Year}

// A printedDay has the values that the dateTokens print on a day, and the beginnings of its periods, one for each of the
// dayUnits.
type printedDay struct {
	columns [9]int
	periods [6]int64
}

// daysOf returns the days of 400 years, after which the calendar repeats, or of 100 years without SERIAL_TEST_LONG=1.
func daysOf(start calendar.YearStart) (days []printedDay) {
	end := map[bool]int{false: 2100, true: 2400}[redistest.Long()]
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

// determines reports whether days in different periods always print differently with a set of tokens. unit is an index
// of dayUnits.
func determines(set uint, days []printedDay, unit int) bool {
	seen := make(map[int]int64, 1000)
	for i := range days {
		key := 0
		for j, v := range days[i].columns {
			if set&(1<<j) != 0 {
				key = key*2500 + v
			}
		}
		p := days[i].periods[unit]
		if other, twice := seen[key]; twice && other != p {
			return false
		}
		seen[key] = p
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
// for the smallest sets of tokens that determine it. A set is a number with one bit for each of the dateTokens, so it
// comes after the smaller sets that it contains. Without SERIAL_TEST_LONG=1, business years have only one start.
func TestLayoutsThatDetermineThePeriod(t *testing.T) {
	t.Parallel()
	if race.Enabled || testing.Short() {
		t.Skip("one goroutine computes for seconds, which leaves nothing for the race detector")
	}
	refused := map[string]bool{}
	for i, date := range yearStarts {
		if i > 0 && !redistest.Long() {
			break
		}
		start := newScheme(t, "", date).calendar.YearStart
		days := daysOf(start)
		for i, unit := range dayUnits {
			var allowed, apart [1 << len(printedDay{}.columns)]bool
			for set := uint(1); int(set) < len(allowed); set++ {
				var tokens []string
				smaller, known := false, false // whether some tokens of set are allowed, or determine the period
				for j, token := range dateTokens {
					if without := set &^ (1 << j); without != set {
						tokens = append(tokens, token)
						smaller, known = smaller || allowed[without], known || apart[without]
					}
				}
				layout := strings.Join(tokens, " ")
				_, err := parse("{type}-{date:"+layout+"}-{seq}", unit.Noun()+" "+date)
				allowed[set] = err == nil
				if !smaller && !known {
					known = len(tokens) <= 4 && determines(set, days, i)
					if known && !allowed[set] {
						refused[layout] = true
					}
				}
				apart[set] = known
				require.True(t, allowed[set] || !smaller, "%v from %v: %s is refused", unit, start, layout)
				require.False(t, allowed[set] && !known, "%v from %v: %s is ambiguous", unit, start, layout)
			}
		}
	}
	got := slices.Collect(maps.Keys(refused))
	require.Subset(t, strictlyRefused, got)
	if redistest.Long() {
		require.Len(t, got, len(strictlyRefused))
	}
}

// What every token prints on four days, with business years from April 6. The printed date is found again.
func TestTokens(t *testing.T) {
	days := []time.Time{time.Date(2001, 1, 1, 15, 4, 5, 0, time.UTC), time.Date(2024, 4, 5, 15, 4, 5, 0, time.UTC),
		time.Date(2024, 10, 6, 15, 4, 5, 0, time.UTC), time.Date(2033, 12, 31, 15, 4, 5, 0, time.UTC)}
	for token, want := range map[string]string{
		"yyyy": "2001 2024 2024 2033", "YYYY": "2001 2024 2024 2033", "BBBB": "2544 2567 2567 2576",
		"yy": "01 24 24 33", "BB": "44 67 67 76", "GG": "01 24 24 33", "FF": "00 23 24 33", "EE": "01 24 25 34",
		"MM": "01 04 10 12", "M": "1 4 10 12", "R": "I IV X XII", "MMM": "JAN APR OCT DEC", "Mmm": "Jan Apr Oct Dec",
		"dd": "01 05 06 31", "DD": "01 05 06 31", "d": "1 5 6 31", "DDD": "001 096 280 365", "WW": "01 14 40 52",
		"GGGG": "2001 2024 2024 2033", "FFFF": "2000 2023 2024 2033", "EEEE": "2001 2024 2025 2034", "Q": "3 4 3 3",
		"S": "2 2 2 2", "HH": "15 15 15 15", "mm": "04 04 04 04", "ss": "05 05 05 05",
	} {
		for i, date := range strings.Fields(want) {
			s := newScheme(t, "{type}-{date:"+token+"}-{seq}", "never 04-06")
			require.Equal(t, "IS-"+date+"-0001", s.print(t, "IS", days[i], 1).text, token)
		}
	}
}

// Invalid templates, and templates that do not suit their periods. A layout alone stands for {type}-{date:LAYOUT}-{seq}.
// A token without a fixed width needs a literal on either side.
func TestTemplatesRefused(t *testing.T) {
	for _, c := range []struct {
		words   string
		refused map[string]string // "" for a template that is accepted
	}{
		{"never", map[string]string{
			"{type}{seq:7}{check:s10}":               "this template prints 7 before it and 0 after it",
			"{type}{seq:8}{check:s10}1":              "this template prints 8 before it and 1 after it",
			"{type}-{seq:8+}-{check:s10}":            "does not print a fixed number of digits",
			"{type}{seq:4:base32}{check:luhn}":       "covers digits only, and the sequence is printed in base32",
			"{type}{seq:16}":                         `width "16"; want 1 to 15, followed by + for a sequence that may grow`,
			"{type}{seq}" + strings.Repeat("x", 250): "it has 261 bytes; want up to 256",
			"{type}{seq}{check:luhn}{check:damm}":    "{check} appears twice", "{type}{seq}{type}": "{type} appears twice",
			"{type}{seq}{number}": "unknown field {number}", "{type}": "{seq} is missing", "{seq}": "{type} is missing",
			"{type}{seq:10:base36}": `width "10"; want 1 to 9`, "{type}{seq:04}": `width "04"`,
			"{type}{seq:4+:alpha}": "a sequence in alpha cannot grow",
			"{type}{seq":           "the field {seq is not closed", "{type}{seq}}": "a single } at byte 11",
			"{type}{seq}\xff": "not valid UTF-8", "{type}-{date:yyyy'}'}-{seq}": "the quote in ' is not closed",
			"{type}-{date:yyyy'{'}-{seq}": `"{" in a date layout`,
			"yyyyMmmm":                    `unknown date token "mmm"`, "yyyyMMm": `unknown date token "m"`,
			"BBB": `unknown date token "BBB"`, "yyyy-mmM": "M, which has no padding",
			"yyyy'''": "the quote in ' is not closed", "'2024'": "prints nothing of the date",
			"BB/BBBB": "the calendar year (yyyy or yy) appears twice", "Mmm-M": "the month (MM) appears twice",
			"dd.d": "the day (dd) appears twice", "S-S": "the half-year (S) appears twice",
		}},
		{"1h", map[string]string{
			"{type}{seq}":                   "of two days are equal; add {date:yyyyMMdd}, or use the period Never",
			"{type}{date:yyyyMMdd HH}{seq}": "HH: with a day start, the date is the business day",
			"{type}{date:yyyyMM}{seq}":      "the day (dd) is missing", "{type}{date:YYYYMMddWW}{seq}": "YYYY beside weeks",
		}},
		{"second 04-06", map[string]string{ // other spellings of a token determine the same
			"yyyyMMddHHss": "the minute (mm) is missing", "yyyyMMddmmss": "the hour (HH) is missing",
			"yyyyMMddHHmm": "the second (ss) is missing", "HHmmss": "the calendar year (yyyy or yy) is missing",
			"yy DDD HHmmss": "", "d.Mmm.BBBB HHmmss": "", "YYYY MMM DD HHmmss": "", "GG WW dd HHmmss": "", "BB M d HHmmss": "",
			"EEEE R dd HHmmss": "", "EE MM dd HHmmss": "", "FF/EE MM dd HHmmss": "", "FF.Q.dd HHmmss": "is printed for",
		}},
		{"year", map[string]string{
			"{type}{date:M-yyyy}{seq}": "{date:M-yyyy}: M, which has no padding, needs a literal right before it that " +
				"does not end in a digit, such as -, or the beginning of the template",
			"yyyyM":                                "M, which has no padding, needs a literal right before it",
			"Myyyy":                                "M, which has no padding, needs a literal right after it",
			"{type}-{date:yyyy-M}{seq}":            "M, which has no padding, needs a literal right after it",
			"{type}-{date:yyyy-M}4-{seq}":          "after it that does not begin with a digit",
			"yyyyR":                                "R, which has no padding, needs a literal right before it that does not end",
			"{type}-{date:yyyy-M}{check:gs1}{seq}": "M, which has no padding",
			"yyyy'4'M":                             "before it that does not end in a digit",
			"{type}-{date:yyyyMM-d}{seq}":          "d, which has no padding", "yyyy'x'R": "in a letter",
			"{type}-{date:yyyy-R}年-{seq}": "with a letter", "yyyy'M'M": "", "{date:d.MM.yyyy}-{type}-{seq}": "",
			"{type}-{seq}-{date:yyyy.MM.d}": "", "{type}-{seq}-{date:yyyy-R}": "", "{type}-{date:yyyy-R}5-{seq}": "",
			"{type}{date:-R-yyyy}{seq}": "",
		}},
		{hidden, map[string]string{
			"{type}{date:yyyyMMdd}{seq:4:letters}": "has 456975 sequences; want a million or more",
			"{type}{date:yyyyMMdd}{seq:4:alpha}":   "456976 sequences", "{type}{date:yyyyMMdd}{seq:5}": "99999 sequences",
			"{type}{date:yyyyMMdd}-{seq:6+}": "without +", "{type}{date:yyyyMMdd}{seq:9:letters}": "",
		}},
	} {
		for pattern, want := range c.refused {
			if !strings.Contains(pattern, "{") {
				pattern = "{type}-{date:" + pattern + "}-{seq}"
			}
			if err := errOf(parse(pattern, c.words)); want == "" {
				require.NoError(t, err, pattern)
			} else {
				require.ErrorContains(t, err, want, pattern)
			}
		}
	}
}

// Years that a layout can and cannot print.
func TestYears(t *testing.T) {
	for row, want := range map[string]string{
		"1999 BB": "the year 1999 cannot be printed as BB; want 2000 to 2099", "2100 yy": "want 2000 to 2099",
		"2000 BB": "43", "2057 BB": "00", "2099 BB": "42", "9456 BBBB": "9999",
		"9457 BBBB": "the year 9457 cannot be printed as BBBB; want years up to 9456",
	} {
		year, layout, _ := strings.Cut(row, " ")
		at, err := time.Parse("2006", year)
		require.NoError(t, err)
		if n, err := newScheme(t, layout, "year").Number("IS", at, 1); err != nil {
			require.ErrorContains(t, err, want, row)
		} else {
			require.Equal(t, "IS"+want+"0001", n.text)
		}
	}
}
