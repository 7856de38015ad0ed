package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/dailyserial/serial"
	"github.com/redis/go-redis/v9"
)

// openings measures the first numbers of types beside INCR on new keys, and a fleet whose types meet midnight.
func openings(ctx context.Context, cfg *config, addr string) error {
	started := time.Now()
	var b strings.Builder
	b.WriteString("## The first number of a type\n\n" +
		"| callers | network | openings/s | × INCR on new keys (quartiles) | p50 | × INCR | server CPU | × INCR " +
		"| × a usual number |\n" +
		"| ---: | :--- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |\n")
	for _, n := range networks[:2] {
		if !cfg.network.MatchString(n.name) {
			continue
		}
		rows, err := n.openings(ctx, cfg, addr)
		if err != nil {
			return fmt.Errorf("%s: %w", n.name, err)
		}
		usual := map[int]float64{}
		for _, r := range rows {
			if r.contestant.id == "next" {
				usual[r.callers] = r.serverCPU
			}
		}
		for _, r := range rows {
			if r.contestant.id != "openings" {
				continue
			}
			fmt.Fprintf(&b, "| %s | %s | %s | %s (%s–%s) | %s | %s | %s | %s | %s |\n", thousands(float64(r.callers)), n.name,
				thousands(r.numbersPerSecond), short(r.throughputRatio), short(r.lowRatio), short(r.highRatio),
				duration(r.p50), short(r.p50Ratio), cpu(r.serverCPU), short(r.cpuRatio), short(r.serverCPU/usual[r.callers]))
		}
	}
	fmt.Fprintf(&b, "\nMedians of %d alternating rounds or more. "+
		"A usual number is one of a single type, by as many callers.\n\n", cfg.rounds)
	if cfg.network.MatchString("midnight") {
		if err := midnight(ctx, cfg, addr, &b); err != nil {
			return fmt.Errorf("midnight: %w", err)
		}
	}
	fmt.Print(b.String())
	if cfg.out != "" {
		if err := os.MkdirAll(cfg.out, 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(cfg.out, "openings.md"), []byte(b.String()), 0o644); err != nil {
			return err
		}
	}
	fmt.Fprintf(os.Stderr, "took %v\n", time.Since(started).Round(time.Second))
	return nil
}

// openings returns the rows of one network. Their base is INCR on new keys.
func (n network) openings(ctx context.Context, cfg *config, addr string) ([]*row, error) {
	admin := newAdmin(addr)
	defer admin.close()
	if err := admin.rdb.FlushAll(ctx).Err(); err != nil {
		return nil, err
	}
	through, stop, err := n.reach(addr)
	if err != nil {
		return nil, err
	}
	defer stop()
	rdb := redis.NewClient(&redis.Options{Addr: through})
	defer func() { _ = rdb.Close() }()
	t := &target{rdb: rdb, addr: through}
	var keys sync.Map // of each caller, the number of its keys
	incr := func(ctx context.Context, rnd *rand.Rand) error {
		made, _ := keys.LoadOrStore(rnd, new(int))
		count := made.(*int)
		*count++
		return rdb.Incr(ctx, fmt.Sprintf("%p:%d", rnd, *count)).Err()
	}
	base := &entrant{contestant: &contestant{id: baseline, numbers: 1}, do: incr}
	var others []*entrant
	for _, id := range []string{"openings", "next"} {
		c := byID(id)
		do, err := c.open(ctx, t)
		if err != nil {
			return nil, err
		}
		others = append(others, &entrant{contestant: c, do: do})
	}
	callers := slices.DeleteFunc(slices.Clone(cfg.callers), func(c int) bool { return c > n.callers })
	samples, err := newMeter(admin).rounds(ctx, cfg, n, callers, base, others)
	if err != nil {
		return nil, err
	}
	return summarise(samples), nil
}

// A meeting is how a worker meets midnight. First it opens all types and answers; once it is told to, it prepares its
// share of them, and answers; and once it is told to again, it asks for numbers until midnight and then for one of
// every type.
type meeting struct {
	Types    int
	Midnight time.Time // in whole seconds: it is that of the generators' zone
	Share    int       // of the types, from 0
	Shares   int
	Prepare  bool
	Callers  int
}

