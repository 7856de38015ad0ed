// Package serialcmd provides the serial command for a service's own generator, with its template, time zone, ledger,
// floor, hidden key and hooks. A service with a ledger, a floor or a hidden key needs one, since command serial cannot
// stand in for it:
//
//	func main() {
//		gen, err := numbers.NewGenerator() // the function that the service calls, too
//		if err != nil {
//			log.Fatal(err)
//		}
//		os.Exit(serialcmd.Main(gen))
//	}
//
// If that program is orders-serial, then "orders-serial raise IS 41" raises the counter of IS, as the service's errors
// suggest, and "orders-serial help" lists the commands. Command serial, in cmd/serial, is the same with flags for the
// settings.
package serialcmd

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"iter"
	"os"
	"os/signal"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9/logging"

	"github.com/dailyserial/serial"
	"github.com/dailyserial/serial/internal/operator"
	"github.com/dailyserial/serial/internal/series"
)

// An Option configures [Main]. Only this package and cmd/serial have options.
type Option interface {
	Apply(*Setup)
}

type option func(*Setup)

func (o option) Apply(s *Setup) { o(s) }

// A Setup is how a command is started; the options of [Main] change it. Like [Settings], [Need], [Misused], [Integer] and
// [IsRedisURL], it is exported for cmd/serial alone, and may change in any release.
type Setup struct {
	Name     string // of the program, for messages
	Args     []string
	Getenv   func(string) string
	Stdin    io.Reader
	Stdout   io.Writer
	Stderr   io.Writer
	Context  context.Context
	Register Register // nil for none
	Settings Settings // nil if the program has a Generator of its own
	Warning  string   // for whoever issues numbers; "" for none. Settings.Open sets it
}

// Settings are flags for the settings of a Generator.
type Settings interface {
	// Define adds the flags. It returns their names in the order of the help.
	Define(flags *flag.FlagSet) (names []string)
	// Help is the part of the program's help about these flags.
	Help() string
	// Typeless reports whether the flags say that numbers have no type.
	Typeless() bool
	// GivenFlags returns the flags, as they were given, for what the Generator does not know or does not tell: the Redis,
	// and where a secret is. They show no password. They are not nil.
	GivenFlags() []string
	// Open returns the Generator, or only a Scheme if the command needs no Redis. argument is the command's first one. An
	// error of [Misused] is one in the command line.
	Open(need Need, command, argument string) (
		gen *serial.Generator, scheme *serial.Scheme, close func() error, err error)
}

// A Need is what a command requires.
type Need int

// In increasing order.
const (
	Nothing  Need = iota // not even the form of numbers
	Form                 // the form of numbers, a Scheme
	Counters             // Redis or, in cmd/serial, counters in memory
	Redis
)

// A Register keeps explanations. Package github.com/dailyserial/serial/sqlledger has one in a database.
type Register interface {
	// Explain stores an explanation.
	Explain(ctx context.Context, e serial.Explanation) error
	// Explanations yields the explanations of a series, as [serial.Scheme.Series] returns it, in the period that begins
	// at start. The first error ends it.
	Explanations(ctx context.Context, series string, start time.Time) iter.Seq2[serial.Explanation, error]
}

// WithRegister gives the command a register: raise and takeover store there what they skip, if a person says why, and
// audit reads it. Default none. It panics if r is nil.
func WithRegister(r Register) Option {
	if v := reflect.ValueOf(r); !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil() {
		panic("serialcmd: WithRegister: the register is nil")
	}
	return option(func(s *Setup) { s.Register = r })
}

// Main runs the command in [os.Args] with gen, and returns the exit code: 0 for success, 1 for a failure, 2
// for an invalid command line, for which nothing was sent to Redis, and 3 for an audit that found something. The first
// SIGINT or SIGTERM ends the command, and a second one ends the process. Before Main returns, it waits until the Unused
// hooks have received all unused numbers: up to 10 s, or 1 s after a signal.
//
// Main calls gen's hooks, but does not change gen, and closes nothing. It is for a process that does nothing else: it
// turns off go-redis's log and ignores SIGPIPE. It reads no environment variable. It panics if gen is nil.
func Main(gen *serial.Generator, opts ...Option) int {
	// go-redis would report every lost connection on stderr, but the error says what matters.
	logging.Disable()
	signal.Ignore(syscall.SIGPIPE) // a write to a pipe without readers fails, and the error names what was issued
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal kills the process, if a write blocks
	s := Setup{Name: strings.TrimSuffix(filepath.Base(os.Args[0]), ".exe"), Args: os.Args[1:],
		Getenv: os.Getenv, Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr, Context: ctx}
	return run(gen, &s, opts)
}

