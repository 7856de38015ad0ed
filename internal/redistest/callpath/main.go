// Command callpath makes one call on a Redis server, and writes the coverage of only this call. .ci/callpath builds the
// command with coverage, and counts the functions.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"runtime/coverage"
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
		for _, f := range functions {
			fmt.Printf("%s: %s\n", f.file, f.name)
		}
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
	if call == "request" {
		next(ctx, "WARM")
	} else {
		next(context.Background(), "WARM")
	}
	check(coverage.ClearCounters())
	switch call {
	case "lone":
		next(context.Background(), "WARM")
	case "request":
		next(ctx, "WARM")
	case "first", "ledger":
		next(context.Background(), "FIRST")
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
