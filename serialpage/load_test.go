package serialpage

import (
	"context"
	"errors"
	"fmt"
	"html"
	"iter"
	"net"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/dailyserial/serial"
)

// A page shows a thousand series, and four readers read all pages at once. A reader gets the page, or a 503 that
// says when to retry.
func TestManySeriesAndReaders(t *testing.T) {
	s := open(t, func(s *site) {
		s.options.Limit = time.Hour // speed is not tested here
		one := s.series[0]
		s.series = nil
		for i := range 1001 {
			one.Key, one.Name = fmt.Sprintf("K%04d", i), ""
			one.Type = fmt.Sprintf("T%04d", i)
			if i%100 == 0 {
				_, err := s.gen.NextN(t.Context(), one.Type, i+1)
				require.NoError(t, err)
			}
			s.series = append(s.series, one)
		}
	})
	page := s.get(200, "/numbers/")
	require.Equal(t, 1000, strings.Count(page, `<th role="rowheader"`))
	require.Contains(t, page, "1\u202f001 series")
	require.Contains(t, page, "Only the first 1\u202f000 are shown.")
	require.Contains(t, page, "T0900202110240901")
	const readers = 4 // with 10, some waited for a busy machine longer than a call waits for Redis
	s.series = s.series[:readers]
	var work sync.WaitGroup
	for i := range readers {
		work.Go(func() {
			key := fmt.Sprintf("K%04d", i)
			for _, path := range []string{"", "series?key=" + key, "period?key=" + key + "&start=2021-10-24T00:00:00Z",
				"period.csv?key=K0000&start=2021-10-24T00:00:00Z", "nothing"} {
				response, text := s.send("GET", "/numbers/"+path, "")
				switch status := response.StatusCode; {
				case strings.HasPrefix(path, "period") && status == 503:
					require.NotEmpty(t, response.Header.Get("Retry-After"))
				case path == "nothing":
					require.Equal(t, 404, status)
				default:
					require.Equal(t, 200, status, text)
				}
			}
		})
	}
	work.Wait()
	s.idle()
}

// The page of a period with ten million numbers stays small.
func TestTenMillion(t *testing.T) {
	many := int64(100_000)
	if os.Getenv("SERIAL_TEST_LONG") == "1" {
		many = 10_000_000
	}
	s := open(t, func(s *site) { large(t, s, many) })
	began := time.Now()
	page := s.get(200, today)
	t.Logf("an account of %d numbers took %v", many, time.Since(began))
	require.Contains(t, page, `<td role="cell" class="right">`+count(many-many/50)+`</td>`)
	require.Contains(t, page, "only the first 1\u202f000 are listed")
	require.Less(t, len(page), 200_000)
	require.Less(t, len(s.get(200, strings.Replace(today, "period", "period.json", 1))), 200_000)
	response, table := s.send("GET", strings.Replace(today, "period", "period.csv", 1), "")
	require.Less(t, len(table), 200_000)
	require.Equal(t, `attachment; filename="numbers-IS-20211024.csv"`, response.Header.Get("Content-Disposition"))
	counts := map[string]int64{}
	for _, line := range csvOf(t, table)[1:] {
		n, err := strconv.ParseInt(line[3], 10, 64)
		require.NoError(t, err)
		counts[line[0]] += n
	}
	require.Equal(t, map[string]int64{"issued": many, "stored": many - many/50, "missing": many / 50,
		"not explained": many / 50}, counts)
	require.EqualValues(t, 1, s.read.Load())
}

