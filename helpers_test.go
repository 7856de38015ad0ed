package serial_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/dailyserial/serial"
	"github.com/dailyserial/serial/internal/race"
	"github.com/dailyserial/serial/internal/redistest"
	"github.com/dailyserial/serial/internal/redistest/memory"
	inner "github.com/dailyserial/serial/internal/series"
	"github.com/dailyserial/serial/serialtest"
)

func TestMain(m *testing.M) {
	redis.SetLogger(silent{}) // go-redis logs every connection to a server that a test kills
	redistest.RunAtOnce(8)
	// The first lookup creates a channel that all later lookups use. If it were created in a synctest bubble, it could
	// not be used outside of the bubble.
	_, _ = net.LookupHost("localhost")
	code := m.Run()
	// Abandoned commands keep running, and end within ten seconds if the server does not reply.
	leaked := goleak.Find()
	for end := time.Now().Add(20 * time.Second); leaked != nil && code == 0 && time.Now().Before(end); {
		leaked = goleak.Find()
	}
	if leaked != nil && code == 0 {
		fmt.Fprintln(os.Stderr, leaked)
		code = 1
	}
	os.Exit(code)
}

type silent struct{}

func (silent) Printf(context.Context, string, ...any) {}

var errBoom = errors.New("boom")

const lockExpiry = 8 * time.Second // longest delay of other callers after a process crashed during an opening

func newGenerator(t testing.TB, client redis.UniversalClient, opts ...serial.Option) *serial.Generator {
	t.Helper()
	gen, err := serial.New(client, opts...)
	require.NoError(t, err)
	return gen
}

func options(opts ...serial.Option) []serial.Option { return opts }

// parser returns a generator for tests that do not issue numbers.
func parser(t testing.TB, opts ...serial.Option) *serial.Generator {
	rdb := closing(t, redis.NewClient(&redis.Options{}))
	return newGenerator(t, rdb, append([]serial.Option{serial.WithLocation(time.UTC)}, opts...)...)
}

// closing returns c, and closes it when the test ends.
func closing[C io.Closer](t testing.TB, c C) C {
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// fixedFloor is a floor that always returns n.
func fixedFloor(n int64) serial.Option {
	return serial.WithFloor(func(context.Context, string, time.Time) (int64, error) { return n, nil })
}

func confirmedBy(n int) serial.Option { return serial.WithReplicas(n, time.Second) }

func location(t *testing.T, name string) *time.Location {
	t.Helper()
	loc, err := time.LoadLocation(name)
	require.NoError(t, err)
	return loc
}

// ledgerIf returns options with a new ledger, or no options.
func ledgerIf(with bool, block int64) []serial.Option {
	if !with {
		return nil
	}
	return options(serial.WithLedger(new(serialtest.Ledger), block))
}

var started = time.Now().UTC()

// noon returns a zone in which it is about noon, so that midnight does not pass during tests on the real clock. For all
// of these tests it is the same zone, even if a new hour begins between two calls.
func noon() *time.Location {
	now := time.Now().UTC()
	if now.After(started) { // not in a bubble, which begins in the year 2000
		now = started
	}
	return time.FixedZone("noon", (12-now.Hour())*3600)
}

// today returns the label of the current day.
func today(loc *time.Location) string { return time.Now().In(loc).Format("20060102") }

// numbers returns the numbers of typ on day from one sequence to another.
func numbers(typ, day string, from, to int) []string {
	var all []string
	for seq := from; seq <= to; seq++ {
		all = append(all, fmt.Sprintf("%s%s%04d", typ, day, seq))
	}
	return all
}

// errOf returns the error of a call.
func errOf[T any](_ T, err error) error { return err }

// requireResult returns a function that takes the results of a call and requires that the call returned want without an
// error.
func requireResult[T any](t testing.TB, want T, message ...any) func(got T, err error) {
	return func(got T, err error) {
		t.Helper()
		require.NoError(t, err, message...)
		require.Equal(t, want, got, message...)
	}
}

// requireSeq returns a function that takes the results of a call and requires that the call returned a number with this
// sequence without an error.
func requireSeq(t testing.TB, want int64, message ...any) func(n serial.Number, err error) {
	return func(n serial.Number, err error) {
		t.Helper()
		require.NoError(t, err, message...)
		require.Equal(t, want, n.Seq, message...)
	}
}

// textOf returns the text of an issued number, or "" and the error of the call.
func textOf(n serial.Number, err error) (string, error) { return n.String(), err }

// textsOf returns the texts of issued numbers in their order, and the error of the call.
func textsOf(numbers []serial.Number, err error) ([]string, error) { return texts(numbers), err }

func texts(numbers []serial.Number) (all []string) {
	for _, n := range numbers {
		all = append(all, n.String())
	}
	return all
}

// barrier makes n concurrent calls of f, and returns their results. It fails the test if a call fails.
func barrier(t *testing.T, n int, f func(i int) (string, error)) []string {
	t.Helper()
	got, errs := make([]string, n), make([]error, n)
	start := make(chan struct{})
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			<-start
			got[i], errs[i] = f(i)
		})
	}
	close(start)
	wg.Wait()
	require.NoError(t, errors.Join(errs...))
	return got
}

