package serial_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dailyserial/serial"
	"github.com/dailyserial/serial/internal/redistest"
)

// While the server is stopped, calls for open and for new types return as soon as their contexts end, or within ten
// seconds if these never end, whatever the client's settings.
// Guarantees: redis-hangs.
func TestStalledServer(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for ten seconds")
	}
	t.Parallel()
	var wg sync.WaitGroup // all at once, regardless of -parallel: they mostly wait
	for name, set := range map[string]func(*redis.Options){
		"defaults":              func(*redis.Options) {},
		"ContextTimeoutEnabled": func(o *redis.Options) { o.ContextTimeoutEnabled = true },
		"no read timeout":       func(o *redis.Options) { o.ReadTimeout = -1 },
		"one connection":        func(o *redis.Options) { o.PoolSize = 1 },
	} {
		stalled := func(t *testing.T) {
			server := redistest.Start(t)
			opt := server.Options()
			set(opt)
			gen := newGenerator(t, closing(t, redis.NewClient(opt)), serial.WithLocation(noon()))
			for typ := range 8 {
				require.NoError(t, errOf(gen.Next(t.Context(), fmt.Sprint("T", typ))))
			}
			server.Pause()

			// Tests in bubbles check the exact instant. Here it must be sooner than the client's own time limits,
			// however busy the machine.
			limited, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			defer cancel()
			before := time.Now()
			require.ErrorIs(t, errOf(gen.Next(limited, "T0")), context.DeadlineExceeded)
			canceled, cancel := context.WithCancel(t.Context())
			time.AfterFunc(50*time.Millisecond, cancel)
			require.ErrorIs(t, errOf(gen.NextN(canceled, "NEW", 3)), context.Canceled)
			require.Less(t, time.Since(before), 2*time.Second)

			before = time.Now()
			var calls sync.WaitGroup
			for i := range 100 {
				ctx := []context.Context{context.Background(), t.Context()}[i%2]
				calls.Go(func() {
					_, err := gen.Next(ctx, fmt.Sprint("T", i%16)) // eight of these are new
					assert.Error(t, err)
					assert.NotErrorIs(t, err, context.DeadlineExceeded)
					assert.NotErrorIs(t, err, context.Canceled)
				})
			}
			calls.Wait()
			require.Less(t, time.Since(before), 15*time.Second)
		}
		wg.Go(func() { t.Run(name, stalled) })
	}
	wg.Wait()
}

// inTime is a little more than the longest time that a call without a deadline may take if servers are slow.
const inTime = 10*time.Second + 100*time.Millisecond

// Connections are idle for a long time. go-redis must replace and close them. (Version 9.22.0 left them open.)
func TestStaleConnections(t *testing.T) {
	inBubble(t, func(t *testing.T, m *simulation) {
		gen := newGenerator(t, m.Client())
		for range 2 {
			require.NoError(t, errOf(gen.Next(t.Context(), "IS")))
			synctest.Wait()
			require.Equal(t, 1, m.CurrentConnectionCount())
			time.Sleep(31 * time.Minute)
		}
	})
}

// manyTypes is more than the number of calls that can be sent to a hanging server one after the other in 10 s.
const manyTypes = 500

// Calls for many types open a period at the same time, and a server hangs at one of their steps. Each type must reach
// this step. Every call must return in time, and send nothing after it has returned.
// Guarantees: redis-hangs.
func TestStalledServerAndManyTypes(t *testing.T) {
	embedded := func(c *redis.Client) redis.UniversalClient { return struct{ *redis.Client }{c} }
	cluster := func(c *redis.Client) redis.UniversalClient {
		return redis.NewClusterClient(&redis.ClusterOptions{
			NewClient: func(*redis.Options) *redis.Client { return c },
			ClusterSlots: func(context.Context) ([]redis.ClusterSlot, error) {
				return []redis.ClusterSlot{{End: 16383, Nodes: []redis.ClusterNode{{Addr: "127.0.0.1:6379"}}}}, nil
			},
		})
	}
	plain := func(c *redis.Client) redis.UniversalClient { return c }
	locks := func(c *redis.Client) serial.Option { return serial.WithLockClients(c) }
	floor := func(*redis.Client) serial.Option { return fixedFloor(5) }
	for name, test := range map[string]struct {
		client func(*redis.Client) redis.UniversalClient
		option func(*redis.Client) serial.Option
		hangs  string // the command at which the server hangs
	}{
		"an embedded client, take":      {embedded, nil, "take"},
		"an embedded client, lock":      {embedded, nil, "set"},
		"an embedded client, open":      {embedded, nil, "open"},
		"a client of a Cluster, take":   {cluster, nil, "take"},
		"a lock server":                 {plain, locks, "set"},
		"a floor, with the second look": {plain, floor, "set"},
		"a floor, open":                 {plain, floor, "open"},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, m *simulation) {
				var sent atomic.Int64
				var hangs atomic.Bool
				began := time.Now()
				client := m.Client(everyCall(func(cmds []redis.Cmder, send func() error) error {
					for _, cmd := range cmds {
						if stepOf(cmd) == test.hangs {
							time.Sleep(time.Until(began.Add(time.Second))) // all types reach this step within a second
							hangs.Store(true)
						}
					}
					sent.Add(int64(len(cmds)))
					if hangs.Load() {
						time.Sleep(time.Hour)
					}
					return send()
				}))
				opts := options(serial.WithLocation(time.UTC))
				if test.option != nil {
					opts = append(opts, test.option(client))
				}
				rdb := closing(t, test.client(client))
				gen := newGenerator(t, rdb, opts...)
				barrier(t, manyTypes, func(i int) (string, error) {
					_, err := gen.Next(context.Background(), fmt.Sprint("T", i))
					require.Error(t, err)
					require.NotErrorIs(t, err, context.DeadlineExceeded)
					require.LessOrEqual(t, time.Since(began), inTime)
					return "", nil
				})
				synctest.Wait() // for what was sent at this very moment
				before := sent.Load()
				time.Sleep(time.Minute)
				require.Equal(t, before, sent.Load(), "sent for no caller")
				time.Sleep(2 * time.Hour)
			})
		})
	}
}

// A slow call would have to wait until the clock of the server catches up. If this takes longer than the rest of its
// time, the call must fail instead of waiting.
func TestSlowServerWhoseClockWasSetBack(t *testing.T) {
	inBubble(t, func(t *testing.T, m *simulation) {
		slow := false
		gen := newGenerator(t, m.Client(around(func(cmd redis.Cmder, send func() error) error {
			if slow && stepOf(cmd) == "take" {
				slow = false
				time.Sleep(6 * time.Second)
			}
			return send()
		})), serial.WithLocation(time.UTC))
		midnight := time.Date(2000, 1, 2, 0, 0, 0, 0, time.UTC)
		time.Sleep(time.Until(midnight.Add(time.Minute)))
		require.NoError(t, errOf(gen.Next(t.Context(), "IS")))
		m.SetTime(midnight.Add(-4500 * time.Millisecond))
		slow = true
		began := time.Now()
		require.ErrorIs(t, errOf(gen.Next(t.Context(), "IS")), serial.ErrClockSkew)
		require.Equal(t, 6*time.Second, time.Since(began))
	})
}
