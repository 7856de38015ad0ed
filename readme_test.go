package serial_test

import (
	"context"
	"crypto/sha1"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/doc"
	goparser "go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/dailyserial/serial"
	"github.com/dailyserial/serial/internal/race"
	"github.com/dailyserial/serial/internal/redistest"
	"github.com/dailyserial/serial/serialtest"
)

// unix returns the text of a file, without the carriage returns that Git adds on Windows.
func unix(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	return strings.ReplaceAll(string(text), "\r\n", "\n")
}

// The programs in the README and in docs/ compile as they appear there, and tests pass.
func TestReadmeCompiles(t *testing.T) {
	t.Parallel()
	withoutRaceDetector(t)
	dir := t.TempDir()
	replace, packages := map[string]string{}, []string{"build"}
	files := []string{
		"README.md", "docs/business-numbers.md", "docs/alternatives.md", "docs/audit.md", "docs/operations.md",
	}
	if !redistest.Long() {
		files = files[:1]
		t.Log("programs in docs/ are left out without SERIAL_TEST_LONG=1")
	}
	for _, file := range files {
		blocks := regexp.MustCompile("(?s)```go\n(.*?)```").FindAllStringSubmatch(unix(t, file), -1)
		require.NotEmpty(t, blocks, file)
		for _, block := range blocks {
			if strings.Contains(block[1], "gapless.") {
				continue // that module tests it, or examples/guides
			}
			source, test := program(block[1])
			name := filepath.Join(dir, fmt.Sprint("program", len(packages), map[bool]string{true: "_test"}[test], ".go"))
			require.NoError(t, os.WriteFile(name, []byte(source), 0o600))
			if test {
				out, err := exec.Command("go", "test", "-ldflags=-s -w", name).CombinedOutput()
				require.NoError(t, err, "%s\n%s", out, source)
				continue
			}
			place := filepath.Join("internal", "programs", fmt.Sprint(len(packages)))
			here, err := filepath.Abs(filepath.Join(place, "main.go"))
			require.NoError(t, err)
			replace[here], packages = name, append(packages, "./"+filepath.ToSlash(place))
		}
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replace})
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "overlay"), overlay, 0o600))
	// Several packages at once are compiled, but not linked and written.
	args := slices.Insert(packages, 1, "-overlay", filepath.Join(dir, "overlay"), "./internal/name")
	out, err := exec.Command("go", args...).CombinedOutput()
	require.NoError(t, err, "%s\nin %v", out, replace)
}

// withoutRaceDetector skips a test of programs that the go command builds, since the race detector does not affect
// them.
func withoutRaceDetector(t *testing.T) {
	t.Helper()
	if race.Enabled {
		t.Skip("no goroutines run concurrently here")
	}
}

// program returns the program or the test that code is, or is a part of.
func program(code string) (source string, test bool) {
	source = "package main\n"
	for name, path := range map[string]string{
		"context.": "context", "fmt.": "fmt", "iter.": "iter", "log.": "log", "sql.": "database/sql", "testing.": "testing",
		"time.": "time", "tls.": "crypto/tls", "utf8.": "unicode/utf8",
		"redis.": "github.com/redis/go-redis/v9", "serial.": "github.com/dailyserial/serial",
		"serialtest.": "github.com/dailyserial/serial/serialtest", "require.": "github.com/stretchr/testify/require",
	} {
		if regexp.MustCompile(`\b` + regexp.QuoteMeta(name)).MatchString(code) {
			source += "import \"" + path + "\"\n"
		}
	}
	source += code
	if strings.HasPrefix(code, "package") { // a whole file
		source = code
	}
	test = strings.Contains(code, "testing.T")
	if !strings.Contains(code, "func main") && !test {
		source += "func main() {}\n"
	}
	return source, test
}

// The recipes in docs/business-numbers.md run as they appear there, each on its own Redis.
func TestRecipes(t *testing.T) {
	t.Parallel()
	rows := tableRows(t, "docs/business-numbers.md", "\n## Recipes\n", "\\| (.*?) \\| (`.*`) \\|")
	recipes := ""
	for _, row := range rows {
		given := "gen"
		if strings.Contains(row[2], "gen, err :=") {
			given = "_"
		}
		recipes += fmt.Sprintf("// %s\nfunc(rdb *redis.Client, %s *serial.Generator) error {\n", row[1], given)
		for _, line := range strings.Split(row[2], "<br>") {
			line = strings.Trim(line, "`")
			if name, _, assigns := strings.Cut(line, " := "); assigns {
				recipes += line + "\nif err != nil { return err }\n_ = " + strings.TrimSuffix(name, ", err") + "\n"
			} else {
				recipes += "if _, err := " + line + "; err != nil { return err }\n"
			}
		}
		recipes += "return nil\n},\n"
	}
	requireRuns(t, recipesProgram+recipes+"}\n")
}

// tableRows returns the groups of a regular expression that each row of the table below a heading must match.
func tableRows(t *testing.T, file, heading, row string) (all [][]string) {
	t.Helper()
	_, text, found := strings.Cut(unix(t, file), heading)
	require.True(t, found, heading)
	_, text, found = strings.Cut(text, "\n| --- ")
	require.True(t, found, "%s has no table", file)
	table, _, _ := strings.Cut(text, "\n\n")
	for _, line := range strings.Split(strings.TrimSpace(table), "\n")[1:] {
		groups := regexp.MustCompile("^" + row + "$").FindStringSubmatch(line)
		require.NotNil(t, groups, "%s: %s", file, line)
		all = append(all, groups)
	}
	require.NotEmpty(t, all, file)
	return all
}

