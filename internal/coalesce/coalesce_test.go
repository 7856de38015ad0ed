package coalesce_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dailyserial/serial/internal/coalesce"
	"github.com/dailyserial/serial/internal/race"
)

type (
	batcher = coalesce.Batcher[string, int, int]
	batch   = coalesce.Batch[string, int, int]
)

const (
	most     = 8         // calls in flight
	patience = time.Hour // longest wait to be sent
)

// A server holds every call until told to answer. The result of a batch is its size.
type server struct {
	*batcher
	calls   chan []*batch // in the order in which they began
	answers chan struct{}
	err     error // of every batch
}

func newServer(together int) *server { return newServerFor(together, 1, nil) }

func newServerFor(together, base int, unsent func(b *batch, place int)) *server {
	s := &server{calls: make(chan []*batch, 10000), answers: make(chan struct{})}
	s.batcher = coalesce.New(together, base, most, func(batches []*batch) {
		s.calls <- batches
		<-s.answers
		for _, b := range batches {
			b.Finish(b.Size(), s.err)
		}
	}, unsent)
	return s
}

// join adds a caller, and starts every call that can begin.
func (s *server) join(key string) (b *batch, place int) {
	b, place, _ = s.Join(key, 0, patience, false)
	synctest.Wait()
	return b, place
}

// answer returns from the oldest call.
func (s *server) answer() {
	s.answers <- struct{}{}
	synctest.Wait()
}

// end returns from all calls, including later ones. Nothing is left then.
func (s *server) end(t *testing.T) {
	close(s.answers)
	time.Sleep(10 * time.Second) // until the stall timer has run
	synctest.Wait()
	require.True(t, s.Idle())
}

// inBubble runs f in a bubble, with a server that ends with it.
func inBubble(t *testing.T, together int, f func(t *testing.T, s *server)) {
	race.Bubble(t, func(t *testing.T) {
		s := newServer(together)
		f(t, s)
		s.end(t)
	})
}

// sizes returns the number of members of each batch in the next call.
func (s *server) sizes() (sizes []int) {
	for _, b := range <-s.calls {
		sizes = append(sizes, b.Size())
	}
	return sizes
}

// fill has lone callers take all places in flight, and returns their number and a function that gives them back.
func (s *server) fill() (places int, leave func()) {
	var taken []time.Time
	for p, ok := s.Alone(); ok; p, ok = s.Alone() {
		taken = append(taken, p)
	}
	return len(taken), func() {
		for _, p := range taken {
			s.Leave(p, false)
		}
		synctest.Wait()
	}
}

// trip makes a call that is answered after d.
func (s *server) trip(t *testing.T, d time.Duration) {
	p, ok := s.Alone()
	require.True(t, ok)
	time.Sleep(d)
	s.Leave(p, true)
}

// begun adds callers of one key one by one, and returns how many calls have begun.
func (s *server) begun(callers int) int {
	for range callers {
		s.join("A")
	}
	return len(s.calls)
}

// A caller that meets no other makes its call in its own goroutine, without allocations.
func TestAlone(t *testing.T) {
	s := newServer(1)
	require.Zero(t, testing.AllocsPerRun(100, func() {
		p, ok := s.Alone()
		require.True(t, ok)
		s.Leave(p, true)
	}))
	require.True(t, s.Idle())
	require.Empty(t, s.calls)
}

// Joining a waiting batch allocates nothing.
func TestJoinAllocates(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, s *server) {
		s.join("A")
		// while the previous one is in flight
		first, _ := s.join("A")
		require.Zero(t, testing.AllocsPerRun(10, func() { s.Join("A", 0, patience, false) })) // it runs eleven times
		b, place := s.join("A")
		require.Same(t, first, b)
		require.Equal(t, 12, place)
		s.answer()
		require.Equal(t, []int{1}, s.sizes())
		require.Equal(t, []int{13}, s.sizes())
	})
}

// Nobody overtakes waiting callers, even if a place is free.
func TestNobodyIsAloneWhileOthersWait(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, s *server) {
		for _, key := range []string{"A", "B", "C"} {
			s.join(key)
		}
		time.Sleep(time.Millisecond) // a round trip that allows several calls
		s.answer()
		require.Len(t, s.calls, 2)
		_, ok := s.Alone()
		require.False(t, ok)
	})
}

