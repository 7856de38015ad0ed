package wire

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// This file has the queue of a server. An item that meets no other is sent at once. While enough pipelines are in
// flight, further items wait, merge, and leave together in the next pipeline. So pipelines grow with the load, and a
// caller waits for at most a fraction of a round trip.

// The minimum round trip decides how many pipelines may be in flight. On loopback, most of a round trip is work, so the
// next pipeline should gather all callers until the last one has returned. Over a network, most of it is waiting, so a
// caller should not wait for another caller's round trip before its own.
const (
	tripPerPipeline = 250 * time.Microsecond // part of the minimum round trip that allows one more pipeline in flight
	mostInFlight    = 8                      // limit of pipelines in flight, not counting stalled ones
	manyWaiting     = 32                     // waiting callers that justify one more pipeline, whatever the round trip

	// A pipeline that takes longer than stallBase and stallTrips minimum round trips has stalled, perhaps on a broken
	// connection. It gives up its place in flight to waiting items, but only one does so per stallInterval. Once half
	// of the connections are in use, the interval is longSilence, so there is still a connection to make when a server
	// that has hung for long answers again.
	stallBase     = 5 * time.Millisecond
	stallTrips    = 10
	stallInterval = 50 * time.Millisecond
	longSilence   = 500 * time.Millisecond

	togetherMost = 128 // items that share a pipeline over a connection of the operating system
	// togetherInMemory is how many items share a pipeline over any other connection. An in-memory pipe, as in tests,
	// must hold the rest of a pipeline while the first command is answered, but holds only the 4 KiB that miniredis
	// reads at once. Four of the longest items fit into that.
	togetherInMemory = 4
)

// A Node is a server that has keys, with the queue of the items for it. It is safe for concurrent use. Once the deadline
// of the last call has passed, it has no goroutine, no running timer, and no data of any item.
type Node struct {
	Local any // the caller's state of the server
	// Waiting is the number of callers whose items wait. [Client.Join] is of use only if it is not 0.
	Waiting atomic.Int32

	sender      sender
	together    int // most items in a pipeline
	most        int // most pipelines in flight with the longest round trip
	connections int // most connections of the client

	mu       sync.Mutex      // guards all below, and N of waiting items
	waiting  []*Item         // items to send, in order
	open     map[Merge]*Item // the waiting items that further callers may join, by Merge
	inFlight []time.Time     // start of each pipeline that holds a place, oldest first
	busy     int             // count of pipelines under way, including stalled ones
	trip     time.Duration   // recent minimum round trip
	armed    bool            // the stall timer is running
	gaveUp   time.Time       // time when a stalled pipeline last gave up its place
}

// sendAlone sends an item in its caller's goroutine, if nothing waits and a place in flight is free. If it must be
// repeated, it is queued, and its done is not nil.
func (n *Node) sendAlone(ctx context.Context, i *Item) (sent bool) {
	n.mu.Lock()
	if len(n.waiting) > 0 || len(n.inFlight) >= n.limit() {
		n.mu.Unlock()
		return false
	}
	begun := n.enter()
	n.mu.Unlock()
	i.ctx, i.limits, i.N = ctx, &n.sender.limits, 1
	items, over, answered := []*Item{i}, false, false
	defer func() {
		if !over {
			n.end(items, nil) // a hook of the client has panicked
		}
		n.mu.Lock()
		defer n.mu.Unlock()
		if n.busy--; answered {
			n.measure(begun)
		}
		if n.exit(begun) && len(n.waiting) > 0 {
			go n.dispatch(n.enter())
		}
	}()
	again := n.sender.send(items, i.Deadline.Add(-n.sender.read), &n.sender.alone)
	if over, answered = true, again == nil && i.Result.Err == nil; again != nil {
		i.done, i.limit = make(chan struct{}), n.sender.limits.until(i.Deadline)
		n.repeat(again)
	}
	return true
}

