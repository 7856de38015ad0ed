// Package schemes lets the modules beside package serial, such as gapless, see what of a serial.Scheme is not for its users.
package schemes

import "time"

// Inside is what a Scheme keeps to itself. The modules beside package serial may be of an older version: only add to it.
type Inside struct {
	Prefix    string // of keys
	PrintMark string // of all that could make two processes print different sequences alike; "" for templates of version 0.1.0
	CheckType func(typ string) error
	// At is the part of the period of an instant in which the same date is printed. Its error says that the template cannot print
	// that date.
	At func(t time.Time) (Stretch, error)
}

// A Stretch is a part of a period. All instants are Unix seconds.
type Stretch struct {
	Label      string // of the period
	Start, End int64  // of the period
	From, To   int64  // of the part
}

// Contains reports whether t lies in the part.
func (s Stretch) Contains(t time.Time) bool { return s.From <= t.Unix() && t.Unix() < s.To }

// Of returns the inside of a *serial.Scheme, an empty one of an empty Scheme. Package serial sets it, and its type stays.
var Of func(scheme any) Inside
