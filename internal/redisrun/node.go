package redisrun

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"github.com/redis/go-redis/v9"

	"github.com/dailyserial/serial/internal/budget"
)

// This file finds the server that has a key, and asks how it does. Servers are told apart so that none waits for another.

// A Node is a server that has keys. Its methods may be called concurrently.
type Node struct {
	server *redis.Client // nil where only go-redis finds it

	// OneSlot tells that the server refuses scripts whose keys are in different slots, so that they need a pipeline instead.
	OneSlot atomic.Bool
}

// Together is how many types may go in one call at most. A client of an unknown kind may be a Cluster's, whose types cannot share
// a script.
func (n *Node) Together() int {
	if n.server == nil {
		return 1
	}
	return 256
}

// hasIdle reports whether the next command, or the next pipeline, finds a connection. To ask costs two allocations.
func (n *Node) hasIdle(pipelined bool) bool {
	stats := n.server.PoolStats()
	if pipelined && stats.PipelineStats != nil { // pipelines have a pool of their own
		stats = (*redis.PoolStats)(stats.PipelineStats)
	}
	return stats.IdleConns > 0
}

// answers reports whether the server answers at once, on a new connection.
func (n *Node) answers(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, budget.Last)
	defer cancel()
	_, err := Await(ctx, NoLimit, func() (string, error) {
		client := redis.NewClient(unlistedOptions(n.server, n.server.Options().Addr))
		defer client.Close()
		return client.Ping(ctx).Result()
	})
	return err == nil || errors.As(err, new(redis.Error)) // also by a refusal
}

// Nodes are the servers of a client, with a T for each.
type Nodes[T any] struct {
	runner  *Runner
	create  func(*Node) T
	only    T        // of a client that is not a Cluster's
	masters sync.Map // T by *redis.Client, of which go-redis may make a new one for an address
}

// NewNodes returns the servers of r's client. create is called for each, and for each key whose server is not known.
func NewNodes[T any](r *Runner, create func(*Node) T) *Nodes[T] {
	server, _ := r.client.(*redis.Client)
	return &Nodes[T]{runner: r, create: create, only: create(&Node{server: server})}
}

// Of returns what belongs to the server that has the keys of a hash tag, or to the only one. To learn a Cluster's slots takes as long as its nodes make it.
// The first command does that, and nobody else waits for it.
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
