package serialpage

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dailyserial/serial"
)

// A function of the application blocks, panics or ends its goroutine. The response to its page and form must come
// within Limit. At the same time, other pages must be served. When the function works again, the page must work again,
// too.
func TestLimit(t *testing.T) {
	for who, set := range map[string]func(s *site, call func()){
		"Series": func(s *site, call func()) {
			series := s.options.Series
			s.options.Series = func(ctx context.Context) ([]Series, error) { call(); return series(ctx) }
		},
		"User": func(s *site, call func()) {
			s.options.User = func(*http.Request) (string, error) { call(); return "Ada", nil }
		},
		"Stored": func(s *site, call func()) {
			s.series[0].Stored = func(ctx context.Context, start, end time.Time) iter.Seq2[string, error] {
				return func(yield func(string, error) bool) { call(); s.yield(ctx, start, end)(yield) }
			}
		},
		"Explanations": func(s *site, call func()) { s.register.read = call },
		"Explain": func(s *site, call func()) {
			s.register.before = func(serial.Explanation) error { call(); return nil }
		},
		"Source": func(s *site, call func()) { s.counter.call = call },
	} {
		for _, how := range []string{"blocks", "panics", "ends the goroutine"} {
			t.Run(who+" "+how, func(t *testing.T) {
				bubble(t, func(t *testing.T) {
					hang, works := make(chan struct{}), false
					s := open(t, func(s *site) {
						other := s.series[0]
						other.Key, other.Source = "other", newCounter(t, s.counter.rules, "IS", 5, noon)
						other.Stored, other.Explanations = s.yield, nil
						s.series = append(s.series, other)
						set(s, func() {
							switch {
							case works:
							case how == "blocks":
								<-hang
							case how == "panics":
								panic("at the application")
							default:
								runtime.Goexit()
							}
						})
					})
					status, logged := 500, map[string]string{"panics": "at the application"}[how]
					if how == "blocks" {
						status, logged = 503, "deadline exceeded"
					}
					began := time.Now()
					if who != "Explain" {
						require.NotContains(t, s.get(status, today, "X-User", "Ada"), "at the application")
					}
					s.explain(status, "first", "IS202110240002", "reason", "torn")
					require.LessOrEqual(t, time.Since(began), 2*s.Limit)
					require.Contains(t, s.log.String(), logged)
					require.Contains(t, s.log.String(), "level=ERROR")
					require.Equal(t, how != "blocks", strings.Contains(s.log.String(), "limit_test.go"), "the stack")
					if who == "Source" {
						page := s.get(200, "/numbers/")
						require.Contains(t, page, "Not available at the moment")
						require.Contains(t, page, "IS202110240005", "the other series")
					}
					s.get(200, "/numbers/style.css")
					if who != "Series" && who != "User" {
						s.get(200, "/numbers/period?key=other&start=2021-10-24T00:00:00Z")
					}
					works = true
					close(hang)
					synctest.Wait()
					s.get(200, today)
					s.explain(303, "first", "IS202110240002", "reason", "torn")
				})
			})
		}
	}
}

// A function panics after the response was sent, or after the client has disconnected. The panic must be logged.
func TestPanicAfterResponse(t *testing.T) {
	bubble(t, func(t *testing.T) {
		proceed := make(chan struct{})
		s := open(t, nil)
		s.series[0].Stored = func(context.Context, time.Time, time.Time) iter.Seq2[string, error] {
			<-proceed
			panic("at the application")
		}
		s.get(503, today)
		require.Contains(t, s.log.String(), "context deadline exceeded")
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		for range 2 {
			close(proceed)
			synctest.Wait()
			require.Contains(t, s.log.String(), "at the application")
			s.log.Reset()
			proceed = make(chan struct{})
			go s.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(ctx, "GET", today, nil))
			synctest.Wait()
			cancel()
			synctest.Wait()
			require.NotContains(t, s.log.String(), "level=ERROR", "a client that disconnects is no failure")
		}
		close(proceed)
	})
}

