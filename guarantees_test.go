package serial_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dailyserial/serial"
	"github.com/dailyserial/serial/internal/redistest"
	"github.com/dailyserial/serial/serialtest"
)

// The tests below show what docs/guarantees.md says that nothing prevents. If one fails, correct that page.

// limits runs f with each protection, on a new generator and on one that remembers. numbers has the sequence that f must
// return; 0 stands for ErrCounterLost.
func limits(t *testing.T, numbers [3][2]int64, f func(t *testing.T, remembers bool, stored *int64, opts []serial.Option) (serial.Number, error)) {
	for i, with := range []string{"nothing", "floor", "ledger"} {
		for j, remembers := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, remembers %v", with, remembers), func(t *testing.T) {
				stored := new(int64)
				opts := [][]serial.Option{
					nil,
					{serial.WithFloor(func(context.Context, string, time.Time) (int64, error) { return *stored, nil })},
					{serial.WithLedger(new(serialtest.Ledger), 10)},
				}[i]
				number, err := f(t, remembers, stored, opts)
				if numbers[i][j] == 0 {
					require.ErrorIs(t, err, serial.ErrCounterLost)
					return
				}
				require.NoError(t, err)
				require.Equal(t, numbers[i][j], number.Seq)
			})
		}
	}
}

// Redis's clock is nine days ahead for two seconds: counter and record expire. Only a floor, a ledger or a process that
// remembers can tell that from a new series; retention is no help.
func TestLimitOfAClockNineDaysAhead(t *testing.T) {
	limits(t, [3][2]int64{{1, 0}, {4, 4}, {11, 11}}, func(t *testing.T, remembers bool, stored *int64, opts []serial.Option) (n serial.Number, err error) {
		synctest.Test(t, func(t *testing.T) {
			m := simulate(t)
			reigning(m.Miniredis)
			opts = append(opts, serial.WithLocation(time.UTC), serial.WithRetention(5))
			gen := newGenerator(t, m.client(), opts...)
			_, err = gen.NextN(t.Context(), "IS", 3)
			require.NoError(t, err)
			*stored = 3
			m.SetTime(time.Now().AddDate(0, 0, 9))
			_, err = newGenerator(t, m.client()).Next(t.Context(), "OTHER")
			require.ErrorIs(t, err, serial.ErrClockSkew, "nothing is opened by that clock")
			require.Empty(t, m.Keys())
			m.SetTime(time.Time{})
			m.ClockTTL(true)
			if !remembers {
				gen = newGenerator(t, m.client(), opts...)
			}
			n, err = gen.NextNumber(t.Context(), "IS")
		})
		return n, err
	})
}

// A server's memory goes back in time and its replication ID stays: not even a ledger notices.
func TestLimitOfAServerThatGoesBack(t *testing.T) {
	t.Parallel()
	limits(t, [3][2]int64{{4, 0}, {4, 7}, {4, 11}}, func(t *testing.T, remembers bool, stored *int64, opts []serial.Option) (serial.Number, error) {
		s := redistest.Start(t)
		opts = append(opts, serial.WithLocation(noon()))
		gen := newGenerator(t, s.Client(t), opts...)
		_, err := gen.NextN(t.Context(), "IS", 3)
		require.NoError(t, err)
		require.NoError(t, s.Do("SAVE").Err())
		_, err = gen.NextN(t.Context(), "IS", 3)
		require.NoError(t, err)
		*stored = 6
		require.NoError(t, s.Do("DEBUG", "RELOAD", "NOSAVE").Err())
		if !remembers {
			gen = newGenerator(t, s.Client(t), opts...)
		}
		return gen.NextNumber(t.Context(), "IS")
	})
}
