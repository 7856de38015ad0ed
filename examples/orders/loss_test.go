package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dailyserial/serial/internal/redistest"
)

// Clients send every request one to three times at once to two processes, disconnect in the middle and retry.
// Meanwhile, Redis restarts empty twice, and one of the processes restarts with it.
func TestRedisLosesEverything(t *testing.T) {
	each(t, func(t *testing.T, fresh func(t *testing.T) string) {
		for _, protect := range []string{"ledger", "floor"} {
			t.Run(protect, func(t *testing.T) { testLoss(t, fresh(t), protect) })
		}
	})
}

func testLoss(t *testing.T, dsn, protect string) {
	const clients, ordersEach = 40, 6
	redisServer := redistest.Start(t)
	newProcess := func() *process { return start(t, client(t, redisServer.Addr()), dsn, protect) }
	all := []*process{newProcess(), newProcess()}
	var serving [2]atomic.Pointer[process]
	for i, p := range all {
		serving[i].Store(p)
	}

	seen := &answers{
		numbers: map[string]string{}, created: map[string]bool{},
		reached: map[int]chan struct{}{}, turnedAway: make(chan struct{}),
	}
	third, twoThirds := seen.when(clients*ordersEach/3), seen.when(clients*ordersEach*2/3)
	var wg sync.WaitGroup
	defer wg.Wait()
	ctx, cancel := context.WithTimeout(t.Context(), 90*time.Second)
	defer cancel()
	for c := range clients {
		wg.Go(func() {
			for i := range ordersEach {
				key, d := fmt.Sprintf("client-%d-order-%d", c, i), draft{fmt.Sprint("client-", c), int64(100 + i)}
				var same sync.WaitGroup
				for range 1 + rand.IntN(3) {
					same.Go(func() { seen.add(key, seen.insist(ctx, &serving, key, d)) })
				}
				same.Wait()
			}
		})
	}
	await := func(what <-chan struct{}) {
		t.Helper()
		select {
		case <-what:
		case <-ctx.Done():
			t.Fatalf("%v; the log:\n%s", ctx.Err(), all[0].journal)
		}
	}
	for i, now := range []<-chan struct{}{third, twoThirds} {
		await(now)
		redisServer.Kill()
		if i == 1 { // Redis is away until a client is turned away; the first time it is back sooner
			await(seen.turnedAway)
		}
		redisServer.Restart(t) // nothing was saved
		all = append(all, newProcess())
		serving[1].Store(all[len(all)-1]) // a process that remembers nothing, beside one that does
	}
	wg.Wait()

	require.Empty(t, seen.wrong)
	require.NotZero(t, seen.left.Load())
	require.Len(t, seen.numbers, clients*ordersEach)
	require.Equal(t, all[0].stored(t), seen.numbers)
	numbers := map[string]bool{}
	for _, number := range seen.numbers {
		numbers[number] = true
	}
	require.Len(t, numbers, clients*ordersEach, "a number was answered to two keys")
	if protect == "ledger" { // with a floor, the table has the last word
		for _, p := range all {
			require.NotContains(t, p.journal.String(), "was issued twice")
		}
	}

	// A key used before is answered from the table, by any process, and no number is taken for it.
	for _, p := range all {
		p.Server.Close() // with all requests that clients have left
	}
	require.NoError(t, redisServer.Do("FLUSHALL").Err())
	last := newProcess()
	for c := range clients {
		for i := range ordersEach {
			key, d := fmt.Sprintf("client-%d-order-%d", c, i), draft{fmt.Sprint("client-", c), int64(100 + i)}
			require.Equal(t, order{seen.numbers[key], d}, last.must(t, http.StatusOK, key, d).order)
			last.must(t, http.StatusUnprocessableEntity, key, draft{d.Customer, d.AmountCents + 1})
		}
	}
	size, err := redisServer.Do("DBSIZE").Int()
	require.NoError(t, err)
	require.Zero(t, size)
}

// insist repeats a request until the answer is an order. At first, it sometimes disconnects in the middle.
func (s *answers) insist(ctx context.Context, serving *[2]atomic.Pointer[process], key string, d draft) answer {
	hasty := rand.IntN(3) == 0
	for ctx.Err() == nil {
		attempt, cancel := ctx, context.CancelFunc(func() {})
		if hasty {
			attempt, cancel = context.WithTimeout(ctx, rand.N(8*time.Millisecond))
		}
		a, err := serving[rand.IntN(2)].Load().post(attempt, key, d)
		cancel()
		if err == nil && (a.status != http.StatusServiceUnavailable || a.header.Get("Retry-After") == "") {
			return a
		}
		if err == nil {
			select {
			case s.turnedAway <- struct{}{}:
			default:
			}
		} else if hasty && attempt.Err() != nil {
			s.left.Add(1)
		}
		hasty = false
		time.Sleep(rand.N(50 * time.Millisecond)) // less than Retry-After asks for
	}
	return answer{problem: problem{Detail: "no answer in time"}}
}

// answers collects what clients got.
type answers struct {
	mu      sync.Mutex
	numbers map[string]string // by key
	created map[string]bool   // keys that were answered with 201
	wrong   []string
	left    atomic.Int64 // attempts that ended in the middle
	reached map[int]chan struct{}

	turnedAway chan struct{} // receives a value at a 503, if anybody waits for it
}

// when returns a channel that is closed once that many keys have answers.
func (s *answers) when(n int) <-chan struct{} {
	s.reached[n] = make(chan struct{})
	return s.reached[n]
}

func (s *answers) add(key string, a answer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	number, stored := s.numbers[key]
	switch {
	case a.status != http.StatusCreated && a.status != http.StatusOK:
		s.wrong = append(s.wrong, fmt.Sprintf("%s: %d %s", key, a.status, a.Detail))
		return
	case stored && number != a.Number:
		s.wrong = append(s.wrong, fmt.Sprintf("%s: %s and %s", key, number, a.Number))
	case a.status == http.StatusCreated && s.created[key]:
		s.wrong = append(s.wrong, key+": created twice")
	}
	s.created[key] = s.created[key] || a.status == http.StatusCreated
	if s.numbers[key] = a.Number; !stored && s.reached[len(s.numbers)] != nil {
		close(s.reached[len(s.numbers)])
	}
}
