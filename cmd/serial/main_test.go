package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
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
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
	"github.com/stretchr/testify/require"
)

func TestMain(m *testing.M) {
	logging.Disable() // as main does; TestBinary checks that it does
	os.Exit(m.Run())
}

// do runs a command line with an empty environment.
func do(args ...string) (code int, stdout, stderr string) { return doEnv("", args...) }

func doEnv(url string, args ...string) (code int, stdout, stderr string) {
	return environment{"SERIAL_REDIS_URL": url}.do(args...)
}

func env(url string) func(string) string { return environment{"SERIAL_REDIS_URL": url}.get }

// An environment holds variables by name, and as "stdin" the input.
type environment map[string]string

func (e environment) get(name string) string { return e[name] }

func (e environment) do(args ...string) (code int, stdout, stderr string) {
	var out, errs bytes.Buffer
	code = run(context.Background(), args, e.get, strings.NewReader(e["stdin"]), &out, &errs)
	return code, out.String(), errs.String()
}

// untouched requires that nobody has even connected.
func untouched(t *testing.T, m *miniredis.Miniredis, args []string) {
	t.Helper()
	require.Zero(t, m.TotalConnectionCount(), args)
}

// noon returns a zone in which it is about noon, so that no test meets a midnight, and the current day there.
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

