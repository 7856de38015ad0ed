package serial

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/dailyserial/serial/internal/budget"
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
	if per := c.calendar.period; per == PerSecond && c.floor != nil {
		errs = append(errs, errors.New("serial: WithFloor: a second is too short to ask a floor; "+
			"allowed are PerMinute and longer, or PerSecond without a floor"))
	} else if per == PerSecond && c.ledger != nil {
		errs = append(errs, errors.New("serial: WithLedger: a second is too short to ask a ledger; "+
			"allowed are PerMinute and longer, or PerSecond without a ledger"))
	} else if per == Never && c.retention > 0 {
		errs = append(errs, errors.New("serial: WithRetention: Never has one period, which is kept anyway; leave the option out"))
	}
	if err := errors.Join(append(errs, c.complete()...)...); err != nil {
		return nil, err
	}
	return c, nil
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

// WithLocation sets the time zone whose midnight resets the counters. Every process that issues numbers of a type must use
// the same one; if they differ, calls fail with [ErrConflict].
//
// Default [time.Local]; nil is refused.
func WithLocation(loc *time.Location) Option {
	return option{"WithLocation", true, func(c *config) error {
		if loc == nil {
			return errors.New("serial: WithLocation: the location is nil")
		}
		c.calendar.location = loc
		return nil
	}}
}

// WithPeriod sets the span that one counter serves, and so how often numbers start again. The template must print that
// period: with anything but PerDay, give [WithTemplate] too, such as "{type}{date:yyyyMM}{seq:4}" for PerMonth. Every
// process that issues numbers of a type must use the same period; if they differ, calls fail with [ErrConflict].
//
// Periods follow the wall clock. Where clocks are set forward, the labels that they jump over are not used. Where clocks
// are set back, the period that had begun goes on until the clock has passed it again. With PerSecond and a clock set back
// from 02:00 to 01:00, the second 01:59:59 lasts an hour and has only the sequences of one second. For periods shorter than
// a day, therefore choose UTC or enough digits.
//
// With PerSecond neither [WithFloor] nor [WithLedger] is allowed: a second is too short to ask them.
//
// Default PerDay. Allowed are the constants PerSecond to PerYear.
func WithPeriod(p Period) Option {
	return option{"WithPeriod", true, func(c *config) error {
		c.calendar.period = p
		return nil
	}}
}

// WithDayStart sets the time of day at which a business day begins. With 4 * time.Hour, a number issued at 03:59 belongs to
// the day before and bears its date. A month then begins at 04:00 on its first day, and a year at 04:00 on 1 January. The
// start is a reading of the wall clock, not the time since midnight. If clocks are set forward over it, the day begins at
// that moment; if it comes twice, the day begins at the first. Every process that issues numbers of a type must use the
// same start; if they differ, calls fail with [ErrConflict].
//
// Default 0, midnight. Allowed are whole seconds from 0 to less than 24 h; other values than 0 need PerDay, PerMonth or
// PerYear.
func WithDayStart(start time.Duration) Option {
	return option{"WithDayStart", true, func(c *config) error {
		if start < 0 || start >= 24*time.Hour || start%time.Second != 0 {
			return fmt.Errorf("serial: WithDayStart: %v; allowed are whole seconds from 0 to less than 24h", start)
		}
		c.calendar.dayStart = int64(start / time.Second)
		return nil
	}}
}

// WithHiddenSequence prints, instead of the sequence, its image under FF1 (NIST SP 800-38G) with a key of 16, 24 or 32 bytes:
// unique, of the same width, and for whoever does not have the key without order, so that nobody can tell how many numbers
// were issued. [Number.Seq], [Generator.Peek], [Generator.Raise], floor and ledger keep the plain sequence, and
// [Generator.Parse] finds it. The printed text may be all zeros.
//
// All processes that issue numbers of a type must have the same key: another one is [ErrConflict] until the period has ended.
// So change the key between periods, and keep a [Scheme] with the old one to parse old numbers: Parse with a wrong key gives a
// wrong Seq and no error. docs/hidden-volume.md says what this hides and what it doesn't.
//
// Default none. Refused are other lengths of the key, a growing sequence, and fewer than a million sequences: less than six
// digits, or four characters of base32 or base36.
func WithHiddenSequence(key []byte) Option {
	key = append([]byte(nil), key...)
	return option{"WithHiddenSequence", true, func(c *config) error {
		if n := len(key); n != 16 && n != 24 && n != 32 {
			return fmt.Errorf("serial: WithHiddenSequence: a key of %d bytes; allowed are 16, 24 and 32", n)
		}
		c.key = key
		return nil
	}}
}

