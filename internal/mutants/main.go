// Command mutants makes one change to the code at a time, and checks whether the tests of the changed code fail. It
// works in copies of the tracked files, and never changes the work tree. Its exit code is 1 if a mutant lives that
// should be killed, if a mutant does not compile, or if tests fail without a change.
package main

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"
)

//go:embed list.txt
var list string

// An outcome is the result of running the tests with a mutant.
type outcome string

const (
	killed outcome = "killed"
	lived  outcome = "lived"
	broken outcome = "does not compile"
)

func main() {
	only := flag.String("only", "", "`REGEXP` that FILE: DESCRIPTION must match")
	from := flag.Int("from", 1, "`NUMBER` of the first mutant to try")
	to := flag.Int("to", 1<<30, "`NUMBER` of the last mutant to try")
	parallel := flag.Int("parallel", 1, "`NUMBER` of mutants that are tried at the same time, each in its own copy")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	mutants, err := parse(list)
	match, wrong := regexp.Compile(*only)
	if err = errors.Join(err, wrong); err == nil {
		mutants = slices.DeleteFunc(mutants, func(m mutant) bool {
			return m.number < *from || m.number > *to || !match.MatchString(m.file+": "+m.what)
		})
		err = run(ctx, mutants, *parallel)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
}

// run tries mutants on the repository that contains the working directory.
func run(ctx context.Context, mutants []mutant, parallel int) error {
	top, err := exec.CommandContext(ctx, "git", "rev-parse", "--show-toplevel").Output()
	if err != nil {
		return fmt.Errorf("git rev-parse: %w", err)
	}
	root := strings.TrimSpace(string(top))
	if err := check(root, mutants); err != nil {
		return err
	}
	t := &trial{ctx: ctx, mutants: mutants, tried: map[test]bool{}, counts: map[string]map[outcome]int{}}
	var all sync.WaitGroup
	for range max(1, parallel) {
		dir, err := copyTracked(ctx, root)
		defer os.RemoveAll(dir)
		if err != nil {
			return err
		}
		all.Go(func() { t.work(dir) })
	}
	all.Wait()
	t.summarize()
	return errors.Join(t.err, ctx.Err())
}

// copyTracked copies the files that Git tracks to a new folder, in their state in the work tree.
func copyTracked(ctx context.Context, root string) (dir string, err error) {
	if dir, err = os.MkdirTemp("", "mutants"); err != nil {
		return "", err
	}
	names, err := exec.CommandContext(ctx, "git", "-C", root, "ls-files", "-z").Output()
	if err != nil {
		return dir, fmt.Errorf("git ls-files: %w", err)
	}
	for name := range strings.SplitSeq(strings.TrimSuffix(string(names), "\x00"), "\x00") {
		text, err := os.ReadFile(filepath.Join(root, name))
		if errors.Is(err, os.ErrNotExist) {
			continue // deleted, but not committed yet
		}
		to := filepath.Join(dir, name)
		if err := errors.Join(err, os.MkdirAll(filepath.Dir(to), 0o755), os.WriteFile(to, text, 0o755)); err != nil {
			return dir, err
		}
	}
	return dir, nil
}

// A trial tries mutants in several copies of the repository.
type trial struct {
	ctx context.Context

	mu      sync.Mutex // guards the fields below
	mutants []mutant   // mutants that have not been tried yet
	tried   map[test]bool
	counts  map[string]map[outcome]int // by folder, and in total
	err     error                      // errors for the mutants with an unexpected outcome
}

// work tries one mutant after the other in a copy. Before the first mutant that uses a test is tried, work runs the
// test without a change.
func (t *trial) work(dir string) {
	for {
		t.mu.Lock()
		if len(t.mutants) == 0 || t.ctx.Err() != nil {
			t.mu.Unlock()
			return
		}
		m := t.mutants[0]
		t.mutants = t.mutants[1:]
		first := !t.tried[m.test]
		t.tried[m.test] = true
		t.mu.Unlock()
		got, by := lived, ""
		if first {
			got, by = m.test.run(t.ctx, dir)
		}
		if t.ctx.Err() != nil {
			return
		}
		if got != lived {
			t.note(m, broken, "without a change, "+by+" fails; ")
		} else if err := t.try(dir, m); err != nil {
			t.note(m, broken, err.Error())
		}
	}
}

// try applies a mutant to a copy, runs its tests, and restores the file.
func (t *trial) try(dir string, m mutant) error {
	path := filepath.Join(dir, m.file)
	text, err := os.ReadFile(path)
	if err == nil {
		err = os.WriteFile(path, bytes.Replace(text, []byte(m.old), []byte(m.new), 1), 0o644)
	}
	if err != nil {
		return err
	}
	began := time.Now()
	got, by := m.test.run(t.ctx, dir)
	if t.ctx.Err() == nil {
		t.note(m, got, fmt.Sprintf("%s (%.0f s)", by, time.Since(began).Seconds()))
	}
	return os.WriteFile(path, text, 0o644)
}

// note prints and counts the outcome of a mutant.
func (t *trial) note(m mutant, got outcome, how string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if got == killed && m.lives != "" {
		how += ", although the list says that it lives"
	}
	name := fmt.Sprintf("%d %s: %s", m.number, m.file, m.what)
	fmt.Printf("%s: %s %s\n", name, got, how)
	if got == broken || got == lived && m.lives == "" {
		t.err = errors.Join(t.err, fmt.Errorf("%s: %s", name, got))
	}
	for _, row := range []string{filepath.Dir(m.file), "total"} {
		if t.counts[row] == nil {
			t.counts[row] = map[outcome]int{}
		}
		t.counts[row][got]++
	}
}

// summarize prints the counts.
func (t *trial) summarize() {
	fmt.Printf("%-24s %7s %6s %6s\n", "folder", "tried", "killed", "lived")
	for _, row := range slices.Sorted(maps.Keys(t.counts)) {
		c := t.counts[row]
		fmt.Printf("%-24s %7d %6d %6d\n", row, c[killed]+c[lived]+c[broken], c[killed], c[lived])
	}
}

var failure = regexp.MustCompile(`(?m)^--- FAIL: (\S+)|^panic: (test timed out)`)

// run runs the tests in a copy of the repository. The result by is the name of the first test that fails.
func (t test) run(ctx context.Context, dir string) (got outcome, by string) {
	packages := strings.Split(t.packages, ",")
	module := filepath.Join(dir, packages[0])
	for {
		if _, err := os.Stat(filepath.Join(module, "go.mod")); err == nil {
			break
		}
		module = filepath.Dir(module)
	}
	args := []string{"test", "-count=1", "-failfast", "-vet=off", "-ldflags=-s -w", "-timeout=120s", "-run", t.pattern}
	for _, name := range packages {
		path, _ := filepath.Rel(module, filepath.Join(dir, name))
		args = append(args, "./"+path)
	}
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir, cmd.WaitDelay = module, time.Second
	out, err := cmd.CombinedOutput()
	switch {
	case err == nil:
		return lived, ""
	case bytes.Contains(out, []byte("[build failed]")), bytes.Contains(out, []byte("[setup failed]")):
		return broken, string(out)
	}
	if m := failure.FindSubmatch(out); m != nil {
		by = string(m[1]) + string(m[2])
	}
	return killed, by
}
