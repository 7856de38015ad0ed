package serial_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"os"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dailyserial/serial"
	"github.com/dailyserial/serial/internal/race"
	"github.com/dailyserial/serial/internal/redistest"
	"github.com/dailyserial/serial/serialtest"
)

// The behaviour suite must pass on a Redis in memory. The tests below run it on real servers of every kind.
// Guarantees: script-flush, counter-lost, prepared-counter-lost, record-lost, both-lost-remembered.
func TestBehaviour(t *testing.T) {
	t.Parallel()
	testBehaviour(t, inMemory(t))
}

func TestBehaviourOnServer(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	testBehaviour(t, backend{client: func(t *testing.T) redis.UniversalClient {
		opt := server.Options()
		opt.Protocol = 2 // the other clients use RESP3
		return closing(t, redis.NewClient(opt))
	}})
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
}

func TestBehaviourThroughSentinel(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for a failover")
	}
	t.Parallel()
	sentinel := redistest.StartSentinel(t)
	testBehaviour(t, backend{client: func(t *testing.T) redis.UniversalClient { return sentinel.Client(t) }})

	// After a failover that loses no data, numbers must continue. Calls may fail for a short time.
	gen := newGenerator(t, sentinel.Client(t), serial.WithLocation(noon()))
	require.NoError(t, errOf(gen.NextN(t.Context(), "IS", 10)))
	require.EqualValues(t, 1, sentinel.Client(t).Do(t.Context(), "WAIT", 1, 5000).Val())
	sentinel.Failover(t)
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		got, err := gen.NextNumber(t.Context(), "IS")
		require.NoError(c, err)
		require.Greater(c, got.Seq, int64(10))
	}, 20*time.Second, 50*time.Millisecond)
}

// testBehaviour is the behaviour suite, which every backend must pass. It has one function for each concern.
func testBehaviour(t *testing.T, b backend) {
	testTake(t, b)
	testOpen(t, b)
	testFloor(t, b)
	testCounterLost(t, b)
	testConflict(t, b)
	testRaise(t, b)
	testStart(t, b)
	testOnce(t, b)
	testShared(t, b)
	testPeriods(t, b)
	testCalendars(t, b)
	testPrepare(t, b)
	testEndOfRange(t, b)
}

