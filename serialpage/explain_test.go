package serialpage

import (
	"context"
	"errors"
	"html"
	"iter"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/dailyserial/serial"
)

// now is the time of a new form.
func now() string { return time.Now().UTC().Format(time.RFC3339Nano) }

// explain sends the form for today's invoices as Ada, with these names and values. A name such as "@X" denotes a
// header. It returns the answer, and the address to which the answer redirects.
func (s *site) explain(status int, values ...string) (page, location string) {
	s.t.Helper()
	fields := url.Values{"key": {"IS"}, "start": {"2021-10-24T00:00:00Z"}, "at": {now()}}
	headers := []string{"X-User", "Ada"}
	for i := 0; i < len(values); i += 2 {
		if header, ok := strings.CutPrefix(values[i], "@"); ok {
			headers = append(headers, header, values[i+1])
		} else {
			fields.Set(values[i], values[i+1])
		}
	}
	response, text := s.send("POST", "/numbers/explain", fields.Encode(), headers...)
	require.Equal(s.t, status, response.StatusCode, text)
	location, _, _ = strings.Cut(response.Header.Get("Location"), "#")
	return text, location
}

// said returns the ranges of the stored explanations.
func (s *site) said() (all []serial.Range) {
	s.register.mu.Lock()
	defer s.register.mu.Unlock()
	for _, e := range s.register.all {
		all = append(all, serial.Range{First: e.First, Last: e.Last})
	}
	return all
}

// explaining is how the form that explains numbers begins.
const explaining = `<form method="post"`

// formOf returns the values of the form that explains numbers.
func formOf(page string) url.Values {
	fields := url.Values{}
	_, page, _ = strings.Cut(page, explaining)
	for _, m := range regexp.MustCompile(`<input[^>]* name="(\w+)"[^>]* value="([^"]*)"`).FindAllStringSubmatch(page, -1) {
		fields.Set(m[1], html.UnescapeString(m[2]))
	}
	return fields
}

// textOf returns the text of a page, without tags.
func textOf(page string) string {
	text := regexp.MustCompile(`<[^>]*>`).ReplaceAllString(page, "")
	return strings.Join(strings.Fields(html.UnescapeString(text)), " ")
}

// A logged-in user can explain missing numbers.
func TestExplain(t *testing.T) {
	s := open(t, nil)
	fields := formOf(s.get(200, today, "X-User", "Ada"))
	require.ElementsMatch(t, []string{"key", "start", "at", "first", "last", "reason"}, keys(fields))
	at, err := time.Parse(time.RFC3339Nano, fields.Get("at"))
	require.NoError(t, err)
	right := []string{"at", fields.Get("at"), "first", "IS202110240002", "reason", " burnt <b>\"paper\"</b> "}
	sent := func(more ...string) []string { return append(append([]string{}, right...), more...) }
	s.explain(403, sent("@X-User", "")...)
	require.Empty(t, s.log.String(), "clients' mistakes are not logged")
	s.explain(403, sent("@Sec-Fetch-Site", "cross-site")...)
	s.explain(403, sent("@Origin", "https://example.com")...)
	s.explain(404, sent("key", "PO")...)
	s.explain(400, sent("start", "x")...)
	s.explain(413, sent("reason", strings.Repeat("x", 70_000))...)
	for _, r := range [][3]string{
		{"first", "IS202110240000", "Enter numbers of this series, whole"}, {"first", "x", "whole"}, {"first", "", "whole"},
		{"last", "x", "whole"}, {"first", "IS202110230002", "this series and period"},
		{"first", "PO202110240002", "this series and period"}, {"last", "IS202110240001", "the lower number first"},
		{"first", "IS202110240001", "None of these numbers is missing"},
		{"first", "IS202110240006", "None of these numbers is missing"},
		{"reason", " ", "Enter a reason."}, {"reason", strings.Repeat("ä", 251), "shorter reason: this one has 502 bytes"},
		{"reason", "a\x00b", `'\x00'`}, {"reason", "a\u202eb", `'\u202e'`}, {"reason", "a\xff", "UTF-8"},
	} {
		text, _ := s.explain(400, sent(r[0], r[1])...)
		require.Contains(t, text, `role="alert"`)
		require.Contains(t, html.UnescapeString(text), r[2])
		typed := strings.TrimSpace(strings.ReplaceAll(r[1], "\x00", "\ufffd"))
		require.Equal(t, typed, formOf(text).Get(r[0]), "the input is still there")
		later, err := time.Parse(time.RFC3339Nano, formOf(text).Get("at"))
		require.NoError(t, err)
		require.False(t, later.Before(at), "nothing was stored, so it is a new form")
	}
	require.Empty(t, s.register.all)

	_, location := s.explain(303, right...)
	require.Equal(t, []serial.Explanation{{Series: "serial:IS", Type: "IS", Start: s.start, First: 2, Last: 2,
		Reason: `burnt <b>"paper"</b>`, By: "Ada", At: at}}, s.register.all)
	page := s.get(200, "/numbers/"+location, "X-User", "Ada")
	require.Contains(t, textOf(page), "Your explanation is saved for 1 number: IS202110240002. ✗")
	require.Contains(t, page, "burnt &lt;b&gt;&#34;paper&#34;&lt;/b&gt;")
	require.NotContains(t, s.get(200, "/numbers/"+location), "Your explanation", "somebody else's")
	require.NotContains(t, s.get(200, today, "X-User", "Ada"), "Your explanation")
}