// run carries out a command line and returns the exit code.
func run(gen *serial.Generator, s *Setup, opts []Option) int {
	for _, o := range opts {
		o.Apply(s)
	}
	if gen == nil && s.Settings == nil {
		panic("serialcmd: Main: the generator is nil")
	}
	out := bufio.NewWriter(s.Stdout) // it remembers errors, so only Flush is checked
	cmd := &command{Setup: s, out: out, gen: gen}
	err := cmd.parse()
	if err == nil {
		err = cmd.execute(s.Context)
	}
	if errors.Is(err, errHelp) {
		_, _ = out.WriteString(cmd.help())
		err = nil
	}
	if failed := out.Flush(); failed != nil && !errors.Is(err, failed) {
		err = errors.Join(err, fmt.Errorf("the output could not be written: %w", failed))
	}
	if err == nil {
		return 0
	}
	code := 1
	if err == errFound {
		code = 3
	}
	if _, ok := errors.AsType[misuse](err); ok {
		code = 2
		_, _ = fmt.Fprintln(s.Stderr, cmd.hint()) // first, so that the reason comes last
	}
	text := quotedArgs.ReplaceAllString(err.Error(), "")
	if s.Settings != nil {
		text = periodFlags(text)
	}
	for line := range strings.Lines(text) { // one for each option that New refuses
		cmd.warn("%s", strings.TrimPrefix(strings.TrimSuffix(line, "\n"), "serial: "))
	}
	return code
}

// quotedArgs matches the arguments that Redis quotes if it does not know a command. Those of a renamed AUTH are a
// password.
var quotedArgs = regexp.MustCompile(`, with args beginning with: [^\n]*`)

// A command is a command line with everything needed to run it.
type command struct {
	*Setup
	commandLine
	operator.Facts

	gen    *serial.Generator // nil if the command needs no Redis
	scheme *serial.Scheme    // nil if it needs nothing
	out    *bufio.Writer     // to stdout
	skip   skip
	typ    string // on which the command acts

	flushed    bool  // flush was called
	unreported error // its result

	earlierSchemes []*serial.Scheme // of the earlier templates
}

// warn prints a line on stderr.
func (c *command) warn(format string, args ...any) {
	_, _ = fmt.Fprintf(c.Stderr, c.Name+": "+format+"\n", args...)
}

// execute runs the command.
func (c *command) execute(ctx context.Context) (err error) {
	if err := c.checkArgs(); err != nil {
		return err
	}
	if c.row.needs == Nothing {
		return c.row.run(c, ctx)
	}
	closes, err := c.open()
	if err != nil {
		return err
	}
	defer func() { err = cmp.Or(err, closes()) }()
	c.typ = c.args[0]
	if err = c.row.run(c, ctx); c.gen == nil || c.Settings != nil { // a generator made of flags has no other hooks
		return err
	}
	if err := c.flush(ctx); err != nil {
		c.warn("%s", strings.TrimPrefix(err.Error(), "serial: "))
	}
	if errors.Is(err, series.ErrLedger) && ctx.Err() == nil && !errors.Is(err, serial.ErrConflict) {
		c.warn("the ledger failed: %s; or, to leave it at the risk of duplicates, %s", remedy(err), c.leaving())
	}
	return err
}

// remedy returns what ends an error of a ledger: what the error itself says, as that of package sqlledger for a missing
// table, or to wait.
func remedy(err error) string {
	var known interface{ Remedy() string }
	if errors.As(err, &known) {
		return known.Remedy()
	}
	return "wait for its database"
}

// leaving says how to leave the ledger, which only a program without it can do.
func (c *command) leaving() string {
	flags, where := c.Flags(time.Now().Unix())
	if c.Hidden {
		flags, where = append(flags, "-hidden-key", "FILE"), where+"FILE has the key that hides sequences, and "
	}
	line := strings.Join(append(flags, operator.Operands(c.typ)...), " ")
	return "stop the service, remove WithLedger from it, and run: serial takeover -leave-ledger " + line + ", where " +
		where + operator.LastReserved + "the current period, or 0"
}

// open gets the generator or the scheme that the command needs, and its settings.
func (c *command) open() (closes func() error, err error) {
	var flags []string // needed in commands that errors print
	closes = func() error { return nil }
	if c.Settings != nil {
		if c.gen, c.scheme, closes, err = c.Settings.Open(c.row.needs, c.row.name, c.args[0]); err != nil {
			return nil, err
		}
		flags = c.Settings.GivenFlags()
	}
	if c.gen == nil {
		c.Facts = c.scheme.Facts()
		return closes, nil
	}
	c.gen = c.gen.ForProgram(c.Name, flags, c.skip.hooks())
	c.scheme, c.Facts = c.gen.Scheme(), c.gen.Facts()
	return closes, nil
}

// flush waits until the hooks have received all unused numbers, once.
func (c *command) flush(ctx context.Context) error {
	if !c.flushed {
		ctx, cancel := briefly(ctx)
		defer cancel()
		c.flushed, c.unreported = true, c.gen.Flush(ctx)
	}
	return c.unreported
}

// briefly returns a context for what follows the work: it ends after 10 s, or 1 s after a signal has ended ctx.
func briefly(ctx context.Context) (context.Context, context.CancelFunc) {
	brief, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	stop := context.AfterFunc(ctx, func() { time.AfterFunc(time.Second, cancel) })
	return brief, func() { stop(); cancel() }
}

// readsExplanations reports whether an audit reads explanations.
func (c *command) readsExplanations() bool { return c.explained != "" || c.Register != nil }
