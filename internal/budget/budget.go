// Package budget keeps the time that a call has left, so that all its steps together, and not each of them, end in time.
package budget

import (
	"math"
	"time"
)

const (
	// Answers is how long Redis and the lock servers have to answer, in all.
	Answers = 10 * time.Second
	// Others is how long a call without a deadline waits for others, in all: for who holds the lock, or has a block set aside.
	Others = 30 * time.Second
	// Last is the part of Answers that is kept for one more attempt, a quick one: a process that stood still has used up the rest
	// by itself.
	Last = 500 * time.Millisecond
	// rest is for what a call does besides.
	rest = 100 * time.Millisecond
)

// A Budget is the time that a call has left. What is spent is measured by those who spend it, and limited to what they were
// given: a process that stands still for a minute has not waited for anybody for that long.
//
// It is a value that one goroutine uses at a time. The zero Budget is used up.
type Budget struct {
	answers time.Duration // left for servers to answer
	others  time.Duration // left altogether, while others are at work
}

// New returns the budget of a call. Its context ends its wait for others if that has a deadline.
func New(deadline bool) Budget {
	if deadline {
		return Budget{Answers, math.MaxInt64}
	}
	return Budget{Answers, Others}
}

// Attempt is the limit of the next attempt to get an answer. The last one is short. After that the limit is 0 or less.
func (b *Budget) Attempt() (limit time.Duration, isLast bool) {
	if limit = b.answers - Last - rest; limit > 0 {
		return limit, false
	}
	return min(Last, b.answers), true
}

// Answer is the time left for an answer, of which an attempt may use all.
func (b *Budget) Answer() time.Duration { return b.answers }

// Wait is the time left to wait for others.
func (b *Budget) Wait() time.Duration { return b.others }

// Spend uses up what a step took. limit is what it was given, beyond which this process stood still.
func (b *Budget) Spend(took, limit time.Duration) {
	b.answers -= min(took, limit)
	b.SpendOthers(took, limit)
}

// SpendOthers is Spend for a step that waited for others, who were waiting for no server.
func (b *Budget) SpendOthers(took, limit time.Duration) { b.others -= min(took, limit) }

// Renew gives servers their time again, since one has just answered that others are at work.
func (b *Budget) Renew() { b.answers = min(Answers, b.others) }
