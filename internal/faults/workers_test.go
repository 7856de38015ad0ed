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
	"github.com/stretchr/testify/require"

	"github.com/dailyserial/serial"
	"github.com/dailyserial/serial/internal/redistest"
	inner "github.com/dailyserial/serial/internal/series"
)

// A setting is the configuration of a run, and of the generators of its workers.
type setting struct {
	Name     string
	Topology string
	protection
	Calendar string // a key of calendars
	Addrs    []string
	Zone     int // seconds east of UTC
	Worker   int // its number
	Seed     uint64
}

// A protection says what protects the generators' numbers from losses.
type protection struct {
	Ledger   bool
	Replicas int
}

// calendars are the calendars by name; most runs use "".
var calendars = map[string][]serial.Option{
	"": {serial.WithTemplate("{type}-{date:yyyyMMdd}-{seq:12}")},
	// The date prints more than the period.
	"years":    {serial.WithPeriod(serial.PerYear), serial.WithTemplate("{type}-{date:yyyyMMdd}-{seq:12}{check:97-10}")},
	"for ever": {serial.WithPeriod(serial.Never), serial.WithTemplate("{type}-{seq:9:base32}")},
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

// periodOf returns the label of the period in which an instant is, given in nanoseconds since 1970.
func periodOf(scheme *serial.Scheme, ns int64) string {
	label, _, _ := scheme.Period(serial.At(time.Unix(0, ns)))
	return label
}

// now returns the time by this process's monotonic clock, added to the wall clock at its start: such times are
// comparable between processes, provided that the host's clock is not set while the suite runs.
func now() int64 { return started.UnixNano() + int64(time.Since(started)) }

var started = time.Now()

// A worker issues numbers in a process of its own until the suite ends it.
type worker struct {
	setting
	journal *rpc.Client
	gen     *serial.Generator
}

// Pipes connect a worker and the suite.
type pipes struct {
	io.Reader
	io.WriteCloser
}

const workerVariable = "SERIAL_FAULTS_WORKER"

// workerMain runs a worker with a setting in JSON.
func workerMain(config string) error {
	w := &worker{journal: rpc.NewClient(pipes{os.Stdin, os.Stdout})}
	err := json.Unmarshal([]byte(config), &w.setting)
	if err != nil {
		return err
	}
	o := &redis.UniversalOptions{Addrs: w.Addrs, DialTimeout: time.Second, ReadTimeout: readTimeout,
		WriteTimeout: time.Second}
	if w.Topology == "sentinel" {
		o.MasterName = "serial"
	}
	client := redis.NewUniversalClient(o)
	if cluster, ok := client.(*redis.ClusterClient); ok { // every attempt and every pipeline passes the nodes' hooks
		cluster.OnNewNode(func(c *redis.Client) { c.AddHook(redistest.Hook(w.send)) })
	} else {
		client.AddHook(redistest.Hook(w.send))
	}
	opts := append(w.options(), serial.WithHooks(serial.Hooks{
		Unused: func(_ context.Context, e serial.Explanation) { _, _ = w.tell("Unused", e) },
	}))
	if w.Ledger {
		opts = append(opts, serial.WithLedger(w, blockSize))
	}
	if w.Replicas > 0 {
		opts = append(opts, serial.WithReplicas(w.Replicas, 500*time.Millisecond))
	}
	if w.gen, err = serial.New(client, opts...); err != nil {
		return err
	}
	var all sync.WaitGroup
	for i := range uint64(callers) {
		random := rand.New(rand.NewPCG(w.Seed, i))
		all.Go(func() {
			for w.step(random) {
				time.Sleep(2*time.Millisecond + rand.N(10*time.Millisecond))
			}
		})
	}
	all.Wait()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	return errors.Join(w.gen.Flush(ctx), client.Close())
}

// tell calls a method of the journal.
func (w *worker) tell(method string, what any) (reply int64, err error) {
	err = w.journal.Call("Journal."+method, what, &reply)
	return reply, err
}

// Reserve implements serial.Ledger. It never returns the error of ctx, because the generator would take this for the end
// of the caller's context.
func (w *worker) Reserve(ctx context.Context, r serial.Reservation) (int64, error) {
	last := new(int64)
	select {
	case call := <-w.journal.Go("Journal.Reserve", r, last, nil).Done:
		return *last, call.Error
	case <-ctx.Done():
		return 0, errors.New("the reservation took too long")
	}
}

// usedTypes are in use all the time; other types come and go, so that periods are opened often.
var usedTypes = []string{"T-00000001", "T-00000002", "T-00000003"}

// step makes a random call, unless the suite has ended. Some have deadlines that are shorter than an opening.
func (w *worker) step(random *rand.Rand) (goesOn bool) {
	c := Call{Worker: w.Worker, Type: usedTypes[random.IntN(len(usedTypes))], N: 1}
	if random.IntN(3) == 0 {
		c.Type = fmt.Sprintf("R-%08d", now()/5e8%1e8)
	}
	hurry := 200*time.Microsecond + time.Duration(random.Int64N(2e7))
	ctx, cancel := context.Background(), func() {}
	if limit := []time.Duration{0, 0, 2 * time.Second, hurry}[random.IntN(4)]; limit > 0 {
		ctx, cancel = context.WithTimeout(ctx, limit)
	}
	defer cancel()
	switch kind := random.IntN(80); {
	case kind < 16:
		c.N = 1 + random.Int64N(maxBatch)
	case kind < 20:
		c.Once = true
	case kind == 20 && w.Calendar != "for ever":
		_ = w.gen.Prepare(ctx, c.Type) // whatever it does, the numbers show it
		return true
	}
	var err error
	if c.ID, err = w.tell("Begin", c); err != nil || c.ID == 0 {
		return false
	}
	c.Start = now()
	numbers := make([]serial.Number, 1)
	switch {
	case c.N > 1:
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
		c.Period, c.First, c.Last = periodOf(w.gen.Scheme(), first.Start.UnixNano()), first.Seq, last.Seq
		if last.Seq-first.Seq+1 != c.N || !last.Start.Equal(first.Start) {
			err = fmt.Errorf("%w: %v", errWrong, numbers)
		}
	}
	if err != nil {
		c.Failure, c.Text = class(ctx, err), fmt.Sprintf("%s: %v", clock(c.End), err)
	}
	_, err = w.tell("End", c)
	return err == nil
}

var errWrong = errors.New("wrong result")

// class sorts errors by what they mean to the caller.
func class(ctx context.Context, err error) string {
	for _, meaning := range []error{serial.ErrCounterLost, serial.ErrNotReplicated, serial.ErrClockSkew,
		serial.ErrConflict, serial.ErrExhausted, serial.ErrInvalidType, errWrong} {
		if errors.Is(err, meaning) {
			return meaning.Error()
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
			_, _ = w.tell("Lost", Call{Type: typePattern.FindString(fmt.Sprint(cmd.Args()[3])), N: n})
		}
	}
	return err
}

// Every type of the suite has such a name, so it is found in any key.
var typePattern = regexp.MustCompile(`[TR]-\d{8}`)

// taken returns how many numbers a command takes if it is the library's script. They are its sixth argument after the
// keys.
func taken(cmd redis.Cmder) (n int64) {
	args, keys, script := cmd.Args(), 0, inner.SerialScript
	if !strings.HasPrefix(cmd.Name(), "eval") || args[1] != script.Digest && args[1] != script.Source {
		return 0
	}
	_, _ = fmt.Sscan(fmt.Sprint(args[2]), &keys)
	_, _ = fmt.Sscan(fmt.Sprint(args[3+keys+5]), &n)
	return n
}

// A process is a worker as the suite sees it. One that is killed is replaced by a new one, which remembers nothing.
type process struct {
	*exec.Cmd
	number int
	killed bool
	ended  chan struct{} // closed once the worker has ended and everything that it has told is in the journal
	err    error         // the result
}

// start starts a worker.
func (e *env) start() {
	s := e.setting
	s.Worker = len(e.processes) + 1
	s.Seed += uint64(s.Worker)
	config, err := json.Marshal(s)
	require.NoError(e.t, err)
	p := &process{Cmd: exec.Command(os.Args[0]), number: s.Worker, ended: make(chan struct{})}
	// A race ends the worker at once. In its own process group, it does not stay suspended if this one dies.
	p.Env = append(os.Environ(), workerVariable+"="+string(config), "GORACE=halt_on_error=1")
	p.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	p.Stderr = os.Stderr
	stdout, err1 := p.StdoutPipe()
	stdin, err2 := p.StdinPipe()
	require.NoError(e.t, errors.Join(err1, err2, p.Start()))
	e.processes = append(e.processes, p)
	go func() {
		defer close(p.ended)
		e.journal.server.ServeConn(pipes{stdout, stdin}) // until the worker has ended
		p.err = p.Wait()
	}()
	e.t.Cleanup(func() { // if the test failed at once
		_ = p.Process.Kill()
		<-p.ended
	})
}

// alive returns the workers that were not killed.
func (e *env) alive() []*process {
	return slices.DeleteFunc(slices.Clone(e.processes), func(p *process) bool { return p.killed })
}

// replace kills workers, and starts as many. Each may lose the block that it was reserving, and not have reported another
// one.
func (e *env) replace(workers ...*process) {
	for _, p := range workers {
		p.killed = true
		e.journal.set(func() { e.journal.dead[p.number] = true })
		_ = p.Process.Kill()
		e.spent += 2
		e.start()
	}
}

// stop has all workers end, and returns when they have reported everything.
func (e *env) stop() {
	e.journal.set(func() { e.journal.stopping = true })
	overdue, cancel := context.WithTimeout(context.Background(), 45*time.Second)
	defer cancel()
	for _, p := range e.processes {
		select {
		case <-p.ended:
		case <-overdue.Done():
			e.t.Errorf("worker %d did not end", p.number)
			_ = p.Process.Signal(syscall.SIGQUIT)
			<-p.ended
		}
		if p.err != nil && !(p.killed && p.ProcessState.ExitCode() == -1) { // by a signal
			e.t.Errorf("worker %d: %v", p.number, p.err)
		}
	}
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
