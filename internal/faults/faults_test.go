//go:build unix

package faults

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dailyserial/serial/internal/redistest"
)

const (
	// recovery is the time within which every worker must get a number of every type once a fault has healed: the
	// lock's expiry and the time a call may take to detect that Redis does not answer.
	recovery = 18 * time.Second
)

// brief returns how long a run's schedule lasts without SERIAL_SOAK.
func brief() time.Duration {
	if redistest.Long() {
		return 7 * time.Second
	}
	return 2 * time.Second
}

// A run has workers issue numbers during a schedule of faults.
type run struct {
	name       string
	topology   topology
	protection protection
	// ordered means that there are never two masters that accept workers' writes. Where there are, two numbers that are
	// both unique may come in the wrong order.
	ordered  bool
	calendar string // a key of calendars
}

var runs = []run{
	{"server/none", serverTopology, protection{}, true, ""},
	{"server/floor", serverTopology, protection{Floor: true}, true, ""},
	{"server/ledger", serverTopology, protection{Ledger: true}, true, ""},
	{"pair/replicas", pairTopology, protection{Replicas: 1}, true, ""},
	{"pair/ledger", pairTopology, protection{Ledger: true}, true, ""},
	{"pair/ledger and replicas", pairTopology, protection{Ledger: true, Replicas: 1}, true, ""},
	{"sentinel/replicas", sentinelTopology, protection{Replicas: 1}, true, ""},
	{"sentinel/ledger", sentinelTopology, protection{Ledger: true}, false, ""},
	{"cluster/none", clusterTopology, protection{}, true, ""},
	{"cluster/replicas", clusterTopology, protection{Replicas: 1}, true, ""},
	{"cluster/ledger", clusterTopology, protection{Ledger: true}, false, ""},
	{"server/weeks", serverTopology, protection{}, true, "weeks"},
	{"server/quarters and floor", serverTopology, protection{Floor: true}, true, "quarters"},
	{"pair/years that print days, and ledger", pairTopology, protection{Ledger: true}, true, "years"},
	{"cluster/for ever, with replicas", clusterTopology, protection{Replicas: 1}, true, "for ever"},
}

// Guarantees: opener-killed, redis-hangs, restart-with-data, script-flush, evicted-keys, gap-explained.
func TestFaults(t *testing.T) {
	seed, soak := seed(t), soak(t)
	for i, r := range runs {
		if soak == 0 && !redistest.Long() && uint64(i)%3 != seed%3 { // a third of the settings, by the seed
			continue
		}
		t.Run(r.name, func(t *testing.T) {
			length := soak / time.Duration(len(runs))
			if soak == 0 {
				t.Parallel() // mostly waiting
				length = brief()
			}
			faults := faultsOf(r.topology, r.protection)
			// Midnight comes in the middle.
			w := build(t, r.topology, r.protection, !r.protection.Ledger, zoneOfMidnightIn(length/2))
			w.setting.Seed, w.setting.Calendar = seed+uint64(i)<<32, r.calendar
			s := &summary{name: r.name, struck: map[string]int{}}
			w.fleet = launch(t, w.setting, w.journal, 3)
			began, masters := time.Now(), w.replicationIDs()
			w.rage(newDeck(seed, r.name, faults, r.protection.Ledger, soak > 0), 2, began.Add(length), s)
			w.fleet.stop()
			s.length = time.Since(began)
			s.asked, s.deaths = w.storage.asked, w.fleet.deaths
			s.verdict = w.journal.check(w.setting, w.allowance())
			s.publish()
			// On a machine so busy that a server seems dead, a cluster fails over by itself, to a replica that lags.
			if !r.protection.promised(outruns) && w.cluster != nil && w.replicationIDs() != masters {
				t.Logf("an unrequested failover, which may lose unprotected numbers: %v %v", s.duplicates, s.disorder)
				s.duplicates, s.disorder = nil, nil
			}
			// If Redis forgets everything within 8 s after the first block of a period was sent, that block may be installed
			// later. Runs are hardly longer than that.
			forgot := slices.ContainsFunc(faults, func(f fault) bool { return f.risk == loses && s.struck[f.name] > 0 })
			w.judge(s.verdict, r.ordered && !(r.protection.Ledger && forgot))
			require.Greater(t, s.numbers, int64(100), "hardly anything was issued")
		})
	}
}

