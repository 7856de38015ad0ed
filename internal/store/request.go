package store

import (
	"time"

	"github.com/dailyserial/serial/internal/redisrun"
)

// A Request is a request about a series. Its [Target] is set each time it is sent.
type Request interface {
	// Aim sets the target, and reports whether the request makes sense for that target.
	Aim(Target) bool
	// About returns the period of the reply.
	About() *Period
	// Requested describes the request, for reading its reply.
	Requested() Requested
	command(s *Store) redisrun.Command
}

// A Target is the series and the circumstances of one sending.
type Target struct {
	Series
	Repeatable     Repeatable // zero unless the caller may ask again
	ClockUntrusted bool       // the server's clock is far from this host's, so no prepared period may be entered
}

// Aim implements [Request].
func (t *Target) Aim(at Target) bool {
	*t = at
	return true
}

// About implements [Request].
func (t *Target) About() *Period { return t.Period }

// Requested implements [Request], for requests without numbers.
func (t *Target) Requested() Requested { return Requested{} }

// A Repeatable is a request that the caller may repeat: it then gets its earlier answer.
type Repeatable struct {
	ID      string
	Printed string        // date and template of its number, and perhaps its type, stored with the answer
	Key     string        // fingerprint of the key that hides the sequence, or "plain"
	Life    time.Duration // duration for which the answer is stored
}

// Requested describes a request, for reading its reply.
type Requested struct {
	N          int   // numbers
	HighWater  int64 // high-water mark of the series when the request was sent
	Counters   int   // count of counters that a Peek or a History reads
	Repeatable bool
}

// numbers returns the Requested of a request for n numbers.
func (t *Target) numbers(n int) Requested {
	return Requested{N: n, HighWater: t.HighWater, Repeatable: t.Repeatable.ID != ""}
}

// A Purpose is the purpose of a Take.
type Purpose string

const (
	Issue Purpose = "issue" // numbers to share among callers, fewer than requested if no more are left
	All   Purpose = "all"   // all the numbers or none; if none are requested, the state of the period

	// The others also take all or none. If a block must be set aside, they request a [Claim]:
	ForCeiling  Purpose = "ceiling"  // for an existing counter
	ForOpening  Purpose = "open"     // also for a missing counter: the caller holds the lock
	ForFloor    Purpose = "floor"    // as ForOpening, with a floor to ask: also for a lost counter without a ledger
	ForRaise    Purpose = "raise"    // for an operator's Raise: whatever the state
	ForTakeover Purpose = "takeover" // for an operator's Takeover: whoever owns the period
)

// A Take asks for the numbers that follow the counter.
type Take struct {
	Target
	N       int
	Purpose Purpose
	Claim   *Claim // claim to request, nil unless a block is wanted
}

// A Claim is the right to install one block of a ledger. The server grants it to one caller at a time.
type Claim struct {
	Token string        // unique token
	Lease time.Duration // duration of the claim
	Until time.Time     // latest end of the claim, by the server's clock; zero unless it ends with a lock
	Base  int64         // the sequence before the first that a period has
}

// Requested implements [Request].
func (t *Take) Requested() Requested { return t.numbers(t.N) }

func (t *Take) command(s *Store) redisrun.Command { return s.TakeTogether(t) }

// TakeTogether returns the command of one take, or of several takes of different types in the same period with the
// purpose [Issue].
func (s *Store) TakeTogether(t *Take, others ...Take) redisrun.Command {
	var keys []any
	more := append(make([]any, 0, 8), t.N, t.HighWater) // enough for one type, on the stack
	for i := range others {
		o := &others[i]
		keys, more = append(keys, o.Keys.counter, o.Keys.record), append(more, o.N, o.HighWater)
	}
	if s.ledger || t.Purpose != Issue || t.ClockUntrusted || t.Repeatable.ID != "" {
		more = append(more, string(t.Purpose), t.ClockUntrusted)
	}
	if c := t.Claim; c != nil {
		until := max(0, c.Until.UnixMilli()) // 0 for none
		more = append(more, c.Token, c.Lease.Milliseconds(), until, c.Base)
	}
	return s.script(TakeScript, &t.Target, keys, more...)
}

// A Floor is the highest sequence that may have been used in a period. The zero Floor is none.
type Floor struct{ arg any } // go-redis sends nil as an empty argument

// FloorAt returns a floor that has answered.
func FloorAt(seq int64) Floor { return Floor{seq} }

// FloorToAsk returns a floor that is asked only if a [Prepare] gets [NeedsFloor].
func FloorToAsk() Floor { return Floor{"?"} }

