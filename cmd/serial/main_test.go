package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9/logging"
	"github.com/stretchr/testify/require"

	"github.com/dailyserial/serial/serialcmd"
)

func TestMain(m *testing.M) {
	logging.Disable() // as Main does; TestBinary checks that it does
	os.Exit(m.Run())
}

// surroundings stand in for the process's.
type surroundings serialcmd.Setup

func (s *surroundings) Apply(c *serialcmd.Setup) {
	c.Name, c.Args, c.Getenv, c.Context = "serial", s.Args, s.Getenv, s.Context
	c.Stdin, c.Stdout, c.Stderr = s.Stdin, s.Stdout, s.Stderr
}

func run(ctx context.Context, args []string, getenv func(string) string, stdin io.Reader,
	stdout, stderr io.Writer) int {
	return serialcmd.Main(nil, new(settings), &surroundings{Args: args, Getenv: getenv, Context: ctx, Stdin: stdin,
		Stdout: stdout, Stderr: stderr})
}

// do runs a command line with an empty environment.
func do(args ...string) (code int, stdout, stderr string) { return doEnv("", args...) }

func doEnv(url string, args ...string) (code int, stdout, stderr string) {
	return onRedis(url).do(args...)
}

// onRedis returns an environment with nothing but a Redis URL.
func onRedis(url string) environment { return environment{"SERIAL_REDIS_URL": url} }

func env(url string) func(string) string { return onRedis(url).get }

// An environment holds variables by name, and the input as "stdin".
type environment map[string]string

func (e environment) get(name string) string { return e[name] }

func (e environment) do(args ...string) (code int, stdout, stderr string) {
	var out, errs bytes.Buffer
	code = run(context.Background(), args, e.get, strings.NewReader(e["stdin"]), &out, &errs)
	return code, out.String(), errs.String()
}

// exits runs a command line, requires an exit code, and returns what was printed.
func (e environment) exits(t *testing.T, want int, args ...string) (stdout, stderr string) {
	t.Helper()
	code, stdout, stderr := e.do(args...)
	require.Equal(t, want, code, "%q: %s%s", args, stdout, stderr)
	return stdout, stderr
}

// fails requires that a command line prints only an error that contains a text, and returns the error.
func (e environment) fails(t *testing.T, want int, says string, args ...string) string {
	t.Helper()
	stdout, stderr := e.exits(t, want, args...)
	require.Empty(t, stdout, args)
	require.Contains(t, stderr, says, args)
	return stderr
}

// prints requires that a command line succeeds, and prints exactly stdout and no message.
func (e environment) prints(t *testing.T, stdout string, args ...string) {
	t.Helper()
	got, stderr := e.exits(t, 0, args...)
	require.Equal(t, stdout, got, args)
	require.Empty(t, stderr, args)
}

// startMemory starts an in-memory Redis, if possible on the IPv6 loopback. On 127.0.0.1, its port may be one to which the
// client of another test's dead server still connects.
func startMemory(t *testing.T) *miniredis.Miniredis {
	m := miniredis.NewMiniRedis()
	if m.StartAddr("[::1]:0") != nil {
		require.NoError(t, m.Start())
	}
	t.Cleanup(m.Close)
	return m
}

// untouched requires that nobody has connected to m.
func untouched(t *testing.T, m *miniredis.Miniredis, args []string) {
	t.Helper()
	require.Zero(t, m.TotalConnectionCount(), args)
}

// noon returns a zone in which it is about noon, so no test runs over midnight, and the current day there.
func noon() (zone, day string) {
	now := time.Now().UTC()
	zone = fmt.Sprintf("Etc/GMT%+d", now.Hour()-12) // the sign of these zones is reversed
	loc, err := time.LoadLocation(zone)
	if err != nil {
		panic(err)
	}
	return zone, now.In(loc).Format("20060102")
}

