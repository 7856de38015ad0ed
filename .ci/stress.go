// Command stress repeats tests beside busy loops, as many as there are CPUs, and fails if a test fails once:
//
//	go run .ci/stress.go [-race] [-count 100] [-slow-count 10] [-run regexp] [-since revision] [-for duration] [packages]
//
// Without packages, it takes every package of every module of the repository. It runs a test that takes less than a second
// a hundred times and one that takes longer ten times, in ten rounds, and says how often they ran after each round, or with
// -for at the end of a package. Examples run once a round, since nothing can repeat them within a process. What needs
// redis-server is skipped without it, as ever, unless SERIAL_REQUIRE_REDIS=1.
//
// With -since, it takes only the packages with a file that is not as in that revision, or of which go.mod is not;
// documents do not count. A package without tests stands for those that import it. Tests that are new or changed come first.
// With -for, it ends after that time, building included: new and changed tests get half of it, then every package an equal
// share of what remains.
package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"
)

// atOnce is how many tests one process runs. The time is looked at before every process.
const atOnce = 8

var (
	race      = flag.Bool("race", false, "with the race detector")
	count     = flag.Int("count", 100, "how often to run a test that takes less than a second")
	slowCount = flag.Int("slow-count", 10, "how often to run a slower test: so many rounds there are")
	pattern   = flag.String("run", "", "only the tests that match this regular expression")
	timeout   = flag.Duration("timeout", 30*time.Minute, "when to give up on a few tests that hang")
	since     = flag.String("since", "", "only packages that have changed since this revision of git")
	limit     = flag.Duration("for", 0, "when to end, however many rounds that is; 0 is after the last one")
)

func main() {
	began := time.Now()
	flag.Parse()
	if *slowCount < 1 || *count < *slowCount || *limit < 0 {
		fmt.Fprintln(os.Stderr, "stress: -slow-count is at least 1, -count at least -slow-count, and -for not negative")
		os.Exit(2)
	}
	failures, err := stress(began, flag.Args())
	for _, f := range failures {
		fmt.Println("FAIL", f)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "stress:", err)
	}
	fmt.Printf("It took %s.\n", time.Since(began).Round(time.Second))
	if len(failures) > 0 || err != nil {
		os.Exit(1)
	}
}

// stress returns what failed of the tests, or an error if they cannot be run.
func stress(began time.Time, patterns []string) ([]string, error) {
	packages, err := list(patterns)
	if err == nil && *since != "" {
		packages, err = changed(packages, *since)
	}
	if err != nil {
		return nil, err
	}
	packages = slices.DeleteFunc(packages, func(p *pkg) bool { return !p.hasTests() })
	if len(packages) == 0 && *since != "" {
		fmt.Printf("No package with tests has changed since %s.\n", *since)
		return nil, nil
	}
	folder, err := os.MkdirTemp("", "stress")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(folder) }()
	ctx := context.Background()
	deadline := began.Add(*limit)
	if *limit > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, deadline)
		defer cancel()
	}
	for i, p := range packages {
		p.build(ctx, filepath.Join(folder, strconv.Itoa(i)))
	}
	if *limit == 0 {
		// How long a test takes is learned on a machine as quiet as it is. There is no time for that with a limit.
		for _, p := range packages {
			p.learn(p.run(ctx, p.names(), 1))
		}
	}
	runtime.GOMAXPROCS(runtime.NumCPU() + 1) // one more, for the reader of the results
	for range runtime.NumCPU() {
		go func() {
			for {
			}
		}()
	}
	if *limit == 0 {
		for _, p := range packages {
			p.rounds(ctx, p.names(), time.Time{})
		}
	} else {
		half := time.Now().Add(time.Until(deadline) / 2)
		first := slices.DeleteFunc(slices.Clone(packages), func(p *pkg) bool { return len(p.changed) == 0 })
		for i, p := range first {
			p.rounds(ctx, p.changed, share(half, len(first)-i))
		}
		for i, p := range packages {
			p.rounds(ctx, p.others, share(deadline, len(packages)-i))
			fmt.Println(p)
		}
	}

	var failures []string
	ran, tests := 0, 0
	for _, p := range packages {
		failures = append(failures, p.failures...)
		ran += len(p.ran)
		tests += len(p.names())
	}
	fmt.Println()
	switch {
	case len(failures) > 0:
	case ran == 0:
		failures = []string{"no test ran"}
	default:
		fmt.Printf("%d of %d tests ran, and none failed once.\n", ran, tests)
	}
	return failures, nil
}