func TestMisuse(t *testing.T) {
	m := miniredis.RunT(t)
	surroundings := environment{"SERIAL_REDIS_URL": "redis://" + m.Addr(), "SERIAL_TZ": "UTC"}
	for _, row := range []struct {
		says string
		args []string
	}{
		{"no command", nil},
		{`unknown command "issue"`, []string{"issue", "IS"}},
		{`unknown command "-tz"`, []string{"-tz", "UTC", "next", "IS"}},
		{"next takes TYPE, and the TYPE is missing", []string{"next"}},
		{"too many arguments: next takes TYPE, and got 2", []string{"next", "IS", "PO"}},
		{"takes TYPE, and got 2", []string{"next", "IS", "-n", "2", "PO"}},
		{"TYPE is missing", []string{"peek"}},
		{"raise takes TYPE SEQ, and the SEQ is missing", []string{"raise", "IS"}},
		{"takes TYPE SEQ, and got 3", []string{"raise", "IS", "1", "2"}},
		{"NUMBER is missing", []string{"parse"}},
		{"TYPE is missing", []string{"history"}},
		{"TYPE is missing", []string{"history", "-json"}},
		{"TYPE is missing", []string{"history", "--"}},
		{"takes TYPE, and got 2", []string{"prepare", "IS", "3"}},
		{"and got 3", []string{"next", "IS", "--", "-n", "2"}},
		{"version takes none, and got 1", []string{"version", "IS"}},
		{"version has no flag -json", []string{"version", "-json"}},
		{`unknown command "issue"`, []string{"help", "issue"}},
		{"at least 1", []string{"history", "-n", "0", "IS"}},
		{"at least 1", []string{"prepare", "-n", "-1", "IS"}},
		{"-once issues one number, and -n asks for 2", []string{"next", "-once", "a", "-n", "2", "IS"}},
		{"-once", []string{"peek", "-once", "a", "IS"}},
		{"want second, minute, hour, day, week, month, quarter, year and never",
			[]string{"next", "-period", "decade", "IS"}},
		{`"soon"`, []string{"next", "-day-start", "soon", "IS"}},
		{"serial: WithDayStart", []string{"next", "-day-start", "24h", "IS"}},
		{"PerHour has no days", []string{"next", "-day-start", "4h", "-period", "hour", "IS"}},
		{"serial: WithStart(0)", []string{"next", "-start", "0", "IS"}},
		{"serial: WithRetention", []string{"next", "-retention", "-1", "IS"}},
		{"of different months would read the same",
			[]string{"next", "-period", "month", "-template", "{type}{date:yyyy}{seq}", "IS"}},
		{`"25:00"`, []string{"next", "-day-start", "25:00", "IS"}},
		{`"04:60": not a time of day, such as 04:00, and not a duration, such as 4h`,
			[]string{"next", "-day-start", "04:60", "IS"}},
		{"whole seconds", []string{"next", "-day-start", "04:00:00.5", "IS"}},
		{"next has no flag -x", []string{"next", "-x", "IS"}},
		{"next has no flag -x", []string{"next", "IS", "--x=1"}},
		{"peek has no flag -n", []string{"peek", "-n", "2", "IS"}},
		{"-n needs a value", []string{"next", "-n"}},
		{"-n needs a value", []string{"next", "IS", "-n"}},
		{"-once needs a value, and a flag follows; if that is the value, write -once=VALUE",
			[]string{"next", "-once", "-json", "IS"}},
		{"-once needs a value, and a flag follows", []string{"next", "IS", "-once", "--tz=UTC"}},
		{"-once needs a value, and a flag follows", []string{"next", "-once", "--", "IS"}},
		{`-json "maybe"`, []string{"next", "-json=maybe", "IS"}},
		{`"many"`, []string{"next", "-n", "many", "IS"}},
		{`-n "0x10": not a whole number; want the digits 0 to 9`, []string{"next", "-n", "0x10", "IS"}},
		{`-n "1_000": not a whole number; want the digits 0 to 9`, []string{"history", "-n", "1_000", "IS"}},
		{`-n "0b1": not a whole number`, []string{"prepare", "-n", "0b1", "IS"}},
		{`-start "0o7": not a whole number`, []string{"next", "-start", "0o7", "IS"}},
		{`-start "10_000": not a whole number`, []string{"raise", "-start", "10_000", "IS", "1"}},
		{`-retention "0x1F": not a whole number`, []string{"peek", "-retention", "0x1F", "IS"}},
		{"-reason needs -by NAME", []string{"raise", "-reason", "moved", "IS", "7"}},
		{"-by needs -reason TEXT", []string{"takeover", "-by", "Ada", "IS", "7"}},
		{`-reason "  ": it is blank`, []string{"raise", "-reason", "  ", "-by", "Ada", "IS", "7"}},
		{`-by "\u00a0": it is blank`, []string{"raise", "-reason", "moved", "-by", "\u00a0", "IS", "7"}},
		{"-reason: 501 bytes; want 1 to 500",
			[]string{"raise", "-reason", strings.Repeat("x", 501), "-by", "Ada", "IS", "7"}},
		{"-by: 101 bytes; want 0 to 100", []string{"takeover", "-reason", "x", "-by", strings.Repeat("x", 101), "IS", "7"}},
		{`-reason: it has '\n'; want`, []string{"raise", "-reason", "a\nb", "-by", "Ada", "IS", "7"}},
		{"-by: not valid UTF-8", []string{"raise", "-reason", "a", "-by", "\xff", "IS", "7"}},
		{"import has no flag -reason", []string{"import", "-reason", "moved", "-by", "Ada"}},
		{"prepare has no flag -by", []string{"prepare", "-by", "Ada", "IS"}},
		{`SEQ "0x10": not a whole number; want the digits 0 to 9`, []string{"raise", "IS", "0x10"}},
		{`SEQ "1_000": not a whole number`, []string{"takeover", "IS", "1_000"}},
		{"out of range", []string{"next", "-n", "99999999999999999999", "IS"}},
		{"at least 1", []string{"next", "-n", "0", "IS"}},
		{`-n "-1": at least 1`, []string{"next", "-n", "-1", "IS"}},
		{`SEQ "few"`, []string{"raise", "IS", "few"}},
		{`SEQ "1.5"`, []string{"raise", "IS", "1.5"}},
		{`SEQ "-1"`, []string{"raise", "IS", "-1"}},
		{`SEQ "-1"`, []string{"raise", "-json", "IS", "-1", "-start", "2"}},
		{`SEQ "-1"`, []string{"raise", "--", "IS", "-1"}},
		{`SEQ "99999999999999999999"`, []string{"raise", "IS", "99999999999999999999"}},
		{`"Mars/Olympus"`, []string{"next", "-tz", "Mars/Olympus", "IS"}},
		{"IANA", []string{"peek", "-tz", "Asia", "IS"}},
		{"{seq} is missing", []string{"next", "-template", "{type}{date:yyyyMMdd}", "IS"}},
		{"{type} is missing", []string{"parse", "-template", "{seq}", "IS202110240001"}},
		{"serial: WithKeyPrefix", []string{"raise", "-prefix", "a:b", "IS", "1"}},
		{"serial: WithKeyPrefix", []string{"raise", "-template", "{seq}", "-prefix", "a:b", "IS", "1"}},
		{"scheme: http", []string{"next", "-redis", "http://localhost", "IS"}},
		{"not of the form", []string{"next", "-redis", "localhost:6379", "IS"}},
		{"not of the form", []string{"next", "-redis", "redis:localhost:6379", "IS"}},
		{"not of the form", []string{"next", "-redis", "redis://local host", "IS"}},
		{`"x"`, []string{"peek", "-redis", "redis://localhost/x", "IS"}},
		{"pool_sise", []string{"peek", "-redis", "redis://localhost?pool_sise=3", "IS"}},
		{"addr", []string{"peek", "-redis", "redis://localhost?addr=other", "IS"}},
		{"master_name", []string{"peek", "-redis", "redis://localhost?master_name=", "IS"}},
		{"randomly", []string{"peek", "-redis", "redis://localhost?master_name=m&route_randomly=1", "IS"}},
		{"database number", []string{"peek", "-redis", "redis://localhost?master_name=m&db=x", "IS"}},
		{"PoolSize", []string{"peek", "-redis", "redis://localhost?pool_size=9999999999", "IS"}},
	} {
		t.Run(strings.Join(row.args, " "), func(t *testing.T) {
			code, stdout, stderr := surroundings.do(row.args...)
			require.Equal(t, 2, code)
			require.Empty(t, stdout)
			isReason(t, stderr, row.says)
			untouched(t, m, row.args)
		})
	}
}