// large gives the site a period of many numbers, every fiftieth of which is missing, each a separate gap.
func large(t testing.TB, s *site, many int64) {
	rdb := redis.NewClient(&redis.Options{Addr: s.redis.Addr()})
	t.Cleanup(func() { _ = rdb.Close() })
	gen, err := serial.New(rdb, serial.WithLocation(time.UTC), serial.WithMaxSkew(-1), serial.WithKeyPrefix("large"),
		serial.WithTemplate("{type}{date:yyyyMMdd}{seq:8}"))
	require.NoError(t, err)
	require.NoError(t, gen.Raise(t.Context(), "IS", many))
	s.options.Limit = time.Hour
	s.series = []Series{{Type: "IS", Source: Redis(gen), Explanations: s.register,
		Stored: func(ctx context.Context, _, _ time.Time) iter.Seq2[string, error] {
			s.read.Add(1)
			return func(yield func(string, error) bool) {
				number := []byte("IS2021102400000000")
				for seq := int64(1); seq <= many; seq++ {
					for i := len(number) - 1; ; i-- { // increment the number
						if number[i]++; number[i] <= '9' {
							break
						}
						number[i] = '0'
					}
					if seq%50 != 0 && !yield(string(number), ctx.Err()) {
						return
					}
				}
			}
		}}}
}

func BenchmarkTenMillion(b *testing.B) {
	s := open(b, func(s *site) { large(b, s, 10_000_000) })
	for b.Loop() {
		s.handler().audits.forget(periodKey{"IS", s.start.Unix()})
		s.get(200, today)
	}
}

// While the application's database is down, pages that need it say so. Afterwards, they work again.
func TestDatabaseAway(t *testing.T) {
	var away error
	s := open(t, func(s *site) {
		stored, series := s.yield, s.options.Series
		s.series = append(s.series, Series{Type: "unused", Source: s.series[0].Source})
		s.series[0].Stored = func(ctx context.Context, start, end time.Time) iter.Seq2[string, error] {
			return func(yield func(string, error) bool) {
				if away != nil {
					yield("", away)
					return
				}
				stored(ctx, start, end)(yield)
			}
		}
		s.series[1].Stored = s.series[0].Stored
		s.options.Series = func(ctx context.Context) ([]Series, error) {
			if errors.Is(away, net.ErrClosed) {
				return nil, away
			}
			return series(ctx)
		}
	})
	for _, away = range []error{errors.New("secret"), net.ErrClosed} {
		for _, path := range []string{today, strings.Replace(today, "period", "period.csv", 1)} {
			require.NotContains(t, s.get(503, path), away.Error())
		}
		require.Contains(t, s.log.String(), away.Error())
		s.get(503, strings.Replace(today, "key=IS", "key=unused", 1)) // a series without numbers
		status := 200
		if errors.Is(away, net.ErrClosed) {
			status = 503
		}
		s.get(status, "/numbers/")
		s.get(status, "/numbers/series?key=IS")
	}
	away = nil
	s.get(200, "/numbers/")
	s.get(200, today)
}

// If Redis accepts requests but never answers, pages are still answered within Limit.
func TestRedisHangs(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { _ = listener.Close() }()
	go func() {
		for {
			if _, err := listener.Accept(); err != nil {
				return
			}
		}
	}()
	s := open(t, func(s *site) {
		rdb := redis.NewClient(&redis.Options{Addr: listener.Addr().String()})
		t.Cleanup(func() { _ = rdb.Close() })
		gen, err := serial.New(rdb, serial.WithLocation(time.UTC))
		require.NoError(t, err)
		s.series[0].Source = Redis(gen)
		s.options.Limit = 500 * time.Millisecond
	})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // without the limit, the client would give up
	defer cancel()
	for path, status := range map[string]int{"/numbers/": 200, "/numbers/series?key=IS": 503, today: 503} {
		r, err := http.NewRequestWithContext(ctx, "GET", s.URL+path, nil)
		require.NoError(t, err)
		began := time.Now()
		response, err := s.Client().Do(r)
		require.NoError(t, err)
		require.NoError(t, response.Body.Close())
		require.Equal(t, status, response.StatusCode)
		t.Log(path, time.Since(began))
	}
}