// requireRuns runs a program.
func requireRuns(t *testing.T, source string, env ...string) {
	t.Helper()
	withoutRaceDetector(t)
	file := filepath.Join(t.TempDir(), "main.go")
	require.NoError(t, os.WriteFile(file, []byte(source), 0o600))
	cmd := exec.Command("go", "run", "-ldflags=-s -w", file)
	cmd.Env = append(os.Environ(), env...)
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s\n%s", out, source)
}

// buildCommand builds the command, and returns its path.
func buildCommand(t *testing.T) string {
	t.Helper()
	withoutRaceDetector(t)
	binary := filepath.Join(t.TempDir(), "serial.exe")
	out, err := exec.Command("go", "build", "-o", binary, "./cmd/serial").CombinedOutput()
	require.NoError(t, err, "%s", out)
	return binary
}

const recipesProgram = `package main

import (
	"context"
	"crypto/sha256"
	"fmt"
	"log"
	"strings"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"
	"github.com/redis/go-redis/v9"

	"github.com/dailyserial/serial"
)

var (
	ctx    = context.Background()
	tenant = "acme"
	user   string
	key    = "once"
	db     any
	_      = time.Second

	lastStored = func(context.Context, string, time.Time) (int64, error) { return 7, nil }
)

type shelf struct{}

func (shelf) Reserve(_ context.Context, r serial.Reservation) (int64, error) { return r.Above, nil }

// This module has its own example.
var sqlledger = struct {
	New        func(db any, dialect int) (shelf, error)
	PostgreSQL int
}{New: func(any, int) (shelf, error) { return shelf{}, nil }}

func main() {
	for i, recipe := range recipes {
		m := miniredis.NewMiniRedis()
		if err := m.Start(); err != nil {
			log.Fatal(err)
		}
		m.Server().SetPreHook(func(c *server.Peer, cmd string, args ...string) bool {
			if !strings.EqualFold(cmd, "INFO") {
				return false
			}
			c.WriteBulk("master_replid:" + strings.Repeat("0", 40))
			return true
		})
		rdb := redis.NewClient(&redis.Options{Addr: m.Addr()})
		gen, err := serial.New(rdb)
		for _, user = range []string{"Ada", "Bob"} {
			if err == nil {
				err = recipe(rdb, gen)
			}
		}
		if err != nil {
			log.Fatalf("recipe %d: %v", i+1, err)
		}
		if strings.Count(m.Dump(), ":once:") == 1 {
			log.Fatalf("recipe %d: two users who send the same key get the same number", i+1)
		}
	}
}

var recipes = []func(rdb *redis.Client, gen *serial.Generator) error{
`

// The command's output matches docs/command.md, after the README's program has issued a number.
func TestDocsCommand(t *testing.T) {
	t.Parallel()
	text := unix(t, "docs/command.md")
	_, session, found := strings.Cut(text, "```console\n")
	require.True(t, found)
	session, _, _ = strings.Cut(session, "```")

	m, rdb := startMini(t)
	zone := noon()
	now := time.Now().In(zone)
	_, offset := now.Zone()
	name := fmt.Sprintf("Etc/GMT%+d", -offset/3600) // the sign of these zones is reversed
	session = strings.NewReplacer("localhost:6379", m.Addr(), "=UTC", "="+name, "00Z", "00"+now.Format("Z07:00")).
		Replace(session)
	require.NoError(t, errOf(newGenerator(t, rdb, serial.WithLocation(zone)).Next(t.Context(), "IS")))
	binary := buildCommand(t)
	var env []string
	for _, step := range strings.Split(session, "$ ")[1:] {
		line, want, _ := strings.Cut(step, "\n")
		words := strings.Fields(line)
		if words[0] == "export" {
			env = append(os.Environ(), words[1:]...)
			continue
		}
		require.Equal(t, "serial", words[0])
		cmd := exec.Command(binary, words[1:]...)
		cmd.Env = env
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
		if words[1] != "parse" { // parse has the page's date
			want = strings.NewReplacer("20211024", now.Format("20060102"), "2021-10-24", now.Format(time.DateOnly)).Replace(want)
		}
		at := regexp.MustCompile(`raised,,[^,]*,`) // time of the raise
		require.Equal(t, at.ReplaceAllString(want, "TIME"), at.ReplaceAllString(string(out), "TIME"), line)
	}
}

// The index in docs/README.md has a line for each page, and docs/settings.md has a row for each option and no other. There
// are few pages, and few lines on them. The rows of business numbers do not count, because people look them up.
func TestDocsAreComplete(t *testing.T) {
	pages, err := filepath.Glob("docs/*.md")
	require.NoError(t, err)
	require.LessOrEqual(t, len(pages), 16)
	index := unix(t, "docs/README.md")
	for _, page := range pages {
		if name := filepath.Base(page); name != "README.md" {
			require.Regexp(t, `(?m)^- \[[^\]]+\]\(`+name+`\): .*\.$`, index)
		}
	}

	sources, err := filepath.Glob("*.go")
	require.NoError(t, err)
	names := func(pattern, text string) (all []string) {
		for _, m := range regexp.MustCompile(pattern).FindAllStringSubmatch(text, -1) {
			all = append(all, m[1])
		}
		return all
	}
	var options []string
	for _, name := range sources {
		options = append(options, names(`(?m)^func (With\w+)\(.*\) Option \{$`, unix(t, name))...)
	}
	_, table, found := strings.Cut(unix(t, "docs/settings.md"), "\n## Options\n")
	require.True(t, found)
	table, _, _ = strings.Cut(table, "\n## ")
	require.ElementsMatch(t, options, names("(?m)^\\| `(With\\w+)", table))
}

