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

// Hooks are functions that a [Generator] calls for metrics, traces and logs. [LogHooks] returns hooks that write to a
// log, and package github.com/dailyserial/serial/serialotel has hooks for OpenTelemetry. Any hook may be nil.
//
// Every hook except Unused runs in the goroutine of the call that it reports, directly before the call returns. It gets
// the context of the call, which may have ended. No lock is held, so a slow hook delays only this call. If one call
// runs several hooks, their order is ClockCorrected, Lost, Opened, Issued or Failed, NearlyExhausted. Hooks must be
// safe for concurrent use. If a hook panics, the panic is ignored, and the call returns its result.
type Hooks struct {
	// Issued is called for every call that returns numbers.
	Issued func(context.Context, IssuedInfo)
	// Failed is called for every call that returns an error instead of numbers.
	Failed func(context.Context, FailedInfo)
	// Opened is called for every call that opened the current period, or opened it again after its counter was lost. It is
	// not called when Prepare opens the next period, or when a new block of the ledger is installed in an open period.
	Opened func(context.Context, OpenedInfo)
	// Lost is called for every call that found a counter missing or too low. [LostInfo] contains the consequences. If
	// several calls find the same loss, Lost is called for each of them. It is not called by History, which omits lost
	// counters.
	Lost func(context.Context, LostInfo)
	// ClockCorrected is called if the clock of a Redis server was not in the period that this process assumed, for example
	// because the clock of this host is wrong. Afterwards, the process takes the offset between the clocks into account.
	// Around midnight, an offset of a few milliseconds is enough.
	ClockCorrected func(context.Context, ClockInfo)
	// NearlyExhausted is called when the fraction NearlyExhaustedAt of the numbers of a period has been used. Each
	// Generator calls it once per series and period. With [WithUntil], each Generator also calls it once per series, for
	// the first number that is issued on that date or within the 29 days before it.
	NearlyExhausted func(context.Context, ExhaustionInfo)
	// Unused receives the numbers that were issued or skipped but not returned to a caller, as far as this process knows
	// them; see [CallerLeft] and the other constants. It runs in a separate goroutine, one call at a time for each
	// Generator, and its context never ends. [Generator.Flush] waits until the hook has received everything.
	//
	// Up to 10,000 explanations can wait for Unused. When the queue is full, a new explanation is merged into the newest
	// waiting explanation of the same series, period and reason, if their ranges overlap or touch, or if the reason is
	// only possible. Otherwise the new explanation is dropped, and the Reason of the next explanation contains the number
	// of dropped explanations.
	Unused func(context.Context, Explanation)
	// NearlyExhaustedAt is a fraction of a period's numbers, more than 0 and at most 1. 0 means 0.8.
	NearlyExhaustedAt float64
}

// IssuedInfo describes a call that returned numbers.
type IssuedInfo struct {
	Series   string        // with [WithSharedCounter] the result of [Scheme.Series], otherwise ""
	Last     Number        // last number issued
	Count    int           // how many numbers were issued; 0 if [Generator.NextOnce] repeated an earlier number
	Duration time.Duration // duration of the call
}

