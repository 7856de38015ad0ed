// Package backlog queues ranges to report. A full queue merges ranges that touch, and counts the ranges that it drops.
package backlog

import (
	"maps"
	"slices"
	"time"
)

// An Entry is a range of sequences. Entries with one Key may be merged.
type Entry[K comparable] struct {
	Key         K
	First, Last int64
	At          time.Time // time of the newest entry, if several were merged
	Loose       bool      // it may be merged with a range that it does not touch; the same for all entries with one Key
	Merged      int       // count of merged entries, including this one
	Dropped     int       // count of entries dropped since the previous one; set by Next
}

// A Queue is a queue of entries, oldest first. An entry may gather others before it joins the queue. Make one with
// [New].
type Queue[K comparable] struct {
	most      int
	waiting   []*Entry[K]
	newest    map[K]*Entry[K] // newest waiting entry, by key
	gathering map[K]*Entry[K] // entries that gather, by key, not in the queue yet
	dropped   int             // count of entries dropped since Next returned an entry
}

// New returns an empty Queue for at most most waiting and gathering entries.
func New[K comparable](most int) *Queue[K] {
	return &Queue[K]{most: most, newest: map[K]*Entry[K]{}, gathering: map[K]*Entry[K]{}}
}

// Add adds an entry. If the queue is full, the entry is merged into the newest one with its key if that touches it or
// is loose, and otherwise dropped.
func (q *Queue[K]) Add(e Entry[K]) {
	e.Merged = max(e.Merged, 1)
	if len(q.waiting)+len(q.gathering) < q.most {
		q.waiting, q.newest[e.Key] = append(q.waiting, &e), &e
		return
	}
	if old := q.newest[e.Key]; old != nil && (e.Loose || e.First <= old.Last+1 && old.First <= e.Last+1) {
		old.merge(&e)
		return
	}
	q.dropped += e.Merged
}

// Gather merges a loose entry into the gathering entry with its key. If there is none, the entry begins to gather,
// until [Queue.Settle], and Gather returns true. If there is no room to gather, the entry is added instead.
func (q *Queue[K]) Gather(e Entry[K]) bool {
	e.Merged = max(e.Merged, 1)
	if old := q.gathering[e.Key]; old != nil {
		old.merge(&e)
		return false
	}
	if len(q.waiting)+len(q.gathering) >= q.most {
		q.Add(e)
		return false
	}
	q.gathering[e.Key] = &e
	return true
}

// Settle adds the gathering entry with that key, if there is one.
func (q *Queue[K]) Settle(key K) {
	if e := q.gathering[key]; e != nil {
		delete(q.gathering, key)
		q.Add(*e)
	}
}

// SettleAll adds all gathering entries, in the order of their times.
func (q *Queue[K]) SettleAll() {
	for _, e := range slices.SortedFunc(maps.Values(q.gathering), func(a, b *Entry[K]) int { return a.At.Compare(b.At) }) {
		q.Settle(e.Key)
	}
}

// Rest returns the entries in the queue, oldest first, then those that gather, and the number of entries dropped since
// Next returned one.
func (q *Queue[K]) Rest() (all []Entry[K], dropped int) {
	for _, e := range slices.Concat(q.waiting, slices.Collect(maps.Values(q.gathering))) {
		all = append(all, *e)
	}
	return all, q.dropped
}

// Gathering returns the number of gathering entries.
func (q *Queue[K]) Gathering() int { return len(q.gathering) }

// Next removes and returns the oldest entry. ok is false if the queue is empty.
func (q *Queue[K]) Next() (e Entry[K], ok bool) {
	if len(q.waiting) == 0 {
		return e, false
	}
	oldest := q.waiting[0]
	if q.waiting = q.waiting[1:]; len(q.waiting) == 0 {
		q.waiting = nil
	}
	if q.newest[oldest.Key] == oldest {
		delete(q.newest, oldest.Key)
	}
	oldest.Dropped, q.dropped = q.dropped, 0
	return *oldest, true
}

// merge extends an older entry's range by a newer entry's.
func (e *Entry[K]) merge(newer *Entry[K]) {
	e.First, e.Last, e.At = min(e.First, newer.First), max(e.Last, newer.Last), newer.At
	e.Merged += newer.Merged
}
