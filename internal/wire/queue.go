package wire

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// This file contains the queue of the items that wait for a server. The number of pipelines in flight is limited. Below
// the limit, an item is sent immediately. Otherwise it waits, and callers with the same Merge share it. When a pipeline
// returns, the next pipeline takes as many waiting items as possible. So pipelines become longer as the load grows.

// The limit depends on the minimum round-trip time. On loopback, a round trip is mostly CPU work. One pipeline in
// flight is then enough, and the next pipeline collects all callers that have arrived in the meantime. Over a network,
// a round trip is mostly waiting. Several pipelines may then be in flight, so that a caller does not have to wait until
// an earlier pipeline returns.
const (
	tripPerPipeline = 250 * time.Microsecond // minimum round-trip time for each additional pipeline in flight
	maxInFlight     = 8                      // upper bound of the limit; stalled pipelines are not counted
	manyWaiting     = 32                     // waiting callers for which the limit is raised by one
	fewWaiting      = 2                      // waiting items for which the limit is never raised

	// A pipeline has stalled, perhaps on a broken connection, if it takes longer than stallBase plus stallTrips minimum
	// round trips. It is then no longer counted as in flight, so another pipeline can be sent. This happens to at most one
	// pipeline per stallInterval or, once half of the connections are in use, per longSilence. So there are still unused
	// connections when a server that has hung for a long time replies again.
	stallBase     = 5 * time.Millisecond
	stallTrips    = 10
	stallInterval = 50 * time.Millisecond
	longSilence   = 500 * time.Millisecond

	maxTogether = 128 // largest number of items in a pipeline over a network connection
	// maxTogetherInMemory is the largest number of items in a pipeline over any other connection, such as an in-memory
	// pipe of a test. While the server replies to the first command, the connection must buffer the rest of the pipeline.
	// Such a pipe has no buffer, but miniredis reads 4 KiB at a time, which is enough for four of the longest items.
	maxTogetherInMemory = 4
)

// A Node is a server that has keys, with the queue of its items. It is safe for concurrent use. After the deadlines of
// all calls have passed, it has no goroutine, no running timer, and no data of any item.
type Node struct {
	Local any // state of the server for the package that uses the Client
	// Waiting is the number of callers whose items wait in the queue. If it is 0, [Client.Join] finds no item.
	Waiting atomic.Int32

	sender       sender
	together     int // largest number of items in a pipeline
	maxPipelines int // upper bound of the limit of pipelines in flight
	connections  int // largest number of connections of the client

	mu             sync.Mutex      // guards the fields below, and N of waiting items
	waiting        []*Item         // items to send, in order
	waitingByMerge map[Merge]*Item // waiting items that callers may join, by Merge
	inFlight       []time.Time     // start times of the pipelines in flight that have not stalled, oldest first
	busy           int             // number of pipelines in flight, including stalled ones
	latest         int             // number of items in the pipeline that began last
	trip           time.Duration   // recent minimum round-trip time
	armed          bool            // whether the timer for stalled pipelines is running
	gaveUp         time.Time       // time at which the latest stalled pipeline was removed from inFlight
}

// sendDirectly sends an item in its caller's goroutine. It returns false if items are waiting or if the limit is
// reached. If the item must be sent again, sendDirectly queues it and sets done.
func (n *Node) sendDirectly(ctx context.Context, i *Item) (sent bool) {
	n.mu.Lock()
	if len(n.waiting) > 0 || len(n.inFlight) >= n.limit() {
		n.mu.Unlock()
		return false
	}
	begun := n.enter()
	n.mu.Unlock()
	i.ctx, i.limits, i.N = ctx, &n.sender.limits, 1
	items, over, replied := []*Item{i}, false, false
	defer func() {
		if !over {
			n.end(items, nil) // a hook of the client has panicked
		}
		n.mu.Lock()
		defer n.mu.Unlock()
		if n.busy--; replied {
			n.measure(begun)
		}
		if n.exit(begun) && len(n.waiting) > 0 {
			go n.dispatch(n.enter())
		}
	}()
	again := n.sender.send(items, i.Deadline.Add(-n.sender.read), &n.sender.ownConnects)
	if over, replied = true, again == nil && i.Result.Err == nil; again != nil {
		i.done, i.limit = make(chan struct{}), n.sender.limits.until(i.Deadline)
		n.repeat(again)
	}
	return true
}

// add makes the caller join a waiting item with the same Merge. If there is no such item, add queues the caller's own
// item. It returns the item that the caller waits for, and the caller's position in it.
func (n *Node) add(ctx context.Context, i *Item) (joined *Item, position int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if i.Merge != (Merge{}) {
		if joined, position = n.join(i.Merge, i.Deadline); joined != nil {
			return joined, position
		}
		n.waitingByMerge[i.Merge] = i
	}
	i.begin(ctx, &n.sender.limits)
	n.waiting = append(n.waiting, i)
	n.added(i.N)
	return i, 0
}

// join makes a caller join the waiting item with a Merge. It returns the item, and the caller's position in it. It
// returns nil if there is no such item, or if the item's deadline is too early for the caller. n.mu must be held.
func (n *Node) join(merge Merge, deadline time.Time) (joined *Item, position int) {
	if joined = n.waitingByMerge[merge]; joined == nil || deadline.Sub(joined.Deadline) > sharing {
		return nil, 0
	}
	position = joined.N
	joined.N++
	n.added(1)
	return joined, position
}

