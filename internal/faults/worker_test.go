//go:build unix

package faults

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"sync/atomic"
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
	scheme     *serial.Scheme // of the options
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

// period returns the label of an instant's period, and periodOf that of nanoseconds since 1970.
func (s setting) period(at time.Time) string {
	label, _, _ := s.scheme.Period(serial.At(at))
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

// generator returns a generator with connections of its own, and a function that ends both. unused is called with each
// explanation.
func (s setting) generator(hook redis.Hook, unused func(serial.Explanation)) (*serial.Generator, func() error, error) {
	client, storage := s.client(hook), newStorage(s)
	opts := append(s.options(), serial.WithHooks(serial.Hooks{
		Unused: func(_ context.Context, e serial.Explanation) { unused(e) },
	}))
	if s.Protection.Floor {
		opts = append(opts, serial.WithFloor(storage.floor))
	}
	if s.Protection.Ledger {
		opts = append(opts, serial.WithLedger(storage, blockSize))
	}
	if n := s.Protection.Replicas; n > 0 {
		opts = append(opts, serial.WithReplicas(n, 500*time.Millisecond))
	}
	gen, err := serial.New(client, opts...)
	return gen, func() error {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		return errors.Join(gen.Flush(ctx), client.Close(), storage.Close())
	}, err
}

// A message is a line that a worker writes to its standard output. It reports a call when it begins and when it ends,
// so even if the worker is killed, only unknown results are missing.
type message struct {
	Call   *call               `json:",omitempty"` // which begins if it has no end yet
	Unused *serial.Explanation `json:",omitempty"`
	Type   string              `json:",omitempty"` // of N numbers that a command without a reply may have taken
	N      int64               `json:",omitempty"`
}

// A worker issues numbers until its standard input ends.
type worker struct {
	setting
	gen *serial.Generator
	id  atomic.Int64
	out sync.Mutex
}

const workerVariable = "SERIAL_FAULTS_WORKER"

func workerMain(config string) error {
	w := &worker{}
	redis.SetLogger(silent{})
	err := json.Unmarshal([]byte(config), &w.setting)
	if err != nil {
		return err
	}
	if w.scheme, err = serial.NewScheme(w.options()...); err != nil {
		return err
	}
	var stop func() error
	if w.gen, stop, err = w.generator(redistest.Hook(w.send), func(e serial.Explanation) {
		e.Start, e.At = e.Start.UTC(), e.At.UTC() // JSON cuts the seconds off a zone's offset
		w.say(message{Unused: &e})
	}); err != nil {
		return err
	}
	quit := make(chan struct{})
	go func() {
		defer close(quit)
		_, _ = io.Copy(io.Discard, os.Stdin)
	}()
	var all sync.WaitGroup
	for i := range uint64(callers) {
		random := rand.New(rand.NewPCG(w.Seed, i))
		all.Go(func() {
			for {
				select {
				case <-quit:
					return
				case <-time.After(2*time.Millisecond + rand.N(10*time.Millisecond)):
					w.call(random)
				}
			}
		})
	}
	all.Wait()
	return stop()
}

// usedTypes are in use all the time; other types come and go, so that periods are opened often.
var usedTypes = []string{"T-00000001", "T-00000002", "T-00000003"}

// call makes a random call. Some have deadlines that are shorter than an opening.
func (w *worker) call(random *rand.Rand) {
	c := call{ID: w.id.Add(1), Type: usedTypes[random.IntN(len(usedTypes))], N: 1, Start: now()}
	if random.IntN(3) == 0 {
		c.Type = fmt.Sprintf("R-%08d", c.Start/5e8%1e8)
	}
	kind := random.IntN(20)
	if kind < 4 {
		c.N = 1 + random.Int64N(maxBatch)
	}
	hurry := 200*time.Microsecond + time.Duration(random.Int64N(2e7))
	ctx := context.Background()
	if limit := []time.Duration{0, 0, 2 * time.Second, hurry}[random.IntN(4)]; limit > 0 {
		limited, cancel := context.WithTimeout(ctx, limit)
		defer cancel()
		ctx = limited
	}
	if kind == 19 && w.Calendar != "for ever" && random.IntN(4) == 0 {
		_ = w.gen.Prepare(ctx, c.Type) // whatever it does, the numbers show it
		return
	}
	c.Once = kind == 4
	w.say(message{Call: &c})
	var first serial.Number
	var err error
	switch {
	case kind < 4:
		var numbers []serial.Number
		if numbers, err = w.gen.NextN(ctx, c.Type, int(c.N)); err == nil {
			first = numbers[0]
			if last := numbers[c.N-1]; last.Seq != first.Seq+c.N-1 || !last.Start.Equal(first.Start) {
				err = fmt.Errorf("%w: %v", errWrong, numbers)
			}
		}
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
	w.say(message{Call: &c})
}

var errWrong = errors.New("wrong result")

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

// send sends commands, and reports those that may have taken numbers without a reply. It is a redistest.Hook.
func (w *worker) send(ctx context.Context, cmds []redis.Cmder, next redis.ProcessPipelineHook) error {
	err := next(ctx, cmds)
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
			w.say(message{Type: typeIn(fmt.Sprint(cmd.Args()[3])), N: n})
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
