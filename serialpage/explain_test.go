package serialpage

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dailyserial/serial"
)

// A logged-in user explains a missing number. If a form has a mistake, it must be shown again with everything that the
// user has typed.
func TestExplain(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g := &golden{site: open(t, nil)}
		fields := formValues(g.get(200, today, "X-User", "Ada"))
		right := []string{"at", fields.Get("at"), "first", "IS202110240002", "reason", " burnt <b>\"paper\"</b> "}
		sent := func(more ...string) []string { return append(append([]string{}, right...), more...) }
		g.explain(403, sent("@Sec-Fetch-Site", "cross-site")...)
		g.explain(403, sent("@Origin", "https://example.org")...)
		g.explain(404, sent("key", "PO")...)
		g.explain(400, sent("start", "x")...)
		g.explain(413, sent("reason", strings.Repeat("x", 70_000))...)
		time.Sleep(time.Second)
		for _, r := range [][2]string{
			{"first", "IS202110240000"}, {"first", "x"}, {"first", ""}, {"last", "x"}, {"first", "IS202110230002"},
			{"first", "PO202110240002"}, {"last", "IS202110240001"}, {"first", "IS202110240001"}, {"first", "IS202110240006"},
			{"reason", " "}, {"reason", strings.Repeat("ä", 251)}, {"reason", "a\x00b"}, {"reason", "a\u202eb"},
			{"reason", "a\xff"}, {"at", ""}, {"at", "x"}, {"at", noon.Add(time.Minute).Format(formTime)},
			{"at", noon.Add(time.Second - time.Hour - time.Nanosecond).Format(formTime)},
		} {
			page, _ := g.explain(400, sent(r[0], r[1])...)
			_, alert, _ := strings.Cut(page, `role="alert">`)
			alert, _, _ = strings.Cut(alert, "</p>")
			fmt.Fprintf(g, "%s=%.40q: %s\n", r[0], r[1], pageText(alert))
			if r[0] != "at" {
				typed := strings.TrimSpace(strings.ReplaceAll(r[1], "\x00", "\ufffd"))
				require.Equal(t, typed, formValues(page).Get(r[0]), "the input is still there")
			}
			require.Equal(t, "2021-10-24T12:00:01Z", formValues(page).Get("at"), "nothing was stored, so the time is new")
		}
		require.Empty(t, g.log.String(), "mistakes of clients are not logged")
		require.Empty(t, g.register.all)

		_, location := g.explain(303, right...)
		require.Equal(t, []serial.Explanation{{Series: "serial:IS", Type: "IS", Start: midnight, First: 2, Last: 2,
			Reason: `burnt <b>"paper"</b>`, By: "Ada", At: noon}}, g.register.all)
		g.show(200, location, "X-User", "Ada")
		require.NotContains(t, g.get(200, location, "X-User", "Eve"), "Your explanation", "another user's")
		require.NotContains(t, g.get(200, today, "X-User", "Ada"), "Your explanation")
		page, _ := g.explain(400, "first", "x", "reason", "torn")
		g.add(400, "/numbers/explain", page, nil)
		g.compare("explain.golden")
	})
}

// Some readers may not explain numbers, because Options.User fails, returns no name, or returns a name that cannot be
// stored. Their pages must show the reason instead of a form. If they send a form nevertheless, the response must
// contain the values of the form, so that no input is lost.
func TestExplainRefused(t *testing.T) {
	s := open(t, func(s *site) {
		user := s.options.User
		s.options.User = func(r *http.Request) (string, error) {
			if r.Header.Get("X-User") == "broken" {
				return "Ada", errors.New("no session")
			}
			return user(r)
		}
		s.counter.table = true
		s.use(5, s.counter.rules)
	})
	for _, row := range []struct{ name, says, logs string }{
		{"", "You may not explain numbers here.", ""},
		{"broken", "Your name could not be read", "no session"},
		{strings.Repeat("x", 102), "Your name cannot be saved with an explanation: 102 bytes; want 0 to 100.", "102 bytes"},
		{"A\tda", `Your name cannot be saved with an explanation: it contains '\t'`, "By: it contains"},
		{"\u200cAda", "want it only between two letters or symbols.", "between two letters"},
		{"Ada\xff", "Your name cannot be saved with an explanation: not valid UTF-8", "not valid UTF-8"},
	} {
		s.log.Reset()
		name := url.PathEscape(row.name)
		page, _ := s.explain(403, "first", "IS202110240002", "last", "IS202110240004", "reason", `burnt "paper"`,
			"@X-User", name)
		require.Contains(t, pageText(page), row.says)
		form := formValues(page)
		require.Equal(t, []string{"IS202110240002", "IS202110240004", `burnt "paper"`},
			[]string{form.Get("first"), form.Get("last"), form.Get("reason")}, "no input is lost")
		require.Contains(t, s.log.String(), row.logs)
		require.Equal(t, row.logs == "", s.log.Len() == 0, s.log.String())

		page = s.get(200, today, "X-User", name)
		require.NotContains(t, page, explaining)
		require.NotContains(t, page, "#explain")
		require.Contains(t, pageText(page), row.says)

		page, _ = s.explain(403, "start", "x", "@X-User", name) // without a period, no form can be shown
		require.Contains(t, pageText(page), row.says)
	}
	require.Empty(t, s.register.all)
	for _, name := range []string{"نمی\u200cخواهم", "क्\u200dष", "👩🏽\u200d🚀", strings.Repeat("x", 100)} {
		s.explain(303, "first", "IS202110240002", "reason", "1\u202f000 क्\u200dष", "@X-User", url.PathEscape(name))
	}
	require.Len(t, s.register.all, 4)

	// If Options.User is nil, no number can be explained.
	s.options.User, s.User = nil, nil
	require.NotContains(t, pageText(s.get(200, today)), "You may not")
	s.explain(403, "first", "IS202110240002", "reason", "torn")
	s.series[0].Stored = nil
	s.explain(403, "first", "IS202110240002", "reason", "torn")
}

