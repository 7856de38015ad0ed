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
	args     string // such as "TYPE [FILE]"; also determines how many are accepted
	summary  string // one line
	detail   string // the rest of its help
	needs    need
	flags    []option // beyond the common ones
	n        int      // the default of -n
	explains bool     // reports a refused template as a result, not as misuse
	run      func(*command, context.Context) error
}

// A need is what a command requires.
type need int

const (
	nothing  need = iota // not even the flags for the form of numbers
	scheme               // these flags, but not Redis
	counters             // Redis or, without a URL, counters in memory
	redisURL             // Redis
)

// commands lists all commands except help.
var commands = []subcommand{
	{
		name: "next", args: "TYPE", needs: counters, n: 1, run: (*command).next,
		summary: "issue the next number, the next N, or a request's number",
		detail: `Without a Redis URL, counters are in memory, for this run only. If only some of
the N numbers can be issued, they are printed, and the exit code is 1. If numbers
were issued but could not be printed, the error names them. If stdout is closed,
nothing is issued.`,
		flags: []option{
			count("N", "issue N numbers, one per line. Default 1"),
			{"once", "ID", "issue a number to this request; until -once-for has passed, the same\nrequest gets the same number",
				func(s *settings, id string) error { s.once = id; return nil }},
		},
	},
	{
		name: "peek", args: "TYPE", needs: redisURL, run: (*command).peek,
		summary: "print the last number issued in this period, if any",
		detail: `If none was issued, a line on stderr says so, and stdout stays empty.
` + undated,
	},
	{
		name: "history", args: "TYPE", needs: redisURL, n: 7, run: (*command).history,
		summary: "print how many numbers each of the last periods issued",
		detail: `The newest period comes first. Unused periods, and periods whose counter is no
longer kept, are omitted; see -retention.`,
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
		summary: "make the next number at least SEQ+1, and print it",
		detail: `SEQ is the last sequence used, or 0 if none was. A counter is never lowered. If
the type's numbers are set aside in a ledger, only the program with the ledger
can raise its counter.
` + undated + "\n" + skipping,
		flags: []option{reason, by},
	},
	{
		name: "takeover", args: "TYPE SEQ", needs: redisURL, run: (*command).takeover,
		summary: "give the series to this calendar; print the next number",
		detail: `This ends "conflicting period" if a process with another time zone or day start,
or with a ledger, opened the period. Stop that process first, since it is refused
from then on. SEQ is the last sequence used in the current period as given by -tz
and -day-start, or 0 if none was. A counter is never lowered.
` + undated + "\n" + skipping,
		flags: []option{reason, by, toggle("leave-ledger", `give up the series' ledger, if it has one: if Redis loses
data after that, numbers may be issued twice`, func(s *settings) *bool { return &s.leaveLedger })},
	},
	{
		name: "audit", args: "TYPE [FILE]", needs: redisURL, run: (*command).audit,
		summary: "list the numbers that are missing, double or never issued",
		detail: `FILE or stdin contains the numbers used, one per line. The exit code is 3 unless
all numbers are accounted for. Numbers issued during the audit do not matter.
Missing numbers include those that nobody got: raise, a floor or a ledger's block
skipped them, or their caller gave up. With -explained, the reasons are printed,
and explained numbers no longer count as missing.`,
		flags: []option{
			{"date", "DATE", `a date in the period, such as 2021-10-24; if periods are shorter than a
day, with a time, as in "2021-10-24 15:04". Default now`,
				func(s *settings, date string) error { s.date = date; return nil }},
			column,
			{"explained", "FILE", `CSV file that says why numbers are missing, or - for stdin. Its first
line names its columns: reason, and either number or first and last, which
are sequences of the audited period. Optional columns are by, at (such as
2021-10-24T17:05:00Z), unused (true if no document may have the numbers)
and possible (true if the reason is shown, but explains nothing)`,
				func(s *settings, name string) error { s.explained = name; return nil }},
			{"earlier", "TEMPLATE", `a template with which numbers of this period were printed before it
was changed. Give the flag once for each; -template comes first, then these,
in order`,
				func(s *settings, template string) error { s.earlier = append(s.earlier, template); return nil }},
		},
	},
	{
		name: "import", args: "[TYPE] [FILE]", needs: redisURL, run: (*command).imports,
		summary: "raise counters to the numbers of another system",
		detail: `FILE or stdin contains the numbers, one per line. For each type, or only for TYPE,
the counter of the current period is raised to the greatest number found. The
output lists what was done, which sequences between the smallest and the greatest
are missing from the input, and the numbers of other periods, which are ignored.
If a line is not a number, nothing is written. Without -force, nothing is written
either if a sequence appears twice, or if a type's greatest sequence exceeds the
second greatest by more than 1,000 and by more than the input's sequences of that
type. A single argument is FILE if such a file exists.`,
		flags: []option{
			{"dry-run", "", "only list what would be done. Default if stdin is a terminal;\n-dry-run=false writes",
				func(s *settings, value string) error {
					dry, err := switched(value)
					s.dryRun = &dry
					return err
				}},
			toggle("force", "raise counters even if a sequence appears twice, or one is far above\nthe others",
				func(s *settings) *bool { return &s.force }),
			column,
		},
	},
	{
		name: "parse", args: "NUMBER", needs: scheme, run: (*command).parse,
		summary: "print a number's type, sequence and start of the period",
		detail: `This does not use Redis, and ignores $SERIAL_REDIS_URL. If -redis is given, the
time zone is required, as for the other commands. Otherwise -tz defaults to
$SERIAL_TZ, or else to this machine's zone.`,
	},
	{
		name: "template", args: "TEMPLATE", needs: scheme, explains: true, run: (*command).explain,
		summary: "explain a template by examples, or say why it is refused",
		detail: `This does not use Redis, and ignores $SERIAL_REDIS_URL. If the template is
refused, the exit code is 1.`,
	},
	{
		name: "version", needs: nothing, run: (*command).version,
		summary: "print the version of this program",
	},
}

