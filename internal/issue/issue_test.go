package issue

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dailyserial/serial/internal/budget"
	"github.com/dailyserial/serial/internal/calendar"
	"github.com/dailyserial/serial/internal/exchange"
	"github.com/dailyserial/serial/internal/race"
	"github.com/dailyserial/serial/internal/redistest"
	"github.com/dailyserial/serial/internal/store"
)

// fakeLocks grant the lock, or fail with err.
type fakeLocks struct {
	err      error
	takes    time.Duration // time of an attempt
	tried    atomic.Int32
	released atomic.Int32
	patience atomic.Int64 // of the last Release, as a time.Duration
}

func (l *fakeLocks) Try(context.Context, *budget.Budget, string, string) (Lock, error) {
	time.Sleep(l.takes)
	if l.tried.Add(1); l.err != nil {
		return nil, l.err
	}
	return l, nil
}

func (l *fakeLocks) Content() string { return "token" }

func (l *fakeLocks) Release(_ context.Context, patience time.Duration) {
	l.released.Add(1)
	l.patience.Store(int64(patience))
}

// An office has an Issuer of days in UTC on a fake server.
type office struct {
	redistest.Fake
	*Issuer
	locks fakeLocks
	mu    sync.Mutex
	gaps  []exchange.Gap
}

// newOffice returns an office whose server answers the scripts of these names, in order: "take", "open" or "release".
func newOffice(t *testing.T, change func(c *Config), replies ...reply) *office {
	o := &office{}
	o.Answer = func(n int, args []any) (any, error) {
		if n >= len(replies) {
			return nil, fmt.Errorf("unexpected script %d: %v", n, args)
		}
		if name := scriptOf(args); name != replies[n].script {
			return nil, fmt.Errorf("script %d is %s", n, name)
		}
		return replies[n].value, replies[n].err
	}
	days := calendar.Calendar{Location: time.UTC}.With(calendar.Day)
	var c Config
	c.Client, c.Prefix, c.Calendar, c.Counts = o.Client(t), "serial", days, "days"
	c.PrintMark, c.Limit = "0123456789ab", 9999
	c.MaxSkew, c.Template, c.Key, c.Block = time.Hour, "{seq}", "plain", 10
	c.SpanAt = func(at time.Time) (calendar.Span, error) {
		p := days.At(at)
		return calendar.Span{Period: *p, From: p.Start, To: p.End, Date: p.Label}, nil
	}
	c.Pending = func(int) {}
	c.Explain = func(g exchange.Gap) {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.gaps = append(o.gaps, g)
	}
	if change != nil {
		change(&c)
	}
	o.Issuer = New(c)
	return o
}

// reported returns the gaps that were reported so far.
func (o *office) reported() []exchange.Gap {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Clone(o.gaps)
}

// A reply is what a script answers.
type reply struct {
	script string
	value  any
	err    error
}

func scriptOf(args []any) string {
	switch args[1] {
	case store.TakeScript.Digest:
		return "take"
	case store.OpenScript.Digest:
		return "open"
	}
	return "another"
}

// answer is a reply that issued nothing.
func answer(script string, s store.Status, more ...any) reply {
	return reply{script, append([]any{string(s), time.Now().Unix(), int64(0)}, more...), nil}
}

// next issues a number by the published sequence, and returns the steps on the way.
func (o *office) next(ctx context.Context) (last int64, steps []Step, err error) {
	c, err := o.NewCall(ctx, "IS", "")
	if err != nil {
		return 0, nil, err
	}
	defer func() { c.End(err) }()
	for {
		out := c.Take(ctx, 1)
		steps = append(steps, out.Step)
		if out.Step == Missing {
			out = c.Lock(ctx, &o.locks, out)
			steps = append(steps, out.Step)
		}
		if out.Step == Locked {
			out = c.Open(ctx, 1, out)
			steps = append(steps, out.Step)
		}
		if out.Step == Wait {
			out = c.Wait(ctx)
		}
		if out.Step == Done {
			return out.Numbers.Last, steps, out.Err
		}
	}
}

// pass lets time pass in a bubble, until all goroutines wait again.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// inBubble runs f, at the time of the bubble.
func inBubble(t *testing.T, f func(t *testing.T)) { race.Bubble(t, f) }

