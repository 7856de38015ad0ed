package serialotel_test

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	metricnoop "go.opentelemetry.io/otel/metric/noop"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	semconv "go.opentelemetry.io/otel/semconv/v1.39.0"
	"go.opentelemetry.io/otel/trace"
	tracenoop "go.opentelemetry.io/otel/trace/noop"

	"github.com/dailyserial/serial"
	"github.com/dailyserial/serial/internal/race"
	"github.com/dailyserial/serial/serialotel"
	"github.com/dailyserial/serial/serialtest"
)

const scope = "github.com/dailyserial/serial/serialotel"

var start = time.Date(2021, 10, 24, 12, 0, 0, 0, time.UTC)

// day contains the attributes of a number of IS, without its type.
const day = "period.start=2021-10-24T12:00:00Z"

// The calls of a generator must be measured. Each call must have a span from its beginning to its end, which is a child
// of the caller's span. If the call opens a period, this must be added to the caller's span as an event.
func TestCalls(t *testing.T) {
	race.Bubble(t, func(t *testing.T) {
		o := observe(t)
		var l slowLedger
		began := time.Now()
		gen, _ := serialtest.New(t, began, serial.WithHooks(o.hooks()), serial.WithLedger(&l, 100))
		ctx, caller := o.tracers.Tracer("caller").Start(t.Context(), "caller")
		require.NoError(t, onlyErr(gen.Next(ctx, "IS")))
		require.NoError(t, onlyErr(gen.NextN(ctx, "IS", 3)))
		for range 2 {
			require.NoError(t, onlyErr(gen.NextOnce(ctx, "IS", "request")))
		}
		require.NoError(t, onlyErr(gen.Peek(ctx, "IS")))
		require.ErrorIs(t, onlyErr(gen.NextN(ctx, "IS", 9999)), serial.ErrExhausted)
		caller.End()
		require.Equal(t, []string{
			"serial.call.duration error.type=exhausted: 1 in 0s",
			"serial.call.duration: 4 in 1s",
			"serial.numbers.issued: 5",
			"serial.period.open.duration: 1 in 1s",
			"serial.requests.repeated: 1",
		}, o.metrics())

		spans := o.spans.GetSpans()
		const day = "type=IS period.start=2000-01-01T00:00:00Z "
		for i, want := range []string{day + "sequence=1 count=1", day + "sequence=4 count=3", day + "sequence=5 count=1",
			day + "sequence=5 count=0", "error.type=exhausted requested=9999 type=IS"} {
			s := spans[i]
			require.Equal(t, want, list(s.Attributes))
			require.Equal(t, "serial.issue", s.Name)
			require.Equal(t, trace.SpanKindInternal, s.SpanKind)
			require.Equal(t, caller.SpanContext().SpanID(), s.Parent.SpanID())
			require.Equal(t, scope, s.InstrumentationScope.Name)
			require.NotEmpty(t, s.InstrumentationScope.Version)
			require.Equal(t, semconv.SchemaURL, s.InstrumentationScope.SchemaURL)
		}
		require.Equal(t, []time.Time{began, began.Add(time.Second), began.Add(time.Second)},
			[]time.Time{spans[0].StartTime, spans[0].EndTime, spans[1].StartTime})
		require.Equal(t, []string{"serial.period.opened " + day + "period.wait=1"}, events(spans[5]))
	})
}

// A slowLedger takes a second for a reservation.
type slowLedger struct{ serialtest.Ledger }

func (l *slowLedger) Reserve(ctx context.Context, r serial.Reservation) (int64, error) {
	time.Sleep(time.Second)
	return l.Ledger.Reserve(ctx, r)
}

