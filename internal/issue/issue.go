// Package issue issues sequences: the steps of a call, callers who share a script, what is remembered of types and of servers'
// clocks, openings, and the blocks of a ledger. It knows neither how a number is printed nor who keeps the lock: spans of time,
// labels and sequences go in and out, and a [Refusal] is data.
package issue

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/dailyserial/serial/internal/budget"
	"github.com/dailyserial/serial/internal/calendar"
	"github.com/dailyserial/serial/internal/coalesce"
	"github.com/dailyserial/serial/internal/redisrun"
	"github.com/dailyserial/serial/internal/store"
)

// A Config is how an [Issuer] issues. Its functions are called from any number of goroutines.
type Config struct {
	Client    redis.UniversalClient
	Replicas  redisrun.Replicas
	Prefix    string // of keys
	Calendar  calendar.Calendar
	Counts    string // what a series counts by, as in the record
	PrintMark string // one for all numbers of a period, hexadecimal digits
	Base      int64  // sequence before the first of a period
	Limit     int64  // largest sequence
	Brief     bool   // what is counted, or printed, is over in a second
	MaxSkew   time.Duration
	Retention int    // periods for which a counter is kept after its own
	Timed     bool   // somebody wants to know how long calls take
	Template  string // kept with the answer of a request
	Key       string // fingerprint of the key that hides sequences, or "plain"; kept likewise

	// SpanAt returns the span of an instant, and why no number of it can be printed, nil if it can.
	SpanAt func(time.Time) (calendar.Span, error)
	// Floor returns the highest sequence that may have been used; nil for none.
	Floor func(ctx context.Context, typ string, start time.Time) (int64, error)
	// Reserve sets sequences aside in a ledger, Block at a time, and returns the one before the first; nil for none.
	Reserve func(ctx context.Context, typ, label string, above, n int64) (after int64, err error)
	Block   int64

	// Explain is told of every gap, and Expect of how many more or fewer may still turn out to be one; nil for nobody.
	Explain func(Gap)
	Expect  func(int)
}

// A Span is a span with what a call needs to know of it.
type Span struct {
	calendar.Span
	Unprintable error        // why no number can be printed, nil if it can
	stored      store.Period // the period as Redis has it
	printed     string       // the date and the template, as a request's answer keeps them
}

// An Issuer issues sequences. Its methods may be called concurrently.
type Issuer struct {
	Config
	Store   *store.Store
	nodes   *redisrun.Nodes[*node]
	memory  memory
	flights sync.Map             // under way: batchKey to *flight
	nowhere *Span                // no clock is in: a script that is sent for it tells the time
	current atomic.Pointer[Span] // the one computed last
}

// New returns an Issuer.
func New(c Config) *Issuer {
	runner := redisrun.New(c.Client, c.Replicas)
	i := &Issuer{
		Config: c,
		Store:  store.New(runner, c.Prefix, c.Limit, c.Counts, c.PrintMark, c.Reserve != nil),
	}
	i.nowhere = &Span{stored: i.Store.NewPeriod("0", 0, 0, 0, 0, 0)}
	i.nowhere.Label = "0"
	i.memory = memory{
		types: map[string]*entry{}, keys: i.Store.KeysOf, made: time.Now(), endless: c.Calendar.Unit == calendar.Never,
	}
	i.nodes = redisrun.NewNodes(runner, func(n *redisrun.Node) *node {
		created := &node{Node: n, issuer: i}
		created.batches = coalesce.New(n.Together(), 1, created.send, created.leftBehind)
		nobody := func(*opening, int) {} // leaves
		// Redis takes longer for an opening than this process does, so two are under way, and two locks likewise.
		created.opens = coalesce.New(min(n.Together(), opensTogether), 2, created.sendOpens, nobody)
		return created
	})
	return i
}

// spanAt is the span of an instant, with the arguments that scripts need.
func (i *Issuer) spanAt(t time.Time) *Span {
	at := t.Unix()
	if s := i.current.Load(); s != nil && s.From <= at && at < s.To {
		return s
	}
	s := i.newSpan(t)
	i.current.Store(s)
	return s
}

func (i *Issuer) newSpan(t time.Time) *Span {
	s := &Span{}
	s.Span, s.Unprintable = i.SpanAt(t)
	s.printed = strconv.Quote(s.Date) + " " + strconv.Quote(i.Template)
	expires := i.Calendar.Later(&s.Period, i.Retention).End
	s.stored = i.Store.NewPeriod(s.Label, s.Start, s.End, s.From, s.To, expires)
	return s
}

// A Call is one call of a public method for one type. One goroutine uses it at a time. A caller that leaves a step which goes on
// without it, such as an opening, may still call End and Events; nothing else.
type Call struct {
	session   session
	began     time.Time
	found     *store.Reply // to the take that found the counter missing
	waits     int          // for others, up to 10
	lockSince time.Time    // when the lock was last asked for, which expires LockExpiry later at the earliest
	checked   bool         // the clocks have been compared, for Prepare
	left      bool         // the caller has left a step that goes on
}

// NewCall begins a call for a type, whose request may come again if it has an ID.
func (i *Issuer) NewCall(ctx context.Context, typ, request string) (*Call, error) {
	if err := redisrun.EndOf(ctx); err != nil {
		return nil, fmt.Errorf("serial: nothing was sent: %w", err)
	}
	_, limited := ctx.Deadline()
	c := &Call{session: session{
		issuer: i, typ: typ, request: request, node: i.nodes.Of(ctx, typ), budget: budget.New(limited),
		events: Events{Type: typ},
	}}
	if i.Timed {
		c.began = time.Now()
	}
	return c, nil
}

// A Step is what a step of the sequence leads to.
type Step int

const (
	Done    Step = iota // with numbers or an error
	Missing             // the counter is missing, or lost while a floor can tell how far it had come
	Locked              // the caller has the lock
	Wait                // others are at work, or the period has to be looked at again
	Again               // the same again
	Enter               // of Prepare: enter the current period first, which must not be full
)

// An Outcome is how a step ended.
type Outcome struct {
	Step    Step
	Numbers Numbers // of Done, without Err
	Lock    Lock    // of Locked; nil in a period too short for one
	Err     error
}

// Numbers are sequences that were issued.
type Numbers struct {
	Span     *Span
	Last     int64         // the last sequence
	Answer   *store.Answer // what the request was answered before, nil if it was not
	Repeated bool          // that was another call
}

// outcome is how a step ended that was answered r.
func (c *Call) outcome(r store.Reply, err error) Outcome {
	s := &c.session
	switch {
	case err != nil:
		return Outcome{Err: err}
	case r.Status == store.Issued:
		return Outcome{Numbers: Numbers{Span: s.span, Last: r.Last}}
	case r.Status == store.Repeated:
		if p := r.Answer.Period; p.Label == s.span.Label && p.Start == s.span.Start && p.End == s.span.End {
			// The answer of before may have been lost, and with it what the number would have been remembered by.
			s.issuer.memory.remember(s.typ, s.span, r.Answer.Seq, &s.node.clock)
		}
		return Outcome{Numbers: Numbers{s.span, r.Answer.Seq, r.Answer, r.Before == nil}}
	case r.Status == store.Missing, r.Status == store.Reserved, r.Status == store.Lost && s.issuer.Floor != nil:
		found := r
		c.found = &found
		return Outcome{Step: Missing}
	case r.Status == store.Claimed:
		s.noteOthers()
		return Outcome{Step: Wait}
	case r.Status == store.Late, r.Status == store.Clock:
		return Outcome{Step: Wait}
	}
	return Outcome{Err: s.refuse(r)}
}
