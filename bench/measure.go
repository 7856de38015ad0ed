package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

const most = 10_000 // callers

// A network is a way to reach the server.
type network struct {
	name      string
	delay     time.Duration // of every byte, each way
	callers   int           // the most at a time; in a fleet, the number of each process
	processes int           // 0 if all callers are in this one
}

var networks = []network{
	{"loopback", 0, most, 0},
	{"network of 2 ms", time.Millisecond, 100, 0},
	{"fleet", 0, 4, 8},
}

// A sample is the result of one measurement.
type sample struct {
	network    string
	contestant *contestant
	round      int
	callers    int // of each process
	calls      int
	elapsed    time.Duration
	p50, p99   time.Duration
	allocs     uint64        // of whole processes, proxy included
	serverCPU  time.Duration // user and kernel
	base       *sample       // the INCR measured just before or just after; nil for INCR itself
}

func (s *sample) numbersPerSecond() float64 {
	return float64(s.calls*s.contestant.numbers) / s.elapsed.Seconds()
}

func (s *sample) serverCPUPerNumber() float64 { // µs
	return float64(s.serverCPU.Nanoseconds()) / 1000 / float64(s.calls*s.contestant.numbers)
}

// An entrant is a contestant that is ready to be measured.
type entrant struct {
	*contestant
	do    op
	fleet fleet // nil if this process calls do itself
}

// measure lets the contestants take turns. It also returns those that the server does not support.
func (n network) measure(ctx context.Context, cfg *config, addr string) (_ []*sample, unsupported []*contestant,
	err error) {
	admin := newAdmin(addr)
	defer admin.close()
	addr, stop, err := n.reach(addr)
	if err != nil {
		return nil, nil, err
	}
	defer stop()
	rdb := redis.NewClient(&redis.Options{Addr: addr}) // with default options, as in most programs
	defer func() { _ = rdb.Close() }()
	// Each network starts without data, with the same keys.
	if err := admin.rdb.FlushAll(ctx).Err(); err != nil {
		return nil, nil, err
	}
	t := &target{rdb: rdb, addr: addr}
	if n.processes > 0 {
		program, err := os.Executable()
		if err != nil {
			return nil, nil, err
		}
		if t.fleet, err = startFleet(program, n.processes, job{Addr: addr, Noon: time.Now()}); err != nil {
			return nil, nil, err
		}
		defer t.fleet.stop()
	}
	base, others, unsupported, err := n.enter(ctx, cfg, t)
	if err != nil {
		return nil, nil, err
	}
	samples, err := newMeter(admin).rounds(ctx, cfg, n, n.counts(cfg), base, others)
	return samples, unsupported, err
}

// reach returns the address of the server through the network, valid until stop is called.
func (n network) reach(addr string) (through string, stop func(), err error) {
	if n.delay == 0 {
		return addr, func() {}, nil
	}
	p, err := startProxy(addr, n.delay)
	if err != nil {
		return "", nil, err
	}
	return p.addr(), p.stop, nil
}

// rounds measures base and the others in alternating rounds. A first round is not counted: it makes connections, loads
// scripts and grows stacks.
func (m *meter) rounds(ctx context.Context, cfg *config, n network, callers []int, base *entrant,
	others []*entrant) ([]*sample, error) {
	for _, c := range callers {
		for _, e := range append(others, base) {
			if _, err := m.measure(ctx, e, c, 20*time.Millisecond); err != nil {
				return nil, err
			}
		}
	}
	var samples []*sample
	for round := range cfg.rounds {
		fmt.Fprintf(os.Stderr, "\r%s: round %d of %d ", n.name, round+1, cfg.rounds)
		for _, c := range callers {
			parts, share := n.parts(c)
			var turns [][]*sample
			for part := range parts {
				var turn []*sample
				for _, e := range lineup(base, others, round*parts+part) {
					s, err := m.measure(ctx, e, c, cfg.length/time.Duration(share))
					if err != nil {
						return nil, err
					}
					s.network, s.round = n.name, round+1
					turn = append(turn, s)
				}
				pair(turn)
				turns = append(turns, turn)
			}
			samples = append(samples, addUp(turns)...)
		}
	}
	fmt.Fprintln(os.Stderr)
	return samples, nil
}

