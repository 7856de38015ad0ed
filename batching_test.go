package serial_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/dailyserial/serial"
	"github.com/dailyserial/serial/internal/redistest"
)

// gated holds up every command and pipeline while closed, and counts them.
type gated struct {
	gate   atomic.Pointer[chan struct{}]
	single atomic.Int64
	shared atomic.Int64 // by several types
}

func (g *gated) close() { c := make(chan struct{}); g.gate.Store(&c) }
func (g *gated) open()  { close(*g.gate.Swap(nil)) }

func (g *gated) hook() everyCall {
	return func(cmds []redis.Cmder, send func() error) error {
		if len(cmds) > 1 || sharedByTypes(cmds[0]) {
			g.shared.Add(1)
		} else {
			g.single.Add(1)
		}
		if c := g.gate.Load(); c != nil {
			<-*c
		}
		return send()
	}
}

// sharedByTypes reports whether cmd is a take of several types.
func sharedByTypes(cmd redis.Cmder) bool {
	args := cmd.Args()
	return len(args) > 2 && strings.HasPrefix(cmd.Name(), "eval") && fmt.Sprint(args[2]) != "2"
}

// Callers who come while others are in the air share one command, whatever their contexts; those who give up burn their
// own numbers and nobody else's.
func TestCallersShare(t *testing.T) {
	inBubble(t, func(t *testing.T, m *simulation) {
		rdb := m.client()
		gen := newGenerator(t, rdb, serial.WithLocation(time.UTC))
		require.NoError(t, errOf(gen.Next(t.Context(), "IS")))
		var hold gated
		rdb.AddHook(hold.hook())
		hold.close()

		impatient, giveUp := context.WithCancel(t.Context())
		var mu sync.Mutex
		var got []string
		var gaveUp int
		var wg sync.WaitGroup
		for i := range 100 {
			ctx := []context.Context{context.Background(), t.Context(), impatient}[i%3]
			wg.Go(func() {
				number, err := gen.Next(ctx, "IS")
				mu.Lock()
				defer mu.Unlock()
				if err != nil {
					require.ErrorIs(t, err, context.Canceled)
					gaveUp++
					return
				}
				got = append(got, number)
			})
		}
		synctest.Wait() // all are in the air, or waiting to depart
		giveUp()
		synctest.Wait()
		require.Equal(t, 33, gaveUp, "at once, though Redis hangs")
		hold.open()
		wg.Wait()
		synctest.Wait() // those who gave up are still in the air, one of them alone maybe
		require.Len(t, got, 67)
		require.LessOrEqual(t, hold.single.Load(), int64(4))
		slices.Sort(got)
		require.Len(t, slices.Compact(got), 67, "no number twice")
		requireSeq(t, 101, "every caller's number was consumed, and no others")(gen.Peek(t.Context(), "IS"))
	})
}

// A command that hangs, on a connection that broke, say, holds up those behind it for some milliseconds only.
func TestOneThatHangsDoesNotDelayTheOthers(t *testing.T) {
	inBubble(t, func(t *testing.T, m *simulation) {
		rdb := m.client()
		gen := newGenerator(t, rdb, serial.WithLocation(time.UTC))
		require.NoError(t, errOf(gen.Next(t.Context(), "IS")))
		var hanging atomic.Bool
		rdb.AddHook(around(func(cmd redis.Cmder, send func() error) error {
			if hanging.CompareAndSwap(false, true) {
				time.Sleep(time.Hour)
			}
			return send()
		}))
		for _, ctx := range []context.Context{context.Background(), t.Context()} {
			hanging.Store(false)
			var wg sync.WaitGroup
			wg.Go(func() { _, _ = gen.Next(ctx, "IS") })
			synctest.Wait()
			start := time.Now()
			for i := range 20 {
				wg.Go(func() {
					require.NoError(t, errOf(gen.Next(ctx, fmt.Sprint("T", i%3))))
					require.Less(t, time.Since(start), 500*time.Millisecond)
				})
			}
			wg.Wait()
		}
	})
}