// lines returns the numbers from first to last, one per line.
func lines(format string, first, last int) string {
	var b strings.Builder
	for i := first; i <= last; i++ {
		fmt.Fprintf(&b, format+"\n", i)
	}
	return b.String()
}

func TestHelp(t *testing.T) {
	surroundings := environment{"SERIAL_REDIS_URL": "redis://:hunter2@localhost", "SERIAL_TZ": "Mars/Olympus"}
	for _, row := range []struct {
		begins string
		args   []string
	}{
		{"Usage: serial COMMAND ", []string{"help"}},
		{"Usage: serial COMMAND ", []string{"-h"}},
		{"Usage: serial COMMAND ", []string{"-help"}},
		{"Usage: serial COMMAND ", []string{"--help"}},
		{"Usage: serial COMMAND ", []string{"help", "help"}},
		{"Usage: serial next [flags] TYPE\n", []string{"help", "next"}},
		{"Usage: serial next [flags] TYPE\n", []string{"next", "-h"}},
		{"Usage: serial next [flags] TYPE\n", []string{"next", "IS", "PO", "-help"}},
		{"Usage: serial peek [flags] TYPE\n", []string{"peek", "--help"}},
		{"Usage: serial raise [flags] TYPE SEQ\n", []string{"raise", "-tz", "UTC", "-h"}},
		{"Usage: serial parse [flags] NUMBER\n", []string{"parse", "-h", "IS"}},
		{"Usage: serial audit [flags] TYPE [FILE]\n", []string{"help", "audit"}},
		{"Usage: serial import [flags] [TYPE] [FILE]\n", []string{"import", "-h"}},
		{"Usage: serial version\n", []string{"version", "-h"}},
	} {
		stdout, stderr := surroundings.exits(t, 0, row.args...)
		require.Empty(t, stderr, row.args)
		require.True(t, strings.HasPrefix(stdout, row.begins), stdout)
		require.Equal(t, strings.HasPrefix(row.begins, "Usage: serial COMMAND"), strings.Contains(stdout, "\nCommands:\n"),
			stdout)
	}
	// A command's help lists its own flags, and no others.
	flags := func(command string) (names []string) {
		_, stdout, _ := do("help", command)
		for _, match := range regexp.MustCompile(`(?m)^  -(\S+)`).FindAllStringSubmatch(stdout, -1) {
			names = append(names, match[1])
		}
		return names
	}
	all := []string{"redis", "tz", "period", "day-start", "year-start", "template", "start", "last", "until",
		"retention", "once-for", "hidden-key", "prefix", "shared", "json"}
	require.Equal(t, append([]string{"n", "once"}, all...), flags("next"))
	require.Equal(t, append([]string{"n"}, all...), flags("history"))
	for _, command := range []string{"peek", "prepare", "parse", "template"} {
		require.Equal(t, all, flags(command))
	}
	require.Equal(t, append([]string{"reason", "by"}, all...), flags("raise"))
	require.Equal(t, append([]string{"reason", "by", "leave-ledger"}, all...), flags("takeover"))
	require.Equal(t, append([]string{"date", "all", "column", "explained", "earlier"}, all...), flags("audit"))
	require.Equal(t, append([]string{"dry-run", "force", "column"}, all...), flags("import"))
	require.Empty(t, flags("version"))
}

// listed returns the commands that the help lists, and their summaries.
func listed(t *testing.T) (commands [][2]string) {
	t.Helper()
	_, stdout, _ := do("help")
	for _, line := range regexp.MustCompile(`(?m)^  (\S.*?)  +(.*)$`).FindAllStringSubmatch(stdout, -1) {
		commands = append(commands, [2]string{line[1], line[2]})
	}
	require.Greater(t, len(commands), 10)
	return commands
}

