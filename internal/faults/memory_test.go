//go:build unix

package faults

import (
	"context"
	"fmt"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// A memoryRedis is a miniredis for a bubble of virtual time, in which waiting takes no real time.
type memoryRedis struct {
	*miniredis.Miniredis
	t      *testing.T
	replID atomic.Int64
	clock  time.Time // zero while it runs
}

func newMemoryRedis(t *testing.T) *memoryRedis {
	m := &memoryRedis{Miniredis: miniredis.NewMiniRedis(), t: t}
	t.Cleanup(m.Close)
	m.ClockTTL(true)
	// A ledger needs a replication ID, which miniredis lacks.
	conn, err := m.Dial() // which starts it
	require.NoError(t, err)
	require.NoError(t, conn.Close())
	m.Server().SetPreHook(func(c *server.Peer, cmd string, args ...string) bool {
		if cmd != "INFO" {
			return false
		}
		c.WriteBulk(fmt.Sprintf("# Replication\r\nrole:master\r\nmaster_replid:%040x\r\n", m.replID.Load()))
		return true
	})
	return m
}

// set stops the clock at t. A server's keys expire at an instant, miniredis's after a time: when the clock goes back,
// they live longer by as much. Keys that have expired before stay gone.
func (m *memoryRedis) set(t time.Time) {
	keys, back := m.Keys(), m.clock.Sub(t)
	m.SetTime(t)
	m.clock = t
	for _, key := range keys {
		if left := m.TTL(key); back > 0 && left > 0 {
			m.SetTTL(key, left+back)
		}
	}
}

// client returns a client, through p if that is not nil. read is its read timeout, in go-redis's terms.
func (m *memoryRedis) client(p *proxy, read time.Duration) *redis.Client {
	client := redis.NewClient(&redis.Options{
		Addr: "127.0.0.1:6379", // a name would be looked up outside the bubble
		// Nobody waits for a connection: go-redis reuses the timers of such waits, and bubbles cannot share timers.
		PoolSize: 1000,
		Dialer: func(context.Context, string, string) (net.Conn, error) {
			conn, err := m.Dial()
			if err == nil && p != nil {
				conn = p.dial(conn)
			}
			return conn, err
		},
		ReadTimeout: read,
	})
	m.t.Cleanup(func() { _ = client.Close() })
	return client
}
