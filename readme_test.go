package serial_test

import (
	"context"
	"crypto/sha1"
	"crypto/sha256"
	"crypto/tls"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"go/ast"
	"go/doc"
	goparser "go/parser"
	"go/token"
	"iter"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/dailyserial/serial"
	"github.com/dailyserial/serial/internal/race"
	"github.com/dailyserial/serial/internal/redistest"
	"github.com/dailyserial/serial/serialtest"
)

// unix returns the content of a file without the carriage returns that Git adds on Windows.
func unix(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	return strings.ReplaceAll(string(text), "\r\n", "\n")
}

// guide returns the content of a page in docs/.
func guide(t *testing.T, name string) string {
	t.Helper()
	return unix(t, filepath.Join("docs", name))
}

// The functions in this block are code of docs/operations.md, docs/audit.md, docs/business-numbers.md and
// docs/alternatives.md.

func newClient(kind, password string) redis.UniversalClient {
	secure := &tls.Config{MinVersion: tls.VersionTLS12}
	switch kind {
	case "sentinel":
		return redis.NewFailoverClient(&redis.FailoverOptions{
			MasterName: "mymaster", SentinelAddrs: []string{"s1:26379", "s2:26379", "s3:26379"}, // SentinelPassword, if any
			Username: "issuer", Password: password, TLSConfig: secure,
		})
	case "cluster":
		return redis.NewClusterClient(&redis.ClusterOptions{
			Addrs:    []string{"n1:6379", "n2:6379", "n3:6379"}, // any nodes; the client finds the others
			Username: "issuer", Password: password, TLSConfig: secure,
		})
	default:
		return redis.NewClient(&redis.Options{Addr: "redis:6379", Username: "issuer", Password: password, TLSConfig: secure})
	}
}

// stored yields the numbers of all orders.
func stored(ctx context.Context, db *sql.DB) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		rows, err := db.QueryContext(ctx, "SELECT number FROM orders")
		if err != nil {
			yield("", err)
			return
		}
		defer rows.Close()
		for rows.Next() {
			var number string
			err := rows.Scan(&number)
			if !yield(number, err) || err != nil {
				return
			}
		}
		if err := rows.Err(); err != nil {
			yield("", err)
		}
	}
}

// fits reports whether every number of a type has at most longest characters.
func fits(s *serial.Scheme, typ string, longest int) (bool, error) {
	_, last := s.Limits() // with a + in {seq}, it has 15 digits
	for month := time.January; month <= time.December; month++ {
		n, err := s.Number(typ, serial.On(2024, month, 28), last)
		if err != nil || utf8.RuneCountInString(n.String()) > longest {
			return false, err
		}
	}
	return true, nil
}

func TestOrders(t *testing.T) {
	gen, r := serialtest.New(t, time.Date(2021, time.October, 24, 12, 0, 0, 0, time.UTC),
		serial.WithLedger(new(serialtest.Ledger), 100))
	requireNext := func(want string) {
		t.Helper()
		number, err := gen.Next(t.Context(), "IS")
		require.NoError(t, err)
		require.Equal(t, want, number)
	}
	requireNext("IS202110240001")
	r.Advance(12 * time.Hour) // midnight
	requireNext("IS202110250001")
	r.Stop() // Redis is down, until Start
	_, err := gen.Next(t.Context(), "IS")
	require.Error(t, err)
	r.Start()
	r.Lose() // Redis is empty
	requireNext("IS202110250101")
}

// Every block of Go code in docs/ must be part of a file that is compiled: this file, an example, or a file of package
// gapless. Their tests run most of the code. The client and the query in this file are only compiled.
func TestReadmeCompiles(t *testing.T) {
	var source strings.Builder
	for _, pattern := range []string{"readme_test.go", "examples/*/*.go", "examples/*/*/*.go", "gapless/*_test.go"} {
		names, err := filepath.Glob(pattern)
		require.NoError(t, err)
		for _, name := range names {
			source.WriteString(unix(t, name))
		}
	}
	pages, err := filepath.Glob("docs/*.md")
	require.NoError(t, err)
	blocks := regexp.MustCompile("(?s)```go\n(.*?)```")
	for _, page := range pages {
		for _, block := range blocks.FindAllStringSubmatch(unix(t, page), -1) {
			require.True(t, strings.Contains(source.String(), block[1]), "%s: %s", page, block[1])
		}
	}
	for _, kind := range []string{"", "sentinel", "cluster"} {
		newGenerator(t, closing(t, newClient(kind, "secret")))
	}
	_ = stored
}

