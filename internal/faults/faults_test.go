//go:build unix

package faults

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dailyserial/serial/internal/redistest"
)

// recovery is the time within which every worker must get a number of every type once a fault has healed: the lock's
// expiry and the time that a call may take to detect that Redis does not reply.
const recovery = 18 * time.Second

// A run has workers issue numbers during a schedule of faults.
type run struct {
	name string
	setting
}

var runs = []run{
	{"server/none", setting{Topology: "server"}},
	{"server/floor", setting{Topology: "server", protection: protection{Floor: true}, Calendar: "hidden"}},
	{"server/ledger", setting{Topology: "server", protection: protection{Ledger: true}}},
	{"pair/replicas", setting{Topology: "pair", protection: protection{Replicas: 1}}},
	{"pair/ledger", setting{Topology: "pair", protection: protection{Ledger: true}}},
	{"pair/ledger and replicas", setting{Topology: "pair", protection: protection{Ledger: true, Replicas: 1}}},
	{"sentinel/replicas", setting{Topology: "sentinel", protection: protection{Replicas: 1}}},
	{"sentinel/ledger", setting{Topology: "sentinel", protection: protection{Ledger: true}}},
	{"cluster/none", setting{Topology: "cluster"}},
	{"cluster/replicas", setting{Topology: "cluster", protection: protection{Replicas: 1}}},
	{"cluster/ledger", setting{Topology: "cluster", protection: protection{Ledger: true}}},
	{"solo/weeks", setting{Topology: "solo", Calendar: "weeks"}},
	{"server/quarters and floor", setting{Topology: "server", protection: protection{Floor: true}, Calendar: "quarters"}},
	{"pair/years that print days, and ledger",
		setting{Topology: "pair", protection: protection{Ledger: true}, Calendar: "years"}},
	{"cluster/for ever, with replicas",
		setting{Topology: "cluster", protection: protection{Replicas: 1}, Calendar: "for ever"}},
}

// Workers issue numbers while a random schedule of faults strikes, and every worker is served again after each fault.
// Guarantees: redis-hangs, cluster-mode, restart-with-data, evicted-keys, gap-explained, deletion-unexplained.
func TestFaults(t *testing.T) {
	seed, soak := redistest.Random(t).Uint64(), os.Getenv("SERIAL_SOAK") != ""
	if !soak && !redistest.Long() { // all cases would take the CPUs from each other
		t.Parallel()
	}
	t.Log("| run | faults | numbers | failed calls | duplicates | out of order | gaps | gaps explained | recovery |")
	for i, r := range runs {
		if !soak && !redistest.Long() && uint64(i)%8 != seed%8 { // an eighth of the runs, by the seed
			continue
		}
		t.Run(r.name, func(t *testing.T) {
			length := lengthOf(t, 1500*time.Millisecond, 7*time.Second, len(runs))
			if !soak {
				t.Parallel() // mostly waiting
			}
			r.Seed = seed + uint64(i)<<32
			e := newEnv(t, r.setting, !r.Ledger, length/2) // midnight comes in the middle
			e.workers = startWorkers(t, e.setting, e.journal, 3)
			began, masters, worst := time.Now(), e.replicationIDs(), e.awaitService(now(), "at first")
			random, faults, ordered := rand.New(rand.NewPCG(seed, uint64(i))), faultsOf(r.setting), true
			var order []int // every fault once, in random order, before any is repeated
			struck := 0
			for ; (struck < 2 || time.Since(began) < length) && !t.Failed(); struck++ {
				if len(order) == 0 {
					order = random.Perm(len(faults))
				}
				st := newStep(faults[order[0]], random, soak)
				order = order[1:]
				worst = max(worst, e.carryOut(st))
				// If Redis forgets everything within 8 s after the first block of a period was sent, that block may be
				// installed later; and two masters may accept writes at once.
				ordered = ordered && !(e.Ledger && (st.fault.risk == loses || st.fault.name == "split brain" || e.proxy == nil))
			}
			v := e.stopAndCheck()
			t.Logf("| %s | %d | %d | %d | %d | %d | %d | %d | %.1f s |", r.name, struck, v.numbers, v.failed,
				len(v.findings[duplicates]), len(v.findings[outOfOrder]), v.gaps, v.explained, worst.Seconds())
			// On a machine so busy that a server seems dead, a cluster fails over by itself, to a replica that lags.
			if !r.promised(outruns) && e.cluster != nil && e.replicationIDs() != masters {
				t.Logf("an unrequested failover, which may lose unprotected numbers: %v", v.findings)
				delete(v.findings, duplicates)
				ordered = false
			}
			e.judge(v, ordered)
			require.Greater(t, v.numbers, int64(100), "hardly anything was issued")
		})
	}
}

