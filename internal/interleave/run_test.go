package interleave

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
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

// A setting is what several processes do, and what may go wrong meanwhile. Each of them has a generator, whose commands
// run one at a time, in an order that the test chooses. A reservation in the ledger counts as a command.
type setting struct {
	processes   int
	each        int  // numbers that a process asks for, one after the other
	midnight    bool // midnight may come at any point
	ledger      bool
	undisturbed bool // nobody dies or stops
	leaving     bool // the context of a call may end; nobody dies or stops
	losing      bool // Redis may lose the counter once, at any point
	losingAll   bool // Redis may lose everything once, at any point
	mixed       bool // the first process has no ledger, the others have one
	sameRequest bool // all processes first repeat one request, and then make their own
	fastClock   bool // the server's clock may jump ahead and come back; the last process is an operator
	printsDay   bool // numbers count through the year and print the day
	twoStarts   bool // the last process has laterStart, the others have 1
	lateStart   bool // all processes have laterStart
	prepares    bool // each process first prepares the next day
	raises      bool // the last process first raises the counter
	takesOver   bool // the last process has another time zone, and first takes the series over
	shared      bool // each process asks for another type, and the types share a counter

	prepare func(t *testing.T, m *memory.Redis, opts []serial.Option) (issued []string) // runs before all others
}

const (
	block      = 2  // size of the ledger's blocks
	laterStart = 50 // beyond whatever is issued from 1 on
)

// west is a zone in which it is the same day, with other bounds.
var west = time.FixedZone("west", -3600)

// patience is how long the others may wait for the lock of a caller that left. Its lease is 8 s.
const patience = 3 * time.Second

func (s setting) options(l serial.Ledger) []serial.Option {
	all := []serial.Option{serial.WithLocation(time.UTC)}
	if s.ledger {
		all = append(all, serial.WithLedger(l, block))
	}
	if s.fastClock {
		all = append(all, serial.WithMaxSkew(-1))
	}
	if s.shared {
		all = append(all, serial.WithSharedCounter())
	}
	if s.printsDay {
		all = append(all, serial.WithPeriod(serial.PerYear))
	}
	if s.lateStart {
		all = append(all, serial.WithStart(laterStart))
	}
	return all
}

// A run is one order of the commands of a setting.
type run struct {
	setting
	redis  *memory.Redis
	ledger *serialtest.Ledger
	over   func()          // ends the calls of dead processes
	isOver <-chan struct{} // they have ended

	mu        sync.Mutex // guards all below, and the processes
	processes []*process
	released  bool           // no command is held back any longer
	count     int            // commands held back so far
	owners    map[string]int // process that made each token of a lock
	issued    []string
	explained []serial.Explanation
	failed    []error
	byRequest map[string]string // the number of each request
	events    []string          // for a run that fails

	disturbed     bool // a process died or stopped, or its caller left
	afterMidnight bool
	day           time.Time // the next midnight
	stopped       int       // the process that stands still, or -1
	resumed       int       // the process that stood still, even if it still does, or -1
	lost          bool      // the counter was lost
	lostPlain     bool      // it was lost while the record had no ledger

	left    int // the process whose caller left, or -1
	leftAt  time.Time
	hangs   bool         // what that caller did not wait for arrives after all else
	transit *heldCommand // what the caller did not wait for

	clock serverClock
}

// A process asks for numbers.
type process struct {
	gen       *serial.Generator
	held      []*heldCommand // commands that are held back
	lastReply string
	results   []string           // of all its calls, "" for an error
	issued    int                // count of numbers that it got
	cancel    context.CancelFunc // of its call
	hasLeft   bool               // the caller has left
	dead      bool
	done      bool
}

// A heldCommand is held back until it is resumed with what happens to it.
type heldCommand struct {
	name   string
	resume chan string
	count  int // commands held back before it
}

var errDead = errors.New("this process is dead")

