// Package coalesce lets callers that ask for the same thing at the same moment share one call.
//
// A caller that meets nobody makes its call at once. While as many calls are in flight as make sense, further callers join the
// next batch, which is sent when a call returns. So batches grow with the load by themselves, and a caller waits for a part of
// a round trip at most.
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

// ErrEnded is the error of a batch that send did not finish: a hook called runtime.Goexit, say.
var ErrEnded = errors.New("serial: the goroutine of a call was ended from outside")

// How many calls may be in flight follows from the minimum round trip. On loopback most of a round trip is work, so the next
// batch should gather everybody until the last call has returned. Over a network most of it is waiting, so a caller should
// not wait for another caller's round trip before its own.
const (
	tripPerCall  = 250 * time.Microsecond // of the minimum round trip, for each further call in flight
	mostInFlight = 8
	manyWaiting  = 32 // waiting callers that are worth one more call, whatever the round trip

	// A call that takes longer than stallBase and stallTrips minimum round trips has stalled, on a broken connection, say.
	// It gives up its place in flight to those who wait. At most one call does so per stallInterval, so that a server that
	// hangs is not flooded.
	stallBase     = 5 * time.Millisecond
	stallTrips    = 10
	stallInterval = 50 * time.Millisecond
)

// A Batcher batches the calls that can be sent together, such as those to one server. K is the batch key: callers of one key
// share a batch. P is what the sender needs to know of a batch, given by its first member. R is the result, of which each
// member takes its part by its place. A Batcher is safe for use by any number of goroutines. While nobody calls, it holds no
// goroutine, no running timer, and nothing for any key.
type Batcher[K comparable, P, R any] struct {
	together int // batches in one call, at most
	base     int // calls in flight that make sense whatever the round trip
	send     func([]*Batch[K, P, R])
	late     func(*Batch[K, P, R], int)

	mu       sync.Mutex            // guards all below, and the size of batches that wait
	waiting  []*Batch[K, P, R]     // batches to be sent, in order of their first members
	open     map[K]*Batch[K, P, R] // the waiting batches, by key
	members  int                   // callers in all waiting batches
	inFlight []time.Time           // when each call that holds a place began, oldest first
	trip     time.Duration         // recent minimum round trip
	armed    bool                  // the stall timer is running
	gaveUp   time.Time             // when a stalled call last gave up its place
}

// New returns a Batcher. send sends batches of different keys in one call and finishes each of them (Batch.Finish), in any
// order, before it returns. It may reorder the slice, but must keep every batch in it: the Batcher finishes those that send
// did not. together is how many batches send takes at most, at least 1. base is how many calls may be in flight whatever the round trip,
// at least 1: more than one if the server takes longer than the caller, so that it need not wait for the next call. late is called for the
// place of each member that has left, once its batch is finished.
func New[K comparable, P, R any](
	together, base int, send func([]*Batch[K, P, R]), late func(b *Batch[K, P, R], place int),
) *Batcher[K, P, R] {
	return &Batcher[K, P, R]{together: together, base: base, send: send, late: late, open: map[K]*Batch[K, P, R]{}}
}

// A Batch is one request for all its members.
type Batch[K comparable, P, R any] struct {
	Key     K
	Payload P         // the first member's
	Begun   time.Time // when the first member came

	// Note holds the failure of the sender's last attempt, for members that leave before the outcome.
	Note atomic.Pointer[error]

	size     int // guarded by the Batcher's mu until the batch is sent
	late     func(*Batch[K, P, R], int)
	left     atomic.Pointer[member] // members that left, latest first; finished once the result is there
	done     chan struct{}
	result   R // this and the rest are written before done is closed, and only read after
	err      error
	panicked any
}

// Size is the number of members. It must not be called before the batch is sent; from then on it does not change.
func (b *Batch[K, P, R]) Size() int { return b.size }

// A member is one that left.
type member struct {
	place int
	next  *member
}

// finished stands for the end of a batch: nobody can leave any more.
var finished = new(member)

// Finish gives all members their result. It is called once, before send returns.
func (b *Batch[K, P, R]) Finish(r R, err error) {
	b.result, b.err = r, err
	b.end()
}

func (b *Batch[K, P, R]) end() {
	left := b.left.Swap(finished)
	close(b.done)
	for ; left != nil; left = left.next {
		b.late(b, left.place)
	}
}

// Finished reports whether the batch has its result.
func (b *Batch[K, P, R]) Finished() bool { return b.left.Load() == finished }

// Leave ends the wait of the member with that place. It returns false if the batch is finished: then the result is there. So each
// member either has its result, or it is told to late, whatever the moment.
func (b *Batch[K, P, R]) Leave(place int) bool {
	for leaver := (&member{place: place}); ; {
		if leaver.next = b.left.Load(); leaver.next == finished {
			return false
		}
		if b.left.CompareAndSwap(leaver.next, leaver) {
			return true
		}
	}
}

