// Package structure_test checks what docs/design.md says about the inside of the library.
package structure_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const root = "../../"

// A source is a file of a package.
type source struct {
	lines int // neither blank nor comment
	tree  *ast.File
}

// parse parses the files in a folder that are not tests. The keys of the map are their names, without the ending.
func parse(t *testing.T, set *token.FileSet, dir string) map[string]source {
	names, err := filepath.Glob(filepath.Join(root, dir, "*.go"))
	require.NoError(t, err)
	sources := map[string]source{}
	for _, name := range names {
		if !strings.HasSuffix(name, "_test.go") {
			tree, err := parser.ParseFile(set, name, nil, 0)
			require.NoError(t, err)
			sources[strings.TrimSuffix(filepath.Base(name), ".go")] = source{count(t, name), tree}
		}
	}
	return sources
}

var empty = regexp.MustCompile(`(?m)^[ \t]*(//.*|--.*)?$\n?`)

// count returns the number of lines of a file that are neither blank nor comment.
func count(t *testing.T, name string) int {
	text, err := os.ReadFile(name)
	require.NoError(t, err)
	return strings.Count(empty.ReplaceAllString(string(text), ""), "\n")
}

// nothing imports empty packages: only names of the package itself matter.
type nothing struct{}

func (nothing) Import(path string) (*types.Package, error) {
	return types.NewPackage(path, filepath.Base(path)), nil
}

// uses returns the pairs of files in which the first one uses a name of the second one.
func uses(set *token.FileSet, sources map[string]source) map[[2]string]bool {
	info := types.Info{Uses: map[*ast.Ident]types.Object{}, Selections: map[*ast.SelectorExpr]*types.Selection{}}
	var trees []*ast.File
	for _, s := range sources {
		trees = append(trees, s.tree)
	}
	config := types.Config{Importer: nothing{}, Error: func(error) {}}
	_, _ = config.Check("p", set, trees, &info)
	file := func(at token.Pos) string {
		return strings.TrimSuffix(filepath.Base(set.Position(at).Filename), ".go")
	}
	pairs := map[[2]string]bool{}
	for ident, object := range info.Uses {
		if object.Pos().IsValid() && file(object.Pos()) != file(ident.Pos()) {
			pairs[[2]string{file(ident.Pos()), file(object.Pos())}] = true
		}
	}
	return pairs
}

// The files of the two halves use each other in the order of docs/design.md, with the three exceptions that it names.
func TestOrderOfFiles(t *testing.T) {
	design, err := os.ReadFile(root + "docs/design.md")
	require.NoError(t, err)
	against := 0
	for _, name := range []string{"series", "wire"} {
		m := regexp.MustCompile("(?m)^- `" + name + "`: (.*)$").FindSubmatch(design)
		require.NotNil(t, m, "docs/design.md has no order of the files of %s", name)
		order := strings.Split(strings.Trim(string(m[1]), "`"), "`, `")
		set := token.NewFileSet()
		sources := parse(t, set, "internal/"+name)
		require.ElementsMatch(t, slices.Collect(maps.Keys(sources)), order)
		for pair := range uses(set, sources) {
			if slices.Index(order, pair[0]) > slices.Index(order, pair[1]) {
				against++
				t.Logf("%s: %s uses %s", name, pair[0], pair[1])
			}
		}
	}
	require.LessOrEqual(t, against, 3, "docs/design.md names the exceptions")
}

// coreFolders are the folders of the core: the root, and the packages inside that are not for tests.
func coreFolders(t *testing.T) []string {
	all, err := filepath.Glob(root + "internal/*")
	require.NoError(t, err)
	forTests := regexp.MustCompile("/(redistest|faults|interleave|race|structure|upgrade|mutants)$")
	for i, dir := range all {
		all[i] = strings.TrimPrefix(filepath.ToSlash(dir), root)
	}
	all = slices.DeleteFunc(all, forTests.MatchString)
	return append(all, ".")
}

// The core is small: lines of code, files, functions and methods have limits.
func TestSize(t *testing.T) {
	lua := func(name string) int { return count(t, root+"internal/series/lua/"+name+".lua") }
	rules := lua("rules") + lua("serial") + lua("master")
	total, halves := rules+lua("read"), rules+lua("read")
	typesOf := map[string]string{}
	for _, dir := range coreFolders(t) {
		set := token.NewFileSet()
		methods := map[string]int{}
		for name, s := range parse(t, set, dir) {
			total += s.lines
			if dir == "internal/series" || dir == "internal/wire" {
				halves += s.lines
			}
			end := set.Position(s.tree.FileEnd).Line
			assert.LessOrEqual(t, end, 350, "lines of %s in %s", name, dir)
			ast.Inspect(s.tree, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.FuncDecl:
					length := set.Position(n.End()).Line - set.Position(n.Pos()).Line + 1
					assert.LessOrEqual(t, length, 60, "lines of %s in %s", n.Name.Name, dir)
					if n.Recv != nil {
						name, _, _ := strings.Cut(types.ExprString(n.Recv.List[0].Type), "[")
						methods[strings.TrimPrefix(name, "*")]++
					}
				case *ast.TypeSpec:
					if ast.IsExported(n.Name.Name) && dir != "." && !n.Assign.IsValid() {
						assert.Empty(t, typesOf[n.Name.Name], "type %s of %s", n.Name.Name, dir)
						typesOf[n.Name.Name] = dir
					}
				}
				return true
			})
		}
		delete(methods, "Generator")
		for name, n := range methods {
			assert.LessOrEqual(t, n, 20, "methods of %s in %s", name, dir)
		}
	}
	const advice = ": first look for code to remove; if the lines are needed, raise the limit in the same commit, and " +
		"give the reason"
	t.Logf("%d lines of core code, %d of them in series, wire and Lua; %d lines of rules", total, halves, rules)
	assert.LessOrEqual(t, rules, 330, "lines of the rules"+advice)
	assert.LessOrEqual(t, halves, 2843, "lines of series, wire and Lua"+advice)
	assert.LessOrEqual(t, total, 7523, "lines of the core"+advice)
	tests, err := filepath.Glob(root + "*_test.go")
	require.NoError(t, err)
	all, err := filepath.Glob(root + "*.go")
	require.NoError(t, err)
	assert.LessOrEqual(t, len(tests), 20, "test files in the root")
	assert.LessOrEqual(t, len(all)-len(tests), 17, "files in the root")
}
