package serialotel_test

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/dailyserial/serial"
	"github.com/dailyserial/serial/serialotel"
)

// errOf returns the error of a call.
func errOf[T any](_ T, err error) error { return err }

// observer holds everything that was recorded.
type observer struct {
	t       *testing.T
	reader  *sdkmetric.ManualReader
	meters  *sdkmetric.MeterProvider
	spans   *tracetest.InMemoryExporter
	tracers *sdktrace.TracerProvider
}

func observe(t *testing.T, opts ...sdktrace.TracerProviderOption) *observer {
	o := &observer{t: t, reader: sdkmetric.NewManualReader(), spans: tracetest.NewInMemoryExporter()}
	o.meters = sdkmetric.NewMeterProvider(sdkmetric.WithReader(o.reader))
	o.tracers = sdktrace.NewTracerProvider(append(opts, sdktrace.WithSyncer(o.spans))...)
	return o
}

func (o *observer) hooks(opts ...serialotel.Option) serial.Hooks {
	o.t.Helper()
	opts = append(opts, serialotel.WithMeterProvider(o.meters), serialotel.WithTracerProvider(o.tracers))
	hooks, err := serialotel.Hooks(opts...)
	require.NoError(o.t, err)
	return hooks
}

// caller begins the span of a caller.
func (o *observer) caller(ctx context.Context) (context.Context, trace.Span) {
	return o.tracers.Tracer("caller").Start(ctx, "caller")
}

func (o *observer) collect() metricdata.ResourceMetrics {
	o.t.Helper()
	var all metricdata.ResourceMetrics
	require.NoError(o.t, o.reader.Collect(context.Background(), &all))
	return all
}

// metrics returns all data points, one per line, sorted.
func (o *observer) metrics() []string {
	o.t.Helper()
	var lines []string
	for _, sm := range o.collect().ScopeMetrics {
		for _, m := range sm.Metrics {
			say := func(set attribute.Set, format string, args ...any) {
				lines = append(lines, strings.TrimSpace(m.Name+" "+list(set.ToSlice()))+": "+fmt.Sprintf(format, args...))
			}
			switch d := m.Data.(type) {
			case metricdata.Sum[int64]:
				for _, p := range d.DataPoints {
					say(p.Attributes, "%d", p.Value)
				}
			case metricdata.Gauge[float64]:
				for _, p := range d.DataPoints {
					say(p.Attributes, "%v", p.Value)
				}
			case metricdata.Histogram[float64]:
				for _, p := range d.DataPoints {
					say(p.Attributes, "%d in %vs", p.Count, p.Sum)
				}
			default:
				require.Fail(o.t, "unexpected", "%s is %T", m.Name, d)
			}
		}
	}
	slices.Sort(lines)
	return lines
}

// ended returns the spans that ended since the last call of ended, without the callers' spans.
func (o *observer) ended() (spans tracetest.SpanStubs) {
	for _, s := range o.spans.GetSpans() {
		if s.Name != "caller" {
			spans = append(spans, s)
		}
	}
	o.spans.Reset()
	return spans
}

// list returns attributes as text, in order.
func list(attrs []attribute.KeyValue) string {
	var parts []string
	for _, kv := range attrs {
		parts = append(parts, strings.TrimPrefix(string(kv.Key), "serial.")+"="+kv.Value.Emit())
	}
	return strings.Join(parts, " ")
}

// events returns a span's events, one per line.
func events(s tracetest.SpanStub) []string {
	var lines []string
	for _, e := range s.Events {
		lines = append(lines, e.Name+" "+list(e.Attributes))
	}
	return lines
}

// simulate returns a miniredis on the clock of a synctest bubble, and a client that dials it in memory. It must be
// called inside the bubble. The address is an IP, since goroutines outside the bubble would look up a name.
func simulate(t *testing.T) (*miniredis.Miniredis, *redis.Client) {
	t.Helper()
	m := miniredis.NewMiniRedis()
	m.ClockTTL(true)
	t.Cleanup(m.Close)
	c := redis.NewClient(&redis.Options{
		Addr:     "127.0.0.1:6379",
		PoolSize: 1000, // nobody waits for a connection: go-redis reuses the timers of such waits in other bubbles
		Dialer:   func(context.Context, string, string) (net.Conn, error) { return m.Dial() },
	})
	t.Cleanup(func() { _ = c.Close() })
	return m, c
}

func newGenerator(t *testing.T, client redis.UniversalClient, hooks serial.Hooks,
	opts ...serial.Option) *serial.Generator {
	t.Helper()
	gen, err := serial.New(client, append([]serial.Option{serial.WithLocation(time.UTC), serial.WithHooks(hooks)},
		opts...)...)
	require.NoError(t, err)
	return gen
}

// slow delays every command of that name by a second.
type slow string

func (slow) DialHook(next redis.DialHook) redis.DialHook { return next }

func (s slow) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if cmd.Name() == string(s) {
			time.Sleep(time.Second)
		}
		return next(ctx, cmd)
	}
}

func (slow) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}
