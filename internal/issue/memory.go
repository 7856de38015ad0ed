package issue

import (
	"strings"
	"sync"
	"time"

	"github.com/dailyserial/serial/internal/store"
)

// A memory is the greatest sequence that was returned of each type, in its latest period. Uniqueness does not depend on it, but it
// notices a counter that went back.
type memory struct {
	keys    func(typ string, p *store.Period) store.Keys
	endless bool      // the period never ends
	made    time.Time // by a clock that cannot jump

	mu     sync.Mutex // guards all below
	types  map[string]*entry
	newest int64 // start of the newest period that anything was issued in, Unix seconds; endless: a multiple of idle
}

// idle is how long a type is remembered at least, and twice as long at most, where the period never ends: 48 hours, in seconds.
const idle = 48 * 60 * 60

// An entry is what is remembered of one type.
type entry struct {
	start, end int64      // of the period, Unix seconds; endless: the end of idle, in seconds since the memory was made
	highest    int64      // the greatest sequence returned: the high-water mark
	clock      *clock     // of the server that has the type's keys
	keys       store.Keys // of the type and the period
	warned     uint64     // a bit for each hook that knows the period to be nearly exhausted
}

// series is the series of a type in a period, with what is remembered of it.
func (m *memory) series(typ string, s *Span) store.Series {
	m.mu.Lock()
	defer m.mu.Unlock()
	if e := m.types[typ]; e != nil && e.start == s.Start {
		return store.Series{Type: typ, Period: &s.stored, HighWater: e.highest, Keys: e.keys}
	}
	return store.Series{Type: typ, Period: &s.stored, Keys: m.keys(typ, &s.stored)}
}

// remember remembers that seq was returned. The first number in a new period forgets the periods that have ended, so that a type
// costs memory only while it is used.
func (m *memory) remember(typ string, s *Span, seq int64, clock *clock) {
	m.mu.Lock()
	defer m.mu.Unlock()
	newest, end := s.Start, s.End
	if m.endless {
		now := int64(time.Since(m.made) / time.Second)
		newest, end = now-now%idle, now+idle
	}
	if newest > m.newest {
		m.newest = newest
		kept := map[string]*entry{} // a new one: a map never shrinks
		for typ, e := range m.types {
			// What has ended has to have ended by the clock of the server that has it too: the clocks of a Cluster's nodes differ.
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
		m.newest = s.Start // the server's clock was ahead when it was in the old period: it is far from it now
	}
	typ = strings.Clone(typ) // it may be a part of something large
	m.types[typ] = &entry{start: s.Start, end: end, highest: seq, clock: clock, keys: m.keys(typ, &s.stored)}
}

// WarnOnce reports, once for a type in a period and each hook, 0 to 63, that the type is remembered.
func (i *Issuer) WarnOnce(typ string, start int64, hook int) bool {
	m := &i.memory
	m.mu.Lock()
	defer m.mu.Unlock()
	e := m.types[typ]
	if e == nil || e.start != start || e.warned&(1<<hook) != 0 {
		return false
	}
	e.warned |= 1 << hook
	return true
}

// Remembered returns how many types are remembered.
func (i *Issuer) Remembered() int {
	i.memory.mu.Lock()
	defer i.memory.mu.Unlock()
	return len(i.memory.types)
}

// Remember has a sequence of a type remembered as if it had been issued now, for tests that need no Redis.
func (i *Issuer) Remember(typ string, seq int64) {
	i.memory.remember(typ, i.newSpan(time.Now()), seq, &clock{})
}
