package series

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dailyserial/serial/internal/calendar"
)

// A memory must keep the largest sequence of the latest period of a type, until this period has ended by the clock of
// the server.
func TestMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := memory{keys: keys{prefix: "serial"}, made: time.Now(), types: map[string]*entry{}}
		today := time.Now().Unix()
		day := func(n int64) *Target {
			p := calendar.Period{Label: string(rune('a' + n)), Start: today + n*86400, End: today + (n+1)*86400}
			return &Target{Span: calendar.Span{Period: p}}
		}
		highest := func(typ string, n int64) int64 {
			counter, record, highWater := m.find(typ, day(n))
			require.Equal(t, []any{"serial:{" + typ + "}:" + day(n).Label, "serial:{" + typ + "}"}, []any{counter, record})
			return highWater
		}
		var right, behind, ahead clock
		behind.offset.Store(-3 * 86400 * 1e6)
		ahead.offset.Store(2 * 86400 * 1e6)
		m.remember("A", day(0), 5, &right)
		m.remember("A", day(0), 3, &right) // a later reply may come earlier
		require.EqualValues(t, 5, highest("A", 0))
		require.Zero(t, highest("A", 1))
		require.Zero(t, m.noteUsed("A", today, 4))
		require.EqualValues(t, 4, m.noteUsed("A", today, 2))
		require.EqualValues(t, 4, m.noteUsed("A", today, 6))
		require.EqualValues(t, 7, m.noteUsed("A", today+1, 7), "another period")

		m.remember("B", day(0), 1, &behind)
		m.remember("C", day(2), 1, &ahead)
		require.EqualValues(t, 5, highest("A", 0), "C's server is ahead, A's is not")
		time.Sleep(24 * time.Hour)
		m.remember("A", day(1), 1, &right)
		m.remember("A", day(0), 9, &right)
		require.EqualValues(t, 1, highest("A", 1), "a late reply is not remembered")
		time.Sleep(48 * time.Hour)
		m.remember("A", day(3), 1, &right)
		require.Zero(t, highest("C", 2))
		require.EqualValues(t, 1, highest("B", 0))
		m.remember("A", day(9), 1, &right)
		m.remember("A", day(3), 2, &right)
		require.EqualValues(t, 2, highest("A", 3), "the clock was far ahead")

		m = memory{keys: m.keys, endless: true, made: time.Now(), types: map[string]*entry{}}
		m.remember("A", day(0), 5, &right)
		time.Sleep(47 * time.Hour)
		m.remember("B", day(0), 5, &right)
		require.EqualValues(t, 5, highest("A", 0))
		time.Sleep(2 * time.Hour)
		m.remember("B", day(0), 6, &right)
		require.Zero(t, highest("A", 0), "not used for 48 hours")
	})
}
