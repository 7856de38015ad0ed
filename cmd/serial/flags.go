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
	set   func(c *command, value string) error // value is not empty, and "true" or "false" for a switch
}

// common are the flags of every command that deals with numbers. These commands accept all of them, since a type's flags
// must be the same for each command: a script can keep them in one variable.
var common = []option{
	{"redis", "URL", `redis://, rediss:// or unix://. Add ?master_name=NAME for Sentinel,
or ?addr=HOST:PORT of another node for Cluster. Default $SERIAL_REDIS_URL`,
		func(c *command, url string) error { c.url = url; return nil }},
	{"tz", "ZONE", `whose midnight resets the counters: an IANA name, or Local for this
machine's. Default $SERIAL_TZ. Required with a Redis URL`,
		func(c *command, name string) (err error) { c.zone, err = zone(name); return err }},
	{"period", "PERIOD", "when numbers start again: one of\n" + choices() + ".\nDefault day",
		func(c *command, name string) error {
			i := slices.IndexFunc(periods, func(p period) bool { return p.name == name })
			if i < 0 {
				return errors.New("allowed are " + strings.Replace(choices(), " or ", " and ", 1))
			}
			c.period = periods[i]
			return nil
		}},
	{"day-start", "TIME", "when a business day begins, as in 04:00 or 4h. Default 0, midnight",
		func(c *command, value string) error {
			start, err := timeOfDay(value)
			c.dayStart = start
			c.opts = append(c.opts, serial.WithDayStart(start))
			return err
		}},
	{"year-start", "MM-DD", `first day of the business year, as in 04-01; for the periods year and
quarter and for the tokens FFFF, FF, EEEE, EE and Q. Default 01-01`,
		func(c *command, value string) error {
			day, err := time.Parse("01-02", value)
			if err != nil {
				return errors.New("not a month and a day, such as 04-01")
			}
			c.yearStart = value
			c.opts = append(c.opts, serial.WithYearStart(day.Month(), day.Day()))
			return nil
		}},
	{"template", "TEXT", `how a number is printed. Default {type}{date:yyyyMMdd}{seq:4}, with a
date that matches -period`,
		func(c *command, template string) error { c.template = template; return nil }},
	{"start", "SEQ", "the first sequence of a period. Default 1",
		func(c *command, value string) (err error) { c.start, err = integer(value, 64); return err }},
	{"retention", "N", "how many periods counters are kept for after their own, for history\nand audit. Default 0",
		func(c *command, value string) error {
			n, err := integer(value, strconv.IntSize)
			c.more = append(c.more, serial.WithRetention(int(n)))
			return err
		}},
	{"hidden-key", "FILE", `a file with the key that hides sequences, in hexadecimal digits.
Default $SERIAL_HIDDEN_KEY, which has these digits itself`,
		func(c *command, name string) error {
			text, err := os.ReadFile(name)
			if err != nil { // the name is not shown: it may be the key itself
				return misused("-hidden-key: the file cannot be read: %w", errors.Unwrap(err))
			}
			if c.hiddenKey, err = hiddenKey(string(text)); err != nil {
				return misused("-hidden-key: %w", err)
			}
			return nil
		}},
	{"prefix", "NAME", "prefix of all keys in Redis. Default serial",
		func(c *command, prefix string) error {
			c.opts = append(c.opts, serial.WithKeyPrefix(prefix))
			return nil
		}},
	{"json", "", "print one JSON object per line",
		func(c *command, value string) (err error) {
			c.json, err = switched(value)
			return err
		}},
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
		return false, errors.New("allowed are true and false")
	}
	return on, nil
}

