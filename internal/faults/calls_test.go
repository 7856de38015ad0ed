//go:build unix

package faults

import (
	"context"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dailyserial/serial"
	"github.com/dailyserial/serial/internal/race"
	"github.com/dailyserial/serial/internal/redistest"
	"github.com/dailyserial/serial/internal/redistest/memory"
	"github.com/dailyserial/serial/serialtest"
)

// timely is how long a call without a deadline may take if nobody else holds the lock, with half a second to spare.
const timely = 10*time.Second + 500*time.Millisecond

// Every step of a call may be slow, each within its own limit, but the call must still end in time.
// Guarantees: slow-replies.
func TestSlowReplies(t *testing.T) {
	t.Parallel()
	seed := redistest.Random(t).Uint64()
	calls := map[string]func(ctx context.Context, gen *serial.Generator) error{
		"Next":     func(ctx context.Context, gen *serial.Generator) error { return errOf(gen.Next(ctx, "SLOW")) },
		"NextOnce": func(ctx context.Context, gen *serial.Generator) error { return errOf(gen.NextOnce(ctx, "SLOW", "id")) },
		"Raise":    func(ctx context.Context, gen *serial.Generator) error { return gen.Raise(ctx, "SLOW", 40) },
		"Peek":     func(ctx context.Context, gen *serial.Generator) error { return errOf(gen.Peek(ctx, "SLOW")) },
	}
	delays := []time.Duration{1900 * time.Millisecond, 2900 * time.Millisecond, 9 * time.Second}
	if testing.Short() {
		delays = delays[1:2]
	}
	for _, with := range []string{"", "floor", "ledger"} {
		for _, read := range []time.Duration{0, 4900 * time.Millisecond, -1} { // 0 is go-redis's own, 5 s
			if read < 0 != (with == "ledger") && !redistest.Long() { // one of each with a ledger, the others without
				continue
			}
			for name, call := range calls {
				t.Run(fmt.Sprintf("%s, %s, read timeout %v", name, with, read), func(t *testing.T) {
					for _, delay := range delays {
						for i := range uint64(14) {
							if !redistest.Long() && i%3 != seed%3 { // a third of the cases, by the seed
								continue
							}
							spared, hangs := int(i/2), i%2 == 1 // replies before it is slow; hangs after 9 s
							race.Bubble(t, func(t *testing.T) {
								took, err := slowly(t, with, read, delay, hangs, spared, call)
								require.Less(t, took, timely, "replies %v late after the first %d, finally none %v: %v", delay, spared,
									hangs, err)
							})
						}
					}
				})
			}
		}
	}
}

// A slowLedger is a ledger and a floor that take their time.
type slowLedger struct {
	serialtest.Ledger
	delay time.Duration
}

func (l *slowLedger) Reserve(_ context.Context, r serial.Reservation) (int64, error) {
	time.Sleep(l.delay)
	return l.Ledger.Reserve(context.Background(), r)
}

func (l *slowLedger) floor(context.Context, string, time.Time) (int64, error) {
	time.Sleep(l.delay)
	return 0, nil
}

// slowly makes a call of a new type, during which Redis, the floor and the ledger become slow, and finally hang.
func slowly(t *testing.T, with string, read, delay time.Duration, hangs bool, spared int,
	call func(context.Context, *serial.Generator) error) (time.Duration, error) {
	m, slow := memory.Start(t), new(slowLedger)
	network := newProxy(m.Dial)
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:6379", PoolSize: 1000, ReadTimeout: read,
		Dialer: func(context.Context, string, string) (net.Conn, error) {
			conn, end := net.Pipe()
			network.link(end)
			return conn, nil
		}})
	t.Cleanup(func() { _ = client.Close() })
	opts := map[string][]serial.Option{"floor": {serial.WithFloor(slow.floor)}, "ledger": {serial.WithLedger(slow, 10)}}
	gen, err := serial.New(client, opts[with]...)
	require.NoError(t, err)
	require.NoError(t, errOf(gen.Next(t.Context(), "OTHER"))) // connects
	slow.delay, network.spared = delay, spared
	network.set(late, delay)
	hang := time.AfterFunc(9*time.Second, func() {
		if hangs {
			network.set(blackHole, 0)
		}
	})
	began := time.Now()
	err = call(context.Background(), gen)
	took := time.Since(began)
	hang.Stop()
	network.set(passing, 0)
	network.reset()
	time.Sleep(time.Minute) // for abandoned commands
	return took, err
}

// An ACL permits a service's own types only. Calls for other types fail, and do not affect those for its own, although
// all of them wait for the same connections.
// Guarantees: keys-denied.
func TestUserOfOneType(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	require.NoError(t, server.Do("ACL", "SETUSER", "own", "on", ">secret", "~serial:{OWN}*", "+@all").Err())
	options := server.Options()
	options.Username, options.Password = "own", "secret"
	client := redis.NewClient(options)
	t.Cleanup(func() { _ = client.Close() })
	for _, opts := range [][]serial.Option{nil, {serial.WithLedger(new(serialtest.Ledger), 200)}} {
		server.Do("FLUSHALL")
		gen, err := serial.New(client, opts...)
		require.NoError(t, err)
		var issued [501]atomic.Bool
		var all sync.WaitGroup
		for range 500 {
			all.Go(func() {
				n, err := gen.NextNumber(t.Context(), "OWN")
				assert.True(t, err == nil && !issued[n.Seq].Swap(true), "%v: %v", n, err)
			})
			all.Go(func() {
				_, err := gen.Next(t.Context(), "OTHER")
				assert.True(t, redis.HasErrorPrefix(err, "NOPERM"), "a call of another type got %v", err)
			})
		}
		all.Wait()
	}
}
