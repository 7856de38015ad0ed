package serialcmd

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"
)

// errHelp is the error if help is requested, either for a command or, if the command line contains none, for the
// program.
var errHelp = errors.New("help was requested")

// usage returns the usage of a command on one line, without its options.
func (c *command) usage(s *subcommand) string {
	words := c.Name + " " + s.name
	if len(s.options(c)) > 0 {
		words += " [flags]"
	}
	return strings.TrimSpace(words + " " + c.arguments(s))
}

// hint returns the line that precedes an error in the command line.
func (c *command) hint() string {
	if c.row == nil {
		return fmt.Sprintf("usage: %s COMMAND [flags] ARGUMENTS (%q lists the commands)", c.Name, c.Name+" help")
	}
	return fmt.Sprintf("usage: %s (%q explains it)", c.usage(c.row), c.Name+" help "+c.row.name)
}

// help returns the help of the command. If the command line contains no command, it returns the help of the program.
func (c *command) help() string {
	var b strings.Builder
	if c.row == nil {
		fmt.Fprintf(&b, "Usage: %s COMMAND [flags] ARGUMENTS\n\nCommands:\n", c.Name)
		for _, s := range commands() {
			fmt.Fprintf(&b, "  %-27s %s\n", s.name+" "+c.arguments(&s), s.summary)
		}
		fmt.Fprintf(&b, `
%q lists the flags of a command. Flags may come before or
after the command and its arguments, and -- ends them.
`, c.Name+" help COMMAND")
		if c.Settings != nil {
			b.WriteString(c.Settings.Help())
		}
		b.WriteString(`
The exit code is 0 for success, 1 for a failure, 2 for an invalid command line,
for which nothing was sent to Redis, and 3 for an audit that found something.
`)
		return b.String()
	}
	fmt.Fprintf(&b, "Usage: %s\n\n%s%s.\n", c.usage(c.row), strings.ToUpper(c.row.summary[:1]), c.row.summary[1:])
	if c.row.detail != "" {
		wrap(&b, c.row.detail, 0)
	}
	for i, f := range c.row.options(c) {
		if i == 0 {
			b.WriteString("\nFlags, before or after the arguments:\n")
		}
		value, text := describeFlag(f)
		fmt.Fprintf(&b, "  %-18s", strings.TrimSuffix("-"+f.Name+" "+value, " "))
		wrap(&b, text, 21)
	}
	return b.String()
}

// describeFlag returns the placeholder for the value of a flag, which is "" for a switch, and the help without the
// placeholder.
func describeFlag(f *flag.Flag) (value, text string) {
	value, text = flag.UnquoteUsage(f)
	return value, strings.TrimPrefix(text, value+" ")
}

// wrap writes a text in lines of at most 90 columns. The first line begins at the column indent, because that many
// columns are already written. The other lines are indented by as many.
func wrap(b *strings.Builder, text string, indent int) {
	column, gap := indent, strings.Repeat(" ", min(indent, 1))
	for _, word := range strings.Fields(text) {
		if column+len(word) >= 90 {
			column, gap = indent, "\n"+strings.Repeat(" ", indent)
		}
		b.WriteString(gap + word)
		column, gap = column+len(word)+1, " "
	}
	b.WriteString("\n")
}

func (c *command) version(context.Context) error {
	info, ok := debug.ReadBuildInfo()
	if !ok { // the program was built without modules
		info = &debug.BuildInfo{GoVersion: runtime.Version()}
	}
	_, _ = fmt.Fprintln(c.out, describe(c.Name, info))
	return nil
}

// describe returns the name and the version of the program, the version of the library if it is a separate module, and
// the version of Go.
func describe(name string, info *debug.BuildInfo) string {
	text := name + " " + cmp.Or(info.Main.Version, "(devel)")
	for _, m := range info.Deps {
		if m.Path == "github.com/dailyserial/serial" {
			text += ", serial " + m.Version
		}
	}
	return text + ", " + info.GoVersion
}

// completion prints a script that completes commands and flags. In all other positions, the script completes file
// names.
func (c *command) completion(context.Context) error {
	script := map[string]func(){"bash": c.completeBash, "zsh": c.completeZsh, "fish": c.completeFish}[c.args[0]]
	if script == nil {
		return misused("no script for the shell %q; want bash, zsh or fish", c.args[0])
	}
	script()
	return nil
}

func (c *command) completeBash() {
	name := c.functionName()
	c.printf(`%s() {
  local word command list at=$COMP_CWORD current=${COMP_WORDS[COMP_CWORD]}
  for word in "${COMP_WORDS[@]:1:at-1}"; do
    case $word in %s) command=$word; break ;; esac
  done
  case $command,$current in
%s  esac
  COMPREPLY=($(compgen -W "$list" -- "$current"))
}
complete -o default -F %[1]s %[4]s
`, name, strings.Join(commandNames(), " | "), c.completionCases(), quoted(c.Name))
}

func (c *command) completeZsh() {
	name := c.functionName()
	c.printf(`#compdef %[4]s
%[1]s() {
  local word command list current=${words[CURRENT]}
  for word in "${words[@]:1:$((CURRENT - 2))}"; do
    case $word in %[2]s) command=$word; break ;; esac
  done
  case $command,$current in
%[3]s  esac
  if [[ -n $list ]]; then compadd -- ${=list}; else _files; fi
}
if [[ ${funcstack[1]} == %[1]s ]]; then %[1]s "$@"; else compdef %[1]s %[4]s; fi
`, name, strings.Join(commandNames(), " | "), c.completionCases(), quoted(c.Name))
}

// completionCases returns the cases of the case statement for COMMAND,WORD. They are the same in bash and zsh.
func (c *command) completionCases() string {
	var b strings.Builder
	for _, s := range commands() {
		if flags := s.options(c); len(flags) > 0 {
			fmt.Fprintf(&b, "    %s,-*) list='", s.name)
			for _, f := range flags {
				b.WriteString(" -" + f.Name)
			}
			b.WriteString("' ;;\n")
		}
	}
	fmt.Fprintf(&b, "    completion,*) list='bash zsh fish' ;;\n    ,-*) ;;\n    ,* | help,*) list='%s' ;;\n",
		strings.Join(commandNames(), " "))
	return b.String()
}

func (c *command) completeFish() {
	line := func(condition, format string, args ...any) {
		c.printf("complete -c %s -n %s "+format+"\n", append([]any{quoted(c.Name), quoted(condition)}, args...)...)
	}
	const seen = "__fish_seen_subcommand_from "
	names := strings.Join(commandNames(), " ")
	line(seen+"help", "-f -a %s", quoted(names))
	line(seen+"completion", "-f -a 'bash zsh fish'")
	line("not "+seen+names, "-f -a help -d 'explain a command'")
	for _, s := range commands() {
		line("not "+seen+names, "-f -a %s -d %s", s.name, quoted(s.summary))
		for _, f := range s.options(c) {
			_, text := describeFlag(f)
			value := " -r" // a value is required
			if isSwitch(f) {
				value = ""
			}
			line(seen+s.name, "-o %s%s -d %s", f.Name, value, quoted(text))
		}
	}
}

// functionName returns the name of the shell function that completes the program.
func (c *command) functionName() string {
	return "_" + strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' {
			return r
		}
		return '_'
	}, c.Name)
}

// quoted returns a word in single quotes, in the syntax of shells.
func quoted(word string) string { return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'" }

// commandNames returns the names of all commands.
func commandNames() (all []string) {
	for _, s := range commands() {
		all = append(all, s.name)
	}
	return append(all, "help")
}
