package serialpage

import (
	"context"
	"database/sql"
	"errors"
	"html"
	"iter"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dailyserial/serial"
	"github.com/dailyserial/serial/gapless"
)

const evil = "אבד\"><script>alert(1)</script>" // HTML, with text that is written from right to left

// The report of a period contains all kinds of findings, and is shown as a page, as CSV and as JSON. Text from the
// application, from documents and from users must be escaped, and must not change the direction of other text.
func TestPeriodPage(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g := &golden{site: open(t, func(s *site) {
			s.use(14, newScheme(t, "{type}{date:yyyyMMdd}{seq:4}", "UTC", serial.WithLast(50)))
			s.series[0].Earlier = []*serial.Scheme{newScheme(t, "{type}/{date:yyyyMMdd}/{seq:1}", "UTC")}
			s.store(1, 3, 3, 99)
			s.stored = append(s.stored, "IS/20211024/5", " IS202110240009", "PO202110240001", "IS202110230001", "IS2O2110240002",
				"IS202110240000", "=1+1")
			s.series[0].Name, s.options.Organisation = "Invoices "+evil, "Ada & Söhne "+evil
			s.series[0].Link = func(number string) string { return "../doc?n=<" + number + ">&at=12:00" }
			s.register.add(
				serial.Explanation{First: 2, Reason: "wrong " + evil, By: "Ada", At: noon}, // Ada's clock was ahead
				serial.Explanation{First: 2, Reason: "torn;=1+1 " + evil, By: "Eve " + evil},
				serial.Explanation{First: 4, Last: 5, Reason: serial.BlockBurned, Unused: true},
				serial.Explanation{First: 6, Reason: serial.CallerLeft, Unused: true},
				serial.Explanation{First: 6, Last: 7, Reason: "first", By: "Ada"},
				serial.Explanation{First: 6, Last: 7, Reason: "second", By: "Ada"},
				serial.Explanation{First: 8, Reason: serial.NotReplicated},
				serial.Explanation{First: 8, Reason: serial.NotReplicated}, // added twice
				serial.Explanation{First: 1, Last: 10, Reason: serial.Raised, Possible: true},
				serial.Explanation{First: 9, Last: 10, Reason: serial.BlockSkipped, Possible: true},
				serial.Explanation{First: 10, Last: 12, Reason: "unplugged", By: "Eve", Possible: true},
				serial.Explanation{First: 10, Last: 9999, Reason: serial.AnswerLost + ": 2 attempts", Possible: true},
				serial.Explanation{First: 6, Reason: "of another day", By: "Ada", Start: midnight.AddDate(0, 0, -1)},
				serial.Explanation{First: 10, Reason: "of another series", By: "Ada", Series: "serial:PO"},
			)
		})}
		page := g.show(200, today, "X-User", "Ada")
		supplied := regexp.MustCompile(`<bdi[^>]*>[^<]*</bdi>|aria-label="[^"]*"|<title>[^<]*</title>`)
		require.NotContains(t, supplied.ReplaceAllString(page, ""), "אבד")
		g.show(200, todayCSV)
		g.show(200, todayJSON)
		g.read(200, today+"&number=IS202110240005", "X-User", "Ada")
		require.EqualValues(t, 2, g.site.read.Load(), "the second time to learn how 5 was printed")
		g.compare("period.golden")
	})
}

