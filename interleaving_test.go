package serial_test

import (
	"context"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dailyserial/serial"
	"github.com/dailyserial/serial/internal/race"
)

// A scene is a situation in which several generators issue numbers, one Redis command at a time, in an order that
// the test decides. A question to the ledger counts as a command.
type scene struct {
	players  int
	each     int  // numbers that a player asks for, one after the other
	midnight bool // midnight may strike at any point
	ledger   bool
	calm     bool // nobody dies or stops
	leaving  bool // the context of a call may end; nobody dies or stops
	loses    bool // Redis may lose the counter once, at any point
	mixed    bool // the first player has no ledger, the others have one
	once     bool // all players first repeat one request, and then have their own
	wild     bool // the server's clock may jump ahead and come back; the last player is an operator
	varies   bool // numbers count through the year and print the day
	starts   bool // the last player has laterStart, the others have 1

	prepare func(t *testing.T, m *simulation, opts []serial.Option) (issued []string) // run before the scene begins
}

// A position is a state that was reached and the states that follow from it; "" is the end.
type position struct {
	follows []string
	orders  float64
}

// explore plays a scene in every possible order. Of two orders that lead to the same state it plays one to the end and
// counts both. It returns the number of orders and the number of plays.
//
// If most is positive, it stops after that many plays, each of which begins with one of the untried choices, picked at
// random. It then returns how many of those choices were left; more would have followed from them, so orders has no
// meaning.
func explore(t *testing.T, s scene, most int, random *rand.Rand) (orders float64, plays, left int) {
	known, first := map[string]*position{}, ""
	todo := [][]int{nil} // the choices with which a play begins
	for len(todo) > 0 {
		if most > 0 {
			if plays == most {
				return 0, plays, len(todo)
			}
			i := random.IntN(len(todo))
			todo[i], todo[len(todo)-1] = todo[len(todo)-1], todo[i]
		}
		choices := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		plays++
		synctest.Test(t, func(t *testing.T) {
			p := s.start(t)
			defer p.close(t)
			before := ""
			for step := 0; ; step++ {
				p.settle(t)
				moves := p.moves()
				if len(moves) == 0 {
					known[before].follows = append(known[before].follows, "")
					break
				}
				choice := 0
				switch {
				case step < len(choices):
					choice = min(choices[step], len(moves)-1)
					if step == len(choices)-1 {
						before = p.state()
						if known[before] == nil { // waits have a random part, and a time limit came this time only
							known[before] = &position{}
						}
					}
				case !p.upset:
					now := p.state()
					if before != "" {
						known[before].follows = append(known[before].follows, now)
					} else {
						first = now
					}
					if known[now] != nil {
						p.finish(t)
						return
					}
					known[now] = &position{}
					for other := 1; other < len(moves); other++ {
						todo = append(todo, append(slices.Clone(choices), other))
					}
					choices, before = append(choices, 0), now
				}
				require.Less(t, step, 10_000, "somebody is stuck")
				p.carryOut(moves[choice])
			}
			p.finish(t)
		})
		if t.Failed() {
			t.Fatalf("the order was %v", choices)
		}
	}
	var count func(state string) float64
	count = func(state string) float64 {
		p := known[state]
		switch {
		case p == nil:
			return 1
		case p.orders < 0: // somebody waits for what the other has not done yet
			return 0
		case p.orders == 0:
			p.orders = -1
			sum := 0.0
			for _, next := range p.follows {
				sum += count(next)
			}
			p.orders = sum
		}
		return p.orders
	}
	return count(first), plays, 0
}

// A namedScene has at least so many orders of commands.
type namedScene struct {
	name  string
	least float64
	scene
}

func playEach(t *testing.T, scenes []namedScene) {
	for _, s := range scenes {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			playAll(t, s.scene, s.least)
		})
	}
}

// oneIssued opens the period.
func oneIssued(t *testing.T, m *simulation, opts []serial.Option) []string {
	number, err := newGenerator(t, m.client(), opts...).Next(context.Background(), "IS")
	require.NoError(t, err)
	return []string{number}
}

