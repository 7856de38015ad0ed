// Package serialotel provides OpenTelemetry metrics and spans for a [serial.Generator], through its hooks:
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
//	instrument                      kind       unit           counts or measures
//	serial.numbers.issued           counter    {number}       numbers issued
//	serial.requests.repeated        counter    {request}      repeated requests that got the same number
//	serial.call.duration            histogram  s              calls for numbers, including failed ones; error.type
//	serial.period.open.duration     histogram  s              opened periods, from the beginning of the call
//	serial.period.nearly_exhausted  counter    {period}       periods with few numbers left, or near the last day
//	serial.counter.lost             counter    {call}         calls that found a lost counter; serial.repaired
//	serial.numbers.unused           counter    {number}       numbers that no caller received; serial.reason
//	serial.explanations.possible    counter    {explanation}  possible reasons for missing numbers; serial.reason
//	serial.clock.offset             gauge      s              Redis's time minus this host's time
//
// A histogram also has a count. The count of serial.call.duration by error.type is the number of failed calls. The
// count of serial.period.open.duration is the number of opened periods, including those that [serial.Generator.Raise]
// opened. Until a lost counter is repaired, every call that finds it is counted, including Peek and Raise. The offset
// is recorded only when it has changed. With several servers, it is the offset of the server on which a change was
// found last.
//
// The buckets of serial.call.duration range from 100 µs to 10 s. Those of serial.period.open.duration range from 1 ms
// to 30 s, which is the time for which a call without a deadline waits for an opening. A view of the SDK overrides
// them.
//
// serial.repaired is true if the call repaired the counter, pending if a later call may repair it, and false if the
// call returned [serial.ErrCounterLost], because an operator has to repair it. See [serial.LostInfo] for details. Alert
// only on false.
//
// serial.reason is the reason of a [serial.Explanation]. For numbers that no caller received, it is caller_left,
// not_replicated or block_burned. For possible reasons, it is answer_lost, raised, block_skipped or, without a ledger,
// not_replicated. A possible reason is counted once, whatever its range, because most numbers in the range were issued.
//
// error.type is one of exhausted, counter_lost, clock_skew, conflict, not_replicated, invalid_type, invalid_request
// (the errors of package serial), canceled, deadline_exceeded (the caller's context, a floor or a ledger) and _OTHER.
// If an error matches several of them, the first one counts.
//
// # Business types
//
// There may be any number of business types, and each would need its own time series. Therefore metrics do not
// distinguish types, except for those of [WithTypes]. Spans always have the type.
//
// # Spans
//
// Each call for numbers has a span serial.issue, a child of the span in its context. The span is created when the call
// ends, with the start time of the call. If the client creates spans for Redis commands, they are siblings of this span
// and not its children. Its attributes are:
//
//	serial.type          business type; omitted if it was refused as invalid
//	serial.series        the series that all types share; only with [serial.WithSharedCounter]
//	serial.period.start  first instant of the period, RFC 3339, in the Generator's time zone
//	serial.sequence      sequence of the last number
//	serial.count         numbers issued; 0 for a repeated request
//	serial.requested     numbers asked for, if the call failed
//	error.type           as above, if the call failed, with the error as status and exception
//
// The span in the caller's context gets an event for unusual occurrences, if it is recorded: serial.period.opened,
// serial.period.nearly_exhausted, serial.counter.lost and serial.clock.corrected. The events are not added to
// serial.issue, because Peek and Raise report them, too, and have no such span.
//
// No attribute contains the printed number. But the number can be derived from the type, the period, the sequence and
// the template, and the text of an error may contain a sequence, a key or the ID of a request. If traces must not
// contain these, configure the collector or a span processor to drop serial.sequence, the status description and
// exception events. Metrics contain none of them.
//
// # Your own hooks
//
// The result is a struct whose fields you can change. Wrap a function to add your own, or set NearlyExhaustedAt:
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

// scope is the name of the instrumentation: the path of the module, as OpenTelemetry expects.
const scope = "github.com/dailyserial/serial/serialotel"

