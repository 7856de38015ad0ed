package serialcmd

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// A subcommand is a row in the table of commands.
type subcommand struct {
	name    string
	args    string // such as "TYPE [FILE]"; also determines how many arguments are accepted
	summary string // one line of help
	detail  string // remaining lines of the help
	needs   Need
	flags   []string // names of the command's flags, except for flags of settings
	n       int      // default of -n
	counts  string   // help of -n
	run     func(*command, context.Context) error
}

// commands returns all commands except help. It is a function and not a variable, because two commands, completion and
// help, call it.
func commands() []subcommand {
	return []subcommand{
		{
			name: "next", args: "TYPE", needs: Counters, n: 1, run: (*command).next,
			flags: []string{"n", "once"}, counts: "`N` count of the numbers to issue. Default 1",
			summary: "issue the next number, the next N, or a request's number",
			detail: `Up to 100,000 numbers are issued at once: all of them or none. A larger N is issued in several parts. If
a later part fails, the earlier numbers are printed, and the exit code is 1. If numbers were issued but could not be
printed, the error contains them. If stdout is closed, no number is issued.`,
		},
		{
			name: "peek", args: "TYPE", needs: Redis, run: (*command).peek,
			summary: "print the last number issued in this period, if any",
			detail: `If Redis has no number of this period, stdout stays empty, and stderr contains a message.
` + undated,
		},
		{
			name: "history", args: "TYPE", needs: Redis, n: 7, run: (*command).history,
			flags: []string{"n"}, counts: "`N` number of periods to show, including the current one. Default 7",
			summary: "print how many numbers were issued in each recent period",
			detail: `The newest period comes first. Periods without a counter are omitted. If the counter of the current period
is lost, the exit code is 1.`,
		},
		{
			name: "prepare", args: "TYPE", needs: Redis, run: (*command).prepare,
			summary: "open this period and the next one; print the next number",
			detail:  undated,
		},
		{
			name: "raise", args: "TYPE SEQ", needs: Redis, flags: []string{"reason", "by"}, run: (*command).raise,
			summary: "make the next number at least SEQ+1, and print it",
			detail: `SEQ is the last sequence used, or 0 if none was used. A counter is never lowered. If the series has a
ledger, only a program with that ledger can raise its counter.
` + undated + " " + skipping,
		},
		{
			name: "takeover", args: "TYPE SEQ", needs: Redis, run: (*command).takeover,
			flags: []string{"reason", "by", "leave-ledger"}, summary: "give the series to this time zone; print the next number",
			detail: `Use takeover to end a "conflicting period", if a process with another time zone or day start, or with a
ledger, has opened the period. Stop that process first, because all its calls fail afterwards. SEQ is the last sequence
used in the current period of this program's time zone and day start, or 0 if none was used. With -leave-ledger, it is
the last sequence reserved in the ledger for that period. A counter is never lowered.
` + undated + " " + skipping,
		},
		{
			name: "audit", args: "TYPE [FILE]", needs: Redis, run: (*command).audit,
			flags:   []string{"date", "all", "column", "explained", "earlier"},
			summary: "list numbers that are missing, used twice or never issued",
			detail: `FILE or stdin contains the used numbers, one per line. The exit code is 0 if all numbers are accounted for,
and otherwise 3. Numbers that are issued during the audit do not matter. A missing number was not necessarily returned
to a caller: it may have been skipped by raise, a floor or a ledger, or the caller may have given up. With -explained or
a register, audit prints the reasons, and explained numbers no longer count as missing.`,
		},
		{
			name: "import", args: "[TYPE] [FILE]", needs: Redis, run: (*command).imports,
			flags: []string{"dry-run", "force", "column"}, summary: "raise counters to the numbers of another system",
			detail: `FILE or stdin contains the numbers, one per line. For each type, or only for TYPE, the counter of the
current period is raised to the largest number found. The output lists what was done, the sequences between the smallest
and the largest that are missing from the input, and the numbers of other periods, which are ignored. If a line is not a
number, or if the input is empty, nothing is written. Without -force, nothing is written either if the input looks
wrong: a sequence appears twice, or the largest sequence of a type is above the second largest by more than 1,000 and by
more than the count of the type's sequences in the input. A single argument is FILE if such a file exists.`,
		},
		{name: "parse", args: "NUMBER", needs: Form, run: (*command).parseNumber,
			summary: "print a number's type, sequence and start of the period"},
		{
			name: "template", args: "TEMPLATE", needs: Form, run: (*command).explain,
			summary: "explain a template by examples, or print why it is invalid",
			detail:  `If the template is invalid, the exit code is 1.`,
		},
		{name: "completion", args: "SHELL", run: (*command).completion,
			summary: "print the completion script of bash, zsh or fish"},
		{name: "version", run: (*command).version, summary: "print the version of this program"},
	}
}

