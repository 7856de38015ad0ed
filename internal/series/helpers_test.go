package series

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"slices"
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

// An environment is what the processes of a test have in common: a Redis in memory, and what Redis must agree with.
type environment struct {
	redis *redismemory.Redis
	plain *redis.Client  // sends commands that are no part of the test
	ahead atomic.Int64   // difference of the server's clock from the bubble, a duration
	all   sync.WaitGroup // calls in the background

	mu        sync.Mutex // held while a script runs; guards the fields below, and those of the processes
	processes []*fixture
	last      map[string]int64 // last sequence issued, by counter
	results   map[string]bool  // numbers that calls have returned
	ledger    map[string]int64 // last sequence in the ledger, by counter
	replies   map[string]int   // number of replies, by status and purpose
}

// A fixture is a process with a Series of days, in a bubble. It implements [Locks].
type fixture struct {
	*Series
	*environment
	t        *testing.T
	settings string
	typ      string // of calls
	request  string // ID of the calls' requests, "" for none
	token    string // content of the lock, "" if it is on other servers

	// guarded by mu
	gaps    []string
	counts  map[string]int    // events by name
	plans   map[string]string // outcomes of the next attempts by name, separated by commas; the last one stays
	granted []any             // arguments of the last request with a grant
}

// inBubble runs f with a fixture in a bubble. settings are separated by commas, such as "ledger 2s, floor 7".
func inBubble(t *testing.T, settings string, f func(x *fixture)) {
	t.Helper()
	race.Bubble(t, func(t *testing.T) {
		e := &environment{redis: redismemory.Start(t), last: map[string]int64{}, results: map[string]bool{},
			ledger: map[string]int64{}, replies: map[string]int{}}
		e.plain = e.redis.Client()
		x := e.process(t, settings)
		func() {
			defer x.all.Wait()
			f(x)
		}()
		time.Sleep(time.Minute)
		synctest.Wait()
		for _, p := range e.processes {
			require.Zero(t, p.counts["pending"], p.settings)
			require.Less(t, p.counts["attempts"], 1000, "pauses grow")
		}
	})
}

// process returns a process with settings.
func (e *environment) process(t *testing.T, settings string) *fixture {
	p := &fixture{environment: e, t: t, settings: settings, typ: "IS", token: "token", counts: map[string]int{},
		plans: map[string]string{}}
	c := Config{Client: e.redis.Client(redistest.Hook(p.around)), Prefix: "serial", Counts: "days", PrintMark: "aa",
		Limit: 9999, Largest: 10001, Block: 10, MaxSkew: time.Hour, Fingerprint: "plain", OnceFor: 48 * time.Hour,
		Retention: 6, Explain: p.report, Pending: p.pend}
	c.Calendar = calendar.Calendar{Location: time.UTC, Unit: calendar.Day}
	c.SpanAt = func(at time.Time) (calendar.Span, error) {
		_, err := p.next(t.Context(), "print")
		return wholePeriod(&c.Calendar, at), err
	}
	for setting := range strings.SplitSeq(settings, ", ") {
		p.set(&c, setting)
	}
	p.Series = New(c)
	e.mu.Lock()
	defer e.mu.Unlock()
	e.processes = append(e.processes, p)
	return p
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
	case "dayStart":
		c.Calendar.DayStart = int64(duration.Seconds())
	case "elsewhere":
		x.token = ""
	case "floor": // without a number, the floor knows all that were issued
		c.Floor = func(ctx context.Context, typ string, start time.Time) (int64, error) {
			x.count("asked", 1)
			_, err := x.next(ctx, "floor")
			require.Equal(x.t, time.Unix(c.Calendar.At(start).Start, 0).UTC(), start)
			x.mu.Lock()
			defer x.mu.Unlock()
			if value == "" {
				return x.last[x.CounterKey(typ, c.Calendar.At(start).Label)], err
			}
			return number, err
		}
	case "hours": // the numbers of a day print the hour
		c.SpanAt = func(at time.Time) (calendar.Span, error) {
			span, hour := wholePeriod(&c.Calendar, at), at.Truncate(time.Hour)
			span.From, span.To, span.Date = hour.Unix(), hour.Unix()+3600, hour.Format("15")
			return span, nil
		}
	case "ledger": // replies after some time
		c.Reserve = func(ctx context.Context, typ, label string, above, n int64) (int64, error) {
			x.count("asked", 1)
			time.Sleep(duration)
			if _, err := x.next(ctx, "ledger"); err != nil {
				return 0, err
			}
			x.mu.Lock()
			defer x.mu.Unlock()
			counter := x.CounterKey(typ, label)
			after := max(above, x.ledger[counter])
			x.ledger[counter] = after + n
			return after, nil
		}
	case "limit":
		c.Limit = number
	case "over":
		c.Until = time.Now().Unix()
	case "replica": // the Redis in memory has no WAIT
		c.Replicas = Replicas{N: 1, Timeout: time.Second}
	case "seconds":
		c.Calendar.Unit, c.Seconds = calendar.Second, true
	case "shared":
		c.Shared = true
	case "mark":
		c.PrintMark = value
	case "anySkew":
		c.MaxSkew = -1
	default:
		require.Empty(x.t, setting)
	}
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

