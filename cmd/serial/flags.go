package main

import (
	"encoding/hex"
	"errors"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/dailyserial/serial"
)

// An option is a flag. No error of set shows the value; the caller does.
type option struct {
	name  string
	value string // placeholder for the value in the help; "" for a switch
	text  string
	set   func(s *settings, value string) error // value is not empty, and "true" or "false" for a switch
}

// common are the flags of every command that deals with numbers. These commands accept all of them, since a type's
// flags must be the same for each command: a script can keep them in one variable.
var common = []option{
	{"redis", "URL", `redis://, rediss:// or unix://. Add ?master_name=NAME for Sentinel,
or ?addr=HOST:PORT of another node for Cluster. Default $SERIAL_REDIS_URL`,
		func(s *settings, url string) error { s.url = url; return nil }},
	{"tz", "ZONE", `whose midnight resets the counters: an IANA name, or Local for this
machine's. Default $SERIAL_TZ. Required with a Redis URL`,
		func(s *settings, name string) (err error) { s.zone, err = zone(name); return err }},
	{"period", "PERIOD", "when numbers start again: one of\n" + choices() + ".\nDefault day",
		func(s *settings, name string) error {
			i := slices.IndexFunc(periods, func(p period) bool { return p.name == name })
			if i < 0 {
				return errors.New("want " + strings.Replace(choices(), " or ", " and ", 1))
			}
			s.period = periods[i]
			return nil
		}},
	{"day-start", "TIME", "when a business day begins, as in 04:00 or 4h. Default 0, midnight",
		func(s *settings, value string) error {
			start, err := timeOfDay(value)
			s.dayStart = start
			s.opts = append(s.opts, serial.WithDayStart(start))
			return err
		}},
	{"year-start", "MM-DD", `first day of the business year, as in 04-01; for the periods year and
quarter and for the tokens FFFF, FF, EEEE, EE and Q. Default 01-01`,
		func(s *settings, value string) error {
			day, err := time.Parse("01-02", value)
			if err != nil {
				return errors.New("not a month and a day, such as 04-01")
			}
			s.yearStart = value
			s.opts = append(s.opts, serial.WithYearStart(day.Month(), day.Day()))
			return nil
		}},
	{"template", "TEXT", `how a number is printed. Default {type}{date:yyyyMMdd}{seq:4}, with a
date that matches -period`,
		func(s *settings, template string) error { s.template = template; return nil }},
	{"start", "SEQ", "the first sequence of a period. Default 1",
		func(s *settings, value string) (err error) { s.start, err = integer(value, 64); return err }},
	{"retention", "N", "how many periods counters are kept for after their own, for history\nand audit. Default 0",
		func(s *settings, value string) error {
			n, err := integer(value, strconv.IntSize)
			s.more = append(s.more, serial.WithRetention(int(n)))
			return err
		}},
	{"hidden-key", "FILE", `a file with the key that hides sequences, in hexadecimal digits.
Default $SERIAL_HIDDEN_KEY, which has these digits itself`,
		func(s *settings, name string) error {
			text, err := os.ReadFile(name)
			if err != nil { // the name is not shown: it may be the key itself
				return misused("-hidden-key: the file cannot be read: %w", errors.Unwrap(err))
			}
			if s.hiddenKey, err = hiddenKey(string(text)); err != nil {
				return misused("-hidden-key: %w", err)
			}
			return nil
		}},
	{"prefix", "NAME", "prefix of all keys in Redis. Default serial",
		func(s *settings, prefix string) error {
			s.opts = append(s.opts, serial.WithKeyPrefix(prefix))
			return nil
		}},
	toggle("json", "print one JSON object per line", func(s *settings) *bool { return &s.json }),
}

// toggle is a flag that is on or off.
func toggle(name, text string, at func(*settings) *bool) option {
	return option{name, "", text, func(s *settings, value string) (err error) {
		*at(s), err = switched(value)
		return err
	}}
}

