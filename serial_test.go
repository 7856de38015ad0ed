package serial_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"os"
	"os/exec"
	"path"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dailyserial/serial"
	"github.com/dailyserial/serial/internal/race"
	"github.com/dailyserial/serial/internal/redistest"
	"github.com/dailyserial/serial/serialtest"
)

// Guarantees: script-flush, counter-lost, prepared-counter-lost, record-lost, both-lost-remembered.
func TestBehaviour(t *testing.T) {
	t.Parallel()
	testBehaviour(t, inMemory(t))
}

// testBehaviour is the suite that every backend must pass, one function for each concern.
func testBehaviour(t *testing.T, b backend) {
	testTake(t, b)
	testLargestSequences(t, b)
	testWaiting(t, b)
	testOpen(t, b)
	testFloor(t, b)
	testCounterLost(t, b)
	testConflict(t, b)
	testPeek(t, b)
	testRaise(t, b)
	testStart(t, b)
	testOnce(t, b)
	testShared(t, b)
	testPeriods(t, b)
	testCalendars(t, b)
	testPrepare(t, b)
	testEndOfRange(t, b)
}

// testTake covers step 1: the counter exists and is incremented.
func testTake(t *testing.T, b backend) {
	b.run(t, "numbers follow each other, each type separately", func(t *testing.T, s *series) {
		s.next(s.gen, 1)
		s.next(s.gen, 2)
		requireResult(t, "订单/A.b-c_9"+s.day+"0001")(s.gen.Next(t.Context(), "订单/A.b-c_9"))
		s.next(s.generator(), 3)
	})

	b.run(t, "one round trip in an open period", func(t *testing.T, s *series) {
		s.next(s.gen, 1)
		var sent atomic.Int64
		s.rdb.AddHook(counting(&sent))
		s.next(s.gen, 2)
		s.next(s.generator(), 3)
		require.NoError(t, errOf(s.gen.NextN(t.Context(), "IS", 1000)))
		require.EqualValues(t, 3, sent.Load())
	})

	b.run(t, "NextN is contiguous, and all or nothing", func(t *testing.T, s *series) {
		s.next(s.gen, 1)
		requireResult(t, numbers("IS", s.day, 2, 5001))(textsOf(s.gen.NextN(t.Context(), "IS", 5000)))
		none, err := s.gen.NextN(t.Context(), "IS", 4999)
		require.ErrorIs(t, err, serial.ErrExhausted)
		require.Nil(t, none)
		requireResult(t, numbers("IS", s.day, 5002, 9999))(textsOf(s.gen.NextN(t.Context(), "IS", 4998)))
		s.refused(s.gen, serial.ErrExhausted)
		require.Equal(t, "9999", s.rdb.Get(t.Context(), s.counter).Val())
	})

	b.run(t, "a hundred at once, on four generators", func(t *testing.T, s *series) {
		gens := make([]*serial.Generator, 4)
		for i := range gens {
			gens[i] = newGenerator(t, b.client(t), serial.WithLocation(s.loc), serial.WithKeyPrefix(s.prefix))
		}
		require.ElementsMatch(t, numbers("IS", s.day, 1, 100), barrier(t, 100, func(i int) (string, error) {
			return gens[i%len(gens)].Next(t.Context(), "IS")
		}))
	})

	b.run(t, "an expiry that was stripped comes back", func(t *testing.T, s *series) {
		s.next(s.gen, 1)
		require.NoError(t, s.rdb.Set(t.Context(), s.counter, 7, 0).Err())
		s.next(s.gen, 8)
		require.Positive(t, s.rdb.TTL(t.Context(), s.counter).Val())
	})

	b.run(t, "scripts that the server has forgotten", func(t *testing.T, s *series) {
		for want := range 5 {
			require.NoError(t, s.flushScripts())
			s.next(s.gen, want+1)
		}
	})
}

// testLargestSequences covers step 1 at the largest sequence and above it.
func testLargestSequences(t *testing.T, b backend) {
	b.run(t, "the largest sequences are exact", func(t *testing.T, s *series) {
		gen := s.generator(serial.WithTemplate("{type}{date:yyyyMMdd}{seq:15}"))
		require.NoError(t, gen.Raise(t.Context(), "IS", 999_999_999_999_997))
		want := []string{"IS" + s.day + "999999999999998", "IS" + s.day + "999999999999999"}
		requireResult(t, want)(textsOf(gen.NextN(t.Context(), "IS", 2)))
		s.refused(gen, serial.ErrExhausted)
		require.Equal(t, "999999999999999", s.rdb.Get(t.Context(), s.counter).Val())
	})

	b.run(t, "a counter beyond the largest sequence is exhausted, not lowered", func(t *testing.T, s *series) {
		for _, value := range []string{"10000", "9007199254740993", "99999999999999999999"} {
			s.rdb.Set(t.Context(), s.counter, value, time.Hour)
			s.refused(s.generator(), serial.ErrExhausted)
			require.Equal(t, value, s.rdb.Get(t.Context(), s.counter).Val())
		}
	})

	b.run(t, "a counter of more digits than a sequence has", func(t *testing.T, s *series) {
		next := s.record + ":" + time.Now().In(s.loc).AddDate(0, 0, 1).Format("20060102")
		for _, held := range []string{"1000000000000000", "9000000000000000000", "99999999999999999999"} {
			s.rdb.Set(t.Context(), s.counter, held, time.Hour)
			s.rdb.Set(t.Context(), next, held, 36*time.Hour)
			for range 2 { // without a record, and with one
				s.refused(s.gen, serial.ErrExhausted)
				for _, err := range []error{errOf(s.gen.Next(t.Context(), "IS")), errOf(s.gen.Peek(t.Context(), "IS"))} {
					require.ErrorIs(t, err, serial.ErrExhausted)
					require.ErrorContains(t, err, s.counter+" holds more than any sequence, so somebody has changed it; find the "+
						"last one used, delete the key, and run: serial raise -tz ")
				}
				requireResult(t, []serial.Number(nil))(s.gen.History(t.Context(), "IS", 1))
				require.NoError(t, s.gen.Raise(t.Context(), "IS", 5))
			}
			require.NoError(t, s.gen.Prepare(t.Context(), "IS"))
			require.Equal(t, held, s.rdb.Get(t.Context(), s.counter).Val())
			require.Equal(t, held, s.rdb.Get(t.Context(), next).Val())
			s.rdb.Del(t.Context(), s.record)
		}
	})
}

// testWaiting covers steps 2 and 4: another holds the lock, and the caller waits while its context lives.
func testWaiting(t *testing.T, b backend) {
	b.run(t, "while another holds the lock", func(t *testing.T, s *series) {
		lock := s.counter + ":lock"
		require.NoError(t, s.rdb.Set(t.Context(), lock, "another", time.Minute).Err())
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		require.ErrorIs(t, errOf(s.gen.Next(ctx, "IS")), context.DeadlineExceeded)
		require.Equal(t, "another", s.rdb.Get(t.Context(), lock).Val(), "it is not ours to delete")

		done := make(chan error)
		go func() { done <- errOf(s.gen.Next(t.Context(), "IS")) }()
		select {
		case err := <-done:
			require.Fail(t, "did not wait", "%v", err)
		case <-time.After(50 * time.Millisecond): // there is no other way to show that nothing happens
		}
		s.rdb.Del(t.Context(), lock)
		require.NoError(t, <-done)
		require.NoError(t, s.gen.Raise(t.Context(), "ANY", 1), "Raise needs no lock")
	})

	b.run(t, "a context that has ended", func(t *testing.T, s *series) {
		var sent atomic.Int64
		s.rdb.AddHook(counting(&sent))
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		require.ErrorIs(t, errOf(s.gen.Next(ctx, "IS")), context.Canceled)
		require.ErrorIs(t, errOf(s.gen.NextN(ctx, "IS", 0)), context.Canceled)
		_, err := s.gen.Next(ctx, "")
		require.ErrorIs(t, err, serial.ErrInvalidType)
		require.ErrorIs(t, err, context.Canceled)
		require.ErrorIs(t, errOf(s.gen.Peek(ctx, "IS")), context.Canceled)
		require.ErrorIs(t, s.gen.Raise(ctx, "IS", 1), context.Canceled)
		expired, cancel := context.WithDeadline(t.Context(), time.Now().Add(-time.Second))
		defer cancel()
		require.ErrorIs(t, errOf(s.gen.Next(expired, "IS")), context.DeadlineExceeded)
		require.Zero(t, sent.Load())
	})
}

