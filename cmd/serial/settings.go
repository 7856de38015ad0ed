package main

import (
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/dailyserial/serial"
	"github.com/dailyserial/serial/internal/calendar"
	"github.com/dailyserial/serial/internal/template"
	"github.com/dailyserial/serial/serialcmd"
)

// settings contains the flags for the settings of a generator. It is an option of serialcmd.
type settings struct {
	*serialcmd.Setup
	dial func(url string) (redis.UniversalClient, error)

	url      string // URL of Redis, or "" if there is none
	zone     *time.Location
	calendar calendar.Calendar // calendar for the default template
	template string            // "" for the default
	shared   bool
	keyFile  string          // file with the key that hides sequences, or "" if there is none
	opts     []serial.Option // options for a scheme
	more     []serial.Option // options for a generator, in addition to opts
}

// Apply implements [serialcmd.Option].
func (s *settings) Apply(c *serialcmd.Setup) { s.Setup, c.Settings = c, s }

// Define implements [serialcmd.Settings]. All commands that issue or read numbers have all these flags, so that a shell
// script can keep the flags of a type in one variable.
func (s *settings) Define(flags *flag.FlagSet) (names []string) {
	s.calendar.Unit = calendar.Day
	add := func(name, usage string, set func(value string) error) {
		flags.Func(name, usage, set)
		names = append(names, name)
	}
	text := func(at *string) func(string) error { return func(value string) error { *at = value; return nil } }
	whole := func(option func(int64) serial.Option) func(string) error {
		return func(value string) error {
			n, err := serialcmd.Integer(value, 64)
			s.opts = append(s.opts, option(n))
			return err
		}
	}
	add("redis", "`URL` redis://, rediss:// or unix:// URL of Redis. For Sentinel, add ?master_name=NAME; for a Cluster, "+
		"?addr=HOST:PORT of another node. Default $SERIAL_REDIS_URL", text(&s.url))
	add("tz", "`ZONE` time zone in which days begin: an IANA name, or Local. Required with a Redis URL. Default "+
		"$SERIAL_TZ", func(name string) (err error) { s.zone, err = zone(name); return err })
	add("period", "`PERIOD` period length: "+choices()+". Default day", s.setPeriod)
	add("day-start", "`TIME` time of day at which a business day begins, such as 04:00 or 4h. Default midnight",
		func(value string) error {
			start, err := timeOfDay(value)
			s.opts = append(s.opts, serial.WithDayStart(start))
			return err
		})
	add("year-start", "`MM-DD` first day of the business year, such as 04-01. It applies to the periods year, half-year "+
		"and quarter and to the tokens FFFF, FF, EEEE, EE, S and Q. Default 01-01", s.setYearStart)
	add("template", "`TEXT` template of the numbers. Default {type}{date:yyyyMMdd}{seq:4}, with a date that suits "+
		"-period. The library's default always has yyyyMMdd", text(&s.template))
	add("start", "`SEQ` first sequence of each period. Default 1", whole(serial.WithStart))
	add("last", "`SEQ` last sequence of each period. Default: the largest that the template can print",
		whole(serial.WithLast))
	add("until", "`DATE` last day for which numbers are issued, such as 2026-12-31. Default none",
		func(value string) error {
			day, err := time.Parse(time.DateOnly, value)
			if err != nil {
				return errors.New("want a date such as 2026-12-31")
			}
			s.opts = append(s.opts, serial.WithUntil(serial.OnDateOf(day)))
			return nil
		})
	add("retention", "`N` number of further periods for which a counter is kept, for history and audit. Default 0",
		func(value string) error {
			n, err := serialcmd.Integer(value, strconv.IntSize)
			s.more = append(s.more, serial.WithRetention(int(n)))
			return err
		})
	add("once-for", "`DURATION` time for which the answer to a request is kept, such as 72h. Default 48h",
		func(value string) error {
			d, err := time.ParseDuration(value)
			if err != nil {
				return errors.New("want a duration such as 72h")
			}
			s.more = append(s.more, serial.WithOnceFor(d))
			return nil
		})
	add("hidden-key", "`FILE` file with the key that hides sequences, in hexadecimal. Default: the key in "+
		"$SERIAL_HIDDEN_KEY", text(&s.keyFile))
	add("prefix", "`NAME` prefix of every Redis key. Default serial", func(prefix string) error {
		s.opts = append(s.opts, serial.WithKeyPrefix(prefix))
		return nil
	})
	flags.BoolFunc("shared", "let all types of the prefix share one counter. If the template has no {type}, omit the "+
		"argument TYPE", func(value string) error {
		shared, err := strconv.ParseBool(value)
		if err != nil {
			return errors.New("want true or false")
		}
		s.shared = shared
		return nil
	})
	return append(names, "shared")
}

func (s *settings) setPeriod(name string) error {
	for _, unit := range units {
		if unit.Noun() == name {
			s.calendar.Unit = unit
			return nil
		}
	}
	return errors.New("want " + choices())
}

