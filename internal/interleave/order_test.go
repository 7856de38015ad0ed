package interleave

import (
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dailyserial/serial/internal/race"
)

// An event is what may happen next.
type event struct {
	what         string
	process      int
	command      int  // index of the process's command that it concerns
	thenMidnight bool // midnight comes as well
}

const (
	proceeds     = "proceeds" // with its command
	crashes      = "crashes before it"
	crashesAfter = "crashes after it" // the reply is lost
	suspends     = "is suspended"     // until the other processes have ended
	suspendsLong = "is suspended, and then crashes"
	dayEnds      = "midnight"
	loses        = "data is lost"
	denies       = "from now on without " // and the name of a command
	deniesOnce   = "once without "

	// The context of the process's call ends, and the process lives on:
	cancels         = "cancels before it is sent"
	cancelsInFlight = "cancels while it is in flight" // it runs once the process has nothing else to send
	cancelsHanging  = "cancels, and it hangs"         // it runs when the other processes have ended
	cancelsAfter    = "cancels after it"              // the reply comes once the process has nothing else to send
	arrives         = "arrives"                       // the command or the reply that the call did not wait for
)

// commands are those that a script or the lock may need.
var commands = []string{"EVALSHA", "SET", "TIME", "GET", "HGET", "HMGET", "HSET", "HDEL", "INCRBY", "PTTL", "EXPIREAT",
	"DEL", "INFO"}

// explore runs a setting in every order, or in some: then each run begins with one of the untried choices, picked at
// random. Of two orders that lead to the same state it runs one to the end. It returns the number of runs, and of
// choices that are left.
func (s setting) explore(t *testing.T, most int, random *rand.Rand) (runs, untried int) {
	seen, todo := map[string]bool{}, [][]event{nil} // how runs begin
	for ; len(todo) > 0 && runs < most; runs++ {
		i := random.IntN(len(todo))
		begin := todo[i]
		todo[i] = todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		s.run(t, slices.ContainsFunc(begin, event.hasMidnight), func(r *run, events []event) *event {
			step := len(r.events)
			switch {
			case step < len(begin) && slices.Contains(events, begin[step]): // missing if a wait took longer this time
				return &begin[step]
			case step < len(begin) || r.faulty >= 0:
				return &events[0]
			}
			state := r.state()
			if seen[state] {
				return nil
			}
			seen[state] = true
			for _, other := range events[1:] {
				todo = append(todo, append(slices.Clone(r.events), other))
			}
			return &events[0]
		})
	}
	return runs, len(todo)
}

// run runs a setting once. choose returns the next event, or nil if nothing is to be held back any more.
func (s setting) run(t *testing.T, midnight bool, choose func(r *run, events []event) *event) {
	race.Bubble(t, func(t *testing.T) {
		r := s.start(t, midnight)
		defer r.close(t)
		for {
			require.Less(t, len(r.events), 10_000, "a process waits for ever")
			r.awaitCommands(t)
			events := r.next()
			if len(events) == 0 {
				break
			}
			e := choose(r, events)
			if e == nil {
				break
			}
			r.apply(*e)
		}
		r.finish(t)
	})
	if t.Failed() {
		t.FailNow()
	}
}

// awaitCommands lets time pass until a command of every process is held back, unless it has crashed or is done. Once a
// call was canceled, one command is enough: the time that passes is then what the other process waits.
func (r *run) awaitCommands(t *testing.T) {
	r.await(t, func(p *process) bool {
		r.nextDay = r.nextDay || !time.Now().Before(r.midnightAt)
		return p.done || p.crashed || len(p.held) > 0 ||
			r.fault == cancel && r.faulty >= 0 && len(r.nextAfterCancel()) > 0
	})
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, p := range r.processes { // those of one instant come in any order
		slices.SortFunc(p.held, func(a, b *heldCommand) int { return strings.Compare(a.name, b.name) })
	}
}

// next returns the events that are possible now, none if the run is over.
func (r *run) next() (all []event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.fault == cancel && r.faulty >= 0 {
		return r.nextAfterCancel()
	}
	others := false
	for i, p := range r.processes {
		others = others || i > 0 && !p.done && !r.processes[0].done
		for nth := range p.held {
			late := nth > 0 && r.has["midnight"] // a lock is released late in settings without midnight
			if !p.crashed && i != r.suspended && !late {
				all = append(all, event{what: proceeds, process: i, command: nth})
			}
		}
	}
	if i := r.faulty; i >= 0 && len(r.processes[i].held) > 0 {
		switch {
		case i == r.suspended && (len(all) == 0 || r.crashes && time.Since(r.faultAt) > expiry-500*time.Millisecond):
			r.suspended = -1
			return []event{{what: proceeds, process: i}}
		case i != r.suspended && r.crashes:
			return []event{{what: crashes, process: i}}
		}
	}
	if len(all) == 0 || r.faulty >= 0 {
		return all
	}
	if r.has["midnight"] && !r.nextDay {
		all = append(all, event{what: dayEnds})
	}
	if !r.isLost && (r.fault == loseCounter && r.redis.Exists(r.counter()) ||
		r.fault == loseAll && r.redis.Exists(r.record())) {
		all = append(all, event{what: loses})
	}
	for i, p := range r.processes {
		if len(p.held) > 0 && !p.done && (others || len(r.processes) == 1) {
			all = append(all, r.faults(i)...)
		}
	}
	return all
}

