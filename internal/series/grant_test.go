package series

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dailyserial/serial/internal/calendar"
	"github.com/dailyserial/serial/internal/wire"
)

// An attempt to get the lock fails. It must be repeated while there is time, if a repetition can succeed.
func TestLock(t *testing.T) {
	refused := errors.New("refused")
	for name, test := range map[string]struct {
		try         func(attempt int) error
		want        error
		least, most time.Duration
		attempts    int // 0 for many
	}{
		"granted": {nil, nil, 0, 0, 1},
		"taken": {func(attempt int) error {
			if attempt < 4 {
				return ErrTaken
			}
			return nil
		}, nil, time.Millisecond, 30 * time.Millisecond, 4},
		"taken for long": {func(int) error { return ErrTaken }, ErrTaken, longest - 150*time.Millisecond, longest, 0},
		"failing":        {func(int) error { return io.EOF }, io.EOF, AnswerTime - 150*time.Millisecond, AnswerTime, 0},
		"refused":        {func(int) error { return refused }, refused, 0, 0, 1},
		"silent": {func(int) error {
			time.Sleep(AnswerTime)
			return ErrNoAnswer
		}, ErrNoAnswer, AnswerTime, AnswerTime, 1},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, nil, func(t *testing.T, x *fixture) {
				x.try = test.try
				began := time.Now()
				n, call, err := x.next(context.Background())
				require.ErrorIs(t, err, test.want)
				require.GreaterOrEqual(t, time.Since(began), test.least)
				require.LessOrEqual(t, time.Since(began), test.most)
				if test.attempts > 0 {
					require.Equal(t, test.attempts, x.attempts)
				}
				if err == nil {
					require.EqualValues(t, 1, n.Last)
					require.Equal(t, n.Span, call.Events.Opened)
					require.Equal(t, time.Since(began), call.Events.Wait)
					require.False(t, x.redis.Exists("serial:{IS}:20000101:lock"), "the script releases it")
				}
				require.Zero(t, x.released)
			})
		})
	}
}

// The counter must be checked again under the lock before a floor is queried. If numbers are left, the lock must be
// released.
func TestLook(t *testing.T) {
	for _, elsewhere := range []bool{false, true} {
		for _, opened := range []bool{false, true} {
			t.Run(fmt.Sprint(elsewhere, opened), func(t *testing.T) {
				var floors int
				inBubble(t, func(_ *fixture, c *Config) {
					c.Floor = func(_ context.Context, typ string, start time.Time) (int64, error) {
						floors++
						require.Equal(t, "IS 2000-01-01 00:00:00 +0000 UTC", fmt.Sprint(typ, " ", start))
						return 7, nil
					}
				}, func(t *testing.T, x *fixture) {
					x.elsewhere = elsewhere
					want := int64(8)
					if opened {
						other := *x.Config
						other.Floor = nil
						x.try = func(int) error {
							x.try, x.elsewhere = nil, true
							_, _, err := (&fixture{Series: New(other), redis: x.redis}).next(t.Context())
							x.elsewhere = elsewhere
							return err
						}
						want = 2
					}
					runs := 0
					x.hook = func(_ bool, send func() error) error {
						runs++
						return send()
					}
					n, _, err := x.next(t.Context())
					require.NoError(t, err)
					require.Equal(t, want, n.Last)
					require.Equal(t, 1, x.looks)
					if !opened && !elsewhere {
						require.Equal(t, 1+3, runs, "the first one lacks the script's source")
					}
					require.Equal(t, !opened, floors == 1)
					require.Equal(t, opened || elsewhere, x.released == 1)
				})
			})
		}
	}
}

// Another process has opened the period in the meantime. The ledger must not be queried.
func TestLookBeforeLedger(t *testing.T) {
	inBubble(t, withLedger(0), func(t *testing.T, x *fixture) {
		x.elsewhere = true
		x.try = func(int) error {
			x.try = nil
			other := &fixture{Series: New(*x.Config), redis: x.redis, elsewhere: true}
			_, _, err := other.next(t.Context())
			return err
		}
		n, _, err := x.next(t.Context())
		require.NoError(t, err)
		require.EqualValues(t, 2, n.Last)
		require.EqualValues(t, 1, x.asked.Load())
	})
}