// putBack puts items at the front of the queue.
func (n *Node) putBack(items []*Item) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.waiting = append(slices.Clip(items), n.waiting...)
	for _, i := range items {
		n.added(i.N)
	}
}

// repeat puts each item back into the queue after its pause.
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

// added counts additional waiting callers, and starts a pipeline if the limit allows it. n.mu must be held.
func (n *Node) added(callers int) {
	n.Waiting.Add(int32(callers))
	if len(n.inFlight) < n.limit() {
		go n.dispatch(n.enter())
	} else if !n.armed {
		n.relieve()
	}
}

// limit returns how many pipelines may be in flight. The number is raised by one if many callers wait. On loopback, it
// is also raised if more items wait than the latest pipeline had. The server then works on one pipeline while this
// process prepares another one. This does not apply to a server in this process. n.mu must be held.
func (n *Node) limit() int {
	limit := 1 + min(int(n.trip/tripPerPipeline), n.maxPipelines-2)
	overlaps := limit == 1 && n.together > maxTogetherInMemory && len(n.waiting) > max(fewWaiting, n.latest)
	if n.Waiting.Load() >= manyWaiting || overlaps {
		limit++
	}
	return limit
}

// enter counts a new pipeline as in flight, and returns its start time. n.mu must be held.
func (n *Node) enter() (begun time.Time) {
	begun = time.Now()
	n.inFlight = append(n.inFlight, begun)
	n.busy++
	return begun
}

// exit removes a pipeline from inFlight. It returns false if the pipeline had already been removed, because it had
// stalled. Pipelines that began at the same instant cannot be distinguished, but it does not matter which of them
// counts as stalled. n.mu must be held.
func (n *Node) exit(begun time.Time) bool {
	i := slices.Index(n.inFlight, begun)
	if i < 0 {
		return false
	}
	n.inFlight = slices.Delete(n.inFlight, i, i+1)
	return true
}

// measure updates the minimum round-trip time. The minimum also grows slowly, so that it adapts within a few hundred
// pipelines if the network has become slower. n.mu must be held.
func (n *Node) measure(begun time.Time) {
	n.trip += n.trip / 256
	if trip := time.Since(begun); n.trip == 0 || trip < n.trip {
		n.trip = trip
	}
}

// relieve starts more pipelines if the limit has risen. If the oldest pipeline in flight has stalled, relieve stops
// counting it and starts another one. It also sets a timer for the next check. It must be called only while items are
// waiting, because only then is it certain that a pipeline is in flight. n.mu must be held.
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
		wait = stallInterval // the minimum round-trip time may shrink in the meantime
	}
	time.AfterFunc(wait, n.check)
}

// check drops the waiting items that are stale, and calls relieve if others are waiting.
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

// remove prevents new callers from joining an item, and stops counting its callers as waiting. It does not remove the
// item from n.waiting. n.mu must be held.
func (n *Node) remove(i *Item) {
	if n.waitingByMerge[i.Merge] == i {
		delete(n.waitingByMerge, i.Merge)
	}
	n.Waiting.Add(-int32(i.N))
}

// dispatch sends one pipeline after another until the queue is empty. It also stops after a pipeline that had stalled,
// because relieve has already started another goroutine instead. The time begun is the start time of its first
// pipeline. If a hook of the client panics or ends the goroutine, another goroutine continues.
func (n *Node) dispatch(begun time.Time) {
	var items []*Item
	defer func() {
		if len(items) > 0 {
			n.end(items, recover())
			go n.dispatch(begun)
		}
	}()
	for callers := 0; ; {
		n.collect(callers)
		var stale []*Item
		begun, items, stale, callers = n.next(begun)
		for _, i := range stale {
			i.drop()
		}
		if len(items) == 0 {
			return
		}
		// The deadlines of all items are about the same. The wait for a connection ends a little earlier, so that the callers
		// still get the error that there was no connection.
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

// end finishes the items of a pipeline that a hook of the client has interrupted. The parameter panicked is the value
// with which the hook panicked, or nil if it ended the goroutine.
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

// collect yields to other goroutines before the next pipeline begins, so that they can add items to the queue. These
// are mainly the callers that have just got a reply and call again; replied is their number. If it is 1, collect
// returns at once, because a single caller can send its next item itself.
func (n *Node) collect(replied int) {
	for tries, enough := 0, replied == 1; tries < 4 && !enough; tries++ {
		runtime.Gosched()
		enough = int(n.Waiting.Load()) >= min(replied, manyWaiting)
	}
}

// next ends a pipeline and begins the next one. It returns the start time of the next pipeline, its items, the stale
// items to drop, and the number of callers of the next pipeline. There are no items if the queue is empty, or if the
// finished pipeline was no longer counted because it had stalled.
func (n *Node) next(begun time.Time) (next time.Time, items, stale []*Item, callers int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.busy--
	if !n.exit(begun) || len(n.waiting) == 0 {
		return begun, nil, nil, 0
	}
	now := time.Now()
	var rest []*Item // a new slice, so that the memory of a long queue is freed
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
		begun, n.latest = n.enter(), len(items)
	}
	return begun, items, stale, callers
}
