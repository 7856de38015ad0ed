package exchange

import (
	"strings"

	"github.com/dailyserial/serial/internal/redisrun"
	"github.com/dailyserial/serial/internal/store"
)

// A Gap is sequences of a type and period that nobody has received, or may not have received, and why.
type Gap struct {
	Type        string
	Span        *Span
	First, Last int64
	Cause       Cause
}

// A Cause is why nobody has received numbers.
type Cause int

const (
	CallerLeft    Cause = iota // before the answer came
	NotReplicated              // replicas did not confirm them
	BlockBurned                // a block of the ledger that can no longer be installed

	// These are only possible: callers may have some of the numbers.
	AnswerLost   // or the script did not run
	Raised       // an operator lifted the counter over them
	BlockSkipped // by a block that did not follow on
)

// gaps reports gaps. Its functions are nil if nobody wants to know.
type gaps struct {
	report     func(Gap)
	pending    func(int) // adds to the count of reports that may still come
	limit      int64     // the largest sequence
	clockProbe *Span
}

// addPending adds to the count of reports that may still come.
func (g *gaps) addPending(n int) {
	if g.pending != nil {
		g.pending(n)
	}
}

// skip reports the sequences after one up to another, unless there are none. It returns the greater of the two.
func (g *gaps) skip(typ string, s *Span, cause Cause, after, last int64) int64 {
	if g.report != nil && after < last {
		// typ may share memory with a large string.
		g.report(Gap{Type: strings.Clone(typ), Span: s, First: after + 1, Last: last, Cause: cause})
	}
	return max(after, last)
}

// lost reports an attempt whose answer is lost: it may have taken any numbers above the high-water mark before it.
// Nothing is reported for a repeatable request: its own key has its number.
func (g *gaps) lost(typ string, s *Span, asked store.Requested) {
	if asked.N > 0 && !asked.Repeatable && s != g.clockProbe { // where nothing is counted
		g.skip(typ, s, AnswerLost, asked.HighWater, g.limit)
	}
}

// A Lift is why an opening may skip sequences.
type Lift struct {
	Floor int64 // the floor's answer, 0 if it was not asked: these numbers were used
	Seq   int64 // an operator's, 0 for none
	Mixed bool  // callers without a ledger may issue numbers of the block
}

// opening reports what an Open has skipped, and its block if that can no longer be installed, now or when the answer
// comes late.
func (g *gaps) opening(span *Span, o *store.Open, lift Lift, r *store.Reply, err error) {
	if g.report == nil {
		return
	}
	g.skipped(span, o, lift, r)
	if len(r.Unanswered) == 0 { // else an attempt before may have installed the block, or may yet
		g.burned(span, o, lift, r, err)
	}
	for i, attempt := range r.Unanswered {
		r.Unanswered[i] = func() (store.Reply, error) {
			late, err := attempt()
			g.skipped(span, o, lift, &late)
			if o.Purpose == "" { // else another attempt may have installed the block
				g.burned(span, o, lift, &late, err)
			}
			return late, err
		}
	}
}

// skipped reports what an Open has skipped, from the position of the counter, as its own reply says. If the counter was
// lost, nobody knows its position.
func (g *gaps) skipped(span *Span, o *store.Open, lift Lift, r *store.Reply) {
	if s := r.Skipped; s.Upto > 0 && s.From >= 0 {
		at := g.skip(o.Type, span, Raised, max(s.From, lift.Floor), min(lift.Seq, s.Upto))
		if o.Block != nil {
			g.skip(o.Type, span, BlockSkipped, at, min(o.Block.After, s.Upto))
		}
	}
}

// usedByOthers are the statuses of a period that callers with other settings may have entered, and issued numbers of.
var usedByOthers = map[store.Status]bool{
	store.Conflict: true, store.Calendar: true, store.OtherPrint: true, store.Lost: true,
}

// burned reports the block of an Open that was sent once, if the Open has not run, or has not installed the block.
func (g *gaps) burned(span *Span, o *store.Open, lift Lift, r *store.Reply, err error) {
	refused := err == nil && r.Status != store.Issued && r.Skipped.Upto == 0 && !r.Granted.Mixed && !usedByOthers[r.Status]
	if o.Block != nil && (refused || err != nil && redisrun.Unsent(err)) {
		g.burn(o.Type, span, *o.Block, lift.Mixed)
	}
}

// burn reports a block that was set aside and can no longer be installed. Nobody has its numbers, unless callers
// without a ledger were issuing numbers when it was set aside.
func (g *gaps) burn(typ string, span *Span, block store.Block, mixed bool) {
	if !mixed {
		g.skip(typ, span, BlockBurned, block.After, block.Upto)
	}
}
