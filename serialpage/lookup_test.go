package serialpage

import (
	"fmt"
	"html"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dailyserial/serial"
)

// The result of a look-up must describe the state of the number, above the report of its period. Numbers of earlier
// schemes are found, too, and their period is the one in the current scheme. All look-ups within a minute need only one
// audit, and another one for each stored number whose text is unknown.
func TestLookUp(t *testing.T) {
	bubble(t, func(t *testing.T) {
		checked := newScheme(t, "{type}-{date:yyyyMMdd}-{seq:4}{check:luhn}", "America/Sao_Paulo",
			serial.WithDayStart(4*time.Hour))
		g := &golden{site: open(t, func(s *site) {
			s.use(8, s.counter.rules)
			s.store(1, 3, 3, 7, 9)
			s.stored = append(s.stored, "IS202110249999", " IS202110249999", "IS/20211024/8", "IS202110240006 ")
			s.series[0].Earlier = []*serial.Scheme{newScheme(t, "{type}/{date:yyyyMMdd}/{seq:1}", "UTC"),
				checked}
			s.series[0].Link = func(number string) string { return "/doc?n=" + number }
			s.register.add(serial.Explanation{First: 2, Reason: "torn", By: "Ada"},
				serial.Explanation{First: 2, Reason: "void", By: "Eve", At: midnight.Add(-time.Hour)},
				serial.Explanation{First: 2, Reason: serial.CallerLeft, Unused: true},
				serial.Explanation{First: 5, Reason: serial.NotReplicated},
				serial.Explanation{First: 7, Reason: serial.BlockBurned, Unused: true},
				serial.Explanation{First: 4, Last: 9999, Reason: "unplugged", By: "Ada", Possible: true})
			for i := range 12 {
				s.register.add(serial.Explanation{First: 1, Last: 9999, Reason: serial.Raised, Possible: true,
					At: midnight.Add(time.Duration(13-i) * time.Minute)})
			}
		})}
		addResult := func(number, page string) {
			links := regexp.MustCompile(`href="([^"]*)">(?:Open|Explain|Correct)[^<]*<|href="([^"]*)" class="screen">Open`).
				FindAllStringSubmatch(page, -1)
			fmt.Fprintf(g, "%s\n", lookupText(t, page))
			for _, l := range links {
				fmt.Fprintf(g, "\t-> %s\n", html.UnescapeString(l[1]+l[2]))
			}
		}
		for _, number := range []string{"IS202110240001", "IS202110240002", "IS202110240003", "IS202110240004",
			"IS202110240005", " \u00a0IS202110240006\t\n", "IS202110240007", "IS202110240008", "IS202110240009",
			"IS202110240010", "IS202110249999", "IS/20211024/1", "IS/20211024/8", printed(t, checked, "IS", noon, 1)} {
			page := g.find(200, number, "X-User", "Ada")
			addResult(number, page)
			require.Less(t, strings.Index(page, `class="lookup"`), strings.Index(page, `id="report"`), "above the report")
			require.Contains(t, page, "Invoices, 24 October 2021</title>")
			require.Contains(t, page, `type="search" name="number" value=""`, "the next number can be typed at once")
		}
		require.LessOrEqual(t, g.site.read.Load(), int64(18), "two for each audit, the second to learn how 7 was printed")
		for _, other := range []string{"IS202110230001", "PO202110240001", "x"} {
			addResult(other, g.get(200, today+"&number="+other))
		}

		// If the counter of a period has been deleted, or if the period has not begun, there is no report. The page must
		// show only this.
		g.find(404, "IS202110230001")
		for _, number := range []string{"IS202110230001", "IS202110250001", "IS202113240001", "IS-20211024-00014", "x"} {
			_, page, _ := strings.Cut(g.find(404, number), "<main>")
			fmt.Fprintf(g, "%s\n", pageText(page))
		}
		g.counter.table = true
		addResult("", g.find(200, "IS202110250001"))

		// Without Stored, the result contains only whether the number was issued.
		g.series[0].Stored = nil
		g.forget()
		addResult("", g.find(200, "IS202110240002"))
		addResult("", g.find(200, "IS202110240012"))
		g.compare("lookup.golden")
	})
}

