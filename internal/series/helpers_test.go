package series

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"strconv"
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
	"github.com/dailyserial/serial/internal/redistest"
	redismemory "github.com/dailyserial/serial/internal/redistest/memory"
	"github.com/dailyserial/serial/internal/wire"
)

const today = "20000101" // label of the day on which bubbles begin

var causes = map[Cause]string{CallerLeft: "left", NotReplicated: "unconfirmed", BlockBurned: "burned",
	AnswerLost: "lost", Raised: "raised", BlockSkipped: "skipped"}

// A fixture is a Series of days on a Redis in memory, in a bubble. It implements [Locks].
type fixture struct {
	*Series
	t         *testing.T
	redis     *redismemory.Redis
	typ       string         // of the calls, "IS" if it is ""
	request   string         // ID of the calls' requests, "" for none
	elsewhere bool           // the lock is on other servers
	all       sync.WaitGroup // calls in the background
	issued    sync.Map       // numbers of the results
	granted   atomic.Value   // options of the last grant
	ahead     atomic.Int64   // difference of the server's clock from the bubble, a duration

	mu     sync.Mutex
	gaps   []string
	counts map[string]int    // events by name
	plans  map[string]string // outcomes of the next attempts by name, separated by commas; the last one stays
	ledger map[string]int64  // last sequence in the ledger, by label
}

// inBubble runs f with a fixture in a bubble. settings are separated by commas, such as "ledger 2s, floor 7".
func inBubble(t *testing.T, settings string, f func(t *testing.T, x *fixture)) {
	t.Helper()
	race.Bubble(t, func(t *testing.T) {
		x := &fixture{t: t, redis: redismemory.Start(t), counts: map[string]int{}, plans: map[string]string{},
			ledger: map[string]int64{}}
		c := Config{Client: x.redis.Client(redistest.Hook(x.around)), Prefix: "serial", Counts: "days", PrintMark: "aa",
			Limit: 9999, Largest: 10001, Block: 10, MaxSkew: time.Hour, Key: "plain", OnceFor: 48 * time.Hour, Explain: x.report,
			Pending: x.pend}
		c.Calendar = calendar.Calendar{Location: time.UTC, Unit: calendar.Day}
		c.SpanAt = func(at time.Time) (calendar.Span, error) {
			_, err := x.next(t.Context(), "print")
			return wholePeriod(&c.Calendar, at), err
		}
		for setting := range strings.SplitSeq(settings, ", ") {
			x.set(&c, setting)
		}
		x.Series = New(c)
		func() {
			defer x.all.Wait()
			f(t, x)
		}()
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Zero(t, x.counts["pending"])
		require.Less(t, x.counts["attempts"], 1000, "pauses grow")
	})
}

// wholePeriod returns a span that lasts one period.
func wholePeriod(c *calendar.Calendar, at time.Time) calendar.Span {
	p := *c.At(at)
	return calendar.Span{Period: p, From: p.Start, To: p.End, Date: p.Label}
}

// set applies a setting.
func (x *fixture) set(c *Config, setting string) {
	name, value, _ := strings.Cut(setting, " ")
	number, _ := strconv.ParseInt(value, 10, 64)
	duration, _ := time.ParseDuration(value)
	switch name {
	case "base":
		c.Base = number
	case "elsewhere":
		x.elsewhere = true
	case "floor":
		c.Floor = func(ctx context.Context, typ string, start time.Time) (int64, error) {
			require.Equal(x.t, "IS 2000-01-01 00:00 UTC", typ+start.Format(" 2006-01-02 15:04 MST"))
			x.count("asked", 1)
			_, err := x.next(ctx, "floor")
			return number, err
		}
	case "hours": // the numbers of a day print the hour
		c.SpanAt = func(at time.Time) (calendar.Span, error) {
			span, hour := wholePeriod(&c.Calendar, at), at.Truncate(time.Hour)
			span.From, span.To, span.Date = hour.Unix(), hour.Unix()+3600, hour.Format("15")
			return span, nil
		}
	case "ledger": // replies after some time
		c.Reserve = func(ctx context.Context, _, label string, above, n int64) (int64, error) {
			x.count("asked", 1)
			time.Sleep(duration)
			if _, err := x.next(ctx, "ledger"); err != nil {
				return 0, err
			}
			x.mu.Lock()
			defer x.mu.Unlock()
			after := max(above, x.ledger[label])
			x.ledger[label] = after + n
			return after, nil
		}
	case "over":
		c.Until = time.Now().Unix()
	case "replica": // the Redis in memory has no WAIT
		c.Replicas = Replicas{N: 1, Timeout: time.Second}
	case "seconds":
		c.Calendar.Unit, c.Seconds = calendar.Second, true
	case "shared":
		c.Shared = true
	case "skewed":
		c.MaxSkew = -1
	default:
		require.Empty(x.t, setting)
	}
}

