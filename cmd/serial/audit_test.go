package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/stretchr/testify/require"
)

// dayName returns the name of a day that numbers print as yyyyMMdd.
func dayName(t *testing.T, day string) string {
	at, err := time.Parse("20060102", day)
	require.NoError(t, err)
	return at.Format("2 January 2006")
}

// issued returns a Redis with n numbers of IS, the environment for it, and the current day.
func issued(t *testing.T, n int, flags ...string) (*miniredis.Miniredis, environment, string) {
	t.Helper()
	m := startMemory(t)
	zone, day := noon()
	e := environment{"SERIAL_REDIS_URL": "redis://" + m.Addr(), "SERIAL_TZ": zone}
	if n > 0 {
		e.exits(t, 0, append([]string{"next", "-n", fmt.Sprint(n), "IS"}, flags...)...)
	}
	return m, e, day
}

// zoneOf returns the time zone of an environment.
func zoneOf(t *testing.T, e environment) *time.Location {
	t.Helper()
	loc, err := time.LoadLocation(e["SERIAL_TZ"])
	require.NoError(t, err)
	return loc
}

// with returns the environment with an input.
func (e environment) with(stdin string) environment {
	return environment{"SERIAL_REDIS_URL": e["SERIAL_REDIS_URL"], "SERIAL_TZ": e["SERIAL_TZ"],
		"SERIAL_HIDDEN_KEY": e["SERIAL_HIDDEN_KEY"], "stdin": stdin}
}

// written returns the path of a file with that text.
func written(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "numbers.csv")
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

func TestAudit(t *testing.T) {
	m, e, day := issued(t, 14)
	number := func(seq int) string { return fmt.Sprintf("IS%s%04d", day, seq) }
	dashed, named := day[:4]+"-"+day[4:6]+"-"+day[6:], dayName(t, day)
	all := lines("IS"+day+"%04d", 1, 14)
	before := m.Dump()

	stdout, stderr := e.with(all).exits(t, 0, "audit", "IS")
	require.Empty(t, stderr)
	require.Regexp(t, `^IS in `+named+` \(from `+dashed+`T00:00:00.*\)
issued     14: 0001 to 0014
used       14
missing    0
double     0
beyond     0
foreign    0
IS in `+named+`: all numbers are accounted for
checked \d{4}-\d\d-\d\dT.*, signed _+
$`, stdout)

	wrong := strings.Join([]string{number(1), number(2), number(2), number(3), number(3), number(3), number(4), number(5),
		number(7), "IS" + day + "000a", number(13), number(15), number(15), number(0), "PO" + day + "0001",
		"IS202001010001", ""}, "\n")
	stdout, stderr = e.with(wrong).exits(t, 3, "audit", "IS")
	require.Equal(t, "serial: not all numbers are accounted for\n", stderr)
	require.Regexp(t, `
issued     14: 0001 to 0014
used       7
missing    7
  0006
  0008-0012
  0014
double     3
  0002
  0003
  0015
beyond     2
  0015
  0015
foreign    2
  "IS`+day+`000a"
  "`+number(0)+`"
others     2, of other types or periods
IS in `+named+`: not all numbers are accounted for
checked .*, signed _+
$`, stdout)

	stdout, _ = e.with(wrong).exits(t, 3, "audit", "-json", "IS")
	require.Equal(t, 1, strings.Count(stdout, "\n"))
	require.Regexp(t, `^\{"type":"IS","start":"`+dashed+`T00:00:00[^"]*","first":1,"last":14,"count":7,`+
		`"missing":\[\{"first":6,"last":6\},\{"first":8,"last":12\},\{"first":14,"last":14\}\],"duplicates":\["`+number(2)+
		`","`+number(3)+
		`","`+number(15)+`"\],"beyond":\["`+number(15)+`","`+number(15)+`"\],"foreign":\["IS`+day+`000a","`+number(0)+`"\],`+
		`"missingCount":7,"duplicateCount":3,"beyondCount":2,"foreignCount":2,"otherCount":2,"explained":\[\],`+
		`"unexplained":\[\{"first":6,"last":6\},\{"first":8,"last":12\},\{"first":14,"last":14\}\],"possible":\[\],`+
		`"contradicted":\[\],"explainedCount":0,"unexplainedCount":7,"possibleCount":0,"contradictedCount":0\}`+"\n$", stdout)
	stdout, _ = e.with(all).exits(t, 0, "audit", "-json", "IS")
	require.Contains(t, stdout, `"missing":[],"duplicates":[],"beyond":[],"foreign":[],`, "empty, and not null")
	require.Equal(t, before, m.Dump(), "it writes nothing")

	// Each single finding leads to exit code 3.
	for _, more := range []string{number(14), number(15), "x", number(0)} {
		e.with(all+more).exits(t, 3, "audit", "IS")
	}
	code, _, _ := e.with(strings.Replace(all, number(9)+"\n", "", 1)).do("audit", "IS")
	require.Equal(t, 3, code)
	for _, more := range []string{"PO" + day + "0001", "\n \r\n\t\n"} {
		e.with(all+more).exits(t, 0, "audit", "IS")
	}
	stdout, _ = e.with("").exits(t, 0, "audit", "PO")
	require.Contains(t, stdout, "issued     0\nused       0\n")

	// A type with a typing error does not look like a clean account.
	stdout, _ = e.with(all).exits(t, 0, "audit", "I5")
	require.Contains(t, stdout, "\nothers     14, of other types or periods\nI5 in "+named+": no number was issued\n")
	stdout, _ = e.with("I5"+day+"0001").exits(t, 3, "audit", "I5")
	require.Contains(t, stdout, "\nI5 in "+named+": not all numbers are accounted for\n")
}

