package ff1_test

import (
	"crypto/aes"
	"crypto/subtle"
	"encoding/binary"
	"math"
	"math/big"
	"slices"
	"strings"
)

// reference implements FF1.Encrypt as SP 800-38G describes it, step by step, for numeral strings of any length. It
// shares no code with the package.
type reference struct {
	key   []byte
	radix int
}

// num returns the integer that a numeral string represents.
func (r reference) num(x string) *big.Int {
	n, _ := new(big.Int).SetString(x, r.radix)
	return n
}

// str is the inverse of num, for a string of m numerals.
func (r reference) str(m int, n *big.Int) string {
	x := n.Text(r.radix)
	return strings.Repeat("0", m-len(x)) + x
}

// ciph encrypts the block x XOR y.
func (r reference) ciph(x, y []byte) []byte {
	block, err := aes.NewCipher(r.key)
	if err != nil {
		panic(err)
	}
	out := make([]byte, 16)
	subtle.XORBytes(out, x, y)
	block.Encrypt(out, out)
	return out
}

// encrypt is algorithm 7. The comments have the numbers of its steps.
func (r reference) encrypt(tweak []byte, x string) string {
	n, t := len(x), len(tweak)
	u := n / 2 // 1
	v := n - u
	A, B := x[:u], x[u:] // 2
	// 3, where log2 is not exact for powers of two.
	b := int(math.Ceil(math.Ceil(float64(v)*math.Log2(float64(r.radix))-1e-9) / 8))
	d := 4*((b+3)/4) + 4                                         // 4
	P := []byte{1, 2, 1, 0, 0, byte(r.radix), 10, byte(u % 256)} // 5
	P = binary.BigEndian.AppendUint32(P, uint32(n))
	P = binary.BigEndian.AppendUint32(P, uint32(t))
	for i := range 10 { // 6
		Q := slices.Clone(tweak) // 6.i
		for (len(Q)+b+1)%16 != 0 {
			Q = append(Q, 0)
		}
		Q = append(Q, byte(i))
		Q = append(Q, r.num(B).FillBytes(make([]byte, b))...)
		R := make([]byte, 16) // 6.ii, which is algorithm 6
		for block := range slices.Chunk(append(slices.Clone(P), Q...), 16) {
			R = r.ciph(R, block)
		}
		S := slices.Clone(R) // 6.iii
		for j := 1; len(S) < d; j++ {
			S = append(S, r.ciph(R, binary.BigEndian.AppendUint64(make([]byte, 8), uint64(j)))...)
		}
		y := new(big.Int).SetBytes(S[:d]) // 6.iv
		m := v                            // 6.v
		if i%2 == 0 {
			m = u
		}
		c := y.Add(r.num(A), y) // 6.vi
		c.Mod(c, new(big.Int).Exp(big.NewInt(int64(r.radix)), big.NewInt(int64(m)), nil))
		A, B = B, r.str(m, c) // 6.vii to 6.ix
	}
	return A + B // 7
}
