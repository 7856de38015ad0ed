package wire

import (
	"cmp"
	"context"
	"errors"
	"net"
	"strings"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// This file follows the redirections of a Cluster for items that replicas must confirm. go-redis cannot follow them,
// because WAIT must be in the same pipeline as the item, and a pipeline to a single node does not follow redirections.

// onMaster sends i, without the items after it, to the master that has its key. It also requests the confirmation of
// replicas, and returns the reason if they did not confirm.
func (s *sender) onMaster(ctx context.Context, i *Item) (unconfirmed error) {
	if s.cluster == nil {
		i.command.SetErr(errors.New("a client of this kind cannot have replicas confirm a write"))
		return nil
	}
	key := i.Key
	if i.Script != nil {
		key = 3
	}
	server, err := s.cluster.MasterForKey(ctx, i.command.Args()[key].(string))
	if err != nil {
		i.command.SetErr(err)
		return nil
	}
	next := i.next
	i.next = nil
	defer func() { i.next = next }()
	for redirects := 0; ; redirects++ {
		pipe := server.Pipeline()
		if redirects > 0 {
			_ = pipe.Process(ctx, onceCmd{Cmd: redis.NewCmd(ctx, "asking")}) // no effect if the slot has already been moved
		}
		unconfirmed = s.exec(ctx, pipe, true, []*Item{i})
		addr, redirected := redis.IsMovedError(i.command.Err())
		if redirected {
			s.cluster.ReloadState(ctx)
		} else {
			addr, redirected = redis.IsAskError(i.command.Err())
		}
		if !redirected || redirects >= s.retries {
			return unconfirmed
		}
		port := strings.LastIndexByte(addr, ':') + 1 // unlike go-redis, Redis puts no brackets around an IPv6 address
		addr = net.JoinHostPort(strings.Trim(addr[:max(0, port-1)], "[]"), addr[port:])
		server = s.cluster.Options().NewClient(unlistedOptions(server, addr))
		defer server.Close()
	}
}

// unlistedOptions returns options for a client that connects to addr. They are the options of server, without those
// that only the clients of a Cluster's nodes have. The Cluster client may not know the master to which a redirection
// points, because a master has no slots until its first slot has been moved completely. go-redis provides no client for
// such a master, so a client is created and closed for each redirected command.
func unlistedOptions(server *redis.Client, addr string) *redis.Options {
	opt := *server.Options()
	opt.Addr, opt.NodeAddress = addr, ""
	opt.MinIdleConns = 0
	// In the options of an existing client, 0 means none. For a new client, 0 means the default, and -1 means none.
	opt.MaxRetries = -1 // the item is sent again by this package
	opt.ReadTimeout, opt.WriteTimeout = cmp.Or(opt.ReadTimeout, -1), cmp.Or(opt.WriteTimeout, -1)
	// These two belong to the node's client.
	opt.PushNotificationProcessor = nil
	opt.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	return &opt
}
