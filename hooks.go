package serial

import (
	"cmp"
	"context"
	"errors"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/dailyserial/serial/internal/backlog"
	"github.com/dailyserial/serial/internal/series"
)

// Hooks are functions that a [Generator] calls as it works, for metrics, traces and logs. [LogHooks] provides them for
// a log, and package github.com/dailyserial/serial/serialotel for OpenTelemetry. A nil hook costs nothing.
//
// Every hook except Unused runs in the goroutine of the call that it reports, just before that call returns, and
// receives the call's context, which may have ended. No lock is held, so a slow hook delays only that call. For one
// call, hooks run in this order: ClockCorrected, Lost, Opened, Issued or Failed, NearlyExhausted. Hooks must be safe
// for use by several goroutines. If a hook panics, the panic is dropped and the call still returns its result.
type Hooks struct {
	// Issued is called for every call that returns numbers.
	Issued func(context.Context, IssuedInfo)
	// Failed is called for every call that returns an error instead of numbers.
	Failed func(context.Context, FailedInfo)
	// Opened is called for every call that opened the current period, or reopened it after its counter was lost. It is
	// not called for periods that Prepare opens ahead, nor for a counter that a block of the ledger repaired.
	Opened func(context.Context, OpenedInfo)
	// Lost is called for every call that found a counter gone or set back; [LostInfo] says whether it was repaired. If
	// several calls find the same loss, Lost is called for each. History does not call it, because it leaves out lost
	// counters.
	Lost func(context.Context, LostInfo)
	// ClockCorrected is called if a server's clock is in another period than this process assumed, for example because
	// the host's clock is wrong. From then on, the process corrects for the offset. Around midnight, an offset of a few
	// milliseconds is enough.
	ClockCorrected func(context.Context, ClockInfo)
	// NearlyExhausted is called once per series and period by each Generator, when the share NearlyExhaustedAt of the
	// period's numbers has been used. With [WithUntil], it is also called once per series by each Generator, for the first
	// number issued from 29 days before that date on, whatever the share.
	NearlyExhausted func(context.Context, ExhaustionInfo)
	// Unused receives the numbers that were counted or skipped but that nobody received, as far as this process can
	// know; see [CallerLeft] and the other constants. It runs in a goroutine of its own, one call at a time for each
	// Generator, and its context never ends. [Generator.Flush] waits for it. Up to 10,000 explanations wait. Beyond
	// that, a new one is merged into the newest waiting one of the same series, period and reason, if their ranges
	// touch or if they are possible reasons. Otherwise it is dropped, and the Reason of the next one says how many were
	// dropped.
	Unused func(context.Context, Explanation)
	// NearlyExhaustedAt is a share of a period's numbers, more than 0 and at most 1; 0 means 0.8.
	NearlyExhaustedAt float64
}

// IssuedInfo describes a call that returned numbers.
type IssuedInfo struct {
	Series   string        // with [WithSharedCounter], as [Scheme.Series] returns it; otherwise "", here and below
	Last     Number        // last number issued
	Count    int           // count of numbers issued; 0 if [Generator.NextOnce] repeated an earlier answer
	Duration time.Duration // duration of the call
}

// FailedInfo describes a call that returned an error instead of numbers.
type FailedInfo struct {
	Series   string        // as in IssuedInfo
	Type     string        // requested type; it may be invalid
	Count    int           // count of numbers requested
	Err      error         // error that the call returns
	Duration time.Duration // duration of the call
}

// OpenedInfo describes a period that was opened.
type OpenedInfo struct {
	Series string // as in IssuedInfo
	Type   string
	Start  time.Time     // first instant of the period
	Wait   time.Duration // time from the beginning of the call until the period was open
}

// LostInfo describes a counter that is gone or was set back. If neither Repaired nor Pending is set, the call returned
// [ErrCounterLost], which an operator has to end.
//
// Pending is set if the call failed with another error, for example because its caller left or the ledger failed. It is
// also set for Peek and Audit, which repair nothing, if the Generator has a floor or a ledger.
type LostInfo struct {
	Series   string // as in IssuedInfo
	Type     string
	Start    time.Time // first instant of the period
	Held     string    // content of the counter when the loss was found, if known
	Repaired bool      // the counter was repaired, and the call returned no error
	Pending  bool      // a later call repairs the counter, or returns ErrCounterLost
}

