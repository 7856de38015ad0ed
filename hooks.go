package serial

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dailyserial/serial/internal/backlog"
	"github.com/dailyserial/serial/internal/exchange"
	"github.com/dailyserial/serial/internal/issue"
	"github.com/dailyserial/serial/internal/redisrun"
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
	// that, a new one is merged into the newest waiting one of the same type, period and reason, if their ranges touch
	// or if they are possible reasons. Otherwise it is dropped, and the Reason of the next one says how many were
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
		c.hooks, c.issuing.MeasureWait = append(c.hooks, hooks), true
	}}
}

// finish ends a call: it calls the hooks, and returns the error for the caller. The call is nil if it never began.
func (g *Generator) finish(ctx context.Context, c *issue.Call, err error) error {
	if c != nil && err != nil {
		err = c.GaveUp(ctx, err)
	}
	err = g.publicError(ctx, err)
	if len(g.hooks) == 0 || c == nil {
		return err
	}
	e := c.Events()
	for _, h := range g.hooks {
		if e.Offset != e.Before {
			tell(ctx, h.ClockCorrected, ClockInfo{e.Offset, e.Before})
		}
	}
	for _, h := range g.hooks {
		if e.Lost != nil {
			tell(ctx, h.Lost, g.lostInfo(e, err))
		}
	}
	for _, h := range g.hooks {
		if e.Opened != nil {
			tell(ctx, h.Opened, OpenedInfo{g.sharedSeries(), e.Type, g.local(e.Opened.Start), e.Wait})
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
func (g *Generator) lostInfo(e exchange.Events, err error) LostInfo {
	info := LostInfo{Series: g.sharedSeries(), Type: e.Type, Start: g.local(e.Lost.Start), Held: e.Held,
		Repaired: err == nil && !e.Reads}
	if e.Reads {
		info.Pending = g.issuing.Floor != nil || g.ledger != nil
	} else {
		info.Pending = err != nil && !errors.Is(err, ErrCounterLost)
	}
	return info
}

// failed ends a call for n numbers that failed with err, and returns the error for the caller.
func (g *Generator) failed(ctx context.Context, c *issue.Call, typ string, n int, began time.Time, err error) error {
	took := time.Since(began)
	err = g.finish(ctx, c, err)
	for _, h := range g.hooks {
		tell(ctx, h.Failed, FailedInfo{g.sharedSeries(), typ, n, err, took})
	}
	return err
}

// issued ends a call that issued n numbers.
func (g *Generator) issued(ctx context.Context, c *issue.Call, last Number, n int, began time.Time) {
	took := time.Since(began)
	_ = g.finish(ctx, c, nil)
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
	ends := g.over > 0 && c.Events().Now.Unix() >= g.nearOver
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
			seen = g.issuer.NoteUsed(last.Type, last.Start.Unix(), used)
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
	gatherFor   = time.Second // time during which attempts without an answer become one explanation
)

// A reporter reports gaps to hooks, in a goroutine that lives only while an explanation waits.
type reporter struct {
	hooks  []func(context.Context, Explanation)
	ledger bool
	series func(typ string) string
	local  func(unix int64) time.Time

	mu      sync.Mutex // guards all below
	queue   *backlog.Queue[gapKey]
	lost    *backlog.Queue[gapKey] // entries that a hook has given up since the last Flush
	lastErr error                  // why it has given up the last of them
	current *backlog.Entry[gapKey] // entry for which hooks are called; nil if there is none
	failure *atomic.Pointer[error] // why the hook that runs has failed so far; may hold a pointer to nil
	pending int                    // explanations that may still come
	running bool                   // the goroutine is running
	idle    chan struct{}          // closed when nothing is left to report; nil if nobody waits for that
}

type failureKey struct{} // in the context of an Unused hook; the value is an *atomic.Pointer[error]

// UnusedFailed notes that a call of [Hooks].Unused, whose context is ctx, has not kept its explanation, because of err.
// A hook that tries again notes every failure, and nil once it succeeds. If the last err is not nil when the hook
// returns, the explanation is lost. The error of [Generator.Flush] lists what is not kept, and wraps the last err. With
// any other context, UnusedFailed does nothing.
func UnusedFailed(ctx context.Context, err error) {
	if failure, ok := ctx.Value(failureKey{}).(*atomic.Pointer[error]); ok {
		failure.Store(&err)
	}
}

// A gapKey identifies queue entries that may be merged.
type gapKey struct {
	typ   string
	start int64 // of the period, Unix seconds
	cause exchange.Cause
}

// newReporter returns a reporter, or nil if there is no Unused hook.
func newReporter(c *config) *reporter {
	r := &reporter{ledger: c.ledger != nil, series: c.series, local: c.local,
		queue: backlog.New[gapKey](mostWaiting), lost: backlog.New[gapKey](mostWaiting)}
	for _, h := range c.hooks {
		if h.Unused != nil {
			r.hooks = append(r.hooks, h.Unused)
		}
	}
	if r.hooks == nil {
		return nil
	}
	return r
}

// report queues a gap for the hooks. Attempts without an answer gather first.
func (r *reporter) report(g exchange.Gap) {
	key := gapKey{g.Type, g.Span.Start, g.Cause}
	e := backlog.Entry[gapKey]{Key: key, First: g.First, Last: g.Last, At: time.Now(), Loose: r.possible(g.Cause)}
	r.mu.Lock()
	defer r.mu.Unlock()
	if g.Cause != exchange.AnswerLost {
		r.queue.Add(e)
	} else if r.queue.Gather(e) {
		time.AfterFunc(gatherFor, func() {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.queue.Settle(key)
			r.start()
		})
	}
	r.start()
}

// start starts the goroutine unless it is running. The caller holds mu.
func (r *reporter) start() {
	if !r.running {
		r.running = true
		go r.run()
	}
}

// run reports to the hooks until the queue is empty.
func (r *reporter) run() {
	ended := false
	defer func() {
		if !ended { // a hook ended the goroutine
			go r.run()
		}
	}()
	for e, ok := r.next(); ok; e, ok = r.next() {
		for _, hook := range r.hooks {
			r.call(hook, e)
		}
	}
	ended = true
}

// call calls a hook for an entry, and keeps the entry if the hook has given it up.
func (r *reporter) call(hook func(context.Context, Explanation), e backlog.Entry[gapKey]) {
	failure := new(atomic.Pointer[error])
	r.mu.Lock()
	r.failure = failure
	r.mu.Unlock()
	tell(context.WithValue(context.Background(), failureKey{}, failure), hook, r.explanation(e))
	if err := failure.Load(); err != nil && *err != nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.lost.Add(e)
		r.lastErr = *err
	}
}

// next returns the next entry to report, or false if none is waiting.
func (r *reporter) next() (e backlog.Entry[gapKey], ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.current = nil
	if e, ok = r.queue.Next(); ok {
		r.current = &e
		return e, true
	}
	r.running = false
	r.settle()
	return e, false
}

// unreported returns an error that lists what has not been reported, or nil if everything has. It forgets what hooks
// have given up.
func (r *reporter) unreported() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	all, dropped := r.lost.Rest()
	last := r.lastErr
	r.lost, r.lastErr = backlog.New[gapKey](mostWaiting), nil
	if r.current != nil {
		all = append(all, *r.current)
		if err := r.failure.Load(); err != nil && *err != nil {
			last = *err
		}
	}
	waiting, more := r.queue.Rest()
	parts := r.list(append(all, waiting...))
	if n := dropped + more; n > 0 {
		parts = append(parts, fmt.Sprintf("explanations dropped, since too many were waiting: %d", n))
	}
	if r.pending > 0 {
		parts = append(parts, fmt.Sprintf("numbers of requests that may still get a reply: %d", r.pending))
	}
	if parts == nil {
		return nil
	}
	err := fmt.Errorf("not reported: %s", strings.Join(parts, "; "))
	if last != nil {
		err = fmt.Errorf("%w; last error: %w", err, redisrun.Foreign(last))
	}
	return err
}

// list returns a text for each type, period and cause, with the ranges of all entries.
func (r *reporter) list(all []backlog.Entry[gapKey]) (parts []string) {
	ranges, keys := map[gapKey][]Range{}, []gapKey(nil)
	for _, e := range all {
		known := ranges[e.Key]
		switch n := len(known); {
		case n == 0:
			keys = append(keys, e.Key)
			fallthrough
		case known[n-1].Last+1 != e.First:
			ranges[e.Key] = append(known, Range{e.First, e.Last})
		default:
			known[n-1].Last = e.Last
		}
	}
	for _, key := range keys {
		text := fmt.Sprintf("%s from %s (%s)", cmp.Or(key.typ, r.series("")), r.local(key.start).Format(time.RFC3339),
			reasons[key.cause])
		for i, found := range ranges[key] {
			text += fmt.Sprintf("%s %d", cmp.Or(strings.Repeat(",", min(i, 1)), ":"), found.First)
			if found.First < found.Last {
				text += fmt.Sprintf(" to %d", found.Last)
			}
		}
		parts = append(parts, text)
	}
	return parts
}

// addPending adds n to the number of explanations that may still come.
func (r *reporter) addPending(n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.pending += n
	r.settle()
}

// flush queues the gathering entries, and returns a channel that is closed once nothing is left to report.
func (r *reporter) flush() <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.idle == nil {
		r.idle = make(chan struct{})
	}
	idle := r.idle
	r.settleGathering()
	r.settle()
	return idle
}

// settle wakes the callers of Flush if nothing is left to report. Entries that gather meanwhile are queued once nothing
// more is expected. The caller holds mu.
func (r *reporter) settle() {
	if r.idle == nil || r.pending > 0 {
		return
	}
	r.settleGathering()
	if !r.running {
		close(r.idle)
		r.idle = nil
	}
}

// settleGathering queues the gathering entries. The caller holds mu.
func (r *reporter) settleGathering() {
	if r.queue.Gathering() > 0 {
		r.queue.SettleAll()
		r.start()
	}
}
