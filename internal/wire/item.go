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

// This file has commands, the callers who wait for their replies, and the results.

// deadlinesTogether is how far apart the deadlines of items in one pipeline may be. The pipeline ends its wait for a
// connection at the first.
const deadlinesTogether = time.Second

// A Script is a script, sent by its digest. Its source is sent only to a server that does not have it.
type Script struct {
	Source string
	Digest any // a string, ready to be an argument: converting it costs an allocation
}

// NewScript returns the Script with a source.
func NewScript(source string) *Script {
	sum := sha1.Sum([]byte(source))
	return &Script{source, hex.EncodeToString(sum[:])}
}

// A Command is what an item sends, and what its owner does with the outcome. Its methods may be called from any
// goroutine.
type Command interface {
	// Arguments returns the arguments in a new slice, each time the item is sent. A script's arguments begin with room
	// for two, followed by the number of keys, the keys and the rest.
	Arguments() []any
	// Done is called exactly once, with the item's Result set, before the callers continue. It is also called if all
	// callers have left.
	Done()
	// Lost is called for each attempt that may have run, but whose reply is unknown, once the client has given the
	// attempt up.
	Lost(err error)
	// Leave is called when a caller leaves, and Left for its place after Done.
	Leave()
	Left(place int)
}

// A Merge says which callers may share an item. The zero Merge is that of an item that is not shared.
type Merge struct {
	Name string
	At   int64
}

// A Repeat says after which failures an item is sent again, if its callers still wait.
type Repeat int

const (
	Always   Repeat = iota // after any failure that may pass
	IfUnsent               // if the item did not run, because the server refused it or there was no connection
	IfProven               // only if there was no connection, or the item's slot is moving
)

// An Item is a command, and the callers who wait for its reply. It is used once.
type Item struct {
	Command Command
	Merge   Merge // waiting items with equal Merge become one
	// N is the number of callers. It is final once Arguments is called.
	N int

	Script *Script // script to run, nil for a plain command
	Key    int     // position of the first key in the arguments of a plain command

	// Deadline is the time after which nothing is sent. A caller whose own deadline is over 250 ms later does not join.
	Deadline time.Time
	Repeat   Repeat
	Confirm  bool // replicas must confirm the item's writes
	// Then is an item with a deadline of its own that leaves right behind this one, in the same pipeline.
	Then *Item

	// Note gets the failure of each attempt, for callers who leave something that the item is a part of. It may be nil.
	Note   *Note
	Result Result

	ctx      context.Context // context of the first caller, for its values
	limits   *limits
	done     chan struct{}   // closed once the item is finished, or by wake; nil if its only caller sends it
	woken    atomic.Bool     // done is closed
	limit    context.Context // ends at about the deadline
	leavers  atomic.Pointer[leaver]
	failure  Note // failure of the last attempt
	panicked any  // value with which a hook panicked

	// The rest belongs to the goroutine that sends the item.
	next     *Item // item to send right behind this one: Then, unless it has its result already
	command  onceCmd
	attempts int           // attempts that failed and were followed by a pause
	pause    time.Duration // pause before the next attempt
	whole    bool          // the server does not know the script, so its source is sent
	alone    bool          // the key, or that of an item behind this one, has moved: only go-redis knows where to
	earlier  error         // failure of an attempt that may have run
}

// A Note holds the last failure of an attempt, nil for none.
type Note = atomic.Pointer[error]

// note notes the failure of an attempt.
func (i *Item) note(failure *error) {
	i.failure.Store(failure)
	if i.Note != nil {
		i.Note.Store(failure)
	}
}

// A Result is what became of an item.
type Result struct {
	Value          any       // answer, nil for a null
	Err            error     // failure of the last attempt, nil if it was answered
	Sent, Received time.Time // times around the attempt that was answered, by this host's clock
	Earlier        error     // failure of an earlier attempt that may have run, nil for none
	Unconfirmed    error     // reason why replicas did not confirm the item; nil if they did, or need not
}

// A leaver is a caller that left.
type leaver struct {
	place int
	next  *leaver
}

// finished marks an item as finished: callers cannot leave any more.
var finished = new(leaver)

// begin prepares an item and its followers to be queued.
func (i *Item) begin(ctx context.Context, l *limits) {
	for ; i != nil; i = i.Then {
		i.N, i.ctx, i.limits, i.next, i.done = max(i.N, 1), ctx, l, i.Then, make(chan struct{})
		i.limit = l.until(i.Deadline)
	}
}

