package wire_test

import (
	"bufio"
	"context"
	"crypto/sha1"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
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

// increment is a script that adds its argument to a counter.
var increment = wire.NewScript("return redis.call('INCRBY', KEYS[1], ARGV[1])")

// Replies of a server, besides errors.
const (
	lost  fate = "lost"  // the command runs, but the connection closes
	hangs fate = "hangs" // the command runs, but there is no reply
)

type fate string

// A server implements the Redis protocol over in-memory connections, which can buffer any number of commands.
type server struct {
	mu        sync.Mutex
	counters  map[string]int
	scripts   map[string]bool
	pipelines []string      // names of the commands that arrived together, each followed by its key if it has one
	delay     time.Duration // time until the replies are sent
	gate      chan struct{} // nil, or what each pipeline receives from before it gets its replies
	next      []any         // replies to the next commands: an error, a fate, or nil for the usual reply
	replicas  int           // replicas that confirm
	noDial    bool          // no connection can be made

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

func (s *server) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	var hang bool
	if s.set(func() { hang = s.noDial }); hang {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	here, there := net.Pipe()
	go s.serve(there)
	return here, nil
}

func (s *server) serve(conn net.Conn) {
	defer conn.Close()
	made := time.Now()
	in := bufio.NewReaderSize(conn, 1<<20)
	var out, batch []string
	var end fate
	for {
		cmd, err := readCommand(in)
		if err != nil {
			return
		}
		reply, name := s.run(cmd)
		if name != "" {
			batch = append(batch, name)
		}
		if f, ok := reply.(fate); ok {
			end = f
		}
		if out = append(out, encode(reply)); in.Buffered() > 0 {
			continue
		}
		s.mu.Lock()
		delay, gate, silent := s.delay, s.gate, made.Before(s.silentUntil) || end == hangs
		if len(batch) > 0 {
			s.pipelines = append(s.pipelines, strings.Join(batch, " "))
		}
		s.mu.Unlock()
		if len(batch) > 0 {
			time.Sleep(delay)
			if gate != nil {
				<-gate
			}
		}
		if end == lost {
			time.Sleep(time.Microsecond) // until the client reads
			return
		}
		if !silent {
			if _, err := io.WriteString(conn, strings.Join(out, "")); err != nil {
				return
			}
		}
		out, batch, end = nil, nil, ""
	}
}

func readCommand(in *bufio.Reader) (cmd []string, err error) {
	size := func(prefix string) int {
		line, e := in.ReadString('\n')
		err = errors.Join(err, e)
		n, _ := strconv.Atoi(strings.TrimPrefix(strings.TrimSpace(line), prefix))
		return n
	}
	for range size("*") {
		word := make([]byte, size("$")+2)
		if _, e := io.ReadFull(in, word); e != nil {
			return nil, e
		}
		cmd = append(cmd, string(word[:len(word)-2]))
	}
	return cmd, err
}

// run runs a command, and returns the reply and the name of the command. The name is "" if go-redis sends the command
// on a new connection.
func (s *server) run(cmd []string) (reply any, name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch name = cmd[0]; name {
	case "hello":
		return "%1\r\n+proto\r\n:3", ""
	case "client":
		return "+OK", ""
	case "wait":
		return s.replicas, name + ":" + cmd[1]
	}
	if len(s.next) > 0 {
		reply, s.next = s.next[0], s.next[1:]
	}
	_, failed := reply.(error)
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
	case failed, cmd[0] == "get":
		return reply, name
	case !known:
		return errors.New("NOSCRIPT No matching script."), name
	}
	n, _ := strconv.Atoi(cmd[by])
	if s.counters[cmd[key]] += n; reply != nil {
		return reply, name
	}
	return s.counters[cmd[key]], name
}

func encode(reply any) string {
	switch reply := reply.(type) {
	case int:
		return fmt.Sprintf(":%d\r\n", reply)
	case string:
		return reply + "\r\n"
	case error:
		return "-" + reply.Error() + "\r\n"
	}
	return "_\r\n"
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

// inBubble runs f in a synctest bubble. The client then knows the server and has an idle connection, so that callers
// may send their items themselves. Afterwards, no goroutine and no timer of the queue must be left.
func inBubble(t *testing.T, f func(t *testing.T, x *fixture), configure ...func(*redis.Options, *wire.Replicas)) {
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

func newFixture(t *testing.T, configure ...func(*redis.Options, *wire.Replicas)) *fixture {
	x := &fixture{server: &server{counters: map[string]int{}, scripts: map[string]bool{}}, calls: map[string]*call{}}
	x.ctx, x.cancel = context.WithCancel(t.Context())
	opt := &redis.Options{
		Addr: "127.0.0.1:6379", Dialer: x.dial,
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
	x.node.SetMaxPipelines(wire.MaxInFlight) // as over connections of the operating system
	return x
}

// connections limits the number of connections.
func connections(n int) func(*redis.Options, *wire.Replicas) {
	return func(opt *redis.Options, _ *wire.Replicas) { opt.PoolSize = n }
}

func oneReplica(_ *redis.Options, replicas *wire.Replicas) {
	*replicas = wire.Replicas{N: 1, Timeout: time.Second}
}

// A call is an item that records the calls of its methods.
type call struct {
	*wire.Item
	args   func(*wire.Item) []any
	mu     sync.Mutex
	events []string
}

// happened returns the methods that were called, in order.
func (c *call) happened() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return strings.Join(c.events, ", ")
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
func newCall(name string, mods ...string) *call {
	key := strings.TrimRight(name, "'")
	c := &call{Item: &wire.Item{Script: increment, Deadline: time.Now().Add(timeLimit)}}
	c.Command = c
	c.args = func(i *wire.Item) []any { return []any{nil, nil, 1, key, i.N} }
	for _, mod := range mods {
		switch mod {
		case "confirm":
			c.Confirm = true
		case "merge":
			c.Merge = wire.Merge{Name: key}
		case "once":
			c.Repeat = wire.IfUnsent
		case "other":
			c.Script = wire.NewScript("return redis.call('INCRBY', KEYS[1], 1)")
		case "plain":
			c.Script, c.Key = nil, 1
			c.args = func(*wire.Item) []any { return []any{"incrby", key, 1} }
		case "proven":
			c.Repeat = wire.IfProven
		default:
			if d, err := time.ParseDuration(mod); err == nil {
				c.Deadline = time.Now().Add(d)
			} else if mod != "" && !strings.Contains(mod, "=") {
				panic(mod)
			}
		}
	}
	return c
}

// do makes a call, and returns the last number of its item.
func (x *fixture) do(ctx context.Context, c *call) (int, error) {
	item, place, err := x.Do(ctx, x.node, c.Item)
	if err != nil {
		return 0, err
	}
	last, _ := item.Result.Value.(int64)
	return int(last) - (item.N - 1 - place), item.Result.Err
}

// take takes one number.
func (x *fixture) take(ctx context.Context, key string) (int, error) {
	return x.do(ctx, newCall(key, "merge"))
}

// queue starts a call for each name without waiting for their results.
func (x *fixture) queue(names ...string) {
	for _, name := range names {
		x.calls[name] = newCall(name)
		x.Start(context.Background(), x.node, x.calls[name].Item)
		synctest.Wait()
	}
}

// keys returns n different keys.
func keys(n int) (all []string) {
	for i := range n {
		all = append(all, fmt.Sprint("k", i))
	}
	return all
}

// trip makes a call whose round trip takes d.
func (x *fixture) trip(d time.Duration) {
	x.set(func() { x.delay = d })
	_, _ = x.take(context.Background(), "trip")
	x.set(func() { x.delay = 0 })
	synctest.Wait() // until the pipeline has given its slot back
	x.arrived()
}

func playAll(t *testing.T, scenarios map[string]string, configure ...func(*redis.Options, *wire.Replicas)) {
	t.Helper()
	for name, steps := range scenarios {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, x *fixture) { x.play(t, steps) }, configure...)
		})
	}
}