func (s *settings) setYearStart(value string) error {
	day, err := time.Parse("01-02", value)
	if err != nil {
		return errors.New("want a month and a day such as 04-01")
	}
	s.calendar.YearStart = calendar.NewYearStart(day.Month(), day.Day())
	s.opts = append(s.opts, serial.WithYearStart(day.Month(), day.Day()))
	return nil
}

// Help implements [serialcmd.Settings].
func (s *settings) Help() string {
	return `The defaults of -redis and -tz are $SERIAL_REDIS_URL and $SERIAL_TZ. With a Redis
URL, the time zone is required. Without a URL, only next, parse, template,
completion and version work. Next then counts in memory, so every run starts at
the first number. Parse and template use neither Redis nor $SERIAL_REDIS_URL.
`
}

// Typeless implements [serialcmd.Settings].
func (s *settings) Typeless() bool {
	return s.shared && s.template != "" && !strings.Contains(strings.ReplaceAll(s.template, "{{", ""), "{type}")
}

// GivenFlags implements [serialcmd.Settings]. If the URL may contain a password, it is replaced by the word URL.
func (s *settings) GivenFlags() []string {
	flags := []string{}
	quote := func(value string) string { return "'" + strings.ReplaceAll(value, "'", `'\''`) + "'" }
	if s.url != "" && s.url != s.Getenv("SERIAL_REDIS_URL") {
		shown := quote(s.url)
		if u, err := url.Parse(s.url); err != nil || u.User != nil || namesSecret(s.url) {
			shown = "URL"
		}
		flags = append(flags, "-redis", shown)
	}
	if s.keyFile != "" {
		flags = append(flags, "-hidden-key", quote(s.keyFile))
	}
	return flags
}

// Open implements [serialcmd.Settings].
func (s *settings) Open(need serialcmd.Need, command, argument string) (
	*serial.Generator, *serial.Scheme, func() error, error) {
	if err := s.complete(need, command); err != nil {
		return nil, nil, nil, serialcmd.Misused(err)
	}
	nothing := func() error { return nil }
	switch {
	case command == "template" && s.template != "":
		return nil, nil, nil, serialcmd.Misused(errors.New("template takes the template as its argument; omit -template"))
	case command == "template": // the error is the result of the command, not a misuse
		scheme, err := serial.NewScheme(s.options(argument)...)
		return nil, scheme, nothing, err
	case need == serialcmd.Form:
		scheme, err := serial.NewScheme(s.options(s.template)...)
		if err != nil {
			err = serialcmd.Misused(err)
		}
		return nil, scheme, nothing, err
	}
	client, err := s.connect()
	if err != nil {
		return nil, nil, nil, serialcmd.Misused(err)
	}
	gen, err := serial.New(client, append(s.options(s.template), s.more...)...)
	if err != nil {
		return nil, nil, nil, serialcmd.Misused(errors.Join(err, client.Close()))
	}
	return gen, nil, client.Close, nil
}

// complete sets missing values from the environment or to their defaults. It returns an error if a required value is
// missing.
func (s *settings) complete(need serialcmd.Need, command string) (err error) {
	if need != serialcmd.Form && s.url == "" { // parse and template ignore the variable
		s.url = s.Getenv("SERIAL_REDIS_URL")
	}
	if need == serialcmd.Redis && s.url == "" {
		return fmt.Errorf("%s needs a Redis URL: -redis or $SERIAL_REDIS_URL", command)
	}
	if name := s.Getenv("SERIAL_TZ"); s.zone == nil && name != "" {
		if serialcmd.IsRedisURL(name) { // the URL may contain a password
			name = "URL"
		}
		if s.zone, err = zone(name); err != nil {
			return fmt.Errorf("$SERIAL_TZ %q: %w", name, err)
		}
	}
	if s.zone == nil && s.url != "" {
		if _, err := check(s.url); err != nil {
			return fmt.Errorf("the Redis URL: %w", err)
		}
		return errors.New("with a Redis URL, the time zone of all processes is required: -tz or $SERIAL_TZ")
	}
	local := "that of this machine" // Go does not know the name of this zone
	if s.zone == nil {
		s.zone = time.Local
	}
	if s.zone != time.Local {
		local = s.zone.String()
	}
	s.Warning = fmt.Sprintf("without a Redis URL, the counter is lost after this run; the time zone is %s, now UTC%s",
		local, time.Now().In(s.zone).Format("-07:00"))
	return s.hide()
}

// hide adds the option for hidden sequences, if there is a key.
func (s *settings) hide() error {
	digits, from := s.Getenv("SERIAL_HIDDEN_KEY"), "$SERIAL_HIDDEN_KEY"
	if s.keyFile != "" {
		text, err := os.ReadFile(s.keyFile)
		if err != nil { // the message omits the name, because it may be the key itself
			return fmt.Errorf("-hidden-key: the file cannot be read: %w", errors.Unwrap(err))
		}
		digits, from = string(text), "-hidden-key"
	}
	if digits == "" && s.keyFile == "" {
		return nil
	}
	key, err := hex.DecodeString(strings.TrimSpace(digits))
	if err != nil || len(key) == 0 { // the message omits err, because it contains a part of the key
		return fmt.Errorf("%s: want a key of 32, 48 or 64 hexadecimal digits", from)
	}
	s.opts = append(s.opts, serial.WithHiddenSequence(key))
	return nil
}

