package redistest

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

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
	return startMasters(t, 3, args)
}

// StartSolo starts a single server in cluster mode that owns all slots, and returns when it serves them. The server
// rejects commands for several slots, even from a client for a single server.
func StartSolo(t testing.TB, args ...string) *Server {
	t.Helper()
	return startMasters(t, 1, args).Servers[0]
}

func startMasters(t testing.TB, n int, args []string) *Cluster {
	t.Helper()
	c := &Cluster{}
	for i := range n {
		s := startNode(t, args)
		c.Servers = append(c.Servers, s)
		// The epoch can only be set while a node knows no other node. Nodes with equal epochs would first have to
		// resolve the conflict.
		s.insist(t, "CLUSTER", "SET-CONFIG-EPOCH", i+1)
		addSlots := []any{"CLUSTER", "ADDSLOTS"} // ADDSLOTSRANGE needs Redis 7.0
		for slot := i * 16384 / n; slot < (i+1)*16384/n; slot++ {
			addSlots = append(addSlots, slot)
		}
		s.insist(t, addSlots...)
	}
	for i, s := range c.Servers {
		s.meet(t, c.Servers[i+1:]) // each pair directly, because gossip takes longer
	}
	ready := regexp.MustCompile(fmt.Sprintf(`(?s)state:ok\r.*slots_ok:16384\r.*known_nodes:%[1]d\r.*size:%[1]d\r`, n))
	for _, s := range c.Servers {
		// This takes at least two seconds, because a master rejects clients for that long after its start.
		s.await(t, "INFO", ready.MatchString)
	}
	return c
}

func startNode(t testing.TB, args []string) *Server {
	t.Helper()
	return Start(t, append([]string{"--cluster-enabled", "yes", "--cluster-node-timeout", "2000",
		"--cluster-announce-ip", "127.0.0.1"}, args...)...)
}

// StartReplicatedCluster is like StartCluster, but each master has a replica. Slots are served even if other slots are
// not.
func StartReplicatedCluster(t testing.TB, args ...string) *Cluster {
	t.Helper()
	args = append([]string{"--cluster-require-full-coverage", "no", "--cluster-allow-replica-migration", "no"}, args...)
	c := StartCluster(t, args...)
	for _, m := range c.Servers {
		s := startNode(t, args)
		c.Replicas = append(c.Replicas, s)
		s.meet(t, c.Servers)
		s.insist(t, "CLUSTER", "REPLICATE", m.insist(t, "CLUSTER", "MYID"))
	}
	for _, s := range slices.Concat(c.Servers, c.Replicas) {
		s.await(t, "NODES", func(nodes string) bool {
			return strings.Count(nodes, "slave ") == 3 && !strings.Contains(nodes, "handshake")
		})
	}
	for i := range c.Servers {
		c.Pair(t, i)
	}
	return c
}

// meet introduces other nodes to a node.
func (s *Server) meet(t testing.TB, others []*Server) {
	for _, other := range others {
		s.insist(t, "CLUSTER", "MEET", "127.0.0.1", other.port)
	}
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

// await waits until the reply to a CLUSTER command is as wanted.
func (s *Server) await(t testing.TB, what string, wanted func(reply string) bool) {
	t.Helper()
	eventually(t, "cluster", func() error {
		reply, err := s.Do("CLUSTER", what).Text()
		if err == nil && !wanted(reply) {
			err = fmt.Errorf("CLUSTER %s of %s:\n%s", what, s.Addr(), reply)
		}
		return err
	})
}

// Addrs returns the addresses of the nodes.
func (c *Cluster) Addrs() (addrs []string) {
	for _, s := range c.Servers {
		addrs = append(addrs, s.Addr())
	}
	return addrs
}

// Client returns a new client of the cluster. It is closed when t ends.
func (c *Cluster) Client(t testing.TB) *redis.ClusterClient {
	return closing(t, redis.NewClusterClient(&redis.ClusterOptions{Addrs: c.Addrs()}))
}

// Pair returns the i-th master and its replica in their current roles. It waits until one of them is a master, and the
// other is a replica that is online.
func (c *Cluster) Pair(t testing.TB, i int) (master, replica *Server) {
	t.Helper()
	eventually(t, "pair", func() error {
		master, replica = c.Servers[i], c.Replicas[i]
		if !master.IsMaster() {
			master, replica = replica, master
		}
		info, err := master.Do("INFO", "replication").Text()
		if err == nil && (!master.IsMaster() || replica.IsMaster() || !strings.Contains(info, "state=online")) {
			err = errors.New("no master, or two, or the replica is not online")
		}
		return err
	})
	return master, replica
}

// MoveSlot moves a slot from its master to another one. It moves one key at a time with a pause after each, and returns
// when both masters know the new owner.
func (c *Cluster) MoveSlot(t testing.TB, slot int, pause time.Duration) {
	t.Helper()
	masters := slices.Clone(c.Servers)
	for i := range c.Replicas {
		masters[i], _ = c.Pair(t, i)
	}
	from := slices.IndexFunc(masters, func(m *Server) bool { return m.owns(slot) })
	if from < 0 {
		t.Fatalf("redistest: no master has slot %d", slot)
	}
	src, dst := masters[from], masters[(from+1)%len(masters)]
	srcID, dstID := src.insist(t, "CLUSTER", "MYID"), dst.insist(t, "CLUSTER", "MYID")
	dst.insist(t, "CLUSTER", "SETSLOT", slot, "IMPORTING", srcID)
	src.insist(t, "CLUSTER", "SETSLOT", slot, "MIGRATING", dstID)
	for {
		time.Sleep(pause)
		keys, err := src.Do("CLUSTER", "GETKEYSINSLOT", slot, 1).StringSlice()
		if err != nil {
			t.Fatalf("redistest: keys of slot %d: %v", slot, err)
		}
		if len(keys) == 0 {
			break
		}
		err = src.Do("MIGRATE", "127.0.0.1", dst.port, keys[0], 0, 1000).Err() // repeated if it fails
		if err != nil && !(src.IsMaster() && dst.IsMaster()) {
			c.MoveSlot(t, slot, pause) // with the masters after the failover
			return
		}
	}
	for _, m := range []*Server{dst, src} { // the source got no new keys, because it redirects clients
		m.insist(t, "CLUSTER", "SETSLOT", slot, "NODE", dstID)
	}
}

// owns reports whether the server considers itself the master of a slot.
func (s *Server) owns(slot int) bool {
	ranges, _ := s.Do("CLUSTER", "SLOTS").Slice()
	return slices.ContainsFunc(ranges, func(r any) bool {
		fields := r.([]any) // first and last slot, and the master: its host, port and ID
		port := fields[2].([]any)[1]
		return fields[0].(int64) <= int64(slot) && int64(slot) <= fields[1].(int64) && fmt.Sprint(port) == fmt.Sprint(s.port)
	})
}
