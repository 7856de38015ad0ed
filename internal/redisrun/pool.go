package redisrun

import (
	"context"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/dailyserial/serial/internal/budget"
)

// This file limits one attempt, and tells a server that is slow from a process that stood still. Each of the replies while a
// connection is made may take the whole read timeout, so that a command which takes longer than that tells of a process that
// stood still only where it found a connection.

// A pool is a server's connections, as they are before a command is sent. Reading them costs two allocations; they are read
// again only after a command that took too long.
type pool struct {
	server *redis.Client // nil where no time limit of go-redis bounds the command
	read   time.Duration
	idle   bool   // there is a connection to be found
	missed uint32 // how often none was found at once
}

// poolOf returns the pool of single commands or of pipelines.
func (r *Runner) poolOf(node *Node, pipelined bool) pool {
	if node.server == nil || r.read == 0 {
		return pool{}
	}
	stats := node.server.PoolStats()
	own := (*redis.PoolStats)(stats.PipelineStats) // pipelines have a pool of their own, unless that is switched off
	if !pipelined || own == nil {
		own = stats
	}
	n, _ := missed(stats)
	return pool{node.server, r.read, own.IdleConns > 0, n}
}

// missed counts the commands that had a connection made or waited for one, and those that seek one.
func missed(stats *redis.PoolStats) (n, seeking uint32) {
	n, seeking = stats.Misses+stats.WaitCount, stats.PendingRequests
	if own := stats.PipelineStats; own != nil {
		n, seeking = n+own.Misses+own.WaitCount, seeking+own.PendingRequests
	}
	return n, seeking
}

// stood reports whether this process stood still during a command that took so long: it found a connection at once, as every
// other command since.
func (p pool) stood(took time.Duration) bool {
	if !p.idle || took <= p.read+budget.Last {
		return false
	}
	n, seeking := missed(p.server.PoolStats())
	return n == p.missed && seeking == 0
}

// awaitAnswer awaits f, which sends commands, and is to make no connection once limit has passed. It also reports whether
// this process stood still meanwhile, as far as f does not tell by its time.
//
// What outlasts the time limits of go-redis is a server that answers slowly while a connection is made, or this process: it
// stood still, or a hook of the client does. Another connection tells, for as long as budget.Last. In the second case f is
// waited for as long as it takes: nothing could be sent before it is done, since go-redis may hold a lock.
func awaitAnswer[T any](ctx context.Context, p pool, limit time.Duration, f func(context.Context) (T, error)) (
	v T, stood bool, err error) {
	within, cancel := context.WithTimeout(ctx, limit)
	answer := begin(func() (T, error) {
		defer cancel()
		return f(within)
	})
	v, err = answer.wait(ctx, limit)
	if err == ErrNoAnswer && p.server != nil && limit > p.read && answers(p.server) {
		v, err = answer.wait(ctx, NoLimit)
		return v, true, err
	}
	return v, false, err
}

// answers reports whether a server answers at once, on a connection of its own.
func answers(server *redis.Client) bool {
	ctx, cancel := context.WithTimeout(context.Background(), budget.Last)
	defer cancel()
	_, err := Await(ctx, budget.Last, func() (string, error) {
		own := redis.NewClient(unlistedOptions(server, server.Options().Addr))
		defer func() { _ = own.Close() }()
		return own.Ping(ctx).Result()
	})
	var refused redis.Error
	return err == nil || errors.As(err, &refused)
}

// A connectLimit is a context with a deadline.
type connectLimit struct {
	context.Context
	end    time.Time
	cancel context.CancelFunc // unused: the context ends by itself
}

// connectWithin limits the time to wait for a connection and to make one. Calls that begin at about the same time share one
// context, if there is nothing in theirs: one for each costs five allocations and a microsecond, a thirtieth of a round trip.
func (r *Runner) connectWithin(ctx context.Context, end time.Time) (context.Context, context.CancelFunc) {
	const sharing = 250 * time.Millisecond
	if ctx != context.Background() {
		return context.WithDeadline(ctx, end)
	}
	c := r.connecting.Load()
	if c == nil || end.Before(c.end) || end.Sub(c.end) > sharing {
		c = &connectLimit{end: end}
		c.Context, c.cancel = context.WithDeadline(ctx, end)
		r.connecting.Store(c)
	}
	return c.Context, func() {}
}
