package wire_test

import (
	"bufio"
	"context"
	"crypto/sha1"
	"encoding/hex"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/dailyserial/serial/internal/race"
	"github.com/dailyserial/serial/internal/wire"
)

const timeLimit = 10 * time.Second // of an item

// increment is a script that adds its argument to a counter.
var increment = wire.NewScript("return redis.call('INCRBY', KEYS[1], ARGV[1])")

// A server implements the Redis protocol over in-memory connections, which can buffer any number of commands.
type server struct {
	mu         sync.Mutex
	counters   map[string]int
	scripts    map[string]bool
	pipelines  [][]string // names of the commands that arrived together, each followed by its key if it has one
	times      []time.Time
	delay      time.Duration                  // time until the answers are sent
	gate       chan struct{}                  // nil, or what each pipeline receives from before it is answered
	on         func(cmd []string) (reply any) // overrides the answer if it is not nil
	replicas   int                            // replicas that confirm
	dials      int
	silent     int  // connections up to this one get no answers
	loseAnswer bool // the next connection that has answers closes instead
	noDial     bool // no connection can be made
}

func newServer() *server {
	return &server{counters: map[string]int{}, scripts: map[string]bool{}}
}

// set changes the server.
func (s *server) set(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
}

func (s *server) counter(key string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.counters[key]
}

// arrived returns the pipelines that have arrived since the last call, each as one string.
func (s *server) arrived() (all []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.pipelines {
		all = append(all, strings.Join(p, " "))
	}
	s.pipelines, s.times = nil, nil
	return all
}

// hold makes the server delay its replies. Each call of answer sends the replies to the oldest pipeline, and release
// sends all replies.
func (s *server) hold() (answer, release func()) {
	gate := make(chan struct{})
	s.set(func() { s.gate = gate })
	answer = func() {
		gate <- struct{}{}
		synctest.Wait()
	}
	release = func() {
		s.set(func() { s.gate = nil })
		close(gate)
		synctest.Wait()
	}
	return answer, release
}

// count returns the number of pipelines that have arrived since the last call of arrived.
func (s *server) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.pipelines)
}

func (s *server) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	s.mu.Lock()
	hang := s.noDial
	s.dials++
	number := s.dials
	s.mu.Unlock()
	if hang {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	here, there := net.Pipe()
	go s.serve(there, number)
	return here, nil
}

func (s *server) serve(conn net.Conn, number int) {
	defer conn.Close()
	in := bufio.NewReaderSize(conn, 1<<20)
	var out, batch []string
	for {
		cmd, err := readCommand(in)
		if err != nil {
			return
		}
		answer, name := s.answer(cmd)
		out = append(out, answer)
		if name != "" {
			batch = append(batch, name)
		}
		if in.Buffered() > 0 {
			continue
		}
		s.mu.Lock()
		if len(batch) > 0 {
			s.pipelines, s.times = append(s.pipelines, batch), append(s.times, time.Now())
		}
		delay, gate, silent := s.delay, s.gate, number <= s.silent
		lose := s.loseAnswer && len(batch) > 0
		s.loseAnswer = s.loseAnswer && !lose
		s.mu.Unlock()
		if len(batch) > 0 {
			time.Sleep(delay)
			if gate != nil {
				<-gate
			}
		}
		if lose {
			time.Sleep(time.Microsecond) // until the client reads
			return
		}
		if !silent {
			if _, err := io.WriteString(conn, strings.Join(out, "")); err != nil {
				return
			}
		}
		out, batch = nil, nil
	}
}

func readCommand(in *bufio.Reader) (cmd []string, err error) {
	line := func() string {
		l, e := in.ReadString('\n')
		if e != nil {
			err = e
		}
		return strings.TrimSpace(l)
	}
	n, _ := strconv.Atoi(strings.TrimPrefix(line(), "*"))
	for range n {
		size, _ := strconv.Atoi(strings.TrimPrefix(line(), "$"))
		word := make([]byte, size+2)
		if _, e := io.ReadFull(in, word); e != nil {
			return nil, e
		}
		cmd = append(cmd, string(word[:size]))
	}
	return cmd, err
}

// answer runs a command, and returns the reply and the name of the command. The name is "" if go-redis sends the
// command on a new connection.
func (s *server) answer(cmd []string) (answer, name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch cmd[0] {
	case "hello":
		return "%1\r\n+proto\r\n:3\r\n", ""
	case "client":
		return "+OK\r\n", ""
	case "wait":
		return encode(s.replicas), "wait"
	}
	name = cmd[0]
	if i := 1; strings.HasPrefix(name, "eval") || len(cmd) > 1 {
		if strings.HasPrefix(name, "eval") {
			i = 3
		}
		name += ":" + cmd[i]
	}
	if s.on != nil {
		if reply := s.on(cmd); reply != nil {
			return encode(reply), name
		}
	}
	switch cmd[0] {
	case "eval":
		sum := sha1.Sum([]byte(cmd[1]))
		s.scripts[hex.EncodeToString(sum[:])] = true
		return s.increment(cmd[3], cmd[4]), name
	case "evalsha":
		if !s.scripts[cmd[1]] {
			return encode(fmt.Errorf("NOSCRIPT No matching script.")), name
		}
		return s.increment(cmd[3], cmd[4]), name
	case "incrby":
		return s.increment(cmd[1], cmd[2]), name
	}
	return encode(nil), name
}

