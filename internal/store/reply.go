package store

import (
	"fmt"
	"slices"
	"time"

	"github.com/dailyserial/serial/internal/redisrun"
)

// The heads of the scripts in lua say what each argument and each element of a reply means; that of rules.lua also says
// what each field of the record is.

// A Status says how a script answered.
type Status string

const (
	Issued     Status = "issued"    // Numbers, and Skipped for an Open
	Clock      Status = "clock"     // the server's clock is not in the span
	Calendar   Status = "calendar"  // Entered: the series is counted by its calendar, which is another
	Conflict   Status = "conflict"  // Entered: it belongs to another time zone or day start, or has a ledger
	OtherPrint Status = "print"     // Detail: the print mark may change with a label greater than that
	Future     Status = "future"    // Entered: it begins after the server's time
	Lost       Status = "lost"      // Detail: content of the counter, which once existed
	Missing    Status = "missing"   // WasLost: the period must be opened
	Exhausted  Status = "exhausted" // Detail: the last sequence issued; Skipped for an Open
	Ceiling    Status = "ceiling"   // WasLost: a block must be set aside first
	Reserved   Status = "reserve"   // Granted: the caller has the claim
	Claimed    Status = "claimed"   // another caller has the claim
	Late       Status = "late"      // the lock, the claim or the caller's time has run out; for an Open, Granted.Mixed
	Unknown    Status = "unknown"   // Detail: what INFO says instead of a master's replication ID
	Repeated   Status = "once"      // Answer: the request came before
	Unchecked  Status = "check"     // to a Prepare: the clocks must be compared first
	Gap        Status = "gap"       // to a Prepare: the periods before must be opened first
	NeedsFloor Status = "floor"     // to a Prepare, with WasLost: the floor must be asked

	// These are read as Issued:
	part   = "part"   // fewer numbers than asked for: the last ones of the period or of the block
	lifted = "lifted" // to an Open that skipped sequences
	there  = "there"  // to an Open: another caller had opened the period
)

// A Reply is what a script answered, as far as its Status says.
type Reply struct {
	Status Status
	Numbers
	Detail  string // text that the Status describes
	Entered string // the period entered, as the record has it
	WasLost bool   // the counter existed once
	Skipped Skipped
	Granted Granted
	Answer  *Answer
	Each    []int64 // to a History: the last sequence of each period, -1 if it has no counter
	Timing
	Delivery
}

// Numbers are sequences that were issued.
type Numbers struct {
	Last  int64  // the last one, or the position of the counter
	Count int    // how many, fewer than asked for if Rest says why
	Rest  Status // Exhausted or Ceiling
}

// Skipped says what an Open did to the counter.
type Skipped struct {
	Opened bool  // no other caller had opened the period
	From   int64 // position of the counter before, -1 if it was lost; set if sequences were skipped
	Upto   int64 // likewise: the last sequence that was used or skipped
}

// Granted describes the period in which the caller has the claim.
type Granted struct {
	ReplicationID string // of the server that gave the claim
	Above         int64  // the block must lie above that
	Unused        bool   // nothing of the period was used, as far as counter, record and the caller know
	Tried         bool   // with Unused: a caller with a start has had the claim before
	Mixed         bool   // callers without a ledger may issue numbers of the period
}

// An Answer is the stored answer to a request. If the text cannot be read, the rest is zero.
type Answer struct {
	Text    string
	Period  Period
	Printed string // as in the Repeatable
	Key     string // as in the Repeatable
	Seq     int64
}

// Timing says when a script ran.
type Timing struct {
	Now            time.Time // the server's clock; zero if all numbers were issued
	Sent, Received time.Time // around the round trip, by this host's clock
}

// Delivery says what became of the attempts at a command.
type Delivery struct {
	Requested
	EarlierErr  error       // failure of an earlier attempt, which may have run too; nil for none
	Unconfirmed error       // why replicas do not confirm the numbers issued; nil if they do, or need not
	Unanswered  []LateReply // attempts that may have run and were answered otherwise, in order; also with an error
}

// A LateReply waits until the client is done with an attempt, and returns its late answer, or why there is none.
type LateReply func() (Reply, error)

// Read makes a Reply of what a script answered to a request that asked for asked. An error leaves open whether the
// script ran. [Late] may also mean that no answer came in time to an Open.
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
	if r.Status == Issued || r.Status == Repeated { // otherwise nothing depends on what was written
		r.Unconfirmed = in.Unconfirmed
	}
	return r, nil
}

// Failed is an attempt that failed with err.
func Failed(err error) LateReply { return func() (Reply, error) { return Reply{}, err } }

// Part returns the attempts of one type, the i-th of several in one script.
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

// integers returns v as integers, nil if they are not.
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

// readCounters reads the reply to a History. It returns false if it cannot.
func (r *Reply) readCounters(value any) bool {
	values, _ := value.([]any)
	if r.Counters == 0 || len(values) != r.Counters {
		return false
	}
	r.Status, r.Each = Issued, integers(values...)
	return r.Each != nil
}

// readStatus reads {status, seconds, microseconds, text, integer, integer}, of which the last three may be missing. It
// returns false if it cannot.
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
		r.WasLost = text == "lost"
	case Reserved:
		r.Granted = Granted{text, n[2], n[3]&3 > 0, n[3]&3 > 1, n[3]&4 > 0}
	case Late:
		r.Granted.Mixed = text != ""
	case Repeated:
		r.Answer = parseAnswer(text)
	default:
		r.Detail = text
	}
	return true
}