// The next period has begun when the lock is granted. The lock must not be used, because it is for one period. A period
// of a second must be opened without a lock.
func TestLockOfAnotherPeriod(t *testing.T) {
	inBubble(t, withLedger(0), func(t *testing.T, x *fixture) {
		x.elsewhere = true
		time.Sleep(24*time.Hour - time.Second)
		x.try = func(attempt int) error {
			if attempt == 1 {
				time.Sleep(2 * time.Second)
			}
			return nil
		}
		n, _, err := x.next(t.Context())
		require.NoError(t, err)
		require.Equal(t, "20000102", n.Span.Label)
		require.Equal(t, 2, x.attempts)
	})
	inBubble(t, func(_ *fixture, c *Config) {
		seconds := calendar.Calendar{Location: time.UTC, Unit: calendar.Second}
		c.Calendar, c.Seconds = seconds, true
		c.SpanAt = func(at time.Time) (calendar.Span, error) {
			p := *seconds.At(at)
			return calendar.Span{Period: p, From: p.Start, To: p.End, Date: p.Label}, nil
		}
	}, func(t *testing.T, x *fixture) {
		n, _, err := x.next(t.Context())
		require.NoError(t, err)
		require.Equal(t, "20000101000000", n.Span.Label)
		require.Zero(t, x.attempts)
	})
}

// The second check of the counter needs no confirmation by replicas. It must not be sent together with a lock for which
// no confirmation is requested.
func TestLookWithReplicas(t *testing.T) {
	inBubble(t, func(x *fixture, c *Config) {
		withLedger(0)(x, c)
		c.Replicas = Replicas{N: 1, Timeout: time.Second}
	}, func(t *testing.T, x *fixture) {
		_, _, err := x.next(t.Context())
		require.Error(t, err, "this Redis has no WAIT")
		require.Positive(t, x.attempts)
		require.Zero(t, x.looks)
	})
}

// The lease of a lock must begin with the request for the lock, and an opening must end a second before the lease does.
func TestLockIsSlow(t *testing.T) {
	inBubble(t, withLedger(6*time.Second), func(t *testing.T, x *fixture) {
		x.try = func(int) error {
			time.Sleep(3 * time.Second)
			return nil
		}
		began := time.Now()
		_, _, err := x.next(context.Background())
		require.ErrorIs(t, err, ErrLedger)
		require.Equal(t, LockExpiry-margin, time.Since(began))
	})
}

// A grant must be valid until its lock expires. The start must not apply if the floor returns a sequence below it,
// because this sequence was used.
func TestGrant(t *testing.T) {
	for floor, base := range map[int64]string{-1: `"lease":8000,"base":4,"lock"`, 0: `"lease":5000,"base":4,"floor":0`,
		4: `"lease":5000,"base":0,"floor":4`, 5: `"lease":5000,"base":4,"floor":5`} {
		inBubble(t, func(_ *fixture, c *Config) {
			if c.Base = 4; floor >= 0 {
				c.Floor = func(context.Context, string, time.Time) (int64, error) {
					time.Sleep(time.Second)
					return floor, nil
				}
			}
		}, func(t *testing.T, x *fixture) {
			x.try = func(int) error {
				time.Sleep(3 * time.Second)
				return nil
			}
			began := time.Now()
			n, _, err := x.next(context.Background())
			require.NoError(t, err)
			require.Equal(t, 1+max(4, floor), n.Last)
			require.Contains(t, x.granted, base)
			if floor >= 0 {
				began = began.Add(3 * time.Second) // the second look
			}
			require.Contains(t, x.granted, fmt.Sprintf(`"checked":%d,`, began.UnixMilli()))
		})
	}
}

