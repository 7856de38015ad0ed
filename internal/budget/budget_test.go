package budget_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dailyserial/serial/internal/budget"
)

// However slow each answer is, and however many steps there are, together they end in time.
func TestAttemptsEnd(t *testing.T) {
	for _, slow := range []time.Duration{time.Millisecond, time.Second, 2900 * time.Millisecond, 4700 * time.Millisecond,
		time.Hour} {
		b := budget.New(false)
		var took time.Duration
		shorts := 0
		for {
			limit, last := b.NextLimit()
			if limit <= 0 {
				break
			}
			require.LessOrEqual(t, limit, budget.Answers)
			if last {
				shorts++
				require.LessOrEqual(t, limit, budget.Last)
			}
			step := min(slow, limit)
			b.Spend(step, limit)
			took += step
		}
		require.Positive(t, shorts, "something is kept for a quick attempt")
		require.LessOrEqual(t, took, budget.Answers)
		require.Greater(t, took, budget.Answers-time.Second)
	}
}

// Who sees that others are at work waits on, but not for ever.
func TestOthers(t *testing.T) {
	b := budget.New(false)
	var waited time.Duration
	for b.Wait() > 0 {
		step := min(9*time.Second, b.Answer())
		require.Positive(t, step)
		b.Spend(step, step)
		waited += step
		b.Renew()
		require.LessOrEqual(t, b.Answer(), budget.Answers)
	}
	require.Equal(t, budget.Others, waited)
	require.LessOrEqual(t, b.Answer(), time.Duration(0))

	b = budget.New(true)
	b.Spend(time.Hour, time.Hour)
	b.Renew()
	require.Equal(t, budget.Answers, b.Answer(), "a deadline ends that")
}

// A process that stood still has not waited for anybody.
func TestStoodStill(t *testing.T) {
	b := budget.New(false)
	b.Spend(time.Minute, time.Second)
	require.Equal(t, budget.Answers-time.Second, b.Answer())
	require.Equal(t, budget.Others-time.Second, b.Wait())
	var used budget.Budget
	limit, _ := used.NextLimit()
	require.Zero(t, limit)
}
