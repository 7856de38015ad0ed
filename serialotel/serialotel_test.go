package serialotel_test

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	metricnoop "go.opentelemetry.io/otel/metric/noop"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	semconv "go.opentelemetry.io/otel/semconv/v1.39.0"
	"go.opentelemetry.io/otel/trace"
	tracenoop "go.opentelemetry.io/otel/trace/noop"

	"github.com/dailyserial/serial"
	"github.com/dailyserial/serial/internal/race"
	"github.com/dailyserial/serial/serialotel"
)

const scope = "github.com/dailyserial/serial/serialotel"

func TestIssue(t *testing.T) {
	race.Bubble(t, func(t *testing.T) {
		_, client := simulate(t)
		client.AddHook(slow("set")) // the lock
		o := observe(t)
		gen := newGenerator(t, client, o.hooks())
		began := time.Now()
		ctx, caller := o.caller(t.Context())

		require.NoError(t, errOf(gen.Next(ctx, "IS")))
		require.NoError(t, errOf(gen.NextN(ctx, "IS", 3)))
		for range 3 {
			require.NoError(t, errOf(gen.NextOnce(ctx, "IS", "request")))
		}
		require.NoError(t, errOf(gen.Peek(ctx, "IS")))
		caller.End()

		require.Equal(t, []string{
			"serial.call.duration: 5 in 1s",
			"serial.numbers.issued: 5",
			"serial.period.open.duration: 1 in 1s",
			"serial.requests.repeated: 2",
		}, o.metrics())

		require.Equal(t, []string{"serial.period.opened type=IS period.start=2000-01-01T00:00:00Z period.wait=1"},
			events(o.spans.GetSpans()[5]))
		spans := o.ended()
		var got []string
		for _, s := range spans {
			require.Equal(t, "serial.issue", s.Name)
			require.Equal(t, trace.SpanKindInternal, s.SpanKind)
			require.Equal(t, codes.Unset, s.Status.Code)
			require.Empty(t, s.Events)
			require.Equal(t, scope, s.InstrumentationScope.Name)
			require.NotEmpty(t, s.InstrumentationScope.Version)
			require.Equal(t, semconv.SchemaURL, s.InstrumentationScope.SchemaURL)
			require.Equal(t, caller.SpanContext().SpanID(), s.Parent.SpanID())
			require.Equal(t, caller.SpanContext().TraceID(), s.SpanContext.TraceID())
			got = append(got, list(s.Attributes))
		}
		const day = "type=IS period.start=2000-01-01T00:00:00Z "
		require.Equal(t, []string{day + "sequence=1 count=1", day + "sequence=4 count=3", day + "sequence=5 count=1",
			day + "sequence=5 count=0", day + "sequence=5 count=0"}, got)
		require.Equal(t, began, spans[0].StartTime)
		require.Equal(t, began.Add(time.Second), spans[0].EndTime)
		require.Equal(t, spans[0].EndTime, spans[1].StartTime)
		require.Equal(t, spans[0].EndTime, spans[1].EndTime)
	})
}