// isReason requires of an error output that a line about the usage comes first, and nothing but the reasons behind it.
func isReason(t *testing.T, stderr, why string) {
	t.Helper()
	require.Regexp(t, `^usage: serial \S.* \("serial help.*\n(serial: .*\n)+$`, stderr)
	require.NotContains(t, stderr, "serial: serial: ")
	_, reasons, _ := strings.Cut(stderr, "\n")
	require.Contains(t, reasons, why)
}

// A shell variable that is not set gives an empty value. If that counted as the default, the command would issue
// numbers that nobody keeps, or two for one request.
func TestEmpty(t *testing.T) {
	m := miniredis.RunT(t)
	for _, row := range []struct {
		says string
		args []string
	}{
		{"-redis: it is empty", []string{"next", "-redis", "", "IS"}},
		{"-redis: it is empty", []string{"next", "-redis=", "IS"}},
		{"-redis: it is empty", []string{"next", "-redis", "redis://" + m.Addr(), "-redis", "", "IS"}},
		{"-redis: it is empty", []string{"parse", "-redis", "", "IS202110240001"}},
		{"-once: it is empty", []string{"next", "-once", "", "IS"}},
		{"-once: it is empty", []string{"next", "-once=", "IS"}},
		{"-once: it is empty", []string{"next", "-once", "", "-n", "2", "IS"}},
		{"-tz: it is empty", []string{"peek", "-tz", "", "IS"}},
		{"-period: it is empty", []string{"history", "-period", "", "IS"}},
		{"-template: it is empty", []string{"prepare", "-template", "", "IS"}},
		{"-prefix: it is empty", []string{"raise", "-prefix", "", "IS", "1"}},
		{"-day-start", []string{"next", "-day-start", "", "IS"}},
		{"-start", []string{"next", "-start", "", "IS"}},
		{"-retention", []string{"next", "-retention", "", "IS"}},
		{"-n", []string{"next", "-n", "", "IS"}},
		{"-json", []string{"next", "-json=", "IS"}},
		{"-year-start", []string{"peek", "-year-start", "", "IS"}},
		{"-column", []string{"audit", "-column", "", "IS"}},
		{"-dry-run", []string{"import", "-dry-run="}},
		{"-force", []string{"import", "-force="}},
		{"-explained", []string{"audit", "-explained", "", "IS"}},
		{"-reason: it is empty", []string{"raise", "-reason", "", "-by", "Ada", "IS", "7"}},
		{"-by: it is empty", []string{"takeover", "-reason", "moved", "-by=", "IS", "7"}},
		{"-leave-ledger: it is empty", []string{"takeover", "-leave-ledger=", "IS", "7"}},
		{"the FILE is empty", []string{"audit", "IS", ""}},
		{"the TYPE is empty", []string{"import", ""}},
		{"the TEMPLATE is empty", []string{"template", ""}},
		{"the TYPE is empty", []string{"next", ""}},
		{"the TYPE is empty", []string{"raise", "", "1"}},
		{"the NUMBER is empty", []string{"parse", ""}},
		{"the SEQ is empty", []string{"raise", "IS", ""}},
	} {
		code, stdout, stderr := doEnv("redis://"+m.Addr(), row.args...)
		require.Equal(t, 2, code, row.args)
		require.Empty(t, stdout, row.args)
		isReason(t, stderr, row.says)
		untouched(t, m, row.args)
	}
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
		code, stdout, stderr := surroundings.do(row.args...)
		require.Equal(t, 0, code, row.args)
		require.Empty(t, stderr, row.args)
		require.True(t, strings.HasPrefix(stdout, row.begins), stdout)
		require.Equal(t, strings.HasPrefix(row.begins, "Usage: serial COMMAND"), strings.Contains(stdout, "\nCommands:\n"),
			stdout)
	}
	// A command's help has its own flags and no other command's.
	flags := func(command string) (names []string) {
		_, stdout, _ := do("help", command)
		for _, match := range regexp.MustCompile(`(?m)^  -(\S+)`).FindAllStringSubmatch(stdout, -1) {
			names = append(names, match[1])
		}
		return names
	}
	all := []string{"redis", "tz", "period", "day-start", "year-start", "template", "start", "retention", "hidden-key",
		"prefix", "json"}
	require.Equal(t, append([]string{"n", "once"}, all...), flags("next"))
	require.Equal(t, append([]string{"n"}, all...), flags("history"))
	require.Equal(t, append([]string{"n"}, all...), flags("prepare"))
	for _, command := range []string{"peek", "parse", "template"} {
		require.Equal(t, all, flags(command))
	}
	require.Equal(t, append([]string{"reason", "by"}, all...), flags("raise"))
	require.Equal(t, append([]string{"reason", "by", "leave-ledger"}, all...), flags("takeover"))
	require.Equal(t, append([]string{"date", "column", "explained"}, all...), flags("audit"))
	require.Equal(t, append([]string{"dry-run", "force", "column"}, all...), flags("import"))
	require.Empty(t, flags("version"))
}