// undated is the help about numbers whose date is not known.
const undated = `If the template prints a more exact date than the period, this prints the
sequence, and the number with today's date.`

// skipping is the help of commands that skip sequences.
const skipping = `If sequences were skipped, two lines of CSV list them: a file for audit
-explained. With -reason and -by, they explain why nobody has these numbers.
Without these flags, the reason is only possible, and explains nothing.`

// reason and by are the flags by which a person explains skipped numbers.
var (
	reason = option{"reason", "TEXT", "why nobody has the skipped numbers; requires -by",
		func(s *settings, text string) (err error) { s.reason, err = notBlank(text); return err }}
	by = option{"by", "NAME", "who says so; requires -reason",
		func(s *settings, name string) (err error) { s.by, err = notBlank(name); return err }}
)

// notBlank refuses a text that audit would read as empty.
func notBlank(text string) (string, error) {
	if strings.TrimSpace(text) == "" {
		return "", errors.New("blank")
	}
	return text, nil
}

// column is the flag -column.
var column = option{"column", "NAME", `read the numbers from this column of CSV input, whose first line
names the columns`,
	func(s *settings, name string) error { s.column = name; return nil }}

// find returns the command of that name.
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

// check refuses empty arguments and a wrong number of arguments. It never prints an argument, which may be a URL with a
// password.
func (s *subcommand) check(want string, args []string) error {
	names := strings.Fields(want)
	for i, name := range names {
		switch {
		case i < len(args) && args[i] == "":
			return misused("%s is empty, perhaps because a shell variable is not set", strings.Trim(name, "[]"))
		case i >= len(args) && !strings.HasPrefix(name, "["):
			return misused("%s takes %s, but %s is missing", s.name, want, name)
		}
	}
	if len(args) > len(names) {
		return misused("too many arguments: got %d, but %s takes %s", len(args), s.name, cmp.Or(want, "none"))
	}
	return nil
}
