package main

import (
	"bufio"
	"cmp"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"maps"
	"path"
	"slices"
	"strings"
)

// A function is a declared function or a function literal that was called.
type function struct{ file, name string }

// ran returns the functions that have a block with a count above zero in a coverage profile. The paths in the profile
// begin with module, and the current folder must be the root of this module.
func ran(profile io.Reader, module string) ([]function, error) {
	found := map[function]bool{}
	files := map[string]*file{}
	lines := bufio.NewScanner(profile)
	for lines.Scan() {
		name, block, _ := strings.Cut(lines.Text(), ":")
		name = strings.TrimPrefix(name, module+"/")
		var b struct{ line, column, toLine, toColumn, statements, count int }
		if _, err := fmt.Sscanf(block, "%d.%d,%d.%d %d %d",
			&b.line, &b.column, &b.toLine, &b.toColumn, &b.statements, &b.count); err != nil || b.count == 0 {
			continue // the first line, or a block that did not run
		}
		if skipped := path.Dir(name); skipped == "internal/redistest/callpath" || skipped == "serialtest" {
			continue
		}
		f := files[name]
		if f == nil {
			var err error
			if f, err = parse(name); err != nil {
				return nil, err
			}
			files[name] = f
		}
		found[function{name, f.functionAt(b.line, b.column)}] = true
	}
	return slices.SortedFunc(maps.Keys(found), func(a, b function) int {
		return cmp.Or(cmp.Compare(a.file, b.file), cmp.Compare(a.name, b.name))
	}), lines.Err()
}

// A file is a parsed source file.
type file struct {
	set  *token.FileSet
	tree *ast.File
}

func parse(name string) (*file, error) {
	f := &file{set: token.NewFileSet()}
	var err error
	f.tree, err = parser.ParseFile(f.set, name, nil, 0)
	return f, err
}

// functionAt returns the name of the innermost function at a position. The name of a literal contains its line.
func (f *file) functionAt(line, column int) (name string) {
	ast.Inspect(f.tree, func(n ast.Node) bool {
		if n == nil {
			return true
		}
		from, to := f.set.Position(n.Pos()), f.set.Position(n.End())
		if line < from.Line || line == from.Line && column < from.Column ||
			line > to.Line || line == to.Line && column >= to.Column {
			return false
		}
		switch n := n.(type) {
		case *ast.FuncDecl:
			name = n.Name.Name
			if n.Recv != nil {
				name = fmt.Sprintf("method %s at line %d", name, from.Line)
			}
		case *ast.FuncLit:
			if column, inside := f.set.Position(n.Body.Pos()), line; inside > column.Line || inside == column.Line {
				name = fmt.Sprintf("literal at line %d", from.Line)
			}
		}
		return true
	})
	return name
}