// The result of a look-up must contain the number that is stored with the sequence: beyond the 1,000 entries of the
// report's lists, with another type if types share a counter, and with another date if a period has many dates. One
// audit must be enough for all numbers, unless only an audit for the number knows how it was printed.
func TestLookUpStored(t *testing.T) {
	for name, c := range map[string]struct {
		set    func(*site)
		audits int64             // 0 if the count depends on the order of the look-ups
		want   map[string]string // result, after "was issued and is"
	}{
		"beyond the lists": {func(s *site) {
			large(s, 150_000)
			for seq := int64(50); seq <= 150_000; seq += 100 {
				s.register.add(serial.Explanation{First: seq, Reason: fmt.Sprint("reason ", seq), By: "Ada"})
			}
		}, 1, map[string]string{
			"IS2021102400149999": "stored.",
			"IS2021102400150000": "missing. It is not explained.",
			"IS2021102400149950": "missing. It is explained: reason 149950 (Ada, 24 October 2021, 00:00 UTC).",
		}},
		"shared counter": {func(s *site) {
			s.use(3, newScheme(t, "{type}{date:yyyyMMdd}{seq:4}", "UTC", serial.WithSharedCounter()))
			s.stored = []string{"IS202110240001", "FA202110240002"}
		}, 0, map[string]string{
			"IS202110240001": "stored.", "AV202110240001": "stored as IS202110240001.", "FA202110240002": "stored.",
			"IS202110240002": "stored as FA202110240002.", "X202110240003": "missing. It is not explained.",
		}},
		"many dates": {func(s *site) {
			scheme := newScheme(t, "{type}{date:yyyyMMdd}-{seq:6}", "UTC", serial.WithPeriod(serial.PerYear))
			s.use(20_000, scheme)
			s.stored = nil
			for seq := int64(1); seq <= 20_000; seq++ {
				at := time.Date(2021, time.March, int(seq%28)+1, 0, 0, 0, 0, time.UTC)
				s.stored = append(s.stored, printed(t, scheme, "IS", at, seq))
			}
		}, 3, map[string]string{"IS20210105-020000": "stored as IS20210309-020000.",
			"IS20210105-000001": "stored as IS20210302-000001.", "IS20210105-004097": "stored as IS20210310-004097."}},
	} {
		t.Run(name, func(t *testing.T) {
			visit(t, c.set, func(t *testing.T, s *site) {
				for number, want := range c.want {
					require.Equal(t, number+" was issued and is "+want, lookupText(t, s.find(200, number)))
				}
				if c.audits > 0 {
					require.Equal(t, c.audits, s.read.Load())
				}
			})
		})
	}
}

// If a text can be a number of several series, the page must list each of them once. If it can be a number of no
// series, the page must contain the reason.
func TestLookUpSeveralSeries(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g := &golden{site: open(t, func(s *site) {
			north, hourly, checked := s.series[0], s.series[0], s.series[0]
			north.Key, north.Name, north.Earlier = "north", "צפון", []*serial.Scheme{s.counter.rules}
			hourly.Key, checked.Key = "hourly", "checked"
			hours := newScheme(t, "{type}{date:yyyyMMddHH}{seq:2}", "UTC", serial.WithPeriod(serial.PerHour))
			hourly.Source = newCounter(t, hours, "IS", 3, noon)
			checked.Source = newCounter(t, newScheme(t, "{type}-{date:yyyyMMdd}-{seq:4}{check:luhn}", "UTC"), "IS", 3, noon)
			s.series = append(s.series, north, hourly, checked)
		})}
		page := g.show(200, "/numbers/find?number=IS202110241202")
		require.Equal(t, "IS202110241202 was issued and is missing. It is not explained.",
			lookupText(t, g.get(200, linksTo(page, "period")[2])))

		for _, number := range []string{"IS202113240001", "IS202102300001", "IS196001010001", "IS-20211301-00014",
			"PO202110240001", "PO202113240001", "x", "202110240001", "IS20211024", "IS202110240000", "is202110240001",
			"IS 202110240001", "IS-20211024-00010", `"><script>`} {
			page := g.find(404, number)
			require.Contains(t, html.UnescapeString(page), `name="number" value="`+number+`"`, "to correct it")
			_, page, _ = strings.Cut(page, "<main>")
			fmt.Fprintln(g, pageText(page))
		}
		g.show(404, "/numbers/find?number=IS-20211024-00010")
		g.compare("several.golden")
		require.Contains(t, g.get(400, "/numbers/find?number=+"), "Enter a number")
		g.series = nil
		require.Contains(t, g.find(404, "IS202110240001"), " is not a number of these series.")
	})
}
