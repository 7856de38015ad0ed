package interleave

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/dailyserial/serial"
	"github.com/dailyserial/serial/internal/redistest"
	"github.com/dailyserial/serial/internal/redistest/memory"
	"github.com/dailyserial/serial/serialtest"
)

// Miniredis makes a new Lua state for every script that it runs. With Go's default, collecting them takes a third of
// the tests' CPU time.
func init() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(400)
	}
}

// A run is one order of the commands of a setting.
type run struct {
	setting
	redis  *memory.Redis
	ledger *serialtest.Ledger
	ctx    context.Context // ends the calls of crashed processes
	over   func()

	mu        sync.Mutex // guards all below, and the processes
	processes []*process
	released  bool           // no command is held back any more
	count     int            // commands held back so far
	owners    map[string]int // process that made each token of a lock
	issued    []string
	explained []serial.Explanation
	failed    []error
	byRequest map[string]string // the number of each request
	events    []event
	trace     []string // for a run that fails

	faulty     int // process that the fault concerns, -1 before the fault
	faultAt    time.Time
	suspended  int          // process that is suspended, or -1
	crashes    bool         // it crashes before its second command after that
	inTransit  *heldCommand // what a canceled call did not wait for
	arrivesAll bool         // that arrives when the other processes have ended
	isLost     bool         // Redis lost the counter, or everything
	lostPlain  bool         // the record had no ledger then
	nextDay    bool         // midnight has come
	midnightAt time.Time
}

// A process requests numbers.
type process struct {
	gen       *serial.Generator
	held      []*heldCommand // several, if a lock is released while the call goes on
	lastReply string
	results   []string // of all its calls, "" for an error
	issued    int      // count of numbers that it got
	cancel    context.CancelFunc
	canceled  bool
	crashed   bool
	done      bool
	doneAt    time.Time
}

// A heldCommand is held back until it is resumed with what happens to it.
type heldCommand struct {
	name   string
	resume chan string
	count  int // commands held back before it
}

var errCrashed = errors.New("this process has crashed")

// start starts the processes. If midnight is to come, it is so near that no call ends before it; otherwise it is so far
// away that the run ends before it.
func (s setting) start(t *testing.T, midnight bool) *run {
	m := memory.Start(t)
	r := &run{setting: s, redis: m, ledger: new(serialtest.Ledger), owners: map[string]int{},
		byRequest: map[string]string{}, faulty: -1, suspended: -1}
	r.ctx, r.over = context.WithCancel(context.Background())
	if s.has["yesterday"] {
		r.issueBefore(t)
		r.issued = nil
		time.Sleep(24 * time.Hour)
	}
	r.midnightAt = time.Now().Add(24 * time.Hour)
	remaining := 20 * time.Second
	if midnight {
		remaining = 1500 * time.Millisecond
	}
	time.Sleep(24*time.Hour - remaining)
	first := newGenerator(t, m.Client(), serial.WithLocation(time.UTC), serial.WithKeyPrefix("other"))
	_, err := first.NextOnce(t.Context(), "OTHER", "any") // the server knows the scripts
	require.NoError(t, err)
	if !s.has["yesterday"] {
		r.issueBefore(t)
	}
	for range s.processes {
		r.processes = append(r.processes, &process{})
	}
	for i, p := range r.processes {
		p.gen = newGenerator(t, m.Client(r.hook(i)), r.options(i)...)
		go func() {
			for nth := range s.each {
				r.call(i, nth)
			}
			r.mu.Lock()
			defer r.mu.Unlock()
			p.done, p.doneAt = true, time.Now()
		}()
	}
	return r
}

// issueBefore does what happened before the processes start.
func (r *run) issueBefore(t *testing.T) {
	gen := newGenerator(t, r.redis.Client(), r.options(beforeAll)...)
	n := 1
	if r.has["full block"] {
		n = block
	}
	switch {
	case r.has["prepared"]:
		require.NoError(t, gen.Prepare(t.Context(), "IS"))
	case r.has["opened"], r.has["full block"], r.has["yesterday"], r.has["lost"]:
		numbers, err := gen.NextN(t.Context(), "IS", n)
		require.NoError(t, err)
		r.issued = texts(numbers)
	}
	if r.has["lost"] {
		r.lose(r.counter())
	}
}

