package interleave

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dailyserial/serial"
	"github.com/dailyserial/serial/internal/race"
	"github.com/dailyserial/serial/internal/redistest"
	"github.com/dailyserial/serial/internal/redistest/memory"
)

// Two processes run in every order of their commands, and one dies or stops at any point: no number is issued twice,
// and nobody waits for ever.
// Guarantees: opener-killed.
func TestInterleavings(t *testing.T) {
	ahead := func(t *testing.T, m *memory.Redis, opts []serial.Option) []string {
		require.NoError(t, newGenerator(t, m.Client(), opts...).Prepare(context.Background(), "IS"))
		return nil
	}
	runEach(t, []namedSetting{
		{"from a missing counter", 1000, setting{processes: 2, each: 3}},
		{"from a missing counter, across midnight", 1e4, setting{processes: 2, each: 1, midnight: true}},
		{"prepared, across midnight", 50, setting{processes: 2, each: 1, midnight: true, prepare: ahead}},
		{"of a year that prints the day, across midnight", 1000,
			setting{processes: 2, each: 1, midnight: true, printsDay: true}},
		{"with a ledger, at the end of a block", 100, setting{processes: 2, each: 2, ledger: true, prepare: fullBlock}},
		{"with a ledger, from nothing", 1000, setting{processes: 2, each: 2, ledger: true}},
		{"with a ledger, across midnight", 1000, setting{processes: 2, each: 1, ledger: true, midnight: true}},
		{"with two starts, from a missing counter, across midnight", 1000,
			setting{processes: 2, each: 1, twoStarts: true, midnight: true}},
		{"with two starts, prepared, across midnight", 50,
			setting{processes: 2, each: 1, twoStarts: true, midnight: true, prepare: ahead}},
		{"with two starts and a ledger, from nothing", 1000, setting{processes: 2, each: 2, twoStarts: true, ledger: true}},
		{"with two starts and a ledger, at the end of a block", 100,
			setting{processes: 2, each: 2, twoStarts: true, ledger: true, prepare: fullBlock}},
		{"with two starts and a ledger, prepared, across midnight", 100,
			setting{processes: 2, each: 1, twoStarts: true, ledger: true, midnight: true, prepare: ahead}},
		{"of two types that share a counter, across midnight", 1000,
			setting{processes: 2, each: 1, shared: true, midnight: true}},
		{"of two types that share a counter, with a ledger", 1000,
			setting{processes: 2, each: 2, shared: true, ledger: true}},
	})
}

// The context of a caller ends at any point and its process lives on: the others do not wait for a lease that it left
// behind. TestInterleavings does not cover this: there a whole process dies, after which a lease has to run out, and
// every context is context.Background().
// Guarantees: caller-leaves.
func TestInterleavingsWhereACallerLeaves(t *testing.T) {
	runEach(t, []namedSetting{
		{"from a missing counter", 100, setting{processes: 2, each: 1, leaving: true}},
		{"in an open period", 10, setting{processes: 2, each: 2, leaving: true, prepare: oneIssued}},
		{"with a ledger, at the end of a block", 50,
			setting{processes: 2, each: 1, leaving: true, ledger: true, prepare: fullBlock}},
		{"with a ledger, from nothing", 100, setting{processes: 2, each: 1, leaving: true, ledger: true}},
	})
}

// The counter is lost at any point: with a ledger everybody gets a number, without one a later number or
// ErrCounterLost. Or everything is lost, with a ledger. TestInterleavings does not cover this: there Redis keeps what it
// acknowledged.
// Guarantees: counter-lost, both-lost-forgotten.
func TestInterleavingsWithALoss(t *testing.T) {
	runEach(t, []namedSetting{
		{"without a ledger", 100, setting{processes: 2, each: 2, undisturbed: true, losing: true}},
		{"with a ledger, from nothing", 100, setting{processes: 2, each: 2, undisturbed: true, losing: true, ledger: true}},
		{"with a ledger, at the end of a block",
			100, setting{processes: 2, each: 2, undisturbed: true, losing: true, ledger: true, prepare: fullBlock}},
		{"with two starts", 100, setting{processes: 2, each: 2, undisturbed: true, losing: true, twoStarts: true}},
		{"with two starts and a ledger", 100,
			setting{processes: 2, each: 2, undisturbed: true, losing: true, twoStarts: true, ledger: true}},
		{"of everything, with a ledger, from nothing", 100,
			setting{processes: 2, each: 2, undisturbed: true, losingAll: true, ledger: true}},
		{"of everything, with a ledger, at the end of a block", 100,
			setting{processes: 2, each: 2, undisturbed: true, losingAll: true, ledger: true, prepare: fullBlock}},
		{"of everything, with two starts and a ledger", 100,
			setting{processes: 2, each: 2, undisturbed: true, losingAll: true, twoStarts: true, ledger: true}},
	})
}

