// Command bench creates tables and a chart from the output of the benchmarks in this folder. It can also compare two
// checkouts of the library. README.md contains the commands.
package main

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"time"
)

func main() {
	if err := run(os.Args[1:]); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	var c comparison
	out := flags.String("out", ".", "`directory` for tables and the chart")
	flags.StringVar(&c.checkout, "against", "", "`directory` of the checkout that is compared with this one")
	flags.StringVar(&c.benchmarks, "bench", "(Next|Openings)/loopback//(next|opening)",
		"`regexp` of the benchmarks to run with -against")
	flags.IntVar(&c.rounds, "rounds", 15, "`number` of rounds with -against")
	flags.DurationVar(&c.length, "round", 200*time.Millisecond, "`duration` of a round with -against")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if (c.checkout == "") == (flags.NArg() == 0) || flags.NArg() > 1 {
		return errors.New("want either -against or one file with the output of go test")
	}
	if err := os.MkdirAll(*out, 0o755); err != nil {
		return err
	}
	if c.checkout != "" {
		return c.run(*out)
	}
	text, err := os.ReadFile(flags.Arg(0))
	if err != nil {
		return err
	}
	o, err := parse(string(text))
	if err != nil {
		return err
	}
	about := machine(string(text)) + "- Commit: " + revision("..") + "\n"
	for _, t := range tables {
		if sections := t.sections(o); sections != "" {
			if err := write(*out, t.file, "# "+t.title+"\n\n"+about+sections); err != nil {
				return err
			}
		}
	}
	if drawing := chart(o); drawing != "" {
		return write(*out, "throughput.svg", drawing)
	}
	return nil
}

func write(dir, name, text string) error {
	return os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644)
}

// machine describes the machine and the software. It takes the CPU from the output of go test, and everything else from
// this machine. The benchmarks must therefore have run on this machine.
func machine(text string) string {
	cpu, redis := "unknown CPU", "unknown version"
	if m := regexp.MustCompile(`(?m)^cpu: (.+)$`).FindStringSubmatch(text); m != nil {
		cpu = m[1]
	}
	version, _ := exec.Command("redis-server", "--version").Output()
	if m := regexp.MustCompile(` v=(\S+)`).FindSubmatch(version); m != nil {
		redis = string(m[1])
	}
	return fmt.Sprintf("- CPU: %s, %d cores, shared by clients and server\n- System: %s/%s\n- Go: %s\n"+
		"- Redis: %s, nothing saved to disk\n- Date: %s\n", cpu, runtime.NumCPU(), runtime.GOOS, runtime.GOARCH,
		strings.TrimPrefix(runtime.Version(), "go"), redis, time.Now().UTC().Format(time.DateOnly))
}

// revision returns the name of the commit that is checked out.
func revision(checkout string) string {
	text, _ := exec.Command("git", "-C", checkout, "describe", "--tags", "--always", "--dirty").Output()
	return cmp.Or(strings.TrimSpace(string(text)), "unknown")
}
