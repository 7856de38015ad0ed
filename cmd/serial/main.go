// Serial issues business serial numbers, such as IS202110240001, on the command line.
//
//	serial next [-n N | -once ID] TYPE   issue the next number of TYPE, or the next N, one a line, or that of a request
//	serial peek TYPE                     print the last number that was issued today, if one was
//	serial history [-n PERIODS] TYPE     print how many were issued in each of the last periods
//	serial prepare [-n PERIODS] TYPE     open this period and the next ones ahead of time
//	serial raise TYPE SEQ                make sure that the next number is at least SEQ+1
//	serial parse NUMBER                  print the type, the start of the day and the sequence of a number
//
// Flags stand between the command and its arguments, as in
//
//	serial next -redis redis://localhost:6379/0 -tz Asia/Shanghai IS
//
// "serial help" lists them. An empty value, as from a shell variable that is not set, is refused; only an empty
// $SERIAL_REDIS_URL is the same as none. All processes that issue numbers of one type must agree on -tz, -period,
// -day-start, -template and -prefix, whether they are this command or another program. If a program sets a type's numbers
// aside in a ledger, every command but parse refuses that type. Keep a URL that holds a password in $SERIAL_REDIS_URL:
// other users of the host can read a command line.
//
// Results go to stdout, with -json as one JSON object a line; everything else goes to stderr. The exit code is 0 for
// success, 1 for a failure (numbers already printed then stay issued) and 2 for an invalid command line, for which nothing
// was sent to Redis.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
	_ "time/tzdata" // -tz works on a host without a zone database, too

	"github.com/dailyserial/serial"
	"github.com/redis/go-redis/v9/logging"
)

const usage = `Usage:
  serial next [flags] [-n N | -once ID] TYPE   issue the next number of TYPE, or the next N, one a
                                               line, or that of a request, which may come again
  serial peek [flags] TYPE                     print the last number issued this period, if any
  serial history [flags] [-n PERIODS] TYPE     print how many were issued in each of the last
                                               periods, those still kept. Default 7
  serial prepare [flags] [-n PERIODS] TYPE     open this period and the next ones. Default 2
  serial raise [flags] TYPE SEQ                make sure that the next number is at least SEQ+1
  serial parse [flags] NUMBER                  print type, start of the period and sequence;
                                               asks no Redis

Flags:
  -redis URL        redis://, rediss:// or unix://. Add ?master_name=NAME for Sentinel, or
                    ?addr=HOST:PORT of another node for Cluster. Default $SERIAL_REDIS_URL;
                    if that is empty or not set, counters are in memory and gone afterwards
  -tz ZONE          whose midnight resets the counters: an IANA name. Default this machine's
  -period PERIOD    when numbers start again: second, minute, hour, day, month or year. Default day
  -day-start TIME   when a business day begins, as in 4h. Default 0, midnight
  -template TEXT    how a number is printed. Default {type}{date:yyyyMMdd}{seq:4}, with a date
                    that suits -period
  -start SEQ        the first sequence of a period. Default 1
  -retention N      keep counters for so many periods, for history. Default 0
  -prefix NAME      what every key in Redis begins with. Default serial
  -json             print one JSON object a line
`

// nargs has the number of arguments of each command.
var nargs = map[string]int{"next": 1, "peek": 1, "history": 1, "prepare": 1, "raise": 2, "parse": 1}

// many has the default of -n, for the commands that take it.
var many = map[string]int{"next": 1, "history": 7, "prepare": 2}

// batch is the most that one call of NextN issues.
const batch = 100_000

// misuse marks an error of the command line itself.
type misuse struct{ error }

func misused(format string, args ...any) error { return misuse{fmt.Errorf(format, args...)} }

func main() {
	// go-redis would report every lost connection on stderr; what matters is in the error.
	logging.Disable()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal kills the process, if a write blocks
	os.Exit(run(ctx, os.Args[1:], os.Getenv, os.Stdout, os.Stderr))
}

// run carries out a command line and returns the exit code.
func run(ctx context.Context, args []string, getenv func(string) string, stdout, stderr io.Writer) int {
	out := bufio.NewWriter(stdout) // it remembers an error, so only Flush has to be checked
	c := &command{out: out, stderr: stderr}
	err := c.read(args, getenv)
	if err == nil {
		err = c.execute(ctx)
	}
	if errors.Is(err, flag.ErrHelp) {
		_, _ = out.WriteString(usage)
		err = nil
	}
	if failed := out.Flush(); failed != nil {
		err = errors.Join(err, fmt.Errorf("the output could not be written: %w", failed))
	}
	if err == nil {
		return 0
	}
	for line := range strings.Lines(err.Error()) { // there are several if New refuses several options
		_, _ = fmt.Fprintf(stderr, "serial: %s\n", strings.TrimPrefix(strings.TrimSuffix(line, "\n"), "serial: "))
	}
	if _, ok := errors.AsType[misuse](err); ok {
		_, _ = fmt.Fprint(stderr, "\n", usage)
		return 2
	}
	return 1
}

