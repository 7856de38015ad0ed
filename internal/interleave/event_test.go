package interleave

import (
	"fmt"
	"slices"
	"testing/synctest"
	"time"
)

// An event is what may happen next.
type event struct {
	what    string
	process int
	// The index of the process's command: it has more than one if its lock is released while it continues.
	command      int
	thenMidnight bool
}

// hasMidnight reports whether midnight comes in the event.
func (e event) hasMidnight() bool { return e.what == midnight || e.thenMidnight }

const (
	proceeds  = "proceeds" // with its command
	dies      = "dies before it"
	diesAfter = "dies after it" // the answer is lost
	stops     = "stops"         // until all others are done
	midnight  = "midnight"
	loses     = "the counter is lost"
	losesAll  = "everything is lost"

	// The context of the process's call ends, and the process lives on:
	leaves         = "leaves before it is sent"
	leavesInFlight = "leaves while it is in flight" // it runs once the process has nothing else to send
	leavesHanging  = "leaves, and it hangs"         // it runs when all others are done
	leavesAfter    = "leaves after it"              // the answer comes once the process has nothing else to send
	arrives        = "arrives"                      // the command or the answer that the caller did not wait for
)

// next returns the events that are possible now, none if the run is over.
func (r *run) next() (all []event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.left >= 0 {
		return r.eventsAfterLeaving()
	}
	alive := 0
	for i, p := range r.processes {
		if !p.dead && !p.done {
			alive++
		}
		for nth := range p.held {
			late := nth > 0 && r.setting.midnight // a lock is released late in settings without midnight
			if !p.dead && i != r.stopped && !late {
				all = append(all, event{what: proceeds, process: i, command: nth})
			}
		}
	}
	if i := r.stopped; len(all) == 0 && i >= 0 && len(r.processes[i].held) > 0 { // all others are done
		r.stopped = -1
		return []event{{what: proceeds, process: i}}
	}
	if len(all) == 0 || r.disturbed {
		return all
	}
	if r.setting.midnight && !r.afterMidnight {
		all = append(all, event{what: midnight})
	}
	if r.losing && !r.lost && r.redis.Exists(r.counter()) {
		all = append(all, event{what: loses})
	}
	if r.losingAll && !r.lost && r.redis.Exists(r.record()) {
		all = append(all, event{what: losesAll})
	}
	if r.fastClock {
		all = append(all, r.clockEvents()...)
	}
	for i, p := range r.processes {
		if alive > 1 && len(p.held) > 0 && !p.done {
			all = append(all, r.disturbances(i)...)
		}
	}
	return all
}

// disturbances returns what may go wrong at a process's command.
func (r *run) disturbances(i int) (all []event) {
	whats := []string{dies, diesAfter, stops}
	switch {
	case r.leaving:
		whats = []string{leaves, leavesInFlight, leavesHanging, leavesAfter}
	case r.undisturbed:
		return nil
	case r.setting.midnight && r.setting.ledger: // the others are in settings with one of both
		whats = whats[:1]
	}
	for _, what := range whats {
		all = append(all, event{what: what, process: i})
		if r.setting.midnight && !r.afterMidnight && !r.setting.ledger {
			all = append(all, event{what: what, process: i, thenMidnight: true})
		}
	}
	return all
}

// eventsAfterLeaving returns the one event that can follow: commands proceed in the order in which they came. The
// caller holds mu.
func (r *run) eventsAfterLeaving() []event {
	next, first, othersDone := -1, 0, true
	for i, p := range r.processes {
		if len(p.held) > 0 && (next < 0 || p.held[0].count < first) {
			next, first = i, p.held[0].count
		}
		othersDone = othersDone && (i == r.left || p.done)
	}
	switch {
	case r.transit != nil && !r.hangs && len(r.processes[r.left].held) > 0:
		return []event{{what: proceeds, process: r.left}}
	case r.transit != nil && (!r.hangs || next < 0 && othersDone):
		return []event{{what: arrives, process: r.left}}
	case next >= 0:
		return []event{{what: proceeds, process: next}}
	}
	return nil
}

// apply lets an event happen.
func (r *run) apply(e event) {
	r.mu.Lock()
	p, name := r.processes[e.process], ""
	if len(p.held) > 0 {
		name = p.held[e.command].name
	}
	r.events = append(r.events, fmt.Sprintf("%d %s (%s; before that %s)", e.process, e.what, name, p.lastReply))
	switch e.what {
	case dies, diesAfter, stops, leaves, leavesInFlight, leavesHanging, leavesAfter:
		r.disturbed = true
	}
	r.hangs = r.hangs || e.what == leavesHanging
	r.afterMidnight = r.afterMidnight || e.hasMidnight()
	switch {
	case e.what == midnight, r.applyClock(e.what):
	case e.what == loses:
		r.lost, r.lostPlain = true, !r.dayHasLedger()
		r.redis.Del(r.counter())
	case e.what == losesAll:
		r.lost = true
		r.redis.FlushAll()
	case e.what == stops:
		r.stopped, r.resumed = e.process, e.process
	case e.what == arrives:
		r.transit.resume <- arrives
		r.transit = nil
	default:
		p.held[e.command].resume <- e.what
		p.held = slices.Delete(p.held, e.command, e.command+1)
	}
	r.mu.Unlock()
	if e.hasMidnight() {
		synctest.Wait()
		sleepToMidnight()
	}
}

// sleepToMidnight lets time pass until the next day has begun.
func sleepToMidnight() {
	time.Sleep(time.Until(time.Now().Truncate(24 * time.Hour).Add(24*time.Hour + 100*time.Millisecond)))
}
