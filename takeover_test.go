package serial_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/dailyserial/serial"
	"github.com/dailyserial/serial/internal/redistest"
)

func TestTakeover(t *testing.T) {
	testTakeover(t, inMemory(t))
}

func TestTakeoverOnServer(t *testing.T) {
	server := redistest.Start(t)
	testTakeover(t, backend{client: func(t *testing.T) redis.UniversalClient { return server.Client(t) }})
}

func testTakeover(t *testing.T, b backend) {
	// stray returns a generator of a zone in which it is the same day, by other bounds.
	stray := func(s *series, opts ...serial.Option) *serial.Generator {
		_, offset := time.Now().In(s.loc).Zone()
		return s.generator(append([]serial.Option{serial.WithLocation(time.FixedZone("stray", offset+3600))}, opts...)...)
	}
	b.run(t, "takeover from another zone goes on above its counter", func(t *testing.T, s *series) {
		other := stray(s)
		s.next(other, 1)
		s.next(other, 2)
		s.refused(s.gen, serial.ErrConflict)
		require.NoError(t, s.gen.Takeover(t.Context(), "IS", 0))
		s.next(s.gen, 3)
		s.refused(other, serial.ErrConflict)
		require.ErrorIs(t, other.Raise(t.Context(), "IS", 9), serial.ErrConflict)
		require.NoError(t, s.gen.Takeover(t.Context(), "IS", 2), "repeated it never lowers")
		s.next(s.gen, 4)
		require.NoError(t, s.gen.Takeover(t.Context(), "IS", 9), "repeated it raises")
		s.next(s.gen, 10)
		y, m, d := time.Now().In(s.loc).Date()
		midnight := time.Date(y, m, d+1, 0, 0, 0, 0, s.loc)
		expires, err := s.rdb.Do(t.Context(), "PEXPIRETIME", s.counter).Int64()
		require.NoError(t, err)
		require.InDelta(t, midnight.UnixMilli(), expires, 1000) // miniredis keeps durations
		require.Greater(t, s.rdb.TTL(t.Context(), s.record).Val(), 7*24*time.Hour)
	})

	b.run(t, "takeover continues above seq, the floor and its own numbers", func(t *testing.T, s *series) {
		s.next(stray(s), 1)
		require.NoError(t, s.gen.Takeover(t.Context(), "IS", 57))
		s.next(s.gen, 58)
		other := stray(s, fixedFloor(80))
		require.NoError(t, other.Takeover(t.Context(), "IS", 60))
		s.next(other, 81)
		s.refused(s.gen, serial.ErrConflict)
	})

	b.run(t, "takeover of what nobody has opened, and of the own period, is raise", func(t *testing.T, s *series) {
		require.NoError(t, s.gen.Takeover(t.Context(), "IS", 5))
		s.next(s.gen, 6)
		require.NoError(t, s.rdb.Del(t.Context(), s.counter).Err())
		s.refused(s.gen, serial.ErrCounterLost)
		require.NoError(t, s.gen.Takeover(t.Context(), "IS", 3))
		s.next(s.gen, 7) // its own memory
	})

	b.run(t, "takeover drops what was prepared", func(t *testing.T, s *series) {
		other := stray(s)
		require.NoError(t, other.Prepare(t.Context(), "IS", 3))
		require.NoError(t, s.gen.Takeover(t.Context(), "IS", 0))
		s.next(s.gen, 1)
		require.Empty(t, s.rdb.HGet(t.Context(), s.record, "ahead").Val())
		require.NoError(t, s.gen.Prepare(t.Context(), "IS", 2))
	})

	b.run(t, "takeover out of bounds", func(t *testing.T, s *series) {
		for _, seq := range []int64{-1, 10_000} {
			require.EqualError(t, s.gen.Takeover(t.Context(), "IS", seq),
				fmt.Sprintf("serial: Takeover of IS to %d: want 0 to 9999", seq))
		}
		require.ErrorIs(t, s.gen.Takeover(t.Context(), "I S", 0), serial.ErrInvalidType)
		require.Empty(t, s.keys())
	})

	b.run(t, "takeover leaves a ledger, and starts one", func(t *testing.T, s *series) {
		l := new(spyLedger)
		booked := s.generator(serial.WithLedger(l, 10))
		s.next(booked, 1)
		s.refused(s.gen, serial.ErrConflict)
		last, err := s.gen.Peek(t.Context(), "IS")
		require.NoError(t, err, "who only reads needs no ledger")
		require.EqualValues(t, 1, last.Seq)
		all, err := s.gen.History(t.Context(), "IS", 1)
		require.NoError(t, err)
		require.Len(t, all, 1)
		require.NoError(t, s.rdb.HSet(t.Context(), s.record, "claim", "dead 1").Err())
		require.NoError(t, s.gen.Takeover(t.Context(), "IS", 0))
		s.next(s.gen, 2)
		fields := s.rdb.HKeys(t.Context(), s.record).Val()
		require.NotContains(t, fields, "ceiling")
		require.NotContains(t, fields, "claim")

		other := stray(s, serial.WithLedger(l, 10))
		s.refused(other, serial.ErrConflict)
		require.NoError(t, other.Takeover(t.Context(), "IS", 0))
		s.next(other, 11) // above what the ledger ever set aside
		require.NoError(t, booked.Takeover(t.Context(), "IS", 0))
		s.next(booked, 21)
		s.refused(other, serial.ErrConflict)
	})

	b.run(t, "takeover does not wait for another calendar's claim", func(t *testing.T, s *series) {
		asked := make(chan struct{})
		held := make(chan struct{})
		l := new(spyLedger)
		l.before(func(serial.Reservation) error {
			close(asked)
			<-held
			return nil
		})
		other := stray(s, serial.WithLedger(l, 10))
		done := make(chan error, 1)
		s.next(stray(s), 1)
		go func() { _, err := other.Next(t.Context(), "IS"); done <- err }()
		<-asked
		l.before(nil)
		gen := s.generator(serial.WithLedger(l, 10))
		began := time.Now()
		require.NoError(t, gen.Takeover(t.Context(), "IS", 0))
		require.Less(t, time.Since(began), lockExpiry/2)
		close(held)
		require.ErrorIs(t, <-done, serial.ErrConflict, "the block comes too late")
		got, err := gen.NextNumber(t.Context(), "IS")
		require.NoError(t, err)
		require.Greater(t, got.Seq, int64(1))
	})

	b.run(t, "takeover while both calendars issue", func(t *testing.T, s *series) {
		other := stray(s)
		s.next(other, 1)
		var mu sync.Mutex
		seen := map[string]bool{}
		var wg sync.WaitGroup
		for i := range 20 {
			wg.Go(func() {
				for k := range 20 {
					gen := []*serial.Generator{s.gen, other}[(i+k)%2]
					if i < 2 && k%5 == 0 {
						_ = gen.Takeover(t.Context(), "IS", 0)
					}
					got, err := gen.Next(t.Context(), "IS")
					if err != nil {
						if !strings.Contains(err.Error(), "conflict") {
							t.Error(err)
						}
						continue
					}
					mu.Lock()
					if seen[got] {
						t.Error("twice: " + got)
					}
					seen[got] = true
					mu.Unlock()
				}
			})
		}
		wg.Wait()
		require.NotEmpty(t, seen)
	})
}

