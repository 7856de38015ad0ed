// Package program connects package serialcmd with what it needs and the public API does not have: the settings of a
// Generator, and flags for such settings in cmd/serial.
//
// Package serial imports this package, so Generators and Schemes have type any here.
package program

import (
	"context"
	"errors"
	"flag"
	"io"
	"regexp"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/dailyserial/serial/internal/calendar"
)

// A Config is what the options of serialcmd set.
type Config struct {
	Name     string // of the program, for messages
	Args     []string
	Getenv   func(string) string
	Stdin    io.Reader
	Stdout   io.Writer
	Stderr   io.Writer
	Context  context.Context
	Register any      // a serialcmd.Register; nil for none
	Settings Settings // nil if the program has a Generator of its own
	Warning  string   // for whoever issues numbers; "" for none. Settings.Open sets it
}

// Settings are flags for the settings of a Generator.
type Settings interface {
	// Define adds the flags. It returns their names in the order of the help.
	Define(flags *flag.FlagSet) (names []string)
	// Help is the part of the program's help about these flags.
	Help() string
	// Typeless reports whether the flags say that numbers have no type.
	Typeless() bool
	// GivenFlags returns the flags, as they were given, for what the Generator does not know or does not tell: the Redis,
	// and where a secret is. They show no password. They are not nil.
	GivenFlags() []string
	// Open returns the *serial.Generator, or the *serial.Scheme if the command needs no Redis. argument is the command's
	// first one. A Misuse is an error in the command line.
	Open(need Need, command, argument string) (generator any, close func() error, err error)
}

// A Need is what a command requires.
type Need int

// In increasing order.
const (
	Nothing  Need = iota // not even the form of numbers
	Scheme               // the form of numbers
	Counters             // Redis or, in cmd/serial, counters in memory
	Redis
)

// A Misuse is an error in the command line.
type Misuse struct{ error }

// Misused returns a Misuse that wraps err.
func Misused(err error) error { return Misuse{err} }

// Facts are settings of a *serial.Generator or a *serial.Scheme. The second part is zero for a Scheme.
type Facts struct {
	Calendar calendar.Calendar
	Template string
	PrintSeq func(seq int64) string // as the template prints it, but never hidden
	Shared   bool                   // types share a counter
	Hidden   bool                   // a key hides sequences

	Client      redis.UniversalClient
	Ledger      bool
	LedgerFails func() bool             // the last request to the ledger has not succeeded
	Leave       func(typ string) string // command that leaves the ledger
}

// Remedy returns what ends an error of a ledger: what the error itself says, as that of package sqlledger for a missing
// table, or to wait.
func Remedy(err error) string {
	if known, ok := errors.AsType[interface {
		error
		Remedy() string
	}](err); ok {
		return known.Remedy()
	}
	return "wait for its database"
}

// Describe returns the facts of a *serial.Generator or a *serial.Scheme. Package serial sets it.
var Describe func(generator any) Facts

// Derive returns a copy of a *serial.Generator whose errors name commands of the program. flags are nil if these need no
// flags for its settings; otherwise they come after the others. hooks are serial.Hooks, in addition to the Generator's.
// Package serial sets it.
var Derive func(generator any, name string, flags []string, hooks any) any

// Integer reads a whole decimal number. It may have leading zeros, as a sequence copied from a number does.
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

// redisURL matches the URL of a Redis, and any URL with a user or a password.
var redisURL = regexp.MustCompile(`^(?i:rediss?|unix):/|://.*@`)

// IsRedisURL reports whether a word seems to be the URL of a Redis. It may contain a password, so no message shows it.
func IsRedisURL(word string) bool { return redisURL.MatchString(word) }

// Instant parses the value of a column.
func Instant(value string) (time.Time, error) {
	t, err := time.Parse(time.RFC3339, value)
	if err != nil {
		return t, errors.New("want an RFC 3339 time such as 2021-10-24T17:05:00Z")
	}
	return t, nil
}

// Once sets at to the value of a flag, and refuses a second one: whoever gives two files wants both.
func Once(at *string) func(value string) error {
	given := false
	return func(value string) error {
		if given {
			return errors.New("the flag is given twice")
		}
		*at, given = value, true
		return nil
	}
}
