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
	Exhausted  Status = "exhausted" // Detail: last sequence used
	Future     Status = "future"    // Detail: period entered, which begins after the server's time
	Conflict   Status = "conflict"  // Detail: period with another time zone, day start or ledger
	Calendar   Status = "calendar"  // Detail: period of the calendar that the series uses, or OtherType
	OtherPrint Status = "print"     // Detail: label of the period after which the print mark may change
	Unknown    Status = "unknown"   // Detail: reply of INFO without a master's replication ID

	// No script replies with these. This package sets them.
	Skewed      Status = "skewed"      // the server's clock differs too much from this host's
	Unsteady    Status = "unsteady"    // the server's clock keeps jumping out of the span of the request
	Unconfirmed Status = "unconfirmed" // replicas did not confirm the number
	Over        Status = "over"        // the last day on which numbers are issued has ended

	// These never end a call.
	missing Status = "missing" // Found: a grant is needed
	stale   Status = "stale"   // Found.Mixed: the grant is no longer valid
	clocked Status = "clock"   // the server's clock is not in the span
)

// issues contains the statuses of scripts that become [Issued].
var issues = map[Status]bool{"part": true, "raised": true, "there": true}

// A Reply is the reply to a request. The comments at the top of the scripts describe the fields.
type Reply struct {
	Status   Status    `json:"status"`
	Detail   string    `json:"text"`        // detail that depends on Status
	Last     int64     `json:"last,string"` // last sequence issued in the period, or -1 if it is unknown
	Count    int       `json:"count"`       // number of sequences issued, which may be smaller than requested
	Found              // state of the period, set for missing and Lost
	Opened   bool      `json:"-"`           // whether the grant was used, if the request had one
	From     int64     `json:"from,string"` // grants only: sequence before the skipped ones, or -1 if the counter was lost
	Upto     int64     `json:"upto,string"` // grants only: last sequence that was skipped, or 0 if none was
	Seconds  int64     `json:"seconds"`     // time by the server's clock
	Micros   int64     `json:"micros"`
	Now      time.Time `json:"-"` // time of Seconds and Micros, or zero if the reply does not contain them
	Counters []int64   `json:"-"` // only from read.lua: first and last sequence of each period

	Sent, Received time.Time     `json:"-"` // times before and after the round trip, by this host's clock
	Earlier        error         `json:"-"` // failure of an earlier attempt that may have run, too; nil if none
	Unconfirmed    error         `json:"-"` // reason why replicas did not confirm the numbers, or nil
	offset, before time.Duration // new and previous offset of the server's clock; 0 if Now is zero
}

// Found is the state of a period for which a grant is needed. A grant with a block is invalid once this state has
// changed.
type Found struct {
	Entered string `json:"entered"`        // period entered, "" if none
	ID      string `json:"id"`             // replication ID of the server
	Ceiling int64  `json:"ceiling,string"` // last sequence reserved for the period entered, or -1 if none
	Above   int64  `json:"above,string"`   // sequence above which a block must lie
	Exists  bool   `json:"exists"`         // whether the counter exists
	Starts  bool   `json:"starts"`         // whether a block must also lie above the caller's Base
	Lost    bool   `json:"lost"`           // whether the counter once existed, and is now missing or too low
	Mixed   bool   `json:"mixed"`          // whether processes without a ledger may issue numbers in the period
	Intact  bool   `json:"intact"`         // ledger only: whether the counter is unchanged since the last number issued
	Closed  bool   `json:"closed"`         // whether the period must be opened or entered
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

// decode parses a reply that is a JSON object. The Status is "" if text is not such a reply. r is allocated on the
// heap, so decode is not part of digest, which would then always allocate.
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

// A Refusal is the reason why no numbers were issued. It contains only data. The root package formats the message.
type Refusal struct {
	Reply     // reply whose Status is the reason
	Type      string
	Span      *Target
	HighWater int64 // largest sequence that this process has returned in the period, or 0 if none
}

func (r *Refusal) Error() string { return "serial: " + string(r.Status) }

// EnteredPeriod returns the period in Detail. It is zero if Detail cannot be parsed.
func (r *Refusal) EnteredPeriod() Recorded { return parseAnswer(r.Detail).Period }