// Two generators run in every order of their commands, and one dies or stops at any point: no number is issued twice, and nobody
// is stuck.
// Guarantees: opener-killed.
func TestInterleavings(t *testing.T) {
	ahead := func(t *testing.T, m *simulation, opts []serial.Option) []string {
		require.NoError(t, newGenerator(t, m.client(), opts...).Prepare(context.Background(), "IS", 2))
		return nil
	}
	playEach(t, []namedScene{
		{"from a missing counter", 1000, scene{players: 2, each: 3}},
		{"from a missing counter, across midnight", 1e5, scene{players: 2, each: 1, midnight: true}},
		{"prepared, across midnight", 100, scene{players: 2, each: 1, midnight: true, prepare: ahead}},
		{"of a year that prints the day, across midnight", 1000, scene{players: 2, each: 1, midnight: true, varies: true}},
		{"with a ledger, at the end of a block", 100, scene{players: 2, each: 2, ledger: true, prepare: fullBlock}},
		{"with a ledger, from nothing", 1000, scene{players: 2, each: 2, ledger: true}},
		{"with a ledger, across midnight", 1000, scene{players: 2, each: 1, ledger: true, midnight: true}},
		{"with two starts, from a missing counter, across midnight", 1000,
			scene{players: 2, each: 1, starts: true, midnight: true}},
		{"with two starts, prepared, across midnight", 100,
			scene{players: 2, each: 1, starts: true, midnight: true, prepare: ahead}},
		{"with two starts and a ledger, from nothing", 1000, scene{players: 2, each: 2, starts: true, ledger: true}},
		{"with two starts and a ledger, at the end of a block", 100,
			scene{players: 2, each: 2, starts: true, ledger: true, prepare: fullBlock}},
		{"with two starts and a ledger, prepared, across midnight", 100,
			scene{players: 2, each: 1, starts: true, ledger: true, midnight: true, prepare: ahead}},
	})
}

// The context of a caller ends at any point and its process lives on: the others do not wait for a lease that it left behind.
// TestInterleavings does not cover this: there a whole process dies, after which a lease has to run out, and every context is
// context.Background().
// Guarantees: caller-leaves.
func TestInterleavingsWhereACallerLeaves(t *testing.T) {
	playEach(t, []namedScene{
		{"from a missing counter", 100, scene{players: 2, each: 1, leaving: true}},
		{"in an open period", 10, scene{players: 2, each: 2, leaving: true, prepare: oneIssued}},
		{"with a ledger, at the end of a block", 50,
			scene{players: 2, each: 1, leaving: true, ledger: true, prepare: fullBlock}},
		{"with a ledger, from nothing", 100, scene{players: 2, each: 1, leaving: true, ledger: true}},
	})
}

// The counter is lost at any point: with a ledger everybody gets a number, without one a later number or ErrCounterLost.
// TestInterleavings does not cover this: there Redis keeps what it acknowledged.
// Guarantees: counter-lost.
func TestInterleavingsWithALoss(t *testing.T) {
	playEach(t, []namedScene{
		{"without a ledger", 100, scene{players: 2, each: 2, calm: true, loses: true}},
		{"with a ledger, from nothing", 100, scene{players: 2, each: 2, calm: true, loses: true, ledger: true}},
		{"with a ledger, at the end of a block",
			100, scene{players: 2, each: 2, calm: true, loses: true, ledger: true, prepare: fullBlock}},
		{"with two starts", 100, scene{players: 2, each: 2, calm: true, loses: true, starts: true}},
		{"with two starts and a ledger", 100,
			scene{players: 2, each: 2, calm: true, loses: true, starts: true, ledger: true}},
	})
}

// The counter is lost at any point while one generator has a ledger already and the other has none yet. The ledger cannot
// know what was issued without it. TestInterleavings does not cover this: there all generators of a scene are alike.
// Guarantees: ledger-turned-on.
func TestInterleavingsWhereALedgerIsTurnedOn(t *testing.T) {
	playEach(t, []namedScene{
		{"from nothing", 100, scene{players: 2, each: 2, calm: true, loses: true, ledger: true, mixed: true}},
		{"in mid-day", 100, scene{players: 2, each: 2, calm: true, loses: true, ledger: true, mixed: true,
			prepare: fullBlock}},
	})
}

