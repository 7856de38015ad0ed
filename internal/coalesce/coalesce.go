// Package coalesce lets callers with the same request at the same moment share one call.
//
// A caller that is alone makes its call at once. While enough calls are in flight, further callers join the next batch,
// which is sent when a call returns. So batches grow with the load, and a caller waits for at most a fraction of a
// round trip.
package coalesce

import (
	"errors"
	"runtime"
	"slices"
	"sync"
	"time"
)

var (
	// ErrEnded is the error of a batch that send did not finish, for example because a hook called runtime.Goexit.
	ErrEnded = errors.New("serial: the goroutine of a call was ended from outside")
	// ErrUnsent is the error of a batch that was never sent: it waited for its limit, or all its members left.
	ErrUnsent = errors.New("serial: the call was not sent in time")
)

// The minimum round trip decides how many calls may be in flight. On loopback, most of a round trip is work, so the
// next batch should gather all callers until the last call has returned. Over a network, most of it is waiting, so a
// caller should not wait for another caller's round trip before its own.
const (
	tripPerCall = 250 * time.Microsecond // part of the minimum round trip that allows one more call in flight
	manyWaiting = 32                     // waiting callers that justify one more call, whatever the round trip

	// A call that takes longer than stallBase and stallTrips minimum round trips has stalled, perhaps on a broken
	// connection. It gives up its place in flight to waiting callers. At most one call does so per stallInterval, so a
	// hanging server is not flooded.
	stallBase     = 5 * time.Millisecond
	stallTrips    = 10
	stallInterval = 50 * time.Millisecond

	// longestLook is the most time that one check of the waiting batches charges them. They are checked once per
	// stallInterval, so during any more time this process was suspended.
	longestLook = 5 * stallInterval
)

// A Batcher batches calls that can be sent together, such as calls to one server. K is the batch key: callers with the
// same key share a batch. P is the payload, which the first member gives to the sender. R is the result; each member
// takes its share by its place. A Batcher is safe for concurrent use. While nobody calls, it has no goroutine, no
// running timer, and no data for any key.
type Batcher[K comparable, P, R any] struct {
	together int // most batches in one call
	base     int // most calls in flight with the shortest round trip
	most     int // most calls in flight with the longest round trip
	send     func([]*Batch[K, P, R])
	late     func(*Batch[K, P, R], int)

	mu       sync.Mutex            // guards all below, and the size of waiting batches
	waiting  []*Batch[K, P, R]     // batches to send, in order of their first members
	open     map[K]*Batch[K, P, R] // the waiting batches, by key
	members  int                   // callers in all waiting batches
	inFlight []time.Time           // start of each call that holds a place, oldest first
	trip     time.Duration         // recent minimum round trip
	armed    bool                  // the stall timer is running
	gaveUp   time.Time             // time when a stalled call last gave up its place
}

// New returns a Batcher. send sends batches of different keys in one call, and finishes each of them (Batch.Finish), in
// any order, before it returns. It may reorder the slice, but must keep every batch in it: the Batcher finishes the
// rest. together, at least 1, is the most batches that send takes. base, at least 1, is how many calls may be in flight
// whatever the round trip: more than one if the server takes longer than the caller, so the server need not wait for
// the next call. most, which is greater, limits the calls in flight however long the round trip, not counting stalled
// calls. late is called for the place of each member that has left, once its batch is finished.
func New[K comparable, P, R any](
	together, base, most int, send func([]*Batch[K, P, R]), late func(b *Batch[K, P, R], place int),
) *Batcher[K, P, R] {
	return &Batcher[K, P, R]{
		together: together, base: base, most: most, send: send, late: late, open: map[K]*Batch[K, P, R]{},
	}
}

// Leave ends the call of a caller without a batch. If the call was answered, its time counts as a round trip.
func (b *Batcher[K, P, R]) Leave(begun time.Time, answered bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if answered {
		b.measure(begun)
	}
	if b.exit(begun) && len(b.waiting) > 0 {
		go b.dispatch(b.enter())
	}
}

// Join makes the caller a member of key's waiting batch, or of a new one with payload p, which ends with [ErrUnsent] if
// it cannot be sent within limit. The limit is for all members, since the server has answered too little in all that
// time. place is the caller's position in the batch, from 0 in the order of arrival. If alone is allowed, nobody waits
// and a place in flight is free, the caller gets no batch: it makes its call itself, and must call Leave, even if the
// call panics.
func (b *Batcher[K, P, R]) Join(
	key K, p P, limit time.Duration, mayBeAlone bool,
) (batch *Batch[K, P, R], place int, begun time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if mayBeAlone && len(b.waiting) == 0 && len(b.inFlight) < b.limit() {
		return nil, 0, b.enter()
	}
	batch = b.open[key]
	if batch == nil {
		batch = &Batch[K, P, R]{
			Key: key, Payload: p, limit: limit, looked: time.Now(), late: b.late, done: make(chan struct{}),
		}
		b.open[key] = batch
		b.waiting = append(b.waiting, batch)
	}
	return batch, b.add(batch), begun
}

// JoinWaiting makes the caller a member of key's waiting batch. It returns nil if there is none.
func (b *Batcher[K, P, R]) JoinWaiting(key K) (batch *Batch[K, P, R], place int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if batch = b.open[key]; batch != nil {
		place = b.add(batch)
	}
	return batch, place
}

// add makes the caller a member of a waiting batch, and returns its place. The caller holds mu.
func (b *Batcher[K, P, R]) add(batch *Batch[K, P, R]) (place int) {
	place = batch.size
	batch.size++
	b.members++
	if len(b.inFlight) < b.limit() {
		go b.dispatch(b.enter())
	} else if !b.armed {
		b.relieve()
	}
	return place
}

