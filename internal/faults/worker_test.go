//go:build unix

package faults

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/rpc"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/dailyserial/serial"
	"github.com/dailyserial/serial/internal/redistest"
	core "github.com/dailyserial/serial/internal/series"
)

// A setting is the configuration of a generator of the suite, here or in a worker.
type setting struct {
	Sentinel, Cluster bool
	Addrs             []string
	Protection        protection
	Storage           string // its address
	Zone              int    // seconds east of UTC
	Seed              uint64
	Calendar          string // a key of calendars
}

// calendars are the tests' calendars by name; most tests use "".
var calendars = map[string][]serial.Option{
	"":      {serial.WithTemplate("{type}-{date:yyyyMMdd}-{seq:12}")},
	"weeks": {serial.WithPeriod(serial.PerWeek), serial.WithTemplate("{type}-{date:GGGG-WW}-{seq:12}")},
	"quarters": {serial.WithPeriod(serial.PerQuarter), serial.WithYearStart(time.April, 6),
		serial.WithTemplate("{type}-{date:FFFF-Q}-{seq:12}")},
	// The date prints more than the period.
	"years":    {serial.WithPeriod(serial.PerYear), serial.WithTemplate("{type}-{date:yyyyMMdd}-{seq:12}{check:97-10}")},
	"for ever": {serial.WithPeriod(serial.Never), serial.WithTemplate("{type}-{seq:9:base32}")},
	"hidden": {serial.WithTemplate("{type}-{date:yyyyMMdd-HH}-{seq:12}"),
		serial.WithHiddenSequence([]byte("sixteen bytes...")[:16])},
}

// protection says what protects the generators' numbers from losses.
type protection struct {
	Floor, Ledger bool
	Replicas      int
}

const (
	block   = 200
	callers = 6 // per worker
	most    = 50

	readTimeout = 2 * time.Second
)

// scheme returns the scheme of the setting's generators.
func (s setting) scheme() *serial.Scheme {
	type key struct {
		zone     int
		calendar string
	}
	scheme, ok := schemes.Load(key{s.Zone, s.Calendar})
	if !ok {
		made, err := serial.NewScheme(append([]serial.Option{serial.WithLocation(s.location())}, calendars[s.Calendar]...)...)
		if err != nil {
			panic(err)
		}
		scheme, _ = schemes.LoadOrStore(key{s.Zone, s.Calendar}, made)
	}
	return scheme.(*serial.Scheme)
}

var schemes sync.Map // made so far

// label names the period of an instant.
func (s setting) label(t time.Time) string {
	label, _, _ := s.scheme().Period(serial.At(t))
	return label
}

// dayOf is label for Unix nanoseconds.
func (s setting) dayOf(ns int64) string { return s.label(time.Unix(0, ns)) }

func (s setting) location() *time.Location { return time.FixedZone("suite", s.Zone) }

// client gives up on a server sooner than go-redis does by default, so more happens in a minute.
func (s setting) client(hook redis.Hook) redis.UniversalClient {
	const dial, read, write = time.Second, readTimeout, time.Second
	var c redis.UniversalClient
	switch {
	case s.Sentinel:
		c = redis.NewFailoverClient(&redis.FailoverOptions{MasterName: "serial", SentinelAddrs: s.Addrs,
			DialTimeout: dial, ReadTimeout: read, WriteTimeout: write})
	case s.Cluster:
		options := &redis.ClusterOptions{Addrs: s.Addrs, DialTimeout: dial, ReadTimeout: read, WriteTimeout: write}
		if hook != nil { // at the nodes, where every attempt and every pipeline passes
			options.NewClient = func(o *redis.Options) *redis.Client {
				node := redis.NewClient(o)
				node.AddHook(hook)
				return node
			}
		}
		return redis.NewClusterClient(options)
	default:
		c = redis.NewClient(&redis.Options{Addr: s.Addrs[0], DialTimeout: dial, ReadTimeout: read, WriteTimeout: write})
	}
	if hook != nil {
		c.AddHook(hook)
	}
	return c
}

