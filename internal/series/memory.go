package series

import (
	"strings"
	"sync"
	"time"
)

// A memory holds, per type, the largest sequence returned in its latest period. Uniqueness does not depend on it, but
// it detects a counter that went back.
type memory struct {
	keys
	endless bool      // the period never ends
	made    time.Time // creation time, with the monotonic clock

	mu     sync.Mutex // guards all below
	types  map[string]*entry
	newest int64 // start of the newest period with an issued number, Unix seconds; if endless, a multiple of idle
}

// idle is the shortest time for which a type is remembered if the period never ends, 48 hours in seconds. The longest
// is twice that.
const idle = 48 * 60 * 60

// An entry is the memory of one type.
type entry struct {
	start, end      int64  // bounds of the period, Unix seconds; if endless, end is when idle ends, in seconds since made
	highest         int64  // largest sequence returned: the high-water mark
	clock           *clock // clock of the server that has the type's keys
	counter, record any    // keys, as arguments
	used            int64  // largest noted count of used sequences
}

// The types here are those that types count as; see keys.countedAs.

// find returns the keys of a type in a period, and its high-water mark, 0 if none.
func (m *memory) find(typ string, s *Target) (counter, record any, highest int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if e := m.types[typ]; e != nil && e.start == s.Start {
		return e.counter, e.record, e.highest
	}
	return m.counter(typ, s.Label), m.RecordKey(typ), 0
}

// remember notes that seq was returned. The first number in a new period forgets the periods that have ended, so a type
// costs memory only while it is used.
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
		old.highest, old.end = max(old.highest, seq), end
		return
	}
	if old != nil && old.start > s.Start {
		if old.start <= old.clock.now().Add(catchUp).Unix() {
			return // a late reply is not worth remembering
		}
		m.newest = s.Start // the server's clock was ahead in the old period, and is far from it now
	}
	typ = strings.Clone(typ) // typ may share memory with a large string
	m.types[typ] = &entry{start: s.Start, end: end, highest: seq, clock: clock, counter: m.counter(typ, s.Label),
		record: m.RecordKey(typ)}
}

// forget removes the types whose period has ended. The caller holds mu.
func (m *memory) forget(newest int64) {
	m.newest = newest
	kept := map[string]*entry{} // a new map, since a map never shrinks
	for typ, e := range m.types {
		// A period must have ended by the clock of its own server too: the clocks of a Cluster's nodes differ.
		if e.end > newest || e.end > e.clock.now().Unix() {
			kept[typ] = e
		}
	}
	m.types = kept
}

// noteUsed notes how many sequences of a type's period are used, and returns the largest count noted before, 0 if there
// was none. If the type is not remembered in the period, it notes nothing and returns used.
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