// The package's documentation lists the same commands as the help.
func TestDocumentation(t *testing.T) {
	source, err := os.ReadFile("main.go")
	require.NoError(t, err)
	for _, command := range listed(t) {
		name, args, _ := strings.Cut(command[0], " ")
		require.Regexp(t, `(?m)^//\tserial `+name+`( \[[^]]*\])? *`+regexp.QuoteMeta(args)+` +`+
			regexp.QuoteMeta(command[1])+`$`, string(source))
	}
	_, help, _ := do("help")
	for text := range strings.Lines(help) {
		require.LessOrEqual(t, len(text), 90)
	}
}

func TestWithoutURL(t *testing.T) {
	zone, day := noon()
	for range 2 { // the second run begins again at 0001
		stdout, stderr := environment{}.exits(t, 0, "next", "-tz", zone, "-n", "3", "IS")
		require.Equal(t, lines("IS"+day+"%04d", 1, 3), stdout)
		require.Contains(t, stderr, "nothing is kept; the time zone is "+zone+", now UTC")
		require.Equal(t, 1, strings.Count(stderr, "\n"))
	}
	code, stdout, stderr := do("next", "IS") // as in the README
	require.Equal(t, 0, code)
	require.Regexp(t, `^IS\d{8}0001\n$`, stdout)
	require.Contains(t, stderr, "this machine's, now UTC"+time.Now().Format("-07:00"))

	for _, args := range [][]string{{"peek", "IS"}, {"history", "IS"}, {"prepare", "IS"}, {"raise", "IS", "7"},
		{"audit", "IS"}, {"import"}} {
		environment{}.misused(t, args[0]+" needs a Redis URL: -redis or $SERIAL_REDIS_URL", append(args, "-tz", zone)...)
	}
}

func TestWithURL(t *testing.T) {
	m := startMemory(t)
	url := "redis://" + m.Addr() + "/0"
	zone, day := noon()
	for _, step := range []struct {
		stdout string
		args   []string
	}{
		{"next IS" + day + "0001\n", []string{"raise", "IS", "0"}},
		{"IS" + day + "0001\n", []string{"next", "IS"}},
		{lines("IS"+day+"%04d", 2, 4), []string{"next", "-n", "3", "IS"}},
		{"IS" + day + "0004\n", []string{"peek", "IS"}},
		{"next IS" + day + "0042\n", []string{"raise", "IS", "41"}},
		{"next IS" + day + "0042\n", []string{"raise", "IS", "5"}},
		{"IS" + day + "0041\n", []string{"peek", "IS"}},
		{"IS-" + day[2:] + "-42\n", []string{"next", "-template", "{type}-{date:yyMMdd}-{seq:2}", "IS"}},
		{"PO" + day + "0001\n", []string{"next", "PO"}},
		{"IS" + day + "0001\n", []string{"next", "-prefix", "other", "IS"}},
	} {
		args := append([]string{step.args[0], "-redis", url, "-tz", zone}, step.args[1:]...)
		code, stdout, stderr := doEnv("redis://"+refused(t), args...) // the flag goes first
		require.Equal(t, 0, code, "%s: %s", step.args, stderr)
		require.Equal(t, step.stdout, unskipped(stdout), step.args)
		require.Empty(t, stderr, step.args)
	}
	onRedis(url).prints(t, "IS"+day+"0042\n", "peek", "-tz", zone, "IS")
	require.True(t, m.Exists("other:{IS}:"+day))
}

func TestPeekOfNothing(t *testing.T) {
	m, e, day := issued(t, 0)
	says := "no number of IS was issued since " + day[:4] + "-" + day[4:6] + "-" + day[6:] + "T00:00:00"
	stderr := e.fails(t, 0, says, "peek", "IS")
	require.Equal(t, 1, strings.Count(stderr, "\n"))
	require.Empty(t, m.Keys())
}

