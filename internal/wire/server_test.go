package wire_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2/server"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/dailyserial/serial/internal/race"
	"github.com/dailyserial/serial/internal/redistest"
	"github.com/dailyserial/serial/internal/redistest/memory"
	"github.com/dailyserial/serial/internal/wire"
)

const timeLimit = 10 * time.Second // of an item

// increment is a script that adds its argument to a counter.
var increment = wire.NewScript("return redis.call('INCRBY', KEYS[1], ARGV[1])")

// A fixture is a Client with a Redis in memory.
type fixture struct {
	*wire.Client
	server *memory.Redis
	redis  *redis.Client
	node   *wire.Node
	all    sync.WaitGroup // calls in the background

	mu          sync.Mutex // guards the fields below
	calls       map[string]*call
	pipelines   []string              // pipelines that were sent, each as the names of its commands
	delay       time.Duration         // time until a reply reaches the client
	gate        chan struct{}         // nil, or what each pipeline receives from before its replies reach the client
	replies     []string              // replies to the next commands; see play
	replicas    int                   // replicas that confirm
	silentUntil time.Time             // connections that are used earlier never get replies
	silent      map[*server.Peer]bool // these connections
}

type configure = func(*redis.Options, *wire.Replicas)

// connections limits the number of connections.
func connections(n int) configure {
	return func(opt *redis.Options, _ *wire.Replicas) { opt.PoolSize = n }
}

func oneReplica(_ *redis.Options, replicas *wire.Replicas) {
	*replicas = wire.Replicas{N: 1, Timeout: time.Second}
}

// inBubble runs f in a synctest bubble. The client then knows the server and has an idle connection, so that callers
// may send their items themselves. Afterwards, no goroutine and no timer of the queue must be left.
func inBubble(t *testing.T, f func(t *testing.T, x *fixture), configure ...configure) {
	t.Helper()
	race.Bubble(t, func(t *testing.T) {
		x := newFixture(t, configure...)
		x.play(t, "trip 0s")
		defer func() {
			x.release()
			x.all.Wait()
			time.Sleep(time.Minute) // for abandoned commands
			synctest.Wait()
			require.True(t, x.node.Idle())
		}()
		f(t, x)
	})
}

func newFixture(t *testing.T, configure ...configure) *fixture {
	x := &fixture{server: memory.Start(t), calls: map[string]*call{}, silent: map[*server.Peer]bool{}}
	x.server.Server().SetPreHook(x.reply)
	opt := &redis.Options{
		Addr: "10.0.0.1:6379", Dialer: x.dial,
		PoolSize: 1000, // no command waits for a connection: go-redis reuses the timers of such waits in other bubbles
	}
	var replicas wire.Replicas
	for _, f := range configure {
		f(opt, &replicas)
	}
	x.redis = redis.NewClient(opt)
	t.Cleanup(func() { _ = x.redis.Close() })
	x.watch(x.redis)
	x.Client = wire.New(x.redis, replicas, func() any { return "local" })
	x.node = x.Node(t.Context(), "")
	*x.node.MaxPipelines() = wire.MaxInFlight // as over connections of the operating system
	return x
}

func (x *fixture) dial(context.Context, string, string) (net.Conn, error) { return x.server.Dial() }

// reply is called by the server for each command. It returns true if the server must not run the command.
func (x *fixture) reply(c *server.Peer, cmd string, _ ...string) (replied bool) {
	x.mu.Lock()
	if time.Now().Before(x.silentUntil) {
		x.silent[c] = true
	}
	reply := "success"
	switch {
	case x.silent[c]:
		reply = "hangs"
	case cmd == "WAIT":
		reply = fmt.Sprint(x.replicas)
	case cmd == "ASKING":
		reply = "0"
	case slices.Contains([]string{"EVAL", "EVALSHA", "INCR"}, cmd) && len(x.replies) > 0: // not INCRBY in the script
		reply, x.replies = x.replies[0], x.replies[1:]
	}
	x.mu.Unlock()
	n, err := strconv.Atoi(reply)
	switch {
	case reply == "success":
		return false
	case reply == "lost":
		time.Sleep(time.Microsecond) // until the client reads
		c.Close()
	case reply == "null":
		c.WriteNull()
	case err == nil:
		c.WriteInt(n)
	case reply != "hangs":
		c.WriteError(reply)
	}
	return true
}

// addHook adds a hook for each command and each pipeline, except those that set up a new connection.
func addHook(client *redis.Client, hook func(ctx context.Context, cmds []redis.Cmder, send func() error) error) {
	client.AddHook(redistest.Hook(func(ctx context.Context, cmds []redis.Cmder, next redis.ProcessPipelineHook) error {
		send := func() error { return next(ctx, cmds) }
		if name := cmds[0].Name(); name == "hello" || name == "client" {
			return send()
		}
		return hook(ctx, cmds, send)
	}))
}

