package interleave

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dailyserial/serial"
)

// A serverClock is the server's clock, which may be ahead for a while.
type serverClock struct {
	ahead        time.Duration
	jumped, back bool
	passed       bool              // midnight came while it was ahead
	used         bool              // today was entered when it jumped
	raised       bool              // the operator has raised the counter
	top          map[string]int64  // the greatest sequence of each counter
	expired      map[string]string // values of the counters that expired early by this clock
}

const (
	jumps          = "the clock jumps ahead"
	passesMidnight = "the clock that is ahead passes midnight"
	comesBack      = "the clock comes back"
	comesBackSoon  = "the clock comes back before Redis has dropped what expired by it"
)

// operator is the name of a command that stands for an operator's decision to raise the counter. It proceeds when the
// clock is right again.
const operator = "operator"

// String leaves out what the keys show.
func (c serverClock) String() string { return fmt.Sprint(c.ahead, c.jumped, c.back, c.used, c.raised) }

// next returns the events of the clock that are possible now.
func (c *serverClock) next() []event {
	switch {
	case !c.jumped:
		return []event{{what: jumps}}
	case c.back:
		return nil
	case c.passed:
		return []event{{what: comesBack}, {what: comesBackSoon}}
	}
	return []event{{what: comesBack}, {what: comesBackSoon}, {what: passesMidnight}}
}

// setClock lets an event of the clock happen. The caller holds mu.
func (r *run) setClock(what string) {
	c := &r.clock
	switch what {
	case jumps: // over two days that are not entered
		c.jumped, c.ahead, c.used, c.expired = true, 3*24*time.Hour, r.redis.Exists(r.record()), map[string]string{}
		if last, err := r.redis.Get(r.counter()); err == nil {
			c.expired[r.counter()] = last
		}
	case passesMidnight:
		c.passed = true
		c.ahead += 24 * time.Hour
	default:
		r.observeCounters()
		r.redis.SetClock(time.Time{})
		c.back, c.ahead = true, 0
		for key, last := range c.expired {
			if what == comesBackSoon && !r.redis.Exists(key) {
				_ = r.redis.Set(key, last)
				r.redis.SetTTL(key, time.Until(time.Now().Truncate(24*time.Hour).Add(24*time.Hour)))
			}
		}
	}
}

// observeCounters notes the greatest sequence of each counter.
func (r *run) observeCounters() {
	for _, key := range r.redis.Keys() {
		if !strings.HasPrefix(key, r.record()+":2") || strings.HasSuffix(key, ":lock") {
			continue
		}
		if content, err := r.redis.Get(key); err == nil {
			seq, _ := strconv.ParseInt(content, 10, 64)
			r.clock.top[key] = max(r.clock.top[key], seq)
		}
	}
}

// mayCause reports whether a call may fail with err between the clock's return and the operator's Raise: the period
// entered is in the future or, if none was entered meanwhile, today's counter has expired.
func (c *serverClock) mayCause(err error) bool {
	return errors.Is(err, serial.ErrClockSkew) || len(c.expired) > 0 && errors.Is(err, serial.ErrCounterLost)
}

// raise is what the operator does when the clock is right again.
func (r *run) raise(gen *serial.Generator, i int) {
	r.hold(i, operator)
	r.mu.Lock()
	r.observeCounters()
	used := r.clock.top[r.counter()]
	if r.begin == raise && r.redis.Exists(r.counter()) {
		used = 0
	}
	r.mu.Unlock()
	err := gen.Raise(context.Background(), "IS", used)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.clock.raised = true
	if err != nil {
		r.failed = append(r.failed, err)
	}
}

// requireDays lets the days pass that the clock was ahead by, and one more. Calls must get numbers on each of them,
// after an operator's Raise if it is not known what was used.
func (r *run) requireDays(t *testing.T) {
	gen, c, seen := newGenerator(t, r.redis.Client(), r.options(afterAll)...), &r.clock, map[string]bool{}
	for _, number := range r.issued {
		require.False(t, seen[number], "%s twice: %v", number, r.issued)
		seen[number] = true
	}
	r.observeCounters()
	today, last := r.counter(), ""
	for key := range c.top {
		last = max(last, key)
	}
	for day := range 6 {
		if day > 0 {
			sleepToMidnight()
		}
		key := r.counter()
		exists := r.redis.Exists(key)
		// The clock that was ahead entered some of the days up to the last one. If the record had no day before that, all
		// of them count as perhaps used.
		doubtful := key > today && key <= last && (c.top[key] > 0 || !c.used)
		for range 2 {
			n, err := gen.NextNumber(t.Context(), "IS")
			skewed := errors.Is(err, serial.ErrClockSkew) && !c.raised
			if skewed || errors.Is(err, serial.ErrCounterLost) && !exists && (doubtful || day == 0 && !c.raised) {
				c.raised, exists = c.raised || skewed, exists || !skewed
				require.NoError(t, gen.Raise(t.Context(), "IS", c.top[key]))
				n, err = gen.NextNumber(t.Context(), "IS")
			}
			require.NoError(t, err, "on %s", key)
			require.False(t, seen[n.String()], "%s was issued again", n)
			seen[n.String()] = true
			require.True(t, n.Seq == 1 || c.top[key] > 0, "%s begins with %s", key, n)
			c.top[key] = max(c.top[key], n.Seq)
		}
	}
}
