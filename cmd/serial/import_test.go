package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"
	"github.com/stretchr/testify/require"
)

// A keyboard is an input that claims to be a terminal.
type keyboard struct {
	io.Reader
	info
}

func TestImport(t *testing.T) {
	m, e, day := issued(t, 3)
	dashed, named := day[:4]+"-"+day[4:6]+"-"+day[6:], dayName(t, day)
	stored := strings.Join([]string{
		"IS" + day + "0007", "IS" + day + "0041", "IS" + day + "0009", "PO" + day + "0002", "IS202001020300",
		"IS202001020299", "QQ202001020300"}, "\r\n")
	counter := func(typ string) string {
		v, _ := m.Get("serial:{" + typ + "}:" + day)
		return v
	}
	const lacks = "lacks      32\n  0008\n  0010-0040\n"
	would := "would raise IS in " + named + ": from 0003 to 0041; 3 numbers\n" + lacks
	others := "ignored QQ in 2 January 2020: 1 number up to 0300\n"
	before := m.Dump()

	// Nothing is written for a dry run, which is the default at a terminal.
	for _, args := range [][]string{{"-dry-run"}, {"-dry-run=true"}} {
		code, stdout, stderr := e.with(stored).do(append([]string{"import"}, args...)...)
		require.Equal(t, 0, code, stderr)
		require.Equal(t, "ignored IS in 2 January 2020: 2 numbers up to 0300\n"+would+
			"would raise PO in "+named+": from 0000 to 0002; 1 number\n"+others, stdout)
		require.Equal(t, "serial: nothing was written; -dry-run=false writes\n", stderr)
	}
	var out, errs bytes.Buffer
	code := run(context.Background(), []string{"import"}, e.get, keyboard{strings.NewReader(stored), info{}}, &out, &errs)
	require.Equal(t, 0, code, errs.String())
	require.Contains(t, out.String(), would)
	require.Contains(t, errs.String(), "reading numbers from this terminal")
	require.Equal(t, before, m.Dump())

	// A line that is no number: nothing is written, whatever was asked for, and only such lines are listed.
	for _, bad := range []string{"IS" + day + "000", "x", "IS202002300001"} {
		for _, flag := range []string{"-dry-run=false", "-dry-run", "-force", "-json"} {
			code, stdout, stderr := e.with(stored+"\n\n"+bad+"\n"+bad).do("import", flag)
			require.Equal(t, 1, code)
			require.Empty(t, stdout)
			require.Contains(t, stderr, fmt.Sprintf("serial: line 9: invalid number: %q is not a number of this scheme", bad))
			require.Contains(t, stderr, "serial: line 10: ")
			require.True(t, strings.HasSuffix(stderr, "serial: 2 lines cannot be parsed; nothing was written\n"), stderr)
		}
	}
	_, _, stderr := e.with(stored+"\n"+strings.Repeat("x\n", 30)).do("import", "-dry-run=false")
	require.Equal(t, 11, strings.Count(stderr, "\n"))
	require.Contains(t, stderr, "30 lines cannot be parsed, of which the first 10 are shown; nothing was written")
	require.Equal(t, before, m.Dump())

	// Of one type only.
	code, stdout, stderr := e.with(stored).do("import", "PO")
	require.Equal(t, 0, code, stderr)
	require.Contains(t, stdout, "raised PO in "+named+": from 0000 to 0002; 1 number\n")
	require.Contains(t, stdout, "ignored IS in "+named+": 3 numbers up to 0041\n")
	require.Equal(t, []string{"3", "2"}, []string{counter("IS"), counter("PO")})

	// All, and again.
	code, stdout, stderr = e.with(stored).do("import")
	require.Equal(t, 0, code, stderr)
	require.Empty(t, stderr)
	require.Equal(t, "ignored IS in 2 January 2020: 2 numbers up to 0300\nraised IS in "+named+": from 0003 to 0041; 3 "+
		"numbers\n"+lacks+"stays PO in "+named+": at 0002; 1 number up to 0002\n"+others, stdout, "it explains nothing")
	require.Equal(t, []string{"41", "2", ""}, []string{counter("IS"), counter("PO"), counter("QQ")})
	_, stdout, _ = e.with(stored).do("import", "-json")
	require.Regexp(t, `^\{"type":"IS","start":"2020-01-02T[^"]*","action":"ignored","count":2,"greatest":300\}
\{"type":"IS","start":"`+dashed+`T[^"]*","action":"stays","count":3,"greatest":41,"last":41,`+
		`"missing":\[\{"first":8,"last":8\},\{"first":10,"last":40\}\],"missingCount":32\}
`, stdout)
	_, stdout, _ = e.do("next", "IS")
	require.Equal(t, "IS"+day+"0042\n", stdout)

	// A lost counter is what import mends.
	m.Del("serial:{IS}:" + day)
	code, stdout, stderr = e.with("IS"+day+"0050").do("import", "IS", "-")
	require.Equal(t, 0, code, stderr)
	require.Equal(t, "raised IS in "+named+": to 0050, the counter is lost; 1 number\n", stdout)
	require.Equal(t, "50", counter("IS"))
}

