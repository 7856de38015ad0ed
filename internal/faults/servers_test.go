//go:build unix

package faults

import (
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dailyserial/serial"
	"github.com/dailyserial/serial/internal/redistest"
)

// An env is the servers and the workers of a run, and everything else that faults act on. Only its test's goroutine uses
// it.
type env struct {
	t *testing.T
	setting
	random    *rand.Rand
	journal   *journal
	processes []*process // the workers, by number

	pairs    []*pair
	proxy    *proxy // where there is one server, or a pair without sentinels
	sentinel *redistest.Sentinel
	cluster  *redistest.Cluster

	// These fields belong to the current fault:
	*pair // the one that the fault strikes
	hold  time.Duration
	spent int64 // blocks that each type may have lost
}

// A pair is servers in their current roles. The replica is nil if there is none.
type pair struct{ master, replica *redistest.Server }

// newEnv starts the servers and the workers of a run. Durable servers keep acknowledged writes over a restart.
func newEnv(t *testing.T, s setting, durable bool, midnightIn time.Duration, workers int) *env {
	e := &env{t: t, random: rand.New(rand.NewPCG(s.Seed, 0))}
	midnight := time.Now().UTC().Add(midnightIn)
	s.Zone = int(midnight.Round(24 * time.Hour).Sub(midnight).Seconds())
	var args []string
	if durable {
		args = []string{"--appendonly", "yes", "--appendfsync", "always"}
	}
	var only pair
	switch s.Topology {
	case "server":
		only.master = redistest.Start(t, args...)
	case "solo": // in cluster mode, behind clients for a single server
		only.master = redistest.StartSolo(t, args...)
	case "pair": // behind an address that a promotion moves
		only.master = redistest.Start(t, args...)
		only.replica = redistest.StartReplica(t, only.master, args...)
	case "sentinel":
		e.sentinel = redistest.StartSentinel(t)
		s.Addrs = e.sentinel.Options().SentinelAddrs
	case "cluster":
		e.cluster = redistest.StartReplicatedCluster(t, args...)
		s.Addrs = e.cluster.Addrs()
	}
	if only.master != nil {
		e.pairs, e.proxy = []*pair{&only}, startProxy(t, only.master)
		s.Addrs = []string{e.proxy.listener.Addr().String()}
	}
	scheme, err := serial.NewScheme(s.options()...)
	require.NoError(t, err)
	e.setting, e.journal = s, newJournal(scheme)
	for range workers {
		e.start()
	}
	return e
}

// findPairs finds the current roles of servers that may fail over by themselves, and returns the masters' replication
// IDs. Every promotion changes one.
func (e *env) findPairs() (ids string) {
	if e.sentinel != nil {
		master, replica := e.sentinel.Roles(e.t)
		e.pairs = []*pair{{master, replica}}
	}
	if e.cluster != nil {
		e.pairs = make([]*pair, len(e.cluster.Servers))
		for i := range e.pairs {
			master, replica := e.cluster.Pair(e.t, i)
			e.pairs[i] = &pair{master, replica}
		}
	}
	for _, p := range e.pairs {
		ids += info(p.master, "master_replid") + " "
	}
	return ids
}

// info returns a field of a server's INFO.
func info(s *redistest.Server, field string) string {
	text, _ := s.Do("INFO").Text()
	_, value, _ := strings.Cut(text, "\r\n"+field+":")
	value, _, _ = strings.Cut(value, "\r")
	return value
}

// do sends a command to all masters.
func (e *env) do(args ...any) {
	for _, p := range e.pairs {
		if err := p.master.Do(args...).Err(); err != nil && args[0] != "CLIENT" { // it may kill its own connection
			e.t.Errorf("%v: %v", args, err)
		}
	}
}

// promote makes the replica the master, redirects the proxy to it, and makes the old master its replica.
func (e *env) promote() {
	require.NoError(e.t, e.replica.ReplicaOf(nil))
	e.proxy.redirect(dialer(e.replica))
	e.master, e.replica = e.replica, e.master
	require.NoError(e.t, e.master.Rejoin())
	e.follow()
}

// follow makes the replica a replica of the master.
func (e *env) follow() {
	require.NoError(e.t, e.replica.ReplicaOf(e.master))
	e.master.AwaitReplica(e.t)
}

// awaitFailover waits until the replica has taken over.
func (e *env) awaitFailover() {
	if e.sentinel != nil {
		e.sentinel.AwaitFailover(e.t, e.master)
		return
	}
	require.Eventually(e.t, e.replica.IsMaster, 30*time.Second, 20*time.Millisecond, "the replica did not take over")
}

// A proxy is the network between clients and a server; its address stays when another server takes over.
type proxy struct {
	listener net.Listener

	mu     sync.Mutex
	dial   func() (net.Conn, error) // connects to the server
	delay  time.Duration            // of replies
	drops  bool                     // replies are dropped
	spared int                      // replies that pass before that
	conns  map[net.Conn]bool
}

func startProxy(t *testing.T, target *redistest.Server) *proxy {
	p := &proxy{dial: dialer(target), conns: map[net.Conn]bool{}}
	var err error
	p.listener, err = net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() {
		_ = p.listener.Close()
		p.redirect(p.dial)
	})
	go func() {
		for client, err := p.listener.Accept(); err == nil; client, err = p.listener.Accept() {
			p.link(client)
		}
	}()
	return p
}

func dialer(target *redistest.Server) func() (net.Conn, error) {
	return func() (net.Conn, error) { return net.DialTimeout("tcp", target.Addr(), time.Second) }
}

// disturb has replies take longer, or drops them, until heal is called.
func (p *proxy) disturb(delay time.Duration, drops bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.delay, p.drops = delay, drops
}

// heal has replies pass again, on new connections: on those on which replies were dropped, later ones would be mistaken
// for them.
func (p *proxy) heal() {
	p.disturb(0, false)
	p.redirect(p.dial)
}

// redirect breaks all connections, and leads new ones to another server.
func (p *proxy) redirect(dial func() (net.Conn, error)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.dial = dial
	for conn := range p.conns {
		if tcp, ok := conn.(*net.TCPConn); ok {
			_ = tcp.SetLinger(0)
		}
		_ = conn.Close()
	}
}

// link forwards between a connection and a new one to the server.
func (p *proxy) link(client net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	server, err := p.dial()
	if err != nil {
		_ = client.Close()
		return
	}
	p.conns[client], p.conns[server] = true, true
	go p.forward(server, client, false)
	go p.forward(client, server, true)
}

// forward copies from src to dst until either is closed.
func (p *proxy) forward(dst, src net.Conn, replies bool) {
	defer func() {
		_, _ = dst.Close(), src.Close()
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.conns, src)
	}()
	buffer := make([]byte, 16<<10)
	for {
		n, err := src.Read(buffer)
		if err == nil && !(replies && p.dropsReply()) {
			_, err = dst.Write(buffer[:n])
		}
		if err != nil {
			return
		}
	}
}

// dropsReply has a reply take its time, and reports whether it is dropped.
func (p *proxy) dropsReply() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.spared > 0 {
		p.spared--
		return false
	}
	arrived := time.Now()
	for left := p.delay; left > 0; left = p.delay - time.Since(arrived) {
		p.mu.Unlock()
		time.Sleep(left)
		p.mu.Lock()
	}
	return p.drops
}
