package serialpage

import (
	"context"
	"iter"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dailyserial/serial"
)

// Text from the application or a person cannot change the direction of the text around it.
func TestTextDirection(t *testing.T) {
	const typ = "א"
	supplied := []string{typ, "שלום\u202e", "הלך לאיבוד", "מרים", "\u202eforeign", "אבד"}
	s := open(t, func(s *site) {
		numbers, err := s.gen.NextN(t.Context(), typ, 3)
		require.NoError(t, err)
		s.stored = []string{numbers[0].String(), numbers[0].String(), supplied[4]}
		e := serial.Explanation{Series: "serial:" + typ, Type: typ, Start: s.start, First: 2, Last: 2, Reason: supplied[2],
			By: supplied[3], At: s.start}
		corrected, possible := e, e
		corrected.Reason, possible.Reason = supplied[5], supplied[5]
		possible.Last, possible.Possible = 3, true
		s.register.all = []serial.Explanation{e, corrected, possible}
		s.series[0].Name, s.series[0].Type = supplied[1], typ
	})
	key := url.QueryEscape(typ)
	twin := s.series[0]
	twin.Key = "twin"
	s.series = append(s.series, twin)
	period := "period?key=" + key + "&start=2021-10-24T00:00:00Z"
	for _, path := range []string{"", "series?key=" + key, period, period + "&number=" + key + "202110240001",
		period + "&number=" + key + "202110240002", "find?number=" + key + "202110240001"} {
		_, body, _ := strings.Cut(s.get(200, "/numbers/"+path, "X-User", "Ada"), "<body>")
		outside := textOf(regexp.MustCompile(`<bdi[^>]*>[^<]*</bdi>`).ReplaceAllString(body, ""))
		for i, text := range supplied {
			require.True(t, i > 1 && !strings.HasPrefix(path, "period") || strings.Contains(body, text), text)
			require.NotContains(t, outside, text)
		}
	}
}

// Text from the application, a document or a person is escaped.
func TestEscaped(t *testing.T) {
	const evil = `"><script>alert(1)</script>`
	s := open(t, func(s *site) {
		s.stored = append(s.stored, evil)
		s.series[0].Name, s.series[0].Key = evil, evil
		require.NoError(t, s.register.Explain(t.Context(), serial.Explanation{Series: "serial:IS", Type: "IS", Start: s.start,
			First: 2, Last: 2, Reason: evil, By: evil, At: s.start}))
	})
	key := url.QueryEscape(evil)
	period := "period?key=" + key + "&start=2021-10-24T00:00:00Z"
	for _, path := range []string{"", "series?key=" + key, period, period + "&number=IS202110240002",
		period + "&number=" + key} {
		text := s.get(200, "/numbers/"+path, "X-User", "Ada")
		require.NotContains(t, text, "<script")
		require.Contains(t, text, "&lt;script&gt;alert(1)&lt;/script&gt;")
	}
}

// Numbers of documents link to these, by the text that is stored: in the answer to a look-up, and in the lists of what
// is wrong. A missing number has no link.
func TestDocumentLinks(t *testing.T) {
	s := open(t, func(s *site) {
		s.stored = []string{"IS202110240001", "IS202110240003 ", "IS/20211024/3", "IS/20211024/5", " IS202110240009"}
		s.series[0].Earlier = []*serial.Scheme{schemeOf(t, "{type}/{date:yyyyMMdd}/{seq:1}", "UTC")}
		s.series[0].Link = func(number string) string { return "../doc?n=<" + number + ">&at=12:00" }
		e := s.explanation(5, 5, serial.CallerLeft, "", s.start)
		e.Unused = true
		s.register.all = []serial.Explanation{e, s.explanation(2, 2, "torn", "Ada", s.start)}
	})
	links := func(page string) (all [][2]string) {
		for _, m := range regexp.MustCompile(`<a href="\.\./doc\?n=%3c([^"]*)%3e&amp;at=12:00"[^>]*>(.*?)</a>`).
			FindAllStringSubmatch(page, -1) {
			all = append(all, [2]string{m[1], textOf(m[2])})
		}
		return all
	}
	page := s.get(200, today, "X-User", "Ada")
	require.Equal(t, [][2]string{{"IS/20211024/3", "IS/20211024/3"}, {"IS202110240009", "IS202110240009"},
		{"IS/20211024/5", "IS/20211024/5"}}, links(page))
	for number, address := range map[string]string{
		"IS202110240001": "IS202110240001", "IS202110240003": "IS202110240003%20", "IS202110240005": "IS/20211024/5",
		"IS202110240009": "%20IS202110240009",
	} {
		answer := strings.SplitN(s.find(200, number), "</section>", 2)[0]
		require.Equal(t, [][2]string{{address, "Open the document"}}, links(answer))
	}
	for _, missing := range []string{"IS202110240002", "IS202110240004", "IS202110240006"} {
		require.NotContains(t, strings.SplitN(s.find(200, missing), "</section>", 2)[0], "doc?n=")
	}
	require.NotContains(t, s.get(200, todayJSON), "doc?n=")
}

