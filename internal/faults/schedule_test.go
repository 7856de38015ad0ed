//go:build unix

package faults

import (
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A step is one fault, with a mishap of a worker or the ledger during it.
type step struct {
	fault fault
	hold  time.Duration // from the fault until it heals
	seed  uint64        // of the fault's random choices

	mishap mishap // of a worker
	worker int
	delay  time.Duration // after the fault
	pause  time.Duration // of a stopped worker
	at     int           // boundary of a trap
}

// A mishap happens to a worker.
type mishap string

const (
	noMishap     mishap = ""
	killed       mishap = "worker SIGKILL"
	stopped      mishap = "worker SIGSTOP, SIGCONT"
	killOpening  mishap = "worker SIGKILL in the middle of opening"
	stopOpening  mishap = "worker SIGSTOP, SIGCONT in the middle of opening"
	killReserves mishap = "worker SIGKILL in the middle of a reservation"
	stopReserves mishap = "worker SIGSTOP, SIGCONT in the middle of a reservation"
)

// A deck deals steps without end: every fault once, in random order, before any is repeated.
type deck struct {
	random  *rand.Rand
	faults  []fault
	ledger  bool
	unhurry bool // a long run has the time for faults longer than the lock's expiry and every timeout
	cards   []int
}

func newDeck(seed uint64, name string, faults []fault, ledger, unhurry bool) *deck {
	h := fnv.New64a()
	_, _ = h.Write([]byte(name))
	return &deck{random: rand.New(rand.NewPCG(seed, h.Sum64())), faults: faults, ledger: ledger, unhurry: unhurry}
}

// deal draws equally many random numbers for every step, so each step depends only on the seed and its number.
func (d *deck) deal() step {
	if len(d.cards) == 0 {
		d.cards = d.random.Perm(len(d.faults))
	}
	s := step{fault: d.faults[d.cards[0]]}
	d.cards = d.cards[1:]
	s.hold = 100*time.Millisecond + time.Duration(d.random.Int64N(int64(1400*time.Millisecond)))
	long := d.random.IntN(8) == 0
	s.seed = d.random.Uint64()
	mishaps := []mishap{noMishap, noMishap, killed, stopped, killOpening, killOpening, stopOpening, stopOpening}
	if d.ledger {
		mishaps = append(mishaps, killReserves, killReserves, stopReserves, stopReserves)
	}
	s.mishap = mishaps[d.random.IntN(len(mishaps))]
	if s.fault.name == hurry {
		s.mishap = noMishap
	}
	s.worker = d.random.IntN(1 << 16)
	s.delay = time.Duration(d.random.Int64N(int64(s.hold)))
	s.pause = 100*time.Millisecond + time.Duration(d.random.Int64N(int64(2*time.Second)))
	s.at = d.random.IntN(10)
	if long && d.unhurry {
		s.hold *= 8
		s.pause *= 5
	}
	return s
}

func (s step) String() string {
	text := fmt.Sprintf("%s for %v", s.fault.name, s.hold.Round(time.Millisecond))
	if s.mishap != noMishap {
		text += fmt.Sprintf("; after %v %s", s.delay.Round(time.Millisecond), s.mishap)
	}
	return text
}

// seed returns the suite's seed: SERIAL_SEED, or a new one.
func seed(t *testing.T) uint64 {
	t.Helper()
	n := rand.Uint64N(1e6)
	if s := os.Getenv("SERIAL_SEED"); s != "" {
		var err error
		n, err = strconv.ParseUint(s, 10, 64)
		require.NoError(t, err, "SERIAL_SEED")
	}
	t.Logf("SERIAL_SEED=%d", n)
	return n
}

// soak returns the total time of the runs when started by hand, 0 if they are to be brief.
func soak(t *testing.T) time.Duration {
	t.Helper()
	s := os.Getenv("SERIAL_SOAK")
	if s == "" {
		return 0
	}
	d, err := time.ParseDuration(s)
	require.NoError(t, err, "SERIAL_SOAK")
	if deadline, ok := t.Deadline(); ok && time.Until(deadline) < d*3/2+2*time.Minute {
		t.Fatalf("SERIAL_SOAK=%v needs go test -timeout %v or more", d, d*2+5*time.Minute)
	}
	return d
}

func TestScheduleIsReplayable(t *testing.T) {
	dealt := func(seed uint64, name string) (all []string) {
		deck := newDeck(seed, name, faultsOf(pairTopology, protection{Ledger: true}), true, true)
		for range 100 {
			s := deck.deal()
			all = append(all, fmt.Sprintf("%v %d %d %v %d", s, s.seed, s.worker, s.pause, s.at))
		}
		return all
	}
	require.Equal(t, dealt(7, "pair"), dealt(7, "pair"))
	require.NotEqual(t, dealt(7, "pair"), dealt(8, "pair"))
	require.NotEqual(t, dealt(7, "pair"), dealt(7, "server"))
}
