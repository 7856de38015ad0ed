package serialpage

import (
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/dailyserial/serial"
)

// The counters of the series are in Redis. The pages must show numbers with a type, and numbers without types, which
// have the name of the series. If Redis is unavailable or has lost a counter, the pages must show this.
func TestRedis(t *testing.T) {
	m := miniredis.RunT(t)
	rdb := redis.NewClient(&redis.Options{Addr: m.Addr()})
	t.Cleanup(func() { require.NoError(t, rdb.Close()) })
	generator := func(opts ...serial.Option) *serial.Generator {
		gen, err := serial.New(rdb, append(opts, serial.WithLocation(time.UTC), serial.WithMaxSkew(-1))...)
		require.NoError(t, err)
		return gen
	}
	orders := generator(serial.WithRetention(9))
	plain := generator(serial.WithKeyPrefix("plain"), serial.WithTemplate("{date:yyyyMMdd}-{seq:3}"),
		serial.WithSharedCounter())
	s := open(t, func(s *site) {
		s.stored = nil
		for _, at := range []time.Time{noon.AddDate(0, 0, -1), noon} {
			m.SetTime(at)
			numbers, err := orders.NextN(t.Context(), "IS", 3)
			require.NoError(t, err)
			s.stored = append(s.stored, numbers[0].String(), numbers[2].String())
		}
		_, err := plain.Next(t.Context(), "")
		require.NoError(t, err)
		s.series[0].Source = Redis(orders)
		s.series = append(s.series, Series{Source: Redis(plain), Stored: s.yield})
	})
	overview := s.get(200, "/numbers/")
	for _, part := range []string{"IS202110240003", "plain:*", "20211024-001", "23 October 2021: 3"} {
		require.Contains(t, overview, part)
	}
	require.Contains(t, pageText(s.check("IS")), "23 October 2021 IS202110230001 IS202110230003 3 2 0 1 ✗ disc")
	page := pageText(s.get(200, today))
	require.Contains(t, page, "Issued3 IS202110240001 – IS202110240003")
	require.NotContains(t, page, "Closed", "Redis does not close periods")
	require.Contains(t, s.get(404, "/numbers/period?key=IS&start=2021-10-22T00:00:00Z"), "Nothing is known about")

	time.Sleep(time.Millisecond)
	s.forget()
	m.SetError("LOADING")
	require.Contains(t, s.get(200, "/numbers/"), "Not available at the moment")
	require.Contains(t, s.get(503, today), "not available at the moment")
	require.Contains(t, s.log.String(), "LOADING")
	m.SetError("")
	s.get(200, today)
	s.forget()
	m.Del("serial:{IS}:20211024")
	require.Contains(t, s.get(200, "/numbers/"), "The counter was lost")
	require.Contains(t, s.get(503, today), "The counter was lost")
}
