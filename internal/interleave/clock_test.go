package interleave

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dailyserial/serial"
)

// A serverClock is the server's clock, which may be ahead for a while, and what an operator does about that.
type serverClock struct {
	ahead    time.Duration
	jumped   bool
	used     bool // today was entered when it jumped
	passed   bool // midnight came while it was ahead
	back     bool
	raising  bool // the operator has begun to raise
	raised   bool
	operator *serial.Generator
	top      map[string]int64  // the greatest sequence of each counter
	expired  map[string]string // values of the counters that expired early by this clock
}

const (
	jumps        = "the clock jumps ahead"
	overMidnight = "the clock that is ahead passes midnight"
	comesBack    = "the clock comes back"
	comesSoon    = "the clock comes back at once" // before Redis has dropped what expired by it
	raises       = "an operator raises"
	raisesTo0    = "an operator raises to 0"
)

// jump is how far the clock jumps: over two days that nobody enters.
const jump = 3 * 24 * time.Hour

// observe notes a sequence from a script's reply.
func (c *serverClock) observe(key string, seq int64) { c.top[key] = max(c.top[key], seq) }

// mayCause reports whether a process may get err between the clock's return and the operator's Raise: the period
// entered is in the future, or, if nobody entered one meanwhile, today's counter has expired.
func (c *serverClock) mayCause(err error) bool {
	return errors.Is(err, serial.ErrClockSkew) || len(c.expired) > 0 && errors.Is(err, serial.ErrCounterLost)
}

// clockEvents returns the events of the clock and the operator that are possible now. The caller holds mu.
func (r *run) clockEvents() (all []event) {
	c := &r.clock
	switch {
	case !c.jumped:
		return []event{{what: jumps}}
	case !c.back:
		all = []event{{what: comesBack}, {what: comesSoon}}
		if !c.passed {
			all = append(all, event{what: overMidnight})
		}
	case !c.raising:
		all = []event{{what: raises}}
		if r.redis.Exists(r.counter()) {
			all = append(all, event{what: raisesTo0})
		}
	}
	return all
}

// applyClock lets an event of the clock or the operator happen, and reports whether it is one. While the clock is
// ahead, it moves at events only. The caller holds mu.
func (r *run) applyClock(what string) (applied bool) {
	c := &r.clock
	switch what {
	case jumps:
		c.jumped, c.ahead, c.used = true, jump, r.redis.Exists(r.record())
		c.expired = map[string]string{}
		if last, err := r.redis.Get(r.counter()); err == nil {
			c.expired[r.counter()] = last
		}
	case overMidnight:
		c.passed = true
		c.ahead += 24 * time.Hour
	case comesBack, comesSoon:
		r.setBack(what == comesSoon)
	case raises, raisesTo0:
		r.raise(what == raises)
	}
	if c.ahead != 0 {
		r.redis.SetTime(time.Now().Add(c.ahead))
	}
	switch what {
	case jumps, overMidnight, comesBack, comesSoon, raises, raisesTo0:
		return true
	}
	return false
}

// raise has the operator raise the counter, to what is used or to 0.
func (r *run) raise(toUsed bool) {
	c, used, operator := &r.clock, int64(0), r.processes[len(r.processes)-1]
	if toUsed {
		used = c.top[r.counter()]
	}
	c.raising, operator.done = true, false
	go func() {
		err := c.operator.Raise(context.Background(), "IS", used)
		r.mu.Lock()
		defer r.mu.Unlock()
		if err != nil {
			r.failed = append(r.failed, err)
		}
		c.raised, operator.done = true, true
	}()
}

// setBack makes the clock right again. miniredis stores how long a key lives, a server when it expires.
func (r *run) setBack(soon bool) {
	c, lives := &r.clock, map[string]time.Duration{}
	for _, key := range r.redis.Keys() {
		lives[key] = r.redis.TTL(key) + c.ahead
	}
	c.back, c.ahead = true, 0
	r.redis.SetTime(time.Time{})
	r.redis.ClockTTL(true) // from now on
	for key, left := range lives {
		r.redis.SetTTL(key, left)
	}
	for key, last := range c.expired {
		if soon && !r.redis.Exists(key) {
			_ = r.redis.Set(key, last)
			r.redis.SetTTL(key, time.Until(time.Now().Truncate(24*time.Hour).Add(24*time.Hour)))
		}
	}
}

// requireDays lets the days pass that the clock was ahead by, and one more, and requires that everybody gets numbers on
// each, after an operator's Raise if it is not known what was used.
func (r *run) requireDays(t *testing.T) {
	ctx := context.Background()
	gen := newGenerator(t, r.redis.Client(), r.options(nil)...)
	seen := map[string]bool{}
	for _, number := range r.issued {
		require.False(t, seen[number], "%s twice: %v", number, r.issued)
		seen[number] = true
	}
	today, last := r.counter(), ""
	for key := range r.clock.top {
		last = max(last, key)
	}
	// The clock that was ahead entered some of the days up to the last one. If the record had no day before that, all
	// of them count as perhaps used.
	doubtful := func(key string) bool {
		return key > today && key <= last && (r.clock.top[key] > 0 || !r.clock.used)
	}
	for day := range 6 {
		if day > 0 {
			sleepToMidnight()
		}
		key := r.counter()
		exists := r.redis.Exists(key)
		for range 2 {
			n, err := gen.NextNumber(ctx, "IS")
			skewed := errors.Is(err, serial.ErrClockSkew) && !r.clock.raised
			if skewed || errors.Is(err, serial.ErrCounterLost) && !exists && (doubtful(key) || day == 0 && !r.clock.raised) {
				r.clock.raised = r.clock.raised || skewed
				exists = exists || !skewed
				require.NoError(t, gen.Raise(ctx, "IS", r.clock.top[key]))
				n, err = gen.NextNumber(ctx, "IS")
			}
			require.NoError(t, err, "on %s", key)
			require.False(t, seen[n.String()], "%s was issued again", n)
			seen[n.String()] = true
			if r.clock.top[key] == 0 {
				require.EqualValues(t, 1, n.Seq, "nobody had entered %s", key)
			}
			r.clock.observe(key, n.Seq)
		}
	}
}