// FailedInfo describes a call that returned an error instead of numbers.
type FailedInfo struct {
	Series   string        // as in IssuedInfo
	Type     string        // requested type; it may be invalid
	Count    int           // how many numbers were requested
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

// LostInfo describes a counter that is missing or too low. If neither Repaired nor Pending is set, the call returned
// [ErrCounterLost], and an operator must call [Generator.Raise].
//
// Pending is set if the call failed with another error, for example because it was canceled or because the ledger
// failed. It is also set for Peek and Audit, which do not repair counters, if the Generator has a floor or a ledger.
type LostInfo struct {
	Series   string // as in IssuedInfo
	Type     string
	Start    time.Time // first instant of the period
	Held     string    // content of the counter when the loss was found, or "" if it is not known or there was no counter
	Repaired bool      // the counter was repaired, and the call returned no error
	Pending  bool      // a later call will repair the counter or return ErrCounterLost
}

// ClockInfo describes the difference between the clock of a Redis server and that of this host.
type ClockInfo struct {
	// Offset and Before are the new and the previous estimate of the server's clock minus this host's clock. An estimate
	// is accurate to half a round trip.
	Offset, Before time.Duration
}

// ExhaustionInfo describes a period that has few numbers left, or a series whose last day is near.
type ExhaustionInfo struct {
	Series     string // as in IssuedInfo
	Last       Number // last number issued
	Used, Size int64  // how many sequences of the period are used, and how many there are
	Until      When   // last day for which numbers are issued, or zero if none; see [WithUntil]
}

// WithHooks adds functions that the Generator calls; see [Hooks]. If the option is given more than once, the hooks of
// all options are called in their order. Each option has its own NearlyExhaustedAt.
//
// NearlyExhaustedAt must be 0 to 1; 0 means 0.8. There are no hooks by default.
func WithHooks(hooks Hooks) Option {
	hooks.NearlyExhaustedAt = cmp.Or(hooks.NearlyExhaustedAt, 0.8)
	at := hooks.NearlyExhaustedAt
	err := refuseIf(!(at >= 0 && at <= 1),
		"serial: WithHooks: NearlyExhaustedAt %v: want more than 0 and at most 1, or 0 for 0.8", at)
	return option{"WithHooks", false, err, func(c *config) {
		c.hooks = append(c.hooks, hooks)
	}}
}

// finish ends a call. It calls the hooks, and returns the error for the caller. c is nil if the call did not begin.
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

// sharedSeries returns the series that all types share, or "" if each type has a separate series.
func (g *Generator) sharedSeries() string {
	if !g.shared {
		return ""
	}
	return g.series("")
}

// lostInfo describes the loss that a call has found. err is the error that the call returns.
func (g *Generator) lostInfo(c *series.Call, typ string, err error) LostInfo {
	info := LostInfo{Series: g.sharedSeries(), Type: typ, Start: g.local(c.Events.Lost.Start), Held: c.Events.Content,
		Repaired: err == nil && !c.Reads()}
	if c.Reads() {
		info.Pending = g.issuing.Floor != nil || g.ledger != nil
	} else {
		info.Pending = err != nil && !errors.Is(err, ErrCounterLost)
	}
	return info
}

// failed ends a call for n numbers that failed with err. It calls the hooks, and returns the error for the caller.
func (g *Generator) failed(ctx context.Context, c *series.Call, typ string, n int, began time.Time, err error) error {
	took := time.Since(began)
	err = g.finish(ctx, c, typ, err)
	for _, h := range g.hooks {
		tell(ctx, h.Failed, FailedInfo{g.sharedSeries(), typ, n, err, took})
	}
	return err
}

// issued ends a call that issued n numbers, and calls the hooks. n is 0 if the number was issued by an earlier call.
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
	if last.Seq <= before { // the period has a lower start
		before = 0
	}
	used, size := last.Seq-before, g.limit-before
	info := ExhaustionInfo{g.sharedSeries(), last, used, size, g.until}
	ends := g.over > 0 && c.Now().Unix() >= g.nearOver
	if ends {
		_, warned := g.warned.LoadOrStore(g.series(last.Type), true)
		ends = !warned
	}
	seen := int64(-1) // largest used count for which hooks were called before, or -1 if it has not been read yet
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

// tell calls a hook, unless it is nil. If the hook panics, tell ignores the panic.
func tell[T any](ctx context.Context, hook func(context.Context, T), info T) {
	if hook == nil {
		return
	}
	defer func() { _ = recover() }()
	hook(ctx, info)
}

const (
	maxWaiting = 10_000      // largest number of explanations that wait for a hook
	lostPace   = time.Second // shortest time between two explanations with AnswerLost of the same series and period
)

// A reporter passes gaps to hooks as explanations, one after another. It has a goroutine only while an explanation is
// waiting.
type reporter struct {
	*config

	mu        sync.Mutex // guards all below
	queue     *backlog.Queue[gapKey]
	lost      *backlog.Queue[gapKey] // entries that hooks could not store since the previous Flush
	latestErr error                  // latest error of such a hook
	current   *report                // entry that is being passed to the hooks, or nil if none
	pending   int                    // how many explanations may still follow
	flushing  int                    // how many callers of Flush are waiting
	running   bool                   // the goroutine is running
	changed   sync.Cond              // signaled when one of these fields may have changed
}

// A report is an entry that is passed to hooks.
type report struct {
	*backlog.Entry[gapKey]
	errs []error // latest error of each hook, from UnusedFailed
}

// newReporter returns a reporter, or nil if there is no Unused hook.
func newReporter(c *config) *reporter {
	if !slices.ContainsFunc(c.hooks, func(h Hooks) bool { return h.Unused != nil }) {
		return nil
	}
	queue, lost := backlog.New[gapKey](maxWaiting, lostPace), backlog.New[gapKey](maxWaiting, 0)
	r := &reporter{config: c, queue: queue, lost: lost}
	r.changed.L = &r.mu
	return r
}

// report queues a gap for the hooks.
func (r *reporter) report(g series.Gap) {
	gathers := g.Cause == series.AnswerLost
	if gathers && r.shared {
		g.Type = "" // so that the lost replies of all types are merged
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

// run passes the next explanation to the hooks, and then starts itself again in another goroutine. It returns if no
// explanation is waiting.
func (r *reporter) run() {
	next := r.next()
	if next == nil {
		return
	}
	defer func() { go r.run() }() // in another goroutine, because a hook may end this one
	for i, hooks := range r.hooks {
		note := func(err error) {
			r.mu.Lock()
			defer r.mu.Unlock()
			next.errs[i] = err
		}
		tell(context.WithValue(context.Background(), noteKey{}, note), hooks.Unused, r.explanation(next.Entry))
	}
}

// next finishes the current report, waits until the next report is due, and returns it. It returns nil if no
// explanation is waiting.
func (r *reporter) next() *report {
	r.mu.Lock()
	defer r.mu.Unlock()
	if previous := r.current; previous != nil {
		if err := cmp.Or(previous.errs...); err != nil {
			r.lost.Add(*previous.Entry)
			r.latestErr = err
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

// addPending adds n to the number of explanations that may still follow.
func (r *reporter) addPending(n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.pending += n
	r.signal()
}

// await waits until a field of r may have changed or ctx has ended. r.mu must be held. It is unlocked while await
// waits.
func (r *reporter) await(ctx context.Context) {
	stop := context.AfterFunc(ctx, func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.signal()
	})
	defer stop()
	r.changed.Wait()
}

// signal wakes all goroutines that wait for a change.
func (r *reporter) signal() { r.changed.Broadcast() }