// share returns when the first of n is to end that have equal shares of the time until then.
func share(then time.Time, n int) time.Time {
	return time.Now().Add(time.Until(then) / time.Duration(n))
}

// A pkg is a package under stress.
type pkg struct {
	ImportPath, Dir                    string
	TestGoFiles, XTestGoFiles          []string
	Imports, TestImports, XTestImports []string
	Module                             struct{ Dir string }
	binary                             string          // of its tests
	changed                            []string        // tests that are new or changed
	others                             []string        // its other tests
	slow                               map[string]bool // tests that take a second or longer
	ran                                map[string]int  // how often each test ran
	skipped                            map[string]bool
	failed                             map[string]bool // tests that failed
	failures                           []string
	took, longest                      time.Duration // all of its processes, and the longest one
}

func (p *pkg) hasTests() bool { return len(p.TestGoFiles)+len(p.XTestGoFiles) > 0 }

func (p *pkg) names() []string { return slices.Concat(p.changed, p.others) }

func (p *pkg) fail(format string, args ...any) {
	failure := p.ImportPath + ": " + fmt.Sprintf(format, args...)
	fmt.Println("FAIL", failure)
	p.failures = append(p.failures, failure)
}

// String says how often the tests ran.
func (p *pkg) String() string {
	var fast, slow []int
	for _, name := range p.names() {
		switch {
		case strings.HasPrefix(name, "Example"):
		case p.slow[name]:
			slow = append(slow, p.ran[name])
		default:
			fast = append(fast, p.ran[name])
		}
	}
	least := func(runs []int) string {
		if len(runs) == 0 {
			return "0"
		}
		return fmt.Sprintf("%d, each at least %d times", len(runs), slices.Min(runs))
	}
	return fmt.Sprintf("%s: fast tests: %s; slow ones: %s; %d skipped; in %s", p.ImportPath,
		least(fast), least(slow), len(p.skipped), p.took.Round(time.Second))
}

// list returns the packages that the patterns name, or all of the repository. The library's own module comes last, since
// its tests take longest: with a limit, the others leave it what they do not need.
func list(patterns []string) ([]*pkg, error) {
	modules := []string{"."}
	if len(patterns) == 0 {
		patterns = []string{"./..."}
		root, err := git(".", "rev-parse", "--show-toplevel")
		if err != nil {
			return nil, err
		}
		files, err := git(root, "ls-files", "go.mod", "*/go.mod")
		if err != nil {
			return nil, err
		}
		modules = nil
		for _, file := range strings.Fields(files) {
			modules = append(modules, filepath.Join(root, filepath.Dir(file)))
		}
	}
	var packages []*pkg
	for _, module := range modules {
		out, err := output(context.Background(), module, "go", append([]string{"list", "-json"}, patterns...)...)
		if err != nil {
			return nil, err
		}
		for decoder := json.NewDecoder(strings.NewReader(out)); decoder.More(); {
			p := &pkg{slow: map[string]bool{}, ran: map[string]int{}, skipped: map[string]bool{},
				failed: map[string]bool{}}
			if err := decoder.Decode(p); err != nil {
				return nil, err
			}
			packages = append(packages, p)
		}
	}
	slices.SortStableFunc(packages, func(a, b *pkg) int {
		return cmp.Or(-cmp.Compare(a.Module.Dir, b.Module.Dir), -cmp.Compare(a.ImportPath, b.ImportPath))
	})
	return packages, nil
}

// changed returns those of the packages that the revision has differently, and notes which of their tests it does not
// have as they are.
func changed(packages []*pkg, revision string) ([]*pkg, error) {
	root, err := git(".", "rev-parse", "--show-toplevel")
	if err != nil {
		return nil, err
	}
	files, err := git(root, "diff", "--name-only", "--no-renames", revision, "--")
	if err != nil {
		return nil, err
	}
	added, err := git(root, "ls-files", "--others", "--exclude-standard")
	if err != nil {
		return nil, err
	}
	touched := map[*pkg]bool{}
	for file := range strings.Lines(files + "\n" + added) {
		file = strings.TrimSpace(file)
		if file == "" || filepath.Ext(file) == ".md" || file[0] == '.' {
			continue
		}
		path := filepath.Join(root, file)
		if base := filepath.Base(file); base == "go.mod" || base == "go.sum" {
			for _, p := range packages {
				touched[p] = touched[p] || p.Module.Dir == filepath.Dir(path)
			}
			continue
		}
		p := owner(packages, path)
		if p == nil {
			continue
		}
		touched[p] = true
		if strings.HasSuffix(file, "_test.go") {
			names, err := changedTests(root, file, revision)
			if err != nil {
				return nil, err
			}
			p.changed = append(p.changed, names...)
		}
	}
	for _, p := range packages {
		for _, untested := range packages {
			if touched[untested] && !untested.hasTests() &&
				slices.Contains(slices.Concat(p.Imports, p.TestImports, p.XTestImports), untested.ImportPath) {
				touched[p] = true
			}
		}
	}
	return slices.DeleteFunc(packages, func(p *pkg) bool { return !touched[p] }), nil
}

