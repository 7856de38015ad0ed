//go:build unix

package faults

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"regexp"
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

type topology string

const (
	serverTopology   topology = "server"
	pairTopology     topology = "pair" // a master and a replica behind an address that a promotion moves
	sentinelTopology topology = "sentinel"
	clusterTopology  topology = "cluster"
)

// A world is the servers of a run, and everything else that faults act on.
type world struct {
	t          *testing.T
	topology   topology
	protection protection
	setting    setting
	journal    *journal
	storage    *storage
	fleet      *fleet

	master, replica *redistest.Server // where there is one pair, in their current roles
	proxy           *proxy
	sentinel        *redistest.Sentinel
	cluster         *redistest.Cluster
	admin           redis.UniversalClient // not through the proxy
	evicted         int64                 // keys, each of which may have cost its type a block
}

// build starts the servers. Durable ones keep acknowledged writes over a restart.
func build(t *testing.T, top topology, p protection, durable bool, zone int) *world {
	w := &world{t: t, topology: top, protection: p, journal: newJournal()}
	w.storage = newStorage(w.journal)
	w.setting = setting{Protection: p, Zone: zone, Storage: w.storage.serve(t)}
	var args []string
	if durable {
		args = []string{"--appendonly", "yes", "--appendfsync", "always"}
	}
	switch top {
	case serverTopology, pairTopology:
		w.master = redistest.Start(t, args...)
		if top == pairTopology {
			w.replica = redistest.StartReplica(t, w.master, args...)
		}
		w.proxy = startProxy(t, w.master.Addr())
		w.setting.Addrs = []string{w.proxy.addr()}
	case sentinelTopology:
		w.sentinel = redistest.StartSentinel(t)
		w.master, w.replica = w.sentinel.Roles(t)
		w.setting.Sentinel, w.setting.Addrs = true, w.sentinel.Options().SentinelAddrs
	case clusterTopology:
		w.cluster = redistest.StartReplicatedCluster(t, args...)
		w.setting.Cluster, w.setting.Addrs = true, w.cluster.Addrs()
	}
	w.connect()
	return w
}

// connect gives admin a connection to the masters.
func (w *world) connect() {
	s := w.setting
	if w.proxy != nil {
		s.Addrs = []string{w.master.Addr()}
	}
	w.admin = s.client(nil)
	w.t.Cleanup(func() { _ = w.admin.Close() })
}

// masters returns the servers that currently have the numbers.
func (w *world) masters() (masters []*redistest.Server) {
	if w.cluster == nil {
		return []*redistest.Server{w.master}
	}
	for i := range w.cluster.Servers {
		master, _ := w.cluster.Pair(w.t, i)
		masters = append(masters, master)
	}
	return masters
}

// pair returns a master and its replica; in a cluster, a random pair.
func (w *world) pair(random *rand.Rand) (master, replica *redistest.Server) {
	i := random.IntN(3)
	if w.cluster != nil {
		return w.cluster.Pair(w.t, i)
	}
	return w.master, w.replica
}

// A risk is what a fault may do to acknowledged numbers.
type risk int

const (
	keeps       risk = iota // nothing
	tells                   // a counter is lost, and its record says so
	outruns                 // writes that replicas had not confirmed are lost
	loses                   // anything
	storageOnly             // only the ledger is affected
)

// A fault breaks something and returns how it heals. blocks is how many blocks a type may lose by it, including the one
// being reserved; any fault may cost one more, for a reservation in progress.
type fault struct {
	name   string
	risk   risk
	blocks int64
	where  string // topologies, all if empty
	strike func(w *world, random *rand.Rand, hold time.Duration) (heal func())
}

// promised reports whether uniqueness must survive the fault.
func (p protection) promised(r risk) bool {
	switch r {
	case keeps:
		return true
	case tells:
		return p.Replicas == 0 || p.Ledger || p.Floor
	case outruns:
		return p.Ledger || p.Replicas > 0
	}
	return p.Ledger
}

// only matches the names of the faults that SERIAL_FAULT selects, all if it is not set.
var only = regexp.MustCompile(os.Getenv("SERIAL_FAULT"))

// faultsOf returns the faults of a topology that a protection promises to survive.
func faultsOf(top topology, p protection) (suitable []fault) {
	for _, f := range allFaults {
		if (f.where == "" || strings.Contains(f.where, string(top))) && p.promised(f.risk) &&
			only.MatchString(f.name) {
			suitable = append(suitable, f)
		}
	}
	return suitable
}

func nothing() {}

