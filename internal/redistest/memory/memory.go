// Package memory provides a Redis in memory for tests. It is not part of redistest, so that users of redistest do not
// need miniredis.
package memory

import (
	"context"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"
	"github.com/redis/go-redis/v9"
)

// A Redis is a miniredis with a replication ID. In a bubble of testing/synctest, it uses the clock of the bubble, and
// keys expire by this clock.
type Redis struct {
	*miniredis.Miniredis
	t      testing.TB
	denied atomic.Value // denied command, a string
}

// Start starts a Redis. It is stopped at the end of the test.
func Start(t testing.TB) *Redis {
	r := &Redis{Miniredis: miniredis.NewMiniRedis(), t: t}
	r.ClockTTL(true)
	t.Cleanup(r.Close)
	r.addReplicationID()
	return r
}

// Deny makes the server reject a command like an ACL, including the calls of the command in scripts. With "", all
// commands are allowed.
func (m *Redis) Deny(command string) { m.denied.Store(command) }

// Client returns a new client.
func (m *Redis) Client(hooks ...redis.Hook) *redis.Client {
	client := redis.NewClient(&redis.Options{
		Addr: "127.0.0.1:6379", // a name would be looked up outside the bubble
		// No command has to wait for a connection. go-redis would reuse the timers of such waits, and bubbles cannot
		// share timers.
		PoolSize: 1000,
		Dialer:   func(context.Context, string, string) (net.Conn, error) { return m.Dial() },
	})
	m.t.Cleanup(func() { _ = client.Close() })
	for _, hook := range hooks {
		client.AddHook(hook)
	}
	return client
}

// AddReplicationID adds a replication ID to a miniredis, which has none, because a ledger needs this ID. The returned
// function changes the ID like a restart.
func AddReplicationID(m *miniredis.Miniredis) (change func()) {
	return (&Redis{Miniredis: m}).addReplicationID()
}

func (m *Redis) addReplicationID() (change func()) {
	if m.Server() == nil { // the first connection starts it
		if conn, err := m.Dial(); err == nil {
			_ = conn.Close()
		}
	}
	var replID atomic.Int64
	m.Server().SetPreHook(func(c *server.Peer, cmd string, args ...string) bool {
		if strings.ToUpper(cmd) == m.denied.Load() {
			c.WriteError("NOPERM this user has no permissions to run the '" + cmd + "' command")
			return true
		}
		if !strings.EqualFold(cmd, "INFO") || len(args) != 1 || args[0] != "replication" {
			return false
		}
		c.WriteBulk(fmt.Sprintf("# Replication\r\nrole:master\r\nmaster_replid:%040x\r\nmaster_repl_offset:0\r\n",
			replID.Load()))
		return true
	})
	return func() { replID.Add(1) }
}
