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

	"github.com/dailyserial/serial/internal/budget"
	"github.com/dailyserial/serial/internal/calendar"
	"github.com/dailyserial/serial/internal/issue"
	"github.com/dailyserial/serial/internal/name"
	"github.com/dailyserial/serial/internal/redisrun"
)

// An Option configures a [Generator], and some configure a [Scheme]. [New] and [NewScheme] check the options. If an option is
// given twice, the last one counts.
type Option interface {
	apply(*config) error
}

// An option is the only Option.
type option struct {
	name     string
	ofScheme bool // allowed for NewScheme
	set      func(*config) error
}

func (o option) apply(c *config) error {
	if c.schemeOnly && !o.ofScheme {
		return fmt.Errorf("serial: NewScheme: %s is for a Generator; allowed are WithLocation, WithTemplate, WithPeriod, WithDayStart, "+
			"WithYearStart, WithStart, WithHiddenSequence and WithKeyPrefix", o.name)
	}
	return o.set(c)
}

type config struct {
	scheme
	schemeOnly  bool                                                                  // it is for NewScheme
	floor       func(ctx context.Context, typ string, start time.Time) (int64, error) // nil for none
	ledger      Ledger                                                                // nil for none
	block       int64                                                                 // sequences per reservation
	confirm     redisrun.Replicas
	lockClients []redis.UniversalClient
	maxSkew     time.Duration // negative to turn the check off
	retention   int           // periods for which a counter is kept after its own
	hooks       *Hooks        // nil for none
}

func newConfig(client redis.UniversalClient, opts []Option) (*config, error) {
	c := &config{scheme: newScheme(), maxSkew: time.Hour}
	errs := append([]error{checkClient(client)}, c.applyAll(opts)...)
	if c.lockClients == nil {
		c.lockClients = []redis.UniversalClient{client}
	}
	if errs[0] == nil {
		errs = append(errs, checkReplicate(client, c.confirm))
	}
	if per := c.calendar.Unit; per == calendar.Second && c.floor != nil {
		errs = append(errs, errors.New("serial: WithFloor: a second is too short to ask a floor; "+
			"allowed are PerMinute and longer, or PerSecond without a floor"))
	} else if per == calendar.Second && c.ledger != nil {
		errs = append(errs, errors.New("serial: WithLedger: a second is too short to ask a ledger; "+
			"allowed are PerMinute and longer, or PerSecond without a ledger"))
	} else if per == calendar.Never && c.retention > 0 {
		errs = append(errs, errors.New("serial: WithRetention: Never has one period, which is kept anyway; leave the option out"))
	}
	if err := errors.Join(append(errs, c.complete()...)...); err != nil {
		return nil, err
	}
	return c, nil
}

// issuing is how numbers are issued.
func (c *config) issuing(client redis.UniversalClient) issue.Config {
	i := issue.Config{
		Client: client, Replicas: c.confirm, Prefix: c.prefix, Calendar: c.calendar, Counts: c.counts, PrintMark: c.mark,
		Base: c.base, Limit: c.limit, Brief: c.brief, MaxSkew: c.maxSkew, Retention: c.retention,
		Template: c.text, Key: cmp.Or(c.template.Fingerprint(), plain), Floor: c.floor, Block: c.block,
		SpanAt: func(t time.Time) issue.Span {
			s := c.template.SpanAt(t)
			return issue.Span{
				Period: s.Period, From: s.From, To: s.To, Earlier: s.Earlier, Date: s.Date, Unprintable: c.template.CheckYear(s.Reading),
			}
		},
	}
	if c.ledger != nil {
		i.Reserve = func(ctx context.Context, typ, label string, above, n int64) (int64, error) {
			return c.ledger.Reserve(ctx, Reservation{c.series(typ), label, c.counts, c.mark, above, n})
		}
	}
	return i
}

// isNil reports whether v is nil or holds a nil pointer, function, map, slice or channel.
func isNil(v any) bool {
	r := reflect.ValueOf(v)
	switch r.Kind() {
	case reflect.Invalid:
		return true
	case reflect.Pointer, reflect.Func, reflect.Map, reflect.Slice, reflect.Chan:
		return r.IsNil()
	}
	return false
}