// A met is how a worker met midnight.
type met struct {
	First    []time.Duration // after midnight, by type: when it had its first number
	P99, Max time.Duration   // of calls, from a second before midnight on
}

// midnight lets a fleet's types meet midnight, with and without Prepare.
func midnight(ctx context.Context, cfg *config, addr string, b *strings.Builder) error {
	many := networks[2]
	admin := newAdmin(addr)
	defer admin.close()
	program, err := os.Executable()
	if err != nil {
		return err
	}
	times := min(cfg.rounds, 3)
	results := map[bool][]met{}
	for i := range 2 * times {
		prepare := i%2 == 1
		fmt.Fprintf(os.Stderr, "\rmidnight: %d of %d ", i+1, 2*times)
		var m met
		err := errors.New(notReady)
		// A busy machine takes longer to be ready.
		for lead := 5 * time.Second; err != nil && strings.Contains(err.Error(), notReady) && lead <= time.Minute; lead *= 2 {
			if err := admin.rdb.FlushAll(ctx).Err(); err != nil {
				return err
			}
			m, err = many.midnight(program, addr, cfg.types, prepare, lead)
		}
		if err != nil {
			return err
		}
		results[prepare] = append(results[prepare], m)
	}
	fmt.Fprintln(os.Stderr)
	fmt.Fprintf(b, "## Midnight\n\nThe %s types of %d processes, of %d callers each, meet midnight. From a second "+
		"before, callers ask for numbers of any type, and from midnight on each process asks for one of every type, in an "+
		"order of its own.\n\n"+
		"| | half of all types have a number after | all after | p99 of `Next` | slowest |\n"+
		"| :--- | ---: | ---: | ---: | ---: |\n",
		thousands(float64(cfg.types)), many.processes, many.callers)
	for _, prepare := range []bool{false, true} {
		title := map[bool]string{false: "without Prepare", true: "with Prepare"}[prepare]
		of := func(value func(met) time.Duration) string {
			var values []float64
			for _, m := range results[prepare] {
				values = append(values, float64(value(m)))
			}
			slices.Sort(values)
			return duration(values[len(values)/2])
		}
		fmt.Fprintf(b, "| %s | %s | %s | %s | %s |\n", title,
			of(func(m met) time.Duration { return m.First[len(m.First)/2] }),
			of(func(m met) time.Duration { return m.First[len(m.First)-1] }),
			of(func(m met) time.Duration { return m.P99 }), of(func(m met) time.Duration { return m.Max }))
	}
	fmt.Fprintf(b, "\nMedians of %d alternating midnights. p99 is the median of the processes' own.\n\n", times)
	return nil
}

// notReady is the error of a worker for which midnight came too soon.
const notReady = "it was midnight before all was ready"

// midnight returns when types had their first number, in order of time. lead is the time until midnight, besides that
// for the types.
func (n network) midnight(program, addr string, types int, prepare bool, lead time.Duration) (result met, err error) {
	// Opening and preparing must be over a second before.
	at := time.Now().Truncate(time.Second).Add(lead + time.Duration(types)*time.Millisecond)
	var f fleet
	defer func() { f.stop() }()
	for i := range n.processes {
		one, err := startFleet(program, 1, job{Addr: addr, Meet: &meeting{types, at, i, n.processes, prepare, n.callers}})
		if err != nil {
			return met{}, err
		}
		f = append(f, one...)
	}
	for range 2 { // opened, prepared
		for _, w := range f {
			if err := w.answer.Decode(&struct{}{}); err != nil {
				return met{}, w.ended(err)
			}
		}
		for _, w := range f {
			if err := w.send.Encode(struct{}{}); err != nil {
				return met{}, w.ended(err)
			}
		}
	}
	var p99 []time.Duration
	for _, w := range f {
		var m met
		if err := w.answer.Decode(&m); err != nil {
			return met{}, w.ended(err)
		}
		if result.First == nil {
			result.First = m.First
		}
		for i := range m.First {
			result.First[i] = min(result.First[i], m.First[i])
		}
		p99, result.Max = append(p99, m.P99), max(result.Max, m.Max)
	}
	slices.Sort(p99)
	slices.Sort(result.First)
	result.P99 = p99[len(p99)/2]
	return result, nil
}

