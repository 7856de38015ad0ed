// Package wire sends commands to Redis servers and returns the replies. Each server has one queue of items. Several
// callers can share an item. Items are sent in pipelines, and sent again after a failure if that is safe. On request,
// replicas confirm the writes of an item. The package does not interpret the commands.
package wire

import (
	"context"
	"reflect"
	"runtime"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// A Client sends items to the servers of a go-redis client. It is safe for concurrent use, and does not have to be
// closed.
type Client struct {
	settings
	local   func() any
	only    *Node    // the only Node, or nil for a Cluster
	masters sync.Map // *Node by *redis.Client, because go-redis may create a new client for the same address
}

// New returns a Client. The parameter replicas determines how many replicas confirm the items that have Confirm set.
// The function local creates the value of [Node.Local] for each server.
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

// newNode returns the Node of a server. If this package does not know which server has a key, and go-redis has to find
// it, the argument server is nil. Each item is then sent by itself, and only the number of connections of the client
// limits how many are in flight.
func newNode(s *settings, server *redis.Client, connections int, local any) *Node {
	n := &Node{
		Local: local, sender: sender{settings: s, server: server}, waitingByMerge: map[Merge]*Item{},
		together: 1, maxPipelines: max(connections, 4), connections: connections,
	}
	if server != nil {
		opt := server.Options()
		n.connections, n.maxPipelines, n.together = opt.PoolSize, maxInFlight, maxTogether
		if dialerID(opt) != ownDialer() && opt.Addr != "FailoverClient" { // short pipelines, so a distant server needs more
			n.maxPipelines, n.together = max(maxInFlight, min(4*maxInFlight, opt.PoolSize/2)), maxTogetherInMemory
		}
	}
	n.sender.limitReads()
	return n
}

// dialerID returns a value that identifies the function with which a client makes connections.
func dialerID(opt *redis.Options) uintptr { return reflect.ValueOf(opt.Dialer).Pointer() }

// ownDialer returns the dialerID of go-redis's own function, which makes connections of the operating system.
var ownDialer = sync.OnceValue(func() uintptr {
	client := redis.NewClient(&redis.Options{})
	defer client.Close()
	return dialerID(client.Options())
})

// Node returns the server that has the keys with a hash tag. For a Cluster, go-redis must first load the slots. This
// may take long, so it is done by the first command and not by Node. Until a command gets a reply, each caller gets a
// separate Node, so that it does not wait for other callers.
func (c *Client) Node(ctx context.Context, tag string) *Node {
	if c.cluster == nil {
		return c.only
	}
	var server *redis.Client
	if c.latestReply.Load() != 0 {
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

// Do sends an item to a server, or makes the caller join a waiting item with the same Merge, and waits for the result.
// It returns the item that has the Result, and the caller's position in this item, from 0. An error means that the
// caller has left, because ctx ended or item.Deadline passed. If a hook of the client panicked, Do panics with the same
// value.
//
// While go-redis waits for a reply, it does not notice that a context has ended. If ctx can end, another goroutine
// therefore sends the item, and Do returns when the item is finished or ctx ends. If ctx cannot end and no other item
// is waiting, Do sends the item itself.
func (c *Client) Do(ctx context.Context, n *Node, item *Item) (*Item, int, error) {
	joined, position, deadline := item, 0, item.Deadline
	if ctx.Done() != nil || item.Then != nil || !n.sender.isBounded(item, time.Now()) || !n.sendDirectly(ctx, item) {
		joined, position = n.add(ctx, item)
	} else if item.done == nil {
		return item, 0, nil
	}
	return joined, position, joined.wait(ctx, position, deadline)
}

// Join makes the caller join the waiting item with a Merge, and waits for the result. It returns nil if there is no
// such item. Under load, most callers find one. Join then saves them the cost of creating an item for [Client.Do].
func (c *Client) Join(ctx context.Context, n *Node, merge Merge, deadline time.Time) (*Item, int, error) {
	n.mu.Lock()
	joined, position := n.join(merge, deadline)
	n.mu.Unlock()
	if joined == nil {
		return nil, 0, nil
	}
	return joined, position, joined.wait(ctx, position, deadline)
}

// Start queues an item and returns immediately. Other callers cannot join the item. [Item.Wait] waits for the result.
func (c *Client) Start(ctx context.Context, n *Node, item *Item) {
	item.Merge = Merge{}
	n.add(ctx, item)
}
