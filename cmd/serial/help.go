package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// errHelp asks for the help of the command, or of the program if there is no command.
var errHelp = errors.New("help was requested")

// synopsis is the command with its arguments.
func (s *subcommand) synopsis(flags ...string) string {
	return strings.TrimSpace(strings.Join(slices.Concat([]string{"serial", s.name}, flags, []string{s.args}), " "))
}

// usage is the synopsis with "[flags]" if there are any.
func (s *subcommand) usage() string {
	if len(s.options()) == 0 {
		return s.synopsis()
	}
	return s.synopsis("[flags]")
}

// hint returns the usage line for misuse of a command, or of the program if row is nil.
func hint(row *subcommand) string {
	if row == nil {
		return `usage: serial COMMAND [flags] ARGUMENTS ("serial help" lists the commands)`
	}
	return fmt.Sprintf(`usage: %s ("serial help %s" explains it)`, row.usage(), row.name)
}

// help returns the help of a command, or of the program if row is nil.
func help(row *subcommand) string {
	var b strings.Builder
	if row == nil {
		b.WriteString("Usage: serial COMMAND [flags] ARGUMENTS\n\nCommands:\n")
		for _, s := range commands {
			fmt.Fprintf(&b, "  %-27s %s\n", s.synopsis(), s.summary)
		}
		b.WriteString(`
"serial help COMMAND" lists the flags of a command. They may come before or
after its arguments, and -- ends them. $SERIAL_REDIS_URL and $SERIAL_TZ are the
defaults of -redis and -tz. With a Redis URL, the time zone is required. Without
one, only next, parse, template and version work.

The exit code is 0 for success, 1 for a failure, 2 for an invalid command line,
for which nothing was sent to Redis, and 3 for an audit that found something.
`)
		return b.String()
	}
	fmt.Fprintf(&b, "Usage: %s\n\n%s%s.\n", row.usage(), strings.ToUpper(row.summary[:1]), row.summary[1:])
	if row.detail != "" {
		b.WriteString(row.detail + "\n")
	}
	for i, o := range row.options() {
		if i == 0 {
			b.WriteString("\nFlags, before or after the arguments:\n")
		}
		text := strings.ReplaceAll(o.text, "\n", "\n"+strings.Repeat(" ", 20))
		fmt.Fprintf(&b, "  %-17s %s\n", strings.TrimSuffix("-"+o.name+" "+o.value, " "), text)
	}
	return b.String()
}