// faults returns what may go wrong at a process's command.
func (r *run) faults(i int) (all []event) {
	var whats []string
	switch {
	case r.fault == cancel:
		whats = []string{cancels, cancelsInFlight, cancelsHanging, cancelsAfter}
	case r.fault == deny:
		for _, command := range commands {
			whats = append(whats, deniesOnce+command, denies+command)
		}
	case r.fault == crash && r.has["midnight"] && r.has["ledger"]: // the others are in settings with one of both
		whats = []string{crashes}
	case r.fault == crash:
		whats = []string{crashes, crashesAfter, suspends, suspendsLong}
	}
	for _, what := range whats {
		all = append(all, event{what: what, process: i})
		if r.has["midnight"] && !r.nextDay && !r.has["ledger"] {
			all = append(all, event{what: what, process: i, thenMidnight: true})
		}
	}
	return all
}

// nextAfterCancel returns the one event that can follow once a call was canceled: commands proceed in the order in
// which they came. The caller holds mu.
func (r *run) nextAfterCancel() []event {
	next, first, othersDone := -1, 0, true
	for i, p := range r.processes {
		if len(p.held) > 0 && (next < 0 || p.held[0].count < first) {
			next, first = i, p.held[0].count
		}
		othersDone = othersDone && (i == r.faulty || p.done)
	}
	switch {
	case r.inTransit != nil && !r.arrivesAll && len(r.processes[r.faulty].held) > 0:
		return []event{{what: proceeds, process: r.faulty}}
	case r.inTransit != nil && (!r.arrivesAll || next < 0 && othersDone):
		return []event{{what: arrives, process: r.faulty}}
	case next >= 0:
		return []event{{what: proceeds, process: next}}
	}
	return nil
}

// hasMidnight reports whether midnight comes in the event.
func (e event) hasMidnight() bool { return e.what == dayEnds || e.thenMidnight }

// apply lets an event happen.
func (r *run) apply(e event) {
	r.mu.Lock()
	p, name := r.processes[e.process], ""
	if len(p.held) > 0 {
		name = p.held[e.command].name
	}
	r.events = append(r.events, e)
	r.trace = append(r.trace, fmt.Sprintf("%d %s (%s; before that %s)", e.process, e.what, name, p.lastReply))
	r.nextDay = r.nextDay || e.hasMidnight()
	switch e.what {
	case dayEnds:
	case loses:
		r.lose(map[string]string{loseCounter: r.counter()}[r.fault])
	case arrives:
		r.inTransit.resume <- arrives
		r.inTransit = nil
	default:
		if e.what != proceeds && r.faulty < 0 {
			r.faulty, r.faultAt = e.process, time.Now()
			r.crashes, r.arrivesAll = e.what == suspendsLong, e.what == cancelsHanging
		}
		if e.what == suspends || e.what == suspendsLong {
			r.suspended = e.process
			break
		}
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

var instants = regexp.MustCompile(`\b\d{12,13}\b|"(seconds|micros)":\d+`)

// state returns everything that the rest of a run depends on. It has the day, but not the time: a run takes less than
// the lock's expiry unless a process crashes or is suspended. Which process is which makes no difference, unless they
// differ.
func (r *run) state() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	keys := r.redis.Dump()
	text := func(order ...int) string {
		var b strings.Builder
		fmt.Fprintln(&b, r.nextDay, r.isLost, r.lostPlain)
		for _, e := range r.explained {
			fmt.Fprintln(&b, e.Start, e.First, e.Last, e.Reason)
		}
		for _, i := range order {
			p := r.processes[i]
			if r.fault != crash && r.fault != cancel { // what a generator remembers makes a difference then
				fmt.Fprintln(&b, p.results)
			}
			for _, c := range p.held {
				b.WriteString(c.name + ",")
			}
			fmt.Fprintln(&b, p.done, p.issued, p.lastReply)
		}
		all := instants.ReplaceAllString(b.String()+keys, "T")
		for token, owner := range r.owners {
			all = strings.ReplaceAll(all, token, fmt.Sprintf("<%d>", slices.Index(order, owner)))
		}
		return all
	}
	order := []int{0, 1, 2}[:len(r.processes)]
	if len(order) != 2 || r.has["mixed"] || r.has["two starts"] || r.has["Raise"] || r.has["Takeover"] {
		return text(order...)
	}
	return min(text(0, 1), text(1, 0))
}