// A command is a parsed command line.
type command struct {
	name   string
	args   []string
	n      int    // numbers or periods
	once   string // request ID of next; "" for none
	seq    int64  // argument SEQ of raise
	json   bool
	period serial.Period
	// template and start are also in opts; here they tell how many numbers a period has.
	template string
	start    int64
	url      string
	zone     *time.Location
	opts     []serial.Option
	out      *bufio.Writer
	stderr   io.Writer
}

// read parses the command line. Its errors are misuse, or flag.ErrHelp.
func (c *command) read(args []string, getenv func(string) string) error {
	if len(args) == 0 {
		return misused("no command")
	}
	c.name = args[0]
	switch c.name {
	case "help", "-h", "-help", "--help":
		return flag.ErrHelp
	}
	want, ok := nargs[c.name]
	if !ok {
		return misused("unknown command %q", c.name)
	}
	flags := flag.NewFlagSet(c.name, flag.ContinueOnError)
	flags.SetOutput(io.Discard) // run prints the error, and a usage without the URL as a default
	// An empty value comes from a shell variable that is not set, and does not ask for the default: without its URL, or its
	// -once, the command would issue numbers that it must not.
	text := func(name string, set func(string) error) {
		flags.Func(name, "", func(value string) error {
			if value == "" {
				return errors.New("it is empty, as if from a shell variable that is not set; give a value, or leave the flag out")
			}
			return set(value)
		})
	}
	c.url = getenv("SERIAL_REDIS_URL") // here, empty is the same as not set
	text("redis", func(url string) error { c.url = url; return nil })
	c.zone = time.Local
	text("tz", func(name string) (err error) {
		if c.zone, err = time.LoadLocation(name); err != nil {
			return errors.New("not an IANA time zone, such as Asia/Shanghai")
		}
		return nil
	})
	text("template", func(template string) error { c.template = template; return nil })
	text("prefix", func(prefix string) error {
		c.opts = append(c.opts, serial.WithKeyPrefix(prefix)) // the library's default is not repeated here
		return nil
	})
	c.period, c.start = serial.PerDay, 1
	text("period", func(name string) error {
		i := slices.IndexFunc(periods, func(p period) bool { return p.name == name })
		if i < 0 {
			return errors.New("allowed are second, minute, hour, day, month and year")
		}
		c.period = periods[i].per
		return nil
	})
	var dayStart time.Duration
	flags.DurationVar(&dayStart, "day-start", 0, "")
	flags.Int64Var(&c.start, "start", 1, "")
	retention := flags.Int("retention", 0, "")
	flags.BoolVar(&c.json, "json", false, "")
	if n, ok := many[c.name]; ok {
		flags.IntVar(&c.n, "n", n, "")
	}
	if c.name == "next" {
		text("once", func(id string) error { c.once = id; return nil })
	}
	if err := flags.Parse(args[1:]); errors.Is(err, flag.ErrHelp) {
		return err
	} else if err != nil {
		return misuse{err}
	}
	if c.args = flags.Args(); len(c.args) != want {
		return misused("%s takes %d argument(s) after its flags, not %d", c.name, want, len(c.args))
	}
	if c.args[0] == "" {
		what := "TYPE"
		if c.name == "parse" {
			what = "NUMBER"
		}
		return misused("the %s is empty, as if from a shell variable that is not set", what)
	}
	if _, ok := many[c.name]; ok && c.n < 1 {
		return misused("-n %d: at least 1", c.n)
	}
	if c.once != "" && c.n > 1 {
		return misused("-once is for one number, and -n says %d", c.n)
	}
	if c.template == "" {
		c.template = strings.Replace("{type}{date:yyyyMMdd}{seq:4}", "yyyyMMdd", c.kind().date, 1)
	}
	c.opts = append(c.opts, serial.WithLocation(c.zone), serial.WithPeriod(c.period), serial.WithTemplate(c.template),
		serial.WithDayStart(dayStart), serial.WithStart(c.start), serial.WithRetention(*retention))
	if c.name == "raise" {
		var err error
		if c.seq, err = strconv.ParseInt(c.args[1], 10, 64); err != nil || c.seq < 0 {
			return misused("SEQ %q: a whole number, at least 0", c.args[1])
		}
	}
	return nil
}