// startMini starts a miniredis with a replication ID, and returns it with a client.
func startMini(t *testing.T) (*miniredis.Miniredis, *redis.Client) {
	m := miniredis.RunT(t)
	memory.AddReplicationID(m)
	return m, closing(t, redis.NewClient(&redis.Options{Addr: m.Addr()}))
}

// A simulation is a Redis in memory for a bubble of testing/synctest.
type simulation struct {
	*memory.Redis
	t *testing.T
}

// simulate starts a simulation. It must be called inside a bubble.
func simulate(t *testing.T) *simulation { return &simulation{memory.Start(t), t} }

// inBubble runs f in a bubble with a simulation.
func inBubble(t *testing.T, f func(t *testing.T, m *simulation)) {
	t.Helper()
	race.Bubble(t, func(t *testing.T) { f(t, simulate(t)) })
}

// runInBubble runs f as a subtest in a bubble with a simulation.
func runInBubble(t *testing.T, name string, f func(t *testing.T, m *simulation)) {
	t.Run(name, func(t *testing.T) { inBubble(t, f) })
}

// requireExpiries requires that every key has an expiry.
func (s *simulation) requireExpiries() {
	s.t.Helper()
	for _, key := range s.Keys() {
		require.Positive(s.t, s.TTL(key), "%s has no expiry", key)
	}
}

// around returns a hook that calls f for every command. f must send the command. In a pipeline, the last call of f
// sends all commands.
func around(f func(cmd redis.Cmder, send func() error) error) everyCall {
	return func(cmds []redis.Cmder, send func() error) error {
		if cmds[0].Name() == "client" { // a connection is set up
			return send()
		}
		sent := false
		next := func() error {
			sent = true
			return send()
		}
		for _, cmd := range slices.Backward(cmds) {
			inner := next
			next = func() error {
				return f(cmd, func() error {
					if err := inner(); !sent || len(cmds) == 1 {
						return err
					}
					return cmd.Err()
				})
			}
		}
		return next()
	}
}

// counting adds the number of commands that a client sends to n, or of those with a name.
func counting(n *atomic.Int64, name ...string) everyCall {
	return around(func(cmd redis.Cmder, send func() error) error {
		if name == nil || slices.Contains(name, cmd.Name()) {
			n.Add(1)
		}
		return send()
	})
}

// everyCall is a redis.Hook that wraps every command and every pipeline.
type everyCall func(cmds []redis.Cmder, send func() error) error

func (f everyCall) DialHook(next redis.DialHook) redis.DialHook { return next }

func (f everyCall) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		return f([]redis.Cmder{cmd}, func() error { return next(ctx, cmd) })
	}
}

func (f everyCall) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		return f(cmds, func() error { return next(ctx, cmds) })
	}
}

// stepOf returns "open" for a run of lua/serial.lua with a grant, "take" for a run of this script without a grant, and
// the name of any other command.
func stepOf(cmd redis.Cmder) string {
	args := cmd.Args()
	if !strings.HasPrefix(cmd.Name(), "eval") ||
		args[1] != inner.SerialScript.Digest && args[1] != inner.SerialScript.Source {
		return cmd.Name()
	}
	if strings.Contains(fmt.Sprint(args[len(args)-1]), `"grant":`) {
		return "open"
	}
	return "take"
}

// A backend is a Redis on which the behaviour suite runs.
type backend struct {
	client func(t *testing.T) redis.UniversalClient
}

// inMemory returns a backend on a miniredis.
func inMemory(t *testing.T) backend {
	m, _ := startMini(t)
	return backend{client: func(t *testing.T) redis.UniversalClient {
		return closing(t, redis.NewClient(&redis.Options{Addr: m.Addr()}))
	}}
}

// series is the type IS under its own key prefix.
type series struct {
	t       *testing.T
	rdb     redis.UniversalClient
	loc     *time.Location
	prefix  string
	gen     *serial.Generator
	day     string // label of the current day
	counter string // key of the day's counter
	record  string // key of the record

	// For play: further generators and steps, by name.
	gens map[string]*serial.Generator
	does map[string]func()
}

var prefixes atomic.Int64

func (b backend) series(t *testing.T, opts ...serial.Option) *series {
	s := &series{t: t, rdb: b.client(t), loc: noon(), prefix: fmt.Sprintf("test-%d", prefixes.Add(1))}
	s.day = today(s.loc)
	s.record = s.prefix + ":{IS}"
	s.counter = s.record + ":" + s.day
	s.gen = s.generator(opts...)
	return s
}

// run runs f as a subtest, on a new series.
func (b backend) run(t *testing.T, name string, f func(t *testing.T, s *series), opts ...serial.Option) {
	t.Run(name, func(t *testing.T) { f(t, b.series(t, opts...)) })
}