// Result is the result of a finished batch.
func (b *Batch[K, P, R]) Result() (*R, error) { return &b.result, b.err }

// Wait returns the batch's result, which all members share, or ctx's error; then the member leaves with [Batch.Leave], which does
// not stop the others, or waits again. If send panicked before it finished the batch, Wait panics with the same value.
func (b *Batch[K, P, R]) Wait(ctx context.Context) (*R, error) {
	if ctx.Done() == nil {
		<-b.done // half the cost of a select
	} else {
		select {
		case <-b.done:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	if b.panicked != nil {
		panic(b.panicked)
	}
	return &b.result, b.err
}

// Leave ends a call of a caller that is alone. If it was answered, the time it took counts as a round trip.
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

// Join makes the caller a member of the batch of key that waits to be sent, or of a new one with payload p. place is its
// position in the batch, from 0 in the order of arrival. A caller that may be alone gets no batch if nobody waits and a place in
// flight is free: it makes its call itself, and must call Leave, even if the call panics.
func (b *Batcher[K, P, R]) Join(key K, p P, mayBeAlone bool) (batch *Batch[K, P, R], place int, begun time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if mayBeAlone && len(b.waiting) == 0 && len(b.inFlight) < b.limit() {
		return nil, 0, b.enter()
	}
	batch = b.open[key]
	if batch == nil {
		batch = &Batch[K, P, R]{Key: key, Payload: p, Begun: time.Now(), late: b.late, done: make(chan struct{})}
		b.open[key] = batch
		b.waiting = append(b.waiting, batch)
	}
	batch.size++
	b.members++
	if len(b.inFlight) < b.limit() {
		go b.dispatch(b.enter())
	} else if !b.armed {
		b.relieve()
	}
	return batch, batch.size - 1, begun
}

// limit is how many calls may be in flight. The caller holds mu.
func (b *Batcher[K, P, R]) limit() int {
	n := b.base + min(int(b.trip/tripPerCall), mostInFlight-1-b.base)
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

// exit takes a call out of flight. It reports false if the call had given up its place. Of calls that began in the same
// instant, any may be taken for the stalled one: the number of those in flight is the same. The caller holds mu.
func (b *Batcher[K, P, R]) exit(begun time.Time) bool {
	i := slices.Index(b.inFlight, begun)
	if i < 0 {
		return false
	}
	b.inFlight = slices.Delete(b.inFlight, i, i+1)
	return true
}

// measure keeps the shortest round trip, and forgets it in the course of some hundred calls. The caller holds mu.
func (b *Batcher[K, P, R]) measure(begun time.Time) {
	b.trip += b.trip / 256
	if trip := time.Since(begun); b.trip == 0 || trip < b.trip {
		b.trip = trip
	}
}

// relieve gives the place of the oldest call in flight to those who wait, if that call has stalled, and checks again later.
// Somebody waits, so there is a call in flight. The caller holds mu.
func (b *Batcher[K, P, R]) relieve() {
	wait := max(stallBase+stallTrips*b.trip-time.Since(b.inFlight[0]), stallInterval-time.Since(b.gaveUp))
	if wait <= 0 {
		b.inFlight = slices.Delete(b.inFlight, 0, 1)
		b.gaveUp = time.Now()
		go b.dispatch(b.enter())
	}
	b.armed = true
	time.AfterFunc(min(wait, stallInterval), func() { // the minimum round trip may shrink meanwhile
		b.mu.Lock()
		defer b.mu.Unlock()
		if b.armed = len(b.waiting) > 0; b.armed {
			b.relieve()
		}
	})
}

// dispatch sends batches until none waits or its place is gone. If send panics or ends the goroutine, it goes on in another one.
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

// gather lets goroutines that are ready to run join first, above all the callers who were just answered and call again.
func (b *Batcher[K, P, R]) gather(answered int) {
	for tries, enough := 0, false; tries < 4 && !enough; tries++ {
		runtime.Gosched()
		b.mu.Lock()
		enough = b.members >= min(answered, manyWaiting)
		b.mu.Unlock()
	}
}

// next exchanges the place of a call that has returned for that of the next one. It returns the batches to send, and how many
// members they have: none if nobody waits, or if the place was given up.
func (b *Batcher[K, P, R]) next(begun time.Time) (next time.Time, batches []*Batch[K, P, R], members int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := min(len(b.waiting), b.together)
	if !b.exit(begun) || n == 0 {
		return begun, nil, 0
	}
	batches, b.waiting = b.waiting[:n:n], append([]*Batch[K, P, R](nil), b.waiting[n:]...) // keeps nothing of a rush
	for _, batch := range batches {
		delete(b.open, batch.Key)
		members += batch.size
	}
	b.members -= members
	return b.enter(), batches, members
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
