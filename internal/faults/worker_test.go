//go:build unix

package faults

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/rpc"
	"os"
	"runtime"
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

// A setting is the configuration of a generator, here or in a worker.
type setting struct {
	Topology   string
	Addrs      []string
	Storage    string // its address
	Protection protection
	Calendar   string // a key of calendars
	Zone       int    // seconds east of UTC
	Seed       uint64
}

// A protection says what protects the generators' numbers from losses.
type protection struct {
	Floor, Ledger bool
	Replicas      int
}

// calendars are the calendars by name; most runs use "".
var calendars = map[string][]serial.Option{
	"":      {serial.WithTemplate("{type}-{date:yyyyMMdd}-{seq:12}")},
	"weeks": {serial.WithPeriod(serial.PerWeek), serial.WithTemplate("{type}-{date:GGGG-WW}-{seq:12}")},
	"quarters": {serial.WithPeriod(serial.PerQuarter), serial.WithYearStart(time.April, 6),
		serial.WithTemplate("{type}-{date:FFFF-Q}-{seq:12}")},
	// The date prints more than the period.
	"years":    {serial.WithPeriod(serial.PerYear), serial.WithTemplate("{type}-{date:yyyyMMdd}-{seq:12}{check:97-10}")},
	"for ever": {serial.WithPeriod(serial.Never), serial.WithTemplate("{type}-{seq:9:base32}")},
	"hidden": {serial.WithTemplate("{type}-{date:yyyyMMdd-HH}-{seq:12}"),
		serial.WithHiddenSequence([]byte("sixteen bytes..."))},
}

const (
	blockSize   = 200
	callers     = 6 // of a worker
	maxBatch    = 50
	readTimeout = 2 * time.Second
)

func (s setting) options() []serial.Option {
	return append([]serial.Option{serial.WithLocation(time.FixedZone("suite", s.Zone))}, calendars[s.Calendar]...)
}

var schemes sync.Map // made so far, by zone and calendar

func (s setting) scheme() *serial.Scheme {
	key := fmt.Sprint(s.Zone, s.Calendar)
	if scheme, ok := schemes.Load(key); ok {
		return scheme.(*serial.Scheme)
	}
	scheme, err := serial.NewScheme(s.options()...)
	if err != nil {
		panic(err)
	}
	schemes.Store(key, scheme)
	return scheme
}

// period returns the label of an instant's period, and periodOf that of nanoseconds since 1970.
func (s setting) period(at time.Time) string {
	label, _, _ := s.scheme().Period(serial.At(at))
	return label
}

func (s setting) periodOf(ns int64) string { return s.period(time.Unix(0, ns)) }

// client returns a client with a hook, which may be nil. In a cluster, the clients of the nodes have the hook, since
// every attempt and every pipeline passes them.
func (s setting) client(hook redis.Hook) redis.UniversalClient {
	o := redis.UniversalOptions{Addrs: s.Addrs, MasterName: "serial", DialTimeout: time.Second,
		ReadTimeout: readTimeout, WriteTimeout: time.Second}
	hooked := func(c *redis.Client) *redis.Client {
		if hook != nil {
			c.AddHook(hook)
		}
		return c
	}
	switch s.Topology {
	case "cluster":
		cluster := o.Cluster()
		cluster.NewClient = func(o *redis.Options) *redis.Client { return hooked(redis.NewClient(o)) }
		return redis.NewClusterClient(cluster)
	case "sentinel":
		return hooked(redis.NewFailoverClient(o.Failover()))
	}
	return hooked(redis.NewClient(o.Simple()))
}

func (s setting) generator(client redis.UniversalClient, storage storageClient,
	hooks serial.Hooks) (*serial.Generator, error) {
	opts := append(s.options(), serial.WithHooks(hooks))
	if s.Protection.Floor {
		opts = append(opts, serial.WithFloor(storage.floor))
	}
	if s.Protection.Ledger {
		opts = append(opts, serial.WithLedger(storage, blockSize))
	}
	if n := s.Protection.Replicas; n > 0 {
		opts = append(opts, serial.WithReplicas(n, 500*time.Millisecond))
	}
	return serial.New(client, opts...)
}

// dialStorage connects to the storage. reach is called before and after a reservation.
func (s setting) dialStorage(reach func(string)) (storageClient, error) {
	conn, err := rpc.Dial("tcp", s.Storage)
	return storageClient{conn, s, reach}, err
}

// A message is a line that a worker writes to its standard output. It reports a call when it begins and when it ends,
// so even if the worker is killed, only unknown results are missing.
type message struct {
	What      string              // begin, end, unheard, unused, trapped, leak or done
	Call      *call               `json:",omitempty"`
	Unused    *serial.Explanation `json:",omitempty"`
	Type      string              `json:",omitempty"` // of N numbers that a command without a reply may have taken
	N         int64               `json:",omitempty"`
	Goroutine string              `json:",omitempty"`
}