// checkClient refuses a nil client and *redis.Ring: when a shard dies, a Ring moves keys, and counters with them, to another.
func checkClient(client redis.UniversalClient) error {
	if isNil(client) {
		return errors.New("serial: the Redis client is nil")
	}
	// A Ring is known by a method that only it has, so a type that embeds a *redis.Ring is refused too.
	if _, ok := client.(interface{ SetAddrs(map[string]string) }); ok {
		return errors.New("serial: *redis.Ring is refused: when a shard dies it moves counters to another one; " +
			"use *redis.Client, a Sentinel client or *redis.ClusterClient")
	}
	return nil
}

// WithRetention keeps every counter for that many periods after its own, for [Generator.History]; then Redis drops it. It
// applies to counters that are created from then on. If several Generators with different retentions open a period, the
// longest one counts. A counter costs about 100 bytes of Redis's memory.
//
// Default 0: a counter is gone when its period is over. Allowed are 0 to 10,000, and 0 only with [Never], whose one counter is
// kept anyway.
func WithRetention(periods int) Option {
	return option{"WithRetention", false, func(c *config) error {
		if periods < 0 || periods > mostKept {
			return fmt.Errorf("serial: WithRetention of %d periods: allowed are 0 to %d", periods, mostKept)
		}
		c.retention = periods
		return nil
	}}
}

// WithLockClients sets where the lock for opening a period is kept: on independent masters, of which a majority must grant
// it (Redlock). Uniqueness does not rest on the lock, which only decides who asks the floor.
//
// Each client must reach a server of its own, since a server grants a lock only once. If two clients reach one server by
// different names, a call that cannot get the lock for that reason fails, and its error names the two clients.
//
// Default the counters' own client. Refused are an empty list, nil, *redis.Ring, the same client twice, two clients of one
// address and database, and a client of a Cluster beside another client of the same address.
func WithLockClients(clients ...redis.UniversalClient) Option {
	return option{"WithLockClients", false, func(c *config) error {
		if len(clients) == 0 {
			return errors.New("serial: WithLockClients: no client; leave the option out to lock on the counters' own")
		}
		for i, client := range clients {
			if err := checkClient(client); err != nil {
				return fmt.Errorf("%w (client %d of WithLockClients)", err, i+1)
			}
			for j, other := range clients[:i] {
				if reflect.ValueOf(client).Comparable() && reflect.ValueOf(other).Comparable() && client == other {
					return fmt.Errorf("serial: WithLockClients: client %d is given twice; a majority could never grant the lock", i+1)
				}
				if addr := sharedAddr(client, other); addr != "" {
					return fmt.Errorf("%w (both have the address %s)", sameServer(j+1, i+1), addr)
				}
			}
		}
		c.lockClients = append([]redis.UniversalClient(nil), clients...)
		return nil
	}}
}

// sharedAddr returns an address by which both clients reach one server, or "" if none is known. A client of a Cluster and
// one of its nodes never both grant a lock: for a key, that node is the Cluster's own server or refuses.
func sharedAddr(a, b redis.UniversalClient) string {
	ofA, dbA := addrsOf(a)
	ofB, dbB := addrsOf(b)
	if dbA != dbB && dbA != anyDB && dbB != anyDB {
		return ""
	}
	for _, addr := range ofA {
		if slices.Contains(ofB, addr) {
			return addr.addr
		}
	}
	return ""
}

type endpoint struct{ network, addr string }

const anyDB = -1

// addrsOf returns the addresses that a client connects to, and its database. It returns no address if a function of the
// user's or of Sentinel's decides where an address leads.
func addrsOf(client redis.UniversalClient) ([]endpoint, int) {
	switch client := client.(type) {
	case *redis.Client:
		opt := client.Options()
		usual := redis.NewClient(&redis.Options{}) // go-redis does not tell whether a client has the usual dialer
		defer func() { _ = usual.Close() }()
		if reflect.ValueOf(opt.Dialer).Pointer() != reflect.ValueOf(usual.Options().Dialer).Pointer() {
			return nil, opt.DB
		}
		return []endpoint{{opt.Network, opt.Addr}}, opt.DB
	case *redis.ClusterClient:
		var all []endpoint
		if opt := client.Options(); opt.Dialer == nil && opt.ClusterSlots == nil {
			for _, addr := range opt.Addrs {
				all = append(all, endpoint{"tcp", addr})
			}
		}
		return all, anyDB
	}
	return nil, anyDB
}

