package serial_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dailyserial/serial"
)

// fullBlock issues two numbers: with a ledger, a whole block.
func fullBlock(t *testing.T, m *simulation, opts []serial.Option) []string {
	issued, err := newGenerator(t, m.client(), opts...).NextN(context.Background(), "IS", 2)
	require.NoError(t, err)
	return issued
}

func playAll(t *testing.T, s scene, least float64) {
	if raceDetector {
		t.Skip("one command at a time leaves nothing for the race detector, and it makes this take minutes")
	}
	began := time.Now()
	orders, plays := explore(t, s)
	t.Logf("%.0f orders, by %d plays in %v", orders, plays, time.Since(began))
	require.GreaterOrEqual(t, orders, least)
}

// The context of a caller ends at any point, and its process lives on: the others do not wait for a lease that it has left
// behind. TestInterleavings had missed this: whoever went away there took its process along, after which a lease has to run
// out, and every context was context.Background().
func TestInterleavingsWhereACallerLeaves(t *testing.T) {
	for _, c := range []struct {
		name  string
		scene scene
		least float64
	}{
		{"from a missing counter", scene{players: 2, each: 1, leaving: true}, 100},
		{"with a ledger, at the end of a block", scene{players: 2, each: 1, leaving: true, ledger: true, prepare: fullBlock}, 50},
		{"with a ledger, from nothing", scene{players: 2, each: 1, leaving: true, ledger: true}, 100},
	} {
		t.Run(c.name, func(t *testing.T) { playAll(t, c.scene, c.least) })
	}
}

// The counter is lost at any point: with a ledger everybody gets a number, without one a later number or ErrCounterLost.
// TestInterleavings had missed this: there Redis keeps what it acknowledged.
func TestInterleavingsWithALoss(t *testing.T) {
	for _, c := range []struct {
		name  string
		scene scene
		least float64
	}{
		{"without a ledger", scene{players: 2, each: 2, calm: true, loses: true}, 100},
		{"with a ledger, from nothing", scene{players: 2, each: 2, calm: true, loses: true, ledger: true}, 100},
		{"with a ledger, at the end of a block", scene{players: 2, each: 2, calm: true, loses: true, ledger: true, prepare: fullBlock}, 100},
	} {
		t.Run(c.name, func(t *testing.T) { playAll(t, c.scene, c.least) })
	}
}

// The counter is lost at any point while one generator has a ledger already and the other has none yet. The ledger cannot
// know what was issued without it. TestInterleavings had missed this: all generators of a scene were alike.
func TestInterleavingsWhereALedgerIsTurnedOn(t *testing.T) {
	for _, c := range []struct {
		name  string
		scene scene
		least float64
	}{
		{"from nothing", scene{players: 2, each: 2, calm: true, loses: true, ledger: true, mixed: true}, 100},
		{"in mid-day", scene{players: 2, each: 2, calm: true, loses: true, ledger: true, mixed: true, prepare: fullBlock}, 100},
	} {
		t.Run(c.name, func(t *testing.T) { playAll(t, c.scene, c.least) })
	}
}

// Two processes are asked for the same request, and then for one of their own, and one of them dies or stops at any point.
// TestInterleavings had missed this: it called Next only.
func TestInterleavingsOfOneRequest(t *testing.T) {
	for _, c := range []struct {
		name  string
		scene scene
		least float64
	}{
		{"without a ledger", scene{players: 2, each: 2, once: true}, 100},
		{"with a ledger", scene{players: 2, each: 1, once: true, ledger: true}, 100},
	} {
		t.Run(c.name, func(t *testing.T) { playAll(t, c.scene, c.least) })
	}
}
