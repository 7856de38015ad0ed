package interleave

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dailyserial/serial/internal/race"
	"github.com/dailyserial/serial/internal/redistest"
)

// A setting is what several processes do, and what may go wrong meanwhile. Each of them has a generator, whose commands
// run one at a time, in an order that the test chooses. Reservations and floor queries count as commands.
type setting struct {
	name       string
	processes  int    // 0 for two
	each       int    // numbers that each process requests, one after the other
	fault      string // what may go wrong once, at any point
	midnight   bool   // midnight may come at any point
	before     string // what happened before the processes start
	begin      string // what they do before they request numbers
	ledger     bool
	floor      bool
	mixed      bool // the first process has no ledger, the others have one
	printsDay  bool // numbers count through the year and print the day
	lateStarts int  // so many of the last processes begin periods with lateStart, the others with 1
	shared     bool // each process has a type of its own, and the types share a counter
}

// The faults.
const (
	crash       = ""             // a process crashes or is suspended, or it is suspended and then crashes
	cancel      = "cancel"       // the context of a call ends
	loseCounter = "lose counter" // Redis loses the counter
	loseAll     = "lose all"     // Redis loses everything
	deny        = "deny"         // the server refuses a command
	fastClock   = "fast clock"   // the server's clock jumps ahead and comes back, and the last process is an operator
)

// Values of before and begin.
const (
	opened    = "opened"     // a number was issued
	fullBlock = "full block" // two numbers were issued, with a ledger a whole block
	prepared  = "prepared"   // the next day was prepared
	yesterday = "yesterday"  // a number was issued the day before
	lost      = "lost"       // the counter was lost after that
	once      = "once"       // all first repeat one request, and then make their own
	prepare   = "prepare"    // each process prepares the next day
	raise     = "raise"      // the last process raises the counter
	takeover  = "takeover"   // the last process has another time zone, and takes the series over
)

const (
	block     = 2  // size of the ledger's blocks
	lateStart = 50 // beyond whatever is issued from 1 on
)

// west is a zone in which it is the same day, with other bounds.
var west = time.FixedZone("west", -3600)

// explore runs each setting in every order. Unless SERIAL_TEST_LONG is set, it runs some of the orders, others each
// time.
func explore(t *testing.T, settings ...setting) {
	if race.Enabled {
		t.Skip("one command at a time leaves nothing for the race detector, and it makes this take minutes")
	}
	for _, s := range settings {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			most := 10
			if redistest.Long() {
				most = 1e9
			}
			began := time.Now()
			runs, untried := s.explore(t, most, redistest.Random(t))
			t.Logf("%d runs in %v; at least %d more with SERIAL_TEST_LONG=1", runs, time.Since(began), untried)
			require.GreaterOrEqual(t, runs, 10)
		})
	}
}

// Two processes run in every order of their commands, and one crashes or is suspended at any point: no number is issued
// twice, and the other one waits for at most the lock's expiry.
// Guarantees: opener-killed.
func TestInterleavings(t *testing.T) {
	explore(t,
		setting{name: "missing counter", each: 3},
		setting{name: "missing counter, midnight", each: 1, midnight: true},
		setting{name: "missing counter, floor", each: 2, floor: true},
		setting{name: "prepared, midnight", each: 1, midnight: true, before: prepared},
		setting{name: "year that prints the day, midnight", each: 1, midnight: true, printsDay: true},
		setting{name: "full block", each: 2, ledger: true, before: fullBlock},
		setting{name: "ledger", each: 2, ledger: true},
		setting{name: "ledger, floor", each: 1, ledger: true, floor: true},
		setting{name: "ledger, midnight", each: 1, ledger: true, midnight: true},
		setting{name: "two starts, midnight", each: 1, lateStarts: 1, midnight: true},
		setting{name: "two starts, prepared, midnight", each: 1, lateStarts: 1, midnight: true, before: prepared},
		setting{name: "two starts, ledger", each: 2, lateStarts: 1, ledger: true},
		setting{name: "two starts, full block", each: 2, lateStarts: 1, ledger: true, before: fullBlock},
		setting{name: "two starts, ledger, prepared, midnight", each: 1, lateStarts: 1, ledger: true, midnight: true,
			before: prepared},
		setting{name: "shared counter, midnight", each: 1, shared: true, midnight: true},
		setting{name: "shared counter, ledger", each: 2, shared: true, ledger: true},
		setting{name: "Prepare", each: 1, begin: prepare, lateStarts: 2, before: opened},
		setting{name: "Prepare, ledger", each: 1, begin: prepare, lateStarts: 2, ledger: true, before: opened},
		setting{name: "Raise", each: 1, begin: raise},
		setting{name: "Raise, ledger", each: 1, begin: raise, ledger: true},
		setting{name: "Raise, full block", each: 1, begin: raise, ledger: true, before: fullBlock},
		setting{name: "Takeover", each: 2, begin: takeover},
		setting{name: "Takeover, ledger", each: 2, begin: takeover, ledger: true},
		setting{name: "Takeover, full block", each: 2, begin: takeover, ledger: true, before: fullBlock},
		setting{name: "NextOnce", each: 2, begin: once},
		setting{name: "NextOnce, ledger", each: 1, begin: once, ledger: true},
	)
}