// start starts the processes of a setting. If midnight is to come, it is so near that no call ends before it.
func (s setting) start(t *testing.T, midnight bool) *run {
	ctx, cancel := context.WithCancel(context.Background())
	m := memory.Start(t)
	r := &run{setting: s, redis: m, ledger: new(serialtest.Ledger), over: cancel, isOver: ctx.Done(),
		owners: map[string]int{}, byRequest: map[string]string{}, stopped: -1, resumed: -1, left: -1}
	r.day = time.Now().Add(24 * time.Hour)
	before := 20 * time.Second // more than a run takes
	if midnight {
		before = 1500 * time.Millisecond
	}
	time.Sleep(24*time.Hour - before)
	first := newGenerator(t, m.Client(), append(s.options(r.ledger), serial.WithKeyPrefix("other"))...)
	_, err := first.Next(ctx, "OTHER") // the server knows the scripts
	require.NoError(t, err)
	if s.sameRequest {
		_, err := first.NextOnce(ctx, "ANOTHER", "any")
		require.NoError(t, err)
	}
	if s.prepare != nil {
		before := s
		before.ledger = s.ledger && !s.mixed
		r.issued = s.prepare(t, m, before.options(r.ledger))
	}
	for range s.processes {
		r.processes = append(r.processes, &process{})
	}
	if i := s.processes - 1; s.fastClock { // the last process is an operator; before others begin, who read the clock
		r.processes[i].done = true
		r.clock = serverClock{top: map[string]int64{}, operator: newGenerator(t, m.Client(hook{r, i}), s.options(nil)...)}
	}
	for i, p := range r.processes {
		if p.done {
			break
		}
		own := s
		own.ledger = s.ledger && !(s.mixed && i == 0)
		opts := append(own.options(heldLedger{r.ledger, r, i}), r.explain(p))
		if s.twoStarts && i == s.processes-1 {
			opts = append(opts, serial.WithStart(laterStart))
		}
		if s.takesOver && i == s.processes-1 {
			opts = append(opts, serial.WithLocation(west))
		}
		p.gen = newGenerator(t, m.Client(hook{r, i}), opts...)
		go func() {
			for nth := range s.each {
				r.ask(i, nth)
			}
			r.mu.Lock()
			defer r.mu.Unlock()
			p.done = true
		}()
	}
	return r
}

// explain returns the option by which a process reports numbers that nobody got. The dead report nothing.
func (r *run) explain(p *process) serial.Option {
	return serial.WithHooks(serial.Hooks{Unused: func(_ context.Context, e serial.Explanation) {
		r.mu.Lock()
		defer r.mu.Unlock()
		if !p.dead {
			r.explained = append(r.explained, e)
		}
	}})
}

