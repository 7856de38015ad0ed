package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// openings compares the first numbers of types with INCR on new keys, and measures how a fleet meets midnight.
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
			fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %s | %s | %s | %s |\n", thousands(float64(r.callers)), n.name,
				thousands(r.numbersPerSecond), r.throughputQuartiles(),
				duration(r.p50), short(r.p50Ratio), cpu(r.serverCPU), short(r.cpuRatio), short(r.serverCPU/usual[r.callers]))
		}
	}
	fmt.Fprintf(&b, "\nMedians of %d alternating rounds or more. "+
		"A usual number is of a single type, with the same number of callers.\n\n", cfg.rounds)
	if cfg.network.MatchString("midnight") {
		if err := midnight(ctx, cfg, addr, &b); err != nil {
			return fmt.Errorf("midnight: %w", err)
		}
	}
	fmt.Print(b.String())
	if cfg.out != "" {
		if err := writeOut(cfg.out, "openings.md", b.String()); err != nil {
			return err
		}
	}
	fmt.Fprintf(os.Stderr, "took %v\n", time.Since(started).Round(time.Second))
	return nil
}

// openings returns the rows of one network, compared with INCR on new keys.
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
	var keys sync.Map // number of keys, by caller
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
