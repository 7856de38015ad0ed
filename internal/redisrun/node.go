package redisrun

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/redis/go-redis/v9"
)

// This file finds the server that has a key. Servers are told apart so that none waits for another.

// A Node is a server that has keys. Its methods may be called concurrently.
type Node struct {
	server  *redis.Client // nil where go-redis finds it
	known   bool
	oneSlot atomic.Bool
}

// Known is false where only go-redis knows which server has a key; then nothing is remembered of it.
func (n *Node) Known() bool { return n.known }

// Together is how many types may go in one call at most. What is no client of one server may be a Cluster's, whose types do not
// share scripts.
func (n *Node) Together() int {
	const most = 256
	if n.server == nil {
		return 1
	}
	return most
}

// OneSlot reports whether the server refuses scripts whose keys are in different slots, and takes a pipeline instead.
func (n *Node) OneSlot() bool { return n.oneSlot.Load() }

// SetOneSlot notes that it does: it is a Cluster's, though the client is not. It changes nothing where only go-redis knows
// the server, as calls go alone there.
func (n *Node) SetOneSlot() { n.oneSlot.Store(n.server != nil) }

// Nodes are the servers of a client, with a T for each.
type Nodes[T any] struct {
	runner  *Runner
	create  func(*Node) T
	cluster *redis.ClusterClient // nil where there is one server only
	only    T                    // of that one
	masters sync.Map             // T by *redis.Client, of which go-redis may make a new one for an address
}

// NewNodes returns the servers of r's client. create is called for each, and for each key whose server is not known.
func NewNodes[T any](r *Runner, create func(*Node) T) *Nodes[T] {
	n := &Nodes[T]{runner: r, create: create}
	switch client := r.client.(type) {
	case *redis.ClusterClient:
		n.cluster = client
	case *redis.Client:
		n.only = create(&Node{server: client, known: true})
	default:
		n.only = create(&Node{known: true})
	}
	return n
}

// Only is what belongs to the one server that there is, and false if there are several.
func (n *Nodes[T]) Only() (T, bool) { return n.only, n.cluster == nil }

// Of is what belongs to the server of several that has a key. To find out a Cluster's slots takes as long as its nodes make it, and until
// a first command has done that, nobody else waits for it.
func (n *Nodes[T]) Of(ctx context.Context, key string) T {
	var server *redis.Client
	if n.runner.warm.Load() {
		server, _ = n.cluster.MasterForKey(ctx, key)
	}
	if server == nil {
		return n.create(&Node{})
	}
	if of, ok := n.masters.Load(server); ok {
		return of.(T)
	}
	node := &Node{server: server, known: true}
	node.oneSlot.Store(true)
	of, _ := n.masters.LoadOrStore(server, n.create(node))
	return of.(T)
}
