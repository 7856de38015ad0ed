package main

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"io"
	"iter"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/dailyserial/serial"
	"github.com/dailyserial/serial/internal/race"
	"github.com/dailyserial/serial/serialcmd"
	"github.com/dailyserial/serial/serialtest"
)

var update = flag.Bool("update", false, "write the output of the commands into the scripts")

// TestScripts runs the scripts in testdata. A section of a script begins with a line "== TITLE". It runs in a bubble at
// noon of 24 October 2021, UTC, with an empty Redis. These lines of a section have a meaning:
//
//	# TEXT         is a comment.
//	$ COMMAND      runs a command, see [section.run]. The following lines belong to this command.
//	< TEXT         is a line of its input. {0001..0009} stands for nine lines.
//	! TEXT         is a line that it must print to stderr.
//	? CODE         is its exit code, if that is not 0.
//	$! ARGS => TEXT  requires that "serial ARGS" exits with 2 and that the error contains TEXT.
//
// All other lines must be printed to stdout. "..." stands for any text, and on its own line for any lines. If the exit
// code is 2, stderr must begin with a usage line, stdout must be empty, and nothing may be sent to Redis. If the exit
// code is 3, stderr must end with "not all numbers are accounted for".
func TestScripts(t *testing.T) {
	names, err := filepath.Glob("testdata/*.txt")
	require.NoError(t, err)
	require.NotEmpty(t, names)
	for _, name := range names {
		text, err := os.ReadFile(name)
		require.NoError(t, err)
		sections := strings.Split(strings.ReplaceAll(string(text), "\r\n", "\n"), "\n== ")
		for i, text := range sections[1:] {
			title, body, _ := strings.Cut(text, "\n")
			t.Run(strings.TrimSuffix(filepath.Base(name), ".txt")+"/"+title, func(t *testing.T) {
				t.Chdir(t.TempDir())
				race.Bubble(t, func(t *testing.T) {
					s := newSection(t)
					s.steps(body)
					sections[i+1] = title + "\n" + strings.TrimRight(s.text.String(), "\n") + "\n"
				})
			})
		}
		if *update && !t.Failed() {
			require.NoError(t, os.WriteFile(name, []byte(strings.Join(sections, "\n== ")), 0o600))
		}
	}
}

// A section contains the state of a section while it runs.
type section struct {
	t       *testing.T
	redis   *serialtest.Redis
	offset  time.Duration // offset of Redis's clock
	env     map[string]string
	dials   atomic.Int32 // count of connections
	ledger  serialtest.Ledger
	service *serial.Generator
	opts    []serialcmd.Option
	said    string          // stderr of the last command
	text    strings.Builder // the section with the output of its commands
}

func newSection(t *testing.T) *section {
	time.Sleep(time.Until(time.Date(2021, time.October, 24, 12, 0, 0, 0, time.UTC)))
	env := map[string]string{"SERIAL_REDIS_URL": "redis://script", "SERIAL_TZ": "UTC"}
	return &section{t: t, redis: serialtest.NewRedis(t, time.Now()), env: env}
}

// steps runs the steps of a section.
func (s *section) steps(body string) {
	var step []string // lines of a command
	for line := range strings.Lines(body + "\n# end") {
		if step != nil && strings.ContainsAny(line[:1], "$#") {
			s.step(step[0], step[1:])
			step = nil
		}
		if step == nil && line[0] != '$' {
			s.text.WriteString(line)
			continue
		}
		step = append(step, line)
	}
	text := strings.TrimSuffix(s.text.String(), "\n# end")
	s.text.Reset()
	s.text.WriteString(text)
}

// step runs the command of a line, and compares its output with the other lines.
func (s *section) step(line string, others []string) {
	var input, want strings.Builder
	for _, other := range others {
		if other[0] == '<' {
			input.WriteString(other)
		} else {
			want.WriteString(other)
		}
	}
	expected := strings.TrimRight(want.String(), "\n") + "\n"
	command, reason, _ := strings.Cut(strings.TrimSpace(line), " => ")
	command, refused := strings.CutPrefix(command, "$! ")
	if refused {
		command = "$ serial " + command
	}
	got := s.run(words(command)[1:], expand(input.String()))
	require.NotContains(s.t, got, "hunter2", command)
	switch {
	case refused:
		require.True(s.t, strings.HasSuffix(got, "? 2\n"), "%s: %s", command, got)
		require.Contains(s.t, got, reason, command)
	case matches(expected, got):
	case *update:
		expected = got
	default:
		require.Equal(s.t, expected, got, command)
	}
	output, blank := strings.TrimRight(expected, "\n"), want.String()[len(strings.TrimRight(want.String(), "\n")):]
	if output != "" && blank == "" {
		blank = "\n"
	}
	s.text.WriteString(line + input.String() + output + blank)
}

