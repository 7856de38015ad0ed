package serial_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dailyserial/serial"
)

// The context of a caller ends at any point and its process lives on: the others do not wait for a lease that it left behind.
// TestInterleavings does not cover this: there a whole process dies, after which a lease has to run out, and every context is
// context.Background().
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
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			playAll(t, c.scene, c.least)
		})
	}
}

// The counter is lost at any point: with a ledger everybody gets a number, without one a later number or ErrCounterLost.
// TestInterleavings does not cover this: there Redis keeps what it acknowledged.
func TestInterleavingsWithALoss(t *testing.T) {
	for _, c := range []struct {
		name  string
		scene scene
		least float64
	}{
		{"without a ledger", scene{players: 2, each: 2, calm: true, loses: true}, 100},
		{"with a ledger, from nothing", scene{players: 2, each: 2, calm: true, loses: true, ledger: true}, 100},
		{"with a ledger, at the end of a block",
			scene{players: 2, each: 2, calm: true, loses: true, ledger: true, prepare: fullBlock}, 100},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			playAll(t, c.scene, c.least)
		})
	}
}

// The counter is lost at any point while one generator has a ledger already and the other has none yet. The ledger cannot
// know what was issued without it. TestInterleavings does not cover this: there all generators of a scene are alike.
func TestInterleavingsWhereALedgerIsTurnedOn(t *testing.T) {
	for _, c := range []struct {
		name  string
		scene scene
		least float64
	}{
		{"from nothing", scene{players: 2, each: 2, calm: true, loses: true, ledger: true, mixed: true}, 100},
		{"in mid-day", scene{players: 2, each: 2, calm: true, loses: true, ledger: true, mixed: true, prepare: fullBlock}, 100},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			playAll(t, c.scene, c.least)
		})
	}
}

// Two processes are asked for the same request, and then for one of their own, and one of them dies or stops at any point.
// TestInterleavings does not cover this: it calls Next only.
func TestInterleavingsOfOneRequest(t *testing.T) {
	for _, c := range []struct {
		name  string
		scene scene
		least float64
	}{
		{"without a ledger", scene{players: 2, each: 2, once: true}, 100},
		{"with a ledger", scene{players: 2, each: 1, once: true, ledger: true}, 100},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			playAll(t, c.scene, c.least)
		})
	}
}

// wildClock is what a play knows of a server's clock that may be wrong.
type wildClock struct {
	ahead    time.Duration
	jumped   bool
	passed   bool // midnight came while it was ahead
	back     bool
	raising  bool // an operator
	raised   bool
	operator *serial.Generator
	top      map[string]int64  // the greatest sequence of each counter
	expired  map[string]string // counters that expired early by this clock
}

// jump is how far the clock jumps: over two days that nobody enters.
const jump = 3 * 24 * time.Hour

// saw records a counter's sequence from a script's answer.
func (c *wildClock) saw(key string, seq int64) { c.top[key] = max(c.top[key], seq) }

// permits reports whether a player may get err between the clock's return and an operator's Raise: the period entered is in the
// future, or, if nobody entered one meanwhile, today's counter has expired.
func (c *wildClock) permits(err error) bool {
	return errors.Is(err, serial.ErrClockSkew) || len(c.expired) > 0 && errors.Is(err, serial.ErrCounterLost)
}

// clockMoves returns the moves of the clock and the operator that are possible now. mu must be held.
func (p *play) clockMoves() (all []move) {
	c := &p.clock
	switch {
	case !c.jumped:
		return []move{{what: jumps}}
	case !c.back:
		all = []move{{what: comesBack}, {what: comesSoon}}
		if !c.passed {
			all = append(all, move{what: overMidnight})
		}
	case !c.raising:
		all = []move{{what: raises}}
		if p.m.Exists(p.counter()) {
			all = append(all, move{what: raisesTo0})
		}
	}
	return all
}

