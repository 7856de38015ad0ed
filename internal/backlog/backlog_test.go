package backlog_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dailyserial/serial/internal/backlog"
)

type entry = backlog.Entry[string]

// at returns an entry of a second.
func at(second int64, key string, first, last int64) entry {
	return entry{Key: key, First: first, Last: last, At: time.Unix(second, 0)}
}

// loose returns the entry as one that need not touch what it is merged with.
func loose(e entry) entry {
	e.Loose = true
	return e
}

// drain returns what is left in a queue, each entry as "key first-last xMERGED -DROPPED @second".
func drain(q *backlog.Queue[string]) (all []string) {
	for {
		e, ok := q.Next()
		if !ok {
			return all
		}
		all = append(all, fmt.Sprintf("%s %d-%d x%d -%d @%d", e.Key, e.First, e.Last, e.Merged, e.Dropped, e.At.Unix()))
	}
}

func TestQueue(t *testing.T) {
	t.Parallel()
	type queue = *backlog.Queue[string]
	full := func(q queue) { // has room for two
		q.Add(at(1, "a", 10, 19))
		q.Add(at(2, "b", 10, 19))
	}
	for name, row := range map[string]struct {
		do   func(q queue)
		want []string
	}{
		"in order": {func(q queue) { full(q) }, []string{"a 10-19 x1 -0 @1", "b 10-19 x1 -0 @2"}},
		"touches behind": {func(q queue) { full(q); q.Add(at(3, "a", 20, 22)) },
			[]string{"a 10-22 x2 -0 @3", "b 10-19 x1 -0 @2"}},
		"touches before": {func(q queue) { full(q); q.Add(at(3, "b", 8, 9)) },
			[]string{"a 10-19 x1 -0 @1", "b 8-19 x2 -0 @3"}},
		"overlaps": {func(q queue) { full(q); q.Add(at(3, "b", 12, 25)) },
			[]string{"a 10-19 x1 -0 @1", "b 10-25 x2 -0 @3"}},
		"a gap behind": {func(q queue) { full(q); q.Add(at(3, "a", 21, 22)) },
			[]string{"a 10-19 x1 -1 @1", "b 10-19 x1 -0 @2"}},
		"a gap before": {func(q queue) { full(q); q.Add(at(3, "a", 7, 8)) },
			[]string{"a 10-19 x1 -1 @1", "b 10-19 x1 -0 @2"}},
		"a loose one with a gap": {func(q queue) { full(q); q.Add(loose(at(3, "a", 30, 30))) },
			[]string{"a 10-30 x2 -0 @3", "b 10-19 x1 -0 @2"}},
		"another key is dropped": {func(q queue) {
			full(q)
			q.Add(loose(at(3, "c", 20, 20)))
			q.Add(at(4, "c", 20, 20))
		}, []string{"a 10-19 x1 -2 @1", "b 10-19 x1 -0 @2"}},
		"the newest of a key is merged": {func(q queue) {
			q.Add(at(1, "a", 1, 1))
			q.Add(at(2, "a", 5, 5))
			q.Add(at(3, "a", 6, 6))
			q.Add(at(4, "a", 2, 2)) // touches the oldest only
		}, []string{"a 1-1 x1 -1 @1", "a 5-6 x2 -0 @3"}},
		"one that has left is not merged": {func(q queue) {
			full(q)
			_, _ = q.Next()
			q.Add(at(3, "c", 1, 1))
			q.Add(at(4, "a", 20, 20))
		}, []string{"b 10-19 x1 -1 @2", "c 1-1 x1 -0 @3"}},
		"gathering": {func(q queue) {
			q.Gather(loose(at(1, "a", 5, 9)))
			q.Gather(loose(at(2, "b", 7, 9)))
			q.Gather(loose(at(3, "a", 3, 9)))
			q.Gather(loose(at(4, "a", 4, 9)))
			q.Settle("b")
			q.Settle("b")
			q.Settle("a")
		}, []string{"b 7-9 x1 -0 @2", "a 3-9 x3 -0 @4"}},
		"all that gathers, in order": {func(q queue) {
			q.Gather(loose(at(2, "a", 1, 1)))
			q.Gather(loose(at(1, "b", 1, 1)))
			q.SettleAll()
		}, []string{"b 1-1 x1 -0 @1", "a 1-1 x1 -0 @2"}},
		"what gathers takes room": {func(q queue) {
			q.Add(at(1, "a", 1, 1))
			q.Gather(loose(at(2, "b", 1, 1)))
			q.Add(at(3, "c", 1, 1))
			q.Gather(loose(at(4, "d", 1, 1)))
			q.Gather(loose(at(5, "b", 2, 2)))
			q.SettleAll()
		}, []string{"a 1-1 x1 -2 @1", "b 1-2 x2 -0 @5"}},
		"no room to gather": {func(q queue) {
			full(q)
			q.Gather(loose(at(3, "b", 50, 60)))
		}, []string{"a 10-19 x1 -0 @1", "b 10-60 x2 -0 @3"}},
		"what is dropped counts all that it had merged": {func(q queue) {
			full(q)
			e := at(3, "c", 1, 1)
			e.Merged = 3
			q.Add(e)
		}, []string{"a 10-19 x1 -3 @1", "b 10-19 x1 -0 @2"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			q := backlog.New[string](2)
			row.do(q)
			require.Equal(t, row.want, drain(q))
		})
	}
	q := backlog.New[string](2)
	require.True(t, q.Gather(at(1, "a", 1, 1)))
	require.False(t, q.Gather(at(1, "a", 1, 1)))
	require.Equal(t, 1, q.Gathering())
	q.Add(at(2, "b", 3, 4))
	q.Add(at(3, "c", 5, 6))
	rest, dropped := q.Rest()
	require.Len(t, rest, 2)
	require.Equal(t, []string{"b", "a"}, []string{rest[0].Key, rest[1].Key}, "those that gather come last")
	require.Equal(t, 1, dropped)
	require.Len(t, drain(q), 1, "all stay")
}
