package serialpage

import (
	"context"
	"fmt"
	"html"
	"iter"
	"net/url"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/dailyserial/serial"
)

// find looks a number up. It follows the redirect, which must be relative, and returns the page that answers.
func (s *site) find(status int, number string, headers ...string) (page string) {
	s.t.Helper()
	response, text := s.send("GET", "/numbers/find?number="+url.QueryEscape(number), "", headers...)
	if response.StatusCode != 303 {
		require.Equal(s.t, status, response.StatusCode, text)
		return text
	}
	location := response.Header.Get("Location")
	require.True(s.t, strings.HasPrefix(location, "period?"), location)
	return s.get(status, "/numbers/"+location, headers...)
}

// fateOf returns the sentence that answers a look-up, as text.
func fateOf(t *testing.T, page string) string {
	t.Helper()
	_, section, found := strings.Cut(page, `<section class="fate"`)
	require.True(t, found, page)
	section, _, _ = strings.Cut(section, "</section>")
	_, section, _ = strings.Cut(section, ">")
	return textOf(section)
}

// The answer to a look-up says what became of the number. All look-ups of a minute need one audit.
func TestLookUp(t *testing.T) {
	possible := func(e serial.Explanation) serial.Explanation { e.Possible = true; return e }
	unused := func(e serial.Explanation) serial.Explanation { e.Unused = true; return e }
	s := open(t, func(s *site) {
		s.stored = append(s.stored, "IS202110240003", "IS202110240009", "IS202110249999", " IS202110249999")
		s.register.all = []serial.Explanation{
			s.explanation(2, 2, "torn", "Ada", s.start), s.explanation(2, 2, "void", "Eve", s.start.Add(-time.Hour)),
			unused(s.explanation(2, 2, serial.CallerLeft, "", s.start.Add(time.Hour))),
			possible(s.explanation(1, 9999, serial.Raised, "", s.start.Add(time.Hour))),
			possible(s.explanation(4, 9999, "unplugged", "Ada", s.start)),
			unused(s.explanation(5, 5, serial.BlockBurned, "", s.start)),
		}
	})
	for seq, want := range map[string]string{
		"0001": "was issued and is stored.",
		"0002": "was issued and is missing. It is explained: void (Eve, 23 October 2021, 23:00 UTC).",
		"0003": "was issued, but is stored more than once.",
		"0004": "was issued and is missing. Nobody has explained it. Possible reasons: " +
			"unplugged (Ada, 24 October 2021, 00:00 UTC). " +
			"counter moved ahead (the program, 24 October 2021, 01:00 UTC). Somebody moved the counter past these " +
			"numbers: nobody has one, unless data was lost before that.",
		"0005": "was issued and is stored. It was reported as never received: set aside and never used " +
			"(the program, 24 October 2021, 00:00 UTC). The program had set the number aside in advance, and it can no " +
			"longer be issued.",
		"0006": "has not been issued and is not stored.",
		"0009": "was never issued, but is stored.",
		"9999": "was never issued, but is stored more than once.",
	} {
		page := s.find(200, " \u00a0IS20211024"+seq+"\t\n")
		require.Equal(t, "IS20211024"+seq+" "+want, fateOf(t, page))
		require.Contains(t, page, `<p><bdi class="number">IS20211024`+seq+`</bdi>`)
		require.Contains(t, page, `name="number" value="IS20211024`+seq+`"`, "to correct it")
		require.Less(t, strings.Index(page, `class="fate"`), strings.Index(page, `id="account"`), "above the account")
	}
	require.LessOrEqual(t, s.read.Load(), int64(3), "an audit is kept for a minute, and knows what is stored once")
	require.NotContains(t, s.get(200, today), `class="fate"`)
	for _, other := range []string{"IS202110230001", "PO202110240001", "x"} {
		page := s.get(200, today+"&number="+other)
		require.Equal(t, other+" is not a number of this series and period.", fateOf(t, page))
	}
	require.Contains(t, s.get(400, "/numbers/find"), "Enter a number")
	require.Contains(t, s.get(400, "/numbers/find?number=+"), "Enter a number")

	// A missing number that nobody has explained has a link to the form.
	page := s.find(200, "IS202110240004", "X-User", "Ada")
	link := regexp.MustCompile(`<a class="screen" href="([^"]*)">Explain it</a>`).FindStringSubmatch(page)
	require.NotEmpty(t, link)
	form := formOf(s.get(200, "/numbers/"+html.UnescapeString(link[1]), "X-User", "Ada"))
	require.Equal(t, "IS202110240004", form.Get("first"))

	// The redirect needs no audit, and neither does HEAD.
	s.handler().audits.forget(periodKey{"IS", s.start.Unix()})
	for _, method := range []string{"GET", "HEAD"} {
		response, _ := s.send(method, "/numbers/find?number=IS202110240001", "")
		require.Equal(t, 303, response.StatusCode)
	}
	before := s.read.Load()
	s.send("HEAD", today+"&number=IS202110240001", "")
	require.Equal(t, before, s.read.Load())
}

