package serial

import (
	"context"
	"fmt"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/dailyserial/serial/internal/backlog"
	"github.com/dailyserial/serial/internal/exchange"
	"github.com/dailyserial/serial/internal/template"
)

// The Reason of an [Explanation] that this package gives begins with one of these.
//
// Only what is known exactly explains a missing number: CallerLeft, BlockBurned and, with a ledger, NotReplicated, with
// Unused set. The others are possible reasons, with Possible set, and explain nothing.
//
// A number with Unused is never issued if every process of the series has a ledger. Without one, Redis may issue it
// again after a loss.
const (
	// CallerLeft: the caller's context or time ended, and the answer with exactly these numbers came later. Nobody got
	// them.
	CallerLeft = "caller left"
	// NotReplicated: the call returned [ErrNotReplicated], and exactly these are its numbers. With a ledger, nobody
	// gets them. Without one, it is a possible reason, since a failover may issue them again.
	NotReplicated = "not replicated"
	// BlockBurned: these are a whole block of the ledger that this process set aside, and that can no longer be
	// installed.
	BlockBurned = "block burned"
	// AnswerLost, a possible reason: an attempt that may have counted got no answer, or an error that does not prove
	// that nothing ran. The range begins above the greatest sequence that the process had returned before, and ends
	// with the largest sequence. Attempts of one type and period within a second are one explanation, which says how
	// many they were: "answer lost: 3 attempts".
	AnswerLost = "answer lost"
	// Raised, a possible reason: [Generator.Raise] or [Generator.Takeover] lifted the counter over these. Before that,
	// Redis may have lost data, so callers may have some of them. Nothing is reported if the counter or the answer was
	// lost.
	Raised = "raised"
	// BlockSkipped, a possible reason: a block of the ledger did not follow on from the counter. Redis may have issued
	// some of these before it lost data. Nothing is reported if there was no counter.
	BlockSkipped = "block skipped"
)

// An Explanation says why numbers of a type are missing in a period. [Hooks].Unused receives what a [Generator] knows;
// an application makes its own for what it knows, such as a document that was voided. [WithExplanations] gives them to
// an audit.
//
// It is about all sequences from First to Last. One with Possible names a reason for which some of them may be missing.
// An audit lists it beside what is unexplained, and takes none of them for explained.
type Explanation struct {
	Series      string    // as [Scheme.Series] returns it, such as "serial:IS"; it distinguishes key prefixes
	Type        string    // for information; explanations match by Series and Start
	Start       time.Time // first instant of the period
	First, Last int64     // sequences, both included: 1 to 10^15-1, in order
	Reason      string    // 1 to 500 bytes of UTF-8: letters, marks, digits, punctuation, symbols, spaces
	By          string    // who says so, a person or a job: at most 100 bytes of the same characters; "" for this package
	At          time.Time // when that was said; not zero
	Unused      bool      // nobody got them, so no document may have them; not with Possible
	Possible    bool      // some of them may be missing for this reason, which explains none of them; not with Unused
}

// Validate returns an error that says which field breaks its bounds, and what is allowed; nil if none does.
func (e Explanation) Validate() error {
	const most = template.MaxSequence
	err := func(format string, args ...any) error {
		return fmt.Errorf("serial: explanation of %s %d to %d: "+format, append([]any{e.Type, e.First, e.Last}, args...)...)
	}
	switch {
	case e.First < 1 || e.First > e.Last || e.Last > most:
		return err("sequences must be 1 to %d, in order", most)
	case e.At.IsZero():
		return err("At is zero; it is when the explanation was given")
	case e.Unused && e.Possible:
		return err("Unused and Possible are both set: either nobody got them, or some of them may be missing for this reason")
	}
	// Graphic are also spaces other than ASCII's, such as U+00A0 and U+202F.
	if wrong := checkText(e.Reason, 1, 500, unicode.IsGraphic); wrong != "" {
		return err("Reason: %s", wrong)
	}
	if wrong := checkText(e.By, 0, 100, unicode.IsGraphic); wrong != "" {
		return err("By: %s", wrong)
	}
	return nil
}

// checkText says what is wrong with a text that must have least to most bytes of UTF-8, in runes that are allowed, or
// nothing.
func checkText(text string, least, most int, allowed func(rune) bool) string {
	switch {
	case len(text) < least || len(text) > most:
		return fmt.Sprintf("%d bytes; want %d to %d", len(text), least, most)
	case !utf8.ValidString(text):
		return "not valid UTF-8; want printable UTF-8"
	}
	for _, r := range text {
		if !allowed(r) {
			return fmt.Sprintf("it has %q; want printable UTF-8", r)
		}
	}
	return ""
}

