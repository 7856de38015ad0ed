package redistest

import (
	"context"
	"flag"
	"math/rand/v2"
	"os"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
)

// A Hook is a function that implements [redis.Hook]. It is called for every command and every pipeline of a client, and
// must call next to send the commands.
type Hook func(ctx context.Context, cmds []redis.Cmder, next redis.ProcessPipelineHook) error

// DialHook implements [redis.Hook].
func (h Hook) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessHook implements [redis.Hook].
func (h Hook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		return h(ctx, []redis.Cmder{cmd}, func(ctx context.Context, cmds []redis.Cmder) error { return next(ctx, cmds[0]) })
	}
}

// ProcessPipelineHook implements [redis.Hook].
func (h Hook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error { return h(ctx, cmds, next) }
}

// Long reports whether tests that have a short version must run in full, as in CI.
func Long() bool { return os.Getenv("SERIAL_TEST_LONG") == "1" && !testing.Short() }

// EndingWith returns the pattern of texts that end with a match of want, which may begin with a blank. If want begins
// with a number, the text must match as a whole, because errors may end with numbers, too.
func EndingWith(want string) string {
	if want = strings.TrimPrefix(want, " "); want != "" && strings.ContainsAny(want[:1], "0123456789[") {
		return "^(" + want + ")$"
	}
	return `(^|\W)(` + want + ")$"
}

// Random returns a source of random numbers. It logs the seed, so that a failure can be reproduced with SERIAL_SEED.
func Random(t testing.TB) *rand.Rand {
	t.Helper()
	seed := rand.Uint64()
	if s := os.Getenv("SERIAL_SEED"); s != "" {
		var err error
		if seed, err = strconv.ParseUint(s, 10, 64); err != nil {
			t.Fatal("SERIAL_SEED: ", err)
		}
	}
	t.Logf("SERIAL_SEED=%d", seed)
	return rand.New(rand.NewPCG(seed, 0))
}

// RunAtOnce allows n parallel tests to run at the same time even with fewer CPUs, because tests with servers mostly
// wait. It has no effect if -parallel sets another number than the default. Each test has only a few servers, so n also
// limits the number of processes. RunAtOnce must be called in TestMain, before m.Run.
func RunAtOnce(n int) {
	flag.Parse()
	if f := flag.Lookup("test.parallel"); f.Value.String() == f.DefValue && runtime.GOMAXPROCS(0) < n {
		if err := f.Value.Set(strconv.Itoa(n)); err != nil {
			panic(err) // there is no test that could fail
		}
	}
}
