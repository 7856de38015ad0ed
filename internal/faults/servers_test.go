//go:build unix

package faults

import (
	"context"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/dailyserial/serial"
	"github.com/dailyserial/serial/internal/redistest"
)

// An env is the servers of a run, and everything else that faults act on.
type env struct {
	t *testing.T
	setting
	journal *journal
	workers *workers

	master, replica *redistest.Server // where there is one pair, in their current roles
	proxy           *proxy
	sentinel        *redistest.Sentinel
	cluster         *redistest.Cluster
	evicted         int64 // keys, each of which may have cost its type a block

	// Of the current step:
	random *rand.Rand
	hold   time.Duration
}

// newEnv starts the servers of a run. Durable ones keep acknowledged writes over a restart.
func newEnv(t *testing.T, s setting, durable bool, midnightIn time.Duration) *env {
	e := &env{t: t}
	midnight := time.Now().UTC().Add(midnightIn)
	s.Zone = int(midnight.Round(24 * time.Hour).Sub(midnight).Seconds())
	var args []string
	if durable {
		args = []string{"--appendonly", "yes", "--appendfsync", "always"}
	}
	switch s.Topology {
	case "server":
		e.master = redistest.Start(t, args...)
	case "solo": // in cluster mode, behind clients for a single server
		e.master = redistest.StartSolo(t, args...)
	case "pair": // behind an address that a promotion moves
		e.master = redistest.Start(t, args...)
		e.replica = redistest.StartReplica(t, e.master, args...)
	case "sentinel":
		e.sentinel = redistest.StartSentinel(t)
		s.Addrs = e.sentinel.Options().SentinelAddrs
	case "cluster":
		e.cluster = redistest.StartReplicatedCluster(t, args...)
		s.Addrs = e.cluster.Addrs()
	}
	if e.master != nil {
		e.proxy = startProxy(t, e.master.Addr())
		s.Addrs = []string{e.proxy.listener.Addr().String()}
	}
	var err error
	s.scheme, err = serial.NewScheme(s.options()...)
	require.NoError(t, err)
	e.setting, e.journal = s, newJournal(s)
	return e
}

// client returns a client of the masters that does not go through the proxy. It is closed at the end of the test.
func (e *env) client() redis.UniversalClient {
	s := e.setting
	if e.proxy != nil {
		s.Addrs = []string{e.master.Addr()}
	}
	client := s.client()
	e.t.Cleanup(func() { _ = client.Close() })
	return client
}

// findRoles finds the current master and replica of a Sentinel.
func (e *env) findRoles() {
	if e.sentinel != nil {
		e.master, e.replica = e.sentinel.Roles(e.t)
	}
}

// masters returns the servers that have the numbers now.
func (e *env) masters() []*redistest.Server {
	if e.cluster == nil {
		return []*redistest.Server{e.master}
	}
	masters := slices.Clone(e.cluster.Servers)
	for i := range masters {
		masters[i], _ = e.cluster.Pair(e.t, i)
	}
	return masters
}

// pair returns a master and its replica; in a cluster, a random pair.
func (e *env) pair() (master, replica *redistest.Server) {
	if e.cluster != nil {
		return e.cluster.Pair(e.t, e.random.IntN(3))
	}
	return e.master, e.replica
}

// toMasters sends a command to all masters, and toServers to replicas too.
func (e *env) toMasters(args ...any) { e.toEach(e.masters(), args...) }

func (e *env) toServers(args ...any) {
	servers := []*redistest.Server{e.master, e.replica}
	if e.cluster != nil {
		servers = slices.Concat(e.cluster.Servers, e.cluster.Replicas)
	} else if e.replica == nil {
		servers = servers[:1]
	}
	e.toEach(servers, args...)
}

// toEach sends a command to servers at once. A command that kills its own connection gets no reply.
func (e *env) toEach(servers []*redistest.Server, args ...any) {
	var all sync.WaitGroup
	for _, s := range servers {
		all.Go(func() {
			if err := s.Do(args...).Err(); err != nil && args[0] != "CLIENT" {
				e.t.Errorf("%v: %v", args, err)
			}
		})
	}
	all.Wait()
}

// do sends a command to the master of its key.
func (e *env) do(args ...any) *redis.Cmd {
	cmd := e.client().Do(context.Background(), args...)
	if err := cmd.Err(); err != nil && err != redis.Nil {
		e.t.Errorf("%v: %v", args, err)
	}
	return cmd
}

