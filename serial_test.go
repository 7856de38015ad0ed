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

// The behaviour suite must pass on a Redis in memory. TestBehaviourOnServers runs it on real servers of every kind, and
// internal/faults tests failovers.
// Guarantees: script-flush, counter-lost, prepared-counter-lost, record-lost, both-lost-remembered.
func TestBehaviour(t *testing.T) {
	t.Parallel()
	testBehaviour(t, inMemory(t))
}

func TestBehaviourOnServers(t *testing.T) {
	t.Parallel()
	cluster, sentinel, opt := redistest.StartCluster(t), redistest.StartSentinel(t), redistest.Start(t).Options()
	opt.Protocol = 2 // the other clients use RESP3
	for name, client := range map[string]func(t *testing.T) redis.UniversalClient{
		"a server": func(t *testing.T) redis.UniversalClient { return closing(t, redis.NewClient(opt)) },
		"Cluster":  func(t *testing.T) redis.UniversalClient { return cluster.Client(t) },
		"Sentinel": func(t *testing.T) redis.UniversalClient { return sentinel.Client(t) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testBehaviour(t, backend{client: client})
		})
	}
}

// testBehaviour is the behaviour suite, which every backend must pass. It has one function for each concern.
func testBehaviour(t *testing.T, b backend) {
	testSteps(t, b)
	testTake(t, b)
	testOpen(t, b)
	testFloor(t, b)
	testConflict(t, b)
	testOnce(t, b)
	testShared(t, b)
	testPrepare(t, b)
}

