//go:build unix

package faults

import (
	"context"
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
	tried, every := uint64(0), uint64(5) // some of the cases, by the seed
	switch {
	case testing.Short():
		every = 25
	case redistest.Long():
		every = 1
	}
	for _, with := range []string{"", "floor", "ledger"} {
		for _, read := range []time.Duration{0, 4900 * time.Millisecond, -1} { // 0 is go-redis's own, 5 s
			for _, method := range []string{"Next", "NextOnce", "Raise", "Peek"} {
				for _, delay := range []time.Duration{1900 * time.Millisecond, 2900 * time.Millisecond, 9 * time.Second} {
					for i := range 14 {
						spared, hangs := i/2, i%2 == 1 // replies before it is slow; hangs after 9 s
						if tried++; tried%every == seed%every {
							race.Bubble(t, func(t *testing.T) {
								took, err := slowly(t, with, read, delay, hangs, spared, method)
								require.Less(t, took, timely, "%s, %s, read timeout %v, replies %v late after the first %d, finally "+
									"none %v: %v", method, with, read, delay, spared, hangs, err)
							})
						}
					}
				}
			}
		}
	}
}

// A slowLedger is a ledger that takes its time.
type slowLedger struct {
	serialtest.Ledger
	delay time.Duration
}

func (l *slowLedger) Reserve(_ context.Context, r serial.Reservation) (int64, error) {
	time.Sleep(l.delay)
	return l.Ledger.Reserve(context.Background(), r)
}

// slowly makes a call of a new type, during which Redis, the floor and the ledger become slow, and finally hang.
func slowly(t *testing.T, with string, read, delay time.Duration, hangs bool, spared int,
	method string) (time.Duration, error) {
	m, slow := memory.Start(t), new(slowLedger)
	network := &proxy{dial: m.Dial, conns: map[net.Conn]bool{}}
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:6379", PoolSize: 1000, ReadTimeout: read,
		Dialer: func(context.Context, string, string) (net.Conn, error) {
			conn, end := net.Pipe()
			network.link(end)
			return conn, nil
		}})
	t.Cleanup(func() { _ = client.Close() })
	floor := func(context.Context, string, time.Time) (int64, error) {
		time.Sleep(slow.delay)
		return 0, nil
	}
	opts := map[string][]serial.Option{"floor": {serial.WithFloor(floor)}, "ledger": {serial.WithLedger(slow, 10)}}
	gen, err := serial.New(client, opts[with]...)
	require.NoError(t, err)
	require.NoError(t, errOf(gen.Next(t.Context(), "OTHER"))) // connects
	slow.delay, network.spared = delay, spared
	network.disturb(delay, false)
	hang := time.AfterFunc(9*time.Second, func() {
		if hangs {
			network.disturb(time.Hour, false)
		}
	})
	began := time.Now()
	ctx := context.Background()
	err = map[string]func() error{
		"Next":     func() error { return errOf(gen.Next(ctx, "SLOW")) },
		"NextOnce": func() error { return errOf(gen.NextOnce(ctx, "SLOW", "id")) },
		"Raise":    func() error { return gen.Raise(ctx, "SLOW", 40) },
		"Peek":     func() error { return errOf(gen.Peek(ctx, "SLOW")) },
	}[method]()
	took := time.Since(began)
	hang.Stop()
	network.heal()
	time.Sleep(2 * time.Hour) // for abandoned commands
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
	gen, err := serial.New(client, serial.WithLedger(new(serialtest.Ledger), 200))
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
