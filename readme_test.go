package serial_test

import (
	"fmt"
	"go/doc"
	goparser "go/parser"
	"go/token"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/dailyserial/serial"
	"github.com/dailyserial/serial/internal/race"
	"github.com/dailyserial/serial/internal/redistest"
)

// unix returns the content of a file without the carriage returns that Git adds on Windows.
func unix(t *testing.T, file string) string {
	t.Helper()
	return strings.ReplaceAll(string(must(os.ReadFile(file))), "\r\n", "\n")
}

// guide returns the content of a page in docs/.
func guide(t *testing.T, name string) string {
	t.Helper()
	return unix(t, filepath.Join("docs", name))
}

// files returns the names of the files that match patterns.
func files(patterns ...string) (names []string) {
	for _, pattern := range patterns {
		names = append(names, must(filepath.Glob(pattern))...)
	}
	return names
}

// found returns the first groups of the matches of a pattern.
func found(pattern, text string) (groups []string) {
	for _, match := range regexp.MustCompile(pattern).FindAllStringSubmatch(text, -1) {
		groups = append(groups, match[1])
	}
	return groups
}

// quoted returns the texts between backquotes.
func quoted(cell string) []string { return found("`(.*?)`", cell) }

// sections returns the sections of a file. The key of a section is the fragment that GitHub generates for its heading.
func sections(t *testing.T, file string) map[string]string {
	t.Helper()
	all, dropped := map[string]string{}, regexp.MustCompile(`[^\p{L}\p{N} _-]`)
	for _, section := range regexp.MustCompile(`(?m)^##+ `).Split(unix(t, file), -1)[1:] {
		heading, text, _ := strings.Cut(section, "\n")
		kept := dropped.ReplaceAllString(strings.ToLower(heading), "")
		all[strings.ReplaceAll(kept, " ", "-")] = text
	}
	return all
}

// tableRows returns the cells of the rows of the first table in a section.
func tableRows(t *testing.T, file, section string) (rows [][]string) {
	t.Helper()
	_, table, _ := strings.Cut(sections(t, file)[section], "\n| ---")
	table, _, _ = strings.Cut(table, "\n\n")
	for _, row := range found(`(?m)^\| (.*) \|$`, table) {
		rows = append(rows, strings.Split(row, " | "))
	}
	require.NotEmpty(t, rows, "%s: %s", file, section)
	return rows
}

// sources returns the code of the package.
func sources(t *testing.T) (code string) {
	for _, name := range files("*.go") {
		if !strings.HasSuffix(name, "_test.go") {
			code += unix(t, name)
		}
	}
	return code
}

// Each list in the docs must be complete, and have nothing else.
func TestDocsAreComplete(t *testing.T) {
	for _, list := range []struct {
		page, pattern string
		want          []string
	}{
		{"README.md", `\n- .*\]\((.*\.md)\)`, found("docs.([a-z].*)", strings.Join(files("docs/*.md"), "\n"))},
		{"settings.md", "\n\\| `(With\\w+)\\(", found(`\nfunc (With\w+)\(.*\) Option {\n`, sources(t))},
		{"errors.md", `\n##+ (Err\w+)\n`, found(`\n\t(Err\w+) += (?:errors\.New|template\.Err)`, sources(t))},
	} {
		require.Greater(t, len(list.want), 9, list.page)
		require.ElementsMatch(t, list.want, found(list.pattern, guide(t, list.page)), list.page)
	}
}

// All links to files and headings of this repository must be valid.
func TestLinks(t *testing.T) {
	for _, file := range files("*.md", "docs/*.md", "*/README.md", "*/*/README.md", "*/*/*/README.md") {
		for _, link := range found(`\]\(([^)\s]+)\)`, unix(t, file)) {
			if strings.Contains(link, "://") {
				continue
			}
			target, anchor, _ := strings.Cut(link, "#")
			if target = filepath.Join(filepath.Dir(file), target); strings.HasPrefix(link, "#") {
				target = file
			}
			require.NoError(t, errOf(os.Stat(target)), "%s: %s", file, link)
			if anchor != "" {
				require.Contains(t, sections(t, target), anchor, "%s: %s", file, link)
			}
		}
	}
}