// carryOutClock runs before every move, with mu held: while the clock is ahead, it moves only here.
func (p *play) carryOutClock(mv move) {
	c := &p.clock
	switch mv.what {
	case jumps:
		c.jumped, c.ahead = true, jump
		c.expired = map[string]string{}
		if last, err := p.m.Get(p.counter()); err == nil {
			c.expired[p.counter()] = last
		}
	case overMidnight:
		c.passed = true
		c.ahead += 24 * time.Hour
	case comesBack, comesSoon:
		p.setBack(mv.what == comesSoon)
	case raises, raisesTo0:
		c.raising = true
		used := c.top[p.counter()]
		if mv.what == raisesTo0 {
			used = 0
		}
		operator := p.players - 1
		p.done[operator] = false
		go func() {
			err := c.operator.Raise(context.Background(), "IS", used)
			p.mu.Lock()
			defer p.mu.Unlock()
			if err != nil {
				p.failed = append(p.failed, err)
			}
			c.raised, p.done[operator] = true, true
		}()
	}
	if c.ahead != 0 {
		p.m.SetTime(time.Now().Add(c.ahead))
	}
}

// setBack makes the clock right again. miniredis stores how long a key lives, a server when it expires.
func (p *play) setBack(soon bool) {
	c := &p.clock
	lives := map[string]time.Duration{}
	for _, key := range p.m.Keys() {
		lives[key] = p.m.TTL(key) + c.ahead
	}
	c.back, c.ahead = true, 0
	p.m.SetTime(time.Time{})
	p.m.ClockTTL(true) // from now on
	for key, left := range lives {
		p.m.SetTTL(key, left)
	}
	for key, last := range c.expired {
		if soon && !p.m.Exists(key) {
			_ = p.m.Set(key, last)
			p.m.SetTTL(key, time.Until(time.Now().Truncate(24*time.Hour).Add(24*time.Hour)))
		}
	}
}

// finishDays lets the days pass that the clock was ahead by, and one more. Everybody gets a number on each, after an operator's
// Raise where it is not known what was used.
func (p *play) finishDays(t *testing.T) {
	ctx := context.Background()
	gen := newGenerator(t, p.m.client(), p.options(nil)...)
	seen := map[string]bool{}
	for _, number := range p.issued {
		require.False(t, seen[number], "%s twice: %v", number, p.issued)
		seen[number] = true
	}
	entered := map[string]bool{} // by a clock that was ahead
	today := p.counter()
	for key := range p.clock.top {
		entered[key] = key > today
	}
	for day := range 6 {
		if day > 0 {
			time.Sleep(time.Until(time.Now().Truncate(24 * time.Hour).Add(24*time.Hour + time.Second)))
		}
		key := p.counter()
		there := p.m.Exists(key)
		for range 2 {
			number, err := gen.Next(ctx, "IS")
			switch {
			case errors.Is(err, serial.ErrClockSkew) && !p.clock.raised:
				p.clock.raised = true
				require.NoError(t, gen.Raise(ctx, "IS", p.clock.top[key]))
				number, err = gen.Next(ctx, "IS")
			case errors.Is(err, serial.ErrCounterLost) && !there && (entered[key] || day == 0 && !p.clock.raised):
				require.NoError(t, gen.Raise(ctx, "IS", p.clock.top[key]))
				there = true
				number, err = gen.Next(ctx, "IS")
			}
			require.NoError(t, err, "on %s", key)
			require.False(t, seen[number], "%s was issued again", number)
			seen[number] = true
			n, err := gen.Parse(number)
			require.NoError(t, err)
			if p.clock.top[key] == 0 {
				require.EqualValues(t, 1, n.Seq, "nobody had entered %s", key)
			}
			p.clock.saw(key, n.Seq)
		}
	}
}

// The server's clock is ahead for a while, and then the days that were entered meanwhile really come. TestInterleavings does not
// cover this: its clock is always right.
func TestInterleavingsOfAClockThatWasAhead(t *testing.T) {
	playAll(t, scene{players: 2, each: 2, calm: true, wild: true}, 100)
}

// The same, with three generators in some of the possible orders.
func TestSomeInterleavingsOfAClockThatWasAhead(t *testing.T) {
	random := seeded(t)
	plays := 15
	switch {
	case raceDetector:
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