// The steps of the published sequence, as the replies lead to them.
func TestSequence(t *testing.T) {
	for name, test := range map[string]struct {
		replies  func() []reply
		locked   error // of the lock
		last     int64
		steps    []Step
		released int32 // locks that the caller gave back itself
		err      error
	}{
		"the counter exists": {replies: func() []reply { return []reply{{script: "take", value: int64(7)}} },
			last: 7, steps: []Step{Done}},
		"it is missing": {replies: func() []reply {
			return []reply{answer("take", store.Missing), {script: "open", value: int64(1)}}
		}, last: 1, steps: []Step{Missing, Locked, Done}},
		"the lock is another's": {replies: func() []reply {
			return []reply{answer("take", store.Missing), {script: "take", value: int64(2)}}
		}, locked: ErrTaken, last: 2, steps: []Step{Missing, Wait, Done}},
		"the lock server fails": {replies: func() []reply {
			return []reply{answer("take", store.Missing), {script: "take", value: int64(2)}}
		}, locked: io.EOF, last: 2, steps: []Step{Missing, Wait, Done}},
		"the lock must not be asked for": {replies: func() []reply { return []reply{answer("take", store.Missing)} },
			locked: os.ErrPermission, steps: []Step{Missing, Done}, err: os.ErrPermission},
		"the opening comes late": {replies: func() []reply {
			return []reply{answer("take", store.Missing), answer("open", store.Late), {script: "take", value: int64(2)}}
		}, last: 2, steps: []Step{Missing, Locked, Wait, Done}, released: 1},
		"the period is over before": {replies: func() []reply {
			return []reply{answer("take", store.Missing), answer("open", store.Clock), {script: "take", value: int64(2)}}
		}, last: 2, steps: []Step{Missing, Locked, Wait, Done}, released: 1},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				o := newOffice(t, nil, test.replies()...)
				o.locks.err = test.locked
				last, steps, err := o.next(t.Context())
				require.ErrorIs(t, err, test.err)
				require.Equal(t, test.last, last)
				require.Equal(t, test.steps, steps)
				require.Len(t, o.Requested, len(test.replies()))
				require.Equal(t, test.released, o.locks.released.Load())
			})
		})
	}
}

// An opening may come as late as the lock lasts, counted from when the lock was requested.
func TestLeaseEndsWithTheLock(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		o := newOffice(t, func(c *Config) {
			c.Floor = func(context.Context, string, time.Time) (int64, error) { return 0, nil }
		})
		o.locks.takes = 2 * time.Second
		o.Answer = func(_ int, args []any) (any, error) {
			if scriptOf(args) == "open" {
				return int64(1), nil
			}
			return answer("take", store.Missing).value, nil
		}
		_, _, err := o.next(t.Context())
		require.NoError(t, err)
		require.Len(t, o.Requested, 3)
		open := o.Requested[2]
		lease := 2 + open[2].(int) + 11 // arguments follow the keys
		require.Equal(t, (LockExpiry - o.locks.takes).Milliseconds(), open[lease])
	})
}

// Giving the lock back waits for a server that answered, and not for one that did not.
func TestGivingBackWaits(t *testing.T) {
	for _, silent := range []bool{false, true} {
		inBubble(t, func(t *testing.T) {
			opened := answer("open", store.Exhausted, "9999")
			if silent {
				opened = reply{script: "open", err: io.EOF}
			}
			o := newOffice(t, nil, answer("take", store.Missing), opened)
			_, _, err := o.next(t.Context())
			require.Error(t, err)
			require.EqualValues(t, 1, o.locks.released.Load())
			want := LockPatience
			if silent {
				want = 0
			}
			require.EqualValues(t, want, o.locks.patience.Load(), silent)
		})
	}
}

// What refuses a call is data, and names the period and the high-water mark.
func TestRefusals(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		o := newOffice(t, nil, reply{script: "take", value: int64(7)}, answer("take", store.Lost, "3"))
		_, _, err := o.next(t.Context())
		require.NoError(t, err)
		_, steps, err := o.next(t.Context())
		refusal, ok := errors.AsType[*exchange.Refusal](err)
		require.True(t, ok)
		require.Equal(t, []Step{Done}, steps)
		require.Equal(t, []any{exchange.Lost, "20000101", "3", int64(7)},
			[]any{refusal.Status, refusal.Period.Label, refusal.Detail, refusal.HighWater})
	})
}