// Two things look like a mistake in the input, and need -force.
func TestImportForce(t *testing.T) {
	m, e, day := issued(t, 0)
	zone := e["SERIAL_TZ"]
	named := dayName(t, day)
	is := func(seqs ...int) (text string) {
		for _, seq := range seqs {
			text += fmt.Sprintf("IS%s%04d\n", day, seq)
		}
		return text
	}
	upTo := func(last int) string { return lines("IS"+day+"%04d", 1, last) }
	const twice, jump = "appears twice", "above the next lower one"
	const remedy = "serial: nothing was written; if the numbers are right, use -force\n"
	for name, row := range map[string]struct {
		input string
		says  []string
		args  []string
	}{
		"a sheet that has cut the digits": {is(340, 340, 340, 340, 340, 340, 340, 340),
			[]string{"line 2: IS" + day + "0340: the sequence 0340 of IS in " + named + " " + twice}, nil},
		"two slips": {is(1, 2, 2, 3, 1, 1),
			[]string{"line 3: IS" + day + "0002: the sequence 0002", "line 5: IS" + day + "0001"}, nil},
		"a slip": {upTo(41) + is(9999),
			[]string{"the greatest sequence of IS in " + named + ", 9999, is 9958 " + jump + ", 0041"}, nil},
		"both":                      {is(1, 9000, 9000), []string{twice, jump}, nil},
		"one too many":              {is(1, 1002), []string{"1002, is 1001 " + jump + ", 0001"}, nil},
		"as many as there may be":   {is(1, 1001), nil, nil},
		"one":                       {is(9999), nil, nil},
		"more than there are":       {upTo(1500) + is(3002), []string{"3002, is 1502 " + jump + ", 1500"}, nil},
		"as many as there are":      {upTo(1500) + is(3001), nil, nil},
		"another day":               {"IS202001020300\nIS202001020300\nIS202001029999\nIS" + day + "0001", nil, nil},
		"another type":              {strings.ReplaceAll(is(300, 300, 9999), "IS", "PO") + is(7), nil, []string{"IS", "-"}},
		"that type":                 {"PO" + day + "0300\n" + is(7, 7), []string{twice}, []string{"IS", "-"}},
		"two days, and not one":     {"IS202001020300\n" + is(300), nil, nil},
		"other digits, same number": {"IS" + day + "0002\n\u00a0IS" + day + "0002 \n", []string{twice}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			m.FlushAll()
			args := append([]string{"import"}, row.args...)
			code, stdout, stderr := e.with(row.input).do(args...)
			if row.says == nil {
				require.Equal(t, 0, code, stderr)
				require.Empty(t, stderr)
				require.Contains(t, stdout, "raised IS in")
				return
			}
			requireSays := func() {
				t.Helper()
				for _, part := range row.says {
					require.Contains(t, stderr, part)
				}
			}
			require.Equal(t, 1, code)
			require.Contains(t, stdout, "would raise IS in")
			requireSays()
			require.True(t, strings.HasSuffix(stderr, remedy), stderr)
			require.Empty(t, m.Keys())
			code, stdout, stderr = e.with(row.input).do(append(args, "-dry-run")...)
			require.Equal(t, 1, code)
			require.Contains(t, stdout, "would raise IS in")
			requireSays()
			require.Empty(t, m.Keys())
			code, stdout, stderr = e.with(row.input).do(append(args, "-dry-run", "-force")...)
			require.Equal(t, 0, code)
			require.Contains(t, stdout, "would raise IS in")
			requireSays()
			require.True(t, strings.HasSuffix(stderr, "serial: nothing was written; -dry-run=false writes\n"), stderr)
			require.Empty(t, m.Keys())
			code, stdout, stderr = e.with(row.input).do(append(args, "-force")...)
			require.Equal(t, 0, code)
			require.Contains(t, stdout, "raised IS in")
			requireSays()
			require.NotContains(t, stderr, "nothing was written")
		})
	}

	m.FlushAll()
	code, stdout, _ := e.with(is(5, 5, 7, 7, 9000)).do("import", "-json")
	require.Equal(t, 1, code)
	require.Regexp(t, `"action":"would raise","count":5,"greatest":9000,"last":0,"missing":\[\{"first":6,"last":6\},`+
		`\{"first":8,"last":8999\}\],"missingCount":8993,"duplicates":\["IS`+day+`0005","IS`+day+`0007"\],`+
		`"duplicateCount":2,"jump":8993\}\n$`, stdout)
	_, _, stderr := e.with(upTo(30) + upTo(30)).do("import")
	require.Equal(t, 12, strings.Count(stderr, "\n"))
	require.Contains(t, stderr, "30 sequences of IS in "+named+" appear twice, of which the first 10 are shown\n"+remedy)

	// A long list of what is lacking has an end.
	odd := ""
	for seq := 1; seq <= 2401; seq += 2 {
		odd += is(seq)
	}
	code, stdout, stderr = e.with(odd).do("import")
	require.Equal(t, 0, code, stderr)
	require.Contains(t, stdout, "lacks      1200\n  0002\n")
	require.Contains(t, stdout, "  2000\n  and 200 more\n")

	// Without Redis, the lines that cannot be parsed are listed all the same.
	code, stdout, stderr = environment{"SERIAL_REDIS_URL": "redis://" + refused(t) + "?max_retries=-1", "SERIAL_TZ": zone,
		"stdin": is(1) + "x\n"}.do("import")
	require.Equal(t, 1, code)
	require.Empty(t, stdout)
	require.Contains(t, stderr, "1 line cannot be parsed; nothing was written")
	code, _, stderr = environment{"SERIAL_REDIS_URL": "redis://" + refused(t) + "?max_retries=-1", "SERIAL_TZ": zone,
		"stdin": is(1)}.do("import")
	require.Equal(t, 1, code)
	require.Contains(t, stderr, "serial: Redis failed: ")
}