// A block is used up. The next block must not query the floor, and must not be reported as an opening.
func TestNextBlock(t *testing.T) {
	floors := 0
	inBubble(t, func(x *fixture, c *Config) {
		withLedger(0)(x, c)
		c.Floor = func(context.Context, string, time.Time) (int64, error) {
			floors++
			return 0, nil
		}
	}, func(t *testing.T, x *fixture) {
		var call *Call
		for range 11 {
			var err error
			_, call, err = x.next(t.Context())
			require.NoError(t, err)
		}
		require.EqualValues(t, 2, x.asked.Load())
		require.Nil(t, call.Events.Opened)
		require.Equal(t, 1, floors)
		require.NotContains(t, x.granted, "floor")
	})
}

// A grant is no longer valid. The script must not release the lock.
func TestStaleGrant(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, x *fixture) {
		x.hook = func(grant bool, send func() error) error {
			if !grant {
				return send()
			}
			x.hook = nil
			x.redis.SetTime(time.Now().Add(LockExpiry))
			defer x.redis.SetTime(time.Time{})
			return send()
		}
		n, _, err := x.next(t.Context())
		require.NoError(t, err)
		require.EqualValues(t, 1, n.Last)
		require.Equal(t, 1, x.released)
		require.Equal(t, 2, x.attempts)
	})
}

// An operator raises a counter. The counter must be set to the given sequence or to the answer of the floor, whichever
// is larger, and it must never be lowered.
func TestRaise(t *testing.T) {
	inBubble(t, func(_ *fixture, c *Config) {
		c.Floor = func(context.Context, string, time.Time) (int64, error) { return 7, nil }
	}, func(t *testing.T, x *fixture) {
		lost := true
		x.hook = func(grant bool, send func() error) error {
			err := send()
			if grant && lost { // an operator's sequence may be raised twice
				lost, err = false, io.EOF
			}
			return err
		}
		raise := func(seq int64) string {
			call, err := x.NewCall(t.Context(), "IS", "", 0)
			require.NoError(t, err)
			require.NoError(t, call.Raise(t.Context(), ForRaise, seq, true))
			content, err := x.redis.Get("serial:{IS}:20000101")
			require.NoError(t, err)
			return content
		}
		require.Equal(t, "7", raise(5))
		require.Equal(t, "9", raise(9))
		require.Equal(t, "9", raise(8))
		x.redis.Del("serial:{IS}:20000101")
		require.Equal(t, "8", raise(8))
	})
}

// A call must return at its own deadline, although the opening that it started continues.
func TestCallEndsBeforeItsOpening(t *testing.T) {
	inBubble(t, withLedger(2500*time.Millisecond), func(t *testing.T, x *fixture) {
		x.try = func(attempt int) error {
			time.Sleep(4 * time.Second)
			if attempt == 1 {
				return io.EOF
			}
			return nil
		}
		began := time.Now()
		_, _, err := x.next(context.Background())
		require.ErrorIs(t, err, ErrNoAnswer)
		require.NotErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorContains(t, err, "gave up waiting for the period of IS to be opened")
		require.Equal(t, AnswerTime, time.Since(began))
		time.Sleep(5 * time.Second)
		require.Equal(t, []Gap{{Type: "IS", First: 1, Last: 1, Cause: CallerLeft}}, x.explained())
	})
}

// A counter is lost, and there is a floor. The floor must repair the counter in the same way as it opens a period.
func TestLostCounter(t *testing.T) {
	floors := 0
	inBubble(t, func(_ *fixture, c *Config) {
		c.Floor = func(context.Context, string, time.Time) (int64, error) {
			floors++
			return 7 * int64(floors-1), nil
		}
	}, func(t *testing.T, x *fixture) {
		_, _, err := x.next(t.Context())
		require.NoError(t, err)
		x.redis.Del("serial:{IS}:20000101")
		n, call, err := x.next(t.Context())
		require.NoError(t, err)
		require.EqualValues(t, 8, n.Last)
		require.Equal(t, n.Span, call.Events.Lost)
		require.Equal(t, 2, floors)
		x.Config.Floor = nil
		x.redis.Del("serial:{IS}:20000101")
		_, _, err = x.next(t.Context())
		require.Equal(t, Lost, err.(*Refusal).Status)
		require.NoError(t, x.redis.Set("serial:{IS}:20000101", "7"))
		_, _, err = x.next(t.Context())
		require.Equal(t, Lost, err.(*Refusal).Status, "it went back")
		require.NoError(t, x.redis.Set("serial:{IS}:20000101", "8"))
		n, _, err = x.next(t.Context())
		require.NoError(t, err)
		require.EqualValues(t, 9, n.Last)
	})
}