func TestFailures(t *testing.T) {
	race.Bubble(t, func(t *testing.T) {
		m, client := simulate(t)
		o := observe(t)
		hooks := o.hooks()
		gen := newGenerator(t, client, hooks, serial.WithTemplate("{type}{date:yyyyMMdd}{seq:1}"))
		require.NoError(t, errOf(gen.NextN(t.Context(), "LOST", 2)))
		o.ended()

		fails := func(errorType, typ string, requested int, err, want error) {
			t.Helper()
			require.ErrorIs(t, err, want)
			spans := o.ended()
			require.Len(t, spans, 1)
			if typ != "" {
				typ = " type=" + typ
			}
			require.Equal(t, fmt.Sprintf("error.type=%s requested=%d%s", errorType, requested, typ), list(spans[0].Attributes))
			require.Equal(t, codes.Error, spans[0].Status.Code)
			require.Equal(t, err.Error(), spans[0].Status.Description)
			require.Len(t, spans[0].Events, 1)
			require.Equal(t, "exception", spans[0].Events[0].Name)
			require.Contains(t, list(spans[0].Events[0].Attributes), "exception.message="+err.Error())
			require.Equal(t, spans[0].EndTime, spans[0].Events[0].Time)
		}

		fails("exhausted", "IS", 10, errOf(gen.NextN(t.Context(), "IS", 10)), serial.ErrExhausted)
		fails("invalid_type", "", 1, errOf(gen.Next(t.Context(), strings.Repeat("I S", 1000))), serial.ErrInvalidType)

		m.Set("serial:{LOST}:20000101", "1")
		for range 2 {
			fails("counter_lost", "LOST", 1, errOf(gen.Next(t.Context(), "LOST")), serial.ErrCounterLost)
		}

		elsewhere, err := serial.New(client, serial.WithLocation(time.FixedZone("", 8*3600)), serial.WithHooks(hooks))
		require.NoError(t, err)
		fails("conflict", "LOST", 1, errOf(elsewhere.Next(t.Context(), "LOST")), serial.ErrConflict)

		m.SetTime(time.Now().Add(48 * time.Hour))
		fails("clock_skew", "SKEW", 1, errOf(newGenerator(t, client, hooks).Next(t.Context(), "SKEW")), serial.ErrClockSkew)
		m.SetTime(time.Time{})

		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		fails("canceled", "IS", 1, errOf(gen.Next(ctx, "IS")), context.Canceled)
		client.AddHook(slow("evalsha"))
		ctx, cancel = context.WithTimeout(t.Context(), time.Second/2)
		defer cancel()
		fails("deadline_exceeded", "IS", 1, errOf(gen.NextOnce(ctx, "IS", "request")), context.DeadlineExceeded)
		require.NoError(t, gen.Flush(t.Context())) // an abandoned command

		require.Equal(t, []string{
			"serial.call.duration error.type=canceled: 1 in 0s",
			"serial.call.duration error.type=clock_skew: 1 in 0s",
			"serial.call.duration error.type=conflict: 1 in 0s",
			"serial.call.duration error.type=counter_lost: 2 in 0s",
			"serial.call.duration error.type=deadline_exceeded: 1 in 0.5s",
			"serial.call.duration error.type=exhausted: 1 in 0s",
			"serial.call.duration error.type=invalid_type: 1 in 0s",
			"serial.call.duration: 1 in 0s",
			"serial.clock.offset: 172800",
			"serial.counter.lost repaired=false: 2",
			"serial.numbers.issued: 2",
			"serial.period.open.duration: 1 in 0s",
		}, o.metrics())
	})
}

// An error that matches several causes counts as the most specific one. An error that matches none counts as _OTHER.
func TestErrorType(t *testing.T) {
	for want, err := range map[string]error{
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
	} {
		t.Run(want, func(t *testing.T) {
			o := observe(t)
			err = fmt.Errorf("wrapped: %w", err)
			o.hooks().Failed(t.Context(), serial.FailedInfo{Type: "IS", Count: 1, Err: err, Duration: time.Second})
			require.Equal(t, []string{"serial.call.duration error.type=" + want + ": 1 in 1s"}, o.metrics())
		})
	}
}

// Unusual occurrences are counted and added to the caller's span, also by calls without a span.
func TestEvents(t *testing.T) {
	race.Bubble(t, func(t *testing.T) {
		m, client := simulate(t)
		o := observe(t)
		floor := func(context.Context, string, time.Time) (int64, error) { return 5, nil }
		gen := newGenerator(t, client, o.hooks(), serial.WithTemplate("{type}{date:yyyyMMdd}{seq:1}"),
			serial.WithFloor(floor))
		hears := func(call func(ctx context.Context) error, want ...string) {
			t.Helper()
			o.spans.Reset()
			ctx, caller := o.caller(t.Context())
			require.NoError(t, call(ctx))
			caller.End()
			spans := o.spans.GetSpans()
			require.Equal(t, want, events(spans[len(spans)-1]))
		}
		next := func(ctx context.Context) error { return errOf(gen.Next(ctx, "IS")) }

		const day = "type=IS period.start=2000-01-01T00:00:00Z"
		hears(next, "serial.period.opened "+day+" period.wait=0") // 6
		hears(next)                                               // 7
		m.Del("serial:{IS}:20000101")
		hears(func(ctx context.Context) error { return gen.Raise(ctx, "IS", 6) },
			"serial.counter.lost "+day+" repaired=true", "serial.period.opened "+day+" period.wait=0")
		hears(next, "serial.period.nearly_exhausted "+day+" used=8 size=9")
		hears(next)

		m.SetTime(time.Now().Add(24 * time.Hour))
		time.Sleep(23*time.Hour + 30*time.Minute)
		m.SetTime(time.Now().Add(59 * time.Minute))
		hears(next, "serial.clock.corrected clock.offset=3540",
			"serial.period.opened type=IS period.start=2000-01-02T00:00:00Z period.wait=0")

		require.Equal(t, []string{
			"serial.call.duration: 5 in 0s",
			"serial.clock.offset: 3540",
			"serial.counter.lost repaired=true: 1",
			"serial.numbers.issued: 5",
			"serial.period.nearly_exhausted: 1",
			"serial.period.open.duration: 3 in 0s",
		}, o.metrics())
	})
}

