package serial

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/dailyserial/serial/internal/issue"
	"github.com/dailyserial/serial/internal/template"
)

// These begin the Reason of an [Explanation] that this package gives.
const (
	// CallerLeft: the caller's context or time ended, and the answer with its numbers came later. Nobody got them.
	CallerLeft = "caller left"
	// NotReplicated: the call returned [ErrNotReplicated].
	NotReplicated = "not replicated"
	// AnswerLost: an attempt that may have counted got no answer, or an error that does not prove that nothing ran.
	AnswerLost = "answer lost"
	// Raised: [Generator.Raise] or [Generator.Takeover] lifted the counter over them.
	Raised = "raised"
	// BlockSkipped: a block of the ledger did not follow on from the position of the counter.
	BlockSkipped = "block skipped"
)

// An Explanation says why numbers of a type are missing in a period. [Hooks].Unused receives what a [Generator] knows; an
// application makes its own for what it knows, such as a document that was voided. [WithExplanations] gives them to an audit.
type Explanation struct {
	Series      string // as [Scheme.Series] returns it, such as "serial:IS"; it tells key prefixes apart
	Type        string
	Start       time.Time // first instant of the period
	First, Last int64     // sequences, both included: 1 to 10^15-1, in order
	Count       int64     // how many of First to Last are explained at most, up to all of them; 0 for all
	Reason      string    // 1 to 500 bytes of printable UTF-8; see [CallerLeft] and the other constants
	By          string    // who says so, a person or a job: at most 100 bytes of printable UTF-8; "" for this package
	At          time.Time // when that was said; not zero
	Unused      bool      // nobody got them, so that no document may have them; only with Count 0
}

// Validate returns an error that says which field breaks its bounds, and what is allowed; nil if none does.
func (e Explanation) Validate() error {
	const most = template.MaxSequence
	size := e.Last - e.First + 1
	err := func(format string, args ...any) error {
		return fmt.Errorf("serial: explanation of %s %d to %d: "+format, append([]any{e.Type, e.First, e.Last}, args...)...)
	}
	switch {
	case e.First < 1 || e.First > e.Last || e.Last > most:
		return err("allowed are sequences of 1 to %d, in order", most)
	case e.Count < 0 || e.Count > size:
		return err("Count %d: allowed are 0, for all of them, to %d", e.Count, size)
	case e.At.IsZero():
		return err("At is zero; it is when the explanation was given")
	case e.Unused && e.Count != 0:
		return err("Unused with Count %d: allowed with Count 0 only", e.Count)
	}
	if wrong := checkText(e.Reason, 1, 500); wrong != "" {
		return err("Reason: %s", wrong)
	}
	if wrong := checkText(e.By, 0, 100); wrong != "" {
		return err("By: %s", wrong)
	}
	return nil
}

// checkText says what is wrong with a text that has to be so many bytes of printable UTF-8, or nothing.
func checkText(text string, least, most int) string {
	switch {
	case len(text) < least || len(text) > most:
		return fmt.Sprintf("%d bytes; allowed are %d to %d", len(text), least, most)
	case !utf8.ValidString(text):
		return "not valid UTF-8; allowed is printable UTF-8"
	}
	for _, r := range text {
		if !unicode.IsPrint(r) {
			return fmt.Sprintf("it has %q; allowed is printable UTF-8", r)
		}
	}
	return ""
}

// reasons are those of the gaps that this package knows.
var reasons = [...]string{
	issue.CallerLeft: CallerLeft, issue.NotReplicated: NotReplicated, issue.AnswerLost: AnswerLost,
	issue.Raised: Raised, issue.BlockSkipped: BlockSkipped,
}

// tellGap has the hooks told of a gap.
func (g *Generator) tellGap(gap issue.Gap) {
	g.teller.add(Explanation{
		Series: g.series(gap.Type), Type: gap.Type, Start: g.local(gap.Span.Start),
		First: gap.First, Last: gap.Last, Count: gap.Count,
		Reason: reasons[gap.Cause], At: time.Now(), Unused: gap.Cause == issue.CallerLeft,
	})
}

// Flush waits until [Hooks].Unused has been told of all unused numbers, also of those whose callers have left while Redis has yet to
// answer. Call it before a process ends, not from the hook: what was not told stays unexplained. The error is ctx's, if that ends
// before; what is still to be told is told all the same. Without such a hook there is nothing to wait for.
func (g *Generator) Flush(ctx context.Context) error {
	if g.teller == nil {
		return nil
	}
	told := g.teller.idle()
	select {
	case <-told:
		return nil
	default:
	}
	select {
	case <-told:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("serial: Flush: gave up waiting until all unused numbers are explained: %w", ctx.Err())
	}
}

// mostWaiting is how many explanations wait at most.
const mostWaiting = 10_000

