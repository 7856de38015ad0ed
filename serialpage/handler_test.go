package serialpage

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dailyserial/serial"
)

// broken is a register whose functions call another one instead.
type broken struct{ call func() }

func (b broken) Explain(context.Context, serial.Explanation) error { b.call(); return nil }

func (b broken) Explanations(context.Context, string, time.Time) iter.Seq2[serial.Explanation, error] {
	return func(func(serial.Explanation, error) bool) { b.call() }
}

// brokenSource is a Source whose functions call another one before.
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

// Whatever a function of the application does, a page and a form are answered within Limit, and others are served
// meanwhile.
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
					s.options.Limit = 400 * time.Millisecond
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
					require.Contains(t, page, "IS202110240005", "of the other series")
				}
				if how != "blocks" {
					require.Contains(t, s.log.String(), map[string]string{"panics": "at the application",
						"ends the goroutine": "runtime.Goexit"}[how])
					require.Contains(t, s.log.String(), "handler_test.go", "the stack")
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

// A function of the application that panics fails the page that has called it, and nothing else. However often it does,
// other pages get their turn, and so does the same page when the function works again.
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
				require.Contains(t, s.log.String(), "handler_test.go", "the stack")
			}
			s.get(200, "/numbers/period?key=other&start=2021-10-24T00:00:00Z")
			panics.Store(false)
			s.get(200, today)
			s.explain(303, "first", "IS202110240002", "reason", "torn")
			require.Len(t, s.said(), 1)
		})
	}
}

// registerBefore calls a function in Explanations, before it returns the iterator.
type registerBefore struct {
	*register
	call func()
}

func (r registerBefore) Explanations(ctx context.Context, series string, start time.Time) iter.Seq2[
	serial.Explanation, error] {
	r.call()
	return r.register.Explanations(ctx, series, start)
}

// A panic is logged even if the page was answered before it.
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

// lines gets what is written to a log.
type lines chan string

func (l lines) Write(line []byte) (int, error) {
	l <- string(line)
	return len(line), nil
}

// A form whose body does not come is answered within Limit, whether or not anybody is logged in, and so is what is sent
// to another page.
func TestLimitOfBody(t *testing.T) {
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
	require.Empty(t, s.log.String(), "what clients do wrong")
}

// The last day of the year 9999 ends in a year that RFC 3339 does not have.
func TestYear9999(t *testing.T) {
	west := time.FixedZone("west", -5*3600)
	for _, c := range []struct {
		at   time.Time
		opts []serial.Option
	}{
		{time.Date(9999, 12, 31, 12, 0, 0, 0, time.UTC), nil},
		{time.Date(9999, 12, 31, 12, 0, 0, 0, time.UTC), []serial.Option{serial.WithPeriod(serial.PerYear),
			serial.WithTemplate("{type}{date:yyyy}{seq:4}")}},
		{time.Date(9999, 12, 31, 23, 30, 0, 0, west), []serial.Option{serial.WithLocation(west),
			serial.WithPeriod(serial.PerHour), serial.WithTemplate("{type}{date:yyyyMMddHH}{seq:4}")}},
	} {
		scheme, err := serial.NewScheme(append([]serial.Option{serial.WithLocation(time.UTC)}, c.opts...)...)
		require.NoError(t, err)
		s := open(t, func(s *site) { s.series[0].Source = fixed{scheme, 3, c.at} })
		page := s.get(200, "/numbers/series?key=IS")
		period := s.periods(page)[0]
		require.Contains(t, s.get(200, "/numbers/"+period), "✗ Not all numbers are accounted for.")
		var out struct {
			Start time.Time
			End   *time.Time
			Last  int64
		}
		text := s.get(200, "/numbers/"+strings.Replace(period, "period", "period.json", 1))
		require.NoError(t, json.Unmarshal([]byte(text), &out))
		_, start, _ := scheme.Period(c.at)
		require.True(t, start.Equal(out.Start))
		require.Nil(t, out.End)
		require.EqualValues(t, 3, out.Last)
	}
}

