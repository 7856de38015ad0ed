package redistest

import (
	"flag"
	"runtime"
	"strconv"
)

// RunAtOnce lets n parallel tests run at once even with fewer CPUs, unless -parallel was given. Tests with servers
// mostly wait. As each has at most a few servers, n also bounds the number of processes at a time. Call it in TestMain,
// before m.Run.
func RunAtOnce(n int) {
	flag.Parse()
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "test.parallel" })
	if !given && runtime.GOMAXPROCS(0) < n {
		if err := flag.Set("test.parallel", strconv.Itoa(n)); err != nil {
			panic(err) // outside a test
		}
	}
}
