package exchange

import (
	"strings"
	"sync"
	"time"

	"github.com/dailyserial/serial/internal/store"
)

// A memory holds, per type, the greatest sequence returned in its latest period. Uniqueness does not depend on it, but
// it detects a counter that went back.
type memory struct {
	store   *store.Store
	endless bool      // the period never ends
	made    time.Time // creation time, with the monotonic clock

	mu     sync.Mutex // guards all below
	types  map[string]*entry
	newest int64 // start of the newest period with an issued number, Unix seconds; if endless, a multiple of idle
}

// idle is the least time for which a type is remembered if the period never ends, 48 hours in seconds. The most is
// twice that.
const idle = 48 * 60 * 60

// An entry is the memory of one type.
type entry struct {
	start, end int64      // bounds of the period, Unix seconds; if endless, end is the end of idle, in seconds since made
	highest    int64      // greatest sequence returned: the high-water mark
	clock      *clock     // clock of the server that has the type's keys
	keys       store.Keys // keys of the type and the period
	used       int64      // greatest noted count of used sequences
}

// series returns the series of a type in a period, with its high-water mark.
func (m *memory) series(typ string, s *Span) store.Series {
	m.mu.Lock()
	defer m.mu.Unlock()
	if e := m.types[m.store.CountedAs(typ)]; e != nil && e.start == s.Start {
		return store.Series{Type: typ, Period: &s.Stored, HighWater: e.highest, Keys: e.keys}
	}
	return store.Series{Type: typ, Period: &s.Stored, Keys: m.store.KeysOf(typ, &s.Stored)}
}

// remember notes that seq was returned. The first number in a new period forgets the periods that have ended, so a type
// costs memory only while it is used.
func (m *memory) remember(typ string, s *Span, seq int64, clock *clock) {
	m.mu.Lock()
	defer m.mu.Unlock()
	typ = m.store.CountedAs(typ)
	newest, end := s.Start, s.End
	if m.endless {
		now := int64(time.Since(m.made) / time.Second)
		newest, end = now-now%idle, now+idle
	}
	if newest > m.newest {
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
	old := m.types[typ]
	if old != nil && old.start == s.Start {
		old.highest, old.end = max(old.highest, seq), end
		return
	}
	if old != nil && old.start > s.Start {
		if old.start <= old.clock.now().Add(catchUp).Unix() {
			return // a late answer is not worth remembering
		}
		m.newest = s.Start // the server's clock was ahead in the old period, and is far from it now
	}
	typ = strings.Clone(typ) // typ may share memory with a large string
	m.types[typ] = &entry{start: s.Start, end: end, highest: seq, clock: clock, keys: m.store.KeysOf(typ, &s.Stored)}
}

// noteUsed notes how many sequences of a type's period are used, and returns the greatest count noted before, 0 if
// there was none. If the type is not remembered in the period, it notes nothing and returns used.
func (m *memory) noteUsed(typ string, start, used int64) (before int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	e := m.types[m.store.CountedAs(typ)]
	if e == nil || e.start != start {
		return used
	}
	before, e.used = e.used, max(e.used, used)
	return before
}
