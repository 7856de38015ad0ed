package serialpage

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dailyserial/serial"
)

// The pages of Never do not depend on its first instant, which may have no date that a number can print. Whatever the
// zone and the template, they show the account, recognize a hidden sequence, and link to a form that can be sent.
func TestNever(t *testing.T) {
	for _, zone := range []string{"UTC", "America/New_York", "America/Sao_Paulo", "Pacific/Apia", "Pacific/Kiritimati"} {
		location, err := time.LoadLocation(zone)
		require.NoError(t, err)
		for _, row := range []struct {
			template string
			hidden   bool
		}{
			{"{type}{seq:6}", false}, {"{type}{seq:6}", true}, {"{type}{date:yyyyMMdd}{seq:6}", false},
			{"{type}{date:yyMM}{seq:6}", false}, {"{type}{date:yyMM}{seq:6}", true}, {"{type}{date:MM}{seq:6}", false},
			{"{type}{date:BB}{seq:6:base32}", true}, {"{type}{date:BBBB}{seq:6}", false}, {"{type}{date:FF}{seq:6}", false},
		} {
			t.Run(fmt.Sprint(zone, row), func(t *testing.T) {
				opts := []serial.Option{serial.WithPeriod(serial.Never), serial.WithTemplate(row.template),
					serial.WithLocation(location), serial.WithYearStart(time.April, 1)}
				if row.hidden {
					opts = append(opts, hidden)
				}
				var numbers []string
				s := open(t, func(s *site) {
					s.redis.SetTime(time.Date(2021, 12, 5, 12, 0, 0, 0, time.UTC))
					numbers = s.scheme([]int{1, 2, 5}, opts...)
					s.series[0].Link = func(number string) string { return "../orders/" + number }
				})
				period := "/numbers/" + s.periods(s.get(200, "/numbers/series?key=IS"))[0]
				page := s.get(200, period, "X-User", "Ada")
				for _, format := range []string{"period.csv", "period.json"} {
					s.get(200, strings.Replace(period, "period", format, 1))
				}
				found := s.find(200, numbers[0])
				require.Equal(t, numbers[0]+" was issued and is stored. Open the document", fateOf(t, found))
				require.Contains(t, found, `href="../orders/`+numbers[0])
				links, want := s.periods(page), 2
				if row.hidden {
					want = 3
					form := formOf(page)
					require.NotContains(t, form, "last")
					text, _ := s.explain(400, "start", form.Get("start"), "first", numbers[1], "last", numbers[5], "reason", "torn")
					require.Contains(t, text, "Enter one number")
				}
				require.Len(t, links, want)
				for _, link := range links {
					form := formOf(s.get(200, "/numbers/"+link, "X-User", "Ada"))
					_, saved := s.explain(303, "start", form.Get("start"), "first", form.Get("first"), "last", form.Get("last"),
						"reason", "torn")
					require.Contains(t, s.get(200, "/numbers/"+saved, "X-User", "Ada"), "Your explanation is saved")
				}
				require.Contains(t, s.get(200, period), "✓ All numbers are accounted for.")
			})
		}
	}
}