// However many commands hang, others go on.
func TestManyThatHangDoNotDelayTheOthers(t *testing.T) {
	inBubble(t, func(t *testing.T, m *simulation) {
		rdb := m.client()
		gen := newGenerator(t, rdb, serial.WithLocation(time.UTC))
		for _, typ := range []string{"SLOW", "OK"} {
			require.NoError(t, errOf(gen.Next(t.Context(), typ)))
		}
		rdb.AddHook(around(func(cmd redis.Cmder, send func() error) error {
			if strings.Contains(fmt.Sprint(cmd.Args()...), "{SLOW}") {
				time.Sleep(time.Hour)
			}
			return send()
		}))
		var wg sync.WaitGroup
		for range 50 {
			wg.Go(func() { _, _ = gen.Next(t.Context(), "SLOW") })
			time.Sleep(100 * time.Millisecond) // each a call of its own
		}
		for range 3 {
			start := time.Now()
			require.NoError(t, errOf(gen.Next(context.Background(), "OK")))
			require.Less(t, time.Since(start), 200*time.Millisecond)
		}
		wg.Wait()
		time.Sleep(2 * time.Hour) // until what was left behind has ended
	})
}

// Where the answer to what types shared is lost, the numbers that are missing then may have been consumed by it.
func TestLostAnswerIsNotExhaustion(t *testing.T) {
	inBubble(t, func(t *testing.T, m *simulation) {
		rdb := m.client()
		gen := newGenerator(t, rdb, serial.WithLocation(time.UTC))
		for typ := range 5 {
			require.NoError(t, gen.Raise(t.Context(), fmt.Sprint("T", typ), 9989))
		}
		var hold gated
		rdb.AddHook(everyCall(func(cmds []redis.Cmder, send func() error) error {
			err := send()
			if len(cmds) == 1 && !sharedByTypes(cmds[0]) {
				return err
			}
			for _, cmd := range cmds {
				cmd.SetErr(io.ErrUnexpectedEOF)
			}
			return io.ErrUnexpectedEOF
		}))
		rdb.AddHook(hold.hook())
		hold.close()
		var wg sync.WaitGroup
		var failed atomic.Int64
		for i := range 50 {
			wg.Go(func() {
				_, err := gen.Next(t.Context(), fmt.Sprint("T", i%5))
				require.NotErrorIs(t, err, serial.ErrExhausted)
				if err != nil {
					require.ErrorIs(t, err, io.ErrUnexpectedEOF)
					failed.Add(1)
				}
			})
		}
		synctest.Wait() // those who do not share the first departure wait for the second
		hold.open()
		wg.Wait()
		require.Positive(t, hold.shared.Load())
		require.Positive(t, failed.Load())
	})
}

// A batch that the day has no room for serves those who came first, and tells the others.
func TestSharingTheLastNumbers(t *testing.T) {
	_, rdb := startMini(t)
	loc := noon()
	gen := newGenerator(t, rdb, serial.WithLocation(loc))
	require.NoError(t, gen.Raise(t.Context(), "IS", 9899))
	var mu sync.Mutex
	var got []string
	var wg sync.WaitGroup
	for range 500 {
		wg.Go(func() {
			number, err := gen.Next(t.Context(), "IS")
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				require.ErrorIs(t, err, serial.ErrExhausted)
				return
			}
			got = append(got, number)
		})
	}
	wg.Wait()
	slices.Sort(got)
	require.Equal(t, numbers("IS", today(loc), 9900, 9999), got)
	require.Equal(t, "9999", rdb.Get(t.Context(), "serial:{IS}:"+today(loc)).Val())
}

// What a hook of the client does to the goroutine of a call reaches every caller, and the next call works.
func TestHooksThatBreakFlights(t *testing.T) {
	for name, harm := range map[string]func(){
		"panic":  func() { panic("hook") },
		"Goexit": runtime.Goexit,
	} {
		for _, types := range []int{1, 5} {
			t.Run(fmt.Sprintf("%s, %d types", name, types), func(t *testing.T) {
				_, rdb := startMini(t)
				gen := newGenerator(t, rdb, serial.WithLocation(noon()))
				for typ := range types {
					require.NoError(t, errOf(gen.Next(t.Context(), fmt.Sprint("T", typ))))
				}
				var harmless atomic.Bool
				rdb.AddHook(everyCall(func(_ []redis.Cmder, send func() error) error {
					if !harmless.Load() {
						harm()
					}
					return send()
				}))
				var wg sync.WaitGroup
				var ended atomic.Int64
				for i := range 50 {
					wg.Go(func() {
						defer func() {
							if recover() != nil {
								ended.Add(1)
							}
						}()
						// With a context that can end no command runs in the caller's own goroutine.
						if _, err := gen.Next(t.Context(), fmt.Sprint("T", i%types)); err != nil {
							require.ErrorContains(t, err, "ended from outside")
							ended.Add(1)
						}
					})
				}
				wg.Wait()
				require.EqualValues(t, 50, ended.Load())
				harmless.Store(true)
				require.NoError(t, errOf(gen.Next(t.Context(), "T0")))
			})
		}
	}
}

