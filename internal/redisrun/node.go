package redisrun

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/redis/go-redis/v9"

	"github.com/dailyserial/serial/internal/budget"
)

// This file locates a key's server and checks whether it responds. Each server is handled by itself, so none waits for
// another.

// A Node is a server that has keys. It is safe for concurrent use.
type Node struct {
	server      *redis.Client // nil if only go-redis can find it
	connections int           // pool size of the client, if server is nil

	// OneSlot means that the server refuses scripts whose keys are in different slots, so they need a pipeline instead.
	OneSlot atomic.Bool
}

// Together returns the most types that may share a call. A client of an unknown kind may be a Cluster's, whose types
// cannot share a script.
func (n *Node) Together() int {
	if n.server == nil {
		return 1
	}
	return 256
}

// Pipeline returns a pipeline to the server, for callers who may share calls.
func (n *Node) Pipeline() redis.Pipeliner { return n.server.Pipeline() }

// InFlight returns the most calls in flight: shared, if types share calls; otherwise the number of the client's
// connections, so no call waits for one.
func (n *Node) InFlight(shared int) int {
	if n.server != nil {
		return shared
	}
	return max(n.connections, 4)
}

// hasIdle reports whether the next command or pipeline will find an idle connection. It costs two allocations.
func (n *Node) hasIdle(pipelined bool) bool {
	stats := n.server.PoolStats()
	if pipelined && stats.PipelineStats != nil { // pipelines have their own pool
		stats = (*redis.PoolStats)(stats.PipelineStats)
	}
	return stats.IdleConns > 0
}

// answers reports whether the server answers on a new connection at once.
func (n *Node) answers(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, budget.Last)
	defer cancel()
	_, err := Await(ctx, NoLimit, func() (string, error) {
		client := redis.NewClient(unlistedOptions(n.server, n.server.Options().Addr))
		defer client.Close()
		return client.Ping(ctx).Result()
	})
	return err == nil || errors.As(err, new(redis.Error)) // a refusal is an answer too
}

// Nodes holds a T for each server of a client.
type Nodes[T any] struct {
	runner  *Runner
	create  func(*Node) T
	only    T        // for a client that is not a Cluster's
	masters sync.Map // T by *redis.Client; go-redis may make a new client for an address
}

// NewNodes returns the Nodes of r's client. create is called for each server, and for each key whose server is unknown.
func NewNodes[T any](r *Runner, create func(*Node) T) *Nodes[T] {
	only := &Node{}
	switch client := r.client.(type) {
	case *redis.Client:
		only.server = client
	case interface{ Options() *redis.Options }: // embeds a client
		only.connections = client.Options().PoolSize
	case interface{ Options() *redis.ClusterOptions }:
		only.connections = client.Options().PoolSize
	default:
		only.connections = 10 * runtime.GOMAXPROCS(0) // go-redis's default
	}
	return &Nodes[T]{runner: r, create: create, only: create(only)}
}

// Of returns the T of the server that has the keys of a hash tag, or of the only server. Learning a Cluster's slots may
// take long; the first command does it, and nobody else waits for it.
func (n *Nodes[T]) Of(ctx context.Context, tag string) T {
	if n.runner.cluster == nil {
		return n.only
	}
	var server *redis.Client
	if n.runner.answered.Load() != 0 {
		server, _ = n.runner.cluster.MasterForKey(ctx, tag)
	}
	if server == nil {
		return n.create(&Node{})
	}
	entry, found := n.masters.Load(server)
	if !found {
		node := &Node{server: server}
		node.OneSlot.Store(true)
		entry, _ = n.masters.LoadOrStore(server, n.create(node))
	}
	return entry.(T)
}
