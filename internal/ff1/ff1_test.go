package ff1_test

import (
	"encoding/hex"
	"math"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dailyserial/serial/internal/ff1"
)

// samples are NIST's for FF1: radix, tweak, plaintext, ciphertext.
var samples = map[string][]struct {
	radix               int
	tweak, plain, coded string
}{
	"2B7E151628AED2A6ABF7158809CF4F3C": {
		{10, "", "0123456789", "2433477484"},
		{10, "39383736353433323130", "0123456789", "6124200773"},
		{36, "3737373770717273373737", "0123456789abcdefghi", "a9tv40mll9kdu509eum"},
	},
	"2B7E151628AED2A6ABF7158809CF4F3CEF4359D8D580AA4F": {
		{10, "", "0123456789", "2830668132"},
		{10, "39383736353433323130", "0123456789", "2496655549"},
		{36, "3737373770717273373737", "0123456789abcdefghi", "xbj3kv35jrawxv32ysr"},
	},
	"2B7E151628AED2A6ABF7158809CF4F3CEF4359D8D580AA4F7F036D6F04FC6A94": {
		{10, "", "0123456789", "6657667009"},
		{10, "39383736353433323130", "0123456789", "1001623463"},
		{36, "3737373770717273373737", "0123456789abcdefghi", "xs8a0azh2avyalyzuwd"},
	},
}

func unhex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(s)
	require.NoError(t, err)
	return b
}

func newCipher(t testing.TB, key []byte, radix, width int) *ff1.Cipher {
	t.Helper()
	c, err := ff1.New(key, radix, width)
	require.NoError(t, err)
	return c
}

// value is the integer that a numeral string stands for.
func value(t testing.TB, s string, radix int) uint64 {
	t.Helper()
	n, err := strconv.ParseUint(s, radix, 64)
	require.NoError(t, err)
	return n
}

// text is the numeral string of a number.
func text(n uint64, radix, width int) string {
	s := strconv.FormatUint(n, radix)
	return strings.Repeat("0", width-len(s)) + s
}

func numerals(t testing.TB, s string) []byte {
	t.Helper()
	x := make([]byte, len(s))
	for i := range x {
		x[i] = byte(value(t, s[i:i+1], 36))
	}
	return x
}

func TestSamples(t *testing.T) {
	for keyHex, samples := range samples {
		key := unhex(t, keyHex)
		for _, s := range samples {
			tweak, width := unhex(t, s.tweak), len(s.plain)
			c := newCipher(t, key, s.radix, width)
			crypt := func(from string, by func([]byte, uint64, uint64) (uint64, uint64)) string {
				a, b := by(tweak, value(t, from[:width/2], s.radix), value(t, from[width/2:], s.radix))
				return text(a, s.radix, width/2) + text(b, s.radix, width-width/2)
			}
			require.Equal(t, s.coded, crypt(s.plain, c.EncryptHalves))
			require.Equal(t, s.plain, crypt(s.coded, c.DecryptHalves))
			if s.radix == 10 {
				plain, coded := int64(value(t, s.plain, 10)), int64(value(t, s.coded, 10))
				require.Equal(t, coded, c.Encrypt(tweak, plain))
				require.Equal(t, plain, c.Decrypt(tweak, coded))
			}
			r := reference{key, s.radix}
			require.Equal(t, numerals(t, s.coded), r.crypt(tweak, numerals(t, s.plain), false))
			require.Equal(t, numerals(t, s.plain), r.crypt(tweak, numerals(t, s.coded), true))
		}
	}
}

