package serialotel_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dailyserial/serial"
	"github.com/dailyserial/serial/internal/race"
)

// Spans and events name the series that all types share.
func TestSharedCounter(t *testing.T) {
	race.Bubble(t, func(t *testing.T) {
		m, client := simulate(t)
		o := observe(t)
		hooks := o.hooks()
		gen := newGenerator(t, client, hooks, serial.WithSharedCounter(), serial.WithTemplate("{type}{date:yyyyMMdd}{seq:1}"))
		ctx, caller := o.caller(t.Context())
		require.NoError(t, errOf(gen.Next(ctx, "FA")))
		require.NoError(t, errOf(gen.NextN(ctx, "AV", 7)))
		m.Del("serial:{*}:20000101")
		require.ErrorIs(t, errOf(gen.Next(ctx, "FA")), serial.ErrCounterLost)
		caller.End()
		var got []string
		for _, span := range o.spans.GetSpans() {
			got = append(got, list(span.Attributes))
			for _, event := range span.Events {
				if event.Name != "exception" {
					got = append(got, event.Name+" "+list(event.Attributes))
				}
			}
		}
		require.Equal(t, []string{
			"type=FA period.start=2000-01-01T00:00:00Z sequence=1 count=1 series=serial:*",
			"type=AV period.start=2000-01-01T00:00:00Z sequence=8 count=7 series=serial:*",
			"error.type=counter_lost requested=1 series=serial:* type=FA",
			"",
			"serial.period.opened type=FA period.start=2000-01-01T00:00:00Z period.wait=0 series=serial:*",
			"serial.period.nearly_exhausted type=AV period.start=2000-01-01T00:00:00Z used=8 size=9 series=serial:*",
			"serial.counter.lost type=FA period.start=2000-01-01T00:00:00Z repaired=false series=serial:*",
		}, got)
	})
}