// process returns the fixture of another process with the same settings.
func (x *fixture) process() *fixture {
	return &fixture{Series: New(*x.Config), t: x.t, redis: x.redis, request: x.request, elsewhere: true,
		counts: map[string]int{}}
}

// report and pend receive gaps, and changes in the number of gaps that may still be reported.

func (x *fixture) report(g Gap) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.gaps = append(x.gaps, fmt.Sprintf("%s %d-%d", causes[g.Cause], g.First, g.Last))
}

func (x *fixture) pend(n int) { x.count("pending", n) }

func (x *fixture) count(event string, n int) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.counts[event] += n
}

// next takes the next outcome of a plan. It may begin with the time until then, or with a new difference of the server's
// clock, which has a sign. After "ran", the attempt has had its effect before it fails. After "hangs", it fails when its
// context ends.
func (x *fixture) next(ctx context.Context, plan string) (runs bool, err error) {
	x.mu.Lock()
	outcome, rest, more := strings.Cut(x.plans[plan], ", ")
	if more {
		x.plans[plan] = rest
	}
	x.mu.Unlock()
	word, text, _ := strings.Cut(outcome, " ")
	if d, err := time.ParseDuration(word); err == nil {
		if outcome = text; strings.ContainsAny(word[:1], "+-") {
			x.do("clock " + word)
		} else {
			time.Sleep(d)
		}
	}
	failure, hangs := strings.CutPrefix(outcome, "hangs ")
	if hangs {
		<-ctx.Done()
	}
	failure, runs = strings.CutPrefix(failure, "ran ")
	errs := map[string]error{"": nil, "success": nil, "taken": ErrTaken, "silence": ErrNoAnswer, "EOF": io.EOF,
		"timeout": os.ErrDeadlineExceeded, "canceled": ctx.Err()}
	err, known := errs[failure]
	if !known {
		err = redisError(failure)
	}
	return runs || err == nil, err
}

type redisError string

func (e redisError) Error() string { return string(e) }
func (redisError) RedisError()     {}

// call returns a call for n numbers.
func (x *fixture) call(n int) *Call {
	c, err := x.NewCall(context.Background(), "IS", x.request, n)
	require.NoError(x.t, err)
	return c
}

