// Package backlog queues ranges of sequences that will be reported. If the queue is full, ranges that overlap or touch
// are merged, and others are dropped and counted.
package backlog

import (
	"cmp"
	"maps"
	"slices"
	"time"
)

// An Entry is a range of sequences. It may be merged into the newest entry in the queue with the same Key.
type Entry[K comparable] struct {
	Key         K
	First, Last int64
	At          time.Time // time of the oldest merged entry
	Loose       bool      // whether the entry is merged into a full queue even if the ranges do not touch
	Gathers     bool      // whether the entry is always merged, and due only some time after the previous one; see New
	Merged      int       // number of merged entries, including this one; 0 means 1
	Dropped     int       // number of entries dropped since Next returned the previous entry; set by Next
}

// A Queue is a queue of entries, ordered from the oldest to the newest. It is not safe for concurrent use.
type Queue[K comparable] struct {
	maxLength int
	pace      time.Duration
	waiting   []*Entry[K]
	newest    map[K]*Entry[K] // newest entry in waiting, by key
	due       map[K]time.Time // time at which the next entry is due, by key; only for keys of entries with Gathers
	dropped   int             // number of entries dropped since Next returned the latest entry
}

// New returns an empty Queue for at most maxLength entries. An entry with Gathers is due when at least pace has passed
// since Next returned the previous one with the same key.
func New[K comparable](maxLength int, pace time.Duration) *Queue[K] {
	return &Queue[K]{maxLength: maxLength, pace: pace, newest: map[K]*Entry[K]{}, due: map[K]time.Time{}}
}

// Add adds an entry, or merges it into the newest entry with the same Key. If the queue is full and the entry cannot be
// merged, it is dropped.
func (q *Queue[K]) Add(e Entry[K]) {
	e.Merged = max(e.Merged, 1)
	old, full := q.newest[e.Key], len(q.waiting) >= q.maxLength
	switch {
	case old != nil && (e.Gathers || full && (e.Loose || e.First <= old.Last+1 && old.First <= e.Last+1)):
		old.First, old.Last, old.Merged = min(old.First, e.First), max(old.Last, e.Last), old.Merged+e.Merged
	case full:
		q.dropped += e.Merged
	default:
		q.waiting, q.newest[e.Key] = append(q.waiting, &e), &e
	}
}

// Next removes and returns the oldest entry that is due. If hurry is set, every entry is due. If no entry is due, Next
// returns nil, and wait is the time until an entry is due, or 0 if the queue is empty.
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

// Rest returns the entries in the queue, from the oldest to the newest, and the number of entries that were dropped
// since Next returned the latest entry.
func (q *Queue[K]) Rest() ([]*Entry[K], int) { return slices.Clone(q.waiting), q.dropped }