// These are not processes, but the generators that are used before and after all of them.
const beforeAll, afterAll = -2, -1

// options returns the options of a process's generator.
func (r *run) options(i int) []serial.Option {
	held := ledger{r.ledger, r, i}
	opts := []serial.Option{serial.WithLocation(time.UTC)}
	for _, o := range []struct {
		used   bool
		option serial.Option
	}{
		{r.hasLedger(i), serial.WithLedger(held, block)},
		{r.has["floor"], serial.WithFloor(held.floor)},
		{r.has["shared"], serial.WithSharedCounter()},
		{r.has["year"], serial.WithPeriod(serial.PerYear)},
		{r.has["two starts"] && r.isOperator(i) || r.has["Prepare"], serial.WithStart(lateStart)},
		{r.has["Takeover"] && r.isOperator(i), serial.WithLocation(west)},
	} {
		if o.used {
			opts = append(opts, o.option)
		}
	}
	return append(opts, serial.WithHooks(serial.Hooks{Unused: func(_ context.Context, e serial.Explanation) {
		r.mu.Lock()
		defer r.mu.Unlock()
		if i < 0 || !r.processes[i].crashed {
			r.explained = append(r.explained, e)
		}
	}}))
}

// hasLedger reports whether a generator has the ledger.
func (r *run) hasLedger(i int) bool {
	return r.has["ledger"] && !(r.has["mixed"] && (i == 0 || i == beforeAll))
}

// isOperator reports whether a process is the last one, which raises or takes over.
func (r *run) isOperator(i int) bool { return i == r.setting.processes-1 }

