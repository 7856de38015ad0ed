//go:build unix

package faults

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dailyserial/serial"
	"github.com/dailyserial/serial/internal/redistest"
)

// recovery is the time within which every worker must get a number of every type once a fault has healed: the lock's
// expiry and the time that a call may take to detect that Redis does not reply.
const recovery = 18 * time.Second

// Workers issue numbers in each of these settings.
var runs = []setting{
	{Name: "server/none", Topology: "server"},
	{Name: "server/ledger", Topology: "server", protection: protection{Ledger: true}},
	{Name: "solo/none", Topology: "solo"},
	{Name: "pair/replicas", Topology: "pair", protection: protection{Replicas: 1}},
	{Name: "pair/ledger", Topology: "pair", protection: protection{Ledger: true}, Calendar: "years"},
	{Name: "pair/ledger and replicas", Topology: "pair", protection: protection{Ledger: true, Replicas: 1}},
	{Name: "sentinel/replicas", Topology: "sentinel", protection: protection{Replicas: 1}},
	{Name: "sentinel/ledger", Topology: "sentinel", protection: protection{Ledger: true}},
	{Name: "cluster/replicas", Topology: "cluster", protection: protection{Replicas: 1}, Calendar: "for ever"},
	{Name: "cluster/ledger", Topology: "cluster", protection: protection{Ledger: true}},
}

// Workers issue numbers while a random schedule of faults strikes, and every worker is served again after each fault.
// Guarantees: redis-hangs, cluster-mode, restart-with-data, evicted-keys, gap-explained, deletion-unexplained.
func TestFaults(t *testing.T) {
	seed, soak := redistest.Random(t).Uint64(), os.Getenv("SERIAL_SOAK") != ""
	if !soak && !redistest.Long() { // all cases would take the CPUs from each other
		t.Parallel()
	}
	t.Log("| run | faults | numbers | failed calls | duplicates | out of order | gaps | gaps explained | recovery |")
	for i, s := range runs {
		if !soak && !redistest.Long() && uint64(i)%5 != seed%5 { // two of the runs, by the seed
			continue
		}
		t.Run(s.Name, func(t *testing.T) {
			length := lengthOf(t, 1500*time.Millisecond, 7*time.Second, len(runs))
			if !soak {
				t.Parallel() // mostly waiting
			}
			s.Seed = seed + uint64(i)<<32
			e := newEnv(t, s, !s.Ledger, length/2, 3) // midnight comes in the middle
			began, worst := time.Now(), e.awaitService(now())
			ordered, struck := true, 0
			var left []fault // every fault once, in random order, before any is repeated
			for ; (struck < 2 || time.Since(began) < length) && !t.Failed(); struck++ {
				if len(left) == 0 {
					left = faultsOf(s)
					e.random.Shuffle(len(left), func(i, j int) { left[i], left[j] = left[j], left[i] })
				}
				f, hold := left[0], 100*time.Millisecond+time.Duration(e.random.Int64N(int64(1400*time.Millisecond)))
				left = left[1:]
				if soak && e.random.IntN(8) == 0 { // longer than the lock's expiry and every timeout
					hold *= 8
				}
				what := []event{none, none, killed, suspended, suspended, killedLater}[e.random.IntN(6)]
				worst = max(worst, e.carryOut(f, hold, what))
				// If Redis forgets everything within 8 s after the first block of a period was sent, that block may be
				// installed later; and two masters may accept writes at once.
				ordered = ordered && !(e.Ledger && (f.risk == loses || f.name == "split brain" || e.proxy == nil))
			}
			e.stop()
			v := e.journal.check()
			t.Logf("| %s | %d | %d | %d | %d | %d | %d | %d | %.1f s |", s.Name, struck, v.numbers, v.failed,
				len(v.findings[duplicates]), len(v.findings[outOfOrder]), v.gaps, v.explained, worst.Seconds())
			e.judge(v, ordered)
			require.Greater(t, v.numbers, int64(100), "hardly anything was issued")
		})
	}
}