// Every domain that New is made for, with tweaks that end anywhere in a block, as the standard has it.
func TestReference(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	bytes := func(n int) []byte {
		b := make([]byte, n)
		for i := range b {
			b[i] = byte(rnd.Uint32())
		}
		return b
	}
	domains := 0
	for radix := 2; radix <= 36; radix++ {
		for width := 1; width <= 63; width++ {
			size := math.Pow(float64(radix), float64(width))
			if size < 1e6 || size >= math.MaxInt64 {
				continue
			}
			domains++
			key := bytes(16 + 8*rnd.IntN(3))
			c := newCipher(t, key, radix, width)
			require.InEpsilon(t, size, float64(c.Size()), 1e-12)
			r := reference{key, radix}
			for _, plain := range []int64{0, 1, c.Size() - 1, rnd.Int64N(c.Size()), rnd.Int64N(c.Size())} {
				tweak := bytes(rnd.IntN(70))
				coded := c.Encrypt(tweak, plain)
				want := r.crypt(tweak, numerals(t, text(uint64(plain), radix, width)), false)
				got := numerals(t, text(uint64(coded), radix, width))
				require.Equal(t, want, got, "radix %d, width %d, tweak of %d", radix, width, len(tweak))
				require.Equal(t, plain, c.Decrypt(tweak, coded))
			}
		}
	}
	require.Greater(t, domains, 300)
}

// In a small domain every number comes exactly once.
func TestOneToOne(t *testing.T) {
	for _, domain := range []struct{ radix, width int }{{10, 4}, {2, 13}, {36, 2}, {32, 3}} {
		u := domain.width / 2
		low, high := power(domain.radix, domain.width-u), power(domain.radix, u)
		c := newCipher(t, []byte("0123456789abcdef"), domain.radix, domain.width)
		seen := make([]bool, low*high)
		for n := range low * high {
			a, b := c.EncryptHalves([]byte("tweak"), n/low, n%low)
			require.False(t, seen[a*low+b])
			seen[a*low+b] = true
			a, b = c.DecryptHalves([]byte("tweak"), a, b)
			require.Equal(t, n, a*low+b)
		}
	}
}

func power(radix, exponent int) uint64 {
	n := uint64(1)
	for range exponent {
		n *= uint64(radix)
	}
	return n
}

// Another tweak or key is another mapping.
func TestKeyAndTweak(t *testing.T) {
	images := map[int64]bool{}
	const long = "0123456789abcdef0123456789abcdef"
	for _, key := range []string{long[:16], long[1:17], long[:24], long} {
		c := newCipher(t, []byte(key), 10, 15)
		for _, tweak := range []string{"", "\x00", "serial:{IS}:20211024", "serial:{IS}:20211025", "serial:{IT}:20211024"} {
			images[c.Encrypt([]byte(tweak), 1)] = true
		}
	}
	require.Len(t, images, 20)
}

func TestKeyIsNotKept(t *testing.T) {
	key := []byte("0123456789abcdef")
	c := newCipher(t, key, 10, 6)
	before := c.Encrypt(nil, 1)
	clear(key)
	require.Equal(t, before, c.Encrypt(nil, 1))
}

func TestNew(t *testing.T) {
	key := make([]byte, 32)
	for _, test := range []struct {
		key          []byte
		radix, width int
		want         string // "" if it is allowed
	}{
		{key, 10, 6, ""},
		{key, 10, 15, ""},
		{key, 10, 18, ""},
		{key[:16], 32, 4, ""},
		{key[:24], 36, 4, ""},
		{key, 36, 9, ""},
		{key, 36, 12, ""},
		{key, 2, 20, ""},
		{key, 2, 62, ""},
		{nil, 10, 6, "ff1: the key has 0 bytes; want 16, 24 or 32"},
		{key[:15], 10, 6, "ff1: the key has 15 bytes; want 16, 24 or 32"},
		{make([]byte, 64), 10, 6, "ff1: the key has 64 bytes; want 16, 24 or 32"},
	} {
		c, err := ff1.New(test.key, test.radix, test.width)
		if test.want != "" {
			require.ErrorContains(t, err, test.want)
			require.Nil(t, c)
			continue
		}
		require.NoError(t, err)
		require.InEpsilon(t, math.Pow(float64(test.radix), float64(test.width)), float64(c.Size()), 1e-12)
	}
}