// What the help lists, the package's documentation does, too.
func TestDocumentation(t *testing.T) {
	source, err := os.ReadFile("main.go")
	require.NoError(t, err)
	for _, s := range commands {
		_, args, _ := strings.Cut(s.synopsis(), s.name)
		require.Regexp(t, `(?m)^//\tserial `+s.name+`( \[[^]]*\])?`+regexp.QuoteMeta(args)+` +`+regexp.QuoteMeta(s.summary)+
			`$`, string(source))
	}
	for text := range strings.Lines(help(nil)) {
		require.LessOrEqual(t, len(text), 90)
	}
}

// The passwords are hunter2 with something before or after it.
func TestPasswordIsNotShown(t *testing.T) {
	for _, row := range []struct {
		code int
		url  string
	}{
		{2, "redis://u:hunter2/@localhost"},
		{2, "redis://u:hunter2?@localhost"},
		{2, "redis://u:hunter2#@localhost"},
		{2, "redis://u:hunter2%@localhost"},
		{2, "redis://u:%zhunter2@localhost"},
		{2, "redis://u:x hunter2@localhost"},
		{2, "redis://u:1/hunter2@localhost"},
		{2, "redis://u:1?hunter2@localhost"},
		{2, "redis://u:1#hunter2@localhost"},
		{2, "redis://u:@/hunter2@localhost"},
		{2, "redis:/hunter2@localhost"},
		{2, "unix://u:1/hunter2@/tmp/redis.sock"},
		{2, "u:hunter2@localhost"},
		{2, ":hunter2@localhost"},
		{2, "hunter2@localhost"},
		{2, "http://u:hunter2@localhost"},
		{2, "redis://u:hunter2@localhost/x"},
		{2, "redis://u:hunter2@localhost?x=1"},
		{2, "redis://localhost?master_name=m&password=x&hunter2"},
		{2, "redis://localhost?master_name=m&password=x;hunter2"},
		{2, "redis://localhost?master_name=m&password=x@hunter2"},
		{2, "redis://localhost?master_name=m&password=hunter2&db=x"},
		{2, "redis://localhost?password=hunter2"},
		{1, "redis://u:hunter2@" + refused(t) + "?max_retries=-1"},
		{1, "redis://u:%2F%3F%23%40%25hunter2@" + refused(t) + "?max_retries=-1"},
	} {
		code, stdout, stderr := do("next", "-tz", "UTC", "-redis", row.url, "IS")
		require.Equal(t, row.code, code, "%s: %s", row.url, stderr)
		require.Empty(t, stdout)
		require.NotContains(t, stderr, "hunter2", row.url)
	}

	m := miniredis.RunT(t)
	m.RequireAuth("p@ss")
	code, _, stderr := do("next", "-tz", "UTC", "-redis", "redis://:hunter2@"+m.Addr(), "IS")
	require.Equal(t, 1, code)
	require.Contains(t, stderr, "WRONGPASS")
	require.NotContains(t, stderr, "hunter2")
	code, _, stderr = do("next", "-tz", "UTC", "-redis", "redis://:p%40ss@"+m.Addr(), "IS")
	require.Equal(t, 0, code, stderr)

	for _, args := range [][]string{ // without -redis, or misspelt
		{"next", "redis://:hunter2@localhost", "IS"}, {"next", "-url=redis://:hunter2@localhost", "IS"},
		{"next", "-once", "-redis=redis://:hunter2@localhost", "IS"},
		{"next", "IS", "redis://:hunter2@localhost", "PO"},
	} {
		code, _, stderr = do(args...)
		require.Equal(t, 2, code, args)
		require.NotContains(t, stderr, "hunter2", args)
	}
}