const hurry = "callers in a hurry" // such workers do not die: that would hide what they leave behind

// Below, single means topologies with one master that no sentinel or cluster would replace.
const single = "server pair"

var allFaults = []fault{
	{"SIGSTOP, SIGCONT of the server", keeps, 0, single, func(w *world, _ *rand.Rand, _ time.Duration) func() {
		w.master.Pause()
		return w.master.Resume
	}},
	{"SIGKILL, restart with all data", keeps, 1, "server pair", func(w *world, _ *rand.Rand, hold time.Duration) func() {
		if w.protection.Ledger { // there is no append-only file
			require.NoError(w.t, errOf(w.master.Save()))
		}
		w.master.Kill()
		return func() { w.master.Restart(w.t) }
	}},
	{"SIGKILL, restart empty", loses, 1, single, func(w *world, _ *rand.Rand, _ time.Duration) func() {
		w.master.Kill()
		require.NoError(w.t, w.master.Restore(nil))
		return func() { w.master.Restart(w.t) }
	}},
	{"old RDB restored", loses, 1, single, func(w *world, _ *rand.Rand, _ time.Duration) func() {
		snapshot, err := w.master.Save()
		require.NoError(w.t, err)
		return func() {
			w.master.Kill()
			require.NoError(w.t, w.master.Restore(snapshot))
			w.master.Restart(w.t)
		}
	}},
	{"SCRIPT FLUSH", keeps, 0, "", func(w *world, _ *rand.Rand, _ time.Duration) func() {
		w.everyMaster("SCRIPT", "FLUSH")
		return nothing
	}},
	{"DEBUG SLEEP", keeps, 0, "", func(w *world, _ *rand.Rand, hold time.Duration) func() {
		// Too short to count as down.
		w.everyMaster("DEBUG", "SLEEP", min(hold, 500*time.Millisecond).Seconds())
		return nothing
	}},
	{"CLIENT PAUSE", keeps, 0, "", func(w *world, random *rand.Rand, hold time.Duration) func() {
		w.everyMaster("CLIENT", "PAUSE", min(hold, 700*time.Millisecond).Milliseconds(),
			[]string{"ALL", "WRITE"}[random.IntN(2)])
		return nothing
	}},
	{"CLIENT KILL", keeps, 0, "", func(w *world, _ *rand.Rand, _ time.Duration) func() {
		w.everyMaster("CLIENT", "KILL", "TYPE", "normal")
		return nothing
	}},
	{"DEL of a record", keeps, 1, "", func(w *world, random *rand.Rand, _ time.Duration) func() {
		w.command("DEL", recordKey(aType(random)))
		return nothing
	}},
	{"DEL of a counter", tells, 1, "", func(w *world, random *rand.Rand, _ time.Duration) func() {
		typ := aType(random)
		day := w.setting.dayOf(stamp())
		used, err := w.command("GETDEL", recordKey(typ)+":"+day).Int64()
		if err != nil || w.protection.Floor || w.protection.Ledger || day != w.setting.dayOf(stamp()) {
			return nothing
		}
		return func() { // an operator knows the day's last number, and must not raise the next day's counter
			if day == w.setting.dayOf(stamp()+int64(time.Second)) {
				w.raise(typ, used)
			}
		}
	}},
	{"DEL of a counter and its record", loses, 1, "", func(w *world, random *rand.Rand, _ time.Duration) func() {
		record := recordKey(aType(random))
		w.command("DEL", record, record+":"+w.setting.dayOf(stamp()))
		return nothing
	}},
	{"a counter set back", loses, 1, "", func(w *world, random *rand.Rand, _ time.Duration) func() {
		w.command("SET", recordKey(aType(random))+":"+w.setting.dayOf(stamp()), 1+random.IntN(50), "XX", "KEEPTTL")
		return nothing
	}},
	{"FLUSHALL", loses, 1, "", func(w *world, _ *rand.Rand, _ time.Duration) func() {
		w.everyMaster("FLUSHALL")
		return nothing
	}},
	{"eviction by volatile-ttl", loses, 0, single, evict("volatile-ttl")},
	{"eviction by allkeys-lru", loses, 0, single, evict("allkeys-lru")},

	{"network: delay", keeps, 0, single, func(w *world, random *rand.Rand, _ time.Duration) func() {
		w.proxy.turn(slow, time.Duration(5+random.IntN(200))*time.Millisecond)
		return func() { w.proxy.turn(fine, 0) }
	}},
	{"network: late replies", keeps, 0, single, func(w *world, random *rand.Rand, _ time.Duration) func() {
		w.proxy.turn(late, readTimeout/4+time.Duration(random.Int64N(int64(readTimeout*7/10)))) // each in time
		return func() { w.proxy.turn(fine, 0) }
	}},
	{"network: replies dropped", keeps, 0, single, func(w *world, _ *rand.Rand, _ time.Duration) func() {
		w.proxy.turn(mute, 0)
		return func() { w.proxy.turn(fine, 0) }
	}},
	{"network: black hole", keeps, 0, single, func(w *world, _ *rand.Rand, _ time.Duration) func() {
		w.proxy.turn(blackHole, 0)
		return func() { w.proxy.turn(fine, 0) }
	}},
	{"network: reset", keeps, 0, single, func(w *world, _ *rand.Rand, _ time.Duration) func() {
		w.proxy.reset()
		return w.proxy.reset
	}},

	{hurry, keeps, 0, "", func(w *world, _ *rand.Rand, hold time.Duration) func() {
		began := stamp()
		w.fleet.hurry(hold)
		return func() { w.followHurry(began) }
	}},
	{"a command denied", keeps, 1, "", func(w *world, random *rand.Rand, _ time.Duration) func() {
		commands := needed
		if w.protection.Ledger && w.sentinel == nil && w.cluster == nil { // sentinels, and this suite in a cluster, need it
			commands = append(slices.Clone(needed), "INFO")
		}
		command := commands[random.IntN(len(commands))]
		w.t.Logf("the command is %s", command)
		if command == "EVAL" {
			w.everyMaster("SCRIPT", "FLUSH")
		}
		w.everyServer("ACL", "SETUSER", "default", "-"+command)
		return func() {
			w.expiries(command)
			w.everyServer("ACL", "SETUSER", "default", "+"+command)
		}
	}},

	{"SIGSTOP, SIGCONT of a replica", keeps, 0, "pair sentinel cluster", func(w *world, random *rand.Rand,
		_ time.Duration) func() {
		_, replica := w.pair(random)
		replica.Pause()
		return replica.Resume
	}},
	{"SIGKILL, restart of a replica", keeps, 0, "pair sentinel cluster", func(w *world, random *rand.Rand,
		_ time.Duration) func() {
		_, replica := w.pair(random)
		replica.Kill()
		return func() { replica.Restart(w.t) }
	}},
	{"promotion", outruns, 1, "pair", func(w *world, random *rand.Rand, _ time.Duration) func() {
		dead := random.IntN(2) == 0
		if dead {
			w.master.Kill()
		}
		return func() { w.promote(dead) }
	}},
	{"promotion of a lagging replica", outruns, 1, "pair", func(w *world, random *rand.Rand, _ time.Duration) func() {
		dead := random.IntN(2) == 0
		require.NoError(w.t, w.replica.CutOff(w.master))
		return func() {
			if dead {
				w.master.Kill()
			}
			w.promote(dead)
		}
	}},
	{"there and back again", outruns, 2, "pair", func(w *world, _ *rand.Rand, hold time.Duration) func() {
		require.NoError(w.t, w.replica.CutOff(w.master))
		return func() {
			w.promote(false) // the old master takes over older data
			time.Sleep(hold / 2)
			w.promote(false)
		}
	}},

	{"SENTINEL FAILOVER", outruns, 1, "sentinel", func(w *world, _ *rand.Rand, _ time.Duration) func() {
		return w.failOver(func() { w.sentinel.Failover(w.t) })
	}},
	{"failover: master SIGKILL", outruns, 1, "sentinel cluster", func(w *world, random *rand.Rand,
		hold time.Duration) func() {
		master, replica := w.pair(random)
		master.Kill()
		return w.failOver(func() {
			w.awaitFailover(master, replica)
			master.Restart(w.t)
		})
	}},
	{"failover: master SIGSTOP, SIGCONT", outruns, 1, "sentinel cluster", func(w *world, random *rand.Rand,
		_ time.Duration) func() {
		master, replica := w.pair(random)
		master.Pause()
		return w.failOver(func() {
			w.awaitFailover(master, replica)
			master.Resume()
		})
	}},
	{"failover to a lagging replica", outruns, 1, "sentinel cluster", func(w *world, random *rand.Rand,
		hold time.Duration) func() {
		master, replica := w.pair(random)
		return w.failOver(func() {
			require.NoError(w.t, replica.CutOff(master))
			// Sentinels promote no replica that was cut off more than 10 s, ten times down-after, before its master was down.
			time.Sleep(min(hold, 5*time.Second))
			master.Kill()
			w.awaitFailover(master, replica)
			require.NoError(w.t, replica.Rejoin())
			master.Restart(w.t)
		})
	}},
	{"CLUSTER FAILOVER", outruns, 1, "cluster", func(w *world, random *rand.Rand, _ time.Duration) func() {
		master, replica := w.pair(random)
		began := time.Now()
		require.NoError(w.t, replica.Do("CLUSTER", "FAILOVER").Err())
		return w.failOver(func() {
			// Redis gives up on it after 5 s where nodes are too busy to answer in time.
			for !replica.IsMaster() && time.Since(began) < 30*time.Second {
				if time.Since(began)%(6*time.Second) > 5900*time.Millisecond {
					_ = replica.Do("CLUSTER", "FAILOVER").Err()
				}
				time.Sleep(100 * time.Millisecond)
			}
			w.awaitFailover(master, replica)
		})
	}},
	{"CLUSTER FAILOVER TAKEOVER by a lagging replica", outruns, 1, "cluster", func(w *world, random *rand.Rand,
		_ time.Duration) func() {
		master, replica := w.pair(random)
		require.NoError(w.t, replica.CutOff(master))
		return w.failOver(func() {
			require.NoError(w.t, replica.Do("CLUSTER", "FAILOVER", "TAKEOVER").Err())
			w.awaitFailover(master, replica)
			require.NoError(w.t, replica.Rejoin())
		})
	}},
	{"slot migration", keeps, 1, "cluster", func(w *world, random *rand.Rand, hold time.Duration) func() {
		slot, err := w.masters()[0].Do("CLUSTER", "KEYSLOT", recordKey(aType(random))).Int()
		require.NoError(w.t, err)
		w.cluster.MoveSlot(w.t, slot, min(hold/4, 300*time.Millisecond))
		return nothing
	}},

	{"ledger down", storageOnly, 0, "", func(w *world, _ *rand.Rand, _ time.Duration) func() {
		w.storage.disturb(true, 0)
		return func() { w.storage.disturb(false, 0) }
	}},
	{"ledger slow", storageOnly, 0, "", func(w *world, random *rand.Rand, _ time.Duration) func() {
		delay := 10*time.Millisecond + time.Duration(random.Int64N(int64(time.Second)))
		w.storage.disturb(false, []time.Duration{delay, -delay, 10 * time.Second, -10 * time.Second}[random.IntN(4)])
		return func() { w.storage.disturb(false, 0) }
	}},
}