// watch records the pipelines of a client, and delays their replies.
func (x *fixture) watch(client *redis.Client) {
	addHook(client, func(_ context.Context, cmds []redis.Cmder, send func() error) error {
		var names []string
		for _, cmd := range cmds {
			switch args := cmd.Args(); cmd.Name() {
			case "evalsha":
				names = append(names, args[3].(string))
			case "eval":
				names = append(names, "eval:"+args[3].(string))
			case "incr", "wait":
				names = append(names, fmt.Sprint(args[0], ":", args[1]))
			}
		}
		x.mu.Lock()
		x.pipelines = append(x.pipelines, strings.Join(names, " "))
		delay, gate := x.delay, x.gate
		x.mu.Unlock()
		err := send()
		time.Sleep(delay)
		if gate != nil {
			<-gate
		}
		return err
	})
}

// set changes the fixture.
func (x *fixture) set(f func()) {
	x.mu.Lock()
	defer x.mu.Unlock()
	f()
}

// arrived returns the pipelines that were sent since the last call.
func (x *fixture) arrived() (all []string) {
	x.set(func() { all, x.pipelines = x.pipelines, nil })
	return all
}

// release lets all replies reach the client.
func (x *fixture) release() {
	if gate := x.gate; gate != nil {
		x.set(func() { x.gate = nil })
		close(gate)
	}
}

// A call is an item that records the calls of its methods.
type call struct {
	*wire.Item
	key    string
	leave  time.Duration // time until the context of the caller ends, or 0
	mu     sync.Mutex
	events []string
}

func (c *call) note(event string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.events = append(c.events, event)
}

// These methods implement [wire.Command].

func (c *call) Arguments() []any {
	if c.Script == nil {
		return []any{"incr", c.key}
	}
	return []any{nil, nil, 1, c.key, c.N}
}

func (c *call) Done()             { c.note("done") }
func (c *call) Leave()            { c.note("leave") }
func (c *call) Lost(error)        { c.note("lost") }
func (c *call) Left(position int) { c.note(fmt.Sprint("left ", position)) }

// mods are the modifications of calls that have no value; see [fixture.play].
var mods = map[string]func(*call){
	"confirm": func(c *call) { c.Confirm = true },
	"merge":   func(c *call) { c.Merge = wire.Merge{Name: c.key} },
	"once":    func(c *call) { c.Repeat = wire.IfUnsent },
	"other":   func(c *call) { c.Script = wire.NewScript("return redis.call('INCRBY', KEYS[1], 1)") },
	"plain":   func(c *call) { c.Script, c.Key = nil, 1 },
	"proven":  func(c *call) { c.Repeat = wire.IfProven },
}

// newCall returns a call. The description is a name and mods, separated by colons. The script of the call adds the
// number of its callers to a counter. The key is the name without quotes at its end.
func (x *fixture) newCall(description string) *call {
	words := strings.Split(description, ":")
	c := &call{Item: &wire.Item{Script: increment}, key: strings.TrimRight(words[0], "'")}
	c.Command, c.Deadline = c, time.Now().Add(timeLimit)
	for _, word := range words[1:] {
		name, value, _ := strings.Cut(word, "=")
		d, err := time.ParseDuration(cmp.Or(value, word))
		switch {
		case mods[word] != nil:
			mods[word](c)
		case name == "then":
			c.Then = x.newCall(value).Item
		case err != nil:
			panic(err)
		case name == "leave":
			c.leave = d
		default:
			c.Deadline = time.Now().Add(d)
		}
	}
	x.set(func() { x.calls[words[0]] = c })
	return c
}

// queue starts a call without waiting for its result.
func (x *fixture) queue(description string) {
	x.Start(context.Background(), x.node, x.newCall(description).Item)
	synctest.Wait()
}

// call makes a call, and describes the result.
func (x *fixture) call(ctx context.Context, description string) (result string) {
	c, began := x.newCall(description), time.Now()
	defer func() {
		if p := recover(); p != nil {
			result = c.result(nil, 0, fmt.Errorf("panic: %v", p), 0)
		}
	}()
	if c.leave > 0 {
		left, cancel := context.WithTimeout(ctx, c.leave)
		defer cancel()
		ctx = left
	}
	item, position, err := x.Do(ctx, x.node, c.Item)
	if err == nil {
		err = item.Result.Err
	} else if ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded) {
		panic("the call returned the error of an internal context")
	}
	result = c.result(item, position, err, time.Since(began))
	if c.Then != nil {
		_ = c.Then.Wait(ctx)
	}
	return result
}

// result describes the result of the caller at a position of an item: its number or error; whether an earlier attempt
// may have run; why replicas did not confirm the item; the duration; and what happened to the item.
func (c *call) result(item *wire.Item, position int, err error, took time.Duration) (text string) {
	if err != nil {
		text = err.Error()
	} else if last, ok := item.Result.Value.(int64); ok {
		text = fmt.Sprint(int(last) - (item.N - 1 - position))
	} else {
		text = fmt.Sprint(item.Result.Value)
	}
	c.mu.Lock()
	events := strings.Join(c.events, ", ")
	c.mu.Unlock()
	if ended := strings.Contains(events, "done"); ended && c.Result.Earlier != nil {
		text += ", earlier"
	} else if ended && c.Result.Unconfirmed != nil {
		text += ", " + c.Result.Unconfirmed.Error()
	}
	if took > 0 {
		text += fmt.Sprint(", after ", took.Round(time.Millisecond))
	}
	if events != "" && events != "done" {
		text += ": " + events
	}
	return text
}

