package interleave

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
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

// A run is one order of the commands of a setting.
type run struct {
	setting
	redis    *memory.Redis
	ledger   serialtest.Ledger
	midnight time.Time // end of the day on which the processes start

	mu        sync.Mutex // guards all below, and the processes
	processes []*process
	held      []*heldCommand
	released  bool                     // no command is held back any more
	issued    map[string]serial.Number // by request
	explained []serial.Explanation
	events    []event

	met       *event // the fault, or nil before it
	faultAt   time.Time
	suspended bool // the process that met the fault is suspended
	isLost    bool // Redis lost the counter, or everything
	lostPlain bool // the record had no ledger then
}

// A process requests numbers.
type process struct {
	gen     *serial.Generator
	replies [2]string // the last two, because a pipeline has two commands
	results []string  // of all its calls, "" for an error
	cancel  context.CancelFunc
	crashed bool
	done    bool
	doneAt  time.Time
}

// A heldCommand is held back until it is resumed with what happens to it. A process has several of them if it
// releases a lock and sends another command at the same time.
type heldCommand struct {
	process int
	name    string
	since   time.Time
	late    bool // its call was canceled, or its process has crashed
	resume  chan string
}

var errCrashed = errors.New("this process has crashed")

const beforeAll, afterAll = -2, -1 // generators that are used before and after all processes

// start starts the processes. If midnight may come, it is so near that no lock expires before it; otherwise it is so
// far away that the run ends before it.
func (s setting) start(t *testing.T) *run {
	r := &run{setting: s, redis: memory.Start(t), issued: map[string]serial.Number{}}
	remaining := 20 * time.Second
	if s.has("midnight") {
		remaining = 1500 * time.Millisecond
	}
	r.midnight = time.Now().Add(24 * time.Hour)
	time.Sleep(24*time.Hour - remaining)
	before := r.newGenerator(t, beforeAll)
	_, err := before.NextOnce(t.Context(), "OTHER", "any") // the server knows the scripts
	require.NoError(t, err)
	if s.has("opened") {
		numbers, err := before.NextN(t.Context(), "IS", block)
		require.NoError(t, err)
		for i, n := range numbers {
			r.issued[fmt.Sprint("before ", i)] = n
		}
	}
	if s.has("lost") {
		r.lose()
	}
	for i := range s.processes {
		r.processes = append(r.processes, &process{gen: r.newGenerator(t, i)})
	}
	for i, p := range r.processes {
		go func() {
			for nth := range s.each {
				r.call(t, i, nth)
			}
			r.mu.Lock()
			defer r.mu.Unlock()
			p.done, p.doneAt = true, time.Now()
		}()
	}
	return r
}

// newGenerator returns the generator of a process.
func (r *run) newGenerator(t *testing.T, i int) *serial.Generator {
	held := ledger{&r.ledger, r, i}
	opts := []serial.Option{serial.WithLocation(time.UTC)}
	for _, o := range []struct {
		used   bool
		option serial.Option
	}{
		{r.hasLedger(i), serial.WithLedger(held, block)},
		{r.has("floor"), serial.WithFloor(held.floor)},
		{r.has("year"), serial.WithPeriod(serial.PerYear)},
		{r.has("two starts") && r.isOperator(i), serial.WithStart(lateStart)},
		{r.has("Takeover") && r.isOperator(i), serial.WithLocation(time.FixedZone("west", -3600))},
	} {
		if o.used {
			opts = append(opts, o.option)
		}
	}
	opts = append(opts, serial.WithHooks(serial.Hooks{Unused: func(_ context.Context, e serial.Explanation) {
		r.mu.Lock()
		defer r.mu.Unlock()
		if i < 0 || !r.processes[i].crashed {
			r.explained = append(r.explained, e)
		}
	}}))
	gen, err := serial.New(r.redis.Client(r.hook(i)), opts...)
	require.NoError(t, err)
	return gen
}

// hasLedger reports whether a generator has the ledger.
func (r *run) hasLedger(i int) bool {
	return r.has("ledger") && !(r.has("mixed") && (i == 0 || i == beforeAll))
}

// isOperator reports whether a process is the last one, which raises or takes over.
func (r *run) isOperator(i int) bool { return i == r.setting.processes-1 }

// nextDay reports whether midnight has come.
func (r *run) nextDay() bool { return !time.Now().Before(r.midnight) }