// Metrics do not have types unless WithTypes names them, however many types there are.
func TestTypes(t *testing.T) {
	race.Bubble(t, func(t *testing.T) {
		_, client := simulate(t)
		all, some := observe(t), observe(t)
		plain := newGenerator(t, client, all.hooks())
		types := []string{"IS", "PO"}
		named := newGenerator(t, client, some.hooks(serialotel.WithTypes(types...)), serial.WithKeyPrefix("named"))
		for _, gen := range []*serial.Generator{plain, named} {
			for i := range 50 {
				require.NoError(t, errOf(gen.Next(t.Context(), fmt.Sprint("T", i))))
			}
			require.NoError(t, errOf(gen.NextN(t.Context(), "IS", 8000)))
			for range 2 {
				require.NoError(t, errOf(gen.NextOnce(t.Context(), "IS", "request")))
			}
			for _, typ := range []string{"IS", "T1"} {
				require.ErrorIs(t, errOf(gen.NextN(t.Context(), typ, 99_999)), serial.ErrExhausted)
			}
			require.ErrorIs(t, errOf(gen.Next(t.Context(), "I S")), serial.ErrInvalidType)
		}
		require.Equal(t, []string{
			"serial.call.duration error.type=exhausted: 2 in 0s",
			"serial.call.duration error.type=invalid_type: 1 in 0s",
			"serial.call.duration: 53 in 0s",
			"serial.numbers.issued: 8051",
			"serial.period.nearly_exhausted: 1",
			"serial.period.open.duration: 51 in 0s",
			"serial.requests.repeated: 1",
		}, all.metrics())
		require.Equal(t, []string{
			"serial.call.duration error.type=exhausted type=IS: 1 in 0s",
			"serial.call.duration error.type=exhausted type=_OTHER: 1 in 0s",
			"serial.call.duration error.type=invalid_type type=_OTHER: 1 in 0s",
			"serial.call.duration type=IS: 3 in 0s",
			"serial.call.duration type=_OTHER: 50 in 0s",
			"serial.numbers.issued type=IS: 8001",
			"serial.numbers.issued type=_OTHER: 50",
			"serial.period.nearly_exhausted type=IS: 1",
			"serial.period.open.duration type=IS: 1 in 0s",
			"serial.period.open.duration type=_OTHER: 50 in 0s",
			"serial.requests.repeated type=IS: 1",
		}, some.metrics())
		require.Len(t, all.ended(), 56)
	})
}