// Links to files and headings of this repository are valid.
func TestLinks(t *testing.T) {
	files, err := filepath.Glob("*.md")
	require.NoError(t, err)
	for _, pattern := range []string{"docs/*.md", "*/README.md", "*/*/README.md", "*/*/*/README.md"} {
		more, err := filepath.Glob(pattern)
		require.NoError(t, err)
		files = append(files, more...)
	}
	for _, file := range files {
		text := unix(t, file)
		for _, link := range regexp.MustCompile(`\]\(([^)\s]+)\)`).FindAllStringSubmatch(text, -1) {
			if strings.Contains(link[1], "://") {
				continue
			}
			path, anchor, _ := strings.Cut(link[1], "#")
			target := filepath.Join(filepath.Dir(file), path)
			if path == "" {
				target = file
			}
			require.NoError(t, errOf(os.Stat(target)), "%s: %s", file, link[1])
			if anchor != "" {
				require.Contains(t, anchors(t, target), anchor, "%s: %s", file, link[1])
			}
		}
	}
}

// A new user's questions are answered within two clicks from the README: each link has words of the question, and the last
// leads to a heading or to a page whose text has the answer.
func TestTenQuestions(t *testing.T) {
	for _, q := range []struct {
		question string
		clicks   []string // texts of links
		leads    string   // the page and the heading that the last link leads to
		answer   string   // below that heading
	}{
		{"Why not just INCR?", nil, "README.md#why-not-just-incr", "`INCR` alone never returns a number twice."},
		{"What happens if Redis loses data?", []string{"What if Redis loses data?"}, "docs/guarantees.md#what-redis-loses",
			"all keys; the process does not remember"},
		{"When does the day change, and in which zone?", []string{"When does the day change, and in which time zone?"},
			"docs/alternatives.md#when-does-the-day-change", "At midnight of the zone of `WithLocation`, by Redis's clock."},
		{"How do I make the client for Sentinel or Cluster?",
			[]string{"How do I make the client, for Sentinel, Cluster or TLS?"}, "docs/operations.md#making-the-client",
			"redis.NewFailoverClient("},
		{"What if the request is repeated?", []string{"What if a request is repeated?"},
			"docs/transactions.md#a-repeated-request", "`NextOnce` gives a repeated request the same number"},
		{"How do I take numbers without gaps?", []string{"How do I take numbers without gaps?"},
			"docs/gapless.md#how-to-take-a-number", "**In the transaction of the document.**"},
		{"How do I test my service?", []string{"How do I test my service?"},
			"docs/alternatives.md#how-do-i-test-my-service", "serialtest.New(t,"},
		{"What if all 9999 numbers of a day are used?", []string{"What comes after 9999?"},
			"docs/alternatives.md#what-comes-after-9999", "`ErrExhausted`, until the next day."},
		{"How do I move a series here from max() + 1?",
			[]string{"How do I move an existing series here?", "`max() + 1`"}, "docs/migrating.md#from-max--1",
			"a floor that queries the table"},
		{"Calls return ErrCounterLost: what do I do at night?",
			[]string{"What does this error mean, and what ends it at night?", "`ErrCounterLost`"},
			"docs/errors.md#errcounterlost", "**To end it:** Find the last number that was *used*"},
	} {
		t.Run(q.question, func(t *testing.T) {
			require.LessOrEqual(t, len(q.clicks), 2)
			page, anchor := "README.md", "why-not-just-incr"
			for _, text := range q.clicks {
				link := regexp.MustCompile(`\[` + strings.ReplaceAll(regexp.QuoteMeta(text), " ", `\s+`) + `\]\(([^)\s]+)\)`).
					FindStringSubmatch(unix(t, page))
				require.NotNil(t, link, "%s has no link %q", page, text)
				path, fragment, _ := strings.Cut(link[1], "#")
				if anchor = fragment; path != "" {
					page = filepath.Join(filepath.Dir(page), path)
				}
			}
			require.Equal(t, q.leads, filepath.ToSlash(page)+"#"+anchor)
			require.Contains(t, below(t, page, anchor), q.answer)
		})
	}
}

// below returns the text from the heading with a fragment to the next heading of the same or a higher level.
func below(t *testing.T, file, fragment string) string {
	t.Helper()
	text := unix(t, file)
	headings := regexp.MustCompile(`(?m)^(##+) .*$`).FindAllStringSubmatchIndex(text, -1)
	for i, anchor := range anchors(t, file) {
		if anchor != fragment {
			continue
		}
		end := len(text)
		for _, next := range headings[i+1:] {
			if next[3]-next[2] <= headings[i][3]-headings[i][2] {
				end = next[0]
				break
			}
		}
		return text[headings[i][0]:end]
	}
	require.Fail(t, "no such heading", "%s#%s", file, fragment)
	return ""
}

