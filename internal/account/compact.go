package account

import (
	"bytes"
	"encoding/binary"
	"hash/maphash"
	"time"
)

// chunks are a list that is not copied when it grows.
type chunks[T any] [][]T

const chunk = 4096 // items in each but the last

func (c chunks[T]) len() int {
	if len(c) == 0 {
		return 0
	}
	return (len(c)-1)*chunk + len(c[len(c)-1])
}

func (c chunks[T]) at(i int) *T { return &c[i/chunk][i%chunk] }

func (c *chunks[T]) add(item T) {
	n := len(*c)
	switch {
	case n == 0:
		*c = append(*c, nil)
	case len((*c)[n-1]) < chunk:
		n--
	default:
		*c = append(*c, make([]T, 0, chunk))
	}
	(*c)[n] = append((*c)[n], item)
}

// A text is the part of an explanation that others often have too.
type text struct {
	by, reason []byte
	unused     bool
	at         time.Time // if an interval cannot hold it, else zero
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

// add returns the place of a text.
func (t *texts) add(by, reason string, unused bool, at time.Time) uint32 {
	if t.seen == nil {
		t.seed, t.seen = maphash.MakeSeed(), make([]uint32, hashes)
	}
	flag := byte(0)
	if unused {
		flag = 1
	}
	t.next = append(t.next[:0], flag)
	for _, part := range []string{by, reason} {
		t.next = append(binary.AppendUvarint(t.next, uint64(len(part))), part...)
	}
	t.next = binary.AppendVarint(t.next, at.Unix()-time.Time{}.Unix())
	t.next = binary.AppendVarint(t.next, int64(at.Nanosecond()))

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

// of returns the text of a place.
func (t *texts) of(place uint32) (all text) {
	rest := t.bytes(place)
	all.unused, rest = rest[0] == 1, rest[1:]
	for _, part := range []*[]byte{&all.by, &all.reason} {
		n, size := binary.Uvarint(rest)
		*part, rest = rest[size:size+int(n)], rest[size+int(n):]
	}
	seconds, size := binary.Varint(rest)
	nanoseconds, _ := binary.Varint(rest[size:])
	all.at = time.Unix(seconds+time.Time{}.Unix(), nanoseconds).UTC()
	return all
}
