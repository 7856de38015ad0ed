package serial

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/redis/go-redis/v9"

	"github.com/dailyserial/serial/internal/calendar"
	"github.com/dailyserial/serial/internal/coalesce"
	"github.com/dailyserial/serial/internal/redisrun"
	"github.com/dailyserial/serial/internal/store"
)

// Next issues the next number of a type, such as "IS202110240001". See [Generator.NextNumber].
func (g *Generator) Next(ctx context.Context, typ string) (string, error) {
	n, err := g.NextNumber(ctx, typ)
	return n.String(), err
}

// sequence issues n numbers. It is the published sequence, each of its four ifs made safe.
func (c *call) sequence(ctx context.Context, n int) (err error) {
	defer func() { c.endWork(err) }()
	var lock *lock
	for {
		// 1. The counter exists: increment and return. One script, one round trip.
		next, err := c.take(ctx, n)
		// 2. It is missing: one attempt at the redsync lock of this type and period.
		if next == tryLock {
			lock, next, err = c.tryLock(ctx)
		}
		// 3. Got it: take again, and only if the counter is still missing ask the floor and open the period.
		if next == locked {
			next, err = c.open(ctx, n, lock)
		}
		// 4. Did not get it: wait a little for whoever did, and take again.
		if next == wait {
			next, err = c.wait(ctx)
		}
		if next != again {
			return err
		}
	}
}

// A step is how a part of the sequence came out, and what follows.
type step int

const (
	failed  step = iota // with an error
	done                // the numbers are issued
	tryLock             // the counter is missing, or lost while a floor can tell how far it had come
	locked              // the caller has the lock
	wait                // others are at work, or everything is to be looked at afresh
	again               // take again
)

// take is the first step.
func (c *call) take(ctx context.Context, n int) (step, error) {
	alike := n == 1 && c.request == "" // many callers ask for the same
	for {
		if alike {
			if next, err := c.joinWaiting(ctx); next != again {
				return next, err
			}
		}
		r, err := c.follow(ctx, c.aim(), func() (store.Reply, error) {
			if alike && c.node.Known() {
				return c.share(ctx)
			}
			return c.send(ctx, store.Take{N: n, Purpose: store.All})
		})
		if err != nil || r.Status != store.Ceiling {
			return c.taken(r, err)
		}
		if next, err := c.refill(ctx, n); next != again {
			return next, err
		}
	}
}

// A Generator issues serial numbers; most callers want [Generator.Next]. It is safe for use by any number of goroutines.
// Its own goroutines end with their work, and there is nothing to close: the Redis client stays the caller's. Make it once,
// with [New]. Any number of Generators, in any number of processes, may issue numbers of one type.
type Generator struct {
	config
	store   *store.Store
	nodes   *redisrun.Nodes[*node]
	locks   locks
	marks   marks
	works   sync.Map             // those under way: batchKey to *work
	current atomic.Pointer[span] // the one computed last
}

// New returns a Generator that keeps its counters in client, which may be a *redis.Client (of a single server or from
// redis.NewFailoverClient) or a *redis.ClusterClient. It sends nothing yet.
//
// It is an error if client is nil or a *redis.Ring, or if an option is invalid. The message of each says what is allowed.
func New(client redis.UniversalClient, opts ...Option) (*Generator, error) {
	c, err := newConfig(client, opts)
	if err != nil {
		return nil, err
	}
	runner := redisrun.New(client, c.confirm)
	g := &Generator{
		config: *c,
		store:  store.New(runner, c.prefix, c.limit, c.counts, c.mark, c.ledger != nil),
		locks:  locks{clients: c.lockClients},
	}
	g.marks = marks{of: map[string]*mark{}, keys: g.store.KeysOf, endless: c.calendar.Unit == calendar.Never}
	g.nodes = redisrun.NewNodes(runner, func(n *redisrun.Node) *node {
		own := &node{Node: n, g: g}
		own.lane = coalesce.New(n.Together, own.send)
		return own
	})
	return g, nil
}

