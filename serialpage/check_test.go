package serialpage

import (
	"context"
	"iter"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dailyserial/serial"
)

const unchecked = `<span class="quiet">not checked</span>`

// Every reader sees the progress of a check. It outlives its request, and ends with the service's context. Then it has
// no result, and what an earlier check found still counts. At most two checks run at a time.
func TestCheckProgress(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := kept(t)
		ctx, cancel := context.WithCancel(t.Context())
		s.Context = ctx
		stored := s.series[0].Stored
		var from, to time.Time
		hang := false
		s.series[0].Stored = func(ctx context.Context, start, end time.Time) iter.Seq2[string, error] {
			from, to = start, end
			return func(yield func(string, error) bool) {
				stored(ctx, start, end)(yield)
				if hang {
					<-ctx.Done()
				}
			}
		}
		for _, key := range []string{"B", "C"} {
			other := s.series[0]
			other.Key = key
			s.series = append(s.series, other)
		}
		require.NotContains(t, s.check("IS", 303), unchecked)
		require.Equal(t, []time.Time{midnight.AddDate(0, 0, -2), midnight.AddDate(0, 0, 1)}, []time.Time{from, to})
		require.Contains(t, s.check("IS", 503), "This series was checked just now. It can be checked again in 1 minute.")
		time.Sleep(time.Hour)

		hang = true
		response, _ := s.send("POST", "/numbers/check", "key=IS")
		require.Equal(t, 303, response.StatusCode)
		response, _ = s.send("POST", "/numbers/check", "key=IS")
		require.Equal(t, 303, response.StatusCode, "it is running")
		response, _ = s.send("POST", "/numbers/check", "key=B")
		require.Equal(t, 303, response.StatusCode)
		synctest.Wait()
		response, page := s.send("POST", "/numbers/check", "key=C")
		require.Equal(t, 503, response.StatusCode)
		require.Contains(t, page, "Other series are being checked.")
		page = s.get(200, seriesPage)
		require.Contains(t, page, "All periods are being checked since 24 October 2021, 13:00 UTC: 6 numbers read so far. ")
		require.Contains(t, page, `<a class="screen" href="series?key=IS">Show progress</a>`)
		require.NotContains(t, page, "Check all periods</button>")

		time.Sleep(7 * time.Minute)
		cancel()
		synctest.Wait()
		page = s.get(200, seriesPage)
		require.Contains(t, page, "The check of all periods of 24 October 2021, 13:00 UTC did not end, so it has no result.")
		require.Contains(t, page, "All 2 periods were checked: 24 October 2021, 12:00 UTC.")
		require.Contains(t, s.log.String(), "a check of all periods failed")
		require.Contains(t, s.check("IS", 503), "again in 70 minutes.", "ten times as long as it took")
	})
}

// A check ends after CheckLimit. If Stored panics or ends the goroutine, the check has no result.
func TestCheckFails(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := kept(t)
		hang := func(ctx context.Context) { <-ctx.Done() }
		for _, fail := range []func(context.Context){hang, func(context.Context) { panic("no table") }} {
			s.series[0].Stored = func(ctx context.Context, _, _ time.Time) iter.Seq2[string, error] {
				return func(func(string, error) bool) { fail(ctx) }
			}
			response, _ := s.send("POST", "/numbers/check", "key=IS")
			require.Equal(t, 303, response.StatusCode)
			began := time.Now()
			for running, _ := s.checks.state("IS"); running != nil; running, _ = s.checks.state("IS") {
				time.Sleep(time.Second)
			}
			require.LessOrEqual(t, time.Since(began), s.CheckLimit+time.Second)
			page := s.get(200, seriesPage)
			require.Contains(t, page, "did not end, so it has no result.")
			require.Contains(t, page, unchecked)
			time.Sleep(24 * time.Hour)
		}
		require.Contains(t, s.log.String(), "context deadline exceeded")
		require.Contains(t, s.log.String(), "no table")
	})
}

// Whoever may read may check, but not from another site. Nothing else starts a check.
func TestCheckRefused(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := kept(t)
		require.Contains(t, s.check("IS", 403, "Origin", "https://evil.example"), "from a page of another site")
		response, _ := s.send("POST", "/numbers/check", "key=other")
		require.Equal(t, 404, response.StatusCode)
		s.series[0].Stored = nil
		s.check("IS", 404)
		require.NotContains(t, s.get(200, seriesPage), "Check all periods")
		require.Zero(t, s.read.Load())
	})
}

// A result of a check does not replace that of a later audit. An explanation of any period counts in a check.
func TestCheckDuringAudits(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := kept(t)
		s.register.add(serial.Explanation{First: 1, Reason: "void", By: "Ada", Start: midnight.AddDate(0, 0, -2)})
		s.stored = s.stored[1:]
		stored, checking := s.series[0].Stored, make(chan struct{})
		s.series[0].Stored = func(ctx context.Context, start, end time.Time) iter.Seq2[string, error] {
			return func(yield func(string, error) bool) {
				if end.Sub(start) > 24*time.Hour {
					<-checking
				}
				stored(ctx, start, end)(yield)
			}
		}
		response, _ := s.send("POST", "/numbers/check", "key=IS")
		require.Equal(t, 303, response.StatusCode)
		time.Sleep(time.Second)
		s.get(200, today)
		s.stored = append(s.stored, numberOf(t, s.counter.rules, "IS", noon, 1)) // twice
		close(checking)
		synctest.Wait()
		require.NotContains(t, s.get(200, seriesPage), "✗", "the page of the day was later, and the other day is explained")
		s.explain(400, "first", "IS202110240001", "reason", "torn")
		require.NotContains(t, s.get(200, seriesPage), "since", "nothing was explained")
	})
}
