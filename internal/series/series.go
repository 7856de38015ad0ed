// Package series implements the four steps of a call for numbers, the blocks of a ledger, and the requests of an
// operator. It is the only package that uses the Redis keys, the fields of the record, and the arguments of the scripts
// in lua. It prints no numbers, and it does not implement the lock. Callers pass and receive labels, sequences and
// spans. A refusal is returned as data, and the caller formats the message.
//
// The code uses these words. The record is the Redis hash of a series. The period entered is the period in which
// numbers are currently issued; it is stored in the record (see rules.lua). A span is a part of a period in which the
// same date is printed. A block is a range of sequences that a ledger has reserved at once. A grant is the permission
// to create or raise a counter, or to install a block (see serial.lua). The high-water mark is the largest sequence of
// a period that this process has returned.
package series

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/dailyserial/serial/internal/calendar"
	"github.com/dailyserial/serial/internal/wire"
)

const (
	// MaxSeq is the largest possible sequence. Numbers in Lua are doubles, which cannot represent every integer of 16
	// digits.
	MaxSeq = 1e15 - 1

	// LockExpiry is the expiry of the lock. A caller that crashes while it holds the lock delays other callers by at most
	// this time.
	LockExpiry = 8 * time.Second

	longest    = 30 * time.Second // longest duration of a call whose context has no deadline
	margin     = time.Second      // time between the end of an opening and the expiry of its lock
	clockTries = 10               // how often in a row a request is sent again because the clock is in another span
)

// A Config configures a [Series]. Its functions must be safe for concurrent use.
type Config struct {
	Client      redis.UniversalClient
	Replicas    wire.Replicas
	Prefix      string // prefix of every key
	Shared      bool   // whether all types share one series
	Calendar    calendar.Calendar
	Counts      string // name of the calendar, as it is stored in the record
	PrintMark   string // print mark of every period, in hexadecimal
	Base        int64  // first sequence of a period, minus 1
	Limit       int64  // largest sequence
	Largest     int64  // largest sequence that a floor may return, if it is larger than Limit
	Until       int64  // instant from which no number is issued, in Unix seconds, or 0 if there is none
	Seconds     bool   // whether spans last one second
	MaxSkew     time.Duration
	Retention   int           // number of periods for which a counter is kept after its own
	Template    string        // template, which is stored with the answer to a request
	Fingerprint string        // fingerprint of the key that hides sequences, or "plain"; stored with the answer, too
	OnceFor     time.Duration // time for which the answer to a request is stored

	// SpanAt returns the span that contains an instant, and an error if its numbers cannot be printed.
	SpanAt func(time.Time) (calendar.Span, error)
	// Floor returns the largest sequence that may have been used. The field is nil if there is no floor.
	Floor func(ctx context.Context, typ string, start time.Time) (int64, error)
	// Reserve reserves n consecutive sequences in a ledger, all of them larger than the parameter above. It returns the
	// first of them minus 1. The field is nil if there is no ledger.
	Reserve func(ctx context.Context, typ, label string, above, n int64) (after int64, err error)
	Block   int64 // number of sequences that are reserved at once

	// Explain receives every gap. Pending receives each change in the number of gaps that may still be reported. Both are
	// nil if there is no hook.
	Explain func(Gap)
	Pending func(int)
}

// A Series issues the sequences of all types of one key prefix. It is safe for concurrent use.
type Series struct {
	*Config
	keys
	spans   *spans
	memory  memory
	gaps    gaps
	limit   any   // Limit as an argument of scripts
	skew    int64 // MaxSkew in microseconds
	wire    *wire.Client
	flights sync.Map // flights of this process that have not ended, *flight by flightKey
}

// A server is the state of one Redis server in this process.
type server struct {
	*Series
	clock clock
}

// New returns a Series.
func New(c Config) *Series {
	k := keys{c.Prefix, c.Shared}
	s := &Series{Config: &c, keys: k, spans: newSpans(&c), limit: c.Limit, skew: c.MaxSkew.Microseconds()}
	s.memory = memory{keys: k, endless: c.Calendar.Unit == calendar.Never, made: time.Now(), types: map[string]*entry{}}
	s.gaps = gaps{c.Explain, c.Pending, c.Limit, s.spans.probe}
	s.wire = wire.New(c.Client, c.Replicas, func() any { return &server{Series: s} })
	return s
}

// Wire returns the client that sends the counters' commands.
func (s *Series) Wire() *wire.Client { return s.wire }