// goCommand runs the go command and returns its output. The test is skipped with the race detector, which does not
// affect the programs that goCommand builds.
func goCommand(t *testing.T, args ...string) string {
	t.Helper()
	if race.Enabled {
		t.Skip("no goroutines run concurrently here")
	}
	out, err := exec.Command("go", args...).CombinedOutput()
	require.NoError(t, err, "%s", out)
	return string(out)
}

// The program in the README must issue a number. Afterwards, the command must print the output that docs/command.md
// shows, and the command in docs/errors.md must end ErrCounterLost.
func TestDocsCommand(t *testing.T) {
	t.Parallel()
	m, rdb := startMini(t)
	zone := noon()
	now := time.Now().In(zone)
	_, offset := now.Zone()
	name := fmt.Sprintf("Etc/GMT%+d", -offset/3600) // the sign of these zones is reversed
	real := strings.NewReplacer("localhost:6379", m.Addr(), "=UTC", "="+name, "Asia/Shanghai", name, "00Z",
		"00"+now.Format("Z07:00"), "time.UTC", fmt.Sprintf(`time.FixedZone("", %d)`, offset))
	_, program, found := strings.Cut(unix(t, "README.md"), "```go\n")
	require.True(t, found)
	program, _, _ = strings.Cut(program, "```")
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "main.go"), []byte(real.Replace(program)), 0o600))
	require.Equal(t, "IS"+today(zone)+"0001 <nil>\n", goCommand(t, "run", filepath.Join(dir, "main.go")))

	binary := filepath.Join(dir, "serial.exe")
	goCommand(t, "build", "-o", binary, "./cmd/serial")
	_, session, found := strings.Cut(guide(t, "command.md"), "```console\n")
	require.True(t, found)
	session, _, _ = strings.Cut(session, "```")
	var env []string
	for _, step := range strings.Split(real.Replace(session), "$ ")[1:] {
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
			want = strings.NewReplacer("20211024", today(zone), "2021-10-24", now.Format(time.DateOnly)).Replace(want)
		}
		at := regexp.MustCompile(`raised,,[^,]*,`) // time of the raise
		require.Equal(t, at.ReplaceAllString(want, "TIME"), at.ReplaceAllString(string(out), "TIME"), line)
	}

	gen := newGenerator(t, rdb, serial.WithLocation(zone))
	m.Del("serial:{IS}:" + today(zone))
	require.ErrorIs(t, errOf(gen.Next(t.Context(), "IS")), serial.ErrCounterLost)
	command := regexp.MustCompile(`(?m)^    serial (raise .* IS 340)$`).FindStringSubmatch(guide(t, "errors.md"))
	require.NotNil(t, command)
	out, err := exec.Command(binary, strings.Fields(real.Replace(command[1]))...).CombinedOutput()
	require.NoError(t, err, "%s", out)
	requireResult(t, "IS"+today(zone)+"0341")(gen.Next(t.Context(), "IS"))
}

// tableRows returns the cells of the rows of the first table below a heading.
func tableRows(t *testing.T, file, heading string) (rows [][]string) {
	t.Helper()
	_, text, found := strings.Cut(unix(t, file), "\n## "+heading+"\n")
	require.True(t, found, "%s: %s", file, heading)
	_, text, found = strings.Cut(text, "\n| ---")
	require.True(t, found, "%s: %s has no table", file, heading)
	table, _, _ := strings.Cut(text, "\n\n")
	for _, line := range strings.Split(strings.TrimSpace(table), "\n")[1:] {
		rows = append(rows, strings.Split(strings.Trim(line, "| "), " | "))
	}
	require.NotEmpty(t, rows, "%s: %s", file, heading)
	return rows
}

// quoted returns the texts between backquotes.
func quoted(cell string) (texts []string) {
	for _, text := range regexp.MustCompile("`(.*?)`").FindAllStringSubmatch(cell, -1) {
		texts = append(texts, text[1])
	}
	return texts
}

// withoutSpace returns a text without spaces and line breaks.
func withoutSpace(text string) string { return strings.Join(strings.Fields(text), "") }

