package series

import (
	"context"
	"errors"
	"io"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dailyserial/serial/internal/calendar"
)

// together makes a call for each fixture while another call is in flight, so that the calls have to wait. It runs
// change before they are sent, and returns the numbers and the calls in this order.
func together(t *testing.T, x *fixture, change func(), fixtures ...*fixture) (last []int64, calls []*Call) {
	x.hook = func(_ bool, send func() error) error {
		x.hook = nil
		time.Sleep(time.Millisecond)
		defer change()
		return send()
	}
	last, calls = make([]int64, len(fixtures)), make([]*Call, len(fixtures))
	var all sync.WaitGroup
	all.Go(func() { require.NoError(t, errOf(x.next(t.Context()))) })
	synctest.Wait()
	for i, f := range fixtures {
		all.Go(func() {
			n, call, err := f.next(t.Context())
			require.NoError(t, err)
			last[i], calls[i] = n.Last, call
		})
		synctest.Wait()
	}
	all.Wait()
	return last, calls
}

// errOf returns the error of a call.
func errOf(_ Numbers, _ *Call, err error) error { return err }

// Calls for the same type and span must share a request. Calls for other types or spans, and calls whose number is
// stored, must not.
func TestCallsShare(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, x *fixture) {
		require.NoError(t, errOf(x.next(t.Context())))
		stores := &fixture{Series: x.Series, redis: x.redis, request: "id"}
		other := &fixture{Series: x.Series, redis: x.redis, typ: "AB"}
		require.NoError(t, errOf(other.next(t.Context())))
		last, _ := together(t, x, func() {}, x, stores, other, x)
		require.Equal(t, []int64{3, 5, 2, 4}, last)
		n, _, err := stores.next(t.Context())
		require.NoError(t, err)
		require.True(t, n.Repeated)
		require.EqualValues(t, 5, n.Last)
	})
}

// The clock has left the span when calls that share a request are sent. Each call must send a new request for one
// number, and only one of them must report the offset.
func TestSharedCallsAskAgain(t *testing.T) {
	inBubble(t, func(_ *fixture, c *Config) { c.MaxSkew = -1 }, func(t *testing.T, x *fixture) {
		require.NoError(t, errOf(x.next(t.Context())))
		last, calls := together(t, x, func() { x.redis.SetTime(time.Now().Add(24 * time.Hour)) }, x, x, x)
		slices.Sort(last)
		require.Equal(t, []int64{1, 2, 3}, last)
		content, err := x.redis.Get("serial:{IS}:20000102")
		require.NoError(t, err)
		require.Equal(t, "3", content)
		offsets := 0
		for _, call := range calls {
			if call.Events.Offset != call.Events.Before {
				offsets++
			}
		}
		require.Equal(t, 1, offsets)
	})
}

// The clock was set back. Calls that share a request must wait until the clock reaches the period.
func TestSharedCallsAwaitClock(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, x *fixture) {
		time.Sleep(3 * time.Second) // after midnight
		require.NoError(t, errOf(x.next(t.Context())))
		last, _ := together(t, x, func() {
			x.hook = func(_ bool, send func() error) error {
				x.redis.SetTime(time.Now().Add(-5 * time.Second))
				return send()
			}
		}, x, x)
		slices.Sort(last)
		require.Equal(t, []int64{3, 4}, last)
	})
}

// A block has no numbers left for some of the calls. These calls must send another request, and get numbers of the next
// block.
func TestSharedCallsExceedBlock(t *testing.T) {
	inBubble(t, withLedger(0), func(t *testing.T, x *fixture) {
		for range 8 {
			require.NoError(t, errOf(x.next(t.Context())))
		}
		last, _ := together(t, x, func() {}, x, x, x)
		slices.Sort(last)
		require.Equal(t, []int64{10, 11, 12}, last)
	})
}

// The clock was set back. A call must wait until the clock reaches the period, but not for long, and not beyond its own
// deadline.
func TestClockSetBack(t *testing.T) {
	for name, test := range map[string]struct {
		back, limit time.Duration
		frozen      bool
		least, most time.Duration // until the call ends
		refused     bool
	}{
		"a little":            {6 * time.Second, time.Minute, false, 3 * time.Second, 3 * time.Second, false},
		"too far":             {9 * time.Second, time.Minute, false, 0, 0, true},
		"beyond the context":  {6 * time.Second, 2 * time.Second, false, 0, 0, true},
		"it does not advance": {4 * time.Second, time.Minute, true, 4 * time.Second, 5 * time.Second, true},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, nil, func(t *testing.T, x *fixture) {
				time.Sleep(3 * time.Second) // after midnight
				require.NoError(t, errOf(x.next(t.Context())))
				x.hook = func(_ bool, send func() error) error {
					if back := time.Now().Add(-test.back); !test.frozen || back.Second() != 0 {
						x.redis.SetTime(back)
					}
					return send()
				}
				if test.frozen {
					x.redis.SetTime(time.Now().Add(-test.back))
					x.hook = nil
				}
				ctx, cancel := context.WithTimeout(t.Context(), test.limit)
				defer cancel()
				began := time.Now()
				_, _, err := x.next(ctx)
				require.GreaterOrEqual(t, time.Since(began), test.least)
				require.LessOrEqual(t, time.Since(began), test.most)
				if test.refused {
					require.Equal(t, Future, err.(*Refusal).Status)
				} else {
					require.NoError(t, err)
				}
			})
		})
	}
}