// A server's clock that is too far from this host's opens nothing.
func TestSkew(t *testing.T) {
	for skew, refused := range map[time.Duration]bool{
		50 * time.Minute: false, 70 * time.Minute: true, -70 * time.Minute: true,
	} {
		inBubble(t, func(t *testing.T) {
			time.Sleep(12 * time.Hour)
			missing := reply{"take", []any{string(store.Missing), time.Now().Add(skew).Unix(), int64(0)}, nil}
			o := newOffice(t, nil, missing, reply{script: "open", value: int64(1)})
			_, _, err := o.next(t.Context())
			require.Equal(t, refused, exchange.IsRefused(err, exchange.Skewed), skew)
			require.Equal(t, refused, err != nil)
		})
	}
}

// So it is in a period that is too short for a lock.
func TestSkewWithoutALock(t *testing.T) {
	for skew, refused := range map[time.Duration]bool{
		50 * time.Minute: false, 70 * time.Minute: true, -70 * time.Minute: true,
	} {
		inBubble(t, func(t *testing.T) {
			time.Sleep(12 * time.Hour)
			missing := reply{"take", []any{string(store.Missing), time.Now().Add(skew).Unix(), int64(0)}, nil}
			o := newOffice(t, func(c *Config) {
				seconds := calendar.Calendar{Location: time.UTC}.With(calendar.Second)
				c.Calendar, c.Counts, c.Seconds = seconds, "seconds", true
				c.SpanAt = func(at time.Time) (calendar.Span, error) {
					p := seconds.At(at)
					return calendar.Span{Period: *p, From: p.Start, To: p.End, Date: p.Label}, nil
				}
			}, missing, reply{script: "open", value: int64(1)})
			_, _, err := o.next(t.Context())
			require.Equal(t, refused, exchange.IsRefused(err, exchange.Skewed), skew)
			require.Equal(t, refused, err != nil)
			require.Zero(t, o.locks.tried.Load())
		})
	}
}

// The floor is asked under the lock after another look, and the period is opened above its answer.
func TestFloor(t *testing.T) {
	boom := errors.New("boom")
	for name, test := range map[string]struct {
		floor   func() (int64, error)
		opens   bool
		err     error
		message string
	}{
		"it answers":              {floor: func() (int64, error) { return 40, nil }, opens: true},
		"it fails":                {floor: func() (int64, error) { return 0, boom }, err: boom},
		"its answer is too great": {floor: func() (int64, error) { return 10_000, nil }, message: "answered 10000"},
		"it hangs": {floor: func() (int64, error) { time.Sleep(time.Minute); return 40, nil },
			err: os.ErrDeadlineExceeded},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				replies := []reply{answer("take", store.Missing), answer("take", store.Missing), {script: "open", value: int64(41)}}
				o := newOffice(t, func(c *Config) {
					c.Floor = func(context.Context, string, time.Time) (int64, error) { return test.floor() }
				}, replies...)
				began := time.Now()
				last, _, err := o.next(t.Context())
				require.Less(t, time.Since(began), LockExpiry)
				if !test.opens {
					require.Error(t, err)
					if test.err != nil {
						require.ErrorIs(t, err, test.err)
					}
					require.ErrorContains(t, err, test.message)
					require.ErrorIs(t, err, ErrFloor)
					require.Len(t, o.Requested, 2)
					require.EqualValues(t, 1, o.locks.released.Load())
					pass(time.Minute)
					return
				}
				require.NoError(t, err)
				require.EqualValues(t, 41, last)
				require.True(t, slices.Contains(o.Requested[2], any(int64(40))), "the floor is an argument")
			})
		})
	}
}

// argument returns a script's argument by its number in Lua.
func argument(args []any, n int) any { return args[2+args[2].(int)+n] }

