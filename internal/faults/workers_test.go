//go:build unix

package faults

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/rpc"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"

	"github.com/dailyserial/serial"
	"github.com/dailyserial/serial/internal/redistest"
	core "github.com/dailyserial/serial/internal/series"
)

// A setting is the configuration of a generator, here or in a worker.
type setting struct {
	Topology string
	protection
	Calendar string // a key of calendars
	Addrs    []string
	Zone     int // seconds east of UTC
	Worker   int // its number
	Seed     uint64
	scheme   *serial.Scheme // of the options
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

// client returns a client with hooks. In a cluster, the clients of the nodes have the hooks, since every attempt and
// every pipeline passes them.
func (s setting) client(hooks ...redis.Hook) redis.UniversalClient {
	o := redis.UniversalOptions{Addrs: s.Addrs, MasterName: "serial", DialTimeout: time.Second,
		ReadTimeout: readTimeout, WriteTimeout: time.Second}
	hooked := func(c *redis.Client) *redis.Client {
		for _, hook := range hooks {
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

// A worker issues numbers until the suite ends it, or is the suite's operator.
type worker struct {
	setting
	journal *rpc.Client
	gen     *serial.Generator
}

// tell sends a message to the journal.
func (w *worker) tell(m Message) (reply int64, err error) {
	err = w.journal.Call("Journal.Tell", m, &reply)
	return reply, err
}

// Pipes connect a worker and the suite.
type pipes struct {
	io.Reader
	io.WriteCloser
}

// newWorker returns a worker, and a function that ends its connections to Redis.
func newWorker(s setting, connection io.ReadWriteCloser) (w *worker, stop func() error, err error) {
	w = &worker{setting: s, journal: rpc.NewClient(connection)}
	client := s.client(redistest.Hook(w.send))
	opts := append(s.options(), serial.WithHooks(serial.Hooks{
		Unused: func(_ context.Context, e serial.Explanation) { _, _ = w.tell(Message{Unused: &e}) },
	}))
	if s.Floor {
		opts = append(opts, serial.WithFloor(w.floor))
	}
	if s.Ledger {
		opts = append(opts, serial.WithLedger(w, blockSize))
	}
	if n := s.Replicas; n > 0 {
		opts = append(opts, serial.WithReplicas(n, 500*time.Millisecond))
	}
	w.gen, err = serial.New(client, opts...)
	return w, func() error {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		return errors.Join(w.gen.Flush(ctx), client.Close())
	}, err
}

// Reserve implements serial.Ledger. It never returns the error of ctx, because the worker would take this for the end of
// its own context.
func (w *worker) Reserve(ctx context.Context, r serial.Reservation) (last int64, err error) {
	delay, err := w.tell(Message{Delay: true})
	if err == nil {
		err = sleep(ctx, time.Duration(delay))
	}
	if err == nil {
		last, err = w.tell(Message{Reserve: &r})
	}
	if err == nil {
		err = sleep(ctx, time.Duration(-delay))
	}
	return last, err
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return errors.New("the reservation took too long")
	}
}

func (w *worker) floor(_ context.Context, typ string, start time.Time) (int64, error) {
	return w.tell(Message{FloorOf: typ, InPeriod: w.period(start)})
}

const workerVariable = "SERIAL_FAULTS_WORKER"

func workerMain(config string) error {
	var s setting
	err := json.Unmarshal([]byte(config), &s)
	if err != nil {
		return err
	}
	if s.scheme, err = serial.NewScheme(s.options()...); err != nil {
		return err
	}
	w, stop, err := newWorker(s, pipes{os.Stdin, os.Stdout})
	if err != nil {
		return err
	}
	var all sync.WaitGroup
	for i := range uint64(callers) {
		random := rand.New(rand.NewPCG(s.Seed, i))
		all.Go(func() {
			for w.call(random) {
				time.Sleep(2*time.Millisecond + rand.N(10*time.Millisecond))
			}
		})
	}
	all.Wait()
	return stop()
}

// usedTypes are in use all the time; other types come and go, so that periods are opened often.
var usedTypes = []string{"T-00000001", "T-00000002", "T-00000003"}

// call makes a random call, unless the suite has ended. Some have deadlines that are shorter than an opening.
func (w *worker) call(random *rand.Rand) (goesOn bool) {
	c := Call{Worker: w.Worker, Type: usedTypes[random.IntN(len(usedTypes))], N: 1}
	if random.IntN(3) == 0 {
		c.Type = fmt.Sprintf("R-%08d", now()/5e8%1e8)
	}
	kind := random.IntN(20)
	if kind < 4 {
		c.N = 1 + random.Int64N(maxBatch)
	}
	c.Once = kind == 4
	hurry := 200*time.Microsecond + time.Duration(random.Int64N(2e7))
	ctx := context.Background()
	if limit := []time.Duration{0, 0, 2 * time.Second, hurry}[random.IntN(4)]; limit > 0 {
		limited, cancel := context.WithTimeout(ctx, limit)
		defer cancel()
		ctx = limited
	}
	if kind == 19 && w.Calendar != "for ever" && random.IntN(4) == 0 {
		_ = w.gen.Prepare(ctx, c.Type) // whatever it does, the numbers show it
		return true
	}
	var err error
	if c.ID, err = w.tell(Message{Begin: &c}); err != nil || c.ID == 0 {
		return false
	}
	c.Start = now()
	numbers := make([]serial.Number, 1)
	switch {
	case kind < 4:
		numbers, err = w.gen.NextN(ctx, c.Type, int(c.N))
	case c.Once:
		request := fmt.Sprint(c.ID)
		numbers[0], err = w.gen.NextOnce(ctx, c.Type, request)
		if err == nil && !w.Ledger { // with a ledger, Redis may lose the answer
			again, repeated := w.gen.NextOnce(ctx, c.Type, request)
			if repeated == nil && again.String() != numbers[0].String() {
				err = fmt.Errorf("%w: %s, and then %s", errWrong, numbers[0], again)
			}
		}
	default:
		numbers[0], err = w.gen.NextNumber(ctx, c.Type)
	}
	c.End = now()
	if err == nil {
		first, last := numbers[0], numbers[len(numbers)-1]
		c.Period, c.First, c.Last = w.period(first.Start), first.Seq, last.Seq
		if last.Seq-first.Seq+1 != c.N || !last.Start.Equal(first.Start) {
			err = fmt.Errorf("%w: %v", errWrong, numbers)
		}
	}
	if err != nil {
		c.Failure, c.Text = class(ctx, err), fmt.Sprintf("%s: %v", clock(c.End), err)
	}
	_, err = w.tell(Message{End: &c})
	return err == nil
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
	if limited && !time.Now().Before(deadline) && !errors.Is(err, context.Canceled) { // its timer may not have fired yet
		return "deadline"
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return "misleading"
	}
	return "failed"
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
			_, _ = w.tell(Message{Lost: &Call{Type: typePattern.FindString(fmt.Sprint(cmd.Args()[3])), N: n}})
		}
	}
	return err
}

// Every type of the suite has such a name, so it is found in any key.
var typePattern = regexp.MustCompile(`[TR]-\d{8}`)

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

// Workers are the processes that issue. One that is killed is replaced by a new one, which remembers nothing.
type workers struct {
	t       *testing.T
	setting setting
	journal *journal

	mu       sync.Mutex
	alive    []*process
	started  int
	killed   int
	stopping bool
	all      sync.WaitGroup
}

// A process is a worker as seen from outside.
type process struct {
	*exec.Cmd
	number int
	doomed bool // was killed
}

func startWorkers(t *testing.T, s setting, j *journal, n int) *workers {
	w := &workers{t: t, setting: s, journal: j}
	t.Cleanup(func() { // if the test failed at once
		w.end()
		w.replace()
		w.all.Wait()
	})
	w.mu.Lock()
	defer w.mu.Unlock()
	for range n {
		w.start()
	}
	return w
}

// start starts a worker, unless all are to end. The caller holds mu.
func (w *workers) start() {
	if w.stopping {
		return
	}
	w.started++
	own := w.setting
	own.Worker, own.Seed = w.started, own.Seed+uint64(w.started)
	config, _ := json.Marshal(own)
	p := &process{Cmd: exec.Command(os.Args[0]), number: w.started}
	// A race ends the worker at once. In its own process group, it does not stay suspended if this one dies.
	p.Env = append(os.Environ(), workerVariable+"="+string(config), "GORACE=halt_on_error=1")
	p.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	p.Stderr = os.Stderr
	stdout, err1 := p.StdoutPipe()
	stdin, err2 := p.StdinPipe()
	if err := errors.Join(err1, err2, p.Start()); err != nil {
		w.t.Errorf("worker: %v", err)
		return
	}
	w.alive = append(w.alive, p)
	w.all.Go(func() {
		w.journal.server.ServeConn(pipes{stdout, stdin}) // until the worker has ended
		err := p.Wait()
		w.mu.Lock()
		defer w.mu.Unlock()
		w.remove(p)
		killed := p.doomed && p.ProcessState.ExitCode() == -1 // by a signal
		if killed {
			w.killed++
		} else if err != nil || !w.stopping {
			w.t.Errorf("worker %d: %v", p.number, err)
		}
		w.journal.set(func() { w.journal.dead[p.number] = killed })
	})
}

// strike lets something happen to a worker.
func (w *workers) strike(s step) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.alive) == 0 {
		return
	}
	switch p := w.alive[s.which%len(w.alive)]; s.worker {
	case killed:
		w.kill(p)
	case suspended:
		if p.Process.Signal(syscall.SIGSTOP) == nil {
			w.disturb(s.pause)
			time.AfterFunc(s.pause, func() { _ = p.Process.Signal(syscall.SIGCONT) })
		}
	}
}

