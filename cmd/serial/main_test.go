package main

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"regexp"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9/logging"
	"github.com/stretchr/testify/require"

	"github.com/dailyserial/serial/internal/race"
)

func TestMain(m *testing.M) {
	if os.Getenv("SERIAL_TEST_MAIN") != "" {
		main() // for TestBinary; it exits
	}
	logging.Disable()                                    // as in Main; TestBinary checks that Main does this
	signal.Notify(make(chan os.Signal, 1), os.Interrupt) // starts a goroutine that must not belong to a bubble
	_, _ = net.LookupHost("localhost")                   // creates a channel that must not belong to a bubble
	os.Exit(m.Run())
}

// An environment contains environment variables by name. Its element "stdin" is the input.
type environment map[string]string

func (e environment) get(name string) string { return e[name] }

// exits runs serial, requires an exit code, and returns the output.
func (e environment) exits(t *testing.T, want int, args ...string) (stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	code := start(t.Context(), e, args, strings.NewReader(e["stdin"]), &out, &errs)
	require.Equal(t, want, code, "%q: %s%s", args, &out, &errs)
	return out.String(), errs.String()
}

// issued returns a Redis with n numbers of IS, the environment for it, and the current day. The environment has a time
// zone in which it is about noon, so that no test runs past midnight.
func issued(t *testing.T, n int) (m *miniredis.Miniredis, e environment, day string) {
	t.Helper()
	m = miniredis.RunT(t)
	now := time.Now().UTC()
	e = environment{"SERIAL_REDIS_URL": "redis://" + m.Addr(), "SERIAL_TZ": fmt.Sprintf("Etc/GMT%+d", now.Hour()-12)}
	zone, err := time.LoadLocation(e["SERIAL_TZ"]) // the names of these zones have reversed signs
	require.NoError(t, err)
	if n > 0 {
		e.exits(t, 0, "next", "-n", fmt.Sprint(n), "IS")
	}
	return m, e, now.In(zone).Format("20060102")
}

// unreachable is an address at which no server is listening.
const unreachable = "127.0.0.1:1"

// Without -tz, parse must use the time zone of this machine, and so must a command without a Redis.
func TestZoneOfThisMachine(t *testing.T) {
	for _, e := range []environment{{}, {"SERIAL_REDIS_URL": "redis://localhost:1"}} {
		stdout, _ := e.exits(t, 0, "parse", "IS202110240001")
		require.Contains(t, stdout, "start "+time.Date(2021, 10, 24, 0, 0, 0, 0, time.Local).Format(time.RFC3339))
	}
	_, stderr := environment{}.exits(t, 0, "next", "IS")
	require.Contains(t, stderr, "the time zone is that of this machine, now UTC"+time.Now().Format("-07:00"))
}

// If the context has ended, no number may be issued.
func TestContextEnds(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var out, errs bytes.Buffer
	require.Equal(t, 1, start(ctx, environment{}, []string{"next", "IS"}, nil, &out, &errs))
	require.Empty(t, out.String())
	require.Contains(t, errs.String(), "context canceled")
}

