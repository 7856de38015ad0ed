// Package tally counts which integers of a wide range have come, and which of them more than once, in bounded memory: two bits for
// each in pages that are made when they are touched. So the order does not matter, and gaps cost nothing.
package tally

import (
	"errors"
	"iter"
	"maps"
	"math/bits"
	"slices"
)

const (
	most      = 256 << 20 // bytes that a Tally may take
	pageSize  = 4096      // integers of a page
	pageBytes = 1<<10 + 64
	moreBytes = 64 // of an integer whose occurrences are counted
)

// ErrFull means that a [Tally] would take more than 256 MB.
var ErrFull = errors.New("the sequences are spread so widely that an account of them takes more than 256 MB")

// A page holds two bits for each of its integers.
type page struct{ once, again [pageSize / 64]uint64 }

// A Tally is a set of integers, each of which is at least 0, and of those that came more than once. One goroutine uses it at a time.
type Tally struct {
	exact int64           // above it, occurrences are counted to the end
	pages map[int64]*page // by integer / pageSize
	more  map[int64]int64 // occurrences after the second, of integers above exact
	bytes int             // of the pages and of more, with what the maps take for them
	last  *page           // the one used last
	index int64           // its index
}

// New returns a Tally that holds nothing. It counts all occurrences of the integers above exact. Of the others it keeps only whether
// there was more than one.
func New(exact int64) *Tally {
	return &Tally{exact: exact, pages: map[int64]*page{}, more: map[int64]int64{}, index: -1}
}

// Add counts n, and returns how often it came before: 0, 1, or 2 for more than once. With [ErrFull], n was not counted.
func (t *Tally) Add(n int64) (before int, err error) {
	p, word, bit := t.last, n%pageSize/64, uint64(1)<<(n%64)
	if i := n / pageSize; i != t.index {
		if p = t.pages[i]; p == nil {
			if t.bytes+pageBytes > most {
				return 0, ErrFull
			}
			p = new(page)
			t.pages[i] = p
			t.bytes += pageBytes
		}
		t.last, t.index = p, i
	}
	switch {
	case p.once[word]&bit == 0:
		p.once[word] |= bit
		return 0, nil
	case p.again[word]&bit == 0:
		p.again[word] |= bit
		return 1, nil
	case n > t.exact:
		if t.more[n] == 0 {
			if t.bytes+moreBytes > most {
				return 0, ErrFull
			}
			t.bytes += moreBytes
		}
		t.more[n]++
	}
	return 2, nil
}

// All yields the integers from one to another that came, in ascending order, and how often: for those that are not above exact, 2
// stands for more than once.
func (t *Tally) All(from, to int64) iter.Seq2[int64, int64] {
	return func(yield func(n, times int64) bool) {
		for _, i := range slices.Sorted(maps.Keys(t.pages)) {
			if p := t.pages[i]; from/pageSize <= i && i <= to/pageSize && !t.of(p, i, from, to, yield) {
				return
			}
		}
	}
}

// of is All for one page. It reports false if yield did.
func (t *Tally) of(p *page, index, from, to int64, yield func(n, times int64) bool) bool {
	for w, word := range p.once {
		for ; word != 0; word &= word - 1 {
			bit := bits.TrailingZeros64(word)
			n, times := index*pageSize+int64(w*64+bit), int64(1)
			if n < from || n > to {
				continue
			}
			if p.again[w]>>bit&1 == 1 {
				times = 2 + t.more[n]
			}
			if !yield(n, times) {
				return false
			}
		}
	}
	return true
}

// Gaps yields the ranges from one integer to another of which none came, in ascending order.
func (t *Tally) Gaps(from, to int64) iter.Seq2[int64, int64] {
	return func(yield func(first, last int64) bool) {
		next := from
		for n := range t.All(from, to) {
			if n > next && !yield(next, n-1) {
				return
			}
			next = n + 1
		}
		if next <= to {
			yield(next, to)
		}
	}
}