// zoneOfMidnightIn returns the offset from UTC, in seconds, of a zone whose next midnight is d away.
func zoneOfMidnightIn(d time.Duration) int {
	now := time.Now().UTC().Add(d)
	offset := 24*3600 - (now.Hour()*3600 + now.Minute()*60 + now.Second())
	if offset > 12*3600 {
		offset -= 24 * 3600
	}
	return offset
}

// rage carries out steps of the deck until end, but at least least steps.
func (w *world) rage(d *deck, least int, end time.Time, s *summary) {
	w.awaitService(stamp(), "at first", s)
	for i := 0; i < least || time.Now().Before(end); i++ {
		if w.sentinel != nil {
			w.master, w.replica = w.sentinel.Roles(w.t) // a pause may have taken longer than intended
		}
		st := d.deal()
		s.struck[st.fault.name]++
		s.faults++
		if st.mishap != noMishap {
			s.struck[string(st.mishap)]++
			s.faults++
		}
		from := stamp()
		w.t.Logf("%s: %v", clock(from), st)
		timer := time.AfterFunc(st.delay, func() { w.befall(st) })
		heal := st.fault.strike(w, rand.New(rand.NewPCG(st.seed, 0)), st.hold)
		time.Sleep(st.hold)
		heal()
		timer.Stop()
		took := w.awaitService(stamp(), st.String(), s)
		s.recovery = max(s.recovery, took)
		// One more block is for a reservation in progress.
		w.journal.mayLose(loss{from, stamp(), st.fault.blocks + w.evicted + 1})
		w.evicted = 0
		if w.t.Failed() {
			return
		}
	}
}

// befall carries out a worker's mishap.
func (w *world) befall(st step) {
	s := w.fleet.pick(st.worker)
	if s == nil {
		return
	}
	switch st.mishap {
	case killed:
		w.fleet.kill(s)
	case stopped:
		w.fleet.pause(s, st.pause)
	case killOpening:
		w.fleet.trap(s, 0, "open", st.at)
	case stopOpening:
		w.fleet.trap(s, st.pause, "open", st.at)
	case killReserves:
		w.fleet.trap(s, 0, "reserve", st.at%2)
	case stopReserves:
		w.fleet.trap(s, st.pause, "reserve", st.at%2)
	}
}