// counts returns the numbers of callers that are measured.
func (n network) counts(cfg *config) []int {
	if n.processes > 1 {
		return []int{n.callers}
	}
	return slices.DeleteFunc(slices.Clone(cfg.callers), func(c int) bool { return c > n.callers })
}

// parts returns how many parts a round has, and into how many parts of this size the usual length of a measurement is
// divided. With few callers, CPUs may fall asleep between calls. Then calls of every contestant take several times as
// long for a tenth of a second or more, and only measurements within that time can be compared. So such rounds have many
// short parts, and take longer. A slow network hides the effect, and leaves too few calls to split.
func (n network) parts(callers int) (parts, share int) {
	if max(n.processes, 1)*callers < 10 && n.delay == 0 {
		return 40, 10
	}
	return 1, 1
}

// enter opens the selected contestants.
func (n network) enter(ctx context.Context, cfg *config, t *target) (base *entrant, others []*entrant,
	unsupported []*contestant, err error) {
	for _, c := range contestants() {
		if c.id != baseline && (!cfg.only.MatchString(c.id) || n.delay > 0 && !c.far || n.processes > 0 && !c.inFleet) {
			continue
		}
		e := &entrant{contestant: c, fleet: t.fleet}
		if t.fleet == nil {
			if e.do, err = c.open(ctx, t); errors.Is(err, errUnsupported) {
				unsupported = append(unsupported, c)
				continue
			} else if err != nil {
				return nil, nil, nil, fmt.Errorf("%s: %w", c.id, err)
			}
		}
		if c.id == baseline {
			base = e
		} else {
			others = append(others, e)
		}
	}
	return base, others, unsupported, nil
}

// lineup returns the order of a round: an INCR, two others, an INCR, the next two and so on, so that each has an INCR
// next to it. Every second round is reversed, so that each contestant comes before its INCR as often as after it. Every
// two rounds, another contestant is first.
func lineup(base *entrant, others []*entrant, round int) []*entrant {
	if len(others) == 0 {
		return []*entrant{base}
	}
	first := round / 2 % len(others)
	var line []*entrant
	for i, e := range slices.Concat(others[first:], others[:first]) {
		if i%2 == 0 {
			line = append(line, base)
		}
		line = append(line, e)
	}
	if len(others)%2 == 0 {
		line = append(line, base)
	}
	if round%2 == 1 {
		slices.Reverse(line)
	}
	return line
}

// pair assigns each sample the INCR next to it.
func pair(turn []*sample) {
	for i, s := range turn {
		switch {
		case s.contestant.id == baseline:
		case i > 0 && turn[i-1].contestant.id == baseline:
			s.base = turn[i-1]
		default:
			s.base = turn[i+1]
		}
	}
}

// addUp returns one sample of each contestant: the sum of its parts. Its base is the sum of the INCRs next to them.
func addUp(turns [][]*sample) []*sample {
	var order []*contestant
	parts := map[*contestant][]*sample{}
	for _, s := range slices.Concat(turns...) {
		if parts[s.contestant] == nil {
			order = append(order, s.contestant)
		}
		parts[s.contestant] = append(parts[s.contestant], s)
	}
	var sums []*sample
	for _, c := range order {
		var bases []*sample
		for _, s := range parts[c] {
			if s.base != nil {
				bases = append(bases, s.base)
			}
		}
		s := sum(parts[c])
		if bases != nil {
			s.base = sum(bases)
		}
		sums = append(sums, s)
	}
	return sums
}

