package serial

import (
	"context"
	"crypto/sha1"
	_ "embed" // the scripts
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/dailyserial/serial/internal/budget"
)

//go:embed lua/guard.lua
var guardLua string

//go:embed lua/hot.lua
var hotLua string

//go:embed lua/try.lua
var tryLua string

//go:embed lua/take.lua
var takeLua string

//go:embed lua/takes.lua
var takesLua string

//go:embed lua/open.lua
var openLua string

//go:embed lua/peek.lua
var peekLua string

//go:embed lua/abandon.lua
var abandonLua string

//go:embed lua/once.lua
var onceLua string

//go:embed lua/prepare.lua
var prepareLua string

//go:embed lua/history.lua
var historyLua string

var (
	takeScript    = newScript(hotLua + tryLua + guardLua + takeLua)
	takesScript   = newScript(hotLua + takesLua)
	openScript    = newScript(guardLua + openLua)
	peekScript    = newScript(guardLua + peekLua)
	abandonScript = newScript(abandonLua)
	prepareScript = newScript(guardLua + prepareLua)
	historyScript = newScript(guardLua + historyLua)

	// of a request that may come again
	takeOnceScript = newScript(onceLua + guardLua + takeLua)
	openOnceScript = newScript(onceLua + guardLua + openLua)
)

// A script is sent by its digest, and whole only to a server that does not have it.
type script struct{ source, digest string }

func newScript(source string) *script {
	sum := sha1.Sum([]byte(source))
	return &script{source, hex.EncodeToString(sum[:])}
}

// issues reports whether numbers may rest on what s writes, so that replicas have to confirm it.
func (s *script) issues() bool { return s != peekScript && s != historyScript && s != abandonScript }

// A reply is what a script answered, type-checked. The statuses and their details are documented in lua/.
type reply struct {
	status string    // statusIssued, or why nothing was issued
	seq    int64     // with statusIssued: the last sequence issued
	each   []int64   // of takes: the same for each type, 0 where nothing was issued; of history: of each counter
	now    time.Time // server's time; zero with statusIssued
	detail string

	sent, received time.Time // this host's, around the round trip
	failure        error     // of the attempt before, which may have run as well; nil if the first one was answered
}

const (
	statusIssued    = "issued"
	statusClock     = "clock"
	statusConflict  = "conflict"
	statusFuture    = "future"
	statusLost      = "lost"
	statusMissing   = "missing"
	statusExhausted = "exhausted"
	statusPart      = "part"
	statusCheck     = "check"
	statusLate      = "late"
	statusUnknown   = "unknown"
	statusBlock     = "block"
	statusCeiling   = "ceiling"
	statusReserve   = "reserve"
	statusClaimed   = "claimed"
	statusOnce      = "once"
	statusFloor     = "floor"
	statusGap       = "gap"
)

// lostDetail is what take adds where a ledger will repair a lost counter.
const lostDetail = "lost"

// offset is how far the server's clock is ahead of this host's, to half a round trip.
func (r *reply) offset() time.Duration {
	return r.now.Sub(r.sent.Add(r.received.Sub(r.sent) / 2))
}

func parseReply(v any) (reply, error) {
	switch v := v.(type) {
	case unconfirmed:
		r, err := parseReply(v.value)
		switch r.status {
		case statusIssued, statusPart, statusBlock, statusOnce:
			err = v.cause
		}
		return r, err
	case int64:
		return reply{status: statusIssued, seq: v}, nil
	case []any:
		if each := integers(v); len(each) > 0 {
			return reply{status: statusIssued, each: each}, nil
		}
		if len(v) != 4 {
			break
		}
		status, ok1 := v[0].(string)
		sec, ok2 := v[1].(int64)
		usec, ok3 := v[2].(int64)
		detail, ok4 := v[3].(string)
		if ok1 && ok2 && ok3 && ok4 {
			return reply{status: status, now: time.Unix(sec, usec*1000), detail: detail}, nil
		}
	}
	return reply{}, fmt.Errorf("serial: a script answered %v (%T), which it cannot; is a proxy in the way?", v, v)
}

// integers returns v as integers, nil if they are not.
func integers(v []any) []int64 {
	each := make([]int64, len(v))
	for i := range v {
		var ok bool
		if each[i], ok = v[i].(int64); !ok {
			return nil
		}
	}
	return each
}

// A caller sends scripts to Redis in bounded time.
type caller struct {
	client  redis.UniversalClient
	retries int           // after the first attempt, as the client is configured
	read    time.Duration // the client's read timeout; 0 where it is unknown, unlimited or too long to wait for
	confirm confirmation

	answered atomic.Int64 // when a server did last, in Unix nanoseconds; 0 after an attempt that failed

	mu        sync.Mutex // guards what follows, see connecting
	shared    context.Context
	sharedEnd time.Time
	cancel    context.CancelFunc // of shared, which ends by itself
}

