package redistest

import (
	"flag"
	"runtime"
	"strconv"
)

// RunAtOnce allows n parallel tests to run at the same time even with fewer CPUs, because tests with servers mostly
// wait. It has no effect if -parallel was given. Each test has only a few servers, so n also limits the number of
// processes. RunAtOnce must be called in TestMain, before m.Run.
func RunAtOnce(n int) {
	flag.Parse()
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "test.parallel" })
	if !given && runtime.GOMAXPROCS(0) < n {
		if err := flag.Set("test.parallel", strconv.Itoa(n)); err != nil {
			panic(err) // there is no test that could fail
		}
	}
}
