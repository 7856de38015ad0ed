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

// An Option configures a [Generator]; some also configure a [Scheme]. [New] and [NewScheme] check the options. Their
// order does not matter; if an option is given twice, the last one counts.
type Option interface {
	apply(*config) error
}

// An option is the only implementation of Option.
type option struct {
	name      string
	forScheme bool  // allowed for NewScheme
	err       error // error in the arguments, nil if they are valid
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

// refuseIf returns an error if an argument is wrong.
func refuseIf(wrong bool, format string, args ...any) error {
	if !wrong {
		return nil
	}
	return fmt.Errorf(format, args...)
}

type config struct {
	scheme
	schemeOnly  bool                    // NewScheme was called
	issuing     series.Config           // settings for the series alone
	ledger      Ledger                  // nil for none
	lockClients []redis.UniversalClient // nil for the counters' own client
	hooks       []Hooks
	program     programName // of the command that errors name
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
			"serial: WithPeriod(PerSecond): a second is too short to ask a floor or a ledger; "+
				"want PerMinute or longer, or PerSecond without WithFloor and WithLedger"),
		refuseIf(unit == calendar.Never && c.issuing.Retention > 0,
			"serial: WithRetention(%d): Never has one period, which is kept anyway; leave the option out",
			c.issuing.Retention))
	return c, errors.Join(append(errs, c.complete()...)...)
}

// applyAll applies options.
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

// newSeries returns the series of c's scheme.
func (c *config) newSeries() *series.Series {
	i, t := c.issuing, c.template
	i.Prefix, i.Shared, i.Calendar, i.Counts, i.PrintMark = c.prefix, c.shared, c.calendar, c.counts(), t.PrintMark()
	i.Base, i.Limit, i.Template, i.Key = c.base, c.limit, c.text, cmp.Or(t.Fingerprint, plain)
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

// isNil reports whether v is nil or holds a nil pointer, function, map, slice or channel.
func isNil(v any) bool {
	nillable := []reflect.Kind{reflect.Pointer, reflect.Func, reflect.Map, reflect.Slice, reflect.Chan}
	r := reflect.ValueOf(v)
	return !r.IsValid() || slices.Contains(nillable, r.Kind()) && r.IsNil()
}

// checkClient refuses a nil client, and a *redis.Ring, which moves keys to another shard when one dies.
func checkClient(client redis.UniversalClient) error {
	// Only a Ring has this method, so a type that embeds one is refused too.
	_, ring := client.(interface{ SetAddrs(map[string]string) })
	return cmp.Or(
		refuseIf(isNil(client), "serial: the Redis client is nil"),
		refuseIf(ring, "serial: *redis.Ring moves counters to another shard when one dies; "+
			"want *redis.Client, a Sentinel client or *redis.ClusterClient"))
}

// WithStart sets the first sequence of every period. It applies to periods opened from then on; a period that is
// already open continues where it is. With [Never] there is only one period, so the option applies once.
//
// [Generator.Peek], [Generator.History] and [Generator.Audit] of the period entered last, or of a prepared one, use the
// start with which that period was opened. For earlier periods they use the Generator's own start, so audit those
// periods before you change it.
//
// Default 1. It must be 1 to the largest sequence that the template prints; see [Scheme.Limits].
func WithStart(seq int64) Option {
	err := refuseIf(seq < 1,
		"serial: WithStart(%d): want 1 to the largest sequence that the template prints", seq)
	return option{"WithStart", true, err, func(c *config) { c.base = seq - 1 }}
}

// WithLast sets the last sequence of every period: the end of an authorised range of numbers. After it, calls fail with
// [ErrExhausted]. It may change at any time, and processes may differ meanwhile. [Generator.Raise] and
// [Generator.Takeover] above it are refused. A floor may answer more, up to the largest sequence that the template
// prints: the range is then used up. Reading and parsing numbers ignore it; [Scheme.Limits] returns it.
//
// Default the largest sequence that the template prints. It must be at least the first sequence, see [WithStart], and
// at most that largest one.
func WithLast(seq int64) Option {
	err := refuseIf(seq < 1,
		"serial: WithLast(%d): want the first sequence to the largest that the template prints", seq)
	return option{"WithLast", true, err, func(c *config) { c.last = seq }}
}

// WithLockClients sets the servers that keep the lock for opening a period: independent masters, of which a majority
// must grant it (Redlock). Uniqueness does not depend on the lock, which only decides who asks the floor.
//
// Each client must reach a server of its own, because a server grants a lock only once. If two clients reach the same
// server, and the other clients are not a majority, no caller ever gets the lock: a call that has to open a period
// waits, and then fails with an error that mentions this possibility.
//
// Default the counters' own client. An empty list, a nil client, a *redis.Ring and the same client twice are refused.
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
					"only once; give every server once", j+1, i+1)
			}
		}
	}
	return refuseIf(len(clients) == 0,
		"serial: WithLockClients: no client is given; leave the option out to lock on the counters' own client")
}