// next takes the next outcome of a plan. An outcome is success, taken, silence, EOF, timeout, canceled or the text of an
// error of Redis. It may begin with the time until then, or with a new difference of the server's clock, which has a
// sign. After "ran", the attempt has had its effect before it fails. After "hangs", it fails when its context ends.
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
	c, err := x.NewCall(context.Background(), x.typ, x.request, n)
	require.NoError(x.t, err)
	return c
}

// describe returns the error or, if more steps are needed, the step of an outcome.
func describe(out Outcome) string {
	if out.Step != Done {
		return fmt.Sprint("step ", out.Step)
	}
	return fmt.Sprint(out.Err)
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
		x.other().do("next")
	}
	if sent = behind != nil && x.token != ""; sent {
		x.Wire().Start(ctx, x.Wire().Node(ctx, tag), behind)
	}
	if err != nil {
		return nil, sent, err
	}
	if x.token != "" {
		x.mu.Lock() // a script may be running, and must not see a change that is not its own
		_ = x.redis.Set(key, x.token)
		x.mu.Unlock()
	}
	return x, sent, nil
}

// Content and Release make the fixture a [Lock].

func (x *fixture) Content() string { return x.token }

func (x *fixture) Release(context.Context) { x.count("released", 1) }

// around sends commands. Scripts run as planned.
func (x *fixture) around(ctx context.Context, cmds []redis.Cmder, next redis.ProcessPipelineHook) error {
	if !strings.HasPrefix(cmds[0].Name(), "eval") {
		return next(ctx, cmds)
	}
	args, plan := cmds[0].Args(), "run"
	x.count("runs", 1)
	if options, _ := args[len(args)-1].(string); strings.Contains(options, `"grant"`) {
		plan = "grant"
		x.mu.Lock()
		x.granted = args
		x.mu.Unlock()
	}
	runs, err := x.next(ctx, plan)
	for _, cmd := range cmds {
		if runs && strings.HasPrefix(cmd.Name(), "eval") {
			err = cmp.Or(x.run(cmd, func() error { return next(ctx, []redis.Cmder{cmd}) }), err)
		}
		if err != nil {
			cmd.SetErr(err)
		}
	}
	return err
}

