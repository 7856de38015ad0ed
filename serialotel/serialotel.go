// Package serialotel provides hooks that record OpenTelemetry metrics and spans for a [serial.Generator]:
//
//	hooks, err := serialotel.Hooks()
//	if err != nil {
//		return err
//	}
//	gen, err := serial.New(rdb, serial.WithHooks(hooks))
//
// One set of hooks may serve any number of Generators.
//
// # Metrics
//
//	instrument                      kind       unit           counts or measures                          attribute
//	serial.numbers.issued           counter    {number}       issued numbers
//	serial.requests.repeated        counter    {request}      repeated requests that got the same number
//	serial.call.duration            histogram  s              calls for numbers, including failed calls   error.type
//	serial.period.open.duration     histogram  s              calls that opened a period
//	serial.period.nearly_exhausted  counter    {period}       periods with few numbers or days left
//	serial.counter.lost             counter    {call}         calls that found a lost counter             serial.repaired
//	serial.numbers.unused           counter    {number}       numbers that no caller received             serial.reason
//	serial.explanations.possible    counter    {explanation}  possible reasons for missing numbers        serial.reason
//	serial.clock.offset             gauge      s              Redis's time minus this host's time
//
// A histogram also has a count. The count of serial.call.duration with an error.type is the number of failed calls. The
// count of serial.period.open.duration is the number of opened periods, including those that [serial.Generator.Raise]
// opened. Each duration is measured from the beginning of the call. Until a lost counter is repaired, every call that
// finds it is counted, including Peek and Raise. The offset is recorded only when it has changed. With several servers,
// it is the offset of the server on which the latest change was found.
//
// The buckets of serial.call.duration range from 100 µs to 10 s. Those of serial.period.open.duration range from 1 ms
// to 30 s, which is the maximum time for which a call without a deadline waits for an opening. You can replace the
// buckets with a view of the SDK.
//
// serial.repaired is true if the call repaired the counter, and pending if a later call may repair it. It is false if
// the call returned [serial.ErrCounterLost], because an operator has to repair the counter. Alert only on false. See
// [serial.LostInfo] for details.
//
// serial.reason is the reason of a [serial.Explanation]. For numbers that no caller received, it is caller_left,
// not_replicated or block_burned. For possible reasons, it is answer_lost, raised, block_skipped or, without a ledger,
// not_replicated. A possible reason is counted once, whatever its range, because most numbers in the range were issued.
//
// error.type has one of the following values. If several apply to an error, it has the first of them:
//
//   - exhausted, counter_lost, clock_skew, conflict, not_replicated, invalid_type or invalid_request, for the errors of
//     package serial
//   - canceled or deadline_exceeded, if the caller's context has ended, or if a floor or a ledger has returned such an
//     error
//   - _OTHER, for all other errors
//
// # Business types
//
// There may be any number of business types, and each would need separate time series. Therefore metrics distinguish
// only the types of [WithTypes]. Spans always contain the type.
//
// # Spans
//
// Each call for numbers has a span serial.issue, which is a child of the span in its context. The span is created when
// the call ends, with the start time of the call. So if the client creates spans for Redis commands, they are siblings
// of this span and not its children. The span has these attributes:
//
//	serial.type          business type; omitted if it is invalid
//	serial.series        series that all types share; only with [serial.WithSharedCounter]
//	serial.period.start  first instant of the period in RFC 3339, in the Generator's time zone
//	serial.sequence      sequence of the last number
//	serial.count         count of the issued numbers; 0 for a repeated request
//	serial.requested     count of the requested numbers; only if the call failed
//	error.type           cause of the error; only if the call failed
//
// If the call failed, the span also has the error as its status description and as an exception event.
//
// If the span in the caller's context is recorded, it gets an event for each unusual occurrence: serial.period.opened,
// serial.period.nearly_exhausted, serial.counter.lost or serial.clock.corrected. These events are not added to
// serial.issue, because they also occur in Peek and Raise, which have no such span.
//
// No attribute contains the printed number. But the number can be derived from the type, the period, the sequence and
// the template, and the text of an error may contain a sequence, a key or the ID of a request. If traces must not
// contain this information, configure the collector or a span processor to drop serial.sequence, the status description
// and exception events. Metrics contain none of it.
//
// # Your own hooks
//
// [Hooks] returns a struct whose fields you can change. For example, wrap one of the functions in your own, or set
// NearlyExhaustedAt:
//
//	failed := hooks.Failed
//	hooks.Failed = func(ctx context.Context, info serial.FailedInfo) {
//		failed(ctx, info)
//		slog.ErrorContext(ctx, "no number", "type", info.Type, "error", info.Err)
//	}
//	hooks.NearlyExhaustedAt = 0.95
package serialotel

