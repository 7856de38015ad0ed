package serialpage

import (
	"context"
	"fmt"
	"html"
	"iter"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dailyserial/serial"
)

// The answer to a look-up says what became of the number, above the account of its period. Numbers of earlier schemes
// are read, too, and the period is that of the current scheme. All look-ups of a minute need one audit each time that
// the text of a stored number is not known.
func TestLookUp(t *testing.T) {
	bubble(t, func(t *testing.T) {
		checked := schemeOf(t, "{type}-{date:yyyyMMdd}-{seq:4}{check:luhn}", "America/Sao_Paulo",
			serial.WithDayStart(4*time.Hour))
		g := &golden{site: open(t, func(s *site) {
			s.use(8, s.counter.rules)
			s.store(1, 3, 3, 7, 9)
			s.stored = append(s.stored, "IS202110249999", " IS202110249999", "IS/20211024/8", "IS202110240006 ")
			s.series[0].Earlier = []*serial.Scheme{schemeOf(t, "{type}/{date:yyyyMMdd}/{seq:1}", "UTC"),
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
		answer := func(number, page string) {
			links := regexp.MustCompile(`href="([^"]*)">(?:Open|Explain|Correct)[^<]*<|href="([^"]*)" class="screen">Open`).
				FindAllStringSubmatch(page, -1)
			fmt.Fprintf(g, "%s\n", fateOf(t, page))
			for _, l := range links {
				fmt.Fprintf(g, "\t-> %s\n", html.UnescapeString(l[1]+l[2]))
			}
		}
		for _, number := range []string{"IS202110240001", "IS202110240002", "IS202110240003", "IS202110240004",
			"IS202110240005", " \u00a0IS202110240006\t\n", "IS202110240007", "IS202110240008", "IS202110240009",
			"IS202110240010", "IS202110249999", "IS/20211024/1", "IS/20211024/8", numberOf(t, checked, "IS", noon, 1)} {
			page := g.find(200, number, "X-User", "Ada")
			answer(number, page)
			require.Less(t, strings.Index(page, `class="fate"`), strings.Index(page, `id="account"`), "above the account")
			require.Contains(t, page, "Invoices, 24 October 2021</title>")
			require.Contains(t, page, `type="search" name="number" value=""`, "the next number can be typed at once")
		}
		require.LessOrEqual(t, g.site.read.Load(), int64(18), "two for each audit, the second to learn how 7 was printed")
		for _, other := range []string{"IS202110230001", "PO202110240001", "x"} {
			answer(other, g.get(200, today+"&number="+other))
		}

		// A period that is no longer kept has no account, and neither has one that has not begun. The answer says only that.
		g.find(404, "IS202110230001")
		for _, number := range []string{"IS202110230001", "IS202110250001", "IS202113240001", "IS-20211024-00014", "x"} {
			_, page, _ := strings.Cut(g.find(404, number), "<main>")
			fmt.Fprintf(g, "%s\n", textOf(page))
		}
		g.counter.table = true
		answer("", g.find(200, "IS202110250001"))

		// Without Stored, the answer says only whether the number was issued.
		g.series[0].Stored = nil
		g.forget()
		answer("", g.find(200, "IS202110240002"))
		answer("", g.find(200, "IS202110240012"))
		g.compare("lookup.golden")
	})
}

// A look-up finds numbers that are not in the lists of the account, which end after 1,000. One audit knows all numbers,
// however widely they are spread and however many explanations there are.
func TestLookUpBeyondLists(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := open(t, func(s *site) {
			large(s, 150_000)
			for seq := int64(50); seq <= 150_000; seq += 100 {
				s.register.add(serial.Explanation{First: seq, Reason: fmt.Sprint("reason ", seq), By: "Ada"})
			}
		})
		for number, want := range map[string]string{
			"IS2021102400149999": "was issued and is stored.",
			"IS2021102400150000": "was issued and is missing. It is not explained.",
			"IS2021102400149950": "was issued and is missing. It is explained: reason 149950 (Ada, 24 October 2021, 00:00 UTC).",
			"IS2021102400150001": "has not been issued and is not stored.",
		} {
			require.Equal(t, number+" "+want, fateOf(t, s.find(200, number)))
		}
		require.EqualValues(t, 1, s.read.Load())
	})
}

// With a shared counter, a number of any type is looked up, and the answer says which type has its sequence.
func TestLookUpSharedCounter(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := open(t, func(s *site) {
			s.use(3, schemeOf(t, "{type}{date:yyyyMMdd}{seq:4}", "UTC", serial.WithSharedCounter()))
			s.stored = []string{"IS202110240001", "FA202110240002"}
		})
		for number, want := range map[string]string{
			"IS202110240001": "is stored.", "AV202110240001": "is stored as IS202110240001.", "FA202110240002": "is stored.",
			"IS202110240002": "is stored as FA202110240002.", "X202110240003": "is missing. It is not explained.",
		} {
			require.Equal(t, number+" was issued and "+want, fateOf(t, s.find(200, number)))
		}
		require.Contains(t, s.find(404, "AV202113240001"), "its date is not possible")
	})
}

