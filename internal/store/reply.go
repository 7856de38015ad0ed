package store

import (
	"fmt"
	"slices"
	"time"

	"github.com/dailyserial/serial/internal/redisrun"
)

// The head of each script in lua describes its arguments and the elements of its reply; the head of rules.lua also
// describes the fields of the record.

// A Status is the kind of a script's reply.
type Status string

const (
	Issued     Status = "issued"    // Numbers, and Skipped for an Open
	Clock      Status = "clock"     // the server's clock is not in the span
	Calendar   Status = "calendar"  // Entered: the series is counted by that period's calendar, not the caller's
	Conflict   Status = "conflict"  // Entered: the period belongs to another time zone or day start, or has a ledger
	OtherPrint Status = "print"     // Detail: the print mark may change after the period with that label
	Future     Status = "future"    // Entered: the period begins after the server's time
	Lost       Status = "lost"      // Detail: content of the counter, which once existed
	Missing    Status = "missing"   // WasLost: the period must be opened
	Exhausted  Status = "exhausted" // Detail: the last sequence issued; Skipped for an Open
	Ceiling    Status = "ceiling"   // WasLost: a block must be set aside first
	Reserved   Status = "reserve"   // Granted: the caller has the claim
	Claimed    Status = "claimed"   // another caller has the claim
	Late       Status = "late"      // the lock, the claim or the caller's time has run out; for an Open, Granted.Mixed
	Unknown    Status = "unknown"   // Detail: INFO's answer instead of a master's replication ID
	Repeated   Status = "once"      // Answer: the request was answered before
	Unchecked  Status = "check"     // for a Prepare: the clocks must be compared first
	Gap        Status = "gap"       // for a Prepare: earlier periods must be opened first
	NeedsFloor Status = "floor"     // for a Prepare, WasLost, Granted.Tried: the floor or the ledger must be asked

	// These are read as Issued:
	part   = "part"   // fewer numbers than requested: the last in the period or in the block
	lifted = "lifted" // for an Open that skipped sequences
	there  = "there"  // for an Open: another caller had opened the period
)

// A Reply is a script's reply. Its Status says which other fields are set.
type Reply struct {
	Status Status
	Numbers
	Detail  string // text, described at each Status
	Entered string // period entered, as in the record
	WasLost bool   // the counter existed once
	Skipped Skipped
	Granted Granted
	Answer  *Answer
	Each    []Counter // of each period of a Peek or a History
	Timing
	Delivery
}

// A Counter describes the counter of a period.
type Counter struct {
	Last int64 // position of the counter, -1 if it does not exist or holds no sequence
	Base int64 // sequence just before the period's first, -1 if the record does not have it
}

// Numbers are issued sequences.
type Numbers struct {
	Last  int64  // last sequence issued, or the position of the counter
	Count int    // count of sequences, fewer than requested if Rest is set
	Rest  Status // reason for fewer: Exhausted or Ceiling
}

// Skipped describes the effect of an Open on the counter.
type Skipped struct {
	Opened bool  // no other caller had opened the period
	From   int64 // previous position of the counter, -1 if it was lost; set if sequences were skipped
	Upto   int64 // last sequence used or skipped; set with From
}

// Granted describes the period in which the caller has the claim.
type Granted struct {
	ReplicationID string // replication ID of the server that granted the claim
	Above         int64  // sequence above which the block must lie
	Unused        bool   // no sequence of the period was used, by the counter, the record and the caller
	Tried         bool   // with Unused: a caller with a start has held the claim before
	Mixed         bool   // callers without a ledger may issue numbers in the period
	Intact        bool   // the counter of the period entered is as this server's last number with a ledger left it
}

// An Answer is the stored answer to a request. If its text cannot be parsed, the other fields are zero.
type Answer struct {
	Text    string
	Period  Period
	Printed string // as in the Repeatable
	Key     string // as in the Repeatable
	Seq     int64
}

// Timing says when a script ran.
type Timing struct {
	Now            time.Time // time by the server's clock; zero if all numbers were issued
	Sent, Received time.Time // times around the round trip, by this host's clock
}

// Delivery describes the attempts at a command.
type Delivery struct {
	Requested
	EarlierErr  error       // failure of an earlier attempt, which may have run too; nil for none
	Unconfirmed error       // reason why replicas did not confirm the numbers; nil if they did, or need not
	Unanswered  []LateReply // other attempts that may have run, in order; also set with an error
}

// A LateReply waits until the client is done with an attempt, and returns its late answer, or an error if there is
// none.
type LateReply func() (Reply, error)

