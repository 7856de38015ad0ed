package series

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/dailyserial/serial/internal/calendar"
	"github.com/dailyserial/serial/internal/race"
	redismemory "github.com/dailyserial/serial/internal/redistest/memory"
	"github.com/dailyserial/serial/internal/wire"
)

// A fixture is a Series of days on a Redis in memory, in a bubble. It implements [Locks].
type fixture struct {
	*Series
	redis *redismemory.Redis
	hook  func(grant bool, send func() error) error // around each run of a script

	try       func(attempt int) error // outcome of an attempt at the lock, nil if it is granted
	elsewhere bool                    // the lock is on other servers
	attempts  int
	looks     int    // attempts at the lock with which a second look could leave
	typ       string // of the calls, "IS" if it is ""
	request   string // ID of the calls' requests, "" for none
	granted   string // options of the last grant

	mu       sync.Mutex // guards the rest
	released int
	gaps     []Gap
	pending  int
	reserved map[string]int64 // last sequence in the ledger, by label
	asked    atomic.Int32     // times that the ledger was asked
}

func inBubble(t *testing.T, configure func(*fixture, *Config), f func(t *testing.T, x *fixture)) {
	race.Bubble(t, func(t *testing.T) {
		x := &fixture{redis: redismemory.Start(t), reserved: map[string]int64{}}
		days := calendar.Calendar{Location: time.UTC, Unit: calendar.Day}
		c := Config{Client: x.redis.Client(x), Prefix: "serial", Calendar: days, Counts: "days", PrintMark: "aa", Limit: 9999,
			MaxSkew: time.Hour, Key: "plain", OnceFor: time.Hour, Explain: x.explain, Pending: x.addPending, Block: 10,
			SpanAt: func(at time.Time) (calendar.Span, error) {
				p := *days.At(at)
				return calendar.Span{Period: p, From: p.Start, To: p.End, Date: p.Label}, nil
			}}
		if configure != nil {
			configure(x, &c)
		}
		x.Series = New(c)
		f(t, x)
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Zero(t, x.pending)
	})
}

func (x *fixture) explain(g Gap) {
	x.mu.Lock()
	defer x.mu.Unlock()
	g.Span = nil
	x.gaps = append(x.gaps, g)
}

// explained returns the gaps that have been reported.
func (x *fixture) explained() []Gap {
	x.mu.Lock()
	defer x.mu.Unlock()
	return slices.Clone(x.gaps)
}

// expected returns the number of callers whose numbers can still become gaps.
func (x *fixture) expected() int {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.pending
}

func (x *fixture) addPending(n int) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.pending += n
}

// withLedger adds a ledger that replies after some time.
func withLedger(delay time.Duration) func(*fixture, *Config) {
	return func(x *fixture, c *Config) {
		c.Reserve = func(_ context.Context, _, label string, above, n int64) (int64, error) {
			time.Sleep(delay)
			x.mu.Lock()
			defer x.mu.Unlock()
			x.asked.Add(1)
			after := max(above, x.reserved[label])
			x.reserved[label] = after + n
			return after, nil
		}
	}
}

// next requests a number with the same four steps as a Generator.
func (x *fixture) next(ctx context.Context) (n Numbers, call *Call, err error) {
	call, err = x.NewCall(ctx, cmp.Or(x.typ, "IS"), x.request, 1)
	if err != nil {
		return n, call, err
	}
	defer call.End(&err)
	for {
		out := call.Take(ctx)
		if out.Step == Missing {
			out = call.Lock(ctx, x, out)
		}
		if out.Step == Locked {
			out = call.Open(ctx, out)
		}
		if out.Step == Wait {
			out = call.Wait(ctx)
		}
		if out.Step == Done {
			return out.Numbers, call, out.Err
		}
	}
}

func (x *fixture) Try(
	ctx context.Context, deadline time.Time, tag, key string, behind *wire.Item, _ *wire.Note,
) (l Lock, sent bool, err error) {
	x.attempts++
	if behind != nil {
		x.looks++
	}
	if x.try != nil {
		err = x.try(x.attempts)
	}
	if sent = behind != nil && !x.elsewhere; sent {
		x.Wire().Start(ctx, x.Wire().Node(ctx, tag), behind)
	}
	if err != nil {
		return nil, sent, err
	}
	if !x.elsewhere {
		_ = x.redis.Set(key, "token")
	}
	return x, sent, nil
}

// Content and Release make the fixture a [Lock].

func (x *fixture) Content() string {
	if x.elsewhere {
		return ""
	}
	return "token"
}

func (x *fixture) Release(context.Context) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.released++
}

// The following methods make the fixture a [redis.Hook].

func (x *fixture) DialHook(next redis.DialHook) redis.DialHook { return next }

func (x *fixture) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		return x.around([]redis.Cmder{cmd}, func() error { return next(ctx, cmd) })
	}
}

func (x *fixture) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		return x.around(cmds, func() error { return next(ctx, cmds) })
	}
}

func (x *fixture) around(cmds []redis.Cmder, send func() error) error {
	args := cmds[0].Args()
	options, _ := args[len(args)-1].(string)
	if strings.Contains(options, `"grant"`) {
		x.granted = options
	}
	if x.hook == nil || !strings.HasPrefix(cmds[0].Name(), "eval") {
		return send()
	}
	err := x.hook(strings.Contains(options, `"grant"`), send)
	for _, cmd := range cmds {
		if err != nil {
			cmd.SetErr(err)
		}
	}
	return err
}
