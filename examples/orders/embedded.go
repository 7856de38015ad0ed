package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"
)

// embeddedRedis starts a Redis in this process's memory, FOR DEMONSTRATION ONLY: its data is lost when the process
// ends. In your own service, delete this file.
func embeddedRedis() (*miniredis.Miniredis, error) {
	m, err := miniredis.Run()
	if err != nil {
		return nil, err
	}
	m.ClockTTL(true) // expire keys by the clock
	// A ledger asks Redis for its replication ID, which a miniredis does not have.
	info := fmt.Sprintf("role:master\r\nmaster_replid:%040x\r\n", time.Now().UnixNano())
	m.Server().SetPreHook(func(c *server.Peer, cmd string, args ...string) bool {
		if !strings.EqualFold(cmd, "INFO") || len(args) != 1 || args[0] != "replication" {
			return false
		}
		c.WriteBulk(info)
		return true
	})
	return m, nil
}