// The page of a period depends on the series, the period and the reader.
func TestKindsOfPeriods(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g := &golden{}
		use := func(change func(*site)) { g.site = open(t, change) }
		scheme := func(template string, opts ...serial.Option) *serial.Scheme {
			return newScheme(t, template, "UTC", opts...)
		}

		use(func(s *site) { s.series[0].Stored = nil })
		g.read(200, today, "X-User", "Ada")
		g.read(404, todayCSV)

		// Numbers that hide their sequences must be listed one by one.
		use(func(s *site) {
			s.use(30, scheme("{type}{date:yyyyMMdd}{seq:6}", hidden))
			s.store(1, 5)
			s.register.add(serial.Explanation{First: 6, Last: 8, Reason: "torn", By: "Ada"},
				serial.Explanation{First: 9, Last: 28, Reason: "torn", By: "Eve"})
		})
		g.read(200, today, "X-User", "Ada")
		g.show(200, todayCSV)

		// The date of a missing number is unknown. An audit finds the date of a contradicted number.
		use(func(s *site) {
			s.use(20, scheme("{type}{date:yyyyMMdd}{seq:4}", serial.WithPeriod(serial.PerYear)))
			s.store(1, 2, 3, 4, 5, 8, 8)
			s.register.add(serial.Explanation{First: 3, Reason: serial.CallerLeft, Unused: true,
				Start: time.Date(2021, 1, 1, 0, 0, 0, 0, time.UTC)})
		})
		g.read(200, "/numbers/period?key=IS&start=2021-01-01T00:00:00Z", "X-User", "Ada")

		// A table can report on any period: here, on a closed period, one without numbers, and one that has not begun.
		use(func(s *site) {
			s.counter.table, s.counter.ended = true, midnight.AddDate(0, 0, 1)
			s.store(1, 2, 3, 4, 5)
		})
		g.read(200, today)
		g.read(200, "/numbers/period?key=IS&start=1985-10-26T00:00:00Z")
		g.read(200, "/numbers/period?key=IS&start=2021-10-25T00:00:00Z")

		// The first number is not 1, and was changed after numbers had been issued.
		use(func(s *site) {
			s.use(5, scheme("{type}{date:yyyyMMdd}{seq:4}", serial.WithStart(4), serial.WithUntil(serial.On(2021, 12, 31))))
		})
		g.read(200, today)

		// All types share the counter.
		use(func(s *site) {
			s.use(3, newScheme(t, "{type}{date:yyyyMMdd}{seq:4}", "Asia/Kathmandu", serial.WithSharedCounter()))
			s.stored = []string{"IS202110240001", "FA202110240003"}
		})
		g.read(200, "/numbers/period?key=IS&start=2021-10-23T18:15:00Z")
		g.compare("periods.golden")
	})
}

var hidden = serial.WithHiddenSequence([]byte("0123456789abcdef"))

// The page of all series is shown before and after an audit.
func TestOverview(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g := &golden{site: open(t, func(s *site) {
			add := func(key string, seq int64, zone string, opts ...serial.Option) *counter {
				scheme := newScheme(t, "{type}{date:yyyyMMdd}-{seq:4}", zone, opts...)
				c := newCounter(t, scheme, "T", seq, noon, noon.AddDate(0, 0, -2))
				s.series = append(s.series, Series{Key: key, Type: "T", Name: key + evil, Source: c})
				return c
			}
			add("until", 39, "UTC", serial.WithLast(50), serial.WithUntil(serial.On(2021, time.November, 23)))
			add("nearly over", 40, "Asia/Tokyo", serial.WithLast(50), serial.WithUntil(serial.On(2021, time.November, 22)))
			add("over", 50, "UTC", serial.WithLast(50), serial.WithUntil(serial.On(2021, time.October, 23)))
			add("away", 1, "UTC").fails = errors.New("LOADING")
			add("lost", 1, "UTC").fails = serial.ErrCounterLost
			add("none", 1, "UTC").all = nil
		})}
		g.show(200, "/numbers/")
		require.Contains(t, g.log.String(), "LOADING")
		g.get(200, today)
		g.read(200, "/numbers/")
		g.series = nil
		g.read(200, "/numbers/")
		g.compare("overview.golden")
	})
}

// The page of a series, and its list of periods as CSV and JSON, are shown before a check of all periods, after it, and
// after further numbers were issued and explained.
func TestSeriesPage(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g := &golden{site: open(t, keep)}
		g.series[0].Name, g.handler.Organisation = "Invoices "+evil, "Ada & Söhne"
		g.counter.table, g.counter.ended = true, midnight.AddDate(0, 0, -1)
		g.show(200, seriesPage, "X-User", "Ada")
		g.show(200, "/numbers/series.csv?key=IS")
		g.show(200, "/numbers/series.json?key=IS")

		// The first document is deleted, and texts are stored that are no numbers or belong to a period without a counter.
		g.stored = append(g.stored[1:], "IS2O2110240003", evil, "IS202110230001", "IS202110230002")
		g.check("IS")
		require.EqualValues(t, 1, g.site.read.Load())
		g.show(200, seriesPage, "X-User", "Ada")
		g.show(200, "/numbers/series.csv?key=IS")
		g.show(200, "/numbers/series.json?key=IS")
		g.read(200, seriesPage+"&show=discrepancies&from=2021-10-20&to=2021-10-31")
		g.read(200, "/numbers/")

		time.Sleep(time.Millisecond) // otherwise the explanation may have the time of the check
		g.counter.all[0].Seq = 4
		g.audits.explained(periodKey{"IS", midnight.AddDate(0, 0, -2).Unix()})
		g.read(200, seriesPage)
		g.read(200, "/numbers/")
		g.show(200, "/numbers/series.csv?key=IS")
		g.show(200, "/numbers/series.json?key=IS")
		time.Sleep(resultAge)
		g.read(200, seriesPage)
		g.compare("series.golden")
	})
}

