package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"
)

// demonstrate starts a Redis in memory and chooses a temporary SQLite file, FOR DEMONSTRATION ONLY. The function stop
// deletes both. In your own service, delete this file.
func demonstrate() (stop func(), err error) {
	m, err := miniredis.Run()
	if err != nil {
		return nil, err
	}
	m.ClockTTL(true) // makes keys expire
	addReplicationID(m)
	folder, err := os.MkdirTemp("", "orders")
	return func() {
			m.Close()
			_ = os.RemoveAll(folder)
		}, errors.Join(err, os.Setenv("ORDERS_REDIS_URL", "redis://"+m.Addr()),
			os.Setenv("ORDERS_DATABASE", filepath.Join(folder, "orders.db")))
}

// addReplicationID adds the replication ID, which a ledger needs and miniredis lacks.
func addReplicationID(m *miniredis.Miniredis) {
	info := fmt.Sprintf("role:master\r\nmaster_replid:%040x\r\n", time.Now().UnixNano())
	m.Server().SetPreHook(func(c *server.Peer, cmd string, args ...string) bool {
		if !strings.EqualFold(cmd, "INFO") || len(args) != 1 || args[0] != "replication" {
			return false
		}
		c.WriteBulk(info)
		return true
	})
}