// options returns the options for a scheme with the given template, or with the default template if text is "".
func (s *settings) options(text string) []serial.Option {
	opts := slices.Clip(s.opts)
	if s.shared {
		opts = append(opts, serial.WithSharedCounter())
	}
	return append(opts, serial.WithLocation(s.zone), serial.WithPeriod(serial.Period(s.calendar.Unit)),
		serial.WithTemplate(cmp.Or(text, template.Usual(s.calendar))))
}

// connect returns the client for the generator. It sends nothing to Redis.
func (s *settings) connect() (redis.UniversalClient, error) {
	if s.url == "" {
		return embedded(), nil
	}
	s.Warning = ""
	client, err := s.dial(s.url)
	if err != nil {
		return nil, fmt.Errorf("the Redis URL: %w", err)
	}
	return client, nil
}

// embedded returns a client of a Redis in the memory of this process. This Redis starts with the first command, and
// does not listen on the network.
func embedded() redis.UniversalClient {
	m := miniredis.NewMiniRedis()
	m.ClockTTL(true) // so that keys expire
	return redis.NewClient(&redis.Options{
		Addr:   "127.0.0.1:0", // not used, but go-redis would look up a host name
		Dialer: func(context.Context, string, string) (net.Conn, error) { return m.Dial() },
	})
}

// secretName matches the name of an option for a password in the query of a URL, such as ?password=x, even if the name
// is misspelled.
var secretName = regexp.MustCompile(`(?i)p\w*w|pass`)

// namesSecret reports whether a URL may contain a password outside its user information.
func namesSecret(address string) bool {
	text, err := url.QueryUnescape(address)
	return err != nil || secretName.MatchString(text)
}

// dial returns a client for a URL. Its errors never contain a password or a part of a password.
func dial(address string) (client redis.UniversalClient, err error) {
	query, err := check(address)
	if err != nil {
		return nil, err
	}
	defer func() {
		if p := recover(); p != nil { // go-redis panics if it can parse an option but not use it
			client, err = nil, fmt.Errorf("invalid option: %v", p)
		}
		// If a password contains an &, the error of go-redis contains the rest of the password as an unknown option.
		if err != nil && namesSecret(address) {
			err = errors.New("unknown option or wrong value; in a password, write & as %26")
		}
	}()
	switch {
	case query.Get("master_name") != "":
		o, err := redis.ParseFailoverURL(address)
		if err != nil {
			return nil, err
		}
		if o.DialerRetries == 0 { // five attempts, the default, take longer than a call may, so the cause would be lost
			o.DialerRetries = 1
		}
		return redis.NewFailoverClient(o), nil
	case query.Has("addr"):
		o, err := redis.ParseClusterURL(address)
		if err != nil {
			return nil, err
		}
		return redis.NewClusterClient(o), nil
	}
	o, err := redis.ParseURL(address)
	if err != nil {
		return nil, err
	}
	return redis.NewClient(o), nil
}

// scheme matches the beginning of a URL that go-redis accepts.
var scheme = regexp.MustCompile(`^(?i:rediss?|unix):/`)

// check returns the query of a URL. It returns an error if the scheme is wrong, or if a special character in the
// password may have split the URL. A part of the password would then be parsed as the port, the path or an option, and
// errors could contain it.
func check(address string) (url.Values, error) {
	const encode = "percent-encode special characters: %2F for /, %3F for ?, %23 for #, %40 for @, %25 for %"
	if !scheme.MatchString(address) {
		return nil, errors.New("want a URL that begins with redis://, rediss:// or unix://, such as redis://localhost:6379")
	}
	u, err := url.Parse(address)
	if err != nil || strings.Contains(address, "#") {
		return nil, errors.New("want redis://USER:PASSWORD@HOST:PORT/DB; " + encode)
	}
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return nil, errors.New("invalid query; " + encode)
	}
	socket := u.Scheme == "unix" && u.Host == "" // the path of a socket can contain an @
	if strings.Contains(u.RawQuery, "@") || !socket && strings.Contains(u.EscapedPath(), "@") {
		return nil, errors.New("got an @ after the host; " + encode)
	}
	return query, nil
}

// units contains the values of -period.
var units = []calendar.Unit{calendar.Second, calendar.Minute, calendar.Hour, calendar.Day, calendar.Week,
	calendar.Month, calendar.Quarter, calendar.HalfYear, calendar.Year, calendar.Never}

// choices returns the values of -period as text.
func choices() string {
	var names []string
	for _, unit := range units {
		names = append(names, unit.Noun())
	}
	last := len(names) - 1
	return strings.Join(names[:last], ", ") + " or " + names[last]
}

// zone returns the time zone with the given name.
func zone(name string) (*time.Location, error) {
	loc, err := time.LoadLocation(name)
	if err != nil {
		return nil, errors.New("want an IANA time zone such as Asia/Shanghai")
	}
	return loc, nil
}

// timeOfDay parses a time of day or a duration, and returns the duration since midnight.
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
