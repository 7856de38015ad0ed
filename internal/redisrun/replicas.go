package redisrun

import (
	"cmp"
	"context"
	"net"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// This file lets replicas confirm writes. WAIT covers only earlier writes on the same connection, so it goes in the
// same pipeline. On Cluster that takes a client of the single node, which does not follow redirections by itself.

// Replicas says how many replicas must confirm a write.
type Replicas struct {
	N       int // 0 for none
	Timeout time.Duration
}

// processOnMaster sends the only element of commands to the master of its key. Replicas must confirm it.
func (r *Runner) processOnMaster(ctx context.Context, commands []onceCmd) (unconfirmed error) {
	command := commands[0]
	server, err := r.cluster.MasterForKey(ctx, command.Args()[3].(string))
	if err != nil {
		command.SetErr(err)
		return nil
	}
	for redirects := 0; ; redirects++ {
		pipe := server.Pipeline()
		if redirects > 0 {
			pipe.Do(ctx, "asking") // has no effect if the slot has already moved
		}
		unconfirmed = r.exec(ctx, pipe, true, commands)
		addr, redirected := redis.IsMovedError(command.Err())
		if redirected {
			r.cluster.ReloadState(ctx)
		} else {
			addr, redirected = redis.IsAskError(command.Err())
		}
		if !redirected || redirects >= r.retries {
			return unconfirmed
		}
		port := strings.LastIndexByte(addr, ':') + 1 // unlike go-redis, Redis puts no brackets around an IPv6 address
		addr = net.JoinHostPort(strings.Trim(addr[:max(0, port-1)], "[]"), addr[port:])
		server = r.cluster.Options().NewClient(unlistedOptions(server, addr))
		defer server.Close()
	}
}

// unlistedOptions returns options for a client of an address: server's options, except those that only a listed node
// has. The Cluster client may not list the master that a redirection names: a master has no slots until the first one
// has moved to it entirely. go-redis provides no client for such an address, so each redirected command makes one, and
// leaves no connection behind.
func unlistedOptions(server *redis.Client, addr string) *redis.Options {
	opt := *server.Options()
	opt.Addr, opt.NodeAddress = addr, ""
	opt.MinIdleConns = 0
	// In the options of an existing client, 0 means none; for a new client, 0 means the default and -1 means none.
	opt.MaxRetries = -1 // Run tries again
	opt.ReadTimeout, opt.WriteTimeout = cmp.Or(opt.ReadTimeout, -1), cmp.Or(opt.WriteTimeout, -1)
	// These two belong to the node's client.
	opt.PushNotificationProcessor = nil
	opt.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	return &opt
}