// Read makes a Reply of a script's answer to a request for asked. After an error, the script may have run. For an Open,
// [Late] may also mean that no answer came in time.
func Read(in redisrun.Reply, err error, asked Requested) (Reply, error) {
	r := Reply{
		Timing: Timing{Sent: in.Sent, Received: in.Received}, Delivery: Delivery{Requested: asked, EarlierErr: in.EarlierErr},
	}
	for _, a := range in.Unanswered {
		r.Unanswered = append(r.Unanswered, func() (Reply, error) {
			late, err := a.Wait()
			return Read(late, err, asked)
		})
	}
	last, issued := in.Value.(int64)
	switch {
	case err == redisrun.ErrUnanswered:
		r.Status = Late
	case err != nil:
		return r, err
	case issued:
		r.Status, r.Numbers, r.Skipped.Opened = Issued, Numbers{Last: last, Count: asked.N}, true
	case !r.readStatus(in.Value) && !r.readCounters(in.Value):
		err = fmt.Errorf("serial: unexpected script reply %v (%T); is a proxy in the way?", in.Value, in.Value)
		r.Unanswered = append(r.Unanswered, Failed(err))
		return r, err
	}
	if r.Status == Issued || r.Status == Repeated { // otherwise nothing depends on the write
		r.Unconfirmed = in.Unconfirmed
	}
	return r, nil
}

// Failed returns the LateReply of an attempt that failed with err.
func Failed(err error) LateReply { return func() (Reply, error) { return Reply{}, err } }

// Part returns the attempts for one type, the i-th of several in one script.
func Part(i int, attempts []redisrun.Attempt, asked Requested) (each []LateReply) {
	for _, a := range attempts {
		each = append(each, func() (Reply, error) {
			in, err := a.Wait()
			if values, _ := in.Value.([]any); i < len(values) {
				in.Value = values[i]
			}
			return Read(in, err, asked)
		})
	}
	return each
}

// integers returns v as integers, or nil if any is not an integer.
func integers(v ...any) []int64 {
	each := make([]int64, len(v))
	for i := range v {
		var ok bool
		if each[i], ok = v[i].(int64); !ok {
			return nil
		}
	}
	return each
}

// readCounters reads the reply to a Peek or a History. It returns false if the reply is malformed.
func (r *Reply) readCounters(value any) bool {
	values, _ := value.([]any)
	each := integers(values...)
	if r.Counters == 0 || len(each) != 2*r.Counters {
		return false
	}
	r.Status = Issued
	for c := range slices.Chunk(each, 2) {
		r.Each = append(r.Each, Counter{Last: c[0], Base: c[1]})
	}
	return true
}

// readStatus reads {status, seconds, microseconds, text, integer, integer}; the last three are optional. It returns
// false if the reply is malformed.
func (r *Reply) readStatus(value any) bool {
	v, _ := value.([]any)
	none := []any{"", int64(0), int64(0)}
	if len(v) < 3 || len(v) > 6 {
		return false
	}
	v = slices.Concat(v, none[len(v)-3:])
	status, ok := v[0].(string)
	text, isText := v[3].(string)
	n := integers(v[1], v[2], v[4], v[5])
	if !ok || !isText || n == nil {
		return false
	}
	r.Status, r.Now = Status(status), time.Unix(n[0], n[1]*1000)
	switch r.Status {
	case part:
		r.Status, r.Numbers = Issued, Numbers{Last: n[3], Count: int(n[2]), Rest: Status(text)}
	case there:
		r.Status, r.Numbers = Issued, Numbers{Last: n[3], Count: r.N}
	case lifted:
		r.Status, r.Numbers = Issued, Numbers{Last: n[3], Count: r.N}
		r.Skipped = Skipped{Opened: true, From: n[2], Upto: n[3] - int64(r.N)}
	case Exhausted:
		r.Detail, r.Skipped.From, r.Skipped.Upto = text, n[2], n[3]
	case Calendar, Conflict, Future:
		r.Entered = text
	case Missing, Ceiling, NeedsFloor:
		r.WasLost, r.Granted.Tried = text == "lost", text == "tried"
	case Reserved:
		r.Granted = Granted{text, n[2], n[3]&3 > 0, n[3]&3 > 1, n[3]&4 > 0, n[3]&8 > 0}
	case Late:
		r.Granted.Mixed = text != ""
	case Repeated:
		r.Answer = parseAnswer(text)
	default:
		r.Detail = text
	}
	return true
}