// A file without a type before it is not taken for the type.
func TestAuditOfAFileAsType(t *testing.T) {
	_, e, day := issued(t, 1)
	t.Chdir(t.TempDir())
	require.NoError(t, os.WriteFile("IS", []byte("IS"+day+"0001\n"), 0o600))
	e.with("").fails(t, 2, `"IS" is a file: want TYPE before it, or - after a type to read numbers from stdin`,
		"audit", "IS")
	e.exits(t, 0, "audit", "IS", "IS")
	e.with("IS"+day+"0001").exits(t, 0, "audit", "IS", "-")
	require.NoError(t, os.Remove("IS"))
	require.NoError(t, os.Mkdir("IS", 0o700))
	e.with("IS"+day+"0001").exits(t, 0, "audit", "IS")
}

// Numbers beyond the limits of the lists are counted.
func TestAuditOfMuch(t *testing.T) {
	_, e, day := issued(t, 5000)
	var odd strings.Builder
	for seq := 1; seq <= 5000; seq += 2 {
		fmt.Fprintf(&odd, "IS%s%04d\nx%d\n", day, seq, seq)
	}
	stdout, _ := e.with(odd.String()).exits(t, 3, "audit", "IS")
	require.Contains(t, stdout, "missing    2500\n  0002\n")
	require.Contains(t, stdout, "  2000\n  and 1500 more\ndouble     0\n")
	require.Contains(t, stdout, "foreign    2500\n  \"x1\"\n")
}

