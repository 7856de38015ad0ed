package operator

import (
	"context"
	"errors"
	"flag"
	"io"
	"regexp"
	"strconv"
)

// A Setup is how a command is started; the options of serialcmd change it. This package cannot name the types Generator
// and Scheme of package serial, which imports it, nor serialcmd's Register, so they are parameters.
type Setup[Generator, Scheme, Register any] struct {
	Name     string // of the program, for messages
	Args     []string
	Getenv   func(string) string
	Stdin    io.Reader
	Stdout   io.Writer
	Stderr   io.Writer
	Context  context.Context
	Register Register                    // nil for none
	Settings Settings[Generator, Scheme] // nil if the program has a Generator of its own
	Warning  string                      // for whoever issues numbers; "" for none. Settings.Open sets it
}

// Settings are flags for the settings of a Generator.
type Settings[Generator, Scheme any] interface {
	// Define adds the flags. It returns their names in the order of the help.
	Define(flags *flag.FlagSet) (names []string)
	// Help is the part of the program's help about these flags.
	Help() string
	// Typeless reports whether the flags say that numbers have no type.
	Typeless() bool
	// GivenFlags returns the flags, as they were given, for what the Generator does not know or does not tell: the Redis,
	// and where a secret is. They show no password. They are not nil.
	GivenFlags() []string
	// Open returns the Generator, or only a Scheme if the command needs no Redis. argument is the command's first one. A
	// Misuse is an error in the command line.
	Open(need Need, command, argument string) (gen Generator, scheme Scheme, close func() error, err error)
}

// A Need is what a command requires.
type Need int

// In increasing order.
const (
	Nothing  Need = iota // not even the form of numbers
	Form                 // the form of numbers, a Scheme
	Counters             // Redis or, in cmd/serial, counters in memory
	Redis
)

// A Misuse is an error in the command line.
type Misuse struct{ error }

// Misused returns a Misuse that wraps err.
func Misused(err error) error { return Misuse{err} }

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
