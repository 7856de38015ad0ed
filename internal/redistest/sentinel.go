package redistest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
)

// masterName is the name of the master in the configuration of the sentinels.
const masterName = "serial"

// A Sentinel is a master with one replica, monitored by three sentinels. Two of them must agree on a failover.
type Sentinel struct {
	servers []*Server // master and replica at the start
	addrs   []string  // of the sentinels
	clients []*redis.SentinelClient
}

// StartSentinel starts the five processes. It returns when a failover would succeed, that is, when the replica is
// online and every sentinel knows the replica and the other sentinels. The processes are killed when t ends.
//
// A server is considered down after 1 s without a reply, so a failover begins if the master is suspended or killed. If
// the old master is restarted, it is empty and a master at first. The sentinels make it a replica after about 5 s.
func StartSentinel(t testing.TB) *Sentinel {
	t.Helper()
	m := Start(t)
	// A sentinel queries its master for replicas immediately and then every 10 s, so the replica must be online first.
	s := &Sentinel{servers: []*Server{m, StartReplica(t, m)}}
	config := fmt.Sprintf("sentinel monitor %[1]s 127.0.0.1 %[2]d 2\n"+
		"sentinel down-after-milliseconds %[1]s 1000\n"+
		"sentinel failover-timeout %[1]s 5000\n", masterName, m.port)
	var sentinels []*Server
	for range 3 {
		sentinel := start(t, config, []string{"--sentinel"})
		sentinels, s.addrs = append(sentinels, sentinel), append(s.addrs, sentinel.Addr())
		s.clients = append(s.clients, closing(t, redis.NewSentinelClient(sentinel.Options())))
		pace(t, sentinel,
			"PUBLISH-PERIOD", 100, // until they have found each other
			// A new master is first pinged after one such period. With the default of 1 s, it would already be considered
			// down.
			"PING-PERIOD", 400,
			// A replica is not promoted if it has not replied for three of these periods, or for five ping periods.
			"INFO-PERIOD", 1000,
			// A sentinel that was suspended for this long does nothing for 30 s. The default is 2 s.
			"TILT-TRIGGER", 20000)
	}
	eventually(t, "sentinels", s.watch)
	for _, sentinel := range sentinels {
		// A replica that has been a master for four of these periods is demoted by any sentinel. So the period must be
		// longer than a failover's leader takes to notice its own success: 1 s, plus delays on a busy machine.
		pace(t, sentinel, "PUBLISH-PERIOD", 1000)
	}
	return s
}

// pace sets periods in milliseconds, until the sentinel is restarted. Before 7.0, the periods are fixed.
func pace(t testing.TB, sentinel *Server, periods ...any) {
	if !sentinel.old {
		sentinel.insist(t, append([]any{"SENTINEL", "DEBUG"}, periods...)...)
	}
}

// Options returns new options for a client that gets the address of the master from the sentinels.
func (s *Sentinel) Options() *redis.FailoverOptions {
	return &redis.FailoverOptions{MasterName: masterName, SentinelAddrs: s.addrs}
}

// Client returns a new client that connects to the current master. It is closed when t ends.
func (s *Sentinel) Client(t testing.TB) *redis.Client {
	return closing(t, redis.NewFailoverClient(s.Options()))
}

// Roles returns the servers in their current roles. It waits until the sentinels and the servers agree on the roles,
// the replica is online, and another failover would succeed. If a former master has been restarted as a master, Roles
// makes it a replica immediately. The sentinels would do the same some seconds later.
func (s *Sentinel) Roles(t testing.TB) (master, replica *Server) {
	t.Helper()
	eventually(t, "sentinel", func() (err error) {
		var busy bool
		if master, busy, err = s.reported(); err != nil || busy || !master.IsMaster() {
			return fmt.Errorf("a failover is not over: %v", err)
		}
		if replica = s.other(master); replica.IsMaster() {
			_ = replica.ReplicaOf(master)
		}
		return errors.Join(s.watch(), master.replicated())
	})
	return master, replica
}

// Failover makes the sentinels swap the roles. It returns when all sentinels report the new master, and when the old
// master is its replica. (For a test with two masters, send SENTINEL FAILOVER instead.)
func (s *Sentinel) Failover(t testing.TB) {
	t.Helper()
	before, _ := s.Roles(t) // otherwise, a server that is not demoted yet could be chosen, and the failover would hang
	eventually(t, "failover", func() error {
		leader, busy, err := s.reported()
		if err != nil || leader != before {
			return err
		}
		if !busy { // the failover has not begun yet, or was given up
			err = s.clients[0].Failover(context.Background(), masterName).Err()
		}
		return fmt.Errorf("the master is the old one: %v", err)
	})
	_ = before.ReplicaOf(s.AwaitFailover(t, before)) // the sentinels would do this only some seconds later
}

// AwaitFailover returns once all sentinels report a master other than before, and that server is a master.
func (s *Sentinel) AwaitFailover(t testing.TB, before *Server) (after *Server) {
	t.Helper()
	after = s.other(before)
	eventually(t, "failover", func() error {
		if leader, _, err := s.reported(); err != nil || leader != after || !after.IsMaster() {
			return fmt.Errorf("%s is no master yet: %v", after.Addr(), err)
		}
		return nil
	})
	return after
}

// other returns the other one of the two servers.
func (s *Sentinel) other(server *Server) *Server {
	return s.servers[1-slices.Index(s.servers, server)]
}

// reported returns the server that all sentinels report as the master, and whether one of them is running a failover.
func (s *Sentinel) reported() (leader *Server, busy bool, err error) {
	for _, sentinel := range s.clients {
		m, err := sentinel.Master(context.Background(), masterName).Result()
		at := slices.IndexFunc(s.servers, func(s *Server) bool { return s.Addr() == net.JoinHostPort(m["ip"], m["port"]) })
		if at < 0 || leader != nil && s.servers[at] != leader {
			return nil, false, fmt.Errorf("the sentinels disagree: %v", err)
		}
		leader, busy = s.servers[at], busy || strings.Contains(m["flags"], "failover_in_progress")
	}
	return leader, busy, nil
}

// watch returns an error until every sentinel can take part in a failover.
func (s *Sentinel) watch() error {
	for i, sentinel := range s.clients {
		replicas, err := sentinel.Replicas(context.Background(), masterName).Result()
		if err != nil {
			return err
		}
		quorum := sentinel.CkQuorum(context.Background(), masterName)
		if len(replicas) != 1 || replicas[0]["flags"] != "slave" || replicas[0]["master-link-status"] != "ok" ||
			!strings.HasPrefix(quorum.Val(), "OK 3 ") {
			return fmt.Errorf("%s knows the replicas %v: %v", s.addrs[i], replicas, quorum)
		}
	}
	return nil
}
