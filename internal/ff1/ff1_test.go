package ff1_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dailyserial/serial/internal/ff1"
)

func newCipher(t testing.TB, key []byte, radix, width int) *ff1.Cipher {
	t.Helper()
	c, err := ff1.New(key, radix, width)
	require.NoError(t, err)
	return c
}

// The samples that NIST publishes for FF1, except those of radix 36, which do not fit into an int64.
func TestSamples(t *testing.T) {
	const longKey = "2B7E151628AED2A6ABF7158809CF4F3CEF4359D8D580AA4F7F036D6F04FC6A94"
	for size, coded := range map[int][2]int64{
		16: {2433477484, 6124200773}, 24: {2830668132, 2496655549}, 32: {6657667009, 1001623463},
	} {
		key, err := hex.DecodeString(longKey[:2*size])
		require.NoError(t, err)
		c := newCipher(t, key, 10, 10)
		for i, tweak := range []string{"", "9876543210"} {
			require.Equal(t, coded[i], c.Encrypt([]byte(tweak), 123456789))
			require.EqualValues(t, 123456789, c.Decrypt([]byte(tweak), coded[i]))
		}
	}
}

// Every domain that New is made for, with tweaks that end anywhere in a block. Decrypt must reverse Encrypt. The digest
// is that of the results of another implementation, which computes with big integers and shares no code with the
// package. It passes the samples of radix 36, too, and is in internal/ff1/reference_test.go of release 0.6.0.
func TestDomains(t *testing.T) {
	const digest = "788bdc074b81ab37c38f45ff107c183aca0ab4fd33d3d7bba6640cf678410d56"
	source, results := rand.NewChaCha8([32]byte{1}), sha256.New()
	random := func(n uint64) int64 { return int64(source.Uint64() % n) }
	for radix := 2; radix <= 36; radix++ {
		size := int64(1)
		for width := 1; size <= math.MaxInt64/int64(radix); width++ {
			if size *= int64(radix); size < 1e6 {
				continue
			}
			key := make([]byte, 16+8*random(3))
			_, _ = source.Read(key)
			c := newCipher(t, key, radix, width)
			for _, plain := range []int64{0, 1, size - 1, random(uint64(size)), random(uint64(size))} {
				tweak := make([]byte, random(70))
				_, _ = source.Read(tweak)
				coded := c.Encrypt(tweak, plain)
				require.Equal(t, plain, c.Decrypt(tweak, coded), "radix %d, width %d", radix, width)
				_, _ = fmt.Fprintln(results, radix, width, coded)
			}
			require.Panics(t, func() { c.Encrypt(nil, size) }, "%d^%d", radix, width)
			require.Panics(t, func() { c.Decrypt(nil, size) })
			require.Panics(t, func() { c.Encrypt(nil, -1) })
		}
	}
	require.Equal(t, digest, hex.EncodeToString(results.Sum(nil)))
}

// New refuses keys of a wrong length. It does not keep the key, and a cipher may be shared by goroutines.
func TestNew(t *testing.T) {
	for _, size := range []int{0, 15, 64} {
		_, err := ff1.New(make([]byte, size), 10, 6)
		require.EqualError(t, err, fmt.Sprintf("ff1: the key has %d bytes; want 16, 24 or 32", size))
	}
	key := []byte("0123456789abcdef")
	c, same := newCipher(t, key, 10, 9), newCipher(t, bytes.Clone(key), 10, 9)
	clear(key)
	var wg sync.WaitGroup
	defer wg.Wait()
	for g := range 8 {
		wg.Go(func() {
			tweak := bytes.Repeat([]byte("serial:{IS}:"), g)
			for n := range int64(100) {
				if coded := c.Encrypt(tweak, n); coded != same.Encrypt(tweak, n) || c.Decrypt(tweak, coded) != n {
					t.Errorf("%d is encrypted as %d", n, coded)
				}
			}
		})
	}
}

// Each call may allocate once.
func TestAllocations(t *testing.T) {
	key := "serial:{a type of some length, as they come}:20211024" // longer than what a conversion keeps on the stack
	for _, width := range []int{6, 15} {
		c := newCipher(t, make([]byte, 32), 10, width)
		n := int64(4711)
		require.LessOrEqual(t, testing.AllocsPerRun(100, func() { n = c.Encrypt([]byte(key), n) }), 1.0)
		require.LessOrEqual(t, testing.AllocsPerRun(100, func() { n = c.Decrypt([]byte(key), n) }), 1.0)
	}
}
