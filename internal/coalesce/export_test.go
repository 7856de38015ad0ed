package coalesce

import "time"

// Used by tests only.
const (
	ManyWaiting   = manyWaiting
	StallInterval = stallInterval
)

// Idle reports whether nothing waits, is in flight or runs, and nothing is kept for any key.
func (b *Batcher[K, P, R]) Idle() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return !b.armed && b.waiting == nil && b.members == 0 && len(b.open)+len(b.inFlight) == 0
}

// Alone is Join for a caller that joins nobody: it reports false if that caller cannot be alone.
func (b *Batcher[K, P, R]) Alone() (begun time.Time, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.waiting) > 0 || len(b.inFlight) >= b.limit() {
		return begun, false
	}
	return b.enter(), true
}

// Suspend stops everything for d, as if the process were stopped.
func (b *Batcher[K, P, R]) Suspend(d time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	time.Sleep(d)
}