// The program must set exit codes, handle signals, and turn off go-redis's log. Other tests cannot check this. The
// program is this test binary, see TestMain.
func TestBinary(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("waits until the program has tried to connect several times")
	}
	binary, err := os.Executable()
	require.NoError(t, err)
	link := t.TempDir() + "/serial"
	command := func(url string, args ...string) (*exec.Cmd, *bytes.Buffer, *bytes.Buffer) {
		cmd := exec.Command(binary, args...)
		cmd.Args[0] = "serial"
		cmd.Env = append(os.Environ(), "SERIAL_TEST_MAIN=1", "SERIAL_REDIS_URL="+url, "SERIAL_TZ=Asia/Shanghai")
		var out, errs bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &errs
		return cmd, &out, &errs
	}
	const nobody, shell = "redis://" + unreachable, "/bin/sh"
	const closed = `^serial: (cannot write to )?stdout.*; nothing was sent\n$`
	m := miniredis.RunT(t)
	for _, row := range []struct {
		code           int
		stdout, stderr string
		url            string
		args           []string // a command, or a line for the shell
	}{
		{0, `^IS\d{8}0001\n$`, `^serial: without a Redis URL.*\n$`, "", []string{"next", "IS"}},
		{0, `^serial \S+, .*go1\.\S+\n$`, `^$`, "no URL", []string{"version"}},
		{2, `^$`, `^usage: .*\nserial: no command\n$`, "", nil},
		{1, `^$`, `^serial: .*is not a number of this scheme.*\n$`, "", []string{"parse", "IS"}},
		{1, `^$`, `^serial: Redis failed: .*refused.*\n$`, nobody, []string{"next", "IS"}},
		{1, `^$`, `^serial: Redis failed: .*refused.*\n$`, nobody + "?master_name=m", []string{"next", "IS"}},
		{1, `^$`, closed, shell, []string{`"$0" next IS >&-`}},
		{1, `^$`, `^serial: stdout is closed.*; nothing was sent\n$`, shell, []string{`"$0" next -once a IS 1<>/dev/null`}},
		{1, `^$`, closed, shell, []string{`"$0" next -n 3 IS 1</dev/null`}},
		{0, `^$`, `^$`, shell, []string{`"$0" next IS >/dev/null`}},
	} {
		t.Run(strings.Join(row.args, " "), func(t *testing.T) {
			t.Parallel()
			cmd, out, errs := command(row.url, row.args...)
			if row.url == shell {
				if err := os.Symlink(binary, link); runtime.GOOS == "windows" {
					t.Skip("Windows has no such shell", err)
				}
				cmd, out, errs = command("redis://" + m.Addr())
				cmd.Path, cmd.Args = shell, []string{"sh", "-c", row.args[0], link}
			}
			_ = cmd.Run()
			require.Equal(t, row.code, cmd.ProcessState.ExitCode())
			require.Regexp(t, row.stdout, out.String())
			require.Regexp(t, row.stderr, errs.String())
		})
	}
	if runtime.GOOS == "windows" {
		return // Windows has no signals
	}
	r, w, err := os.Pipe()
	require.NoError(t, err)
	defer w.Close()
	require.NoError(t, r.Close())
	cmd, _, errs := command("redis://"+m.Addr(), "next", "PO")
	cmd.Stdout = w // a pipe without a reader
	_ = cmd.Run()
	require.Equal(t, 1, cmd.ProcessState.ExitCode())
	require.Regexp(t, `^serial: the number PO\d{8}0001 was issued but could not be written: .*broken pipe\n$`,
		errs.String())

	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	cmd, out, errs := command("redis://"+l.Addr().String(), "next", "IS")
	require.NoError(t, cmd.Start())
	conn, err := l.Accept() // the server never replies
	require.NoError(t, err)
	defer conn.Close()
	require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
	_ = cmd.Wait()
	require.Equal(t, 1, cmd.ProcessState.ExitCode())
	require.Empty(t, out.String())
	require.Regexp(t, `^serial: .*context canceled\n$`, errs.String())
}

// listed returns the commands that the help lists, and their summaries.
func listed(t *testing.T) (commands [][]string) {
	t.Helper()
	help, _ := environment{}.exits(t, 0, "help")
	commands = regexp.MustCompile(`(?m)^  (\S.*?)  +(.*)$`).FindAllStringSubmatch(help, -1)
	require.Greater(t, len(commands), 10)
	return commands
}

// The documentation of the package and docs/command.md must list the same commands as the help.
func TestDocumentation(t *testing.T) {
	source, err := os.ReadFile("main.go")
	require.NoError(t, err)
	page, _ := guide(t, "command.md")
	rows := regexp.MustCompile("(?m)^\\| `serial (.*?)` \\|").FindAllStringSubmatch(page, -1)
	for i, command := range listed(t) {
		name, args, _ := strings.Cut(command[1], " ")
		require.Regexp(t, `(?m)^//\tserial `+name+`( \[[^]]*\])? *`+regexp.QuoteMeta(args)+` +`+
			regexp.QuoteMeta(command[2])+`\r?$`, string(source))
		require.Equal(t, command[1], rows[i][1])
	}
	require.Len(t, rows, len(listed(t)))
}

