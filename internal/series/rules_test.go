package series

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dailyserial/serial/internal/race"
	"github.com/dailyserial/serial/internal/redistest"
	redismemory "github.com/dailyserial/serial/internal/redistest/memory"
)

// Processes with different settings use a series. Random events happen to it, and [fixture.run] checks each run of
// serial.lua. The answers of the floors, the ledger and the operators are correct. An answer from before a loss is not
// used after it, because a grant is only valid for eight seconds.
func TestHistories(t *testing.T) {
	random, seen := redistest.Random(t), map[string]int{}
	settings := []string{"base 2", "floor, dayStart 6h", "mark bb, base 4", "base 2, floor, limit 3", "ledger",
		"ledger, base 4, dayStart 6h", "mark bb, ledger, floor, limit 3"}
	events := []string{"next", "next", "next", "next", "next", "next", "meanwhile next; meanwhile next; meanwhile next",
		"take 3", "raise", "takeover", "prepare", "grant EOF, success; next", "repeat", "repeat", "restart",
		"delete; sleep 9s", "delete; counter abc; sleep 9s", "clock 24h", "clock 72h", "clock 0s",
		"at 23:59:59", "at 23:59:59; sleep 1s", "sleep 2h", "sleep 7h", "sleep 13h"}
	histories := 50
	switch {
	case testing.Short():
		histories = 5
	case redistest.Long() && !race.Enabled:
		histories = 500
	}
	for range histories {
		inBubble(t, "anySkew", func(x *fixture) {
			restart := redismemory.AddReplicationID(x.redis.Miniredis)
			var processes []*fixture
			var log []string
			x.t.Cleanup(func() {
				if x.t.Failed() {
					x.t.Log(strings.Join(log, "\n"))
				}
			})
			random.Shuffle(len(settings), func(i, j int) { settings[i], settings[j] = settings[j], settings[i] })
			for _, s := range settings {
				processes = append(processes, x.process(x.t, s+", anySkew"))
			}
			record, exists := x.RecordKey("IS"), false
			for range 80 {
				p := processes[random.IntN(2)*random.IntN(len(processes))] // the first one causes most of the events
				event := events[random.IntN(len(events))]
				if log = append(log, p.settings+": "+event); event == "restart" {
					restart()
				} else {
					p.play(event)
				}
				x.setClock()
				if exists && !x.redis.Exists(record) { // it has expired, because nothing was issued for a week
					break
				}
				exists = x.redis.Exists(record)
			}
			x.all.Wait()
			for reply, n := range x.replies {
				seen[reply] += n
			}
		})
	}
	t.Log(seen)
	for _, reply := range []string{"issued", "issued raise", "issued takeover", "missing", "lost", "exhausted", "future",
		"conflict", "print", "stale", "clock"} {
		require.True(t, seen[reply] > 0 || testing.Short(), reply)
	}
}