// hiddenKey reads the key of a hidden sequence. No error of it shows a part of the key.
func hiddenKey(text string) ([]byte, error) {
	key, err := hex.DecodeString(strings.TrimSpace(text))
	if err != nil || len(key) == 0 {
		return nil, errors.New("not a key of 32, 48 or 64 hexadecimal digits")
	}
	return key, nil
}

// switched reads the value of a switch.
func switched(value string) (bool, error) {
	on, err := strconv.ParseBool(value)
	if err != nil {
		return false, errors.New("want true and false")
	}
	return on, nil
}

// count is the flag -n.
func count(value, text string) option {
	return option{"n", value, text, func(s *settings, value string) error {
		n, err := integer(value, strconv.IntSize)
		if err == nil && n < 1 {
			err = errors.New("at least 1")
		}
		s.n = int(n)
		return err
	}}
}

// choices are the values of -period.
func choices() string {
	var names []string
	for _, p := range periods {
		names = append(names, p.name)
	}
	last := len(names) - 1
	return strings.Join(names[:last], ", ") + " or " + names[last]
}

// integer reads a whole number in decimal, also one with leading zeros, such as a sequence that was copied from a
// number.
func integer(value string, bits int) (int64, error) {
	n, err := strconv.ParseInt(value, 10, bits)
	switch {
	case errors.Is(err, strconv.ErrRange):
		return 0, errors.New("out of range")
	case err != nil:
		return 0, errors.New("not a whole number; want the digits 0 to 9, as in 1000, without underscores and " +
			"prefixes such as 0x")
	}
	return n, nil
}

// zone finds a time zone. LoadLocation takes "" for UTC, so it must not be empty.
func zone(name string) (*time.Location, error) {
	loc, err := time.LoadLocation(name)
	if err != nil {
		return nil, errors.New("not an IANA time zone, such as Asia/Shanghai")
	}
	return loc, nil
}

// timeOfDay reads a time by the clock, as the time since midnight, or a duration.
func timeOfDay(value string) (time.Duration, error) {
	for _, layout := range []string{"15:04", "15:04:05"} {
		if t, err := time.Parse(layout, value); err == nil {
			return t.Sub(time.Date(0, 1, 1, 0, 0, 0, 0, time.UTC)), nil
		}
	}
	d, err := time.ParseDuration(value)
	if err != nil {
		return 0, errors.New("not a time of day, such as 04:00, and not a duration, such as 4h")
	}
	return d, nil
}

// read reads the command line and the environment. Its errors are misuse, or errHelp.
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
	if err := s.row.check(s.args); err != nil {
		return err
	}
	if s.row.needs == nothing {
		return nil
	}
	return s.complete(getenv)
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
			// A variable that is not set, without quotes, leaves no word at all. The next word is not meant as the
			// value then.
			if next, _, _, _ := lookup(value); value == "--" || isFlag(value) && next != nil {
				return misused("-%s needs a value, and a flag follows; if that is the value, write -%s=VALUE", name, name)
			}
		}
		// An empty value usually comes from a shell variable that is not set. If it meant the default, the command
		// would issue numbers without the URL, or without -once.
		if value == "" {
			return misused("-%s: it is empty, perhaps from a shell variable that is not set; give a value, or omit the flag",
				name)
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

// isFlag reports whether a word is a flag and not an argument, such as "-" or a negative number.
func isFlag(word string) bool {
	return len(word) > 1 && word[0] == '-' && (word[1] < '0' || word[1] > '9')
}

// complete adds values from the environment and the defaults, and fails if one is missing.
func (s *settings) complete(getenv func(string) string) error {
	if s.row.needs != scheme && s.url == "" { // otherwise only a URL on the command line counts
		s.url = getenv("SERIAL_REDIS_URL") // here, empty is the same as not set
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
		return misused("with a Redis URL the time zone is required, the same as in all other processes: -tz or $SERIAL_TZ")
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
	return nil
}

// defaultTemplate prints the date that suits the period, as messages of the library assume.
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
