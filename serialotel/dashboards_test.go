package serialotel_test

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.yaml.in/yaml/v3"

	"github.com/dailyserial/serial"
	"github.com/dailyserial/serial/serialotel"
)

// The dashboard and the alerts must query only metrics, labels and values that are exported, and the dashboard must
// show all metrics. The alert on lost counters must ignore counters that were repaired or may be repaired later.
func TestDashboardAndAlerts(t *testing.T) {
	exported, values := exportedToPrometheus(t)
	scraped := []string{"job", "instance"} // labels that Prometheus adds
	for file, queries := range map[string][]string{
		"dashboards/serial.json": dashboardQueries(t), "alerts/serial.yml": alertQueries(t),
	} {
		require.GreaterOrEqual(t, len(queries), 8, file)
		asked := map[string]bool{}
		for _, query := range queries {
			require.Equal(t, strings.Count(query, "("), strings.Count(query, ")"), query)
			var labels []string // of the metrics in this query
			for _, name := range regexp.MustCompile(`\bserial_\w+`).FindAllString(query, -1) {
				if values[name] != nil {
					continue // a label
				}
				require.Contains(t, exported, name, "%s: %s", file, query)
				labels = append(labels, exported[name]...)
				asked[strings.TrimSuffix(strings.TrimSuffix(name, "_bucket"), "_count")] = true
			}
			for _, list := range regexp.MustCompile(`by \(([^)]*)\)`).FindAllStringSubmatch(query, -1) {
				for _, label := range strings.Split(list[1], ", ") {
					require.Contains(t, append(scraped, labels...), label, "%s: %s", file, query)
				}
			}
			for _, match := range regexp.MustCompile(`(\w+)(?:=|!=|=~|!~)"([^"]*)"`).FindAllStringSubmatch(query, -1) {
				label := match[1]
				require.Contains(t, append(scraped, labels...), label, "%s: %s", file, query)
				for _, value := range strings.Split(match[2], "|") {
					if value != "" && !slices.Contains(scraped, label) {
						require.Contains(t, values[label], value, "%s: %s", file, query)
					}
				}
			}
			if file == "alerts/serial.yml" {
				all, lost := "serial_counter_lost_total", `serial_counter_lost_total{serial_repaired="false"}`
				require.Equal(t, strings.Count(query, all), strings.Count(query, lost), query)
			}
		}
		if file == "dashboards/serial.json" {
			require.Len(t, asked, 9, "one query of each instrument")
		}
	}
}

// dashboardQueries returns the queries of the dashboard.
func dashboardQueries(t *testing.T) (queries []string) {
	t.Helper()
	dashboard := load(t, "dashboards/serial.json").(map[string]any)
	for i, panel := range dashboard["panels"].([]any) {
		require.Equal(t, i+1, panel.(map[string]any)["id"])
		require.NotEmpty(t, find(panel, "expr"), "panel %d", i+1)
		queries = append(queries, find(panel, "expr")...)
	}
	require.Contains(t, find(dashboard["templating"], "query"), "label_values(serial_call_duration_seconds_count, job)")
	return queries
}

// alertQueries returns the conditions of the alerts. It requires that each alert has a runbook.
func alertQueries(t *testing.T) (queries []string) {
	t.Helper()
	alerts := load(t, "alerts/serial.yml")
	for _, key := range []string{"expr", "summary", "severity", "runbook_url"} {
		require.Len(t, find(alerts, key), len(find(alerts, "alert")), key)
	}
	require.Subset(t, []string{"page", "ticket"}, find(alerts, "severity"))
	for _, duration := range find(alerts, "for") {
		require.NoError(t, onlyErr(time.ParseDuration(duration)))
	}
	guide, err := os.ReadFile("../docs/errors.md")
	require.NoError(t, err)
	var anchors []string
	for _, heading := range regexp.MustCompile(`(?m)^##+ (.*)$`).FindAllStringSubmatch(string(guide), -1) {
		anchors = append(anchors, strings.ReplaceAll(strings.ToLower(heading[1]), " ", "-"))
	}
	for _, url := range find(alerts, "runbook_url") {
		_, anchor, _ := strings.Cut(url, "docs/errors.md#")
		require.Contains(t, anchors, anchor)
	}
	return find(alerts, "expr")
}

// load parses a file in YAML or JSON, which is valid YAML.
func load(t *testing.T, name string) (document any) {
	t.Helper()
	text, err := os.ReadFile(name)
	require.NoError(t, err)
	require.NoError(t, yaml.Unmarshal(text, &document))
	return document
}

// find returns the texts under a key of a document, at any depth.
func find(document any, key string) (texts []string) {
	switch document := document.(type) {
	case []any:
		for _, element := range document {
			texts = append(texts, find(element, key)...)
		}
	case map[string]any:
		if text, ok := document[key].(string); ok {
			texts = append(texts, text)
		}
		for _, value := range document {
			texts = append(texts, find(value, key)...)
		}
	}
	return texts
}

// exportedToPrometheus returns the labels of each metric, by its name in Prometheus, and the values of each label. For
// this purpose, it calls every hook.
func exportedToPrometheus(t *testing.T) (exported, values map[string][]string) {
	t.Helper()
	o := observe(t)
	h := o.hooks(serialotel.WithTypes("IS"))
	callHooks(t.Context(), h, "IS", "")
	for _, cause := range causes {
		h.Failed(t.Context(), serial.FailedInfo{Type: "IS", Count: 1, Err: cause})
	}
	exported, values = map[string][]string{}, map[string][]string{}
	for _, m := range o.collect().ScopeMetrics[0].Metrics {
		name := strings.ReplaceAll(m.Name, ".", "_")
		if m.Unit == "s" { // a unit in braces is no part of the name
			name += "_seconds"
		}
		names := []string{name + "_count", name + "_sum", name + "_bucket"}
		switch m.Data.(type) {
		case metricdata.Sum[int64]:
			names = []string{name + "_total"}
		case metricdata.Gauge[float64]:
			names = []string{name}
		default:
			exported[name+"_bucket"] = []string{"le"}
		}
		points(m, func(set attribute.Set, _ string) {
			for _, kv := range set.ToSlice() {
				label := strings.ReplaceAll(string(kv.Key), ".", "_")
				values[label] = append(values[label], kv.Value.Emit())
				for _, name := range names {
					exported[name] = append(exported[name], label)
				}
			}
			for _, name := range names {
				exported[name] = append([]string{}, exported[name]...) // even without a label
			}
		})
	}
	return exported, values
}