// The body of a request does not arrive. The request must get a response within Limit, whatever the user and the page
// are.
func TestLimitWithSlowBody(t *testing.T) {
	s := open(t, func(s *site) { s.options.Limit = 200 * time.Millisecond })
	server := httptest.NewServer(s)
	defer server.Close()
	for _, headers := range []string{
		"Content-Length: 100\r\n", "Transfer-Encoding: chunked\r\n",
		"Content-Length: 100\r\nExpect: 100-continue\r\nX-User: Ada\r\n",
	} {
		for _, path := range []string{"/numbers/explain", "/numbers/nothing"} {
			conn, err := net.Dial("tcp", server.Listener.Addr().String())
			require.NoError(t, err)
			require.NoError(t, conn.SetDeadline(time.Now().Add(time.Minute)))
			_, err = fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: %s\r\n"+
				"Content-Type: application/x-www-form-urlencoded\r\n%s\r\n", path, server.Listener.Addr(), headers)
			require.NoError(t, err)
			in := bufio.NewReader(conn)
			response, err := http.ReadResponse(in, nil)
			if err == nil && response.StatusCode == 100 {
				response, err = http.ReadResponse(in, nil)
			}
			require.NoError(t, err, "%s %s", path, headers)
			text, err := io.ReadAll(response.Body)
			require.NoError(t, err)
			require.Equal(t, 503, response.StatusCode)
			require.Contains(t, string(text), "The form took too long to arrive.")
			_, err = in.ReadByte()
			require.ErrorIs(t, err, io.EOF, "the server must not wait for the rest of the body")
			require.NoError(t, conn.Close())
		}
	}
	require.Empty(t, s.log.String(), "clients' mistakes are not logged")
}

// At most one audit may run for a period, and at most two in all. Other requests must get 503 with Retry-After, and
// their pages must reload automatically.
func TestBusy(t *testing.T) {
	bubble(t, func(t *testing.T) {
		release := make(chan struct{})
		s := open(t, func(s *site) {
			first := s.series[0]
			first.Stored = func(context.Context, time.Time, time.Time) iter.Seq2[string, error] {
				s.read.Add(1)
				return func(func(string, error) bool) { <-release }
			}
			s.series = nil
			for _, key := range []string{"A", "B", "C"} {
				first.Key = key
				s.series = append(s.series, first)
			}
		})
		page := func(key string) string { return strings.Replace(today, "key=IS", "key="+key, 1) }
		var work sync.WaitGroup
		for _, key := range []string{"A", "B"} {
			work.Go(func() { s.get(200, page(key)) })
		}
		synctest.Wait()
		for _, key := range []string{"A", "C"} {
			response, text := s.send("GET", page(key), "")
			require.Equal(t, 503, response.StatusCode)
			require.Equal(t, []string{"5", "2"}, []string{response.Header.Get("Retry-After"), response.Header.Get("Refresh")})
			require.Contains(t, text, "This page will reload automatically.")
		}
		require.EqualValues(t, 2, s.read.Load())
		close(release)
		work.Wait()
		s.get(200, page("C"))
		s.get(200, page("A"))
		require.EqualValues(t, 3, s.read.Load(), "a report is reused for a minute")
		time.Sleep(maxReportAge)
		s.get(200, page("A"))
		require.EqualValues(t, 4, s.read.Load())
	})
}

// The client disconnects during an audit. The audit must be completed, so that its report is ready when the client
// returns.
func TestClientDisconnects(t *testing.T) {
	visit(t, nil, func(t *testing.T, s *site) {
		release := make(chan struct{})
		s.register.read = func() { <-release }
		ctx, cancel := context.WithCancel(t.Context())
		go s.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(ctx, "GET", today, nil))
		synctest.Wait()
		cancel()
		synctest.Wait()
		close(release)
		synctest.Wait()
		s.get(200, today)
		require.EqualValues(t, 1, s.read.Load())
	})
}

// While the counters or the application's database are unavailable, the pages that need them must show this, and the
// log must contain the cause. Afterwards, the pages must work again.
func TestUnavailable(t *testing.T) {
	visit(t, nil, func(t *testing.T, s *site) {
		secret := errors.New("secret")
		unused := s.series[0]
		unused.Key, unused.Source = "unused", &counter{rules: s.counter.rules, call: func() {}}
		s.series = append(s.series, unused)
		var failed error
		for i := range s.series {
			s.series[i].Stored = func(context.Context, time.Time, time.Time) iter.Seq2[string, error] {
				return func(yield func(string, error) bool) { yield(s.stored[0], failed) }
			}
		}
		failing := func(statuses ...int) {
			t.Helper()
			for i, path := range []string{"/numbers/", seriesPage, today, todayCSV, strings.Replace(today, "IS", "unused", 1)} {
				require.NotContains(t, s.get(statuses[i], path), "secret")
			}
			require.Contains(t, s.log.String(), "secret")
			s.log.Reset()
		}
		failed = secret
		failing(200, 200, 503, 503, 503)
		failed, s.counter.fails = nil, secret
		failing(200, 503, 503, 503, 200)
		all := s.handler.Series
		s.handler.Series = func(context.Context) ([]Series, error) { return nil, secret }
		failing(503, 503, 503, 503, 503)
		s.handler.Series, s.counter.fails = all, serial.ErrCounterLost
		require.Contains(t, s.get(503, today), "The counter was lost")
		s.counter.fails = nil
		s.get(200, "/numbers/")
		s.get(200, today)
	})
}