// Every exported function, method and type has an example, except those that only describe something. An example stands
// alone: a reader on pkg.go.dev sees all that it uses, and can run it.
func TestEveryNameHasAnExample(t *testing.T) {
	names, err := filepath.Glob("*.go")
	require.NoError(t, err)
	files := token.NewFileSet()
	var parsed []*ast.File
	for _, name := range names {
		file, err := goparser.ParseFile(files, name, nil, goparser.ParseComments)
		require.NoError(t, err)
		if file.Name.Name == "serial" && !strings.HasSuffix(name, "_test.go") || strings.HasPrefix(name, "example") {
			parsed = append(parsed, file)
		}
	}
	p, err := doc.NewFromFiles(files, parsed, "github.com/dailyserial/serial")
	require.NoError(t, err)
	var missing []string
	check := func(name string, examples []*doc.Example) {
		if len(examples) == 0 {
			missing = append(missing, name)
		}
		for _, e := range examples {
			require.NotNil(t, e.Play, "the example of %s uses code in another file", name)
			require.NotEmpty(t, e.Output, name)
		}
	}
	check("the package", p.Examples)
	for _, f := range p.Funcs {
		check(f.Name, f.Examples)
	}
	for _, typ := range p.Types {
		all := typ.Examples
		for _, f := range append(typ.Funcs, typ.Methods...) {
			check(typ.Name+"."+f.Name, f.Examples)
			all = append(all, f.Examples...)
		}
		if !strings.HasSuffix(typ.Name, "Info") {
			check(typ.Name, all)
		}
	}
	require.Equal(t, []string{"AuditOption.WithHistoryAfter", "AuditOption.WithLookup", "Entry", "Explained",
		"Generator.AuditAll", "Ledger", "Period.String", "Range", "Reports.Clean", "Reports"}, missing,
		"these are in the examples of WithExplanations, WithLedger, Period, Audit, AuditAll and Lookup")
}

// guide returns the text of a guide in docs/. The code of transactions.md and migrating.md is tested in
// examples/guides.
func guide(t *testing.T, name string) string {
	t.Helper()
	return unix(t, filepath.Join("docs", name))
}

// Every error has an entry in the runbook, with the same paragraphs.
func TestRunbookHasEveryError(t *testing.T) {
	page := guide(t, "errors.md")
	sentinels := regexp.MustCompile(`(?m)^\t(Err\w+) += (errors\.New|template\.Err)`).
		FindAllStringSubmatch(unix(t, "errors.go"), -1)
	require.Len(t, sentinels, 10)
	for _, sentinel := range sentinels {
		paragraphs := []string{"Meaning:", "To end it:"}
		if strings.Contains(page, "\n## "+sentinel[1]+"\n") { // for an operator; the others are for a programmer
			paragraphs = append(paragraphs, "Look at:", "Never")
		}
		entry := below(t, "docs/errors.md", strings.ToLower(sentinel[1]))
		for _, paragraph := range paragraphs {
			require.Contains(t, entry, "\n**"+paragraph+"** ", sentinel[1])
		}
	}
}

// The runbook's command ends the errors that it is listed for.
func TestRunbookCommand(t *testing.T) {
	t.Parallel()
	zone := noon()
	command := regexp.MustCompile(`(?m)^    serial (raise .* IS 340)$`).FindStringSubmatch(guide(t, "errors.md"))
	require.NotNil(t, command)
	binary := buildCommand(t)
	run := func(t *testing.T, addr string) {
		t.Helper()
		_, offset := time.Now().In(zone).Zone()
		name := fmt.Sprintf("Etc/GMT%+d", -offset/3600) // the sign of these zones is reversed
		args := strings.NewReplacer("localhost:6379", addr, "Asia/Shanghai", name).Replace(command[1])
		out, err := exec.Command(binary, strings.Fields(args)...).CombinedOutput()
		require.NoError(t, err, "%s", out)
	}

	t.Run("ErrCounterLost", func(t *testing.T) {
		server := redistest.Start(t)
		rdb := server.Client(t)
		gen := newGenerator(t, rdb, serial.WithLocation(zone))
		require.NoError(t, errOf(gen.Next(t.Context(), "IS")))
		require.NoError(t, rdb.Del(t.Context(), "serial:{IS}:"+today(zone)).Err())
		require.ErrorIs(t, errOf(gen.Next(t.Context(), "IS")), serial.ErrCounterLost)
		run(t, server.Addr())
		requireResult(t, "IS"+today(zone)+"0341")(gen.Next(t.Context(), "IS"))
	})
	t.Run("ErrClockSkew", func(t *testing.T) {
		m, rdb := startMini(t)
		m.SetTime(time.Now().Add(48 * time.Hour))
		ahead := newGenerator(t, rdb, serial.WithLocation(zone), serial.WithMaxSkew(-1))
		require.NoError(t, errOf(ahead.Next(t.Context(), "IS")))
		m.SetTime(time.Time{})
		gen := newGenerator(t, rdb, serial.WithLocation(zone))
		require.ErrorIs(t, errOf(gen.Next(t.Context(), "IS")), serial.ErrClockSkew)
		run(t, m.Addr())
		requireResult(t, "IS"+today(zone)+"0341")(gen.Next(t.Context(), "IS"))
	})
}

// brokenLedger is a ledger whose database is unavailable.
type brokenLedger struct{}

func (brokenLedger) Reserve(context.Context, serial.Reservation) (int64, error) {
	return 0, errors.New("no such table")
}

