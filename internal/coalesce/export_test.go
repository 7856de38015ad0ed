package coalesce

// Seen by tests only.
const (
	ManyWaiting   = manyWaiting
	StallInterval = stallInterval
)

// Idle reports whether nothing waits, is in flight or runs, and nothing is kept for any key.
func (l *Lane[K, P, R]) Idle() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return !l.armed && l.waiting == nil && l.members == 0 && len(l.open)+len(l.inFlight) == 0
}
