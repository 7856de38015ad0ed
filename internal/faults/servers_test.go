//go:build unix

package faults

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/dailyserial/serial"
	"github.com/dailyserial/serial/internal/redistest"
)

// An env is the servers of a run, and everything else that faults act on.
type env struct {
	t       *testing.T
	setting setting
	protection
	journal *journal
	storage *miniredis.Miniredis
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
func newEnv(t *testing.T, r run, durable bool, midnightIn time.Duration) *env {
	e := &env{t: t, protection: r.protection, storage: miniredis.RunT(t)}
	e.journal = newJournal(e.storage)
	e.setting = setting{Topology: r.topology, Protection: r.protection, Calendar: r.calendar,
		Zone: zoneOfMidnightIn(midnightIn), Storage: e.storage.Addr()}
	var err error
	e.setting.scheme, err = serial.NewScheme(e.setting.options()...)
	require.NoError(t, err)
	var args []string
	if durable {
		args = []string{"--appendonly", "yes", "--appendfsync", "always"}
	}
	switch r.topology {
	case "server":
		e.master = redistest.Start(t, args...)
	case "solo": // in cluster mode, behind clients for a single server
		e.master = redistest.StartSolo(t, args...)
	case "pair": // behind an address that a promotion moves
		e.master = redistest.Start(t, args...)
		e.replica = redistest.StartReplica(t, e.master, args...)
	case "sentinel":
		e.sentinel = redistest.StartSentinel(t)
		e.setting.Addrs = e.sentinel.Options().SentinelAddrs
	case "cluster":
		e.cluster = redistest.StartReplicatedCluster(t, args...)
		e.setting.Addrs = e.cluster.Addrs()
	}
	if e.master != nil {
		e.proxy = startProxy(t, e.master.Addr())
		e.setting.Addrs = []string{e.proxy.listener.Addr().String()}
	}
	e.findRoles()
	return e
}

// zoneOfMidnightIn returns the offset from UTC, in seconds, of a zone whose next midnight is d away.
func zoneOfMidnightIn(d time.Duration) int {
	at := time.Now().UTC().Add(d)
	offset := 24*3600 - (at.Hour()*3600 + at.Minute()*60 + at.Second())
	if offset > 12*3600 {
		offset -= 24 * 3600
	}
	return offset
}

// client returns a client of the masters that does not go through the proxy.
func (e *env) client() redis.UniversalClient {
	s := e.setting
	if e.proxy != nil {
		s.Addrs = []string{e.master.Addr()}
	}
	return s.client(nil)
}

// findRoles finds the current master and replica of a Sentinel.
func (e *env) findRoles() {
	if e.sentinel != nil {
		e.master, e.replica = e.sentinel.Roles(e.t)
	}
}

// masters returns the servers that have the numbers now.
func (e *env) masters() (masters []*redistest.Server) {
	if e.cluster == nil {
		return []*redistest.Server{e.master}
	}
	for i := range e.cluster.Servers {
		master, _ := e.cluster.Pair(e.t, i)
		masters = append(masters, master)
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
	servers := e.masters()
	if e.cluster != nil {
		servers = slices.Concat(e.cluster.Servers, e.cluster.Replicas)
	} else if e.replica != nil {
		servers = append(servers, e.replica)
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
	client := e.client()
	defer func() { _ = client.Close() }()
	cmd := client.Do(context.Background(), args...)
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
	e.proxy.redirect(e.replica.Addr())
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
		info, _ := m.Do("INFO", "replication").Text()
		_, info, _ = strings.Cut(info, "master_replid:")
		id, _, _ := strings.Cut(info, "\r")
		all += id + " "
	}
	return all
}

// stat returns a number in the master's INFO.
func (e *env) stat(name string) (n int64) {
	info, err := e.master.Do("INFO").Text()
	require.NoError(e.t, err)
	_, after, _ := strings.Cut(info, "\r\n"+name+":")
	_, err = fmt.Sscan(after, &n)
	require.NoError(e.t, err)
	return n
}
