package series

import (
	"strings"

	"github.com/dailyserial/serial/internal/wire"
)

// A Gap is a range of sequences of a type and period that were not returned, or perhaps not, and the cause.
type Gap struct {
	Type        string // "" if callers of several types may have shared the request
	Span        *Target
	First, Last int64
	Cause       Cause
}

// A Cause is the reason for a gap.
type Cause int

const (
	CallerLeft    Cause = iota // the call ended before its reply came
	NotReplicated              // replicas did not confirm the numbers
	BlockBurned                // the ledger's block can no longer be installed

	// These are possible causes: callers may have some of the numbers.
	AnswerLost   // the script may not have run
	Raised       // an operator raised the counter over them
	BlockSkipped // the ledger's block did not follow on from the counter
)

// gaps reports gaps. Its functions are nil if there is no hook for them.
type gaps struct {
	report  func(Gap)
	pending func(int) // adds to the count of reports that may still come
	limit   int64     // the largest sequence
	probe   *Target
}

// addPending adds n to the count of reports that may still come.
func (g *gaps) addPending(n int) {
	if g.pending != nil {
		g.pending(n)
	}
}

// skip reports the sequences after+1 to last, unless there are none. It returns the larger of after and last.
func (g *gaps) skip(typ string, s *Target, cause Cause, after, last int64) int64 {
	if g.report != nil && after < last {
		// typ may share memory with a large string.
		g.report(Gap{Type: strings.Clone(typ), Span: s, First: after + 1, Last: last, Cause: cause})
	}
	return max(after, last)
}

// lost reports an attempt without an answer: it may have taken any numbers above the previous high-water mark. The number
// of a repeatable request is stored, and the clock probe takes none.
func (g *gaps) lost(r *request) {
	if r.n > 0 && r.once == "" && r.span != g.probe {
		g.skip(r.typ, r.span, AnswerLost, r.highWater, g.limit)
	}
}

// lifts is what a grant was made of, for the report of what it skipped.
type lifts struct {
	floor  int64 // floor's answer, 0 if it was not queried: numbers up to it were used
	seq    int64 // operator's sequence, 0 for none
	after  int64 // sequence before the block
	upto   int64 // last sequence of the block, 0 without a ledger
	follow bool  // the block follows the one before it
	mixed  bool  // callers without a ledger may issue numbers of the block
}

// ended reports what a finished request skipped or burned.
func (g *gaps) ended(r *request) {
	n := int64(r.reply.Count)
	if r.reply.Unconfirmed != nil && r.reply.Status == Issued && r.once == "" {
		g.skip(r.typ, r.span, NotReplicated, r.reply.Last-n, r.reply.Last)
	}
	if r.options == nil || r.options.Grant == nil {
		return
	}
	l, upto := &r.lifts, r.reply.Upto
	if from := r.reply.From; upto > 0 && from >= 0 {
		at := max(from, l.floor)
		if l.upto > 0 && !(l.seq > 0 && l.follow) {
			at = g.skip(r.typ, r.span, BlockSkipped, at, min(l.after, upto))
		}
		g.skip(r.typ, r.span, Raised, at, min(l.seq, upto))
	}
	if l.upto > 0 && (r.err == nil && r.isRefused() || r.err != nil && wire.Unsent(r.err)) {
		g.burn(r)
	}
}

// burn reports the block of a request, if it has one and it is known that no caller has its numbers.
func (g *gaps) burn(r *request) {
	if l := &r.lifts; !l.mixed {
		g.skip(r.typ, r.span, BlockBurned, l.after, l.upto)
	}
}

// isRefused reports whether the reply says that the block was not installed, and that no caller with other settings can
// have its numbers.
func (r *request) isRefused() bool {
	switch p := &r.reply; p.Status {
	case Issued, Conflict, Calendar, OtherPrint, Lost, clocked: // after clocked, the block is sent again
		return false
	case Exhausted:
		return p.Upto == 0
	default:
		return !p.Mixed
	}
}
