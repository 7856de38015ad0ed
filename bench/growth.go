package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/dailyserial/serial"
	"github.com/redis/go-redis/v9"
)

const openers = 50 // callers that open periods at the same time

// growth shows how the cost of a call and of a type grows with the number of types, and how the cost of a call grows
// with the day's numbers.
func growth(ctx context.Context, cfg *config, addr string) error {
	started := time.Now()
	g := &grower{cfg: cfg, admin: newAdmin(addr)}
	defer g.admin.close()
	rdb := redis.NewClient(&redis.Options{Addr: addr})
	defer func() { _ = rdb.Close() }()
	g.target = &target{rdb: rdb, addr: addr}
	g.meter = newMeter(g.admin)

	var b strings.Builder
	b.WriteString("## Growth with the number of types\n\n" +
		"| types | opening a period | one caller, ×INCR (quartiles) | 100 callers, ×INCR (quartiles) " +
		"| process memory | per type | once the period is over | Redis, per type |\n" +
		"| ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |\n")
	// The first row is not shown: it fills pools and caches that all types share.
	for i, types := range []int{openers, 1, 100, 10_000, 100_000} {
		line, err := g.types(ctx, types)
		if err != nil {
			return fmt.Errorf("%d types: %w", types, err)
		}
		if i > 0 {
			b.WriteString(line)
		}
	}
	fmt.Fprintf(&b, "\nPeriods are opened by %d callers at once. Process memory is HeapAlloc after a garbage "+
		"collection, less what it was before; types have names of 2 to 6 bytes; longer names take more. "+
		"Callers pick types at random. Ratios are medians of %d alternating rounds.\n\n", openers, g.cfg.rounds)
	b.WriteString("## Growth with the day's numbers\n\n" +
		"| numbers so far | one caller, ×INCR (quartiles) | server CPU per number |\n| ---: | ---: | ---: |\n")
	for _, used := range []int64{0, 1_000_000, 1_000_000_000_000, 900_000_000_000_000} {
		line, err := g.numbers(ctx, used)
		if err != nil {
			return fmt.Errorf("%d numbers: %w", used, err)
		}
		b.WriteString(line)
	}
	fmt.Print(b.String())
	if cfg.out != "" {
		if err := writeOut(cfg.out, "growth.md", b.String()); err != nil {
			return err
		}
	}
	fmt.Fprintf(os.Stderr, "took %v\n", time.Since(started).Round(time.Second))
	return nil
}

type grower struct {
	cfg    *config
	admin  *admin
	target *target
	meter  *meter
}

// types measures n types, in a period that continues and then in one that ends.
func (g *grower) types(ctx context.Context, n int) (string, error) {
	names := make([]string, n)
	for i := range names {
		names[i] = "T" + strconv.Itoa(i)
	}
	rows, opening, stored, err := g.speed(ctx, names)
	if err != nil {
		return "", err
	}
	full, over, err := g.memory(ctx, names, opening)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("| %s | %s | %s | %s | %s | %s B | %s | %s B |\n", thousands(float64(n)),
		duration(float64(opening)/float64(n)), rows[0].throughputQuartiles(), rows[1].throughputQuartiles(),
		kilobytes(full), thousands(float64(full)/float64(n)), kilobytes(over),
		thousands(float64(stored)/float64(n))), nil
}

// speed measures calls for types at random, the time that opening them all takes, and what they take in Redis.
func (g *grower) speed(ctx context.Context, names []string) (rows []*row, opening time.Duration, stored int64,
	err error) {
	if err := g.admin.rdb.FlushAll(ctx).Err(); err != nil {
		return nil, 0, 0, err
	}
	before, err := g.admin.memory(ctx)
	if err != nil {
		return nil, 0, 0, err
	}
	gen, err := newGenerator(g.target, "growth")
	if err != nil {
		return nil, 0, 0, err
	}
	start := time.Now()
	if err := open(ctx, gen, names); err != nil {
		return nil, 0, 0, err
	}
	opening = time.Since(start)
	after, err := g.admin.memory(ctx)
	if err != nil {
		return nil, 0, 0, err
	}
	next := func(_ context.Context, rnd *rand.Rand) error {
		_, err := gen.Next(context.Background(), names[rnd.IntN(len(names))])
		return err
	}
	rows, err = g.compare(ctx, fmt.Sprintf("%d types", len(names)), []int{1, 100}, next)
	return rows, opening, after - before, err
}