// keep makes the site one with three invoices on 22 October and three on 24 October.
func keep(s *site) {
	s.stored = nil
	for _, at := range []time.Time{noon.AddDate(0, 0, -2), noon} {
		for seq := int64(1); seq <= 3; seq++ {
			s.stored = append(s.stored, printed(s.t, s.counter.rules, "IS", at, seq))
		}
	}
	s.counter.all = newCounter(s.t, s.counter.rules, "IS", 3, noon, noon.AddDate(0, 0, -2)).all
}

// Every response must have the right status. Only a GET request for the page of a period may cause an audit.
func TestRequests(t *testing.T) {
	visit(t, nil, func(t *testing.T, s *site) {
		for _, r := range []struct {
			method, path string
			status       int
		}{
			{"GET", "/numbers/", 200}, {"HEAD", "/numbers/", 200}, {"GET", "/numbers", 308}, {"POST", "/numbers/", 405},
			{"GET", "/numbers/series?key=PO", 404}, {"GET", "/numbers/series", 404}, {"HEAD", seriesPage, 200},
			{"HEAD", "/numbers/series?key=PO", 404}, {"GET", "/numbers/period?key=IS", 400},
			{"GET", "/numbers/period?key=IS&start=x", 400}, {"GET", "/numbers/period?key=IS&start=1969-01-01T00:00:00Z", 400},
			{"HEAD", today, 200}, {"HEAD", todayCSV, 200}, {"GET", "/numbers/period?key=IS&start=2021-10-23T00:00:00Z", 404},
			{"GET", "/numbers/style.css", 200}, {"GET", "/numbers/icon.svg", 200}, {"GET", "/numbers/nothing", 404},
			{"GET", "/numbers/%2e%2e/x", 404}, {"GET", "/numbersx", 500}, {"GET", "/", 500}, {"GET", "/numbers/explain", 405},
			{"DELETE", today, 405}, {"POST", "/numbers/explain", 403}, {"GET", "/numbers/check", 405},
			{"HEAD", "/numbers/find?number=IS202110240001", 303}, {"GET", "/numbers/find", 400},
		} {
			response, text := s.send(r.method, r.path, "")
			require.Equal(t, r.status, response.StatusCode, "%s %s: %s", r.method, r.path, text)
			require.Equal(t, r.status == 405, response.Header.Get("Allow") != "", r.path)
			if !strings.HasSuffix(r.path, ".svg") { // an SVG contains the address of its namespace
				require.NotContains(t, text, "://")
			}
		}
		require.Zero(t, s.read.Load())
		require.Contains(t, s.get(500, "/"), "http.StripPrefix")
		for path, want := range map[string]string{todayCSV: "text/csv; charset=utf-8; header=present",
			todayJSON: "application/json", today: "text/html; charset=utf-8",
			"/numbers/series.csv?key=IS": contentTypes["csv"]} {
			for _, method := range []string{"GET", "HEAD"} {
				response, _ := s.send(method, path, "")
				require.Equal(t, want, response.Header.Get("Content-Type"))
			}
		}
		require.EqualValues(t, 1, s.read.Load())
	})
}

// Wherever the handler is mounted, the addresses in its pages must lead to its pages, including those in error pages.
func TestAddresses(t *testing.T) {
	for _, prefix := range []string{"", "/numbers", "/a/b:c d"} {
		s := open(t, func(s *site) { s.options.Prefix = prefix })
		escaped := strings.ReplaceAll(prefix, " ", "%20")
		for path, status := range map[string]int{
			"/": 200, "/series?key=IS": 200, "/find?number=x": 404, "/find": 400, "/nothing": 404, "/no/such/page": 404,
			"/no%2Fpage": 404, "/series?key=x": 404, "/explain": 405, "/period?key=IS&start=1": 400,
		} {
			page := s.get(status, escaped+path)
			at, err := url.Parse(escaped + path)
			require.NoError(t, err)
			for want, pattern := range map[string]string{"/find": `class="find" role="search" action="([^"]*)"`,
				"/style.css": `rel="stylesheet" href="([^"?]*)`} {
				found := regexp.MustCompile(pattern).FindStringSubmatch(page)
				require.NotEmpty(t, found, path)
				target, err := at.Parse(html.UnescapeString(found[1]))
				require.NoError(t, err)
				require.Equal(t, escaped+want, target.EscapedPath(), path)
			}
		}
		if prefix == "" {
			continue
		}
		response, _ := s.send("GET", escaped+"?x=1", "")
		require.Equal(t, "./"+escaped[strings.LastIndexByte(escaped, '/')+1:]+"/?x=1", response.Header.Get("Location"))
		response, page := s.send("POST", escaped, "")
		require.Equal(t, 405, response.StatusCode)
		require.Contains(t, page, `action="./`+escaped[strings.LastIndexByte(escaped, '/')+1:]+`/find"`)
	}
}