// Callers who arrive during a call share the next one, in their order of arrival.
func TestCallersShareTheNextCall(t *testing.T) {
	race.Bubble(t, func(t *testing.T) {
		s := newServer(1)
		_, leave := s.fill()
		var first *batch
		for i := range 10 {
			b, place, _ := s.Join("A", 100+i, patience, false)
			require.Equal(t, i, place)
			if first == nil {
				first = b
			}
			require.Same(t, first, b)
			time.Sleep(time.Microsecond)
		}
		require.Empty(t, s.calls)
		leave()
		require.Equal(t, []int{10}, s.sizes())
		require.Equal(t, []any{"A", 100, 10 * time.Microsecond}, []any{first.Key, first.Payload, first.Waited()})

		second, place := s.join("A")
		require.Zero(t, place, "the first batch is in flight")
		require.Empty(t, s.calls)
		s.answer()
		r, err := first.Wait(t.Context())
		require.NoError(t, err)
		require.Equal(t, 10, *r)
		require.Equal(t, []int{1}, s.sizes())
		s.end(t)
		r, err = second.Wait(context.Background())
		require.NoError(t, err)
		require.Equal(t, 1, *r)
	})
}

// However many callers come, together or alone, each has a part of its own and none is left over.
func TestExactParts(t *testing.T) {
	const callers, each, keys = 1000, 20, 3
	var counters [keys]atomic.Int64
	l := coalesce.New(2, 1, most, func(batches []*coalesce.Batch[int, int, int64]) {
		runtime.Gosched()
		for _, b := range batches {
			b.Finish(counters[b.Key].Add(int64(b.Size()))-int64(b.Size()), nil)
		}
	}, nil)
	var mu sync.Mutex
	got := [keys]map[int64]bool{{}, {}, {}}
	var wg sync.WaitGroup
	for i := range callers {
		wg.Go(func() {
			for j := range each {
				key := (i + j) % keys
				var n int64
				if p, ok := l.Alone(); ok {
					n = counters[key].Add(1)
					l.Leave(p, true)
				} else {
					b, place, _ := l.Join(key, 0, patience, false)
					before, err := b.Wait(context.Background())
					if err != nil {
						t.Error(err)
					}
					n = *before + int64(place) + 1
				}
				mu.Lock()
				got[key][n] = true
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	total := 0
	for key := range keys {
		total += len(got[key])
		for n := range counters[key].Load() {
			require.True(t, got[key][n+1], "part %d of key %d", n+1, key)
		}
	}
	require.Equal(t, callers*each, total)
}

// Whatever the round trip, base calls may be in flight, and no more.
func TestBase(t *testing.T) {
	for _, base := range []int{1, 2} {
		race.Bubble(t, func(t *testing.T) {
			s := newServerFor(10, base, nil)
			for i := range 4 {
				s.join(fmt.Sprint(i))
			}
			require.Len(t, s.calls, base)
			for range base {
				require.Len(t, <-s.calls, 1)
			}
			s.answer()
			require.Len(t, <-s.calls, 4-base, "all that waited")
			s.end(t)
		})
	}
}

// requireShared requires that ten goroutines on one thread share the calls of a hundred rounds: one call a round. On a
// busy machine, the scheduler may interrupt any of them, so it takes the best of several tries.
func requireShared(t *testing.T, try func(rounds int, calls *atomic.Int64)) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	const rounds = 100
	least := int64(math.MaxInt64)
	for tries := 0; tries < 50 && least >= rounds*3/2; tries++ {
		var calls atomic.Int64
		try(rounds, &calls)
		least = min(least, calls.Load())
	}
	require.Less(t, least, int64(rounds*3/2))
}

// Goroutines that are ready to run share even the first call, though it waits for nobody.
func TestReadyGoroutinesShare(t *testing.T) {
	requireShared(t, func(rounds int, calls *atomic.Int64) {
		for range rounds {
			l := coalesce.New(1, 1, most, counted(calls), nil) // a new one, since no dispatcher gathers there yet
			var wg sync.WaitGroup
			for range 10 {
				wg.Go(func() { share(l) })
			}
			wg.Wait()
		}
	})
}

// Callers who were just answered and call again share the next call, even if some take a little longer.
func TestAnsweredCallersShare(t *testing.T) {
	requireShared(t, func(rounds int, calls *atomic.Int64) {
		l := coalesce.New(1, 1, most, counted(calls), nil)
		var wg sync.WaitGroup
		for i := range 10 {
			wg.Go(func() {
				for range rounds {
					for range i % 3 {
						runtime.Gosched()
					}
					share(l)
				}
			})
		}
		wg.Wait()
	})
}

// Batches of different keys share a call, up to its capacity, in the order in which they began.
func TestKeysTravelTogether(t *testing.T) {
	inBubble(t, 4, func(t *testing.T, s *server) {
		_, leave := s.fill()
		for i := range 20 {
			s.join(fmt.Sprint(i % 10))
		}
		require.Empty(t, s.calls)
		leave()
		for i, n := range []int{4, 4, 2} {
			require.Len(t, s.calls, 1)
			call := <-s.calls
			require.Len(t, call, n)
			for j, b := range call {
				require.Equal(t, fmt.Sprint(4*i+j), b.Key)
				require.Equal(t, 2, b.Size())
			}
			s.answer()
		}
	})
}

// The number of calls in flight follows from the minimum round trip, and from how many wait.
func TestLimit(t *testing.T) {
	const µs, ms = time.Microsecond, time.Millisecond
	for _, c := range []struct {
		trips []time.Duration
		limit int
	}{
		{nil, 1}, {[]time.Duration{249 * µs}, 1}, {[]time.Duration{250 * µs}, 2}, {[]time.Duration{ms}, 5},
		{[]time.Duration{100 * ms}, 7}, {[]time.Duration{100 * ms, 600 * µs, 100 * ms}, 3},
	} {
		race.Bubble(t, func(t *testing.T) {
			s := newServer(1)
			for _, d := range c.trips {
				s.trip(t, d)
			}
			places, leave := s.fill()
			require.Equal(t, c.limit, places, "%v", c.trips)
			leave()
			require.Equal(t, c.limit, s.begun(20), "%v", c.trips)
			require.Equal(t, c.limit, s.begun(coalesce.ManyWaiting-20+c.limit-1))
			require.Equal(t, c.limit+1, s.begun(1), "enough callers wait")
			require.Equal(t, c.limit+1, s.begun(coalesce.ManyWaiting-1))
			s.end(t)
		})
	}
}

// The minimum round trip is the minimum of recent, answered calls.
func TestMinimumRoundTrip(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, s *server) {
		s.trip(t, 600*time.Microsecond)
		_, leave := s.fill()
		leave()
		for range 1000 {
			s.trip(t, time.Millisecond)
		}
		_, leave = s.fill()
		leave()
		require.Equal(t, 5, s.begun(10))
	})
	inBubble(t, 1, func(t *testing.T, s *server) {
		call := func(d time.Duration) {
			s.join("trip")
			time.Sleep(d)
			s.answer()
			<-s.calls
		}
		call(600 * time.Microsecond)
		s.err = errors.New("refused")
		call(0)
		require.Equal(t, 3, s.begun(10))
	})
}

// A stalled call delays the others for only a few milliseconds. However many stall, at most one call is added per
// interval, and stalled calls that return in the end do not count twice.
func TestStalled(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, s *server) {
		s.trip(t, 200*time.Microsecond)
		start := time.Now()
		want := []time.Duration{0, 8 * time.Millisecond} // when calls begin; the first stalls after 5 ms and 10 round trips
		for len(want) < 21 {
			want = append(want, want[len(want)-1]+coalesce.StallInterval)
		}
		var began []time.Duration
		for time.Since(start) < time.Second {
			if s.begun(1) > len(began) {
				began = append(began, time.Since(start))
			}
			time.Sleep(2 * time.Millisecond) // fewer than ManyWaiting wait at a time
		}
		require.Equal(t, want, began)
		for range len(want) - 1 {
			s.answer()
			require.Len(t, s.calls, len(want), "the last one only holds a place")
		}
		s.answer()
		require.Len(t, s.calls, len(want)+1)
		require.Equal(t, len(want)+1, s.begun(3))
	})
}