// The recipes in docs/business-numbers.md must run exactly as they appear there.
func TestRecipes(t *testing.T) {
	source := withoutSpace(unix(t, "readme_test.go"))
	for _, row := range tableRows(t, "docs/business-numbers.md", "Recipes") {
		for _, line := range quoted(row[1]) {
			require.True(t, strings.Contains(source, withoutSpace(line)), line)
		}
	}
	ctx, tenant, key := t.Context(), "acme", "once"
	rdb := serialtest.NewRedis(t, time.Now()).Client()
	gen := newGenerator(t, rdb)
	for i, user := range []string{"Ada", "Bob"} { // who send the same key
		number, err := gen.NextOnce(ctx, "IS", fmt.Sprintf("%x", sha256.Sum256(fmt.Appendf(nil, "%q %q", user, key))))
		requireSeq(t, int64(i+1))(number, err)
	}
	last, err := gen.Peek(ctx, "IS")
	require.NoError(t, err)
	guess, err := gen.Scheme().Number("IS", serial.At(time.Now()), last.Seq+1)
	require.NoError(t, err)
	requireResult(t, guess)(gen.NextNumber(ctx, "IS"))
	numbers, err := gen.NextN(ctx, "T1", 200)
	requireSeq(t, 200)(numbers[199], err)
	for _, recipe := range []func(){
		func() {
			gen, err := serial.New(rdb, serial.WithKeyPrefix("serial/"+tenant))
			require.NoError(t, errors.Join(err, errOf(gen.Next(ctx, "IS"))))
		},
		func() {
			gen, err := serial.New(rdb, serial.WithKeyPrefix("serial/test"))
			requireSeq(t, 1)(gen.NextNumber(ctx, "IS"))
			require.NoError(t, err)
		},
		func() {
			gen, err := serial.New(rdb, serial.WithLocation(time.UTC), serial.WithPeriod(serial.PerSecond),
				serial.WithTemplate("{type}{date:yyMMddHHmmss}{seq:4}"))
			require.NoError(t, err)
			number, err := gen.NextNumber(ctx, "IS")
			require.NoError(t, err)
			id, err := number.Int64()
			require.Equal(t, "IS"+strconv.FormatInt(id, 10), number.String(), err)
		},
		func() {
			gen, err := serial.New(rdb, serial.WithRetention(30))
			require.NoError(t, err)
			days, err := gen.History(ctx, "IS", 30)
			require.Empty(t, days, err)
		},
	} {
		rdb = serialtest.NewRedis(t, time.Now()).Client()
		recipe()
	}
}

// optionOf returns the option that is written in a cell.
func optionOf(t *testing.T, code string) serial.Option {
	t.Helper()
	call := regexp.MustCompile(`^serial\.With(\w+)\((.*)\)$`).FindStringSubmatch(code)
	if call == nil {
		return serial.WithTemplate(code)
	}
	number, _ := strconv.ParseInt(call[2], 10, 64)
	switch call[1] {
	case "SharedCounter":
		return serial.WithSharedCounter()
	case "HiddenSequence":
		return serial.WithHiddenSequence([]byte("an example's key"))
	case "Start":
		return serial.WithStart(number)
	case "Last":
		return serial.WithLast(number)
	case "Until":
		return serial.WithUntil(serial.OnDateOf(must(time.Parse("serial.On(2006, time.January, 2)", call[2]))))
	case "YearStart":
		at := must(time.Parse("time.January, 2", call[2]))
		return serial.WithYearStart(at.Month(), at.Day())
	case "Period":
		for p := serial.PerSecond; p <= serial.PerHalfYear; p++ {
			if "serial."+p.String() == call[2] {
				return serial.WithPeriod(p)
			}
		}
	}
	require.Fail(t, "unknown option", code)
	return nil
}

