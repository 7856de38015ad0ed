package serialpage

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dailyserial/serial"
)

// Pages word the reasons of package serial for people, and say once what each means. CSV and JSON keep the constants.
func TestReasonsInWords(t *testing.T) {
	constants := []string{serial.CallerLeft, serial.NotReplicated, serial.BlockBurned, serial.AnswerLost + ": 3 attempts",
		serial.Raised + "; 2 other explanations were dropped before, since too many were waiting", serial.BlockSkipped}
	s := open(t, func(s *site) {
		s.register.all = []serial.Explanation{
			s.explanation(2, 2, serial.CallerLeft, "", s.start), s.explanation(2, 2, serial.NotReplicated, "", s.start),
			s.explanation(2, 2, serial.BlockBurned, "", s.start),
		}
		for i, reason := range constants[3:] {
			e := s.explanation(4, 4, reason, "", s.start.Add(time.Duration(i)*time.Minute))
			e.Possible = true
			s.register.all = append(s.register.all, e)
		}
	})
	page, csv, json := s.get(200, today), s.get(200, todayCSV), s.get(200, todayJSON)
	for i, constant := range constants {
		before, _, _ := strings.Cut(constant, ":")
		before, _, _ = strings.Cut(before, ";")
		require.NotContains(t, page, before)
		require.Contains(t, csv, constant)
		require.Contains(t, json, constant)
		w := worded(&serial.Explanation{Reason: constant})
		require.Equal(t, before, w.constant)
		require.Contains(t, page, "<bdi>"+w.Words+"</bdi>", i)
		require.Equal(t, 1, strings.Count(page, "<dt>"+w.Words+"</dt><dd>"+w.Help+"</dd>"), w.Words)
		require.True(t, strings.HasSuffix(w.Help, "."), "a sentence")
	}

	// A person's reason is unchanged, and so is one that is not known.
	s.register.all = []serial.Explanation{
		s.explanation(2, 2, serial.Raised, "Ada", s.start), s.explanation(4, 4, "raised the flag", "", s.start),
	}
	s.handler().audits.forget(periodKey{"IS", s.start.Unix()})
	page = s.get(200, today)
	require.Contains(t, page, "<bdi>raised</bdi>")
	require.Contains(t, page, "<bdi>raised the flag</bdi>")
	require.NotContains(t, page, "What these reasons mean")
}

// Possible reasons that read the same fill the form with the reason in words, and others do not.
func TestReasonFillsForm(t *testing.T) {
	s := open(t, nil)
	for _, c := range []struct {
		by   [2]string
		all  [2]string
		want string
	}{
		{[2]string{"", ""}, [2]string{serial.AnswerLost + ": 1 attempt", serial.AnswerLost + ": 2 attempts"},
			"request without an answer"},
		{[2]string{"Eve", "Ada"}, [2]string{"unplugged", "unplugged"}, "unplugged"},
		{[2]string{"Eve", ""}, [2]string{serial.Raised, serial.Raised}, ""},
		{[2]string{"", ""}, [2]string{serial.Raised, serial.BlockSkipped}, ""},
	} {
		s.register.all = nil
		for i, reason := range c.all {
			e := s.explanation(4, 9999, reason, c.by[i], s.start)
			e.Possible = true
			s.register.all = append(s.register.all, e)
		}
		s.handler().audits.forget(periodKey{"IS", s.start.Unix()})
		links := s.periods(s.get(200, today, "X-User", "Ada"))
		require.Len(t, links, 2)
		require.Equal(t, c.want, formOf(s.get(200, "/numbers/"+links[1], "X-User", "Ada")).Get("reason"), fmt.Sprint(c))
		require.Empty(t, formOf(s.get(200, "/numbers/"+links[0], "X-User", "Ada")).Get("reason"), "nothing touches 2")
	}
}

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
