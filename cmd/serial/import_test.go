package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2/server"
	"github.com/stretchr/testify/require"
)

type info struct{ fs.FileInfo }

func (i info) Stat() (fs.FileInfo, error) { return i, nil }
func (i info) Mode() fs.FileMode          { return fs.ModeDevice | fs.ModeCharDevice }

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
		stdout, stderr := e.with(stored).exits(t, 0, append([]string{"import"}, args...)...)
		require.Equal(t, "ignored IS in 2 January 2020: 2 numbers up to 0300\n"+would+
			"would raise PO in "+named+": from 0000 to 0002; 1 number\n"+others, stdout)
		require.Equal(t, "serial: dry run: nothing was written; to write, add -dry-run=false\n", stderr)
	}
	var out, errs bytes.Buffer
	code := run(context.Background(), []string{"import"}, e.get, keyboard{strings.NewReader(stored), info{}}, &out, &errs)
	require.Equal(t, 0, code, errs.String())
	require.Contains(t, out.String(), would)
	require.Contains(t, errs.String(), "reading numbers from this terminal")
	require.Equal(t, before, m.Dump())

	// If a line is not a number, nothing is written in any case, and only such lines are listed.
	for _, bad := range []string{"IS" + day + "000", "x", "IS202002300001"} {
		for _, flag := range []string{"-dry-run=false", "-dry-run", "-force", "-json"} {
			says := fmt.Sprintf("serial: line 9: invalid number: %q is not a number of this scheme", bad)
			stderr := e.with(stored+"\n\n"+bad+"\n"+bad).fails(t, 1, says, "import", flag)
			require.Contains(t, stderr, "serial: line 10: ")
			require.True(t, strings.HasSuffix(stderr, "serial: 2 lines cannot be parsed; nothing was written\n"), stderr)
		}
	}
	_, _, stderr := e.with(stored+"\n"+strings.Repeat("x\n", 30)).do("import", "-dry-run=false")
	require.Equal(t, 11, strings.Count(stderr, "\n"))
	require.Contains(t, stderr, "30 lines cannot be parsed, of which the first 10 are shown; nothing was written")
	require.Equal(t, before, m.Dump())

	// One type only.
	stdout, _ := e.with(stored).exits(t, 0, "import", "PO")
	require.Contains(t, stdout, "raised PO in "+named+": from 0000 to 0002; 1 number\n")
	require.Contains(t, stdout, "ignored IS in "+named+": 3 numbers up to 0041\n")
	require.Equal(t, []string{"3", "2"}, []string{counter("IS"), counter("PO")})

	// Everything, twice.
	stdout, stderr = e.with(stored).exits(t, 0, "import")
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

	// Import repairs a lost counter.
	m.Del("serial:{IS}:" + day)
	stdout, _ = e.with("IS"+day+"0050").exits(t, 0, "import", "IS", "-")
	require.Equal(t, "raised IS in "+named+": to 0050, the counter is lost; 1 number\n", stdout)
	require.Equal(t, "50", counter("IS"))
}

