package main

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
)

// A subcommand is a row of the table of commands.
type subcommand struct {
	name     string
	args     string // as in "TYPE [FILE]", which also tells how many are allowed
	summary  string // one line
	detail   string // the rest of its help
	needs    need
	flags    []option // beyond the common ones
	n        int      // default of -n
	explains bool     // a refused template is not a misuse
	run      func(*command, context.Context) error
}

// A need is what a command requires.
type need int

const (
	nothing  need = iota // not even the flags that say how numbers look
	scheme               // these flags, and no Redis
	counters             // Redis, or without a URL, counters in memory
	redisURL             // Redis
)

// commands are all commands except help.
var commands = []subcommand{
	{
		name: "next", args: "TYPE", needs: counters, n: 1, run: (*command).next,
		summary: "issue the next number, or the next N, or that of a request",
		detail: `Without a Redis URL, the counters are in memory, for this run only. If only some
of N numbers can be issued, those are printed, and the exit code is 1. If numbers
were issued but could not be printed, the error names them. If stdout is closed,
nothing is issued.`,
		flags: []option{
			count("N", "issue N numbers, one per line. Default 1"),
			{"once", "ID", "issue the number of this request; for 48 hours, the same request gets the\nsame number again",
				func(s *settings, id string) error { s.once = id; return nil }},
		},
	},
	{
		name: "peek", args: "TYPE", needs: redisURL, run: (*command).peek,
		summary: "print the last number issued this period, if there is one",
		detail: `If there is none, a line on stderr says so, and stdout stays empty.
` + undated,
	},
	{
		name: "history", args: "TYPE", needs: redisURL, n: 7, run: (*command).history,
		summary: "print how many were issued in each of the last periods",
		detail: `The newest period comes first. Periods that were not used or are no longer kept
are omitted; see -retention.`,
		flags: []option{count("PERIODS", "how many periods, the current one included. Default 7")},
	},
	{
		name: "prepare", args: "TYPE", needs: redisURL, n: 2, run: (*command).prepare,
		summary: "open this period and the next ones; print the next number",
		detail:  undated,
		flags:   []option{count("PERIODS", "how many periods, the current one included. Default 2")},
	},
	{
		name: "raise", args: "TYPE SEQ", needs: redisURL, run: (*command).raise,
		summary: "make sure that the next number is at least SEQ+1; print it",
		detail: `SEQ is the last sequence used, or 0 if none was. A counter is never lowered. If
the type's numbers are set aside in a ledger, the program with the ledger has to
raise them.
` + undated + "\n" + skipping,
		flags: []option{reason, by},
	},
	{
		name: "takeover", args: "TYPE SEQ", needs: redisURL, run: (*command).takeover,
		summary: "make this calendar the right one; print the next number",
		detail: `This ends "conflicting period" if a process with another time zone or day start,
or with a ledger, has opened the period. Stop that process first: from then on,
it is refused. SEQ is the last sequence used in the current period by -tz and
-day-start, or 0 if none was. A counter is never lowered.
` + undated + "\n" + skipping,
		flags: []option{reason, by, toggle("leave-ledger", `give up the ledger of the series, if it has one: if Redis
loses data after that, numbers may be issued twice`, func(s *settings) *bool { return &s.leaveLedger })},
	},
	{
		name: "audit", args: "TYPE [FILE]", needs: redisURL, run: (*command).audit,
		summary: "list the numbers that are missing, double or never issued",
		detail: `FILE, or else stdin, has the numbers that were used, one per line. The exit code
is 3 if not all are accounted for. Numbers issued meanwhile do not matter. The
missing numbers include those that nobody got: raise, a floor or a block of a
ledger skipped them, or their caller gave up. With -explained, the reasons are
printed, and what they explain no longer counts.`,
		flags: []option{
			{"date", "DATE", `a date in the period, such as 2021-10-24; if periods are shorter than a
day, with the time, as in "2021-10-24 15:04". Default now`,
				func(s *settings, date string) error { s.date = date; return nil }},
			column,
			{"explained", "FILE", `a CSV file that says why numbers are missing, or - for stdin. Its first
line names its columns: reason, and number, or first and last, which are
sequences of the audited period; and, if you like, by, at (as in
2021-10-24T17:05:00Z), unused (true if no document may have them) and
possible (true if that explains nothing, but is shown)`,
				func(s *settings, name string) error { s.explained = name; return nil }},
		},
	},
	{
		name: "import", args: "[TYPE] [FILE]", needs: redisURL, run: (*command).imports,
		summary: "raise counters to the numbers of another system",
		detail: `FILE, or else stdin, has the numbers, one per line. For each type, or for TYPE
only, the counter of the current period is raised to the greatest number found.
The output lists what is done, which sequences between the least and the
greatest the input lacks, and the numbers of other periods, which are ignored.
If a line is not a number, nothing is written. Nor is it without -force if a
sequence appears twice, or if the greatest one of a type is more than 1,000
above the next lower one, and more than the input has sequences of it. A single
argument is FILE if such a file exists.`,
		flags: []option{
			{"dry-run", "", "only list what would be done. Default where stdin is a terminal;\n-dry-run=false writes",
				func(s *settings, value string) error {
					dry, err := switched(value)
					s.dryRun = &dry
					return err
				}},
			toggle("force", "raise counters although a sequence appears twice, or one is far\nabove the others",
				func(s *settings) *bool { return &s.force }),
			column,
		},
	},
	{
		name: "parse", args: "NUMBER", needs: scheme, run: (*command).parse,
		summary: "print type, start of the period and sequence of a number",
		detail: `This does not ask Redis and ignores $SERIAL_REDIS_URL. If -redis is given, as to
the other commands, the time zone is required too. Otherwise the default of -tz
is $SERIAL_TZ, or this machine's zone.`,
	},
	{
		name: "template", args: "TEMPLATE", needs: scheme, explains: true, run: (*command).explain,
		summary: "explain a template by examples, or say why it is refused",
		detail: `This does not ask Redis and ignores $SERIAL_REDIS_URL. If the template is refused, the
exit code is 1.`,
	},
	{
		name: "version", needs: nothing, run: (*command).version,
		summary: "print the version of this program",
	},
}