// Types and keys that look like paths must not change the path of a page.
func TestTypesLikePaths(t *testing.T) {
	types := []string{"..", ".", "A/B", "../../x", "/", "Z-9_."}
	s := open(t, func(s *site) {
		s.series = nil
		for _, typ := range types {
			s.series = append(s.series, Series{Type: typ, Source: newCounter(t, s.counter.rules, typ, 1, noon), Stored: s.yield})
		}
	})
	series := linksTo(s.get(200, "/numbers/"), "series")
	require.Len(t, series, len(types))
	for i, address := range series {
		page := s.get(200, address)
		require.Contains(t, page, "<h1><bdi>"+types[i]+"</bdi></h1>")
		require.Len(t, linksTo(page, "period"), 1)
		require.Contains(t, s.get(200, linksTo(page, "period")[0]), `<td role="cell" class="right">1</td>`)
	}
}

// Only relative addresses, and addresses with http or https, may become links to documents.
func TestDocumentAddresses(t *testing.T) {
	bubble(t, func(t *testing.T) {
		for address, want := range map[string]string{
			"": "", "javascript:alert(1)": "", " javascript:alert(1)": "", "java\nscript:alert(1)": "",
			"JavaScript:alert(1)": "", "mailto:a@example.com": "", "data:text/html,x": "", "1:2": "", "/orders/1": "/orders/1",
			"../orders/1?at=12:00#a:b": "../orders/1?at=12:00#a:b", "https://example.com/1": "https://example.com/1",
			"HTTP://example.com/1": "HTTP://example.com/1", `/"><script>`: "/%22%3e%3cscript%3e",
		} {
			s := open(t, func(s *site) { s.series[0].Link = func(string) string { return address } })
			found := regexp.MustCompile(`<a href="([^"]*)" class="screen">Open the document</a>`).
				FindStringSubmatch(s.find(200, "IS202110240001"))
			require.Equal(t, want, strings.Join(found[min(len(found), 1):], ""), address)
		}
	})
}

// If Link panics, even for a single number, the page must look as if there were no Link.
func TestDocumentLinkPanics(t *testing.T) {
	visit(t, func(s *site) { s.store(1, 3, 3, 9) }, func(t *testing.T, s *site) {
		want := s.find(200, "IS202110240001", "X-User", "Ada")
		s.series[0].Link = func(number string) string {
			if number == "IS202110240009" {
				panic("at the application")
			}
			return "/doc"
		}
		require.Equal(t, want, s.find(200, "IS202110240001", "X-User", "Ada"))
		require.Equal(t, 1, strings.Count(s.log.String(), "at the application"))
	})
}

// NewHandler must reject invalid options, and the pages must report invalid series.
func TestInvalidOptions(t *testing.T) {
	some := func(context.Context) ([]Series, error) { return nil, nil }
	for says, o := range map[string]Options{
		"Series is nil":        {},
		"Prefix":               {Series: some, Prefix: "numbers"},
		`"/a//b"`:              {Series: some, Prefix: "/a//b"},
		`"/a?b"`:               {Series: some, Prefix: "/a?b"},
		"TrustedOrigins":       {Series: some, TrustedOrigins: []string{"example.com"}},
		"Limit -1s":            {Series: some, Limit: -time.Second},
		"Limit 2h0m0s":         {Series: some, Limit: 2 * time.Hour},
		"CheckLimit 24h0m0.1s": {Series: some, CheckLimit: 24*time.Hour + 100*time.Millisecond},
	} {
		_, err := NewHandler(o)
		require.ErrorContains(t, err, says)
	}
	for _, prefix := range []string{"", "/", "/a", "/a/", "/a/b"} {
		_, err := NewHandler(Options{Series: some, Prefix: prefix})
		require.NoError(t, err, prefix)
	}
	s := open(t, nil)
	right := s.series[0]
	earlier := func(scheme *serial.Scheme) []Series {
		other := right
		other.Earlier = []*serial.Scheme{scheme}
		return []Series{other}
	}
	require.Nil(t, Table(nil, new(gapless.Generator)))
	require.Nil(t, Table((*sql.DB)(nil), new(gapless.Generator)))
	require.Nil(t, Table(new(sql.DB), nil))
	for says, wrong := range map[string][]Series{
		"Source is nil": {{Type: "IS", Source: Redis(nil)}}, "another series has": {right, right},
		"256 bytes":                    {{Key: strings.Repeat("x", 256), Type: "IS", Source: right.Source}},
		"invalid":                      {{Type: "a b", Source: right.Source}},
		"WithEarlier: scheme 1 is nil": earlier(nil),
		`the key prefix \"shop\"`: earlier(newScheme(t, "{type}{date:yyyyMMdd}{seq}", "UTC",
			serial.WithKeyPrefix("shop"))),
		`the calendar \"months\"`: earlier(newScheme(t, "{type}{date:yyyyMM}{seq}", "UTC",
			serial.WithPeriod(serial.PerMonth))),
	} {
		s.series = wrong
		for _, page := range []string{today, "/numbers/", seriesPage} {
			require.Contains(t, s.get(500, page), "These pages are not configured correctly.")
		}
		require.Contains(t, s.log.String(), says)
	}
}