// Each number in docs/business-numbers.md must be issued on its date with the options of its row, and Parse must accept
// it. Each invalid template must cause the error in its row.
func TestBusinessNumbers(t *testing.T) {
	t.Parallel()
	optionsOf := func(cell string) (opts []serial.Option) {
		for _, code := range quoted(cell) {
			opts = append(opts, optionOf(t, code))
		}
		return append(opts, serial.WithLocation(time.UTC), serial.WithMaxSkew(-1))
	}
	m, rdb := startMini(t)
	issued, refused := 0, 0
	page := guide(t, "business-numbers.md")
	for _, section := range strings.Split(page, "\n## ")[1:] {
		heading, text, _ := strings.Cut(section, "\n")
		if heading == "Recipes" || !strings.Contains(text, "\n| ---") {
			continue
		}
		_, shared, _ := strings.Cut(strings.Split(text, "\n| ---")[0], "; all with ")
		for _, cells := range tableRows(t, "docs/business-numbers.md", heading) {
			numbers, types := quoted(cells[0]), []string(nil)
			switch {
			case strings.HasPrefix(heading, "Refused"):
				require.Len(t, cells, 6)
				require.ErrorContains(t, errOf(serial.New(rdb, optionsOf(cells[2])...)), quoted(cells[3])[0])
				numbers = quoted(cells[4])[:1]
				refused++
			default:
				require.Len(t, cells, 4)
				types = append(quoted(cells[2]), "")
				issued++
			}
			m.FlushAll()
			gen := newGenerator(t, rdb, optionsOf(shared+cells[len(cells)-1])...)
			for i, number := range numbers {
				n, err := gen.Parse(number)
				require.NoError(t, err)
				if types != nil {
					require.Equal(t, types[i], n.Type, number)
				}
				if m.SetTime(n.Date.Add(12 * time.Hour)); n.Date.Unix() == 0 { // of Never
					m.SetTime(n.Date.AddDate(50, 0, 0))
				}
				if first, _ := gen.Scheme().Limits(); n.Seq > first {
					require.NoError(t, gen.Raise(t.Context(), n.Type, n.Seq-1), number)
				}
				again, err := gen.NextNumber(t.Context(), n.Type)
				require.NoError(t, err, number)
				require.Equal(t, number, again.String())
				require.Equal(t, n.Seq, again.Seq)
			}
		}
	}
	require.GreaterOrEqual(t, issued, 80)
	require.Equal(t, 8, refused)

	for template, want := range map[string]bool{ // those with - are a character too long
		"{type}/{date:FFFF-EE}/{seq:4}": true, "-{type}/{date:FFFF-EE}/{seq:4}": false,
		"{type}/{date:d-R-yyyy}/{seq:1}": true, "-{type}/{date:d-R-yyyy}/{seq:1}": false, // in August, VIII
	} {
		typ := map[bool]string{true: "INV", false: "I"}[strings.Contains(template, "FFFF")]
		requireResult(t, want, template)(fits(newScheme(t, serial.WithPeriod(serial.PerYear), serial.WithTemplate(template)),
			typ, 16))
	}
}

// The code in docs/hidden-volume.md must run exactly as it appears there, and parse numbers of both keys.
func TestHiddenVolumeGuide(t *testing.T) {
	source := withoutSpace(unix(t, "readme_test.go"))
	for _, line := range regexp.MustCompile(`(?m)^    (.*)$`).FindAllStringSubmatch(guide(t, "hidden-volume.md"), -1) {
		require.True(t, strings.Contains(source, withoutSpace(line[1])), line[1])
	}
	rdb, ctx := serialtest.NewRedis(t, time.Now()).Client(), t.Context()
	t.Setenv("SERIAL_HIDDEN_KEY", strings.Repeat("0123456789abcdef", 4))
	key, err := hex.DecodeString(os.Getenv("SERIAL_HIDDEN_KEY")) // New refuses an empty key
	require.NoError(t, err)
	gen, err := serial.New(rdb,
		serial.WithTemplate("{type}{date:yyyyMMdd}{seq:6}"),
		serial.WithHiddenSequence(key), // 16, 24 or 32 bytes
	)
	require.NoError(t, err)
	no, err := gen.Next(ctx, "ORD") // "ORD20211024" and six digits that reveal nothing
	require.NoError(t, err)
	require.Regexp(t, "^ORD[0-9]{14}$", no)
	requireSeq(t, 1)(gen.Parse(no))

	of := func(key string) *serial.Scheme {
		return newScheme(t, serial.WithTemplate("{type}{date:yyyyMMdd}{seq:6}"), serial.WithHiddenSequence([]byte(key)))
	}
	old, current := of("the key of 2024."), of("the key of 2025.")
	rotated := time.Date(2025, time.January, 1, 0, 0, 0, 0, time.UTC)
	for s, day := range map[*serial.Scheme]time.Time{old: rotated.Add(-time.Second), current: rotated} {
		for seq := range int64(100) {
			number := textOfSeq(t, s, serial.At(day), seq+1)
			n, err := old.Parse(number)                 // old and current are Schemes that differ only in the key
			if err != nil || !n.Start.Before(rotated) { // rotated: the start of the first period with the new key
				n, err = current.Parse(number)
			}
			requireSeq(t, seq+1)(n, err)
		}
	}
}

