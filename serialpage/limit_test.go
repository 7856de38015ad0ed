package serialpage

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"net"
	"net/http"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dailyserial/serial"
)

// broken is a register that calls a function instead of storing and reading.
type broken struct{ call func() }

func (b broken) Explain(context.Context, serial.Explanation) error { b.call(); return nil }

func (b broken) Explanations(context.Context, string, time.Time) iter.Seq2[serial.Explanation, error] {
	return func(func(serial.Explanation, error) bool) { b.call() }
}

// brokenSource is a Source that calls a function first.
type brokenSource struct {
	Source
	call func()
}

func (b brokenSource) last(ctx context.Context, typ string) (serial.Number, error) {
	b.call()
	return b.Source.last(ctx, typ)
}

func (b brokenSource) history(ctx context.Context, typ string, periods int) ([]serial.Number, error) {
	b.call()
	return b.Source.history(ctx, typ, periods)
}

func (b brokenSource) audit(ctx context.Context, typ string, at time.Time, used iter.Seq2[string, error],
	opts ...serial.AuditOption) (serial.Report, error) {
	b.call()
	return b.Source.audit(ctx, typ, at, used, opts...)
}

// Whatever a function of the application does, its page and form are answered within Limit, and other pages are served
// at the same time.
func TestLimit(t *testing.T) {
	hang := make(chan struct{})
	defer close(hang)
	explain := []string{"first", "IS202110240002", "reason", "torn"}
	for how, call := range map[string]func(){
		"blocks": func() { <-hang }, "panics": func() { panic("at the application") }, "ends the goroutine": runtime.Goexit,
	} {
		for who, set := range map[string]func(s *site, call func()){
			"Series": func(s *site, call func()) {
				series := s.options.Series
				s.options.Series = func(ctx context.Context) ([]Series, error) { call(); return series(ctx) }
			},
			"User": func(s *site, call func()) {
				s.options.User = func(*http.Request) (string, error) { call(); return "Ada", nil }
			},
			"Stored": func(s *site, call func()) {
				s.series[0].Stored = func(context.Context, time.Time, time.Time) iter.Seq2[string, error] {
					return func(func(string, error) bool) { call() }
				}
			},
			"Explanations": func(s *site, call func()) { s.series[0].Explanations = broken{call} },
			"Source":       func(s *site, call func()) { s.series[0].Source = brokenSource{s.series[0].Source, call} },
		} {
			t.Run(who+" "+how, func(t *testing.T) {
				s := open(t, func(s *site) {
					if how == "blocks" {
						s.options.Limit = 2 * time.Second // even on a busy machine, the other series takes less
					}
					s.series = append(s.series, Series{Key: "other", Type: "IS", Source: s.series[0].Source})
					set(s, call)
				})
				status, says := 500, "This request failed."
				if how == "blocks" {
					status, says = 503, "not available right now"
				}
				require.Contains(t, s.get(status, today, "X-User", "Ada"), says)
				page, _ := s.explain(status, explain...)
				require.NotContains(t, page, "at the application")
				if who == "Source" {
					page := s.get(200, "/numbers/")
					require.Contains(t, page, "Not available right now")
					require.Contains(t, page, "IS202110240005", "the other series")
				}
				if how != "blocks" {
					require.Contains(t, s.log.String(), map[string]string{"panics": "at the application",
						"ends the goroutine": "runtime.Goexit"}[how])
					require.Contains(t, s.log.String(), "limit_test.go", "the stack")
				}
				require.Contains(t, s.log.String(), "level=ERROR")
				s.get(200, "/numbers/style.css")
				if who != "Series" && who != "User" {
					s.get(200, "/numbers/period?key=other&start=2021-10-24T00:00:00Z")
				}
			})
		}
	}
}