// ask has a process ask for its nth number.
func (r *run) ask(i, nth int) {
	p, ctx := r.processes[i], context.Background()
	if r.leaving {
		var cancel context.CancelFunc
		ctx, cancel = context.WithCancel(ctx)
		defer cancel()
		r.mu.Lock()
		p.hasLeft, p.cancel = false, cancel
		r.mu.Unlock()
	}
	next, request := p.gen.NextNumber, ""
	if r.sameRequest {
		request = "everybody's"
		if nth > 0 {
			request = fmt.Sprintf("%d of %d", nth, i)
		}
		next = func(ctx context.Context, typ string) (serial.Number, error) { return p.gen.NextOnce(ctx, typ, request) }
	}
	r.mu.Lock()
	raised := r.clock.raised
	r.mu.Unlock()
	typ := "IS"
	if r.shared {
		typ = fmt.Sprint("T", i)
	}
	var n serial.Number
	var err error
	switch {
	case nth > 0:
	case r.prepares:
		err = p.gen.Prepare(ctx, typ)
	case r.setting.raises && i == r.setting.processes-1:
		err = p.gen.Raise(ctx, typ, laterStart)
	case r.takesOver && i == r.setting.processes-1:
		err = p.gen.Takeover(ctx, typ, 0)
	}
	if err == nil {
		n, err = next(ctx, typ)
		if r.setting.raises && i == r.setting.processes-1 && err == nil && n.Seq <= laterStart {
			err = fmt.Errorf("%s after Raise to %d", n, laterStart)
		}
	}
	number := n.String()
	if r.shared && err == nil {
		number = "IS" + strings.TrimPrefix(number, typ) // two types must not have the same sequence
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	p.results = append(p.results, number)
	switch {
	case p.dead:
	case p.hasLeft && errors.Is(err, context.Canceled):
	case errors.Is(err, os.ErrDeadlineExceeded) && r.resumed == i: // its process stood still until its time was over
	case r.mayGet(i, err):
	case r.fastClock && r.clock.back && !raised && r.clock.mayCause(err):
	case err != nil:
		r.failed = append(r.failed, err)
	case request != "" && r.byRequest[request] == number:
		p.issued++
	default:
		p.issued++
		r.issued = append(r.issued, number)
		if request == "" {
			return
		}
		if first := r.byRequest[request]; first != "" {
			r.failed = append(r.failed, fmt.Errorf("request %s got %s, and then %s", request, first, number))
		}
		r.byRequest[request] = number
	}
}

// mayGet reports whether a process may get err by now. The caller holds mu.
func (r *run) mayGet(i int, err error) bool {
	ledger := r.setting.ledger && !(r.mixed && i == 0)
	switch {
	case errors.Is(err, serial.ErrCounterLost):
		return r.lost && (!ledger || r.mixed && r.lostPlain)
	case errors.Is(err, serial.ErrConflict):
		return r.mixed && !ledger && r.dayHasLedger() || r.takesOver
	}
	return false
}

// dayHasLedger reports whether the record says that the day has a ledger.
func (r *run) dayHasLedger() bool {
	return strings.HasSuffix(r.redis.HGet(r.record(), "entered"), " ledger")
}

// record returns the key of the record.
func (r *run) record() string {
	if r.shared {
		return "serial:{*}"
	}
	return "serial:{IS}"
}

// counter returns the key of the day's counter.
func (r *run) counter() string {
	layout := "20060102"
	if r.printsDay {
		layout = "2006"
	}
	return r.record() + ":" + time.Now().UTC().Format(layout)
}

// hold holds a command back until it is resumed, and returns what happens to it.
func (r *run) hold(i int, name string) (what string) {
	p := r.processes[i]
	r.mu.Lock()
	if p.dead || r.released {
		defer r.mu.Unlock()
		if p.dead {
			return dies
		}
		return proceeds
	}
	r.count++
	c := &heldCommand{name, make(chan string, 1), r.count}
	p.held = append(p.held, c)
	r.mu.Unlock()
	return <-c.resume
}

// send has a process send a command when it is its turn, or suffer what happens to it.
func (r *run) send(ctx context.Context, i int, name string, command func(ctx context.Context) error) error {
	what := r.hold(i, name)
	switch what {
	case dies:
		r.die(i)
		return errDead
	case leaves:
		r.leave(i, false)
		if err := ctx.Err(); err != nil {
			return err
		}
	case leavesInFlight, leavesHanging:
		r.leave(i, true)
		ctx = context.WithoutCancel(ctx) // it is in the network already
	}
	if what == proceeds { // however late, it is in the network already
		ctx = context.WithoutCancel(ctx)
	}
	err := command(ctx)
	switch what {
	case leavesAfter:
		r.leave(i, true)
	case diesAfter:
		r.die(i)
		return errDead
	}
	return err
}

func (r *run) die(i int) {
	r.mu.Lock()
	r.processes[i].dead = true
	r.mu.Unlock()
	<-r.isOver
}

// leave ends the context of a process's call. A command in transit waits for its turn.
func (r *run) leave(i int, transit bool) {
	c, p := &heldCommand{resume: make(chan string, 1)}, r.processes[i]
	r.mu.Lock()
	p.hasLeft, r.left, r.leftAt = true, i, time.Now()
	p.cancel()
	if transit && !r.released {
		r.transit = c
	} else {
		c.resume <- arrives
	}
	r.mu.Unlock()
	<-c.resume
}

// release holds nothing back any longer. The caller holds mu.
func (r *run) release() {
	r.released = true
	if r.transit != nil {
		r.transit.resume <- arrives
		r.transit = nil
	}
	for _, p := range r.processes {
		for _, c := range p.held {
			c.resume <- proceeds
		}
		p.held = nil
	}
}

// A hook is around every command of a process's client. The commands of a pipeline are held back one after the other.
type hook struct {
	r *run
	i int // the process
}

func (h hook) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h hook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error { return h.process(ctx, cmd, next, "") }
}

