// Package coalesce lets callers that ask for the same thing at the same moment share one call.
//
// A caller that meets nobody makes its call at once. While as many calls are in flight as make sense, those who come
// gather in the next batch, which is sent when a call returns. So batches grow with the load by themselves, and a caller
// waits for a part of a round trip at most.
package coalesce

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

var (
	// ErrTimeout is the error of a member that has waited for its limit.
	ErrTimeout = errors.New("no answer in time")
	// ErrEnded is the error of a batch whose sender left without finishing it, by runtime.Goexit in a hook, say.
	ErrEnded = errors.New("the goroutine of a call was ended from outside")
)

// How many calls may be in flight follows from the minimum round trip. On loopback most of a round trip is work, and the
// next batch had better gather everybody until the last call has returned. Over a network most of it is waiting, and a
// caller should not wait for another one's round trip before its own.
const (
	tripPerCall  = 250 * time.Microsecond // of the minimum round trip, for each further call in flight
	mostInFlight = 8
	manyWaiting  = 32 // waiting callers that are worth one more call, whatever the round trip

	// A call that takes longer than stallBase and stallTrips minimum round trips has stalled, on a broken connection, say.
	// It gives its place in flight to those who wait. One call does so in every stallInterval at most, so that a server
	// that hangs is not stormed.
	stallBase     = 5 * time.Millisecond
	stallTrips    = 10
	stallInterval = 50 * time.Millisecond
)

// A Lane batches the calls that can be sent together, such as those to one server. K is the batch key: callers of one key
// share a batch. P is what the sender needs to know of a batch, given by its first member. R is the result, of which each
// member takes its part by its place. A Lane is for any number of goroutines; while nobody calls, it holds no goroutine,
// no running timer, and nothing for any key.
type Lane[K comparable, P, R any] struct {
	together func() int
	send     func([]*Batch[K, P, R])

	mu       sync.Mutex            // guards all below, and the size of batches that wait
	waiting  []*Batch[K, P, R]     // batches to be sent, in order of their first members
	open     map[K]*Batch[K, P, R] // the waiting batches, by key
	members  int                   // callers in all waiting batches
	inFlight []time.Time           // beginnings of the calls in flight, oldest first, without those that gave up their place
	trip     time.Duration         // minimum round trip of late
	armed    bool                  // the stall timer is running
	gaveUp   time.Time             // when a stalled call last gave up its place
}

// New returns a lane. send sends batches of different keys in one call and finishes each of them (Batch.Finish), in any
// order, before it returns. It may reorder the slice, but every batch stays in it: whatever send leaves unfinished, the lane
// finishes. together is how many batches send takes, at least 1.
func New[K comparable, P, R any](together func() int, send func([]*Batch[K, P, R])) *Lane[K, P, R] {
	return &Lane[K, P, R]{together: together, send: send, open: map[K]*Batch[K, P, R]{}}
}

// A Batch is one request for all its members.
type Batch[K comparable, P, R any] struct {
	Key     K
	Payload P         // the first member's
	Begun   time.Time // when the first member came

	// Note holds the failure of the sender's last attempt, for members that leave before the outcome.
	Note atomic.Pointer[error]

	size     int // guarded by the lane's mu until the batch is sent
	done     chan struct{}
	result   R // this and the rest are written before done is closed, and only read after
	err      error
	panicked any
}

// Size is the number of members. It is fixed once the batch is sent, and not to be called before.
func (b *Batch[K, P, R]) Size() int { return b.size }

// Finish gives all members their result. It is called once, before send returns.
func (b *Batch[K, P, R]) Finish(r R, err error) {
	b.result, b.err = r, err
	close(b.done)
}

