package wire

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// This file sends items to a server with go-redis, and stores the results.

const (
	// longestRead limits the time for which a reply is awaited if the client's read timeout is longer or unlimited.
	// Otherwise commands to a server that hangs would occupy all connections, and no new connection could be made.
	longestRead = 10 * time.Second
	// shortRead is the longest read timeout of a client with which a caller may send an item in its own goroutine.
	shortRead = longestRead / 2
)

// Replicas determines how many replicas must confirm a write. The confirmation is requested with WAIT, in the same
// pipeline, because WAIT covers only earlier writes on the same connection.
type Replicas struct {
	N       int           // number of replicas; 0 if no confirmation is needed
	Timeout time.Duration // longest time to wait for them, in whole milliseconds
}

// settings contains the state that all servers of a client share.
type settings struct {
	client      redis.UniversalClient
	cluster     *redis.ClusterClient // the same client if it is for a Cluster, otherwise nil
	replicas    Replicas
	retries     int           // number of attempts after the first one, as configured in the client
	read        time.Duration // read timeout, as returned by Configured
	limits      deadlines     // contexts for callers that wait for a result
	connects    deadlines     // contexts for pipelines that wait for a connection
	ownConnects deadlines     // the same for a caller that sends its item itself
	latestReply atomic.Int64  // time of the latest reply, in Unix nanoseconds; 0 before the first reply
}

// A sender sends items to one server.
type sender struct {
	*settings
	server *redis.Client // client of the server, or nil if only go-redis can find the server
	timed  *redis.Client // copy of server with a shorter read timeout, or nil if the timeout of server is short enough
}

// Configured returns a client's number of retries and its read timeout. The timeout is 0 if it is unknown, unlimited or
// longer than shortRead.
func Configured(client redis.UniversalClient) (retries int, read time.Duration) {
	retries = 3
	switch client := client.(type) {
	case *redis.Client:
		retries, read = client.Options().MaxRetries, client.Options().ReadTimeout
	case *redis.ClusterClient:
		retries, read = client.Options().MaxRedirects, client.Options().ReadTimeout
	}
	if read < 0 || read > shortRead {
		read = 0
	}
	return retries, read
}

// transmit sends items and waits for the replies. It stores them in the commands of the items. The result is the reason
// why replicas did not confirm the items, or nil if they did or did not have to.
func (s *sender) transmit(ctx context.Context, items []*Item) (unconfirmed error) {
	first := items[0]
	confirm := first.Confirm && s.replicas.N > 0
	switch {
	case s.server == nil || first.redirected:
		for i := first; i != nil; i = i.next {
			if confirm {
				unconfirmed = s.onMaster(ctx, i)
			} else {
				i.command.SetErr(s.client.Process(ctx, i.command))
			}
		}
		return unconfirmed
	case confirm || len(items) > 1 || first.next != nil:
		return s.exec(ctx, s.server.Pipeline(), confirm, items)
	default:
		first.command.SetErr(s.client.Process(ctx, first.command))
	}
	return nil
}

// onMaster sends i, without the items after it, to the master that has its key. It also requests the confirmation of
// replicas. go-redis cannot do this: WAIT must be in the same pipeline as the item, but pipelines to a single node do
// not follow the redirections of a Cluster. While the slot of the key is being moved, onMaster may fail with a
// redirection, and the item is sent again until the move has ended.
func (s *sender) onMaster(ctx context.Context, i *Item) (unconfirmed error) {
	if s.cluster == nil {
		i.command.SetErr(errors.New("a client of this kind cannot have replicas confirm a write"))
		return nil
	}
	key := i.Key
	if i.Script != nil {
		key = 3
	}
	server, err := s.cluster.MasterForKey(ctx, i.command.Args()[key].(string))
	if err != nil {
		i.command.SetErr(err)
		return nil
	}
	next := i.next
	i.next = nil
	defer func() { i.next = next }()
	unconfirmed = s.exec(ctx, server.Pipeline(), true, []*Item{i})
	if isRedirection(i.command.Err()) {
		s.cluster.ReloadState(ctx)
	}
	return unconfirmed
}

// limitReads limits the time for which s waits for a reply to longestRead, if the client's read timeout is long,
// unlimited or unknown. go-redis can make a copy of a client with another timeout. The copy shares the client's
// connections, but not its hooks. Commands are therefore sent through the client and its hooks, and the hook that runs
// last passes them on to the copy.
func (s *sender) limitReads() {
	if s.server == nil || s.read > 0 {
		return
	}
	s.timed = s.server.WithTimeout(longestRead)
	s.server.AddHook(passOn{})
}

// passOn is a hook of a client. If a command has a copy of the client in its field timed, passOn passes the command on
// to this copy.
type passOn struct{}

// DialHook implements [redis.Hook].
func (passOn) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessHook implements [redis.Hook].
func (passOn) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if c, ok := cmd.(noRetryCmd); ok && c.timed != nil {
			return c.timed.Process(ctx, cmd)
		}
		return next(ctx, cmd)
	}
}

// ProcessPipelineHook implements [redis.Hook].
func (passOn) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		c, ok := cmds[0].(noRetryCmd)
		if !ok || c.timed == nil {
			return next(ctx, cmds)
		}
		pipe := c.timed.Pipeline()
		for _, cmd := range cmds {
			_ = pipe.Process(ctx, cmd)
		}
		_, err := pipe.Exec(ctx)
		return err
	}
}