// add makes the caller one of a waiting item with equal Merge, or else queues its item. It returns the item that waits,
// and the caller's place in it.
func (n *Node) add(ctx context.Context, i *Item) (joined *Item, place int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if i.Merge != (Merge{}) {
		if joined, place = n.join(i.Merge, i.Deadline); joined != nil {
			return joined, place
		}
		n.open[i.Merge] = i
	}
	i.begin(ctx, &n.sender.limits)
	n.waiting = append(n.waiting, i)
	n.added(i.N)
	return i, 0
}

// join makes a caller one of the waiting item with that Merge. It returns nil if there is none, or if that item ends
// too early for the caller. The caller holds mu.
func (n *Node) join(merge Merge, deadline time.Time) (joined *Item, place int) {
	if joined = n.open[merge]; joined == nil || deadline.Sub(joined.Deadline) > sharing {
		return nil, 0
	}
	place = joined.N
	joined.N++
	n.added(1)
	return joined, place
}

// putBack adds items to the front of the queue.
func (n *Node) putBack(items []*Item) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.waiting = append(slices.Clip(items), n.waiting...)
	for _, i := range items {
		n.added(i.N)
	}
}

// repeat puts items back, each after its pause.
func (n *Node) repeat(items []*Item) {
	var now []*Item
	for _, i := range items {
		if i.pause > 0 {
			time.AfterFunc(i.pause, func() { n.putBack([]*Item{i}) })
		} else {
			now = append(now, i)
		}
	}
	n.putBack(now)
}

// added notes further waiting callers, and starts a pipeline if a place is free. The caller holds mu.
func (n *Node) added(callers int) {
	n.Waiting.Add(int32(callers))
	if len(n.inFlight) < n.limit() {
		go n.dispatch(n.enter())
	} else if !n.armed {
		n.relieve()
	}
}

// limit returns how many pipelines may be in flight. The caller holds mu.
func (n *Node) limit() int {
	limit := 1 + min(int(n.trip/tripPerPipeline), n.most-2)
	if n.Waiting.Load() >= manyWaiting {
		limit++
	}
	return limit
}

// enter puts a pipeline in flight. The caller holds mu.
func (n *Node) enter() (begun time.Time) {
	begun = time.Now()
	n.inFlight = append(n.inFlight, begun)
	n.busy++
	return begun
}

// exit takes a pipeline out of flight. It reports false if the pipeline had given up its place. If several pipelines
// began at the same instant, any of them may count as the stalled one: the number in flight is the same. The caller
// holds mu.
func (n *Node) exit(begun time.Time) bool {
	i := slices.Index(n.inFlight, begun)
	if i < 0 {
		return false
	}
	n.inFlight = slices.Delete(n.inFlight, i, i+1)
	return true
}

// measure keeps the shortest round trip, which fades over some hundred pipelines. The caller holds mu.
func (n *Node) measure(begun time.Time) {
	n.trip += n.trip / 256
	if trip := time.Since(begun); n.trip == 0 || trip < n.trip {
		n.trip = trip
	}
}

// relieve starts as many pipelines as are now allowed in flight, since the round trip may have grown. If the oldest one
// in flight has stalled, relieve gives its place to waiting items. It checks again later. It is only called while items
// wait, so a pipeline is in flight. The caller holds mu.
func (n *Node) relieve() {
	for more := len(n.waiting); more > 0 && len(n.inFlight) < n.limit(); more -= n.together {
		go n.dispatch(n.enter())
	}
	interval := stallInterval
	if n.busy >= n.connections/2 {
		interval = longSilence
	}
	now := time.Now()
	wait := max(stallBase+stallTrips*n.trip-now.Sub(n.inFlight[0]), interval-now.Sub(n.gaveUp))
	if wait <= 0 && n.busy < n.connections {
		n.inFlight, n.gaveUp = slices.Delete(n.inFlight, 0, 1), now
		go n.dispatch(n.enter())
	}
	if n.armed = true; wait <= 0 || wait > stallInterval {
		wait = stallInterval // the minimum round trip may shrink meanwhile
	}
	time.AfterFunc(wait, n.check)
}

