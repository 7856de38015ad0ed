package wire

// This file contains methods for tests.
const (
	ManyWaiting   = manyWaiting
	MaxInFlight   = maxInFlight
	StallInterval = stallInterval
	MaxTogether   = maxTogether
)

// Idle reports whether no item is waiting or in flight, no goroutine is running, and no data is kept for an item.
func (n *Node) Idle() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return !n.armed && n.waiting == nil && n.Waiting.Load() == 0 && len(n.waitingByMerge)+len(n.inFlight)+n.busy == 0
}

// MaxPipelines returns the largest allowed number of pipelines in flight, and SetMaxPipelines sets it.
func (n *Node) MaxPipelines() int         { return n.maxPipelines }
func (n *Node) SetMaxPipelines(limit int) { n.maxPipelines = limit }

// Together returns the largest allowed number of items in a pipeline, and SetTogether sets it.
func (n *Node) Together() int         { return n.together }
func (n *Node) SetTogether(limit int) { n.together = limit }