// testOpen covers step 3: the counter is missing, or has no record, and the period is opened.
func testOpen(t *testing.T, b backend) {
	b.run(t, "keys and their expiries", func(t *testing.T, s *series) {
		s.next(s.gen, 1)
		require.Equal(t, []string{s.record, s.counter}, s.keys(), "the lock is gone")
		require.Equal(t, "1", s.rdb.Get(t.Context(), s.counter).Val())
		y, m, d := time.Now().In(s.loc).Date()
		midnight := time.Date(y, m, d+1, 0, 0, 0, 0, s.loc)
		require.WithinDuration(t, midnight, time.Now().Add(s.rdb.PTTL(t.Context(), s.counter).Val()), 2*time.Second)
		require.WithinDuration(t, midnight.Add(7*24*time.Hour), time.Now().Add(s.rdb.PTTL(t.Context(), s.record).Val()),
			2*time.Second)
	})

	b.run(t, "a batch opens the period", func(t *testing.T, s *series) {
		requireResult(t, numbers("IS", s.day, 1, 3))(textsOf(s.gen.NextN(t.Context(), "IS", 3)))
	})

	b.run(t, "a counter found without a record is adopted", func(t *testing.T, s *series) {
		require.NoError(t, s.rdb.Set(t.Context(), s.counter, 123, 0).Err())
		requireSeq(t, 123)(s.gen.Peek(t.Context(), "IS"))
		s.next(s.gen, 124)
		require.Positive(t, s.rdb.TTL(t.Context(), s.counter).Val())
		s.rdb.Del(t.Context(), s.counter)
		s.refused(s.generator(), serial.ErrCounterLost) // now there is a record
	})

	b.run(t, "a counter that has no record lives as long as any other", func(t *testing.T, s *series) {
		s.rdb.Set(t.Context(), s.counter, 5, 1000*time.Hour)
		s.next(s.gen, 6)
		require.LessOrEqual(t, s.rdb.PTTL(t.Context(), s.counter).Val(), 25*time.Hour)
	})
}

// testFloor covers step 3 with a floor.
func testFloor(t *testing.T, b backend) {
	b.run(t, "floors", func(t *testing.T, s *series) {
		floor := func(f func(context.Context) (int64, error)) *serial.Generator {
			return s.generator(serial.WithFloor(func(ctx context.Context, _ string, _ time.Time) (int64, error) {
				return f(ctx)
			}))
		}
		nothing := func() { s.t.Helper(); require.Empty(t, s.keys(), "nothing is written") }

		s.refused(floor(func(context.Context) (int64, error) { return 0, errBoom }), errBoom)
		nothing()
		for _, n := range []int64{-1, 10000} {
			_, err := s.generator(fixedFloor(n)).Next(t.Context(), "IS")
			require.ErrorContains(t, err, fmt.Sprintf("answered %d: want 0 to 9999", n))
			nothing()
			require.Error(t, s.generator(fixedFloor(n)).Raise(t.Context(), "IS", 1))
			nothing()
		}
		// A deadline set by the floor is the floor's error.
		_, err := floor(func(context.Context) (int64, error) { return 0, context.DeadlineExceeded }).Next(t.Context(), "IS")
		require.ErrorIs(t, err, context.DeadlineExceeded)
		nothing()
		require.PanicsWithValue(t, "floor", func() {
			_, _ = floor(func(context.Context) (int64, error) { panic("floor") }).Next(t.Context(), "IS")
		})
		nothing() // not even the lock

		// The floor's context ends before the lock expires, and has the caller's values.
		type key struct{}
		ctx := context.WithValue(t.Context(), key{}, "value")
		gen := floor(func(ctx context.Context) (int64, error) {
			require.Equal(t, "value", ctx.Value(key{}))
			deadline, ok := ctx.Deadline()
			require.True(t, ok)
			require.Less(t, time.Until(deadline), s.rdb.PTTL(ctx, s.counter+":lock").Val())
			return 9998, nil
		})
		requireResult(t, "IS"+s.day+"9999")(gen.Next(ctx, "IS"))
		s.refused(gen, serial.ErrExhausted)
	})

	b.run(t, "a floor at the largest sequence", func(t *testing.T, s *series) {
		require.ErrorIs(t, errOf(s.generator(fixedFloor(9999)).Next(t.Context(), "IS")), serial.ErrExhausted)
		require.Len(t, s.keys(), 2)
		s.refused(s.gen, serial.ErrExhausted)
	})
}

// testCounterLost covers the guard against a counter that is missing, has gone back or holds no number.
func testCounterLost(t *testing.T, b backend) {
	for _, lost := range []struct {
		name     string
		lose     func(s *series)
		recorded bool // in the record, so that a generator that remembers nothing sees it too
	}{
		{"deleted", func(s *series) { s.rdb.Del(s.t.Context(), s.counter) }, true},
		{"deleted with the record", func(s *series) { s.rdb.Del(s.t.Context(), s.counter, s.record) }, false},
		{"set back", func(s *series) { s.rdb.Set(s.t.Context(), s.counter, 2, time.Hour) }, false},
		{"a word", func(s *series) { s.rdb.Set(s.t.Context(), s.counter, "abc", time.Hour) }, true},
		{"empty", func(s *series) { s.rdb.Set(s.t.Context(), s.counter, "", time.Hour) }, true},
		{"negative", func(s *series) { s.rdb.Set(s.t.Context(), s.counter, "-5", time.Hour) }, true},
		{"a fraction", func(s *series) { s.rdb.Set(s.t.Context(), s.counter, "7.5", time.Hour) }, true},
		{"an exponent", func(s *series) { s.rdb.Set(s.t.Context(), s.counter, "1e3", time.Hour) }, true},
		{"hexadecimal", func(s *series) { s.rdb.Set(s.t.Context(), s.counter, "0x10", time.Hour) }, true},
		{"padded", func(s *series) { s.rdb.Set(s.t.Context(), s.counter, "007", time.Hour) }, true},
		{"a list", func(s *series) {
			s.rdb.Del(s.t.Context(), s.counter)
			s.rdb.RPush(s.t.Context(), s.counter, "7")
		}, true},
	} {
		b.run(t, "a counter lost: "+lost.name, func(t *testing.T, s *series) {
			s.firstNumbers(s.gen, 3)
			lost.lose(s)
			s.refused(s.gen, serial.ErrCounterLost)
			require.ErrorIs(t, errOf(s.gen.Peek(t.Context(), "IS")), serial.ErrCounterLost)
			if lost.recorded {
				s.refused(s.generator(), serial.ErrCounterLost)
			}
			// Raise ends it. The generator's mark is above the operator's 0, and counts.
			require.NoError(t, s.gen.Raise(t.Context(), "IS", 0))
			s.next(s.gen, 4)
			require.Positive(t, s.rdb.TTL(t.Context(), s.counter).Val())
		})
		b.run(t, "a counter lost, with a floor: "+lost.name, func(t *testing.T, s *series) {
			var asked atomic.Int64
			floor := serial.WithFloor(func(_ context.Context, typ string, start time.Time) (int64, error) {
				require.Equal(t, "IS", typ)
				require.Equal(t, s.day+" 000000", start.Format("20060102 150405"))
				return 2 * asked.Add(1), nil
			})
			gen := s.generator(floor)
			s.next(gen, 3)
			s.next(gen, 4)
			s.next(gen, 5)
			lost.lose(s)
			require.ErrorIs(t, errOf(gen.Peek(t.Context(), "IS")), serial.ErrCounterLost)
			s.next(gen, 6) // the mark, 5, is above the floor, 4
			s.next(gen, 7)
			if lost.recorded {
				lost.lose(s)
				s.next(s.generator(fixedFloor(100)), 101)
				require.EqualValues(t, 2, asked.Load())
			}
			require.Positive(t, s.rdb.TTL(t.Context(), s.counter).Val())
		})
	}

	b.run(t, "a record that is a list", func(t *testing.T, s *series) {
		s.firstNumbers(s.gen, 3)
		s.rdb.Del(t.Context(), s.record)
		s.rdb.RPush(t.Context(), s.record, "7")
		for name, call := range map[string]func() error{
			"next":      func() error { return errOf(s.gen.Next(t.Context(), "IS")) },
			"first":     func() error { return errOf(s.generator().Next(t.Context(), "IS")) },
			"peek":      func() error { return errOf(s.gen.Peek(t.Context(), "IS")) },
			"history":   func() error { return errOf(s.gen.History(t.Context(), "IS", 1)) },
			"raise":     func() error { return s.gen.Raise(t.Context(), "IS", 5) },
			"take over": func() error { return s.gen.Takeover(t.Context(), "IS", 5) },
			"prepare":   func() error { return s.gen.Prepare(t.Context(), "IS") },
		} {
			err := call()
			require.ErrorIs(t, err, serial.ErrConflict, name)
			require.ErrorContains(t, err, s.record+" holds a value that is not a hash, which this version did not write; "+
				"stop all processes that issue these numbers, find the last one used, delete the key, and run: serial raise")
		}
		s.rdb.Del(t.Context(), s.record)
		require.NoError(t, s.gen.Raise(t.Context(), "IS", 3))
		s.next(s.gen, 4)
	})
}