// play runs steps such as "hold; queue a b; sleep 5ms; answer → a b". Behind an arrow are the pipelines that arrived
// since the last arrow, separated by slashes, or the end of a result.
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
//	reply REPLIES           sets the replies to the next commands, separated by commas: success, lost, hangs or an error,
//	                        with a number for several equal ones
func (x *fixture) play(t *testing.T, steps string) {
	for step := range strings.SplitSeq(steps, "; ") {
		action, want, checked := strings.Cut(step, " →")
		check := func(action string) {
			got, isResult := x.step(t, action)
			pattern := strings.TrimPrefix(want, " ") + "$"
			switch {
			case checked && isResult:
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
func (x *fixture) step(t *testing.T, action string) (result string, isResult bool) {
	word, rest, _ := strings.Cut(action, " ")
	names := append(strings.Fields(rest), "")
	name, mods := names[0], names[1:]
	d, _ := time.ParseDuration(name)
	n, _ := strconv.Atoi(name)
	switch word {
	case "answer":
		x.answer()
	case "count":
		return fmt.Sprint(x.count()), true
	case "cancel": // ends the contexts of all calls
		x.cancel()
	case "delay":
		x.set(func() { x.delay = d })
	case "hold":
		x.hold()
	case "occupy":
		x.hold()
		x.queue("first")
		x.arrived()
	case "join":
		item, position, err := x.Join(x.ctx, x.node, wire.Merge{Name: name}, time.Now().Add(timeLimit))
		if item == nil {
			return "nothing", true
		}
		require.NoError(t, err)
		return fmt.Sprint(int(item.Result.Value.(int64)) - (item.N - 1 - position)), true
	case "most":
		x.node.SetMaxPipelines(n)
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
	case "together":
		x.node.SetTogether(n)
	case "trip":
		x.trip(d)
	case "queue":
		x.queue(names[:len(names)-1]...)
	case "start":
		x.calls[name] = newCall(name, mods...)
		x.Start(context.Background(), x.node, x.calls[name].Item)
	case "item":
		c := x.calls[name]
		return c.result(int(c.value()), c.Result.Err, 0), true
	case "alone", "call":
		ctx, cancel := context.Background(), func() {}
		if word == "call" {
			ctx = x.ctx
		}
		c, began := newCall(name, mods...), time.Now()
		x.set(func() { x.calls[name] = c })
		for _, mod := range mods {
			if then, found := strings.CutPrefix(mod, "then="); found {
				x.calls[then] = newCall(then)
				c.Then = x.calls[then].Item
			} else if limit, found := strings.CutPrefix(mod, "leave="); found {
				d, _ := time.ParseDuration(limit)
				ctx, cancel = context.WithTimeout(ctx, d)
			}
		}
		defer cancel()
		number, err := x.do(ctx, c)
		if err != nil && ctx.Err() == nil {
			require.NotErrorIs(t, err, context.DeadlineExceeded, "that of an internal context")
		}
		result = c.result(number, err, time.Since(began))
		if c.Then != nil {
			_ = c.Then.Wait(ctx)
		}
		return result, true
	default:
		require.Equal(t, "sent", word)
	}
	return "", false
}

func (c *call) value() int64 {
	value, _ := c.Result.Value.(int64)
	return value
}

// result describes the result of a caller: its number or error; whether an earlier attempt may have run; why replicas
// did not confirm the item; the duration, which is rounded if it has a random part; and what happened.
func (c *call) result(number int, err error, took time.Duration) string {
	text := fmt.Sprint(number)
	if err != nil {
		text = err.Error()
	}
	events := c.happened()
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
	var all []any
	for reply := range strings.SplitSeq(replies, ", ") {
		n := 1
		if number, text, found := strings.Cut(reply, " "); found {
			if many, err := strconv.Atoi(number); err == nil {
				n, reply = many, text
			}
		}
		for range n {
			switch reply {
			case "success":
				all = append(all, nil)
			case "lost", "hangs":
				all = append(all, fate(reply))
			default:
				all = append(all, errors.New(reply))
			}
		}
	}
	s.set(func() { s.next = all })
}

// errOf returns the error of a call.
func errOf[T any](_ T, err error) error { return err }

// contexts returns a context that cannot end, so that the caller may send its item itself, and one that can end.
func contexts(t *testing.T) []context.Context {
	return []context.Context{context.Background(), t.Context()}
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