// call has a process request its nth number.
func (r *run) call(i, nth int) {
	p, typ, request := r.processes[i], "IS", ""
	ctx := context.Background() // a call whose context cannot end takes another path
	if r.fault == cancel {
		r.mu.Lock()
		p.canceled = false
		ctx, p.cancel = context.WithCancel(ctx)
		defer p.cancel()
		r.mu.Unlock()
	}
	if r.has["shared"] {
		typ = fmt.Sprint("T", i)
	}
	var err error
	switch {
	case nth > 0:
	case r.has["Prepare"]:
		err = p.gen.Prepare(ctx, typ)
	case r.has["Raise"] && r.isOperator(i):
		err = p.gen.Raise(ctx, typ, lateStart)
	case r.has["Takeover"] && r.isOperator(i):
		err = p.gen.Takeover(ctx, typ, 0)
	}
	var n serial.Number
	switch {
	case err != nil:
	case r.has["NextOnce"]:
		request = requestOf(i, nth)
		n, err = p.gen.NextOnce(ctx, typ, request)
	default:
		n, err = p.gen.NextNumber(ctx, typ)
	}
	if err == nil && r.has["Raise"] && r.isOperator(i) && n.Seq <= lateStart {
		err = fmt.Errorf("%s after Raise to %d", n, lateStart)
	}
	number := n.String()
	if r.has["shared"] && err == nil {
		number = "IS" + strings.TrimPrefix(number, typ) // two types must not have the same sequence
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	p.results = append(p.results, number)
	switch {
	case p.crashed || err != nil && r.mayGet(i, err):
	case err != nil:
		r.failed = append(r.failed, err)
	default:
		p.issued++
		if before := r.byRequest[request]; request == "" || before == "" {
			r.issued = append(r.issued, number)
		} else if before != number {
			r.failed = append(r.failed, fmt.Errorf("request %s got %s, and then %s", request, before, number))
		}
		if request != "" {
			r.byRequest[request] = number
		}
	}
}

// requestOf returns the ID of the nth request of a process. All processes have the first one.
func requestOf(i, nth int) string { return fmt.Sprintf("%d of %d", nth, i*min(nth, 1)) }

// mayGet reports whether a call of a process may fail with err. The caller holds mu.
func (r *run) mayGet(i int, err error) bool {
	switch {
	case errors.Is(err, context.Canceled):
		return r.processes[i].canceled
	case errors.Is(err, os.ErrDeadlineExceeded): // it was suspended until its time was over
		return r.fault == crash && r.faulty == i
	case strings.Contains(err.Error(), "NOPERM"):
		return r.fault == deny
	case errors.Is(err, serial.ErrCounterLost):
		return r.staysLost(r.hasLedger(i))
	case errors.Is(err, serial.ErrConflict):
		return r.has["mixed"] && !r.hasLedger(i) && r.recordHasLedger() || r.has["Takeover"]
	}
	return false
}

// staysLost reports whether calls fail because of a loss, until an operator helps.
func (r *run) staysLost(hasLedger bool) bool {
	return r.isLost && !r.has["floor"] && (!hasLedger || r.has["mixed"] && r.lostPlain)
}

// recordHasLedger reports whether the record says that the day has a ledger.
func (r *run) recordHasLedger() bool {
	return strings.HasSuffix(r.redis.HGet(r.record(), "entered"), " ledger")
}

// lose makes Redis lose a key, or everything.
func (r *run) lose(key string) {
	r.isLost, r.lostPlain = true, !r.recordHasLedger()
	if key == "" {
		r.redis.FlushAll()
	} else {
		r.redis.Del(key)
	}
}

// record returns the key of the record.
func (r *run) record() string {
	return map[bool]string{false: "serial:{IS}", true: "serial:{*}"}[r.has["shared"]]
}

// counter returns the key of the day's counter.
func (r *run) counter() string {
	return r.record() + time.Now().UTC().Format(map[bool]string{false: ":20060102", true: ":2006"}[r.has["year"]])
}

// send has a process send a command when it is its turn, or suffer what the run has chosen.
func (r *run) send(ctx context.Context, i int, name string, command func(ctx context.Context) error) error {
	what := r.hold(i, name)
	switch what {
	case crashes:
		return r.crash(i)
	case cancels:
		r.cancel(i, false)
		if err := ctx.Err(); err != nil {
			return err
		}
	case cancelsInFlight, cancelsHanging:
		r.cancel(i, true)
	}
	if command, denied := strings.CutPrefix(what, deniesOnce); denied {
		r.redis.Deny(command)
		defer r.redis.Deny("")
	} else if command, denied := strings.CutPrefix(what, denies); denied {
		r.redis.Deny(command)
	}
	err := command(context.WithoutCancel(ctx)) // however late, it is in the network already
	switch what {
	case cancelsAfter:
		r.cancel(i, true)
	case crashesAfter:
		return r.crash(i)
	}
	return err
}

// hold holds a command back until it is resumed, and returns what happens to it.
func (r *run) hold(i int, name string) (what string) {
	r.mu.Lock()
	c, p := &heldCommand{name, make(chan string, 1), r.count}, r.processes[i]
	switch {
	case p.crashed:
		c.resume <- crashes
	case r.released:
		c.resume <- proceeds
	default:
		r.count++
		p.held = append(p.held, c)
	}
	r.mu.Unlock()
	return <-c.resume
}

func (r *run) crash(i int) error {
	r.mu.Lock()
	r.processes[i].crashed = true
	r.mu.Unlock()
	<-r.ctx.Done()
	return errCrashed
}

// cancel ends the context of a process's call. A command that is in transit waits for its turn.
func (r *run) cancel(i int, transit bool) {
	c, p := &heldCommand{resume: make(chan string, 1)}, r.processes[i]
	r.mu.Lock()
	p.canceled = true
	p.cancel()
	if transit && !r.released {
		r.inTransit = c
	} else {
		c.resume <- arrives
	}
	r.mu.Unlock()
	<-c.resume
}

// release holds nothing back any more.
func (r *run) release() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.released = true
	if r.inTransit != nil {
		r.inTransit.resume <- arrives
		r.inTransit = nil
	}
	for _, p := range r.processes {
		for _, c := range p.held {
			c.resume <- proceeds
		}
		p.held = nil
	}
}

