package issue

import (
	"strings"

	"github.com/dailyserial/serial/internal/redisrun"
	"github.com/dailyserial/serial/internal/store"
)

// A Gap is sequences of a type and period that nobody has received, and why.
type Gap struct {
	Type        string
	Span        *Span
	First, Last int64
	Count       int64 // how many of them at most; 0 for all
	Cause       Cause
}

// A Cause is why nobody has received numbers.
type Cause int

const (
	CallerLeft    Cause = iota // before the answer came
	NotReplicated              // replicas did not confirm them
	AnswerLost                 // or the script did not run
	Raised                     // an operator lifted the counter over them
	BlockSkipped               // by a block that did not follow on
)

// expect adds to the count of what may still turn out to be a gap.
func (i *Issuer) expect(n int) {
	if i.Expect != nil {
		i.Expect(n)
	}
}

// explain tells of a gap, if it has any sequence.
func (i *Issuer) explain(g Gap) {
	if i.Explain != nil && g.First <= g.Last {
		g.Type = strings.Clone(g.Type) // it may be a part of something large
		i.Explain(g)
	}
}

// explainLast explains the last n sequences up to last.
func (i *Issuer) explainLast(typ string, s *Span, cause Cause, last, n int64) {
	if n > 0 {
		i.explain(Gap{Type: typ, Span: s, First: last - n + 1, Last: last, Cause: cause})
	}
}

// explainLost explains the numbers that an attempt may have taken whose answer is lost: any above the high-water mark of then.
func (i *Issuer) explainLost(typ string, s *Span, asked store.Asked) {
	if first := asked.HighWater + 1; asked.N > 0 && first <= i.Limit && s != i.nowhere { // where nothing is counted
		n := min(int64(asked.N), i.Limit-first+1)
		i.explain(Gap{Type: typ, Span: s, First: first, Last: i.Limit, Count: n, Cause: AnswerLost})
	}
}

// settle explains attempts once the client is done with them. A late answer is exact, and tells where the counter is.
func (n *node) settle(typ string, s *Span, attempts []store.Attempt, asked store.Asked) {
	for _, attempt := range attempts {
		n.issuer.expect(1)
		go func() {
			defer n.issuer.expect(-1)
			late, err := attempt()
			switch {
			case err == nil:
				if n.observe(typ, s, &late) == nil && late.Status == store.Issued && !asked.Once {
					n.issuer.explainLast(typ, s, CallerLeft, late.Last, int64(late.Count))
				}
			case !redisrun.Unsent(err):
				n.issuer.explainLost(typ, s, asked)
			}
		}()
	}
}

// leftBehind explains the number of a member that has left its batch.
func (n *node) leftBehind(b *batch, place int) {
	defer n.issuer.expect(-1)
	if r, err := b.Result(); err == nil && r.Status == store.Issued && place < r.Count {
		n.issuer.explainLast(b.Key.typ, b.Payload.span, CallerLeft, r.Last-int64(r.Count-1-place), 1)
	}
}

// settle explains what the last script left unanswered. A request that comes again gets the number that an earlier attempt took: so
// only its last attempt counts, if the call ends without an answer.
func (s *session) settle(r *store.Reply, err error) {
	if !r.Once {
		s.node.settle(s.typ, s.span, r.Unanswered, r.Asked)
		return
	}
	if lost := len(r.Unanswered); lost > 0 && (err != nil || r.Status == store.Late && r.Now.IsZero()) {
		s.unanswered, s.asked = r.Unanswered[lost-1:], r.Asked
	} else if err == nil {
		s.unanswered = nil
	}
}

// settleRest explains, at the end of a call, the last attempt at the number of a request, and a script in which a hook has panicked.
func (s *session) settleRest() {
	s.node.settle(s.typ, s.span, s.unanswered, s.asked)
	s.issuer.explainLost(s.typ, s.span, s.sent)
	s.unanswered, s.sent = nil, store.Asked{}
}

// explainSkipped explains the sequences that open has skipped, also where its answer comes late or never.
func (a *attempt) explainSkipped(span *Span, o *store.Open, r *store.Reply) {
	a.explainLift(span, o, r)
	for i, attempt := range r.Unanswered {
		r.Unanswered[i] = func() (store.Reply, error) {
			late, err := attempt()
			if err != nil && !redisrun.Unsent(err) {
				a.explainBlindLift(span, o)
			}
			a.explainLift(span, o, &late)
			return late, err
		}
	}
}

// explainLift explains the sequences that open has skipped, from where the counter stood. A floor's were used.
func (a *attempt) explainLift(span *Span, o *store.Open, r *store.Reply) {
	if at := max(r.From, a.floor); r.From >= 0 {
		at = a.explainTo(span, Raised, at, min(a.seq, r.Upto), 0)
		a.explainTo(span, BlockSkipped, at, min(o.Block.Before(), r.Upto), 0)
	} else { // it was lost, so nobody knows how far it had come
		at = max(at, a.seq, o.HighWater)
		a.explainTo(span, BlockSkipped, at, min(o.Block.Before(), r.Upto), a.call.session.issuer.Block)
	}
}

// explainBlindLift explains what open skips if it has run, which nobody knows, from what was known before.
func (a *attempt) explainBlindLift(span *Span, o *store.Open) {
	if a.at >= 0 {
		a.explainTo(span, Raised, max(a.at, a.floor), a.seq, 0)
	}
	a.explainTo(span, BlockSkipped, max(a.above, a.seq), o.Block.Before(), a.call.session.issuer.Block)
}

// explainTo explains the sequences behind at, and returns the last one of them.
func (a *attempt) explainTo(span *Span, cause Cause, at, last, count int64) int64 {
	if at < last {
		s := &a.call.session
		s.issuer.explain(Gap{Type: s.typ, Span: span, First: at + 1, Last: last, Count: min(count, last-at), Cause: cause})
	}
	return max(at, last)
}
