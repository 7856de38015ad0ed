package serial

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"time"

	"github.com/redis/go-redis/v9"
)

// An Option configures a [Generator]. Options are checked by [New]; of the same option given twice the last one counts.
type Option interface {
	apply(*config) error
}

type optionFunc func(*config) error

func (f optionFunc) apply(c *config) error { return f(c) }

type config struct {
	location    *time.Location
	format      *format
	limit       int64                                                                 // the largest sequence that format prints
	limitArg    any                                                                   // the same, for scripts
	floor       func(ctx context.Context, typ string, start time.Time) (int64, error) // nil: none
	lockClients []redis.UniversalClient
	maxSkew     time.Duration // negative: not checked
	prefix      string
}

func newConfig(client redis.UniversalClient, opts []Option) (*config, error) {
	standard, err := parseTemplate(defaultTemplate)
	if err != nil {
		return nil, err
	}
	c := &config{
		location: time.Local,
		format:   standard,
		maxSkew:  time.Hour,
		prefix:   "serial",
	}
	errs := []error{checkClient(client)}
	for i, o := range opts {
		if o == nil {
			errs = append(errs, fmt.Errorf("serial: option %d of New is nil", i+1))
			continue
		}
		errs = append(errs, o.apply(c))
	}
	if c.lockClients == nil {
		c.lockClients = []redis.UniversalClient{client}
	}
	c.limit = c.format.maxSeq()
	c.limitArg = c.limit
	return c, errors.Join(errs...)
}

// checkClient refuses what cannot be used, and *redis.Ring: when a shard dies it rehashes keys, and with them counters.
func checkClient(client redis.UniversalClient) error {
	if v := reflect.ValueOf(client); !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil() {
		return errors.New("serial: the Redis client is nil")
	}
	if _, ok := client.(*redis.Ring); ok {
		return errors.New("serial: *redis.Ring is refused: when a shard dies it moves counters to another one; " +
			"use *redis.Client, a Sentinel client or *redis.ClusterClient")
	}
	return nil
}

// WithLocation sets the time zone whose midnight resets the counters. Every process that issues numbers of a type must
// use the same one; where they differ, calls fail with [ErrConflict].
//
// Default [time.Local]; nil is refused.
func WithLocation(loc *time.Location) Option {
	return optionFunc(func(c *config) error {
		if loc == nil {
			return errors.New("serial: WithLocation: the location is nil")
		}
		c.location = loc
		return nil
	})
}

// WithTemplate sets how numbers are printed. A template is literal text with three fields, each exactly once and in any
// order:
//
//	{type}         the business type
//	{date:LAYOUT}  the day, of yyyy or yy (2000 to 2099), MM and dd, each once, and separators: any text but ASCII
//	               letters, digits and braces
//	{seq:WIDTH}    the sequence, padded to WIDTH digits, 1 to 15; {seq} is {seq:4}. A period holds 10^WIDTH-1 numbers.
//
// {{ and }} print a brace. "{type}-{date:yyMMdd}-{seq:6}" gives "PO-211024-000001".
//
// Default "{type}{date:yyyyMMdd}{seq:4}".
func WithTemplate(template string) Option {
	return optionFunc(func(c *config) error {
		f, err := parseTemplate(template)
		if err == nil {
			c.format = f
		}
		return err
	})
}

// WithFloor sets a source that outlives Redis, usually a database's max() over the numbers stored: a function that tells
// the highest sequence of typ that may already have been used in the period that begins at start, 0 if none was. It is
// asked whenever a counter has to be created or repaired, under the lock of that type and period, so that one process
// asks and not all of them. The counter then continues above its answer, and a lost counter is repaired instead of
// giving [ErrCounterLost].
//
// The function's context ends with the caller's, or 7 s after the lock was asked for, before the lock's expiry. Its
// error is returned by the call that needed it, and nothing is issued. An answer below 0 or above the largest sequence
// is an error too.
//
// Default none; nil is refused.
func WithFloor(floor func(ctx context.Context, typ string, start time.Time) (int64, error)) Option {
	return optionFunc(func(c *config) error {
		if floor == nil {
			return errors.New("serial: WithFloor: the function is nil")
		}
		c.floor = floor
		return nil
	})
}

// WithLockClients sets where the lock around opening a period is kept: on independent masters, of which a majority must
// grant it (Redlock). Uniqueness does not rest on the lock; it decides who asks the floor.
//
// Default the counters' own client. An empty list, nil, *redis.Ring and the same client twice are refused.
func WithLockClients(clients ...redis.UniversalClient) Option {
	return optionFunc(func(c *config) error {
		if len(clients) == 0 {
			return errors.New("serial: WithLockClients: no client; leave the option out to lock on the counters' own")
		}
		for i, client := range clients {
			if err := checkClient(client); err != nil {
				return fmt.Errorf("%w (client %d of WithLockClients)", err, i+1)
			}
			for _, other := range clients[:i] {
				if same(client, other) {
					return fmt.Errorf("serial: WithLockClients: client %d is given twice; a majority could never grant the lock", i+1)
				}
			}
		}
		c.lockClients = append([]redis.UniversalClient(nil), clients...)
		return nil
	})
}

// same reports whether both are one client; clients of a type that cannot be compared never are.
func same(a, b redis.UniversalClient) bool {
	return reflect.ValueOf(a).Comparable() && reflect.ValueOf(b).Comparable() && a == b
}

// WithMaxSkew sets by how much Redis's clock may differ from this host's when a period is to be opened. Beyond it the
// call fails with [ErrClockSkew], so that one wild clock does not open a day in 2031.
//
// Default 1 h. 0 is refused; a negative value turns the check off.
func WithMaxSkew(skew time.Duration) Option {
	return optionFunc(func(c *config) error {
		if skew == 0 {
			return errors.New("serial: WithMaxSkew: 0 would refuse every clock; " +
				"allowed are positive values, and negative ones to turn the check off")
		}
		c.maxSkew = skew
		return nil
	})
}

// WithKeyPrefix sets what every key begins with: a namespace for a tenant or an environment. Generators with different
// prefixes share nothing.
//
// Default "serial"; 1 to 64 bytes of letters, digits and - _ . /.
func WithKeyPrefix(prefix string) Option {
	return optionFunc(func(c *config) error {
		if msg := checkName(prefix); msg != "" {
			return fmt.Errorf("serial: WithKeyPrefix(%.80q): %s", prefix, msg)
		}
		c.prefix = prefix
		return nil
	})
}
