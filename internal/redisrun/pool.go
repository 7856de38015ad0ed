package redisrun

import (
	"context"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/dailyserial/serial/internal/budget"
)

// This file limits the time for connections, and tells a server that is slow from a process that stood still. A command that takes
// longer than the read timeout tells of the latter only where it found a connection: each reply while one is made may take as long.

// poolOf tells of the connections for the next command, or for the next pipeline. It is nil where no time limit of go-redis
// bounds that. To ask costs two allocations.
func (r *Runner) poolOf(node *Node, pipelined bool) *redis.PoolStats {
	if node.server == nil || r.read == 0 {
		return nil
	}
	stats := node.server.PoolStats()
	if own := stats.PipelineStats; pipelined && own != nil { // unless it is switched off
		return (*redis.PoolStats)(own)
	}
	return stats
}

// stood reports whether this process stood still during an attempt that took so long: there was a connection to be found, and
// nobody has had one made or waited for one since, nor does anybody now.
func (r *Runner) stood(node *Node, pipelined bool, before *redis.PoolStats, took time.Duration) bool {
	if before == nil || before.IdleConns == 0 || took <= r.read+budget.Last {
		return false
	}
	now := r.poolOf(node, pipelined)
	return now.Misses == before.Misses && now.WaitCount == before.WaitCount && now.PendingRequests == 0
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

// connectWithin limits the time to wait for a connection and to make one. Calls that begin at about the same time share one
// context, if there is nothing in theirs: one for each costs five allocations and a microsecond, a thirtieth of a round trip.
func (r *Runner) connectWithin(ctx context.Context, end time.Time) (context.Context, context.CancelFunc) {
	const sharing = 250 * time.Millisecond
	if ctx != context.Background() {
		return context.WithDeadline(ctx, end)
	}
	if shared := r.connecting.Load(); shared != nil {
		if at, _ := (*shared).Deadline(); !end.Before(at) && end.Sub(at) <= sharing {
			return *shared, func() {}
		}
	}
	own, cancel := context.WithDeadline(ctx, end)
	_ = cancel // it ends by itself, as others may share it
	r.connecting.Store(&own)
	return own, func() {}
}