func (c *command) execute(ctx context.Context) error {
	client, err := c.connect()
	if err != nil {
		return misuse{err}
	}
	defer client.Close()
	gen, err := serial.New(client, c.opts...)
	if err != nil {
		return misuse{err}
	}
	if c.name == "parse" {
		return c.parse(gen)
	}
	if c.url == "" {
		whose := c.zone.String()
		if c.zone == time.Local { // Go does not tell its name
			whose = "this machine's"
		}
		_, _ = fmt.Fprintf(c.stderr, "serial: no Redis URL, so nothing is kept; the time zone is %s, now UTC%s\n",
			whose, time.Now().In(c.zone).Format("-07:00"))
	}
	switch c.name {
	case "next":
		return c.next(ctx, gen)
	case "peek":
		return c.peek(ctx, gen)
	case "history":
		return c.history(ctx, gen)
	case "prepare":
		err = gen.Prepare(ctx, c.args[0], c.n)
	case "raise":
		err = gen.Raise(ctx, c.args[0], c.seq)
	}
	if err == nil && c.json {
		return c.peek(ctx, gen) // prints where the counter is now
	}
	return err
}

// next prints every batch before it asks for another one. So a later failure loses nothing that was issued, and nothing
// more is issued once nobody reads it.
func (c *command) next(ctx context.Context, gen *serial.Generator) error {
	if c.once != "" {
		number, err := gen.NextOnce(ctx, c.args[0], c.once)
		if err != nil {
			return err
		}
		return c.print(gen, number)
	}
	progress := io.Discard
	if c.n > batch && isTerminal(c.stderr) {
		progress = c.stderr
	}
	for done := 0; done < c.n; {
		width, _ := fmt.Fprintf(progress, "serial: %d of %d numbers", done, c.n)
		numbers, err := gen.NextN(ctx, c.args[0], min(batch, c.n-done))
		// The progress is erased before anything else is written, since stdout may be the same terminal. It is erased with
		// blanks, since not every terminal knows an escape sequence for that.
		_, _ = fmt.Fprintf(progress, "\r%*s\r", width, "")
		if err != nil && done > 0 {
			return fmt.Errorf("%w; %d of %d numbers were printed", err, done, c.n)
		}
		if err != nil {
			return err
		}
		for _, number := range numbers {
			if err := c.print(gen, number); err != nil {
				return err
			}
		}
		if c.out.Flush() != nil {
			return nil // run reports it
		}
		done += len(numbers)
	}
	return nil
}

func (c *command) peek(ctx context.Context, gen *serial.Generator) error {
	number, err := gen.Peek(ctx, c.args[0])
	switch {
	case err != nil:
		return err
	case c.json:
		c.printJSON(number, nil)
	case number.Seq == 0:
		_, _ = fmt.Fprintf(c.stderr, "serial: no %s was issued since %s\n", number.Type, number.Start.Format(time.RFC3339))
	default:
		_, _ = fmt.Fprintln(c.out, number)
	}
	return nil
}

func (c *command) parse(gen *serial.Generator) error {
	number, err := gen.Parse(c.args[0])
	if err != nil {
		return err
	}
	if c.json {
		c.printJSON(number, nil)
		return nil
	}
	_, _ = fmt.Fprintf(c.out, "type %s\nstart %s\nseq %d\n", number.Type, number.Start.Format(time.RFC3339), number.Seq)
	return nil
}

// print prints a number that was issued.
func (c *command) print(gen *serial.Generator, number string) error {
	if !c.json {
		_, _ = fmt.Fprintln(c.out, number)
		return nil
	}
	n, err := gen.Parse(number)
	if err == nil {
		c.printJSON(n, nil)
	}
	return err
}

// printJSON prints a number as a line of JSON. used is the share of the period's numbers, or nil to leave it out.
func (c *command) printJSON(n serial.Number, used *float64) {
	line := struct {
		Number string    `json:"number,omitempty"` // left out if none was issued
		Type   string    `json:"type"`
		Start  time.Time `json:"start"`
		Seq    int64     `json:"seq"`
		Used   *float64  `json:"used,omitempty"`
	}{n.String(), n.Type, n.Start, n.Seq, used}
	if n.Seq == 0 {
		line.Number = ""
	}
	_ = json.NewEncoder(c.out).Encode(line)
}

func isTerminal(w io.Writer) bool {
	file, ok := w.(interface{ Stat() (fs.FileInfo, error) })
	if !ok {
		return false
	}
	info, err := file.Stat()
	return err == nil && info.Mode()&fs.ModeCharDevice != 0
}
