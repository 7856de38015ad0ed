// Package wire is how a command travels to a Redis server and its reply back: one queue per server, whose items merge,
// leave in pipelines, are repeated if that is safe, and are confirmed by replicas if their callers ask for it. It does
// not know what the commands mean.
package wire

import (
	"context"
	"reflect"
	"runtime"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// A Client sends items to the servers of a go-redis client. It is safe for concurrent use, and need not be closed.
type Client struct {
	settings
	local   func() any
	only    *Node    // for a client that is not a Cluster's
	masters sync.Map // *Node by *redis.Client; go-redis may make a new client for an address
}

// New returns a Client. replicas confirm the items that ask for it. local makes the caller's state of a server,
// [Node.Local].
func New(client redis.UniversalClient, replicas Replicas, local func() any) *Client {
	c := &Client{settings: settings{client: client, replicas: replicas}, local: local}
	c.cluster, _ = client.(*redis.ClusterClient)
	c.retries, c.read = Configured(client)
	var server *redis.Client
	connections := 10 * runtime.GOMAXPROCS(0) // go-redis's default
	switch client := client.(type) {
	case *redis.Client:
		server = client
	case interface{ Options() *redis.Options }: // embeds a client
		connections = client.Options().PoolSize
	case interface{ Options() *redis.ClusterOptions }:
		connections = client.Options().PoolSize
	}
	if c.cluster == nil {
		c.only = newNode(&c.settings, server, connections, local())
	}
	return c
}

// newNode returns a Node of a server, which is nil if only go-redis can find it. Then each item is sent by itself, and
// there are as many in flight as the client has connections.
func newNode(s *settings, server *redis.Client, connections int, local any) *Node {
	n := &Node{
		Local: local, sender: sender{settings: s, server: server}, open: map[Merge]*Item{},
		together: 1, most: max(connections, 4), connections: connections,
	}
	if server != nil {
		opt := server.Options()
		n.connections, n.most, n.together = opt.PoolSize, mostInFlight, togetherMost
		if dialerOf(opt) != ownDialer() && opt.Addr != "FailoverClient" { // a distant server gets more short pipelines
			n.most, n.together = max(mostInFlight, min(4*mostInFlight, opt.PoolSize/2)), togetherInMemory
		}
	}
	n.sender.limitReads()
	return n
}

// dialerOf identifies the code that makes connections.
func dialerOf(opt *redis.Options) uintptr { return reflect.ValueOf(opt.Dialer).Pointer() }

// ownDialer identifies go-redis's code that makes connections of the operating system.
var ownDialer = sync.OnceValue(func() uintptr {
	client := redis.NewClient(&redis.Options{})
	defer client.Close()
	return dialerOf(client.Options())
})

// Node returns the server that has the keys of a hash tag. Learning a Cluster's slots may take long, so the first
// command does that. Until it is answered, each caller gets a Node of its own, and waits for nobody else.
func (c *Client) Node(ctx context.Context, tag string) *Node {
	if c.cluster == nil {
		return c.only
	}
	var server *redis.Client
	if c.answered.Load() != 0 {
		server, _ = c.cluster.MasterForKey(ctx, tag)
	}
	if server == nil {
		return newNode(&c.settings, nil, c.cluster.Options().PoolSize, c.local())
	}
	n, found := c.masters.Load(server)
	if !found {
		n, _ = c.masters.LoadOrStore(server, newNode(&c.settings, server, 0, c.local()))
	}
	return n.(*Node)
}

// Do sends an item to a server, or makes the caller one of a waiting item with equal Merge, and waits for the result.
// It returns the item whose Result counts, and the caller's place in it, from 0. An error means that the caller has
// left: ctx ended, or item.Deadline passed. If a hook of the client panicked, so does Do.
//
// A context that ends does not interrupt go-redis while it reads, so such a caller waits for the item or the context,
// whichever ends first, while another goroutine sends. A caller whose context cannot end sends the item itself if it is
// alone.
func (c *Client) Do(ctx context.Context, n *Node, item *Item) (*Item, int, error) {
	joined, place, deadline := item, 0, item.Deadline
	if ctx.Done() != nil || item.Then != nil || !n.sender.isBounded(item, time.Now()) || !n.sendAlone(ctx, item) {
		joined, place = n.add(ctx, item)
	} else if item.done == nil {
		return item, 0, nil
	}
	return joined, place, joined.wait(ctx, place, deadline)
}

// Join is Do for a caller who has no item of its own: it returns nil if no item with that Merge waits. It costs less,
// since most callers under load find an item.
func (c *Client) Join(ctx context.Context, n *Node, merge Merge, deadline time.Time) (*Item, int, error) {
	n.mu.Lock()
	joined, place := n.join(merge, deadline)
	n.mu.Unlock()
	if joined == nil {
		return nil, 0, nil
	}
	return joined, place, joined.wait(ctx, place, deadline)
}

// Start sends an item to a server, or queues it, without waiting for anything. The item is not merged with others.
// [Item.Wait] waits for the result.
func (c *Client) Start(ctx context.Context, n *Node, item *Item) {
	item.Merge = Merge{}
	n.add(ctx, item)
}
