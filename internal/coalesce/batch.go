package coalesce

import (
	"context"
	"sync/atomic"
	"time"
)

// A Batch is one request for all its members.
type Batch[K comparable, P, R any] struct {
	Key     K
	Payload P // payload of the first member

	// Note holds the failure of the sender's last attempt, for members that leave before the outcome.
	Note atomic.Pointer[error]

	limit    time.Duration // longest wait to be sent
	looked   time.Time     // time up to which the wait is charged; the Batcher's mu guards this and the next two
	waited   time.Duration // time charged until the batch is sent
	size     int           // count of members, fixed once the batch is sent
	late     func(*Batch[K, P, R], int)
	leavers  atomic.Pointer[member] // list of members that left, latest first; finished once there is a result
	done     chan struct{}
	result   R // this and the rest are written before done is closed, and only read afterwards
	err      error
	panicked any
}

// Size returns the number of members, which is fixed once the batch is sent. It must not be called before that.
func (b *Batch[K, P, R]) Size() int { return b.size }

// A member is a caller that left.
type member struct {
	place int
	next  *member
}

// finished marks a batch as finished: nobody can leave any more.
var finished = new(member)

// Finish gives all members their result. Call it once, before send returns.
func (b *Batch[K, P, R]) Finish(r R, err error) {
	b.result, b.err = r, err
	b.end()
}

func (b *Batch[K, P, R]) end() {
	leavers := b.leavers.Swap(finished)
	close(b.done)
	for ; leavers != nil; leavers = leavers.next {
		b.late(b, leavers.place)
	}
}

// endUnsent ends batches that will not be sent.
func endUnsent[K comparable, P, R any](unsent []*Batch[K, P, R]) {
	for _, b := range unsent {
		b.err = ErrUnsent
		b.end()
	}
}

// Waited returns how long the batch waited to be sent, from its first member on, without time during which this process
// was suspended. It must not be called before the batch is sent or has ended.
func (b *Batch[K, P, R]) Waited() time.Duration { return b.waited }

// isStale reports whether a waiting batch should not be sent: its time is over, or nobody wants it. The caller holds
// the Batcher's mu.
func (b *Batch[K, P, R]) isStale(now time.Time) bool {
	b.waited += min(now.Sub(b.looked), longestLook)
	b.looked = now
	return b.waited >= b.limit || !b.Wanted()
}

// Wanted reports whether any member is left. It must not be called before the batch is sent, unless the Batcher's mu is
// held.
func (b *Batch[K, P, R]) Wanted() bool {
	left := 0
	for m := b.leavers.Load(); m != nil; m = m.next {
		left++
	}
	return left < b.size
}

// Finished reports whether the batch has its result.
func (b *Batch[K, P, R]) Finished() bool { return b.leavers.Load() == finished }

// Leave ends the wait of the member in that place. It returns false if the batch is finished and has a result. So a
// member either gets its result, or late is called for it.
func (b *Batch[K, P, R]) Leave(place int) bool {
	for leaver := (&member{place: place}); ; {
		if leaver.next = b.leavers.Load(); leaver.next == finished {
			return false
		}
		if b.leavers.CompareAndSwap(leaver.next, leaver) {
			return true
		}
	}
}

// Result returns the result of a finished batch.
func (b *Batch[K, P, R]) Result() (*R, error) { return &b.result, b.err }

// Wait returns the batch's result, which all members share, or ctx's error. After ctx's error, the member either waits
// again or leaves with [Batch.Leave], which does not stop the others. If send panicked before it finished the batch,
// Wait panics with the same value.
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