// Numbers come from stdin or a file, as lines or as a column.
func TestInput(t *testing.T) {
	_, e, day := issued(t, 2)
	one, two := "IS"+day+"0001", "IS"+day+"0002"
	table := "id,number,note\n1," + one + ",\"a, b\"\n2,,none\n3,\"" + two + "\",\n"
	long := strings.Repeat("x", 200_000)
	for _, row := range []struct {
		stdin string
		args  []string
	}{
		{one + "\n" + two, nil},
		{"\n\n" + one + "\r\n  \r\n" + two + "\r", nil},
		{"\ufeff" + one + "\r\n" + two + "\r\n", nil},
		{one + "\n" + two, []string{"-"}},
		{long, []string{written(t, two+"\n"+one+"\n")}},
		{table, []string{"-column", "number"}},
		{"\ufeff" + strings.ReplaceAll(strings.Replace(table, "id,number", "number,id", 1), "id,", "id,"),
			[]string{"-column", "id"}},
		{"", []string{"-column", "number", written(t, table)}},
	} {
		e.with(row.stdin).exits(t, 0, append([]string{"audit", "IS"}, row.args...)...)
	}
	stdout, _ := e.with(one+"\n"+long+"\n"+two+"\n").exits(t, 3, "audit", "IS")
	require.Contains(t, stdout, "used       2\n", "after a long line")
	require.Contains(t, stdout, "foreign    1\n  \""+strings.Repeat("x", 256)+"\"\n")

	// A last line that fills the buffer and has no line ending counts.
	stdout, _ = e.with(one+"\n"+two+"\n"+strings.Repeat("x", 64<<10)).exits(t, 3, "audit", "IS")
	require.Contains(t, stdout, "foreign    1\n")

	for _, row := range []struct {
		says, stdin string
		args        []string
	}{
		{`no column is called "Number"; the columns are ["id" "number" "note"]`, table, []string{"-column", "Number"}},
		{`two columns are called "a"`, "a,b,a\n1,2,3\n", []string{"-column", "a"}},
		{"the input is empty", "", []string{"-column", "a"}},
		{"cannot be read as CSV: record on line 3: wrong number of fields", "a,b\n1,2\n3\n", []string{"-column", "a"}},
		{"no such file", "", []string{filepath.Join(t.TempDir(), "gone")}},
		{"is a directory", "", []string{t.TempDir()}},
	} {
		e.with(row.stdin).fails(t, 1, row.says, append([]string{"audit", "IS"}, row.args...)...)
	}
}

// -date is the date of a business day in the zone.
func TestAuditDate(t *testing.T) {
	m := startMemory(t)
	e := environment{"SERIAL_REDIS_URL": "redis://" + m.Addr(), "SERIAL_TZ": "Asia/Shanghai"}
	shanghai, err := time.LoadLocation("Asia/Shanghai")
	require.NoError(t, err)
	now := time.Now().In(shanghai)
	past := now.AddDate(0, 0, -3)
	day := past.Format("20060102")
	require.NoError(t, m.Set("serial:{IS}:"+day, "2")) // kept since then
	numbers := lines("IS"+day+"%04d", 1, 2)
	for _, flags := range [][]string{nil, {"-day-start", "13:00"}, {"-day-start", "23:59:59"}} {
		stdout, _ := e.with(numbers).exits(t, 0, append([]string{"audit", "-date", past.Format("2006-01-02"), "IS"},
			flags...)...)
		require.Contains(t, stdout, "IS in "+past.Format("2 January 2006"))
	}
	start := time.Date(now.Year(), now.Month()-2, 1, 0, 0, 0, 0, shanghai)
	require.NoError(t, m.Set("serial:{IS}:"+start.Format("200601"), "2"))
	for days, layout := range map[int]string{0: "2006-01-02", 20: "2006-01-02", 9: "2006-01-02 15:04"} {
		date := start.AddDate(0, 0, days).Format(layout)
		code, stdout, stderr := e.with(lines("IS"+start.Format("200601")+"%04d", 1, 2)).do("audit", "-period", "month",
			"-date", date, "IS")
		require.Equal(t, 0, code, stderr)
		require.Contains(t, stdout, "IS in "+start.Format("January 2006"))
	}
	hour := now.Truncate(time.Hour).Add(-30 * time.Hour)
	require.NoError(t, m.Set("serial:{IS}:"+hour.Format("2006010215"), "2"))
	for _, layout := range []string{"2006-01-02 15:04", "2006-01-02T15:04:05"} {
		numbers := lines("IS"+hour.Format("2006010215")+"%04d", 1, 2)
		e.with(numbers).exits(t, 0, "audit", "-period", "hour", "-date", hour.Format(layout), "IS")
	}
	for _, row := range []struct {
		code int
		says string
		args []string
	}{
		{2, "want a date such as 2021-10-24", []string{"-date", "24.10.2021"}},
		{2, "want a date", []string{"-date", "2021-02-29"}},
		{2, "-date is empty", []string{"-date", ""}},
		{2, "needs a time, too", []string{"-date", "2021-10-24", "-period", "hour"}},
		{2, "the clocks of Pacific/Apia skipped it", []string{"-date", "2011-12-30", "-tz", "Pacific/Apia"}},
		// This day ended at 23:30.
		{1, "Audit of IS in 2018-05-04: Redis has no counter", []string{"-date", "2018-05-04", "-tz", "Asia/Pyongyang"}},
		{1, "Audit of IS in 2010-03-04: Redis has no counter", []string{"-date", "2010-03-04", "-tz", "Antarctica/Casey"}},
		{1, "Audit of IS in 2025-03-29: Redis has no counter",
			[]string{"-date", "2025-03-29", "-tz", "America/Nuuk", "-day-start", "23:30"}},
		{1, "no longer kept", []string{"-date", now.AddDate(0, 0, -4).Format("2006-01-02")}},
		{1, "has not begun", []string{"-date", now.AddDate(0, 0, 2).Format("2006-01-02")}},
		{1, "1970 to 9999", []string{"-date", "1920-01-01"}},
	} {
		e.fails(t, row.code, row.says, append([]string{"audit", "IS"}, row.args...)...)
	}
}