// An error reaches every caller of a batch.
func TestErrorsOfFlights(t *testing.T) {
	rdb := closing(t, redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"}))
	rdb.AddHook(replacing(func(context.Context, redis.Cmder) error { return errBoom }))
	gen := newGenerator(t, rdb)
	var wg sync.WaitGroup
	for range 50 {
		wg.Go(func() { require.ErrorIs(t, errOf(gen.Next(t.Context(), "IS")), errBoom) })
	}
	wg.Wait()
}

// One type's trouble, a floor that takes seconds or an exhausted day, does not delay another.
func TestTypesDoNotDelayEachOther(t *testing.T) {
	inBubble(t, func(t *testing.T, m *simulation) {
		gen := newGenerator(t, m.client(), serial.WithLocation(time.UTC),
			serial.WithFloor(func(_ context.Context, typ string, _ time.Time) (int64, error) {
				if typ == "SLOW" {
					time.Sleep(5 * time.Second)
				}
				if typ == "FULL" {
					return 9999, nil
				}
				return 0, nil
			}))
		start := time.Now()
		var wg sync.WaitGroup
		for i := range 60 {
			typ := []string{"SLOW", "FULL", "A", "B", "C", "D"}[i%6]
			wg.Go(func() {
				_, err := gen.Next(t.Context(), typ)
				require.Equal(t, typ == "FULL", errors.Is(err, serial.ErrExhausted))
				require.True(t, typ == "FULL" || err == nil, "%v", err)
				if typ != "SLOW" {
					require.Less(t, time.Since(start), 2*time.Second, "%s", typ)
				}
			})
		}
		wg.Wait()
	})
}

// Many callers on many types, while the server forgets its scripts: every type's numbers are exactly 1 to n.
func TestManyTypes(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	cluster := redistest.StartCluster(t)
	for name, rdb := range map[string]redis.UniversalClient{"server": server.Client(t), "cluster": cluster.Client(t)} {
		t.Run(name, func(t *testing.T) {
			s := &series{t: t, rdb: rdb}
			var sent gated
			rdb.AddHook(sent.hook())
			gen := newGenerator(t, rdb, serial.WithLocation(noon()))
			const types, callers, each = 40, 80, 50
			stop := make(chan struct{})
			flushed := make(chan error, 1)
			go func() {
				for {
					select {
					case <-stop:
						flushed <- nil
						return
					case <-time.After(5 * time.Millisecond):
						if err := s.flushScripts(); err != nil {
							flushed <- err
							return
						}
					}
				}
			}()
			var mu sync.Mutex
			got := map[string][]string{}
			var errs []error
			var wg sync.WaitGroup
			for i := range callers {
				ctx := context.Background()
				if i%2 == 0 {
					ctx = t.Context()
				}
				wg.Go(func() {
					for j := range each {
						typ := fmt.Sprint("T", (i+j)%types)
						number, err := gen.Next(ctx, typ)
						mu.Lock()
						got[typ] = append(got[typ], number)
						errs = append(errs, err)
						mu.Unlock()
					}
				})
			}
			wg.Wait()
			close(stop)
			require.NoError(t, <-flushed)
			require.NoError(t, errors.Join(errs...))
			require.Len(t, got, types)
			if name == "server" { // a cluster's masters do not run its hooks
				require.Positive(t, sent.shared.Load(), "types shared calls")
			}
			for typ, all := range got {
				require.ElementsMatch(t, numbers(typ, today(noon()), 1, callers*each/types), all)
			}
		})
	}
}

// The name of the master leads to another server after a failover, and connections to the old one, now a replica,
// remain. What they answer to several types is repeated.
func TestOldMasterRefusesSeveralTypes(t *testing.T) {
	t.Parallel()
	master := redistest.Start(t, "--repl-diskless-sync-delay", "0")
	replica := redistest.StartReplica(t, master)
	var addr atomic.Value
	addr.Store(master.Addr())
	opt := master.Options()
	opt.Dialer = func(ctx context.Context, network, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, addr.Load().(string))
	}
	opt.MinIdleConns = 4
	gen := newGenerator(t, closing(t, redis.NewClient(opt)), serial.WithLocation(noon()))
	round := func() {
		var wg sync.WaitGroup
		for i := range 64 {
			wg.Go(func() {
				if _, err := gen.Next(t.Context(), fmt.Sprint("T", i%8)); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
	}
	for range 20 {
		round()
	}
	master.AwaitReplica(t)
	require.NoError(t, replica.ReplicaOf(nil))
	require.NoError(t, master.ReplicaOf(replica))
	addr.Store(replica.Addr())
	for range 40 {
		round()
	}
}
