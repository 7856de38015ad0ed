package serial_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dailyserial/serial"
	"github.com/dailyserial/serial/internal/redistest"
)

// TestAllocations holds how often a call allocates in a quiet process while the period is open. It counts what go-redis
// allocates too: 9 times for a bare EVALSHA.
func TestAllocations(t *testing.T) {
	if raceDetector {
		t.Skip("the race detector adds an allocation")
	}
	gen := newGenerator(t, redistest.Start(t).Client(t), serial.WithLocation(noon()),
		serial.WithTemplate("{type}{date:yyyyMMdd}{seq:9}"))
	background := context.Background() // t.Context() can end
	limited, cancel := context.WithTimeout(background, time.Hour)
	defer cancel()
	_, err := gen.NextN(background, "IS", 1000) // opens the period; sequences below 256 take an allocation less
	require.NoError(t, err)
	for name, test := range map[string]struct {
		call func() error
		most float64
	}{
		"Next": {func() error { _, err := gen.Next(background, "IS"); return err }, 13},
		// 22 on a machine that is not busy.
		"Next with a deadline": {func() error { _, err := gen.Next(limited, "IS"); return err }, 23},
		"NextN of 1000":        {func() error { _, err := gen.NextN(background, "IS", 1000); return err }, 17},
	} {
		t.Run(name, func(t *testing.T) {
			allocations := testing.AllocsPerRun(200, func() {
				if err := test.call(); err != nil {
					t.Error(err)
				}
			})
			require.LessOrEqual(t, allocations, test.most)
		})
	}
}