// meetMidnight is what a worker does for a meeting.
func meetMidnight(ctx context.Context, j *job, orders *json.Decoder, answers *json.Encoder) error {
	m := j.Meet
	rdb := redis.NewClient(&redis.Options{Addr: j.Addr})
	defer func() { _ = rdb.Close() }()
	at := m.Midnight.UTC()
	passed := at.Sub(at.Truncate(24 * time.Hour))
	zone := time.FixedZone("bench", -int(passed/time.Second))
	gen, err := serial.New(rdb, serial.WithKeyPrefix("midnight"), serial.WithLocation(zone))
	if err != nil {
		return err
	}
	names := make([]string, m.Types)
	for i := range names {
		names[i] = "T" + strconv.Itoa(i)
	}
	share := names[m.Share*m.Types/m.Shares : (m.Share+1)*m.Types/m.Shares]
	next := func(name string) error { _, err := gen.Next(context.Background(), name); return err }
	prepare := func(name string) error { return gen.Prepare(ctx, name, 2) }
	for _, step := range []func() error{
		func() error { return each(m.Callers, share, next) },
		func() error { // all others' types are known then, too
			if err := each(m.Callers, names, next); err != nil || !m.Prepare {
				return err
			}
			return each(m.Callers, share, prepare)
		},
	} {
		if err := cmp.Or(step(), answers.Encode(struct{}{}), orders.Decode(&struct{}{})); err != nil {
			return err
		}
	}
	begin := m.Midnight.Add(-time.Second)
	if time.Now().After(begin) {
		return errors.New(notReady)
	}
	time.Sleep(time.Until(begin))
	return cmp.Or(m.walk(gen, names, answers), ctx.Err())
}

// each calls f for every name, from several goroutines.
func each(callers int, names []string, f func(name string) error) error {
	errs := make([]error, callers)
	var wg sync.WaitGroup
	for i := range callers {
		wg.Go(func() {
			for j := i; j < len(names) && errs[i] == nil; j += callers {
				errs[i] = f(names[j])
			}
		})
	}
	wg.Wait()
	return firstError(errs)
}

// walk asks for numbers until midnight, and then for one of every type.
func (m *meeting) walk(gen *serial.Generator, names []string, answers *json.Encoder) error {
	result := met{First: make([]time.Duration, len(names))}
	for i := range result.First {
		result.First[i] = time.Hour
	}
	order := rand.Perm(len(names))
	var mu sync.Mutex
	var latencies []time.Duration
	errs := make([]error, m.Callers)
	var wg sync.WaitGroup
	for i := range m.Callers {
		wg.Go(func() {
			var mine []time.Duration
			rnd := rand.New(rand.NewPCG(rand.Uint64(), uint64(i)))
			call := func(k int) {
				began := time.Now()
				n, err := gen.NextNumber(context.Background(), names[k])
				now := time.Now()
				mine, errs[i] = append(mine, now.Sub(began)), err
				if err == nil && !n.Start.Before(m.Midnight) {
					mu.Lock()
					result.First[k] = min(result.First[k], now.Sub(m.Midnight))
					mu.Unlock()
				}
			}
			for errs[i] == nil && time.Now().Before(m.Midnight) {
				call(rnd.IntN(len(names)))
			}
			for j := i; j < len(order) && errs[i] == nil; j += m.Callers {
				call(order[j])
			}
			mu.Lock()
			defer mu.Unlock()
			latencies = append(latencies, mine...)
		})
	}
	wg.Wait()
	if err := firstError(errs); err != nil {
		return err
	}
	slices.Sort(latencies)
	result.P99, result.Max = latencies[len(latencies)*99/100], latencies[len(latencies)-1]
	return answers.Encode(result)
}