// A start does not count above a floor's answer, and a floor may replace a counter that is lost.
func TestFloorBelowTheStart(t *testing.T) {
	for _, ledger := range []bool{false, true} {
		inBubble(t, func(t *testing.T) {
			id := "0123456789012345678901234567890123456789"
			o := newOffice(t, func(c *Config) {
				c.Base = 99
				c.Floor = func(context.Context, string, time.Time) (int64, error) { return 40, nil }
				if ledger {
					c.Reserve = func(_ context.Context, _, _ string, above, _ int64) (int64, error) { return above, nil }
				}
			})
			o.Answer = func(n int, args []any) (any, error) {
				switch {
				case scriptOf(args) == "open":
					return int64(41), nil
				case n == 1 && ledger:
					require.Equal(t, "floor", argument(args, 8))
					return answer("take", store.Reserved, id, int64(0), int64(1)).value, nil
				}
				return answer("take", store.Missing).value, nil
			}
			last, _, err := o.next(t.Context())
			require.NoError(t, err)
			require.EqualValues(t, 41, last)
			require.Len(t, o.Requested, 3)
			require.EqualValues(t, 0, argument(o.Requested[2], 8), "the base")
		})
	}
}

// Around midnight, a lock and a floor's answer count for their own period only.
func TestOpeningAcrossMidnight(t *testing.T) {
	for name, late := range map[string]struct{ lock, floor time.Duration }{
		"the lock is late": {lock: 2 * time.Second}, "the floor is late": {floor: 2 * time.Second},
	} {
		inBubble(t, func(t *testing.T) {
			time.Sleep(24*time.Hour - time.Second)
			var asked []int
			o := newOffice(t, func(c *Config) {
				c.Floor = func(_ context.Context, _ string, start time.Time) (int64, error) {
					asked = append(asked, start.Day())
					time.Sleep(late.floor)
					return 40, nil
				}
			})
			o.locks.takes = late.lock
			var opened []string
			o.Answer = func(_ int, args []any) (any, error) {
				label, _, _ := strings.Cut(argument(args, 1).(string), " ")
				if current := time.Now().UTC().Format("20060102"); label != current {
					opened = append(opened, label+" too late")
					return answer("", store.Clock).value, nil
				}
				if scriptOf(args) == "take" {
					return answer("", store.Missing).value, nil
				}
				opened = append(opened, label)
				return int64(41), nil
			}
			_, _, err := o.next(t.Context())
			require.NoError(t, err)
			require.EqualValues(t, 2, o.locks.tried.Load(), "each period has its own lock")
			if late.floor > 0 {
				require.Equal(t, []string{"20000101 too late", "20000102"}, opened, name)
				require.Equal(t, []int{1, 2}, asked)
			} else {
				require.Equal(t, []string{"20000102"}, opened, name)
				require.Equal(t, []int{2}, asked)
			}
		})
	}
}

// Each period that Prepare opens has its own budget.
func TestPrepareRenewsTheBudget(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		o := newOffice(t, nil, reply{script: "another", value: int64(0)})
		c, err := o.NewCall(t.Context(), "IS", "")
		require.NoError(t, err)
		fresh := c.session.Budget.Answer()
		c.session.Budget.Spend(time.Second, time.Second)
		require.Less(t, c.session.Budget.Answer(), fresh)
		next := o.SpanAt(time.Now().Add(24 * time.Hour))
		require.Equal(t, Outcome{}, c.Prepare(t.Context(), &next.Period, true))
		require.Equal(t, fresh, c.session.Budget.Answer())
	})
}