// undated is the help about numbers whose date is unknown.
const undated = `If the template prints a more exact date than the period, for example the day although periods are
months, Redis does not store the date of a number. The output is then the sequence, and the number with today's date.`

// skipping is the help of commands that skip sequences.
const skipping = `If sequences were skipped, the output ends with two lines of CSV that list them. A file with these
lines can be passed to audit -explained. With -reason and -by, the lines explain why the numbers are not used. Without
these flags, they contain only a possible reason, which explains nothing.`

// A commandLine is a parsed command line.
type commandLine struct {
	row      *subcommand // nil if the command line has no command
	args     []string
	flags    *flag.FlagSet // flags of all commands
	settings []*flag.Flag  // flags that Setup.Settings defines

	n         int      // count of numbers or periods
	once      string   // request ID, or "" if the flag is not given
	date      string   // date in the period to audit, or "" for the current period
	column    string   // name of the CSV column, or "" if each line is a number
	all       bool     // whether to audit all periods
	explained string   // file with explanations, or "" if there is none
	earlier   []string // earlier templates
	dryRun    *bool    // nil if the flag is not given

	reason, by string // reason for raise or takeover, and the person who gives it; "" if the flags are not given

	force, leaveLedger, json bool
}

// define defines the flags of all commands.
func (c *command) define() {
	c.flags = flag.NewFlagSet("", flag.ContinueOnError)
	text := func(at *string, name, usage string) {
		given := false
		c.flags.Func(name, usage, func(value string) error {
			if given { // a user who gives two files expects that both are read
				return errors.New("the flag is given twice")
			}
			*at, given = value, true
			return nil
		})
	}
	person := func(at *string, name, usage string) {
		c.flags.Func(name, usage, func(value string) error {
			if *at = value; strings.TrimSpace(value) == "" { // audit trims whitespace
				return errors.New("blank")
			}
			return nil
		})
	}
	c.flags.Func("n", "", func(value string) error {
		n, err := Integer(value, strconv.IntSize)
		if c.n = int(n); err == nil && n < 1 {
			err = errors.New("want at least 1")
		}
		return err
	})
	text(&c.once, "once", "`ID` ID of a request. As long as its number is stored, a request with the same ID gets the "+
		"same number")
	text(&c.date, "date", "`DATE` date in the period to audit, such as 2021-10-24, or \"2021-10-24 15:04\" if periods "+
		"are shorter than a day. Default: the current period")
	c.flags.BoolFunc("all", "audit all periods whose counters still exist. In the file of -explained, each line needs a "+
		"number", parseSwitch(&c.all))
	text(&c.column, "column",
		"`NAME` column of the CSV input that contains the numbers. The first line must be a header")
	text(&c.explained, "explained", "`FILE` CSV file with reasons for missing numbers, or - for stdin. Its header must "+
		"have the column reason, and either number or first and last (sequences of the period). Optional columns: by; at, "+
		"such as 2021-10-24T17:05:00Z; unused, true if no document may have the numbers; possible, true if the reason is "+
		"listed but explains nothing")
	c.flags.Func("earlier", "`TEMPLATE` earlier template of this period, tried after the current one. Repeat it for "+
		"more, in order", func(value string) error { c.earlier = append(c.earlier, value); return nil })
	c.flags.BoolFunc("dry-run", "list what would be done, and write nothing. Default if stdin is a terminal. To write, "+
		"use -dry-run=false",
		func(value string) error { c.dryRun = new(bool); return parseSwitch(c.dryRun)(value) })
	c.flags.BoolFunc("force", "raise counters even if a sequence appears twice or is far above the others",
		parseSwitch(&c.force))
	c.flags.BoolFunc("leave-ledger", "take the series out of its ledger, if it has one. If Redis loses data later, "+
		"numbers may be issued twice. Cannot be combined with -reason", parseSwitch(&c.leaveLedger))
	person(&c.reason, "reason", "`TEXT` reason why the skipped numbers are not used. Requires -by")
	person(&c.by, "by", "`NAME` name of the person who gives the reason. Requires -reason")
	if c.Settings != nil {
		for _, name := range c.Settings.Define(c.flags) {
			c.settings = append(c.settings, c.flags.Lookup(name))
		}
	}
	c.flags.BoolFunc("json", "print one JSON object per line", parseSwitch(&c.json))
}