// The clock of the server is too far ahead of this host's clock, or too far behind it. No period must be opened.
func TestSkew(t *testing.T) {
	for ahead, opens := range map[time.Duration]bool{-2 * time.Hour: false, -time.Hour: true, time.Hour: true,
		2 * time.Hour: false} {
		inBubble(t, nil, func(t *testing.T, x *fixture) {
			x.redis.SetTime(time.Now().Add(ahead))
			_, _, err := x.next(t.Context())
			if opens {
				require.NoError(t, err)
			} else {
				require.Equal(t, Skewed, err.(*Refusal).Status)
				require.Equal(t, 1, x.released)
			}
		})
	}
}

// A caller leaves during an opening for which other callers wait. The opening must continue, and the number of the
// caller must become a gap.
func TestCallerLeaves(t *testing.T) {
	inBubble(t, withLedger(2*time.Second), func(t *testing.T, x *fixture) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		go func() {
			time.Sleep(time.Millisecond)
			n, _, err := x.next(context.Background())
			require.NoError(t, err)
			require.EqualValues(t, 2, n.Last)
		}()
		began := time.Now()
		_, _, err := x.next(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, time.Second, time.Since(began))
		require.Equal(t, 1, x.expected())
		time.Sleep(2 * time.Second)
		synctest.Wait()
		require.Equal(t, []Gap{{Type: "IS", First: 1, Last: 1, Cause: CallerLeft}}, x.explained())
		require.EqualValues(t, 1, x.asked.Load())
	})
	// A number that is stored must not become a gap.
	inBubble(t, withLedger(2*time.Second), func(t *testing.T, x *fixture) {
		x.request = "id"
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, _, err := x.next(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		time.Sleep(2 * time.Second)
		require.Empty(t, x.explained())
		answer, err := x.redis.Get("serial:{IS}:once:id")
		require.NoError(t, err)
		require.Regexp(t, `^20000101 \d+ \d+ days #aa ledger "20000101" "" 1 plain$`, answer, "as 0.5.0 reads it")
		n, _, err := x.next(t.Context())
		require.NoError(t, err)
		require.True(t, n.Repeated)
	})
	// Only a query of a floor must end with its caller.
	inBubble(t, func(_ *fixture, c *Config) {
		c.Floor = func(ctx context.Context, _ string, _ time.Time) (int64, error) {
			<-ctx.Done()
			return 0, ctx.Err()
		}
	}, func(t *testing.T, x *fixture) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, _, err := x.next(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		synctest.Wait()
		require.Equal(t, 1, x.released)
	})
}

// withHours makes the numbers of a day print the hour, so that a span is an hour.
func withHours(_ *fixture, c *Config) {
	day := c.SpanAt
	c.SpanAt = func(at time.Time) (calendar.Span, error) {
		span, err := day(at)
		hour := at.Truncate(time.Hour)
		span.From, span.To, span.Date = hour.Unix(), hour.Unix()+3600, hour.Format("15")
		return span, err
	}
}

