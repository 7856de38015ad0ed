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

// An option is a flag. The errors of set do not show the value; the caller adds it.
type option struct {
	name  string
	value string // placeholder for the value in the help; "" for a switch
	text  string
	set   func(s *settings, value string) error // value is not empty
}

// common are the flags of every command that deals with numbers. All these commands accept all of them, so that a
// script can keep a type's flags in one variable.
var common = []option{
	{"redis", "URL", `redis://, rediss:// or unix://. Add ?master_name=NAME for Sentinel,
or ?addr=HOST:PORT of another node for Cluster. Default $SERIAL_REDIS_URL`,
		func(s *settings, url string) error { s.url = url; return nil }},
	{"tz", "ZONE", `time zone whose midnight resets the counters: an IANA name, or Local
for this machine's. Default $SERIAL_TZ. Required with a Redis URL`,
		func(s *settings, name string) (err error) { s.zone, err = zone(name); return err }},
	{"period", "PERIOD", "when numbers start again: one of\n" + choices() + ".\nDefault day",
		func(s *settings, name string) error {
			i := slices.IndexFunc(periods, func(p period) bool { return p.name == name })
			if i < 0 {
				return errors.New("want " + choices())
			}
			s.period = periods[i]
			return nil
		}},
	{"day-start", "TIME", "when a business day begins, such as 04:00 or 4h. Default 0, midnight",
		func(s *settings, value string) error {
			start, err := timeOfDay(value)
			s.dayStart = start
			s.opts = append(s.opts, serial.WithDayStart(start))
			return err
		}},
	{"year-start", "MM-DD", `first day of the business year, such as 04-01; for the periods year,
half-year and quarter and for the tokens FFFF, FF, EEEE, EE, S and Q. Default 01-01`,
		func(s *settings, value string) error {
			day, err := time.Parse("01-02", value)
			if err != nil {
				return errors.New("want a month and a day such as 04-01")
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
	{"last", "SEQ", "the last sequence of a period. Default the largest that the template prints",
		func(s *settings, value string) error {
			last, err := integer(value, 64)
			s.opts = append(s.opts, serial.WithLast(last))
			return err
		}},
	{"until", "DATE", "the last day for which numbers are issued, such as 2026-12-31. Default none",
		func(s *settings, value string) error {
			day, err := time.Parse(time.DateOnly, value)
			if err != nil {
				return errors.New("want a date such as 2026-12-31")
			}
			s.opts = append(s.opts, serial.WithUntil(serial.OnDateOf(day)))
			return nil
		}},
	{"retention", "N", "how many periods to keep counters after their own period, for history\nand audit. Default 0",
		func(s *settings, value string) error {
			n, err := integer(value, strconv.IntSize)
			s.more = append(s.more, serial.WithRetention(int(n)))
			return err
		}},
	{"once-for", "DURATION", "how long a request's answer is kept, such as 72h. Default 48h",
		func(s *settings, value string) error {
			d, err := time.ParseDuration(value)
			if err != nil {
				return errors.New("want a duration such as 72h")
			}
			s.more = append(s.more, serial.WithOnceFor(d))
			return nil
		}},
	{"hidden-key", "FILE", `file with the key that hides sequences, in hexadecimal digits.
Default $SERIAL_HIDDEN_KEY, which contains these digits`,
		func(s *settings, name string) error {
			text, err := os.ReadFile(name)
			if err != nil { // the name may be the key itself, so it is not shown
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
	toggle("shared", `all types of the prefix share a counter. Without {type} in the template,
there is no TYPE`, func(s *settings) *bool { return &s.shared }),
	toggle("json", "print one JSON object per line", func(s *settings) *bool { return &s.json }),
}

// toggle returns a flag that is on or off.
func toggle(name, text string, at func(*settings) *bool) option {
	return option{name, "", text, func(s *settings, value string) (err error) {
		*at(s), err = switched(value)
		return err
	}}
}

// hiddenKey reads the key of a hidden sequence. Its errors never show a part of the key.
func hiddenKey(text string) ([]byte, error) {
	key, err := hex.DecodeString(strings.TrimSpace(text))
	if err != nil || len(key) == 0 {
		return nil, errors.New("want a key of 32, 48 or 64 hexadecimal digits")
	}
	return key, nil
}

// switched reads the value of a switch.
func switched(value string) (bool, error) {
	on, err := strconv.ParseBool(value)
	if err != nil {
		return false, errors.New("want true or false")
	}
	return on, nil
}

// count returns the flag -n.
func count(value, text string) option {
	return option{"n", value, text, func(s *settings, value string) error {
		n, err := integer(value, strconv.IntSize)
		if err == nil && n < 1 {
			err = errors.New("want at least 1")
		}
		s.n = int(n)
		return err
	}}
}

// choices returns the values of -period.
func choices() string {
	var names []string
	for _, p := range periods {
		names = append(names, p.name)
	}
	last := len(names) - 1
	return strings.Join(names[:last], ", ") + " or " + names[last]
}

// integer reads a whole decimal number. It may have leading zeros, as a sequence copied from a number does.
func integer(value string, bits int) (int64, error) {
	n, err := strconv.ParseInt(value, 10, bits)
	switch {
	case errors.Is(err, strconv.ErrRange):
		return 0, errors.New("out of range")
	case err != nil:
		return 0, errors.New("want a whole number such as 1000, without underscores or prefixes such as 0x")
	}
	return n, nil
}

// zone finds a time zone. The name must not be empty, which LoadLocation takes for UTC.
func zone(name string) (*time.Location, error) {
	loc, err := time.LoadLocation(name)
	if err != nil {
		return nil, errors.New("want an IANA time zone such as Asia/Shanghai")
	}
	return loc, nil
}

// timeOfDay reads a time of day or a duration, and returns it as the time since midnight.
func timeOfDay(value string) (time.Duration, error) {
	for _, layout := range []string{"15:04", "15:04:05"} {
		if t, err := time.Parse(layout, value); err == nil {
			return t.Sub(time.Date(0, 1, 1, 0, 0, 0, 0, time.UTC)), nil
		}
	}
	d, err := time.ParseDuration(value)
	if err != nil {
		return 0, errors.New("want a time of day such as 04:00, or a duration such as 4h")
	}
	return d, nil
}
