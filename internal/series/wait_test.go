package series

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dailyserial/serial/internal/wire"
)

// Another process holds the lock. This time must not count as the call's own time, but without a deadline the call must
// end after half a minute.
func TestTimeOfACall(t *testing.T) {
	for limit, want := range map[time.Duration]time.Duration{0: longest, time.Hour: 25*time.Second + AnswerTime} {
		inBubble(t, nil, func(t *testing.T, x *fixture) {
			began := time.Now()
			x.try = func(int) error {
				if time.Since(began) < 25*time.Second {
					return ErrTaken
				}
				x.hook = func(bool, func() error) error {
					time.Sleep(time.Minute)
					return errors.New("hangs")
				}
				return nil
			}
			ctx := context.Background()
			if limit > 0 {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, limit)
				defer cancel()
			}
			require.ErrorIs(t, errOf(x.next(ctx)), ErrNoAnswer)
			require.InDelta(t, want, time.Since(began), float64(200*time.Millisecond))
			require.Less(t, x.attempts, 1000, "pauses grow")
		})
	}
}

// both makes two calls. The second one waits for the opening of the first one.
func both(x *fixture, first, second context.Context) (errs [2]error) {
	var all sync.WaitGroup
	for i, ctx := range []context.Context{first, second} {
		all.Go(func() { errs[i] = errOf(x.next(ctx)) })
		synctest.Wait()
	}
	all.Wait()
	return errs
}

// An opening fails while calls wait for it. If the cause is an outage, all of them must fail. Otherwise, they must make
// their own attempt.
func TestOpeningFails(t *testing.T) {
	broken := errors.New("broken")
	inBubble(t, func(x *fixture, c *Config) {
		c.Reserve = func(context.Context, string, string, int64, int64) (int64, error) {
			time.Sleep(time.Second)
			x.asked.Add(1)
			return 0, broken
		}
	}, func(t *testing.T, x *fixture) {
		for _, err := range both(x, t.Context(), t.Context()) {
			require.ErrorIs(t, err, broken)
			require.True(t, wire.IsOutage(err))
		}
		require.EqualValues(t, 1, x.asked.Load())
	})
	inBubble(t, func(x *fixture, c *Config) {
		c.Floor = func(context.Context, string, time.Time) (int64, error) {
			time.Sleep(time.Second)
			if x.asked.Add(1) == 1 {
				return 0, broken
			}
			return 0, nil
		}
	}, func(t *testing.T, x *fixture) {
		errs := both(x, t.Context(), t.Context())
		require.ErrorIs(t, errs[0], broken)
		require.NoError(t, errs[1])
	})
}

// A call without a deadline waits for the opening of another call. It must wait for half a minute, and this time must
// not count as its own.
func TestWaitForOpening(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, x *fixture) {
		x.try = func(int) error { return ErrTaken }
		patient, cancel := context.WithTimeout(t.Context(), 40*time.Second)
		defer cancel()
		began := time.Now()
		var waited time.Duration
		var all sync.WaitGroup
		all.Go(func() { _ = errOf(x.next(patient)) })
		synctest.Wait()
		all.Go(func() {
			err := errOf(x.next(context.Background()))
			require.ErrorIs(t, err, ErrTaken)
			waited = time.Since(began)
		})
		all.Wait()
		require.Equal(t, longest, waited)
	})
	inBubble(t, withLedger(6*time.Second), func(t *testing.T, x *fixture) {
		x.hook = func(grant bool, send func() error) error {
			if !grant && x.asked.Load() > 0 {
				time.Sleep(time.Minute)
			}
			return send()
		}
		began := time.Now()
		errs := both(x, t.Context(), t.Context())
		require.NoError(t, errs[0])
		require.ErrorIs(t, errs[1], ErrNoAnswer)
		require.InDelta(t, 6*time.Second+AnswerTime, time.Since(began), float64(time.Second))
	})
}

// A call gives up waiting for an opening. Its error must contain the last error of the opening.
func TestWaitNamesFailure(t *testing.T) {
	inBubble(t, withLedger(0), func(t *testing.T, x *fixture) {
		x.elsewhere = true
		x.try = func(int) error {
			x.hook = func(bool, func() error) error {
				return redisError("LOADING Redis is loading the dataset in memory")
			}
			return nil
		}
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Millisecond)
		defer cancel()
		err := both(x, t.Context(), ctx)[1]
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorContains(t, err, "; before that: LOADING")
	})
}

// A call waits for the lock beyond midnight. Calls that wait for the opening of yesterday must not wait any longer.
func TestWaitAcrossMidnight(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, x *fixture) {
		time.Sleep(24*time.Hour - time.Second)
		x.try = func(int) error {
			if time.Now().Day() == 1 {
				return ErrTaken
			}
			return nil
		}
		began := time.Now()
		for _, err := range both(x, t.Context(), t.Context()) {
			require.NoError(t, err)
		}
		require.Less(t, time.Since(began), 2*time.Second)
	})
}
