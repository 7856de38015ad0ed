package exchange

import (
	"context"
	"fmt"
	"io"
	"maps"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/dailyserial/serial/internal/calendar"
	"github.com/dailyserial/serial/internal/race"
	"github.com/dailyserial/serial/internal/redisrun"
	"github.com/dailyserial/serial/internal/redistest"
	"github.com/dailyserial/serial/internal/store"
)

// newExchange returns an Exchange of days in UTC with a fake server, and the gaps that it reports.
func newExchange(t *testing.T, f *redistest.Fake) (*Exchange, *[]Gap) {
	days := calendar.Calendar{Location: time.UTC}.With(calendar.Day)
	var gaps []Gap
	var mu sync.Mutex
	c := &Config{
		Client: f.Client(t), Prefix: "serial", Calendar: days, Counts: "days", PrintMark: "0123456789ab", Limit: 9999,
		MaxSkew: time.Hour, Template: "{seq}", Key: "plain",
		SpanAt: func(at time.Time) (calendar.Span, error) {
			p := days.At(at)
			return calendar.Span{Period: *p, From: p.Start, To: p.End, Date: p.Label}, nil
		},
		Explain: func(g Gap) {
			mu.Lock()
			defer mu.Unlock()
			gaps = append(gaps, g)
		},
		Pending: func(int) {},
	}
	return New(c), &gaps
}

func begin(ctx context.Context, x *Exchange, typ string) *Session {
	var s Session
	x.Begin(ctx, &s, typ, "")
	return &s
}

// status is the reply of a script that issued nothing, at an instant.
func status(s store.Status, at time.Time, more ...any) []any {
	return append([]any{string(s), at.Unix(), int64(0)}, more...)
}

// period returns the period that a script was sent for.
func period(args []any) string {
	var label string
	_, _ = fmt.Sscan(args[3+args[2].(int)].(string), &label)
	return label
}

// A request is aimed again where the server's clock is, and the next one goes there at once.
func TestAimAgain(t *testing.T) {
	race.Bubble(t, func(t *testing.T) {
		ahead := time.Now().Add(24 * time.Hour)
		f := &redistest.Fake{Answer: func(n int, args []any) (any, error) {
			if period(args) != "20000102" {
				return status(store.Clock, ahead), nil
			}
			return int64(7), nil
		}}
		x, _ := newExchange(t, f)
		s := begin(t.Context(), x, "IS")
		r, err := s.Send(t.Context(), s.TakeNumbers(1), false)
		require.NoError(t, err)
		require.EqualValues(t, 7, r.Last)
		require.Equal(t, "20000102", r.Span.Label)
		require.Len(t, f.Requested, 2)
		require.Equal(t, 24*time.Hour, s.Events().Offset)
		require.Zero(t, s.Events().Before)

		s = begin(t.Context(), x, "IS")
		_, err = s.Send(t.Context(), s.TakeNumbers(1), false)
		require.NoError(t, err)
		require.Len(t, f.Requested, 3, "the offset is known")
		require.Zero(t, s.Events().Offset)
	})
}

// A clock that is somewhere else in every reply is not followed for ever.
func TestUnsteadyClock(t *testing.T) {
	race.Bubble(t, func(t *testing.T) {
		f := &redistest.Fake{Answer: func(n int, _ []any) (any, error) {
			return status(store.Clock, time.Now().AddDate(0, 0, 2*(n%2)+1)), nil
		}}
		x, _ := newExchange(t, f)
		s := begin(t.Context(), x, "IS")
		_, err := s.Send(t.Context(), s.TakeNumbers(1), false)
		require.True(t, IsRefused(err, Unsteady), err)
		require.Len(t, f.Requested, 11, "it is followed ten times")
	})
}

// A clock that was set back is waited for, but not for longer than 5 s, and not if the caller has less time.
func TestAwaitClock(t *testing.T) {
	for _, test := range []struct {
		ahead, limit, took time.Duration
		asked              int
	}{
		{ahead: 3 * time.Second, limit: time.Minute, took: 3 * time.Second, asked: 2},
		{ahead: 6 * time.Second, limit: time.Minute, asked: 1},
		{ahead: 3 * time.Second, limit: 2 * time.Second, asked: 1},
	} {
		race.Bubble(t, func(t *testing.T) {
			begins := time.Now().Add(test.ahead)
			f := &redistest.Fake{Answer: func(int, []any) (any, error) {
				if time.Now().Before(begins) {
					return status(store.Future, time.Now(), fmt.Sprint("20000101 ", begins.Unix(), " ", begins.Unix()+9)), nil
				}
				return int64(7), nil
			}}
			x, _ := newExchange(t, f)
			ctx, cancel := context.WithTimeout(t.Context(), test.limit)
			defer cancel()
			s, began := begin(ctx, x, "IS"), time.Now()
			r, err := s.Send(ctx, s.TakeNumbers(2), false)
			require.NoError(t, err)
			require.Equal(t, test.asked == 1, r.Status == store.Future)
			require.Equal(t, test.took, time.Since(began))
			require.Len(t, f.Requested, test.asked)
		})
	}
}

