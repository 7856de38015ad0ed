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

// Every reader must see the progress of a check, and returns to the list with the chosen dates. The check continues
// after its request, and is stopped when the context of the service is canceled. A check that was stopped has no result,
// and the result of an earlier check still counts. At most two checks run at the same time.
func TestCheckProgress(t *testing.T) {
	visit(t, keep, func(t *testing.T, s *site) {
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
		require.NotContains(t, s.check("IS"), unchecked)
		require.Equal(t, []time.Time{midnight.AddDate(0, 0, -2), midnight.AddDate(0, 0, 1)}, []time.Time{from, to})
		page, _ := s.startCheck("IS", 503)
		require.Contains(t, page, "This series was checked just now. It can be checked again in 1 minute.")
		time.Sleep(time.Hour)

		hang = true
		s.startCheck("IS", 303)
		_, list := s.startCheck("IS&from=2021-10-23&show=discrepancies", 303) // the check is running
		require.Equal(t, "/numbers/series?from=2021-10-23&key=IS&show=discrepancies", list)
		require.Contains(t, s.get(200, list), `"series?from=2021-10-23&amp;key=IS&amp;show=discrepancies">Show progress`)
		s.startCheck("B", 303)
		synctest.Wait()
		page, _ = s.startCheck("C", 503)
		require.Contains(t, page, "Other series are being checked.")
		g := &golden{site: s}
		g.show(200, seriesPage)

		time.Sleep(7 * time.Minute)
		cancel()
		synctest.Wait()
		g.show(200, seriesPage)
		g.compare("check.golden")
		require.Contains(t, s.log.String(), "a check of all periods failed")
		page, _ = s.startCheck("IS", 503)
		require.Contains(t, page, "again in 70 minutes.", "ten times as long as it took")
	})
}

// A check must end after CheckLimit. If it does not finish in that time, or if Stored panics, it must have no result.
func TestCheckFails(t *testing.T) {
	visit(t, keep, func(t *testing.T, s *site) {
		hang := func(ctx context.Context) { <-ctx.Done() }
		for _, fail := range []func(context.Context){hang, func(context.Context) { panic("no table") }} {
			s.series[0].Stored = func(ctx context.Context, _, _ time.Time) iter.Seq2[string, error] {
				return func(func(string, error) bool) { fail(ctx) }
			}
			s.startCheck("IS", 303)
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
	visit(t, keep, func(t *testing.T, s *site) {
		page, _ := s.startCheck("IS", 403, "Origin", "https://evil.example")
		require.Contains(t, page, "from a page of another site")
		s.startCheck("other", 404)
		s.startCheck("IS&from=x", 400)
		s.series[0].Stored = nil
		s.startCheck("IS", 404)
		require.NotContains(t, s.get(200, seriesPage), "Check all periods")
		require.Zero(t, s.read.Load())
	})
}

// During a check, a later audit of one of the periods ends. The result of the check must not replace the result of the
// audit. An explanation must count in the check, whatever its period is.
func TestCheckDuringAudits(t *testing.T) {
	visit(t, keep, func(t *testing.T, s *site) {
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
		s.startCheck("IS", 303)
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
