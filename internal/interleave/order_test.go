package interleave

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dailyserial/serial/internal/race"
)

// An event is what may happen next.
type event struct {
	what    string
	process int
	command string // that the process has not sent yet
}

const (
	proceeds     = "proceeds" // with its command
	crashes      = "crashes before"
	crashesAfter = "crashes after" // the reply is lost
	suspends     = "is suspended"  // until the other processes have ended
	suspendsLong = "is suspended, and crashes later"
	dayEnds      = "midnight"
	loses        = "data is lost"

	// The context of the process's call ends, and the process lives on:
	cancelsInFlight = "cancels during" // the command runs once the process has nothing else to send
	cancelsAfter    = "cancels after"  // the reply comes once the process has nothing else to send
)

// faults are the events of each fault that concern the command of a process.
var faults = map[string][]string{
	crash:  {crashes, crashesAfter, suspends, suspendsLong},
	cancel: {cancelsInFlight, cancelsAfter},
	// These are the commands that a script or the lock may need.
	deny: {"EVALSHA", "SET", "TIME", "GET", "HGET", "HMGET", "HSET", "HDEL", "INCRBY", "PTTL", "EXPIREAT", "DEL", "INFO"},
}

// run runs a setting once, and returns how other runs can begin. There are none from a state that was seen before, as
// all runs continue in the same way from there.
func (s setting) run(t *testing.T, begin []event, seen map[string]bool) (others [][]event) {
	race.Bubble(t, func(t *testing.T) {
		r := s.start(t)
		defer r.close(t)
		for {
			require.Less(t, len(r.events), 10_000, "a process waits for ever")
			r.await(t, func(i int, p *process) bool {
				return p.done || p.crashed || slices.ContainsFunc(r.held, func(c *heldCommand) bool { return c.process == i })
			})
			events, step := r.next(), len(r.events)
			if len(events) == 0 {
				break
			}
			if step < len(begin) {
				if slices.Contains(events, begin[step]) { // missing if a wait took longer this time
					events = begin[step:]
				}
			} else if state := r.state(); r.met != nil || !seen[state] {
				seen[state] = true
				for _, other := range events[1:] {
					others = append(others, append(slices.Clone(r.events), other))
				}
			}
			r.apply(events[0])
		}
		r.finish(t)
	})
	if t.Failed() {
		t.FailNow()
	}
	return others
}

// next returns the events that are possible now, none if the run is over.
func (r *run) next() (all []event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	slices.SortStableFunc(r.held, func(a, b *heldCommand) int { // commands can arrive at the same instant
		return cmp.Or(a.since.Compare(b.since), cmp.Compare(a.process, b.process), strings.Compare(a.name, b.name))
	})
	if r.met != nil {
		return r.nextAfterFault()
	}
	for _, c := range r.held {
		all = append(all, event{proceeds, c.process, c.name})
	}
	if len(all) == 0 {
		return nil
	}
	if r.has("midnight") && !r.nextDay() {
		all = append(all, event{what: dayEnds})
	}
	if (r.fault == loseCounter || r.fault == loseAll) && !r.isLost && r.redis.Exists(r.counter()) {
		all = append(all, event{what: loses})
	}
	if slices.ContainsFunc(r.processes, func(p *process) bool { return p.done }) {
		return all // nobody is left whom a fault could concern
	}
	for _, c := range r.held {
		for _, what := range faults[r.fault] {
			all = append(all, event{what, c.process, c.name})
		}
	}
	return all
}

// nextAfterFault returns the event that follows after a fault. There is only one, because commands then proceed as they
// came, but right after the fault it may be midnight instead. The caller holds mu.
func (r *run) nextAfterFault() (all []event) {
	var waiting []event
	idle := true // the process that met the fault has nothing to send
	for _, c := range r.held {
		e := event{proceeds, c.process, c.name}
		switch {
		case r.processes[c.process].crashed:
		case c.late, r.suspended && c.process == r.met.process:
			waiting = append(waiting, e)
		default:
			all = append(all, e)
			idle = idle && c.process != r.met.process
		}
	}
	later := r.met.what == suspendsLong
	wakes := len(all) == 0 || later && time.Since(r.faultAt) > expiry-500*time.Millisecond
	if len(waiting) > 0 && (r.suspended && wakes || !r.suspended && idle) {
		all = waiting
		if later {
			all[0].what = crashesAfter
		}
	}
	if len(all) > 0 && r.has("midnight") && !r.nextDay() && r.events[len(r.events)-1] == *r.met {
		return []event{all[0], {what: dayEnds}}
	}
	return all[:min(len(all), 1)]
}

// apply lets an event happen.
func (r *run) apply(e event) {
	if e.what == dayEnds {
		sleepToMidnight()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = append(r.events, e)
	switch e.what {
	case dayEnds:
		return
	case loses:
		r.lose()
		return
	}
	r.suspended = r.suspended && e.process != r.met.process
	if e.what != proceeds && r.met == nil {
		r.met, r.faultAt = &e, time.Now()
	}
	p := r.processes[e.process]
	i := slices.IndexFunc(r.held, func(c *heldCommand) bool { return c.process == e.process && c.name == e.command })
	p.crashed = p.crashed || e.what == crashes || e.what == crashesAfter
	switch e.what {
	case suspends, suspendsLong:
		r.suspended = true
		return
	case crashes:
		return
	case cancelsInFlight:
		p.cancel()
		r.held[i].late = true
		return
	}
	if r.fault == deny && e.what != proceeds {
		r.redis.Deny(e.what)
	}
	r.held[i].resume <- e.what
	r.held = slices.Delete(r.held, i, i+1)
}

// sleepToMidnight lets time pass until the next day has begun.
func sleepToMidnight() {
	time.Sleep(time.Until(time.Now().Truncate(24 * time.Hour).Add(24*time.Hour + 100*time.Millisecond)))
}

// volatile matches what differs between runs in the same state: instants, and the values of locks.
var volatile = regexp.MustCompile(`\b\d{12,13}\b|"(seconds|micros)":\d+|[\w+/]{22}==`)

// state returns everything that the rest of a run depends on. It has the day, but not the time: a run takes less than
// the lock's expiry unless a process crashes or is suspended. Which process is which makes no difference, unless they
// differ.
func (r *run) state() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	processes := make([]string, len(r.processes))
	for i, p := range r.processes {
		processes[i] = fmt.Sprintln(p.results, p.replies, p.done)
	}
	for _, c := range r.held {
		processes[c.process] += c.name + ","
	}
	if !r.has("mixed", "two starts", "Raise", "Takeover") {
		slices.Sort(processes)
	}
	text := fmt.Sprintln(r.nextDay(), r.isLost, r.lostPlain, processes)
	for _, e := range r.explained {
		text += fmt.Sprintln(e.Start, e.First, e.Last, e.Reason)
	}
	return volatile.ReplaceAllString(text+r.redis.Dump(), "*")
}
