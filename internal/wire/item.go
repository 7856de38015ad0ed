package wire

import (
	"cmp"
	"context"
	"crypto/sha1"
	"encoding/hex"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// This file has commands, the callers that wait for their replies, and the results.

// deadlinesTogether is the largest difference between the deadlines of items in one pipeline. The pipeline stops
// waiting for a connection at the first of these deadlines.
const deadlinesTogether = time.Second

// A Script is a Lua script. It is sent by its digest, and its source is sent only to a server that does not have it.
type Script struct {
	Source string
	Digest any // a string, ready to be an argument: converting it costs an allocation
}

// NewScript returns the Script with a source.
func NewScript(source string) *Script {
	sum := sha1.Sum([]byte(source))
	return &Script{source, hex.EncodeToString(sum[:])}
}

// A Command provides the arguments that an item sends, and is told what became of the item. Its methods may be called
// from any goroutine.
type Command interface {
	// Arguments returns the arguments. It is called each time the item is sent, and must return a new slice. The first
	// two elements of a script's arguments are set by this package. The number of keys, the keys and the script's
	// other arguments follow.
	Arguments() []any
	// Done is called exactly once, after Result has been set and before the callers continue. It is called even if all
	// callers have left.
	Done()
	// Lost is called for each attempt that may have run, but got no reply, once go-redis has given up the attempt.
	Lost(err error)
	// Leave is called when a caller leaves before the item is finished. After Done, Left is called with the position of
	// each caller that left.
	Leave()
	Left(position int)
}

// A Merge identifies items that callers may share. An item with the zero Merge is not shared.
type Merge struct {
	Name string
	At   int64
}

// A Repeat determines after which failures an item is sent again. It is never sent again if all its callers have left.
type Repeat int

const (
	Always   Repeat = iota // after any temporary failure
	IfUnsent               // only if the item did not run: the server refused it, or there was no connection
	IfProven               // only if there was no connection, or the item's Cluster slot is being moved
)

// An Item is a command and the callers that wait for its reply. It cannot be used again.
type Item struct {
	Command Command
	Merge   Merge // callers with equal Merge share an item while it waits in the queue
	// N is the number of callers. It does not change after Arguments has been called.
	N int

	Script *Script // script to run, nil for a plain command
	Key    int     // position of the first key in the arguments of a plain command

	// Deadline is the time after which the item is not sent. A caller whose own deadline is more than 250 ms later does
	// not join the item.
	Deadline time.Time
	Repeat   Repeat
	Confirm  bool // replicas must confirm the item's writes
	// Then is sent directly after this item, in the same pipeline. It has its own deadline.
	Then *Item

	// Note is set to the failure of each attempt. A caller that is canceled while it waits for work that includes the
	// item can then report this failure. Note may be nil.
	Note   *Note
	Result Result

	ctx      context.Context // context of the first caller, of which only the values are used
	limits   *limits
	done     chan struct{}   // closed by wake; nil if the item's only caller sends it
	woken    atomic.Bool     // done is closed
	limit    context.Context // ends at about the deadline
	leavers  atomic.Pointer[leaver]
	failure  Note // failure of the latest attempt
	panicked any  // value with which a hook panicked

	// The other fields are used only by the goroutine that sends the item.
	next       *Item // item to send directly after this one: Then, unless Then is already finished
	command    onceCmd
	attempts   int           // attempts that failed and were followed by a pause
	pause      time.Duration // pause before the next attempt
	withSource bool          // the server does not know the script, so its source is sent
	redirected bool          // the key of the item or of one after it has moved to a server that only go-redis can find
	earlier    error         // failure of an attempt that may have run, or nil if none
}

// A Note holds the failure of the latest attempt, or nil if none.
type Note = atomic.Pointer[error]

// note stores the failure of an attempt.
func (i *Item) note(failure *error) {
	i.failure.Store(failure)
	if i.Note != nil {
		i.Note.Store(failure)
	}
}

// A Result is the outcome of an item.
type Result struct {
	Value          any       // reply, nil for a null
	Err            error     // failure of the final attempt, nil if it got a reply
	Sent, Received time.Time // times before and after the attempt that got the reply, by this host's clock
	Earlier        error     // failure of an earlier attempt that may have run, or nil if none
	Unconfirmed    error     // reason why replicas did not confirm the item; nil if they did, or did not have to
}

// A leaver is a caller that left, in a linked list.
type leaver struct {
	position int
	next     *leaver
}

// finished replaces the list of leavers when an item is finished, because callers cannot leave it any more.
var finished = new(leaver)

// begin prepares an item and its followers to be queued.
func (i *Item) begin(ctx context.Context, l *limits) {
	for ; i != nil; i = i.Then {
		i.N, i.ctx, i.limits, i.next, i.done = max(i.N, 1), ctx, l, i.Then, make(chan struct{})
		i.limit = l.until(i.Deadline)
	}
}

// finish sets the result, and lets the callers continue.
func (i *Item) finish(r Result) {
	i.Result = r
	i.Command.Done()
	leavers := i.leavers.Swap(finished)
	i.wake()
	for ; leavers != nil; leavers = leavers.next {
		i.Command.Left(leavers.position)
	}
}

// wake lets all waiting callers continue.
func (i *Item) wake() {
	if i.done != nil && i.woken.CompareAndSwap(false, true) {
		close(i.done)
	}
}

// drop finishes an item that will not be sent, and the items after it.
func (i *Item) drop() {
	for ; i != nil; i = i.next {
		err := error(ErrUnsent)
		if failure := i.failure.Load(); failure != nil {
			err = *failure
		}
		i.finish(Result{Err: Late(Failed("Redis", err), i.Deadline), Earlier: i.earlier})
	}
}

// isStale reports whether the item should not be sent, because its deadline has passed or all callers have left. N must
// not change while isStale runs.
func (i *Item) isStale(now time.Time) bool {
	left := 0
	for l := i.leavers.Load(); l != nil; l = l.next {
		left++
	}
	return left >= i.N || !now.Before(i.Deadline)
}

// fits reports whether the item may be in a pipeline that begins with first. One WAIT confirms all items of a pipeline,
// so either all items need confirmation or none does. Only the first item may contain the source of a script, because
// an in-memory connection may not have room for it after other commands.
func (i *Item) fits(first *Item) bool {
	return i.Confirm == first.Confirm && !i.redirected && !first.redirected &&
		i.Deadline.Sub(first.Deadline).Abs() <= deadlinesTogether &&
		(!i.withSource || first.withSource && i.Script == first.Script)
}

// leave registers that the caller at the given position has left. It returns false if the item is already finished. So
// either the caller gets the result, or Left is called for its position.
func (i *Item) leave(position int) bool {
	for {
		others := i.leavers.Load()
		if others == finished {
			return false
		}
		if i.leavers.CompareAndSwap(others, &leaver{position, others}) {
			i.Command.Leave()
			return true
		}
	}
}

// Wait waits for the result of an item that was passed to [Client.Start], or that is the Then of an item that was
// passed to the Client. It must be called at most once. An error means that the caller has left, because ctx ended or
// the deadline passed. If a hook of the client panicked, Wait panics with the same value.
func (i *Item) Wait(ctx context.Context) error { return i.wait(ctx, 0, i.Deadline) }

// wait waits for the result on behalf of the caller at the given position. Only the first caller waits for the
// deadline, and wakes the others. Their deadlines are at most 250 ms later, and a thousand callers that each select on
// one more channel reach only three quarters of the throughput.
func (i *Item) wait(ctx context.Context, position int, deadline time.Time) error {
	var limit <-chan struct{}
	switch {
	case i.Deadline.Sub(deadline) > sharing:
		limit = i.limits.until(deadline).Done()
	case position == 0:
		limit = i.limit.Done()
	}
	if limit == nil && ctx.Done() == nil {
		<-i.done
	} else {
		select {
		case <-i.done:
		case <-limit:
		case <-ctx.Done():
		}
	}
	if !i.leave(position) {
		if i.panicked != nil {
			panic(i.panicked)
		}
		return nil
	}
	if position == 0 {
		context.AfterFunc(i.limit, i.wake)
	}
	if end, ok := ctx.Deadline(); ok && end.Before(deadline) {
		deadline = end
	}
	return Late(GaveUp(cmp.Or(ctx.Err(), ErrNoAnswer), i.failure.Load()), deadline)
}

// A onceCmd is a command that go-redis does not repeat.
type onceCmd struct {
	*redis.Cmd
	timed *redis.Client // see sender
}

// NoRetry implements [redis.Cmder].
func (onceCmd) NoRetry() bool { return true }

// build creates the command of the next attempt. known is the script whose source the same pipeline already contains,
// nil for none.
func (i *Item) build(ctx context.Context, timed *redis.Client, known *Script) {
	args, key := i.Command.Arguments(), i.Key
	if i.Script != nil {
		key = 3
		if i.withSource && i.Script != known {
			args[0], args[1] = "eval", i.Script.Source
		} else {
			args[0], args[1] = "evalsha", i.Script.Digest
		}
	}
	i.command = onceCmd{redis.NewCmd(ctx, args...), timed}
	i.command.SetFirstKeyPos(int8(key))
	i.command.SetStepCount(1) // otherwise go-redis asks a Cluster's nodes about the command, even those that hang
}

// limits creates contexts that end at a deadline. Calls that begin at about the same time share a context. A separate
// one for each call would cost five allocations and a microsecond, which is a thirtieth of a round trip on loopback.
type limits struct {
	latest atomic.Pointer[context.Context]
}

// sharing is the longest time by which a shared context may end too early.
const sharing = 250 * time.Millisecond

// until returns a context that ends at the given time or earlier: at most sharing, and at most an eighth of the
// remaining time.
func (l *limits) until(end time.Time) context.Context {
	if latest := l.latest.Load(); latest != nil {
		at, _ := (*latest).Deadline()
		if early := end.Sub(at); early >= 0 && early <= sharing && early <= time.Until(end)/8 {
			return *latest
		}
	}
	limit, cancel := context.WithDeadline(context.Background(), end)
	_ = cancel // other calls may share the context, so it ends by itself
	l.latest.Store(&limit)
	return limit
}

// A limited has the deadline of the embedded context and the values of another one.
type limited struct {
	context.Context
	values context.Context
}

// Value implements [context.Context].
func (l limited) Value(key any) any { return l.values.Value(key) }
