package redisrun

import (
	"context"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/dailyserial/serial/internal/budget"
)

// This file limits the time to connect, and tells a server that is slow from a process that stood still.

// connected reports whether the next command, or the next pipeline, finds a connection. To ask costs two allocations.
func (n *Node) connected(pipelined bool) bool {
	stats := n.server.PoolStats()
	if pipelines := stats.PipelineStats; pipelined && pipelines != nil { // nil if pipelines use the same pool
		return pipelines.IdleConns > 0
	}
	return stats.IdleConns > 0
}

// answers reports whether a server answers at once, on a new connection.
func answers(ctx context.Context, server *redis.Client) bool {
	ctx, cancel := context.WithTimeout(ctx, budget.Last)
	defer cancel()
	_, err := Await(ctx, NoLimit, func() (string, error) {
		client := redis.NewClient(unlistedOptions(server, server.Options().Addr))
		defer func() { _ = client.Close() }()
		return client.Ping(ctx).Result()
	})
	_, refused := errors.AsType[redis.Error](err)
	return err == nil || refused
}

// connectWithin limits the time to wait for a connection and to make one. Calls that begin at about the same time share one
// context, if theirs holds nothing: a context for each costs five allocations and a microsecond, a thirtieth of a round trip.
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
	within, cancel := context.WithDeadline(ctx, end)
	_ = cancel // others may share it, so it ends by itself
	r.connecting.Store(&within)
	return within, func() {}
}