// testConflict covers the guard where the record does not fit the caller's period.
func testConflict(t *testing.T, b backend) {
	b.run(t, "another zone is a conflict at the first call, another name of it is not", func(t *testing.T, s *series) {
		s.next(s.gen, 1)
		offset := func() int { _, o := time.Now().In(s.loc).Zone(); return o }()
		for _, zone := range []*time.Location{
			time.FixedZone("noon", offset+3600), // same name, as two hosts' "Local"
			time.FixedZone("noon", offset-3600),
			time.FixedZone("noon", offset+1),
		} {
			gen := s.generator(serial.WithLocation(zone))
			s.refused(gen, serial.ErrConflict)
			require.ErrorIs(t, errOf(gen.Peek(t.Context(), "IS")), serial.ErrConflict)
			require.ErrorIs(t, gen.Raise(t.Context(), "IS", 5), serial.ErrConflict)
		}
		s.next(s.generator(serial.WithLocation(time.FixedZone("another name", offset))), 2)
	})

	b.run(t, "an invalid record is a conflict", func(t *testing.T, s *series) {
		s.rdb.HSet(t.Context(), s.record, "entered", "garbage")
		s.refused(s.gen, serial.ErrConflict)
	})
}

func testPeek(t *testing.T, b backend) {
	b.run(t, "Peek shows the last and writes nothing", func(t *testing.T, s *series) {
		requireResult(t, "IS"+s.day+"0000")(textOf(s.gen.Peek(t.Context(), "IS")))
		require.Empty(t, s.keys())
		s.next(s.gen, 1)
		s.next(s.gen, 2)
		n, err := s.generator().Peek(t.Context(), "IS")
		require.NoError(t, err)
		require.Equal(t, "IS"+s.day+"0002", n.String())
		require.Equal(t, "IS", n.Type)
		require.Equal(t, int64(2), n.Seq)
		require.Equal(t, s.day+" 000000", n.Start.Format("20060102 150405"))
		s.next(s.gen, 3)
	})
}

func testRaise(t *testing.T, b backend) {
	b.run(t, "Raise never lowers", func(t *testing.T, s *series) {
		require.NoError(t, s.gen.Raise(t.Context(), "IS", 41))
		require.Positive(t, s.rdb.TTL(t.Context(), s.counter).Val())
		s.next(s.gen, 42)
		require.NoError(t, s.gen.Raise(t.Context(), "IS", 7))
		s.next(s.gen, 43)
		require.NoError(t, s.gen.Raise(t.Context(), "IS", 9999))
		s.refused(s.gen, serial.ErrExhausted)
		for _, seq := range []int64{-1, 10000} {
			require.ErrorContains(t, s.gen.Raise(t.Context(), "IS", seq), "want 0 to 9999")
		}
	})

	b.run(t, "a Raise to 0 opens", func(t *testing.T, s *series) {
		require.NoError(t, s.gen.Raise(t.Context(), "IS", 0))
		requireSeq(t, 0)(s.gen.Peek(t.Context(), "IS"))
		require.Len(t, s.keys(), 2)
		s.next(s.gen, 1)
	})

	b.run(t, "Raise(0) confirms that no number was used", func(t *testing.T, s *series) {
		s.next(s.gen, 1)
		s.rdb.Del(t.Context(), s.counter)
		other := s.generator()
		require.NoError(t, other.Raise(t.Context(), "IS", 0))
		s.next(other, 1)
		s.next(s.gen, 2) // it remembers 1, and the counter exists again
	})

	b.run(t, "Raise asks the floor of a period it opens", func(t *testing.T, s *series) {
		gen := s.generator(fixedFloor(50))
		require.NoError(t, gen.Raise(t.Context(), "IS", 7))
		s.next(gen, 51)
		require.NoError(t, gen.Raise(t.Context(), "IS", 60))
		s.next(gen, 61)
		require.NoError(t, s.rdb.Del(t.Context(), s.counter).Err())
		require.NoError(t, gen.Raise(t.Context(), "IS", 70))
		s.next(gen, 71)
	})

	b.run(t, "Raise of a counter without a record asks the floor", func(t *testing.T, s *series) {
		require.NoError(t, s.rdb.Set(t.Context(), s.counter, 5, time.Hour).Err())
		gen := s.generator(fixedFloor(20))
		require.NoError(t, gen.Raise(t.Context(), "IS", 10))
		s.next(gen, 21)
	})

	b.run(t, "Raise of a counter above the template's largest sequence", func(t *testing.T, s *series) {
		wide := s.generator(serial.WithTemplate("{type}{date:yyyyMMdd}{seq:6}"))
		require.NoError(t, wide.Raise(t.Context(), "IS", 12345))
		require.NoError(t, s.gen.Raise(t.Context(), "IS", 7))
		require.Equal(t, "12345", s.rdb.Get(t.Context(), s.counter).Val())
	})
}

