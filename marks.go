package serial

import (
	"strings"
	"sync"
	"time"

	"github.com/dailyserial/serial/internal/store"
)

// The marks are the greatest sequences that a Generator has returned, one for each type in its latest period. Nothing depends on
// them for uniqueness, but they notice a counter that went back.
type marks struct {
	keys    func(typ string, p *store.Period) store.Keys
	endless bool // the period never ends

	mu     sync.Mutex
	of     map[string]*mark // by type
	newest int64            // start of the newest period that anything was issued in, Unix seconds

	// Where the period never ends, marks unused for 48 hours are forgotten. So that nobody has to look for them, there are two maps.
	older  map[string]*mark // of types not used since turned
	turned time.Time        // when of became older
}

// unused is how long a type's mark is kept at least where the period never ends.
const unused = 48 * time.Hour

// A mark is what is remembered of one type.
type mark struct {
	start, end int64      // of the period, Unix seconds
	seq        int64      // the greatest sequence returned: the high-water mark
	clock      *clock     // of the server that has the type's keys
	keys       store.Keys // of the type and the period
	warned     bool       // the period is known to be nearly exhausted
}

// series is the series of a type in a period, with what is remembered of it.
func (m *marks) series(typ string, s *span) store.Series {
	m.mu.Lock()
	defer m.mu.Unlock()
	series := store.Series{Type: typ, Period: &s.stored}
	if k := m.find(typ); k != nil && k.start == s.Start {
		series.Mark, series.Keys = k.seq, k.keys
	}
	return series
}

// find returns what is remembered of a type, nil for nothing. The caller holds mu.
func (m *marks) find(typ string) *mark {
	if k := m.of[typ]; k != nil {
		return k
	}
	return m.older[typ]
}

// raise remembers that seq was returned. The first number in a new period forgets the periods that have ended, so that a type
// costs memory only while it is used.
func (m *marks) raise(typ string, s *span, seq int64, clock *clock) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.endless {
		m.turn()
	}
	old := m.of[typ]
	if older := m.older[typ]; old == nil && older != nil { // it is used again
		old = older
		m.of[strings.Clone(typ)] = older
		delete(m.older, typ)
	}
	if old != nil && old.start == s.Start {
		old.seq = max(old.seq, seq)
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
	m.of[typ] = &mark{start: s.Start, end: s.End, seq: seq, clock: clock, keys: m.keys(typ, &s.stored)}
}

// forget drops what ended before the newest period: but only if it has also ended by the clock of the server that has it, since
// the clocks of a Cluster's nodes differ. The caller holds mu.
func (m *marks) forget() {
	kept := map[string]*mark{} // a new one: a map never shrinks
	for typ, k := range m.of {
		if k.end > m.newest || k.end > k.clock.now().Unix() {
			kept[typ] = k
		}
	}
	m.of = kept
}

// turn forgets the types that have not been used for so long, by this host's clock, which cannot jump. The caller holds mu.
func (m *marks) turn() {
	switch {
	case m.turned.IsZero():
		m.turned = time.Now()
	case time.Since(m.turned) >= unused:
		m.of, m.older, m.turned = map[string]*mark{}, m.of, time.Now()
	}
}

// warn reports, once for a type in a period, that it is remembered.
func (m *marks) warn(typ string, start int64) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	k := m.find(typ)
	if k == nil || k.start != start || k.warned {
		return false
	}
	k.warned = true
	return true
}