// The clock leaves the span before a grant is sent or while it is in flight. The grant must be sent again for another
// span of the same period, but not for another period. In the second case, its block must become a gap.
func TestClockLeavesSpan(t *testing.T) {
	for date, hour := range map[string]int{"12": 11, "00": 23} {
		for _, ledger := range []time.Duration{0, 2 * time.Second} {
			grants := 0
			inBubble(t, func(x *fixture, c *Config) {
				withLedger(ledger)(x, c)
				withHours(x, c)
			}, func(t *testing.T, x *fixture) {
				time.Sleep(time.Duration(hour)*time.Hour + 3599*time.Second)
				x.hook = func(grant bool, send func() error) error {
					if grant {
						grants++
					}
					if grant && ledger == 0 && grants == 1 {
						time.Sleep(2 * time.Second)
					}
					return send()
				}
				n, _, err := x.next(t.Context())
				require.NoError(t, err)
				require.Equal(t, date, n.Span.Date)
				if hour == 23 {
					require.Equal(t, []Gap{{Type: "IS", First: 1, Last: 10, Cause: BlockBurned}}, x.explained())
					require.EqualValues(t, 2, x.asked.Load())
				} else {
					require.Empty(t, x.explained())
					require.EqualValues(t, 1, x.asked.Load())
					require.Equal(t, ledger == 0, grants > 1)
				}
				require.EqualValues(t, 1, n.Last)
			})
		}
	}
}

// The clock of the server jumps again and again. The call must give up after some attempts with its grant.
func TestClockJumpsDuringGrant(t *testing.T) {
	inBubble(t, func(x *fixture, c *Config) {
		withLedger(0)(x, c)
		withHours(x, c)
	}, func(t *testing.T, x *fixture) {
		jumps := 0
		x.hook = func(grant bool, send func() error) error {
			if grant && jumps <= clockTries {
				jumps++
				x.redis.SetTime(time.Now().Add(time.Duration(jumps%2) * time.Hour))
				defer func() {
					if jumps > clockTries {
						x.redis.SetTime(time.Time{})
					}
				}()
			}
			return send()
		}
		n, _, err := x.next(t.Context())
		require.NoError(t, err)
		require.EqualValues(t, 11, n.Last)
		require.Contains(t, x.explained(), Gap{Type: "IS", First: 1, Last: 10, Cause: BlockBurned})
	})
}

// Another process opens the period in the meantime. The grant must not open it again.
func TestOpenedMeanwhile(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, x *fixture) {
		x.try = func(int) error {
			x.try = nil
			_, _, err := (&fixture{Series: New(*x.Config), redis: x.redis, elsewhere: true}).next(t.Context())
			return err
		}
		n, call, err := x.next(t.Context())
		require.NoError(t, err)
		require.EqualValues(t, 2, n.Last)
		require.Nil(t, call.Events.Opened)
		require.Equal(t, 1, x.released)
	})
}

// The installation of a block fails. If it got no reply, it must not be repeated, and the lock must be kept until it
// expires. If it did not run, the block must become a gap, and the lock must be released.
func TestInstallationFails(t *testing.T) {
	block, number := Gap{"IS", nil, 1, 10, BlockBurned}, Gap{"IS", nil, 1, 9999, AnswerLost}
	for name, test := range map[string]struct {
		err      error
		runs     bool
		released int
		gap      Gap
		next     int64
	}{
		"its answer is lost": {io.EOF, true, 0, number, 2},
		"it is lost":         {io.EOF, false, 0, number, 11},
		"it fails":           {redisError("ERR the script failed"), false, 1, number, 11},
		"it is refused":      {redisError("OOM command not allowed"), false, 1, block, 11},
		"it may pass":        {redisError("LOADING Redis is loading the dataset in memory"), false, 1, block, 11},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, withLedger(0), func(t *testing.T, x *fixture) {
				x.hook = func(grant bool, send func() error) error {
					if !grant {
						return send()
					}
					if x.hook = nil; test.runs {
						require.NoError(t, send())
					}
					return test.err
				}
				_, _, err := x.next(context.Background())
				require.ErrorIs(t, err, test.err)
				synctest.Wait()
				require.Equal(t, test.released, x.released)
				require.Equal(t, []Gap{test.gap}, x.explained())
				n, _, err := x.next(t.Context())
				require.NoError(t, err)
				require.Equal(t, test.next, n.Last)
			})
		})
	}
}

