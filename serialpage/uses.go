package serialpage

import (
	"cmp"
	"iter"
	"strings"
	"time"

	"github.com/dailyserial/serial"
)

const (
	pageSize         = 4096     // sequences
	pageBytes        = 1100     // of memory, with its share of the map
	kindsBytes       = 8 << 10  // of memory, for the kinds of a page
	mostBytes        = 32 << 20 // of memory, for the uses of an audit
	mostKinds        = 1 << 16
	explanationBytes = 256 // of memory
)

// uses are the sequences of a period that are stored, and the texts with which they are. They say what became of a
// number that is not in the lists of a report: ten million take 3 MB.
type uses struct {
	series *Series
	name   string      // of the series
	starts []time.Time // of the period, by each of the series' schemes; zero where there is none
	asked  int64       // sequence that is recorded even if there is no room; 0 if there is none

	pages map[int64]*usesPage // by sequence / pageSize
	kinds []kind
	ids   map[kind]uint16 // places of kinds in the list
	last  uint16          // kind used last
	bytes int             // of memory
	cut   bool            // there was no room for others
}

// A kind of texts is everything in a stored text but its sequence.
type kind struct {
	number        serial.Number // as its scheme parsed it, with the sequence 0
	before, after string
}

// A usesPage says which sequences are stored, which more than once, and of which kind the first text of each is.
type usesPage struct {
	once, again [pageSize / 64]uint64
	kind        uint16 // of all, unless kinds is not nil
	kinds       []uint16
}

func newUses(numbers printer, asked int64) *uses {
	s, p := numbers.series, numbers.period
	u := &uses{series: s, name: s.series(), starts: []time.Time{p.Start}, asked: asked, pages: map[int64]*usesPage{},
		ids: map[kind]uint16{}}
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

// add records a text for the first scheme that reads it as a number of the period, as an audit does.
func (u *uses) add(schemes []*serial.Scheme, text string) {
	for i, scheme := range schemes {
		n, before, after, err := parseStored(scheme, text)
		if err != nil || !n.Start.Equal(u.starts[i]) || !u.series.has(n.Type, u.name) {
			continue
		}
		seq := n.Seq
		n.Seq = 0
		if id, ok := u.id(kind{n, before, after}, seq == u.asked); ok {
			u.mark(seq, id)
		}
		return
	}
}

// id returns the place of a kind in the list, and false if there is no room.
func (u *uses) id(k kind, asked bool) (id uint16, ok bool) {
	if len(u.kinds) > 0 && u.kinds[u.last] == k {
		return u.last, true
	}
	id, ok = u.ids[k]
	switch {
	case ok:
	case len(u.kinds) < mostKinds-1 || asked && len(u.kinds) < mostKinds:
		k.before, k.after = strings.Clone(k.before), strings.Clone(k.after)
		id = uint16(len(u.kinds))
		u.kinds, u.ids[k] = append(u.kinds, k), id
	default:
		u.cut = true
		return 0, false
	}
	u.last = id
	return id, true
}

// mark records a use of a sequence by a text of a kind.
func (u *uses) mark(seq int64, kind uint16) {
	p := u.pages[seq/pageSize]
	if p == nil {
		if !u.room(seq, pageBytes) {
			return
		}
		p = &usesPage{kind: kind}
		u.pages[seq/pageSize] = p
	}
	word, bit := seq%pageSize/64, uint64(1)<<(seq%64)
	if p.once[word]&bit != 0 {
		p.again[word] |= bit
		return
	}
	p.once[word] |= bit
	if p.kinds == nil && kind != p.kind && u.room(seq, kindsBytes) {
		p.kinds = make([]uint16, pageSize)
		for i := range p.kinds {
			p.kinds[i] = p.kind
		}
	}
	if p.kinds != nil {
		p.kinds[seq%pageSize] = kind
	}
}

// room reports whether there is room for so many bytes more, as there always is for the sequence asked about.
func (u *uses) room(seq int64, bytes int) bool {
	if u.bytes+bytes > mostBytes && seq != u.asked {
		u.cut = true
		return false
	}
	u.bytes += bytes
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

// text returns the first text with which a sequence is stored, and false if that is not known.
func (u *uses) text(seq int64) (text string, ok bool) {
	k, ok := u.find(seq)
	return k.before + k.number.String() + k.after, ok
}

// find returns the kind of that text, with its sequence, and false if that is not known.
func (u *uses) find(seq int64) (k kind, ok bool) {
	if u.times(seq) == 0 || u.cut && seq != u.asked {
		return kind{}, false
	}
	p := u.pages[seq/pageSize]
	id := p.kind
	if p.kinds != nil {
		id = p.kinds[seq%pageSize]
	}
	k = u.kinds[id]
	k.number.Seq = seq
	return k, true
}

// printed prints numbers that are stored, without blanks around them. If it is not known how a number is stored and
// which date it has, printed prints its sequence in digits. asRead says that a report has them as they were read.
func (u *uses) printed(numbers []serial.Number, asRead bool) []string {
	all := []string{}
	for _, n := range numbers {
		if k, ok := u.find(n.Seq); ok && !asRead {
			n = k.number
		}
		all = append(all, cmp.Or(n.String(), decimal(n.Seq)))
	}
	return all
}

// stored returns the text with which a number is stored, and false if that is not known. If a report shows the number
// as it was read, the text differs at most in its blanks.
func (u *uses) stored(n serial.Number, asRead bool) (text string, ok bool) {
	text, ok = u.text(n.Seq)
	if printed := numberText(n); asRead && trim(text) != trim(printed) {
		return printed, true
	}
	return text, ok
}

// bytes is roughly the memory that an audit takes.
func (a *audit) bytes() int {
	return a.uses.bytes + (len(a.read.certain)+len(a.read.possible))*explanationBytes
}
