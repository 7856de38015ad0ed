// Package backlog queues ranges to report. A full queue merges ranges that touch, and counts the ranges that it drops.
package backlog

import (
	"cmp"
	"maps"
	"slices"
	"time"
)

// An Entry is a range of sequences. It may be merged into the newest waiting one with its Key.
type Entry[K comparable] struct {
	Key         K
	First, Last int64
	At          time.Time // time of the oldest entry, if several were merged
	Loose       bool      // a full queue merges it even if the ranges do not touch
	Gathers     bool      // it is always merged, and leaves the queue a pace after the previous one with its Key
	Merged      int       // count of merged entries, including this one; 0 means 1
	Dropped     int       // count of entries dropped since the previous one; set by Next
}

// A Queue is a queue of entries, oldest first. Make one with [New].
type Queue[K comparable] struct {
	most    int
	pace    time.Duration
	waiting []*Entry[K]
	newest  map[K]*Entry[K] // newest waiting entry, by key
	due     map[K]time.Time // when an entry that gathers may leave, if another one has left, by key
	dropped int             // count of entries dropped since Next returned an entry
}

// New returns an empty Queue for at most most entries. Those with one key that gather leave it with a pace in between.
func New[K comparable](most int, pace time.Duration) *Queue[K] {
	return &Queue[K]{most: most, pace: pace, newest: map[K]*Entry[K]{}, due: map[K]time.Time{}}
}

// Add adds an entry, or merges it. If the queue is full and the entry cannot be merged, it is dropped.
func (q *Queue[K]) Add(e Entry[K]) {
	e.Merged = max(e.Merged, 1)
	old, full := q.newest[e.Key], len(q.waiting) >= q.most
	switch {
	case old != nil && (e.Gathers || full && (e.Loose || e.First <= old.Last+1 && old.First <= e.Last+1)):
		old.First, old.Last, old.Merged = min(old.First, e.First), max(old.Last, e.Last), old.Merged+e.Merged
	case full:
		q.dropped += e.Merged
	default:
		q.waiting, q.newest[e.Key] = append(q.waiting, &e), &e
	}
}

// Next removes and returns the oldest entry that is due. If hurry is set, all of them are. If none is due, it returns
// nil and how long to wait, 0 if the queue is empty.
func (q *Queue[K]) Next(hurry bool) (next *Entry[K], wait time.Duration) {
	now := time.Now()
	for i, e := range q.waiting {
		if early := q.due[e.Key].Sub(now); early > 0 && !hurry {
			wait = min(cmp.Or(wait, early), early)
			continue
		}
		q.waiting = slices.Delete(q.waiting, i, i+1)
		if q.newest[e.Key] == e {
			delete(q.newest, e.Key)
		}
		if e.Gathers {
			q.due[e.Key] = now.Add(q.pace)
		}
		e.Dropped, q.dropped = q.dropped, 0
		return e, 0
	}
	maps.DeleteFunc(q.due, func(_ K, due time.Time) bool { return !due.After(now) })
	return nil, wait
}

// Rest returns the waiting entries, oldest first, and the number of entries dropped since Next returned one.
func (q *Queue[K]) Rest() ([]*Entry[K], int) { return slices.Clone(q.waiting), q.dropped }
