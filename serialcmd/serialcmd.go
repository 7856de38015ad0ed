// Package serialcmd provides the serial command for a service's own generator, with its template, time zone, ledger,
// floor, hidden key and hooks. Command serial, in cmd/serial, has flags for these settings, except for the ledger, the
// floor and the hooks. A service that has any of these needs a separate command:
//
//	func main() {
//		gen, err := numbers.NewGenerator() // your function, which the service also calls
//		if err != nil {
//			log.Fatal(err)
//		}
//		os.Exit(serialcmd.Main(gen))
//	}
//
// If that program is named orders-serial, "orders-serial raise IS 41" raises the counter of IS, as errors of the
// service recommend, and "orders-serial help" lists the commands.
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

// An Option configures [Main]. Only this package and cmd/serial define options.
type Option interface {
	Apply(*Setup)
}

type option func(*Setup)

func (o option) Apply(s *Setup) { o(s) }

// A Setup is the environment in which a command runs. It is only for cmd/serial, and applications do not need it. It
// may change in any release. The options of [Main] change the Setup.
type Setup struct {
	Name     string // name of the program
	Args     []string
	Getenv   func(string) string
	Stdin    io.Reader
	Stdout   io.Writer
	Stderr   io.Writer
	Context  context.Context
	Register Register // nil if there is no register
	Settings Settings // nil if Main has a Generator
	Warning  string   // warning that the command next prints, or ""; set by Settings.Open
}

// Settings defines flags for the settings of a Generator. It is only for cmd/serial, and applications do not need it. It
// may change in any release.
type Settings interface {
	// Define adds the flags to a set, and returns their names in the order of the help.
	Define(flags *flag.FlagSet) (names []string)
	// Help returns the part of the program's help that describes these flags.
	Help() string
	// Typeless reports whether numbers have no type.
	Typeless() bool
	// GivenFlags returns the flags for Redis and for the file of a secret as the user has given them, but without a
	// password. Messages that contain a command need them, and a Generator does not contain them. The slice is not nil.
	GivenFlags() []string
	// Open returns the Generator or, if the command needs no Redis, only a Scheme. The parameter argument is the first
	// argument of the command. If the command line has an error, Open returns the result of [Misused].
	Open(need Need, command, argument string) (
		gen *serial.Generator, scheme *serial.Scheme, close func() error, err error)
}

// A Need is what a command requires. It is only for cmd/serial, and applications do not need it. It may change in any
// release.
type Need int

// Each command has one of these needs. They are only for cmd/serial, and applications do not need them.
const (
	Nothing  Need = iota // no settings
	Form                 // a Scheme
	Counters             // a Generator, which may count in memory in cmd/serial
	Redis                // a Generator with a Redis
)

// A Register stores explanations. Package github.com/dailyserial/serial/sqlledger has a register in a database.
type Register interface {
	// Explain stores an explanation.
	Explain(ctx context.Context, e serial.Explanation) error
	// Explanations yields the explanations of a series, such as the result of [serial.Scheme.Series], in the period that
	// begins at start. If start is zero, it yields the explanations of all periods. If an error occurs, Explanations
	// yields it and ends.
	Explanations(ctx context.Context, series string, start time.Time) iter.Seq2[serial.Explanation, error]
}

// WithRegister gives the command a register. The commands raise and takeover use it to store an operator's reason for
// skipped numbers, and audit reads it. By default, there is no register. WithRegister panics if r is nil.
func WithRegister(r Register) Option {
	if v := reflect.ValueOf(r); !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil() {
		panic("serialcmd: WithRegister: the register is nil")
	}
	return option(func(s *Setup) { s.Register = r })
}

// Main runs the command in [os.Args] with gen, and returns the exit code. It is 0 for success, 1 for a failure, 2 for
// an invalid command line, for which nothing was sent to Redis, and 3 for an audit that found something. The first
// SIGINT or SIGTERM cancels the command, and a second one ends the process.
//
// Before Main returns, it waits until the Unused hooks have received all unused numbers, and until locks that the
// command took are released. It waits for up to 10 s, or for 1 s after a signal.
//
// Main calls gen's hooks, but does not change gen, and closes nothing. The process must do nothing else, because Main
// turns off go-redis's log and ignores SIGPIPE. Main reads no environment variable. It panics if gen is nil.
func Main(gen *serial.Generator, opts ...Option) int {
	logging.Disable()              // go-redis would report every lost connection on stderr, in addition to the error
	signal.Ignore(syscall.SIGPIPE) // so that a write to a closed pipe returns an error, which contains issued numbers
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // so that a second signal ends the process, even if a write blocks
	s := Setup{Name: strings.TrimSuffix(filepath.Base(os.Args[0]), ".exe"), Args: os.Args[1:],
		Getenv: os.Getenv, Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr, Context: ctx}
	return run(gen, &s, opts)
}