// exec sends items in a pipeline, followed by WAIT if replicas must confirm them. It returns the reason why replicas
// did not confirm them. The result of WAIT is meaningful only for items that have written something.
func (s *sender) exec(ctx context.Context, pipe redis.Pipeliner, confirm bool, items []*Item) (unconfirmed error) {
	for _, i := range items {
		for ; i != nil; i = i.next {
			_ = pipe.Process(ctx, i.command)
		}
	}
	wait := noRetryCmd{timed: s.timed}
	if confirm {
		wait.Cmd = redis.NewCmd(ctx, "wait", s.replicas.N, s.replicas.Timeout.Milliseconds())
		_ = pipe.Process(ctx, wait)
	}
	_, failure := pipe.Exec(ctx)
	for _, i := range items {
		for ; i != nil; i = i.next {
			if i.command.Val() == nil && i.command.Err() == nil {
				i.command.SetErr(failure) // a hook returned the error without setting it in the commands
			}
		}
	}
	if !confirm {
		return nil
	}
	acks, err := wait.Int()
	if err == nil && acks < s.replicas.N {
		err = fmt.Errorf("%d of %d replicas confirmed within %v", acks, s.replicas.N, s.replicas.Timeout)
	}
	return Foreign(err)
}

// recently is the time for which a server is assumed to be responsive after it has replied.
const recently = 100 * time.Millisecond

// isBounded reports whether a caller whose context cannot end may send an item in its own goroutine. That is the case
// if a server has just replied, if there is an idle connection, and if the client's read timeout ends the attempt
// before the deadline. (The attempt can nevertheless take longer, if another caller takes the idle connection and the
// server becomes slow at the same moment. It then also waits for the replies that set up a new connection, each for up
// to the read timeout.)
func (s *sender) isBounded(i *Item, now time.Time) bool {
	if s.server == nil || s.read == 0 || i.Deadline.Sub(now) <= s.read ||
		now.UnixNano()-s.latestReply.Load() >= int64(recently) {
		return false
	}
	stats := s.server.PoolStats()                                    // costs two allocations
	if i.Confirm && s.replicas.N > 0 && stats.PipelineStats != nil { // pipelines have their own pool
		stats = (*redis.PoolStats)(stats.PipelineStats)
	}
	return stats.IdleConns > 0
}

// send makes one attempt to run items, in one pipeline. Either all of them need confirmation, or none does. The
// parameter connect is the time by which a connection must be available, and l creates the context for this. send
// finishes the items that get a reply or must not be sent again, and returns the other items.
func (s *sender) send(items []*Item, connect time.Time, l *deadlines) (again []*Item) {
	ctx := l.until(connect)
	if items[0].ctx != context.Background() {
		ctx = withValues{ctx, items[0].ctx}
	}
	var known *Script
	for _, head := range items {
		for i := head; i != nil; i = i.next {
			if i.build(ctx, s.timed, known); i.withSource {
				known = i.Script
			}
		}
	}
	r := Result{Sent: time.Now()}
	r.Unconfirmed = s.transmit(ctx, items)
	r.Received = time.Now()
	for _, i := range items {
		var head, last *Item // first and last of the items in the chain of i that are sent again
		for next := i; next != nil; {
			i, next = next, next.next
			if i.next = nil; !s.handle(ctx, i, r) {
				continue
			}
			if head == nil {
				head = i
				again = append(again, i)
			} else {
				last.next, head.redirected = i, head.redirected || i.redirected
			}
			last = i
		}
	}
	return again
}

// handle handles the outcome of an attempt to run i. r contains the fields that are the same for all items of the
// pipeline. handle finishes i, or returns true if i must be sent again.
func (s *sender) handle(within context.Context, i *Item, r Result) (again bool) {
	r.Earlier = i.earlier
	err := i.command.Err()
	if err == nil || err == redis.Nil {
		s.latestReply.Store(r.Received.UnixNano())
		r.Value = i.command.Val()
		i.finish(r)
		return false
	}
	r.Unconfirmed = nil
	if end := within.Err(); end != nil && errors.Is(err, end) && !errors.As(err, new(*net.OpError)) {
		err = errNoConnection // go-redis returns the error of the context only if it has not got a connection
	}
	if !Unsent(err) {
		i.earlier = err
		i.Command.Lost(err)
	}
	before := i.failure.Load()
	if s.mayRepeat(i, err) {
		return true
	}
	r.Err = Late(FailedAfter("Redis", err, before), i.Deadline)
	i.finish(r)
	return false
}

// mayRepeat notes the failure of an attempt. It reports whether the item may be sent again, and prepares it for the
// next attempt.
func (s *sender) mayRepeat(i *Item, err error) bool {
	now := time.Now()
	isStale := i.isStale(now)
	i.pause = 0
	if !isStale && i.Script != nil && redis.HasErrorPrefix(err, "NOSCRIPT") && i.command.Name() == "evalsha" {
		i.withSource = true
		return true
	}
	if i.failure.Load() == nil || !isTimeout(err) {
		i.note(&err)
	}
	if isStale || err == errNoConnection && i.Deadline.Sub(now) < time.Second { // another attempt would be too short
		return false
	}
	moved := s.cluster != nil && isRedirection(err) // a redirected command did not run
	if moved && !i.redirected {
		i.redirected = true
		return true
	}
	if !moved && (!Transient(err) || i.Repeat >= IfUnsent && !Unsent(err) || i.Repeat == IfProven && !neverRan(err) ||
		i.attempts >= s.retries && !persists(err)) {
		return false
	}
	i.pause = 4 * time.Millisecond << min(i.attempts, 6)
	i.pause += rand.N(i.pause)
	i.attempts++
	return now.Add(i.pause).Before(i.Deadline)
}