// NextNumber issues the next number of a type, for the period that Redis's clock shows at the instant of issue.
//
// In an open period the call costs one round trip. The first call of a period opens it under a lock. While another caller
// does that, the call waits until ctx ends, or for 30 s if ctx has no deadline. If Redis or the lock servers do not answer,
// or answer slowly, the call fails within 10 s, which all its steps share.
//
// The call returns as soon as ctx ends, even if Redis hangs. If the command was already sent, the number may have been
// consumed: that leaves a gap, never a duplicate. The same is true of every other error that wraps a failure of Redis.
//
// Errors: [ErrInvalidType], [ErrExhausted], [ErrCounterLost], [ErrClockSkew], [ErrConflict], [ErrNotReplicated], the
// floor's or the ledger's own, ctx's, or a failure of Redis.
func (g *Generator) NextNumber(ctx context.Context, typ string) (Number, error) {
	var c call
	if err := c.issue(ctx, g, typ, 1); err != nil {
		return Number{}, err
	}
	return c.number(c.made.last), nil
}

// NextN issues n consecutive numbers of a type, 1 to 100,000, in one round trip: all of them, in order, or, with an error, none.
// They are all of one period.
//
// Errors are those of [Generator.NextNumber], and [ErrInvalidRequest] for any other n. After [ErrExhausted], also if n exceeds
// a whole period, nothing was consumed. A cancelled call may have consumed all n.
func (g *Generator) NextN(ctx context.Context, typ string, n int) ([]Number, error) {
	var c call
	if err := c.issue(ctx, g, typ, n); err != nil {
		return nil, err
	}
	numbers := make([]Number, n)
	for i := range numbers {
		numbers[i] = c.number(c.made.last - int64(n-1-i))
	}
	return numbers, nil
}

// issue makes c a call of g that issues n numbers of a type.
func (c *call) issue(ctx context.Context, g *Generator, typ string, n int) error {
	const most = 100_000
	err := c.begin(ctx, g, typ)
	switch {
	case err != nil:
	case n < 1 || n > most:
		err = fmt.Errorf("%w: %d numbers at once: allowed are 1 to %d", ErrInvalidRequest, n, most)
	case int64(n) > g.limit: // a period that is open may have begun before WithStart
		err = fmt.Errorf("%w: %d of %s were asked for, and a period has %d", ErrExhausted, n, typ, g.limit)
	default:
		err = c.sequence(ctx, n)
	}
	return c.finishIssue(ctx, n, err)
}

// Peek returns the last number issued in the current period, with Seq 0 if there was none. It writes nothing, opens nothing
// and asks no floor. By the time it returns, others may have issued more.
//
// Errors: [ErrInvalidType], [ErrCounterLost] (also with a floor or a ledger), [ErrClockSkew], [ErrConflict], ctx's, or a
// failure of Redis.
func (g *Generator) Peek(ctx context.Context, typ string) (Number, error) {
	var c call
	if err := c.begin(ctx, g, typ); err != nil {
		return Number{}, err
	}
	r, err := c.follow(ctx, c.aim(), func() (store.Reply, error) {
		series := c.series()
		r, err := g.store.Peek(ctx, &c.budget, c.node.Node, &series)
		return r, c.heard(&r, err)
	})
	if err == nil && r.Status != store.Issued && r.Status != store.Missing {
		err = c.refusal(r)
	}
	if err = c.finish(ctx, err); err != nil {
		return Number{}, err
	}
	c.made = result{span: &span{Span: c.g.template.SpanOf(&c.span.Period)}, template: c.g.template}
	return c.number(c.g.unlessUnused(r.Last)), nil
}

// Parse takes apart a number that was issued by a Generator with the same template, period, day start, year start and time
// zone. It refuses anything that cannot have been issued: a date that the calendar or the zone does not have, sequence 0, missing
// or excess padding, text before or after. It does not ask Redis. See [Scheme.Parse] for its errors.
func (g *Generator) Parse(s string) (Number, error) { return g.parse(s) }

// Scheme returns the Generator's own Scheme: what needs no Redis.
func (g *Generator) Scheme() *Scheme { return &Scheme{g.scheme} }

// unlessUnused is 0 for a counter that was opened, and not used.
func (g *Generator) unlessUnused(seq int64) int64 {
	if seq == g.base {
		return 0
	}
	return seq
}
