package ff1_test

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"strconv"
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

// The samples that NIST publishes for FF1. Those of radix 36 do not fit into an int64; they test the reference, with
// which TestReference compares the package.
func TestSamples(t *testing.T) {
	const longKey = "2B7E151628AED2A6ABF7158809CF4F3CEF4359D8D580AA4F7F036D6F04FC6A94"
	for size, coded := range map[int][3]string{
		16: {"2433477484", "6124200773", "a9tv40mll9kdu509eum"},
		24: {"2830668132", "2496655549", "xbj3kv35jrawxv32ysr"},
		32: {"6657667009", "1001623463", "xs8a0azh2avyalyzuwd"},
	} {
		key, err := hex.DecodeString(longKey[:2*size])
		require.NoError(t, err)
		require.Equal(t, coded[2], reference{key, 36}.encrypt([]byte("7777pqrs777"), "0123456789abcdefghi"))
		for i, tweak := range []string{"", "9876543210"} {
			require.Equal(t, coded[i], reference{key, 10}.encrypt([]byte(tweak), "0123456789"))
			c := newCipher(t, key, 10, 10)
			require.Equal(t, coded[i], strconv.FormatInt(c.Encrypt([]byte(tweak), 123456789), 10))
			n, _ := strconv.ParseInt(coded[i], 10, 64)
			require.EqualValues(t, 123456789, c.Decrypt([]byte(tweak), n))
		}
	}
}

// In every domain that New is made for, with tweaks that end anywhere in a block, Encrypt agrees with the reference,
// and Decrypt reverses it.
func TestReference(t *testing.T) {
	source := rand.NewChaCha8([32]byte{1})
	rnd := rand.New(source)
	random := func(n int) []byte {
		b := make([]byte, n)
		_, _ = source.Read(b)
		return b
	}
	domains := 0
	for radix := 2; radix <= 36; radix++ {
		size := int64(1)
		for width := 1; size <= math.MaxInt64/int64(radix); width++ {
			if size *= int64(radix); size < 1e6 {
				continue
			}
			domains++
			key := random(16 + 8*rnd.IntN(3))
			c, r := newCipher(t, key, radix, width), reference{key, radix}
			for _, plain := range []int64{0, 1, size - 1, rnd.Int64N(size), rnd.Int64N(size)} {
				tweak := random(rnd.IntN(70))
				coded := c.Encrypt(tweak, plain)
				require.Equal(t, r.encrypt(tweak, r.str(width, big.NewInt(plain))), r.str(width, big.NewInt(coded)),
					"radix %d, width %d, tweak of %d", radix, width, len(tweak))
				require.Equal(t, plain, c.Decrypt(tweak, coded))
			}
			require.Panics(t, func() { c.Encrypt(nil, size) }, "%d^%d", radix, width)
			require.Panics(t, func() { c.Decrypt(nil, size) })
			require.Panics(t, func() { c.Encrypt(nil, -1) })
		}
	}
	require.Greater(t, domains, 300)
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
