package serialpage

import (
	"context"
	"fmt"
	"iter"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/dailyserial/serial"
)

// kept is a site whose series keeps its counters. Three numbers were issued and stored on each of the 24th and the 26th,
// and the clock shows the 26th.
func kept(t *testing.T, change func(*site)) *site {
	return open(t, func(s *site) {
		rdb := redis.NewClient(&redis.Options{Addr: s.redis.Addr()})
		t.Cleanup(func() { _ = rdb.Close() })
		gen, err := serial.New(rdb, serial.WithLocation(time.UTC), serial.WithMaxSkew(-1), serial.WithRetention(99),
			serial.WithKeyPrefix("kept"))
		require.NoError(t, err)
		s.stored = nil
		for _, day := range []int{24, 26} {
			s.redis.SetTime(time.Date(2021, 10, day, 12, 0, 0, 0, time.UTC))
			numbers, err := gen.NextN(t.Context(), "IS", 3)
			require.NoError(t, err)
			for _, n := range numbers {
				s.stored = append(s.stored, n.String())
			}
		}
		s.series[0].Source = Redis(gen)
		if change != nil {
			change(s)
		}
	})
}

const seriesPage = "/numbers/series?key=IS"

// check sends the form for a check of all periods, and waits until the check has ended.
func (s *site) check(status int, headers ...string) (page string) {
	s.t.Helper()
	response, text := s.send("POST", "/numbers/check", url.Values{"key": {"IS"}}.Encode(), headers...)
	require.Equal(s.t, status, response.StatusCode, text)
	if status != 303 {
		return text
	}
	require.Equal(s.t, "series?key=IS", response.Header.Get("Location"))
	require.Eventually(s.t, func() bool {
		running, _ := s.handler().checks.of("IS")
		return running == nil
	}, 5*time.Second, time.Millisecond)
	return s.get(200, seriesPage)
}

// again lets a series be checked again at once.
func (s *site) again() { delete(s.handler().checks.ended, "IS") }

// Rows that were deleted on an old day are found with one click, from one reading of the stored numbers. A text that is
// no number is shown once, and so is a day of which nothing is left.
func TestCheck(t *testing.T) {
	s := kept(t, nil)
	require.Contains(t, s.get(200, seriesPage), "not checked")
	page := s.check(303)
	require.EqualValues(t, 1, s.read.Load())
	require.NotContains(t, page, `<span class="quiet">not checked</span>`)
	require.Contains(t, page, "All 2 periods were checked: ")
	require.Contains(t, page, "Periods without numbers: 1")
	require.Contains(t, page, "<li>25 October 2021</li>")
	require.NotContains(t, s.get(200, "/numbers/"), "checked periods")
	require.Contains(t, s.check(503), "This series was checked just now. It can be checked again in 1 minute.")

	s.again()
	s.stored = append(s.stored[1:], "IS2O2110260003") // the first is deleted
	page = s.check(303)
	require.Contains(t, page, "Stored, but not one of our numbers: 1")
	require.Contains(t, page, `<bdi class="number">IS2O2110260003</bdi>`)
	require.Contains(t, textOf(page), "24 October 2021 IS202110240001 IS202110240003 3 2 0 1 ✗ discrepancies")
	require.Contains(t, textOf(page), "26 October 2021 IS202110260001 IS202110260003 3 3 0 0 ✓ accounted for")
	overview := s.get(200, "/numbers/")
	require.Contains(t, overview, "1 of 2 checked periods have discrepancies")
	require.Contains(t, overview, ">24 October 2021</a>", "the red result comes before the green one")

	// An explanation from another period than the current one counts, too.
	s.again()
	n, err := s.series[0].Source.scheme().Parse("IS202110240001")
	require.NoError(t, err)
	e, err := s.series[0].Source.scheme().Explanation(n, n, "void", "Ada")
	require.NoError(t, err)
	require.NoError(t, s.register.Explain(t.Context(), e))
	require.Contains(t, textOf(s.check(303)), "24 October 2021 IS202110240001 IS202110240003 3 2 1 0 ✓ accounted for")
}

