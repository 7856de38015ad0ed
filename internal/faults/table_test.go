//go:build unix

package faults

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/stretchr/testify/require"
)

// A risk is what a fault may do to acknowledged numbers.
type risk int

const (
	keeps       risk = iota // nothing
	outruns                 // writes that replicas had not confirmed are lost
	loses                   // anything
	storageOnly             // only the ledger is affected
)

// promised reports whether uniqueness must survive a fault.
func (p protection) promised(r risk) bool {
	switch r {
	case keeps:
		return true
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

func nothing() {}

var faults = []fault{
	{"SIGSTOP, SIGCONT of the server", keeps, 0, single, func(e *env) func() {
		e.master.Pause()
		return e.master.Resume
	}},
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
	{"CLIENT PAUSE", keeps, 0, "", once("CLIENT", "PAUSE", 700, "WRITE")}, // too short to count as down
	{"CLIENT KILL", keeps, 0, "", once("CLIENT", "KILL", "TYPE", "normal")},
	{"FLUSHALL", loses, 1, "", once("FLUSHALL")},
	{"eviction", loses, 0, single, func(e *env) func() {
		ctx, channel := context.Background(), "__keyevent@0__:evicted"
		evicted := e.master.Client(e.t).Subscribe(ctx, channel)
		require.NoError(e.t, errOf(evicted.Receive(ctx)))
		e.do("CONFIG", "SET", "notify-keyspace-events", "Ee")
		e.do("DEBUG", "POPULATE", 256, "ballast", 16<<10) // 4 MB, of which half does not fit
		used, err := strconv.ParseInt(info(e.master, "used_memory"), 10, 64)
		require.NoError(e.t, err)
		e.do("CONFIG", "SET", "maxmemory-policy", "allkeys-random")
		e.do("CONFIG", "SET", "maxmemory", used-2<<20)
		return func() {
			e.do("CONFIG", "SET", "maxmemory", 0)
			e.do("PUBLISH", channel, "the end")
			for key := ""; key != "the end"; {
				message, err := evicted.ReceiveMessage(ctx)
				require.NoError(e.t, err)
				key = message.Payload
				if typ := typePattern.FindString(key); !strings.Contains(key, ":once:") { // it may have cost its type a block
					e.journal.set(func() { e.journal.unheard[typ] += blockSize + maxBatch })
				}
			}
			require.NoError(e.t, evicted.Close())
			e.do("EVAL", "for _, key in ipairs(redis.call('KEYS', 'ballast:*')) do redis.call('DEL', key) end return 1", 0)
		}
	}},

	{"network: late replies", keeps, 0, single, func(e *env) func() {
		e.proxy.disturb(readTimeout/100*time.Duration(20+e.random.IntN(76)), false) // each in time
		return e.proxy.heal
	}},
	{"network: replies dropped", keeps, 0, single, func(e *env) func() {
		e.proxy.disturb(0, true)
		return e.proxy.heal
	}},

	{"SIGSTOP, SIGCONT of a replica", keeps, 0, replicated, func(e *env) func() {
		e.replica.Pause()
		return e.replica.Resume
	}},
	{"promotion of a lagging replica, and back", outruns, 2, "pair", func(e *env) func() {
		require.NoError(e.t, e.replica.CutOff(e.master))
		return func() {
			e.promote()
			time.Sleep(e.hold / 2)
			e.promote() // the old master takes over older data
		}
	}},
	{"split brain", outruns, 1, "pair", func(e *env) func() {
		require.NoError(e.t, e.replica.CutOff(e.master))
		time.Sleep(e.hold / 4)
		require.NoError(e.t, e.replica.ReplicaOf(nil))
		e.proxy.redirect(dialer(e.replica))
		return func() {
			e.proxy.redirect(dialer(e.master))
			time.Sleep(e.hold / 4)
			require.NoError(e.t, e.replica.Rejoin())
			e.follow()
		}
	}},

	{"SENTINEL FAILOVER", outruns, 1, "sentinel", func(e *env) func() {
		return func() { e.sentinel.Failover(e.t) }
	}},
	{"failover: master SIGSTOP, SIGCONT", outruns, 1, failsOver, func(e *env) func() {
		e.master.Pause()
		return func() {
			e.awaitFailover()
			e.master.Resume()
		}
	}},
	{"failover to a lagging replica", outruns, 1, failsOver, func(e *env) func() {
		require.NoError(e.t, e.replica.CutOff(e.master))
		// Sentinels promote no replica that was cut off more than 10 s, ten times down-after, before its master was down.
		time.Sleep(min(e.hold, 5*time.Second))
		e.master.Kill()
		return func() {
			e.awaitFailover()
			require.NoError(e.t, e.replica.Rejoin())
			e.master.Restart(e.t)
		}
	}},
	{"CLUSTER FAILOVER", outruns, 1, "cluster", func(e *env) func() {
		return func() {
			for tries := 0; !e.replica.IsMaster() && tries < 300; tries++ {
				if tries%60 == 0 { // where nodes are too busy to reply in time, Redis gives up after 5 s
					_ = e.replica.Do("CLUSTER", "FAILOVER").Err()
				}
				time.Sleep(100 * time.Millisecond)
			}
			e.awaitFailover()
		}
	}},
	{"slot migration", keeps, 1, "cluster", func(e *env) func() {
		slot, err := e.master.Do("CLUSTER", "KEYSLOT", "serial:{"+usedTypes[0]+"}").Int()
		require.NoError(e.t, err)
		e.cluster.MoveSlot(e.t, slot, min(e.hold/4, 300*time.Millisecond))
		return nothing
	}},

	{"ledger down", storageOnly, 0, "", func(e *env) func() {
		e.journal.set(func() { e.journal.ledgerDown = true })
		return func() { e.journal.set(func() { e.journal.ledgerDown = false }) }
	}},
	{"ledger slow", storageOnly, 0, "", func(e *env) func() {
		delay := []time.Duration{500 * time.Millisecond, 10 * time.Second}[e.random.IntN(2)]
		e.journal.set(func() { e.journal.ledgerDelay = delay })
		return func() { e.journal.set(func() { e.journal.ledgerDelay = 0 }) }
	}},
}

// once sends one command to all masters.
func once(args ...any) func(*env) func() {
	return func(e *env) func() {
		e.do(args...)
		return nothing
	}
}

// errOf returns the error of a call.
func errOf[T any](_ T, err error) error { return err }
