package serialotel_test

import (
	"encoding/json"
	"fmt"
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
	text, err := os.ReadFile("dashboards/serial.json")
	require.NoError(t, err)
	var dashboard struct {
		Panels []struct {
			ID      int
			Title   string
			Targets []struct{ Expr, RefID string }
		}
		Templating struct {
			List []struct{ Name, Type, Query string }
		}
	}
	require.NoError(t, json.Unmarshal(text, &dashboard))
	for i, p := range dashboard.Panels {
		require.Equal(t, i+1, p.ID)
		require.NotEmpty(t, p.Targets, p.Title)
		for _, target := range p.Targets {
			queries = append(queries, target.Expr)
		}
	}
	for _, v := range dashboard.Templating.List {
		if v.Type == "query" {
			require.Equal(t, fmt.Sprintf("label_values(serial_call_duration_seconds_count, %s)", v.Name), v.Query)
		}
	}
	return queries
}

// alertQueries returns the conditions of the alerts. It requires that each alert has a runbook.
func alertQueries(t *testing.T) (queries []string) {
	t.Helper()
	text, err := os.ReadFile("alerts/serial.yml")
	require.NoError(t, err)
	var file struct {
		Groups []struct {
			Rules []struct {
				Alert, Expr, For    string
				Labels, Annotations map[string]string
			}
		}
	}
	require.NoError(t, yaml.Unmarshal(text, &file))
	guide, err := os.ReadFile("../docs/errors.md")
	require.NoError(t, err)
	var anchors []string
	for _, heading := range regexp.MustCompile(`(?m)^##+ (.*)$`).FindAllStringSubmatch(string(guide), -1) {
		anchors = append(anchors, strings.ReplaceAll(strings.ToLower(heading[1]), " ", "-"))
	}
	for _, rule := range file.Groups[0].Rules {
		queries = append(queries, rule.Expr)
		if rule.For != "" {
			require.NoError(t, onlyErr(time.ParseDuration(rule.For)))
		}
		require.NotEmpty(t, rule.Annotations["summary"])
		require.Contains(t, []string{"page", "ticket"}, rule.Labels["severity"])
		_, anchor, _ := strings.Cut(rule.Annotations["runbook_url"], "docs/errors.md#")
		require.Contains(t, anchors, anchor, rule.Alert)
	}
	return queries
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