// run runs a script, and checks what must hold after every run. A script that fails or refuses a request must have
// changed nothing. No counter may be lowered, and no sequence may be issued twice, above the limit or, with a ledger,
// above what is reserved. The reply must contain sequences that were skipped, and each key must expire. The usual path
// of serial.lua must have the same result as all its rules.
func (x *fixture) run(cmd redis.Cmder, send func() error) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.setClock()
	args := cmd.Args()
	counter, record := args[3].(string), args[4].(string)
	argv := args[3+args[2].(int):]
	period, limit, n := argv[0].(string), argv[3], argv[5].(int)
	before := x.redis.Dump()
	was, _ := x.plain.Get(context.Background(), counter).Int64() // 0 if it is no number
	check := x.compare(counter, record, args[1], argv)
	if err := send(); err != nil {
		require.Equal(x.t, before, x.redis.Dump(), err)
		return err
	}
	value := cmd.(interface{ Val() any }).Val()
	check(value)
	r, err := digest(value, n)
	require.NoError(x.t, err)
	reply := string(r.Status)
	for _, purpose := range []string{ForRaise, ForTakeover} {
		if strings.Contains(fmt.Sprint(argv[7:]), `"purpose":"`+purpose+`"`) {
			reply += " " + purpose
		}
	}
	x.replies[reply]++
	if r.Status != Issued && r.Upto == 0 || r.Counters != nil {
		require.Equal(x.t, before, x.redis.Dump(), value)
		return nil
	}
	now, _ := x.plain.Get(context.Background(), counter).Int64()
	require.LessOrEqual(x.t, was, now)
	require.NotZero(x.t, x.redis.TTL(record))
	if r.Count == 0 {
		return nil
	}
	after := r.Last - int64(r.Count)
	require.GreaterOrEqual(x.t, after, x.last[counter], "issued twice")
	require.LessOrEqual(x.t, r.Last, limit)
	if strings.HasSuffix(period, " ledger") {
		require.LessOrEqual(x.t, r.Last, x.ledger[counter])
	}
	if r.Upto > 0 {
		after = r.From
	}
	require.True(x.t, was == 0 || after <= was, "sequences were skipped")
	require.NotZero(x.t, x.redis.TTL(counter))
	x.last[counter] = r.Last
	return nil
}

// compare runs serial.lua with the arguments of a usual request on copies of the keys, but with options for which it
// does not use its usual path. The returned function requires that the request itself has the same result. The run on
// the copies also loads the script into Redis, so the EVALSHA of a usual request never fails with NOSCRIPT here. The
// tests of wire, and TestBehaviour of the root package, run scripts that Redis does not have.
func (x *fixture) compare(counter, record string, script any, argv []any) (check func(reply any)) {
	letters := fmt.Sprint(argv[7:])
	if script == readScript.Digest || script == readScript.Source || strings.Contains(letters, "{") {
		return func(any) {}
	}
	ctx, copies := context.Background(), []string{"counter", "record"}
	result := func(reply any, counter, record string) string {
		content, fields := x.plain.Get(ctx, counter).Val(), x.plain.HGetAll(ctx, record).Val()
		return fmt.Sprint(reply, content, fields, x.redis.TTL(counter), x.redis.TTL(record))
	}
	_ = x.redis.Copy(0, counter, 0, copies[0]) // fails if the key does not exist
	_ = x.redis.Copy(0, record, 0, copies[1])
	options := fmt.Sprintf(`{"all":%t,"far":%t}`, strings.Contains(letters, "a"), strings.Contains(letters, "f"))
	reply := x.plain.Eval(ctx, SerialScript.Source, copies, append(slices.Clone(argv[:7]), options)...).Val()
	want := result(reply, copies[0], copies[1])
	x.plain.Del(ctx, copies...)
	return func(reply any) { require.Equal(x.t, want, result(reply, counter, record)) }
}

func (x *fixture) setClock() {
	if ahead := x.ahead.Load(); ahead != 0 {
		x.redis.SetTime(time.Now().Add(time.Duration(ahead)))
	}
}