// carryOut carries out one step, and returns how long it took until every worker was served again.
func (e *env) carryOut(s step) time.Duration {
	e.findRoles() // a pause may have taken longer than intended
	from := now()
	e.t.Logf("%s: %v", clock(from), s)
	timer := time.AfterFunc(s.delay, func() { e.workers.strike(s) })
	e.random, e.hold = rand.New(rand.NewPCG(s.seed, 0)), s.hold
	heal := s.fault.strike(e)
	if s.worker == replaced {
		e.workers.replace()
	}
	time.Sleep(s.hold)
	heal()
	timer.Stop()
	if s.worker == replaced {
		e.workers.replace()
	}
	took := e.awaitService(now(), s.String())
	// One more block is for a reservation that is being made.
	e.journal.mayLoseBlocks(from, now(), s.fault.blocks+e.evicted+1)
	e.evicted = 0
	return took
}

// awaitService returns the time from since until every worker had received a number of every type. On a machine so busy
// that a server seems dead, a sentinel or a cluster may fail over unasked: that is another fault, and the time counts
// from it.
func (e *env) awaitService(since int64, after string) time.Duration {
	before := e.replicationIDs()
	for {
		waiting, took := e.workers.waiting(since), time.Duration(now()-since)
		if len(waiting) == 0 {
			return took
		}
		if took > recovery {
			ids := e.replicationIDs()
			if ids == before {
				e.t.Errorf("no service %v after: %s: %s", recovery, after, strings.Join(waiting, ", "))
				return took
			}
			before, since = ids, now()
			e.journal.mayLoseBlocks(since-int64(took), since, 1)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// stopAndCheck stops the workers, and checks what they have reported, with what the protection may cost.
func (e *env) stopAndCheck() *verdict {
	e.workers.stop()
	block, silent := int64(0), func(string) int64 { return 0 }
	switch {
	case e.Ledger: // a process that is killed loses the block that it was reserving
		block = blockSize + maxBatch
		silent = func(string) int64 { return int64(e.workers.killed) * block }
	case e.Floor: // the numbers that it skipped may have been used
		silent = func(typ string) int64 { return margin * e.journal.queries[typ] }
	case e.Replicas == 0: // an operator enters the last number of a lost counter
		silent = nil
	}
	return e.journal.check(block, silent)
}

// judge fails the test for every finding that must not occur.
func (e *env) judge(v *verdict, ordered bool) {
	accepted := []string{"calls failed as failed", "calls failed as deadline", "calls failed as " + unknown}
	if e.protection == (protection{}) { // lost numbers are issued again once the operator has raised the counter
		accepted = append(accepted, "calls failed as lost", contradicted)
	}
	if e.Replicas > 0 {
		accepted = append(accepted, "calls failed as unreplicated")
	}
	if !ordered {
		accepted = append(accepted, outOfOrder)
	}
	for what, found := range v.findings {
		if !slices.Contains(accepted, what) {
			e.t.Errorf("%d %s, such as\n%s", len(found), what, strings.Join(found[:min(5, len(found))], "\n"))
		}
	}
}

// A step is one fault, with something that happens to a worker meanwhile.
type step struct {
	fault  fault
	hold   time.Duration // from the fault until it heals
	seed   uint64        // of the fault's random choices
	worker string        // what happens to a worker, "" for nothing
	which  int
	delay  time.Duration // after the fault
	pause  time.Duration // of a suspended worker
}

const (
	killed    = "SIGKILL of a worker"
	suspended = "SIGSTOP, SIGCONT of a worker"
	replaced  = "all workers are replaced, at once and after it has healed"
)

// newStep draws equally many random numbers for every step, so each step depends only on the seed and its number. If
// there is time, a step may take longer than the lock's expiry and every timeout.
func newStep(f fault, random *rand.Rand, isTime bool) step {
	between := func(least, most time.Duration) time.Duration {
		return least + time.Duration(random.Int64N(int64(most-least)))
	}
	s := step{fault: f, hold: between(100*time.Millisecond, 1500*time.Millisecond),
		seed: random.Uint64(), worker: []string{"", killed, suspended}[random.IntN(3)], which: random.IntN(1 << 16),
		pause: between(100*time.Millisecond, 2100*time.Millisecond)}
	s.delay = between(0, s.hold)
	if random.IntN(8) == 0 && isTime {
		s.hold *= 8
		s.pause *= 5
	}
	return s
}

func (s step) String() string {
	text := fmt.Sprintf("%s for %v", s.fault.name, s.hold.Round(time.Millisecond))
	if s.worker != "" {
		text += fmt.Sprintf("; after %v %s", s.delay.Round(time.Millisecond), s.worker)
	}
	return text
}

// lengthOf returns how long a test with this many runs lasts: its part of SERIAL_SOAK, or else brief or long.
func lengthOf(t *testing.T, brief, long time.Duration, runs int) time.Duration {
	if s := os.Getenv("SERIAL_SOAK"); s != "" {
		soak, err := time.ParseDuration(s)
		require.NoError(t, err, "SERIAL_SOAK")
		return soak / time.Duration(runs)
	}
	if redistest.Long() {
		return long
	}
	return brief
}

// Every loss that Redis can suffer, alone: a protection that promises to survive it does, and without one the checker
// finds duplicates. So neither the losses nor the checker are empty. All workers are replaced, since some would
// remember.
// Guarantees: both-lost-forgotten, lagging-replica, promoted-twice, old-backup, split-brain.
func TestScenarios(t *testing.T) {
	if !redistest.Long() {
		t.Parallel()
	}
	topologies := map[string]string{
		"FLUSHALL": "server", "DEL of a counter and its record": "server", "a counter set back": "server",
		"SIGKILL, restart empty": "server", "old RDB restored": "server", "promotion of a lagging replica": "pair",
		"promotion of a lagging replica, and back": "pair", "split brain": "pair",
	}
	seed := redistest.Random(t).Uint64()
	losses := slices.DeleteFunc(slices.Clone(faults), func(f fault) bool { return topologies[f.name] == "" })
	require.Len(t, losses, len(topologies))
	for at, f := range losses {
		if !redistest.Long() && uint64(at)%8 != seed%8 { // one of them, by the seed
			continue
		}
		topology := topologies[f.name]
		for i, p := range []protection{{}, {Ledger: true}, {Replicas: 1}, {Ledger: true, Replicas: 1}} {
			if topology == "server" && p.Replicas > 0 || i > 0 && !p.promised(f.risk) {
				continue
			}
			t.Run(fmt.Sprintf("%s/%+v", f.name, p), func(t *testing.T) {
				t.Parallel()
				try := func() (*env, *verdict) {
					e := newEnv(t, setting{Topology: topology, protection: p}, false, 12*time.Hour)
					e.workers = startWorkers(t, e.setting, e.journal, 2)
					e.awaitService(now(), "at first")
					time.Sleep(200 * time.Millisecond)
					e.carryOut(step{fault: f, hold: 400 * time.Millisecond, worker: replaced})
					return e, e.stopAndCheck()
				}
				e, v := try()
				if i == 0 { // on a busy machine, nothing may have been lost at first
					for tries := 1; tries < 5 && len(v.findings[duplicates]) == 0; tries++ {
						_, v = try()
					}
					require.NotEmpty(t, v.findings[duplicates], "the checker must find duplicates")
					return
				}
				e.judge(v, p.Replicas > 0 || f.name != "split brain")
			})
		}
	}
}