// finish hands the result to the callers.
func (i *Item) finish(r Result) {
	i.Result = r
	i.Command.Done()
	leavers := i.leavers.Swap(finished)
	i.wake()
	for ; leavers != nil; leavers = leavers.next {
		i.Command.Left(leavers.place)
	}
}

// wake wakes all callers who wait.
func (i *Item) wake() {
	if i.done != nil && i.woken.CompareAndSwap(false, true) {
		close(i.done)
	}
}

// drop finishes an item that is not sent any more, and its followers.
func (i *Item) drop() {
	for ; i != nil; i = i.next {
		err := error(ErrUnsent)
		if failure := i.failure.Load(); failure != nil {
			err = *failure
		}
		i.finish(Result{Err: Late(Failed("Redis", err), i.Deadline), Earlier: i.earlier})
	}
}

// isStale reports whether the item should not be sent: its deadline has passed, or all callers have left. N must not
// change meanwhile.
func (i *Item) isStale(now time.Time) bool {
	left := 0
	for l := i.leavers.Load(); l != nil; l = l.next {
		left++
	}
	return left >= i.N || !now.Before(i.Deadline)
}

// fits reports whether the item may leave in a pipeline that begins with first. One WAIT confirms all items of a
// pipeline, so all of them need it, or none. Only the first item sends the source of a script, which an in-memory
// connection may not hold behind other commands.
func (i *Item) fits(first *Item) bool {
	return i.Confirm == first.Confirm && !i.alone && !first.alone &&
		i.Deadline.Sub(first.Deadline).Abs() <= deadlinesTogether &&
		(!i.whole || first.whole && i.Script == first.Script)
}

// leave ends the wait of the caller in that place. It returns false if the item is finished. So a caller either gets the
// result, or Left is called for its place.
func (i *Item) leave(place int) bool {
	for {
		others := i.leavers.Load()
		if others == finished {
			return false
		}
		if i.leavers.CompareAndSwap(others, &leaver{place, others}) {
			i.Command.Leave()
			return true
		}
	}
}

// Wait waits for the result of an item that [Client.Start] began, or of the Then of an item that another call began. It
// must be called at most once, by one caller. An error means that the caller has left: ctx ended, or the deadline
// passed. If a hook of the client panicked, so does Wait.
func (i *Item) Wait(ctx context.Context) error { return i.wait(ctx, 0, i.Deadline) }

// wait waits for the result on behalf of the caller in that place. The others join the first one within moments, so it
// watches the time for them: a thousand callers who all select on one more channel get a quarter less done.
func (i *Item) wait(ctx context.Context, place int, deadline time.Time) error {
	var limit <-chan struct{}
	switch {
	case i.Deadline.Sub(deadline) > sharing:
		limit = i.limits.until(deadline).Done()
	case place == 0:
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
	if !i.leave(place) {
		if i.panicked != nil {
			panic(i.panicked)
		}
		return nil
	}
	if place == 0 {
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

// build makes the command of the next attempt. A script whose source the same pipeline has already sent is known.
func (i *Item) build(ctx context.Context, timed *redis.Client, known *Script) {
	args, key := i.Command.Arguments(), i.Key
	if i.Script != nil {
		key = 3
		if i.whole && i.Script != known {
			args[0], args[1] = "eval", i.Script.Source
		} else {
			args[0], args[1] = "evalsha", i.Script.Digest
		}
	}
	i.command = onceCmd{redis.NewCmd(ctx, args...), timed}
	i.command.SetFirstKeyPos(int8(key))
	i.command.SetStepCount(1) // otherwise go-redis asks a Cluster's nodes about the command, even those that hang
}

// limits makes contexts that end at a deadline. Calls that begin at about the same time share one: a context for each
// call would cost five allocations and a microsecond, a thirtieth of a round trip.
type limits struct {
	latest atomic.Pointer[context.Context]
}

// sharing is how much earlier a shared context may end.
const sharing = 250 * time.Millisecond

// until returns a context that ends at the given time, or up to sharing and an eighth of the remaining time earlier.
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

// A limited is a context with the end of one context and the values of another.
type limited struct {
	context.Context
	values context.Context
}

// Value implements [context.Context].
func (l limited) Value(key any) any { return l.values.Value(key) }