// Without Stored, the answer says only whether the number was issued.
func TestLookUpWithoutStored(t *testing.T) {
	s := open(t, func(s *site) { s.series[0].Stored = nil })
	require.Equal(t, "IS202110240002 was issued. This page cannot check whether it is stored.",
		fateOf(t, s.find(200, "IS202110240002")))
	require.Equal(t, "IS202110240006 has not been issued. This page cannot check whether it is stored.",
		fateOf(t, s.find(200, "IS202110240006")))
}

// A number that was issued and stored during the audit is not said to be made up.
func TestLookUpDuringAudit(t *testing.T) {
	s := open(t, nil)
	stored := s.series[0].Stored
	s.series[0].Stored = func(ctx context.Context, start, end time.Time) iter.Seq2[string, error] {
		return func(yield func(string, error) bool) {
			_, err := s.gen.Next(ctx, "IS")
			if yield("IS202110240006", err) && yield("IS202110240008", nil) {
				stored(ctx, start, end)(yield)
			}
		}
	}
	require.Equal(t, "IS202110240006 had not been issued when this check began, but is stored.",
		fateOf(t, s.find(200, "IS202110240006")))
	require.Equal(t, "IS202110240008 was never issued, but is stored.", fateOf(t, s.find(200, "IS202110240008")))
}

// A look-up finds numbers that are not in the lists of the account, which end after 1,000.
func TestLookUpBeyondLists(t *testing.T) {
	s := open(t, func(s *site) {
		large(t, s, 150_000)
		for seq := int64(50); seq <= 150_000; seq += 100 {
			e := s.explanation(seq, seq, fmt.Sprint("reason ", seq), "Ada", s.start)
			e.Series = "large:IS"
			s.register.all = append(s.register.all, e)
		}
	})
	for number, want := range map[string]string{
		"IS2021102400149999": "was issued and is stored.",
		"IS2021102400150000": "was issued and is missing. Nobody has explained it.",
		"IS2021102400149950": "was issued and is missing. It is explained: reason 149950 (Ada, 24 October 2021, 00:00 UTC).",
		"IS2021102400150001": "has not been issued and is not stored.",
	} {
		require.Equal(t, number+" "+want, fateOf(t, s.find(200, number)))
	}
	require.EqualValues(t, 1, s.read.Load())
}

// One audit knows all numbers, however widely they are spread.
func TestLookUpSpreadNumbers(t *testing.T) {
	const many, apart = 32_000, 4096
	scheme := schemeOf(t, "{type}{date:yyyyMMdd}{seq:10}", "UTC")
	number := func(seq int64) string { return fmt.Sprintf("IS20211024%010d", seq) }
	s := open(t, func(s *site) {
		s.stored = nil
		for i := range int64(many) {
			s.stored = append(s.stored, number(i*apart+1))
		}
		s.series[0].Source = fixed{scheme, many * apart, s.start}
	})
	require.Equal(t, number(1)+" was issued and is stored.", fateOf(t, s.find(200, number(1))))
	for range 2 {
		last := int64(many-1)*apart + 1
		require.Equal(t, number(last)+" was issued and is stored.", fateOf(t, s.find(200, number(last))))
		require.Equal(t, number(last+1)+" was issued and is missing. Nobody has explained it.",
			fateOf(t, s.find(200, number(last+1))))
		require.EqualValues(t, 1, s.read.Load())
	}
}

// However many explanations there are, one audit answers for all numbers. So ten people get their answers at once.
func TestLookUpManyExplanations(t *testing.T) {
	s := open(t, func(s *site) {
		for i := range 10_001 {
			s.register.all = append(s.register.all, s.explanation(2, 2, fmt.Sprint("reason ", i), "Ada", s.start))
		}
		s.register.all = append(s.register.all, s.explanation(4, 4, "last", "Eve", s.start))
	})
	s.get(200, today)
	const four = "IS202110240004 was issued and is missing. It is explained: last (Eve, 24 October 2021, 00:00 UTC)."
	var work sync.WaitGroup
	for range 10 {
		work.Go(func() {
			require.Equal(t, four, fateOf(t, s.find(200, "IS202110240004")))
			require.Contains(t, fateOf(t, s.find(200, "IS202110240002")), "explained: reason 10000 ")
			require.Contains(t, fateOf(t, s.find(200, "IS202110240001")), "is stored.")
		})
	}
	work.Wait()
	require.EqualValues(t, 1, s.read.Load(), "one audit answers for all numbers")
}