// Some readers may not explain numbers: Options.User fails, returns no name, or one that cannot be stored. Then a page
// has no form and says why, and a form that is sent anyway is answered with its values, so that nothing is lost.
func TestExplainRefused(t *testing.T) {
	s := open(t, func(s *site) {
		user := s.options.User
		s.options.User = func(r *http.Request) (string, error) {
			if r.Header.Get("X-User") == "broken" {
				return "Ada", errors.New("no session")
			}
			name, err := url.PathUnescape(r.Header.Get("X-User"))
			require.NoError(t, err)
			r.Header.Set("X-User", name)
			return user(r)
		}
	})
	for _, row := range []struct{ name, says, logs string }{
		{"", "You may not explain numbers here.", ""},
		{"broken", "Your name could not be read", "no session"},
		{strings.Repeat("x", 102), "Your name has 102 bytes", "102 bytes; want 0 to 100"},
		{"A\tda", "Your name contains characters that cannot be saved", "By: it has"},
		{"\u200cAda", "Your name contains characters that cannot be saved", "between two letters"},
		{"Ada\xff", "Your name contains characters that cannot be saved", "not valid UTF-8"},
	} {
		s.log.Reset()
		name := url.PathEscape(row.name)
		page := s.get(200, today, "X-User", name)
		require.NotContains(t, page, explaining)
		require.NotContains(t, page, "#explain")
		require.Contains(t, textOf(page), row.says)
		page, _ = s.explain(403, "first", "IS202110240002", "last", "IS202110240004", "reason", `burnt "paper"`,
			"@X-User", name)
		require.Contains(t, textOf(page), row.says)
		form := formOf(page)
		require.Equal(t, []string{"IS202110240002", "IS202110240004", `burnt "paper"`},
			[]string{form.Get("first"), form.Get("last"), form.Get("reason")}, "no input is lost")
		require.Contains(t, s.log.String(), row.logs)
		require.Equal(t, row.logs == "", s.log.Len() == 0, s.log.String())

		// Without a period, there is no form to show.
		page, _ = s.explain(403, "start", "x", "@X-User", name)
		require.Contains(t, textOf(page), row.says)
	}
	require.Empty(t, s.register.all)
	for _, name := range []string{"نمی\u200cخواهم", "क्\u200dष", "👩🏽\u200d🚀", strings.Repeat("x", 100)} {
		s.explain(303, "first", "IS202110240002", "reason", "क्\u200dष", "@X-User", url.PathEscape(name))
	}
	require.Len(t, s.register.all, 4)

	// If nobody may explain anything, the page only reads.
	s = open(t, func(s *site) { s.options.User = nil })
	require.NotContains(t, textOf(s.get(200, today)), "You may not")
	s.explain(403, "first", "IS202110240002", "reason", "torn")
}

func keys(values url.Values) (all []string) {
	for k := range values {
		all = append(all, k)
	}
	return all
}