// undated is the help about numbers whose date is not known.
const undated = `If the template prints more of the date than the period, this prints the
sequence, and the number that it has today.`

// skipping is the help of commands that skip sequences.
const skipping = `If sequences were skipped, two lines of CSV say which: a file for audit
-explained. With -reason and -by, they explain why nobody has these numbers.
Without, this is only possible: they explain nothing.`

// reason and by are the flags with which a person explains what is skipped.
var (
	reason = option{"reason", "TEXT", "why nobody has the numbers that are skipped; with -by",
		func(s *settings, text string) (err error) { s.reason, err = notBlank(text); return err }}
	by = option{"by", "NAME", "who says so; with -reason",
		func(s *settings, name string) (err error) { s.by, err = notBlank(name); return err }}
)

// notBlank refuses a text that audit would read as an empty one.
func notBlank(text string) (string, error) {
	if strings.TrimSpace(text) == "" {
		return "", errors.New("it is blank")
	}
	return text, nil
}

// column is the flag -column.
var column = option{"column", "NAME", "the input is CSV whose first line names the columns; this one has\nthe numbers",
	func(s *settings, name string) error { s.column = name; return nil }}

// find returns a command by its name.
func find(name string) (*subcommand, error) {
	i := slices.IndexFunc(commands, func(s subcommand) bool { return s.name == name })
	if i < 0 {
		return nil, misused("unknown command %q", name)
	}
	return &commands[i], nil
}

// options returns all flags of a command, beginning with its own.
func (s *subcommand) options() []option {
	if s.needs == nothing {
		return s.flags
	}
	return slices.Concat(s.flags, common)
}

// check refuses a wrong number of arguments, and empty ones. It never prints one, which may be a URL with a password.
func (s *subcommand) check(args []string) error {
	names := strings.Fields(s.args)
	for i, name := range names {
		switch {
		case i < len(args) && args[i] == "":
			return misused("the %s is empty, perhaps from a shell variable that is not set", strings.Trim(name, "[]"))
		case i >= len(args) && !strings.HasPrefix(name, "["):
			return misused("%s takes %s, and the %s is missing", s.name, s.args, name)
		}
	}
	if len(args) > len(names) {
		return misused("too many arguments: %s takes %s, and got %d", s.name, cmp.Or(s.args, "none"), len(args))
	}
	return nil
}
