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
	newest int64         // start of the newest period that anything was issued in, Unix seconds
	swept  time.Duration // when idle types were last forgotten, since made
}

// idle is how long a type is remembered at least, and twice as long at most, where the period never ends.
const idle = 48 * time.Hour

// An entry is what is remembered of one type.
type entry struct {
	start, end int64         // of the period, Unix seconds
	highest    int64         // the greatest sequence returned: the high-water mark
	clock      *clock        // of the server that has the type's keys
	keys       store.Keys    // of the type and the period
	warned     bool          // the period is known to be nearly exhausted
	used       time.Duration // when a number was last returned, since the memory was made, where the period never ends
}

// series is the series of a type in a period, with what is remembered of it.
func (m *memory) series(typ string, s *Span) store.Series {
	m.mu.Lock()
	defer m.mu.Unlock()
	series := store.Series{Type: typ, Period: &s.stored}
	if e := m.types[typ]; e != nil && e.start == s.Start {
		series.HighWater, series.Keys = e.highest, e.keys
	} else {
		series.Keys = m.keys(typ, &s.stored)
	}
	return series
}

// remember remembers that seq was returned. The first number in a new period forgets the periods that have ended, so that a type
// costs memory only while it is used.
func (m *memory) remember(typ string, s *Span, seq int64, clock *clock) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var now time.Duration
	if m.endless {
		if now = time.Since(m.made); now-m.swept >= idle {
			m.forget(func(e *entry) bool { return now-e.used >= idle })
			m.swept = now
		}
	}
	old := m.types[typ]
	if old != nil && old.start == s.Start {
		old.highest, old.used = max(old.highest, seq), now
		return
	}
	// The server's clock was ahead when it was in the old period: it is far from it now.
	wrong := old != nil && old.start > old.clock.now().Add(catchUp).Unix()
	if old != nil && old.start > s.Start && !wrong {
		return // a late answer is not worth remembering
	}
	if s.Start > m.newest || wrong {
		m.newest = s.Start
		// What has ended has to have ended by the clock of the server that has it too: the clocks of a Cluster's nodes differ.
		m.forget(func(e *entry) bool { return e.end <= m.newest && e.end <= e.clock.now().Unix() })
	}
	typ = strings.Clone(typ) // it may be a part of something large
	m.types[typ] = &entry{start: s.Start, end: s.End, highest: seq, clock: clock, keys: m.keys(typ, &s.stored), used: now}
}

// forget drops the entries that are over. The caller holds mu.
func (m *memory) forget(over func(*entry) bool) {
	kept := map[string]*entry{} // a new one: a map never shrinks
	for typ, e := range m.types {
		if !over(e) {
			kept[typ] = e
		}
	}
	m.types = kept
}

// WarnOnce reports, once for a type in a period, that the type is remembered.
func (i *Issuer) WarnOnce(typ string, start int64) bool {
	m := &i.memory
	m.mu.Lock()
	defer m.mu.Unlock()
	e := m.types[typ]
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
	return len(i.memory.types)
}

// Remember has a sequence of a type remembered as if it had been issued now, for tests that need no Redis.
func (i *Issuer) Remember(typ string, seq int64) {
	i.memory.remember(typ, i.newSpan(time.Now()), seq, &clock{})
}
