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

// Every reader must see the progress of a check. The check continues after its request, and is stopped when the context
// of the service is canceled. It then has no result, and the result of an earlier check still counts. At most two
// checks run at the same time.
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
		require.Equal(t, 303, response.StatusCode, "the check is running")
		response, _ = s.send("POST", "/numbers/check", "key=B")
		require.Equal(t, 303, response.StatusCode)
		synctest.Wait()
		response, page := s.send("POST", "/numbers/check", "key=C")
		require.Equal(t, 503, response.StatusCode)
		require.Contains(t, page, "Other series are being checked.")
		page = s.get(200, seriesPage)
		require.Contains(t, page, "A check of all periods is running. It began on 24 October 2021, 13:00 UTC, and has read "+
			"6 numbers so far. ")
		require.Contains(t, page, `<a class="screen" href="series?key=IS">Show progress</a>`)
		require.NotContains(t, page, "Check all periods</button>")

		time.Sleep(7 * time.Minute)
		cancel()
		synctest.Wait()
		page = s.get(200, seriesPage)
		require.Contains(t, page, "The check of all periods that began on 24 October 2021, 13:00 UTC failed, so it has no "+
			"result.")
		require.Contains(t, page, "The last complete check began on 24 October 2021, 12:00 UTC, and covered 2 periods.")
		require.Contains(t, s.log.String(), "a check of all periods failed")
		require.Contains(t, s.check("IS", 503), "again in 70 minutes.", "ten times as long as it took")
	})
}

// A check must end after CheckLimit. If it does not finish in that time, or if Stored panics, it must have no result.
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
			require.Contains(t, page, "failed, so it has no result.")
			require.Contains(t, page, unchecked)
			time.Sleep(24 * time.Hour)
		}
		require.Contains(t, s.log.String(), "context deadline exceeded")
		require.Contains(t, s.log.String(), "no table")
	})
}

// Every reader may start a check, but not from another site. No other request may start one.
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

// During a check, a later audit of one of the periods ends. The result of the check must not replace the result of the
// audit. An explanation must count in the check, whatever its period is.
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
		s.stored = append(s.stored, printed(t, s.counter.rules, "IS", noon, 1)) // twice
		close(checking)
		synctest.Wait()
		require.NotContains(t, s.get(200, seriesPage), "✗", "the page of the day was later, and the other day is explained")
		s.explain(400, "first", "IS202110240001", "reason", "torn")
		require.NotContains(t, s.get(200, seriesPage), "since", "no number was explained")
	})
}