// reasons are those of the gaps that this package knows.
var reasons = [...]string{
	exchange.CallerLeft: CallerLeft, exchange.NotReplicated: NotReplicated, exchange.AnswerLost: AnswerLost,
	exchange.Raised: Raised, exchange.BlockSkipped: BlockSkipped, exchange.BlockBurned: BlockBurned,
}

// Flush waits until [Hooks].Unused has received all unused numbers, also those whose callers have left while Redis has
// yet to answer. Call it before a process ends, not from the hook: what was not reported stays unexplained. The error
// is ctx's, if that ends before; the rest is reported all the same. Without such a hook there is nothing to wait for.
func (g *Generator) Flush(ctx context.Context) error {
	if g.reporter == nil {
		return nil
	}
	idle := g.reporter.flush()
	select {
	case <-idle:
		return nil
	default:
	}
	select {
	case <-idle:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("serial: Flush: gave up waiting until all unused numbers are reported: %w", ctx.Err())
	}
}

const (
	mostWaiting = 10_000      // explanations, at most
	gatherFor   = time.Second // attempts without an answer become one explanation for so long
)

// A reporter reports gaps to hooks, in a goroutine that lives only while an explanation waits.
type reporter struct {
	hooks  []func(context.Context, Explanation)
	ledger bool
	series func(typ string) string
	local  func(unix int64) time.Time

	mu       sync.Mutex // guards all below
	queue    *backlog.Queue[gapKey]
	expected int           // explanations that may still come
	running  bool          // the goroutine lives
	idle     chan struct{} // closed when nothing is left to report; nil if nobody waits for that
}

// A gapKey is what the entries of the queue have in common that may be merged.
type gapKey struct {
	typ   string
	start int64 // of the period, Unix seconds
	cause exchange.Cause
}

// newReporter returns a reporter, or nil if no hook wants its reports.
func newReporter(c *config) *reporter {
	r := &reporter{ledger: c.ledger != nil, series: c.series, local: c.local, queue: backlog.New[gapKey](mostWaiting)}
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

// possible reports whether a cause is a possible reason.
func (r *reporter) possible(c exchange.Cause) bool {
	return c == exchange.AnswerLost || c == exchange.Raised || c == exchange.BlockSkipped ||
		c == exchange.NotReplicated && !r.ledger
}

// report has a gap reported. Attempts without an answer gather first.
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

// start starts the goroutine, unless it lives. The caller holds mu.
func (r *reporter) start() {
	if !r.running {
		r.running = true
		go r.run()
	}
}

// run reports to the hooks until nothing waits.
func (r *reporter) run() {
	ended := false
	defer func() {
		if !ended { // a hook ended the goroutine
			go r.run()
		}
	}()
	for e, ok := r.next(); ok; e, ok = r.next() {
		for _, hook := range r.hooks {
			tell(context.Background(), hook, e)
		}
	}
	ended = true
}

// next returns the explanation to report, or false if none waits.
func (r *reporter) next() (Explanation, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if e, ok := r.queue.Next(); ok {
		return r.explanation(e), true
	}
	r.running = false
	r.settle()
	return Explanation{}, false
}

// explanation puts an entry of the queue into words.
func (r *reporter) explanation(e backlog.Entry[gapKey]) Explanation {
	k, reason, possible := e.Key, reasons[e.Key.cause], r.possible(e.Key.cause)
	if k.cause == exchange.AnswerLost {
		reason += fmt.Sprintf(": %d attempt", e.Merged)
		if e.Merged > 1 {
			reason += "s"
		}
	}
	if e.Dropped > 0 {
		reason += fmt.Sprintf("; %d other explanations were dropped before, since too many were waiting", e.Dropped)
	}
	return Explanation{
		Series: r.series(k.typ), Type: k.typ, Start: r.local(k.start), First: e.First, Last: e.Last,
		Reason: reason, At: e.At, Unused: !possible, Possible: possible,
	}
}

// expect adds to the number of explanations that may still come.
func (r *reporter) expect(n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.expected += n
	r.settle()
}

// flush has reported what gathers, and returns a channel that is closed once nothing is left to report.
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

// settle wakes the callers of Flush if nothing is left to report. What gathers meanwhile is reported once nothing more
// is expected. The caller holds mu.
func (r *reporter) settle() {
	if r.idle == nil || r.expected > 0 {
		return
	}
	r.settleGathering()
	if !r.running {
		close(r.idle)
		r.idle = nil
	}
}

// settleGathering has reported what gathers. The caller holds mu.
func (r *reporter) settleGathering() {
	if r.queue.Gathering() > 0 {
		r.queue.SettleAll()
		r.start()
	}
}