// generator returns a new generator of the series, as another process would have.
func (s *series) generator(opts ...serial.Option) *serial.Generator {
	s.t.Helper()
	return newGenerator(s.t, s.rdb, append([]serial.Option{serial.WithLocation(s.loc), serial.WithKeyPrefix(s.prefix)},
		opts...)...)
}

// next issues a number and requires that its sequence is want.
func (s *series) next(gen *serial.Generator, want int) {
	s.t.Helper()
	requireResult(s.t, fmt.Sprintf("IS%s%04d", s.day, want))(gen.Next(s.t.Context(), "IS"))
}

// outcomes are the errors in the steps of play and of steps.
var outcomes = map[string]error{
	"exhausted": serial.ErrExhausted, "lost": serial.ErrCounterLost, "conflict": serial.ErrConflict, "boom": errBoom,
	"skew": serial.ErrClockSkew, "unconfirmed": serial.ErrNotReplicated, "reserved": inner.ErrReserved,
}

// perform makes the call of a step. The argument is a number of numbers, a sequence or the ID of a request. It returns
// the last number.
func perform(t testing.TB, gen *serial.Generator, call, typ, argument string) (n serial.Number, err error) {
	t.Helper()
	seq, _ := strconv.ParseInt(argument, 10, 64)
	switch ctx := t.Context(); call {
	case "next":
		n, err = gen.NextNumber(ctx, typ)
	case "take":
		var all []serial.Number
		if all, err = gen.NextN(ctx, typ, int(seq)); err == nil {
			n = all[len(all)-1]
			require.Equal(t, n.Seq-seq+1, all[0].Seq)
		}
	case "once":
		n, err = gen.NextOnce(ctx, typ, argument)
	case "peek":
		n, err = gen.Peek(ctx, typ)
	case "raise":
		err = gen.Raise(ctx, typ, seq)
	case "takeover":
		err = gen.Takeover(ctx, typ, seq)
	case "takeover-keeping":
		err = gen.TakeoverKeepingLedger(ctx, typ, seq)
	case "prepare":
		err = gen.Prepare(ctx, typ)
	default:
		require.Fail(t, "unknown step", call)
	}
	return n, err
}

// play runs steps such as "next 1; other.raise 7; next PO 1; del counter; next lost". A step is one of s.does, or it
// deletes or sets keys, or it calls s.gen or another generator of s.gens. A call has a type, unless that is IS, then its
// argument, and then the sequence or the error that it must return. If it fails, it must not change an existing counter,
// unless only the confirmation is missing.
func (s *series) play(steps string) {
	s.t.Helper()
	ctx := s.t.Context()
	for step := range strings.SplitSeq(steps, "; ") {
		words := strings.Fields(step)
		for i, word := range words[1:] {
			words[i+1] = strings.NewReplacer("counter", s.counter, "record", s.record).Replace(word)
		}
		gen, call := s.gen, words[0]
		if name, rest, named := strings.Cut(call, "."); named {
			gen, call = s.gens[name], rest
		}
		typ, args := "IS", append(words[1:], "")
		if strings.ToUpper(args[0]) == args[0] && strings.ToLower(args[0]) != args[0] {
			typ, args = args[0], args[1:]
		}
		before := s.rdb.Get(ctx, s.counter).Val()
		var n serial.Number
		var err error
		switch do := s.does[call]; {
		case do != nil:
			do()
		case call == "del":
			err = s.rdb.Del(ctx, words[1:]...).Err()
		case call == "set":
			err = s.rdb.Set(ctx, args[0], args[1], time.Hour).Err()
		default:
			n, err = perform(s.t, gen, call, typ, args[0])
		}
		want := words[len(words)-1]
		if outcome := outcomes[want]; outcome != nil {
			require.ErrorIs(s.t, err, outcome, step)
			require.Zero(s.t, n, step)
			require.True(s.t, want == "unconfirmed" || before == "" || s.rdb.Get(ctx, s.counter).Val() == before, step)
			continue
		}
		require.NoError(s.t, err, step)
		if n.Type != "" {
			require.Equal(s.t, typ+" "+want, fmt.Sprint(n.Type, " ", n.Seq), step)
		}
	}
}

// keys returns which of these keys exist: the record, the counter of the day, and its lock. It first waits for a lock
// that is just being released.
func (s *series) keys() []string {
	missing := func(key string) bool { return s.rdb.Exists(s.t.Context(), key).Val() == 0 }
	lock := s.counter + ":lock"
	for end := time.Now().Add(2 * time.Second); !missing(lock) && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
	return slices.DeleteFunc([]string{s.record, s.counter, lock}, missing)
}

// A spyLedger records its reservations.
type spyLedger struct {
	serialtest.Ledger
	mu    sync.Mutex
	asked []serial.Reservation
}

func (l *spyLedger) Reserve(ctx context.Context, r serial.Reservation) (int64, error) {
	l.mu.Lock()
	l.asked = append(l.asked, r)
	l.mu.Unlock()
	return l.Ledger.Reserve(ctx, r)
}

func (l *spyLedger) reservations() []serial.Reservation {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.asked)
}