// memory returns the types' memory in this process during their period, and after it. opening is how long
// opening them all takes.
func (g *grower) memory(ctx context.Context, names []string, opening time.Duration) (full, over int64, err error) {
	before := heap()
	ends := time.Now().Add(2*opening + 3*time.Second)
	gen, err := generatorAt(g.target, "ending", 24*time.Hour-time.Until(ends))
	if err != nil {
		return 0, 0, err
	}
	if err := open(ctx, gen, names); err != nil {
		return 0, 0, err
	}
	full = heap() - before
	if time.Now().After(ends) {
		return 0, 0, errors.New("the period ended before all types were open")
	}
	// A zone's offset is in whole seconds, and the server's clock decides.
	select {
	case <-time.After(time.Until(ends) + 2*time.Second):
	case <-ctx.Done():
		return 0, 0, ctx.Err()
	}
	if _, err := gen.Next(ctx, names[0]); err != nil {
		return 0, 0, err
	}
	over = heap() - before
	runtime.KeepAlive(gen)
	runtime.KeepAlive(names)
	return full, over, nil
}

// numbers measures a type with that many numbers used.
func (g *grower) numbers(ctx context.Context, used int64) (string, error) {
	if err := g.admin.rdb.FlushAll(ctx).Err(); err != nil {
		return "", err
	}
	gen, err := newGenerator(g.target, "growth")
	if err != nil {
		return "", err
	}
	if err := gen.Raise(ctx, "IS", used); err != nil {
		return "", err
	}
	next := func(context.Context, *rand.Rand) error {
		_, err := gen.Next(context.Background(), "IS")
		return err
	}
	rows, err := g.compare(ctx, fmt.Sprintf("%d numbers", used), []int{1}, next)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("| %s | %s | %s |\n", thousands(float64(used)), rows[0].throughputQuartiles(),
		cpu(rows[0].serverCPU)), nil
}

// compare returns the rows of do, one for each number of callers.
func (g *grower) compare(ctx context.Context, name string, callers []int, do op) ([]*row, error) {
	incr, err := openIncr(ctx, g.target)
	if err != nil {
		return nil, err
	}
	base := &entrant{contestant: &contestant{id: baseline, numbers: 1}, do: incr}
	next := &entrant{contestant: &contestant{id: "next", numbers: 1}, do: do}
	samples, err := g.meter.rounds(ctx, g.cfg, network{name: name}, callers, base, []*entrant{next})
	if err != nil {
		return nil, err
	}
	var rows []*row
	for _, r := range summarise(samples) {
		if r.contestant.id == "next" {
			rows = append(rows, r)
		}
	}
	return rows, nil
}

// open issues the first number of each type.
func open(ctx context.Context, gen *serial.Generator, names []string) error {
	errs := make([]error, openers)
	var wg sync.WaitGroup
	for i := range openers {
		wg.Go(func() {
			for j := i; j < len(names) && errs[i] == nil; j += openers {
				_, errs[i] = gen.Next(ctx, names[j])
			}
		})
	}
	wg.Wait()
	return cmp.Or(firstError(errs), ctx.Err())
}

// heap returns the memory in use. A timer of the last calls holds their generator for up to 50 ms; finalizers and pools
// release theirs within two collections.
func heap() int64 {
	time.Sleep(100 * time.Millisecond)
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

func kilobytes(bytes int64) string { return thousands(float64(bytes)/1000) + " kB" }