// The check at start in operations.md issues nothing, and finds what the guide says.
func TestCheckAtStart(t *testing.T) {
	require.Contains(t, guide(t, "operations.md"), `if err := gen.Prepare(ctx, "IS"); err != nil {`)
	server, zone := redistest.Start(t), noon()
	admin := server.Client(t)
	check := func(rdb *redis.Client, opts ...serial.Option) error {
		return newGenerator(t, rdb, append([]serial.Option{serial.WithLocation(zone)}, opts...)...).
			Prepare(t.Context(), "IS")
	}
	user := func(name, password string, rules ...any) *redis.Client {
		acl := append([]any{"ACL", "SETUSER", name, "on", ">secret", "+@all", "~serial:*"}, rules...)
		require.NoError(t, admin.Do(t.Context(), acl...).Err())
		opt := server.Options()
		opt.Username, opt.Password = name, password
		return closing(t, redis.NewClient(opt))
	}
	denied := user("denied", "secret", "-hset")
	require.ErrorContains(t, check(denied), "an ACL denies", "when the day is opened")
	require.NoError(t, check(admin))
	require.NoError(t, check(admin), "both days are open")
	requireResult(t, "IS"+today(zone)+"0001")(newGenerator(t, admin, serial.WithLocation(zone)).Next(t.Context(), "IS"))

	require.ErrorIs(t, check(admin, serial.WithDayStart(time.Hour)), serial.ErrConflict)
	for _, command := range []string{"time", "get", "set", "hmget", "hset", "hdel", "incrby", "pttl", "expireat"} {
		require.ErrorContains(t, check(user("writes", "secret", "-"+command)), "an ACL denies", command)
	}
	require.ErrorContains(t, check(user("keys", "secret", "resetkeys", "~other:*")), "an ACL denies")
	require.ErrorContains(t, check(user("typo", "wrong")), "this client's user name or password is wrong")
	require.ErrorContains(t, check(admin, serial.WithLedger(brokenLedger{}, 10)), "no such table")
	withLedger := serial.WithLedger(new(serialtest.Ledger), 10)
	require.NoError(t, check(admin, withLedger))
	require.ErrorIs(t, check(admin), serial.ErrConflict, "the ledger is missing")

	require.NoError(t, check(admin, serial.WithLedger(brokenLedger{}, 10)), "a block is in use")
}

// The code in hidden-volume.md runs as it appears there, and numbers of both keys are read.
func TestHiddenVolumeGuide(t *testing.T) {
	t.Parallel()
	if !redistest.Long() {
		t.Skip("a program is built only with SERIAL_TEST_LONG=1")
	}
	text := guide(t, "hidden-volume.md")
	block := func(first string) string {
		_, rest, found := strings.Cut(text, "\n    "+first)
		require.True(t, found, first)
		code, _, _ := strings.Cut(first+rest, "\n\n")
		return strings.ReplaceAll(code, "\n    ", "\n")
	}
	issue, decode, read := block("gen, err := serial.New(rdb,"), block("key, err := hex.DecodeString"),
		block("n, err := old.Parse(number)")
	requireRuns(t, fmt.Sprintf(hiddenVolumeProgram, decode, issue, read),
		"SERIAL_HIDDEN_KEY="+strings.Repeat("0123456789abcdef", 4))
}

const hiddenVolumeProgram = `package main

import (
	"context"
	"encoding/hex"
	"log"
	"os"
	"regexp"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/dailyserial/serial"
)

func main() {
	m := miniredis.NewMiniRedis()
	if err := m.Start(); err != nil {
		log.Fatal(err)
	}
	rdb := redis.NewClient(&redis.Options{Addr: m.Addr()})
	ctx := context.Background()
	%s
	check(err)
	%s
	check(err)
	if !regexp.MustCompile("^ORD[0-9]{14}$").MatchString(no) {
		log.Fatal(no)
	}
	if n, err := gen.Parse(no); err != nil || n.Seq != 1 {
		log.Fatal(n, err)
	}

	scheme := func(key string) *serial.Scheme {
		s, err := serial.NewScheme(serial.WithLocation(time.UTC), serial.WithTemplate("{type}{date:yyyyMMdd}{seq:6}"),
			serial.WithHiddenSequence([]byte(key)))
		check(err)
		return s
	}
	old, current := scheme("the key of 2024."), scheme("the key of 2025.")
	rotated := time.Date(2025, time.January, 1, 0, 0, 0, 0, time.UTC)
	for s, day := range map[*serial.Scheme]time.Time{old: rotated.Add(-time.Second), current: rotated} {
		for seq := range int64(2000) {
			printed, err := s.Number("ORD", serial.At(day), seq+1)
			check(err)
			if n, err := parse(printed.String(), old, current, rotated); err != nil || n.Seq != seq+1 {
				log.Fatal(printed, n.Seq, err)
			}
		}
	}
}

func parse(number string, old, current *serial.Scheme, rotated time.Time) (serial.Number, error) {
	%s
	return n, err
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
`

// The figures for Redis's memory in operations.md hold on a real server.
func TestCapacity(t *testing.T) {
	rdb := redistest.Start(t).Client(t)
	gen := newGenerator(t, rdb, serial.WithLocation(noon()))
	const id = "3f2504e0-4f89-41d3-9a0c-0305e82c3301"
	require.NoError(t, errOf(gen.NextOnce(t.Context(), "IS", id)))
	used := func(key string) int64 {
		n, err := rdb.MemoryUsage(t.Context(), key).Result()
		require.NoError(t, err)
		return n
	}
	require.Less(t, used("serial:{IS}:once:"+id), int64(300))
	require.Less(t, used("serial:{IS}")+used("serial:{IS}:"+today(noon())), int64(400))

	// The recipes in examples/guides have the figure for Never, whose keys stay.
	gen = newGenerator(t, rdb, serial.WithLocation(noon()), serial.WithPeriod(serial.Never),
		serial.WithTemplate("{type}-{seq:4}"))
	require.NoError(t, errOf(gen.Next(t.Context(), "INV")))
	require.Less(t, used("serial:{INV}")+used("serial:{INV}:all"), int64(350))
	for _, key := range []string{"serial:{INV}", "serial:{INV}:all"} {
		seconds, err := rdb.Do(t.Context(), "TTL", key).Int64() // more than a Duration holds
		require.NoError(t, err)
		require.Greater(t, seconds, int64(1000*365*24*3600))
	}
}

