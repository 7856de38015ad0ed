package serialotel_test

import (
	"fmt"
	"slices"
	"strings"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
)

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
