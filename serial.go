package serial

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// Next issues the next number of a type, such as "IS202110240001". See [Generator.NextNumber].
func (g *Generator) Next(ctx context.Context, typ string) (string, error) {
	n, err := g.NextNumber(ctx, typ)
	return n.String(), err
}

// sequence issues n numbers. It is the published sequence, each of its four ifs made safe.
func (c *call) sequence(ctx context.Context, n int) (*batch, error) {
	for {
		// 1. The counter exists: increment and return. One script, one round trip.
		b, err := c.take(ctx, n)
		if b != nil || err != nil {
			return b, err
		}
		// 2. It is missing: one attempt at the redsync lock of this type and period.
		lock, err := c.tryLock(ctx)
		if err != nil {
			return nil, err
		}
		// 3. Got it: take again, and only if the counter is still missing ask the floor and open the period.
		if lock != nil {
			b, err = c.open(ctx, n, lock)
			if b != nil || err != nil {
				return b, err
			}
		}
		// 4. Did not get it: wait a little for whoever did, and take again.
		if err := c.wait(ctx); err != nil {
			return nil, err
		}
	}
}

// A Generator issues serial numbers; most callers want [Generator.Next]. It is safe for use by any number of goroutines,
// starts none that outlives its work, and has nothing to close: the Redis client stays the caller's. Make it once, with
// [New]. Any number of Generators, in any number of processes, may issue numbers of one type.
type Generator struct {
	config
	caller  *caller
	locks   locks
	memory  memory
	towers  *towers
	current atomic.Pointer[period] // the one computed last
}

// New returns a Generator that keeps its counters in client, which may be a *redis.Client (of a single server or from
// redis.NewFailoverClient) or a *redis.ClusterClient. It sends nothing yet.
//
// It is an error if client is nil or a *redis.Ring, or if an option is invalid; the message of each says what is
// allowed.
func New(client redis.UniversalClient, opts ...Option) (*Generator, error) {
	c, err := newConfig(client, opts)
	if err != nil {
		return nil, err
	}
	caller := newCaller(client)
	return &Generator{
		config: *c,
		caller: caller,
		locks:  newLocks(c.lockClients),
		memory: memory{series: map[string]*seen{}},
		towers: newTowers(caller),
	}, nil
}

// NextNumber issues the next number of a type. Its day is the local day by Redis's clock at the instant of issue.
//
// In a period that is open it costs one round trip. The first call of a period opens it under a lock; while another
// process does that the call waits, as long as ctx lives, and 30 s if ctx has no deadline. If Redis or the lock servers
// cannot be reached the call fails within 10 s.
//
// The call returns as soon as ctx ends, even if Redis hangs. Where the command was already sent the number may have been
// consumed: that leaves a gap, never a duplicate. The same is true of every other error that wraps a failure of Redis.
//
// Errors: [ErrInvalidType], [ErrExhausted], [ErrCounterLost], [ErrClockSkew], [ErrConflict], the floor's own, ctx's, or a
// failure of Redis.
func (g *Generator) NextNumber(ctx context.Context, typ string) (Number, error) {
	b, err := g.issue(ctx, typ, 1)
	if err != nil {
		return Number{}, err
	}
	return b.number(b.last), nil
}

// NextN issues n numbers of a type, 1 to 100,000, that follow each other without a gap, in one round trip: all of them
// or, with an error, none. Errors are those of [Generator.NextNumber]; with [ErrExhausted], which also an n above the
// largest sequence gives, nothing was consumed. A cancelled call may have consumed all n.
func (g *Generator) NextN(ctx context.Context, typ string, n int) ([]string, error) {
	const most = 100_000
	if n < 1 || n > most {
		return nil, outcome(ctx, fmt.Errorf("serial: NextN of %d numbers: allowed are 1 to %d", n, most))
	}
	b, err := g.issue(ctx, typ, n)
	if err != nil {
		return nil, err
	}
	numbers := make([]string, n)
	for i := range numbers {
		numbers[i] = b.number(b.last - int64(n-1-i)).String()
	}
	return numbers, nil
}