// numbers matches the range of numbers for which a line of an input stands.
var numbers = regexp.MustCompile(`\{(\d+)\.\.(\d+)\}`)

// expand returns the input of a command.
func expand(lines string) string {
	var b strings.Builder
	for line := range strings.Lines(lines) {
		line = strings.TrimPrefix(strings.TrimPrefix(line, "<"), " ")
		first, last, width := 0, 0, 1
		if found := numbers.FindStringSubmatch(line); found != nil {
			first, _ = strconv.Atoi(found[1])
			last, _ = strconv.Atoi(found[2])
			width = len(found[1])
		}
		for n := first; n <= last; n++ {
			b.WriteString(numbers.ReplaceAllString(line, fmt.Sprintf("%0*d", width, n)))
		}
	}
	return b.String()
}

// matches reports whether an output matches the expected one.
func matches(want, got string) bool {
	var pattern strings.Builder
	for line := range strings.Lines(want) {
		if line == "...\n" {
			pattern.WriteString(`(.*\n)*`)
		} else {
			pattern.WriteString(strings.ReplaceAll(regexp.QuoteMeta(line), `\.\.\.`, `.*`))
		}
	}
	return regexp.MustCompile(`^` + pattern.String() + `$`).MatchString(got)
}

// advice matches an error that ends with a command.
var advice = regexp.MustCompile(`run: (.*) SEQ, where `)

// run runs a command and returns its output in the form of a script. The following commands are not programs:
//
//	advised SEQ            runs the command that the last error contains, with SEQ.
//	service FLAGS          creates the generator of orders-serial, which has the flags of serial and some others.
//	service-next TYPE      issues a number with that generator.
//	redis COMMAND          sends a command to Redis.
//	set NAME=VALUE         sets an environment variable.
//	write FILE             writes a file.
//	clock DURATION         sets all clocks forward.
//	redis-clock DURATION   sets the clock of Redis forward.
func (s *section) run(line []string, input string) string {
	s.redis.SetTime(time.Now().Add(s.offset))
	switch name, args := line[0], line[1:]; name {
	case "serial":
		return s.program(nil, name, args, input)
	case "orders-serial":
		return s.program(s.service, name, args, input)
	case "advised":
		found := advice.FindStringSubmatch(s.said)
		require.NotNil(s.t, found, s.said)
		return s.run(append(words(found[1]), args[0]), input)
	case "service":
		s.makeService(args)
	case "service-next":
		number, err := s.service.Next(s.t.Context(), args[0])
		if err != nil {
			s.said = err.Error()
			return "! " + s.said + "\n"
		}
		return number + "\n"
	case "redis":
		var words []any
		for _, word := range args {
			words = append(words, word)
		}
		reply, err := s.redis.Client().Do(s.t.Context(), words...).Result()
		if err != nil {
			return fmt.Sprintln(err)
		}
		return fmt.Sprintln(reply)
	case "set":
		variable, value, _ := strings.Cut(args[0], "=")
		s.env[variable] = value
	case "write":
		require.NoError(s.t, os.WriteFile(args[0], []byte(input), 0o600))
	case "clock", "redis-clock":
		d, err := time.ParseDuration(args[0])
		require.NoError(s.t, err)
		if name == "clock" {
			time.Sleep(d)
		} else {
			s.offset += d
		}
	default:
		require.Fail(s.t, "unknown command", name)
	}
	return "\n"
}

// makeService creates the generator of orders-serial.
func (s *section) makeService(args []string) {
	settings := &settings{zone: time.UTC}
	flags := flag.NewFlagSet("service", flag.ContinueOnError)
	settings.Define(flags)
	ledger := flags.Int64("ledger", 0, "count of numbers in a block of the ledger")
	floor := flags.Int64("floor", -1, "answer of the floor")
	hidden := flags.Bool("hidden", false, "hide sequences")
	anyClock := flags.Bool("any-clock", false, "do not compare the clocks")
	register := flags.Bool("register", false, "give the command a register")
	require.NoError(s.t, flags.Parse(args))
	if *hidden {
		settings.opts = append(settings.opts, serial.WithHiddenSequence(bytes.Repeat([]byte{1}, 16)))
	}
	opts := append(settings.options(settings.template), settings.more...)
	if *ledger > 0 {
		opts = append(opts, serial.WithLedger(&s.ledger, *ledger))
	}
	if *floor >= 0 {
		opts = append(opts, serial.WithFloor(func(context.Context, string, time.Time) (int64, error) { return *floor, nil }))
	}
	if *anyClock {
		opts = append(opts, serial.WithMaxSkew(-1))
	}
	if *register {
		s.opts = []serialcmd.Option{serialcmd.WithRegister(new(memory))}
	}
	var err error
	s.service, err = serial.New(s.redis.Client(), opts...)
	require.NoError(s.t, err)
}

