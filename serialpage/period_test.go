package serialpage

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"html"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/dailyserial/serial"
)

// explanation returns an explanation of today's invoices.
func (s *site) explanation(first, last int64, reason, by string, at time.Time) serial.Explanation {
	return serial.Explanation{Series: "serial:IS", Type: "IS", Start: s.start, First: first, Last: last, Reason: reason,
		By: by, At: at}
}

// tableOf returns the rows of the table that begins after a heading, as texts.
func tableOf(page, heading string) (rows []string) {
	_, page, _ = strings.Cut(page, "<h2>"+heading+"</h2>")
	page, _, _ = strings.Cut(page, "</table>")
	_, page, _ = strings.Cut(page, "<tbody")
	for _, m := range regexp.MustCompile(`(?s)<tr.*?</tr>`).FindAllString(page, -1) {
		rows = append(rows, textOf(strings.ReplaceAll(m, "</t", " </t")))
	}
	return rows
}

func csvOf(t *testing.T, text string) [][]string {
	t.Helper()
	table, found := strings.CutPrefix(text, "\ufeff")
	require.True(t, found)
	lines, err := csv.NewReader(strings.NewReader(table)).ReadAll()
	require.NoError(t, err)
	return lines
}

const (
	todayCSV  = "/numbers/period.csv?key=IS&start=2021-10-24T00:00:00Z"
	todayJSON = "/numbers/period.json?key=IS&start=2021-10-24T00:00:00Z"
)

// The explanation recorded later counts, even if the clock of the earlier one was ahead. The page shows the earlier one
// as replaced: who gave it, when, and what replaced it.
func TestReplacedExplanations(t *testing.T) {
	s := open(t, func(s *site) {
		at := s.start.Add
		same := s.explanation(4, 4, "caller left", "", at(time.Hour))
		s.register.all = []serial.Explanation{
			s.explanation(1, 5, "wrong", "Ada", at(9*time.Hour)), same, same, // recorded twice
			s.explanation(2, 2, "burnt", "Eve", at(2*time.Hour)), // corrects Ada, whose clock was ahead
			s.explanation(1, 1, "of a number that is there", "Eve", at(2*time.Hour)),
		}
	})
	page := s.get(200, today)
	require.Equal(t, []string{
		"IS202110240002 burnt Eve 24 October 2021, 02:00 UTC", "IS202110240004 wrong Ada 24 October 2021, 09:00 UTC",
	}, tableOf(page, "Explanations"))
	require.Equal(t, []string{
		"IS202110240002 wrong Ada 24 October 2021, 09:00 UTC burnt Eve, 24 October 2021, 02:00 UTC",
		"IS202110240004 request given up the program 24 October 2021, 01:00 UTC wrong Ada, 24 October 2021, 09:00 UTC",
	}, tableOf(page, "Replaced explanations"))
	require.Contains(t, csvOf(t, s.get(200, todayCSV)), []string{"replaced explanation", "4", "4", "1", "IS202110240004",
		"caller left", "", "2021-10-24T01:00:00Z"})
	var out struct {
		Replaced []struct {
			First, Last int64
			Reason, By  string
			ReplacedBy  struct{ Reason, By string }
		}
	}
	require.NoError(t, json.Unmarshal([]byte(s.get(200, todayJSON)), &out))
	require.Len(t, out.Replaced, 2)
	first := out.Replaced[0]
	require.Equal(t, []int64{2, 2}, []int64{first.First, first.Last})
	require.Equal(t, []string{"wrong", "Ada", "burnt", "Eve"},
		[]string{first.Reason, first.By, first.ReplacedBy.Reason, first.ReplacedBy.By})

	// Numbers that the later explanation does not cover keep their own. Ranges with the same pair of explanations are
	// one line.
	s.register.all = []serial.Explanation{
		s.explanation(2, 4, "one", "Ada", s.start), s.explanation(2, 4, "two", "Ada", s.start),
	}
	s.handler().audits.forget(periodKey{"IS", s.start.Unix()})
	require.Equal(t, []string{
		"IS202110240002, IS202110240004 one Ada 24 October 2021, 00:00 UTC two Ada, 24 October 2021, 00:00 UTC",
	}, tableOf(s.get(200, today), "Replaced explanations"))
}