// testTake is the part of the behaviour suite for step 1: the counter exists and is incremented.
func testTake(t *testing.T, b backend) {
	b.run(t, "numbers follow each other, each type separately", func(t *testing.T, s *series) {
		s.firstNumbers(s.gen, 2)
		requireResult(t, "订单/A.b-c_9"+s.day+"0001")(s.gen.Next(t.Context(), "订单/A.b-c_9"))
		s.next(s.generator(), 3)
		var sent atomic.Int64
		s.rdb.AddHook(counting(&sent))
		s.next(s.gen, 4)
		s.next(s.generator(), 5)
		requireResult(t, numbers("IS", s.day, 6, 1005))(textsOf(s.gen.NextN(t.Context(), "IS", 1000)))
		require.EqualValues(t, 3, sent.Load(), "one round trip for each call")
	})

	b.run(t, "NextN issues all numbers or none", func(t *testing.T, s *series) {
		require.NoError(t, errOf(s.gen.NextN(t.Context(), "IS", 9990)))
		none, err := s.gen.NextN(t.Context(), "IS", 10)
		require.ErrorIs(t, err, serial.ErrExhausted)
		require.Nil(t, none)
		requireResult(t, numbers("IS", s.day, 9991, 9999))(textsOf(s.gen.NextN(t.Context(), "IS", 9)))
		s.refused(s.gen, serial.ErrExhausted)
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

	b.run(t, "the server has forgotten the scripts", func(t *testing.T, s *series) {
		for want := range 3 {
			require.NoError(t, s.flushScripts())
			s.next(s.gen, want+1)
		}
	})

	b.run(t, "the largest sequences are exact", func(t *testing.T, s *series) {
		gen := s.generator(serial.WithTemplate("{type}{date:yyyyMMdd}{seq:15}"))
		require.NoError(t, gen.Raise(t.Context(), "IS", 999_999_999_999_997))
		want := []string{"IS" + s.day + "999999999999998", "IS" + s.day + "999999999999999"}
		requireResult(t, want)(textsOf(gen.NextN(t.Context(), "IS", 2)))
		s.refused(gen, serial.ErrExhausted)
	})

	b.run(t, "a counter beyond the largest sequence is exhausted, not lowered", func(t *testing.T, s *series) {
		for _, content := range []string{"10000", "9007199254740993", "99999999999999999999"} {
			require.NoError(t, s.rdb.Set(t.Context(), s.counter, content, time.Hour).Err())
			for range 2 { // without a record, and with one
				s.refused(s.gen, serial.ErrExhausted)
				require.NoError(t, s.gen.Raise(t.Context(), "IS", 5))
				require.NoError(t, s.gen.Prepare(t.Context(), "IS"))
				require.Equal(t, content, s.rdb.Get(t.Context(), s.counter).Val())
			}
			if len(content) < 16 {
				continue
			}
			for _, err := range []error{errOf(s.gen.Next(t.Context(), "IS")), errOf(s.gen.Peek(t.Context(), "IS"))} {
				require.ErrorIs(t, err, serial.ErrExhausted)
				require.ErrorContains(t, err, s.counter+" is larger than any sequence, so it was changed by hand; find "+
					"the last number used, delete the key, and run: serial raise -tz ")
			}
			requireResult(t, []serial.Number(nil))(s.gen.History(t.Context(), "IS", 1))
		}
	})
}

// testOpen is the part of the behaviour suite for steps 2 to 4: the counter is missing, or there is no record, so the
// period is opened.
func testOpen(t *testing.T, b backend) {
	b.run(t, "an opening leaves a counter and a record that expire", func(t *testing.T, s *series) {
		requireResult(t, "IS"+s.day+"0000")(textOf(s.gen.Peek(t.Context(), "IS")))
		require.Empty(t, s.keys(), "Peek writes nothing")
		requireResult(t, numbers("IS", s.day, 1, 3))(textsOf(s.gen.NextN(t.Context(), "IS", 3)))
		require.Equal(t, []string{s.record, s.counter}, s.keys(), "the lock is gone")
		require.Equal(t, "3", s.rdb.Get(t.Context(), s.counter).Val())
		y, m, d := time.Now().In(s.loc).Date()
		midnight := time.Date(y, m, d+1, 0, 0, 0, 0, s.loc)
		expires := func(key string) time.Time { return time.Now().Add(s.rdb.PTTL(t.Context(), key).Val()) }
		require.WithinDuration(t, midnight, expires(s.counter), 2*time.Second)
		require.WithinDuration(t, midnight.Add(7*24*time.Hour), expires(s.record), 2*time.Second)

		n, err := s.generator().Peek(t.Context(), "IS")
		require.NoError(t, err)
		require.Equal(t, "IS"+s.day+"0003", n.String())
		require.Equal(t, "IS", n.Type)
		require.EqualValues(t, 3, n.Seq)
		require.Equal(t, s.day+" 000000", n.Start.Format("20060102 150405"))
	})

	b.run(t, "a counter without a record is adopted", func(t *testing.T, s *series) {
		for _, life := range []time.Duration{0, 1000 * time.Hour} {
			require.NoError(t, s.rdb.Set(t.Context(), s.counter, 123, life).Err())
			require.NoError(t, s.rdb.Del(t.Context(), s.record).Err())
			gen := s.generator()
			requireSeq(t, 123)(gen.Peek(t.Context(), "IS"))
			s.next(gen, 124)
			left := s.rdb.PTTL(t.Context(), s.counter).Val()
			require.True(t, 0 < left && left <= 25*time.Hour, "it lives as long as any other: %v", left)
		}
		require.NoError(t, s.rdb.Set(t.Context(), s.counter, 200, 0).Err())
		s.next(s.gen, 201)
		require.Positive(t, s.rdb.TTL(t.Context(), s.counter).Val(), "an expiry that was removed comes back")
	})
}

// testFloor is the part of the behaviour suite for step 3 with a floor.
func testFloor(t *testing.T, b backend) {
	b.run(t, "floors", func(t *testing.T, s *series) {
		floor := func(f func(context.Context) (int64, error)) *serial.Generator {
			return s.generator(serial.WithFloor(func(ctx context.Context, _ string, _ time.Time) (int64, error) {
				return f(ctx)
			}))
		}
		for _, wrong := range []error{errBoom, context.DeadlineExceeded} { // errors that the floor returns
			s.refused(floor(func(context.Context) (int64, error) { return 0, wrong }), wrong)
		}
		for _, n := range []int64{-1, 10000} {
			gen := s.generator(fixedFloor(n))
			for _, err := range []error{errOf(gen.Next(t.Context(), "IS")), gen.Raise(t.Context(), "IS", 1)} {
				require.ErrorContains(t, err, fmt.Sprintf("answered %d: want 0 to 9999", n))
			}
		}
		require.PanicsWithValue(t, "floor", func() {
			_, _ = floor(func(context.Context) (int64, error) { panic("floor") }).Next(t.Context(), "IS")
		})
		require.Empty(t, s.keys(), "nothing is written, and the lock is released")

		// The context of the floor must end before the lock expires, and have the values of the caller's context.
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

// testCounterLost is the part of the behaviour suite for a counter that is missing, has gone back, or is not a number.
func testCounterLost(t *testing.T, b backend) {
	for _, lost := range []struct {
		name     string
		lose     func(s *series)
		recorded bool // in the record, so that a generator that remembers nothing sees it too
	}{
		{"deleted", func(s *series) { s.rdb.Del(s.t.Context(), s.counter) }, true},
		{"deleted with the record", func(s *series) { s.rdb.Del(s.t.Context(), s.counter, s.record) }, false},
		{"set back", func(s *series) { s.rdb.Set(s.t.Context(), s.counter, 2, time.Hour) }, false},
		{"a fraction", func(s *series) { s.rdb.Set(s.t.Context(), s.counter, "7.5", time.Hour) }, true},
		{"a list", func(s *series) {
			s.rdb.Del(s.t.Context(), s.counter)
			s.rdb.RPush(s.t.Context(), s.counter, "7")
		}, true},
	} {
		b.run(t, "a counter is lost: "+lost.name, func(t *testing.T, s *series) {
			s.firstNumbers(s.gen, 3)
			lost.lose(s)
			s.refused(s.gen, serial.ErrCounterLost)
			require.ErrorIs(t, errOf(s.gen.Peek(t.Context(), "IS")), serial.ErrCounterLost)
			if lost.recorded {
				s.refused(s.generator(), serial.ErrCounterLost)
			}
			require.NoError(t, s.gen.Raise(t.Context(), "IS", 0))
			s.next(s.gen, 4) // above what the process has issued, although the operator said 0
			require.Positive(t, s.rdb.TTL(t.Context(), s.counter).Val())

			// A floor repairs the counter. The numbers that the process has issued count, too.
			gen := s.generator(serial.WithFloor(func(_ context.Context, typ string, start time.Time) (int64, error) {
				require.Equal(t, "IS "+s.day+" 000000", typ+start.Format(" 20060102 150405"))
				return 4, nil
			}))
			s.next(gen, 5)
			lost.lose(s)
			require.ErrorIs(t, errOf(gen.Peek(t.Context(), "IS")), serial.ErrCounterLost)
			s.next(gen, 6)
			require.Positive(t, s.rdb.TTL(t.Context(), s.counter).Val())
			if lost.recorded {
				lost.lose(s)
				s.next(s.generator(fixedFloor(100)), 101)
			}
		})
	}

	b.run(t, "Raise to 0 says that no number of a lost counter was used", func(t *testing.T, s *series) {
		s.next(s.gen, 1)
		s.rdb.Del(t.Context(), s.counter)
		other := s.generator()
		require.NoError(t, other.Raise(t.Context(), "IS", 0))
		s.next(other, 1)
		s.next(s.gen, 2) // it remembers 1, and the counter exists again
	})
}

// testConflict is the part of the behaviour suite for a record that does not match the period of the caller.
func testConflict(t *testing.T, b backend) {
	b.run(t, "another zone is a conflict at the first call, another name of it is not", func(t *testing.T, s *series) {
		s.next(s.gen, 1)
		_, offset := time.Now().In(s.loc).Zone()
		for _, difference := range []int{3600, 1} {
			gen := s.generator(serial.WithLocation(time.FixedZone("noon", offset+difference))) // the same name
			s.refused(gen, serial.ErrConflict)
			require.ErrorIs(t, errOf(gen.Peek(t.Context(), "IS")), serial.ErrConflict)
			require.ErrorIs(t, gen.Raise(t.Context(), "IS", 5), serial.ErrConflict)
		}
		s.next(s.generator(serial.WithLocation(time.FixedZone("another name", offset))), 2)
	})

	for name, write := range map[string]func(s *series) error{
		"contains a value that is not a hash": func(s *series) error {
			return s.rdb.RPush(s.t.Context(), s.record, "7").Err()
		},
		`contains "20211024 1 2"`: func(s *series) error {
			return s.rdb.HSet(s.t.Context(), s.record, "entered", "20211024 1 2").Err()
		},
	} {
		b.run(t, "a record that this version did not write "+name, func(t *testing.T, s *series) {
			require.NoError(t, write(s))
			for call, err := range map[string]error{
				"Next":     errOf(s.gen.Next(t.Context(), "IS")),
				"Peek":     errOf(s.gen.Peek(t.Context(), "IS")),
				"History":  errOf(s.gen.History(t.Context(), "IS", 1)),
				"Raise":    s.gen.Raise(t.Context(), "IS", 5),
				"Takeover": s.gen.Takeover(t.Context(), "IS", 5),
				"Prepare":  s.gen.Prepare(t.Context(), "IS"),
			} {
				require.ErrorIs(t, err, serial.ErrConflict, call)
				require.ErrorContains(t, err, s.record+" "+name+", which this version did not write; stop all processes that "+
					"issue these numbers, find the last number used, delete the key, and run: serial raise", call)
			}
			require.NoError(t, s.rdb.Del(t.Context(), s.record).Err())
			require.NoError(t, s.gen.Raise(t.Context(), "IS", 3))
			s.next(s.gen, 4)
		})
	}
}

func testRaise(t *testing.T, b backend) {
	b.run(t, "Raise never lowers", func(t *testing.T, s *series) {
		require.NoError(t, s.gen.Raise(t.Context(), "IS", 0))
		requireSeq(t, 0)(s.gen.Peek(t.Context(), "IS"))
		require.Len(t, s.keys(), 2, "it opens the period, as Next does")
		require.NoError(t, s.gen.Raise(t.Context(), "IS", 41))
		s.next(s.gen, 42)
		require.NoError(t, s.gen.Raise(t.Context(), "IS", 7))
		s.next(s.gen, 43)
		for _, seq := range []int64{-1, 10000} {
			require.ErrorContains(t, s.gen.Raise(t.Context(), "IS", seq), "want 0 to 9999")
		}
		wide := s.generator(serial.WithTemplate("{type}{date:yyyyMMdd}{seq:6}"))
		require.NoError(t, wide.Raise(t.Context(), "IS", 12345))
		require.NoError(t, s.gen.Raise(t.Context(), "IS", 9999))
		require.Equal(t, "12345", s.rdb.Get(t.Context(), s.counter).Val())
	})

	b.run(t, "Raise queries the floor of a period that it opens", func(t *testing.T, s *series) {
		gen := s.generator(fixedFloor(50))
		require.NoError(t, gen.Raise(t.Context(), "IS", 7))
		s.next(gen, 51)
		require.NoError(t, s.rdb.Del(t.Context(), s.counter).Err())
		require.NoError(t, gen.Raise(t.Context(), "IS", 70))
		s.next(gen, 71)
		require.NoError(t, s.rdb.Set(t.Context(), s.counter, 5, time.Hour).Err())
		require.NoError(t, s.rdb.Del(t.Context(), s.record).Err())
		gen = s.generator(fixedFloor(80))
		require.NoError(t, gen.Raise(t.Context(), "IS", 72), "the counter has no record")
		s.next(gen, 81)
	})
}

// testStart is the part of the behaviour suite for WithStart. The start must apply if a counter is created for a period
// in which no number was used, and the record must keep it.
func testStart(t *testing.T, b backend) {
	drop := func(s *series, keys ...string) { require.NoError(s.t, s.rdb.Del(s.t.Context(), keys...).Err()) }
	raise := func(s *series, gen *serial.Generator) error { return gen.Raise(s.t.Context(), "IS", 7) }
	prepare := func(s *series, gen *serial.Generator) error { return gen.Prepare(s.t.Context(), "IS") }
	for name, test := range map[string]struct {
		change func(s *series, gen *serial.Generator) error
		floor  int64
		want   int
	}{
		"Next":               {nil, 0, 6},
		"Prepare":            {prepare, 0, 6},
		"Raise":              {raise, 0, 8},
		"the record is lost": {func(s *series, _ *serial.Generator) error { drop(s, s.record); return nil }, 0, 6},
		"floor":              {func(s *series, _ *serial.Generator) error { drop(s, s.counter); return nil }, 7, 8},
		"Takeover from another zone, and back": {func(s *series, gen *serial.Generator) error {
			_, offset := time.Now().In(s.loc).Zone()
			other := s.generator(serial.WithStart(2000), serial.WithLocation(time.FixedZone("other", offset+3600)))
			return errors.Join(other.Takeover(s.t.Context(), "IS", 0), gen.Takeover(s.t.Context(), "IS", 7))
		}, 0, 8},
	} {
		b.run(t, "another start in an open period: "+name, func(t *testing.T, s *series) {
			s.firstNumbers(s.gen, 5)
			opts := options(serial.WithStart(1000))
			if test.floor > 0 {
				opts = append(opts, fixedFloor(test.floor))
			}
			gen := s.generator(opts...)
			if test.change != nil {
				require.NoError(t, test.change(s, gen))
			}
			s.next(gen, test.want)
			s.next(s.gen, test.want+1)
		})
	}

	b.run(t, "the first number of a period", func(t *testing.T, s *series) {
		start := s.generator(serial.WithStart(9000))
		require.ErrorIs(t, errOf(start.NextN(t.Context(), "IS", 1001)), serial.ErrExhausted)
		requireSeq(t, 0)(start.Peek(t.Context(), "IS"))
		requireResult(t, numbers("IS", s.day, 9000, 9999))(textsOf(start.NextN(t.Context(), "IS", 1000)))
		require.NoError(t, start.Raise(t.Context(), "UP", 3))
		requireSeq(t, 0)(s.gen.Peek(t.Context(), "UP"))
		requireResult(t, "UP"+s.day+"9000")(s.gen.Next(t.Context(), "UP"))
		for floor, want := range map[int64]int64{2: 3, 20: 21} { // answers of the floor for used numbers
			gen, typ := s.generator(serial.WithStart(8), fixedFloor(floor)), fmt.Sprint("FL", floor)
			requireSeq(t, want)(gen.NextNumber(t.Context(), typ))
		}
		drop(s, strings.Replace(s.counter, "{IS}", "{UP}", 1))
		other := s.generator() // it remembers nothing
		require.NoError(t, other.Raise(t.Context(), "UP", 7))
		requireResult(t, "UP"+s.day+"9000", "a lost counter is not below its start")(other.Next(t.Context(), "UP"))
	})
}

// Clients or options of a Generator are invalid. New must return an error. TestTemplatesRefused covers schemes.
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
	const ofRing = "*redis.Ring moves counters to another shard when one fails; want *redis.Client, a Sentinel " +
		"client or *redis.ClusterClient"
	refuse(isNil, nil)
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
		serial.WithUntil(today)) // the last option applies
	for _, share := range []float64{-0.1, 1.1, math.NaN()} {
		refuse(fmt.Sprintf("WithHooks: NearlyExhaustedAt %v: want more than 0 and at most 1, or 0 for 0.8", share), rdb,
			serial.WithHooks(serial.Hooks{NearlyExhaustedAt: share}))
	}
	refuse("WithMaxSkew(0) would refuse every clock; want a positive value, or a negative one", rdb, serial.WithMaxSkew(0))
	for _, d := range []time.Duration{0, time.Minute - 1, 40*24*time.Hour + 1} {
		refuse(fmt.Sprintf("WithOnceFor(%v): want 1m to 960h", d), rdb, serial.WithOnceFor(d))
	}
	refuse("WithLockClients: no client is given", rdb, serial.WithLockClients())
	refuse(isNil+" (client 2 of WithLockClients)", rdb, serial.WithLockClients(rdb, nil))
	refuse(ofRing+" (client 1 of WithLockClients)", rdb, serial.WithLockClients(ring))
	refuse("WithLockClients: clients 1 and 2 are the same client, and a server grants a lock only once; "+
		"pass each server once", rdb, serial.WithLockClients(rdb, rdb))
	type incomparable struct {
		redis.UniversalClient
		more any
	}
	client := incomparable{rdb, []int{1}}
	newGenerator(t, client, serial.WithLockClients(client, client))
	refuse("WithLocation: the location is nil; did time.LoadLocation fail?\nserial: WithMaxSkew(0)", rdb,
		serial.WithLocation(nil), serial.WithMaxSkew(0))

	second := []serial.Option{serial.WithPeriod(serial.PerSecond), serial.WithTemplate("{type}{date:yyyyMMddHHmmss}{seq}")}
	for _, slow := range []serial.Option{fixedFloor(0), serial.WithLedger(new(serialtest.Ledger), 1)} {
		refuse("WithPeriod(PerSecond): a second is too short to query a floor or a ledger; want PerMinute or longer",
			rdb, append(second, slow)...)
	}
}

// A ledgerFunc is a ledger that ignores the arguments of a reservation.
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

// A call has an invalid argument, or its context has ended. It must send nothing.
func TestCallsRefuse(t *testing.T) {
	var sent atomic.Int64
	rdb := closing(t, redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"}))
	rdb.AddHook(counting(&sent))
	gen := newGenerator(t, rdb)
	ctx := t.Context()

	for _, typ := range []string{"", strings.Repeat("a", 65), strings.Repeat("字", 22), "a b", "a:b", "a{b", "a\n", "a\xff",
		"½"} {
		_, err := gen.Next(ctx, typ)
		require.ErrorContains(t, err, "want", "%q", typ)
		for _, err := range []error{err, errOf(gen.NextNumber(ctx, typ)), errOf(gen.NextN(ctx, typ, 0)),
			errOf(gen.NextOnce(ctx, typ, "")), errOf(gen.Peek(ctx, typ)), errOf(gen.History(ctx, typ, 1)),
			gen.Raise(ctx, typ, 1), gen.Takeover(ctx, typ, 1), gen.Prepare(ctx, typ)} {
			require.ErrorIs(t, err, serial.ErrInvalidType, "%q", typ)
		}
	}
	for _, n := range []int{-1, 0, 100_001} {
		err := errOf(gen.NextN(ctx, "IS", n))
		require.ErrorIs(t, err, serial.ErrInvalidRequest)
		require.ErrorContains(t, err, "want 1 to 100000", "%d", n)
	}
	require.ErrorIs(t, errOf(gen.NextN(ctx, "IS", 10_000)), serial.ErrExhausted, "a period has fewer")
	for id, says := range map[string]string{
		"":                       "0 bytes; want 1 to 128",
		strings.Repeat("x", 129): "129 bytes; want 1 to 128",
		"a\xff":                  "not valid UTF-8",
		"a\nb":                   `it contains '\n'; want printable UTF-8`,
		"a\u00a0b":               "want printable UTF-8",
	} {
		err := errOf(gen.NextOnce(ctx, "IS", id))
		require.ErrorIs(t, err, serial.ErrInvalidRequest)
		require.ErrorContains(t, err, says)
	}
	for _, n := range []int{-1, 0, 10_001} {
		require.ErrorContains(t, errOf(gen.History(ctx, "IS", n)), "want 1 to 10000")
	}
	for _, seq := range []int64{-1, 10_000} {
		want := fmt.Sprintf("serial: Takeover of IS to %d: want 0 to 9999", seq)
		require.EqualError(t, gen.Takeover(ctx, "IS", seq), want)
	}

	canceled, cancel := context.WithCancel(ctx)
	cancel()
	expired, cancel := context.WithDeadline(ctx, time.Now().Add(-time.Second))
	defer cancel()
	for ctx, end := range map[context.Context]error{canceled: context.Canceled, expired: context.DeadlineExceeded} {
		for _, err := range []error{errOf(gen.Next(ctx, "IS")), errOf(gen.NextN(ctx, "IS", 0)), errOf(gen.Peek(ctx, "IS")),
			gen.Raise(ctx, "IS", 1), errOf(gen.Next(ctx, ""))} {
			require.ErrorIs(t, err, end)
		}
		require.ErrorIs(t, errOf(gen.Next(ctx, "")), serial.ErrInvalidType, "both match")
	}
	require.Zero(t, sent.Load())
}

// Redis returns an error, or a context ends. The error of the call must match its cause. It must match an error of a
// context only if the caller's context has ended.
func TestErrorsOfRedis(t *testing.T) {
	for _, cause := range []error{errBoom, io.EOF, context.DeadlineExceeded, context.Canceled, redis.ErrClosed,
		fmt.Errorf("dial: %w", context.DeadlineExceeded)} {
		t.Run(cause.Error(), func(t *testing.T) {
			rdb := closing(t, redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"}))
			rdb.AddHook(around(func(cmd redis.Cmder, _ func() error) error {
				cmd.SetErr(cause)
				return cause
			}))
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

// The reply to an attempt is lost, and the next attempt finds too few numbers. The first attempt may have consumed the
// missing numbers, so the error must not match ErrExhausted.
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

// The period is open, and no other call is running. Each call must not allocate more often than its limit. The limits
// include the allocations of go-redis, which are 9 for a plain EVALSHA.
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
		"Next":                 {func() error { return errOf(gen.Next(background, "IS")) }, 13},
		"Next with a deadline": {func() error { return errOf(gen.Next(limited, "IS")) }, 18}, // 17 on an idle machine
		"NextN of 1000":        {func() error { return errOf(gen.NextN(background, "IS", 1000)) }, 18},
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

// Redis is restarted. With persistence, no number must be lost. Without persistence, a generator that remembers its
// numbers must report the loss.
// Guarantees: restart-with-data.
func TestRestart(t *testing.T) {
	t.Parallel()
	for _, kept := range []string{"yes", "no"} {
		t.Run("appendonly "+kept, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t, "--appendonly", kept, "--appendfsync", "always")
			gen := newGenerator(t, server.Client(t), serial.WithLocation(noon()))
			require.NoError(t, errOf(gen.NextN(t.Context(), "IS", 5)))
			server.Kill()
			before := time.Now()
			_, err := gen.Next(t.Context(), "IS")
			var refused *net.OpError
			require.ErrorAs(t, err, &refused)
			require.NotErrorIs(t, err, context.DeadlineExceeded)
			require.Less(t, time.Since(before), 10*time.Second)
			server.Restart(t)
			require.EventuallyWithT(t, func(c *assert.CollectT) { // go-redis keeps closed connections for a moment
				got, err := gen.Next(t.Context(), "IS")
				if kept == "yes" {
					require.NoError(c, err)
					require.Equal(c, "IS"+today(noon())+"0006", got)
				} else {
					require.ErrorIs(c, err, serial.ErrCounterLost)
				}
			}, 5*time.Second, 10*time.Millisecond)
		})
	}
}

// The user of an ACL may only run the commands that docs/operations.md lists. All calls must succeed.
func TestAccessControl(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	_, list, found := strings.Cut(guide(t, "operations.md"), "- An ACL must allow ")
	require.True(t, found)
	list, _, _ = strings.Cut(list, " on")
	rules := []any{"~serial:*", "+@connection"}
	for _, command := range regexp.MustCompile("[A-Z]+").FindAllString(list, -1) {
		rules = append(rules, "+"+strings.ToLower(command))
	}
	rdb := closing(t, redis.NewClient(addUser(t, server, "issuer", rules...)))
	gen := newGenerator(t, rdb)
	for range 2 {
		require.NoError(t, errOf(gen.Next(t.Context(), "IS")))
	}
	require.NoError(t, gen.Raise(t.Context(), "IS", 7))
	require.NoError(t, errOf(gen.Peek(t.Context(), "IS")))
	require.Error(t, rdb.Set(t.Context(), "other", 1, 0).Err())
}

// addUser adds a user with ACL rules to a server. It returns the options of a client that logs in as this user.
func addUser(t *testing.T, server *redistest.Server, name string, rules ...any) *redis.Options {
	t.Helper()
	require.NoError(t, server.Do(append([]any{"ACL", "SETUSER", name, "on", ">secret"}, rules...)...).Err())
	o := server.Options()
	o.Username, o.Password = name, "secret"
	return o
}

// The server with the counters rejects a call. The error must contain the reply of Redis and a remedy, and must not
// mention lock servers. docs/errors.md must have a row for each reply.
func TestServerRefuses(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t, "--enable-protected-configs", "yes")
	admin := s.Client(t)
	require.NoError(t, errOf(newGenerator(t, admin, serial.WithLocation(noon())).Next(t.Context(), "OPEN")))
	config := func(name, value string) { require.NoError(t, admin.ConfigSet(t.Context(), name, value).Err()) }
	types := 0
	// refused requires that the calls for the first number of a day and for a later one fail.
	refused := func(o *redis.Options, code string, says ...string) {
		t.Helper()
		require.Regexp(t, "(?m)^\\| `("+code+").*`.* \\| .{20,} \\| .{20,} \\|$", guide(t, "errors.md"))
		gen := newGenerator(t, closing(t, redis.NewClient(o)), serial.WithLocation(noon()))
		types++
		for _, typ := range []string{"OPEN", fmt.Sprint("NEW", types)} {
			ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
			defer cancel()
			_, err := gen.Next(ctx, typ)
			require.Regexp(t, code, err.Error(), typ)
			for _, part := range says {
				require.ErrorContains(t, err, part, typ)
			}
			require.NotContains(t, err.Error(), "lock server")
			require.NotContains(t, err.Error(), "node #0")
		}
	}
	user := func(name string, rules ...any) *redis.Options {
		return addUser(t, s, name, append([]any{"~*", "+@all"}, rules...)...)
	}

	for _, code := range []string{"READONLY", "TRYAGAIN"} { // internal/wire and TestWritableReplicaRefused have these
		require.Contains(t, guide(t, "errors.md"), "\n| `"+code)
	}
	const acl = "an ACL denies this client's user a command or a key that is needed"
	refused(user("notime", "-time"), "TIME", acl)
	refused(user("noeval", "-evalsha"), "NOPERM", acl)
	refused(user("nokeys", "resetkeys"), "NOPERM", acl)
	mistyped := user("mistyped")
	mistyped.Password = "guess"
	refused(mistyped, "WRONGPASS", "this client's user name or password is wrong, or an ACL turns the user off")
	_, err := newGenerator(t, closing(t, redis.NewClient(user("noget", "-hget", "-hmget")))).Next(t.Context(), "IS")
	require.NotContains(t, err.Error(), "TIME", "another command is denied")
	renamed := redistest.Start(t, "--rename-command", "TIME", "ANOTHER")
	refused(renamed.Options(), "TIME", "was renamed or disabled")

	for name, test := range map[string]struct{ value, usual, code, says string }{
		"maxmemory":             {"1", "0", "OOM", "free memory, or raise maxmemory"},
		"min-replicas-to-write": {"1", "0", "NOREPLICAS", "min-replicas-to-write"},
		"requirepass":           {"secret", "", "NOAUTH|unauthenticated", "Redis requires a password, but"},
	} {
		config(name, test.value)
		refused(s.Options(), test.code, test.says)
		config(name, test.usual) // admin is logged in already
	}

	config("busy-reply-threshold", "1")
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = admin.Eval(context.Background(), "while true do end", nil).Err()
	}()
	busy := func() bool { return s.Client(t).Ping(t.Context()).Err() != nil }
	require.Eventually(t, busy, 10*time.Second, time.Millisecond)
	refused(s.Options(), "BUSY", "SCRIPT KILL")
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
	refused(s.Options(), "MISCONF", "Redis's log", "without a ledger, do not set stop-writes-on-bgsave-error to no")
}