func (h hook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) (failure error) {
		one := func(ctx context.Context, cmd redis.Cmder) error { return next(ctx, []redis.Cmder{cmd}) }
		before := ""
		for nth, cmd := range cmds {
			err := h.process(ctx, cmd, one, before)
			if err != nil && (err == errDead || err == ctx.Err()) { // nothing is sent any more
				for _, later := range cmds[nth+1:] {
					later.SetErr(err)
				}
				return err
			}
			failure = cmp.Or(failure, err)
			h.r.mu.Lock()
			before = h.r.processes[h.i].lastReply + ", "
			h.r.mu.Unlock()
		}
		return failure
	}
}

// process sends a command when it is its turn. before are the replies to the commands before it in a pipeline.
func (h hook) process(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook, before string) error {
	name, args := cmd.Name(), cmd.Args()
	switch name {
	case "set":
		name = "lock"
		h.r.own(args[2], h.i)
	case "eval", "evalsha":
		name = scriptName(args)
	default: // setting up a connection
		return next(ctx, cmd)
	}
	err := h.r.send(ctx, h.i, name, func(ctx context.Context) error { return next(ctx, cmd) })
	if err != nil {
		cmd.SetErr(err)
	}
	if err != errDead {
		h.r.observeReply(h.i, before+name, cmd, err)
	}
	return err
}

// scriptName says what a script is sent for.
func scriptName(args []any) string {
	options, _ := args[len(args)-1].(string)
	name := "take" + options
	switch {
	case args[2] == 1 || args[2] == "1":
		name = "release"
	case strings.Contains(options, `"grant":`):
		name = "grant"
	case strings.Contains(options, `"next":`):
		name = "prepare"
	case strings.HasPrefix(options, "{"):
		name = "take with options"
	}
	return fmt.Sprint(name, " ", args[3])
}

// own notes which process made the token of a lock.
func (r *run) own(token any, i int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.owners[fmt.Sprint(token)] = i
}

func (r *run) observeReply(i int, name string, cmd redis.Cmder, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	text := name + " " + fmt.Sprint(err)
	if value, ok := cmd.(interface{ Val() any }); ok { // the library's commands embed a *redis.Cmd
		reply := value.Val()
		var details map[string]any
		if object, ok := reply.(string); ok && json.Unmarshal([]byte(object), &details) == nil {
			delete(details, "seconds")
			delete(details, "micros")
			reply = details
		}
		if key, ok := cmd.Args()[3].(string); ok && r.fastClock {
			r.clock.observe(key, lastIssued(reply))
		}
		text += fmt.Sprint(reply)
	}
	r.processes[i].lastReply = text
}

// lastIssued returns the last sequence that a script issued, 0 if none.
func lastIssued(reply any) (seq int64) {
	switch r := reply.(type) {
	case int64:
		return r
	case map[string]any:
		if slices.Contains([]any{"there", "raised", "part"}, r["status"]) {
			_, _ = fmt.Sscan(fmt.Sprint(r["last"]), &seq)
		}
	}
	return seq
}

// A heldLedger is the ledger of one process, whose reservations are held back as its commands are.
type heldLedger struct {
	*serialtest.Ledger
	r *run
	i int
}

func (l heldLedger) Reserve(ctx context.Context, reservation serial.Reservation) (after int64, err error) {
	err = l.r.send(ctx, l.i, "reserve", func(ctx context.Context) error {
		// A database may notice too late that its caller has left.
		after, err = l.Ledger.Reserve(context.WithoutCancel(ctx), reservation)
		return err
	})
	if err == errDead {
		return 0, err
	}
	l.r.mu.Lock()
	defer l.r.mu.Unlock()
	l.r.processes[l.i].lastReply = fmt.Sprint("reserved ", after, err)
	return after, err
}

// awaitCommands lets time pass until a command of every process is held back, unless it is dead or done. Once a caller
// has left, one command is enough: the time that passes is then what the others wait.
func (r *run) awaitCommands(t *testing.T) {
	r.await(t, func(p *process) bool {
		r.afterMidnight = r.afterMidnight || !time.Now().Before(r.day)
		return p.done || p.dead || len(p.held) > 0 || r.left >= 0 && len(r.eventsAfterLeaving()) > 0
	})
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, p := range r.processes { // those of one instant come in any order
		slices.SortFunc(p.held, func(a, b *heldCommand) int { return strings.Compare(a.name, b.name) })
	}
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