// The clock jumps again and again. The call must give up after some attempts.
func TestUnsteadyClock(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, x *fixture) {
		runs := 0
		x.hook = func(_ bool, send func() error) error {
			if runs++; runs > 100 {
				return io.EOF
			}
			x.redis.SetTime(time.Now().Add(time.Duration(runs%2) * 48 * time.Hour))
			return send()
		}
		require.Equal(t, Unsteady, errOf(x.next(t.Context())).(*Refusal).Status)
		require.LessOrEqual(t, runs, clockTries+5)
	})
}

// The last day has ended, or the date of a span cannot be printed. No number must be taken.
func TestNoSpan(t *testing.T) {
	unprintable := errors.New("unprintable")
	inBubble(t, func(_ *fixture, c *Config) { c.Until = time.Now().Unix() }, func(t *testing.T, x *fixture) {
		require.Equal(t, Over, errOf(x.next(t.Context())).(*Refusal).Status)
	})
	inBubble(t, func(_ *fixture, c *Config) {
		c.SpanAt = func(at time.Time) (calendar.Span, error) {
			p := *c.Calendar.At(at)
			return calendar.Span{Period: p, From: p.Start, To: p.End}, unprintable
		}
	}, func(t *testing.T, x *fixture) {
		require.Equal(t, unprintable, errOf(x.next(t.Context())))
	})
}

// A call that only reads must not wait for replicas.
func TestReading(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, x *fixture) {
		require.NoError(t, errOf(x.next(t.Context())))
		confirmed := *x.Config
		confirmed.Replicas = Replicas{N: 1, Timeout: time.Second} // this Redis has no WAIT
		call, err := New(confirmed).NewCall(t.Context(), "IS", "", 0)
		require.NoError(t, err)
		counters, err := call.History(t.Context(), "20000101", "19991231")
		require.NoError(t, err)
		require.Equal(t, []int64{1, 1, -1}, counters.Last)
	})
}

// A request is repeated and returns its stored number. The number must be remembered like an issued one, unless it
// belongs to another period.
func TestRepeatedAnswer(t *testing.T) {
	for days, want := range []int64{1, 0} {
		inBubble(t, func(_ *fixture, c *Config) { c.Shared, c.OnceFor = true, 48*time.Hour }, func(t *testing.T, x *fixture) {
			x.request = "id"
			other := &fixture{Series: New(*x.Config), redis: x.redis, request: "id"}
			require.NoError(t, errOf(other.next(t.Context())))
			time.Sleep(time.Duration(days) * 24 * time.Hour)
			n, _, err := x.next(t.Context())
			require.NoError(t, err)
			require.True(t, n.Repeated)
			require.Equal(t, `"20000101" "" "IS"`, n.Answer.Printed)
			_, _, highest := x.memory.find(SharedType, n.Span)
			require.Equal(t, want, highest)
		})
	}
}

// A counter is lost after the first check, so that only the run with the grant detects the loss. The loss must be
// reported.
func TestLossSeenByGrant(t *testing.T) {
	inBubble(t, withLedger(0), func(t *testing.T, x *fixture) {
		for range 3 {
			require.NoError(t, errOf(x.next(t.Context())))
		}
		require.NoError(t, x.redis.Set("serial:{IS}:20000101", "1"))
		call, err := New(*x.Config).NewCall(t.Context(), "IS", "", 0)
		require.NoError(t, err)
		require.NoError(t, call.Raise(t.Context(), ForRaise, 5, true))
		require.NotNil(t, call.Events.Lost)
	})
}

// The clock of the server is too far ahead of this host's clock, or too far behind it. A prepared period must not be
// entered.
func TestPreparedAndFar(t *testing.T) {
	for _, request := range []string{"", "id"} {
		for _, behind := range []bool{false, true} {
			inBubble(t, nil, func(t *testing.T, x *fixture) {
				x.request = request
				require.NoError(t, errOf(x.next(t.Context())))
				call, err := x.NewCall(t.Context(), "IS", "", 0)
				require.NoError(t, err)
				require.NoError(t, call.Prepare(t.Context(), x).Err)
				if behind {
					time.Sleep(25 * time.Hour)
					x.redis.SetTime(time.Now().Add(-2 * time.Hour))
					x.request += request
					require.NoError(t, errOf(x.next(t.Context())), "the process learns the offset")
					time.Sleep(2 * time.Hour)
					x.redis.SetTime(time.Now().Add(-2 * time.Hour))
				} else {
					x.redis.SetTime(time.Now().Add(24 * time.Hour))
				}
				x.request += request
				require.Equal(t, Skewed, errOf(x.next(t.Context())).(*Refusal).Status)
			})
		}
	}
}

// A call requests several numbers. It must get all of them or none.
func TestTooFewNumbers(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, x *fixture) {
		require.NoError(t, errOf(x.next(t.Context())))
		require.NoError(t, x.redis.Set("serial:{IS}:20000101", "9997"))
		call, err := x.NewCall(t.Context(), "IS", "", 3)
		require.NoError(t, err)
		require.Equal(t, Exhausted, call.Take(t.Context()).Err.(*Refusal).Status)
		content, err := x.redis.Get("serial:{IS}:20000101")
		require.NoError(t, err)
		require.Equal(t, "9997", content)
	})
}

// A request is repeated. Its stored number must be confirmed by replicas each time.
func TestUnconfirmedAnswer(t *testing.T) {
	inBubble(t, func(_ *fixture, c *Config) {
		c.Replicas = Replicas{N: 1, Timeout: time.Second} // this Redis has no WAIT
	}, func(t *testing.T, x *fixture) {
		x.request = "id"
		for range 2 {
			require.Equal(t, Unconfirmed, errOf(x.next(t.Context())).(*Refusal).Status)
		}
		content, err := x.redis.Get("serial:{IS}:20000101")
		require.NoError(t, err)
		require.Equal(t, "1", content)
	})
}