// The counter is lost at any point while one process has a ledger already and the other has none yet. The ledger cannot
// know what was issued without it. TestInterleavings does not cover this: there all processes have the same protection.
// Guarantees: ledger-turned-on.
func TestInterleavingsWhereALedgerIsTurnedOn(t *testing.T) {
	runEach(t, []namedSetting{
		{"from nothing", 100, setting{processes: 2, each: 2, undisturbed: true, losing: true, ledger: true, mixed: true}},
		{"in mid-day", 100, setting{processes: 2, each: 2, undisturbed: true, losing: true, ledger: true, mixed: true,
			prepare: fullBlock}},
	})
}

// Two processes prepare the next day, and one of them dies, stops or is left by its caller at any point: that day begins
// at its start. TestInterleavings does not cover this: there the next day is
// prepared before, or never.
func TestInterleavingsOfPrepare(t *testing.T) {
	runEach(t, []namedSetting{
		{"without a ledger", 100, setting{processes: 2, each: 1, prepares: true, lateStart: true, prepare: oneIssued}},
		{"with a ledger", 100,
			setting{processes: 2, each: 1, prepares: true, lateStart: true, ledger: true, prepare: oneIssued}},
		{"with a ledger, where a caller leaves", 50, setting{
			processes: 2, each: 1, prepares: true, lateStart: true, ledger: true, prepare: oneIssued, leaving: true}},
	})
}

// One of two processes raises the counter, and one of them dies, stops or is left by its caller at any point. What is
// issued after the Raise is greater.
func TestInterleavingsOfRaise(t *testing.T) {
	runEach(t, []namedSetting{
		{"from a missing counter", 100, setting{processes: 2, each: 1, raises: true}},
		{"with a ledger, from nothing", 100, setting{processes: 2, each: 1, raises: true, ledger: true}},
		{"with a ledger, at the end of a block", 50,
			setting{processes: 2, each: 1, raises: true, ledger: true, prepare: fullBlock}},
		{"with a ledger, from nothing, where a caller leaves", 50,
			setting{processes: 2, each: 1, raises: true, ledger: true, leaving: true}},
		{"with a ledger and a loss", 50,
			setting{processes: 2, each: 2, raises: true, ledger: true, undisturbed: true, losing: true}},
	})
}

// One of two processes takes over from the time zone of the other, and one of them dies, stops or is left by its caller
// at any point.
func TestInterleavingsOfTakeover(t *testing.T) {
	runEach(t, []namedSetting{
		{"from a missing counter", 50, setting{processes: 2, each: 2, takesOver: true}},
		{"with a ledger, from nothing", 50, setting{processes: 2, each: 2, takesOver: true, ledger: true}},
		{"with a ledger, at the end of a block", 50,
			setting{processes: 2, each: 2, takesOver: true, ledger: true, prepare: fullBlock}},
		{"with a ledger, at the end of a block, where a caller leaves", 50,
			setting{processes: 2, each: 1, takesOver: true, ledger: true, leaving: true, prepare: fullBlock}},
	})
}

// Two processes are asked for the same request, and then for one of their own, and one of them dies or stops at any
// point. TestInterleavings does not cover this: it calls Next only.
func TestInterleavingsOfOneRequest(t *testing.T) {
	runEach(t, []namedSetting{
		{"without a ledger", 100, setting{processes: 2, each: 2, sameRequest: true}},
		{"with a ledger", 100, setting{processes: 2, each: 1, sameRequest: true, ledger: true}},
	})
}

// Three processes run in some of the possible orders.
func TestSomeInterleavings(t *testing.T) {
	random := redistest.Random(t)
	runs := 12
	if redistest.Long() && !race.Enabled {
		runs = 150
	}
	for range runs {
		s := setting{processes: 3, each: 2, midnight: true, ledger: random.IntN(2) == 0, printsDay: random.IntN(2) == 0}
		s.runRandomly(t, random, 12)
	}
}

// The server's clock is ahead for a while, and then the days that were entered meanwhile really come. TestInterleavings
// does not cover this: its clock is always right.
// Guarantees: day-between, day-entered-ahead, counter-expired.
func TestInterleavingsOfAClockThatWasAhead(t *testing.T) {
	setting{processes: 2, each: 2, undisturbed: true, fastClock: true}.runAll(t, 100)
}

// The same, with three processes in some of the possible orders.
func TestSomeInterleavingsOfAClockThatWasAhead(t *testing.T) {
	random := redistest.Random(t)
	runs := 6
	if redistest.Long() && !race.Enabled {
		runs = 60
	}
	for range runs {
		setting{processes: 4, each: 3, undisturbed: true, fastClock: true}.runRandomly(t, random, 6)
		if t.Failed() {
			return
		}
	}
}

// fullBlock issues two numbers, which with a ledger are a whole block.
func fullBlock(t *testing.T, m *memory.Redis, opts []serial.Option) []string {
	numbers, err := newGenerator(t, m.Client(), opts...).NextN(context.Background(), "IS", 2)
	require.NoError(t, err)
	return texts(numbers)
}

// oneIssued opens the period.
func oneIssued(t *testing.T, m *memory.Redis, opts []serial.Option) []string {
	number, err := newGenerator(t, m.Client(), opts...).Next(context.Background(), "IS")
	require.NoError(t, err)
	return []string{number}
}