// The index in docs/README.md must have a line for each page, and docs/settings.md must have one row for each option and
// no other rows.
func TestDocsAreComplete(t *testing.T) {
	pages, err := filepath.Glob("docs/*.md")
	require.NoError(t, err)
	index := unix(t, "docs/README.md")
	for _, page := range pages {
		if name := filepath.Base(page); name != "README.md" {
			require.Contains(t, index, "]("+name+")")
		}
	}
	var options, rows []string
	sources, err := filepath.Glob("*.go")
	require.NoError(t, err)
	option := regexp.MustCompile(`(?m)^func (With\w+)\(.*\) Option \{$`)
	for _, name := range sources {
		for _, m := range option.FindAllStringSubmatch(unix(t, name), -1) {
			options = append(options, m[1])
		}
	}
	for _, row := range tableRows(t, "docs/settings.md", "Options") {
		rows = append(rows, regexp.MustCompile(`With\w+`).FindString(row[0]))
	}
	require.ElementsMatch(t, options, rows)
}

// All links to files and headings of this repository must be valid.
func TestLinks(t *testing.T) {
	for _, pattern := range []string{"*.md", "docs/*.md", "*/README.md", "*/*/README.md", "*/*/*/README.md"} {
		files, err := filepath.Glob(pattern)
		require.NoError(t, err)
		for _, file := range files {
			for _, link := range regexp.MustCompile(`\]\(([^)\s]+)\)`).FindAllStringSubmatch(unix(t, file), -1) {
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
					require.Contains(t, sections(t, target), anchor, "%s: %s", file, link[1])
				}
			}
		}
	}
}

// sections returns the sections of a file. The key of a section is the fragment that GitHub generates for its heading.
func sections(t *testing.T, file string) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, section := range regexp.MustCompile(`(?m)^##+ `).Split(unix(t, file), -1)[1:] {
		heading, text, _ := strings.Cut(section, "\n")
		kept := regexp.MustCompile(`[^\p{L}\p{N} _-]`).ReplaceAllString(strings.ToLower(heading), "")
		all[strings.ReplaceAll(kept, " ", "-")] = text
	}
	return all
}

// A new user must be able to find the answers to these questions with two clicks from the README. The text of each link
// must contain words of the question, and the last link must lead to the section with the answer.
func TestTenQuestions(t *testing.T) {
	for question, q := range map[string]struct {
		clicks []string // texts of links
		answer string
	}{
		"Why not just INCR?": {nil, "`INCR` alone never returns a number twice."},
		"What happens if Redis loses data?": {[]string{"What if Redis loses data?"},
			"all keys; the process does not remember"},
		"When does the day change?": {[]string{"When does the day change, and in which time zone?"},
			"The day changes at midnight in the zone of `WithLocation`, by Redis's clock."},
		"How do I make the client for Sentinel?": {[]string{"How do I make the client, for Sentinel, Cluster or TLS?"},
			"redis.NewFailoverClient("},
		"What if the request is repeated?": {[]string{"What if a request is repeated?"},
			"`NextOnce` gives a repeated request the same number"},
		"How do I take numbers without gaps?": {[]string{"How do I take numbers without gaps?"},
			"**Take the number in the transaction that inserts the document.**"},
		"How do I test my service?": {[]string{"How do I test my service?"}, "serialtest.New(t,"},
		"What if all 9999 are used?": {[]string{"What comes after 9999?"},
			"Calls fail with `ErrExhausted` until the next day."},
		"How do I replace max() + 1?": {[]string{"How do I move an existing series to this package?", "`max() + 1`"},
			"a floor that queries the table"},
		"What do I do about ErrCounterLost at night?": {
			[]string{"What does this error mean, and what do I do about it?", "`ErrCounterLost`"},
			"**What to do:** Find the last number that was *used*"},
	} {
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
		require.Contains(t, sections(t, page)[anchor], q.answer, question)
	}
}