func TestFailure(t *testing.T) {
	_, e, _ := issued(t, 1)
	for _, row := range []struct {
		says string
		args []string
	}{
		{`invalid type "I S"`, []string{"next", "I S"}},
		{"numbers exhausted", []string{"next", "-n", "9999", "IS"}},
		{"numbers exhausted", []string{"next", "-n", "250000", "IS"}},
		{"0 to 9999", []string{"raise", "IS", "10000"}},
		{"conflicting period", []string{"next", "-tz", "Asia/Kathmandu", "IS"}},
		{"no day 2021-02-29", []string{"parse", "IS202102290001"}},
		{"is not a number of this scheme", []string{"parse", "IS"}},
		{"is not a number of this scheme", []string{"parse", "-template", "{type}/{date:yyMMdd}/{seq}", "IS202110240001"}},
	} {
		stderr := e.fails(t, 1, row.says, row.args...)
		require.Regexp(t, `^serial: [^\n]*\n$`, stderr)
		require.NotRegexp(t, `^serial: serial: `, stderr)
		require.NotContains(t, stderr, "were printed")
	}
}

func TestParse(t *testing.T) {
	for _, row := range []struct {
		stdout string
		args   []string
	}{
		{"type IS\nstart 2021-10-24T00:00:00+08:00\nseq 1\n", []string{"-tz", "Asia/Shanghai", "IS202110240001"}},
		{"type PO\nstart 2018-11-04T01:00:00-02:00\nseq 120\n", // a day without a midnight
			[]string{"-tz", "America/Sao_Paulo", "-template", "{type}-{date:yyMMdd}-{seq:6}", "PO-181104-000120"}},
	} {
		onRedis("no URL").prints(t, row.stdout, append([]string{"parse"}, row.args...)...)
	}
}

func TestBatches(t *testing.T) {
	const n = 250_000
	m := startMemory(t)
	zone, day := noon()
	next := []string{"next", "-tz", zone, "-template", "{type}{date:yyyyMMdd}{seq:6}", "-n", fmt.Sprint(n), "IS"}

	stdout, stderr := onRedis("redis://"+m.Addr()).exits(t, 0, next...)
	require.True(t, lines("IS"+day+"%06d", 1, n) == stdout) // not Equal: it would print both
	require.Empty(t, stderr)

	// The numbers left are enough for one batch, but not for two.
	onRedis("redis://"+m.Addr()).exits(t, 0, "raise", "-tz", zone, next[3], next[4], "IS", "849999")
	stdout, stderr = onRedis("redis://"+m.Addr()).exits(t, 1, next...)
	require.True(t, lines("IS"+day+"%06d", 850_000, 949_999) == stdout)
	require.Regexp(t, `^serial: numbers exhausted: .*; 100000 of 250000 numbers were printed\n$`, stderr)
}

// A full disk accepts room bytes and no more.
type fullDisk struct{ room int }

var errFull = errors.New("no space left")

func (d *fullDisk) Write(b []byte) (int, error) {
	n := min(len(b), d.room)
	d.room -= n
	if n < len(b) {
		return n, errFull
	}
	return n, nil
}