// A user goes back in the browser, and sends the same form with another reason or other numbers. The next page must
// show exactly the numbers that the register contains for the form's time and reason. The form on that page must be
// empty.
func TestExplainGoingBack(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := open(t, func(s *site) {
			s.use(20, s.counter.rules)
			s.store(1, 5, 8, 9)
		})
		at := noon.Format(formTime)
		for _, sent := range []struct{ first, last, reason, says string }{
			{"02", "03", "wrong", "02 – IS202110240003."}, {"02", "03", "torn", "02 – IS202110240003."},
			{"04", "07", "torn", "02 – IS202110240003, IS202110240004, IS202110240006 – IS202110240007."}, // 5 is stored
		} {
			_, location := s.explain(303, "at", at, "first", "IS2021102400"+sent.first, "last", "IS2021102400"+sent.last,
				"reason", sent.reason)
			page := s.get(200, location, "X-User", "Ada")
			require.Contains(t, pageText(page), "was saved for these missing numbers: IS2021102400"+sent.says)
			require.Empty(t, formValues(page).Get("first")+formValues(page).Get("last")+formValues(page).Get("reason"))
			for _, forged := range [][2]string{{"reason=" + sent.reason, "reason=none"}, {"saved=2", "saved=1"}} {
				require.NotContains(t, s.get(200, strings.Replace(location, forged[0], forged[1], 1), "X-User", "Ada"),
					"Your explanation")
			}
		}
	})
}

// The form accepts numbers as they are printed. The last digits of a number are not its sequence if there is a check
// digit, an alphabet or a hidden sequence, or if the date follows the sequence. Every unexplained range must have a
// link to the form with its numbers, and every explanation a link for correcting it. If sequences are hidden, numbers
// are explained one by one.
func TestExplainLinks(t *testing.T) {
	for name, c := range map[string]struct {
		template string
		opts     []serial.Option
	}{
		"plain":       {"{type}{date:yyyyMMdd}{seq:4}", nil},
		"check digit": {"{type}{date:yyyyMMdd}{seq:4}{check:luhn}", nil},
		"97-10":       {"{type}{check:97-10}{date:yyyyMMdd}{seq:4}", nil},
		"base32":      {"{type}{date:yyyyMMdd}{seq:4:base32}", nil},
		"hidden":      {"{type}{date:yyyyMMdd}{seq:6}", []serial.Option{hidden}},
		"date last":   {"{type}{seq:4}-{date:yyyyMMdd}", nil},
		"finer date":  {"{type}{date:yyyyMMdd}{seq:4}", []serial.Option{serial.WithPeriod(serial.PerYear)}},
		"blanks":      {" {type}-{date:yyyyMMdd}-{seq:4}\u00a0", nil},
		"never":       {"{type}{date:yyMM}{seq:6}", []serial.Option{serial.WithPeriod(serial.Never)}},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				scheme := newScheme(t, c.template, "UTC", c.opts...)
				s := open(t, func(s *site) {
					s.use(20, scheme)
					s.store(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 13, 14, 15, 17, 18, 19, 20)
				})
				period := linksTo(s.get(200, seriesPage), "period")[0]
				require.NotContains(t, s.get(200, period), "#explain", "no user is logged in")
				number := printed(t, scheme, "IS", noon, 11)
				at, err := url.Parse(period)
				require.NoError(t, err)
				for _, part := range []string{number[len(number)-5:], "11", "0011", number[3:]} {
					s.explain(400, "start", at.Query().Get("start"), "first", part, "reason", "torn")
				}
				explain := func(page string) []string { return linksTo(strings.ReplaceAll(page, "period?key", "other?"), "period") }
				links := explain(s.get(200, period, "X-User", "Ada"))
				require.Len(t, links, map[bool]int{true: 3, false: 2}[name == "hidden"])
				for i, link := range links {
					s.submit(s.get(200, link, "X-User", "Ada"), fmt.Sprint("torn ", i))
				}
				page := s.get(200, period, "X-User", "Ada")
				require.Contains(t, page, "✓ All numbers are accounted for.")
				require.NotContains(t, page, explaining)
				correct := explain(page)
				require.Len(t, correct, len(links))
				page = s.get(200, correct[0], "X-User", "Ada")
				require.Equal(t, "torn 0", formValues(page).Get("reason"))
				s.submit(page, "burnt")
				require.Contains(t, pageText(s.get(200, period)), "burnt Ada")
				if name == "hidden" {
					text, _ := s.explain(400, "first", number, "last", printed(t, scheme, "IS", noon, 12), "reason", "torn")
					require.Contains(t, text, "Enter only one number")
				}
			})
		})
	}
}