// The oldest call gives up its place, and the others keep theirs.
func TestOldestStalls(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, s *server) {
		s.trip(t, 300*time.Microsecond)
		require.Equal(t, 1, s.begun(1))
		time.Sleep(5 * time.Millisecond)
		require.Equal(t, 2, s.begun(2))
		time.Sleep(4 * time.Millisecond)
		require.Equal(t, 3, s.begun(1), "the first has stalled")
		s.answer()
		require.Len(t, s.calls, 3)
		s.answer()
		require.Len(t, s.calls, 4)
	})
}

// The stall timer keeps running after a call is answered, for those who wait for the next one.
func TestNextCallStalls(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, s *server) {
		s.trip(t, 100*time.Microsecond)
		require.Equal(t, 1, s.begun(2))
		time.Sleep(4 * time.Millisecond)
		s.answer()
		require.Equal(t, 2, s.begun(1))
		time.Sleep(time.Second)
		require.Len(t, s.calls, 3)
	})
}

// A caller that stalls in its own goroutine does not delay later ones at all.
func TestStalledAlone(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, s *server) {
		_, leave := s.fill()
		time.Sleep(time.Hour)
		require.Equal(t, 1, s.begun(2), "the second one waits for the first")
		leave()
		require.Len(t, s.calls, 1)
		s.answer()
		require.Len(t, s.calls, 2)
	})
}