func TestOutputFails(t *testing.T) {
	m := startMemory(t)
	zone, day := noon()
	wide := []string{"-tz", zone, "-template", "{type}{date:yyyyMMdd}{seq:6}"}
	const general = "the output could not be written"
	for _, row := range []struct {
		says string
		args []string
	}{
		{"the 100000 numbers from IS" + day + "000001 to IS" + day + "100000 were issued but could not all be written",
			slices.Concat([]string{"next", "-n", "250000", "IS"}, wide)},
		{"the number PO" + day + "000001 was issued but could not be written", append([]string{"next", "PO"}, wide...)},
		{"the number PO" + day + "000002 was issued but could not be written",
			append([]string{"next", "-json", "PO"}, wide...)},
		{"the number PO" + day + "000003 was issued but could not be written",
			append([]string{"next", "-once", "a", "PO"}, wide...)},
		{"the 2 numbers from PO" + day + "000004 to PO" + day + "000005 were issued but could not all be written",
			append([]string{"next", "-n", "2", "-json", "PO"}, wide...)},
		{"raise succeeded and skipped 6 to 7, but " + general, []string{"raise", "-tz", zone, "PO", "7"}},
		{"prepare succeeded, but " + general, []string{"prepare", "-tz", zone, "-json", "PO"}},
		{general, []string{"peek", "-tz", zone, "IS"}},
		{general, []string{"history", "-tz", zone, "-json", "IS"}},
		{general, []string{"audit", "-tz", zone, "PO"}},
		{general, []string{"import", "-tz", zone, "PO"}},
		{general, []string{"version"}},
		{general, []string{"parse", "IS202110240001"}},
		{general, []string{"template", "{type}{date:yyyyMMdd}{seq}"}},
		{general, []string{"help"}},
	} {
		var errs bytes.Buffer
		stdin := strings.NewReader("PO" + day + "0001")
		code := run(context.Background(), row.args, env("redis://"+m.Addr()), stdin, &fullDisk{room: 5}, &errs)
		require.Equal(t, 1, code, row.args)
		if row.args[0] == "audit" { // which has found something, too
			require.Contains(t, errs.String(), "serial: "+row.says+": no space left\n")
			continue
		}
		require.Equal(t, "serial: "+row.says+": no space left\n", errs.String(), row.args)
	}
	last, err := m.Get("serial:{IS}:" + day)
	require.NoError(t, err)
	require.Equal(t, "100000", last, "continued to issue numbers that nobody can read")
}

// Some programs open /dev/null for reading and writing when they want no output. Only next refuses that, because a
// closed stdout looks the same, and numbers would be lost. If nothing can be written, no command changes a counter.
func TestOutputToDevices(t *testing.T) {
	for _, output := range []struct {
		name  string
		mode  int
		fails string
	}{
		{"/dev/null", os.O_RDWR, ""},
		{"/dev/null", os.O_WRONLY, ""},
		{"/dev/null", os.O_RDONLY, "bad file descriptor"},
		{"/dev/full", os.O_WRONLY, "no space left on device"},
	} {
		file, err := os.OpenFile(output.name, output.mode, 0)
		if err != nil && runtime.GOOS != "linux" {
			t.Skip(err)
		}
		require.NoError(t, err)
		defer file.Close()
		for _, args := range [][]string{{"raise", "IS", "41"}, {"takeover", "IS", "41"}, {"import", "-force"},
			{"prepare", "IS"}, {"peek", "IS"}, {"history", "IS"}, {"audit", "IS"}} {
			m, e, day := issued(t, 1)
			var errs bytes.Buffer
			stdin := strings.NewReader("IS" + day + "0001\n" + "IS" + day + "0041\n")
			code := run(t.Context(), args, e.get, stdin, file, &errs)
			last, _ := m.Get("serial:{IS}:" + day)
			changes := args[0] == "raise" || args[0] == "takeover" || args[0] == "import"
			switch {
			case output.fails != "":
				require.Equal(t, 1, code, args)
				require.Contains(t, errs.String(), output.fails, args)
				require.Equal(t, "1", last, args)
				require.Equal(t, changes, strings.HasSuffix(errs.String(), "; nothing was sent\n"), "%s: %s", args, &errs)
			case args[0] == "audit":
				require.Equal(t, 3, code, "0041 was not issued: %s", &errs)
			default:
				require.Equal(t, 0, code, "%s: %s", args, &errs)
				require.Empty(t, errs.String(), args)
				require.Equal(t, changes, last == "41", args)
			}
		}
	}
}

func TestPrepare(t *testing.T) {
	m := startMemory(t)
	url := "redis://" + m.Addr()
	with := []string{"-tz", "UTC", "-period", "month", "-start", "7", "IS"}
	stdout, _ := onRedis(url).exits(t, 0, append([]string{"prepare", "-retention", "1"}, with...)...)
	first := time.Now().UTC().Format("IS200601") + "0007\n"
	require.Equal(t, "next "+first, stdout)
	y, mo, _ := time.Now().UTC().Date()
	for n := range 2 {
		value, err := m.Get("serial:{IS}:" + time.Date(y, mo+time.Month(n), 1, 0, 0, 0, 0, time.UTC).Format("200601"))
		require.NoError(t, err)
		require.Equal(t, "6", value)
	}
	onRedis(url).prints(t, first, append([]string{"next"}, with...)...)
	require.Len(t, m.Keys(), 3, "two counters and the record")
	onRedis(url).prints(t, "next IS0001\n", "prepare", "-tz", "UTC", "-period", "never", "-prefix", "p", "IS")
}

