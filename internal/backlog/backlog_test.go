package backlog_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dailyserial/serial/internal/backlog"
	"github.com/dailyserial/serial/internal/race"
)

// add adds entries to q. Each is "KEY FIRST LAST", followed by "loose" or "gathers" if it is; At is the position in
// seconds.
func add(q *backlog.Queue[string], entries ...string) {
	for i, text := range entries {
		e := backlog.Entry[string]{At: time.Unix(int64(1+i), 0),
			Loose: strings.HasSuffix(text, "loose"), Gathers: strings.HasSuffix(text, "gathers")}
		_, _ = fmt.Sscan(text, &e.Key, &e.First, &e.Last)
		q.Add(e)
	}
}

// next returns the next entry as "KEY FIRST-LAST xMERGED -DROPPED @AT", or how long to wait.
func next(q *backlog.Queue[string], hurry bool) string {
	e, wait := q.Next(hurry)
	if e == nil {
		return wait.String()
	}
	return fmt.Sprintf("%s %d-%d x%d -%d @%d", e.Key, e.First, e.Last, e.Merged, e.Dropped, e.At.Unix())
}

// Entries are added to a queue that has room for two.
func TestQueue(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct{ add, want string }{
		"in order":                    {"a 10 19, b 10 19", "a 10-19 x1 -0 @1, b 10-19 x1 -0 @2"},
		"touches behind":              {"a 10 19, b 10 19, a 20 22", "a 10-22 x2 -0 @1, b 10-19 x1 -0 @2"},
		"touches before":              {"a 10 19, b 10 19, b 8 9", "a 10-19 x1 -0 @1, b 8-19 x2 -0 @2"},
		"overlaps":                    {"a 10 19, b 10 19, b 12 25", "a 10-19 x1 -0 @1, b 10-25 x2 -0 @2"},
		"gap behind":                  {"a 10 19, b 10 19, a 21 22", "a 10-19 x1 -1 @1, b 10-19 x1 -0 @2"},
		"gap before":                  {"a 10 19, b 10 19, a 7 8", "a 10-19 x1 -1 @1, b 10-19 x1 -0 @2"},
		"loose with a gap":            {"a 10 19, b 10 19, a 30 30 loose", "a 10-30 x2 -0 @1, b 10-19 x1 -0 @2"},
		"another key":                 {"a 10 19, b 10 19, c 20 20 loose, c 20 20", "a 10-19 x1 -2 @1, b 10-19 x1 -0 @2"},
		"touches an older entry only": {"a 1 1, a 5 5, a 6 6, a 2 2", "a 1-1 x1 -1 @1, a 5-6 x2 -0 @2"},
		"gathers": {"a 5 9 gathers, b 7 9, a 3 4 gathers, a 12 13 gathers, c 1 1 gathers, a 4 4 gathers",
			"a 3-13 x4 -1 @1, b 7-9 x1 -0 @2"},
	} {
		q := backlog.New[string](2, time.Minute)
		add(q, strings.Split(row.add, ", ")...)
		require.Equal(t, row.want, next(q, true)+", "+next(q, true), name)
		require.Equal(t, "0s", next(q, true), name)
	}
}

// An entry that has left the queue is not merged, and a dropped entry counts for all that it had merged. Rest removes
// nothing.
func TestRest(t *testing.T) {
	t.Parallel()
	q := backlog.New[string](2, 0)
	add(q, "a 10 19", "b 10 19")
	require.Equal(t, "a 10-19 x1 -0 @1", next(q, false))
	add(q, "c 1 1", "a 20 20")
	q.Add(backlog.Entry[string]{Key: "d", Merged: 3})
	rest, dropped := q.Rest()
	require.Len(t, rest, 2)
	require.Equal(t, []string{"b", "c"}, []string{rest[0].Key, rest[1].Key})
	require.Equal(t, 4, dropped)
	require.Equal(t, "b 10-19 x1 -4 @2", next(q, false))
	require.Equal(t, "c 1-1 x1 -0 @1", next(q, false))
}

// Entries that gather leave the queue a pace after the previous one with their key, or at once if hurry is set. They
// delay no other entry.
func TestPace(t *testing.T) {
	t.Parallel()
	race.Bubble(t, func(t *testing.T) {
		q := backlog.New[string](9, time.Minute)
		for i, step := range []struct {
			add   string
			want  string // before or after the wait
			wait  time.Duration
			hurry bool
		}{
			{add: "a 1 1 gathers", want: "a 1-1"},
			{want: "0s", wait: 20 * time.Second},
			{add: "a 2 2 gathers", want: "40s"},
			{add: "b 1 1 gathers", want: "b 1-1"},
			{add: "b 2 2 gathers", want: "40s"},
			{add: "a 3 3 gathers", want: "40s"},
			{add: "c 5 5", want: "c 5-5"},
			{add: "c 6 6", want: "c 6-6", wait: 40*time.Second - 1},
			{want: "1ns", wait: 1},
			{want: "a 2-3"},
			{want: "20s"},
			{want: "b 2-2", hurry: true},
			{add: "b 3 3 gathers", want: "1m0s"},
		} {
			if step.add != "" {
				add(q, step.add)
			}
			require.Equal(t, step.want, strings.Split(next(q, step.hurry), " x")[0], "step %d", i)
			time.Sleep(step.wait)
		}
	})
}
