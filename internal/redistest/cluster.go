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
	do := func(s *Server, args ...any) {
		t.Helper()
		if err := s.Do(args...).Err(); err != nil {
			t.Fatalf("redistest: %v: %v", args[:2], err)
		}
	}
	for i, s := range c.Servers {
		// The epoch can only be set while a node knows no other node. Nodes with equal epochs would first have to
		// resolve the conflict.
		do(s, "CLUSTER", "SET-CONFIG-EPOCH", i+1)
		do(s, addSlots(i*16384/3, (i+1)*16384/3-1)...)
	}
	for i, s := range c.Servers {
		for _, other := range c.Servers[i+1:] { // each pair directly, because gossip takes longer
			do(s, "CLUSTER", "MEET", "127.0.0.1", other.port)
		}
	}
	// This takes at least two seconds, because a master rejects clients for that long after its start.
	eventually(t, "cluster", c.joined)
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

// joined returns an error until every node knows the whole cluster.
func (c *Cluster) joined() error {
	for _, s := range c.Servers {
		info, err := s.Do("CLUSTER", "INFO").Text()
		if err != nil {
			return err
		}
		for _, want := range []string{"state:ok", "slots_ok:16384", "known_nodes:3", "size:3"} {
			if !strings.Contains(info, "cluster_"+want+"\r\n") {
				return fmt.Errorf("%s: no cluster_%s in\n%s", s.Addr(), want, info)
			}
		}
	}
	return nil
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