func newCaller(client redis.UniversalClient, confirm confirmation) *caller {
	c := &caller{client: client, retries: 3, confirm: confirm}
	switch client := client.(type) {
	case *redis.Client:
		c.retries, c.read = client.Options().MaxRetries, client.Options().ReadTimeout
	case *redis.ClusterClient:
		c.retries, c.read = client.Options().MaxRedirects, client.Options().ReadTimeout
	}
	if c.read < 0 || c.read > budget.Answers/2 {
		c.read = 0
	}
	return c
}

// run sends s and returns its reply, within what b has left. A script that may be repeated is sent again after an error that
// may pass, like a restart or a failover; otherwise it is sent at most once, and one that was not sent in time is statusLate.
// An error leaves open whether the script ran.
//
// server is the one that has the keys, nil where only go-redis knows. args are those of EVALSHA; name and script are filled
// in. Failures that are tried again are noted, if note is not nil, for those who do not wait for the outcome.
func (c *caller) run(ctx context.Context, b *budget.Budget, server *redis.Client, s *script, repeat bool, args []any,
	note *atomic.Pointer[error]) (reply, error) {
	quick := false    // the attempt is a probe, and the last one
	var failure error // of the last attempt
	if note != nil && note.Load() != nil {
		failure = *note.Load()
	}
	for attempt := 0; ; attempt++ {
		r, limit, err := c.try(ctx, b, &quick, server, s, "evalsha", s.digest, args)
		if redis.HasErrorPrefix(err, "NOSCRIPT") {
			r, limit, err = c.try(ctx, b, &quick, server, s, "eval", s.source, args)
		}
		if err == nil {
			r.failure = failure
			if r.status == statusExhausted && failure != nil {
				return reply{}, fewLeft(failure)
			}
			return r, nil
		}
		if !r.received.IsZero() { // an answer, but none that may be believed
			return r, err
		}
		if end := endOf(ctx); end != nil {
			return reply{}, gaveUp(end, failure)
		}
		failure = err
		if note != nil {
			note.Store(&err)
		}
		if !quick && (errors.Is(err, context.DeadlineExceeded) || errors.Is(err, errNoAnswer)) {
			// Our own time limit. Either Redis is out of reach, or this process stood still for some seconds: one more
			// quick attempt tells.
			if !repeat {
				return reply{status: statusLate}, nil
			}
			quick = true
			continue
		}
		// A slot that moves to another node is in between for as long as that takes, and a connection is free when others
		// are done.
		tries := attempt < c.retries || redis.IsTryAgainError(err) || errors.Is(err, redis.ErrPoolTimeout)
		pause := min(8*time.Millisecond<<min(attempt, 6), 512*time.Millisecond)
		pause = pause/2 + rand.N(pause/2)
		if !repeat && !unsent(err) || quick || limit <= 0 || !tries || !transient(err) || pause >= b.Answer() {
			return reply{}, sharedError{fmt.Errorf("serial: Redis failed: %w", foreign(err))}
		}
		if err := sleep(ctx, pause); err != nil {
			return reply{}, fmt.Errorf("%w; before that: %w", err, foreign(failure))
		}
		b.Spend(pause, pause)
	}
}

// try makes one attempt, and says what limit it had: 0 or less if there was no time left for one. A quick attempt is short;
// so is the one that the budget has left at its end.
func (c *caller) try(ctx context.Context, b *budget.Budget, quick *bool, server *redis.Client, s *script, name, body string,
	args []any) (reply, time.Duration, error) {
	limit, last := b.Attempt()
	if *quick = *quick || last; *quick {
		limit = min(limit, budget.Last)
	}
	if limit <= 0 {
		return reply{}, limit, errNoAnswer
	}
	sent := time.Now()
	v, stood, err := c.eval(ctx, limit, server, s, name, body, args)
	received := time.Now()
	if !stood {
		b.Spend(received.Sub(sent), limit+budget.Last)
	}
	if err != nil {
		return reply{}, limit, err
	}
	r, err := parseReply(v)
	r.sent, r.received = sent, received
	return r, limit, err
}

// gaveUp is the error of a call whose context ended; failure is that of the attempt before, if there was one.
func gaveUp(end, failure error) error {
	err := fmt.Errorf("serial: gave up waiting for Redis, where the command may have run: %w", end)
	if failure != nil {
		err = fmt.Errorf("%w; before that: %w", err, foreign(failure))
	}
	return err
}

