package serial

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// A confirmation is what WithReplicas demands: that so many replicas have a number before it is returned.
type confirmation struct {
	replicas int // 0: none
	timeout  time.Duration
}

// unconfirmed is the reply to a command of which too few replicas, or an unknown number, have what it wrote.
type unconfirmed struct {
	value any
	cause error
}

// wait appends WAIT to a pipeline on one server. It counts only for what the same connection wrote before.
func (c confirmation) wait(ctx context.Context, pipe redis.Pipeliner) *redis.Cmd {
	return pipe.Do(ctx, "wait", c.replicas, c.timeout.Milliseconds())
}

// check returns value as it may be believed after what WAIT answered. A script that wrote nothing makes WAIT speak of
// nothing, or, from Redis 7.2 on, agree at once: whatever is answered has to rest on a write.
func (c confirmation) check(value any, wait *redis.Cmd) any {
	acks, err := wait.Int()
	switch {
	case err != nil:
		return unconfirmed{value, fmt.Errorf("%w: %w", ErrNotReplicated, foreign(err))}
	case acks < c.replicas:
		return unconfirmed{value, fmt.Errorf("%w: %d of %d replicas confirmed within %v", ErrNotReplicated, acks, c.replicas, c.timeout)}
	}
	return value
}

// processConfirmed is process for a command whose writes replicas have to confirm: WAIT goes on the same connection and
// in the same round trip. On Cluster that takes a client of the one node, which does not follow redirections by itself.
func (c *caller) processConfirmed(ctx context.Context, command onceCmd) (any, error) {
	cluster, ok := c.client.(*redis.ClusterClient)
	if !ok {
		return c.pipeConfirmed(ctx, c.client.Pipeline(), command, false)
	}
	node, err := cluster.MasterForKey(ctx, command.Args()[3].(string))
	release := func() {}
	defer func() { release() }()
	asking := false
	for redirects := 0; err == nil; redirects++ {
		var v any
		v, err = c.pipeConfirmed(ctx, node.Pipeline(), command, asking)
		addr, moved := redis.IsMovedError(err)
		if !moved {
			addr, asking = redis.IsAskError(err)
		}
		if !moved && !asking || redirects >= c.retries {
			return v, err
		}
		if moved {
			asking = false
			cluster.ReloadState(ctx)
		}
		release()
		node, release, err = masterAt(ctx, cluster, node, hostPort(addr))
		command = newCommand(ctx, command.Args()[0].(string), command.Args()[1].(string), command.Args())
	}
	return nil, err
}

func (c *caller) pipeConfirmed(ctx context.Context, pipe redis.Pipeliner, command onceCmd, asking bool) (any, error) {
	if asking {
		pipe.Do(ctx, "asking")
	}
	_ = pipe.Process(ctx, command)
	wait := c.confirm.wait(ctx, pipe)
	_, failed := pipe.Exec(ctx)
	v, err := command.Result()
	if v == nil && err == nil {
		err = failed // a hook did not set it
	}
	if err != nil {
		return nil, err
	}
	return c.confirm.check(v, wait), nil
}

// masterAt returns the client of the master at an address that node named in a redirection, and what is to be called when
// it is not needed any more.
func masterAt(ctx context.Context, cluster *redis.ClusterClient, node *redis.Client, addr string) (
	found *redis.Client, release func(), err error,
) {
	var mu sync.Mutex
	err = cluster.ForEachMaster(ctx, func(_ context.Context, master *redis.Client) error {
		mu.Lock()
		defer mu.Unlock()
		if master.Options().Addr == addr {
			found = master
		}
		return nil
	})
	if err != nil || found != nil {
		return found, func() {}, err
	}
	stranger := cluster.Options().NewClient(strangerOptions(node, addr))
	return stranger, func() { _ = stranger.Close() }, nil
}

// hostPort is an address as go-redis writes it: Redis has no brackets around an IPv6 address.
func hostPort(addr string) string {
	colon := strings.LastIndexByte(addr, ':')
	if colon < 0 {
		return addr
	}
	return net.JoinHostPort(strings.Trim(addr[:colon], "[]"), addr[colon+1:])
}

// strangerOptions configure a client for a master that the Cluster client does not list: a master has no slots until the
// first one has moved to it entirely. go-redis hands out no client for such an address, so each command makes one, and
// leaves no connection behind. It is configured as the client of a node that is listed.
func strangerOptions(node *redis.Client, addr string) *redis.Options {
	opt := *node.Options()
	opt.Addr, opt.NodeAddress = addr, ""
	opt.MinIdleConns = 0
	// In the options of a client that exists 0 means none; for a new one it means the default, and -1 means none.
	opt.MaxRetries = -1 // caller.run tries again
	opt.ReadTimeout, opt.WriteTimeout = cmp.Or(opt.ReadTimeout, -1), cmp.Or(opt.WriteTimeout, -1)
	// These two belong to the client of the node.
	opt.PushNotificationProcessor = nil
	opt.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	return &opt
}
