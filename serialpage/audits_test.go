package serialpage

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Reports that are a minute old are dropped, and the oldest ones if all take too much memory.
func TestKeptReports(t *testing.T) {
	a := newAudits()
	add := func(i int, age time.Duration) {
		k := periodKey{"IS", int64(i)}
		ok, _ := a.begin(k)
		require.True(t, ok)
		a.end(k, &audit{at: time.Now().Add(-age), explanations: 1 << 18})
	}
	kept := func() (all []int64) {
		for _, k := range a.reports.order {
			all = append(all, k.start)
		}
		return all
	}
	add(1, keptFor-time.Second)
	add(2, 0)
	require.Equal(t, []int64{1, 2}, kept())
	add(3, 0)
	require.Equal(t, []int64{2, 3}, kept(), fmt.Sprint(keptBytes, " bytes"))
	a.reports.values[periodKey{"IS", 2}] = audit{at: time.Now().Add(-keptFor)}
	add(4, 0)
	require.Equal(t, []int64{3, 4}, kept())
}
