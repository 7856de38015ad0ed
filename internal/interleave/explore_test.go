package interleave

import (
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dailyserial/serial/internal/race"
	"github.com/dailyserial/serial/internal/redistest"
)

// A namedSetting has at least so many orders of commands.
type namedSetting struct {
	name  string
	least float64
	setting
}

func runEach(t *testing.T, settings []namedSetting) {
	for _, s := range settings {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			s.runAll(t, s.least)
		})
	}
}

// fewRuns is how many runs of a setting there are if not all are wanted.
const fewRuns = 10

// runAll runs a setting in every order, and requires that these are at least as many as least. If SERIAL_TEST_LONG is
// not set, it runs some of the orders, others each time.
func (s setting) runAll(t *testing.T, least float64) {
	if race.Enabled {
		t.Skip("one command at a time leaves nothing for the race detector, and it makes this take minutes")
	}
	began := time.Now()
	if !redistest.Long() {
		_, runs, untried := s.explore(t, fewRuns, redistest.Random(t))
		t.Logf("%d runs in %v; at least %d more are left out without SERIAL_TEST_LONG=1", runs, time.Since(began), untried)
		return
	}
	orders, runs, _ := s.explore(t, 0, nil)
	t.Logf("%.0f orders, by %d runs in %v", orders, runs, time.Since(began))
	require.GreaterOrEqual(t, orders, least)
}

// A node is a state that was reached, and the states that follow it; "" is the end.
type node struct {
	next   []string
	orders float64 // from here to the end; 0 if they are not counted yet
}

// A beginning is how a run begins: its first choices, and whether midnight comes in one of them.
type beginning struct {
	choices  []int
	midnight bool
}

// explore runs a setting in every order. Of two orders that lead to the same state it runs one to the end, and counts
// both. It returns the number of orders and the number of runs.
//
// If most is positive, it stops after that many runs, each of which begins with one of the untried choices, picked at
// random. It then returns how many of those choices were left. More would have followed from them, so orders has no
// meaning.
func (s setting) explore(t *testing.T, most int, random *rand.Rand) (orders float64, runs, untried int) {
	nodes, first := map[string]*node{}, ""
	todo := []beginning{{}}
	for len(todo) > 0 {
		if most > 0 {
			if runs == most {
				return 0, runs, len(todo)
			}
			i := random.IntN(len(todo))
			todo[i], todo[len(todo)-1] = todo[len(todo)-1], todo[i]
		}
		choices, midnight := todo[len(todo)-1].choices, todo[len(todo)-1].midnight
		todo = todo[:len(todo)-1]
		runs++
		race.Bubble(t, func(t *testing.T) {
			r := s.start(t, midnight)
			defer r.close(t)
			before := ""
			for step := 0; ; step++ {
				r.awaitCommands(t)
				events := r.next()
				if len(events) == 0 {
					if n := nodes[before]; n != nil { // nil if a wait took so long that the run has ended before its choices
						n.next = append(n.next, "")
					}
					break
				}
				choice := 0
				switch {
				case step < len(choices):
					choice = min(choices[step], len(events)-1)
					if step == len(choices)-1 {
						before = r.state()
						if nodes[before] == nil { // waits have a random part, and a time limit was reached this time only
							nodes[before] = &node{}
						}
					}
				case !r.disturbed:
					now := r.state()
					if before != "" {
						nodes[before].next = append(nodes[before].next, now)
					} else {
						first = now
					}
					if nodes[now] != nil {
						r.finish(t)
						return
					}
					nodes[now] = &node{}
					for other, e := range events[1:] {
						todo = append(todo, beginning{append(slices.Clone(choices), 1+other), midnight || e.hasMidnight()})
					}
					choices, before = append(choices, 0), now
				}
				require.Less(t, step, 10_000, "a process waits for ever")
				r.apply(events[choice])
			}
			r.finish(t)
		})
		if t.Failed() {
			t.Fatalf("the order was %v", choices)
		}
	}
	return countOrders(nodes, first), runs, 0
}

// countOrders returns the number of orders from a state to the end.
func countOrders(nodes map[string]*node, state string) float64 {
	n := nodes[state]
	switch {
	case n == nil:
		return 1
	case n.orders < 0: // a process waits for what another has not done yet
		return 0
	case n.orders == 0:
		n.orders = -1
		sum := 0.0
		for _, next := range n.next {
			sum += countOrders(nodes, next)
		}
		n.orders = sum
	}
	return n.orders
}

// runRandomly runs a setting in a random order. On average one event in rarely is something else than that a process
// proceeds.
func (s setting) runRandomly(t *testing.T, random *rand.Rand, rarely int) {
	race.Bubble(t, func(t *testing.T) {
		r := s.start(t, s.midnight)
		defer r.close(t)
		for step := 0; ; step++ {
			r.awaitCommands(t)
			events := r.next()
			if len(events) == 0 {
				break
			}
			require.Less(t, step, 10_000, "a process waits for ever")
			// Mostly one proceeds, so that something else happens late, too.
			others := slices.IndexFunc(events, func(e event) bool { return e.what != proceeds })
			switch {
			case others < 0:
			case random.IntN(rarely) > 0:
				events = events[:others]
			default:
				events = events[others:]
			}
			r.apply(events[random.IntN(len(events))])
		}
		r.finish(t)
	})
}

var instants = regexp.MustCompile(`\b\d{12,13}\b`)

// state returns everything that the rest of a run depends on. It has the day, but not the time: a run takes less than
// the lock's expiry unless a process stops or dies, which the state shows. Which process is which makes no difference,
// unless they differ.
func (r *run) state() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	dump := instants.ReplaceAllString(r.redis.Dump(), "T")
	text := func(order ...int) string {
		var b strings.Builder
		c := &r.clock
		fmt.Fprintln(&b, r.afterMidnight, r.lost, r.lostPlain, c.ahead, c.jumped, c.back, c.raising, c.raised)
		for _, e := range r.explained {
			fmt.Fprintln(&b, e.Start, e.First, e.Last, e.Reason)
		}
		for _, i := range order {
			p := r.processes[i]
			if r.losing || r.losingAll || r.fastClock { // what a generator remembers makes a difference then
				fmt.Fprintln(&b, p.results)
			}
			names := ""
			for _, c := range p.held {
				names += c.name + ","
			}
			fmt.Fprintln(&b, p.done, p.issued, names, instants.ReplaceAllString(p.lastReply, "T"))
		}
		keys := dump
		for token, owner := range r.owners {
			keys = strings.ReplaceAll(keys, token, fmt.Sprintf("<%d>", slices.Index(order, owner)))
		}
		return b.String() + keys
	}
	if r.mixed || r.fastClock || r.twoStarts || r.setting.raises || r.takesOver {
		return text(0, 1)
	}
	return min(text(0, 1), text(1, 0))
}
