// Package store keeps the series of business types in Redis: the counter of each period, and the record of the period
// that a type has entered. Only this package knows keys, fields and script arguments. It does not know templates or
// time zones, and leaves all decisions to the scripts in lua.
//
// A [Request] is data. [Store.Command] turns it into a command, and [Read] turns the script's answer into a [Reply].
package store

import (
	"fmt"
	"regexp"
	"strconv"
)

// MaxSeq is the largest possible sequence. A number in Lua is a double: from 16 digits on, replies would repeat.
const MaxSeq = 1e15 - 1

// OtherType is the content that scripts report for a key whose value is of another type, such as a list.
const OtherType = "another type of key"

// A Store keeps the series of one key prefix.
type Store struct {
	prefix string
	limit  any    // largest sequence of a period, an int64
	suffix string // end of a period in the record: calendar, print mark and ledger
	ledger bool   // numbers are set aside before they are issued
	shared bool   // all types have one series
}

// SharedType is the name of the type that all types count as if they share a series. No type has an asterisk.
const SharedType = "*"

// New returns the Store of a key prefix. limit is the largest sequence of a period, at most [MaxSeq]. calendar names
// the calendar of its series, in letters, digits and spaces. print is the print mark, hexadecimal digits. With a
// ledger, numbers are set aside before they are issued. If shared, all types have one series.
func New(prefix string, limit int64, calendar, print string, ledger, shared bool) *Store {
	suffix := " " + calendar + " #" + print
	if ledger {
		suffix += " ledger"
	}
	return &Store{prefix, limit, suffix, ledger, shared}
}

// A Period is the span that one counter serves.
type Period struct {
	Label      string // name in keys and in the record, such as "20211024"
	Start, End int64  // first instant, and first instant after the period, Unix seconds
	Calendar   string // calendar of its series; set only in a parsed period
	Ledger     bool   // its numbers are set aside in a ledger; set only in a parsed period

	bounds                  string // bounds as in the record, without the suffix
	text, from, to, expires any    // script arguments: record text, span of the date, counter's expiry
}

// NewPeriod returns a Period. Its date is printed from from until just before to. Its counter expires at expires, which
// is at or after end. All instants are Unix seconds.
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
	HighWater int64 // greatest sequence that this process has returned in the period, 0 if none
	Keys      Keys
}

// Keys are the counter and the record of a Series, as arguments.
type Keys struct{ counter, record any }

// The keys of a type share its hash tag, and with it one Cluster slot.

// KeysOf returns the keys of a type and a period.
func (s *Store) KeysOf(typ string, p *Period) Keys {
	return Keys{s.CounterKey(typ, p.Label), s.RecordKey(typ)}
}

// CountedAs returns the type that a type counts as: itself, or [SharedType].
func (s *Store) CountedAs(typ string) string {
	if s.shared {
		return SharedType
	}
	return typ
}

// RecordKey returns the key of a type's record. It names the series in a ledger.
func (s *Store) RecordKey(typ string) string { return s.prefix + ":{" + s.CountedAs(typ) + "}" }

// CounterKey returns the key of a type's counter in the period with that label.
func (s *Store) CounterKey(typ, label string) string { return s.RecordKey(typ) + ":" + label }

// LockKey returns the key of the lock for creating that counter.
func (s *Store) LockKey(typ, label string) string { return s.CounterKey(typ, label) + ":lock" }

// RequestKey returns the key of the answer to a repeatable request.
func (s *Store) RequestKey(typ, id string) string { return s.RecordKey(typ) + ":once:" + id }

// recorded matches a period as in the record, optionally with the rest of an answer.
var recorded = regexp.MustCompile(`(?s)^(\S+) (-?\d{1,18}) (-?\d{1,18})(?: ([^#"]+) #[0-9a-f]+( ledger)?)?` +
	`(?: (".*") (\d{1,18}) ([0-9a-z]+))?$`)

// ParsePeriod parses a period from the record. The result has no script arguments, and is zero if the text is
// malformed.
func ParsePeriod(text string) Period { return parseAnswer(text).Period }

// parseAnswer parses an answer in the form that recall.lua describes. 18 digits fit into an int64.
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
