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

// This file sends items to one server with go-redis, and takes in the results.

const (
	// longestRead is the longest time to wait for an answer, also if the client's own read timeout is longer or
	// unlimited. Otherwise commands to a server that hangs would keep the client's connections, and nothing would be left
	// for a new one.
	longestRead = 10 * time.Second
	// shortRead is the longest read timeout of a client for which a caller may send its own items.
	shortRead = longestRead / 2
)

// Replicas says how many replicas must confirm a write. WAIT covers only earlier writes on the same connection, so it
// leaves in the same pipeline.
type Replicas struct {
	N       int           // 0 for none
	Timeout time.Duration // whole milliseconds
}

// settings is what the servers of a client share.
type settings struct {
	client   redis.UniversalClient
	cluster  *redis.ClusterClient // the client, nil unless it is a Cluster's
	replicas Replicas
	retries  int           // attempts after the first one, as the client is configured
	read     time.Duration // see Configured
	limits   limits        // of callers who wait
	connects limits        // of pipelines that wait for a connection
	alone    limits        // likewise, of callers who send their own item
	answered atomic.Int64  // time of the last answer, in Unix nanoseconds; 0 before the first
}

// A sender sends items to one server.
type sender struct {
	*settings
	server *redis.Client // nil if only go-redis can find it
	timed  *redis.Client // copy of server that limits the time to wait for an answer; nil if server does
}

// Configured returns a client's number of retries, and its read timeout: 0 if that is unknown, unlimited or too long to
// wait for.
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

// transmit sends items and waits for their answers, which their commands hold. The error says why replicas did not
// confirm them.
func (s *sender) transmit(ctx context.Context, items []*Item) (unconfirmed error) {
	first := items[0]
	confirm := first.Confirm && s.replicas.N > 0
	switch {
	case s.server == nil || first.alone:
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

// limitReads makes s wait for an answer for at most longestRead, if the client's own read timeout is longer or
// unlimited. go-redis has copies of a client with another timeout, which share its connections but lack its hooks. So
// the commands go through the client and its hooks, and the last hook passes them on to the copy.
func (s *sender) limitReads() {
	if s.server == nil || s.read > 0 {
		return
	}
	s.timed = s.server.WithTimeout(longestRead)
	s.server.AddHook(passOn{})
}

// passOn is a hook of a client that passes commands with a timed copy of the client on to that copy.
type passOn struct{}

// DialHook implements [redis.Hook].
func (passOn) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessHook implements [redis.Hook].
func (passOn) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if c, ok := cmd.(onceCmd); ok && c.timed != nil {
			return c.timed.Process(ctx, cmd)
		}
		return next(ctx, cmd)
	}
}

// ProcessPipelineHook implements [redis.Hook].
func (passOn) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		c, ok := cmds[0].(onceCmd)
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

// exec sends items in a pipeline, followed by WAIT if replicas must confirm them. The items must write: after a script
// that wrote nothing, WAIT confirms nothing or, from Redis 7.2 on, returns at once.
func (s *sender) exec(ctx context.Context, pipe redis.Pipeliner, confirm bool, items []*Item) (unconfirmed error) {
	for _, i := range items {
		for ; i != nil; i = i.next {
			_ = pipe.Process(ctx, i.command)
		}
	}
	wait := onceCmd{timed: s.timed}
	if confirm {
		wait.Cmd = redis.NewCmd(ctx, "wait", s.replicas.N, s.replicas.Timeout.Milliseconds())
		_ = pipe.Process(ctx, wait)
	}
	_, failure := pipe.Exec(ctx)
	for _, i := range items {
		for ; i != nil; i = i.next {
			if i.command.Val() == nil && i.command.Err() == nil {
				i.command.SetErr(failure) // a hook did not set it
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

// recently is how long a connection that was used is assumed to be alive.
const recently = 100 * time.Millisecond

// isBounded reports whether a caller may send an item in its own goroutine, although its context cannot end: a server
// has just answered, there is an idle connection, and the client's read timeout ends the attempt before the deadline.
// (If another caller takes that connection and the server turns slow at that very moment, the call also waits for the
// replies to a new connection, each of which may take the whole read timeout.)
func (s *sender) isBounded(i *Item, now time.Time) bool {
	if s.server == nil || s.read == 0 || i.Deadline.Sub(now) <= s.read ||
		now.UnixNano()-s.answered.Load() >= int64(recently) {
		return false
	}
	stats := s.server.PoolStats()                                    // costs two allocations
	if i.Confirm && s.replicas.N > 0 && stats.PipelineStats != nil { // pipelines have their own pool
		stats = (*redis.PoolStats)(stats.PipelineStats)
	}
	return stats.IdleConns > 0
}

// send makes one attempt at items, in one pipeline: all of them need confirmation, or none. connect is the time by
// which there must be a connection, and l makes its context. Items that are answered, or that must not be repeated, are
// finished. The others are returned.
func (s *sender) send(items []*Item, connect time.Time, l *limits) (again []*Item) {
	ctx := l.until(connect)
	if items[0].ctx != context.Background() {
		ctx = limited{ctx, items[0].ctx}
	}
	var known *Script
	for _, head := range items {
		for i := head; i != nil; i = i.next {
			if i.build(ctx, s.timed, known); i.whole {
				known = i.Script
			}
		}
	}
	r := Result{Sent: time.Now()}
	r.Unconfirmed = s.transmit(ctx, items)
	r.Received = time.Now()
	for _, i := range items {
		var head, last *Item // of the items to send again
		for next := i; next != nil; {
			i, next = next, next.next
			if i.next = nil; !s.settle(ctx, i, r) {
				continue
			}
			if head == nil {
				head = i
				again = append(again, i)
			} else {
				last.next, head.alone = i, head.alone || i.alone
			}
			last = i
		}
	}
	return again
}

// settle digests the outcome of an attempt at i. r has what the pipeline's items share. settle finishes i, or returns
// true if i must be sent again.
func (s *sender) settle(within context.Context, i *Item, r Result) (again bool) {
	r.Earlier = i.earlier
	err := i.command.Err()
	if err == nil || err == redis.Nil {
		s.answered.Store(r.Received.UnixNano())
		r.Value = i.command.Val()
		i.finish(r)
		return false
	}
	r.Unconfirmed = nil
	if end := within.Err(); end != nil && errors.Is(err, end) && !errors.As(err, new(*net.OpError)) {
		err = errNoConnection // go-redis returns a context's error only until it has a connection
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

// mayRepeat reports whether an item may be sent again after a failure, which it notes, and prepares it for that.
func (s *sender) mayRepeat(i *Item, err error) bool {
	now := time.Now()
	isStale := i.isStale(now)
	i.pause = 0
	if !isStale && i.Script != nil && redis.HasErrorPrefix(err, "NOSCRIPT") && i.command.Name() == "evalsha" {
		i.whole = true
		return true
	}
	if i.failure.Load() == nil || !isTimeout(err) {
		i.note(&err)
	}
	if isStale || err == errNoConnection && i.Deadline.Sub(now) < time.Second { // another attempt would be too short
		return false
	}
	if s.cluster != nil && isRedirection(err) && !i.alone {
		i.alone = true
		return true
	}
	if !Transient(err) || i.Repeat >= IfUnsent && !Unsent(err) || i.Repeat == IfProven && !neverRan(err) ||
		i.attempts >= s.retries && !lasts(err) {
		return false
	}
	i.pause = 4 * time.Millisecond << min(i.attempts, 6)
	i.pause += rand.N(i.pause)
	i.attempts++
	return now.Add(i.pause).Before(i.Deadline)
}