// A page with many explanations is not large, and says that some were not compared.
func TestManyReplacedExplanations(t *testing.T) {
	s := open(t, func(s *site) {
		for i := range 10_001 {
			s.register.all = append(s.register.all, s.explanation(2, 2, fmt.Sprint("reason ", i), "Ada", s.start))
		}
	})
	page := s.get(200, today)
	require.Len(t, tableOf(page, "Replaced explanations"), mostListed)
	require.Contains(t, page, "There may be more replaced explanations than are listed.")
	require.Less(t, len(page), 1_000_000)
	s.register.all = append(s.register.all[:2], s.register.all[len(s.register.all)-1])
	s.handler().audits.forget(periodKey{"IS", s.start.Unix()})
	require.NotContains(t, s.get(200, today), "There may be more replaced explanations")
}

// If the list of explanations is cut, others may be replaced.
func TestReplacedBeyondLists(t *testing.T) {
	s := open(t, func(s *site) {
		large(t, s, 150_000)
		for _, e := range []serial.Explanation{
			s.explanation(149_000, 150_000, "old", "Ada", s.start), s.explanation(1, 150_000, "new", "Ada", s.start),
		} {
			e.Series = "large:IS"
			s.register.all = append(s.register.all, e)
		}
	})
	page := s.get(200, today)
	require.Len(t, tableOf(page, "Explanations"), mostListed)
	require.Empty(t, tableOf(page, "Replaced explanations"))
	require.Contains(t, page, "There may be more replaced explanations than are listed.")
}

// Possible reasons are listed beside the ranges they touch, and explain nothing. If they agree, they fill the form.
func TestPossibleReasons(t *testing.T) {
	possible := func(e serial.Explanation) serial.Explanation { e.Possible = true; return e }
	s := open(t, func(s *site) {
		s.register.all = []serial.Explanation{
			possible(s.explanation(3, 9999, serial.AnswerLost+": 2 attempts", "", s.start)),
			possible(s.explanation(1, 2, serial.Raised, "", s.start)), possible(s.explanation(2, 3, serial.Raised, "", s.start)),
			possible(s.explanation(5, 5, serial.BlockSkipped, "", s.start)), // it is stored
		}
	})
	page := s.get(200, today, "X-User", "Ada")
	require.Contains(t, page, "✗ Not all numbers are accounted for.")
	require.Empty(t, tableOf(page, "Explanations"))
	text := textOf(page)
	require.Contains(t, text, "IS202110240002 explain "+
		"possible reason: counter moved ahead, IS202110240001 – IS202110240002, 24 October 2021, 00:00 UTC "+
		"possible reason: counter moved ahead, IS202110240002 – IS202110240003, 24 October 2021, 00:00 UTC")
	require.Contains(t, text, "IS202110240004 explain "+
		"possible reason: request without an answer, IS202110240003 – IS202110240005,", "up to the last one that was issued")
	require.NotContains(t, text, "numbers passed over")
	links := s.periods(page)
	require.Equal(t, "counter moved ahead", formOf(s.get(200, "/numbers/"+links[0], "X-User", "Ada")).Get("reason"))
	lines := csvOf(t, s.get(200, todayCSV))
	require.Contains(t, lines, []string{"possible reason", "3", "5", "", "", "answer lost: 2 attempts", "",
		"2021-10-24T00:00:00Z"})
	require.Contains(t, lines, []string{"not explained", "2", "2", "1", "IS202110240002", "", "", ""})
	require.Contains(t, s.get(200, todayJSON), `"possibleCount":3`)

	for range 4 { // they differ
		s.register.all = append(s.register.all, possible(s.explanation(2, 4, "unplugged", "Eve", s.start)))
	}
	s.handler().audits.forget(periodKey{"IS", s.start.Unix()})
	page = s.get(200, today, "X-User", "Ada")
	require.Contains(t, textOf(page), "and 3 more possible reasons")
	require.Empty(t, formOf(s.get(200, "/numbers/"+s.periods(page)[0], "X-User", "Ada")).Get("reason"))
}