// A user goes back in the browser and sends the same form with another reason or other numbers. The next page shows
// what that form stored, counts each number once, and claims nothing that is not in the register. Its own form is
// empty.
func TestExplainGoingBack(t *testing.T) {
	s := open(t, func(s *site) { s.scheme([]int{1, 2, 3, 5}) })
	at := now()
	number := func(seq string) string { return "IS2021102400" + seq }
	for _, sent := range []struct{ first, last, reason, says string }{
		{"02", "03", "wrong", "saved for 2 numbers: " + number("02") + " – " + number("03") + ". ✗"},
		{"02", "03", "torn", "saved for 2 numbers: " + number("02") + " – " + number("03") + ". ✗"},
		{"06", "", "torn", "saved for 1 number: " + number("06") + ". ✗"},
		{"01", "05", "torn", "saved for 3 numbers: " + number("02") + " – " + number("03") + ", " + number("04") +
			". 2 other numbers were not missing"},
		{"02", "06", "wrong", "saved for 4 numbers: " + number("02") + " – " + number("03") + ", " + number("04") + ", " +
			number("06") + ". 1 other number was not missing, so nothing was saved for it."},
	} {
		last := sent.last
		if last != "" {
			last = number(last)
		}
		_, location := s.explain(303, "at", at, "first", number(sent.first), "last", last, "reason", sent.reason)
		page := s.get(200, "/numbers/"+location, "X-User", "Ada")
		require.Contains(t, textOf(page), "Your explanation is "+sent.says)
		require.Empty(t, formOf(page).Get("first")+formOf(page).Get("last")+formOf(page).Get("reason"))
		for _, forged := range [][2]string{{"reason=" + sent.reason, "reason=other"}, {"saved=2", "saved=1"},
			{"first=", "first=x"}} {
			require.NotContains(t, s.get(200, "/numbers/"+strings.Replace(location, forged[0], forged[1], 1), "X-User", "Ada"),
				"Your explanation")
		}
	}
}

// Only the numbers missing at that moment are explained, and the page lists them. If a stored number is deleted later,
// it is unexplained.
func TestExplainMissingOnly(t *testing.T) {
	s := open(t, nil)
	_, location := s.explain(303, "first", "IS202110240001", "last", "IS202110240009", "reason", "torn")
	require.Equal(t, []serial.Range{{First: 2, Last: 2}, {First: 4, Last: 4}}, s.said())
	text := textOf(s.get(200, "/numbers/"+location, "X-User", "Ada"))
	require.Contains(t, text, "Your explanation is saved for 2 numbers: IS202110240002, IS202110240004. "+
		"7 other numbers were not missing, so nothing was saved for them. ✓ All numbers are accounted for.")

	s.mu.Lock()
	s.stored = s.stored[1:]
	s.mu.Unlock()
	s.handler().audits.forget(periodKey{"IS", s.start.Unix()})
	text = textOf(s.get(200, today))
	require.Contains(t, text, "✗ Not all numbers are accounted for.")
	require.Contains(t, text, "not explained1 IS202110240001")
}

// scheme gives the site a series of twenty numbers, some of which, given by index, are not stored.
func (s *site) scheme(missing []int, opts ...serial.Option) (numbers []string) {
	rdb := redis.NewClient(&redis.Options{Addr: s.redis.Addr()})
	s.t.Cleanup(func() { _ = rdb.Close() })
	gen, err := serial.New(rdb, append([]serial.Option{serial.WithLocation(time.UTC), serial.WithMaxSkew(-1),
		serial.WithKeyPrefix("other")}, opts...)...)
	require.NoError(s.t, err)
	all, err := gen.NextN(s.t.Context(), "IS", 20)
	require.NoError(s.t, err)
	s.stored = nil
	gone := map[int]bool{}
	for _, i := range missing {
		gone[i] = true
	}
	for i, n := range all {
		numbers = append(numbers, n.String())
		if !gone[i] {
			s.stored = append(s.stored, n.String())
		}
	}
	s.series[0].Source = Redis(gen)
	return numbers
}

var hidden = serial.WithHiddenSequence([]byte("0123456789abcdef"))