// A healthy call keeps its place, however long others must wait for the next ones.
func TestLongQueue(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, s *server) {
		s.trip(t, 100*time.Microsecond)
		_, leave := s.fill()
		for i := range 30 { // fewer than ManyWaiting
			s.join(fmt.Sprint(i))
		}
		leave()
		for i := range 30 {
			time.Sleep(time.Millisecond)
			synctest.Wait()
			require.Len(t, s.calls, i+1)
			s.answer()
		}
	})
}

// A slow first call does not delay for long the reaction to one that stalls later.
func TestStalledAfterASlowStart(t *testing.T) {
	race.Bubble(t, func(t *testing.T) {
		var took atomic.Int64
		took.Store(int64(3 * time.Second))
		batcher := coalesce.New(1, 1, most, func(batches []*coalesce.Batch[string, int, int]) {
			time.Sleep(time.Duration(took.Load()))
			batches[0].Finish(0, nil)
		}, nil)
		p, _ := batcher.Alone()
		time.Sleep(3 * time.Second)
		batcher.Leave(p, true) // the minimum round trip is 3 s now
		for i := range 9 {
			batcher.Join(fmt.Sprint(i), 0, patience, false)
		}
		synctest.Wait()
		took.Store(int64(100 * time.Microsecond))
		time.Sleep(5 * time.Second)
		batcher.Join("Z", 0, patience, false)
		time.Sleep(time.Second)
		took.Store(int64(5 * time.Second))
		batcher.Join("hangs", 0, patience, false)
		time.Sleep(time.Millisecond)
		took.Store(int64(100 * time.Microsecond))
		start := time.Now()
		b, _, _ := batcher.Join("behind", 0, patience, false)
		_, err := b.Wait(t.Context())
		require.NoError(t, err)
		require.Less(t, time.Since(start), 200*time.Millisecond)
		time.Sleep(time.Minute)
	})
}

// A member that leaves does not stop the others, and keeps its part.
func TestMembersLeave(t *testing.T) {
	race.Bubble(t, func(t *testing.T) {
		s := newServer(1)
		ctx, cancel := context.WithCancel(t.Context())
		b, _ := s.join("A")
		var wg sync.WaitGroup
		wg.Go(func() {
			_, err := b.Wait(ctx)
			require.ErrorIs(t, err, context.Canceled)
		})
		second, _, _ := s.Join("A", 0, patience, false)
		third, _, _ := s.Join("A", 0, patience, false)
		require.Same(t, second, third)
		wg.Go(func() {
			start := time.Now()
			limited, leave := context.WithTimeout(ctx, time.Millisecond)
			defer leave()
			_, err := second.Wait(limited)
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.Equal(t, time.Millisecond, time.Since(start))
			cancel()
		})
		wg.Wait()
		wg.Go(func() {
			r, err := third.Wait(t.Context())
			require.NoError(t, err)
			require.Equal(t, 2, *r)
		})
		s.end(t)
		wg.Wait()
	})
}

// A batch that cannot be sent within its limit ends then, and is never sent.
func TestLimitOfABatch(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, s *server) { // while the server hangs
		s.join("hangs")
		var batches []*batch
		for i := range 30 {
			b, _, _ := s.Join(fmt.Sprint(i), 0, time.Second, false)
			batches = append(batches, b)
		}
		time.Sleep(time.Second + coalesce.StallInterval)
		sent := len(s.calls)
		require.Less(t, sent, 25, "stalled calls have given up their places")
		ended := 0
		for _, b := range batches {
			if b.Finished() {
				_, err := b.Result()
				require.ErrorIs(t, err, coalesce.ErrUnsent)
				ended++
			}
		}
		require.Equal(t, 1+len(batches)-sent, ended)
		time.Sleep(time.Minute)
		require.Len(t, s.calls, sent)
	})
	inBubble(t, 2, func(t *testing.T, s *server) { // when a call returns
		s.trip(t, 100*time.Millisecond)
		_, leave := s.fill()
		first, _, _ := s.Join("first", 0, 20*time.Millisecond, false)
		time.Sleep(20 * time.Millisecond)
		second, _ := s.join("second")
		third, _ := s.join("third")
		leave()
		require.Len(t, s.calls, 1)
		require.Equal(t, []*batch{second, third}, <-s.calls)
		_, err := first.Wait(t.Context())
		require.ErrorIs(t, err, coalesce.ErrUnsent)
	})
}