// testStart covers a start: it counts only if a counter is created for an unused period. The record keeps it.
func testStart(t *testing.T, b backend) {
	other := func(s *series, opts ...serial.Option) *serial.Generator { // of another zone with the same day
		_, offset := time.Now().In(s.loc).Zone()
		return s.generator(append(opts, serial.WithLocation(time.FixedZone("other", offset+3600)))...)
	}
	drop := func(s *series, keys ...string) { require.NoError(s.t, s.rdb.Del(s.t.Context(), keys...).Err()) }
	raise := func(s *series, gen *serial.Generator) error { return gen.Raise(s.t.Context(), "IS", 7) }
	takeOver := func(s *series, gen *serial.Generator) error { return gen.Takeover(s.t.Context(), "IS", 7) }
	returnTo := func(s *series, gen *serial.Generator) error {
		require.NoError(s.t, other(s, serial.WithStart(2000)).Takeover(s.t.Context(), "IS", 0))
		return takeOver(s, gen)
	}
	prepare := func(s *series, gen *serial.Generator) error { return gen.Prepare(s.t.Context(), "IS") }
	record, counter := func(s *series) string { return s.record }, func(s *series) string { return s.counter }
	for name, test := range map[string]struct {
		lost  func(s *series) string
		floor int64
		do    func(s *series, gen *serial.Generator) error
		want  int
	}{
		"Next":                                 {nil, 0, nil, 6},
		"Prepare":                              {nil, 0, prepare, 6},
		"Raise":                                {nil, 0, raise, 8},
		"Takeover":                             {nil, 0, takeOver, 8},
		"Takeover from another zone":           {nil, 0, returnTo, 8},
		"the record is lost":                   {record, 0, nil, 6},
		"the record is lost, then Prepare":     {record, 0, prepare, 6},
		"the record is lost, then Raise":       {record, 0, raise, 8},
		"the record is lost, beside a floor":   {record, 4, nil, 6},
		"the counter is lost, then Raise":      {counter, 0, raise, 8},
		"the counter is lost, then Takeover":   {counter, 0, takeOver, 8},
		"the counter is lost, beside a floor":  {counter, 7, nil, 8},
		"the counter is lost, floor and Raise": {counter, 6, raise, 8},
	} {
		for _, start := range []int64{1000, 9999} {
			b.run(t, fmt.Sprintf("start %d in an open period: %s", start, name), func(t *testing.T, s *series) {
				s.firstNumbers(s.gen, 5)
				if test.lost != nil {
					drop(s, test.lost(s))
				}
				opts := options(serial.WithStart(start))
				if test.floor > 0 {
					opts = append(opts, fixedFloor(test.floor))
				}
				gen := s.generator(opts...)
				if test.do != nil {
					require.NoError(t, test.do(s, gen))
				}
				s.next(gen, test.want)
				s.next(s.gen, test.want+1)
				require.Empty(t, s.rdb.HGet(t.Context(), s.record, "first").Val())
			})
		}
	}

	b.run(t, "a lost counter does not fall below the start of its period", func(t *testing.T, s *series) {
		s.next(s.generator(serial.WithStart(1000)), 1000)
		for _, start := range []int64{1, 9999} {
			gen, floored := s.generator(serial.WithStart(start)), s.generator(serial.WithStart(start), fixedFloor(3))
			drop(s, s.counter)
			require.NoError(t, raise(s, gen))
			requireSeq(t, 0, "none was used, according to the operator")(gen.Peek(t.Context(), "IS"))
			s.next(gen, 1000)
			drop(s, s.counter)
			s.next(floored, 1000)
		}
	})

	b.run(t, "a new period whose floor knows numbers", func(t *testing.T, s *series) {
		for _, start := range []int64{3, 4, 5, 9999} {
			gen := s.generator(serial.WithStart(start), fixedFloor(3))
			require.NoError(t, prepare(s, gen))
			requireSeq(t, 3)(gen.Peek(t.Context(), "IS"))
			tomorrow := s.record + ":" + time.Now().In(s.loc).AddDate(0, 0, 1).Format("20060102")
			require.Equal(t, "3", s.rdb.Get(t.Context(), tomorrow).Val())
			s.next(gen, 4)
			drop(s, s.counter, s.record, tomorrow)
		}
	})

	b.run(t, "Takeover of an unused period", func(t *testing.T, s *series) {
		_, offset := time.Now().In(s.loc).Zone()
		ahead := s.generator(serial.WithLocation(time.FixedZone("ahead", offset+14*3600))) // it is tomorrow there
		for seq, want := range []int{1000, 1000, 1000} {
			require.NoError(t, errOf(ahead.Next(t.Context(), "IS")))
			gen := s.generator(serial.WithStart(1000))
			s.refused(gen, serial.ErrConflict)
			require.NoError(t, gen.Takeover(t.Context(), "IS", int64(seq)))
			requireSeq(t, 0)(s.generator().Peek(t.Context(), "IS"))
			s.next(gen, want)
			drop(s, s.counter, s.record)
		}
	})

	b.run(t, "Peek shows what was issued, whatever the start", func(t *testing.T, s *series) {
		first := s.generator(serial.WithStart(500))
		require.NoError(t, first.Raise(t.Context(), "NONE", 3))
		require.NoError(t, first.Prepare(t.Context(), "PREPARED"))
		require.ErrorIs(t, errOf(first.NextN(t.Context(), "MANY", 9501)), serial.ErrExhausted)
		require.NoError(t, errOf(s.gen.NextN(t.Context(), "FOUR", 4)))
		require.NoError(t, errOf(first.NextN(t.Context(), "ABOVE", 4)))
		require.NoError(t, first.Raise(t.Context(), "RAISED", 800))
		for _, start := range []int64{1, 4, 5, 500, 501, 504, 801} {
			gen := s.generator(serial.WithStart(start))
			for typ, want := range map[string]int64{
				"NONE": 0, "PREPARED": 0, "MANY": 0, "FOUR": 4, "ABOVE": 503, "RAISED": 800,
			} {
				requireSeq(t, want, typ, start)(gen.Peek(t.Context(), typ))
				requireSeq(t, want, typ, start)(lastOf(gen.History(t.Context(), typ, 2)))
				report, err := gen.Audit(t.Context(), typ, serial.At(time.Now()), used())
				require.NoError(t, err)
				require.Equal(t, want, report.Last, typ, start)
			}
		}
		for typ, want := range map[string]int64{
			"NONE": 500, "PREPARED": 500, "MANY": 500, "FOUR": 5, "ABOVE": 504, "RAISED": 801,
		} {
			requireSeq(t, want, typ)(s.gen.NextNumber(t.Context(), typ))
		}
	})
}

// Clients and options of a Generator that New refuses. TestTemplatesRefused covers schemes.
func TestNewRefuses(t *testing.T) {
	rdb := closing(t, redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"}))
	ring := closing(t, redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"a": "127.0.0.1:1"}}))
	refuse := func(want string, client redis.UniversalClient, opts ...serial.Option) {
		t.Helper()
		gen, err := serial.New(client, opts...)
		require.Nil(t, gen)
		require.ErrorContains(t, err, "serial: "+want)
	}

	const isNil = "the Redis client is nil"
	const ofRing = "*redis.Ring moves counters to another shard when one dies; want *redis.Client, a Sentinel " +
		"client or *redis.ClusterClient"
	refuse(isNil, nil)
	refuse(isNil, (*redis.Client)(nil))
	refuse(isNil, (*redis.ClusterClient)(nil))
	refuse(ofRing, ring)
	refuse(ofRing, struct{ *redis.Ring }{ring})
	refuse("WithReplicas with a client of type struct { redis.UniversalClient }; want *redis.Client or "+
		"*redis.ClusterClient", struct{ redis.UniversalClient }{rdb}, confirmedBy(1)) // it may be any client
	refuse("WithLedger: the ledger is nil", rdb, serial.WithLedger(ledgerFunc(nil), 1))
	refuse("WithFloor: the function is nil", rdb, serial.WithFloor(nil))
	refuse("WithRetention(-1): want 0 to 10000 periods", rdb, serial.WithRetention(-1))
	refuse("WithRetention(10001): want 0 to 10000 periods", rdb, serial.WithRetention(10_001))
	today, apia := serial.On(2026, time.June, 1), serial.WithLocation(location(t, "Pacific/Apia"))
	refuse("WithLast(0): want the first sequence to the largest that the template prints", rdb, serial.WithLast(0))
	refuse("WithLast(10000): want 1 to 9999, from the first sequence to the largest that the template prints", rdb,
		serial.WithLast(10_000))
	refuse("WithLast(7): want 8 to 9999", rdb, serial.WithLast(7), serial.WithStart(8))
	refuse("WithUntil(): want a date, from On or OnDateOf", rdb, serial.WithUntil(serial.When{}))
	refuse("WithUntil(2026-06-01T00:00:00Z): want a date", rdb,
		serial.WithUntil(serial.At(time.Date(2026, time.June, 1, 0, 0, 0, 0, time.UTC))))
	refuse("the date 2026-06-31 does not exist: want a date of the calendar (WithUntil)", rdb,
		serial.WithUntil(serial.On(2026, time.June, 31)), serial.WithUntil(serial.On(2026, time.June, 31)))
	refuse("the date 2011-12-30 has no business day in Pacific/Apia", rdb, apia,
		serial.WithUntil(serial.On(2011, time.December, 30)))
	newGenerator(t, rdb, serial.WithLast(7), serial.WithStart(7), serial.WithUntil(serial.On(0, 0, 0)),
		serial.WithUntil(today)) // the last one counts
	for _, share := range []float64{-0.1, 1.1, math.NaN()} {
		refuse(fmt.Sprintf("WithHooks: NearlyExhaustedAt %v: want more than 0 and at most 1, or 0 for 0.8", share), rdb,
			serial.WithHooks(serial.Hooks{NearlyExhaustedAt: share}))
	}
	refuse("WithMaxSkew(0) would refuse every clock; want positive values, or negative ones", rdb,
		serial.WithMaxSkew(0))
	refuse("WithLockClients: no client is given", rdb, serial.WithLockClients())
	refuse(isNil+" (client 2 of WithLockClients)", rdb, serial.WithLockClients(rdb, nil))
	refuse(isNil+" (client 1 of WithLockClients)", rdb, serial.WithLockClients((*redis.Client)(nil)))
	refuse(ofRing+" (client 1 of WithLockClients)", rdb, serial.WithLockClients(ring))
	refuse("WithLockClients: clients 1 and 2 are the same client, and a server grants a lock only once; "+
		"give every server once", rdb, serial.WithLockClients(rdb, rdb))
	refuse("WithLocation: the location is nil; did time.LoadLocation fail?\nserial: WithMaxSkew(0)", rdb,
		serial.WithLocation(nil),
		serial.WithMaxSkew(0))

	second := []serial.Option{serial.WithPeriod(serial.PerSecond), serial.WithTemplate("{type}{date:yyyyMMddHHmmss}{seq}")}
	for _, slow := range []serial.Option{fixedFloor(0), serial.WithLedger(new(serialtest.Ledger), 1)} {
		refuse("WithPeriod(PerSecond): a second is too short to ask a floor or a ledger; want PerMinute or longer",
			rdb, append(second, slow)...)
	}
}

