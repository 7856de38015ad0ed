package redistest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
)

// masterName is the name of the master in the configuration of the sentinels.
const masterName = "serial"

// A Sentinel is a master with one replica, monitored by three sentinels. Two of them must agree on a failover.
type Sentinel struct {
	Master, Replica *Server // servers by their roles at the start; a failover does not change the fields
	Sentinels       []*Server
}

// StartSentinel starts the five processes. It returns when a failover would succeed, that is, when the replica is
// online and every sentinel knows the replica and the other sentinels. The processes are killed when t ends.
//
// A server is considered down after 1 s without a reply, so a failover begins if the master is suspended or killed. If
// the old master is restarted, it is empty and a master at first. The sentinels make it a replica after about 5 s.
func StartSentinel(t testing.TB) *Sentinel {
	t.Helper()
	s := &Sentinel{Master: Start(t)}
	s.Replica = start(t, fmt.Sprintf("replicaof 127.0.0.1 %d\n", s.Master.port), nil)
	// A sentinel queries its master for replicas immediately and then every 10 s, so the replica must be online first.
	eventually(t, "replica", s.Master.replicated)
	config := fmt.Sprintf("sentinel monitor %[1]s 127.0.0.1 %[2]d 2\n"+
		"sentinel down-after-milliseconds %[1]s 1000\n"+
		"sentinel failover-timeout %[1]s 5000\n", masterName, s.Master.port)
	for range 3 {
		sentinel := start(t, config, []string{"--sentinel"})
		s.Sentinels = append(s.Sentinels, sentinel)
		pace(t, sentinel, "PUBLISH-PERIOD", 100) // until they have found each other
		// A new master is first pinged after one such period. With the default of 1 s, it would already be considered
		// down.
		pace(t, sentinel, "PING-PERIOD", 400)
		// A replica is not promoted if it has not replied for three of these periods, or for five ping periods.
		pace(t, sentinel, "INFO-PERIOD", 1000)
		// A sentinel that was suspended for this long does nothing for 30 s. The default is 2 s.
		pace(t, sentinel, "TILT-TRIGGER", 20000)
	}
	for _, sentinel := range s.Sentinels {
		eventually(t, "sentinel", func() error { return watching(sentinel.Addr()) })
	}
	for _, sentinel := range s.Sentinels {
		// A replica that has been a master for four of these periods is demoted by any sentinel. So the period must be
		// longer than a failover's leader takes to notice its own success: 1 s, plus delays on a busy machine.
		pace(t, sentinel, "PUBLISH-PERIOD", 1000)
	}
	return s
}

// pace sets a period of a sentinel in milliseconds. A restart resets the period. Before 7.0, the periods are fixed.
func pace(t testing.TB, sentinel *Server, what string, period int) {
	t.Helper()
	if sentinel.old {
		return
	}
	if err := sentinel.Do("SENTINEL", "DEBUG", what, period).Err(); err != nil {
		t.Fatalf("redistest: SENTINEL DEBUG %s: %v", what, err)
	}
}

// Options returns new options for a client that gets the address of the master from the sentinels.
func (s *Sentinel) Options() *redis.FailoverOptions {
	return &redis.FailoverOptions{MasterName: masterName, SentinelAddrs: addrs(s.Sentinels)}
}

// Client returns a new client that connects to the current master. It is closed when t ends.
func (s *Sentinel) Client(t testing.TB) *redis.Client {
	t.Helper()
	client := redis.NewFailoverClient(s.Options())
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// Failover makes the sentinels swap the roles. It returns when all sentinels report the new master, and when the old
// master is its replica. (For a test with two masters, send SENTINEL FAILOVER instead.)
func (s *Sentinel) Failover(t testing.TB) {
	t.Helper()
	before, _ := s.Roles(t) // otherwise, a server that is not demoted yet could be chosen, and the failover would hang
	eventually(t, "failover", func() error {
		addr, busy, err := master(s.Sentinels[0].Addr())
		if err != nil || addr != before.Addr() {
			return err
		}
		if !busy { // the failover has not begun yet, or was given up
			err = s.Sentinels[0].Do("SENTINEL", "FAILOVER", masterName).Err()
		}
		return errors.Join(err, errors.New("the master is the old one"))
	})
	after := s.AwaitFailover(t, before)
	_ = before.ReplicaOf(after) // the sentinels would do this only some seconds later
}

// replicated returns an error until the replica of the master is online. The replica reports "master_link_status:up"
// too early, so it must acknowledge a write. This write does not leave a key.
func (s *Server) replicated() error {
	client := redis.NewClient(s.Options())
	defer func() { _ = client.Close() }()
	ctx, acks := context.Background(), (*redis.Cmd)(nil)
	_, err := client.Pipelined(ctx, func(p redis.Pipeliner) error {
		p.Set(ctx, "redistest", "", 0)
		p.Del(ctx, "redistest")
		acks = p.Do(ctx, "WAIT", 1, 100)
		return nil
	})
	if err != nil {
		return err
	}
	if n, err := acks.Int(); n < 1 {
		return errors.Join(errors.New("no replica acknowledges"), err)
	}
	return nil
}

// watching returns an error until the sentinel with that address can take part in a failover.
func watching(sentinel string) error {
	client := redis.NewSentinelClient(&redis.Options{Addr: sentinel})
	defer func() { _ = client.Close() }()
	ctx := context.Background()
	replicas, err := client.Replicas(ctx, masterName).Result()
	if err != nil {
		return err
	}
	if len(replicas) != 1 || replicas[0]["flags"] != "slave" || replicas[0]["master-link-status"] != "ok" {
		return fmt.Errorf("%s knows the replicas %v", sentinel, replicas)
	}
	quorum, err := client.CkQuorum(ctx, masterName).Result()
	if err != nil {
		return err
	}
	if !strings.HasPrefix(quorum, "OK 3 ") {
		return fmt.Errorf("%s: %s", sentinel, quorum)
	}
	return nil
}

// master returns the address of the master according to a sentinel, and whether this sentinel is running a failover.
func master(sentinel string) (addr string, busy bool, err error) {
	client := redis.NewSentinelClient(&redis.Options{Addr: sentinel})
	defer func() { _ = client.Close() }()
	m, err := client.Master(context.Background(), masterName).Result()
	return net.JoinHostPort(m["ip"], m["port"]), strings.Contains(m["flags"], "failover_in_progress"), err
}