// Try implements [Locks].
func (x *fixture) Try(
	ctx context.Context, _ time.Time, tag, key string, behind *wire.Item, _ *wire.Note,
) (l Lock, sent bool, err error) {
	x.count("attempts", 1)
	if behind != nil {
		x.count("checks", 1)
	}
	if _, err = x.next(ctx, "lock"); err == redisError("other") { // another process opens the period in the meantime
		err = nil
		x.process().do("next")
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

func (x *fixture) Release(context.Context) { x.count("released", 1) }

// around sends commands. Scripts run as planned.
func (x *fixture) around(ctx context.Context, cmds []redis.Cmder, next redis.ProcessPipelineHook) error {
	if !strings.HasPrefix(cmds[0].Name(), "eval") {
		return next(ctx, cmds)
	}
	args, plan := cmds[0].Args(), "run"
	options, _ := args[len(args)-1].(string)
	x.count("runs", 1)
	if strings.Contains(options, `"grant"`) {
		plan = "grant"
		x.count("grants", 1)
		x.granted.Store(options)
	}
	runs, err := x.next(ctx, plan)
	if ahead := x.ahead.Load(); ahead != 0 {
		x.redis.SetTime(time.Now().Add(time.Duration(ahead)))
	}
	if runs {
		err = cmp.Or(next(ctx, cmds), err)
	}
	for _, cmd := range cmds {
		if err != nil {
			cmd.SetErr(err)
		}
	}
	return err
}

// play runs steps, such as "next → 1 opened; sleep 2s; meanwhile next 1s → context deadline exceeded after 1s". What a
// step returns must end with a match of the pattern behind the arrow.
func (x *fixture) play(steps string) {
	for step := range strings.SplitSeq(steps, "; ") {
		action, want, checked := strings.Cut(step, " →")
		check := func(action string) {
			switch got := x.do(action); {
			case checked && want == "":
				require.Empty(x.t, got, step)
			case checked:
				require.Regexp(x.t, `(^|\W)`+strings.TrimPrefix(want, " ")+"$", got, step)
			}
		}
		if action, background := strings.CutPrefix(action, "meanwhile "); background {
			x.all.Go(func() { check(action) })
		} else {
			check(action)
		}
		synctest.Wait()
	}
}

// do runs a step.
func (x *fixture) do(action string) string {
	word, rest, _ := strings.Cut(action, " ")
	number, _ := strconv.ParseInt(rest, 10, 64)
	duration, _ := time.ParseDuration(rest)
	counter := x.Key("IS", today)
	switch word {
	case "at": // sleeps until a time of day
		at, err := time.Parse(time.TimeOnly, rest)
		require.NoError(x.t, err)
		time.Sleep(at.Sub(at.Truncate(24*time.Hour)) - time.Since(time.Now().Truncate(24*time.Hour)))
	case "sleep":
		time.Sleep(duration)
	case "freeze": // stops the clock of the server
		x.redis.SetTime(time.Now().Add(duration))
	case "grant", "lock", "run", "floor", "ledger", "print": // see fixture
		x.mu.Lock()
		defer x.mu.Unlock()
		x.plans[word] = rest
	case "clock": // sets the difference of the server's clock
		if x.ahead.Store(int64(duration)); duration == 0 {
			x.redis.SetTime(time.Time{}) // that of the bubble
		}
	case "request":
		x.request = rest
	case "type":
		x.typ = rest
	case "unset": // the process has no floor any more
		x.Config.Floor = nil
	case "deny": // as an ACL does
		x.redis.Deny(rest)
	case "delete":
		x.redis.Del(counter)
	case "counter": // sets today's counter
		require.NoError(x.t, x.redis.Set(counter, rest))
	case "get": // the content of a key
		content, _ := x.redis.Get(rest)
		return content
	case "next":
		return x.result(duration)
	case "issue": // several numbers
		for range number {
			x.result(0)
		}
	case "other": // another process
		return x.process().do(rest)
	case "take": // several numbers of a period that is open
		return fmt.Sprint(x.call(int(number)).Take(context.Background()).Err)
	case "prepare":
		require.NoError(x.t, x.call(0).Prepare(context.Background(), x).Err)
	case "raise": // returns the counter
		call, began := x.call(0), time.Now()
		if err := call.Raise(context.Background(), ForRaise, number, true); err != nil {
			return fmt.Sprint(err, after(began))
		}
		return x.do("get "+counter) + map[bool]string{true: " lost"}[call.Events.Lost != nil]
	case "read": // the last sequences of today and of other days
		reading, err := x.call(0).History(context.Background(), strings.Fields(rest)...)
		require.NoError(x.t, err)
		return fmt.Sprint(reading.Last)
	case "granted": // the options of the last grant
		return x.granted.Load().(string)
	case "gaps":
		x.mu.Lock()
		defer x.mu.Unlock()
		return strings.Join(x.gaps, ", ")
	default: // number of events
		events := []string{"asked", "attempts", "checks", "grants", "offsets", "pending", "released", "runs"}
		require.Contains(x.t, events, word)
		x.mu.Lock()
		defer x.mu.Unlock()
		return fmt.Sprint(x.counts[word])
	}
	return ""
}

// result requests a number with the same four steps as a Generator, and describes the result. limit is the time until
// its context ends, 0 for none.
func (x *fixture) result(limit time.Duration) string {
	ctx, cancel := x.t.Context(), func() {}
	if limit > 0 {
		ctx, cancel = context.WithTimeout(ctx, limit)
	}
	defer cancel()
	call, err := x.NewCall(ctx, cmp.Or(x.typ, "IS"), x.request, 1)
	require.NoError(x.t, err)
	began, out := time.Now(), Outcome{Step: Again}
	for out.Step != Done {
		if out = call.Take(ctx); out.Step == Missing {
			out = call.Lock(ctx, x, out)
		}
		if out.Step == Locked {
			out = call.Open(ctx, out)
		}
		if out.Step == Wait {
			out = call.Wait(ctx)
		}
	}
	if call.End(&out.Err); out.Err != nil {
		return out.Err.Error() + after(began)
	}
	n := out.Numbers
	if call.Events.Offset != call.Events.Before {
		x.count("offsets", 1)
	}
	result := fmt.Sprint(n.Last)
	number := fmt.Sprint(call.typ, n.Span.Label, n.Last)
	if !n.Repeated {
		_, issued := x.issued.LoadOrStore(number, true)
		require.False(x.t, issued, number)
	}
	if n.Span.Date != today {
		result += " of " + n.Span.Date
	}
	if n.Repeated {
		result += " repeated"
	}
	if call.Events.Lost == n.Span {
		result += " lost"
	}
	if call.Events.Opened == n.Span {
		require.Equal(x.t, time.Since(began), call.Events.Wait)
		result += " opened"
	}
	return result + after(began)
}

// after describes the time since began. It is rounded if it has a random part.
func after(began time.Time) string {
	d := time.Since(began)
	switch rounded := d.Round(time.Second / 2); {
	case d == 0:
		return ""
	case d%time.Millisecond == 0:
		return fmt.Sprint(" after ", d)
	case rounded == 0:
		return " soon"
	default:
		return fmt.Sprint(" after about ", rounded)
	}
}

// A scenario has the settings of a process and steps; see [fixture.play].
type scenario struct{ settings, steps string }

func playAll(t *testing.T, scenarios map[string]scenario) {
	t.Helper()
	for name, s := range scenarios {
		t.Run(name, func(t *testing.T) {
			inBubble(t, s.settings, func(_ *testing.T, x *fixture) { x.play(s.steps) })
		})
	}
}