// fewLeft stands for ErrExhausted, which says that nothing was consumed, where the attempt before may have consumed what
// is missing.
func fewLeft(failure error) error {
	return fmt.Errorf("serial: Redis failed, and has too few numbers left since: %w", foreign(failure))
}

// eval makes one attempt within limit. It also reports whether this process stood still meanwhile.
//
// A context that ends does not interrupt go-redis while it reads (unless the client has ContextTimeoutEnabled), so the
// caller does not wait for the command but for whichever comes first. That costs a goroutine; a caller whose context
// can never end does without where the client's own timeouts bound the call: there is an idle connection, and one has just
// served. (Should another caller take it, and the server turn slow at that very moment, the call takes longer by the replies
// of a new one.) Where one has to be made, or replaces one that has died, each reply may take the whole read timeout.
func (c *caller) eval(ctx context.Context, limit time.Duration, server *redis.Client, s *script, name, body string,
	args []any) (v any, stood bool, err error) {
	command := newCommand(ctx, name, body, args)
	process, pipelined := c.process, false
	if c.confirm.replicas > 0 && s.issues() {
		process, pipelined = c.processConfirmed, true
	}
	at := c.pools(server, pipelined)
	start := time.Now()
	defer func() {
		if err != nil {
			c.answered.Store(0)
		} else {
			c.answered.Store(time.Now().UnixNano())
		}
	}()
	if ctx.Done() == nil && limit > c.read && at.idle && start.UnixNano()-c.answered.Load() < int64(fresh) {
		within, cancel := c.connecting(ctx, start.Add(limit-c.read))
		defer cancel()
		v, err = process(within, command)
		return v, at.stood(start), err
	}
	return awaitAnswer(ctx, at, limit, func(within context.Context) (any, error) { return process(within, command) })
}

// fresh is for how long connections are taken to be alive after an answer.
const fresh = 100 * time.Millisecond

// pools are a server's, before a command is sent. Each of the replies while a connection is made may take the whole read
// timeout, so that a command which takes longer than that tells of a process that stood still only where it found one.
type pools struct {
	server *redis.Client
	read   time.Duration
	idle   bool   // there is a connection to be found; false where no time limit of go-redis bounds the command
	sought uint32 // how often none was found at once
}

func (c *caller) pools(server *redis.Client, pipelined bool) pools {
	if server == nil || c.read == 0 {
		return pools{}
	}
	stats := server.PoolStats()
	own := (*redis.PoolStats)(stats.PipelineStats) // pipelines have a pool of their own, unless that is switched off
	if !pipelined || own == nil {
		own = stats
	}
	n, _ := sought(stats)
	return pools{server, c.read, own.IdleConns > 0, n}
}

// sought counts the commands that had a connection made or waited for one, and those that seek one.
func sought(stats *redis.PoolStats) (n, seeking uint32) {
	n, seeking = stats.Misses+stats.WaitCount, stats.PendingRequests
	if own := stats.PipelineStats; own != nil {
		n, seeking = n+own.Misses+own.WaitCount, seeking+own.PendingRequests
	}
	return n, seeking
}

// found reports whether every command since found a connection at once.
func (p pools) found() bool {
	if !p.idle {
		return false
	}
	n, seeking := sought(p.server.PoolStats())
	return n == p.sought && seeking == 0
}

// stood reports whether this process stood still while a command was under way since start.
func (p pools) stood(start time.Time) bool {
	return time.Since(start) > p.read+budget.Last && p.found()
}

// awaitAnswer awaits f, which sends commands, and is to make no connection once limit has passed.
//
// What outlasts the time limits of go-redis is a server that answers slowly while a connection is made, or this process: it
// stood still, or a hook of the client does. Another connection tells, for as long as budget.Last. In the second case f is
// waited for as long as it takes: nothing could be sent before it is done, since go-redis may hold a lock.
func awaitAnswer[T any](ctx context.Context, at pools, limit time.Duration, f func(context.Context) (T, error)) (
	v T, stood bool, err error) {
	within, cancel := context.WithTimeout(ctx, limit)
	start := time.Now()
	p := begins(func() (T, error) {
		defer cancel()
		return f(within)
	})
	v, err = p.wait(ctx, limit)
	if err == errNoAnswer && at.server != nil && limit > at.read && answers(at.server) {
		v, err = p.wait(ctx, noLimit)
		return v, true, err
	}
	return v, at.stood(start), err
}

// answers reports whether a server answers at once, on a connection of its own.
func answers(server *redis.Client) bool {
	ctx, cancel := context.WithTimeout(context.Background(), budget.Last)
	defer cancel()
	_, err := await(ctx, budget.Last, func() (string, error) {
		own := redis.NewClient(strangerOptions(server, server.Options().Addr))
		defer func() { _ = own.Close() }()
		return own.Ping(ctx).Result()
	})
	var refused redis.Error
	return err == nil || errors.As(err, &refused)
}