// Every exported function must have an example, except those that appear in an example with another name. An example
// must be complete, so that readers of pkg.go.dev see everything that it uses and can run it.
func TestEveryNameHasAnExample(t *testing.T) {
	names, err := filepath.Glob("*.go")
	require.NoError(t, err)
	files := token.NewFileSet()
	var parsed []*ast.File
	for _, name := range names {
		file, err := goparser.ParseFile(files, name, nil, goparser.ParseComments)
		require.NoError(t, err)
		if !strings.HasSuffix(name, "_test.go") || name == "example_test.go" {
			parsed = append(parsed, file)
		}
	}
	p, err := doc.NewFromFiles(files, parsed, "github.com/dailyserial/serial")
	require.NoError(t, err)
	functions, examples := p.Funcs, p.Examples
	for _, typ := range p.Types {
		functions, examples = append(functions, typ.Funcs...), append(examples, typ.Examples...)
		for _, method := range typ.Methods {
			examples = append(examples, method.Examples...)
		}
	}
	var missing []string
	for _, f := range functions {
		if examples = append(examples, f.Examples...); len(f.Examples) == 0 {
			missing = append(missing, f.Name)
		}
	}
	require.ElementsMatch(t, []string{"WithHistoryAfter", "WithLookup"}, missing)
	for _, e := range examples {
		require.NotNil(t, e.Play, "the example %s uses code in another file", e.Name)
		require.NotEmpty(t, e.Output, e.Name)
	}
}

// The runbook must have an entry for every error, and all entries must have the same paragraphs.
func TestRunbookHasEveryError(t *testing.T) {
	page, entries := guide(t, "errors.md"), sections(t, "docs/errors.md")
	sentinels := regexp.MustCompile(`(?m)^\t(Err\w+) += (errors\.New|template\.Err)`).
		FindAllStringSubmatch(unix(t, "errors.go"), -1)
	require.Len(t, sentinels, 10)
	for _, sentinel := range sentinels {
		paragraphs := []string{"Meaning:", "What to do:"}
		if strings.Contains(page, "\n## "+sentinel[1]+"\n") { // for an operator; the others are for a programmer
			paragraphs = append(paragraphs, "Look at:", "Never")
		}
		for _, paragraph := range paragraphs {
			require.Contains(t, entries[strings.ToLower(sentinel[1])], "\n**"+paragraph+"** ", sentinel[1])
		}
	}
}

// The memory of Redis is measured on a real server. The figures in docs/operations.md must be correct.
func TestCapacity(t *testing.T) {
	rdb := redistest.Start(t).Client(t)
	const id = "3f2504e0-4f89-41d3-9a0c-0305e82c3301"
	require.NoError(t, errOf(newGenerator(t, rdb, serial.WithLocation(noon())).NextOnce(t.Context(), "IS", id)))
	used := func(keys ...string) (sum int64) {
		for _, key := range keys {
			n, err := rdb.MemoryUsage(t.Context(), key).Result()
			require.NoError(t, err)
			sum += n
		}
		return sum
	}
	require.Less(t, used("serial:{IS}:once:"+id), int64(300))
	require.Less(t, used("serial:{IS}", "serial:{IS}:"+today(noon())), int64(400))

	// The recipes in examples/guides have the figure for Never, whose keys stay.
	gen := newGenerator(t, rdb, serial.WithPeriod(serial.Never), serial.WithTemplate("{type}-{seq:4}"))
	require.NoError(t, errOf(gen.Next(t.Context(), "INV")))
	require.Less(t, used("serial:{INV}", "serial:{INV}:all"), int64(350))
}

// The memory of this process is measured with 100,000 types, as the growth of the heap after a garbage collection. The
// figures in docs/operations.md must be correct.
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
	sizes := map[string]float64{"T%05d": 200} // of a type, by its name
	if redistest.Long() {
		sizes["tenant-%06d/invoices"], sizes["%064d"] = 260, 400
	}
	for name, size := range sizes {
		gen := newGenerator(t, rdb, serial.WithLocation(time.UTC))
		names := make([]string, 100_000)
		for i := range names {
			names[i] = fmt.Sprintf(name, i)
		}
		before := heap()
		for _, name := range names {
			require.NoError(t, errOf(gen.Next(t.Context(), name)))
		}
		require.InEpsilon(t, size, float64(heap()-before)/float64(len(names)), 0.1, name)
		runtime.KeepAlive(names)
		runtime.KeepAlive(gen)
	}
}

