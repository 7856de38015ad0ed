package serial

import (
	"strings"
	"sync"
	"time"
)

// A memory is what a generator keeps between calls. Nothing depends on it for uniqueness, but it notices a counter that
// went back, and saves the round trip that a wrong clock costs.
type memory struct {
	mu     sync.Mutex
	series map[string]*seen
	latest time.Duration // offset learned last, for types not seen in this period
	newest int64         // start of the newest period that anything was issued in, Unix seconds
}

// seen is what is remembered of one type.
type seen struct {
	period *period
	mark   int64         // the greatest sequence issued in period: the high-water mark
	offset time.Duration // of the clock of the server that has the type's keys
}

// offset returns how far the server's clock is ahead of this host's, as far as is known.
func (m *memory) offset(typ string) time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	if s := m.series[typ]; s != nil {
		return s.offset
	}
	return m.latest
}

// correct remembers another offset.
func (m *memory) correct(typ string, offset time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.latest = offset
	if s := m.series[typ]; s != nil {
		s.offset = offset
	}
}

// mark returns the greatest sequence of typ issued here in p, 0 if none.
func (m *memory) mark(typ string, p *period) int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	if s := m.series[typ]; s != nil && s.period.start == p.start {
		return s.mark
	}
	return 0
}

// issued raises the mark of typ in p to seq. The first number of a new period forgets the periods that have ended, so
// that a type costs memory only while it is used.
func (m *memory) issued(typ string, p *period, seq int64, offset time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if p.start > m.newest {
		m.newest = p.start
		m.forget(p.start)
	}
	s := m.series[typ]
	switch {
	case s == nil:
		m.series[strings.Clone(typ)] = &seen{p, seq, offset} // typ may be a part of something large
	case s.period.start == p.start:
		s.mark = max(s.mark, seq)
	case s.period.start < p.start: // otherwise it is a late answer, and not worth remembering
		*s = seen{p, seq, offset}
	}
}

// forget drops what ended by start, the start of a period that was entered: but only if it has also ended by the clock
// of the server that has it, since the clocks of a Cluster's nodes differ. The caller holds mu.
func (m *memory) forget(start int64) {
	now := time.Now()
	kept := map[string]*seen{} // a new one: a map never shrinks
	for typ, s := range m.series {
		if s.period.end > start || s.period.end > now.Add(s.offset).Unix() {
			kept[typ] = s
		}
	}
	m.series = kept
}