func (g *Generator) issue(ctx context.Context, typ string, n int) (*batch, error) {
	c, err := g.newCall(ctx, typ)
	if err != nil {
		return nil, err
	}
	if limit := g.limit; int64(n) > limit {
		return nil, outcome(ctx, fmt.Errorf("%w: %d of %s were asked for, and a period has %d", ErrExhausted, n, typ, limit))
	}
	b, err := c.sequence(ctx, n)
	return b, outcome(ctx, err)
}

// Peek returns the last number issued in the current period, with Seq 0 if there was none. It writes nothing, opens
// nothing and asks no floor. By the time it returns the number may no longer be the last.
//
// Errors: [ErrInvalidType], [ErrCounterLost] (also with a floor), [ErrClockSkew], [ErrConflict], ctx's, or a failure of
// Redis.
func (g *Generator) Peek(ctx context.Context, typ string) (Number, error) {
	c, err := g.newCall(ctx, typ)
	if err != nil {
		return Number{}, err
	}
	r, err := c.ask(ctx, peekScript, 0)
	if err == nil && r.status != statusIssued && r.status != statusMissing {
		err = c.refusal(r)
	}
	if err != nil {
		return Number{}, outcome(ctx, err)
	}
	return c.batch(r.seq).number(r.seq), nil
}

// Raise makes sure that the next number of the current period is at least seq+1, from 0 to the largest sequence. It
// never lowers a counter. It is how a series is continued from elsewhere, and the operator's word that ends
// [ErrCounterLost]: the last number used, or 0 if none was. Numbers that this Generator has issued itself stay used
// whatever seq says. A period that is not open yet is opened, above the floor if there is one.
//
// With Redis's clock set back behind a period already entered, Next fails with [ErrClockSkew]; Raise then enters the
// period of Redis's clock again.
//
// Raise may be repeated; after an error it may have been carried out or not. Errors: [ErrInvalidType], [ErrClockSkew]
// (beyond [WithMaxSkew]), [ErrConflict], the floor's own, ctx's, or a failure of Redis.
func (g *Generator) Raise(ctx context.Context, typ string, seq int64) error {
	c, err := g.newCall(ctx, typ)
	if err != nil {
		return err
	}
	if limit := g.limit; seq < 0 || seq > limit {
		return outcome(ctx, fmt.Errorf("serial: Raise of %s to %d: allowed are 0 to %d", typ, seq, limit))
	}
	return outcome(ctx, c.raise(ctx, seq))
}

// Parse takes apart a number that a Generator with the same template and time zone has issued. Anything that cannot have
// been issued is an error: a day that the calendar or the zone does not have, sequence 0, padding that is missing, text
// before or after. Redis is not asked.
func (g *Generator) Parse(s string) (Number, error) {
	return g.format.parse(s, g.location)
}

// A batch is a run of consecutive numbers that were issued together.
type batch struct {
	g      *Generator
	typ    string
	period *period
	last   int64
}

func (b *batch) number(seq int64) Number {
	return Number{
		Type:   b.typ,
		Start:  time.Unix(b.period.start, 0).In(b.g.location),
		Seq:    seq,
		wall:   b.period.wall,
		format: b.g.format,
	}
}

// take is the sequence's first step. It returns nil where the period has to be opened: its counter is missing, or lost
// while a floor can tell how far it had come.
func (c *call) take(ctx context.Context, n int) (*batch, error) {
	r, err := c.ask(ctx, takeScript, n)
	if err != nil {
		return nil, err
	}
	return c.taken(r)
}

func (c *call) taken(r reply) (*batch, error) {
	switch {
	case r.status == statusIssued:
		return c.batch(r.seq), nil
	case r.status == statusMissing, r.status == statusLost && c.g.floor != nil:
		return nil, nil
	}
	return nil, c.refusal(r)
}

func (c *call) batch(last int64) *batch { return &batch{c.g, c.typ, c.period, last} }