// owner returns the package of the file's folder, or of the next one above that has one; nil if there is none.
func owner(packages []*pkg, file string) *pkg {
	for dir := filepath.Dir(file); ; dir = filepath.Dir(dir) {
		if i := slices.IndexFunc(packages, func(p *pkg) bool { return p.Dir == dir }); i >= 0 {
			return packages[i]
		}
		if dir == filepath.Dir(dir) {
			return nil
		}
	}
}

var hunk = regexp.MustCompile(`(?m)^@@ -\S+ \+(\d+)(?:,(\d+))? @@`)

// changedTests returns the test functions of the file with a line that the revision does not have.
func changedTests(root, file, revision string) ([]string, error) {
	path := filepath.Join(root, file)
	src, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil // deleted
	}
	if err != nil {
		return nil, err
	}
	fset := token.NewFileSet()
	parsed, err := parser.ParseFile(fset, path, src, 0)
	if err != nil {
		return nil, err
	}
	diff, err := git(root, "diff", "--no-ext-diff", "--no-color", "--no-renames", "-U0", revision, "--", file)
	if err != nil {
		return nil, err
	}
	hunks := hunk.FindAllStringSubmatch(diff, -1)
	var names []string
	for _, decl := range parsed.Decls {
		f, ok := decl.(*ast.FuncDecl)
		if !ok || f.Recv != nil || !regexp.MustCompile(`^(Test|Example|Fuzz)`).MatchString(f.Name.Name) {
			continue
		}
		from, to := fset.Position(f.Pos()).Line, fset.Position(f.End()).Line
		isChanged := len(hunks) == 0 // git does not know the file
		for _, h := range hunks {
			first, _ := strconv.Atoi(h[1])
			lines, err := strconv.Atoi(h[2])
			if err != nil {
				lines = 1
			}
			isChanged = isChanged || first <= to && first+max(lines, 1) > from // also where lines only went
		}
		if isChanged {
			names = append(names, f.Name.Name)
		}
	}
	return names, nil
}

// build builds the tests and lists them.
func (p *pkg) build(ctx context.Context, binary string) {
	p.binary = binary
	names := p.changed
	p.changed = nil
	args := []string{"test", "-c", "-ldflags=-w", "-race=" + strconv.FormatBool(*race), "-o", binary, p.ImportPath}
	_, err := output(ctx, p.Module.Dir, "go", args...)
	var all string
	if err == nil {
		all, err = output(ctx, p.Dir, binary, "-test.list", cmp.Or(*pattern, "."))
	}
	switch {
	case ctx.Err() != nil:
		fmt.Printf("%s: the time ended while its tests were built.\n", p.ImportPath)
		return
	case err != nil:
		p.fail("%v", err)
		return
	}
	for _, name := range strings.Fields(all) {
		switch {
		case strings.HasPrefix(name, "Benchmark"):
		case slices.Contains(names, name):
			p.changed = append(p.changed, name)
		default:
			p.others = append(p.others, name)
		}
	}
}

// rounds runs the tests in as many rounds as there are, or as fit into the time until then if that is not zero. A round
// runs slow tests once, and fast ones as often as it takes to reach their count at the end. A test that failed is not run
// again.
func (p *pkg) rounds(ctx context.Context, names []string, until time.Time) {
	names = slices.Clone(names)
	for round := range *slowCount {
		rand.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
		for some := range slices.Chunk(names, atOnce) {
			if !until.IsZero() && time.Until(until) < p.longest {
				return
			}
			p.learn(p.run(ctx, some, 1))
			fast := slices.DeleteFunc(slices.Clone(some), func(name string) bool {
				return p.slow[name] || strings.HasPrefix(name, "Example")
			})
			p.run(ctx, fast, *count / *slowCount - 1)
		}
		if until.IsZero() {
			fmt.Printf("round %d of %d: %s\n", round+1, *slowCount, p)
		}
	}
}

// A result is what became of a test in one process.
type result struct {
	passed, failed, skipped int
	longest                 time.Duration // of the test or one of its subtests
}

