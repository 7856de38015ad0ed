package serial_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/dailyserial/serial"
)

// simulation is a miniredis whose clock and expiries are those of a synctest bubble.
type simulation struct {
	*miniredis.Miniredis
	t *testing.T
}

// simulate must be called inside a bubble.
func simulate(t *testing.T) *simulation {
	m := miniredis.NewMiniRedis()
	m.ClockTTL(true)
	t.Cleanup(m.Close)
	return &simulation{m, t}
}

// client returns a client of its own, closed with the test. Its address is an IP: a name would be looked up by
// goroutines outside the bubble.
func (s *simulation) client(hooks ...redis.Hook) *redis.Client {
	c := redis.NewClient(&redis.Options{
		Addr:   "127.0.0.1:6379",
		Dialer: func(context.Context, string, string) (net.Conn, error) { return s.Dial() },
	})
	for _, h := range hooks {
		c.AddHook(h)
	}
	s.t.Cleanup(func() { _ = c.Close() })
	return c
}

// requireExpiries checks that no key lives for ever.
func (s *simulation) requireExpiries() {
	s.t.Helper()
	for _, key := range s.Keys() {
		require.Positive(s.t, s.TTL(key), "%s has no expiry", key)
	}
}

// hook is a redis.Hook around every single command.
type hook func(next redis.ProcessHook) redis.ProcessHook

func (h hook) DialHook(next redis.DialHook) redis.DialHook          { return next }
func (h hook) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return h(next) }
func (h hook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// counting counts the commands that a client sends.
func counting(n *atomic.Int64) hook {
	return func(next redis.ProcessHook) redis.ProcessHook {
		return func(ctx context.Context, cmd redis.Cmder) error {
			n.Add(1)
			return next(ctx, cmd)
		}
	}
}

// replacing has f instead of every command; it must set the command's error.
func replacing(f func(ctx context.Context, cmd redis.Cmder) error) hook {
	return func(redis.ProcessHook) redis.ProcessHook {
		return func(ctx context.Context, cmd redis.Cmder) error {
			err := f(ctx, cmd)
			cmd.SetErr(err)
			return err
		}
	}
}

func newGenerator(t *testing.T, client redis.UniversalClient, opts ...serial.Option) *serial.Generator {
	t.Helper()
	gen, err := serial.New(client, opts...)
	require.NoError(t, err)
	return gen
}

func location(t *testing.T, name string) *time.Location {
	t.Helper()
	loc, err := time.LoadLocation(name)
	require.NoError(t, err)
	return loc
}

// noon is a zone in which it is about noon, so that no test on a real clock meets a midnight by chance.
func noon() *time.Location {
	now := time.Now().UTC()
	return time.FixedZone("noon", (12-now.Hour())*3600)
}

func today(loc *time.Location) string { return time.Now().In(loc).Format("20060102") }

func numbers(typ, day string, from, to int) []string {
	var all []string
	for seq := from; seq <= to; seq++ {
		all = append(all, fmt.Sprintf("%s%s%04d", typ, day, seq))
	}
	return all
}

// journal collects what any number of callers were issued, and when.
type journal struct {
	mu      sync.Mutex
	entries []entry
}

type entry struct {
	number        string
	seq           int64
	day           string
	before, after time.Time // of the call
}

// next issues a number, writes it down and returns how long the call took.
func (j *journal) next(ctx context.Context, gen *serial.Generator, typ string) (time.Duration, error) {
	before := time.Now()
	n, err := gen.NextNumber(ctx, typ)
	after := time.Now()
	if err == nil {
		j.mu.Lock()
		defer j.mu.Unlock()
		j.entries = append(j.entries, entry{n.String(), n.Seq, n.Start.Format("20060102"), before, after})
	}
	return after.Sub(before), err
}

// check makes sure that no number was issued twice, that each bears a day on which its call ran, and that a call that
// began after another one had returned got a greater number. It returns the sequences of each day, sorted.
func (j *journal) check(t *testing.T, loc *time.Location) map[string][]int64 {
	t.Helper()
	j.mu.Lock()
	defer j.mu.Unlock()
	seen := map[string]bool{}
	days := map[string][]int64{}
	for _, e := range j.entries {
		require.False(t, seen[e.number], "%s was issued twice", e.number)
		seen[e.number] = true
		days[e.day] = append(days[e.day], e.seq)
		require.LessOrEqual(t, e.before.In(loc).Format("20060102"), e.day, "%s", e.number)
		require.GreaterOrEqual(t, e.after.In(loc).Format("20060102"), e.day, "%s", e.number)
	}
	for _, seqs := range days {
		slices.Sort(seqs)
	}

	starts, ends := slices.Clone(j.entries), slices.Clone(j.entries)
	slices.SortFunc(starts, func(a, b entry) int { return a.before.Compare(b.before) })
	slices.SortFunc(ends, func(a, b entry) int { return a.after.Compare(b.after) })
	var latest entry // the greatest number of the calls that have returned
	for _, e := range starts {
		for len(ends) > 0 && ends[0].after.Before(e.before) {
			if ends[0].number > latest.number {
				latest = ends[0]
			}
			ends = ends[1:]
		}
		require.Greater(t, e.number, latest.number, "issued later, at %v", e.before)
	}
	return days
}

// upTo is 1 to n.
func upTo(n int) []int64 {
	all := make([]int64, n)
	for i := range all {
		all[i] = int64(i + 1)
	}
	return all
}

var errBoom = errors.New("boom")
