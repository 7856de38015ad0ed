package wire_test

import (
	"bufio"
	"cmp"
	"context"
	"crypto/sha1"
	"encoding/hex"
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

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/dailyserial/serial/internal/race"
	"github.com/dailyserial/serial/internal/redistest"
	"github.com/dailyserial/serial/internal/wire"
)

const timeLimit = 10 * time.Second // of an item

var nodes = []string{"10.0.0.1:6379", "10.0.0.2:6379"} // their addresses

// increment is a script that adds its argument to a counter.
var increment = wire.NewScript("return redis.call('INCRBY', KEYS[1], ARGV[1])")

// A server implements the Redis protocol over in-memory connections, which can buffer any number of commands.
type server struct {
	mu        sync.Mutex
	counters  map[string]int
	scripts   map[string]bool
	pipelines []string      // names of the commands that arrived together, each followed by its key if it has one
	delay     time.Duration // time until the replies are sent
	gate      chan struct{} // nil, or what each pipeline receives from before it gets its replies
	next      []string      // replies to the next commands; see fixture.play
	replicas  int           // replicas that confirm
	noDial    bool          // no connection can be made
	moved     bool          // node 1 of the Cluster has no keys any more, and node 2 has all of them

	silentUntil time.Time // connections that were made earlier get no replies
}

// set changes the server.
func (s *server) set(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
}

// count returns the number of pipelines that have arrived since the last call of arrived.
func (s *server) count() (n int) {
	s.set(func() { n = len(s.pipelines) })
	return n
}

// arrived returns the pipelines that have arrived since the last call, each as one string.
func (s *server) arrived() (all []string) {
	s.set(func() { all, s.pipelines = s.pipelines, nil })
	return all
}

// hold makes the server delay its replies until they are sent by answer, for the oldest pipeline, or by release.
func (s *server) hold() { s.set(func() { s.gate = make(chan struct{}) }) }

func (s *server) answer() {
	s.gate <- struct{}{}
	synctest.Wait()
}

func (s *server) release() {
	gate := s.gate
	s.set(func() { s.gate = nil })
	close(gate)
	synctest.Wait()
}

