package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// against measures another checkout of the library (old) beside this one (new): workers of both take turns.
func against(ctx context.Context, cfg *config, addr string) error {
	started := time.Now()
	dir, err := os.MkdirTemp("", "serial-bench-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	// Old, new, and new again for INCR: what INCR leaves in a process would slow down only one of the two.
	var fleets [3]fleet
	for i, checkout := range []string{cfg.against, "..", ".."} {
		// New is built too, so both have the same tags and flags.
		program := filepath.Join(dir, fmt.Sprint("bench", i))
		if err := build(ctx, checkout, dir, program); err != nil {
			return err
		}
		j := job{Addr: addr, Prefix: fmt.Sprint("build", i, "-"), Noon: started}
		if fleets[i], err = startFleet(program, networks[2].processes, j); err != nil {
			return err
		}
		defer fleets[i].stop()
	}
	admin := newAdmin(addr)
	defer admin.close()
	table, err := takeTurns(ctx, cfg, newMeter(admin), fleets)
	if err != nil {
		return err
	}
	fmt.Print(table)
	if cfg.out == "" {
		return nil
	}
	about, err := machine(ctx, cfg, addr, started)
	if err != nil {
		return err
	}
	return writeOut(cfg.out, "before-after.md", fmt.Sprintf("# Before and after\n\n%s- Old: %s\n- New: %s\n\n%s", about,
		revision(ctx, cfg.against), revision(ctx, ".."), table))
}

// takeTurns measures old and new in one process and in many, and returns the table of both.
func takeTurns(ctx context.Context, cfg *config, m *meter, fleets [3]fleet) (string, error) {
	var b strings.Builder
	b.WriteString("| processes × callers | | old, ×INCR | new, ×INCR | new / old (quartiles) " +
		"| allocations per call, old | new | server CPU per number, old | new | new / old (quartiles) |\n" +
		"| ---: | :--- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |\n")
	for _, n := range []network{{"one process", 0, most, 1}, networks[2]} {
		enter := func(build int, id string) *entrant { return &entrant{byID(id), nil, fleets[build][:n.processes]} }
		for _, id := range []string{"next", "next-deadline", "next-1000-types", "openings"} {
			before, after := enter(0, id), enter(1, id)
			if !cfg.only.MatchString(id) || !cfg.network.MatchString(n.name) || n.processes > 1 && !after.inFleet {
				continue
			}
			// Only these two take turns, so each round has them side by side.
			samples, err := m.rounds(ctx, cfg, n, n.counts(cfg), enter(2, baseline), []*entrant{before, after})
			if err != nil {
				return "", err
			}
			for _, callers := range n.counts(cfg) {
				older, newer := taken(samples, before, callers), taken(samples, after, callers)
				writeChange(&b, n.processes, newRow(older), newRow(newer), newRow(comparedWith(older, newer)))
			}
		}
	}
	fmt.Fprintf(&b, "\nMedians of %d alternating rounds or more; ratios are medians of each round's ratio.\n", cfg.rounds)
	return b.String(), nil
}

// taken returns the measurements of e with that number of callers, in the order of the rounds.
func taken(samples []*sample, e *entrant, callers int) []*sample {
	var group []*sample
	for _, s := range samples {
		if s.contestant == e.contestant && s.callers == callers {
			group = append(group, s)
		}
	}
	return group
}

// comparedWith returns group with each round's measurement of old as the base, instead of its INCR.
func comparedWith(old, group []*sample) []*sample {
	compared := make([]*sample, len(group))
	for i, s := range group {
		c := *s
		c.base = old[i]
		compared[i] = &c
	}
	return compared
}

func writeChange(b *strings.Builder, processes int, older, newer, change *row) {
	fmt.Fprintf(b, "| %d × %s | %s | %s | %s | %s | %s | %s | %s | %s | %s |\n",
		processes, thousands(float64(newer.callers)), newer.contestant.title, short(older.throughputRatio),
		short(newer.throughputRatio), change.throughputQuartiles(), allocations(older.allocs), allocations(newer.allocs),
		cpu(older.serverCPU), cpu(newer.serverCPU), change.cpuQuartiles())
}

// build builds this program with the library in checkout. The current directory must be this program's.
func build(ctx context.Context, checkout, dir, program string) error {
	checkout, err := filepath.Abs(checkout)
	if err != nil {
		return err
	}
	mod := filepath.Join(dir, "go.mod")
	for _, name := range []string{"go.mod", "go.sum"} {
		text, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o644); err != nil {
			return err
		}
	}
	for _, args := range [][]string{
		{"mod", "edit", "-replace", "github.com/dailyserial/serial=" + checkout, mod},
		// The other checkout may require other versions.
		{"build", "-mod=mod", "-modfile", mod, "-o", program, "."},
	} {
		if text, err := exec.CommandContext(ctx, "go", args...).CombinedOutput(); err != nil {
			return fmt.Errorf("go %s: %w: %s", args[0], err, text)
		}
	}
	return nil
}

// revision names the commit that is checked out.
func revision(ctx context.Context, checkout string) string {
	text, err := exec.CommandContext(ctx, "git", "-C", checkout, "describe", "--tags", "--always", "--dirty").Output()
	if err != nil {
		return "unknown commit"
	}
	return string(bytes.TrimSpace(text))
}
