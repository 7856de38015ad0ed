package interleave

import (
	"slices"
	"strconv"
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
	each      int             // numbers that each process requests, one after the other
	fault     string          // what may go wrong once, at any point
	has       map[string]bool // the words that describe the rest
}

// The faults.
const (
	crash       = "crash"        // a process crashes or is suspended, or it is suspended and then crashes
	cancel      = "cancel"       // the context of a call ends
	loseCounter = "lose counter" // Redis loses the counter
	loseAll     = "lose all"     // Redis loses everything
	deny        = "deny"         // the server refuses a command
)

// The words of settings.
var words = []string{
	"midnight",   // may come at any point
	"ledger",     // every process has one
	"mixed",      // except for the first process
	"floor",      // every process has one
	"year",       // numbers count through the year and print the day
	"two starts", // the last process begins periods with lateStart, the others with 1
	"shared",     // each process has a type of its own, and the types share a counter

	// What happened before the processes start:
	"opened",     // a number was issued
	"full block", // two numbers were issued, with a ledger a whole block
	"prepared",   // the next day was prepared
	"yesterday",  // a number was issued the day before
	"lost",       // a number was issued, and then the counter was lost

	// What they do before they request numbers:
	"NextOnce", // all first repeat one request, and then make their own
	"Prepare",  // each process prepares the next day, which begins with lateStart
	"Raise",    // the last process raises the counter
	"Takeover", // the last process has another time zone, and takes the series over
}

const (
	block     = 2  // size of the ledger's blocks
	lateStart = 50 // beyond whatever is issued from 1 on
)

// west is a zone in which it is the same day, with other bounds.
var west = time.FixedZone("west", -3600)

// newSetting returns the setting of a text such as "2 ledger, full block": how many numbers each process requests, and
// the words.
func newSetting(t *testing.T, processes int, fault, text string) setting {
	each, rest, _ := strings.Cut(text, " ")
	n, err := strconv.Atoi(each)
	require.NoError(t, err)
	s := setting{processes: processes, each: n, fault: fault, has: map[string]bool{}}
	for word := range strings.SplitSeq(rest, ", ") {
		require.True(t, rest == "" || slices.Contains(words, word), text)
		s.has[word] = true
	}
	return s
}

// explore runs settings in every order. Unless SERIAL_TEST_LONG is set, it runs some of the orders, others each time.
func explore(t *testing.T, processes int, fault string, settings ...string) {
	if race.Enabled {
		t.Skip("one command at a time leaves nothing for the race detector, and it makes this take minutes")
	}
	for _, text := range settings {
		t.Run(fault+" "+text, func(t *testing.T) {
			t.Parallel()
			most := 5
			switch {
			case redistest.Long() && processes > 2:
				most = 25
			case redistest.Long():
				most = 1e9
			case testing.Short():
				most = 1
			}
			runs, untried := newSetting(t, processes, fault, text).explore(t, most, redistest.Random(t))
			t.Logf("%d runs; at least %d more with SERIAL_TEST_LONG=1", runs, untried)
			require.GreaterOrEqual(t, runs, min(most, 5))
		})
	}
}

// Two processes run in every order of their commands, and one crashes or is suspended at any point: no number is issued
// twice, and the other one waits for at most the lock's expiry.
// Guarantees: opener-killed.
func TestInterleavings(t *testing.T) {
	explore(t, 2, crash, "3", "1 midnight", "2 floor", "1 prepared, midnight", "1 year, midnight",
		"2 ledger", "2 ledger, full block", "1 ledger, floor", "1 ledger, midnight",
		"1 two starts, midnight", "1 two starts, prepared, midnight", "2 two starts, ledger",
		"2 two starts, ledger, full block", "1 two starts, ledger, prepared, midnight",
		"1 shared, midnight", "2 shared, ledger", "1 Prepare, opened", "1 Prepare, ledger, opened",
		"1 Raise", "1 Raise, ledger", "1 Raise, ledger, full block", "2 Takeover", "2 Takeover, ledger",
		"2 Takeover, ledger, full block", "2 NextOnce", "1 NextOnce, ledger")
}

// The context of a call ends at any point, and its process lives on: the other one does not wait for a lock that the
// call left behind.
// Guarantees: caller-leaves.
func TestInterleavingsWhereACallerLeaves(t *testing.T) {
	explore(t, 2, cancel, "1", "1 floor", "2 opened", "1 ledger", "1 ledger, full block", "1 ledger, floor",
		"1 Prepare, ledger, opened", "1 Raise, ledger", "1 Takeover, ledger, full block", "1 NextOnce, ledger")
}

// The counter is lost at any point: with a ledger or a floor, every call gets a number; without them, a later number or
// ErrCounterLost. Or everything is lost, with a ledger.
// Guarantees: counter-lost, both-lost-forgotten.
func TestInterleavingsWithALoss(t *testing.T) {
	explore(t, 2, loseCounter, "2", "2 floor", "2 ledger", "2 ledger, full block", "2 two starts",
		"2 two starts, ledger", "2 Raise, ledger")
	explore(t, 2, loseAll, "2 ledger", "2 ledger, full block", "2 two starts, ledger")
}

// The counter is lost at any point while one process already has a ledger and the other does not have it yet. The
// ledger cannot know what was issued without it.
// Guarantees: ledger-turned-on.
func TestInterleavingsWhereALedgerIsTurnedOn(t *testing.T) {
	explore(t, 2, loseCounter, "2 ledger, mixed", "2 ledger, mixed, full block")
}

// The server refuses one command, or that command from then on, at any point of a call: the call fails or succeeds,
// nothing is issued by a call that fails, every key has an expiry, and calls succeed once the command is permitted.
// Guarantees: command-denied.
func TestInterleavingsWhereACommandIsDenied(t *testing.T) {
	explore(t, 1, deny, "2", "1 floor", "2 ledger", "1 ledger, full block", "1 yesterday", "1 ledger, yesterday",
		"1 floor, lost", "1 ledger, lost", "1 Raise, opened", "1 Raise, ledger", "1 Prepare, opened",
		"1 Prepare, ledger", "1 NextOnce, ledger, opened")
	explore(t, 2, deny, "1 NextOnce")
}

// More processes run in some of the possible orders.
func TestSomeInterleavings(t *testing.T) {
	explore(t, 3, crash, "2 midnight", "2 midnight, ledger", "2 midnight, year", "2 midnight, ledger, year")
}
