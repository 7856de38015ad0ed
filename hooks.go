package serial

import (
	"context"
	"fmt"
	"math"
	"time"
)

// Hooks are functions that a [Generator] calls as it works, for metrics, traces and logs; package
// github.com/dailyserial/serial/serialotel has them for OpenTelemetry. Each may be nil, and then costs nothing.
//
// They are called in the goroutine of the call they tell of, just before it returns, with its context, which may have
// ended; never while a lock is held. So a slow one slows that call down and no other. Of one call they are told in this
// order: ClockCorrected, Lost, Opened, Issued or Failed, NearlyExhausted. They must be safe for use by several goroutines.
// One that panics is left alone: the number is issued all the same.
type Hooks struct {
	// Issued is called for every call that returns numbers.
	Issued func(context.Context, IssuedInfo)
	// Failed is called for every call that was to return numbers and returns an error.
	Failed func(context.Context, FailedInfo)
	// Opened is called where a call has opened the current period, or opened it again after its counter was lost. Those that
	// Prepare opens ahead are not told of, nor is a counter that was put right by a block of the ledger.
	Opened func(context.Context, OpenedInfo)
	// Lost is called for every call that has found that a counter is gone or went back, whether that was repaired or not:
	// of many at once, each tells. History leaves a lost counter out, and does not tell.
	Lost func(context.Context, LostInfo)
	// ClockCorrected is called where a server's clock was found in another period than this process thought, as by a
	// host whose clock is wrong; from then on its offset is reckoned with. Around midnight a few milliseconds are enough.
	ClockCorrected func(context.Context, ClockInfo)
	// NearlyExhausted is called once per type and period by a Generator, when NearlyExhaustedAt of its numbers are used.
	NearlyExhausted func(context.Context, ExhaustionInfo)
	// NearlyExhaustedAt is a share of the numbers of a period, more than 0 and at most 1; 0 stands for 0.8.
	NearlyExhaustedAt float64
}

// IssuedInfo tells of a call that returned numbers.
type IssuedInfo struct {
	Last     Number        // the last of them
	Count    int           // how many were issued; 0 for a request that [Generator.NextOnce] answered as before
	Duration time.Duration // of the call
}

// FailedInfo tells of a call that returned an error instead of numbers.
type FailedInfo struct {
	Type     string        // as it was asked for; it may be invalid
	Count    int           // how many numbers were asked for
	Err      error         // that the call returns
	Duration time.Duration // of the call
}

// OpenedInfo tells of a period that was opened.
type OpenedInfo struct {
	Type  string
	Start time.Time     // first instant of the period
	Wait  time.Duration // from the beginning of the call until the period was open
}

// LostInfo tells of a counter that was there once.
type LostInfo struct {
	Type  string
	Start time.Time // first instant of the period
	Held  string    // what the counter holds now, if that is known
}

// ClockInfo tells how far a server's clock is ahead of this host's.
type ClockInfo struct {
	Offset, Before time.Duration // to half a round trip; Before is what was reckoned with so far
}

// ExhaustionInfo tells of a period that has few numbers left.
type ExhaustionInfo struct {
	Last       Number
	Used, Size int64 // sequences of the period that are used, and that it has
}

// WithHooks has functions called as the Generator works; see [Hooks].
//
// Default none. A share NearlyExhaustedAt that is not 0 to 1 is refused.
func WithHooks(hooks Hooks) Option {
	return optionFunc(func(c *config) error {
		hooks := hooks // an option may be used by several
		if at := hooks.NearlyExhaustedAt; !(at >= 0 && at <= 1) {
			return fmt.Errorf("serial: WithHooks: NearlyExhaustedAt is %v; allowed are more than 0 to 1, and 0 for 0.8", at)
		}
		if hooks.NearlyExhaustedAt == 0 {
			hooks.NearlyExhaustedAt = 0.8
		}
		c.hooks = &hooks
		return nil
	})
}

// nearlyExhausted is the sequence from which on NearlyExhausted is due.
func (c *config) nearlyExhausted() int64 {
	return c.base + int64(math.Ceil(c.hooks.NearlyExhaustedAt*float64(c.limit-c.base)))
}

// A trace is what hooks will be told when a call ends. It is the caller's goroutine's alone.
type trace struct {
	began  time.Time
	took   time.Duration // the call, without the hooks
	opened *OpenedInfo
	lost   *LostInfo
	clock  *ClockInfo
}

// sawLost notes that the call's counter is lost, and what it holds, if that is known.
func (c *call) sawLost(held string) {
	if c.trace != nil && c.trace.lost == nil {
		c.trace.lost = &LostInfo{c.typ, c.start(), held}
	}
}

// sawOpened notes that the call has opened its period.
func (c *call) sawOpened() {
	if c.trace != nil {
		c.trace.opened = &OpenedInfo{c.typ, c.start(), time.Since(c.trace.began)}
	}
}

// told is the end of a call: it calls the hooks for what happened, and returns what the caller gets.
func (c *call) told(ctx context.Context, err error) error {
	err = outcome(ctx, err)
	t := c.trace
	if t == nil {
		return err
	}
	t.took = time.Since(t.began)
	h := c.g.hooks
	if t.clock != nil {
		tell(ctx, h.ClockCorrected, *t.clock)
	}
	if t.lost != nil {
		tell(ctx, h.Lost, *t.lost)
	}
	if t.opened != nil {
		tell(ctx, h.Opened, *t.opened)
	}
	return err
}

// toldIssued is told for a call that was to issue n numbers.
func (c *call) toldIssued(ctx context.Context, n int, err error) error {
	err = c.told(ctx, err)
	t := c.trace
	if t == nil {
		return err
	}
	h := c.g.hooks
	if err != nil {
		tell(ctx, h.Failed, FailedInfo{c.typ, n, err, t.took})
		return err
	}
	if c.made.repeated {
		n = 0
	}
	last := c.number(c.made.last)
	tell(ctx, h.Issued, IssuedInfo{last, n, t.took})
	if n > 0 && h.NearlyExhausted != nil && last.Seq >= c.g.nearly && c.g.marks.warn(c.typ, c.made.span.start) {
		tell(ctx, h.NearlyExhausted, ExhaustionInfo{last, last.Seq - c.g.base, c.g.limit - c.g.base})
	}
	return nil
}

// tell calls one hook, whose panic is its own.
func tell[T any](ctx context.Context, hook func(context.Context, T), info T) {
	if hook == nil {
		return
	}
	defer func() { _ = recover() }()
	hook(ctx, info)
}