// The answer lists the first possible reasons, and counts the others.
func TestLookUpManyPossibleReasons(t *testing.T) {
	s := open(t, func(s *site) {
		for i := range mostListed + 1 {
			e := s.explanation(4, 4, serial.Raised, "", s.start.Add(time.Duration(mostListed-i)*time.Minute))
			e.Possible = true
			s.register.all = append(s.register.all, e)
		}
	})
	page := s.find(200, "IS202110240004", "X-User", "Ada")
	answer := fateOf(t, page)
	require.Equal(t, mostAnswered, strings.Count(answer, "counter moved ahead"))
	require.Contains(t, answer, "counter moved ahead (the program, 24 October 2021, 00:01 UTC).", "the earliest")
	require.True(t, strings.HasSuffix(answer, "and 991 more"), answer)
	require.Contains(t, s.periods(page)[0], "reason=counter+moved+ahead", "all are the same")
}

// A look-up reads numbers of earlier schemes, and leads to the period as the current scheme has it.
func TestLookUpEarlier(t *testing.T) {
	s := open(t, func(s *site) {
		s.stored = []string{"IS/20211024/1", "IS202110240003 ", "IS-20211024-0004"}
		s.series[0].Earlier = []*serial.Scheme{schemeOf(t, "{type}/{date:yyyyMMdd}/{seq:1}", "UTC"),
			schemeOf(t, "{type}-{date:yyyyMMdd}-{seq:4}", "America/Sao_Paulo", serial.WithDayStart(4*time.Hour))}
	})
	for number, want := range map[string]string{
		"IS/20211024/1": "was issued and is stored.", "IS202110240001": "was issued and is stored as IS/20211024/1.",
		"IS/20211024/2": "was issued and is missing. Nobody has explained it.",
		"IS/20211024/3": "was issued and is stored as IS202110240003 .", "IS202110240003": "was issued and is stored.",
		"IS-20211024-0004": "was issued and is stored.", "IS202110240004": "was issued and is stored as IS-20211024-0004.",
	} {
		page := s.find(200, number)
		require.Equal(t, number+" "+want, fateOf(t, page))
		require.Contains(t, page, "Invoices, 24 October 2021</title>")
	}
	require.LessOrEqual(t, s.read.Load(), int64(7))
}

// A number that hides its sequence, or that has a check digit, is looked up as it is printed.
func TestLookUpForms(t *testing.T) {
	for name, opts := range map[string][]serial.Option{
		"hidden":      {hidden, serial.WithTemplate("{type}{date:yyyyMMdd}{seq:6}")},
		"check digit": {serial.WithTemplate("{type}{date:yyyyMMdd}{seq:4}{check:luhn}")},
		"blanks":      {serial.WithTemplate(" {type}{date:yyyyMMdd}{seq:4:letters} ")},
		"never":       {serial.WithPeriod(serial.Never), serial.WithTemplate("{type}-{seq:4}")},
		"start":       {serial.WithStart(500)},
	} {
		t.Run(name, func(t *testing.T) {
			var numbers []string
			s := open(t, func(s *site) { numbers = s.scheme([]int{10}, opts...) })
			for i, says := range map[int]string{9: "is stored.", 10: "is missing. Nobody has explained it."} {
				require.Equal(t, strings.TrimSpace(numbers[i])+" was issued and "+says, fateOf(t, s.find(200, numbers[i])))
			}
		})
	}
}