// One argument is FILE if there is one of that name, and where nothing else could be read.
func TestImportArguments(t *testing.T) {
	m, e, day := issued(t, 0)
	counter := func(typ string) string {
		v, _ := m.Get("serial:{" + typ + "}:" + day)
		return v
	}
	path := written(t, "number\nIS"+day+"0005\nPO"+day+"0006\n")
	code, _, stderr := e.with("").do("import", "-column", "number", path)
	require.Equal(t, 0, code, stderr)
	require.Equal(t, []string{"5", "6"}, []string{counter("IS"), counter("PO")})
	require.NoError(t, os.WriteFile(path, []byte("IS"+day+"0007\nPO"+day+"0008\n"), 0o600))
	code, _, stderr = e.with("").do("import", "IS", path)
	require.Equal(t, 0, code, stderr)
	require.Equal(t, []string{"7", "6"}, []string{counter("IS"), counter("PO")})

	for _, row := range []struct {
		code  int
		says  string
		stdin string
		args  []string
	}{
		{1, "no such file", "", []string{"IS", path + "x"}},
		{1, "the input has no numbers of type numbers.txt, and there is no file of that name, so nothing was written", "",
			[]string{"numbers.txt"}},
		{1, "the input has no numbers of type QQ", "IS" + day + "0009", []string{"QQ"}},
		{0, "the input has no numbers, so nothing was written", "\n", nil},
		{2, "want true and false", "", []string{"-dry-run=maybe"}},
		{2, "too many arguments", "", []string{"IS", path, "x"}},
	} {
		code, stdout, stderr := e.with(row.stdin).do(append([]string{"import"}, row.args...)...)
		require.Equal(t, row.code, code, stderr)
		require.Empty(t, stdout)
		require.Contains(t, stderr, row.says)
	}
	var out, errs bytes.Buffer
	code = run(context.Background(), []string{"import", path + "x"}, e.get, keyboard{strings.NewReader(""), info{}},
		&out, &errs)
	require.Equal(t, 1, code)
	require.Contains(t, errs.String(), "no such file")
	null, err := os.Open(os.DevNull)
	require.NoError(t, err)
	defer null.Close()
	require.NoError(t, os.WriteFile(path, []byte("IS"+day+"0012\n"), 0o600))
	require.Equal(t, 0, run(context.Background(), []string{"import", path}, e.get, null, &out, &errs))
	require.Equal(t, "12", counter("IS"), "a service's input is no terminal")
}

