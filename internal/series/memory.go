package series

import (
	"strings"
	"sync"
	"time"
)

// A memory contains the largest sequence of each type that this process has returned in the latest period. Scripts
// compare it with the counter, to detect a counter that is too low. As long as Redis loses no data, it is not needed.
type memory struct {
	keys
	endless bool      // whether the period never ends
	made    time.Time // creation time, with a monotonic clock reading

	mu     sync.Mutex // guards all below
	types  map[string]*entry
	newest int64 // start of the newest period, in Unix seconds; if endless, a multiple of idle, in seconds since made
}

// idle is the shortest time, in seconds, for which an unused type is remembered if the period never ends. The longest
// time is twice as long.
const idle = 48 * 60 * 60

// An entry is the memory of one type.
type entry struct {
	start, end      int64  // bounds of the period, in Unix seconds; if endless, end is in seconds since made
	highWater       int64  // largest sequence that was returned, called the high-water mark
	clock           *clock // clock of the server that has the keys of the type
	counter, record any    // keys of the counter and the record
	used            int64  // largest count that was passed to noteUsed
}

// In the methods below, typ is the type in the keys of a series; see keys.countedAs.

// find returns the keys and the high-water mark of a type in a period. The high-water mark is 0 if no number was
// returned.
func (m *memory) find(typ string, s *Target) (counter, record any, highWater int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if e := m.types[typ]; e != nil && e.start == s.Start {
		return e.counter, e.record, e.highWater
	}
	return m.CounterKey(typ, s.Label), m.RecordKey(typ), 0
}

// remember stores that seq was returned. With the first number of a new period, it deletes the types whose period has
// ended. So types that are no longer used take no memory.
func (m *memory) remember(typ string, s *Target, seq int64, clock *clock) {
	m.mu.Lock()
	defer m.mu.Unlock()
	newest, end := s.Start, s.End
	if m.endless {
		now := int64(time.Since(m.made) / time.Second)
		newest, end = now-now%idle, now+idle
	}
	if newest > m.newest {
		m.forget(newest)
	}
	old := m.types[typ]
	if old != nil && old.start == s.Start {
		old.highWater, old.end = max(old.highWater, seq), end
		return
	}
	if old != nil && old.start > s.Start {
		if old.start <= old.clock.now().Add(catchUp).Unix() {
			return // the reply is late, and a newer period has begun
		}
		m.newest = s.Start // the server's clock was ahead, and has been corrected
	}
	typ = strings.Clone(typ) // typ may be part of a large string
	m.types[typ] = &entry{start: s.Start, end: end, highWater: seq, clock: clock, counter: m.CounterKey(typ, s.Label),
		record: m.RecordKey(typ)}
}

// forget deletes the types whose period has ended. m.mu must be held.
func (m *memory) forget(newest int64) {
	m.newest = newest
	kept := map[string]*entry{} // a new map, because a map never shrinks
	for typ, e := range m.types {
		// The period must also have ended by the clock of its own server, because the clocks of a Cluster's nodes differ.
		if e.end > newest || e.end > e.clock.now().Unix() {
			kept[typ] = e
		}
	}
	m.types = kept
}

// noteUsed stores how many sequences of a type have been used in a period. It returns the largest count that was stored
// before, or 0 if there is none. If the memory has no entry for the type in this period, noteUsed stores nothing and
// returns the new count.
func (m *memory) noteUsed(typ string, start, used int64) (before int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	e := m.types[typ]
	if e == nil || e.start != start {
		return used
	}
	before, e.used = e.used, max(e.used, used)
	return before
}