func aType(random *rand.Rand) string { return alwaysUsed[random.IntN(len(alwaysUsed))] }

func recordKey(typ string) string { return "serial:{" + typ + "}" }

// everyMaster sends a command to all masters at once. A command that kills its own connection gets no answer.
func (w *world) everyMaster(args ...any) { every(w.t, w.masters(), args...) }

// everyServer sends a command to replicas too.
func (w *world) everyServer(args ...any) {
	servers := []*redistest.Server{w.master, w.replica}
	if w.cluster != nil {
		servers = slices.Concat(w.cluster.Servers, w.cluster.Replicas)
	}
	every(w.t, slices.DeleteFunc(servers, func(s *redistest.Server) bool { return s == nil }), args...)
}

func every(t *testing.T, servers []*redistest.Server, args ...any) {
	done := make(chan error)
	for _, s := range servers {
		go func() { done <- s.Do(args...).Err() }()
	}
	for range servers {
		if err := <-done; err != nil && args[0] != "CLIENT" {
			t.Errorf("%v: %v", args, err)
		}
	}
}

// command sends a command about a key to its master.
func (w *world) command(args ...any) *redis.Cmd {
	cmd := w.admin.Do(context.Background(), args...)
	if err := cmd.Err(); err != nil && err != redis.Nil {
		w.t.Errorf("%v: %v", args, err)
	}
	return cmd
}