// An Open creates a period's counter, or lifts it, and takes numbers from it. It is sent at most once, since sending it
// again would issue more numbers.
type Open struct {
	Target
	N       int
	Base    int64 // sequence just before the period's first; 0 if the floor or the ledger has one below it
	Floor   Floor
	Purpose Purpose       // operator's purpose, ForRaise or ForTakeover, which needs no lock; otherwise ""
	Keep    bool          // with a Purpose and without a ledger: a series with a ledger is a [Conflict]
	Checked time.Time     // time when the counter was found missing, by the server's clock
	Lease   time.Duration // time since Checked after which the server refuses to open
	Lock    string        // value of the caller's lock, to give it back; "" for none, or one on another server
	Block   *Block        // block to install, nil without a ledger
}

// A Block is a range that a ledger has set aside: the sequences After+1 to Upto.
type Block struct {
	Token         string // token of the claim
	ReplicationID string // replication ID of the server that granted the claim
	After, Upto   int64
}

// Requested implements [Request].
func (o *Open) Requested() Requested { return o.numbers(o.N) }

func (o *Open) command(s *Store) redisrun.Command {
	var checked any = string(o.Purpose)
	switch {
	case o.Purpose == "":
		checked = o.Checked.UnixMilli()
	case o.Keep:
		checked = string(o.Purpose) + " keep"
	}
	more := []any{o.N, o.HighWater, o.Base, o.Floor.arg, checked, o.Lease.Milliseconds(), o.Lock}
	var keys []any
	if o.Lock != "" {
		keys = append(keys, s.LockKey(o.Type, o.Period.Label))
	}
	if o.Block != nil {
		more = append(more, o.Block.Token, o.Block.ReplicationID, o.Block.After, o.Block.Upto)
	}
	c := s.script(OpenScript, &o.Target, keys, more...)
	c.NoRepeat = o.Purpose == "" // an operator's Open may be repeated
	return c
}

// A Prepare opens a period that has not begun. Its Target is the current period.
type Prepare struct {
	Target
	Next    *Period
	Base    int64 // as in an Open; 0 without the lock if a floor or a ledger must be asked first
	Floor   Floor
	Checked bool // the server's clock has been compared with this host's
}

// Aim implements [Request]. The period must not have begun.
func (p *Prepare) Aim(at Target) bool {
	p.Target = at
	return at.Period.Start < p.Next.Start
}

// About implements [Request].
func (p *Prepare) About() *Period { return p.Next }

func (p *Prepare) command(s *Store) redisrun.Command {
	return s.script(prepareScript, &p.Target, []any{s.CounterKey(p.Type, p.Next.Label)},
		p.HighWater, p.Next.bounds, p.Next.Start, p.Next.expires, p.Base, p.Floor.arg, p.Checked)
}

// A Peek reads the counter and writes nothing.
type Peek struct{ Target }

// Requested implements [Request].
func (p *Peek) Requested() Requested { return Requested{Counters: 1} }

func (p *Peek) command(s *Store) redisrun.Command {
	return s.script(peekScript, &p.Target, nil, p.HighWater)
}

// A History reads the counters of the current and the labelled periods into [Reply.Each]. It writes nothing.
type History struct {
	Target
	Labels []string
}

// Requested implements [Request].
func (h *History) Requested() Requested { return Requested{Counters: 1 + len(h.Labels)} }

func (h *History) command(s *Store) redisrun.Command {
	keys := make([]any, len(h.Labels))
	for i, label := range h.Labels {
		keys[i] = s.CounterKey(h.Type, label)
	}
	return s.script(historyScript, &h.Target, keys, h.HighWater)
}

// Release returns the command that gives a claim back, so nobody waits until it expires.
func (s *Store) Release(typ, token string) redisrun.Command {
	return redisrun.Command{Script: releaseScript, Args: []any{nil, nil, 1, s.RecordKey(typ), token}}
}

// Command returns the command of a request.
func (s *Store) Command(r Request) redisrun.Command { return r.command(s) }

// script returns the command of a script that includes the rules. keys come after the counter and the record, and more
// comes after the arguments common to these scripts. A repeatable request adds to both.
func (s *Store) script(script *redisrun.Script, t *Target, keys []any, more ...any) redisrun.Command {
	if t.Repeatable.ID != "" {
		keys = append(keys, s.RequestKey(t.Type, t.Repeatable.ID))
		more = append(more, t.Repeatable.Printed, t.Repeatable.Key, t.Repeatable.Life.Milliseconds())
	}
	p := t.Period
	args := make([]any, 0, 5+len(keys)+5+len(more))
	args = append(args, nil, nil, 2+len(keys), t.Keys.counter, t.Keys.record) // after the name and the digest
	args = append(args, keys...)
	args = append(args, p.text, p.from, p.to, s.limit, p.expires)
	writes := script != peekScript && script != historyScript
	return redisrun.Command{Script: script, Args: append(args, more...), Confirm: writes}
}