// Without -date, Redis's clock determines the period.
func TestAuditNow(t *testing.T) {
	m := startMemory(t)
	m.SetTime(time.Now().Add(40 * time.Minute))
	e := environment{"SERIAL_REDIS_URL": "redis://" + m.Addr(), "SERIAL_TZ": "UTC"}
	number, _ := e.exits(t, 0, "next", "-period", "minute", "IS")
	e.with(number).exits(t, 0, "audit", "-period", "minute", "IS")
}

// Without -date, an audit of Never works in every zone, whatever the template prints of the date.
func TestAuditOfNever(t *testing.T) {
	key := written(t, "30313233343536373839616263646566")
	for _, zone := range []string{"UTC", "America/New_York", "Pacific/Apia", "Pacific/Kiritimati"} {
		for _, flags := range [][]string{
			{"-template", "{type}{seq:6}"}, {"-template", "{type}{date:yyMM}{seq:6}"},
			{"-template", "{type}{date:BB}{seq:6}", "-hidden-key", key},
			{"-template", "{type}{date:FF}{seq:6}", "-year-start", "04-01"},
		} {
			m := startMemory(t)
			e := environment{"SERIAL_REDIS_URL": "redis://" + m.Addr(), "SERIAL_TZ": zone}
			flags = append(flags, "-period", "never", "IS")
			numbers, _ := e.exits(t, 0, append([]string{"next", "-n", "3"}, flags...)...)
			stdout, stderr := e.with(numbers).exits(t, 0, append([]string{"audit"}, flags...)...)
			require.Empty(t, stderr)
			require.Regexp(t, `^IS in all time \(from .*\)\nissued     3: 000001 to 000003\nused       3\n`, stdout, "%s %v",
				zone, flags)
		}
	}
}

// Nothing is sent for an invalid type, date or file.
func TestAuditSendsNothing(t *testing.T) {
	m := startMemory(t)
	e := environment{"SERIAL_REDIS_URL": "redis://" + m.Addr(), "SERIAL_TZ": "UTC"}
	for _, args := range [][]string{{"audit", "I S"}, {"audit", "IS", filepath.Join(t.TempDir(), "none")},
		{"audit", "-date", "x", "IS"}} {
		code, stdout, _ := e.with("").do(args...)
		require.NotZero(t, code, args)
		require.Empty(t, stdout)
		untouched(t, m, args)
	}
}

