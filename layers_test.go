package serial_test

import (
	"encoding/json"
	"fmt"
	"go/ast"
	"go/importer"
	goparser "go/parser"
	"go/token"
	"go/types"
	"io"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const module = "github.com/dailyserial/serial"

// layers are the files of the package, from top to bottom. A file may use those of the rows below its own.
var layers = [][]string{
	{"takeover.go"},
	{"once.go", "raise.go", "prepare.go", "history.go", "audit.go"},
	{"serial.go"},
	{"open.go"},
	{"ledger.go"},
	{"batching.go", "floor.go", "options.go"},
	{"hooks.go", "work.go", "lock.go"},
	{"call.go"},
	{"answer.go", "refusal.go"},
	{"marks.go"},
	{"clock.go"},
	{"errors.go", "doc.go"},
	{"report.go"},
	{"scheme.go"},
	{"format.go"},
	{"hidden.go", "check.go", "layout.go"},
	{"alphabet.go", "expiry.go", "name.go"},
}

// TestLayers holds that the files of the package use each other downwards only. A use is a call or a value of a function or
// of a method, unless an interface comes between. Types, constants, variables and fields belong to all.
func TestLayers(t *testing.T) {
	t.Parallel()
	row := map[string]int{}
	for i, files := range layers {
		for _, name := range files {
			row[name] = i
		}
	}
	packages := list(t, ".")
	root := packages[module]
	require.ElementsMatch(t, root.GoFiles, slices.Collect(maps.Keys(row)), "every file has a layer")
	fset := token.NewFileSet()
	var files []*ast.File
	for _, name := range root.GoFiles {
		f, err := goparser.ParseFile(fset, name, nil, goparser.SkipObjectResolution)
		require.NoError(t, err)
		files = append(files, f)
	}
	info := &types.Info{Uses: map[*ast.Ident]types.Object{}}
	config := types.Config{Importer: importer.ForCompiler(fset, "gc", func(path string) (io.ReadCloser, error) {
		return os.Open(packages[path].Export)
	})}
	pkg, err := config.Check(module, fset, files, info)
	require.NoError(t, err)
	var upward []string
	for id, used := range info.Uses {
		f, ok := used.(*types.Func)
		if !ok || f.Pkg() != pkg {
			continue
		}
		if r := f.Signature().Recv(); r != nil && types.IsInterface(r.Type()) {
			continue
		}
		at, declared := fset.Position(id.Pos()), fset.Position(f.Origin().Pos())
		if from, to := at.Filename, declared.Filename; from != to && row[from] >= row[to] {
			upward = append(upward, fmt.Sprintf("%s:%d uses %s of %s, which is not below it", from, at.Line, f.Name(), to))
		}
	}
	slices.Sort(upward)
	for _, use := range upward {
		t.Error(use)
	}
}

// TestImports holds what each layer may import.
func TestImports(t *testing.T) {
	t.Parallel()
	packages := list(t, ".", "./internal/...")
	for name, p := range packages {
		if strings.HasPrefix(name, module+"/internal/") {
			require.False(t, slices.Contains(p.Deps, module), "%s depends on the root", name)
		}
	}
	for name, allowed := range map[string][]string{"coalesce": {}, "budget": {}, "checkdigit": {}, "ff1": {}, "schemes": {}, "tally": {}, "redisrun": {"budget"}, "store": {"budget", "redisrun"}} {
		ours := []string{}
		for _, path := range packages[module+"/internal/"+name].Deps {
			if of, ok := strings.CutPrefix(path, module+"/internal/"); ok {
				ours = append(ours, of)
			}
			if len(allowed) == 0 {
				require.True(t, packages[path].Standard, "internal/%s depends on %s", name, path)
			}
		}
		require.Subset(t, allowed, ours, "what internal/%s depends on", name)
	}
	for _, name := range []string{"format.go", "layout.go", "check.go", "hidden.go", "expiry.go", "scheme.go", "report.go"} {
		f, err := goparser.ParseFile(token.NewFileSet(), name, nil, goparser.ImportsOnly)
		require.NoError(t, err)
		for _, spec := range f.Imports {
			path, err := strconv.Unquote(spec.Path.Value)
			require.NoError(t, err)
			pure := packages[path].Standard || slices.Contains([]string{"checkdigit", "ff1", "schemes", "tally"}, strings.TrimPrefix(path, module+"/internal/"))
			require.True(t, path != "context" && pure, "%s imports %s", name, path)
		}
	}
}

// A listed package is what go list tells of it.
type listed struct {
	ImportPath string
	GoFiles    []string
	Deps       []string // all that it imports, directly or not
	Standard   bool
	Export     string // file of its export data
}

// list returns packages of this module and all that they import, by import path.
func list(t *testing.T, patterns ...string) map[string]*listed {
	t.Helper()
	cmd := exec.Command("go", append([]string{"list", "-export", "-deps", "-json=ImportPath,GoFiles,Deps,Standard,Export"}, patterns...)...)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	require.NoError(t, err)
	packages := map[string]*listed{}
	for decoder := json.NewDecoder(strings.NewReader(string(out))); decoder.More(); {
		p := &listed{}
		require.NoError(t, decoder.Decode(p))
		packages[p.ImportPath] = p
	}
	return packages
}