// A period that ends while its counter is raised is told: Raise knows the current one only.
func TestImportAtTheEnd(t *testing.T) {
	m := miniredis.RunT(t)
	now := time.Now().UTC().Truncate(time.Minute).Add(30 * time.Second)
	m.SetTime(now)
	scripts := 0
	m.Server().SetPreHook(func(_ *server.Peer, cmd string, _ ...string) bool {
		if cmd == "EVALSHA" {
			if scripts++; scripts == 2 { // the first one was of Peek
				m.SetTime(now.Add(time.Minute))
			}
		}
		return false
	})
	e := environment{"SERIAL_REDIS_URL": "redis://" + m.Addr(), "SERIAL_TZ": "UTC"}
	code, stdout, stderr := e.with("IS"+now.Format("200601021504")+"0007").do("import", "-period", "minute")
	require.Equal(t, 1, code)
	require.Contains(t, stdout, "would raise IS")
	require.Contains(t, stderr, fmt.Sprintf("IS: %s ended meanwhile, and the counter that was raised may be that of %s",
		now.Format("2 January 2006, 15:04")+" to "+now.Add(time.Minute).Format("15:04"),
		now.Add(time.Minute).Format("2 January 2006, 15:04")+" to "+now.Add(2*time.Minute).Format("15:04")))
}

// Redis's clock says which period is the current one, also of a type whose counter is lost.
func TestImportOfALostCounter(t *testing.T) {
	m := miniredis.RunT(t)
	now := time.Now().UTC().Add(10 * time.Minute)
	m.SetTime(now)
	e := environment{"SERIAL_REDIS_URL": "redis://" + m.Addr(), "SERIAL_TZ": "UTC"}
	code, number, stderr := e.do("next", "-period", "minute", "IS")
	require.Equal(t, 0, code, stderr)
	number = strings.TrimSpace(number)
	m.Del("serial:{IS}:" + number[2:14])
	code, stdout, stderr := e.with(number[:14]+"0050").do("import", "-period", "minute", "IS", "-")
	require.Equal(t, 0, code, stderr)
	require.Contains(t, stdout, "raised IS")

	// What is of no current period is not overlooked.
	code, stdout, stderr = e.with("IS2021102400000050").do("import", "-period", "minute")
	require.Equal(t, 0, code, stderr)
	require.Contains(t, stdout, "ignored IS")
	require.Equal(t, "serial: none of the numbers belongs to a current period, so nothing was written; is the time "+
		"zone right?\n", stderr)
}

// Sequences below the first one raise nothing. Lines that cannot be parsed come before a type that cannot be read.
func TestImportOfLittle(t *testing.T) {
	m, e, day := issued(t, 0)
	code, stdout, stderr := e.with("IS"+day+"0050").do("import", "-start", "100")
	require.Equal(t, 0, code, stderr)
	require.Contains(t, stdout, "stays IS")
	m.HSet("serial:{IS}", "entered", "nonsense")
	code, _, stderr = e.with("IS" + day + "0050\nbad").do("import")
	require.Equal(t, 1, code)
	require.Contains(t, stderr, `"bad" is not a number of this scheme`)
	require.NotContains(t, stderr, "nonsense")
	code, _, stderr = e.with("IS" + day + "0050").do("import")
	require.Equal(t, 1, code)
	require.Contains(t, stderr, "nonsense")
}