// A block is set aside under a claim, which is given back unless it was used, and a block that comes late is burned.
func TestBlocks(t *testing.T) {
	id := "0123456789012345678901234567890123456789"
	reserved := func() reply { return answer("take", store.Reserved, id, int64(20), int64(0)) }
	for name, test := range map[string]struct {
		replies func() []reply
		reserve func(above, n int64) (int64, error)
		last    int64
		burned  []int64
		err     error
	}{
		"it is installed": {
			replies: func() []reply {
				return []reply{answer("take", store.Ceiling), reserved(), {script: "open", value: int64(21)}}
			},
			reserve: func(above, n int64) (int64, error) { return above, nil }, last: 21,
		},
		"the ledger fails": {
			replies: func() []reply {
				return []reply{answer("take", store.Ceiling), reserved(), {script: "another", value: int64(1)}}
			},
			reserve: func(above, n int64) (int64, error) { return 0, io.EOF }, err: io.EOF,
		},
		"the ledger is late": {
			replies: func() []reply {
				return []reply{answer("take", store.Ceiling), reserved(), {script: "another", value: int64(1)}}
			},
			reserve: func(above, n int64) (int64, error) { time.Sleep(time.Minute); return above, nil },
			err:     ErrLedger, burned: []int64{21, 30},
		},
		"the claim is gone": {
			replies: func() []reply {
				return []reply{answer("take", store.Ceiling), reserved(), answer("open", store.Late),
					{script: "another", value: int64(1)}, reserved(), {script: "open", value: int64(31)}}
			},
			reserve: func() func(above, n int64) (int64, error) {
				after := int64(10)
				return func(above, n int64) (int64, error) { after += 10; return after, nil }
			}(),
			last: 31, burned: []int64{21, 30},
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				o := newOffice(t, func(c *Config) {
					c.Reserve = func(_ context.Context, _, label string, above, n int64) (int64, error) {
						require.Equal(t, "20000101", label)
						require.EqualValues(t, 10, n)
						return test.reserve(above, n)
					}
				}, test.replies()...)
				last, _, err := o.next(t.Context())
				pass(2 * time.Minute)
				require.ErrorIs(t, err, test.err)
				require.Equal(t, test.last, last)
				require.Len(t, o.Requested, len(test.replies()))
				var burned []int64
				for _, g := range o.reported() {
					require.Equal(t, exchange.BlockBurned, g.Cause)
					burned = append(burned, g.First, g.Last)
				}
				require.Equal(t, test.burned, burned)
			})
		})
	}
}

// A claim is given back even if the caller does not know whether it was granted.
func TestClaimThatMayHaveBeenGranted(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		replies := []reply{answer("take", store.Ceiling), {script: "take", err: io.ErrClosedPipe}, {script: "another"}}
		o := newOffice(t, func(c *Config) {
			c.Reserve = func(context.Context, string, string, int64, int64) (int64, error) { return 0, os.ErrInvalid }
		}, replies...)
		_, _, err := o.next(t.Context())
		require.ErrorIs(t, err, io.ErrClosedPipe)
		pass(time.Minute)
		require.Len(t, o.Requested, len(replies))
		token := o.Requested[2][len(o.Requested[2])-1]
		require.True(t, slices.Contains(o.Requested[1], token), "it is the claim that was requested")
	})
}

// Callers of one period wait for the one that opens it, and share an outage but no other error.
func TestFlights(t *testing.T) {
	for _, failure := range []error{nil, io.EOF} {
		inBubble(t, func(t *testing.T) {
			var opens atomic.Int32
			o := newOffice(t, nil)
			o.Answer = func(_ int, args []any) (any, error) {
				if scriptOf(args) == "open" {
					opens.Add(1)
					time.Sleep(time.Second)
					return int64(1), failure
				}
				if opens.Load() > 0 && failure == nil {
					return int64(2), nil
				}
				return answer("take", store.Missing).value, nil
			}
			errs := make([]error, 5)
			for i := range errs {
				go func() { _, _, errs[i] = o.next(t.Context()) }()
			}
			pass(time.Minute)
			for _, err := range errs {
				require.ErrorIs(t, err, failure)
			}
			require.EqualValues(t, 1, opens.Load())
			require.EqualValues(t, 1, o.locks.tried.Load())
		})
	}
}

// A caller whose time is almost over fails alone: others who wait for it have more time.
func TestFlightOfALateCaller(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		o := newOffice(t, func(c *Config) {
			c.Floor = func(context.Context, string, time.Time) (int64, error) { return 0, nil }
		})
		o.Answer = func(n int, args []any) (any, error) {
			switch {
			case scriptOf(args) == "open":
				return int64(1), nil
			case n == 0:
				time.Sleep(9 * time.Second)
			case slices.Contains(args, any("all")): // the look under the lock
				time.Sleep(3 * time.Second)
			}
			return answer("take", store.Missing).value, nil
		}
		var late, fresh error
		go func() { _, _, late = o.next(t.Context()) }()
		time.Sleep(9100 * time.Millisecond)
		go func() { _, _, fresh = o.next(t.Context()) }()
		pass(time.Minute)
		require.ErrorIs(t, late, os.ErrDeadlineExceeded)
		require.NoError(t, fresh)
	})
}