// The form takes numbers as they are printed. Their last digits are not the sequence if there is a check digit, an
// alphabet, a hidden sequence or a date after it.
func TestExplainWholeNumbers(t *testing.T) {
	for name, opts := range map[string][]serial.Option{
		"plain":       nil,
		"check digit": {serial.WithTemplate("{type}{date:yyyyMMdd}{seq:4}{check:luhn}")},
		"97-10":       {serial.WithTemplate("{type}{check:97-10}{date:yyyyMMdd}{seq:4}")},
		"base32":      {serial.WithTemplate("{type}{date:yyyyMMdd}{seq:4:base32}")},
		"hidden":      {serial.WithTemplate("{type}{date:yyyyMMdd}{seq:6}"), hidden},
		"date last":   {serial.WithTemplate("{type}{seq:4}-{date:yyyyMMdd}")},
		"finer date":  {serial.WithPeriod(serial.PerYear), serial.WithTemplate("{type}{date:yyyyMMdd}{seq:4}")},
	} {
		t.Run(name, func(t *testing.T) {
			var numbers []string
			s := open(t, func(s *site) { numbers = s.scheme([]int{10}, opts...) })
			start := "2021-10-24T00:00:00Z"
			if name == "finer date" {
				start = "2021-01-01T00:00:00Z"
			}
			digits := numbers[10][len(numbers[10])-5:]
			for _, part := range []string{digits, digits[1:], "11", "0011", numbers[10][1:]} {
				s.explain(400, "start", start, "first", part, "reason", "torn")
			}
			require.Empty(t, s.register.all)
			_, location := s.explain(303, "start", start, "first", " "+numbers[10]+"\u00a0", "reason", "torn")
			require.Equal(t, []serial.Range{{First: 11, Last: 11}}, s.said())
			require.Contains(t, s.get(200, "/numbers/"+location), "✓ All numbers are accounted for.")
		})
	}
	s := open(t, func(s *site) { s.scheme([]int{10}, serial.WithTemplate("{type}{date:yyyyMMdd}{seq:4}{check:luhn}")) })
	text, _ := s.explain(400, "first", "IS2021102400119", "reason", "torn")
	require.Contains(t, text, "its check digit does not fit")
}

// Every unexplained range has a link to the form with its numbers, which can be sent with a reason. If sequences are
// hidden, numbers are explained one by one.
func TestExplainLink(t *testing.T) {
	for name, c := range map[string]struct {
		opts  []serial.Option
		links int
	}{
		"plain":  {nil, 2},
		"hidden": {[]serial.Option{serial.WithTemplate("{type}{date:yyyyMMdd}{seq:6}"), hidden}, 3},
		"finer date": {[]serial.Option{serial.WithPeriod(serial.PerYear),
			serial.WithTemplate("{type}{date:yyyyMMdd}{seq:4}")}, 2},
		"blanks": {[]serial.Option{serial.WithTemplate(" {type}-{date:yyyyMMdd}-{seq:4}\u00a0")}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			var numbers []string
			s := open(t, func(s *site) { numbers = s.scheme([]int{10, 11, 15}, c.opts...) })
			page := "/numbers/" + s.periods(s.get(200, "/numbers/series?key=IS"))[0]
			require.NotContains(t, s.get(200, page), "#explain", "nobody is logged in")
			links := s.periods(s.get(200, page, "X-User", "Ada"))
			require.Len(t, links, c.links)
			for _, link := range links {
				form := formOf(s.get(200, "/numbers/"+link, "X-User", "Ada"))
				form.Set("reason", "torn")
				if name == "hidden" {
					require.NotContains(t, form, "last", "a range")
				}
				response, text := s.send("POST", "/numbers/explain", form.Encode(), "X-User", "Ada")
				require.Equal(t, 303, response.StatusCode, text)
			}
			require.Contains(t, s.get(200, page), "✓ All numbers are accounted for.")
			if name == "hidden" {
				text, _ := s.explain(400, "first", numbers[10], "last", numbers[11], "reason", "torn")
				require.Contains(t, text, "Enter one number")
			}
		})
	}
}