// Without Stored, the pages show what was issued, and no result.
func TestWithoutStored(t *testing.T) {
	s := open(t, func(s *site) { s.series[0].Stored = nil })
	page := s.get(200, today, "X-User", "Ada")
	require.Contains(t, page, "5 numbers were issued")
	require.Contains(t, page, "This page cannot check which of them are stored.")
	for _, never := range []string{explaining, "accounted for", "Missing", "csv"} {
		require.NotContains(t, page, never)
	}
	for _, format := range []string{"csv", "json"} {
		s.get(404, strings.Replace(today, "period", "period."+format, 1))
	}
	for _, path := range []string{"", "series?key=IS"} {
		page := s.get(200, "/numbers/"+path)
		require.NotContains(t, page, "discrepancies")
		require.NotContains(t, page, "accounted for")
	}
	s.explain(403, "first", "IS202110240002", "reason", "x")
}

// Series of gapless have the same pages, which also show the closed periods.
func TestGaplessSeries(t *testing.T) {
	s, _ := sample(t, nil)
	i := slices.IndexFunc(s.series, func(one Series) bool { return one.Type == "INV" })
	if i < 0 {
		t.Skip("SQLite is tested only without the race detector")
	}
	month := time.Date(s.start.Year(), s.start.Month(), 1, 0, 0, 0, 0, time.UTC)
	series := s.get(200, "/numbers/series?key=INV")
	require.Equal(t, 1, strings.Count(series, `<span class="tag">closed</span>`))
	require.Contains(t, series, month.AddDate(0, -2, 0).Format("January 2006")+`</a> <span class="tag">closed</span>`)
	require.Contains(t, series, month.Format("January 2006")+`</a> <span class="tag">current</span>`)
	require.Contains(t, s.get(200, "/numbers/"), "INV-"+month.Format("200601")+"-0064")
	for back, closed := range map[int]bool{0: false, 1: false, 2: true} {
		page := s.get(200, "/numbers/"+address("period", "INV", month.AddDate(0, -back, 0)), "X-User", "Ada")
		require.Equal(t, closed, strings.Contains(page, `<span class="tag">closed</span>`))
		require.Equal(t, back == 0, strings.Contains(page, "This period has not ended."))
		require.Contains(t, page, "✓ All numbers are accounted for.")
	}
	require.Contains(t, s.get(200, "/numbers/"+address("period", "INV", month.AddDate(0, -3, 0))), ">Issued</th>"+
		`<td role="cell" class="right">0</td>`)
}

// Types that look like paths do not change the path of a page.
func TestTypesLikePaths(t *testing.T) {
	types := []string{"..", ".", "A/B", "../../x", "/", "Z-9_."}
	s := open(t, func(s *site) {
		one := s.series[0]
		s.series, s.stored = nil, nil
		for _, typ := range types {
			number, err := s.gen.Next(t.Context(), typ)
			require.NoError(t, err)
			s.stored = append(s.stored, number)
			one.Type, one.Name, one.Key = typ, "", ""
			s.series = append(s.series, one)
		}
	})
	base, err := url.Parse(s.URL + "/numbers/")
	require.NoError(t, err)
	follow := func(page, kind string) []string {
		var all []string
		for _, m := range regexp.MustCompile(`href="(`+kind+`\?[^"]*)"`).FindAllStringSubmatch(page, -1) {
			u, err := base.Parse(html.UnescapeString(m[1]))
			require.NoError(t, err)
			all = append(all, u.RequestURI())
		}
		return all
	}
	series := follow(s.get(200, "/numbers/"), "series")
	require.Len(t, series, len(types))
	for i, address := range series {
		page := s.get(200, address)
		require.Contains(t, page, "<h1><bdi>"+html.EscapeString(types[i])+"</bdi></h1>")
		periods := follow(page, "period")
		require.Len(t, periods, 1)
		require.Contains(t, s.get(200, periods[0]), `<td role="cell" class="right">1</td>`)
	}
}