// limit returns how many calls may be in flight. The caller holds mu.
func (b *Batcher[K, P, R]) limit() int {
	n := b.base + min(int(b.trip/tripPerCall), b.most-1-b.base)
	if b.members >= manyWaiting {
		n++
	}
	return n
}

// enter puts a call in flight. The caller holds mu.
func (b *Batcher[K, P, R]) enter() (begun time.Time) {
	begun = time.Now()
	b.inFlight = append(b.inFlight, begun)
	return begun
}

// exit takes a call out of flight. It reports false if the call had given up its place. If several calls began at the
// same instant, any of them may count as the stalled one: the number in flight is the same. The caller holds mu.
func (b *Batcher[K, P, R]) exit(begun time.Time) bool {
	i := slices.Index(b.inFlight, begun)
	if i < 0 {
		return false
	}
	b.inFlight = slices.Delete(b.inFlight, i, i+1)
	return true
}

// measure keeps the shortest round trip, which fades over some hundred calls. The caller holds mu.
func (b *Batcher[K, P, R]) measure(begun time.Time) {
	b.trip += b.trip / 256
	if trip := time.Since(begun); b.trip == 0 || trip < b.trip {
		b.trip = trip
	}
}

// relieve starts as many calls as are now allowed in flight, since the round trip may have grown. If the oldest call in
// flight has stalled, relieve gives its place to waiting callers. It checks again later. It is only called while
// somebody waits, so there is a call in flight. The caller holds mu.
func (b *Batcher[K, P, R]) relieve() {
	for more := len(b.waiting); more > 0 && len(b.inFlight) < b.limit(); more -= b.together {
		go b.dispatch(b.enter())
	}
	wait := max(stallBase+stallTrips*b.trip-time.Since(b.inFlight[0]), stallInterval-time.Since(b.gaveUp))
	if wait <= 0 {
		b.inFlight = slices.Delete(b.inFlight, 0, 1)
		b.gaveUp = time.Now()
		go b.dispatch(b.enter())
	}
	b.armed = true
	// The minimum round trip may shrink meanwhile.
	time.AfterFunc(min(wait, stallInterval), func() { endUnsent(b.check()) })
}

// check removes and returns the stale waiting batches, and relieves the others.
func (b *Batcher[K, P, R]) check() (unsent []*Batch[K, P, R]) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	b.waiting = slices.DeleteFunc(b.waiting, func(batch *Batch[K, P, R]) bool {
		if !batch.isStale(now) {
			return false
		}
		b.remove(batch)
		unsent = append(unsent, batch)
		return true
	})
	if b.armed = len(b.waiting) > 0; b.armed {
		b.relieve()
	} else {
		b.waiting = nil
	}
	return unsent
}

// remove closes a batch to new members. The caller holds mu, and removes the batch from waiting.
func (b *Batcher[K, P, R]) remove(batch *Batch[K, P, R]) {
	delete(b.open, batch.Key)
	b.members -= batch.size
}

// dispatch sends batches until none waits or its place is gone. If send panics or ends the goroutine, another one takes
// over.
func (b *Batcher[K, P, R]) dispatch(begun time.Time) {
	var batches []*Batch[K, P, R]
	defer func() {
		if len(batches) > 0 {
			b.complete(begun, batches, recover())
			go b.dispatch(begun)
		}
	}()
	for members := 0; ; {
		b.gather(members)
		if begun, batches, members = b.next(begun); len(batches) == 0 {
			return
		}
		b.send(batches)
		b.complete(begun, batches, nil)
	}
}

// gather lets goroutines that are ready to run join first, especially callers that were just answered and call again.
func (b *Batcher[K, P, R]) gather(answered int) {
	for tries, enough := 0, false; tries < 4 && !enough; tries++ {
		runtime.Gosched()
		b.mu.Lock()
		enough = b.members >= min(answered, manyWaiting)
		b.mu.Unlock()
	}
}

// next hands a finished call's place to the next call. It returns the batches to send, and how many members they have:
// none if nobody waits, or if the place was given up.
func (b *Batcher[K, P, R]) next(begun time.Time) (next time.Time, batches []*Batch[K, P, R], members int) {
	var unsent []*Batch[K, P, R]
	defer func() { endUnsent(unsent) }() // runs without mu
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.exit(begun) || len(b.waiting) == 0 {
		return begun, nil, 0
	}
	now, waiting, n := time.Now(), b.waiting, 0
	for batches = waiting[:0]; n < len(waiting) && len(batches) < b.together; n++ {
		batch := waiting[n]
		b.remove(batch)
		if batch.isStale(now) {
			unsent = append(unsent, batch)
			continue
		}
		batches, members = append(batches, batch), members+batch.size
	}
	b.waiting = append([]*Batch[K, P, R](nil), waiting[n:]...) // a copy, so memory from a rush is freed
	if len(batches) == 0 {
		return begun, nil, 0
	}
	b.inFlight = append(b.inFlight, now)
	return now, slices.Clip(batches), members
}

// complete finishes the batches that send left unfinished, and measures the call.
func (b *Batcher[K, P, R]) complete(begun time.Time, batches []*Batch[K, P, R], panicked any) {
	for _, batch := range batches {
		if !batch.Finished() {
			batch.err, batch.panicked = ErrEnded, panicked
			batch.end()
		}
	}
	if batches[0].err == nil {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.measure(begun)
	}
}