// An exporter gets the metrics that the package's doc lists.
func TestInstruments(t *testing.T) {
	o := observe(t)
	h := o.hooks()
	ctx := t.Context()
	h.Issued(ctx, serial.IssuedInfo{Count: 1, Duration: 300 * time.Microsecond})
	h.Issued(ctx, serial.IssuedInfo{})
	h.Opened(ctx, serial.OpenedInfo{})
	h.Lost(ctx, serial.LostInfo{})
	h.ClockCorrected(ctx, serial.ClockInfo{Offset: -1500 * time.Millisecond, Before: time.Second})
	h.NearlyExhausted(ctx, serial.ExhaustionInfo{})
	h.Unused(ctx, serial.Explanation{First: 1, Last: 1, Reason: serial.CallerLeft, Unused: true})
	h.Unused(ctx, serial.Explanation{First: 1, Last: 1, Reason: serial.Raised, Possible: true})
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
		case metricdata.Gauge[float64]:
			require.Equal(t, -1.5, d.DataPoints[0].Value)
		case metricdata.Histogram[float64]:
			bounds := d.DataPoints[0].Bounds
			least, most := 0.0001, 10.0
			if m.Name != "serial.call.duration" {
				least, most = 0.001, 30
			}
			require.Equal(t, least, bounds[0])
			require.Equal(t, most, bounds[len(bounds)-1])
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

// Lost counters are counted by whether the call repaired them, so an alert can leave out those that need no operator.
func TestLost(t *testing.T) {
	race.Bubble(t, func(t *testing.T) {
		m, client := simulate(t)
		o := observe(t)
		hooks := o.hooks(serialotel.WithTypes("IS"))
		plain := newGenerator(t, client, hooks)
		var fault error
		floor := func(context.Context, string, time.Time) (int64, error) { return 7, fault }
		repairing := newGenerator(t, client, hooks, serial.WithFloor(floor))
		next := func(ctx context.Context) error { return errOf(plain.Next(ctx, "IS")) }
		nextRepairing := func(ctx context.Context) error { return errOf(repairing.Next(ctx, "IS")) }
		peekRepairing := func(ctx context.Context) error { return errOf(repairing.Peek(ctx, "IS")) }
		loses := func(call func(context.Context) error, repaired string, want error) {
			t.Helper()
			m.Del("serial:{IS}:20000101")
			o.spans.Reset()
			ctx, caller := o.caller(t.Context())
			if err := call(ctx); want == nil {
				require.NoError(t, err)
			} else {
				require.ErrorIs(t, err, want)
			}
			caller.End()
			spans := o.spans.GetSpans()
			require.Contains(t, events(spans[len(spans)-1]),
				"serial.counter.lost type=IS period.start=2000-01-01T00:00:00Z repaired="+repaired)
		}
		require.NoError(t, next(t.Context()))
		for range 2 {
			loses(next, "false", serial.ErrCounterLost)
		}
		loses(nextRepairing, "true", nil)
		for range 3 {
			loses(peekRepairing, "pending", serial.ErrCounterLost)
		}
		fault = errors.New("no database")
		loses(nextRepairing, "pending", fault)
		require.Subset(t, o.metrics(), []string{
			"serial.counter.lost repaired=false type=IS: 2",
			"serial.counter.lost repaired=pending type=IS: 4",
			"serial.counter.lost repaired=true type=IS: 1",
		})
	})
}

// Numbers that nobody received are counted by the beginning of the reason. For possible reasons, explanations are
// counted: a lost answer adds one, not all numbers up to the largest.
func TestUnused(t *testing.T) {
	o := observe(t)
	h := o.hooks(serialotel.WithTypes("IS"))
	for _, e := range []serial.Explanation{
		{Type: "IS", First: 3, Last: 3, Reason: serial.CallerLeft, Unused: true},
		{Type: "IS", First: 5, Last: 6, Reason: serial.CallerLeft + "; 7 others were dropped", Unused: true},
		{Type: "PO", First: 1, Last: 100, Reason: serial.BlockBurned, Unused: true},
		{Type: "IS", First: 1, Last: 9, Reason: serial.NotReplicated, Unused: true},
		{Type: "IS", First: 1, Last: 9, Reason: serial.NotReplicated, Possible: true},
		{Type: "IS", First: 6, Last: 999_999, Reason: serial.AnswerLost + ": 1 attempt", Possible: true},
		{Type: "IS", First: 6, Last: 999_999, Reason: serial.AnswerLost + ": 3 attempts", Possible: true},
		{Type: "PO", First: 1, Last: 40, Reason: serial.Raised, Possible: true},
		{Type: "PO", First: 1, Last: 40, Reason: serial.BlockSkipped, Possible: true},
	} {
		h.Unused(t.Context(), e)
	}
	require.Equal(t, []string{
		"serial.explanations.possible reason=answer_lost type=IS: 2",
		"serial.explanations.possible reason=block_skipped type=_OTHER: 1",
		"serial.explanations.possible reason=not_replicated type=IS: 1",
		"serial.explanations.possible reason=raised type=_OTHER: 1",
		"serial.numbers.unused reason=block_burned type=_OTHER: 100",
		"serial.numbers.unused reason=caller_left type=IS: 3",
		"serial.numbers.unused reason=not_replicated type=IS: 9",
	}, o.metrics())
}

// An exemplar leads to the call's span. Without a caller's span, a call has its own trace.
func TestExemplars(t *testing.T) {
	o := observe(t)
	o.hooks().Issued(t.Context(), serial.IssuedInfo{Count: 1})
	spans := o.ended()
	require.Len(t, spans, 1)
	require.False(t, spans[0].Parent.IsValid())
	id := spans[0].SpanContext.SpanID()
	for _, m := range o.collect().ScopeMetrics[0].Metrics {
		switch d := m.Data.(type) {
		case metricdata.Sum[int64]:
			require.Equal(t, id[:], d.DataPoints[0].Exemplars[0].SpanID)
		case metricdata.Histogram[float64]:
			require.Equal(t, id[:], d.DataPoints[0].Exemplars[0].SpanID)
		}
	}
}

func TestNotSampled(t *testing.T) {
	o := observe(t, sdktrace.WithSampler(sdktrace.ParentBased(sdktrace.NeverSample())))
	h := o.hooks()
	ctx, caller := o.caller(t.Context())
	h.Lost(ctx, serial.LostInfo{})
	h.Opened(ctx, serial.OpenedInfo{})
	h.ClockCorrected(ctx, serial.ClockInfo{})
	h.Issued(ctx, serial.IssuedInfo{Count: 1})
	h.NearlyExhausted(ctx, serial.ExhaustionInfo{})
	h.Failed(ctx, serial.FailedInfo{Err: serial.ErrConflict})
	caller.End()
	require.Empty(t, o.spans.GetSpans())
	require.Len(t, o.metrics(), 7)
}

// An unrecorded call computes only the time at which its span would have begun.
func TestCheap(t *testing.T) {
	h, err := serialotel.Hooks(serialotel.WithMeterProvider(metricnoop.NewMeterProvider()),
		serialotel.WithTracerProvider(tracenoop.NewTracerProvider()), serialotel.WithTypes("IS"))
	require.NoError(t, err)
	info := serial.IssuedInfo{Last: serial.Number{Type: "IS"}, Count: 1}
	ctx := t.Context()
	require.LessOrEqual(t, testing.AllocsPerRun(100, func() { h.Issued(ctx, info) }), 3.0)
	require.Zero(t, testing.AllocsPerRun(100, func() { h.Lost(ctx, serial.LostInfo{Type: "IS"}) }))
}

// Providers that are set globally after the hooks were made are used.
func TestGlobalProviders(t *testing.T) {
	if delegated.Swap(true) {
		t.Skip("once in a process the API passes on to providers that are set later")
	}
	h, err := serialotel.Hooks()
	require.NoError(t, err)
	h.Issued(t.Context(), serial.IssuedInfo{Count: 1}) // recorded by nobody
	o := observe(t)
	otel.SetMeterProvider(o.meters)
	otel.SetTracerProvider(o.tracers)
	h.Issued(t.Context(), serial.IssuedInfo{Count: 2})
	require.Equal(t, []string{"serial.call.duration: 1 in 0s", "serial.numbers.issued: 2"}, o.metrics())
	require.Len(t, o.ended(), 1)
}

var delegated atomic.Bool

func TestHooksRefuses(t *testing.T) {
	many := make([]string, 101)
	for i := range many {
		many[i] = fmt.Sprint("T", i)
	}
	for _, test := range []struct {
		name string
		opt  serialotel.Option
		want string
	}{
		{"nil option", nil, "serialotel: option 1 of Hooks is nil"},
		{"nil meter provider", serialotel.WithMeterProvider(nil), "serialotel: WithMeterProvider: the provider is nil"},
		{"nil pointer to one", serialotel.WithMeterProvider((*sdkmetric.MeterProvider)(nil)),
			"WithMeterProvider: the provider is nil"},
		{"nil tracer provider", serialotel.WithTracerProvider(nil), "serialotel: WithTracerProvider: the provider is nil"},
		{"nil pointer to one", serialotel.WithTracerProvider((*sdktrace.TracerProvider)(nil)),
			"WithTracerProvider: the provider is nil"},
		{"no types", serialotel.WithTypes(), "serialotel: WithTypes of 0 types: want 1 to 100"},
		{"many types", serialotel.WithTypes(many...), "serialotel: WithTypes of 101 types: want 1 to 100"},
		{"empty type", serialotel.WithTypes("IS", ""),
			`serialotel: WithTypes: serial: invalid type "": empty; want 1 to 64 bytes`},
		{"long type", serialotel.WithTypes(strings.Repeat("x", 65)), "65 bytes; want 1 to 64"},
		{"type that is not UTF-8", serialotel.WithTypes("\xff"), "not valid UTF-8"},
		{"type with a colon", serialotel.WithTypes("a:b"), "it contains ':' (U+003A); want letters with their marks"},
		{"type that looks like another", serialotel.WithTypes("IS\u3164"), "it contains U+3164, which is invisible"},
		{"type that normalizes to another", serialotel.WithTypes("ＩＳ"), `which Unicode normalization (NFKC) changes to "I"`},
		{"the rest", serialotel.WithTypes("_OTHER"), "it means all types that are not named"},
	} {
		t.Run(test.name, func(t *testing.T) {
			h, err := serialotel.Hooks(test.opt)
			require.ErrorContains(t, err, test.want)
			require.Equal(t, serial.Hooks{}, h)
		})
	}
	t.Run("all at once", func(t *testing.T) {
		_, err := serialotel.Hooks(serialotel.WithMeterProvider(nil), nil, serialotel.WithTypes("", "a b"))
		for _, want := range []string{"WithMeterProvider", "option 2", `invalid type ""`, `invalid type "a b"`} {
			require.ErrorContains(t, err, want)
		}
	})
	t.Run("100 types of any script", func(t *testing.T) {
		require.NoError(t, errOf(serialotel.Hooks(serialotel.WithTypes(append(many[:99:99], "订单-a_b./٣")...))))
	})
	t.Run("by the meter", func(t *testing.T) {
		h, err := serialotel.Hooks(serialotel.WithMeterProvider(refusing{}))
		require.ErrorIs(t, err, errRefused)
		require.Equal(t, serial.Hooks{}, h)
	})
}

var errRefused = errors.New("no gauges here")

// refusing is a provider whose meter refuses gauges.
type refusing struct{ metricnoop.MeterProvider }

func (refusing) Meter(string, ...metric.MeterOption) metric.Meter { return refusingMeter{} }

type refusingMeter struct{ metricnoop.Meter }

func (refusingMeter) Float64Gauge(string, ...metric.Float64GaugeOption) (metric.Float64Gauge, error) {
	return nil, errRefused
}

// A Generator and WithTypes refuse the same types.
func TestTypesOfAGenerator(t *testing.T) {
	_, client := simulate(t)
	gen := newGenerator(t, client, serial.Hooks{})
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

// The slice given to WithTypes may be changed later.
func TestTypesAreCopied(t *testing.T) {
	o := observe(t)
	types := []string{"IS"}
	opt := serialotel.WithTypes(types...)
	h := o.hooks(opt)
	types[0] = "PO"
	h2 := o.hooks(opt)
	for _, h := range []serial.Hooks{h, h2} {
		h.Lost(t.Context(), serial.LostInfo{Type: "IS"})
	}
	require.Equal(t, []string{"serial.counter.lost repaired=false type=IS: 2"}, o.metrics())
}

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

// With a hundred goroutines, nothing is counted twice or lost, and each span has the right parent.
func TestMany(t *testing.T) {
	m := miniredis.RunT(t)
	m.SetTime(time.Date(2021, 10, 24, 12, 0, 0, 0, time.UTC))
	client := redis.NewClient(&redis.Options{Addr: m.Addr()})
	t.Cleanup(func() { _ = client.Close() })
	o := observe(t)
	gen := newGenerator(t, client, o.hooks(serialotel.WithTypes("IS", "PO")), serial.WithMaxSkew(-1))
	var wg sync.WaitGroup
	var parents sync.Map
	for i := range 100 {
		wg.Go(func() {
			typ := []string{"IS", "PO", "XX", "I S"}[i%4]
			ctx, caller := o.caller(t.Context())
			defer caller.End()
			_, err := gen.Next(ctx, typ)
			if typ == "I S" {
				require.ErrorIs(t, err, serial.ErrInvalidType)
			} else {
				require.NoError(t, err)
			}
			parents.Store(caller.SpanContext().SpanID(), typ)
		})
	}
	wg.Wait()
	counted := map[string]bool{}
	for _, line := range o.metrics() {
		if !strings.Contains(line, "duration") {
			counted[line] = true
		}
	}
	for _, line := range []string{"type=IS: 25", "type=PO: 25", "type=_OTHER: 25"} {
		require.Contains(t, counted, "serial.numbers.issued "+line)
	}
	spans := o.ended()
	require.Len(t, spans, 100)
	for _, s := range spans {
		typ, ok := parents.LoadAndDelete(s.Parent.SpanID())
		require.True(t, ok, "two spans of one caller")
		if typ == "I S" {
			require.Equal(t, "error.type=invalid_type requested=1", list(s.Attributes))
			continue
		}
		require.Contains(t, list(s.Attributes), "type="+typ.(string)+" period.start=2021-10-24T00:00:00Z")
	}
}
