package race

import (
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
)

var cpus struct {
	sync.Mutex
	bubbles, before int
}

// Bubble calls synctest.Test. With the race detector, it limits the program to one CPU while the bubble runs, because
// with more CPUs, Go 1.26 can crash if several timers of a bubble fire at the same instant (golang/go#78156).
func Bubble(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	if Enabled {
		useOne()
		defer useAll()
	}
	synctest.Test(t, f)
}

func useOne() {
	cpus.Lock()
	defer cpus.Unlock()
	if cpus.bubbles++; cpus.bubbles == 1 {
		cpus.before = runtime.GOMAXPROCS(1)
	}
}

func useAll() {
	cpus.Lock()
	defer cpus.Unlock()
	if cpus.bubbles--; cpus.bubbles == 0 {
		runtime.GOMAXPROCS(cpus.before)
	}
}