// Every command prints the same kind of JSON.
func TestJSON(t *testing.T) {
	_, e, day := issued(t, 0)
	loc := zoneOf(t, e)
	y, mo, d := time.Now().In(loc).Date()
	start := time.Date(y, mo, d, 0, 0, 0, 0, loc).Format(time.RFC3339)
	none := fmt.Sprintf(`{"type":"IS","start":"%s","seq":0}`, start)
	before := func(number string, next int) string { // the number, completed with the one that comes next
		return fmt.Sprintf(`%s,"next":"IS%s%04d"}`, strings.TrimSuffix(number, "}"), day, next)
	}
	number := func(seq int) string {
		return fmt.Sprintf(`{"number":"IS%s%04d","type":"IS","start":"%s","seq":%d}`, day, seq, start, seq)
	}
	for _, row := range []struct {
		want string
		args []string
	}{
		{none, []string{"peek", "IS"}},
		{before(none, 1), []string{"prepare", "IS"}},
		{before(none, 1), []string{"raise", "IS", "0"}},
		{number(1), []string{"next", "IS"}},
		{number(2) + "\n" + number(3), []string{"next", "-n", "2", "IS"}},
		{number(4), []string{"next", "-once", "a", "IS"}},
		{number(4), []string{"next", "-once", "a", "IS"}},
		{number(4), []string{"peek", "IS"}},
		{before(number(9), 10), []string{"raise", "IS", "9"}},
		{number(3), []string{"parse", "IS" + day + "0003"}},
	} {
		stdout, stderr := e.exits(t, 0, append([]string{row.args[0], "-json"}, row.args[1:]...)...)
		require.Empty(t, stderr)
		require.Equal(t, row.want+"\n", unskipped(stdout), row.args)
	}
	e.prints(t, lines("IS"+day+"%04d", 10, 10), "next", "-once", "b", "IS")
}

// A request gets the number printed for it, even if the template has changed.
func TestOnceAfterAChange(t *testing.T) {
	_, e, day := issued(t, 0)
	_, before, _ := e.do("next", "-json", "-once", "a", "IS")
	require.Contains(t, before, `{"number":"IS`+day+`0001","type":"IS",`)
	for _, template := range []string{"{type}-{date:yyMMdd}-{seq:6}", "{seq:6}{date:yyyyMMdd}{type}"} {
		e.prints(t, before, "next", "-json", "-once", "a", "-template", template, "IS")
		e.prints(t, "IS"+day+"0001\n", "next", "-once", "a", "-template", template, "IS")
	}
}

func TestContextEnds(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	var out, errs bytes.Buffer
	code := run(ctx, []string{"next", "IS"}, env(""), nil, &out, &errs)
	require.Equal(t, 1, code)
	require.Empty(t, out.String())
	require.Contains(t, errs.String(), "context canceled")
}

