// Package store keeps the series of business types in Redis: the counter of each period, and the record that tells which
// period a type has entered. It is the only place that knows keys, fields and the arguments of scripts; it knows nothing
// of templates and time zones, and makes no decision that the scripts in lua do not make.
//
// A request is a struct, and so is its [Reply]. An error means that no reply came, or none that can be read; it leaves open
// whether the script ran.
package store

import (
	"fmt"

	"github.com/dailyserial/serial/internal/redisrun"
)

// A Node is a server that has keys.
type Node = redisrun.Node

// MaxSeq is the largest sequence there can be. A number in Lua is a double: from 16 digits on, replies would repeat.
const MaxSeq = 1e15 - 1

// A Store keeps the series of one key prefix.
type Store struct {
	runner *redisrun.Runner
	prefix string
	limit  any    // the largest sequence of a period, an int64
	ledger bool   // numbers are set aside before they are issued
	print  string // print mark, "" for none
}

// New returns the Store of a key prefix. limit is the largest sequence of a period, at most [MaxSeq]. With a ledger, numbers are
// set aside in it before they are issued. print tells apart how generators print numbers; it is empty or hexadecimal digits.
func New(runner *redisrun.Runner, prefix string, limit int64, ledger bool, print string) *Store {
	return &Store{runner, prefix, limit, ledger, print}
}

// A Period is the span that one counter serves.
type Period struct {
	Label      string // its name in keys and in the record, such as "20211024"
	Start, End int64  // the first instant, and the first one after it, Unix seconds

	text, from, to, expires any // arguments: as in the record, when the date is printed, and when the counter expires
}

// NewPeriod returns the Period whose counter expires at an instant that is not before its end. Numbers are issued from one instant
// of it to before another, for as long as they print the same date. All instants are Unix seconds.
func (s *Store) NewPeriod(label string, start, end, from, to, expires int64) Period {
	p := Period{Label: label, Start: start, End: end, from: from, to: to, expires: expires}
	text := p.bounds()
	if s.print != "" {
		text += " #" + s.print
	}
	if s.ledger {
		text += " ledger"
	}
	p.text = text
	return p
}

// bounds is the period as the record has it, but for what issues its numbers.
func (p *Period) bounds() string {
	return fmt.Sprintf("%s %d %d", p.Label, p.Start, p.End)
}

// A Series is the counter of one type in one period.
type Series struct {
	Type   string
	Period *Period
	Mark   int64 // the greatest sequence of the period that this process has returned, 0 if none
	Keys   Keys  // zero if they are not known yet
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

// RequestKey is the key of what a request was answered.
func (s *Store) RequestKey(typ, id string) string { return s.RecordKey(typ) + ":once:" + id }

// ParsePeriod reads a period as the record has it. It has no arguments for scripts.
func ParsePeriod(text string) (p Period, ok bool) {
	n, _ := fmt.Sscan(text, &p.Label, &p.Start, &p.End)
	return p, n == 3
}