// With a shared counter, a number of any type is looked up, and the answer says which type has its sequence.
func TestLookUpSharedCounter(t *testing.T) {
	const many = 10_000
	s := open(t, func(s *site) {
		rdb := redis.NewClient(&redis.Options{Addr: s.redis.Addr()})
		t.Cleanup(func() { require.NoError(t, rdb.Close()) })
		gen, err := serial.New(rdb, serial.WithLocation(time.UTC), serial.WithMaxSkew(-1), serial.WithSharedCounter(),
			serial.WithTemplate("{type}{date:yyyyMMdd}{seq:6}"))
		require.NoError(t, err)
		s.stored = nil
		for _, typ := range []string{"FA", "AV"} {
			numbers, err := gen.NextN(t.Context(), typ, many)
			require.NoError(t, err)
			for _, n := range numbers {
				s.stored = append(s.stored, n.String())
			}
		}
		s.series = []Series{{Type: "FA", Source: Redis(gen), Stored: s.yield}}
	})
	first, last := many+1, 2*many
	for _, c := range []struct {
		typ  string
		seq  int
		says string
	}{
		{"FA", 1, "stored."}, {"AV", 1, "stored as FA20211024000001."}, {"X", 1, "stored as FA20211024000001."},
		{"AV", first, "stored."}, {"FA", first, fmt.Sprintf("stored as AV20211024%06d.", first)},
		{"AV", last, "stored."}, {"FA", last, fmt.Sprintf("stored as AV20211024%06d.", last)},
		{"FA", last + 1, ""},
	} {
		number := fmt.Sprintf("%s20211024%06d", c.typ, c.seq)
		want := "was issued and is " + c.says
		if c.says == "" {
			want = "has not been issued and is not stored."
		}
		require.Equal(t, number+" "+want, fateOf(t, s.find(200, number)))
	}
	require.LessOrEqual(t, s.read.Load(), int64(8))
}

// A period that is no longer kept or has not begun has no account. The answer says that, and no more.
func TestLookUpOtherPeriods(t *testing.T) {
	s := open(t, nil)
	for number, says := range map[string]string{
		"IS202110230001": "IS202110230001 is a number of this period. There is no record of this period: it is no longer " +
			"kept, or no number was issued in it.",
		"IS202110250001": "IS202110250001 is a number of this period. This period has not begun.",
	} {
		page := s.find(404, number)
		require.Contains(t, page, `<p><bdi class="number">`+number+`</bdi>`)
		require.Contains(t, textOf(page), says)
		for _, never := range []string{"stored", "missing", "has not been issued"} {
			require.NotContains(t, page, never)
		}
		day := map[string]string{"IS202110230001": "23", "IS202110250001": "25"}[number]
		require.Contains(t, page, "<h1><bdi>Invoices</bdi>, "+day+" October 2021</h1>")
	}
	scheme, err := serial.NewScheme(serial.WithLocation(time.UTC))
	require.NoError(t, err)
	s.series[0].Source = fixed{scheme, 3, s.start.Add(12 * time.Hour)} // it has an account of every period, as a table has
	require.Equal(t, "IS900001010001 is a number of 1 January 9000, which has not begun.",
		fateOf(t, s.find(200, "IS900001010001")))
}

// Several series that can read a number are listed, each once.
func TestLookUpSeveralSeries(t *testing.T) {
	s := open(t, func(s *site) {
		one := s.series[0]
		north, hourly := one, one
		north.Key, north.Name, north.Earlier = "north", "\u202eצפון", []*serial.Scheme{s.gen.Scheme()}
		hourly.Key = "hourly"
		scheme := schemeOf(t, "{type}{date:yyyyMMddHH}{seq:2}", "UTC", serial.WithPeriod(serial.PerHour))
		hourly.Source = fixed{scheme, 3, s.start}
		s.series = append(s.series, north, hourly)
	})
	page := s.find(200, "IS202110240102")
	require.Contains(t, page, `<bdi class="number">IS202110240102</bdi> can be a number of 3 series:`)
	for _, link := range []string{
		`period?key=IS&amp;number=IS202110240102&amp;start=2021-10-24T00%3A00%3A00Z"><bdi>Invoices</bdi>, 24 October`,
		`period?key=north&amp;number=IS202110240102&amp;start=2021-10-24T00%3A00%3A00Z"><bdi>` + "\u202eצפון",
		`period?key=hourly&amp;number=IS202110240102&amp;start=2021-10-24T01%3A00%3A00Z"><bdi>Invoices</bdi>, 24 Oc`,
	} {
		require.Equal(t, 1, strings.Count(page, link), link)
	}
	require.Equal(t, 3, strings.Count(page, "<li>"))
	require.Equal(t, "IS202110240102 has not been issued and is not stored.",
		fateOf(t, s.get(200, "/numbers/"+s.periods(page)[2])))
}

