package serialpage

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/dailyserial/serial"
)

// A series that types share shows the numbers of all of them, and one without a type has the name of the series.
func TestSharedCounter(t *testing.T) {
	s := open(t, func(s *site) {
		rdb := redis.NewClient(&redis.Options{Addr: s.redis.Addr()})
		t.Cleanup(func() { require.NoError(t, rdb.Close()) })
		generator := func(opts ...serial.Option) *serial.Generator {
			gen, err := serial.New(rdb, append(opts, serial.WithLocation(time.UTC), serial.WithMaxSkew(-1),
				serial.WithSharedCounter())...)
			require.NoError(t, err)
			return gen
		}
		sales := generator(serial.WithKeyPrefix("sales"))
		s.stored = nil
		for _, typ := range []string{"FA", "AV", "FA", "AV"} {
			number, err := sales.Next(t.Context(), typ)
			require.NoError(t, err)
			s.stored = append(s.stored, number)
		}
		s.stored = s.stored[:3]
		plain := generator(serial.WithKeyPrefix("plain"), serial.WithTemplate("{date:yyyyMMdd}-{seq:3}"))
		_, err := plain.Next(t.Context(), "")
		require.NoError(t, err)
		s.series = []Series{
			{Type: "FA", Name: "Sales", Source: Redis(sales), Stored: s.yield, Explanations: s.register},
			{Source: Redis(plain), Stored: s.yield},
		}
	})
	overview := s.get(200, "/numbers/")
	require.Contains(t, overview, "plain:*")
	require.Contains(t, overview, "20211024-001")
	require.Contains(t, textOf(s.find(404, "AV202113240001")), "its date is not possible")

	page := s.get(200, "/numbers/"+address("period", "FA", s.start))
	require.Contains(t, page, "FA202110240004", "the missing one, whatever its type")
	s.explain(303, "key", "FA", "first", "AV202110240004", "reason", "voided")
	require.Equal(t, []serial.Range{{First: 4, Last: 4}}, s.said())
	require.Equal(t, "sales:*", s.register.all[0].Series)
	require.Contains(t, s.get(200, "/numbers/"+address("series", "plain:*", s.start)), "20211024-001")
}