const (
	typeKey     = attribute.Key("serial.type")
	seriesKey   = attribute.Key("serial.series")
	startKey    = attribute.Key("serial.period.start")
	waitKey     = attribute.Key("serial.period.wait")
	sequenceKey = attribute.Key("serial.sequence")
	countKey    = attribute.Key("serial.count")
	askedKey    = attribute.Key("serial.requested")
	usedKey     = attribute.Key("serial.used")
	sizeKey     = attribute.Key("serial.size")
	offsetKey   = attribute.Key("serial.clock.offset")
	reasonKey   = attribute.Key("serial.reason")
	repairedKey = attribute.Key("serial.repaired")
)

// Hooks returns hooks for [serial.WithHooks] that record the metrics and spans of the package documentation. They are
// safe for concurrent use, start no goroutines, and wait only if a span processor waits. They need not be closed, but
// the caller must shut down the providers.
//
// Hooks fails if an option is nil or invalid, or if the meter refuses an instrument. The error contains all causes, and
// the hooks are empty.
func Hooks(opts ...Option) (serial.Hooks, error) {
	c, err := newConfig(opts)
	if err != nil {
		return serial.Hooks{}, err
	}
	t, err := newTelemetry(c)
	if err != nil {
		return serial.Hooks{}, fmt.Errorf("serialotel: the meter refuses an instrument: %w", err)
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

// seriesOf returns the series of a type.
func (t *telemetry) seriesOf(typ string) *series {
	if s := t.types[typ]; s != nil {
		return s
	}
	return t.rest
}

// span returns a span, and a context with it, for a call that has just ended and took that long. Measurements must use
// the context, so that their exemplars have the ID of this span and not of the caller's.
//
// The kind of the span is internal, which is the default, because a call is not a single request to a server: it may
// send several commands, share a command with other calls, wait for a lock, or query a database.
//
// The span has no attributes yet, because they are needed only if it is sampled. A sampler sees the name and the
// parent.
func (t *telemetry) span(ctx context.Context, took time.Duration) (context.Context, trace.Span, time.Time) {
	end := time.Now()
	ctx, span := t.tracer.Start(ctx, "serial.issue", trace.WithTimestamp(end.Add(-took)))
	return ctx, span, end
}

func (t *telemetry) issued(ctx context.Context, i serial.IssuedInfo) {
	ctx, span, end := t.span(ctx, i.Duration)
	s := t.seriesOf(i.Last.Type)
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
	cause := causeOf(i.Err)
	t.calls.Record(ctx, i.Duration.Seconds(), t.seriesOf(i.Type).failed[cause]...)
	if !span.IsRecording() {
		span.End()
		return
	}
	span.SetAttributes(causes[cause].attr, askedKey.Int(i.Count))
	span.SetAttributes(shared(i.Series)...)
	if causes[cause].err != serial.ErrInvalidType { // an invalid type may be of any length
		span.SetAttributes(typeKey.String(i.Type))
	}
	span.RecordError(i.Err, trace.WithTimestamp(end))
	span.SetStatus(codes.Error, i.Err.Error())
	span.End(trace.WithTimestamp(end))
}

func (t *telemetry) opened(ctx context.Context, i serial.OpenedInfo) {
	t.openings.Record(ctx, i.Wait.Seconds(), t.seriesOf(i.Type).issued...)
	if span := trace.SpanFromContext(ctx); span.IsRecording() {
		span.AddEvent("serial.period.opened",
			trace.WithAttributes(typeKey.String(i.Type), start(i.Start), waitKey.Float64(i.Wait.Seconds())),
			trace.WithAttributes(shared(i.Series)...))
	}
}

// lost does not record the value of the counter, because the error of an unrepaired counter contains it.
func (t *telemetry) lost(ctx context.Context, i serial.LostInfo) {
	outcome := outcomeOf(i)
	t.losses.Add(ctx, 1, t.seriesOf(i.Type).lost[outcome]...)
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
	t.nearly.Add(ctx, 1, t.seriesOf(i.Last.Type).add...)
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
		counter.Add(ctx, n, t.seriesOf(e.Type).byReason[i]...)
	}
}

// shared returns the attribute of a series that all types share, and none for "".
func shared(series string) []attribute.KeyValue {
	if series == "" {
		return nil
	}
	return []attribute.KeyValue{seriesKey.String(series)}
}

// start returns the attribute of a period's start.
func start(t time.Time) attribute.KeyValue { return startKey.String(t.Format(time.RFC3339)) }