type ledgerFunc func() (int64, error)

func (f ledgerFunc) Reserve(context.Context, serial.Reservation) (int64, error) { return f() }

func TestPeriodNames(t *testing.T) {
	for per, name := range map[serial.Period]string{
		serial.PerSecond: "PerSecond", serial.PerMinute: "PerMinute", serial.PerHour: "PerHour", serial.PerDay: "PerDay",
		serial.PerMonth: "PerMonth", serial.PerYear: "PerYear", serial.PerWeek: "PerWeek", serial.PerQuarter: "PerQuarter",
		serial.Never: "Never", serial.PerHalfYear: "PerHalfYear", 0: "Period(0)", -1: "Period(-1)", 11: "Period(11)",
	} {
		require.Equal(t, name, per.String())
	}
}

func TestCallsRefuse(t *testing.T) {
	var sent atomic.Int64
	rdb := closing(t, redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"}))
	rdb.AddHook(counting(&sent))
	gen := newGenerator(t, rdb)

	for _, typ := range []string{
		"", strings.Repeat("a", 65), strings.Repeat("字", 22), "a b", "a:b", "a{b", "a}b", "a\n", "a*", "\x00", "a\xff",
		"\uFFFD", "½", "①", "é́",
	} {
		_, err := gen.Next(t.Context(), typ)
		require.ErrorIs(t, err, serial.ErrInvalidType, "%q", typ)
		require.ErrorContains(t, err, "want", "%q", typ)
		require.ErrorIs(t, errOf(gen.NextNumber(t.Context(), typ)), serial.ErrInvalidType)
		require.ErrorIs(t, errOf(gen.NextN(t.Context(), typ, 2)), serial.ErrInvalidType)
		require.ErrorIs(t, errOf(gen.Peek(t.Context(), typ)), serial.ErrInvalidType)
		require.ErrorIs(t, gen.Raise(t.Context(), typ, 1), serial.ErrInvalidType)
	}
	for _, n := range []int{-1, 0, 100_001} {
		require.ErrorContains(t, errOf(gen.NextN(t.Context(), "IS", n)), "want 1 to 100000", "%d", n)
	}
	require.ErrorIs(t, errOf(gen.NextN(t.Context(), "IS", 10_000)), serial.ErrExhausted)
	require.Zero(t, sent.Load(), "nothing was sent")
}

// An error of Redis matches its cause, but matches a context's error only if the caller's context has ended.
func TestErrorsOfRedis(t *testing.T) {
	for _, cause := range []error{errBoom, io.EOF, context.DeadlineExceeded, context.Canceled, redis.ErrClosed,
		fmt.Errorf("dial: %w", context.DeadlineExceeded)} {
		t.Run(cause.Error(), func(t *testing.T) {
			rdb := closing(t, redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"}))
			rdb.AddHook(replacing(func(context.Context, redis.Cmder) error { return cause }))
			gen := newGenerator(t, rdb)
			deadline, cancel := context.WithTimeout(t.Context(), time.Hour)
			defer cancel()
			for _, ctx := range []context.Context{context.Background(), deadline} {
				_, err := gen.Next(ctx, "IS")
				require.ErrorContains(t, err, cause.Error())
				require.NotErrorIs(t, err, context.DeadlineExceeded)
				require.NotErrorIs(t, err, context.Canceled)
				if !errors.Is(cause, context.DeadlineExceeded) && !errors.Is(cause, context.Canceled) {
					require.ErrorIs(t, err, cause)
				}
			}
		})
	}
}

// An error names its cause even if the context ended first or attempts were repeated.
func TestCausesAreKept(t *testing.T) {
	m := miniredis.RunT(t)
	rdb := closing(t, redis.NewClient(&redis.Options{Addr: m.Addr(), MaxRetries: 100}))
	gen := newGenerator(t, rdb, serial.WithLocation(noon()))
	require.NoError(t, errOf(gen.Next(t.Context(), "IS")))
	m.SetError("LOADING Redis is loading the dataset in memory")
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	_, err := gen.Next(ctx, "IS")
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.True(t, redis.IsLoadingError(err), "%v", err)

	few := closing(t, redis.NewClient(&redis.Options{Addr: m.Addr()}))
	_, err = newGenerator(t, few).Next(t.Context(), "IS")
	require.True(t, redis.IsLoadingError(err), "%v", err)
}

// An attempt whose answer was lost may have consumed the numbers that the next attempt lacks: that is not ErrExhausted.
func TestExhaustedByALostTry(t *testing.T) {
	_, rdb := startMini(t)
	gen := newGenerator(t, rdb, serial.WithLocation(noon()))
	require.NoError(t, errOf(gen.Next(t.Context(), "IS")))
	var lost atomic.Bool
	rdb.AddHook(losing(io.EOF, func(redis.Cmder, error) bool { return lost.CompareAndSwap(false, true) }))
	_, err := gen.NextN(t.Context(), "IS", 6000)
	require.ErrorIs(t, err, io.EOF)
	require.NotErrorIs(t, err, serial.ErrExhausted)
	requireSeq(t, 6001)(gen.Peek(t.Context(), "IS"))
}

// A client of a type that cannot be compared is accepted.
func TestIncomparableClients(t *testing.T) {
	rdb := closing(t, redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"}))
	type wrapped struct {
		redis.UniversalClient
		more any
	}
	_, err := serial.New(wrapped{rdb, []int{1}}, serial.WithLockClients(wrapped{rdb, []int{1}}, wrapped{rdb, []int{1}}))
	require.NoError(t, err)
}

// A server, or something in front of it, may reply with anything.
func TestStrangeReplies(t *testing.T) {
	for _, reply := range []any{"OK", nil, []any{}, []any{"lost", "1", "2", ""},
		[]any{"later", int64(time.Now().Unix()), int64(0), ""}} {
		t.Run(fmt.Sprint(reply), func(t *testing.T) {
			rdb := closing(t, redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"}))
			rdb.AddHook(replacing(func(_ context.Context, cmd redis.Cmder) error {
				cmd.(interface{ SetVal(any) }).SetVal(reply)
				return nil
			}))
			require.ErrorContains(t, errOf(newGenerator(t, rdb).Next(t.Context(), "IS")), "unexpected script reply")
		})
	}
}

// TestAllocations limits how often a call allocates in a quiet process while the period is open. It includes go-redis's
// allocations: 9 for a bare EVALSHA.
func TestAllocations(t *testing.T) {
	if race.Enabled {
		t.Skip("the race detector adds an allocation")
	}
	gen := newGenerator(t, redistest.Start(t).Client(t), serial.WithLocation(noon()),
		serial.WithTemplate("{type}{date:yyyyMMdd}{seq:9}"))
	background := context.Background() // t.Context() can end
	limited, cancel := context.WithTimeout(background, time.Hour)
	defer cancel()
	_, err := gen.NextN(background, "IS", 1000) // opens the period; sequences below 256 need one allocation less
	require.NoError(t, err)
	for name, test := range map[string]struct {
		call func() error
		most float64
	}{
		"Next": {func() error { _, err := gen.Next(background, "IS"); return err }, 13},
		// 17 on an idle machine.
		"Next with a deadline": {func() error { _, err := gen.Next(limited, "IS"); return err }, 18},
		// The texts are 10,000.
		"Next, 100 times by 100 callers": {func() error {
			var callers sync.WaitGroup
			var failure atomic.Value
			for range 100 {
				callers.Go(func() {
					for range 100 {
						if _, err := gen.Next(background, "IS"); err != nil {
							failure.Store(err)
						}
					}
				})
			}
			callers.Wait()
			err, _ := failure.Load().(error)
			return err
		}, 15_000},
		"NextN of 1000": {func() error { _, err := gen.NextN(background, "IS", 1000); return err }, 18},
	} {
		t.Run(name, func(t *testing.T) {
			runs := 200
			if test.most > 1000 {
				runs = 20
			}
			allocations := testing.AllocsPerRun(runs, func() {
				if err := test.call(); err != nil {
					t.Error(err)
				}
			})
			require.LessOrEqual(t, allocations, test.most)
		})
	}
}

// TestFrames limits how many functions of this library a command passes through, as a hook of the client sees it, and
// checks that a call enters each file once. A command sent by a new goroutine shows fewer, so the deepest of several
// calls counts.
func TestFrames(t *testing.T) {
	rdb := closing(t, redis.NewClient(&redis.Options{Addr: miniredis.RunT(t).Addr()}))
	gen := newGenerator(t, rdb)
	var frames frameRecorder
	rdb.AddHook(everyCall(func(_ []redis.Cmder, send func() error) error {
		frames.look()
		return send()
	}))
	for _, test := range []struct {
		name string
		ctx  context.Context
		typ  string // with the number of the call, if it ends in "-"
		most int
	}{
		{"an opening", t.Context(), "A-", 9}, // it runs in a goroutine of its own
		{"Next", context.Background(), "A-0", 10},
		{"Next with a request's context", t.Context(), "A-0", 7},
	} {
		frames.deepest = nil
		for i := range 10 {
			typ := test.typ
			if strings.HasSuffix(typ, "-") {
				typ += strconv.Itoa(i)
			}
			require.NoError(t, errOf(gen.Next(test.ctx, typ)))
		}
		require.NotEmpty(t, frames.deepest, test.name)
		require.LessOrEqual(t, len(frames.deepest), test.most, "%s: %q", test.name, frames.deepest)
	}
	require.Empty(t, frames.reentered)
}

// A frameRecorder records the functions of this library through which commands came, innermost first.
type frameRecorder struct {
	mu        sync.Mutex // guards all fields below
	deepest   []string   // of one command
	reentered []string   // of a command that passed through a file twice
}

func (r *frameRecorder) look() {
	const library = "github.com/dailyserial/serial"
	pcs := make([]uintptr, 100)
	frames := runtime.CallersFrames(pcs[:runtime.Callers(1, pcs)])
	var functions, files []string
	for more := true; more; {
		var f runtime.Frame
		f, more = frames.Next()
		if strings.HasPrefix(f.Function, library+".") || strings.HasPrefix(f.Function, library+"/internal/") {
			functions, files = append(functions, path.Base(f.Function)), append(files, f.File)
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(functions) > len(r.deepest) {
		r.deepest = functions
	}
	files = slices.Compact(files)
	if entered := len(files); len(slices.Compact(slices.Sorted(slices.Values(files)))) < entered {
		r.reentered = functions
	}
}

// Whatever holds on miniredis must hold on the servers below.

func TestBehaviourOnServer(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	for _, protocol := range []int{2, 3} {
		t.Run(fmt.Sprintf("RESP%d", protocol), func(t *testing.T) {
			testBehaviour(t, backend{client: func(t *testing.T) redis.UniversalClient {
				opt := server.Options()
				opt.Protocol = protocol
				return closing(t, redis.NewClient(opt))
			}})
		})
	}
}

func TestBehaviourOnCluster(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t)
	testBehaviour(t, backend{client: func(t *testing.T) redis.UniversalClient { return cluster.Client(t) }})

	// The types are spread over all nodes, and the keys of one type are on one node.
	gen := newGenerator(t, cluster.Client(t), serial.WithLocation(noon()))
	for i := range 50 {
		typ := fmt.Sprint("T", i)
		requireResult(t, numbers(typ, today(noon()), 1, 3))(textsOf(gen.NextN(t.Context(), typ, 3)))
	}
	for _, server := range cluster.Servers {
		require.NotZero(t, server.Client(t).DBSize(t.Context()).Val())
	}

	// A client of a custom type is not known to be a Cluster's, so types share no script calls.
	gen = newGenerator(t, struct{ *redis.ClusterClient }{cluster.Client(t)}, serial.WithLocation(noon()),
		serial.WithKeyPrefix("own"))
	got := barrier(t, 200, func(i int) (string, error) { return gen.Next(t.Context(), fmt.Sprint("T", i%20)) })
	var want []string
	for i := range 20 {
		want = append(want, numbers(fmt.Sprint("T", i), today(noon()), 1, 10)...)
	}
	require.ElementsMatch(t, want, got)
}

func TestBehaviourThroughSentinel(t *testing.T) {
	t.Parallel()
	sentinel := redistest.StartSentinel(t)
	testBehaviour(t, backend{client: func(t *testing.T) redis.UniversalClient { return sentinel.Client(t) }})

	// After a failover that loses nothing, numbers continue; calls may fail for a while.
	loc := noon()
	gen := newGenerator(t, sentinel.Client(t), serial.WithLocation(loc))
	require.NoError(t, errOf(gen.NextN(t.Context(), "IS", 10)))
	require.EqualValues(t, 1, sentinel.Client(t).Do(t.Context(), "WAIT", 1, 5000).Val())
	sentinel.Failover(t)
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		got, err := gen.NextNumber(t.Context(), "IS")
		require.NoError(c, err)
		require.Greater(c, got.Seq, int64(10))
	}, 20*time.Second, 50*time.Millisecond)
}

// With persistence, a restart loses nothing. Without it, a generator that remembers its numbers notices the loss.
// Guarantees: restart-with-data.
func TestRestart(t *testing.T) {
	t.Parallel()
	loc := noon()
	for _, kept := range []bool{true, false} {
		t.Run(fmt.Sprintf("kept=%v", kept), func(t *testing.T) {
			t.Parallel()
			args := []string{"--appendonly", "no"}
			if kept {
				args = []string{"--appendonly", "yes", "--appendfsync", "always"}
			}
			server := redistest.Start(t, args...)
			gen := newGenerator(t, server.Client(t), serial.WithLocation(loc))
			require.NoError(t, errOf(gen.NextN(t.Context(), "IS", 5)))
			server.Kill()
			before := time.Now()
			_, err := gen.Next(t.Context(), "IS")
			require.Error(t, err)
			require.NotErrorIs(t, err, context.DeadlineExceeded)
			require.Less(t, time.Since(before), 10*time.Second)
			server.Restart(t)
			require.EventuallyWithT(t, func(c *assert.CollectT) { // go-redis holds dead connections for a moment
				got, err := gen.Next(t.Context(), "IS")
				if kept {
					require.NoError(c, err)
					require.Equal(c, "IS"+today(loc)+"0006", got)
				} else {
					require.ErrorIs(c, err, serial.ErrCounterLost)
				}
			}, 5*time.Second, 10*time.Millisecond)
		})
	}
}

// The commands that docs/operations.md lists for an ACL are enough.
func TestAccessControl(t *testing.T) {
	server := redistest.Start(t)
	_, list, found := strings.Cut(guide(t, "operations.md"), "- An ACL needs ")
	require.True(t, found)
	list, _, _ = strings.Cut(list, " on")
	rules := []any{"ACL", "SETUSER", "issuer", "on", ">secret", "~serial:*", "+@connection"}
	for _, command := range regexp.MustCompile("[A-Z]+").FindAllString(list, -1) {
		rules = append(rules, "+"+strings.ToLower(command))
	}
	require.NoError(t, server.Client(t).Do(t.Context(), rules...).Err())
	opt := server.Options()
	opt.Username, opt.Password = "issuer", "secret"
	rdb := closing(t, redis.NewClient(opt))
	gen := newGenerator(t, rdb)
	for range 2 {
		require.NoError(t, errOf(gen.Next(t.Context(), "IS")))
	}
	require.NoError(t, gen.Raise(t.Context(), "IS", 7))
	require.NoError(t, errOf(gen.Peek(t.Context(), "IS")))
	require.Error(t, rdb.Set(t.Context(), "other", 1, 0).Err())
}

func TestClosedClient(t *testing.T) {
	server := redistest.Start(t)
	rdb := redis.NewClient(server.Options())
	require.NoError(t, rdb.Close())
	require.ErrorIs(t, errOf(newGenerator(t, rdb).Next(t.Context(), "IS")), redis.ErrClosed)
}

// If nothing listens on the port, a call returns go-redis's error once its attempts have failed.
func TestRefusedConnection(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	addr := listener.Addr().String()
	require.NoError(t, listener.Close())
	rdb := closing(t, redis.NewClient(&redis.Options{Addr: addr}))
	before := time.Now()
	_, err = newGenerator(t, rdb).Next(context.Background(), "IS")
	var refused *net.OpError
	require.ErrorAs(t, err, &refused)
	require.NotErrorIs(t, err, context.DeadlineExceeded)
	require.Less(t, time.Since(before), 10*time.Second)
}

// issueInChild issues and prints numbers if TestProcesses started this process, and reports whether it did.
func issueInChild() bool {
	addr := os.Getenv("SERIAL_TEST_REDIS")
	if addr == "" {
		return false
	}
	hour, _ := strconv.Atoi(os.Getenv("SERIAL_TEST_ZONE"))
	rdb := redis.NewClient(&redis.Options{Addr: addr})
	gen, err := serial.New(rdb, serial.WithLocation(time.FixedZone("noon", hour)))
	if err != nil {
		panic(err)
	}
	_, _ = bufio.NewReader(os.Stdin).ReadString('\n') // the barrier
	var mu sync.Mutex
	var wg sync.WaitGroup
	for range 5 {
		wg.Go(func() {
			for range 50 {
				number, err := gen.Next(context.Background(), "IS")
				if err != nil {
					panic(err)
				}
				mu.Lock()
				fmt.Println(number)
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	return true
}

// Six operating-system processes start at the same moment on a missing counter and issue exactly 0001 to 1500.
func TestProcesses(t *testing.T) {
	server := redistest.Start(t)
	loc := noon()
	_, offset := time.Now().In(loc).Zone()
	var cmds [6]*exec.Cmd
	var stdins [len(cmds)]io.Writer
	var outputs [len(cmds)]bytes.Buffer
	for i := range cmds {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), "SERIAL_TEST_REDIS="+server.Addr(), fmt.Sprint("SERIAL_TEST_ZONE=", offset))
		cmd.Stdout, cmd.Stderr = &outputs[i], os.Stderr
		stdin, err := cmd.StdinPipe()
		require.NoError(t, err)
		require.NoError(t, cmd.Start())
		cmds[i], stdins[i] = cmd, stdin
	}
	all := barrier(t, len(cmds), func(i int) (string, error) {
		_, err := stdins[i].Write([]byte("\n"))
		err = errors.Join(err, cmds[i].Wait())
		return outputs[i].String(), err
	})
	got := strings.Fields(strings.Join(all, ""))
	slices.Sort(got)
	require.Equal(t, numbers("IS", today(loc), 1, 1500), got)
}

// A refusal by the counters' server is not blamed on lock servers that are not in use. Redis's replies to a client
// without a password, or without a right, do not say so; the errors do.
func TestServerRefuses(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	admin := s.Client(t)
	refused := func(name string, configure func(*redis.Options), says ...string) {
		t.Helper()
		o := s.Options()
		o.MaxRetries, o.Protocol = -1, 2
		configure(o)
		client := redis.NewClient(o)
		defer client.Close()
		gen := newGenerator(t, client, serial.WithLocation(noon()), serial.WithKeyPrefix(name))
		_, err := gen.Next(t.Context(), "IS")
		// What lasts is tried until the deadline, where an attempt may still be on its way.
		require.Regexp(t, "^serial: (Redis failed|gave up waiting for Redis, where the command may have run): ", err)
		for _, part := range says {
			require.ErrorContains(t, err, part)
		}
		require.NotContains(t, err.Error(), "lock")
		require.NotContains(t, err.Error(), "node #0")
	}
	user := func(name string, rules ...any) func(*redis.Options) {
		require.NoError(t, admin.Do(t.Context(), append([]any{"ACL", "SETUSER", name, "on", ">" + name, "~*", "+@all"},
			rules...)...).Err())
		return func(o *redis.Options) { o.Username, o.Password = name, name }
	}
	const acl = "; an ACL denies this client's user a command or a key that is needed"
	refused("noset", user("noset", "-set"), acl)
	refused("notime", user("notime", "-time"), acl)
	refused("noeval", user("noeval", "-evalsha"), "NOPERM", acl)
	refused("nokeys", user("nokeys", "resetkeys"), "NOPERM", acl)
	refused("wrong", func(o *redis.Options) { o.Username, o.Password = "noset", "guess" }, "WRONGPASS",
		"; this client's user name or password is wrong, or an ACL turns the user off")
	everything := func(*redis.Options) {}
	config := func(name, value string) { require.NoError(t, admin.ConfigSet(t.Context(), name, value).Err()) }
	config("maxmemory", "1")
	refused("full", everything, "OOM")
	config("maxmemory", "0")
	require.NoError(t, admin.Do(t.Context(), "REPLICAOF", "127.0.0.1", "1").Err())
	refused("replica", everything, "READONLY")
	require.NoError(t, admin.Do(t.Context(), "REPLICAOF", "NO", "ONE").Err())
	config("requirepass", "secret")
	defer config("requirepass", "") // admin is logged in already
	refused("open", everything, "; Redis wants a password, and this client has none")
}

// What Redis answers when it refuses a call is named in the error, with what ends it, and has a row in docs/errors.md.
func TestServerRefusesForAWhile(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t, "--enable-protected-configs", "yes")
	admin := s.Client(t)
	config := func(name, value string) { require.NoError(t, admin.ConfigSet(t.Context(), name, value).Err()) }
	user := func(rules ...any) *redis.Options {
		name := fmt.Sprint("user", len(rules))
		require.NoError(t, admin.Do(t.Context(), append([]any{"ACL", "SETUSER", name, "on", ">secret", "~*", "+@all"},
			rules...)...).Err())
		o := s.Options()
		o.Username, o.Password = name, "secret"
		return o
	}
	// refused requires that the first number of a day and a later one are refused.
	refused := func(t *testing.T, o *redis.Options, code string, says ...string) {
		t.Helper()
		require.Regexp(t, "(?m)^\\| `"+code+".*`.* \\| .{20,} \\| .{20,} \\|$", guide(t, "errors.md"))
		for _, ledger := range []bool{false, true} {
			client := closing(t, redis.NewClient(o))
			gen := newGenerator(t, client, append(ledgerIf(ledger, 10), serial.WithLocation(noon()),
				serial.WithKeyPrefix(fmt.Sprint("open-", ledger)))...)
			for _, typ := range []string{"IS", fmt.Sprint("NEW", time.Now().UnixNano())} {
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				_, err := gen.Next(ctx, typ)
				for _, part := range append(says, code) {
					require.ErrorContains(t, err, part, "%s, ledger: %v", typ, ledger)
				}
			}
		}
	}
	for _, ledger := range []bool{false, true} {
		gen := newGenerator(t, admin, append(ledgerIf(ledger, 10), serial.WithLocation(noon()),
			serial.WithKeyPrefix(fmt.Sprint("open-", ledger)))...)
		require.NoError(t, errOf(gen.Next(t.Context(), "IS")))
	}

	config("maxmemory", "1")
	refused(t, s.Options(), "OOM", "free memory, or raise maxmemory")
	config("maxmemory", "0")
	config("min-replicas-to-write", "1")
	refused(t, s.Options(), "NOREPLICAS", "min-replicas-to-write")
	config("min-replicas-to-write", "0")

	refused(t, user("-time"), "TIME", "an ACL denies this client's user a command")
	renamed := redistest.Start(t, "--rename-command", "TIME", "ANOTHER")
	refused(t, renamed.Options(), "TIME", "was renamed or disabled")
	_, err := newGenerator(t, closing(t, redis.NewClient(user("-hget", "-hmget")))).Next(t.Context(), "IS")
	require.NotContains(t, err.Error(), "TIME", "another command is denied")

	config("busy-reply-threshold", "1")
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = admin.Eval(context.Background(), "while true do end", nil).Err()
	}()
	time.Sleep(100 * time.Millisecond)
	refused(t, s.Options(), "BUSY", "SCRIPT KILL")
	require.NoError(t, s.Client(t).ScriptKill(t.Context()).Err())
	<-ended

	config("save", "3600 1")
	dir := t.TempDir()
	config("dir", dir)
	require.NoError(t, os.RemoveAll(dir))
	require.NoError(t, admin.BgSave(t.Context()).Err())
	require.Eventually(t, func() bool {
		info, _ := admin.Info(t.Context(), "persistence").Result()
		return strings.Contains(info, "rdb_last_bgsave_status:err")
	}, 10*time.Second, 10*time.Millisecond)
	refused(t, s.Options(), "MISCONF", "Redis's log", "without a ledger, do not set stop-writes-on-bgsave-error to no")
}

// A replica refuses numbers; with a ledger, the error has the master's address, as INFO gives it.
func TestReplicaNamesItsMaster(t *testing.T) {
	t.Parallel()
	master := redistest.Start(t)
	replica := redistest.StartReplica(t, master)
	gen := newGenerator(t, replica.Client(t), serial.WithLocation(noon()))
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	_, err := gen.Next(ctx, "IS")
	require.ErrorContains(t, err, "READONLY")
	require.ErrorContains(t, err, "give the client the master's address")
	gen = newGenerator(t, replica.Client(t), serial.WithLocation(noon()), serial.WithLedger(new(serialtest.Ledger), 10))
	for _, err := range []error{errOf(gen.Next(t.Context(), "IS")), gen.Raise(t.Context(), "IS", 5)} {
		require.ErrorContains(t, err, "replica of "+master.Addr())
		require.ErrorContains(t, err, "give the client the master's address")
		require.NotContains(t, err.Error(), "replica-read-only")
	}
}

// While a slot moves, a script may find one of its keys here and the other one there.
func TestSlotThatMoves(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t)
	rdb := c.Client(t)
	gen := newGenerator(t, rdb, serial.WithLocation(noon()))
	require.NoError(t, errOf(gen.Next(t.Context(), "IS")))
	slot, err := rdb.ClusterKeySlot(t.Context(), "serial:{IS}").Result()
	require.NoError(t, err)
	from, to := c.Servers[0], c.Servers[1]
	for i, s := range c.Servers {
		if n, _ := s.Do("CLUSTER", "COUNTKEYSINSLOT", slot).Int(); n > 0 {
			from, to = s, c.Servers[(i+1)%len(c.Servers)]
		}
	}
	id := func(s *redistest.Server) string { return s.Do("CLUSTER", "MYID").Val().(string) }
	require.NoError(t, to.Do("CLUSTER", "SETSLOT", slot, "IMPORTING", id(from)).Err())
	require.NoError(t, from.Do("CLUSTER", "SETSLOT", slot, "MIGRATING", id(to)).Err())
	require.NoError(t, from.Do("DEL", "serial:{IS}:"+today(noon())).Err()) // as if it had moved
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	_, err = gen.Next(ctx, "IS")
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.ErrorContains(t, err, "before that: TRYAGAIN")
	require.ErrorContains(t, err, "moves to another node")
	require.Contains(t, guide(t, "errors.md"), "\n| `TRYAGAIN")
}

// The clocks of a Cluster's nodes differ: a day that has begun on one node forgets no type of a node where it has not.
func TestMemoryOfNodesWithOtherClocks(t *testing.T) {
	behind, ahead := miniredis.RunT(t), miniredis.RunT(t)
	day := time.Date(2021, 10, 24, 12, 0, 0, 0, time.UTC)
	behind.SetTime(day)
	ahead.SetTime(day.AddDate(0, 0, 1))
	client := closing(t, redis.NewClusterClient(&redis.ClusterOptions{
		ClusterSlots: func(context.Context) ([]redis.ClusterSlot, error) {
			return []redis.ClusterSlot{
				{Start: 0, End: 8191, Nodes: []redis.ClusterNode{{Addr: behind.Addr()}}},
				{Start: 8192, End: 16383, Nodes: []redis.ClusterNode{{Addr: ahead.Addr()}}},
			}, nil
		},
	}))
	gen := newGenerator(t, client, serial.WithLocation(time.UTC), serial.WithMaxSkew(-1))
	for _, c := range []struct {
		typ  string
		want string
	}{{"A", "20211024"}, {"B", "20211025"}} {
		requireResult(t, numbers(c.typ, c.want, 1, 5))(textsOf(gen.NextN(t.Context(), c.typ, 5)))
	}
	require.NoError(t, behind.Set("serial:{A}:20211024", "2"))
	require.ErrorIs(t, errOf(gen.Next(t.Context(), "A")), serial.ErrCounterLost)
}

// BenchmarkNext compares Next with a plain INCR through the same client, on the same server.
func BenchmarkNext(b *testing.B) {
	server := redistest.Start(b)
	rdb := server.Client(b)
	gen, err := serial.New(rdb, serial.WithLocation(noon()), serial.WithTemplate("{type}{date:yyyyMMdd}{seq:9}"))
	if err != nil {
		b.Fatal(err)
	}
	ctx := context.Background()
	for _, callers := range []int{1, 10, 100} {
		for _, op := range []struct {
			name string
			do   func() error
		}{
			{"INCR", func() error { return rdb.Incr(ctx, "plain").Err() }},
			{"Next", func() error { _, err := gen.Next(ctx, "IS"); return err }},
			{"NextWithDeadline", func() error {
				ctx, cancel := context.WithTimeout(ctx, time.Minute)
				defer cancel()
				_, err := gen.Next(ctx, "IS")
				return err
			}},
		} {
			b.Run(fmt.Sprintf("%s/callers=%d", op.name, callers), func(b *testing.B) {
				b.ReportAllocs()
				shared(b, callers, op.do)
			})
		}
	}
}

// BenchmarkString measures printing a number, which every Next does.
func BenchmarkString(b *testing.B) {
	n, err := parser(b).Parse("IS202110240001")
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		_ = n.String()
	}
}

// shared splits b.N calls of do among that many goroutines.
func shared(b *testing.B, callers int, do func() error) {
	var left atomic.Int64
	left.Store(int64(b.N))
	var wg sync.WaitGroup
	for range callers {
		wg.Go(func() {
			for left.Add(-1) >= 0 {
				if err := do(); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
}