// WithMaxSkew sets how far Redis's clock may differ from this host's when a period is opened or a prepared period is
// entered. Beyond that, calls fail with [ErrClockSkew], so a wrong clock does not open a day in 2031.
//
// Default 1 h. 0 is refused; a negative value turns the check off.
func WithMaxSkew(skew time.Duration) Option {
	err := refuseIf(skew == 0, "serial: WithMaxSkew(0) would refuse every clock; "+
		"want positive values, or negative ones to turn the check off")
	return option{"WithMaxSkew", false, err, func(c *config) { c.issuing.MaxSkew = skew }}
}

// WithOnceFor sets how long [Generator.NextOnce] remembers an answer, from when it was first given; a repetition does
// not extend that. It applies to requests answered from then on. Redis needs about 250 bytes for each.
//
// Default 48 h. It must be a minute to 40 days.
func WithOnceFor(d time.Duration) Option {
	err := refuseIf(d < time.Minute || d > 40*24*time.Hour,
		"serial: WithOnceFor(%v): want 1m to 960h, which is 40 days", d)
	return option{"WithOnceFor", false, err, func(c *config) { c.issuing.OnceFor = d }}
}

// WithReplicas requires that n replicas confirm every number within timeout, before it is returned. If n is the number
// of all replicas that may be promoted, the next master that Redis promotes has the number. WAIT asks for the
// confirmation, sent together with the command that it confirms. If too few replicas confirm, the call fails with
// [ErrNotReplicated], and its numbers are gaps.
//
// Default 0, which waits for no replica. n must be 0 to 1,000. The timeout must be whole milliseconds, at least one,
// and at most half of the client's read timeout, or 2.5 s if that is unlimited. The client must be a *redis.Client or a
// *redis.ClusterClient itself, not a type that embeds one.
func WithReplicas(n int, timeout time.Duration) Option {
	err := cmp.Or(
		refuseIf(n < 0 || n > 1000, "serial: WithReplicas(%d, %v): want 0 to 1000 replicas", n, timeout),
		refuseIf(n > 0 && (timeout < time.Millisecond || timeout%time.Millisecond != 0),
			"serial: WithReplicas(%d, %v): want timeouts of whole milliseconds, at least one", n, timeout))
	replicas := series.Replicas{N: n, Timeout: timeout}
	return option{"WithReplicas", false, err, func(c *config) { c.issuing.Replicas = replicas }}
}

// checkReplicas limits the timeout to half of the read timeout, which leaves half for everything else. It refuses other
// types of client, which may send WAIT to a different server from the write.
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
	most := cmp.Or(series.ReadTimeout(client)/2, series.AnswerTime/4)
	return refuseIf(c.Timeout > most,
		"serial: WithReplicas(%d, %v): want timeouts up to %v, half of the client's read timeout",
		c.N, c.Timeout, most)
}

// WithKeyPrefix sets the beginning of every key: a namespace for a tenant or an environment. Generators with different
// prefixes share nothing.
//
// Default "serial". It must be valid as a type; see [ErrInvalidType].
func WithKeyPrefix(prefix string) Option {
	err := name.Check(prefix)
	if err != nil {
		err = fmt.Errorf("serial: WithKeyPrefix(%.80q): %w", prefix, err)
	}
	return option{"WithKeyPrefix", true, err, func(c *config) { c.prefix = prefix }}
}

// WithSharedCounter makes all types of the key prefix count together, as one series: FA2101-0001, AV2101-0002. Each
// number is printed with its caller's type. Only with this option may a template leave {type} out; the type is then "",
// in calls and in Numbers, and any other is [ErrInvalidType].
//
// Every process of the key prefix must have this option. Nothing detects one without it, which counts each type by
// itself and so prints numbers that exist already. To join types that have counted by themselves, start all processes
// again when a period begins, or use another key prefix and another literal in the template; see docs/settings.md.
//
// A [Ledger] and package gapless see the series that [Scheme.Series] returns, such as "serial:*". A floor is called
// with "", and must answer for all types. [Generator.Peek], [Generator.Raise] and the other methods take any valid
// type, act on the series, and print its numbers with that type. An audit counts the numbers of all types.
// [Generator.NextOnce] with an ID that was answered with another type is [ErrConflict].
//
// Default: each type has a series of its own.
func WithSharedCounter() Option {
	return option{"WithSharedCounter", true, nil, func(c *config) { c.shared = true }}
}

// WithFloor sets a function that asks a source that outlives Redis, usually for the greatest number in a database. It
// returns the highest sequence of typ that may already have been used in the period that begins at start, 0 if none
// was. It is called whenever a counter has to be created or repaired, under the lock of that type and period, so only
// one process asks. The counter then continues above the answer, so a lost counter is repaired, without
// [ErrCounterLost]. The answer must not fall when a document is deleted; otherwise its number is issued again after a
// loss.
//
// The function's context ends with the caller's, and at the latest 7 s after the lock was requested, before the lock
// expires. It ends earlier if Redis was slow, because all steps of a call share 10 s. If the function fails, the call
// returns its error, and nothing is issued. An answer below 0, or above the largest sequence that
// the template prints, is an error too.
//
// Default none; nil is refused.
func WithFloor(floor func(ctx context.Context, typ string, start time.Time) (int64, error)) Option {
	err := refuseIf(floor == nil, "serial: WithFloor: the function is nil")
	return option{"WithFloor", false, err, func(c *config) { c.issuing.Floor = floor }}
}