// If sequences are hidden, a page lists the numbers of a range, or their count, instead of the first and the last. CSV
// lists all of them.
func TestHiddenRanges(t *testing.T) {
	var numbers []string
	s := open(t, func(s *site) {
		numbers = s.scheme([]int{1, 2, 3, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16},
			serial.WithTemplate("{type}{date:yyyyMMdd}{seq:6}"), hidden)
		e := s.explanation(6, 17, "torn", "Ada", s.start)
		e.Series = "other:IS"
		s.register.all = append(s.register.all, e)
	})
	page := s.get(200, today)
	text := textOf(page)
	require.NotContains(t, text, "–", "a range")
	require.Contains(t, text, "not explained3 "+numbers[1]+" "+numbers[2]+" "+numbers[3]+" Stored")
	require.Equal(t, []string{"12 numbers, listed in the CSV torn Ada 24 October 2021, 00:00 UTC"},
		tableOf(page, "Explanations"))
	lines := csvOf(t, s.get(200, todayCSV))
	for i, what := range map[int]string{1: "not explained", 3: "not explained", 5: "explained", 16: "explained"} {
		require.True(t, slices.ContainsFunc(lines, func(line []string) bool {
			return line[0] == what && line[3] == "1" && line[4] == numbers[i]
		}), "%s %s", what, numbers[i])
	}

	// Other series keep their ranges, whatever is printed around their sequences.
	for _, template := range []string{"{type}{date:yyyyMMdd}{seq:4}", "{type}{date:yyyyMMdd}{seq:6}{check:97-10}",
		"{check:luhn}{type}{date:yyyyMMdd}-{seq:4+}", "{type}{date:yyyyMMdd}{seq:4:base32}",
		"{type}{date:yyyyMMdd}{seq:4:base36}{check:37-36}"} {
		s := open(t, func(s *site) { s.scheme(nil, serial.WithTemplate(template)) })
		require.Contains(t, s.get(200, today), " – ", template)
	}
}

// If a number's printed date is unknown, the pages show its sequence.
func TestUnknownDates(t *testing.T) {
	s := open(t, func(s *site) {
		s.scheme([]int{1, 2, 4}, serial.WithPeriod(serial.PerYear), serial.WithTemplate("{type}{date:yyyyMMdd}{seq:5}"))
	})
	require.Regexp(t, `sequence 20 20 <0\.1% of 99 999`, textOf(strings.ReplaceAll(s.get(200, "/numbers/"), "<", " <")))
	page := s.get(200, "/numbers/series?key=IS")
	require.Contains(t, page, ">sequence 20<")
	text := textOf(s.get(200, "/numbers/"+s.periods(page)[0]))
	require.Contains(t, text, "Issued20 sequences 1 – 20 ")
	require.Contains(t, text, "not explained3 sequences 2 – 3 sequence 5 ")
}

// Texts that an audit cut are marked, and others are not.
func TestCutTexts(t *testing.T) {
	long, exact, wide := strings.Repeat("x", 257), strings.Repeat("y", 256), strings.Repeat("ä", 127)+"a語"
	s := open(t, func(s *site) { s.stored = []string{long, exact, wide} })
	var out struct{ Foreign []string }
	require.NoError(t, json.Unmarshal([]byte(s.get(200, todayJSON)), &out))
	require.Equal(t, []string{long[:256] + "…", exact, wide[:255] + "…"}, out.Foreign)
	page := html.UnescapeString(s.get(200, today))
	for _, text := range out.Foreign {
		require.Contains(t, page, ">"+text+"<")
	}
	require.NotContains(t, s.get(200, today, "X-User", "Ada"), "maxlength", "a browser would cut pasted text")
}

// A reason may contain spaces other than the ASCII one: people also copy them from these pages.
func TestUnicodeSpaces(t *testing.T) {
	s := open(t, nil)
	s.explain(303, "first", "IS202110240002", "reason", "1\u202f000 € n°\u00a07", "@X-User", "Ada")
	require.Contains(t, s.get(200, today), "1\u202f000 € n°\u00a07")
}

// The issued share is rounded to 0% only if none was issued, and to 100% only if all were.
func TestFullText(t *testing.T) {
	for want, n := range map[string][2]int64{
		"0% of 9": {0, 9}, "<0.1% of 99\u202f999": {1, 99_999}, "0.1% of 1\u202f000": {1, 1000}, "0.2% of 500": {1, 500},
		"33.3% of 9": {3, 9}, "99.9% of 99\u202f999": {99_998, 99_999}, "100% of 9": {9, 9}, "100% of 8": {9, 8},
	} {
		require.Equal(t, want, fullText(n[0], n[1]))
	}
}