func playAll(t *testing.T, scenarios map[string]string, configure ...configure) {
	t.Helper()
	for name, steps := range scenarios {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, x *fixture) { x.play(t, steps) }, configure...)
		})
	}
}

// play runs steps such as "hold; queue a b; sleep 5ms; answer → a b". Behind an arrow is the end of a result or, if the
// step has no result, the pipelines that were sent since the last arrow, separated by slashes.
//
//	hold, answer, release   no reply reaches the client; those of the oldest pipeline do; all do
//	occupy                  holds, and starts a call "first", which occupies the only slot
//	call NAME:MODS          makes a call whose context can end; a mod is a time limit or, with "leave=", the time until
//	                        the context ends; "then=" has the name of a follower; the others are fields of the item
//	alone NAME:MODS         makes a call whose context cannot end
//	go CALL                 makes a call in the background
//	queue NAME:MODS …       starts calls without waiting for their results
//	trip DURATION           makes a call with this round-trip time
//	count                   returns the number of pipelines that were sent since the last arrow
//	item NAME               returns the result of a call that has ended, and what happened
//	reply REPLIES           sets the replies to the next commands, separated by commas: success, null, lost (the
//	                        connection closes), hangs (there is no reply) or an error, after a number if there are several
//	hook FAULTS             adds a hook that fails; see fixture.fail
//	set NAME NUMBER         sets a limit of the node, or the number of replicas
//	delay DURATION          delays the replies
//	sleep DURATION          waits
//	sent                    has no result, so the arrow shows the pipelines
func (x *fixture) play(t *testing.T, steps string) {
	for step := range strings.SplitSeq(steps, "; ") {
		action, want, checked := strings.Cut(step, " →")
		action, background := strings.CutPrefix(action, "go ")
		check := func() {
			switch got := x.step(t, action); {
			case checked && got == "":
				synctest.Wait()
				require.Regexp(t, "^("+strings.TrimPrefix(want, " ")+")$", strings.Join(x.arrived(), " / "), step)
			case checked:
				require.Regexp(t, redistest.EndingWith(want), got, step)
			}
		}
		if background {
			x.all.Go(check)
		} else {
			check()
		}
		synctest.Wait()
	}
}

// step runs a step. It returns the result, if there is one.
func (x *fixture) step(t *testing.T, action string) (result string) {
	word, rest, _ := strings.Cut(action, " ")
	d, err := time.ParseDuration(rest)
	switch word {
	case "delay", "sleep":
		require.NoError(t, err)
	}
	switch word {
	case "alone":
		return x.call(context.Background(), rest)
	case "answer":
		x.gate <- struct{}{}
	case "call":
		return x.call(t.Context(), rest)
	case "count":
		x.set(func() { result = fmt.Sprint(len(x.pipelines)) })
	case "delay":
		x.set(func() { x.delay = d })
	case "hold", "occupy":
		x.set(func() { x.gate = make(chan struct{}) })
		if word == "occupy" {
			x.queue("first")
			x.arrived()
		}
	case "hook":
		x.fail(strings.Split(rest, ", "))
	case "item":
		c := x.calls[rest]
		return c.result(c.Item, c.N-1, c.Result.Err, 0)
	case "queue":
		for _, description := range strings.Fields(rest) {
			x.queue(description)
		}
	case "release":
		x.release()
	case "reply":
		for _, reply := range strings.Split(rest, ", ") {
			number, text, _ := strings.Cut(reply, " ")
			n, err := strconv.Atoi(number)
			if err != nil {
				n, text = 1, reply
			}
			x.set(func() { x.replies = append(x.replies, slices.Repeat([]string{text}, n)...) })
		}
	case "set":
		name, value, _ := strings.Cut(rest, " ")
		n, _ := strconv.Atoi(value)
		*map[string]*int{"most": x.node.MaxPipelines(), "together": x.node.Together(), "replicas": &x.replicas}[name] = n
	case "sleep":
		time.Sleep(d)
	case "trip":
		x.play(t, "delay "+rest+"; alone trip; delay 0s; sent → .*")
	default:
		require.Equal(t, "sent", word)
	}
	return result
}

// fail adds a hook that has one of the faults after the other, and then always the last one.
func (x *fixture) fail(faults []string) {
	addHook(x.redis, func(ctx context.Context, _ []redis.Cmder, send func() error) error {
		fault := faults[0]
		faults = faults[min(1, len(faults)-1):]
		switch fault {
		case "EOF":
			return io.EOF
		case "network":
			<-ctx.Done()
			return &net.OpError{Op: "read", Err: context.DeadlineExceeded}
		case "no connection":
			<-ctx.Done()
			return ctx.Err()
		}
		err := send()
		switch fault {
		case "exit":
			runtime.Goexit()
		case "late":
			return context.DeadlineExceeded
		case "panic":
			panic("hook")
		case "success":
		default:
			panic("unknown fault: " + fault)
		}
		return err
	})
}
