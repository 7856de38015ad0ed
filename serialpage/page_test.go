package serialpage

import (
	"net/url"
	"regexp"
	"strings"
	"testing"

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
