package series

import (
	"strings"

	"github.com/dailyserial/serial/internal/wire"
)

// A Gap is a range of sequences of a type and period that were not returned to a caller, or may not have been returned.
type Gap struct {
	Type        string // "" if callers of several types may have shared the request
	Span        *Target
	First, Last int64
	Cause       Cause
}

// A Cause is the reason for a gap.
type Cause int

const (
	CallerLeft    Cause = iota // the call was canceled before its reply arrived
	NotReplicated              // replicas did not confirm the numbers
	BlockBurned                // the block of the ledger cannot be used any more

	// The other causes are only possible, because some of the sequences may have been issued.
	AnswerLost   // a request got no reply, but its script may have run
	Raised       // an operator raised the counter above the sequences
	BlockSkipped // a block of the ledger began above the counter
)

// gaps reports gaps. The functions are nil if there is no hook.
type gaps struct {
	report  func(Gap)
	pending func(int) // receives changes in the number of gaps that may still be reported
	limit   int64     // largest sequence
	probe   *Target   // span of requests that only get the server's time
}

// addPending adds n to the number of gaps that may still be reported.
func (g *gaps) addPending(n int) {
	if g.pending != nil {
		g.pending(n)
	}
}

// skip reports the sequences from after+1 to last, if there are any. It returns the larger of after and last.
func (g *gaps) skip(typ string, s *Target, cause Cause, after, last int64) int64 {
	if g.report != nil && after < last {
		// typ may be part of a large string.
		g.report(Gap{Type: strings.Clone(typ), Span: s, First: after + 1, Last: last, Cause: cause})
	}
	return max(after, last)
}

// lost reports that an attempt without a reply may have taken sequences. They can be any sequences above the high-water
// mark. There is no report for a repeatable request, because its number is stored, or for a request that only gets the
// server's time.
func (g *gaps) lost(r *request) {
	if r.n > 0 && r.requestID == "" && r.span != g.probe {
		g.skip(r.typ, r.span, AnswerLost, r.highWater, g.limit)
	}
}

// granted contains the parts of a grant that are needed to report the gaps that it causes.
type granted struct {
	floor  int64 // answer of the floor, or 0 if the floor was not queried; sequences up to it count as used
	seq    int64 // operator's sequence, or 0 if none
	after  int64 // first sequence of the block, minus 1
	upto   int64 // last sequence of the block, or 0 if there is no block
	follow bool  // whether the block directly follows the previous one
	mixed  bool  // whether processes without a ledger may issue numbers of the block
}

// ended reports the gaps of a finished request: numbers that replicas did not confirm, sequences that the grant
// skipped, and the block of the grant if it cannot be used any more.
func (g *gaps) ended(r *request) {
	n := int64(r.reply.Count)
	if r.reply.Unconfirmed != nil && r.reply.Status == Issued && r.requestID == "" {
		g.skip(r.typ, r.span, NotReplicated, r.reply.Last-n, r.reply.Last)
	}
	if r.options == nil || r.options.Grant == nil {
		return
	}
	contents, upto := &r.granted, r.reply.Upto
	if from := r.reply.From; upto > 0 && from >= 0 {
		at := max(from, contents.floor)
		if contents.upto > 0 && !(contents.seq > 0 && contents.follow) {
			at = g.skip(r.typ, r.span, BlockSkipped, at, min(contents.after, upto))
		}
		g.skip(r.typ, r.span, Raised, at, min(contents.seq, upto))
	}
	if contents.upto > 0 && (r.err == nil && r.burnsBlock() || r.err != nil && wire.Unsent(r.err)) {
		g.burn(r)
	}
}

// burn reports the block of a request, if it has one, as a gap. It reports nothing if processes without a ledger may
// issue numbers of the block.
func (g *gaps) burn(r *request) {
	if contents := &r.granted; !contents.mixed {
		g.skip(r.typ, r.span, BlockBurned, contents.after, contents.upto)
	}
}

// burnsBlock reports whether the reply shows that the block was not installed and that no process without a ledger can
// issue its numbers. For the statuses that are listed, the reply does not contain whether there are such processes.
func (r *request) burnsBlock() bool {
	switch p := &r.reply; p.Status {
	case Issued, Conflict, Calendar, OtherPrint, Lost, clocked: // after clocked, install sends the block again
		return false
	case Exhausted:
		return p.Upto == 0
	default:
		return !p.Mixed
	}
}