// A command is a line that a worker reads from its standard input.
type command struct {
	Quit     bool
	Hurry    time.Duration // how long all calls have short deadlines
	Trap     string        // where a trap begins to count boundaries: "set", for the lock, or "reserve"
	Boundary int           // how many boundaries to pass before it signals the process
	Signal   syscall.Signal
}

// A worker issues numbers until told to quit.
type worker struct {
	setting
	gen   *serial.Generator
	hurry atomic.Int64 // until when calls have short deadlines
	id    atomic.Int64
	quit  chan struct{}
	out   sync.Mutex

	mu      sync.Mutex // guards the trap, which signals the process in the middle of an opening or a reservation
	trap    command
	trapped string // the type whose boundaries count, "" before the first one
}

const workerVariable = "SERIAL_FAULTS_WORKER"

func workerMain(config string) error {
	w := &worker{quit: make(chan struct{})}
	if err := json.Unmarshal([]byte(config), &w.setting); err != nil {
		return err
	}
	redis.SetLogger(silent{})
	storage, err := w.dialStorage(w.reach)
	if err != nil {
		return err
	}
	client := w.client(redistest.Hook(w.send))
	if w.gen, err = w.generator(client, storage, serial.Hooks{
		Unused: func(_ context.Context, e serial.Explanation) {
			e.Start, e.At = e.Start.UTC(), e.At.UTC() // JSON cuts the seconds off a zone's offset
			w.say(message{What: "unused", Unused: &e})
		},
	}); err != nil {
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
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if err := w.gen.Flush(ctx); err != nil {
		return err
	}
	w.reportLeaks()
	w.say(message{What: "done"})
	return client.Close()
}

// obey carries out the watching process's commands, and dies with it.
func (w *worker) obey() {
	lines := json.NewDecoder(bufio.NewReader(os.Stdin))
	for c := (command{}); lines.Decode(&c) == nil; c = (command{}) {
		switch {
		case c.Quit:
			close(w.quit)
		case c.Hurry > 0:
			w.hurry.Store(now() + int64(c.Hurry))
		default:
			w.mu.Lock()
			w.trap, w.trapped = c, ""
			w.mu.Unlock()
		}
	}
	os.Exit(3)
}

// reportLeaks reports goroutines of the library that remain after every command has had time to end.
func (w *worker) reportLeaks() {
	stacks := make([]byte, 1<<20)
	for range 120 {
		text := string(stacks[:runtime.Stack(stacks, true)])
		if !strings.Contains(text, "dailyserial/serial.") && !strings.Contains(text, "/internal/series.") &&
			!strings.Contains(text, "/internal/wire.") {
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
	w.say(message{What: "leak", Goroutine: string(stacks)})
}

// usedTypes are in use all the time; other types come and go, so that periods are opened often.
var usedTypes = []string{"T-00000001", "T-00000002", "T-00000003"}

// hurriedType returns the type that callers in a hurry use at a time, for 100 ms.
func hurriedType(at int64) string { return fmt.Sprintf("R-%08d", at/1e8%1e8) }

// call makes a random call.
func (w *worker) call(random *rand.Rand) {
	c := call{ID: w.id.Add(1), Type: usedTypes[random.IntN(len(usedTypes))], N: 1, Start: now()}
	if random.IntN(3) == 0 {
		c.Type = fmt.Sprintf("R-%08d", c.Start/5e8%1e8)
	}
	kind := random.IntN(20)
	if kind < 4 {
		c.N = 1 + random.Int64N(maxBatch)
	}
	limit := []time.Duration{0, 0, 2 * time.Second, 20 * time.Millisecond}[random.IntN(4)]
	if c.Start < w.hurry.Load() {
		c.Type, limit = hurriedType(c.Start), 200*time.Microsecond+rand.N(20*time.Millisecond)
	}
	ctx := context.Background()
	if limit > 0 {
		limited, cancel := context.WithTimeout(ctx, limit)
		defer cancel()
		ctx = limited
	}
	if kind == 19 && w.Calendar != "for ever" && random.IntN(4) == 0 {
		_ = w.gen.Prepare(ctx, c.Type) // whatever it does, the numbers show it
		return
	}
	c.Once = kind == 4
	w.say(message{What: "begin", Call: &c})
	var first serial.Number
	var err error
	switch {
	case kind < 4:
		first, err = w.batch(ctx, c.Type, int(c.N))
	case kind == 4:
		request := fmt.Sprint(os.Getpid(), "-", c.ID)
		first, err = w.gen.NextOnce(ctx, c.Type, request)
		if err == nil && !w.Protection.Ledger { // with a ledger, Redis may lose the answer
			again, repeated := w.gen.NextOnce(ctx, c.Type, request)
			if repeated == nil && again.String() != first.String() {
				err = fmt.Errorf("%w: %s, and then %s", errWrong, first, again)
			}
		}
	default:
		first, err = w.gen.NextNumber(ctx, c.Type)
	}
	c.End = now()
	if err != nil {
		c.Failure, c.Text = class(ctx, err), fmt.Sprintf("%s: %v", clock(c.End), err)
	} else {
		c.Period, c.First, c.Last = w.period(first.Start), first.Seq, first.Seq+c.N-1
	}
	w.say(message{What: "end", Call: &c})
}

var errWrong = errors.New("wrong result")

// batch issues n consecutive numbers, and returns the first.
func (w *worker) batch(ctx context.Context, typ string, n int) (first serial.Number, err error) {
	numbers, err := w.gen.NextN(ctx, typ, n)
	if err != nil {
		return first, err
	}
	for i, number := range numbers {
		parsed, err := w.gen.Parse(number.String())
		if err != nil || !parsed.Equal(number) || number.Seq != numbers[0].Seq+int64(i) ||
			!number.Start.Equal(numbers[0].Start) {
			return first, fmt.Errorf("%w: %v", errWrong, numbers)
		}
	}
	return numbers[0], nil
}

// class sorts errors by what they mean to the caller.
func class(ctx context.Context, err error) string {
	for class, meaning := range map[string]error{
		"lost": serial.ErrCounterLost, "unreplicated": serial.ErrNotReplicated, "skew": serial.ErrClockSkew,
		"conflict": serial.ErrConflict, "exhausted": serial.ErrExhausted, "invalid": serial.ErrInvalidType, "wrong": errWrong,
	} {
		if errors.Is(err, meaning) {
			return class
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

func (w *worker) say(m message) {
	line, err := json.Marshal(m)
	if err != nil {
		panic(err)
	}
	w.out.Lock()
	defer w.out.Unlock()
	_, _ = os.Stdout.Write(append(line, '\n'))
}

// now returns the time by this process's monotonic clock, added to the wall clock at its start: such times are
// comparable between processes, provided that the host's clock is not set while the suite runs.
func now() int64 { return started.UnixNano() + int64(time.Since(started)) }

var started = time.Now()

// reach is called at every boundary: before and after every pipeline and reservation. text has their keys.
func (w *worker) reach(text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.trap.Trap == "":
		return
	case w.trapped == "":
		_, after, _ := strings.Cut(text, w.trap.Trap)
		if w.trapped = typeIn(after); w.trapped == "" {
			return
		}
	case !strings.Contains(text, w.trapped):
		return
	}
	if w.trap.Boundary--; w.trap.Boundary >= 0 {
		return
	}
	w.trap.Trap = ""
	w.say(message{What: "trapped"})
	_ = syscall.Kill(syscall.Getpid(), w.trap.Signal)
}

// send sends commands between two of the trap's boundaries, and reports those that may have taken numbers without a
// reply. It is a redistest.Hook.
func (w *worker) send(ctx context.Context, cmds []redis.Cmder, next redis.ProcessPipelineHook) error {
	text := ""
	for _, cmd := range cmds {
		if args := cmd.Args(); len(args) > 3 { // the key is that of the lock, or the script's first
			text += fmt.Sprintln(cmd.Name(), args[1], args[3])
		}
	}
	w.reach(text)
	err := next(ctx, cmds)
	w.reach(text)
	unconfirmed := false
	for _, cmd := range cmds {
		if wait, ok := cmd.(*redis.Cmd); ok && cmd.Name() == "wait" {
			replicas, _ := wait.Int()
			unconfirmed = replicas < 1 // calls wait for one at most
		}
	}
	for _, cmd := range cmds {
		var refused redis.Error // a script's error proves that it took nothing
		lost := unconfirmed || err != nil && !errors.As(cmd.Err(), &refused)
		if n := taken(cmd); n > 0 && lost {
			w.say(message{What: "unheard", Type: typeIn(fmt.Sprint(cmd.Args()[3])), N: n})
		}
	}
	return err
}

// taken returns how many numbers a command takes if it is the library's script. They are its sixth argument after the
// keys.
func taken(cmd redis.Cmder) (n int64) {
	args, keys, script := cmd.Args(), 0, core.SerialScript
	if !strings.HasPrefix(cmd.Name(), "eval") || args[1] != script.Digest && args[1] != script.Source {
		return 0
	}
	_, _ = fmt.Sscan(fmt.Sprint(args[2]), &keys)
	_, _ = fmt.Sscan(fmt.Sprint(args[3+keys+5]), &n)
	return n
}

type silent struct{}

func (silent) Printf(context.Context, string, ...any) {}

func TestMain(m *testing.M) {
	if config := os.Getenv(workerVariable); config != "" {
		if err := workerMain(config); err != nil {
			fmt.Fprintln(os.Stderr, "worker:", err)
			os.Exit(1)
		}
		return
	}
	redis.SetLogger(silent{})
	redistest.RunAtOnce(4)
	os.Exit(m.Run())
}
