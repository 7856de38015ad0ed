// Command stress repeats tests beside busy loops, as many as there are CPUs, and fails if a test fails once:
//
//	go run .ci/stress.go [-race] [-count 100] [-slow-count 5] [-run regexp] [packages]
//
// It first runs every test alone to learn how long it takes, and then, beside the busy loops, a hundred times what takes
// less than a second and five times what takes longer. Only examples cannot be repeated within a process. What needs
// redis-server is skipped without it, as ever, unless SERIAL_REQUIRE_REDIS=1.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"
)

// event is a line of go test -json.
type event struct {
	Action  string
	Test    string
	Elapsed float64 // in seconds
	Output  string
}

// A result is what became of a top-level test.
type result struct {
	passed, failed, skipped int
	longest                 time.Duration // of the test or one of its subtests
}

func (r *result) runs() int { return r.passed + r.failed + r.skipped }

func main() {
	race := flag.Bool("race", false, "with the race detector")
	count := flag.Int("count", 100, "how often to run a test that takes less than a second")
	slowCount := flag.Int("slow-count", 5, "how often to run a slower test")
	pattern := flag.String("run", "", "only the tests that match this regular expression")
	timeout := flag.Duration("timeout", 150*time.Minute, "when to give up on a package that hangs")
	flag.Parse()

	packages, err := list(flag.Args())
	if err != nil {
		fmt.Fprintln(os.Stderr, "stress:", err)
		os.Exit(2)
	}
	var stressed []*pkg
	for _, name := range packages {
		p := &pkg{name: name, flags: []string{"-timeout", timeout.String(), "-race=" + strconv.FormatBool(*race)}}
		p.learn(*pattern)
		stressed = append(stressed, p)
	}

	cpus := runtime.NumCPU()
	runtime.GOMAXPROCS(cpus + 1) // one more, for the reader of the results
	for range cpus {
		go func() {
			for {
			}
		}()
	}
	ran := 0
	var failures []string
	for _, p := range stressed {
		began := time.Now()
		p.repeat(p.fast, *count)
		p.repeat(p.slow, *slowCount)
		fmt.Printf("%s: %d tests %d times, %d slow ones %d times, %d skipped, in %s\n", p.name,
			len(p.fast), *count, len(p.slow), *slowCount, p.skipped, time.Since(began).Round(time.Second))
		ran += len(p.fast) + len(p.slow)
		failures = append(failures, p.failures...)
	}
	fmt.Println()
	for _, f := range failures {
		fmt.Println("FAIL", f)
	}
	switch {
	case len(failures) > 0:
		os.Exit(1)
	case ran == 0:
		fmt.Println("FAIL: no test ran")
		os.Exit(1)
	}
	fmt.Printf("None of %d tests failed once.\n", ran)
}

// A pkg is a package under stress.
type pkg struct {
	name       string
	flags      []string // of go test
	fast, slow []string // its tests
	skipped    int
	failures   []string
}

// learn runs every test once, on a machine as quiet as it is. What fails here is a failure, and is repeated like the others.
func (p *pkg) learn(pattern string) {
	for name, r := range p.test(pattern, 1) {
		switch {
		case r.skipped > 0:
			p.skipped++
		case r.longest < time.Second:
			p.fast = append(p.fast, name)
		default:
			p.slow = append(p.slow, name)
		}
	}
}

func (p *pkg) repeat(names []string, count int) {
	if len(names) == 0 {
		return
	}
	slices.Sort(names)
	quoted := make([]string, len(names))
	for i, name := range names {
		quoted[i] = regexp.QuoteMeta(name)
	}
	results := p.test("^("+strings.Join(quoted, "|")+")$", count)
	for _, name := range names {
		want := count
		if strings.HasPrefix(name, "Example") {
			want = 1 // whatever -count says
		}
		// A panic, say, ends the process before the others have run as often as they should.
		if r := results[name]; r == nil || r.runs() < want {
			p.fail("%s did not run %d times", name, want)
		} else if r.skipped > 0 {
			fmt.Printf("%s: %s was skipped %d of %d times\n", p.name, name, r.skipped, want)
		}
	}
}

func (p *pkg) fail(format string, args ...any) {
	p.failures = append(p.failures, p.name+": "+fmt.Sprintf(format, args...))
}

// list returns the import paths of the packages that have tests.
func list(patterns []string) ([]string, error) {
	args := []string{"list", "-f", "{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}}{{end}}"}
	cmd := exec.Command("go", append(args, patterns...)...)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	return strings.Fields(string(out)), err
}

// test runs the tests that match the pattern so many times, and prints the output of whatever fails.
func (p *pkg) test(pattern string, count int) map[string]*result {
	results := map[string]*result{}
	args := slices.Concat([]string{"test", "-json", "-run", pattern, "-count", strconv.Itoa(count)}, p.flags, []string{p.name})
	cmd := exec.Command("go", args...)
	cmd.Stderr = os.Stderr
	stdout, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		p.fail("%v", err)
		return results
	}
	outputs := map[string]string{} // of each test that has not ended, and of the package itself as ""
	failed := false
	events := json.NewDecoder(stdout)
	for {
		var e event
		if err = events.Decode(&e); err != nil {
			break
		}
		name, _, isSub := strings.Cut(e.Test, "/")
		outputs[name] += e.Output
		if name == "" {
			continue
		}
		r := results[name]
		if r == nil {
			r = &result{}
			results[name] = r
		}
		r.longest = max(r.longest, time.Duration(e.Elapsed*float64(time.Second)))
		if isSub {
			continue
		}
		switch e.Action {
		case "pass":
			r.passed++
		case "skip":
			r.skipped++
		case "fail":
			r.failed++
			failed = true
			fmt.Printf("--- %s: %s, run %d of %d\n%s\n", p.name, name, r.runs(), count, outputs[name])
		default:
			continue
		}
		delete(outputs, name)
	}
	if err != io.EOF {
		p.fail("go test -json: %v", err)
		_ = cmd.Process.Kill()
	}
	for name, r := range results {
		if r.failed > 0 {
			p.fail("%s failed %d of %d times", name, r.failed, r.runs())
		}
	}
	// What no test accounts for: the package does not build, or its TestMain fails.
	if err := cmd.Wait(); err != nil && !failed {
		p.fail("%v", err)
		for name, output := range outputs {
			fmt.Printf("--- %s %s\n%s\n", p.name, name, output)
		}
	}
	return results
}