// A signal ends an audit that waits for input.
func TestAuditInterrupted(t *testing.T) {
	_, e, day := issued(t, 2)
	in, out := io.Pipe()
	defer out.Close()
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		_, _ = out.Write([]byte("IS" + day + "0001\n"))
		cancel()
	}()
	var printed, errs bytes.Buffer
	require.Equal(t, 1, run(ctx, []string{"audit", "IS"}, e.get, in, &printed, &errs))
	require.Contains(t, errs.String(), "context canceled")
	require.Empty(t, printed.String())

	ctx, cancel = context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	require.Equal(t, 1, run(ctx, []string{"audit", "IS"}, e.get, endless{}, &printed, &errs))
}

// endless is a line that never ends.
type endless struct{}

func (endless) Read(p []byte) (int, error) { return len(p), nil }

// Sequences are printed as in the template.
func TestAuditDigits(t *testing.T) {
	for _, row := range []struct {
		missing string
		flags   []string
		keep    int // of 40, this one is missing
	}{
		{"0033", nil, 33},
		{"33", []string{"-template", "{type}-{date:yyyyMMdd}-{seq:2+}"}, 33},
		{"000000000000033", []string{"-template", "{type}{date:yyyyMMdd}{seq:15}"}, 33},
		{"0011", []string{"-template", "{type}{date:yyyyMMdd}{seq:4:base32}"}, 33},
		{"00Z", []string{"-template", "{type}{date:yyyyMMdd}{seq:3:base32}"}, 31},
		{"0000X", []string{"-template", "{type}{date:yyyyMMdd}{seq:5:base36}"}, 33},
		{"AABH", []string{"-template", "{type}{date:yyyyMMdd}{seq:4:letters}"}, 33},
		{"AAZ", []string{"-template", "{type}{date:yyyyMMdd}{seq:3:letters}"}, 25},
		{"AAZ", []string{"-template", "{type}{date:yyyyMMdd}{seq:3:alpha}"}, 26},
		{"000033", []string{"-template", "{type}{date:yyyyMMdd}{seq:6}"}, 33},
	} {
		_, e, _ := issued(t, 0)
		e["SERIAL_HIDDEN_KEY"] = ""
		if strings.Contains(strings.Join(row.flags, ""), "{seq:6}") {
			e["SERIAL_HIDDEN_KEY"] = strings.Repeat("0f", 16)
		}
		_, stdout, stderr := e.do(append([]string{"next", "-n", "40", "IS"}, row.flags...)...)
		require.Empty(t, stderr)
		numbers := strings.Fields(stdout)
		stored := strings.Join(append(numbers[:row.keep-1:row.keep-1], numbers[row.keep:]...), "\n")
		stdout, _ = e.with(stored).exits(t, 3, append([]string{"audit", "IS"}, row.flags...)...)
		require.Contains(t, stdout, "missing    1\n  "+row.missing+"\ndouble     0\n")
	}
}

// The audit shows the period's start. Of an earlier day, it asks whether the start was changed if numbers lie below it.
func TestAuditWithAnotherStart(t *testing.T) {
	m, e, day := issued(t, 3)
	all := lines("IS"+day+"%04d", 1, 3)
	stdout, _ := e.with(all).exits(t, 0, "audit", "-start", "1000", "IS")
	require.Contains(t, stdout, "\nissued     3: 0001 to 0003\n", "the day began at 1")

	yesterday := time.Now().In(zoneOf(t, e)).AddDate(0, 0, -1)
	require.NoError(t, m.Set("serial:{IS}:"+yesterday.Format("20060102"), "3"))
	all = strings.ReplaceAll(all, day, yesterday.Format("20060102"))
	flags := []string{"audit", "-date", yesterday.Format(time.DateOnly)}
	stdout, _ = e.with(all).exits(t, 3, append(flags, "-start", "2", "IS")...)
	require.Contains(t, stdout, "\nstart      0002\nissued     2: 0002 to 0003\n")
	require.Contains(t, stdout, "\nbeyond     1\n  0001 below the start: was it changed?\n")
	stdout, _ = e.with(all).exits(t, 0, append(flags, "IS")...)
	require.NotContains(t, stdout, "start")
}