import (
	"context"
	"fmt"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	semconv "go.opentelemetry.io/otel/semconv/v1.39.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/dailyserial/serial"
)

// scope is the name of the instrumentation. OpenTelemetry expects the path of the module.
const scope = "github.com/dailyserial/serial/serialotel"

const (
	typeKey      = attribute.Key("serial.type")
	seriesKey    = attribute.Key("serial.series")
	startKey     = attribute.Key("serial.period.start")
	waitKey      = attribute.Key("serial.period.wait")
	sequenceKey  = attribute.Key("serial.sequence")
	countKey     = attribute.Key("serial.count")
	requestedKey = attribute.Key("serial.requested")
	usedKey      = attribute.Key("serial.used")
	sizeKey      = attribute.Key("serial.size")
	offsetKey    = attribute.Key("serial.clock.offset")
	reasonKey    = attribute.Key("serial.reason")
	repairedKey  = attribute.Key("serial.repaired")
)

// Hooks returns hooks for [serial.WithHooks] that record the metrics and spans of the package documentation. They are
// safe for concurrent use and start no goroutines. They wait only if a span processor waits. They need not be closed,
// but the caller must shut down the providers.
//
// Hooks returns an error if an option is nil or invalid, or if the meter rejects an instrument. The error contains all
// causes, and the hooks are empty.
func Hooks(opts ...Option) (serial.Hooks, error) {
	c, err := newConfig(opts)
	if err != nil {
		return serial.Hooks{}, err
	}
	t, err := newTelemetry(c)
	if err != nil {
		return serial.Hooks{}, fmt.Errorf("serialotel: the meter rejects an instrument: %w", err)
	}
	return serial.Hooks{
		Issued:          t.issued,
		Failed:          t.failed,
		Opened:          t.opened,
		Lost:            t.lost,
		ClockCorrected:  t.clockCorrected,
		NearlyExhausted: t.nearlyExhausted,
		Unused:          t.unusedNumbers,
	}, nil
}

// A telemetry contains the instruments of the hooks. It never changes, so it needs no lock.
type telemetry struct {
	tracer trace.Tracer
	instruments
	types map[string]*series
	rest  *series // series of all other types
}

func newTelemetry(c *config) (*telemetry, error) {
	version := version()
	t := &telemetry{
		tracer: c.tracers.Tracer(scope, trace.WithInstrumentationVersion(version), trace.WithSchemaURL(semconv.SchemaURL)),
		types:  map[string]*series{},
		rest:   newSeries(),
	}
	if len(c.types) > 0 {
		t.rest = newSeries(typeKey.String(otherType))
	}
	for _, typ := range c.types {
		t.types[typ] = newSeries(typeKey.String(typ))
	}
	var err error
	t.instruments, err = newInstruments(c.meters.Meter(scope, metric.WithInstrumentationVersion(version),
		metric.WithSchemaURL(semconv.SchemaURL)))
	return t, err
}

// findSeries returns the series of a type, or the series of all other types.
func (t *telemetry) findSeries(typ string) *series {
	if s := t.types[typ]; s != nil {
		return s
	}
	return t.rest
}

// span returns a span for a call that has just ended and has taken the given time, and a context with this span.
// Measurements must use this context, so that their exemplars have the ID of this span and not of the caller's span.
//
// The kind of the span is internal, which is the default, because a call is not a single request to a server. It may
// send several commands, share a command with other calls, wait for a lock, or query a database.
//
// The span has no attributes yet, because they are needed only if it is sampled. A sampler sees only the name and the
// parent.
func (t *telemetry) span(ctx context.Context, took time.Duration) (context.Context, trace.Span, time.Time) {
	end := time.Now()
	ctx, span := t.tracer.Start(ctx, "serial.issue", trace.WithTimestamp(end.Add(-took)))
	return ctx, span, end
}