// The figures for this process's memory in operations.md hold for 100,000 types: the heap after a collection, less its
// size before.
func TestCapacityOfProcess(t *testing.T) {
	if race.Enabled {
		t.Skip("the race detector needs memory of its own, and cannot follow so many goroutines")
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
	type row struct {
		name  string
		bytes float64 // per type
	}
	rows := []row{{"T%05d", 200}, {"tenant-%06d/invoices", 260}, {"%064d", 400}}
	if !redistest.Long() {
		rows = rows[:1]
		t.Log("longer names are left out without SERIAL_TEST_LONG=1")
	}
	for _, row := range rows {
		gen := newGenerator(t, rdb, serial.WithLocation(time.UTC))
		names := make([]string, 100_000)
		for i := range names {
			names[i] = fmt.Sprintf(row.name, i)
		}
		before := heap()
		for _, name := range names {
			require.NoError(t, errOf(gen.Next(t.Context(), name)))
		}
		require.InEpsilon(t, row.bytes, float64(heap()-before)/float64(len(names)), 0.1, row.name)
		runtime.KeepAlive(names)
		runtime.KeepAlive(gen)
	}
}

// anchors returns the fragments that GitHub gives the headings of a file.
func anchors(t *testing.T, file string) (all []string) {
	t.Helper()
	for _, heading := range regexp.MustCompile(`(?m)^##+ (.*)$`).FindAllStringSubmatch(unix(t, file), -1) {
		kept := regexp.MustCompile(`[^\p{L}\p{N} _-]`).ReplaceAllString(strings.ToLower(heading[1]), "")
		all = append(all, strings.ReplaceAll(kept, " ", "-"))
	}
	return all
}

// Each call sends the commands in the table of call paths in docs/design.md, and waits for as many round trips.
func TestCallPaths(t *testing.T) {
	page := guide(t, "design.md")
	ctx := context.Background()
	next := func(gen *serial.Generator, typ string) error { return errOf(gen.Next(ctx, typ)) }
	nextN := func(gen *serial.Generator, typ string) error { return errOf(gen.NextN(ctx, typ, 2)) }
	once := func(gen *serial.Generator, typ string) error { return errOf(gen.NextOnce(ctx, typ, "request")) }
	prepare := func(gen *serial.Generator, typ string) error { return gen.Prepare(ctx, typ) }
	raise := func(gen *serial.Generator, typ string) error { return gen.Raise(ctx, typ, 7) }
	takeover := func(gen *serial.Generator, typ string) error { return gen.Takeover(ctx, typ, 7) }
	peek := func(gen *serial.Generator, typ string) error { return errOf(gen.Peek(ctx, typ)) }
	history := func(gen *serial.Generator, typ string) error { return errOf(gen.History(ctx, typ, 2)) }
	audit := func(gen *serial.Generator, typ string) error {
		return errOf(gen.Audit(ctx, typ, serial.At(time.Now()), func(func(string, error) bool) {}))
	}
	midnight := func(*serial.Generator, string) error { time.Sleep(24 * time.Hour); return nil }
	type calls []func(gen *serial.Generator, typ string) error
	seconds := options(serial.WithPeriod(serial.PerSecond), serial.WithTemplate("{type}{date:yyyyMMddHHmmss}{seq:4}"))
	rows := map[string]bool{}
	var wrong []string
	for _, test := range []struct {
		name  string
		opts  []serial.Option
		calls calls // the last one is measured
	}{
		{"a number of an open period", nil, calls{next, next}},
		{"a number of an open period", nil, calls{next, nextN}},
		{"a number of an open period", nil, calls{next, once}},
		{"a number of an open period", ledgerIf(true, 10), calls{next, next}},
		{"the first number of a prepared period", nil, calls{prepare, midnight, next}},
		{"the first number of a period", nil, calls{next}},
		{"the first number of a period", nil, calls{nextN}},
		{"the first number of a period", nil, calls{once}},
		{"the same with a floor or a ledger", options(fixedFloor(0)), calls{next}},
		{"the same with a floor or a ledger", ledgerIf(true, 10), calls{next}},
		{"the same with `PerSecond`", seconds, calls{next}},
		{"a number beyond a ledger's block", ledgerIf(true, 1), calls{next, next}},
		{"`Raise` and `Takeover`", nil, calls{next, raise}},
		{"`Raise` and `Takeover`", nil, calls{raise}},
		{"`Raise` and `Takeover`", nil, calls{takeover}},
		{"`Raise` and `Takeover`", ledgerIf(true, 10), calls{next, raise}},
		{"`Prepare` of the next period", nil, calls{next, prepare}},
		{"`Prepare` with a floor", options(fixedFloor(0)), calls{next, prepare}},
		{"`Peek`", nil, calls{next, peek}},
		{"`History`", nil, calls{next, history}},
		{"`Audit`", nil, calls{next, audit}},
	} {
		rows[test.name] = true
		inBubble(t, func(t *testing.T, m *simulation) {
			var sent sentCommands
			gen := newGenerator(t, m.Client(sent.hook()), append(test.opts, serial.WithLocation(time.UTC))...)
			var trips time.Duration
			for _, typ := range []string{"OTHER", "IS"} { // for the second type, the server has the scripts
				for _, call := range test.calls {
					sent.mu.Lock()
					sent.names = nil
					sent.mu.Unlock()
					began := time.Now()
					require.NoError(t, call(gen, typ))
					trips = time.Since(began) / time.Millisecond
					time.Sleep(10 * time.Millisecond) // until the lock is released
				}
			}
			sent.mu.Lock()
			defer sent.mu.Unlock()
			row := fmt.Sprintf("| %s | %s | %d |", test.name, strings.Join(sent.names, ", "), trips)
			if !strings.Contains(page, "\n"+row+"\n") {
				wrong = append(wrong, row)
			}
		})
	}
	require.Empty(t, wrong, "measured calls that are not in the table")
	_, table, _ := strings.Cut(page, "\n| call | ")
	table, _, _ = strings.Cut(table, "\n\n")
	require.Len(t, rows, strings.Count(table, "\n| ")-1, "every row is tested")
}

// sentCommands has the names of commands that a client sent. The name of a script is in the first line of its source,
// but what serial.lua does depends on its options. A plus sign joins the commands of a pipeline.
type sentCommands struct {
	mu    sync.Mutex
	names []string
}

// hook returns a hook that notes the commands. Each call to the server takes a millisecond.
func (s *sentCommands) hook() everyCall {
	scripts := map[any]string{} // by digest
	nameOf := func(cmd redis.Cmder) string {
		args := cmd.Args()
		name := scripts[args[1]]
		if source := fmt.Sprint(args[1]); strings.HasPrefix(source, "-- ") {
			name, _, _ = strings.Cut(source[3:], ".lua")
			scripts[fmt.Sprintf("%x", sha1.Sum([]byte(source)))] = name
		}
		if name == "" {
			return map[string]string{"set": "lock", "eval": "unlock"}[cmd.Name()]
		}
		switch options := fmt.Sprint(args[len(args)-1]); {
		case name != "serial":
			return name
		case strings.Contains(options, `"next":`):
			return "prepare"
		case strings.Contains(options, `"grant":`):
			return "open"
		}
		return "take"
	}
	return func(cmds []redis.Cmder, send func() error) error {
		if name := cmds[0].Name(); name == "hello" || name == "client" { // on a new connection
			return send()
		}
		s.mu.Lock()
		var names []string
		for _, cmd := range cmds {
			names = append(names, nameOf(cmd))
		}
		s.names = append(s.names, strings.Join(names, " + "))
		s.mu.Unlock()
		time.Sleep(time.Millisecond)
		return send()
	}
}

// Each number in docs/business-numbers.md is issued at its date with its row's options, and reads back; each refused
// template is refused with the words of its row.
func TestBusinessNumbers(t *testing.T) {
	t.Parallel()
	if !redistest.Long() {
		t.Skip("a program is built only with SERIAL_TEST_LONG=1")
	}
	quoted := regexp.MustCompile("`(.*?)`")
	options := func(cell string) (list string) {
		for _, option := range quoted.FindAllStringSubmatch(cell, -1) {
			if strings.HasPrefix(option[1], "serial.") {
				list += option[1] + ", "
			} else {
				list += fmt.Sprintf("serial.WithTemplate(%q), ", option[1])
			}
		}
		return list
	}
	all := func(cell string) (texts []string) {
		for _, text := range quoted.FindAllStringSubmatch(cell, -1) {
			texts = append(texts, text[1])
		}
		return texts
	}
	source, printed, refused := "", 0, 0
	for _, section := range strings.Split(unix(t, "docs/business-numbers.md"), "\n## ")[1:] {
		name, text, _ := strings.Cut(section, "\n")
		_, shared, _ := strings.Cut(strings.Split(text, "\n| ---")[0], "; all with ")
		_, table, found := strings.Cut(text, "\n| ---")
		if !found || name == "Recipes" {
			continue
		}
		table, _, _ = strings.Cut(table, "\n\n")
		for _, line := range strings.Split(strings.TrimSpace(table), "\n")[1:] {
			cells := strings.Split(strings.Trim(line, "| "), " | ")
			numbers, types, asked, says := cells[0], []string(nil), "", ""
			switch {
			case len(cells) == 4:
				if types = all(cells[2]); cells[2] == "none" {
					types = []string{""}
				}
				printed++
			case strings.HasPrefix(name, "Refused") && len(cells) == 6:
				asked, says, numbers = options(cells[2]), all(cells[3])[0], cells[4]
				numbers = quoted.FindString(numbers)
				refused++
			default:
				require.Fail(t, "unexpected cells", "%q", cells)
			}
			row := options(shared) + options(cells[len(cells)-1])
			if strings.Contains(cells[1], "GST") {
				require.Len(t, all(numbers)[0], 16, "rule 46 allows no more")
			}
			requireRF(t, all(numbers)[0])
			source += fmt.Sprintf("\t{%q, %#v, %#v, []serial.Option{%s}, []serial.Option{%s}, %q},\n", name, all(numbers),
				types, row, asked, says)
		}
	}
	require.GreaterOrEqual(t, printed, 87)
	require.Equal(t, 8, refused)
	t.Log(printed, "printed,", refused, "refused")

	source = businessProgram + source + "}\n"
	for _, block := range regexp.MustCompile("(?s)```go\n(.*?)```").
		FindAllStringSubmatch(unix(t, "docs/business-numbers.md"), -1) {
		if !strings.Contains(block[1], "gapless.") { // examples/guides tests it
			source += block[1]
		}
	}
	requireRuns(t, source)
}

// requireRF requires that a creditor reference of ISO 11649 has correct check digits.
func requireRF(t *testing.T, number string) {
	t.Helper()
	digits, isRF := strings.CutPrefix(number, "RF")
	if !isRF {
		return
	}
	rest := 0
	for _, c := range digits[2:] + "RF" + digits[:2] {
		v, err := strconv.ParseInt(string(c), 36, 0)
		require.NoError(t, err)
		shift := 10
		if v > 9 { // a letter is two digits
			shift = 100
		}
		rest = (rest*shift + int(v)) % 97
	}
	require.Equal(t, 1, rest, "%s: moved to the end, RF and check digits make 1", number)
}

const businessProgram = `package main

import (
	"context"
	"log"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/dailyserial/serial"
)

var key = []byte("an example's key")

func main() {
	utc := serial.WithLocation(time.UTC)
	m := miniredis.NewMiniRedis()
	if err := m.Start(); err != nil {
		log.Fatal(err)
	}
	rdb := redis.NewClient(&redis.Options{Addr: m.Addr()})
	for _, r := range rows {
		if _, err := serial.New(rdb, append(r.asked, utc)...); len(r.asked) > 0 &&
			(err == nil || !strings.Contains(err.Error(), r.says)) {
			log.Fatalf("%s: %v; want %s", r.numbers, err, r.says)
		}
		m.FlushAll()
		gen, err := serial.New(rdb, append(r.options, utc, serial.WithMaxSkew(-1))...)
		if err != nil {
			log.Fatalf("%s: %v", r.numbers, err)
		}
		var types []string
		for _, want := range r.numbers {
			requirePrints(m, gen, want)
			n, _ := gen.Parse(want)
			types = append(types, n.Type)
		}
		if len(r.types) == 0 {
			r.types = types // not in the row
		}
		if !slices.Equal(types, r.types) {
			log.Fatalf("%s: types %q; want %q", r.numbers, types, r.types)
		}
	}
	requireGuides()
}

// requirePrints requires that a generator issues a number at its date, and reads it back.
func requirePrints(m *miniredis.Miniredis, gen *serial.Generator, want string) {
	n, err := gen.Parse(want)
	if err != nil {
		log.Fatal(err)
	}
	at := n.Date.Add(12 * time.Hour)
	if at.Year() == 1970 { // never starting again
		at = at.AddDate(50, 0, 0)
	}
	m.SetTime(at)
	ctx := context.Background()
	if first, _ := gen.Scheme().Limits(); n.Seq > first {
		if err := gen.Raise(ctx, n.Type, n.Seq-1); err != nil {
			log.Fatalf("%s: %v", want, err)
		}
	}
	issued, err := gen.NextNumber(ctx, n.Type)
	if err != nil || issued.String() != want || issued.Seq != n.Seq {
		log.Fatalf("%s (%d), %v, instead of %s", issued, issued.Seq, err, want)
	}
	back, err := gen.Parse(issued.String())
	if err != nil || back.Type != n.Type || back.Seq != n.Seq || !back.Start.Equal(issued.Start) {
		log.Fatalf("%s parsed: %+v, %v", want, back, err)
	}
}

// requireGuides runs the guide's functions.
func requireGuides() {
	for _, c := range []struct {
		typ, template string
		want          bool
	}{
		{"INV", "{type}/{date:FFFF-EE}/{seq:4}", true},
		{"INVO", "{type}/{date:FFFF-EE}/{seq:4}", false},
		{"INV", "{type}/{date:FFFF-EE}/{seq:4+}", false},
		{"INV", "{type}/{date:yy}/{seq:9}", true},
		{"INV", "{type}/{date:d.M.yyyy}-{seq:1}", true},
		{"INVO", "{type}/{date:d.M.yyyy}-{seq:1}", false},
		{"I", "{type}/{date:d-R-yyyy}/{seq:1}", true},
		{"IV", "{type}/{date:d-R-yyyy}/{seq:1}", false}, // in August, VIII
	} {
		s, err := serial.NewScheme(serial.WithLocation(time.UTC), serial.WithPeriod(serial.PerYear),
			serial.WithTemplate(c.template))
		if err != nil {
			log.Fatal(err)
		}
		if got, err := fits(s, c.typ, 16); err != nil || got != c.want {
			log.Fatal(c, got, err)
		}
	}
}

var rows = []struct {
	section string
	numbers []string
	types   []string
	options []serial.Option
	asked   []serial.Option
	says    string
}{
`

// The root and package serialcmd stay small enough to read: lines that are neither blank nor comment count.
func TestSizes(t *testing.T) {
	for _, row := range []struct {
		folder                  string
		files, tests, codeLines int // at most; 0 for no limit
	}{{".", 17, 20, 0}, {"serialcmd", 8, 0, 2310}} {
		names, err := filepath.Glob(row.folder + "/*.go")
		require.NoError(t, err)
		files, tests, lines := 0, 0, 0
		for _, name := range names {
			if strings.HasSuffix(name, "_test.go") {
				tests++
				continue
			}
			files++
			for line := range strings.Lines(unix(t, name)) {
				if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "//") {
					lines++
				}
			}
		}
		require.NotZero(t, files, row.folder)
		require.LessOrEqual(t, files, row.files, row.folder)
		require.True(t, row.tests == 0 || tests <= row.tests, "%s: %d files of tests", row.folder, tests)
		require.True(t, row.codeLines == 0 || lines <= row.codeLines, "%s: %d lines of code", row.folder, lines)
	}
}
