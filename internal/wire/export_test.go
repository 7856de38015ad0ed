package wire

// This file contains methods for tests.
const (
	ManyWaiting      = manyWaiting
	MostInFlight     = maxInFlight
	StallInterval    = stallInterval
	TogetherMost     = maxTogether
	TogetherInMemory = maxTogetherInMemory
)

// Idle reports whether no item is waiting or in flight, no goroutine is running, and no data is kept for an item.
func (n *Node) Idle() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return !n.armed && n.waiting == nil && n.Waiting.Load() == 0 && len(n.open)+len(n.inFlight)+n.busy == 0
}

// Most returns the largest allowed number of pipelines in flight, and SetMost sets it.
func (n *Node) Most() int        { return n.most }
func (n *Node) SetMost(most int) { n.most = most }

// Together returns the largest allowed number of items in a pipeline.
func (n *Node) Together() int { return n.together }