// count is the flag -n.
func count(value, text string) option {
	return option{"n", value, text, func(c *command, value string) error {
		n, err := integer(value, strconv.IntSize)
		if err == nil && n < 1 {
			err = errors.New("at least 1")
		}
		c.n = int(n)
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

// integer reads a whole number in decimal, also one with leading zeros, such as a sequence that was copied from a number.
func integer(value string, bits int) (int64, error) {
	n, err := strconv.ParseInt(value, 10, bits)
	switch {
	case errors.Is(err, strconv.ErrRange):
		return 0, errors.New("out of range")
	case err != nil:
		return 0, errors.New("not a whole number; allowed are the digits 0 to 9, as in 1000, without underscores and " +
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
func (c *command) read(line []string, getenv func(string) string) error {
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
	if c.row, err = find(name); err != nil {
		return err
	}
	c.n, c.start, c.period = c.row.n, 1, daily
	if err := c.split(line); err != nil {
		return err
	}
	if err := c.row.check(c.args); err != nil {
		return err
	}
	if c.row.needs == nothing {
		return nil
	}
	return c.complete(getenv)
}

// split separates flags from arguments, and sets the flags. Package flag would stop at the first argument.
func (c *command) split(line []string) error {
	options := c.row.options()
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
			c.args = append(c.args, line...)
			return nil
		}
		if !isFlag(word) {
			c.args = append(c.args, word)
			continue
		}
		o, name, value, given := lookup(word)
		switch {
		case o == nil && (name == "h" || name == "help"):
			return errHelp
		case o == nil:
			return misused("%s has no flag -%s", c.row.name, name)
		case given:
		case o.value == "":
			value = "true"
		case len(line) == 0:
			return misused("-%s needs a value", name)
		default:
			value, line = line[0], line[1:]
			// A variable that is not set, without quotes, leaves no word at all. The next word is not meant as the value then.
			if next, _, _, _ := lookup(value); value == "--" || isFlag(value) && next != nil {
				return misused("-%s needs a value, and a flag follows; if that is the value, write -%s=VALUE", name, name)
			}
		}
		// An empty value usually comes from a shell variable that is not set. If it meant the default, the command would issue
		// numbers without the URL, or without -once.
		if value == "" {
			return misused("-%s: it is empty, perhaps from a shell variable that is not set; give a value, or omit the flag",
				name)
		}
		switch err := o.set(c, value).(type) {
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
func (c *command) complete(getenv func(string) string) error {
	if c.row.needs != scheme && c.url == "" { // otherwise only a URL on the command line counts
		c.url = getenv("SERIAL_REDIS_URL") // here, empty is the same as not set
	}
	if c.row.needs == redisURL && c.url == "" {
		return misused("%s needs a Redis URL: -redis or $SERIAL_REDIS_URL", c.row.name)
	}
	if name := getenv("SERIAL_TZ"); c.zone == nil && name != "" {
		var err error
		if c.zone, err = zone(name); err != nil {
			return misused("$SERIAL_TZ %q: %w", name, err)
		}
	}
	if c.zone == nil && c.url != "" {
		return misused("with a Redis URL the time zone is required, the same as in all other processes: -tz or $SERIAL_TZ")
	}
	if c.zone == nil {
		c.zone = time.Local
	}
	if digits := getenv("SERIAL_HIDDEN_KEY"); c.hiddenKey == nil && digits != "" {
		var err error
		if c.hiddenKey, err = hiddenKey(digits); err != nil {
			return misused("$SERIAL_HIDDEN_KEY: %w", err)
		}
	}
	if c.hiddenKey != nil {
		c.opts = append(c.opts, serial.WithHiddenSequence(c.hiddenKey))
	}
	if c.row.explains {
		if c.template != "" {
			return misused("%s takes the template as its argument; omit -template", c.row.name)
		}
		c.template = c.args[0]
	}
	if c.template == "" {
		c.template = c.defaultTemplate()
	}
	c.opts = append(c.opts, serial.WithLocation(c.zone), serial.WithPeriod(c.period.per), serial.WithTemplate(c.template),
		serial.WithStart(c.start))
	return nil
}

// defaultTemplate prints the date that suits the period, as messages of the library assume.
func (c *command) defaultTemplate() string {
	date := c.period.date
	switch {
	case date == "":
		return "{type}{seq:4}"
	case c.period.per == serial.PerYear && c.yearStart != "" && c.yearStart != "01-01":
		date = "FFFF"
	}
	return "{type}{date:" + date + "}{seq:4}"
}
