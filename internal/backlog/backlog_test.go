package backlog_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dailyserial/serial/internal/backlog"
	"github.com/dailyserial/serial/internal/race"
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

// gathering returns the entry as one that is always merged, and is due a minute after the previous one.
func gathering(e entry) entry {
	e.Gathers = true
	return e
}

// drain returns what is left in a queue, each entry as "key first-last xMERGED -DROPPED @second".
func drain(q *backlog.Queue[string]) (all []string) {
	for {
		e, _ := q.Next(true)
		if e == nil {
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
			[]string{"a 10-22 x2 -0 @1", "b 10-19 x1 -0 @2"}},
		"touches before": {func(q queue) { full(q); q.Add(at(3, "b", 8, 9)) },
			[]string{"a 10-19 x1 -0 @1", "b 8-19 x2 -0 @2"}},
		"overlaps": {func(q queue) { full(q); q.Add(at(3, "b", 12, 25)) },
			[]string{"a 10-19 x1 -0 @1", "b 10-25 x2 -0 @2"}},
		"a gap behind": {func(q queue) { full(q); q.Add(at(3, "a", 21, 22)) },
			[]string{"a 10-19 x1 -1 @1", "b 10-19 x1 -0 @2"}},
		"a gap before": {func(q queue) { full(q); q.Add(at(3, "a", 7, 8)) },
			[]string{"a 10-19 x1 -1 @1", "b 10-19 x1 -0 @2"}},
		"a loose one with a gap": {func(q queue) { full(q); q.Add(loose(at(3, "a", 30, 30))) },
			[]string{"a 10-30 x2 -0 @1", "b 10-19 x1 -0 @2"}},
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
		}, []string{"a 1-1 x1 -1 @1", "a 5-6 x2 -0 @2"}},
		"one that has left is not merged": {func(q queue) {
			full(q)
			_, _ = q.Next(false)
			q.Add(at(3, "c", 1, 1))
			q.Add(at(4, "a", 20, 20))
		}, []string{"b 10-19 x1 -1 @2", "c 1-1 x1 -0 @3"}},
		"gathering": {func(q queue) {
			q.Add(gathering(at(1, "a", 5, 9)))
			q.Add(at(2, "b", 7, 9))
			q.Add(gathering(at(3, "a", 3, 4)))
			q.Add(gathering(at(4, "a", 12, 13)))
			q.Add(gathering(at(5, "c", 1, 1)))
			q.Add(gathering(at(6, "a", 4, 4)))
		}, []string{"a 3-13 x4 -1 @1", "b 7-9 x1 -0 @2"}},
		"what is dropped counts all that it had merged": {func(q queue) {
			full(q)
			e := at(3, "c", 1, 1)
			e.Merged = 3
			q.Add(e)
		}, []string{"a 10-19 x1 -3 @1", "b 10-19 x1 -0 @2"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			q := backlog.New[string](2, time.Minute)
			row.do(q)
			require.Equal(t, row.want, drain(q))
		})
	}
}

func TestRest(t *testing.T) {
	t.Parallel()
	q := backlog.New[string](2, 0)
	q.Add(at(1, "b", 3, 4))
	q.Add(at(2, "a", 5, 6))
	q.Add(at(3, "c", 5, 6))
	rest, dropped := q.Rest()
	require.Len(t, rest, 2)
	require.Equal(t, []string{"b", "a"}, []string{rest[0].Key, rest[1].Key})
	require.Equal(t, 1, dropped)
	require.Len(t, drain(q), 2, "all stay")
}

// Entries that gather leave the queue a pace after the previous one with their key, unless there is a hurry. They hold
// no other entry up.
func TestPace(t *testing.T) {
	t.Parallel()
	race.Bubble(t, func(t *testing.T) {
		q := backlog.New[string](9, time.Minute)
		next := func(hurry bool) string {
			e, wait := q.Next(hurry)
			if e == nil {
				return wait.String()
			}
			require.Zero(t, wait)
			return fmt.Sprintf("%s %d-%d", e.Key, e.First, e.Last)
		}
		add := func(key string, seq int64) { q.Add(gathering(at(1, key, seq, seq))) }
		add("a", 1)
		require.Equal(t, "a 1-1", next(false))
		require.Equal(t, "0s", next(false))
		time.Sleep(20 * time.Second)
		add("a", 2)
		require.Equal(t, "40s", next(false))
		add("b", 1)
		require.Equal(t, "b 1-1", next(false))
		add("b", 2)
		require.Equal(t, "40s", next(false))
		add("a", 3)
		q.Add(at(1, "c", 5, 5))
		q.Add(at(1, "c", 6, 6))
		require.Equal(t, "c 5-5", next(false))
		require.Equal(t, "c 6-6", next(false))
		time.Sleep(40*time.Second - 1)
		require.Equal(t, "1ns", next(false))
		time.Sleep(time.Nanosecond)
		require.Equal(t, "a 2-3", next(false))
		require.Equal(t, "20s", next(false))
		require.Equal(t, "b 2-2", next(true))
		add("b", 3)
		require.Equal(t, "1m0s", next(false), "since it left in a hurry")
	})
}