// While this process is suspended, no batch waits: the server may be well.
func TestSuspended(t *testing.T) {
	s := newServer(1)
	_, ok := s.Alone()
	require.True(t, ok)
	b, _, _ := s.Join("A", 0, time.Second, false)
	s.Suspend(1200 * time.Millisecond)
	select {
	case <-s.calls: // the previous call has stalled
		require.Less(t, b.Waited(), time.Second)
		close(s.answers)
	case <-time.After(time.Minute):
		require.Fail(t, "the batch was not sent")
	}
	_, err := b.Wait(t.Context())
	require.NoError(t, err)
}

// A batch whose members have all left is not sent. One that has a member is sent for all.
func TestNobodyWaitsForABatch(t *testing.T) {
	for _, returns := range []bool{false, true} { // the previous call
		race.Bubble(t, func(t *testing.T) {
			var answered []int
			s := newServerFor(3, 1, func(b *batch, place int) {
				_, err := b.Result()
				require.ErrorIs(t, err, coalesce.ErrUnsent)
				answered = append(answered, place)
			})
			s.trip(t, 100*time.Millisecond)
			_, leave := s.fill()
			left, _ := s.join("left")
			s.join("left")
			s.join("stays")
			require.True(t, left.Leave(0))
			stays, _ := s.join("stays")
			require.True(t, left.Leave(1))
			if !returns {
				time.Sleep(coalesce.StallInterval)
				synctest.Wait()
				require.True(t, left.Finished())
			}
			leave()
			require.Equal(t, []*batch{stays}, <-s.calls)
			require.Equal(t, 2, stays.Size())
			require.ElementsMatch(t, []int{0, 1}, answered)
			again, place := s.join("left")
			require.NotSame(t, left, again)
			require.Zero(t, place)
			s.end(t)
		})
	}
}

// When the round trip turns out to be long, waiting callers get the additional places at once.
func TestMoreInFlightForThoseWhoWait(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, s *server) {
		for i := range 20 {
			s.join(fmt.Sprint(i))
		}
		time.Sleep(4 * time.Millisecond) // before the first call counts as stalled
		s.answer()
		require.Len(t, s.calls, 2)
		time.Sleep(coalesce.StallInterval)
		synctest.Wait()
		require.GreaterOrEqual(t, len(s.calls), 1+most-1)
	})
}

// If send panics or exits, this reaches every member whose batch it had not finished, and no other. The batcher
// continues.
func TestSendIsEnded(t *testing.T) {
	for name, harm := range map[string]func(){
		"panic":  func() { panic("hook") },
		"Goexit": runtime.Goexit,
		"return": func() {},
	} {
		t.Run(name, func(t *testing.T) {
			race.Bubble(t, func(t *testing.T) {
				harmed := false
				s := &server{calls: make(chan []*batch, 10), answers: make(chan struct{})}
				s.batcher = coalesce.New(3, 1, most, func(batches []*batch) {
					s.calls <- batches
					<-s.answers
					batches[0].Finish(7, nil)
					if len(batches) > 1 && !harmed {
						harmed = true
						harm()
						return
					}
					for _, b := range batches[1:] {
						b.Finish(7, nil)
					}
				}, nil)
				_, leave := s.fill()
				var healthy, panicked, ended atomic.Int64
				for i := range 20 {
					b, _, _ := s.Join(fmt.Sprint(i%5), 0, patience, false)
					go func() {
						defer func() {
							if r := recover(); r != nil {
								require.Equal(t, "hook", r)
								panicked.Add(1)
							}
						}()
						if r, err := b.Wait(t.Context()); err != nil {
							require.ErrorIs(t, err, coalesce.ErrEnded)
							ended.Add(1)
						} else {
							require.Equal(t, 7, *r)
							healthy.Add(1)
						}
					}()
				}
				leave()
				s.answer() // three of the five keys
				require.Len(t, s.calls, 2)
				s.end(t)
				require.EqualValues(t, 12, healthy.Load())
				if name == "panic" {
					require.EqualValues(t, 8, panicked.Load())
				} else {
					require.EqualValues(t, 8, ended.Load())
				}
			})
		})
	}
}

// counted returns instantly, and counts its calls.
func counted(calls *atomic.Int64) func([]*batch) {
	return func(batches []*batch) {
		calls.Add(1)
		for _, b := range batches {
			b.Finish(0, nil)
		}
	}
}

// share adds one caller, and waits for its answer.
func share(l *batcher) {
	b, _, _ := l.Join("A", 0, patience, false)
	_, _ = b.Wait(context.Background())
}
