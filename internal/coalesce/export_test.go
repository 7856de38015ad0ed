package coalesce

// Seen by tests only.
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