// parseSwitch returns a function that sets *on to the value of a switch.
func parseSwitch(on *bool) func(value string) error {
	return func(value string) (err error) {
		if *on, err = strconv.ParseBool(value); err != nil {
			return errors.New("want true or false")
		}
		return nil
	}
}

// parse parses the command line. Its error is a misuse, or errHelp.
func (c *command) parse() error {
	c.define()
	names, asked, wrong := c.split()
	if len(c.args) > 0 && c.args[0] == "help" {
		asked, c.args = true, c.args[1:]
	}
	var unknown error
	if len(c.args) > 0 && c.args[0] != "help" {
		all := commands()
		if i := slices.IndexFunc(all, func(s subcommand) bool { return s.name == c.args[0] }); i >= 0 {
			c.row, c.args = &all[i], c.args[1:]
		} else {
			unknown = misused("unknown command %q", c.args[0])
		}
	}
	for _, name := range names {
		switch {
		case c.row != nil && !c.row.has(c, name):
			return misused("%s has no flag -%s; write -- before an argument that begins with -", c.row.name, name)
		case c.flags.Lookup(name) == nil && c.Settings == nil:
			return misused("no command has a flag -%s; this program has the service's settings", name)
		case c.flags.Lookup(name) == nil:
			return misused("no command has a flag -%s", name)
		}
	}
	switch {
	case wrong != nil:
		return wrong
	case unknown != nil:
		return unknown
	case asked:
		return errHelp
	case c.row == nil:
		return misused("no command")
	}
	c.n = cmp.Or(c.n, c.row.n)
	return nil
}

// split sets the flags and the arguments, which may be in any order, unlike in package flag. It returns the names of
// all flags, including unknown ones, and whether help is requested. It returns an error if a Redis URL is not the value
// of -redis, because other errors could then contain the password.
func (c *command) split() (names []string, asked bool, err error) {
	defer func() {
		if err == nil && slices.ContainsFunc(c.args, IsRedisURL) {
			err = misused("an argument is the URL of a Redis; want it in -redis")
		}
	}()
	for line := c.Args; len(line) > 0; {
		word := line[0]
		line = line[1:]
		if word == "--" {
			c.args = append(c.args, line...)
			break
		}
		if !isFlag(word) {
			c.args = append(c.args, word)
			continue
		}
		f, name, value, given := c.lookup(word)
		if f == nil && (name == "h" || name == "help") {
			asked = true
			continue
		}
		if names = append(names, name); f == nil {
			continue
		}
		switch {
		case given:
		case isSwitch(f):
			value = "true"
		case len(line) == 0:
			return names, asked, misused("-%s needs a value", name)
		default:
			value, line = line[0], line[1:]
			// If the user wrote an unset shell variable without quotes, the value is missing, and the next word is a flag.
			if next, _, _, _ := c.lookup(value); value == "--" || isFlag(value) && next != nil {
				return names, asked, misused("-%s needs a value, but a flag follows; if that is the value, write -%s=VALUE",
					name, name)
			}
		}
		// An empty value usually comes from an unset shell variable. It must not stand for the default, because without the
		// URL or the request ID, the command would issue wrong numbers.
		if value == "" {
			return names, asked, misused("-%s is empty, perhaps because a shell variable is not set; give a value, or omit "+
				"the flag", name)
		}
		if name != "redis" && IsRedisURL(value) {
			return names, asked, misused("-%s: the value is the URL of a Redis; want it in -redis", name)
		}
		if err := f.Value.Set(value); err != nil {
			return names, asked, misused("-%s %q: %w", name, value, err)
		}
	}
	return names, asked, nil
}