// If a type cannot be raised, neither are those behind it.
func TestImportFails(t *testing.T) {
	m, e, day := issued(t, 0)
	scripts := 0
	m.Server().SetPreHook(func(peer *server.Peer, cmd string, args ...string) bool {
		if cmd != "EVALSHA" || !slices.Contains(args, "serial:{AA}") {
			return false
		}
		if scripts++; scripts == 1 { // Peek's
			return false
		}
		peer.WriteError("ERR boom")
		return true
	})
	code, stdout, stderr := e.with("AA" + day + "0002\nIS" + day + "0007").do("import")
	require.Equal(t, 1, code)
	require.Contains(t, stderr, "boom")
	require.Contains(t, stderr, "; 0 types raised before AA, and none after it")
	require.NotContains(t, stdout, "raised")
	require.False(t, m.Exists("serial:{IS}:"+day))
}

// Business years, weeks, quarters and what never starts again are imported and told by their names.
// The only period of Never began in 1969 west of Greenwich.
func TestNeverIn1969(t *testing.T) {
	_, e, _ := issued(t, 0)
	e["SERIAL_TZ"] = "America/New_York"
	code, stdout, stderr := e.with("IS0008").do("import", "-period", "never")
	require.Equal(t, 0, code, stderr)
	require.Equal(t, "raised IS in all time: from 0000 to 0008; 1 number\n", unskipped(stdout))
}

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
		{fmt.Sprintf("IS%04d", fiscal), fmt.Sprintf("business year %d", fiscal),
			[]string{"-period", "year", "-year-start=04-01"}},
		{fmt.Sprintf("IS%04d", now.Year()), now.Format("2006"), []string{"-period", "year", "-year-start=01-01"}},
		{"IS", "all time", []string{"-period", "never"}},
	} {
		_, e, _ := issued(t, 0)
		with := func(args ...string) []string { return append(args, row.flags...) }
		code, stdout, stderr := e.do(with("next", "IS")...)
		require.Equal(t, 0, code, stderr)
		require.Equal(t, row.number+"0001\n", stdout)
		code, stdout, stderr = e.with(row.number + "0008").do(with("import")...)
		require.Equal(t, 0, code, stderr)
		require.Equal(t, "raised IS in "+row.name+": from 0001 to 0008; 1 number\n", unskipped(stdout))
		code, stdout, stderr = e.do(with("history", "IS")...)
		require.Equal(t, 0, code, stderr)
		require.True(t, strings.HasPrefix(stdout, row.name+" "), stdout)
		code, stdout, _ = e.with(lines(row.number+"%04d", 2, 8)).do(with("audit", "-date", now.Format("2006-01-02"), "IS")...)
		require.Equal(t, 3, code)
		require.Contains(t, stdout, "IS in "+row.name+" (from ")
		require.Contains(t, stdout, "missing    1\n  0001\n")
	}
	for _, value := range []string{"4-31", "13-01", "april", "04-31"} {
		code, _, stderr := do("parse", "-year-start", value, "IS202110240001")
		require.Equal(t, 2, code)
		require.Contains(t, stderr, "not a month and a day, such as 04-01")
	}
	code, _, stderr := do("parse", "-year-start", "02-29", "IS202110240001")
	require.Equal(t, 2, code)
	require.Contains(t, stderr, "WithYearStart")
}