// A teller tells hooks of unused numbers, in a goroutine that is there only while an explanation waits.
type teller struct {
	hooks []func(context.Context, Explanation)

	mu       sync.Mutex // guards all below
	queue    []*waiting // in order, merged ones included
	count    int        // explanations in the queue that are not merged
	alike    map[likeness][]*waiting
	several  map[likeness]struct{} // likenesses of two and more
	dropped  int                   // explanations, since one was told
	expected int                   // explanations that may still come
	running  bool                  // the goroutine is there
	told     chan struct{}         // closed when all are told; nil if nobody waits for that
}

// A waiting explanation is one that the hooks have not been told.
type waiting struct {
	Explanation
	merged bool // into an older one
}

// A likeness is what explanations have in common that may be merged.
type likeness struct {
	typ, reason string
	start       int64
}

func (e *Explanation) likeness() likeness { return likeness{e.Type, e.Reason, e.Start.Unix()} }

// newTeller returns a teller, or nil if no hook wants to be told.
func newTeller(hooks []Hooks) *teller {
	t := &teller{alike: map[likeness][]*waiting{}, several: map[likeness]struct{}{}}
	for _, h := range hooks {
		if h.Unused != nil {
			t.hooks = append(t.hooks, h.Unused)
		}
	}
	if t.hooks == nil {
		return nil
	}
	return t
}

// add has an explanation told.
func (t *teller) add(e Explanation) {
	t.mu.Lock()
	defer t.mu.Unlock()
	l := e.likeness()
	if t.count == mostWaiting && !t.makeRoom(l) {
		if old := t.alike[l]; len(old) > 0 {
			old[0].merge(&e)
		} else {
			t.dropped++
		}
		return
	}
	w := &waiting{Explanation: e}
	t.queue, t.alike[l] = append(t.queue, w), append(t.alike[l], w)
	if len(t.alike[l]) > 1 {
		t.several[l] = struct{}{}
	}
	t.count++
	if !t.running {
		t.running = true
		go t.run()
	}
}

// makeRoom merges the two oldest explanations that are alike, of that likeness if there are two. The caller holds mu.
func (t *teller) makeRoom(l likeness) bool {
	if len(t.several) == 0 {
		return false
	}
	if len(t.alike[l]) < 2 {
		for l = range t.several {
			break
		}
	}
	oldest, next := t.alike[l][0], t.alike[l][1]
	oldest.merge(&next.Explanation)
	next.merged = true
	t.alike[l][1] = oldest
	t.forgetOldest(l)
	if len(t.queue) >= 2*mostWaiting {
		t.queue = slices.DeleteFunc(t.queue, func(w *waiting) bool { return w.merged })
	}
	return true
}

// forgetOldest removes the first explanation of a likeness, which is told or merged. The caller holds mu.
func (t *teller) forgetOldest(l likeness) {
	t.count--
	rest := t.alike[l][1:]
	t.alike[l] = rest
	if len(rest) < 2 {
		delete(t.several, l)
	}
	if len(rest) == 0 {
		delete(t.alike, l)
	}
}

// merge adds an explanation that is alike: as many sequences in a range that has both.
func (w *waiting) merge(e *Explanation) {
	count := cmp.Or(w.Count, w.Last-w.First+1) + cmp.Or(e.Count, e.Last-e.First+1)
	w.First, w.Last = min(w.First, e.First), max(w.Last, e.Last)
	w.Count, w.Unused, w.At = min(count, w.Last-w.First+1), false, e.At
}

// run tells the hooks until nothing waits.
func (t *teller) run() {
	ended := false
	defer func() {
		if !ended { // a hook ended the goroutine
			go t.run()
		}
	}()
	for e := t.next(); e != nil; e = t.next() {
		for _, hook := range t.hooks {
			tell(context.Background(), hook, *e)
		}
	}
	ended = true
}

// next returns the explanation to be told, or nil if none waits.
func (t *teller) next() *Explanation {
	t.mu.Lock()
	defer t.mu.Unlock()
	for len(t.queue) > 0 {
		w := t.queue[0]
		t.queue = t.queue[1:]
		if w.merged {
			continue
		}
		t.forgetOldest(w.likeness())
		if t.dropped > 0 {
			w.Reason += fmt.Sprintf("; %d other explanations were dropped before, since too many were waiting", t.dropped)
			t.dropped = 0
		}
		return &w.Explanation
	}
	t.queue, t.running = nil, false
	t.settle()
	return nil
}

// expect adds to the number of explanations that may still come.
func (t *teller) expect(n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.expected += n
	t.settle()
}

// idle returns a channel that is closed once all are told.
func (t *teller) idle() <-chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.told == nil {
		t.told = make(chan struct{})
	}
	told := t.told
	t.settle()
	return told
}

// settle lets those go on who wait until all are told, if all are. The caller holds mu.
func (t *teller) settle() {
	if t.told != nil && t.expected == 0 && !t.running {
		close(t.told)
		t.told = nil
	}
}
