package serial_test

import (
	"context"
	"fmt"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/dailyserial/serial"
)

// inTime is the longest that a call without a deadline may take where servers are slow, and a little more.
const inTime = 10*time.Second + 100*time.Millisecond

// A line is the network between a client and a simulation.
type line struct {
	mu    sync.Mutex
	steps []time.Duration // durations of the next steps; a step is a dial or a reply
	delay time.Duration   // duration of every step after them
}

// slow sets the durations of the next steps, and delay for those after them.
func (l *line) slow(delay time.Duration, steps ...time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.delay, l.steps = delay, steps
}

func (l *line) step() {
	l.mu.Lock()
	delay := l.delay
	if len(l.steps) > 0 {
		delay, l.steps = l.steps[0], l.steps[1:]
	}
	l.mu.Unlock()
	time.Sleep(delay)
}

// client returns a client of s, with a pool as large as that of its other clients.
func (l *line) client(s *simulation, read time.Duration) *redis.Client {
	return closing(s.t, redis.NewClient(&redis.Options{
		Addr:        "127.0.0.1:6379",
		PoolSize:    1000,
		ReadTimeout: read,
		Dialer: func(context.Context, string, string) (net.Conn, error) {
			l.step()
			server, err := s.Dial()
			if err != nil {
				return nil, err
			}
			client, end := net.Pipe()
			go l.forward(server, end, func() {})
			go l.forward(end, server, l.step)
			return client, nil
		},
	}))
}

func (l *line) forward(dst, src net.Conn, step func()) {
	defer func() { _, _ = dst.Close(), src.Close() }()
	buffer := make([]byte, 16<<10)
	for {
		n, err := src.Read(buffer)
		if err != nil {
			return
		}
		step()
		if _, err := dst.Write(buffer[:n]); err != nil {
			return
		}
	}
}

// stale is the idle time after which a pool replaces a connection, which it notices only when the connection is wanted.
const stale = 31 * time.Minute

// However long it takes to replace a connection, that does not count as a pause of this process.
func TestSlowServerAndStaleConnections(t *testing.T) {
	calls := map[string]func(ctx context.Context, gen *serial.Generator, typ string) error{
		"Next": func(ctx context.Context, gen *serial.Generator, typ string) error { return errOf(gen.Next(ctx, typ)) },
		"NextOnce": func(ctx context.Context, gen *serial.Generator, typ string) error {
			return errOf(gen.NextOnce(ctx, typ, "1"))
		},
		"Raise": func(ctx context.Context, gen *serial.Generator, typ string) error { return gen.Raise(ctx, typ, 8) },
		"Peek":  func(ctx context.Context, gen *serial.Generator, typ string) error { return errOf(gen.Peek(ctx, typ)) },
	}
	step := 200 * time.Millisecond
	if !long() {
		step = 800 * time.Millisecond
		t.Log("three of four delays are left out without SERIAL_TEST_LONG=1")
	}
	var late []string
	for name, call := range calls {
		for _, read := range []time.Duration{0, 3 * time.Second, 4900 * time.Millisecond, -1} { // 0 is go-redis's own, 5 s
			for delay := 500 * time.Millisecond; delay < 6*time.Second; delay += step {
				for _, typ := range []string{"open", "new"} {
					for _, endless := range []bool{true, false} {
						synctest.Test(t, func(t *testing.T) {
							var l line
							gen := newGenerator(t, l.client(simulate(t), read))
							require.NoError(t, errOf(gen.Next(t.Context(), "open")))
							time.Sleep(stale)
							ctx := context.Background()
							if !endless {
								var cancel func()
								ctx, cancel = context.WithCancel(ctx)
								defer cancel()
							}
							l.slow(delay)
							began := time.Now()
							err := call(ctx, gen, typ)
							if took := time.Since(began); took > inTime {
								late = append(late, fmt.Sprintf("%s of %q: read timeout %v, replies after %v, endless context %v: %v, %v",
									name, typ, read, delay, endless, took, err))
							}
							time.Sleep(time.Minute) // for commands that were left behind
						})
					}
				}
			}
		}
	}
	require.Empty(t, late)
}

// Whichever step of replacing a connection is slow, a caller that waits for Redis in its own goroutine returns too: once the
// server answers others at once, it waits for one more reply.
func TestSlowStepsOfAStaleConnection(t *testing.T) {
	const readTimeout = 5 * time.Second // go-redis's own
	delays := []time.Duration{0, 4300 * time.Millisecond, 4900 * time.Millisecond}
	var late []string
	for k := range 3 * 3 * 3 * 3 * 3 {
		synctest.Test(t, func(t *testing.T) {
			var l line
			gen := newGenerator(t, l.client(simulate(t), 0))
			require.NoError(t, errOf(gen.Next(context.Background(), "IS")))
			time.Sleep(stale)
			var steps []time.Duration
			for n := k; len(steps) < 5; n /= 3 {
				steps = append(steps, delays[n%3])
			}
			l.slow(0, steps...)
			began := time.Now()
			_, err := gen.Next(context.Background(), "IS")
			if took := time.Since(began); took > inTime+readTimeout {
				late = append(late, fmt.Sprintf("%v: %v, %v", steps, took, err))
			}
			time.Sleep(time.Minute)
		})
	}
	require.Empty(t, late)
}

// Callers who wait for another caller share its delay: their own time does not start when it returns. (One read timeout more
// is allowed: caller.eval says which command may take longer.)
func TestSlowServerForMany(t *testing.T) {
	var late []string
	for _, ledger := range []bool{false, true} {
		for _, callers := range []int{2, 10} {
			for _, delay := range []time.Duration{2900 * time.Millisecond, 4500 * time.Millisecond, 6 * time.Second,
				50 * time.Second} {
				for quick := range 9 { // replies
					inBubble(t, func(t *testing.T, m *simulation) {
						opts := append(ledgerIf(ledger, 10), serial.WithLocation(time.UTC))
						_, err := newGenerator(t, m.client(), opts...).Next(t.Context(), "OTHER") // the server knows the scripts
						require.NoError(t, err)
						var l line
						rdb := l.client(m, 0)
						require.NoError(t, rdb.Ping(t.Context()).Err())
						gen := newGenerator(t, rdb, opts...)
						l.slow(delay, make([]time.Duration, quick)...)
						var wg sync.WaitGroup
						var mu sync.Mutex
						began := time.Now()
						for range callers {
							wg.Go(func() {
								_, err := gen.Next(context.Background(), "IS")
								if took := time.Since(began); took > inTime+5*time.Second {
									mu.Lock()
									defer mu.Unlock()
									late = append(late, fmt.Sprintf("ledger %v, %d callers, replies after %v but %d: %v, %v", ledger, callers,
										delay, quick, took, err))
								}
							})
						}
						wg.Wait()
						time.Sleep(3 * time.Minute)
					})
				}
			}
		}
	}
	require.Empty(t, late)
}
