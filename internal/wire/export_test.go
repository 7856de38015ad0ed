package wire

// Used by tests only.
const (
	ManyWaiting      = manyWaiting
	MostInFlight     = maxInFlight
	StallInterval    = stallInterval
	TogetherMost     = maxTogether
	TogetherInMemory = maxTogetherInMemory
)

// Idle reports whether nothing waits, is in flight or runs, and nothing is kept for any item.
func (n *Node) Idle() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return !n.armed && n.waiting == nil && n.Waiting.Load() == 0 && len(n.open)+len(n.inFlight)+n.busy == 0
}

// Most and SetMost are about the most pipelines in flight.
func (n *Node) Most() int        { return n.most }
func (n *Node) SetMost(most int) { n.most = most }

// Together returns the most items in a pipeline.
func (n *Node) Together() int { return n.together }