// After a takeover of a day whose date is below that of the other zone, the next day goes on above the other's counter,
// or is lost with it; the one after that is new.
func TestDaysAfterATakeover(t *testing.T) {
	runBoth(t, "lost", func(t *testing.T, s *simulation, lost bool) {
		rdb := s.client()
		east := newGenerator(t, rdb, serial.WithLocation(time.FixedZone("east", 14*3600)))
		utc := newGenerator(t, rdb, serial.WithLocation(time.UTC))
		time.Sleep(time.Until(time.Date(2000, 1, 2, 12, 0, 0, 0, time.UTC))) // in the east it is the 3rd
		for want := range 3 {
			requireResult(t, fmt.Sprintf("IS20000103%04d", want+1))(east.Next(t.Context(), "IS"))
		}
		require.ErrorIs(t, errOf(utc.Next(t.Context(), "IS")), serial.ErrConflict)
		require.NoError(t, utc.Takeover(t.Context(), "IS", 4))
		requireResult(t, "IS200001020005")(utc.Next(t.Context(), "IS"))
		s.requireExpiries()
		if lost {
			s.Del("serial:{IS}:20000103")
		}

		time.Sleep(12 * time.Hour)
		if lost {
			require.ErrorIs(t, errOf(utc.Next(t.Context(), "IS")), serial.ErrCounterLost)
			require.NoError(t, utc.Raise(t.Context(), "IS", 3))
		}
		requireResult(t, "IS200001030004")(utc.Next(t.Context(), "IS"))
		require.ErrorIs(t, errOf(east.Next(t.Context(), "IS")), serial.ErrConflict)

		time.Sleep(24 * time.Hour)
		requireResult(t, "IS200001040001")(utc.Next(t.Context(), "IS"))
		s.requireExpiries()
	})
}