func (s *server) increment(key, by string) string {
	n, _ := strconv.Atoi(by)
	s.counters[key] += n
	return encode(s.counters[key])
}

func encode(reply any) string {
	switch reply := reply.(type) {
	case int:
		return fmt.Sprintf(":%d\r\n", reply)
	case string:
		return "+" + reply + "\r\n"
	case error:
		return "-" + reply.Error() + "\r\n"
	}
	return "_\r\n"
}

// A fixture is a server with a Client that is connected to it.
type fixture struct {
	*server
	*wire.Client
	redis *redis.Client
	node  *wire.Node
}

// inBubble runs f in a synctest bubble, and requires that no goroutine and no timer of the queue is left afterwards.
func inBubble(t *testing.T, f func(t *testing.T, x *fixture), configure ...func(*redis.Options, *wire.Replicas)) {
	t.Helper()
	race.Bubble(t, func(t *testing.T) {
		x := newFixture(t, configure...)
		f(t, x)
		time.Sleep(time.Minute) // for abandoned commands
		synctest.Wait()
		require.True(t, x.node.Idle())
	})
}

func newFixture(t *testing.T, configure ...func(*redis.Options, *wire.Replicas)) *fixture {
	x := &fixture{server: newServer()}
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

// A call is an item that records the arguments of its methods.
type call struct {
	*wire.Item
	args   func(*wire.Item) []any
	done   atomic.Int32
	leaves atomic.Int32
	mu     sync.Mutex // guards the rest
	lost   []error
	left   []int
}

func (c *call) lostErrors() []error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.lost
}

func (c *call) leftPlaces() []int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.left
}

// These methods implement [wire.Command].

func (c *call) Arguments() []any { return c.args(c.Item) }
func (c *call) Done()            { c.done.Add(1) }
func (c *call) Leave()           { c.leaves.Add(1) }

func (c *call) Lost(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lost = append(c.lost, err)
}

func (c *call) Left(place int) {
	if c.done.Load() == 0 {
		panic("Left before Done")
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.left = append(c.left, place)
}

// newCall returns a call whose script adds the number of its callers to a counter. Calls with the same name can merge,
// unless the name is "".
func newCall(key, merge string) *call {
	c := &call{Item: &wire.Item{Merge: wire.Merge{Name: merge}, Script: increment, Deadline: time.Now().Add(timeLimit)}}
	c.Command = c
	c.args = func(i *wire.Item) []any { return []any{nil, nil, 1, key, i.N} }
	return c
}

// plain returns a call that sends a command without a script.
func plain(key int, args ...any) *call {
	c := newCall("", "")
	c.Script, c.Key = nil, key
	c.args = func(*wire.Item) []any { return args }
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

// next takes one number.
func (x *fixture) next(ctx context.Context, key string) (int, error) {
	return x.do(ctx, newCall(key, key))
}

// warm makes a first call, so that the client knows the server and later callers may send their items themselves.
func (x *fixture) warm(t *testing.T) {
	_, err := x.next(context.Background(), "warm")
	require.NoError(t, err)
	synctest.Wait() // until the pipeline has given its place back
	x.arrived()
}

// queue starts calls for keys without waiting for their results, and starts every pipeline that can begin.
func (x *fixture) queue(t *testing.T, keys ...string) (calls []*call) {
	for _, key := range keys {
		c := newCall(key, "")
		x.Start(t.Context(), x.node, c.Item)
		calls = append(calls, c)
		synctest.Wait()
	}
	return calls
}

// trip makes a call whose round trip takes d.
func (x *fixture) trip(t *testing.T, d time.Duration) {
	x.set(func() { x.delay = d })
	_, err := x.next(context.Background(), "trip")
	require.NoError(t, err)
	x.set(func() { x.delay = 0 })
	synctest.Wait()
	x.arrived()
}

// keys returns n different keys.
func keys(n int) (all []string) {
	for i := range n {
		all = append(all, fmt.Sprint("k", i))
	}
	return all
}

// script loads a script into the server.
func (s *server) script(script *wire.Script) {
	s.set(func() { s.scripts[script.Digest.(string)] = true })
}

// errOf returns the error of a call.
func errOf[T any](_ T, err error) error { return err }

// A hook wraps each command and each pipeline, except those that set up a new connection.
type hook func(ctx context.Context, cmds []redis.Cmder, next func() error) error

func (h hook) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h hook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		return h(ctx, []redis.Cmder{cmd}, func() error { return next(ctx, cmd) })
	}
}

func (h hook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if name := cmds[0].Name(); name == "hello" || name == "client" {
			return next(ctx, cmds)
		}
		return h(ctx, cmds, func() error { return next(ctx, cmds) })
	}
}