// No cell of a CSV may begin with a formula, whatever character separates cells in a spreadsheet.
func TestQuoted(t *testing.T) {
	for cell, want := range map[string]string{"=1+1": "'=1+1", "@x": "'@x", "x;=1+1": "x;'=1+1", "x\t-1": "x\t'-1",
		"\t\t+1": "'\t'\t'+1", "a,@b;\r": "a,'@b;'\r", `"=1"`: `""=1""`, "a=1;b": "a=1;b", "a\xff": "a\ufffd"} {
		require.Equal(t, `"`+want+`"`, quoted(cell))
	}
}

// Lists end after 1,000 entries, but must show the count of all numbers. A CSV must have a row with the count of the
// numbers that it does not list. A form can explain up to 1,000 ranges, anywhere in the period. If there are more, it
// must explain none. The lists of explanations and of replaced explanations end, too.
func TestCutLists(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const many = 100_000
		s := open(t, func(s *site) { large(s, many) })
		page := s.get(200, today)
		require.Contains(t, page, "only the first 1\u202f000 are listed")
		require.Less(t, len(page), 200_000)
		require.Less(t, len(s.get(200, todayJSON)), 200_000)
		response, table := s.send("GET", todayCSV, "")
		require.Equal(t, `attachment; filename="numbers-IS-20211024.csv"`, response.Header.Get("Content-Disposition"))
		lines := parseCSV(t, table)
		require.Contains(t, lines, []string{"not explained", "", "", "1000", "others, not listed here", "", "", ""})
		require.EqualValues(t, 1, s.read.Load())

		page, _ = s.explain(400, "first", "IS2021102400049951", "last", "IS2021102400100000", "reason", "torn")
		require.Contains(t, page, "more than 1\u202f000 groups")
		require.Empty(t, s.register.all)
		s.explain(303, "first", "IS2021102400050001", "last", "IS2021102400100000", "reason", "torn")
		require.Len(t, s.register.all, 1000)
		require.EqualValues(t, 50_050, s.register.all[0].First)

		const cut = "There may be more replaced explanations than those listed."
		s.register.add(serial.Explanation{First: 99_000, Last: many, Reason: "old", By: "Ada"},
			serial.Explanation{First: 1, Last: many, Reason: "new", By: "Ada"})
		s.forget()
		page = s.get(200, today)
		require.Contains(t, page, "Only the first 1\u202f000 are listed.")
		require.Contains(t, page, cut)

		first := s.series[0]
		for i := range 1001 {
			first.Key = strings.Repeat("x", i/100) + string(rune('a'+i%100))
			s.series = append(s.series, first)
		}
		page = s.get(200, "/numbers/")
		require.Equal(t, 1000, strings.Count(page, `<th role="rowheader"`))
		require.Contains(t, page, "1\u202f002 series")
		require.Contains(t, page, "Only the first 1\u202f000 are shown.")
	})
}

// large makes the first series issue many numbers, of which every fiftieth is missing.
func large(s *site, many int64) {
	s.use(many, newScheme(s.t, "{type}{date:yyyyMMdd}{seq:8}", "UTC"))
	s.options.Limit = time.Hour
	s.series[0].Stored = func(ctx context.Context, _, _ time.Time) iter.Seq2[string, error] {
		s.read.Add(1)
		return func(yield func(string, error) bool) {
			number := []byte("IS2021102400000000")
			for seq := int64(1); seq <= many; seq++ {
				for i := len(number) - 1; ; i-- { // increment the number
					if number[i]++; number[i] <= '9' {
						break
					}
					number[i] = '0'
				}
				if seq%50 != 0 && !yield(string(number), ctx.Err()) {
					return
				}
			}
		}
	}
}