func (t *telemetry) issued(ctx context.Context, i serial.IssuedInfo) {
	ctx, span, end := t.span(ctx, i.Duration)
	s := t.findSeries(i.Last.Type)
	t.calls.Record(ctx, i.Duration.Seconds(), s.issued...)
	if i.Count > 0 {
		t.numbers.Add(ctx, int64(i.Count), s.add...)
	} else {
		t.repeated.Add(ctx, 1, s.add...)
	}
	if !span.IsRecording() {
		span.End()
		return
	}
	span.SetAttributes(typeKey.String(i.Last.Type), start(i.Last.Start), sequenceKey.Int64(i.Last.Seq),
		countKey.Int(i.Count))
	span.SetAttributes(shared(i.Series)...)
	span.End(trace.WithTimestamp(end))
}

func (t *telemetry) failed(ctx context.Context, i serial.FailedInfo) {
	ctx, span, end := t.span(ctx, i.Duration)
	cause := causeIndex(i.Err)
	t.calls.Record(ctx, i.Duration.Seconds(), t.findSeries(i.Type).failed[cause]...)
	if !span.IsRecording() {
		span.End()
		return
	}
	span.SetAttributes(causes[cause].attr, requestedKey.Int(i.Count))
	span.SetAttributes(shared(i.Series)...)
	if causes[cause].err != serial.ErrInvalidType { // an invalid type can have any length
		span.SetAttributes(typeKey.String(i.Type))
	}
	span.RecordError(i.Err, trace.WithTimestamp(end))
	span.SetStatus(codes.Error, i.Err.Error())
	span.End(trace.WithTimestamp(end))
}

func (t *telemetry) opened(ctx context.Context, i serial.OpenedInfo) {
	t.openings.Record(ctx, i.Wait.Seconds(), t.findSeries(i.Type).issued...)
	if span := trace.SpanFromContext(ctx); span.IsRecording() {
		span.AddEvent("serial.period.opened",
			trace.WithAttributes(typeKey.String(i.Type), start(i.Start), waitKey.Float64(i.Wait.Seconds())),
			trace.WithAttributes(shared(i.Series)...))
	}
}

// lost does not record the value of the counter. If the counter was not repaired, the error of the call contains it.
func (t *telemetry) lost(ctx context.Context, i serial.LostInfo) {
	outcome := outcomeIndex(i)
	t.losses.Add(ctx, 1, t.findSeries(i.Type).lost[outcome]...)
	if span := trace.SpanFromContext(ctx); span.IsRecording() {
		span.AddEvent("serial.counter.lost",
			trace.WithAttributes(typeKey.String(i.Type), start(i.Start), outcomes[outcome]),
			trace.WithAttributes(shared(i.Series)...))
	}
}

func (t *telemetry) clockCorrected(ctx context.Context, i serial.ClockInfo) {
	t.offset.Record(ctx, i.Offset.Seconds())
	if span := trace.SpanFromContext(ctx); span.IsRecording() {
		span.AddEvent("serial.clock.corrected", trace.WithAttributes(offsetKey.Float64(i.Offset.Seconds())))
	}
}

func (t *telemetry) nearlyExhausted(ctx context.Context, i serial.ExhaustionInfo) {
	t.nearly.Add(ctx, 1, t.findSeries(i.Last.Type).add...)
	if span := trace.SpanFromContext(ctx); span.IsRecording() {
		span.AddEvent("serial.period.nearly_exhausted", trace.WithAttributes(typeKey.String(i.Last.Type), start(i.Last.Start),
			usedKey.Int64(i.Used), sizeKey.Int64(i.Size)), trace.WithAttributes(shared(i.Series)...))
	}
}

func (t *telemetry) unusedNumbers(ctx context.Context, e serial.Explanation) {
	for i, reason := range reasons {
		if !strings.HasPrefix(e.Reason, reason) {
			continue
		}
		counter, n := t.unused, e.Last-e.First+1
		if e.Possible { // most numbers in its range were issued
			counter, n = t.possible, 1
		}
		counter.Add(ctx, n, t.findSeries(e.Type).byReason[i]...)
	}
}

// shared returns the attribute for a series that all types share, or nothing if series is "".
func shared(series string) []attribute.KeyValue {
	if series == "" {
		return nil
	}
	return []attribute.KeyValue{seriesKey.String(series)}
}

// start returns the attribute for the start of a period.
func start(t time.Time) attribute.KeyValue { return startKey.String(t.Format(time.RFC3339)) }