// If a function of the application panics, only the page that called it fails. Other pages are served, and this one
// works again when the function does.
func TestPanic(t *testing.T) {
	for who, set := range map[string]func(s *site, call func()){
		"Stored": func(s *site, call func()) {
			s.series[0].Stored = func(ctx context.Context, start, end time.Time) iter.Seq2[string, error] {
				call()
				return s.yield(ctx, start, end)
			}
		},
		"Stored's iterator": func(s *site, call func()) {
			s.series[0].Stored = func(ctx context.Context, start, end time.Time) iter.Seq2[string, error] {
				return func(yield func(string, error) bool) {
					s.yield(ctx, start, end)(func(number string, err error) bool { call(); return yield(number, err) })
				}
			}
		},
		"Explain": func(s *site, call func()) {
			s.series[0].Explanations = registerWith{s.register, call, func() {}}
		},
		"Explanations": func(s *site, call func()) {
			s.series[0].Explanations = registerBefore{s.register, call}
		},
		"Explanations' iterator": func(s *site, call func()) {
			s.series[0].Explanations = registerWith{s.register, func() {}, call}
		},
	} {
		t.Run(who, func(t *testing.T) {
			var panics atomic.Bool
			panics.Store(true)
			s := open(t, func(s *site) {
				s.series = append(s.series, Series{Key: "other", Type: "IS", Source: s.series[0].Source, Stored: s.yield})
				set(s, func() {
					if panics.Load() {
						panic("at the application")
					}
				})
			})
			for range 2 * atOnce {
				s.log.Reset()
				if who != "Explain" {
					require.NotContains(t, s.get(500, today), "at the application")
				}
				page, _ := s.explain(500, "first", "IS202110240002", "reason", "torn")
				require.NotContains(t, page, "at the application")
				require.Contains(t, s.log.String(), "at the application")
				require.Contains(t, s.log.String(), "limit_test.go", "the stack")
			}
			s.get(200, "/numbers/period?key=other&start=2021-10-24T00:00:00Z")
			panics.Store(false)
			s.get(200, today)
			s.explain(303, "first", "IS202110240002", "reason", "torn")
			require.Len(t, s.said(), 1)
		})
	}
}

// registerBefore calls a function before Explanations returns the iterator.
type registerBefore struct {
	*register
	call func()
}

func (r registerBefore) Explanations(ctx context.Context, series string, start time.Time) iter.Seq2[
	serial.Explanation, error] {
	r.call()
	return r.register.Explanations(ctx, series, start)
}

// A panic is logged even if the page was already answered.
func TestPanicAfterLimit(t *testing.T) {
	answered, logged := make(chan struct{}), make(lines, 10)
	s := open(t, func(s *site) {
		s.options.Limit = 200 * time.Millisecond
		s.options.Logger = slog.New(slog.NewTextHandler(logged, nil))
		s.series[0].Stored = func(context.Context, time.Time, time.Time) iter.Seq2[string, error] {
			<-answered
			panic("at the application")
		}
	})
	s.get(503, today)
	require.Contains(t, <-logged, "context deadline exceeded")
	close(answered)
	require.Contains(t, <-logged, "at the application")
	s.idle()
}

// A panic is logged even if the client has left.
func TestPanicAfterClientLeft(t *testing.T) {
	entered, left, logged := make(chan struct{}), make(chan struct{}), make(lines, 10)
	s := open(t, func(s *site) {
		s.options.Logger = slog.New(slog.NewTextHandler(logged, nil))
		s.series[0].Stored = func(context.Context, time.Time, time.Time) iter.Seq2[string, error] {
			close(entered)
			<-left
			panic("at the application")
		}
		series := s.options.Series
		s.options.Series = func(ctx context.Context) ([]Series, error) {
			context.AfterFunc(ctx, func() { close(left) }) // the server has noticed
			return series(ctx)
		}
	})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, "GET", s.URL+today, nil)
	require.NoError(t, err)
	go func() { <-entered; cancel() }()
	_, err = s.Client().Do(r)
	require.ErrorIs(t, err, context.Canceled)
	require.Contains(t, <-logged, "at the application")
	s.idle()
}

// lines receives the lines of a log.
type lines chan string

func (l lines) Write(line []byte) (int, error) {
	l <- string(line)
	return len(line), nil
}

// If the body of a request does not arrive, the request is answered within Limit, whatever the user and the page.
func TestLimitOfSlowBody(t *testing.T) {
	s := open(t, func(s *site) { s.options.Limit = 200 * time.Millisecond })
	for _, headers := range []string{
		"Content-Length: 100\r\n", "Transfer-Encoding: chunked\r\n", "Content-Length: 100\r\nX-User: Ada\r\n",
		"Content-Length: 100\r\nExpect: 100-continue\r\nX-User: Ada\r\n",
	} {
		for _, path := range []string{"/numbers/explain", "/numbers/", "/numbers/nothing"} {
			conn, err := net.Dial("tcp", s.Listener.Addr().String())
			require.NoError(t, err)
			require.NoError(t, conn.SetDeadline(time.Now().Add(time.Minute)))
			_, err = fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: %s\r\n"+
				"Content-Type: application/x-www-form-urlencoded\r\n%s\r\n", path, s.Listener.Addr(), headers)
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
			require.ErrorIs(t, err, io.EOF, "the server does not wait for the rest either")
			require.NoError(t, conn.Close())
		}
	}
	require.Empty(t, s.log.String(), "clients' mistakes are not logged")
}
