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

// This file contains items: commands, the callers that wait for the reply, and the result.

// deadlinesTogether is the largest difference between the deadlines of items in one pipeline. It is short, because the
// deadline of the first item limits the time for which the whole pipeline waits for a connection.
const deadlinesTogether = time.Second

// A Script is a Lua script. Usually only its digest is sent. Its source is sent if the server does not know the script.
type Script struct {
	Source string
	Digest any // digest as a string, stored as any because each conversion would allocate
}

// NewScript returns a Script with the given source.
func NewScript(source string) *Script {
	sum := sha1.Sum([]byte(source))
	return &Script{source, hex.EncodeToString(sum[:])}
}

// A Command provides the arguments of an item, and receives what happens to the item. Its methods may be called from
// any goroutine.
type Command interface {
	// Arguments returns the arguments of the command. It is called each time the item is sent, and must return a new
	// slice. If the item has a Script, this package sets the first two elements. They are followed by the number of keys,
	// the keys, and the other arguments of the script.
	Arguments() []any
	// Done is called exactly once, after Result has been set and before the callers continue. It is called even if all
	// callers have left.
	Done()
	// Lost is called for each attempt that may have run but got no reply, when go-redis gives up the attempt.
	Lost(err error)
	// Leave is called when a caller leaves before the item is finished.
	Leave()
	// Left is called after Done, once for each caller that has left, with the position of the caller.
	Left(position int)
}

// A Merge identifies items that several callers may share. An item with the zero Merge is not shared.
type Merge struct {
	Name string
	At   int64
}

// A Repeat determines after which temporary failures an item is sent again. The later constants are for commands that
// must not run twice. An item is never sent again after all of its callers have left.
type Repeat int

const (
	Always   Repeat = iota // after every temporary failure
	IfUnsent               // only if the item did not run, because the server refused it or there was no connection
	IfProven               // only if there was no connection, or if the item's Cluster slot is being moved
)

// An Item is a command and the callers that wait for its reply. It cannot be used again.
type Item struct {
	Command Command
	Merge   Merge // identity that other callers need to share the item while it waits in the queue
	// N is the number of callers. It does not change after Arguments has been called.
	N int

	Script *Script // script to run, or nil for a plain command
	Key    int     // position of the first key in the arguments of a plain command

	// Deadline is the time after which the item is not sent. A caller whose own deadline is more than 250 ms later does
	// not join the item.
	Deadline time.Time
	Repeat   Repeat
	Confirm  bool // whether replicas must confirm the item's writes
	// Then is sent directly after this item, in the same pipeline. It has its own deadline.
	Then *Item

	// Note receives the failure of each attempt. So a caller that is canceled while it waits for work that includes the
	// item can report this failure. Note may be nil.
	Note   *Note
	Result Result

	ctx      context.Context // context of the first caller; only its values are used
	limits   *deadlines
	done     chan struct{}   // closed by wake; nil while the item's only caller sends it
	woken    atomic.Bool     // whether done is closed
	limit    context.Context // context that ends at about the deadline
	leavers  atomic.Pointer[leaver]
	failure  Note // failure of the latest attempt
	panicked any  // value with which a hook panicked

	// The other fields are used only by the goroutine that sends the item.
	next       *Item // item to send directly after this one, which is Then unless Then is already finished
	command    noRetryCmd
	attempts   int           // number of failed attempts that were followed by a pause
	pause      time.Duration // pause before the next attempt
	withSource bool          // whether the source is sent, because the server does not know the script
	redirected bool          // whether its key, or that of an item after it, is on a server that only go-redis can find
	earlier    error         // failure of an attempt that may have run, or nil if none
}

// A Note contains the failure of the latest attempt, or nil if no attempt has failed.
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
	Value          any       // reply, or nil for a null reply
	Err            error     // failure of the final attempt, or nil if the attempt got a reply
	Sent, Received time.Time // times before and after the attempt that got the reply, by this host's clock
	Earlier        error     // failure of an earlier attempt that may have run, or nil if none
	Unconfirmed    error     // reason why replicas did not confirm the item, or nil if they did or did not have to
}

// A leaver is a caller that has left. The leavers of an item form a linked list.
type leaver struct {
	position int
	next     *leaver
}

// finished replaces the list of leavers of a finished item, which callers cannot leave any more.
var finished = new(leaver)

// begin prepares an item, and the items after it, for the queue.
func (i *Item) begin(ctx context.Context, l *deadlines) {
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

// isStale reports whether the item must not be sent, because its deadline has passed or all of its callers have left. N
// must not change while isStale runs.
func (i *Item) isStale(now time.Time) bool {
	left := 0
	for l := i.leavers.Load(); l != nil; l = l.next {
		left++
	}
	return left >= i.N || !now.Before(i.Deadline)
}

// fits reports whether the item may be in a pipeline that begins with the item first. One WAIT confirms all items of a
// pipeline, so either all of them need confirmation or none does. Only the first item of a pipeline may contain the
// source of a script, because an in-memory connection may not have room for a source after other commands.
func (i *Item) fits(first *Item) bool {
	return i.Confirm == first.Confirm && !i.redirected && !first.redirected &&
		i.Deadline.Sub(first.Deadline).Abs() <= deadlinesTogether &&
		(!i.withSource || first.withSource && i.Script == first.Script)
}

// leave notes that the caller at the given position leaves. It returns false if the item is already finished. So either
// the caller gets the result, or Left is called for its position, but never both.
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

// wait waits for the result on behalf of the caller at the given position. Only the first caller waits for the deadline
// of the item. It then wakes the others, whose deadlines are at most 250 ms later. A caller whose deadline is more than
// 250 ms before that of the item waits for its own deadline. The reason is the throughput: with one more channel in the
// select of every caller, a thousand callers would reach only three quarters of it.
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

// A noRetryCmd is a command that go-redis does not send again.
type noRetryCmd struct {
	*redis.Cmd
	timed *redis.Client // copy of the client that must send the command, or nil; see sender.limitReads
}

// NoRetry implements [redis.Cmder].
func (noRetryCmd) NoRetry() bool { return true }

// build creates the command of the next attempt. The parameter known is the script whose source the pipeline already
// contains, or nil if there is none.
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
	i.command = noRetryCmd{redis.NewCmd(ctx, args...), timed}
	i.command.SetFirstKeyPos(int8(key))
	i.command.SetStepCount(1) // otherwise go-redis queries the nodes of a Cluster about the command, even nodes that hang
}

// deadlines creates contexts that end at a deadline. Calls that begin at about the same time share a context. A separate
// context for each call would cost five allocations and a microsecond, which is a thirtieth of a round trip on
// loopback.
type deadlines struct {
	latest atomic.Pointer[context.Context]
}

// sharing is the longest time by which a shared context may end before the deadline of a call.
const sharing = 250 * time.Millisecond

// until returns a context that ends at the given time, or earlier by at most sharing and at most an eighth of the
// remaining time.
func (l *deadlines) until(end time.Time) context.Context {
	if latest := l.latest.Load(); latest != nil {
		at, _ := (*latest).Deadline()
		if early := end.Sub(at); early >= 0 && early <= sharing && early <= time.Until(end)/8 {
			return *latest
		}
	}
	limit, cancel := context.WithDeadline(context.Background(), end)
	_ = cancel // not called, because other calls may share the context; it ends at its deadline
	l.latest.Store(&limit)
	return limit
}

// withValues has the deadline of the embedded context and the values of another context.
type withValues struct {
	context.Context
	values context.Context
}

// Value implements [context.Context].
func (l withValues) Value(key any) any { return l.values.Value(key) }