func (s *server) dial(ctx context.Context, _, addr string) (net.Conn, error) {
	var hang bool
	if s.set(func() { hang = s.noDial }); hang {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	here, there := net.Pipe()
	go s.serve(there, addr)
	return here, nil
}

func (s *server) serve(conn net.Conn, addr string) {
	defer conn.Close()
	made, in := time.Now(), bufio.NewReaderSize(conn, 1<<20)
	for {
		var out, names []string
		for len(out) == 0 || in.Buffered() > 0 {
			cmd, err := readCommand(in)
			if err != nil {
				return
			}
			reply, name := s.run(cmd, addr)
			if out = append(out, reply); name != "" {
				names = append(names, name)
			}
		}
		s.mu.Lock()
		delay, gate, silent := s.delay, s.gate, made.Before(s.silentUntil) || slices.Contains(out, "hangs")
		if len(names) > 0 {
			s.pipelines = append(s.pipelines, strings.Join(names, " "))
		}
		s.mu.Unlock()
		if len(names) > 0 {
			time.Sleep(delay)
			if gate != nil {
				<-gate
			}
		}
		if slices.Contains(out, "lost") {
			time.Sleep(time.Microsecond) // until the client reads
			return
		}
		if !silent {
			if _, err := io.WriteString(conn, strings.Join(out, "\r\n")+"\r\n"); err != nil {
				return
			}
		}
	}
}

func readCommand(in *bufio.Reader) (cmd []string, err error) {
	var words, size int
	_, err = fmt.Fscanf(in, "*%d\r\n", &words)
	for range words {
		_, e := fmt.Fscanf(in, "$%d\r\n", &size)
		word := make([]byte, size+2)
		_, err = io.ReadFull(in, word)
		err = cmp.Or(e, err)
		cmd = append(cmd, string(word[:size]))
	}
	return cmd, err
}

// run runs a command, and returns the reply and the name of the command. The name is "" if go-redis sends the command
// by itself.
func (s *server) run(cmd []string, addr string) (reply, name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch name = cmd[0]; name {
	case "hello":
		return "%1\r\n+proto\r\n:3", ""
	case "asking", "client":
		return "+OK", ""
	case "get":
		return "_", name + ":" + cmd[1]
	case "wait":
		return fmt.Sprint(":", s.replicas), name + ":" + cmd[1]
	}
	if len(s.next) > 0 {
		reply, s.next = s.next[0], s.next[1:]
	}
	if s.moved && addr == nodes[0] {
		reply = "-MOVED 1 " + nodes[1]
	}
	failed := strings.HasPrefix(reply, "-")
	key, by, known := 1, 2, true
	if script := cmd[1]; strings.HasPrefix(name, "eval") {
		if key, by = 3, 4; name == "eval" {
			sum := sha1.Sum([]byte(script))
			script = hex.EncodeToString(sum[:])
		}
		known = name == "eval" && !failed || s.scripts[script]
		s.scripts[script] = known
	}
	name += ":" + cmd[key]
	switch {
	case failed:
		return reply, name
	case !known:
		return "-NOSCRIPT No matching script.", name
	}
	n, _ := strconv.Atoi(cmd[by])
	s.counters[cmd[key]] += n
	return cmp.Or(reply, fmt.Sprint(":", s.counters[cmd[key]])), name
}

// A fixture is a server with a Client that is connected to it.
type fixture struct {
	*server
	*wire.Client
	redis  *redis.Client
	node   *wire.Node
	calls  map[string]*call
	ctx    context.Context // of calls
	cancel context.CancelFunc
	all    sync.WaitGroup // calls in the background
}

type configure = func(*redis.Options, *wire.Replicas)

// inBubble runs f in a synctest bubble. The client then knows the server and has an idle connection, so that callers
// may send their items themselves. Afterwards, no goroutine and no timer of the queue must be left.
func inBubble(t *testing.T, f func(t *testing.T, x *fixture), configure ...configure) {
	t.Helper()
	race.Bubble(t, func(t *testing.T) {
		x := newFixture(t, configure...)
		x.trip(0)
		func() {
			defer func() {
				if x.gate != nil {
					x.release()
				}
				x.all.Wait()
				x.cancel()
			}()
			f(t, x)
		}()
		time.Sleep(time.Minute) // for abandoned commands
		synctest.Wait()
		require.True(t, x.node.Idle())
	})
}

func newFixture(t *testing.T, configure ...configure) *fixture {
	x := &fixture{server: &server{counters: map[string]int{}, scripts: map[string]bool{}}, calls: map[string]*call{}}
	x.ctx, x.cancel = context.WithCancel(t.Context())
	opt := &redis.Options{
		Addr: nodes[0], Dialer: x.dial,
		PoolSize: 1000, // no command waits for a connection: go-redis reuses the timers of such waits in other bubbles
	}
	var replicas wire.Replicas
	for _, f := range configure {
		f(opt, &replicas)
	}
	x.redis = redis.NewClient(opt)
	t.Cleanup(func() { _ = x.redis.Close() })
	x.Client = wire.New(x.redis, replicas, func() any { return "local" })
	x.node = x.Node(t.Context(), "")
	*x.node.MaxPipelines() = wire.MaxInFlight // as over connections of the operating system
	return x
}

// connections limits the number of connections.
func connections(n int) configure {
	return func(opt *redis.Options, _ *wire.Replicas) { opt.PoolSize = n }
}

func oneReplica(_ *redis.Options, replicas *wire.Replicas) {
	*replicas = wire.Replicas{N: 1, Timeout: time.Second}
}

// A call is an item that records the calls of its methods.
type call struct {
	*wire.Item
	args   func(*wire.Item) []any
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

func (c *call) Arguments() []any  { return c.args(c.Item) }
func (c *call) Done()             { c.note("done") }
func (c *call) Leave()            { c.note("leave") }
func (c *call) Lost(error)        { c.note("lost") }
func (c *call) Left(position int) { c.note(fmt.Sprint("left ", position)) }

// newCall returns a call whose script adds the number of its callers to a counter. The key is the name without quotes
// at its end. See [fixture.play] for mods.
func (x *fixture) newCall(name string, mods ...string) *call {
	key := strings.TrimRight(name, "'")
	c := &call{Item: &wire.Item{Script: increment, Deadline: time.Now().Add(timeLimit)}}
	c.Command = c
	c.args = func(i *wire.Item) []any { return []any{nil, nil, 1, key, i.N} }
	for _, mod := range mods {
		d, err := time.ParseDuration(strings.TrimPrefix(mod, "leave="))
		switch {
		case mod == "confirm":
			c.Confirm = true
		case mod == "merge":
			c.Merge = wire.Merge{Name: key}
		case mod == "once":
			c.Repeat = wire.IfUnsent
		case mod == "other":
			c.Script = wire.NewScript("return redis.call('INCRBY', KEYS[1], 1)")
		case mod == "plain":
			c.Script, c.Key = nil, 1
			c.args = func(*wire.Item) []any { return []any{"incrby", key, 1} }
		case mod == "proven":
			c.Repeat = wire.IfProven
		case strings.HasPrefix(mod, "then="):
			c.Then = x.newCall(mod[len("then="):]).Item
		case err != nil:
			panic(mod)
		case strings.HasPrefix(mod, "leave="):
			c.leave = d
		default:
			c.Deadline = time.Now().Add(d)
		}
	}
	x.set(func() { x.calls[name] = c })
	return c
}

// do makes a call, and returns the last number of its item.
func (x *fixture) do(ctx context.Context, c *call) (int, error) {
	item, position, err := x.Do(ctx, x.node, c.Item)
	if err != nil {
		return 0, err
	}
	return number(item, position), item.Result.Err
}

// number returns the number of the caller at a position, 0 if there is none.
func number(item *wire.Item, position int) int {
	last, _ := item.Result.Value.(int64)
	return max(0, int(last)-(item.N-1-position))
}

// queue starts a call for each name without waiting for their results.
func (x *fixture) queue(names ...string) {
	for _, name := range names {
		x.start(name)
		synctest.Wait()
	}
}

func (x *fixture) start(name string, mods ...string) {
	x.Start(context.Background(), x.node, x.newCall(name, mods...).Item)
}

// trip makes a call whose round trip takes d.
func (x *fixture) trip(d time.Duration) {
	x.set(func() { x.delay = d })
	_, _ = x.do(context.Background(), x.newCall("trip", "merge"))
	x.set(func() { x.delay = 0 })
	synctest.Wait() // until the pipeline has given its slot back
	x.arrived()
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
// step has no result, the pipelines that arrived since the last arrow, separated by slashes.
//
//	hold, answer, release   the server holds its replies; see server
//	occupy                  holds, and starts a call "first", which occupies the only slot
//	call NAME MODS          makes a call whose context can end; a mod is a time limit or, with "leave=", the time until
//	                        the context ends; "then=" has the name of a follower; the others are fields of the item
//	alone NAME MODS         makes a call whose context cannot end
//	go CALL                 makes a call in the background
//	start NAME MODS         starts a call, and queue NAMES several ones
//	count                   returns the number of pipelines that arrived since the last arrow
//	item NAME               returns the result of a call that has ended, and what happened
//	reply REPLIES           sets the replies to the next commands, separated by commas: success, lost (the command runs,
//	                        but the connection closes), hangs (it runs, but there is no reply) or an error; with a number
//	                        for several equal ones
//	hook FAULTS             adds a hook that fails; see fixture.fail
//	move                    moves all keys to the other node
func (x *fixture) play(t *testing.T, steps string) {
	for step := range strings.SplitSeq(steps, "; ") {
		action, want, checked := strings.Cut(step, " →")
		check := func(action string) {
			got, pattern := x.step(t, action), strings.TrimPrefix(want, " ")+"$"
			switch {
			case checked && got != "":
				require.Regexp(t, `(^|\W)`+pattern, got, step)
			case checked:
				require.Regexp(t, "^"+pattern, strings.ReplaceAll(strings.Join(x.arrived(), " / "), "evalsha:", ""), step)
			}
		}
		if action, background := strings.CutPrefix(action, "go "); background {
			x.all.Go(func() { check(action) })
		} else {
			check(action)
		}
		synctest.Wait()
	}
}

// step runs a step. It returns the result, if there is one.
func (x *fixture) step(t *testing.T, action string) (result string) {
	word, rest, _ := strings.Cut(action, " ")
	name, more, _ := strings.Cut(rest, " ")
	mods := strings.Fields(more)
	d, _ := time.ParseDuration(name)
	n, _ := strconv.Atoi(name)
	switch word {
	case "alone":
		return x.call(context.Background(), name, mods)
	case "call":
		return x.call(x.ctx, name, mods)
	case "answer":
		x.answer()
	case "count":
		return fmt.Sprint(x.count())
	case "cancel": // ends the contexts of all calls
		x.cancel()
	case "delay":
		x.set(func() { x.delay = d })
	case "hold":
		x.hold()
	case "hook":
		x.fail(strings.Split(rest, ", "))
	case "item":
		c := x.calls[name]
		return c.result(max(number(c.Item, c.N-1), 0), c.Result.Err, 0)
	case "join":
		item, position, err := x.Join(x.ctx, x.node, wire.Merge{Name: name}, time.Now().Add(timeLimit))
		if item == nil {
			return "nothing"
		}
		require.NoError(t, err)
		return fmt.Sprint(number(item, position))
	case "most":
		*x.node.MaxPipelines() = n
	case "move":
		x.set(func() { x.moved = true })
	case "occupy":
		x.hold()
		x.queue("first")
		x.arrived()
	case "release":
		x.release()
	case "replicas":
		x.set(func() { x.replicas = n })
	case "reply":
		x.plan(rest)
	case "restart":
		x.set(func() { clear(x.scripts) })
	case "sleep":
		time.Sleep(d)
	case "start":
		x.start(name, mods...)
	case "together":
		*x.node.Together() = n
	case "trip":
		x.trip(d)
	case "queue":
		x.queue(strings.Fields(rest)...)
	case "undialable": // no connection can be made
		x.set(func() { x.noDial = true })
	default:
		require.Equal(t, "sent", word)
	}
	return ""
}

// call makes a call, and describes the result.
func (x *fixture) call(ctx context.Context, name string, mods []string) (result string) {
	c, began := x.newCall(name, mods...), time.Now()
	defer func() {
		if p := recover(); p != nil {
			result = c.result(0, fmt.Errorf("panic: %v", p), 0)
		}
	}()
	if c.leave > 0 {
		left, cancel := context.WithTimeout(ctx, c.leave)
		defer cancel()
		ctx = left
	}
	n, err := x.do(ctx, c)
	if err != nil && ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded) {
		panic("that of an internal context")
	}
	result = c.result(n, err, time.Since(began))
	if c.Then != nil {
		_ = c.Then.Wait(ctx)
	}
	return result
}

// result describes the result of a caller: its number or error; whether an earlier attempt may have run; why replicas
// did not confirm the item; the duration, which is rounded if it has a random part; and what happened.
func (c *call) result(number int, err error, took time.Duration) string {
	text := fmt.Sprint(number)
	if err != nil {
		text = err.Error()
	}
	c.mu.Lock()
	events := strings.Join(c.events, ", ")
	c.mu.Unlock()
	if ended := strings.Contains(events, "done"); ended && c.Result.Earlier != nil {
		text += ", earlier"
	} else if ended && c.Result.Unconfirmed != nil {
		text += ", " + c.Result.Unconfirmed.Error()
	}
	switch rounded := took.Round(time.Second / 2); {
	case took == 0:
	case took%time.Millisecond == 0:
		text += fmt.Sprint(", after ", took)
	case rounded == 0:
		text += ", soon"
	default:
		text += fmt.Sprint(", after about ", rounded)
	}
	if events != "" && events != "done" {
		text += ": " + events
	}
	return text
}

// plan sets the replies to the next commands.
func (s *server) plan(replies string) {
	var all []string
	for reply := range strings.SplitSeq(replies, ", ") {
		number, text, _ := strings.Cut(reply, " ")
		n, err := strconv.Atoi(number)
		if err != nil {
			n, text = 1, reply
		}
		switch text {
		case "success":
			text = ""
		case "lost", "hangs":
		default:
			text = "-" + text
		}
		all = append(all, slices.Repeat([]string{text}, n)...)
	}
	s.set(func() { s.next = all })
}

// addHook adds a hook for each command and each pipeline, except those that set up a new connection.
func (x *fixture) addHook(hook func(ctx context.Context, cmds []redis.Cmder, send func() error) error) {
	x.redis.AddHook(redistest.Hook(func(ctx context.Context, cmds []redis.Cmder, next redis.ProcessPipelineHook) error {
		send := func() error { return next(ctx, cmds) }
		if name := cmds[0].Name(); name == "hello" || name == "client" {
			return send()
		}
		return hook(ctx, cmds, send)
	}))
}

// fail adds a hook that has one of the faults after the other, and then always the last one.
func (x *fixture) fail(faults []string) {
	x.addHook(func(ctx context.Context, _ []redis.Cmder, send func() error) error {
		fault := faults[0]
		faults = faults[min(1, len(faults)-1):]
		switch fault {
		case "success":
			return send()
		case "EOF":
			return io.EOF
		case "late":
			_ = send()
			return context.DeadlineExceeded
		case "panic", "exit":
			_ = send()
			if fault == "exit" {
				runtime.Goexit()
			}
			panic("hook")
		case "slow":
			time.Sleep(7 * time.Second)
			return send()
		}
		<-ctx.Done()
		if fault == "network" {
			return &net.OpError{Op: "read", Err: context.DeadlineExceeded}
		}
		return ctx.Err()
	})
}