// hook holds every command of a process's client back, also those of a pipeline, one after the other.
func (r *run) hook(i int) redis.Hook {
	return redistest.Hook(func(ctx context.Context, cmds []redis.Cmder, next redis.ProcessPipelineHook) (failure error) {
		replies := "" // to the commands of the pipeline so far
		for nth, cmd := range cmds {
			name := r.nameOf(i, cmd)
			if name == "" { // it sets a connection up
				failure = cmp.Or(failure, next(ctx, cmds[nth:nth+1]))
				continue
			}
			err := r.send(ctx, i, name, func(ctx context.Context) error { return next(ctx, cmds[nth:nth+1]) })
			if err != nil {
				cmd.SetErr(err)
			}
			replies += fmt.Sprint(name, " ", err)
			if value, ok := cmd.(interface{ Val() any }); ok { // the library's commands embed a *redis.Cmd
				replies += fmt.Sprint(value.Val())
			}
			r.noteReply(i, replies)
			if err != nil && (err == errCrashed || err == ctx.Err()) { // nothing more is sent
				for _, later := range cmds[nth+1:] {
					later.SetErr(err)
				}
				return err
			}
			failure = cmp.Or(failure, err)
			replies += ", "
		}
		return failure
	})
}

func (r *run) noteReply(i int, reply string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.processes[i].lastReply = reply
}

// nameOf describes the purpose of a command of a process. It returns "" if the command is not the library's.
func (r *run) nameOf(i int, cmd redis.Cmder) string {
	args := cmd.Args()
	options, _ := args[len(args)-1].(string)
	switch {
	case cmd.Name() == "set":
		r.mu.Lock()
		defer r.mu.Unlock()
		r.owners[fmt.Sprint(args[2])] = i
		return "lock"
	case !strings.HasPrefix(cmd.Name(), "eval"):
		return ""
	case fmt.Sprint(args[2]) == "1":
		return fmt.Sprint("release ", args[3])
	case strings.HasPrefix(options, "{"):
		options = strings.Join(regexp.MustCompile(`"(grant|next|once)":`).FindAllString(options, -1), " ")
	}
	return fmt.Sprint("take ", options, " ", args[3])
}

// A ledger is the ledger and the floor of one process. Its requests are held back as commands are.
type ledger struct {
	*serialtest.Ledger
	r *run
	i int // negative if nothing is held back
}

func (l ledger) Reserve(ctx context.Context, reservation serial.Reservation) (int64, error) {
	return l.ask(ctx, "reserve", func(ctx context.Context) (int64, error) { return l.Ledger.Reserve(ctx, reservation) })
}

// floor returns the greatest number issued, and more if others may have been issued that were lost.
func (l ledger) floor(ctx context.Context, _ string, start time.Time) (int64, error) {
	return l.ask(ctx, "floor", func(context.Context) (last int64, err error) {
		l.r.mu.Lock()
		defer l.r.mu.Unlock()
		for _, number := range l.r.issued {
			if strings.HasPrefix(number, "IS"+start.Format("20060102")) {
				last = max(last, sequence(number))
			}
		}
		return last + map[bool]int64{true: margin}[l.r.isLost], nil
	})
}

func (l ledger) ask(ctx context.Context, name string, reply func(context.Context) (int64, error)) (n int64, err error) {
	if l.i < 0 {
		return reply(ctx)
	}
	if err = l.r.send(ctx, l.i, name, func(ctx context.Context) error {
		n, err = reply(ctx)
		return err
	}); err != nil {
		return 0, err
	}
	l.r.noteReply(l.i, fmt.Sprint(name, " ", n))
	return n, nil
}

// await lets time pass until ready is true for every process. It calls ready with mu held.
func (r *run) await(t *testing.T, ready func(p *process) bool) {
	for tries := 0; ; tries++ {
		synctest.Wait()
		r.mu.Lock()
		waiting := slices.ContainsFunc(r.processes, func(p *process) bool { return !ready(p) })
		r.mu.Unlock()
		if !waiting {
			return
		}
		require.Less(t, tries, 100_000, "a process waits for ever")
		time.Sleep(2 * time.Millisecond)
	}
}

func newGenerator(t *testing.T, client redis.UniversalClient, opts ...serial.Option) *serial.Generator {
	gen, err := serial.New(client, opts...)
	require.NoError(t, err)
	return gen
}