// Nobody takes over by a clock that may be wrong.
func TestTakeoverByAWrongClock(t *testing.T) {
	m, rdb := startMini(t)
	m.SetTime(time.Now())
	_, err := newGenerator(t, rdb, serial.WithLocation(time.FixedZone("", 3600))).Next(t.Context(), "IS")
	require.NoError(t, err)
	gen := newGenerator(t, rdb, serial.WithLocation(time.UTC))
	m.SetTime(time.Now().Add(2 * time.Hour))
	before := m.Dump()
	require.ErrorIs(t, gen.Takeover(t.Context(), "IS", 0), serial.ErrClockSkew)
	require.Equal(t, before, m.Dump())
	m.SetTime(time.Now())
	require.NoError(t, gen.Takeover(t.Context(), "IS", 0))
}

// A takeover whose reply is lost has been done or not, and may be repeated.
func TestTakeoverWithoutAReply(t *testing.T) {
	m, rdb := startMini(t)
	fragile := closing(t, redis.NewClient(&redis.Options{Addr: m.Addr()}))
	left := 100
	fragile.AddHook(losing(errBoom, func(_ redis.Cmder, err error) bool {
		left--
		return left < 0 && err == nil
	}))
	for replies := range 4 {
		typ := fmt.Sprint("IS", replies)
		_, err := newGenerator(t, rdb, serial.WithLocation(time.FixedZone("", 3600))).Next(t.Context(), typ)
		require.NoError(t, err)
		left = replies
		first := newGenerator(t, fragile, serial.WithLocation(time.UTC)).Takeover(t.Context(), typ, 7)
		require.True(t, first == nil || replies < 3, first)
		left = 100
		gen := newGenerator(t, rdb, serial.WithLocation(time.UTC))
		require.NoError(t, gen.Takeover(t.Context(), typ, 7))
		requireSeq(t, 8)(gen.NextNumber(t.Context(), typ))
	}
}

// The messages that an operator reads name both periods with dates, and what ends the error.
func TestRefusalsSayWhatToDo(t *testing.T) {
	m := miniredis.RunT(t)
	m.SetTime(time.Date(2021, 10, 25, 3, 0, 0, 0, time.UTC))
	rdb := closing(t, redis.NewClient(&redis.Options{Addr: m.Addr()}))
	anyClock := serial.WithMaxSkew(-1)
	require.NoError(t, errOf(newGenerator(t, rdb, anyClock, serial.WithLocation(time.UTC)).Next(t.Context(), "IS")))
	shanghai := newGenerator(t, rdb, anyClock, serial.WithLocation(location(t, "Asia/Shanghai")))
	_, err := shanghai.Next(t.Context(), "IS")
	require.EqualError(t, err, "serial: conflicting period: IS is in 2021-10-25 from 2021-10-25T00:00:00Z to "+
		"2021-10-26T00:00:00Z (2021-10-25 08:00:00 to 2021-10-26 08:00:00 in Asia/Shanghai), and by this generator's clock "+
		"it would be in 2021-10-25 from 2021-10-24T16:00:00Z to 2021-10-25T16:00:00Z (2021-10-25 00:00:00 to 2021-10-26 "+
		"00:00:00 in Asia/Shanghai): another time zone or day start is in use; if this generator is right, stop the other "+
		"process and run: serial takeover -tz 'Asia/Shanghai' IS SEQ, where SEQ is the last number used of 2021-10-25, or 0")

	m.Del("serial:{IS}:20211025")
	_, err = newGenerator(t, rdb, anyClock, serial.WithLocation(time.UTC)).Next(t.Context(), "IS")
	require.EqualError(t, err, "serial: counter lost: numbers of IS were issued in 2021-10-25, and serial:{IS}:20211025 "+
		"is gone; find the last one used, and run: serial raise -tz 'UTC' IS SEQ, where SEQ is the last number used of "+
		"2021-10-25, or 0")
}
