package serial

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/dailyserial/serial/internal/calendar"
	"github.com/dailyserial/serial/internal/name"
	"github.com/dailyserial/serial/internal/series"
)

// An Option configures a [Generator] or a [Scheme]. [New] and [NewScheme] check the options. If an option is given more
// than once, the last one applies, except for [WithHooks]. The order of different options has no effect.
type Option interface {
	apply(*config) error
}

// The type option is the only implementation of Option.
type option struct {
	name      string
	forScheme bool  // whether NewScheme accepts the option
	err       error // error in the arguments, or nil if they are valid
	set       func(*config)
}

func (o option) apply(c *config) error {
	if c.schemeOnly && !o.forScheme {
		return fmt.Errorf("serial: NewScheme: %s is for a Generator; want WithLocation, WithTemplate, WithPeriod, "+
			"WithDayStart, WithYearStart, WithStart, WithLast, WithUntil, WithSharedCounter, WithHiddenSequence and "+
			"WithKeyPrefix", o.name)
	}
	if o.err == nil {
		o.set(c)
	}
	return o.err
}

// refuseIf returns an error with the formatted text if wrong is true, and nil otherwise.
func refuseIf(wrong bool, format string, args ...any) error {
	if !wrong {
		return nil
	}
	return fmt.Errorf(format, args...)
}

type config struct {
	scheme
	schemeOnly  bool                    // whether only options for a Scheme are accepted
	issuing     series.Config           // settings that a Scheme does not have
	ledger      Ledger                  // nil if there is no ledger
	lockClients []redis.UniversalClient // nil if the client of the counters has the lock
	hooks       []Hooks
	program     programName // program for the commands in errors
}

func newConfig(client redis.UniversalClient, opts []Option) (*config, error) {
	c := &config{scheme: newScheme()}
	c.issuing.Client, c.issuing.MaxSkew, c.issuing.OnceFor = client, time.Hour, 48*time.Hour
	err := checkClient(client)
	errs := append([]error{err}, c.applyAll(opts)...)
	if err == nil {
		errs = append(errs, checkReplicas(client, c.issuing.Replicas))
	}
	unit := c.calendar.Unit
	errs = append(errs,
		refuseIf(unit == calendar.Second && (c.issuing.Floor != nil || c.ledger != nil),
			"serial: WithPeriod(PerSecond): a second is too short to query a floor or a ledger; "+
				"want PerMinute or longer, or PerSecond without WithFloor and WithLedger"),
		refuseIf(unit == calendar.Never && c.issuing.Retention > 0,
			"serial: WithRetention(%d): Never has one period, which is kept anyway; leave the option out", c.issuing.Retention))
	return c, errors.Join(append(errs, c.complete()...)...)
}

// applyAll applies the options, and returns their errors.
func (c *config) applyAll(opts []Option) (errs []error) {
	for i, o := range opts {
		if o == nil {
			errs = append(errs, fmt.Errorf("serial: option %d is nil", i+1))
			continue
		}
		errs = append(errs, o.apply(c))
	}
	return errs
}

// newSeries returns a Series with the settings of c.
func (c *config) newSeries() *series.Series {
	i, t := c.issuing, c.template
	i.Prefix, i.Shared, i.Calendar, i.Counts, i.PrintMark = c.prefix, c.shared, c.calendar, c.counts(), t.PrintMark()
	i.Base, i.Limit, i.Template, i.Fingerprint = c.base, c.limit, c.text, cmp.Or(t.Fingerprint, plain)
	i.Largest, i.Until = t.Largest(), c.over
	i.Seconds, i.SpanAt = t.Dates.Finest == calendar.Second, t.Dates.SpanAt
	if floor := i.Floor; c.shared && floor != nil {
		i.Floor = func(ctx context.Context, _ string, start time.Time) (int64, error) { return floor(ctx, "", start) }
	}
	if c.ledger != nil {
		i.Reserve = func(ctx context.Context, typ, label string, above, n int64) (int64, error) {
			return c.ledger.Reserve(ctx, Reservation{c.series(typ), label, i.Counts, i.PrintMark, above, n})
		}
	}
	return series.New(i)
}

// isNil reports whether v is nil, or an interface value that contains a nil pointer, function, map, slice or channel.
func isNil(v any) bool {
	nillable := []reflect.Kind{reflect.Pointer, reflect.Func, reflect.Map, reflect.Slice, reflect.Chan}
	r := reflect.ValueOf(v)
	return !r.IsValid() || slices.Contains(nillable, r.Kind()) && r.IsNil()
}