// ClockInfo describes how far a server's clock is ahead of this host's.
type ClockInfo struct {
	Offset, Before time.Duration // new and previous estimate, each accurate to half a round trip
}

// ExhaustionInfo describes a period that has few numbers left, or a type whose numbers soon end on a date.
type ExhaustionInfo struct {
	Series     string // as in IssuedInfo
	Last       Number // last number issued
	Used, Size int64  // count of the period's used sequences, and of all its sequences
	Until      When   // last day for which numbers are issued, zero for none; see [WithUntil]
}

// WithHooks adds functions to call as the Generator works; see [Hooks]. If it is given more than once, all are called,
// in that order, each with its own NearlyExhaustedAt.
//
// Default none. NearlyExhaustedAt must be 0 to 1; 0 means 0.8.
func WithHooks(hooks Hooks) Option {
	hooks.NearlyExhaustedAt = cmp.Or(hooks.NearlyExhaustedAt, 0.8)
	at := hooks.NearlyExhaustedAt
	err := refuseIf(!(at >= 0 && at <= 1),
		"serial: WithHooks: NearlyExhaustedAt %v: want more than 0 and at most 1, or 0 for 0.8", at)
	return option{"WithHooks", false, err, func(c *config) {
		c.hooks = append(c.hooks, hooks)
	}}
}

// finish ends a call: it calls the hooks, and returns the error for the caller. The call is nil if it never began.
func (g *Generator) finish(ctx context.Context, c *series.Call, typ string, err error) error {
	err = g.publicError(ctx, err)
	if len(g.hooks) == 0 || c == nil {
		return err
	}
	e := &c.Events
	for _, h := range g.hooks {
		if e.Offset != e.Before {
			tell(ctx, h.ClockCorrected, ClockInfo{e.Offset, e.Before})
		}
		if e.Lost != nil {
			tell(ctx, h.Lost, g.lostInfo(c, typ, err))
		}
		if e.Opened != nil {
			tell(ctx, h.Opened, OpenedInfo{g.sharedSeries(), typ, g.local(e.Opened.Start), e.Wait})
		}
	}
	return err
}

// sharedSeries returns the series that all types share, "" if each has its own.
func (g *Generator) sharedSeries() string {
	if !g.shared {
		return ""
	}
	return g.series("")
}

// lostInfo describes the loss found by a call that ended with err.
func (g *Generator) lostInfo(c *series.Call, typ string, err error) LostInfo {
	info := LostInfo{Series: g.sharedSeries(), Type: typ, Start: g.local(c.Events.Lost.Start), Held: c.Events.Held,
		Repaired: err == nil && !c.Reads()}
	if c.Reads() {
		info.Pending = g.issuing.Floor != nil || g.ledger != nil
	} else {
		info.Pending = err != nil && !errors.Is(err, ErrCounterLost)
	}
	return info
}

// failed ends a call for n numbers that failed with err, and returns the error for the caller.
func (g *Generator) failed(ctx context.Context, c *series.Call, typ string, n int, began time.Time, err error) error {
	took := time.Since(began)
	err = g.finish(ctx, c, typ, err)
	for _, h := range g.hooks {
		tell(ctx, h.Failed, FailedInfo{g.sharedSeries(), typ, n, err, took})
	}
	return err
}

// issued ends a call that issued n numbers.
func (g *Generator) issued(ctx context.Context, c *series.Call, last Number, n int, began time.Time) {
	took := time.Since(began)
	_ = g.finish(ctx, c, last.Type, nil)
	for _, h := range g.hooks {
		tell(ctx, h.Issued, IssuedInfo{g.sharedSeries(), last, n, took})
	}
	if n == 0 {
		return
	}
	before := g.base
	if last.Seq <= before { // the period has another start
		before = 0
	}
	used, size := last.Seq-before, g.limit-before
	info := ExhaustionInfo{g.sharedSeries(), last, used, size, g.until}
	ends := g.over > 0 && c.Now().Unix() >= g.nearOver
	if ends {
		_, warned := g.warned.LoadOrStore(g.series(last.Type), true)
		ends = !warned
	}
	seen := int64(-1) // greatest count for which hooks were called
	for _, h := range g.hooks {
		if ends {
			tell(ctx, h.NearlyExhausted, info)
		}
		due := int64(math.Ceil(h.NearlyExhaustedAt * float64(size)))
		if h.NearlyExhausted == nil || used < due {
			continue
		}
		if seen < 0 {
			seen = g.counters.NoteUsed(last.Type, last.Start.Unix(), used)
		}
		if seen < due {
			tell(ctx, h.NearlyExhausted, info)
		}
	}
}