// Every loss that Redis can suffer, alone: a protection that promises to survive it does, and without one the checker
// finds duplicates. So neither the losses nor the checker are empty. All workers are replaced, since some would
// remember.
// Guarantees: both-lost-forgotten, lagging-replica, promoted-twice, old-backup, split-brain.
func TestScenarios(t *testing.T) {
	if !redistest.Long() {
		t.Parallel()
	}
	random := redistest.Random(t)
	losses := slices.DeleteFunc(slices.Clone(faults), func(f fault) bool {
		return f.risk != outruns && f.risk != loses || f.where != "" && strings.Contains(failsOver, f.where) ||
			f.name == "eviction" // it is random what it loses
	})
	if !redistest.Long() {
		losses = losses[random.IntN(len(losses)):][:1]
	}
	for _, f := range losses {
		protections := []protection{{}, {Ledger: true}}
		topology := "server"
		if f.where == "pair" {
			topology, protections = "pair", append(protections, protection{Replicas: 1}, protection{Ledger: true, Replicas: 1})
		}
		for _, p := range protections {
			seed := random.Uint64()
			t.Run(fmt.Sprintf("%s/%+v", f.name, p), func(t *testing.T) {
				t.Parallel()
				try := func(hold time.Duration) (*env, *verdict) {
					e := newEnv(t, setting{Topology: topology, protection: p, Seed: seed}, false, 12*time.Hour, 2)
					e.awaitService(now())
					time.Sleep(200 * time.Millisecond)
					e.carryOut(f, hold, replaced)
					e.stop()
					return e, e.journal.check()
				}
				e, v := try(400 * time.Millisecond)
				if p.promised(f.risk) {
					e.judge(v, p.Replicas > 0 || f.name != "split brain")
					return
				}
				for hold := time.Second; hold < 20*time.Second && len(v.findings[duplicates]) == 0; hold *= 2 {
					_, v = try(hold) // on a busy machine, the new workers may have issued nothing in a shorter time
				}
				require.NotEmpty(t, v.findings[duplicates], "the checker must find duplicates")
			})
		}
	}
}

// An event is something that happens to workers during a fault.
type event string

const (
	none        event = "nothing else"
	killed      event = "SIGKILL of a worker"
	suspended   event = "SIGSTOP, SIGCONT of a worker"
	killedLater event = "SIGSTOP, SIGKILL of a worker"
	replaced    event = "all workers are replaced, and again after it has healed"
)

// carryOut has a fault strike, and heals it. It returns how long it took until every worker was served again.
func (e *env) carryOut(f fault, hold time.Duration, what event) time.Duration {
	e.findPairs() // a pause may have taken longer than intended
	from, delay := now(), time.Duration(e.random.Int64N(int64(hold)))
	e.t.Logf("%s: %s for %v; after %v %s", clock(from), f.name, hold, delay, what)
	e.pair, e.hold = e.pairs[e.random.IntN(len(e.pairs))], hold
	if what == replaced {
		delay = 0
	}
	e.spent = f.blocks + 1 // one for a reservation that is being made
	heal := f.strike(e)
	time.Sleep(delay)
	end := e.disturb(what)
	time.Sleep(hold - delay)
	if what != replaced && e.random.IntN(2) == 0 {
		heal, end = end, heal
	}
	heal()
	time.Sleep(time.Duration(e.random.Int64N(int64(hold))))
	end()
	took := e.awaitService(now())
	e.mayLose(from, e.spent)
	return took
}

// mayLose notes that each type may have lost blocks since an instant.
func (e *env) mayLose(from, blocks int64) {
	if e.Ledger {
		l := loss{from - int64(time.Second), now(), blocks * (blockSize + maxBatch)}
		e.journal.set(func() { e.journal.losses = append(e.journal.losses, l) })
	}
}

// disturb lets something happen to workers, and returns how that ends.
func (e *env) disturb(what event) (end func()) {
	alive := e.alive()
	p := alive[e.random.IntN(len(alive))]
	switch what {
	case killed:
		e.replace(p)
	case suspended, killedLater:
		require.NoError(e.t, p.Process.Signal(syscall.SIGSTOP))
		e.spent++
		if what == killedLater {
			return func() { e.replace(p) }
		}
		return func() { require.NoError(e.t, p.Process.Signal(syscall.SIGCONT)) }
	case replaced:
		e.replace(alive...)
		return func() { e.replace(e.alive()...) }
	}
	return nothing
}

// awaitService returns the time from since until every worker had received a number of every type. On a machine so busy
// that a server seems dead, a sentinel or a cluster may fail over unasked: that is another fault, and the time counts
// from it.
func (e *env) awaitService(since int64) time.Duration {
	for before := e.findPairs(); ; time.Sleep(5 * time.Millisecond) {
		var waiting []string
		e.journal.set(func() {
			for _, p := range e.alive() {
				for _, typ := range usedTypes {
					if e.journal.latest[fmt.Sprint(p.number, typ)] < since {
						waiting = append(waiting, fmt.Sprintf("worker %d %s", p.number, typ))
					}
				}
			}
		})
		took := time.Duration(now() - since)
		if len(waiting) > 0 && took <= recovery {
			continue
		}
		ids := e.findPairs()
		if ids != before {
			e.mayLose(since, 1)
		}
		if len(waiting) == 0 {
			return took
		}
		if ids == before {
			e.t.Errorf("no service for %v: %s", recovery, strings.Join(waiting, ", "))
			return took
		}
		before, since = ids, now()
	}
}

// judge fails the test for every finding that must not occur.
func (e *env) judge(v *verdict, ordered bool) {
	accepted := []string{"calls failed as failed", "calls failed as deadline", "calls failed as " + unknown}
	if e.Replicas > 0 {
		accepted = append(accepted, "calls failed as "+serial.ErrNotReplicated.Error())
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