// The reply to an installation is lost. The installation must be treated as if it had run, even if an earlier attempt
// was rejected.
func TestInstallationFailsAfterRefusal(t *testing.T) {
	inBubble(t, withLedger(0), func(t *testing.T, x *fixture) {
		refused := false
		x.hook = func(grant bool, send func() error) error {
			switch {
			case !grant:
				return send()
			case !refused:
				refused = true
				return redisError("TRYAGAIN Multiple keys request during rehashing of slot")
			}
			x.hook = nil
			require.NoError(t, send())
			return os.ErrDeadlineExceeded
		}
		_, _, err := x.next(context.Background())
		require.ErrorIs(t, err, os.ErrDeadlineExceeded)
		synctest.Wait()
		require.Zero(t, x.released)
		require.Equal(t, []Gap{{"IS", nil, 1, 9999, AnswerLost}}, x.explained())
	})
}

// A grant without a block fails. It must be sent again if it did not run, but not if it may have run.
func TestInstallationWithoutBlockFails(t *testing.T) {
	loading := redisError("LOADING Redis is loading the dataset in memory")
	for want, failure := range map[int64]error{1: loading, 2: io.EOF} {
		inBubble(t, nil, func(t *testing.T, x *fixture) {
			x.hook = func(grant bool, send func() error) error {
				if !grant {
					return send()
				}
				if x.hook = nil; want == 2 {
					require.NoError(t, send())
				}
				return failure
			}
			n, _, err := x.next(t.Context())
			if want == 2 {
				require.ErrorIs(t, err, failure)
				n, _, err = x.next(t.Context())
			}
			require.NoError(t, err)
			require.Equal(t, want, n.Last)
		})
	}
}

type redisError string

func (e redisError) Error() string { return string(e) }
func (redisError) RedisError()     {}

// A ledger is slow. It must have time until shortly before the lock expires. Sequences that it reserves later must
// become a gap.
func TestLedgerIsLate(t *testing.T) {
	inBubble(t, withLedger(9*time.Second), func(t *testing.T, x *fixture) {
		began := time.Now()
		_, _, err := x.next(context.Background())
		require.ErrorIs(t, err, ErrLedger)
		require.ErrorIs(t, err, ErrNoAnswer)
		require.True(t, wire.IsOutage(err))
		require.Equal(t, LockExpiry-margin, time.Since(began))
		time.Sleep(3 * time.Second)
		require.Equal(t, []Gap{{Type: "IS", First: 1, Last: 10, Cause: BlockBurned}}, x.explained())
	})
	// If callers without a ledger issue numbers of the period, too, the state of the numbers is not known.
	inBubble(t, withLedger(9*time.Second), func(t *testing.T, x *fixture) {
		other := *x.Config
		other.Reserve = nil
		_, _, err := (&fixture{Series: New(other), redis: x.redis}).next(t.Context())
		require.NoError(t, err)
		_, _, err = x.next(t.Context())
		require.ErrorIs(t, err, ErrLedger)
		time.Sleep(3 * time.Second)
		require.Empty(t, x.explained())
	})
	// A floor that observes its context returns its own error half a second earlier.
	inBubble(t, func(_ *fixture, c *Config) {
		c.Floor = func(ctx context.Context, _ string, _ time.Time) (int64, error) {
			<-ctx.Done()
			return 0, io.ErrUnexpectedEOF
		}
	}, func(t *testing.T, x *fixture) {
		began := time.Now()
		_, _, err := x.next(context.Background())
		require.ErrorIs(t, err, io.ErrUnexpectedEOF)
		require.Equal(t, LockExpiry-margin-margin/2, time.Since(began))
	})
	// An operator needs no lock, and has as much time.
	inBubble(t, withLedger(9*time.Second), func(t *testing.T, x *fixture) {
		call, err := x.NewCall(context.Background(), "IS", "", 0)
		require.NoError(t, err)
		began := time.Now()
		require.ErrorIs(t, call.Raise(context.Background(), ForRaise, 5, true), ErrLedger)
		require.Equal(t, LockExpiry-margin, time.Since(began))
	})
}
