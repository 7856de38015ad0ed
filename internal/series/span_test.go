package series

import (
	"context"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dailyserial/serial/internal/calendar"
)

// The last day ends within a span. The span must be cut at this instant.
func TestSpans(t *testing.T) {
	day := calendar.Calendar{Location: time.UTC, Unit: calendar.Day}
	c := &Config{Calendar: day, Counts: "days", PrintMark: "aa", Until: 86400 + 3600, Template: `{"}`, Retention: 2,
		SpanAt: func(at time.Time) (calendar.Span, error) {
			return wholePeriod(&day, at), nil
		}}
	s := newSpans(c)
	first := s.at(time.Unix(5, 0))
	require.Equal(t, "19700101 0 86400 days"+version+" #aa", first.period)
	require.Equal(t, []any{int64(0), int64(86400), int64(3 * 86400)}, []any{first.from, first.to, first.expires})
	require.Equal(t, `"19700101" "{\"}"`, first.printed)
	require.Same(t, first, s.at(time.Unix(86399, 0)))
	last := s.at(time.Unix(86400, 0))
	require.Equal(t, []any{int64(86400), int64(86400 + 3600), false}, []any{last.from, last.to, last.Over})
	over := s.at(time.Unix(86400+3600, 0))
	require.Equal(t, []any{int64(86400 + 3600), int64(2 * 86400), true}, []any{over.from, over.to, over.Over})
	require.Same(t, over, s.at(time.Unix(2*86400-1, 0)))
	require.Same(t, last, func() *Target { s.latest.Store(last); return s.at(time.Unix(86400, 0)) }())

	c.Until, c.Reserve = 0, func(_ context.Context, _, _ string, _, _ int64) (int64, error) { return 0, nil }
	require.Equal(t, "19700101 0 86400 days"+version+" #aa ledger", newSpans(c).at(time.Unix(5, 0)).period)
}

// A clock must treat the time of the server as the time in the middle of the round trip.
func TestClock(t *testing.T) {
	var k clock
	sent := time.Now()
	learn := func(ahead, trip time.Duration) (offset, before time.Duration) {
		return k.learn(sent.Add(trip/2+ahead).Truncate(time.Microsecond), sent, sent.Add(trip))
	}
	offset, before := learn(time.Hour, 8*time.Millisecond)
	require.Zero(t, before)
	require.InDelta(t, time.Hour, offset, 2000)
	offset, before = learn(-time.Hour, 24*time.Millisecond)
	require.InDelta(t, time.Hour, before, 2000)
	require.InDelta(t, -time.Hour, offset, 2000)
	require.EqualValues(t, 12*time.Millisecond, k.trip.Load())
	offset, before = k.learn(time.Time{}, sent, sent.Add(12*time.Millisecond))
	require.Zero(t, offset+before)
	require.InDelta(t, -time.Hour+6*time.Millisecond, time.Until(k.arrival()), float64(time.Millisecond))
	require.Equal(t, time.Duration(math.MaxInt64), duration(math.MaxInt64/1000+1e9))
}