// tell calls a hook unless it is nil, and drops its panic.
func tell[T any](ctx context.Context, hook func(context.Context, T), info T) {
	if hook == nil {
		return
	}
	defer func() { _ = recover() }()
	hook(ctx, info)
}

const (
	mostWaiting = 10_000      // explanations, at most
	lostPace    = time.Second // between explanations with AnswerLost of one series and period, at least
)

// A reporter reports gaps to hooks, one after another, in goroutines that live only while an explanation waits.
type reporter struct {
	*config

	mu       sync.Mutex // guards all below
	queue    *backlog.Queue[gapKey]
	lost     *backlog.Queue[gapKey] // entries that a hook has given up since the last Flush
	lastErr  error                  // why it has given up the last of them
	current  *report                // what hooks are called for; nil if there is nothing
	pending  int                    // explanations that may still come
	flushing int                    // callers of Flush
	running  bool                   // the goroutine is running
	changed  sync.Cond              // one of these has changed
}

// A report is an entry for which hooks are called.
type report struct {
	*backlog.Entry[gapKey]
	errs []error // the last error that each hook has noted
}

// newReporter returns a reporter, or nil if there is no Unused hook.
func newReporter(c *config) *reporter {
	if !slices.ContainsFunc(c.hooks, func(h Hooks) bool { return h.Unused != nil }) {
		return nil
	}
	queue, lost := backlog.New[gapKey](mostWaiting, lostPace), backlog.New[gapKey](mostWaiting, 0)
	r := &reporter{config: c, queue: queue, lost: lost}
	r.changed.L = &r.mu
	return r
}

// report queues a gap for the hooks.
func (r *reporter) report(g series.Gap) {
	gathers := g.Cause == series.AnswerLost
	if gathers && r.shared {
		g.Type = "" // one explanation a second is for all types of the series
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.queue.Add(backlog.Entry[gapKey]{Key: gapKey{g.Type, g.Span.Start, g.Cause}, First: g.First, Last: g.Last,
		At: time.Now(), Loose: r.possible(g.Cause), Gathers: gathers})
	if !r.running {
		r.running = true
		go r.run()
	}
	r.signal()
}

// run reports the next explanation to the hooks, if there is one, and continues in another goroutine.
func (r *reporter) run() {
	next := r.next()
	if next == nil {
		return
	}
	defer func() { go r.run() }() // even if a hook ends this goroutine
	for i, hooks := range r.hooks {
		note := func(err error) {
			r.mu.Lock()
			defer r.mu.Unlock()
			next.errs[i] = err
		}
		tell(context.WithValue(context.Background(), noteKey{}, note), hooks.Unused, r.explanation(next.Entry))
	}
}

// next ends the current report, and returns the next one once it is due; nil if none is waiting.
func (r *reporter) next() *report {
	r.mu.Lock()
	defer r.mu.Unlock()
	if last := r.current; last != nil {
		if err := cmp.Or(last.errs...); err != nil {
			r.lost.Add(*last.Entry)
			r.lastErr = err
		}
		r.current = nil
	}
	for {
		e, wait := r.queue.Next(r.flushing > 0 && r.pending == 0)
		switch {
		case e != nil:
			r.current = &report{e, make([]error, len(r.hooks))}
			return r.current
		case wait == 0:
			r.running = false
			r.signal()
			return nil
		}
		ctx, cancel := context.WithTimeout(context.Background(), wait)
		r.await(ctx)
		cancel()
	}
}

// addPending adds n to the number of explanations that may still come.
func (r *reporter) addPending(n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.pending += n
	r.signal()
}

// await waits until something changes or ctx ends. The caller holds mu, which is free meanwhile.
func (r *reporter) await(ctx context.Context) {
	stop := context.AfterFunc(ctx, func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.signal()
	})
	defer stop()
	r.changed.Wait()
}

// signal wakes all who wait for a change.
func (r *reporter) signal() { r.changed.Broadcast() }