// checkClient returns an error if client is nil or a *redis.Ring. When a shard of a Ring fails, the Ring uses another
// shard for its keys, which does not have the counters.
func checkClient(client redis.UniversalClient) error {
	// Only a Ring, or a type that embeds one, has this method.
	_, ring := client.(interface{ SetAddrs(map[string]string) })
	return cmp.Or(
		refuseIf(isNil(client), "serial: the Redis client is nil"),
		refuseIf(ring, "serial: *redis.Ring moves counters to another shard when one fails; "+
			"want *redis.Client, a Sentinel client or *redis.ClusterClient"))
}

// WithStart sets the first sequence of every period that is opened afterwards. A period that is already open continues
// from its counter. With [Never] there is only one period, so the option has no effect once that period is open.
//
// For the current period and a prepared one, [Generator.Peek], [Generator.History] and [Generator.Audit] use the start
// with which the period was opened. For earlier periods, Redis does not know that start, so these methods use the start
// of the Generator. Therefore audit earlier periods before you change the option.
//
// seq must be 1 to the largest sequence that the template prints; see [Scheme.Limits]. The default is 1.
func WithStart(seq int64) Option {
	err := refuseIf(seq < 1, "serial: WithStart(%d): want 1 to the largest sequence that the template prints", seq)
	return option{"WithStart", true, err, func(c *config) { c.base = seq - 1 }}
}

// WithLast sets the last sequence of every period, for example the end of an authorized range of numbers. Calls that
// would exceed it fail with [ErrExhausted]. [Generator.Raise] and [Generator.Takeover] refuse a larger sequence. You
// may change the option at any time, and processes may have different values during the change.
//
// A floor may return a larger sequence, up to the largest that the template prints; the period is then exhausted. The
// option does not affect how numbers are parsed. [Scheme.Limits] returns its value.
//
// seq must be at least the first sequence (see [WithStart]), and at most the largest sequence that the template prints,
// which is the default.
func WithLast(seq int64) Option {
	err := refuseIf(seq < 1, "serial: WithLast(%d): want the first sequence to the largest that the template prints", seq)
	return option{"WithLast", true, err, func(c *config) { c.last = seq }}
}

// WithLockClients keeps the lock for opening a period on the servers of the given clients. The servers must be
// independent masters. A call gets the lock if a majority of them grants it (Redlock). Numbers are unique even if the
// lock fails. The lock only determines which process queries the floor or the ledger.
//
// Every client must connect to a different server. If two clients connect to the same server, only one of them can get
// the lock there, and the rest may be too few for a majority. Calls that have to open a period then wait and fail. New
// cannot detect this, but the error of the call mentions it.
//
// By default, the lock is on the server that has the counters. New returns an error if the list is empty, or if it
// contains a nil client, a *redis.Ring, or the same client twice.
func WithLockClients(clients ...redis.UniversalClient) Option {
	clients = slices.Clone(clients)
	err := checkLockClients(clients)
	return option{"WithLockClients", false, err, func(c *config) { c.lockClients = clients }}
}

func checkLockClients(clients []redis.UniversalClient) error {
	for i, client := range clients {
		if err := checkClient(client); err != nil {
			return fmt.Errorf("%w (client %d of WithLockClients)", err, i+1)
		}
		for j, other := range clients[:i] {
			if reflect.ValueOf(client).Comparable() && client == other {
				return fmt.Errorf("serial: WithLockClients: clients %d and %d are the same client, and a server grants a lock "+
					"only once; pass each server once", j+1, i+1)
			}
		}
	}
	return refuseIf(len(clients) == 0,
		"serial: WithLockClients: no client is given; leave the option out to lock on the counters' own client")
}

// WithMaxSkew sets the largest accepted difference between Redis's clock and this host's clock when a period has to be
// opened, or a prepared period has to be entered. If the clocks differ by more, calls fail with [ErrClockSkew]. This
// prevents a Redis server whose clock is far ahead from opening a day in 2031, for example.
//
// The default is 1 hour. A negative value turns the check off. New returns an error for 0.
func WithMaxSkew(skew time.Duration) Option {
	err := refuseIf(skew == 0, "serial: WithMaxSkew(0) would refuse every clock; "+
		"want a positive value, or a negative one to turn the check off")
	return option{"WithMaxSkew", false, err, func(c *config) { c.issuing.MaxSkew = skew }}
}

// WithOnceFor sets how long [Generator.NextOnce] remembers the number of a request. The time begins with the first
// answer, and repeating the request does not extend it. Changing the duration affects only requests that are first
// answered after the change. Redis needs about 250 bytes for each request.
//
// d must be 1 minute to 40 days. The default is 48 hours.
func WithOnceFor(d time.Duration) Option {
	err := refuseIf(d < time.Minute || d > 40*24*time.Hour,
		"serial: WithOnceFor(%v): want 1m to 960h, which is 40 days", d)
	return option{"WithOnceFor", false, err, func(c *config) { c.issuing.OnceFor = d }}
}