// WithMaxSkew sets by how much Redis's clock may differ from this host's when a period is to be opened or a prepared one
// entered. Beyond that the call fails with [ErrClockSkew], so that one wild clock does not open a day in 2031.
//
// Default 1 h. 0 is refused; a negative value turns the check off.
func WithMaxSkew(skew time.Duration) Option {
	return option{"WithMaxSkew", false, func(c *config) error {
		if skew == 0 {
			return errors.New("serial: WithMaxSkew: 0 would refuse every clock; " +
				"allowed are positive values, and negative ones to turn the check off")
		}
		c.maxSkew = skew
		return nil
	}}
}

// WithReplicas makes n replicas confirm every number before it is returned, within timeout. The next master that Redis
// promotes then has the number, provided that n counts every replica that may be promoted. The confirmation is a WAIT, sent
// with the command that it confirms. With too few confirmations the call fails with [ErrNotReplicated], and its numbers are
// gaps.
//
// Default 0: no replica is waited for; n is 1000 at most. timeout is in whole milliseconds, at least one, and at most half
// of the client's read timeout, or 2.5 s if that is unlimited. The client must be a *redis.Client or a *redis.ClusterClient
// itself, not a type that embeds one.
func WithReplicas(n int, timeout time.Duration) Option {
	return option{"WithReplicas", false, func(c *config) error {
		if n < 0 || n > 1000 {
			return fmt.Errorf("serial: WithReplicas: %d replicas; allowed are 0 to 1000", n)
		}
		if n > 0 && (timeout < time.Millisecond || timeout%time.Millisecond != 0) {
			return fmt.Errorf("serial: WithReplicas: a timeout of %v; allowed are whole milliseconds, at least one", timeout)
		}
		c.confirm = redisrun.Replicas{N: n, Timeout: timeout}
		return nil
	}}
}

// checkReplicate limits the timeout, so that half of the read timeout remains for everything but the replicas. It refuses
// other types of client, which may send WAIT elsewhere than the write.
func checkReplicate(client redis.UniversalClient, c redisrun.Replicas) error {
	if c.N == 0 {
		return nil
	}
	switch client.(type) {
	case *redis.Client, *redis.ClusterClient:
	default:
		return fmt.Errorf("serial: WithReplicas: a client of type %T; allowed are *redis.Client and *redis.ClusterClient", client)
	}
	most := redisrun.ReadTimeout(client) / 2
	if most == 0 {
		most = budget.Answers / 4
	}
	if c.Timeout > most {
		return fmt.Errorf("serial: WithReplicas: a timeout of %v; allowed are up to %v, half of the client's read timeout", c.Timeout, most)
	}
	return nil
}

// WithKeyPrefix sets what every key begins with: a namespace for a tenant or an environment. Generators with different
// prefixes share nothing.
//
// Default "serial"; anything that [ErrInvalidType] does not allow for a type is refused.
func WithKeyPrefix(prefix string) Option {
	return option{"WithKeyPrefix", true, func(c *config) error {
		if err := name.Check(prefix); err != nil {
			return fmt.Errorf("serial: WithKeyPrefix(%.80q): %w", prefix, err)
		}
		c.prefix = prefix
		return nil
	}}
}

// WithFloor sets a source that outlives Redis, usually a query for the greatest number in a database. The function returns
// the highest sequence of typ that may already have been used in the period that begins at start, 0 if none was. It is
// called whenever a counter has to be created or repaired, under the lock of that type and period, so that one process asks
// and not all of them. The counter then continues above its answer, and a lost counter is repaired instead of giving
// [ErrCounterLost].
//
// The function's context ends with the caller's, and at the latest 7 s after the lock was asked for, before the lock
// expires. It ends earlier if Redis was slow before, since all steps of a call share 10 s. If the function fails, the call
// that needed it returns its error, and nothing is issued. An answer below 0 or above the largest sequence is an error too.
//
// Default none; nil is refused.
func WithFloor(floor func(ctx context.Context, typ string, start time.Time) (int64, error)) Option {
	return option{"WithFloor", false, func(c *config) error {
		if floor == nil {
			return errors.New("serial: WithFloor: the function is nil")
		}
		c.floor = floor
		return nil
	}}
}
