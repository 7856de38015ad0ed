package interleave

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dailyserial/serial/internal/race"
	"github.com/dailyserial/serial/internal/redistest"
)

// A setting is what several processes do, and what may go wrong meanwhile. Each of them has a generator, whose commands
// run one at a time, in an order that the test chooses. Reservations and floor queries count as commands.
type setting struct {
	processes int
	each      int      // numbers that each process requests, one after the other
	fault     string   // what may go wrong once, at any point
	words     []string // the rest
}

// The faults.
const (
	crash       = "crash"        // a process crashes or is suspended, or it is suspended and then crashes
	cancel      = "cancel"       // the context of a call ends
	loseCounter = "lose counter" // Redis loses the counter
	loseAll     = "lose all"     // Redis loses everything
	deny        = "deny"         // the server refuses a command from then on
)

// The words of settings.
var words = []string{
	"midnight",   // may come at any point
	"ledger",     // every process has one
	"mixed",      // every process but the first one has a ledger
	"floor",      // every process has one
	"year",       // numbers count through the year and print the day
	"two starts", // the last process begins periods with lateStart, the others with 1

	// What happened before the processes start:
	"opened", // two numbers were issued, with a ledger a whole block
	"lost",   // after that, the counter was lost

	// What they do before they request numbers:
	"NextOnce", // they make the same requests
	"Prepare",  // each process prepares the next day
	"Raise",    // the last process raises the counter
	"Takeover", // the last process has another time zone, and takes the series over
}

const (
	block     = 2               // size of the ledger's blocks
	lateStart = 50              // beyond whatever is issued from 1 on
	margin    = 10              // what the floor adds after a loss
	expiry    = 8 * time.Second // of the lock
	patience  = 3 * time.Second // how long others may wait for the lock of a canceled call
	record    = "serial:{IS}"   // key of the record
)

// has reports whether the setting has one of the words.
func (s setting) has(words ...string) bool {
	return slices.ContainsFunc(words, func(word string) bool { return slices.Contains(s.words, word) })
}

// explore runs settings in every order. Without SERIAL_TEST_LONG, and with more than two processes, it runs only some
// of the orders: each run begins with an untried choice, picked at random. With -short, it runs only one. A setting is
// described by a text such as "2 ledger, opened", which has the count of numbers that each process requests, and the
// words.
func explore(t *testing.T, processes int, fault string, settings ...string) {
	if race.Enabled {
		t.Skip("one command at a time leaves nothing for the race detector, and it makes this take minutes")
	}
	for _, text := range settings {
		t.Run(fault+" "+text, func(t *testing.T) {
			t.Parallel()
			each, rest, _ := strings.Cut(text, " ")
			s := setting{processes, int(each[0] - '0'), fault, strings.Split(rest, ", ")}
			for _, word := range s.words {
				require.True(t, rest == "" || slices.Contains(words, word), text)
			}
			most := 5
			switch {
			case testing.Short():
				most = 1
			case redistest.Long() && processes > 2:
				most = 25
			case redistest.Long():
				most = 1e9
			}
			random, runs := redistest.Random(t), 0
			seen, todo := map[string]bool{}, [][]event{nil} // how runs begin
			for ; len(todo) > 0 && runs < most; runs++ {
				i := random.IntN(len(todo))
				begin := todo[i]
				todo = append(slices.Delete(todo, i, i+1), s.run(t, begin, seen)...)
			}
			t.Logf("%d runs; at least %d more with SERIAL_TEST_LONG=1", runs, len(todo))
			require.GreaterOrEqual(t, runs, min(most, 5))
		})
	}
}

// Two processes run in every order of their commands, and one crashes or is suspended at any point: no number is issued
// twice, and the other one waits for at most the lock's expiry.
// Guarantees: opener-killed.
func TestInterleavings(t *testing.T) {
	explore(t, 2, crash, "3", "1 midnight", "2 floor", "1 year, midnight",
		"2 ledger", "2 ledger, opened", "1 ledger, floor", "1 ledger, midnight",
		"1 two starts, midnight", "1 two starts, Prepare, opened, midnight", "2 two starts, ledger",
		"2 two starts, ledger, opened", "1 two starts, ledger, Prepare, opened, midnight",
		"1 Prepare, opened, midnight", "1 Prepare, ledger, opened, midnight",
		"1 Raise", "1 Raise, ledger", "1 Raise, ledger, opened", "2 Takeover", "2 Takeover, ledger",
		"2 Takeover, ledger, opened", "2 NextOnce", "1 NextOnce, ledger")
}

// The context of a call ends at any point, and its process lives on: the other one does not wait for a lock that the
// call left behind.
// Guarantees: caller-leaves.
func TestInterleavingsWhereACallerLeaves(t *testing.T) {
	explore(t, 2, cancel, "1", "1 floor", "2 opened", "1 ledger", "1 ledger, opened", "1 ledger, floor",
		"1 Prepare, ledger, opened", "1 Raise, ledger", "1 Takeover, ledger, opened", "1 NextOnce, ledger")
}

// The counter is lost at any point: with a ledger or a floor, every call gets a number; without them, a later number or
// ErrCounterLost. Or everything is lost, with a ledger.
// Guarantees: counter-lost, both-lost-forgotten.
func TestInterleavingsWithALoss(t *testing.T) {
	explore(t, 2, loseCounter, "2", "2 floor", "2 ledger", "2 ledger, opened", "2 two starts",
		"2 two starts, ledger", "2 Raise, ledger")
	explore(t, 2, loseAll, "2 ledger", "2 ledger, opened", "2 two starts, ledger")
}

// The counter is lost at any point while one process already has a ledger and the other does not have it yet. The
// ledger cannot know what was issued without it.
// Guarantees: ledger-turned-on.
func TestInterleavingsWhereALedgerIsTurnedOn(t *testing.T) {
	explore(t, 2, loseCounter, "2 ledger, mixed", "2 ledger, mixed, opened")
}

// The server refuses a command from any point of a call on: calls fail or succeed, nothing is issued by a call that
// fails, every key has an expiry, and calls succeed once the command is permitted.
// Guarantees: command-denied.
func TestInterleavingsWhereACommandIsDenied(t *testing.T) {
	explore(t, 1, deny, "2", "1 floor", "2 ledger", "1 ledger, opened", "1 opened, midnight",
		"1 ledger, opened, midnight", "1 floor, opened, lost", "1 ledger, opened, lost", "1 Raise, opened",
		"1 Raise, ledger", "1 Prepare, opened", "1 Prepare, ledger", "1 NextOnce, opened",
		"1 NextOnce, ledger, opened")
	explore(t, 2, deny, "1 NextOnce")
}

// More processes run in some of the possible orders.
func TestSomeInterleavings(t *testing.T) {
	explore(t, 3, crash, "2 midnight", "2 midnight, ledger", "2 midnight, year", "2 midnight, ledger, year")
}
