package serialpage

import (
	"iter"
	"strings"
	"time"

	"github.com/dailyserial/serial"
)

const (
	pageSize   = 4096   // sequences
	pageBytes  = 1088   // of memory, with its share of the map
	mostPages  = 30_000 // 122 million sequences in a row
	mostTexts  = 10_000 // of an audit
	entryBytes = 256    // of a text or an explanation
)

// uses are the sequences of a period that are stored. They say what became of a number that the lists of a report do
// not have.
type uses struct {
	series *Series
	name   string      // of the series
	starts []time.Time // of the period, by each of the series' schemes; zero where there is none
	plain  bool        // numbers of the series differ only by their sequence
	asked  int64       // sequence that is recorded even if there is no room; 0 if there is none

	pages map[int64]*usesPage // by sequence / pageSize
	texts map[int64]string    // first stored text of each sequence, unless it is what the page prints
	cut   bool                // there was no room for others
}

// A usesPage says which sequences are stored, and which more than once.
type usesPage struct{ once, again [pageSize / 64]uint64 }

func newUses(numbers printer, asked int64) *uses {
	s, p := numbers.series, numbers.period
	u := &uses{series: s, name: s.series(), starts: []time.Time{p.Start}, plain: numbers.dated, asked: asked,
		pages: map[int64]*usesPage{}, texts: map[int64]string{}}
	for _, e := range s.Earlier {
		start, _, ok := labelled(e, p)
		if !ok {
			start = time.Time{}
		}
		u.starts = append(u.starts, start)
	}
	return u
}

// record yields texts and records the numbers of the period among them.
func (u *uses) record(texts iter.Seq2[string, error]) iter.Seq2[string, error] {
	schemes := u.series.schemes()
	return func(yield func(string, error) bool) {
		for text, err := range texts {
			if err == nil {
				u.add(schemes, text)
			}
			if !yield(text, err) {
				return
			}
		}
	}
}

func (u *uses) add(schemes []*serial.Scheme, text string) {
	for i, scheme := range schemes {
		n, err := parseStored(scheme, text)
		if err != nil || !n.Start.Equal(u.starts[i]) || !u.series.has(n.Type, u.name) {
			continue
		}
		first := u.mark(n.Seq)
		if first && (i > 0 || !u.plain || n.Type != u.series.Type || trim(text) != text) {
			if len(u.texts) < mostTexts || n.Seq == u.asked {
				u.texts[n.Seq] = strings.Clone(text)
			} else {
				u.cut = true
			}
		}
		return
	}
}

// mark records a use of a sequence, and reports whether it is the first.
func (u *uses) mark(seq int64) (first bool) {
	p := u.pages[seq/pageSize]
	if p == nil {
		if len(u.pages) >= mostPages && seq != u.asked {
			u.cut = true
			return false
		}
		p = new(usesPage)
		u.pages[seq/pageSize] = p
	}
	word, bit := seq%pageSize/64, uint64(1)<<(seq%64)
	if p.once[word]&bit != 0 {
		p.again[word] |= bit
		return false
	}
	p.once[word] |= bit
	return true
}

// times returns how often a sequence is stored: 0, 1, or 2 for more than once.
func (u *uses) times(seq int64) int {
	p, word, bit := u.pages[seq/pageSize], seq%pageSize/64, uint64(1)<<(seq%64)
	switch {
	case p == nil || p.once[word]&bit == 0:
		return 0
	case p.again[word]&bit == 0:
		return 1
	}
	return 2
}

// stored returns the text with which a number is stored that a report shows as it was read.
func (u *uses) stored(n serial.Number) (text string, known bool) {
	printed := numberText(n)
	if text := u.texts[n.Seq]; trim(text) == printed {
		return text, true
	}
	return printed, true
}

// anyStored returns a text with which a number is stored that a report shows as the current scheme prints it.
func (u *uses) anyStored(n serial.Number) (text string, known bool) {
	if text, ok := u.texts[n.Seq]; ok {
		return text, true
	}
	return numberText(n), u.plain && !u.cut
}

// bytes is roughly the memory that an audit takes.
func (a *audit) bytes() int {
	return len(a.uses.pages)*pageBytes + (len(a.uses.texts)+len(a.read.certain)+len(a.read.possible))*entryBytes
}
