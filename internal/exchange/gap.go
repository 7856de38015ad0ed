package exchange

import (
	"strings"

	"github.com/dailyserial/serial/internal/redisrun"
	"github.com/dailyserial/serial/internal/store"
)

// A Gap is a range of sequences of a type and period that nobody received, or may have received, and the cause.
type Gap struct {
	Type        string // "" if callers of several types may have shared the request
	Span        *Span
	First, Last int64
	Cause       Cause
}

// A Cause is the reason for a gap.
type Cause int

const (
	CallerLeft    Cause = iota // the caller left before the answer came
	NotReplicated              // replicas did not confirm the numbers
	BlockBurned                // the ledger's block can no longer be installed

	// These are possible causes: callers may have some of the numbers.
	AnswerLost   // the script may not have run
	Raised       // an operator lifted the counter over them
	BlockSkipped // the ledger's block did not follow on from the counter
)

// gaps reports gaps. Its functions are nil if nobody wants reports.
type gaps struct {
	report     func(Gap)
	pending    func(int) // adds to the count of reports that may still come
	limit      int64     // the largest sequence
	clockProbe *Span
}

// addPending adds n to the count of reports that may still come.
func (g *gaps) addPending(n int) {
	if g.pending != nil {
		g.pending(n)
	}
}

// skip reports the sequences after+1 to last, unless there are none. It returns the greater of after and last.
func (g *gaps) skip(typ string, s *Span, cause Cause, after, last int64) int64 {
	if g.report != nil && after < last {
		if typ == store.SharedType {
			typ = ""
		}
		// typ may share memory with a large string.
		g.report(Gap{Type: strings.Clone(typ), Span: s, First: after + 1, Last: last, Cause: cause})
	}
	return max(after, last)
}

// lost reports an attempt whose answer is lost: it may have taken any numbers above the previous high-water mark. It
// ignores a repeatable request, whose number is stored.
func (g *gaps) lost(typ string, s *Span, asked store.Requested) {
	if asked.N > 0 && !asked.Repeatable && s != g.clockProbe { // the clock probe counts nothing
		g.skip(typ, s, AnswerLost, asked.HighWater, g.limit)
	}
}

// A Lift says why an opening may skip sequences.
type Lift struct {
	Floor  int64 // floor's answer, 0 if it was not asked: numbers up to it were used
	Ledger int64 // with an operator's sequence, last one set aside before: numbers up to it may have been issued
	Seq    int64 // operator's sequence, 0 for none
	Mixed  bool  // callers without a ledger may issue numbers of the block
}

// opening reports the sequences that an Open skipped, and its block if that can no longer be installed, now or when a
// late answer comes.
func (g *gaps) opening(span *Span, o *store.Open, lift Lift, r *store.Reply, err error) {
	g.skipped(span, o, lift, r)
	if len(r.Unanswered) == 0 { // otherwise an earlier attempt may have installed the block, or still may
		g.burned(span, o, lift, r, err)
	}
	for i, attempt := range r.Unanswered {
		r.Unanswered[i] = func() (store.Reply, error) {
			late, err := attempt()
			g.skipped(span, o, lift, &late)
			if o.Purpose == "" { // otherwise another attempt may have installed the block
				g.burned(span, o, lift, &late, err)
			}
			return late, err
		}
	}
}

// skipped reports the sequences that an Open skipped after the counter's position, as its own reply says. If the
// counter was lost, its position is unknown.
func (g *gaps) skipped(span *Span, o *store.Open, lift Lift, r *store.Reply) {
	if s := r.Skipped; s.Upto > 0 && s.From >= 0 {
		at := g.skip(o.Type, span, BlockSkipped, max(s.From, lift.Floor), min(lift.Ledger, s.Upto))
		at = g.skip(o.Type, span, Raised, at, min(lift.Seq, s.Upto))
		if o.Block != nil {
			g.skip(o.Type, span, BlockSkipped, at, min(o.Block.After, s.Upto))
		}
	}
}

// usedByOthers has the statuses of a period in which callers with other settings may have issued numbers.
var usedByOthers = map[store.Status]bool{
	store.Conflict: true, store.Calendar: true, store.OtherPrint: true, store.Lost: true,
}

// burned reports the block of an Open that was sent once, if the Open did not run or did not install the block.
func (g *gaps) burned(span *Span, o *store.Open, lift Lift, r *store.Reply, err error) {
	refused := err == nil && r.Status != store.Issued && r.Skipped.Upto == 0 && !r.Granted.Mixed && !usedByOthers[r.Status]
	if o.Block != nil && (refused || err != nil && redisrun.Unsent(err)) {
		g.burn(o.Type, span, *o.Block, lift.Mixed)
	}
}

// burn reports a block that can no longer be installed. Nobody has its numbers, unless callers without a ledger were
// issuing numbers when it was set aside.
func (g *gaps) burn(typ string, span *Span, block store.Block, mixed bool) {
	if !mixed {
		g.skip(typ, span, BlockBurned, block.After, block.Upto)
	}
}
