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
)

const (
	// unreachable is how long a call may take to find out that Redis or the lock servers do not answer.
	unreachable = 10 * time.Second
	// probing is the part of it that is kept for a last, quick attempt.
	probing = 500 * time.Millisecond
	// trying is what the attempts before it get: a little remains for what a call does besides.
	trying = unreachable - probing - 100*time.Millisecond
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
	if c.read < 0 || c.read > unreachable/2 {
		c.read = 0
	}
	return c
}

// run sends s and returns its reply. A script that may be repeated is sent again after an error that may pass, like a
// restart or a failover; otherwise it is sent at most once, and one that was not sent in time is statusLate. An error
// leaves open whether the script ran.
//
// The time that Redis has to answer counts from start. args are those of EVALSHA; name and script are filled in. Failures
// that are tried again are noted, if note is not nil, for those who do not wait for the outcome.
func (c *caller) run(ctx context.Context, start time.Time, s *script, repeat bool, args []any, note *atomic.Pointer[error]) (reply, error) {
	probe := false
	var failure error // of the last attempt
	if note != nil && note.Load() != nil {
		failure = *note.Load()
	}
	for attempt := 0; ; attempt++ {
		sent := time.Now()
		v, err := c.eval(ctx, start, probe, s, "evalsha", s.digest, args)
		if redis.HasErrorPrefix(err, "NOSCRIPT") {
			start = time.Now() // it does answer
			v, err = c.eval(ctx, start, probe, s, "eval", s.source, args)
		}
		if err == nil {
			r, err := parseReply(v)
			r.sent, r.received, r.failure = sent, time.Now(), failure
			if err != nil {
				return r, err
			}
			if r.status == statusExhausted && failure != nil {
				return reply{}, fewLeft(failure)
			}
			return r, nil
		}
		if end := endOf(ctx); end != nil {
			return reply{}, gaveUp(end, failure)
		}
		failure = err
		if note != nil {
			note.Store(&err)
		}
		if !probe && (errors.Is(err, context.DeadlineExceeded) || errors.Is(err, errNoAnswer)) {
			// Our own time limit. Either Redis is out of reach, or this process stood still for some seconds: one more
			// quick attempt tells.
			if !repeat {
				return reply{status: statusLate}, nil
			}
			probe = true
			continue
		}
		pause := min(8*time.Millisecond<<min(attempt, 6), 512*time.Millisecond)
		pause = pause/2 + rand.N(pause/2)
		// A slot that moves to another node is in between for as long as that takes.
		tries := attempt < c.retries || redis.IsTryAgainError(err)
		if !repeat && !unsent(err) || probe || !tries || !transient(err) || time.Since(start)+pause+c.read > trying {
			return reply{}, fmt.Errorf("serial: Redis failed: %w", foreign(err))
		}
		if err := sleep(ctx, pause); err != nil {
			return reply{}, fmt.Errorf("%w; before that: %w", err, foreign(failure))
		}
	}
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

// limit is how long to wait for an answer, by a call that began at start.
func (c *caller) limit(start time.Time) time.Duration {
	if c.read > 0 {
		return noLimit // go-redis keeps the time
	}
	return time.Until(start.Add(trying))
}

// eval makes one attempt, of a call that began at start, or a probe, which is a quick one.
//
// A context that ends does not interrupt go-redis while it reads (unless the client has ContextTimeoutEnabled), so the
// caller does not wait for the command but for whichever comes first. That costs a goroutine; a caller whose context
// can never end does without where the client's own timeouts bound the call.
func (c *caller) eval(ctx context.Context, start time.Time, probe bool, s *script, name, body string, args []any) (any, error) {
	command := newCommand(ctx, name, body, args)
	process := c.process
	if c.confirm.replicas > 0 && s.issues() {
		process = c.processConfirmed
	}
	if probe {
		within, cancel := context.WithTimeout(ctx, probing)
		return await(ctx, probing, func() (any, error) {
			defer cancel()
			return process(within, command)
		})
	}
	within, cancel := c.connecting(ctx, start)
	if c.read > 0 && ctx.Done() == nil {
		defer cancel()
		return process(within, command)
	}
	return await(ctx, c.limit(start), func() (any, error) {
		defer cancel()
		return process(within, command)
	})
}

func (c *caller) process(ctx context.Context, command onceCmd) (any, error) {
	if err := c.client.Process(ctx, command); err != nil {
		return nil, err
	}
	return command.Result()
}

// connecting limits the time to wait for a connection and to make one, by a call that began at start, such that a read
// may follow. Calls that begin at about the same time share one context, if there is nothing in theirs.
func (c *caller) connecting(ctx context.Context, start time.Time) (context.Context, context.CancelFunc) {
	const sharing = 250 * time.Millisecond
	end := start.Add(trying - c.read)
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
		redis.IsLoadingError(err) || redis.IsReadOnlyError(err) || redis.IsClusterDownError(err) ||
		redis.IsTryAgainError(err) || redis.IsMasterDownError(err) || redis.IsMaxClientsError(err)
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
	type result struct {
		v        T
		err      error
		panicked any
	}
	done := make(chan result, 1)
	go func() {
		r := result{err: errEnded}
		defer func() {
			r.panicked = recover()
			done <- r
		}()
		r.v, r.err = f()
	}()
	var timeout <-chan time.Time
	if limit != noLimit {
		timer := time.NewTimer(limit)
		defer timer.Stop()
		timeout = timer.C
	}
	var none T
	select {
	case r := <-done:
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
