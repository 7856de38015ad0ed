package redistest

import (
	"fmt"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
)

// A Cluster is a cluster of three masters.
type Cluster struct {
	Servers  []*Server // masters at the start, in the order of their slots
	Replicas []*Server // replica of each master, if there are any; a failover does not change the fields
}

// StartCluster starts a cluster, and returns when all three nodes serve requests. args are additional arguments of
// every node. The nodes are killed when t ends. By default, a node is considered failed after 2 s without a reply, and
// then the whole cluster fails.
func StartCluster(t testing.TB, args ...string) *Cluster {
	t.Helper()
	args = append([]string{
		"--cluster-enabled", "yes", "--cluster-node-timeout", "2000", "--cluster-announce-ip", "127.0.0.1",
	}, args...)
	c := &Cluster{}
	for range 3 {
		c.Servers = append(c.Servers, Start(t, args...))
	}
	for i, s := range c.Servers {
		// The epoch can only be set while a node knows no other node. Nodes with equal epochs would first have to
		// resolve the conflict.
		s.insist(t, "CLUSTER", "SET-CONFIG-EPOCH", i+1)
		s.insist(t, addSlots(i*16384/3, (i+1)*16384/3-1)...)
	}
	for i, s := range c.Servers {
		for _, other := range c.Servers[i+1:] { // each pair directly, because gossip takes longer
			s.insist(t, "CLUSTER", "MEET", "127.0.0.1", other.port)
		}
	}
	for _, s := range c.Servers {
		// This takes at least two seconds, because a master rejects clients for that long after its start.
		s.await(t, "state:ok\r", "slots_ok:16384\r", "known_nodes:3\r", "size:3\r")
	}
	return c
}

// addSlots returns the command that assigns these slots to a node. It does not use ADDSLOTSRANGE, which needs Redis
// 7.0.
func addSlots(first, last int) []any {
	command := []any{"CLUSTER", "ADDSLOTS"}
	for slot := first; slot <= last; slot++ {
		command = append(command, slot)
	}
	return command
}

// insist repeats a command until it succeeds, and returns the reply.
func (s *Server) insist(t testing.TB, args ...any) (reply string) {
	t.Helper()
	eventually(t, fmt.Sprint(args[:2]...), func() error {
		cmd := s.Do(args...)
		reply = fmt.Sprint(cmd.Val())
		return cmd.Err()
	})
	return reply
}

// await waits until the reply to CLUSTER INFO contains all texts.
func (s *Server) await(t testing.TB, texts ...string) {
	t.Helper()
	eventually(t, "cluster", func() error {
		info, err := s.Do("CLUSTER", "INFO").Text()
		for _, text := range texts {
			if err == nil && !strings.Contains(info, text) {
				err = fmt.Errorf("%s: no %s in\n%s", s.Addr(), text, info)
			}
		}
		return err
	})
}

// Addrs returns the addresses of the nodes.
func (c *Cluster) Addrs() []string {
	return addrs(c.Servers)
}

// Client returns a new client of the cluster. It is closed when t ends.
func (c *Cluster) Client(t testing.TB) *redis.ClusterClient {
	t.Helper()
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: c.Addrs()})
	t.Cleanup(func() { _ = client.Close() })
	return client
}

func addrs(servers []*Server) []string {
	addrs := make([]string, len(servers))
	for i, s := range servers {
		addrs[i] = s.Addr()
	}
	return addrs
}
