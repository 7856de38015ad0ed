package exchange

import (
	"errors"

	"github.com/dailyserial/serial/internal/store"
)

// A Refusal says why no numbers were issued. It is data, which the API puts into words.
type Refusal struct {
	store.Reply // its Status is the reason
	Type        string
	Period      *Period
	HighWater   int64 // greatest sequence that this process has returned in the period, 0 if none
}

// These are the statuses of a Refusal.
const (
	Exhausted  = store.Exhausted
	Lost       = store.Lost
	Future     = store.Future
	Conflict   = store.Conflict
	Calendar   = store.Calendar
	OtherPrint = store.OtherPrint
	Unknown    = store.Unknown

	Skewed      store.Status = "skewed"      // the server's clock is too far from this host's
	Unsteady    store.Status = "unsteady"    // the server's clock does not stay in one period
	Unconfirmed store.Status = "unconfirmed" // replicas did not confirm the number
	Over        store.Status = "over"        // the last day on which numbers are issued has ended
)

// OtherType is what a Refusal's Detail or Entered is if the key's value is of another type, such as a list.
const OtherType = store.OtherType

func (r *Refusal) Error() string { return "serial: " + string(r.Status) }

// A Period is the span that one counter serves.
type Period = store.Period

// EnteredPeriod returns the period entered, which is zero if the record cannot be read.
func (r *Refusal) EnteredPeriod() Period { return store.ParsePeriod(r.Entered) }

// IsRefused reports whether err is a Refusal of that status.
func IsRefused(err error, status store.Status) bool {
	r, ok := errors.AsType[*Refusal](err)
	return ok && r.Status == status
}