// Each call must send the commands that the table of call paths in docs/design.md lists, and wait for as many round
// trips.
func TestCallPaths(t *testing.T) {
	ctx := context.Background()
	next := func(gen *serial.Generator, typ string) error { return errOf(gen.Next(ctx, typ)) }
	once := func(gen *serial.Generator, typ string) error { return errOf(gen.NextOnce(ctx, typ, "request")) }
	prepare := func(gen *serial.Generator, typ string) error { return gen.Prepare(ctx, typ) }
	raise := func(gen *serial.Generator, typ string) error { return gen.Raise(ctx, typ, 7) }
	takeover := func(gen *serial.Generator, typ string) error { return gen.Takeover(ctx, typ, 7) }
	peek := func(gen *serial.Generator, typ string) error { return errOf(gen.Peek(ctx, typ)) }
	history := func(gen *serial.Generator, typ string) error { return errOf(gen.History(ctx, typ, 2)) }
	audit := func(gen *serial.Generator, typ string) error {
		return errOf(gen.Audit(ctx, typ, serial.At(time.Now()), used()))
	}
	midnight := func(*serial.Generator, string) error { time.Sleep(24 * time.Hour); return nil }
	type calls []func(gen *serial.Generator, typ string) error
	seconds := options(serial.WithPeriod(serial.PerSecond), serial.WithTemplate("{type}{date:yyyyMMddHHmmss}{seq:4}"))
	measured := map[string]bool{}
	for _, test := range []struct {
		name  string
		opts  []serial.Option
		calls calls // the last one is measured
	}{
		{"a number of an open period", nil, calls{next, next}},
		{"a number of an open period", nil, calls{next, once}},
		{"a number of an open period", ledgerIf(true, 10), calls{next, next}},
		{"the first number of a prepared period", nil, calls{prepare, midnight, next}},
		{"the first number of a period", nil, calls{next}},
		{"the first number of a period", nil, calls{once}},
		{"the same with a floor or a ledger", options(fixedFloor(0)), calls{next}},
		{"the same with a floor or a ledger", ledgerIf(true, 10), calls{next}},
		{"the same with `PerSecond`", seconds, calls{next}},
		{"a number beyond a ledger's block", ledgerIf(true, 1), calls{next, next}},
		{"`Raise` and `Takeover`", nil, calls{next, raise}},
		{"`Raise` and `Takeover`", nil, calls{takeover}},
		{"`Raise` and `Takeover`", ledgerIf(true, 10), calls{next, raise}},
		{"`Prepare` of the next period", nil, calls{next, prepare}},
		{"`Prepare` with a floor", options(fixedFloor(0)), calls{next, prepare}},
		{"`Peek`", nil, calls{next, peek}},
		{"`History`", nil, calls{next, history}},
		{"`Audit`", nil, calls{next, audit}},
	} {
		inBubble(t, func(t *testing.T, m *simulation) {
			var sent sentCommands
			gen := newGenerator(t, m.Client(sent.hook()), append(test.opts, serial.WithLocation(time.UTC))...)
			var trips time.Duration
			for _, typ := range []string{"OTHER", "IS"} { // for the second type, the server has the scripts
				for _, call := range test.calls {
					sent.take()
					began := time.Now()
					require.NoError(t, call(gen, typ))
					trips = time.Since(began) / time.Millisecond
					time.Sleep(10 * time.Millisecond) // until the lock is released
				}
			}
			measured[fmt.Sprintf("%s | %s | %d", test.name, strings.Join(sent.take(), ", "), trips)] = true
		})
	}
	table := map[string]bool{}
	for _, row := range tableRows(t, "docs/design.md", "The path of a call") {
		table[strings.Join(row, " | ")] = true
	}
	require.Equal(t, table, measured)
}

// sentCommands records the names of the commands that a client sends. The names in a pipeline are joined by plus signs.
type sentCommands struct {
	mu    sync.Mutex
	names []string
}

// take returns the recorded names and deletes them.
func (s *sentCommands) take() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	names := s.names
	s.names = nil
	return names
}

// hook returns a hook that records the commands, and delays each call to the server by a millisecond. The name of a
// script is in the first line of its source. For serial.lua, the recorded name depends on the options of the run.
func (s *sentCommands) hook() everyCall {
	scripts := map[any]string{} // by digest
	nameOf := func(cmd redis.Cmder) string {
		args := cmd.Args()
		name := scripts[args[1]]
		if source := fmt.Sprint(args[1]); strings.HasPrefix(source, "-- ") {
			name, _, _ = strings.Cut(source[3:], ".lua")
			scripts[fmt.Sprintf("%x", sha1.Sum([]byte(source)))] = name
		}
		options := fmt.Sprint(args[len(args)-1])
		switch {
		case name == "":
			return map[string]string{"set": "lock", "eval": "unlock"}[cmd.Name()]
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
