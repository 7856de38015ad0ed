package series

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/dailyserial/serial/internal/calendar"
)

// SharedType replaces the type in keys if all types share a series. No type contains an asterisk, so SharedType cannot
// be the type of a call.
const SharedType = "*"

// OtherType is what scripts report as the content of a key that has the wrong type, such as a list.
const OtherType = "another type of key"

// version is part of every period in a record. A process of release 0.5.0 takes it for part of the calendar's name, and
// therefore refuses the series.
const version = " 0.6"

// keys returns the Redis keys of one prefix. All keys of a series have the same hash tag, so they are in the same
// Cluster slot.
type keys struct {
	prefix string
	shared bool // whether all types share one series
}

// countedAs returns the type in the keys of a type's series: the type itself, or [SharedType] if all types share a
// series.
func (k keys) countedAs(typ string) string {
	if k.shared {
		return SharedType
	}
	return typ
}

// RecordKey returns the key of a type's record. It is also the name of the series in a ledger.
func (k keys) RecordKey(typ string) string { return k.prefix + ":{" + k.countedAs(typ) + "}" }

// RequestKey returns the key under which the answer to a request is stored.
func (k keys) RequestKey(typ, id string) string { return k.RecordKey(typ) + ":once:" + id }

// CounterKey returns the key of a type's counter in the period with the given label.
func (k keys) CounterKey(typ, label string) string { return k.RecordKey(typ) + ":" + label }

func (k keys) lock(typ, label string) string { return k.CounterKey(typ, label) + ":lock" }

// A Recorded is a period as it is stored in a record.
type Recorded struct {
	calendar.Period
	Calendar string // name of the calendar of the series, or "" if the record cannot be parsed
	Ledger   bool   // whether the numbers of the period are reserved in a ledger
}

// An Answer is the stored answer to a request. If Text cannot be parsed, the other fields are zero.
type Answer struct {
	Text    string
	Period  Recorded
	Printed string // quoted date and template, followed by the quoted type if all types share a series
	Key     string // fingerprint of the key that hides the sequence, or "plain" if it is not hidden
	Seq     int64
}

// recorded matches a period in the form of a record, which may be followed by the rest of an answer.
var recorded = regexp.MustCompile(`(?s)^(\S+) (-?\d{1,18}) (-?\d{1,18})(?: ([^#"]+) #[0-9a-f]+( ledger)?)?` +
	`(?: (".*") (\d{1,18}) ([0-9a-z]+))?$`)

// parseAnswer parses 'PERIOD "DATE" "TEMPLATE" SEQUENCE KEY' or only a period. It accepts integers of up to 18 digits,
// which fit into an int64.
func parseAnswer(text string) *Answer {
	a := &Answer{Text: text}
	if m := recorded.FindStringSubmatch(text); m != nil {
		a.Period = Recorded{calendar.Period{Label: m[1]}, strings.TrimSuffix(m[4], version), m[5] != ""}
		a.Period.Start, _ = strconv.ParseInt(m[2], 10, 64)
		a.Period.End, _ = strconv.ParseInt(m[3], 10, 64)
		a.Printed, a.Key = m[6], m[8]
		a.Seq, _ = strconv.ParseInt(m[7], 10, 64)
	}
	return a
}

// bounds returns a period in the form of the field "ahead" of a record, which contains no settings.
func bounds(label string, start, end int64) string { return fmt.Sprintf("%s %d %d", label, start, end) }