type floorFunc = func(ctx context.Context, typ string, start time.Time) (int64, error)

func (s setting) generator(client redis.UniversalClient, ledger serial.Ledger, floor floorFunc,
	more ...serial.Option) (*serial.Generator, error) {
	opts := append([]serial.Option{serial.WithLocation(s.location())}, calendars[s.Calendar]...)
	if s.Protection.Floor {
		opts = append(opts, serial.WithFloor(floor))
	}
	if s.Protection.Ledger {
		opts = append(opts, serial.WithLedger(ledger, block))
	}
	if n := s.Protection.Replicas; n > 0 {
		opts = append(opts, serial.WithReplicas(n, 500*time.Millisecond))
	}
	return serial.New(client, append(opts, more...)...)
}

const workerVariable = "SERIAL_FAULTS_WORKER"

// A worker issues numbers until told to quit, and writes every call to its standard output when it begins and when it
// ends. So even if the worker is killed, only unknown results are missing.
type worker struct {
	setting
	gen   *serial.Generator
	trap  trap
	hurry atomic.Int64 // until when its callers have short deadlines
	out   sync.Mutex
	id    atomic.Int64
	quit  chan struct{}
}

func workerMain(config string) error {
	w := &worker{quit: make(chan struct{})}
	w.trap.say = w.say
	if err := json.Unmarshal([]byte(config), &w.setting); err != nil {
		return err
	}
	redis.SetLogger(silence{})
	conn, err := rpc.Dial("tcp", w.Storage)
	if err != nil {
		return err
	}
	storage := storageClient{conn, &w.trap, w.setting}
	client := w.client(watch{w})
	tell := serial.WithHooks(serial.Hooks{Unused: func(_ context.Context, e serial.Explanation) {
		w.say("unused %s %s %d %d %t %t %t", e.Type, w.label(e.Start), e.First, e.Last, e.Unused, e.Possible,
			strings.HasPrefix(e.Reason, serial.AnswerLost))
	}})
	if w.gen, err = w.generator(client, storage, storage.floor, tell); err != nil {
		return err
	}
	go w.obey()
	var wg sync.WaitGroup
	for i := range uint64(callers) {
		random := rand.New(rand.NewPCG(w.Seed, i))
		wg.Go(func() {
			for {
				select {
				case <-w.quit:
					return
				case <-time.After(2*time.Millisecond + rand.N(10*time.Millisecond)):
					w.call(random)
				}
			}
		})
	}
	wg.Wait()
	within, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if err := w.gen.Flush(within); err != nil {
		return err
	}
	w.leaks()
	w.say("done")
	return client.Close()
}

// obey carries out the watching process's commands, and dies with it.
func (w *worker) obey() {
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		var how, where string
		var boundary int
		if n, _ := fmt.Sscan(lines.Text(), &how, &where, &boundary); n == 3 {
			if how == "hurry" {
				w.hurry.Store(stamp() + int64(boundary)*int64(time.Millisecond))
				continue
			}
			w.trap.set(how, where, boundary)
			continue
		}
		close(w.quit) // "quit"
	}
	os.Exit(3)
}

