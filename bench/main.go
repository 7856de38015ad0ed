// Command bench compares serial with a plain INCR and other ways to get a number, on its own redis-server.
//
//	go run -tags peers . -out results -check
//
// README.md explains its output.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"
)

type config struct {
	rounds  int
	length  time.Duration // of one measurement
	callers []int
	only    *regexp.Regexp // of contestants, by id
	network *regexp.Regexp // by name
	out     string         // directory, "" for none
	check   bool
	growth  bool
	costs   bool
	opening bool
	types   int    // number of types at midnight
	against string // directory, "" for none
}

func main() {
	var cfg *config
	var err error
	if len(os.Args) > 1 && os.Args[1] == workerFlag {
		err = work(os.Stdin, os.Stdout)
	} else if cfg, err = parseFlags(os.Args[1:]); err == nil {
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
		err = run(ctx, cfg)
		stop()
	}
	switch {
	case errors.Is(err, flag.ErrHelp):
	case err != nil:
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func parseFlags(args []string) (*config, error) {
	cfg := &config{}
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	// Rounds are short and many: a ratio measured within half a second of its INCR does not suffer from a machine whose
	// speed drifts, nor the median of many ratios from a single hiccup.
	flags.IntVar(&cfg.rounds, "rounds", 15, "`number` of rounds; at least 7 for published figures")
	flags.DurationVar(&cfg.length, "round", 200*time.Millisecond, "`duration` of one measurement in a round")
	callers := flags.String("callers", "1,4,10,100,1000", "`list` of numbers of callers")
	only := flags.String("only", "", "measure INCR and the contestants whose id matches the `regexp`")
	network := flags.String("network", "", "measure the networks whose name matches the `regexp`")
	flags.StringVar(&cfg.out, "out", "", "`directory` for tables, curves and all measurements")
	flags.BoolVar(&cfg.check, "check", false, "check the bars that the library must reach")
	flags.BoolVar(&cfg.growth, "growth", false, "instead, measure how cost and memory grow with the number of types")
	flags.BoolVar(&cfg.costs, "costs", false, "instead, measure what a ledger and replicas cost")
	flags.BoolVar(&cfg.opening, "openings", false, "instead, measure the first numbers of types, and midnight")
	flags.IntVar(&cfg.types, "types", 20_000, "`number` of types at midnight, for -openings")
	flags.StringVar(&cfg.against, "against", "", "instead, compare the checkout in another `directory` with this one")
	if err := flags.Parse(args); err != nil {
		return nil, err
	}
	if flags.NArg() > 0 {
		return nil, fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	if cfg.rounds < 1 || cfg.length <= 0 {
		return nil, errors.New("-rounds and -round must be positive")
	}
	for field := range strings.SplitSeq(*callers, ",") {
		n, err := strconv.Atoi(field)
		if err != nil || n < 1 || n > most {
			return nil, fmt.Errorf("-callers: %q: want a number from 1 to %d", field, most)
		}
		cfg.callers = append(cfg.callers, n)
	}
	var err error
	if cfg.only, err = regexp.Compile(*only); err != nil {
		return nil, fmt.Errorf("-only: %w", err)
	}
	if cfg.network, err = regexp.Compile(*network); err != nil {
		return nil, fmt.Errorf("-network: %w", err)
	}
	return cfg, nil
}

func run(ctx context.Context, cfg *config) error {
	server, err := startServer(ctx)
	if err != nil {
		return err
	}
	defer server.stop()
	if cfg.growth {
		return growth(ctx, cfg, server.addr)
	}
	if cfg.costs {
		return costs(ctx, cfg, server.addr)
	}
	if cfg.opening {
		return openings(ctx, cfg, server.addr)
	}
	if cfg.against != "" {
		return against(ctx, cfg, server.addr)
	}
	return compare(ctx, cfg, server.addr)
}

// compare measures all contestants on all networks, and prints and writes the results.
func compare(ctx context.Context, cfg *config, addr string) error {
	started := time.Now()
	var samples []*sample
	var unsupported []*contestant
	for _, n := range networks {
		if !cfg.network.MatchString(n.name) {
			continue
		}
		s, u, err := n.measure(ctx, cfg, addr)
		if err != nil {
			return fmt.Errorf("%s: %w", n.name, err)
		}
		samples, unsupported = append(samples, s...), append(unsupported, u...)
	}
	rows := summarise(samples)
	report := tables(rows, unsupported)
	if cfg.check {
		report += checks(rows)
	}
	fmt.Print(report)
	if cfg.out != "" {
		about, err := machine(ctx, cfg, addr, started)
		if err != nil {
			return err
		}
		if err := writeOut(cfg.out, "results.md", "# Results\n\n"+about+"\n"+report); err != nil {
			return err
		}
		if err := writeCSV(filepath.Join(cfg.out, "results.csv"), samples); err != nil {
			return err
		}
		if err := plots(cfg.out, rows); err != nil {
			return err
		}
	}
	fmt.Fprintf(os.Stderr, "took %v\n", time.Since(started).Round(time.Second))
	return nil
}