func (r *result) runs() int { return r.passed + r.failed + r.skipped }

// learn notes which tests are slow, unless it knows the test.
func (p *pkg) learn(results map[string]*result) {
	for name, r := range results {
		if _, known := p.slow[name]; !known && r.runs() > 0 {
			p.slow[name] = r.longest >= time.Second
		}
	}
}

// run runs those of the tests that have not failed so many times in one process, and prints the output of whatever fails.
func (p *pkg) run(ctx context.Context, names []string, count int) map[string]*result {
	names = slices.DeleteFunc(slices.Clone(names), func(name string) bool { return p.failed[name] })
	if len(names) == 0 || count == 0 || ctx.Err() != nil {
		return nil
	}
	began := time.Now()
	results, unfinished, err := p.start(ctx, names, count)
	took := time.Since(began)
	p.took += took
	p.longest = max(p.longest, took)
	explained := false
	for name, r := range results {
		p.ran[name] += r.runs()
		if r.skipped > 0 {
			p.skipped[name] = true
		}
		if r.failed > 0 {
			explained, p.failed[name] = true, true
			p.fail("%s failed %d of %d times", name, r.failed, r.runs())
		}
	}
	if ctx.Err() != nil {
		return results
	}
	for name, output := range unfinished {
		if name != "" && err != nil { // it panicked, or was running when another one did
			explained, p.failed[name] = true, true
			p.fail("%s did not end: %v", name, err)
			fmt.Printf("--- %s %s\n%s\n", p.ImportPath, name, output)
		}
	}
	for _, name := range names {
		if r := results[name]; !explained && (err != nil || r == nil || r.runs() < count) {
			p.failed[name] = true
			p.fail("%s was to run %d times: %v", name, count, cmp.Or(err, errors.New("it did not")))
			fmt.Printf("--- %s\n%s\n", p.ImportPath, unfinished[""])
		}
	}
	return results
}

// start is run without its bookkeeping. It returns what became of each test, and what digest returns of the others.
func (p *pkg) start(ctx context.Context, names []string, count int) (map[string]*result, map[string]string, error) {
	quoted := make([]string, len(names))
	for i, name := range names {
		quoted[i] = regexp.QuoteMeta(name)
	}
	tests := exec.CommandContext(ctx, p.binary, "-test.v=test2json", "-test.paniconexit0",
		"-test.run=^("+strings.Join(quoted, "|")+")$", "-test.count="+strconv.Itoa(count), "-test.timeout="+timeout.String())
	tests.Dir = p.Dir
	convert := exec.Command("go", "tool", "test2json", "-t") // without -t, it does not say how long a test took
	read, write, err := os.Pipe()
	if err != nil {
		return nil, nil, err
	}
	tests.Stdout, tests.Stderr, convert.Stdin, convert.Stderr = write, write, read, os.Stderr
	events, err := convert.StdoutPipe()
	if err == nil {
		err = convert.Start()
	}
	if err == nil {
		err = tests.Start()
	}
	_ = read.Close()
	_ = write.Close()
	if err != nil {
		return nil, nil, err
	}
	results, unfinished, err := p.digest(events, count)
	return results, unfinished, errors.Join(err, tests.Wait(), convert.Wait())
}

// event is a line of test2json.
type event struct {
	Action  string
	Test    string
	Elapsed float64 // in seconds
	Output  string
}

// digest returns what became of each test, and the output of those that have not ended and, as "", of the package.
func (p *pkg) digest(r io.Reader, count int) (map[string]*result, map[string]string, error) {
	results, outputs := map[string]*result{}, map[string]string{}
	for events := json.NewDecoder(r); ; {
		var e event
		if err := events.Decode(&e); err == io.EOF {
			return results, outputs, nil
		} else if err != nil {
			_, _ = io.Copy(io.Discard, r) // else the tests wait for a reader
			return results, outputs, err
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
			fmt.Printf("--- %s: %s, run %d of %d\n%s\n", p.ImportPath, name, r.runs(), count, outputs[name])
		default:
			continue
		}
		delete(outputs, name)
	}
}

func git(dir string, args ...string) (string, error) {
	return output(context.Background(), dir, "git", append([]string{"-c", "core.quotePath=false"}, args...)...)
}

// output returns what the command prints. Its error has what the command says was wrong.
func output(ctx context.Context, dir, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	var said bytes.Buffer
	cmd.Dir, cmd.Stderr = dir, &said
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s %s: %w\n%s%s", name, strings.Join(args, " "), err, out, said.String())
	}
	return strings.TrimSuffix(string(out), "\n"), nil
}
