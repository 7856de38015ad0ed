//go:build unix

package faults

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dailyserial/serial"
	"github.com/dailyserial/serial/internal/redistest"
)

// A risk is what a fault may do to acknowledged numbers.
type risk int

const (
	keeps       risk = iota // nothing
	tells                   // a counter is lost, and its record says so
	outruns                 // writes that replicas had not confirmed are lost
	loses                   // anything
	storageOnly             // only the ledger is affected
)

// promised reports whether uniqueness must survive a fault.
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

// A fault breaks something when it strikes, and returns how that heals.
type fault struct {
	name   string
	risk   risk
	blocks int64  // how many blocks a type may lose; any fault may cost one more, for a reservation that is being made
	where  string // topologies, all if empty
	strike func(e *env) (heal func())
}

// faultsOf returns the faults of a topology that a protection promises to survive.
func faultsOf(s setting) []fault {
	return slices.DeleteFunc(slices.Clone(faults), func(f fault) bool {
		return f.where != "" && !strings.Contains(f.where, s.Topology) || !s.promised(f.risk)
	})
}

// Topologies.
const (
	single     = "server pair solo" // no sentinel or cluster would replace the master
	replicated = "pair sentinel cluster"
	failsOver  = "sentinel cluster"
)

// needed are the commands that an ACL must allow, as in docs/operations.md.
var needed = strings.Fields("EVAL EVALSHA TIME GET SET HGET HMGET HSET HDEL INCRBY PTTL EXPIREAT DEL")

func nothing() {}

