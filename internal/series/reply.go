package series

import (
	"encoding/json"
	"fmt"
	"time"
)

// A Status is the kind of a reply. The comments at the top of the scripts in lua describe each kind.
type Status string

const (
	Issued     Status = "issued"    // Last, Count
	Repeated   Status = "once"      // Detail: the stored answer
	Lost       Status = "lost"      // Found; Detail: content of a counter that only a floor or an operator can repair
	Exhausted  Status = "exhausted" // Detail: the last sequence used
	Future     Status = "future"    // Detail: the entered period, which begins after the server's time
	Conflict   Status = "conflict"  // Detail: a period with another time zone, day start or ledger
	Calendar   Status = "calendar"  // Detail: a period of the calendar that the series uses
	OtherPrint Status = "print"     // Detail: label of the period after which the print mark may change
	Unknown    Status = "unknown"   // Detail: reply of INFO without a master's replication ID

	// This package sets these without a script's reply.
	Skewed      Status = "skewed"      // the server's clock differs too much from this host's
	Unsteady    Status = "unsteady"    // the server's clock does not stay in one period
	Unconfirmed Status = "unconfirmed" // replicas did not confirm the number
	Over        Status = "over"        // the last day on which numbers are issued has ended

	// The outcome of a call never has these.
	missing Status = "missing" // Found: a grant is needed
	stale   Status = "stale"   // Found.Mixed: the grant is no longer valid
	clocked Status = "clock"   // the server's clock is not in the span

)

// issues has the statuses of scripts that become [Issued].
var issues = map[Status]bool{"part": true, "raised": true, "there": true}

// A Reply is the reply to a request, as described at the top of the scripts.
type Reply struct {
	Status   Status    `json:"status"`
	Detail   string    `json:"text"`        // see Status
	Last     int64     `json:"last,string"` // last sequence issued, or the position of the counter
	Count    int       `json:"count"`       // count of sequences issued, fewer than requested if there are no more
	Found              // set for missing and Lost
	Opened   bool      `json:"-"`           // a grant opened the period or raised its counter
	From     int64     `json:"from,string"` // with Opened: previous position of the counter, -1 if it was lost
	Upto     int64     `json:"upto,string"` // with Opened: last sequence that was skipped, or 0 if none
	Seconds  int64     `json:"seconds"`     // time by the server's clock
	Micros   int64     `json:"micros"`
	Now      time.Time `json:"-"` // Seconds and Micros; zero if the reply does not contain them
	Counters []int64   `json:"-"` // of read.lua: first and last sequence of each period

	Sent, Received time.Time     `json:"-"` // times before and after the round trip, by this host's clock
	Earlier        error         `json:"-"` // failure of an earlier attempt, which may have run too; nil for none
	Unconfirmed    error         `json:"-"` // why replicas did not confirm the numbers; nil if they did or did not have to
	offset, before time.Duration // new and previous offset of the server's clock; 0 if Now is zero
}

// Found is the state of a period for which a grant is needed. A grant with a block is invalid once this state has
// changed.
type Found struct {
	Entered string `json:"entered"`        // period entered, "" if none
	ID      string `json:"id"`             // replication ID of the server
	Ceiling int64  `json:"ceiling,string"` // last sequence reserved for the period entered, -1 if none
	Above   int64  `json:"above,string"`   // sequence above which a block must lie
	Exists  bool   `json:"exists"`         // the counter exists
	Starts  bool   `json:"starts"`         // a block must also lie above the caller's Base
	Lost    bool   `json:"lost"`           // the counter existed once
	Mixed   bool   `json:"mixed"`          // processes without a ledger may issue numbers in the period
	Intact  bool   `json:"intact"`         // the counter is unchanged since the last number was issued with a ledger
	Closed  bool   `json:"closed"`         // the period must be opened or entered
}

// digest parses a script's reply to a request for n numbers.
func digest(value any, n int) (Reply, error) {
	switch v := value.(type) {
	case int64:
		return Reply{Status: Issued, Last: v, Count: n, Opened: true}, nil
	case string:
		if r := decode(v); r.Status != "" {
			return r, nil
		}
	case []any:
		counters, valid := make([]int64, len(v)), len(v) > 1
		for i := range v {
			var ok bool
			counters[i], ok = v[i].(int64)
			valid = valid && ok
		}
		if valid {
			return Reply{Status: Issued, Counters: counters}, nil
		}
	}
	return Reply{}, fmt.Errorf("serial: unexpected script reply %v (%T); is a proxy in the way?", value, value)
}

// decode parses a JSON object. Status is "" if the text is not a reply. It is not part of digest because r is allocated
// on the heap.
func decode(text string) (r Reply) {
	if err := json.Unmarshal([]byte(text), &r); err != nil {
		return Reply{}
	}
	r.Now = time.Unix(r.Seconds, r.Micros*1000)
	if issues[r.Status] {
		r.Opened, r.Status = r.Status == "raised", Issued
	}
	return r
}

// A Refusal is the reason why no numbers were issued. It is data that the root package puts into words.
type Refusal struct {
	Reply     // Status is the reason
	Type      string
	Span      *Target
	HighWater int64 // largest sequence that this process has returned in the period, or 0 if none
}

func (r *Refusal) Error() string { return "serial: " + string(r.Status) }

// EnteredPeriod returns the period in Detail. It is zero if Detail cannot be parsed.
func (r *Refusal) EnteredPeriod() Recorded { return parseAnswer(r.Detail).Period }