func (w *world) raise(typ string, seq int64) {
	plain := w.setting
	plain.Protection = protection{}
	gen, err := plain.generator(w.admin, nil, nil)
	require.NoError(w.t, err)
	require.NoError(w.t, gen.Raise(context.Background(), typ, seq))
}

// expiries fails the test for every key of the package without an expiry, after a command was denied.
func (w *world) expiries(command string) {
	ctx := context.Background()
	for _, m := range w.masters() {
		client := redis.NewClient(m.Options())
		keys, err := client.Keys(ctx, "serial:*").Result()
		if err != nil {
			w.t.Errorf("KEYS: %v", err)
		}
		pipe := client.Pipeline()
		var left []*redis.DurationCmd
		for _, key := range keys {
			left = append(left, pipe.TTL(ctx, key))
		}
		_, _ = pipe.Exec(ctx)
		for i, key := range keys {
			if left[i].Val() == -1 {
				w.t.Errorf("%s has no expiry, without %s", key, command)
			}
		}
		_ = client.Close()
	}
}

// followHurry requests a number of each type that callers in a hurry have used since then: it must come at once, unless
// a process that died or stood still was in the way.
func (w *world) followHurry(since int64) {
	client := w.setting.client(nil)
	defer func() { _ = client.Close() }()
	gen, err := w.setting.generator(client, w.storage, func(_ context.Context, typ string, start time.Time) (int64,
		error) {
		return w.storage.floor(typ, w.setting.label(start)), nil
	})
	require.NoError(w.t, err)
	var wg sync.WaitGroup
	for at := max(since, stamp()-int64(2*time.Second)); at < stamp(); at += int64(hurriedType) {
		wg.Go(func() {
			typ := hurried(at)
			from := stamp()
			err := w.next(gen, callID{key: typ}, typ)
			if took := time.Duration(stamp() - from); took > 5*time.Second && w.journal.calmSince(since) {
				w.t.Errorf("after callers in a hurry, a number of %s took %v: %v", typ, took, err)
			}
		})
	}
	wg.Wait()
}