// The register fails after it has stored a part of an explanation. Sending the form again must store the rest. No
// explanation may be stored twice, even if a form is sent ten times at once.
func TestExplainTwice(t *testing.T) {
	visit(t, nil, func(t *testing.T, s *site) {
		s.register.before = func(e serial.Explanation) error {
			if e.First == 4 {
				return errors.New("no space")
			}
			return nil
		}
		text, _ := s.explain(503, "first", "IS202110240002", "last", "IS202110240004", "reason", "torn")
		require.Contains(t, text, "Send the form again to save the rest.")
		require.NotContains(t, text, "no space")
		require.Contains(t, s.log.String(), "no space")
		require.Equal(t, []serial.Range{{First: 2, Last: 2}}, s.said())
		s.register.before = nil
		time.Sleep(time.Second)
		s.submit(text, formValues(text).Get("reason"))
		require.Equal(t, []serial.Range{{First: 2, Last: 2}, {First: 4, Last: 4}}, s.said())
		require.Equal(t, 2, s.register.calls, "the first one was not stored again")
		var work sync.WaitGroup
		for range 10 {
			work.Go(func() { s.explain(303, "first", "IS202110240002", "last", "IS202110240004", "reason", "void") })
		}
		work.Wait()
		require.Len(t, s.said(), 4)
	})
}

// An audit reads the explanations before a new one is stored. Afterwards, its report must not be shown.
func TestExplainDuringAudit(t *testing.T) {
	visit(t, nil, func(t *testing.T, s *site) {
		var work sync.WaitGroup
		stored := make(chan struct{})
		s.register.before = func(serial.Explanation) error {
			s.register.before = nil
			s.register.read = func() { <-stored }
			work.Go(func() { require.Contains(t, s.get(200, today), "Not all numbers are accounted for.") })
			synctest.Wait()
			s.register.read = nil
			return nil
		}
		s.explain(303, "first", "IS202110240002", "last", "IS202110240004", "reason", "void")
		close(stored)
		work.Wait()
		require.Contains(t, s.get(200, today), "✓ All numbers are accounted for.")
	})
}

// A form waits for a few seconds until its audit may begin. If that is not enough, it must store nothing, and show the
// reason.
func TestExplainWaits(t *testing.T) {
	visit(t, nil, func(t *testing.T, s *site) {
		stored := s.series[0].Stored
		s.series[0].Stored = func(ctx context.Context, start, end time.Time) iter.Seq2[string, error] {
			return func(yield func(string, error) bool) { <-ctx.Done(); yield("", ctx.Err()) }
		}
		explain := func(status int) { s.explain(status, "first", "IS202110240002", "reason", "torn") }
		began := time.Now()
		go func() {
			s.get(503, today)
			require.Less(t, time.Since(began), s.Limit, "the page must still have time to report the failure")
		}()
		synctest.Wait()
		explain(503)
		require.Equal(t, maxTurnWait, time.Since(began))
		require.Empty(t, s.said())
		s.series[0].Stored = stored
		explain(303) // waits until the audit has reached the limit
		require.Len(t, s.said(), 1)
	})
}
