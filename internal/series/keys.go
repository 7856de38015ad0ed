package series

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/dailyserial/serial/internal/calendar"
)

// SharedType is the type that all types count as if they share a series. No valid type contains an asterisk.
const SharedType = "*"

// OtherType is the content that scripts report for a key whose value is of another type, such as a list.
const OtherType = "another type of key"

// since is part of every period in a record. A process of release 0.5.0 takes it for another calendar, and refuses the
// series.
const since = " 0.6"

// keys builds the keys of one prefix. All keys of a type have the same hash tag, and with it one Cluster slot.
type keys struct {
	prefix string
	shared bool // all types have one series
}

// countedAs returns the type that a type counts as: itself, or [SharedType].
func (k keys) countedAs(typ string) string {
	if k.shared {
		return SharedType
	}
	return typ
}

// RecordKey returns the key of a type's record. It names the series in a ledger.
func (k keys) RecordKey(typ string) string { return k.prefix + ":{" + k.countedAs(typ) + "}" }

// RequestKey returns the key of the answer to a request.
func (k keys) RequestKey(typ, id string) string { return k.RecordKey(typ) + ":once:" + id }

func (k keys) counter(typ, label string) string { return k.RecordKey(typ) + ":" + label }
func (k keys) lock(typ, label string) string    { return k.counter(typ, label) + ":lock" }

// A Recorded is a period as a record describes it.
type Recorded struct {
	calendar.Period
	Calendar string // name of the calendar of its series; "" if the record cannot be read
	Ledger   bool   // its numbers are reserved in a ledger
}

// An Answer is the stored answer to a request. If its text cannot be parsed, the other fields are zero.
type Answer struct {
	Text    string
	Period  Recorded
	Printed string // date and template, quoted; with a shared counter, the type follows
	Key     string // fingerprint of the key that hides the sequence, or "plain"
	Seq     int64
}

// recorded matches a period as in the record, optionally with the rest of an answer.
var recorded = regexp.MustCompile(`(?s)^(\S+) (-?\d{1,18}) (-?\d{1,18})(?: ([^#"]+) #[0-9a-f]+( ledger)?)?` +
	`(?: (".*") (\d{1,18}) ([0-9a-z]+))?$`)

// parseAnswer parses 'PERIOD "DATE" "TEMPLATE" SEQUENCE KEY', or only a period. 18 digits fit into an int64.
func parseAnswer(text string) *Answer {
	a := &Answer{Text: text}
	if m := recorded.FindStringSubmatch(text); m != nil {
		a.Period = Recorded{calendar.Period{Label: m[1]}, strings.TrimSuffix(m[4], since), m[5] != ""}
		a.Period.Start, _ = strconv.ParseInt(m[2], 10, 64)
		a.Period.End, _ = strconv.ParseInt(m[3], 10, 64)
		a.Printed, a.Key = m[6], m[8]
		a.Seq, _ = strconv.ParseInt(m[7], 10, 64)
	}
	return a
}

// bounds returns a period without its settings, as the record has it in ahead.
func bounds(label string, start, end int64) string { return fmt.Sprintf("%s %d %d", label, start, end) }
