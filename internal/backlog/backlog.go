// Package backlog queues ranges that wait to be reported. A full queue merges what touches, and counts what it drops.
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
	At          time.Time // of the newest entry, if several were merged
	Loose       bool      // it may be merged with a range that it does not touch; the same for all entries with its Key
	Merged      int       // count of entries that were merged, this one included
	Dropped     int       // count of entries that were dropped since the one before; set by Next
}

// A Queue is a queue of entries, the oldest first. An entry may gather others before it joins the queue. Its zero value
// is not usable: see [New].
type Queue[K comparable] struct {
	most      int
	waiting   []*Entry[K]
	newest    map[K]*Entry[K] // the newest one waiting, by key
	gathering map[K]*Entry[K] // not in the queue yet
	dropped   int             // since Next returned an entry
}

// New returns an empty Queue, in which at most most entries wait or gather.
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

// Gather merges a loose entry into the one with its key that gathers. If there is none, the entry begins to gather,
// until [Queue.Settle], and Gather returns true. If there is no room for it, it is added.
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

// Settle adds the entry with that key that gathers, if there is one.
func (q *Queue[K]) Settle(key K) {
	if e := q.gathering[key]; e != nil {
		delete(q.gathering, key)
		q.Add(*e)
	}
}

// SettleAll adds all entries that gather, in the order of their times.
func (q *Queue[K]) SettleAll() {
	for _, e := range slices.SortedFunc(maps.Values(q.gathering), func(a, b *Entry[K]) int { return a.At.Compare(b.At) }) {
		q.Settle(e.Key)
	}
}

// Gathering returns how many entries gather.
func (q *Queue[K]) Gathering() int { return len(q.gathering) }

// Next removes the oldest entry and returns it. ok is false if none waits.
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

// merge extends the range of an older entry by a newer one.
func (e *Entry[K]) merge(newer *Entry[K]) {
	e.First, e.Last, e.At = min(e.First, newer.First), max(e.Last, newer.Last), newer.At
	e.Merged += newer.Merged
}