// A period that has begun by the server's clock is not prepared, and nothing is sent.
func TestAimedTooLate(t *testing.T) {
	race.Bubble(t, func(t *testing.T) {
		f := &redistest.Fake{Answer: func(int, []any) (any, error) { return nil, redis.ErrClosed }}
		x, _ := newExchange(t, f)
		s := begin(t.Context(), x, "IS")
		r, err := s.Send(t.Context(), &store.Prepare{Next: &x.SpanAt(time.Now()).Stored}, false)
		require.NoError(t, err)
		require.Equal(t, store.Late, r.Status)
		require.Empty(t, f.Requested)
	})
}

// The members of a batch get their parts of the reply, in the order in which they came, and who has left is explained. A
// member that joins a waiting batch, and gets no number, sends nothing else.
func TestBatch(t *testing.T) {
	for _, joins := range []bool{false, true} {
		t.Run(fmt.Sprint(joins), func(t *testing.T) { testBatch(t, joins) })
	}
}

func testBatch(t *testing.T, joins bool) {
	race.Bubble(t, func(t *testing.T) {
		f := &redistest.Fake{Answer: func(n int, _ []any) (any, error) {
			time.Sleep(4 * time.Millisecond)
			if n == 0 {
				return int64(1), nil
			}
			return []any{"part", time.Now().Unix(), int64(0), "exhausted", int64(3), int64(4)}, nil
		}}
		x, gaps := newExchange(t, f)
		results := make([]string, 5)
		leaves, leave := context.WithCancel(t.Context())
		for i := range results {
			ctx := t.Context()
			if i == 2 {
				ctx = leaves
			}
			go func() {
				s := begin(ctx, x, "IS")
				var span *Span
				var r Reply
				var err error
				if joins {
					span, r.Last, err = s.Join(ctx)
					require.Equal(t, i == 2 || i == 3, span != nil || err != nil, i)
					r.Status = store.Issued
				}
				if span == nil && err == nil {
					r, err = s.Send(ctx, s.TakeNumbers(1), false)
				}
				if err != nil {
					r = Reply{}
				}
				results[i] = fmt.Sprint(r.Status, " ", r.Last, " ", r.Detail, " ", err != nil)
			}()
			synctest.Wait() // so that they come in this order; the first one is sent alone
		}
		time.Sleep(6 * time.Millisecond)
		leave()
		time.Sleep(time.Minute)
		synctest.Wait()
		want := []string{"issued 1  false", "issued 2  false", " 0  true", "issued 4  false", "exhausted 0 4 false"}
		require.Equal(t, want, results)
		require.Len(t, f.Requested, 2)
		require.Len(t, *gaps, 1)
		require.Equal(t, []int64{3, 3}, []int64{(*gaps)[0].First, (*gaps)[0].Last})
		require.Equal(t, CallerLeft, (*gaps)[0].Cause)
	})
}