// kill kills a worker, and starts another one. The caller holds mu.
func (w *workers) kill(p *process) {
	p.doomed = true
	_ = p.Process.Kill()
	w.remove(p)
	w.disturb(0)
	w.start()
}

// disturb notes that a worker was just killed or suspended, with any reservation that it was making.
func (w *workers) disturb(pause time.Duration) {
	w.journal.mayLoseBlocks(now()-int64(time.Second), now()+int64(pause+time.Second), 1)
}

func (w *workers) remove(p *process) {
	w.alive = slices.DeleteFunc(w.alive, func(other *process) bool { return other == p })
}

// replace replaces all workers.
func (w *workers) replace() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, p := range slices.Clone(w.alive) {
		w.kill(p)
	}
}

// waiting returns the workers and types without a successful call that began after since.
func (w *workers) waiting(since int64) (missing []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.alive) == 0 {
		return []string{"no worker is alive"}
	}
	w.journal.set(func() {
		for _, p := range w.alive {
			for _, typ := range usedTypes {
				if w.journal.latest[fmt.Sprint(p.number, typ)] < since {
					missing = append(missing, fmt.Sprintf("worker %d %s", p.number, typ))
				}
			}
		}
	})
	return missing
}

// end tells all workers to end.
func (w *workers) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stopping = true
	w.journal.set(func() { w.journal.stopping = true })
}

// stop has all workers end, and returns when they have reported everything.
func (w *workers) stop() {
	w.end()
	overdue := time.AfterFunc(45*time.Second, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		for _, p := range w.alive {
			w.t.Errorf("worker %d did not end", p.number)
			_ = p.Process.Signal(syscall.SIGQUIT)
			_ = p.Process.Signal(syscall.SIGCONT) // a suspended process does not notice
		}
	})
	w.all.Wait()
	overdue.Stop()
}

func TestMain(m *testing.M) {
	logging.Disable()
	if config := os.Getenv(workerVariable); config != "" {
		if err := workerMain(config); err != nil {
			fmt.Fprintln(os.Stderr, "worker:", err)
			os.Exit(1)
		}
		return
	}
	redistest.RunAtOnce(4)
	os.Exit(m.Run())
}
