package account

import (
	"cmp"
	"math"
	"slices"
	"sort"
)

// intervals are explanations in a compact form, of 32 bytes, and 24 more with a Count. One with a Count is a number of unit jobs,
// which are released at its first open sequence, and whose deadline is its last one. Each open sequence has room for one job.
//
// A set of jobs fits if, for all a and b, no more of them lie between a and b than there are open sequences. In a sweep over a, only
// the intervals from a on have to be compared. The nodes of a tree keep what is left for each b: its slack.
type intervals struct {
	list    chunks[interval] // in order of last
	quotas  chunks[quota]    // of those with a Count, in the same order; else empty
	byFirst []uint32         // indexes in list, in order of first

	nodes   []node // of a binary tree with its root at 1; the second half are leaves, which are blocks of the list
	weakest bool   // the nodes point to the weakest interval, not to the strongest
	now     int64  // intervals that begin later are not released
	next    int    // index in byFirst of the first that is not released
	from    int    // index in list of the first that has not ended
}

// An interval is an explanation of first to last.
type interval struct {
	first, last int64
	at          int64  // when it was given, as Unix time in nanoseconds; the least or greatest if its text has it
	text        uint32 // its place in texts
	rank        uint32 // by precedence: 1 is the strongest
}

// A quota says how many sequences an explanation with a Count explains.
type quota struct {
	count int64 // at most
	end   int64 // open sequences up to its last
	used  int64 // those that it explains; until they are chosen, the complement of the open sequences before its first
}

// A node is a summary of adjacent intervals.
type node struct {
	used  int64  // sequences that they explain
	slack int64  // the least end minus the sequences that they explain up to it
	key   uint32 // of the best of those that are released and explain something, or none
	best  uint32 // its index
}

const (
	block = 32 // intervals in a leaf
	none  = math.MaxUint32
)

var empty = node{slack: math.MaxInt64, key: none}

func (v *intervals) Len() int { return v.list.len() }

func (v *intervals) Less(a, b int) bool { return v.list.at(a).last < v.list.at(b).last }

func (v *intervals) Swap(a, b int) {
	i, k := v.list.at(a), v.list.at(b)
	*i, *k = *k, *i
	if len(v.quotas) > 0 {
		p, q := v.quotas.at(a), v.quotas.at(b)
		*p, *q = *q, *p
	}
}

// sort brings the intervals into their orders.
func (v *intervals) sort(stronger func(a, b *interval) int) {
	sort.Sort(v)
	v.byFirst = make([]uint32, v.Len())
	for i := range v.byFirst {
		v.byFirst[i] = uint32(i)
	}
	slices.SortFunc(v.byFirst, func(a, b uint32) int { return stronger(v.list.at(int(a)), v.list.at(int(b))) })
	for rank, i := range v.byFirst {
		v.list.at(int(i)).rank = uint32(rank) + 1
	}
	slices.SortFunc(v.byFirst, func(a, b uint32) int {
		return cmp.Compare(v.list.at(int(a)).first, v.list.at(int(b)).first)
	})
	leaves := 1
	for leaves*block < v.Len() {
		leaves *= 2
	}
	v.nodes = make([]node, 2*leaves)
}

// first returns the first sequence of the interval that is the nth by it.
func (v *intervals) first(n int) int64 { return v.list.at(int(v.byFirst[n])).first }

// start prepares a sweep over the sequences: ascending with nothing released, or descending with all released.
func (v *intervals) start(descending bool) {
	v.weakest, v.now, v.next, v.from = descending, 0, 0, 0
	if descending {
		v.now = math.MaxInt64
	}
	leaves := len(v.nodes) / 2
	for n := len(v.nodes) - 1; n > 0; n-- {
		if n >= leaves {
			v.nodes[n] = v.scan((n-leaves)*block, (n-leaves+1)*block)
		} else {
			v.nodes[n] = join(v.nodes[2*n], v.nodes[2*n+1])
		}
	}
}

// scan summarises the intervals from to to-1.
func (v *intervals) scan(from, to int) node {
	sum := empty
	for i := from; i < min(to, v.Len()); i++ {
		one := node{slack: math.MaxInt64, key: v.list.at(i).rank, best: uint32(i)}
		if v.weakest {
			one.key = ^one.key
		}
		idle := v.list.at(i).first > v.now
		if len(v.quotas) > 0 {
			q := v.quotas.at(i)
			one.used = max(0, q.used)
			one.slack = q.end - one.used
			idle = idle || one.used == 0
		}
		if idle {
			one.key = none
		}
		sum = join(sum, one)
	}
	return sum
}

// join summarises what a and b do.
func join(a, b node) node {
	sum := node{a.used + b.used, min(a.slack, b.slack-a.used), a.key, a.best}
	if b.key < a.key {
		sum.key, sum.best = b.key, b.best
	}
	return sum
}

