// Package budget tracks the time that a call has left, so the call as a whole ends in time, not just each step.
package budget

import (
	"math"
	"time"
)

const (
	// Answers is the total time for Redis and the lock servers to answer.
	Answers = 10 * time.Second
	// Others is the total time that a call without a deadline waits for others: for holders of the lock, or of the
	// claim to a block.
	Others = 30 * time.Second
	// Last is the part of Answers reserved for one last, quick attempt, in case the rest passed while the process was
	// suspended.
	Last = 500 * time.Millisecond
	// rest is the part of Answers for the call's other work.
	rest = 100 * time.Millisecond
	// First is the limit of a call's first attempt.
	First = Answers - Last - rest
	// Step is how long a call waits before it checks again. No more is charged if this process is suspended meanwhile.
	Step = 250 * time.Millisecond
)

// A Budget is the time that a call has left. It is charged the time that a step took, but at most the time allowed for
// the step: a process suspended for a minute has not waited a minute for anybody.
//
// One goroutine uses a Budget at a time. The zero Budget is used up.
type Budget struct {
	answers time.Duration // time left for servers to answer
	others  time.Duration // time left in all, while others are at work
}

// New returns the budget of a call. If the call's context has a deadline, only the deadline ends its wait for others.
func New(deadline bool) Budget {
	if deadline {
		return Budget{Answers, math.MaxInt64}
	}
	return Budget{Answers, Others}
}

// NextLimit returns the time limit of the next attempt to get an answer. The last attempt is short. After it, the limit
// is 0 or less.
func (b *Budget) NextLimit() (limit time.Duration, isLast bool) {
	if limit = b.answers - Last - rest; limit > 0 {
		return limit, false
	}
	return min(Last, b.answers), true
}

// Answer returns the time left for servers to answer, Last included.
func (b *Budget) Answer() time.Duration { return b.answers }

// IsLate reports whether less than half of the time for answers is left. If a server does not answer within the rest,
// other calls, which may have more time, learn little from it.
func (b *Budget) IsLate() bool { return b.answers < Answers/2 }

// Wait returns the time left to wait for others.
func (b *Budget) Wait() time.Duration { return b.others }

// Spend charges the time that a step took, up to limit, the time allowed for it: during any more time, this process was
// suspended.
func (b *Budget) Spend(took, limit time.Duration) {
	b.answers -= min(took, limit)
	b.SpendOthers(took, limit)
}

// SpendOthers is Spend for a step that waited for others who were not waiting for a server.
func (b *Budget) SpendOthers(took, limit time.Duration) { b.others -= min(took, limit) }

// Renew restores the full time for servers, because one has just answered that others are at work.
func (b *Budget) Renew() { b.answers = min(Answers, b.others) }