func TestOutside(t *testing.T) {
	c := newCipher(t, make([]byte, 16), 10, 6)
	for _, n := range []int64{-1, 1_000_000, math.MinInt64, math.MaxInt64} {
		require.Panics(t, func() { c.Encrypt(nil, n) })
		require.Panics(t, func() { c.Decrypt(nil, n) })
	}
	for _, n := range []int64{0, 999_999} {
		require.Equal(t, n, c.Decrypt(nil, c.Encrypt(nil, n)))
	}
}

// What docs/hidden-volume.md says of the numbers that somebody collects: they are spread over the whole domain alike,
// whether they are the first of a thousand or a part of half a million.
func TestCollectedNumbersTellNothing(t *testing.T) {
	const size, collected, parts = 1_000_000, 1000, 20
	c := newCipher(t, []byte("0123456789abcdef"), 10, 6)
	for _, issued := range []int64{collected, 500_000} {
		for _, tweak := range []string{"serial:{IS}:20211024", "serial:{IS}:20211025", "serial:{IS}:20211026"} {
			rnd := rand.New(rand.NewPCG(5, 6))
			var in [parts]int
			var largest int64
			for i := range int64(collected) {
				image := c.Encrypt([]byte(tweak), i*(issued/collected)+rnd.Int64N(issued/collected))
				in[image*parts/size]++
				largest = max(largest, image)
			}
			chi := 0.0
			for _, n := range in {
				chi += math.Pow(float64(n)-collected/parts, 2) / (collected / parts)
			}
			require.Less(t, chi, 43.8, "of %d, %s", issued, tweak) // 19 degrees of freedom: 1 in 1000
			require.InDelta(t, size, largest, 7*size/collected)    // so is the largest
		}
	}
}

func FuzzRoundTrip(f *testing.F) {
	f.Add([]byte("0123456789abcdef"), []byte("serial:{IS}:20211024"), byte(10), byte(6), int64(1))
	f.Add([]byte("0123456789abcdef01234567"), []byte{}, byte(32), byte(9), int64(1)<<44)
	f.Add([]byte("0123456789abcdef0123456789abcdef"), []byte("-"), byte(36), byte(9), int64(0))
	f.Fuzz(func(t *testing.T, key, tweak []byte, radix, width byte, n int64) {
		size := math.Pow(float64(radix), float64(width))
		if radix < 2 || radix > 36 || size < 1e6 || size >= math.MaxInt64 || n < 0 {
			return
		}
		c, err := ff1.New(key, int(radix), int(width))
		if err != nil {
			return
		}
		n %= c.Size()
		coded := c.Encrypt(tweak, n)
		require.True(t, 0 <= coded && coded < c.Size())
		require.Equal(t, n, c.Decrypt(tweak, coded))
		require.Equal(t, coded, c.Encrypt(tweak, c.Decrypt(tweak, coded)))
	})
}

// Goroutines share a cipher.
func TestConcurrently(t *testing.T) {
	c := newCipher(t, []byte("0123456789abcdef"), 10, 9)
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			tweak := []byte(strings.Repeat("serial:{IS}:", g))
			for n := range int64(1000) {
				if back := c.Decrypt(tweak, c.Encrypt(tweak, n)); back != n {
					t.Errorf("%d came back as %d", n, back)
					return
				}
			}
		})
	}
	wg.Wait()
}

func TestAllocations(t *testing.T) {
	key := "serial:{a type of some length, as they come}:20211024" // longer than what a conversion keeps on the stack
	for _, width := range []int{6, 15} {
		c := newCipher(t, make([]byte, 32), 10, width)
		n := int64(4711)
		require.LessOrEqual(t, testing.AllocsPerRun(100, func() { n = c.Encrypt([]byte(key), n) }), 1.0)
		require.LessOrEqual(t, testing.AllocsPerRun(100, func() { n = c.Decrypt([]byte(key), n) }), 1.0)
	}
}
