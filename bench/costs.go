package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/dailyserial/serial"
	"github.com/redis/go-redis/v9"
)

// A shelf is a ledger in memory, since the library and Redis are measured, not a database.
type shelf struct {
	mu   sync.Mutex
	last map[string]int64
}

func (l *shelf) Reserve(_ context.Context, r serial.Reservation) (int64, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	key := r.Series + " " + r.Period
	after := max(l.last[key], r.Above)
	l.last[key] = after + r.N
	return after, nil
}

// costs compares Next with and without protection, on a server that has a replica.
func costs(ctx context.Context, cfg *config, addr string) error {
	replica, err := startServer(ctx)
	if err != nil {
		return err
	}
	defer replica.stop()
	admin := newAdmin(addr)
	defer admin.close()
	rdb := redis.NewClient(&redis.Options{Addr: addr})
	defer func() { _ = rdb.Close() }()
	if err := replica.follow(ctx, addr, rdb); err != nil {
		return err
	}
	t := &target{rdb: rdb, addr: addr}
	enter := func(id, title string, opts ...serial.Option) *entrant {
		var do op
		if err == nil {
			do, err = openNext(ctx, t, "cost-"+id, opts...)
		}
		return &entrant{contestant: &contestant{id: id, title: title, numbers: 1}, do: do}
	}
	ledger := func() serial.Ledger { return &shelf{last: map[string]int64{}} }
	base := enter(baseline, "Next, unprotected")
	others := []*entrant{
		enter("ledger-100", "`WithLedger`, blocks of 100", serial.WithLedger(ledger(), 100)),
		enter("ledger-10000", "`WithLedger`, blocks of 10,000", serial.WithLedger(ledger(), 10_000)),
		enter("replicas", "`WithReplicas(1)`", serial.WithReplicas(1, time.Second)),
		enter("both", "both, blocks of 10,000", serial.WithLedger(ledger(), 10_000), serial.WithReplicas(1, time.Second)),
	}
	if err != nil {
		return err
	}
	samples, err := newMeter(admin).rounds(ctx, cfg, networks[0], cfg.callers, base, others)
	if err != nil {
		return err
	}
	rows := summarise(samples)
	var b strings.Builder
	b.WriteString("| callers | | numbers per second | × unprotected (quartiles) | p99, × unprotected |\n" +
		"| ---: | :--- | ---: | ---: | ---: |\n")
	for _, r := range slices.DeleteFunc(rows, func(r *row) bool { return r.contestant.id == baseline }) {
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s |\n", thousands(float64(r.callers)), r.contestant.title,
			thousands(r.numbersPerSecond), r.throughputQuartiles(), short(r.p99Ratio))
	}
	fmt.Fprintf(&b, "\nMedians of %d alternating rounds.\n", cfg.rounds)
	fmt.Print(b.String())
	if cfg.out == "" {
		return nil
	}
	return writeOut(cfg.out, "costs.md", b.String())
}

// follow makes s a replica of the server at addr, and waits until s confirms writes.
func (s *server) follow(ctx context.Context, addr string, master *redis.Client) error {
	replica := redis.NewClient(&redis.Options{Addr: s.addr})
	defer func() { _ = replica.Close() }()
	host, port, _ := strings.Cut(addr, ":")
	if err := replica.Do(ctx, "REPLICAOF", host, port).Err(); err != nil {
		return err
	}
	for {
		pipe := master.Pipeline()
		pipe.Set(ctx, "followed", "", time.Minute)
		acks := pipe.Do(ctx, "WAIT", 1, 1000)
		if _, err := pipe.Exec(ctx); err != nil {
			return err
		}
		if n, err := acks.Int(); err != nil || n == 1 {
			return err
		}
	}
}