// leaks reports goroutines of the package that remain after every command has had time to end.
func (w *worker) leaks() {
	var stacks []byte
	for range 120 {
		stacks = make([]byte, 1<<20)
		stacks = stacks[:runtime.Stack(stacks, true)]
		if !slices.ContainsFunc([]string{".", "/internal/series.", "/internal/wire."}, func(part string) bool {
			return bytes.Contains(stacks, []byte("github.com/dailyserial/serial"+part))
		}) {
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
	w.say("leak %q", stacks)
}

// alwaysUsed are the types that are in use all the time; others come and go, so periods are opened often.
var alwaysUsed = []string{"T-00000001", "T-00000002", "T-00000003"}

// hurriedType is how long callers in a hurry use a type.
const hurriedType = 100 * time.Millisecond

func hurried(at int64) string { return fmt.Sprintf("R-%08d", at/int64(hurriedType)%1e8) }

func (w *worker) call(random *rand.Rand) {
	typ := alwaysUsed[random.IntN(len(alwaysUsed))]
	if random.IntN(3) == 0 {
		typ = fmt.Sprintf("R-%08d", time.Now().UnixMilli()/500%1e8)
	}
	n := 1
	if random.IntN(5) == 0 {
		n = 1 + random.IntN(most)
	}
	ctx := context.Background()
	limit := []time.Duration{0, 0, 2 * time.Second, 20 * time.Millisecond}[random.IntN(4)]
	if now := stamp(); now < w.hurry.Load() {
		typ, limit = hurried(now), 200*time.Microsecond+rand.N(20*time.Millisecond)
	}
	if limit > 0 {
		limited, cancel := context.WithTimeout(ctx, limit)
		defer cancel()
		ctx = limited
	}
	id := w.id.Add(1)
	w.say("begin %d %s %d %d", id, typ, n, stamp())
	first, last, err := issue(ctx, w.gen, typ, n)
	end := stamp()
	if err != nil {
		w.say("failed %d %d %s %q", id, end, class(ctx, err), err)
		return
	}
	w.say("issued %d %d %s %d %d", id, end, w.label(first.Start), first.Seq, last)
}

var errBatch = errors.New("invalid batch")

// issue issues one number, or a batch of several.
func issue(ctx context.Context, gen *serial.Generator, typ string, n int) (first serial.Number, last int64, err error) {
	if n == 1 {
		first, err = gen.NextNumber(ctx, typ)
		return first, first.Seq, err
	}
	batch, err := gen.NextN(ctx, typ, n)
	for i, number := range batch {
		parsed, err := gen.Parse(number.String())
		if i == 0 {
			first = number
		}
		last = first.Seq + int64(i)
		if err != nil || !parsed.Equal(number) || number.Seq != last || !number.Start.Equal(first.Start) {
			return first, last, fmt.Errorf("%w: %v", errBatch, batch)
		}
	}
	return first, last, err
}

// class sorts errors by what they mean to the caller. Errors in declared are answers of the package, not failures.
func class(ctx context.Context, err error) string {
	for name, declared := range declared {
		if errors.Is(err, declared) {
			return name
		}
	}
	deadline, limited := ctx.Deadline()
	ended := limited && !time.Now().Before(deadline) // its timer may not have fired yet
	switch {
	case errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) && !ended:
		return "misleading"
	case ended:
		return "deadline"
	}
	return "failed"
}

var declared = map[string]error{
	"lost": serial.ErrCounterLost, "unreplicated": serial.ErrNotReplicated, "skew": serial.ErrClockSkew,
	"conflict": serial.ErrConflict, "exhausted": serial.ErrExhausted, "invalid": serial.ErrInvalidType, "torn": errBatch,
}

func (w *worker) say(format string, args ...any) {
	w.out.Lock()
	defer w.out.Unlock()
	_, _ = fmt.Fprintf(os.Stdout, format+"\n", args...)
}

// stamp returns the time by this process's monotonic clock, added to the wall clock at its start: such times are
// comparable between processes, provided that nobody sets the host's clock while the suite runs.
func stamp() int64 { return started.UnixNano() + int64(time.Since(started)) }

var started = time.Now()

// A trap kills or stops this process in the middle of opening a period, or of a reservation.
type trap struct {
	say func(format string, args ...any)

	mu    sync.Mutex
	how   string // kill or stop; "" if it is not set
	where string // open or reserve: where it begins to count
	left  int    // boundaries of that type's commands to pass
	typ   string // the type whose commands it counts
}

func (t *trap) set(how, where string, boundary int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.how, t.where, t.left, t.typ = how, where, boundary, ""
}

// pass is called before and after every command and reservation; where names what begins with it.
func (t *trap) pass(where, key string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if typ := typeIn(key); t.how == "" || t.typ == "" && t.where != where || t.typ != "" && t.typ != typ {
		return
	} else {
		t.typ = typ
	}
	if t.left--; t.left >= 0 {
		return
	}
	signal := syscall.SIGKILL
	if t.how == "stop" {
		signal = syscall.SIGSTOP
	}
	t.how = ""
	t.say("trapped")
	_ = syscall.Kill(syscall.Getpid(), signal)
}

// before and after lead commands past the trap, those of one type together.
func (t *trap) before(cmds ...redis.Cmder) {
	for key, where := range keysIn(cmds) {
		t.pass(where, key)
	}
}

func (t *trap) after(cmds ...redis.Cmder) {
	for key := range keysIn(cmds) {
		t.pass("", key)
	}
}

// keysIn returns a key of each type, and what begins with the commands.
func keysIn(cmds []redis.Cmder) map[string]string {
	begins, keys := map[string]string{}, map[string]string{}
	for _, cmd := range cmds {
		key := firstKey(cmd)
		if before, ok := keys[typeIn(key)]; ok {
			key = before
		}
		keys[typeIn(key)] = key
		if _, known := begins[key]; !known {
			begins[key] = ""
		}
		if cmd.Name() == "set" {
			begins[key] = "open" // with its lock
		}
	}
	return begins
}

// watch is a hook that leads commands past the trap, and reports those that may have taken numbers for nobody.
type watch struct{ w *worker }

func (h watch) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h watch) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		h.w.trap.before(cmd)
		err := next(ctx, cmd)
		h.w.trap.after(cmd)
		h.unanswered(cmd, err)
		return err
	}
}

