package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/dailyserial/serial"
	"github.com/redis/go-redis/v9"
)

// A meeting says how a worker meets midnight. First it opens its share of the types and reports that. On request, it
// opens all types, prepares its share, and reports that. On the next request, it asks for numbers until midnight, and
// then for one of every type.
type meeting struct {
	Types    int
	Midnight time.Time // in the generators' zone, in whole seconds
	Share    int       // index of this worker's share of the types, from 0
	Shares   int
	Prepare  bool
	Callers  int
}

// A met says how a worker met midnight.
type met struct {
	First    []time.Duration // time from midnight to each type's first number
	P99, Max time.Duration   // of calls from one second before midnight
}

// midnight measures a fleet at midnight, with and without Prepare.
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
	fmt.Fprintf(b, "## Midnight\n\nThe %s types of %d processes with %d callers each meet midnight. From one second "+
		"before it, callers ask for numbers of any type. After it, each process asks for one of every type, in an order "+
		"of its own.\n\n"+
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
	fmt.Fprintf(b, "\nMedians of %d alternating midnights. p99 is the median of the processes' values.\n\n", times)
	return nil
}

// notReady is the error of a worker that was not ready before midnight.
const notReady = "not ready before midnight"

// midnight returns when types got their first numbers, earliest first. lead is the time until midnight, besides the
// time for opening the types.
func (n network) midnight(program, addr string, types int, prepare bool, lead time.Duration) (result met, err error) {
	// Opening and preparing must end a second before midnight.
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

// meetMidnight makes a worker meet midnight.
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
	prepare := func(name string) error { return gen.Prepare(ctx, name) }
	for _, step := range []func() error{
		func() error { return each(m.Callers, share, next) },
		func() error { // now the types of all other workers are known, too
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

// walk asks for numbers until midnight, and then for one of every type, in random order.
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