var faults = []fault{
	{"SIGSTOP, SIGCONT of the server", keeps, 0, single, func(e *env) func() { return pause(e.master) }},
	{"SIGKILL, restart with all data", keeps, 1, single, func(e *env) func() {
		if e.Ledger { // there is no append-only file
			require.NoError(e.t, errOf(e.master.Save()))
		}
		e.master.Kill()
		return func() { e.master.Restart(e.t) }
	}},
	{"SIGKILL, restart empty", loses, 1, single, func(e *env) func() {
		e.master.Kill()
		require.NoError(e.t, e.master.Restore(nil))
		return func() { e.master.Restart(e.t) }
	}},
	{"old RDB restored", loses, 1, single, func(e *env) func() {
		snapshot, err := e.master.Save()
		require.NoError(e.t, err)
		return func() {
			e.master.Kill()
			require.NoError(e.t, e.master.Restore(snapshot))
			e.master.Restart(e.t)
		}
	}},
	{"SCRIPT FLUSH", keeps, 0, "", once("SCRIPT", "FLUSH")},
	{"DEBUG SLEEP", keeps, 0, "", once("DEBUG", "SLEEP", 0.5)}, // too short to count as down
	{"CLIENT PAUSE", keeps, 0, "", once("CLIENT", "PAUSE", 700, "ALL")},
	{"CLIENT PAUSE WRITE", keeps, 0, "", once("CLIENT", "PAUSE", 700, "WRITE")},
	{"CLIENT KILL", keeps, 0, "", once("CLIENT", "KILL", "TYPE", "normal")},
	{"FLUSHALL", loses, 1, "", once("FLUSHALL")},
	{"DEL of a record", keeps, 1, "", func(e *env) func() {
		e.do("DEL", recordKey(e.anyType()))
		return nothing
	}},
	{"DEL of a counter", tells, 1, "", func(e *env) func() {
		typ, today := e.anyType(), e.periodOf(now())
		used, err := e.do("GETDEL", e.counterKey(typ)).Int64()
		return func() { // an operator knows the day's last number, and must not raise the next day's counter
			if err == nil && !e.Floor && !e.Ledger && today == e.periodOf(now()+int64(time.Second)) {
				gen, err := serial.New(e.client(), e.options()...)
				require.NoError(e.t, err)
				require.NoError(e.t, gen.Raise(context.Background(), typ, used))
			}
		}
	}},
	{"DEL of a counter and its record", loses, 1, "", func(e *env) func() {
		typ := e.anyType()
		e.do("DEL", recordKey(typ), e.counterKey(typ))
		return nothing
	}},
	{"a counter set back", loses, 1, "", func(e *env) func() {
		e.do("SET", e.counterKey(e.anyType()), 1+e.random.IntN(20), "XX", "KEEPTTL")
		return nothing
	}},
	{"eviction by volatile-ttl", loses, 0, single, evict("volatile-ttl")},
	{"eviction by allkeys-lru", loses, 0, single, evict("allkeys-lru")},

	{"network: delay", keeps, 0, single, network(slow, 205*time.Millisecond)},
	{"network: late replies", keeps, 0, single, network(late, readTimeout*95/100)}, // each in time
	{"network: replies dropped", keeps, 0, single, network(dropping, 0)},
	{"network: black hole", keeps, 0, single, network(blackHole, 0)},
	{"network: reset", keeps, 0, single, func(e *env) func() {
		e.proxy.reset()
		return e.proxy.reset
	}},

	{"an operator raises", keeps, 1, "", func(e *env) func() {
		heal := nothing
		if e.proxy != nil {
			heal = network([]mode{passing, late, dropping}[e.random.IntN(3)], readTimeout/2)(e)
		}
		e.raise()
		return heal
	}},
	{"a command denied", keeps, 1, "", func(e *env) func() {
		commands := needed
		if e.Ledger && e.sentinel == nil && e.cluster == nil { // sentinels, and this suite in a cluster, need it
			commands = append(slices.Clone(needed), "INFO")
		}
		command := commands[e.random.IntN(len(commands))]
		e.t.Logf("the command is %s", command)
		if command == "EVAL" {
			e.toMasters("SCRIPT", "FLUSH")
		}
		e.toServers("ACL", "SETUSER", "default", "-"+command)
		return func() { e.toServers("ACL", "SETUSER", "default", "+"+command) }
	}},

	{"SIGSTOP, SIGCONT of a replica", keeps, 0, replicated, func(e *env) func() {
		_, replica := e.pair()
		return pause(replica)
	}},
	{"SIGKILL, restart of a replica", keeps, 0, replicated, func(e *env) func() {
		_, replica := e.pair()
		replica.Kill()
		return func() { replica.Restart(e.t) }
	}},
	{"promotion", outruns, 1, "pair", promotion(false, false)},
	{"promotion of a lagging replica", outruns, 1, "pair", promotion(true, false)},
	{"promotion of a lagging replica, and back", outruns, 2, "pair", promotion(true, true)},
	{"split brain", outruns, 1, "pair", func(e *env) func() {
		require.NoError(e.t, e.replica.CutOff(e.master))
		time.Sleep(e.hold / 4)
		require.NoError(e.t, e.replica.ReplicaOf(nil))
		e.proxy.redirect(dialer(e.replica.Addr()))
		return func() {
			e.proxy.redirect(dialer(e.master.Addr()))
			time.Sleep(e.hold / 4)
			require.NoError(e.t, e.replica.Rejoin())
			e.follow()
		}
	}},

	{"SENTINEL FAILOVER", outruns, 1, "sentinel", func(e *env) func() {
		return func() { e.sentinel.Failover(e.t) }
	}},
	{"failover: master SIGKILL", outruns, 1, failsOver, failover(true, false)},
	{"failover: master SIGSTOP, SIGCONT", outruns, 1, failsOver, failover(false, false)},
	{"failover to a lagging replica", outruns, 1, failsOver, failover(true, true)},
	{"CLUSTER FAILOVER", outruns, 1, "cluster", func(e *env) func() {
		master, replica := e.pair()
		return func() {
			for tries := 0; !replica.IsMaster() && tries < 300; tries++ {
				if tries%60 == 0 { // where nodes are too busy to reply in time, Redis gives up after 5 s
					_ = replica.Do("CLUSTER", "FAILOVER").Err()
				}
				time.Sleep(100 * time.Millisecond)
			}
			e.awaitFailover(master, replica)
		}
	}},
	{"CLUSTER FAILOVER TAKEOVER by a lagging replica", outruns, 1, "cluster", func(e *env) func() {
		master, replica := e.pair()
		require.NoError(e.t, replica.CutOff(master))
		return func() {
			require.NoError(e.t, replica.Do("CLUSTER", "FAILOVER", "TAKEOVER").Err())
			e.awaitFailover(master, replica)
			require.NoError(e.t, replica.Rejoin())
		}
	}},
	{"slot migration", keeps, 1, "cluster", func(e *env) func() {
		slot, err := e.masters()[0].Do("CLUSTER", "KEYSLOT", recordKey(e.anyType())).Int()
		require.NoError(e.t, err)
		e.cluster.MoveSlot(e.t, slot, min(e.hold/4, 300*time.Millisecond))
		return nothing
	}},

	{"ledger down", storageOnly, 0, "", ledger("broken")},
	{"ledger slow", storageOnly, 0, "", ledger("500ms", "-500ms", "10s", "-10s")},
}

// once sends one command to all masters.
func once(args ...any) func(*env) func() {
	return func(e *env) func() {
		e.toMasters(args...)
		return nothing
	}
}