// Every flag must be described in the help of its command and in the completion of fish, by a text that stands on its
// own.
func TestDescriptionsOfFlags(t *testing.T) {
	script, _ := environment{}.exits(t, 0, "completion", "fish")
	completed := map[string]string{}
	for _, line := range regexp.MustCompile(`(?m)^complete -c 'serial' -n '__fish_seen_subcommand_from (\S+)' -o (\S+)`+
		`(?: -r)? -d '(.*)'$`).FindAllStringSubmatch(script, -1) {
		completed[line[1]+" "+line[2]] = strings.ReplaceAll(line[3], `'\''`, "'")
	}
	require.Greater(t, len(completed), 100)
	found := 0
	for _, command := range listed(t) {
		name, _, _ := strings.Cut(command[1], " ")
		help, _ := environment{}.exits(t, 0, "help", name)
		again, _ := environment{}.exits(t, 0, name, "-h")
		require.Equal(t, help, again)
		for text := range strings.Lines(help) {
			require.LessOrEqual(t, len(text), 90)
		}
		flags := regexp.MustCompile(`(?m)^  -(\S+)( [A-Z-]+)? +((?:.|\n {21})+)`).FindAllStringSubmatch(help, -1)
		for _, flag := range flags {
			text := strings.Join(strings.Fields(flag[3]), " ")
			require.Equal(t, completed[name+" "+flag[1]], text)
			require.NotRegexp(t, "`|^(and|as|at|by|in|of|that|to|which|who|why|with|"+flag[2]+") ", text, "-"+flag[1])
			found++
		}
	}
	require.Equal(t, len(completed), found)
}

// guide returns the content of a page in docs/, and the blocks of the page as pairs of a language and a text.
func guide(t *testing.T, name string) (page string, blocks [][]string) {
	t.Helper()
	text, err := os.ReadFile("../../docs/" + name)
	require.NoError(t, err)
	page = strings.ReplaceAll(string(text), "\r\n", "\n")
	for _, block := range regexp.MustCompile("(?s)```(csv|console)\n(.*?)```").FindAllStringSubmatch(page, -1) {
		blocks = append(blocks, block[1:])
	}
	return page, blocks
}

// play runs the steps of a section. The clock shows noon, not the time of the docs.
func play(t *testing.T, steps string) {
	t.Chdir(t.TempDir())
	race.Bubble(t, func(t *testing.T) {
		newSection(t).steps(strings.ReplaceAll(steps, "2021-10-24T17:05:00Z", "2021-10-24T12:00:00Z"))
	})
}

// The accounts in docs/audit.md are what the command prints for the files above them.
func TestAuditGuide(t *testing.T) {
	_, blocks := guide(t, "audit.md")
	require.Len(t, blocks, 4)
	// In the second report, "..." stands for the lines before and after those about missing numbers.
	before, rest, _ := strings.Cut(blocks[1][1], "missing ")
	_, after, _ := strings.Cut(rest, "duplicate ")
	_, before, _ = strings.Cut(before, "\n")
	for _, lines := range []string{before, "duplicate " + after} {
		require.Contains(t, blocks[3][1], "\n...\n")
		blocks[3][1] = strings.Replace(blocks[3][1], "\n...\n", "\n"+lines, 1)
	}
	script := "$ serial next -n 7 IS\n...\n"
	for i, name := range []string{"orders.csv", "", "reasons.csv", ""} {
		if text := strings.TrimSuffix(blocks[i][1], "\n"); blocks[i][0] == "csv" {
			script += "$ write " + name + "\n" + regexp.MustCompile("(?m)^").ReplaceAllString(text, "< ") + "\n"
		} else {
			text = strings.TrimSuffix(text, "serial: not all numbers are accounted for")
			script += regexp.MustCompile(`(?s)^(.*?\n)(serial: .*?\n)(.*)$`).ReplaceAllString(text, "$1$3! $2") + "? 3\n"
		}
	}
	play(t, script)
}

// The session in docs/command.md follows the number that the program of the README has issued. After the loss of a
// counter, the command in docs/errors.md ends ErrCounterLost.
func TestCommandGuide(t *testing.T) {
	_, blocks := guide(t, "command.md")
	require.Len(t, blocks, 1)
	export, session, _ := strings.Cut(blocks[0][1], "\n")
	require.Equal(t, "$ export SERIAL_REDIS_URL=redis://localhost:6379 SERIAL_TZ=UTC", export)
	page, _ := guide(t, "errors.md")
	command := regexp.MustCompile(`(?m)^    (serial raise .* IS 340)$`).FindStringSubmatch(page)
	require.NotNil(t, command)
	raise := strings.NewReplacer("redis://localhost:6379", "redis://script", "Asia/Shanghai", "UTC").Replace(command[1])
	play(t, "$ serial next IS\n...\n"+session+"$ redis DEL serial:{IS}:20211024\n1\n$ serial next IS\n"+
		"! serial: counter lost...\n? 1\n$ "+raise+"\n...\n$ serial next IS\nIS202110240341\n")
}
