// Package budget keeps the time that a call has left, so all its steps together end in time, and not just each of them.
package budget

import (
	"math"
	"time"
)

const (
	// Answers is how long Redis and the lock servers have to answer, in all.
	Answers = 10 * time.Second
	// Others is how long a call without a deadline waits for others, in all: for holders of the lock, or of the claim
	// to a block.
	Others = 30 * time.Second
	// Last is the part of Answers kept for one more, quick attempt: a process that was suspended has used up the rest
	// by itself.
	Last = 500 * time.Millisecond
	// rest is the part of Answers for everything else that a call does.
	rest = 100 * time.Millisecond
	// First is the limit of a call's first attempt.
	First = Answers - Last - rest
	// Step is how long a call waits before it looks again. No more is charged if this process is suspended meanwhile.
	Step = 250 * time.Millisecond
)

// A Budget is the time that a call has left. A step is charged the time it took, but no more than it was given: a
// process that was suspended for a minute has not waited for anybody for that long.
//
// One goroutine uses a Budget at a time. The zero Budget is used up.
type Budget struct {
	answers time.Duration // left for servers to answer
	others  time.Duration // left in all, while others are at work
}

// New returns the budget of a call. If the call's context has a deadline, only that ends its wait for others.
func New(deadline bool) Budget {
	if deadline {
		return Budget{Answers, math.MaxInt64}
	}
	return Budget{Answers, Others}
}

// NextLimit returns the limit of the next attempt to get an answer. The last one is short. After that, the limit is 0 or
// less.
func (b *Budget) NextLimit() (limit time.Duration, isLast bool) {
	if limit = b.answers - Last - rest; limit > 0 {
		return limit, false
	}
	return min(Last, b.answers), true
}

// Answer returns the time left for servers to answer, Last included.
func (b *Budget) Answer() time.Duration { return b.answers }

// IsLate reports whether less than half of the time for answers is left. That a server does not answer within the rest
// says little to others, who may have more time.
func (b *Budget) IsLate() bool { return b.answers < Answers/2 }

// Wait returns the time left to wait for others.
func (b *Budget) Wait() time.Duration { return b.others }

// Spend charges the time that a step took, up to limit, the time it was given: beyond that, this process was suspended.
func (b *Budget) Spend(took, limit time.Duration) {
	b.answers -= min(took, limit)
	b.SpendOthers(took, limit)
}

// SpendOthers is Spend for a step that waited for others while they waited for no server.
func (b *Budget) SpendOthers(took, limit time.Duration) { b.others -= min(took, limit) }

// Renew gives servers all their time again, because one has just answered that others are at work.
func (b *Budget) Renew() { b.answers = min(Answers, b.others) }
