package account

import (
	"errors"
	"iter"
	"maps"
	"math/bits"
	"slices"
)

const (
	maxBytes  = 256 << 20  // memory of a Tally, or of all accounts of a Book, in bytes
	pageSize  = 4096       // number of integers in a page
	pageBytes = 1<<10 + 64 // memory of a page in bytes, with its share of the map
	moreBytes = 64         // memory of an entry in Tally.more, in bytes
)

// ErrFull means that a [Tally] or a [Book] would need more than 256 MB.
var ErrFull = errors.New("the sequences are spread so widely that an account of them takes more than 256 MB")

// A budget counts the bytes in use.
type budget struct{ bytes int }

// take counts n more bytes, unless this would exceed maxBytes. It reports whether it has counted them.
func (b *budget) take(n int) bool {
	fits := b.bytes+n <= maxBytes
	if fits {
		b.bytes += n
	}
	return fits
}

// A page contains two bits for each of its integers: whether the integer was added, and whether it was added again.
type page struct{ once, again [pageSize / 64]uint64 }

// A Tally notes which integers were added, and which of them were added more than once. Integers must be at least 0,
// and may be added in any order. A Tally has two bits for each integer, in pages that are allocated when they are
// needed, so wide gaps between the integers take no memory. A Tally is not safe for concurrent use.
type Tally struct {
	exact  int64           // largest integer whose occurrences after the second are not counted
	pages  map[int64]*page // pages by integer / pageSize
	more   map[int64]int64 // number of occurrences after the second, by integer; only for integers above exact
	last   *page           // page of the latest integer
	index  int64           // key of last in pages
	memory *budget         // shared by the tallies of a Book
}

// NewTally returns an empty Tally. It counts every occurrence of integers above the limit exact. For other integers, it
// only notes whether there was more than one occurrence.
func NewTally(exact int64) *Tally { return newTally(exact, &budget{}) }

func newTally(exact int64, memory *budget) *Tally {
	return &Tally{exact: exact, pages: map[int64]*page{}, more: map[int64]int64{}, index: -1, memory: memory}
}

// Add counts n, and returns how often n was added before: 0, 1, or 2 for more than once. The only error is [ErrFull].
// In this case, n is not counted.
func (t *Tally) Add(n int64) (before int, err error) {
	if i := n / pageSize; i != t.index {
		p := t.pages[i]
		if p == nil {
			if !t.memory.take(pageBytes) {
				return 0, ErrFull
			}
			p = new(page)
			t.pages[i] = p
		}
		t.last, t.index = p, i
	}
	p, word, bit := t.last, n%pageSize/64, uint64(1)<<(n%64)
	switch {
	case p.once[word]&bit == 0:
		p.once[word] |= bit
		return 0, nil
	case p.again[word]&bit == 0:
		p.again[word] |= bit
		return 1, nil
	case n > t.exact:
		if t.more[n] == 0 && !t.memory.take(moreBytes) {
			return 0, ErrFull
		}
		t.more[n]++
	}
	return 2, nil
}

// times returns how often n was added: 0, 1, or 2 for more than once.
func (t *Tally) times(n int64) int {
	p, word, bit := t.pages[n/pageSize], n%pageSize/64, n%64
	if p == nil {
		return 0
	}
	return int(p.once[word]>>bit&1 + p.again[word]>>bit&1)
}

// All yields the integers that were added, in ascending order, each with the number of its occurrences. For integers up
// to the limit exact, 2 means more than once.
func (t *Tally) All() iter.Seq2[int64, int64] {
	return func(yield func(n, times int64) bool) {
		for _, i := range slices.Sorted(maps.Keys(t.pages)) {
			p := t.pages[i]
			for w, word := range p.once {
				for ; word != 0; word &= word - 1 {
					bit := bits.TrailingZeros64(word)
					n, times := i*pageSize+int64(w*64+bit), int64(1)
					if p.again[w]>>bit&1 == 1 {
						times = 2 + t.more[n]
					}
					if !yield(n, times) {
						return
					}
				}
			}
		}
	}
}
