package main

import (
	"slices"
	"strings"
	"time"

	"github.com/dailyserial/serial"
)

// read reads the command line and the environment. Its error is a misuse or errHelp.
func (s *settings) read(line []string, getenv func(string) string) error {
	if len(line) == 0 {
		return misused("no command")
	}
	name, line := line[0], line[1:]
	switch name {
	case "-h", "-help", "--help":
		return errHelp
	case "help":
		if len(line) == 0 || line[0] == "help" {
			return errHelp
		}
		name, line = line[0], []string{"-h"}
	}
	var err error
	if s.row, err = find(name); err != nil {
		return err
	}
	s.n, s.start, s.period = s.row.n, 1, daily
	if err := s.split(line); err != nil {
		return err
	}
	args, typeless := s.row.args, s.typeless()
	if typeless {
		args = strings.TrimPrefix(strings.TrimPrefix(args, "TYPE "), "[TYPE] ")
		args = strings.TrimPrefix(args, "TYPE")
	}
	if err := s.row.check(args, s.args); err != nil {
		return err
	}
	if s.row.needs == nothing {
		return nil
	}
	if args != s.row.args {
		s.args = append([]string{""}, s.args...)
	}
	return s.complete(getenv)
}

// typeless reports whether numbers have no type.
func (s *settings) typeless() bool {
	return s.shared && s.template != "" && !strings.Contains(strings.ReplaceAll(s.template, "{{", ""), "{type}")
}

// series names a type's numbers: by the type, or by the series if types share it.
func (s *settings) series(typ string) string {
	if s.shared {
		typ, _ = s.scheme.Series(typ)
	}
	return typ
}

// split separates flags from arguments, and sets the flags. Package flag would stop at the first argument.
func (s *settings) split(line []string) error {
	options := s.row.options()
	lookup := func(word string) (o *option, name, value string, hasValue bool) {
		name, value, hasValue = strings.Cut(strings.TrimPrefix(strings.TrimPrefix(word, "-"), "-"), "=")
		if i := slices.IndexFunc(options, func(o option) bool { return o.name == name }); i >= 0 {
			o = &options[i]
		}
		return o, name, value, hasValue
	}
	for len(line) > 0 {
		word := line[0]
		line = line[1:]
		if word == "--" {
			s.args = append(s.args, line...)
			return nil
		}
		if !isFlag(word) {
			s.args = append(s.args, word)
			continue
		}
		o, name, value, given := lookup(word)
		switch {
		case o == nil && (name == "h" || name == "help"):
			return errHelp
		case o == nil:
			return misused("%s has no flag -%s", s.row.name, name)
		case given:
		case o.value == "":
			value = "true"
		case len(line) == 0:
			return misused("-%s needs a value", name)
		default:
			value, line = line[0], line[1:]
			// An unset variable without quotes leaves no word at all. Then the next word is not the value.
			if next, _, _, _ := lookup(value); value == "--" || isFlag(value) && next != nil {
				return misused("-%s needs a value, but a flag follows; if that is the value, write -%s=VALUE", name, name)
			}
		}
		// An empty value usually comes from an unset shell variable. If it meant the default, the command would issue
		// numbers without the URL, or without -once.
		if value == "" {
			return misused("-%s is empty, perhaps because a shell variable is not set; give a value, or omit the flag", name)
		}
		switch err := o.set(s, value).(type) {
		case nil:
		case misuse:
			return err
		default:
			return misused("-%s %q: %w", name, value, err)
		}
	}
	return nil
}

// isFlag reports whether a word is a flag. "-" and negative numbers are arguments.
func isFlag(word string) bool {
	return len(word) > 1 && word[0] == '-' && (word[1] < '0' || word[1] > '9')
}

// complete adds values from the environment and defaults, and fails if a required one is missing.
func (s *settings) complete(getenv func(string) string) error {
	if s.row.needs != scheme && s.url == "" { // these commands only use a URL on the command line
		s.url = getenv("SERIAL_REDIS_URL") // here, empty means not set
	}
	if s.row.needs == redisURL && s.url == "" {
		return misused("%s needs a Redis URL: -redis or $SERIAL_REDIS_URL", s.row.name)
	}
	if name := getenv("SERIAL_TZ"); s.zone == nil && name != "" {
		var err error
		if s.zone, err = zone(name); err != nil {
			return misused("$SERIAL_TZ %q: %w", name, err)
		}
	}
	if s.zone == nil && s.url != "" {
		return misused("with a Redis URL, the time zone of all other processes is required: -tz or $SERIAL_TZ")
	}
	if s.zone == nil {
		s.zone = time.Local
	}
	if digits := getenv("SERIAL_HIDDEN_KEY"); s.hiddenKey == nil && digits != "" {
		var err error
		if s.hiddenKey, err = hiddenKey(digits); err != nil {
			return misused("$SERIAL_HIDDEN_KEY: %w", err)
		}
	}
	if s.hiddenKey != nil {
		s.opts = append(s.opts, serial.WithHiddenSequence(s.hiddenKey))
	}
	if s.row.explains {
		if s.template != "" {
			return misused("%s takes the template as its argument; omit -template", s.row.name)
		}
		s.template = s.args[0]
	}
	if s.template == "" {
		s.template = s.defaultTemplate()
	}
	s.opts = append(s.opts, serial.WithLocation(s.zone), serial.WithPeriod(s.period.per), serial.WithTemplate(s.template),
		serial.WithStart(s.start))
	if s.shared {
		s.opts = append(s.opts, serial.WithSharedCounter())
	}
	return nil
}

// defaultTemplate prints the date that matches the period, as the library's messages assume.
func (s *settings) defaultTemplate() string {
	date := s.period.date
	switch {
	case date == "":
		return "{type}{seq:4}"
	case s.period.per == serial.PerYear && s.yearStart != "" && s.yearStart != "01-01":
		date = "FFFF"
	}
	return "{type}{date:" + date + "}{seq:4}"
}