// Only relative addresses, and those with http or https, are links.
func TestDocumentAddresses(t *testing.T) {
	for address, want := range map[string]string{
		"": "", "javascript:alert(1)": "", "JavaScript:alert(1)": "", " javascript:alert(1)": "", "java\nscript:alert(1)": "",
		"mailto:a@example.com": "", "data:text/html,x": "", "ftp://example.com": "", "1:2": "",
		"/orders/1": "/orders/1", "../orders/1?at=12:00#a:b": "../orders/1?at=12:00#a:b", "?a=b:c": "?a=b:c",
		"https://example.com/1": "https://example.com/1", "HTTP://example.com/1": "HTTP://example.com/1",
		`/"><script>`: "/%22%3e%3cscript%3e",
	} {
		s := open(t, func(s *site) { s.series[0].Link = func(string) string { return address } })
		page := s.find(200, "IS202110240001")
		require.NotContains(t, page, "ZgotmplZ")
		require.NotContains(t, page, "<script")
		if want == "" {
			require.NotContains(t, page, "Open the document", address)
		} else {
			require.Contains(t, page, `<a href="`+want+`" class="screen">Open the document</a>`, address)
		}
	}
}

// If Link panics, even for one number, the page is as without it.
func TestDocumentLinkPanics(t *testing.T) {
	s := open(t, func(s *site) { s.stored = append(s.stored, "IS202110240003", "IS202110240009") })
	want := s.find(200, "IS202110240001", "X-User", "Ada")
	s.series[0].Link = func(number string) string {
		if number == "IS202110240009" {
			panic("at the application")
		}
		return "/doc"
	}
	sameForm := regexp.MustCompile(`name="at" value="[^"]*"`)
	got := s.find(200, "IS202110240001", "X-User", "Ada")
	require.Equal(t, sameForm.ReplaceAllString(want, ""), sameForm.ReplaceAllString(got, ""))
	require.Equal(t, 1, strings.Count(s.log.String(), "at the application"))
}

// The link has the date with which a number is stored, if numbers of a period have many.
func TestDocumentLinkDates(t *testing.T) {
	s := open(t, func(s *site) {
		scheme := schemeOf(t, "{type}{date:yyyyMMdd}-{seq:6}", "UTC", serial.WithPeriod(serial.PerYear))
		s.series[0].Source = fixed{scheme, 20_000, s.start}
		s.series[0].Link = func(number string) string { return "/doc/" + number }
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
	page := s.find(http.StatusOK, "IS20210105-020000")
	require.Equal(t, "IS20210105-020000 was issued and is stored as IS20210309-020000. Open the document", fateOf(t, page))
	require.Contains(t, page, `<a href="/doc/IS20210309-020000"`)
	require.Contains(t, s.find(http.StatusOK, "IS20210105-000001"), `<a href="/doc/IS20210302-000001"`)
	require.Contains(t, s.find(http.StatusOK, "IS20210105-004097"), `<a href="/doc/IS20210310-004097"`)
	require.EqualValues(t, 3, s.read.Load(), "only an audit for the number knows its date")
}
