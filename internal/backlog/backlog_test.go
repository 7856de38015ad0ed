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

// play runs steps, which are separated by commas, on a queue that has room for some entries. "add KEY FIRST LAST" adds an
// entry, whose At is the number of entries added so far, in seconds. "loose" or "gathers" may follow. "next WANT" and
// "hurry WANT" require that the next entry, "KEY FIRST-LAST xMERGED -DROPPED @AT", or the time to wait, begins with
// WANT. "sleep DURATION" waits.
func play(t *testing.T, room int, steps string) {
	t.Helper()
	q, added := backlog.New[string](room, time.Minute), int64(0)
	for step := range strings.SplitSeq(steps, ",") {
		verb, rest, _ := strings.Cut(strings.TrimSpace(step), " ")
		switch verb {
		case "add":
			added++
			e := backlog.Entry[string]{At: time.Unix(added, 0), Loose: strings.HasSuffix(rest, "loose"),
				Gathers: strings.HasSuffix(rest, "gathers")}
			_, _ = fmt.Sscan(rest, &e.Key, &e.First, &e.Last)
			q.Add(e)
		case "sleep":
			d, err := time.ParseDuration(rest)
			require.NoError(t, err)
			time.Sleep(d)
		default:
			e, wait := q.Next(verb == "hurry")
			got := wait.String()
			if e != nil {
				got = fmt.Sprintf("%s %d-%d x%d -%d @%d", e.Key, e.First, e.Last, e.Merged, e.Dropped, e.At.Unix())
			}
			require.True(t, strings.HasPrefix(got+" ", rest+" "), "%s: got %s", step, got)
		}
	}
}

// A queue with room for two merges entries that touch or overlap, and drops what it has no room for.
func TestQueue(t *testing.T) {
	for _, steps := range []string{
		"add a 10 19, add b 10 19, hurry a 10-19 x1 -0 @1, hurry b 10-19 x1 -0 @2",
		"add a 10 19, add b 10 19, add a 20 22, hurry a 10-22 x2 -0 @1, hurry b 10-19 x1 -0 @2",
		"add a 10 19, add b 10 19, add b 8 9, hurry a 10-19 x1 -0 @1, hurry b 8-19 x2 -0 @2",
		"add a 10 19, add b 10 19, add b 12 25, hurry a 10-19 x1 -0 @1, hurry b 10-25 x2 -0 @2",
		"add a 10 19, add b 10 19, add a 21 22, hurry a 10-19 x1 -1 @1, hurry b 10-19 x1 -0 @2",
		"add a 10 19, add b 10 19, add a 7 8, hurry a 10-19 x1 -1 @1, hurry b 10-19 x1 -0 @2",
		"add a 10 19, add b 10 19, add a 30 30 loose, hurry a 10-30 x2 -0 @1, hurry b 10-19 x1 -0 @2",
		"add a 1 1, add b 1 1, add c 2 2 loose, add c 2 2, hurry a 1-1 x1 -2 @1, hurry b 1-1 x1 -0 @2",
		"add a 1 1, add a 5 5, add a 6 6, add a 2 2, hurry a 1-1 x1 -1 @1, hurry a 5-6 x2 -0 @2",
		"add a 5 9 gathers, add b 7 9, add a 3 4 gathers, add a 12 13 gathers, add c 1 1 gathers, add a 4 4 gathers, " +
			"hurry a 3-13 x4 -1 @1, hurry b 7-9 x1 -0 @2",
		// An entry that has left the queue is not merged.
		"add a 10 19, add b 10 19, next a 10-19 x1 -0 @1, add c 1 1, add a 20 20, next b 10-19 x1 -1 @2, next c 1-1 x1",
	} {
		play(t, 2, steps+", hurry 0s")
	}
}

// A dropped entry counts for all that it had merged. Rest removes nothing.
func TestRest(t *testing.T) {
	q := backlog.New[string](2, 0)
	for _, e := range []backlog.Entry[string]{{Key: "b"}, {Key: "c"}, {Key: "a"}, {Key: "d", Merged: 3}} {
		q.Add(e)
	}
	rest, dropped := q.Rest()
	require.Len(t, rest, 2)
	require.Equal(t, []any{"b", "c", 4}, []any{rest[0].Key, rest[1].Key, dropped})
	e, _ := q.Next(false)
	require.Equal(t, []any{"b", 4}, []any{e.Key, e.Dropped})
}

// Entries that gather leave the queue a pace after the previous one with their key, or at once if hurry is set. They
// delay no other entry.
func TestPace(t *testing.T) {
	race.Bubble(t, func(t *testing.T) {
		play(t, 9, "add a 1 1 gathers, next a 1-1, next 0s, sleep 20s, add a 2 2 gathers, next 40s, "+
			"add b 1 1 gathers, next b 1-1, add b 2 2 gathers, next 40s, add a 3 3 gathers, next 40s, "+
			"add c 5 5, next c 5-5, add c 6 6, next c 6-6, sleep 39.999999999s, next 1ns, sleep 1ns, next a 2-3, next 20s, "+
			"hurry b 2-2, add b 3 3 gathers, next 1m0s")
	})
}