// lookup returns the flag with the name in word, or nil if there is no such flag. If word contains a value, given is
// true.
func (c *command) lookup(word string) (f *flag.Flag, name, value string, given bool) {
	name, value, given = strings.Cut(strings.TrimPrefix(strings.TrimPrefix(word, "-"), "-"), "=")
	return c.flags.Lookup(name), name, value, given
}

// isFlag reports whether a word has the form of a flag. "-" and negative numbers are arguments.
func isFlag(word string) bool {
	return len(word) > 1 && word[0] == '-' && (word[1] < '0' || word[1] > '9')
}

// isSwitch reports whether a flag needs no value.
func isSwitch(f *flag.Flag) bool {
	b, ok := f.Value.(interface{ IsBoolFlag() bool })
	return ok && b.IsBoolFlag()
}

// has reports whether the command has a flag with the given name.
func (s *subcommand) has(c *command, name string) bool {
	return slices.ContainsFunc(s.options(c), func(f *flag.Flag) bool { return f.Name == name })
}

// options returns all flags of a command: its own flags, the flags of settings, and -json.
func (s *subcommand) options(c *command) (all []*flag.Flag) {
	for _, name := range s.flags {
		f := *c.flags.Lookup(name)
		f.Usage = cmp.Or(f.Usage, s.counts)
		all = append(all, &f)
	}
	if s.needs == Nothing {
		return all
	}
	return append(append(all, c.settings...), c.flags.Lookup("json"))
}

// checkArgs returns an error if an argument is empty, or if there are too few or too many. It sets omitted arguments to
// "". If numbers have no type, it also adds "" for TYPE.
func (c *command) checkArgs() error {
	want := c.arguments(c.row)
	names := strings.Fields(want)
	for i, name := range names {
		switch {
		case i < len(c.args) && c.args[i] == "":
			return misused("%s is empty, perhaps because a shell variable is not set", strings.Trim(name, "[]"))
		case i >= len(c.args) && !strings.HasPrefix(name, "["):
			return misused("%s takes %s, but %s is missing", c.row.name, want, name)
		}
	}
	if len(c.args) > len(names) {
		return misused("got %s, but %s takes %s", counted(int64(len(c.args)), "argument"), c.row.name,
			cmp.Or(want, "none"))
	}
	for range len(names) - len(c.args) {
		c.args = append(c.args, "")
	}
	if want != c.row.args {
		c.args = slices.Insert(c.args, 0, "")
	}
	return nil
}

// arguments returns the names of a command's arguments.
func (c *command) arguments(s *subcommand) string {
	if c.typeless() {
		return strings.TrimSpace(strings.TrimPrefix(strings.TrimPrefix(s.args, "[TYPE]"), "TYPE"))
	}
	return s.args
}

// typeless reports whether numbers have no type.
func (c *command) typeless() bool {
	if c.Settings != nil {
		return c.Settings.Typeless()
	}
	_, err := c.gen.Scheme().Series("")
	return err == nil
}

// A misuse is an error in the command line.
type misuse struct{ error }

// Misused returns err as an error in the command line. It is only for cmd/serial, and applications do not need it. It
// may change in any release.
func Misused(err error) error { return misuse{err} }

func misused(format string, args ...any) error { return Misused(fmt.Errorf(format, args...)) }

// Integer parses a decimal integer. It is only for cmd/serial, and applications do not need it. It accepts leading
// zeros, because the integer may be copied from a printed number. It may change in any release.
func Integer(value string, bits int) (int64, error) {
	n, err := strconv.ParseInt(value, 10, bits)
	switch {
	case errors.Is(err, strconv.ErrRange):
		return 0, errors.New("out of range")
	case err != nil:
		return 0, errors.New("want a whole number such as 1000, without underscores or prefixes such as 0x")
	}
	return n, nil
}

// redisURL matches the URL of a Redis, and every URL with a user or a password.
var redisURL = regexp.MustCompile(`^(?i:rediss?|unix):/|://.*@`)

// IsRedisURL reports whether a word looks like the URL of a Redis. It is only for cmd/serial, and applications do not
// need it. No message may contain such a word, because it may contain a password. IsRedisURL may change in any release.
func IsRedisURL(word string) bool { return redisURL.MatchString(word) }