// run executes a command line and returns the exit code.
func run(gen *serial.Generator, s *Setup, opts []Option) int {
	for _, o := range opts {
		o.Apply(s)
	}
	if gen == nil && s.Settings == nil {
		panic("serialcmd: Main: the generator is nil")
	}
	out := bufio.NewWriter(s.Stdout) // Flush returns the first error of all writes
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
		_, _ = fmt.Fprintln(s.Stderr, cmd.hint()) // before the reason, which is always the last line
	}
	text := quotedArgs.ReplaceAllString(err.Error(), "")
	if s.Settings != nil {
		text = settingFlags(text)
	}
	for line := range strings.Lines(text) { // serial.New returns one line for each invalid option
		cmd.warn("%s", strings.TrimPrefix(strings.TrimSuffix(line, "\n"), "serial: "))
	}
	return code
}

// quotedArgs matches the part of Redis's error for an unknown command that contains the arguments. If AUTH was renamed
// on the server, the password is one of them.
var quotedArgs = regexp.MustCompile(`, with args beginning with: [^\n]*`)

// A command is a parsed command line, with everything that is needed to run it.
type command struct {
	*Setup
	commandLine
	operator.Facts

	gen    *serial.Generator // nil if the command needs no Redis
	scheme *serial.Scheme    // nil if the command needs no settings
	out    *bufio.Writer     // stdout
	skip   skip
	typ    string // type that the command is working on

	flushed    bool  // whether flush was called
	unreported error // result of flush

	earlierSchemes []*serial.Scheme // schemes of -earlier
	unnumbered     int64            // count of explanations in a file that have no number
	undated        time.Time        // At of the explanations in a file that have no time
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
	closes, err := c.configure()
	if err != nil {
		return err
	}
	defer func() { err = cmp.Or(err, closes()) }()
	c.typ = c.args[0]
	err = c.row.run(c, ctx)
	if c.row.needs < Counters {
		return err
	}
	if err := c.flush(ctx); err != nil && c.Settings == nil { // with Settings, only the command receives unused numbers
		c.warn("%s", strings.TrimPrefix(err.Error(), "serial: "))
	}
	if errors.Is(err, series.ErrLedger) && ctx.Err() == nil && !errors.Is(err, serial.ErrConflict) {
		c.warn("the ledger failed: %s; or, to stop using it at the risk of duplicates, %s", remedy(err), c.leaving())
	}
	return err
}

// remedy returns the advice for an error of a ledger. An error can contain its own advice, as the error of package
// sqlledger for a missing table does.
func remedy(err error) string {
	var known interface{ Remedy() string }
	if errors.As(err, &known) {
		return known.Remedy()
	}
	return "wait until its database works again"
}

// leaving returns the instructions for taking the series out of its ledger. Only a program without that ledger can do
// this.
func (c *command) leaving() string {
	flags, where := c.Flags(time.Now().Unix())
	if c.Hidden {
		flags, where = append(flags, "-hidden-key", "FILE"), where+"FILE contains the key that hides sequences, and "
	}
	line := strings.Join(append(flags, operator.Operands(c.typ)...), " ")
	return "stop the service, remove WithLedger from it, and run: serial takeover -leave-ledger " + line + ", where " +
		where + operator.LastReserved + "the current period, or 0"
}

// configure sets the generator or the scheme that the command needs, and the facts about it.
func (c *command) configure() (closes func() error, err error) {
	var flags []string // flags for the commands that messages contain
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

// flush waits until the hooks have received all unused numbers, and until all locks are released. Otherwise, other
// processes would have to wait until the locks expire. Only the first call has an effect.
func (c *command) flush(ctx context.Context) error {
	if !c.flushed {
		ctx, cancel := briefly(ctx)
		defer cancel()
		c.flushed, c.unreported = true, c.gen.Flush(ctx)
		released := make(chan struct{})
		go func() {
			c.Releases.Lock()
			defer c.Releases.Unlock()
			close(released)
		}()
		select {
		case <-released:
		case <-ctx.Done():
		}
	}
	return c.unreported
}

// briefly returns a context for the work after a command. It ends after 10 s, or 1 s after a signal has canceled ctx.
func briefly(ctx context.Context) (context.Context, context.CancelFunc) {
	brief, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	stop := context.AfterFunc(ctx, func() { time.AfterFunc(time.Second, cancel) })
	return brief, func() { stop(); cancel() }
}

// readsExplanations reports whether an audit reads explanations.
func (c *command) readsExplanations() bool { return c.explained != "" || c.Register != nil }