// Batches that wait at midnight go to the server separately: a script counts all its types in one period.
func TestBatchesAtMidnight(t *testing.T) {
	race.Bubble(t, func(t *testing.T) {
		time.Sleep(24*time.Hour - 2500*time.Microsecond)
		var got sync.Map // period by counter
		f := &redistest.Fake{}
		f.Answer = func(n int, args []any) (any, error) {
			if n == 0 {
				time.Sleep(4 * time.Millisecond) // meanwhile, others wait
			}
			var replies []any
			for i := 0; i < args[2].(int); i += 2 {
				got.Store(args[3+i], period(args))
				replies = append(replies, int64(1))
			}
			if len(replies) == 1 {
				return replies[0], nil
			}
			return replies, nil
		}
		x, _ := newExchange(t, f)
		for _, typ := range []string{"A", "B", "C"} {
			go func() {
				s := begin(t.Context(), x, typ)
				r, err := s.Send(t.Context(), s.TakeNumbers(1), false)
				require.NoError(t, err)
				require.EqualValues(t, 1, r.Last)
			}()
			time.Sleep(1500 * time.Microsecond)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Equal(t, map[any]any{"serial:{A}:20000101": "20000101", "serial:{B}:20000101": "20000101",
			"serial:{C}:20000102": "20000102"}, maps.Collect(got.Range))
	})
}

// If the answer to a shared call comes late, every type's own number is reported.
func TestLateAnswerOfTypes(t *testing.T) {
	race.Bubble(t, func(t *testing.T) {
		f := &redistest.Fake{Answer: func(n int, _ []any) (any, error) {
			switch n {
			case 0:
				time.Sleep(4 * time.Millisecond) // meanwhile, B and C wait
				return int64(1), nil
			case 1:
				time.Sleep(12 * time.Second)
				return []any{int64(5), int64(8)}, nil
			}
			return []any{int64(6), int64(9)}, nil
		}}
		x, gaps := newExchange(t, f)
		for typ, last := range map[string]int64{"A": 1, "B": 6, "C": 9} {
			go func() {
				time.Sleep(time.Duration(typ[0]-'A') * time.Millisecond)
				s := begin(t.Context(), x, typ)
				r, err := s.Send(t.Context(), s.TakeNumbers(1), false)
				require.NoError(t, err)
				require.Equal(t, last, r.Last)
			}()
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Len(t, f.Requested, 3)
		got := map[string][2]int64{}
		for _, g := range *gaps {
			require.Equal(t, CallerLeft, g.Cause)
			got[g.Type] = [2]int64{g.First, g.Last}
		}
		require.Equal(t, map[string][2]int64{"B": {5, 5}, "C": {8, 8}}, got)
	})
}

// What an opening skips is only possible, and its block is burned only if it can no longer be installed.
func TestGapsOfOpenings(t *testing.T) {
	block := &store.Block{After: 20, Upto: 30}
	issued := store.Reply{Status: store.Issued, Skipped: store.Skipped{From: 5, Upto: 20}}
	lost := store.Reply{Status: store.Issued, Skipped: store.Skipped{From: -1, Upto: 20}}
	late := store.Reply{Status: store.Late}
	mixed := store.Reply{Status: store.Late, Granted: store.Granted{Mixed: true}}
	open := store.Open{Block: block}
	for name, test := range map[string]struct {
		open  store.Open
		lift  Lift
		reply store.Reply
		err   error
		want  string
	}{
		"lifted by an operator": {store.Open{}, Lift{Seq: 20}, issued, nil, "[{6 20 Raised}]"},
		"above the floor":       {store.Open{}, Lift{Seq: 20, Floor: 12}, issued, nil, "[{13 20 Raised}]"},
		"by a block":            {open, Lift{}, issued, nil, "[{6 20 BlockSkipped}]"},
		"by both":               {open, Lift{Seq: 9}, issued, nil, "[{6 9 Raised} {10 20 BlockSkipped}]"},
		"above earlier blocks": {open, Lift{Seq: 18, Ledger: 12}, issued, nil,
			"[{6 12 BlockSkipped} {13 18 Raised} {19 20 BlockSkipped}]"},
		"within an earlier block": {open, Lift{Seq: 9, Ledger: 12}, issued, nil,
			"[{6 12 BlockSkipped} {13 20 BlockSkipped}]"},
		"not as far as asked":      {store.Open{}, Lift{Seq: 30}, issued, nil, "[{6 20 Raised}]"},
		"from a lost counter":      {store.Open{}, Lift{Seq: 20}, lost, nil, "[]"},
		"refused":                  {open, Lift{}, late, nil, "[{21 30 BlockBurned}]"},
		"callers without a ledger": {open, Lift{Mixed: true}, late, nil, "[]"},
		"callers without, by then": {open, Lift{}, mixed, nil, "[]"},
		"another's period":         {open, Lift{}, store.Reply{Status: store.Conflict}, nil, "[]"},
		"never sent":               {open, Lift{}, store.Reply{}, redisrun.ErrUnsent, "[{21 30 BlockBurned}]"},
		"it may have run":          {open, Lift{}, store.Reply{}, redis.ErrClosed, "[]"},
		"an attempt may yet run": {open, Lift{}, store.Reply{Status: store.Late,
			Delivery: store.Delivery{Unanswered: []store.LateReply{store.Failed(redis.ErrClosed)}}}, nil, "[]"},
	} {
		names := map[Cause]string{Raised: "Raised", BlockSkipped: "BlockSkipped", BlockBurned: "BlockBurned"}
		type gap struct {
			first, last int64
			cause       string
		}
		got := []gap{}
		g := gaps{report: func(g Gap) { got = append(got, gap{g.First, g.Last, names[g.Cause]}) }, limit: 9999}
		test.open.Type = "IS"
		g.opening(&Span{}, &test.open, test.lift, &test.reply, test.err)
		require.Equal(t, test.want, fmt.Sprint(got), name)
	}
}

// An attempt whose answer is lost may have taken any number above the high-water mark, unless the client says that it
// was not sent. The clock probe takes none.
func TestGapsOfLostAnswers(t *testing.T) {
	for name, test := range map[string]struct {
		err   error
		probe bool
		want  [][]int64
	}{
		"no answer":       {err: io.EOF, want: [][]int64{{6, 9999}}},
		"not sent":        {err: redisrun.ErrUnsent},
		"the clock probe": {err: io.EOF, probe: true},
	} {
		race.Bubble(t, func(t *testing.T) {
			x, gaps := newExchange(t, &redistest.Fake{})
			s := begin(t.Context(), x, "IS")
			span := s.Current()
			if test.probe {
				span = x.spans.clockProbe
			}
			s.server.settle("IS", span, []store.LateReply{store.Failed(test.err)}, store.Requested{N: 1, HighWater: 5})
			synctest.Wait()
			var got [][]int64
			for _, g := range *gaps {
				require.Equal(t, AnswerLost, g.Cause)
				got = append(got, []int64{g.First, g.Last})
			}
			require.Equal(t, test.want, got, name)
		})
	}
}

// The offset of a clock is read in the middle of the round trip, and only one of those who share a reply reports it.
func TestOffset(t *testing.T) {
	race.Bubble(t, func(t *testing.T) {
		x, _ := newExchange(t, &redistest.Fake{})
		s, other := begin(t.Context(), x, "IS"), begin(t.Context(), x, "IS")
		sent := time.Now()
		reply := Reply{Span: s.Current(), Reply: store.Reply{Status: store.Clock, Timing: store.Timing{
			Now: sent.Add(time.Hour + 2*time.Millisecond), Sent: sent, Received: sent.Add(4 * time.Millisecond),
		}}}
		require.NoError(t, s.observe(&reply, nil))
		require.NoError(t, other.observe(&reply, nil))
		require.Equal(t, time.Hour, s.Events().Offset)
		require.Zero(t, other.Events().Offset)
	})
}

// The high-water mark is that of the latest period, and late replies do not bring an old one back.
func TestMemory(t *testing.T) {
	race.Bubble(t, func(t *testing.T) {
		x, _ := newExchange(t, &redistest.Fake{})
		m, k := &x.memory, &clock{}
		today, tomorrow := x.SpanAt(time.Now()), x.SpanAt(time.Now().Add(24*time.Hour))
		m.remember("IS", today, 5, k)
		m.remember("IS", today, 3, k)
		m.remember("PO", today, 1, k)
		require.EqualValues(t, 5, m.series("IS", today).HighWater)
		require.Zero(t, m.series("IS", tomorrow).HighWater)

		time.Sleep(24 * time.Hour)
		m.remember("IS", tomorrow, 2, k)
		require.EqualValues(t, 2, m.series("IS", tomorrow).HighWater)
		require.Len(t, m.types, 1, "PO's period has ended")
		m.remember("IS", today, 6, k)
		require.Zero(t, m.series("IS", today).HighWater)
		require.EqualValues(t, 2, m.series("IS", tomorrow).HighWater)
	})
}

// A clock that was ahead and is right again leaves no type without a high-water mark. A day that has begun by one
// server's clock forgets no type of a server where it has not.
func TestMemoryOfOtherClocks(t *testing.T) {
	race.Bubble(t, func(t *testing.T) {
		x, _ := newExchange(t, &redistest.Fake{})
		m, k, ahead := &x.memory, &clock{}, &clock{}
		today, later := x.SpanAt(time.Now()), x.SpanAt(time.Now().Add(72*time.Hour))
		m.remember("IS", today, 5, k)
		ahead.offset.Store((72 * time.Hour).Microseconds())
		m.remember("PO", later, 5, ahead)
		require.EqualValues(t, 5, m.series("IS", today).HighWater, "another server's")

		m.remember("IS", later, 7, ahead)
		ahead.offset.Store(0)
		m.remember("NEW", today, 2, ahead)
		m.remember("IS", today, 8, ahead)
		for typ, want := range map[string]int64{"IS": 8, "NEW": 2} {
			require.Equal(t, want, m.series(typ, today).HighWater, typ)
		}
	})
}

// In a period that never ends, a type is forgotten once it has not been used for 48 hours or a little longer, and one
// that is used is not.
func TestMemoryOfNever(t *testing.T) {
	race.Bubble(t, func(t *testing.T) {
		x, _ := newExchange(t, &redistest.Fake{})
		m := &memory{store: x.store, types: map[string]*entry{}, endless: true, made: time.Now()}
		k, always := &clock{}, x.SpanAt(time.Unix(0, 0))
		for i := range 500 {
			m.remember(fmt.Sprint("T", i), always, 1, k)
		}
		for seq := range int64(20) {
			m.remember("IS", always, 1+seq, k)
			time.Sleep(12 * time.Hour)
		}
		require.Len(t, m.types, 1)
		require.EqualValues(t, 20, m.series("IS", always).HighWater)
		time.Sleep(23 * time.Hour)
		m.remember("T0", always, 2, k)
		time.Sleep(46 * time.Hour)
		m.remember("T1", always, 1, k)
		require.EqualValues(t, 2, m.series("T0", always).HighWater, "46 hours are remembered")
	})
}
