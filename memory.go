package serial

import (
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// A memory is what a generator keeps of the types it has issued numbers of. Nothing depends on it for uniqueness, but it
// notices a counter that went back.
type memory struct {
	mu     sync.Mutex
	series map[string]*seen
	newest int64 // start of the newest period that anything was issued in, Unix seconds
}

// seen is what is remembered of one type.
type seen struct {
	period *period
	mark   int64        // the greatest sequence issued in period: the high-water mark
	clock  *serverClock // of the server that has the type's keys
	keys   [2]any       // see call.keys
	warned bool         // that period is nearly exhausted
}

// A serverClock remembers how far a server's clock is ahead of this host's, in nanoseconds, so that a wrong clock costs a
// round trip once and not with every call.
type serverClock struct {
	offset atomic.Int64
	trip   atomic.Int64 // how long a round trip takes of late, nanoseconds
}

func (s *serverClock) now() time.Time { return time.Now().Add(time.Duration(s.offset.Load())) }

// arrival is what the server's clock will show when something that is sent now gets there.
func (s *serverClock) arrival() time.Time { return s.now().Add(time.Duration(s.trip.Load() / 2)) }

// took notes a round trip. One that took long for once counts for a quarter.
func (s *serverClock) took(trip time.Duration) {
	if old := s.trip.Load(); old > 0 {
		trip = (3*time.Duration(old) + trip) / 4
	}
	s.trip.Store(int64(trip))
}

// mark returns the greatest sequence of typ issued here in p, 0 if none, and its keys, nil if they are not remembered.
func (m *memory) mark(typ string, p *period) (int64, [2]any) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if s := m.series[typ]; s != nil && s.period.start == p.start {
		return s.mark, s.keys
	}
	return 0, [2]any{}
}

// raise raises the mark of typ in p to seq, and reports false if there is none yet.
func (m *memory) raise(typ string, p *period, seq int64) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.series[typ]
	if s == nil || s.period.start < p.start || s.period.start > p.start && s.wrong() {
		return false
	}
	if s.period.start == p.start { // otherwise it is a late answer, and not worth remembering
		s.mark = max(s.mark, seq)
	}
	return true
}

// wrong reports whether the server's clock was ahead when it was in s's period: it is far from it now.
func (s *seen) wrong() bool { return s.period.start > s.clock.now().Add(catchUp).Unix() }

// warn reports, once for typ in p, that it is remembered.
func (m *memory) warn(typ string, p *period) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.series[typ]
	if s == nil || s.period.start != p.start || s.warned {
		return false
	}
	s.warned = true
	return true
}

// add remembers the first number of typ in a period. The first of a new period forgets the periods that have ended, so
// that a type costs memory only while it is used.
func (m *memory) add(typ string, s *seen) {
	m.mu.Lock()
	defer m.mu.Unlock()
	old := m.series[typ]
	if s.period.start > m.newest || old != nil && old.wrong() {
		m.newest = s.period.start
		m.forget(m.newest)
	}
	if old != nil && old.period.start >= s.period.start && !old.wrong() { // added by another call meanwhile
		if old.period.start == s.period.start {
			old.mark = max(old.mark, s.mark)
		}
		return
	}
	m.series[strings.Clone(typ)] = s // typ may be a part of something large
}

// forget drops what ended by start, the start of a period that was entered: but only if it has also ended by the clock
// of the server that has it, since the clocks of a Cluster's nodes differ. The caller holds mu.
func (m *memory) forget(start int64) {
	kept := map[string]*seen{} // a new one: a map never shrinks
	for typ, s := range m.series {
		if s.period.end > start || s.period.end > s.clock.now().Unix() {
			kept[typ] = s
		}
	}
	m.series = kept
}
