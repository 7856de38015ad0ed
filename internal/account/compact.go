package account

import (
	"bytes"
	"encoding/binary"
	"hash/maphash"
	"time"
)

// This file keeps many explanations in little memory.

// An interval is an explanation of the sequences from first to last, packed into 40 bytes.
type interval struct {
	first, last int64
	seconds     int64  // time when it was given, Unix seconds
	nanoseconds int32  // rest of that time
	text        uint32 // place of its text in texts
	rank        uint32 // position in the order added; with person set, a person gave it
	unused      bool
	possible    bool
}

const person = 1 << 31

// time returns when the explanation was given, in UTC.
func (i *interval) time() time.Time { return time.Unix(i.seconds, int64(i.nanoseconds)).UTC() }

// intervals are a list that grows without copying, sorted by first.
type intervals [][]interval

const chunk = 4096 // count of intervals in each part but the last

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
		*v = append(*v, make([]interval, 0, min(n, 1)*chunk)) // most accounts have few intervals
	}
	(*v)[n] = append((*v)[n], i)
}

// texts stores texts without overhead, and frequent ones only once. Each is shorter than a page.
type texts struct {
	pages [][]byte
	seed  maphash.Seed
	seen  []uint32 // place + 1 of the last text of each hash
	next  []byte   // text being added
}

const (
	pageBits = 16 // bits of a place that are the offset in a page
	hashes   = 4096
)

// add stores a text, made of the parts with their lengths, and returns its place.
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

// bytes returns the bytes from a place on, which begin with its text.
func (t *texts) bytes(place uint32) []byte { return t.pages[place>>pageBits][place&(1<<pageBits-1):] }

// of returns the two parts of the text at a place.
func (t *texts) of(place uint32) (by, reason string) {
	rest := t.bytes(place)
	for _, part := range []*string{&by, &reason} {
		n, size := binary.Uvarint(rest)
		*part, rest = string(rest[size:size+int(n)]), rest[size+int(n):]
	}
	return by, reason
}