// Two processes are asked for the same request, and then for one of their own, and one of them dies or stops at any
// point. TestInterleavings does not cover this: it calls Next only.
func TestInterleavingsOfOneRequest(t *testing.T) {
	playEach(t, []namedScene{
		{"without a ledger", 100, scene{players: 2, each: 2, once: true}},
		{"with a ledger", 100, scene{players: 2, each: 1, once: true, ledger: true}},
	})
}

// Three generators run in some of the possible orders.
func TestSomeInterleavings(t *testing.T) {
	random := seeded(t)
	plays := 30
	switch {
	case race.Enabled:
		plays = 15
	case long():
		plays = 150
	}
	for range plays {
		s := scene{players: 3, each: 2, midnight: true, ledger: random.IntN(2) == 0, varies: random.IntN(2) == 0}
		playSome(t, s, random, 12)
	}
}

// The server's clock is ahead for a while, and then the days that were entered meanwhile really come. TestInterleavings does not
// cover this: its clock is always right.
// Guarantees: day-between, day-entered-ahead, counter-expired.
func TestInterleavingsOfAClockThatWasAhead(t *testing.T) {
	playAll(t, scene{players: 2, each: 2, calm: true, wild: true}, 100)
}

// The same, with three generators in some of the possible orders.
func TestSomeInterleavingsOfAClockThatWasAhead(t *testing.T) {
	random := seeded(t)
	plays := 15
	switch {
	case race.Enabled:
		plays = 6
	case long():
		plays = 60
	}
	for range plays {
		playSome(t, scene{players: 4, each: 3, calm: true, wild: true}, random, 6)
		if t.Failed() {
			return
		}
	}
}

// playSome plays a scene in a random order. On average one move in rarely is something else than that a player
// proceeds.
func playSome(t *testing.T, s scene, random *rand.Rand, rarely int) {
	synctest.Test(t, func(t *testing.T) {
		p := s.start(t)
		defer p.close(t)
		for step := 0; ; step++ {
			p.settle(t)
			moves := p.moves()
			if len(moves) == 0 {
				break
			}
			require.Less(t, step, 10_000, "somebody is stuck")
			var mv move // mostly one proceeds, so that it happens late, too, that one doesn't
			others := slices.IndexFunc(moves, func(mv move) bool { return mv.what != proceeds })
			switch {
			case others < 0:
				mv = moves[random.IntN(len(moves))]
			case random.IntN(rarely) > 0:
				mv = moves[random.IntN(others)]
			default:
				mv = moves[others+random.IntN(len(moves)-others)]
			}
			p.carryOut(mv)
		}
		p.finish(t)
	})
}

// fullBlock issues two numbers, which with a ledger are a whole block.
func fullBlock(t *testing.T, m *simulation, opts []serial.Option) []string {
	issued, err := textsOf(newGenerator(t, m.client(), opts...).NextN(context.Background(), "IS", 2))
	require.NoError(t, err)
	return issued
}

// fewPlays is how many plays of a scene there are if not all are wanted.
const fewPlays = 50

// playAll plays a scene in every possible order and requires that these are at least as many as least. If
// SERIAL_TEST_LONG is not set, it plays some of the orders, others each time.
func playAll(t *testing.T, s scene, least float64) {
	if race.Enabled {
		t.Skip("one command at a time leaves nothing for the race detector, and it makes this take minutes")
	}
	began := time.Now()
	if !long() {
		_, plays, left := explore(t, s, fewPlays, seeded(t))
		t.Logf("%d plays in %v; at least %d more are left out without SERIAL_TEST_LONG=1", plays, time.Since(began), left)
		return
	}
	orders, plays, _ := explore(t, s, 0, nil)
	t.Logf("%.0f orders, by %d plays in %v", orders, plays, time.Since(began))
	require.GreaterOrEqual(t, orders, least)
}
