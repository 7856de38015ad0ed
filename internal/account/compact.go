package account

import (
	"bytes"
	"encoding/binary"
	"hash/maphash"
	"time"
)

// This file keeps many explanations in little memory.

// An interval is an explanation of first to last, in 40 bytes.
type interval struct {
	first, last int64
	seconds     int64  // when it was given, Unix seconds
	nanoseconds int32  // the rest of that
	text        uint32 // its place in texts
	rank        uint32 // the order in which it was added; with person set, somebody gave it
	unused      bool
	possible    bool
}

const person = 1 << 31

// time returns when the explanation was given, in UTC.
func (i *interval) time() time.Time { return time.Unix(i.seconds, int64(i.nanoseconds)).UTC() }

// intervals are a list that is not copied when it grows. They are sorted by their first sequences.
type intervals [][]interval

const chunk = 4096 // intervals in each part but the last

func (v intervals) at(i int) *interval { return &v[i/chunk][i%chunk] }

func (v intervals) Len() int {
	if len(v) == 0 {
		return 0
	}
	return (len(v)-1)*chunk + len(v[len(v)-1])
}

func (v intervals) Less(a, b int) bool { return v.at(a).first < v.at(b).first }

func (v intervals) Swap(a, b int) { *v.at(a), *v.at(b) = *v.at(b), *v.at(a) }

func (v *intervals) add(i interval) {
	n := v.Len() / chunk
	if n == len(*v) {
		*v = append(*v, make([]interval, 0, min(n, 1)*chunk)) // most accounts have few
	}
	(*v)[n] = append((*v)[n], i)
}

// texts are kept in as many bytes as they have, and those that come often only once. They are shorter than a page.
type texts struct {
	pages [][]byte
	seed  maphash.Seed
	seen  []uint32 // place + 1 of the last text of each hash
	next  []byte   // the text that is added
}

const (
	pageBits = 16 // of a place, which is an offset in a page
	hashes   = 4096
)

// add returns the place of a text, which is the parts with their lengths.
func (t *texts) add(parts ...string) uint32 {
	if t.seen == nil {
		t.seed, t.seen = maphash.MakeSeed(), make([]uint32, hashes)
	}
	t.next = t.next[:0]
	for _, part := range parts {
		t.next = append(binary.AppendUvarint(t.next, uint64(len(part))), part...)
	}
	seen := &t.seen[maphash.Bytes(t.seed, t.next)%hashes]
	if *seen > 0 && bytes.HasPrefix(t.bytes(*seen-1), t.next) {
		return *seen - 1
	}
	n := len(t.pages) - 1
	if n < 0 || len(t.pages[n])+len(t.next) > 1<<pageBits {
		n++
		t.pages = append(t.pages, make([]byte, 0, min(n, 1)<<pageBits))
	}
	*seen = uint32(n<<pageBits|len(t.pages[n])) + 1
	t.pages[n] = append(t.pages[n], t.next...)
	return *seen - 1
}

// bytes begin with the text of a place.
func (t *texts) bytes(place uint32) []byte { return t.pages[place>>pageBits][place&(1<<pageBits-1):] }

// of returns the two parts of the text of a place.
func (t *texts) of(place uint32) (by, reason string) {
	rest := t.bytes(place)
	for _, part := range []*string{&by, &reason} {
		n, size := binary.Uvarint(rest)
		*part, rest = string(rest[size:size+int(n)]), rest[size+int(n):]
	}
	return by, reason
}