// The key of a hidden sequence comes from a file or the environment, and nothing shows it.
func TestHiddenKey(t *testing.T) {
	const key = "000102030405060708090a0b0c0d0e0f"
	const template = "{type}{date:yyyyMMdd}{seq:6}"
	zone, day := noon()
	m, e, _ := issued(t, 0)
	e["SERIAL_HIDDEN_KEY"] = key
	code, hidden, stderr := e.do("next", "-template", template, "IS")
	require.Equal(t, 0, code, stderr)
	require.NotEqual(t, "IS"+day+"000001\n", hidden)
	path := written(t, key+"\n")
	for _, env := range []environment{{}, {"SERIAL_HIDDEN_KEY": strings.Repeat("ff", 32)},
		{"SERIAL_HIDDEN_KEY": "no key"}} {
		code, stdout, stderr := env.do("parse", "-tz", zone, "-template", template, "-hidden-key", path,
			strings.TrimSpace(hidden))
		require.Equal(t, 0, code, stderr)
		require.Contains(t, stdout, "\nseq 1\n", "what the command line says comes first")
	}
	connections := m.TotalConnectionCount()
	for _, row := range []struct {
		says string
		env  environment
		args []string
	}{
		{"$SERIAL_HIDDEN_KEY: not a key of 32, 48 or 64 hexadecimal digits", environment{"SERIAL_HIDDEN_KEY": "hunter2"},
			nil},
		{"a key of 4 bytes; want 16, 24 and 32", environment{"SERIAL_HIDDEN_KEY": "deadbeef"}, nil},
		{"-hidden-key: the file cannot be read: no such file", nil, []string{"-hidden-key", "hunter2"}},
		{"-hidden-key: not a key of 32, 48 or 64 hexadecimal digits", nil, []string{"-hidden-key", written(t, "hunter2")}},
		{"-hidden-key: not a key of 32, 48 or 64 hexadecimal digits", nil, []string{"-hidden-key", written(t, "\n")}},
		{"-hidden-key: it is empty", nil, []string{"-hidden-key", ""}},
		{"want a million or more", environment{"SERIAL_HIDDEN_KEY": key},
			[]string{"-template", "{type}{date:yyyyMMdd}{seq:4}"}},
	} {
		args := append([]string{"next", "-redis", e["SERIAL_REDIS_URL"], "-tz", zone, "-template", template, "IS"},
			row.args...)
		code, stdout, stderr := row.env.do(args...)
		require.Equal(t, 2, code, args)
		require.Empty(t, stdout)
		require.Contains(t, stderr, row.says)
		require.NotContains(t, stderr, "hunter2")
	}
	require.Equal(t, connections, m.TotalConnectionCount())
}

func TestTemplate(t *testing.T) {
	e := environment{"SERIAL_REDIS_URL": "no URL", "SERIAL_TZ": "Asia/Shanghai"}
	shanghai, err := time.LoadLocation("Asia/Shanghai")
	require.NoError(t, err)
	next := time.Now().In(shanghai).Year() + 1
	day := func(layout string, y int, m time.Month, d int) string {
		return time.Date(y, m, d, 0, 0, 0, 0, shanghai).Format(layout)
	}
	code, stdout, stderr := e.do("template", "{type}-{date:yyMMdd}-{seq:6}")
	require.Equal(t, 0, code, stderr)
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
	for line := range strings.Lines(stdout) { // the years are those of the instants
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
	_, stdout, _ = e.do("template", "-json", "{type}{date:yyyyMMdd}{seq}")
	require.Regexp(t, `^\{"example":"now","at":"[^"]+","number":"IS\d{8}0001","type":"IS","start":"[^"]+","seq":1\}\n`,
		stdout)

	for template, says := range map[string]string{
		"{type}{seq}":                        "{date} is missing; only numbers of Never need none, or use -period never",
		"{type}{date:yyyyMM}{seq}":           "of different days would read the same; print yyyyMMdd, or use -period month",
		"{type}{date:GGGG-WW}{seq}":          "; print yyyyMMdd, or use -period week",
		"{type}{date:yyyy}{seq}":             "; print yyyyMMdd, or use -period year",
		"{type}{date:yyyyMMdd}{seq}{check:x": "is not closed",
	} {
		code, stdout, stderr := e.do("template", template)
		require.Equal(t, 1, code, "not a misuse")
		require.Empty(t, stdout)
		require.Contains(t, stderr, says)
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
		code, _, stderr := e.do(row.args...)
		require.Equal(t, 2, code)
		require.Contains(t, stderr, row.says)
	}
}