// Every reader sees the progress of a check. It outlives its request, and ends with the service's context, without a
// result. Until it ends, it occupies one of two places.
func TestCheckProgress(t *testing.T) {
	reached, ctx := make(chan struct{}), context.Context(nil)
	type key struct{}
	s := kept(t, func(s *site) {
		parent, cancel := context.WithCancel(t.Context())
		s.options.Context = parent
		t.Cleanup(cancel)
		stored := s.series[0].Stored
		s.series[0].Stored = func(c context.Context, start, end time.Time) iter.Seq2[string, error] {
			ctx = c
			require.Equal(t, []int{24, 27}, []int{start.Day(), end.Day()})
			return func(yield func(string, error) bool) {
				for text, err := range stored(c, start, end) {
					if !yield(text, err) {
						return
					}
				}
				close(reached)
				<-c.Done()
				cancel()
				yield("", c.Err())
			}
		}
		for _, other := range []string{"B", "C"} {
			one := s.series[0]
			one.Key = other
			s.series = append(s.series, one)
		}
		s.options.CheckLimit = 20 * time.Second // the page below takes its time with the race detector
	})
	response, _ := s.send("POST", "/numbers/check", "key=IS")
	require.Equal(t, 303, response.StatusCode)
	<-reached
	require.Nil(t, ctx.Value(key{}))
	page := s.get(200, seriesPage)
	require.Contains(t, page, "6 numbers read so far.")
	require.Contains(t, page, `<a class="screen" href="series?key=IS">Show progress</a>`)
	require.NotContains(t, page, "Check all periods</button>")
	h := s.handler()
	h.checks.running["B"] = &check{}
	response, page = s.send("POST", "/numbers/check", "key=C")
	require.Equal(t, 503, response.StatusCode)
	require.Contains(t, page, "Other series are being checked.")
	delete(h.checks.running, "B")
	require.Eventually(t, func() bool { running, _ := h.checks.of("IS"); return running == nil }, time.Minute,
		time.Millisecond)
	page = s.get(200, seriesPage)
	require.Contains(t, page, "did not end, so it has no result.")
	require.Contains(t, page, `<span class="quiet">not checked</span>`)
	require.Contains(t, s.log.String(), "a check of all periods failed")
}

// Whoever may read may check, but not from another site. Nothing else starts a check.
func TestCheckRefused(t *testing.T) {
	s := kept(t, nil)
	response, _ := s.send("POST", "/numbers/check", "key=IS", "Origin", "https://evil.example")
	require.Equal(t, 403, response.StatusCode)
	for _, method := range []string{"GET", "HEAD"} {
		response, _ := s.send(method, "/numbers/check?key=IS", "")
		require.Equal(t, 405, response.StatusCode)
	}
	response, _ = s.send("POST", "/numbers/check", "key=other")
	require.Equal(t, 404, response.StatusCode)
	s.series[0].Stored = nil
	response, _ = s.send("POST", "/numbers/check", "key=IS")
	require.Equal(t, 404, response.StatusCode)
	require.NotContains(t, s.get(200, seriesPage), "Check all periods")
	require.Zero(t, s.read.Load())

	s.series[0].Stored = func(context.Context, time.Time, time.Time) iter.Seq2[string, error] { panic("no table") }
	require.Contains(t, s.check(303), "did not end, so it has no result.")
	require.Contains(t, s.log.String(), "no table")
	for _, wrong := range []time.Duration{-1, mostCheckLimit + 1} {
		o := s.options
		o.CheckLimit = wrong
		_, err := NewHandler(o)
		require.ErrorContains(t, err, "serialpage: Options.CheckLimit")
	}
}

// A result that is older than a day is shown with its age, and its period counts as not checked.
func TestOldResults(t *testing.T) {
	s := kept(t, nil)
	s.stored = s.stored[1:]
	s.check(303)
	require.Contains(t, s.get(200, "/numbers/"), "1 of 2 checked periods have discrepancies")
	a := s.handler().audits
	for k, o := range a.outcomes.values {
		o.at = o.at.Add(-resultAge)
		a.outcomes.values[k] = o
	}
	overview := s.get(200, "/numbers/")
	require.NotContains(t, overview, "checked periods have")
	require.Contains(t, overview, "more than a day ago")
	require.Contains(t, s.get(200, seriesPage+"&show=discrepancies"), "26 October 2021", "although it was clean")
	require.Contains(t, s.get(200, seriesPage), "(more than a day ago)")
}

// A period's page leads to the periods before and after it that are kept.
func TestPeriodLinks(t *testing.T) {
	s := kept(t, nil)
	const at = `<a href="period?key=IS&amp;start=2021-10-%sT00%%3A00%%3A00Z" rel="%s">`
	older, newer := fmt.Sprintf(at, "24", "prev"), fmt.Sprintf(at, "26", "next")
	for day, want := range map[string][2]bool{"24": {false, true}, "25": {true, true}, "26": {true, false}} {
		response, page := s.send("GET", "/numbers/period?key=IS&start=2021-10-"+day+"T00:00:00Z", "")
		if day == "25" {
			require.Equal(t, 404, response.StatusCode, "nothing is kept of it")
			continue
		}
		require.Equal(t, want, [2]bool{strings.Contains(page, older), strings.Contains(page, newer)}, day)
	}
}
