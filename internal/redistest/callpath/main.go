// Command callpath makes one call on a Redis server, and writes the coverage of only this call. .ci/callpath builds the
// command with coverage, and counts the functions.
package main

import (
	"bufio"
	"context"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"log"
	"os"
	"path"
	"runtime/coverage"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/dailyserial/serial"
	"github.com/dailyserial/serial/serialtest"
)

// main takes the address of the server, the name of the call and the folder for the coverage. Alternatively, it takes
// "count", the path of the module and a coverage profile, and lists the functions that were called.
func main() {
	if os.Args[1] == "count" {
		profile, err := os.Open(os.Args[3])
		check(err)
		functions, err := ran(profile, os.Args[2])
		check(err)
		fmt.Println(strings.Join(functions, "\n"))
		return
	}
	call(os.Args[1], os.Args[2], os.Args[3])
}

// call makes calls until connections and caches are warm. Then it makes another call, and writes its coverage to dir.
func call(addr, call, dir string) {
	rdb := redis.NewClient(&redis.Options{Addr: addr})
	defer func() { _ = rdb.Close() }()
	opts := []serial.Option{serial.WithLocation(time.UTC), serial.WithKeyPrefix("callpath-" + call)}
	if call == "ledger" {
		opts = append(opts, serial.WithLedger(new(serialtest.Ledger), 1000))
	}
	gen, err := serial.New(rdb, opts...)
	check(err)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	next := func(ctx context.Context, typ string) {
		_, err := gen.Next(ctx, typ)
		check(err)
	}
	next(ctx, "WARM")
	next(ctx, "WARM")
	time.Sleep(50 * time.Millisecond) // until the work after the opening has ended
	if call != "request" {
		ctx = context.Background()
	}
	next(ctx, "WARM")
	check(coverage.ClearCounters())
	if call == "lone" || call == "request" {
		next(ctx, "WARM")
	} else {
		next(ctx, "FIRST")
		time.Sleep(50 * time.Millisecond)
	}
	check(coverage.WriteMetaDir(dir))
	check(coverage.WriteCountersDir(dir))
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

// A function is a declared function or a function literal.
type function struct {
	name       string
	start, end int // positions, as returned by at
}

func at(line, column int) int { return line<<16 | column }

// ran returns the functions that have a block with a count above zero in a coverage profile, each as "file: function".
// The paths in the profile begin with module, and the current folder must be the root of this module.
func ran(profile io.Reader, module string) (found []string, err error) {
	files := map[string][]function{}
	lines := bufio.NewScanner(profile)
	for lines.Scan() {
		name, block, _ := strings.Cut(lines.Text(), ":")
		name = strings.TrimPrefix(name, module+"/")
		var line, column, toLine, toColumn, statements, count int
		if _, err := fmt.Sscanf(block, "%d.%d,%d.%d %d %d",
			&line, &column, &toLine, &toColumn, &statements, &count); err != nil || count == 0 {
			continue // the first line, or a block that did not run
		}
		if skipped := path.Dir(name); skipped == "internal/redistest/callpath" || skipped == "serialtest" {
			continue
		}
		if files[name] == nil {
			if files[name], err = parse(name); err != nil {
				return nil, err
			}
		}
		for _, f := range slices.Backward(files[name]) { // the innermost function of the block begins last
			if f.start <= at(line, column) && at(line, column) < f.end {
				found = append(found, name+": "+f.name)
				break
			}
		}
	}
	slices.Sort(found)
	return slices.Compact(found), lines.Err()
}

// parse returns the functions of a file in the order in which they begin.
func parse(name string) (functions []function, err error) {
	set := token.NewFileSet()
	tree, err := parser.ParseFile(set, name, nil, 0)
	if err != nil {
		return nil, err
	}
	ast.Inspect(tree, func(n ast.Node) bool {
		var f function
		body := n
		switch n := n.(type) {
		case *ast.FuncDecl:
			f.name = n.Name.Name
			if n.Recv != nil {
				f.name = fmt.Sprintf("method %s at line %d", f.name, set.Position(n.Pos()).Line)
			}
		case *ast.FuncLit:
			f.name = fmt.Sprintf("literal at line %d", set.Position(n.Pos()).Line)
			body = n.Body
		default:
			return true
		}
		from, to := set.Position(body.Pos()), set.Position(body.End())
		f.start, f.end = at(from.Line, from.Column), at(to.Line, to.Column)
		functions = append(functions, f)
		return true
	})
	return functions, nil
}