// testSteps is the part of the behaviour suite that needs only steps of series.play.
func testSteps(t *testing.T, b backend) {
	template := func(width int) serial.Option {
		return serial.WithTemplate(fmt.Sprintf("{type}{date:yyyyMMdd}{seq:%d}", width))
	}
	until := func(days int) serial.Option {
		return serial.WithUntil(serial.OnDateOf(time.Now().In(noon()).AddDate(0, 0, days)))
	}
	zone := func(name string, shift int) serial.Option {
		_, offset := time.Now().In(noon()).Zone()
		return serial.WithLocation(time.FixedZone(name, offset+shift))
	}
	// lost returns steps that lose a counter with the given steps. An operator repairs it. After the same loss again, a
	// floor repairs it. The numbers that the process has issued count, too.
	lost := func(steps string) string {
		return "next 1; take 2 3; " + steps + "; next lost; peek lost; raise 0; expires; next 4; other.next 5; " + steps +
			"; other.peek lost; other.next 6; expires"
	}
	thousand, otherZone, ledger := serial.WithStart(1000), zone("noon", 3600), ledgerIf(true, 10)
	floor := options(fixedFloor(4))
	const conflicts = "next 1; other.next conflict; other.peek conflict; other.raise 5 conflict"
	for _, test := range []struct {
		name        string
		opts, other []serial.Option // of the generators
		steps       string
	}{
		{"NextN issues all numbers or none", nil, nil, "take 9990 9990; take 10 exhausted; take 9 9999; next exhausted"},
		{"the server has forgotten the scripts", nil, nil, "flush; next 1; flush; next 2; flush; other.next 3"},
		{"the largest sequences are exact", options(template(15)), nil,
			"raise 999999999999997; take 2 999999999999999; next exhausted"},
		{"a floor at the largest sequence", nil, options(fixedFloor(9999)), "other.next exhausted; opened; next exhausted"},
		{"Raise never lowers", nil, options(template(6)),
			"raise 0; opened; peek 0; raise 41; next 42; raise 7; next 43; other.raise 12345; raise 9999; other.peek 12345"},
		{"Raise queries the floor of a period that it opens", options(fixedFloor(50)), options(fixedFloor(80)),
			"raise 7; next 51; del counter; raise 70; next 71; set counter 5; del record; other.raise 72; other.next 81"},
		{"Raise to 0 says that no number of a lost counter was used", nil, nil,
			"next 1; del counter; other.raise 0; other.next 1; next 2"}, // the first generator remembers 1

		// WithStart applies if a counter is created for a period in which no number was used, and the record keeps it.
		{"another start", nil, nil, "next 1; thousand.next 2; thousand.prepare; thousand.next 3; thousand.raise 7; next 8; " +
			"thousand.next 9; del record; peek 9; thousand.next 10; expires; next 11"},
		{"another start, lost counter", nil, options(thousand, fixedFloor(7)), "next 1; del counter; other.next 8; next 9"},
		{"another start, Takeover from another zone, and back", nil, options(serial.WithStart(2000), otherZone),
			"next 1; other.takeover 0; thousand.takeover 7; thousand.next 8; next 9"},
		{"a start", options(serial.WithStart(9000)), nil, "take 1001 exhausted; peek 0; take 1000 9999"},
		{"a start above used numbers", options(serial.WithStart(8), fixedFloor(2)), nil, "next 3"},
		{"a start below used numbers", options(serial.WithStart(8), fixedFloor(20)), nil, "next 21"},
		{"a lost counter is not below its start", options(serial.WithStart(9000)), nil,
			"raise 3; other.peek 0; other.next 9000; del counter; restart; raise 7; next 9000"},

		{"a counter is deleted", nil, floor, lost("del counter")},
		{"a counter is deleted with its record", nil, floor, lost("del counter record")},
		{"a counter is set back", nil, floor, lost("set counter 2")},
		{"a counter is a fraction", nil, floor, lost("set counter 7.5")},
		{"a counter is a list", nil, floor, lost("del counter; list")},
		{"a new process finds a record without its counter", nil, options(fixedFloor(100)),
			"next 1; del counter; restart; next lost; set counter 7.5; next lost; other.next 101; del counter; list; next lost"},

		{"a request is remembered whatever happens to the day", nil, nil, "once a 1; raise 9999; once b exhausted; " +
			"once a 1; del counter; once b lost; once a 1; set counter 5000; other.once b 5001"},

		{"the last sequence", options(serial.WithStart(5), serial.WithLast(9)), options(serial.WithLast(20)),
			"next 5; take 5 exhausted; take 4 9; next exhausted; raise 9; other.next 10; next exhausted; peek 10; raise 9"},
		{"a floor above the last sequence", options(serial.WithLast(9), fixedFloor(40)),
			options(serial.WithLast(50), fixedFloor(40)),
			"next exhausted; once a exhausted; prepare; raise 3; other.next 41; next exhausted"},
		{"a floor above the last sequence, with a ledger", append(ledger, serial.WithLast(9), fixedFloor(40)),
			append(ledger, serial.WithLast(50), fixedFloor(40)),
			"next exhausted; once a exhausted; prepare; raise 3; other.next 42; next exhausted"},
		{"the last day", options(until(0)), options(until(-1)), "next 1; other.next exhausted"},

		{"another zone is a conflict at the first call", nil, options(otherZone), conflicts},
		{"a zone that differs by a second", nil, options(zone("noon", 1)), conflicts},
		{"another name of the zone is no conflict", nil, options(zone("another name", 0)), "next 1; other.next 2"},
	} {
		b.run(t, test.name, func(t *testing.T, s *series) {
			s.gens = map[string]*serial.Generator{"other": s.generator(test.other...), "thousand": s.generator(thousand)}
			s.does = map[string]func(){
				"flush":   func() { require.NoError(t, s.rdb.ScriptFlush(t.Context()).Err()) },
				"opened":  func() { require.Len(t, s.keys(), 2) },
				"restart": func() { s.gen = s.generator() },
				"list":    func() { s.rdb.RPush(t.Context(), s.counter, "7") },
				"expires": func() { require.Positive(t, s.rdb.TTL(t.Context(), s.counter).Val()) },
			}
			s.play(test.steps)
		}, test.opts...)
	}
}