// program runs serial or, with a generator, orders-serial.
func (s *section) program(gen *serial.Generator, name string, args []string, input string) string {
	ctx, cancel := context.WithCancel(s.t.Context())
	defer cancel() // ends the goroutine that may still read the input
	var out, errs bytes.Buffer
	process := &process{Name: name, Args: args, Getenv: func(name string) string { return s.env[name] }, Context: ctx,
		Stdin: strings.NewReader(input), Stdout: &out, Stderr: &errs}
	opts := append([]serialcmd.Option{process}, s.opts...)
	if gen == nil {
		opts = []serialcmd.Option{&settings{dial: s.dial}, process}
	}
	before := s.dials.Load()
	code := serialcmd.Main(gen, opts...)
	s.said = errs.String()
	switch code {
	case 2:
		require.Empty(s.t, out.String(), args)
		require.Regexp(s.t, `^usage: `+name+` \S.* \("`+name+` help.*\n(.*\n)+$`, s.said)
		require.Equal(s.t, before, s.dials.Load(), "%q: something was sent", args)
		_, s.said, _ = strings.Cut(s.said, "\n")
	case 3:
		found := false
		s.said, found = strings.CutSuffix(s.said, name+": not all numbers are accounted for\n")
		require.True(s.t, found, s.said)
	}
	for line := range strings.Lines(s.said) {
		out.WriteString("! " + line)
	}
	if code != 0 {
		fmt.Fprintf(&out, "? %d\n", code)
	}
	if out.Len() == 0 {
		return "\n"
	}
	return out.String()
}

// dial returns a client of the section's Redis for redis://script. Clients for other URLs cannot connect.
func (s *section) dial(url string) (redis.UniversalClient, error) {
	if strings.HasPrefix(url, "redis://script") { // not dial(url): go-redis would look up the name
		client := s.redis.Client()
		client.AddHook(dialer{s, true})
		return client, nil
	}
	client, err := dial(url)
	if err == nil {
		client.AddHook(dialer{s, false})
	}
	return client, err
}

// A dialer counts the connections of a client.
type dialer struct {
	*section
	connects bool
}

func (d dialer) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		if d.dials.Add(1); d.connects {
			return next(ctx, network, addr)
		}
		return nil, &net.OpError{Op: "dial", Net: network, Err: syscall.ECONNREFUSED}
	}
}
func (dialer) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }
func (dialer) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// A memory is a register in memory.
type memory struct{ all []serial.Explanation }

func (m *memory) Explain(_ context.Context, e serial.Explanation) error {
	m.all = append(m.all, e)
	return nil
}

func (m *memory) Explanations(_ context.Context, series string, start time.Time) iter.Seq2[serial.Explanation, error] {
	return func(yield func(serial.Explanation, error) bool) {
		for _, e := range m.all {
			if e.Series == series && (start.IsZero() || e.Start.Equal(start)) && !yield(e, nil) {
				return
			}
		}
	}
}

// A process replaces the environment of the current process.
type process serialcmd.Setup

func (p *process) Apply(s *serialcmd.Setup) {
	s.Name, s.Args, s.Getenv, s.Context = p.Name, p.Args, p.Getenv, p.Context
	s.Stdin, s.Stdout, s.Stderr = p.Stdin, p.Stdout, p.Stderr
}

// start runs serial outside a bubble.
func start(ctx context.Context, env environment, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	return serialcmd.Main(nil, &settings{dial: dial}, &process{Name: "serial", Args: args, Getenv: env.get, Context: ctx,
		Stdin: stdin, Stdout: stdout, Stderr: stderr})
}

// word matches a word of a command line, and quoted matches what a shell replaces by the part without the quote.
var (
	word   = regexp.MustCompile(`(\\.|'[^']*'|"[^"]*"|[^ '"\\])+`)
	quoted = regexp.MustCompile(`\\(.)|'([^']*)'|"([^"]*)"`)
)

// words splits a command line as a shell does.
func words(line string) []string {
	all := word.FindAllString(line, -1)
	for i := range all {
		all[i] = quoted.ReplaceAllString(all[i], "$1$2$3")
	}
	return all
}