// TestBinary tests what run does not cover: exit codes, signals, the silence of go-redis.
func TestBinary(t *testing.T) {
	binary := filepath.Join(t.TempDir(), "serial.exe")
	output, err := exec.Command("go", "build", "-o", binary, ".").CombinedOutput()
	require.NoError(t, err, "%s", output)
	command := func(url string, args ...string) (*exec.Cmd, *bytes.Buffer, *bytes.Buffer) {
		cmd := exec.Command(binary, args...)
		cmd.Env = append(os.Environ(), "SERIAL_REDIS_URL="+url, "SERIAL_TZ=Asia/Shanghai")
		var out, errs bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &errs
		return cmd, &out, &errs
	}

	nobody := "redis://" + refused(t)
	for _, row := range []struct {
		code           int
		stdout, stderr string
		url            string
		args           []string
	}{
		{0, `^IS\d{8}0001\n$`, `^serial: .*nothing is kept.*\n$`, "", []string{"next", "IS"}},
		{0, `^serial \S+, .*go1\.\S+\n$`, `^$`, "", []string{"version"}},
		{0, `^Usage:`, `^$`, "", []string{"-h"}},
		{2, `^$`, `^usage: .*\nserial: no command\n$`, "", nil},
		{1, `^$`, `^serial: .*is not a number of this scheme.*\n$`, "", []string{"parse", "IS"}},
		{1, `^$`, `^serial: Redis failed: .*refused.*\n$`, nobody, []string{"next", "IS"}},
		{1, `^$`, `^serial: Redis failed: .*refused.*\n$`, nobody + "?master_name=m", []string{"next", "IS"}},
	} {
		cmd, out, errs := command(row.url, row.args...)
		_ = cmd.Run()
		require.Equal(t, row.code, cmd.ProcessState.ExitCode(), row.args)
		require.Regexp(t, row.stdout, out.String(), row.args)
		require.Regexp(t, row.stderr, errs.String(), row.args)
	}

	t.Run("output", func(t *testing.T) {
		if runtime.GOOS == "windows" {
			t.Skip("needs a shell")
		}
		m := startMemory(t)
		shell := func(line string) (code int, stderr string) {
			cmd, _, _ := command("redis://"+m.Addr(), "")
			cmd.Path, cmd.Args = "/bin/sh", []string{"sh", "-c", line, binary}
			var errs bytes.Buffer
			cmd.Stdout, cmd.Stderr = nil, &errs
			_ = cmd.Run()
			return cmd.ProcessState.ExitCode(), errs.String()
		}
		for _, line := range []string{
			`"$0" next IS >&-`, `"$0" next -once a IS 1<>/dev/null`, `"$0" next -n 3 IS 1</dev/null`,
		} {
			code, stderr := shell(line)
			require.Equal(t, 1, code, line)
			require.Regexp(t, `^serial: (cannot write to )?stdout.*; nothing was sent\n$`, stderr, line)
			untouched(t, m, []string{line})
		}
		code, stderr := shell(`"$0" next IS >/dev/null`) // requested
		require.Equal(t, 0, code, stderr)
		if _, err := os.Stat("/dev/full"); err == nil {
			code, stderr = shell(`"$0" next IS >/dev/full`)
			require.Equal(t, 1, code)
			require.Contains(t, stderr, "no space left on device")
		}

		r, w, err := os.Pipe()
		require.NoError(t, err)
		defer w.Close()
		require.NoError(t, r.Close()) // without a reader
		cmd, _, errs := command("redis://"+m.Addr(), "next", "IS")
		cmd.Stdout = w
		_ = cmd.Run()
		require.Equal(t, 1, cmd.ProcessState.ExitCode())
		require.Regexp(t, `^serial: the number IS\d{8}000\d was issued but could not be written: .*broken pipe\n$`,
			errs.String())
	})

	t.Run("signal", func(t *testing.T) {
		if runtime.GOOS == "windows" {
			t.Skip("Windows has no signal to send")
		}
		l, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		defer l.Close()
		cmd, out, errs := command("redis://"+l.Addr().String(), "next", "IS")
		require.NoError(t, cmd.Start())
		conn, err := l.Accept() // and never answer
		require.NoError(t, err)
		defer conn.Close()
		start := time.Now()
		require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
		_ = cmd.Wait()
		require.Less(t, time.Since(start), 2*time.Second)
		require.Equal(t, 1, cmd.ProcessState.ExitCode())
		require.Empty(t, out.String())
		require.Regexp(t, `^serial: .*context canceled\n$`, errs.String())
	})
}