// update has the tree know that an interval has changed.
func (v *intervals) update(i int) {
	n := len(v.nodes)/2 + i/block
	v.nodes[n] = v.scan(i/block*block, i/block*block+block)
	for n /= 2; n > 0; n /= 2 {
		v.nodes[n] = join(v.nodes[2*n], v.nodes[2*n+1])
	}
}

// summary summarises the intervals from to to-1.
func (v *intervals) summary(from, to int) node {
	return v.summaryIn(1, 0, len(v.nodes)/2*block, from, to)
}

func (v *intervals) summaryIn(n, low, high, from, to int) node {
	mid := (low + high) / 2
	switch {
	case from >= high || to <= low:
		return empty
	case from <= low && high <= to:
		return v.nodes[n]
	case high-low == block:
		return v.scan(max(low, from), min(high, to))
	}
	return join(v.summaryIn(2*n, low, mid, from, to), v.summaryIn(2*n+1, mid, high, from, to))
}

// slack returns how many more sequences before the end of any interval of from to to-1 can be explained, of the open ones from start on.
func (v *intervals) slack(from, to int, start int64) int64 {
	return v.summary(from, to).slack - v.summary(0, from).used - start
}

// full returns the first interval from from on before whose end all open sequences from start on are explained, or the last interval.
func (v *intervals) full(from int, start int64) int {
	level := start
	return min(v.fullIn(1, 0, len(v.nodes)/2*block, from, &level), v.Len()-1)
}

// fullIn adds to level what the intervals before explain.
func (v *intervals) fullIn(n, low, high, from int, level *int64) int {
	switch {
	case high <= from || low >= from && v.nodes[n].slack > *level:
		*level += v.nodes[n].used
		return math.MaxInt
	case high-low > block:
		mid := (low + high) / 2
		if i := v.fullIn(2*n, low, mid, from, level); i < math.MaxInt {
			return i
		}
		return v.fullIn(2*n+1, mid, high, from, level)
	}
	for i := low; i < min(high, v.Len()); i++ {
		q := v.quotas.at(i)
		if *level += max(0, q.used); i >= from && q.end <= *level {
			return i
		}
	}
	return math.MaxInt
}

// choose decides how many sequences each explanation with a Count explains: as many as possible in all, and, where that leaves a
// choice, more by a stronger one. It returns their number.
//
// In the sweep, from the last release to the first, each explanation gets what fits. If nothing does, it takes from the weakest of those
// that stand in its way, which are all that end before the first end where nothing is left.
func (v *intervals) choose() int64 {
	v.start(true)
	for _, i := range slices.Backward(v.byFirst) {
		at, strength := int(i), v.list.at(int(i)).rank
		q := v.quotas.at(at)
		start := ^q.used
		q.used = 0
		for need := min(q.count, q.end-start); need > 0; {
			n := min(need, v.slack(at, v.Len(), start))
			if n == 0 {
				weakest := v.summary(0, v.full(at, start)+1)
				if weakest.key == none || ^weakest.key <= strength {
					break
				}
				other := v.quotas.at(int(weakest.best))
				n = min(need, other.used)
				other.used -= n
				v.update(int(weakest.best))
				if fits := min(n, v.slack(at, v.Len(), start)); fits < n { // something between the ends is full now
					other.used += n - fits
					v.update(int(weakest.best))
					n = fits
				}
			}
			q.used += n
			need -= n
			v.update(at)
		}
	}
	return v.nodes[1].used
}

// release releases the intervals that begin at a sequence or before it. It returns the last sequence until which that stays so.
func (v *intervals) release(seq int64) int64 {
	for v.now = seq; v.next < v.Len() && v.first(v.next) <= seq; v.next++ {
		v.update(int(v.byFirst[v.next]))
	}
	if v.next == v.Len() {
		return math.MaxInt64
	}
	return v.first(v.next) - 1
}

// strongest returns the strongest interval that covers a sequence, or -1, and the last sequence until which it is that. Sequences are
// asked for in ascending order.
func (v *intervals) strongest(seq int64) (at int, until int64) {
	until = v.release(seq)
	for v.from < v.Len() && v.list.at(v.from).last < seq {
		v.from++
	}
	strongest := v.summary(v.from, v.Len())
	if strongest.key == none {
		return -1, until
	}
	return int(strongest.best), min(until, v.list.at(int(strongest.best)).last)
}

// assign returns the explanation of the first open sequences of a piece, or -1, and how many of them it explains: the strongest that
// leaves room for all others. open is the number of open sequences before the piece. Pieces are asked for in ascending order.
func (v *intervals) assign(piece Range, open int64) (at int, n int64) {
	n = min(piece.Last, v.release(piece.First)) - piece.First + 1
	for v.from < v.Len() && v.quotas.at(v.from).end <= open {
		v.from++
	}
	strongest := v.summary(0, v.full(v.from, open)+1)
	if strongest.key == none {
		return -1, n
	}
	at = int(strongest.best)
	q := v.quotas.at(at)
	n = min(n, q.used, v.slack(v.from, at, open))
	q.used -= n
	v.update(at)
	return at, n
}