func (e *env) anyType() string { return usedTypes[e.random.IntN(len(usedTypes))] }

func recordKey(typ string) string { return "serial:{" + typ + "}" }

// counterKey returns the key of a type's counter today.
func (e *env) counterKey(typ string) string { return recordKey(typ) + ":" + e.setting.periodOf(now()) }

// promote makes the replica the master, redirects the proxy to it, and makes the old master its replica.
func (e *env) promote(masterIsDead bool) {
	require.NoError(e.t, e.replica.ReplicaOf(nil))
	e.proxy.redirect(dialer(e.replica.Addr()))
	e.master, e.replica = e.replica, e.master
	if masterIsDead {
		e.replica.Restart(e.t)
	}
	require.NoError(e.t, e.master.Rejoin())
	e.follow()
}

// follow makes the replica a replica of the master.
func (e *env) follow() {
	require.NoError(e.t, e.replica.ReplicaOf(e.master))
	e.master.AwaitReplica(e.t)
}

// awaitFailover waits until a replica has taken over.
func (e *env) awaitFailover(from, to *redistest.Server) {
	if e.sentinel != nil {
		e.sentinel.AwaitFailover(e.t, from)
		return
	}
	require.Eventually(e.t, to.IsMaster, 30*time.Second, 20*time.Millisecond, "the replica did not take over")
}

// replicationIDs returns the masters' IDs. Every promotion changes one.
func (e *env) replicationIDs() (all string) {
	e.findRoles()
	for _, m := range e.masters() {
		all += info(m, "master_replid") + " "
	}
	return all
}

// info returns a field of a server's INFO.
func info(s *redistest.Server, field string) string {
	text, _ := s.Do("INFO").Text()
	_, value, _ := strings.Cut(text, "\r\n"+field+":")
	value, _, _ = strings.Cut(value, "\r")
	return value
}

// A proxy is the network between clients and a server; its address stays when another server takes over.
type proxy struct {
	listener net.Listener

	mu      sync.Mutex
	changed *sync.Cond               // signals changes of the fields below
	dial    func() (net.Conn, error) // connects to the server
	mode    mode
	delay   time.Duration
	spared  int               // replies that pass before the mode takes effect
	conns   map[net.Conn]bool // true if replies were dropped: later ones would be mistaken for them
}

type mode int

const (
	passing   mode = iota
	slow           // every packet takes longer
	late           // every reply takes longer
	dropping       // replies are dropped
	blackHole      // nothing passes; afterwards requests arrive, however late
)

func newProxy(dial func() (net.Conn, error)) *proxy {
	p := &proxy{dial: dial, conns: map[net.Conn]bool{}}
	p.changed = sync.NewCond(&p.mu)
	return p
}

func startProxy(t *testing.T, target string) *proxy {
	p := newProxy(dialer(target))
	var err error
	p.listener, err = net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() {
		_ = p.listener.Close()
		p.set(passing, 0)
		p.reset()
	})
	go func() {
		for client, err := p.listener.Accept(); err == nil; client, err = p.listener.Accept() {
			p.link(client)
		}
	}()
	return p
}

func dialer(target string) func() (net.Conn, error) {
	return func() (net.Conn, error) { return net.DialTimeout("tcp", target, time.Second) }
}

// set sets the mode.
func (p *proxy) set(m mode, delay time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mode, p.delay = m, delay
	for conn, dropped := range p.conns {
		if dropped {
			_ = conn.Close()
		}
	}
	p.changed.Broadcast()
}

// reset breaks all connections.
func (p *proxy) reset() { p.redirect(p.dial) }

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
	p.conns[client], p.conns[server] = false, false
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
		if err == nil && !p.drops(src, replies) {
			_, err = dst.Write(buffer[:n])
		}
		if err != nil {
			return
		}
	}
}

// drops lets a packet take its time, and reports whether it is dropped.
func (p *proxy) drops(src net.Conn, reply bool) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if reply && p.spared > 0 {
		p.spared--
	} else if p.mode == slow || p.mode == late && reply {
		delay := p.delay
		p.mu.Unlock()
		time.Sleep(delay)
		p.mu.Lock()
	}
	for p.mode == blackHole {
		p.changed.Wait()
	}
	if p.mode == dropping && reply {
		p.conns[src] = true
		return true
	}
	return false
}