// The spans of concurrent calls must be children of the spans of their own callers, even if the calls share a round
// trip.
func TestConcurrentCalls(t *testing.T) {
	o := observe(t)
	gen, _ := serialtest.New(t, start, serial.WithHooks(o.hooks()))
	var all sync.WaitGroup
	for range 100 {
		all.Go(func() {
			ctx, caller := o.tracers.Tracer("caller").Start(t.Context(), "caller")
			defer caller.End()
			if _, err := gen.Next(ctx, "IS"); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	require.Contains(t, o.metrics(), "serial.numbers.issued: 100")
	parents := map[trace.SpanID]bool{}
	for _, s := range o.spans.GetSpans() {
		if s.Name == "serial.issue" {
			parents[s.Parent.SpanID()] = true
		}
	}
	require.Len(t, parents, 100)
}

// causes are the causes of failed calls by their error.type.
var causes = map[string]error{
	"exhausted":         serial.ErrExhausted,
	"counter_lost":      serial.ErrCounterLost,
	"clock_skew":        serial.ErrClockSkew,
	"conflict":          serial.ErrConflict,
	"not_replicated":    fmt.Errorf("%w (%w)", context.DeadlineExceeded, serial.ErrNotReplicated),
	"invalid_type":      fmt.Errorf("%w (%w)", serial.ErrInvalidType, context.Canceled),
	"invalid_request":   serial.ErrInvalidRequest,
	"canceled":          context.Canceled,
	"deadline_exceeded": context.DeadlineExceeded,
	"_OTHER":            errors.New("connection refused"),
}

// A failed call must have a span with its error, and with the most specific error.type. An invalid type must not become
// an attribute, because it can have any length.
func TestFailures(t *testing.T) {
	for want, err := range causes {
		o := observe(t)
		err = fmt.Errorf("wrapped: %w", err)
		o.hooks().Failed(t.Context(), serial.FailedInfo{Type: "IS", Count: 7, Err: err, Duration: time.Second})
		require.Equal(t, []string{"serial.call.duration error.type=" + want + ": 1 in 1s"}, o.metrics())
		s := o.spans.GetSpans()[0]
		typ := map[bool]string{true: " type=IS"}[want != "invalid_type"]
		require.Equal(t, "error.type="+want+" requested=7"+typ, list(s.Attributes))
		require.Equal(t, sdktrace.Status{Code: codes.Error, Description: err.Error()}, s.Status)
		require.Equal(t, []string{"exception exception.type=*fmt.wrapError exception.message=" + err.Error()}, events(s))
		require.Equal(t, s.EndTime, s.Events[0].Time)
	}
}

// callHooks calls every hook for the type typ. series is the series that all types share, or "".
func callHooks(ctx context.Context, h serial.Hooks, typ, series string) {
	n := serial.Number{Type: typ, Start: start, Seq: 8}
	h.Issued(ctx, serial.IssuedInfo{Last: n, Count: 2, Series: series, Duration: time.Second})
	h.Issued(ctx, serial.IssuedInfo{Last: n, Series: series})
	h.Failed(ctx, serial.FailedInfo{Type: typ, Count: 1, Err: serial.ErrConflict, Series: series})
	h.Opened(ctx, serial.OpenedInfo{Type: typ, Start: start, Wait: time.Second, Series: series})
	h.NearlyExhausted(ctx, serial.ExhaustionInfo{Last: n, Used: 8, Size: 9, Series: series})
	h.Lost(ctx, serial.LostInfo{Type: typ, Start: start, Series: series})
	h.Lost(ctx, serial.LostInfo{Type: typ, Start: start, Series: series, Pending: true})
	h.Lost(ctx, serial.LostInfo{Type: typ, Start: start, Series: series, Repaired: true})
	h.ClockCorrected(ctx, serial.ClockInfo{Offset: -1500 * time.Millisecond, Before: time.Second})
	h.Unused(ctx, serial.Explanation{Type: typ, First: 5, Last: 6, Reason: serial.CallerLeft + "; 7 others", Unused: true})
	h.Unused(ctx, serial.Explanation{Type: typ, First: 1, Last: 9, Reason: serial.NotReplicated, Unused: true})
	h.Unused(ctx, serial.Explanation{Type: typ, First: 1, Last: 9, Reason: serial.NotReplicated, Possible: true})
	h.Unused(ctx, serial.Explanation{Type: typ, First: 6, Last: 99, Reason: serial.AnswerLost + ": 3 attempts",
		Possible: true})
}

// Metrics must have only the types of WithTypes. Unused numbers must be counted by the beginning of their reason.
// Possible reasons must be counted as explanations, not as numbers.
func TestMetrics(t *testing.T) {
	o := observe(t)
	callHooks(t.Context(), o.hooks(), "IS", "")
	require.Equal(t, []string{
		"serial.call.duration error.type=conflict: 1 in 0s",
		"serial.call.duration: 2 in 1s",
		"serial.clock.offset: -1.5",
		"serial.counter.lost repaired=false: 1",
		"serial.counter.lost repaired=pending: 1",
		"serial.counter.lost repaired=true: 1",
		"serial.explanations.possible reason=answer_lost: 1",
		"serial.explanations.possible reason=not_replicated: 1",
		"serial.numbers.issued: 2",
		"serial.numbers.unused reason=caller_left: 2",
		"serial.numbers.unused reason=not_replicated: 9",
		"serial.period.nearly_exhausted: 1",
		"serial.period.open.duration: 1 in 1s",
		"serial.requests.repeated: 1",
	}, o.metrics())

	types := []string{"IS", "PO"}
	opt := serialotel.WithTypes(types...)
	types[0] = "changed" // must have no effect
	for typ, attribute := range map[string]string{"IS": "IS", "T1": "_OTHER", "I S": "_OTHER"} {
		named := observe(t)
		callHooks(t.Context(), named.hooks(opt), typ, "")
		var want []string
		for _, line := range o.metrics() {
			if !strings.HasPrefix(line, "serial.clock.offset") {
				line = strings.Replace(line, ": ", " type="+attribute+": ", 1)
			}
			want = append(want, line)
		}
		require.ElementsMatch(t, want, named.metrics())
	}
}

// An exporter must get the instruments of the package documentation, with the documented buckets.
func TestInstruments(t *testing.T) {
	o := observe(t)
	callHooks(t.Context(), o.hooks(), "IS", "")
	all := o.collect().ScopeMetrics
	require.Len(t, all, 1)
	require.Equal(t, scope, all[0].Scope.Name)
	require.NotEmpty(t, all[0].Scope.Version)
	require.Equal(t, semconv.SchemaURL, all[0].Scope.SchemaURL)
	units := map[string]string{}
	for _, m := range all[0].Metrics {
		require.NotEmpty(t, m.Description)
		units[m.Name] = m.Unit
		switch d := m.Data.(type) {
		case metricdata.Sum[int64]:
			require.True(t, d.IsMonotonic, m.Name)
		case metricdata.Histogram[float64]:
			bounds := d.DataPoints[0].Bounds
			want := map[string][]float64{"serial.call.duration": {0.0001, 10}, "serial.period.open.duration": {0.001, 30}}
			require.Equal(t, want[m.Name], []float64{bounds[0], bounds[len(bounds)-1]})
		}
	}
	require.Equal(t, map[string]string{
		"serial.numbers.issued":          "{number}",
		"serial.requests.repeated":       "{request}",
		"serial.call.duration":           "s",
		"serial.period.open.duration":    "s",
		"serial.period.nearly_exhausted": "{period}",
		"serial.counter.lost":            "{call}",
		"serial.numbers.unused":          "{number}",
		"serial.explanations.possible":   "{explanation}",
		"serial.clock.offset":            "s",
	}, units)
}

// Unusual occurrences must become events of the caller's span. Events and spans must contain the series that all types
// share.
func TestEvents(t *testing.T) {
	for series, suffix := range map[string]string{"": "", "serial:*": " series=serial:*"} {
		o := observe(t)
		ctx, caller := o.tracers.Tracer("caller").Start(t.Context(), "caller")
		callHooks(ctx, o.hooks(), "IS", series)
		caller.End()
		spans := o.spans.GetSpans()
		require.Equal(t, "type=IS "+day+" sequence=8 count=2"+suffix, list(spans[0].Attributes))
		require.Equal(t, "error.type=conflict requested=1"+suffix+" type=IS", list(spans[2].Attributes))
		const is = "type=IS " + day
		require.Equal(t, []string{
			"serial.period.opened " + is + " period.wait=1" + suffix,
			"serial.period.nearly_exhausted " + is + " used=8 size=9" + suffix,
			"serial.counter.lost " + is + " repaired=false" + suffix,
			"serial.counter.lost " + is + " repaired=pending" + suffix,
			"serial.counter.lost " + is + " repaired=true" + suffix,
			"serial.clock.corrected clock.offset=-1.5",
		}, events(spans[3]))
	}
}

// If the caller's span is not sampled, there must be metrics, but no spans. Without any provider, a call must make few
// allocations.
func TestNotSampled(t *testing.T) {
	o := observe(t, sdktrace.WithSampler(sdktrace.ParentBased(sdktrace.NeverSample())))
	ctx, caller := o.tracers.Tracer("caller").Start(t.Context(), "caller")
	callHooks(ctx, o.hooks(), "IS", "")
	caller.End()
	require.Empty(t, o.spans.GetSpans())
	require.Len(t, o.metrics(), 14)

	h, err := serialotel.Hooks(serialotel.WithMeterProvider(metricnoop.NewMeterProvider()),
		serialotel.WithTracerProvider(tracenoop.NewTracerProvider()), serialotel.WithTypes("IS"))
	require.NoError(t, err)
	info := serial.IssuedInfo{Last: serial.Number{Type: "IS"}, Count: 1}
	require.LessOrEqual(t, testing.AllocsPerRun(100, func() { h.Issued(ctx, info) }), 3.0)
	require.Zero(t, testing.AllocsPerRun(100, func() { h.Lost(ctx, serial.LostInfo{Type: "IS"}) }))
}

// An exemplar must have the ID of the call's span. If the caller has no span, the call's span is the root of a trace.
func TestExemplars(t *testing.T) {
	o := observe(t)
	o.hooks().Issued(t.Context(), serial.IssuedInfo{Count: 1})
	s := o.spans.GetSpans()[0]
	require.False(t, s.Parent.IsValid())
	id := s.SpanContext.SpanID()
	for _, m := range o.collect().ScopeMetrics[0].Metrics {
		switch d := m.Data.(type) {
		case metricdata.Sum[int64]:
			require.Equal(t, id[:], d.DataPoints[0].Exemplars[0].SpanID)
		case metricdata.Histogram[float64]:
			require.Equal(t, id[:], d.DataPoints[0].Exemplars[0].SpanID)
		}
	}
}

// If providers are set globally after the hooks were created, the hooks must use them.
func TestGlobalProviders(t *testing.T) {
	if delegated.Swap(true) {
		t.Skip("the API passes on to providers that are set later only once in a process")
	}
	h, err := serialotel.Hooks()
	require.NoError(t, err)
	h.Issued(t.Context(), serial.IssuedInfo{Count: 1}) // must not be recorded
	o := observe(t)
	otel.SetMeterProvider(o.meters)
	otel.SetTracerProvider(o.tracers)
	h.Issued(t.Context(), serial.IssuedInfo{Count: 2})
	require.Equal(t, []string{"serial.call.duration: 1 in 0s", "serial.numbers.issued: 2"}, o.metrics())
	require.Len(t, o.spans.GetSpans(), 1)
}

var delegated atomic.Bool

// Hooks must reject nil options, nil providers, and types that a generator rejects. The error must contain all causes.
func TestHooksRefused(t *testing.T) {
	many := make([]string, 101)
	for i := range many {
		many[i] = fmt.Sprint("T", i)
	}
	for _, row := range []struct {
		want string
		opts []serialotel.Option
	}{
		{"serialotel: option 2 of Hooks is nil", []serialotel.Option{serialotel.WithTypes("IS"), nil}},
		{"serialotel: WithMeterProvider: the provider is nil", []serialotel.Option{serialotel.WithMeterProvider(nil)}},
		{"WithMeterProvider: the provider is nil",
			[]serialotel.Option{serialotel.WithMeterProvider((*sdkmetric.MeterProvider)(nil))}},
		{"WithTracerProvider: the provider is nil",
			[]serialotel.Option{serialotel.WithTypes(), serialotel.WithTracerProvider(nil)}},
		{"WithTracerProvider: the provider is nil",
			[]serialotel.Option{serialotel.WithTracerProvider((*sdktrace.TracerProvider)(nil))}},
		{"serialotel: WithTypes of 0 types: want 1 to 100", []serialotel.Option{serialotel.WithTypes(), nil}},
		{"serialotel: WithTypes of 101 types: want 1 to 100", []serialotel.Option{serialotel.WithTypes(many...)}},
		{`serialotel: WithTypes: serial: invalid type "": empty`, []serialotel.Option{serialotel.WithTypes("a b", "")}},
		{"it contains ':' (U+003A)", []serialotel.Option{serialotel.WithTypes("", "a:b")}},
		{"is reserved for all types that are not listed", []serialotel.Option{serialotel.WithTypes("_OTHER")}},
		{errRefused.Error(), []serialotel.Option{serialotel.WithMeterProvider(refusing{})}},
	} {
		h, err := serialotel.Hooks(row.opts...)
		require.ErrorContains(t, err, row.want)
		require.Equal(t, serial.Hooks{}, h)
	}
	require.NoError(t, onlyErr(serialotel.Hooks(serialotel.WithTypes(append(many[:99:99], "订单-a_b./٣")...))))

	gen, _ := serialtest.New(t, start)
	refused := 0
	for r := range rune(0x3000) {
		typ := "A" + string(r)
		_, err := gen.Parse(typ + "202110240001")
		_, failed := serialotel.Hooks(serialotel.WithTypes("IS", typ))
		require.Equal(t, errors.Is(err, serial.ErrInvalidType), failed != nil, "%q: %v, and %v", typ, err, failed)
		if failed != nil {
			require.ErrorIs(t, failed, serial.ErrInvalidType)
			refused++
		}
	}
	require.NotZero(t, refused)
}

var errRefused = errors.New("no gauges here")

// A refusing provider has a meter that rejects gauges.
type refusing struct{ metricnoop.MeterProvider }

func (refusing) Meter(string, ...metric.MeterOption) metric.Meter { return refusingMeter{} }

type refusingMeter struct{ metricnoop.Meter }

func (refusingMeter) Float64Gauge(string, ...metric.Float64GaugeOption) (metric.Float64Gauge, error) {
	return nil, errRefused
}

// The version must be the version of this module in the program.
func TestVersion(t *testing.T) {
	other := &debug.Module{Path: "github.com/dailyserial/serial", Version: "v9.9.9"}
	for want, info := range map[string]*debug.BuildInfo{
		"1.2.3":   {Deps: []*debug.Module{other, {Path: scope, Version: "v1.2.3"}}},
		"0.1.0":   {Main: debug.Module{Path: scope, Version: "v0.1.0"}},
		"(devel)": {Main: debug.Module{Path: scope}, Deps: []*debug.Module{other}},
	} {
		require.Equal(t, want, serialotel.VersionIn(info))
	}
}

// onlyErr returns the error of a call, and drops its result.
func onlyErr[T any](_ T, err error) error { return err }

// An observer collects everything that is recorded.
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

func (o *observer) collect() metricdata.ResourceMetrics {
	o.t.Helper()
	var all metricdata.ResourceMetrics
	require.NoError(o.t, o.reader.Collect(context.Background(), &all))
	return all
}

// points calls f for each data point of a metric, with the value of the point.
func points(m metricdata.Metrics, f func(set attribute.Set, value string)) {
	switch d := m.Data.(type) {
	case metricdata.Sum[int64]:
		for _, p := range d.DataPoints {
			f(p.Attributes, fmt.Sprint(p.Value))
		}
	case metricdata.Gauge[float64]:
		for _, p := range d.DataPoints {
			f(p.Attributes, fmt.Sprint(p.Value))
		}
	case metricdata.Histogram[float64]:
		for _, p := range d.DataPoints {
			f(p.Attributes, fmt.Sprintf("%d in %vs", p.Count, p.Sum))
		}
	default:
		panic(fmt.Sprintf("%s is %T", m.Name, d))
	}
}

// metrics returns all data points in sorted order, one per element.
func (o *observer) metrics() []string {
	o.t.Helper()
	all := o.collect().ScopeMetrics
	require.Len(o.t, all, 1)
	var lines []string
	for _, m := range all[0].Metrics {
		points(m, func(set attribute.Set, value string) {
			lines = append(lines, strings.TrimSpace(m.Name+" "+list(set.ToSlice()))+": "+value)
		})
	}
	slices.Sort(lines)
	return lines
}

// list returns attributes as text, in sorted order.
func list(attrs []attribute.KeyValue) string {
	var parts []string
	for _, kv := range attrs {
		parts = append(parts, strings.TrimPrefix(string(kv.Key), "serial.")+"="+kv.Value.Emit())
	}
	return strings.Join(parts, " ")
}

// events returns the events of a span, one per element.
func events(s tracetest.SpanStub) []string {
	var lines []string
	for _, e := range s.Events {
		lines = append(lines, e.Name+" "+list(e.Attributes))
	}
	return lines
}