// awaitService returns the time from since until every worker had received a number of every type. On a machine so busy
// that a server seems dead, a sentinel or Cluster may fail over unasked: that is another fault, and the time counts
// from it.
func (w *world) awaitService(since int64, after string, s *summary) time.Duration {
	before := w.replicationIDs()
	for {
		waiting := w.fleet.waiting(since)
		took := time.Duration(stamp() - since)
		if len(waiting) == 0 {
			return took
		}
		if took > recovery {
			if now := w.replicationIDs(); now != before {
				before, since = now, stamp()
				s.faults++
				s.struck["unrequested failover"]++
				w.journal.mayLose(loss{since - int64(took), since, 1})
				continue
			}
			w.t.Errorf("no service %v after: %s: %s", recovery, after, strings.Join(waiting, ", "))
			return took
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// allowance returns how many numbers the protection may cost.
func (w *world) allowance() allowance {
	a := allowance{}
	if w.protection != (protection{}) { // otherwise an operator enters the last number of a lost counter
		a.silent = func(typ string) int64 { return int64(w.fleet.deaths) * a.block }
	}
	switch {
	case w.protection.Ledger:
		a.block = block + most
		a.reserved = func(typ string) []reservation { return w.storage.made[typ] }
		// A process that dies loses the block that it was reserving.
		a.other = func(typ string) int64 { return w.storage.doubtful[typ] + int64(w.fleet.deaths)*a.block }
	case w.protection.Floor:
		a.other = func(typ string) int64 { return margin * w.storage.floors[typ] }
		a.silent = a.other // the numbers it skipped may have been used
	}
	return a
}

// judge fails the test for every result that must not occur.
func (w *world) judge(v verdict, ordered bool) {
	none := func(found []string, what string) {
		w.t.Helper()
		if len(found) > 0 {
			w.t.Errorf("%d %s, such as\n%s", len(found), what, strings.Join(found[:min(5, len(found))], "\n"))
		}
	}
	none(v.duplicates, "duplicates")
	none(v.wrongDays, "numbers of another day")
	none(v.excess, "types with more gaps than failures explain")
	none(v.unexplained, "types with gaps that nobody explained")
	if w.protection != (protection{}) { // otherwise lost numbers are issued again
		none(v.contradicted, "numbers that are unused and used")
	}
	if ordered {
		none(v.disorder, "numbers out of order")
	}
	expected := []string{"failed", "deadline", unknown}
	if w.protection.Replicas > 0 {
		expected = append(expected, "unreplicated")
	}
	if w.protection == (protection{}) {
		expected = append(expected, "lost") // until the operator raised it
	}
	for class, texts := range v.failures {
		if !slices.Contains(expected, class) {
			none(texts, "calls failed as "+class)
		}
	}
}

// A summary is what the report says of one run.
type summary struct {
	name     string
	length   time.Duration
	struck   map[string]int // faults by kind
	faults   int
	deaths   int
	asked    int
	recovery time.Duration
	verdict
}

// summaries holds the summaries of all runs, for report.
var summaries struct {
	sync.Mutex
	all []*summary
}

func (s *summary) publish() {
	summaries.Lock()
	defer summaries.Unlock()
	summaries.all = append(summaries.all, s)
}

// report prints Markdown.
func report(out io.Writer) {
	all := summaries.all
	if len(all) == 0 {
		return
	}
	slices.SortFunc(all, func(a, b *summary) int {
		place := func(s *summary) int { return slices.IndexFunc(runs, func(r run) bool { return r.name == s.name }) }
		return cmp.Compare(place(a), place(b))
	})
	total := &summary{name: "total", struck: map[string]int{}}
	for _, s := range all {
		total.length += s.length
		total.faults += s.faults
		total.deaths += s.deaths
		total.asked += s.asked
		total.numbers += s.numbers
		total.calls += s.calls
		total.failed += s.failed
		total.gaps += s.gaps
		total.allowed += s.allowed
		total.told += s.told
		total.duplicates = append(total.duplicates, s.duplicates...)
		total.disorder = append(total.disorder, s.disorder...)
		total.outage, total.recovery = max(total.outage, s.outage), max(total.recovery, s.recovery)
		for name, n := range s.struck {
			total.struck[name] += n
		}
	}
	p := func(format string, args ...any) { _, _ = fmt.Fprintf(out, format+"\n", args...) }
	p("\n| run | seconds | faults | workers killed | numbers | calls | failed calls | ledger asked | duplicates | out "+
		"of order | gaps | gaps allowed | gaps explained | longest outage | longest recovery |\n|%s",
		strings.Repeat(" --- |", 15))
	for _, s := range append(all, total) {
		p("| %s | %.0f | %d | %d | %d | %d | %d | %d | %d | %d | %d | %d | %d | %.1f s | %.1f s |", s.name,
			s.length.Seconds(), s.faults, s.deaths, s.numbers, s.calls, s.failed, s.asked, len(s.duplicates),
			len(s.disorder), s.gaps, s.allowed, s.told,
			s.outage.Seconds(), s.recovery.Seconds())
	}
	p("\n| fault | times |\n| --- | ---: |")
	for _, name := range slices.Sorted(maps.Keys(total.struck)) {
		p("| %s | %d |", name, total.struck[name])
	}
	p("| **all** | %d |", total.faults)
}