// NoteUsed stores how many sequences of a type have been used in a period. It returns the largest count that was stored
// before, or 0 if there is none. If this process has not issued a number of the type in the period, NoteUsed stores
// nothing and returns the new count.
func (s *Series) NoteUsed(typ string, start, used int64) int64 {
	return s.memory.noteUsed(s.countedAs(typ), start, used)
}

// subject returns the type for messages, or the name of the shared series if the template has no type.
func (s *Series) subject(typ string) string { return cmp.Or(typ, s.Prefix+":*") }

// A Call is one call of a public method for one type. Its methods are the steps of the sequence. It must not be used by
// several goroutines at once.
type Call struct {
	asker
	began       time.Time
	hasDeadline bool    // whether ctx has a deadline, and only ctx limits the time for which the call waits for others
	waits       int     // how often the call has waited for other callers, up to 10
	flight      *flight // flight of the call, or nil if it has none
	refused     error   // error of the latest attempt to get the lock, or nil
}

// An asker sends the requests of a call and interprets the replies.
type asker struct {
	Events Events

	series    *Series
	server    *server
	node      *wire.Node
	typ       string
	counts    string        // type in the keys of the series; see keys.countedAs
	requestID string        // ID of a repeatable request, or ""
	n         int           // number of sequences to issue
	deadline  time.Time     // time after which nothing is sent, except to finish an opening
	reads     bool          // whether the call only reads
	slept     time.Duration // time for which the call has waited for the server's clock
	note      *wire.Note    // latest failure of the call or of a flight that it waits for; nil before the first flight
}

// Events are the events of a call for hooks. If a Target is nil, the event did not happen.
type Events struct {
	Opened         *Target       // span that the call opened
	Wait           time.Duration // time from the beginning of the call until the period of Opened was open
	Lost           *Target       // span whose counter is missing or too low
	Content        string        // content of the lost counter
	Offset, Before time.Duration // new and previous offset of the server's clock
}

// NewCall begins a call for n numbers of a type. id is the ID of a repeatable request, or "".
func (s *Series) NewCall(ctx context.Context, typ, id string, n int) (*Call, error) {
	if ctx.Done() != nil {
		if err := wire.ContextErr(ctx); err != nil {
			return nil, fmt.Errorf("serial: nothing was sent: %w", err)
		}
	}
	c := calls.Get().(*Call)
	at := s.memory.made.Add(time.Since(s.memory.made)) // faster than time.Now, which reads two clocks
	*c = Call{asker: asker{series: s, typ: typ, counts: typ, requestID: id, n: n, deadline: at.Add(AnswerTime)}, began: at}
	if s.Shared { // faster than countedAs
		c.counts = SharedType
	}
	c.node = s.wire.Node(ctx, c.counts)
	c.server = c.node.Local.(*server)
	_, c.hasDeadline = ctx.Deadline()
	return c, nil
}

// calls contains Calls to reuse. With many callers, a new allocation for each call would cost a tenth of the
// throughput.
var calls = sync.Pool{New: func() any { return new(Call) }}

// Free lets another call reuse the memory of c. c must have ended without an error, and must not be used any more. After
// an error, an opening may still read c in the background (see await).
func (c *Call) Free() { calls.Put(c) }

// Restart sets the call's deadline as if the call had just begun.
func (c *Call) Restart() {
	c.began = time.Now()
	c.deadline, c.waits, c.slept = c.began.Add(AnswerTime), 0, 0
}

// extend postpones the call's deadline by the time for which the call has waited for other callers. If ctx has no
// deadline, the call still ends within its longest duration.
func (c *Call) extend(waited time.Duration) {
	c.deadline = c.deadline.Add(waited)
	if limit := c.began.Add(longest); !c.hasDeadline && c.deadline.After(limit) {
		c.deadline = limit
	}
}

// Reads reports whether the call only reads, and therefore does not repair a lost counter.
func (c *asker) Reads() bool { return c.reads }

// Now returns an estimate of the time by the server's clock.
func (c *asker) Now() time.Time { return c.server.clock.now() }

// Current returns the current span by the estimated clock of the server. If spans last a second, it returns the span in
// which a request that is sent now would arrive. If no number can be issued in that span, the estimate may be wrong.
// Current then returns the probe span, which is empty, because the reply to a request for it contains the server's
// time.
func (c *asker) Current() *Target {
	at := c.server.clock.now()
	if c.series.Seconds {
		at = c.server.clock.arrival()
	}
	if span := c.series.spans.at(at); span.Unprintable == nil && (!span.Over || c.reads) {
		return span
	}
	return c.series.spans.probe
}