// Every exported function must appear in an example. An example must be complete, so that readers of pkg.go.dev see
// everything that it uses and can run it.
func TestEveryNameHasAnExample(t *testing.T) {
	text := unix(t, "example_test.go")
	file, err := goparser.ParseFile(token.NewFileSet(), "", text, goparser.ParseComments)
	require.NoError(t, err)
	examples := doc.Examples(file)
	require.Greater(t, len(examples), 30)
	for _, e := range examples {
		require.NotNil(t, e.Play, "the example %s uses code in another file", e.Name)
		require.NotEmpty(t, e.Output, e.Name)
	}
	for _, name := range found(`\nfunc ([A-Z]\w*)\(`, sources(t)) {
		require.Equal(t, name != "WithHistoryAfter", strings.Contains(text, "serial."+name+"("), name)
	}
}

// Code in the docs must compile as it appears there. The tests in testdata run most of it: the program of the README
// must issue a number, recipes must succeed, each number in docs/business-numbers.md must be issued on its date with
// the options of its row, and invalid templates must cause the error in their row. Blocks that are part of an example
// or of gapless are compiled, and mostly run, by the tests there.
func TestCodeInDocs(t *testing.T) {
	if testing.Short() || race.Enabled {
		t.Skip("builds a program, in which no goroutines run concurrently")
	}
	var examples, code strings.Builder
	for _, name := range files("examples/*/*.go", "examples/*/*/*.go", "gapless/*_test.go") {
		examples.WriteString(unix(t, name))
	}
	const goBlock = "(?s)```go\n(.*?)```"
	for _, page := range files("docs/*.md") {
		for _, block := range found(goBlock, unix(t, page)) {
			if !strings.Contains(examples.String(), block) {
				code.WriteString(block)
			}
		}
	}
	hidden := found(`((?:\n    .*)+)`, guide(t, "hidden-volume.md"))
	require.Len(t, hidden, 3)
	t.Setenv("SERIAL_HIDDEN_KEY", strings.Repeat("01234567", 8))
	fmt.Fprintf(&code, "func TestHiddenVolume(t *testing.T) {\nrdb, _ := startRedis(t)\n%s\nuse(t, err)\n%s\n"+
		"use(t, err)\nrequireHidden(t, gen, no)\n}\n", hidden[1], hidden[0])
	fmt.Fprintf(&code, "func parseRotated(old, current *serial.Scheme, number string, rotated time.Time) (serial.Number, "+
		"error) {%s\nreturn n, err\n}\n", hidden[2])
	writeRecipes(t, &code)
	writeBusinessNumbers(t, &code)

	m, _ := startMini(t)
	dir, program := t.TempDir(), found(goBlock, unix(t, "README.md"))[0]
	args := []string{"test", "-v", "-vet=off", "-ldflags=-s -w"}
	for name, text := range map[string]string{
		"main.go":      strings.Replace(program, "localhost:6379", m.Addr(), 1),
		"docs_test.go": unix(t, "testdata/docs_test.go"),
		"code_test.go": "package main\n" + importsOf(code.String()) + code.String(),
	} {
		args = append(args, filepath.Join(dir, name))
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	out, err := exec.Command("go", args...).CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Regexp(t, `\nIS\d{8}0001\n`, string(out))
	require.Contains(t, string(out), "--- PASS: TestOrders") // of docs/alternatives.md
}

// importsOf returns the imports that code needs.
func importsOf(code string) (imports string) {
	for _, name := range strings.Fields("context crypto/sha256 crypto/tls database/sql encoding/hex fmt iter os testing " +
		"time unicode/utf8 github.com/redis/go-redis/v9 github.com/stretchr/testify/require github.com/dailyserial/serial " +
		"github.com/dailyserial/serial/serialtest") {
		base := strings.Replace(path.Base(name), "v9", "redis", 1)
		if regexp.MustCompile(`\b` + base + `\.[A-Z]`).MatchString(code) {
			imports += fmt.Sprintf("import %q\n", name)
		}
	}
	return imports
}

// writeRecipes writes a test for each recipe in docs/business-numbers.md.
func writeRecipes(t *testing.T, code *strings.Builder) {
	for i, row := range tableRows(t, "docs/business-numbers.md", "recipes") {
		fmt.Fprintf(code, "func TestRecipe%d(t *testing.T) {\nrdb, gen := startRedis(t)\nuse(t, nil, rdb, gen)\n{\n", i+1)
		for _, line := range quoted(row[1]) {
			switch names, _, defines := strings.Cut(line, ":="); {
			case strings.Contains(line, "sqlledger.New"): // that module has its own example
			case defines:
				fmt.Fprintf(code, "%s\nuse(t, err, %s)\n", line, names)
			default:
				fmt.Fprintf(code, "_, err = %s\nuse(t, err)\n", line)
			}
		}
		code.WriteString("}\n}\n")
	}
}

// writeBusinessNumbers writes a test with a call of issued for each row in docs/business-numbers.md, and a call of
// refused for each invalid template.
func writeBusinessNumbers(t *testing.T, code *strings.Builder) {
	optionsOf := func(cell string) (opts string) {
		for _, option := range quoted(cell) {
			if !strings.HasPrefix(option, "serial.") {
				option = fmt.Sprintf("serial.WithTemplate(%q)", option)
			}
			opts += ", " + option
		}
		return opts
	}
	const page = "docs/business-numbers.md"
	rows := map[int]int{} // by their numbers of cells
	fmt.Fprintf(code, "func TestBusinessNumbers(t *testing.T) {\nkey := []byte(%q)\n", "an example's key")
	for section, text := range sections(t, page) {
		before, _, hasTable := strings.Cut(text, "\n| ---")
		if section == "recipes" || !hasTable {
			continue
		}
		_, shared, _ := strings.Cut("\n"+before, "; all with ")
		for _, cells := range tableRows(t, page, section) {
			numbers, types, opts := quoted(cells[0]), "nil", optionsOf(shared+cells[len(cells)-1])
			if strings.HasPrefix(section, "refused") {
				fmt.Fprintf(code, "refused(t, %q%s)\n", quoted(cells[3])[0], optionsOf(cells[2]))
				numbers = quoted(cells[4])[:1]
			} else {
				types = fmt.Sprintf("%#v", append(quoted(cells[2]), ""))
			}
			rows[len(cells)]++
			fmt.Fprintf(code, "issued(t, %#v, %s%s)\n", numbers, types, opts)
		}
	}
	code.WriteString("}\n")
	require.GreaterOrEqual(t, rows[4], 80, "issued")
	require.Equal(t, map[int]int{4: rows[4], 6: 8}, rows, "issued and refused")
}

// The memory of Redis is measured on a real server. The figures in docs/operations.md must be correct.
func TestCapacity(t *testing.T) {
	rdb := redistest.Start(t).Client(t)
	const id = "3f2504e0-4f89-41d3-9a0c-0305e82c3301"
	must(newGenerator(t, rdb, serial.WithLocation(noon())).NextOnce(t.Context(), "IS", id))
	// The recipes in examples/guides have the figure for Never, whose keys stay.
	must(newGenerator(t, rdb, endless.opts...).Next(t.Context(), "INV"))
	for keys, most := range map[string]int64{"serial:{IS}:once:" + id: 300, "serial:{INV} serial:{INV}:all": 350,
		"serial:{IS} serial:{IS}:" + today(noon()): 400} {
		sum := int64(0)
		for key := range strings.FieldsSeq(keys) {
			sum += must(rdb.MemoryUsage(t.Context(), key).Result())
		}
		require.Less(t, sum, most, keys)
	}
}

// The memory of this process is measured with 100,000 types, as the growth of the heap after a garbage collection. The
// figures in docs/operations.md must be correct.
func TestCapacityOfProcess(t *testing.T) {
	if testing.Short() || race.Enabled {
		t.Skip("issues 100,000 numbers; the race detector needs memory of its own, and cannot follow so many goroutines")
	}
	heap := func() int64 {
		runtime.GC()
		runtime.GC() // pools need two
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	rdb := closing(t, redis.NewClient(&redis.Options{}))
	rdb.AddHook(around(func(cmd redis.Cmder, _ func() error) error { // nothing is sent
		cmd.(interface{ SetVal(any) }).SetVal(int64(1))
		return nil
	}))
	sizes := map[string]float64{"T%05d": 200, "tenant-%06d/invoices": 260, "%064d": 400} // of a type, by its name
	for name, size := range sizes {
		gen, names := newGenerator(t, rdb, serial.WithLocation(time.UTC)), make([]string, 100_000)
		for i := range names {
			names[i] = fmt.Sprintf(name, i)
		}
		before := heap()
		for _, name := range names {
			must(gen.Next(t.Context(), name))
		}
		require.InEpsilon(t, size, float64(heap()-before)/float64(len(names)), 0.1, name)
		runtime.KeepAlive(names)
		runtime.KeepAlive(gen)
	}
}

// Each call must send the commands that the table of call paths in docs/design.md lists, and wait for as many round
// trips.
func TestCallPaths(t *testing.T) {
	seconds := options(serial.WithPeriod(serial.PerSecond), serial.WithTemplate("{type}{date:yyyyMMddHHmmss}{seq:4}"))
	measured := map[string]bool{}
	for _, test := range []struct {
		name  string
		opts  []serial.Option
		steps string // the last one is measured
	}{
		{"a number of an open period", nil, "gen next, gen next"},
		{"a number of an open period", nil, "gen next, gen once a"},
		{"a number of an open period", ledgerIf(true, 10), "gen next, gen next"},
		{"the first number of a prepared period", nil, "gen prepare, midnight, gen next"},
		{"the first number of a period", nil, "gen next"},
		{"the first number of a period", nil, "gen once a"},
		{"the same with a floor or a ledger", options(fixedFloor(0)), "gen next"},
		{"the same with a floor or a ledger", ledgerIf(true, 10), "gen next"},
		{"the same with `PerSecond`", seconds, "gen next"},
		{"a number beyond a ledger's block", ledgerIf(true, 1), "gen next, gen next"},
		{"`Raise` and `Takeover`", nil, "gen next, gen raise 7"},
		{"`Raise` and `Takeover`", nil, "gen takeover 7"},
		{"`Raise` and `Takeover`", ledgerIf(true, 10), "gen next, gen raise 7"},
		{"`Prepare` of the next period", nil, "gen next, gen prepare"},
		{"`Prepare` with a floor", options(fixedFloor(0)), "gen next, gen prepare"},
		{"`Peek`", nil, "gen next, gen peek"},
		{"`History`", nil, "gen next, history"},
		{"`Audit`", nil, "gen next, audit"},
	} {
		inBubble(t, func(t *testing.T, m *simulation) {
			var sent lines
			client := m.Client(everyCall(func(cmds []redis.Cmder, send func() error) error {
				if name := cmds[0].Name(); name == "hello" || name == "client" { // on a new connection
					return send()
				}
				var names []string
				for _, cmd := range cmds {
					names = append(names, pathOf(cmd))
				}
				sent.add("%s", strings.Join(names, " + "))
				time.Sleep(time.Millisecond)
				return send()
			}))
			var trips time.Duration
			var commands []string
			for _, prefix := range []string{"other", "serial"} { // for the second one, the server has the scripts
				gen := newGenerator(t, client, append(test.opts, serial.WithLocation(time.UTC), serial.WithKeyPrefix(prefix))...)
				also := map[string]func(string){
					"midnight": func(string) { time.Sleep(24 * time.Hour) },
					"history":  func(string) { must(gen.History(t.Context(), "IS", 2)) },
					"audit":    func(string) { must(gen.Audit(t.Context(), "IS", serial.At(time.Now()), used())) },
				}
				for step := range strings.SplitSeq(test.steps, ", ") {
					sent.take()
					began := time.Now()
					steps(t, map[string]*serial.Generator{"gen": gen}, also, step)
					trips = time.Since(began) / time.Millisecond
					time.Sleep(10 * time.Millisecond) // until the lock is released
					commands = sent.take()
				}
			}
			measured[fmt.Sprintf("%s | %s | %d", test.name, strings.Join(commands, ", "), trips)] = true
		})
	}
	table := map[string]bool{}
	for _, row := range tableRows(t, "docs/design.md", "the-path-of-a-call") {
		table[strings.Join(row, " | ")] = true
	}
	require.Equal(t, table, measured)
}

// pathOf returns the name of a command in the table of call paths.
func pathOf(cmd redis.Cmder) string {
	args := cmd.Args()
	switch step := stepOf(cmd); {
	case (step == "take" || step == "open") && strings.Contains(fmt.Sprint(args[len(args)-1]), `"next":`):
		return "prepare"
	case step == "set":
		return "lock"
	case step == "eval": // by redsync
		return "unlock"
	case step == "evalsha":
		return "read"
	default:
		return step
	}
}