// WithReplicas makes every call wait until n replicas have confirmed its numbers, but not longer than the timeout. If n
// is the number of all replicas, a failover loses none of these numbers. With a smaller n, the replicas that confirm
// may not include the one that is promoted. The confirmation is requested with WAIT, in the same round trip. If too few
// replicas confirm, the call fails with [ErrNotReplicated], and its numbers are a gap.
//
// n must be 0 to 1,000. The default is 0, which waits for no replica. timeout must be at least 1 ms, a multiple of 1
// ms, at most half of the client's read timeout, and at most 2.5 s. The client must be a *redis.Client or a
// *redis.ClusterClient, not a type that embeds one.
func WithReplicas(n int, timeout time.Duration) Option {
	err := cmp.Or(
		refuseIf(n < 0 || n > 1000, "serial: WithReplicas(%d, %v): want 0 to 1000 replicas", n, timeout),
		refuseIf(n > 0 && (timeout < time.Millisecond || timeout%time.Millisecond != 0),
			"serial: WithReplicas(%d, %v): want timeouts of whole milliseconds, at least one", n, timeout))
	replicas := series.Replicas{N: n, Timeout: timeout}
	return option{"WithReplicas", false, err, func(c *config) { c.issuing.Replicas = replicas }}
}

// checkReplicas returns an error if the timeout is longer than half of the client's read timeout, because the rest of
// the call needs time, too. It also refuses other types of clients, because they may send WAIT and the write to
// different servers.
func checkReplicas(client redis.UniversalClient, c series.Replicas) error {
	if c.N == 0 {
		return nil
	}
	switch client.(type) {
	case *redis.Client, *redis.ClusterClient:
	default:
		return fmt.Errorf("serial: WithReplicas with a client of type %T; "+
			"want *redis.Client or *redis.ClusterClient", client)
	}
	longest := cmp.Or(series.ReadTimeout(client)/2, series.AnswerTime/4)
	return refuseIf(c.Timeout > longest,
		"serial: WithReplicas(%d, %v): want timeouts up to %v, half of the client's read timeout (2.5s at most)",
		c.N, c.Timeout, longest)
}

// WithKeyPrefix sets the first part of every Redis key, for example the name of a tenant or an environment. Generators
// with different prefixes have different counters and locks.
//
// The prefix must be valid as a type; see [ErrInvalidType]. The default is "serial".
func WithKeyPrefix(prefix string) Option {
	err := name.Check(prefix)
	if err != nil {
		err = fmt.Errorf("serial: WithKeyPrefix(%.80q): %w", prefix, err)
	}
	return option{"WithKeyPrefix", true, err, func(c *config) { c.prefix = prefix }}
}

// WithSharedCounter makes all types of the key prefix share one counter, as one series: FA2101-0001, AV2101-0002. Each
// number is printed with the type of its call. Only with this option may a template omit {type}. The type must then be
// "" in calls and is "" in Numbers; calls with any other type fail with [ErrInvalidType].
//
// Every process with the key prefix must have this option. A process without it is not detected. It uses a separate
// counter for each type, and prints numbers that already exist. To combine types that have had separate counters,
// restart all processes at the beginning of a period, or use another key prefix and another literal in the template;
// see docs/settings.md.
//
// [Scheme.Series] returns the name of the series for a [Ledger] and for package gapless, such as "serial:*". A floor is
// called with the type "", and must return the highest sequence of all types. [Generator.Peek], [Generator.Raise] and
// the other methods accept any valid type. They act on the whole series, and print its numbers with that type. An audit
// includes the numbers of all types. [Generator.NextOnce] fails with [ErrConflict] if the number of the request was
// issued for another type.
//
// By default, each type has a separate series.
func WithSharedCounter() Option {
	return option{"WithSharedCounter", true, nil, func(c *config) { c.shared = true }}
}

// WithFloor sets a function that gets a type and the first instant of a period, and returns the highest sequence that
// may have been used in that period, or 0 if none was used. Usually it queries the database in which the numbers are
// stored. The function is called when a counter has to be created or repaired. The counter then continues above the
// answer. So a call that finds a lost counter repairs it, and does not fail with [ErrCounterLost]. The lock of the type
// and period is held during the query, so only one process runs it at a time. Only [Generator.Raise] and
// [Generator.Takeover] run the query without the lock.
//
// The answer must not become lower when a document is deleted. Otherwise the number of that document may be issued
// again after a loss.
//
// The context of the function ends when the context of the caller ends. It also ends at most 7 s after the lock was
// requested, which is before the lock expires. If the function fails, the call returns its error, and nothing is
// issued. The call also fails if the answer is negative or larger than the template can print.
//
// There is no floor by default. The function must not be nil.
func WithFloor(floor func(ctx context.Context, typ string, start time.Time) (int64, error)) Option {
	err := refuseIf(floor == nil, "serial: WithFloor: the function is nil")
	return option{"WithFloor", false, err, func(c *config) { c.issuing.Floor = floor }}
}