// play runs steps, such as "next → 1 opened; sleep 2s; meanwhile next 1s → context deadline exceeded after 1s". What a
// step returns must end with a match of the pattern behind the arrow. See [redistest.EndingWith].
//
//	next TIME                    takes a number, in a context that ends after TIME
//	issue N                      takes N numbers
//	take N                       takes N numbers, if the period is open
//	raise SEQ, takeover SEQ      raises the counter; without SEQ, to the last sequence issued or reserved
//	prepare                      prepares the next period
//	read LABELS                  returns the last sequences of the current period and of others
//	meanwhile STEP, other STEP   runs a step in the background, or in another process
//	type TYPE, request ID        sets the type of the calls, or the ID of their requests
//	grant, lock, run, floor, ledger, print OUTCOMES   sets the next outcomes of such attempts; see fixture.next
//	clock TIME, freeze TIME      sets the difference of the server's clock; freeze also stops it
//	at TIME, sleep TIME          waits until a time of the day, or for a time
//	deny COMMAND                 lets the server refuse a command
//	counter TEXT, delete         sets or deletes the current counter
//	repeat                       sends the last grant again
//	get KEY, granted, gaps       return the content of a key, the options of the last grant, and the reported gaps
//	asked, attempts, …           return how often something has happened; see fixture.do
func (x *fixture) play(steps string) {
	for step := range strings.SplitSeq(steps, "; ") {
		action, want, checked := strings.Cut(step, " →")
		check := func(action string) {
			switch got := x.do(action); {
			case checked && want == "":
				require.Empty(x.t, got, step)
			case checked:
				require.Regexp(x.t, redistest.EndingWith(want), got, step)
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
	counter := x.counter()
	switch word {
	case "at": // sleeps until a time of day
		at, err := time.Parse(time.TimeOnly, rest)
		require.NoError(x.t, err)
		time.Sleep(at.Sub(at.Truncate(24*time.Hour)) - time.Since(time.Now().Truncate(24*time.Hour)))
	case "sleep":
		time.Sleep(duration)
	case "freeze": // stops the clock of the server
		x.redis.SetTime(time.Now().Add(duration))
	case "grant", "lock", "run", "floor", "ledger", "print":
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
	case "deny": // as an ACL does
		x.redis.Deny(rest)
	case "delete":
		x.redis.Del(counter)
	case "counter": // sets today's counter
		require.NoError(x.t, x.redis.Set(counter, rest))
		x.redis.SetTTL(counter, 9*24*time.Hour)
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
		return x.other().do(rest)
	case "take": // several numbers of a period that is open
		return describe(x.call(int(number)).Take(context.Background()))
	case "prepare":
		return describe(x.call(0).Prepare(context.Background(), x))
	case "raise", "takeover": // returns the counter
		if rest == "" { // to the last sequence issued or, for a takeover, reserved
			if number = x.last[counter]; word == ForTakeover {
				number = max(number, x.ledger[counter])
			}
		}
		call, began := x.call(0), time.Now()
		if err := call.Raise(context.Background(), word, number, word == ForRaise); err != nil {
			return fmt.Sprint(err, after(began))
		}
		return x.do("get "+counter) + map[bool]string{true: " lost"}[call.Events.Lost != nil]
	case "read": // the last sequences of today and of other days
		reading, err := x.call(0).History(context.Background(), strings.Fields(rest)...)
		require.NoError(x.t, err)
		return fmt.Sprint(reading.Last)
	case "repeat": // the last grant
		if x.granted != nil {
			x.Client.Do(x.t.Context(), x.granted...)
		}
	case "granted": // the options of the last grant
		return x.granted[len(x.granted)-1].(string)
	case "gaps":
		x.mu.Lock()
		defer x.mu.Unlock()
		return strings.Join(x.gaps, ", ")
	default: // number of events
		events := []string{"asked", "attempts", "checks", "pending", "released", "runs"}
		require.Contains(x.t, events, word)
		x.mu.Lock()
		defer x.mu.Unlock()
		return fmt.Sprint(x.counts[word])
	}
	return ""
}

// counter returns the key of the current counter by the server's clock.
func (x *fixture) counter() string {
	return x.CounterKey(x.typ, x.Calendar.At(time.Now().Add(time.Duration(x.ahead.Load()))).Label)
}

// other returns another process with the same settings.
func (x *fixture) other() *fixture {
	p := x.process(x.t, x.settings)
	p.request, p.token = x.request, ""
	return p
}

// result requests a number with the same four steps as a Generator, and describes the result. limit is the time until
// its context ends, 0 for none.
func (x *fixture) result(limit time.Duration) string {
	ctx, cancel := x.t.Context(), func() {}
	if limit > 0 {
		ctx, cancel = context.WithTimeout(ctx, limit)
	}
	defer cancel()
	call, err := x.NewCall(ctx, x.typ, x.request, 1)
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
	result := fmt.Sprint(n.Last)
	number := fmt.Sprint(call.typ, n.Span.Label, n.Last)
	if !n.Repeated {
		x.mu.Lock()
		twice := x.results[number]
		x.results[number] = true
		x.mu.Unlock()
		require.False(x.t, twice, number)
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
			inBubble(t, s.settings, func(x *fixture) { x.play(s.steps) })
		})
	}
}