// fixed is a Source with so many numbers in one period.
type fixed struct {
	of   *serial.Scheme
	seq  int64
	when time.Time
}

func (f fixed) scheme() *serial.Scheme { return f.of }

func (f fixed) last(_ context.Context, typ string) (serial.Number, error) {
	n, err := f.of.Number(typ, f.when, f.seq)
	return n, err
}

func (f fixed) history(ctx context.Context, typ string, _ int) ([]serial.Number, error) {
	n, err := f.last(ctx, typ)
	return []serial.Number{n}, err
}

func (f fixed) audit(_ context.Context, typ string, at time.Time, used iter.Seq2[string, error],
	opts ...serial.AuditOption) (serial.Report, error) {
	_, start, end := f.of.Period(f.when)
	last := f.seq
	if at.Before(start) || !at.Before(end) {
		last = 0
	}
	return f.of.Audit(typ, at, last, used, opts...)
}

func (f fixed) closed(context.Context, string) (time.Time, error) { return time.Time{}, nil }

// Times are those of the series' zone. A zone without a name of its own is described.
func TestZones(t *testing.T) {
	tokyo, err := time.LoadLocation("Asia/Tokyo")
	require.NoError(t, err)
	in := func(zone *time.Location) Source {
		scheme, err := serial.NewScheme(serial.WithLocation(zone))
		require.NoError(t, err)
		return fixed{scheme, 3, time.Now()}
	}
	s := open(t, nil)
	local := strings.TrimSuffix(time.Now().Format("MST (UTC-07:00)"), " (UTC+00:00)")
	for want, zone := range map[string]*time.Location{
		"Time zone: Asia/Tokyo.": tokyo, "Time zone: UTC.": time.UTC, "Time zone: the server’s, " + local + ".": time.Local,
		"Time zone: UTC+05:45.": time.FixedZone("", 5*3600+45*60),
	} {
		s.series[0].Source = in(zone)
		text := textOf(s.get(200, "/numbers/series?key=IS"))
		require.Contains(t, text, want)
	}
	s.series = []Series{{Key: "1", Type: "IS", Source: in(tokyo)}, {Key: "2", Type: "IS", Source: in(tokyo)}}
	require.Regexp(t, `2 series, as of .* JST `, textOf(s.get(200, "/numbers/")))
	s.series[1].Source = in(time.FixedZone("west", -3600))
	require.Regexp(t, `2 series, as of .* UTC `, textOf(s.get(200, "/numbers/")))
}

// What the application or a person supplies cannot change the direction of the text around it.
func TestDirection(t *testing.T) {
	const typ = "א"
	supplied := []string{typ, "שלום\u202e", "הלך לאיבוד", "מרים", "\u202eforeign", "אבד"}
	s := open(t, func(s *site) {
		numbers, err := s.gen.NextN(t.Context(), typ, 3)
		require.NoError(t, err)
		s.stored = []string{numbers[0].String(), numbers[0].String(), supplied[4]}
		e := serial.Explanation{Series: "serial:" + typ, Type: typ, Start: s.start, First: 2, Last: 2, Reason: supplied[2],
			By: supplied[3], At: s.start}
		corrected, possible := e, e
		corrected.Reason, possible.Reason = supplied[5], supplied[5]
		possible.Last, possible.Possible = 3, true
		s.register.all = []serial.Explanation{e, corrected, possible}
		s.series[0].Name, s.series[0].Type = supplied[1], typ
	})
	key := url.QueryEscape(typ)
	for _, path := range []string{"", "series?key=" + key, "period?key=" + key + "&start=2021-10-24T00:00:00Z"} {
		_, body, _ := strings.Cut(s.get(200, "/numbers/"+path, "X-User", "Ada"), "<body>")
		outside := textOf(regexp.MustCompile(`<bdi[^>]*>[^<]*</bdi>`).ReplaceAllString(body, ""))
		for i, text := range supplied {
			require.True(t, i > 1 && !strings.HasPrefix(path, "period") || strings.Contains(body, text), text)
			require.NotContains(t, outside, text)
		}
	}
}