// refused returns an address where nothing listens.
func refused(t *testing.T) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, l.Close())
	return l.Addr().String()
}

func TestWithoutURL(t *testing.T) {
	zone, day := noon()
	for range 2 { // the second run begins again at 0001
		code, stdout, stderr := do("next", "-tz", zone, "-n", "3", "IS")
		require.Equal(t, 0, code)
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
		code, stdout, stderr := do(append(args, "-tz", zone)...)
		require.Equal(t, 2, code, args)
		require.Empty(t, stdout)
		isReason(t, stderr, args[0]+" needs a Redis URL: -redis or $SERIAL_REDIS_URL")
	}
}

func TestWithURL(t *testing.T) {
	m := miniredis.RunT(t)
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
	_, stdout, _ := doEnv(url, "peek", "-tz", zone, "IS")
	require.Equal(t, "IS"+day+"0042\n", stdout)
	require.True(t, m.Exists("other:{IS}:"+day))
}

func TestPeekOfNothing(t *testing.T) {
	m := miniredis.RunT(t)
	zone, day := noon()
	code, stdout, stderr := doEnv("redis://"+m.Addr(), "peek", "-tz", zone, "IS")
	require.Equal(t, 0, code)
	require.Empty(t, stdout)
	require.Contains(t, stderr, "no IS was issued since "+day[:4]+"-"+day[4:6]+"-"+day[6:]+"T00:00:00")
	require.Equal(t, 1, strings.Count(stderr, "\n"))
	require.Empty(t, m.Keys())
}

func TestFailure(t *testing.T) {
	m := miniredis.RunT(t)
	zone, _ := noon()
	code, _, stderr := doEnv("redis://"+m.Addr(), "next", "-tz", zone, "IS")
	require.Equal(t, 0, code, stderr)
	for _, row := range []struct {
		says string
		args []string
	}{
		{`invalid type "I S"`, []string{"next", "-tz", zone, "I S"}},
		{"numbers exhausted", []string{"next", "-tz", zone, "-n", "9999", "IS"}},
		{"numbers exhausted", []string{"next", "-tz", zone, "-n", "250000", "IS"}},
		{"0 to 9999", []string{"raise", "-tz", zone, "IS", "10000"}},
		{"conflicting period", []string{"next", "-tz", "Asia/Kathmandu", "IS"}},
		{"no day 2021-02-29", []string{"parse", "IS202102290001"}},
		{"is not a number of this scheme", []string{"parse", "IS"}},
		{"is not a number of this scheme", []string{"parse", "-template", "{type}/{date:yyMMdd}/{seq}", "IS202110240001"}},
	} {
		code, stdout, stderr := doEnv("redis://"+m.Addr(), row.args...)
		require.Equal(t, 1, code, row.args)
		require.Empty(t, stdout, row.args)
		require.Contains(t, stderr, row.says)
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
		code, stdout, stderr := doEnv("no URL", append([]string{"parse"}, row.args...)...)
		require.Equal(t, 0, code, stderr)
		require.Equal(t, row.stdout, stdout)
		require.Empty(t, stderr)
	}
}

// A terminal is a buffer that claims to be one.
type terminal struct {
	bytes.Buffer
	info
}

type info struct{ fs.FileInfo }

func (i info) Stat() (fs.FileInfo, error) { return i, nil }
func (i info) Mode() fs.FileMode          { return fs.ModeDevice | fs.ModeCharDevice }