// call has a process request its nth number.
func (r *run) call(t *testing.T, i, nth int) {
	p := r.processes[i]
	ctx := context.Background() // a call whose context cannot end takes another path
	if r.fault == cancel {
		r.mu.Lock()
		ctx, p.cancel = context.WithCancel(ctx)
		defer p.cancel()
		r.mu.Unlock()
	}
	var err error
	switch {
	case nth > 0:
	case r.has("Prepare"):
		err = p.gen.Prepare(ctx, "IS")
	case r.has("Raise") && r.isOperator(i):
		err = p.gen.Raise(ctx, "IS", lateStart)
	case r.has("Takeover") && r.isOperator(i):
		err = p.gen.Takeover(ctx, "IS", 0)
	}
	request := fmt.Sprint(nth)
	var n serial.Number
	switch {
	case err != nil:
	case r.has("NextOnce"):
		n, err = p.gen.NextOnce(ctx, "IS", request)
	default:
		request = fmt.Sprint(nth, " of ", i)
		n, err = p.gen.NextNumber(ctx, "IS")
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	p.results = append(p.results, n.String())
	switch before, repeated := r.issued[request]; {
	case p.crashed || err != nil && r.mayGet(i, err):
	case err != nil:
		t.Error(err)
	case r.has("Raise") && r.isOperator(i) && n.Seq <= lateStart:
		t.Errorf("%s after Raise to %d", n, lateStart)
	case repeated && before.String() != n.String():
		t.Errorf("a request got %s, and then %s", before, n)
	default:
		r.issued[request] = n
	}
}

// mayGet reports whether a call of a process may fail with err. The caller holds mu.
func (r *run) mayGet(i int, err error) bool {
	switch {
	case errors.Is(err, context.Canceled), errors.Is(err, os.ErrDeadlineExceeded): // the latter after a suspension
		return r.met != nil && r.met.process == i
	case strings.Contains(err.Error(), "NOPERM"):
		return r.fault == deny
	case errors.Is(err, serial.ErrCounterLost):
		return r.staysLost(i)
	case errors.Is(err, serial.ErrConflict):
		return r.has("mixed") && !r.hasLedger(i) && r.recordHasLedger() || r.has("Takeover")
	}
	return false
}

// staysLost reports whether calls of a process fail because of a loss, until an operator helps.
func (r *run) staysLost(i int) bool {
	return r.isLost && !r.has("floor") && (!r.hasLedger(i) || r.has("mixed") && r.lostPlain)
}

// recordHasLedger reports whether the record says that the day has a ledger.
func (r *run) recordHasLedger() bool {
	return strings.HasSuffix(r.redis.HGet(record, "entered"), " ledger")
}

// lose makes Redis lose the counter, or everything.
func (r *run) lose() {
	r.isLost, r.lostPlain = true, !r.recordHasLedger()
	r.redis.Del(r.counter())
	if r.fault == loseAll {
		r.redis.FlushAll()
	}
}

// counter returns the key of the day's counter.
func (r *run) counter() string { return record + time.Now().UTC().Format(":20060102") }

// send has a process send a command when it is its turn, or suffer what the run has chosen.
func (r *run) send(ctx context.Context, i int, name string, command func(ctx context.Context) (any, error)) error {
	if i < 0 { // nothing is held back before and after all processes
		_, err := command(ctx)
		return err
	}
	p, what := r.processes[i], r.hold(i, name, false)
	if what == crashes {
		return errCrashed
	}
	reply, err := command(context.WithoutCancel(ctx)) // however late, it is in the network already
	r.mu.Lock()
	p.replies = [2]string{p.replies[1], fmt.Sprint(name, " ", reply, " ", err)}
	if what == cancelsAfter {
		p.cancel()
	}
	r.mu.Unlock()
	if (what == cancelsAfter || what == crashesAfter) && r.hold(i, name, true) == crashes {
		return errCrashed
	}
	return err
}

// hold holds a command or its reply back until it is resumed, and returns what happens to it.
func (r *run) hold(i int, name string, late bool) (what string) {
	c := &heldCommand{i, name, time.Now(), late, make(chan string, 1)}
	r.mu.Lock()
	r.held = append(r.held, c)
	released := r.released
	r.mu.Unlock()
	if released {
		r.release()
	}
	return <-c.resume
}

// release holds nothing back any more. The calls of crashed processes end.
func (r *run) release() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range r.held {
		if r.processes[c.process].crashed {
			c.resume <- crashes
		} else {
			c.resume <- proceeds
		}
	}
	r.held, r.released = nil, true
}

// hook holds every command of a process's client back, also those of a pipeline, one after the other.
func (r *run) hook(i int) redis.Hook {
	return redistest.Hook(func(ctx context.Context, cmds []redis.Cmder, next redis.ProcessPipelineHook) (failure error) {
		if nameOf(cmds[0]) == "" { // it sets a connection up
			return next(ctx, cmds)
		}
		for nth, cmd := range cmds {
			err := r.send(ctx, i, nameOf(cmd), func(ctx context.Context) (any, error) {
				err := next(ctx, cmds[nth:nth+1])
				return cmd.(interface{ Val() any }).Val(), err // the library's commands embed a *redis.Cmd
			})
			if err == errCrashed {
				cmd.SetErr(err)
			}
			failure = cmp.Or(failure, err)
		}
		return failure
	})
}

// nameOf describes the purpose of a command. It returns "" if the command is not the library's.
func nameOf(cmd redis.Cmder) string {
	switch cmd.Name() {
	case "set":
		return "lock"
	case "eval", "evalsha":
		return fmt.Sprint("script ", cmd.Args()[3])
	}
	return ""
}

// A ledger is the ledger and the floor of one process. Its requests are held back as commands are.
type ledger struct {
	*serialtest.Ledger
	r *run
	i int
}

func (l ledger) Reserve(ctx context.Context, reservation serial.Reservation) (after int64, err error) {
	return after, l.r.send(ctx, l.i, "reserve", func(ctx context.Context) (any, error) {
		after, err = l.Ledger.Reserve(ctx, reservation)
		return after, err
	})
}

// floor returns the greatest number issued, and more if others may have been issued that were lost.
func (l ledger) floor(ctx context.Context, _ string, start time.Time) (last int64, err error) {
	err = l.r.send(ctx, l.i, "floor", func(context.Context) (any, error) {
		l.r.mu.Lock()
		defer l.r.mu.Unlock()
		last = l.r.highest(start)
		if l.r.isLost {
			last += margin
		}
		return last, nil
	})
	return last, err
}

// await lets time pass until ready is true for every process. It calls ready with mu held.
func (r *run) await(t *testing.T, ready func(i int, p *process) bool) {
	for tries := 0; ; tries++ {
		synctest.Wait()
		waiting := false
		r.mu.Lock()
		for i, p := range r.processes {
			waiting = waiting || !ready(i, p)
		}
		r.mu.Unlock()
		if !waiting {
			return
		}
		require.Less(t, tries, 100_000, "a process waits for ever")
		time.Sleep(2 * time.Millisecond)
	}
}
