package main

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Bars for days, with another start, for a template without a limit, and for an unused type.
func TestHistory(t *testing.T) {
	m, e, day := issued(t, 0)
	loc := zoneOf(t, e)
	at := func(n int) time.Time { return time.Now().In(loc).AddDate(0, 0, n) }
	key := func(n int) string { return "serial:{IS}:" + at(n).Format("20060102") }
	for n, seq := range map[int]string{-1: "9999", -2: "0", -3: "1", -5: "5000"} {
		require.NoError(t, m.Set(key(n), seq))
	}
	e.exits(t, 0, "next", "-n", "1250", "IS")
	full := func(n int) string { return strings.Repeat("█", n) + strings.Repeat("·", 24-n) }

	width := 0
	for n := range 6 {
		width = max(width, len(at(-n).Format("2 January 2006")))
	}
	line := func(n int, rest string) string {
		return fmt.Sprintf("%-*s %s\n", width, at(n).Format("2 January 2006"), rest)
	}
	e.prints(t, line(0, full(3)+" 1250  12.5%")+line(-1, full(24)+" 9999 100.0%")+line(-2, full(0)+"    0   0.0%")+
		line(-3, full(1)+"    1   0.0%")+line(-5, full(12)+" 5000  50.0%"), "history", "IS")

	midnight := func(n int) string {
		y, m, d := at(n).Date()
		return time.Date(y, m, d, 0, 0, 0, 0, loc).Format(time.RFC3339)
	}
	e.prints(t, fmt.Sprintf(`{"number":"IS%s1250","type":"IS","start":"%s","seq":1250,"used":%v}`+"\n"+
		`{"number":"IS%s9999","type":"IS","start":"%s","seq":9999,"used":1}`+"\n",
		day, midnight(0), 251.0/9000, at(-1).Format("20060102"), midnight(-1)),
		"history", "-n", "2", "-json", "-start", "1000", "IS")

	// Bars are relative to the maximum where there is no limit, and to the field, not to the literal.
	e.prints(t, line(0, full(3)+" 1250")+line(-1, full(24)+" 9999"),
		"history", "-n", "2", "-template", "{type}{date:yyyyMMdd}-{seq:3+}", "IS")
	e.prints(t, line(0, full(3)+" 1250  12.5%"),
		"history", "-n", "1", "-template", "{{seq:9}}-{type}-{date:yyyyMMdd}-{seq}", "IS")

	stderr := e.fails(t, 0, "PO", "history", "PO")
	require.Equal(t, "serial: PO has no counter in the last 7 periods\n", stderr)
	e.fails(t, 1, "want 1 to 10000", "history", "-n", "10001", "IS")

	// A lost counter is not shown as an unused period.
	m.Del(key(0))
	stdout, stderr := e.exits(t, 1, "history", "-n", "2", "IS")
	require.Equal(t, line(-1, full(24)+" 9999 100.0%"), stdout)
	require.Contains(t, stderr, "serial: counter lost: ")
	require.NoError(t, m.Set(key(0), "1000000000000000"))
	e.exits(t, 1, "history", "IS")
}

// The only period of Never began in 1969 west of Greenwich.
func TestNeverIn1969(t *testing.T) {
	_, e, _ := issued(t, 0)
	e["SERIAL_TZ"] = "America/New_York"
	stdout, _ := e.with("IS0008").exits(t, 0, "import", "-period", "never")
	require.Equal(t, "raised IS in all time: from 0000 to 0008; 1 number\n", unskipped(stdout))
	stdout, _ = e.with("IS0008").exits(t, 3, "audit", "-period", "never", "IS")
	require.Contains(t, stdout, "IS in all time: not all numbers are accounted for")
}

// Weeks, quarters, half-years, business years and the period of Never are imported, and shown by their names.
func TestPeriods(t *testing.T) {
	zone, _ := noon()
	loc, err := time.LoadLocation(zone)
	require.NoError(t, err)
	now := time.Now().In(loc)
	year, week := now.ISOWeek()
	fiscal, quarter := now.Year(), (int(now.Month())+8)%12/3+1
	if now.Month() < time.April {
		fiscal--
	}
	for _, row := range []struct {
		number, name string
		flags        []string
	}{
		{fmt.Sprintf("IS%04d-%02d", year, week), fmt.Sprintf("week %d of %d", week, year), []string{"-period", "week"}},
		{fmt.Sprintf("IS%04d-%d", fiscal, quarter), fmt.Sprintf("quarter %d of business year %d", quarter, fiscal),
			[]string{"-period", "quarter", "-year-start", "04-01"}},
		{fmt.Sprintf("IS%04d-%d", fiscal, (quarter+1)/2),
			fmt.Sprintf("half-year %d of business year %d", (quarter+1)/2, fiscal),
			[]string{"-period", "half-year", "-year-start", "04-01"}},
		{fmt.Sprintf("IS%04d", fiscal), fmt.Sprintf("business year %d", fiscal),
			[]string{"-period", "year", "-year-start=04-01"}},
		{fmt.Sprintf("IS%04d", now.Year()), now.Format("2006"), []string{"-period", "year", "-year-start=01-01"}},
		{"IS", "all time", []string{"-period", "never"}},
	} {
		_, e, _ := issued(t, 0)
		with := func(args ...string) []string { return append(args, row.flags...) }
		e.prints(t, row.number+"0001\n", with("next", "IS")...)
		stdout, _ := e.with(row.number+"0008").exits(t, 0, with("import")...)
		require.Equal(t, "raised IS in "+row.name+": from 0001 to 0008; 1 number\n", unskipped(stdout))
		stdout, _ = e.exits(t, 0, with("history", "IS")...)
		require.True(t, strings.HasPrefix(stdout, row.name+" "), stdout)
		stdout, _ = e.with(lines(row.number+"%04d", 2, 8)).exits(t, 3,
			with("audit", "-date", now.Format("2006-01-02"), "IS")...)
		require.Contains(t, stdout, "IS in "+row.name+" (from ")
		require.Contains(t, stdout, "missing    1\n  0001\n")
	}
	for _, value := range []string{"4-31", "13-01", "april", "04-31"} {
		environment{}.fails(t, 2, "want a month and a day such as 04-01", "parse", "-year-start", value, "IS202110240001")
	}
	environment{}.fails(t, 2, "WithYearStart", "parse", "-year-start", "02-29", "IS202110240001")
}