func (c *caller) process(ctx context.Context, command onceCmd) (any, error) {
	return result(ctx, c.client, command)
}

// result has a client process a command.
func result(ctx context.Context, client redis.UniversalClient, command onceCmd) (any, error) {
	if err := client.Process(ctx, command); err != nil {
		return nil, err
	}
	return command.Result()
}

// connecting limits the time to wait for a connection and to make one. Calls that begin at about the same time share one
// context, if there is nothing in theirs.
func (c *caller) connecting(ctx context.Context, end time.Time) (context.Context, context.CancelFunc) {
	const sharing = 250 * time.Millisecond
	if ctx != context.Background() {
		return context.WithDeadline(ctx, end)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if d := end.Sub(c.sharedEnd); d < 0 || d > sharing {
		c.sharedEnd = end
		c.shared, c.cancel = context.WithDeadline(ctx, end)
	}
	return c.shared, func() {}
}

// A onceCmd is not sent again by go-redis itself.
type onceCmd struct{ *redis.Cmd }

func (onceCmd) NoRetry() bool { return true }

// newCommand takes arguments whose first two are the name and the script's digest or source.
func newCommand(ctx context.Context, name, body string, args []any) onceCmd {
	if args[0] != nil { // sent before: go-redis may still be reading it
		args = slices.Clone(args)
	}
	args[0], args[1] = name, body
	command := onceCmd{redis.NewCmd(ctx, args...)}
	command.SetFirstKeyPos(3)
	command.SetStepCount(1) // see direct
	return command
}

// transient reports whether the same command may succeed a moment later.
func transient(err error) bool {
	var network net.Error
	return errors.As(err, &network) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) ||
		errors.Is(err, redis.ErrPoolTimeout) || errors.Is(err, redis.ErrPoolExhausted) ||
		redis.IsLoadingError(err) || redis.IsReadOnlyError(err) || redis.IsClusterDownError(err) ||
		redis.IsTryAgainError(err) || redis.IsMasterDownError(err) || redis.IsMaxClientsError(err)
}

// unsent reports whether the script did not run: the server said so, or there was no connection to send it on.
func unsent(err error) bool {
	for _, prefix := range []string{"NOSCRIPT", "MOVED", "ASK", "TRYAGAIN", "CLUSTERDOWN", "READONLY", "LOADING"} {
		if redis.HasErrorPrefix(err, prefix) {
			return true
		}
	}
	var network *net.OpError
	return errors.Is(err, redis.ErrPoolTimeout) || errors.Is(err, redis.ErrPoolExhausted) ||
		errors.As(err, &network) && network.Op == "dial"
}

// errEnded is the error where a hook of the client ended a goroutine.
var errEnded = errors.New("serial: the goroutine of a command was ended from outside")

// errNoAnswer is the cause where await gave up.
var errNoAnswer = fmt.Errorf("no answer in time: %w", os.ErrDeadlineExceeded)

// noLimit makes await wait for its context alone.
const noLimit = time.Duration(math.MaxInt64)

// await runs f in a goroutine of its own and returns its results, or an error as soon as ctx ends or limit has passed;
// f then goes on by itself. A panic of f is the caller's.
func await[T any](ctx context.Context, limit time.Duration, f func() (T, error)) (T, error) {
	return begins(f).wait(ctx, limit)
}

// A pending is something that runs in a goroutine of its own.
type pending[T any] chan outcomeOf[T]

type outcomeOf[T any] struct {
	v        T
	err      error
	panicked any
}

func begins[T any](f func() (T, error)) pending[T] {
	p := make(pending[T], 1)
	go func() {
		r := outcomeOf[T]{err: errEnded}
		defer func() {
			r.panicked = recover()
			p <- r
		}()
		r.v, r.err = f()
	}()
	return p
}

// wait is await for what has begun. After errNoAnswer it may be called again.
func (p pending[T]) wait(ctx context.Context, limit time.Duration) (T, error) {
	var timeout <-chan time.Time
	if limit != noLimit {
		timer := time.NewTimer(limit)
		defer timer.Stop()
		timeout = timer.C
	}
	var none T
	select {
	case r := <-p:
		if r.panicked != nil {
			panic(r.panicked)
		}
		return r.v, r.err
	case <-ctx.Done():
		return none, ctx.Err()
	case <-timeout:
		return none, errNoAnswer
	}
}

// sleep waits for d, or returns the context's error as soon as it ends.
func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("serial: gave up waiting: %w", ctx.Err())
	}
}