func TestBatches(t *testing.T) {
	const n = 250_000
	m := miniredis.RunT(t)
	zone, day := noon()
	next := []string{"next", "-tz", zone, "-template", "{type}{date:yyyyMMdd}{seq:6}", "-n", fmt.Sprint(n), "IS"}

	code, stdout, stderr := doEnv("redis://"+m.Addr(), next...)
	require.Equal(t, 0, code)
	require.True(t, lines("IS"+day+"%06d", 1, n) == stdout) // not Equal: it would print both
	require.Empty(t, stderr)

	var out bytes.Buffer
	var errs terminal
	code = run(context.Background(), next, env("redis://"+m.Addr()), nil, &out, &errs)
	require.Equal(t, 0, code)
	require.True(t, lines("IS"+day+"%06d", n+1, 2*n) == out.String())
	progress := ""
	for _, done := range []int{0, 100_000, 200_000} {
		line := fmt.Sprintf("serial: %d of 250000 numbers", done)
		progress += line + "\r" + strings.Repeat(" ", len(line)) + "\r"
	}
	require.Equal(t, progress, errs.String())

	// What is left is enough for one batch, not for two.
	code, _, stderr = doEnv("redis://"+m.Addr(), "raise", "-tz", zone, next[3], next[4], "IS", "849999")
	require.Equal(t, 0, code, stderr)
	code, stdout, stderr = doEnv("redis://"+m.Addr(), next...)
	require.Equal(t, 1, code)
	require.True(t, lines("IS"+day+"%06d", 850_000, 949_999) == stdout)
	require.Regexp(t, `^serial: numbers exhausted: .*; 100000 of 250000 numbers were printed\n$`, stderr)
}

// A full disk takes room bytes and no more.
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
	m := miniredis.RunT(t)
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
		{"raise succeeded, but " + general, []string{"raise", "-tz", zone, "PO", "7"}},
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
	require.Equal(t, "100000", last, "went on issuing numbers that nobody can read")
}

func TestUnreachable(t *testing.T) {
	for _, row := range []struct {
		url  string
		args []string
	}{
		{"redis://" + refused(t), []string{"raise", "IS", "1"}},
		{"rediss://" + refused(t), []string{"peek", "IS"}},
		// This @ does not belong to a password.
		{"unix://" + filepath.Join(t.TempDir(), "redis@1.sock"), []string{"next", "IS"}},
		{"redis://" + refused(t) + "?addr=" + refused(t), []string{"next", "IS"}},
		{"redis://" + refused(t) + "?master_name=m", []string{"next", "IS"}},
	} {
		t.Run(row.url, func(t *testing.T) {
			t.Parallel()
			start := time.Now()
			code, stdout, stderr := doEnv(row.url, append(row.args, "-tz", "UTC")...)
			require.Less(t, time.Since(start), 8*time.Second)
			require.Equal(t, 1, code)
			require.Empty(t, stdout)
			require.Regexp(t, `^serial: Redis failed: .*(refused|no such file).*\n$`, stderr)
		})
	}
}

func TestURL(t *testing.T) {
	client, err := dial("rediss://h:1/2")
	require.NoError(t, err)
	o := client.(*redis.Client).Options()
	require.Equal(t, "h:1", o.Addr)
	require.Equal(t, 2, o.DB)
	require.NotNil(t, o.TLSConfig)

	client, err = dial("redis://h:1?master_name=m&addr=i:2")
	require.NoError(t, err)
	require.Equal(t, "FailoverClient", client.(*redis.Client).Options().Addr)

	client, err = dial("redis://u:p@h:1?addr=i:2&addr=j:3")
	require.NoError(t, err)
	require.Equal(t, []string{"h:1", "i:2", "j:3"}, client.(*redis.ClusterClient).Options().Addrs)
}

// A miniredis also answers as a Cluster of one node, and behind a socket.
func TestOtherServers(t *testing.T) {
	m := miniredis.RunT(t)
	socket := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", socket)
	require.NoError(t, err)
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			from, err := l.Accept()
			if err != nil {
				return
			}
			to, err := m.Dial()
			if err != nil {
				return
			}
			go func() { defer to.Close(); io.Copy(to, from) }()
			go func() { defer from.Close(); io.Copy(from, to) }()
		}
	}()
	zone, day := noon()
	for i, url := range []string{"redis://" + m.Addr(), "redis://" + m.Addr() + "?addr=" + m.Addr(), "unix://" + socket} {
		code, stdout, stderr := doEnv(url, "next", "-tz", zone, "IS")
		require.Equal(t, 0, code, stderr)
		require.Equal(t, lines("IS"+day+"%04d", i+1, i+1), stdout)
	}
}