// testTake is the part of the behaviour suite for step 1: the counter exists and is incremented.
func testTake(t *testing.T, b backend) {
	b.run(t, "numbers follow each other, each type separately", func(t *testing.T, s *series) {
		s.play("next 1; next 2")
		requireResult(t, "订单/A.b-c_9"+s.day+"0001")(s.gen.Next(t.Context(), "订单/A.b-c_9"))
		s.next(s.generator(), 3)
		requireResult(t, numbers("IS", s.day, 4, 1003))(textsOf(s.gen.NextN(t.Context(), "IS", 1000)))
	})

	b.run(t, "a counter beyond the largest sequence is exhausted, not lowered", func(t *testing.T, s *series) {
		for content, says := range map[string]string{"10000": " is at 10000 of 9999; a wider template, such as ",
			"9007199254740993": s.counter + " is larger than any sequence, so it was changed by hand; find the last " +
				"number used, delete the key, and run: serial raise -tz ",
			"99999999999999999999": s.counter + " is larger than any sequence"} {
			s.play("set counter " + content)
			for range 2 { // without a record, and with one
				s.play("next exhausted; raise 5; prepare")
				require.Equal(t, content, s.rdb.Get(t.Context(), s.counter).Val())
			}
			require.ErrorContains(t, errOf(s.gen.Next(t.Context(), "IS")), says)
			if content == "10000" {
				limited := s.generator(serial.WithLast(9))
				require.ErrorContains(t, errOf(limited.Next(t.Context(), "IS")), " of 9; if the authorized range was extended, a "+
					"larger WithLast takes effect at once")
				continue
			}
			s.play("peek exhausted")
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
		requireExpiry(t, s.rdb, s.counter, midnight)
		requireExpiry(t, s.rdb, s.record, midnight.Add(7*24*time.Hour))

		n := must(s.generator().Peek(t.Context(), "IS"))
		require.Equal(t, "IS"+s.day+"0003 IS 3 "+s.day+" 000000",
			fmt.Sprint(n, " ", n.Type, " ", n.Seq, n.Start.Format(" 20060102 150405")))
	})
}

// testFloor is the part of the behaviour suite for step 3 with a floor.
func testFloor(t *testing.T, b backend) {
	b.run(t, "floors", func(t *testing.T, s *series) {
		type query = func(ctx context.Context, typ string, start time.Time) (int64, error)
		floor := func(f query) *serial.Generator { return s.generator(serial.WithFloor(f)) }
		for _, wrong := range []error{errBoom, context.DeadlineExceeded} { // errors that the floor returns
			s.gen = floor(func(context.Context, string, time.Time) (int64, error) { return 0, wrong })
			require.ErrorIs(t, errOf(s.gen.Next(t.Context(), "IS")), wrong)
		}
		for _, n := range []int64{-1, 10000} {
			gen := s.generator(fixedFloor(n))
			for _, err := range []error{errOf(gen.Next(t.Context(), "IS")), gen.Raise(t.Context(), "IS", 1)} {
				require.ErrorContains(t, err, fmt.Sprintf("answered %d: want 0 to 9999", n))
			}
		}
		s.gen = floor(func(context.Context, string, time.Time) (int64, error) { panic("floor") })
		require.PanicsWithValue(t, "floor", func() { _, _ = s.gen.Next(t.Context(), "IS") })
		require.Empty(t, s.keys(), "nothing is written, and the lock is released")

		// The context of the floor must end before the lock expires, and have the values of the caller's context.
		type key struct{}
		ctx := context.WithValue(t.Context(), key{}, "value")
		s.gen = floor(func(ctx context.Context, typ string, start time.Time) (int64, error) {
			require.Equal(t, "value IS "+s.day, fmt.Sprint(ctx.Value(key{}), " ", typ, start.Format(" 20060102")))
			deadline, ok := ctx.Deadline()
			require.True(t, ok)
			require.Less(t, time.Until(deadline), s.rdb.PTTL(ctx, s.counter+":lock").Val())
			return 9998, nil
		})
		requireResult(t, "IS"+s.day+"9999")(s.gen.Next(ctx, "IS"))
		s.play("next exhausted")
	})
}

// testConflict is the part of the behaviour suite for a record that does not match the period of the caller.
func testConflict(t *testing.T, b backend) {
	for name, command := range map[string][]any{
		"contains a value that is not a hash": {"rpush", "record", "7"},
		`contains "20211024 1 2"`:             {"hset", "record", "entered", "20211024 1 2"},
	} {
		b.run(t, "a record that this version did not write "+name, func(t *testing.T, s *series) {
			command[1] = s.record
			require.NoError(t, s.rdb.Do(t.Context(), command...).Err())
			for call, err := range callsOf(t.Context(), s.gen, "IS") {
				require.ErrorIs(t, err, serial.ErrConflict, call)
				require.ErrorContains(t, err, s.record+" "+name+", which this version did not write; stop all processes that "+
					"issue these numbers, find the last number used, delete the key, and run: serial raise", call)
			}
			s.play("del record; raise 3; next 4")
		})
	}
}

// Clients or options of a Generator are invalid. New must return an error. TestTemplatesRefused covers schemes.
func TestNewRefuses(t *testing.T) {
	rdb := closing(t, redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", ReadTimeout: 400 * time.Millisecond}))
	unlimited := closing(t, redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", ReadTimeout: -1}))
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
	refuse(ofRing, struct{ *redis.Ring }{ring})
	refuse("WithReplicas with a client of type struct { redis.UniversalClient }; want *redis.Client or "+
		"*redis.ClusterClient", struct{ redis.UniversalClient }{rdb}, confirmedBy(1)) // it may be any client
	const whole, half = ": want timeouts of whole milliseconds, at least one",
		": want timeouts up to 200ms, half of the client's read timeout"
	const skew = " would refuse every clock; want a positive value, or a negative one"
	const same = ": clients 1 and 2 are the same client, and a server grants a lock only once; pass each server once"
	for want, option := range map[string]serial.Option{
		"WithLedger: the ledger is nil":                   serial.WithLedger(ledgerFunc(nil), 1),
		"WithFloor: the function is nil":                  serial.WithFloor(nil),
		"WithRetention(-1): want 0 to 10000 periods":      serial.WithRetention(-1),
		"WithRetention(10001): want 0 to 10000 periods":   serial.WithRetention(10_001),
		"WithOnceFor(59.999999999s): want 1m to 960h":     serial.WithOnceFor(time.Minute - 1),
		"WithOnceFor(960h0m0.000000001s): want 1m to 960": serial.WithOnceFor(40*24*time.Hour + 1),
		"WithLockClients: no client is given":             serial.WithLockClients(),
		isNil + " (client 2 of WithLockClients)":          serial.WithLockClients(rdb, nil),
		ofRing + " (client 1 of WithLockClients)":         serial.WithLockClients(ring),
		"WithReplicas(-1, 1s): want 0 to 1000 replicas":   confirmedBy(-1),
		"WithReplicas(1001, 1s): want 0 to 1000 replicas": confirmedBy(1001),
		"WithReplicas(1, 0s)" + whole:                     serial.WithReplicas(1, 0),
		"WithReplicas(1, 1.5ms)" + whole:                  serial.WithReplicas(1, 1500*time.Microsecond),
		"WithReplicas(1, 201ms)" + half:                   serial.WithReplicas(1, 201*time.Millisecond),
		"WithMaxSkew(0)" + skew:                           serial.WithMaxSkew(0),
		"WithLockClients" + same:                          serial.WithLockClients(rdb, rdb),
	} {
		refuse(want, rdb, option)
	}
	for _, share := range []float64{-0.1, 1.1, math.NaN()} {
		refuse(fmt.Sprintf("WithHooks: NearlyExhaustedAt %v: want more than 0 and at most 1, or 0 for 0.8", share), rdb,
			serial.WithHooks(serial.Hooks{NearlyExhaustedAt: share}))
	}
	refuse("WithReplicas(1, 2.501s): want timeouts up to 2.5s", unlimited, serial.WithReplicas(1, 2501*time.Millisecond))
	refuse("WithLocation: the location is nil; did time.LoadLocation fail?\nserial: WithMaxSkew(0)", rdb,
		serial.WithLocation(nil), serial.WithMaxSkew(0))
	for _, slow := range []serial.Option{fixedFloor(0), serial.WithLedger(new(serialtest.Ledger), 1)} {
		refuse("WithPeriod(PerSecond): a second is too short to query a floor or a ledger; want PerMinute", rdb, slow,
			serial.WithPeriod(serial.PerSecond), serial.WithTemplate("{type}{date:yyyyMMddHHmmss}{seq}"))
	}
	type incomparable struct {
		redis.UniversalClient
		more any
	}
	client := incomparable{rdb, []int{1}}
	newGenerator(t, client, serial.WithLockClients(client, client))
	for n, timeout := range []time.Duration{0, time.Millisecond, 200 * time.Millisecond} {
		newGenerator(t, rdb, serial.WithReplicas(n, timeout))
	}
}

// A ledgerFunc is a ledger that ignores what a reservation is for.
type ledgerFunc func(ctx context.Context) (int64, error)

func (f ledgerFunc) Reserve(ctx context.Context, _ serial.Reservation) (int64, error) { return f(ctx) }

func TestPeriodNames(t *testing.T) {
	names := "Period(-1) Period(0) PerSecond PerMinute PerHour PerDay PerMonth PerYear PerWeek PerQuarter Never " +
		"PerHalfYear Period(11)"
	for i, name := range strings.Fields(names) {
		require.Equal(t, name, serial.Period(i-1).String())
	}
}

// callsOf returns the error of each call for a type.
func callsOf(ctx context.Context, gen *serial.Generator, typ string) map[string]error {
	return map[string]error{
		"Next": errOf(gen.Next(ctx, typ)), "NextNumber": errOf(gen.NextNumber(ctx, typ)),
		"NextN": errOf(gen.NextN(ctx, typ, 2)), "NextOnce": errOf(gen.NextOnce(ctx, typ, "request")),
		"Peek": errOf(gen.Peek(ctx, typ)), "History": errOf(gen.History(ctx, typ, 1)), "Prepare": gen.Prepare(ctx, typ),
		"Raise": gen.Raise(ctx, typ, 30), "Takeover": gen.Takeover(ctx, typ, 30),
	}
}

// A call has an invalid argument, or its context has ended. It must send nothing. TestTypesAndPrefixes covers types.
func TestCallsRefuse(t *testing.T) {
	var sent atomic.Int64
	rdb := closing(t, redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"}))
	rdb.AddHook(counting(&sent))
	gen, ctx := newGenerator(t, rdb), t.Context()
	for _, n := range []int{-1, 0, 100_001} {
		err := errOf(gen.NextN(ctx, "IS", n))
		require.ErrorIs(t, err, serial.ErrInvalidRequest)
		require.ErrorContains(t, err, "want 1 to 100000", "%d", n)
		require.ErrorContains(t, errOf(gen.History(ctx, "IS", n)), "want 1 to 10000")
	}
	require.ErrorContains(t, errOf(gen.History(ctx, "IS", 10_001)), "want 1 to 10000")
	require.ErrorIs(t, errOf(gen.NextN(ctx, "IS", 10_000)), serial.ErrExhausted, "a period has fewer")
	for id, says := range map[string]string{"": "0 bytes; want 1 to 128", "a\u00a0b": "want printable UTF-8",
		strings.Repeat("x", 129): "129 bytes; want 1 to 128", "a\xff": "not valid UTF-8",
		"a\nb": `it contains '\n'; want printable UTF-8`} {
		err := errOf(gen.NextOnce(ctx, "IS", id))
		require.ErrorIs(t, err, serial.ErrInvalidRequest)
		require.ErrorContains(t, err, says)
	}
	for _, seq := range []int64{-1, 10_000} {
		want := fmt.Sprintf("serial: Takeover of IS to %d: want 0 to 9999", seq)
		require.EqualError(t, gen.Takeover(ctx, "IS", seq), want)
	}

	canceled, cancel := context.WithCancel(ctx)
	cancel()
	expired, cancel := context.WithDeadline(ctx, time.Now())
	defer cancel()
	for ctx, end := range map[context.Context]error{canceled: context.Canceled, expired: context.DeadlineExceeded} {
		for _, typ := range []string{"IS", ""} {
			for call, err := range callsOf(ctx, gen, typ) {
				require.ErrorIs(t, err, end, call)
				require.Equal(t, typ == "", errors.Is(err, serial.ErrInvalidType), "%s of an invalid type matches both", call)
			}
		}
	}
	require.Zero(t, sent.Load())
}

// The reply to an attempt is lost. The next attempt finds too few numbers, or the last day has ended. The first attempt
// may have consumed the missing numbers, so the error must not match ErrExhausted.
func TestExhaustedByALostTry(t *testing.T) {
	m, rdb := startMini(t)
	gen := newGenerator(t, rdb, serial.WithLocation(time.UTC), serial.WithMaxSkew(-1),
		serial.WithUntil(serial.On(2025, time.December, 30)))
	midnight := utc(t, "2025-12-31")
	next := &fault{}
	rdb.AddHook(next.hook())
	for typ, says := range map[string]string{"FULL": "has too few numbers left since",
		"OVER": "the last day has ended since"} {
		m.SetTime(midnight.Add(-time.Second))
		require.NoError(t, errOf(gen.Next(t.Context(), typ)))
		next.set(func(cmd redis.Cmder, send func() error) error {
			err := lose(cmd, send)
			if typ == "OVER" {
				m.SetTime(midnight)
			}
			return err
		})
		_, err := gen.NextN(t.Context(), typ, 6000)
		require.ErrorIs(t, err, io.EOF)
		require.ErrorContains(t, err, says)
		require.NotErrorIs(t, err, serial.ErrExhausted)
		m.SetTime(midnight.Add(-time.Second))
		requireSeq(t, 6001)(gen.Peek(t.Context(), typ))
	}
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
	err := errOf(gen.NextN(background, "IS", 1000)) // opens the period; sequences below 256 need one allocation less
	for _, test := range []struct {
		most float64
		call func() error
	}{
		{13, func() error { return errOf(gen.Next(background, "IS")) }},
		{18, func() error { return errOf(gen.Next(limited, "IS")) }}, // 17 on an idle machine
		{18, func() error { return errOf(gen.NextN(background, "IS", 1000)) }},
	} {
		require.LessOrEqual(t, testing.AllocsPerRun(200, func() { err = errors.Join(err, test.call()) }), test.most)
		require.NoError(t, err)
	}
}

// A server with persistence is restarted. No number must be lost.
// Guarantees: restart-with-data.
func TestRestart(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, "--appendonly", "yes", "--appendfsync", "always")
	gen := newGenerator(t, server.Client(t), serial.WithLocation(noon()))
	require.NoError(t, errOf(gen.NextN(t.Context(), "IS", 5)))
	server.Kill()
	var refused *net.OpError
	require.ErrorAs(t, errOf(gen.Next(t.Context(), "IS")), &refused)
	server.Restart(t)
	require.EventuallyWithT(t, func(c *assert.CollectT) { // go-redis keeps closed connections for a moment
		got, err := gen.Next(t.Context(), "IS")
		require.NoError(c, err)
		require.Equal(c, "IS"+today(noon())+"0006", got)
	}, 5*time.Second, 10*time.Millisecond)
}

// The user of an ACL may only run the commands that docs/operations.md lists. All calls must succeed.
func TestAccessControl(t *testing.T) {
	t.Parallel()
	_, list, found := strings.Cut(guide(t, "operations.md"), "- An ACL must allow ")
	require.True(t, found)
	list, _, _ = strings.Cut(list, " on")
	rules := []any{"~serial:*", "+@connection"}
	for _, command := range regexp.MustCompile("[A-Z]+").FindAllString(list, -1) {
		rules = append(rules, "+"+strings.ToLower(command))
	}
	rdb := closing(t, redis.NewClient(addUser(t, redistest.Start(t), rules...)))
	gen, ctx := newGenerator(t, rdb), t.Context()
	require.NoError(t, errors.Join(errOf(gen.Next(ctx, "IS")), errOf(gen.Next(ctx, "IS")), gen.Raise(ctx, "IS", 7),
		errOf(gen.Peek(ctx, "IS"))))
	require.Error(t, rdb.Set(ctx, "other", 1, 0).Err())
}

// addUser adds a user with ACL rules to a server, and returns the options of a client that logs in as this user.
func addUser(t *testing.T, server *redistest.Server, rules ...any) *redis.Options {
	t.Helper()
	opt := server.Options()
	opt.Username, opt.Password = fmt.Sprint("user", rules[len(rules)-1]), "secret"
	require.NoError(t, server.Do(append([]any{"ACL", "SETUSER", opt.Username, "on", ">secret"}, rules...)...).Err())
	return opt
}

// The server with the counters rejects a call. The error must contain the reply of Redis and a remedy, and must not
// mention lock servers. docs/errors.md must have a row for each reply.
func TestServerRefuses(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t, "--enable-protected-configs", "yes")
	admin, ctx := s.Client(t), t.Context()
	require.NoError(t, errOf(newGenerator(t, admin, serial.WithLocation(noon())).Next(ctx, "OPEN")))
	config := func(name, value string) { require.NoError(t, admin.ConfigSet(ctx, name, value).Err()) }
	tests := 0
	// refused requires that the calls for the first number of a day and for a later one fail.
	refused := func(o *redis.Options, code, says string) {
		t.Helper()
		require.Regexp(t, "(?m)^\\| `("+code+").*`.* \\| .{20,} \\| .{20,} \\|$", guide(t, "errors.md"))
		gen := newGenerator(t, closing(t, redis.NewClient(o)), serial.WithLocation(noon()))
		tests++
		for _, typ := range []string{"OPEN", fmt.Sprint("NEW", tests)} {
			brief, cancel := context.WithTimeout(ctx, 3*time.Second)
			defer cancel()
			err := errOf(gen.Next(brief, typ))
			require.Regexp(t, code, err.Error(), typ)
			require.ErrorContains(t, err, says, typ)
			require.NotRegexp(t, "lock server|node #0|: serial: ", err.Error())
		}
	}
	user := func(rule string) *redis.Options { return addUser(t, s, "~*", "+@all", rule) }
	for _, code := range []string{"READONLY", "TRYAGAIN"} { // internal/wire and TestWritableReplicaRefused have these
		require.Contains(t, guide(t, "errors.md"), "\n| `"+code)
	}
	const acl = "an ACL denies this client's user a command or a key that is needed"
	refused(user("-time"), "TIME", acl)
	refused(user("-evalsha"), "NOPERM", acl)
	refused(user("resetkeys"), "NOPERM", acl)
	refused(user("off"), "WRONGPASS", "this client's user name or password is wrong, or an ACL turns the user off")
	_, err := newGenerator(t, closing(t, redis.NewClient(user("-hmget")))).Next(ctx, "IS")
	require.NotContains(t, err.Error(), "TIME", "another command is denied")
	refused(redistest.Start(t, "--rename-command", "TIME", "ANOTHER").Options(), "TIME", "was renamed or disabled")

	for _, test := range []struct{ name, value, usual, code, says string }{
		{"maxmemory", "1", "0", "OOM", "free memory, or raise maxmemory"},
		{"min-replicas-to-write", "1", "0", "NOREPLICAS", "min-replicas-to-write"},
		{"requirepass", "secret", "", "NOAUTH|unauthenticated", "Redis requires a password, but"},
	} {
		config(test.name, test.value)
		refused(s.Options(), test.code, test.says)
		config(test.name, test.usual) // admin is logged in already
	}

	config("busy-reply-threshold", "1")
	endless := make(chan error)
	go func() { endless <- admin.Eval(context.Background(), "while true do end", nil).Err() }()
	busy := func() bool { return s.Client(t).Ping(ctx).Err() != nil }
	require.Eventually(t, busy, 10*time.Second, time.Millisecond)
	refused(s.Options(), "BUSY", "SCRIPT KILL")
	require.NoError(t, s.Client(t).ScriptKill(ctx).Err())
	require.Error(t, <-endless)

	dir := t.TempDir()
	config("save", "3600 1")
	config("dir", dir)
	require.NoError(t, os.RemoveAll(dir))
	require.NoError(t, admin.BgSave(ctx).Err())
	failed := func() bool { return strings.Contains(admin.Info(ctx).Val(), "rdb_last_bgsave_status:err") }
	require.Eventually(t, failed, 10*time.Second, 10*time.Millisecond)
	refused(s.Options(), "MISCONF", "without a ledger, do not set stop-writes-on-bgsave-error to no")
}