// The overview says until when numbers are issued, and warns 29 days before, and when four fifths were issued.
func TestUntil(t *testing.T) {
	for _, row := range []struct {
		last, today, says string
		near              bool
	}{
		{"2026-12-31", "2026-12-01", "until 31 December 2026", false},
		{"2026-12-31", "2026-12-02", "only until 31 December 2026", true},
		{"2026-12-31", "2026-12-31", "only until 31 December 2026", true},
		{"2026-12-31", "2027-01-01", "ended on 31 December 2026", true},
		{"9999-12-30", "2026-12-01", "until 30 December 9999", false},
	} {
		says, near := untilText(row.last, row.today)
		require.Equal(t, row.says, says, row.today)
		require.Equal(t, row.near, near, row.today)
	}

	overview := func(seq int64, until serial.When) string {
		scheme, err := serial.NewScheme(serial.WithLocation(time.UTC), serial.WithLast(50), serial.WithUntil(until))
		require.NoError(t, err)
		noon := time.Date(2021, 10, 24, 12, 0, 0, 0, time.UTC)
		s := open(t, func(s *site) { s.series[0].Source = fixed{scheme, seq, noon} })
		return s.get(200, "/numbers/")
	}
	page := overview(39, serial.On(9999, time.December, 30))
	require.Contains(t, page, `<span class="quiet block">78.0% of 50</span>`+
		`<span class="quiet block">until 30 December 9999</span>`)
	page = overview(40, serial.On(2021, time.December, 31))
	require.Contains(t, page, `<span class="alert block">nearly full: 80.0% of 50</span>`+
		`<span class="alert block">ended on 31 December 2021</span>`)
}

// If a user types the address of a period without numbers, its audit does not count as the series' last check. Neither
// does a future period's, which counts as checked if it has numbers.
func TestFuturePeriod(t *testing.T) {
	scheme, err := serial.NewScheme(serial.WithLocation(time.UTC))
	require.NoError(t, err)
	s := open(t, func(s *site) { s.series[0].Source = fixed{scheme, 3, time.Date(2021, 10, 24, 12, 0, 0, 0, time.UTC)} })
	day := func(day string) string { return "/numbers/period?key=IS&start=" + day + "T00:00:00Z" }
	require.Contains(t, s.get(200, day("9000-01-01")), "This period has not begun.")
	s.get(200, day("1985-01-01"))
	require.Contains(t, s.get(200, "/numbers/"), "none since the service started")
	s.get(200, day("2021-10-24"))
	s.get(200, day("9000-01-01"))
	overview := s.get(200, "/numbers/")
	require.Regexp(t, `data-label="Last check"><a href="[^"]*">24 October 2021</a>`, overview)
	require.Contains(t, overview, "1 of 1 checked period has discrepancies")

	s.series[0].Source = fixed{scheme, 3, time.Date(9000, 1, 1, 12, 0, 0, 0, time.UTC)}
	s.handler().audits.forget(periodKey{"IS", time.Date(9000, 1, 1, 0, 0, 0, 0, time.UTC).Unix()})
	s.get(200, day("9000-01-01"))
	overview = s.get(200, "/numbers/")
	require.Regexp(t, `data-label="Last check"><a href="[^"]*">24 October 2021</a>`, overview)
	require.Contains(t, overview, "2 of 2 checked periods have discrepancies")
	require.Contains(t, s.get(200, "/numbers/series?key=IS"), "✗ </span>discrepancies")
}

// The printed page says what is signed.
func TestSignature(t *testing.T) {
	s := open(t, func(s *site) { s.stored = append(s.stored, "x") })
	_, sheet, found := strings.Cut(s.get(200, today), `<div class="paper sign">`)
	require.True(t, found)
	require.Regexp(t, `^Account of Invoices \(IS\), 24 October 2021, checked .* UTC: 5 issued; 3 stored; 2 missing; `+
		`0 explained; 2 not explained; 1 stored, but not one of our numbers\. Date, name and signature$`, textOf(sheet))
}

// The page of a period shows a start other than 1, and asks whether it was changed beside numbers below it.
func TestNumbersBelowTheStart(t *testing.T) {
	s := open(t, func(s *site) {
		rdb := redis.NewClient(&redis.Options{Addr: s.redis.Addr()})
		t.Cleanup(func() { require.NoError(t, rdb.Close()) })
		gen, err := serial.New(rdb, serial.WithLocation(time.UTC), serial.WithMaxSkew(-1), serial.WithStart(5))
		require.NoError(t, err)
		s.series[0].Source = Redis(gen)
	})
	const asks = "below the start: was it changed?"
	page := textOf(s.get(200, today))
	require.NotContains(t, page, asks)
	require.Contains(t, page, "Issued5 ", "the day began at 1")
	require.NotContains(t, page, "Numbers of this period start at")

	s.redis.SetTime(s.start.Add(36 * time.Hour))
	_, err := s.gen.Next(t.Context(), "IS") // the day before is an earlier one from now on
	require.NoError(t, err)
	s.handler().audits.forget(periodKey{"IS", s.start.Unix()})
	page = textOf(s.get(200, today))
	require.Contains(t, page, "Numbers of this period start at sequence 5.")
	require.Contains(t, page, "IS202110240001 "+asks)
	require.Contains(t, page, "IS202110240003 "+asks)
	require.NotContains(t, page, "IS202110240005 "+asks)
}