// periods returns the addresses of the periods to which a page links.
func (s *site) periods(page string) (all []string) {
	for _, m := range regexp.MustCompile(`href="(period\?[^"]*)"`).FindAllStringSubmatch(page, -1) {
		address, _, _ := strings.Cut(html.UnescapeString(m[1]), "#")
		all = append(all, address)
	}
	return all
}

// A form that is sent twice stores one explanation. The form must be less than an hour old.
func TestExplainTime(t *testing.T) {
	s := open(t, nil)
	right := []string{"at", now(), "first", "IS202110240002", "last", "IS202110240004", "reason", "torn"}
	var work sync.WaitGroup
	for range 10 {
		work.Go(func() { s.explain(303, right...) })
	}
	work.Wait()
	require.Equal(t, []serial.Range{{First: 2, Last: 2}, {First: 4, Last: 4}}, s.said())
	for _, at := range []string{"", "x", time.Now().Add(time.Minute).Format(time.RFC3339Nano),
		time.Now().Add(-time.Hour - time.Second).Format(time.RFC3339Nano)} {
		text, _ := s.explain(400, append(right, "at", at)...)
		require.Contains(t, text, "Load the page again")
		form := formOf(s.get(200, "/numbers/"+s.periods(text)[0], "X-User", "Ada"))
		require.Equal(t, []string{"IS202110240002", "IS202110240004", "torn"},
			[]string{form.Get("first"), form.Get("last"), form.Get("reason")}, "no input is lost")
	}
	s.explain(303, append(right, "at", time.Now().Add(-59*time.Minute).Format(time.RFC3339Nano))...)
	require.Len(t, s.said(), 4)
}

// If storing fails halfway, or the register fails after it has stored the explanation, sending the form again completes
// it. Nothing is stored twice.
func TestExplainHalfway(t *testing.T) {
	s := open(t, nil)
	failing := &failing{register: s.register, after: 1}
	s.series[0].Explanations = failing
	text, _ := s.explain(503, "first", "IS202110240002", "last", "IS202110240004", "reason", "torn")
	require.Contains(t, text, "Send the form again to save the rest.")
	require.NotContains(t, text, "no space")
	require.Contains(t, s.log.String(), "no space")
	require.Equal(t, []serial.Range{{First: 2, Last: 2}}, s.said())
	failing.after = 100
	response, text := s.send("POST", "/numbers/explain", formOf(text).Encode(), "X-User", "Ada")
	require.Equal(t, 303, response.StatusCode, text)
	require.Equal(t, []serial.Range{{First: 2, Last: 2}, {First: 4, Last: 4}}, s.said())
	require.Equal(t, 2, s.register.calls, "the first one was not stored again")

	s.register.fail = errors.New("no answer")
	text, _ = s.explain(503, "first", "IS202110240002", "reason", "torn")
	s.register.fail = nil
	response, text = s.send("POST", "/numbers/explain", formOf(text).Encode(), "X-User", "Ada")
	require.Equal(t, 303, response.StatusCode, text)
	require.Len(t, s.said(), 3)
}

// failing fails after a number of explanations.
type failing struct {
	*register
	after int
}

func (r *failing) Explain(ctx context.Context, e serial.Explanation) error {
	if r.after == 0 {
		return errors.New("no space")
	}
	r.after--
	return r.register.Explain(ctx, e)
}

// A form explains at most a thousand ranges, anywhere in the period. If there are more, it explains none.
func TestExplainRanges(t *testing.T) {
	s := open(t, func(s *site) { large(t, s, 100_000) })
	number := func(seq string) string { return "IS20211024" + seq }
	text, _ := s.explain(400, "first", number("00049951"), "last", number("00100000"), "reason", "torn")
	require.Contains(t, text, "more than 1\u202f000 places")
	require.Empty(t, s.register.all)
	s.explain(303, "first", number("00050001"), "last", number("00100000"), "reason", "torn")
	require.Len(t, s.register.all, 1000)
	require.EqualValues(t, 50_050, s.register.all[0].First)
}