// Duplicates and jumps in the input look like mistakes, and need -force.
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
		"a spreadsheet that cut the digits": {is(340, 340, 340, 340, 340, 340, 340, 340),
			[]string{"line 2: IS" + day + "0340: the sequence 0340 of IS in " + named + " " + twice}, nil},
		"two slips": {is(1, 2, 2, 3, 1, 1),
			[]string{"line 3: IS" + day + "0002: the sequence 0002", "line 5: IS" + day + "0001"}, nil},
		"a slip": {upTo(41) + is(9999),
			[]string{"the greatest sequence of IS in " + named + ", 9999, is 9958 " + jump + ", 0041"}, nil},
		"both":                       {is(1, 9000, 9000), []string{twice, jump}, nil},
		"one too many":               {is(1, 1002), []string{"1002, is 1001 " + jump + ", 0001"}, nil},
		"as many as allowed":         {is(1, 1001), nil, nil},
		"one":                        {is(9999), nil, nil},
		"more than the numbers read": {upTo(1500) + is(3002), []string{"3002, is 1502 " + jump + ", 1500"}, nil},
		"as many as were read":       {upTo(1500) + is(3001), nil, nil},
		"another day":                {"IS202001020300\nIS202001020300\nIS202001029999\nIS" + day + "0001", nil, nil},
		"another type":               {strings.ReplaceAll(is(300, 300, 9999), "IS", "PO") + is(7), nil, []string{"IS", "-"}},
		"that type":                  {"PO" + day + "0300\n" + is(7, 7), []string{twice}, []string{"IS", "-"}},
		"two days, not one":          {"IS202001020300\n" + is(300), nil, nil},
		"other digits, same number":  {"IS" + day + "0002\n\u00a0IS" + day + "0002 \n", []string{twice}, nil},
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
			stdout, stderr = e.with(row.input).exits(t, 1, append(args, "-dry-run")...)
			require.Contains(t, stdout, "would raise IS in")
			requireSays()
			require.Empty(t, m.Keys())
			stdout, stderr = e.with(row.input).exits(t, 0, append(args, "-dry-run", "-force")...)
			require.Contains(t, stdout, "would raise IS in")
			requireSays()
			require.Regexp(t, "serial: dry run: nothing was written; to write, add -dry-run=false\n$", stderr)
			require.Empty(t, m.Keys())
			stdout, stderr = e.with(row.input).exits(t, 0, append(args, "-force")...)
			require.Contains(t, stdout, "raised IS in")
			requireSays()
			require.NotContains(t, stderr, "nothing was written")
		})
	}

	m.FlushAll()
	stdout, _ := e.with(is(5, 5, 7, 7, 9000)).exits(t, 1, "import", "-json")
	require.Regexp(t, `"action":"would raise","count":5,"greatest":9000,"last":0,"missing":\[\{"first":6,"last":6\},`+
		`\{"first":8,"last":8999\}\],"missingCount":8993,"duplicates":\["IS`+day+`0005","IS`+day+`0007"\],`+
		`"duplicateCount":2,"jump":8993\}\n$`, stdout)
	_, _, stderr := e.with(upTo(30) + upTo(30)).do("import")
	require.Equal(t, 12, strings.Count(stderr, "\n"))
	require.Contains(t, stderr, "30 sequences of IS in "+named+" appear twice, of which the first 10 are shown\n"+remedy)

	// A long list of missing sequences is cut.
	odd := ""
	for seq := 1; seq <= 2401; seq += 2 {
		odd += is(seq)
	}
	stdout, _ = e.with(odd).exits(t, 0, "import")
	require.Contains(t, stdout, "lacks      1200\n  0002\n")
	require.Contains(t, stdout, "  2000\n  and 200 more\n")

	// Lines that cannot be parsed are listed even without Redis.
	code, stdout, stderr := environment{"SERIAL_REDIS_URL": "redis://" + refused(t) + "?max_retries=-1", "SERIAL_TZ": zone,
		"stdin": is(1) + "x\n"}.do("import")
	require.Equal(t, 1, code)
	require.Empty(t, stdout)
	require.Contains(t, stderr, "1 line cannot be parsed; nothing was written")
	code, _, stderr = environment{"SERIAL_REDIS_URL": "redis://" + refused(t) + "?max_retries=-1", "SERIAL_TZ": zone,
		"stdin": is(1)}.do("import")
	require.Equal(t, 1, code)
	require.Contains(t, stderr, "serial: Redis failed: ")
}

// A single argument is FILE if such a file exists, or if there is nothing else to read.
func TestImportArguments(t *testing.T) {
	m, e, day := issued(t, 0)
	counter := func(typ string) string {
		v, _ := m.Get("serial:{" + typ + "}:" + day)
		return v
	}
	path := written(t, "number\nIS"+day+"0005\nPO"+day+"0006\n")
	e.with("").exits(t, 0, "import", "-column", "number", path)
	require.Equal(t, []string{"5", "6"}, []string{counter("IS"), counter("PO")})
	require.NoError(t, os.WriteFile(path, []byte("IS"+day+"0007\nPO"+day+"0008\n"), 0o600))
	e.with("").exits(t, 0, "import", "IS", path)
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
		{1, "the input has no numbers, so nothing was written", "\n", nil},
		{1, "the input has no numbers, so nothing was written", "", []string{written(t, "")}},
		{1, "the input has no numbers, so nothing was written", "number\n", []string{"-column", "number", "-dry-run"}},
		{2, "want true or false", "", []string{"-dry-run=maybe"}},
		{2, "too many arguments", "", []string{"IS", path, "x"}},
	} {
		e.with(row.stdin).fails(t, row.code, row.says, append([]string{"import"}, row.args...)...)
	}
	var out, errs bytes.Buffer
	code := run(context.Background(), []string{"import", path + "x"}, e.get, keyboard{strings.NewReader(""), info{}},
		&out, &errs)
	require.Equal(t, 1, code)
	require.Contains(t, errs.String(), "no such file")
	null, err := os.Open(os.DevNull)
	require.NoError(t, err)
	defer null.Close()
	require.NoError(t, os.WriteFile(path, []byte("IS"+day+"0012\n"), 0o600))
	require.Equal(t, 0, run(context.Background(), []string{"import", path}, e.get, null, &out, &errs))
	require.Equal(t, "12", counter("IS"), "a service's stdin is not a terminal")
}