// Locks provides a lock for each key. Only one caller of all processes can hold a lock at a time.
type Locks interface {
	// Try makes one attempt to get the lock of a key. tag is the hash tag of the key. Try gives up at the deadline or when
	// ctx ends. If the item behind is not nil, and the lock is on the server of the counters, the item is sent directly
	// after the lock's command. The result sent reports this. The failures of the attempt are stored in note. The error
	// matches ErrTaken if another caller holds the lock.
	Try(ctx context.Context, deadline time.Time, tag, key string, behind *wire.Item, note *wire.Note) (
		l Lock, sent bool, err error)
}

// A Lock is held until it is released, or until it expires if releasing it fails.
type Lock interface {
	// Content returns the value of the lock's key, or "" if the lock is not on the server of the counters.
	Content() string
	// Release releases the lock in the background.
	Release(ctx context.Context)
}

// A Step is what the caller must do next.
type Step int

const (
	Done    Step = iota // return, because the Outcome has numbers or an error
	Missing             // call Lock, because a grant is needed
	Locked              // call Open, because the caller has the lock or needs none
	Wait                // call Wait, because other callers are opening the period or have changed its state
	Again               // call Take again
)

// An Outcome is the result of a step, and the input of the next step.
type Outcome struct {
	Step    Step
	Numbers Numbers // numbers issued, if Step is Done and Err is nil
	Err     error

	found   *request  // request whose reply shows that a grant is needed
	checked bool      // whether the opening may skip another check of the counter
	lock    Lock      // lock that the caller holds, or nil if none
	since   time.Time // time at which the lock was requested; the lock does not expire before since + LockExpiry
}

// Numbers are issued sequences.
type Numbers struct {
	Span     *Target
	Last     int64   // last of the sequences
	Answer   *Answer // stored answer to a repeatable request, or nil if there was none
	Repeated bool    // whether the answer was stored by an earlier call
}

// ErrTaken means that another caller holds the lock, or that other callers held it during the whole time for which the
// call could wait.
var ErrTaken = errors.New("other callers held the lock")

// A flight is the work of one caller on behalf of all callers of this process that need the same period. The caller
// opens the period, waits until another process has opened it, or reserves a block.
type flight struct {
	key   flightKey
	done  chan struct{}
	ended Outcome   // outcome for all waiting callers; written before done is closed
	note  wire.Note // failure of the latest attempt
}

// A flightKey identifies a flight.
type flightKey struct {
	typ   string
	start int64 // start of the period, in Unix seconds
}

// startFlight starts a flight of the call for the period of a span, unless the call has one already. If another caller
// has started a flight for this period, startFlight returns that flight, and the call must wait for it.
func (c *Call) startFlight(span *Target) (others *flight) {
	if c.flight != nil {
		if c.flight.key.start == span.Start {
			return nil
		}
		c.endFlight(nil, false) // its period has ended
	}
	key := flightKey{strings.Clone(c.counts), span.Start}
	started := &flight{key: key, done: make(chan struct{}), ended: Outcome{Step: Again}}
	if others, found := c.series.flights.LoadOrStore(started.key, started); found {
		return others.(*flight)
	}
	c.flight, c.note = started, &started.note
	return nil
}

// turn is the time for which a process leaves the lock to others after an opening that has held it for long and failed.
// It is twice the longest pause of [Call.Wait].
const turn = 300 * time.Millisecond

// endFlight ends the call's flight, if it has one. The waiting callers continue. If err is an outage, their calls fail
// with err, because each of them would encounter the same outage. With othersFirst, callers of this process then wait
// for an empty flight. Otherwise one of them would get the lock at once, each time before the callers of other processes,
// which pause between their attempts.
func (c *Call) endFlight(err error, othersFirst bool) {
	f := c.flight
	if f == nil {
		return
	}
	c.flight = nil
	if err != nil && wire.IsOutage(err) {
		f.ended = Outcome{Err: err}
	}
	flights := &c.series.flights
	if othersFirst {
		empty := &flight{key: f.key, done: make(chan struct{}), ended: Outcome{Step: Again}}
		flights.Store(f.key, empty)
		time.AfterFunc(turn, func() { flights.Delete(f.key); close(empty.done) })
	} else {
		flights.Delete(f.key)
	}
	close(f.done)
}

// End ends the call and its flight. *err is the result of the call. If it is an outage, callers that wait for the
// flight return it, too.
func (c *Call) End(err *error) { c.endFlight(*err, false) }
