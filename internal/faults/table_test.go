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
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/dailyserial/serial"
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

// only matches the names of the faults that SERIAL_FAULT selects, all if it is not set.
var only = regexp.MustCompile(os.Getenv("SERIAL_FAULT"))

// faultsOf returns the faults of a topology that a protection promises to survive.
func faultsOf(topology string, p protection) []fault {
	return slices.DeleteFunc(slices.Clone(faults), func(f fault) bool {
		return f.where != "" && !strings.Contains(f.where, topology) || !p.promised(f.risk) || !only.MatchString(f.name)
	})
}

func nothing() {}

const (
	hurry = "callers in a hurry" // their workers do not crash: that would hide what the callers leave behind

	// Topologies.
	single     = "server pair solo" // no sentinel or cluster would replace the master
	replicated = "pair sentinel cluster"
	failsOver  = "sentinel cluster"
)

// needed are the commands that an ACL must allow, as in docs/operations.md.
var needed = strings.Fields("EVAL EVALSHA TIME GET SET HGET HMGET HSET HDEL INCRBY PTTL EXPIREAT DEL")

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
		typ, today := e.anyType(), e.setting.periodOf(now())
		used, err := e.do("GETDEL", e.counterKey(typ)).Int64()
		return func() { // an operator knows the day's last number, and must not raise the next day's counter
			if err == nil && !e.Floor && !e.Ledger && today == e.setting.periodOf(now()+int64(time.Second)) {
				gen, err := serial.New(e.admin, e.setting.options()...)
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

	{hurry, keeps, 0, "", func(e *env) func() {
		began := now()
		e.workers.hurry(e.hold)
		return func() { e.followHurry(began) }
	}},
	{"an operator raises", keeps, 1, "", func(e *env) func() {
		heal := nothing
		if e.proxy != nil {
			heal = network([]mode{passing, late, dropping}[e.random.IntN(3)], readTimeout/2)(e)
		}
		stop := e.operate()
		return func() {
			heal()
			stop()
		}
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
		return func() {
			e.requireExpiries("denial of " + command)
			e.toServers("ACL", "SETUSER", "default", "+"+command)
		}
	}},

	{"SIGSTOP, SIGCONT of a replica", keeps, 0, replicated, func(e *env) func() {
		_, replica := e.pair()
		replica.Pause()
		return replica.Resume
	}},
	{"SIGKILL, restart of a replica", keeps, 0, replicated, func(e *env) func() {
		_, replica := e.pair()
		replica.Kill()
		return func() { replica.Restart(e.t) }
	}},
	{"promotion", outruns, 1, "pair", func(e *env) func() {
		dead := e.random.IntN(2) == 0
		if dead {
			e.master.Kill()
		}
		return func() { e.promote(dead) }
	}},
	{"promotion of a lagging replica", outruns, 1, "pair", func(e *env) func() {
		require.NoError(e.t, e.replica.CutOff(e.master))
		dead := e.random.IntN(2) == 0
		return func() {
			if dead {
				e.master.Kill()
			}
			e.promote(dead)
		}
	}},
	{"promotion of a lagging replica, and back", outruns, 2, "pair", func(e *env) func() {
		require.NoError(e.t, e.replica.CutOff(e.master))
		return func() {
			e.promote(false) // the old master takes over older data
			time.Sleep(e.hold / 2)
			e.promote(false)
		}
	}},
	{"split brain", outruns, 1, "pair", func(e *env) func() {
		require.NoError(e.t, e.replica.CutOff(e.master))
		time.Sleep(e.hold / 4)
		require.NoError(e.t, e.replica.ReplicaOf(nil))
		e.proxy.redirect(e.replica.Addr())
		return func() {
			e.proxy.redirect(e.master.Addr())
			time.Sleep(e.hold / 4)
			require.NoError(e.t, e.replica.Rejoin())
			e.follow()
		}
	}},

	{"SENTINEL FAILOVER", outruns, 1, "sentinel", func(e *env) func() {
		return func() { e.sentinel.Failover(e.t) }
	}},
	{"failover: master SIGKILL", outruns, 1, failsOver, func(e *env) func() {
		master, replica := e.pair()
		master.Kill()
		return func() {
			e.awaitFailover(master, replica)
			master.Restart(e.t)
		}
	}},
	{"failover: master SIGSTOP, SIGCONT", outruns, 1, failsOver, func(e *env) func() {
		master, replica := e.pair()
		master.Pause()
		return func() {
			e.awaitFailover(master, replica)
			master.Resume()
		}
	}},
	{"failover to a lagging replica", outruns, 1, failsOver, func(e *env) func() {
		master, replica := e.pair()
		return func() {
			require.NoError(e.t, replica.CutOff(master))
			// Sentinels promote no replica that was cut off more than 10 s, ten times down-after, before its master was down.
			time.Sleep(min(e.hold, 5*time.Second))
			master.Kill()
			e.awaitFailover(master, replica)
			require.NoError(e.t, replica.Rejoin())
			master.Restart(e.t)
		}
	}},
	{"CLUSTER FAILOVER", outruns, 1, "cluster", func(e *env) func() {
		master, replica := e.pair()
		began := time.Now()
		require.NoError(e.t, replica.Do("CLUSTER", "FAILOVER").Err())
		return func() {
			// Redis gives up on it after 5 s where nodes are too busy to reply in time.
			for !replica.IsMaster() && time.Since(began) < 30*time.Second {
				if time.Since(began)%(6*time.Second) > 5900*time.Millisecond {
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

	{"ledger down", storageOnly, 0, "", func(e *env) func() {
		e.storage.disturb(true, 0)
		return func() { e.storage.disturb(false, 0) }
	}},
	{"ledger slow", storageOnly, 0, "", func(e *env) func() {
		delay := []time.Duration{500 * time.Millisecond, 10 * time.Second}[e.random.IntN(2)]
		e.storage.disturb(false, []time.Duration{delay, -delay}[e.random.IntN(2)])
		return func() { e.storage.disturb(false, 0) }
	}},
}

// once sends one command to all masters.
func once(args ...any) func(*env) func() {
	return func(e *env) func() {
		e.toMasters(args...)
		return nothing
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
		before := e.stat("evicted_keys")
		e.toMasters("CONFIG", "SET", "maxmemory-policy", policy) // Redis 6.2 sets only one at a time
		e.toMasters("CONFIG", "SET", "maxmemory", e.stat("used_memory")+1<<20)
		client := redis.NewClient(e.master.Options())
		defer func() { _ = client.Close() }()
		for i := range 256 { // four times what fits; these keys outlive the counters
			_ = client.Set(context.Background(), fmt.Sprint("ballast:", i), strings.Repeat("x", 16<<10), 30*24*time.Hour).Err()
			time.Sleep(e.hold / 256)
		}
		return func() {
			e.toMasters("CONFIG", "SET", "maxmemory", 0)
			e.evicted += e.stat("evicted_keys") - before
			for i := range 256 {
				e.do("DEL", fmt.Sprint("ballast:", i))
			}
		}
	}
}

// newGenerator returns a generator in the watching process, and what closes it. It reports to the journal.
func (e *env) newGenerator() (gen *serial.Generator, stop func()) {
	storage, err := e.setting.dialStorage(func(string) {})
	require.NoError(e.t, err)
	client := e.setting.client(nil)
	gen, err = e.setting.generator(client, storage, serial.Hooks{
		Unused: func(_ context.Context, x serial.Explanation) {
			e.journal.explain(series{x.Type, e.setting.period(x.Start)}, x)
		},
	})
	require.NoError(e.t, err)
	return gen, func() {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		require.NoError(e.t, gen.Flush(ctx))
		_, _ = client.Close(), storage.Close()
	}
}

// followHurry requests a number of each type that callers in a hurry have used since then: it must come at once, unless
// a worker that was killed or suspended was in the way.
func (e *env) followHurry(since int64) {
	gen, stop := e.newGenerator()
	defer stop()
	done := make(chan struct{})
	types := 0
	for at := max(since, now()-2e9); at < now(); at += 1e8 {
		types++
		go func() {
			defer func() { done <- struct{}{} }()
			c := call{ID: at, N: 1, Type: hurriedType(at), Start: now()}
			n, err := gen.NextNumber(context.Background(), c.Type)
			c.End, c.Period, c.First, c.Last = now(), e.setting.period(n.Start), n.Seq, n.Seq
			if err != nil {
				c.Failure, c.Text = class(context.Background(), err), err.Error()
			}
			e.journal.end(c)
			if took := time.Duration(c.End - c.Start); took > 5*time.Second && e.journal.calmSince(since) {
				e.t.Errorf("after callers in a hurry, a number of %s took %v: %v", c.Type, took, err)
			}
		}()
	}
	for range types {
		<-done
	}
}

// operate has an operator raise and take over counters until stopped.
func (e *env) operate() (stop func()) {
	gen, closeIt := e.newGenerator()
	ctx, cancel := context.WithCancel(context.Background())
	done, random := make(chan struct{}), rand.New(rand.NewPCG(e.random.Uint64(), 0))
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			raise := []func(context.Context, string, int64) error{gen.Raise, gen.Takeover}[random.IntN(2)]
			limited, cancel := context.WithTimeout(ctx, []time.Duration{20 * time.Millisecond, time.Minute}[random.IntN(2)])
			typ, today := usedTypes[random.IntN(len(usedTypes))], e.setting.periodOf(now())
			seq := e.journal.last(typ, today) + random.Int64N(20)
			skipped := seq - e.journal.last(typ, today)
			_ = raise(limited, typ, seq) // it may fail
			cancel()
			if e.setting.periodOf(now()) != today {
				skipped = seq // the day has just begun
			}
			if e.Ledger {
				skipped += blockSize
			}
			e.journal.mayLose(typ, skipped) // the operator does not report them if the reply is lost
			time.Sleep(time.Duration(random.IntN(300)) * time.Millisecond)
		}
	}()
	return func() {
		cancel()
		<-done
		closeIt()
	}
}

// errOf returns the error of a call.
func errOf[T any](_ T, err error) error { return err }