// sum adds up parts of a round. Its latencies are medians of the parts' values.
func sum(parts []*sample) *sample {
	s := *parts[0]
	for _, p := range parts[1:] {
		s.calls, s.elapsed = s.calls+p.calls, s.elapsed+p.elapsed
		s.allocs, s.serverCPU = s.allocs+p.allocs, s.serverCPU+p.serverCPU
	}
	s.p50 = time.Duration(quantile(parts, 0.5, func(p *sample) float64 { return float64(p.p50) }))
	s.p99 = time.Duration(quantile(parts, 0.5, func(p *sample) float64 { return float64(p.p99) }))
	return &s
}

// A meter measures. Its buffer is allocated once, since repeated allocation would trigger the garbage collector.
type meter struct {
	admin     *admin
	latencies []time.Duration
}

func newMeter(a *admin) *meter {
	return &meter{a, make([]time.Duration, 1<<20)}
}

// measure makes that many callers in each process call e repeatedly for that length of time.
func (m *meter) measure(ctx context.Context, e *entrant, callers int, length time.Duration) (*sample, error) {
	call := m.call
	if e.fleet != nil {
		call = e.fleet.call
	}
	var cpu time.Duration
	t, err := call(ctx, e, callers, length, func() (err error) {
		cpu, err = m.admin.cpu(ctx)
		return err
	})
	cpuAfter, cpuErr := m.admin.cpu(ctx)
	if err := cmp.Or(err, ctx.Err(), cpuErr); err != nil {
		return nil, fmt.Errorf("%s, %d callers: %w", e.id, callers, err)
	}
	return &sample{
		contestant: e.contestant,
		callers:    callers,
		calls:      t.Calls,
		elapsed:    t.End.Sub(t.Start),
		p50:        t.P50,
		p99:        t.P99,
		allocs:     t.Allocs,
		serverCPU:  cpuAfter - cpu,
	}, nil
}

// A tally sums up the calls of one process or of several.
type tally struct {
	Calls      int
	Start, End time.Time // including calls that were under way when the time was up
	P50, P99   time.Duration
	Allocs     uint64
}

// call makes that many callers in this process call e. Once they are ready it calls begin, and they start when begin
// returns.
func (m *meter) call(ctx context.Context, e *entrant, callers int, length time.Duration,
	begin func() error) (*tally, error) {
	var (
		room  = len(m.latencies) / callers // for one caller's latencies; later ones replace the first
		calls = make([]int, callers)
		errs  = make([]error, callers)
		gate  = make(chan struct{})
		t     tally
		ready sync.WaitGroup
		done  sync.WaitGroup
	)
	ready.Add(callers)
	for i := range callers {
		done.Go(func() {
			mine := m.latencies[i*room : (i+1)*room]
			// The processes of a fleet pick different types.
			rnd := rand.New(rand.NewPCG(uint64(i), uint64(os.Getpid())))
			ready.Done()
			<-gate
			n := 0
			// The clock is read once per call: one call's end is the next one's beginning. Each caller makes at least
			// one call, even if the round is over before the caller runs.
			for last := time.Since(t.Start); (n == 0 || last < length) && errs[i] == nil; n++ {
				errs[i] = e.do(ctx, rnd)
				now := time.Since(t.Start)
				mine[n%room] = now - last
				last = now
			}
			calls[i] = n
		})
	}
	ready.Wait()
	runtime.GC() // no measurement pays for the previous one's garbage
	if err := begin(); err != nil {
		close(gate)
		done.Wait()
		return nil, err
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	t.Start = time.Now()
	close(gate)
	done.Wait()
	t.End = time.Now()
	runtime.ReadMemStats(&after)
	if err := firstError(errs); err != nil {
		return nil, err
	}
	t.Allocs = after.Mallocs - before.Mallocs
	// The callers' latencies are moved next to each other and sorted in place.
	all := m.latencies[:0]
	for i, n := range calls {
		t.Calls += n
		all = append(all, m.latencies[i*room:i*room+min(n, room)]...)
	}
	slices.Sort(all)
	t.P50, t.P99 = all[len(all)/2], all[len(all)*99/100]
	return &t, nil
}

func firstError(errs []error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