// An audit that read the explanations before a new one was stored is not shown afterwards.
func TestExplainDuringAudit(t *testing.T) {
	var work sync.WaitGroup
	var s *site
	reading, stored := make(chan struct{}), make(chan struct{})
	s = open(t, func(s *site) {
		var once, read sync.Once
		s.series[0].Explanations = registerWith{s.register,
			func() { // before it stores the first explanation
				once.Do(func() {
					work.Go(func() { require.Contains(t, s.get(200, today), "Not all numbers are accounted for.") })
					<-reading
				})
			},
			func() { // when all have been read
				if s.audits() > 0 {
					read.Do(func() { close(reading); <-stored })
				}
			},
		}
	})
	s.explain(303, "first", "IS202110240002", "last", "IS202110240004", "reason", "void")
	close(stored)
	work.Wait()
	require.Contains(t, s.get(200, today), "✓ All numbers are accounted for.")
}

// audits returns how many audits are running.
func (s *site) audits() int {
	a := s.handler().audits
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.running)
}

// registerWith calls store before it stores an explanation, and read after all were read.
type registerWith struct {
	*register
	store, read func()
}

func (r registerWith) Explain(ctx context.Context, e serial.Explanation) error {
	r.store()
	return r.register.Explain(ctx, e)
}

func (r registerWith) Explanations(ctx context.Context, series string, start time.Time) iter.Seq2[
	serial.Explanation, error] {
	return func(yield func(serial.Explanation, error) bool) {
		r.register.Explanations(ctx, series, start)(yield)
		r.read()
	}
}

// A form that waits too long for its audit stores nothing and says so. It can be sent again.
func TestExplainWaits(t *testing.T) {
	reading, proceed := make(chan struct{}, 1), make(chan struct{})
	s := open(t, func(s *site) {
		s.options.Limit = 2 * time.Second
		stored := s.series[0].Stored
		s.series[0].Stored = func(ctx context.Context, start, end time.Time) iter.Seq2[string, error] {
			return func(yield func(string, error) bool) {
				select {
				case reading <- struct{}{}:
					<-proceed
				default:
				}
				stored(ctx, start, end)(yield)
			}
		}
	})
	right := []string{"at", now(), "first", "IS202110240002", "reason", "torn"}
	var work sync.WaitGroup
	work.Go(func() { s.send("GET", today, "") })
	require.Eventually(t, func() bool { return s.audits() == 1 }, time.Minute, time.Millisecond)
	text, _ := s.explain(503, right...)
	require.Contains(t, text, "Nothing was saved because other checks are running.")
	require.Empty(t, s.said())
	work.Go(func() { s.explain(303, right...) })
	close(proceed)
	work.Wait()
	require.Len(t, s.said(), 1)
}

// If the database hangs while it stores an explanation, the form is answered within Limit, and others are stored.
func TestExplainHangs(t *testing.T) {
	hang := make(chan struct{})
	s := open(t, func(s *site) {
		s.options.Limit = time.Second
		s.series[0].Explanations = hanging{s.register, hang}
	})
	right := []string{"at", now(), "first", "IS202110240002", "reason"}
	s.explain(503, append(right, "hang")...)
	s.explain(503, append(right, "hang")...)
	s.explain(303, append(right, "other")...)
	close(hang)
	s.explain(303, append(right, "hang")...)
	require.Len(t, s.said(), 2)
}

// hanging stores the reason "hang" only after hang is closed, and ignores its context.
type hanging struct {
	*register
	hang chan struct{}
}

func (h hanging) Explain(ctx context.Context, e serial.Explanation) error {
	if e.Reason == "hang" {
		<-h.hang
	}
	return h.register.Explain(context.WithoutCancel(ctx), e)
}

// A period has a form, or says why there is none, only as long as something is unexplained.
func TestExplainOnlyWhatIsMissing(t *testing.T) {
	s := open(t, nil)
	require.Contains(t, s.get(200, today, "X-User", "Ada"), explaining)
	_, location := s.explain(303, "first", "IS202110240002", "last", "IS202110240004", "reason", "torn", "@X-User", "Ada")
	page := s.get(200, "/numbers/"+location, "X-User", "Ada")
	require.Contains(t, textOf(page), "Your explanation is saved for 2 numbers")
	require.NotContains(t, page, explaining)
	require.NotContains(t, textOf(s.get(200, today)), "You may not explain")
}