// A caller that has waited for another process until midnight opens the new day for its own process.
func TestFlightAcrossMidnight(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		time.Sleep(24*time.Hour - time.Second)
		o := newOffice(t, nil)
		o.locks.takes, o.locks.err = 2*time.Second, ErrTaken
		var opened atomic.Bool
		o.Answer = func(n int, args []any) (any, error) {
			switch {
			case n == 1: // the new day
				o.locks.err = nil
			case scriptOf(args) == "open":
				opened.Store(true)
				return int64(1), nil
			case opened.Load():
				return int64(2), nil
			}
			return answer("take", store.Missing).value, nil
		}
		go func() { _, _, _ = o.next(t.Context()) }()
		pass(3 * time.Second)
		last, _, err := o.next(t.Context())
		require.NoError(t, err)
		require.EqualValues(t, 2, last)
		require.EqualValues(t, 2, o.locks.tried.Load(), "one for each day")
	})
}

// An opening continues without a caller who leaves, and its number is explained.
func TestOpeningWithoutItsCaller(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		o := newOffice(t, nil)
		o.Answer = func(_ int, args []any) (any, error) {
			if scriptOf(args) == "open" {
				time.Sleep(time.Second)
				return int64(1), nil
			}
			return answer("take", store.Missing).value, nil
		}
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer cancel()
		_, _, err := o.next(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Empty(t, o.reported())
		pass(time.Minute)
		gaps := o.reported()
		require.Len(t, gaps, 1)
		require.Equal(t, exchange.CallerLeft, gaps[0].Cause)
		require.Equal(t, []int64{1, 1}, []int64{gaps[0].First, gaps[0].Last})
	})
}

// Raise lifts a counter that is too low, and none that is not.
func TestRaise(t *testing.T) {
	for name, test := range map[string]struct {
		replies func() []reply
		seq     int64
		asked   int
		refused bool
	}{
		"it is lower": {func() []reply {
			return []reply{{script: "take", value: int64(5)}, {script: "open", value: int64(9)}}
		}, 9, 2, false},
		"it is higher": {func() []reply { return []reply{{script: "take", value: int64(12)}} }, 9, 1, false},
		"it is missing": {func() []reply {
			return []reply{answer("take", store.Missing), {script: "open", value: int64(9)}}
		}, 9, 2, false},
		"it is another's": {func() []reply { return []reply{answer("take", store.Conflict)} }, 9, 1, true},
		"the period is over before": {func() []reply {
			return []reply{{script: "take", value: int64(5)}, answer("open", store.Clock), {script: "take", value: int64(9)}}
		}, 9, 3, false},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				o := newOffice(t, nil, test.replies()...)
				c, err := o.NewCall(t.Context(), "IS", "")
				require.NoError(t, err)
				err = c.Raise(t.Context(), ForRaise, test.seq)
				require.Equal(t, test.refused, exchange.IsRefused(err, store.Conflict))
				require.Equal(t, test.refused, err != nil)
				require.Len(t, o.Requested, test.asked)
				for _, args := range o.Requested {
					require.Equal(t, scriptOf(args) == "open", slices.Contains(args, any(test.seq)))
				}
			})
		})
	}
}

// A raise whose caller left before it looked lifts nothing: by now, another period may have begun.
func TestRaiseWithoutItsCaller(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		o := newOffice(t, nil)
		o.Answer = func(_ int, args []any) (any, error) {
			time.Sleep(time.Second)
			return int64(5), nil
		}
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer cancel()
		c, err := o.NewCall(ctx, "IS", "")
		require.NoError(t, err)
		require.ErrorIs(t, c.Raise(ctx, ForRaise, 9), context.DeadlineExceeded)
		pass(time.Minute)
		require.Len(t, o.Requested, 1)
	})
}

// A call's memory is not used again if the call sent something itself.
func TestFree(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		o := newOffice(t, nil, reply{script: "take", value: int64(1)}, reply{script: "take", value: int64(2)})
		for range 2 {
			c, err := o.NewCall(context.Background(), "IS", "")
			require.NoError(t, err)
			out := c.Take(context.Background(), 1)
			require.NoError(t, out.Err)
			c.End(nil)
			o.Free(c)
			another, err := o.NewCall(t.Context(), "IS", "")
			require.NoError(t, err)
			require.NotSame(t, c, another)
		}
	})
}