// The bars are those of a day, of another start, of a template without a limit, and of nothing.
func TestHistory(t *testing.T) {
	m := miniredis.RunT(t)
	zone, day := noon()
	url := "redis://" + m.Addr()
	loc, err := time.LoadLocation(zone)
	require.NoError(t, err)
	at := func(n int) time.Time { return time.Now().In(loc).AddDate(0, 0, n) }
	key := func(n int) string { return "serial:{IS}:" + at(n).Format("20060102") }
	for n, seq := range map[int]string{-1: "9999", -2: "0", -3: "1", -5: "5000"} {
		require.NoError(t, m.Set(key(n), seq))
	}
	_, _, stderr := doEnv(url, "next", "-n", "1250", "-tz", zone, "IS")
	require.Empty(t, stderr)
	full := func(n int) string { return strings.Repeat("█", n) + strings.Repeat("·", 24-n) }

	code, stdout, stderr := doEnv(url, "history", "-tz", zone, "IS")
	require.Equal(t, 0, code, stderr)
	require.Empty(t, stderr)
	width := 0
	for n := range 6 {
		width = max(width, len(at(-n).Format("2 January 2006")))
	}
	line := func(n int, rest string) string {
		return fmt.Sprintf("%-*s %s\n", width, at(n).Format("2 January 2006"), rest)
	}
	require.Equal(t, line(0, full(3)+" 1250  12.5%")+line(-1, full(24)+" 9999 100.0%")+line(-2, full(0)+"    0   0.0%")+
		line(-3, "▏"+strings.Repeat("·", 23)+"    1   0.0%")+line(-5, full(12)+" 5000  50.0%"), stdout)

	_, stdout, _ = doEnv(url, "history", "-n", "2", "-tz", zone, "-json", "-start", "1000", "IS")
	midnight := func(n int) string {
		y, m, d := at(n).Date()
		return time.Date(y, m, d, 0, 0, 0, 0, loc).Format(time.RFC3339)
	}
	require.Equal(t, fmt.Sprintf(`{"number":"IS%s1250","type":"IS","start":"%s","seq":1250,"used":%v}`+"\n"+
		`{"number":"IS%s9999","type":"IS","start":"%s","seq":9999,"used":1}`+"\n",
		day, midnight(0), 251.0/9000, at(-1).Format("20060102"), midnight(-1)), stdout)

	_, stdout, _ = doEnv(url, "history", "-n", "2", "-tz", zone, "-template", "{type}{date:yyyyMMdd}-{seq:3+}", "IS")
	require.Equal(t, line(0, full(3)+" 1250")+line(-1, full(24)+" 9999"), stdout, "of the most")

	_, stdout, _ = doEnv(url, "history", "-n", "1", "-tz", zone, "-template", "{{seq:9}}-{type}-{date:yyyyMMdd}-{seq}",
		"IS")
	require.Equal(t, line(0, full(3)+" 1250  12.5%"), stdout, "of the field, not of the literal")

	code, stdout, stderr = doEnv(url, "history", "-tz", zone, "PO")
	require.Equal(t, 0, code)
	require.Empty(t, stdout)
	require.Equal(t, "serial: no counter of PO is kept for the last 7 periods\n", stderr)
	code, _, stderr = doEnv(url, "history", "-n", "10001", "-tz", zone, "IS")
	require.Equal(t, 1, code)
	require.Contains(t, stderr, "want 1 to 10000")
}

func TestPrepare(t *testing.T) {
	m := miniredis.RunT(t)
	url := "redis://" + m.Addr()
	with := []string{"-tz", "UTC", "-period", "month", "-start", "7", "IS"}
	code, stdout, stderr := doEnv(url, append([]string{"prepare", "-n", "3", "-retention", "1"}, with...)...)
	require.Equal(t, 0, code, stderr)
	first := time.Now().UTC().Format("IS200601") + "0007\n"
	require.Equal(t, "next "+first, stdout)
	y, mo, _ := time.Now().UTC().Date()
	for n := range 3 {
		value, err := m.Get("serial:{IS}:" + time.Date(y, mo+time.Month(n), 1, 0, 0, 0, 0, time.UTC).Format("200601"))
		require.NoError(t, err)
		require.Equal(t, "6", value)
	}
	_, stdout, _ = doEnv(url, append([]string{"next"}, with...)...)
	require.Equal(t, first, stdout)
	code, _, stderr = doEnv(url, "prepare", "-tz", "UTC", "-n", "101", "IS")
	require.Equal(t, 1, code)
	require.Contains(t, stderr, "want 1 to 100")
}

