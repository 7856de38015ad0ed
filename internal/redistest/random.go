package redistest

import (
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
)

// Long reports whether tests that have a short version must run in full, as in CI.
func Long() bool { return os.Getenv("SERIAL_TEST_LONG") == "1" && !testing.Short() }

// Random returns a source of random numbers. It logs the seed, so that a failure can be reproduced with SERIAL_SEED.
func Random(t testing.TB) *rand.Rand {
	t.Helper()
	seed := rand.Uint64()
	if s := os.Getenv("SERIAL_SEED"); s != "" {
		var err error
		seed, err = strconv.ParseUint(s, 10, 64)
		if err != nil {
			t.Fatal("SERIAL_SEED: ", err)
		}
	}
	t.Logf("SERIAL_SEED=%d", seed)
	return rand.New(rand.NewPCG(seed, 0))
}