// If no series can read a text, the answer says why.
func TestLookUpUnreadable(t *testing.T) {
	s := open(t, func(s *site) {
		one := s.series[0]
		one.Key = "checked"
		one.Source = fixed{schemeOf(t, "{type}-{date:yyyyMMdd}-{seq:4}{check:luhn}", "UTC"), 3, s.start}
		s.series = append(s.series, one)
	})
	const other, mistyped = " is not a number of these series.", " was mistyped: its check digit does not fit."
	const date = " cannot be a number of these series: its date is not possible."
	for number, why := range map[string]string{
		"IS202113240001": date, "IS202102300001": date, "IS196001010001": date, "IS-20211301-00014": mistyped,
		"PO202110240001": other, "PO202113240001": other, "x": other, "202110240001": other, "IS20211024": other,
		"IS202110240000": other, "is202110240001": other, "IS 202110240001": other, "IS-20211024-00010": mistyped,
	} {
		page := s.find(404, number)
		require.Contains(t, page, `<bdi class="number">`+number+`</bdi>`)
		require.Contains(t, textOf(page), number+why)
		require.Contains(t, page, `name="number" value="`+number+`"`, "to correct it")
	}
	require.NotContains(t, s.find(404, `"><script>alert(1)</script>`), "<script")
	s.series = nil
	require.Contains(t, textOf(s.find(404, "IS202110240001")), other)
}

// Every page has the field, error pages included, and it works from there.
func TestLookUpField(t *testing.T) {
	for _, prefix := range []string{"", "/numbers", "/a/b:c d"} {
		s := open(t, func(s *site) { s.options.Prefix = prefix })
		escaped := strings.ReplaceAll(prefix, " ", "%20")
		for path, status := range map[string]int{
			"/": 200, "/series?key=IS": 200, "/period?key=IS&start=2021-10-24T00:00:00Z": 200, "/find?number=x": 404,
			"/find": 400, "/nothing": 404, "/no/such/page": 404, "/no%2Fpage": 404, "/series?key=x": 404, "/explain": 405,
			"/period?key=IS&start=1": 400,
		} {
			response, page := s.send("GET", escaped+path, "")
			require.Equal(t, status, response.StatusCode, path)
			field := regexp.MustCompile(`(?s)<form class="find" role="search" action="([^"]*)">.*<input[^>]* name="number"`).
				FindStringSubmatch(page)
			require.NotEmpty(t, field, path)
			target, err := response.Request.URL.Parse(html.UnescapeString(field[1]))
			require.NoError(t, err)
			require.Equal(t, escaped+"/find", target.EscapedPath(), path)
			sheet := regexp.MustCompile(`rel="stylesheet" href="([^"]*)"`).FindStringSubmatch(page)
			target, err = response.Request.URL.Parse(html.UnescapeString(sheet[1]))
			require.NoError(t, err)
			require.Equal(t, escaped+"/style.css", target.EscapedPath(), path)
		}
	}
	s := open(t, nil)
	response, page := s.send("POST", "/numbers", "")
	require.Equal(t, 405, response.StatusCode)
	require.Contains(t, page, `action="./numbers/find"`)
}

// A look-up takes less than a second among a hundred series, and leads to the account of one of ten million numbers.
func TestLookUpAmongMany(t *testing.T) {
	many := int64(100_000)
	if os.Getenv("SERIAL_TEST_LONG") == "1" {
		many = 10_000_000
	}
	s := open(t, func(s *site) {
		large(t, s, many)
		one := s.series[0]
		for i := range 99 {
			scheme := schemeOf(t, fmt.Sprintf("N%02d-{type}{date:yyyyMMdd}{seq:8}", i), "UTC")
			s.series = append(s.series, Series{Key: fmt.Sprint(i), Type: "IS", Source: fixed{scheme, 3, s.start},
				Stored: one.Stored, Earlier: []*serial.Scheme{schemeOf(t, fmt.Sprintf("O%02d-{type}{date:yyyyMMdd}{seq:8}", i),
					"UTC")}})
		}
	})
	missing := fmt.Sprintf("IS20211024%08d", many)
	began := time.Now()
	response, _ := s.send("GET", "/numbers/find?number="+missing, "")
	t.Logf("the look-up took %v", time.Since(began))
	require.Equal(t, 303, response.StatusCode)
	require.Zero(t, s.read.Load(), "no audit")
	began = time.Now()
	page := s.get(200, "/numbers/"+response.Header.Get("Location"))
	t.Logf("its page, with an account of %d numbers, took %v", many, time.Since(began))
	require.Equal(t, missing+" was issued and is missing. Nobody has explained it.", fateOf(t, page))
	for _, seq := range []int64{1, many / 2, many - 1} {
		number := fmt.Sprintf("IS20211024%08d", seq)
		want := map[bool]string{true: "missing. Nobody has explained it.", false: "stored."}[seq%50 == 0]
		began = time.Now()
		require.Equal(t, number+" was issued and is "+want, fateOf(t, s.find(200, number)))
		t.Logf("another number took %v", time.Since(began))
	}
	require.EqualValues(t, 1, s.read.Load(), "one account answers for all numbers")
}