// tryLock is the sequence's second step. Lock servers that fail may be well a moment later, and the counter may be there by
// then; so it returns nil, as for a lock that another holds, while there is time for another attempt.
func (c *call) tryLock(ctx context.Context) (*lock, error) {
	start := time.Now()
	l, err := c.g.locks.try(ctx, c.lockKey())
	c.lockErr = err
	if err == nil {
		c.trouble = time.Time{}
		return l, nil
	}
	if c.trouble.IsZero() {
		c.trouble = start
	}
	const attempt = 2 * lockPatience // to ask, and to give back what was granted
	if endOf(ctx) != nil || !transient(err) || time.Since(c.trouble)+attempt > unreachable {
		return nil, err
	}
	return nil, nil
}

// open is the sequence's third step. It returns nil where the period is to be looked at afresh: it ended meanwhile, or
// the lock expired.
func (c *call) open(ctx context.Context, n int, lock *lock) (*batch, error) {
	patience := lockPatience
	defer func() { lock.release(ctx, patience) }()
	locked := c.period
	r, err := c.ask(ctx, takeScript, n)
	if err != nil {
		patience = 0 // one that fails is not waited for twice
		return nil, err
	}
	if b, err := c.taken(r); b != nil || err != nil {
		return b, err
	}
	if c.period.start != locked.start {
		return nil, nil // the lock is another period's
	}
	if err := c.checkSkew(r); err != nil {
		return nil, err
	}
	floor := ""
	if c.g.floor != nil {
		until := lock.since.Add(lockExpiry - floorMargin)
		if !time.Now().Before(until) {
			return nil, nil // it took too long to get here
		}
		used, err := c.askFloor(ctx, until)
		if err != nil {
			return nil, err
		}
		floor = strconv.FormatInt(used, 10)
	}
	// Sent once: should the answer be lost, a second one would issue again. It is for the period of the check, and Redis
	// refuses it if it comes too late.
	r, err = c.run(ctx, openScript, false, c.period, n, floor, r.now.UnixMilli(), lockExpiry.Milliseconds())
	if err != nil {
		patience = 0
		return nil, err
	}
	if r.status == statusClock || r.status == statusLate {
		return nil, nil
	}
	return c.taken(r)
}

// raise is what remains of Raise after its checks. Take with no numbers tells how the period stands, and writes nothing.
func (c *call) raise(ctx context.Context, seq int64) error {
	for {
		r, err := c.ask(ctx, takeScript, 0)
		if err != nil {
			return err
		}
		floor := seq
		switch r.status {
		case statusIssued:
			if r.seq >= seq {
				return nil
			}
		case statusExhausted: // by a counter that stands higher than this template can print
			return nil
		case statusMissing, statusLost, statusFuture:
			if err := c.checkSkew(r); err != nil {
				return err
			}
			if c.g.floor != nil {
				used, err := c.askFloor(ctx, time.Now().Add(lockExpiry-floorMargin))
				if err != nil {
					return err
				}
				floor = max(seq, used)
			}
		default:
			return c.refusal(r)
		}
		// For the period that was looked at: if that is over by now, nothing is written.
		r, err = c.run(ctx, openScript, true, c.period, 0, floor, "", 0)
		if err != nil || r.status == statusIssued {
			return err
		}
		if r.status != statusClock {
			return c.refusal(r)
		}
		if err := c.wait(ctx); err != nil {
			return err
		}
	}
}

// wait lets another process open the period, for a random time that grows to a tenth of a second.
func (c *call) wait(ctx context.Context) error {
	now := time.Now()
	if c.waits > 0 {
		c.waited += min(now.Sub(c.waitedAt), unreachable) // no more, should this process have stood still
	}
	c.waitedAt = now
	if _, ok := ctx.Deadline(); !ok && c.waited > waitLimit {
		err := c.lockErr
		if err == nil {
			err = errTaken
		}
		return fmt.Errorf("serial: %s %s was not opened within %v: %w", c.typ, c.period.label, waitLimit, err)
	}
	pause := min(2*time.Millisecond<<c.waits, 100*time.Millisecond)
	if c.waits < 10 {
		c.waits++
	}
	return sleep(ctx, pause/2+rand.N(pause))
}
