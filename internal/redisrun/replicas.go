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

// This file lets replicas confirm what commands wrote. WAIT counts only what the same connection wrote before, so it
// goes in the same pipeline. On Cluster that takes a client of the one node, which does not follow redirections by
// itself.

// Replicas is how many replicas have to confirm what a command wrote.
type Replicas struct {
	N       int // 0 for none
	Timeout time.Duration
}

// processOnMaster sends the only one of commands to the master of its key. Replicas have to confirm it.
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
			pipe.Do(ctx, "asking") // changes nothing where the slot has moved already
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
		port := strings.LastIndexByte(addr, ':') + 1 // Redis puts no brackets around an IPv6 address, as go-redis does
		addr = net.JoinHostPort(strings.Trim(addr[:max(0, port-1)], "[]"), addr[port:])
		server = r.cluster.Options().NewClient(unlistedOptions(server, addr))
		defer server.Close()
	}
}

// unlistedOptions returns the options of a client for an address: those of server, except what only a listed node has.
// The Cluster client may not list the master that a redirection names: a master has no slots until the first one has
// moved to it entirely. go-redis hands out no client for such an address, so each redirected command makes one, and
// leaves no connection behind.
func unlistedOptions(server *redis.Client, addr string) *redis.Options {
	opt := *server.Options()
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