// WithYearStart sets the first day of the business year, for [PerYear], [PerQuarter] and the tokens FFFF, FF, EEEE, EE and Q of
// a template. Elsewhere it is without effect. Every process that issues numbers of a type by business years or quarters must
// use the same one; if they differ, calls fail with [ErrConflict].
//
// Default 1 January. Allowed are days 1 to 28 of a month.
func WithYearStart(month time.Month, day int) Option {
	return option{"WithYearStart", true, func(c *config) error {
		if month < time.January || month > time.December || day < 1 || day > 28 {
			return fmt.Errorf("serial: WithYearStart: month %d, day %d; allowed are January to December, and days 1 to 28", month, day)
		}
		c.calendar.yearStart = yearStart{int(month - time.January), day - 1}
		return nil
	}}
}

// WithTemplate sets how numbers are printed. A template is literal text with three fields, each exactly once and in any
// order:
//
//	{type}         the business type
//	{date:LAYOUT}  the period's date and time; see below
//	{seq:WIDTH}    the sequence, padded to WIDTH digits, 1 to 15; {seq} is {seq:4}. A period holds 10^WIDTH-1 numbers.
//	{seq:WIDTH+}   the same, but the sequence may grow wider: 10000 follows 9999, up to 10^15-1. A literal must stand
//	               right before the field, and right after it unless it ends the template, with no digit next to the
//	               field. Otherwise numbers of different types could read the same.
//
// The tokens of a layout are
//
//	yyyy, YYYY     the year
//	yy             the year in two digits, 2000 to 2099; in any other year, calls fail
//	MM             the month
//	dd, DD         the day
//	HH, mm, ss     the hour (00 to 23), the minute and the second
//
// and no other spelling is accepted: MM is the month, mm the minute. Between them may stand any text but ASCII letters, digits
// and braces. A layout needs the parts that tell one [Period] from the next, each once and in any order, and nothing finer:
// with PerDay the year, the month and the day.
//
// {{ and }} print a brace. "{type}-{date:yyMMdd}-{seq:6}" gives "PO-211024-000001".
//
// Default "{type}{date:yyyyMMdd}{seq:4}", which suits PerDay only. A template is valid UTF-8, of 256 bytes at most, since
// every answer that [Generator.NextOnce] remembers holds it.
func WithTemplate(template string) Option {
	return option{"WithTemplate", true, func(c *config) error {
		c.template = template
		return nil
	}}
}

// WithStart sets the first sequence of every period. It applies to periods that are opened from then on; a period that is
// open goes on from where it is.
//
// Default 1; allowed are 1 to the largest sequence that the template prints.
func WithStart(seq int64) Option {
	return option{"WithStart", true, func(c *config) error {
		if seq < 1 {
			return fmt.Errorf("serial: WithStart(%d): allowed are 1 to the largest sequence that the template prints", seq)
		}
		c.base = seq - 1
		return nil
	}}
}

// WithRetention keeps every counter for that many periods after its own, for [Generator.History]; then Redis drops it. It
// applies to counters that are created from then on. If several Generators with different retentions open a period, the
// longest one counts. A counter costs about 100 bytes of Redis's memory.
//
// Default 0: a counter is gone when its period is over. Allowed are 0 to 10,000.
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
		if msg := checkName(prefix); msg != "" {
			return fmt.Errorf("serial: WithKeyPrefix(%.80q): %s", prefix, msg)
		}
		c.prefix = prefix
		return nil
	}}
}