// Wait returns the batch's result, which all members share, or ctx's error, or ErrTimeout after limit if that is not 0. A
// member that leaves does not stop the others. If send panicked before it finished the batch, every member panics alike.
func (b *Batch[K, P, R]) Wait(ctx context.Context, limit time.Duration) (*R, error) {
	if ctx.Done() == nil && limit == 0 {
		<-b.done // half as dear as a select
	} else {
		var timeout <-chan time.Time
		if limit != 0 {
			timer := time.NewTimer(limit)
			defer timer.Stop()
			timeout = timer.C
		}
		select {
		case <-b.done:
		case <-timeout:
			return nil, ErrTimeout
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	if b.panicked != nil {
		panic(b.panicked)
	}
	return &b.result, b.err
}

// A Place is held by a call in flight.
type Place struct{ begun time.Time }

// Alone reserves a place in flight for a caller if one is free and nobody waits. The caller then makes its call itself and
// must call Leave, even if the call panics.
func (l *Lane[K, P, R]) Alone() (Place, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.waiting) > 0 || len(l.inFlight) >= l.limit() {
		return Place{}, false
	}
	return l.enter(), true
}

// Leave ends a call that Alone allowed. If it was answered, the time it took counts as a round trip.
func (l *Lane[K, P, R]) Leave(p Place, answered bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if answered {
		l.measure(p)
	}
	if l.exit(p) && len(l.waiting) > 0 {
		go l.dispatch(l.enter())
	}
}

// Join makes the caller a member of the batch of key that waits to be sent, or of a new one with p. place is its position
// in the batch, from 0 in the order of arrival.
func (l *Lane[K, P, R]) Join(key K, p P) (b *Batch[K, P, R], place int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	b = l.open[key]
	if b == nil {
		b = &Batch[K, P, R]{Key: key, Payload: p, Begun: time.Now(), done: make(chan struct{})}
		l.open[key] = b
		l.waiting = append(l.waiting, b)
	}
	return b, l.add(b)
}

// JoinWaiting is Join if a batch of key waits to be sent. Otherwise the batch is nil.
func (l *Lane[K, P, R]) JoinWaiting(key K) (b *Batch[K, P, R], place int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if b = l.open[key]; b == nil {
		return nil, 0
	}
	return b, l.add(b)
}

// add makes the caller a member of a batch that waits. The caller holds mu.
func (l *Lane[K, P, R]) add(b *Batch[K, P, R]) (place int) {
	b.size++
	l.members++
	switch {
	case len(l.inFlight) < l.limit():
		go l.dispatch(l.enter())
	case !l.armed:
		l.watch()
	}
	return b.size - 1
}

// limit is how many calls may be in flight. The caller holds mu.
func (l *Lane[K, P, R]) limit() int {
	n := 1 + min(int(l.trip/tripPerCall), mostInFlight-2)
	if l.members >= manyWaiting {
		n++
	}
	return n
}

// enter puts a call in flight. The caller holds mu.
func (l *Lane[K, P, R]) enter() Place {
	p := Place{time.Now()}
	l.inFlight = append(l.inFlight, p.begun)
	return p
}

// exit takes a call out of flight. It reports false if the call had given up its place. Of calls that began in the same
// instant, any may be taken for the stalled one: the number of those in flight is the same. The caller holds mu.
func (l *Lane[K, P, R]) exit(p Place) bool {
	i := slices.Index(l.inFlight, p.begun)
	if i < 0 {
		return false
	}
	l.inFlight = slices.Delete(l.inFlight, i, i+1)
	return true
}

// measure keeps the shortest round trip, and forgets it in the course of some hundred calls. The caller holds mu.
func (l *Lane[K, P, R]) measure(p Place) {
	l.trip += l.trip / 256
	if trip := time.Since(p.begun); l.trip == 0 || trip < l.trip {
		l.trip = trip
	}
}

// watch gives the place of the oldest call in flight to those who wait, if it has stalled, and looks again when it may have. The
// caller holds mu. Somebody waits, so that there is a call in flight.
func (l *Lane[K, P, R]) watch() {
	wait := max(stallBase+stallTrips*l.trip-time.Since(l.inFlight[0]), stallInterval-time.Since(l.gaveUp))
	if wait <= 0 {
		l.inFlight = slices.Delete(l.inFlight, 0, 1)
		l.gaveUp = time.Now()
		go l.dispatch(l.enter())
		wait = stallInterval
	}
	l.armed = true
	time.AfterFunc(min(wait, stallInterval), func() { // the minimum round trip may shrink meanwhile
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.armed = len(l.waiting) > 0; l.armed {
			l.watch()
		}
	})
}

// dispatch sends batches until none waits or its place is gone.
func (l *Lane[K, P, R]) dispatch(p Place) {
	for answered := 0; ; {
		l.gather(answered)
		var batches []*Batch[K, P, R]
		if p, batches = l.next(p); len(batches) == 0 {
			return
		}
		l.call(p, batches)
		answered = 0
		for _, b := range batches {
			answered += b.size
		}
	}
}

// gather lets goroutines that are ready to run come along, above all the callers who were just answered and call again.
func (l *Lane[K, P, R]) gather(answered int) {
	runtime.Gosched()
	for tries := 1; tries < 4 && answered < manyWaiting; tries++ { // of many, enough have come by then
		l.mu.Lock()
		all := l.members >= answered
		l.mu.Unlock()
		if all {
			return
		}
		runtime.Gosched()
	}
}

// next exchanges the place of a call that has returned for that of the next one, with the batches to be sent by it. There
// are none if nobody waits, or if the place was given up.
func (l *Lane[K, P, R]) next(p Place) (Place, []*Batch[K, P, R]) {
	most := l.together()
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.exit(p) {
		return p, nil
	}
	n := min(len(l.waiting), most)
	if n == 0 {
		l.waiting = nil // what grew in a rush is given back
		return p, nil
	}
	batches := l.waiting[:n:n]
	l.waiting = l.waiting[n:]
	for _, b := range batches {
		delete(l.open, b.Key)
		l.members -= b.size
	}
	return l.enter(), batches
}

// call makes one call. If send ends the goroutine, the dispatcher goes on in another one.
func (l *Lane[K, P, R]) call(p Place, batches []*Batch[K, P, R]) {
	returned := false
	defer func() {
		panicked := recover()
		for _, b := range batches {
			select {
			case <-b.done:
			default:
				var none R
				b.panicked = panicked
				b.Finish(none, ErrEnded)
			}
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		if batches[0].err == nil {
			l.measure(p)
		}
		if !returned && panicked == nil {
			go l.dispatch(p)
		}
	}()
	l.send(batches)
	returned = true
}