func (h watch) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		h.w.trap.before(cmds...)
		err := next(ctx, cmds)
		h.w.trap.after(cmds...)
		for _, cmd := range cmds {
			if n, _ := cmd.(*redis.Cmd); n != nil && cmd.Name() == "wait" {
				if replicas, _ := n.Int(); replicas < 1 { // nobody waits for more
					err = serial.ErrNotReplicated // its caller gets no number
				}
			}
		}
		for _, cmd := range cmds {
			if cmdErr := cmd.Err(); cmdErr != nil {
				h.unanswered(cmd, cmdErr)
			} else {
				h.unanswered(cmd, err)
			}
		}
		return err
	}
}

func (h watch) unanswered(cmd redis.Cmder, err error) {
	if err == nil {
		return
	}
	for _, refusal := range []string{"NOSCRIPT", "MOVED", "ASK", "TRYAGAIN", "CLUSTERDOWN", "READONLY", "LOADING",
		"NOPERM"} {
		if redis.HasErrorPrefix(err, refusal) {
			return
		}
	}
	if n := count(cmd); n > 0 {
		h.w.say("unanswered %s %d", typeIn(firstKey(cmd)), n)
	}
}

func firstKey(cmd redis.Cmder) string {
	switch args := cmd.Args(); {
	case cmd.Name() == "set" && len(args) > 1:
		return fmt.Sprint(args[1])
	case strings.HasPrefix(cmd.Name(), "eval") && len(args) > 3:
		return fmt.Sprint(args[3])
	}
	return ""
}

// count returns how many numbers the package's script takes. They are its sixth argument after the keys.
func count(cmd redis.Cmder) (n int64) {
	args, keys := cmd.Args(), 0
	script := core.SerialScript
	if !strings.HasPrefix(cmd.Name(), "eval") || args[1] != script.Digest && args[1] != script.Source {
		return 0
	}
	_, _ = fmt.Sscan(fmt.Sprint(args[2]), &keys)
	_, _ = fmt.Sscan(fmt.Sprint(args[3+keys+5]), &n)
	return n
}

type silence struct{}

func (silence) Printf(context.Context, string, ...any) {}

func TestMain(m *testing.M) {
	if config := os.Getenv(workerVariable); config != "" {
		if err := workerMain(config); err != nil {
			fmt.Fprintln(os.Stderr, "worker:", err)
			os.Exit(1)
		}
		return
	}
	redis.SetLogger(silence{})
	redistest.RunAtOnce(4)
	code := m.Run()
	report(os.Stdout)
	os.Exit(code)
}
