package store

import (
	"time"

	"github.com/dailyserial/serial/internal/redisrun"
)

// A Request asks something of a series. Its [Target] is set whenever it is sent.
type Request interface {
	// Aim sets the target, and reports whether the request makes sense for it.
	Aim(Target) bool
	// About returns the period that the reply is about.
	About() *Period
	// Requested returns what the request asks for.
	Requested() Requested
	command(s *Store) redisrun.Command
}

// A Target is what a request is sent for.
type Target struct {
	Series
	Repeatable     Repeatable // zero unless the caller may ask again
	ClockUntrusted bool       // the server's clock is far from this host's: nothing prepared may be entered
}

// Aim implements [Request].
func (t *Target) Aim(at Target) bool {
	*t = at
	return true
}

// About implements [Request].
func (t *Target) About() *Period { return t.Period }

// Requested implements [Request], for requests that ask for no numbers.
func (t *Target) Requested() Requested { return Requested{} }

// A Repeatable is a caller's request that may come again. It gets the answer that it got before.
type Repeatable struct {
	ID      string
	Printed string // how its number is printed, stored with the answer
	Key     string // fingerprint of the key that hides the sequence, or "plain"
}

// Requested is what a request asks for.
type Requested struct {
	N          int   // numbers
	HighWater  int64 // of the series, when it was sent
	Counters   int   // of a History
	Repeatable bool
}

// numbers is the Requested of a request for n numbers.
func (t *Target) numbers(n int) Requested {
	return Requested{N: n, HighWater: t.HighWater, Repeatable: t.Repeatable.ID != ""}
}

// A Purpose is what a Take is for.
type Purpose string

const (
	Issue Purpose = "issue" // numbers, fewer than asked for if no more are left: callers share them
	All   Purpose = "all"   // all the numbers or none; with none asked for, the state of the period

	// The others take all or none too, and want to have a block set aside where that is needed, with a [Claim]:
	ForCeiling  Purpose = "ceiling"  // for a counter that exists
	ForOpening  Purpose = "open"     // also for one that is missing: the caller has the lock
	ForFloor    Purpose = "floor"    // the same with a floor to ask: also for one that is lost and that no ledger knows
	ForRaise    Purpose = "raise"    // an operator's Raise: whatever the state
	ForTakeover Purpose = "takeover" // an operator's Takeover: whoever owns the period
)

// A Take asks for the numbers that follow the counter.
type Take struct {
	Target
	N       int
	Purpose Purpose
	Claim   *Claim // nil unless a block is wanted
}

// A Claim is the right to install one block of a ledger. The server gives it to one caller at a time.
type Claim struct {
	Token string        // unique
	Lease time.Duration // how long it lasts
	Until time.Time     // its end at the latest, by the server's clock; zero unless it ends with a lock
	Base  int64         // the sequence before the first that a period has
}

// Requested implements [Request].
func (t *Take) Requested() Requested { return t.numbers(t.N) }

func (t *Take) command(s *Store) redisrun.Command { return s.TakeTogether(t) }

// TakeTogether returns the command of a take, or of several: of types that the same period serves, with the purpose
// [Issue].
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

// FloorAt is a floor that has answered.
func FloorAt(seq int64) Floor { return Floor{seq} }

// FloorToAsk is a floor that is asked if a [Prepare] is answered [NeedsFloor].
func FloorToAsk() Floor { return Floor{"?"} }

// An Open creates a period's counter, or lifts it, and takes numbers from it. It is sent at most once, since a second
// one would issue numbers again.
type Open struct {
	Target
	N       int
	Base    int64 // the sequence before the first that a period has; 0 if the floor or the ledger says that it was used
	Floor   Floor
	Purpose Purpose       // of an operator, who needs no lock: ForRaise or ForTakeover; else empty
	Keep    bool          // with a Purpose and without a ledger: a series that has a ledger is a [Conflict]
	Checked time.Time     // when the counter was seen to be missing, by the server's clock
	Lease   time.Duration // since Checked, after which the server refuses to open
	Lock    string        // content of the caller's lock, which is given back; "" if it is on another server, or for none
	Block   *Block        // nil without a ledger
}

// A Block is what a ledger has set aside: the sequences after After, up to Upto.
type Block struct {
	Token         string // of the claim
	ReplicationID string // of the server that gave the claim
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
	c.NoRepeat = o.Purpose == "" // an operator's may be repeated
	return c
}

// A Prepare opens a period that has not begun. Its Target is the current period.
type Prepare struct {
	Target
	Next    *Period
	Base    int64 // as of an Open
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

func (p *Peek) command(s *Store) redisrun.Command {
	return s.script(peekScript, &p.Target, nil, p.HighWater)
}

// A History reads the counter and those of the periods with these labels, into [Reply.Each]. It writes nothing.
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

// Release returns the command that gives a claim back, so that nobody waits until it expires.
func (s *Store) Release(typ, token string) redisrun.Command {
	return redisrun.Command{Script: releaseScript, Args: []any{nil, nil, 1, s.RecordKey(typ), token}}
}

// Command returns the command of a request.
func (s *Store) Command(r Request) redisrun.Command { return r.command(s) }

// script returns the command of a script with rules. keys follow the counter and the record, and more the arguments of
// every such script. A repeatable request adds to both.
func (s *Store) script(script *redisrun.Script, t *Target, keys []any, more ...any) redisrun.Command {
	if t.Repeatable.ID != "" {
		keys = append(keys, s.RequestKey(t.Type, t.Repeatable.ID))
		more = append(more, t.Repeatable.Printed, t.Repeatable.Key)
	}
	p := t.Period
	args := make([]any, 0, 5+len(keys)+5+len(more))
	args = append(args, nil, nil, 2+len(keys), t.Keys.counter, t.Keys.record) // after the name and the digest
	args = append(args, keys...)
	args = append(args, p.text, p.from, p.to, s.limit, p.expires)
	writes := script != peekScript && script != historyScript
	return redisrun.Command{Script: script, Args: append(args, more...), Confirm: writes}
}
