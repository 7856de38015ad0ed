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
	server  *redis.Client // nil where only go-redis finds it
	known   bool
	oneSlot atomic.Bool
}

// Known is false where only go-redis knows which server has a key. Nothing is remembered of such a Node.
func (n *Node) Known() bool { return n.known }

// Together is how many types may go in one call at most. A client of an unknown kind may be a Cluster's, whose types cannot share
// a script.
func (n *Node) Together() int {
	if n.server == nil {
		return 1
	}
	return 256
}

// OneSlot reports whether the server refuses scripts whose keys are in different slots, so that they need a pipeline instead.
func (n *Node) OneSlot() bool { return n.oneSlot.Load() }

// SetOneSlot notes that the server does so: it is a Cluster's, though the client is not.
func (n *Node) SetOneSlot() { n.oneSlot.Store(true) }

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
	n := &Nodes[T]{runner: r, create: create}
	if r.cluster == nil {
		server, _ := r.client.(*redis.Client)
		n.only = create(&Node{server: server, known: true})
	}
	return n
}

// Only returns what belongs to the only server, and false if there are several.
func (n *Nodes[T]) Only() (T, bool) { return n.only, n.runner.cluster == nil }

// Of returns what belongs to the server, of several, that has a key. To learn a Cluster's slots takes as long as its nodes make it.
// The first command does that, and nobody else waits for it.
func (n *Nodes[T]) Of(ctx context.Context, key string) T {
	var server *redis.Client
	if n.runner.answered.Load() != 0 {
		server, _ = n.runner.cluster.MasterForKey(ctx, key)
	}
	if server == nil {
		return n.create(&Node{})
	}
	entry, found := n.masters.Load(server)
	if !found {
		node := &Node{server: server, known: true}
		node.SetOneSlot()
		entry, _ = n.masters.LoadOrStore(server, n.create(node))
	}
	return entry.(T)
}