// evict fills the memory, so Redis evicts keys to make room.
func evict(policy string) func(*world, *rand.Rand, time.Duration) func() {
	return func(w *world, _ *rand.Rand, hold time.Duration) func() {
		m := w.master
		stat := func(name string) (n int) {
			info, err := m.Do("INFO").Text()
			require.NoError(w.t, err)
			_, after, _ := strings.Cut(info, "\r\n"+name+":")
			require.NoError(w.t, errOf(fmt.Sscan(after, &n)))
			return n
		}
		used, before := stat("used_memory"), stat("evicted_keys")
		require.NoError(w.t, m.Do("CONFIG", "SET", "maxmemory-policy", policy).Err()) // Redis 6.2 sets only one
		require.NoError(w.t, m.Do("CONFIG", "SET", "maxmemory", used+1<<20).Err())
		client := redis.NewClient(m.Options())
		defer func() { _ = client.Close() }()
		ballast := strings.Repeat("x", 16<<10)
		for i := range 256 { // four times what fits; these outlive the counters
			_ = client.Set(context.Background(), fmt.Sprint("ballast:", i), ballast, 30*24*time.Hour).Err()
			time.Sleep(hold / 256)
		}
		return func() {
			require.NoError(w.t, m.Do("CONFIG", "SET", "maxmemory", 0).Err())
			w.evicted += int64(stat("evicted_keys") - before)
			for i := range 256 {
				_ = m.Do("DEL", fmt.Sprint("ballast:", i)).Err()
			}
		}
	}
}

// promote makes the replica the master, redirects the proxy to it, and makes the old master its replica.
func (w *world) promote(dead bool) {
	require.NoError(w.t, w.replica.ReplicaOf(nil))
	w.proxy.redirect(w.replica.Addr())
	w.master, w.replica = w.replica, w.master
	if dead {
		w.replica.Restart(w.t)
	}
	require.NoError(w.t, w.master.Rejoin())
	require.NoError(w.t, w.replica.ReplicaOf(w.master))
	w.master.AwaitReplica(w.t)
	w.connect()
}

// failOver completes a fault after which the servers swap roles themselves.
func (w *world) failOver(heal func()) func() {
	return func() {
		heal()
		if w.sentinel != nil {
			w.master, w.replica = w.sentinel.Roles(w.t)
		}
	}
}

// replicationIDs returns the masters' IDs. Every promotion changes one.
func (w *world) replicationIDs() (all string) {
	if w.sentinel != nil {
		w.master, w.replica = w.sentinel.Roles(w.t)
	}
	for _, m := range w.masters() {
		info, _ := m.Do("INFO", "replication").Text()
		_, info, _ = strings.Cut(info, "master_replid:")
		id, _, _ := strings.Cut(info, "\r")
		all += id + " "
	}
	return all
}

func (w *world) awaitFailover(from, to *redistest.Server) {
	if w.sentinel != nil {
		w.sentinel.AwaitFailover(w.t, from)
		return
	}
	require.Eventually(w.t, to.IsMaster, 30*time.Second, 20*time.Millisecond, "the replica did not take over")
}

var _ serial.Ledger = (*storage)(nil)
