package wire

// This file contains methods for tests.
const (
	ManyWaiting = manyWaiting
	MaxInFlight = maxInFlight
	MaxTogether = maxTogether
)

// Idle reports whether no item is waiting or in flight, no goroutine is running, and no data is kept for an item.
func (n *Node) Idle() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return !n.armed && n.waiting == nil && n.Waiting.Load() == 0 && len(n.waitingByMerge)+len(n.inFlight)+n.busy == 0
}

// MaxPipelines points to the largest allowed number of pipelines in flight, and Together to that of items in a pipeline.
func (n *Node) MaxPipelines() *int { return &n.maxPipelines }
func (n *Node) Together() *int     { return &n.together }
