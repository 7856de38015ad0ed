package serialotel

import (
	"context"
	"errors"
	"runtime/debug"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	semconv "go.opentelemetry.io/otel/semconv/v1.39.0"

	"github.com/dailyserial/serial"
)

// instruments contains the instruments of all metrics. The hooks do not check Enabled before they use an instrument,
// because the arguments exist already, and a disabled instrument returns immediately.
type instruments struct {
	numbers, repeated, nearly, losses, unused, possible metric.Int64Counter
	calls, openings                                     metric.Float64Histogram
	offset                                              metric.Float64Gauge
}

func newInstruments(m metric.Meter) (i instruments, err error) {
	var errs [9]error
	i.numbers, errs[0] = m.Int64Counter("serial.numbers.issued", metric.WithUnit("{number}"),
		metric.WithDescription("Issued numbers."))
	i.repeated, errs[1] = m.Int64Counter("serial.requests.repeated", metric.WithUnit("{request}"),
		metric.WithDescription("Repeated requests that got the same number."))
	i.nearly, errs[2] = m.Int64Counter("serial.period.nearly_exhausted", metric.WithUnit("{period}"),
		metric.WithDescription("Periods with few numbers or days left. Each Generator counts a period of a type once."))
	i.losses, errs[3] = m.Int64Counter("serial.counter.lost", metric.WithUnit("{call}"),
		metric.WithDescription("Calls that found a lost counter, by whether it was repaired."))
	// The smallest buckets are smaller than those for HTTP, because a round trip to a nearby server takes only 100 µs.
	i.calls, errs[4] = m.Float64Histogram("serial.call.duration", metric.WithUnit("s"),
		metric.WithDescription("Duration of calls for numbers. Failed calls have an error.type."),
		metric.WithExplicitBucketBoundaries(0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5,
			1, 2.5, 5, 10))
	i.openings, errs[5] = m.Float64Histogram("serial.period.open.duration", metric.WithUnit("s"),
		metric.WithDescription("Time from the beginning of a call until it had opened a period."),
		metric.WithExplicitBucketBoundaries(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30))
	i.offset, errs[6] = m.Float64Gauge("serial.clock.offset", metric.WithUnit("s"),
		metric.WithDescription("Redis's time minus this host's time, recorded when it has changed."))
	i.unused, errs[7] = m.Int64Counter("serial.numbers.unused", metric.WithUnit("{number}"),
		metric.WithDescription("Numbers that no caller received, by reason."))
	i.possible, errs[8] = m.Int64Counter("serial.explanations.possible", metric.WithUnit("{explanation}"),
		metric.WithDescription("Possible reasons for missing numbers, by reason."))
	return i, errors.Join(errs[:]...)
}

// A series contains the options for all measurements of one type. They are created only once, so that a call does not
// have to create attributes. They are slices, because a call with separate arguments would allocate a slice.
type series struct {
	add      []metric.AddOption
	issued   []metric.RecordOption
	failed   [][]metric.RecordOption // by index in causes
	lost     [][]metric.AddOption    // by index in outcomes
	byReason [][]metric.AddOption    // by index in reasons
}

func newSeries(attrs ...attribute.KeyValue) *series {
	set := metric.WithAttributeSet(attribute.NewSet(attrs...))
	s := &series{add: []metric.AddOption{set}, issued: []metric.RecordOption{set}}
	with := func(attr attribute.KeyValue) metric.MeasurementOption {
		return metric.WithAttributeSet(attribute.NewSet(append([]attribute.KeyValue{attr}, attrs...)...))
	}
	for _, c := range causes {
		s.failed = append(s.failed, []metric.RecordOption{with(c.attr)})
	}
	for _, outcome := range outcomes {
		s.lost = append(s.lost, []metric.AddOption{with(outcome)})
	}
	for _, reason := range reasons {
		attr := reasonKey.String(strings.ReplaceAll(reason, " ", "_"))
		s.byReason = append(s.byReason, []metric.AddOption{with(attr)})
	}
	return s
}

// reasons contains the reasons that occur in explanations of a Generator.
var reasons = [...]string{
	serial.CallerLeft, serial.NotReplicated, serial.BlockBurned, serial.AnswerLost, serial.Raised, serial.BlockSkipped,
}

// outcomes contains the values of serial.repaired. Only the first one requires an operator.
var outcomes = [...]attribute.KeyValue{
	repairedKey.String("false"), repairedKey.String("pending"), repairedKey.String("true"),
}

// outcomeIndex returns the index of the outcome of i in the array outcomes.
func outcomeIndex(i serial.LostInfo) int {
	switch {
	case i.Repaired:
		return 2
	case i.Pending:
		return 1
	}
	return 0
}

// causes contains the values of error.type. An error may match several of them. The errors of contexts come last,
// because the others are more specific.
var causes = [...]struct {
	err  error
	attr attribute.KeyValue
}{
	{serial.ErrExhausted, semconv.ErrorTypeKey.String("exhausted")},
	{serial.ErrCounterLost, semconv.ErrorTypeKey.String("counter_lost")},
	{serial.ErrClockSkew, semconv.ErrorTypeKey.String("clock_skew")},
	{serial.ErrConflict, semconv.ErrorTypeKey.String("conflict")},
	{serial.ErrNotReplicated, semconv.ErrorTypeKey.String("not_replicated")},
	{serial.ErrInvalidType, semconv.ErrorTypeKey.String("invalid_type")},
	{serial.ErrInvalidRequest, semconv.ErrorTypeKey.String("invalid_request")},
	{context.Canceled, semconv.ErrorTypeKey.String("canceled")},
	{context.DeadlineExceeded, semconv.ErrorTypeKey.String("deadline_exceeded")},
	{nil, semconv.ErrorTypeOther}, // all other errors
}

// causeIndex returns the index of the cause of an error in the array causes. The error must not be nil.
func causeIndex(err error) int {
	other := len(causes) - 1
	for i, c := range causes[:other] {
		if errors.Is(err, c.err) {
			return i
		}
	}
	return other
}

// version returns the version of this module in the running program. A constant would have to be changed for every
// release.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return versionIn(&debug.BuildInfo{})
	}
	return versionIn(info)
}

func versionIn(info *debug.BuildInfo) string {
	for _, m := range append([]*debug.Module{&info.Main}, info.Deps...) {
		if m.Path == scope && m.Version != "" {
			return strings.TrimPrefix(m.Version, "v")
		}
	}
	return "(devel)" // Go's name for the version of a module in a work tree
}
