package main

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestTemplate(t *testing.T) {
	e := environment{"SERIAL_REDIS_URL": "no URL", "SERIAL_TZ": "Asia/Shanghai"}
	shanghai, err := time.LoadLocation("Asia/Shanghai")
	require.NoError(t, err)
	next := time.Now().In(shanghai).Year() + 1
	day := func(layout string, y int, m time.Month, d int) string {
		return time.Date(y, m, d, 0, 0, 0, 0, shanghai).Format(layout)
	}
	stdout, stderr := e.exits(t, 0, "template", "{type}-{date:yyMMdd}-{seq:6}")
	require.Empty(t, stderr)
	require.Contains(t, stdout, "template   {type}-{date:yyMMdd}-{seq:6}\nperiod     day\nsequences  000001 to 999999; "+
		"they start again at ")
	require.Regexp(t, `(?m)^\S+  IS-\d{6}-000001 +now$`, stdout)
	require.Regexp(t, fmt.Sprintf(`(?m)^%d-12-31T23:59:59\+08:00  IS-%s-000001 +the end of the year$`, next-1,
		day("060102", next-1, 12, 31)), stdout)
	require.Regexp(t, fmt.Sprintf(`(?m)^%d-01-01T00:00:00\+08:00  IS-%s-000001 +New Year$`, next,
		day("060102", next, 1, 1)), stdout)
	require.Regexp(t, `(?m) the end of the (month|year)$`, stdout)
	require.NotContains(t, stdout, "business")
	require.Regexp(t, `(?m)^integer    \d{6}000001$`, stdout)

	_, stdout, _ = e.do("template", "{type}/{date:FFFF-EE}/{seq:4+}", "-period", "year", "-year-start", "04-01",
		"-day-start", "04:00", "-start", "7")
	require.Contains(t, stdout, "period     year\nsequences  0007 to 10^15-1; they start again at ")
	require.Regexp(t, `(?m)^(\d{4})-04-01T03:59:59\+08:00  IS/\d{4}-\d\d/0007 +the end of the business year$`, stdout)
	require.Regexp(t, `(?m)^\d{4}-04-01T04:00:00\+08:00  IS/\d{4}-\d\d/0007 +the next business year$`, stdout)
	for line := range strings.Lines(stdout) { // the years depend on the current date
		var y, from, to int
		if _, err := fmt.Sscanf(line, "%d-04-01T03:59:59+08:00  IS/%d-%d/", &y, &from, &to); err == nil {
			require.Equal(t, []int{y - 1, y % 100}, []int{from, to})
		}
		if _, err := fmt.Sscanf(line, "%d-04-01T04:00:00+08:00  IS/%d-%d/", &y, &from, &to); err == nil {
			require.Equal(t, []int{y, y%100 + 1}, []int{from, to})
		}
	}

	_, stdout, _ = e.do("template", "{type}{seq:3:base32}", "-period", "never")
	require.Contains(t, stdout, "sequences  001 to ZZZ; they never start again\n")
	require.Contains(t, stdout, "integer    none: the sequence is printed in base32\n")
	_, stdout, _ = e.do("template", "{type}{seq:3:letters}", "-period", "never")
	require.Contains(t, stdout, "sequences  AAB to ZZZ; they never start again\n")
	_, stdout, _ = e.do("template", "{type}{seq:3:alpha}", "-period", "never")
	require.Contains(t, stdout, "sequences  AAA to ZZZ; they never start again\n")
	_, stdout, _ = e.do("template", "-shared", "{seq:1+}/{date:yyyy}", "-period", "year")
	require.Contains(t, stdout, "sequences  1 to 10^15-1; they start again at ")
	require.Regexp(t, `(?m)^\S+  1/\d{4} +now$`, stdout)
	_, stdout, _ = e.do("template", "-json", "{type}{date:yyyyMMdd}{seq}")
	require.Regexp(t, `^\{"example":"now","at":"[^"]+","number":"IS\d{8}0001","type":"IS","start":"[^"]+","seq":1\}\n`,
		stdout)

	for template, says := range map[string]string{
		"{type}{seq}": "{date} is missing; only numbers of Never need none; to leave the day out, use a template that " +
			"prints it, print each number yourself from Type and Seq, and keep the day beside it (WithTemplate)",
		"{type}{date:yyyyMM}{seq}":           "of different days would read the same; print yyyyMMdd, or use -period month",
		"{type}{date:GGGG-WW}{seq}":          "; print yyyyMMdd, or use -period week",
		"{type}{date:yyyy}{seq}":             "; print yyyyMMdd, or use -period year",
		"{type}{date:yyyyMMdd}{seq}{check:x": "is not closed",
	} {
		stderr := e.fails(t, 1, says, "template", template)
		require.NotContains(t, stderr, "usage:")
		gen, _, said := e.do("parse", "-template", template, "IS202110240001")
		require.Equal(t, 2, gen)
		require.True(t, strings.HasSuffix(said, stderr), "what New says: %s", said)
	}
	for _, row := range []struct {
		says string
		args []string
	}{
		{"TEMPLATE is missing", []string{"template"}},
		{"omit -template", []string{"template", "-template", "a", "b"}},
		{"too many arguments", []string{"template", "a", "b"}},
	} {
		e.fails(t, 2, row.says, row.args...)
	}
}