// check drops the stale waiting items, and relieves the others.
func (n *Node) check() {
	var stale []*Item
	now := time.Now()
	n.mu.Lock()
	n.waiting = slices.DeleteFunc(n.waiting, func(i *Item) bool {
		if !i.isStale(now) {
			return false
		}
		n.remove(i)
		stale = append(stale, i)
		return true
	})
	if n.armed = len(n.waiting) > 0; n.armed {
		n.relieve()
	} else {
		n.waiting = nil
	}
	n.mu.Unlock()
	for _, i := range stale {
		i.drop()
	}
}

// remove closes an item to new callers. The caller holds mu, and removes the item from waiting.
func (n *Node) remove(i *Item) {
	if n.open[i.Merge] == i {
		delete(n.open, i.Merge)
	}
	n.Waiting.Add(-int32(i.N))
}

// dispatch sends pipelines until nothing waits or its place is gone. If a hook of the client panics or ends the
// goroutine, another one takes over.
func (n *Node) dispatch(begun time.Time) {
	var items []*Item
	defer func() {
		if len(items) > 0 {
			n.end(items, recover())
			go n.dispatch(begun)
		}
	}()
	for callers := 0; ; {
		n.gather(callers)
		var stale []*Item
		begun, items, stale, callers = n.next(begun)
		for _, i := range stale {
			i.drop()
		}
		if len(items) == 0 {
			return
		}
		// The others' deadlines are about the same. The wait for a connection ends a little sooner, so that the callers
		// learn that there was none.
		connect := items[0].Deadline.Add(-time.Until(items[0].Deadline) / 20)
		again := n.sender.send(items, connect, &n.sender.connects)
		if !slices.Contains(again, items[0]) && items[0].Result.Err == nil {
			n.mu.Lock()
			n.measure(begun)
			n.mu.Unlock()
		}
		if len(again) > 0 {
			n.repeat(again)
		}
	}
}

// end finishes the items of a pipeline that a hook ended. It gets the value with which the hook panicked, nil for none.
func (n *Node) end(items []*Item, panicked any) {
	for _, i := range items {
		for ; i != nil; i = i.next {
			if i.command.Cmd != nil {
				i.Command.Lost(ErrEnded)
			}
			i.panicked = panicked
			i.finish(Result{Err: ErrEnded, Earlier: i.earlier})
		}
	}
}

// gather lets goroutines that are ready to run join first, especially callers that were just answered and call again.
// A single caller need not join, since it can send its next item itself.
func (n *Node) gather(answered int) {
	for tries, enough := 0, answered == 1; tries < 4 && !enough; tries++ {
		runtime.Gosched()
		enough = int(n.Waiting.Load()) >= min(answered, manyWaiting)
	}
}

// next hands the place of a finished pipeline to the next one. It returns the items to send, the items to drop, and how
// many callers wait for the former: none if nothing waits, or if the place was given up.
func (n *Node) next(begun time.Time) (next time.Time, items, stale []*Item, callers int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.busy--
	if !n.exit(begun) || len(n.waiting) == 0 {
		return begun, nil, nil, 0
	}
	now := time.Now()
	var rest []*Item // a copy, so memory from a rush is freed
	for k, i := range n.waiting {
		if len(items) == n.together {
			rest = append(rest, n.waiting[k:]...)
			break
		}
		switch {
		case i.isStale(now):
			n.remove(i)
			stale = append(stale, i)
		case len(items) == 0 || i.fits(items[0]):
			n.remove(i)
			items, callers = append(items, i), callers+i.N
		default:
			rest = append(rest, i)
		}
	}
	n.waiting = rest
	if len(items) > 0 {
		begun = n.enter()
	}
	return begun, items, stale, callers
}
