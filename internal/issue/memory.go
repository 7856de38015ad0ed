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
	endless bool // the period never ends

	mu     sync.Mutex // guards all below
	types  map[string]*entry
	newest int64 // start of the newest period that anything was issued in, Unix seconds

	// Where the period never ends, types unused for 48 hours are forgotten. So that nobody has to look for them, there are two maps.
	older  map[string]*entry // types not used since turned
	turned time.Time         // when types became older
}

// unused is how long a type is remembered at least where the period never ends.
const unused = 48 * time.Hour

// An entry is what is remembered of one type.
type entry struct {
	start, end int64      // of the period, Unix seconds
	highest    int64      // the greatest sequence returned: the high-water mark
	clock      *clock     // of the server that has the type's keys
	keys       store.Keys // of the type and the period
	warned     bool       // the period is known to be nearly exhausted
}

// series is the series of a type in a period, with what is remembered of it.
func (m *memory) series(typ string, s *Span) store.Series {
	m.mu.Lock()
	defer m.mu.Unlock()
	series := store.Series{Type: typ, Period: &s.stored}
	if e := m.find(typ); e != nil && e.start == s.Start {
		series.HighWater, series.Keys = e.highest, e.keys
	} else {
		series.Keys = m.keys(typ, &s.stored)
	}
	return series
}

// find returns what is remembered of a type, nil for nothing. The caller holds mu.
func (m *memory) find(typ string) *entry {
	if e := m.types[typ]; e != nil {
		return e
	}
	return m.older[typ]
}

// remember remembers that seq was returned. The first number in a new period forgets the periods that have ended, so that a type
// costs memory only while it is used.
func (m *memory) remember(typ string, s *Span, seq int64, clock *clock) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.endless {
		m.turn()
	}
	old := m.types[typ]
	if older := m.older[typ]; old == nil && older != nil { // it is used again
		old = older
		m.types[strings.Clone(typ)] = older
		delete(m.older, typ)
	}
	if old != nil && old.start == s.Start {
		old.highest = max(old.highest, seq)
		return
	}
	// The server's clock was ahead when it was in the old period: it is far from it now.
	wrong := old != nil && old.start > old.clock.now().Add(catchUp).Unix()
	if old != nil && old.start > s.Start && !wrong {
		return // a late answer is not worth remembering
	}
	if s.Start > m.newest || wrong {
		m.newest = s.Start
		m.forget()
	}
	typ = strings.Clone(typ) // it may be a part of something large
	m.types[typ] = &entry{start: s.Start, end: s.End, highest: seq, clock: clock, keys: m.keys(typ, &s.stored)}
}

// forget drops what ended before the newest period: but only if it has also ended by the clock of the server that has it, since
// the clocks of a Cluster's nodes differ. The caller holds mu.
func (m *memory) forget() {
	kept := map[string]*entry{} // a new one: a map never shrinks
	for typ, e := range m.types {
		if e.end > m.newest || e.end > e.clock.now().Unix() {
			kept[typ] = e
		}
	}
	m.types = kept
}

// turn forgets the types that have not been used for so long, by this host's clock, which cannot jump. The caller holds mu.
func (m *memory) turn() {
	switch {
	case m.turned.IsZero():
		m.turned = time.Now()
	case time.Since(m.turned) >= unused:
		m.types, m.older, m.turned = map[string]*entry{}, m.types, time.Now()
	}
}

// WarnOnce reports, once for a type in a period, that the type is remembered.
func (i *Issuer) WarnOnce(typ string, start int64) bool {
	m := &i.memory
	m.mu.Lock()
	defer m.mu.Unlock()
	e := m.find(typ)
	if e == nil || e.start != start || e.warned {
		return false
	}
	e.warned = true
	return true
}

// Remembered returns how many types are remembered.
func (i *Issuer) Remembered() int {
	i.memory.mu.Lock()
	defer i.memory.mu.Unlock()
	return len(i.memory.types) + len(i.memory.older)
}

// Remember has a sequence of a type remembered as if it had been issued now, for tests that need no Redis.
func (i *Issuer) Remember(typ string, seq int64) {
	i.memory.remember(typ, i.newSpan(time.Now()), seq, &clock{})
}