// ledger disturbs the ledger in one of these ways.
func ledger(ways ...string) func(*env) func() {
	return func(e *env) func() {
		e.journal.set(func() { e.journal.disturbance = ways[e.random.IntN(len(ways))] })
		return func() { e.journal.set(func() { e.journal.disturbance = "" }) }
	}
}

// network has the proxy delay packets by at most so long, or drop them.
func network(m mode, longest time.Duration) func(*env) func() {
	return func(e *env) func() {
		e.proxy.set(m, longest/5+time.Duration(e.random.Int64N(int64(longest)*4/5+1)))
		return func() { e.proxy.set(passing, 0) }
	}
}

// evict fills the memory, so that Redis evicts keys.
func evict(policy string) func(*env) func() {
	return func(e *env) func() {
		stat := func(name string) int64 {
			n, err := strconv.ParseInt(info(e.master, name), 10, 64)
			require.NoError(e.t, err)
			return n
		}
		before := stat("evicted_keys")
		e.toMasters("CONFIG", "SET", "maxmemory-policy", policy) // Redis 6.2 sets only one at a time
		e.toMasters("CONFIG", "SET", "maxmemory", stat("used_memory")+1<<20)
		client := e.client()
		for i := range 256 { // four times what fits; these keys outlive the counters
			_ = client.Set(context.Background(), fmt.Sprint("ballast:", i), strings.Repeat("x", 16<<10), 30*24*time.Hour).Err()
			time.Sleep(e.hold / 256)
		}
		return func() {
			e.toMasters("CONFIG", "SET", "maxmemory", 0)
			e.evicted += stat("evicted_keys") - before
			for i := range 256 {
				require.NoError(e.t, client.Del(context.Background(), fmt.Sprint("ballast:", i)).Err())
			}
		}
	}
}

// raise has an operator raise and take over counters.
func (e *env) raise() {
	here, there := net.Pipe()
	go e.journal.server.ServeConn(there)
	operator, stop, err := newWorker(e.setting, here)
	require.NoError(e.t, err)
	for range 3 {
		raise := []func(context.Context, string, int64) error{operator.gen.Raise, operator.gen.Takeover}[e.random.IntN(2)]
		ctx, cancel := context.WithTimeout(context.Background(),
			[]time.Duration{20 * time.Millisecond, 2 * time.Second}[e.random.IntN(2)])
		typ, today := e.anyType(), e.periodOf(now())
		skipped, seq := e.random.Int64N(20), int64(0)
		e.journal.set(func() { seq = e.journal.highest[series{typ, today}] + skipped })
		_ = raise(ctx, typ, seq) // it may fail
		cancel()
		if e.periodOf(now()) != today {
			skipped = seq // the day has just begun
		}
		if e.Ledger {
			skipped += blockSize
		}
		e.journal.set(func() { e.journal.unheard[typ] += skipped }) // the operator does not report them if the reply is lost
	}
	require.NoError(e.t, errors.Join(stop(), operator.journal.Close()))
}

// pause suspends a server.
func pause(s *redistest.Server) (resume func()) {
	s.Pause()
	return s.Resume
}

// promotion makes the replica the master, perhaps while its data lag, and perhaps later the old master again.
func promotion(lags, andBack bool) func(*env) func() {
	return func(e *env) func() {
		if lags {
			require.NoError(e.t, e.replica.CutOff(e.master))
		}
		dead := !andBack && e.random.IntN(2) == 0
		return func() {
			if dead {
				e.master.Kill()
			}
			e.promote(dead)
			if andBack { // the old master takes over older data
				time.Sleep(e.hold / 2)
				e.promote(false)
			}
		}
	}
}

// failover kills or suspends the master until a replica has taken over, perhaps one whose data lag.
func failover(kills, lags bool) func(*env) func() {
	return func(e *env) func() {
		master, replica := e.pair()
		if lags {
			require.NoError(e.t, replica.CutOff(master))
			// Sentinels promote no replica that was cut off more than 10 s, ten times down-after, before its master was down.
			time.Sleep(min(e.hold, 5*time.Second))
		}
		if kills {
			master.Kill()
		} else {
			master.Pause()
		}
		return func() {
			e.awaitFailover(master, replica)
			if lags {
				require.NoError(e.t, replica.Rejoin())
			}
			if kills {
				master.Restart(e.t)
			} else {
				master.Resume()
			}
		}
	}
}

// errOf returns the error of a call.
func errOf[T any](_ T, err error) error { return err }
