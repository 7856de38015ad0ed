package redisrun

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

// This file has replicas confirm what commands wrote. WAIT counts only for what the same connection wrote before, so it goes in
// the same pipeline; on Cluster that takes a client of the one node, which does not follow redirections by itself.

// Replicas is how many replicas have to confirm what a command wrote.
type Replicas struct {
	N       int // 0: none
	Timeout time.Duration
}

// wait appends WAIT to a pipeline on one server. Once that is executed, the result tells why what it wrote is not confirmed. A
// script that wrote nothing makes WAIT speak of nothing, or, from Redis 7.2 on, agree at once: whatever is answered has to rest
// on a write.
func (r Replicas) wait(ctx context.Context, pipe redis.Pipeliner) func() error {
	wait := pipe.Do(ctx, "wait", r.N, r.Timeout.Milliseconds())
	return func() error {
		acks, err := wait.Int()
		if err != nil {
			return Foreign(err)
		}
		if acks < r.N {
			return fmt.Errorf("%d of %d replicas confirmed within %v", acks, r.N, r.Timeout)
		}
		return nil
	}
}

// processConfirmed is process for a command that replicas have to confirm.
func (r *Runner) processConfirmed(ctx context.Context, command onceCmd) (Reply, error) {
	cluster, ok := r.client.(*redis.ClusterClient)
	if !ok {
		o := r.exec(ctx, r.client.Pipeline(), true, command)[0]
		return o.reply, o.err
	}
	node, err := cluster.MasterForKey(ctx, command.Args()[3].(string))
	release := func() {}
	defer func() { release() }()
	asking := false
	for redirects := 0; err == nil; redirects++ {
		pipe := node.Pipeline()
		if asking {
			pipe.Do(ctx, "asking")
		}
		o := r.exec(ctx, pipe, true, command)[0]
		addr, moved := redis.IsMovedError(o.err)
		if !moved {
			addr, asking = redis.IsAskError(o.err)
		}
		if !moved && !asking || redirects >= r.retries {
			return o.reply, o.err
		}
		if moved {
			asking = false
			cluster.ReloadState(ctx)
		}
		release()
		node, release, err = masterAt(ctx, cluster, node, hostPort(addr))
		command = newCommand(ctx, command.Args()[0].(string), command.Args()[1].(string), command.Args())
	}
	return Reply{}, err
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
	unlisted := cluster.Options().NewClient(unlistedOptions(node, addr))
	return unlisted, func() { _ = unlisted.Close() }, nil
}

// hostPort is an address as go-redis writes it: Redis has no brackets around an IPv6 address.
func hostPort(addr string) string {
	colon := strings.LastIndexByte(addr, ':')
	if colon < 0 {
		return addr
	}
	return net.JoinHostPort(strings.Trim(addr[:colon], "[]"), addr[colon+1:])
}

// unlistedOptions configure a client for a master that the Cluster client does not list: a master has no slots until the
// first one has moved to it entirely. go-redis hands out no client for such an address, so each command makes one, and
// leaves no connection behind. It is configured as the client of a node that is listed.
func unlistedOptions(node *redis.Client, addr string) *redis.Options {
	opt := *node.Options()
	opt.Addr, opt.NodeAddress = addr, ""
	opt.MinIdleConns = 0
	// In the options of a client that exists 0 means none; for a new one it means the default, and -1 means none.
	opt.MaxRetries = -1 // Run tries again
	opt.ReadTimeout, opt.WriteTimeout = cmp.Or(opt.ReadTimeout, -1), cmp.Or(opt.WriteTimeout, -1)
	// These two belong to the client of the node.
	opt.PushNotificationProcessor = nil
	opt.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	return &opt
}