// Every command prints the same kind of JSON.
func TestJSON(t *testing.T) {
	m := miniredis.RunT(t)
	zone, day := noon()
	url := "redis://" + m.Addr()
	loc, err := time.LoadLocation(zone)
	require.NoError(t, err)
	y, mo, d := time.Now().In(loc).Date()
	start := time.Date(y, mo, d, 0, 0, 0, 0, loc).Format(time.RFC3339)
	none := fmt.Sprintf(`{"type":"IS","start":"%s","seq":0}`, start)
	before := func(number string, next int) string { // the number, completed by the one that comes next
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
		code, stdout, stderr := doEnv(url, append([]string{row.args[0], "-json", "-tz", zone}, row.args[1:]...)...)
		require.Equal(t, 0, code, stderr)
		require.Empty(t, stderr)
		require.Equal(t, row.want+"\n", unskipped(stdout), row.args)
	}
	_, stdout, _ := doEnv(url, "next", "-tz", zone, "-once", "b", "IS")
	require.Equal(t, lines("IS"+day+"%04d", 10, 10), stdout)
}

// A request gets the number that was printed for it, whatever the template is by now.
func TestOnceAfterAChange(t *testing.T) {
	m := miniredis.RunT(t)
	zone, day := noon()
	e := environment{"SERIAL_REDIS_URL": "redis://" + m.Addr(), "SERIAL_TZ": zone}
	_, before, _ := e.do("next", "-json", "-once", "a", "IS")
	require.Contains(t, before, `{"number":"IS`+day+`0001","type":"IS",`)
	for _, template := range []string{"{type}-{date:yyMMdd}-{seq:6}", "{seq:6}{date:yyyyMMdd}{type}"} {
		code, stdout, stderr := e.do("next", "-json", "-once", "a", "-template", template, "IS")
		require.Equal(t, 0, code, stderr)
		require.Equal(t, before, stdout, template)
		_, stdout, _ = e.do("next", "-once", "a", "-template", template, "IS")
		require.Equal(t, "IS"+day+"0001\n", stdout)
	}
}

// Leading zeros do not make a number octal: a sequence may be copied as it is printed.
func TestDecimal(t *testing.T) {
	m := miniredis.RunT(t)
	zone, day := noon()
	e := environment{"SERIAL_REDIS_URL": "redis://" + m.Addr(), "SERIAL_TZ": zone}
	for _, row := range []struct {
		stdout string
		args   []string
	}{
		{"A" + day + "5001\n", []string{"next", "-start", "05001", "A"}},
		{lines("B"+day+"%04d", 1, 10), []string{"next", "-n", "010", "B"}},
		{"next C" + day + "0341\n", []string{"raise", "C", "0340"}},
		{"next C" + day + "0342\n", []string{"takeover", "C", "0341"}},
		{"next D" + day + "0001\n", []string{"prepare", "-n", "011", "-retention", "010", "D"}},
	} {
		code, stdout, stderr := e.do(row.args...)
		require.Equal(t, 0, code, stderr)
		require.Equal(t, row.stdout, unskipped(stdout))
	}
	loc, err := time.LoadLocation(zone)
	require.NoError(t, err)
	y, mo, d := time.Now().In(loc).Date()
	after := func(days int) time.Time { return time.Date(y, mo, d+days, 0, 0, 0, 0, loc) }
	expires := time.Now().Add(m.TTL("serial:{D}:" + day))
	require.WithinDuration(t, after(11), expires, time.Minute, "retention")
	require.True(t, m.Exists("serial:{D}:"+after(10).Format("20060102")))
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

// TestBinary tests what run does not do: exit codes, signals, the silence of go-redis.
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
		m := miniredis.RunT(t)
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
			require.Regexp(t, `^serial: stdout .*; nothing was sent\n$`, stderr, line)
			untouched(t, m, []string{line})
		}
		code, stderr := shell(`"$0" next IS >/dev/null`) // asked for
		require.Equal(t, 0, code, stderr)
		if _, err := os.Stat("/dev/full"); err == nil {
			code, stderr = shell(`"$0" next IS >/dev/full`)
			require.Equal(t, 1, code)
			require.Contains(t, stderr, "no space left on device")
		}

		r, w, err := os.Pipe()
		require.NoError(t, err)
		defer w.Close()
		require.NoError(t, r.Close()) // nobody reads
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