// The context of a call ends at any point, and its process lives on: the other one does not wait for a lock that the
// call left behind.
// Guarantees: caller-leaves.
func TestInterleavingsWhereACallerLeaves(t *testing.T) {
	explore(t,
		setting{name: "missing counter", each: 1, fault: cancel},
		setting{name: "missing counter, floor", each: 1, fault: cancel, floor: true},
		setting{name: "open period", each: 2, fault: cancel, before: opened},
		setting{name: "full block", each: 1, fault: cancel, ledger: true, before: fullBlock},
		setting{name: "ledger", each: 1, fault: cancel, ledger: true},
		setting{name: "ledger, floor", each: 1, fault: cancel, ledger: true, floor: true},
		setting{name: "Prepare, ledger", each: 1, fault: cancel, begin: prepare, lateStarts: 2, ledger: true,
			before: opened},
		setting{name: "Raise, ledger", each: 1, fault: cancel, begin: raise, ledger: true},
		setting{name: "Takeover, full block", each: 1, fault: cancel, begin: takeover, ledger: true, before: fullBlock},
		setting{name: "NextOnce, ledger", each: 1, fault: cancel, begin: once, ledger: true},
	)
}

// The counter is lost at any point: with a ledger or a floor, every call gets a number; without them, a later number or
// ErrCounterLost. Or everything is lost, with a ledger.
// Guarantees: counter-lost, both-lost-forgotten.
func TestInterleavingsWithALoss(t *testing.T) {
	explore(t,
		setting{name: "counter", each: 2, fault: loseCounter},
		setting{name: "counter, floor", each: 2, fault: loseCounter, floor: true},
		setting{name: "counter, ledger", each: 2, fault: loseCounter, ledger: true},
		setting{name: "counter, full block", each: 2, fault: loseCounter, ledger: true, before: fullBlock},
		setting{name: "counter, two starts", each: 2, fault: loseCounter, lateStarts: 1},
		setting{name: "counter, two starts, ledger", each: 2, fault: loseCounter, lateStarts: 1, ledger: true},
		setting{name: "counter, Raise, ledger", each: 2, fault: loseCounter, begin: raise, ledger: true},
		setting{name: "everything, ledger", each: 2, fault: loseAll, ledger: true},
		setting{name: "everything, full block", each: 2, fault: loseAll, ledger: true, before: fullBlock},
		setting{name: "everything, two starts, ledger", each: 2, fault: loseAll, lateStarts: 1, ledger: true},
	)
}

// The counter is lost at any point while one process already has a ledger and the other does not have it yet. The
// ledger cannot know what was issued without it.
// Guarantees: ledger-turned-on.
func TestInterleavingsWhereALedgerIsTurnedOn(t *testing.T) {
	explore(t,
		setting{name: "new", each: 2, fault: loseCounter, ledger: true, mixed: true},
		setting{name: "in use", each: 2, fault: loseCounter, ledger: true, mixed: true, before: fullBlock},
	)
}

// The server refuses one command, or that command from then on, at any point of a call: the call fails or succeeds,
// nothing is issued by a call that fails, every key has an expiry, and calls succeed once the command is permitted.
// Guarantees: command-denied.
func TestInterleavingsWhereACommandIsDenied(t *testing.T) {
	explore(t,
		setting{name: "new", processes: 1, each: 2, fault: deny},
		setting{name: "new, floor", processes: 1, each: 1, fault: deny, floor: true},
		setting{name: "new, ledger", processes: 1, each: 2, fault: deny, ledger: true},
		setting{name: "full block", processes: 1, each: 1, fault: deny, ledger: true, before: fullBlock},
		setting{name: "next day", processes: 1, each: 1, fault: deny, before: yesterday},
		setting{name: "next day, ledger", processes: 1, each: 1, fault: deny, ledger: true, before: yesterday},
		setting{name: "lost counter, floor", processes: 1, each: 1, fault: deny, floor: true, before: lost},
		setting{name: "lost counter, ledger", processes: 1, each: 1, fault: deny, ledger: true, before: lost},
		setting{name: "Raise", processes: 1, each: 1, fault: deny, begin: raise, before: opened},
		setting{name: "Raise, new, ledger", processes: 1, each: 1, fault: deny, begin: raise, ledger: true},
		setting{name: "Prepare", processes: 1, each: 1, fault: deny, begin: prepare, lateStarts: 1, before: opened},
		setting{name: "Prepare, new, ledger", processes: 1, each: 1, fault: deny, begin: prepare, lateStarts: 1,
			ledger: true},
		setting{name: "NextOnce", each: 1, fault: deny, begin: once},
		setting{name: "NextOnce, ledger", processes: 1, each: 1, fault: deny, begin: once, ledger: true, before: opened},
	)
}

// The server's clock is ahead for a while, and then the days really come that were entered meanwhile.
// Guarantees: day-between, day-entered-ahead, counter-expired.
func TestInterleavingsOfAClockThatWasAhead(t *testing.T) {
	explore(t,
		setting{name: "raised to what was used", each: 2, fault: fastClock},
		setting{name: "raised to 0, if there is a counter", each: 2, fault: fastClock, begin: raise},
	)
}

// More processes run in some of the possible orders.
func TestSomeInterleavings(t *testing.T) {
	random, runs := redistest.Random(t), 9
	if redistest.Long() && !race.Enabled {
		runs = 100
	}
	for range runs {
		setting{processes: 3, each: 2, midnight: true, ledger: random.IntN(2) == 0,
			printsDay: random.IntN(2) == 0}.runRandomly(t, random, 12)
		setting{processes: 4, each: 3, fault: fastClock}.runRandomly(t, random, 6)
		require.False(t, t.Failed())
	}
}
