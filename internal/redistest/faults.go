package redistest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// This file contains faults of servers, except for stopping and restarting them.

// StartReplica starts a replica of master, and returns when the replica is online. The replica is killed when t ends.
func StartReplica(t testing.TB, master *Server, args ...string) *Server {
	t.Helper()
	s := start(t, fmt.Sprintf("replicaof 127.0.0.1 %d\n", master.port), args)
	eventually(t, "replica", master.replicated)
	return s
}

// ReplicaOf makes the server a replica of master, or a master if master is nil. The role persists across restarts.
func (s *Server) ReplicaOf(master *Server) error {
	host, port := "NO", "ONE"
	if master != nil {
		host, port = "127.0.0.1", strconv.Itoa(master.port)
	}
	return errors.Join(s.Do("REPLICAOF", host, port).Err(), s.Do("CONFIG", "REWRITE").Err())
}

// IsMaster reports whether the server replies and is a master.
func (s *Server) IsMaster() bool {
	role, err := s.Do("ROLE").Slice()
	return err == nil && len(role) > 0 && role[0] == "master"
}

// AwaitReplica returns when the server has a replica that acknowledges its writes.
func (s *Server) AwaitReplica(t testing.TB) {
	t.Helper()
	eventually(t, "replica", s.replicated)
}

// CutOff interrupts the connection of the replica to its master until Rejoin is called. Both servers keep running, and
// the replica lags behind.
func (s *Server) CutOff(master *Server) error {
	return errors.Join(
		s.Do("CONFIG", "SET", "masterauth", "wrong").Err(), // a master without a password rejects every password
		master.Do("CLIENT", "KILL", "TYPE", "replica").Err())
}

// Rejoin reverts CutOff.
func (s *Server) Rejoin() error {
	// A promotion makes a replica rewrite its configuration, and a restart must not restore the wrong password.
	return errors.Join(s.Do("CONFIG", "SET", "masterauth", "").Err(), s.Do("CONFIG", "REWRITE").Err())
}

// Save returns a snapshot (RDB) of the data of the server. It can be passed to Restore. The server must not use an
// append-only file.
func (s *Server) Save() ([]byte, error) {
	if err := s.Do("SAVE").Err(); err != nil {
		return nil, err
	}
	return os.ReadFile(filepath.Join(s.dir, "dump.rdb"))
}

// Restore replaces the snapshot from which a killed server will start. If the snapshot is nil, the server will start
// empty.
func (s *Server) Restore(snapshot []byte) error {
	file := filepath.Join(s.dir, "dump.rdb")
	if snapshot == nil {
		return os.RemoveAll(file) // no error if there is none
	}
	return os.WriteFile(file, snapshot, 0o600)
}

// Roles returns the servers in their current roles. It waits until the sentinels and the servers agree on the roles,
// the replica is online, and another failover would succeed. If a former master has been restarted as a master, Roles
// makes it a replica immediately. The sentinels would do the same some seconds later.
func (s *Sentinel) Roles(t testing.TB) (leader, replica *Server) {
	t.Helper()
	eventually(t, "sentinel", func() (err error) {
		var busy bool
		if leader, busy, err = s.reported(); err != nil || busy || !leader.IsMaster() {
			return fmt.Errorf("a failover is not over: %v", err)
		}
		if replica = s.other(leader); replica.IsMaster() {
			_ = replica.ReplicaOf(leader)
		}
		for _, sentinel := range s.Sentinels {
			if err := watching(sentinel.Addr()); err != nil {
				return err
			}
		}
		return leader.replicated()
	})
	return leader, replica
}

// AwaitFailover returns once all sentinels report a master other than before, and that server is a master.
func (s *Sentinel) AwaitFailover(t testing.TB, before *Server) (after *Server) {
	t.Helper()
	after = s.other(before)
	eventually(t, "failover", func() error {
		if now, _, err := s.reported(); err != nil || now != after || !after.IsMaster() {
			return fmt.Errorf("%s is no master yet: %v", after.Addr(), err)
		}
		return nil
	})
	return after
}

// other returns the other one of the two servers.
func (s *Sentinel) other(server *Server) *Server {
	if server == s.Master {
		return s.Replica
	}
	return s.Master
}

// reported returns the server that all sentinels report as the master, and whether one of them is running a failover.
func (s *Sentinel) reported() (leader *Server, busy bool, err error) {
	for _, sentinel := range s.Sentinels {
		addr, fails, err := master(sentinel.Addr())
		now := s.Master
		if addr == s.Replica.Addr() {
			now = s.Replica
		}
		if err != nil || leader != nil && now != leader {
			return nil, false, fmt.Errorf("the sentinels disagree: %v", err)
		}
		leader, busy = now, busy || fails
	}
	return leader, busy, nil
}

// StartReplicatedCluster is like StartCluster, but each master has a replica. Slots are served even if other slots are
// not.
func StartReplicatedCluster(t testing.TB, args ...string) *Cluster {
	t.Helper()
	args = append([]string{"--cluster-require-full-coverage", "no", "--cluster-allow-replica-migration", "no"}, args...)
	c := StartCluster(t, args...)
	for _, m := range c.Servers {
		s := Start(t, append(args, "--cluster-enabled", "yes", "--cluster-node-timeout", "2000",
			"--cluster-announce-ip", "127.0.0.1")...)
		c.Replicas = append(c.Replicas, s)
		for _, other := range c.Servers {
			s.insist(t, "CLUSTER", "MEET", "127.0.0.1", other.port)
		}
		s.insist(t, "CLUSTER", "REPLICATE", m.insist(t, "CLUSTER", "MYID"))
	}
	for _, s := range slices.Concat(c.Servers, c.Replicas) {
		eventually(t, "cluster", func() error {
			nodes, err := s.Do("CLUSTER", "NODES").Text()
			if err == nil && (strings.Count(nodes, "slave ") != 3 || strings.Contains(nodes, "handshake")) {
				err = errors.New(nodes)
			}
			return err
		})
	}
	for i := range c.Servers {
		c.Pair(t, i)
	}
	return c
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
		if !master.IsMaster() || replica.IsMaster() {
			return errors.New("no master, or two")
		}
		info, err := master.Do("INFO", "replication").Text()
		if err == nil && !strings.Contains(info, "state=online") {
			err = errors.New("the replica is not online")
		}
		return err
	})
	return master, replica
}

// MoveSlot moves a slot from its master to another one. It moves one key at a time with a pause after each, and returns
// when both masters know the new owner.
func (c *Cluster) MoveSlot(t testing.TB, slot int, pause time.Duration) {
	t.Helper()
	var masters []*Server
	from := -1
	for i := range c.Servers {
		m := c.Servers[i]
		if len(c.Replicas) > 0 {
			m, _ = c.Pair(t, i)
		}
		masters = append(masters, m)
		if m.owns(slot) {
			from = i
		}
	}
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
		_ = src.Do("MIGRATE", "127.0.0.1", dst.port, keys[0], 0, 1000).Err() // repeated if it fails
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
		return fields[0].(int64) <= int64(slot) && int64(slot) <= fields[1].(int64) && port.(int64) == int64(s.port)
	})
}

// StartSolo starts a single server in cluster mode that owns all slots, and returns when it serves them. The server
// rejects commands for several slots, even from a client for a single server.
func StartSolo(t testing.TB, args ...string) *Server {
	t.Helper()
	s := Start(t, append(args, "--cluster-enabled", "yes")...)
	s.insist(t, addSlots(0, 16383)...)
	s.await(t, "state:ok\r") // takes two seconds, because a master waits for that long after its start
	return s
}
