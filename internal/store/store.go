// Package store keeps the series of business types in Redis: the counter of each period, and the record of the period
// that a type has entered. It is the only place that knows keys, fields and the arguments of scripts. It knows nothing
// of templates and time zones, and makes no decision that the scripts in lua do not make.
//
// A [Request] is data. [Store.Command] makes a command of it, and [Read] makes a [Reply] of what the script answers.
package store

import (
	"fmt"
	"regexp"
	"strconv"
)

// MaxSeq is the largest possible sequence. A number in Lua is a double: from 16 digits on, replies would repeat.
const MaxSeq = 1e15 - 1

// A Store keeps the series of one key prefix.
type Store struct {
	prefix string
	limit  any    // the largest sequence of a period, an int64
	suffix string // of a period in the record: what its numbers share besides its bounds
	ledger bool   // numbers are set aside before they are issued
}

// New returns the Store of a key prefix. limit is the largest sequence of a period, at most [MaxSeq]. calendar is what
// its series are counted by, in letters, digits and spaces. print is the print mark, hexadecimal digits. With a ledger,
// numbers are set aside in it before they are issued.
func New(prefix string, limit int64, calendar, print string, ledger bool) *Store {
	suffix := " " + calendar + " #" + print
	if ledger {
		suffix += " ledger"
	}
	return &Store{prefix, limit, suffix, ledger}
}

// A Period is the span that one counter serves.
type Period struct {
	Label      string // its name in keys and in the record, such as "20211024"
	Start, End int64  // the first instant, and the first one after it, Unix seconds
	Calendar   string // what its series is counted by; set only in a period that was read
	Ledger     bool   // its numbers are set aside in a ledger; set only in a period that was read

	bounds                  string // as in the record, without the suffix
	text, from, to, expires any    // arguments: as in the record, when the date is printed, and when the counter expires
}

// NewPeriod returns the Period whose counter expires at an instant not before its end. The date is printed from one
// instant of it until another, which ends it. All instants are Unix seconds.
func (s *Store) NewPeriod(label string, start, end, from, to, expires int64) Period {
	bounds := fmt.Sprintf("%s %d %d", label, start, end)
	return Period{
		Label: label, Start: start, End: end,
		bounds: bounds, text: bounds + s.suffix, from: from, to: to, expires: expires,
	}
}

// A Series is the counter of one type in one period.
type Series struct {
	Type      string
	Period    *Period
	HighWater int64 // the greatest sequence of the period that this process has returned, 0 if none
	Keys      Keys
}

// Keys are the counter and the record of a Series, as arguments.
type Keys struct{ counter, record any }

// The keys of a type share its hash tag, and with it one Cluster slot.

// KeysOf makes the keys of a type and a period.
func (s *Store) KeysOf(typ string, p *Period) Keys {
	return Keys{s.CounterKey(typ, p.Label), s.RecordKey(typ)}
}

// RecordKey is the key of a type's record. It names the series in a ledger.
func (s *Store) RecordKey(typ string) string { return s.prefix + ":{" + typ + "}" }

// CounterKey is the key of a type's counter in the period of that label.
func (s *Store) CounterKey(typ, label string) string { return s.RecordKey(typ) + ":" + label }

// LockKey is the key of the lock under which that counter is made.
func (s *Store) LockKey(typ, label string) string { return s.CounterKey(typ, label) + ":lock" }

// RequestKey is the key of the answer to a request that may come again.
func (s *Store) RequestKey(typ, id string) string { return s.RecordKey(typ) + ":once:" + id }

// recorded is a period as the record has it, and perhaps the rest of an answer.
var recorded = regexp.MustCompile(`(?s)^(\S+) (-?\d{1,18}) (-?\d{1,18})(?: ([^#"]+) #[0-9a-f]+( ledger)?)?` +
	`(?: (".*") (\d{1,18}) ([0-9a-z]+))?$`)

// ParsePeriod reads a period as the record has it. The result has no arguments for scripts, and is zero if it cannot be
// read.
func ParsePeriod(text string) Period { return parseAnswer(text).Period }

// parseAnswer reads 'PERIOD "DATE" "TEMPLATE" SEQUENCE KEY'. 18 digits fit into an integer.
func parseAnswer(text string) *Answer {
	a := &Answer{Text: text}
	if m := recorded.FindStringSubmatch(text); m != nil {
		a.Period = Period{Label: m[1], Calendar: m[4], Ledger: m[5] != ""}
		a.Period.Start, _ = strconv.ParseInt(m[2], 10, 64)
		a.Period.End, _ = strconv.ParseInt(m[3], 10, 64)
		a.Printed, a.Key = m[6], m[8]
		a.Seq, _ = strconv.ParseInt(m[7], 10, 64)
	}
	return a
}