// Import reports a period that ends while its counter is raised, since Raise knows only the current one.
func TestImportAtTheEnd(t *testing.T) {
	m := startMemory(t)
	now := time.Now().UTC().Truncate(time.Minute).Add(30 * time.Second)
	m.SetTime(now)
	scripts := 0
	m.Server().SetPreHook(func(_ *server.Peer, cmd string, _ ...string) bool {
		if cmd == "EVALSHA" {
			if scripts++; scripts == 2 { // the first one was Peek's
				m.SetTime(now.Add(time.Minute))
			}
		}
		return false
	})
	e := environment{"SERIAL_REDIS_URL": "redis://" + m.Addr(), "SERIAL_TZ": "UTC"}
	stdout, stderr := e.with("IS"+now.Format("200601021504")+"0007").exits(t, 1, "import", "-period", "minute")
	require.Contains(t, stdout, "failed IS")
	require.Contains(t, stderr, fmt.Sprintf("IS: %s ended meanwhile, and the counter that was raised may be that of %s",
		now.Format("2 January 2006, 15:04")+" to "+now.Add(time.Minute).Format("15:04"),
		now.Add(time.Minute).Format("2 January 2006, 15:04")+" to "+now.Add(2*time.Minute).Format("15:04")))
}

// Redis's clock determines the current period, even if the counter is lost.
func TestImportOfALostCounter(t *testing.T) {
	m := startMemory(t)
	now := time.Now().UTC().Add(10 * time.Minute)
	m.SetTime(now)
	e := environment{"SERIAL_REDIS_URL": "redis://" + m.Addr(), "SERIAL_TZ": "UTC"}
	number, _ := e.exits(t, 0, "next", "-period", "minute", "IS")
	number = strings.TrimSpace(number)
	m.Del("serial:{IS}:" + number[2:14])
	stdout, _ := e.with(number[:14]+"0050").exits(t, 0, "import", "-period", "minute", "IS", "-")
	require.Contains(t, stdout, "raised IS")

	// Numbers that belong to no current period are reported.
	stdout, stderr := e.with("IS2021102400000050").exits(t, 0, "import", "-period", "minute")
	require.Contains(t, stdout, "ignored IS")
	require.Equal(t, "serial: none of the numbers belongs to a current period, so nothing was written; is the time "+
		"zone right?\n", stderr)
}

// After sequences below the first one, a new day still begins at its start. Lines that cannot be parsed are reported before a type that cannot be
// read.
func TestImportOfLittle(t *testing.T) {
	m, e, day := issued(t, 0)
	stdout, _ := e.with("IS"+day+"0050").exits(t, 0, "import", "-start", "100")
	require.Contains(t, stdout, "raised IS")
	stdout, _ = e.exits(t, 0, "next", "-start", "100", "IS")
	require.Equal(t, "IS"+day+"0100\n", stdout)
	m.HSet("serial:{IS}", "entered", "nonsense")
	_, stderr := e.with("IS"+day+"0050\nbad").exits(t, 1, "import")
	require.Contains(t, stderr, `"bad" is not a number of this scheme`)
	require.NotContains(t, stderr, "nonsense")
	_, stderr = e.with("IS"+day+"0050").exits(t, 1, "import")
	require.Contains(t, stderr, "nonsense")
}

// If a type cannot be raised, the types after it are not raised either.
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
	stdout, stderr := e.with("AA"+day+"0002\nIS"+day+"0007").exits(t, 1, "import")
	require.Contains(t, stderr, "boom")
	require.Contains(t, stderr, "serial: 0 types raised before AA, and none after it\n")
	require.Regexp(t, `^failed AA .*\nnot raised IS .*\n$`, stdout)
	require.False(t, m.Exists("serial:{IS}:"+day))
}