// The link has the date with which a number is stored, if numbers of a period have many.
func TestLookUpDates(t *testing.T) {
	bubble(t, func(t *testing.T) {
		scheme := schemeOf(t, "{type}{date:yyyyMMdd}-{seq:6}", "UTC", serial.WithPeriod(serial.PerYear))
		s := open(t, func(s *site) {
			s.use(20_000, scheme)
			s.series[0].Stored = func(context.Context, time.Time, time.Time) iter.Seq2[string, error] {
				return func(yield func(string, error) bool) {
					s.read.Add(1)
					for seq := int64(1); seq <= 20_000; seq++ {
						n, err := scheme.Number("IS", serial.On(2021, time.March, int(seq%28)+1), seq)
						if !yield(n.String(), err) {
							return
						}
					}
				}
			}
		})
		for number, stored := range map[string]string{"IS20210105-020000": "IS20210309-020000",
			"IS20210105-000001": "IS20210302-000001", "IS20210105-004097": "IS20210310-004097"} {
			require.Equal(t, number+" was issued and is stored as "+stored+".", fateOf(t, s.find(200, number)))
		}
		require.EqualValues(t, 3, s.read.Load(), "only an audit for the number knows its date")
	})
}

// Several series that can read a number are listed, each once. If none can, the answer says why.
func TestLookUpSeveralSeries(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g := &golden{site: open(t, func(s *site) {
			north, hourly, checked := s.series[0], s.series[0], s.series[0]
			north.Key, north.Name, north.Earlier = "north", "צפון", []*serial.Scheme{s.counter.rules}
			hourly.Key, checked.Key = "hourly", "checked"
			hourly.Source = countOf(t, schemeOf(t, "{type}{date:yyyyMMddHH}{seq:2}", "UTC", serial.WithPeriod(serial.PerHour)),
				"IS", 3, noon)
			checked.Source = countOf(t, schemeOf(t, "{type}-{date:yyyyMMdd}-{seq:4}{check:luhn}", "UTC"), "IS", 3, noon)
			s.series = append(s.series, north, hourly, checked)
		})}
		page := g.show(200, "/numbers/find?number=IS202110241202")
		require.Equal(t, "IS202110241202 was issued and is missing. It is not explained.",
			fateOf(t, g.get(200, linksTo(page, "period")[2])))

		const other, mistyped = " is not a number of these series.", " was mistyped: its check digit does not fit."
		const date = " cannot be a number of these series: its date is not possible."
		for number, why := range map[string]string{
			"IS202113240001": date, "IS202102300001": date, "IS196001010001": date, "IS-20211301-00014": mistyped,
			"PO202110240001": other, "PO202113240001": other, "x": other, "202110240001": other, "IS20211024": other,
			"IS202110240000": other, "is202110240001": other, "IS 202110240001": other, "IS-20211024-00010": mistyped,
			`"><script>`: other,
		} {
			page := html.UnescapeString(g.find(404, number))
			require.Contains(t, page, `<bdi class="number">`+number+`</bdi>`+why)
			require.Contains(t, page, `name="number" value="`+number+`"`, "to correct it")
		}
		g.show(404, "/numbers/find?number=IS-20211024-00010")
		g.compare("several.golden")
		require.Contains(t, g.get(400, "/numbers/find?number=+"), "Enter a number")
		g.series = nil
		require.Contains(t, g.find(404, "IS202110240001"), other)
	})
}
